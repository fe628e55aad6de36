"""What searches of one loop nest for one aim after another say together: every mapping found, and a line no mapping is below for each.

A search for J + w T proves J + w T >= h of every mapping of the nest, J its joules but for static power, T its seconds. So all mappings lie
above all lines (nest_hull): what another aim has at least over them may be more than its own search has proven, and a mapping that was
found for one aim may be the best known of another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rackmodel.mapper.nests.nest_hull import CLOSE, Hull, SupportLine
from rackmodel.model.certificate import status_of
from rackmodel.nests.evaluate import NestCost
from rackmodel.nests.mapping import NestMapping
from rackmodel.nests.objective import NestObjective
from rackmodel.nests.solution import NestSolution, gap_of

Search = Callable[[NestObjective, NestSolution | None], NestSolution]
"""Of an aim, going on with an answer."""


@dataclass
class NestFront:
    """Of one nest. tried: (mapping, cost) of each search, in turn · open: a product, and aims that count energy and time and went on with
    it one after another, whose searches have left a gap · left: the last of their answers, by all of them up to it."""

    open: tuple[NestObjective, ...] = ()
    left: dict[tuple[NestObjective, ...], NestSolution] = field(default_factory=dict)
    tried: list[tuple[NestMapping, NestCost]] = field(default_factory=list)
    hull: Hull = field(default_factory=lambda: Hull([]))

    def before(self, aim: NestObjective) -> tuple[NestObjective, ...]:
        """Aims whose searches that for another goes on with."""
        return self.open[: self.open.index(aim)] if aim in self.open else self.open

    def opened(self, aim: NestObjective, before: tuple[NestObjective, ...], gap: float) -> None:
        """Remember an aim whose search others may go on with. before: those that it went on with."""
        if before == self.open and gap > CLOSE and all(aim.weights(1.0, 1.0)):
            self.open = *self.open, aim

    def keep(self, before: tuple[NestObjective, ...], aim: NestObjective, found: NestSolution) -> None:
        """Keep an answer that others may go on with, in place of those that it went on with: what is left of a search takes much room."""
        if all(aim.weights(1.0, 1.0)):
            self.left = {(*before, aim): found}

    def begun(self, before: tuple[NestObjective, ...], solve: Search) -> NestSolution | None:
        """What the searches for some aims left, one after another; those of them whose answers are remembered alone are run again."""
        if not before:
            return None
        if before not in self.left:
            self.keep(before[:-1], before[-1], solve(before[-1], self.begun(before[:-1], solve)))
        return self.left[before]

    def record(
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
            said |= {"bound": bound, "gap": gap, "status": status_of(gap)}
        return best, said

    def _add(self, aim: NestObjective, cost: NestCost, least: float) -> None:
        """The line of an aim; a product is none."""
        at = (cost.energy_j, cost.latency_s)
        if not self.hull.lines:
            self.hull = Hull([SupportLine(1.0, 0.0, 0.0, at), SupportLine(0.0, 1.0, 0.0, at)])
        if aim.name != "edp":
            self.hull.add(SupportLine(*aim.weights(*at), least, at))
