"""Numbers with a range that remember which factors they came from, so that what two figures share cancels.

    figure = f(factors), each factor low ≤ mid ≤ high;   low(figure) = min f, high(figure) = max f over their box

Plain interval arithmetic would let one unknown (the carbon of a gigabyte of HBM) be high in one system and low in the other.
Here a figure keeps its factors by name and is evaluated at corners of the box. Every figure of this package is linear over
linear in each factor alone, or monotone in it, so its extremes are at corners. All of them are tried up to MOST factors;
beyond, corners are improved one factor at a time until none helps (exact where the figure is monotone in each).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from rackmodel.errors import InputError
from rackmodel.units import Quantity

MOST = 14
Values = Mapping[str, Any]


@dataclass(frozen=True)
class Ranged:
    """A figure. factors: name → range and source · at: values of some factors (the rest at mid; arrays allowed) → the figure."""

    factors: Mapping[str, Quantity]
    at: Callable[[Values], Any]

    @cached_property
    def mid(self) -> float:
        """With every factor at its middle."""
        return float(self.at({}))

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """(least, most) over the box of the factors."""
        return _extreme(self, -1.0), _extreme(self, 1.0)

    @property
    def low(self) -> float:
        """Least over the box of the factors."""
        return self.bounds[0]

    @property
    def high(self) -> float:
        """Most over the box of the factors."""
        return self.bounds[1]

    @property
    def spread(self) -> dict[str, Quantity]:
        """The factors that have a range."""
        return {name: value for name, value in self.factors.items() if value.low < value.high}

    def swings(self) -> list[tuple[str, float, float]]:
        """(factor, figure at its low, figure at its high), the others at mid, the largest swing first."""
        found = [(n, float(self.at({n: q.low})), float(self.at({n: q.high}))) for n, q in self.spread.items()]
        return sorted(found, key=lambda row: (-abs(row[2] - row[1]), row[0]))

    def to_dict(self) -> dict[str, float]:
        """Plain data for JSON."""
        return {"low": self.low, "mid": self.mid, "high": self.high}

    def __add__(self, other: Number) -> Ranged:
        return _join(self, other, lambda a, b: a + b)

    def __sub__(self, other: Number) -> Ranged:
        return _join(self, other, lambda a, b: a - b)

    def __mul__(self, other: Number) -> Ranged:
        return _join(self, other, lambda a, b: a * b)

    def __truediv__(self, other: Number) -> Ranged:
        return _join(self, other, lambda a, b: a / b)

    def __rtruediv__(self, other: float) -> Ranged:
        return fixed(other) / self

    def __rsub__(self, other: float) -> Ranged:
        return fixed(other) - self

    __radd__ = __add__
    __rmul__ = __mul__


Number = Ranged | float


def fixed(value: float) -> Ranged:
    """A figure without a range."""
    number = float(value)
    return Ranged({}, lambda values: number)


def factor(name: str, value: float) -> Ranged:
    """A figure that is one factor; a Quantity brings its range and source. Two figures with factors of one name share it."""
    quantity = value if isinstance(value, Quantity) else Quantity.make(value, value, value, None, f"{value:g}")
    return Ranged({name: quantity}, lambda values: values.get(name, float(quantity)))


def apply(function: Callable[..., Any], *figures: Number) -> Ranged:
    """function(figures), which must take arrays. Raises InputError where two factors of one name have different ranges."""
    ranged = [figure if isinstance(figure, Ranged) else fixed(figure) for figure in figures]
    return Ranged(_merged(one.factors for one in ranged), lambda values: function(*(one.at(values) for one in ranged)))


def total(figures: Iterable[Ranged]) -> Ranged:
    """Σ figures; 0 of none."""
    parts = tuple(figures)
    return Ranged(_merged(part.factors for part in parts), lambda values: sum((part.at(values) for part in parts), 0.0))


def told_apart(figures: Mapping[str, Ranged]) -> dict[str, Ranged]:
    """The same figures, to be put beside each other: where factors of one name have unlike ranges (two machines' own grids, or fabs), each
    is called after its range too."""
    spans: dict[str, dict[tuple[float, ...], str]] = {}
    for figure in figures.values():
        for name, value in figure.factors.items():
            spans.setdefault(name, {})[_span(value)] = value.text
    unlike = {name: told for name, told in spans.items() if len(told) > 1}
    names = {
        name: {
            span: f"{name} ({text if len({*told.values()}) == len(told) else f'{span[0]:.6g} to {span[2]:.6g}'})"
            for span, text in told.items()
        }
        for name, told in unlike.items()
    }
    return {label: _renamed(figure, names) for label, figure in figures.items()}


def _renamed(figure: Ranged, names: Mapping[str, Mapping[tuple[float, ...], str]]) -> Ranged:
    """A figure some of whose factors are called otherwise. names: factor → its range → what it is called then."""
    named = {key: names[key][_span(value)] for key, value in figure.factors.items() if key in names}
    if not named:
        return figure
    factors = {named.get(key, key): value for key, value in figure.factors.items()}
    return Ranged(factors, lambda values: figure.at({**values, **{key: values[new] for key, new in named.items() if new in values}}))


def _span(value: Quantity) -> tuple[float, ...]:
    return value.low, float(value), value.high


def _join(first: Ranged, second: Number, operation: Callable[[Any, Any], Any]) -> Ranged:
    return apply(operation, first, second)


def _merged(many: Iterable[Mapping[str, Quantity]]) -> dict[str, Quantity]:
    found: dict[str, Quantity] = {}
    for factors in many:
        for name, value in factors.items():
            known = found.setdefault(name, value)
            if _span(known) != _span(value):
                raise InputError(f"two ranges for one factor: {known.text} and {value.text}", path=name)
    return found


def _extreme(figure: Ranged, sign: float) -> float:
    """min (sign -1) or max (sign 1) of the figure over the corners of its box."""
    spread = figure.spread
    if not spread:
        return figure.mid
    if len(spread) <= MOST:
        bits = (np.arange(2 ** len(spread))[:, None] >> np.arange(len(spread))) & 1
        corners = {name: np.where(bits[:, i], q.high, q.low) for i, (name, q) in enumerate(spread.items())}
        return float(sign * np.max(sign * np.asarray(figure.at(corners))))
    here = {name: float(q) for name, q in spread.items()}
    best, before = sign * figure.mid, -np.inf
    while best > before:
        before = best
        for name, q in spread.items():
            tries = np.array([here[name], q.low, q.high])
            values = sign * np.asarray(figure.at({**here, name: tries})) * np.ones(3)
            pick = int(np.argmax(values))
            here[name], best = float(tries[pick]), float(values[pick])
    return float(sign * best)
