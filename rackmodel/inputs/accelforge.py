"""Architectures of AccelForge (`arch: {nodes: [...]}`) → stages.

Sizes are in bits, energies in J/bit, throughputs in bit/s of one instance; reads and writes share a port; `spatial` is a
fan above the node; an action of a compute is one MAC.
"""

from __future__ import annotations

from math import inf

from rackmodel.errors import InputError
from rackmodel.inputs.marked import Marked
from rackmodel.inputs.stages import Notes, Stage, Walk, children, complete, name_of, number, rows, table, tag_of, whole


def stages(arch: Marked, notes: Notes) -> list[Stage]:
    """Memories and compute of an AccelForge architecture, outer to inner. Raises InputError."""
    notes.unknown_keys(arch, ("nodes",), "arch")
    walk = Walk(notes, None)
    for node in children(arch):
        tag, name = tag_of(node), name_of(node)
        _spatial(node, name, walk)
        if tag == "!Memory":
            walk.put(_memory(node, name, notes))
        elif tag == "!Compute":
            walk.put(_compute(node, name, notes))
        elif tag == "!Container":
            notes.unknown_keys(node, ("name", "spatial"), name)
        else:
            notes.add(node.where, f"{name}: not imported ({tag})")
    return complete(walk.stages, arch)


def _spatial(node: Marked, name: str, walk: Walk) -> None:
    """Dimensions of a fan: the first is x, the others are y."""
    path = f"{name}.spatial"
    for position, dimension in enumerate(rows(node, "spatial", path)):
        fanout = dimension.child("fanout")
        count = whole(fanout, f"{path}.fanout") if fanout is not None else 1
        walk.spread(count if position == 0 else 1, count if position else 1, node, name)
        walk.notes.unknown_keys(dimension, ("name", "fanout", "may_reuse"), path)
        reuse = dimension.child("may_reuse")
        if reuse is not None and reuse.value != "All":
            walk.notes.add(reuse.where, f"{path}.may_reuse: not imported, all tensors are multicast")


def _common(node: Marked, stage: Stage, known: tuple[str, ...], notes: Notes) -> None:
    notes.unknown_keys(node, ("name", "actions", "spatial", "leak_power", "area", *known), stage.name)
    for key in ("leak_power", "area"):
        given = node.child(key)
        value = number(given, f"{stage.name}.{key}") if given is not None else 0.0
        if key == "leak_power":
            stage.static_w = value
        elif value:
            notes.add(node.keys[key], f"{stage.name}.{key}: not imported")


def _actions(node: Marked, stage: Stage, notes: Notes) -> dict[str, float]:
    """Energy of every action into the stage; returns throughputs."""
    speeds: dict[str, float] = {}
    for action in rows(node, "actions", f"{stage.name}.actions"):
        kind = name_of(action)
        path = f"{stage.name}.{kind}"
        notes.unknown_keys(action, ("name", "energy", "throughput"), path)
        if kind not in (("compute",) if stage.compute else ("read", "write")):
            notes.add(action.where, f"{path}: not imported")
            continue
        energy, speed = action.child("energy"), action.child("throughput")
        stage.energy[kind] = number(energy, f"{path}.energy") if energy is not None else 0.0
        speeds[kind] = number(speed, f"{path}.throughput") if speed is not None else inf
    return speeds


def _memory(node: Marked, name: str, notes: Notes) -> Stage:
    stage = Stage(name, node.where)
    _common(node, stage, ("size", "tensors"), notes)
    size = node.child("size")
    bits = number(size, f"{name}.size") if size is not None else inf
    stage.capacity_bits = bits if bits < inf else None
    speeds = _actions(node, stage, notes)
    slowest = min(speeds.values(), default=inf)
    stage.read_bits_per_s = slowest if slowest < inf else None
    if len(set(speeds.values())) > 1:
        notes.add(node.where, f"{name}: read and write throughput differ, the lower is taken for the shared port")
    tensors = table(node, "tensors", f"{name}.tensors")
    if tensors is not None:
        notes.unknown_keys(tensors, ("keep", "may_keep"), f"{name}.tensors")
        keep, may = tensors.child("keep"), tensors.child("may_keep")
        if keep is not None and keep.value != "All":
            notes.add(keep.where, f"{name}.tensors.keep: '{keep.value}' not imported, the mapper chooses what is stored here")
            stage.keep = []
        elif may is not None and may.value != "All" and keep is None:
            notes.add(may.where, f"{name}.tensors.may_keep: '{may.value}' not imported, the mapper chooses what is stored here")
            stage.keep = []
    return stage


def _compute(node: Marked, name: str, notes: Notes) -> Stage:
    stage = Stage(name, node.where, compute=True)
    _common(node, stage, (), notes)
    stage.macs_per_s = _actions(node, stage, notes).get("compute", inf)
    if not 0 < stage.macs_per_s < inf:
        raise InputError("want an action 'compute' with a throughput", where=node.where, path=name)
    return stage
