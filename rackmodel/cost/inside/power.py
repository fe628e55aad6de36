"""What a GPU draws while a kernel runs, beside its operations and bytes, and how its power limit slows the kernel.

    busy    min(busy power, limit - static power - joules / duration) · duration        clocks, schedulers and leakage of a GPU at work
    slowed  duration >= joules / (limit - static power)

joules: of the kernel's operations and bytes. At the limit the clock falls, and what the clock draws with it: rates that were measured at
the limit hold as they are, so that a kernel takes longer only where what it moves and multiplies alone is over the limit.
Source of the form: watts of long kernels of attention lie on static + busy + joules a byte, with the energies of the parts (H200, GB200:
58 and 61 pJ a byte found, 56 stated); the numbers are facts of the parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.inside.roofline import Row
from rackmodel.errors import InputError
from rackmodel.model.architecture import Architecture
from rackmodel.model.resources import Kernels

Array = NDArray[np.float64]


def powered(
    architecture: Architecture, facts: Kernels, rows: Sequence[Row], duration: Array, *, waiting: Any = 0.0, limited: bool = True
) -> tuple[list[Row], Array]:
    """Rows and duration [n] of a kernel under the limit, with what the GPU draws meanwhile; as they are where the part says nothing.
    waiting: [n] s of the duration in which the GPU waits for the host · limited: whether its own power may slow it. Raises InputError for a
    limit that static power reaches."""
    if not facts.busy_power_w and facts.power_limit_w is None:
        return list(rows), duration
    joules = np.asarray(sum((row.joules for row in rows), np.zeros_like(duration)))
    running = duration - waiting
    busy, slowed = np.full(duration.shape, facts.busy_power_w), running
    if facts.power_limit_w is not None:
        left = facts.power_limit_w - architecture.accelerator.static_power_w
        if not left > 0:
            raise InputError("the power limit is no more than the static power", path="kernels.power_limit")
        slowed = np.maximum(running, joules / left) if limited else running
        busy = np.minimum(busy, np.maximum(left - joules / np.maximum(slowed, 1e-30), 0.0))
    longer, found = duration + (slowed - running), list(rows)
    if (slowed != running).any():
        scale = np.divide(longer, duration, out=np.ones_like(duration), where=duration > 0)
        found = [row.exposing(row.exposed * scale) for row in rows]
    zero, drawn = np.zeros_like(duration), busy * slowed
    return [*found, Row("", architecture.accelerator.name, "static", "busy", drawn, "joule", drawn, zero, zero)], longer
