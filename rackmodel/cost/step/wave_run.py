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
        self.sent = np.zeros((2 * stages + 1, n))  # (the last stands for passes that nobody takes from)
        self._of_turn: dict[int, Array] = {}

    def ended(self) -> Array:
        """Run to the end: [stages, state, n]."""
        for wave in self.plan.waves:
            self.wave(wave)
        return np.moveaxis(self.state, 1, 0)

    def wave(self, wave: Wave) -> Array:
        """Run a wave; the states before it: [state, passes, n]."""
        before = self.state if wave.whole else self.state.take(wave.device, axis=1)
        np.maximum(before[0], self.arrivals.take(wave.feeds, axis=0), out=before[0])
        values = self._values(wave)
        now = before + values[0] if len(before) == 1 else np.maximum.reduce(before[:, None] + values, axis=0)
        if wave.whole:
            self.state = now
        else:
            self.state[:, wave.device] = now
        leave = now[0]
        if self.linked:
            leave = np.maximum(leave, self.sent.take(wave.link, axis=0))
            leave += self.link_s
            self.sent[wave.link] = leave
        self.arrivals[wave.span] = leave
        return before

    def _values(self, wave: Wave) -> Array:
        """[state, state, passes, n] matrices of a wave's passes. The last few are kept: most waves take turns between two or three."""
        found = self._of_turn.get(wave.turn)
        if found is None:
            if len(self._of_turn) == TURNS:
                self._of_turn.clear()
            found = self._of_turn[wave.turn] = self.values.take(wave.alike, axis=2)
        return found


class KeptRun(WaveRun):
    """One that keeps what paths are read back from, of the first `kept` mappings. entries: [passes, state, kept] states before them ·
    behind: [passes, kept] the pass whose send the send of this one waited for; `passes` for none."""

    def __init__(self, waiting: Waiting, kept: int) -> None:
        super().__init__(waiting)
        count, (size, *_) = len(self.plan.which), self.state.shape
        self.entries, self.kept = np.empty((count, size, kept)), kept
        self.behind = np.full((count, kept), count)
        self._made = np.zeros((count, kept))  # when what passes send is there

    def ended(self) -> Array:
        """Run to the end: [stages, state, n]."""
        state = super().ended()
        if self.linked:
            ahead = self.plan.ahead
            waited = self.arrivals[ahead, : self.kept] > self._made
            self.behind = np.where(waited, ahead[:, None], len(ahead))
        return state

    def wave(self, wave: Wave) -> Array:
        """Run a wave; the states before it."""
        before = super().wave(wave)
        self.entries[wave.span] = before[..., : self.kept].transpose(1, 0, 2)
        self._made[wave.span] = (self.state[0] if wave.whole else self.state[0].take(wave.device, axis=0))[:, : self.kept]
        return before


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
