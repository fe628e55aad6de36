"""Energy and every time of a nest in one convex program: the least a E + b T over real sizes, and between whole numbers that are given.

As in continuous_bound, z holds logarithms: of tiles, of parts, of what a transfer serves. Here T is a number of its own, no
less than the seconds of any port, nor of the compute. What is whole in a mapping has a range (Ranges): pieces n of a rank at a node,
parts laid out s on a fan. A tile in n pieces takes the room of ceil(D / n) at least; the
fullest unit runs ceil(D / s) cycles of a rank at least, and a linear fan a whole number of waves. Derivation: docs/nest_theory.md,
section 6.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from math import exp, log, prod

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.nests.searchers.bounds.continuous_bound import Copies, Saving
from rackmodel.nests.searchers.bounds.continuous_program import ConvexProgram, Exponentials, Room, Rooms
from rackmodel.nests.searchers.bounds.joint_nest import JointNest, Net, Port
from rackmodel.nests.searchers.bounds.joint_ragged import Line, least_leaves, leaves_row, round_rows
from rackmodel.nests.searchers.bounds.joint_ranges import Key, Range, Ranges
from rackmodel.nests.searchers.bounds.joint_rows import JointRows
from rackmodel.nests.searchers.mapspace.prices import BitPrices, Component

WHOLE = frozenset({"tile", "pieces", "laid", "rounds", "waves"})
Row = tuple[list[tuple[int, float]], float]
"""Factors by number, and what their sum is at most."""
NONE = -700.0  # logarithm of a term that is not there


class JointProgram(JointRows):
    """What the programs of one choice of orders have in common, whatever the ranges. free: levels whose nodes may have any order: what a
    tensor lacks is cut as on entry, what it has as on leaving."""

    def __init__(self, nest: JointNest, orders: Sequence[tuple[int, ...]], free: frozenset[int] = frozenset()) -> None:
        self.known_lines: dict[object, list[Row]] = {}
        self.known_edges: dict[object, tuple[Array, Array]] = {}
        self.known_words: dict[object, tuple[list[Room], Rooms]] = {}
        self.known_rooms: dict[object, Rooms] = {}
        self.known_before: dict[object, Ints] = {}
        self.nets: list[Net] = []
        self.netted = nest.weights.joule > 0
        self.whose: list[int] | None = None  # of every term its tensor, while a port is told
        super().__init__(nest, orders, free)
        self.netted = False
        joules = self.constant, self.savings
        self.ports = [self._port(*port) for port in nest.ports if nest.weights.second > 0]
        self.constant, self.savings = joules
        self.ends = dict.fromkeys(self.ones, (1, 1))
        for key, at in self.index.items():
            if key[0] in WHOLE:
                self.ends[key] = round(exp(self.low[at])), round(exp(self.high[at]))
        self.chains: list[list[tuple[Key, Key]]] = [[] for _ in self.space.ranks]
        for level, r, v in self.tiles:
            self.chains[r].append((("tile", level, r, v), ("pieces", level, r, v)))

    def ordered(self, level: int, order: tuple[int, ...]) -> JointProgram:
        """The same with an order of a level that was free."""
        orders = [order if n == level else old for n, old in enumerate(self.orders)][1:]
        return JointProgram(self.nest, orders, self.free - {level})

    # -- other weights
    def under(self, nest: JointNest) -> JointProgram:
        """The same under other weights, in the same units."""
        other = copy(self)
        other.nest, other.high = nest, list(self.high)
        for key, least, most in other._sums():
            if key in self.index:
                other.high[self.index[key]] = max(least, most)
        return other

    def again(self, made: ConvexProgram, ranges: Ranges) -> ConvexProgram:
        """What `between` says of these ranges, where other weights have made it."""
        high = made.high.copy()
        for at in (self.index[key] for key, _, _ in self._sums() if key in self.index):
            high[at] = self.high[at]
        terms, slope, constant = self._costs(ranges)
        return replace(made, terms=terms, slope=slope, constant=constant, high=high)

    # -- of a program that was free
    def ranges_of(self, level: int, ranges: Ranges) -> Ranges:
        """Ranges of the program before a level had an order."""
        exits, kept = self.versions[level][1], dict[Key, Range]()
        for key, part in ranges.whole.items():
            if key[0] in ("tile", "pieces") and key[1] == level and key[3] == 1:
                r = int(str(key[2]))
                if exits[r]:
                    kept[key[0], level, r, exits[r]] = part
            else:
                kept[key] = part
        return replace(ranges, whole=kept)

    def numbers_before(self, before: JointProgram, levels: Iterable[int]) -> Ints:
        """Of every number that of the program before levels had an order: tiles are cut as soon as any node cuts them."""
        on = before.orders, before.free
        if on not in self.known_before:
            found = []
            for key in self.index:
                level = int(str(key[1])) if len(key) > 3 else -1
                cut = key[0] in ("tile", "pieces") and level in levels and key[3] != 0
                own = key[0] == "own" and level in levels
                found.append(before.index[*key[:3], 1] if cut else before.index[*key[:3], 0] if own else before.index[key])
            self.known_before[on] = np.array(found)
        return self.known_before[on]

    # -- energy
    def _moved(self, t: int, level: int, each: tuple[float, float], row: Array, words: float) -> None:
        """Words that enter a level, or that it serves, cost a number of their own but for the fresh ones."""
        fans = tuple(f for f in self.nest.fans if f < level)
        free = [at for i, on in enumerate(self.nest.owed) if on == level and (at := self.index.get(("net", level, i), -1)) >= 0]
        free = free[sum(net.level == level for net in self.nets) :]
        if self.whose is not None and each[0] > 0:
            self.whose.append(t)
        if not self.netted or not each[1] < 0 or not fans or not free:
            super()._moved(t, level, each, row, words)
            return
        self._term(each[0] + each[1], row, words)
        whole = self.space.terms[t].whole
        self.nets.append(Net(level, -each[1] * whole, row, words - log(whole), fans, free[0]))

    def _netted(self, net: Net, copies: Copies) -> Iterator[Room]:
        """With n words and K copies, as often as there are fresh ones: y >= n - chord(K), y >= least K (n / K - 1)."""
        unit, gain = net.each / self.nest.weights.joules, np.zeros(len(self.index))
        gain[net.at] = 1.0
        of = self.copies_of(Saving(1.0, net.fans))
        a, b = self.chord(Saving(1.0, net.fans), copies)
        shift = np.array([net.words + log(unit)])
        yield Room(Exponentials(net.row[None], shift), gain + unit * b * of, unit * a)
        least = prod(copies[f][0] for f in net.fans)
        yield Room(Exponentials((net.row - of)[None], shift + log(least)), gain, unit * least)

    # -- times
    def _term(self, price: float, row: Array, words: float) -> None:
        if self.whose is None:
            super()._term(price, row, words)
        elif price > 0:  # of a port: words that no tile changes are a term too, or a port's time less these might be below 0
            self.terms.append((row, words + log(price)))

    def _port(self, port: Component, prices: BitPrices) -> Port:
        self.terms, self.whose, self.savings = [], [], []
        self._priced(prices)
        unit = port.bandwidth * self.nest.weights.seconds
        rows, shifts = zip(*self.terms, strict=True) if self.terms else ([self._sum()], [NONE])
        shift = np.array(shifts) - log(unit)
        several = [self._of_fullest(port.level, t, row) for t, row in zip(self.whose, rows, strict=False)] or [(self._sum(), 0.0)]
        fullest = Exponentials(np.array([row for row, _ in several]), shift + np.array([less for _, less in several]))
        self.whose = None
        savings = tuple(replace(saving, each=saving.each / unit) for saving in self.savings)
        return Port(port.level, Exponentials(np.array(rows), shift), fullest, savings)

    def _of_fullest(self, level: int, t: int, row: Array) -> tuple[Array, float]:
        """(row, constant) of what the fullest instance of a level has of words of a tensor."""
        above = self._above(level)
        share = row + self._sum(*((("waves", f), 1.0) for f in above if f in self.linear))
        less = 0.0
        for r in range(len(self.space.ranks)):
            f = self.covered.get(r, level)
            if f >= level:
                share = share + self._sum(*((("laid", g, r), -1.0) for g in above))
                continue
            share = share + self._sum(*((("laid", g, r), -1.0) for g in above if g > f))
            if self.space.has[t, r]:
                share, less = share + self._sum((("cover", f, r), 1.0)), less - log(self.space.sizes[r])
                continue
            for child, of, v in self.own:
                pieces = self._pieces(child, r, v)[0]
                if of == r and pieces.any() and row[np.argmax(pieces)] > 0:
                    share = share - pieces + self._sum((("own", child, r, v), 1.0))
                    break
            else:
                share = share + self._sum((("laid", f, r), -1.0))
        return share, less

    def _instances(self, level: int, ranges: Ranges) -> float:
        """Instances of a level at work in a wave, at most."""
        found = 1.0
        for f in self._above(level):
            most = prod(self.range_of(("laid", f, r), ranges)[1] for r in range(len(self.space.ranks)))
            found *= min(most, self.space.machine.levels[f].fan.size)
        return found

    def _seconds(self, port: Port, ranges: Ranges) -> Room:
        """The port takes no longer than T: its words over all instances, where outputs save nothing over those that work."""
        terms, slope, constant = port.terms, self._sum((("time",), 1.0)), 0.0
        shift = terms.shift
        if port.savings:
            most = self._instances(port.level, ranges)
            shift = shift - log(most)
            for saving in port.savings:
                a, b = self.chord(saving, ranges.copies)
                constant, slope = constant + saving.each * a / most, slope + saving.each * b / most * self.copies_of(saving)
            return Room(Exponentials(terms.rows, shift), slope, constant)
        return Room(port.fullest, slope, constant)

    def _compute(self) -> Room:
        space, c = self.space, self.space.machine.compute
        row = self._sum(*((("cycles", r), 1.0) for r in range(len(space.ranks))), *((("waves", f), 1.0) for f in self.linear))
        shift = log(prod(self.nest.space.leaf) * space.problem.density / c.macs_per_s / self.nest.weights.seconds)
        return Room(Exponentials(row[None], np.array([shift])), self._sum((("time",), 1.0)), 0.0)

    # -- ranges
    def _working(self, f: int, r: int, ranges: Ranges) -> float:
        """By how much the logarithm of the parts of a rank at work may exceed that of t / y: a <= ceil(t / y), so that a - 1 < t / y."""
        least = max(2, self.range_of(("laid", f, r), ranges)[0])
        return log(2.0) * len(self.space.groups[self.space.ranks[r]]) if self.space.several(r) else log(least / (least - 1))

    def range_of(self, key: Key, ranges: Ranges) -> Range:
        """Least, most of a whole number."""
        if key in ranges.whole:
            return ranges.whole[key]
        return self.ends[key]

    def wholes(self) -> list[Key]:
        """What is whole in a mapping, tiles aside."""
        return [key for key in self.index if key[0] in WHOLE and key[0] != "tile"]

    def fresh(self, ranges: Ranges, z: Array, value: float) -> Iterator[tuple[float, tuple[int, ...]]]:
        """(what a copy of the output saves of a bound of `value`, or of a time, the fans whose copies count): all that chords bound."""
        for net in self.nets:
            copies = exp(min(700.0, float(self.copies_of(Saving(1.0, net.fans)) @ z)))
            due = net.each * (exp(min(700.0, float(net.row @ z) + net.words)) - copies) - z[net.at] * self.nest.weights.joules
            a, b = self.chord(Saving(1.0, net.fans), ranges.copies)
            yield max(0.0, due) * self.nest.weights.joule / value / max(1e-9, a + b * log(copies) - copies), net.fans
        for saving in self.savings:
            yield self.nest.weights.joule * saving.each / value, saving.fans
        for port in self.ports:
            for saving in port.savings:
                yield saving.each / self._instances(port.level, ranges), saving.fans

    def _box(self, ranges: Ranges) -> tuple[Array, Array]:
        low, high = np.array(self.low), np.array(self.high)
        for key, ends in ranges.whole.items():
            if (at := self.index.get(key, -1)) >= 0:
                low[at], high[at] = log(ends[0]), log(ends[1])
        for level, r, v in self.tiles:
            pieces, tile = ("pieces", level, r, v), ("tile", level, r, v)
            if (at := self.index.get(("leaves", r), -1)) >= 0 and (pieces in ranges.whole or tile in ranges.whole):
                (_, most), ends = self.range_of(pieces, ranges), self.range_of(tile, ranges)
                low[at] = max(low[at], log(least_leaves(self.space.sizes[r], self.nest.leaf[r], (most, ends[1]), ends[0])))
        for f in self.nest.fans:
            if (at := self.index.get(("copies", f), -1)) >= 0:
                low[at], high[at] = (log(end) for end in ranges.copies[f])
        for r, f in self.covered.items():
            at = self.index["cover", f, r]
            low[at] = max(low[at], log(-(-self.space.sizes[r] // self.range_of(("laid", f, r), ranges)[1])))
        for r, cells in enumerate(self.nest.cells):
            if (at := self.index.get(("cycles", r), -1)) >= 0:
                most = prod(self.range_of(("laid", f, r), ranges)[1] for f in self.nest.fans)
                low[at] = log(max(1, -(-cells // min(cells, most))))
        return low, np.maximum(low, high)

    def _words_on(self, ranges: Ranges) -> tuple[object, list[Room], Rooms]:
        """(what they hang on, rooms of what words take, side by side)."""
        on = ranges.copies, *(self._instances(port.level, ranges) for port in self.ports if port.savings)
        if on not in self.known_words:
            some = [room for net in self.nets for room in self._netted(net, ranges.copies)]
            some += [self._seconds(port, ranges) for port in self.ports]
            self.known_words[on] = some, Rooms.of(some, len(self.index))
        return on, *self.known_words[on]

    def moving(self, ranges: Ranges) -> Rooms:
        """What words take: of numbers of their own, of seconds."""
        return self._words_on(ranges)[2]

    def kept_within(self, ranges: Ranges) -> Rooms:
        """All there is to be kept."""
        on, some, _ = self._words_on(ranges)
        if on not in self.known_rooms:
            compute = [self._compute()] if self.nest.weights.second > 0 else []
            self.known_rooms[on] = Rooms.of([*self.rooms, *some, *compute], len(self.index))
        return self.known_rooms[on]

    def _costs(self, ranges: Ranges) -> tuple[Exponentials, Array, float]:
        """Terms, slope and constant of a E + b T."""
        weights = self.nest.weights
        slope, constant = self._sum((("time",), weights.second * weights.seconds)), self.constant * weights.joule
        for saving in self.savings:
            a, b = self.chord(saving, ranges.copies)
            constant -= weights.joule * saving.each * a
            slope = slope - weights.joule * saving.each * b * self.copies_of(saving)
        for net in self.nets:
            slope[net.at] += weights.joule * weights.joules
        shift = self.objective.shift + log(weights.joule) if weights.joule > 0 else np.full(len(self.objective.shift), NONE)
        return Exponentials(self.objective.rows, shift), slope, constant

    def between(self, ranges: Ranges) -> ConvexProgram:
        """The program of the whole numbers between these."""
        terms, slope, constant = self._costs(ranges)
        ends = [self.rows[i][1] for i in self.kept]
        for f, row in self.copy_rows.items():
            if row in self.kept:
                ends[self.kept.index(row)] += self.beyond(f, ranges.copies)
        for (f, r), row in self.working.items():
            ends[self.kept.index(row)] += self._working(f, r, ranges)
        rows, more = self._ragged(ranges)
        stacked = np.concatenate([self.stacked, rows])
        return ConvexProgram(terms, slope, constant, self.kept_within(ranges), stacked, np.concatenate([ends, more]), *self._box(ranges))

    def _ragged(self, ranges: Ranges) -> tuple[Array, Array]:
        """(rows, limits) of what ragged edges cost."""
        rows, limits = [], []
        for key in (*(("tile", *tile) for tile in self.tiles), *(("rounds", f, r) for r, f in self.dealt.items())):
            on = self._edged(key, ranges)
            if on not in self.known_edges:
                lines = self._lines(*on) or [([], 1.0)]
                units = [max((abs(factor) for _, factor in line), default=1.0) for line, _ in lines]  # none is steeper: steps go as far
                stacked = np.zeros((len(lines), len(self.index)))
                for row, (line, _), unit in zip(stacked, lines, units, strict=True):
                    for at, factor in line:
                        row[at] = factor / unit
                self.known_edges[on] = stacked, np.array([limit / unit for (_, limit), unit in zip(lines, units, strict=True)])
            rows.append(self.known_edges[on][0])
            limits.append(self.known_edges[on][1])
        return np.concatenate(rows), np.concatenate(limits)

    def edges(self, key: Key, ranges: Ranges, part: Range) -> list[Row]:
        """What ragged edges cost where a number is in a part of its range."""
        return self._lines(*self._edged(key, ranges, part))

    def _edged(self, key: Key, ranges: Ranges, part: Range | None = None) -> tuple[Key, Range, Range | None]:
        """(a tile, or the rounds of a fan and rank; its range, that of the parts laid out). part: of the key's range."""
        if key[0] == "tile":
            return key, part or self.range_of(key, ranges), None
        rounds, laid = ("rounds", *key[1:]), ("laid", *key[1:])
        ends = [part if part and own == key else self.range_of(own, ranges) if own in self.ends else (1, 1) for own in (rounds, laid)]
        return rounds, ends[0], ends[1]

    def _lines(self, key: Key, ends: Range, parts: Range | None) -> list[Row]:
        on = key, ends, parts
        if on not in self.known_lines:
            lines = self._tile_lines(key, ends) if parts is None else self._round_lines(key, ends, parts)
            self.known_lines[on] = [([(self.index[k], by) for k, by in line.items() if k in self.index], limit) for line, limit in lines]
        return self.known_lines[on]

    def _tile_lines(self, key: Key, ends: Range) -> list[Line]:
        level, r, v = (int(str(k)) for k in key[1:])
        line = leaves_row((key, ("pieces", level, r, v), ("leaves", r)), self.space.sizes[r], self.nest.leaf[r], ends)
        return [] if line is None else [line]

    def _round_lines(self, key: Key, rounds: Range, parts: Range) -> list[Line]:
        f, r = (int(str(k)) for k in key[1:])
        if self.dealt.get(r) != f or f + 1 == self.space.depth:
            return []
        keys, cover = (key, ("laid", f, r), ("tile", f + 1, r, 0)), ("cover", f, r) if r in self.covered else None
        return round_rows(keys, cover, self.space.sizes[r], rounds, parts)
