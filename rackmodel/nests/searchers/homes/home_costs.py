"""What a mapping with tensors at home costs, in arrays, on a machine of a memory, a fan and cores.

Per tensor: words that enter the working tiles of all cores (`every`), with the fan counted once (`once`), of the fullest
core (`fullest`); words a core ever works with (`ever`); q cores share a word. These fill the tallies of word_terms, for all
cores (energy) and for the fullest (time). The same lines price a joint array of tiles and, with the fewest counts there can
be, bound every spatial vector.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from rackmodel.arrays import Array, Number
from rackmodel.nests.problem import NestMachine, NestProblem
from rackmodel.nests.searchers.mapspace.prices import BitPrices, Component, components, energy_prices
from rackmodel.nests.searchers.mapspace.word_terms import Tally, TallyPrices, tally_prices

Tallies = dict[Tally, Number]


@dataclass
class Moved:
    """Words of one tensor, as arrays that broadcast over the mappings."""

    every: Number
    once: Number
    fullest: Number
    ever: Number
    shared: Array


@dataclass(frozen=True)
class HomePrices:
    """Prices of every tensor's words memory → core (or core → core) and core → compute, and of a bit's hop below each level."""

    streamed: tuple[TallyPrices, ...]
    compute: tuple[TallyPrices, ...]
    hop: tuple[float, ...]


class HomeCost:
    """The costs of one problem with `home` at home."""

    def __init__(self, problem: NestProblem, machine: NestMachine, home: frozenset[str]) -> None:
        self.problem, self.machine, self.home = problem, machine, home
        self.whole = [float(t.tile_words(problem.sizes)) for t in problem.tensors]
        self.energy = self._prices(energy_prices(machine))
        self.ports: list[tuple[Component, HomePrices]] = [(c, self._prices(c.prices(2))) for c in components(machine)]

    def _prices(self, prices: BitPrices) -> HomePrices:
        tensors = self.problem.tensors
        return HomePrices(
            tuple(tally_prices(self.machine, prices, t, 0, 1, home=t.name in self.home) for t in tensors),
            tuple(tally_prices(self.machine, prices, t, 1, 2) for t in tensors),
            prices.hop,
        )

    def room(self, t: int, tile: Number, moved: Moved) -> Number:
        """Bits of the fullest core that tensor number t takes: its working tile; at home its share too, never more than all
        of it."""
        inner, tensor = self.machine.levels[1], self.problem.tensors[t]
        words = inner.buffers * tile
        if tensor.name in self.home:
            words = np.minimum(moved.ever, np.ceil(moved.ever / moved.shared) + words)
        return inner.bits(tensor) * words

    def total(self, moved: list[Moved], cycles: Number) -> tuple[Any, Any]:
        """(energy, latency) of arrays. cycles: what the fullest core works through."""
        p, compute = self.problem, self.machine.compute
        streamed = [self._streamed(t, m) for t, m in enumerate(moved)]
        fed = [self._fed(t, m, cycles) for t, m in enumerate(moved)]
        energy = compute.joules(p) + _sum(self.energy, [s for s, _ in streamed], [f for f, _ in fed])
        time: Any = cycles * p.density / compute.macs_per_s
        for port, prices in self.ports:
            time = np.maximum(time, _sum(prices, [s for _, s in streamed], [f for _, f in fed]) / port.bandwidth)
        return energy, time

    def least(self, ends: list[tuple[Moved, ...]], cycles: Number, busy: float) -> tuple[Any, Any]:
        """Lower bounds of (energy, latency) of all numbers of parts between two ends. ends: of each tensor, what it moves with the fewest
        copies and, where they are others, with the most: prices are linear in the copies q or in 1 / q, and least at q = 1, where nothing
        is shared. cycles: the fewest · busy: MACs of the fullest compute where all are as full."""
        p, compute = self.problem, self.machine.compute
        both = [[(self._streamed(t, m), self._fed(t, m, cycles)) for m in end] for t, end in enumerate(ends)]

        def lesser(prices: HomePrices, side: int) -> Number:
            found: Number = 0.0
            for streamed, fed, end in zip(prices.streamed, prices.compute, both, strict=True):
                each = [streamed.total(s[side], prices.hop[0]) + fed.total(f[side], prices.hop[1]) for s, f in end]
                found = found + np.minimum(each[0], each[-1])
            return found

        energy = compute.joules(p) + lesser(self.energy, 0)
        time: Any = np.maximum(cycles, busy) * p.density / compute.macs_per_s
        for port, prices in self.ports:
            time = np.maximum(time, lesser(prices, 1) / port.bandwidth)
        return energy, time

    def _streamed(self, t: int, m: Moved) -> tuple[Tallies, Tallies]:
        """Tallies between the memory and the cores, or among the cores: of all cores, of the fullest core."""
        whole = self.whole[t]
        if self.problem.tensors[t].name not in self.home:
            every: Tallies = {Tally.ENTERED: m.every, Tally.SERVED: m.once, Tally.CROSSED: m.every, Tally.FRESH_PARENT: whole}
            every |= {Tally.FRESH_CHILD: whole * m.shared, Tally.FRESH_CROSSED: whole * m.shared}
            fullest: Tallies = {Tally.ENTERED: m.fullest, Tally.SERVED: m.once, Tally.CROSSED: m.fullest, Tally.FRESH_PARENT: whole}
            return every, fullest | {Tally.FRESH_CHILD: m.ever, Tally.FRESH_CROSSED: m.ever}
        apart, away = (m.shared > 1).astype(float), 1 - 1 / m.shared  # a word that one core alone works with never moves
        every = {Tally.ENTERED: apart * m.every, Tally.SERVED: apart * m.once, Tally.LANDED: away * m.every}
        share = apart / m.shared
        fullest = {Tally.ENTERED: apart * m.fullest, Tally.SERVED: share * m.fullest, Tally.LANDED: away * m.fullest}
        return every | {Tally.FRESH_PARENT: apart * whole}, fullest | {Tally.FRESH_PARENT: share * m.ever}

    def _fed(self, t: int, m: Moved, cycles: Number) -> tuple[Tallies, Tallies]:
        """Tallies between the cores and their compute: of all cores, of the fullest core."""
        macs, fresh = float(self.problem.macs), self.whole[t] * m.shared
        every: Tallies = {Tally.SERVED: macs, Tally.CROSSED: macs, Tally.FRESH_PARENT: fresh, Tally.FRESH_CROSSED: fresh}
        return every, {Tally.SERVED: cycles, Tally.CROSSED: cycles, Tally.FRESH_PARENT: m.ever, Tally.FRESH_CROSSED: m.ever}


def _sum(prices: HomePrices, streamed: list[Tallies], fed: list[Tallies]) -> Number:
    """Price of the tallies of every tensor."""
    total: Number = 0.0
    for price, tallies in zip(prices.streamed, streamed, strict=True):
        total = total + price.total(tallies, prices.hop[0])
    for price, tallies in zip(prices.compute, fed, strict=True):
        total = total + price.total(tallies, prices.hop[1])
    return total
