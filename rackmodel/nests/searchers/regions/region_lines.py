"""What no branch of one member of a region is below, energy and times together: by slices, and lines of blends (price_blends).

Tables of a slice say what every tile costs at least, so that they are made once for all tiles of all prefixes: a tile is bounded by
reading them. Whatever lies above adds its joules and bits to both sides of a line. The weights of further blends follow the times of
the mapping that is least under the last one, at the slice that leaves a tile most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from heapq import heapify, heappop, heappush
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.nests.objective import TIE, NestObjective
from rackmodel.nests.searchers.mapspace.fan_state import start
from rackmodel.nests.searchers.mapspace.prices import energy_prices
from rackmodel.nests.searchers.tables.backtrack import best_path, optimum
from rackmodel.nests.searchers.tables.cost_table import CostTable
from rackmodel.nests.searchers.tables.node_prices import Allowed
from rackmodel.nests.searchers.tables.price_blends import Blend, BlendLine, shares_of
from rackmodel.nests.searchers.tables.slices import STEP, TURNS, WORTH, Entry, SliceSearch
from rackmodel.nests.searchers.tables.tile_options import Tile
from rackmodel.nests.solution import Best

POOL = 3  # blends of a member that are kept
NEARLY = 1.02  # times the instances of a slice that another may keep busy to be bounded with it
SliceNumber = tuple[int, ...]
Group = tuple[tuple[int, ...], ...]  # per fan, numbers of classes
Tiles = Tile | tuple[Ints, ...]  # one, or many: per rank, their numbers


class Spent(NamedTuple):
    """Above a branch, of one running: joules, and bits of every port."""

    joules: float
    bits: tuple[float, ...]


class Met(NamedTuple):
    """The least key of a tile, and the slice that has it (none where no slice is left)."""

    key: float
    slice_: SliceNumber | None


class MemberBlends:
    """The blends that branches of one member share, latest last; turns: weights that were tried, by slice."""

    def __init__(self) -> None:
        self.blends: list[Blend] = []
        self.turns: dict[SliceNumber, int] = {}
        self.shares: dict[SliceNumber, list[float]] = {}

    def add(self, blend: Blend) -> None:
        """Keep a blend."""
        self.blends = [*self.blends[1 - POOL :], blend]


class SliceLines:
    """Bounds of one search's branches; blends: of the member. A group is a slice, or several that keep nearly as many instances busy."""

    def __init__(self, search: SliceSearch, aim: NestObjective, blends: MemberBlends) -> None:
        self.search, self.aim, self.shared = search, aim, blends
        self.ports = [port for port, _ in search.ports]
        self.clusters = [_clusters([n for n, _ in classes]) for classes in search.classes]
        busy = np.ones(())
        for classes, clusters in zip(search.classes, self.clusters, strict=True):
            busy = np.multiply.outer(busy, np.array([classes[cluster[0]][0] for cluster in clusters]))
        self.compute: Array = np.asarray(search.compute_time(busy))  # of groups
        self.tables: dict[Blend, CostTable] = {}
        self.values: dict[tuple[object, Group | None], Array] = {}
        self.times: dict[Group, tuple[float, list[float]]] = {}
        self.vectors: dict[Group, Allowed] = {}

    # -- what bounds a tile
    def least(self, tile: Tile, above: Spent, most: float) -> Met:
        """The key that no branch below a tile is below, of one running, and the slice that has it; inf where it is beyond `most`."""
        return next(self.rising(tile, above, lambda: most), Met(np.inf, None))

    def rising(self, tile: Tile, above: Spent, most: Callable[[], float]) -> Iterator[Met]:
        """Slices with the keys that nothing in them is below, least first, as far as they are no more than `most` says by then: each is
        bounded more closely only where it is the least so far, what is dearer last: lines, the energy, then the times of the ports."""
        joules = self._at(self.search.energy, None, tile) + self.search.constant + above.joules
        if not np.isfinite(joules):
            return
        keys = np.broadcast_to(self.aim.key(joules, self.compute)[0], self.compute.shape)
        near, blends = keys <= most(), self.shared.blends[::-1]
        groups = (tuple(clusters[n] for clusters, n in zip(self.clusters, at, strict=True)) for at in np.argwhere(near).tolist())
        heap = [(float(key), group, 0) for key, group in zip(keys[near], groups, strict=True)]
        heapify(heap)
        while heap and heap[0][0] <= most():
            key, group, step = heappop(heap)
            if step > len(blends) + 1:
                yield Met(key, tuple(n for (n,) in group))
            elif step == min(1, len(blends)) and any(len(classes) > 1 for classes in group):
                for slice_ in product(*group):
                    own = float(self.aim.key(joules, self._times(_alone(slice_))[0])[0])
                    heappush(heap, (max(key, own), _alone(slice_), 0))
            else:
                further = step - len(blends)
                closer = (
                    self._of_line(group, blends[step], tile, above) if further < 0 else self._of_tables(group, tile, above, further > 0)
                )
                heappush(heap, (max(key, float(closer)), group, step + 1))

    def floor(self, tiles: tuple[Ints, ...], above: Spent, most: Array) -> Array:
        """[n] keys that no branch below each of many tiles is below, of one running: as `least`, but for the times of the ports."""
        blends, groups = self.shared.blends[::-1], [*product(*self.clusters)]
        joules = self._at(self.search.energy, None, tiles) + self.search.constant + above.joules
        fits, compute = np.isfinite(joules), self.compute.ravel().tolist()
        keys = [np.where(fits, self.aim.key(joules, seconds)[0], np.inf) for seconds in compute]
        if not blends or not fits.any():
            return np.asarray(np.min(keys, axis=0))
        steps = [0] * len(groups)
        every = np.stack(keys)
        while True:
            of = every.argmin(axis=0)
            near = np.flatnonzero(every[of, np.arange(len(of))] <= most)
            open_ = [n for n in np.unique(of[near]).tolist() if steps[n] <= len(blends)]
            if not open_:
                return np.asarray(every.min(axis=0))
            for n in open_:
                group, step = groups[n], steps[n]
                if step == 1 and any(len(classes) > 1 for classes in group):
                    alone = [_alone(slice_) for slice_ in product(*group)]
                    own = [self.aim.key(joules, self._times(one)[0])[0] for one in alone]
                    every = np.concatenate([every, np.stack([np.maximum(every[n], key) for key in own])])
                    groups, steps, every[n] = [*groups, *alone], [*steps, *([0] * len(alone))], np.inf
                    continue
                steps[n] += 1
                some = np.flatnonzero(every[n] <= most)
                here = tuple(each[some] for each in tiles)
                closer = (
                    self._of_line(group, blends[step], here, above) if step < len(blends) else self._of_tables(group, here, above, False)
                )
                every[n, some] = np.maximum(every[n, some], closer)

    def _of_line(self, group: Group, blend: Blend, tile: Tiles, above: Spent, own: tuple[Any, Any] | None = None) -> Any:
        """The least key of a group by the line of a blend; own: joules and seconds at least, if not those of all slices."""
        spent, (seconds, scales), table = self.search.constant + above.joules, self._times(group), self._table(blend)
        passed = blend.energy * spent + sum(b * n for b, n in zip(blend.bits, above.bits, strict=True))
        joules, seconds = own or (self._at(self.search.energy, None, tile) + spent, seconds)
        least = self._at(table, group, tile) + passed
        ends = BlendLine(blend, table, 0.0).corners(joules, seconds, scales, least)
        return np.where(np.isfinite(least), reduce(np.minimum, (self.aim.key(*end)[0] for end in ends)), np.inf)

    def _of_tables(self, group: Group, tile: Tiles, above: Spent, timed: bool) -> Any:
        """The least key of a group by its energy, the times of its ports if asked for, and the lines that are above these."""
        joules, (seconds, scales) = self._at(self.search.energy, group, tile) + self.search.constant + above.joules, self._times(group)
        fits = np.isfinite(joules)
        if not np.any(fits):
            return np.where(fits, 0.0, np.inf)
        ports = zip(self.search.ports if timed else (), above.bits, scales, strict=False)
        slowest = reduce(np.maximum, ((bits + self._at(t, group, tile)) * k for (_, t), bits, k in ports), seconds)
        lines = (self._of_line(group, blend, tile, above, (joules, slowest)) for blend in self.shared.blends)
        return np.where(fits, reduce(np.maximum, lines, self.aim.key(joules, slowest)[0]), np.inf)

    def _at(self, table: CostTable, group: Group | None, tile: Tiles) -> Any:
        """What all below a tile, or each of many, costs at least, the MACs left out."""
        key = (table.price, group)
        if key not in self.values:
            within = table if group is None else CostTable(table.space, table.price, self._vectors(group), like=table)
            self.values[key] = within.value(1, start(within.space))
        return self.values[key][tile]

    def _vectors(self, group: Group) -> Allowed:
        """Per fan: numbers of the vectors of a group."""
        if group not in self.vectors:
            each = zip(self.search.classes, group, strict=True)
            self.vectors[group] = [tuple(sorted(v for n in cluster for v in classes[n][1])) for classes, cluster in each]
        return self.vectors[group]

    def _times(self, group: Group) -> tuple[float, list[float]]:
        """Seconds of the compute and seconds a bit of every port, at least."""
        if group not in self.times:
            first = tuple(cluster[0] for cluster in group)
            compute = float(self.search.compute_time(self.search.busy(first, self.search.space.depth)))
            self.times[group] = compute, [self.search.scale(port, first) for port in self.ports]
        return self.times[group]

    # -- blends
    def closer(self, slice_: SliceNumber, above: Spent, search: SliceSearch) -> bool:
        """Try the blend that follows the times of the mapping that is least under the last one of a slice; whether it raises the slice's
        least. search: below a tile, where that mapping is kept if it is better."""
        turn = self.shared.turns.get(slice_, 0)
        if turn >= TURNS or not self.ports:
            return False
        self.shared.turns[slice_] = turn + 1
        group, tile, last = _alone(slice_), search.entry.tile, self._last(slice_)
        seconds = search.recount(best_path(search.restricted(self._table(last), slice_), tile)).times_s
        shares = self.shared.shares.get(slice_, [1.0 / len(self.ports)] * len(self.ports))
        self.shared.shares[slice_] = shares_of([seconds[c.name] for c in self.ports], shares, STEP / (1 + 0.3 * turn))
        new = self._blend(slice_)
        self.shared.add(new)
        better = bool(self._of_line(group, new, tile, above) > self._of_line(group, last, tile, above) * (1 + WORTH))
        if not better:
            self.shared.turns[slice_] = TURNS
        return better

    def _last(self, slice_: SliceNumber) -> Blend:
        """The last blend of a slice, or its first."""
        blend = self._blend(slice_)
        if blend not in self.shared.blends:
            self.shared.add(blend)
        return blend

    def _blend(self, slice_: SliceNumber) -> Blend:
        """The blend that weighs energy and latency as the aim does; shares of the latency by port."""
        shares, (_, scales) = self.shared.shares.get(slice_, [1.0 / len(self.ports)] * len(self.ports)), self._times(_alone(slice_))
        joule, second = self.aim.weights(1.0, 1.0)  # of a sum, the same everywhere
        return Blend(joule, tuple(second * share * k for share, k in zip(shares, scales, strict=True)))

    def _table(self, blend: Blend) -> CostTable:
        if blend not in self.tables:
            prices = blend.prices(energy_prices(self.search.space.machine), self.ports)
            self.tables[blend] = CostTable(self.search.space, prices, like=self.search.energy)
        return self.tables[blend]

    # -- searches
    def below(self, entry: Entry, most: float = np.inf, best: Best | None = None) -> SliceSearch:
        """A search below a tile."""
        return SliceSearch(self.search.space, self.aim, best, self.search.energy.effort, entry, self.search, most=(most, np.inf))

    def search_below(self, entry: Entry, most: float, best: Best | None) -> Best | None:
        """The best of one running below a tile that is better than `most` and than the best of other searches."""
        search, spent = self.below(entry, most, best), Spent(entry.joules, tuple(entry.bits.values()))
        if not np.isfinite(self._at(self.search.energy, None, entry.tile)):
            return best
        if search.offer(best_path(search.energy, entry.tile)) <= float(self.compute.min()) * (1 + TIE):
            return search.best
        self.search.blends[:] = [(blend, self._table(blend)) for blend in self.shared.blends]
        for met in self.rising(entry.tile, spent, lambda: search.known[0] * (1 + TIE)):
            if met.slice_ is not None:
                search.look_at(met.slice_)
        return search.best

    def first(self, search: SliceSearch, spent: Spent) -> None:
        """Blends to begin with, of the fastest slice that has a mapping below a tile."""
        slice_ = next(fastest(search, search.entry.tile), None)
        while slice_ is not None and self.closer(slice_, spent, search):
            pass


def fastest(search: SliceSearch, tile: Tile) -> Iterator[SliceNumber]:
    """The slice of the fastest compute that a tile has a mapping in, if any."""
    slices = product(*(range(len(classes)) for classes in search.classes))
    for slice_ in sorted(slices, key=lambda s: -search.busy(s, search.space.depth)):
        if np.isfinite(optimum(search.restricted(search.energy, slice_), tile)):
            yield slice_
            return


def _clusters(busy: Sequence[float]) -> list[tuple[int, ...]]:
    """Numbers of the classes, most busy first, that keep nearly as many instances busy as the first of them."""
    found: list[list[int]] = []
    for n, each in enumerate(busy):
        if found and each * NEARLY >= busy[found[-1][0]]:
            found[-1].append(n)
        else:
            found.append([n])
    return [tuple(cluster) for cluster in found]


def _alone(slice_: SliceNumber) -> Group:
    return tuple((n,) for n in slice_)


def least_of(every: Sequence[SliceLines], tiles: Sequence[Tile], above: Spent, most: float) -> tuple[Met, int]:
    """The least over searches of other choices of stored tensors, and the number of the one that has it."""
    found = [one.least(tile, above, most) for one, tile in zip(every, tiles, strict=True)]
    number = min(range(len(found)), key=lambda n: found[n].key)
    return found[number], number
