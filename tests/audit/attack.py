"""A search attacked: random members of its space, priced exactly, must not beat what it calls proven, nor its bound, nor its front."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rackmodel import api
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.mapper.objective import Objective
from rackmodel.model.certificate import PROVEN
from rackmodel.model.mapping import MappingSpec
from rackmodel.model.result import Result
from tests.audit.case import Case
from tests.audit.drawing import NESTED, draw
from tests.audit.members import Members, feasible
from tests.audit.nest_members import members as nest_members

ROUNDING = 1e-9
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Broken:
    """A claim that does not hold: what was claimed, and the member that shows it."""

    case: Case
    claim: str
    member: MappingSpec | None = None


@dataclass(frozen=True)
class Attacked:
    """What came of one case. members: that fit and were compared · outcome: proven, open, infeasible or refused."""

    members: int
    outcome: str
    broken: tuple[Broken, ...] = ()


@dataclass(frozen=True)
class Drawn:
    """Members with their exact figures: [n] each, those that fit."""

    mappings: list[MappingSpec]
    seconds: Array
    joules: Array
    memory: Array

    def of(self, goal: Objective) -> Array:
        """[n] an objective."""
        return np.asarray(goal.value(self.seconds, self.joules, self.memory), dtype=float)

    def under(self, limits: dict[str, float]) -> Drawn:
        """Those that keep the limits."""
        power = self.joules / np.where(self.seconds > 0, self.seconds, 1.0)
        own = {"latency": self.seconds, "energy": self.joules, "memory": self.memory, "power": power}
        keep = np.ones(len(self.mappings), dtype=bool)
        for name, most in limits.items():
            keep &= own[name] <= most * (1 - ROUNDING)
        return self.at(np.flatnonzero(keep))

    def at(self, numbers: Array) -> Drawn:
        """Some of them."""
        return Drawn([self.mappings[n] for n in numbers], self.seconds[numbers], self.joules[numbers], self.memory[numbers])


def attack(kind: str, seed: int, count: int, demands: bool = True) -> Attacked:
    """Attack the case of a kind with a seed by so many draws. demands: now and then with limits and a front. Raises what a search must
    not raise."""
    case, pick = draw(kind, seed), random.Random(f"members {kind} {seed}")
    return attack_nests(case, count, pick) if kind in NESTED else attack_space(case, count, pick, demands)


def attack_space(case: Case, count: int, pick: random.Random, demands: bool) -> Attacked:
    """Draw first, ask then: limits and fronts are set where members are."""
    try:
        drawn = priced(case, Members(case, pick).some(count))
    except InputError:
        return Attacked(0, "refused")
    case = with_demands(case, drawn, pick) if demands else case
    drawn = drawn.under(dict(case.limits))
    return judged(case, drawn)


def attack_nests(case: Case, count: int, pick: random.Random) -> Attacked:
    """Ask first: members are changes of what was found."""
    machine, workload, mapper = case.read()
    try:
        found = api.search_mapper(machine, workload, mapper, minimize=case.minimize, profile=case.profile)
    except InputError:
        return Attacked(0, "refused")
    except InfeasibleError:
        return Attacked(0, "infeasible")
    drawn = priced(case, nest_members(found.result, mapper.inside.factors == "perfect", count, pick))
    return judged(case, drawn, found)


def priced(case: Case, mappings: Sequence[MappingSpec]) -> Drawn:
    """The members that can be priced and fit."""
    machine, workload, _ = case.read()
    kept, rows = [], []
    try:
        prices = api.price(machine, workload, mappings, profile=case.profile)
        kept, rows = list(mappings), list(zip(prices.latency_s, prices.energy_j, prices.memory_bytes, strict=True))
    except (InfeasibleError, InputError):
        for mapping in mappings:
            try:
                one = api.price(machine, workload, [mapping], profile=case.profile)
            except (InfeasibleError, InputError):
                continue
            kept.append(mapping)
            rows.append((one.latency_s[0], one.energy_j[0], one.memory_bytes[0]))
    seconds, joules, memory = np.array(rows, dtype=float).reshape(-1, 3).T
    drawn = Drawn(kept, seconds, joules, memory)
    return drawn.at(np.flatnonzero(feasible(machine, case.profile, memory)))


def with_demands(case: Case, drawn: Drawn, pick: random.Random) -> Case:
    """The case with limits that some member keeps, or a front, now and then."""
    if not drawn.mappings or case.kind in ("cuts", "free_layers", "kinds"):
        return case
    if pick.random() < 0.3:
        own = {"latency": drawn.seconds, "energy": drawn.joules, "memory": drawn.memory}
        own["power"] = drawn.joules / np.where(drawn.seconds > 0, drawn.seconds, 1.0)
        names = pick.sample(list(own), pick.choice([1, 1, 2]))
        at = pick.randrange(len(drawn.mappings))
        limits = {name: float(own[name][at]) * pick.choice([1.000001, 1.05, 1.5]) for name in names}
        case = replace(case, limits={name: most for name, most in limits.items() if most > 0})
    if pick.random() < 0.3:
        figures = pick.choice([("latency", "memory"), ("latency", "energy"), ("energy", "memory"), ("latency", "energy", "memory")])
        case = replace(case, front=figures)
    return case


def judged(case: Case, drawn: Drawn, found: api.Answer | None = None) -> Attacked:
    """What the search claims, held against the members."""
    machine, workload, mapper = case.read()
    try:
        found = found or api.search_mapper(
            machine, workload, mapper, minimize=case.minimize, profile=case.profile, limits=case.limits, front=case.front
        )
    except InputError:
        return Attacked(0, "refused")
    except InfeasibleError as problem:
        if "is not proven" in str(problem):  # nothing is claimed
            return Attacked(len(drawn.mappings), "unknown")
        if drawn.mappings and not above_capacity(problem, [pool.accelerator.name for pool in machine.pools]):
            return Attacked(len(drawn.mappings), "infeasible", (Broken(case, f"infeasible: {problem}", drawn.mappings[0]),))
        return Attacked(len(drawn.mappings), "infeasible")
    broken = [*beaten(case, found.result, drawn), *lost(case, found, drawn)]
    return Attacked(len(drawn.mappings), "proven" if found.result.certificate.gap == 0 else "open", tuple(broken))


def above_capacity(problem: InfeasibleError, accelerators: Sequence[str]) -> bool:
    """Whether a host or a home, not an accelerator, is too small: members are not held against those."""
    own = problem.resource in ("memory", *(f"{name}.memory" for name in accelerators)) or problem.resource.startswith("stage ")
    return problem.unit == "byte" and not own


def beaten(case: Case, result: Result, drawn: Drawn) -> list[Broken]:
    """Members below the bound of the certificate."""
    sheet = result.certificate
    goal = api.objective_of(case.minimize, case.read()[0])
    least = min(sheet.bound, sheet.objective * (1 - sheet.gap))
    value = float(goal.value(result.latency_s, result.energy_j, result.memory_bytes_per_accelerator))
    broken = []
    if not math.isclose(value, sheet.objective, rel_tol=1e-9, abs_tol=1e-300):
        broken.append(Broken(case, f"the result's {case.minimize} is {value!r}, its certificate says {sheet.objective!r}", result.mapping))
    values = drawn.of(goal)
    if len(values) and values.min() < least * (1 - ROUNDING):
        at = int(np.argmin(values))
        how = "proven" if sheet.gap == 0 else f"within {sheet.gap:.3g}"
        claim = f"{case.minimize} {sheet.objective!r} {how}, bound {least!r}; a member has {values[at]!r}"
        broken.append(Broken(case, claim, drawn.mappings[at]))
    return broken


def lost(case: Case, found: api.Answer, drawn: Drawn) -> list[Broken]:
    """Members that no point of a front that is called proven is as good as, and points that another beats."""
    if not case.front:
        return []
    machine = case.read()[0]
    goals = [api.objective_of(name, machine) for name in case.front]
    front = np.array([[float(g.value(r.latency_s, r.energy_j, r.memory_bytes_per_accelerator)) for g in goals] for r in found.front])
    broken = []
    for number, own in enumerate(np.stack([drawn.of(goal) for goal in goals], axis=1)):
        if found.front_status == PROVEN and not (front <= own * (1 + ROUNDING)).all(axis=1).any():
            broken.append(Broken(case, f"{own.tolist()} is beaten by no point of the front of {len(front)}", drawn.mappings[number]))
            break
    for number, own in enumerate(front):
        others = np.delete(front, number, axis=0)
        if (others < own * (1 - ROUNDING)).all(axis=1).any():
            claim = f"point {number} of the front, {own.tolist()}, is beaten in every figure"
            broken.append(Broken(case, claim, found.front[number].mapping))
            break
    return broken
