"""What a kernel runs on: the facts of a GPU that the forms of all kernels read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rackmodel.errors import InputError
from rackmodel.model.architecture import Architecture
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.resources import Compute, Kernels


@dataclass(frozen=True)
class Gpu:
    """What a kernel runs on. facts: of its library · blocks: at work at once (SMs) · units: instances of `compute` ·
    memory: the accelerator's own memory level · split: whether its writes have a port of their own · bandwidth: its bytes a second ·
    cache: bytes that the level below it holds."""

    compute: Compute
    facts: Kernels
    blocks: int
    units: int
    memory: str
    split: bool
    bandwidth: float
    cache: float


def gpu_of(architecture: Architecture, facts: Kernels | None = None) -> Gpu | None:
    """What kernels run on; None where the part states no facts. facts: in place of the part's. Raises InputError where nothing says how
    blocks are dealt, or what a cache holds that is said to be fast."""
    level, units = architecture.computing
    compute = level.compute
    assert compute is not None
    if compute.kernels is None:
        return None
    facts = compute.kernels if facts is None else facts
    dealt = [n * place.fan.linear for place, n in architecture.inside if place.fan is not None and place.fan.linear]
    if not dealt:
        raise InputError(
            "kernel facts need a level whose fan is linear: to its children blocks are dealt in waves",
            path=f"tree.{level.name}.compute.kernels",
        )
    (place, memory, _), *inner = architecture.memories
    cache = (inner[0][1].capacity_bytes or 0.0) * inner[0][2] if inner else 0.0
    fast = next((name for name, grouped in facts.grouped.items() if grouped.cached > 1), None)
    if fast is not None and not cache:
        raise InputError("no level below the memory says what it holds", path=f"tree.{level.name}.compute.kernels.grouped.{fast}.cached")
    return Gpu(compute, facts, dealt[0], units, place.name, memory.ports == "split", memory.bandwidth_bytes_per_s or np.inf, cache)


def unmeasured(profile: ProfileSpec, architecture: Architecture) -> tuple[str, ...]:
    """A sentence where a profile asks for measured kernels of an accelerator that states none."""
    if profile.kernels == "peak":
        return ()
    without = [pool.accelerator.name for pool in architecture.pools if gpu_of(pool) is None]
    asks = f"profile '{profile.name}' runs {profile.kernels} kernels"
    return tuple(f"{asks}, of which {name} states none: operations run at its peak rates, a bound and no forecast" for name in without)
