"""Charts: what they add up to, files that need nothing else, the same bytes for the same input."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from rackmodel.report.charts import energy_breakdown, latency_breakdown, series_chart, stacked_series_chart, study_chart, with_places
from rackmodel.report.drawing import chart_svg, save_chart
from rackmodel.report.page import html_page
from rackmodel.report.result_page import result_page
from rackmodel.report.saved import saved
from tests.report_samples import result

RESULTS = [
    result("data", {"dp": 8}, energy_scale=2.0),
    result("tensor", {"tp": 8}),
    result("pipeline_tensor", {"tp": 4}, stages=(("A",), ("B",))),
]
ROWS = [
    {"n": n, "mapper": mapper, "phase": phase, "j": n * k * (0.002 if phase == "forward" else 0.001)}
    for n in (32, 4, 8)
    for k, mapper in enumerate(("data", "tensor"))
    for phase in ("forward", "backward")
]


def data(chart: Any) -> list[list[dict[str, Any]]]:
    """Every inline data set of a definition."""
    found: list[list[dict[str, Any]]] = []

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            if isinstance(node.get("data"), dict) and "values" in node["data"]:
                found.append(node["data"]["values"])
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(chart.to_dict())
    return found


def requests(page: str) -> list[str]:
    """What a browser would fetch."""
    outside = re.sub(r"<script>.*?</script>", "", page, flags=re.S)
    return re.findall(r"<(?:link|img|iframe)\b|<script[^>]*\bsrc|@import|(?:src|href)=[\"']?(?:https?:)?//", outside)


def test_segments_of_a_bar_add_up_to_the_result() -> None:
    rows = data(energy_breakdown(RESULTS))[0]
    assert math.isclose(math.fsum(row["value"] for row in rows if row["bar"].startswith("data")), 20.0, rel_tol=1e-12)
    assert [row["segment"] for row in rows if row["bar"].startswith("tensor")] == ["compute", "memory", "network", "static"]
    assert [row["value"] for row in rows if row["bar"].startswith("tensor")] == [6.0, 3.0, 0.75, 0.25]
    late = data(latency_breakdown(RESULTS))[0]
    assert math.isclose(math.fsum(row["value"] for row in late if row["bar"].startswith("tensor")), 5.0, rel_tol=1e-12)


def test_axes_have_units_and_the_title_says_what_it_is() -> None:
    small = json.dumps(energy_breakdown([result(energy_scale=1e-3)]).to_dict())
    assert "Energy (mJ)" in small
    assert "Energy (J)" in json.dumps(energy_breakdown(RESULTS).to_dict())
    assert "Latency (ms)" in json.dumps(latency_breakdown(RESULTS).to_dict())
    assert energy_breakdown(RESULTS).to_dict()["title"] == {
        "text": "Energy: ffn on rack_paper",
        "subtitle": "8 accelerators, by component, profile serial",
    }


def test_more_than_eight_segments_become_seven_and_other_without_losing_energy() -> None:
    by = ("phase", "einsum", "tensor", "level", "component", "action")
    rows = [{"x": 1, "series": f"s{k}", "y": float(k + 1)} for k in range(12)]
    points = data(study_chart(rows, kind="stacked", x="accelerators", y="joules"))[0]
    assert len({point["series"] for point in points}) == 8
    assert math.fsum(point["value"] for point in points) == 78.0
    assert next(point["value"] for point in points if point["series"] == "other") == 15.0  # 1 + 2 + 3 + 4 + 5
    bars = data(energy_breakdown(RESULTS, by))[0]
    assert math.isclose(math.fsum(row["value"] for row in bars if row["bar"].startswith("tensor")), 10.0, rel_tol=1e-12)


def test_two_results_of_one_mapper_and_mapping_keep_their_own_bars() -> None:
    assert len({row["bar"] for row in data(energy_breakdown([result(), result()]))[0]}) == 2


def test_lines_are_ordered_by_number_and_scaled_to_the_unit() -> None:
    chart = series_chart(ROWS, "n", "j", ("mapper", "phase"), title="energy", y_title="energy", unit="J")
    points = data(chart)[0]
    assert "energy (mJ)" in json.dumps(chart.to_dict())
    assert '"values": [4, 8, 32]' in json.dumps(chart.to_dict())
    assert {p["value"] for p in points if p["series"] == "tensor, forward"} == {64.0, 8.0, 16.0}


def test_points_that_cannot_be_drawn_are_counted_never_nan() -> None:
    empty = [{"n": 64, "mapper": mapper, "phase": "forward", "j": value} for mapper, value in (("data", math.nan), ("tensor", None))]
    rows = [*ROWS, *empty]
    line = series_chart(rows, "n", "j", ("mapper", "phase"), title="t", log=True).to_dict()
    assert line["title"]["subtitle"] == "8 points without a place on the axes left out"  # two above, six zeros of 'data'
    stacked = stacked_series_chart(rows, "n", "j", "phase", title="t")
    for chart in (series_chart(rows, "n", "j", ("mapper", "phase"), title="t"), stacked):
        assert chart.to_dict()["title"]["subtitle"].startswith("2 points")
        json.dumps(chart.to_dict(), allow_nan=False)


def test_two_values_at_one_point_of_a_line_are_refused_but_add_up_in_a_bar() -> None:
    with pytest.raises(ValueError, match="two values of 'j'"):
        series_chart(ROWS, "n", "j", "mapper", title="t")
    bars = data(stacked_series_chart(ROWS, "n", "j", "mapper", title="t"))[0]
    assert next(bar["value"] for bar in bars if bar["x"] == 8 and bar["series"] == "tensor") == pytest.approx(0.024)


def test_saved_files_are_a_png_an_svg_and_a_page_without_requests(tmp_path: Path) -> None:
    paths = save_chart(energy_breakdown(RESULTS), tmp_path / "new", "energy")
    assert [path.name for path in paths] == ["energy.png", "energy.svg", "energy.html"]
    png, svg, page = (path.read_bytes() for path in paths)
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(png[16:20]) > 1000  # pixels wide
    text = svg.decode()
    assert text.startswith("<svg")
    for word in ("Energy (J)", "compute", "pipeline_tensor", "pp 2 × tp 4", "20 J"):
        assert word in text
    assert "NaN" not in text
    assert requests(page.decode()) == []
    assert "default-src 'none'" in page.decode()
    assert "vegaEmbed(" in page.decode()


def test_the_same_chart_has_the_same_bytes_every_time() -> None:
    def both() -> list[str]:
        return [
            chart_svg(energy_breakdown(RESULTS).to_dict()),
            chart_svg(stacked_series_chart(ROWS, "n", "j", "phase", title="t", unit="J").to_dict()),
        ]

    assert both() == both()


def test_the_result_page_holds_table_charts_and_summary_and_escapes_names() -> None:
    named = [result("<b>data</b>", {"dp": 8}), RESULTS[1]]
    page = result_page([saved(one) for one in named])
    assert requests(page) == []
    assert "<b>data</b>" not in re.sub(r"<script\b.*?</script>", "", page, flags=re.S)
    assert "<td>tp 8</td>" in page
    assert page.count('<figure id="chart') == 5


def test_data_cannot_end_the_script_it_stands_in() -> None:
    page = html_page("t", [{"mark": "bar", "data": {"values": [{"a": "</script><script>alert(1)"}]}}])
    assert "</script><script>alert" not in page
    with pytest.raises(ValueError, match="Out of range float"):
        html_page("t", [{"mark": "bar", "data": {"values": [{"a": math.nan}]}}])


def test_numbers_stand_at_their_distances_and_words_in_their_order() -> None:
    rows = [{"x": n, "series": "a", "y": float(n)} for n in (4, 6, 8, 10, 16, 32)]
    axis = study_chart(rows, kind="line", x="accelerators", y="joules").to_dict()["layer"][0]["encoding"]["x"]
    assert (axis["type"], axis["scale"]["type"], axis["axis"]["values"]) == ("quantitative", "log", [4, 6, 8, 10, 16, 32])
    bars = study_chart(rows, kind="stacked", x="accelerators", y="joules").to_dict()
    assert bars["encoding"]["x"]["type"] == "quantitative"
    assert 3 <= bars["mark"]["size"] < 48  # of the least gap, 8 to 10
    words = study_chart(
        [{"x": name, "series": "a", "y": 1.0} for name in ("tensor", "data")], kind="line", x="mapper", y="joules"
    ).to_dict()
    assert words["layer"][0]["encoding"]["x"]["type"] == "ordinal"
    assert words["layer"][0]["encoding"]["x"]["sort"] == ["tensor", "data"]


def test_no_axis_has_powers_of_ten(tmp_path: Path) -> None:
    rows = [{"x": n, "series": "a", "y": 178.0 + n} for n in (1, 2, 3)]
    (svg,) = [path for path in save_chart(study_chart(rows, kind="line", x="n", y="joules"), tmp_path, "one") if path.suffix == ".svg"]
    assert not re.search(r">\d(?:\.\d)?e\+?\d", svg.read_text())


def test_a_series_keeps_its_colour_in_all_charts_of_a_study_and_sixteen_are_told_apart() -> None:
    first = [{"x": n, "series": name, "y": 1.0} for n in (1, 2) for name in ("data", "tensor", "pipeline")]
    second = [{"x": n, "series": name, "y": 1.0} for n in (1, 2) for name in ("pipeline", "tensor")]
    placed = with_places({"one": first, "two": second})

    def colours(rows: list[dict[str, Any]]) -> dict[str, str]:
        scale = study_chart(rows, kind="line", x="n", y="joules").to_dict()["layer"][0]["encoding"]["color"]["scale"]
        return dict(zip(scale["domain"], scale["range"], strict=True))

    one, two = colours(placed["one"]), colours(placed["two"])
    assert all(one[name] == colour for name, colour in two.items())
    many = study_chart([{"x": n, "series": f"s{k}", "y": 1.0} for n in (1, 2) for k in range(16)], kind="line", x="n", y="joules").to_dict()
    *lines, marks = many["layer"]
    looks = zip(
        marks["encoding"]["color"]["scale"]["range"],
        (str(line["mark"]["strokeDash"]) for line in lines),
        marks["encoding"]["shape"]["scale"]["range"],
        strict=True,
    )
    assert len(set(looks)) == 16


def test_a_tick_is_not_rounded_to_the_step_between_ticks(tmp_path: Path) -> None:
    rows = [{"x": x, "series": "a", "y": 1.0} for x in (5.0, 12.5, 17.5, 20.0)]
    save_chart(study_chart(rows, kind="line", x="n", y="joules"), tmp_path, "one")
    text = (tmp_path / "one.svg").read_text()
    assert ">12.5<" in text
    assert ">17.5<" in text


NOWHERE = [{"x": 4, "series": "a", "y": None}, {"x": 8, "series": "b", "y": None}]
ZEROS = [{"x": 4, "series": "a", "y": 0.0}, {"x": 8, "series": "b", "y": 0.0}]


@pytest.mark.parametrize("kind", ["line", "stacked", "bars", "scatter"])
@pytest.mark.parametrize("rows", [NOWHERE, ZEROS], ids=["no point fits", "all are 0"])
@pytest.mark.parametrize("log", [False, True])
def test_a_chart_without_a_value_is_drawn(kind: str, rows: list[dict[str, Any]], log: bool, tmp_path: Path) -> None:
    """A study of which nothing fits, and energies of a machine whose file states none."""
    paths = save_chart(study_chart(rows, kind=kind, x="accelerators", y="joules", log=log), tmp_path, "chart")
    assert all(path.stat().st_size > 500 for path in paths)


def test_energy_of_a_machine_without_energies_is_drawn(tmp_path: Path) -> None:
    save_chart(energy_breakdown([result(energy_scale=0.0)]), tmp_path, "energy")
    assert "0 J" in (tmp_path / "energy.svg").read_text()
