"""What crossing fanouts does to the price of a word: copies served, hops, fresh outputs, level by level.

Between the parent p of a tensor and the level where it is stored lie one or more fans. One transfer of p serves `served`
copies (prod of parts over the ranks the tensor lacks, up to the width of each fan); a word takes `hops` to its instance; an
output has `sig` copies over the instances, each of which starts without a fetch (docs/nest_theory.md, section 2).
"""

from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import NamedTuple

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.nests.searchers.mapspace.prices import BitPrices
from rackmodel.nests.searchers.mapspace.space import Space
from rackmodel.nests.searchers.mapspace.word_terms import Tally, tally_prices


@dataclass(frozen=True)
class FanState:
    """What the levels above leave for those below.

    sig: output copies over the instances reached so far · sig_parent: the same at the output's last storing level ·
    served, hops: per tensor, since it was last stored: copies one transfer serves, hops a word below each level ·
    hop_sig: per level, hops times copies, for the fresh words. Hops that cost neither energy nor time count 0.
    """

    sig: int
    sig_parent: int
    served: tuple[float, ...]
    hops: tuple[tuple[float, ...], ...]
    hop_sig: tuple[float, ...]

    @cached_property
    def _hash(self) -> int:
        return hash((self.sig, self.sig_parent, self.served, self.hops, self.hop_sig))

    def __hash__(self) -> int:  # tables are looked up by states
        return self._hash

    @cached_property
    def without_copies(self) -> "FanState":
        """The same for all but fresh outputs: one copy of them."""
        return replace(self, sig=1, sig_parent=1, hop_sig=(0.0,) * len(self.hop_sig))


class Crossing(NamedTuple):
    """A FanState under every spatial vector of a fan: sig [S], served [S, T], hops [S, T, levels], hop_sig [S, levels]."""

    sig: Array
    served: Array
    hops: Array
    hop_sig: Array


class Coefficients(NamedTuple):
    """Price [S, T] of a word that enters a level, price [S, T] of a word the parent serves before dividing by the copies,
    and what fresh outputs save [S]."""

    fill: Array
    serve: Array
    credit: Array


def start(space: Space) -> FanState:
    """The state above everything."""
    tensors, levels = len(space.tensors), space.depth
    return FanState(1, 1, (1.0,) * tensors, ((0.0,) * levels,) * tensors, (0.0,) * levels)


def cross_fan(space: Space, fan: int, state: FanState, vectors: Ints) -> Crossing:
    """State under fanout `fan` for each spatial vector [S, ranks]."""
    f = space.machine.levels[fan].fan
    copies = np.stack([np.prod(vectors[:, lacks], axis=1) for lacks in ~space.has], axis=1).astype(float)
    width = np.array([(f.reduction_width if t.is_output else f.multicast_width) or np.inf for t in space.tensors])
    now = np.minimum(copies, width)
    sig = state.sig * copies[:, space.output]
    counts = float(f.hop_j_per_bit > 0 or f.link_bits_per_s < inf) * (np.arange(space.depth) == fan)
    hops = np.array(state.hops) / now[:, :, None] + counts
    return Crossing(sig, np.array(state.served) * now, hops, np.array(state.hop_sig) + counts * sig[:, None])


def handed_on(space: Space, level: int, state: FanState, crossing: Crossing) -> tuple[list[FanState], Ints]:
    """(the states below `level`, as they are met, [S] number of that of every spatial vector)."""
    stored = set(space.present(level)) if level < space.depth else set()
    passed = [t for t in range(len(space.tensors)) if t not in stored]
    count = len(crossing.sig)
    parts = [crossing.sig[:, None], crossing.served[:, passed], crossing.hops[:, passed].reshape(count, -1), crossing.hop_sig]
    columns = np.concatenate(parts[: 3 if space.output in stored else 4], axis=1)
    _, first, number = np.unique(columns, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return [_handed_on(space, level, state, crossing, int(i)) for i in first[order]], np.argsort(order)[number.ravel()]


def _handed_on(space: Space, level: int, state: FanState, crossing: Crossing, i: int) -> FanState:
    """State below `level` for spatial vector i: tensors stored here start afresh."""
    stored = set(space.present(level)) if level < space.depth else set()
    tensors, none = range(len(space.tensors)), (0.0,) * space.depth
    served = tuple(1.0 if t in stored else float(crossing.served[i, t]) for t in tensors)
    hops = tuple(none if t in stored else tuple(map(float, crossing.hops[i, t])) for t in tensors)
    kept, sig = space.output in stored, int(crossing.sig[i])
    hop_sig = none if kept else tuple(map(float, crossing.hop_sig[i]))
    return FanState(sig, sig if kept else state.sig_parent, served, hops, hop_sig)


def coefficients(space: Space, level: int, prices: BitPrices, state: FanState, crossing: Crossing) -> Coefficients:
    """Coefficients of `level` (the number of levels: the compute) under every spatial vector of the fan above it."""
    count, hop_price = len(space.tensors), np.array(prices.hop)
    shape = (len(crossing.sig), count)
    fill, serve, credit = np.zeros(shape), np.zeros(shape), np.zeros(len(crossing.sig))
    for t in space.stored(level) if level < space.depth else range(count):
        p = tally_prices(space.machine, prices, space.tensors[t], space.parent(level, t), level)
        hop = crossing.hops[:, t] @ hop_price
        fill[:, t] = p.words.get(Tally.ENTERED, 0.0) + p.hops.get(Tally.CROSSED, 0.0) * hop
        serve[:, t] = p.words.get(Tally.SERVED, 0.0)
        if space.tensors[t].is_output:
            fresh = p.words.get(Tally.FRESH_CHILD, 0.0) * crossing.sig + p.words.get(Tally.FRESH_PARENT, 0.0) * state.sig_parent
            fresh = fresh + p.hops.get(Tally.FRESH_CROSSED, 0.0) * (crossing.hop_sig @ hop_price)
            credit -= space.terms[t].whole * fresh
    return Coefficients(fill, serve, credit)
