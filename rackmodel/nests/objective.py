"""What is minimised: a primary key and its tie-break, both growing with energy and with latency.

energy: (E, T) · latency: (T, E) · edp: (E T, E) · weights {"energy": a, "latency": b}: (a E + b T, E). Keys are equal
within TIE; then the first mapping met in the fixed order stands.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rackmodel.errors import RackmodelError

TIE = 1e-12  # relative difference below which two keys are equal
Key = tuple[float, float]  # (primary, tie-break)


@dataclass(frozen=True)
class NestObjective:
    """`name`, the weights where they are given, and the static power that every second costs (part of the energy)."""

    name: str
    energy_weight: float = 0.0
    latency_weight: float = 0.0
    static_w: float = 0.0

    def key(self, energy: Any, latency: Any) -> tuple[Any, Any]:
        """(primary, tie-break); numbers or arrays."""
        if self.static_w:
            energy = energy + self.static_w * latency
        if self.name == "energy":
            return energy, latency
        if self.name == "latency":
            return latency, energy
        if self.name == "edp":
            return energy * latency, energy
        weighed = ((self.energy_weight, energy), (self.latency_weight, latency))
        return sum((weight * figure for weight, figure in weighed if weight), 0.0), energy  # (0 times what fits nowhere is no number)

    def joules(self, best: Key, seconds: Any) -> Any:
        """Energy up to which a mapping of so many seconds (a number or an array) is no worse than a key, ties included; -inf: none."""
        first, second = best[0] + TIE * abs(best[0]), best[1] + TIE * abs(best[1])
        power = self.static_w * seconds
        joule, slow = self.weights(0.0, 1.0) if self.name != "edp" else (1.0, 0.0)
        if self.name == "edp":
            return first / seconds - power
        if joule:
            return (first - slow * seconds) / joule
        level = slow * seconds
        left = np.where(level < best[0] - TIE * abs(best[0]), np.inf, np.where(level <= first, second, -np.inf))
        return left - power

    def weights(self, energy: float, latency: float) -> tuple[float, float]:
        """How fast the primary key grows with a joule and with a second, at a point."""
        if self.name == "edp":
            return latency, energy + 2 * self.static_w * latency
        joule = {"energy": 1.0, "latency": 0.0}.get(self.name, self.energy_weight)
        second = {"energy": 0.0, "latency": 1.0}.get(self.name, self.latency_weight)
        return joule, second + joule * self.static_w

    @property
    def energy_only(self) -> bool:
        """Is it energy alone, with no power that every second costs?"""
        return self.name == "energy" and not self.static_w


def parse_objective(objective: "str | Mapping[str, float] | NestObjective") -> NestObjective:
    """Objective of a name or of weights; RackmodelError for anything else."""
    if isinstance(objective, NestObjective):
        return objective
    if isinstance(objective, str) and objective in ("energy", "latency", "edp"):
        return NestObjective(objective)
    if (
        isinstance(objective, Mapping)
        and objective
        and set(objective) <= {"energy", "latency"}
        and all(w >= 0 for w in objective.values())
        and any(objective.values())
    ):
        return NestObjective("weights", float(objective.get("energy", 0.0)), float(objective.get("latency", 0.0)))
    raise RackmodelError(
        f"objective {objective!r}: expected energy, latency, edp or weights >= 0 such as {{'energy': 1.0, 'latency': 2.0}}"
    )


def better(key: tuple[Any, Any], best: Key) -> Any:
    """True (elementwise) where `key` is smaller than `best`: primary first, the tie-break where they are equal."""
    (p, s), (bp, bs) = key, best
    low, high = bp - TIE * abs(bp), bp + TIE * abs(bp)
    if not np.isfinite(bp):
        return np.isfinite(p)
    return (p < low) | ((p <= high) & (s < bs - TIE * abs(bs)))
