"""Pipelines' passes run wave by wave (docs/clock.md): each stage's state through the matrix of its pass, what it made sent on.

Pipelines run side by side, whatever their orders: the passes of a wave of all of them, for each of their mappings, are one row of an array.
A state of fewer places is one whose other places are never reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.step.max_plus import NEVER
from rackmodel.cost.step.pass_plan import PassPlan

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
TURNS = 6  # waves whose matrices are kept
WIDE = 256  # passes of a wave that run together: more do not stay in the processor's cache


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A pipeline of n mappings before its first wave. matrix: [alike] the matrix of each of the plan's distinct passes · state: [stages,
    state, n] · values: [matrices, state, state, n] with the hand-overs that hold their device · link_s: [n] that a send keeps its link; 0
    where sends hold their device or there are none."""

    plan: PassPlan
    matrix: Ints
    state: Array
    values: Array
    link_s: Array

    @property
    def n(self) -> int:
        """Mappings."""
        return len(self.link_s)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A pipeline that has run. state: [stages, state, n] · arrivals: [passes + 1, n] when what they made arrived · entries: [passes, state,
    kept] states before them, and behind: [passes, kept] the pass whose send that of this one waited for, `passes` for none; of the
    mappings that are kept."""

    state: Array
    arrivals: Array
    entries: Array | None = None
    behind: Ints | None = None


def run_together(waiting: Sequence[Waiting], keep: int = 0) -> list[Ended]:
    """Pipelines to their ends. keep: of how many of its mappings, the first, each keeps what paths are read back from; then all pipelines
    have as many mappings."""
    return _WaveRun(waiting, keep).ended()


class _Rows:
    """Where what some pipelines have so many of (counts), for each of their n mappings, lies in one row of cells. wide: mappings of a cell;
    where a pipeline has more, what it has is there several times, a cell after another."""

    def __init__(self, counts: Sequence[int], waiting: Sequence[Waiting], wide: int) -> None:
        self.copies = [one.n // wide for one in waiting]
        self.bounds = [0, *accumulate(count * copies for count, copies in zip(counts, self.copies, strict=True))]

    def at(self, number: int, which: Ints) -> Ints:
        """The cells of some of the things of a pipeline, thing by thing."""
        return self.bounds[number] + self.again(number, which)

    def again(self, number: int, which: Ints) -> Ints:
        """The same, where the first of the pipeline's is 0."""
        copies = self.copies[number]
        return (which[:, None] * copies + np.arange(copies)).reshape(-1) if copies > 1 else which

    def of(self, number: int, row: Array) -> Array:
        """What a row [..., cells, wide] holds of a pipeline: [..., things, n]."""
        own = row[..., self.bounds[number] : self.bounds[number + 1], :]
        return own.reshape(*own.shape[:-2], -1, self.copies[number] * own.shape[-1])


class _WaveRun:
    """Pipelines that run. Rows are of stages, passes or matrices; a cell has one mapping, or all where every pipeline has as many."""

    def __init__(self, waiting: Sequence[Waiting], keep: int) -> None:
        self.waiting, self.keep = waiting, keep
        plans = [one.plan for one in waiting]
        wide = waiting[0].n if len({one.n for one in waiting}) == 1 else 1
        assert keep <= wide
        self.stages = _Rows([len(one.state) for one in waiting], waiting, wide)
        self.passes = _Rows([len(plan.which) + 1 for plan in plans], waiting, wide)
        matrices = _Rows([len(one.values) for one in waiting], waiting, wide)
        size = max(one.state.shape[1] for one in waiting)
        self.state = np.full((size, self.stages.bounds[-1], wide), NEVER)
        self.values = np.full((size, size, matrices.bounds[-1], wide), NEVER)
        for number, one in enumerate(waiting):
            own = one.state.shape[1]
            self.stages.of(number, self.state)[:own] = np.moveaxis(one.state, 0, 1)
            matrices.of(number, self.values)[:own, :own] = np.moveaxis(one.values, 0, 2)
        self.arrivals = np.zeros((self.passes.bounds[-1], wide))
        self.link_s = np.concatenate([np.tile(one.link_s.reshape(-1, wide), (len(one.state), 1)) for one in waiting])
        self.sent = np.zeros((2 * len(self.link_s), wide))  # when links are free: those of forward passes, then those of backward ones
        self._order(plans, matrices)
        self._of_wave: dict[bytes, Array] = {}

    def _order(self, plans: Sequence[PassPlan], matrices: _Rows) -> None:
        """Passes wave by wave, pipelines in their order within a wave, and sends alike."""
        every, copies = list(enumerate(plans)), self.passes.copies
        wave = _joined([np.repeat(plan.wave, copies[x]) for x, plan in every])
        order = np.argsort(wave, kind="stable")
        self.waves = int(wave[order[-1]]) + 1 if len(wave) else 0
        self.bounds = np.searchsorted(wave[order], np.arange(self.waves + 1)).tolist()
        self.number = _joined([self.passes.at(x, plan.passes) for x, plan in every])[order]
        self.feeds = _joined([self.passes.at(x, plan.feeds) for x, plan in every])[order]
        self.device = _joined([self.stages.at(x, plan.device) for x, plan in every])[order]
        self.alike = _joined([matrices.at(x, self.waiting[x].matrix[plan.which[plan.passes]]) for x, plan in every])[order]
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        linked = [(x, plan) for x, plan in every if self.waiting[x].link_s.any()]
        first = [0, *accumulate(len(plan.passes) * copies[x] for x, plan in every)]
        sends = _joined([place[first[x] + self.passes.again(x, plan.sending)] for x, plan in linked])
        links = _joined([self.stages.at(x, plan.sender) for x, plan in linked])
        ways = _joined([np.repeat(plan.way, copies[x]) for x, plan in linked]) * len(self.link_s)
        by_wave = np.argsort(sends, kind="stable")
        self.sends, self.ways = sends[by_wave], (links + ways)[by_wave]
        self.held = self.link_s[links[by_wave]]
        self.send_bounds = np.searchsorted(self.sends, self.bounds).tolist()
        self.sending = self.sends - np.repeat(np.array(self.bounds[:-1], dtype=np.int64), np.diff(self.send_bounds))  # places in a wave
        self.entries = np.empty((self.passes.bounds[-1] if self.keep else 0, len(self.state), self.keep))
        self.ready = np.empty((len(self.sends), self.keep))

    def ended(self) -> list[Ended]:
        """Run to the end."""
        for wave in range(self.waves):
            self._wave(wave)
        behind = self._behind() if self.keep else None
        return [self._of(number, behind) for number in range(len(self.waiting))]

    def _wave(self, wave: int) -> None:
        here = slice(self.bounds[wave], self.bounds[wave + 1])
        device, number = self.device[here], self.number[here]
        before = self.state.take(device, axis=1)
        np.maximum(before[0], self.arrivals.take(self.feeds[here], axis=0), out=before[0])
        if self.keep:
            self.entries[number] = before[..., : self.keep].swapaxes(0, 1)
        now = np.maximum.reduce(before[:, None] + self._values(self.alike[here]), axis=0)
        self.state[:, device] = now
        self.arrivals[number] = now[0]
        first, last = self.send_bounds[wave], self.send_bounds[wave + 1]
        if last > first:
            sending, ways = self.sending[first:last], self.ways[first:last]
            ready = now[0].take(sending, axis=0)
            leave = np.maximum(ready, self.sent.take(ways, axis=0))
            leave += self.held[first:last]
            self.sent[ways] = leave
            self.arrivals[number.take(sending)] = leave
            if self.keep:
                self.ready[first:last] = ready[:, : self.keep]

    def _values(self, alike: Ints) -> Array:
        """[state, state, passes, wide] matrices of a wave's passes. The last few are kept: most waves take turns between two or three."""
        key = alike.tobytes()
        if key not in self._of_wave:
            if len(self._of_wave) == TURNS:
                self._of_wave.clear()
            self._of_wave[key] = self.values.take(alike, axis=2)
        return self._of_wave[key]

    def _behind(self) -> Array:
        """[passes, kept] in a row: the cell of the pass whose send that of each one waited for; -1 for none."""
        found = np.full((len(self.arrivals), self.keep), -1.0)
        by_link = np.argsort(self.ways, kind="stable")
        one, other = by_link[:-1], by_link[1:]
        same = self.ways[one] == self.ways[other]
        ahead, after = self.number[self.sends[one[same]]], self.number[self.sends[other[same]]]
        found[after] = np.where(self.arrivals[ahead, : self.keep] > self.ready[other[same]], ahead[:, None], -1)
        return found

    def _of(self, number: int, behind: Array | None) -> Ended:
        one = self.waiting[number]
        state = np.moveaxis(self.stages.of(number, self.state)[: one.state.shape[1]], 1, 0)
        arrivals = self.passes.of(number, self.arrivals)
        if behind is None:
            return Ended(state=state, arrivals=arrivals)
        passes = len(one.plan.which)
        entries = self.passes.of(number, self.entries.swapaxes(0, 1))[: one.state.shape[1], :passes]
        cells = self.passes.of(number, behind)[:passes]
        before = np.where(cells < 0, passes, cells - self.passes.bounds[number]).astype(np.int64)
        return Ended(state=state, arrivals=arrivals, entries=entries.swapaxes(0, 1), behind=before)


def _joined(parts: Sequence[Ints]) -> Ints:
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])
