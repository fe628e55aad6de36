"""The searchers' symbolic word count: worked by hand, and equal to the definition (evaluate) on random mappings."""

import random
from dataclasses import replace
from math import prod

import numpy as np
import pytest

from rackmodel.nests.evaluate import evaluate
from rackmodel.nests.problem import NestCompute, NestFan, NestLevel, NestMachine
from rackmodel.nests.searchers.mapspace.prices import BitPrices, components, energy_prices
from rackmodel.nests.searchers.mapspace.word_terms import CHARGES, Tally, TensorTerm, tally_prices
from tests.nests.machines import gemm
from tests.nests.random_nests import SHAPES, machine, mapping, problem


def test_a_tensor_is_fetched_once_for_every_tile_of_the_ranks_it_lacks():
    """A[m, k] of 6 x 4 words, n cut into 5 tiles: 24 x 5 words; a tile of 3 x 2 takes 6 words of room."""
    term = TensorTerm.of(24.0, [True, True, False])
    assert term.words({2: 5.0}.__getitem__) == 120.0
    assert term.room({0: 3.0, 1: 2.0}.__getitem__) == 6.0
    assert term.room({0: 3.0, 1: 2.0}.__getitem__, 16) == 96.0
    assert np.array_equal(term.words({2: np.array([1.0, 5.0])}.__getitem__), [24.0, 120.0])


def test_a_sum_of_indices_counts_its_halo():
    """I[p + r], p = 4 in 2 tiles of 2, r = 3 whole: two tiles of 1 + 1 + 2 = 4 words, against 6 words of all of it."""
    term = TensorTerm(1.0, (), (), (((1, 0), (1, 1)),))
    assert term.words(lambda r: 1.0, {0: 2.0, 1: 1.0}.__getitem__, (4, 3)) == 8.0
    assert term.words(lambda r: 1.0, {0: 1.0, 1: 1.0}.__getitem__, (4, 3)) == 6.0
    assert term.room({0: 2.0, 1: 3.0}.__getitem__) == 4.0


def test_more_tiles_of_a_strided_rank_may_be_fewer_words():
    """A[2 p], p = 9: three tiles of 3 span 5 words each, 15; tiles of 3, 1, 3, 1, 1 span 13; nine of one element 9, and no tiles fewer.
    Beside a kernel of r = 3 that is whole they overlap, and fewer tiles are fewer words: 2 x 9 + (3 - 2) n; r cut in 3 leaves gaps."""
    lone, kernel = (((2, 0),),), (((2, 0), (1, 1)),)

    def words(sums, counts, sizes, least):
        return TensorTerm(1.0, (), (), sums, least).words(lambda r: 1.0, counts.__getitem__, sizes)

    assert words(lone, {0: 3.0}, (9,), False) == 15.0
    assert words(lone, {0: 5.0}, (9,), False) == 13.0
    assert words(lone, {0: 3.0}, (9,), True) == 9.0
    assert words(kernel, {0: 3.0, 1: 1.0}, (9, 3), True) == words(kernel, {0: 3.0, 1: 1.0}, (9, 3), False) == 21.0
    assert words(kernel, {0: 3.0, 1: 3.0}, (9, 3), False) == 3 * 15.0
    assert words(kernel, {0: 3.0, 1: 3.0}, (9, 3), True) == 3 * 9.0


def test_an_output_is_written_read_drained_and_refilled_but_for_its_fresh_words():
    """16-bit words above, 32-bit words below: each tally carries the bits and prices of its actions."""
    up = NestLevel("up", read_j_per_bit=2.0, write_j_per_bit=3.0, fan=NestFan(4))
    low = NestLevel("low", None, 0.5, 0.25, bits_per_tensor={"C": 32})
    m = NestMachine("m", (up, low), NestCompute(1.0))
    out = gemm(2, 2, 2).output
    found = tally_prices(m, energy_prices(m), out, 0, 1)
    assert found.words == {
        Tally.SERVED: 16 * (3.0 + 2.0),
        Tally.FRESH_PARENT: -16 * 2.0,
        Tally.ENTERED: 32 * (0.5 + 0.25),
        Tally.FRESH_CHILD: -32 * 0.25,
    }
    assert found.hops == {Tally.CROSSED: 2 * 16, Tally.FRESH_CROSSED: -16}
    assert tally_prices(m, energy_prices(m), out, 1, 2).words == {Tally.SERVED: 32 * 0.75, Tally.FRESH_PARENT: -32 * 0.5}
    reads = BitPrices((1.0, 0.0), (0.0, 0.0), (0.0, 0.0))
    assert tally_prices(m, reads, out, 0, 1).words == {Tally.SERVED: 16.0, Tally.FRESH_PARENT: -16.0}


def test_every_action_is_charged_once_for_each_kind_of_tensor():
    for (out, home), charges in CHARGES.items():
        actions = [(c.where, c.action) for c in charges]
        assert len(set(actions)) == len(actions)
        assert ("fan", "hop") in actions
        assert ("parent", "read") in actions or home
        assert (("parent", "write") in actions) == (out and not home)


@pytest.mark.parametrize("seed", range(80))
def test_terms_equal_the_evaluation_of_random_perfect_mappings(seed):
    """Energy, and the bits through every port, from tallies of closed form: |T| x prod of tile counts, over q, times copies."""
    rng = random.Random(seed)
    p = problem(rng, limit=400, shapes=SHAPES[:6])
    m = machine(rng, p, options=True)
    fans = [replace(v.fan, multicast_width=None, reduction_width=None) for v in m.levels]
    m = replace(m, levels=tuple(replace(v, capacity_bits=None, fan=f) for v, f in zip(m.levels, fans, strict=True)))
    chosen = mapping(rng, p, m, perfect=True)
    cost, depth, ranks = evaluate(p, m, chosen), len(m.levels), list(p.sizes)
    parts = [{r: v.spatial(r) for r in ranks} for v in chosen.levels]
    tiles = [{n.tensor: n.tile for n in v.nodes} for v in chosen.levels] + [{t.name: dict.fromkeys(ranks, 1) for t in p.tensors}]

    def total(prices):
        found = 0.0
        for t in p.tensors:
            term = TensorTerm.of(float(t.tile_words(p.sizes)), [r in t.ranks for r in ranks])
            lacks = [r for r in ranks if r not in t.ranks]
            for parent in range(depth):
                tile, q = tiles[parent + 1][t.name], prod(parts[parent][r] for r in lacks)
                entered = term.words(lambda r, tile=tile: p.sizes[ranks[r]] / tile[ranks[r]])
                copies = [prod(parts[f][r] for f in range(level) for r in lacks) for level in (parent, parent + 1)]
                tallies = {Tally.ENTERED: entered, Tally.SERVED: entered / q, Tally.CROSSED: entered}
                tallies |= {Tally.FRESH_PARENT: term.whole * copies[0], Tally.FRESH_CHILD: term.whole * copies[1]}
                tallies[Tally.FRESH_CROSSED] = term.whole * copies[1]
                found += tally_prices(m, prices, t, parent, parent + 1).total(tallies, prices.hop[parent])
        return found

    assert total(energy_prices(m)) + cost.compute_j == pytest.approx(cost.energy_j, rel=1e-12)
    for port in components(m):
        instances = prod(prod(v.values()) for v in parts[: port.level])
        assert total(port.prices(depth)) / instances / port.bandwidth == pytest.approx(cost.times_s[port.name], rel=1e-12)
