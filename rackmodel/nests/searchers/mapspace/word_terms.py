"""The one word count of the searchers: what a tensor moves between two memories, as symbolic terms.

A transfer of tensor T from a parent to a child is a few actions (CHARGES), each a sum of tallies of words:
  entered = |T| x prod over the ranks r that T lacks of n_r,   n_r = tiles of rank r at T's node in the child
  served  = the same, the instances of a fan that one transfer of the parent serves counted once
A searcher makes a TensorTerm of every tensor once (which ranks multiply), a TallyPrices of every transfer once (what a word
of each tally costs), and then only fills in its own tile counts. evaluate.py and cpsat.py count on their own: they are the
definition and the oracle that this is tested against. Derivation: docs/nest_theory.md, section 2.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import reduce
from itertools import product
from math import prod

import numpy as np

from rackmodel.arrays import Number
from rackmodel.nests.problem import NestMachine, NestTensor
from rackmodel.nests.searchers.mapspace.prices import BitPrices


class Tally(Enum):
    """Which words. ENTERED: into all instances of the child. SERVED: by the parent, a fan counted once. CROSSED: over the fans
    between, a word a hop. LANDED (at home): in another core than their owner. FRESH_*: output words of which there is nothing to
    fetch yet, at the child, at the parent, on the fans between."""

    ENTERED, SERVED, CROSSED, LANDED, FRESH_CHILD, FRESH_PARENT, FRESH_CROSSED = range(7)
    __hash__ = object.__hash__  # by which words are looked up in the innermost loops: that of Enum is a call of Python


@dataclass(frozen=True)
class TransferAction:
    """One action of a transfer: read or write of a bit at "parent" or "child", or its hop over the "fan" between them."""

    where: str
    action: str
    words: Mapping[Tally, float]
    width: str  # whose bits a word has


CHARGES: dict[tuple[bool, bool], tuple[TransferAction, ...]] = {  # (is output, at home in the child)
    (False, False): (
        TransferAction("parent", "read", {Tally.SERVED: 1}, "parent"),
        TransferAction("child", "write", {Tally.ENTERED: 1}, "child"),
        TransferAction("fan", "hop", {Tally.CROSSED: 1}, "parent"),
    ),
    (True, False): (
        TransferAction("parent", "write", {Tally.SERVED: 1}, "parent"),
        TransferAction("parent", "read", {Tally.SERVED: 1, Tally.FRESH_PARENT: -1}, "parent"),
        TransferAction("child", "read", {Tally.ENTERED: 1}, "child"),
        TransferAction("child", "write", {Tally.ENTERED: 1, Tally.FRESH_CHILD: -1}, "child"),
        TransferAction("fan", "hop", {Tally.CROSSED: 2, Tally.FRESH_CROSSED: -1}, "parent"),
    ),
    (False, True): (
        TransferAction("child", "read", {Tally.SERVED: 1}, "child"),
        TransferAction("child", "write", {Tally.LANDED: 1}, "child"),
        TransferAction("fan", "hop", {Tally.LANDED: 1}, "child"),
    ),
    (True, True): (
        TransferAction("child", "read", {Tally.ENTERED: 1, Tally.SERVED: 1, Tally.FRESH_PARENT: -1}, "child"),
        TransferAction("child", "write", {Tally.SERVED: 1}, "child"),
        TransferAction("fan", "hop", {Tally.LANDED: 1}, "child"),
    ),
}


@dataclass(frozen=True)
class TallyPrices:
    """Price of a word of each tally in one transfer (absent: 0). hops: the same for a hop price of 1."""

    words: Mapping[Tally, float] = field(default_factory=dict)
    hops: Mapping[Tally, float] = field(default_factory=dict)

    def total(self, tallies: Mapping[Tally, Number], hop: float = 0.0) -> Number:
        """Price of so many words; `hop` is the price of a bit over the one fan between."""
        found: Number = 0.0
        for tally, price in self.words.items():
            found = found + price * tallies[tally]
        for tally, price in self.hops.items():
            if hop:
                found = found + price * hop * tallies[tally]
        return found


def tally_prices(
    machine: NestMachine, prices: BitPrices, tensor: NestTensor, parent: int, child: int, *, home: bool = False
) -> TallyPrices:
    """TallyPrices of `tensor` from level `parent` to level `child` (the number of levels: the compute, which has no store)."""
    levels = machine.levels
    store = child < len(levels)
    bits = {"parent": levels[parent].bits(tensor), "child": levels[child].bits(tensor) if store else 0}
    price = {
        ("parent", "read"): prices.read[parent],
        ("parent", "write"): prices.write[parent],
        ("child", "read"): prices.read[child] if store else 0.0,
        ("child", "write"): prices.write[child] if store else 0.0,
        ("fan", "hop"): 1.0,
    }
    words: dict[Tally, float] = {}
    hops: dict[Tally, float] = {}
    for charge in CHARGES[tensor.is_output, home]:
        into = hops if charge.where == "fan" else words
        for tally, factor in charge.words.items():
            cost = factor * bits[charge.width] * price[charge.where, charge.action]
            if cost:
                into[tally] = into.get(tally, 0.0) + cost
    return TallyPrices(words, hops)


Sum = tuple[tuple[int, int], ...]  # an affine index: (stride, rank) of every term


def _extents(index: Sum, counts: Mapping[int, Number], sizes: tuple[int, ...]) -> Number:
    """The extents 1 + sum_i c_i (e_i - 1) of all tiles, n_i of rank i: n (1 - sum_i c_i) + sum_i c_i D_i n / n_i, n = prod n_i.

    Neighbouring tiles overlap, the halo; a stride leaves gaps between them.
    """
    every: Number = prod(counts.values(), start=1.0)
    extent = every * (1.0 - sum(c for c, _ in index))
    for c, r in index:
        extent = extent + c * sizes[r] * every / counts[r]
    return extent


def _fewest(index: Sum, counts: Mapping[int, Number], sizes: tuple[int, ...]) -> Number:
    """The least extents of these or more tiles, up to one an element.

    More tiles of a rank without a stride are no fewer extents; with one they may be, as nothing is fetched of a gap between two tiles. In
    each rank extents are linear, so that they are least at an end.
    """
    strided = [r for c, r in index if c > 1]
    ends = product(*((counts[r], float(sizes[r])) for r in strided))
    return reduce(np.minimum, (_extents(index, {**counts, **dict(zip(strided, end, strict=True))}, sizes) for end in ends))


@dataclass(frozen=True)
class TensorTerm:
    """A tensor's counts as products over numbered ranks (or classes of ranks that index the same tensors).

    whole: words of all of it, ranks in sums apart · has: its ranks outside sums · lacks: ranks it lacks · sums: its affine
    indices, each [(stride, rank), ...] · least: counts of tiles are the fewest there may be, and words are to be, too.
    """

    whole: float
    has: tuple[int, ...]
    lacks: tuple[int, ...]
    sums: tuple[Sum, ...] = ()
    least: bool = False

    @staticmethod
    def of(whole: float, has: Iterable[bool]) -> "TensorTerm":
        """The term of a tensor without sums; has: [ranks] whether it has each."""
        on = list(has)
        return TensorTerm(whole, tuple(r for r, h in enumerate(on) if h), tuple(r for r, h in enumerate(on) if not h))

    def words(self, count: Callable[[int], Number], tiles: Callable[[int], Number] | None = None, sizes: tuple[int, ...] = ()) -> Number:
        """Words moved: whole x prod over lacked ranks of count(r), and for every sum the extents of all its tiles.

        tiles: tiles of a rank in a sum, `sizes` of them by rank.
        """
        total: Number = self.whole
        for r in self.lacks:
            total = total * count(r)
        for index in self.sums:
            assert tiles is not None
            counts = {r: tiles(r) for _, r in index}
            total = total * (_fewest(index, counts, sizes) if self.least else _extents(index, counts, sizes))
        return total

    def room(self, extent: Callable[[int], Number], each: float = 1.0) -> Number:
        """Room of one tile, `each` a word: prod of the extents of its ranks, a sum of indices spanning 1 + sum c (extent - 1)."""
        total: Number = each
        for r in self.has:
            total = total * extent(r)
        for index in self.sums:
            total = total * (1 + sum(c * (extent(r) - 1) for c, r in index))
        return total
