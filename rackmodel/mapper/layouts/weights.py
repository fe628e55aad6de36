"""Objectives as lexicographic prices: what is minimised, then what breaks ties.

    latency → (T, E)    energy → (E, T)    carbon → (E·PUE·grid, T)    edp → E·T, then E

A price is a complex number: numpy orders those by real, then imaginary part, and adds them, which is all that
elimination needs. Real parts are rounded to a grid of 1e-12 of their scale, so that sums are exact and ties are ties.
E·T and (a E + b T)·T are no sums, but quasi-concave: their least value over a set lies on the lower hull of (E, T), whose
corners are least weighted sums. `corners` finds them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rackmodel.arrays import Array
from rackmodel.mapper.layouts.factors import Factors

GRID = 2.0**-40


@dataclass(frozen=True)
class Weights:
    """primary = Σ latency·time + energy·energy (in 1/s and 1/J), ties by the other pair."""

    latency: float
    energy: float
    tie_latency: float
    tie_energy: float


LATENCY, ENERGY = Weights(1.0, 0.0, 0.0, 1.0), Weights(0.0, 1.0, 1.0, 0.0)


def prices(factors: Factors, weights: Weights) -> dict[str, NDArray[np.complex128]]:
    """Table of complex prices for each factor."""
    raw = {f.name: weights.latency * f.latency + weights.energy * f.energy for f in factors.factors}
    ties = {f.name: weights.tie_latency * f.latency + weights.tie_energy * f.energy for f in factors.factors}
    unit, tie_unit = _grid(raw), _grid(ties)
    return {f.name: np.round(raw[f.name] / unit) * unit + 1j * np.round(ties[f.name] / tie_unit) * tie_unit for f in factors.factors}


def _grid(tables: dict[str, Array]) -> float:
    scale = sum(float(np.abs(table).max(initial=0.0)) for table in tables.values())
    return float(2.0 ** np.floor(np.log2(scale)) * GRID) if scale > 0 else 1.0


def total(factors: Factors, chosen: dict[str, int]) -> tuple[float, float, float]:
    """(latency, energy, memory) of one assignment, as sums of table cells."""
    cells = [factor.at(chosen) for factor in factors.factors]
    return sum(cell[0] for cell in cells), sum(cell[1] for cell in cells), sum(cell[2] for cell in cells) + factors.widest(chosen)


Answer = TypeVar("Answer")


def corners(solve: Callable[[Weights], Answer | None], point: Callable[[Answer], tuple[float, float]]) -> list[Answer]:
    """Answers at the corners of the lower hull of (latency, energy), found by solving weighted sums between neighbours."""
    ends = [solve(LATENCY), solve(ENERGY)]
    if ends[0] is None or ends[1] is None:
        return []
    found: list[Any] = [ends[0]]

    def between(left: Any, right: Any, depth: int) -> None:
        (t0, e0), (t1, e1) = point(left), point(right)
        if depth > 60 or not (t1 > t0 and e0 > e1):
            return
        weights = Weights(e0 - e1, t1 - t0, 1.0, 0.0)
        middle = solve(weights)
        assert middle is not None
        t, e = point(middle)
        line = weights.latency * t0 + weights.energy * e0
        if weights.latency * t + weights.energy * e < line * (1 - 1e-11):
            between(left, middle, depth + 1)
            found.append(middle)
            between(middle, right, depth + 1)

    between(ends[0], ends[1], 0)
    return [*found, ends[1]]
