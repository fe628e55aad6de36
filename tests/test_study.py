"""The rack paper as a study: its figures, its findings and their verdicts, through the reader and the runner."""

from __future__ import annotations

import pytest

from rackmodel.errors import InputError
from rackmodel.inputs import read_study
from rackmodel.papers import findings
from rackmodel.studies.findings import Finding
from rackmodel.studies.run import Points, chart_rows, plan_points
from tests.sweeps import run_study

MUST = {"A01", "A02", "A03", "A04", "A05", "A12", "A13", "A14", "A15"}


@pytest.fixture(scope="module")
def points() -> Points:
    return run_study(read_study("rack_paper"))


@pytest.fixture(scope="module")
def found(points: Points) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings("rack_paper")(points)}


def test_there_are_eighteen_findings_two_in_halves_each_with_figures_behind_it(found: dict[str, Finding]) -> None:
    assert list(dict.fromkeys(name.partition("-")[0] for name in sorted(found))) == [f"A{n:02d}" for n in range(1, 19)]
    assert {name for name in found if "-" in name} == {"A08-reads", "A08-writes", "A09-falls", "A09-modest"}
    assert all(f.figures for f in found.values())
    assert all(f.why for f in found.values() if f.verdict != "agrees")


def test_every_must_agrees_but_the_one_that_hangs_on_what_is_counted(found: dict[str, Finding]) -> None:
    assert {f.name for f in found.values() if f.weight == "must"} == MUST
    assert all(found[name].verdict == "agrees" for name in MUST - {"A13"})
    assert found["A13"].said.startswith("not decidable: agrees if stage hand-overs alone are counted; disagrees if")


def test_what_is_true_by_construction_and_what_hangs_on_a_ten_thousandth_say_so(found: dict[str, Finding]) -> None:
    assert {f.name for f in found.values() if f.by_construction} == {"A01", "A15"}
    assert found["A10"].said.startswith("not decidable: margin ")
    assert {name for name in ("A08-reads", "A09-modest") if found[name].verdict == "disagrees"} == {"A08-reads", "A09-modest"}
    assert found["A08-writes"].verdict == found["A09-falls"].verdict == "agrees"


def test_the_figures_behind_the_verdicts(found: dict[str, Finding]) -> None:
    assert found["A05"].figures["ratio"] == pytest.approx(3.94, abs=0.005)
    assert found["A14"].figures["latency 10/8"] == pytest.approx(18.51, abs=0.01)
    assert found["A13"].figures["PP+TP sends, J"] == pytest.approx(0.15032, rel=1e-3)
    assert found["A18"].figures["PP+TP, J"] == pytest.approx(0.7946, rel=1e-3)
    assert found["A18"].figures["PP+TP, scores kept, J"] == pytest.approx(0.1074, rel=1e-3)
    assert found["A17"].figures["largest share, H100"] > 0.5


def test_every_figure_is_a_table_of_finite_numbers(points: Points) -> None:
    study = read_study("rack_paper")
    assert [name for name in study.charts if "_" not in name] == [f"fig{n}" for n in range(2, 14)]
    for name, chart in study.charts.items():
        rows = chart_rows(chart, points)
        assert rows, name
        assert all(0 <= row["y"] < 1e12 for row in rows)


def test_points_are_planned_in_the_file_s_order() -> None:
    study = read_study("rack_paper")
    planned = plan_points(study)
    assert len(planned) == 36 + 6 + 6 + 24 + 4 + 20 + 5 + 5 + 5 + 12
    assert (planned[0].architecture, planned[0].workload, planned[0].mapper) == ("rack_paper", "ffn", "data")
    assert [point.settings["accelerators"] for point in planned[:6]] == [4, 6, 8, 10, 16, 32]


def test_the_row_tiled_stage_stalls_less_and_writes_more() -> None:
    points = run_study(read_study("row_pipeline"))
    found = findings("row_pipeline")(points)
    *counts, pays = found
    assert [f.said for f in counts] == ["agrees by construction"] * 4
    assert all(f.figures["network row, J"] < f.figures["network column, J"] for f in counts)
    assert all(f.figures["stall row, s"] <= f.figures["stall column, s"] for f in counts)
    assert all(f.figures["GPU writes row, J"] >= f.figures["GPU writes column, J"] for f in counts)
    assert pays.verdict == "agrees"


def test_at_equal_compute_few_large_gpus_are_never_worse() -> None:
    found = findings("iso_compute")(run_study(read_study("iso_compute")))
    assert len(found) == 4
    assert all(f.figures["energy 64/4"] >= 1 for f in found)


POINTS_OF_TWO = """
study: two
architecture: rack_paper
runs:
- {name: main, workload: ffn, mapper: data, profile: ideal, set: {accelerators: [4, 8]}}
- {name: main, workload: ffn, mapper: data, profile: serial, set: {accelerators: [4, 8]}}
charts:
  energy: {run: main, x: accelerators, y: joules, series: [level]}
"""


def test_a_chart_never_adds_two_points_up() -> None:
    study = read_study(POINTS_OF_TWO)
    points = run_study(study)
    with pytest.raises(InputError, match="two points at accelerators 4 of one series would be added up: they differ in profile"):
        chart_rows(study.charts["energy"], points)
    parted = study.charts["energy"].model_copy(update={"series": ["profile", "level"]})
    alone = study.charts["energy"].model_copy(update={"where": {"profile": "ideal"}})
    assert sum(row["y"] for row in chart_rows(parted, points)) == pytest.approx(2 * sum(row["y"] for row in chart_rows(alone, points)))


def test_an_amount_has_one_unit_or_is_refused() -> None:
    study = read_study(POINTS_OF_TWO)
    points = run_study(study)
    amounts = study.charts["energy"].model_copy(update={"y": "amount", "where": {"profile": "ideal", "component": "memory"}})
    assert {row["unit"] for row in chart_rows(amounts, points)} == {"B"}
    with pytest.raises(InputError, match="amounts of byte and flop are not one figure"):
        chart_rows(amounts.model_copy(update={"where": {"profile": "ideal"}}), points)
