"""Perfect factors: every choice of stored tensors, each searched exactly by dynamic programming; the first best stands."""

from contextlib import suppress
from math import comb, factorial, inf, prod

from rackmodel.errors import InfeasibleError
from rackmodel.nests.searchers.bounds.relaxed_bound import budgets, least_key
from rackmodel.nests.searchers.contract import Feature, NestQuestion, Searcher, all_but
from rackmodel.nests.searchers.effort import Effort, Exhausted
from rackmodel.nests.searchers.infeasible import infeasible
from rackmodel.nests.searchers.mapspace.divisor_axis import DivisorAxis, coarse_factors, factorize
from rackmodel.nests.searchers.mapspace.space import OnChip, Space
from rackmodel.nests.searchers.registers.registers import least_energy
from rackmodel.nests.searchers.registers.timed_registers import least_timed
from rackmodel.nests.searchers.tables.slices import SliceSearch
from rackmodel.nests.solution import Best, NestSolution, solved

COARSE = ((1, inf), (64, 10e6), (1000, 10e6), (14_000, 100e6))  # tiles of all ranks where all divisors are too many, cells to price
TIED = 1000  # such tiles that the tie-break alone is worth
CLOSE = 1e-9  # of a bound: nothing better is left but among equals
NOTE = "the work or the time that a nest may take was spent: bound over tiles of any size"


def solve_perfect(q: NestQuestion, best: Best | None = None) -> NestSolution:
    """NestSolution over all masks; InfeasibleError naming the tightest level if no mask has a mapping. best: a mapping of any tiles that is
    to be undercut, and stands where none does."""
    on_chip = OnChip.of(q.problem, q.machine, q.resident)
    evaluated, size, slices = 0, 0.0, 0
    pruned: dict[str, int] = {}
    bounds: list[float] = []  # of masks that were not searched to the end
    for kept in q.masks:
        search = SliceSearch(Space(q.problem, q.machine, kept, q.constraints, on_chip=on_chip), q.objective, best, q.effort.part())
        size += space_size(search.space)
        try:
            search.run()
        except InfeasibleError:
            pruned["masks infeasible"] = pruned.get("masks infeasible", 0) + 1
            continue
        except Exhausted:
            q.effort.late |= search.energy.effort.late
            known, bound = search.floors[0] > 0, search.bound
            exact = (least_energy if q.objective.energy_only else least_timed)(q, search.best, perfect=True)
            if exact is not None:
                search.best, known, bound = exact.best, True, max(bound, exact.bound)
            if exact is None or bound < exact.best.primary * (1 - CLOSE):
                search = _coarse(q, search, bound if known else 0.0)
            bounds.append(bound if known else least_key(q, kept, search.best.primary if search.best else inf))
        best = search.best
        slices += search.slices
        evaluated += search.cells
        for name, n in search.pruned.items():
            pruned[name] = pruned.get(name, 0) + n
    if best is None:
        raise infeasible(q)
    bound = min(bounds, default=inf)
    spent = [NOTE] if bound < best.primary * (1 - CLOSE) else []
    notes = (f"{len(q.masks)} choices of stored tensors", f"{slices} slices", *spent)
    return solved(best, bound, (size, evaluated, pruned), SEARCHER.name, notes, ties=not bounds)


def _coarse(q: NestQuestion, full: SliceSearch, bound: float) -> SliceSearch:
    """The search over some of the divisors, 1 and the whole among them: what fits at all fits there. First 1 and the whole alone, then
    more, as far as the effort goes and better may be left: what the full search met before it was stopped may be far from the best."""
    space, search = full.space, full
    whole = {fixed.rank for fixed in q.constraints.tiles} | {r for r, u in zip(space.ranks, space.leaf, strict=True) if u > 1}
    for tiles, cells in COARSE:
        best = search.best
        enough = q.effort.over or cells > 10 * q.effort.cells < inf
        if best is not None and tiles > 1 and (enough or (tiles > TIED and best.primary <= bound * (1 + CLOSE))):
            break
        most_of = budgets(list(space.sizes), tiles) if tiles > 1 else [2] * len(space.sizes)  # divisors that each rank may have
        axes = [
            DivisorAxis(n, None if rank in whole else coarse_factors(n, most))
            for rank, n, most in zip(space.ranks, space.sizes, most_of, strict=True)
        ]
        few = Space(q.problem, q.machine, space.kept, q.constraints, axes=axes, groups=space.groups, on_chip=space.on_chip)
        search = SliceSearch(few, q.objective, best, Effort(cells, q.effort.ends))
        with suppress(InfeasibleError, Exhausted):
            if best is None and q.effort.ends < inf:
                search.least()
            search.run()
        q.effort.late |= search.energy.effort.late
    return search


def space_size(space: Space) -> float:
    """Mappings before capacity: orders x loop splittings (C(e + k, k) per prime, k nodes) x spatial vectors."""
    nodes = sum(len(space.stored(level)) for level in range(1, space.depth))
    orders = prod(factorial(len(space.stored(level))) for level in range(1, space.depth))
    splits = prod(comb(e + nodes, nodes) for s in space.original.sizes.values() for _, e in factorize(s))
    return float(orders) * splits * prod(len(v) for v in space.vectors)


SEARCHER = Searcher("dp", "dp", all_but(Feature.CEIL, Feature.HOME, Feature.PADDED_ATOM), solve_perfect)
