"""A pipeline's passes run wave by wave (docs/clock.md): each stage's state through the matrix of its pass, what it made sent on.

Steps that run the same passes in the same waves run together, whatever their layers take: a state of fewer places is one whose other
places are never reached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.step.max_plus import NEVER, applied
from rackmodel.cost.step.pass_plan import PassPlan, Wave

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
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
    """A pipeline that runs."""

    def __init__(self, waiting: Waiting) -> None:
        self.plan, self.values, self.link_s = waiting.plan, waiting.values, waiting.link_s
        self.state, self.linked = waiting.state.copy(), bool(waiting.link_s.any())
        stages, _, n = self.state.shape
        self.arrivals = np.zeros((len(self.plan.which) + 1, n))
        self.sent = np.zeros((2, stages, n))

    def ended(self) -> Array:
        """Run to the end: [stages, state, n]."""
        for wave in self.plan.waves:
            self.wave(wave)
        return self.state

    def wave(self, wave: Wave) -> Array:
        """Run a wave; the states before it."""
        before = self.state[wave.device]
        np.maximum(before[:, 0], self.arrivals[wave.feeds], out=before[:, 0])
        self.state[wave.device] = now = applied(before, self.values[wave.alike])
        self.arrivals[wave.passes] = now[:, 0]
        if self.linked and wave.sending.size:
            leave = np.maximum(now[wave.sending, 0], self.sent[wave.way, wave.sender])
            self.arrivals[wave.passes[wave.sending]] = self.sent[wave.way, wave.sender] = leave + self.link_s
        return before


class KeptRun(WaveRun):
    """One that keeps what paths are read back from, of the first `kept` mappings. entries: [passes, state, kept] states before them ·
    behind: [passes, kept] the pass whose send the send of this one waited for; `passes` for none."""

    def __init__(self, waiting: Waiting, kept: int) -> None:
        super().__init__(waiting)
        count, (stages, size, _) = len(self.plan.which), self.state.shape
        self.entries, self.kept = np.empty((count, size, kept)), kept
        self.sender, self.behind = np.full((2, stages), count), np.full((count, kept), count)

    def wave(self, wave: Wave) -> Array:
        """Run a wave; the states before it."""
        waited = self.sent[wave.way, wave.sender, : self.kept]
        before = super().wave(wave)
        self.entries[wave.passes] = before[..., : self.kept]
        if self.linked and wave.sending.size:
            here, ready = wave.passes[wave.sending], self.state[wave.device[wave.sending], 0, : self.kept]
            self.behind[here] = np.where(waited > ready, self.sender[wave.way, wave.sender][:, None], len(self.behind))
            self.sender[wave.way, wave.sender] = here
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
    size = max(one.state.shape[1] for one in waiting)
    both = Waiting(
        plan=waiting[0].plan,
        state=np.concatenate([_padded(one.state, (1,), size) for one in waiting], axis=-1),
        values=np.concatenate([_padded(one.values, (1, 2), size) for one in waiting], axis=-1),
        link_s=np.concatenate([one.link_s for one in waiting]),
    )
    parts = np.split(both.run(), np.cumsum([one.state.shape[2] for one in waiting])[:-1], axis=-1)
    return [part[:, : one.state.shape[1]] for part, one in zip(parts, waiting, strict=True)]


def _padded(values: Array, axes: tuple[int, ...], size: int) -> Array:
    """With places that nothing reaches, up to `size` along some axes."""
    return np.pad(values, [(0, size - n if axis in axes else 0) for axis, n in enumerate(values.shape)], constant_values=NEVER)
