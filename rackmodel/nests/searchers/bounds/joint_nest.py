"""The programs of one Space under weights of energy and time, and what of their prices is known before any range (joint_program)."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

from rackmodel.arrays import Array
from rackmodel.nests.searchers.bounds.continuous_bound import ContinuousNest, Saving
from rackmodel.nests.searchers.bounds.continuous_program import Exponentials
from rackmodel.nests.searchers.bounds.joint_ranges import Ranges, Weights
from rackmodel.nests.searchers.mapspace.fewest_cycles import least_seconds
from rackmodel.nests.searchers.mapspace.prices import components, energy_prices
from rackmodel.nests.searchers.mapspace.space import Space
from rackmodel.nests.searchers.mapspace.word_terms import Tally


class JointNest(ContinuousNest):
    """The programs of one Space under weights of energy and time. parted: ranks whose parts are numbers of their own, for copies of the
    output are their product · shared: the same of what a transfer may serve."""

    def __init__(self, space: Space, weights: Weights) -> None:
        super().__init__(space, energy_prices(space.machine))
        self.weights = weights
        self.fastest = least_seconds(space.problem, space.machine)
        self.cells = [-(-n // u) for n, u in zip(space.sizes, self.leaf, strict=True)]
        lacked = self.lacks[space.output]
        self.parted = frozenset(lacked if len(lacked) > 1 else ())
        self.shared = frozenset(r for some in self.lacks if len(some) > 1 for r in some)
        self.owed = self._owed()
        self.ports = [(port, port.prices(space.depth)) for port in components(space.machine)]

    def under(self, weights: Weights) -> JointNest:
        """The same under other weights, in units of its own."""
        other = copy(self)
        other.weights = weights
        return other

    def _owed(self) -> list[int]:
        """Levels of transfers of the output of which fresh words are left out, one for each."""
        space, output = self.space, self.space.output
        kept = [level for level in range(space.depth) if level == 0 or output in space.stored(level)]
        found = []
        for parent, child in zip(kept, [*kept[1:], space.depth], strict=True):
            p = self.tallies(self.prices, output, parent, child)
            each = [(child, p.words.get(Tally.FRESH_CHILD, 0.0)), (parent, p.words.get(Tally.FRESH_PARENT, 0.0))]
            each += [(f + 1, p.hops.get(Tally.FRESH_CROSSED, 0.0) * self.prices.hop[f]) for f in range(parent, child)]
            found += [level for level, price in each if price < 0 and level in kept[1:] and any(f < level for f in self.fans)]
        return found

    def ranges(self) -> Ranges:
        """Every mapping's."""
        return Ranges(tuple((1, self._most(f)) for f in range(self.space.depth)))


@dataclass(frozen=True)
class Net:
    """Words that cost `each` but for the fresh ones. level: that they enter, or that serves them · row, words: their logarithm · fans:
    whose copies are fresh · at: number of what they cost."""

    level: int
    each: float
    row: Array
    words: float
    fans: tuple[int, ...]
    at: int


@dataclass(frozen=True)
class Port:
    """Seconds of a port, in units of those known: terms of the words of all instances, and of the fullest one, and what fresh outputs
    save · level: whose instances share it."""

    level: int
    terms: Exponentials
    fullest: Exponentials
    savings: tuple[Saving, ...]
