"""Perfect factors: every mask of kept tensors, each searched exactly; the first best stands."""

from math import comb, factorial, prod
from time import process_time

from rackmodel.errors import InfeasibleError, RackmodelError
from rackmodel.nests.lattice import factorize
from rackmodel.nests.slices import SliceSearch
from rackmodel.nests.solution import NestCertificate, NestSolution
from rackmodel.nests.space import Space


def solve_perfect(problem, machine, masks, constraints, objective, began, resident=frozenset()) -> NestSolution:
    """NestSolution over all masks; InfeasibleError naming the tightest level if no mask has a mapping."""
    reserved = resident_bits(problem, machine, resident)
    best, evaluated, size, slices = None, 0, 0.0, 0
    pruned: dict[str, int] = {}
    for kept in masks:
        search = SliceSearch(Space(problem, machine, kept, constraints, resident=resident, reserved=reserved), objective, best)
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
        raise infeasible(problem, machine, masks, constraints)
    key, mapping, cost = best
    notes = (f"{len(masks)} choices of stored tensors", f"{slices} slices")
    return NestSolution(mapping, cost, NestCertificate(size, evaluated, pruned, key, key[0], 0.0, "dp", process_time() - began, notes))


def resident_bits(problem, machine, resident) -> float:
    """Bits of level 1 that whole resident tensors take; RackmodelError where residents make no sense."""
    if not resident:
        return 0.0
    fan = machine.levels[0].fan
    if len(machine.levels) < 2 or fan.size > 1 or fan.linear:
        raise RackmodelError("resident tensors need a level below the outermost and no fanout between")
    level = machine.levels[1]
    tensors = [problem.tensor(n) for n in sorted(resident)]
    return float(sum(level.buffers * level.bits(t) * t.tile_words(problem.sizes) for t in tensors))


def space_size(space) -> float:
    """Mappings before capacity: orders x loop splittings (C(e + k, k) per prime, k nodes) x spatial vectors."""
    nodes = sum(len(space.stored(level)) for level in range(1, space.depth))
    orders = prod(factorial(len(space.stored(level))) for level in range(1, space.depth))
    splits = prod(comb(e + nodes, nodes) for s in space.original.sizes.values() for _, e in factorize(s))
    return float(orders) * splits * prod(len(v) for v in space.vectors)


def infeasible(problem, machine, masks, constraints) -> InfeasibleError:
    """The level whose smallest legal tiles overflow: what it needs (one word of every tensor it must store)."""
    worst = None
    for level, v in enumerate(machine.levels[1:], start=1):
        if v.capacity_bits is None:
            continue
        need = min(
            sum(v.buffers * v.bits(t) * _least_words(t, v.name, machine, constraints) for t in problem.tensors if t.name in kept[level])
            for kept in masks
        )
        if need > v.capacity_bits and (worst is None or need / v.capacity_bits > worst[0]):
            worst = need / v.capacity_bits, v, need
    if worst is None:
        return InfeasibleError(f"{problem.name} on {machine.name}: the constraints leave no mapping")
    _, v, need = worst
    return InfeasibleError(
        f"{problem.name} on {machine.name}: {v.name} needs {need:g} bits for its smallest tiles, "
        f"has {v.capacity_bits:g}; smallest change that fits: capacity {need:g} bits",
        resource=v.name,
        need=need,
        have=v.capacity_bits,
        unit="bits",
        change=f"capacity {need:g} bits",
    )


def _least_words(tensor, level: str, machine, constraints) -> int:
    tile = {r: machine.compute.atom.get(r, 1) for r in tensor.ranks}
    for f in constraints.tiles:
        if f.level == level and f.rank in tile and f.tensor in (None, tensor.name):
            tile[f.rank] = f.size
    return tensor.tile_words(tile)
