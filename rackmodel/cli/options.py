"""Options that several commands share, each said once, and how results are printed and written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rackmodel.model.result import Result

ArchitectureArg = Annotated[str, typer.Argument(metavar="ARCH", help="Architecture: a name of the library or a YAML file.")]
WorkloadArg = Annotated[str, typer.Argument(metavar="WORKLOAD", help="Workload: a name of the library or a YAML file.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Override any number of any input: accelerators=32, gpu.memory.bandwidth='4 TB/s'."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
OutOption = Annotated[Path | None, typer.Option("-o", "--output", metavar="DIR", help="Write mapping, ledger and charts to this folder.")]
ProfileOption = Annotated[
    str | None, typer.Option("--profile", metavar="NAME", help="What overlaps: a file of specs/profiles (ideal, serial).")
]
MinimizeOption = Annotated[str | None, typer.Option("--minimize", metavar="OBJ", help="energy, latency, edp or carbon.")]


def objective(text: str | None) -> Any:
    """Check an objective's name. Raises InputError."""
    from rackmodel.errors import InputError
    from rackmodel.model.mapping import OBJECTIVES

    if text is not None and text not in OBJECTIVES:
        raise InputError(f"unknown objective '{text}'", path="--minimize", known=OBJECTIVES, given=text)
    return text


def folder(path: Path | None) -> Path | None:
    """The output folder, made if need be. Raises InputError where it cannot be."""
    from rackmodel.errors import InputError, Where

    if path is None:
        return None
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise InputError(f"cannot write there: {problem.strerror}", where=Where(str(path)))
    return path


def print_json(data: Any) -> None:
    """JSON on stdout; NaN and infinity are a bug, not a value."""
    typer.echo(json.dumps(data, indent=1, allow_nan=False, default=float))


def write_mapping(result: Result, path: Path) -> Path:
    """Write a mapping file that `evaluate` prices to the same figures."""
    import yaml

    data = result.mapping.model_dump(by_alias=True, exclude_none=False, exclude={"source", "note"})
    data["homes"] = {name: home.model_dump(exclude_none=True, exclude={"source", "note"}) for name, home in result.mapping.homes.items()}
    data["axes"] = {name: {"degree": axis.degree, "stride": axis.stride} for name, axis in result.mapping.axes.items()}
    path.write_text(yaml.safe_dump(data, sort_keys=False, default_flow_style=None, width=120), encoding="utf-8")
    return path


def write_results(results: Sequence[Result], where: Path) -> list[Path]:
    """Mapping and ledger of each result, the charts of all and a page with everything, in one folder."""
    from rackmodel.report.charts import energy_breakdown, latency_breakdown, save_chart
    from rackmodel.report.page import result_page
    from rackmodel.report.tables import ledger_csv

    written = []
    for result in results:
        stem = f"{result.mapper}." if len(results) > 1 else ""
        written.append(write_mapping(result, where / f"{stem}mapping.yaml"))
        ledger = where / f"{stem}ledger.csv"
        ledger.write_text(ledger_csv(result.ledger), encoding="utf-8")
        written.append(ledger)
    charts = {"energy": energy_breakdown(results, ("component", "level")), "latency": latency_breakdown(results)}
    for stem, chart in charts.items():
        written += save_chart(chart, where, stem)
    for result in results:
        written += _write_nests(result, where, f"{result.mapper}." if len(results) > 1 else "")
    page = where / "index.html"
    page.write_text(result_page(results, list(charts.values())), encoding="utf-8")
    written.append(page)
    return written


def _write_nests(result: Result, where: Path, stem: str) -> list[Path]:
    """The loop nests of a result as text and as a picture of what each waits for; nothing where it has none."""
    from rackmodel.report.charts import save_chart, study_chart
    from rackmodel.report.nests import all_nests, time_rows

    nests = result.extra.get("nests") or {}
    if not nests:
        return []
    path = where / f"{stem}nests.txt"
    path.write_text(all_nests(nests), encoding="utf-8")
    chart = study_chart(
        time_rows(nests),
        kind="line",
        x="contraction",
        y="seconds",
        title=f"Time of each level, {result.workload} on {result.architecture}",
        log=True,
    )
    return [path, *save_chart(chart, where, f"{stem}nests")]


def tell(paths: Sequence[Path]) -> None:
    """Name the files that were written, on stderr."""
    if paths:
        parent = paths[0].parent
        typer.echo(f"wrote {', '.join(path.name for path in paths)} in {parent}", err=True)
