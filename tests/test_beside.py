"""What stands beside a result on its page: front, whole run and launch flags, from what its file keeps."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rackmodel.carbon.run import RunRequest, whole_run
from rackmodel.cli.beside import Beside
from rackmodel.cli.options import said
from rackmodel.inputs import read_workload
from rackmodel.report.beside import MOST_POINTS, front_chart_data, front_data, run_table
from rackmodel.report.launch.arguments import Launch
from rackmodel.report.result_page import command_of, result_page
from rackmodel.report.saved import read_several, saved, saved_json
from tests.browser import Page, browser
from tests.commands import invoke
from tests.report_samples import result

ASKED = {
    "architecture": "rack_paper",
    "workload": "ffn",
    "mapper": "tensor",
    "sets": ["accelerators=8"],
    "options": ["--flags", "megatron"],
}
FIGURES = [(1.0, 9.0), (2.0, 7.0), (3.0, 8.0), (4.0, 1.0)]  # of latency and energy; the third is on the front for its memory alone
HOSTILE = "</script><img src=x onerror=alert(1)>\"'&<b>"


def front(words: str = "tensor") -> dict[str, Any]:
    some = [replace(result(words, {words: 8}), latency_s=x, energy_j=y, carbon_g=None) for x, y in FIGURES]
    return front_data(some, "proven", ("latency", "energy", "memory"), {})


def extra(words: str = "tensor") -> dict[str, Any]:
    run = whole_run(result(), read_workload("ffn"), RunRequest(1000))
    launch = Launch("deepspeed", (words,), ("--a 1", f"--b {words}"), "ds.json", '{"x": 1}')
    return Beside(run, launch).saved(front(words))


def test_a_page_has_front_run_and_flags_where_the_file_has_them(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(saved_json(result(), ASKED, extra()))
    (one,) = read_several([str(tmp_path)])
    page = result_page([one])
    order = ("Where it goes", "Pareto front", "The whole run", "What starts it", "How it runs", "The same again")
    places = [page.find(f"<h2>{words}") for words in order]
    assert -1 not in places[1:4]
    assert places[1] < places[2] < places[3] < places[0]
    assert "--flags megatron" in page
    assert "1,000 steps" in page
    assert '<pre id="config0">{&quot;x&quot;: 1}</pre>' in page
    assert invoke(["report", str(tmp_path), "-o", str(tmp_path / "p.html")]).exit_code == 0
    assert (tmp_path / "p.html").read_text().count('id="chart-front0"') == 1
    plain = result_page([saved(result(), ASKED)])
    assert not [words for words in order[1:4] if f"<h2>{words}" in plain]


def test_the_front_is_drawn_over_the_first_two_figures_that_were_asked_for() -> None:
    data = front_chart_data(front(), 3)
    assert (data["of"], data["x"], data["y"]) == (3, ["latency", "s"], ["energy", "J"])
    assert [tuple(point[1:3]) for point in data["points"]] == FIGURES
    other = front_chart_data(front() | {"figures": ["memory", "tcdp", "energy"]}, 0)
    assert (other["x"][0], other["y"][0]) == ("memory", "energy")


def test_a_front_of_very_many_mappings_keeps_the_page_small() -> None:
    data = front()
    many = data | {"points": data["points"] * MOST_POINTS}
    page = result_page([saved(result(), ASKED, {"front": many})])
    assert f"{4 * MOST_POINTS} mappings" in page
    assert f"the first {MOST_POINTS} are shown" in page
    assert len(page.encode()) < 1_000_000


def test_the_parts_of_a_run_add_up_to_its_last_row() -> None:
    heads, rows = run_table(extra()["run"])
    assert heads[:4] == ["", "time", "share", "energy"]
    assert rows[-1][0][0] == "total"
    for column in (1, 2, 3):
        assert sum(row[column][1] for row in rows[:-1]) == pytest.approx(rows[-1][column][1])


def test_the_command_has_the_options_that_were_given() -> None:
    options = said(pareto="latency,energy", flags=None, tokens="300e9", checkpoint="30 min")
    assert options == ["--pareto", "latency,energy", "--tokens", "300e9", "--checkpoint", "30 min"]
    assert command_of(ASKED | {"options": options}).endswith("--pareto latency,energy --tokens 300e9 --checkpoint '30 min'")


# -- in a browser ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browser() as found:
        yield found


@pytest.mark.parametrize(("width", "words"), [(1200, "tensor"), (390, HOSTILE)])
def test_points_tell_themselves_and_find_their_rows(page: Page, tmp_path: Path, width: int, words: str) -> None:
    path = tmp_path / "page.html"
    path.write_text(result_page([saved(result(words), ASKED, extra(words))]))
    page.errors.clear()
    page.requests.clear()
    page.open(path.as_uri(), width=width)
    dots = "[...document.querySelectorAll('#chart-front0 circle')]"
    assert page.value(f"{dots}.map((dot) => dot.getAttribute('class'))") == ["mark k0", "mark k0", "mark k8", "mark k0"]
    page.value(f"{dots}[2].focus()")
    assert re.search(r"latency 3 s\s+energy 8 J", page.value("document.getElementById('tip').textContent"))
    page.key("Enter")
    assert page.value("[...document.querySelectorAll('#front0 tr[aria-current]')].map((row) => row.cells[0].textContent)") == ["3"]
    page.value("[...document.querySelectorAll('#front0 th button')].find((one) => one.textContent === 'energy').click()")
    assert page.value("[...document.querySelectorAll('#front0 tbody tr')].map((row) => Number(row.cells[3].dataset.value))") == [9, 8, 7, 1]
    assert page.value("document.documentElement.scrollWidth <= innerWidth"), "scrolls sideways"
    assert page.value("document.querySelectorAll('img, b').length") == 0
    assert json.loads(page.value("document.getElementById('data').textContent"))["fronts"][0]["of"] == 0
    assert page.errors == []
    assert page.requests == [path.as_uri()]


def test_the_head_of_a_column_of_numbers_stands_above_them() -> None:
    from rackmodel.report.markup import sortable_table

    table = sortable_table("run", ["", "time"], [[("computing", None), ("40.27 d", 3479328.0)]])
    assert '<th></th><th class="number">time</th>' in table
