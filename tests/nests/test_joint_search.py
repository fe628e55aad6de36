"""Any tile on deep machines: rows of ragged mappings cost what `evaluate` says, no mapping is below the bound of the joint programs."""

import contextlib
import random

import numpy as np
import pytest

from rackmodel.errors import InfeasibleError
from rackmodel.nests import solve_nest
from rackmodel.nests.constraints import NestConstraints
from rackmodel.nests.evaluate import evaluate
from rackmodel.nests.objective import parse_objective
from rackmodel.nests.problem import NestCompute, NestFan, NestLevel, NestMachine
from rackmodel.nests.searchers import joint_best
from rackmodel.nests.searchers.joint_program import Weights
from rackmodel.nests.searchers.joint_search import JointSearch, least_at_corners
from rackmodel.nests.searchers.list_axes import ListAxis
from rackmodel.nests.searchers.ragged_counts import RaggedCounts
from rackmodel.nests.searchers.ragged_plan import RaggedPlan, orders_of
from rackmodel.nests.searchers.space import Space
from rackmodel.nests.searchers.stored_tensors import keep_masks
from tests.nests.machines import gemm
from tests.nests.random_nests import divisible_mapping, machine, mapping, problem


def spaces(p, m):
    axes = [ListAxis(n, 2, m.compute.atom.get(r, 1)) for r, n in p.sizes.items()]
    return [Space(p, m, kept, NestConstraints(), axes=axes) for kept in keep_masks(p, m, NestConstraints())]


def ragged_rows(plan, random_numbers, count):
    """Rows whose tiles are one smaller than their ratios make them, here and there; nested and within every room."""
    shape = count, len(plan.tiles) + len(plan.parts)
    rows = plan.rows_of(np.maximum(1, np.floor(np.exp(random_numbers.exponential(0.5, shape)))).astype(np.int64))
    left = [np.full(count, n) for n in plan.space.sizes]
    for i, tile in enumerate(plan.tiles):
        least = plan.least[tile.rank]
        rows[:, i] = np.minimum(left[tile.rank], np.maximum(least, rows[:, i] - random_numbers.integers(0, 2, count)))
        left[tile.rank] = rows[:, i]
    return rows[plan.fits(rows)]


@pytest.mark.parametrize("seed", range(8))
def test_rows_cost_what_evaluate_says(seed):
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    p = problem(rng, limit=4000, choices=(1, 2, 3, 5, 6, 7, 12, 30))
    m = machine(rng, p, inner=1 + seed % 3, options=seed % 3 > 0)
    space = spaces(p, m)[0]
    plan = RaggedPlan(space, [rng.choice(space.orders(level)) for level in range(1, space.depth)])
    rows = ragged_rows(plan, numbers, 60)[:15]
    energy, times = RaggedCounts(plan, rows).cost(timed=True)
    for i, row in enumerate(rows):
        made = plan.mapping(row)
        cost = evaluate(p, m, made)
        assert energy[i] == pytest.approx(cost.energy_j, rel=1e-12)
        assert max(t[i] for t in times) == pytest.approx(cost.latency_s, rel=1e-12)
        assert plan.seconds(row[None])[0] <= cost.latency_s * (1 + 1e-12)
        assert orders_of(space, made) == plan.orders[1:]
        assert list(plan.row(made)) == list(row)


@pytest.mark.parametrize("seed", [1, 2])
def test_no_mapping_is_below_the_bound(seed):
    rng = random.Random(seed)
    p = problem(rng, limit=400, choices=(1, 2, 3, 5, 6, 7, 12))
    m = machine(rng, p, inner=1 + seed % 2, options=seed % 3 > 0)
    costs = []
    for _ in range(60):
        for make in (lambda: mapping(rng, p, m), lambda: mapping(rng, p, m, perfect=False), lambda: divisible_mapping(rng, p, m)):
            with contextlib.suppress(InfeasibleError):
                costs.append(evaluate(p, m, make()))
    with contextlib.suppress(InfeasibleError):
        costs += [solve_nest(p, m, objective=o, factors="perfect").cost for o in ("energy", "latency")]
    macs = p.macs * m.compute.j_per_mac
    for a, b in ((1.0, 0.0), (0.0, 1.0), (1.0, costs[0].energy_j / costs[0].latency_s)):
        keys = [a * (c.energy_j - macs) + b * c.latency_s for c in costs]
        best = costs[keys.index(min(keys))]
        searches = [JointSearch(s, Weights(a, b, best.energy_j, best.latency_s), min(keys) * 1.3) for s in spaces(p, m)]
        for search in searches:
            search.run(16)
        assert min(search.bound for search in searches) <= min(keys) * (1 + 1e-9)


def test_a_product_is_least_at_an_end_of_the_line():
    goal = parse_objective("edp")
    bound = least_at_corners(goal, Weights(2.0, 3.0, 1.0, 1.0), 12.0, 1.5, 1.0)
    assert bound == pytest.approx(min(4.5 * 1.0, 1.5 * 3.0))
    line = [(e, (12.0 - 2.0 * e) / 3.0) for e in np.linspace(1.5, 4.5, 31)]
    assert all(e * t >= bound * (1 - 1e-12) for e, t in line)


def deep():
    """A memory, a cache, a waved fan of cores with two buffers, registers that pass one operand by: an H100 of 1/16."""
    cache = NestLevel("cache", 2e6, 1e-12, 1e-12, 4e12, 2e12, fan=NestFan(9, linear=True, multicast_width=2, reduction_width=1))
    core = NestLevel("core", 2e5, 2e-13, 2e-13, 1e12, buffers=2, bypass=("C",), fan=NestFan(4))
    registers = NestLevel("registers", 6e4, 3e-14, 3e-14, bypass=("B",), bits_per_tensor={"C": 32})
    levels = NestLevel("memory", None, 5e-12, 5e-12, 2e12), cache, core, registers
    return NestMachine("deep", levels, NestCompute(3e11, 4e-13, {"m": 4, "n": 2, "k": 4}))


def test_a_deep_machine_is_near_its_bound(monkeypatch):
    for name, less in (("WORK", 16), ("STARTS", 1), ("FIRST", 2), ("BEST", 1), ("MORE", 2)):
        monkeypatch.setattr(joint_best, name, less)
    p, m = gemm(250, 300, 430), deep()
    found = solve_nest(p, m)
    assert found.certificate.gap < 0.08
    assert evaluate(p, m, found.mapping) == found.cost
    assert found.certificate.objective == (found.cost.energy_j, found.cost.latency_s)
