"""The vectors of a fan beside every pair that is laid out one by one, and fans whose vectors are too many to make."""

import random
import tracemalloc
from itertools import product
from math import prod

import pytest

from rackmodel.nests.constraints import NestConstraints
from rackmodel.nests.objective import NestObjective
from rackmodel.nests.problem import NestCompute, NestFan, NestLevel, NestMachine, NestProblem, NestTensor
from rackmodel.nests.searchers.ceil_deep import FEW, PAIRS, _list_space
from rackmodel.nests.searchers.contract import NestQuestion
from rackmodel.nests.searchers.mapspace.fewest_cycles import fewest_cycles
from rackmodel.nests.searchers.mapspace.list_axes import ListAxis
from rackmodel.nests.searchers.mapspace.spatial_vectors import every_vector, more_pairs, whole_vectors
from rackmodel.nests.searchers.mapspace.tile_axis import TileAxis


@pytest.mark.parametrize("seed", range(12))
def test_every_vector_and_only_where_there_are_few(seed: int) -> None:
    rnd = random.Random(seed)
    fan = NestFan(x=rnd.randint(1, 6), y=rnd.randint(1, 6))
    sizes = [rnd.randint(1, 7) for _ in range(rnd.randint(1, 3))]
    xs, ys = ([v for v in product(*(range(1, n + 1) for n in sizes)) if prod(v) <= limit] for limit in (fan.x, fan.y))
    fit = {
        tuple(a * b for a, b in zip(x, y, strict=True))
        for x, y in product(xs, ys)
        if all(a * b <= n or ((a - 1) * b < n and a * (b - 1) < n) for a, b, n in zip(x, y, sizes, strict=True))
    }
    pairs = len(xs) * len(ys)
    found = whole_vectors(fan, sizes, pairs)
    assert found is not None
    assert sorted(map(tuple, found.tolist())) == sorted(fit)
    assert whole_vectors(fan, sizes, pairs - 1) is None
    assert every_vector(fan, sizes, [[True] * len(sizes)] * 2, pairs)[3] is True
    assert every_vector(fan, sizes, [[True] * len(sizes)] * 2, pairs - 1)[3] is False


def test_a_wafers_vectors_are_not_made_to_be_thrown_away() -> None:
    """322 million pairs of a 850 x 1000 fan took 20 GB, and the least cycles of a product are those of all units anyway."""
    sizes = {"m": 4096, "k": 4096, "n": 4096}
    tensors = [NestTensor(name, indices, 16, out) for name, indices, out in (
        ("A", (("m",), ("k",)), False), ("B", (("k",), ("n",)), False), ("C", (("m",), ("n",)), True))]  # fmt: skip
    level = NestLevel("wafer", None, 0.0, 0.0, 1e12, fan=NestFan(x=850, y=1000))
    machine = NestMachine("wafer", (level,), NestCompute(850_000e9, 0.0))
    tracemalloc.start()
    least = fewest_cycles(NestProblem("product", sizes, tuple(tensors)), machine)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert least == 4096**3 / 850_000
    assert peak < 400e6


def test_lists_of_a_wafers_fan_have_fewer_parts_where_they_would_be_too_many() -> None:
    """1.7 thousand million pairs of vectors of attention's six ranks took 12.6 GiB in the first step of a search."""
    ranks = {"b": 16, "s": 2048, "g": 8, "q": 4, "e": 128, "d": 4096}
    fan = NestFan(x=850, y=1000)
    tensors = [NestTensor("Q", tuple((r,) for r in "bsgqe"), 16, True), NestTensor("X", (("b",), ("s",), ("d",)), 16, False)]
    tensors.append(NestTensor("W", tuple((r,) for r in "dgqe"), 16, False))
    core = NestLevel("core", 48e3 * 8, 0.0, 0.0, 1e11)
    machine = NestMachine("wafer", (NestLevel("edge", None, 0.0, 0.0, 1e12, fan=fan), core), NestCompute(1e9, 1e-12))
    problem = NestProblem("Q", ranks, tuple(tensors))
    axes = _listed(problem, machine)
    every = [ListAxis(n, 4).parts(fan) for n in ranks.values()]
    assert more_pairs(fan, every, [[True] * 6] * 2, PAIRS)
    assert not more_pairs(fan, [axis.parts(fan) for axis in axes], [[True] * 6] * 2, PAIRS)
    assert all({1} <= {*axis.parts(fan)} <= {*some} for axis, some in zip(axes, every, strict=True))
    small = NestProblem("P", {"d": 64, "s": 32}, _product())
    assert [axis.parts(fan) for axis in _listed(small, machine)] == [ListAxis(n, 8).parts(fan) for n in (64, 32)]


def _listed(problem: NestProblem, machine: NestMachine) -> list[TileAxis]:
    kept = (frozenset[str](), frozenset(tensor.name for tensor in problem.tensors))
    return _list_space(NestQuestion(problem, machine, NestObjective("energy"), "ceil", NestConstraints(), (kept,)), kept, FEW).axes


def _product() -> tuple[NestTensor, ...]:
    shapes = (("A", ("d",), False), ("B", ("s",), False), ("C", ("d", "s"), True))
    return tuple(NestTensor(name, tuple((r,) for r in ranks), 16, out) for name, ranks, out in shapes)
