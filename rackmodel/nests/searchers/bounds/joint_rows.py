"""Numbers of a joint program and the rows between them that hold whatever its prices and ranges: tiles, pieces, parts, cycles, and what
the fullest instance gets (joint_program). Derivation: docs/nest_theory.md, section 6.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from math import log, prod

from rackmodel.arrays import Array
from rackmodel.nests.searchers.bounds.continuous_bound import Relaxed
from rackmodel.nests.searchers.bounds.joint_nest import JointNest
from rackmodel.nests.searchers.bounds.joint_ranges import Key

SLOWEST = 2.0  # times the seconds of the mapping that is known: T where it is worth nothing


class JointRows(Relaxed):
    """Of one choice of orders. free: levels whose nodes may have any order: what a tensor lacks is cut as on entry, what it has as on
    leaving."""

    nest: JointNest

    def __init__(self, nest: JointNest, orders: Sequence[tuple[int, ...]], free: frozenset[int] = frozenset()) -> None:
        self.free = free
        self.ones: list[Key] = []  # what is 1 in every mapping: no numbers of the program
        super().__init__(nest, orders, nest.ranges().copies)

    def _versions_at(self, level: int, order: tuple[int, ...]) -> tuple[list[list[int]], list[int]]:
        if level not in self.free:
            return super()._versions_at(level, order)
        return [[int(on) for on in self.space.has[t]] for t in order], [1] * len(self.space.ranks)

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
            self._add(("pieces", level, r, v), 0.0, log(space.sizes[r]))
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
            self._add(("cycles", r), 0.0, log(space.sizes[r]))
            self._add(("leaves", r), log(cut), log(space.sizes[r]))
            if r in self.dealt:
                self._add(("rounds", self.dealt[r], r), 0.0, log(cut))
        self._fullest_variables()
        for key, least, most in self._sums():
            self._add(key, least, most)

    def _sums(self) -> Iterator[tuple[Key, float, float]]:
        """(number, least, most) of what hangs on the weights: seconds, and words less the fresh ones."""
        w = self.nest.weights
        yield ("time",), self.nest.fastest / w.seconds, w.most / (w.second * w.seconds) if w.second > 0 else SLOWEST
        for i, level in enumerate(self.nest.owed if w.joule > 0 else ()):
            yield ("net", level, i), 0.0, w.most / (w.joule * w.joules)

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
            self._add(("own", child, r, version), 0.0, log(self.space.sizes[r]))

    def _counted(self, r: int) -> Iterator[tuple[int, int, int, int]]:
        """(tensor, parent, child, version of a rank's tile at its node) of every transfer."""
        for t in range(len(self.space.tensors)):
            kept = [level for level in range(self.space.depth) if level == 0 or t in self.orders[level]]
            for parent, child in zip(kept, [*kept[1:], self.space.depth], strict=True):
                node = self.orders[child].index(t) if child < self.space.depth else 0
                yield t, parent, child, self.versions[child][0][node][r] if child < self.space.depth else 0

    def _pieces(self, level: int, r: int, version: int) -> tuple[Array, float]:
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

    def _more(self, outer: tuple[Array, float], inner: tuple[Array, float], share: Array | None = None) -> None:
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

    def _above(self, level: int) -> list[int]:
        return [f for f in self.nest.fans if f < level]
