"""Recompute policies: what is dropped after the forward pass and which operations run again to get it back.

none keeps everything the backward pass reads; selective drops tensors that hold both a rank and the index that walks
the same size a second time (the attention scores, s and t); full drops everything but the workload's inputs.
'region' runs the whole graph again (full); 'slice' only what the backward pass needs. Source: Korthikanti 2022.
Flash attention drops the scores whatever the policy: its backward kernel makes them again (Dao 2022).
"""

from __future__ import annotations

from dataclasses import dataclass

from rackmodel.cost.program.fusion import scores
from rackmodel.cost.program.local_ops import backward_reads, has_backward
from rackmodel.model.plan import Plan
from rackmodel.model.workload import Workload


@dataclass(frozen=True)
class Recompute:
    """rerun: operations to run again, in order · made: tensors they make, which are therefore not saved · inside: operations
    that the attention's backward kernel runs again by itself."""

    rerun: tuple[str, ...] = ()
    made: frozenset[str] = frozenset()
    inside: tuple[str, ...] = ()


def recompute_of(workload: Workload, plan: Plan) -> Recompute:
    """What a plan's policy drops and reruns."""
    if not workload.backward or (plan.recompute == "none" and not plan.flash):
        return Recompute()
    inside = tuple(op.name for op in workload.ops.values() if op.out.tensor in plan.flash)
    dropped = (
        set(workload.producer) if plan.recompute == "full" else scores(workload) if plan.recompute == "selective" else set()
    ) | plan.flash
    if plan.recompute == "full" and plan.rerun == "region":
        return Recompute(tuple(workload.ops), frozenset(dropped), inside)
    rerun = _slice(workload, dropped)
    made = frozenset(workload.ops[name].out.tensor for name in rerun)
    return Recompute(tuple(name for name in workload.ops if name in rerun and name not in inside), made, inside)


def _slice(workload: Workload, dropped: set[str]) -> set[str]:
    read = {a.tensor for op in workload.ops.values() if has_backward(op, workload) for a in backward_reads(op, workload)}
    saved = read - dropped
    rerun: set[str] = set()
    pending = [tensor for tensor in read & dropped if tensor in workload.producer]
    while pending:
        op = workload.ops[workload.producer[pending.pop()]]
        if op.name in rerun:
            continue
        rerun.add(op.name)
        pending += [a.tensor for a in op.ins if a.tensor in workload.producer and a.tensor not in saved]
    return rerun
