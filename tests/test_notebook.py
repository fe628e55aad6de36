"""What a notebook shows, and tables that break no word."""

from __future__ import annotations

import re

import pytest

import rackmodel as rm
from rackmodel.report.tables import breakdown_table, rate_words, render


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
