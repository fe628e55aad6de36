"""The search of a region with given loops around its members (region_loops), best first.

What lives in a span of members has one tile, the span's core; above it may lie nodes of other tensors (the prefix, an ordered subset), all
cut by loops over ranks that the span allows. Below it each member of the span alone has a branch of its own: its remaining tensors, under
capacity - prefix - what lives there then. Resident tensors stay whole in level 1. V are the cost tables with all of these on chip. Search:
every prefix and tile, priced with V at full capacity (a lower bound; seconds: each port's table, and the compute), best first; the branches
at their true capacity until no bound is lower. Any number of loops. Derivation: docs/nest_theory.md, section 7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rackmodel.arrays import Array, Bools, Ints
from rackmodel.nests.objective import TIE, Key, NestObjective, better
from rackmodel.nests.searchers.effort import Effort, Exhausted
from rackmodel.nests.searchers.mapspace.prices import energy_prices
from rackmodel.nests.searchers.regions.region_below import WHOLE, Lined, RegionBelow, RegionBest, RegionCandidate, value_at
from rackmodel.nests.searchers.regions.region_branch import Above, Branch
from rackmodel.nests.searchers.regions.region_floors import lined_keys, words_once
from rackmodel.nests.searchers.regions.region_prefixes import Prefix, equals, prefixes
from rackmodel.nests.searchers.regions.region_space import RegionSpace
from rackmodel.nests.searchers.regions.region_tiles import PrefixTiles
from rackmodel.nests.searchers.regions.region_waiting import Waiting
from rackmodel.nests.searchers.tables.shared_tables import SharedTables

JOINT = 500_000  # joint cells of a prefix that are priced at once
TOGETHER = 2_000_000  # joint cells beyond which each tile of a core is looked at by itself


class Priced(NamedTuple):
    """Every tile of a prefix: lower bounds of joules and seconds, what the prefix costs by member, what statistics and operations between
    cost that run again."""

    energy: Array
    seconds: Array
    prefix: list[Array]
    running: tuple[Array, Array]


class Cells(NamedTuple):
    """Tiles of a core by number [n, shared ranks], and what its members spend at least: joules, seconds [n]."""

    tiles: Ints
    energy: Array
    seconds: Array


class Floor(NamedTuple):
    """Of each span's own members: joules and seconds that nothing is below, by its core's tile [tiles of the shared ranks], and keys of
    both together, once lines said them."""

    energy: list[Array]
    seconds: list[Array]
    keys: list[Array] | None = None


class RegionSearch(RegionBelow):
    """One region, one choice of loops; see the module docstring. like: another search of the region, whose tables this one shares · tables:
    of searches of other regions, to be shared."""

    branch: type[Branch] = Branch

    def __init__(
        self,
        space: RegionSpace,
        aim: NestObjective,
        effort: Effort,
        best: RegionBest,
        like: RegionSearch | None = None,
        tables: SharedTables | None = None,
    ) -> None:
        self.tables: SharedTables = like.tables if like is not None else tables or SharedTables()
        others: Sequence[Branch | None] = like.branches if like is not None else [None] * len(space.region.members)
        branches = [self.branch(space, i, effort, self.tables, other) for i, other in enumerate(others)]
        super().__init__(space, aim, effort, best, branches)
        self.prices = energy_prices(self.region.machines[0])
        self.cores = range(len(space.loops.spans))
        self.rooms: dict[frozenset[str], Array] = {}
        self.asked = [self._asked(k) for k in self.cores]
        self.least = 0.0  # that the objective is not below, whatever the loops: nests whose tiles loops cut are nests of whole tiles
        self.open = 0.0  # that what was left open is not below, where the effort ended

    def run(self) -> None:
        """Leave what is better in `best`. Raises Exhausted where the effort ended first; `open` is what the rest is not below."""
        every = prefixes(self.space)
        self.best.prefixes += len(every)
        scalars = [self._scalar(prefix) for prefix in every]
        self.least = self.open = min(first for first, _ in scalars)
        hopeful = [prefix for prefix, scalar in zip(every, scalars, strict=True) if better(scalar, self.best.key)]
        self.best.bounded += len(every) - len(hopeful)
        floor_of = {sets: self._floors(prefix) for sets, prefix in {self._sets(prefix): prefix for prefix in hopeful}.items()}
        least_of = {sets: self._least(floor) for sets, floor in floor_of.items()}
        order = sorted((least_of[self._sets(prefix)], k) for k, prefix in enumerate(hopeful))
        left = np.inf
        for n, (least, k) in enumerate(order):
            if not better(least, self.best.key):
                self.best.bounded += 1
                continue
            try:
                sets, self.open = self._sets(hopeful[k]), least[0]
                floor_of[sets] = self._lined(hopeful[k], floor_of[sets])
                self._prefix(hopeful[k], floor_of[sets], least[0])
            except Exhausted:  # what is known by now may say more of the others than their least
                left = min(left, self.open)
                if self.effort.over or self.best.tried > self.best.most:
                    left = min(left, *(following[0] for following, _ in order[n + 1 :]), np.inf)
                    break
        if left < np.inf:
            self.open = left
            raise Exhausted

    @staticmethod
    def _sets(prefix: Prefix) -> tuple[frozenset[str], ...]:
        return tuple(frozenset(names) for names in prefix)

    # -- bounds
    def _words_once(self, prefix: Prefix) -> float:
        """Joules of the prefix at least: every word once."""
        return words_once(self.space, [n for names in prefix for n in names], self.prices)

    def _scalar(self, prefix: Prefix) -> Key:
        """A key that nothing with this prefix is below, whatever the tiles."""
        least = sum(branch.least_of_all(prefix, WHOLE) for branch in self.branches) + self._words_once(prefix)
        first, second = self._keys(least, sum(float(branch.seconds.min()) for branch in self.branches))
        return float(first), float(second)

    def _least(self, floor: Floor) -> Key:
        """The least of the keys of some tiles."""
        energy, seconds = (whole[0] for whole in self._figures(floor, self._with_within))
        first, second = (np.broadcast_to(k, energy.shape).ravel() for k in self._keys(energy, seconds))
        k = int(np.lexsort((second, first))[0])
        return float(first[k]), float(second[k])

    def _floors(self, prefix: Prefix) -> Floor:
        """Per tile of every core: joules and seconds that nothing with this prefix is below (inf where no tile above has room): every word
        of the prefix once, branches at full capacity, compute alone."""
        held = self.space.resident_bits
        energy, seconds = [], []
        for k in self.cores:
            mine = [branch for branch in self.branches if branch.span == k]
            room = np.max([self._room(prefix, branch) for branch in mine], axis=0, initial=0.0)
            fits = np.where((room + held <= self.capacity) & self.asked[k], 0.0, np.inf)
            energy.append(fits + sum((branch.least(prefix, WHOLE) for branch in mine), 0.0))
            seconds.append(fits + sum((branch.seconds for branch in mine), 0.0))
        energy[-1] = energy[-1] + self._words_once(prefix)
        return Floor(energy, seconds)

    def _lined(self, prefix: Prefix, floor: Floor) -> Floor:
        """With keys of energy and seconds together, once there is something to undercut."""
        if self.aim.energy_only or floor.keys is not None or not np.isfinite(self.best.key[0]):
            return floor
        figures = zip(*self._figures(floor, self._all_together), strict=True)
        keys = [self._keys(joules, seconds) for joules, seconds in figures]
        hope = [better((first, second), self.best.key) & np.isfinite(first) for first, second in keys]
        return floor._replace(keys=lined_keys(self.branches, prefix, self.aim, self.best.key, [first for first, _ in keys], hope))

    def _figures(self, floor: Floor, together: Callable[[list[Array]], list[Array]]) -> tuple[list[Array], list[Array]]:
        """Joules and seconds of spans together; where energy alone counts its joules stand for both."""
        energy = together(floor.energy)
        return energy, energy if self.aim.energy_only else together(floor.seconds)

    def _with_within(self, own: list[Array]) -> list[Array]:
        """Per span, by its core's tile: the least sum of what is its own and of all spans within it, their cores within it."""
        within = list(own)
        for k in reversed(self.cores[1:]):
            around = self.space.loops.paths[k][-2]
            within[around] = within[around] + self._least_within(within[k])
        return within

    def _all_together(self, own: list[Array]) -> list[Array]:
        """Per span, by its core's tile: the least sum over all spans of what is each one's own, cores within one another."""
        within = self._with_within(own)
        whole = within[:1]
        for k in self.cores[1:]:
            around = whole[self.space.loops.paths[k][-2]]
            mine = self._least_within(within[k])
            rest = np.subtract(around, mine, out=np.full(around.shape, np.inf), where=np.isfinite(around))
            whole.append(within[k] + self._least_around(rest))
        return whole

    def _least_within(self, values: Array) -> Array:
        """[tiles of the shared ranks] the least of all tiles that nest in one."""
        for r, axis in enumerate(self.space.axes):
            values = axis.zeta(values, r)
        return values

    def _least_around(self, values: Array) -> Array:
        """[tiles of the shared ranks] the least of all tiles that one nests in."""
        for r, axis in enumerate(self.space.axes):
            lines = np.moveaxis(values, r, 0)
            values = np.moveaxis(np.stack([lines[around].min(axis=0) for around in axis.below]), 0, r)
        return values

    def _asked(self, k: int) -> Bools:
        """[tiles of the shared ranks] which may be those of a core: whole in ranks that no loop may cut; with tiles made again, where any
        is (what makes nothing twice is another search)."""
        space, loops = self.space, self.space.loops
        grid: Bools = np.ones([len(axis) for axis in space.axes], dtype=bool)
        again: Bools = np.zeros_like(grid)
        for r, axis in enumerate(space.axes):
            whole = (np.arange(len(axis)) == axis.top).reshape([-1 if i == r else 1 for i in range(len(space.axes))])
            if not any(space.cuts[j][r] for j in loops.paths[k]):
                grid = grid & whole
            if space.parts[space.shared[r]][0] not in self.region.shared:
                again = again | ~whole
        return grid & again if loops.again and len(loops.spans) == 1 else grid

    def _room(self, prefix: Prefix, branch: Branch) -> Array:
        """[tiles of the shared ranks] bits at least while a member runs: tiles above are no smaller than its core's."""
        names = frozenset((*(n for k in branch.around for n in prefix[k]), *self.space.loops.live(branch.i)))
        if names not in self.rooms:
            zero: Array = np.zeros([len(a) for a in self.space.axes])
            self.rooms[names] = np.asarray(sum((self.space.core_room[n] for n in sorted(names)), zero))
        return self.rooms[names]

    def _priced(self, prefix: Prefix, above: PrefixTiles) -> Priced:
        zero = 0.0 * above.ones
        own = [above.priced(self.prices, branch.charged(prefix)) for branch in self.branches]
        energy = sum(own, zero)
        for branch in self.branches:
            energy = energy + above.exits(branch.least(prefix, WHOLE), branch.span)
        joules, seconds = zero, zero
        for one in self.region.running:
            made, read = (above.further(one) * above.times(i) for i in self.space.users[one.of])
            joules = joules + made * one.joules + read * one.scaled[0]
            seconds = seconds + made * one.seconds + read * one.scaled[1]
        for name, (spent, taken) in self.region.between.items():
            further = above.times(self.space.users[name][0]) - 1.0
            joules, seconds = joules + further * spent, seconds + further * taken
        slowest = sum((self._slowest(branch, prefix, above) for branch in self.branches), seconds)
        return Priced(energy + joules, slowest, own, (joules, seconds))

    def _slowest(self, branch: Branch, prefix: Prefix, above: PrefixTiles) -> Array:
        """Seconds of a member at least."""
        slowest = above.exits(branch.seconds, branch.span)
        if not self.aim.energy_only:
            for k, port in enumerate(branch.ports):
                spent = above.priced(port.prices(len(branch.machine.levels)), branch.charged(prefix))
                bits = spent + above.exits(branch.least(prefix, WHOLE, k), branch.span)
                slowest = np.maximum(slowest, bits / branch.bandwidth[k])
        return slowest

    # -- one prefix
    def _prefix(self, prefix: Prefix, floor: Floor, least: float) -> None:
        """Look at every tile of a prefix that may be better than the best. Where one would be with fewer rows of statistics than it has
        with loops where the lemmas put them, loops lie anywhere. least: that none of them is below."""
        once = np.asarray(self._words_once(prefix))
        missed, parts, self.open = list[Key](), self._parts(prefix, self._hopeful(floor, once), 0, every=False), least
        for above in parts:
            try:
                missed.append(self._joint(prefix, floor, above))
            except Exhausted:
                if np.isfinite([key for key, _ in missed]).any() or next(parts, None) is not None:
                    self.open = least
                raise
        if any(better(key, self.best.key) for key in missed):
            try:
                for same in equals(self.space, prefix):
                    for above in self._parts(same, self._hopeful(floor, once), 0, every=True):
                        self._joint(same, floor, above)
            except Exhausted:
                self.open = least
                raise

    def _hopeful(self, floor: Floor, once: Array) -> list[Cells]:
        """Per core: the tiles that may be better than the best, others at their least. once: joules of the prefix at least."""
        found, lined = [], [np.zeros(())] * len(floor.energy)
        if floor.keys is not None:
            lined = self._all_together([*floor.keys[:-1], floor.keys[-1] + self._keys(once, 0.0 * once)[0]])
        for energy, seconds, key in zip(*self._figures(floor, self._all_together), lined, strict=True):
            keys = self._keys(energy, seconds)
            first = np.maximum(keys[0], key)
            hope = better((first, np.broadcast_to(keys[1], first.shape)), self.best.key) & np.isfinite(first)
            found.append(Cells(np.argwhere(hope), energy[hope], seconds[hope]))
        return found

    def _parts(self, prefix: Prefix, cells: list[Cells], fixed: int, *, every: bool) -> Iterator[PrefixTiles]:
        """The tiles of a prefix that may be better than the best, together or, where they are many, for each tile of a core by itself.
        fixed: so many outer cores have one tile."""
        if not all(len(one.tiles) for one in cells):
            return
        exits = [[np.unique(one.tiles[:, r]) for r in range(len(self.space.axes))] for one in cells]
        above = PrefixTiles(self.space, prefix, exits, every=every)
        if fixed == len(cells) or above.size <= TOGETHER:
            yield from above.halves(JOINT)
            return
        outer = cells[fixed]
        keys = self._keys(outer.energy, outer.seconds)
        for n in np.lexsort((keys[1], keys[0])):
            one = Cells(outer.tiles[n : n + 1], outer.energy[n : n + 1], outer.seconds[n : n + 1])
            paths = self.space.loops.paths
            within = [self._within(one, cells[k]) if fixed in paths[k] else cells[k] for k in self.cores[fixed + 1 :]]
            narrowed = [*cells[:fixed], one, *within]
            figures = [max(float(getattr(c, name).min(initial=np.inf)) for c in narrowed) for name in ("energy", "seconds")]
            if better(self._keys(*figures), self.best.key):
                yield from self._parts(prefix, narrowed, fixed + 1, every=every)

    def _within(self, outer: Cells, inner: Cells) -> Cells:
        """The tiles of an inner core that divide those of one outer tile."""
        nested = np.ones(len(inner.tiles), dtype=bool)
        for r, axis in enumerate(self.space.axes):
            nested &= axis.below[inner.tiles[:, r], outer.tiles[0, r]]
        return Cells(inner.tiles[nested], inner.energy[nested], inner.seconds[nested])

    def _joint(self, prefix: Prefix, floor: Floor, above: PrefixTiles) -> Key:
        """Look at tiles of a prefix together; the least key of those that would fit with the fewest rows of statistics, and do not."""
        self.effort.spend(0)
        self.best.candidates += int(above.size)
        priced, legal = self._priced(prefix, above), above.legal()
        shape = np.broadcast_shapes(priced.energy.shape, priced.seconds.shape, legal.shape)
        keys = [np.broadcast_to(k, shape) for k in self._keys(priced.energy, priced.seconds)]
        if floor.keys is not None:
            spent = self._keys(sum(priced.prefix, priced.running[0]), priced.running[1])[0]
            keys[0] = np.maximum(keys[0], sum((above.exits(of, k) for k, of in enumerate(floor.keys)), spent))
        fits = better((keys[0], keys[1]), self.best.key) & np.isfinite(keys[0]) & legal
        if not fits.any():
            return np.inf, np.inf
        fits = fits & self._new(prefix, above)
        for k in self.cores:
            fits = fits & np.isfinite(above.exits(floor.energy[k], k))
        tiles = above.tiles()
        for least in tiles.least:
            fits = fits & (least <= self.capacity)
        held = fits
        for used in tiles.used:
            held = held & (used <= self.capacity)
        missed = float(keys[0][fits & ~held].min(initial=np.inf))
        self._try(prefix, above, priced, tiles.used, keys, held, missed)
        return (missed, -np.inf) if missed < np.inf else (np.inf, np.inf)

    def _new(self, prefix: Prefix, above: PrefixTiles) -> Bools:
        """[joint] whether tiles are not those of another prefix, and whether loops around some members do something: they cut, or hold what
        several of these members read."""
        new = above.distinct()
        loops = self.space.loops
        for k, (first, last) in enumerate(loops.spans[1:], 1):
            several = [n for n in prefix[k] if sum(first <= i <= last for i in self.space.users[n]) > 1]
            if not several:
                outer, inner = (above.counts[above.core[at]] for at in loops.paths[k][-2:])
                new = new & np.any(np.broadcast_arrays(*(i > o for o, i in zip(outer, inner, strict=True))), axis=0)
        return new

    def _try(
        self, prefix: Prefix, above: PrefixTiles, priced: Priced, used: list[Array], keys: list[Array], held: Bools, missed: float
    ) -> None:
        """The cells that have room, best bound first, until none is better than the best. What lines leave of one is looked at where none
        has a lower bound. missed: the least key of other cells, which are open where the effort ends."""
        cells = np.flatnonzero(held)
        bounds = [np.broadcast_to(k, held.shape).ravel()[cells] for k in keys]
        waiting = Waiting(bounds[0], bounds[1])
        try:
            while waiting.least <= self.best.key[0] * (1 + TIE) and waiting.least < np.inf:
                one = waiting.pop()
                if isinstance(one, Lined):
                    again = self._closer(one) if better((sum(one.keys), one.second), self.best.key) else None
                elif better((bounds[0][one], bounds[1][one]), self.best.key):
                    self.best.tried += 1
                    if self.best.tried > self.best.most:
                        raise Exhausted
                    cell = tuple(int(i) for i in np.unravel_index(cells[one], held.shape))
                    again = self._first(self._candidate(prefix, above, priced, used, cell))
                else:
                    continue
                if again is not None:
                    waiting.push(again)
        except Exhausted:
            self.open = max(self.open, min(waiting.now, waiting.least, missed))
            raise
        self.best.bounded += waiting.unseen

    def _candidate(self, prefix: Prefix, above: PrefixTiles, priced: Priced, used: list[Array], cell: tuple[int, ...]) -> RegionCandidate:
        places, tiles = [], above.node_tiles(cell)
        for branch, own, taken in zip(self.branches, priced.prefix, used, strict=True):
            mine = branch.charged(prefix)
            ports = () if self.aim.energy_only else branch.ports
            bits = tuple((c.name, value_at(above.priced(c.prices(len(branch.machine.levels)), mine), cell)) for c in ports)
            here = tuple(tiles[j] for j in above.path(above.core[branch.span]))
            places.append(Above(prefix, here, value_at(taken, cell), value_at(own, cell), bits))
        running = value_at(priced.running[0], cell), value_at(priced.running[1], cell)
        exits = tuple(above.exit_tile(cell, branch.span) for branch in self.branches)
        return RegionCandidate(tuple(places), exits, running)
