"""Every chain of every rank, joined: the optimum of any tile on machines of any depth, against brute force and drawn mappings."""

import contextlib
import random
from dataclasses import replace

import numpy as np
import pytest

from rackmodel.errors import InfeasibleError
from rackmodel.nests import solve_nest
from rackmodel.nests.constraints import NestConstraints
from rackmodel.nests.evaluate import evaluate
from rackmodel.nests.mapping import NestMapping
from rackmodel.nests.objective import parse_objective
from rackmodel.nests.problem import NestCompute, NestFan, NestLevel, NestMachine
from rackmodel.nests.searchers.chains import chain_search
from rackmodel.nests.searchers.chains.chain_search import join_chains
from rackmodel.nests.searchers.contract import NestQuestion
from rackmodel.nests.searchers.mapspace.stored_tensors import keep_masks
from rackmodel.nests.solution import Best
from tests import samples
from tests.nests import brute_any, brute_ragged
from tests.nests.machines import einsum, gemm
from tests.nests.random_nests import SHAPES, machine, mapping, problem
from tests.nests.test_joint_search import deep
from tests.nests.test_registers import SMALL, aim, clocked, registers
from tests.nests.test_searcher_contract import SEARCHERS, asked, best_by_force


def question(p, m, goal):
    none = NestConstraints()
    return NestQuestion(p, m, parse_objective(goal), "ceil", none, keep_masks(p, m, none))


def start(q):
    """Some mapping that fits, as a search knows one: divisors, by energy."""
    found = solve_nest(q.problem, q.machine, factors="perfect")
    return Best.of(q.objective, found.mapping, found.cost)


@pytest.mark.parametrize("seed", range(samples.cases(4, 40)))
def test_no_chain_order_or_vector_is_better(seed):
    rng = random.Random(seed)
    p = gemm(*rng.choice(SMALL))
    m = registers(rng, p, ((1, 1), (2, 1), (3, 2), (2, 2), (4, 1), (5, 1)))
    goal = parse_objective("energy")
    if seed % 2:
        m, goal = clocked(rng, m), aim(rng)
    best = brute_ragged.least(p, m, goal.key)
    try:
        known = start(question(p, m, goal))
    except InfeasibleError:
        return
    found = join_chains(question(p, m, goal), known)
    assert found.closed
    assert found.best[0][0] == pytest.approx(best[0], rel=1e-9)
    if not goal.energy_only:
        assert found.best[0][1] == pytest.approx(best[1], rel=1e-9), "ties, too"


def with_options(rng, p, m):
    """A linear fan, an atom, a link, a tensor that passes a level by: some of them."""
    levels, (wide, linked, by) = list(m.levels), (rng.randrange(len(m.levels)) for _ in range(3))
    if rng.random() < 0.4:
        levels[wide] = replace(levels[wide], fan=replace(levels[wide].fan, x=rng.choice((2, 3)), y=1, linear=True))
    if rng.random() < 0.3:
        levels[linked] = replace(levels[linked], fan=replace(levels[linked].fan, link_bits_per_s=rng.choice((1.0, 4.0))))
    if rng.random() < 0.5 and by:
        levels[by] = replace(levels[by], bypass=tuple(rng.sample([t.name for t in p.tensors], rng.choice((1, 2)))))
    atom = {r: rng.choice((1, 1, 2)) for r in p.sizes} if rng.random() < 0.3 else {}
    return replace(m, levels=tuple(levels), compute=replace(m.compute, atom=atom))


def without_bypassed(made, m):
    """A mapping that stores nothing where the machine passes it by."""
    levels = [
        replace(v, nodes=tuple(n for n in v.nodes if n.tensor not in level.bypass)) for v, level in zip(made.levels, m.levels, strict=True)
    ]
    return NestMapping(made.problem, made.machine, (made.levels[0], *levels[1:]))


@pytest.mark.parametrize("seed", range(samples.cases(2, 60)))
def test_figures_cost_what_evaluate_says_and_no_drawn_mapping_is_better(seed, monkeypatch):
    rng = random.Random(seed)
    p = problem(rng, limit=60, choices=(1, 2, 3, 4, 5, 7), shapes=SHAPES[:-1])
    m = with_options(rng, p, machine(rng, p, inner=1 + seed % 2, options=seed % 4 > 0))
    q = question(p, m, rng.choice(("energy", "latency", "edp", {"energy": 1.0, "latency": 3.0})))
    whole = chain_search._Join._whole

    def recounted(self, groups, first, second):
        one = np.all([tree.spread[groups[:, r]] < 0 for r, tree in enumerate(self.trees)], axis=0) & np.isfinite(first)
        for i in np.flatnonzero(one)[:2]:
            cost = evaluate(p, m, self._mapping(groups[i]))
            key = q.objective.key(cost.energy_j, cost.latency_s)
            assert first[i] == pytest.approx(key[0], rel=1e-9)
            assert not self.search.timed or second[i] == pytest.approx(key[1], rel=1e-9)
        return whole(self, groups, first, second)

    monkeypatch.setattr(chain_search._Join, "_whole", recounted)
    with contextlib.suppress(InfeasibleError):
        found = solve_nest(p, m, objective=q.objective)
        for _ in range(150):
            with contextlib.suppress(InfeasibleError):
                cost = evaluate(p, m, without_bypassed(mapping(rng, p, m, perfect=False), m))
                assert q.objective.key(cost.energy_j, cost.latency_s)[0] >= found.certificate.bound * (1 - 1e-9)


TINY = ((("C", "m"), [("A", "m k"), ("B", "k")]), (("C", "m h"), [("A", "m"), ("B", "h")]), (("C", "m"), [("A", "m"), ("B", "m")]))
GOALS = [parse_objective(one) for one in ("energy", "latency", "edp", {"energy": 1.0, "latency": 3.0})]


@pytest.mark.parametrize("seed", range(samples.cases(12, 120)))
def test_every_mapping_of_a_tiny_einsum_on_a_deep_machine(seed, monkeypatch):
    rng = random.Random(seed)
    p = problem(rng, choices=(1, 2, 3, 4, 5), shapes=TINY)
    m = machine(rng, p, inner=1 + seed % 3, options=seed % 4 > 0)
    names = [t.name for t in p.tensors]
    m = replace(m, levels=tuple(replace(v, bypass=tuple(rng.sample(names, rng.choice((1, 2, 2, 3))))) for v in m.levels))
    m = with_options(rng, p, m)
    (mask,) = keep_masks(p, m, NestConstraints())
    best = brute_any.least(p, m, mask, [goal.key for goal in GOALS], monkeypatch)
    for goal, key in zip(GOALS, best or (), strict=bool(best)):
        try:
            found = solve_nest(p, m, objective=goal).certificate
        except InfeasibleError:
            assert key[0] == float("inf")
            continue
        assert found.bound <= key[0] * (1 + 1e-9)
        assert found.objective[0] >= key[0] * (1 - 1e-9)
        assert not found.proven or found.objective[0] <= key[0] * (1 + 1e-9)


@pytest.mark.parametrize("stored", [False, True])
def test_parts_over_a_level_that_keeps_nothing_may_be_ragged(stored):
    p = einsum("scale", ("C", "m"), [("A", "m"), ("B", "m")], {"m": 9})
    passes = NestLevel("passes", None, 1.0, 1.0, bypass=("A", "B", "C"), fan=NestFan(5))
    inner = (NestLevel("registers", 160.0, 1.0, 1.0),) if stored else ()
    m = NestMachine("passing", (NestLevel("memory", None, 1.0, 1.0), passes, *inner), NestCompute(1.0, 1.0))
    found = solve_nest(p, m, objective="latency")
    assert found.certificate.proven
    assert found.cost.latency_s == 2.0
    five = NestMapping.from_dict(found.mapping.to_dict() | {"levels": [v | {"x": {}} for v in found.mapping.to_dict()["levels"]]})
    dealt = replace(five, levels=(*five.levels[:1], replace(five.levels[1], x={"m": 5}), *five.levels[2:]))
    assert evaluate(p, m, dealt).latency_s == 2.0


@samples.audited
def test_a_small_product_on_four_memories_is_proven():
    p, m = gemm(20, 24, 32), deep()
    found = solve_nest(p, m)
    assert found.certificate.proven
    assert found.cost.energy_j == pytest.approx(2.393344e-7, rel=1e-9)
    assert found.cost == evaluate(p, m, found.mapping)


@pytest.mark.parametrize("name", ["ceil dp", "ceil lists"])
def test_a_tile_of_fewer_parts_than_are_laid_out_is_found(name):
    """5 x 5 x 2 on 2 x 2 units: three of four at work, of a tile of 3."""
    searcher = next(one for one in SEARCHERS if one.name == name)
    q = asked(next(one for one in SEARCHERS if one.name == "ceil dp"), 3)
    found = searcher.solve(q)
    assert found.certificate.proven
    assert found.certificate.objective == pytest.approx(best_by_force(q), rel=1e-9)
