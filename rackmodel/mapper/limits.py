"""Limits: what no step may exceed, which of them a bound can rule out by, and which loosening would do where nothing keeps them.

    latency, energy, carbon, memory     a point whose lower bound is above the limit breaks it
    power = joules / seconds            grows as seconds shrink: no lower bound of seconds rules a point out, its exact figures do

A figure equals its limit within SLACK: sums of the same terms in another order differ by rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rackmodel.errors import InputError
from rackmodel.mapper.points import Point
from rackmodel.units import parse_quantity

UNITS = {"power": "watt", "memory": "byte", "latency": "second", "energy": "joule", "carbon": "gram"}
SYMBOLS = {"power": "W", "memory": "B", "latency": "s", "energy": "J", "carbon": "g"}
SLACK = 1e-12


@dataclass(frozen=True)
class Limits:
    """most: figure of UNITS → what it may be, in SI units · g_per_joule: of the carbon of use."""

    most: Mapping[str, float] = field(default_factory=dict)
    g_per_joule: float = 0.0

    @property
    def energy(self) -> float:
        """Joules that energy and carbon allow."""
        carbon = self.most.get("carbon", np.inf)
        return float(min(self.most.get("energy", np.inf), carbon / self.g_per_joule if self.g_per_joule > 0 else np.inf))

    @property
    def memory(self) -> float:
        """Bytes on an accelerator."""
        return self.most.get("memory", np.inf)

    @property
    def latency(self) -> float:
        """Seconds of a step."""
        return self.most.get("latency", np.inf)

    @property
    def power(self) -> float:
        """Watts, the mean of a step."""
        return self.most.get("power", np.inf)

    def open(self, seconds: Any, joules: Any) -> NDArray[np.bool_]:
        """Where lower bounds of seconds and joules do not rule a point out."""
        return np.asarray((seconds <= self.latency * (1 + SLACK)) & (joules <= self.energy * (1 + SLACK)))

    def figure(self, name: str, point: Point) -> float:
        """A limited figure of an exact point."""
        if name == "carbon":
            return point.joules * self.g_per_joule
        return {"power": point.power_w, "memory": point.memory, "latency": point.seconds, "energy": point.joules}[name]

    def broken(self, point: Point) -> list[str]:
        """The limits that an exact point does not keep."""
        return [name for name, most in self.most.items() if self.figure(name, point) > most * (1 + SLACK)]

    def without(self, name: str) -> Limits:
        """The other limits."""
        return Limits({other: most for other, most in self.most.items() if other != name}, self.g_per_joule)


NO_LIMITS = Limits()


def read_limits(said: Mapping[str, float | str]) -> dict[str, float]:
    """Limits in SI units, each a number or text with a unit ('5 MW'). Raises InputError."""
    found = {}
    for name, value in said.items():
        if name not in UNITS:
            raise InputError(f"no limit called '{name}': want name=value", path="--limit", known=UNITS, given=name)
        try:
            number = parse_quantity(value.strip(), UNITS[name]) if isinstance(value, str) else float(value)
        except (TypeError, ValueError) as problem:
            raise InputError(f"{name}: {problem}" if not isinstance(value, str) else str(problem), path="--limit")
        if not (number > 0 and np.isfinite(number)):
            raise InputError(f"{name}={value}: a limit is positive and finite", path="--limit")
        found[name] = number
    return found
