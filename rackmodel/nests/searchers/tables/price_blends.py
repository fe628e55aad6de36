"""Bounds of energy and time together: the least of a E + sum_i b_i bits_i over a slice, by one cost table.

The latency is no less than any weighted mean of the times, so that with scale_i seconds a bit of port i

    a E + (sum_i b_i / scale_i) T  >=  a E + sum_i b_i bits_i  >=  L,   L the optimum of a table under the blended price.

No mapping of the slice is below this line, nor below its least energy and least time; a key that grows with both and is linear
or a product is least at a corner of what is left (docs/nest_theory.md, section 5). The weights follow the times of the mapping that
is least under them: ports that bind weigh more.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rackmodel.nests.searchers.mapspace.prices import BitPrices, Component
from rackmodel.nests.searchers.tables.cost_table import CostTable


@dataclass(frozen=True)
class Blend:
    """energy: weight of a joule · bits: weight of a bit of every port."""

    energy: float
    bits: tuple[float, ...]

    def prices(self, joules: BitPrices, ports: Sequence[Component]) -> BitPrices:
        """The price of an action: joules and bits of every port together."""
        levels = len(joules.read)
        parts = [(self.energy, joules), *((b, c.prices(levels)) for b, c in zip(self.bits, ports, strict=True))]

        def total(action: str) -> tuple[float, ...]:
            return tuple(float(sum(w * getattr(p, action)[level] for w, p in parts)) for level in range(levels))

        return BitPrices(total("read"), total("write"), total("hop"))

    def seconds(self, scales: Sequence[float]) -> float:
        """What a second of latency weighs at most: sum of b_i / scale_i; scales: seconds a bit."""
        return sum(b / s for b, s in zip(self.bits, scales, strict=True))

    def of(self, cost: Sequence[float], scales: Sequence[float]) -> float:
        """The blend of (energy, seconds of every port)."""
        return self.energy * cost[0] + sum(b * t / s for b, t, s in zip(self.bits, cost[1:], scales, strict=True))


@dataclass(frozen=True)
class BlendLine:
    """blend(E, T) >= least over all mappings of a slice; table: of the blend, restricted to the slice."""

    blend: Blend
    table: CostTable
    least: float

    def corners(self, energy: Any, seconds: Any, scales: Sequence[float], least: Any = None) -> list[tuple[Any, Any]]:
        """The corners (E, T) of what is above the line, E >= energy and T >= seconds; numbers or arrays. least: instead of the line's."""
        a, b, c = self.blend.energy, self.blend.seconds(scales), self.least if least is None else least
        found = []
        if a > 0:
            found.append((np.maximum(energy, (c - b * seconds) / a), seconds))
        if b > 0:
            found.append((energy, np.maximum(seconds, (c - a * energy) / b)))
        return found


def shares_of(seconds: Sequence[float], shares: Sequence[float], step: float) -> list[float]:
    """Shares of the latency moved towards the times that bind: share x exp(step x (time / slowest - mean)), of sum 1; as they are where
    nothing takes time."""
    slow = np.array(seconds) / (max(seconds) or 1.0)
    moved = np.array(shares) * np.exp(step * (slow - slow @ np.array(shares)))
    return [float(n) for n in moved / moved.sum()]
