"""A pipeline's passes run wave by wave (docs/clock.md): each stage's state through the matrix of its pass, what it made sent on.

Steps that run the same passes in the same waves run together, whatever their layers take: a state of fewer places is one whose other
places are never reached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.step.max_plus import NEVER
from rackmodel.cost.step.pass_plan import PassPlan, Wave

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
TURNS = 6  # waves whose matrices are kept
WIDE = 32  # mappings that run together: more do not stay in the processor's cache


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A pipeline of n mappings before its first wave. state: [stages, state, n] · values: [distinct passes, state, state, n] with the
    hand-overs that hold their device · link_s: [n] that a send keeps its link; 0 where sends hold their device or there are none."""

    plan: PassPlan
    state: Array
    values: Array
    link_s: Array

    def run(self) -> Array:
        """[stages, state, n] at the end."""
        return WaveRun(self).ended()


class WaveRun:
    """A pipeline that runs. Within, arrays are [state, passes or stages, n]: the mappings of a wave's passes lie side by side."""

    def __init__(self, waiting: Waiting) -> None:
        self.plan, self.link_s = waiting.plan, waiting.link_s
        self.linked = bool(waiting.link_s.any())
        self.values = np.ascontiguousarray(np.moveaxis(waiting.values, 0, 2))
        self.state = np.moveaxis(waiting.state, 0, 1).copy(order="C")
        stages, _, n = waiting.state.shape
        self.arrivals = np.zeros((len(self.plan.which) + 1, n))
        self.sent = np.zeros((2, stages, n))
        self._of_wave: dict[bytes, Array] = {}

    def ended(self) -> Array:
        """Run to the end: [stages, state, n]."""
        for wave in self.plan.waves:
            self.wave(wave)
        return np.moveaxis(self.state, 1, 0)

    def wave(self, wave: Wave) -> Array:
        """Run a wave; the states before it: [state, passes, n]."""
        before = self.state.take(wave.device, axis=1)
        np.maximum(before[0], self.arrivals.take(wave.feeds, axis=0), out=before[0])
        now = np.maximum.reduce(before[:, None] + self._values(wave), axis=0)
        self.state[:, wave.device] = now
        self.arrivals[wave.passes] = now[0]
        if self.linked and wave.sending.size:
            leave = np.maximum(now[0].take(wave.sending, axis=0), self.sent[wave.way, wave.sender])
            leave += self.link_s
            self.arrivals[wave.passes.take(wave.sending)] = self.sent[wave.way, wave.sender] = leave
        return before

    def _values(self, wave: Wave) -> Array:
        """[state, state, passes, n] matrices of a wave's passes. The last few are kept: most waves take turns between two or three."""
        key = wave.alike.tobytes()
        if key not in self._of_wave:
            if len(self._of_wave) == TURNS:
                self._of_wave.clear()
            self._of_wave[key] = self.values.take(wave.alike, axis=2)
        return self._of_wave[key]


class KeptRun(WaveRun):
    """One that keeps what paths are read back from, of the first `kept` mappings. entries: [passes, state, kept] states before them ·
    behind: [passes, kept] the pass whose send the send of this one waited for; `passes` for none."""

    def __init__(self, waiting: Waiting, kept: int) -> None:
        super().__init__(waiting)
        count, (size, stages, _) = len(self.plan.which), self.state.shape
        self.entries, self.kept = np.empty((count, size, kept)), kept
        self.sender, self.behind = np.full((2, stages), count), np.full((count, kept), count)
        self._sends: list[tuple[Array, Array]] = []  # by wave: when links were free, when what is sent was there

    def ended(self) -> Array:
        """Run to the end: [stages, state, n]."""
        state = super().ended()
        if self._sends:
            waves = [wave for wave in self.plan.waves if wave.sending.size]
            here, ahead = (np.concatenate(some) for some in zip(*map(self._queued, waves), strict=True))
            free, ready = (np.concatenate(some) for some in zip(*self._sends, strict=True))
            self.behind[here] = np.where(free > ready, ahead[:, None], len(self.behind))
        return state

    def wave(self, wave: Wave) -> Array:
        """Run a wave; the states before it."""
        sends = self.linked and wave.sending.size
        free = self.sent[wave.way, wave.sender, : self.kept] if sends else None
        before = super().wave(wave)
        self.entries[wave.passes] = before[..., : self.kept].transpose(1, 0, 2)
        if free is not None:
            self._sends.append((free, self.state[0].take(wave.sender, axis=0)[:, : self.kept]))
        return before

    def _queued(self, wave: Wave) -> tuple[Ints, Ints]:
        """(the passes of a wave that send, the passes that sent before them on their links)."""
        here, ahead = wave.passes[wave.sending], self.sender[wave.way, wave.sender]
        self.sender[wave.way, wave.sender] = here
        return here, ahead


def run_together(waiting: Mapping[int, Waiting]) -> dict[int, Array]:
    """[stages, state, n] of each at the end. Those of one plan run as one."""
    alike: dict[int, list[int]] = {}
    for number, one in waiting.items():
        alike.setdefault(id(one.plan), []).append(number)
    found: dict[int, Array] = {}
    for numbers in alike.values():
        found.update(zip(numbers, _joined([waiting[number] for number in numbers]), strict=True))
    return found


def _joined(waiting: Sequence[Waiting]) -> list[Array]:
    if len(waiting) == 1:
        return [waiting[0].run()]
    parts = np.split(side_by_side(waiting).run(), np.cumsum([one.state.shape[2] for one in waiting])[:-1], axis=-1)
    return [part[:, : one.state.shape[1]] for part, one in zip(parts, waiting, strict=True)]


def side_by_side(waiting: Sequence[Waiting]) -> Waiting:
    """Pipelines of one plan as one of all their mappings."""
    size = max(one.state.shape[1] for one in waiting)
    return Waiting(
        plan=waiting[0].plan,
        state=np.concatenate([_padded(one.state, (1,), size) for one in waiting], axis=-1),
        values=np.concatenate([_padded(one.values, (1, 2), size) for one in waiting], axis=-1),
        link_s=np.concatenate([one.link_s for one in waiting]),
    )


def _padded(values: Array, axes: tuple[int, ...], size: int) -> Array:
    """With places that nothing reaches, up to `size` along some axes."""
    return np.pad(values, [(0, size - n if axis in axes else 0) for axis, n in enumerate(values.shape)], constant_values=NEVER)
