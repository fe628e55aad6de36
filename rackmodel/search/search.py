"""The search: every mesh of the mapspace, the best layouts on each, one certificate over all.

Meshes whose choices are fixed are priced together in arrays. Where choices are free, a mesh's layouts are solved by
elimination, CP-SAT or the grid; `auto` eliminates, and calls CP-SAT where memory binds or the tables grow too large.
Ties: the objective's second figure, then the first mesh in the file's order.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rackmodel.cost.inside.roofline import LegPricer, leg_rows
from rackmodel.cost.step.price import Priced, price
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.model.architecture import Architecture
from rackmodel.model.mapping import Blend, Certificate, Objective
from rackmodel.model.plan import Plan
from rackmodel.model.profile import ProfileSpec
from rackmodel.search.layouts.capped import solve_capped
from rackmodel.search.layouts.cpsat import solve_cpsat
from rackmodel.search.layouts.eliminate import eliminate
from rackmodel.search.layouts.exhaustive import exhaust
from rackmodel.search.layouts.factors import Factors, TooLarge, build_factors
from rackmodel.search.layouts.weights import ENERGY, LATENCY, Weights, corners, total
from rackmodel.search.mapspace import Mapspace, Mesh
from rackmodel.units import byte_unit, bytes_text, capacity_text

TIE = 1e-12


@dataclass(frozen=True)
class Candidate:
    """One priced mapping. index: its place in `priced` ·
    bound: proven lower bound of the objective on its mesh, infinite where nothing fits."""

    plan: Plan
    mesh: Mesh
    priced: Priced
    index: int
    objective: float
    tie: float
    bound: float
    fits: bool
    need: float


@dataclass
class Found:
    """What a search found. candidates: best first."""

    candidates: list[Candidate]
    certificate: Certificate
    counts: dict[str, float] = field(default_factory=dict)


def search_space(
    architecture: Architecture,
    space: Mapspace,
    minimize: Objective,
    profile: ProfileSpec,
    solver: str = "auto",
    inside: LegPricer = leg_rows,
) -> Found:
    """Best mappings of a space. Raises InfeasibleError if nothing fits."""
    started = time.perf_counter()
    candidates: list[Candidate] = []
    used: list[str] = []
    fixed = [mesh for mesh in space.meshes if mesh.fixed and space.fixed]
    candidates += _price_fixed(architecture, space, fixed, minimize, profile, inside)
    for mesh in space.meshes:
        if not (mesh.fixed and space.fixed):
            candidate, how = _solve(architecture, space, mesh, minimize, profile, solver, inside)
            used.append(how)
            candidates.append(candidate)
    order = {id(mesh): number for number, mesh in enumerate(space.meshes)}
    feasible = [c for c in candidates if c.fits]
    if not feasible:
        raise _infeasible(architecture, candidates)
    feasible.sort(key=lambda c: (_round(c.objective), _round(c.tie), order[id(c.mesh)]))
    best = feasible[0]
    bound = min(best.objective, *(c.bound for c in candidates))
    gap = (best.objective - bound) / best.objective if best.objective > 0 else 0.0
    infeasible = dict(space.skipped)
    short = sum(1 for c in candidates if not c.fits)
    if short:
        infeasible["memory"] = float(short)
    certificate = Certificate(
        solver=", ".join(dict.fromkeys(used)) or "enumerate",
        minimize=minimize,
        space=space.size,
        evaluated=len(candidates),
        objective=best.objective,
        bound=bound if gap > 1e-9 else best.objective,
        gap=gap if gap > 1e-9 else 0.0,
        pruned={"layouts covered by the solver": space.size - len(candidates)} if used else {},
        infeasible=infeasible,
        seconds=time.perf_counter() - started,
        profile=profile.name,
        note="optimal under ideal assumptions: no launch cost, no contention, peak rates" if profile.name == "ideal" else "",
    )
    return Found(feasible, certificate)


def _round(value: float) -> float:
    """Values equal to 1e-12 compare equal."""
    return float(f"{value:.12e}")


def objective(minimize: Objective, latency: float, energy: float) -> tuple[float, float]:
    """(what is minimised, what breaks ties). Carbon is energy times a constant of the site: same order."""
    if isinstance(minimize, Blend):
        return float(minimize.value(latency, energy)), energy
    if minimize == "latency":
        return latency, energy
    if minimize == "edp":
        return latency * energy, energy
    return energy, latency


def _candidate(
    architecture: Architecture, plan: Plan, mesh: Mesh, priced: Priced, index: int, minimize: Objective, bound: float | None = None
) -> Candidate:
    value, tie = objective(minimize, float(priced.latency[index]), float(priced.energy[index]))
    fits, need = _fits(architecture, priced, index)
    known = bound if bound is not None else value if fits else math.inf
    return Candidate(plan, mesh, priced, index, value, tie, min(known, value) if fits else known, fits, need)


def _fits(architecture: Architecture, priced: Priced, index: int) -> tuple[bool, float]:
    """Whether a mapping fits, and the bytes it needs on the fullest accelerator."""
    need = float(priced.memory[index])
    memory = architecture.accelerator.memory
    fits = memory is None or memory.capacity_bytes is None or not memory.enforce or need <= memory.capacity_bytes
    for level, size in priced.home.items():
        home = architecture.level(level)
        if home.memory is not None and home.memory.capacity_bytes is not None and home.memory.enforce:
            fits = fits and float(size[index]) <= home.memory.capacity_bytes * home.count
    return fits, need


def _price_fixed(
    architecture: Architecture, space: Mapspace, meshes: Sequence[Mesh], minimize: Objective, profile: ProfileSpec, inside: LegPricer
) -> list[Candidate]:
    """Price meshes with fixed choices, those of the same plan together."""
    plans: dict[object, tuple[Plan, list[Mesh]]] = {}
    for mesh in meshes:
        plan = space.plan(mesh, {op: tuple(c[0] for c in per_axis) for op, per_axis in mesh.domains.items()})
        plans.setdefault(plan.key, (plan, []))[1].append(mesh)
    candidates = []
    for plan, group in plans.values():
        priced = price(architecture, space.workload, plan, [m.degrees for m in group], [m.strides for m in group], profile, inside)
        candidates += [_candidate(architecture, plan, mesh, priced, i, minimize) for i, mesh in enumerate(group)]
    return candidates


def _solve(
    architecture: Architecture,
    space: Mapspace,
    mesh: Mesh,
    minimize: Objective,
    profile: ProfileSpec,
    solver: str,
    inside: LegPricer,
) -> tuple[Candidate, str]:
    """The best layouts on one mesh, and the solver that proved them."""
    if max(mesh.stages.values()) > 0:
        raise InputError("free choices on a pipeline are not searched yet: fix them in `split` or `choose`", path="split")
    try:
        free = mesh.axes if space.free_homes else ()
        factors = build_factors(architecture, space, mesh, profile, hide_weights=profile.overlap.weights, inside=inside, free_homes=free)
        chosen, how, proven = _layouts(factors, minimize, solver)
    except TooLarge as problem:
        raise InputError(f"the layouts of mesh {dict(zip(mesh.axes, mesh.degrees, strict=True))} are too many: {problem}", path="split")
    if chosen is None:
        bound = math.inf if proven else 0.0
        return _realise(architecture, space, mesh, factors, _least_memory(factors), minimize, profile, bound, inside), how
    latency, energy, _ = total(factors, chosen)
    bound = objective(minimize, latency, energy)[0] if proven else 0.0
    best = _realise(architecture, space, mesh, factors, chosen, minimize, profile, bound, inside)
    if not profile.overlap.weights:
        assert abs(float(best.priced.latency[0]) - latency) <= 1e-9 * latency + 1e-18, "the tables and the ledger disagree on latency"
        assert abs(float(best.priced.energy[0]) - energy) <= 1e-9 * energy + 1e-18, "the tables and the ledger disagree on energy"
        return best, how
    serial = build_factors(architecture, space, mesh, profile, inside=inside, free_homes=free)
    other, _, _ = _layouts(serial, minimize, solver)
    if other is not None:
        second = _realise(architecture, space, mesh, serial, other, minimize, profile, bound, inside)
        best = min((best, second), key=lambda c: (not c.fits, c.objective, c.tie))
    return best, how


def _realise(
    architecture: Architecture,
    space: Mapspace,
    mesh: Mesh,
    factors: Factors,
    chosen: dict[str, int],
    minimize: Objective,
    profile: ProfileSpec,
    bound: float,
    inside: LegPricer,
) -> Candidate:
    """Price one assignment of the layout problem as a mapping."""
    plan = factors.plan(space, mesh, chosen)
    priced = price(architecture, space.workload, plan, [mesh.degrees], [mesh.strides], profile, inside)
    return _candidate(architecture, plan, mesh, priced, 0, minimize, bound)


def _layouts(factors: Factors, minimize: Objective, solver: str) -> tuple[dict[str, int] | None, str, bool]:
    """(assignment or None if none fits, solver, proven)."""
    if solver == "auto":
        try:
            answer, how, proven = _layouts(factors, minimize, "eliminate")
            if answer is not None and _memory_fits(factors, answer):
                return answer, how, proven
        except TooLarge:
            return _layouts(factors, minimize, "cpsat")
        return _layouts(factors, minimize, "capped")
    proofs: list[bool] = []

    def one(weights: Weights) -> dict[str, int] | None:
        if solver == "eliminate":
            return eliminate(factors, weights)
        if solver == "enumerate":
            return exhaust(factors, weights)
        solved = (solve_capped if solver == "capped" else solve_cpsat)(factors, weights)
        proofs.append(solved.optimal)
        return solved.chosen

    if minimize in ("edp", "tcdp"):
        found = corners(one, lambda chosen: total(factors, chosen)[:2])
        answer = min(found, key=lambda chosen: objective(minimize, *total(factors, chosen)[:2])) if found else None
    elif isinstance(minimize, Blend):
        answer = one(Weights(minimize.g_per_s, minimize.g_per_joule, 0.0, 1.0))
    else:
        answer = one(LATENCY if minimize == "latency" else ENERGY)
    if solver == "eliminate" and answer is not None and not _memory_fits(factors, answer):
        if factors.size <= 4e7:
            return _layouts(factors, minimize, "enumerate")
        return _layouts(factors, minimize, "capped")
    return answer, "eliminate, cpsat" if solver == "capped" else solver, all(proofs)


def _memory_fits(factors: Factors, chosen: dict[str, int]) -> bool:
    return factors.capacity is None or total(factors, chosen)[2] <= factors.capacity


def _least_memory(factors: Factors) -> dict[str, int]:
    """The assignment that needs least memory, to say what is missing."""
    return eliminate(factors, Weights(0.0, 0.0, 1.0, 0.0), penalty=1.0)


def _infeasible(architecture: Architecture, candidates: Sequence[Candidate]) -> InfeasibleError:
    """The error of the mapping that misses by least."""
    nearest = min(candidates, key=lambda c: c.need)
    memory = architecture.accelerator.memory
    name = architecture.accelerator.name
    for level, size in nearest.priced.home.items():
        home = architecture.level(level).memory
        need = float(size[nearest.index])
        have = (home.capacity_bytes or np.inf) * architecture.level(level).count if home else np.inf
        if home is not None and home.enforce and need > have:
            message = f"memory: {level} must hold {bytes_text(need)}, it has {bytes_text(have)}"
            return InfeasibleError(
                message,
                resource=f"{level}.memory",
                need=need,
                have=have,
                unit="byte",
                change=f"{level}.memory.capacity='{capacity_text(need)}'",
            )
    have = memory.capacity_bytes if memory is not None and memory.capacity_bytes is not None else float("inf")
    unit = byte_unit(nearest.need)[0]
    parts = ", ".join(f"{what} {float(size[nearest.index]) / unit:.4g}" for what, size in nearest.priced.held.items())
    short = bytes_text(nearest.need - have)
    message = f"memory: one {name} needs {bytes_text(nearest.need)}, it has {bytes_text(have)} ({parts}); short by {short}"
    return InfeasibleError(message, resource=f"{name}.memory", need=nearest.need, have=have, unit="byte")
