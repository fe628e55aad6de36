"""The mapspace as CP-SAT variables: exponents of tiles and parts, orders, what nests in what; no lemma but L1.

Variables: exponents of the tile of every tensor at every level, of the parts of every fanout on X and Y; one Boolean a
pair of tensors and level says whose tile is the outer one. Between levels outer exponents >= parts + inner exponents.
Tables turn exponents into sizes and counts, multiplications into their products.
"""

from collections.abc import Callable
from itertools import combinations
from math import inf
from typing import Any

from rackmodel.nests.searchers.mapspace.space import Space
from rackmodel.nests.searchers.mapspace.spatial_vectors import vectors

Exponents = list[Any]  # of one rank, one a prime: variables, linear expressions or whole numbers
Words = tuple[Any, int]  # (variable or 1, largest value)


class SpaceModel:
    """Variables and nesting of one mask of stored tensors. parts: [fan][rank] exponents · tile: (level, tensor) → [rank]
    exponents · before: (level, tensor, tensor) → Boolean."""

    def __init__(self, space: Space) -> None:
        from ortools.sat.python import cp_model

        self.cp: Any = cp_model
        self.model: Any = self.cp.CpModel()
        self.space = space
        self.ranks = range(len(space.ranks))
        self.leaf = [self._constant(r, space.leaf[r]) for r in self.ranks]
        self._make_fans()
        self._make_tiles()
        self._chain()

    def _constant(self, r: int, value: int) -> list[int]:
        axis = self.space.divisor_axes[r]
        return [next(k for k in range(64) if value % p ** (k + 1)) for p, _ in axis.factors]

    def _exponents(self, r: int, name: str) -> Exponents:
        return [self.model.new_int_var(0, e, f"{name}_{r}_{p}") for p, e in self.space.divisor_axes[r].factors]

    def _make_fans(self) -> None:
        self.parts: list[list[Exponents]] = []  # fan, rank → linear expressions
        self.sides: list[list[list[Exponents]]] = []
        for f, v in enumerate(self.space.machine.levels):
            sides = []
            for dim, limit in (("X", inf if v.fan.linear else v.fan.x), ("Y", v.fan.y)):
                allowed = self.space.allowed(v.name, dim)
                options = {
                    str(r): [t for t in self.space.divisor_axes[r].parts(v.fan) if self.space.ranks[r] in allowed or t == 1]
                    for r in self.ranks
                }
                side = [self._exponents(r, f"{dim}{f}") for r in self.ranks]
                flat = [x for rank in side for x in rank]
                rows = [[k for r in self.ranks for k in self._constant(r, vector.get(str(r), 1))] for vector in vectors(options, limit)]
                if flat:
                    self.model.add_allowed_assignments(flat, rows)
                sides.append(side)
            self.sides.append(sides)
            self.parts.append([[x + y for x, y in zip(sides[0][r], sides[1][r], strict=True)] for r in self.ranks])

    def _make_tiles(self) -> None:
        space = self.space
        self.tile: dict[tuple[int, int], list[Exponents]] = {}
        self.before: dict[tuple[int, int, int], Any] = {}
        names = [t.name for t in space.tensors]
        for level in range(1, space.depth):
            v, c = space.machine.levels[level], space.constraints
            for t in space.stored(level):
                self.tile[level, t] = [self._exponents(r, f"e{level}_{t}") for r in self.ranks]
            for t, u in combinations(space.stored(level), 2):
                outer = self.model.new_bool_var(f"o{level}_{t}_{u}")
                self.before[level, t, u] = outer
                for a, b in self._pairs(self.tile[level, t], self.tile[level, u]):
                    self.model.add(a >= b).only_enforce_if(outer)
                    self.model.add(a <= b).only_enforce_if(outer.negated())
                wanted = [n for n in c.order.get(v.name, ()) if n in (names[t], names[u])]
                if len(wanted) == 2:
                    self.model.add(outer == (wanted[0] == names[t]))
                if c.stationary.get(v.name) in (names[t], names[u]):
                    self.model.add(outer == (c.stationary[v.name] == names[t]))
            for r, tensor, size in space.fixed(level):
                for t in space.stored(level):
                    if space.has[t, r] and tensor in (None, t):
                        if space.divisor_axes[r].size % size:
                            self.model.add_bool_or([])  # nothing has such a tile
                            continue
                        for var, k in zip(self.tile[level, t][r], self._constant(r, size), strict=True):
                            self.model.add(var == k)

    @staticmethod
    def _pairs(a: list[Exponents], b: list[Exponents]) -> list[tuple[Any, Any]]:
        return [(x, y) for ra, rb in zip(a, b, strict=True) for x, y in zip(ra, rb, strict=True)]

    def _chain(self) -> None:
        """Tiles of one level hold the parts of the fans between and the tiles of the next."""
        space = self.space
        filled = [level for level in range(1, space.depth) if space.stored(level)]
        for a, b in zip([0, *filled], [*filled, space.depth], strict=True):
            inner = [self.leaf] if b == space.depth else [self.tile[b, t] for t in space.stored(b)]
            outer = (
                [[[e for _, e in axis.factors] for axis in space.divisor_axes]] if a == 0 else [self.tile[a, t] for t in space.stored(a)]
            )
            for high in outer:
                for low in inner:
                    for r in self.ranks:
                        for k in range(len(high[r])):
                            total = low[r][k] + sum(self.parts[f][r][k] for f in range(a, b))
                            self.model.add(high[r][k] >= total)

    # -- numbers out of exponents
    def _lookup(self, exponents: list[Exponents], ranks: list[int], value: Callable[..., int], name: str) -> Words:
        """Variable = value(tiles of `ranks`) by a table over their exponents (linear expressions or constants)."""
        axes = [self.space.divisor_axes[r] for r in ranks]
        grids: list[list[int]] = [[]]
        for axis in axes:
            grids = [[*g, int(t)] for g in grids for t in axis.tile]
        rows = [[k for r, t in zip(ranks, g, strict=True) for k in self._constant(r, t)] + [value(*g)] for g in grids]
        flat = []
        for r, exps in zip(ranks, exponents, strict=True):
            for k, e in enumerate(exps):
                if isinstance(e, int) or not isinstance(e, self.cp.IntVar):
                    var = self.model.new_int_var(0, self.space.divisor_axes[r].factors[k][1], "")
                    self.model.add(var == e)
                    e = var
                flat.append(e)
        values = [row[-1] for row in rows]
        out = self.model.new_int_var(min(values), max(values), name)
        if flat:
            self.model.add_allowed_assignments([*flat, out], rows)
        else:
            self.model.add(out == values[0])
        return out, max(values)

    def _product(self, factors: list[Words], limit: float = inf) -> Words:
        """(variable, largest value) of a product, multiplied pairwise."""
        if not factors:
            return 1, 1
        total, most = factors[0]
        for other, peak in factors[1:]:
            most = int(min(most * peak, limit))
            out = self.model.new_int_var(0, most, "")
            self.model.add_multiplication_equality(out, [total, other])
            total = out
        return total, most
