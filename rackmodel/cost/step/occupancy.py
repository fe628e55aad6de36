"""The rate of a full pipeline of wired layers, from the ledger of one pass (docs/wafers.md).

    rate      1 / max over what all layers of an accelerator share: links, vector unit, cache, memory; and over a stage's interval
    in flight stages a layer x layers, each a token of a sequence of its own
    spilled   share of what sequences keep that the caches cannot hold: max(0, 1 - caches / (in flight · bytes a sequence))
    energy    static power / rate + a token's own joules

Occupancy, not latency, limits a full pipeline: bytes and operations of one token over the machine's rates. Products without weights
(scores) are no neurons' work: the vector unit does them.
"""

from __future__ import annotations

from collections.abc import Callable

from rackmodel.cost.ledger import Ledger
from rackmodel.cost.network.topologies import topology_of
from rackmodel.cost.step.ledger import static_watts
from rackmodel.errors import InputError
from rackmodel.model.architecture import Architecture, Level
from rackmodel.model.occupancy import FullPipeline
from rackmodel.model.wired import Wired
from rackmodel.model.workload import Workload
from rackmodel.units import Quantity

End = Callable[[float], float]


def wired_of(machine: Architecture) -> Wired | None:
    """What a machine says of weights in its wires; None where it fetches them."""
    return next((level.compute.wired for level, _ in machine.inside if level.compute is not None and level.compute.wired is not None), None)


def full_pipeline(machine: Architecture, workload: Workload, ledger: Ledger, tokens: float) -> FullPipeline | None:
    """Of a pass over `tokens`; None where no weights are wired. Raises InputError for a cache that is no level inside."""
    wired = wired_of(machine)
    if wired is None or not tokens:
        return None
    chip, layers = machine.accelerator.name, workload.layers
    rows = ledger.where(component="memory", level=chip)
    caches = [name for section in workload.sections for name in section.workload.caches]
    kept = rows.where(action="read", tensor=caches).total("amount") / tokens
    cache = None if wired.cache is None else _inside(machine, wired.cache)
    in_flight = wired.stages * layers
    held = (
        machine.used * cache.memory.capacity_bytes
        if cache is not None and cache.memory is not None and cache.memory.capacity_bytes
        else 0.0
    )
    spilled = max(0.0, 1 - held / (in_flight * kept)) if kept else 0.0
    amounts = {"cache": rows.total("amount") / tokens, "memory": spilled * kept, "vector unit": _vector_flop(workload, ledger) / tokens}

    def at(end: End) -> dict[str, float]:
        seconds = _links(machine, ledger, tokens, end)
        rates = {"cache": _bandwidth(cache, end), "memory": _bandwidth(machine.accelerator, end), "vector unit": _vector_rate(machine, end)}
        seconds |= {name: amounts[name] / (machine.used * rate) for name, rate in rates.items() if rate}
        return seconds | ({"interval": float(wired.interval_s)} if wired.interval_s else {})

    slow, middle, fast = (at(end) for end in (_low, float, _high))
    if not any(middle.values()):
        return None
    own = sum(row.joules for row in ledger if row.component != "static") / tokens
    joules = float(static_watts(machine) * max(middle.values()) + own)
    return FullPipeline(in_flight, middle, slow, fast, spilled, joules)


def _inside(machine: Architecture, name: str) -> Level:
    found = [level for level, _ in machine.inside]
    for level in found:
        if level.name == name:
            return level
    raise InputError(
        f"no level '{name}' inside '{machine.accelerator.name}'", path="wired.cache", known=[one.name for one in found], given=name
    )


def _links(machine: Architecture, ledger: Ledger, tokens: float, end: End) -> dict[str, float]:
    """Seconds of each network above, all links of its children in use."""
    found = {}
    for tier in machine.tiers:
        amount = ledger.where(component="network", level=tier.level).total("amount") / tokens
        others = max(1, tier.children - 1) if topology_of(tier.network).pairs else 1  # to which a child has links each
        children, links = machine.used / tier.below, tier.links * others
        if amount:
            found[f"links of {tier.level}"] = amount / (children * links * end(tier.network.bandwidth_bytes_per_s))
    return found


def _vector_flop(workload: Workload, ledger: Ledger) -> float:
    """Operations of the vector unit: its own, and those of products without weights."""
    ops = [(section.workload, op) for section in workload.sections for op in section.workload.ops.values() if op.kind.name == "einsum"]
    unweighted = [op.name for graph, op in ops if all(graph.tensors[a.tensor].kind != "weight" for a in op.ins)]
    compute = ledger.where(component="compute")
    return float(compute.where(action="vector").total("amount") + compute.where(action="mac", einsum=unweighted).total("amount"))


def _vector_rate(machine: Architecture, end: End) -> float:
    """Vector operations a second of one accelerator."""
    return sum(
        count * end(level.compute.vector.rate_flop_per_s)
        for level, count in machine.inside
        if level.compute is not None and level.compute.vector is not None
    )


def _bandwidth(level: Level | None, end: End) -> float:
    said = None if level is None or level.memory is None else level.memory.bandwidth_bytes_per_s
    return 0.0 if said is None else end(said)


def _low(value: float) -> float:
    return value.low if isinstance(value, Quantity) else value


def _high(value: float) -> float:
    return value.high if isinstance(value, Quantity) else value
