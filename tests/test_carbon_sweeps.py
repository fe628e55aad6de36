"""Design-space exploration with carbon: embodied, total, the products and money as columns and axes of a sweep."""

from __future__ import annotations

import pytest
import yaml
from typer.testing import CliRunner

from rackmodel import api
from rackmodel.carbon.assess import footprint
from rackmodel.carbon.costing import job_money
from rackmodel.carbon.job import Usage
from rackmodel.cli.app import app
from rackmodel.errors import InputError
from rackmodel.inputs import grid_table, read_study
from rackmodel.model.mapping import OBJECTIVES
from rackmodel.results import known_bill
from rackmodel.studies.metrics import figures_of, metric
from rackmodel.studies.plan import plan_points
from rackmodel.studies.run import Points, chart_rows
from tests.sweeps import run_study

SMALL = """
study: small
architecture: npu
workload: gemm
mapper: loopnest_perfect
runs:
- set: {m: 16, k: 16, n: 16, site.grid: [iceland, coal], pe.count: [16, 64]}
  minimize: tcdp
charts:
  good: {x: pe.count, y: tcdp, series: [site.grid]}
  double: {x: pe.count, y: embodied_g}
  ledger: {x: pe.count, y: tcdp, series: [component]}
  none: {x: pe.count, y: tcpd, series: [site.grid]}
"""


@pytest.fixture(scope="module")
def points() -> Points:
    return run_study(read_study(SMALL))


def test_a_metric_of_carbon_is_an_axis(points: Points) -> None:
    rows = chart_rows(read_study(SMALL).charts["good"], points)
    assert [(row["x"], row["series"]) for row in rows] == [(16, "iceland"), (64, "iceland"), (16, "coal"), (64, "coal")]
    for row, point in zip(rows, points, strict=True):
        machine = point.result.machine
        assert machine is not None
        bill = known_bill(machine)
        assert bill is not None
        assert row["y"] == pytest.approx(footprint(point.result, machine, bill, grid_table()).figure("tcdp").mid, rel=1e-9)
        assert row["unit"] == "g s"


def test_silicon_that_is_swept_embodies_more(points: Points) -> None:
    made = [figures_of(point.result, [metric("embodied_g")])["embodied_g"] for point in points.where(**{"site.grid": "coal"})]
    assert isinstance(made[0], float)
    assert isinstance(made[1], float)
    assert made[1] > made[0] > 0


@pytest.mark.parametrize(("chart", "words"), [("double", "two points"), ("ledger", "of a whole point"), ("none", "no column .tcpd.")])
def test_a_chart_that_cannot_be_drawn_says_why(points: Points, chart: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        chart_rows(read_study(SMALL).charts[chart], points)


def test_money_is_a_column_where_it_is_stated() -> None:
    result = api.search("dgx_h100", "ffn", "data", sets=["accelerators=8"]).result
    assert result.machine is not None
    money = job_money(result.machine, Usage(), result.energy_j, result.latency_s)
    assert money is not None
    found = figures_of(result, [metric("step_usd"), metric("step_usd.high"), metric("capital_usd")])
    assert found["step_usd"] == pytest.approx(money.total_usd.mid)
    assert found["step_usd.high"] > found["step_usd"]  # type: ignore[operator]
    assert found["capital_usd"] == pytest.approx(8 * 30e3 + 120e3 + 8 * 8100)
    cheap = api.search("rack_paper", "ffn", "data").result
    assert figures_of(cheap, [metric("step_usd")]) == {"step_usd": None}


def test_a_wired_machine_s_rate_is_a_column() -> None:
    result = api.search("hnlpu", "gpt_oss_120b", "hardwired").result
    assert figures_of(result, [metric("full_tokens_per_s")])["full_tokens_per_s"] == pytest.approx(301_670.4, rel=1e-6)


def test_the_shipped_study_covers_sizes_nodes_and_grids() -> None:
    study = read_study("npu_carbon")
    asks = plan_points(study)
    assert len(asks) == 7 * 3 * 2
    assert {chart.y for chart in study.charts.values()} >= {"tcdp", "embodied_g", "total_carbon_g", "cep"}
    assert yaml.safe_load(SMALL)["runs"][0]["minimize"] == study.runs[0].minimize == "tcdp"


def test_help_lists_every_objective() -> None:
    text = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke(app, ["search", "--help"]).stdout.replace("\n", " ")
    assert all(name in text for name in OBJECTIVES)
