"""Ranks that no tensor tells apart, tiles of any size: bounds of merged ranks hold for mappings of the ranks themselves."""

import itertools
import random
from dataclasses import replace
from math import prod

import numpy as np
import pytest

from rackmodel.nests.constraints import NestConstraints
from rackmodel.nests.objective import NestObjective
from rackmodel.nests.problem import NestCompute
from rackmodel.nests.searchers import ceil_deep
from rackmodel.nests.searchers.bounds.joint_ranges import Weights
from rackmodel.nests.searchers.bounds.joint_search import JointSearch
from rackmodel.nests.searchers.chains.chain_search import join_chains
from rackmodel.nests.searchers.contract import NestQuestion
from rackmodel.nests.searchers.effort import Effort
from rackmodel.nests.searchers.mapspace.stored_tensors import keep_masks
from rackmodel.nests.searchers.ragged.joint_best import merged_space, real_space
from rackmodel.nests.searchers.ragged.ragged_counts import RaggedCounts
from rackmodel.nests.searchers.ragged.ragged_plan import RaggedPlan
from rackmodel.nests.searchers.ragged.rank_shares import shared_ratios
from rackmodel.nests.searchers.registers.box_registers import BoxSplits, box_best
from rackmodel.nests.searchers.registers.rank_splits import SplitPrices
from tests import samples
from tests.nests.machines import einsum
from tests.nests.random_nests import machine
from tests.nests.test_joint_search import ragged_rows
from tests.nests.test_registers import registers


def product(rng, choices, most):
    """A matrix product whose ranks are one to three each."""
    while True:
        classes = [[f"{c}{i}" for i in range(rng.choice([1, 2, 2, 3]))] for c in "mnk"]
        sizes = {r: rng.choice(choices) for ranks in classes for r in ranks}
        if prod(sizes.values()) <= most and any(len(ranks) > 1 for ranks in classes):
            m, n, k = (" ".join(ranks) for ranks in classes)
            return einsum("product", ("C", f"{m} {n}"), [("A", f"{m} {k}"), ("B", f"{k} {n}")], sizes)


def pieces_of(extent, tile):
    return [tile] * (extent // tile) + ([extent % tile] if extent % tile else [])


def question(p, m):
    none = NestConstraints()
    return NestQuestion(p, m, NestObjective("energy"), "ceil", none, keep_masks(p, m, none), effort=Effort(60e6))


@pytest.mark.parametrize("seed", range(samples.cases(3, 60)))
def test_no_mapping_of_all_is_below_a_bound_of_boxes(seed):
    rng = random.Random(seed)
    p = product(rng, (2, 3, 4, 5, 6, 7), rng.choice([60, 100, 300]))
    q = question(p, registers(rng, p, ((1, 1), (2, 1), (3, 2), (2, 2), (4, 1), (4, 3)), rng.choice((1.5, 3, 5))))
    best, _, _ = ceil_deep._perfect(q)
    if best is None or not (every := join_chains(q, best)) or not every.closed:
        return
    least = every.best[0][0]
    boxes = box_best(q, best)
    assert boxes.bound <= least * (1 + 1e-9)
    assert boxes.best[0][0] >= least * (1 - 1e-9)
    macs = p.macs * q.machine.compute.j_per_mac
    weights = Weights(1.0, 0.0, every.best[2].energy_j, every.best[2].latency_s)
    search = JointSearch(merged_space(q, q.masks[0]), weights, (least - macs) * 1.05)
    search.run(40)
    assert search.bound + macs <= least * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(samples.cases(6, 60)))
def test_no_ragged_mapping_is_below_programs_of_merged_ranks(seed):
    """On any machine, with atoms, some of them larger than their rank."""
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    p = product(rng, (2, 3, 4, 5, 7, 12, 13), 100_000)
    m = machine(rng, p, inner=1 + seed % 2)
    m = replace(m, compute=NestCompute(m.compute.macs_per_s, 0.5, atom={r: rng.choice([2, 3, 8]) for r in p.sizes if rng.random() < 0.4}))
    q = question(p, m)
    kept = q.masks[0]
    space = real_space(q, kept)
    found = []
    for orders in itertools.islice(itertools.product(*(space.orders(level) for level in range(1, space.depth))), 4):
        plan = RaggedPlan(space, orders)
        rows = ragged_rows(plan, numbers, 800)
        rows = plan.shrunk(rows) if len(rows) else rows
        rows = rows[plan.fits(rows)] if len(rows) else rows
        if len(rows):
            energy, times = RaggedCounts(plan, rows).cost(True)
            found.append((np.broadcast_to(energy, len(rows)), np.broadcast_to(np.max(times, axis=0), len(rows))))
    if not found:
        return
    macs = p.macs * 0.5
    energy, time = (np.concatenate(column) for column in zip(*found, strict=True))
    for a, b in ((1.0, 0.0), (0.0, 1.0), (1.0, float(energy.min() / time.min()))):
        keys = a * (energy - macs) + b * time
        i = int(np.argmin(keys))
        search = JointSearch(merged_space(q, kept), Weights(a, b, float(energy[i]), float(time[i])), float(keys[i]) * 1.1)
        search.run(15)
        assert search.bound <= keys[i] * (1 + 1e-9)


def test_pieces_of_boxes_may_be_fewer_than_those_of_one_rank():
    """What lemma L1 lacks with ragged tiles, and why bounds of merged ranks take no chains: 5 x 2 cut to 3 x 1, then to 2 x 1."""
    five = [piece for part in pieces_of(5, 3) for piece in pieces_of(part, 2)]
    ten = [piece for part in pieces_of(10, 3) for piece in pieces_of(part, 2)]
    assert (2 * len(five), len(ten)) == (6, 7)


@pytest.mark.parametrize("sizes", [[4, 3], [6, 5], [3, 2, 4]])
def test_a_tile_that_keeps_all_parts_at_work_has_no_fewer_points(sizes):
    splits = BoxSplits(sizes, SplitPrices(1.0, 1.0, 1.0))
    of_rank = [[(s, u) for s in range(1, n + 1) for u in range(1, n + 1) if (s - 1) * u < n] for n in sizes]
    for each in itertools.product(*of_rank):
        parts, unit = prod(s for s, _ in each), prod(u for _, u in each)
        held = prod(max((s - 1) * u + 1, u) for s, u in each)
        assert splits.least_held(parts, unit) <= held
        assert np.isfinite(splits.cut(parts, unit).least[held - 1])


@pytest.mark.parametrize("sizes", [[4, 3], [6, 5], [3, 2, 4]])
def test_every_box_costs_no_less_than_what_is_said_of_its_points(sizes):
    splits = BoxSplits(sizes, SplitPrices(1.0, 0.7, 0.3))
    every = [list(itertools.product(range(1, n + 1), (1, 2, 3), range(1, n + 1))) for n in sizes]
    for each in itertools.product(*([(a, s, u) for a, s, u in some if max((s - 1) * u + 1, u) <= a] for some in every)):
        tiles = groups = units = 1
        for n, (a, s, u) in zip(sizes, each, strict=True):
            cut = pieces_of(n, a)
            dealt = [piece for part in cut for piece in pieces_of(part, s * u)]
            tiles, groups, units = tiles * len(cut), groups * len(dealt), units * sum(len(pieces_of(part, u)) for part in dealt)
        points, parts, unit = (prod(column) for column in zip(*each, strict=True))
        least = splits.cut(parts, unit).least[:points].min()
        assert least <= (tiles + 0.7 * groups + 0.3 * units) * (1 + 1e-12)


def test_numbers_of_merged_ranks_are_shared_out_to_their_parts():
    p = einsum("product", ("C", "m u n"), [("A", "m u k"), ("B", "k n")], {"m": 6, "u": 4, "n": 5, "k": 3})
    q = question(p, registers(random.Random(1), p, ((6, 2),), 3.0))
    space, merged = real_space(q, q.masks[0]), merged_space(q, q.masks[0])
    plan = RaggedPlan(space, [(0, 1, 2), (0, 1, 2)])
    tiles = {0: 12.0, 1: 5.0, 2: 3.0}
    found = list(shared_ratios(plan, merged, lambda level, node, r: tiles[r] if level == 1 else 1.0, lambda fan, r: 1.0))
    held = [
        {space.ranks[t.rank]: plan.rows_of(np.rint(one).astype(np.int64)[None])[0][i] for i, t in enumerate(plan.tiles) if t.level == 1}
        for one in found
    ]
    assert held == [{"m": 6, "u": 2, "n": 5, "k": 3}, {"m": 3, "u": 4, "n": 5, "k": 3}]
