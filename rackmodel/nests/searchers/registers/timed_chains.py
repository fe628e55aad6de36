"""A cell of a matrix product spelled out whole: every chain of tiles of every rank, three cuts at the buffer, where they are few.

A rank's last tile is no larger than a group, but where the last node's tensor lacks the rank: a group cut once more costs no less (the
direct cut has the fewest groups, parts and cycles) and takes no less room. Derivation: docs/nest_theory.md, section 6.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rackmodel.arrays import Ints
from rackmodel.nests.searchers.effort import Effort
from rackmodel.nests.searchers.registers.rank_pieces import cut_thrice
from rackmodel.nests.searchers.registers.timed_cells import TOGETHER, Options, Tiles, TimedCell

LONGEST = 300_000  # chains of a rank
PAIRS = 3_000_000  # pairs of chains of two ranks


class WholeCell(TimedCell):
    """The cell of a TimedCell; `best` is over all its chains."""

    def whole(self, effort: Effort) -> tuple[Tiles | None, bool]:
        """(the best chains, where they are better than what is known; whether every chain was tried)."""
        a, b, c = (self._chains(r) for r in self.order.ranks)
        if a is None or b is None or c is None:
            return None, False
        if not all(len(o.outer) for o in (a, b, c)):
            return None, True
        a, b, c = self._of_interest(a, b, c), self._of_interest(b, a, c), self._of_interest(c, a, b)
        if len(a.outer) * len(b.outer) > PAIRS:
            return None, False
        found: Tiles | None = None
        for one, two in self._pairs_of(a, b, c):
            effort.spend(len(one.outer) * len(c.outer))
            found = self._fitting(one, two, c) or found
        return found, True

    # -- chains of a rank
    def _chains(self, rank: int) -> Options | None:
        """Those that none is better than; None where they are too many."""
        role, parts, unit = self.order.ranks.index(rank), self.below.parts[rank], self.below.units[rank]
        key = (rank, parts, unit, f"node {role} {self.below.at_once}")
        if key not in self.lists:
            made = self._falling(rank, role)
            if made is None:
                return None
            tiles, units = made
            size = self.order.splits[rank].size
            pieces = cut_thrice(size, tiles, parts, units)
            counted = (tiles[0], tiles[min(role, 1)], tiles[role])
            pieces = pieces._replace(tiles=cut_thrice(size, counted, 1, np.full_like(units, size)).groups)
            self.lists[key] = self._options(rank, tiles, units, pieces).front(bool(self.timing.files))
        return self.lists[key]

    def _falling(self, rank: int, role: int) -> tuple[tuple[Ints, Ints, Ints], Ints] | None:
        """(tiles at the three nodes, tile of an instance) of every chain."""
        size = self.order.splits[rank].size
        last, units = self._last(rank, role)
        longer = size - last + 1
        if int((longer * (longer + 1) // 2).sum()) > LONGEST:
            return None
        low = np.arange(1, size + 1)
        first, second = (low[n] for n in np.tril_indices(size))
        parts = [(first[on := second >= t], second[on]) for t in last]
        number = np.array([len(one) for one, _ in parts], dtype=int)
        outer, inner = (np.concatenate([low[:0], *column]) for column in ([one for one, _ in parts], [two for _, two in parts]))
        return (outer, inner, np.repeat(last, number)), np.repeat(units, number)

    def _last(self, rank: int, role: int) -> tuple[Ints, Ints]:
        """(tiles at the last node, tiles of an instance)."""
        split, parts, unit = self.order.splits[rank], self.below.parts[rank], self.below.units[rank]
        if role < 2 or self.below.at_once:
            return self._handed_on(rank)
        if rank != self.below.free:
            tiles = split.dealt(parts, unit)
            return tiles, np.full(len(tiles), unit)
        if parts == 1:
            return split.tiles, split.tiles
        tile, part = (n.ravel() for n in np.meshgrid(split.tiles, split.tiles, indexing="ij"))
        on = (parts - 1) * part < tile
        return tile[on], part[on]

    # -- all three
    def _of_interest(self, mine: Options, one: Options, two: Options) -> Options:
        """Chains of a rank that may be better than what is known with the best of the others."""
        energy = mine.energy + one.energy.min() + two.energy.min() + self.rest
        cycles = mine.cycles * one.cycles.min() * two.cycles.min()
        return mine.only(np.flatnonzero(self._worth(energy, np.maximum(self.floor, self.timing.cycle * cycles))))

    def _pairs_of(self, a: Options, b: Options, c: Options) -> Iterator[tuple[Options, Options]]:
        """Pairs of A and B that may be better, some at a time."""
        if not len(c.outer) or not len(a.outer) or not len(b.outer):
            return
        one, two, three = self.order.bits
        energy = a.energy[:, None] + b.energy + c.energy.min() + self.rest
        cycles = a.cycles[:, None] * b.cycles * c.cycles.min()
        room = three * a.inner[:, None] * b.inner + one * b.outer * c.outer.min() + two * a.outer[:, None] * c.inner.min()
        on = (room <= self.order.capacity) & self._worth(energy, np.maximum(self.floor, self.timing.cycle * cycles))
        rows, columns = np.nonzero(on)
        step = max(1, TOGETHER // len(c.outer))
        for i in range(0, len(rows), step):
            yield a.only(rows[i : i + step]), b.only(columns[i : i + step])

    def _fitting(self, a: Options, b: Options, c: Options) -> Tiles | None:
        """The best of some pairs with every chain of C that fits."""
        one, two, three = self.order.bits
        room = one * b.outer[:, None] * c.outer + two * a.outer[:, None] * c.inner + (three * a.inner * b.inner)[:, None]
        return self._priced(a, b, c, room <= self.order.capacity)
