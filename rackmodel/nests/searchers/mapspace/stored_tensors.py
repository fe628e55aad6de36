"""Which tensors are stored where: the machine's keep and bypass lists, the constraints, and what they leave free.

Every free choice is tried (2^free masks, each an exact search that the best mapping so far may cut short).
"""

from collections.abc import Collection
from itertools import product

from rackmodel.errors import RackmodelError
from rackmodel.nests.constraints import NestConstraints
from rackmodel.nests.problem import NestLevel, NestMachine, NestProblem

Stored = tuple[Collection[str], ...]  # per level, the names of the tensors stored there (level 0: all)


def keep_masks(problem: NestProblem, machine: NestMachine, constraints: NestConstraints) -> tuple[Stored, ...]:
    """Every legal choice of stored tensors per level, keeping most first. RackmodelError on a contradiction."""
    free: list[tuple[int, str]] = []
    base: list[set[str]] = [{t.name for t in problem.tensors}]
    for i, v in enumerate(machine.levels[1:], start=1):
        kept: set[str] = set()
        for t in problem.tensors:
            choice = _choice(v, t.name, constraints)
            if choice is None:
                free.append((i, t.name))
            elif choice:
                kept.add(t.name)
        base.append(kept)
    masks: list[Stored] = []
    for chosen in product((True, False), repeat=len(free)):
        levels = [set(b) for b in base]
        for (i, name), keep in zip(free, chosen, strict=True):
            if keep:
                levels[i].add(name)
        masks.append(tuple(frozenset(k) for k in levels))
    return tuple(masks)


def _choice(level: NestLevel, tensor: str, constraints: NestConstraints) -> bool | None:
    """True: stored, False: bypassed, None: free."""
    keep = tensor in constraints.keep.get(level.name, ())
    skip = tensor in constraints.bypass.get(level.name, ())
    if keep and tensor in level.bypass:
        raise RackmodelError(
            f"{level.name} cannot store {tensor}: the machine bypasses it; it stores {', '.join(level.keep or ()) or 'any other tensor'}"
        )
    if skip and level.keep is not None and tensor in level.keep:
        raise RackmodelError(f"{level.name} must store {tensor}: the mapper may not bypass it")
    if keep or skip:
        return keep
    if tensor in level.bypass:
        return False
    return True if level.must_keep(tensor) else None
