"""Matrix products on a memory, a buffer, an array and registers: every tile there is, against brute force and the tables of divisors."""

import os
import random

import pytest

from rackmodel.errors import InfeasibleError
from rackmodel.nests import solve_nest
from rackmodel.nests.constraints import NestConstraints
from rackmodel.nests.evaluate import evaluate
from rackmodel.nests.objective import NestObjective
from rackmodel.nests.problem import NestCompute, NestFan, NestLevel, NestMachine
from rackmodel.nests.searchers.contract import NestQuestion
from rackmodel.nests.searchers.effort import Effort
from rackmodel.nests.searchers.registers import least_energy
from rackmodel.nests.searchers.stored_tensors import keep_masks
from tests.nests import brute_ragged
from tests.nests.machines import edge3, gemm

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
    found = least_energy(question(p, m), None, perfect=True)
    assert found.best[2].energy_j == pytest.approx(table.cost.energy_j, rel=1e-9)
    assert found.bound == pytest.approx(table.cost.energy_j, rel=1e-9)


def test_a_search_that_is_stopped_keeps_a_bound_that_holds():
    p, m = gemm(240, 96, 120), edge3(rf_bits=1024)
    whole = least_energy(question(p, m), None, perfect=True)
    for cells in (1e4, 1e5):
        part = least_energy(question(p, m, cells), None, perfect=True)
        assert part is None or part.bound <= whole.best[2].energy_j <= part.best[2].energy_j * (1 + 1e-12)
