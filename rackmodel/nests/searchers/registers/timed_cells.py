"""The best tiles of a buffer for given parts and tiles of the register files, by energy and time together.

As register_cells, but the pieces of a rank are kept apart: energy and the bits of the outer ports are sums over the ranks, the cycles of
the compute a product, the bits of a register file products of cycles and groups. What cannot be as good as the best mapping known is left
out a rank at a time, then in pairs; the rest is spelled out. Derivation: docs/nest_theory.md, section 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

import numpy as np

from rackmodel.arrays import Array, Bools, Ints
from rackmodel.nests.objective import Key, NestObjective, better
from rackmodel.nests.searchers.registers.product_prices import ProductPrices
from rackmodel.nests.searchers.registers.rank_pieces import Pieces, cut_once, cut_twice, least_handed
from rackmodel.nests.searchers.registers.register_cells import BufferOrder, Registers

TOGETHER = 1_000_000  # choices priced at once
CHUNK = 256  # rows compared at once
ListKey = tuple[int, int, int, str]  # rank, parts, tile of an instance (0: free), what chains


@dataclass(frozen=True)
class FilePort:
    """A port of the register files, in seconds: [ranks] of a word that enters and of a fresh one, of the tensor that lacks the rank; of a
    MAC. The fullest instance takes in cycles of the ranks that a tensor has times groups of the one that it lacks."""

    entered: tuple[float, ...]
    fresh: tuple[float, ...]
    mac: float

    def seconds(self, cycles: tuple[Any, ...], groups: tuple[Any, ...]) -> Any:
        """cycles, groups: [ranks] of arrays that broadcast."""
        every = cycles[0] * cycles[1] * cycles[2]
        total = self.mac * every
        for own, n, entered, fresh in zip(cycles, groups, self.entered, self.fresh, strict=True):
            if entered or fresh:
                total = total + every / own * (entered * n + fresh)
        return total


@dataclass(frozen=True)
class Timing:
    """What takes time. cycle: seconds · ports: of memory and buffer, as prices in seconds · files: of the register files."""

    cycle: float
    ports: tuple[ProductPrices, ...]
    files: tuple[FilePort, ...]


class Options(NamedTuple):
    """Of one rank: [n, 3] tiles at the buffer's nodes, those that take room at the outer and at the inner node of its two tensors there,
    parts of one instance, joules, [ports] seconds, groups, cycles."""

    tiles: Ints
    outer: Ints
    inner: Ints
    unit: Ints
    energy: Array
    ports: tuple[Array, ...]
    groups: Array
    cycles: Array

    def only(self, on: Any) -> Options:
        """Those that `on` picks."""
        ports = tuple(p[on] for p in self.ports)
        rest = self.energy[on], ports, self.groups[on], self.cycles[on]
        return Options(self.tiles[on], self.outer[on], self.inner[on], self.unit[on], *rest)

    def front(self, grouped: bool) -> Options:
        """Those that none is better than, by room; grouped: whether groups count by themselves."""
        columns = [self.outer, self.inner, self.energy, self.cycles, *self.ports, *([self.groups] if grouped else [])]
        return self.only(front(np.array(columns, dtype=float).T))


def front(columns: Array) -> Ints:
    """Numbers of the rows [n, columns] that no other is below or equal to."""
    order = np.lexsort(columns.T[::-1])
    kept, n = np.empty_like(columns), 0
    found: list[int] = []
    for i in range(0, len(order), CHUNK):
        some = order[i : i + CHUNK]
        worse = np.logical_and.reduce(kept[None, :n] <= columns[some, None], axis=2)
        some = some[~np.logical_or.reduce(worse, axis=1)]
        first = n
        for row in some:
            if not (kept[first:n] <= columns[row]).all(axis=1).any():
                kept[n], n = columns[row], n + 1
                found.append(int(row))
    return np.array(found, dtype=int)


class Tiles(NamedTuple):
    """[ranks] of [nodes] tiles of the buffer, outer to inner; [ranks] tiles of one instance."""

    nodes: tuple[tuple[int, ...], ...]
    units: tuple[int, ...]


class TimedCell:
    """One cell. joules: prices · rest: joules that no tile changes · floor: seconds at least · known: key of the best mapping so far ·
    lists: of ranks with one tile, as cells share them."""

    def __init__(
        self,
        order: BufferOrder,
        below: Registers,
        prices: tuple[ProductPrices, Timing],
        least: tuple[float, float],
        goal: NestObjective,
        known: Key,
        lists: dict[ListKey, Options],
    ) -> None:
        self.order, self.below, (self.joules, self.timing) = order, below, prices
        (self.rest, self.floor), self.goal, self.known, self.lists = least, goal, known, lists
        a, _, c = order.ranks
        self.a, self.c = self._listed(a, counted=False), self._listed(c, counted=True)
        self.cheapest = np.minimum.accumulate(self.c.energy)  # [options of C] of all that take no more room
        self.fastest = np.minimum.accumulate(self.c.cycles)

    # -- options of a rank
    def _handed_on(self, rank: int) -> tuple[Ints, Ints]:
        """(tiles handed on as one group, parts of each)."""
        split, parts, unit = self.order.splits[rank], self.below.parts[rank], self.below.units[rank]
        if split.perfect:
            tiles = split.tiles[split.tiles % parts == 0] if rank == self.below.free else np.array([parts * unit])
            return tiles, tiles // parts
        if rank != self.below.free:
            tiles = np.arange(split.least_held(parts, unit), min(split.size, parts * unit) + 1)
            tiles = tiles if len(tiles) else np.array([split.size])
            return tiles, np.full(len(tiles), unit)
        tiles = np.arange(1, split.size + 1)
        least = -(-tiles // parts)
        most = (tiles - 1) // (parts - 1) if parts > 1 else tiles
        most = np.minimum(most, np.floor(np.minimum(split.slack * tiles / parts, split.size)).astype(int) if split.slack < inf else most)
        number = np.maximum(0, most - least + 1)
        units = np.repeat(least, number) + np.arange(number.sum()) - np.repeat(np.cumsum(number) - number, number)
        return np.repeat(tiles, number), units

    def _options(self, rank: int, tiles: tuple[Ints, Ints, Ints], unit: Ints, pieces: Pieces) -> Options:
        counted, groups, parts, cycles = (np.asarray(n, dtype=float) for n in pieces)
        held = [t for i, t in enumerate(tiles) if i != self.order.ranks.index(rank)]
        of = [p.ranks[rank] for p in (self.joules, *self.timing.ports)]
        energy, *ports = (p.tile * counted + p.group * groups + p.part * parts for p in of)
        return Options(np.stack(tiles, axis=1), held[0], held[1], unit, energy, tuple(ports), groups, cycles)

    def _listed(self, rank: int, counted: bool) -> Options:
        """Those of a rank with one tile that none is better than; counted: whether a node of the buffer counts them."""
        parts, unit = self.below.parts[rank], self.below.units[rank]
        at_once = self.below.at_once or not counted
        key = (rank, parts, unit, f"{counted} {at_once}")
        if key not in self.lists:
            split = self.order.splits[rank]
            if not at_once and rank != self.below.free:
                tiles = split.dealt(parts, unit)
                units = np.full(len(tiles), unit)
            else:
                tiles, units = self._handed_on(rank)
            pieces = cut_once(split.size, tiles, parts, units)
            pieces = pieces if counted else pieces._replace(tiles=np.ones_like(tiles))
            first = tiles if counted else np.full_like(tiles, split.size)
            self.lists[key] = self._options(rank, (first, tiles, tiles), units, pieces).front(bool(self.timing.files))
        return self.lists[key]

    # -- what is left
    def _worth(self, energy: Any, seconds: Any) -> Any:
        """Where that may be better than what is known."""
        return better(self.goal.key(energy, seconds), self.known)

    def _largest(self, c: Any, a: Any, x: Any) -> Ints:
        """Number of the last option of C that fits; -1: none."""
        one, two, three = self.order.bits
        most = (self.order.capacity - three * c * x) / (one * a + two * c)
        return np.asarray(np.searchsorted(self.c.outer, most + 1e-9, side="right") - 1)

    def _hopeful(self, b: Options) -> Options:
        """Options of B that may be better than what is known, with the best of A and the largest of C."""
        at = self._largest(self.a.outer[0], b.outer, b.inner)
        energy = b.energy + self.cheapest[np.maximum(at, 0)] + self.a.energy.min() + self.rest
        cycles = b.cycles * self.fastest[np.maximum(at, 0)] * self.a.cycles.min()
        on = (at >= 0) & self._worth(energy, np.maximum(self.floor, self.timing.cycle * cycles))
        return b.only(np.flatnonzero(on))

    def _entering(self) -> list[tuple[int, int]]:
        """(tile of B handed on, its parts) that may be better than what is known."""
        rank = self.order.ranks[1]
        split, prices = self.order.b, self.joules.ranks[rank]
        x, units = self._handed_on(rank)
        outer = split.tiles[split.corners]
        price = np.zeros(len(x))
        step = max(1, TOGETHER // len(outer))
        for i in range(0, len(x), step):
            tile = x[i : i + step, None]
            at = self._largest(self.a.outer[0], np.maximum(outer, tile), tile)
            each = prices.tile * split.count[split.corners] + self.cheapest[np.maximum(at, 0)]
            price[i : i + step] = np.where((at >= 0) & (split.largest >= tile), each, np.inf).min(axis=1)
        energy = price + prices.group * -(-split.size // x) + prices.part * -(-split.size // units) + self.a.energy.min() + self.rest
        cycles = least_handed(split.size, x, units) * self.fastest[-1] * self.a.cycles.min()
        on = np.isfinite(price) & self._worth(energy, np.maximum(self.floor, self.timing.cycle * cycles))
        order = np.argsort(energy[on], kind="stable")
        return list(zip(x[on][order].tolist(), units[on][order].tolist(), strict=True))

    def _of_b(self) -> Iterator[Options]:
        """Options of B, a tile handed on at a time."""
        rank = self.order.ranks[1]
        size, parts = self.order.splits[rank].size, self.below.parts[rank]
        for tile, unit in self._entering():
            outer = self.order.b.around(tile)
            tiles = outer, outer, np.full(len(outer), tile)
            yield self._hopeful(self._options(rank, tiles, np.full(len(outer), unit), cut_twice(size, outer, tile, parts, unit)))

    def best(self) -> Tiles | None:
        """The tiles of least key, where they are better than what is known."""
        found: Tiles | None = None
        for b in self._of_b() if len(self.a.outer) and len(self.c.outer) else ():
            step = max(1, TOGETHER // len(self.a.outer))
            for i in range(0, len(b.outer), step):
                for some in self._pairs(b.only(slice(i, i + step))):
                    found = self._spelled(*some) or found
        return found

    def _pairs(self, b: Options) -> Iterator[tuple[Options, Options, Ints]]:
        """Pairs of options of A and B that may be as good as what is known, and the largest tile of C with each."""
        at = self._largest(self.a.outer[:, None], b.outer, b.inner)
        energy = self.a.energy[:, None] + b.energy + self.cheapest[np.maximum(at, 0)] + self.rest
        cycles = self.a.cycles[:, None] * b.cycles * self.fastest[np.maximum(at, 0)]
        on = (at >= 0) & self._worth(energy, np.maximum(self.floor, self.timing.cycle * cycles))
        rows, columns = np.nonzero(on)
        step = max(1, TOGETHER // len(self.c.outer))
        for i in range(0, len(rows), step):
            r, k = rows[i : i + step], columns[i : i + step]
            yield self.a.only(r), b.only(k), at[r, k]

    def _spelled(self, a: Options, b: Options, at: Ints) -> Tiles | None:
        """The best of every tile of C with some pairs of A and B, where it is better than what is known."""
        c = self.c.only(slice(0, int(at.max()) + 1))
        return self._priced(a, b, c, np.arange(len(c.outer)) <= at[:, None])

    def _priced(self, a: Options, b: Options, c: Options, fits: Bools) -> Tiles | None:
        """The best of some pairs of A and B, row by row, with every one of C, where it is better than what is known."""
        one, two = a.only((slice(None), None)), b.only((slice(None), None))
        energy = one.energy + two.energy + c.energy + self.rest
        first, second = self.goal.key(np.where(fits, energy, np.inf), self._seconds(one, two, c))
        low = first.min()
        tied = np.where(first <= low, second, np.inf)
        i, j = np.unravel_index(int(tied.argmin()), tied.shape)
        if not better((float(low), float(tied[i, j])), self.known):
            return None
        self.known = float(low), float(tied[i, j])
        picked = dict(zip(self.order.ranks, ((a, i), (b, i), (c, j)), strict=True))
        chosen = [(of.tiles[k], of.unit[k]) for of, k in (picked[r] for r in range(3))]
        return Tiles(tuple(tuple(int(n) for n in t) for t, _ in chosen), tuple(int(u) for _, u in chosen))

    def _seconds(self, a: Options, b: Options, c: Options) -> Array:
        """Of every choice, from all that takes time."""
        cycles = a.cycles * b.cycles * c.cycles
        found = self.timing.cycle * cycles
        for k, port in enumerate(self.timing.ports):
            found = np.maximum(found, a.ports[k] + b.ports[k] + c.ports[k] + port.of(self.below.parts[port.output]))
        if self.timing.files:
            place = [self.order.ranks.index(r) for r in range(3)]
            by_rank = [(a, b, c)[i] for i in place]
            for files in self.timing.files:
                found = np.maximum(found, files.seconds(tuple(o.cycles for o in by_rank), tuple(o.groups for o in by_rank)))
        return np.asarray(found)
