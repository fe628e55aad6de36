"""What searches of one loop nest for one aim after another say together: every mapping found, and a line no mapping is below for each.

A search for J + w T proves J + w T >= h of every mapping of the nest, J its joules but for static power, T its seconds. So all mappings lie
above all lines (nest_hull): what another aim has at least over them may be more than its own search has proven, and a mapping that was
found for one aim may be the best known of another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rackmodel.mapper.nests.nest_hull import CLOSE, Hull, SupportLine
from rackmodel.model.certificate import status_of
from rackmodel.nests.evaluate import NestCost
from rackmodel.nests.mapping import NestMapping
from rackmodel.nests.objective import NestObjective
from rackmodel.nests.solution import gap_of


@dataclass
class NestFront:
    """Of one nest. tried: (mapping, cost) of each search, in turn."""

    tried: list[tuple[NestMapping, NestCost]] = field(default_factory=list)
    hull: Hull = field(default_factory=lambda: Hull([]))

    def told(
        self, aim: NestObjective, mapping: NestMapping, cost: NestCost, certificate: Mapping[str, Any]
    ) -> tuple[NestMapping, dict[str, Any]]:
        """What the search for an aim has found, or better of what others have. aim: static power with it."""
        self._add(aim, cost, float(certificate["bound"]))
        self.tried.append((mapping, cost))
        key, best = aim.key(cost.energy_j, cost.latency_s), mapping
        for other, its in self.tried[:-1]:
            one = aim.key(its.energy_j, its.latency_s)
            if one[0] < key[0] * (1 - CLOSE):
                key, best = one, other
        least = self.hull.lowest(lambda joules, seconds: float(aim.key(joules, seconds)[0]))[0] * (1 - CLOSE)
        said = dict(certificate)
        if best is not mapping:
            said |= {"objective": float(key[0]), "ties": False}
        if best is not mapping or least > said["bound"]:
            bound = min(max(said["bound"], least), said["objective"])
            gap = gap_of(said["objective"], bound)
            said |= {"bound": bound, "gap": gap, "status": status_of(gap / (1 + gap))}
        return best, said

    def _add(self, aim: NestObjective, cost: NestCost, least: float) -> None:
        """The line of an aim; a product is none."""
        at = (cost.energy_j, cost.latency_s)
        if not self.hull.lines:
            self.hull = Hull([SupportLine(1.0, 0.0, 0.0, at), SupportLine(0.0, 1.0, 0.0, at)])
        if aim.name != "edp":
            self.hull.add(SupportLine(*aim.weights(*at), least, at))
