"""Layouts: what one axis of the mesh does to one operation and to one tensor.

A choice is, for one operation and one axis, the index the axis splits, None (computed redundantly), or '+operand' (a
linear operation passes that operand's Partial through; '+' alone = all operands). A placement is how a tensor lies
along one axis: 'R' replicated, 'P' partial sums, 'S:rank' sharded. The four functions below are the whole
differentiation rule: a backward operation inherits its forward's choice, so no backward graph has to be written.
Source: the layout rule proven in tests/test_executor.py against unsharded einsums.
"""

from __future__ import annotations

from typing import NewType

from rackmodel.model.einsum import Access
from rackmodel.model.workload import Op, Workload

Placement = NewType("Placement", str)
Split = NewType("Split", str)
Choice = Split | None
Layout = tuple[Placement, ...]

REPLICATE, PARTIAL, FLAT = Placement("R"), Placement("P"), Placement("S:*")  # FLAT: split evenly with no rank named (a sharded weight home)


def shard(rank: str) -> Placement:
    """Placement of a tensor split by one of its ranks."""
    return Placement(f"S:{rank}")


def is_shard(placement: Placement) -> bool:
    """Whether a placement splits the tensor."""
    return placement[0] == "S"


def rank_split(placement: Placement) -> str | None:
    """The rank that a placement splits, '*' where it splits the tensor evenly, None where it splits none."""
    return placement[2:] if is_shard(placement) else None


def split(index: str) -> Split:
    """The choice to split an index of an operation."""
    return Split(index)


def pass_partial(operand: str = "") -> Split:
    """The choice to pass on an operand's Partial, '' = that of all."""
    return Split(f"+{operand}")


def batch_choice(op: Op, workload: Workload) -> Choice:
    """What micro-batches split of an operation."""
    index = op.batch_index(workload)
    return split(index) if index else None


def passes_partial(choice: Choice) -> bool:
    """Whether a choice passes a Partial through."""
    return choice is not None and choice[0] == "+"


def index_split(choice: Choice) -> str | None:
    """The index that a choice splits, None where it splits none."""
    return None if choice is None or choice[0] == "+" else choice


def choice_of(word: str | None) -> Choice:
    """A choice as files write it: an index, '+operand', or nothing."""
    return None if word is None else Split(word)


def placement_of(access: Access, index: str, workload: Workload) -> Placement | None:
    """Placement of an operand when its operation splits `index`; None where the operand lacks the index.

    In a window p+r only the longest index splits the rank (its halo is exchanged); splitting a short one needs it all.
    """
    position = access.rank_of(index)
    if position is None:
        return None
    terms = access.indices[position]
    longest = max(terms, key=lambda term: (term[0] * (workload.sizes[term[1]] - 1), -terms.index(term)))
    if longest[1] != index:
        return REPLICATE
    return shard(workload.tensors[access.tensor].ranks[position])


def carries(choice: Choice, access: Access) -> bool:
    """Whether this operand arrives as a Partial."""
    return choice in (pass_partial(), pass_partial(access.tensor))


def need(access: Access, choice: Choice, workload: Workload) -> Placement:
    """Placement in which the forward pass needs an operand."""
    index = index_split(choice)
    if index is None:
        return PARTIAL if carries(choice, access) else REPLICATE
    return placement_of(access, index, workload) or REPLICATE


def leaves(op: Op, choice: Choice) -> Placement:
    """Placement in which the forward pass leaves the output."""
    if choice is None:
        return REPLICATE
    if passes_partial(choice):
        return PARTIAL
    if choice in op.out.names:
        return shard(choice)
    return REPLICATE if choice in op.over else PARTIAL


def grad_need(op: Op, choice: Choice) -> Placement:
    """Placement in which the backward pass needs the output's gradient."""
    return shard(choice) if choice is not None and choice in op.out.names else REPLICATE


def grad_leaves(access: Access, choice: Choice, workload: Workload) -> Placement:
    """Placement in which the backward pass leaves an operand's gradient.

    Partial where the operand lacks the split index: each device saw a part of what the operand touched.
    """
    if choice is None:
        return REPLICATE
    if passes_partial(choice):
        return REPLICATE if carries(choice, access) else PARTIAL
    placement = placement_of(access, choice, workload)
    return PARTIAL if placement is None or placement == REPLICATE else placement


def legal_choices(op: Op, workload: Workload) -> tuple[Choice, ...]:
    """Every choice one axis may make for an operation, in a fixed order: None, its indices, then the Partials."""
    splittable = op.indices if op.kind.inner else tuple(i for i in op.indices if i in op.out.names or i in op.over)
    whole = op.whole(workload)
    choices: list[Choice] = [None, *(split(i) for i in splittable if workload.sizes[i] > 1 and i not in whole)]
    if op.kind.linear:
        if op.kind.name == "einsum" or op.kind.name == "dispatch":
            moving = op.ins if op.kind.name == "einsum" else op.ins[:1]
            choices += [pass_partial(access.tensor) for access in moving if workload.tensors[access.tensor].kind == "activation"]
        else:
            choices.append(pass_partial())
    return tuple(choices)


def merge(first: Layout, second: Layout) -> Layout | None:
    """Layout in which two gradient contributions can be summed without moving anything; None if there is none.

    R + P = P and S + P = P (anything is a Partial after zero padding); R + S = S (slice).
    """
    merged = []
    for a, b in zip(first, second, strict=True):
        if a == b:
            merged.append(a)
        elif PARTIAL in (a, b):
            merged.append(PARTIAL)
        elif REPLICATE in (a, b):
            merged.append(a if b == REPLICATE else b)
        else:
            return None
    return tuple(merged)
