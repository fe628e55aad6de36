"""Why nothing fits: the level whose smallest legal tiles overflow, what they need and what there is."""

from collections.abc import Iterator, Mapping
from itertools import permutations
from math import inf

from rackmodel.errors import InfeasibleError
from rackmodel.nests.constraints import FixedTile
from rackmodel.nests.problem import NestLevel
from rackmodel.nests.searchers.contract import NestQuestion
from rackmodel.nests.searchers.mapspace.space import OnChip
from rackmodel.nests.searchers.mapspace.stored_tensors import Stored


def infeasible(q: NestQuestion) -> InfeasibleError:
    """InfeasibleError of the tightest level: it needs the smallest tile of every tensor it must store, around those that are fixed further
    in, beside what stays there whole. Where a fixed tile is no divisor and divisors are searched, of that."""
    masks = [kept for kept in q.masks if not any(_no_divisors(q, kept))]
    if not masks:
        return _of_a_tile(q, next(_no_divisors(q, q.masks[0])))
    worst: tuple[float, NestLevel, float, float] | None = None
    for level, v in enumerate(q.machine.levels[1:], start=1):
        have = v.capacity_bits
        need = inf if have is None else min(_least_bits(q, level, kept) for kept in masks)
        if have is not None and have < need < inf and (worst is None or need / have > worst[0]):
            worst = need / have, v, need, have
    if worst is None:
        return InfeasibleError(f"{q.problem.name} on {q.machine.name}: the constraints leave no mapping")
    _, v, need, have = worst
    return InfeasibleError(
        f"{q.problem.name} on {q.machine.name}: {v.name} needs {need:g} bits for its smallest tiles, has {have:g}",
        resource=v.name,
        need=need,
        have=have,
        unit="bits",
        change=f"capacity {need:g} bits",
    )


def _least_bits(q: NestQuestion, level: int, kept: Stored) -> float:
    """Bits of a level for its smallest tiles in any order of its nodes; inf where none obeys the fixed tiles."""
    resident = q.resident if level == 1 else frozenset[str]()
    whole = OnChip.of(q.problem, q.machine, resident).bits
    names = [t.name for t in q.problem.tensors if t.name in kept[level] and t.name not in resident]
    allowed = [o for o in permutations(names) if q.constraints.allows_order(q.machine.levels[level].name, o)]
    return whole + min((_bits_of(q, level, order, _held_within(q, level, kept)) for order in allowed), default=inf)


def _held_within(q: NestQuestion, level: int, kept: Stored) -> dict[str, int]:
    """Of every rank the size that tiles of a level have at least: an instruction's, and those fixed further in."""
    held = {r: min(q.machine.compute.atom.get(r, 1), n) for r, n in q.problem.sizes.items()}
    for f in (f for inner in range(level + 1, len(kept)) for f in _fixed(q, inner, kept)):
        held[f.rank] = max(held[f.rank], f.size)
    return held


def _fixed(q: NestQuestion, level: int, kept: Stored) -> Iterator[FixedTile]:
    """Fixed tiles of a level that some tensor stored there has."""
    stored = [t for t in q.problem.tensors if t.name in kept[level]]
    for f in q.constraints.tiles:
        if f.level == q.machine.levels[level].name and any(f.tensor in (None, t.name) and f.rank in t.ranks for t in stored):
            yield f


def _no_divisors(q: NestQuestion, kept: Stored) -> Iterator[FixedTile]:
    """Fixed tiles that are to be divisors, and are none."""
    if q.factors == "perfect":
        yield from (f for level in range(1, len(kept)) for f in _fixed(q, level, kept) if q.problem.sizes[f.rank] % f.size)


def _of_a_tile(q: NestQuestion, f: FixedTile) -> InfeasibleError:
    size = q.problem.sizes[f.rank]
    said = f"{q.problem.name} on {q.machine.name}: fixed tile {f.rank} = {f.size} at {f.level} does not divide {size}"
    return InfeasibleError(said, change="factors ceil, or a divisor")


def _bits_of(q: NestQuestion, level: int, order: tuple[str, ...], held: Mapping[str, int]) -> float:
    """Bits of the smallest tiles of one order of nodes around others; inf where a tile is fixed below what it must hold."""
    v, tile, total = q.machine.levels[level], dict(held), 0.0
    for name in reversed(order):
        tensor = q.problem.tensor(name)
        for f in q.constraints.tiles:
            if f.level == v.name and f.tensor in (None, name) and f.rank in tensor.ranks:
                if tile[f.rank] > f.size:
                    return inf
                tile[f.rank] = f.size
        total += v.buffers * v.bits(tensor) * tensor.tile_words(tile)
    return total
