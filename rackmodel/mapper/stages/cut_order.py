"""The cuts of one column and the mixes of their stages, in the order of a lower bound: best first over partial cuts."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from rackmodel.arrays import Ints
from rackmodel.mapper.stages.bounds import Bounds, StageBounds
from rackmodel.mapper.stages.cut_problem import CutProblem
from rackmodel.mapper.stages.integers import NEVER, IntegerProblem
from rackmodel.mapper.stages.mixes import Tables
from rackmodel.mapper.stages.options import Options

OPENED = 20_000  # partial cuts opened, at most


@dataclass(frozen=True, order=True)
class _Partial:
    """Stages cut so far. floor: of any cut that begins so · left: stages to come (deeper first) · price: ties · before: P of the next
    stage · at: its first layer · mixes: of each stage · complete: whether the mixes left out are no better."""

    floor: int
    left: int
    price: int
    mixes: tuple[tuple[int, ...], ...]
    before: int
    at: int
    complete: bool


class CutOrder:
    """Cuts, each once. `floor` is the bound of those to come: NEVER where there are none."""

    def __init__(self, problem: CutProblem, integers: IntegerProblem, tables: Tables, bounds: Bounds) -> None:
        self.problem, self.tables, self.bounds = problem, tables, bounds
        self.options = Options(integers, tables)
        self.stages = [StageBounds(problem, integers, tables, i) for i in range(problem.stages)]
        self.value = np.vstack([bounds.through.min(axis=2), np.full((1, len(problem.kinds) + 1), NEVER)])
        self.value[-1, -1] = 0
        self.heap = [_Partial(bounds.least, problem.stages, 0, (), 0, 0, True)]
        self.opened = 0

    @property
    def floor(self) -> int:
        """The least bound of the cuts to come."""
        return self.heap[0].floor if self.heap else NEVER

    def next(self, limit: int) -> tuple[int, Ints, bool] | None:
        """(bound, [p, K, Q] mixes, whether the other mixes of these layers come on their own or are no better) of the next cut of at
        most `limit`; None where there is none, or where too many partial cuts were opened."""
        while self.heap and self.heap[0].floor <= limit:
            if self.heap[0].left and self.opened >= OPENED:
                return None
            one = heapq.heappop(self.heap)
            if not one.left:
                return one.floor, np.array(one.mixes).reshape(len(self.stages), *self.tables.shape), one.complete
            self.opened += 1
            self._open(one, limit)
        return None

    def _open(self, one: _Partial, limit: int) -> None:
        i = len(self.stages) - one.left
        scale = len(self.problem.kinds) ** 2 + 1
        through = self.bounds.through[i, one.at]
        for size in np.flatnonzero(through < NEVER).tolist():
            if one.before + int(through[size]) > limit:
                continue  # `floor` need not know: no cut so long is asked for again
            run, then = int(self.tables.which[one.at, size]), one.at + size
            mixes = self.options.of(i, run)
            far = self.stages[i].hop + self.bounds.rest[i + 1, then]
            every = np.full(len(mixes.seconds), run)
            floors, onward = self.stages[i].through(every, mixes.seconds, np.full_like(every, then), far, self.value[i + 1, then])
            for k, (floor, more) in enumerate(zip(floors.tolist(), onward.tolist(), strict=True)):
                price = one.price + int(mixes.joules[k]) * scale + size * size
                path = (*one.mixes, tuple(mixes.mixes[k].tolist()))
                whole = one.complete and mixes.complete
                heapq.heappush(
                    self.heap, _Partial(max(one.floor, one.before + floor), one.left - 1, price, path, one.before + more, then, whole)
                )
