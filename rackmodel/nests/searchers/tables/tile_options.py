"""Every choice at one level for one given tile, spelled out: what tracing back and enumerating start from."""

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from rackmodel.arrays import Array, Bools, Ints
from rackmodel.nests.searchers.mapspace.fan_state import FanState
from rackmodel.nests.searchers.mapspace.order_plan import OrderPlan
from rackmodel.nests.searchers.mapspace.space import Space
from rackmodel.nests.searchers.tables.cost_table import CELLS, CostTable

Tile = tuple[int, ...]  # number of the tile on every rank's axis
Cells = tuple[Ints, ...]  # a vector's place and a joint cell, each [cells] by axis


class LevelOptions:
    """Every choice of one order at a level, for a given tile: vector numbers [S], plan, state below, entry tile [S, ranks]."""

    def __init__(self, table: CostTable, state: FanState, plan: OrderPlan, found: "Entries") -> None:
        self.table, self.state, self.plan = table, state, plan
        self.picks, self.below, self.entry = found.picks, found.below, found.entry

    @cached_property
    def own(self) -> Array:
        """[S, joint] price of this level alone; inf where tiles do not nest."""
        table, plan = self.table, self.plan
        own: Array = self._parts[0] + np.zeros((1,) * (len(plan.axis) + 1))
        for part in self._parts[1:]:
            own = own + part
        own = np.where(_nests(table.space, plan, self.entry), own, np.inf)
        table.effort.spend(own.size)
        return own

    @cached_property
    def total(self) -> Array:
        """[S, joint] price of this level and all below it; inf where illegal."""
        rest = self._rest
        if self.plan.mask is not None:
            rest = np.where(self.plan.mask, rest, np.inf)
        self.table.effort.spend(rest.size)
        return np.asarray(self.own + rest[None])

    def at(self, cells: Cells) -> tuple[Array, Array]:
        """`own` and `total` of some cells alone; they must nest, and be legal."""
        self.table.effort.spend(len(cells[0]))
        shape = np.broadcast_shapes(*(part.shape for part in self._parts), (len(self.picks), *(len(a) for a in self.plan.axis)))
        own = np.zeros(len(cells[0]))
        for part in self._parts:
            own = own + np.broadcast_to(part, shape)[cells]
        return own, own + self._rest[cells[1:]]

    @cached_property
    def _parts(self) -> list[Array]:
        """What the price of this level alone is the sum of, each as wide as it must be."""
        table, plan = self.table, self.plan
        credit = table.coefficients(plan.level, self.state).credit
        prices = [table.node_price(plan, j, self.state, self.picks, self.entry) for j in range(len(plan.order))]
        return [-credit[self.picks].reshape((-1,) + (1,) * len(plan.axis)), *prices]

    @cached_property
    def _rest(self) -> Array:
        """[joint] price of all below this level."""
        return self.table.exits(self.plan, self.table.value(self.plan.level + 1, self.below))


class Entries(NamedTuple):
    """What enters a level for a given tile, for spatial vectors of one state below: vector numbers [S], state below, number of the
    entry tile [S, ranks], least price of the level and all below it [S] (inf where nothing fits)."""

    picks: Ints
    below: FanState
    entry: Ints
    price: Array


def every_entry_known(table: CostTable, level: int, state: FanState, x: Tile) -> bool:
    """Whether every spatial vector at memory `level` has been priced for tile x."""
    return ("entries", level, state, x, table.suffix[level]) in table.known(level)


def entries(table: CostTable, level: int, state: FanState, x: Tile, among: Ints | None = None) -> list[Entries]:
    """The best entry tile of every spatial vector at memory `level` given tile x, with its price; among: of these vectors at least."""
    key, known = ("entries", level, state, x, table.suffix[level]), table.known(level)
    some = key if among is None else (*key, among.tobytes())
    if key in known or some in known:
        found: list[Entries] = known[key if key in known else some]
        return found
    whole = known.get(("entries", level, state, x, (None, *table.suffix[level][1:])))
    picks = table.picked(level - 1) if among is None else among
    known[some] = list(_priced(table, level, state, x, picks)) if whole is None else _among(whole, picks)
    return entries(table, level, state, x, among)


def _among(whole: list[Entries], picks: Ints) -> list[Entries]:
    """Those of the vectors `picks`."""
    held = [(e, np.isin(e.picks, picks)) for e in whole]
    return [Entries(e.picks[on], e.below, e.entry[on], e.price[on]) for e, on in held]


def _priced(table: CostTable, level: int, state: FanState, x: Tile, among: Ints) -> Iterator[Entries]:
    credit = table.coefficients(level, state).credit
    for below, group in table.by_state(level, state):
        picks, tiles = _entries(table, level, x, group[np.isin(group, among)])
        if tiles is not None and len(credit) == 1:  # one vector: the table itself, which other tiles ask as well
            yield Entries(picks, below, tiles, np.full(len(picks), table.value(level, state)[x]))
            continue
        entry, price = np.zeros((len(credit), len(table.space.axes)), dtype=np.int64), np.full(len(credit), np.inf)
        if tiles is not None:
            entry[picks] = tiles
        for every, entered in table.enter(level, state, below, picks) if len(picks) else ():
            for row, members in zip(entered, every, strict=True):
                if tiles is None:
                    entry[members], price[members] = _least(table, level, x, int(members[0]), row)
                else:
                    price[members] = row[tuple(entry[members].T)]
        yield Entries(picks, below, entry[picks], price[picks] - credit[picks])


def options(table: CostTable, level: int, state: FanState, x: Tile, among: Bools | None = None) -> Iterator[LevelOptions]:
    """Every choice at memory `level` given tile x; perfect factors. among: [vectors] which of them, None = all."""
    for below, group in table.by_state(level, state):
        picks, entry = _entries(table, level, x, group if among is None else group[among[group]])
        assert entry is not None, "one tile enters"
        yield from spelled(table, level, state, Entries(picks, below, entry, np.zeros(len(picks))))


def spelled(table: CostTable, level: int, state: FanState, found: Entries) -> Iterator[LevelOptions]:
    """Every order and tile below the given entry tiles."""
    for plan in table.plans(level) if len(found.picks) else ():
        step = max(1, CELLS // plan.cells)
        for i in range(0, len(found.picks), step):
            part = Entries(found.picks[i : i + step], found.below, found.entry[i : i + step], found.price[i : i + step])
            yield LevelOptions(table, state, plan, part)


def _nests(space: Space, plan: OrderPlan, entry: Ints) -> Bools:
    """[S, joint] True where the first version of every rank nests in the tile that enters."""
    legal: Bools = np.ones((1,) * (len(plan.axes_of) + 1), dtype=bool)
    for i, (r, v) in enumerate(plan.axes_of):
        if v > 1:
            continue
        outer, inner = space.axes[r], plan.axis[i]
        if v == 0:
            target = entry[:, r] if inner is outer else outer.clamp(inner)[entry[:, r]]
            row = np.arange(len(inner))[None, :] == target[:, None]
        else:
            row = (outer.below if inner is outer else outer.below_of(inner))[:, entry[:, r]].T
        shape = [len(entry)] + [len(inner) if k == i else 1 for k in range(len(plan.axes_of))]
        legal = legal & row.reshape(shape)
    return legal


def _entries(table: CostTable, level: int, x: Tile, picks: Ints) -> tuple[Ints, Ints | None]:
    """(vector numbers that may cut x, [S, ranks] number of the tile x / s); ceil: None, as several tiles may enter."""
    if not table.space.aligned:
        return picks, None
    entry, legal = table.share(level, ("entry", level, x), lambda: _quotients(table.space, level, x))
    some = picks[legal[picks]]
    return some, entry[some]


def _quotients(space: Space, level: int, x: Tile) -> tuple[Ints, Bools]:
    """([S, ranks] number of the tile x / s for every spatial vector s above a level, -1 where there is none; [S] where there is)."""
    vectors = space.vectors[level - 1]
    entry: Ints = np.empty(vectors.shape, dtype=np.int64)
    for r, axis in enumerate(space.axes):
        size = int(axis.tile[x[r]])
        parts, at = np.unique(vectors[:, r], return_inverse=True)
        entry[:, r] = np.array([axis.index[size // s] if size % s == 0 else -1 for s in parts.tolist()])[at]
    legal: Bools = np.all(entry >= 0, axis=1)
    return entry, legal


def _least(table: CostTable, level: int, x: Tile, vector: int, entered: Array) -> tuple[Ints, float]:
    """(entry tile [ranks], price) of least price for one vector, ragged tiles."""
    space = table.space
    tiles = [axis.entries(x[r], int(space.vectors[level - 1][vector, r])) for r, axis in enumerate(space.list_axes)]
    if not all(tiles):
        return np.zeros(len(tiles), dtype=np.int64), np.inf
    block = entered[np.ix_(*tiles)]
    at = np.unravel_index(int(block.argmin()), block.shape)
    return np.array([t[a] for t, a in zip(tiles, at, strict=True)]), float(block[at])
