"""The least cycles of the compute and the least seconds of a nest, whatever the tiles."""

from math import prod

import numpy as np

from rackmodel.nests.problem import NestMachine, NestProblem
from rackmodel.nests.searchers.mapspace.prices import components
from rackmodel.nests.searchers.mapspace.spatial_vectors import whole_vectors

VECTORS, PRODUCTS, RANKS = 400_000, 50_000, 3  # of a fan, of several together, ranks of several fans, up to which whole cycles are counted


def fewest_cycles(problem: NestProblem, machine: NestMachine) -> float:
    """Least compute cycles of any mapping: prod ceil(D / (s u)) over every s, a product of a vector a fan, where every fan is plain."""
    leaf = [*machine.compute.leaf(problem.sizes).values()]
    sizes = np.array([-(-n // u) for n, u in zip(problem.sizes.values(), leaf, strict=True)])
    fans = [v.fan for v in machine.levels if v.fan.size > 1]
    least = float(prod(sizes.tolist()) * prod(leaf)) / machine.units
    if not fans or any(f.linear for f in fans) or (len(fans) > 1 and len(sizes) > RANKS):
        return least
    parts = np.ones((1, len(sizes)), dtype=np.int64)
    for fan in fans:
        s = whole_vectors(fan, sizes.tolist(), VECTORS)
        if s is None or (len(parts) > 1 and len(parts) * len(s) > PRODUCTS):
            return least
        parts = s if len(parts) == 1 else (parts[:, None] * s).reshape(-1, len(sizes))
    return max(least, float(np.prod(-(-sizes // parts), axis=1, dtype=float).min()) * prod(leaf))


def least_seconds(problem: NestProblem, machine: NestMachine, inside: frozenset[str] = frozenset()) -> float:
    """Least seconds of any mapping: of the compute, and of the ports of the outermost memory, where every word of an input is read once at
    least, and of the output written. inside: tensors that rest on chip. Of one indexed by a sum words may be skipped: it counts as none."""
    found = fewest_cycles(problem, machine) * problem.density / machine.compute.macs_per_s
    met = [t for t in problem.tensors if not t.affine_ranks and t.name not in inside]
    for port in components(machine):
        if port.level == 0:
            moved = [t for t in met if (port.writes if t.is_output else port.reads)]
            bits = sum(t.tile_words(problem.sizes) * machine.levels[0].bits(t) for t in moved)
            found = max(found, bits / port.bandwidth)
    return found
