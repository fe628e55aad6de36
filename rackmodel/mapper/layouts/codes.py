"""Layouts as integers, so that one numpy operation treats a whole cost table: code = mixed radix of the placement on each axis.

The rules are those of model/conversion.py, copies.py and layout.py, axis by axis, on arrays of codes instead of one layout at
a time: which copy is made from which, which copy is saved, which gradients are summed before they are converted. They stand twice, as a
table may have millions of cells: `tests/test_layout_search` holds each rule against the other, `tests/layout_tables` their sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from rackmodel.arrays import Array, Bools
from rackmodel.model.conversion import effort
from rackmodel.model.copies import before_gather
from rackmodel.model.layout import PARTIAL, REPLICATE, Layout, Placement, is_shard, merge

Codes = NDArray[np.int32]
_NEVER = 1000  # more shards, and more of an effort, than any layout has
Move = Callable[[Layout, Layout], tuple[float, float]]


class LayoutCodes:
    """The layouts that one tensor can have on one mesh. Closed under every rule below: they never leave an axis's placements."""

    def __init__(self, layouts: Iterable[Layout], axes: int) -> None:
        found = list(layouts)
        self.placements = [list(dict.fromkeys((REPLICATE, *(layout[axis] for layout in found)))) for axis in range(axes)]
        self.radix = tuple(len(known) for known in self.placements)
        self.count = int(np.prod(self.radix, initial=1))
        digits = np.array(np.unravel_index(np.arange(self.count), self.radix) if axes else np.zeros((0, 1)), dtype=np.int32)
        self.digits = digits.reshape(axes, self.count)
        self.layouts = [tuple(self.placements[axis][d] for axis, d in enumerate(row)) for row in self.digits.T]
        by_rank = sorted(range(self.count), key=lambda code: (-self.layouts[code].count(REPLICATE), self.layouts[code]))
        self.by_rank = np.array(by_rank, dtype=np.int32)  # the order in which copies are made: the most replicated first
        self.rank = np.empty(self.count, dtype=np.int32)
        self.rank[self.by_rank] = np.arange(self.count, dtype=np.int32)
        self.whole_axes = np.array([layout.count(REPLICATE) for layout in self.layouts], dtype=np.int32)
        self.unsharded = np.array([sum(not is_shard(p) for p in layout) for layout in self.layouts], dtype=np.int32)
        self.partial = np.array([PARTIAL in layout for layout in self.layouts], dtype=bool)
        self.effort = self._sum_over_axes(effort)

    def code(self, layout: Layout) -> int:
        """The code of a layout."""
        return (
            int(np.ravel_multi_index([k.index(p) for k, p in zip(self.placements, layout, strict=True)], self.radix)) if self.radix else 0
        )

    def _sum_over_axes(self, figure: Callable[[Layout, Layout], int]) -> NDArray[np.int32]:
        """[count, count] sum of a figure of two placements over the axes."""
        total = np.zeros((self.count, self.count), dtype=np.int32)
        for known, digit in zip(self.placements, self.digits, strict=True):
            table = np.array([[figure((a,), (b,)) for b in known] for a in known], dtype=np.int32)
            total += table[digit[:, None], digit[None, :]]
        return total

    def map_axes(self, rule: Callable[..., Placement | None], *codes: Codes) -> Codes:
        """Apply a rule of placements to every axis: codes of the results; -1 where the rule says None on some axis."""
        digits = [self.digits[:, code] for code in codes]
        result = np.zeros(np.broadcast_shapes(*(code.shape for code in codes)), dtype=np.int32)
        bad = np.zeros(result.shape, dtype=bool)
        for axis, known in enumerate(self.placements):
            table = np.empty((len(known),) * len(codes), dtype=np.int32)
            for cell in np.ndindex(*table.shape):
                said = rule(*(known[i] for i in cell))
                table[cell] = -1 if said is None else known.index(said)
            digit = table[tuple(d[axis] for d in digits)]
            bad |= digit < 0
            result = result * len(known) + digit
        return np.where(bad, np.int32(-1), result)

    def resolved(self, produced: Codes, wanted: Sequence[Codes]) -> Codes:
        """`model.copies.resolved`: Partials become what the first reader without Partials wants there if that is a shard, else whole."""
        first = np.zeros_like(produced)  # all Replicate: what a Partial becomes when every reader wants a Partial
        for code in reversed(wanted):
            first = np.where(self.partial[code], first, code)
        return self.map_axes(lambda now, then: then if now == PARTIAL else now, produced, first)

    def saved(self, gathered: bool, produced: Codes, forward: Sequence[Codes], backward: Sequence[Codes]) -> Codes:
        """`model.copies.saved_copy` of the policies 'gathered' and 'shard'."""
        if gathered:
            return _least(backward, [-self.whole_axes[code] for code in backward])
        here = self.resolved(produced, [*forward, *backward])
        there = [*backward, here, *forward]
        size = [self.unsharded[c] + (self.partial[c] * _NEVER if number > len(backward) else 0) for number, c in enumerate(there)]
        least = np.min(size, axis=0)
        on_the_way = [self.map_axes(_before_gather, here, code) for code in forward]
        size += [self.unsharded[c] + self.partial[code] * _NEVER for c, code in zip(on_the_way, forward, strict=True)]
        candidates = [*there, *on_the_way]
        moves = [np.min([self.effort[c, to] for to in backward], axis=0) for c in candidates]
        return _least(candidates, [np.where(s == least, moved, _NEVER) for s, moved in zip(size, moves, strict=True)])

    def sums(self, contributions: Sequence[Codes]) -> list[Codes]:
        """`cost.traffic.merged`: gradient contributions summed before they are converted; -1 = there is no such sum."""
        found: list[Codes] = []
        for code in contributions:
            waiting = np.ones(code.shape, dtype=bool)
            for number, now in enumerate(found):
                both = np.where(now < 0, code, self.map_axes(_merge, now, code))
                fits = waiting & (both >= 0)
                found[number], waiting = np.where(fits, both, now), waiting & ~fits
            if waiting.any():
                found.append(np.where(waiting, code, np.int32(-1)))
        return found


class Mover:
    """What converting one tensor costs: (seconds, joules) from layout to layout, each pair asked once. tail: shape of a figure, () of one
    column; figures of cells have it last."""

    def __init__(self, codes: LayoutCodes, move: Move, tail: tuple[int, ...] = ()) -> None:
        self.codes, self.move, self.tail = codes, move, tail
        self.known = np.zeros(codes.count**2, dtype=bool)
        self.figures = np.zeros((2, codes.count**2, *tail))

    def convert(self, source: Codes, target: Codes) -> Array:
        """[2, cells] seconds and joules; nothing where a code is -1."""
        pairs = source.astype(np.int64) * self.codes.count + target
        asked = np.zeros_like(self.known)
        asked[pairs[(source >= 0) & (target >= 0)]] = True
        for pair in np.flatnonzero(asked & ~self.known):
            move = self.move(*(self.codes.layouts[i] for i in divmod(int(pair), self.codes.count)))
            self.figures[0, pair], self.figures[1, pair] = move
            self.known[pair] = True
        return np.asarray(np.where(self._cells((source >= 0) & (target >= 0)), self.figures[:, pairs], 0.0))

    def _cells(self, which: Bools) -> Bools:
        """A fact of cells, beside figures of them."""
        return which.reshape(which.shape + (1,) * len(self.tail))

    def copies(self, present: Codes, wanted: Sequence[Codes], asked: Sequence[Codes] | None = None) -> Array:
        """[2, cells] `model.copies.plan_copies`: one conversion for each distinct layout, from the copy that moves least.

        asked: those that are made (with what they are made from); default all that are wanted.
        """
        cost = np.zeros((2, present.size, *self.tail))
        have, steps = [present], []
        for rank in np.sort(self.codes.rank[np.stack(list(wanted))], axis=0) if wanted else ():
            layout = self.codes.by_rank[rank]
            size = [self.codes.effort[source, layout] for source in have]
            places = [np.full(present.shape, number, dtype=np.int32) for number in range(len(have))]
            steps.append((_least(have, size), layout, _least(places, size)))
            have.append(layout)
        if asked is None:
            return np.asarray(sum((self.convert(source, layout) for source, layout, _ in steps), cost))
        needed = [np.any([layout == other for other in asked], axis=0) for layout in have] if asked else []
        for number, (source, layout, place) in reversed(list(enumerate(steps, start=1))) if asked else ():
            for before in range(number):
                needed[before] |= needed[number] & (place == before)
            cost += np.where(self._cells(needed[number]), self.convert(source, layout), 0.0)
        return cost


def _before_gather(now: Placement, then: Placement) -> Placement:
    return before_gather((now,), (then,))[0]


def _merge(a: Placement, b: Placement) -> Placement | None:
    both = merge((a,), (b,))
    return both[0] if both is not None else None


def _least(candidates: Sequence[Codes], size: Sequence[NDArray[np.int32]]) -> Codes:
    """The candidate of least size, cell by cell; the first among equals."""
    best, least = candidates[0], size[0]
    for code, value in zip(candidates[1:], size[1:], strict=True):
        best, least = np.where(value < least, code, best), np.minimum(value, least)
    return best
