"""Which tensors are tokens on their way to experts or back: what an exchange of tokens moves between ranks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import prod
from typing import Literal

import numpy as np

from rackmodel.cost.program.local_ops import operand_bits, operand_family
from rackmodel.model.workload import Workload

Way = Literal["dispatch", "combine"]
_OTHER_WAY: dict[Way, Way] = {"dispatch": "combine", "combine": "dispatch"}


@dataclass(frozen=True)
class SentTokens:
    """way: to experts or back, as tokens or as their gradients · top: experts of a token · experts: in all · hidden: elements of a
    token's vector · bytes: of it on the way · share: of what the workload has of it · groups, kept: parts of the experts, and of how many
    a token's are."""

    way: Way
    top: float
    experts: int
    hidden: int
    bytes: float
    share: float = 1.0
    groups: int = 1
    kept: int = 1


def sent_tokens(workload: Workload, name: str, narrowed: Collection[str] = (), *, gradient: bool = False) -> SentTokens | None:
    """What a tensor holds of tokens at their experts: what a `dispatch` wrote, or a product of it with weights of experts that leaves the
    experts apart. None of another. narrowed: kinds of products whose tokens go to their experts as they are multiplied · gradient: of its
    gradient, which goes the other way."""
    op, tensor = workload.maker(name), workload.tensors.get(name)
    if op is None or tensor is None or np.all(tensor.density >= 1):
        return None
    way: Way = "dispatch" if op.kind.name == "dispatch" else "combine"
    sides = [set(access.names) for access in op.ins]
    if way == "dispatch":  # a token's vector, and its share of each expert
        found, hidden = sides[1] - sides[0], sides[0] - sides[1]
    else:
        weights = [side for side, access in zip(sides, op.ins, strict=True) if workload.tensors[access.tensor].kind == "weight"]
        if len(sides) != 2 or len(weights) != 1:
            return None
        other = next(side for side in sides if side is not weights[0])
        found, hidden = weights[0] & other & set(op.out.names), (weights[0] - other) & set(op.out.names)
    if len(found) != 1:
        return None
    index, elements = found.pop(), prod(workload.sizes[index] for index in hidden)
    experts, routing = workload.sizes[index], workload.routing
    groups = routing.get(index) or routing.get(workload.aliases.get(index, ""), (1, 1))
    whole = tensor.bits + tensor.scale_bits
    bits = min(_multiplied(workload, name, narrowed) or whole, whole) if way == "dispatch" else whole
    if gradient:
        way, whole = _OTHER_WAY[way], tensor.gradient_bits or whole
        bits = whole
    return SentTokens(way, tensor.density * experts, experts, elements, elements * bits / 8, bits / whole, *groups)


def _multiplied(workload: Workload, name: str, narrowed: Collection[str]) -> float | None:
    """Bits of an element as experts multiply it, with its part of a scale; None where tokens go as the workload has them."""
    op = workload.ops[workload.readers[name][0]]
    tensors = [workload.tensors[access.tensor] for access in (op.out, *op.ins)]
    weight = next((one for one in tensors[1:] if one.kind == "weight"), None)
    bits = operand_bits(op, tensors, workload)
    kind = operand_family(op, tensors, workload) or f"fp{bits}"
    return bits + weight.scale_bits if weight is not None and kind in narrowed else None
