"""What the tiles of a buffer cost at least, by the sizes that the register files must be handed: a coarse table, one an order.

Sizes handed on are rounded down to a grid, each RATIO times the last, and every count of tiles is the least of any chain (ceil(D / tile)),
so an entry bounds all cells that it stands for.
"""

from __future__ import annotations

from math import log

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.nests.searchers.registers.rank_splits import RankSplits
from rackmodel.nests.searchers.registers.register_cells import BufferOrder

RATIO = 1.5


def grid_of(split: RankSplits) -> Ints:
    """Sizes from 1 on."""
    return np.unique(np.minimum(split.size, np.floor(RATIO ** np.arange(2 + int(log(split.size) / log(RATIO)))).astype(int)))


class BufferTable:
    """Of one order, free rank and least number of parts of that rank: [sizes handed on] least price of the three ranks."""

    def __init__(self, order: BufferOrder, free: int, parts: int) -> None:
        self.order, self.free, self.parts = order, free, parts
        a, b, _ = order.ranks
        self.grids = [(r, grid_of(order.splits[r])) for r in (a, b) if r != free]
        self.price = self._price()
        self.least = float(self.price.min(initial=np.inf))

    def _price(self) -> Array:
        order = self.order
        a, _, c = order.ranks
        one, two, three = order.bits
        sa, sb, sc = (order.splits[r] for r in order.ranks)
        tile, of_b = sb.tiles[sb.corners], sb.prices.tile * sb.count[sb.corners]
        table = sc.prices.tile * sc.count[sc.corners]
        if self.free == c:
            table = table + sc.least_free(self.parts)
        table = np.minimum.accumulate(table)

        def least(c_: Ints, x: Ints, of_c: Array | float, of_x: Array | float) -> Array:
            """[c, x] over the tiles a."""
            largest = (order.capacity - three * c_ * x) / (one * np.maximum(tile, x) + two * c_)
            at = sc.corner(largest)
            total = np.where((at >= 0) & (sb.largest >= x), of_b + table[np.maximum(at, 0)] + of_c + of_x, np.inf)
            return np.asarray(total.min(axis=-1) + sa.prices.tile)

        if self.free == c:
            (_, ga), (_, gb) = self.grids
            return least(ga[:, None, None], gb[None, :, None], 0.0, 0.0)
        (_, grid), *_ = self.grids
        if self.free == a:
            tiles, price = sa.tiles[sa.corners][:, None], sa.least_free(self.parts)[:, None]
            return np.array([least(tiles, x, price, 0.0).min() for x in grid])
        tiles, price = sb.tiles[sb.corners][:, None], sb.least_free(self.parts)[:, None]
        return np.array([least(c_, tiles, 0.0, price).min() for c_ in grid])
