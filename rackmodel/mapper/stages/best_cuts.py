"""The best points among open cuts: every cut that the clock ran, kept if it fits and keeps the limits; the refused stay in the bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from rackmodel.cost.step.group import GroupPrice, Job
from rackmodel.cost.step.ledger import second_watts
from rackmodel.mapper.limits import Limits
from rackmodel.mapper.mapspace import Group
from rackmodel.mapper.points import Point, exact_step, sums_of
from rackmodel.mapper.stages.columns import Candidate, OpenColumns
from rackmodel.mapper.stages.free_cut import CutSearch
from rackmodel.mapper.stages.stage_cut import TimedCut
from rackmodel.watch import Watch

Rank = Callable[[Point], tuple[object, ...]]
"""A point's place among others: the least is the best."""


@dataclass
class KeptCuts:
    """The best of the cuts that were timed. top: points asked for · point: a cut as a point, of which so many were timed before; None where
    it does not fit or breaks a limit · points: the best so far, in order · seen: cuts that were timed."""

    top: int
    rank: Rank
    point: Callable[[Candidate, TimedCut, int], Point | None]
    points: list[Point] = field(default_factory=list)
    seen: set[object] = field(default_factory=set)

    @property
    def worst(self) -> float:
        """Seconds that a better point must beat."""
        return self.points[self.top - 1].seconds if len(self.points) >= self.top else math.inf

    def take(self, candidate: Candidate, cut: TimedCut) -> float:
        """Keep a cut, if it is as good as any; `worst`."""
        key = (candidate, cut.mixes.tobytes())
        if key not in self.seen and cut.seconds <= self.worst * (1 + 1e-12):
            point = self.point(candidate, cut, len(self.seen))
            if point is not None:
                self.points = sorted([*self.points, point], key=self.rank)[: self.top]
        self.seen.add(key)
        return self.worst


@dataclass(frozen=True, kw_only=True)
class OpenCuts:
    """The cuts of a space's groups on accelerators of one kind. capacity: bytes of an accelerator."""

    job: Job
    groups: Sequence[Group]
    prices: Sequence[GroupPrice]
    capacity: float
    limits: Limits
    watch: Watch

    def search(self, listed: Sequence[Candidate], found: Sequence[Point], top: int, rank: Rank) -> tuple[KeptCuts, CutSearch]:
        """Search the candidates. found: points that are no open cuts, best first."""
        columns = OpenColumns(self.job, self.groups, [(price,) for price in self.prices], (self.capacity,))
        kept = KeptCuts(top, rank, partial(self._point, columns), list(found))
        search = CutSearch(columns, kept.take, self.watch, self.limits.latency)
        search.run(listed, kept.worst)
        return kept, search

    def _point(self, columns: OpenColumns, candidate: Candidate, cut: TimedCut, number: int) -> Point | None:
        """As `KeptCuts.point`."""
        group, price = self.groups[candidate.group], self.prices[candidate.group]
        point = candidate.point(cut.mixes, cut.seconds, (len(self.groups), number))
        sums = sums_of(point, price, group)
        step = exact_step(self.job, point, group, price, columns.layers_of(point.group, point.column)[0])
        static_j = second_watts(self.job.setting, self.job.pools) * cut.seconds
        point = replace(point, joules=sums.joules + static_j + float(step.drawn_longer_j[0]), memory=sums.memory)
        fits = sums.memory <= self.capacity * (1 + 1e-9) and sums.host <= price.host_bytes
        return point if fits and not self.limits.broken(point) else None
