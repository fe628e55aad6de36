"""What a notebook shows, and tables that break no word."""

from __future__ import annotations

import re
import sys
import types
from typing import Any

import numpy as np
import pytest

import rackmodel as rm
from rackmodel.cost.ledger import COLUMNS
from rackmodel.report.tables import breakdown_table, rate_words, render
from tests.commands import invoke


@pytest.fixture(scope="module")
def answer() -> rm.Answer:
    return rm.search("rack_paper", "ffn", "auto", set={"accelerators": 8}, top=3, front=("latency", "energy"))


def test_an_answer_shows_itself_in_a_line_and_a_page_of_text(answer: rm.Answer) -> None:
    assert len(repr(answer)) < 300
    assert len(repr(answer.result)) < 200
    assert repr(answer.result.ledger).startswith("<Ledger of ")
    shown = answer._repr_html_()  # type: ignore[attr-defined]
    assert len(shown) < 20_000
    assert "best mappings" in shown
    assert "Pareto front" in shown
    assert answer.result.certificate.status in shown
    assert "<script" not in shown


def test_a_front_shows_what_it_is_of_and_runners_up_what_was_minimised() -> None:
    """(A front of carbon and money showed neither in a notebook.) By hand: 1.1 x 301 g/kWh of the joules."""
    found = rm.search(
        "dgx_h100", "ffn", "data_tensor", set={"accelerators": 8}, minimize="carbon", top=2, front=("latency", "carbon", "money")
    )
    best, other = found._repr_html_().split("best mappings")[1].split("Pareto front")  # type: ignore[attr-defined]
    assert all(f">{head}<" in other for head in ("mapping", "latency", "energy", "memory", "carbon", "money"))
    grams = [float(said) for said in re.findall(r"([\d.]+) mgCO2e", best)]
    assert grams == pytest.approx([one.energy_j * 1.1 * 301 / 3.6e6 * 1e3 for one in found.top], rel=1e-3)
    assert [len(values) for values in found.bills.values()] == [len(found.front)]
    assert " $" in other


def test_a_sweep_shows_itself_in_a_line_and_a_table() -> None:
    """(Two points were 3,000 letters.)"""
    swept = rm.sweep("rack_paper", "ffn", "data", set={"accelerators": [4, 8], "gpu.memory.capacity": ["80 GB", "1 MB"]})
    assert repr(swept) == "<Points: 4, 2 with a result>"
    shown = swept._repr_html_()  # type: ignore[attr-defined]
    assert "infeasible: memory" in shown
    assert len(shown) < 2000


@pytest.mark.parametrize(("name", "told"), [("rack_paper", "thread x4"), ("llama3_8b", "  QK: "), ("megatron", "  micro_batch: free")])
def test_an_input_that_was_read_shows_itself_as_the_command_line_does(name: str, told: str) -> None:
    """(The machine was 3,000 letters in one line.)"""
    found = rm.read(name)
    assert told in str(found)
    assert found._repr_html_().startswith("<pre>")  # type: ignore[union-attr]
    assert all(len(line) < 200 for line in str(found).splitlines())


def test_times_and_fronts_may_be_text_as_on_the_command_line() -> None:
    """(A time limit of text was a TypeError, a front of text was read letter by letter.)"""
    asked: dict[str, Any] = {"set": {"accelerators": 4}}
    said = rm.search("rack_paper", "ffn", "auto", front="latency, energy", time_limit="2 min", **asked)
    plain = rm.search("rack_paper", "ffn", "auto", front=("latency", "energy"), time_limit=120.0, **asked)
    assert [one.mapping for one in said.front] == [one.mapping for one in plain.front]
    with pytest.raises(rm.InputError, match="time_limit: '3 GB' has the wrong dimension: want a time"):
        rm.search("rack_paper", "ffn", "auto", time_limit="3 GB", **asked)
    with pytest.raises(rm.InputError, match="did you mean 'energy'"):
        rm.search("rack_paper", "ffn", "auto", front="latency,enrgy", **asked)


def test_names_from_files_are_escaped() -> None:
    data = {"workload": "<img src=x onerror=alert(1)>", "sizes": {"m": 8, "k": 8, "n": 8}, "einsums": {"Y": "Y[m,n] = X[m,k] * W[k,n]"}}
    shown = rm.search("rack_paper", data, "data", set={"accelerators": 2}).result._repr_html_()  # type: ignore[attr-defined]
    assert "&lt;img" in shown
    assert "<img" not in shown


@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_a_ledger_breaks_no_word(answer: rm.Answer, width: int) -> None:
    by = ("component", "level", "action")
    text = render(breakdown_table(answer.result.ledger, by, width=width), width)
    words = {word for key in answer.result.ledger.group(by) for word in key}
    found = set(re.findall(r"[a-z_]+", text))
    assert words <= found
    assert max(map(len, text.splitlines())) <= width


def test_what_a_planner_asks_first(answer: rm.Answer) -> None:
    result = answer.result
    assert result.tokens == 16 * 2048
    words = rate_words(result)
    assert f"{result.tokens / result.latency_s:,.0f} tokens/s" in words
    assert "MFU" in words
    assert "a token" in words


def test_ledgers_and_sweeps_are_frames_of_polars_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """What polars is given, for it is not among what the tests install: columns of one length, or rows that are dicts."""
    given: list[tuple[Any, dict[str, Any]]] = []
    stub = types.ModuleType("polars")
    stub.DataFrame = lambda data, **more: given.append((data, more))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "polars", stub)
    ledger = rm.search("rack_paper", "ffn", "tensor", set={"accelerators": 4}).result.ledger
    ledger.to_polars()
    rm.sweep("rack_paper", "ffn", "tensor", set={"accelerators": [4, 8]}).to_polars()
    (columns, _), (rows, more) = given
    assert list(columns) == list(COLUMNS)
    assert columns["joules"] == [row.joules for row in ledger.rows]
    assert [row["accelerators"] for row in rows] == [4, 8]
    assert more == {"infer_schema_length": None}  # a column may begin with nothing


def test_the_face_takes_what_python_has_and_names_its_errors() -> None:
    """Numbers of numpy ended in an error of YAML, a lone mapper was read letter by letter, a list of objectives was an AttributeError."""
    best = rm.search("rack_paper", "ffn", "data", set={"accelerators": np.arange(4, 9)[-1], "batch": np.int32(8)}).result
    assert best.latency_s == rm.search("rack_paper", "ffn", "data", set={"accelerators": 8, "batch": 8}).result.latency_s
    machine = {"architecture": "mine", "extends": "rack_paper", "accelerators": np.int64(8)}
    (alone,) = rm.compare(machine, "ffn", "data", set={"batch": 8}, minimize=["latency", "energy"])
    assert alone.latency_s == best.latency_s
    assert alone.certificate.minimize == "energy"  # the last, among the fastest
    graph = rm.read("ffn", set={"batch": 8})
    assert rm.price("rack_paper", graph, best.mapping).latency_s == pytest.approx([best.latency_s], rel=1e-12)
    for wrong, words in (
        (["accelerators=8"], "want a mapping of names to values"),
        ({"accelerators": object()}, "set.accelerators: a object"),
    ):
        with pytest.raises(rm.InputError, match=words):
            rm.search("rack_paper", "ffn", "data", set=wrong)  # type: ignore[arg-type]
    with pytest.raises(rm.InfeasibleError) as found:
        rm.search("rack_paper", "ffn", "data", set={"gpu.memory.capacity": "1 MB"})
    assert isinstance(found.value, rm.RackmodelError)


def test_what_was_minimised_is_told() -> None:
    """(`--minimize money` told no money, but of several mappings a number without its unit.)"""
    done = invoke(["search", "dgx_h100", "ffn", "data_tensor", "--set", "accelerators=16", "--minimize", "edp"])
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("least"))
    found = rm.search("dgx_h100", "ffn", "data_tensor", set={"accelerators": 16}, minimize="edp").result
    assert line.startswith(f"least edp {float(f'{found.latency_s * found.energy_j:.4g}'):g} J s, proven")
