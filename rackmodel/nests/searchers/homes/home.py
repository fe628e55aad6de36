"""Tensors at home in the cores of a memory, a fan and cores: searched by spatial vectors, best bound first.

A vector s fixes who shares a word (q) and the room of what rests in a core; for every order of the nodes the classes of
ranks (those that index the same tensors) offer lists of tiles (home_tiles), and their joint array is priced whole
(home_costs). A vector's bound: every part used once, every word fetched once (all = s, once = 1, cover = ceil(D / s));
where that is not enough, the same over runs of the lists, each with the least of every figure. Of a large fan some vectors are
listed; the others are met where ranges of parts are taken apart (home_boxes).
Perfect factors: exact. Ceil: exact where all tiles were listed and all ranges taken apart, else the certificate's bound is the least of
all vectors' and ranges'.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from math import comb, factorial, inf, prod
from typing import Any

import numpy as np

from rackmodel.arrays import Array, Ints, Number
from rackmodel.errors import InfeasibleError
from rackmodel.nests.evaluate import evaluate
from rackmodel.nests.mapping import LevelMapping, NestMapping, StorageNode, whole_nodes
from rackmodel.nests.objective import TIE, better
from rackmodel.nests.searchers.contract import Feature, NestQuestion, Searcher
from rackmodel.nests.searchers.effort import Exhausted
from rackmodel.nests.searchers.homes.home_boxes import OpenRanges, layouts_of
from rackmodel.nests.searchers.homes.home_costs import HomeCost, Moved
from rackmodel.nests.searchers.homes.home_tiles import TileLists, joined, rank_tile_lists, stacked
from rackmodel.nests.searchers.homes.home_vectors import EVERY, fan_vectors
from rackmodel.nests.searchers.infeasible import infeasible
from rackmodel.nests.searchers.mapspace.divisor_axis import factorize
from rackmodel.nests.searchers.mapspace.mapping_steps import Unmerge
from rackmodel.nests.searchers.mapspace.space import Space, alone
from rackmodel.nests.searchers.mapspace.word_terms import TensorTerm
from rackmodel.nests.solution import Best, NestSolution, solved

SOON = 32  # vectors tried before the rest is bounded more tightly
BLOCK = 1000  # vectors bounded at once
Order = tuple[int, ...]


def solve_home(q: NestQuestion) -> NestSolution:
    """The best mapping with `q.home` at home; InfeasibleError where even its share does not fit."""
    search = HomeSearch(q)
    try:
        search.run()
    except Exhausted:
        q.effort.late |= search.effort.late
        search.exact = False
    if search.best is None and search.apart < inf:
        why = f"{q.problem.name} on {q.machine.name}: no mapping was found with {', '.join(sorted(q.home))} at home; "
        raise InfeasibleError(why + "that there is none is not proven", resource="mapping", need=1.0, have=0.0, unit="mapping")
    if search.best is None:
        raise search.infeasible() or infeasible(q)
    bound = min(search.apart, inf if search.exact else search.least)
    pruned = {"bound of the spatial vector": search.number - search.tried}
    notes = (search.note, "every tile" if search.exact else "tiles from a list; bound over tiles of any size")
    ties = search.exact and search.apart == inf
    return solved(search.best, bound, (search.size, search.cells, pruned), SEARCHER.name, notes, ties=ties)


class HomeSearch:
    """The search. best: (key, mapping, cost) · least: the least bound of any vector tried · exact: no better mapping exists
    under these · apart: the least bound of the others."""

    def __init__(self, q: NestQuestion) -> None:
        self.perfect = q.factors == "perfect"
        groups = None if self.perfect else alone(q.problem)
        self.space = Space(q.problem, q.machine, q.masks[0], q.constraints, groups=groups)
        self.original, self.p, self.m = q.problem, self.space.problem, q.machine
        self.objective, self.home, self.cost = q.objective, q.home, HomeCost(self.space.problem, q.machine, q.home)
        self.best: Best | None = None
        self.ranks, self.tensors = self.space.ranks, self.p.tensors
        self.has = self.space.has
        self.signatures = list(dict.fromkeys(map(tuple, self.has.T.tolist())))
        self.members = [[r for r in range(len(self.ranks)) if tuple(self.has[:, r]) == c] for c in self.signatures]
        self.orders = self.space.orders(1)
        allowed = [self.space.allowed(q.machine.levels[0].name, d) for d in "XY"]
        sizes = list(self.p.sizes.values())
        self.on = [[r in a for r in self.ranks] for a in allowed]
        self.grid = q.machine.levels[0].fan
        self.fan = fan_vectors(self.grid, sizes, self.on, self.perfect)
        self.vectors, self.idle, self.note = self.fan.parts, self.fan.idle, self.fan.note
        self.laid: dict[int, tuple[Ints, Ints]] = {}  # vector that was not listed → parts on X, on Y
        self.number, self.apart = len(self.vectors), inf
        self.sizes, self.exact, self.least = np.array(sizes), True, inf
        self.terms = [TensorTerm.of(w, [bool(c[t]) for c in self.signatures]) for t, w in enumerate(self.cost.whole)]  # over classes
        self.rounds = [replace(term, whole=1.0) for term in self.terms]  # times a core works through its words
        self.cells = self.tried = 0
        self.effort = q.effort.part()
        self.need = inf
        self.by_order: dict[int, Array] = {}  # vector → [2, orders] bounds of the key
        self.cache: dict[Any, TileLists] = {}

    @cached_property
    def capacity(self) -> float:
        """Bits of a core."""
        bits = self.m.levels[1].capacity_bits
        return inf if bits is None else bits

    @property
    def size(self) -> float:
        """Mappings in the space before capacity; inf where tiles may have any size."""
        if not self.perfect:
            return inf
        n = len(self.tensors)
        splits = prod(comb(e + n, n) for s in self.original.sizes.values() for _, e in factorize(s))
        return float(factorial(n)) * splits * len(self.vectors)

    def shared(self, vectors: Ints) -> list[Array]:
        """Per tensor: cores that work with one word, for vectors [..., ranks]."""
        return [np.prod(vectors[..., ~self.has[t]], axis=-1).astype(float) for t in range(len(self.tensors))]

    # -- bounds
    def bounds(self) -> tuple[Array, Array]:
        """Lower bounds of the key of every vector (primary [S], tie-break [S]); inf where nothing can fit."""
        first, second, used = self._least(self.vectors, self.vectors)
        self.need = min(self.need, float(used.min(initial=inf)))
        return first, second

    def range_bounds(self, low: Ints, high: Ints) -> tuple[Array, Array]:
        """The same of every vector with parts between `low` and `high` [B, ranks]."""
        if self.best is not None:
            self.effort.spend(len(low))
        first, second, _ = self._least(low, high)
        return first, second

    def _least(self, low: Ints, high: Ints) -> tuple[Array, Array, Array]:
        """(primary, tie-break, bits of the fullest core) [B] at least, of vectors with parts between `low` and `high`."""
        cover = -(-self.sizes // high)
        ends: list[tuple[Moved, ...]] = []
        used: Array = np.zeros(len(low))
        copies = [self.shared(parts) for parts in ((low,) if low is high else (low, high))]
        for t, of in enumerate(zip(*copies, strict=True)):
            ever = np.prod(cover[:, self.has[t]], axis=1, dtype=float)
            whole = np.full(len(low), self.terms[t].whole)
            counts = [np.minimum(q, self.grid.size) for q in of]
            ends.append(tuple(Moved(whole * q, whole, ever, ever, q) for q in counts))
            used = used + self.cost.room(t, 1.0, ends[-1][-1])
        busy = prod(map(float, self.sizes)) / self.grid.size
        energy, time = self.cost.least(ends, np.prod(cover, axis=1, dtype=float), busy)
        first, second = (np.where(used <= self.capacity, k, inf) for k in self.objective.key(energy, time))
        return first, second, used

    def infeasible(self) -> InfeasibleError | None:
        """What the fullest core needs at least, where that is more than it has."""
        v, rests = self.m.levels[1], ", ".join(sorted(self.home))
        if v.capacity_bits is None or not v.capacity_bits < self.need < inf:
            return None
        return InfeasibleError(
            f"{self.original.name} on {self.m.name}: {v.name} needs {self.need:g} bits for its share of what is at home ({rests}) "
            f"and one word of the rest, has {v.capacity_bits:g}",
            resource=v.name,
            need=self.need,
            have=v.capacity_bits,
            unit="bits",
            change=f"capacity {self.need:g} bits, or less at home",
        )

    def run(self) -> None:
        """Leave the optimum in `best`. Where the first bounds do not end it soon, what is left is bounded from the lists."""
        first, second = self.bounds()
        self.least = float(first.min(initial=inf))
        queue = np.lexsort((np.arange(len(first)), second, first))
        queue = queue[np.isfinite(first[queue])]
        listed = self.vectors, first, second
        for i in self._in_order(queue[:SOON], first, second):
            self.offer(i)
        queue = queue[SOON:][self.beats(first[queue[SOON:]], second[queue[SOON:]])]
        if self.best is not None and len(queue):
            first, second = first.copy(), second.copy()
            for part in np.array_split(queue, -(-len(queue) // BLOCK)):
                first[part], second[part] = self.tightened(part)
            queue = queue[np.lexsort((queue, second[queue], first[queue]))]
        for i in self._in_order(queue, first, second):
            self.offer(i)
        if self.note != EVERY and not self.perfect:
            self._unlisted(*listed)

    def _unlisted(self, vectors: Ints, first: Array, second: Array) -> None:
        """Vectors that are not among those that were listed (with bounds of their keys): what ranges of parts leave."""
        limits = [[fan if r else 1 for r in on] for fan, on in zip((self.grid.x, self.grid.y), self.on, strict=True)]
        most = [min(int(n), x * y) for n, x, y in zip(self.sizes, *limits, strict=True)]
        ranges = OpenRanges(most, self.grid.size, self.range_bounds)
        listed = set(map(tuple, vectors[self.beats(first, second) & ~self.idle.any(axis=1)].tolist()))
        self.apart = ranges.least
        while ranges.left:
            points = ranges.step(self.beats)
            self._offer_unlisted(points[[tuple(p) not in listed for p in points.tolist()]])
            self.apart = ranges.least
        self.note = f"{self.note}; bound over any" if self.apart < inf else EVERY

    def _offer_unlisted(self, points: Ints) -> None:
        """Vectors [V, ranks] as numbers 0 to V - 1 instead of those before; bounded from the lists, then priced best first."""
        if not len(points):
            return
        self.vectors, self.idle, self.by_order, self.laid = points, np.zeros(points.shape, dtype=bool), {}, {}
        self.number += len(points)
        self.least = min(self.least, float(self.bounds()[0].min(initial=inf)))
        parts = np.array_split(np.arange(len(points)), -(-len(points) // BLOCK))
        first, second = np.concatenate([self.tightened(some) for some in parts], axis=1)
        for i in self._in_order(np.lexsort((second, first)), first, second):
            for idle, x, y in layouts_of(points[i], self.grid, self.on):
                self.idle[i], self.laid[i] = idle, (x, y)
                self.offer(i)

    def beats(self, first: Any, second: Any) -> Any:
        """Could keys of these bounds be better than the best?"""
        return np.isfinite(first) if self.best is None else better((first, second), self.best.key)

    def _in_order(self, queue: Ints, first: Array, second: Array) -> Iterator[int]:
        """Vectors of the queue whose bound still beats the best, while there are such."""
        for i in queue:
            if self.best is not None and first[i] > self.best.primary * (1 + TIE):
                return
            if self.beats(first[i], second[i]):
                self.tried += 1
                yield int(i)

    def tightened(self, picks: Ints) -> Array:
        """[2, P] lower bounds of the key of vectors `picks`: of every run of a list, the least of each figure. Kept by order."""
        bounds = np.full((2, len(self.orders), len(picks)), inf)
        at_work = np.where(self.idle, -self.vectors, self.vectors)[picks]
        parts = [np.unique(at_work[:, m], axis=0, return_index=True, return_inverse=True) for m in self.members]
        for o, order in enumerate(self.orders):
            some, runs = np.ones(len(picks), dtype=bool), []
            for k, (_, first, which) in enumerate(parts):
                lists = [self.tiles(k, int(picks[i]), order).corners for i in first]
                self.exact &= all(c.exact for c in lists)
                runs.append((stacked(lists), which.ravel()))
                some &= np.array([len(c.cover) > 0 for c in lists])[which.ravel()]
            if some.any():
                lists = [c.at(which[some]) for c, which in runs]
                found = self.keys(picks[some], order, lists)
                bounds[:, o, some] = [key.reshape(len(key), -1).min(axis=1) for key in found]
        self.by_order.update({int(i): bounds[:, :, n] for n, i in enumerate(picks)})
        return np.asarray(bounds.min(axis=1))

    # -- one vector, one order
    def tiles(self, k: int, i: int, order: Order) -> TileLists:
        """Choices of class k under vector i."""
        has = tuple(bool(self.signatures[k][t]) for t in order)
        here = {r: (int(self.vectors[i, r]), bool(self.idle[i, r])) for r in self.members[k]}
        key = (tuple(here.items()), has)
        if key not in self.cache:
            parts = []
            for r in self.members[k]:
                one = (here[r], int(self.sizes[r]), has)
                if one not in self.cache:
                    self.cache[one] = rank_tile_lists(int(self.sizes[r]), here[r][0], has, self.perfect, idle=here[r][1])
                parts.append(self.cache[one])
            self.cache[key] = joined(parts, has)
        return self.cache[key]

    def keys(self, picks: Ints, order: Order, lists: list[TileLists]) -> tuple[Array, Array]:
        """(primary, tie-break) over [P, choices of class 0, class 1, ...]; inf where it does not fit.
        lists: per class, with a leading axis of the vectors `picks`."""
        dims = len(self.signatures)
        shape = (len(picks), *(c.cover.shape[1] for c in lists))

        def along(k: int, values: Array) -> Array:
            return values.reshape([len(picks)] + [-1 if a == k else 1 for a in range(dims)])

        cover = [along(k, c.cover) for k, c in enumerate(lists)]
        cycles = prod(cover, start=np.ones((1,) * (dims + 1)))
        moved: dict[int, Moved] = {}
        used: Number = 0.0
        shared = [q.reshape([-1] + [1] * dims) for q in self.shared(self.vectors[picks])]
        for j, t in enumerate(order):
            term = self.terms[t]
            every, once, tile = ([along(k, getattr(c, figure)[..., j]) for k, c in enumerate(lists)] for figure in ("all", "once", "tile"))
            ever = term.room(cover.__getitem__)
            rounds = self.rounds[t].words(once.__getitem__)
            moved[t] = Moved(term.words(every.__getitem__), term.whole * rounds, ever * rounds, ever, shared[t])
            used = used + self.cost.room(t, term.room(tile.__getitem__), moved[t])
        fits = np.broadcast_to(used <= self.capacity, shape)
        self.cells += prod(shape)
        if self.best is not None:
            self.effort.spend(prod(shape))
        if not fits.any():
            return np.full(shape, inf), np.full(shape, inf)
        first, second = (np.where(fits, k, inf) for k in self.objective.key(*self.cost.total([moved[t] for t in sorted(moved)], cycles)))
        return first, second

    def offer(self, i: int) -> None:
        """Price every order and tile of one vector; keep the best if it is better."""
        for o, order in enumerate(self.orders):
            if i in self.by_order and not self.beats(*self.by_order[i][:, o]):
                continue
            lists = [self.tiles(k, i, order) for k in range(len(self.signatures))]
            self.exact &= all(c.exact for c in lists)
            if not all(len(c.cover) for c in lists):
                continue
            first, second = self.keys(np.array([i]), order, [stacked([c]) for c in lists])
            low = float(first.min())
            tied = np.where(first <= low + TIE * abs(low), second, inf)
            _, *cell = np.unravel_index(int(tied.argmin()), first.shape)
            if np.isfinite(low) and self.beats(low, float(tied.min())):
                picks = {r: c.picks[at][n] for c, at, m in zip(lists, cell, self.members, strict=True) for n, r in enumerate(m)}
                mapping = self.mapping(i, order, [picks[r] for r in range(len(self.ranks))])
                cost = evaluate(self.original, self.m, mapping, home=self.home)
                self.best = Best.of(self.objective, mapping, cost)

    def mapping(self, i: int, order: Order, tiles: list[Array]) -> NestMapping:
        """The mapping in the original ranks. tiles: per rank, its tile at every node."""
        outer, inner = self.m.levels
        part = Unmerge(self.space.groups, self.space.original.sizes)
        part.cut(tuple(int(min(n, t[0] * s)) for n, t, s in zip(self.sizes, tiles, self.vectors[i], strict=True)))
        x, y = (part.spread({r: int(n) for r, n in zip(self.ranks, v, strict=True)}) for v in self.laid.get(i) or self.fan.layout(i))
        nodes = [StorageNode(self.tensors[t].name, part.cut(tuple(int(u[j]) for u in tiles))) for j, t in enumerate(order)]
        levels = (LevelMapping(outer.name, whole_nodes(self.original), x, y), LevelMapping(inner.name, tuple(nodes)))
        return NestMapping(self.original.name, self.m.name, levels)


SEARCHER = Searcher(
    "home lists",
    "dp",
    frozenset({Feature.PERFECT, Feature.CEIL, Feature.TIME, Feature.HOME, Feature.HOPS, Feature.ENTRY_FAN, Feature.MANY}),
    solve_home,
)
