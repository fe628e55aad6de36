"""Energy and every time of a nest in one convex program: the least a E + b T over real sizes, and between whole numbers that are given.

As in continuous_bound, z holds logarithms: of tiles, of parts, of what a transfer serves. Here T is a number of its own, no
less than the seconds of any port, nor of the compute. What is whole in a mapping has a range (Ranges): pieces n of a rank at a node,
parts laid out s on a fan. A tile in n pieces takes the room of ceil(D / n) at least; the
fullest unit runs ceil(D / s) cycles of a rank at least, and a linear fan a whole number of waves. Derivation: docs/nest_theory.md,
section 6.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from math import exp, log, prod

import numpy as np

from rackmodel.nests.arrays import Floats, Ints
from rackmodel.nests.searchers.bounds.continuous_bound import ContinuousNest, Copies, Relaxed, Saving
from rackmodel.nests.searchers.bounds.continuous_program import ConvexProgram, Exponentials, Room, Rooms
from rackmodel.nests.searchers.bounds.joint_ragged import Line, least_leaves, leaves_row, round_rows
from rackmodel.nests.searchers.bounds.joint_ranges import Key, Range, Ranges, Weights
from rackmodel.nests.searchers.mapspace.fewest_cycles import fewest_cycles
from rackmodel.nests.searchers.mapspace.prices import BitPrices, Component, components, energy_prices
from rackmodel.nests.searchers.mapspace.space import Space
from rackmodel.nests.searchers.mapspace.word_terms import Tally

SLOWEST = 2.0  # times the seconds of the mapping that is known: T where it is worth nothing
WHOLE = frozenset({"tile", "pieces", "laid", "rounds", "waves"})
Row = tuple[list[tuple[int, float]], float]
"""Factors by number, and what their sum is at most."""
NONE = -700.0  # logarithm of a term that is not there


class JointNest(ContinuousNest):
    """The programs of one Space under weights of energy and time. parted: ranks whose parts are numbers of their own, for copies of the
    output are their product · shared: the same of what a transfer may serve."""

    def __init__(self, space: Space, weights: Weights) -> None:
        super().__init__(space, energy_prices(space.machine))
        self.weights = weights
        self.fastest = fewest_cycles(space.problem, space.machine) * space.problem.density / space.machine.compute.macs_per_s
        self.cells = [-(-n // u) for n, u in zip(space.sizes, self.leaf, strict=True)]
        lacked = self.lacks[space.output]
        self.parted = frozenset(lacked if len(lacked) > 1 else ())
        self.shared = frozenset(r for some in self.lacks if len(some) > 1 for r in some)
        self.owed = self._owed()
        self.ports = [(port, port.prices(space.depth)) for port in components(space.machine)]

    def _owed(self) -> list[int]:
        """Levels of transfers of the output of which fresh words are left out, one for each."""
        space, output = self.space, self.space.output
        kept = [level for level in range(space.depth) if level == 0 or output in space.stored(level)]
        found = []
        for parent, child in zip(kept, [*kept[1:], space.depth], strict=True):
            p = self.tallies(self.prices, output, parent, child)
            each = [(child, p.words.get(Tally.FRESH_CHILD, 0.0)), (parent, p.words.get(Tally.FRESH_PARENT, 0.0))]
            each += [(f + 1, p.hops.get(Tally.FRESH_CROSSED, 0.0) * self.prices.hop[f]) for f in range(parent, child)]
            found += [level for level, price in each if price < 0 and level in kept[1:] and any(f < level for f in self.fans)]
        return found

    def ranges(self) -> Ranges:
        """Every mapping's."""
        return Ranges(tuple((1, self._most(f)) for f in range(self.space.depth)))


@dataclass(frozen=True)
class Net:
    """Words that cost `each` but for the fresh ones. level: that they enter, or that serves them · row, words: their logarithm · fans:
    whose copies are fresh · at: number of what they cost."""

    level: int
    each: float
    row: Floats
    words: float
    fans: tuple[int, ...]
    at: int


@dataclass(frozen=True)
class Port:
    """Seconds of a port, in units of those known: terms of the words of all instances, and of the fullest one, and what fresh outputs
    save · level: whose instances share it."""

    level: int
    terms: Exponentials
    fullest: Exponentials
    savings: tuple[Saving, ...]


class JointProgram(Relaxed):
    """What the programs of one choice of orders have in common, whatever the ranges. free: levels whose nodes may have any order: what a
    tensor lacks is cut as on entry, what it has as on leaving."""

    nest: JointNest

    def __init__(self, nest: JointNest, orders: Sequence[tuple[int, ...]], free: frozenset[int] = frozenset()) -> None:
        self.free = free
        self.ones: list[Key] = []  # what is 1 in every mapping: no numbers of the program
        self.known_lines: dict[object, list[Row]] = {}
        self.known_edges: dict[object, tuple[Floats, Floats]] = {}
        self.known_words: dict[object, tuple[list[Room], Rooms]] = {}
        self.known_rooms: dict[object, Rooms] = {}
        self.known_before: dict[object, Ints] = {}
        self.nets: list[Net] = []
        self.netted = nest.weights.joule > 0
        self.whose: list[int] | None = None  # of every term its tensor, while a port is told
        super().__init__(nest, orders, nest.ranges().copies)
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

    def _versions_at(self, level: int, order: tuple[int, ...]) -> tuple[list[list[int]], list[int]]:
        if level not in self.free:
            return super()._versions_at(level, order)
        return [[int(on) for on in self.space.has[t]] for t in order], [1] * len(self.space.ranks)

    def ordered(self, level: int, order: tuple[int, ...]) -> JointProgram:
        """The same with an order of a level that was free."""
        orders = [order if n == level else old for n, old in enumerate(self.orders)][1:]
        return JointProgram(self.nest, orders, self.free - {level})

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

    # -- variables
    def _add(self, key: Key, low: float, high: float) -> None:
        if low == 0 and high <= 0:
            self.ones.append(key)
        elif key[0] != "parts" or key[2] in self.nest.parted:
            super()._add(key, low, high)

    def _variables(self) -> None:
        super()._variables()
        space, cells = self.space, self.nest.cells
        versions = ((level, r, exit_) for level in range(1, space.depth) for r, exit_ in enumerate(self.versions[level][1]))
        self.tiles = [(level, r, v) for level, r, exit_ in versions for v in range(exit_ + 1)]
        for level, r, v in self.tiles:
            self._add(("pieces", level, r, v), 0.0, log(cells[r]))
        self.linear = [f for f in self.nest.fans if space.machine.levels[f].fan.linear]
        for f in self.nest.fans:
            fan = space.machine.levels[f].fan
            for r, cut in enumerate(cells):
                most = log(cut if fan.linear else min(cut, fan.size)) if self._most_parts(f, r) > 0 else 0.0
                self._add(("laid", f, r), 0.0, most)
                if r in self.nest.shared:
                    self._add(("share", f, r), 0.0, most)
        one = [r for r in range(len(cells)) if not space.several(r)]
        self.dealt = {r: f for f in reversed(self.nest.fans) for r in one if ("laid", f, r) in self.index}
        for f in self.linear:
            self._add(("waves", f), 0.0, log(prod(cells)))
        for r, cut in enumerate(cells):
            self._add(("cycles", r), 0.0, log(cut))
            self._add(("leaves", r), log(cut), log(space.sizes[r]))
            if r in self.dealt:
                self._add(("rounds", self.dealt[r], r), 0.0, log(cut))
        self._fullest_variables()
        w = self.nest.weights
        self._add(("time",), self.nest.fastest / w.seconds, w.most / (w.second * w.seconds) if w.second > 0 else SLOWEST)
        for i, level in enumerate(self.nest.owed if w.joule > 0 else ()):
            self._add(("net", level, i), 0.0, w.most / (w.joule * w.joules))

    def _fullest_variables(self) -> None:
        """What the fullest instance below a fan that deals out a rank gets of it, and in how many pieces, where a port moves these.
        own: (child, rank, version) of tiles whose pieces are counted."""
        ports = {port.level for port, _ in self.nest.ports}
        self.own: set[tuple[int, int, int]] = set()
        self.covered = {r: f for r, f in self.dealt.items() if f + 1 < self.space.depth and self.nest.weights.second > 0}
        for r, f in self.covered.items():
            self._add(("cover", f, r), log(self.nest.leaf[r]), log(self.space.sizes[r]))
            for t, parent, child, version in self._counted(r):
                if not self.space.has[t, r] and any(f < level and parent <= level <= child for level in ports):
                    self.own.add((child, r, version))
        for child, r, version in sorted(self.own):
            self._add(("own", child, r, version), 0.0, log(self.nest.cells[r]))

    def _counted(self, r: int) -> Iterator[tuple[int, int, int, int]]:
        """(tensor, parent, child, version of a rank's tile at its node) of every transfer."""
        for t in range(len(self.space.tensors)):
            kept = [level for level in range(self.space.depth) if level == 0 or t in self.orders[level]]
            for parent, child in zip(kept, [*kept[1:], self.space.depth], strict=True):
                node = self.orders[child].index(t) if child < self.space.depth else 0
                yield t, parent, child, self.versions[child][0][node][r] if child < self.space.depth else 0

    def _pieces(self, level: int, r: int, version: int) -> tuple[Floats, float]:
        if level in (0, self.space.depth):
            return (self._sum((("leaves", r), 1.0)) if level else self._sum()), 0.0
        return self._sum((("pieces", level, r, version), 1.0)), 0.0

    # -- constraints
    def _nesting(self) -> None:
        super()._nesting()
        for level, r, v in self.tiles:
            row = self._sum((("tile", level, r, v), -1.0), (("pieces", level, r, v), -1.0))
            self.rows.append((row, -log(self.space.sizes[r])))
        for level in range(self.space.depth):
            for r in range(len(self.space.ranks)):
                exit_ = self.versions[level][1][r] if level else 0
                for v in range(exit_):
                    self._more(self._pieces(level, r, v), self._pieces(level, r, v + 1))
                for share in self._sharing(level, r) or [("share", level, r)]:
                    self._more(self._pieces(level, r, exit_), self._pieces(level + 1, r, 0), self._sum((share, 1.0)))

    def _sharing(self, f: int, r: int) -> list[Key]:
        """What transfers may serve of the parts of a rank: a number of its own, or theirs who lack nothing else."""
        alone: list[Key] = [("served", f, t) for t, lacked in enumerate(self.nest.lacks) if lacked == [r]]
        return [key for key in (*alone, ("share", f, r)) if key in self.index]

    def _more(self, outer: tuple[Floats, float], inner: tuple[Floats, float], share: Floats | None = None) -> None:
        """There are no fewer inner pieces than outer ones, times what shares them."""
        row = outer[0] - inner[0] if share is None else outer[0] - inner[0] + share
        self.rows.append((row, inner[1] - outer[1]))

    def _parts(self) -> None:
        space, nest, ranks = self.space, self.nest, range(len(self.space.ranks))
        for f in nest.fans:
            fan, laid = space.machine.levels[f].fan, [(("laid", f, r), 1.0) for r in ranks]
            if not fan.linear:
                self.rows.append((self._sum(*((("parts", f, r), 1.0) for r in nest.parted)), log(fan.size)))
            for t, lacked in enumerate(nest.lacks):
                name = "laid" if len(lacked) == 1 else "share"
                self.rows.append((self._sum((("served", f, t), 1.0), *(((name, f, r), -1.0) for r in lacked)), 0.0))
            for name, some in (("parts", nest.parted), ("share", nest.shared)):
                self.rows += [(self._sum(((name, f, r), 1.0), (("laid", f, r), -1.0)), 0.0) for r in sorted(some)]
            self.rows.append((self._sum(*laid, *(((("waves", f), -1.0),) if fan.linear else ())), log(fan.size)))
            self._copied(f)
        for r in ranks:
            all_parts = ((("laid", f, r), -1.0) for f in self.nest.fans)
            self.rows.append((self._sum((("leaves", r), 1.0), (("cycles", r), -1.0), *all_parts), 0.0))
        for f, r in product(self.nest.fans, ranks):
            if f + 1 < space.depth:
                self.rows.append((self._sum((("laid", f, r), 1.0), (("pieces", f + 1, r, 0), -1.0)), 0.0))
        for level, r, v in self.tiles:
            above = ((("laid", f, r), -1.0) for f in self._above(level))
            self.rows.append((self._sum((("pieces", level, r, v), 1.0), (("cycles", r), -1.0), *above), 0.0))
            below = ((("laid", f, r), -1.0) for f in self.nest.fans if f >= level)
            self.rows.append((self._sum((("tile", level, r, v), 1.0), (("cycles", r), -1.0), *below), log(self.nest.leaf[r])))
        self._fullest()
        self._idle()

    def _fullest(self) -> None:
        """The fullest instance gets no less than the mean of those at work, in pieces no larger than a tile and no fewer than their mean;
        so does the fullest unit of what it gets."""
        for r, f in self.covered.items():
            size, cover, laid = log(self.space.sizes[r]), ("cover", f, r), ("laid", f, r)
            inner = ((("laid", g, r), -1.0) for g in self.nest.fans if g > f)
            self.rows.append((self._sum((cover, -1.0), (laid, -1.0)), -size))
            self.rows.append((self._sum((cover, 1.0), (("cycles", r), -1.0), *inner), log(self.nest.leaf[r])))
        for child, r, v in sorted(self.own):
            own, f = self._sum((("own", child, r, v), -1.0)), self.covered[r]
            (tile, a), (pieces, b) = self._tile(child, r, v), self._pieces(child, r, v)
            self.rows.append((own + pieces + self._sum((("laid", f, r), -1.0)), -b))
            self.rows.append((own - tile + self._sum((("cover", f, r), 1.0)), a))

    def _idle(self) -> None:
        """Parts that a tile of t leaves idle when it is dealt out as tiles of y: a whole one has ceil(t / y) at work, and no instance more
        than what the one that begins with it gets, min(e, y) of e."""
        self.working = {}
        levels = [level for level in range(self.space.depth) if level == 0 or self.orders[level]]
        for (outer, inner), r in product(combinations(levels, 2), range(len(self.space.ranks))):
            between = [f for f in range(outer, inner) if ("laid", f, r) in self.index]
            if not between:
                continue
            (y, a), (t, b) = self._tile(inner, r, 0), self._tile(outer, r, self.versions[outer][1][r] if outer else 0)
            if inner == outer + 1:
                self.working[outer, r] = len(self.rows)
                self.rows.append((y - t + self._sum((("laid", outer, r), 1.0)), b - a))
            most = b - a - log(self.space.sizes[r])
            if [self.covered.get(r)] == between:
                self.rows.append((y - t + self._sum((("cover", between[0], r), -1.0)), most))
                continue
            beside = ((("laid", f, r), -1.0) for f in self.nest.fans if not outer <= f < inner)
            self.rows.append((y - t + self._sum((("cycles", r), -1.0), *beside), most + log(self.nest.leaf[r])))

    def _working(self, f: int, r: int, ranges: Ranges) -> float:
        """By how much the logarithm of the parts of a rank at work may exceed that of t / y: a <= ceil(t / y), so that a - 1 < t / y."""
        least = max(2, self.range_of(("laid", f, r), ranges)[0])
        return log(2.0) * len(self.space.groups[self.space.ranks[r]]) if self.space.several(r) else log(least / (least - 1))

    def _copied(self, f: int) -> None:
        """Copies of the output are no more than the parts of the ranks that it lacks: those laid out, and as real numbers those that the
        tiles leave."""
        lacked = self.nest.lacks[self.space.output]
        self.rows.append((self._sum((("copies", f), 1.0), *((("laid", f, r), -1.0) for r in lacked)), 0.0))
        row, end = self._sum((("copies", f), 1.0), *((("parts", f, r), -1.0) for r in self.nest.parted)), 0.0
        for r in lacked if not self.nest.parted else ():
            (a, x), (b, y) = self._tile(f + 1, r, 0), self._tile(f, r, self.versions[f][1][r] if f else 0)
            row, end = row + a - b, y - x
        self.copy_rows[f] = len(self.rows)
        self.rows.append((row, end))

    def _version_of_room(self, level: int, node: int, r: int) -> int:
        """What a fan hands out is a tile of the first node: here lemma L3 would tell fans of tiles that take no room."""
        return super()._version_of_room(level, node, r) if node or level in self.free else 0

    # -- energy
    def _moved(self, t: int, level: int, each: tuple[float, float], row: Floats, words: float) -> None:
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
    def _term(self, price: float, row: Floats, words: float) -> None:
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

    def _of_fullest(self, level: int, t: int, row: Floats) -> tuple[Floats, float]:
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

    def _above(self, level: int) -> list[int]:
        return [f for f in self.nest.fans if f < level]

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
    def range_of(self, key: Key, ranges: Ranges) -> Range:
        """Least, most of a whole number."""
        if key in ranges.whole:
            return ranges.whole[key]
        return self.ends[key]

    def wholes(self) -> list[Key]:
        """What is whole in a mapping, tiles aside."""
        return [key for key in self.index if key[0] in WHOLE and key[0] != "tile"]

    def fresh(self, ranges: Ranges, z: Floats, value: float) -> Iterator[tuple[float, tuple[int, ...]]]:
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

    def _box(self, ranges: Ranges) -> tuple[Floats, Floats]:
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

    def between(self, ranges: Ranges) -> ConvexProgram:
        """The program of the whole numbers between these."""
        weights = self.nest.weights
        slope, constant = self._sum((("time",), weights.second * weights.seconds)), self.constant * weights.joule
        for saving in self.savings:
            a, b = self.chord(saving, ranges.copies)
            constant -= weights.joule * saving.each * a
            slope = slope - weights.joule * saving.each * b * self.copies_of(saving)
        ends = [self.rows[i][1] for i in self.kept]
        for f, row in self.copy_rows.items():
            if row in self.kept:
                ends[self.kept.index(row)] += self.beyond(f, ranges.copies)
        for (f, r), row in self.working.items():
            ends[self.kept.index(row)] += self._working(f, r, ranges)
        for net in self.nets:
            slope[net.at] += weights.joule * weights.joules
        shift = self.objective.shift + log(weights.joule) if weights.joule > 0 else np.full(len(self.objective.shift), NONE)
        terms = Exponentials(self.objective.rows, shift)
        rows, more = self._ragged(ranges)
        stacked = np.concatenate([self.stacked, rows])
        return ConvexProgram(terms, slope, constant, self.kept_within(ranges), stacked, np.concatenate([ends, more]), *self._box(ranges))

    def _ragged(self, ranges: Ranges) -> tuple[Floats, Floats]:
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
