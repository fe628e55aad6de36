"""Perfect factors: every choice of stored tensors, each searched exactly by dynamic programming; the first best stands."""

from math import comb, factorial, prod

from rackmodel.errors import InfeasibleError, RackmodelError
from rackmodel.nests.problem import NestMachine, NestProblem
from rackmodel.nests.searchers.contract import Feature, NestQuestion, Searcher, all_but
from rackmodel.nests.searchers.divisor_axis import factorize
from rackmodel.nests.searchers.infeasible import infeasible
from rackmodel.nests.searchers.slices import Best, SliceSearch
from rackmodel.nests.searchers.space import OnChip, Space
from rackmodel.nests.solution import NestCertificate, NestSolution


def solve_perfect(q: NestQuestion) -> NestSolution:
    """NestSolution over all masks; InfeasibleError naming the tightest level if no mask has a mapping."""
    on_chip = OnChip(q.resident, resident_bits(q.problem, q.machine, q.resident))
    best: Best | None = None
    evaluated, size, slices = 0, 0.0, 0
    pruned: dict[str, int] = {}
    for kept in q.masks:
        search = SliceSearch(Space(q.problem, q.machine, kept, q.constraints, on_chip=on_chip), q.objective, best)
        size += space_size(search.space)
        try:
            search.run()
        except InfeasibleError:
            pruned["masks infeasible"] = pruned.get("masks infeasible", 0) + 1
            continue
        best = search.best
        slices += search.slices
        evaluated += search.cells
        for bound, n in search.pruned.items():
            pruned[bound] = pruned.get(bound, 0) + n
    if best is None:
        raise infeasible(q.problem, q.machine, q.masks, q.constraints)
    key, mapping, cost = best
    notes = (f"{len(q.masks)} choices of stored tensors", f"{slices} slices")
    return NestSolution(mapping, cost, NestCertificate(size, evaluated, pruned, key, key[0], 0.0, SEARCHER.name, notes=notes))


def resident_bits(problem: NestProblem, machine: NestMachine, resident: frozenset[str]) -> float:
    """Bits of level 1 that whole resident tensors take; RackmodelError where residents make no sense."""
    if not resident:
        return 0.0
    if len(machine.levels) < 2 or machine.levels[0].fan.size > 1 or machine.levels[0].fan.linear:
        raise RackmodelError("resident tensors need a level below the outermost and no fanout between")
    level = machine.levels[1]
    tensors = [problem.tensor(n) for n in sorted(resident)]
    return float(sum(level.buffers * level.bits(t) * t.tile_words(problem.sizes) for t in tensors))


def space_size(space: Space) -> float:
    """Mappings before capacity: orders x loop splittings (C(e + k, k) per prime, k nodes) x spatial vectors."""
    nodes = sum(len(space.stored(level)) for level in range(1, space.depth))
    orders = prod(factorial(len(space.stored(level))) for level in range(1, space.depth))
    splits = prod(comb(e + nodes, nodes) for s in space.original.sizes.values() for _, e in factorize(s))
    return float(orders) * splits * prod(len(v) for v in space.vectors)


SEARCHER = Searcher("dp", "dp", all_but(Feature.CEIL, Feature.HOME, Feature.PADDED_ATOM), solve_perfect)
