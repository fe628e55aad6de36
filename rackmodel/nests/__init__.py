"""The accelerator's loop nest, searched exactly: `solve_nest`; and `solve_fused` for a pair of einsums.

The space: per memory level an order of storage nodes with a tile each, spatial vectors per fanout, kept tensors where
free. Energy by dynamic programming (dp), latency, EDP and ties by slices; cpsat is an independent oracle.
"""

from time import process_time

from rackmodel.errors import RackmodelError
from rackmodel.nests.constraints import NestConstraints
from rackmodel.nests.fusion import FusedSolution, solve_fused
from rackmodel.nests.masks import keep_masks
from rackmodel.nests.objective import parse_objective
from rackmodel.nests.perfect import solve_perfect
from rackmodel.nests.problem import NestMachine, NestProblem
from rackmodel.nests.solution import NestCertificate, NestSolution

__all__ = ["FusedSolution", "NestCertificate", "NestSolution", "solve_fused", "solve_nest"]


def solve_nest(
    problem: NestProblem,
    machine: NestMachine,
    *,
    objective="energy",
    factors: str = "ceil",
    solver: str = "auto",
    constraints: NestConstraints | None = None,
    resident: tuple[str, ...] = (),
    home: tuple[str, ...] = (),
) -> NestSolution:
    """The best mapping of `problem` on `machine`, recounted, with its certificate.

    objective: energy | latency | edp | {"energy": a, "latency": b} · factors: ceil (ragged tiles) | perfect · solver:
    auto | dp | cpsat (energy, perfect factors) · resident: tensors kept whole in level 1, without traffic to level 0
    (perfect factors, dp): what a neighbouring einsum left or will find there · home: tensors at home in the cores, spread
    over them, on a machine of a memory, a fan and cores (not with cpsat or resident; see model/nest_home). Ties: equal
    energy → less latency; otherwise less energy; then the first in the fixed order of vectors, orders, tiles.
    Errors: InfeasibleError if nothing fits, RackmodelError for a contradictory question. Source: reference loop_nests.
    """
    goal, limits = parse_objective(objective), constraints or NestConstraints()
    limits.check(problem, machine)
    if factors not in ("ceil", "perfect"):
        raise RackmodelError(f"factors {factors!r}: expected ceil or perfect")
    if solver not in ("auto", "dp", "cpsat"):
        raise RackmodelError(f"solver {solver!r}: expected auto, dp or cpsat")
    for name in resident:
        problem.tensor(name)
    if resident and (factors != "perfect" or solver == "cpsat"):
        raise RackmodelError("resident tensors: perfect factors and solver dp only")
    masks = keep_masks(problem, machine, limits)
    began = process_time()
    if home:
        from rackmodel.nests.home import solve_home

        if solver == "cpsat" or resident:
            raise RackmodelError("tensors at home: use solver auto or dp, and no resident tensors (no fuse)")
        return solve_home(problem, machine, masks, limits, goal, factors, began, frozenset(home))
    if solver == "cpsat":
        from rackmodel.nests.cpsat import solve_cpsat

        if not goal.energy_only or factors != "perfect":
            raise RackmodelError("solver cpsat: energy with perfect factors only; use dp")
        return solve_cpsat(problem, machine, masks, limits, began)
    if factors == "perfect":
        return solve_perfect(problem, machine, masks, limits, goal, began, frozenset(resident))
    from rackmodel.nests.ceil import solve_ceil

    return solve_ceil(problem, machine, masks, limits, goal, began)
