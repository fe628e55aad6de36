"""Seconds of a fused attention kernel: scores, softmax and weighted values in one call, without ever storing the scores.

One new token a sequence (or few): blocks read a part of a sequence's keys and values each.

    tiles     sequences · key heads · ceil(rows / 64);  rows: queries · query heads that share the keys (packed), else 1 a tile;
              of Triton's kernel 16 (BLOCK_H of vLLM's triton_decode_attention.py), so that 128 heads read a key eight times;
              of TensorRT-LLM's latent attention on Blackwell each query has tiles of its own, which find its keys on the chip again
    parts s   1 where the tiles fill 0.8 of the SMs; else the least up to 32 that fills waves 0.85 as well as the best, or as many as the
              kernel always takes (Triton's: 4 of latent attention, 16 of others)
    loads     ceil(waves) · 128 ceil(ceil(keys / 128) / s) · max(step, bytes of a key and a value / load, 2 rows of a tile (head + value) /
              peak of one SM: what no kernel outruns, facts of a faster GPU among them),   waves = max(1, tiles s / SMs): of blocks that
              walk as many keys the last ones run alone. Where a kernel has a `rate`, a tile of more than 16 rows multiplies 64, at that
              share of the peak (FlashInfer's FA2DetermineCtaTileQ: blocks of 16 rows where that is enough, else of 64)
    time      start + waves · block + (loads^2.5 + memory^2.5)^(1 / 2.5) + [s > 1] split + sequences · sequence + query traffic

Many new tokens: blocks of `rows` queries walk the keys that those may see, 128 at a time. Of a sequence whose new tokens several ranks
share out each has a piece of either end, so that all walk as many keys; the first rank, which has the last piece, has the longest walk.
Of keys that are dealt out one by one every query sees a part here.

    time      start + tokens · token + elements · element + (blocks^1.5 + memory^1.5)^(1 / 1.5)
    blocks    max(longest, all / SMs + tail · longest) of  keys seen / 128 steps · 4 rows 128 head / (rate · peak of one SM) + block

Source of the form: split and packing rules of FlashAttention 2 and 3 (Dao 2023, Shah 2024; their set_params_splitkv and
num_splits_heuristic), least squares on 21,000 kernels of nine GPUs (NVIDIA aiconfigurator's measurements). FlashAttention 2 packs query
heads only where one new token sees all keys, copies queries where neither the sequences nor the key heads are one, and does not split
other calls; FlashAttention 3 schedules up to 992 sequences beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from rackmodel.arrays import Array, Bools
from rackmodel.model.attention import DecodeAttention, PrefillAttention

FEW = 8  # new tokens of a sequence up to which a library runs its kernel for one
KEYS = 128  # keys that a block takes at once
MOST_PARTS = 32
SMALL_TILE, LARGE_TILE = 16, 64  # rows of FlashInfer's blocks
EVEN = 1e-9  # of waves that come out even
FILLED, WELL = 0.8, 0.85  # SMs that need no splitting; how near a number of parts must come to the best
SCHEDULED = 992  # sequences that FlashAttention 3 can schedule
DECODE_SMOOTH, PREFILL_SMOOTH = 2.5, 1.5  # how work and memory overlap: the power of their sum
SHARP = 16  # how suddenly a cache stops to help once a loop outgrows it: what it walks over in turn is gone before it comes again
FLOP = 4.0  # a score and a weighted value: two multiply-accumulates


@dataclass(frozen=True, kw_only=True)
class AttentionDevice:
    """What a call runs on. peak: FLOP/s of the whole GPU at the kernel's width · blocks: SMs · bandwidth: bytes/s of its memory ·
    element: bytes of an element of keys and values · looped: whether one call runs over and over, as benchmarks do."""

    peak: float
    blocks: int
    bandwidth: float
    element: float
    looped: bool = False


@dataclass(frozen=True, kw_only=True)
class AttentionSizes:
    """Calls, arrays [n]. sequences · kv_heads: key heads · group: query heads that share one · queries: new tokens of a sequence that are
    here · ranks: over which all of them are shared out · context: keys of a sequence that are here, new ones among them · parts: over which
    all of them are dealt out one by one · keys: of those here that a query sees, in the mean · head, value: elements of a key and of a
    value · latent: 1 where values are a part of the keys (latent attention), which are read once · sliding: 1 where the kernel is told of a
    window, also where that hides nothing."""

    sequences: Array
    kv_heads: Array
    group: Array
    queries: Array
    context: Array
    keys: Array
    head: Array
    value: Array
    latent: Array
    sliding: Array
    ranks: Array
    parts: Array

    def only(self, which: Bools) -> AttentionSizes:
        """Some of the calls."""
        return AttentionSizes(**{one.name: getattr(self, one.name)[which] for one in fields(self)})

    @property
    def causal(self) -> Array:
        """[n] keys that a query sees in the mean where each sees those up to its own."""
        return self.context - (self.new - 1) / (2 * self.parts)

    @property
    def new(self) -> Array:
        """[n] new tokens of a sequence, on all ranks that share them out."""
        return self.queries * self.ranks

    @property
    def windowed(self) -> Bools:
        """[n] whether a window hides keys."""
        return self.keys < self.causal - 1

    @property
    def read(self) -> Array:
        """[n] elements of a key and its value."""
        return self.head + np.where(self.latent > 0, 0.0, self.value)


def sizes_of(**sizes: Any) -> AttentionSizes:
    """Calls from numbers and arrays, broadcast to [n]. latent and sliding are 0, ranks and parts 1 and value is as head where they are
    absent."""
    said = {"latent": 0.0, "sliding": 0.0, "ranks": 1.0, "parts": 1.0, "value": sizes["head"], **sizes}
    arrays = np.broadcast_arrays(*(np.asarray(value, dtype=np.float64) for value in said.values()))
    return AttentionSizes(**{name: np.atleast_1d(array) for name, array in zip(said, arrays, strict=True)})


def by_head(table: dict[str, float], head: Array) -> Array:
    """[n] of a table by head size."""
    known = np.array(sorted((float(size), value) for size, value in table.items()))
    return np.asarray(np.interp(head, known[:, 0], known[:, 1]))


# -- few new tokens ---------------------------------------------------------------------------------------------------------------


def parts_of(tiles: Array, steps: Array, blocks: int, always: int | None = None) -> Array:
    """[n] parts into which the keys of each tile are cut, so that all SMs are busy. tiles: [n] · steps: [n] of KEYS keys in each · always:
    the parts of a kernel that does not count SMs."""
    found = np.ones(tiles.shape)
    idle = (tiles < FILLED * blocks) & (steps > 1)
    if always is not None:
        return np.where(idle, np.minimum(always, steps), found)
    parts = np.arange(1, MOST_PARTS + 1, dtype=np.float64)
    waves = tiles[idle, None] * parts / blocks
    filled = np.where(parts <= steps[idle, None], waves / np.ceil(waves), 0.0)
    found[idle] = np.argmax(filled >= WELL * filled.max(axis=1, keepdims=True), axis=1) + 1.0
    return found


def decode_seconds(facts: DecodeAttention, device: AttentionDevice, sizes: AttentionSizes) -> tuple[Array, Array]:
    """([n] seconds of the calls, [n] of them that memory alone would take)."""
    heads, windowed = sizes.group * sizes.kv_heads, sizes.windowed
    shared = sizes.group > 1
    packed = np.full(shared.shape, True) if facts.groups == "packed" else shared & ~windowed & (sizes.sliding == 0) & (sizes.queries == 1)
    if facts.groups == "apart":
        packed = np.full(shared.shape, False)
    apart = sizes.queries if facts.tokens == "apart" else np.ones(shared.shape)
    rows = sizes.queries / apart * np.where(packed, sizes.group, 1.0)
    each = np.ceil(rows / facts.rows)
    tiles = sizes.sequences * sizes.kv_heads * apart * np.where(packed, 1.0, sizes.group) * each
    steps = np.ceil(sizes.keys / KEYS)
    parts = np.where(packed, parts_of(tiles, steps, device.blocks, facts.parts), 1.0)
    waves = np.maximum(1.0, tiles * parts / device.blocks)
    key = np.maximum(by_head(facts.step_s, sizes.head), sizes.read * device.element / facts.load_bytes_per_s)
    multiplied, share = _multiplied(facts, rows / each)
    key = np.maximum(key, FLOP / 2 * multiplied * (sizes.head + sizes.value) * device.blocks / (share * device.peak))
    loads = np.ceil(waves - EVEN) * KEYS * np.ceil(steps / parts) * key
    many = sizes.sequences > SCHEDULED
    block = by_head(facts.block_s, sizes.head) * np.where(many, facts.unscheduled, 1.0)
    cache = sizes.sequences * sizes.kv_heads * sizes.keys * sizes.read * device.element
    memory = cache / _bandwidth(facts, device, cache)
    rest = facts.start_s + facts.window_s * windowed + facts.split_s * (parts > 1)
    rest = rest + facts.sequence_s * np.where(many, 0.0, sizes.sequences)
    if facts.groups == "unwindowed":
        rest = rest + facts.group_s * packed + facts.copy_s * (packed & (sizes.kv_heads > 1) & (sizes.sequences > 1))
    queries = 2.0 * sizes.sequences * sizes.queries * heads * (sizes.head + sizes.value)
    return rest + waves * block + _together(loads, memory, DECODE_SMOOTH) + facts.query * queries / device.bandwidth, memory


def _multiplied(facts: DecodeAttention, rows: Array) -> tuple[Array, Array | float]:
    """[n] rows that a block with so many multiplies, and the share of the peak at which it does."""
    if facts.rate is None:
        return rows, 1.0
    large = rows > SMALL_TILE
    return np.where(large, np.maximum(rows, LARGE_TILE), rows), np.where(large, facts.rate, 1.0)


def _bandwidth(facts: DecodeAttention, device: AttentionDevice, cache: Array) -> Array:
    """[n] bytes a second at which keys and values arrive: in a loop, those that a cache on the chip still holds come from there."""
    own = np.full(cache.shape, facts.memory * device.bandwidth)
    if not device.looped or facts.reuse_bytes_per_s is None:
        return own
    found = 1.0 / (1.0 + (cache / facts.reuse_bytes) ** SHARP)
    return np.asarray(1.0 / (found / facts.reuse_bytes_per_s + (1.0 - found) / own))


# -- many new tokens --------------------------------------------------------------------------------------------------------------


def prefill_seconds(facts: PrefillAttention, device: AttentionDevice, sizes: AttentionSizes) -> tuple[Array, Array]:
    """([n] seconds of the calls, [n] of them that memory alone would take)."""
    work = _blocks(facts, device, sizes)
    memory = _moved(sizes, device) / (facts.memory * device.bandwidth)
    rest = facts.start_s + facts.window_s * sizes.windowed + _cached(facts, sizes)
    return rest + _together(np.maximum(work.last, work.all + facts.tail * work.last), memory, PREFILL_SMOOTH), memory


def mixed_seconds(facts: PrefillAttention, device: AttentionDevice, chunks: AttentionSizes, decodes: AttentionSizes) -> Array:
    """[n] seconds of calls that hold chunks of prompts and sequences with one new token each.

    The kernel for many tokens takes them all: a sequence with one token costs blocks of full height that walk its whole cache, which no
    splitting shortens, and query heads are packed only where that kernel packs them. So a mixed call lasts longer than its two parts."""
    one, other = _blocks(facts, device, chunks), _blocks(facts, device, decodes)
    last = np.maximum(one.last, other.last)
    work = np.maximum(last, one.all + other.all + facts.tail * last)
    memory = (_moved(chunks, device) + _moved(decodes, device)) / (facts.memory * device.bandwidth)
    rest = facts.start_s + facts.window_s * (chunks.windowed | decodes.windowed) + _cached(facts, chunks) + _cached(facts, decodes)
    return rest + _together(work, memory, PREFILL_SMOOTH)


@dataclass(frozen=True)
class _Work:
    """[n] seconds: of all blocks over all SMs, and of the longest."""

    all: Array
    last: Array


def _blocks(facts: PrefillAttention, device: AttentionDevice, sizes: AttentionSizes) -> _Work:
    packed = facts.groups == "packed"
    tiles, walked, longest = _walks(facts.rows, sizes, sizes.group if packed else np.ones_like(sizes.group))
    rate = by_head(facts.rate, (sizes.head + sizes.value) / 2) * device.peak / device.blocks
    step = FLOP * facts.rows * KEYS * (sizes.head + sizes.value) / 2 / rate
    block = by_head(facts.block_s, sizes.head)
    calls = sizes.sequences * sizes.kv_heads * (1.0 if packed else sizes.group)
    return _Work(calls * (walked * step + tiles * block) / device.blocks, longest * step + block)


def _moved(sizes: AttentionSizes, device: AttentionDevice) -> Array:
    """[n] bytes: queries and results, and keys and values once."""
    moved = 2.0 * sizes.sequences * sizes.queries * sizes.group * sizes.kv_heads * (sizes.head + sizes.value)
    return np.asarray(moved + sizes.sequences * sizes.context * sizes.kv_heads * sizes.read * device.element)


def _cached(facts: PrefillAttention, sizes: AttentionSizes) -> Array:
    """[n] seconds of putting new keys and values into the cache."""
    kept = sizes.new / sizes.parts  # whoever made them
    return sizes.sequences * kept * (facts.token_s + facts.element_s * sizes.kv_heads * sizes.read)


def _walks(rows: int, sizes: AttentionSizes, group: Array) -> tuple[Array, Array, Array]:
    """Of the queries of one key head: [n] blocks, [n] steps over KEYS keys of all of them, [n] of the longest."""
    share = rows / np.minimum(group, rows) / KEYS / sizes.parts  # steps by which a block sees more than the one before it
    before = np.maximum(sizes.context * sizes.parts - sizes.new, 0.0)
    bidirectional = sizes.keys > sizes.causal + 0.5
    most = np.where(sizes.windowed, _window(sizes, before) / KEYS + 1, np.where(bidirectional, sizes.context / KEYS, np.inf))
    found = []
    for queries, seen in _pieces(sizes, before):
        tiles = np.ceil(queries * group / rows)
        begun = np.where(bidirectional, most, seen / KEYS / sizes.parts + np.maximum(1.0 - share, 0.0) / 2)
        growing = np.clip(np.floor((most - begun) / share), 0.0, tiles)
        capped = tiles - growing
        walked = begun * growing + share * growing * (growing + 1) / 2 + capped * np.where(capped > 0, most, 0.0)
        found.append((tiles, walked, np.minimum(most, begun + tiles * share)))
    first, last = found[0], found[-1]
    return (first[0] + last[0], first[1] + last[1], last[2]) if len(found) > 1 else last


def _pieces(sizes: AttentionSizes, before: Array) -> list[tuple[Array, Array]]:
    """([n] queries, [n] keys before the first of them) of what is here of a sequence: all, or the first and the last piece; under a window,
    which most ranks' pieces fill, two in the middle."""
    if np.all(sizes.ranks == 1):
        return [(sizes.queries, before)]
    apart = sizes.ranks > 1
    late = np.where(apart, sizes.queries / 2, sizes.queries)
    early = sizes.queries - late
    middle = before + sizes.new / 2
    starts = np.where(sizes.windowed, middle - early, before), np.where(sizes.windowed, middle, before + sizes.new - late)
    return [(early, starts[0]), (late, np.where(apart, starts[1], before))]


def _window(sizes: AttentionSizes, before: Array) -> Array:
    """[n] width of the window under which queries see so many keys in the mean, those before them among them: the first ones see them all,
    each one more, those beyond its width as many as it has."""
    n, seen = sizes.new / sizes.parts, before / sizes.parts
    ramp = n + 0.5 - np.sqrt(np.maximum((n + 0.5) ** 2 - 2.0 * (sizes.keys - seen) * n, 0.0))
    return np.where(seen >= sizes.keys, sizes.keys, seen + ramp)


def _together(work: Array, memory: Array, power: float) -> Array:
    return np.asarray((work**power + memory**power) ** (1 / power), dtype=np.float64)


# -- either -----------------------------------------------------------------------------------------------------------------------


def few_tokens(sizes: AttentionSizes) -> Bools:
    """[n] whether a library takes its kernel for few new tokens."""
    return np.asarray((sizes.queries <= FEW) & ((sizes.queries == 1) | (sizes.context > sizes.queries)))
