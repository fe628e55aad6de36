"""Matrix products on a memory, a buffer, an array and registers: every tile there is, against brute force and the tables of divisors."""

import contextlib
import os
import random
from dataclasses import replace
from math import inf

import numpy as np
import pytest

from rackmodel.errors import InfeasibleError
from rackmodel.nests import solve_nest
from rackmodel.nests.constraints import NestConstraints
from rackmodel.nests.evaluate import evaluate
from rackmodel.nests.objective import NestObjective, parse_objective
from rackmodel.nests.problem import NestCompute, NestFan, NestLevel, NestMachine
from rackmodel.nests.searchers.contract import NestQuestion
from rackmodel.nests.searchers.effort import Effort
from rackmodel.nests.searchers.mapspace.stored_tensors import keep_masks
from rackmodel.nests.searchers.registers.rank_splits import SplitPrices, TimedSplits
from rackmodel.nests.searchers.registers.register_cells import Registers
from rackmodel.nests.searchers.registers.registers import CELLS, Inner, RegisterSearch, least_energy
from rackmodel.nests.searchers.registers.timed_registers import least_timed
from tests import samples
from tests.nests import brute_ragged
from tests.nests.machines import edge3, gemm
from tests.nests.random_nests import mapping

COUNT, SEED = int(os.environ.get("NEST_COUNT", "3")), int(os.environ.get("NEST_SEED", "0"))
SMALL = ((3, 2, 3), (4, 2, 2), (2, 3, 3), (5, 2, 2), (2, 2, 5))
LARGER = ((5, 4, 2), (7, 2, 3), (4, 3, 4), (2, 5, 4), (3, 3, 5), (6, 2, 4), (3, 7, 2), (9, 2, 2), (2, 2, 8))  # a second each


def registers(rng, p, fans, tight=3.0):
    """Two levels of little room below a memory, with prices that draw it one way and another."""
    words = sum(n * m for n, m in zip(p.sizes.values(), list(p.sizes.values())[1:] + list(p.sizes.values())[:1], strict=True))
    price = lambda most: rng.choice((0.0, 0.1, 1.0, 5.0)) * most  # noqa: E731
    buffer = NestLevel("B", 16 * rng.randint(3, max(4, int(words / tight))), price(1), price(1), fan=NestFan(*rng.choice(fans)))
    inner = NestLevel("R", 16 * rng.randint(3, max(4, int(words / tight / 2))), price(0.3), price(0.3), buffers=rng.choice((1, 1, 2)))
    return NestMachine("registers", (NestLevel("M", None, 2.0 + price(1), 2.0 + price(1)), buffer, inner), NestCompute(1e9, 0.5))


def question(p, m, cells=60e6):
    none = NestConstraints()
    return NestQuestion(p, m, NestObjective("energy"), "ceil", none, keep_masks(p, m, none), effort=Effort(cells))


@pytest.mark.parametrize("seed", range(COUNT))
def test_no_tile_of_any_size_is_better(seed):
    rng = random.Random(SEED * 1000 + seed)
    p = gemm(*rng.choice(SMALL if seed < 3 else LARGER))
    m = registers(rng, p, ((1, 1), (2, 1), (3, 2), (2, 2), (4, 1)))
    best = brute_ragged.least_energy(p, m)
    try:
        found = solve_nest(p, m)
    except InfeasibleError:
        assert best == float("inf")
        return
    assert found.certificate.bound <= best * (1 + 1e-9)
    assert found.cost.energy_j >= best * (1 - 1e-9)
    if found.certificate.proven:
        assert found.cost.energy_j == pytest.approx(best, rel=1e-9)
    assert found.cost == evaluate(p, m, found.mapping)


@pytest.mark.parametrize("seed", range(COUNT))
def test_divisors_give_what_the_tables_give(seed):
    rng = random.Random(7 + SEED * 1000 + seed)
    p = gemm(*(rng.choice((4, 6, 8, 12, 18, 24)) for _ in range(3)))
    m = registers(rng, p, ((1, 1), (4, 4), (6, 2), (8, 3)), rng.choice((1.5, 4, 12)))
    try:
        table = solve_nest(p, m, factors="perfect")
    except InfeasibleError:
        assert least_energy(question(p, m), None, perfect=True) is None
        return
    agree(least_energy(question(p, m), None, perfect=True), (table.cost.energy_j, table.cost.latency_s))


def agree(found, best):
    """A search that came to its end has the key of the tables, one that was stopped a bound that holds."""
    assert found.bound <= best[0] * (1 + 1e-9)
    assert found.best[0][0] >= best[0] * (1 - 1e-9)
    if found.cells < CELLS:
        assert found.best[0][0] == pytest.approx(best[0], rel=1e-9)
        assert found.bound == pytest.approx(best[0], rel=1e-9)


@pytest.mark.parametrize("seed", samples.some(range(COUNT + 3), 3))
def test_divisors_with_time_give_what_the_tables_give(seed):
    rng = random.Random(7 + SEED * 1000 + seed)
    p = gemm(*(rng.choice((4, 6, 8, 12, 18, 24)) for _ in range(3)))
    m = clocked(rng, registers(rng, p, ((1, 1), (4, 4), (6, 2), (8, 3)), rng.choice((1.5, 4, 12))))
    goal = aim(rng)
    try:
        table = solve_nest(p, m, objective=goal, factors="perfect").certificate
    except InfeasibleError:
        assert least_timed(replace(question(p, m), objective=goal), None, perfect=True) is None
        return
    found = least_timed(replace(question(p, m), objective=goal), None, perfect=True)
    assert table.proven
    if found is None:
        return  # of many cells alike the most that it looks at held no mapping; where it is asked one is known before
    agree(found, table.objective)
    assert found.cells == CELLS or found.best[0] == pytest.approx(table.objective, rel=1e-9)


def clocked(rng, m):
    """The same machine where ports and compute take time, one or the other."""
    port = lambda: rng.choice((inf, inf, rng.uniform(3, 60)))  # noqa: E731
    levels = tuple(
        replace(v, bandwidth_bits_per_s=port(), write_bandwidth_bits_per_s=rng.choice((None, None, rng.uniform(3, 60)))) for v in m.levels
    )
    return replace(m, levels=levels, compute=replace(m.compute, macs_per_s=rng.choice((0.3, 1.0, 5.0))))


def aim(rng):
    """Latency, EDP or a weighted sum, at times with power that every second costs."""
    goal = parse_objective(rng.choice(("latency", "edp", {"energy": 1.0, "latency": rng.choice((1.0, 50.0, 300.0))})))
    return replace(goal, static_w=rng.choice((0.0, 0.0, 0.0, 30.0)))


@pytest.mark.parametrize("seed", range(COUNT + 3))
def test_no_tile_of_any_size_is_faster_for_its_energy(seed):
    rng = random.Random(SEED * 1000 + seed)
    p = gemm(*rng.choice(SMALL if seed < 9 else LARGER))
    m = clocked(rng, registers(rng, p, ((1, 1), (2, 1), (3, 2), (2, 2), (4, 1), (5, 1))))
    goal = aim(rng)
    best = brute_ragged.least(p, m, goal.key)
    try:
        found = solve_nest(p, m, objective=goal)
    except InfeasibleError:
        assert best[0] == inf
        return
    assert found.certificate.proven
    assert found.certificate.objective == pytest.approx(best, rel=1e-9)
    assert found.cost == evaluate(p, m, found.mapping)


@pytest.mark.parametrize("seed", range(COUNT))
@samples.audited
def test_larger_mappings_are_never_below_the_bound_of_time_and_energy(seed):
    rng = random.Random(31 + SEED * 1000 + seed)
    p = gemm(*(rng.randint(6, 30) for _ in range(3)))
    m = clocked(rng, registers(rng, p, ((4, 1), (3, 2), (4, 4)), rng.choice((2, 6))))
    goal = aim(rng)
    with contextlib.suppress(InfeasibleError):
        sheet = solve_nest(p, m, objective=goal).certificate
        for _ in range(150):
            with contextlib.suppress(InfeasibleError):
                cost = evaluate(p, m, mapping(rng, p, m, perfect=False))
                first = goal.key(cost.energy_j, cost.latency_s)[0]
                assert sheet.bound <= first * (1 + 1e-9)
                assert sheet.objective[0] <= first * (1 + 1e-9) or not sheet.proven


@pytest.mark.parametrize("seed", range(10))
def test_bounds_of_a_cell_are_no_higher_than_its_tiles(seed):
    """Tiles handed on that are no corner of their rank: their outer tile is at least as large and has its count."""
    rng = random.Random(seed)
    p = gemm(*(rng.choice((5, 7, 9, 10, 12, 15, 20, 30)) for _ in range(3)))
    search = RegisterSearch.of(question(p, registers(rng, p, ((2, 1), (3, 2), (4, 4)), rng.choice((2, 4, 8)))), perfect=False)
    inner = Inner(*(ranks := rng.choice(search._orders(2))), search._bits(2, ranks))
    pairs = list(zip(*search._pairs(inner), strict=True))
    for second, last in rng.sample(pairs, min(40, len(pairs))):
        parts = tuple(int(n) for n in rng.choice(search.vectors))
        units = {inner.second: int(second), inner.last: int(last)}
        if all((parts[r] - 1) * u < search.sizes[r] for r, u in units.items()):
            below = Registers(inner.free, parts, tuple(units.get(r, 0) for r in range(3)))
            for order in search.orders:
                found, _ = order.best(below, inf)
                if found is not None:
                    for known in (found.price * (1 + 1e-9), inf):  # told up to a price, or of every tile
                        assert order.rough(below, known) <= found.price * (1 + 1e-9)
                        assert order.bound(below, known) <= found.price * (1 + 1e-9)
                        assert order._by_ranges(below, known) <= min(found.price, order._by_tiles(below)) * (1 + 1e-9)


@pytest.mark.parametrize("size", [97, 120, 2047])
def test_a_range_of_tiles_costs_no_more_than_any_tile_of_it_or_smaller(size):
    rng = random.Random(size)
    splits = TimedSplits(size, SplitPrices(1.0, 0.4, 0.03), False)
    first, last = splits.ranges
    assert (first[1:] == last[:-1] + 1).all()
    assert (first[0], last[-1]) == (1, size)
    for _ in range(20):
        parts, unit = rng.randint(1, 9), rng.randint(1, size // 8)
        for cycles in (inf, rng.uniform(1, 3) * size / parts):
            every = np.minimum.accumulate(splits.cut(parts, unit, cycles).least)
            assert (splits.cut_at_least(parts, unit, cycles) <= every[last - 1] * (1 + 1e-9)).all()
            tiles, few = splits.handed_on(parts, unit, cycles)
            assert (tiles <= max(parts * unit, splits.least_held(parts, unit))).all()
            assert len(few.least) == len(tiles)


def test_a_search_that_is_stopped_keeps_a_bound_that_holds():
    p, m = gemm(240, 96, 120), edge3(rf_bits=1024)
    whole = least_energy(question(p, m), None, perfect=True)
    for cells in (1e4, 1e5):
        part = least_energy(question(p, m, cells), None, perfect=True)
        assert part is None or part.bound <= whole.best[2].energy_j <= part.best[2].energy_j * (1 + 1e-12)


def test_few_cells_are_priced_where_no_mapping_is_known():
    """Sizes of many divisors: between 1.2 and 2 times the bound lie ten million cells, of which a step of 1.4 leaves two thousand."""
    search = RegisterSearch.of(question(gemm(720, 720, 720), edge3()), True)
    search.run()
    assert search.effort.spent < 500_000
    assert min(search.left, search.reached) >= search.best[0][0] * (1 - 1e-9)
