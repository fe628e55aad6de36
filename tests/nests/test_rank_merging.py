"""Ranks that no tensor tells apart are one, an instruction's atom on one of them or not: the optima are those of ranks kept apart."""

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest

from rackmodel.errors import InfeasibleError
from rackmodel.nests import Region, solve_nest, solve_region
from rackmodel.nests.objective import NestObjective
from rackmodel.nests.problem import NestCompute, NestFan, NestMachine
from rackmodel.nests.searchers.effort import Effort
from rackmodel.nests.searchers.mapspace.mapping_steps import Unmerge
from rackmodel.nests.searchers.mapspace.rank_merging import merged_ranks
from rackmodel.nests.searchers.regions.region_below import RegionBest
from rackmodel.nests.searchers.regions.region_search import RegionSearch
from rackmodel.nests.searchers.regions.region_space import RegionSpace
from tests import samples
from tests.nests import brute_nest
from tests.nests.machines import einsum, level
from tests.nests.random_nests import machine

AIMS = (NestObjective("energy"), NestObjective("energy", static_w=0.3), NestObjective("latency"))
GOALS = {"energy": "energy", "latency": "latency", "edp": "edp"}


def product(seed):
    """A product of split ranks, an atom on a part of some."""
    rng = random.Random(seed)
    sizes = {"m": rng.choice([2, 4]), "u": rng.choice([1, 2, 3]), "n": 2, "k": rng.choice([2, 4]), "w": rng.choice([1, 3])}
    p = einsum("product", ("C", "m u n"), [("A", "m u k w"), ("B", "k w n")], sizes)
    m = machine(rng, p, inner=1)
    return p, replace(m, compute=replace(m.compute, atom={rng.choice("mu" if sizes["u"] == 2 else "m"): 2, "k": 2}))


@pytest.mark.parametrize("seed", range(8))
def test_a_rank_with_an_atom_is_merged_and_loses_nothing(seed):
    p, m = product(seed)
    arrays = list(brute_nest.Brute(p, m).all())
    if not any(np.isfinite(energy).any() for energy, _ in arrays):
        with pytest.raises(InfeasibleError):
            solve_nest(p, m, factors="perfect")
        return
    for name, goal in GOALS.items():
        best = brute_nest.optimum(arrays, name)
        assert solve_nest(p, m, objective=goal, factors="perfect").certificate.objective == pytest.approx(best, rel=1e-9)


def test_one_part_of_a_merged_rank_has_an_atom_and_is_cut_last():
    p = einsum("product", ("C", "m u o n"), [("A", "m u o k"), ("B", "k n")], {"m": 16, "u": 4, "o": 8, "n": 2, "k": 2})
    groups = merged_ranks(p, (), {"m": 4, "o": 2, "k": 2})
    assert list(groups.values()) == [["u", "m"], ["o"], ["n"], ["k"]]
    chain = Unmerge(groups, p.sizes)
    assert chain.cut((8, 8, 2, 2))["m"] == 8
    assert chain.spread({"u__m": 2}) == {"m": 2}


def test_merged_ranks_are_merged_further_with_one_atom_among_them():
    p = einsum("product", ("C", "a b c n"), [("A", "a b c k"), ("B", "k n")], dict.fromkeys("abcnk", 2))
    among = {"a__b": ["a", "b"], "c": ["c"], "n": ["n"], "k": ["k"]}
    assert list(merged_ranks(p, (), {"k": 2}, among)) == ["a__b__c", "n", "k"]
    assert list(merged_ranks(p, (), {"b": 2}, among)) == ["a__c__b", "n", "k"]
    assert list(merged_ranks(p, (), {"b": 2, "c": 2}, among)) == ["a__b", "c", "n", "k"]


def scores(seed):
    """QK and AV of grouped heads, on instructions with tiles of their own; whether all of them are on one rank of the rows."""
    rng = random.Random(seed)
    sizes = {"q": rng.choice([2, 3]), "s": 4, "t": 2, "e": 2, "f": 2}
    parts = (
        einsum("QK", ("A", "q s t"), [("Q", "q s e"), ("K", "t e")], sizes),
        einsum("AV", ("Z", "q s f"), [("A", "q s t"), ("V", "t f")], sizes),
    )
    inner = [level("DRAM", None, 10, 1e9), level("GLB", 16 * rng.choice([30, 50]), 1, 3e9, NestFan(3, 2)), level("RF", 16 * 14, 0.1, 3e9)]
    second = rng.choice("qs") if sizes["q"] == 2 else "s"
    machines = tuple(NestMachine("m", tuple(inner), NestCompute(1e9, 5e-13, {row: 2, "t": 2})) for row in ("s", second))
    return Region(parts, machines, {"A": (0, 1)}), second == "s"


@pytest.mark.parametrize(("seed", "aim"), [(0, AIMS[0]), (1, AIMS[1]), (2, AIMS[2])])
def test_a_region_whose_ranks_have_atoms_is_as_good_merged_as_apart(seed, aim, monkeypatch):
    region, together = scores(seed)
    found = solve_region(region, objective=aim).certificate
    assert all((["q", "s"] in groups.values()) == together for groups in RegionSpace(region).groups)
    monkeypatch.setattr(RegionSpace, "_groups", lambda self: [{r: [r] for r in p.sizes} for p in region.members])
    monkeypatch.setattr("rackmodel.nests.searchers.regions.region_branch.merged_ranks", lambda p, *_: {r: [r] for r in p.sizes})
    apart = solve_region(region, objective=aim).certificate
    assert found.proven
    assert apart.proven
    assert found.objective == pytest.approx(apart.objective, rel=1e-9)


def rows_and_heads(words):
    """QK of grouped heads, whose rows and heads its reader tells apart: a tile of both may leave less of the rows than an instruction."""
    sizes = {"q": 2, "s": 4, "t": 2, "e": 2, "f": 2}
    parts = (
        einsum("QK", ("A", "q s t"), [("Q", "q s e"), ("K", "t e")], sizes),
        einsum("W", ("Y", "q f"), [("A", "q s t"), ("W", "s t f")], sizes),
    )
    inner = (level("DRAM", None, 10, 1e9), level("GLB", 16 * words, 1, 3e9, NestFan(2, 1)), level("RF", 16 * 8, 0.1, 3e9))
    return Region(parts, (NestMachine("m", inner, NestCompute(1e9, 5e-13, {"s": 2})),) * 2, {"A": (0, 1)})


@pytest.mark.parametrize(("words", "aim"), samples.some(itertools.product([11, 16], AIMS), 2))
def test_a_member_merges_an_atoms_rank_that_its_region_keeps_apart(words, aim, monkeypatch):
    region = rows_and_heads(words)
    space = RegionSpace(region)
    assert list(space.groups[0]) == ["q", "s", "t", "e"]
    branches = RegionSearch(space, aim, Effort(), RegionBest((np.inf, np.inf))).branches
    assert [list(branch.merged) for branch in branches] == [["q__s", "t", "e"], ["q", "t__s", "f"]]
    found = solve_region(region, objective=aim).certificate
    monkeypatch.setattr("rackmodel.nests.searchers.regions.region_branch.merged_ranks", lambda p, *_: {r: [r] for r in p.sizes})
    apart = solve_region(region, objective=aim).certificate
    assert found.proven
    assert apart.proven
    assert found.objective == pytest.approx(apart.objective, rel=1e-9)
