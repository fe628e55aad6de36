"""Nothing fits: which resource, how much is needed, how much there is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rackmodel.errors import InfeasibleError
from rackmodel.mapper.points import Point
from rackmodel.model.architecture import Architecture
from rackmodel.units import byte_unit, bytes_text, capacity_text

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Nearest:
    """The point that needs least memory. need: bytes on its fullest accelerator · host, host_have: bytes at the host, needed and there."""

    need: float
    point: Point
    host: float
    host_have: float


def home_misses(architecture: Architecture, home: Mapping[str, Array], plans: int) -> tuple[NDArray[np.bool_], InfeasibleError | None]:
    """([plans] whether what lives above the accelerators fits its level, why none does). home: level → [plans] bytes."""
    fits = np.ones(plans, dtype=bool)
    problem: InfeasibleError | None = None
    for level, need in home.items():
        memory = architecture.level(level).memory
        if memory is None or memory.capacity_bytes is None or not memory.enforce:
            continue
        have = memory.capacity_bytes * architecture.level(level).count
        fits &= need <= have
        if problem is None and not (need <= have).any():
            short = float(need.min())
            problem = InfeasibleError(
                f"memory: {level} needs {bytes_text(short)}, it has {bytes_text(have)}; short by {bytes_text(short - have)}",
                resource=f"{level}.memory",
                need=short,
                have=have,
                unit="byte",
                change=f"{level}.memory.capacity='{capacity_text(short / architecture.level(level).count)}'",
            )
    return fits, problem


def over_memory(name: str, need: float, have: float, held: Mapping[str, float]) -> InfeasibleError:
    """One accelerator holds too much. held: bytes by what holds them."""
    unit = byte_unit(need)[0]
    parts = ", ".join(f"{what} {size / unit:.4g}" for what, size in held.items() if size)
    short = bytes_text(need - have)
    message = f"memory: one {name} needs {bytes_text(need)} at least, it has {bytes_text(have)} ({parts}); short by {short}"
    return InfeasibleError(message, resource=f"{name}.memory", need=need, have=have, unit="byte")


def over_limit(limits: Mapping[str, float], static_w: float, nearest: Nearest) -> InfeasibleError:
    """Every point breaks a limit, or the host's memory."""
    if nearest.host > nearest.host_have:
        message = f"memory: the host must keep {bytes_text(nearest.host)} for one accelerator, it has {bytes_text(nearest.host_have)}"
        return InfeasibleError(message, resource="host.memory", need=nearest.host, have=nearest.host_have, unit="byte")
    said = ", ".join(f"{name} {most:.4g}" for name, most in limits.items() if name != "memory") or "no limit"
    watts = limits.get("power")
    if watts is not None:
        message = f"power: no step of the space stays below {watts:.4g} W (static power alone is {static_w:.4g} W)"
        return InfeasibleError(message, resource="power", need=static_w, have=watts, unit="watt")
    name, most = next(((name, most) for name, most in limits.items() if name != "memory"), ("mapping", 0.0))
    unit = {"latency": "second", "energy": "joule"}.get(name, "mapping")
    return InfeasibleError(f"no step of the space keeps the limits ({said})", resource=name, need=most, have=most, unit=unit)


def no_point(why: Mapping[str, float]) -> InfeasibleError:
    """No point of the space can run at all."""
    said = ", ".join(f"{count:g} by {reason}" for reason, count in why.items()) or "the space is empty"
    return InfeasibleError(f"no point of the space can run: {said}", resource="mapping", need=1.0, have=0.0, unit="mapping")
