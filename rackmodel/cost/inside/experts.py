"""Seconds of the products of a layer's experts, as one call of a library makes them.

    blocks    sum over the experts that are hit of ceil(their tokens / tm), times ceil(n / tn), of the tiles below
    one block k · max( 2 tm tn / (rate · peak of one SM),  (min(tm, tokens of an expert) · activation + tn · weight) bytes / load,  step )
    compute   min over tiles of  max(1, blocks / SMs) · one block
              of a kernel that nobody tuned 16 x 32 where no more tokens come than experts are held, 64 x 64 where more do
              (get_default_config of vLLM's and SGLang's fused_moe)
    memory    hit · n · k · weight / own + moved(pairs · k · activation) + moved(rows · n · 2 B)
    moved     bytes · (far + (1 - far) / cached) / (moving · bandwidth), far = 1 / (1 + (cache capacity / bytes)^4): what one kernel of a
              call writes and the next one reads, the cache gives where it holds all of it
    own       memory · bandwidth; a loop over one call finds 1 / (1 + (weights of the call / reuse)^8) of them in a cache, at its rate
    product   (compute^2.5 + memory^2.5)^(1 / 2.5)
    call      start + [ranks > 1] spread + product up (n = inter, or twice that with a gate, k = hidden) + product down
              + moved(rows · (1 or 2) inter · 2 B) + moved(rows · inter · 2 B) + moved(rows · hidden · 2 B) + 2 moved(tokens · hidden · 2 B)
              quantised apart:  + moved(x · 2 B) + moved(x · activation) for x = tokens · hidden and x = rows · inter
    one of its products alone (a library that is called for each): start + the product

hit, pairs and blocks: of the busiest rank (routing). rows: the pairs of experts held here, or of all ranks, as the kernel moves them.
Where a call lays out `laid_out` rows for each expert at least, pairs and rows are all of these, ceil((pairs of all + held (r - 1)) / r) r,
each fetched and written, and the activation and a kernel that quantises after it go through them, too.
Weights of 4 or 8 bit beside wider activations are multiplied at the rate of the wider. Source of the form: least squares on 16,000
calls of nine GPUs (NVIDIA aiconfigurator's measurements, moe_perf), the numbers by `rackmodel calibrate`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, fields, replace
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from rackmodel.arrays import Array, Bools
from rackmodel.cost.inside.gpu import Gpu
from rackmodel.cost.inside.products import looped_rate, together
from rackmodel.cost.inside.routing import ROWS, ExpertLoad
from rackmodel.cost.inside.vectors import beyond
from rackmodel.model.grouped import Grouped
from rackmodel.model.resources import width

COLUMNS = (32, 64, 128, 256)
MOST_IN_A_TILE = 128 * 256
FEW_TOKENS, MORE_TOKENS = (16, 32), (64, 64)
"""Tiles of kernels that nobody tuned: where no more tokens come than experts are held, and where more do."""

RESULT_BYTES = 2.0
ALIGNED = 16.0  # bytes, of Triton's kernels elements


@dataclass(frozen=True, kw_only=True)
class ExpertDevice:
    """peak: FLOP/s of the whole GPU · blocks: SMs · bandwidth: bytes/s of its memory · weight, activation: bytes of an element ·
    cache: bytes that the level below the memory holds, 0 = there is none · looped: whether one call runs over and over."""

    peak: float
    blocks: int
    bandwidth: float
    weight: float
    activation: float
    cache: float = 0.0
    looped: bool = False


@dataclass(frozen=True, kw_only=True)
class ExpertLayer:
    """Calls of one layer, all [n]. tokens: that come with a call · hidden, inter: of the part of an expert that is held here · gated:
    whether up has a gate beside it · every: pairs of a token and an expert, of all ranks · spread: whether there are other ranks · up,
    down: whether that product is in the call; None = in all."""

    tokens: Array
    hidden: Array
    inter: Array
    gated: Array
    every: Array
    spread: Array
    up: Array | None = None
    down: Array | None = None

    def at(self, which: Any) -> ExpertLayer:
        """Some of the calls."""
        every: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: value[which] for name, value in every.items() if value is not None})

    @property
    def has(self) -> tuple[Array | float, Array | float]:
        """Whether up and down are in the calls."""
        return 1.0 if self.up is None else self.up, 1.0 if self.down is None else self.down


def expert_device(facts: Grouped, gpu: Gpu, *, looped: bool = False) -> ExpertDevice:
    """What a kernel runs on. Raises InputError where the part has no such rate."""
    weight, activation = width(facts.weights), width(facts.activations)
    return ExpertDevice(
        peak=gpu.compute.matrix(max(weight, activation)).rate_flop_per_s * gpu.units,
        blocks=gpu.blocks,
        bandwidth=gpu.bandwidth,
        weight=weight / 8,
        activation=activation / 8,
        cache=gpu.cache,
        looped=looped,
    )


def call_seconds(facts: Grouped, device: ExpertDevice, layer: ExpertLayer, load: ExpertLoad) -> Array:
    """[n] seconds of whole calls."""
    laid = laid_rows(facts, layer.every, load.held)
    rows = laid if laid is not None else layer.every * load.tokens / layer.tokens if facts.rows == "all" else load.pairs
    up = layer.inter * (1 + layer.gated)
    sizes = tuple(zip(layer.has, (up, layer.hidden), (layer.hidden, layer.inter), strict=True))
    weights = load.hit * device.weight * sum(there * n * k for there, n, k in sizes)
    own = looped_rate(facts, device.bandwidth, weights) if device.looped else facts.memory * device.bandwidth
    products = sum(
        there * together(compute_part(facts, device, load, n, k, laid), memory_part(facts, device, load, rows, n, k, own))
        for there, n, k in sizes
    )
    whole = layer.has[0] * layer.has[1]
    tokens = np.minimum(load.tokens, rows) * layer.hidden
    tensors = [RESULT_BYTES * x for x in (rows * up, rows * layer.inter, rows * layer.hidden, tokens, tokens)]
    tensors += narrowed(facts, device, 0.0 if laid is not None else tokens, rows * layer.inter)
    between = sum(moving_seconds(facts, device, tensor) for tensor in tensors)
    start = facts.start_s + facts.spread_s * layer.spread
    return np.asarray(start + products + whole * between, dtype=np.float64)


def narrowed(facts: Grouped, device: ExpertDevice, came: Any, activated: Any) -> list[Any]:
    """Bytes that kernels read and write which quantise between products, a tensor each. came, activated: elements."""
    if facts.quantised == "within" and not facts.laid_out:
        return []
    return [elements * each for elements in (came, activated) for each in (RESULT_BYTES, device.activation)]


def moving_seconds(facts: Grouped, device: ExpertDevice, tensor: Any) -> Array:
    """[n] seconds in which a kernel reads or writes a tensor of so many bytes that another one of the call writes or reads."""
    far = beyond(device.cache, tensor)
    return np.asarray(tensor * (far + (1.0 - far) / facts.cached) / (facts.moving * device.bandwidth))


def laid_rows(facts: Grouped, every: Any, held: Any) -> Array | None:
    """[n] rows that a call lays out for the worst case, whatever came; None where it lays out what came. every: pairs of a token and an
    expert, of all ranks · held: experts of this one. Source: compute_aligned_M (vllm-project/vllm, fused_moe/deep_gemm_utils.py)."""
    if not facts.laid_out:
        return None
    return np.asarray(np.ceil((every + held * (facts.laid_out - 1.0)) / facts.laid_out) * facts.laid_out)


def compute_part(facts: Grouped, device: ExpertDevice, load: ExpertLoad, n: Any, k: Any, laid: Array | None = None) -> Array:
    """[n] seconds of the blocks of one product of all experts that are hit. laid: rows of the blocks, where they are laid out."""
    fetch = facts.load_bytes_per_s * _aligned(facts, device, k)
    each = load.pairs / np.maximum(load.hit, 1e-9) if laid is None else facts.laid_out

    def of_tile(tm: int, tn: int) -> Array:
        blocks = load.blocks[..., ROWS.index(tm)] if laid is None else laid / tm
        waves = np.maximum(1.0, blocks * np.ceil(n / tn) / device.blocks)
        work = 2.0 * tm * tn / (facts.rate * device.peak / device.blocks)
        fetched = (np.minimum(tm, each) * device.activation + tn * device.weight) / fetch
        return np.asarray(waves * np.maximum(np.maximum(work, fetched), facts.step_s) * k)

    if not facts.tuned:
        return np.where(load.tokens <= load.held, of_tile(*FEW_TOKENS), of_tile(*MORE_TOKENS))
    tiles = (tile for tile in itertools.product(ROWS, COLUMNS) if prod(tile) <= MOST_IN_A_TILE)
    return np.asarray(reduce(np.minimum, (of_tile(*tile) for tile in tiles)))


def memory_part(facts: Grouped, device: ExpertDevice, load: ExpertLoad, rows: Any, n: Any, k: Any, own: Any = None) -> Array:
    """[n] seconds of what the memory moves for one product: weights that are hit, rows in and rows out. own: bytes/s at which weights
    come, None = from the memory."""
    weights = load.hit * n * k * device.weight / _aligned(facts, device, k) / (facts.memory * device.bandwidth if own is None else own)
    taken = rows if facts.laid_out else load.pairs
    moved = sum(moving_seconds(facts, device, tensor) for tensor in (taken * k * device.activation, RESULT_BYTES * rows * n))
    return np.asarray(weights + moved, dtype=np.float64)


def _aligned(facts: Grouped, device: ExpertDevice, k: Any) -> Array:
    return np.where(is_aligned(facts, device, k), 1.0, facts.unaligned)


def is_aligned(facts: Grouped, device: ExpertDevice, k: Any) -> Bools:
    """[n] whether rows of so many weights begin where a kernel loads them whole. Source of elements: Triton knows of a stride that 16
    divides it, or nothing (triton-lang/triton, `tt.divisibility`)."""
    return np.asarray(np.asarray(k) * (1.0 if facts.aligned == "elements" else device.weight) % ALIGNED == 0)
