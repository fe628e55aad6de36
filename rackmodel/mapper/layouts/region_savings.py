"""What a region of operations saves in the cells of a layout problem's table: at most first, solved where that may decide.

    saved <= what its operations take alone - what each takes at least with what lies between on chip        (seconds, joules, and the aim)

What operations take at least is of every nest that they may have, so that a cell of such savings is no more than the cell of nests that
were searched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from rackmodel.cost.program.tasks import LocalOp, Task
from rackmodel.cost.step.tasks.pricer import Pricer
from rackmodel.mapper.nests.found_fusion import SURE, Fused
from rackmodel.mapper.nests.fused_regions import FusedRegions
from rackmodel.mapper.nests.loop_nests import NestInside
from rackmodel.nests.searchers.effort import Exhausted
from rackmodel.nests.searchers.tables.shared_tables import SharedTables

Pair = tuple[float, float]
Price = Callable[[Task], Pair]
ROUNDING = 1e-9  # of what an operation takes at least, in sums of another order


class RegionAtShares:
    """A region at one share of each of its operations. inside: of the step, which learns the gaps of nests · tasks: of these shares ·
    tables: shared with other regions · gain: what it saves of what nests have least: at most, or where it is solved; 0: it is not
    fused."""

    def __init__(self, one: Fused, inside: NestInside, plain: Pricer, tasks: Sequence[Task], tables: SharedTables) -> None:
        self.one, self.inside, self.plain = one, inside, plain
        self.nests = inside.of_region(one)
        self.nests.prepare(tasks)
        self.architecture, self.degrees = plain.architecture, plain.degrees[0]
        self.search: FusedRegions | None = None
        self.least: dict[str, Pair] = {}
        self.gain, self.solved = 0.0, True
        if one in self.nests.may_fuse(self.architecture, self.degrees):
            self._bound(tables)

    def _bound(self, tables: SharedTables) -> None:
        search = self.nests.fusing(self.architecture, self.degrees, tables)
        self.inside.learn_gaps(self.nests)  # of shares that are unlike, whether or not it is solved
        if not search.fits(self.one):
            return
        try:
            self.least = search.at_least(self.one)
            hope = search.hope_of(self.one, self.least)
        except Exhausted:
            self._given_up()
            return
        if hope > 0:
            self.search, self.gain, self.solved = search, hope, False

    def solve(self, need: float) -> None:
        """Search for more than `need`: the gain then, or that it is no more."""
        assert self.search is not None
        try:
            found = self.search.gain(self.one, need)
        except Exhausted:
            self._given_up()
            return
        if found > need:
            self.nests.solved.update(self.search.nests[self.one])
            self.gain, self.solved = found, True
        else:
            self.gain = min(self.gain, need * (1 - SURE))
            self.solved = self.gain <= 0
        self.inside.learn_gaps(self.nests)

    def _given_up(self) -> None:
        """The clock stopped: it is not fused, and nothing is known of it."""
        self.nests.watch.over()
        self.inside.unfused = True
        self.gain, self.solved = 0.0, True

    # -- figures
    def figures(self, tasks: Sequence[Task], alone: Price) -> Pair:
        """Seconds and joules that it saves of some tasks: at most where it is not solved. alone: what a task takes that is not fused."""
        if self.gain <= 0:
            return 0.0, 0.0
        before = summed(map(alone, tasks))
        if self.solved:
            setting = replace(self.plain.setting, inside=self.nests)
            pricer = Pricer(setting, self.plain.workload, self.plain.plan, self.plain.columns, self.plain.buckets)
            after = summed(priced(pricer, task) for task in tasks)
        else:
            after = summed(self._at_least(task, *alone(task)) for task in tasks)
        return before[0] - after[0], before[1] - after[1]

    def _at_least(self, task: Task, seconds: float, joules: float) -> Pair:
        """Seconds and joules of a task in the region, at least: of joules as large a share as of those of one accelerator. seconds, joules:
        where it is not fused."""
        assert task.local_op is not None
        own = self._joules(task.local_op)
        least_j, least_s = self.least[task.local_op.written]
        return min(seconds, least_s) * (1 - ROUNDING), joules * min(1.0, least_j / own) * (1 - ROUNDING) if own > 0 else 0.0

    def _joules(self, local_op: LocalOp) -> float:
        """Of an operation that is not fused, on one accelerator."""
        alone = self.plain.setting.inside
        if local_op.macs and isinstance(alone, NestInside):
            return alone.nest(self.architecture, local_op, self.degrees).cost.energy_j
        rows, _ = alone(self.architecture, local_op, np.asarray([self.degrees]))
        return float(sum(np.asarray(row.joules).item() for row in rows))


def priced(pricer: Pricer, task: Task) -> Pair:
    """Seconds and joules of a task on one column."""
    rows, duration = pricer.task(task)
    joules = sum(float(np.asarray(row.joules).reshape(-1)[0]) for row in rows)
    return float(np.asarray(duration).reshape(-1)[0]), joules


def summed(figures: Iterable[Pair]) -> Pair:
    """Sums of seconds and of joules."""
    seconds, joules = 0.0, 0.0
    for one in figures:
        seconds, joules = seconds + one[0], joules + one[1]
    return seconds, joules
