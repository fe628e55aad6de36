"""A CSV file of requests → a trace, and a trace's figures → percentiles.

Columns: arrival_s, prompt, output (or input_tokens, output_tokens); others are left alone. Arrivals must not fall.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rackmodel.arrays import Array
from rackmodel.csv_file import csv_table, no_column, text_of
from rackmodel.errors import InputError, Where
from rackmodel.report.files import csv_text, write_whole
from rackmodel.serving.admission import LATEST_S, Trace
from rackmodel.serving.trace import PERCENTILES, RequestFigures

COLUMNS = {"arrival_s": ("arrival_s",), "prompt": ("prompt", "input_tokens"), "output": ("output", "output_tokens")}
LIMITS = {"arrival_s": (0.0, LATEST_S), "prompt": (1.0, 1e15), "output": (1.0, 1e15)}
"""Column → its least number, and what it is below; sums of tokens stay whole numbers."""
MOST_REQUESTS = 10**6


def read_trace(path: Path) -> Trace:
    """The requests of a file. Raises InputError with its line."""
    rows = _rows(path)
    if not rows:
        raise InputError("no requests: want a line for each below the names of the columns", where=Where(str(path), 1, 1))
    arrivals, prompts, outputs = np.array([found for _, found in rows]).T
    fallen = np.flatnonzero(np.diff(arrivals) < 0)
    if len(fallen):
        where = Where(str(path), rows[fallen[0] + 1][0], 1)
        raise InputError("this request arrives before the one above it", where=where, path="arrival_s")
    return Trace(arrival_s=arrivals, prompt=prompts, output=outputs)


def place_of_request(path: Path, number: int) -> Where:
    """Where a file has a request, counted from 0."""
    return Where(str(path), _rows(path)[number][0], 1)


def _rows(path: Path) -> list[tuple[int, list[float]]]:
    """(line, numbers in the order of COLUMNS) of each request. Raises InputError with its line."""
    there, rows = csv_table(text_of(path), str(path))
    names = {name: _column(there, words, path) for name, words in COLUMNS.items()}
    found: list[tuple[int, list[float]]] = []
    for line, row in rows:
        where = Where(str(path), line, 1)
        found.append((line, [_number(row.get(column), column, where, *LIMITS[name]) for name, column in names.items()]))
        if len(found) > MOST_REQUESTS:
            raise InputError(f"more than {MOST_REQUESTS:,} requests", where=where)
    return found


def _column(there: Sequence[str], words: tuple[str, ...], path: Path) -> str:
    found = [word for word in there if word in words]
    if not found:
        raise no_column(words, there, str(path))
    if len(found) > 1:
        raise InputError(f"columns '{found[0]}' and '{found[1]}' say the same: keep one", where=Where(str(path), 1, 1))
    return found[0]


def _number(text: str | None, column: str, where: Where, least: float, below: float) -> float:
    try:
        found = float(text or "")
    except ValueError:
        found = -1.0
    if not least <= found < below:
        said = " ".join((text or "")[:40].split())
        raise InputError(f"'{said}': want a number from {least:g} up, below {below:.3g}", where=where, path=column)
    if least and found % 1.0:
        raise InputError(f"'{text}': tokens are whole", where=where, path=column)
    return found


def summary(trace: Trace, figures: RequestFigures) -> dict[str, Any]:
    """Means and percentiles of a run: seconds of the queue, to the first token, a token after it (None where no answer has one), a request;
    tokens a second, and joules."""
    parts = {
        "queue_s": figures.queue_s,
        "ttft_s": figures.ttft_s,
        "tpot_s": figures.tpot_s[trace.output > 1],
        "request_s": figures.total_s,
    }
    found: dict[str, Any] = {name: _spread(values) if len(values) else None for name, values in parts.items()}
    return found | {
        "requests": len(trace.prompt),
        "seconds": figures.seconds,
        "output_tokens_per_s": float(trace.output.sum() / figures.seconds),
        "total_tokens_per_s": float((trace.output + trace.prompt).sum() / figures.seconds),
        "joules": figures.joules,
        "joules_per_token": figures.joules / float(trace.output.sum()),
        "joules_per_request": figures.joules / len(trace.prompt),
    }


def _spread(values: Array) -> dict[str, float]:
    """Their mean and percentiles."""
    return {"mean": float(values.mean())} | {f"p{percent:g}": float(np.percentile(values, percent)) for percent in PERCENTILES}


def write_figures(path: Path, trace: Trace, figures: RequestFigures) -> None:
    """Every request's figures as CSV; no tpot_s of an answer of one token. Raises OutputError."""
    asked = trace.arrival_s, trace.prompt.astype(int), trace.output.astype(int)
    columns = (*asked, figures.queue_s, figures.ttft_s, figures.tpot_s, figures.total_s)
    heads = ["arrival_s", "prompt", "output", "queue_s", "ttft_s", "tpot_s", "request_s"]
    cells = [column.tolist() for column in columns]
    cells[5] = [tpot if output > 1 else "" for tpot, output in zip(cells[5], cells[2], strict=True)]
    write_whole(path, csv_text(heads, zip(*cells, strict=True)))
