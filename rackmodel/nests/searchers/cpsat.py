"""The same space as a CP-SAT model, built differently: no dominance lemma but the merging of ranks (L1).

Variables: exponents of the tile of every tensor at every level, of the parts of every fanout on X and Y; one Boolean a
pair of tensors and level says whose tile is the outer one. Between levels outer exponents >= parts + inner exponents.
Tables turn exponents into tile sizes and counts, multiplications into words and footprints; the objective is the
energy in whole units. An oracle: it counts words on its own (docs/loop_nests.md, section 8), never by word_terms.
"""

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import combinations, pairwise
from math import inf, lcm, prod
from typing import Any

from rackmodel.errors import RackmodelError
from rackmodel.nests.evaluate import NestCost, evaluate
from rackmodel.nests.mapping import NestMapping
from rackmodel.nests.objective import TIE
from rackmodel.nests.problem import NestTensor, index_term
from rackmodel.nests.searchers.contract import Feature, Question, Searcher, all_but
from rackmodel.nests.searchers.infeasible import infeasible
from rackmodel.nests.searchers.mapping_steps import Step, build_mapping
from rackmodel.nests.searchers.perfect import space_size
from rackmodel.nests.searchers.space import Space
from rackmodel.nests.searchers.spatial_vectors import vectors
from rackmodel.nests.solution import NestCertificate, NestSolution

Exponents = list[Any]  # of one rank, one a prime: variables, linear expressions or whole numbers
Words = tuple[Any, int]  # (variable or 1, largest value)

UNITS = 2**58  # the objective stays below this
SECONDS = 300.0  # for one choice of stored tensors
Index = list[tuple[int, int]]  # an affine index: (stride, rank)


class Model:
    """One mask of stored tensors as a CP-SAT model; `solve` gives Steps and the proven bound in joules."""

    def __init__(self, space: Space) -> None:
        from ortools.sat.python import cp_model

        self.cp: Any = cp_model
        self.model: Any = self.cp.CpModel()
        self.space = space
        self.whole = [prod(space.problem.sizes[r] for r in t.ranks if r not in t.affine_ranks) for t in space.tensors]
        self.ranks = range(len(space.ranks))
        self.leaf = [self._constant(r, space.leaf[r]) for r in self.ranks]
        self.terms: list[tuple[Fraction, Any, int]] = []  # price a unit, variable or 1, largest value
        self._make_fans()
        self._make_tiles()
        self._chain()
        self._footprints()
        self._traffic()

    # -- variables
    def _sums(self, t: int) -> list[Index]:
        """The tensor's affine indices."""
        tensor, ranks = self.space.tensors[t], self.space.ranks
        indices = [[(c, ranks.index(r)) for c, r in map(index_term, i)] for i in tensor.indices]
        return [index for index in indices if any(self.space.affine[t, r] for _, r in index)]

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
                            raise RackmodelError(f"fixed tile {size} does not divide {space.ranks[r]}; use ceil")
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

    def _words(self, t: int, tile: Sequence[Exponents], fans: Iterable[int]) -> tuple[Any, int, int]:
        """(variable, largest value, constant factor) of the words of tensor t for this tile, `fans` served at once."""
        space, fans = self.space, list(fans)
        factors: list[Words] = []
        for r in self.ranks:
            if space.has[t, r]:
                continue
            group = [e + sum(self.parts[f][r][k] for f in fans) for k, e in enumerate(tile[r])]
            size = space.divisor_axes[r].size
            factors.append(self._lookup([group], [r], lambda v, size=size: size // v, f"n{r}"))
        for index in self._sums(t):
            sizes = {r: space.divisor_axes[r].size for _, r in index}

            def covered(*tiles: int, index: Index = index, sizes: dict[int, int] = sizes) -> int:
                counts = prod(sizes[r] // v for (_, r), v in zip(index, tiles, strict=True))
                return counts * (1 + sum(c * (v - 1) for (c, _), v in zip(index, tiles, strict=True)))

            factors.append(self._lookup([tile[r] for _, r in index], [r for _, r in index], covered, "halo"))
        return (*self._product(factors), self.whole[t])

    def _footprints(self) -> None:
        space = self.space
        for level in range(1, space.depth):
            v = space.machine.levels[level]
            if v.capacity_bits is None:
                continue
            used = []
            for t in space.stored(level):
                width = v.buffers * v.bits(space.tensors[t])
                factors = [
                    self._lookup([self.tile[level, t][r]], [r], lambda x: int(x), "t")
                    for r in self.ranks
                    if space.has[t, r] and not space.affine[t, r]
                ]
                for index in self._sums(t):

                    def extent(*tiles: int, index: Index = index) -> int:
                        return 1 + sum(c * (x - 1) for (c, _), x in zip(index, tiles, strict=True))

                    ranks = [r for _, r in index]
                    factors.append(self._lookup([self.tile[level, t][r] for r in ranks], ranks, extent, "x"))
                words, _ = self._product(factors, v.capacity_bits // width + 0)
                used.append(width * words)
            self.model.add(sum(used) <= int(v.capacity_bits))

    # -- energy
    def _price(self, joules: float, words: "Words | tuple[Any, int, int]", factor: int = 1) -> None:
        """joules x words (variable, largest value, constant factor) x factor into the objective."""
        variable, most, *rest = words
        factor *= prod(int(n) for n in rest)
        if joules:
            self.terms.append((Fraction(joules).limit_denominator(10**18) * factor, variable, most))

    def _sig(self, t: int, fans: int) -> Words:
        """Copies of an output element over the instances under the first `fans` fanouts."""
        factors = [
            self._lookup([self.parts[f][r]], [r], lambda v: v, "sig")
            for f in range(fans)
            for r in self.ranks
            if not self.space.has[t, r] and self.space.machine.levels[f].fan.size > 1
        ]
        return self._product(factors)

    def _traffic(self) -> None:
        space = self.space
        for t, tensor in enumerate(space.tensors):
            held = [0] + [level for level in range(1, space.depth) if (level, t) in self.tile] + [space.depth]
            for p, c in pairwise(held):
                self._transfer(t, tensor, p, c)

    def _transfer(self, t: int, tensor: NestTensor, p: int, c: int) -> None:
        space, levels = self.space, self.space.machine.levels
        tile = self.leaf if c == space.depth else self.tile[c, t]
        up, down = self._words(t, tile, range(p, c)), self._words(t, tile, [])
        parent, bits_p = levels[p], levels[p].bits(tensor)
        child = levels[c] if c < space.depth else None
        bits_c = child.bits(tensor) if child else 0
        read_c, write_c = (child.read_j_per_bit, child.write_j_per_bit) if child else (0.0, 0.0)
        whole = self.whole[t]
        rise = (parent.write_j_per_bit + parent.read_j_per_bit) if tensor.is_output else parent.read_j_per_bit
        fall = (write_c + read_c) if tensor.is_output else write_c
        self._price(bits_p * rise, up)
        self._price(bits_c * fall, down)
        if tensor.is_output:
            self._price(-bits_p * parent.read_j_per_bit, self._sig(t, p), whole)
            self._price(-bits_c * write_c, self._sig(t, c), whole)
        for f in range(p, c):
            hop = levels[f].fan.hop_j_per_bit * bits_p
            if hop:
                words = self._words(t, tile, range(f + 1, c))
                self._price(hop * (2 if tensor.is_output else 1), words)
                if tensor.is_output:
                    self._price(-hop, self._sig(t, f + 1), whole)

    def solve(self, seconds: float) -> tuple[list[Step], float, float] | None:
        """(steps, objective J, bound J) without the MACs, or None if infeasible."""
        scale = self._scale()
        self.model.minimize(sum(round(price * scale) * variable for price, variable, _ in self.terms))
        solver = self.cp.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 1
        solver.parameters.max_time_in_seconds = seconds
        status = solver.solve(self.model)
        if status == self.cp.INFEASIBLE:
            return None
        if status not in (self.cp.OPTIMAL, self.cp.FEASIBLE):
            raise RackmodelError(f"cpsat found no mapping in {seconds:g} s; use dp")
        return self._steps(solver), float(solver.objective_value / scale), float(solver.best_objective_bound / scale)

    def _scale(self) -> Fraction:
        """Whole units a joule: exact if every price fits, else as fine as 58 bits allow."""
        total = sum(abs(price) * most for price, _, most in self.terms) or Fraction(1)
        exact = Fraction(lcm(*(price.denominator for price, _, _ in self.terms)))
        return exact if exact * total < UNITS else Fraction(UNITS) / total

    def _steps(self, solver: Any) -> list[Step]:
        space = self.space

        def size(r: int, exponents: Exponents) -> int:
            values = [e if isinstance(e, int) else solver.value(e) for e in exponents]
            return prod(p**k for (p, _), k in zip(space.divisor_axes[r].factors, values, strict=True))

        steps = []
        for level in range(1, space.depth + 1):
            s = tuple(size(r, self.parts[level - 1][r]) for r in self.ranks)
            vector = next(i for i, v in enumerate(space.vectors[level - 1]) if tuple(v) == s)
            tiles = {
                t: tuple(size(r, self.tile[level, t][r]) for r in self.ranks) for t in (space.stored(level) if level < space.depth else [])
            }
            outer = {
                t: sum(solver.value(b) == (a == t) for (n, a, c), b in self.before.items() if n == level and t in (a, c)) for t in tiles
            }
            order = tuple(sorted(tiles, key=lambda t: (*(-x for x in tiles[t]), -outer[t])))
            order = tuple(sorted(order, key=lambda t: (-prod(tiles[t]), -outer[t])))
            steps.append(Step(vector, order, tuple(tiles[t] for t in order)))
        return steps


def solve_cpsat(q: Question) -> NestSolution:
    """Least energy over all masks, perfect factors; the first best stands. Bound: the solver's own."""
    best: tuple[NestMapping, NestCost] | None = None
    size, bounds = 0.0, []
    constant = q.problem.macs * q.problem.density * q.machine.compute.j_per_mac
    for kept in q.masks:
        space = Space(q.problem, q.machine, kept, q.constraints)
        size += space_size(space)
        found = Model(space).solve(SECONDS)
        if found is None:
            continue
        steps, _, bound = found
        mapping = build_mapping(space, steps)
        cost = evaluate(q.problem, q.machine, mapping)
        bounds.append(bound + constant)
        if best is None or cost.energy_j < best[1].energy_j * (1 - TIE):
            best = mapping, cost
    if best is None:
        raise infeasible(q.problem, q.machine, q.masks, q.constraints)
    mapping, cost = best
    bound = min(min(bounds), cost.energy_j)
    gap = cost.energy_j / bound - 1 if bound > 0 else inf
    return NestSolution(mapping, cost, NestCertificate(size, 0, {}, (cost.energy_j, cost.latency_s), bound, gap, SEARCHER.name))


SEARCHER = Searcher(
    "cpsat",
    "cpsat",
    all_but(Feature.CEIL, Feature.TIME, Feature.RESIDENT, Feature.HOME, Feature.PADDED_ATOM, Feature.WIDTH),
    solve_cpsat,
)
