"""How tokens fall on experts: how many experts the busiest rank must load, and how many blocks of rows their tokens make.

    balanced    expert by expert in turn: floor or ceil(tokens · chosen / experts) each
    power law   popularities are drawn from p(x) ~ x^-skew, 1 <= x <= 0.8 tokens (0.01 <= x <= 2 where there are fewer choices than
                experts), scaled to tokens · chosen, rounded, no expert above the number of tokens; ranks hold neighbours, the one with
                the most tokens counts; the mean of 16 draws of one fixed seed

Source of both: the router of NVIDIA aiconfigurator's benchmarks (collector/helper.py), whose rows are means of five draws.
Powers of two of tokens are drawn, what lies between is interpolated on logarithms.

    limited     a router that keeps to some groups of experts, of either (limited_routing)
    stand-in    a rank's first expert makes what its tokens chose of other ranks (limited_routing.stand_in)
    trained     experts that are hit: share · E (1 - (1 - k / E)^T), of T tokens that choose k of E experts each

A benchmark's draws hit 0.72 to 1.1 of what even choices would, by leaps from one power of two of tokens to the next. Trained routers hit
all of it with one token, 0.87 through the middle of the range and 0.94 where 128 sequences decode (Qwen3-30B-A3B, E = 128, k = 8, 110,640
calls of its gates: casys-kaist/LLMServingSim 0d3de681, docs/simulator/moe-expert-routing); ASSUMED: of other models by tokens of an
expert, k T / E, and all of it from 32 on. How tokens are spread over ranks stays the power law's.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np

from rackmodel.arrays import Array
from rackmodel.cost.inside.limited_routing import Wanted, dealt_out, in_turn, limited, stand_in

ROWS = (16, 32, 64, 128)
"""Rows of a block that kernels choose from."""

DRAWS = 16
FEW_DRAWS = 4
"""Where each token is followed by itself."""
MOST_DOUBLINGS = 24
MIDDLE = 0.87
FEW_TOKENS = (0.0, 2.0), (1.0, MIDDLE)
"""Doublings of tokens → share of the experts that even choices would hit."""
TOKENS_OF_AN_EXPERT = (2.0, 3.0, 5.0), (MIDDLE, 0.94, 1.0)
"""Doublings of tokens of an expert → the same."""


@dataclass(frozen=True, kw_only=True)
class Routing:
    """experts: of the layer · chosen: by a token · ranks: that share the experts · skew: exponent of a power law, 0 = balanced · trained:
    whether as many experts are hit as trained routers hit; else as a benchmark's draws do · groups, kept: equal parts of the experts, of
    which a token's are chosen from the best few; 0 = from all · stand_in: whether a rank makes all choices of the tokens that come to it,
    those of other ranks by its first expert."""

    experts: int
    chosen: float
    ranks: int = 1
    skew: float = 0.0
    trained: bool = False
    groups: int = 0
    kept: int = 0
    stand_in: bool = False


@dataclass(frozen=True, kw_only=True)
class ExpertLoad:
    """What falls on the busiest rank. hit: experts with a token [n] · pairs: of a token and an expert [n] · blocks: of ROWS [n, rows] ·
    held: experts that it holds [n] · tokens: in the call, all or those that come to it [n]."""

    hit: Array
    pairs: Array
    blocks: Array
    held: Array
    tokens: Array

    def at(self, rows: Any) -> ExpertLoad:
        """That of some of the n."""
        return ExpertLoad(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


def load_of(tokens: Any, routing: Routing) -> ExpertLoad:
    """Load of [n] numbers of tokens."""
    count = np.asarray(tokens, dtype=np.float64)
    if not (routing.skew or routing.groups or (routing.stand_in and routing.ranks > 1)):
        return _balanced(count, routing)
    at = np.log2(np.maximum(count, 1.0))
    doublings = np.arange(np.floor(at.min()), min(np.ceil(at.max()), MOST_DOUBLINGS) + 1)
    drawn = np.stack([_drawn(round(2.0**d), routing) for d in doublings])
    found = np.stack([2.0 ** np.interp(at, doublings, np.log2(np.maximum(column, 1e-9))) for column in drawn.T], axis=-1)
    held = np.full_like(count, routing.experts / routing.ranks)
    load = ExpertLoad(hit=found[..., 0], pairs=found[..., 1], blocks=found[..., 3:], held=held, tokens=count * found[..., 2])
    return _trained(load, count, routing) if routing.trained else load


def _trained(load: ExpertLoad, tokens: Array, routing: Routing) -> ExpertLoad:
    """The same with as many experts as trained routers hit; the busiest rank has of them what it has of the draws'."""
    whole = load_of(tokens, replace(routing, ranks=1, trained=False)).hit
    times = trained_hits(tokens, routing) / np.maximum(whole, 1e-9)
    hit = np.minimum(load.hit * times, np.minimum(load.pairs, routing.experts / routing.ranks))
    return replace(load, hit=hit, blocks=np.maximum(load.blocks * times[..., None], hit[..., None]))


def trained_hits(tokens: Array, routing: Routing) -> Array:
    """[n] experts of all ranks that are hit by tokens [n] of a trained router."""
    even = routing.experts * (1.0 - (1.0 - routing.chosen / routing.experts) ** tokens)
    few = np.interp(np.log2(np.maximum(tokens, 1.0)), *FEW_TOKENS)
    many = np.interp(np.log2(np.maximum(tokens * routing.chosen / routing.experts, 1e-9)), *TOKENS_OF_AN_EXPERT)
    return np.asarray(even * np.maximum(few, many))


def _balanced(tokens: Array, routing: Routing) -> ExpertLoad:
    local = routing.experts / routing.ranks
    each = tokens * routing.chosen / routing.experts
    pairs = each * local
    hit = np.where(each < 1, np.minimum(local, np.ceil(pairs - 1e-9)), local)
    few, more = np.floor(each), each - np.floor(each)
    rows = np.array(ROWS, dtype=np.float64)
    blocks = (1 - more)[..., None] * np.ceil(few[..., None] / rows) + more[..., None] * np.ceil((few[..., None] + 1) / rows)
    blocks = np.where(each[..., None] < 1, hit[..., None], local * blocks)
    return ExpertLoad(hit=hit, pairs=pairs, blocks=blocks, held=np.full_like(tokens, local), tokens=tokens)


@lru_cache(maxsize=4096)
def _drawn(tokens: int, routing: Routing) -> Array:
    """(hit, pairs, share of tokens that came, blocks...) of the busiest rank, means of the draws."""
    came = np.ones(1)
    if routing.stand_in:
        busiest, came = _stood_in(tokens, routing)
    elif routing.groups:
        busiest = _limited(tokens, routing)
    else:
        ranks = _counts(tokens, routing).reshape(DRAWS, routing.ranks, -1)
        busiest = ranks[np.arange(DRAWS), ranks.sum(axis=2).argmax(axis=1)]
    blocks = [np.ceil(busiest / rows).sum(axis=1) for rows in ROWS]
    return np.array([np.mean(x) for x in ((busiest > 0).sum(axis=1), busiest.sum(axis=1), came, *blocks)])


def _limited(tokens: int, routing: Routing) -> Array:
    """[draws, experts of a rank] tokens of each expert of the rank that a benchmark measures."""
    sizes = routing.experts, routing.groups, routing.kept
    return np.stack([limited(wanted, *sizes)[: routing.experts // routing.ranks] for wanted in _wanted(tokens, routing)])


def _stood_in(tokens: int, routing: Routing) -> tuple[Array, Array]:
    """(the same where its first expert stands in for those of other ranks, share of the tokens that come to it [draws])."""
    found = [stand_in(wanted, routing.experts // routing.ranks) for wanted in _wanted(tokens, routing)]
    return np.stack([counts for counts, _ in found]), np.array([came for _, came in found]) / tokens


def _wanted(tokens: int, routing: Routing) -> list[Wanted]:
    """Experts that each token wants, of each draw; the first rank, which a benchmark measures, is made the busiest."""
    chosen = round(routing.chosen)
    if not routing.skew:
        return [in_turn(tokens, routing.experts, chosen)]
    ranks = _counts(tokens, routing)[:FEW_DRAWS].reshape(FEW_DRAWS, routing.ranks, -1)
    most = ranks.sum(axis=2).argmax(axis=1)
    for own, busiest in zip(ranks, most, strict=True):
        own[[0, busiest]] = own[[busiest, 0]]
    return [dealt_out(own.ravel(), chosen) for own in ranks]


def _counts(tokens: int, routing: Routing) -> Array:
    """[draws, experts] tokens of each expert."""
    rng = np.random.default_rng([tokens, routing.experts, routing.ranks, round(routing.chosen)])
    choices = round(tokens * routing.chosen)
    least, most = (1.0, max(0.8 * tokens, 1.001)) if choices > routing.experts else (0.01, 2.0)
    power = 1.0 - routing.skew if routing.skew != 1 else -1e-6
    drawn = ((most**power - least**power) * rng.random((DRAWS, routing.experts)) + least**power) ** (1 / power)
    counts = np.minimum(np.round(drawn / drawn.sum(axis=1, keepdims=True) * choices), tokens)
    for own, ties in zip(counts, rng.random(counts.shape), strict=True):
        _settle(own, ties, choices, tokens)
    return np.asarray(counts)


def _settle(counts: Array, ties: Array, choices: int, most: int) -> None:
    """Add to the least chosen experts, or take from them, what rounding lost or won; in place."""
    missing = int(choices - counts.sum())
    while missing:
        order = np.lexsort((ties, counts))
        able = order[counts[order] < most] if missing > 0 else order[counts[order] > 0]
        changed = able[: abs(missing)]
        counts[changed] += np.sign(missing)
        missing -= int(np.sign(missing)) * len(changed)
