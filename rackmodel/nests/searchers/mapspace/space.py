"""The declared mapspace of one einsum on one machine, with the choice of stored tensors made.

Everything the searches need by number instead of by name: ranks, tile axes, which tensor has which rank, spatial sets
of each fanout, allowed node orders of each level. "Level L" (one past the last memory) is the compute.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import permutations, product
from math import lcm, prod
from typing import NamedTuple

import numpy as np

from rackmodel.arrays import Bools, Ints
from rackmodel.errors import RackmodelError
from rackmodel.nests.constraints import NestConstraints
from rackmodel.nests.problem import NestMachine, NestProblem, index_term
from rackmodel.nests.searchers.mapspace.divisor_axis import DivisorAxis
from rackmodel.nests.searchers.mapspace.list_axes import ListAxis
from rackmodel.nests.searchers.mapspace.rank_merging import merge_problem, merged_ranks
from rackmodel.nests.searchers.mapspace.spatial_vectors import Vector, spatial_set
from rackmodel.nests.searchers.mapspace.stored_tensors import Stored
from rackmodel.nests.searchers.mapspace.tile_axis import TileAxis
from rackmodel.nests.searchers.mapspace.word_terms import TensorTerm


class OnChip(NamedTuple):
    """Tensors that live in level 1 without traffic to level 0, and bits of level 1 that are taken (by them and others)."""

    tensors: frozenset[str] = frozenset()
    bits: float = 0.0

    @staticmethod
    def of(problem: NestProblem, machine: NestMachine, resident: frozenset[str]) -> "OnChip":
        """Tensors that stay whole; RackmodelError where that makes no sense."""
        if not resident:
            return OnChip()
        if len(machine.levels) < 2 or machine.levels[0].fan.size > 1 or machine.levels[0].fan.linear:
            raise RackmodelError("resident tensors need a level below the outermost and no fanout between")
        level, tensors = machine.levels[1], [problem.tensor(name) for name in sorted(resident)]
        return OnChip(resident, float(sum(level.buffers * level.bits(t) * t.tile_words(problem.sizes) for t in tensors)))


class Space:
    """Perfect factors by default; `axes` of another kind make the ceil spaces (ceil_deep.py).

    kept: the tensors stored at each level · groups: merged rank → its parts, if given (else by lemma L1, unless merge is
    False) · leaf: [ranks] the tile of one instruction · terms: [tensors] their symbolic counts · like: a space of the same einsum, machine
    and ranks, whose spatial vectors it shares.
    """

    def __init__(
        self,
        problem: NestProblem,
        machine: NestMachine,
        kept: Stored,
        constraints: NestConstraints,
        *,
        axes: Sequence[TileAxis] | None = None,
        groups: Mapping[str, list[str]] | None = None,
        on_chip: OnChip | None = None,
        like: "Space | None" = None,
    ) -> None:
        self.original, self.machine, self.kept, self.constraints = problem, machine, kept, constraints
        self.on_chip = on_chip or OnChip()
        merged = merged_ranks(problem, constraints.named_ranks(), machine.compute.atom) if axes is None else alone(problem)
        self.groups = dict(groups) if groups else merged
        self.problem = merge_problem(problem, self.groups)
        self.ranks = list(self.problem.sizes)
        self.sizes = tuple(self.problem.sizes.values())
        self.tensors = self.problem.tensors
        self.output = next(i for i, t in enumerate(self.tensors) if t.is_output)
        self.depth = len(machine.levels)
        self.axes: list[TileAxis] = list(axes) if axes is not None else [DivisorAxis(n) for n in self.sizes]
        self.leaf = [prod(machine.compute.atom.get(r, 1) for r in parts) for parts in self.groups.values()]
        self.aligned = self.axes[0].aligned
        if self.aligned and any(n % u for n, u in zip(self.sizes, self.leaf, strict=True)):
            raise RackmodelError(
                f"{problem.name}: perfect factors need sizes that are multiples of the atom {machine.compute.atom}; use ceil factors"
            )
        self.terms = [self._term(t) for t in range(len(self.tensors))]
        if like is not None:
            self.spatial, self.vectors = like.spatial, like.vectors

    def _term(self, t: int) -> TensorTerm:
        tensor, numbers = self.tensors[t], range(len(self.ranks))
        plain = prod(self.problem.sizes[r] for r in tensor.ranks if r not in tensor.affine_ranks)
        has = tuple(r for r in numbers if self.has[t, r] and not self.affine[t, r])
        sums = tuple(
            tuple((c, self.ranks.index(r)) for c, r in map(index_term, i))
            for i in tensor.indices
            if any(r in tensor.affine_ranks for _, r in map(index_term, i))
        )
        return TensorTerm(float(plain), has, tuple(r for r in numbers if not self.has[t, r]), sums)

    @cached_property
    def divisor_axes(self) -> list[DivisorAxis]:
        """The axes of a space of perfect factors."""
        return [a for a in self.axes if isinstance(a, DivisorAxis)]

    @cached_property
    def list_axes(self) -> list[ListAxis]:
        """The axes of a ceil space."""
        return [a for a in self.axes if isinstance(a, ListAxis)]

    @cached_property
    def has(self) -> Bools:
        """[tensor, rank] True where the tensor has the rank."""
        return np.array([[r in t.ranks for r in self.ranks] for t in self.tensors])

    @cached_property
    def affine(self) -> Bools:
        """[tensor, rank] True where the rank sits in a sum or has a stride."""
        return np.array([[r in t.affine_ranks for r in self.ranks] for t in self.tensors])

    def stored(self, level: int) -> list[int]:
        """Numbers of the tensors with a storage node at `level`."""
        inside = self.on_chip.tensors if level == 1 else frozenset()
        return [i for i, t in enumerate(self.tensors) if t.name in self.kept[level] and t.name not in inside]

    def alike(self, level: int) -> Hashable:
        """What decides tables and tiles from a level inwards, perfect factors: spaces that say the same differ there in names alone."""
        levels, tensors, inner = self.machine.levels, range(len(self.tensors)), range(level, self.depth)
        tiles = tuple((axis.size, *axis.factors) for axis in self.divisor_axes)
        nodes = tuple(
            (self.capacity(n), levels[n].buffers, tuple(self.orders(n)), tuple(self.fixed(n)), tuple(self.present(n))) for n in inner
        )
        from_above = tuple(self.parent(n, t) for n in (*inner, self.depth) for t in tensors)
        bits = tuple(v.bits(t) for v in levels for t in self.tensors)
        sides = tuple((v.fan, *(frozenset(map(self.ranks.index, self.allowed(v.name, d))) for d in "XY")) for v in levels[level - 1 :])
        return level, tiles, tuple(self.leaf), tuple(self.terms), self.output, nodes, from_above, bits, sides

    def present(self, level: int) -> list[int]:
        """Numbers of the tensors that levels below fetch from `level`: stored there, or resident."""
        inside = self.on_chip.tensors if level == 1 else frozenset()
        return [i for i, t in enumerate(self.tensors) if t.name in self.kept[level] or t.name in inside]

    def parent(self, level: int, t: int) -> int:
        """The nearest level above `level` that holds tensor t."""
        return max(p for p in range(level) if t in self.present(p))

    def several(self, r: int) -> bool:
        """Whether a merged rank has several parts of more than one."""
        return sum(self.original.sizes[part] > 1 for part in self.groups[self.ranks[r]]) > 1

    @cached_property
    def least_tiles(self) -> list[int]:
        """[ranks] an instruction's tile, where the whole rank is no smaller."""
        atom, sizes = self.machine.compute.atom, self.original.sizes
        return [prod(min(atom.get(part, 1), sizes[part]) for part in parts) for parts in self.groups.values()]

    def capacity(self, level: int) -> float | None:
        """Bits that the nodes of `level` may take."""
        bits = self.machine.levels[level].capacity_bits
        return bits if bits is None or level != 1 else bits - self.on_chip.bits

    @cached_property
    def spatial(self) -> list[list[tuple[Vector, Vector, Vector]]]:
        """Per fanout: [(s, x, y)]; see spatial_set. Parts are tile ratios an axis knows; of perfect factors, those of whole leaves."""
        sets = []
        for v in self.machine.levels:
            each = zip(self.ranks, self.axes, self.sizes, self.leaf, strict=True)
            choices = {r: [k for k in a.parts(v.fan) if not (self.aligned and n % (k * u))] for r, a, n, u in each}
            sets.append(spatial_set(v.fan, choices, self.allowed(v.name, "X"), self.allowed(v.name, "Y")))
        return sets

    def allowed(self, level: str, dim: str) -> set[str]:
        """Merged ranks that may lie on a dimension of the fanout below `level`."""
        named = self.constraints.spatial.get((level, dim))
        return {g for g, parts in self.groups.items() if named is None or all(p in named for p in parts)}

    @cached_property
    def vectors(self) -> list[Ints]:
        """Per fanout: [vectors, ranks] parts, in the order of `spatial`."""
        return [np.array([[s.get(r, 1) for r in self.ranks] for s, _, _ in sets], dtype=np.int64) for sets in self.spatial]

    def groups_of(self, fan: int) -> Ints:
        """[vectors, ranks] parts that one transfer of the parent serves (the relaxation counts them higher)."""
        return self.vectors[fan]

    @cached_property
    def boxes(self) -> list[list[TileAxis]]:
        """Per level 1..L: the axes its cost table needs; the compute's is the lattice of reachable parts alone."""
        inner: list[TileAxis]
        if self.aligned:
            parts = self.vectors[-1] * np.array(self.leaf)
            inner = [axis.box(lcm(*(int(v) for v in set(parts[:, r])))) for r, axis in enumerate(self.divisor_axes)]
        elif len(self.vectors[-1]) == 1:
            inner = [a.unit_box() for a in self.list_axes]
        else:
            inner = self.axes
        return [*[self.axes] * self.depth, inner]

    def orders(self, level: int) -> list[tuple[int, ...]]:
        """Allowed orders of the storage nodes of `level`, outer → inner."""
        name = self.machine.levels[level].name
        return [o for o in permutations(self.stored(level)) if self.constraints.allows_order(name, tuple(self.tensors[t].name for t in o))]

    def all_orders(self) -> Iterator[tuple[tuple[int, ...], ...]]:
        """Those of every level but the outermost, one after another."""
        return product(*(self.orders(level) for level in range(1, self.depth)))

    def fixed(self, level: int) -> list[tuple[int, int | None, int]]:
        """Fixed tiles of a level: [(rank, tensor or None, size)]."""
        name = self.machine.levels[level].name
        names = [t.name for t in self.tensors]
        return [
            (self.ranks.index(f.rank), names.index(f.tensor) if f.tensor else None, f.size)
            for f in self.constraints.tiles
            if f.level == name
        ]


def alone(problem: NestProblem) -> dict[str, list[str]]:
    """Every rank its own group: no merging (L1 does not hold for ragged tiles)."""
    return {r: [r] for r in problem.sizes}
