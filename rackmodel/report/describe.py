"""Inputs in words: an architecture as a tree, a workload as its graph, a mapper as its space."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import yaml

from rackmodel.cost.network.topologies import topology_of
from rackmodel.cost.step.ledger import static_watts
from rackmodel.mapper.mapspace import Mapspace
from rackmodel.model.architecture import Architecture, Level, Network
from rackmodel.model.mapping import MapperSpec, homes_of
from rackmodel.model.resources import Compute
from rackmodel.model.workload import Workload
from rackmodel.report.tables import format_si

WIDE = 80


def tree_lines(architecture: Architecture) -> list[str]:
    """What the accelerators in use have together, and a line or more a level, indented, with what one instance has."""
    lines = [f"{architecture.name}: {architecture.used} of {architecture.available} accelerators in use", *_sums(architecture)]

    def walk(level: Level, depth: int) -> None:
        lines.extend(_in_lines(_level(level), depth))
        for child in level.children:
            walk(child, depth + 1)

    walk(architecture.tree, 1)
    return lines


def _in_lines(parts: Sequence[str], depth: int) -> list[str]:
    """What a level has, in lines of at most WIDE columns, broken between its parts."""
    lines, head, more = [""], "  " * depth, "  " * (depth + 2)
    for part in parts:
        start = head if len(lines) == 1 else more
        joined = f"{lines[-1]} · {part}" if lines[-1] else part
        lines = [*lines, part] if lines[-1] and len(start + joined) > WIDE else [*lines[:-1], joined]
    return [head + lines[0], *(more + line for line in lines[1:])]


def _sums(architecture: Architecture) -> list[str]:
    """Peak rates by width, memory and idle power of the accelerators in use, kind by kind."""
    pools = architecture.pools
    if len(pools) > 1:
        watts = static_watts(architecture)
        kinds = [line for pool in pools for line in _in_lines([f"{pool.used} of {pool.accelerator.name}", *_totals(pool)], 1)]
        return [*kinds, *(_in_lines([f"static {format_si(watts, 'W')}"], 1) if watts else [])]
    watts = static_watts(architecture)
    return _in_lines([*_totals(architecture), *([f"static {format_si(watts, 'W')}"] if watts else [])], 1)


def _totals(architecture: Architecture) -> list[str]:
    """Peak rates by width, and memory, of accelerators of one kind."""
    used, accelerator = architecture.used, architecture.accelerator
    level, count = next((level, number) for level, number in reversed(architecture.inside) if level.compute is not None)
    assert level.compute is not None
    each = {key: rate.rate_flop_per_s for key, rate in level.compute.precisions.items()}
    if not each and level.compute.rate_flop_per_s is not None:
        each = {"": level.compute.rate_flop_per_s}
    rates = [f"{format_si(used * count * rate, 'FLOP/s')} {width}".strip() for width, rate in each.items()]
    parts = [f"together {', '.join(rates)}"]
    if accelerator.memory is not None and accelerator.memory.capacity_bytes:
        size, speed = accelerator.memory.capacity_bytes, accelerator.memory.bandwidth_bytes_per_s
        parts.append(" ".join(["memory", format_si(used * size, "B"), *([format_si(used * speed, "B/s")] if speed else [])]))
    return parts


def _level(level: Level) -> list[str]:
    parts = [f"{level.name}" + (f" x{level.count}" if level.count > 1 else "") + (" (accelerator)" if level.accelerator else "")]
    if level.memory is not None:
        size = format_si(level.memory.capacity_bytes, "B") if level.memory.capacity_bytes else "unlimited"
        speed = f" {format_si(level.memory.bandwidth_bytes_per_s, 'B/s')}" if level.memory.bandwidth_bytes_per_s else ""
        read, write = (_per_bit(joules) for joules in (level.memory.read_j_per_byte, level.memory.write_j_per_byte))
        energy = f" {read}" if read == write else f" {read or 0} read, {write or 0} written"
        parts.append(f"memory {size}{speed}{energy.rstrip()}{' backing' if level.memory.backing else ''}")
    if level.compute is not None:
        parts += _compute(level.compute)
    if level.network is not None:
        n = level.network
        shape = "x".join(map(str, n.shape or ()))
        told = [n.topology, shape, format_si(n.bandwidth_bytes_per_s, "B/s"), _per_bit(n.energy_j_per_byte)]
        told += [format_si(n.latency_s, "s") + " a hop"] if n.latency_s else []
        told += [f"oversubscribed {n.oversubscription:g}"] if n.oversubscription != 1 else []
        told += ["by the links below"] if n.same_links else []
        parts.append(f"network {' '.join(word for word in told if word)}")
        parts += _neighbours(n)
    if level.static_power_w:
        hosts = f" of {level.hosts} hosts" if level.hosts > 1 else ""
        parts.append(f"static {format_si(level.static_power_w, 'W')}{hosts}")
    return parts


def _neighbours(network: Network) -> list[str]:
    """Where children stand in lines that are joined at their ends: how many links one has to both neighbours of a line, left and right,
    which share them."""
    ways = topology_of(network).ways(network, 2)
    if ways is None or not ways.wraps:
        return []
    count = f"{network.links} link{'s' if network.links > 1 else ''}" if network.links else "one link an accelerator"
    return [f"both neighbours by {count}"]


def _compute(compute: Compute) -> list[str]:
    """Rates and energies of its matrix operations, by width where they differ, and of its vector operations."""
    rates = [(key, rate.rate_flop_per_s, rate.energy_j_per_flop) for key, rate in compute.precisions.items()]
    if compute.rate_flop_per_s is not None:
        rates.append(("", compute.rate_flop_per_s, compute.energy_j_per_flop))
    if compute.vector is not None:
        rates.append(("vector", compute.vector.rate_flop_per_s, compute.vector.energy_j_per_flop))
    told = [(key, format_si(rate, "FLOP/s"), f"{joules * 1e12:.3g} pJ/FLOP" if joules else "") for key, rate, joules in rates]
    return ["compute " + " ".join(word for word in one if word) for one in told]


def _per_bit(joules_per_byte: float) -> str:
    return f"{joules_per_byte / 8 * 1e12:.3g} pJ/bit" if joules_per_byte else ""


def graph_lines(workload: Workload) -> list[str]:
    """One line an operation: its statement, size and what it waits for."""
    repeat = f", repeated {workload.repeat} times" if workload.repeat > 1 else ""
    lines = [f"{workload.name}: {len(workload.ops)} operations, phases {', '.join(workload.phases)}{repeat}"]
    for op in workload.ops.values():
        waits = list(dict.fromkeys(workload.producer[a.tensor] for a in op.ins if a.tensor in workload.producer))
        after = f"   after {', '.join(waits)}" if waits else ""
        lines.append(f"  {op.name}: {op.statement}{after}")
    lines.append("tensors:")
    for tensor in workload.tensors.values():
        shape = ", ".join(f"{rank} {size}" for rank, size in zip(tensor.ranks, tensor.sizes, strict=True))
        density = f", density {tensor.density:g}" if tensor.density != 1 else ""
        lines.append(f"  {tensor.name} [{shape}] {tensor.kind}, {format_si(tensor.bytes, 'B')}{density}")
    return lines


def mapper_lines(mapper: MapperSpec) -> list[str]:
    """What a mapper file declares."""
    how = f"profile {mapper.profile or 'ideal'}, solver {mapper.solver}, uneven {_yaml(mapper.uneven)}"
    lines = [f"{mapper.name}: minimizes {_yaml(mapper.minimize)}, {how}"]
    for name, axis in mapper.axes.items():
        where = f", placed {axis.place}" if axis.place else ""
        split = _yaml(mapper.split.get(name, "nothing"))
        what = f"stages {axis.stages}" if axis.stages else f"degree {_yaml(axis.degree)}{where}, splits {split}"
        lines.append(f"  axis {name}: {what}")
    for name, said in mapper.homes.items():
        lines += [
            f"  home of {name}: "
            + (f"level {home.at}" if home.at else f"parameter {home.param}, gradient {home.grad}, state {home.state}" + _over(home.axes))
            for home in homes_of(said)
        ] or [f"  home of {name}: free"]
    return [*lines, *(line for key, value in _searched(mapper).items() for line in _value_lines(key, value))]


def _searched(mapper: MapperSpec) -> dict[str, object]:
    """What else a mapper states, as its file writes it."""
    told = {"name", "axes", "split", "homes", "uneven", "profile", "solver", "minimize", "source", "note"}
    return {key: value for key, value in mapper.model_dump(mode="json", exclude_defaults=True).items() if key not in told}


def _value_lines(key: str, value: object) -> list[str]:
    """'  recompute: [none, full]'; a mapping of mappings a line each."""
    if isinstance(value, dict) and all(isinstance(inner, dict) for inner in value.values()):
        return [f"  {key}:", *(f"    {name}: {_yaml(inner)}" for name, inner in value.items())]
    return [f"  {key}: {_yaml(value)}"]


def _over(axes: Sequence[str]) -> str:
    return f" over {_yaml(list(axes))}" if axes else ""


def _yaml(said: object) -> str:
    """A value as a file writes it: [h, [g, q], f], without quotes that it does not need."""
    return str(yaml.safe_dump(said, default_flow_style=True, width=10_000)).removesuffix("...\n").strip()


MESHES = 40  # shown at most


def _mesh_text(axes: Sequence[str], degrees: Iterable[int], strides: Iterable[int], stages: int) -> str:
    parts = [f"{a} {d} (stride {s})" for a, d, s in zip(axes, degrees, strides, strict=True)]
    return ", ".join([*parts, *([f"pipeline {stages}"] if stages > 1 else [])]) or "one accelerator"


def space_lines(space: Mapspace) -> list[str]:
    """The meshes and the number of mappings."""
    lines = [f"space: {space.size:.6g} mappings on {space.meshes} meshes of {space.accelerators} accelerators for {space.workload.name}"]
    shown: dict[str, float] = {}
    for group in space.groups:
        columns = group.columns
        for at in range(len(columns)):
            mesh = _mesh_text(columns.axes[:-1], columns.degrees[at, :-1], columns.strides[at, :-1], int(columns.stages[at]))
            shown[mesh] = shown.get(mesh, 0.0) + len(group.variants)
    for problem in space.problems:
        mesh = _mesh_text(problem.mesh.axes[:-1], problem.mesh.degrees[:-1], problem.mesh.strides[:-1], 1)
        shown[mesh] = shown.get(mesh, 0.0) + problem.size
    for mesh, count in list(shown.items())[:MESHES]:
        lines.append(f"  {mesh}: {count:.6g} {'mapping' if count == 1 else 'mappings'}")
    if len(shown) > MESHES:
        lines.append(f"  and {len(shown) - MESHES} more meshes")
    for reason, count in space.skipped.items():
        lines.append(f"  left out: {count:g} meshes ({reason})")
    if space.note:
        lines.append(f"  {space.note}")
    return lines
