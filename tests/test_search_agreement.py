"""Whatever can be solved two ways must agree: grid, elimination, CP-SAT, and pricing every mapping one by one."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest

from rackmodel.cost.step.group import Job
from rackmodel.cost.step.setting import Setting
from rackmodel.errors import InfeasibleError
from rackmodel.inputs.read import read_profile
from rackmodel.mapper.layouts.eliminate import eliminate
from rackmodel.mapper.layouts.exhaustive import exhaust
from rackmodel.mapper.layouts.factors import build_factors
from rackmodel.mapper.layouts.weights import ENERGY, LATENCY, total
from rackmodel.mapper.mapspace import build_mapspace
from rackmodel.mapper.objective import Objective
from rackmodel.mapper.search import Question, search_space
from rackmodel.model.profile import ProfileSpec
from tests import samples
from tests.certificate_cases import OVERLAPPED, members
from tests.machines import CORE, FFN, IDEAL, MLP, SERIAL, machine, mapper, workload
from tests.steps import priced, searched

GRAPHS = {"ffn": FFN, "mlp": MLP, "core": CORE}


def _problem(seed: int):
    """A random machine, workload and mapper."""
    pick = random.Random(seed)
    graph = pick.choice(list(GRAPHS))
    sizes = {i: pick.choice([2, 4, 8, 16, 64, 256]) for i in "bsdfhe"} | {"t": "s"}
    gpus = pick.choice([2, 4])
    inside, outside = (f"{pick.choice([1, 10, 100, 1000])} GB/s" for _ in range(2))
    arch = machine(
        racks=2,
        gpus=gpus,
        inside=inside,
        outside=outside,
        latency=pick.choice(["0 s", "1 us", "20 us"]),
        hops=pick.choice(["slowest_link", "path_sum"]),
        static=pick.choice(["0 W", "100 W"]),
    )
    homes = {"weights": {"axes": ["dp"], "param": "shard", "grad": "shard", "state": "shard"}} if pick.random() < 0.3 else {}
    axes = {"dp": {"degree": pick.choice([1, 2])}, "tp": {"degree": "rest"}}
    save = pick.choice(["shard", "gathered"])
    return arch, workload(GRAPHS[graph], sizes), mapper(axes=axes, split={"dp": ["b"], "tp": "free"}, homes=homes, save=save)


@pytest.mark.parametrize("block", range(6))
def test_elimination_equals_the_grid_on_random_problems(block: int) -> None:
    for seed in range(block * 60, block * 60 + samples.cases(4, 60)):
        arch, load, maps = _problem(seed)
        for problem in build_mapspace(maps, load, arch.used).problems:
            factors = build_factors(Setting(architecture=arch), problem, SERIAL)
            for weights in (LATENCY, ENERGY):
                first, second = (total(factors, solve(factors, weights))[:2] for solve in (eliminate, exhaust))
                assert first == pytest.approx(second, rel=1e-12, abs=0), (seed, problem.mesh.axes)


@pytest.mark.parametrize(
    ("graph", "sizes", "more", "profile"),
    [
        (CORE, {"b": 3, "s": 4, "t": "s", "d": 2, "h": 1, "e": 4}, {"save": "gathered"}, SERIAL),
        (FFN, {"b": 2, "s": 4, "d": 16, "f": 16}, {"micro_batch": "free"}, read_profile(OVERLAPPED[1])),  # tables bound its seconds
    ],
)
def test_of_layouts_that_hold_equally_little_the_fastest_is_found(graph: Any, sizes: Any, more: Any, profile: ProfileSpec) -> None:
    place = machine(racks=1, gpus=4, latency="0 s", inside="10 GB/s" if profile is SERIAL else "1 TB/s", hops="path_sum")
    phases = ["forward", "backward"] if profile is SERIAL else ["forward"]
    job = Job(setting=Setting(architecture=place), workload=workload(graph, sizes, phases=phases), profile=profile)
    space = build_mapspace(mapper(axes={"a": {"degree": "free"}}, split={"a": "free"}, **more), job.workload, place.used)
    least, seconds = min((point.memory, point.seconds) for point in members(job, space))
    found = search_space(job, space, Question(goal=Objective("memory"))).points[0]
    assert (found.memory, found.seconds) == pytest.approx((least, seconds), rel=1e-12)


def test_the_tables_add_up_to_the_ledger_for_every_mapping() -> None:
    for seed in range(4):
        arch, load, maps = _problem(seed)
        problem = build_mapspace(maps, load, arch.used).problems[0]
        factors = build_factors(Setting(architecture=arch), problem, SERIAL)
        everything = list(itertools.product(*(range(count) for count in factors.counts.values())))
        for positions in random.Random(seed).sample(everything, min(60, len(everything))):
            chosen = dict(zip(factors.counts, positions, strict=True))
            plan = problem.plan({op: factors.strategies[op][i] for op, i in chosen.items()})
            step = priced(arch, load, plan, problem.columns, SERIAL)
            latency, energy, memory = total(factors, chosen)
            assert float(step.latency[0]) == pytest.approx(latency, rel=1e-12)
            assert float(step.energy[0]) == pytest.approx(energy, rel=1e-12)
            assert float(step.memory[0]) == pytest.approx(memory, rel=1e-12)


@pytest.mark.parametrize("seed", range(1000, 1000 + samples.cases(5, 24)))
def test_cpsat_agrees_with_elimination_and_the_grid(seed: int) -> None:
    arch, load, maps = _problem(seed)
    goal = ("latency", "energy", "edp")[seed % 3]
    answers = []
    for solver in ("enumerate", "eliminate", "cpsat", "auto"):
        best = searched(arch, load, maps, goal, SERIAL, solver).points[0]
        answers.append((Objective(goal).value(best.seconds, best.joules, best.memory), Objective(goal).tie(best.seconds, best.joules)))
    for answer in answers[1:]:
        assert answer == pytest.approx(answers[0], rel=1e-9)


@pytest.mark.parametrize("seed", samples.some(range(2000, 2012), 4))
def test_solvers_agree_when_memory_binds(seed: int) -> None:
    arch, load, maps = _problem(seed)
    maps = maps.model_copy(update={"save": "free"})
    free = searched(arch, load, maps, "latency", SERIAL, "eliminate").points[0]
    tight = machine(racks=2, gpus=arch.accelerator.count, inside="10 GB/s", outside="1 GB/s", capacity=f"{free.memory * 0.9:.0f} B")
    answers = []
    for solver in ("enumerate", "cpsat", "auto"):
        try:
            found = searched(tight, load, maps, "latency", SERIAL, solver)
            best = found.points[0]
            assert best.memory <= tight.accelerator.memory.capacity_bytes
            assert found.certificate.gap == 0
            answers.append(best.seconds)
        except InfeasibleError:
            answers.append(-1.0)
    assert answers == pytest.approx([answers[0]] * 3, rel=1e-9)


def test_edp_is_the_least_product_over_every_mapping() -> None:
    for seed in range(3000, 3000 + samples.cases(5, 10)):
        arch, load, maps = _problem(seed)
        found = searched(arch, load, maps, "edp", SERIAL, "eliminate").points[0]
        least = np.inf
        for problem in build_mapspace(maps, load, arch.used).problems:
            factors = build_factors(Setting(architecture=arch), problem, SERIAL)
            for positions in itertools.product(*(range(count) for count in factors.counts.values())):
                latency, energy, _ = total(factors, dict(zip(factors.counts, positions, strict=True)))
                least = min(least, Objective("edp").value(latency, energy, 0.0))
        assert found.seconds * found.joules == pytest.approx(least, rel=1e-9)


def test_overlap_is_never_slower_and_its_bound_holds() -> None:
    for seed in range(samples.cases(4, 20)):
        arch, load, maps = _problem(seed)
        serial = searched(arch, load, maps, "latency", SERIAL, "eliminate")
        ideal = searched(arch, load, maps, "latency", IDEAL, "eliminate")
        assert ideal.points[0].seconds <= serial.points[0].seconds * (1 + 1e-12)
        assert ideal.certificate.bound <= ideal.certificate.objective
        assert 0 <= ideal.certificate.gap < 1
        assert serial.certificate.gap == 0
