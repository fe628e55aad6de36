"""The least energy of a matrix product on a memory, a buffer and an array of register files, every tile there is.

Each rank is lacked by one tensor, so the energy is a sum over the ranks: tiles of the buffer, groups, parts. A cell is an order of the
register files' nodes (which leaves one rank free: its parts are as large as they come), a spatial vector and the tiles u of the two
other ranks; it has a price of its own, and what the buffer costs below it is bounded by a coarse table over the groups' sizes, an order
of the buffer at a time. Cells are taken best bound first: bounded by their own tiles, then spelled out (register_cells), until none is
left below the best. Derivation: docs/nest_theory.md, section 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import permutations
from math import inf
from typing import NamedTuple, Self

import numpy as np

from rackmodel.arrays import Array, Bools, Ints
from rackmodel.nests.evaluate import evaluate
from rackmodel.nests.mapping import LevelMapping, NestMapping, StorageNode, whole_nodes
from rackmodel.nests.objective import TIE, NestObjective
from rackmodel.nests.searchers.contract import Feature, NestQuestion, features
from rackmodel.nests.searchers.effort import Exhausted
from rackmodel.nests.searchers.mapspace.prices import energy_prices
from rackmodel.nests.searchers.mapspace.spatial_vectors import at_work, every_vector, layout_of
from rackmodel.nests.searchers.registers.best_first import best_first
from rackmodel.nests.searchers.registers.product_prices import product_prices, tensor_of_rank
from rackmodel.nests.searchers.registers.rank_splits import RankSplits
from rackmodel.nests.searchers.registers.register_cells import BufferOrder, BufferTiles, Registers
from rackmodel.nests.searchers.registers.register_tables import BufferTable, grid_of
from rackmodel.nests.solution import Best, better_of
from rackmodel.once import once

VECTORS, PAIRS, TILES = 400_000, 20_000, 40_000  # spatial vectors, pairs of register tiles, tiles of a rank, up to which this is tried
FACTORS, NEAR = (1.005, 1.01, 1.02, 1.05, 1.2, 2.0, 10.0, inf), 1.03  # limits, of a bound of the whole; of a mapping that is one itself
BETWEEN = (1.1, 1.3, 1.4, 1.5, 1.7)  # further ones as long as no mapping is known: there are many cells up to twice the bound
AT_ONCE, NEARBY = 4_000_000, 50_000  # cells priced at once; of these, in one array
CHEAP = 8  # sums of two prices that take as long as a cell of a table
CELLS = 2_000  # cells bounded by tiles of their own; a search that needs more stops with its best and bound (large products take hundreds)
UNSUPPORTED = frozenset(
    {
        Feature.RESIDENT,
        Feature.HOME,
        Feature.FIXED_TILES,
        Feature.FREE_STORE,
        Feature.BYPASS,
        Feature.SUM,
        Feature.ATOM,
        Feature.LINEAR,
        Feature.WIDTH,
        Feature.HOPS,
        Feature.ENTRY_FAN,
        Feature.COMPUTE_FAN,
        Feature.MANY,
    }
)


Block = tuple[Array, Ints, Ints, Ints, Ints]
"""Cells: bound, number of the order of the buffer, number of the vector, u of the second rank, u of the last."""


class RegisterBound(NamedTuple):
    """best: (key, mapping, cost) by energy · bound: of the energy · cells: that were bounded by tiles of their own."""

    best: Best
    bound: float
    cells: int


def least_energy(q: NestQuestion, known: Best | None, perfect: bool) -> RegisterBound | None:
    """The best mapping by energy and a bound of every one's, from a known mapping on; None where the question is none of this kind, or too
    large, or nothing fits. perfect: over divisors instead of every tile. Where the effort ends first, the best and the bound so far."""
    search = RegisterSearch.of(q, perfect)
    if search is None:
        return None
    if known is not None:
        search.best = known.under(search.goal)
    return bound_of(search)


def bound_of(search: RegisterSearch) -> RegisterBound | None:
    """What a search ends with, when it is done or its effort ends; None where it has no mapping, or left something out."""
    with suppress(Exhausted):
        search.run()
    search.q.effort.late |= search.effort.late
    if search.best is None or not search.complete:
        return None
    return RegisterBound(search.best, min(search.best.primary, search.left, search.reached), search.cells)


@dataclass(frozen=True)
class Inner:
    """One order of the register files' nodes. free, second, last: the ranks that its tensors lack, in order · bits: of a word of each."""

    free: int
    second: int
    last: int
    bits: tuple[float, float, float]


class RegisterSearch:
    """The search. best: by energy, then latency · left: what was not spelled out costs at least · limit: cells above it are not looked at ·
    reached: cells below it have been."""

    @classmethod
    def of(cls, q: NestQuestion, perfect: bool) -> Self | None:
        """The search of a question that is of this kind."""
        p, levels = q.problem, q.machine.levels
        lacked = [[r for r in p.sizes if r not in t.ranks] for t in p.tensors]
        product = len(p.tensors) == 3 == len(p.sizes) and sorted(r[0] for r in lacked if len(r) == 1) == sorted(p.sizes)
        bounded = len(levels) == 3 and levels[1].capacity_bits is not None and levels[2].capacity_bits is not None
        if not product or not bounded or features(q) & UNSUPPORTED or (not perfect and max(p.sizes.values()) > TILES):
            return None
        search = cls(q, perfect)
        return search if search.complete else None

    def __init__(self, q: NestQuestion, perfect: bool) -> None:
        self.q, self.p, self.m, self.effort = q, q.problem, q.machine, q.effort.part()
        self.goal = NestObjective("energy")
        self.ranks, self.sizes = list(self.p.sizes), np.array(list(self.p.sizes.values()))
        self.tensor_of = tensor_of_rank(self.p)
        self.prices = product_prices(self.p, self.m, energy_prices(self.m))
        self.constant = self.prices.constant + self.m.compute.joules(self.p)
        self.saved, self.output = self.prices.saved, self.prices.output
        self.splits = self._splits(perfect)
        self.best: Best | None = None
        self.limit, self.left, self.reached, self.cells = inf, inf, -inf, 0
        self.laid, self.x, self.y, self.complete = self._vectors(perfect)
        self.vectors = self.laid if perfect else self._at_work()
        capacity = float(self.m.levels[1].capacity_bits or 0.0)
        self.orders = [BufferOrder(self.splits, o, self._bits(1, o), capacity) for o in self._orders(1)]
        self.tables: dict[tuple[int, int, int], BufferTable] = {}
        self.grids = [grid_of(split) for split in self.splits]

    # -- what there is
    def _splits(self, perfect: bool) -> list[RankSplits]:
        return [RankSplits(int(n), price, perfect) for n, price in zip(self.sizes, self.prices.ranks, strict=True)]

    def _bits(self, level: int, ranks: tuple[int, ...]) -> tuple[float, float, float]:
        v = self.m.levels[level]
        one, two, three = (float(v.buffers * v.bits(self.p.tensors[self.tensor_of[r]])) for r in ranks)
        return one, two, three

    def _orders(self, level: int) -> list[tuple[int, int, int]]:
        """Allowed orders of a level's nodes, each tensor by the rank that it lacks."""
        name = self.m.levels[level].name
        names = [self.p.tensors[t].name for t in self.tensor_of]
        allowed = self.q.constraints.allows_order
        every = [(a, b, 3 - a - b) for a, b in permutations(range(3), 2)]
        return [o for o in every if allowed(name, tuple(names[r] for r in o))]

    def _vectors(self, perfect: bool) -> tuple[Ints, Ints, Ints, bool]:
        limits, level = self.q.constraints.spatial, self.m.levels[1]
        allowed = [[r in limits.get((level.name, d), self.ranks) for r in self.ranks] for d in "XY"]
        s, x, y, complete = every_vector(level.fan, [int(n) for n in self.sizes], allowed, VECTORS)
        on = (self.sizes % s == 0).all(axis=1) if perfect else np.ones(len(s), dtype=bool)
        return s[on], x[on], y[on], complete

    def _at_work(self) -> Ints:
        """Every number of parts at work."""
        if not (self.complete and len(self.laid) and ((self.x > 1) & (self.y > 1)).any()):
            return self.laid
        found = at_work(self.laid, AT_ONCE)
        self.complete = found is not None
        return self.laid if found is None else found[(found <= self.sizes).all(axis=1)]

    def _layout(self, vector: int, rank: int) -> tuple[int, bool]:
        """(number of the layout of so many parts at work, whether of a rank there are more)."""
        return layout_of(self.laid, self.vectors[vector], rank)

    # -- cells
    def _pairs(self, inner: Inner) -> tuple[Ints, Ints]:
        """(u of the second rank, u of the last) that the register files hold."""
        one, two, three = inner.bits
        room = float(self.m.levels[2].capacity_bits or 0.0) - three
        last = self.splits[inner.last].tiles
        last = last[last * (one + two) <= room]
        second = self.splits[inner.second].tiles
        most = self.splits[inner.second].place((room - two * last) / (one * last)) + 1 if len(last) else np.zeros(0, dtype=int)
        rows = np.concatenate([np.arange(n) for n in most]) if len(most) else np.zeros(0, dtype=int)
        return second[rows.astype(int)], np.repeat(last, most)

    def _of_pairs(self, rank: int, s: Ints, units: Ints) -> tuple[Array, Ints]:
        """([numbers of parts, pairs] price of groups and parts at least, [vectors] which of the numbers)."""
        prices, size = self.splits[rank].prices, self.sizes[rank]
        parts, which = np.unique(s[:, rank], return_inverse=True)
        unit, of = np.unique(units, return_inverse=True)
        price = prices.group * -(-size // (parts[:, None] * unit)) + prices.part * -(-size // unit)
        return np.take(price, of, axis=1), which

    def _allowed(self, rank: int, parts: Ints, units: Ints) -> Bools:
        """Where all parts may be at work."""
        split, size = self.splits[rank], self.sizes[rank]
        return np.asarray(size % (parts * units) == 0 if split.perfect else split.least_held(parts, units) <= size)

    def _vector_prices(self, inner: Inner) -> Array:
        """[vectors] price at least of the register files: of two tiles whose product is all that they hold, as real numbers."""
        one, two, three = inner.bits
        (second, d), (last, e) = ((self.splits[r].prices, float(self.sizes[r])) for r in (inner.second, inner.last))
        s, held = self.vectors, max(1.0, (float(self.m.levels[2].capacity_bits or 0.0) - two - three) / one)
        alpha, beta = d * (second.part + second.group / s[:, inner.second]), e * (last.part + last.group / s[:, inner.last])
        return np.asarray(2 * np.sqrt(alpha * beta / held) - self.saved * s[:, self.output])

    def _floor(self, inner: Inner) -> float:
        """Energy of every mapping and of the buffer at least."""
        return self.constant + min((self._table(o, inner, 0).least for o in range(len(self.orders))), default=inf)

    def _lowest(self, inners: list[Inner]) -> float:
        """A bound of the whole, not a close one."""
        return min((self._floor(inner) + float(self._vector_prices(inner).min(initial=inf)) for inner in inners), default=inf)

    def _most(self, inner: Inner, s: Ints, us: Ints | None = None, ul: Ints | None = None) -> Array:
        """Energy up to which cells of the vectors s [..., ranks], and of the tiles us and ul where they are given, are looked at."""
        return np.full(s.shape[:-1], self.limit)

    def _filtered(self, inner: Inner, floor: float) -> tuple[Ints, Ints, Ints]:
        """(numbers of the vectors, u of the second, u of the last) that may cost no more than they may together."""
        (second, d), (last, e) = ((self.splits[r].prices, float(self.sizes[r])) for r in (inner.second, inner.last))
        most = self._most(inner, self.vectors) - floor
        vectors = np.flatnonzero(self._vector_prices(inner) <= most)
        us, ul = self._pairs(inner)
        least = 2 * np.sqrt(second.group * last.group * d * e / (float(self.m.levels[1].fan.size) * us * ul))
        own = second.part * -(-self.sizes[inner.second] // us) + last.part * -(-self.sizes[inner.last] // ul)
        saved = self.saved * self.vectors[vectors, self.output].max(initial=0)
        on = least + own - saved <= most[vectors].max(initial=-inf)
        return vectors, us[on], ul[on]

    def _table(self, order: int, inner: Inner, bucket: int) -> BufferTable:
        return once(self.tables, (order, inner.free, bucket), lambda: BufferTable(self.orders[order], inner.free, 4**bucket))

    def _cells(self, inner: Inner) -> Iterator[Block]:
        """Blocks of cells below the limit."""
        floor = self._floor(inner)
        vectors, us, ul = self._filtered(inner, floor)
        if len(us) > PAIRS:
            self.complete = False
            return
        step = max(1, AT_ONCE // max(1, len(us)))
        for i in range(0, len(vectors), step):
            some = vectors[i : i + step]
            s = self.vectors[some]
            self.effort.spend(len(some) * len(us) // CHEAP)
            rows, columns, own, most = self._few(inner, floor, s, us, ul)
            on = self._allowed(inner.second, s[rows, inner.second], us[columns])
            on &= self._allowed(inner.last, s[rows, inner.last], ul[columns])
            cells = some[rows[on]], us[columns[on]], ul[columns[on]]
            yield from self._bounded(inner, cells, own[on] + self.constant, most[on])

    def _few(self, inner: Inner, floor: float, s: Ints, us: Ints, ul: Ints) -> tuple[Ints, Ints, Array, Array]:
        """(number of the vector, number of the pair, price at least of the register files, energy up to which it is looked at) of the
        cells of the vectors s and pairs of tiles that may cost no more; some vectors at a time, which stay near the processor."""
        (second, i), (last, j) = self._of_pairs(inner.second, s, us), self._of_pairs(inner.last, s, ul)
        found: list[tuple[Ints, Ints, Array, Array]] = []
        step = max(1, NEARBY // max(1, len(us)))
        for first in range(0, len(s), step):
            now = slice(first, first + step)
            own = second[i[now]] + last[j[now]] - self.saved * s[now, self.output, None]
            most = np.broadcast_to(self._most(inner, s[now, None], us, ul), own.shape)
            rows, columns = np.nonzero(own + floor <= most)
            found.append((rows + first, columns, own[rows, columns], most[rows, columns]))
        rows, columns, own, most = (np.concatenate(column) for column in zip(*found, strict=True))
        return rows, columns, own, most

    def _bounded(self, inner: Inner, cells: tuple[Ints, Ints, Ints], own: Array, most: Array) -> Iterator[Block]:
        """Cells with what the buffer's table says of them, an order at a time; those up to `most`."""
        vectors, *units = cells
        if not len(vectors):
            return
        s = self.vectors[vectors]
        at: list[Ints] = [np.zeros(0, dtype=int)] * 3
        for rank, unit in zip((inner.second, inner.last), units, strict=True):
            low = self.splits[rank].least_held(s[:, rank], unit)
            at[rank] = np.searchsorted(self.grids[rank], np.minimum(low, self.sizes[rank]), side="right") - 1
        bucket = np.floor(np.log2(s[:, inner.free]) / 2).astype(int)
        buckets = range(int(bucket.max()) + 1)
        for order in range(len(self.orders)):
            tables = [self._table(order, inner, b) for b in buckets]
            bound = own + np.stack([t.price for t in tables])[(bucket, *(at[r] for r, _ in tables[0].grids))]
            keep = np.flatnonzero(bound <= most)
            yield bound[keep], np.full(len(keep), order), vectors[keep], units[0][keep], units[1][keep]

    # -- the search
    def run(self) -> None:
        """Leave the optimum in `best`, and in `left` what is not proven: cells up to a limit, which rises until a mapping lies below it."""
        inners = [Inner(*ranks, self._bits(2, ranks)) for ranks in self._orders(2)]
        self.reached = lowest = self._lowest(inners)
        factors = FACTORS if self.best is not None else sorted((*FACTORS, *BETWEEN))
        for factor in factors if self._known() > NEAR * lowest else (inf,):
            self.limit = min(factor * lowest, self._known()) if lowest > 0 else self._known()
            self._all(inners)
            self.reached = self.limit
            if self._known() <= self.limit:
                break

    def _known(self) -> float:
        """Energy up to which cells are looked at for the best known mapping."""
        return inf if self.best is None else self.best.primary * (1 + TIE)

    def _all(self, inners: list[Inner]) -> None:
        """Every cell below the limit, best bound first."""
        blocks = [(i, *block) for i, inner in enumerate(inners) for block in self._cells(inner)]
        if not blocks:
            return
        number = np.concatenate([np.full(len(block[1]), block[0]) for block in blocks])
        bound, orders, vectors, us, ul = (np.concatenate(column) for column in list(zip(*blocks, strict=True))[1:])
        for i in best_first(bound, np.zeros(len(bound)), self._known):
            self.reached = max(self.reached, float(bound[i]))
            self._cell(inners[number[i]], int(orders[i]), int(vectors[i]), (int(us[i]), int(ul[i])))

    def _below(self, inner: Inner, vector: int, units: tuple[int, int]) -> tuple[Registers, float]:
        """(the registers of a cell that is to be bounded, energy of what no tile of the buffer changes)."""
        self.cells += 1
        self.effort.spend(sum(len(split.tiles) for split in self.splits))
        s, unit = self.vectors[vector], [0, 0, 0]
        unit[inner.second], unit[inner.last] = units
        below = Registers(inner.free, tuple(int(n) for n in s), tuple(unit))
        return below, self.constant - self.saved * float(s[self.output])

    def _cell(self, inner: Inner, order: int, vector: int, units: tuple[int, int]) -> None:
        """Bound a cell by tiles of its own, then spell it out."""
        if self.cells == CELLS:
            raise Exhausted
        below, rest = self._below(inner, vector, units)
        known, buffer = self._known(), self.orders[order]
        if buffer.rough(below, known - rest) + rest > known or buffer.bound(below, known - rest) + rest > known:
            return
        layout, idle = self._layout(vector, buffer.ranks[2])
        below = replace(below, at_once=idle)
        found, left = buffer.best(below, known - rest)
        self.left = min(self.left, left + rest)
        if found is not None:
            mapping = self._mapping(inner, below, buffer.ranks, found, layout)
            self.best = better_of(self.best, Best.of(self.goal, mapping, evaluate(self.p, self.m, mapping)))

    def _mapping(self, inner: Inner, below: Registers, ranks: tuple[int, int, int], tiles: BufferTiles, layout: int) -> NestMapping:
        """The mapping of a cell with the tiles found."""
        a, b, c = ranks
        last = {a: tiles.c, b: tiles.x, c: tiles.b}
        nodes = {a: (int(self.sizes[a]), tiles.c, tiles.c), b: (tiles.a, tiles.a, tiles.x), c: (tiles.b,) * 3}
        units = tuple(u or -(-last[r] // below.parts[r]) for r, u in enumerate(below.units))
        return self.mapping(inner, ranks, tuple(nodes[r] for r in range(3)), units, layout)

    def mapping(
        self, inner: Inner, ranks: tuple[int, int, int], tiles: tuple[tuple[int, ...], ...], units: tuple[int, ...], layout: int
    ) -> NestMapping:
        """The mapping of tiles [ranks][nodes] of the buffer, its nodes of the tensors that lack `ranks`, and [ranks] of an instance."""
        entered = dict(enumerate(units))
        further = [entered, entered | {inner.free: 1}, entered | {inner.free: 1, inner.second: 1}]
        x, y = ({self.ranks[r]: int(n) for r, n in enumerate(v[layout]) if n > 1} for v in (self.x, self.y))
        levels = [LevelMapping(self.m.levels[0].name, whole_nodes(self.p))]
        held = [dict(enumerate(node)) for node in zip(*tiles, strict=True)]
        for level, order, nodes in ((1, ranks, held), (2, (inner.free, inner.second, inner.last), further)):
            found = tuple(
                StorageNode(self.p.tensors[self.tensor_of[r]].name, {self.ranks[i]: t for i, t in sorted(node.items())})
                for r, node in zip(order, nodes, strict=True)
            )
            levels.append(LevelMapping(self.m.levels[level].name, found, x if level == 1 else {}, y if level == 1 else {}))
        return NestMapping(self.p.name, self.m.name, tuple(levels))
