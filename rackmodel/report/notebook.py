"""What a notebook shows of a result, an answer, a ledger: short tables, not the records themselves.

`face` hands these to the classes, which know nothing of reports.
"""

from __future__ import annotations

import html
from typing import Any

from rackmodel.cost.ledger import Ledger
from rackmodel.model.result import Result
from rackmodel.report.page import html_table
from rackmodel.report.tables import format_percent, format_si, mapping_words, rate_words, result_lines

MOST_ROWS = 30


def result_text(result: Result) -> str:
    """A result in one line."""
    figures = f"{format_si(result.latency_s, 's')}, {format_si(result.energy_j, 'J')}"
    words = mapping_words(result.mapping)
    return f"<Result {result.workload} on {result.architecture}, {words}: {figures}, {result.certificate.status}>"


def result_html(result: Result) -> str:
    """A result as its summary and where its time and energy go."""
    summary = html.escape("\n".join(result_lines(result)))
    return f"<pre>{summary}</pre>{ledger_html(result.ledger)}"


def ledger_text(ledger: Ledger) -> str:
    """A ledger in one line."""
    return f"<Ledger of {len(ledger)} charges: {format_si(ledger.total('exposed_seconds'), 's')}, {format_si(ledger.total(), 'J')}>"


def ledger_html(ledger: Ledger) -> str:
    """A ledger by component, level and action, most energy first."""
    by = ("component", "level", "action")
    joules, seconds, exposed = (ledger.group(by, figure) for figure in ("joules", "seconds", "exposed_seconds"))
    total = ledger.total()
    rows = [
        [*key, format_si(joules[key], "J"), format_percent(joules[key] / total if total else None), format_si(seconds[key], "s"),
         format_si(exposed[key], "s")]
        for key in sorted(joules, key=lambda k: (-joules[k], -exposed[k], k))[:MOST_ROWS]
    ]  # fmt: skip
    return html_table([*by, "energy", "share", "seconds", "exposed"], rows, named=True)


def answer_text(answer: Any) -> str:
    """An answer in one line."""
    more = [f"{len(answer.top)} best" if len(answer.top) > 1 else "", f"front of {len(answer.front)}" if answer.front else ""]
    return " ".join(["<Answer", result_text(answer.result), *(word for word in more if word)]) + ">"


def answer_html(answer: Any) -> str:
    """An answer as its best mapping, and its runners-up and front as tables."""
    parts = [result_html(answer.result)]
    for title, results in (("best mappings", answer.top[1:] and answer.top), (f"Pareto front, {answer.front_status}", answer.front)):
        if results:
            parts += [f"<b>{html.escape(title)}</b>", results_html(results)]
    return "".join(parts)


def results_html(results: Any) -> str:
    """Results as a table, one row each."""
    heads = ["mapper", "mapping", "latency", "energy", "memory", "rate", "status"]
    rows = [
        [
            one.mapper,
            mapping_words(one.mapping),
            format_si(one.latency_s, "s"),
            format_si(one.energy_j, "J"),
            format_si(one.memory_bytes_per_accelerator, "B"),
            rate_words(one),
            one.certificate.status,
        ]
        for one in results
    ]
    return html_table(heads, rows)
