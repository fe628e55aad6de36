"""Seconds of a matrix product as the fastest kernel that a GPU's library holds for it.

    blocks    ceil(m / tm) · ceil(n / tn) · batch · s, of the tiles below, the sum over k cut into s parts where s > 1 fills idle SMs
    one block max( 2 tm tn k/s / (rate · peak of one SM),  (k/s) (min(tm, m) + min(tn, n)) · bytes / load,  (k/s) · step )
    compute   min over (tile, s) of  max(1, blocks / SMs) · (block + one block) + [s > 1] (split + s m n · 8 B / (load · SMs))
              where the limit of power is told apart:  max( ceil(blocks / SMs) · (block + one block),  2 m n k batch / (sustained · peak) )
    memory    latency + (bytes + those of rows that tiles lack, where they are fetched whole) / (memory share · bandwidth)
    time      start + quantise · m k / bandwidth + (compute^2.5 + memory^2.5)^(1 / 2.5)
    loop      of the bytes a loop finds 1 / (1 + (bytes / reuse)^8) in a cache, at its rate; quantising moves its own as much faster
    eager     (time^8 + host^8)^(1 / 8), where the host launches each product and not a CUDA graph all of them

Waves are not rounded up where one rate serves all: on Hopper and Blackwell that fits worse, on A100 the same. Where the limit of power is
told apart, a wave that is not full leaves the others a higher clock. k is dealt in steps of 64. A library picks the tile, and splits the
sum, by its own rules: the fastest stands for them where they are not known (`dispatch`). Source of the form: least squares on 29,000
products of nine GPUs (NVIDIA aiconfigurator's measurements), the numbers by `rackmodel calibrate`; held-out errors stand beside them in
the parts.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.model.dispatch import blocks_of, lacking, picked
from rackmodel.model.grouped import Grouped
from rackmodel.model.resources import EagerLaunch, Products

TILES = ((64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128))
PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
SHORTEST_PART = 256  # elements of the sum in one part
STEP = 64  # elements of the sum that a block takes at once
PARTIAL_BYTES = 8.0  # a partial sum is written and read, fp32
SMOOTH = 2.5  # how compute and memory overlap: the power of their sum
FEW = 64  # shapes among which it is not worth looking for equal ones
SHARP = 8  # the same of a device and the host that runs ahead of it
SUDDEN = 8  # how suddenly a cache no longer holds what a loop reads


@dataclass(frozen=True, kw_only=True)
class Device:
    """What a product runs on. peak: FLOP/s of the whole GPU at this precision · blocks: SMs · element: bytes of an operand's element."""

    peak: float
    blocks: int
    element: float


def compute_seconds(facts: Products, device: Device, batch: Any, m: Any, n: Any, k: Any) -> Array:
    """Seconds of the blocks of products, start and memory apart. batch, m, n, k: broadcastable sizes."""
    shape = np.broadcast(batch, m, n, k).shape
    each = np.empty((4, *shape))
    each[0], each[1], each[2], each[3] = batch, m, n, k
    sizes = each.reshape(4, -1)
    if sizes.shape[1] <= FEW:
        return _fastest(facts, device, sizes).reshape(shape)
    each, again = _distinct(sizes)
    return _fastest(facts, device, each)[again].reshape(shape)


def _distinct(sizes: Array) -> tuple[Array, Ints]:
    """([4, distinct] each of some sizes once, which of them each is). (np.unique of an axis compares bytes, several times as slow.)"""
    order, again = np.lexsort(sizes), np.empty(sizes.shape[1], dtype=np.int64)
    lined_up = sizes[:, order]
    new = np.append(True, (lined_up[:, 1:] != lined_up[:, :-1]).any(axis=0))
    again[order] = np.cumsum(new) - 1
    return lined_up[:, new], again


def _fastest(facts: Products, device: Device, sizes: Array) -> Array:
    """[shapes] seconds of the fastest kernel. sizes: [4, shapes] batch, m, n, k."""
    b, m, n, k = sizes[:, :, None]
    tm, tn, s = _kernels(facts.split_s is not None) if facts.dispatch is None else (*picked(facts.dispatch, m, n), 1.0)
    blocks = b * blocks_of(facts.dispatch, m, n, tm, tn) * s
    part = np.ceil(k / s / STEP) * STEP
    work = 2.0 * tm * tn / (facts.rate * device.peak / device.blocks)
    fetch = (np.minimum(tm, m) + np.minimum(tn, n)) * device.element / facts.load_bytes_per_s
    block = facts.block_s + part * np.maximum(np.maximum(work, fetch), facts.step_s)
    joining = facts.split_s + s * b * m * n * PARTIAL_BYTES / (facts.load_bytes_per_s * device.blocks) if facts.split_s is not None else 0.0
    waves = np.maximum(1.0, blocks / device.blocks if facts.sustained is None else np.ceil(blocks / device.blocks))
    seconds = waves * block + np.where(s > 1, joining, 0.0)
    sensible = (s == 1) | ((k / s >= SHORTEST_PART) & (blocks <= device.blocks))
    fastest = np.where(sensible, seconds, np.inf).min(axis=1)
    if facts.sustained is not None:
        fastest = np.maximum(fastest, 2.0 * sizes.prod(axis=0) / (facts.sustained * device.peak))
    return np.asarray(fastest, dtype=np.float64)


@cache
def _kernels(split: bool) -> tuple[Array, Array, Array]:
    """Rows, columns and parts of the sum of the kernels to choose from. split: whether a sum may be cut into parts."""
    each = [(*tile, parts) for tile, parts in itertools.product(TILES, PARTS if split else (1,))]
    tm, tn, s = np.array(each, dtype=np.float64).T.copy()
    return tm, tn, s


def looped_rate(facts: Products | Grouped, bandwidth: float, moved: Any) -> Any:
    """Bytes/s at which a loop over one product, or one call of experts, moves what it does. moved: bytes of each that a cache may hold ·
    bandwidth: of the memory."""
    own = facts.memory * bandwidth
    if facts.reuse_bytes_per_s is None:
        return own
    found = 1.0 / (1.0 + (moved / facts.reuse_bytes) ** SUDDEN)
    return 1.0 / (found / facts.reuse_bytes_per_s + (1.0 - found) / own)


def lacking_seconds(facts: Products, device: Device, bandwidth: float, batch: Any, m: Any, n: Any, k: Any) -> Any:
    """Seconds that the memory takes for rows which tiles fetch and the left operand lacks; 0 where kernels leave them out. bandwidth: of
    the memory · batch, m, n, k: broadcastable sizes."""
    return batch * lacking(facts.dispatch, m, n) * k * device.element / (facts.memory * bandwidth)


def together(compute: Any, memory: Any) -> Array:
    """Seconds of compute and memory that overlap as far as kernels let them."""
    return np.asarray((compute**SMOOTH + memory**SMOOTH) ** (1 / SMOOTH), dtype=np.float64)


def launched(seconds: Any, eager: EagerLaunch, rows: Any) -> Array:
    """Seconds of a product that the host launches. seconds: on the device · rows: of its left operand."""
    few = eager.time_s if eager.few_time_s is None else eager.few_time_s
    host = np.where(np.asarray(rows) <= eager.few, few, eager.time_s)
    return np.asarray((seconds**SHARP + host**SHARP) ** (1 / SHARP), dtype=np.float64)
