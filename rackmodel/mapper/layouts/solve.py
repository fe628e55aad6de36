"""The best plan of a layout problem: variable elimination, CP-SAT or the grid on its tables, and what no plan of it undercuts.

Under a profile that overlaps or fuses, time is no sum of local terms. Then a plan is sought that is best one task after another, and
one that is best where all that may be hidden takes no time; both are candidates, and the latter's figure bounds all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rackmodel.cost.step.pricer import Setting
from rackmodel.errors import InputError
from rackmodel.mapper.layouts.capped import solve_capped
from rackmodel.mapper.layouts.cpsat import solve_cpsat
from rackmodel.mapper.layouts.eliminate import eliminate
from rackmodel.mapper.layouts.exhaustive import exhaust
from rackmodel.mapper.layouts.factors import Factors, TooLarge, build_factors
from rackmodel.mapper.layouts.problem import LayoutProblem
from rackmodel.mapper.layouts.weights import ENERGY, LATENCY, Weights, corners, total
from rackmodel.mapper.objective import Objective
from rackmodel.model.plan import Plan
from rackmodel.model.profile import ProfileSpec

Solver = Callable[[Weights], dict[str, int] | None]


@dataclass(frozen=True, kw_only=True)
class Solved:
    """plans: candidates, to be priced · bound: of the objective over every plan that fits, infinite where none does · solver: how."""

    plans: tuple[Plan, ...]
    bound: float
    solver: str


def solve_layouts(setting: Setting, problem: LayoutProblem, profile: ProfileSpec, goal: Objective, solver: str) -> Solved:
    """The best plans of one problem. Raises InputError where its tables are too large."""
    try:
        serial = build_factors(setting, problem, profile)
        overlap = profile.overlap
        windows = any(window.beside != "none" for window in overlap.windows.values())
        sums = not (overlap.weights or overlap.hides_gradients or windows or profile.pointwise == "fused" or profile.host.layer_s)
        chosen, how, proven = layouts_of(serial, goal, solver)
        if sums:
            if chosen is None:
                return Solved(plans=(serial.plan(problem, least_memory(serial)),), bound=math.inf if proven else 0.0, solver=how)
            return Solved(plans=(serial.plan(problem, chosen),), bound=_value(goal, serial, chosen) if proven else 0.0, solver=how)
        loose = build_factors(setting, problem, profile, bound=True)
        other, how, proven = layouts_of(loose, goal, solver)
    except TooLarge as problem_:
        mesh = dict(zip(problem.mesh.axes, problem.mesh.degrees, strict=True))
        raise InputError(f"the layouts of mesh {mesh} are too many: {problem_}", path="split")
    found = [tables.plan(problem, answer) for tables, answer in ((loose, other), (serial, chosen)) if answer is not None]
    if not found:
        return Solved(plans=(serial.plan(problem, least_memory(serial)),), bound=math.inf if proven else 0.0, solver=how)
    bound = _value(goal, loose, other) if proven and other is not None else 0.0
    return Solved(plans=tuple({plan.key: plan for plan in found}.values()), bound=bound, solver=how)


def _value(goal: Objective, factors: Factors, chosen: dict[str, int]) -> float:
    latency, energy, memory = total(factors, chosen)
    return float(goal.value(latency, energy, memory))


def layouts_of(factors: Factors, goal: Objective, solver: str) -> tuple[dict[str, int] | None, str, bool]:
    """(assignment or None if none fits, solver, proven)."""
    if solver == "auto":
        try:
            answer, how, proven = layouts_of(factors, goal, "eliminate")
            if answer is not None and memory_fits(factors, answer):
                return answer, how, proven
        except TooLarge:
            return layouts_of(factors, goal, "cpsat")
        return layouts_of(factors, goal, "capped")
    proofs: list[bool] = []

    def one(weights: Weights) -> dict[str, int] | None:
        if solver == "eliminate":
            return eliminate(factors, weights)
        if solver == "enumerate":
            return exhaust(factors, weights)
        solved = (solve_capped if solver == "capped" else solve_cpsat)(factors, weights)
        proofs.append(solved.optimal)
        return solved.chosen

    answer = _best(factors, goal, one)
    if solver == "eliminate" and answer is not None and not memory_fits(factors, answer):
        return layouts_of(factors, goal, "enumerate" if factors.size <= 4e7 else "capped")
    return answer, "eliminate, cpsat" if solver == "capped" else solver, all(proofs)


def _best(factors: Factors, goal: Objective, one: Solver) -> dict[str, int] | None:
    if goal.name == "memory":
        return least_memory(factors)
    if not goal.additive:
        found = corners(one, lambda chosen: total(factors, chosen)[:2])
        return min(found, key=lambda chosen: float(goal.value(*total(factors, chosen)))) if found else None
    if goal.name == "latency":
        return one(LATENCY)
    if goal.g_per_s:
        return one(Weights(goal.g_per_s, goal.g_per_joule, 0.0, 1.0))
    return one(ENERGY)


def memory_fits(factors: Factors, chosen: dict[str, int]) -> bool:
    """Whether an assignment fits the accelerator's memory."""
    return factors.capacity is None or total(factors, chosen)[2] <= factors.capacity


def least_memory(factors: Factors) -> dict[str, int]:
    """The assignment that needs least memory, ties by latency.

    Elimination finds the one that holds least; another may hold more and work on less, so passes are capped below what the last answer
    works on until what is held alone is as much as the best.
    """
    best: dict[str, int] | None = None
    keep = {name: np.arange(count) for name, count in factors.counts.items()}
    while all(len(left) for left in keep.values()):
        found = eliminate(factors.only(keep), Weights(0.0, 0.0, 1.0, 0.0), penalty=1.0)
        chosen = {name: int(keep[name][position]) for name, position in found.items()}
        working = max((float(sizes[chosen[name]]) for name, sizes in factors.working.items()), default=0.0)
        size = total(factors, chosen)[2]
        if best is not None and size - working >= total(factors, best)[2]:
            break
        best = chosen if best is None or size < total(factors, best)[2] else best
        keep |= {name: np.flatnonzero(sizes < working) for name, sizes in factors.working.items()}
    assert best is not None
    return best
