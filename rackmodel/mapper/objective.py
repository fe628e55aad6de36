"""Objectives: what is minimised, and what breaks ties.

    latency T, then E     energy E, then T     carbon E · PUE · grid (the order of energy)     memory, then T
    edp E · T, then E     total_carbon a E + b T, then E     tcdp (a E + b T) T, then E     money a E + b T, then E

All grow with seconds and joules, so that bounds of those bound them. a and b are the machine's: grams of operational carbon a joule,
grams of embodied carbon a second; of money dollars of electricity a joule, dollars of idle electricity and capital a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SUMS = ("total_carbon", "tcdp", "money")
"""Figures of a E + b T, whatever a and b are: a machine that was built for nothing has b = 0."""


@dataclass(frozen=True)
class Objective:
    """name: as above · g_per_joule, g_per_s: of total_carbon and tcdp; of money, dollars."""

    name: str
    g_per_joule: float = 0.0
    g_per_s: float = 0.0

    @property
    def additive(self) -> bool:
        """Whether it is a weighted sum of seconds and joules."""
        return self.name not in ("edp", "tcdp")

    def value(self, seconds: Any, joules: Any, memory: Any) -> Any:
        """The figure, of floats or arrays."""
        if self.name == "latency":
            return seconds
        if self.name == "edp":
            return seconds * joules
        if self.name == "memory":
            return memory + 0.0 * seconds
        if self.name in SUMS:
            carbon = self.g_per_joule * joules + self.g_per_s * seconds
            return carbon * seconds if self.name == "tcdp" else carbon
        return joules + 0.0 * seconds

    def weights(self, static_w: float) -> tuple[float, float]:
        """By how much the figure grows with a joule but for static power, and with a second that costs so much of that; of a product with
        seconds those of its other factor."""
        if self.name in ("latency", "memory"):
            return 0.0, float(self.name == "latency")
        if self.name in SUMS:
            return self.g_per_joule, self.g_per_joule * static_w + self.g_per_s
        return 1.0, static_w

    def tie(self, seconds: Any, joules: Any) -> Any:
        """What decides between equal values."""
        return seconds if self.name in ("energy", "carbon", "memory") else joules
