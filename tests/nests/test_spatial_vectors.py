"""The vectors of a fan beside every pair that is laid out one by one, and fans whose vectors are too many to make."""

import random
import tracemalloc
from itertools import product
from math import prod

import pytest

from rackmodel.nests.problem import NestCompute, NestFan, NestLevel, NestMachine, NestProblem, NestTensor
from rackmodel.nests.searchers.mapspace.fewest_cycles import fewest_cycles
from rackmodel.nests.searchers.mapspace.spatial_vectors import every_vector, whole_vectors


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
