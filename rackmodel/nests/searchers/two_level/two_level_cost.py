"""Energy and latency of a memory above one buffer above an array, from words and leaves alone; arrays broadcast.

Per price (joules, or the bits of one port) the cost is linear: sum over tensors of fill x words memory → buffer + feed x
words buffer → array + what fresh outputs save. The prices of a word come from word_terms.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from rackmodel.arrays import Number
from rackmodel.nests.problem import NestMachine, NestProblem
from rackmodel.nests.searchers.mapspace.prices import BitPrices, components, energy_prices
from rackmodel.nests.searchers.mapspace.word_terms import Tally, tally_prices


@dataclass(frozen=True)
class LinearCost:
    """fill, feed: price of a word of each tensor memory → buffer, buffer → array · fresh: what is always saved (<= 0)."""

    fill: tuple[float, ...]
    feed: tuple[float, ...]
    fresh: float

    def total(self, fills: Sequence[Number], feeds: Sequence[Number]) -> Number:
        """Price of the words of every tensor."""
        found: Number = self.fresh
        for price, words in zip((*self.fill, *self.feed), (*fills, *feeds), strict=True):
            if price:
                found = found + price * words
        return found


class TwoLevelCost:
    """The costs of one problem. words: of each tensor, whole."""

    def __init__(self, problem: NestProblem, machine: NestMachine, words: Sequence[float]) -> None:
        self.problem, self.machine, self.words = problem, machine, words
        self.energy = self._linear(energy_prices(machine))
        self.ports = [(self._linear(c.prices(2)), c.bandwidth) for c in components(machine)]
        self.macs_j = machine.compute.joules(problem)
        self.leaf_s = prod(machine.compute.leaf(problem.sizes).values()) * problem.density / machine.compute.macs_per_s

    def _linear(self, prices: BitPrices) -> LinearCost:
        fill, feed, fresh = [], [], 0.0
        for tensor, whole in zip(self.problem.tensors, self.words, strict=True):
            memory, array = (tally_prices(self.machine, prices, tensor, parent, parent + 1).words for parent in (0, 1))
            fill.append(memory.get(Tally.ENTERED, 0.0) + memory.get(Tally.SERVED, 0.0))  # one buffer: all that is served enters
            feed.append(array.get(Tally.SERVED, 0.0))
            fresh += whole * sum(p.get(tally, 0.0) for p in (memory, array) for tally in (Tally.FRESH_CHILD, Tally.FRESH_PARENT))
        return LinearCost(tuple(fill), tuple(feed), fresh)

    def total(self, fills: Sequence[Number], feeds: Sequence[Number], leaves: Number) -> tuple[Any, Any]:
        """(energy, latency) of words per tensor and of the leaves of the fullest unit."""
        time: Any = leaves * self.leaf_s
        for port, bandwidth in self.ports:
            time = np.maximum(time, port.total(fills, feeds) / bandwidth)
        return self.macs_j + self.energy.total(fills, feeds), time
