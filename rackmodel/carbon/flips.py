"""Which rankings hold inside the ranges of their factors, and which factor turns them round.

Figures keep their factors by name (carbon/ranges), so what two systems share is the same for both. first beats second where
figure(first) < figure(second) with every factor at mid. It flips where that is not so somewhere in the box. A factor flips it
alone where moving it, others at mid, is enough; its crossing is found by bisection. Where no factor is enough, the fewest
largest that together are enough are named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from rackmodel.carbon.ranges import Ranged, told_apart

SAME = 1e-12
NAMED = 5  # factors that are said


@dataclass(frozen=True)
class Flip:
    """A ranking that does not hold throughout. ratio: second over first at mid · least, most: over the box · alone: factor → its
    value where both are equal, over its middle · together: factors that flip it between them, where none does alone."""

    first: str
    second: str
    ratio: float
    least: float
    most: float
    alone: dict[str, float] = field(default_factory=dict)
    together: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**self.__dict__, "together": list(self.together)}

    def words(self) -> str:
        """'a before b (b is 1.2x, from 0.9x to 1.5x): flips with hbm at 2.01 of its middle'; of many factors the first NAMED."""
        how = f"with {' or '.join(f'{name} at {value:.3g} of its middle' for name, value in self.alone.items())}" if self.alone else ""
        more = len(self.together) - NAMED
        parts = [*self.together[:NAMED], *([f"{more} more, all in --json,"] if more > 0 else [])]
        both = f"with {' and '.join(parts)} together" if parts else ""
        span = f"{self.second} is {self.ratio:.3g}x, from {self.least:.3g}x to {self.most:.3g}x"
        return f"{self.first} before {self.second} ({span}): flips {how or both}"


def flips(figures: Mapping[str, Ranged]) -> tuple[Flip, ...]:
    """Every pair whose order turns round inside the ranges, best first. figures: name → a figure of which less is better."""
    order = sorted(figures, key=lambda name: figures[name].mid)
    apart = told_apart(figures)
    found = [_flip(first, second, apart[first], apart[second]) for first, second in combinations(order, 2)]
    return tuple(flip for flip in found if flip is not None)


def _flip(first: str, second: str, a: Ranged, b: Ranged) -> Flip | None:
    gap = b - a
    size = max(abs(a.mid), abs(b.mid))
    if gap.low >= -SAME * size or gap.mid <= SAME * size:  # never turns round, or is a tie at mid
        return None
    ratio = b / a if a.low > 0 else None
    least, mid, most = (ratio.low, ratio.mid, ratio.high) if ratio is not None else (0.0, float("inf"), float("inf"))
    alone = {name: _crossing(gap, name) for name, low, high in gap.swings() if min(low, high) < -SAME * size}
    return Flip(first, second, mid, least, most, alone, () if alone else _together(gap, size))


def _crossing(gap: Ranged, name: str) -> float:
    """Value of one factor over its middle, others at mid, where the gap is zero."""
    quantity = gap.factors[name]
    good = float(quantity)
    bad = quantity.low if float(gap.at({name: quantity.low})) < 0 else quantity.high
    for _ in range(100):
        middle = (good + bad) / 2
        good, bad = (middle, bad) if float(gap.at({name: middle})) > 0 else (good, middle)
    return (good + bad) / 2 / float(quantity) if quantity else 0.0


def _together(gap: Ranged, size: float) -> tuple[str, ...]:
    """Factors by falling harm, until the gap is below zero with all of them at their worst."""
    harm = sorted(gap.swings(), key=lambda row: min(row[1], row[2]))
    settings: dict[str, float] = {}
    for name, at_low, at_high in harm:
        settings[name] = gap.factors[name].low if at_low < at_high else gap.factors[name].high
        if float(gap.at(settings)) < -SAME * size:
            break
    return tuple(settings)
