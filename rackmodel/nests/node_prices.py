"""A Space under one price: what every storage node and the compute's operands cost, as arrays over tiles.

Perfect factors: words fetched by a parent are words that enter, over the copies served, so one coefficient does.
Ceil: the parent serves ceil(D / (s tile)) groups of s tiles, counted apart. Shared between tables: geometry
(order plans, fan crossings, states) that no price touches. See prices.py for the coefficients.
"""

from math import prod

import numpy as np

from rackmodel.nests import prices as pricing
from rackmodel.nests.order_plan import OrderPlan


class PricedSpace:
    """Prices of one Space.

    allowed: per fanout, numbers (a tuple) of the spatial vectors in play (None: all). Made `like` another, it shares
    what the vectors in play leave equal.
    """

    def __init__(self, space, price, allowed=None, like=None):
        self.space, self.price = space, price
        self.allowed = allowed or [None] * space.depth
        self.suffix = [tuple(self.allowed[level - 1 :]) for level in range(space.depth + 1)]
        self.values: dict = like.values if like is not None and like.price == price else {}
        self.shared: dict = like.shared if like is not None else {}  # geometry, common to all prices
        self.counter: list[int] = like.counter if like is not None else [0]  # cells priced

    # -- geometry that no price touches
    def _share(self, key, make):
        if key not in self.shared:
            self.shared[key] = make()
        return self.shared[key]

    def plans(self, level: int) -> list[OrderPlan]:
        return self._share(("plans", level), lambda: [OrderPlan(self.space, level, o) for o in self.space.orders(level)])

    def picked(self, fan: int) -> np.ndarray:
        """Numbers of the spatial vectors of `fan` in play."""
        chosen = self.allowed[fan]
        return np.arange(len(self.space.vectors[fan])) if chosen is None else np.array(chosen)

    def crossed(self, fan: int, state):
        """State quantities under every spatial vector of `fan` (all of them, in order)."""
        return self._share(("cross", fan, state), lambda: pricing.cross_fan(self.space, fan, state, self.space.groups_of(fan)))

    def coefficients(self, level: int, state):
        key = ("coef", level, state)
        if key not in self.values:
            crossed = self.crossed(level - 1, state)
            self.values[key] = pricing.coefficients(self.space, level, self.price, state, crossed)
        return self.values[key]

    def next_states(self, level: int, state):
        """Per spatial vector: the state below `level`; and the vectors that share each state."""

        def make():
            crossed = self.crossed(level - 1, state)
            return [pricing.below(self.space, level, state, *crossed, i) for i in range(len(crossed[0]))]

        return self._share(("next", level, state), make)

    # -- prices
    def node_price(self, plan: OrderPlan, j: int, state, picks: np.ndarray, entry=None) -> np.ndarray:
        """[S, joint] price of node j for spatial vectors `picks`; entry: [S, ranks] tile numbers when y is given."""
        space, t = self.space, plan.order[j]
        fill, serve, _ = self.coefficients(plan.level, state)
        served = self.crossed(plan.level - 1, state)[1]
        shape = (-1,) + (1,) * len(plan.axes_of)
        if space.aligned:
            coef = fill[picks, t] + serve[picks, t] / served[picks, t]
            return self._words(plan, j, entry) * coef.reshape(shape)
        grouped, single = self._serve_split(plan.level - 1, state, t, serve)
        filled = self._words(plan, j, entry) * (fill[picks, t] + single[picks]).reshape(shape)
        if not grouped[picks].any():
            return filled
        groups = space.groups_of(plan.level - 1)[picks]
        return filled + self._words(plan, j, entry, groups) * grouped[picks].reshape(shape)

    def _serve_split(self, fan: int, state, t: int, serve):
        """Ceil: price [S] of a word counted per group of s tiles, and of one counted per tile (width exceeded)."""
        space = self.space
        lacks = ~space.has[t]
        copies = np.prod(space.groups_of(fan)[:, lacks], axis=1)
        served = self.crossed(fan, state)[1][:, t]
        free = served >= copies * state.served[t] * (1 - 1e-12)
        return (np.where(free, serve[:, t] / state.served[t], 0.0), np.where(free, 0.0, serve[:, t] / served))

    def _words(self, plan: OrderPlan, j: int, entry, vectors=None) -> np.ndarray:
        """[1 or S, joint] words of node j: prod of tile counts over ranks it lacks x its own size (halo included)."""
        space, t = self.space, plan.order[j]
        words = np.full((1,) * (len(plan.axes_of) + 1), float(space.sizes_words[t]))
        for r in range(len(space.ranks)):
            if not space.has[t, r]:
                words = words * self._counts(plan, j, r, entry, vectors)
        for index in space.sums(t):
            counts = {r: self._counts(plan, j, r, entry, None) for _, r in index}
            tiles = prod(counts.values(), start=np.ones(1))
            extent = tiles * (1.0 - sum(c for c, _ in index))
            for c, r in index:
                extent = extent + c * space.axes[r].size * tiles / counts[r]
            words = words * extent
        return words

    def _counts(self, plan: OrderPlan, j: int, r: int, entry, vectors) -> np.ndarray:
        space, dims = self.space, len(plan.axes_of)
        v = plan.versions[j][r]
        axis = space.axes[r]
        per = axis.count[None, :] if vectors is None else axis.served(vectors[:, r])
        if v == 0 and entry is not None:  # y is given: one tile per spatial vector
            chosen = per[0 if vectors is None else np.arange(len(entry)), entry[:, r]]
            return chosen.reshape((-1,) + (1,) * dims)
        i = plan.node_axis(j, r)
        return per.reshape((per.shape[0], *tuple(len(axis) if k == i else 1 for k in range(dims))))

    def leaf_price(self, state) -> np.ndarray:
        """[S] price of the compute's operands for every spatial vector of the innermost fanout."""
        space = self.space
        fill, serve, credit = self.coefficients(space.depth, state)
        served, vectors = self.crossed(space.depth - 1, state)[1], space.groups_of(space.depth - 1)
        total = -credit
        for t in range(len(space.tensors)):
            words = self._leaf_words(t, None)
            if space.aligned:
                total = total + words * (fill[:, t] + serve[:, t] / served[:, t])
            else:
                grouped, single = self._serve_split(space.depth - 1, state, t, serve)
                total = total + words * (fill[:, t] + single) + self._leaf_words(t, vectors) * grouped
        return total

    def _leaf_words(self, t: int, vectors):
        space = self.space
        words = float(space.sizes_words[t])
        for r in range(len(space.ranks)):
            if not space.has[t, r]:
                u = space.leaf[r]
                words = words * (-(-space.axes[r].size // (u if vectors is None else u * vectors[:, r])))
        for index in space.sums(t):
            tiles = {r: -(-space.axes[r].size // space.leaf[r]) for _, r in index}
            every = prod(tiles.values())
            words = words * (every * (1 - sum(c for c, _ in index)) + sum(c * space.axes[r].size * every / tiles[r] for c, r in index))
        return words
