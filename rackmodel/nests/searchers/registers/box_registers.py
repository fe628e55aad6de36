"""A bound of the energy of a matrix product of many ranks on a memory, a buffer and an array of register files, tiles of any size.

Ranks that no tensor tells apart (heads and what a head has, of an attention's projection) count and take room by the products of their
tiles alone. With ragged tiles their mappings are no chains of one rank (5 x 2, cut to 3 x 1 and to 2 x 1, are six parts; 10, cut to 3 and
to 2, are seven) but boxes of so many points, of which holds what `registers` bounds a cell by: n boxes no larger than t have whole groups
and a rest. What does not hold is told here. Derivation: docs/nest_theory.md, section 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from math import inf, prod
from typing import Any, ClassVar, NamedTuple

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.nests.mapping import NestMapping
from rackmodel.nests.searchers.contract import NestQuestion
from rackmodel.nests.searchers.mapspace.list_axes import divisors
from rackmodel.nests.searchers.mapspace.rank_merging import merge_problem, merged_ranks
from rackmodel.nests.searchers.mapspace.space import Space
from rackmodel.nests.searchers.ragged.joint_best import explored, known_start, merged_space, next_to, real_space
from rackmodel.nests.searchers.ragged.ragged_draws import Drawn, Draws
from rackmodel.nests.searchers.ragged.ragged_plan import RaggedPlan, orders_of
from rackmodel.nests.searchers.ragged.rank_shares import shared_ratios
from rackmodel.nests.searchers.registers.rank_splits import TINY, CutPrices, RankSplits, SplitPrices
from rackmodel.nests.searchers.registers.register_cells import Registers
from rackmodel.nests.searchers.registers.registers import Inner, RegisterSearch, bound_of
from rackmodel.nests.solution import Best

NEAR, KICKS = 16, 3  # cells that mappings are looked for from; draws around the best


class BoxSplits(RankSplits):
    """Several ranks of `sizes` as one: a tile is the points of a box, parts are those of all ranks together."""

    listed = False

    def __init__(self, sizes: list[int], prices: SplitPrices) -> None:
        super().__init__(prod(sizes), prices, False)
        self.sizes = sizes
        self.known: dict[tuple[int, int, int], tuple[Ints, Ints, Ints, Ints]] = {}
        self.ways: dict[int, list[tuple[int, ...]]] = {}

    def least_held(self, parts: Any, unit: Any) -> Any:
        """The fewest points of a tile that keeps all parts at work: of rank i (s_i - 1) u_i + 1, more than s_i u_i (1 - 1 / s_i), or u_i
        where s_i is 1. Of k ranks with parts the product is least where all but one of them have two."""
        s, u = np.asarray(parts, dtype=float), np.asarray(unit, dtype=float)
        others = np.minimum(len(self.sizes), np.floor(np.log2(s) + TINY)) - 1
        few = np.where(others >= 0, s * u * 0.5**others - u, u)
        return np.maximum(np.maximum(np.ceil(few - TINY), s), u).astype(np.int64)

    def least_free(self, parts: int, cycles: float = inf) -> Array:
        """Every tile has a part, the first as many as are at work."""
        count = self.count[self.corners]
        return np.asarray(self.prices.group * count + self.prices.part * (count + parts - 1))

    def free(self, parts: int, cycles: float = inf) -> CutPrices:
        """As `least_free`, of every tile."""
        least = np.where(self.tiles >= parts, self.prices.group * self.count + self.prices.part * (self.count + parts - 1), np.inf)
        return CutPrices(least, least)

    def _cut(self, parts: int, unit: int, each: float, cycles: float, some: slice | Ints) -> CutPrices:
        """As before, and closer: a tile, its parts and what an instance has are products over the ranks, and so are their numbers."""
        exact, least = super()._cut(parts, unit, each, cycles, some)
        closer: Array = np.full(len(self.tiles), np.inf)
        for s in self._shared(parts):
            for u in self._shared(unit):
                points, tiles, groups, units = (np.ones(1, dtype=np.int64) for _ in range(4))
                for n, s_i, u_i in zip(self.sizes, s, u, strict=True):
                    box = self._boxes(n, s_i, u_i)
                    made = zip((points, tiles, groups, units), box, strict=True)
                    points, tiles, groups, units = (np.multiply.outer(x, y).ravel() for x, y in made)
                price = each * tiles + self.prices.group * groups + self.prices.part * units
                np.minimum.at(closer, points - 1, price)
        return CutPrices(exact, np.maximum(least, np.minimum.accumulate(closer)[some]))

    def _boxes(self, n: int, s: int, u: int) -> tuple[Ints, Ints, Ints, Ints]:
        """Tiles of one rank, the least for their numbers, and how many tiles, groups and parts there are at least."""
        key = n, s, u
        if key not in self.known:
            held = max((s - 1) * u + 1, u)
            corners = {held} if held <= n else set()
            tile = np.array(sorted(corners | {t for k in range(1, n + 1) if (t := -(-n // k)) >= held}), dtype=np.int64)
            self.known[key] = tile, -(-n // tile), -(-n // np.minimum(tile, s * u)), -(-n // np.minimum(tile, u))
        return self.known[key]

    def _shared(self, number: int) -> list[tuple[int, ...]]:
        """Ways to make a number of factors of every rank, none larger than the rank."""
        if number not in self.ways:
            found: list[tuple[int, ...]] = [()]
            for n in self.sizes:
                found = [(*f, k) for f in found for k in divisors(number // prod(f)) if k <= n]
            self.ways[number] = [f for f in found if prod(f) == number]
        return self.ways[number]


class BoxSearch(RegisterSearch):
    """The cells of a product of merged ranks, each bounded, none spelled out: `left` is the least of their bounds. sizes_of: merged rank →
    sizes of its parts, those of 1 left out · lowest: cells of the lowest bounds, (bound, number, order of the registers, order of the
    buffer, vector, registers)."""

    sizes_of: ClassVar[dict[str, list[int]]] = {}

    @classmethod
    def boxes(cls, q: NestQuestion, sizes: dict[str, list[int]]) -> BoxSearch | None:
        """Of a question of merged ranks; None where it is none of `registers`."""
        kind: type[BoxSearch] = type("BoxSearch", (cls,), {"sizes_of": sizes})
        return kind.of(q, False)

    def __init__(self, q: NestQuestion, perfect: bool) -> None:
        super().__init__(q, perfect)
        self.lowest: list[tuple[float, int, Inner, int, int, Registers]] = []

    def _splits(self, perfect: bool) -> list[RankSplits]:
        each = zip(self.prices.ranks, self.sizes_of.values(), strict=True)
        return [BoxSplits(sizes, price) if len(sizes) > 1 else RankSplits(prod(sizes), price, False) for price, sizes in each]

    def _known(self) -> float:
        return min(super()._known(), self.left)

    def _cell(self, inner: Inner, order: int, vector: int, units: tuple[int, int]) -> None:
        below, rest = self._below(inner, vector, units)
        buffer, bound, known = self.orders[order], 0.0, self._known()
        for least in (partial(buffer.rough, known=known - rest), partial(buffer.bound, known=known - rest), buffer.least):
            bound = max(bound, least(below) + rest)
            if bound > known:
                return
        self.left = bound
        self.lowest = sorted([*self.lowest, (bound, self.cells, inner, order, vector, below)], key=lambda cell: cell[:2])[:NEAR]

    def near(self) -> Iterator[NestMapping]:
        """Mappings of the merged ranks, as if each were one, in the cells of the lowest bounds."""
        for _, _, inner, order, vector, below in self.lowest:
            buffer = self.orders[order]
            layout, idle = self._layout(vector, buffer.ranks[2])
            found, _ = buffer.best(replace(below, at_once=idle), inf)
            if found is not None:
                yield self._mapping(inner, below, buffer.ranks, found, layout)


class BoxBest(NamedTuple):
    """best: mapping found or known before · bound: of the energy of every mapping · cells: that were looked at."""

    best: Best
    bound: float
    cells: int


def box_best(q: NestQuestion, known: Best) -> BoxBest | None:
    """From a known mapping on; None where the question's ranks do not merge to a product of `registers`, or it is too large."""
    p, (kept, *others) = q.problem, q.masks
    groups = merged_ranks(p, q.constraints.named_ranks(), q.machine.compute.atom)
    if others or len(groups) == len(p.sizes):
        return None
    sizes = {name: [n for r in parts if (n := p.sizes[r]) > 1] or [1] for name, parts in groups.items()}
    search = BoxSearch.boxes(replace(q, problem=merge_problem(p, groups)), sizes)
    if search is None:
        return None
    search.best = known.under(search.goal)
    found = bound_of(search)
    if found is None:
        return None
    space, merged = real_space(q, kept), merged_space(q, kept)
    draws = Draws(search.goal, q.machine.compute.joules(p), known.cost.energy_j)
    starts = [known_start(space, known, draws), *(one for mapping in search.near() for one in _starts(space, merged, mapping, draws))]
    return BoxBest(explored(q, known, draws, starts, KICKS), found.bound, search.cells + draws.cells)


def _starts(space: Space, merged: Space, mapping: NestMapping, draws: Draws) -> Iterator[Drawn | None]:
    """Mappings next to one of the merged ranks."""
    levels, names = mapping.levels, list(merged.groups)

    def tile(level: int, node: int, r: int) -> float:
        return float(levels[level].nodes[node].tile[names[r]])

    def laid(fan: int, r: int) -> float:
        return float(levels[fan].spatial(names[r]))

    plan = RaggedPlan(space, orders_of(space, mapping))
    for ratios in shared_ratios(plan, merged, tile, laid):
        yield next_to(draws, plan, ratios)
