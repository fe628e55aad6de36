"""What a matrix product costs on a memory, a buffer and an array of register files, rank by rank, under any price of a bit.

Each rank is lacked by one tensor, so that a price is a sum over the ranks: tiles of the buffer, groups, parts.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from rackmodel.nests.problem import NestMachine, NestProblem
from rackmodel.nests.searchers.mapspace.prices import BitPrices
from rackmodel.nests.searchers.mapspace.word_terms import Tally, tally_prices
from rackmodel.nests.searchers.registers.rank_splits import SplitPrices


class ProductPrices(NamedTuple):
    """constant: of every mapping, the MACs left out · saved: what each copy of the output saves · output: rank that it lacks ·
    ranks: of every rank's pieces."""

    constant: float
    saved: float
    output: int
    ranks: tuple[SplitPrices, ...]

    def of(self, copies: Any) -> Any:
        """What no tile changes, with so many copies of the output; a number or an array."""
        return self.constant - self.saved * copies

    def scaled(self, factor: float) -> ProductPrices:
        """All prices times a factor."""
        ranks = tuple(SplitPrices(*(factor * price for price in r)) for r in self.ranks)
        return ProductPrices(factor * self.constant, factor * self.saved, self.output, ranks)


def tensor_of_rank(p: NestProblem) -> list[int]:
    """[ranks] number of the tensor that lacks each."""
    return [next(i for i, t in enumerate(p.tensors) if r not in t.ranks) for r in p.sizes]


def product_prices(p: NestProblem, m: NestMachine, prices: BitPrices) -> ProductPrices:
    """Prices of one product; prices: of a bit, joules or bits of a port."""
    constant, saved = 0.0, 0.0
    for tensor in p.tensors:
        words = float(prod(p.sizes[r] for r in tensor.ranks))
        above, into, at_compute = (tally_prices(m, prices, tensor, level, level + 1).words for level in range(3))
        constant += p.macs * (at_compute.get(Tally.SERVED, 0.0) + at_compute.get(Tally.ENTERED, 0.0))
        whole = above.get(Tally.FRESH_PARENT, 0.0) + above.get(Tally.FRESH_CHILD, 0.0) + into.get(Tally.FRESH_PARENT, 0.0)
        constant += words * whole
        saved -= words * (into.get(Tally.FRESH_CHILD, 0.0) + at_compute.get(Tally.FRESH_PARENT, 0.0))
    lacked = tensor_of_rank(p)
    output = next(r for r, t in enumerate(lacked) if p.tensors[t].is_output)
    return ProductPrices(constant, saved, output, tuple(_of_rank(p, m, prices, t) for t in lacked))


def _of_rank(p: NestProblem, m: NestMachine, prices: BitPrices, t: int) -> SplitPrices:
    """Of the rank that tensor t lacks."""
    tensor = p.tensors[t]
    words = float(prod(p.sizes[r] for r in tensor.ranks))
    outer, inner = (tally_prices(m, prices, tensor, level, level + 1).words for level in (0, 1))
    tile = outer.get(Tally.ENTERED, 0.0) + outer.get(Tally.SERVED, 0.0)
    return SplitPrices(words * tile, words * inner.get(Tally.SERVED, 0.0), words * inner.get(Tally.ENTERED, 0.0))
