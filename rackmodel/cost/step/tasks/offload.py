"""Offload: what a layer keeps at a level above the accelerators instead, and the copies that follow.

    weights       the parameter comes in for the forward and for the backward pass, its gradient goes out; in micro-batches after the
                  first the sum so far comes in before, and is added to on the device; for the update that sum comes in again, and the
                  new parameter goes out (of those that are trained)
    activations   what is saved goes out after the forward pass and comes back for the backward pass
    optimizer     gradient's worth of state comes in for the update and goes out again

A host serves the accelerators below it, each of which keeps its own there (a home, `homes: {at}`, serves all: gradients are summed on
their way up). Copies are tasks like any other: in a layer ahead, out behind. Two layers' worth stays on the device (one in use, one
under way). The bytes are those that the plan holds: nothing is counted by hand. Of m micro-batches each is charged (m - 1) / m of the
reading of a sum, which all but the first do. Source: ZeRO-Offload (Ren 2021); sums as DeepSpeed makes them (runtime/zero/stage3.py,
`partition_grads`: "adding directly to cpu is very slow").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rackmodel.arrays import Array
from rackmodel.cost.inside.roofline import Row
from rackmodel.cost.program.tasks import Task
from rackmodel.cost.step.columns import Columns
from rackmodel.cost.step.tasks.items import Item, Priced
from rackmodel.cost.step.tasks.layer_cost import LayerCost
from rackmodel.cost.step.tasks.layers import BACKWARD
from rackmodel.errors import InputError
from rackmodel.model.architecture import Architecture
from rackmodel.model.profile import Host

SUM_SO_FAR = ("gradients", "read", "backward")
COPIES = {
    "weights": (
        ("weights", "read", "forward"),
        ("weights", "read", "backward"),
        SUM_SO_FAR,
        ("gradients", "write", "backward"),
        ("gradients", "read", "optimizer"),
        ("weights", "write", "optimizer"),
    ),
    "activations": (("activations", "write", "forward"), ("activations", "read", "backward")),
    "optimizer": (("optimizer", "read", "optimizer"), ("optimizer", "write", "optimizer")),
}
"""What lives at the host → (what is copied, direction, phase)."""


@dataclass(frozen=True, kw_only=True)
class OffloadLevel:
    """The level that takes what is offloaded. bytes_per_s (out of it), written_bytes_per_s: of one accelerator's way there (PCIe), those
    of all that it serves being its bandwidth · capacity_bytes: of one accelerator in use, which share all of it."""

    level: str
    bytes_per_s: float
    written_bytes_per_s: float
    capacity_bytes: float
    read_j_per_byte: float
    write_j_per_byte: float


def host_of(architecture: Architecture, name: str | None) -> OffloadLevel:
    """The host level by name, or the innermost level above the accelerators that has a memory. Raises InputError."""
    above = [level for level in architecture.above if level.memory is not None]
    known = [level.name for level in above]
    if name is None and not above:
        raise InputError(f"{architecture.name} has no memory above its accelerators to offload to", path="offload")
    level = next((level for level in above if level.name == name), None) if name is not None else above[-1]
    if level is None or level.memory is None:
        raise InputError(f"no memory at a level '{name}' above the accelerators", path="host", known=known, given=name)
    below, memory = architecture.below(level.name), level.memory
    if memory.bandwidth_bytes_per_s is None:
        raise InputError(f"the memory of '{level.name}' states no bandwidth", path="host")
    return OffloadLevel(
        level=level.name,
        bytes_per_s=memory.bandwidth_bytes_per_s / below,
        written_bytes_per_s=(memory.port_bytes_per_s("write") or np.inf) / below,
        capacity_bytes=(memory.capacity_bytes or np.inf) / min(below, architecture.used),
        read_j_per_byte=memory.read_j_per_byte,
        write_j_per_byte=memory.write_j_per_byte,
    )


Copies = dict[tuple[object, ...], tuple[tuple[Array, Array], Item]]
"""What is copied, by the arrays of its bytes (kept here) and what else tells copies apart → the copy."""


def offloaded(
    cost: LayerCost,
    what: Sequence[str],
    host: OffloadLevel,
    columns: Columns,
    launching: Host,
    *,
    updated: bool,
    copies: Copies | None = None,
) -> LayerCost:
    """The same layer with some of what it holds at the host. launching: what a pass takes its host, under which copies in are hidden as far
    as the device does nothing · updated: whether a step ends with the weights' update · copies: of layers on the same columns, which
    calls share."""
    items, seconds, held = list(cost.items), dict(cost.seconds), dict(cost.held)
    copies = {} if copies is None else copies
    zero = np.zeros_like(cost.joules_device)
    last = {part: number for number, item in enumerate(cost.items) for part in [item.part] if item.role == "device"}
    last["backward"] = max(last.get("backward", -1), last.get("weight", -1))
    moved, once = zero, cost.joules_once
    copied: dict[str, Array] = {}
    again = 1.0 - 1.0 / columns.micro_batches
    for kept in what:
        for name, action, phase in COPIES[kept]:
            size, mean = _moved(cost, name, frozen=(name, action) != ("weights", "write"))
            part = again if (name, action, phase) == SUM_SO_FAR else 1.0
            if not np.any(size * part) or (kept == "weights" and phase == "optimizer" and not updated):
                continue
            key = id(size), id(mean), name, action, phase, last.get(phase, -1)
            if key not in copies:
                every: Array = mean * part * columns.per_stage
                copies[key] = (size, mean), _copy(name, (size * part, every), action, phase, host, last.get(phase, -1))
            item = copies[key][1]
            if action == "read" and phase != "optimizer" and name != "gradients":  # the pass begins with what is copied in
                _wait(items, phase, len(items))
                copied[phase] = copied.get(phase, zero) + item.seconds
            items.append(item)
            role = item.role, item.part
            seconds[role] = seconds[role] + item.seconds if role in seconds else item.seconds
            joules = item.rows[0].joules
            moved, once = (moved, once + joules) if phase == "optimizer" else (moved + joules, once)
    idle = {phase: _idle(cost, phase, launching) for phase in copied}
    ahead, behind = (np.maximum(copied[phase] - idle[phase], 0.0) if phase in copied else zero for phase in ("forward", "backward"))
    return replace(
        cost,
        lead=np.maximum(cost.lead, ahead),
        forward_wait=np.maximum(cost.forward_wait, ahead),
        backward_wait=np.maximum(cost.backward_wait, behind),
        items=tuple(items),
        seconds=seconds,
        joules_lanes=cost.joules_lanes + moved,
        joules_once=once,
        held=_kept(held, what, zero),
    )


def _moved(cost: LayerCost, name: str, *, frozen: bool) -> tuple[Array, Array]:
    """[n] bytes of what a layer holds under a name, on the fullest accelerator and in the mean. frozen: with weights that no update
    changes."""
    size = cost.held.get(name, np.zeros_like(cost.joules_device))
    mean = cost.held_mean.get(name, size)
    if frozen or "frozen" not in cost.held:
        return size, mean
    stays = cost.held["frozen"]
    return size - stays, mean - cost.held_mean.get("frozen", stays)


def _idle(cost: LayerCost, phase: str, launching: Host) -> Array:
    """[n] seconds of a layer's pass, at most, in which its device waits for the host's launches."""
    parts = (phase,) if phase == "forward" else BACKWARD
    busy = cost.time(*(("device", part) for part in parts)) - sum(cost.hidden.get(part, 0.0) for part in parts)
    launches = sum((cost.launches.get(part, 0) for part in parts), 0)
    return np.asarray(np.maximum(launching.seconds(launches, backward=phase == "backward") - busy, 0.0))


def _wait(items: list[Item], phase: str, copy: int) -> None:
    """Let the first operation of a pass wait for a copy."""
    parts = (phase,) if phase == "forward" else BACKWARD
    for number, item in enumerate(items):
        if item.part in parts and item.role == "device" and item.task.local_op is not None:
            items[number] = replace(item, task=replace(item.task, after=(*item.task.after, copy)))
            return


def _copy(name: str, sizes: tuple[Array, Array], action: str, phase: str, host: OffloadLevel, last: int) -> Item:
    """One copy to or from the host. sizes: bytes of the fullest accelerator, and of all · last: the pass's last operation, which a copy out
    follows; -1 = unknown."""
    size, every = sizes
    energy = every * (host.read_j_per_byte if action == "read" else host.write_j_per_byte)
    time = size / (host.bytes_per_s if action == "read" else host.written_bytes_per_s)
    row = Row(name, host.level, "memory", action, every, "byte", energy, time, time)
    after = (last,) if action == "write" and last >= 0 else ()
    kind = "load" if action == "read" else "store"
    task = Task(kind, phase, "", name, 0, action, after, "weights", once=phase == "optimizer")  # type: ignore[arg-type]
    role = "update" if phase == "optimizer" else "gather" if action == "read" else "reduce"
    return Item(task=task, role=role, part=phase, priced=Priced((row,), time))


def _kept(held: dict[str, Array], what: Sequence[str], zero: Array) -> dict[str, Array]:
    """What stays on the device, and what is at the host instead."""
    fixed = flight = zero
    if "weights" in what:
        here = held.get("weights", zero) + held.get("gradients", zero)
        fixed = fixed + here
        held["gathered"] = np.maximum(held.get("gathered", zero), here)
        held["weights"] = held["gradients"] = zero
    if "activations" in what:
        kept = held.get("activations", zero)
        flight = flight + kept
        held["remade"] = held.get("remade", zero) + 2.0 * kept
        held["activations"] = zero
    if "optimizer" in what:
        fixed = fixed + held.get("optimizer", zero)
        held["optimizer"] = zero
    held["host"], held["host in flight"] = fixed, flight
    return held
