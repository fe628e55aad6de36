"""Architectures of Timeloop v4 (`architecture: {version: 0.4, nodes: [...]}`) → stages.

Capacity is depth x width bits; bandwidths are words of `datawidth` bits a cycle; `spatial` is a fan above the node; a
compute does one MAC a cycle. What the mapper may do with a tensor follows `keep` and `bypass`; without them it is free.
"""

from __future__ import annotations

from math import inf

from rackmodel.errors import InputError, Where
from rackmodel.inputs.marked import Marked
from rackmodel.inputs.stages import ROLE_OF, Notes, Stage, Walk, children, complete, name_of, number, rows, table, tag_of, whole

_MEMORY_WORDS = ("dram", "sram", "regfile", "buffer", "storage", "_rf", "latch", "memory", "cache")
_COMPUTE_WORDS = ("mac", "compute")
_SPEEDS = ("read_bandwidth", "write_bandwidth", "shared_bandwidth")
_OF_MEMORY = ("depth", "width", "datawidth", "block_size", "cluster_size", "multiple_buffering", "global_cycle_seconds", *_SPEEDS)
_OF_ALL = ("datawidth", "global_cycle_seconds")


def stages(architecture: Marked, notes: Notes, cycle: float | None) -> list[Stage]:
    """Memories and compute of a Timeloop v4 architecture, outer to inner. Raises InputError."""
    version = architecture.child("version")
    if "subtree" in architecture.mapping or (version is not None and str(version.value) not in ("0.4", "4", "4.0")):
        raise InputError("want Timeloop version 0.4 (a list of nodes)", where=architecture.where, path="architecture")
    notes.unknown_keys(architecture, ("version", "nodes"), "architecture")
    walk = Walk(notes, cycle)
    _nodes(architecture, walk)
    return complete(walk.stages, architecture)


def _nodes(parent: Marked, walk: Walk) -> None:
    for node in children(parent):
        tag = tag_of(node)
        if tag == "!Hierarchical":
            walk.notes.unknown_keys(node, ("nodes", "name"), "Hierarchical")
            _nodes(node, walk)
        elif tag == "!Parallel":
            _parallel(node, walk)
        elif tag == "!Container":
            name = name_of(node)
            walk.notes.unknown_keys(node, ("name", "attributes", "spatial", "constraints"), name)
            walk.inherited |= _attributes(node, name, _OF_ALL, walk)
            _spatial(node, name, walk)
            _constraints(node, name, walk.notes, None)
        elif tag == "!Component":
            _component(node, walk)
        else:
            raise InputError(f"{tag} is no node of Timeloop", where=node.where, path="nodes")


def _parallel(node: Marked, walk: Walk) -> None:
    """Memories side by side, each for its own tensors, are the same as one below the other that bypass each other's."""
    walk.notes.unknown_keys(node, ("nodes", "name"), "Parallel")
    first = len(walk.stages)
    _nodes(node, walk)
    side = walk.stages[first:]
    for stage in side:
        others = [word for other in side if other is not stage for word in other.keep or ()]
        if stage.compute or not stage.keep or (stage.x * stage.y > 1 and stage is not side[0]) or set(stage.keep) & set(others):
            fact = "parallel nodes must be memories, each with the tensors that it alone keeps"
            raise InputError(fact, where=stage.where, path=stage.name)
        stage.bypass = list(dict.fromkeys([*stage.bypass, *others]))
    walk.notes.add(node.where, f"parallel memories are read as one below the other: {', '.join(stage.name for stage in side)}")


def _attributes(node: Marked, name: str, known: tuple[str, ...], walk: Walk) -> dict[str, Marked]:
    attributes = table(node, "attributes", f"{name}.attributes")
    if attributes is None:
        return {}
    walk.notes.unknown_keys(attributes, known, f"{name}.attributes")
    return {key: value for key, value in attributes.mapping.items() if key in known}


def _spatial(node: Marked, name: str, walk: Walk) -> None:
    spatial = table(node, "spatial", f"{name}.spatial")
    if spatial is None:
        return
    walk.notes.unknown_keys(spatial, ("meshX", "meshY"), f"{name}.spatial")
    across = {key: whole(value, f"{name}.spatial.{key}") for key, value in spatial.mapping.items() if key in ("meshX", "meshY")}
    walk.spread(across.get("meshX", 1), across.get("meshY", 1), node, name)


def _constraints(node: Marked, name: str, notes: Notes, stage: Stage | None) -> None:
    constraints = table(node, "constraints", f"{name}.constraints")
    if constraints is None:
        return
    for key, child in constraints.mapping.items():
        if key != "dataspace" or stage is None:
            notes.add(constraints.keys[key], f"{name}.constraints.{key}: not imported (a mapper file says what is searched)")
            continue
        path = f"{name}.constraints.dataspace"
        data = table(constraints, key, path) or child
        notes.unknown_keys(data, ("keep", "bypass"), path)
        stage.keep, stage.bypass = _tensors(data, "keep", path), _tensors(data, "bypass", path)


def _tensors(node: Marked, key: str, path: str) -> list[str]:
    return [ROLE_OF.get(str(item.value), str(item.value)) for item in rows(node, key, f"{path}.{key}")]


def _component(node: Marked, walk: Walk) -> None:
    name = name_of(node)
    kind = node.child("class")
    word = str(kind.value).lower() if kind is not None else name.lower()
    attributes = table(node, "attributes", f"{name}.attributes")
    stores = (attributes is not None and "depth" in attributes.mapping) or any(part in word for part in _MEMORY_WORDS)
    if not stores and not any(part in word for part in _COMPUTE_WORDS):
        walk.notes.add(node.where, f"{name}: not imported (class '{word}' is neither a memory nor a compute)")
        return
    walk.notes.unknown_keys(node, ("name", "class", "attributes", "spatial", "constraints"), name)
    own = _attributes(node, name, _OF_MEMORY if stores else _OF_ALL, walk)
    values = {key: number(value, f"{name}.attributes.{key}") for key, value in {**walk.inherited, **own}.items()}
    _spatial(node, name, walk)
    if stores:
        stage = _memory(Stage(name, node.where), values, walk)
        _stored(node, stage, walk)
    else:
        stage = Stage(name, node.where, compute=True, macs_per_s=1 / _seconds(values, walk, node.where, name))
        _constraints(node, name, walk.notes, None)
    walk.put(stage)


def _stored(node: Marked, stage: Stage, walk: Walk) -> None:
    """What is kept and bypassed; the outermost memory holds everything, another what the mapper likes where nothing is said."""
    if walk.stages:
        stage.keep = []
        _constraints(node, stage.name, walk.notes, stage)
    else:
        _constraints(node, stage.name, walk.notes, None)


def _seconds(values: dict[str, float], walk: Walk, where: Where, name: str) -> float:
    cycle = walk.cycle or values.get("global_cycle_seconds")
    if not cycle:
        raise InputError("no cycle time: give --clock '1 GHz', or global_cycle_seconds in a file", where=where, path=name)
    return cycle


def _memory(stage: Stage, values: dict[str, float], walk: Walk) -> Stage:
    word = values.get("datawidth")
    width = values.get("width") or (word or 0) * values.get("block_size", 1) * values.get("cluster_size", 1)
    stage.action_bits = width if 0 < width < inf else None
    if "depth" in values and stage.action_bits:
        stage.capacity_bits = values["depth"] * width if values["depth"] < inf else None
    elif "depth" in values:
        walk.notes.add(stage.where, f"{stage.name}.attributes.depth: not imported, the component states no width")
    buffers = values.get("multiple_buffering", 1)
    stage.buffers = 2 if buffers == 2 else 1
    if buffers not in (1, 2):
        walk.notes.add(stage.where, f"{stage.name}.attributes.multiple_buffering: {buffers:g} is read as 1 (1 or 2 are known)")
    _ports(stage, values, walk)
    return stage


def _ports(stage: Stage, values: dict[str, float], walk: Walk) -> None:
    """Bandwidths in words a cycle, by port; `shared_bandwidth` means one port."""
    speeds = {key: values[key] for key in _SPEEDS if values.get(key, inf) < inf}
    if not speeds:
        return
    word = values.get("datawidth")
    if not word:
        walk.notes.add(stage.where, f"{stage.name}.attributes: {', '.join(speeds)} not imported, the component states no datawidth")
        return
    shared = speeds.pop("shared_bandwidth", None)
    if shared is not None and speeds:
        walk.notes.add(stage.where, f"{stage.name}.attributes: {', '.join(speeds)} not imported beside shared_bandwidth")
    per_word = word / _seconds(values, walk, stage.where, stage.name)
    read, write = (shared, None) if shared is not None else (speeds.get("read_bandwidth"), speeds.get("write_bandwidth"))
    stage.split = shared is None
    stage.read_bits_per_s = read * per_word if read is not None else None
    stage.write_bits_per_s = write * per_word if write is not None else None
