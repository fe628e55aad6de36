"""What serving rows measured, and their figures beside a prediction: times, output tokens a second and accelerator, joules a token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rackmodel.arrays import Array
from rackmodel.validation.rows import PublishedRow
from rackmodel.validation.score import ScoredRow
from rackmodel.validation.words import Refused

KINDS = {"tpot": "s", "ttft": "s", "tokens_per_s": "token/s", "joules": "J/token"}
"""Quantity of a row → its unit. All but the first are data sets of their own."""


def measured_of(row: PublishedRow, output: float, clients: float, count: float) -> dict[str, float]:
    """Quantity → figure of a row. Raises Refused where it has no time."""
    found = {}
    for name, column, scale in (("tpot", "tpot_ms", 1e-3), ("ttft", "ttft_ms", 1e-3), ("joules", "ix_joules_per_output_token", 1.0)):
        value = row.number(column)
        if value:
            found[name] = value * scale
    rate = row.number("out_tok_s_per_gpu")
    if rate:
        return found | {"tokens_per_s": rate}
    if "tpot" not in found and "ttft" not in found:
        raise Refused("no measured time")
    if "tpot" in found and "ttft" in found:
        found["tokens_per_s"] = little(found["tpot"], found["ttft"], output, clients) / count
    return found


def little(tpot: Any, ttft: Any, output: Any, clients: Any) -> Any:
    """Output tokens a second of clients that each wait for TTFT and then for a token after the other (Little's law)."""
    return clients * output / (ttft + (output - 1.0) * tpot)


def scored_of(row: PublishedRow, measured: Mapping[str, float], figures: Mapping[str, Array], place: int, **said: Any) -> list[ScoredRow]:
    """The quantities of a row, beside the `place`-th of the figures. said: further fields of the scored rows; bins of the first alone."""
    bins = said.pop("bins", {})
    return [
        ScoredRow(
            id=row.id,
            dataset=row.dataset if name == "tpot" else f"{row.dataset}_{name}",
            system=row.text("system"),
            precision=row.text("precision") or "bf16",
            unit=KINDS[name],
            measured=value,
            predicted=float(figures[name][place]),
            bins=bins if name == "tpot" else {},
            curve=row.text("curve_key"),
            **said,
        )
        for name, value in measured.items()
    ]
