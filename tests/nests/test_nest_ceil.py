"""Ceil factors: solved cases, brute force over tiles of any size, and never worse than perfect factors."""

import random
from dataclasses import replace
from itertools import permutations
from math import prod

import numpy as np
import pytest

from rackmodel.errors import InfeasibleError
from rackmodel.nests import solve_nest
from rackmodel.nests.constraints import NestConstraints
from rackmodel.nests.evaluate import evaluate
from rackmodel.nests.objective import NestObjective, parse_objective
from rackmodel.nests.problem import NestCompute, NestFan, NestLevel, NestMachine
from rackmodel.nests.searchers.contract import NestQuestion, features
from rackmodel.nests.searchers.mapspace.stored_tensors import keep_masks
from rackmodel.nests.searchers.two_level import ceil_two_level, pareto_tiles
from rackmodel.nests.searchers.two_level.ceil_two_level import SEARCHER
from tests import samples
from tests.nests import brute_any
from tests.nests.brute_nest import optimum
from tests.nests.machines import einsum, gemm, glb_pe, tiny_cb
from tests.nests.random_nests import SHAPES, machine, problem


@pytest.mark.parametrize(
    ("objective", "energy", "latency"),
    [("edp", 1.5600704e-5, 6.3488e-4), ("energy", 1.5600704e-5, 6.3488e-4), ("latency", 2.0462528e-5, 6.1976e-4)],
)
def test_ragged_gemm_on_a_tiny_machine(objective, energy, latency):
    cost = solve_nest(gemm(127, 64, 61), tiny_cb(), objective=objective).cost
    assert (cost.energy_j, cost.latency_s) == pytest.approx((energy, latency), rel=1e-6)


def test_nearly_prime_gemm_needs_ceil():
    ceil = solve_nest(gemm(2039, 4093, 14327), glb_pe())
    perfect = solve_nest(gemm(2039, 4093, 14327), glb_pe(), factors="perfect")
    assert (ceil.cost.energy_j, ceil.cost.latency_s) == pytest.approx((0.79929755, 0.11691648), rel=1e-7)
    assert perfect.cost.energy_j == pytest.approx(24.93, rel=1e-3)
    assert ceil.certificate.proven


def test_ceil_equals_perfect_on_a_divisible_gemm():
    cost = solve_nest(gemm(2048, 4096, 14336), glb_pe()).cost
    assert cost.energy_j == pytest.approx(0.803561537536, rel=1e-12)


def nested(size, tiles):
    """Number of tiles after each cut of a chain, ragged: the extents themselves, one by one."""
    extents, counts = [size], []
    for t in tiles:
        extents = [min(t, e - k) for e in extents for k in range(0, e, t)]
        counts.append(len(extents))
    return counts


def brute(p, m, spatial=None):
    """(energy, latency) arrays of every order, spatial vector and chain of arbitrary tiles; one buffer. spatial: ranks X may cut."""
    ranks, sizes = list(p.sizes), list(p.sizes.values())
    fan, (memory, buffer) = m.levels[1].fan, m.levels

    def side(limit, allowed=ranks):
        found = [()]
        for r, n in p.sizes.items():
            found = [(*v, d) for v in found for d in range(1, n + 1) if prod(v) * d <= limit and (d == 1 or r in allowed)]
        return found

    for s in sorted({tuple(a * b for a, b in zip(x, y, strict=False)) for x in side(fan.x, spatial or ranks) for y in side(fan.y)}):
        chains = []
        for n, parts in zip(sizes, s, strict=False):
            rows = [(a, b, c, *nested(n, (a, b, c, parts))) for a in range(1, n + 1) for b in range(1, a + 1) for c in range(1, b + 1)]
            chains.append(np.array(rows, dtype=float).reshape(-1, 7))
        if any(len(c) == 0 for c in chains):
            continue
        for order in permutations(p.tensors):
            yield costs(p, m, memory, buffer, ranks, order, chains)


def costs(p, m, memory, buffer, ranks, order, chains):
    dims = len(ranks)

    def column(r, k):
        return chains[r][:, k].reshape([-1 if i == r else 1 for i in range(dims)])

    energy, used = p.macs * m.compute.j_per_mac, 0.0
    ports = [[0.0, 0.0], [0.0, 0.0]]
    for j, t in enumerate(order):
        lacks = [r for r, n in enumerate(ranks) if n not in t.ranks]
        whole = prod(p.sizes[r] for r in t.ranks)
        fill = whole * prod((column(r, 3 + j) for r in lacks), start=np.ones(1))
        feed = whole * prod((column(r, 6) for r in lacks), start=np.ones(1))
        b0, b1 = memory.bits(t), buffer.bits(t)
        used = used + b1 * buffer.buffers * prod((column(r, j) for r, n in enumerate(ranks) if n in t.ranks), start=np.ones(1))
        if t.is_output:
            moved = [
                (0, 1, fill * b0),
                (0, 0, (fill - whole) * b0),
                (1, 0, fill * b1),
                (1, 1, (fill - whole) * b1),
                (1, 1, feed * b1),
                (1, 0, (feed - whole) * b1),
            ]
        else:
            moved = [(0, 0, fill * b0), (1, 1, fill * b1), (1, 0, feed * b1)]
        for level, kind, bits in moved:
            v = m.levels[level]
            ports[level][kind] = ports[level][kind] + bits
            energy = energy + bits * (v.write_j_per_bit if kind else v.read_j_per_bit)
    time = prod((column(r, 6) for r in range(dims)), start=np.ones(1)) / m.compute.macs_per_s
    for v, (reads, writes) in zip(m.levels, ports, strict=False):
        if v.write_bandwidth_bits_per_s is None:
            time = np.maximum(time, (reads + writes) / v.bandwidth_bits_per_s)
        else:
            time = np.maximum(time, np.maximum(reads / v.bandwidth_bits_per_s, writes / v.write_bandwidth_bits_per_s))
    shape = [len(c) for c in chains]
    legal = np.broadcast_to(used <= (buffer.capacity_bits or np.inf), shape)
    return (np.where(legal, np.broadcast_to(energy, shape), np.inf), np.where(legal, np.broadcast_to(time, shape), np.inf))


@pytest.mark.parametrize("seed", samples.some(range(80), 2))
def test_two_level_ceil_equals_brute_force_over_any_tile(seed):
    rng = random.Random(seed)
    shapes = [s for s in SHAPES if "+" not in str(s)]
    while True:
        p = problem(rng, shapes=shapes, choices=(1, 2, 3, 4, 5, 6, 7))
        m = machine(rng, p, inner=1)
        if prod(n * (n + 1) * (n + 2) / 6 for n in p.sizes.values()) > 60_000 or m.levels[1].fan.size > 8:
            continue
        question = NestQuestion(p, m, NestObjective("energy"), "ceil", NestConstraints(), keep_masks(p, m, NestConstraints()))
        if features(question) <= SEARCHER.supports:
            break
    arrays = list(brute(p, m))
    for objective in ("energy", "latency", "edp"):
        best = optimum(arrays, objective)
        if best is None:
            with pytest.raises(InfeasibleError):
                solve_nest(p, m, objective=objective)
            continue
        found = solve_nest(p, m, objective=objective)
        assert found.certificate.objective == pytest.approx(best, rel=1e-9), (objective, p, m)
        assert evaluate(p, m, found.mapping) == found.cost


CUT_TWICE = {  # 18 is cut to 9 above the first node of the buffer and to 5 above the second: 10 groups of 2, not 11
    "both nodes have k": einsum("twice", ("C", "m"), [("A", "m k"), ("B", "k")], {"m": 12, "k": 18}),
    "the second node has k": einsum("twice", ("C", "m"), [("A", "m"), ("B", "k")], {"m": 12, "k": 18}),
}


def narrow():
    """B and C are wide in the buffer, so that 5 of k fit and 6 do not; C is fetched again with every tile of k."""
    memory = NestLevel("M", None, 100.0, 100.0, 1.05e11, bits_per_tensor={"A": 1, "B": 640, "C": 10})
    buffer = NestLevel("B", 4000, 1.0, 1.0, bits_per_tensor={"A": 1, "B": 640, "C": 640}, fan=NestFan(2))
    return NestMachine("narrow", (memory, buffer), NestCompute(1e9)), NestConstraints(spatial={("B", "X"): ("k",)})


@pytest.mark.parametrize("name", CUT_TWICE)
@pytest.mark.parametrize("objective", ["energy", "latency", "edp"])
def test_a_rank_cut_twice_at_one_level_is_found(name, objective):
    p, (m, constraints) = CUT_TWICE[name], narrow()
    found = solve_nest(p, m, objective=objective, constraints=constraints)
    assert found.certificate.objective == pytest.approx(optimum(brute(p, m, {"k"}), objective), rel=1e-12)
    assert found.certificate.proven
    assert [node.tile["k"] for node in found.mapping.levels[1].nodes] == [9, 5, 5]


def test_chains_of_two_cuts_that_are_too_many_leave_a_gap(monkeypatch):
    p, (m, constraints) = CUT_TWICE["both nodes have k"], narrow()
    least = solve_nest(p, m, constraints=constraints).certificate
    monkeypatch.setattr(pareto_tiles, "LONGEST", 0)
    short = solve_nest(p, m, constraints=constraints).certificate
    assert short.bound <= least.objective[0] < short.objective[0]
    assert 0 < short.gap < 0.05
    assert evaluate(p, m, solve_nest(p, m, constraints=constraints).mapping).energy_j == short.objective[0]


def test_vectors_that_are_left_out_leave_a_gap(monkeypatch):
    """9 cut to 5 for 4 parts are 3 groups, for 3 parts 4: 4 is no ceil(9 / n)."""
    p, m = gemm(9, 9, 2), tiny_cb()
    memory, buffer = m.levels
    m = replace(m, levels=(memory, replace(buffer, capacity_bits=30 * 16, fan=NestFan(4))))
    for objective in ("energy", "latency", "edp"):
        least = solve_nest(p, m, objective=objective).certificate
        with monkeypatch.context() as few:
            few.setattr(ceil_two_level, "VECTORS", 0)
            short = solve_nest(p, m, objective=objective).certificate
        assert least.proven
        assert short.bound <= least.objective[0] <= short.objective[0]


@pytest.mark.parametrize("seed", [0, 3, 4, 97, 102])
def test_with_atoms_every_tile_is_looked_at(seed, monkeypatch):
    """Tiles may lie between whole atoms, none is smaller than one."""
    rng = random.Random(seed)
    p = gemm(rng.randint(5, 9), rng.randint(1, 3), rng.randint(1, 3))
    words = sum(prod(p.sizes[r] for r in t.ranks) for t in p.tensors)
    room = 16 * rng.randint(6, max(7, words))
    buffer = NestLevel(
        "buffer", room, rng.choice((0.0, 1.0)), 1.0, rng.choice((2.0, 20.0)), fan=NestFan(rng.choice((2, 3)), rng.choice((1, 2)))
    )
    memory = NestLevel("memory", None, rng.choice((1.0, 5.0)), 1.0, rng.choice((1.0, 8.0)))
    m = NestMachine("atoms", (memory, buffer), NestCompute(0.1, 0.5, {"m": rng.choice((2, 3, 4))}))
    goals = [parse_objective(name) for name in ("energy", "latency", "edp")]
    best = brute_any.least(p, m, keep_masks(p, m, NestConstraints())[0], [goal.key for goal in goals], monkeypatch)
    for goal, key in zip(goals, best, strict=True):
        try:
            found = solve_nest(p, m, objective=goal).certificate
        except InfeasibleError:
            assert key[0] == np.inf
            continue
        assert found.proven
        assert found.objective[0] == pytest.approx(key[0], rel=1e-9)
