"""`rackmodel sweep STUDY`: every point, figure and finding of a study."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackmodel.cli.options import JsonOption, OutOption, SetOption, folder, print_json, tell

if TYPE_CHECKING:
    from rackmodel.studies.run import Points
    from rackmodel.studies.study import StudySpec


def sweep(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="Study: a name of the library or a YAML file.")],
    sets: SetOption = None,
    as_json: JsonOption = False,
    output: OutOption = None,
) -> None:
    """Run a study: its figures as tables (and charts with -o), its findings with verdicts."""
    from rackmodel.inputs import read_study
    from rackmodel.papers import findings
    from rackmodel.report.finite import check_finite
    from rackmodel.studies.run import chart_rows, run_study

    spec = read_study(study)
    checks = findings(spec.findings) if spec.findings else None
    where = folder(output)
    points = run_study(spec, _progress, sets or ())
    check_finite(point.result for point in points)
    tables = {name: chart_rows(chart, points) for name, chart in spec.charts.items()}
    found = checks(points) if checks else []
    if where is not None:
        tell(_write(spec, points, tables, found, where))
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
    written.append(table("findings", [{k: v for k, v in f.to_dict().items() if k != "figures"} | {"figures": _figures(f)} for f in found]))
    return written


def _figures(finding: Any) -> str:
    return "; ".join(f"{name} {value:.4g}" for name, value in finding.figures.items())
