"""An hourly trace of a grid's intensity: its mean, and what placing work in the greenest or dirtiest hours makes of it.

    mid = mean of all hours;  low, high = mean of the least and of the most intense share a of hours

a is the share of its life that a machine is at work: low is work that waits for clean hours, high work that happens to run in
the others (Acun et al., Carbon Explorer, ASPLOS 2023, shift load in this way). Text in, numbers out: this module reads no file.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rackmodel.carbon.operational import JOULES_PER_KWH, check_intensity
from rackmodel.errors import InputError, Where
from rackmodel.units import Quantity, parse_quantity

COLUMN = "g_per_kwh"


def read_trace(text: str, name: str) -> np.ndarray:
    """Grams per joule of each hour, [n]. text: CSV whose column `g_per_kwh` counts. Raises InputError with the line."""
    rows = csv.DictReader(io.StringIO(text))
    heads = [head.strip() for head in rows.fieldnames or ()]
    if COLUMN not in heads:
        raise InputError(f"a trace needs a column '{COLUMN}'", where=Where(name, 1, 1), known=heads)
    found = []
    for line, row in enumerate(rows, start=2):
        said = (row.get(COLUMN) or "").strip()
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
        found.append(value)
    if not found:
        raise InputError("a trace needs at least one hour", where=Where(name))
    return np.array(found)


@dataclass(frozen=True)
class Start:
    """A job that begins in one hour of a trace and runs on. hour: from 0 · label: what the trace calls it · g_per_j: mean while it runs."""

    hour: int
    label: str
    g_per_j: float


def hour_names(text: str) -> list[str]:
    """What a trace calls its hours: its first column that is no intensity; their numbers where it has none."""
    rows = csv.DictReader(io.StringIO(text))
    head = next((name for name in rows.fieldnames or () if name.strip() != COLUMN), None)
    return [str(number) if head is None else (row.get(head) or "").strip() or str(number) for number, row in enumerate(rows)]


def starts(hours: np.ndarray, names: Sequence[str], seconds: float) -> tuple[Start, Start]:
    """(greenest, dirtiest) hour in which to start a job that runs on for so long; the trace goes round. The first of equal hours."""
    n, length = len(hours), max(seconds / 3600.0, 1e-9)
    rounds, rest = divmod(length, n)
    whole = int(rest)
    summed = np.concatenate([[0.0], np.cumsum(np.concatenate([hours, hours]))])
    at = np.arange(n)
    part = summed[at + whole] - summed[at] + (rest - whole) * np.concatenate([hours, hours])[at + whole]
    mean = (rounds * summed[n] + part) / length
    return tuple(Start(int(i), names[int(i)], float(mean[i])) for i in (np.argmin(mean), np.argmax(mean)))  # type: ignore[return-value]


def placed(hours: np.ndarray, share: float, name: str) -> Quantity:
    """Intensity of work that runs a share of the hours: mean, from the greenest such hours to the dirtiest, g/J."""
    if not 0 < share <= 1:
        raise InputError(f"the active share must be above 0 and at most 1 (got {share:g})", path="active")
    count = max(1, math.ceil(share * len(hours) - 1e-9))
    ordered, mean = np.sort(hours), float(hours.mean())
    low, high = float(ordered[:count].mean()), float(ordered[-count:].mean())
    text = f"{mean * JOULES_PER_KWH:.4g} g/kWh"
    return Quantity.make(mean, min(low, mean), max(high, mean), f"{name}, {len(hours)} hours", text)
