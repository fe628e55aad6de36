"""A Space under one price: what every storage node and the compute's operands cost, as arrays over tiles.

Perfect factors: words served by a parent are words that enter, over the copies served, so one coefficient does.
Ceil: the parent serves ceil(D / (s tile)) groups of s tiles, counted apart. Shared between tables: geometry
(order plans, fan crossings, states) that no price touches. Words come from word_terms, coefficients from fan_state.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from rackmodel.arrays import Array, Ints, Number
from rackmodel.nests.searchers.effort import Effort
from rackmodel.nests.searchers.mapspace.fan_state import Coefficients, Crossing, FanState, coefficients, cross_fan, handed_on, start
from rackmodel.nests.searchers.mapspace.order_plan import OrderPlan
from rackmodel.nests.searchers.mapspace.prices import BitPrices
from rackmodel.nests.searchers.mapspace.space import Space
from rackmodel.nests.searchers.mapspace.word_terms import Tally, tally_prices
from rackmodel.nests.searchers.tables.shared_tables import SharedTables

Allowed = Sequence[tuple[int, ...] | None]  # per fanout, numbers of the spatial vectors in play; None: all
Made = TypeVar("Made")


class PricedSpace:
    """Prices of one Space. Made `like` another, it shares what the vectors in play leave equal; with `tables`, what spaces that are alike
    leave equal."""

    def __init__(
        self,
        space: Space,
        price: BitPrices,
        allowed: Allowed | None = None,
        like: "PricedSpace | None" = None,
        effort: Effort | None = None,
        tables: SharedTables | None = None,
    ) -> None:
        self.space, self.price = space, price
        self.allowed = allowed or [None] * space.depth
        self.tables: SharedTables | None = like.tables if like is not None else tables
        self.sets: dict[Any, tuple[int, Ints]] = like.sets if like is not None else {} if tables is None else tables.of("sets")
        named = [None if some is None else self._named(some) for some in self.allowed]
        self.suffix = [tuple(one and one[0] for one in named[level - 1 :]) for level in range(space.depth + 1)]
        self.numbers: list[Ints] = [
            np.arange(len(every)) if one is None else one[1] for every, one in zip(space.vectors, named, strict=True)
        ]
        self.values: list[dict[Any, Any]] = like.values if like is not None and like.price == price else self._store(price)
        self.shared: list[dict[Any, Any]] = like.shared if like is not None else self._store()  # geometry, common to all prices
        self.effort: Effort = like.effort if like is not None else effort or Effort()

    def _store(self, *price: BitPrices) -> list[dict[Any, Any]]:
        """Where to remember what is of level 1, and what is of those below."""
        if self.tables is None:
            return [{}] * 2
        return [self.tables.of(self.space.alike(level), *price) for level in (1, min(2, self.space.depth))]

    def _named(self, some: tuple[int, ...]) -> tuple[int, Ints]:
        """A number for a set of vectors, which tables are looked up by, and the set as an array."""
        found = self.sets.get(some)
        return found or self.sets.setdefault(some, (len(self.sets) + 1, np.array(some)))

    def known(self, level: int) -> dict[Any, Any]:
        """What is remembered of a level under this price."""
        return self.values[min(level, 2) - 1]

    # -- geometry that no price touches
    def share(self, level: int, key: tuple[Any, ...], make: Callable[[], Made]) -> Made:
        shared = self.shared[min(level, 2) - 1]
        if key not in shared:
            shared[key] = make()
        found: Made = shared[key]
        return found

    def plans(self, level: int) -> list[OrderPlan]:
        """Every order of the nodes of `level`."""
        return self.share(level, ("plans", level), lambda: [OrderPlan(self.space, level, o) for o in self.space.orders(level)])

    def picked(self, fan: int) -> Ints:
        """Numbers of the spatial vectors of `fan` in play."""
        return self.numbers[fan]

    def crossed(self, fan: int, state: FanState) -> Crossing:
        """State quantities under every spatial vector of `fan` (all of them, in order)."""
        return self.share(fan + 1, ("cross", fan, state), lambda: cross_fan(self.space, fan, state, self.space.groups_of(fan)))

    def coefficients(self, level: int, state: FanState) -> Coefficients:
        """Prices of words at `level` under every spatial vector above it."""
        key, known = ("coef", level, state), self.known(level)
        if key not in known:
            known[key] = coefficients(self.space, level, self.price, state, self.crossed(level - 1, state))
        found: Coefficients = known[key]
        return found

    def next_states(self, level: int, state: FanState) -> tuple[list[FanState], Ints]:
        """(the states below `level`, [S] number of that of every spatial vector)."""
        return self.share(level, ("next", level, state), lambda: handed_on(self.space, level, state, self.crossed(level - 1, state)))

    # -- what of a state matters
    def seen(self, level: int, state: FanState) -> FanState:
        """What tables from `level` inwards see of a state: nothing where nothing is priced there; where fans leave no choice, copies of
        outputs only add a constant, which `saved` is."""
        if self._free(level):
            return start(self.space)
        return state.without_copies if self.forced(level) else state

    def forced(self, level: int) -> bool:
        """Whether one spatial vector is in play in each fan from the one above `level` inwards."""
        return all(len(numbers) == 1 for numbers in self.numbers[level - 1 :])

    def _free(self, level: int) -> bool:
        """Whether nothing from `level` inwards is priced."""
        space, key, known = self.space, ("free", level), self.known(level)
        if key not in known:
            stored = [(n, t) for n in range(level, space.depth) for t in space.stored(n)]
            moved = [*stored, *((space.depth, t) for t in range(len(space.tensors)))]
            known[key] = not any(
                p.words or (p.hops and any(self.price.hop))
                for n, t in moved
                for p in (tally_prices(space.machine, self.price, space.tensors[t], space.parent(n, t), n),)
            )
        found: bool = known[key]
        return found

    def saved(self, level: int, state: FanState) -> float:
        """What tables from `level` inwards are below those of the state that they see."""
        if not self.forced(level) or self._free(level):
            return 0.0
        copies, parents, hops = self._fresh(level)
        return float(copies * (state.sig - 1) + parents * (state.sig_parent - 1) + np.dot(hops, state.hop_sig))

    def _fresh(self, level: int) -> tuple[float, float, Array]:
        """What fresh outputs save from `level` inwards, one vector in play in each fan: by each copy of the output above, each at its
        parent, and each hop of these (per level)."""
        key, known = ("fresh", level, self.suffix[level]), self.known(level)
        if key not in known:
            space, t, i = self.space, self.space.output, int(self.picked(level - 1)[0])
            crossing, inner = self.crossed(level - 1, start(space)), level < space.depth
            sig, hop_sig, hop = float(crossing.sig[i]), crossing.hop_sig[i], np.array(self.price.hop)
            copies, parents, hops = 0.0, 0.0, 0.0 * hop
            if not inner or t in space.stored(level):
                p, whole = tally_prices(space.machine, self.price, space.tensors[t], space.parent(level, t), level), space.terms[t].whole
                crossed = p.hops.get(Tally.FRESH_CROSSED, 0.0)
                copies = -whole * (p.words.get(Tally.FRESH_CHILD, 0.0) * sig + crossed * float(hop_sig @ hop))
                parents, hops = -whole * p.words.get(Tally.FRESH_PARENT, 0.0), -whole * crossed * hop
            if inner:
                further, there, passed = self._fresh(level + 1)
                kept = t in space.present(level)
                copies += further * sig + (there * sig if kept else float(passed @ hop_sig))
                parents, hops = (parents, hops) if kept else (parents + there, hops + passed)
            known[key] = copies, parents, hops
        found: tuple[float, float, Array] = known[key]
        return found

    # -- prices
    def node_price(self, plan: OrderPlan, j: int, state: FanState, picks: Ints, entry: Ints | None = None) -> Array:
        """[S, joint] price of node j for spatial vectors `picks`; entry: [S, ranks] tile numbers when y is given."""
        space, t = self.space, plan.order[j]
        fill, serve, _ = self.coefficients(plan.level, state)
        served = self.crossed(plan.level - 1, state).served
        shape = (-1,) + (1,) * len(plan.axes_of)
        if space.aligned:
            coef = fill[picks, t] + serve[picks, t] / served[picks, t]
            priced: Array = (self._whole_words(plan, j) if entry is None else self._words(plan, j, entry)) * coef.reshape(shape)
            return priced
        grouped, single = self._serve_split(plan.level - 1, state, t, serve)
        filled: Array = self._words(plan, j, entry) * (fill[picks, t] + single[picks]).reshape(shape)
        if not grouped[picks].any():
            return filled
        groups = space.groups_of(plan.level - 1)[picks]
        filled = filled + self._words(plan, j, entry, groups) * grouped[picks].reshape(shape)
        return filled

    def _serve_split(self, fan: int, state: FanState, t: int, serve: Array) -> tuple[Array, Array]:
        """Ceil: price [S] of a word counted per group of s tiles, and of one counted per tile (width exceeded)."""
        lacks = ~self.space.has[t]
        copies = np.prod(self.space.groups_of(fan)[:, lacks], axis=1)
        served = self.crossed(fan, state).served[:, t]
        free = served >= copies * state.served[t] * (1 - 1e-12)
        return np.where(free, serve[:, t] / state.served[t], 0.0), np.where(free, 0.0, serve[:, t] / served)

    def _whole_words(self, plan: OrderPlan, j: int) -> Array:
        """[1, joint] words of node j where every tile may enter: geometry, which no price and no vector touches."""
        if j not in plan.words:
            plan.words[j] = self._words(plan, j, None)
        return plan.words[j]

    def _words(self, plan: OrderPlan, j: int, entry: Ints | None, vectors: Ints | None = None) -> Array:
        """[1 or S, joint] words of node j; vectors [S, ranks]: tiles of a lacked rank are counted in groups of so many."""
        space = self.space
        words = space.terms[plan.order[j]].words(
            lambda r: self._counts(plan, j, r, entry, vectors), lambda r: self._counts(plan, j, r, entry, None), space.sizes
        )
        return words if isinstance(words, np.ndarray) else np.full((1,) * (len(plan.axes_of) + 1), words)

    def _counts(self, plan: OrderPlan, j: int, r: int, entry: Ints | None, vectors: Ints | None) -> Array:
        """[1 or S, joint] tiles of rank r at node j."""
        dims, axis = len(plan.axes_of), self.space.axes[r]
        per = axis.count[None, :] if vectors is None else self.space.list_axes[r].served(vectors[:, r])
        if plan.versions[j][r] == 0 and entry is not None:  # y is given: one tile per spatial vector
            chosen: Array = per[0 if vectors is None else np.arange(len(entry)), entry[:, r]]
            return chosen.reshape((-1,) + (1,) * dims)
        i = plan.node_axis(j, r)
        return per.reshape((per.shape[0], *tuple(len(axis) if k == i else 1 for k in range(dims))))

    def leaf_price(self, state: FanState) -> Array:
        """[S] price of the compute's operands for every spatial vector of the innermost fanout."""
        space = self.space
        fill, serve, credit = self.coefficients(space.depth, state)
        served, vectors = self.crossed(space.depth - 1, state).served, space.groups_of(space.depth - 1)
        total: Array = -credit
        for t in range(len(space.tensors)):
            words = self._leaf_words(t, None)
            if space.aligned:
                total = total + words * (fill[:, t] + serve[:, t] / served[:, t])
            else:
                grouped, single = self._serve_split(space.depth - 1, state, t, serve)
                total = total + words * (fill[:, t] + single) + self._leaf_words(t, vectors) * grouped
        return total

    def _leaf_words(self, t: int, vectors: Ints | None) -> Number:
        """Operand words of the compute, or [S] the same in groups of `vectors` leaves."""
        sizes, leaf = self.space.sizes, self.space.leaf

        def leaves(r: int) -> float:
            return float(-(-sizes[r] // leaf[r]))

        def groups(r: int) -> Number:
            return leaves(r) if vectors is None else (-(-sizes[r] // (leaf[r] * vectors[:, r]))).astype(float)

        return self.space.terms[t].words(groups, leaves, sizes)
