"""What stages of a pipeline keep of what they hand to each other, where a framework says so (a profile's `pipeline`).

Of a micro-batch that a stage takes or gives, with b bytes of the residual stream and r of what the loss reads on an accelerator:

    taken             b for its input and b for the gradient that goes back, each if it stays for a step   unless it is in flight
    given             b for its output and b for the gradient that comes back, each if it stays for a step
    given in flight   b for its output, if it stays until its backward pass                                while it is in flight
    results           r, on the last stage                                                                 but for one

The input of a micro-batch in flight is among what its backward pass reads, and what the loss reads of one among what its kernels hold.
Without a backward pass no gradients are handed back, and none is in flight: what stays until then does not.
How many micro-batches that makes on a stage: cost/step/bounds/memory. Source: pytorch/pytorch, torch/distributed/pipelining/stage.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from rackmodel.cost.program.tasks import Between, Held, local
from rackmodel.model.plan import Plan
from rackmodel.model.profile import PipelineKeeps
from rackmodel.model.workload import Section

LOSS = "cross_entropy"
KEEPS_NOTHING = PipelineKeeps()


def kept_between(section: Section, plan: Plan, keeps: PipelineKeeps) -> tuple[Held, ...]:
    """Bytes of one micro-batch on an accelerator: of the stream that a section's layers take and give, of what a loss in it reads."""
    if keeps == KEEPS_NOTHING or not section.stream_in or plan.stage_count > 1:
        return ()
    return tuple(_of_stream(section, plan, keeps) if section.layer else _of_loss(section, plan, keeps))


def _of_stream(section: Section, plan: Plan, keeps: PipelineKeeps) -> Iterator[Held]:
    """A layer's."""
    stream, backward = section.workload.tensors[section.stream_in], section.workload.backward
    times: dict[Between, int] = {
        "taken": (keeps.inputs == "step") + (backward and keeps.gradients.sent == "step"),
        "given": (keeps.outputs == "step") + (backward and keeps.gradients.received == "step"),
        "given in flight": int(backward and keeps.outputs == "flight"),
    }
    for what, count in times.items():
        if count:
            yield Held(what, stream.name, 0, local(count * stream.bytes, plan.boundary[stream.name], stream, plan.room))


def _of_loss(section: Section, plan: Plan, keeps: PipelineKeeps) -> Iterator[Held]:
    """Of the section behind the layers."""
    workload = section.workload
    for op in workload.ops.values():
        if op.kind.name == LOSS and keeps.results == "step":
            read = workload.tensors[op.ins[0].tensor]
            total = read.elements * workload.tensors[section.stream_in].bits / 8
            yield Held("results", read.name, 0, local(total, plan.needs(op, 0, workload), read, plan.room))
