"""Ranges of whole numbers made as narrow as each other's ends allow, before a joint program is made of them (joint_program).

Of one rank, outer -> inner: tiles nest, t <= t', and their pieces never get fewer, n >= n'; n pieces of t cover D, n t >= D. A fan deals
out tiles of y to a parts in h = max(1, ceil((D - y) / (a y))) rounds, a no more than the pieces below it; a fan holds so many parts, a
linear one so many a wave; the output has no more copies than there are parts of the ranks that it lacks. What the convex program knows
of these relations between real numbers says little while ranges are wide (joint_ragged), for their chords do; whole numbers say it at once.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import prod

from rackmodel.nests.searchers.bounds.joint_program import JointProgram
from rackmodel.nests.searchers.bounds.joint_ranges import Key, Ranges

SWEEPS = 8  # until nothing moves, but no more


class _Empty(Exception):
    """No whole number is left."""


def narrowed(program: JointProgram, ranges: Ranges) -> Ranges | None:
    """The same mappings in ranges that are no wider; None where there are none."""
    ends = _Ends(program, ranges)
    try:
        for _ in range(SWEEPS):
            ends.moved = False
            ends.sweep()
            if not ends.moved:
                break
    except _Empty:
        return None
    return replace(ranges, copies=tuple(ends.copies), whole=ends.changed)


class _Ends:
    """ends: of every whole number so far · changed: those that differ from the program's own."""

    def __init__(self, program: JointProgram, ranges: Ranges) -> None:
        self.program, self.space, self.nest = program, program.space, program.nest
        self.changed, self.copies, self.moved = dict(ranges.whole), list(ranges.copies), False
        self.ends = {**program.ends, **ranges.whole}

    def low(self, key: Key) -> int:
        """Least."""
        return self.ends[key][0]

    def high(self, key: Key) -> int:
        """Most."""
        return self.ends[key][1]

    def at_least(self, key: Key, value: int) -> None:
        """Nothing below."""
        low, high = self.ends[key]
        if value > low:
            self._set(key, value, high)

    def at_most(self, key: Key, value: int) -> None:
        """Nothing above."""
        low, high = self.ends[key]
        if value < high:
            self._set(key, low, value)

    def _set(self, key: Key, low: int, high: int) -> None:
        if low > high:
            raise _Empty
        self.changed[key] = self.ends[key] = low, high
        self.moved = True

    def sweep(self) -> None:
        """Every relation once."""
        for r, chain in enumerate(self.program.chains):
            self._nested(r, chain)
        for f in self.nest.fans:
            self._fan(f)
        for r, f in self.program.dealt.items():
            if f + 1 < self.space.depth:
                self._rounds(f, r)
        for f, r in self.program.working:
            if not self.space.several(r):
                self._working(f, r)

    def _nested(self, r: int, chain: list[tuple[Key, Key]]) -> None:
        size, ends = self.space.sizes[r], self.ends
        for tile, pieces in chain:
            self.at_least(tile, -(-size // ends[pieces][1]))
            self.at_least(pieces, -(-size // ends[tile][1]))
        for (outer, fewer), (inner, more) in pairwise(chain):
            self.at_most(inner, ends[outer][1])
            self.at_least(more, ends[fewer][0])
        for (outer, fewer), (inner, more) in reversed(list(pairwise(chain))):
            self.at_least(outer, ends[inner][0])
            self.at_most(fewer, ends[more][1])

    def _fan(self, f: int) -> None:
        ranks = range(len(self.space.ranks))
        fan, keys = self.space.machine.levels[f].fan, [("laid", f, r) for r in ranks]
        if f + 1 < self.space.depth:
            for r in ranks:
                self.at_most(keys[r], self.high(("pieces", f + 1, r, 0)))
                self.at_least(("pieces", f + 1, r, 0), self.low(keys[r]))
        least = prod(self.low(key) for key in keys)
        most = fan.size
        if fan.linear:
            self.at_least(("waves", f), -(-least // fan.size))
            most *= self.high(("waves", f))
        for key in keys:
            self.at_most(key, most // (least // self.low(key)))
        low, high = self.copies[f]
        copies = prod(self.high(keys[r]) for r in self.nest.lacks[self.space.output])
        if copies < high:
            if copies < low:
                raise _Empty
            self.copies[f], self.moved = (low, copies), True

    def _rounds(self, f: int, r: int) -> None:
        size, (h, a, y) = self.space.sizes[r], (("rounds", f, r), ("laid", f, r), ("tile", f + 1, r, 0))
        self.at_least(h, -(-(size - self.high(y)) // (self.high(a) * self.high(y))))
        self.at_most(h, max(1, -(-(size - self.low(y)) // (self.low(a) * self.low(y)))))
        self.at_least(a, -(-(size - self.high(y)) // (self.high(h) * self.high(y))))
        self.at_least(y, -(-size // (1 + self.high(a) * self.high(h))))
        if (more := self.low(h) - 1) > 0:
            self.at_most(a, -(-(size - self.low(y)) // (more * self.low(y))) - 1)
            self.at_most(y, -(-size // (1 + more * self.low(a))) - 1)

    def _working(self, f: int, r: int) -> None:
        """Parts at work of a tile of t that is dealt out as tiles of y: (a - 1) y < t."""
        a, y = ("laid", f, r), ("tile", f + 1, r, 0)
        t: Key = ("tile", f, r, self.program.versions[f][1][r]) if f else ()
        most = self.high(t) if f else self.space.sizes[r]
        self.at_most(a, -(-most // self.low(y)))
        if (more := self.low(a) - 1) > 0:
            self.at_most(y, (most - 1) // more)
            if f:
                self.at_least(t, more * self.low(y) + 1)
