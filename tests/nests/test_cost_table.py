"""Tables made from parts of what they say: the same as without."""

import random

import numpy as np
import pytest

from rackmodel.nests.constraints import NestConstraints
from rackmodel.nests.problem import NestCompute, NestFan, NestMachine
from rackmodel.nests.searchers.effort import Effort, Exhausted
from rackmodel.nests.searchers.mapspace.fan_state import start
from rackmodel.nests.searchers.mapspace.prices import components, energy_prices
from rackmodel.nests.searchers.mapspace.space import Space
from rackmodel.nests.searchers.mapspace.stored_tensors import keep_masks
from rackmodel.nests.searchers.tables.backtrack import best_path, optimum
from rackmodel.nests.searchers.tables.cost_table import CostTable
from rackmodel.nests.searchers.tables.node_prices import PricedSpace
from tests import samples
from tests.nests.machines import edge3, einsum, gemm, level
from tests.nests.random_nests import machine, problem


def spaces(seed):
    """A random nest, and a product on three memories and two fans, whose sums many copies of the output share."""
    rng = random.Random(seed)
    p = problem(rng, 6, 100)
    m = machine(rng, p)
    sizes = {"b": rng.choice([1, 2]), "m": rng.choice([2, 4]), "n": rng.choice([3, 4]), "k": rng.choice([12, 16])}
    product = einsum("product", ("C", "b m n"), [("A", "b m k"), ("B", "b k n")], sizes)
    fan = NestFan(16, linear=rng.random() < 0.5, multicast_width=rng.choice([None, 1, 2]), reduction_width=rng.choice([None, 1]))
    memories = [
        level("DRAM", None, 10, 1e9),
        level("GLB", 16 * 300, 1, 3e9, fan),
        level("RF", 16 * rng.choice([12, 30]), 0.1, 3e9, NestFan(2)),
    ]
    deep = NestMachine("m", (*memories, level("acc", 16 * 8, 0.01, 3e9)), NestCompute(1e9, 5e-13))
    return [Space(p, m, keep_masks(p, m, NestConstraints())[0], NestConstraints()) for p, m in ((p, m), (product, deep))]


def tables(space):
    """Of joules, and of the bits of every port."""
    return [
        CostTable(space, prices) for prices in (energy_prices(space.machine), *(c.prices(space.depth) for c in components(space.machine)))
    ]


def values(space):
    return [table.value(1, start(space)) for table in tables(space)]


@pytest.mark.parametrize("seed", samples.some(range(6), 2))
@pytest.mark.parametrize(
    ("where", "name", "plain"),
    [
        (CostTable, "_fewest", lambda self, level, members: members.tolist()),
        (CostTable, "_shares", lambda *_: None),
        (PricedSpace, "_free", lambda *_: False),
    ],
)
def test_no_shorter_way_makes_a_table_other_than_it_is(seed, where, name, plain, monkeypatch):
    """Vectors that another one divides, states that differ in copies alone, levels of no price."""
    for space in spaces(seed):
        short = values(space)
        with monkeypatch.context() as patch:
            patch.setattr(where, name, plain)
            for one, other in zip(short, values(space), strict=True):
                there = np.isfinite(other)
                assert np.array_equal(np.isfinite(one), there)
                assert one[there] == pytest.approx(other[there], rel=1e-12, abs=1e-20)


def test_states_that_differ_in_copies_alone_share_what_lies_below(monkeypatch):
    made, shared = [], CostTable._shared_heads
    monkeypatch.setattr(CostTable, "_shared_heads", lambda self, *of: made.append(of) or shared(self, *of))
    values(spaces(1)[1])
    assert made


@pytest.mark.parametrize("seed", range(6))
def test_a_path_is_followed_among_the_vectors_that_have_it(seed, monkeypatch):
    for space in spaces(seed):
        for table, other in zip(tables(space), tables(space), strict=True):
            if np.isfinite(optimum(table)):
                found = best_path(table)
                with monkeypatch.context() as patch:
                    patch.setattr(CostTable, "cheapest", lambda self, level, state, x: self.picked(level - 1))
                    assert found == best_path(other)


def test_a_table_of_too_many_cells_is_left_before_any_of_them_is_priced(monkeypatch):
    """The table of 720 x 720 x 720 worked for seconds on what it would not finish."""
    p, m, priced = gemm(720, 720, 720), edge3(), []
    space = Space(p, m, keep_masks(p, m, NestConstraints())[0], NestConstraints())
    monkeypatch.setattr(CostTable, "entered", lambda self, level, *_: priced.append(level))
    with pytest.raises(Exhausted):
        optimum(CostTable(space, energy_prices(m), effort=Effort(60e6)))
    assert not priced
