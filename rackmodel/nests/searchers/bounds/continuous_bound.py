"""Lower bound for tiles of any size on any machine: sizes and parts may be any real numbers.

With z the logarithm of every tile and of every number of parts, words are exp of sums of z, room is a sum of exp, nesting
is linear: a convex program for every choice of orders (continuous_program). A count n_r of tiles is at least D_r / tile.
What fresh outputs save, - c exp(K) with K the logarithm of the copies, is bounded by its chord over a range of copies; ranges
are halved where that matters. Derivation: docs/nest_theory.md, section 6.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from math import ceil, exp, inf, log, prod

import numpy as np

from rackmodel.arrays import Array
from rackmodel.nests.searchers.bounds.continuous_program import ConvexProgram, Exponentials, Room, Rooms
from rackmodel.nests.searchers.bounds.program_ascent import Ascent, rise
from rackmodel.nests.searchers.effort import Effort
from rackmodel.nests.searchers.mapspace.order_plan import node_versions
from rackmodel.nests.searchers.mapspace.prices import BitPrices
from rackmodel.nests.searchers.mapspace.space import Space
from rackmodel.nests.searchers.mapspace.word_terms import Tally, TallyPrices, tally_prices
from rackmodel.once import once

WORK, TOGETHER = 700, 32  # bounds raised, or ranges halved; lowest ones that rise together
EXACT = 1e-5  # of the bound: what a chord may leave open
Copies = tuple[tuple[int, int], ...]  # per fan: least, most copies of the output


@dataclass(frozen=True)
class Transfer:
    """Words of a tensor from a level to the next that keeps it. entered, served, crossed (of every fan between): rows of their
    logarithms, each and a constant."""

    tensor: int
    parent: int
    child: int
    entered: Array
    served: Array
    crossed: tuple[Array, ...]
    words: float


@dataclass(frozen=True)
class Saving:
    """What fresh outputs save at a level: joules (or bits) a copy, and the fans whose copies multiply."""

    each: float
    fans: tuple[int, ...]


class ContinuousNest:
    """The programs of one Space under one price."""

    def __init__(self, space: Space, prices: BitPrices) -> None:
        self.space, self.prices = space, prices
        self.leaf = space.least_tiles
        self.lacks = [[r for r in range(len(space.ranks)) if not space.has[t, r]] for t in range(len(space.tensors))]
        self.fans = [f for f, v in enumerate(space.machine.levels) if v.fan.size > 1 or v.fan.linear]
        self._tallies: dict[tuple[BitPrices, int, int, int], TallyPrices] = {}

    def tallies(self, prices: BitPrices, t: int, parent: int, child: int) -> TallyPrices:
        """What a word of a transfer costs."""
        key = prices, t, parent, child
        return once(self._tallies, key, lambda: tally_prices(self.space.machine, prices, self.space.tensors[t], parent, child))

    def bound(self, known: float, effort: Effort | None = None) -> float:
        """Least price of the whole nest at least, without the MACs; what reaches `known`, the price of some mapping, is not made better.

        The lowest bounds are raised, or their ranges halved, until nothing raises the lowest or work ends.
        """
        every = tuple((1, self._most(f)) for f in range(self.space.depth))
        orders = list(self.space.all_orders())
        leaves = [self._leaf(o, every, known) for o in orders]
        rise([leaf.ascent for leaf in leaves])
        work = 0
        while leaves and work < WORK and not (effort is not None and effort.over):
            leaves.sort(key=lambda leaf: leaf.ascent.value)
            lowest = [leaf for leaf in leaves[:TOGETHER] if leaf.ascent.value < known]
            halves = {id(leaf): self._halves(leaf, known) for leaf in lowest if leaf.ascent.tight}
            if not lowest or (lowest[0].ascent.tight and not halves[id(lowest[0])]):
                break  # the lowest is all that is to be had
            new = [half for parts in halves.values() for half in parts]
            rise([leaf.ascent for leaf in (*(leaf for leaf in lowest if not leaf.ascent.tight), *new)])
            leaves = [*(leaf for leaf in leaves if not halves.get(id(leaf))), *new]
            work += len(lowest)
        least = min((leaf.ascent.value for leaf in leaves), default=inf)
        return least - 1e-9 * abs(least) if least < inf else least

    def _halves(self, leaf: Leaf, known: float) -> list[Leaf]:
        """A leaf with the range of copies halved that its bound suffers from; none where it suffers from none."""
        loose = leaf.loose()
        if loose is None:
            return []
        fan, middle = loose
        low, high = leaf.made.copies[fan]
        parts = [(*leaf.made.copies[:fan], part, *leaf.made.copies[fan + 1 :]) for part in ((low, middle), (middle + 1, high))]
        return [self._leaf(leaf.made.orders[1:], part, known, leaf) for part in parts]

    def _leaf(self, orders: Sequence[tuple[int, ...]], copies: Copies, known: float, whole: Leaf | None = None) -> Leaf:
        """whole: what this is a part of."""
        made = Relaxed(self, orders, copies) if whole is None else whole.made.narrowed(copies)
        scale = max(abs(known), 1e-300)
        return Leaf(made, Ascent(made.program(), scale, -inf if whole is None else whole.ascent.value))

    def _most(self, fan: int) -> int:
        """Copies of the output that a fan may make."""
        if fan not in self.fans:
            return 1
        f, lacked = self.space.machine.levels[fan].fan, self.lacks[self.space.output]
        parts = prod(ceil(self.space.sizes[r] / self.leaf[r]) for r in lacked)
        return max(1, parts if f.linear else min(parts, f.size))


@dataclass(frozen=True)
class Leaf:
    """One choice of orders and ranges of copies, with its bound."""

    made: Relaxed
    ascent: Ascent

    def loose(self) -> tuple[int, int] | None:
        """(the fan whose range is to be halved, after how many copies); None where every chord is near what it bounds."""
        made, z = self.made, self.ascent.at
        worst, where = EXACT * abs(self.ascent.value), None
        for saving in made.savings:
            now = float(made.copies_of(saving) @ z)
            a, b = made.chord(saving)
            error = saving.each * (a + b * now - exp(min(now, 700.0)))
            wide = [f for f in saving.fans if made.copies[f][1] > made.copies[f][0]]
            if error > worst and wide:
                fan = max(wide, key=lambda f: made.copies[f][1] / made.copies[f][0])
                low, high = made.copies[fan]
                middle = round(exp(min(700.0, float(z[made.index["copies", fan]]))))
                worst, where = error, (fan, min(high - 1, max(low, middle)))
        return where


class Relaxed:
    """The program of one choice of orders and ranges of copies."""

    def __init__(self, nest: ContinuousNest, orders: Sequence[tuple[int, ...]], copies: Copies) -> None:
        self.nest, self.space, self.copies = nest, nest.space, copies
        self.orders = ((), *orders)
        self.versions = [self._versions_at(level, order) if level else ([], []) for level, order in enumerate(self.orders)]
        self.index: dict[tuple[object, ...], int] = {}
        self.low: list[float] = []
        self.high: list[float] = []
        self.terms: list[tuple[Array, float]] = []
        self.constant = 0.0
        self.savings: list[Saving] = []
        self._variables()
        self.rows: list[tuple[Array, float]] = []
        self.copy_rows: dict[int, int] = {}
        self._nesting()
        self._parts()
        self._priced(nest.prices)
        rows, shifts = zip(*self.terms, strict=True) if self.terms else ([self._sum()], [-700.0])
        self.kept = [i for i, (row, _) in enumerate(self.rows) if row.any()]
        self.stacked: Array = np.array([self.rows[i][0] for i in self.kept]).reshape(-1, len(self.index))
        self.objective, self.rooms = Exponentials(np.array(rows), np.array(shifts)), list(self._rooms())
        self.stacked_rooms = Rooms.of(self.rooms, len(self.index))

    def narrowed(self, copies: Copies) -> Relaxed:
        """The same with other ranges of copies."""
        other = copy(self)
        other.copies, other.low, other.high, other.rows = copies, list(self.low), list(self.high), list(self.rows)
        for f in self.nest.fans:
            at = self.index["copies", f]
            other.low[at], other.high[at] = log(copies[f][0]), log(copies[f][1])
            other.rows[self.copy_rows[f]] = other.rows[self.copy_rows[f]][0], other.beyond(f)
        return other

    def _versions_at(self, level: int, order: tuple[int, ...]) -> tuple[list[list[int]], list[int]]:
        """(of every node of a level the version of every rank's tile, those below the last node)."""
        return node_versions(self.space, level, order)

    # -- variables
    def _add(self, key: tuple[object, ...], low: float, high: float) -> None:
        self.index[key] = len(self.index)
        self.low.append(low)
        self.high.append(max(low, high))

    def _variables(self) -> None:
        space, nest = self.space, self.nest
        for level in range(1, space.depth):
            for r, exit_ in enumerate(self.versions[level][1]):
                for v in range(exit_ + 1):
                    self._add(("tile", level, r, v), log(nest.leaf[r]), log(space.sizes[r]))
        for f in nest.fans:
            fan = space.machine.levels[f].fan
            for r in range(len(space.ranks)):
                self._add(("parts", f, r), 0.0, self._most_parts(f, r))
            for t, tensor in enumerate(space.tensors):
                width = fan.reduction_width if tensor.is_output else fan.multicast_width
                self._add(("served", f, t), 0.0, log(width) if width else log(prod(space.sizes)))
            self._add(("copies", f), log(self.copies[f][0]), log(self.copies[f][1]))

    def _most_parts(self, f: int, r: int) -> float:
        """Logarithm of the parts of a rank on a fan, at most."""
        space, level = self.space, self.space.machine.levels[f]
        sides = ("X",) if level.fan.linear else ("X", "Y")
        if not any(space.ranks[r] in space.allowed(level.name, side) for side in sides):
            return 0.0
        most = space.sizes[r] / self.nest.leaf[r]
        return log(max(1.0, most if level.fan.linear else min(most, level.fan.size)))

    def _sum(self, *keys: tuple[tuple[object, ...], float]) -> Array:
        row = np.zeros(len(self.index))
        for key, factor in keys:
            if (at := self.index.get(key)) is not None:
                row[at] += factor
        return row

    def _tile(self, level: int, r: int, version: int) -> tuple[Array, float]:
        """A tile's logarithm as (row, constant); level 0: the whole rank, past the memories: the leaf."""
        if level == 0:
            return self._sum(), log(self.space.sizes[r])
        if level == self.space.depth:
            return self._sum(), log(self.nest.leaf[r])
        return self._sum((("tile", level, r, version), 1.0)), 0.0

    def _pieces(self, level: int, r: int, version: int) -> tuple[Array, float]:
        """The logarithm of the number of tiles of a rank, at least."""
        row, constant = self._tile(level, r, version)
        return -row, log(self.space.sizes[r]) - constant

    # -- constraints
    def _nesting(self) -> None:
        space = self.space
        for level in range(space.depth):
            for r in range(len(space.ranks)):
                exit_ = self.versions[level][1][r] if level else 0
                for v in range(exit_):
                    (a, x), (b, y) = self._tile(level, r, v + 1), self._tile(level, r, v)
                    self.rows.append((a - b, y - x))
                (a, x), (b, y) = self._tile(level + 1, r, 0), self._tile(level, r, exit_)
                self.rows.append((a + self._sum((("parts", level, r), 1.0)) - b, y - x))

    def _parts(self) -> None:
        space, ranks = self.space, range(len(self.space.ranks))
        for f in self.nest.fans:
            fan = space.machine.levels[f].fan
            if not fan.linear:
                self.rows.append((self._sum(*((("parts", f, r), 1.0) for r in ranks)), log(fan.size)))
            for t in range(len(space.tensors)):
                copies = ((("parts", f, r), -1.0) for r in self.nest.lacks[t])
                self.rows.append((self._sum((("served", f, t), 1.0), *copies), 0.0))
            lacked = self.nest.lacks[space.output]
            self.copy_rows[f] = len(self.rows)
            self.rows.append((self._sum((("copies", f), 1.0), *((("parts", f, r), -1.0) for r in lacked)), self.beyond(f)))

    def beyond(self, f: int, copies: Copies | None = None) -> float:
        """By how much the copies' logarithm may exceed that of the parts, as real numbers."""
        lacked, least = self.nest.lacks[self.space.output], (copies or self.copies)[f][0]
        return log(least / (least - 1)) if len(lacked) == 1 and least > 1 else len(lacked) * log(2.0)

    def _rooms(self) -> Iterator[Room]:
        space = self.space
        for level in range(1, space.depth):
            capacity = space.capacity(level)
            if not capacity or not self.orders[level]:
                continue
            rows, shifts = [], []
            for j, t in enumerate(self.orders[level]):
                v = space.machine.levels[level]
                row, shift = self._sum(), log(v.buffers * v.bits(space.tensors[t]) / capacity)
                for r in (*space.terms[t].has, *(index[0][1] for index in space.terms[t].sums)):
                    add, more = self._tile(level, r, self._version_of_room(level, j, r))
                    row, shift = row + add, shift + more
                rows.append(row)
                shifts.append(shift)
            yield Room(Exponentials(np.array(rows), np.array(shifts)), self._sum(), 1.0)

    def _version_of_room(self, level: int, node: int, r: int) -> int:
        """Of a rank's tile, that takes room at a node."""
        return self.versions[level][0][node][r]

    # -- the objective
    @cached_property
    def _transfers(self) -> list[Transfer]:
        """Of every tensor, from where it is kept to where it is kept next."""
        space, found = self.space, []
        for t in range(len(space.tensors)):
            kept = [level for level in range(space.depth) if level == 0 or t in self.orders[level]]
            for parent, child in zip(kept, [*kept[1:], space.depth], strict=True):
                row, words = self._words(t, child)
                crossed = tuple(row + self._shared(t, f + 1, child) for f in range(parent, child))
                found.append(Transfer(t, parent, child, row, row + self._shared(t, parent, child), crossed, words))
        return found

    def _priced(self, prices: BitPrices) -> None:
        """Terms of all transfers."""
        for one in self._transfers:
            p = self.nest.tallies(prices, one.tensor, one.parent, one.child)
            into = one.child, (p.words.get(Tally.ENTERED, 0.0), p.words.get(Tally.FRESH_CHILD, 0.0)), one.entered
            out = one.parent, (p.words.get(Tally.SERVED, 0.0), p.words.get(Tally.FRESH_PARENT, 0.0)), one.served
            over = []
            for f, row in enumerate(one.crossed, one.parent):
                hop = prices.hop[f]
                over.append((f + 1, (p.hops.get(Tally.CROSSED, 0.0) * hop, p.hops.get(Tally.FRESH_CROSSED, 0.0) * hop), row))
            for level, each, row in (into, out, *over):
                if any(each):
                    self._moved(one.tensor, level, each, row, one.words)

    def _moved(self, t: int, level: int, each: tuple[float, float], row: Array, words: float) -> None:
        """Words at a price, and at another (<= 0) of those of them that are fresh in the instances of a level."""
        self._term(each[0], row, words)
        self._save(t, each[1], level)

    def _words(self, t: int, child: int) -> tuple[Array, float]:
        """Logarithm of the words of a tensor that enter a level, at least; of a sum of indices its longest rank."""
        space = self.space
        row = self._sum()
        words = log(space.terms[t].whole) + sum(log(max(space.sizes[r] for _, r in index)) for index in space.terms[t].sums)
        j = self.orders[child].index(t) if child < space.depth else 0
        for r in self.nest.lacks[t]:
            more, fixed = self._pieces(child, r, self.versions[child][0][j][r] if child < space.depth else 0)
            row, words = row + more, words + fixed
        return row, words

    def _shared(self, t: int, parent: int, child: int) -> Array:
        return self._sum(*((("served", f, t), -1.0) for f in range(parent, child)))

    def _term(self, price: float, row: Array, words: float) -> None:
        if price > 0 and row.any():
            self.terms.append((row, words + log(price)))
        elif price > 0:
            self.constant += price * exp(words)

    def _save(self, t: int, price: float, level: int) -> None:
        """- price x whole x copies over the fans above a level (price <= 0)."""
        if price < 0:
            fans = tuple(f for f in self.nest.fans if f < level)
            self.savings.append(Saving(-price * self.space.terms[t].whole, fans))

    def copies_of(self, saving: Saving) -> Array:
        """Row of the logarithm of the copies."""
        return self._sum(*((("copies", f), 1.0) for f in saving.fans))

    def chord(self, saving: Saving, copies: Copies | None = None) -> tuple[float, float]:
        """(a, b) with exp(K) <= a + b K over the range of copies."""
        low, high = (prod((copies or self.copies)[f][end] for f in saving.fans) for end in (0, 1))
        rise = (high - low) / log(high / low) if high > low else 0.0
        return low - rise * log(low), rise

    def program(self) -> ConvexProgram:
        """The whole."""
        slope, constant = np.zeros(len(self.index)), self.constant
        for saving in self.savings:
            a, b = self.chord(saving)
            constant -= saving.each * a
            slope -= saving.each * b * self.copies_of(saving)
        ends = np.array([self.rows[i][1] for i in self.kept], dtype=float)
        box = np.array(self.low), np.array(self.high)
        return ConvexProgram(self.objective, slope, constant, self.stacked_rooms, self.stacked, ends, *box)
