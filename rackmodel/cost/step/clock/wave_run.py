"""Pipelines' passes run wave by wave (docs/clock.md): each stage's state through the matrix of its pass, what it made sent on.

Pipelines run side by side, whatever their orders: the passes of a wave of all of them, for each of their mappings, are one row of an array.
A state of fewer places is one whose other places are never reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.cost.step.clock.max_plus import NEVER
from rackmodel.cost.step.clock.pass_plan import PassPlan
from rackmodel.cost.step.clock.pipeline_orders import by_number

TURNS = 6  # waves whose matrices are kept
WIDE = 256  # passes of a wave that run together: more do not stay in the processor's cache


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A pipeline of n mappings before its first wave. matrix: [alike] the matrix of each of the plan's distinct passes · state: [stages,
    state, n] · values: [matrices, state, state, n] with the hand-overs that hold their device · link_s: [n] that a send keeps its link; 0
    where sends hold their device or there are none; [2, stages, n] where links differ, forward and back from each stage."""

    plan: PassPlan
    matrix: Ints
    state: Array
    values: Array
    link_s: Array

    @property
    def n(self) -> int:
        """Mappings."""
        return int(self.link_s.shape[-1])


class Ended:
    """A pipeline that has run. state: [stages, state, n]. The rest is read from the run where it is asked for: a path goes through few of
    its passes."""

    def __init__(self, run: _WaveRun, number: int) -> None:
        own = run.waiting[number]
        self._run, self._size, self._n = run, own.state.shape[1], own.n
        self.state = np.moveaxis(run.stages.of(number, run.state)[: self._size], 1, 0)
        self._place = run.place[slice(*run.passes.bounds[number : number + 2])]
        self._copies = run.passes.copies[number]
        self.keeps = bool(run.keep) and self._copies == 1

    @cached_property
    def arrivals(self) -> Array:
        """[passes + 1, n] when what they made arrived."""
        return np.asarray(self._run.arrivals[self._place].reshape(-1, self._n))

    def of(self, column: int) -> tuple[Array, Array]:
        """([state, passes] before each, 0 of those that have nothing to run; [passes + 1] when what they made arrived) of one mapping that
        is kept."""
        copy, column = divmod(column, self._run.wide)
        cells = self._place.reshape(-1, self._copies)[:, copy]
        return self._run.entries[: self._size, cells[:-1], column], self._run.arrivals[cells, column]

    @property
    def entries(self) -> Array:
        """[passes, state, kept] states before them, where mappings are beside each other."""
        return np.moveaxis(self._run.entries[: self._size, self._place[:-1]], 0, 1)

    @cached_property
    def behind(self) -> Ints:
        """[passes, kept] the pass whose send that of this one waited for, `passes` for none."""
        run, copies = self._run, self._copies
        place = self._place[:-copies]
        passes = len(place) // copies
        found = np.full((len(place), run.keep), passes)
        if run.linked:
            ran = np.flatnonzero(place < len(run.link))
            by_link = ran[by_number(run.link[place[ran]], len(run.sent))]
            link = run.link[place[by_link]]
            same = (link[1:] == link[:-1]) & (link[1:] < len(run.sent) - 1)
            ahead, after = by_link[:-1][same], by_link[1:][same]
            waited = run.arrivals[place[ahead], : run.keep] > run.made[place[after]]
            found[after] = np.where(waited, ahead[:, None] // copies, passes)
        return found.reshape(passes, -1)


def run_together(waiting: Sequence[Waiting], keep: int = 0) -> list[Ended]:
    """Pipelines to their ends. keep: of how many of its mappings, the first, each keeps what paths are read back from; where pipelines
    have not all as many mappings, 1 keeps it of all of them."""
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
        self.wide = wide
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
        self._order(plans, matrices)
        self._of_turn: dict[int, Array] = {}

    def _order(self, plans: Sequence[PassPlan], matrices: _Rows) -> None:
        """Passes wave by wave, pipelines in their order within a wave: what a wave makes lies side by side. place: of each cell of a
        pipeline's passes in that order, the last for what nothing makes."""
        every, copies = list(enumerate(plans)), self.passes.copies
        wave = _joined([np.repeat(plan.wave, copies[x]) for x, plan in every])
        self.waves = int(wave.max()) + 1 if wave.size else 0
        order = by_number(wave, self.waves)
        count, wide = len(order), self.state.shape[-1]
        numbers = _joined([self.passes.at(x, plan.passes) for x, plan in every])
        self.place = np.full(self.passes.bounds[-1], count)
        self.place[numbers[order]] = np.arange(count)
        self.feeds = self.place[_joined([self.passes.at(x, plan.feeds) for x, plan in every])[order]]
        self.device = _joined([self.stages.at(x, plan.device) for x, plan in every])[order]
        self.alike = _joined([matrices.at(x, self.waiting[x].matrix[plan.which[plan.passes]]) for x, plan in every])[order]
        self.bounds = np.append(0, np.cumsum(np.bincount(wave, minlength=self.waves))).tolist()
        self.arrivals = np.zeros((count + 1, wide))  # (nothing arrives at 0)
        self.entries = np.zeros((len(self.state), count + 1, self.keep))  # before each pass; none before what nothing makes
        self._links(plans, order)
        self.made = np.empty((count if self.keep and self.linked else 0, self.keep))  # when what passes send is there
        turns: dict[bytes, int] = {}
        each = [self.alike[low:high] for low, high in pairwise(self.bounds)]
        self.turns = [turns.setdefault(own.tobytes(), len(turns)) for own in each]
        devices, first = np.arange(self.stages.bounds[-1]), np.array(self.bounds[:-1], dtype=np.int64)
        whole = np.diff(self.bounds) == len(devices)
        whole[whole] = (self.device[first[whole, None] + devices] == devices).all(axis=1)
        self.whole = whole.tolist()  # whether every device runs a pass, in their order

    def _links(self, plans: Sequence[PassPlan], order: Ints) -> None:
        """The link that each pass sends on: way by way, a device after another; the last one stands for what is not sent."""
        copies, devices, links = self.passes.copies, self.stages.bounds[-1], list[Ints]()
        for x, plan in enumerate(plans):
            own = np.full(len(plan.passes) * copies[x], 2 * devices)
            if self.waiting[x].link_s.any():
                own[self.passes.again(x, plan.sending)] = np.repeat(plan.way, copies[x]) * devices + self.stages.at(x, plan.sender)
            links.append(own)
        self.link = _joined(links)[order]
        self.linked = bool((self.link < 2 * devices).any())
        wide = self.state.shape[-1]
        ways = [np.broadcast_to(one.link_s, (2, len(one.state), one.n)).reshape(2, -1, wide) for one in self.waiting]
        each = [way[back] for back in (0, 1) for way in ways]
        self.held = np.concatenate([*each, np.zeros((1, wide))])[self.link] if self.linked else np.zeros((0, wide))
        self.sent = np.zeros((2 * devices + 1, wide))

    def ended(self) -> list[Ended]:
        """Run to the end."""
        for wave in range(self.waves):
            self._wave(wave)
        return [Ended(self, number) for number in range(len(self.waiting))]

    def _wave(self, wave: int) -> None:
        here, whole = slice(self.bounds[wave], self.bounds[wave + 1]), self.whole[wave]
        device = self.device[here]
        before = self.state if whole else self.state.take(device, axis=1)
        np.maximum(before[0], self.arrivals.take(self.feeds[here], axis=0), out=before[0])
        if self.keep:
            self.entries[:, here] = before[..., : self.keep]
        now = np.maximum.reduce(before[:, None] + self._values(wave, here), axis=0)
        if whole:
            self.state = now
        else:
            self.state[:, device] = now
        leave = now[0]
        if self.linked:
            if self.keep:
                self.made[here] = leave[:, : self.keep]
            link = self.link[here]
            leave = np.maximum(leave, self.sent.take(link, axis=0))
            leave += self.held[here]
            self.sent[link] = leave
            self.sent[-1] = 0.0
        self.arrivals[here] = leave

    def _values(self, wave: int, here: slice) -> Array:
        """[state, state, passes, wide] matrices of a wave's passes. The last few are kept: most waves take turns between two or three."""
        turn = self.turns[wave]
        found = self._of_turn.get(turn)
        if found is None:
            if len(self._of_turn) == TURNS:
                self._of_turn.clear()
            found = self._of_turn[turn] = self.values.take(self.alike[here], axis=2)
        return found


def _joined(parts: Sequence[Ints]) -> Ints:
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])
