"""Every choice at one level for one given tile, spelled out: what tracing back and enumerating start from."""

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

import numpy as np

from rackmodel.nests.arrays import Bools, Floats, Ints
from rackmodel.nests.searchers.cost_table import CELLS, CostTable
from rackmodel.nests.searchers.fan_state import FanState
from rackmodel.nests.searchers.order_plan import OrderPlan
from rackmodel.nests.searchers.space import Space

Tile = tuple[int, ...]  # number of the tile on every rank's axis


class LevelOptions(NamedTuple):
    """Every choice of one order at a level, for a given tile: vector numbers [S], plan, state below, entry tile [S, ranks],
    price of this level alone [S, joint], the same with all below it [S, joint] (inf where illegal)."""

    picks: Ints
    plan: OrderPlan
    below: FanState
    entry: Ints
    own: Floats
    total: Floats


def options(table: CostTable, level: int, state: FanState, x: Tile) -> Iterator[LevelOptions]:
    """Every choice at memory `level` given tile x."""
    credit = table.coefficients(level, state).credit
    for below, picks in table.by_state(level, state):
        picks, entry = _entries(table, level, state, below, x, picks)
        if not len(picks):
            continue
        inner = table.value(level + 1, below)
        for plan in table.plans(level):
            table.effort.spend(plan.cells)
            rest = table.exits(plan, inner)
            if plan.mask is not None:
                rest = np.where(plan.mask, rest, np.inf)
            step = max(1, CELLS // rest.size)
            for i in range(0, len(picks), step):
                part, y = picks[i : i + step], entry[i : i + step]
                own: Floats = -credit[part].reshape((-1,) + (1,) * rest.ndim) + np.zeros((1,) * (rest.ndim + 1))
                for j in range(len(plan.order)):
                    own = own + table.node_price(plan, j, state, part, y)
                own = np.where(_nests(table.space, plan, y), own, np.inf)
                table.effort.spend(own.size)
                yield LevelOptions(part, plan, below, y, own, own + rest[None])


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


def _entries(table: CostTable, level: int, state: FanState, below: FanState, x: Tile, picks: Ints) -> tuple[Ints, Ints]:
    """(vector numbers, [S, ranks] number of the tile x / s); ceil: the best entry tile of the best vector."""
    vectors = table.space.vectors[level - 1][picks]
    if not table.space.aligned:
        return _best_entry(table, level, state, below, x, picks)
    entry = np.empty(vectors.shape, dtype=np.int64)
    for r, axis in enumerate(table.space.axes):
        size = int(axis.tile[x[r]])
        look = {int(v): axis.index[size // int(v)] if size % v == 0 else -1 for v in np.unique(vectors[:, r])}
        entry[:, r] = [look[int(v)] for v in vectors[:, r]]
    legal = (entry >= 0).all(axis=1)
    return picks[legal], entry[legal]


def _best_entry(table: CostTable, level: int, state: FanState, below: FanState, x: Tile, picks: Ints) -> tuple[Ints, Ints]:
    """One vector and entry tile of least price; empty where nothing fits."""
    heads = table.heads(level, below)
    best, found = np.inf, (picks[:0], np.empty((0, len(table.space.axes)), dtype=np.int64))
    credit = table.coefficients(level, state).credit
    step = max(1, CELLS // prod(len(a) for a in table.space.axes))
    for k in range(0, len(picks), step):
        part = picks[k : k + step]
        table.effort.spend(len(part) * prod(len(a) for a in table.space.axes))
        entered = table.entered(level, state, heads, part)
        for row, i in enumerate(part):
            ys = [a.entries(x[r], int(table.space.vectors[level - 1][i, r])) for r, a in enumerate(table.space.list_axes)]
            if all(ys):
                block = entered[row][np.ix_(*ys)] - credit[i]
                at = np.unravel_index(int(block.argmin()), block.shape)
                if block[at] < best:
                    best, found = float(block[at]), (np.array([i]), np.array([[y[a] for y, a in zip(ys, at, strict=True)]]))
    return found
