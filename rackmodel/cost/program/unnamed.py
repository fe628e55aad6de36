"""Local operations without the names of their tensors: those that differ in nothing else cost the same, and are priced once."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import lru_cache

from rackmodel.cost.program.contents import content
from rackmodel.cost.program.tasks import REMEMBERED, Flow, LocalOp, Operand, flow_name
from rackmodel.model.einsum import Access

NAMED = frozenset({"reads", "writes", "operands", "result"}) | REMEMBERED
"""What of an operation has names of tensors in it, or is no part of what it says."""


@lru_cache(maxsize=4096)
def unnamed(local_op: LocalOp) -> tuple[LocalOp, dict[str, str]]:
    """(`numbered`, `names_of`), remembered."""
    numbers = numbers_of(local_op)
    return numbered(local_op, numbers), names_of(numbers)


def numbers_of(local_op: LocalOp) -> dict[str, str]:
    """Tensor → its number, in the order in which the operation names them."""
    numbers: dict[str, str] = {}
    operands = local_op.operands if local_op.result is None else (*local_op.operands, local_op.result)
    flows = [flow.tensor for flow in (*local_op.reads, *local_op.writes)]
    for tensor in (*flows, *(name for one in operands for name in (one.tensor, one.access.tensor))):
        if tensor not in numbers:
            numbers[tensor] = str(len(numbers))
    return numbers


def names_of(numbers: Mapping[str, str]) -> dict[str, str]:
    """What the ledger calls tensors, by what it calls the numbers."""
    kinds = ((False, False), (True, False), (False, True))
    return {flow_name(own, *kind): flow_name(tensor, *kind) for tensor, own in numbers.items() for kind in kinds}


def names_beside(first: LocalOp, other: LocalOp) -> dict[str, str]:
    """What the ledger calls the tensors of an operation, by what it calls those of another that is alike."""
    if first is other:
        return {}
    return dict(zip(_ledger_names(first), _ledger_names(other), strict=True))


def _ledger_names(local_op: LocalOp) -> list[str]:
    return [*(flow.name for flow in (*local_op.reads, *local_op.writes)), *(operand.name for operand in local_op.operands)]


def numbered(local_op: LocalOp, numbers: Mapping[str, str]) -> LocalOp:
    """The operation with numbers for tensors."""

    def flow(one: Flow) -> Flow:
        return Flow(numbers[one.tensor], one.volume, one.gradient, one.state)

    def operand(one: Operand) -> Operand:
        access = Access(numbers[one.access.tensor], one.access.indices)
        return replace(one, tensor=numbers[one.tensor], access=access)

    return replace(
        local_op,
        reads=tuple(map(flow, local_op.reads)),
        writes=tuple(map(flow, local_op.writes)),
        operands=tuple(map(operand, local_op.operands)),
        result=None if local_op.result is None else operand(local_op.result),
    )


def numbered_content(local_op: LocalOp, numbers: Mapping[str, str]) -> Hashable:
    """By which operations are known that differ in names alone, where sizes are arrays."""
    flows = [(numbers[one.tensor], content(one.volume), one.gradient, one.state) for one in (*local_op.reads, *local_op.writes)]
    operands = local_op.operands if local_op.result is None else (*local_op.operands, local_op.result)
    walked = [(numbers[o.tensor], numbers[o.access.tensor], o.access.indices, o.bits, o.weight, o.gradient) for o in operands]
    rest = [content(value) for name, value in vars(local_op).items() if name not in NAMED]
    return len(local_op.reads), tuple(flows), len(local_op.operands), tuple(walked), tuple(rest)
