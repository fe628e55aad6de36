"""What the sketches of a result are drawn from: levels of its machine with their use, operations of its workload with their layout."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from rackmodel.cost.ledger import Ledger
from rackmodel.model.architecture import Architecture, Level
from rackmodel.model.mapping import MappingSpec
from rackmodel.model.workload import Workload
from rackmodel.report.tables import format_si

MOST_OPS = 60
WAYS = ("broadcast", "reduce")
"""Down from a home above and up to it."""
UNITS = {"memory": "B", "network": "B", "compute": "FLOP"}


def busiest_seconds(machine: Architecture, ledger: Ledger, by: Sequence[str] = ()) -> dict[tuple[str, ...], float]:
    """(columns `by`, component, level) → seconds of its rows as if nothing else ran; of a memory whose reads and writes have a port each,
    which work at once, of the longer, and so of links that weights stream down and gradients up."""
    split = {level.name for level in machine.tree.walk() if level.memory is not None and level.memory.ports == "split"}
    ports: dict[tuple[str, ...], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for (*rest, component, level, action), seconds in ledger.group((*by, "component", "level", "action"), "seconds").items():
        for port in _ports(component, action, split=level in split):
            ports[*rest, component, level][port] += seconds
    return {key: max(each.values()) for key, each in ports.items()}


def _ports(component: str, action: str, *, split: bool) -> Sequence[str]:
    """What an action keeps busy of a level; what goes both ways through links both of them."""
    if component == "network":
        return (action,) if action in WAYS else WAYS
    return (action,) if component == "memory" and split else ("",)


def tree_of(machine: Architecture, mapping: MappingSpec, ledger: Ledger, seconds: float) -> list[dict[str, Any]]:
    """A row a level, top down: {name, depth, count, axes, uses: [{what, share of the step in use as if alone, amount, words}]}; of a graph
    that is cut into stages the share is the mean of the stages."""
    seconds = seconds * max(1, len(mapping.stages))
    busy, amounts = busiest_seconds(machine, ledger), ledger.group(("component", "level"), "amount")
    axes = axes_of(machine, mapping)
    found = []

    def walk(level: Level, depth: int) -> None:
        uses = [
            {"what": what, "share": busy[what, level.name] / seconds if seconds else 0.0, "words": _words(level, what)}
            | {"amount": format_si(amounts[what, level.name], unit, 3)}
            for what, unit in UNITS.items()
            if (what, level.name) in busy and amounts[what, level.name] > 0
        ]
        found.append({"name": level.name, "depth": depth, "count": level.count, "axes": axes.get(level.name, ""), "uses": uses})
        for child in level.children:
            walk(child, depth + 1)

    walk(machine.tree, 0)
    return found


def _words(level: Level, what: str) -> str:
    if what == "memory" and level.memory is not None:
        size = format_si(level.memory.capacity_bytes, "B") if level.memory.capacity_bytes else ""
        speed = format_si(level.memory.bandwidth_bytes_per_s, "B/s") if level.memory.bandwidth_bytes_per_s else ""
        return f"{size} {speed}".strip()
    if what == "network" and level.network is not None:
        return f"{level.network.topology} {format_si(level.network.bandwidth_bytes_per_s, 'B/s')}"
    return ""


def axes_of(machine: Architecture, mapping: MappingSpec) -> dict[str, str]:
    """Level → the axes of a mapping whose members its network joins."""
    placed = {name: (axis.degree, axis.stride) for name, axis in mapping.axes.items()}
    if mapping.step is not None and mapping.step.pipeline is not None:
        placed["pp"] = mapping.step.pipeline.degree, mapping.step.pipeline.stride
    found: dict[str, list[str]] = {}
    for tier in dict.fromkeys(tier for pool in machine.pools for tier in pool.tiers):
        for name, (degree, stride) in placed.items():
            if degree > 1 and stride * degree > tier.below and stride < tier.below * tier.children:
                found.setdefault(tier.level, []).append(f"{name} {degree}")
    return {level: ", ".join(names) for level, names in found.items()}


def graph_of(workload: Workload, mapping: MappingSpec) -> list[dict[str, Any]]:
    """A row an operation in the workload's order: {name, after, split, stage}; [] of a workload with too many to draw."""
    if len(workload.ops) > MOST_OPS:
        return []
    stages = {name: number for number, names in enumerate(mapping.stages) for name in names}
    found = []
    for op in workload.ops.values():
        after = dict.fromkeys(workload.producer[one.tensor] for one in op.ins if one.tensor in workload.producer)
        layout = mapping.ops.get(op.name, {})
        wide = {axis: index for axis, index in layout.items() if axis in mapping.axes and mapping.axes[axis].degree > 1}
        split = ", ".join(f"{axis}: {index or 'whole'}" for axis, index in wide.items())
        said = {"split": split, "stage": stages.get(op.name, 0)}
        found.append({"name": op.name, "after": [name for name in after if name != op.name], **said})
    return found
