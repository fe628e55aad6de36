"""Runs a study: its points in order, those that its file has already left alone; its charts as tables.

plan → keys → rows that are there · answers that are there → rows · the rest, in batches → answers and rows, a transaction each half second
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import fsum
from typing import Any

from rackmodel.cost.ledger import FIGURES, KEYS
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.inputs.comparison import saying
from rackmodel.inputs.shared import SharedInputs
from rackmodel.model.result import Result
from rackmodel.store.study_file import Row, StudyFile
from rackmodel.studies.answer import OK, REFUSED, result_from
from rackmodel.studies.batch import Keyed, SolvedPoint, key_of, model_version, read_point
from rackmodel.studies.before import check_chart
from rackmodel.studies.deal import deal
from rackmodel.studies.metrics import accepts, figures_of, metric
from rackmodel.studies.plan import Ask, Sets, plan_points, shown
from rackmodel.studies.study import ChartSpec, StudySpec, Value, many
from rackmodel.studies.table import Table, table_of
from rackmodel.studies.workers import Workers

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class StudyPoint:
    """One point of a study: where it stands and what came out. row: of the table of points · load: its result, from the file."""

    run: str
    architecture: str
    workload: str
    mapper: str
    settings: Mapping[str, Value]
    row: Mapping[str, Any]
    load: Callable[[], Result]

    @property
    def status(self) -> str:
        """'ok', 'infeasible: memory' or 'refused'."""
        return str(self.row["status"])

    @property
    def fits(self) -> bool:
        """Whether it has a result."""
        return self.status == OK

    @cached_property
    def result(self) -> Result:
        """The best mapping. Raises InfeasibleError, InputError where there is none; the message names the point."""
        if self.fits:
            return self.load()
        words = f"{self.workload} on {self.architecture} by {self.mapper}"
        words = ", ".join([words, *(f"{name}={value}" for name, value in self.settings.items())])
        problem = InputError if self.status == REFUSED else InfeasibleError
        raise problem(f"{words}: {self.row['message']}")

    def key(self, name: str) -> Any:
        """Value of a column that describes the point, None if it has none."""
        if name in ("run", "architecture", "workload", "mapper"):
            return getattr(self, name)
        if name == "profile" and name not in self.row:
            return self.result.certificate.profile
        return self.settings.get(name, self.row.get(name) if name in ("profile", "minimize", "status") else None)

    def figure(self, name: str) -> Any:
        """A column that describes the point, else a metric of its result; None where there is none."""
        found = self.key(name)
        if found is not None or not self.fits or name in self.settings:
            return found
        if name in self.row:
            return self.row[name]
        return figures_of(self.result, [metric(name)])[name]


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

    @property
    def rows(self) -> list[Row]:
        """The table of points."""
        return [point.row for point in self.points]

    def to_frame(self) -> Any:
        """The table of points as a pandas DataFrame, a row a point."""
        import pandas

        frame = pandas.DataFrame([dict(row) for row in self.rows], columns=None if self.rows else ["number"])
        return frame.drop(columns="key", errors="ignore").set_index("number", drop=False)

    def to_polars(self) -> Any:
        """The table of points as a polars DataFrame, a row a point. Raises ImportError where polars is not installed."""
        import polars

        rows = [{name: value for name, value in row.items() if name != "key"} for row in self.rows]
        return polars.DataFrame(rows, infer_schema_length=None)

    def ledger(self) -> Any:
        """The ledgers of all points that have a result as one DataFrame; `number` tells them apart."""
        import pandas

        frames = [point.result.ledger.to_frame().assign(number=point.row["number"]) for point in self.points if point.fits]
        return pandas.concat(frames, ignore_index=True) if frames else pandas.DataFrame()


def _among(value: Any, wanted: Any) -> bool:
    return value in wanted if isinstance(wanted, list | tuple | set) else value == wanted


@dataclass
class Sweep:
    """A study on its way into its file. sets: settings of all runs."""

    study: StudySpec
    file: StudyFile
    sets: Sets = field(default_factory=dict)
    shared: SharedInputs = field(default_factory=SharedInputs)

    def __post_init__(self) -> None:
        self.asks = plan_points(self.study, self.sets)
        self.table: Table = table_of(self.asks, self.study.columns)
        self.keys: list[str] = []
        self.known: dict[str, Keyed] = {}
        self.done = 0

    def run(self, workers: Workers, progress: Progress = lambda done, total: None) -> Points:
        """Every point that is not there yet, then all of them. Raises InputError where no point of a run can be read."""
        self.keys = self._keys()
        about = {"study": self.study.name, "points": str(len(self.asks)), "model": model_version()}
        missing = self.file.plan(about, self.table.names, self.keys, [ask.words for ask in self.asks])
        self.done = len(self.asks) - len(missing)
        progress(self.done, len(self.asks))
        numbers: dict[str, list[int]] = {}
        for number in missing:
            numbers.setdefault(self.keys[number], []).append(number)
        known = set()
        for key, answer in self.file.answers(numbers):
            known.add(key)
            self._write(numbers, [SolvedPoint(key, "", answer, self._figures(self.asks[numbers[key][0]], answer))])
            progress(self.done, len(self.asks))
        todo = {key: self.asks[own[0]] for key, own in numbers.items() if key not in known}
        if todo:
            self._solve(todo, numbers, workers, progress)
        return self.points()

    def _keys(self) -> list[str]:
        """Of every point. Raises InputError where none of a run can be read: a word is wrong, not a combination."""
        keys, problems = [], dict[str, tuple[Ask, InputError] | None]()
        for ask in self.asks:
            one = key_of(self.shared, ask)
            keys.append(one.key)
            self.known[one.key] = one
            problems[ask.run] = None if one.problem is None else problems.get(ask.run, (ask, one.problem))
        for wrong in problems.values():
            if wrong is not None:
                raise saying(wrong[1], f" ({wrong[0].words})")
        return keys

    def _solve(self, todo: Mapping[str, Ask], numbers: Mapping[str, list[int]], workers: Workers, progress: Progress) -> None:
        """In batches, written as they come."""

        def tell(waiting: list[SolvedPoint]) -> None:
            progress(self.done + sum(len(numbers[one.key]) for one in waiting), len(self.asks))

        names = [one.name for one in self.table.metrics]
        deal(todo, self.known, self.shared, names, workers, lambda solved: self._write(numbers, solved), tell)

    def _write(self, numbers: Mapping[str, list[int]], solved: list[SolvedPoint]) -> None:
        rows = [
            (number, one.key, self.table.row(self.asks[number], one.answer, one.figures)) for one in solved for number in numbers[one.key]
        ]
        self.file.write(rows, {one.key: one.text for one in solved if one.text})
        self.done += len(rows)

    # -- from the file -------------------------------------------------------------------------------------------------------

    def _result(self, ask: Ask, answer: dict[str, Any]) -> Result:
        return result_from(answer, read_point(self.shared, ask).inputs().architecture)

    def _figures(self, ask: Ask, answer: dict[str, Any]) -> dict[str, Any]:
        """The metrics of an answer that is there."""
        return figures_of(self._result(ask, answer), self.table.metrics) if answer["status"] == OK else {}

    def points(self) -> Points:
        """What is in the file. Results are read when they are asked for."""
        return Points(tuple(self._point(row) for row in self.file.rows()))

    def _point(self, row: dict[str, Any]) -> StudyPoint:
        ask = self.asks[row["number"]]

        def load() -> Result:
            (_, answer), *_ = self.file.answers([row["key"]])
            return self._result(ask, answer)

        return StudyPoint(ask.run, shown(ask.architecture), shown(ask.workload), shown(ask.mapper), ask.settings, row, load)


def chart_rows(chart: ChartSpec, points: Points) -> list[dict[str, Any]]:
    """The chart as a table: x, series, y, in the order of the points; y is None where a point has no result. Raises InputError for an
    unknown column."""
    plain = check_chart(chart, (name for point in points for name in point.settings))
    chosen = points.where(run=chart.run, **{name: many(value) for name, value in chart.where.items() if name in plain})
    asked = {name: value for name, value in chart.where.items() if name not in plain and name not in KEYS}
    kept = [point for point in chosen if all(accepts(point.figure(name), value) for name, value in asked.items())]
    return _sums(chart, kept) if chart.y in FIGURES else _metric_rows(chart, kept)


def _metric_rows(chart: ChartSpec, points: list[StudyPoint]) -> list[dict[str, Any]]:
    """A metric of each point: x, series, y, unit. Raises InputError for two points at one place (of a scatter there may be)."""
    owner: dict[tuple[Any, ...], StudyPoint] = {}
    rows = []
    for point in points:
        place = point.figure(chart.x), " ".join(_said(point, name) for name in chart.series)
        if chart.kind != "scatter" and owner.setdefault(place, point) is not point:
            raise _two_points(chart, owner[place], point)
        value = point.figure(chart.y)
        y = float(value) if isinstance(value, int | float) else None
        if y is not None or not point.fits:
            rows.append({"x": place[0], "series": place[1], "y": y, "unit": metric(chart.y).unit})
    return [row for row in rows if row["x"] is not None]


def _sums(chart: ChartSpec, points: list[StudyPoint]) -> list[dict[str, Any]]:
    """Sums over the rows of the points' ledgers."""
    rows: dict[tuple[Any, ...], list[float] | None] = {}
    units: set[str] = set()
    owner: dict[tuple[Any, ...], StudyPoint] = {}
    ledger_where = {name: [str(v) for v in many(value)] for name, value in chart.where.items() if name in KEYS}
    alike = all(name not in KEYS for name in chart.series)
    for point in points:
        x, own = point.figure(chart.x), tuple(_said(point, name) for name in chart.series if name not in KEYS)
        if owner.setdefault((x, own), point) is not point:
            raise _two_points(chart, owner[x, own], point)
        if alike:
            rows[x, own] = [] if point.fits else None
        for row in point.result.ledger.where(**ledger_where) if point.fits else ():
            series = tuple(str(getattr(row, name)) if name in KEYS else _said(point, name) for name in chart.series)
            there = rows.setdefault((x, series), [])
            assert there is not None
            there.append(getattr(row, chart.y))
            units.add(row.unit)
    if chart.y == "amount" and len(units) > 1:
        raise InputError(f"amounts of {' and '.join(sorted(units))} are not one figure: choose by component or action", path="charts.where")
    unit = {"unit": _SHORT.get(first, first)} if chart.y == "amount" and (first := next(iter(units), "")) else {}
    return [
        {"x": x, "series": " ".join(part for part in series if part), "y": None if values is None else fsum(values), **unit}
        for (x, series), values in rows.items()
    ]


def _said(point: StudyPoint, name: str) -> str:
    """What a point is called by in a series: a setting that is a number by the last word of its path too, 'm=1024'."""
    value = str(point.key(name))
    return f"{name.rpartition('.')[2]}={value}" if name in point.settings and value[:1].isdigit() else value


_SHORT = {"byte": "B", "flop": "FLOP"}


def _two_points(chart: ChartSpec, first: StudyPoint, second: StudyPoint) -> InputError:
    """Two points at one place of a chart: which columns tell them apart."""
    names = ("architecture", "workload", "mapper", *dict.fromkeys((*first.settings, *second.settings)), "profile")
    apart = [name for name in names if first.key(name) != second.key(name)]
    fact = f"two points at {chart.x} {first.figure(chart.x)} of one series would be added up"
    hint = f": they differ in {', '.join(apart)} (put it into `series`, or choose by `where`)" if apart else ": one point twice"
    return InputError(fact + hint, path=f"charts.{chart.title}" if chart.title else "charts", known=apart)


def chart_unit(name: str) -> str:
    """The unit of a chart's axis; '' of a plain number and of what is no metric."""
    try:
        return metric(name).unit
    except InputError:
        return ""
