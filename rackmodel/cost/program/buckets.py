"""Calls that move several weights or gradients at once (a profile's `buckets`): which part of a call's fixed time a tensor pays.

    part = min(share of the operand's weights, share of the layer's parameters, share / layers of the stage,
               gradient's bytes / max(fill, fill per rank · ranks), 1)        0 for a weight that stays whole

with those terms that the profile states. So parts add up to one call a layer, one a stage, or one for so many bytes, whatever the
tensors; a tensor larger than that is one call. When a call starts and ends is not moved: each tensor waits for its own part alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rackmodel.arrays import Array
from rackmodel.cost.program.tasks import Bucketed
from rackmodel.model.profile import Buckets
from rackmodel.model.workload import Workload

Count = NDArray[np.int64]


def bucketed(workload: Workload, name: str, total: float, layers: int) -> Bucketed | None:
    """How a weight goes with the others of its layer. total: bytes moved of it where it is whole · layers: of its section."""
    if not np.any(total):
        return None
    own, layer = workload.tensors[name].elements, sum(workload.tensors[weight].elements for weight in workload.weights)
    joined = next(sum(workload.tensors[one].elements for one in names) for names in workload.joint_weights if name in names)
    return Bucketed(own / layer, layers, own * workload.gradient_bits / 8 / total, own / joined, own)


def call_part(buckets: Buckets, one: Bucketed, volume: Array, ranks: Count, stages: Count) -> Array:
    """[n] part of a call that a message of `volume` [n] bytes is among `ranks` [n], in a pipeline of `stages` [n]."""
    part = np.ones(len(volume)) * (one.joined if buckets.holds == "operand" else 1.0)
    if buckets.holds in ("layer", "stage"):
        part = part * one.share
    if buckets.holds == "stage":
        part = part * np.minimum(1.0, stages / one.layers)
    fill = np.maximum(buckets.fill_bytes, buckets.fill_bytes_per_rank * ranks)
    gradient = volume * one.gradient_bytes
    shared = np.where(fill > gradient, np.minimum(part, gradient / np.where(fill > 0, fill, 1.0)), part)
    return np.where(one.elements <= buckets.whole, 0.0, shared)
