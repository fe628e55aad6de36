"""`diff` and `why`: which charges make a difference, and what another answer would cost."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from rackmodel import api
from rackmodel.cli.app import app
from rackmodel.errors import InputError
from rackmodel.inputs import library_path
from rackmodel.report.difference import FIGURES, changes, total
from rackmodel.report.saved import read_saved
from tests.commands import invoke

ASK = ("rack_paper", "ffn", "auto", "--set", "accelerators=8")


def run(*words: str) -> Any:
    return invoke(list(words))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("answer")
    assert run("search", *ASK, "-o", str(where)).exit_code == 0
    return where


def test_a_result_is_read_as_it_was_written(folder: Path) -> None:
    found, result = read_saved(str(folder)), api.search("rack_paper", "ffn", "auto", sets=["accelerators=8"]).result
    assert tuple(found.ledger) == tuple(result.ledger)
    assert found.data["latency_s"] == result.latency_s
    assert found.asked["sets"] == ["accelerators=8"]


@pytest.mark.parametrize("by", [("component",), ("phase", "einsum", "tensor"), ("component", "level", "action"), ()])
def test_differences_add_up(by: tuple[str, ...]) -> None:
    data, tensor = (api.search("rack_paper", "ffn", name, sets=["accelerators=8"]).result for name in ("data", "tensor"))
    found, whole = changes(data.ledger, tensor.ledger, by), total(data.ledger, tensor.ledger)
    for place in range(len(FIGURES)):
        assert math.fsum(one.by[place] for one in found) == pytest.approx(whole.by[place], rel=1e-9, abs=1e-12)
    assert whole.by[0] == pytest.approx(tensor.latency_s - data.latency_s)
    assert whole.by[1] == pytest.approx(tensor.energy_j - data.energy_j)
    assert [abs(one.by[0]) for one in found] == sorted((abs(one.by[0]) for one in found), reverse=True)


def test_diff_of_a_result_with_itself_is_nothing(folder: Path) -> None:
    said = json.loads(run("diff", str(folder), str(folder / "result.json"), "--json").stdout)
    assert said["rows"] == []
    assert said["total"]["seconds"]["difference"] == 0
    assert "the same" in run("diff", str(folder), str(folder)).output


def test_diff_prices_mappings_and_mappers(folder: Path, tmp_path: Path) -> None:
    words = ("diff", "rack_paper", "ffn", str(folder / "mapping.yaml"), "data", "--set", "accelerators=8", "-o", str(tmp_path))
    said = json.loads(run(*words, "--json").stdout)
    best, data = (api.search("rack_paper", "ffn", name, sets=["accelerators=8"]).result for name in ("auto", "data"))
    assert said["total"]["seconds"]["a"] == pytest.approx(best.latency_s)
    assert said["total"]["seconds"]["b"] == pytest.approx(data.latency_s)
    assert (tmp_path / "diff.csv").read_text().startswith("component,level,action,seconds_a,seconds_b,seconds_difference")


def test_why_not_is_the_search_under_the_condition(folder: Path) -> None:
    conditions = ("axes.tp.degree=1", "axes.tp.degree=8")
    said = json.loads(run("why", str(folder), *(word for one in conditions for word in ("--not", one)), "--json").stdout)
    for condition, other in zip(conditions, said["others"], strict=True):
        alone = api.search("rack_paper", "ffn", "auto", sets=["accelerators=8", condition]).result
        assert other["result"]["latency_s"] == alone.latency_s
        assert other["worse"] == pytest.approx(alone.latency_s / said["result"]["latency_s"] - 1)
        assert other["worse"] >= 0
    found = invoke(["why", *ASK, "--not", "axes.pp.degree=8"])
    assert str(found.exception).startswith("--not axes.pp.degree=8: axes.pp: unknown key 'pp'")
    text = run("why", *ASK, "--not", "axes.tp.degree=8").output
    assert "not axes.tp.degree=8" in text
    assert "proven" in text
    own = said["result"]["mapping"]["axes"]["tp"]["degree"]
    assert f"axes.tp.degree={own}: the best of those is the answer itself" in run("why", *ASK, "--not", f"axes.tp.degree={own}").output


def test_a_condition_outside_of_what_was_asked_is_no_reason() -> None:
    """Another machine, or a mesh that the mapper lacks, may be better; 'not that, for it is 20 % less' would be nonsense."""
    told = run("why", *ASK, "--not", "accelerators=16").output
    assert "accelerators=16 is not what was asked: the best of those is" in told
    assert "for the best" not in told


def test_steps_of_unlike_work_are_told_by_the_token(tmp_path: Path) -> None:
    """32,768 tokens in 1.417 s and 33.88 J against 65,536 in 2.828 s and 67.06 J."""
    for name, batch in (("one", 16), ("two", 32)):
        run("search", "rack_paper", "ffn", "data", "--set", "accelerators=8", "--set", f"batch={batch}", "-o", str(tmp_path / name))
    line = "steps are of unlike work: A 32,768 tokens, 43.23 µs and 1.034 mJ each; B 65,536 tokens, 43.16 µs and 1.023 mJ each"
    text = run("diff", str(tmp_path / "one"), str(tmp_path / "two")).output
    assert line in text.replace("\n", " ")
    run("report", str(tmp_path / "one"), str(tmp_path / "two"), "-o", str(tmp_path / "page.html"))
    assert "32,768 tokens, 43.23 µs and 1.034 mJ each" in (tmp_path / "page.html").read_text()
    assert "unlike" not in run("diff", str(tmp_path / "one"), str(tmp_path / "one")).output


def test_why_says_that_a_result_s_inputs_have_changed(tmp_path: Path) -> None:
    machine, out = tmp_path / "m.yaml", tmp_path / "out"
    machine.write_text("architecture: m\nextends: rack_paper\naccelerators: 8\n", encoding="utf-8")
    assert invoke(["search", str(machine), "ffn", "tensor", "-o", str(out)]).exit_code == 0
    asked = ["why", str(out), "--not", "axes.tp.place=outer"]
    assert "have changed since" not in invoke(asked).output
    machine.write_text("architecture: m\nextends: rack_paper\naccelerators: 4\n", encoding="utf-8")
    assert f"{out}: 1.41317 s, 33.8267 J then, 2.82231 s, 33.5026 J now: its inputs or" in invoke(asked).output
    assert "have changed since" not in invoke([*asked, "--set", "m=64"]).output  # (another question)


def test_what_cannot_be_is_an_answer() -> None:
    words = ("why", "rack_paper", "ffn", "data", "--set", "accelerators=8", "--not", "gpu.memory.capacity=1 MB", "--json")
    done = run(*words)
    assert done.exit_code == 0
    other = json.loads(done.stdout)["others"][0]["infeasible"]
    assert other["need"] > other["have"]
    assert other["shortfall"] == pytest.approx(other["need"] - other["have"])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"result": 3}',
        '{"result": {"architecture": "a", "workload": "b", "mapper": "c", "ledger": [{"phase": 1}]}}',
        "[" * 5000,
    ],
)
def test_a_file_that_is_no_result_is_told(text: str, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(text)
    with pytest.raises(InputError):
        read_saved(str(path))
    assert isinstance(run("diff", str(path), str(path)).exception, InputError)


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("result.accelerators", "eight", "result.accelerators: 'eight'"),
        ("result.certificate.evaluated", None, "result.certificate.evaluated: None"),
        ("result.energy_j", True, "result.energy_j: True"),
        ("asked.sets", 3, "asked.sets: 3"),
        ("shown.memory", "big", "shown.memory: 'big'"),
        ("shown.tree.0.depth", "deep", "shown.tree.0.depth: 'deep'"),
        ("shown.timeline.kinds", [], "shown.timeline: stages, kinds and shares do not belong together"),
        ("shown.graph.0.after", ["nobody"], "which is not there"),
        ("result.latency_s", 1.0, "result.latency_s is 1, exposed_seconds of its ledger come to "),
        ("result.ledger.0.joules", 1e3, "joules of its ledger come to 1"),
    ],
)
def test_a_result_changed_by_hand_is_told_where(path: str, value: object, told: str, folder: Path, tmp_path: Path) -> None:
    data = json.loads((folder / "result.json").read_text())
    *way, last = (int(step) if step.isdigit() else step for step in path.split("."))
    inner = data
    for step in way:
        inner = inner[step]
    assert last in inner or isinstance(last, int)
    inner[last] = value
    changed = tmp_path / "result.json"
    changed.write_text(json.dumps(data))
    for words in (("report", str(changed), "-o", str(tmp_path / "page.html")), ("diff", str(folder), str(changed))):
        with pytest.raises(InputError) as found:
            app([*words], standalone_mode=False)
        assert told in str(found.value)
        assert str(found.value).startswith(str(changed))
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("diff", "a"),
        ("diff", "nothing", "there"),
        ("why", "nothing", "--not", "axes.tp.degree=1"),
        ("diff", "{folder}", "{folder}", "--by", "colour"),
        ("diff", "{folder}", "{folder}", "--sort", "grams"),
        ("diff", "{folder}", "{folder}", "--set", "accelerators=4"),
        ("why", "{folder}", "--not", "axes.tp.degre=1"),
        ("why", *ASK, "--not", "nonsense"),
    ],
)
def test_bad_questions_are_refused(words: tuple[str, ...], folder: Path) -> None:
    done = run(*(word.format(folder=folder) for word in words))
    assert isinstance(done.exception, InputError), done.output


def test_a_compared_result_can_be_asked_again(tmp_path: Path) -> None:
    assert run("compare", "rack_paper", "ffn", "data", "tensor", "--set", "accelerators=8", "-o", str(tmp_path)).exit_code == 0
    done = run("why", str(tmp_path / "tensor.result.json"), "--not", "axes.tp.degree=4")
    assert isinstance(done.exception, InputError) or done.exit_code == 0
    with pytest.raises(InputError, match="holds 2 results"):
        read_saved(str(tmp_path))


def test_a_question_is_asked_again_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search with relative paths, then `why` in a folder that has another machine of that name; and after both were moved."""
    here, other = tmp_path / "here", tmp_path / "other"
    for folder, bandwidth in ((here, "900 GB/s"), (other, "90 GB/s")):
        folder.mkdir()
        text = library_path("architecture", "rack_paper").read_text().replace("900 GB/s", bandwidth)
        (folder / "mine.yaml").write_text(text)
    (here / "slow.yaml").write_text("profile: slow\nextends: serial\n")
    monkeypatch.chdir(here)
    said = run("search", "./mine.yaml", "ffn", "auto", "--set", "accelerators=8", "--profile", "slow.yaml", "-o", "out/answer")
    assert said.exit_code == 0
    latency = json.loads((here / "out/answer/result.json").read_text())["result"]["latency_s"]
    for folder, answer in ((other, "../here/out/answer"), (tmp_path, "moved/out/answer")):
        monkeypatch.chdir(folder)
        again = run("why", answer, "--not", "axes.tp.degree=8", "--json")
        assert again.exit_code == 0
        assert json.loads(again.stdout)["result"]["latency_s"] == latency
        here.rename(tmp_path / "moved") if folder == other else None
