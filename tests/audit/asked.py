"""Random questions of small spaces under random profiles, each answer held against every point of its space as the clock has it: lists of
objectives, limits of every figure at once, fronts of any figures under limits, and the best of several.

The points are walked without limits and timed one and all, so what chooses, bounds, rules out and ranks is under attack, not what prices
(that the answer's mapping is worth what is said is asked of `evaluate`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rackmodel import api
from rackmodel.carbon.operational import carbon_g_per_j
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.inputs.carbon_tables import grids_of
from rackmodel.mapper.in_order import SAME
from rackmodel.mapper.objective import Objective
from rackmodel.model.architecture import Architecture
from rackmodel.model.certificate import PROVEN
from rackmodel.model.result import Result
from tests.audit.bounds import search_of
from tests.audit.case import Case
from tests.audit.wild import KINDS, wild

Array = NDArray[np.float64]
ROUNDING = 2e-9
MOST = 1500  # points of a space that are timed
QUESTIONS = 12  # of each space
FEW = 2  # of each choice
GOALS = ("latency", "energy", "edp", "carbon", "memory", "total_carbon", "tcdp", "money", "cdp", "cep", "c2ep", "ce2p", "edap")
LIMITS = ("power", "memory", "latency", "energy", "carbon", "total_carbon", "money", "edp", "tcdp")
FRONTS = ("latency", "energy", "memory", "carbon", "total_carbon", "tcdp", "money")


@dataclass(frozen=True)
class Asked:
    """A question. goals: objectives in order · limits: figure → most, in SI units · front: figures · top: how many."""

    goals: tuple[str, ...]
    limits: dict[str, float] = field(default_factory=dict)
    front: tuple[str, ...] = ()
    top: int = 1


@dataclass(frozen=True)
class Every:
    """Points of a space. figures: name → [points] · whole: whether they are all that the space has."""

    figures: dict[str, Array]
    whole: bool

    def under(self, limits: dict[str, float], slack: float) -> NDArray[np.bool_]:
        """Which keep all limits, with so much room."""
        kept = np.ones(len(self.figures["latency"]), dtype=bool)
        for name, most in limits.items():
            kept &= self.figures[name] <= most * (1 + slack)
        return kept


def questioned(number: int, folder: Path, questions: int = QUESTIONS) -> tuple[str, int, Case | None, list[str]]:
    """(kind, questions asked, the case, what gave way) of the next space."""
    kind, seed = KINDS[number % len(KINDS)], number // len(KINDS)
    case, pick = priced(small(wild(kind, seed, folder))), random.Random(f"asked {kind} {seed}")
    try:
        every = every_point(case, pick)
    except (InputError, InfeasibleError):
        return kind, 0, None, []
    if not every.figures["latency"].size:
        return kind, 0, None, []
    faults = [f"{asked}: {fault}" for asked in drawn(every, pick, questions) for fault in answered(case, every, asked)]
    return kind, questions, case, faults


def small(case: Case) -> Case:
    """A case with few of each choice."""
    mapper = dict(case.mapper)
    for name in ("schedule", "recompute", "offload", "layouts"):
        if isinstance(mapper.get(name), list | dict) and len(mapper[name]) > FEW:
            mapper[name] = type(mapper[name])(list(mapper[name].items() if isinstance(mapper[name], dict) else mapper[name])[:FEW])
    if "interleaved" not in mapper.get("schedule", ()):
        mapper.pop("interleave", None)
    if "full" not in mapper.get("recompute", ()):
        mapper.pop("rerun", None)
    homes = mapper.get("homes", {})
    mapper["homes"] = {name: one[:FEW] if isinstance(one, list) else one for name, one in homes.items()}
    return replace(case, mapper=mapper)


def priced(case: Case) -> Case:
    """A case on a machine that has a place, a price and parts, so that every figure is there."""
    machine = {**case.machine, "site": {"grid": "world", "pue": 1.25}}
    for level in _accelerators(machine["tree"]):
        level["cost"] = {"price": "30000 usd"}
        level["embodied"] = {"dies": {"die": {"area": "814 mm^2", "process": "7nm"}}}
    return replace(case, machine=machine)


def _accelerators(level: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if level.get("accelerator"):
        yield level
    for child in level.get("children", ()):
        yield from _accelerators(child)


def every_point(case: Case, pick: random.Random) -> Every:
    """All points of a space that fit, or many of them, exactly."""
    inputs = case.read()
    search = search_of(inputs, case.profile)
    listed = [(block, flat) for block in search.blocks.walk() if block is not None for flat in range(block.seconds.size)]
    whole = len(listed) <= MOST and not search.space.problems and not search.space.note  # layouts are found for each question anew
    points = search.clocked.exact([search.blocks.point(*one, 0.0) for one in pick.sample(listed, min(len(listed), MOST))])
    seconds, joules, memory = np.array([(p.seconds, p.joules, p.memory) for p in points], dtype=float).reshape(-1, 3).T
    return Every(_figures(inputs[0], seconds, joules, memory), whole)


def _figures(machine: Architecture, seconds: Array, joules: Array, memory: Array) -> dict[str, Array]:
    """Every figure of points, in SI units, as its definition has it."""
    total: Objective = api.objective_of("total_carbon", machine)
    money = api.objective_of("money", machine)
    assert machine.site is not None
    found = {"latency": seconds, "energy": joules, "memory": memory, "edp": joules * seconds}
    found["power"] = np.divide(joules, seconds, out=np.zeros_like(joules), where=seconds > 0)
    found["carbon"] = joules * float(carbon_g_per_j(machine.site, grids_of(machine)))
    found["total_carbon"] = total.g_per_joule * joules + total.g_per_s * seconds
    found["money"] = money.g_per_joule * joules + money.g_per_s * seconds
    found["tcdp"] = found["total_carbon"] * seconds
    alike = {"cdp": "latency", "cep": "energy", "c2ep": "energy", "ce2p": "energy", "edap": "edp"}
    return found | {name: found[other] for name, other in alike.items()}


def drawn(every: Every, pick: random.Random, count: int) -> Iterator[Asked]:
    """Questions whose limits lie where points are."""
    for _ in range(count):
        goals = tuple(pick.sample(GOALS, pick.choice([1, 2, 2, 3])))
        limits = {}
        for name in pick.sample(LIMITS, pick.choice([0, 1, 2, 3, 4])):
            figures = np.sort(every.figures[name])
            at = pick.choice([pick.randrange(len(figures)), len(figures) - 1 - len(figures) // 8, len(figures) // 2])
            limits[name] = float(figures[at]) * pick.choice([1.0, 1.0, 1.0001, 0.9999, 0.8])
        limits = {name: most for name, most in limits.items() if most > 0}
        front = tuple(pick.sample(FRONTS, pick.choice([2, 2, 3, 4]))) if pick.random() < 0.5 else ()
        yield Asked(goals, limits, front, pick.choice([1, 1, 3, 10]))


def answered(case: Case, every: Every, asked: Asked) -> Iterator[str]:
    """What of the answer to a question some point contradicts."""
    machine, workload, mapper = case.read()
    kept, surely = every.under(asked.limits, 1e-12), every.under(asked.limits, -1e-11)
    try:
        found = api.search_mapper(
            machine,
            workload,
            mapper,
            minimize=",".join(asked.goals),
            profile=case.profile,
            limits=asked.limits,
            front=asked.front,
            top=asked.top,
        )
    except InputError:  # what a space does not allow: an open cut under other limits
        return
    except InfeasibleError as problem:
        if surely.any() and "is not proven" not in str(problem):
            yield f"called infeasible ({problem}), {int(surely.sum())} points keep the limits"
        elif not kept.any() and every.whole:
            yield from _way_out(every, asked, problem)
        return
    results = [found.result, *found.top, *found.front]
    for result in results:
        own = _own(machine, result)
        for name, most in asked.limits.items():
            if own[name] > most * (1 + ROUNDING):
                yield f"{name} is {own[name]!r}, the limit {most!r}"
    if every.whole and not kept.any():
        yield "answered, and no point keeps the limits"
        return
    yield from _in_order(every, asked, surely, found, machine)
    yield from _several(every, asked, surely, found, machine)
    if asked.front:
        yield from _front(every, asked, surely, kept, found, machine)
    yield from _evaluated(case, found.result)


def _own(machine: Architecture, result: Result) -> dict[str, float]:
    own = np.array([result.latency_s]), np.array([result.energy_j]), np.array([result.memory_bytes_per_accelerator])
    return {name: float(values[0]) for name, values in _figures(machine, *own).items()}


def _in_order(every: Every, asked: Asked, surely: NDArray[np.bool_], found: api.Answer, machine: Architecture) -> Iterator[str]:
    """Each figure in its turn is the least of the points that are best in those before."""
    own, alive = _own(machine, found.result), surely
    sheet = found.result.certificate
    for name in asked.goals:
        if not alive.any():
            return
        least = float(every.figures[name][alive].min())
        if own[name] * (1 - sheet.gap) > least * (1 + ROUNDING):
            yield f"{name} is {own[name]!r} (gap {sheet.gap:g}), a point has {least!r}"
            return
        if every.whole and own[name] < float(every.figures[name][every.under(asked.limits, 1e-9)].min(initial=np.inf)) * (1 - ROUNDING):
            yield f"{name} is {own[name]!r}, which no point has"
        if sheet.gap:
            return
        alive = alive & (every.figures[name] <= min(least, own[name]) * (1 + SAME / 2))
    if every.whole and not found.result.certificate.proven:
        yield "not proven, of a small space"


def _several(every: Every, asked: Asked, surely: NDArray[np.bool_], found: api.Answer, machine: Architecture) -> Iterator[str]:
    """The best few are in order, and none is missing."""
    if len(asked.goals) > 1 or asked.top == 1 or found.result.certificate.gap:
        return
    (goal,) = asked.goals
    values = [_own(machine, result)[goal] for result in found.top]
    if any(later < earlier * (1 - ROUNDING) for earlier, later in pairwise(values)):
        yield f"the best {asked.top} are not in order: {values}"
    figures = every.figures[goal][surely]
    better = figures < (values[-1] * (1 - ROUNDING) if len(values) == asked.top else np.inf)
    known = np.array(values)
    for value in figures[better]:
        if not np.isclose(known, value, rtol=ROUNDING, atol=0).any():
            yield f"of the best {asked.top} in {goal} one is missing: {value!r} of {values}"
            return


def _front(
    every: Every, asked: Asked, surely: NDArray[np.bool_], kept: NDArray[np.bool_], found: api.Answer, machine: Architecture
) -> Iterator[str]:
    """No point is missing of the front, none on it is beaten."""
    front = np.array([[_own(machine, one)[name] for name in asked.front] for one in found.front])
    members = np.stack([every.figures[name] for name in asked.front], axis=1)
    if every.whole and found.front_status != PROVEN:
        yield "the front is not proven, of a small space"
    if found.front_status == PROVEN:
        for member in members[surely]:
            if not (front <= member * (1 + ROUNDING)).all(axis=1).any():
                yield f"the front of {asked.front} lacks {member.tolist()}"
                return
    for own in front:
        as_good = (members[surely] <= own * (1 + 1e-11)).all(axis=1)
        better = (members[surely] < own * (1 - ROUNDING)).any(axis=1)
        if (as_good & better).any():
            yield f"{own.tolist()} of the front of {asked.front} is beaten"
            return
        if every.whole and not np.isclose(members[kept], own, rtol=ROUNDING, atol=0).all(axis=1).any():
            yield f"{own.tolist()} of the front of {asked.front} is no point's"
            return


def _evaluated(case: Case, result: Result) -> Iterator[str]:
    """The mapping that is the answer, priced by itself."""
    machine, workload, _ = case.read()
    alone = api.evaluate_mapping(machine, workload, result.mapping, profile=case.profile)
    said = result.latency_s, result.energy_j, result.memory_bytes_per_accelerator
    again = alone.latency_s, alone.energy_j, alone.memory_bytes_per_accelerator
    if not np.allclose(said, again, rtol=ROUNDING, atol=0):
        yield f"the answer has {said}, its mapping {again}"


def _way_out(every: Every, asked: Asked, problem: InfeasibleError) -> Iterator[str]:
    """What is said to be missing, of one limit that would do alone, is what the points have. (What equals another limit may keep it.)"""
    name = problem.resource
    if name not in asked.limits or problem.unit == "byte":
        return
    others = {other: most for other, most in asked.limits.items() if other != name}
    least, most = (float(every.figures[name][every.under(others, slack)].min(initial=np.inf)) for slack in (1e-12, -1e-11))
    if most < np.inf and not least * (1 - ROUNDING) <= problem.need <= most * (1 + ROUNDING):
        yield f"said: {problem}; the least {name} under the other limits is {least!r}"
