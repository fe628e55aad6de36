"""Candidates of padded sizes: mappings of the real sizes, however odd those are, and better than those of their own divisors."""

import random
from contextlib import suppress
from dataclasses import replace

import pytest

from rackmodel.errors import InfeasibleError
from rackmodel.nests import solve_nest
from rackmodel.nests.constraints import NestConstraints
from rackmodel.nests.evaluate import evaluate
from rackmodel.nests.objective import parse_objective
from rackmodel.nests.problem import NestFan
from rackmodel.nests.searchers.contract import NestQuestion
from rackmodel.nests.searchers.effort import Effort
from rackmodel.nests.searchers.mapspace.fewest_cycles import fewest_cycles, least_seconds
from rackmodel.nests.searchers.mapspace.stored_tensors import keep_masks
from rackmodel.nests.searchers.ragged.padded import cut_off, padded_best, padded_sizes
from tests.nests.machines import edge3, gemm
from tests.nests.random_nests import mapping


def question(p, m, goal):
    none = NestConstraints()
    return NestQuestion(p, m, parse_objective(goal), "ceil", none, keep_masks(p, m, none), effort=Effort(60e6))


def two_fans(first, second):
    """edge3 with fans of so many above its buffer's registers and below them."""
    m = edge3()
    levels = list(m.levels)
    levels[1] = replace(levels[1], fan=NestFan(first, 1))
    levels[2] = replace(levels[2], fan=NestFan(second, 1))
    return replace(m, levels=tuple(levels))


@pytest.mark.parametrize("seed", range(6))
def test_a_padded_mapping_is_one_of_the_real_sizes(seed):
    rng = random.Random(seed)
    p, m = gemm(*(rng.randint(40, 400) for _ in range(3))), two_fans(rng.choice((6, 11, 33)), rng.choice((1, 4, 5)))
    goal = rng.choice(("energy", "latency", "edp"))
    q = question(p, m, goal)
    sizes = padded_sizes(q)
    assert all(sizes[r] >= n for r, n in p.sizes.items())
    best, cells = padded_best(q, None)
    assert cells > 0
    assert best is not None
    key, found, cost = best
    assert cut_off(found, p.sizes) == found
    assert cost == evaluate(p, m, found)
    assert key == q.objective.key(cost.energy_j, cost.latency_s)


def test_primes_fill_the_array():
    p, m = gemm(509, 1021, 1031), edge3()
    odd = solve_nest(p, m, objective="latency", factors="perfect").cost
    (_, _, cost), _ = padded_best(question(p, m, "latency"), None)
    assert cost.latency_s < odd.latency_s / 900
    assert cost.utilisation > 0.97


def test_sizes_that_fill_every_fan_are_not_padded():
    q = question(gemm(2048, 4096, 14336), edge3(), "edp")
    assert padded_sizes(q) == q.problem.sizes
    assert padded_best(q, None) == (None, 0)


@pytest.mark.parametrize("seed", range(4))
def test_no_mapping_has_fewer_cycles(seed):
    rng = random.Random(seed)
    p, m = gemm(*(rng.randint(3, 40) for _ in range(3))), two_fans(rng.choice((3, 6, 11)), rng.choice((1, 2, 5)))
    least = fewest_cycles(p, m) / m.compute.macs_per_s
    for _ in range(200):
        with suppress(InfeasibleError):
            cost = evaluate(p, m, mapping(rng, p, m, perfect=False))
            assert cost.times_s[m.compute.name] >= least * (1 - 1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_no_mapping_takes_fewer_seconds_than_its_tensors_once_through_the_outermost_port(seed):
    """12 x 5 x 7 in words of 16 bits at 8 Gbit/s: inputs of 60 + 35 words and an output of 84 are 179 * 2 ns; on ports of their own 190 ns
    and 84 * 16 bits at 4 Gbit/s, 336 ns; with the first input and the output on chip 35 words."""
    rng, m = random.Random(seed), edge3()
    outer = replace(m.levels[0], bandwidth_bits_per_s=8e9)
    shared = replace(m, levels=(outer, *m.levels[1:]))
    apart = replace(m, levels=(replace(outer, write_bandwidth_bits_per_s=4e9), *m.levels[1:]))
    small = gemm(12, 5, 7)
    assert least_seconds(small, shared) == pytest.approx(179 * 2e-9, rel=1e-12)
    assert least_seconds(small, apart) == pytest.approx(336e-9, rel=1e-12)
    assert least_seconds(small, apart, frozenset("C")) == pytest.approx(190e-9, rel=1e-12)
    assert least_seconds(small, shared, frozenset("AC")) == pytest.approx(70e-9, rel=1e-12)
    for machine in (shared, apart):
        p = gemm(*(rng.randint(3, 40) for _ in range(3)))
        least = least_seconds(p, machine)
        for _ in range(100):
            with suppress(InfeasibleError):
                assert evaluate(p, machine, mapping(rng, p, machine, perfect=False)).latency_s >= least * (1 - 1e-12)
