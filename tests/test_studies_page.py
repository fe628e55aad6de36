"""docs/studies.md: its studies, commands and Python run as they are written; its tables name what is there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from rackmodel.inputs import read_study
from rackmodel.report.charts import study_chart
from rackmodel.report.drawing import save_chart
from rackmodel.studies.ask import FILE
from rackmodel.studies.metrics import FAMILIES, METRICS, metric
from rackmodel.studies.plan import plan_points
from rackmodel.studies.run import chart_rows, chart_unit
from rackmodel.studies.study import RunSpec, StudySpec
from tests.sweeps import run_study

PAGE = (Path(__file__).parents[1] / "docs/studies.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The page's blocks of code in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def study(name: str) -> str:
    return next(text for text in blocks("yaml") if text.startswith(f"study: {name}\n"))


def test_its_commands_run(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "first.yaml").write_text(study("first"), encoding="utf-8")
    for line in blocks("sh")[0].splitlines():
        words = shlex.split(line)
        assert words[0] == "rackmodel"
        code, out, err = run(*words[1:])
        assert code == 0, (line, err)
        assert out
    assert {FILE, "points.csv", "time.csv", "time.png", "time.svg"} <= {path.name for path in (tmp_path / "out").iterdir()}


def test_its_drawn_study_has_the_points_that_it_says(tmp_path: Path) -> None:
    (tmp_path / "drawn.yaml").write_text(study("drawn"), encoding="utf-8")
    spec = read_study(tmp_path / "drawn.yaml")
    asks = plan_points(spec)
    assert [(ask.workload, ask.mapper) for ask in asks if ask.run == "pairs"] == [("ffn", "data")] * 2 + [("attention", "tensor")] * 2
    assert len([ask for ask in asks if ask.run == "drawn"]) == 6
    assert all(point.fits for point in run_study(spec))


def test_its_charts_are_of_metrics_with_gaps_and_filters(tmp_path: Path) -> None:
    (tmp_path / "tradeoff.yaml").write_text(study("tradeoff"), encoding="utf-8")
    spec = read_study(tmp_path / "tradeoff.yaml")
    points = run_study(spec)
    front, power = (chart_rows(spec.charts[name], points) for name in ("front", "power"))
    few = [point for point in points if point.fits and point.row["memory_share"] < 0.9]
    assert [(row["x"], row["y"]) for row in front] == [(point.result.latency_s, point.result.energy_j) for point in few]
    assert 0 < len(few) < len(points.points) == len(power)
    gaps = [row for row in power if row["y"] is None]
    assert len(gaps) == sum(not point.fits for point in points) > 0
    for name, chart in spec.charts.items():
        drawn = study_chart(chart_rows(chart, points), kind=chart.kind, x=chart.x, y=chart.y, x_unit=chart_unit(chart.x))
        assert save_chart(drawn, tmp_path, name)


def test_its_python_runs() -> None:
    for text in blocks("python"):
        exec(compile(text, "docs/studies.md", "exec"), {})


def test_it_names_every_key() -> None:
    keys = {field.alias or name for model in (StudySpec, RunSpec) for name, field in model.model_fields.items()} - {"source", "note"}
    assert {key for key in keys if f"`{key}`" not in PAGE} == set()


def test_it_names_every_metric_and_no_other() -> None:
    table = PAGE[PAGE.index("## Metrics") : PAGE.index("## The file")]
    cells = [part for row in re.findall(r"^\|.*\| (`.*`.*) \|$", table, re.MULTILINE) for part in re.findall(r"`([^`]*)`", row)]
    named = {one for text in cells for one in ([text] if text.startswith("limit:") else text.split())} - {".low", ".high"}
    for one in named:
        metric(one.replace("\\|", "|"))
    assert {name for name in METRICS if name not in table} == set()
    assert {family for family in FAMILIES if not re.search(rf"\b{family}\b", table)} <= {"seconds", "amount"}
