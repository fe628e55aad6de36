"""Offload: what a layer keeps at a level above the accelerators instead, and the traffic that follows.

    weights       the parameter comes in for the forward and for the backward pass, its gradient goes out
    activations   what is saved goes out after the forward pass and comes back for the backward pass
    optimizer     gradient's worth of state comes in for the update and goes out again

The copies run beside compute where the profile lets weights do so. Two layers' worth stays on the device (one in use, one
under way). The bytes are those that the plan holds: nothing is counted by hand. Source: ZeRO-Offload (Ren 2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.inside.roofline import Row
from rackmodel.cost.program.tasks import Task
from rackmodel.cost.step.sections import Item, LayerCost
from rackmodel.errors import InputError
from rackmodel.model.architecture import Architecture

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Host:
    """The level that takes what is offloaded. bytes_per_s: of one accelerator · capacity_bytes: for one accelerator."""

    level: str
    bytes_per_s: float
    capacity_bytes: float
    read_j_per_byte: float
    write_j_per_byte: float


def host_of(architecture: Architecture, name: str | None) -> Host:
    """The host level by name, or the innermost level above the accelerators that has a memory. Raises InputError."""
    above = [level for level in architecture.above if level.memory is not None]
    known = [level.name for level in above]
    if name is None and not above:
        raise InputError(f"{architecture.name} has no memory above its accelerators to offload to", path="offload")
    level = next((level for level in above if level.name == name), None) if name is not None else above[-1]
    if level is None or level.memory is None:
        raise InputError(f"no memory at a level '{name}' above the accelerators", path="host", known=known, given=name)
    below = architecture.available
    for upper in architecture.above:
        below //= upper.count
        if upper.name == level.name:
            break
    memory = level.memory
    if memory.bandwidth_bytes_per_s is None:
        raise InputError(f"the memory of '{level.name}' states no bandwidth", path="host")
    return Host(
        level.name,
        memory.bandwidth_bytes_per_s / below,
        (memory.capacity_bytes or np.inf) / below,
        memory.read_j_per_byte,
        memory.write_j_per_byte,
    )


def offloaded(cost: LayerCost, what: Sequence[str], host: Host, accelerators: NDArray[np.int64]) -> LayerCost:
    """The same layer with some of what it holds at the host. accelerators: [n] of a stage."""
    items: list[Item] = list(cost.items)
    held, moved = dict(cost.held), np.zeros_like(cost.joules)
    seconds, once = dict(cost.seconds), cost.joules_once
    flight = np.zeros_like(cost.joules)
    fixed = np.zeros_like(cost.joules)

    def copy(name: str, size: Array, action: str, bin_name: str, part: str, phase: str) -> Array:
        """Add one copy to or from the host; its joules."""
        if not size.any():
            return np.zeros_like(size)
        energy = size * accelerators * (host.read_j_per_byte if action == "read" else host.write_j_per_byte)
        time = size / host.bytes_per_s
        row = Row(name, host.level, "memory", action, size * accelerators, "byte", energy, time, time)
        task = Task("load" if action == "read" else "store", phase, "", name, 0, action, (), "weights", once=bin_name == "update")
        items.append(Item(task, bin_name, part, (row,), time))
        key = (bin_name, part)
        seconds[key] = seconds[key] + time if key in seconds else time
        return energy

    zero = np.zeros_like(cost.joules)
    if "weights" in what:
        for name, bin_part in (("weights", "forward"), ("weights", "backward")):
            moved = moved + copy(name, held.get("weights", zero), "read", "gather", bin_part, bin_part)
        moved = moved + copy("gradients", held.get("gradients", zero), "write", "gather", "backward", "backward")
        fixed = fixed + held.get("weights", zero) + held.get("gradients", zero)
        held["gathered"] = np.maximum(held.get("gathered", zero), held.get("weights", zero) + held.get("gradients", zero))
        held["weights"] = held["gradients"] = zero
    if "activations" in what:
        kept = held.get("activations", zero)
        moved = moved + copy("activations", kept, "write", "gather", "forward", "forward")
        moved = moved + copy("activations", kept, "read", "gather", "backward", "backward")
        flight = flight + kept
        held["remade"] = held.get("remade", zero) + 2.0 * kept
        held["activations"] = zero
    if "optimizer" in what:
        state = held.get("optimizer", zero)
        once = once + copy("state", state, "read", "update", "optimizer", "optimizer")
        once = once + copy("state", state, "write", "update", "optimizer", "optimizer")
        fixed = fixed + state
        held["optimizer"] = zero
    held["host"], held["host in flight"] = fixed, flight
    return replace(cost, items=tuple(items), seconds=seconds, weights_j=cost.weights_j + moved, joules_once=once, held=held)
