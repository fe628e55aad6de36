"""A product over experts as one of the products that a kernel of a part's `grouped` makes: what a step asks, where rows ask for calls.

Of a call's start each of its three products (gate, up, down) bears a third; what is between them (activation, gathering, summing) are
operations of their own. Experts without a token are not read: their share of the weight's traffic is left out, time, bytes and joules.
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


def grouped_of(known: dict[str, Grouped], local_op: LocalOp, kernel: str = "") -> Grouped | None:
    """The kernel that multiplies operands like an operation's: the first, or the first whose name begins so."""
    weight = next((operand for operand in local_op.operands if operand.weight), None)
    if weight is None or not local_op.density < 1:
        return None
    activation = max(operand.bits for operand in local_op.operands if operand is not weight)
    same = [
        (name, facts)
        for name, facts in known.items()
        if facts.family == local_op.family and width(facts.weights) == weight.bits and width(facts.activations) <= activation
    ]
    return next((facts for name, facts in same if name.startswith(kernel)), same[0][1] if same else None)


def expert_product(product: ExpertProduct, local_op: LocalOp, rows: Sequence[Row], degrees: Degrees) -> tuple[list[Row], Array]:
    """Rows and duration [n] of it. rows: what the roofline charges."""
    experts, tokens, n, k = (np.broadcast_to(np.asarray(x, dtype=np.float64), len(degrees)) for x in product.sizes)
    device = expert_device(product.facts, product.compute, product.units, product.blocks, product.bandwidth)
    compute, hit = np.empty(len(degrees)), np.empty(len(degrees))
    for own in np.unique(experts):
        at = experts == own
        routing = Routing(
            experts=product.every, chosen=local_op.density * product.every, ranks=max(1, round(product.every / own)), skew=local_op.skew
        )
        load = load_of(tokens[at], routing)
        compute[at] = compute_part(product.facts, device, load, n[at], k[at])
        hit[at] = np.minimum(1.0, load.hit / own)
    weights = {operand.tensor for operand in local_op.operands if operand.weight}
    priced = [_charged(product, row, compute, hit if row.tensor in weights else 1.0) for row in rows]
    memory = sum((row.seconds for row in priced if row.level == product.memory and row.component == "memory"), np.zeros(len(degrees)))
    spread = np.where(experts < product.every, product.facts.spread_s, 0.0)
    body = together(compute, memory)
    duration = body + (0.0 if local_op.joined else (product.facts.start_s + spread) / PRODUCTS_OF_A_CALL)
    return _exposing(priced, compute >= memory, duration, product.memory), duration


def _charged(product: ExpertProduct, row: Row, compute: Array, hit: Any) -> Row:
    """A roofline's row as the kernel pays it. hit: share of it that is moved."""
    if row.component == "compute":
        return Row(row.tensor, row.level, row.component, row.action, row.amount, row.unit, row.joules, compute)
    share = product.facts.memory if np.ndim(hit) else product.facts.moving
    slower = share if row.level == product.memory else 1.0
    more = row.amount * hit, row.unit, row.joules * hit
    return Row(row.tensor, row.level, row.component, row.action, *more, row.seconds * hit / slower)


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
