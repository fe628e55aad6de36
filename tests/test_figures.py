"""Figures for a paper: of the size that was asked for, adding up, and with labels that lie on nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rackmodel.report.drawing import chart_svg
from rackmodel.report.figures import WIDTHS
from rackmodel.report.front import front_chart
from tests.commands import invoke

ASK = ("rack_paper", "attention", "data", "tensor", "--set", "accelerators=8")


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("figures")
    assert invoke(["compare", *ASK, "-o", str(where / "of")]).exit_code == 0
    said = invoke(["report", str(where / "of"), "-o", str(where / "page.html"), "--figures", str(where / "drawn")])
    assert said.exit_code == 0, said.output
    return where / "drawn"


@pytest.mark.parametrize("size", WIDTHS)
@pytest.mark.parametrize("stem", ["energy", "time", "memory", "traffic", "roofline"])
def test_a_figure_is_as_wide_as_a_column_or_a_page(figures: Path, stem: str, size: str) -> None:
    svg = (figures / f"{stem}-{size}.svg").read_text()
    width = float(re.search(r'<svg[^>]*?\bwidth="([\d.]+)"', svg)[1])  # type: ignore[index]
    assert width <= WIDTHS[size] + 1
    assert width >= 0.9 * WIDTHS[size]
    assert (figures / f"{stem}-{size}.png").stat().st_size > 2000
    assert "NaN" not in svg


def test_traffic_has_a_bar_for_each_level_and_result(figures: Path) -> None:
    svg = (figures / "traffic-page.svg").read_text()
    bars = re.findall(r'aria-roledescription="bar"[^>]*? d="M([-\d.]+),[-\d.]+h([-\d.]+)', svg)
    assert len(bars) >= 8
    assert all(float(wide) > 0 for _, wide in bars)


def test_a_front_is_points_and_the_line_of_those_that_no_other_beats() -> None:
    # 3 is beaten by 2 in both figures shown: it is on the front for a third one
    rows = [{"number": k, "mapping": f"tp {k}", "x": x, "y": y} for k, x, y in ((1, 1.0, 9.0), (2, 2.0, 4.0), (3, 3.0, 5.0), (4, 4.0, 1.0))]
    layers = front_chart(rows, ("latency", "s"), ("energy", "J"), "front", "").to_dict()["layer"]
    assert [point["number"] for point in layers[0]["data"]["values"]] == [1, 2, 4]
    assert [point["on"] for point in layers[1]["data"]["values"]] == [True, True, False, True]
    assert layers[1]["encoding"]["x"]["title"] == "latency (s)"


def test_a_search_draws_its_front_as_latency_against_energy(tmp_path: Path) -> None:
    words = ["search", "rack_paper", "ffn", "auto", "--set", "accelerators=8", "--pareto", "latency,energy", "-o", str(tmp_path)]
    assert invoke(words).exit_code == 0
    svg = (tmp_path / "pareto.svg").read_text()
    assert "latency (" in svg
    assert "energy (" in svg


def test_numbers_of_a_crowded_front_lie_on_no_mark_and_on_no_other_number() -> None:
    # 60 points, in clumps, with a third figure: what is drawn is read back from the SVG
    clumps = [(1.0, 9.0), (1.1, 8.0), (5.0, 3.0)]
    rows = [
        {"number": k + 1, "mapping": f"m{k}", "x": x * (1 + 0.02 * (k // 3)), "y": y * (1 + 0.011 * (k // 3) ** 0.5), "z": 60.0 - k}
        for k, (x, y) in ((k, clumps[k % 3]) for k in range(60))
    ]
    chart = front_chart(rows, ("latency", "s"), ("energy", "J"), "front", "", ("memory", "B")).to_dict()
    assert chart["layer"][1]["encoding"]["color"]["title"] == "memory (B)"
    ends = {point["number"] for point in chart["layer"][1]["data"]["values"] if point["on"]}
    named = [point["number"] for layer in chart["layer"][2:] for point in layer["data"]["values"]]
    assert len(named) == len(set(named))
    assert {min(ends), max(ends)} & set(named)  # the line's ends have room here
    svg = chart_svg(chart)
    marks = re.search(r'<g class="mark-symbol role-mark layer_1[^"]*".*?</g>', svg, re.DOTALL)
    assert marks
    spots = [(float(x), float(y)) for x, y in re.findall(r"translate\(([\d.]+),([\d.]+)\)", marks[0])]
    words = re.findall(r'text-anchor="(start|end)" transform="translate\(([\d.]+),([\d.]+)\)"[^>]*font-size="12px"[^>]*>(\d+)<', svg)
    assert len(spots) == 60
    assert len(words) == len(named) >= 3
    boxes = []
    for anchor, x, y, text in words:
        left = float(x) - (6.7 * len(text) if anchor == "end" else 0.0)
        boxes.append((left, float(y) - 9.0, left + 6.7 * len(text), float(y)))
    for number, box in enumerate(boxes):
        assert not any(box[0] < x + 3.5 and x - 3.5 < box[2] and box[1] < y + 3.5 and y - 3.5 < box[3] for x, y in spots)
        assert not any(box[0] < o[2] and o[0] < box[2] and box[1] < o[3] and o[1] < box[3] for o in boxes[:number])
