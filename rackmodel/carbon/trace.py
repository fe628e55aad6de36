"""An hourly trace of a grid's intensity: its mean, and what placing work in the greenest or dirtiest hours makes of it.

    mid = mean of all hours;  low, high = mean of the least and of the most intense share a of hours

a is the share of its life that a machine is at work: low is work that waits for clean hours, high work that happens to run in
the others (Acun et al., Carbon Explorer, ASPLOS 2023, shift load in this way). Text in, numbers out: this module reads no file.
"""

from __future__ import annotations

import csv
import io
import math

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


def placed(hours: np.ndarray, share: float, name: str) -> Quantity:
    """Intensity of work that runs a share of the hours: mean, from the greenest such hours to the dirtiest, g/J."""
    if not 0 < share <= 1:
        raise InputError(f"the active share must be above 0 and at most 1 (got {share:g})", path="active")
    count = max(1, math.ceil(share * len(hours) - 1e-9))
    ordered, mean = np.sort(hours), float(hours.mean())
    low, high = float(ordered[:count].mean()), float(ordered[-count:].mean())
    text = f"{mean * JOULES_PER_KWH:.4g} g/kWh"
    return Quantity.make(mean, min(low, mean), max(high, mean), f"{name}, {len(hours)} hours", text)
