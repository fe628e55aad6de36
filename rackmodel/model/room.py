"""How much of an accelerator's memory a plan may hold: what drivers show, less what the runtime of a profile keeps for itself.

    room = capacity x visible - reserved

Without `visible` that is the capacity, without `reserved` all that drivers show; a memory without a capacity, or one that does not enforce
it, has room for everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from rackmodel.units import bytes_text

if TYPE_CHECKING:
    from rackmodel.model.architecture import Architecture
    from rackmodel.model.profile import ProfileSpec


@dataclass(frozen=True)
class Room:
    """visible: bytes that drivers show of one accelerator, inf where nothing limits · reserved: bytes of them that the runtime keeps."""

    visible: float
    reserved: float

    @property
    def bytes(self) -> float:
        """What is left to a plan."""
        return max(self.visible - self.reserved, 0.0)

    @property
    def limit(self) -> float | None:
        """The same; None where nothing limits."""
        return self.bytes if self.bytes < inf else None

    @property
    def text(self) -> str:
        """'80 GB', or '83.5 GB: 84.94 GB less 1.45 GB of the runtime'."""
        said = bytes_text(self.bytes)
        return f"{said}: {bytes_text(self.visible)} less {bytes_text(self.reserved)} of the runtime" if self.reserved else said


def room_of(machine: Architecture, profile: ProfileSpec) -> Room:
    """Of one accelerator of a machine, for plans under a profile."""
    memory = machine.accelerator.memory
    visible = memory.visible_bytes if memory is not None and memory.enforce else None
    return Room(inf if visible is None else visible, profile.reserved_bytes)


def capacity_for(machine: Architecture, profile: ProfileSpec, need: float) -> float:
    """Bytes of the data sheet's capacity with which an accelerator has room for so many."""
    memory = machine.accelerator.memory
    return need if memory is None else (need + profile.reserved_bytes) / memory.visible
