"""Findings that a study's file says itself: figures selected from its points, and comparisons of them (studies/expressions)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rackmodel.carbon.tables import CarbonTables
from rackmodel.cost.ledger import KEYS
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.model.result import Result
from rackmodel.studies.expressions import needs_of
from rackmodel.studies.findings import Finding, judged
from rackmodel.studies.metrics import check_components
from rackmodel.studies.plan import Ask, shown
from rackmodel.studies.run import Points, StudyPoint
from rackmodel.studies.study import FigureSpec, FindingSpec, many

Check = Callable[[Points, CarbonTables], list[Finding]]
"""One or more findings of a study's points and of the carbon tables."""

OF_POINT = {"latency": "latency_s", "energy": "energy_j", "memory": "memory_bytes_per_accelerator"}


def own_checks(findings: dict[str, FindingSpec]) -> tuple[Check, ...]:
    """One check a finding of the file."""
    return tuple(_check(name, said) for name, said in findings.items())


def check_figures(findings: Mapping[str, FindingSpec], asks: Sequence[Ask]) -> None:
    """Raise InputError for a figure that none or several of the points to come match, which can be told before any is solved."""
    points = Points(tuple(map(_to_come, asks)))
    plain = {"run", "architecture", "workload", "mapper", *(name for ask in asks for name in ask.settings), *KEYS}
    for name, said in findings.items():
        for one, figure in said.figures.items():
            if plain.issuperset([*figure.where, *([figure.over] if figure.over else [])]):
                _selected(figure, points, f"findings.{name}.figures.{one}")


def _to_come(ask: Ask) -> StudyPoint:
    return StudyPoint(
        run=ask.run,
        architecture=shown(ask.architecture),
        workload=shown(ask.workload),
        mapper=shown(ask.mapper),
        settings=ask.settings,
        row={},
        load=_not_yet,
    )


def _not_yet() -> Result:
    raise AssertionError("a point that is not solved has no result")


def _check(name: str, said: FindingSpec) -> Check:
    def check(points: Points, tables: CarbonTables) -> list[Finding]:
        path = f"findings.{name}"
        try:
            values = {one: _figure(figure, points, f"{path}.figures.{one}") for one, figure in said.figures.items()}
        except InfeasibleError as problem:  # a point that does not fit has no figure
            return [Finding(name, said.figure, said.claim, said.weight, "not decidable", why=said.why, condition=str(problem))]
        needs = needs_of(said.holds, {one: np.array(list(found.values())) for one, found in values.items()}, f"{path}.holds")
        shown = {_label(one, x): value for one, found in values.items() for x, value in found.items()}
        return [judged(name, said.figure, said.claim, needs, shown, weight=said.weight, why=said.why)]

    return check


def _label(name: str, x: Any) -> str:
    return name if x is None else f"{name} at {x}"


def _figure(said: FigureSpec, points: Points, path: str) -> dict[Any, float]:
    """x → the figure; x is None where it is one. Raises InputError."""
    chosen = _selected(said, points, path)
    return {x: _read(point, said.y, _rows(said)) for x, point in sorted(chosen.items(), key=_by_size)}


def _rows(said: FigureSpec) -> dict[str, list[str]]:
    """Which rows of the ledger are meant: column → values."""
    return {key: [str(v) for v in many(value)] for key, value in said.where.items() if key in KEYS}


def _selected(said: FigureSpec, points: Points, path: str) -> dict[Any, StudyPoint]:
    """x → the point that a figure is of. Raises InputError where none or several match: nothing is summed over runs."""
    ledger = _rows(said)
    if ledger and said.y in OF_POINT:
        raise InputError(f"'{said.y}' is of a whole point: {', '.join(ledger)} chooses rows of the ledger", path=f"{path}.where")
    check_components(ledger.get("component", ()), f"{path}.where")
    wanted = {key: many(value) for key, value in said.where.items() if key not in KEYS}
    found: dict[Any, list[StudyPoint]] = {}
    for point in points.where(run=said.run, **wanted):
        found.setdefault(point.key(said.over) if said.over else None, []).append(point)
    if not found or (None in found and said.over):
        told = "".join(f" and {key} {' or '.join(map(str, values))}" for key, values in wanted.items())
        raise InputError(f"no point has run '{said.run}'{told}", path=path)
    for x, same in found.items():
        if len(same) > 1:
            apart = ", ".join(_apart(same))
            raise InputError(
                f"{len(same)} points match{f' at {said.over} {x}' if said.over else ''}: choose by {apart}", path=f"{path}.where"
            )
    return {x: same[0] for x, same in found.items()}


def _read(point: StudyPoint, y: str, ledger: dict[str, list[str]]) -> float:
    if y in OF_POINT:
        return float(getattr(point.result, OF_POINT[y]))
    return float(point.result.ledger.where(**ledger).total(y))


def _by_size(entry: tuple[Any, Any]) -> tuple[bool, Any]:
    x = entry[0]
    return (isinstance(x, str), x if x is not None else 0)


def _apart(same: list[StudyPoint]) -> list[str]:
    """Columns that differ between points."""
    names = ("architecture", "workload", "mapper", *dict.fromkeys(name for point in same for name in point.settings))
    return [name for name in names if len({str(point.key(name)) for point in same}) > 1] or ["profile"]
