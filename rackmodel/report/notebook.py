"""What a notebook shows of a result, an answer, a ledger, a sweep, an input: short tables, not the records themselves.

`face` hands these to the classes, which know nothing of reports.
"""

from __future__ import annotations

import html
from typing import Any

from rackmodel.cost.ledger import Ledger
from rackmodel.model.architecture import Architecture
from rackmodel.model.mapping import MapperSpec
from rackmodel.model.result import Result
from rackmodel.model.workload import Workload
from rackmodel.report.beside import asked_columns, front_data
from rackmodel.report.describe import graph_lines, mapper_lines, tree_lines
from rackmodel.report.page import html_table
from rackmodel.report.points import points_table
from rackmodel.report.tables import amount, format_objective, format_percent, format_si, mapping_words, rate_words, render, result_lines

MOST_ROWS = 30
WIDTH = 120  # columns of a table of points


def result_text(result: Result) -> str:
    """A result in one line."""
    figures = f"{format_si(result.latency_s, 's')}, {format_si(result.energy_j, 'J')}"
    words = mapping_words(result.mapping)
    return f"<Result {result.workload} on {result.architecture}, {words}: {figures}, {result.certificate.status}>"


def input_text(one: Architecture | Workload | MapperSpec) -> str:
    """An input as `rackmodel show` prints it."""
    lines = graph_lines(one) if isinstance(one, Workload) else mapper_lines(one) if isinstance(one, MapperSpec) else tree_lines(one)
    return "\n".join(lines)


def input_html(one: Architecture | Workload | MapperSpec) -> str:
    """The same, preformatted."""
    return f"<pre>{html.escape(input_text(one))}</pre>"


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
    if len(answer.top) > 1:
        parts.append(f"<b>best mappings</b>{results_html(answer.top)}")
    if answer.front:
        parts.append(f"<b>Pareto front, {html.escape(answer.front_status)}</b>{_front_html(answer)}")
    return "".join(parts)


def _front_html(answer: Any) -> str:
    """A front as the command line prints it: what every mapping has, and what the front is of."""
    front = front_data(answer.front, answer.front_status, answer.figures, answer.bills)
    columns = asked_columns(front)
    rows = [[point["mapping"], *(amount(point[key], unit) for key, (_, unit) in columns.items())] for point in front["points"]]
    return html_table(["mapping", *(name for name, _ in columns.values())], rows)


def results_html(results: Any) -> str:
    """Results as a table, one row each, with what is minimised where it is another figure."""
    goal = results[0].certificate.minimize
    other = [goal] if goal not in ("latency", "energy", "memory") else []
    heads = ["mapper", "mapping", "latency", "energy", "memory", *other, "rate", "status"]
    rows = [
        [
            one.mapper,
            mapping_words(one.mapping),
            format_si(one.latency_s, "s"),
            format_si(one.energy_j, "J"),
            format_si(one.memory_bytes_per_accelerator, "B"),
            *(format_objective(one.certificate.objective, goal) for _ in other),
            rate_words(one),
            one.certificate.status,
        ]
        for one in results
    ]
    return html_table(heads, rows)


def points_text(points: Any) -> str:
    """Points of a study in one line."""
    solved = sum(row.get("status") == "ok" for row in points.rows)
    return f"<Points: {len(points.rows)}, {solved} with a result>"


def points_html(points: Any) -> str:
    """Points of a study as the terminal has them: the first and the last of many."""
    return f"<pre>{html.escape(render(points_table(points.rows, width=WIDTH), WIDTH))}</pre>"
