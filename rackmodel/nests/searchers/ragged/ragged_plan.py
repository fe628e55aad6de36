"""Mappings of one choice of orders as rows of whole numbers, ragged or not: many at once in one array.

A row has a number for every tile (of a rank, where a node of a level cuts it) and for every side of a fan and rank the parts laid out. A
tile is the parts below it times the next tile inwards times a ratio: rows are drawn as ratios, so that a change of a tile or of parts
moves the tiles around it along and inner ones still divide outer ones, up to the rank's end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from rackmodel.arrays import AnyArray, Array, Bools, Ints
from rackmodel.nests.mapping import LevelMapping, NestMapping, StorageNode, whole_nodes
from rackmodel.nests.searchers.mapspace.order_plan import node_versions
from rackmodel.nests.searchers.mapspace.space import Space
from rackmodel.nests.searchers.ragged.ragged_costs import Charges, charges_of


class TileOf(NamedTuple):
    """Nodes `first` to `past` of a level store this tile of a rank."""

    level: int
    first: int
    past: int
    rank: int


class PartsOf(NamedTuple):
    """Parts of a rank on a side ("X" or "Y") of a fan."""

    fan: int
    side: str
    rank: int


class RaggedPlan:
    """The rows of one Space and choice of orders; orders: from level 1 on, tensor numbers outer → inner."""

    def __init__(self, space: Space, orders: Sequence[tuple[int, ...]]) -> None:
        self.space, self.orders = space, ((), *orders)
        self.tiles = [tile for level in range(1, space.depth) for tile in self._tiles(level)]
        self.parts = [part for f in range(space.depth) for part in self._parts(f)]
        self._mix = np.random.default_rng(0).integers(1, 2**62, size=len(self.tiles) + len(self.parts))  # what mixes alike is the same
        self.least = space.least_tiles

    def _tiles(self, level: int) -> list[TileOf]:
        order, found = self.orders[level], []
        versions = node_versions(self.space, level, order)[0]
        for r in range(len(self.space.ranks)):
            starts = [j for j in range(len(order)) if j == 0 or versions[j][r] != versions[j - 1][r]]
            found += [TileOf(level, j, past, r) for j, past in zip(starts, [*starts[1:], len(order)], strict=True)]
        return found

    def _parts(self, f: int) -> list[PartsOf]:
        level, ranks = self.space.machine.levels[f], self.space.ranks
        sides = [side for side, wide in (("X", level.fan.linear or level.fan.x > 1), ("Y", level.fan.y > 1)) if wide]
        return [PartsOf(f, side, r) for side in sides for r, rank in enumerate(ranks) if rank in self.space.allowed(level.name, side)]

    @cached_property
    def charges(self) -> Charges:
        """What all rows pay."""
        return charges_of(self.space, self.orders)

    @cached_property
    def _chains(self) -> list[list[tuple[int, list[int]]]]:
        """Per rank, inner → outer: (number of a tile, numbers of the parts between it and the next one inwards)."""
        chains = []
        for r in range(len(self.space.ranks)):
            chain, below = [], self.space.depth
            for i in reversed([i for i, tile in enumerate(self.tiles) if tile.rank == r]):
                level = self.tiles[i].level
                between = [q for q, part in enumerate(self.parts, len(self.tiles)) if part.rank == r and level <= part.fan < below]
                chain.append((i, between))
                below = level
            chains.append(chain)
        return chains

    def alike(self, rows: Ints, r: int) -> tuple[Ints, Ints]:
        """(of rows that agree in a rank's tiles and parts the first, [rows] which of these each agrees with)."""
        own = [q for q, rank in enumerate([*(t.rank for t in self.tiles), *(p.rank for p in self.parts)]) if rank == r]
        _, first, which = np.unique(mixed(rows, own, self._mix), return_index=True, return_inverse=True)
        return first, which

    # -- ratios
    def rows_of(self, ratios: Ints) -> Ints:
        """[rows, numbers] of ratios of tiles, and parts."""
        rows = ratios.copy(order="K")
        for r, chain in enumerate(self._chains):
            inner: Ints = np.full(len(rows), self.least[r])
            for i, between in chain:
                inner = np.minimum(product_of(ratios, [i, *between], inner), self.space.sizes[r])
                rows[:, i] = inner
        return rows

    def shrunk(self, rows: Ints) -> Ints:
        """[rows, numbers] with every tile as small as the number of pieces of a whole tile around it allows."""
        rows = rows.copy(order="K")
        real: Array = np.asarray(rows, dtype=float, order="F")  # quotients of whole numbers this small are exact enough to be rounded up
        for r, i, outer, above in self._inwards(rows):
            group = product_of(real, above) if above else 1
            loops = np.ceil(outer / (real[:, i] * group))
            rows[:, i] = np.maximum(np.ceil(outer / (loops * group)), self.least[r])
        return rows

    def looped(self, loops: Ints) -> Ints:
        """[rows, numbers] of loops around every tile, and parts: tiles as small as these allow."""
        rows = loops.copy(order="K")
        for r, i, outer, above in self._inwards(rows):
            rows[:, i] = np.maximum(np.ceil(outer / product_of(loops, [i, *above]).astype(float)), self.least[r])
        return rows

    def loops_of(self, row: Ints) -> Ints:
        """Of a row: loops around every tile, and parts."""
        rows, loops = row[None], row.copy()
        for _, i, outer, above in self._inwards(rows):
            loops[i] = np.ceil(outer / product_of(rows, [i, *above]))[0]
        return loops

    def _inwards(self, rows: Ints) -> Iterator[tuple[int, int, Array, list[int]]]:
        """(rank, number of a tile, [rows] the extent around it as it is by then, numbers of the parts between), each rank outer → inner."""
        for r, chain in enumerate(self._chains):
            outer: Array = np.full(len(rows), float(self.space.sizes[r]))
            outermost = self.tiles[chain[-1][0]].level
            above = [q for q, part in enumerate(self.parts, len(self.tiles)) if part.rank == r and part.fan < outermost]
            for i, between in reversed(chain):
                yield r, i, outer, above
                outer, above = rows[:, i].astype(float), between

    def ratios_of(self, row: Ints | Array) -> Array:
        """The ratios of a row, as real numbers of 1 at least."""
        ratios = np.array(row, dtype=float)
        for r, chain in enumerate(self._chains):
            inner = float(self.least[r])
            for i, between in chain:
                ratios[i] = max(1.0, row[i] / (inner * np.prod(row[between])))
                inner = float(row[i])
        return ratios

    # -- what is to be had of rows
    def tile(self, rows: AnyArray, level: int, node: int, r: int) -> AnyArray:
        """[rows] of a rank at a node."""
        at = next(i for i, t in enumerate(self.tiles) if t.level == level and t.rank == r and t.first <= node < t.past)
        return rows[:, at]

    def laid(self, rows: AnyArray, fan: int, r: int) -> AnyArray:
        """[rows] parts of a rank on a fan, both sides together."""
        return product_of(rows, [q for q, p in enumerate(self.parts, len(self.tiles)) if p.fan == fan and p.rank == r])

    def fits(self, rows: Ints) -> Bools:
        """[rows] within every fan and room."""
        return self.laid_out(rows) & self.roomy(rows)

    def laid_out(self, rows: Ints) -> Bools:
        """[rows] within every fan; of ratios, too: parts are the same there."""
        found = np.ones(len(rows), dtype=bool)
        for f, level in enumerate(self.space.machine.levels):
            for side, most in (("X", level.fan.x), ("Y", level.fan.y)):
                on = [q for q, p in enumerate(self.parts, len(self.tiles)) if p.fan == f and p.side == side]
                if not level.fan.linear:
                    found &= product_of(rows, on) <= most
        return found

    def roomy(self, rows: Ints) -> Bools:
        """[rows] within every room."""
        space, found = self.space, np.ones(len(rows), dtype=bool)
        for f, level in enumerate(space.machine.levels):
            capacity = space.capacity(f)
            if capacity is None or not self.orders[f]:
                continue
            used: Array = np.zeros(len(rows))
            for j, t in enumerate(self.orders[f]):
                tiles = [self.tile(rows, f, j, r).astype(float) for r in range(len(space.ranks))]
                used = used + space.terms[t].room(tiles.__getitem__, level.buffers * level.bits(space.tensors[t]))
            found &= used <= capacity
        return found

    def seconds(self, rows: Ints) -> Array:
        """[rows] least seconds of the compute; of ratios, too."""
        space, c = self.space, self.space.machine.compute
        cycles: Array = np.ones(len(rows))
        for r, (size, u) in enumerate(zip(space.sizes, space.leaf, strict=True)):
            parts = product_of(rows, [q for q, p in enumerate(self.parts, len(self.tiles)) if p.rank == r])
            cycles = cycles * (np.ceil(-(-size // u) / parts) * u)
        for f, level in enumerate(space.machine.levels):
            if level.fan.linear:
                laid = np.prod([np.minimum(self.laid(rows, f, r), n) for r, n in enumerate(space.sizes)], axis=0)
                cycles = np.maximum(cycles, cycles * laid / level.fan.size)
        return np.asarray(cycles * space.problem.density / c.macs_per_s)

    # -- to and from mappings
    def mapping(self, row: Ints) -> NestMapping:
        """The mapping of a row."""
        space, levels = self.space, []
        for lv, level in enumerate(space.machine.levels):
            sides: dict[str, dict[str, int]] = {"X": {}, "Y": {}}
            for q, part in enumerate(self.parts, len(self.tiles)):
                if part.fan == lv and row[q] > 1:
                    sides[part.side][space.ranks[part.rank]] = int(row[q])
            nodes = tuple(
                StorageNode(space.tensors[t].name, {rank: int(self.tile(row[None], lv, j, r)[0]) for r, rank in enumerate(space.ranks)})
                for j, t in enumerate(self.orders[lv])
            )
            levels.append(LevelMapping(level.name, nodes if lv else whole_nodes(space.problem), sides["X"], sides["Y"]))
        return NestMapping(space.problem.name, space.machine.name, tuple(levels))

    def row_of(self, other: RaggedPlan, row: Ints) -> Ints:
        """The row of the tiles and parts of another plan's, node by node."""
        tiles = [other.tile(row[None], t.level, t.first, t.rank)[0] for t in self.tiles]
        return np.array([*tiles, *row[len(other.tiles) :]], dtype=np.int64)

    def row(self, mapping: NestMapping) -> Ints:
        """The row of a mapping of these orders."""
        ranks, levels = self.space.ranks, mapping.levels
        tiles = [levels[t.level].nodes[t.first].tile[ranks[t.rank]] for t in self.tiles]
        parts = [(levels[p.fan].x if p.side == "X" else levels[p.fan].y).get(ranks[p.rank], 1) for p in self.parts]
        return np.array([*tiles, *parts], dtype=np.int64)


def product_of(rows: AnyArray, columns: Sequence[int], start: AnyArray | int = 1) -> AnyArray:
    """[rows] product of some columns; of one alone it is that column itself."""
    found: AnyArray | int = start
    for q in columns:
        found = rows[:, q] if isinstance(found, int) and found == 1 else found * rows[:, q]
    return found if isinstance(found, np.ndarray) else np.full(len(rows), found, dtype=rows.dtype)


def mixed(rows: Ints, columns: Sequence[int], mix: Ints) -> Ints:
    """[rows] a number of some columns: rows that agree in these have the same."""
    found: Ints = np.zeros(len(rows), dtype=np.int64)
    for q, factor in zip(columns, mix, strict=False):
        found += rows[:, q].astype(np.int64, copy=False) * factor
    return found


def firsts(numbers: Ints) -> Ints:
    """The place of the first of all that are equal, in their order."""
    order = np.argsort(numbers)
    ranked = numbers[order]
    starts = np.flatnonzero(np.concatenate([[True], ranked[1:] != ranked[:-1]])[: len(ranked)])
    return np.sort(np.minimum.reduceat(order, starts)) if len(starts) else order


def some_of(rows: Ints, on: Ints | Bools) -> Ints:
    """Some rows, column by column in memory, as all that is done with many of them goes by columns."""
    which = np.flatnonzero(on) if on.dtype == bool else on
    return np.ascontiguousarray(rows.T).take(which, axis=1).T


def orders_of(space: Space, mapping: NestMapping) -> tuple[tuple[int, ...], ...]:
    """Orders of a mapping's nodes from level 1 on."""
    names = [t.name for t in space.tensors]
    return tuple(tuple(names.index(node.tensor) for node in level.nodes) for level in mapping.levels[1:])
