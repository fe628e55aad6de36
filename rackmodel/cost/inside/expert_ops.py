"""A product over experts as one of the products that a kernel of a part's `grouped` makes: what a step asks, where rows ask for calls.

Of a call's start each of its three products (gate, up, down) bears a third, gate and up as one product two; what is between them
(activation, summing) are operations of their own. Experts without a token are not read: their share of the weight's traffic is left
out, time, bytes and joules (a workload that says so of a weight, `read: routed`, has left them out itself; the fewer of the two counts).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.inside.experts import compute_part, expert_device
from rackmodel.cost.inside.products import together
from rackmodel.cost.inside.roofline import Row
from rackmodel.cost.inside.routing import Routing, load_of
from rackmodel.cost.program.tasks import Degrees, LocalOp
from rackmodel.model.grouped import Grouped
from rackmodel.model.resources import Compute, width

Array = NDArray[np.float64]

PRODUCTS_OF_A_CALL = 3


@dataclass(frozen=True, kw_only=True)
class ExpertProduct:
    """A product over experts on a GPU. facts: of the kernel · memory: name of the accelerator's memory level · sizes: (experts, tokens,
    n, k) of the fullest accelerator [n] · every: experts of all ranks."""

    facts: Grouped
    compute: Compute
    units: int
    blocks: int
    bandwidth: float
    memory: str
    sizes: tuple[Any, Any, Any, Any]
    every: int


def grouped_of(known: dict[str, Grouped], local_op: LocalOp, kernels: str = "") -> Grouped | None:
    """The kernel that multiplies operands like an operation's: the first whose name begins with the first of `kernels`, words, that any
    name begins with; else the first of all."""
    weight = next((operand for operand in local_op.operands if operand.weight), None)
    if weight is None or not np.all(np.asarray(local_op.density) < 1):
        return None
    asked = (local_op.family, weight.bits, local_op.bits)
    same = [(name, facts) for name, facts in known.items() if _operands(facts) == asked]
    wanted = (facts for word in kernels.split() for name, facts in same if name.startswith(word))
    return next(wanted, same[0][1] if same else None)


def _operands(facts: Grouped) -> tuple[str, int, int]:
    """(family, bits of a weight, bits at which it is multiplied)."""
    return facts.family, width(facts.weights), max(width(facts.weights), width(facts.activations))


def expert_product(product: ExpertProduct, local_op: LocalOp, rows: Sequence[Row], degrees: Degrees) -> tuple[list[Row], Array]:
    """Rows and duration [n] of it. rows: what the roofline charges."""
    experts, tokens, n, k = (np.broadcast_to(np.asarray(x, dtype=np.float64), len(degrees)) for x in product.sizes)
    device = expert_device(product.facts, product.compute, product.units, product.blocks, product.bandwidth)
    compute, hit_bytes = np.empty(len(degrees)), np.empty(len(degrees))
    density = np.broadcast_to(np.asarray(local_op.density, dtype=np.float64), len(degrees))
    for own, share in np.unique(np.stack([experts, density]), axis=1).T:
        at = (experts == own) & (density == share)
        ranks = max(1, round(product.every / own))
        routing = Routing(experts=product.every, chosen=share * product.every, ranks=ranks, skew=local_op.skew, trained=True)
        load = load_of(tokens[at], routing)
        compute[at] = compute_part(product.facts, device, load, n[at], k[at])
        hit_bytes[at] = load.hit * n[at] * k[at] * device.weight
    # gate and up side by side are one product, whose weights are as large as each other
    weights = {operand.tensor for operand in local_op.operands if operand.weight} | {flow.tensor for flow in local_op.reads[2:]}
    each = hit_bytes / len(weights)
    priced = [_charged(product, row, compute, each if row.tensor in weights else None) for row in rows]
    memory = sum((row.seconds for row in priced if row.level == product.memory and row.component == "memory"), np.zeros(len(degrees)))
    spread = np.where(experts < product.every, product.facts.spread_s, 0.0)
    body = together(compute, memory)
    start = len(weights) * (product.facts.start_s + spread) / PRODUCTS_OF_A_CALL
    duration = body + (0.0 if local_op.joined else start)
    return _exposing(priced, compute >= memory, duration, product.memory), duration


def _charged(product: ExpertProduct, row: Row, compute: Array, hit_bytes: Array | None) -> Row:
    """A roofline's row as the kernel pays it. hit_bytes: of a weight, what is read of it."""
    if row.component == "compute":
        return row.lasting(compute, 0.0)
    share = product.facts.moving if hit_bytes is None else product.facts.memory
    read = 1.0 if hit_bytes is None else np.minimum(1.0, hit_bytes / np.maximum(row.fullest, 1.0))
    slower = share if row.level == product.memory else 1.0
    more = row.amount * read, row.unit, row.joules * read
    return Row(row.tensor, row.level, row.component, row.action, *more, row.seconds * read / slower, more=row.more)


def _exposing(rows: Sequence[Row], computing: NDArray[np.bool_], duration: Array, memory: str) -> list[Row]:
    """The same with the duration exposed: by the compute, or by the memory's rows in proportion."""
    of_compute = [row.component == "compute" for row in rows]
    of_memory = [row.component == "memory" and row.level == memory for row in rows]
    moved = sum((row.seconds for row, its in zip(rows, of_memory, strict=True) if its), np.zeros_like(duration))
    share = np.divide(duration, moved, out=np.zeros_like(duration), where=moved > 0)
    return [
        row.exposing(
            np.where(computing, duration, 0.0) if a else np.where(computing, 0.0, row.seconds * share) if b else np.zeros_like(duration)
        )
        for row, a, b in zip(rows, of_compute, of_memory, strict=True)
    ]
