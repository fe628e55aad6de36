"""Which tensors are tokens on their way to experts or back: what an exchange of tokens moves between ranks."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

import numpy as np

from rackmodel.model.workload import Workload


@dataclass(frozen=True)
class SentTokens:
    """way: to experts or back · top: experts of a token · experts: in all · hidden: elements of a token's vector · bytes: of it, as the
    workload has it · groups, kept: parts of the experts, and of how many a token's are."""

    way: Literal["dispatch", "combine"]
    top: float
    experts: int
    hidden: int
    bytes: float
    groups: int = 1
    kept: int = 1


def sent_tokens(workload: Workload, name: str) -> SentTokens | None:
    """What a tensor holds of tokens at their experts: what a `dispatch` wrote, or a product of it with weights of experts that leaves the
    experts apart. None of another."""
    op, tensor = workload.ops.get(workload.producer.get(name, "")), workload.tensors.get(name)
    if op is None or tensor is None or np.all(tensor.density >= 1):
        return None
    way: Literal["dispatch", "combine"] = "dispatch" if op.kind.name == "dispatch" else "combine"
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
    return SentTokens(way, tensor.density * experts, experts, elements, elements * (tensor.bits + tensor.scale_bits) / 8, *groups)
