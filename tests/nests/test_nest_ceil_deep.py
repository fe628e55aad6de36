"""Ceil factors on three memory levels: nothing in the declared space beats it, nothing at all beats its bound."""

import contextlib
import random

import pytest

from rackmodel.errors import InfeasibleError, RackmodelError
from rackmodel.nests import solve_nest
from rackmodel.nests.evaluate import evaluate
from rackmodel.nests.mapping import LevelMapping, NestMapping, StorageNode
from rackmodel.nests.problem import NestCompute, NestFan, NestMachine
from tests import samples
from tests.nests.machines import edge3, einsum, gemm, level
from tests.nests.random_nests import divisible_mapping, machine, mapping, problem


def test_nearly_prime_gemm_on_three_levels():
    ceil = solve_nest(gemm(2039, 4093, 14327), edge3())
    assert ceil.cost.energy_j == pytest.approx(0.487981124, rel=1e-8)
    assert ceil.certificate.proven
    assert evaluate(gemm(2039, 4093, 14327), edge3(), ceil.mapping) == ceil.cost


@samples.audited
def test_ceil_is_never_above_perfect():
    found = solve_nest(gemm(2048, 4096, 14336), edge3())
    assert found.certificate.proven
    assert found.cost.energy_j == pytest.approx(0.4908073877504, rel=1e-12), "divisors alone: 0.4928407863296"
    product = solve_nest(gemm(2048, 4096, 14336), edge3(), objective="edp")
    assert product.certificate.proven
    assert product.cost.edp == pytest.approx(0.4928407863296 * 0.117440512, rel=1e-12), "divisors are the best here"
    p = gemm(31, 16, 29)
    for objective in ("energy", "latency", "edp"):
        ceil, perfect = (solve_nest(p, edge3(), objective=objective, factors=f) for f in ("ceil", "perfect"))
        assert ceil.certificate.objective[0] <= perfect.certificate.objective[0] * (1 + 1e-12)


def test_a_ragged_tile_may_skip_more_of_a_strided_tensor_than_even_ones():
    """C[p] = A[2 p] B[p], p = 9 by atoms of 3: cut to 4 for C, then to 3, A's tiles are 3, 1, 3, 1, 1, which span 13 words, not 3 x 5."""
    p = einsum("strided", ("C", "p"), [("A", "2*p"), ("B", "p")], {"p": 9})
    m = NestMachine("atoms", (level("memory", None, 8, 1e9), level("buffer", 16 * 14, 8, 1e9)), NestCompute(1e9, 0.0, {"p": 3}))
    outer = LevelMapping("memory", tuple(StorageNode(t, {"p": 9}) for t in "ABC"))
    inner = LevelMapping("buffer", tuple(StorageNode(t, {"p": n}) for t, n in (("C", 4), ("A", 3), ("B", 3))))
    ragged = evaluate(p, m, NestMapping("strided", "atoms", (outer, inner)))
    assert {a.tensor: a.read_bits for a in ragged.accesses if a.level == "memory"} == {"A": 16 * 13, "B": 16 * 9, "C": 0}
    found = solve_nest(p, m)
    assert found.certificate.bound <= ragged.energy_j < found.cost.energy_j
    assert not found.certificate.proven


@pytest.mark.parametrize("seed", samples.some(range(6), 6))
def test_random_mappings_do_not_beat_solution_or_bound(seed):
    rng = random.Random(seed)
    p = problem(rng, limit=80, choices=(1, 2, 3, 5, 6, 7))
    m = machine(rng, p, inner=2, options=seed % 2 == 0)
    try:
        found = {o: solve_nest(p, m, objective=o).certificate for o in ("energy", "latency", "edp")}
    except InfeasibleError:
        found = None
    free = evaluated(p, m, [mapping(rng, p, m, perfect=False) for _ in range(250)], [InfeasibleError])
    inside = evaluated(p, m, [divisible_mapping(rng, p, m) for _ in range(250)], [InfeasibleError, RackmodelError])
    if found is None:
        assert not free
        assert not inside
        return
    assert len(free) + len(inside) >= 5, "a seed that checks nothing"
    for cost in free:
        for o, value in (("energy", cost.energy_j), ("latency", cost.latency_s), ("edp", cost.edp)):
            assert found[o].bound <= value * (1 + 1e-9), o
    for cost in inside:
        assert found["energy"].objective[0] <= cost.energy_j * (1 + 1e-9)


def evaluated(p, m, mappings, passed_over):
    """Costs of the mappings that raise none of the errors `passed_over`."""
    costs = []
    for one in mappings:
        with contextlib.suppress(*passed_over):
            costs.append(evaluate(p, m, one))
    return costs


@pytest.mark.parametrize("objective", ["energy", "latency", "edp"])
@pytest.mark.parametrize("fan", [1, 16])
def test_one_memory_beside_its_units_answers_large_nests(objective, fan):
    """Nothing is kept below it: a unit alone reads A and B for every operation. Every nest of more than 30,000 ended in an IndexError."""
    m = NestMachine("one", (level("memory", None, 1, 1e9, NestFan(fan)),), NestCompute(1e9, 1e-13))
    p = gemm(53, 59, 61)
    found = solve_nest(p, m, objective=objective)
    assert evaluate(p, m, found.mapping) == found.cost
    macs = 53 * 59 * 61
    if fan == 1:
        words = macs * (2 + 2) - 53 * 61  # A and B, and C read and written again but for the first time
        assert found.cost.energy_j == pytest.approx(words * 16 * 1e-12 + macs * 1e-13, rel=1e-12)
        assert found.certificate.proven
    else:
        assert found.cost.energy_j < macs * (2 * 16 * 1e-12 + 1e-13)
        assert found.certificate.objective[0] <= solve_nest(p, m, objective=objective, factors="perfect").certificate.objective[0]
    assert found.certificate.bound <= found.certificate.objective[0] * (1 + 1e-12)
