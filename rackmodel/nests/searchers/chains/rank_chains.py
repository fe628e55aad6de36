"""Every ragged chain of one rank, as the figures that any cost reads of it, those that no other chain betters.

A chain is the rank's tile at every node and its parts on both sides of every fan. It is made split by split; chains whose pieces are
the same from here on are one state, and of a state only those are kept whose figures so far no other one has as good or better: smaller
where costs or rooms grow with it, larger where it is subtracted, equal where it is both. No tile is left out for being no divisor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from itertools import product
from math import inf, prod
from typing import NamedTuple

import numpy as np

from rackmodel.arrays import Array, Bools, Ints
from rackmodel.nests.searchers.chains.chain_costs import LEAST, MOST, ChainCosts, Figure, Figures
from rackmodel.nests.searchers.chains.chain_pieces import Pieces, stacked
from rackmodel.nests.searchers.mapspace.space import Space

AT_ONCE = 50_000  # rows that are made together
FEW = 400  # rows, up to which none is bounded before its chain is whole
ROUNDS = 100  # of a state's best chains, those that are compared with all others of it


class ChainList(NamedTuple):
    """figures: of every chain · tiles: [chains, nodes] outer → inner · parts: [chains, 2 x fans], x and y of every fan ·
    whole: whether none was left out for its bound."""

    figures: dict[Figure, Array]
    tiles: Ints
    parts: Ints
    whole: bool

    def ends(self) -> tuple[Figures, Figures]:
        """Least and most of every figure."""
        low, high = ({f: end(column, keepdims=True) for f, column in self.figures.items()} for end in (np.min, np.max))
        return low, high

    def only(self, on: Bools) -> ChainList:
        """Some of them; NoChain where they are none."""
        if not on.any():
            raise NoChain
        return ChainList({f: column[on] for f, column in self.figures.items()}, self.tiles[on], self.parts[on], False)


class TooMany(Exception):
    """More chains than were to be made."""


class NoChain(Exception):
    """No tile of the rank leaves room for the others."""


Judge = Callable[[Figures, Figures, int], Bools]
"""(least, most figures of some chains, how many) → [chains] whether a mapping with one of them may be better than what is known."""


def chains_of(costs: ChainCosts, r: int, most: int, worth: Judge) -> ChainList:
    """The chains of a rank under one choice of orders; costs: noted. Raises TooMany where more than `most` would be looked at in
    a step, NoChain where none fits or is worth it."""
    walk = RankWalk(costs, r, most, worth)
    walk.run()
    return ChainList({f: walk.columns[f].astype(float) for f in walk.asked}, walk.tiles, walk.parts, walk.whole)


class RankWalk:
    """Chains so far, by row. now: the last tile · columns: figures · state: pieces by (fans that keep the first, whether loops do)."""

    def __init__(self, costs: ChainCosts, r: int, most: int, worth: Judge) -> None:
        self.costs, self.space, self.r, self.most, self.worth = costs, costs.space, r, most, worth
        self.asked = costs.asked[r]
        self.leaf, self.size = self.space.leaf[r], self.space.sizes[r]
        self.least = min(self.leaf, self.size)
        self.depth, self.whole = 0, True
        self.now: Ints = np.array([self.size])
        self.tiles: Ints = np.zeros((1, 0), dtype=np.int64)
        self.parts: Ints = np.zeros((1, 0), dtype=np.int64)
        self.columns: dict[Figure, Ints] = {}
        self.state = {key: Pieces.whole(self.size) for key in self._keys(0)}
        self._read()

    def run(self) -> None:
        """All splits, outer → inner."""
        space, orders = self.space, self.costs.orders
        level = 0
        while level < space.depth:
            for t in orders[level][1:]:
                self._grow(self._smaller(level, t), RankWalk._node)
            inner = next((n for n in range(level + 1, space.depth) if orders[n]), space.depth)
            self._deal(level, inner)
            level = inner

    # -- splits
    def _smaller(self, level: int, t: int) -> dict[int, Ints]:
        """Largest tile → [tiles, 1] that a node may have next."""
        most = largest_tile(self.space, self.costs.orders[level], level, t, self.r)
        return {n: np.arange(self.least, min(n, most) + 1)[:, None] for n in np.unique(self.now).tolist()}

    def _node(self, tile: Ints) -> None:
        """A node of this tile: [rows, 1]."""
        self.tiles = np.hstack([self.tiles, tile])
        self._split(tile[:, 0], None)

    def _deal(self, level: int, inner: int) -> None:
        """The fans from a level to the next one with nodes, and its first node."""
        space, stored = self.space, inner < self.space.depth
        sides = [_sides(space, f, self.r, -(-self.size // self.leaf)) for f in range(level, inner)]
        self._limit(prod(map(len, sides)) * (self.size if stored else 1))
        dealt = np.array([[n for one in each for n in one] for each in product(*sides)], dtype=np.int64)
        most = largest_tile(space, self.costs.orders[inner], inner, self.costs.orders[inner][0], self.r) if stored else 0
        options = {}
        for now in np.unique(self.now).tolist():
            entry = np.arange(self.least, min(now, most) + 1) if stored else np.array([self.leaf])
            which = np.repeat(np.arange(len(entry)), len(dealt))
            options[now] = self._dealt(now, entry[which], np.tile(dealt, (len(entry), 1)))

        def step(walk: RankWalk, chosen: Ints) -> None:
            received, parts = chosen[:, : inner - level], chosen[:, inner - level :]
            walk.parts = np.hstack([walk.parts, parts])
            for k, f in enumerate(range(level, inner)):
                x, y = parts[:, 2 * k], parts[:, 2 * k + 1]
                walk._read_parts(f, x, y)
                walk._split(received[:, k] * x * y, None)
                walk._split(received[:, k], f)
            if stored:
                walk._node(received[:, -1:])

        self._grow(options, step)

    def _dealt(self, now: int, entry: Ints, parts: Ints) -> Ints:
        """[options, tiles that each fan hands on, then parts] of a tile that may be; parts that never work are not dealt."""
        fans = parts.shape[1] // 2
        received = [entry]
        for k in reversed(range(1, fans)):
            received.insert(0, received[0] * parts[:, 2 * k] * parts[:, 2 * k + 1])
        on, above = np.ones(len(entry), dtype=bool), np.full(len(entry), now)
        for k, tile in enumerate(received):
            x, y = parts[:, 2 * k], parts[:, 2 * k + 1]
            if k == fans - 1:
                on &= (tile <= above) | ((tile == self.leaf) & bool(self.space.machine.compute.atom))
            on &= ((x == 1) | ((x - 1) * y * tile < above)) & ((y == 1) | (x * (y - 1) * tile < above))
            above = np.minimum(above, tile)
        return np.hstack([np.array(received).T, parts])[on]

    def _grow(self, options: dict[int, Ints], step: Callable[[RankWalk, Ints], None]) -> None:
        """Every row with every option of its tile, some at a time, and what a step makes of them."""
        number = np.array([len(options[n]) for n in self.now.tolist()], dtype=np.int64)
        self._limit(int(number.sum()))
        edges = np.searchsorted(np.cumsum(number), np.arange(AT_ONCE, number.sum() + AT_ONCE, AT_ONCE), side="left") + 1
        grown, first = [], 0
        for past in np.unique(np.minimum(edges, len(number))).tolist():
            rows = np.repeat(np.arange(first, past), number[first:past])
            if len(rows):
                one = copy(self)
                one._keep(rows)
                step(one, np.vstack([options[n] for n in self.now[first:past].tolist()]))
                one._reduce()
                if len(one.now):
                    grown.append(one)
            first = past
        self._together(grown)

    def _together(self, grown: list[RankWalk]) -> None:
        """Go on with the rows of all of them."""
        if not grown:
            raise NoChain
        self.whole = all(one.whole for one in grown)
        self.depth, self.columns = grown[0].depth, {f: np.concatenate([one.columns[f] for one in grown]) for f in grown[0].columns}
        self.now, self.tiles, self.parts = (
            np.concatenate([one.now for one in grown]),
            np.vstack([one.tiles for one in grown]),
            np.vstack([one.parts for one in grown]),
        )
        self.state = {key: stacked([one.state[key] for one in grown]) for key in grown[0].state}
        if len(grown) > 1:
            self._reduce()

    def _split(self, tile: Ints, fan: int | None) -> None:
        before = self.depth
        self.depth += 1
        new: dict[tuple[tuple[int, ...], bool], Pieces] = {}
        for first, time in self._keys(self.depth):
            old = self.state[tuple(f for f in first if self.costs.after_fan[f] <= before), time]
            new[first, time] = old.first(tile) if (time if fan is None else fan in first) else old.cut(tile)
        self.state = new
        self.now = np.minimum(self.now, tile)
        if Figure("tile", self.depth) in self.asked:
            self.columns[Figure("tile", self.depth)] = tile
        self._read()

    def _keys(self, depth: int) -> list[tuple[tuple[int, ...], bool]]:
        """Readings of the pieces now that figures after so many splits or more are read from."""
        later = [f for f in self.asked if f.kind in ("pieces", "cover") and f.depth >= depth]
        return list(dict.fromkeys((tuple(n for n in f.first if self.costs.after_fan[n] <= self.depth), f.time) for f in later))

    def _read(self) -> None:
        for figure in self.asked:
            if figure.depth == self.depth and figure.kind in ("pieces", "cover"):
                pieces = self.state[figure.first, figure.time]
                self.columns[figure] = pieces.count if figure.kind == "pieces" else pieces.cover

    def _read_parts(self, fan: int, x: Ints, y: Ints) -> None:
        for side, n in (("x", x), ("y", y)):
            if Figure(side, fan) in self.asked:
                self.columns[Figure(side, fan)] = n

    # -- rows
    def _limit(self, rows: int) -> None:
        if rows > self.most:
            raise TooMany

    def _keep(self, rows: Ints) -> None:
        self.now, self.tiles, self.parts = self.now[rows], self.tiles[rows], self.parts[rows]
        self.columns = {f: column[rows] for f, column in self.columns.items()}
        self.state = {key: pieces.at(rows) for key, pieces in self.state.items()}

    def _reduce(self) -> None:
        """Rows that are worth it, one of each state and figures, none that another of its state is no worse than."""
        if len(self.now) > FEW:
            self.whole = False
            self._keep(np.flatnonzero(self.worth(*self.ends(), len(self.now))))
        if len(self.now) <= FEW / 10:
            return
        later = [self.now[:, None] if self.depth < self.costs.end else np.zeros((len(self.now), 1), dtype=np.int64)]
        for key in self._keys(self.depth + 1):
            later += [self.state[key].extents, self.state[key].number]
        signed = [sign * self.columns[f] for f in self.columns for end, sign in ((LEAST, 1), (MOST, -1)) if end in self.asked[f]]
        values = np.array(signed).T.reshape(len(self.now), len(signed))
        _, group = _distinct(np.hstack(later))
        firsts, _ = _distinct(np.hstack([group[:, None], values]))
        self._keep(firsts[_front(group[firsts], values[firsts])])

    # -- what can become of rows
    def ends(self) -> tuple[Figures, Figures]:
        """([rows] least, most) of every figure, of any chain that goes on from a row."""
        low: dict[Figure, Array] = {}
        high: dict[Figure, Array] = {}
        for figure, ends in self.asked.items():
            if figure in self.columns:
                low[figure] = high[figure] = self.columns[figure].astype(float)
            elif figure.kind in ("pieces", "cover"):
                if LEAST in ends:
                    low[figure] = self._least(figure)
                if MOST in ends:
                    high[figure] = self._most(figure)
            else:
                low[figure] = np.full(len(self.now), float(self.least if figure.kind == "tile" else 1))
        return low, high

    def _least(self, figure: Figure) -> Array:
        """Pieces are no fewer than now; of leaves each has so many at least. What is covered is shared by those that are left out."""
        now, ahead = self._now(figure), self._ahead(figure, True)
        if figure.kind == "cover":
            return np.maximum(now.count, now.cover / ahead)
        if figure.depth < self.costs.end or figure.time:
            return now.count.astype(float)
        return np.asarray((now.number * np.ceil(-(-now.extents // self.leaf) / ahead)).sum(axis=1))

    def _most(self, figure: Figure) -> Array:
        """What is covered is no more than now; of pieces with loops left out no more than instances, and than the size (a ragged tile may
        have more of them than ceil(size / leaf))."""
        now = self._now(figure)
        if figure.kind == "cover":
            return now.cover.astype(float)
        most: Array = np.full(len(self.now), float(self.size))
        return np.minimum(most, now.count * self._ahead(figure, False)) if figure.time else most

    def _now(self, figure: Figure) -> Pieces:
        return self.state[tuple(f for f in figure.first if self.costs.after_fan[f] <= self.depth), figure.time]

    def _ahead(self, figure: Figure, first: bool) -> float:
        """Instances of the fans still to come above a figure, of those that keep the first or of the others."""
        fans = [f for f in self.costs.split if self.depth < self.costs.after_fan[f] <= figure.depth and (f in figure.first) == first]
        levels = self.space.machine.levels
        return prod((inf if levels[f].fan.linear else float(levels[f].fan.size) for f in fans), start=1.0)


def largest_tile(space: Space, order: Sequence[int], level: int, t: int, r: int) -> int:
    """The largest tile of a rank at a tensor's node that leaves the other ranks and nodes their least room."""
    capacity, v = space.capacity(level), space.machine.levels[level]
    if capacity is None or not space.has[t, r]:
        return space.sizes[r]
    least = [float(min(u, n)) for u, n in zip(space.leaf, space.sizes, strict=True)]
    room = {o: float(space.terms[o].room(least.__getitem__, v.buffers * v.bits(space.tensors[o]))) for o in order}
    left = capacity - sum(room.values()) + room[t]
    return min(space.sizes[r], max(0, int(left / (room[t] / least[r]) * (1 + 1e-12))))


def _sides(space: Space, f: int, r: int, need: int) -> list[tuple[int, int]]:
    """(parts on x, parts on y) of a rank below a level; need: that hold all of it."""
    level = space.machine.levels[f]
    on_x, on_y = (space.ranks[r] in space.allowed(level.name, side) for side in "XY")
    xs = range(1, (need if level.fan.linear else min(level.fan.x, need)) * on_x + 1) if on_x else [1]
    ys = range(1, min(level.fan.y, need) + 1) if on_y and not level.fan.linear else [1]
    return [(x, y) for x in xs for y in ys if (x == 1 or (x - 1) * y < need) and (y == 1 or x * (y - 1) < need)]


def _distinct(rows: Ints) -> tuple[Ints, Ints]:
    """(the first row of each kind, [rows] number of their kind)."""
    whole = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    _, first, kind = np.unique(whole, return_index=True, return_inverse=True)
    return first, kind


def _front(group: Ints, values: Ints) -> Ints:
    """Rows that no row of their group is no larger than in every value; of many, some that are larger may be left."""
    scale = np.maximum(np.abs(values).max(axis=0), 1)
    order = np.lexsort(((values / scale).sum(axis=1), group))
    kept = []
    for _ in range(ROUNDS):
        if not len(order):
            break
        new = np.r_[True, group[order[1:]] != group[order[:-1]]]
        pivots = order[new]
        kept.append(pivots)
        over = (values[order] >= values[pivots[np.cumsum(new) - 1]]).all(axis=1)
        order = order[~over]
    return np.sort(np.concatenate([*kept, order]))
