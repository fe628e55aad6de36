"""What makes the difference between two results: rows of their ledgers, side by side.

Every row of either ledger is in one group, so the differences of the groups add up to that of the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rackmodel.cost.ledger import KEYS, Ledger
from rackmodel.errors import InputError
from rackmodel.report.saved import Saved
from rackmodel.report.tables import format_si

FIGURES = {"seconds": "exposed_seconds", "joules": "joules", "bytes": "amount"}
"""What may differ → the ledger's figure of it; bytes are of rows whose unit is a byte."""


@dataclass(frozen=True)
class LedgerChange:
    """One group of rows. key: its columns' values · before, after: seconds (of the critical path), joules, bytes."""

    key: tuple[str, ...]
    before: tuple[float, float, float]
    after: tuple[float, float, float]

    @property
    def by(self) -> tuple[float, float, float]:
        """After less before."""
        return tuple(b - a for a, b in zip(self.before, self.after, strict=True))  # type: ignore[return-value]

    def to_dict(self, columns: Sequence[str]) -> dict[str, Any]:
        """Plain data: a, b and their difference of each figure."""
        values = zip(FIGURES, self.before, self.after, self.by, strict=True)
        figures = {name: {"a": a, "b": b, "difference": d} for name, a, b, d in values}
        return {**dict(zip(columns, self.key, strict=True)), **figures}


def columns_of(text: str) -> tuple[str, ...]:
    """'component,level' → the ledger's columns. Raises InputError."""
    found = tuple(word.strip() for word in text.split(","))
    for word in found:
        if word not in KEYS:
            raise InputError(f"no column '{word}'", path="--by", known=KEYS, given=word)
    if len(set(found)) != len(found):
        raise InputError("a column twice", path="--by", known=KEYS)
    return found


def changes(before: Ledger, after: Ledger, by: Sequence[str], sort: str = "seconds") -> list[LedgerChange]:
    """Groups that differ, largest difference of `sort` first, ties by the others and by name."""
    sums = [_sums(ledger, by) for ledger in (before, after)]
    keys = dict.fromkeys([*sums[0], *sums[1]])
    none = (0.0, 0.0, 0.0)
    found = [LedgerChange(key, sums[0].get(key, none), sums[1].get(key, none)) for key in keys]
    first = list(FIGURES).index(sort)
    order = [first, *(place for place in range(3) if place != first)]
    return sorted((one for one in found if any(one.by)), key=lambda one: (*(-abs(one.by[place]) for place in order), one.key))


def total(before: Ledger, after: Ledger) -> LedgerChange:
    """Of all rows."""
    sums = [_sums(ledger, ()) for ledger in (before, after)]
    return LedgerChange((), sums[0].get((), (0.0, 0.0, 0.0)), sums[1].get((), (0.0, 0.0, 0.0)))


def unlike_steps(results: Sequence[Saved], names: Sequence[str]) -> str:
    """A line where steps of results do unlike amounts of work, with what a token takes of each; '' where they are alike or not told."""
    tokens = [one.data.get("tokens") for one in results]
    if not all(tokens) or len(set(tokens)) == 1:
        return ""

    def told(one: Saved, count: float) -> str:
        seconds, joules = (format_si(one.data[key] / count, unit) for key, unit in (("latency_s", "s"), ("energy_j", "J")))
        return f"{count:,.0f} tokens, {seconds} and {joules} each"

    each = [f"{name} {told(one, float(count or 1))}" for name, one, count in zip(names, results, tokens, strict=True)]
    return f"steps are of unlike work: {'; '.join(each)}"


def _sums(ledger: Ledger, by: Sequence[str]) -> dict[tuple[str, ...], tuple[float, float, float]]:
    bytes_of = ledger.where(unit="byte").group(by, "amount")
    seconds, joules = ledger.group(by, "exposed_seconds"), ledger.group(by, "joules")
    return {key: (seconds[key], joules[key], bytes_of.get(key, 0.0)) for key in seconds}
