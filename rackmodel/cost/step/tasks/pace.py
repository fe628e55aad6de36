"""How fast kernels that compute run in a step of training, by what the step's seconds go to.

    pace    1 + (alone - 1) · (share - products) / (1 - products)        alone, products: of a part's `pace`
    share   seconds of matrix products / seconds of all kernels of the layers

One clock serves all kernels of a step, and at the power limit products, which draw the most, bring it down: the more of the time is
theirs, the slower are all that compute, attention included. Kernels are priced on one accelerator, 64 sequences at once, so that one model
has one pace however it is split; what waits (sends, bubbles, the host) is not among them. Source of the form: products and attention in
loops and amid layers of six kinds on one H100 (docs/calibration.md).
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rackmodel.arrays import Array
from rackmodel.cost.inside.gpu import gpu_of
from rackmodel.cost.inside.kernels import KernelPricer
from rackmodel.cost.inside.roofline import LocalPricer
from rackmodel.cost.program.fusion import fuse
from rackmodel.cost.program.local_ops import backward_ops, cast_ops, forward_op, head_ops
from rackmodel.cost.program.tasks import LocalOp
from rackmodel.cost.program.unnamed import numbered_content, numbers_of
from rackmodel.model.architecture import Architecture
from rackmodel.model.layout import batch_choice
from rackmodel.model.plan import MICRO, Plan
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.resources import Pace
from rackmodel.model.workload import Workload

SEQUENCES = 64
"""Of a batch on one accelerator: as many as make launches nothing; what a step has beside them it has in proportion."""


@dataclass(frozen=True, kw_only=True)
class TrainedSteps:
    """Steps of training of a workload under a profile. columns: over which its sizes and the profile's facts may be arrays · inside: what
    prices operations."""

    inside: LocalPricer
    architecture: Architecture
    workload: Workload
    profile: ProfileSpec
    columns: int = 1

    @property
    def facts(self) -> Pace | None:
        """What the accelerator's part says of their pace."""
        gpu = gpu_of(self.architecture, self.inside.facts) if isinstance(self.inside, KernelPricer) and self.inside.lasting else None
        return None if gpu is None else gpu.facts.pace

    def seconds(self, number: int) -> Array:
        """[2, columns] of a section's matrix products and of all its kernels, forward and backward."""
        section, found = self.workload.sections[number], np.zeros((2, self.columns))
        degrees: Any = np.ones((self.columns, 2))
        degrees[:, 0] = section.workload.sizes.get(section.workload.batch, SEQUENCES) / SEQUENCES
        known: dict[object, Array] = {}  # operations that differ in names alone are priced once
        for local_op in _kernels(section.workload, self.profile):
            alike = numbered_content(local_op, numbers_of(local_op))
            if alike not in known:
                known[alike] = section.repeat * self.inside(self.architecture, local_op, degrees)[1]
            seconds = known[alike]
            found[1] += seconds
            if local_op.macs and local_op.attention is None and not local_op.kernel:
                found[0] += seconds
        return found


def pace_of(steps: TrainedSteps, each: Sequence[TrainedSteps] = (), alike: Container[str] = ()) -> Any:
    """Pace of steps, [columns] or one number: 1 where the part says nothing of it. each: the same of one profile after another, of which
    sections that are not among those `alike` are priced."""
    facts = steps.facts
    if facts is None:
        return 1.0
    total = np.zeros((2, steps.columns))
    for number, section in enumerate(steps.workload.sections):
        apart = [] if section.name in alike else [own.seconds(number) for own in each]
        total += np.concatenate(apart, axis=1) if apart else steps.seconds(number)
    pace = facts.at(total[0] / total[1])
    return pace if steps.columns > 1 else float(pace[0])


def _kernels(workload: Workload, profile: ProfileSpec) -> Iterator[LocalOp]:
    """Passes of all operations of a section, of which an accelerator has some of the batch."""
    choices = {op.name: (batch_choice(op, workload), None) for op in workload.ops.values()}
    plan = Plan(axes=("data", MICRO), choices=choices, boundary={}, stages=dict.fromkeys(choices, 0), homes={}, save={})
    plan = fuse(workload, plan, profile)
    for op in workload.ops.values():
        for backward in (False, True):
            yield from cast_ops(op, plan, workload, backward=backward)
            yield from head_ops(op, plan, workload, backward=backward)
        yield forward_op(op, plan, workload)
        yield from backward_ops(op, plan, workload)
