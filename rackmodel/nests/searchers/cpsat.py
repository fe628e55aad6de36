"""The same search as a CP-SAT model, built differently: no dominance lemma but the merging of ranks (L1).

Over the variables of cpsat_space: tables turn exponents into words and footprints, the objective is the energy in whole
units. An oracle: it counts words on its own (docs/nest_theory.md, sections 2 and 8), never by word_terms.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import pairwise
from math import lcm, prod
from typing import Any

from rackmodel.errors import RackmodelError
from rackmodel.nests.evaluate import NestCost, evaluate
from rackmodel.nests.mapping import NestMapping
from rackmodel.nests.objective import TIE
from rackmodel.nests.problem import NestTensor
from rackmodel.nests.searchers.contract import Feature, NestQuestion, Searcher, all_but
from rackmodel.nests.searchers.cpsat_space import Exponents, SpaceModel, Words
from rackmodel.nests.searchers.infeasible import infeasible
from rackmodel.nests.searchers.mapspace.mapping_steps import LevelChoice, build_mapping
from rackmodel.nests.searchers.mapspace.space import Space
from rackmodel.nests.searchers.mapspace.word_terms import Sum
from rackmodel.nests.searchers.perfect import space_size
from rackmodel.nests.solution import NestCertificate, NestSolution, gap_of

UNITS = 2**58  # the objective stays below this
SECONDS, LEAST = 300.0, 2.0  # for one choice of stored tensors; where there is no time left


class EnergyModel(SpaceModel):
    """Room and energy of one mask of stored tensors; `solve` gives Steps and the proven bound in joules."""

    def __init__(self, space: Space) -> None:
        super().__init__(space)
        self.whole = [int(term.whole) for term in space.terms]
        self.terms: list[tuple[Fraction, Any, int]] = []  # price a unit, variable or 1, largest value
        self._footprints()
        self._traffic()

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
        for index in space.terms[t].sums:
            sizes = {r: space.divisor_axes[r].size for _, r in index}

            def covered(*tiles: int, index: Sum = index, sizes: dict[int, int] = sizes) -> int:
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
                for index in space.terms[t].sums:

                    def extent(*tiles: int, index: Sum = index) -> int:
                        return 1 + sum(c * (x - 1) for (c, _), x in zip(index, tiles, strict=True))

                    ranks = [r for _, r in index]
                    factors.append(self._lookup([self.tile[level, t][r] for r in ranks], ranks, extent, "x"))
                words, _ = self._product(factors, v.capacity_bits // width)
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

    def solve(self, seconds: float) -> tuple[list[LevelChoice], float, float] | None:
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

    def _steps(self, solver: Any) -> list[LevelChoice]:
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
            steps.append(LevelChoice(vector, order, tuple(tiles[t] for t in order)))
        return steps


def solve_cpsat(q: NestQuestion) -> NestSolution:
    """Least energy over all masks, perfect factors; the first best stands. Bound: the solver's own."""
    best: tuple[NestMapping, NestCost] | None = None
    size, bounds = 0.0, []
    constant = q.machine.compute.joules(q.problem)
    for kept in q.masks:
        space = Space(q.problem, q.machine, kept, q.constraints)
        size += space_size(space)
        q.effort.late |= q.effort.left < SECONDS
        found = EnergyModel(space).solve(min(SECONDS, max(LEAST, q.effort.left)))
        if found is None:
            continue
        steps, _, bound = found
        mapping = build_mapping(space, steps)
        cost = evaluate(q.problem, q.machine, mapping)
        bounds.append(bound + constant)
        if best is None or cost.energy_j < best[1].energy_j * (1 - TIE):
            best = mapping, cost
    if best is None:
        raise infeasible(q)
    mapping, cost = best
    bound = min(min(bounds), cost.energy_j)
    gap = gap_of(cost.energy_j, bound)
    sheet = NestCertificate(size, 0, {}, (cost.energy_j, cost.latency_s), bound, gap, SEARCHER.name, ties=False)
    return NestSolution(mapping, cost, sheet)


SEARCHER = Searcher(
    "cpsat",
    "cpsat",
    all_but(Feature.CEIL, Feature.TIME, Feature.RESIDENT, Feature.HOME, Feature.PADDED_ATOM, Feature.WIDTH),
    solve_cpsat,
)
