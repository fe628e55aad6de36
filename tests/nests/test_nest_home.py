"""Tensors at home in the cores: the search equals brute force, and the evaluation a counter that walks cores and links."""

import random
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from rackmodel.errors import InfeasibleError, RackmodelError
from rackmodel.nests import solve_nest
from rackmodel.nests.constraints import FixedTile, NestConstraints
from rackmodel.nests.evaluate import evaluate
from rackmodel.nests.objective import NestObjective
from rackmodel.nests.problem import NestCompute, NestFan, NestLevel, NestMachine
from rackmodel.nests.searchers.contract import NestQuestion
from rackmodel.nests.searchers.homes import home as home_search
from rackmodel.nests.searchers.homes import home_tiles, home_vectors
from rackmodel.nests.searchers.mapspace.stored_tensors import keep_masks
from tests import samples
from tests.nests.brute_home import BruteHome, estimate
from tests.nests.brute_nest import optimum
from tests.nests.loop_walker import Walker
from tests.nests.machines import edge3, einsum, gemm, tiny
from tests.nests.random_nests import SHAPES, mapping, problem

OBJECTIVES = {"energy": "energy", "latency": "latency", "edp": "edp", "sum": {"energy": 0.3, "latency": 2.0}}


def mesh(rng, p, home=()):
    """A memory, a fan with hops and links, cores of tight capacity."""
    words = sum(t.tile_words(p.sizes) for t in p.tensors)
    fan = NestFan(
        rng.choice([1, 2, 3, 4]), rng.choice([1, 2, 3]), False, None, None, rng.choice([0, 0.7, 3]), rng.choice([0.5, 4, float("inf")])
    )
    edge = NestLevel("edge", None, rng.choice([3.0, 8.0]), 5.0, rng.choice([0.5, 4.0]), rng.choice([None, 1.0]), fan=fan)
    room = rng.choice([None, 16 * max(4, int(words * rng.uniform(0.15, 0.8)))])
    bits = {p.output.name: 32} if rng.random() < 0.3 else {}
    core = NestLevel(
        "core", room, 1.0, rng.choice([1.0, 2.0]), rng.choice([2.0, 8.0]), rng.choice([None, 3.0]), bits, rng.choice([1, 1, 2])
    )
    return NestMachine("mesh", (edge, core), NestCompute(rng.choice([0.02, 0.2, 5.0]), 0.5))


def some(rng, p):
    """A random choice of tensors at home, at least one."""
    return frozenset(t.name for t in p.tensors if rng.random() < 0.6) or frozenset({p.tensors[0].name})


@pytest.mark.parametrize(("perfect", "seed"), [(kind, seed) for kind in (True, False) for seed in range(samples.cases(6, 12))])
def test_search_equals_brute_force_with_tensors_at_home(perfect, seed, monkeypatch):
    monkeypatch.setattr(home_search, "SOON", (1, 3, 1000)[seed % 3])  # so that small problems meet the second bound
    monkeypatch.setattr(home_tiles, "RUNS", 2)
    monkeypatch.setattr(home_vectors, "FEW", (32, 1)[seed % 2])  # so that small fans have vectors that are not listed
    rng, done = random.Random(seed), 0
    while done < 4:
        p = problem(rng, biggest=12 if perfect else 6, limit=400, shapes=SHAPES[:6], choices=(1, 2, 3, 4, 5, 6, 8, 12))
        m = mesh(rng, p)
        if estimate(p, m, perfect) > 3e5:
            continue
        home, done = some(rng, p), done + 1
        arrays = list(BruteHome(p, m, home, perfect).all())
        factors = "perfect" if perfect else "ceil"
        if not any(np.isfinite(e).any() for e, _ in arrays):
            with pytest.raises(InfeasibleError):
                solve_nest(p, m, factors=factors, home=tuple(home))
            continue
        for name, objective in OBJECTIVES.items():
            primary, tie = optimum(arrays, name)
            sheet = solve_nest(p, m, objective=objective, factors=factors, home=tuple(home)).certificate
            assert sheet.objective == pytest.approx((primary, tie), rel=1e-9), (name, p, m, home)
            assert sheet.bound <= sheet.objective[0] * (1 + 1e-12)


def test_parts_at_work_may_be_fewer_than_are_laid_out():
    """Three rows on 2 x 2 cores, five on 3 x 2: one idles. Until 27 November 2026 that was not looked at: "proven" at twice the time."""
    level, fan = NestLevel("edge", None, 1.0, 1.0, 1e6, None), NestFan(2, 2)
    m = NestMachine("mesh", (replace(level, fan=fan), NestLevel("core", None, 1.0, 1.0, 1000.0, None)), NestCompute(1.0, 0.5))
    for rows, cores in ((3, (2, 2)), (5, (3, 2)), (997, (40, 30))):
        wide = replace(m, levels=(replace(m.levels[0], fan=NestFan(*cores)), m.levels[1]))
        found = solve_nest(gemm(rows, 1, 1), wide, objective="latency", factors="ceil", home=("B",))
        assert found.cost.times_s[wide.compute.name] == pytest.approx(1.0)


def walked(p, m, chosen, home):
    """Independent count: (reads, writes, hops) by tensor at home, and words over the busiest one-way link of its cores.

    Every word has an owner among the cores that ever work with it; all deals of owners (rotations) are averaged. The cores
    of a word stand in a line: what core a sends to core b crosses every link between, once for all of them.
    """
    walker, found = Walker(p, m, chosen), {}
    for t in (t for t in p.tensors if t.name in home):
        events = defaultdict(list)  # (time, word) -> cores
        for path, time, ranges in walker.moves[1, t.name]:
            words = [()]
            for r in t.ranks:
                words = [(*w, i) for w in words for i in range(*ranges[r])]
            for w in words:
                events[time, w].append(path[0])
        cores = defaultdict(set)
        for (_, w), there in events.items():
            cores[w] |= set(there)
        line = {w: sorted(c) for w, c in cores.items()}
        q = max(len(c) for c in line.values())
        number = defaultdict(dict)
        for w in sorted(line):
            number[tuple(line[w])][w] = len(number[tuple(line[w])])
        total, links = np.zeros(3), defaultdict(float)
        for turn in range(q):
            seen = set()
            for (_, w), there in events.items():
                owner = line[w][(number[tuple(line[w])][w] + turn) % q]
                away = [c for c in there if c != owner]
                total += np.array([len(there), 1, len(away)] if t.is_output else [1, len(away), len(away)]) * (q > 1)
                total[0] += (q > 1) * t.is_output * (w in seen)
                seen.add(w)
                at = line[w].index(owner)
                for i in range(q - 1):  # the link between neighbours i and i + 1
                    right = any(line[w].index(c) > i for c in away) if not t.is_output else any(line[w].index(c) <= i for c in away)
                    if (at <= i) != t.is_output and right:
                        links[tuple(line[w]), i] += 1
        found[t.name] = (*(total / q), max(links.values(), default=0.0) / q, q)
    return found


@pytest.mark.parametrize("perfect", [True, False])
@pytest.mark.parametrize("seed", range(60))
def test_traffic_of_tensors_at_home_equals_the_walked_cores(seed, perfect):
    rng = random.Random(seed)
    p = problem(rng, limit=150, shapes=SHAPES[:6], choices=(1, 2, 3, 4, 5, 6))
    m = mesh(rng, p)
    m = replace(m, levels=(m.levels[0], replace(m.levels[1], capacity_bits=None)))
    home, chosen = some(rng, p), mapping(rng, p, m, perfect)
    cost, plain = evaluate(p, m, chosen, home=home), Walker(p, m, chosen)
    counted, (streamed, _) = walked(p, m, chosen, home), plain.traffic()
    for t in p.tensors:
        bits = m.levels[1].bits(t)
        at = {a.level: (a.read_bits / bits, a.write_bits / bits) for a in cost.accesses if a.tensor == t.name}
        if t.name not in home:
            assert at["core"] == pytest.approx(tuple(streamed[1, t.name]))
            continue
        assert "edge" not in at
        alone = defaultdict(lambda: [0.0, 0.0])  # what the compute moves
        plain._pair(t, 1, 2, lambda level, _, path, kind, n, to=alone: to[level].__setitem__(kind, to[level][kind] + n))
        reads, writes, hops, _, _ = counted[t.name]
        assert at["core"] == pytest.approx((alone[1][0] + reads, alone[1][1] + writes))
        assert cost.hop_bits["edge"][t.name] / bits == pytest.approx(hops)


@pytest.mark.parametrize("out", [False, True])
@pytest.mark.parametrize("q", [2, 3, 4, 6])
def test_the_link_takes_the_words_over_the_busiest_link_of_a_line_of_cores(q, out):
    """12 words with q cores each in a line, owners dealt evenly: 12 (q - 1) / q words over the busiest one-way link."""
    p = einsum("line", ("C", "m"), [("A", "m k"), ("B", "k")], {"m": 12, "k": q}) if out else gemm(q, 4, 3)
    name, split = ("C", "k") if out else ("B", "m")
    fan = NestFan(q, 1, link_bits_per_s=16.0)
    m = NestMachine("line", (NestLevel("edge", fan=fan), NestLevel("core")), NestCompute(1.0))
    limits = NestConstraints(spatial={("edge", "X"): (split,), ("edge", "Y"): ()}, stationary={"core": name})
    rest = ("A", "C") if not out else ("A", "B")
    found = solve_nest(p, m, objective="latency", factors="perfect", constraints=limits, home=(name, *rest))
    assert found.mapping.levels[0].x == {split: q}
    assert found.cost.times_s["edge link"] == pytest.approx(12 * (q - 1) / q)
    assert walked(p, m, found.mapping, frozenset({name}))[name][3] == pytest.approx(12 * (q - 1) / q)


def test_a_streamed_tensor_loads_a_link_with_all_that_a_core_receives_and_drains():
    """gemm 2 x 3 x 5 on two cores that split m, whole operands once: A 3, B 15, C 5 words a core of 16 bits at 16 bit/s."""
    fan = NestFan(2, 1, hop_j_per_bit=1.0, link_bits_per_s=16.0)
    m = NestMachine("two", (NestLevel("edge", read_j_per_bit=9.0, fan=fan), NestLevel("core")), NestCompute(1000.0))
    limits = NestConstraints(spatial={("edge", "X"): ("m",)})
    for factors in ("perfect", "ceil"):
        found = solve_nest(gemm(2, 3, 5), m, objective="edp", factors=factors, constraints=limits).cost
        assert found.times_s["edge link"] == pytest.approx(3 + 15 + 5)
        assert found.hop_bits["edge"] == {"A": 16 * 6, "B": 16 * 30, "C": 16 * 10}
        assert found.latency_s == found.times_s["edge link"]


def test_a_finite_link_never_helps_and_an_endless_one_changes_nothing():
    rng = random.Random(5)
    p = gemm(8, 6, 12)
    for _ in range(5):
        m = mesh(rng, p)
        m = replace(m, levels=(m.levels[0], replace(m.levels[1], capacity_bits=6000)))

        def with_link(rate, m=m):
            return replace(m, levels=(replace(m.levels[0], fan=replace(m.levels[0].fan, link_bits_per_s=rate)), m.levels[1]))

        for home in ((), ("A", "C")):
            found = [
                solve_nest(p, with_link(r), objective="latency", factors="perfect", home=home).cost.latency_s for r in (0.3, 3.0, 1e12)
            ]
            assert found[0] >= found[1] * (1 - 1e-12) >= found[2] * (1 - 1e-9)
            free = solve_nest(p, with_link(float("inf")), objective="latency", factors="perfect", home=home).cost.latency_s
            assert found[2] == pytest.approx(free)


@pytest.mark.parametrize("seed", range(6))
def test_hops_and_links_between_a_core_and_its_compute_are_counted(seed):
    """The search prices every mapping as the evaluation does: its own key is that of the mapping it hands back."""
    rng = random.Random(seed)
    p = problem(rng, limit=100, shapes=SHAPES[:6], choices=(1, 2, 3, 4))
    m, home = mesh(rng, p), some(rng, p)
    core = replace(m.levels[1], capacity_bits=None, fan=NestFan(hop_j_per_bit=2.0, link_bits_per_s=0.1))
    m = replace(m, levels=(m.levels[0], core))
    for goal in ("energy", "latency"):
        q = NestQuestion(p, m, NestObjective(goal), "perfect", NestConstraints(), keep_masks(p, m, NestConstraints()), home=home)
        search = home_search.HomeSearch(q)
        for i in range(len(search.vectors)):
            for order in search.orders:
                lists = [search.tiles(k, i, order) for k in range(len(search.signatures))]
                first, _ = search.keys(np.array([i]), order, [home_tiles.stacked([c]) for c in lists])
                search.best, search.by_order = None, {}
                search.orders, every = [order], search.orders
                search.offer(i)
                search.orders = every
                assert search.best[0][0] == pytest.approx(float(first.min()), rel=1e-12)
        assert "core link" in search.best[2].times_s


def test_a_question_that_makes_no_sense_names_what_to_change():
    p, m = gemm(4, 4, 4), mesh(random.Random(1), gemm(4, 4, 4))
    wide = replace(m, levels=(replace(m.levels[0], fan=NestFan(2, 2, multicast_width=2)), m.levels[1]))
    conv = einsum("conv", ("O", "f p"), [("I", "c p+r"), ("W", "f c r")], {"f": 2, "c": 2, "p": 4, "r": 3})
    small = replace(m, levels=(m.levels[0], replace(m.levels[1], capacity_bits=64, buffers=1)))
    for wrong, fact in (
        (lambda: solve_nest(p, edge3(), home=("A",)), "one memory"),
        (lambda: solve_nest(p, tiny(), home=("A",)), "without a fan or an atom"),
        (lambda: solve_nest(p, wide, home=("A",)), "widths"),
        (lambda: solve_nest(p, m, home=("A",), solver="cpsat", factors="perfect"), "solver auto or dp"),
        (lambda: solve_nest(p, m, home=("A",), resident=("B",), factors="perfect"), "no resident"),
        (lambda: solve_nest(p, m, home=("Q",)), "no tensor Q"),
        (lambda: solve_nest(conv, m, home=("I",)), "indexed by a sum"),
        (lambda: solve_nest(conv, m, home=("W",)), "plain indices"),
        (lambda: solve_nest(p, m, home=("A",), constraints=NestConstraints(tiles=(FixedTile("core", "k", 2),))), "fixed tiles"),
        (lambda: solve_nest(p, small, home=("A", "C")), "share of what is at home"),
    ):
        with pytest.raises(RackmodelError, match=fact):
            wrong()
