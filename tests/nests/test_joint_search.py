"""Any tile on deep machines: rows of ragged mappings cost what `evaluate` says, no mapping is below the bound of the joint programs."""

import contextlib
import random
from dataclasses import replace
from itertools import product
from math import log

import numpy as np
import pytest

from rackmodel.errors import InfeasibleError
from rackmodel.nests import solve_nest
from rackmodel.nests.constraints import NestConstraints
from rackmodel.nests.evaluate import evaluate
from rackmodel.nests.objective import NestObjective, parse_objective
from rackmodel.nests.problem import NestCompute, NestFan, NestLevel, NestMachine
from rackmodel.nests.searchers.bounds import joint_ranges, joint_search, program_ascent
from rackmodel.nests.searchers.bounds.joint_cuts import misses
from rackmodel.nests.searchers.bounds.joint_narrow import narrowed
from rackmodel.nests.searchers.bounds.joint_nest import JointNest
from rackmodel.nests.searchers.bounds.joint_program import JointProgram
from rackmodel.nests.searchers.bounds.joint_ragged import least_leaves, leaves_row, round_rows
from rackmodel.nests.searchers.bounds.joint_ranges import Ranges, Weights
from rackmodel.nests.searchers.bounds.joint_search import JointSearch, Line, Node, least_at_corners
from rackmodel.nests.searchers.bounds.program_ascent import Ascent, rise
from rackmodel.nests.searchers.ceil_deep import solve_deep
from rackmodel.nests.searchers.contract import NestQuestion
from rackmodel.nests.searchers.effort import Effort
from rackmodel.nests.searchers.mapspace.full_fans import full_fans
from rackmodel.nests.searchers.mapspace.list_axes import ListAxis
from rackmodel.nests.searchers.mapspace.space import Space
from rackmodel.nests.searchers.mapspace.stored_tensors import keep_masks
from rackmodel.nests.searchers.ragged import joint_best
from rackmodel.nests.searchers.ragged.ragged_counts import RaggedCounts
from rackmodel.nests.searchers.ragged.ragged_draws import Draws
from rackmodel.nests.searchers.ragged.ragged_floor import RaggedFloor
from rackmodel.nests.searchers.ragged.ragged_plan import RaggedPlan, firsts, orders_of
from rackmodel.nests.searchers.ragged.ragged_steps import stepped
from rackmodel.nests.solution import Best
from rackmodel.nests.split_chains import Chains
from rackmodel.nests.tile_counts import Split, count_and_cover, histogram
from tests import samples
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
    floor = RaggedFloor(plan, rows)
    assert (floor.joules() <= energy * (1 + 1e-12)).all()
    assert (floor.seconds() <= np.max(times, axis=0) * (1 + 1e-12)).all()
    for i, row in enumerate(rows):
        made = plan.mapping(row)
        cost = evaluate(p, m, made)
        assert energy[i] == pytest.approx(cost.energy_j, rel=1e-12)
        assert max(t[i] for t in times) == pytest.approx(cost.latency_s, rel=1e-12)
        assert plan.seconds(row[None])[0] <= cost.latency_s * (1 + 1e-12)
        assert orders_of(space, made) == plan.orders[1:]
        assert list(plan.row(made)) == list(row)


def test_shrunk_rows_fit_and_have_no_fewer_pieces():
    rng, numbers = random.Random(3), np.random.default_rng(3)
    p = problem(rng, limit=4000, choices=(7, 12, 30))
    m = machine(rng, p, inner=2, options=True)
    space = spaces(p, m)[0]
    plan = RaggedPlan(space, [rng.choice(space.orders(level)) for level in range(1, space.depth)])
    rows = ragged_rows(plan, numbers, 200)
    small = plan.shrunk(rows)
    assert (small <= rows).all()
    assert plan.fits(small).all()
    for r, size in enumerate(space.sizes):
        outer = next(i for i, tile in enumerate(plan.tiles) if tile.rank == r)
        laid = np.prod([plan.laid(rows, f, r) for f in range(plan.tiles[outer].level)], axis=0)
        assert (-(-size // (small[:, outer] * laid)) == -(-size // (rows[:, outer] * laid))).all()


def test_rows_that_are_left_out_have_no_lower_key():
    rng, numbers = random.Random(5), np.random.default_rng(5)
    p = problem(rng, limit=4000, choices=(5, 7, 12, 30))
    m = machine(rng, p, inner=2, options=True)
    space = spaces(p, m)[0]
    plan = RaggedPlan(space, [rng.choice(space.orders(level)) for level in range(1, space.depth)])
    rows = ragged_rows(plan, numbers, 400)
    for name in ("energy", "latency", "edp"):
        draws = Draws(NestObjective(name, static_w=1e-3), 0.0, 1.0)
        keys, nears = draws.keys(plan, rows)
        limits = np.quantile(keys, 0.2) * np.ones(len(rows)), np.quantile(nears, 0.1) * np.ones(len(rows))
        on, some, near = draws.better(plan, rows, *limits)
        assert set(np.flatnonzero((keys < limits[0]) | (nears < limits[1]))) <= set(on)
        assert (some == keys[on]).all()
        assert (near == nears[on]).all()


def test_the_first_of_equal_numbers_is_found():
    numbers = np.random.default_rng(0).integers(0, 40, 200)
    assert list(firsts(numbers)) == sorted(np.unique(numbers, return_index=True)[1])
    assert list(firsts(numbers[:0])) == []


def obeyed(line, values):
    row, limit = line
    return sum(factor * log(values[key]) for key, factor in row.items()) <= limit + 1e-9


def test_chains_obey_what_ragged_edges_cost():
    rng = random.Random(0)
    t, n, leaves, h, a, y, cover = (("t",), ("n",), ("leaves",), ("h",), ("a",), ("y",), ("cover",))
    cut = 0
    for _ in range(3000):
        u, size = rng.choice((1, 2, 4, 16)), rng.randint(17, 400)
        tile = rng.randint(u, size)
        above = Split(rng.randint(tile, size))
        pieces = sum(histogram(size, [above, Split(tile)], frozenset()).values())
        found = sum(histogram(size, [above, Split(tile), Split(rng.randint(u, tile)), Split(u)], frozenset()).values())
        ends = rng.randint(max(1, tile - 3), tile), rng.randint(tile, tile + 3)
        if line := leaves_row((t, n, leaves), size, u, ends):
            cut += 1
            assert obeyed(line, {t: tile, n: min(pieces, -(-size // u)), leaves: found})
        assert least_leaves(size, u, (rng.randint(pieces, pieces + 2), ends[1]), ends[0]) <= found
        parts = rng.randint(1, -(-above.tile // tile))
        dealt = [above, Split(parts * tile), Split(tile, fan=0), Split(u)]
        cycles, covered = count_and_cover(histogram(size, dealt, frozenset({0})))
        assert cycles * u >= covered
        rounds = max(1, -(-(size - tile) // (parts * tile)))
        values = {h: rounds, a: parts, y: tile, cover: covered}
        low = [(max(1, one - rng.randint(0, 3)), one + rng.randint(0, 3)) for one in (rounds, parts)]
        assert all(obeyed(line, values) for line in round_rows((h, a, y), cover, size, *low))
    assert cut > 300


def test_a_tile_that_is_no_larger_than_what_one_part_gets_keeps_the_others_idle():
    """The fullest instance of a fan gets the first y of every tile, however it was cut: its leaves are no fewer than D y / (t u)."""
    rng, idle = random.Random(1), 0
    for _ in range(2000):
        u, size, a = rng.choice((1, 2, 4)), rng.randint(17, 400), rng.randint(1, 9)
        t = rng.randint(u, size)
        y = rng.randint(u, t)
        above = [Split(rng.randint(t, size))] * rng.randint(0, 1)
        cycles = count_and_cover(histogram(size, [*above, Split(t), Split(a * y), Split(y, fan=0), Split(u)], frozenset({0})))[0]
        assert cycles * t * u >= size * y
        idle += size * y > t * u * -(-size // (a * u))
    assert idle > 300


def test_the_fullest_instance_has_no_less_than_the_mean_and_no_larger_pieces():
    """Of a rank it gets S >= D y / t and D / a, in no fewer pieces of u than S / u and their mean n / a."""
    rng, more = random.Random(2), 0
    for _ in range(2000):
        u, size, a = rng.choice((1, 2, 3)), rng.randint(17, 400), rng.randint(2, 9)
        t = rng.randint(u, size)
        y = rng.randint(u, t)
        chain = [Split(rng.randint(t, size)), Split(t), Split(a * y), Split(y, fan=0), Split(rng.randint(u, y)), Split(u)]
        own, cover = count_and_cover(histogram(size, chain, frozenset({0})))
        pieces, _ = count_and_cover(histogram(size, chain, frozenset()))
        assert cover * t >= size * y
        assert cover * a >= size
        assert own * u >= cover
        assert own * a >= pieces
        more += cover * t * a > 1.1 * max(size * t, size * y * a)
    assert more > 100


def test_a_port_waits_for_the_fullest_instance():
    """96 rows in tiles of 8 are dealt out to 8 units by eights, twelve tiles in two rounds: the first gets two, 16 rows, not 12."""
    slow = NestLevel("unit", None, 1.0, 1.0, 1.0, bypass=("C",))
    levels = NestLevel("memory", None, 1.0, 1.0), NestLevel("buffer", None, 1.0, 1.0, fan=NestFan(8)), slow
    p, m = gemm(96, 1, 1), NestMachine("waiting", levels, NestCompute(1e9, 1.0))
    (space,) = spaces(p, m)
    nest = JointNest(space, Weights(0.0, 1.0, 1e3, 1e3))
    program = JointProgram(nest, [space.orders(level)[0] for level in (1, 2)])
    r = space.ranks.index("m")
    whole = {key: (8, 8) for key in program.index if key[:3] == ("tile", 2, r)} | {("laid", 1, r): (8, 8)}
    within = narrowed(program, Ranges(nest.ranges().copies, whole))
    assert within.whole["rounds", 1, r] == (2, 2)
    ascent = Ascent(program.between(within), 1e3)
    rise([ascent])
    (port,) = program.ports
    mean, fullest = port.terms.at(ascent.at).sum() / 8, port.fullest.at(ascent.at).sum()
    assert ascent.value == pytest.approx(fullest * 1e3, rel=0.01)
    assert fullest > 1.2 * mean


def test_idle_parts_count_in_a_program():
    """64 rows in tiles of 8, dealt out to 8 units by fours: two are at work, each 32 cycles; not 64 / 8 of all of them."""
    levels = NestLevel("memory", None, 1.0, 1.0), NestLevel("buffer", None, 1.0, 1.0, fan=NestFan(8)), NestLevel("unit", None, 1.0, 1.0)
    p, m = gemm(64, 1, 1), NestMachine("idle", levels, NestCompute(1.0, 1.0))
    (space,) = spaces(p, m)
    nest = JointNest(space, Weights(0.0, 1.0, 1e4, 64.0))
    program = JointProgram(nest, [space.orders(level)[0] for level in (1, 2)])
    r = space.ranks.index("m")
    whole = {key: (8, 8) for key in program.index if key[:3] == ("tile", 1, r)} | {
        key: (4, 4) for key in program.index if key[:3] == ("tile", 2, r)
    }
    ascent = Ascent(program.between(Ranges(nest.ranges().copies, whole)), 64.0)
    rise([ascent])
    assert ascent.value == pytest.approx(32.0, rel=1e-4)
    assert narrowed(program, Ranges(nest.ranges().copies, whole)).whole["laid", 1, r][1] == 2


def test_a_program_that_gets_stuck_begins_at_another_place():
    """Keys on a wafer of 850 x 1000 cores: what comes in once at 150 GB/s, 277 MB, takes 1.84 ms of 18.8 kW. From the first place the bound
    of the open program ended at -44 J."""
    levels = (
        NestLevel("edge", None, 55e-12, 55e-12, 1.2e12, 1.2e12, fan=NestFan(850, 1000, hop_j_per_bit=0.06e-12, link_bits_per_s=35.2e9)),
        NestLevel("core", 48e3 * 8, 0.117e-12, 0.117e-12, 125.5e9, 62.7e9),
    )
    p, m = gemm(32768, 4096, 1024), NestMachine("wafer", levels, NestCompute(4.41175e9, 0.59e-12))
    (space,) = spaces(p, m)
    search = JointSearch(space, Weights(1.0, 18800.0, 1.27, 1.845e-3), 35.88)
    stuck = [node.ascent for node in search.nodes if node.ascent.start != program_ascent.START]
    assert stuck
    assert search.bound > 0.97 * 35.88


def test_what_holds_of_any_order_is_no_more_than_the_least_of_all_orders(monkeypatch):
    orders_cut_first(monkeypatch, False)
    p, m = gemm(250, 300, 430), deep()
    (space,) = spaces(p, m)
    weights = Weights(1.0, 30.0, 1e-4, 1e-5)
    search = JointSearch(space, weights, 5e-4)
    (root,) = search.nodes
    nest = JointNest(space, weights)
    programs = [JointProgram(nest, [order, *root.program.orders[2:]], root.program.free - {1}) for order in space.orders(1)]
    of_level = [Node.of(program, nest.ranges(), 5e-4) for program in programs]
    rise([node.ascent for node in of_level])
    assert root.ascent.value <= min(node.ascent.value for node in of_level) * (1 + 1e-6)


def orders_cut_first(monkeypatch, first):
    """Searches cut the orders of levels before all else, whatever that takes, or never."""
    monkeypatch.setattr(joint_search, "OPENED", 0.0 if first else 1.0)


def test_orders_that_take_much_are_cut_before_all_else(monkeypatch):
    p, m = gemm(250, 300, 430), deep()
    (space,) = spaces(p, m)
    weights, known = Weights(1.0, 30.0, 1e-4, 1e-5), 5e-4
    orders_cut_first(monkeypatch, False)
    before = JointSearch(space, weights, known)
    orders_cut_first(monkeypatch, True)
    after = JointSearch(space, weights, known)
    assert len(before.nodes) == 1 < len(after.nodes)
    assert after.nodes[0].ascent.value > before.nodes[0].ascent.value
    assert after.nodes == sorted(after.nodes, key=lambda node: node.ascent.value)
    left = set(after.nodes[0].program.free)
    assert left < set(before.nodes[0].program.free)
    cut = [level for level in before.nodes[0].program.free if level not in left]
    found = {tuple(node.program.orders[level] for level in cut) for node in after.nodes}
    assert len(after.nodes) == len(found) == np.prod([len(space.orders(level)) for level in cut])


@pytest.mark.parametrize(("seed", "many"), [(1, False), (2, False), (2, True), (4, True)])
def test_no_mapping_is_below_the_bound(seed, many, monkeypatch):
    orders_cut_first(monkeypatch, many)
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
            search.run(40)
        assert min(search.bound for search in searches) <= min(keys) * (1 + 1e-9)


@pytest.mark.parametrize("static_w", [0.0, 0.7])
def test_a_product_is_least_at_a_corner_of_the_lines(static_w):
    goal = NestObjective("edp", static_w=static_w)
    for lines in ([], [(2.0, 3.0, 12.0)], [(2.0, 3.0, 12.0), (1.0, 4.0, 9.5)], [(2.0, 3.0, 12.0), (1.0, 4.0, 1.0)]):
        some = [Line(1.0, 0.0, 1.5), Line(0.0, 1.0, 1.0), *(Line(*line) for line in lines)]
        least, (e, t) = least_at_corners(goal, some)
        assert least == pytest.approx(goal.key(e, t)[0])
        grid = [(e, t) for e in np.linspace(1.5, 12, 106) for t in np.linspace(1.0, 12, 111)]
        above = [goal.key(e, t)[0] for e, t in grid if all(a * e + b * t >= c - 1e-9 for a, b, c in lines)]
        assert least <= min(above) * (1 + 1e-9)
        assert least >= min(above) * 0.9
    assert least_at_corners(NestObjective("edp"), [*some[:2], Line(2.0, 3.0, 12.0)])[0] == pytest.approx(min(4.5 * 1.0, 1.5 * 3.0))


@pytest.mark.parametrize("seed", samples.some(range(4), 4))
def test_nodes_of_a_search_bound_other_weights(seed):
    """No mapping is below what nodes cut under one slope say of another, or of energy or time alone."""
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    p = problem(rng, biggest=40, limit=900, choices=(3, 5, 7, 9, 12, 17, 30))
    m = machine(rng, p, inner=1 + seed % 2, options=True)
    (space, *_) = spaces(p, m)
    energy, time = [], []
    for _ in range(6):
        plan = RaggedPlan(space, [rng.choice(space.orders(level)) for level in range(1, space.depth)])
        if len(rows := ragged_rows(plan, numbers, 300)):
            e, t = RaggedCounts(plan, rows).cost(timed=True)
            energy.append(np.broadcast_to(e, len(rows)) - p.macs * m.compute.j_per_mac)
            time.append(np.broadcast_to(np.max(np.broadcast_arrays(*t), axis=0), len(rows)))
    joules, seconds = np.concatenate(energy), np.concatenate(time)
    slope = float(joules.min() / seconds.min())
    search = JointSearch(space, Weights(1.0, slope, joules.max(), seconds.max()), float((joules + slope * seconds).min()) * 1.3)
    search.run(60)
    for a, b in ((1.0, 3 * slope), (1.0, 0.0), (0.0, 1.0)):
        least = float((a * joules + b * seconds).min())
        other = search.under(Weights(a, b, joules.max(), seconds.max()), least * 1.3)
        assert 0 < other.bound <= least * (1 + 1e-9)
        other.run(16)
        assert other.bound <= least * (1 + 1e-9)


@pytest.mark.parametrize("seed", samples.some(range(101, 107), 3))
def test_the_bound_of_a_product_is_no_higher_than_its_proven_optimum(seed, monkeypatch):
    for name, less in (("WORK", 32), ("STARTS", 2), ("KICKS", (0, 0)), ("FIRST", 8)):
        monkeypatch.setattr(joint_best, name, less)
    rng = random.Random(seed)
    p = problem(rng, biggest=12, limit=400, choices=(2, 3, 5, 7, 9))
    m = machine(rng, p, inner=1, options=seed % 2 > 0)
    goal = NestObjective("edp", static_w=rng.choice([0.0, 1.0]))
    known = solve_nest(p, m, objective=goal, factors="ceil")
    best, masks = Best(known.certificate.objective, known.mapping, known.cost), keep_masks(p, m, NestConstraints())
    q = NestQuestion(p, m, goal, "ceil", NestConstraints(), masks, frozenset(), frozenset(), Effort())
    bounds = [joint_best.joint_best(q, kept, best).bound for kept in masks if any(kept[1:])]
    assert known.certificate.proven
    assert 0 < min(bounds) <= best[0][0] * (1 + 1e-9)


@pytest.mark.parametrize("seed", samples.some(range(201, 207), 3))
def test_a_search_that_is_gone_on_with_for_another_objective_bounds_it(seed, monkeypatch):
    """What a search for a product has cut, priced for sums and for time alone: no bound is above the optimum that chains prove."""
    for name, less in (("WORK", 32), ("STARTS", 2), ("KICKS", (0, 0)), ("FIRST", 8), ("MORE", 16)):
        monkeypatch.setattr(joint_best, name, less)
    rng = random.Random(seed)
    p = problem(rng, biggest=12, limit=400, choices=(2, 3, 5, 7, 9))
    m = machine(rng, p, inner=1, options=seed % 2 > 0)
    masks = [kept for kept in keep_masks(p, m, NestConstraints()) if any(kept[1:])]
    kept, first = (masks[0],), NestObjective("edp", static_w=1.0)

    def asked(goal):
        return NestQuestion(p, m, goal, "ceil", NestConstraints(), kept, frozenset(), frozenset(), Effort())

    known = solve_deep(asked(first))
    product = joint_best.joint_best(asked(first), kept[0], Best(known.certificate.objective, known.mapping, known.cost))
    slope, gone_on = product.best[2].energy_j / product.best[2].latency_s, product
    for goal in (NestObjective("energy", static_w=slope), NestObjective("latency"), NestObjective("energy", static_w=2 * slope)):
        proven = solve_deep(asked(goal))
        known = product.best.under(goal)
        gone_on = joint_best.joint_again(asked(goal), gone_on.left, known)
        least = proven.certificate.objective[0]
        assert proven.certificate.proven
        assert 0 < gone_on.bound <= least * (1 + 1e-9)
        assert least * (1 - 1e-9) <= gone_on.best[0][0] <= known.primary
        gone_on = gone_on if goal.name == "energy" else product


@pytest.mark.parametrize("seed", range(2))
def test_programs_under_other_weights_are_those_made_anew(seed):
    rng = random.Random(seed)
    p = problem(rng, biggest=40, limit=900, choices=(3, 5, 7, 9, 12, 17, 30))
    (space, *_) = spaces(p, machine(rng, p, inner=1 + seed % 2, options=True))
    before, after = Weights(1.0, 3.0, 2.0, 0.7), Weights(1.0, 5.0, 1.999, 0.701)
    same = after.in_units_of(before)
    assert (same.joule, same.second, same.joules, same.seconds) == (1.0, 5.0, 2.0, 0.7)
    assert after.in_units_of(Weights(1.0, 3.0, 2.0, 0.1)) is None  # far from its own
    assert after.in_units_of(Weights(1.0, 0.0, 2.0, 0.7)) is None  # which leaves seconds out
    nest = JointNest(space, before)
    orders, ranges = [space.orders(level)[-1] for level in range(1, space.depth)], nest.ranges()
    program = JointProgram(nest, orders)
    again, made = program.under(nest.under(same)), JointProgram(JointNest(space, same), orders).between(ranges)
    found = again.again(program.between(ranges), ranges)
    for one, other in ((found, made), (again.between(ranges), made)):
        assert one.shape == other.shape
        arrays = (
            (x.terms.shift, x.terms.rows, x.slope, x.constant, x.rooms.terms.shift, x.rows, x.limits, x.low, x.high) for x in (one, other)
        )
        for left, right in zip(*arrays, strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-12)


def deep():
    """A memory, a cache, a waved fan of cores with two buffers, registers that pass one operand by: an H100 of 1/16."""
    cache = NestLevel("cache", 2e6, 1e-12, 1e-12, 4e12, 2e12, fan=NestFan(9, linear=True, multicast_width=2, reduction_width=1))
    core = NestLevel("core", 2e5, 2e-13, 2e-13, 1e12, buffers=2, bypass=("C",), fan=NestFan(4))
    registers = NestLevel("registers", 6e4, 3e-14, 3e-14, bypass=("B",), bits_per_tensor={"C": 32})
    levels = NestLevel("memory", None, 5e-12, 5e-12, 2e12), cache, core, registers
    return NestMachine("deep", levels, NestCompute(3e11, 4e-13, {"m": 4, "n": 2, "k": 4}))


@samples.audited
def test_a_deep_machine_is_near_its_bound(monkeypatch):
    for name, less in (("WORK", 48), ("STARTS", 3), ("KICKS", (0, 0)), ("FIRST", 16)):
        monkeypatch.setattr(joint_best, name, less)
    p, m = gemm(250, 300, 430), deep()
    found = solve_nest(p, m)
    assert found.certificate.gap < 0.08
    assert evaluate(p, m, found.mapping) == found.cost
    assert found.certificate.objective == (found.cost.energy_j, found.cost.latency_s)


@pytest.mark.parametrize("goal", samples.some(["energy", "latency"], 2))
def test_a_bound_holds_what_hardly_counts(goal, monkeypatch):
    """A part of a weighted sum that is next to nothing leaves its number so far to go that no multiplier held it: the bound was below 0."""
    for name, less in (("WORK", 32), ("STARTS", 2), ("KICKS", (0, 0)), ("FIRST", 8)):
        monkeypatch.setattr(joint_best, name, less)
    p, m = gemm(256, 320, 448), deep()
    known = solve_nest(p, m, factors="perfect").cost
    small = 1e-3 * (known.energy_j / known.latency_s if goal == "energy" else known.latency_s / known.energy_j)
    weights = (1.0, small) if goal == "energy" else (small, 1.0)
    found = solve_nest(p, m, objective={"energy": weights[0], "latency": weights[1]}).certificate
    assert found.bound <= weights[0] * known.energy_j + weights[1] * known.latency_s
    assert found.gap < solve_nest(p, m, objective=goal).certificate.gap + joint_ranges.SMALL


@pytest.mark.parametrize("goal", samples.some(["energy", "latency", "edp"], 2))
def test_words_that_no_tile_changes_take_their_time(goal, monkeypatch):
    """A rank of one instruction: what the memory moves of the result hangs on no tile, a port's time less that was below 0, and the bound
    -1e28 of what is known."""
    for name, less in (("WORK", 32), ("STARTS", 2), ("KICKS", (0, 0)), ("FIRST", 8)):
        monkeypatch.setattr(joint_best, name, less)
    found = solve_nest(gemm(300, 430, 4), deep(), objective=goal)
    assert found.certificate.gap < 0.3


def test_sizes_that_no_atom_divides_are_searched_without_divisors(monkeypatch):
    """Divisors, which come last, have no mapping of these: they ended the search in an error."""
    for name, less in (("WORK", 16), ("STARTS", 1), ("KICKS", (0, 0)), ("FIRST", 4)):
        monkeypatch.setattr(joint_best, name, less)
    p, m = gemm(1301, 701, 1103), deep()
    found = solve_nest(p, m)
    assert evaluate(p, m, found.mapping) == found.cost


def test_few_leaves_that_no_atom_divides_are_bounded_by_programs(monkeypatch):
    """As 1000 on an H100 of 16 x 8 x 16: without a mapping of divisors to begin at, tables of few tiles answered, with a gap of a third."""
    for name, less in (("WORK", 16), ("STARTS", 1), ("KICKS", (0, 0)), ("FIRST", 4)):
        monkeypatch.setattr(joint_best, name, less)
    p, m = gemm(250, 130, 202), deep()
    found = solve_nest(p, m)
    assert found.certificate.notes[-1].startswith(("mappings drawn", "every tile"))
    assert evaluate(p, m, found.mapping) == found.cost


def test_a_program_rises_as_high_from_where_a_wider_one_was(monkeypatch):
    """From a place of its own, from half-way of the whole, or only until its bound is enough."""
    orders_cut_first(monkeypatch, False)
    p, m = gemm(250, 300, 430), deep()
    (space,) = spaces(p, m)
    search = JointSearch(space, Weights(1.0, 30.0, 1e-4, 1e-5), 3e-4)
    (root,) = search.nodes
    parts = [part for cut in root.cuts()[:15] for part in search._halves(root, cut, 0.0)]
    alone = [Ascent(part.ascent.program, part.ascent.scale) for part in parts]
    few = [Ascent(part.ascent.program, part.ascent.scale, like=root.ascent) for part in parts]
    assert len(parts) > 20
    assert all(part.ascent.begin is not None for part in parts)
    enough = float(np.median([root.ascent.own, 3e-4]))
    rise([part.ascent for part in parts], 2e-5)
    rise(alone, 2e-5)
    rise(few, 2e-5, enough)
    for part, own, early in zip(parts, alone, few, strict=True):
        assert part.ascent.own == pytest.approx(own.own, abs=1e-4 * own.scale)
        assert early.own == part.ascent.own or enough <= early.own <= part.ascent.own + 1e-4 * own.scale
    assert any(early.own != part.ascent.own for part, early in zip(parts, few, strict=True)) or max(one.own for one in few) < enough


def test_numbers_of_a_program_know_which_levels_were_open_before():
    """Of levels whose order was open and of levels whose order was given, two programs before may have the same orders."""
    p, m = gemm(250, 300, 430), deep()
    (space,) = spaces(p, m)
    orders = [space.orders(level)[0] for level in range(1, space.depth)]
    nest = JointNest(space, Weights(1.0, 30.0, 1e-4, 1e-5))
    made = JointProgram(nest, orders)
    for free in (frozenset({1}), frozenset({1, 2}), frozenset({1, 2, 3})):
        before = JointProgram(nest, orders, free)
        known = made.numbers_before(before, free)
        assert list(known) == list(JointProgram(nest, orders).numbers_before(before, free))
        assert max(known) < len(before.index)


def test_narrow_ranges_keep_what_a_mapping_has():
    rng = random.Random(5)
    p, m = gemm(250, 300, 430), deep()
    (space,) = spaces(p, m)
    nest = JointNest(space, Weights(1.0, 30.0, 1e-4, 1e-5))
    program = JointProgram(nest, [space.orders(level)[0] for level in range(1, space.depth)])
    narrower = 0
    for _ in range(400):
        whole, has = {}, {}
        for r, f in program.dealt.items():
            size = space.sizes[r]
            above = rng.randint(space.leaf[r], size)
            tile = rng.randint(space.leaf[r], above)
            pieces = min(-(-size // tile) + rng.randint(0, 2), nest.cells[r])
            parts = rng.randint(1, min(-(-above // tile), program.ends["laid", f, r][1]))
            rounds = max(1, -(-(size - tile) // (parts * tile)))
            has |= {
                ("tile", f, r, program.versions[f][1][r]): above,
                ("tile", f + 1, r, 0): tile,
                ("pieces", f + 1, r, 0): pieces,
                ("laid", f, r): parts,
                ("rounds", f, r): rounds,
            }
        has["waves", 1] = -(-int(np.prod([has[key] for key in has if key[0] == "laid" and key[1] == 1])) // 9)
        for key, value in has.items():
            least, most = program.ends[key]
            whole[key] = max(least, value - rng.randint(0, 3)), min(most, value + rng.randint(0, 3))
            assert least <= value <= most
        found = narrowed(program, Ranges(nest.ranges().copies, whole))
        for key, value in has.items():
            low, high = found.whole[key]
            assert whole[key][0] <= low <= value <= high <= whole[key][1]
            narrower += (low, high) != whole[key]
    assert narrower > 300
    whole = {("pieces", 1, 0, 0): (1, 3), ("tile", 1, 0, 0): (4, 250 // 3)}
    assert narrowed(program, Ranges(nest.ranges().copies, whole)) is None


def whole_numbers(program, made):
    """(ranges of a mapping's own numbers, no wider, of a program of its orders; most copies of the output by fan)."""
    space, whole = program.space, {}
    chains = Chains(space.problem, space.machine, made)
    for level, r, v in program.tiles:
        on = [j for j in range(len(program.orders[level])) if program.versions[level][0][j][r] == v]
        if on:
            node, rank = made.levels[level].nodes[on[0]], space.ranks[r]
            pieces = chains.stats(rank, chains.position[level, node.tensor], frozenset())[0]
            whole["tile", level, r, v] = (node.tile[rank],) * 2
            whole["pieces", level, r, v] = (pieces, pieces)
    copies = [(1, 1)] * space.depth
    for f in program.nest.fans:
        working = []
        for r, rank in enumerate(space.ranks):
            outer = next((n.tile[rank] for level in reversed(made.levels[1 : f + 1]) for n in reversed(level.nodes)), space.sizes[r])
            inner = next((n.tile[rank] for level in made.levels[f + 1 :] for n in level.nodes), space.least_tiles[r])
            working.append(min(made.levels[f].spatial(rank), -(-outer // inner)))
            whole["laid", f, r] = (working[r],) * 2
        copies[f] = 1, int(np.prod([working[r] for r in program.nest.lacks[space.output]]))
        if f in program.linear:
            whole["waves", f] = (-(-int(np.prod(working)) // space.machine.levels[f].fan.size),) * 2
    return {key: ends for key, ends in whole.items() if key in program.index}, tuple(copies)


@pytest.mark.parametrize("seed", [0, 3, 7, 8, 11])
def test_a_program_of_the_numbers_of_a_mapping_is_no_more_than_it_costs(seed):
    """Ragged chains have more leaves than ceil(D / leaf): a program that knew of no more had bounds above some mappings."""
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    p = problem(rng, biggest=60, limit=5000, choices=(1, 2, 3, 5, 7, 9, 12, 17, 23, 30))
    m = machine(rng, p, inner=1 + seed % 2, options=seed % 3 > 0)
    fans = [rng.choice([v.fan, NestFan(rng.choice([2, 3, 5]), linear=True, multicast_width=rng.choice([None, 2]))]) for v in m.levels]
    atom = {r: rng.choice([2, 3, 4]) for r in list(p.sizes)[:2] if p.sizes[r] >= 4}
    m = NestMachine("m", tuple(replace(v, fan=fan) for v, fan in zip(m.levels, fans, strict=True)), replace(m.compute, atom=atom))
    for space in spaces(p, m)[:3]:
        plan = RaggedPlan(space, [rng.choice(space.orders(level)) for level in range(1, space.depth)])
        for row in ragged_rows(plan, numbers, 200)[:3]:
            made = plan.mapping(row)
            cost = evaluate(p, m, made)
            joules = cost.energy_j - p.macs * m.compute.j_per_mac
            for a, b in ((1.0, 0.0), (0.0, 1.0), (cost.latency_s, joules)):
                program = JointProgram(JointNest(space, Weights(a, b, cost.energy_j, cost.latency_s)), plan.orders[1:])
                whole, copies = whole_numbers(program, made)
                wide = {}
                for key, (value, _) in whole.items():
                    least, most = program.ends[key]
                    wide[key] = max(least, value - rng.choice((0, 0, 2))), min(most, value + rng.choice((0, 0, 2)))
                known = a * joules + b * cost.latency_s
                for ranges in (whole, wide):
                    node = Node.of(program, Ranges(copies, ranges), known)
                    rise([node.ascent])
                    assert node.ascent.value <= known * (1 + 1e-6)


@pytest.mark.parametrize("fan", [NestFan(12, linear=True), NestFan(7), NestFan(6, 4), NestFan(5, 3)])
@pytest.mark.parametrize(("allowed", "most"), [("XXX", (20, 20, 20)), ("BXY", (3, 20, 4)), ("XYY", (20, 2, 2))])
def test_the_fullest_ways_to_share_a_fan_are_found(fan, allowed, most):
    on = [(side in "XB", side in "YB") for side in allowed]
    found = full_fans(fan, on, most, 1000)
    every = {}
    for x in product(*(range(1, fan.x + 1 if a else 2) for a, _ in on)):
        for y in product(*(range(1, fan.y + 1 if b else 2) for _, b in on)):
            parts = tuple(a * b for a, b in zip(x, y, strict=True))
            if np.prod(x) <= fan.x and np.prod(y) <= fan.y and all(n <= end for n, end in zip(parts, most, strict=True)):
                every[parts] = np.prod(parts)
    assert set(found) <= set(every)
    assert [np.prod(parts) for parts in found] == sorted((np.prod(parts) for parts in found), reverse=True)
    if found:
        full = max(every.values())
        assert {parts for parts in found if np.prod(parts) == full} == {parts for parts, n in every.items() if n == full}
        assert full_fans(fan, on, most, 2) == found[:2]
    else:
        assert max(every.values()) < fan.size


def test_mappings_are_looked_for_where_fans_are_full():
    p, m = gemm(250, 300, 430), deep()
    (space,) = spaces(p, m)
    search = JointSearch(space, Weights(1.0, 30.0, 1e-4, 1e-5), 5e-4)
    nodes = list(search.nodes)
    found = search.filled(6)
    assert 0 < len(found) <= 6
    for program, z in found:
        assert not program.free
        assert sum(z[program.index["laid", 1, r]] for r in range(3)) == pytest.approx(log(9), rel=1e-4)
    assert search.nodes == nodes


def test_steps_end_at_a_better_mapping_that_costs_what_evaluate_says():
    p, m = gemm(250, 300, 430), deep()
    (space,) = spaces(p, m)
    plan = RaggedPlan(space, [space.orders(level)[0] for level in range(1, space.depth)])
    draws = Draws(parse_objective("edp"), 0.0, 1e-4)
    start = draws.at(plan, plan.rows_of(np.ones((1, len(plan.tiles) + len(plan.parts)), dtype=np.int64))[0])
    [end] = stepped(draws, [start], Effort())
    cost = evaluate(p, m, plan.mapping(end.row))
    assert end.key < 0.2 * start.key
    assert end.key == pytest.approx(cost.energy_j * cost.latency_s, rel=1e-12)


def test_a_row_that_no_number_counts_in_is_missed_by_far_and_ends_no_search():
    """Words of an order may exceed what they may be whatever the numbers are; that was a division by zero."""
    give = np.diag([1.0, 4.0])
    one, none = misses(np.array([2.0, 2.0]), np.array([[0.0, 1.0], [0.0, 0.0]]), give)
    assert one == pytest.approx(1.0)
    assert 1e20 < none < float("inf")
