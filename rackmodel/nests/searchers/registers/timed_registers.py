"""The least latency, EDP or weighted sum of a matrix product on a memory, a buffer and an array of register files, every tile there is.

The cells of `registers`, where energy and seconds together decide: a cell lasts as long as its cycles, at least those of the ranks cut
directly, and as its ports. The rank that the register files leave free by their energy has parts of any size here, for other ones may last
less, or take fewer parts, at a ragged edge (timed_cells). Derivation: docs/nest_theory.md,
section 6.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, prod
from typing import Any

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.nests.evaluate import evaluate
from rackmodel.nests.objective import Key, better
from rackmodel.nests.searchers.contract import NestQuestion
from rackmodel.nests.searchers.effort import Exhausted
from rackmodel.nests.searchers.mapspace.prices import Component, components
from rackmodel.nests.searchers.mapspace.word_terms import Tally, tally_prices
from rackmodel.nests.searchers.registers.best_first import best_first
from rackmodel.nests.searchers.registers.product_prices import ProductPrices, product_prices
from rackmodel.nests.searchers.registers.rank_pieces import least_cycles
from rackmodel.nests.searchers.registers.rank_splits import RankSplits, TimedSplits
from rackmodel.nests.searchers.registers.register_cells import BufferOrder, Registers
from rackmodel.nests.searchers.registers.registers import CELLS, FACTORS, Inner, RegisterBound, RegisterSearch, bound_of
from rackmodel.nests.searchers.registers.timed_cells import FilePort, ListKey, Options, Tiles, Timing
from rackmodel.nests.searchers.registers.timed_chains import WholeCell
from rackmodel.nests.solution import Best, better_of

FEW, NEAR = 200_000, 1.05  # cells that are looked at at once; of a bound of the whole, a mapping that is a limit itself
MOST = 1e30  # times the least seconds, from which on no limit is said of them
TURNS = 3  # bounds of a cell's joules, each under the cycles that the last one leaves


def least_timed(q: NestQuestion, known: Best | None, perfect: bool) -> RegisterBound | None:
    """As `least_energy`, by any objective; the bound is of its primary key."""
    search = TimedSearch.of(q, perfect)
    if search is None:
        return None
    search.best = known
    return bound_of(search)


class TimedSearch(RegisterSearch):
    """The search. until: key of what is looked at."""

    def __init__(self, q: NestQuestion, perfect: bool) -> None:
        super().__init__(q, perfect)
        self.goal = q.objective
        self.until: Key = (inf, inf)
        self.seen: set[tuple[int, ...]] = set()
        self.lists: dict[ListKey, Options] = {}
        self.cycle = self.p.density / self.m.compute.macs_per_s
        self.timing = self._timing()
        capacity = float(self.m.levels[1].capacity_bits or 0.0)
        self.clocks = [  # [ports][orders] the buffer's bounds in seconds
            [BufferOrder(self._clock(port, perfect), o.ranks, o.bits, capacity) for o in self.orders] for port in self.timing.ports
        ]

    def _splits(self, perfect: bool) -> list[RankSplits]:
        if perfect:
            return super()._splits(perfect)
        return [TimedSplits(int(n), price, perfect) for n, price in zip(self.sizes, self.prices.ranks, strict=True)]

    def _clock(self, port: ProductPrices, perfect: bool) -> list[RankSplits]:
        return [RankSplits(int(n), r, perfect) for n, r in zip(self.sizes, port.ranks, strict=True)]

    # -- seconds
    def _timing(self) -> Timing:
        ports = components(self.m)
        outer = tuple(product_prices(self.p, self.m, c.prices(3)).scaled(1 / c.bandwidth) for c in ports if c.level < 2)
        return Timing(self.cycle, outer, tuple(self._file_port(c) for c in ports if c.level == 2))

    def _file_port(self, port: Component) -> FilePort:
        entered, fresh, mac = [], [], 0.0
        for t in self.tensor_of:
            into, at_compute = (tally_prices(self.m, port.prices(3), self.p.tensors[t], level, level + 1).words for level in (1, 2))
            entered.append(into.get(Tally.ENTERED, 0.0) / port.bandwidth)
            fresh.append((into.get(Tally.FRESH_CHILD, 0.0) + at_compute.get(Tally.FRESH_PARENT, 0.0)) / port.bandwidth)
            mac += at_compute.get(Tally.SERVED, 0.0) / port.bandwidth
        return FilePort(tuple(entered), tuple(fresh), mac)

    def _cycles(self, rank: int, s: Ints, unit: Ints | None) -> Ints:
        size = int(self.sizes[rank])
        return np.asarray(-(-size // s[..., rank]) if unit is None else least_cycles(size, s[..., rank], unit))

    def _seconds(self, s: Ints, cycles: tuple[Any, Any, Any]) -> Array:
        """At least, of vectors s [..., ranks] and cycles of every rank."""
        found = self.timing.cycle * (cycles[0] * cycles[1] * cycles[2] * 1.0)
        for port in self.timing.ports:
            found = np.maximum(found, port.of(s[..., port.output]) + sum(r.tile + r.group + r.part for r in port.ranks))
        for files in self.timing.files:
            found = np.maximum(found, files.seconds(cycles, (1.0, 1.0, 1.0)))
        return np.asarray(found)

    def _file_seconds(self, below: Registers) -> float:
        """Of the register files' ports, at least."""
        cycles = self._least_cycles(below)
        groups = [-(-int(n) // (s * u)) if u else 1 for n, s, u in zip(self.sizes, below.parts, below.units, strict=True)]
        return max((float(files.seconds(cycles, tuple(groups))) for files in self.timing.files), default=0.0)

    def _least_cycles(self, below: Registers) -> tuple[float, float, float]:
        one, two, three = (
            float(self._cycles(r, np.array(below.parts), np.array(below.units[r]) if below.units[r] else None)) for r in range(3)
        )
        return one, two, three

    # -- limits
    def _most(self, inner: Inner, s: Ints, us: Ints | None = None, ul: Ints | None = None) -> Array:
        return np.asarray(self.goal.joules(self.until, self._inner_seconds(inner, s, us, ul)))

    def _inner_seconds(self, inner: Inner, s: Ints, us: Ints | None, ul: Ints | None) -> Array:
        """Seconds at least of cells of one order of the register files."""
        unit = {inner.free: None, inner.second: us, inner.last: ul}
        one, two, three = (self._cycles(r, s, unit[r]) for r in range(3))
        return self._seconds(s, (one, two, three))

    def _slack(self, joules: float, least: float, key: Key) -> float:
        """Times the least seconds that a mapping of so many joules may last and have the key."""
        low, high = 1.0, 2.0
        while self.goal.joules(key, np.array(high * least)) >= joules:
            low, high = high, high * 2
            if high > MOST:
                return inf
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if self.goal.joules(key, np.array(middle * least)) >= joules else (low, middle)
        return high

    def _key(self) -> Key:
        """Of the best mapping known."""
        return (inf, inf) if self.best is None else self.best.key

    def _cycles_left(self, below: Registers, joules: float) -> tuple[float, ...]:
        """[ranks] cycles of a mapping of so many joules that is of interest, at most."""
        least = self._least_cycles(below)
        slack = self._slack(joules, self.cycle * prod(least), self._key())
        return tuple(n * slack for n in least)

    def _lowest_key(self, inners: list[Inner]) -> tuple[Key, float]:
        """(key, joules) that no mapping is below."""
        cycles = tuple(self._cycles(r, self.vectors, None) for r in range(3))
        seconds = self._seconds(self.vectors, (cycles[0], cycles[1], cycles[2]))
        joules = np.min([self._floor(inner) + self._vector_prices(inner) for inner in inners], axis=0)
        first, second = (np.broadcast_to(k, seconds.shape) for k in self.goal.key(joules, seconds))
        i = np.lexsort((second, first))[0]
        return (float(first[i]), float(second[i])), float(joules.min())

    # -- the search
    def run(self) -> None:
        """Leave the optimum in `best`, and in `left` and `reached` what bounds the rest."""
        inners = [Inner(*ranks, self._bits(2, ranks)) for ranks in self._orders(2)]
        if not inners or not self.orders or not len(self.vectors):
            return
        lowest, joules = self._lowest_key(inners)
        self.reached = lowest[0]
        for until in self._limits(lowest, inners):
            if not better(until, self._key()):
                until = self._key()
            self.until = until
            slack = self._slack(joules, self.cycle * float(np.prod(self.sizes.astype(float))) / self.m.levels[1].fan.size, until)
            for split in self.splits:
                split.slack = slack
            self.tables.clear()
            self.lists.clear()
            self._all(inners)
            if not self.complete:
                return
            self.reached = max(self.reached, until[0])
            if not better(until, self._key()):
                return

    def _limits(self, lowest: Key, inners: list[Inner]) -> list[Key]:
        """Keys up to which cells are looked at, rising."""
        first, second = lowest
        few = len(self.vectors) * len(self.orders) * sum(len(self._pairs(inner)[0]) for inner in inners) <= FEW
        if few or not np.isfinite(first) or first <= 0 or self._key()[0] <= NEAR * first:
            return [(inf, inf)]
        secondary = [(first, f * second) for f in FACTORS] if self.goal.name == "latency" else []
        return [*secondary, *((f * first, inf) for f in FACTORS)]

    def _all(self, inners: list[Inner]) -> None:
        """Every cell up to the limit, best bound first."""
        blocks = [(i, *block) for i, inner in enumerate(inners) for block in self._cells(inner) if len(block[0])]
        if not blocks:
            return
        number = np.concatenate([np.full(len(block[1]), block[0]) for block in blocks])
        joules, orders, vectors, us, ul = (np.concatenate(column) for column in list(zip(*blocks, strict=True))[1:])
        seconds = np.zeros(len(number))
        for i, inner in enumerate(inners):
            on = np.flatnonzero(number == i)
            seconds[on] = self._inner_seconds(inner, self.vectors[vectors[on]], us[on], ul[on])
        first, second = (np.broadcast_to(k, joules.shape) for k in self.goal.key(joules, seconds))
        for i in best_first(np.asarray(first), np.asarray(second), self._known):
            cell = (int(number[i]), int(orders[i]), int(vectors[i]), int(us[i]), int(ul[i]))
            if cell not in self.seen and better((first[i], second[i]), self._key()):
                self.reached = max(self.reached, float(first[i]))
                self.seen.add(cell)
                inner = inners[number[i]]
                units = [0, 0, 0]
                units[inner.second], units[inner.last] = int(us[i]), int(ul[i])
                below = Registers(inner.free, tuple(int(n) for n in self.vectors[vectors[i]]), tuple(units))
                self._timed(inner, int(orders[i]), int(vectors[i]), below, (float(joules[i]), float(seconds[i])))

    def _timed(self, inner: Inner, number: int, vector: int, below: Registers, least: tuple[float, float]) -> None:
        """Bound a cell by tiles of its own, then spell it out."""
        (joules, seconds), order, copies = least, self.orders[number], float(below.parts[self.output])
        rest, known = self.constant - self.saved * copies, self._key()
        if self.cells == CELLS:
            raise Exhausted
        self.cells += 1
        self.effort.spend(sum(len(split.tiles) for split in self.splits))
        joules = order.rough(replace(below, cycles=self._cycles_left(below, joules))) + rest
        if not better(self.goal.key(joules, seconds), known):
            return
        seconds = max(seconds, self._file_seconds(below))
        for port, clocks in zip(self.timing.ports, self.clocks, strict=True):
            seconds = max(seconds, clocks[number].bound(below) + port.of(copies))
        for _ in range(TURNS):
            if not better(self.goal.key(joules, seconds), known):
                return
            most = float(self.goal.joules(known, seconds)) - rest
            bound = order.bound(replace(below, cycles=self._cycles_left(below, joules)), most)
            if bound > most:
                return
            joules = max(joules, bound + rest)
        if not better(self.goal.key(joules, seconds), known):
            return
        layout, idle = self._layout(vector, order.ranks[2])
        below = replace(below, at_once=idle)
        cell = WholeCell(order, below, (self.prices, self.timing), (rest, seconds), self.goal, known, self.lists)
        self._take(inner, order, cell.best(), layout)
        first, second = self.goal.key(joules, seconds)
        if not order.b.perfect and better((first, second), self._key()):  # of divisors `best` is over every chain (L2, L3)
            found, every = cell.whole(self.effort)
            self._take(inner, order, found, layout)
            if not every:
                self.left = min(self.left, float(first))

    def _take(self, inner: Inner, order: BufferOrder, found: Tiles | None, layout: int) -> None:
        """Keep the mapping of some tiles, if it is better."""
        if found is None:
            return
        mapping = self.mapping(inner, order.ranks, found.nodes, found.units, layout)
        self.best = better_of(self.best, Best.of(self.goal, mapping, evaluate(self.p, self.m, mapping)))
