"""One loop nest, searched: the question put together and handed to the searcher that can answer it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from time import process_time

from rackmodel.errors import RackmodelError
from rackmodel.nests.constraints import NestConstraints
from rackmodel.nests.home_rules import check_homes
from rackmodel.nests.objective import NestObjective, parse_objective
from rackmodel.nests.problem import NestMachine, NestProblem
from rackmodel.nests.searchers.contract import NestQuestion, searcher_for
from rackmodel.nests.searchers.effort import Effort
from rackmodel.nests.searchers.mapspace.stored_tensors import keep_masks
from rackmodel.nests.searchers.table import SEARCHERS, SOLVERS
from rackmodel.nests.solution import NestSolution


def solve_nest(
    problem: NestProblem,
    machine: NestMachine,
    *,
    objective: str | Mapping[str, float] | NestObjective = "energy",
    factors: str = "ceil",
    solver: str = "auto",
    constraints: NestConstraints | None = None,
    resident: tuple[str, ...] = (),
    home: tuple[str, ...] = (),
    effort: Effort | None = None,
    begun: NestSolution | None = None,
) -> NestSolution:
    """The best mapping of `problem` on `machine`, recounted, with its certificate.

    objective: energy | latency | edp | {"energy": a, "latency": b} · factors: ceil (ragged tiles) | perfect · solver:
    auto | dp | cpsat · resident: tensors kept whole in level 1, without traffic to level 0: what a neighbouring einsum left
    or will find there · home: tensors at home in the cores, spread over them, on a machine of a memory, a fan and cores
    (home_rules). Which of these go together: the searchers' features (searchers/contract). Ties: equal energy → less latency;
    otherwise less energy; then the first in the fixed order of vectors, orders, tiles. effort: what may be spent; where it ends
    first, the best found with its bound · begun: the answer to the same question under another objective: where its search may be gone on
    with it is, in a fraction of the time, and the answer then hangs on that one, too.
    Errors: InfeasibleError if nothing fits, RackmodelError for a contradictory question or one that no searcher supports.
    """
    limits = constraints or NestConstraints()
    goal = parse_objective(objective)
    limits.check(problem, machine)
    if factors not in ("ceil", "perfect"):
        raise RackmodelError(f"factors {factors!r}: expected ceil or perfect")
    if solver not in SOLVERS:
        raise RackmodelError(f"solver {solver!r}: expected {', '.join(SOLVERS)}")
    for name in resident:
        problem.tensor(name)
    for level in machine.levels[1:2]:
        limits.check_resident(level.name, resident, problem)
    began = process_time()
    check_homes(problem, machine, frozenset(home))
    masks = keep_masks(problem, machine, limits)
    asked = NestQuestion(problem, machine, goal, factors, limits, masks, frozenset(resident), frozenset(home), effort or Effort(), begun)
    found = searcher_for(asked, SEARCHERS, solver).solve(asked)
    return replace(found, certificate=replace(found.certificate, seconds=process_time() - began))
