"""What a mapper file may demand of a loop nest; every entry is obeyed or refused, never dropped."""

from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import combinations

from rackmodel.errors import RackmodelError
from rackmodel.nests.problem import NestMachine, NestProblem


@dataclass(frozen=True)
class FixedTile:
    """At `level`, tensor `tensor` (None: every tensor kept there that has the rank) stores `size` of `rank`."""

    level: str
    rank: str
    size: int
    tensor: str | None = None


@dataclass(frozen=True)
class NestConstraints:
    """Demands on a mapping.

    order: level → tensors, outer → inner (the order of those named). stationary: level → the tensor whose node is
    outermost. tiles: fixed tiles. spatial: (level, "X" | "Y") → ranks allowed there (of the fanout below the level).
    keep, bypass: level → tensors that must, must not be stored there.
    """

    order: dict[str, tuple[str, ...]] = field(default_factory=dict)
    stationary: dict[str, str] = field(default_factory=dict)
    tiles: tuple[FixedTile, ...] = ()
    spatial: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    keep: dict[str, tuple[str, ...]] = field(default_factory=dict)
    bypass: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def check(self, problem: NestProblem, machine: NestMachine) -> None:
        """RackmodelError for a level, tensor, rank or size that does not exist or contradicts another demand."""
        inner = {v.name for v in machine.levels[1:]}
        named = [*self.order, *self.stationary, *self.keep, *self.bypass, *(t.level for t in self.tiles)]
        for name in named:
            if name not in inner:
                raise RackmodelError(f"constraint on level {name!r}: known inner levels: {', '.join(sorted(inner))}")
        for level, dim in self.spatial:
            if level not in {v.name for v in machine.levels} or dim not in ("X", "Y"):
                raise RackmodelError(f"spatial constraint on {level!r} {dim!r}: expected a level and X or Y")
        tensors = [t for group in (self.order, self.keep, self.bypass) for ts in group.values() for t in ts]
        tensors += [*self.stationary.values(), *(t.tensor for t in self.tiles if t.tensor)]
        for tensor in tensors:
            problem.tensor(tensor)
        ranks = [r for rs in self.spatial.values() for r in rs] + [t.rank for t in self.tiles]
        for rank in ranks:
            if rank not in problem.sizes:
                raise RackmodelError(f"constraint on rank {rank!r}: known: {', '.join(problem.sizes)}")
        for t in self.tiles:
            if not 1 <= t.size <= problem.sizes[t.rank]:
                raise RackmodelError(f"fixed tile {t.rank} = {t.size} at {t.level}: the rank has {problem.sizes[t.rank]}")
            if t.tensor and t.rank not in problem.tensor(t.tensor).ranks:
                raise RackmodelError(f"fixed tile at {t.level}: {t.tensor} has no rank {t.rank}")
        for one, other in combinations(self.tiles, 2):
            if (one.level, one.rank, one.tensor) == (other.level, other.rank, other.tensor) and one.size != other.size:
                raise RackmodelError(f"fixed tile {one.rank} at {one.level}: both {one.size} and {other.size}")
        for level in set(self.keep) & set(self.bypass):
            both = set(self.keep[level]) & set(self.bypass[level])
            if both:
                raise RackmodelError(f"{level}: {', '.join(sorted(both))} both kept and bypassed")

    def check_resident(self, level: str, resident: Collection[str], problem: NestProblem) -> None:
        """RackmodelError where something is demanded, at the level that keeps them whole, of tensors that lie there as they are."""
        named = {*self.order.get(level, ()), *self.bypass.get(level, ()), *([self.stationary[level]] if level in self.stationary else ())}
        fixed = [t for t in self.tiles if t.level == level]
        named |= {name for t in fixed for name in resident if t.tensor in (None, name) and t.rank in problem.tensor(name).ranks}
        if stuck := sorted(named.intersection(resident)):
            raise RackmodelError(f"{level} keeps {', '.join(stuck)} whole: no order, tile or bypass of theirs can be demanded there")

    def named_ranks(self) -> set[str]:
        """Ranks a constraint names: they may not be merged with others."""
        return {r for rs in self.spatial.values() for r in rs} | {t.rank for t in self.tiles}

    def allows_order(self, level: str, order: tuple[str, ...]) -> bool:
        """Do `order` and `stationary` allow these nodes, outer → inner, at a level?"""
        wanted = [t for t in self.order.get(level, ()) if t in order]
        first = self.stationary.get(level)
        on_top = first is None or first not in order or order[0] == first
        return on_top and [t for t in order if t in wanted] == wanted
