"""Passes over gradients and optimizer state: micro-batches' gradients are added up, and a step of the optimizer takes their sum."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from rackmodel.cost.program.tasks import Flow, LocalOp, Volume, local
from rackmodel.model.layout import Layout
from rackmodel.model.plan import Plan
from rackmodel.model.workload import Op, Tensor, Workload

OPTIMIZER_FLOPS = {"adam": 12.0, "sgd": 4.0}  # operations a parameter: two moments, bias corrections, decay and step; momentum and step


def adds_in_place(plan: Plan, tensor: str, workload: Workload) -> bool:
    """Whether micro-batches add a weight's gradient to the sum so far where it is made: not where each is reduced or streamed away."""
    home = plan.home(tensor)
    return workload.tensors[tensor].kind == "weight" and home.at is None and home.grad == "replicate"


def add_op(op: Op, position: int, plan: Plan, workload: Workload) -> LocalOp | None:
    """The kernel that adds a micro-batch's gradient of a weight to the sum; None where no kernel of its own does."""
    tensor = workload.tensors[op.ins[position].tensor]
    if not plan.adds_apart or not adds_in_place(plan, tensor.name, workload):
        return None
    layout = plan.needs(op, position, workload)
    part = local(tensor.bytes, layout, tensor, plan)
    whole = replace(part, total=tensor.elements * workload.gradient_bits / 8)
    return LocalOp(
        reads=(Flow(tensor.name, part, gradient=True), Flow(tensor.name, whole, gradient=True)),
        writes=(Flow(tensor.name, whole, gradient=True),),
        space=(("elements", whole_elements(tensor.elements), whole.axes),),
        macs=False,
        per_element=1.0,
        density=1.0,
        bits=32,
        cuts=whole.cuts,
    )


def sharded_sum_op(tensor: Tensor, shard: Layout, plan: Plan, workload: Workload) -> LocalOp:
    """What the shard that a reduction leaves here is added to: the sum of the micro-batches before is read (none before the first). The
    reduction itself writes the new sum and counts its additions."""
    volume = local(tensor.elements * workload.gradient_bits / 8, shard, tensor, plan)
    read = Flow(tensor.name, replace(volume, again=True), gradient=True)
    return _pass_over(tensor, volume, (read,), (Flow(tensor.name, Volume(0.0), gradient=True),), 0.0)


def optimizer_op(tensor: Tensor, shard: Layout, plan: Plan, workload: Workload) -> LocalOp:
    """One step of the optimizer on the shard of the state that lives here: gradient and state in, state and parameter out; and what the
    step moves beside it for each element (norm, clipping, copies), which counts as written."""
    state = local(tensor.elements * workload.state_bits / 8, shard, tensor, plan)
    gradient = local(tensor.elements * workload.gradient_bits / 8, shard, tensor, plan)
    passes = Flow(f"{tensor.name}.passes", local(tensor.elements * plan.updates.shard_bytes, shard, tensor, plan), gradient=True)
    kept = Flow(tensor.name, state, state=True)
    reads = Flow(tensor.name, gradient, gradient=True), kept
    writes = kept, Flow(tensor.name, local(tensor.bytes, shard, tensor, plan)), *(() if passes.volume.empty else (passes,))
    return _pass_over(tensor, state, reads, writes, OPTIMIZER_FLOPS[workload.optimizer])


def swept_op(tensor: Tensor, summed: Layout, plan: Plan, workload: Workload) -> LocalOp | None:
    """Passes of a step over the gradient that an accelerator sums, beside the products that make it: zeroed, scaled, checked, which count
    as written; None where there are none. summed: its layout."""
    gradient = tensor.elements * workload.gradient_bits / 8
    volume = local(gradient * plan.updates.whole, summed, tensor, plan)
    if volume.empty:
        return None
    return _pass_over(tensor, volume, (), (Flow(f"{tensor.name}.passes", volume, gradient=True),), 1.0)


def _pass_over(tensor: Tensor, split: Volume, reads: tuple[Flow, ...], writes: tuple[Flow, ...], flops: float) -> LocalOp:
    """A pass over a tensor's elements in 32 bit, in a kernel that is started anyhow. split: as which volume they are split · flops:
    operations an element."""
    return LocalOp(
        reads=reads,
        writes=writes,
        space=(("parameters", whole_elements(tensor.elements), split.axes),),
        macs=False,
        per_element=flops,
        density=1.0,
        bits=32,
        joined=True,
        cuts=split.cuts,
    )


def whole_elements(elements: Any) -> Any:
    """Elements without their fraction: a number, or an array over models of unlike sizes."""
    return np.floor(elements) if isinstance(elements, np.ndarray) else int(elements)
