"""The page of results: it says question, answer and proof, needs nothing else, and does as it is told in a browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rackmodel.cost.ledger import Charge, Ledger
from rackmodel.errors import InputError
from rackmodel.inputs import read_architecture
from rackmodel.report.facts import machine_facts
from rackmodel.report.result_page import MOST_ROWS, command_of, result_page
from rackmodel.report.saved import Saved, read_several, saved, saved_json
from tests.browser import Page, browser
from tests.commands import invoke
from tests.report_samples import result

ASKED = {"architecture": "rack_paper", "workload": "ffn", "mapper": "tensor", "sets": ["accelerators=8"], "minimize": None, "profile": None}
HOSTILE = "</script><img src=x onerror=alert(1)>\"'&<b>${1}"


def several() -> list[Saved]:
    machine = read_architecture("rack_paper", ["accelerators=8"])
    return [saved(result(name, {"tp": 8}, there=machine, peak_flop_per_s=2e15), {**ASKED, "mapper": name}) for name in ("data", "tensor")]


def data_of(page: str) -> Any:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])["results"]  # type: ignore[index]


def test_question_answer_and_certificate_come_first() -> None:
    page = result_page(several())
    body = page[page.index("<body>") :]
    order = ("<h1>ffn on rack_paper", "Which mapping takes least latency", "tp 8", '"status proven"', "Where it goes")
    places = [body.index(words) for words in order]
    assert places == sorted(places)
    assert "rackmodel search rack_paper ffn data --set accelerators=8" in page
    assert 'name="viewport"' in page
    assert "prefers-color-scheme: dark" in page
    assert len(page.encode()) < 200_000


def test_its_charts_have_every_row_of_the_ledger() -> None:
    found = data_of(result_page(several()))
    ledger = result().ledger
    for one in found:
        assert sum(row[7] for row in one["ledger"]["rows"]) == pytest.approx(ledger.total(), rel=1e-12)
        assert sum(row[8] for row in one["ledger"]["rows"]) == pytest.approx(ledger.total("exposed_seconds"), rel=1e-12)
    # FC1 forward has no traffic at the accelerator's memory here: no place on the roofline
    assert [one["roofline"] for one in found] == [[], []]


def test_numbers_of_the_machine_have_their_path_and_source() -> None:
    facts = {fact["path"]: fact for fact in machine_facts(read_architecture("rack_paper"))}
    assert facts["gpu.memory.bandwidth"]["value"] == "3.35 TB/s"
    assert facts["rack.network.energy"]["source"]
    for path, fact in list(facts.items())[1:]:  # each is one that --set takes, with the value that it has
        if path.startswith(("gpu.memory", "rack.network")) and fact["value"]:
            read_architecture("rack_paper", [f"{path}={fact['value']}"])


def test_the_command_asks_the_same_again() -> None:
    asked = {**ASKED, "sets": ["gpu.memory.bandwidth=4 TB/s"], "limits": {"power": "5 MW"}, "minimize": "edp"}
    want = "rackmodel search rack_paper ffn tensor --set 'gpu.memory.bandwidth=4 TB/s' --minimize edp --limit 'power=5 MW'"
    assert command_of(asked) == want
    assert command_of({"architecture": "a", "workload": "w", "mapping": "m.yaml"}) == "rackmodel evaluate a w m.yaml"
    assert command_of({}) == ""


def test_a_page_allows_its_own_script_alone() -> None:
    page = result_page(several())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]  # type: ignore[index]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.findall(r"(?:src|href)=|@import|url\(", page.split('<script type="application/json"')[0])


def test_a_large_ledger_is_folded_to_what_a_page_holds() -> None:
    rows = tuple(Charge("forward", f"E{k}", f"T{k}", "gpu", "memory", "read", 1.0, "byte", 1.0, 1.0, 0.0) for k in range(MOST_ROWS + 1))
    one = Saved("x", {}, {"architecture": "a", "workload": "w", "mapper": "m", "latency_s": 1.0}, Ledger(rows))
    page = result_page([one])
    (found,) = data_of(page)
    assert sum(row[7] for row in found["ledger"]["rows"]) == len(rows)
    assert len(page.encode()) < 2_000_000


def test_report_writes_a_page_from_folders_and_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_text(saved_json(result(name), {**ASKED, "mapper": name}))
    words = ["report", str(tmp_path / "a"), str(tmp_path / "b" / "result.json"), "-o", str(tmp_path / "new" / "page.html")]
    said = invoke(words)
    assert said.exit_code == 0
    assert "Side by side" in (tmp_path / "new" / "page.html").read_text()
    with pytest.raises(InputError, match="holds no result"):
        read_several([str(tmp_path)])


# -- in a browser ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page of a real search: rows of all components."""
    where = tmp_path_factory.mktemp("page")
    words = ["compare", "rack_paper", "attention", "data", "tensor", "--set", "accelerators=8", "-o", str(where)]
    assert invoke(words).exit_code == 0
    return (where / "index.html").as_uri()


def loaded(page: Page, address: str, **window: Any) -> None:
    page.errors.clear()
    page.requests.clear()
    page.open(address, **window)


def quiet(page: Page, address: str) -> None:
    page.value("1")
    assert page.errors == []
    assert page.requests == [address]


@pytest.mark.parametrize("width", [1200, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_charts_are_drawn_and_nothing_is_asked_for(page: Page, address: str, width: int, dark: bool) -> None:
    loaded(page, address, width=width, dark=dark)
    for name in ("joules", "exposed_seconds", "bytes", "memory"):
        assert page.value(f"document.querySelectorAll('#chart-{name} rect').length") > 2
    assert page.value("document.querySelectorAll('#chart-roofline circle').length") > 10
    assert page.value("document.querySelectorAll('#ledger tbody tr').length") > 5
    assert page.value("document.documentElement.scrollWidth <= innerWidth"), "scrolls sideways"
    shade = page.value("getComputedStyle(document.body).backgroundColor")
    assert (shade == "rgb(255, 255, 255)") != dark
    quiet(page, address)


def widths(page: Page, chart: str) -> list[float]:
    return page.value(f"[...document.querySelectorAll('#chart-{chart} rect')].map((bar) => Number(bar.getAttribute('width')))")  # type: ignore[no-any-return]


def choose(page: Page, select: str, value: str) -> None:
    box = f"document.getElementById('{select}')"
    page.value(f"{box}.value = '{value}', {box}.dispatchEvent(new Event('change'))")


def test_a_filter_changes_every_chart_and_the_table(page: Page, address: str) -> None:
    loaded(page, address)
    before = [widths(page, name) for name in ("joules", "exposed_seconds", "bytes")]
    rows = page.value("document.querySelectorAll('#ledger tbody tr').length")
    choose(page, "filter-component", "network")
    after = [widths(page, name) for name in ("joules", "exposed_seconds", "bytes")]
    assert all(one != other for one, other in zip(before, after, strict=True))
    assert 0 < page.value("document.querySelectorAll('#ledger tbody tr').length") < rows
    page.value("document.getElementById('reset').click()")
    assert [widths(page, name) for name in ("joules", "exposed_seconds", "bytes")] == before
    # a segment that is pressed is a filter too; by the keyboard alone
    page.value("document.querySelector('#chart-joules rect').focus()")
    assert "compute" in page.value("document.getElementById('tip').textContent")
    page.key("Enter")
    assert page.value("document.getElementById('filter-component').value") == "compute"
    assert widths(page, "joules") != before[0]
    quiet(page, address)


def test_tables_sort_and_copy_numbers(page: Page, address: str) -> None:
    loaded(page, address)
    first = "document.querySelector('#ledger tbody tr').textContent"
    biggest = page.value(first)
    for _ in range(2):
        page.value("[...document.querySelectorAll('#ledger th button')].find((one) => one.textContent === 'energy').click()")
    assert page.value("document.querySelector('#ledger th[aria-sort=ascending]').textContent") == "energy"
    assert page.value(first) != biggest
    text = page.value("tableText(document.querySelector('#ledger table'))").splitlines()
    energy = text[0].split("\t").index("energy")
    found = [float(line.split("\t")[energy]) for line in text[1:]]
    assert found == sorted(found)
    quiet(page, address)


def test_hostile_names_do_nothing(page: Page, tmp_path: Path) -> None:
    rows = tuple(Charge("forward", f"{HOSTILE}{k}", HOSTILE, HOSTILE, "memory", HOSTILE, 1.0, "byte", 1.0 + k, 1.0, 1.0) for k in range(12))
    fact = {"path": HOSTILE, "value": HOSTILE, "range": "", "source": HOSTILE}
    data = {"architecture": HOSTILE, "workload": HOSTILE, "mapper": HOSTILE, "latency_s": 1.0, "energy_j": 2.0, "memory": {HOSTILE: 2.0}}
    use = {"what": "memory", "share": 2.0, "amount": HOSTILE, "words": HOSTILE}
    level = {"name": HOSTILE, "depth": 0, "count": 2, "axes": HOSTILE, "uses": [use]}
    ops = [{"name": HOSTILE, "after": [], "split": HOSTILE, "stage": 0}]
    sketched = {"mapping": HOSTILE, "facts": [fact], "tree": [level], "graph": ops}
    one = Saved("x", {"architecture": HOSTILE, "workload": "w", "mapper": "m"}, data, Ledger(rows), sketched)
    path = tmp_path / "page.html"
    path.write_text(result_page([one, one]))
    loaded(page, path.as_uri())
    choose(page, "by", "einsum")
    assert page.value("document.querySelectorAll('#chart-joules rect').length") > 2
    assert page.value("document.querySelectorAll('img, b').length") == 0
    assert HOSTILE in page.value("document.body.textContent")
    quiet(page, path.as_uri())
