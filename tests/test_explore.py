"""`rackmodel explore`: its questions are checked, its server answers this computer's page alone, and the page does as it is told."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from rackmodel.errors import InputError
from rackmodel.explore.desk import Desk, DeskJob, Superseded
from rackmodel.explore.knobs import knobs_of
from rackmodel.explore.question import PageQuestion, read_question, shelf_of
from rackmodel.explore.server import MOST_BYTES, TOKEN, PageServer
from rackmodel.inputs import read_inputs
from tests.browser import Page, browser
from tests.commands import invoke

PLAIN: dict[str, Any] = {"architecture": "rack_paper", "workload": "ffn", "mapper": "tensor", "sets": ["accelerators=16"]}
ASKED = {"side": "a", **PLAIN}


@pytest.fixture(scope="module")
def server() -> Iterator[PageServer]:
    found = PageServer(shelf_of([]))
    found.begin()
    threading.Thread(target=found.serve_forever, daemon=True).start()
    yield found
    found.shutdown()
    found.server_close()


def said(server: PageServer, method: str, path: str, body: str = "", **headers: str) -> tuple[int, str, dict[str, str]]:
    """(status, body, headers) of a request as the page makes it, but for `headers` (a name with '_' for '-'; '' leaves one out)."""
    usual = {"Host": f"127.0.0.1:{server.server_address[1]}", TOKEN: server.token, "Content-Type": "application/json"}
    usual |= {"Content-Length": str(len(body.encode()))} if method == "POST" else {}
    usual |= {name.replace("_", "-"): value for name, value in headers.items()}
    connection = HTTPConnection("127.0.0.1", server.server_address[1], timeout=120)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in usual.items():
        if value:
            connection.putheader(name, value)
    connection.endheaders(body.encode())
    answer = connection.getresponse()
    text = answer.read().decode()
    return answer.status, text, dict(answer.getheaders())


def asked(server: PageServer, path: str = "/ask", **changed: Any) -> tuple[int, Any]:
    status, text, _ = said(server, "POST", path, json.dumps(ASKED | changed))
    return status, json.loads(text)


# -- questions ---------------------------------------------------------------------------------------------------------


def test_a_page_names_files_of_the_library_and_those_that_were_given(tmp_path: Path) -> None:
    assert invoke(["new", "machine", "mine", "-o", str(tmp_path)]).exit_code == 0
    mine = str(tmp_path / "mine.yaml")
    shelf = shelf_of([mine])
    assert shelf["architecture"][0] == mine
    one = {"architecture": mine, "workload": "ffn", "mapper": "auto"}
    assert read_question(one, shelf) == PageQuestion(mine, "ffn", "auto")
    for name in ("../mine.yaml", str(tmp_path / "other.yaml"), "/etc/passwd", "rack_papr", "", 3):
        with pytest.raises(InputError, match="architecture"):
            read_question(one | {"architecture": name}, shelf)
    with pytest.raises(InputError) as found:
        read_question(one | {"architecture": "rack_papr", "workload": "fnn", "extra": 1, "minimize": "latncy"}, shelf)
    assert len(found.value.problems) == 4
    assert "did you mean 'rack_paper'?" in str(found.value)
    with pytest.raises(InputError, match="is a study file"):
        shelf_of(["rack_paper_nests"])


@pytest.mark.parametrize("value", ["/etc/passwd", "../x", "~/x", "{carbon: /x}", "x.yaml", "a\\b", "'x.yml'", "[ ./x ]"])
def test_no_setting_is_a_path(value: str) -> None:
    with pytest.raises(InputError, match="is a path"):
        read_question(PLAIN | {"sets": [f"profile={value}"]}, shelf_of([]))


@pytest.mark.parametrize("value", ["4 TB/s", ".5", "[2, 4]", "{low: 1 GB/s, mid: 2 GB/s, high: 3 GB/s}", "300 g/kWh"])
def test_values_with_units_are_no_paths(value: str) -> None:
    assert read_question(PLAIN | {"sets": [f"gpu.memory.bandwidth={value}"]}, shelf_of([])).sets == (f"gpu.memory.bandwidth={value}",)


@pytest.mark.parametrize("sets", ["a=1", [1], ["a=1"] * 65, ["a=" + "1" * 400], ["a=1\nb=2"]])
def test_settings_are_a_short_list_of_lines(sets: Any) -> None:
    with pytest.raises(InputError):
        read_question(PLAIN | {"sets": sets}, shelf_of([]))


@pytest.mark.parametrize(("machine", "workload", "mapper"), [("rack_paper", "ffn", "tensor"), ("dgx_h100", "llama3_8b", "megatron")])
def test_every_number_that_is_shown_can_be_set_to_what_it_is(machine: str, workload: str, mapper: str) -> None:
    knobs = knobs_of(PageQuestion(machine, workload, mapper))
    assert {knob["group"] for knob in knobs} >= {"machine", "workload", "mapper"}
    sets = [f"{knob['path']}={knob['value']}" for knob in knobs if knob["value"]]
    assert len(sets) > 20
    read_inputs(machine, workload, mapper=mapper, sets=sets)


# -- the server --------------------------------------------------------------------------------------------------------


def test_the_page_comes_to_who_knows_the_token(server: PageServer) -> None:
    status, text, headers = said(server, "GET", f"/?token={server.token}")
    assert (status, headers["Cache-Control"], headers["X-Frame-Options"]) == (200, "no-store", "DENY")
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert "connect-src 'self'" in headers["Content-Security-Policy"]
    assert "Access-Control-Allow-Origin" not in headers
    assert "Python" not in headers["Server"]
    assert len(text) < 150_000
    for path in ("/", "/?token=", "/?token=x", f"/?token={server.token}x"):
        assert said(server, "GET", path)[0] == 403
    assert server.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1"},
        {"Host": "127.0.0.1:1"},
        {"Host": ""},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"X_Rackmodel_Token": "x"},
    ],
)
def test_other_hosts_origins_and_tokens_are_refused(server: PageServer, headers: dict[str, str]) -> None:
    body = json.dumps(ASKED)
    status, text, _ = said(server, "POST", "/ask", body, **headers)
    assert status == 403
    assert "card" not in text
    assert said(server, "GET", f"/?token={server.token}" if TOKEN.replace("-", "_") not in headers else "/", **headers)[0] == 403


@pytest.mark.parametrize("path", ["/../pyproject.toml", "/specs/rack_paper.yaml", "/%2e%2e/%2e%2e/etc/passwd", "/page.js", "//etc/passwd"])
def test_no_path_leads_to_a_file(server: PageServer, path: str) -> None:
    status, text, _ = said(server, "GET", f"{path}?token={server.token}")
    assert (status, json.loads(text)["problem"]["text"]) == (404, "there is one page here, /")
    assert said(server, "POST", path, json.dumps(ASKED))[0] == 404


def test_what_is_no_question_is_refused_in_words(server: PageServer) -> None:
    assert said(server, "POST", "/ask", "{")[0] == 400
    assert said(server, "POST", "/ask", "[" * 60_000)[0] == 400
    assert said(server, "POST", "/ask", "x" * (MOST_BYTES + 1))[0] == 413
    assert said(server, "POST", "/ask", "", Content_Length="99999999999")[0] == 413
    assert said(server, "POST", "/ask", "", Content_Length="-1")[0] == 411
    assert said(server, "POST", "/ask", json.dumps(ASKED), Content_Type="text/plain")[0] == 415
    for method in ("PUT", "DELETE", "OPTIONS"):
        assert said(server, method, "/ask")[0] == 405
    for data in ("[]", "3", '"x"', "{}", json.dumps(ASKED | {"side": "c"}), json.dumps(ASKED | {"architecture": "../x"})):
        status, text, _ = said(server, "POST", "/ask", data)
        assert status == 422
        assert json.loads(text)["problem"]["text"]


def test_an_answer_has_the_figures_of_the_search(server: PageServer) -> None:
    status, found = asked(server)
    assert status == 200
    data = json.loads(invoke(["search", "rack_paper", "ffn", "tensor", "--set", "accelerators=16", "--json"]).stdout)
    assert sum(row[8] for row in found["data"]["ledger"]["rows"]) == pytest.approx(data["result"]["latency_s"], rel=1e-12)
    assert found["card"]["status"] == "proven"
    assert found["command"] == "rackmodel search rack_paper ffn tensor --set accelerators=16"
    assert all(f"{stem} of tensor" in found["sketches"] for stem in ("tree", "graph"))
    begin = time.process_time()
    doubled = asked(server, sets=["accelerators=16", "accelerators*=2"])[1]
    assert doubled["card"] | {"proof": ""} == asked(server, sets=["accelerators=32"])[1]["card"] | {"proof": ""}
    assert time.process_time() - begin < 0.5  # the search is another process's; no work of its own here


def test_a_wrong_setting_is_told_with_its_place_and_the_nearest_word(server: PageServer) -> None:
    status, found = asked(server, sets=["gpu.memory.bandwith=4 TB/s"])
    (problem,) = found["problem"]["problems"]
    assert (status, problem["nearest"]) == (422, "bandwidth")
    assert problem["file"].startswith("--set gpu.memory.bandwith")
    assert found["knobs"]
    status, found = asked(server, sets=["gpu.memory.capacity=1 MB"])
    assert (status, found["problem"]["kind"]) == (200, "infeasible")
    assert "gpu.memory.capacity=" in found["problem"]["text"]


def test_the_files_reproduce_the_answer(server: PageServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sets = ["accelerators=16", "gpu.memory.bandwidth=2 TB/s"]
    found, files = asked(server, sets=sets)[1], asked(server, "/export", sets=sets)[1]
    for name, text in files["files"].items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    for words in (files["commands"][1].split()[1:], ["evaluate", "machine.yaml", "workload.yaml", "mapping.yaml"]):
        told = invoke([*words, "--json"])
        assert told.exit_code == 0, told.output
        latency = json.loads(told.stdout)["result"]["latency_s"]
        assert latency == pytest.approx(sum(row[8] for row in found["data"]["ledger"]["rows"]), rel=1e-9)


def test_a_newer_question_ends_the_older() -> None:
    desk, told = Desk(), []
    slow = DeskJob("answer", PageQuestion("dgx_h100", "llama3_405b", "megatron_free", sets=("accelerators=512",)))

    def older() -> None:
        try:
            desk.ask(slow)
        except Superseded as problem:
            told.append(problem)

    first = threading.Thread(target=older)
    first.start()
    while desk._newest == 0:
        time.sleep(0.01)
    status, found = desk.ask(DeskJob("answer", PageQuestion("rack_paper", "ffn", "tensor")))
    first.join(60)
    desk.close()
    assert (status, found["card"]["status"], len(told)) == (200, "proven", 1)


def test_a_port_that_is_taken_is_told(server: PageServer) -> None:
    said = invoke(["explore", "--port", str(server.server_address[1])])
    assert said.exit_code != 0
    assert "cannot listen" in str(said.exception)


# -- in a browser ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browser() as found:
        yield found


def left(page: Page) -> None:
    """Leave the page: another address behind '#' alone would load nothing."""
    page.call("Page.navigate", url="about:blank")
    page.wait("location.href === 'about:blank'")
    page.errors.clear()


def opened(page: Page, server: PageServer, state: str = "", **window: Any) -> None:
    left(page)
    page.requests.clear()
    page.open(f"{server.address}#{state}", **window)
    page.wait("document.querySelector('#card-a dd') !== null", 60)


def moved(page: Page, path: str, value: str) -> None:
    box = f"document.querySelector('.knob[data-path=\"{path}\"] input[type=text]')"
    page.value(f"{box}.value = '{value}', {box}.dispatchEvent(new Event('input'))")


def figure(page: Page, side: str = "a") -> str:
    return str(page.value(f"document.querySelector('#card-{side} dd')?.textContent"))


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (390, True)])
def test_the_page_answers_as_a_number_moves(page: Page, server: PageServer, width: int, dark: bool) -> None:
    opened(page, server, width=width, dark=dark)
    before = figure(page)
    assert page.value("document.querySelectorAll('#chart-joules rect').length") > 2
    assert page.value("document.querySelectorAll('#sketches svg').length") >= 2
    moved(page, "accelerators", "32")
    page.wait(f"document.querySelector('#card-a dd').textContent !== {before!r}")
    assert "set=accelerators%3D32" in page.value("location.hash")
    slider = "document.querySelector('.knob[data-path=\"gpu.memory.bandwidth\"] input[type=range]')"
    page.value(f"{slider}.value = -1, {slider}.dispatchEvent(new Event('input'))")
    page.wait("location.hash.includes('gpu.memory.bandwidth%3D1.68+TB%2Fs')")
    page.wait("document.getElementById('command').textContent.includes('1.68 TB/s')")
    assert page.value("document.documentElement.scrollWidth <= innerWidth"), "scrolls sideways"
    assert page.errors == []
    assert all(one.startswith(f"http://127.0.0.1:{server.server_address[1]}/") for one in page.requests)


def test_what_is_wrong_stands_beside_its_number(page: Page, server: PageServer) -> None:
    opened(page, server)
    moved(page, "gpu.memory.bandwidth", "4 TB")
    page.wait("document.querySelector('#card-a .problem') !== null")
    row = "document.querySelector('.knob[data-path=\"gpu.memory.bandwidth\"]')"
    assert "dimension" in page.value(f"{row}.querySelector('.wrong').textContent")
    assert page.value(f"{row}.querySelector('input').getAttribute('aria-invalid')") == "true"
    page.value(f"{row}.querySelector('.back').click()")
    page.wait("document.querySelector('#card-a dd') !== null")
    assert page.value("location.hash").count("set") == 0
    assert [one for one in page.errors if "422" not in one] == []  # a browser logs every 4xx


def test_two_machines_stand_side_by_side_with_what_makes_the_difference(page: Page, server: PageServer) -> None:
    machine = "{0}.architecture=rack_paper&{0}.mapper=tensor".format
    opened(page, server, f"workload=ffn&{machine('a')}&{machine('b')}&b.set=accelerators%3D32")
    page.wait("document.querySelector('#card-b dd') !== null", 60)
    page.wait("!document.getElementById('difference').hidden")
    assert [page.value(f"document.querySelectorAll('#sketches h3')[{n}].textContent.slice(0, 3)") for n in (0, 1)] == ["A: ", "B: "]
    assert figure(page, "a") != figure(page, "b")
    assert page.value("document.querySelectorAll('#difference tbody tr').length") > 2
    sums = "[...document.querySelectorAll('#difference tbody tr')].reduce((all, row) => all + Number(row.cells[3].dataset.value), 0)"
    assert page.value(sums) == pytest.approx(page.value("Number(document.querySelector('#difference tfoot tr').cells[3].dataset.value)"))
    page.value("document.querySelector('[data-export=b]').click()")
    page.wait("document.querySelectorAll('#files details').length === 4")
    page.value("document.getElementById('alone').click()")
    page.wait("document.getElementById('difference').hidden")
    assert "b." not in page.value("location.hash")
    assert page.errors == []


def test_hostile_words_in_the_address_do_nothing(page: Page, server: PageServer) -> None:
    left(page)
    hostile = "%3C%2Fscript%3E%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E"
    page.open(f"{server.address}#workload={hostile}&a.architecture={hostile}&set={hostile}%3D1&a.set={hostile}%3D{hostile}")
    page.wait("document.querySelector('#card-a .problem') !== null")
    assert page.value("document.querySelectorAll('img').length") == 0
    assert [one for one in page.errors if "422" not in one] == []
