"""How tokens fall on experts where a router keeps to some groups of them (DeepSeek-V3): of a benchmark whose scores know no groups.

    group's score   of its experts the best two; the `kept` best groups are chosen from
    token           the `chosen` best experts of these; of equal scores the first

A benchmark gives the experts that it wants one and the same high score and all others one low score. Where more groups than `kept` hold
wanted experts, those of the others are lost, and the first experts of the first group that is kept come in their place: ranks that hold
these get many times what the benchmark wanted. Source of the rule: DeepSeek-V3 (arXiv 2412.19437, 2.1.2; config.json: n_group 8,
topk_group 4); of the scores NVIDIA aiconfigurator, collector/helper.py (balanced_logits, power_law_logits_v3).

    stand-in    a rank gets the tokens that want any of its experts, and makes all that they want; its first expert the others'

So are calls of SGLang measured, whose kernels know no experts but those of the rank: the same, collector/sglang/collect_moe.py (topk_ids
of other ranks, -1, are raised to 0, "the zero weight ensures no contribution").
"""

from __future__ import annotations

from math import ceil

import numpy as np
from numpy.typing import NDArray

from rackmodel.arrays import Array

Wanted = NDArray[np.int64]
"""[tokens, chosen] experts that each token wants, all different."""

BEST_OF_A_GROUP = 2


def in_turn(tokens: int, experts: int, chosen: int) -> Wanted:
    """Experts that a balanced benchmark wants."""
    apart = ceil(experts / chosen)
    token, place = np.arange(tokens)[:, None], np.arange(chosen)[None]
    step = 1.0 if tokens >= apart else apart / tokens
    return np.asarray((np.floor(token * step) + place * apart) % experts, dtype=np.int64)


def dealt_out(counts: Array, chosen: int) -> Wanted:
    """The same where experts are wanted so many times [experts] each, the most wanted dealt out first."""
    order = np.argsort(-counts, kind="stable")
    every = np.repeat(order, counts[order].astype(np.int64))
    return np.asarray(every.reshape(chosen, -1).T)


def limited(wanted: Wanted, experts: int, groups: int, kept: int) -> Array:
    """[experts] tokens that come to each expert. groups: equal parts of the experts, of which a token's are chosen from `kept`."""
    tokens, chosen = wanted.shape
    size, every = experts // groups, np.arange(tokens)[:, None]
    of_group = np.zeros((tokens, groups), dtype=np.int64)
    np.add.at(of_group, (every, wanted // size), 1)
    best = np.argsort(-np.minimum(of_group, BEST_OF_A_GROUP), axis=1, kind="stable")[:, :kept]
    open_to = np.zeros((tokens, groups), dtype=bool)
    np.put_along_axis(open_to, best, True, axis=1)
    gets = np.take_along_axis(open_to, wanted // size, axis=1)
    counts = np.bincount(wanted[gets], minlength=experts).astype(np.float64)
    first = open_to.argmax(axis=1)
    taken = np.zeros((tokens, size), dtype=bool)
    there = wanted // size == first[:, None]
    taken[np.nonzero(there)[0], (wanted % size)[there]] = True
    left = chosen - gets.sum(axis=1)
    fills = ~taken & (np.cumsum(~taken, axis=1) <= left[:, None])
    token, place = np.nonzero(fills)
    return counts + np.bincount(first[token] * size + place, minlength=experts)


def stand_in(wanted: Wanted, held: int) -> tuple[Array, int]:
    """([held] tokens of each expert of the first rank, tokens that come to it)."""
    own = wanted[(wanted < held).any(axis=1)]
    return np.bincount(np.where(own < held, own, 0).ravel(), minlength=held).astype(np.float64), len(own)
