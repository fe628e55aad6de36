"""The best cut of a model into pipeline stages when layers need not divide, and when each may recompute in its own way.

A stage holds a run of layers, each under one policy (none, selective, full). On the device a steady micro-batch takes t_i = f_i + b_i
seconds there, the first forward pass a_i longer and the last backward pass z_i longer (they run beside what moves once a step, and wait
for it), a hand-over s each way; c_i forwards run before the first backward (p - i in 1f1b). Stages are counted from 0:

    step      >= E + max_i [ P_i + m t_i + a_i + z_i + max(0, S_i + A_i - (c_i - 1) f_i) + max(0, S_i + Z_i - (c_i - 1) b_i) + R_i ]
                 P_i = Σ_{j<i} (t_j + a_j + z_j + 2 s)  before i: the first pass in, the last one out
                 S_i = Σ_{j>i} (t_j + 2 s)  the way to the last stage and back, A_i = Σ_{j>i} a_j of the first, Z_i of the last micro-batch
                 R_i = ⌊(m - c_i - 1) / (p - i)⌋ max(0, S_i - (p - 1 - i) t_i)    round trips in the steady state (1f1b)
                 E   = what stage 0's lanes hold its first pass up and outlast its last one by + its optimizer
    memory_i   = state of its layers + in_flight_i Σ saved + largest workspace + largest buffers it uses  <=  capacity

(DERIVED, paths of the clock's graph, docs/clock.md; both waits at once need m > c_i.) Every term grows with t_i at equal f_i, so a stage
runs the fastest mix that fits: a knapsack, solved by fronts of (bytes, seconds). U_i(n), the bound of stages i.. with the layers
from n on, is a recursion from the last stage, over the c layers that stage i takes:

    U_i(n) = max(i's terms without P_i, t_i + a_i + z_i + 2 s + U_{i+1}(n + c))        S_i(n) = t_{i+1} + 2 s + S_{i+1}(n + c)

A_i and Z_i are known by n + c. Exact with fronts of (S, U) at every (i, n); first in arrays with the least S alone, which bounds what can
still be best. The clock then runs the cut of least bound, and others, with every mix that they may need, in the order of their bounds
until none left can be better (`cut_order`, `options`, `cut_clock`). Seconds and bytes become integers in `integers` alone, so ties are
exact and an integer program solves the same numbers.

Ties: least step, least joules, least Σ layers² (most even), then a fixed order. Sources: Narayanan 2021 (1F1B), Korthikanti 2022
(recompute). Not interleaved: the chunks of a device share its memory and time, which no recursion along the layers sees.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rackmodel.arrays import Ints
from rackmodel.mapper.stages.bounds import Bounds, bounds_of, seed
from rackmodel.mapper.stages.cut_clock import CutClock
from rackmodel.mapper.stages.cut_order import CutOrder
from rackmodel.mapper.stages.cut_problem import CutProblem
from rackmodel.mapper.stages.integers import NEVER, integers_of
from rackmodel.mapper.stages.least_bound import least_bound
from rackmodel.mapper.stages.mixes import Tables, tables_of
from rackmodel.mapper.stages.needs import miss_of

TIGHT = 1e-9  # a step this near its bound is optimal


@dataclass(frozen=True)
class TimedCut:
    """A cut that the clock ran. mixes: [stages, K, Q]."""

    mixes: Ints
    seconds: float


class ColumnCuts:
    """The cuts of one problem, timed one by one. InputError where it is ill-formed, InfeasibleError where no cut fits.

    The latter's need is the least capacity for which a cut exists, met by the stage named. limit_s: where no cut is within it, none is
    timed (`first` is empty then), and none is said not to fit."""

    def __init__(self, problem: CutProblem, clock: CutClock, limit_s: float = math.inf) -> None:
        self.problem, self.clock = problem, clock
        self.integers = integers_of(problem)
        self.timed = 0
        self.closed_s = math.inf  # no cut that was timed, nor any mix that it stands for, is faster
        self.first: list[TimedCut] = []
        self.order: CutOrder | None = None
        if limit_s < math.inf and self._beyond(self._ticks(limit_s)):
            return
        tables, bounds, first = self._widened()
        self.first = [first]
        limit = self._ticks(first.seconds)
        self.least, _ = least_bound(problem, self.integers, tables, bounds, limit, ties=False)
        _, layers = least_bound(problem, self.integers, tables, bounds, self.least, ties=True)
        self.first.append(self._timed(tables.mixes(layers)))
        self.order = CutOrder(problem, self.integers, tables, bounds)

    @property
    def open_s(self) -> float:
        """No cut that was not timed is faster."""
        floor = NEVER if self.order is None else self.order.floor
        return math.inf if floor >= NEVER else max(self.least, floor) * self.integers.unit

    @property
    def bound(self) -> float:
        """No cut is faster."""
        return min(self.open_s, self.closed_s)

    def next(self, limit_s: float) -> TimedCut | None:
        """The next cut, timed; None where none that is left is within `limit_s` seconds, or the search for one gave up."""
        found = None if self.order is None else self.order.next(self._ticks(limit_s))
        if found is None:
            return None
        floor, mixes, complete = found
        cut = self._timed(mixes)
        others = self.clock.time(mixes).least if complete else 0.0
        self.closed_s = min(self.closed_s, cut.seconds, max(others, max(floor, self.least) * self.integers.unit))
        return cut

    def _beyond(self, limit: int) -> bool:
        """Whether every cut is slower than a limit: those with longer runs of layers than it has time for are."""
        width = min(len(self.problem.kinds), max(self._longest(limit), self.problem.fewest))
        return bounds_of(self.problem, self.integers, tables_of(self.problem, self.integers, width)).least > limit

    def _longest(self, limit: int) -> int:
        """Layers in a row that a stage of a step within a limit holds at most."""
        fastest = np.where(self.integers.allowed, self.integers.seconds, NEVER).min(axis=1)
        before = np.concatenate([[0], np.cumsum(fastest[np.asarray(self.problem.kinds)])])
        most = limit // self.problem.micro_batches
        return int((np.searchsorted(before, before + most, side="right") - 1 - np.arange(len(before))).max())

    def _widened(self) -> tuple[Tables, Bounds, TimedCut]:
        """Tables of runs long enough for every cut that is no slower than a good one, their bounds, and that cut."""
        problem, integers, length = self.problem, self.integers, len(self.problem.kinds)
        width = min(length, max(-(-length // problem.stages) + 2, problem.fewest))
        while True:
            tables = tables_of(problem, integers, width)
            bounds = bounds_of(problem, integers, tables)
            if bounds.least >= NEVER:
                if (miss := miss_of(problem, integers)) is not None:
                    raise miss
                width = min(length, 2 * width)
                continue
            good = self._timed(tables.mixes(seed(problem, bounds)))
            needed = self._longest(self._ticks(good.seconds))  # longer runs of layers take longer than this cut
            if needed <= width:
                return tables, bounds, good
            width = needed

    def _timed(self, mixes: Ints) -> TimedCut:
        self.timed += 1
        return TimedCut(mixes, self.clock.time(mixes).seconds)

    def _ticks(self, seconds: float) -> int:
        return int(min(seconds * (1 + TIGHT) / self.integers.unit, float(NEVER)))
