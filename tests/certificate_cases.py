"""Adversaries of certificates: random limits, fronts and free layouts, each against the exact figures of every member of its space.

Each function takes seeds and returns how many questions it asked; it fails at the first answer that a member contradicts. The suite runs
a few seeds, an audit as many as it has time for.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import numpy as np

from rackmodel.cost.step.columns import Columns
from rackmodel.cost.step.group import GroupPrice, Job, price_group
from rackmodel.cost.step.ledger import second_watts
from rackmodel.cost.step.setting import Setting
from rackmodel.errors import InfeasibleError
from rackmodel.inputs.read import read_inputs, read_profile
from rackmodel.mapper import search
from rackmodel.mapper.blocks import Blocks
from rackmodel.mapper.limits import BLENDED, NO_LIMITS, Limits
from rackmodel.mapper.mapspace import Group, Mapspace, Variant, build_mapspace
from rackmodel.mapper.nests import without_nests
from rackmodel.mapper.objective import Objective
from rackmodel.mapper.points import Clocked, Point
from rackmodel.mapper.search import Question, search_space
from rackmodel.model.architecture import Architecture
from rackmodel.model.mapping import MapperSpec
from rackmodel.model.plan import Plan
from rackmodel.model.workload import Workload
from tests.machines import SERIAL, machine, mapper, workload

CLOSE = 1e-9  # relative: figures this close are equal
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb_h1", "zb_h2")
FIGURES = ("latency", "energy", "memory", "total", "money")
Members = np.ndarray[tuple[int, int], np.dtype[np.float64]]  # [figures, points]


@dataclass(frozen=True)
class Space:
    """A space and the exact figures of every point that fits: seconds, joules, bytes. prices: of its groups."""

    job: Job
    space: Mapspace
    points: list[Point]
    prices: Sequence[GroupPrice] = ()

    @contextmanager
    def known(self) -> Iterator[None]:
        """Searches of the space price no group and run no point again. (Which points they choose is under attack here, not what prices.)"""
        prices = {id(group.variants[0].plan): price for group, price in zip(self.space.groups, self.prices, strict=True)}
        seconds = {point.order: point.seconds for point in self.points}

        class Known(Clocked):
            def exact(self, points: Sequence[Point]) -> list[Point]:
                return [self._as_known(point) for point in points]

            def _as_known(self, point: Point) -> Point:
                if point.order not in seconds:
                    return super().exact([point])[0]
                joules = point.joules + self.static_w * (seconds[point.order] - point.seconds)
                return replace(point, seconds=seconds[point.order], joules=joules)

        def of(_job: Job, _columns: Columns, plans: Sequence[Plan], *_: object) -> GroupPrice:
            return prices[id(plans[0])]

        with mock.patch.object(without_nests, "price_group", of), mock.patch.object(search, "Clocked", Known):
            yield


def step_space(seed: int) -> Space:
    """A small model in a random pipelined space on a random machine, every point run."""
    pick = random.Random(seed)
    sets = [
        f"accelerators={pick.choice([4, 8])}",
        f"b={pick.choice([8, 16])}",
        f"layers={pick.choice([4, 8])}",
        f"d={pick.choice([512, 1024])}",
        "h=8",
        f"f={pick.choice([2048, 16384])}",
        f"v={pick.choice([4096, 51200])}",
        "s=256",
        f"node.static_power={pick.choice([0, 500, 2500])} W",
        f"gpu.static_power={pick.choice([0, 90])} W",
        "layouts={}",
        f"schedule=[{', '.join(pick.sample(SCHEDULES, 3))}]",
        f"recompute=[{', '.join(pick.sample(['none', 'selective', 'full'], 2))}]",
        f"homes.weights={pick.choice(['[{}]', '[{}, {axes: [dp], state: shard}]'])}",
        f"overlap={pick.choice(['profile', 'free'])}",
    ]
    given = read_inputs("dgx_h100", "gpt", mapper="megatron", sets=sets)
    assert given.mapper is not None
    profile = read_profile(pick.choice(["ideal", "serial", "megatron_core"]))
    job = Job(setting=Setting(architecture=given.architecture), workload=given.workload, profile=profile)
    space = build_mapspace(given.mapper, given.workload, given.architecture.used)
    prices = prices_of(job, space)
    return Space(job, space, every_point(job, space, prices), prices)


def prices_of(job: Job, space: Mapspace) -> list[GroupPrice]:
    """Of every group."""
    return [price_group(job, g.columns, [v.plan for v in g.variants], [v.offload for v in g.variants]) for g in space.groups]


def every_point(job: Job, space: Mapspace, prices: Sequence[GroupPrice] | None = None) -> list[Point]:
    """Every point of a space without free layouts that fits, run."""
    prices = prices_of(job, space) if prices is None else prices
    static_w = second_watts(job.setting, job.pools)
    blocks = Blocks(job, space, space.groups, prices, NO_LIMITS, static_w)
    found = [blocks.point(block, flat, 0.0) for block in blocks.walk() for flat in range(block.seconds.size)]
    clocked = Clocked(job, space.groups, prices, static_w)
    clocked.expect(found)
    return clocked.exact(found)


def check_limits(seeds: Iterable[int], each: int = 25) -> int:
    """Random limits of every kind, alone and two together, on random spaces: the optimum of what keeps them, or that nothing does."""
    asked = 0
    for seed in seeds:
        one, pick = step_space(seed), random.Random(seed)
        _check_limit(one, pick, f"seed {seed}")
        with one.known():
            for _ in range(each - 1):
                _check_limit(one, pick, f"seed {seed}")
        asked += each
    return asked


def _check_limit(one: Space, pick: random.Random, about: str) -> None:
    names = pick.sample(["power", "memory", "latency", "energy", "carbon", *BLENDED], pick.choice([1, 1, 2]))
    loose = Limits({}, 1e-4, {name: Objective(name, 1e-3, 0.5) for name in BLENDED})
    most = {}
    for name in names:
        figures = sorted(loose.figure(name, point) for point in one.points)
        most[name] = figures[pick.randrange(len(figures))] * pick.choice([1.0, 1.0, 0.999, 0.5])
    limits = loose.of(most)
    goal = pick.choice([Objective("latency"), Objective("energy"), Objective("memory"), *loose.blends.values()])
    kept = [point for point in one.points if not limits.broken(point)]
    try:
        found = search_space(one.job, one.space, Question(goal=goal, limits=limits))
    except InfeasibleError as problem:
        assert not kept, f"{about}: {most} is called infeasible, {len(kept)} steps keep it"
        _check_way_out(one, limits, problem, about)
        return
    best = min(float(goal.value(p.seconds, p.joules, p.memory)) for p in kept) if kept else np.inf
    assert found.certificate.bound <= best * (1 + CLOSE), f"{about}: {most} gives {found.certificate.objective}, {best} keeps it"
    assert not limits.broken(found.points[0]), f"{about}: {most} is broken"
    assert found.certificate.proven or one.space.problems


def _check_way_out(one: Space, limits: Limits, problem: InfeasibleError, about: str) -> None:
    """What is said to be missing is what the exact figures say."""
    if problem.unit == "byte" or problem.resource not in limits.most:
        return
    rest = limits.without(problem.resource)
    kept = [limits.figure(problem.resource, point) for point in one.points if not rest.broken(point)]
    if kept and problem.resource == "power" and one.space.problems:  # said to be the least of the layouts tried
        assert problem.need >= min(kept) * (1 - CLOSE), f"{about}: {problem.message}, the least is {min(kept)}"
    elif kept:
        assert abs(problem.need / min(kept) - 1) < CLOSE, f"{about}: {problem.message}, the least is {min(kept)}"
    assert problem.need > problem.have


def check_fronts(seeds: Iterable[int], each: int = 12) -> int:
    """Random fronts of two or three figures: no point is missing, none is dominated."""
    asked = 0
    for seed in seeds:
        one, pick = step_space(seed), random.Random(seed)
        _check_front(one, pick, f"seed {seed}")
        with one.known():
            for _ in range(each - 1):
                _check_front(one, pick, f"seed {seed}")
        asked += each
    return asked


def _check_front(one: Space, pick: random.Random, about: str) -> None:
    figures = [_figure(name, pick) for name in pick.sample(FIGURES, pick.choice([2, 3]))]
    found = search_space(one.job, one.space, Question(goal=Objective("latency"), front=figures))
    assert found.complete
    check_front(values(found.front, figures), values(one.points, figures), f"{about}, {[f.name for f in figures]}")


def _figure(name: str, pick: random.Random) -> Objective:
    if name == "money":
        return Objective("money", 3e-8, pick.choice([1e-6, 1e-4, 1e-2]))
    return Objective("total_carbon", 1e-4, pick.choice([1e-3, 1.0])) if name == "total" else Objective(name)


def values(points: Sequence[Point], figures: Sequence[Objective]) -> Members:
    return np.array([[float(f.value(p.seconds, p.joules, p.memory)) for p in points] for f in figures])


def check_front(front: Members, every: Members, about: str) -> None:
    """Each member is reached by a point of the front, and no point of the front is dominated by a member. [figures, points]."""
    reached = (front[:, :, None] <= every[:, None, :] * (1 + CLOSE)).all(axis=0).any(axis=0)
    assert reached.all(), f"{about}: a point is missing: {every[:, int(np.flatnonzero(~reached)[0])]}"
    for number in range(front.shape[1]):
        as_good = (every <= front[:, number : number + 1] * (1 + CLOSE)).all(axis=0)
        better = (every < front[:, number : number + 1] * (1 - CLOSE)).any(axis=0)
        assert not (as_good & better).any(), f"{about}: point {number} of the front is dominated"


# -- free layouts ------------------------------------------------------------------------------------------------------------

OVERLAPPED = ("ideal", str(Path(__file__).parent / "audit/profiles/beside.yaml"))
FEW = 300  # layouts that are all priced where none of them is ruled out
EINSUMS = (
    {"one": "Y[m,n] = X[m,k] * W[k,n]"},
    {"one": "H[m,n] = X[m,k] * W[k,n]", "two": "Y[m,k] = H[m,n] * V[n,k]"},
    {"one": "H[m,n] = X[m,k] * W[k,n]", "act": "G[m,n] = gelu(H[m,n])", "two": "Y[m,k] = G[m,n] * V[n,k]"},
)


def free_space(seed: int) -> tuple[Architecture, Workload, MapperSpec]:
    """A small graph whose operations split freely over one axis or two."""
    pick = random.Random(seed)
    sizes = {name: pick.choice([16, 64, 256]) for name in ("m", "n", "k")}
    graph = workload(pick.choice(EINSUMS), sizes, phases=pick.choice([["forward"], ["forward", "backward"]]))
    place = machine(racks=pick.choice([1, 2]), gpus=pick.choice([2, 4]), static=pick.choice(["0 W", "100 W"]))
    axes = {"a": {"degree": "free"}, **({"c": {"degree": "free"}} if pick.random() < 0.4 else {})}
    return place, graph, mapper(axes=axes, split=dict.fromkeys(axes, "free"), uneven="error")


def members(job: Job, space: Mapspace, most: int = 600) -> Iterator[Point]:
    """Every layout of every mesh, each as a mapping of its own and run alone; at most so many a mesh."""
    for problem in space.problems:
        ops = list(problem.mesh.domains)
        each = [list(itertools.product(*problem.mesh.domains[op])) for op in ops]
        chosen = itertools.islice(itertools.product(*each), most)
        plans = [problem.plan(dict(zip(ops, choices, strict=True))) for choices in chosen]
        variants = tuple(Variant(layout="", recompute="none", home=0, offload=(), plan=plan) for plan in plans)
        group = Group(columns=problem.columns, parents=problem.mesh.parents, variants=variants)
        yield from every_point(job, replace(space, groups=(group,), problems=()))


def check_free(seeds: Iterable[int]) -> int:
    """Random graphs with free layouts, of tasks one after another or beside each other: nothing of the space is better than its bound;
    limits and fronts are those of every layout, and proven where few are."""
    asked = 0
    for seed in seeds:
        pick = random.Random(seed)
        place, graph, said = free_space(seed)
        job = Job(setting=Setting(architecture=place), workload=graph, profile=pick.choice([SERIAL, *map(read_profile, OVERLAPPED)]))
        space = build_mapspace(said, graph, place.used)
        one = Space(job, space, list(members(job, space)))
        if not one.points:
            continue
        goal, figures = Objective(pick.choice(["latency", "energy", "edp"])), [_figure(name, pick) for name in pick.sample(FIGURES, 2)]
        found = search_space(job, space, Question(goal=goal, front=figures))
        least = min(float(goal.value(p.seconds, p.joules, p.memory)) for p in one.points)
        assert found.certificate.bound <= least * (1 + CLOSE), f"seed {seed}: a layout has {least}, the bound is {found.certificate.bound}"
        if max(problem.size for problem in space.problems) <= 600:
            _check_limit(one, pick, f"free seed {seed}")
            if found.complete:
                check_front(values(found.front, figures), values(one.points, figures), f"free seed {seed}, {[f.name for f in figures]}")
            assert found.complete or space.size > FEW
            assert found.certificate.proven or space.size > FEW
        asked += 1
    return asked
