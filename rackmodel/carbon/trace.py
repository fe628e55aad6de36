"""An hourly trace of a grid's intensity: its mean, and what placing work in the greenest or dirtiest hours makes of it.

    mid = mean of all hours;  low, high = mean of the least and of the most intense share a of hours

a is the share of its life that a machine is at work: low is work that waits for clean hours, high work that happens to run in
the others, and the machine waits in what is left (Acun et al., Carbon Explorer, ASPLOS 2023, shift load in this way). Text in, numbers
out: this module reads no file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from rackmodel.carbon.operational import JOULES_PER_KWH, Placed, check_intensity
from rackmodel.csv_file import csv_table
from rackmodel.errors import InputError, Where
from rackmodel.units import Quantity, parse_quantity

COLUMN = "g_per_kwh"
SAME = 1e-9
"""Of the dirtiest hour: means that are no further apart differ by rounding alone."""


def read_trace(text: str, name: str) -> np.ndarray:
    """Grams per joule of each hour, [n]. text: CSV whose column `g_per_kwh` counts. Raises InputError with the line."""
    heads, rows = _rows(text, name)
    if COLUMN not in heads:
        raise InputError(f"a trace needs a column '{COLUMN}'", where=Where(name, 1, 1), known=heads)
    found, before = [], ""
    for line, row in rows:
        said, label = row.get(COLUMN) or "", _label(row)
        try:
            value = parse_quantity(f"{said} g/kWh", "gram/joule")
        except ValueError:
            raise InputError(f"'{said}' is not a number", where=Where(name, line, 1), path=COLUMN)
        if value < 0:
            raise InputError(f"'{said}' is negative", where=Where(name, line, 1), path=COLUMN)
        try:
            check_intensity(Quantity.make(value, value, value, None, f"{said} g/kWh"), COLUMN)
        except InputError as problem:
            raise problem.at(Where(name, line, 1))
        if not _an_hour_on(before, label):
            raise InputError(f"a row is an hour: '{label}' is none after '{before}'", where=Where(name, line, 1))
        found.append(value)
        before = label
    if not found:
        raise InputError("a trace needs at least one hour", where=Where(name))
    return np.array(found)


def hour_names(text: str, name: str = "trace") -> list[str]:
    """What a trace calls its hours: its first column that is no intensity; their numbers where it has none."""
    return [_label(row) or str(number) for number, (_, row) in enumerate(_rows(text, name)[1])]


def _rows(text: str, name: str) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """(names of the columns, line and cells of each row that is not blank)."""
    heads, rows = csv_table(text, name)
    return heads, [(line, {head: (cell or "").strip() for head, cell in row.items()}) for line, row in rows]


def _label(row: dict[str, str]) -> str:
    """The first cell that is no intensity, '' where there is none."""
    return next((cell for head, cell in row.items() if head != COLUMN), "")


def _an_hour_on(before: str, label: str) -> bool:
    """Whether an hour may follow another: two times of day that say their zone are an hour apart; without one clocks may have been changed
    between them, by an hour either way. What is no time says nothing."""
    try:
        first, second = datetime.fromisoformat(before), datetime.fromisoformat(label)
        apart = second - first
    except (ValueError, TypeError):
        return True
    changed = () if first.tzinfo else (timedelta(0), timedelta(hours=2))
    return apart in (timedelta(hours=1), *changed)


@dataclass(frozen=True)
class Start:
    """A job that begins in one hour of a trace and runs on. hour: from 0 · label: what the trace calls it · g_per_j: mean while it runs."""

    hour: int
    label: str
    g_per_j: float


def starts(hours: np.ndarray, names: Sequence[str], seconds: float) -> tuple[Start, Start]:
    """(greenest, dirtiest) hour in which to start a job that runs on for so long; the trace goes round. The first of equal hours."""
    n, length = len(hours), max(seconds / 3600.0, 1e-9)
    rounds, rest = divmod(length, n)
    whole = int(rest)
    summed = np.concatenate([[0.0], np.cumsum(np.concatenate([hours, hours]))])
    at = np.arange(n)
    part = summed[at + whole] - summed[at] + (rest - whole) * np.concatenate([hours, hours])[at + whole]
    mean = (rounds * summed[n] + part) / length
    slack = SAME * float(hours.max())
    least, most = (int(np.flatnonzero(close)[0]) for close in (mean <= mean.min() + slack, mean >= mean.max() - slack))
    return Start(least, names[least], float(mean[least])), Start(most, names[most], float(mean[most]))


def placed(hours: np.ndarray, share: float, name: str) -> Placed:
    """Intensity of work that runs a share of the hours: mean, from the greenest such hours to the dirtiest, g/J."""
    if not 0 < share <= 1:
        raise InputError(f"the active share must be above 0 and at most 1 (got {share:g})", path="active")
    count = max(1, math.ceil(share * len(hours) - 1e-9))
    ordered, mean = np.sort(hours), float(hours.mean())
    low, high = float(ordered[:count].mean()), float(ordered[-count:].mean())
    text = f"{mean * JOULES_PER_KWH:.4g} g/kWh"
    found = Placed.make(mean, min(low, mean), max(high, mean), f"{name}, {len(hours)} hours", text)
    assert isinstance(found, Placed)
    found.share = count / len(hours)
    return found
