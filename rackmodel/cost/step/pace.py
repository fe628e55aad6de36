"""How fast kernels that compute run in a step of training, by what the step's seconds go to.

    pace    1 + (alone - 1) · (share - products) / (1 - products)        alone, products: of a part's `pace`
    share   seconds of matrix products / seconds of all kernels of the layers

One clock serves all kernels of a step, and at the power limit products, which draw the most, bring it down: the more of the time is
theirs, the slower are all that compute, attention included. Kernels are priced on one accelerator, a whole batch at once, so that one
workload has one pace however it is split; what waits (sends, bubbles, the host) is not among them. Source of the form: products and attention in
loops and amid layers of six kinds on one H100 (docs/calibration.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.inside.kernels import KernelPricer, gpu_of
from rackmodel.cost.inside.roofline import LocalPricer
from rackmodel.cost.program.fusion import fuse
from rackmodel.cost.program.local_ops import backward_ops, cast_ops, forward_op, head_ops
from rackmodel.cost.program.tasks import LocalOp
from rackmodel.model.architecture import Architecture
from rackmodel.model.plan import MICRO, Plan
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.workload import Workload

Array = NDArray[np.float64]


def paced(inside: LocalPricer, architecture: Architecture, workload: Workload, profile: ProfileSpec, columns: int = 1) -> LocalPricer:
    """What prices operations, at the pace of steps of training of this workload; itself where the part says nothing of it.
    columns: over which its sizes and the profile's facts may be arrays."""
    if not isinstance(inside, KernelPricer) or not inside.lasting:
        return inside
    gpu = gpu_of(architecture, inside.facts)
    if gpu is None or gpu.facts.pace is None:
        return inside
    return replace(inside, pace=gpu.facts.pace.at(products_share(inside, architecture, workload, profile, columns)))


def products_share(inside: KernelPricer, architecture: Architecture, workload: Workload, profile: ProfileSpec, columns: int = 1) -> Any:
    """Share of the seconds of a model's kernels, forward and backward, that matrix products take: [columns] or one number."""
    whole, alone = np.ones((columns, 1), dtype=np.int64), np.zeros(columns)
    every = alone
    for section in workload.sections:
        for local_op in _kernels(section.workload, profile):
            seconds = section.repeat * inside(architecture, local_op, whole)[1]
            every = every + seconds
            if local_op.macs and local_op.attention is None and not local_op.kernel:
                alone = alone + seconds
    share = alone / every
    return share if columns > 1 else float(share[0])


def _kernels(workload: Workload, profile: ProfileSpec) -> Iterator[LocalOp]:
    """Passes of all operations of a section, on one accelerator, the batch in one piece."""
    once: dict[str, Any] = {name: (None,) for name in workload.ops}
    plan = Plan(axes=(MICRO,), choices=once, boundary={}, stages=dict.fromkeys(workload.ops, 0), homes={}, save={})
    plan = fuse(workload, plan, profile)
    for op in workload.ops.values():
        for backward in (False, True):
            yield from cast_ops(op, plan, workload, backward=backward)
            yield from head_ops(op, plan, workload, backward=backward)
        yield forward_op(op, plan, workload)
        yield from backward_ops(op, plan, workload)
