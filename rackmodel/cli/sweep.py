"""`rackmodel sweep STUDY`: every point, figure and finding of a study."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackmodel.cli.options import JsonOption, OutOption, SetOption, folder, print_json, tell

if TYPE_CHECKING:
    from rackmodel.studies.findings import Finding
    from rackmodel.studies.ranges import Ranging
    from rackmodel.studies.run import Points
    from rackmodel.studies.study import StudySpec


def sweep(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="Study: a name of the library or a YAML file.")],
    sets: SetOption = None,
    as_json: JsonOption = False,
    output: OutOption = None,
    ranges: Annotated[
        bool, typer.Option("--ranges", help="Findings over the ranges of what they rest on: where each verdict holds and where it turns.")
    ] = False,
) -> None:
    """Run a study: its figures as tables (and charts with -o), its findings with verdicts."""
    from rackmodel.inputs import read_study
    from rackmodel.inputs.carbon_tables import carbon_tables
    from rackmodel.papers import checks_of
    from rackmodel.report.finite import check_finite
    from rackmodel.studies.run import chart_rows, run_study

    spec = read_study(study)
    checks = checks_of(spec)
    where = folder(output)
    points = run_study(spec, _progress, sets or ())
    check_finite(point.result for point in points)
    tables = {name: chart_rows(chart, points) for name, chart in spec.charts.items()}
    found = [finding for check in checks for finding in check(points, carbon_tables())]
    flips: dict[str, list[dict[str, Any]]] = {}
    if ranges:
        found, flips = _ranged(spec, sets or (), draw=where is not None)
    if where is not None:
        tell([*_write(spec, points, tables, found, where), *_write_flips(flips, where)])
    if as_json:
        print_json(
            {
                "study": spec.name,
                "points": [_point(p) for p in points],
                "charts": tables,
                "findings": [finding.to_dict() for finding in found],
            }
        )
        return
    from rackmodel.report.printing import print_findings, print_series

    for name, chart in spec.charts.items():
        print_series(f"{name}: {chart.title}", chart.x, tables[name], chart.y)
    print_findings(found)


def _ranged(spec: StudySpec, sets: Sequence[str], *, draw: bool) -> tuple[list[Finding], dict[str, list[dict[str, Any]]]]:
    """Findings over ranges; 'finding, input' → rows of the chart in which its verdict turns."""
    from rackmodel.inputs.carbon_tables import carbon_tables
    from rackmodel.papers import checks_of
    from rackmodel.studies.late import LatePoints
    from rackmodel.studies.ranges import Ranges
    from rackmodel.studies.varied import varied_inputs

    tables = carbon_tables()
    checks = checks_of(spec)
    runs = Ranges(checks, LatePoints(spec, sets), tables, _say)
    ranging: Ranging = runs.over(varied_inputs(spec, checks, tables))
    rows = {f"{turn.finding}, {turn.input.name}": runs.drawn(turn) for turn in ranging.turns if turn.meant} if draw else {}
    return ranging.findings, rows


def _say(what: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{what}", end="", file=sys.stderr, flush=True)


def _write_flips(flips: dict[str, list[dict[str, Any]]], where: Path) -> list[Path]:
    """Of each verdict that an input turns: how far the finding is from its other verdict, over the input."""
    from rackmodel.report.charts import flip_chart, save_chart
    from rackmodel.report.files import csv_of_records, stems_of, write_whole

    written = []
    stems = stems_of([f"flip {name}" for name in flips], ("points", "findings"))
    for (name, rows), stem in zip(flips.items(), stems, strict=True):
        if rows:
            finding, _, varied = name.partition(", ")
            written.append(write_whole(where / f"{stem}.csv", csv_of_records(rows)))
            written += save_chart(flip_chart(rows, finding, varied), where, stem)
    return written


def _progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        end = "\n" if done == total else ""
        print(f"\r{done}/{total} points", end=end, file=sys.stderr, flush=True)


def _point(point: Any) -> dict[str, Any]:
    keys = {"run": point.run, "architecture": point.architecture, "workload": point.workload, "mapper": point.mapper}
    return {**keys, "set": point.settings, **{k: v for k, v in point.result.to_dict().items() if k not in ("ledger", *keys)}}


def _write(spec: StudySpec, points: Points, tables: dict[str, Any], found: list[Any], where: Path) -> list[Path]:
    """Every figure as chart and CSV, the points and the findings as CSV."""
    from rackmodel.report.charts import save_chart, study_chart
    from rackmodel.report.files import csv_of_records, stems_of, write_whole

    def table(stem: str, rows: list[dict[str, Any]]) -> Path:
        return write_whole(where / f"{stem}.csv", csv_of_records(rows))

    written = []
    for (name, chart), stem in zip(spec.charts.items(), stems_of(spec.charts, ("points", "findings")), strict=True):
        written.append(table(stem, tables[name]))
        if tables[name]:
            drawn = study_chart(tables[name], kind=chart.kind, x=chart.x, y=chart.y, title=chart.title, log=chart.log)
            written += save_chart(drawn, where, stem)
    rows = []
    for point in points:
        row = _point(point)
        row.update(row.pop("set"))
        rows.append({k: v for k, v in row.items() if not isinstance(v, dict)})
    written.append(table("points", rows))
    written.append(table("findings", [_row(f) for f in found]))
    return written


def _row(finding: Finding) -> dict[str, Any]:
    """A finding as a row: lists as text."""
    plain = finding.to_dict()
    return plain | {"figures": _figures(finding), "needs": "; ".join(plain["needs"]), "rests": "; ".join(plain["rests"])}


def _figures(finding: Any) -> str:
    return "; ".join(f"{name} {value:.4g}" for name, value in finding.figures.items())
