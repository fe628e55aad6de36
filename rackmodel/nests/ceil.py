"""Ceil factors: which search answers, and the certificate."""

from time import process_time

from rackmodel.nests import ceil_two
from rackmodel.nests.perfect import infeasible
from rackmodel.nests.solution import NestCertificate, NestSolution


def solve_ceil(problem, machine, masks, constraints, objective, began) -> NestSolution:
    """Memory / buffer / array: exact over tiles of any size. Deeper machines: see ceil_deep."""
    if not ceil_two.applies(problem, machine, masks, constraints):
        from rackmodel.nests.ceil_deep import solve_deep

        return solve_deep(problem, machine, masks, constraints, objective, began)
    best, cells, pruned, notes = ceil_two.solve_two(problem, machine, constraints, objective, began)
    if best is None:
        raise infeasible(problem, machine, masks, constraints)
    key, mapping, cost = best
    size = float("inf")
    return NestSolution(mapping, cost, NestCertificate(size, cells, pruned, key, key[0], 0.0, "ceil lists", process_time() - began, notes))
