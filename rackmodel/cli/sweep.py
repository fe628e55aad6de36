"""`rackmodel sweep STUDY`, or ARCH WORKLOAD MAPPER: every point, figure and finding of a study."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackmodel.cli.options import JsonOption, MinimizeOption, ProfileOption, SetOption, WorkersOption, folder, objective
from rackmodel.cli.printing import echo, print_json, tell
from rackmodel.cli.progress import PointsLine
from rackmodel.errors import InputError
from rackmodel.report.files import csv_of_records, stems_of, write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rackmodel.carbon.tables import CarbonTables
    from rackmodel.store.study_file import StudyFile
    from rackmodel.studies.findings import Finding
    from rackmodel.studies.plan import Ask, Sets
    from rackmodel.studies.ranges import Ranging
    from rackmodel.studies.run import Points
    from rackmodel.studies.study import StudySpec

FEW = 64  # points that are not worth the start of a process
NEST = 16  # points that one with a search of loop nests counts for


def sweep(
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="STUDY | ARCH WORKLOAD MAPPER", help="A study, or inputs: names or YAML files, several with commas."),
    ],
    sets: SetOption = None,
    columns: Annotated[
        str | None, typer.Option("--columns", metavar="METRICS", help="Metrics to add to the table, joined by commas.")
    ] = None,
    minimize: MinimizeOption = None,
    profile: ProfileOption = None,
    workers: WorkersOption = None,
    scheduler: Annotated[
        str | None, typer.Option("--scheduler", metavar="ADDRESS", help="Solve on the workers of this dask.distributed scheduler.")
    ] = None,
    ranges: Annotated[
        bool, typer.Option("--ranges", help="Check findings over the ranges of their inputs: where each verdict holds and where it flips.")
    ] = False,
    export: Annotated[
        str | None, typer.Option("--export", metavar="FORMAT", help="Write the table of points: csv, parquet or json.")
    ] = None,
    as_json: JsonOption = False,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="DIR", help="Keep the points in this folder, with charts, points.csv and findings.csv."),
    ] = None,
) -> None:
    """Run a study, or a sweep over lists of values: tables, charts with -o, findings with verdicts. With -o it resumes if stopped."""
    from rackmodel.papers import checks_of
    from rackmodel.store.study_file import StudyFile
    from rackmodel.studies.ask import FILE
    from rackmodel.studies.before import check_columns
    from rackmodel.studies.export import check_format, exported
    from rackmodel.studies.plan import plan_points, read_sets
    from rackmodel.studies.set_tables import tables_under

    if export is not None:
        check_format(export, output is not None)
        if as_json and output is None:
            raise InputError("prints to standard output, as --json does: keep one, or say -o DIR too", path="--export")
    spec, own = _spec(inputs, columns, objective(minimize), profile), read_sets(sets or ())
    checks, carbon = checks_of(spec), tables_under(spec, own)
    if ranges and not checks:
        raise InputError(f"{spec.name} has no findings whose verdicts could turn", path="--ranges")
    with _in_file(inputs):
        asks = plan_points(spec, own)
        check_columns(spec.columns)
    _check(spec, asks, inputs, own)
    where = folder(output)
    with StudyFile(None if where is None else where / FILE) as file, _interrupted(file.path):
        with _in_set(spec, own, inputs):
            points = _solved(spec, file, own, (workers, scheduler, asks))
        plain = {name: _charted(name, spec, points, (), inputs) for name, chart in spec.charts.items() if not chart.finding}
        with _in_file(inputs):
            found, flips = (
                _ranged(spec, own, carbon, file, _workers(workers, scheduler, asks))
                if ranges
                else ([finding for check in checks for finding in check(points, carbon)], {})
            )
        tables = {name: plain[name] if name in plain else _charted(name, spec, points, found, inputs) for name in spec.charts}
        if export is not None:
            exported(points.rows, export, where)
        if where is not None:
            tell([*_write(spec, points, tables, found, where), *_write_flips(flips, where)])
        if as_json:
            data = {"study": spec.name, "points": [_point(p) for p in points], "charts": tables}
            print_json({**data, "findings": [finding.to_dict() for finding in found]})
        elif export is None or where is not None:
            _print(spec, points, tables, found)
    raise typer.Exit(_left_out(points))


def _solved(spec: StudySpec, file: StudyFile, own: Sets, by: tuple[int | None, str | None, Sequence[Ask]]) -> Points:
    """Every point, with a line of progress. by: processes, address of a scheduler, what is asked of them."""
    from rackmodel.studies.ask import solvers
    from rackmodel.studies.run import Sweep

    line = PointsLine()
    try:
        with solvers(_workers(*by)) as who:
            return Sweep(spec, file, own).run(who, line)
    finally:
        line.wipe()


@contextmanager
def _in_set(spec: StudySpec, own: Sets, inputs: Sequence[str]) -> Iterator[None]:
    """Faults of a setting get the place where a run of the study's file says it, if there is one and no --set of the command does."""
    from rackmodel.inputs import load
    from rackmodel.inputs.problems import placed

    try:
        yield
    except InputError as problem:
        said = [(number, name) for number, run in enumerate(spec.runs) for name in run.set if name not in own]
        path = next((f"runs.{n}.set.{name}" for n, name in said if str(problem.where).startswith(f"--set {name}=")), "")
        if not path or len(inputs) != 1:
            raise
        told = InputError(problem.message, path=path, known=problem.known, given=problem.given, more=problem.more)
        raise placed(told, load("study", inputs[0])) from None


def _check(spec: StudySpec, asks: Sequence[Ask], inputs: Sequence[str], own: Sets) -> None:
    """Raise InputError, at its place in the study's file, for what can be told before a point is solved: names, columns of charts."""
    from rackmodel.studies.before import check_chart, check_chosen, check_names
    from rackmodel.studies.own_findings import check_figures

    with _in_file(inputs):
        check_names(asks, spec if len(inputs) == 1 else None)
        if isinstance(spec.findings, dict):
            check_figures(spec.findings, asks)
    settings = dict.fromkeys(name for ask in asks for name in ask.settings)
    for name, chart in spec.charts.items():
        with _placed(name, inputs):
            check_chart(chart, settings)
            check_chosen(chart, asks, own)


def _charted(name: str, spec: StudySpec, points: Points, found: Sequence[Finding], inputs: Sequence[str]) -> list[dict[str, Any]]:
    """A chart as a table. Raises InputError at its place in the study's file."""
    from rackmodel.studies.finding_charts import finding_rows
    from rackmodel.studies.run import chart_rows

    chart = spec.charts[name]
    with _placed(name, inputs):
        return finding_rows(chart, found) if chart.finding else chart_rows(chart, points)


@contextmanager
def _in_file(inputs: Sequence[str]) -> Iterator[None]:
    """Faults of runs, columns and findings get their place in the study's file, if there is one."""
    from rackmodel.inputs import load
    from rackmodel.inputs.problems import placed

    try:
        yield
    except InputError as problem:
        if problem.where is not None or not problem.path or len(inputs) != 1:
            raise
        raise placed(problem, load("study", inputs[0])) from None


@contextmanager
def _placed(chart: str, inputs: Sequence[str]) -> Iterator[None]:
    """Faults of a chart get its place in the study's file."""
    from rackmodel.inputs import load
    from rackmodel.inputs.problems import placed

    try:
        yield
    except InputError as problem:
        told = InputError(problem.message, path=f"charts.{chart}", known=problem.known, given=problem.given)
        raise placed(told, load("study", inputs[0])) from None


def _ranged(
    spec: StudySpec, sets: Sets, tables: CarbonTables, file: StudyFile, by: int | str
) -> tuple[list[Finding], dict[str, list[dict[str, Any]]]]:
    """Findings over ranges; where the study has a file, 'finding, input' → rows of the chart in which its verdict turns."""
    from rackmodel.papers import checks_of
    from rackmodel.studies.ask import solvers
    from rackmodel.studies.late import LatePoints, Solvers
    from rackmodel.studies.ranges import Ranges
    from rackmodel.studies.varied import varied_inputs

    checks, line = checks_of(spec), PointsLine()
    try:
        with solvers(by) as who:
            runs = Ranges(checks, LatePoints(spec, sets, Solvers(file, who, line)), tables, _say)
            ranging: Ranging = runs.over(varied_inputs(spec, checks, tables))
            rows = {} if file.path is None else runs.drawn([turn for turn in ranging.turns if turn.meant])
    finally:
        line.wipe()
    return ranging.findings, rows


def _say(what: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{what}", end="", file=sys.stderr, flush=True)


def _write_flips(flips: dict[str, list[dict[str, Any]]], where: Path) -> list[Path]:
    """Of each verdict that an input turns: how far the finding is from its other verdict, over the input."""
    from rackmodel.report.charts import flip_chart
    from rackmodel.report.drawing import save_chart

    written = []
    stems = stems_of([f"flip {name}" for name in flips], ("points", "findings"))
    for (name, rows), stem in zip(flips.items(), stems, strict=True):
        if rows:
            finding, _, varied = name.partition(", ")
            written.append(write_whole(where / f"{stem}.csv", csv_of_records(rows)))
            written += save_chart(flip_chart(rows, finding, varied), where, stem)
    return written


def _spec(inputs: Sequence[str], columns: str | None, goal: Any, profile: str | None) -> StudySpec:
    """The study of a file, or of three inputs. Raises InputError."""
    from rackmodel.studies.ask import study_of
    from rackmodel.studies.plan import split_list

    more = [] if columns is None else split_list(columns)
    if len(inputs) == 1:
        return study_of((inputs[0], None, None), more, goal, profile)
    if len(inputs) != 3:
        raise InputError(f"want a STUDY, or ARCH WORKLOAD MAPPER; got {len(inputs)} names", path="sweep")
    architectures, workloads, mappers = map(split_list, inputs)
    return study_of((architectures, workloads, mappers), more, goal, profile)


def _workers(count: int | None, scheduler: str | None, asks: Sequence[Ask]) -> int | str:
    """Who solves: a number of processes, or a scheduler's address. Raises InputError."""
    from rackmodel.processes import cores

    if scheduler is not None:
        if count is not None:
            raise InputError("--workers or --scheduler, not both: a scheduler knows its workers", path="--workers")
        return scheduler
    if count is not None:
        return count
    return 1 if sum(NEST if _nested(ask) else 1 for ask in asks) <= FEW else cores()


def _nested(ask: Ask) -> bool:
    """Whether a point searches loop nests."""
    from rackmodel.inputs import read_mapper

    said = ask.settings.get("inside.model")
    return (read_mapper(ask.file("mapper")).inside.model if said is None else said) == "loopnest"


@contextmanager
def _interrupted(path: Path | None) -> Iterator[None]:
    """Ctrl-C and a polite end: what is done is in the file, and is said to be."""
    import signal
    import threading

    def end(*_: Any) -> None:
        raise KeyboardInterrupt

    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, end) if main else None
    try:
        yield
    except KeyboardInterrupt:
        if path is not None:
            echo(f"{path}: points that are done are kept; the same command goes on from there", err=True)
        raise
    finally:
        if main:
            signal.signal(signal.SIGTERM, before)


def _left_out(points: Points) -> int:
    """Say which points have no result, and the exit code: 2 where an input contradicts itself, 1 where nothing fits at all."""
    from rackmodel.studies.answer import REFUSED

    why: dict[tuple[str, str], list[int]] = {}
    for number, point in enumerate(points):
        if not point.fits:
            said = str(point.row["message"]).splitlines()[0]
            why.setdefault((point.status, point.row["resource"] or said), []).append(number)
    every = points.points
    for (status, _), numbers in list(why.items())[:MOST_SAID]:
        first = every[numbers[0]]
        message = str(first.row["message"])
        place = ", ".join([f"{first.workload} on {first.architecture} by {first.mapper}", *(f"{n}={v}" for n, v in first.settings.items())])
        more = f" and {len(numbers) - 1} more" if len(numbers) > 1 else ""
        echo(f"{place}{more}: {status if status == REFUSED else 'infeasible'}: {message}", err=True)
    if len(why) > MOST_SAID:
        echo(f"and {len(why) - MOST_SAID} more reasons: see the columns status and message of the table", err=True)
    if any(status == REFUSED for status, _ in why):
        return 2
    return int(bool(every) and not any(point.fits for point in every))


MOST_SAID = 8
"""Reasons that are printed; all are in the table."""


def _point(point: Any) -> dict[str, Any]:
    keys = {"run": point.run, "architecture": point.architecture, "workload": point.workload, "mapper": point.mapper}
    row = {name: value for name, value in point.row.items() if name not in ("key", *keys)}
    if not point.fits:
        return {**keys, "set": point.settings, "row": row}
    return {**keys, "set": point.settings, "row": row, **{k: v for k, v in point.result.to_dict().items() if k not in ("ledger", *keys)}}


def _print(spec: StudySpec, points: Points, tables: dict[str, Any], found: list[Any]) -> None:
    """The charts as tables and the verdicts; the points too, where columns of theirs are asked for or there is neither."""
    from rackmodel.report.printing import print_findings, print_series

    for name, chart in spec.charts.items():
        print_series(f"{name}: {chart.title}" if chart.title else name, chart.x, tables[name], chart.y)
    if spec.findings:
        print_findings(found)
    if spec.columns or not (spec.charts or spec.findings):
        from rackmodel.report.points import beside_inputs, points_table, unshown
        from rackmodel.report.tables import console

        out, count = console(), len(points.points)
        for number, figures in enumerate(beside_inputs(points.rows, spec.columns, width=out.width)):
            if number:
                out.print()
            out.print(points_table(points.rows, figures, width=out.width))
        if unshown(count):
            said = f"{unshown(count):,} of {count:,} rows are left out: --export csv prints all, -o DIR writes them"
            out.print(said)


def _write(spec: StudySpec, points: Points, tables: dict[str, Any], found: list[Any], where: Path) -> list[Path]:
    """Every figure as chart and CSV, the points and the findings as CSV."""
    from rackmodel.report.charts import study_chart, with_places
    from rackmodel.report.drawing import save_chart
    from rackmodel.studies.finding_charts import beside
    from rackmodel.studies.run import chart_unit

    def table(stem: str, rows: list[dict[str, Any]]) -> Path:
        return write_whole(where / f"{stem}.csv", csv_of_records(rows))

    placed, verdicts = with_places(tables), {one.name: one.verdict for one in found}
    written = [where / "study.sqlite"]
    for (name, chart), stem in zip(spec.charts.items(), stems_of(spec.charts, ("points", "findings")), strict=True):
        written.append(table(stem, tables[name]))
        if tables[name]:
            about: dict[str, Any] = {"kind": chart.kind, "x": chart.x, "y": chart.y, "title": chart.title, "log": chart.log}
            drawn = study_chart(placed[name], **about, words=beside(chart, verdicts), x_unit=chart_unit(chart.x))
            written += save_chart(drawn, where, stem)
    written.append(table("points", [{name: row[name] for name in row if name != "key"} for row in points.rows]))
    if spec.findings:
        written.append(table("findings", [_row(f) for f in found]))
    return written


def _row(finding: Finding) -> dict[str, Any]:
    """A finding as a row: lists as text."""
    plain = finding.to_dict()
    return plain | {"figures": _figures(finding), "needs": "; ".join(plain["needs"]), "rests": "; ".join(plain["rests"])}


def _figures(finding: Any) -> str:
    return "; ".join(f"{name} {value:.4g}" for name, value in finding.figures.items())
