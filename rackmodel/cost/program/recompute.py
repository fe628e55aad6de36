"""Recompute policies: what is dropped after the forward pass and which operations run again to get it back.

none keeps everything the backward pass reads; selective drops tensors that hold both a rank and the index that walks
the same size a second time (the attention scores, s and t); alternate keeps the result of attention and of every other
product of a weight, the first one's among them (torchtitan, selective activation checkpointing by operation); pointwise drops the results
of norms and activations (Megatron-Core, --recompute-modules layernorm moe_act); experts drops these and all that is made between the
norm that a router reads and the sum with the residual (the modules moe, layernorm, moe_act, core_attn), sending of tokens included;
full drops everything but the workload's inputs.
'region' runs the whole graph again (full; experts: its part of it; selective: attention between projections, the product with V included,
whose result stays saved: Korthikanti 2022, figure 3; SOURCED: _checkpointed_attention_forward in NVIDIA/Megatron-LM f41b4fd,
megatron/core/transformer/attention.py); 'slice' only what the backward pass needs. Source: Korthikanti 2022.
Flash attention drops the scores whatever the policy: its backward kernel makes them again (Dao 2022).
A stage keeps what another one hands to it, as a pipeline's stage keeps what its layers begin with: policies are of what it makes itself.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from rackmodel.cost.program.fusion import scores
from rackmodel.cost.program.local_ops import backward_reads, has_backward
from rackmodel.model.plan import Plan
from rackmodel.model.workload import Workload

POINTWISE = ("rmsnorm", "layernorm", "relu", "gelu", "silu", "xielu", "swiglu", "multiply", "clamp")
"""Kinds of operations whose results `pointwise` drops: norms and activations."""


@dataclass(frozen=True)
class Recompute:
    """rerun: operations to run again, in order · made: tensors they make that are therefore not saved · inside: operations
    that the attention's backward kernel runs again by itself · idle: tensors that are kept though no backward pass reads them."""

    rerun: tuple[str, ...] = ()
    made: frozenset[str] = frozenset()
    inside: tuple[str, ...] = ()
    idle: frozenset[str] = frozenset()


def recompute_of(workload: Workload, plan: Plan) -> Recompute:
    """What a plan's policy drops and reruns."""
    runs_back = workload.backward and any(has_backward(op, workload) for op in workload.ops.values())
    if not runs_back or (plan.recompute == "none" and not plan.flash):
        return Recompute()
    inside = tuple(op.name for op in workload.ops.values() if op.out.tensor in plan.flash)
    dropped = _dropped(workload, plan) | plan.flash
    if plan.recompute == "full" and plan.rerun == "region":
        return Recompute(tuple(workload.ops), frozenset(dropped), inside)
    kept = set(_kept(workload)) if plan.recompute == "alternate" else set()
    rerun = _slice(workload, plan, dropped, kept)
    if plan.recompute == "experts" and plan.rerun == "region":
        rerun |= _of_experts(workload)
    made = frozenset(workload.ops[name].out.tensor for name in rerun)
    if plan.recompute == "selective" and plan.rerun == "region":
        rerun |= set(_behind(scores(workload) - plan.flash, workload))
    read = _read(workload, plan) | {access.tensor for name in rerun for access in workload.ops[name].ins}
    idle = set[str]() if plan.drops_unread else kept - read
    return Recompute(tuple(name for name in workload.ops if name in rerun and name not in inside), made, inside, frozenset(idle))


def _dropped(workload: Workload, plan: Plan) -> set[str]:
    """Tensors that a policy does not keep."""
    if plan.recompute == "selective":
        return scores(workload)
    if plan.recompute == "none":
        return set()
    if plan.recompute in ("pointwise", "experts"):
        routed = _of_experts(workload) if plan.recompute == "experts" else set()
        return {op.out.tensor for op in workload.ops.values() if op.kind.name in POINTWISE or op.name in routed}
    return set(workload.producer) - (set(_kept(workload)) if plan.recompute == "alternate" else set())


def _of_experts(workload: Workload) -> set[str]:
    """Operations of a layer of experts: all that follows from what its router reads, up to a sum with what does not."""
    made = {_routed_by(op.ins[1].tensor, workload) for op in workload.ops.values() if op.kind.name == "dispatch"}
    mine = set[str]()
    for op in workload.ops.values():  # a graph's operations follow what they read
        read = {access.tensor for access in op.ins if workload.tensors[access.tensor].kind != "weight"}
        if read & made and (read <= made or op.kind.name != "add"):
            made.add(op.out.tensor)
            mine.add(op.name)
    return mine


def _routed_by(gates: str, workload: Workload) -> str:
    """What the product that chooses experts reads."""
    while gates in workload.producer:
        op = workload.ops[workload.producer[gates]]
        gates = op.ins[0].tensor
        if op.kind.name == "einsum":
            break
    return gates


def _kept(workload: Workload) -> list[str]:
    """What `alternate` keeps: results of the first, third, … product of a weight, and of attention."""
    weighed = [op.out.tensor for op in workload.products if any(workload.tensors[access.tensor].kind == "weight" for access in op.ins)]
    return weighed[::2] + [workload.ops[name].out.tensor for name in _behind(scores(workload), workload)]


def _behind(core: Set[str], workload: Workload) -> list[str]:
    """The products that read attention's scores and make none (with V)."""
    made = scores(workload)
    return [op.name for op in workload.products if op.out.tensor not in made and any(access.tensor in core for access in op.ins)]


def made_again(place: tuple[str, int], recompute: Recompute, workload: Workload, plan: Plan) -> bool:
    """Whether a stage makes a tensor again for its backward pass: what another one hands to it is kept."""
    return place[0] in recompute.made and not received(*place, workload, plan)


def received(tensor: str, stage: int, workload: Workload, plan: Plan) -> bool:
    """Whether another stage hands a tensor to this one."""
    maker = workload.producer.get(tensor)
    return maker is not None and plan.stages[maker] != stage


def _read(workload: Workload, plan: Plan) -> set[str]:
    """What backward passes read where it is made."""
    back = ((op, a.tensor) for op in workload.ops.values() if has_backward(op, workload) for a in backward_reads(op, workload))
    return {tensor for op, tensor in back if not received(tensor, plan.stages[op.name], workload, plan)}


def _slice(workload: Workload, plan: Plan, dropped: set[str], kept: set[str]) -> set[str]:
    read = _read(workload, plan)
    saved = (read | kept) - dropped
    rerun: set[str] = set()
    pending = [tensor for tensor in read & dropped if tensor in workload.producer]
    while pending:
        op = workload.ops[workload.producer[pending.pop()]]
        if op.name in rerun:
            continue
        rerun.add(op.name)
        made = [a.tensor for a in op.ins if a.tensor in workload.producer and a.tensor not in saved]
        pending += [tensor for tensor in made if not received(tensor, plan.stages[op.name], workload, plan)]
    return rerun
