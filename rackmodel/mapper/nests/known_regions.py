"""Regions that were solved: other layouts, meshes and sets of regions ask the same question again."""

from __future__ import annotations

from typing import Any

from rackmodel.nests.region import Region
from rackmodel.nests.searchers.effort import Effort
from rackmodel.nests.searchers.regions.fusion import NothingBetter, RegionSolution
from rackmodel.nests.searchers.tables.shared_tables import SharedTables

OnChipKey = tuple[str, tuple[tuple[str, int], ...], frozenset[str]]


class KnownRegions:
    """Answers by question: a region, and what is searched. solved: its best · nothing: (what was asked for, what none is below) · of a
    contraction of some sizes with some of its tensors on chip, least: joules at least · fastest: seconds at least · ports: seconds at least
    of each port by itself."""

    def __init__(self) -> None:
        self.solved: dict[str, RegionSolution] = {}
        self.nothing: dict[str, tuple[float, float]] = {}
        self.least: dict[OnChipKey, float] = {}
        self.fastest: dict[OnChipKey, float] = {}
        self.ports: dict[OnChipKey, float] = {}

    def solve(self, region: Region, asked: dict[str, Any], below: float, effort: Effort, tables: SharedTables) -> RegionSolution:
        """As `solve_region`, once for each question; what the clock stopped is not remembered. asked: objective, factors and loops. Raises
        NothingBetter, InfeasibleError, Exhausted."""
        from rackmodel.nests import solve_region

        key = repr((region, sorted(asked.items())))
        if key in self.solved:
            sheet = self.solved[key].certificate
            if not sheet.objective[0] < below:
                raise NothingBetter(min(below, sheet.bound))
            return self.solved[key]
        if key in self.nothing and below <= self.nothing[key][0]:
            raise NothingBetter(min(below, self.nothing[key][1]))
        try:
            found: RegionSolution = solve_region(region, **asked, effort=effort, below=below, tables=tables)
        except NothingBetter as nothing:
            if not effort.late:
                self.nothing[key] = below, nothing.bound
            raise
        if not effort.late:
            self.solved[key] = found
        return found
