"""Units that a tile keeps busy at most, perfect factors: each side of a fan is dealt a divisor of what the tile holds."""

from __future__ import annotations

import numpy as np

from rackmodel.arrays import Array
from rackmodel.nests.problem import NestMachine

LISTED = 4096  # of a side: a longer one may be dealt any number up to its own
EXACT = 2.0**53  # of a tile's points: a larger one may fill any side


def most_busy(machine: NestMachine, points: Array) -> Array:
    """[tiles] units, of tiles of so many atoms."""
    values, where = np.unique(points, return_inverse=True)
    busy: Array = np.ones(len(values))
    for level in machine.levels:
        for side in (level.fan.x, level.fan.y):
            busy = busy * [_dealt(float(n), side, level.fan.linear) for n in values]
    return np.minimum(busy, values)[where].reshape(points.shape)


def _dealt(points: float, side: int, linear: bool) -> float:
    """The most that one side of a fan is dealt; of a linear one the last round may be short."""
    if linear or side > LISTED or points >= EXACT or points % side == 0:
        return min(points, float(side))
    parts = np.arange(1, side + 1)
    return float(parts[points % parts == 0][-1])
