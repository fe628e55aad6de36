"""Runs a study: its points in order, its charts as tables, its findings with verdicts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import fsum
from typing import Any

from rackmodel import api
from rackmodel.cost.ledger import KEYS
from rackmodel.errors import InputError
from rackmodel.model.result import Result
from rackmodel.studies.study import ChartSpec, RunSpec, StudySpec, Value


@dataclass(frozen=True)
class StudyPoint:
    """One point of a study: where it stands and what came out."""

    run: str
    architecture: str
    workload: str
    mapper: str
    settings: dict[str, Value]
    result: Result

    def key(self, name: str) -> Any:
        """Value of a column that describes the point, None if it has none."""
        if name in ("run", "architecture", "workload", "mapper"):
            return getattr(self, name)
        if name == "profile":
            return self.result.certificate.profile
        return self.settings.get(name)


@dataclass(frozen=True)
class Points:
    """All points of a study, with the questions that findings ask."""

    points: tuple[StudyPoint, ...]

    def __iter__(self) -> Iterator[StudyPoint]:
        return iter(self.points)

    def where(self, **keys: Any) -> Points:
        """Points whose columns equal the given values (or are among a list)."""
        return Points(tuple(p for p in self.points if all(_among(p.key(name), value) for name, value in keys.items())))

    def one(self, **keys: Any) -> Result:
        """The result of the one point that matches."""
        found = self.where(**keys).points
        if not found:
            raise KeyError(f"no point with {keys}")
        return found[0].result

    def total(self, figure: str, ledger: dict[str, Any], **keys: Any) -> float:
        """Sum of a ledger column over rows of one point."""
        return float(self.one(**keys).ledger.where(**ledger).total(figure))


def _among(value: Any, wanted: Any) -> bool:
    return value in wanted if isinstance(wanted, list | tuple | set) else value == wanted


def _many(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [value]


def plan_points(study: StudySpec) -> list[tuple[RunSpec, str, str, str, dict[str, Value]]]:
    """(run, architecture, workload, mapper, settings) of every point, in the file's order."""
    points = []
    for run in study.runs:
        names = list(run.set)
        sweeps = [_many(value) for value in run.set.values()]
        for architecture in _many(run.architecture or study.architecture):
            for workload in _many(run.workload):
                for mapper in _many(run.mapper):
                    for values in itertools.product(*sweeps):
                        points.append((run, architecture, workload, mapper, dict(zip(names, values, strict=True))))
    return points


def run_study(study: StudySpec, progress: Callable[[int, int], None] = lambda done, total: None, sets: Iterable[str] = ()) -> Points:
    """Price every point. sets: further overrides, applied to all."""
    points = []
    todo = plan_points(study)
    for number, (run, architecture, workload, mapper, settings) in enumerate(todo):
        overrides = [*(f"{name}={value}" for name, value in settings.items()), *sets]
        answer = api.search(architecture, workload, mapper, sets=overrides, minimize=run.minimize, profile=run.profile)
        points.append(StudyPoint(run.name, architecture, workload, mapper, settings, answer.result))
        progress(number + 1, len(todo))
    return Points(tuple(points))


def chart_rows(chart: ChartSpec, points: Points) -> list[dict[str, Any]]:
    """The chart as a table: x, series, y, in the order of the points. Raises InputError for an unknown column."""
    point_keys = {"run", "architecture", "workload", "mapper", "profile", *(name for p in points for name in p.settings)}
    for name in (*chart.where, *chart.series, chart.x):
        if name not in point_keys and name not in KEYS:
            raise InputError(f"no column '{name}'", path="charts", known=[*sorted(point_keys), *KEYS], given=name)
    rows: dict[tuple[Any, ...], list[float]] = {}
    ledger_where = {name: [str(v) for v in _many(value)] for name, value in chart.where.items() if name in KEYS}
    for point in points.where(run=chart.run, **{n: _many(v) for n, v in chart.where.items() if n not in KEYS}):
        for row in point.result.ledger.where(**ledger_where):
            series = tuple(str(getattr(row, name) if name in KEYS else point.key(name)) for name in chart.series)
            rows.setdefault((point.key(chart.x), series), []).append(getattr(row, chart.y))
        if all(name not in KEYS for name in chart.series):
            rows.setdefault((point.key(chart.x), tuple(str(point.key(name)) for name in chart.series)), [])
    return [{"x": x, "series": " ".join(part for part in series if part), "y": fsum(values)} for (x, series), values in rows.items()]
