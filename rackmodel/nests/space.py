"""The declared mapspace of one einsum on one machine, with the choice of kept tensors made.

Everything the searches need by number instead of by name: ranks, tile axes, which tensor has which rank, spatial sets
of each fanout, allowed node orders of each level. "Level L" (one past the last memory) is the compute.
"""

from functools import cached_property
from itertools import permutations
from math import lcm, prod

import numpy as np

from rackmodel.errors import RackmodelError
from rackmodel.nests.constraints import NestConstraints
from rackmodel.nests.lattice import DivisorAxis, merge_problem, merged_ranks
from rackmodel.nests.problem import NestMachine, NestProblem, index_term
from rackmodel.nests.spatial import spatial_set


class Space:
    """Perfect factors by default; `axis_class` and `choices` make the ceil spaces (see ceil.py).

    kept: per level, the names of the tensors stored there (level 0: all). resident: tensors that live in level 1
    without traffic to level 0; `reserved` bits of level 1 are taken (by them). groups: merged ranks, if given.
    """

    def __init__(
        self,
        problem: NestProblem,
        machine: NestMachine,
        kept,
        constraints: NestConstraints,
        *,
        axes=None,
        merge=True,
        groups=None,
        resident=frozenset(),
        reserved=0.0,
    ):
        self.original, self.machine, self.kept, self.constraints = problem, machine, kept, constraints
        self.resident, self.reserved = frozenset(resident), reserved
        apart = constraints.named_ranks() | set(machine.compute.atom)
        self.groups = groups or (merged_ranks(problem, apart) if merge else {r: [r] for r in problem.sizes})
        self.problem = merge_problem(problem, self.groups)
        self.ranks = list(self.problem.sizes)
        self.tensors = self.problem.tensors
        self.depth = len(machine.levels)
        self.axes = axes or [DivisorAxis(self.problem.sizes[r]) for r in self.ranks]
        self.leaf = [machine.compute.atom.get(r, 1) for r in self.ranks]
        self.aligned = self.axes[0].aligned
        if self.aligned and any(a.size % u for a, u in zip(self.axes, self.leaf, strict=True)):
            raise RackmodelError(
                f"{problem.name}: perfect factors need sizes that are multiples of the atom {machine.compute.atom}; use ceil factors"
            )
        self.sizes_words = [prod(self.problem.sizes[r] for r in t.ranks if r not in t.affine_ranks) for t in self.tensors]

    @cached_property
    def has(self) -> np.ndarray:
        """[tensor, rank] True where the tensor has the rank."""
        return np.array([[r in t.ranks for r in self.ranks] for t in self.tensors])

    @cached_property
    def affine(self) -> np.ndarray:
        """[tensor, rank] True where the rank sits in a sum or has a stride."""
        return np.array([[r in t.affine_ranks for r in self.ranks] for t in self.tensors])

    def sums(self, t: int) -> list[list[tuple[int, int]]]:
        """The tensor's affine indices as [(coefficient, rank number)]."""
        tensor = self.tensors[t]
        return [
            [(c, self.ranks.index(r)) for c, r in map(index_term, i)]
            for i in tensor.indices
            if any(r in tensor.affine_ranks for _, r in map(index_term, i))
        ]

    def stored(self, level: int) -> list[int]:
        """Numbers of the tensors with a storage node at `level`."""
        return [i for i, t in enumerate(self.tensors) if t.name in self.kept[level] and not (level == 1 and t.name in self.resident)]

    def present(self, level: int) -> list[int]:
        """Numbers of the tensors that levels below fetch from `level`: stored there, or resident."""
        return [i for i, t in enumerate(self.tensors) if t.name in self.kept[level] or (level == 1 and t.name in self.resident)]

    def parent(self, level: int, t: int) -> int:
        """The nearest level above `level` that holds tensor t."""
        return max(p for p in range(level) if t in self.present(p))

    def capacity(self, level: int) -> float | None:
        """Bits that the nodes of `level` may take."""
        bits = self.machine.levels[level].capacity_bits
        return bits if bits is None or level != 1 else bits - self.reserved

    @cached_property
    def spatial(self) -> list[list[tuple[dict, dict, dict]]]:
        """Per fanout: [(s, x, y)]; see spatial_set. Parts are tile ratios an axis knows."""
        sets = []
        for v in self.machine.levels:
            choices = {r: a.parts(v.fan) for r, a in zip(self.ranks, self.axes, strict=True)}
            found = spatial_set(v.fan, choices, self.allowed(v.name, "X"), self.allowed(v.name, "Y"))
            sets.append(found)
        return sets

    def allowed(self, level: str, dim: str) -> set[str]:
        """Merged ranks that may lie on a dimension of the fanout below `level`."""
        named = self.constraints.spatial.get((level, dim))
        return {g for g, parts in self.groups.items() if named is None or all(p in named for p in parts)}

    @cached_property
    def vectors(self) -> list[np.ndarray]:
        """Per fanout: [vectors, ranks] parts, in the order of `spatial`."""
        return [np.array([[s.get(r, 1) for r in self.ranks] for s, _, _ in sets], dtype=np.int64) for sets in self.spatial]

    def groups_of(self, fan: int) -> np.ndarray:
        """[vectors, ranks] parts that one transfer of the parent serves (the relaxation counts them higher)."""
        return self.vectors[fan]

    @cached_property
    def boxes(self) -> list[list]:
        """Per level 1..L: the axes its cost table needs; the compute's is the lattice of reachable parts alone."""
        boxes = [self.axes] * self.depth
        if self.aligned:
            parts = self.vectors[-1] * np.array(self.leaf)
            inner = [DivisorAxis(lcm(*(int(v) for v in set(parts[:, r])))) for r in range(len(self.ranks))]
        elif len(self.vectors[-1]) == 1:
            inner = [a.unit_box() for a in self.axes]
        else:
            inner = self.axes
        return [*boxes, inner]

    def orders(self, level: int) -> list[tuple[int, ...]]:
        """Allowed orders of the storage nodes of `level`, outer → inner."""
        name = self.machine.levels[level].name
        return [o for o in permutations(self.stored(level)) if self.constraints.allows_order(name, tuple(self.tensors[t].name for t in o))]

    def fixed(self, level: int) -> list[tuple[int, int | None, int]]:
        """Fixed tiles of a level: [(rank, tensor or None, size)]."""
        name = self.machine.levels[level].name
        names = [t.name for t in self.tensors]
        return [
            (self.ranks.index(f.rank), names.index(f.tensor) if f.tensor else None, f.size)
            for f in self.constraints.tiles
            if f.level == name
        ]
