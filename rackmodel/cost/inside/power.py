"""What a GPU draws while a kernel runs, beside its operations and bytes, and how its power limit slows the kernel.

    busy    min(busy power, limit - static power - joules / duration) · duration        clocks, schedulers and leakage of a GPU at work
    busy power of a kind of kernel (experts' products, attention, those that move rows): power + moved · bytes / duration
    waiting waiting power · what of the duration it waits for the host
            of a step: waiting power · (accelerators · seconds of the step - seconds of all their kernels); so a kernel amid a step takes
            off waiting power · its duration, and every second of the step counts for that of all accelerators beside static power
    slowed  duration >= joules / (limit - static power)
    capped  duration · (watts above static power / (cap - static power))^(1/exponent), where a cap is below what it draws
            joules at most (cap - static power) · that duration

joules: of the kernel's operations and bytes. At the limit the clock falls, and what the clock draws with it: rates that were measured at
the limit hold as they are, so that a kernel takes longer only where what it moves and multiplies alone is over the limit. A cap is below
that limit: the clock falls until power does, by more than the clock as the voltage falls with it; what the clock draws gives way first, and
where operations and bytes alone are over the cap, each takes less energy at the lower voltage. The exponent, 1.5, is ASSUMED: a chip of
fixed voltage has 1, one of voltage in proportion to its clock 3; an H100 capped at 600 of 700 W is told to lose 10 to 15 % of a training
step (factryze.ai, power capping; not measured here), which is 1.8 to 1.3.
Source of the form: watts of long kernels of attention lie on static + busy + joules a byte, with the energies of the parts (H200, GB200:
58 and 61 pJ a byte found, 56 stated); watts of kernels that quantise rise in proportion to the bytes a second, from what a GPU draws that
works on next to nothing; the numbers are facts of the parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rackmodel.arrays import Array
from rackmodel.cost.inside.roofline import Row
from rackmodel.errors import InputError
from rackmodel.model.architecture import Architecture
from rackmodel.model.resources import Busy, Kernels

BUSY = "busy"
"""Action of the row that says what a kernel draws."""
WAITING = "waiting"
"""Action of the row that says what accelerators draw that wait; of a kernel amid a step, below 0: for so long its own does not."""


def waiting_watts(architecture: Architecture, facts: Kernels) -> Any:
    """W beside static power of an accelerator that waits amid work: within what its power limit and cap leave."""
    watts: Any = facts.waiting_power_w
    for key in ("power_limit", "power_cap"):
        most = getattr(facts, f"{key}_w")
        if most is not None and np.any(watts):
            watts = np.minimum(watts, _above_static(architecture, most, key))
    return watts


def amid_step(architecture: Architecture, facts: Kernels, rows: Sequence[Row], duration: Array) -> list[Row]:
    """Rows of a kernel and what its accelerators do not wait meanwhile; as they are where the part says nothing of those that wait."""
    watts = waiting_watts(architecture, facts)
    if not np.any(watts):
        return list(rows)
    joules = np.asarray(sum((row.most_joules for row in rows), np.zeros_like(duration)))
    spared, zero = -watts * duration * _working(rows, joules), np.zeros_like(duration)
    return [*rows, Row("", architecture.accelerator.name, "static", WAITING, spared, "joule", spared, zero, zero)]


def lengthened(rows: Sequence[Row], longer: Array) -> list[Row]:
    """Rows of a kernel that takes so many times as long [n]: it draws its power for longer, and moves and multiplies no more."""
    return [(row.scaled(longer) if row.action in (BUSY, WAITING) else row).exposing(row.exposed * longer) for row in rows]


def busy_watts(busy: Busy, rows: Sequence[Row], memory: str, duration: Array) -> Array:
    """[n] W of kernels of a kind. rows: what they move and multiply · memory: name of the accelerator's own memory level."""
    moved = sum((row.fullest for row in rows if row.level == memory and row.component == "memory"), np.zeros_like(duration))
    return np.asarray(busy.power_w + busy.moved_j_per_byte * moved / np.maximum(duration, 1e-30))


def powered(
    architecture: Architecture,
    facts: Kernels,
    rows: Sequence[Row],
    duration: Array,
    *,
    busy: Any = None,
    waiting: Any = 0.0,
    limited: bool = True,
) -> tuple[list[Row], Array]:
    """Rows and duration [n] of a kernel under the limit, with what the GPU draws meanwhile; as they are where the part says nothing.
    busy: W of its kind, [n] or one; None = the part's busy power · waiting: [n] s of the duration in which the GPU waits for the host ·
    limited: whether its own power may slow it. Raises InputError for a limit that static power reaches."""
    least = waiting_watts(architecture, facts)
    own = np.maximum(facts.busy_power_w if busy is None else busy, least)  # (at work its clocks are up, too)
    waits = least * waiting
    if facts.power_limit_w is None and facts.power_cap_w is None and not np.any(own) and not np.any(waits):
        return list(rows), duration
    joules = np.asarray(sum((row.most_joules for row in rows), np.zeros_like(duration)))
    running = duration - waiting
    drawing, slowed, found = own + np.zeros_like(duration), running, list(rows)
    if facts.power_limit_w is not None:
        left = _above_static(architecture, facts.power_limit_w, "power_limit")
        slowed = np.maximum(running, joules / left) if limited else running
        drawing = np.minimum(drawing, np.maximum(left - joules / np.maximum(slowed, 1e-30), 0.0))
    if facts.power_cap_w is not None:
        left = _above_static(architecture, facts.power_cap_w, "power_cap")
        over = (drawing + joules / np.maximum(slowed, 1e-30)) / left
        slowed = slowed * np.maximum(over, 1.0) ** (1 / facts.cap_exponent)
        drawing = np.where(over > 1, np.maximum(left - joules / np.maximum(slowed, 1e-30), 0.0), drawing)
        capped = (slowed > 0) & (joules > left * slowed)  # (what takes no time of its own is in another kernel's)
        lower = np.divide(left * slowed, joules, out=np.ones_like(joules), where=capped)
        if (lower < 1).any():
            found = [row.drawing(lower) for row in found]
    longer = duration + (slowed - running)
    if (slowed != running).any():
        scale = np.divide(longer, duration, out=np.ones_like(duration), where=duration > 0)
        found = [row.exposing(row.exposed * scale) for row in found]
    zero, drawn = np.zeros_like(duration), drawing * slowed * _working(rows, joules) + waits
    return [*found, Row("", architecture.accelerator.name, "static", BUSY, drawn, "joule", drawn, zero, zero)], longer


def _above_static(architecture: Architecture, watts: float, key: str) -> float:
    """What a limit leaves beside static power. Raises InputError where that is nothing."""
    left = watts - architecture.accelerator.static_power_w
    if not left > 0:
        raise InputError(f"the {key.replace('_', ' ')} is no more than the static power", path=f"kernels.{key}")
    return float(left)


def _working(rows: Sequence[Row], most: Array) -> Any:
    """Share of the fullest accelerator's time that the mean one works, as its joules are of the fullest's: the others wait."""
    if all(isinstance(row.more, float) for row in rows):
        return 1.0
    joules = np.asarray(sum((row.joules for row in rows), np.zeros_like(most)))
    return np.divide(joules, most, out=np.ones_like(most), where=most > 0)
