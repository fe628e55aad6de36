"""How a file of findings offers them: functions of points, or of the carbon tables, as checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rackmodel.carbon.tables import CarbonTables
from rackmodel.studies.findings import Finding
from rackmodel.studies.own_findings import Check
from rackmodel.studies.run import Points


def of_points(*functions: Callable[[Points], Finding]) -> tuple[Check, ...]:
    """Checks that read points alone, one finding each."""
    return tuple(_of_points(function) for function in functions)


def _of_points(function: Callable[[Points], Finding]) -> Check:
    return lambda points, tables: [function(points)]


def of_tables(*functions: Callable[[CarbonTables], Finding | Iterable[Finding]]) -> tuple[Check, ...]:
    """Checks that read the carbon tables alone, one or several findings each."""
    return tuple(_of_tables(function) for function in functions)


def _of_tables(function: Callable[[CarbonTables], Finding | Iterable[Finding]]) -> Check:
    def check(points: Points, tables: CarbonTables) -> list[Finding]:
        found = function(tables)
        return [found] if isinstance(found, Finding) else list(found)

    return check
