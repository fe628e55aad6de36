"""Uneven cuts and a policy for each layer, over the whole space: columns, cuts and mixes in the order of their bounds.

Whatever the cut, 1F1B and GPipe of p stages and m micro-batches take at least

    T >= W / (1 − (1 − 1/m)^p),    W = seconds of one micro-batch through all stages under each layer's fastest policy

(DERIVED: the weights w_i ∝ (1 − 1/m)^(p−1−i) make Σ w_i (Σ_{j<i} t_j + m t_i) the same multiple of every stage's t). A column whose
turn comes by that bound is priced and its cuts are bounded (`stage_cut`); then it takes its turn by the bound of its next cut, which the
clock runs. The search ends when no bound left is below the best step, or when it has run as many cuts as it may; what is then left
open is in the bound.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rackmodel.cost.step.bounds.device_times import StepChoices, device_times
from rackmodel.cost.step.cut import layers_of
from rackmodel.cost.step.group import GroupPrice
from rackmodel.errors import InfeasibleError
from rackmodel.mapper.mapspace import PLAIN, Group
from rackmodel.mapper.stages.columns import Candidate, OpenColumns
from rackmodel.mapper.stages.needs import NoCutFits, miss_of
from rackmodel.mapper.stages.stage_cut import TIGHT, ColumnCuts, TimedCut
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.schedules import CHUNKED, SCHEDULES, SPLIT
from rackmodel.watch import Watch

BOUNDED = frozenset(SCHEDULES) - SPLIT - CHUNKED
"""Schedules that the bound of a cut is of: whole backward passes, one chunk a stage."""
TIMED = 128  # cuts timed besides the first ones of each column


def families(group: Group, per_layer: bool) -> list[tuple[int, ...]]:
    """Plans that differ in policy alone, where layers may mix them; else each alone."""
    numbers = range(len(group.variants))
    if not per_layer:
        return [(number,) for number in numbers]

    def rest(number: int) -> tuple[str, int, tuple[str, ...]]:
        variant = group.variants[number]
        return variant.layout, variant.home, variant.offload

    return [tuple(same) for _, same in itertools.groupby(sorted(numbers, key=rest), key=rest)]


@dataclass(frozen=True)
class Asked:
    """What is open. schedules: of BOUNDED; none = pipelines are not · per_layer: whether layers choose their policy · overlaps: (windows,
    beside) pairs."""

    schedules: Sequence[str]
    overlaps: Sequence[tuple[int, int]]
    profile: ProfileSpec
    per_layer: bool


def candidates(groups: Sequence[Group], prices: Sequence[GroupPrice], asked: Asked) -> Iterator[Candidate]:
    """Every column with a pipeline, with its bound."""
    choices = StepChoices.of(asked.profile, asked.overlaps)
    for number, (group, price) in enumerate(zip(groups, prices, strict=True)):
        columns = group.columns
        deep = np.arange(len(columns)) if asked.per_layer else np.flatnonzero(columns.stages > 1)
        layers = layers_of(price.repeats, price.layers)
        deep = deep[columns.stages[deep] <= (layers if asked.schedules else 1)]
        p, m = columns.stages[deep][:, None].astype(float), columns.micro_batches[deep][:, None].astype(float)
        for family in families(group, asked.per_layer):
            total = np.zeros((len(deep), len(asked.overlaps)))
            for section in price.sections:
                own = device_times(section.columns(deep).plans(np.array(family)), choices)
                total = total + section.repeat * (own.forward + own.backward).min(axis=0)
            bound = total / (1.0 - (1.0 - 1.0 / m) ** p) * (1.0 - TIGHT)
            for schedule in asked.schedules or (PLAIN,):
                for (at, column), (o, overlap) in itertools.product(enumerate(deep.tolist()), enumerate(asked.overlaps)):
                    yield Candidate(number, family, column, overlap, schedule, float(bound[at, o]))


@dataclass(order=True)
class _Turn:
    """bound: of what is left of a candidate · cuts: of it, once it is opened."""

    bound: float
    number: int
    candidate: Candidate = field(compare=False)
    cuts: ColumnCuts | None = field(default=None, compare=False)


class CutSearch:
    """Best first over candidates and their cuts.

    kept: told of every cut that was timed, keeps it if it may, and says the seconds that a better one must beat · most_s: seconds that a
    limit allows: what is slower is not looked at."""

    def __init__(self, columns: OpenColumns, kept: Callable[[Candidate, TimedCut], float], watch: Watch, most_s: float = math.inf) -> None:
        self.columns, self.kept, self.watch, self.most_s = columns, kept, watch, most_s
        self.bound = math.inf
        self.opened = self.timed = 0
        self.nearest: tuple[Candidate, NoCutFits] | None = None  # of the columns in which no cut fits, the one short of least

    def run(self, listed: Sequence[Candidate], best_s: float) -> None:
        """Cut every candidate that could be better than `best_s`. `bound`: no cut of any is faster."""
        turns = [_Turn(one.bound, number, one) for number, one in enumerate(listed)]
        heapq.heapify(turns)
        while turns and turns[0].bound < self._reach(best_s) and not (best_s < math.inf and self.watch.over()):
            self.watch.say(f"{self.opened} of {len(listed)} columns cut", best_s, turns[0].bound)
            turn = heapq.heappop(turns)
            if turn.cuts is None:
                best_s = self._open(turn, best_s)
            elif self.timed < TIMED and (found := turn.cuts.next(min(best_s, self.most_s))) is not None:
                self.timed += 1
                best_s = self.kept(turn.candidate, found)
            else:
                self.bound = min(self.bound, turn.cuts.bound)  # given up
                continue
            if turn.cuts is not None:
                turn.bound = turn.cuts.open_s
                self.bound = min(self.bound, turn.cuts.closed_s)
                if turn.bound < math.inf:
                    heapq.heappush(turns, turn)
        if turns:
            self.bound = min(self.bound, turns[0].bound)

    def _reach(self, best_s: float) -> float:
        """Seconds below which a bound is of what may be the answer."""
        return min(best_s * (1 - TIGHT), self.most_s * (1 + TIGHT))

    def _open(self, turn: _Turn, best_s: float) -> float:
        """Bound the cuts of a candidate and time its first ones, if any fits."""
        self.opened += 1
        try:
            turn.cuts = ColumnCuts(*self.columns.opened(turn.candidate), min(best_s, self.most_s))
        except NoCutFits as problem:
            self._misses(turn.candidate, problem)
            return best_s
        for cut in turn.cuts.first:
            best_s = self.kept(turn.candidate, cut)
        return best_s

    def nearest_of(self, listed: Sequence[Candidate], over: Callable[[Candidate], float]) -> tuple[Candidate, NoCutFits] | None:
        """The candidate in which no cut fits that is short of least, those that were opened and `listed`, which were not. over: what a
        candidate needs at least over what there is."""
        known = set()
        for one in sorted(listed, key=over):
            if self.nearest is not None and over(one) >= share_of(self.nearest[1]):
                break
            holds = replace(one, overlap=(0, 0), bound=0.0)  # what overlaps what is not held
            if holds not in known and (problem := miss_of(self.columns.bytes_alone(one))) is not None:
                self._misses(one, problem)
            known.add(holds)
        return self.nearest

    def _misses(self, candidate: Candidate, problem: NoCutFits) -> None:
        if self.nearest is None or share_of(problem) < share_of(self.nearest[1]):
            self.nearest = candidate, problem


def share_of(problem: InfeasibleError) -> float:
    """What is needed over what there is."""
    return problem.need / problem.have if problem.have else math.inf
