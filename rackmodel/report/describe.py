"""Inputs in words: an architecture as a tree, a workload as its graph, a mapper as its space."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import yaml

from rackmodel.mapper.mapspace import Mapspace
from rackmodel.model.architecture import Architecture, Level
from rackmodel.model.mapping import MapperSpec, homes_of
from rackmodel.model.workload import Workload
from rackmodel.report.tables import format_si


def tree_lines(architecture: Architecture) -> list[str]:
    """One line a level, indented, with what it has."""
    lines = [f"{architecture.name}: {architecture.used} of {architecture.available} accelerators in use"]

    def walk(level: Level, depth: int) -> None:
        lines.append("  " * depth + _level(level))
        for child in level.children:
            walk(child, depth + 1)

    walk(architecture.tree, 1)
    return lines


def _level(level: Level) -> str:
    parts = [f"{level.name}" + (f" x{level.count}" if level.count > 1 else "") + (" (accelerator)" if level.accelerator else "")]
    if level.memory is not None:
        size = format_si(level.memory.capacity_bytes, "B") if level.memory.capacity_bytes else "unlimited"
        speed = f" {format_si(level.memory.bandwidth_bytes_per_s, 'B/s')}" if level.memory.bandwidth_bytes_per_s else ""
        parts.append(f"memory {size}{speed}{' backing' if level.memory.backing else ''}")
    if level.compute is not None and level.compute.rate_flop_per_s is not None:
        parts.append(f"compute {format_si(level.compute.rate_flop_per_s, 'FLOP/s')}")
    if level.network is not None:
        n = level.network
        parts.append(f"network {n.topology} {format_si(n.bandwidth_bytes_per_s, 'B/s')} {n.energy_j_per_byte / 8 * 1e12:.3g} pJ/bit")
    if level.static_power_w:
        parts.append(f"static {format_si(level.static_power_w, 'W')}")
    return " · ".join(parts)


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
    how = f"profile {mapper.profile or 'ideal'}, solver {mapper.solver}, uneven {mapper.uneven}"
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
    return lines


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
        lines.append(f"  {mesh}: {count:.6g} {'layout' if count == 1 else 'layouts'}")
    if len(shown) > MESHES:
        lines.append(f"  and {len(shown) - MESHES} more meshes")
    for reason, count in space.skipped.items():
        lines.append(f"  left out: {count:g} meshes ({reason})")
    return lines
