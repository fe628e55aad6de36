"""What the indices of a fused attention's contractions count, read off the graph: nothing names them.

    scores(b, g, q, s, t) = Q · K summed over e      out = softmax(scores) · V over t

context: in keys and values, not in the queries · queries: walks the same rank as the context, or no weight has it · group: the other
indices of the queries that keys lack · sequences: the batch · kv_heads: what is left of the indices that all of them share. Scores may be
a sum of several contractions (latent attention's two parts); values that are a tensor of the keys are read once.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from rackmodel.cost.program.tasks import AttentionRoles
from rackmodel.model.einsum import Access
from rackmodel.model.workload import Op, Workload


def attention_roles(op: Op, on_chip: frozenset[str], workload: Workload) -> AttentionRoles | None:
    """Roles of the indices of a contraction that makes scores or reads them; None where it is no part of attention. on_chip: the scores."""
    scores = next((access for access in (op.out, *op.ins) if access.tensor in on_chip), None)
    if op.kind.name != "einsum" or scores is None:
        return None
    own = _connected(scores.tensor, on_chip, workload)
    making = [one for one in workload.ops.values() if one.kind.name == "einsum" and one.out.tensor in own]
    weighing = [one for one in workload.ops.values() if one.kind.name == "einsum" and _reads(one, own) and one.out.tensor not in own]
    if not making or not weighing:
        return None
    made = weighing[0].out.names
    context = tuple(i for i in scores.names if i not in made)
    keys = [access for one in (*making, *weighing) for access in one.ins if access.tensor not in own and set(access.names) & set(context)]
    queries = tuple(i for i in scores.names if i not in context and _is_token(i, context, workload))
    shared = [i for i in scores.names if i not in context and all(i in access.names for access in keys)]
    sequences = tuple(i for i in shared if workload.batch and workload.batch in (i, workload.aliases.get(i)))
    head = float(sum(_elements(one.contracted, workload) for one in making))
    value = float(sum(_elements((i for i in one.out.names if i not in scores.names), workload) for one in weighing))
    mine = _elements(op.contracted if op.out.tensor in own else (i for i in op.out.names if i not in scores.names), workload)
    return AttentionRoles(
        sequences=sequences,
        kv_heads=tuple(i for i in shared if i not in sequences and i not in queries),
        group=tuple(i for i in scores.names if i not in (*context, *queries, *shared)),
        queries=queries,
        context=context,
        head=head,
        value=value,
        own=mine / (head + value),
        bits=max(workload.tensors[access.tensor].bits for access in keys),
        latent=_latent(making, weighing, own),
    )


def read_as_keys(op: Op, on_chip: frozenset[str], workload: Workload) -> frozenset[str]:
    """Operands of a contraction that weighs values which the kernel has read already, as keys. on_chip: the scores."""
    scores = next((access.tensor for access in op.ins if access.tensor in on_chip), None)
    if op.kind.name != "einsum" or scores is None or op.out.tensor in on_chip:
        return frozenset()
    own = _connected(scores, on_chip, workload)
    keys = {access.tensor for one in workload.ops.values() if one.kind.name == "einsum" and one.out.tensor in own for access in one.ins}
    return frozenset(access.tensor for access in op.ins if access.tensor in keys - own)


def _connected(first: str, on_chip: frozenset[str], workload: Workload) -> set[str]:
    """Scores, and what is computed of them before values are weighed."""
    found = {first}
    while True:
        touching = [{op.out.tensor, *(access.tensor for access in op.ins)} & on_chip for op in workload.ops.values()]
        more = {name for names in touching if names & found for name in names} - found
        if not more:
            return found
        found |= more


def _reads(op: Op, tensors: set[str]) -> bool:
    return any(access.tensor in tensors for access in op.ins)


def _is_token(index: str, context: tuple[str, ...], workload: Workload) -> bool:
    """Whether an index of scores counts new tokens: it walks the context's rank, or it is neither the batch nor an index of a weight."""
    if any(index == workload.aliases.get(t) or t == workload.aliases.get(index) for t in context):
        return True
    if workload.batch and workload.batch in (index, workload.aliases.get(index)):
        return False
    return not any(index in access.names for access in _weights(workload))


def _weights(workload: Workload) -> Iterable[Access]:
    return (access for op in workload.ops.values() for access in op.ins if workload.tensors[access.tensor].kind == "weight")


def _elements(indices: Iterable[str], workload: Workload) -> float:
    return float(prod(workload.sizes[i] for i in indices))


def _latent(making: list[Op], weighing: list[Op], own: set[str]) -> bool:
    keys = {access.tensor for op in making for access in op.ins}
    return any(access.tensor in keys for op in weighing for access in op.ins if access.tensor not in own)
