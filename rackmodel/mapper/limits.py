"""Limits: what no step may exceed, which of them a bound can rule out by, and which loosening would do where nothing keeps them.

    latency, energy, carbon, memory       a point whose lower bound is above the limit breaks it
    edp, total_carbon, tcdp, money        likewise: they grow with seconds and joules (mapper/objective)
    power = (J0 + w T) / T                falls as seconds T grow, w static and waiting power, J0 the other joules: who keeps a limit P
                                          takes T >= J0 / (P - w), and is bounded as a step that long (`Limits.least`); who never
                                          is that long breaks it (`Limits.long_enough`)

A figure equals its limit within SLACK: sums of the same terms in another order differ by rounding.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rackmodel.arrays import Array, Bools
from rackmodel.errors import InputError
from rackmodel.mapper.objective import Objective
from rackmodel.mapper.points import Point
from rackmodel.model.mapping import MapperSpec
from rackmodel.units import parse_quantity

UNITS = {
    **{"power": "watt", "memory": "byte", "latency": "second", "energy": "joule", "carbon": "gram"},
    **{"total_carbon": "gram", "money": "usd", "edp": "joule*second", "tcdp": "gram*second"},
}
SYMBOLS = {
    **{"power": "W", "memory": "B", "latency": "s", "energy": "J", "carbon": "g"},
    **{"total_carbon": "g", "money": "usd", "edp": "J*s", "tcdp": "g*s"},
}
LIKE = {
    **{"power": "5 kW", "memory": "80 GB", "latency": "5 s", "energy": "5 kJ", "carbon": "5 g"},
    **{"total_carbon": "5 g", "money": "5 usd", "edp": "5 J*s", "tcdp": "5 g*s"},
}
"""Of each figure, text of the size that a step's may have: an example for who says another, or no unit."""
BLENDED = ("total_carbon", "money", "edp", "tcdp")
PRODUCTS = ("edp", "tcdp")  # of seconds: no weighted sum of seconds and joules
SLACK = 1e-12
_NUMBER = re.compile(r"\d{1,9}(\.\d{1,9})?", re.A)
ROOM = 1e-9  # relative, of a limit of power that bounds are held against: their joules are sums in another order


@dataclass(frozen=True)
class Limits:
    """most: figure of UNITS → what it may be, in SI units · g_per_joule: of the carbon of use · blends: figure of seconds and joules →
    what it is on this machine · static_w: joules that every second of a step adds to those of its tasks."""

    most: Mapping[str, float] = field(default_factory=dict)
    g_per_joule: float = 0.0
    blends: Mapping[str, Objective] = field(default_factory=dict)
    static_w: float = 0.0

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

    def open(self, seconds: Any, joules: Any) -> Bools:
        """Where lower bounds of seconds and joules do not rule a point out."""
        found = np.asarray((seconds <= self.latency * (1 + SLACK)) & (joules <= self.energy * (1 + SLACK)))
        if self._spare <= 0:
            found = found & (joules <= 0)
        for name in self.blended:
            found = found & (self.blends[name].value(seconds, joules, 0.0) <= self.most[name] * (1 + SLACK))
        return found

    def least(self, seconds: Array, joules: Array) -> tuple[Array, Array]:
        """(seconds, joules) at least of the steps that keep the limit of power, of their bounds: T >= J0 / (P - w), J0 = joules - w seconds
        the least joules of their tasks, w `static_w`. The same where no step is long enough, which `open` knows."""
        if not 0 < self._spare < np.inf:
            return seconds, joules
        longer = np.maximum(seconds, (joules - self.static_w * seconds) / self._spare)
        return longer, joules + self.static_w * (longer - seconds)

    def long_enough(self, seconds: Array, joules: Array, most_s: Array) -> Bools:
        """Where a step may be as long as its joules need under the limit of power. seconds, joules: as `least` takes them · most_s: seconds
        at most."""
        longer, _ = self.least(seconds, joules)
        return np.asarray(longer <= np.maximum(seconds, most_s) * (1 + SLACK))

    @property
    def _spare(self) -> float:
        """Watts that a limit of power leaves to tasks."""
        return self.power * (1 + ROOM) - self.static_w

    @property
    def blended(self) -> list[str]:
        """Limits of figures that are made of seconds and joules."""
        return [name for name in self.most if name in self.blends]

    def goal(self, name: str) -> Objective:
        """The objective that has the least of a limited figure."""
        return self.blends.get(name) or Objective({"carbon": "energy", "power": "latency"}.get(name, name))

    def figure(self, name: str, point: Point) -> float:
        """A limited figure of an exact point."""
        if name in self.blends:
            return point.value(self.blends[name])
        if name == "carbon":
            return point.joules * self.g_per_joule
        return {"power": point.power_w, "memory": point.memory, "latency": point.seconds, "energy": point.joules}[name]

    def broken(self, point: Point) -> list[str]:
        """The limits that an exact point does not keep."""
        return [name for name, most in self.most.items() if self.figure(name, point) > most * (1 + SLACK)]

    def without(self, name: str) -> Limits:
        """The other limits."""
        return self.of({other: most for other, most in self.most.items() if other != name})

    def of(self, most: Mapping[str, float]) -> Limits:
        """Other limits on the same machine."""
        return replace(self, most=most)


NO_LIMITS = Limits()


def read_limits(said: Mapping[str, float | str]) -> dict[str, float]:
    """Limits in SI units, each a number or text with a unit ('5 MW'). Raises InputError."""
    found = {}
    for name, value in said.items():
        if name not in UNITS:
            raise InputError(f"no limit called '{name}': want name=value", path="--limit", known=UNITS, given=name)
        try:
            number = parse_quantity(value.strip(), UNITS[name], _like(name, value)) if isinstance(value, str) else float(value)
        except (TypeError, ValueError) as problem:
            raise InputError(f"{name}: {problem}" if not isinstance(value, str) else str(problem), path="--limit")
        if not (number > 0 and np.isfinite(number)):
            raise InputError(f"{name}={value}: a limit is positive and finite", path="--limit")
        found[name] = number
    return found


def _like(name: str, value: str) -> str:
    """An example of a limit: the number that was said, where it is one, in a unit of a step's size."""
    number, unit = LIKE[name].split()
    return f"{value.strip() if _NUMBER.fullmatch(value.strip()) else number} {unit}"


def check_open_cut(mapper: MapperSpec, goal: Objective, limits: Limits) -> None:
    """Raises InputError where an open cut, or open policies of layers, are asked for what they are not searched for."""
    path = "cut" if mapper.cut == "free" else "recompute"
    if path == "recompute" and mapper.recompute != "per layer":
        return
    if goal.name != "latency":
        raise InputError("an open cut is searched for latency", path=path)
    other = [name for name in limits.most if name not in ("memory", "latency")]
    if other:
        raise InputError(f"an open cut is searched under limits of memory and latency, not of {other[0]}", path=path)
