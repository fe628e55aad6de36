"""The best points among open cuts: every cut that the clock ran, kept if it fits and keeps the limits; the refused stay in the bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from rackmodel.cost.step.group import GroupPrice, Job
from rackmodel.cost.step.ledger import second_watts
from rackmodel.mapper.mapspace import Group
from rackmodel.mapper.points import Point, exact_step, sums_of
from rackmodel.mapper.stages.columns import Candidate, OpenColumns
from rackmodel.mapper.stages.free_cut import CutSearch
from rackmodel.mapper.stages.stage_cut import TimedCut
from rackmodel.watch import UNWATCHED, Watch


@dataclass(kw_only=True)
class BestCuts:
    """capacity: bytes of an accelerator · top: points asked for · allowed: whether a point keeps the limits · most_s: seconds that they
    allow · rank: least is best · columns: what prices their layers · points: the best so far, in order · seen: cuts that
    were timed."""

    job: Job
    groups: Sequence[Group]
    prices: Sequence[GroupPrice]
    capacity: float
    top: int
    allowed: Callable[[Point], bool]
    rank: Callable[[Point], tuple[object, ...]]
    watch: Watch = UNWATCHED
    most_s: float = math.inf
    columns: OpenColumns = field(init=False)
    points: list[Point] = field(default_factory=list)
    seen: set[object] = field(default_factory=set)

    def search(self, listed: Sequence[Candidate], found: Sequence[Point]) -> CutSearch:
        """Search the candidates. found: points that are no open cuts."""
        self.points = list(found)
        columns = self.columns = OpenColumns(self.job, self.groups, [(price,) for price in self.prices], (self.capacity,))
        search = CutSearch(columns, self.kept, self.watch, self.most_s)
        search.run(listed, self.worst)
        return search

    @property
    def worst(self) -> float:
        """Seconds that a better point must beat."""
        return self.points[self.top - 1].seconds if len(self.points) >= self.top else math.inf

    def kept(self, candidate: Candidate, cut: TimedCut) -> float:
        """Take a cut, if it is as good as any; `worst`."""
        key = (candidate, cut.mixes.tobytes())
        if key not in self.seen and cut.seconds <= self.worst * (1 + 1e-12):
            point, fits = self._point(candidate, cut)
            if fits and self.allowed(point):
                self.points = sorted([*self.points, point], key=self.rank)[: self.top]
        self.seen.add(key)
        return self.worst

    def _point(self, candidate: Candidate, cut: TimedCut) -> tuple[Point, bool]:
        """(a cut as a point, whether it fits)."""
        price = self.prices[candidate.group]
        point = candidate.point(cut.mixes, cut.seconds, (len(self.groups), len(self.seen)))
        sums = sums_of(point, price, self.groups[candidate.group])
        joules = sums.joules + second_watts(self.job.setting, self.job.pools) * cut.seconds + self._drawn_longer_j(point)
        fits = sums.memory <= self.capacity * (1 + 1e-9) and sums.host <= price.host_bytes
        return replace(point, joules=joules, memory=sums.memory), fits

    def _drawn_longer_j(self, point: Point) -> float:
        """What kernels of a cut draw longer that collectives slow."""
        layers = self.columns.layers_of(point.group, point.column)[0]
        return float(exact_step(self.job, point, self.groups[point.group], self.prices[point.group], layers).drawn_longer_j[0])
