"""Random members of a space of loop nests: drawn anew, or what the search found with something changed."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

from rackmodel.errors import RackmodelError
from rackmodel.mapper.nests.nested import Nested
from rackmodel.model.mapping import MappingSpec
from rackmodel.model.result import Result
from rackmodel.nests.evaluate import evaluate
from rackmodel.nests.mapping import LevelMapping, NestMapping, StorageNode
from tests.nests import random_nests

TRIES = 200


def changed(pick: random.Random, nest: Nested, perfect: bool) -> NestMapping:
    """The nest with a tile, an order or a part of a fan changed, one to three times over."""
    levels = list(nest.mapping.levels)
    for _ in range(pick.choice([1, 1, 2, 3])):
        at = pick.randrange(len(levels))
        level = levels[at]
        how = pick.choice(["tile", "tile", "order", "x", "y"])
        if how == "order" and at:
            nodes = list(level.nodes)
            pick.shuffle(nodes)
            tiles = [node.tile for node in level.nodes]
            levels[at] = replace(level, nodes=tuple(StorageNode(n.tensor, t) for n, t in zip(nodes, tiles, strict=True)))
        elif how == "tile" and at and level.nodes:
            levels[at] = replace(level, nodes=_retiled(pick, level, nest.problem.sizes, perfect))
        elif how in "xy":
            fan = nest.machine.levels[at].fan
            rank, limit = pick.choice(list(nest.problem.sizes)), fan.x if how == "x" else fan.y
            vector = {**getattr(level, how), rank: pick.randint(1, limit)}
            levels[at] = replace(level, **{how: {r: n for r, n in vector.items() if n > 1}})
    return replace(nest.mapping, levels=tuple(levels))


def _retiled(pick: random.Random, level: LevelMapping, sizes: dict[str, int], perfect: bool) -> tuple[StorageNode, ...]:
    at, rank = pick.randrange(len(level.nodes)), pick.choice(list(sizes))
    size = pick.choice([n for n in range(1, sizes[rank] + 1) if not perfect or sizes[rank] % n == 0])
    nodes = []
    for number, node in enumerate(level.nodes):
        tile = dict(node.tile)
        if number == at or (number < at and tile[rank] < size) or (number > at and tile[rank] > size):
            tile[rank] = size
        nodes.append(StorageNode(node.tensor, tile))
    return tuple(nodes)


def in_space(mapping: NestMapping, sizes: dict[str, int], perfect: bool, ragged_inside: bool) -> bool:
    """Whether every tile is of the space searched: divisors, or any where a rank is cut unevenly once at most."""
    if not perfect and ragged_inside:
        return True
    for rank, size in sizes.items():
        walk = [size]
        for level in mapping.levels:
            walk += [node.tile[rank] for node in level.nodes]
            walk.append(-level.spatial(rank))
        now, uneven = size, 0
        for one in walk[1:]:
            if one > 0:
                uneven, now = uneven + (now % one != 0), one
            elif one < -1:
                uneven, now = uneven + (now % -one != 0), -(-now // -one)
        if uneven > (0 if perfect else 1):
            return False
    return True


def members(result: Result, perfect: bool, count: int, pick: random.Random) -> list[MappingSpec]:
    """Random mappings of the step whose nests fit: those of the result with other nests."""
    found: list[MappingSpec] = []
    for _ in range(count * 4):
        nests: dict[str, Any] = {}
        for name, nest in result.nests.items():
            one = _one(pick, nest, perfect)
            if one is None:
                break
            nests[name] = replace(nest, mapping=one).to_dict()
        if len(nests) == len(result.nests):
            found.append(result.mapping.model_copy(update={"nests": nests}))
        if len(found) == count:
            break
    return found


def _one(pick: random.Random, nest: Nested, perfect: bool) -> NestMapping | None:
    deep = len(nest.machine.levels) > 2
    for _ in range(TRIES):
        if pick.random() < 0.6:
            made = changed(pick, nest, perfect)
        elif perfect or not deep:
            made = random_nests.mapping(pick, nest.problem, nest.machine, perfect)
        else:
            made = random_nests.divisible_mapping(pick, nest.problem, nest.machine)
        try:
            evaluate(nest.problem, nest.machine, made, frozenset(nest.resident), frozenset(nest.home))
        except RackmodelError:
            continue
        if in_space(made, nest.problem.sizes, perfect, not deep) and not any(_rising(made, rank) for rank in nest.problem.sizes):
            return made
    return None


def _rising(mapping: NestMapping, rank: str) -> bool:
    """Whether a tile is larger than the one around it."""
    tiles = [node.tile[rank] for level in mapping.levels for node in level.nodes]
    return any(b > a for a, b in pairwise(tiles))
