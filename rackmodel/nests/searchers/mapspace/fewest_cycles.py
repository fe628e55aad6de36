"""The least cycles of the compute, whatever the tiles: a whole number of each rank, over every spatial vector."""

from math import prod

import numpy as np

from rackmodel.nests.problem import NestMachine, NestProblem
from rackmodel.nests.searchers.mapspace.spatial_vectors import whole_vectors

VECTORS, PRODUCTS, RANKS = 400_000, 50_000, 3  # of a fan, of several together, ranks of several fans, up to which whole cycles are counted


def fewest_cycles(problem: NestProblem, machine: NestMachine) -> float:
    """Least compute cycles of any mapping: prod ceil(D / (s u)) over every s, a product of a vector a fan, where every fan is plain."""
    leaf = [machine.compute.atom.get(r, 1) for r in problem.sizes]
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
