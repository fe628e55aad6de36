"""Energy and times of many ragged mappings at once: the tallies of word_terms, with nested counts, in arrays.

Every rank's chain of splits is followed as in split_chains, all rows of a RaggedPlan together: pieces of one extent and how many, a
split in time or over instances turning each into whole tiles and a rest. "First" splits keep the largest piece alone. What a row costs
is the sum of its tallies at the prices of word_terms; evaluate.py stays the definition, and recounts what is chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from math import inf, prod

import numpy as np

from rackmodel.nests.arrays import Floats, Ints, Number
from rackmodel.nests.problem import NestTensor, index_term
from rackmodel.nests.searchers.prices import components, energy_prices
from rackmodel.nests.searchers.ragged_plan import RaggedPlan
from rackmodel.nests.searchers.word_terms import Tally, tally_prices

Pieces = list[tuple[Ints, Ints]]  # (extent, how many), each [rows]


class RaggedCounts:
    """rows: [rows, numbers] of a RaggedPlan that fit."""

    def __init__(self, plan: RaggedPlan, rows: Ints) -> None:
        self.plan, self.rows, self.space = plan, rows, plan.space
        self.machine = plan.space.machine
        depth = self.space.depth
        self.laid = [[plan.laid(rows, f, r) for r in range(len(self.space.ranks))] for f in range(depth)]
        self.position: dict[tuple[int, int], int] = {(0, t): 0 for t in range(len(self.space.tensors))}
        self.chain: list[list[tuple[Ints, int | None]]] = [[] for _ in self.space.ranks]
        self.after_fan: list[int] = []
        for level in range(depth):
            for j, t in enumerate(plan.orders[level]):
                for r, chain in enumerate(self.chain):
                    chain.append((plan.tile(rows, level, j, r), None))
                self.position[level, t] = len(self.chain[0])
            for r, chain in enumerate(self.chain):
                entry = self._entry(level + 1, r)
                chain += [(entry * self.laid[level][r], None), (entry, level)]
            self.after_fan.append(len(self.chain[0]))
        self._known: dict[tuple[int, int, frozenset[int | None], bool], tuple[Ints, Ints]] = {}

    def _entry(self, level: int, r: int) -> Ints:
        """Tile that a level's instances receive."""
        if level == self.space.depth:
            return np.full(len(self.rows), self.plan.space.leaf[r])
        if self.plan.orders[level]:
            return self.plan.tile(self.rows, level, 0, r)
        return self._entry(level + 1, r) * self.laid[level][r]

    # -- pieces of a rank
    def pieces(self, r: int, depth: int, first: Iterable[int] = (), first_time: bool = False) -> tuple[Ints, Ints]:
        """([rows] pieces, [rows] what they cover) of a rank after so many splits; fans of `first` keep their largest piece."""
        chain, kept = self.chain[r][:depth], frozenset(first)
        key = (r, depth, frozenset(fan for _, fan in chain if fan in kept), first_time)
        if key not in self._known:
            some: Pieces = [(np.full(len(self.rows), self.space.sizes[r]), np.ones(len(self.rows), dtype=np.int64))]
            for tile, fan in chain:
                some = _largest(some, tile) if (first_time if fan is None else fan in kept) else _split(some, tile)
            self._known[key] = _sum([n for _, n in some]), _sum([e * n for e, n in some])
        return self._known[key]

    def words(self, tensor: NestTensor, depth: int, first: frozenset[int], shared: frozenset[int]) -> Number:
        """[rows] words at a node; fans of `first` count one instance, those of `shared` for the ranks the tensor lacks."""
        ranks, total = self.space.ranks, np.ones(len(self.rows))
        for r, rank in enumerate(ranks):
            if rank not in tensor.ranks:
                total = total * self.pieces(r, depth, first | shared)[0]
        for index in tensor.indices:
            terms = [(c, *self.pieces(ranks.index(rank), depth, first)) for c, rank in map(index_term, index)]
            every = np.prod([n for _, n, _ in terms], axis=0)
            total = total * (every * (1 - sum(c for c, _, _ in terms)) + _sum([c * s * every // n for c, n, s in terms]))
        return total

    def fresh(self, tensor: NestTensor, level: int, first: frozenset[int]) -> Number:
        """[rows] words of the output of which there is nothing to fetch yet."""
        depth = 0 if level == 0 else self.after_fan[level - 1]
        total = np.ones(len(self.rows))
        for r, rank in enumerate(self.space.ranks):
            on = rank in tensor.ranks
            total = total * self.pieces(r, depth, first, first_time=not on)[1 if on else 0]
        return total

    def waves(self, level: int) -> Number:
        """[rows] rounds of the linear fans above a level."""
        total: Number = 1
        for f in range(level):
            fan = self.machine.levels[f].fan
            if fan.linear:
                others = frozenset(range(self.space.depth)) - {f}
                parts = np.prod([self.pieces(r, self.after_fan[f], others, True)[0] for r in range(len(self.space.ranks))], axis=0)
                total = total * -(-parts // fan.size)
        return total

    def served(self, t: int, parent: int, child: int, first: frozenset[int]) -> Number:
        """[rows] words that a parent moves for a tensor's node in a child: as in evaluate."""
        tensor, depth = self.space.tensors[t], self._depth(t, child)
        once: list[int] = []
        wide: list[tuple[int, Floats]] = []
        for f in range(parent, child):
            fan = self.machine.levels[f].fan
            width = fan.reduction_width if tensor.is_output else fan.multicast_width
            copies = prod((self.laid[f][r] for r, rank in enumerate(self.space.ranks) if rank not in tensor.ranks), start=np.ones(1))
            if width is None or bool((copies <= width).all()):
                once.append(f)
            else:
                wide.append((f, np.where(copies <= width, inf, width)))
        found: Number = 0.0
        for divided in product((True, False), repeat=len(wide)):
            whole = [f for (f, _), d in zip(wide, divided, strict=True) if not d]
            by = prod((width for (_, width), d in zip(wide, divided, strict=True) if d), start=np.ones(1))
            found = np.maximum(found, self.words(tensor, depth, first, frozenset([*once, *whole])) / by)
        return found

    def _depth(self, t: int, child: int) -> int:
        return len(self.chain[0]) if child == self.space.depth else self.position[child, t]

    # -- costs
    def cost(self, timed: bool) -> tuple[Floats, list[Floats]]:
        """([rows] joules, [rows] seconds of every component); timed: whether seconds are asked for."""
        p, machine = self.space.problem, self.machine
        energy: Number = p.macs * p.density * machine.compute.j_per_mac + self._priced(None)
        times = [np.asarray(self._priced(i) / port.bandwidth) for i, port in enumerate(components(machine))] if timed else []
        if timed:
            every = frozenset(range(self.space.depth))
            cycles = np.prod([self.pieces(r, len(self.chain[0]), every)[0] * u for r, u in enumerate(self.space.leaf)], axis=0)
            times.append(np.asarray(cycles * self.waves(self.space.depth) * p.density / machine.compute.macs_per_s))
        return np.broadcast_to(energy, len(self.rows)), times

    def _priced(self, port: int | None) -> Number:
        """Joules of everything, or bits of the fullest instance of a port."""
        machine, total = self.machine, np.zeros(len(self.rows))
        prices = energy_prices(machine) if port is None else components(machine)[port].prices(self.space.depth)
        for t, tensor in enumerate(self.space.tensors):
            kept = [level for level in range(self.space.depth) if level == 0 or t in self.plan.orders[level]]
            for parent, child in zip(kept, [*kept[1:], self.space.depth], strict=True):
                each = tally_prices(machine, prices, tensor, parent, child)
                for tally, price in each.words.items():
                    total = total + price * self._tally(tally, t, parent, child, port is not None)
                for f in range(parent, child):
                    if prices.hop[f]:
                        total = total + prices.hop[f] * self._hops(each.hops, t, f, child, port is not None)
        return total

    def _tally(self, tally: Tally, t: int, parent: int, child: int, fullest: bool) -> Number:
        """Words of a tally: of all instances, or of the fullest one over all its waves."""
        level = child if tally in (Tally.ENTERED, Tally.FRESH_CHILD) else parent
        first, waves = (frozenset(range(level)), self.waves(level)) if fullest else (frozenset[int](), 1)
        if tally is Tally.ENTERED:
            return self.words(self.space.tensors[t], self._depth(t, child), first, frozenset()) * waves
        if tally is Tally.SERVED:
            return self.served(t, parent, child, first) * waves
        return self.fresh(self.space.tensors[t], level, first) * waves

    def _hops(self, each: Mapping[Tally, float], t: int, f: int, child: int, fullest: bool) -> Number:
        first, waves = (frozenset(range(f + 1)), self.waves(f + 1)) if fullest else (frozenset[int](), 1)
        found: Number = 0.0
        for tally, price in each.items():
            words = self.served(t, f + 1, child, first) if tally is Tally.CROSSED else self.fresh(self.space.tensors[t], f + 1, first)
            found = found + price * words * waves
        return found


def _largest(pieces: Pieces, tile: Ints) -> Pieces:
    return [(np.minimum(extent, tile), n) for extent, n in pieces]


def _split(pieces: Pieces, tile: Ints) -> Pieces:
    """Every piece in whole tiles and a rest."""
    rests: Pieces = []
    whole: Ints = np.zeros(len(tile), dtype=np.int64)
    for extent, n in pieces:
        full, rest = np.divmod(extent, tile)
        whole = np.asarray(whole + full * n)
        many = np.where(rest > 0, n, 0)
        if many.any():
            rests.append((rest, many))
    return [(tile, whole), *rests]


def _sum(values: list[Ints]) -> Ints:
    return np.asarray(sum(values[1:], values[0]))
