"""Pipelines' passes run wave by wave (docs/clock.md): each stage's state through the matrix of its pass, what it made sent on.

Pipelines run side by side, whatever their orders: the passes of a wave of all of them, for each of their mappings, are one row of an array.
A state of fewer places is one whose other places are never reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
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

    def columns(self, which: slice) -> Waiting:
        """Some of the mappings."""
        return replace(self, state=self.state[..., which], values=self.values[..., which], link_s=self.link_s[which])


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A pipeline that has run. state: [stages, state, n] · arrivals: [passes + 1, n] when what they made arrived · entries: [passes, state,
    n] states before them, and behind: [passes, n] the pass whose send that of this one waited for, `passes` for none; of those that keep
    them."""

    state: Array
    arrivals: Array
    entries: Array | None = None
    behind: Ints | None = None


def run_together(waiting: Sequence[Waiting], keep: int = 0) -> list[Ended]:
    """Pipelines to their ends. keep: how many of them, the first, keep what paths are read back from."""
    return _WaveRun(waiting, keep).ended()


class _Rows:
    """Where what some pipelines have so many of (counts), once for each of their n mappings, lies in one row."""

    def __init__(self, counts: Sequence[int], waiting: Sequence[Waiting]) -> None:
        self.waiting = waiting
        self.bounds = [0, *accumulate(count * one.n for count, one in zip(counts, waiting, strict=True))]

    def at(self, number: int, which: Ints) -> Ints:
        """The places of some of the things of a pipeline, mapping by mapping."""
        n = self.waiting[number].n
        return (which[:, None] * n + (self.bounds[number] + np.arange(n))).reshape(-1)

    def of(self, number: int, row: Array) -> Array:
        """What a row (its last axis) holds of a pipeline: [..., things, n]."""
        own = row[..., self.bounds[number] : self.bounds[number + 1]]
        return own.reshape(*own.shape[:-1], -1, self.waiting[number].n)


class _WaveRun:
    """Pipelines that run. Rows are of stages, passes or matrices, once a mapping."""

    def __init__(self, waiting: Sequence[Waiting], keep: int) -> None:
        self.waiting, self.keep = waiting, keep
        plans = [one.plan for one in waiting]
        self.stages = _Rows([len(one.state) for one in waiting], waiting)
        self.passes = _Rows([len(plan.which) + 1 for plan in plans], waiting)
        matrices = _Rows([len(one.values) for one in waiting], waiting)
        size = max(one.state.shape[1] for one in waiting)
        self.state = np.full((size, self.stages.bounds[-1]), NEVER)
        self.values = np.full((size, size, matrices.bounds[-1]), NEVER)
        for number, one in enumerate(waiting):
            own = one.state.shape[1]
            self.stages.of(number, self.state)[:own] = np.moveaxis(one.state, 0, 1)
            matrices.of(number, self.values)[:own, :own] = np.moveaxis(one.values, 0, 2)
        self.arrivals = np.zeros(self.passes.bounds[-1])
        self.link_s = self._joined([np.tile(one.link_s, len(one.state)) for one in waiting])
        self.sent = np.zeros(2 * len(self.link_s))  # when links are free: those of forward passes, then those of backward ones
        self._order(plans, matrices)
        self._of_wave: dict[bytes, Array] = {}

    def _order(self, plans: Sequence[PassPlan], matrices: _Rows) -> None:
        """Passes wave by wave, pipelines in their order within a wave, and sends alike."""
        every = list(enumerate(plans))
        wave = self._joined([np.repeat(plan.wave, self.waiting[x].n) for x, plan in every])
        order = np.argsort(wave, kind="stable")
        self.waves = int(wave[order[-1]]) + 1 if len(wave) else 0
        self.bounds = np.searchsorted(wave[order], np.arange(self.waves + 1)).tolist()
        self.number = self._joined([self.passes.at(x, plan.passes) for x, plan in every])[order]
        self.feeds = self._joined([self.passes.at(x, plan.feeds) for x, plan in every])[order]
        self.device = self._joined([self.stages.at(x, plan.device) for x, plan in every])[order]
        self.alike = self._joined([matrices.at(x, self.waiting[x].matrix[plan.which[plan.passes]]) for x, plan in every])[order]
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        linked = [(x, plan) for x, plan in every if self.waiting[x].link_s.any()]
        first = [0, *accumulate(len(plan.passes) * self.waiting[x].n for x, plan in every)]
        sends = self._joined([place[_copies(plan.sending, self.waiting[x].n) + first[x]] for x, plan in linked])
        links = self._joined([self.stages.at(x, plan.sender) for x, plan in linked])
        ways = self._joined([np.repeat(plan.way, self.waiting[x].n) for x, plan in linked]) * len(self.link_s)
        by_wave = np.argsort(sends, kind="stable")
        self.sends, self.links, self.ways = sends[by_wave], links[by_wave], (links + ways)[by_wave]
        self.send_bounds = np.searchsorted(self.sends, self.bounds).tolist()
        self.sending = self.sends - np.repeat(np.array(self.bounds[:-1], dtype=np.int64), np.diff(self.send_bounds))  # places in a wave
        self.held = self.link_s[self.links]
        kept = self.passes.bounds[self.keep]
        self.entries = np.empty((kept, len(self.state)))
        self.kept = (np.add.reduceat(self.number < kept, self.bounds[:-1]) if kept else np.zeros(self.waves, dtype=np.int64)).tolist()
        self.ready = np.empty(len(self.sends) if kept else 0)

    @staticmethod
    def _joined(parts: Sequence[Ints | Array]) -> Ints:
        return np.concatenate([np.zeros(0, dtype=np.int64), *parts])

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
        np.maximum(before[0], self.arrivals.take(self.feeds[here]), out=before[0])
        if self.kept[wave]:  # the first of a wave
            self.entries[number[: self.kept[wave]]] = before[:, : self.kept[wave]].T
        now = np.maximum.reduce(before[:, None] + self._values(self.alike[here]), axis=0)
        self.state[:, device] = now
        self.arrivals[number] = now[0]
        first, last = self.send_bounds[wave], self.send_bounds[wave + 1]
        if last > first:
            sending, ways = self.sending[first:last], self.ways[first:last]
            ready = now[0].take(sending)
            leave = np.maximum(ready, self.sent.take(ways))
            leave += self.held[first:last]
            self.sent[ways] = leave
            self.arrivals[number.take(sending)] = leave
            if self.keep:
                self.ready[first:last] = ready

    def _values(self, alike: Ints) -> Array:
        """[state, state, passes] matrices of a wave's passes. The last few are kept: most waves take turns between two or three."""
        key = alike.tobytes()
        if key not in self._of_wave:
            if len(self._of_wave) == TURNS:
                self._of_wave.clear()
            self._of_wave[key] = self.values.take(alike, axis=2)
        return self._of_wave[key]

    def _behind(self) -> Ints:
        """[passes] in a row: the place of the pass whose send that of each one waited for; -1 for none."""
        found = np.full(len(self.arrivals), -1, dtype=np.int64)
        by_link = np.argsort(self.ways, kind="stable")
        one, other = by_link[:-1], by_link[1:]
        same = self.ways[one] == self.ways[other]
        ahead, after = self.number[self.sends[one[same]]], self.number[self.sends[other[same]]]
        waited = self.arrivals[ahead] > self.ready[other[same]]
        found[after[waited]] = ahead[waited]
        return found

    def _of(self, number: int, behind: Ints | None) -> Ended:
        one = self.waiting[number]
        state = np.moveaxis(self.stages.of(number, self.state)[: one.state.shape[1]], 1, 0)
        arrivals = self.passes.of(number, self.arrivals)
        if behind is None or number >= self.keep:
            return Ended(state=state, arrivals=arrivals)
        passes, first = len(one.plan.which), self.passes.bounds[number]
        entries = self.passes.of(number, self.entries.T)[: one.state.shape[1], :passes]
        own = self.passes.of(number, behind)[:passes]  # type: ignore[arg-type]
        return Ended(
            state=state,
            arrivals=arrivals,
            entries=entries.transpose(1, 0, 2),
            behind=np.where(own < 0, passes, (own - first) // one.n).astype(np.int64),
        )


def _copies(which: Ints, n: int) -> Ints:
    """Places of things that are there n times each, one after another."""
    return (which[:, None] * n + np.arange(n)).reshape(-1)
