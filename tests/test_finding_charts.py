"""Charts over the figures of findings: names read by patterns, what is drawn is what the finding says, what is no figure is refused."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from rackmodel.errors import InputError
from rackmodel.inputs.carbon_tables import carbon_tables
from rackmodel.papers.act_reduce import designs, jevons
from rackmodel.report.charts import axis_words, study_chart
from rackmodel.studies.finding_charts import beside, finding_rows
from rackmodel.studies.findings import Finding
from rackmodel.studies.study import ChartSpec

YIELD = Finding(
    "Y", "Figure 4", "carbon falls", "ours", "agrees", {"40 % work, kg": 5.0, "100 % work, kg": 2.0}, drawn={"60 % work, kg": 3.3}
)
PRINTED = [
    Finding(name, "Table 1", f"{words}: {printed} kg", "printed", "agrees", {"printed": printed, "computed": ours})
    for name, words, printed, ours in (("a", "a chip", 1.0, 1.1), ("b", "a wafer", 20.0, 21.0))
]


def _chart(**said: object) -> ChartSpec:
    return ChartSpec.model_validate({"x": "x", "y": "kg", **said})


def test_a_pattern_reads_x_and_series_out_of_the_names_of_figures() -> None:
    rows = finding_rows(_chart(finding=["Y"], figures=["{x} % work, kg"]), [YIELD])
    assert rows == [{"x": x, "series": "", "y": y} for x, y in ((40.0, 5.0), (100.0, 2.0), (60.0, 3.3))]
    rows = finding_rows(_chart(finding=["a", "b"], figures=["{series:printed|computed}"], kind="bars"), PRINTED)
    assert [(row["x"], row["series"], row["y"]) for row in rows] == [
        ("a chip", "printed", 1.0), ("a chip", "computed", 1.1), ("a wafer", "printed", 20.0), ("a wafer", "computed", 21.0),
    ]  # fmt: skip
    rows = finding_rows(_chart(finding=["a", "b"], figures=["{x:printed}"]), PRINTED)
    assert [(row["x"], row["series"]) for row in rows] == [("printed", "a"), ("printed", "b")]


def test_what_is_no_finding_and_no_figure_is_refused_by_its_name() -> None:
    with pytest.raises(InputError, match="no finding 'Z'") as told:
        finding_rows(_chart(finding=["Z"], figures=["{x}"]), [YIELD])
    assert told.value.known == ("Y",)
    with pytest.raises(InputError, match=r"no figure of Y is called '\{x\} % work, g'"):
        finding_rows(_chart(finding=["Y"], figures=["{x} % work, g"]), [YIELD])


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"finding": ["Y"]}, "go together"),
        ({"finding": ["Y"], "figures": ["{x} and {x}"]}, "each once"),
        ({"finding": ["Y"], "figures": ["{y}"]}, "each once"),
        ({"finding": ["Y"], "figures": ["{x}"], "series": ["mapper"]}, "is of points"),
        ({"finding": ["Y"], "figures": ["{x}"], "kind": "bars", "log": True}, "bars start at 0"),
    ],
)
def test_a_chart_that_contradicts_itself_is_refused(said: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        _chart(**said)


def test_bars_have_a_group_for_each_x_and_write_their_values() -> None:
    rows = finding_rows(_chart(finding=["a", "b"], figures=["{series:printed|computed}"], kind="bars"), PRINTED)
    drawn = study_chart(rows, kind="bars", x="", y="embodied carbon (kg)", title="two chips").to_dict()
    points = drawn["data"]["values"]
    assert [(one["x"], one["series"], one["value"], one["text"]) for one in points][-1] == ("a wafer", "computed", 21.0, "21")
    assert drawn["layer"][0]["encoding"]["x"]["title"] == "embodied carbon (kg)"
    assert drawn["layer"][0]["encoding"]["x"]["scale"]["domain"][0] == 0
    large = study_chart([{"x": "1 DGX", "series": "", "y": 1675278133.5}], kind="bars", x="", y="tokens", title="").to_dict()
    assert large["data"]["values"][0]["text"] == "1,675,000,000"


def test_the_curve_of_a_figure_is_the_models_and_its_best_is_the_claims() -> None:
    tables = carbon_tables()
    rows = finding_rows(_chart(finding=["A-budget"], figures=["CDP of {x} MAC"]), [jevons(tables)])
    assert {row["x"] for row in rows} == {float(design.macs) for design in designs(tables)}
    assert min(rows, key=lambda row: row["y"])["x"] == 1024.0  # as Figure 12 says: least CDP


def test_a_chart_says_beside_the_papers_words_what_its_findings_say() -> None:
    chart = _chart(finding=["Y"], figures=["{x} % work, kg"], words="it falls (Figure 4)", shown=["Y", "a", "Z"])
    assert (
        beside(chart, {"Y": "agrees", "a": "disagrees", "Z": "agrees"})
        == "it falls (Figure 4) \N{EN DASH} here: agrees (Y, Z); disagrees (a)"
    )
    with pytest.raises(InputError, match="no finding 'Z'"):
        beside(chart, {"Y": "agrees", "a": "agrees"})
    assert beside(_chart(finding=["Y"], figures=["{x} % work, kg"]), {}) == ""


def test_an_axis_has_its_unit_once() -> None:
    assert [axis_words(name) for name in ("total_carbon_g", "latency_s", "tcdp", "mfu")] == ["total carbon", "latency", "tcdp", "mfu"]
