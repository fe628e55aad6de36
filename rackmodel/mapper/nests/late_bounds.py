"""What operations take at least, soon said, where the clock has stopped the search of their nests."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from rackmodel.mapper.nests.nested import Nested
from rackmodel.model.certificate import status_of
from rackmodel.nests.objective import NestObjective
from rackmodel.nests.problem import NestMachine, NestProblem
from rackmodel.nests.searchers.effort import Effort, Exhausted
from rackmodel.nests.searchers.regions.fusion import least_on_chip, ports_on_chip
from rackmodel.nests.searchers.regions.ragged_resident import words_once
from rackmodel.nests.searchers.tables.shared_tables import SharedTables
from rackmodel.nests.solution import gap_of

SOON_CELLS = 5e6
"""That the bound of one operation may price once the clock has stopped the search: a part of a second."""


def surely(
    problem: NestProblem, machine: NestMachine, on_chip: frozenset[str], factors: str, tables: SharedTables | None = None
) -> tuple[float, float]:
    """Joules and seconds of an operation at least whose tensors `on_chip` are there for nothing, however late it is: as tables say, or
    where these are large, every word of the others once. factors: perfect or ceil."""
    if factors != "ceil":
        with suppress(Exhausted):
            joules = least_on_chip(problem, machine, on_chip, Effort(SOON_CELLS), tables)
            return joules, ports_on_chip(problem, machine, on_chip, Effort(SOON_CELLS), tables)
    return words_once(problem, machine, on_chip)


def bounded_late(nest: Nested, aim: NestObjective, factors: str) -> Nested:
    """A nest whose search the clock ended, its bound no lower than what is soon said of it."""
    sheet = nest.certificate
    bound = float(aim.key(*surely(nest.problem, nest.machine, frozenset(), factors))[0])
    if not sheet["bound"] < bound < float("inf"):
        return nest
    bound = min(bound, sheet["objective"])
    gap = gap_of(sheet["objective"], bound)
    return replace(nest, certificate={**sheet, "bound": bound, "gap": gap, "status": status_of(gap)})
