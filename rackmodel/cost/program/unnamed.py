"""Local operations without the names of their tensors: those that differ in nothing else cost the same, and are priced once."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from rackmodel.cost.program.tasks import Flow, LocalOp, Operand, Volume
from rackmodel.model.einsum import Access

NOTHING = Volume(0.0)


@lru_cache(maxsize=4096)
def unnamed(local_op: LocalOp) -> tuple[LocalOp, dict[str, str]]:
    """`numbered`, remembered."""
    return numbered(local_op)


def numbered(local_op: LocalOp) -> tuple[LocalOp, dict[str, str]]:
    """(the operation with numbers for tensors; what the ledger calls them, by what it calls the numbers)."""
    numbers: dict[str, str] = {}

    def number(tensor: str) -> str:
        return numbers.setdefault(tensor, str(len(numbers)))

    def flow(one: Flow) -> Flow:
        return Flow(number(one.tensor), one.volume, one.gradient, one.state)

    def operand(one: Operand) -> Operand:
        return Operand(number(one.tensor), Access(number(one.access.tensor), one.access.indices), one.bits, one.weight, one.gradient)

    found = replace(
        local_op,
        reads=tuple(map(flow, local_op.reads)),
        writes=tuple(map(flow, local_op.writes)),
        operands=tuple(map(operand, local_op.operands)),
        result=None if local_op.result is None else operand(local_op.result),
    )
    names = {}
    for tensor, own in numbers.items():
        for gradient, state in ((False, False), (True, False), (False, True)):
            names[Flow(own, NOTHING, gradient, state).name] = Flow(tensor, NOTHING, gradient, state).name
    return found, names
