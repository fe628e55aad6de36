"""Joules of kernels that are told by their calls: products of experts, and kernels that move rows.

products    up, with its gate beside it, and down: over the experts of one rank, as a step asks for them (cost/inside/expert_ops)
moved       their activation and the sum over a token's experts: the bytes of a call in cost/inside/experts
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rackmodel.arrays import Array
from rackmodel.cost.inside.expert_ops import expert_product
from rackmodel.cost.inside.experts import ExpertLayer
from rackmodel.cost.inside.gpu import Gpu, gpu_of
from rackmodel.cost.inside.kernels import product_of_experts
from rackmodel.cost.inside.onchip import feed_rows
from rackmodel.cost.inside.power import busy_watts, powered
from rackmodel.cost.inside.roofline import Row, roofline_rows
from rackmodel.cost.inside.routing import Routing
from rackmodel.cost.program.tasks import Degrees, Flow, LocalOp, Operand, Volume
from rackmodel.errors import InputError
from rackmodel.model.architecture import Architecture
from rackmodel.model.einsum import parse_statement
from rackmodel.model.grouped import Grouped
from rackmodel.model.resources import BusyKind, width

FORM = parse_statement("Y[g,m,n] = X[g,m,k] * W[g,k,n]")
RESULT_BYTES = 2.0
RANKS = (0,)
"""The axis of a mesh that splits the experts, its only one."""


def call_energy(machine: Architecture, kernel: str, layer: ExpertLayer, routings: Sequence[Routing], seconds: Array) -> Array:
    """[n] joules of calls of a kernel of the part's `grouped` that last so many seconds, with what the accelerator draws meanwhile."""
    gpu = _gpu(machine)
    moved = call_moved(machine, kernel, layer, routings)
    return _drawn(machine, gpu, moved, "experts", seconds)


def moving_energy(machine: Architecture, moved: Array, seconds: Array) -> Array:
    """[n] joules of kernels that move so many bytes and last so many seconds, with what the accelerator draws meanwhile."""
    return _drawn(machine, _gpu(machine), bytes_moved(machine, moved), "vector", seconds)


@dataclass(frozen=True)
class Moved:
    """joules: of operations and bytes, [n] · amount: [n] bytes to and from the accelerator's own memory."""

    joules: Array
    amount: Array


def call_moved(machine: Architecture, kernel: str, layer: ExpertLayer, routings: Sequence[Routing]) -> Moved:
    """Of calls of a kernel of the part's `grouped`; those of one routing are priced at once."""
    gpu = _gpu(machine)
    joules, amount = np.zeros(len(routings)), np.zeros(len(routings))
    for routing in dict.fromkeys(routings):
        own = np.array([one == routing for one in routings])
        calls = layer.at(own)
        found = _summed(gpu, _of_routing(machine, gpu, gpu.facts.grouped[kernel], calls, routing), int(own.sum()))
        joules[own], amount[own] = found.joules, found.amount
    return Moved(joules, amount)


def bytes_moved(machine: Architecture, moved: Array) -> Moved:
    """Of kernels that move so many bytes [n]."""
    return _summed(_gpu(machine), moving_rows(machine, moved), len(moved))


def moved_of(machine: Architecture, rows: Sequence[Row], count: int) -> Moved:
    """Of some rows, [count] each."""
    return _summed(_gpu(machine), rows, count)


def _summed(gpu: Gpu, rows: Sequence[Row], count: int) -> Moved:
    none = np.zeros(count)
    own = [row.amount for row in rows if row.level == gpu.memory and row.component == "memory"]
    return Moved(np.asarray(sum((row.joules for row in rows), none)), np.asarray(sum(own, none)))


def _drawn(machine: Architecture, gpu: Gpu, moved: Moved, kind: BusyKind, seconds: Array) -> Array:
    row = Row("", gpu.memory, "memory", "read", moved.amount, "byte", moved.joules, seconds, seconds)
    busy = busy_watts(gpu.facts.busy_of(kind), [row], gpu.memory, seconds)
    return np.asarray(sum(one.joules for one in powered(machine, gpu.facts, [row], seconds, busy=busy, limited=False)[0]))


def _gpu(machine: Architecture) -> Gpu:
    """What kernels run on. Raises InputError where the machine states none."""
    gpu = gpu_of(machine)
    if gpu is None:
        raise InputError(f"{machine.name} states no kernels", path="kernels")
    return gpu


def _of_routing(machine: Architecture, gpu: Gpu, facts: Grouped, calls: ExpertLayer, routing: Routing) -> list[Row]:
    degrees = np.full((len(calls.tokens), 1), routing.ranks, dtype=np.int64)
    up = calls.inter * (1 + calls.gated)
    rows: list[Row] = []
    for n, k in ((up, calls.hidden), (calls.hidden, calls.inter)):
        local_op = _product(facts, calls.tokens, n, k, routing)
        sizes = np.ceil(routing.experts / degrees[:, 0]), calls.tokens, n, k
        product = product_of_experts(gpu, (facts, facts), sizes, routing.experts)
        made, _ = expert_product(product, local_op, roofline_rows(machine, local_op, degrees)[0], degrees)
        rows += [*made, *feed_rows(machine, local_op, degrees, made, gpu.facts.tiles[0], gpu.compute.matrix(local_op.bits).atom)]
    pairs = calls.tokens * routing.chosen / (1.0 if facts.rows == "all" else routing.ranks)
    between = RESULT_BYTES * pairs * (up + calls.inter + calls.hidden) + 2 * RESULT_BYTES * np.minimum(calls.tokens, pairs) * calls.hidden
    return rows + moving_rows(machine, between, degrees)


def _product(facts: Grouped, tokens: Array, n: Array, k: Array, routing: Routing) -> LocalOp:
    """One product over the experts, of which a rank holds its share."""
    weight, activation = width(facts.weights), width(facts.activations)
    pairs = tokens * routing.chosen
    sizes: tuple[Any, ...] = (pairs * k * activation / 8, routing.experts * n * k * weight / 8, pairs * n * RESULT_BYTES)
    bits = (activation, weight, int(8 * RESULT_BYTES))
    named = (*FORM.ins, FORM.out)
    operands = [Operand(one.tensor, one, width, one.tensor == "W") for one, width in zip(named, bits, strict=True)]
    flows = [Flow(one.tensor, Volume(size, RANKS)) for one, size in zip(named, sizes, strict=True)]
    space: Any = (("g", routing.experts, RANKS), ("m", tokens, ()), ("n", n, ()), ("k", k, ()))
    return LocalOp(
        reads=tuple(flows[:-1]),
        writes=(flows[-1],),
        space=space,
        macs=True,
        per_element=0.0,
        density=routing.chosen / routing.experts,
        bits=max(weight, activation),
        operands=tuple(operands[:-1]),
        result=operands[-1],
        family=facts.family,
        skew=routing.skew,
    )


def moving_rows(machine: Architecture, moved: Array, degrees: Degrees | None = None) -> list[Row]:
    """Rows of a kernel that moves so many bytes [n], half of them in and half out."""
    flows = [Flow(name, Volume(moved / 2)) for name in ("X", "Y")]  # type: ignore[arg-type]
    local_op = LocalOp((flows[0],), (flows[1],), (("m", 1, ()),), False, 0.0, 1.0, 16)
    return roofline_rows(machine, local_op, np.ones((len(moved), 1), dtype=np.int64) if degrees is None else degrees)[0]
