"""What of a priced mapping fits no memory: the accelerators', the level's that takes what is offloaded, a home's above them.

A search leaves such mappings out; `evaluate` prices them as if there were room, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rackmodel.cost.step.exact import ExactStep
from rackmodel.cost.step.tasks.offload import host_of
from rackmodel.model.architecture import Architecture
from rackmodel.model.room import room_of
from rackmodel.units import bytes_text

ROUNDING = 1e-9


def misfits(exact: ExactStep, held: Mapping[str, float]) -> tuple[str, ...]:
    """A sentence for each memory that a mapping overflows. held: bytes by what holds them on the fullest accelerator."""
    architecture = exact.machines[exact.fullest[0]]
    name, room = architecture.accelerator.name, room_of(architecture, exact.job.profile)
    found = [_over(f"one {name}", sum(held.values()), room.bytes, room.text)]
    if exact.structure.offload:
        host = host_of(architecture, exact.job.host)
        found.append(_over(f"'{host.level}', for one {name},", float(exact.bound().host.max()), host.capacity_bytes))
    for level, need in at_home(exact).items():
        found.append(_over(f"'{level}'", need, _capacity(architecture, level)))
    return tuple(said for said in found if said)


def at_home(exact: ExactStep) -> dict[str, float]:
    """Level → bytes of the whole model that live there."""
    counts = [section.repeat for section in exact.sections] if exact.staged else exact.structure.cut.counts.sum(axis=0)
    found: dict[str, float] = {}
    for cost, count in zip(exact.priced_layers, counts, strict=True):
        for level, size in cost.home.items():
            found[level] = found.get(level, 0.0) + float(count) * float(np.max(size))
    return found


def _capacity(architecture: Architecture, level: str) -> float:
    """Bytes of a home and of all in use that are like it; what states none, or none that counts, has room for all."""
    memory = architecture.level(level).memory
    if memory is None or memory.capacity_bytes is None or not memory.enforce:
        return float("inf")
    return memory.capacity_bytes * architecture.instances()[level]


def _over(what: str, need: float, have: float, said: str = "") -> str:
    if need <= have * (1 + ROUNDING):
        return ""
    return f"does not fit: {what} needs {bytes_text(need)}, it has {said or bytes_text(have)}; priced as if it did"
