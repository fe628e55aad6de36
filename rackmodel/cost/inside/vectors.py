"""Seconds of a kernel that moves rows: norms, activations, sums of two, rotations, lookups, quantisation.

    far     share of the bytes that the memory moves, the rest the cache:  1 / (1 + (cache capacity / bytes)^4)
    all     bytes · (far / (memory · bandwidth) + (1 - far) / cache)  +  again / (memory · bandwidth)
    again   of a kernel that reads its rows twice, what the cache no longer holds of the rows that its blocks have begun:
            half of the rows' bytes / (1 + (cache capacity / bytes read of as many rows as are begun at once)^4)
    one     bytes of a row / load           a block takes a row, however few there are; rows share a norm's weights
    kernel  start + (all^2 + one^2)^(1/2),  and with a host that waits for each  (kernel^8 + host^8)^(1/8)

Source of the form: least squares on 8,000 kernels of eleven GPUs (Vidur, LLMServingSim, NVIDIA aiconfigurator, LLMCompass); the numbers
by `rackmodel calibrate`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rackmodel.arrays import Array
from rackmodel.model.vector import VectorKernel

EDGE = 4  # how sharply bytes beyond the cache go to memory
SHARP = 8


@dataclass(frozen=True, kw_only=True)
class VectorDevice:
    """bandwidth: of the accelerator's memory, bytes/s · cache: bytes that the level below it holds, 0 = there is none."""

    bandwidth: float
    cache: float


def vector_seconds(facts: VectorKernel, device: VectorDevice, moved: Any, rows: Any, shared: Any = 0.0) -> Array:
    """[n] seconds of kernels that move so many bytes in so many rows. shared: those of them that are no row's own, a norm's weights."""
    bytes_moved = np.maximum(np.asarray(moved, dtype=np.float64), 1.0)
    far = beyond(device.cache, bytes_moved)
    every = bytes_moved * (far / (facts.memory * device.bandwidth) + (1.0 - far) / facts.cache_bytes_per_s)
    own = np.maximum(bytes_moved - shared, 0.0)
    if facts.at_once:
        every = every + own / 2.0 * read_again(facts, device, own, rows) / (facts.memory * device.bandwidth)
    one = own / np.maximum(rows, 1.0) / facts.load_bytes_per_s
    kernel = facts.start_s + np.hypot(every, one)
    return np.asarray((kernel**SHARP + facts.host_s**SHARP) ** (1 / SHARP), dtype=np.float64)


def beyond(cache: float, moved: Any) -> Array:
    """[n] share of so many bytes that a cache does not hold."""
    return np.asarray(1.0 / (1.0 + (cache / np.maximum(moved, 1.0)) ** EDGE))


def read_again(facts: VectorKernel, device: VectorDevice, moved: Any, rows: Any) -> Array:
    """[n] share of what rows hold that the memory gives a second time. moved: bytes to and from the rows, half of which are read."""
    begun = np.minimum(np.asarray(rows, dtype=np.float64), facts.at_once) * (np.asarray(moved) / 2.0 / np.maximum(rows, 1.0))
    held = np.divide(device.cache, begun, out=np.full_like(begun, np.inf), where=begun > 0)
    return np.asarray(1.0 / (1.0 + held**EDGE), dtype=np.float64)
