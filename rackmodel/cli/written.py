"""What commands write of results: mapping, ledger and answer of each, charts of all, a page; the schedule of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackmodel.report.files import make_folder, stems_of, write_whole

if TYPE_CHECKING:
    from rackmodel.inputs import Inputs
    from rackmodel.model.result import Result


def write_trace(result: Result, inputs: Inputs, profile: str | None, path: Path) -> list[Path]:
    """The schedule of a result's step. Raises InputError, OutputError."""
    from rackmodel import api
    from rackmodel.report.trace import trace_json

    make_folder(path.parent)
    return [write_whole(path, trace_json(api.step_of(inputs, result.mapping, profile=profile)))]


def write_mapping(result: Result, path: Path) -> Path:
    """Write a mapping file that `evaluate` prices to the same figures. Raises OutputError."""
    from rackmodel.report.mapping_file import mapping_yaml

    return write_whole(path, mapping_yaml(result))


def write_results(
    results: Sequence[Result],
    where: Path,
    names: Sequence[str] = (),
    asked: Sequence[Mapping[str, Any]] = (),
    beside: Mapping[str, Any] | None = None,
) -> list[Path]:
    """Mapping, ledger and answer of each result, the charts of all and a page with everything, in one folder. names: what the files of
    each begin with, where there are several (default: its mapper) · asked: the inputs of each, which later commands ask again · beside:
    front, run and launch, where there is one result."""
    from rackmodel.report.charts import energy_breakdown, latency_breakdown
    from rackmodel.report.drawing import save_chart
    from rackmodel.report.result_page import result_page
    from rackmodel.report.saved import saved, saved_json
    from rackmodel.report.tables import ledger_csv

    written, asked = [], asked or [{}] * len(results)
    drawn = [_sketched(result, own) | dict(beside or {}) for result, own in zip(results, asked, strict=True)]
    stems = [f"{stem}." if len(results) > 1 else "" for stem in stems_of(names or [result.mapper for result in results])]
    for result, stem, own, more in zip(results, stems, asked, drawn, strict=True):
        written.append(write_mapping(result, where / f"{stem}mapping.yaml"))
        written.append(write_whole(where / f"{stem}ledger.csv", ledger_csv(result.ledger)))
        written.append(write_whole(where / f"{stem}result.json", saved_json(result, own, more, where)))
    charts = {"energy": energy_breakdown(results, ("component", "level")), "latency": latency_breakdown(results)}
    for stem, chart in charts.items():
        written += save_chart(chart, where, stem)
    for result, stem in zip(results, stems, strict=True):
        written += _write_nests(result, where, stem)
    page = result_page([saved(*each) for each in zip(results, asked, drawn, strict=True)])
    written.append(write_whole(where / "index.html", page))
    return written


def _sketched(result: Result, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What sketches of a result are drawn from beside its ledger: when its stages run, and its operations. asked: {} if not known."""
    from rackmodel import api
    from rackmodel.inputs import read_inputs
    from rackmodel.report.sketch_data import graph_of
    from rackmodel.report.timeline import timeline_of

    if not asked:
        return {}
    third = {key: asked[key] for key in ("mapper", "mapping") if asked.get(key)}
    inputs = read_inputs(asked["architecture"], asked["workload"], **third, sets=asked.get("sets") or ())
    step = api.step_of(inputs, result.mapping, profile=asked.get("profile"))
    return {"timeline": timeline_of(step), "graph": graph_of(inputs.workload, result.mapping)}


def _write_nests(result: Result, where: Path, stem: str) -> list[Path]:
    """The loop nests of a result as text and as a picture of what each waits for; nothing where it has none."""
    from rackmodel.report.charts import study_chart
    from rackmodel.report.drawing import save_chart
    from rackmodel.report.nests import all_nests, time_rows

    nests = result.nests
    if not nests:
        return []
    path = write_whole(where / f"{stem}nests.txt", all_nests(nests))
    chart = study_chart(
        time_rows(nests),
        kind="line",
        x="contraction",
        y="seconds",
        title=f"Time of each level, {result.workload} on {result.architecture}",
        log=True,
    )
    return [path, *save_chart(chart, where, f"{stem}nests")]
