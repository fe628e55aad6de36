"""A product over experts as one of the products that a kernel of a part's `grouped` makes: what a step asks, where rows ask for calls.

Of a call's start each of its three products (gate, up, down) bears a third, gate and up as one product two; what is between them
(activation, summing) are operations of their own. Experts without a token are not read: their share of the weight's traffic is left
out, time, bytes and joules (a workload that says so of a weight, `read: routed`, has left them out itself; the fewer of the two counts).
Where a call lays out rows for the worst case, all of them are fetched and written; what the activation moves of them beyond the tokens, and
what kernels that quantise move, is charged to the product with the gate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from rackmodel.arrays import Array, Bools
from rackmodel.cost.inside.experts import RESULT_BYTES, ExpertDevice, compute_part, expert_device, laid_rows, moving_seconds, narrowed
from rackmodel.cost.inside.gpu import Gpu
from rackmodel.cost.inside.products import together
from rackmodel.cost.inside.roofline import Row
from rackmodel.cost.inside.routing import ExpertLoad, Routing, load_of
from rackmodel.cost.inside.vectors import beyond
from rackmodel.cost.program.tasks import Degrees, LocalOp, excess
from rackmodel.model.grouped import Grouped
from rackmodel.model.resources import width

PRODUCTS_OF_A_CALL = 3
DEALT = "dealt:"
"""How a word of `experts` begins that counts only where an accelerator holds experts of its own."""


@dataclass(frozen=True, kw_only=True)
class ExpertProduct:
    """A product over experts on a GPU. facts, dealt: of the kernel where an accelerator holds a part of each expert, and where it holds
    experts of its own · sizes: (experts, tokens, n, k) of the fullest accelerator [n] · every: experts of all ranks."""

    facts: Grouped
    dealt: Grouped
    gpu: Gpu
    sizes: tuple[Any, Any, Any, Any]
    every: int


def grouped_of(known: dict[str, Grouped], local_op: LocalOp, kernels: str = "") -> tuple[Grouped, Grouped] | None:
    """The kernels that multiply operands like an operation's, of parts of all experts and of experts of its own: the first whose name
    begins with the first of `kernels`, words ('_' is a blank of a name), that any name begins with; else the first of all."""
    weight = next((operand for operand in local_op.operands if operand.weight), None)
    if weight is None or not np.all(np.asarray(local_op.density) < 1):
        return None
    asked = (local_op.family, weight.bits, local_op.bits)
    same = {name: facts for name, facts in known.items() if _operands(facts) == asked}
    if not same:
        return None
    words = [word.replace("_", " ") for word in kernels.split()]
    return _first(same, [word for word in words if not word.startswith(DEALT)]), _first(same, [word.removeprefix(DEALT) for word in words])


def _first(known: dict[str, Grouped], words: Sequence[str]) -> Grouped:
    wanted = (facts for word in words for name, facts in known.items() if name.startswith(word))
    return next(wanted, next(iter(known.values())))


def _operands(facts: Grouped) -> tuple[str, int, int]:
    """(family, bits of a weight, bits at which it is multiplied)."""
    return facts.family, width(facts.weights), max(width(facts.weights), width(facts.activations))


def expert_product(product: ExpertProduct, local_op: LocalOp, rows: Sequence[Row], degrees: Degrees) -> tuple[list[Row], Array]:
    """Rows and duration [n] of it. rows: what the roofline charges."""
    # gate and up side by side are one product, whose weights are as large as each other
    weights = {operand.tensor for operand in local_op.operands if operand.weight} | {flow.tensor for flow in local_op.reads[2:]}
    kernel = _kernel(product, local_op, degrees, gated=len(weights) > 1)
    each = kernel.hit_bytes / len(weights)
    priced = [_charged(product, kernel, row, each if row.tensor in weights else None) for row in rows]
    level = product.gpu.memory
    memory = sum((row.seconds for row in priced if row.level == level and row.component == "memory"), np.zeros(len(degrees)))
    body = together(kernel.compute, memory)
    start = len(weights) * kernel.start / PRODUCTS_OF_A_CALL
    duration = body + kernel.between_s + (0.0 if local_op.joined else start)
    return _exposing(priced, kernel.compute >= memory, duration, level), duration


@dataclass(frozen=True)
class _Kernel:
    """A product's kernel, [n] each. compute: seconds of its blocks · hit_bytes: weights that are read · start: of the whole call · memory,
    moving, cached: as Grouped · laid: rows that are laid out over those that came · between, between_s: bytes and seconds of what follows
    of the rows beyond them, and of kernels that quantise."""

    compute: Array
    hit_bytes: Array
    start: Array
    memory: Array
    moving: Array
    cached: Array
    laid: Array
    between: Array
    between_s: Array


def _kernel(product: ExpertProduct, local_op: LocalOp, degrees: Degrees, *, gated: bool) -> _Kernel:
    """The kernel of each mesh. gated: whether the product is up with a gate beside it, which the activation follows."""
    count = len(degrees)
    experts, tokens, n, k = (np.broadcast_to(np.asarray(x, dtype=np.float64), count) for x in product.sizes)
    tokens = tokens * excess(local_op.cuts, degrees)
    density = np.broadcast_to(np.asarray(local_op.density, dtype=np.float64), count)
    found = _Kernel(*(np.empty(count) for _ in fields(_Kernel)))
    for own, share in np.unique(np.stack([experts, density]), axis=1).T:
        at = (experts == own) & (density == share)
        dealt = own < product.every
        facts = product.dealt if dealt else product.facts
        device = expert_device(facts, product.gpu)
        ranks = max(1, round(product.every / own))
        routing = Routing(experts=product.every, chosen=share * product.every, ranks=ranks, skew=local_op.skew, trained=True)
        load = load_of(tokens[at], routing)
        laid = laid_rows(facts, tokens[at] * routing.chosen, load.held)
        found.compute[at] = compute_part(facts, device, load, n[at], k[at], laid)
        found.hit_bytes[at] = load.hit * n[at] * k[at] * device.weight
        found.start[at] = facts.start_s + (facts.spread_s if dealt else 0.0)
        found.memory[at], found.moving[at], found.cached[at] = facts.memory, facts.moving, facts.cached
        found.laid[at] = 1.0 if laid is None else laid / np.maximum(load.pairs, 1e-9)
        tensors = _between(facts, device, load, laid, n[at] / 2, k[at]) if gated else []
        found.between[at] = sum(tensors)
        found.between_s[at] = sum(moving_seconds(facts, device, tensor) for tensor in tensors)
    return found


def _between(facts: Grouped, device: ExpertDevice, load: ExpertLoad, laid: Array | None, inter: Array, hidden: Array) -> list[Any]:
    """Bytes, a tensor each, of the activation of rows that are laid out beyond those that came, and of kernels that quantise."""
    if laid is None:
        return narrowed(facts, device, np.minimum(load.tokens, load.pairs) * hidden, load.pairs * inter)
    return [3 * RESULT_BYTES * inter * (laid - load.pairs), *narrowed(facts, device, 0.0, laid * inter)]


def _charged(product: ExpertProduct, kernel: _Kernel, row: Row, hit_bytes: Array | None) -> Row:
    """A roofline's row as the kernel pays it. hit_bytes: of a weight, what is read of it."""
    if row.component == "compute":
        return row.lasting(kernel.compute, 0.0)
    own = row.level == product.gpu.memory
    read = kernel.laid if hit_bytes is None else np.minimum(1.0, hit_bytes / np.maximum(row.fullest, 1.0))
    far = beyond(product.gpu.cache, row.fullest * read)
    share = kernel.moving / (far + (1.0 - far) / kernel.cached) if hit_bytes is None else kernel.memory
    seconds = row.seconds * read / (share if own else 1.0)
    follows = kernel.between / np.maximum(row.fullest, 1.0) if own and row.action == "write" else 0.0
    more = row.amount * (read + follows), row.unit, row.joules * (read + follows)
    return Row(row.tensor, row.level, row.component, row.action, *more, seconds, more=row.more)


def _exposing(rows: Sequence[Row], computing: Bools, duration: Array, memory: str) -> list[Row]:
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
