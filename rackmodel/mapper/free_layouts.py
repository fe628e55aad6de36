"""The layouts that a mapper leaves free, in a search: the best of each mesh as a solver finds it, then others as they are wanted.

Where what runs beside something else makes a step shorter than the sum of its tasks, the tables of a mesh bound a layout and do not price
it; and a front, a limit or a list of the best wants more than one layout. Then the layouts of a mesh are listed with their bounds, where
they are few enough, and those that may still be better are priced like plans that a file names, until none is left: the answer is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.cost.step.group import Job
from rackmodel.mapper.layouts.listing import Listing
from rackmodel.mapper.layouts.problem import LayoutProblem
from rackmodel.mapper.layouts.solve import LayoutQuestion, Solved, solve_layouts
from rackmodel.mapper.mapspace import Group, Variant
from rackmodel.model.plan import Plan
from rackmodel.watch import Watch

MOST = 2_000  # operations of layouts that are priced beside those of the solvers, where no time limit says how long
MOST_LISTED = 3_000_000  # of all meshes together
TOGETHER = 32  # layouts priced between two looks at what is left


class FreeLayouts:
    """The layout problems of a space. bound: of the objective over those that are not listed · unsure: whether one of those may have a step
    that was not found · values: [3, layouts] seconds, joules and bytes at least, of all listed · left: whether they are not priced."""

    def __init__(self, job: Job, problems: Sequence[LayoutProblem], asked: LayoutQuestion) -> None:
        self.job, self.problems, self.asked = job, problems, asked
        self.bound, self.unsure = math.inf, False
        self.size = 0.0
        self.priced = self.work = 0
        self.listings: list[tuple[LayoutProblem, Listing]] = []
        self.values = np.zeros((3, 0))
        self.left = np.zeros(0, dtype=bool)

    def solved(self) -> Iterator[Group]:
        """The best plans of each problem."""
        watch = self.asked.watch
        for number, problem in enumerate(self.problems, start=1):
            self.size += problem.size
            if number > 1 and watch.over():
                self.bound, self.unsure = 0.0, True
                continue
            watch.say(f"layouts of mesh {number} of {len(self.problems)}")
            found = solve_layouts(self.job.setting, problem, self.job.profile, self.asked)
            self._take(problem, found)
            yield _group(problem, found.plans, found.solver)

    def _take(self, problem: LayoutProblem, found: Solved) -> None:
        listing = found.listing
        if listing is None or self.left.size + listing.cells.size > MOST_LISTED:
            self.bound = min(self.bound, found.bound)
            self.unsure = self.unsure or not found.proven or self.asked.several
            return
        left = np.ones(listing.cells.size, dtype=bool)
        left[list(found.known)] = False
        self.listings.append((problem, listing))
        self.values = np.hstack([self.values, listing.values])
        self.left = np.concatenate([self.left, left])

    @property
    def may_go_on(self) -> bool:
        """Whether there is time for more layouts."""
        watch: Watch = self.asked.watch
        return not watch.over() and (watch.limited or self.work < MOST)

    def first(self, order: Callable[[Array], Array], *, forget: bool = False) -> Ints:
        """The next layouts to price: those of least `order` of their values, none where it is infinite. forget: those for good."""
        open_ = np.flatnonzero(self.left)
        values = order(self.values[:, open_])
        if forget:
            self.left[open_[values == np.inf]] = False
        open_, values = open_[values < np.inf], values[values < np.inf]
        if open_.size > TOGETHER:
            part = np.argpartition(values, TOGETHER)[:TOGETHER]
            open_, values = open_[part], values[part]
        return np.asarray(open_[np.lexsort((open_, values))])

    def groups(self, numbers: Ints) -> list[Group]:
        """The plans of some layouts, a group a mesh."""
        self.left[numbers] = False
        self.priced += len(numbers)
        self.work += len(numbers) * len(self.job.workload.ops)
        found, begin = [], 0
        for problem, listing in self.listings:
            end = begin + listing.cells.size
            mine = [int(n) - begin for n in numbers if begin <= n < end]
            if mine:
                found.append(_group(problem, [listing.factors.plan(problem, listing.chosen(n)) for n in mine], ""))
            begin = end
        return found


def _group(problem: LayoutProblem, plans: Sequence[Plan], solver: str) -> Group:
    variants = tuple(Variant(layout="", recompute=problem.recompute, home=0, offload=(), plan=plan) for plan in plans)
    return Group(columns=problem.columns, parents=problem.mesh.parents, variants=variants, found=True, solver=solver)
