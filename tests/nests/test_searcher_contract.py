"""What every searcher must do, on the same small problems; a new searcher is added to the table and passes this.

It agrees with evaluate() and with brute force, gives the same answer twice, keeps its certificate consistent, says what it
needs and has where nothing fits, and meets no feature that it does not list.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from math import inf, isfinite, prod
from typing import Any

import numpy as np
import pytest

from rackmodel.errors import InfeasibleError, RackmodelError
from rackmodel.nests import solve_nest
from rackmodel.nests.constraints import FixedTile, NestConstraints
from rackmodel.nests.evaluate import evaluate
from rackmodel.nests.objective import NestObjective
from rackmodel.nests.problem import NestCompute, NestFan, NestLevel, NestMachine, NestProblem
from rackmodel.nests.searchers.contract import FEATURES, Feature, NestQuestion, Searcher, features, searcher_for
from rackmodel.nests.searchers.mapspace.stored_tensors import keep_masks
from rackmodel.nests.searchers.table import SEARCHERS, SOLVERS
from tests.nests import brute_home, brute_nest
from tests.nests.machines import einsum, gemm
from tests.nests.random_nests import SHAPES
from tests.nests.random_nests import problem as random_problem
from tests.nests.test_nest_ceil import brute as brute_any_tile

F = Feature
NAMES = [s.name for s in SEARCHERS]
every_searcher = pytest.mark.parametrize("searcher", SEARCHERS, ids=NAMES)


def question(p: NestProblem, m: NestMachine, **said: Any) -> NestQuestion:
    """A question with everything unsaid left plain."""
    limits = said.pop("constraints", NestConstraints())
    goal = said.pop("objective", NestObjective("energy"))
    return NestQuestion(p, m, goal, said.pop("factors", "perfect"), limits, keep_masks(p, m, limits), **said)


def two_memories(rng: random.Random, p: NestProblem, *, above: bool) -> NestMachine:
    """A memory and a buffer with unequal ports and tight room; a fan between them (cores) or under the buffer (an array)."""
    words = sum(prod(p.sizes[r] for r in t.ranks) for t in p.tensors)
    fan, room = NestFan(rng.choice([1, 2, 3]), rng.choice([1, 2])), 16 * max(6, int(words * rng.uniform(0.3, 0.9)))
    memory = NestLevel("memory", None, 8.0, 5.0, rng.choice([0.5, 2.0, inf]), rng.choice([None, 1.0]), fan=fan if above else NestFan())
    bits = {p.output.name: 32} if rng.random() < 0.3 else {}
    buffer = NestLevel("buffer", room, 1.0, 2.0, rng.choice([2.0, 8.0]), None, bits, rng.choice([1, 2]), fan=NestFan() if above else fan)
    return NestMachine("small", (memory, buffer), NestCompute(rng.choice([0.02, 5.0]), 0.5))


def asked(searcher: Searcher, seed: int) -> NestQuestion:
    """A small question that the searcher supports."""
    rng = random.Random(seed)
    perfect = F.PERFECT in searcher.supports
    shapes = SHAPES if F.SUM in searcher.supports and perfect else SHAPES[:6]
    choices = (1, 2, 3, 4, 6) if perfect else (1, 2, 3, 4, 5)
    p = random_problem(rng, 6, 130, shapes, choices)
    at_home = F.HOME in searcher.supports
    home = frozenset({p.tensors[seed % 3].name}) if at_home else frozenset()
    time = F.TIME in searcher.supports
    goal = NestObjective(("energy", "latency", "edp")[seed % 3] if time else "energy")
    m = two_memories(rng, p, above=at_home)
    return question(p, m, objective=goal, factors="perfect" if perfect else "ceil", home=home)


def best_by_force(q: NestQuestion) -> tuple[float, float] | None:
    """(primary, tie-break) of every mapping, by formulas of the tests' own."""
    perfect = q.factors == "perfect"
    if q.home:
        arrays = brute_home.BruteHome(q.problem, q.machine, q.home, perfect).all()
    elif perfect:
        arrays = brute_nest.Brute(q.problem, q.machine).all()
    else:
        arrays = brute_any_tile(q.problem, q.machine)
    found: tuple[float, float] | None = brute_nest.optimum(arrays, q.objective.name)
    return found


@every_searcher
@pytest.mark.parametrize("seed", range(9))
def test_agrees_with_brute_force_and_with_the_evaluation(searcher: Searcher, seed: int) -> None:
    q = asked(searcher, seed)
    assert features(q) <= searcher.supports
    best = best_by_force(q)
    if best is None:
        with pytest.raises(InfeasibleError):
            searcher.solve(q)
        return
    found = searcher.solve(q)
    assert found.cost == evaluate(q.problem, q.machine, found.mapping, q.resident, q.home)
    assert found.certificate.objective == pytest.approx(q.objective.key(found.cost.energy_j, found.cost.latency_s), rel=1e-12)
    assert found.certificate.bound <= best[0] * (1 + 1e-9)
    # a searcher that lists tiles may leave a gap, but never says that it is proven where it is not
    if found.certificate.proven:
        assert found.certificate.objective[0] == pytest.approx(best[0], rel=1e-9)
    if searcher.name != "ceil dp":
        assert found.certificate.proven
    if searcher.name not in ("ceil dp", "cpsat"):  # cpsat has no tie-break
        assert found.certificate.ties
    if found.certificate.proven and found.certificate.ties:
        assert found.certificate.objective[1] == pytest.approx(best[1], rel=1e-9)


@every_searcher
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_same_question_gives_the_same_answer(searcher: Searcher, seed: int) -> None:
    q = asked(searcher, seed)
    try:
        one, two = searcher.solve(q), searcher.solve(q)
    except InfeasibleError:
        return
    assert one == two


@every_searcher
@pytest.mark.parametrize("seed", range(4))
def test_the_certificate_is_consistent(searcher: Searcher, seed: int) -> None:
    q = asked(searcher, seed)
    roomy = replace(q.machine, levels=(q.machine.levels[0], replace(q.machine.levels[1], capacity_bits=None)))
    sheet = searcher.solve(replace(q, machine=roomy)).certificate
    assert sheet.solver == searcher.name
    assert 0 <= sheet.bound <= sheet.objective[0] * (1 + 1e-12)
    assert isfinite(sheet.gap)
    assert sheet.gap == pytest.approx(1 - sheet.bound / sheet.objective[0], abs=1e-9)
    assert sheet.proven == (sheet.gap <= 1e-9)
    assert sheet.space >= 1
    assert sheet.evaluated >= 0
    assert all(n >= 0 for n in sheet.pruned.values())


@every_searcher
def test_what_does_not_fit_says_what_it_needs_and_has(searcher: Searcher) -> None:
    q = asked(searcher, 1)
    small = replace(q.machine, levels=(q.machine.levels[0], replace(q.machine.levels[1], capacity_bits=20.0)))
    with pytest.raises(InfeasibleError, match="buffer") as caught:
        searcher.solve(replace(q, machine=small))
    assert caught.value.have == 20.0
    assert caught.value.need > 20.0
    assert caught.value.unit == "bits"
    assert caught.value.change


# -- features: one question for each, as plain as it can be
P, SMALL = (
    gemm(4, 4, 4),
    NestMachine("small", (NestLevel("memory", None, 8.0, 5.0, 2.0), NestLevel("buffer", 1e6, 1.0, 1.0)), NestCompute(1.0)),
)


def machine(memory: dict[str, Any] | None = None, buffer: dict[str, Any] | None = None, **compute: Any) -> NestMachine:
    """SMALL with other values."""
    levels = (replace(SMALL.levels[0], **memory or {}), replace(SMALL.levels[1], **buffer or {}))
    return replace(SMALL, levels=levels, compute=replace(SMALL.compute, **compute))


CORES = machine({"fan": NestFan(2, 2)})
EXAMPLES: dict[Feature, Callable[[str], NestQuestion]] = {
    F.PERFECT: lambda f: question(P, SMALL),
    F.CEIL: lambda f: question(P, SMALL, factors="ceil"),
    F.TIME: lambda f: question(P, SMALL, objective=NestObjective("latency"), factors=f),
    F.RESIDENT: lambda f: question(P, SMALL, resident=frozenset({"A"}), factors=f),
    F.HOME: lambda f: question(P, CORES, home=frozenset({"A"}), factors=f),
    F.FIXED_TILES: lambda f: question(P, SMALL, constraints=NestConstraints(tiles=(FixedTile("buffer", "k", 2),)), factors=f),
    F.FREE_STORE: lambda f: question(P, machine(buffer={"keep": ("A", "B")}), factors=f),
    F.BYPASS: lambda f: question(P, machine(buffer={"bypass": ("A",)}), factors=f),
    F.SUM: lambda f: question(
        einsum("conv", ("O", "f p"), [("I", "c p+r"), ("W", "f c r")], {"f": 2, "c": 2, "p": 4, "r": 2}), SMALL, factors=f
    ),
    F.ATOM: lambda f: question(P, machine(atom={"m": 2}), factors=f),
    F.PADDED_ATOM: lambda f: question(P, machine(atom={"m": 3}), factors=f),
    F.LINEAR: lambda f: question(P, machine(buffer={"fan": NestFan(3, linear=True)}), factors=f),
    F.WIDTH: lambda f: question(P, machine(buffer={"fan": NestFan(4, multicast_width=2)}), factors=f),
    F.HOPS: lambda f: question(P, machine(buffer={"fan": NestFan(2, link_bits_per_s=0.1)}), factors=f),
    F.ENTRY_FAN: lambda f: question(P, CORES, factors=f),
    F.COMPUTE_FAN: lambda f: question(P, machine(buffer={"fan": NestFan(2, 2)}), factors=f),
    F.ONE_MEMORY: lambda f: question(P, replace(SMALL, levels=SMALL.levels[:1]), factors=f),
    F.DEEP: lambda f: question(P, replace(SMALL, levels=(*SMALL.levels, NestLevel("register", 1e4, 0.1, 0.1))), factors=f),
    F.MANY: lambda f: question(
        einsum("three", ("O", "m n"), [("A", "m k"), ("B", "k n"), ("D", "m")], {"m": 2, "k": 2, "n": 2}), SMALL, factors=f
    ),
}


def test_every_feature_has_its_example_and_is_found_in_it() -> None:
    assert set(EXAMPLES) == set(FEATURES) == set(Feature)
    for feature, make in EXAMPLES.items():
        assert feature in features(make("ceil" if feature is F.CEIL else "perfect"))


@every_searcher
@pytest.mark.parametrize("feature", list(Feature), ids=lambda f: f.name)
def test_a_listed_feature_is_searched_and_another_is_refused_by_name(searcher: Searcher, feature: Feature) -> None:
    factors = "perfect" if F.PERFECT in searcher.supports else "ceil"
    q = EXAMPLES[feature](factors)
    if features(q) <= searcher.supports:
        found = searcher_for(q, [searcher]).solve(q)
        assert found.cost == evaluate(q.problem, q.machine, found.mapping, q.resident, q.home)
        assert found.certificate.objective == pytest.approx(q.objective.key(found.cost.energy_j, found.cost.latency_s), rel=1e-12)
        return
    with pytest.raises(RackmodelError) as caught:
        searcher_for(q, [searcher])
    for missing in features(q) - searcher.supports:
        assert missing.what in str(caught.value)
        assert missing.instead in str(caught.value)


@pytest.mark.parametrize("feature", [f for f in Feature if f is not F.PADDED_ATOM], ids=lambda f: f.name)
def test_searchers_agree_wherever_two_support_a_question(feature: Feature) -> None:
    q = EXAMPLES[feature]("perfect")
    both = [s for s in SEARCHERS if features(q) <= s.supports]
    keys = [s.solve(q).certificate.objective[0] for s in both]
    assert keys == pytest.approx([keys[0]] * len(keys), rel=1e-9) if keys else feature in (F.CEIL,)


def test_the_first_that_supports_a_question_is_asked_exact_ones_first() -> None:
    assert NAMES == ["dp", "ceil lists", "ceil dp", "home lists", "cpsat"]
    assert SOLVERS == ("auto", "dp", "cpsat")
    assert searcher_for(EXAMPLES[F.CEIL]("ceil"), SEARCHERS).name == "ceil lists"
    assert searcher_for(EXAMPLES[F.DEEP]("ceil"), SEARCHERS).name == "ceil dp"
    assert searcher_for(EXAMPLES[F.HOPS]("ceil"), SEARCHERS).name == "ceil dp"
    assert searcher_for(EXAMPLES[F.HOME]("ceil"), SEARCHERS).name == "home lists"
    assert searcher_for(EXAMPLES[F.DEEP]("perfect"), SEARCHERS, "cpsat").name == "cpsat"


def test_a_refusal_names_every_least_change_and_the_other_solver() -> None:
    with pytest.raises(RackmodelError, match=r"solver cpsat: ceil factors cannot be searched; use factors perfect, or solver auto or dp"):
        solve_nest(P, SMALL, solver="cpsat")
    both = question(P, CORES, home=frozenset({"A"}), resident=frozenset({"B"}))
    with pytest.raises(RackmodelError, match="cannot be searched together; use no tensors at home, or no resident tensors"):
        searcher_for(both, SEARCHERS)


def test_finite_links_under_a_buffer_are_counted_in_ceil_searches() -> None:
    """A link slower than the compute: the searched latency is the evaluated one, no better than any mapping's."""
    m = machine(buffer={"fan": NestFan(2, 2, link_bits_per_s=3.0)}, macs_per_s=100.0)
    found = solve_nest(P, m, objective="latency", factors="ceil")
    perfect = solve_nest(P, m, objective="latency", factors="perfect")
    assert found.cost.latency_s == np.max(list(found.cost.times_s.values()))
    assert found.cost.times_s["buffer link"] > found.cost.times_s["compute"]
    assert found.cost.latency_s <= perfect.cost.latency_s * (1 + 1e-12)
