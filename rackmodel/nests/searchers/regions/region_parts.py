"""A region's space in parts, each with loops around other members, one after another: each starts from the best of those before."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from rackmodel.nests.objective import Key, NestObjective
from rackmodel.nests.region import Region
from rackmodel.nests.region_loops import RegionLoops, Span, every_nesting
from rackmodel.nests.searchers.effort import Effort, Exhausted
from rackmodel.nests.searchers.regions.region_below import RegionBest
from rackmodel.nests.searchers.regions.region_search import RegionSearch
from rackmodel.nests.searchers.regions.region_space import RegionSpace
from rackmodel.nests.searchers.tables.shared_tables import SharedTables


def parts_of(region: Region, *, around_some: bool | Collection[Span]) -> list[RegionLoops]:
    """First loops around all members that make nothing twice, then those that do, then, if asked, loops around some members within: any, or
    these."""
    every = every_nesting(len(region.members)) if around_some else [((0, len(region.members) - 1),)]
    if not isinstance(around_some, bool):
        every = [spans for spans in every if set(spans[1:]) <= set(around_some)]
    again = [RegionLoops(region, spans, again=True) for spans in every]
    return [RegionLoops(region, every[0], again=False), *(p for p in again if len(p.spans) > 1 or not p.cuts[0] <= region.shared)]


def searched(
    region: Region, aim: NestObjective, effort: Effort, below: Key, parts: Sequence[RegionLoops], tables: SharedTables, most: float = np.inf
) -> RegionBest:
    """The best of perfect factors that is better than `below`, over these parts; `left`: what the rest is not below, where the effort ended
    first. most: tiles that are tried. Raises Exhausted where nothing is known then: nothing was found, and anything will do."""
    best = RegionBest(below, most=most)
    first: RegionSearch | None = None
    for loops in parts:
        search = RegionSearch(RegionSpace(region, loops), aim, effort, best, first, tables)
        first = first or search
        try:
            search.run()
        except Exhausted:
            best.left = min(best.left, max(search.open, first.least))
    if best.where is None and best.left < np.inf and below[0] == np.inf:
        raise Exhausted
    return best
