"""Spatial vectors of a fan: every product of one way to lay ranks on X and on Y, once, as it is first met."""

import random
from itertools import product
from math import prod

import pytest

from rackmodel.nests.problem import NestFan
from rackmodel.nests.searchers.mapspace.spatial_vectors import spatial_set


def sides(choices, allowed, limit):
    options = [[n for n in parts if n <= limit] if r in allowed else [1] for r, parts in choices.items()]
    return [way for way in product(*options) if prod(way) <= limit]


@pytest.mark.parametrize("seed", range(12))
def test_products_of_both_sides_come_once_in_the_order_they_are_met(seed):
    rng = random.Random(seed)
    sizes = {r: rng.choice([1, 6, 12, 36, 60, 64]) for r in "abc"[: rng.randint(1, 3)]}
    choices = {r: [d for d in range(1, n + 1) if n % d == 0] for r, n in sizes.items()}
    fan = NestFan(rng.choice([1, 4, 7, 16]), rng.choice([1, 3, 9]))
    allowed = [{r for r in choices if rng.random() < 0.7} for _ in range(2)]
    met = {}
    for y, x in product(sides(choices, allowed[1], fan.y), sides(choices, allowed[0], fan.x)):
        s = tuple(a * b for a, b in zip(x, y, strict=True))
        if all(n in parts for n, parts in zip(s, choices.values(), strict=True)):
            met.setdefault(s, (x, y))
    found = [tuple(tuple(v.get(r, 1) for r in choices) for v in one) for one in spatial_set(fan, choices, *allowed)]
    assert found == [(s, x, y) for s, (x, y) in met.items()]
