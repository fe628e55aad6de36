"""The best plan of a layout problem: variable elimination, CP-SAT or the grid on its tables, and what no plan of it undercuts.

Under a profile that overlaps or fuses, time is no sum of local terms. Then a plan is sought that is best one task after another, and
one that is best where all that may be hidden takes no time; both are candidates, and the latter's figure bounds all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from rackmodel.cost.step.setting import Setting
from rackmodel.errors import InputError
from rackmodel.mapper.layouts.capped import solve_capped
from rackmodel.mapper.layouts.cpsat import solve_cpsat
from rackmodel.mapper.layouts.eliminate import eliminate
from rackmodel.mapper.layouts.exhaustive import exhaust
from rackmodel.mapper.layouts.factors import Cap, Factors, build_factors
from rackmodel.mapper.layouts.listing import Listing, list_layouts
from rackmodel.mapper.layouts.problem import LayoutProblem
from rackmodel.mapper.layouts.tensor_tables import TooLarge
from rackmodel.mapper.layouts.weights import ENERGY, LATENCY, Weights, corners, total
from rackmodel.mapper.limits import NO_LIMITS, PRODUCTS, SLACK, Limits
from rackmodel.mapper.objective import SUMS, Objective
from rackmodel.model.plan import Plan
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.room import room_of
from rackmodel.watch import UNWATCHED, Watch

Solver = Callable[[Weights], dict[str, int] | None]
KnownTables = dict[int, tuple[Factors, Factors]]  # id of a problem that its owner keeps → its tables, serial and loose, for any memory
ROUNDING = 1e-12  # of sums of bytes


@dataclass(frozen=True)
class LayoutQuestion:
    """What is asked of a layout problem. several: whether more than the best is wanted · known: tables that searches of the same problems
    share, whose machines differ in their memory's capacity alone."""

    goal: Objective
    solver: str = "auto"
    limits: Limits = NO_LIMITS
    several: bool = False
    watch: Watch = UNWATCHED
    known: KnownTables | None = None


@dataclass(frozen=True, kw_only=True)
class Solved:
    """plans: candidates, to be priced · bound: of the objective over every plan that fits, infinite where none does · solver: how ·
    proven: whether no plan is better than the candidates · listing: every plan that fits, where a candidate is not all that is wanted and
    they are few enough · known: the candidates among them."""

    plans: tuple[Plan, ...]
    bound: float
    solver: str
    proven: bool
    listing: Listing | None = None
    known: tuple[int, ...] = ()


def solve_layouts(setting: Setting, problem: LayoutProblem, profile: ProfileSpec, asked: LayoutQuestion) -> Solved:
    """The best plans of one problem. Raises InputError where its tables are too large."""
    try:
        known = asked.known if asked.known is not None else {}
        if id(problem) not in known:
            known[id(problem)] = tables_of(setting, problem, profile)
        capacity = room_of(setting.architecture, profile).limit
        plain, least = (replace(tables.now(), capacity=capacity) for tables in known[id(problem)])
        serial = limited(plain, asked.limits, exact=True)
        sums = known[id(problem)][0] is known[id(problem)][1]
        return _solved(problem, serial, serial if sums else limited(least, asked.limits, exact=False), asked)
    except TooLarge as problem_:
        mesh = dict(zip(problem.mesh.axes, problem.mesh.degrees, strict=True))
        raise InputError(f"the layouts of mesh {mesh} are too many: {problem_}", path="split")


def tables_of(setting: Setting, problem: LayoutProblem, profile: ProfileSpec) -> tuple[Factors, Factors]:
    """(sums that a plan takes one task after another, sums that no plan undercuts), one object where they are the same. Raises TooLarge."""
    serial = build_factors(setting, problem, profile)
    overlap = profile.overlap
    apart = profile.pointwise == "fused" or profile.host.layer_s or profile.host.backward_s or profile.host.launch_s
    apart = apart or profile.merged.residuals  # (such kernels hold less)
    sums = not (overlap.weights or overlap.hides_gradients or overlap.windowed or apart)
    return serial, serial if sums else build_factors(setting, problem, profile, bound=True)


def _solved(problem: LayoutProblem, serial: Factors, loose: Factors, asked: LayoutQuestion) -> Solved:
    """serial: sums that a plan takes one task after another · loose: sums that no plan undercuts; the same where nothing overlaps."""
    same = loose is serial
    loose, answer, how, sure = _exactly(loose, asked)
    serial = loose if same else serial
    chosen = [] if answer is None else [answer]
    if not same:
        serial, other, *_ = _exactly(serial, asked)
        chosen += [] if other is None else [other]
    bound = math.inf if answer is None else _value(asked.goal, loose, answer)
    proven = sure and (same or bound == math.inf)
    listing = list_layouts(loose) if asked.several or not proven else None
    return Solved(
        plans=tuple({plan.key: plan for plan in (serial.plan(problem, one) for one in chosen or [least_memory(serial)])}.values()),
        bound=bound if sure else 0.0,
        solver=how,
        proven=proven,
        listing=listing,
        known=tuple(int(number) for one in chosen for number in listing.where(one)) if listing is not None else (),
    )


def _exactly(factors: Factors, asked: LayoutQuestion) -> tuple[Factors, dict[str, int] | None, str, bool]:
    """(tables that price the answer exactly, and as of `layouts_of`). Where it is open what is fused, tables are lower bounds: an answer
    that they price exactly is one of the exact tables."""
    factors = factors.whole() if asked.limits.power < math.inf else factors  # a quotient, which bounds do not bound
    while True:
        answer, how, sure = layouts_of(factors, asked.goal, asked.solver, asked.watch)
        exact = factors if answer is None else factors.settled(answer)
        if exact is factors:
            return factors, answer, how, sure
        factors = exact


def limited(factors: Factors, limits: Limits, *, exact: bool) -> Factors:
    """Tables under limits. exact: whether their sums are the plans' seconds; a lower bound of those says nothing of power."""
    caps = []
    if limits.latency < math.inf:
        caps.append(Cap(1.0, 0.0, limits.latency * (1 + SLACK)))
    if limits.energy < math.inf:
        caps.append(Cap(0.0, 1.0, limits.energy * (1 + SLACK)))
    for name in limits.blended:
        if name not in PRODUCTS:  # of products the bounds of layouts know
            blend = limits.blends[name]
            caps.append(Cap(blend.g_per_s, blend.g_per_joule, limits.most[name] * (1 + SLACK)))
    if limits.power < math.inf and exact:
        caps.append(Cap(-limits.power * (1 + SLACK), 1.0, 0.0))
    room = min(math.inf if factors.capacity is None else factors.capacity, limits.memory)
    return replace(factors, caps=tuple(caps), capacity=room if room < math.inf else None)


def _value(goal: Objective, factors: Factors, chosen: dict[str, int]) -> float:
    latency, energy, memory = total(factors, chosen)
    return float(goal.value(latency, energy, memory))


def layouts_of(factors: Factors, goal: Objective, solver: str, watch: Watch = UNWATCHED) -> tuple[dict[str, int] | None, str, bool]:
    """(assignment or None if none fits, solver, proven)."""
    if factors.caps:
        free = layouts_of(replace(factors, caps=()), goal, solver, watch)
        if free[0] is None or keeps(factors, free[0]):
            return free
        listing = list_layouts(factors) if goal.name == "memory" else None
        if listing is not None:
            return _least_listed(listing, goal), "enumerate", True
        proofs: list[bool] = []
        answer = _best(factors, goal, _solver(factors, "cpsat", proofs, watch), watch)
        return answer, "cpsat", all(proofs) and goal.name != "memory"
    if solver == "auto":
        try:
            answer, how, proven = layouts_of(factors, goal, "eliminate", watch)
            if answer is not None and memory_fits(factors, answer):
                return answer, how, proven
        except TooLarge:
            return layouts_of(factors, goal, "cpsat", watch)
        return layouts_of(factors, goal, "capped", watch)
    proofs = []
    answer = _best(factors, goal, _solver(factors, solver, proofs, watch), watch)
    if solver == "eliminate" and answer is not None and not memory_fits(factors, answer):
        return layouts_of(factors, goal, "enumerate" if factors.size <= 4e7 else "capped", watch)
    return answer, "eliminate, cpsat" if solver == "capped" else solver, all(proofs)


def _least_listed(listing: Listing, goal: Objective) -> dict[str, int] | None:
    """The best of the layouts listed, ties by the objective's second figure; None where there is none."""
    seconds, joules, memory = listing.values
    order = np.lexsort((goal.tie(seconds, joules), goal.value(seconds, joules, memory)))
    return listing.chosen(int(order[0])) if order.size else None


def _solver(factors: Factors, solver: str, proofs: list[bool], watch: Watch) -> Solver:
    """Solves a weighted sum; whether that was proven is added to `proofs`."""

    def one(weights: Weights) -> dict[str, int] | None:
        if solver == "eliminate":
            return eliminate(factors, weights)
        if solver == "enumerate":
            return exhaust(factors, weights)
        solved = (solve_capped if solver == "capped" else solve_cpsat)(factors, weights, watch=watch)
        proofs.append(solved.optimal)
        return solved.chosen

    return one


def keeps(factors: Factors, chosen: dict[str, int]) -> bool:
    """Whether an assignment keeps the caps."""
    seconds, joules, _ = total(factors, chosen)
    return all(cap.latency * seconds + cap.energy * joules <= cap.most for cap in factors.caps)


def _best(factors: Factors, goal: Objective, one: Solver, watch: Watch) -> dict[str, int] | None:
    if goal.name == "memory":
        return _leanest(factors, one) if factors.caps else _soonest_of_least(factors, watch)
    if not goal.additive:
        found = corners(one, lambda chosen: total(factors, chosen)[:2])
        return min(found, key=lambda chosen: float(goal.value(*total(factors, chosen)))) if found else None
    if goal.name == "latency":
        return one(LATENCY)
    if goal.name in SUMS:
        return one(Weights(goal.g_per_s, goal.g_per_joule, 0.0, 1.0))
    return one(ENERGY)


def memory_fits(factors: Factors, chosen: dict[str, int]) -> bool:
    """Whether an assignment fits the accelerator's memory."""
    return factors.capacity is None or total(factors, chosen)[2] <= factors.capacity


def _leanest(factors: Factors, one: Solver) -> dict[str, int] | None:
    """An assignment of little memory that keeps the caps: of those that are best in latency or energy. No bound comes with it."""
    found = [chosen for chosen in (one(LATENCY), one(ENERGY)) if chosen is not None]
    return min(found, key=lambda chosen: total(factors, chosen)[2]) if found else None


def _soonest_of_least(factors: Factors, watch: Watch) -> dict[str, int]:
    """The assignment that needs least memory, ties by latency: the fastest that fits where there is no more than that."""
    least = least_memory(factors)
    room = total(factors, least)[2] * (1 + ROUNDING)
    soonest, *_ = layouts_of(replace(factors, capacity=room), Objective("latency"), "auto", watch)
    return least if soonest is None else soonest


def least_memory(factors: Factors) -> dict[str, int]:
    """An assignment that needs least memory.

    Elimination finds the one that holds least; another may hold more and work on less, so passes are capped below what the last answer
    works on until what is held alone is as much as the best.
    """
    best: dict[str, int] | None = None
    keep = {name: np.arange(count) for name, count in factors.counts.items()}
    while all(len(left) for left in keep.values()):
        found = eliminate(factors.only(keep), Weights(0.0, 0.0, 1.0, 0.0), penalty=1.0)
        chosen = {name: int(keep[name][position]) for name, position in found.items()}
        working = factors.widest(chosen)
        size = total(factors, chosen)[2]
        if best is not None and size - working >= total(factors, best)[2]:
            break
        best = chosen if best is None or size < total(factors, best)[2] else best
        keep |= {name: np.flatnonzero(sizes < working) for name, sizes in factors.working.items()}
    assert best is not None
    return best
