"""Which tensors never leave the chip, because the kernel that writes them is the one that reads them.

attention: flash    the scores and all that is computed of them (Dao 2022); made again inside the backward kernel
pointwise: fused    chains of element-wise operations, where one operation alone reads the tensor and nothing saves it

Fused attention over some tokens of a cache reads them where they lie, by their indices: nothing gathers them first. Sources: FlashMLA
(README, the `indices` of flash_mla_with_kvcache), FlashInfer (sparse_mla_top_k).

The scores of an indexer are weighed over its heads by the kernel that makes them, which writes what is left: tokens are picked of that by a
kernel of its own (DeepGEMM, fp8_paged_mqa_logits; vllm-project/vllm, pull request 37421).

`merged` kernels take operations together whose tensors are written all the same: a sum and its normalisation, rotations.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from rackmodel.model.layout import PARTIAL, REPLICATE
from rackmodel.model.opkinds import APPEND
from rackmodel.model.plan import Plan
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.resources import width
from rackmodel.model.workload import Op, Workload

NORMS = ("rmsnorm", "layernorm")
POINTWISE = ("add", "scale", "rope", "repeat", "multiply", "relu", "gelu", "silu", "xielu", "swiglu", "dropout")


def fuse(workload: Workload, plan: Plan, profile: ProfileSpec) -> Plan:
    """The plan with what a profile's kernels keep on the chip. Plans of the same choices, which share what they know, have as much in
    common."""
    about = workload, plan.choices, plan.stages, profile
    key = ("fused", *map(id, about))
    if key not in plan.known:
        plan.known[key] = about, _fused(workload, plan, profile)  # (what it is about stays, and with it what it is known by)
    return replace(plan, **plan.known[key][1])


def _fused(workload: Workload, plan: Plan, profile: ProfileSpec) -> dict[str, Any]:
    """What kernels do together."""
    within = _in_one_stage(scores(workload), workload, plan)
    flash = frozenset(within) if profile.attention == "flash" else frozenset()
    chains = frozenset(_chains(workload, plan)) if profile.pointwise == "fused" else frozenset()
    apart = profile.accumulation == "separate"
    casts = {width(name): found for name, found in profile.casts.items()}
    joined, handed = _residuals(workload, plan) if profile.merged.residuals else (set(), set())
    summed = {name: summed_axes(workload.ops[name], workload, plan) for name in handed} if profile.merged.reductions else {}
    if profile.merged.rotations:
        joined |= _rotations(workload, plan, caching=profile.merged.caches)
    if profile.merged.gates:
        joined |= _gates(workload, plan) | _convolutions(workload, plan)
    if profile.merged.experts:
        joined |= _together(_around_experts(workload), plan)
    joined |= _picks(workload, flash) | {op.name for op in workload.ops.values() if op.kind.name == APPEND}
    return {
        "on_chip": flash | chains,
        "flash": flash,
        "composites": profile.composites,
        "heads": profile.heads,
        "attending": frozenset(_attending(workload, within)),
        "casts": casts,
        "adds_apart": apart,
        "unpacked": profile.buckets.unpacked,
        "packed": profile.buckets.packed,
        "updates": profile.updates,
        "regather": profile.overlap.regather,
        "drops_unread": profile.unread == "dropped",
        "ahead": profile.overlap.most_ahead,
        "joined": frozenset(joined),
        "handed": frozenset(handed),
        "summed": summed,
    }


def _together(names: Iterable[str], plan: Plan) -> set[str]:
    """Some operations, where one stage runs them all; no kernel runs on two."""
    found = set(names)
    return found if len({plan.stages[name] for name in found}) == 1 else set()


def _in_one_stage(within: set[str], workload: Workload, plan: Plan) -> set[str]:
    """Scores of attention that one stage makes and reads whole: what one stage hands to another lies in memory."""
    apart = {name for name in within if not _together((workload.producer[name], *workload.readers[name]), plan)}
    while apart:  # the others of the same attention
        touching = [{op.out.tensor, *(access.tensor for access in op.ins)} for op in workload.ops.values()]
        more = set[str]().union(*(names & within for names in touching if names & apart))
        if more == apart:
            break
        apart = more
    return within - apart


def _rotations(workload: Workload, plan: Plan, *, caching: bool) -> set[str]:
    """Rotations beside that of the queries, which have an index more, and the normalisations of heads before any of them, but of all heads
    together (MiniMax M2): other accelerators have a part of their sums. caching: whether their kernel writes the cache; else one of its own
    does, as long as the rotation of the keys would take."""
    rotating = sorted((op for op in workload.ops.values() if op.kind.name == "rope"), key=lambda op: -len(op.out.names))
    makers = ((workload.producer.get(op.ins[0].tensor, ""), op.name) for op in rotating)
    before = {maker for maker, op in makers if maker and _together((maker, op), plan)}
    kept = any(tensor.kind == "kv_cache" for tensor in workload.tensors.values())
    found = {name for name in before if workload.ops[name].kind.name == "rmsnorm" and len(workload.ops[name].over) == 1}
    for head in dict.fromkeys(op.out.names[-1] for op in rotating):  # attention's, and an indexer's
        own = [op.name for op in rotating if op.out.names[-1] == head]
        own = [name for name in own if _together((name, own[0]), plan)]
        found |= set(own[1:] if caching or not kept else own[1:-1])
    return found


def _gates(workload: Workload, plan: Plan) -> set[str]:
    """Activations by which what a normalisation makes is multiplied, and those products: its kernel makes both."""
    found = set()
    for op in workload.ops.values():
        makers = [workload.maker(access.tensor) for access in op.ins]
        kinds = [maker.kind.name for maker in makers if maker is not None]
        gated = op.kind.name == "multiply" and sorted(kinds) in (["rmsnorm", "silu"], ["layernorm", "silu"])
        if gated and _together((op.name, *(maker.name for maker in makers if maker is not None)), plan):
            found |= {op.name} | {maker.name for maker in makers if maker is not None and maker.kind.name == "silu"}
    return found


def _convolutions(workload: Workload, plan: Plan) -> set[str]:
    """Convolutions over the last tokens but the one with the most indices: a kernel makes all of a layer."""
    every = sorted((op for op in workload.ops.values() if op.kind.name == "convolve"), key=lambda op: -len(op.out.names))
    return {op.name for op in every[1:] if _together((op.name, every[0].name), plan)}


def _around_experts(workload: Workload) -> set[str]:
    """What is made of tokens from where they are sent to experts to where these are summed, but for products with weights."""
    sent = {op.out.tensor for op in workload.ops.values() if op.kind.name == "dispatch"}
    found = {op.name for op in workload.ops.values() if op.kind.name == "dispatch"}
    for op in workload.ops.values():
        read = [access.tensor for access in op.ins]
        if sent & set(read) and np.all(workload.tensors[op.out.tensor].density < 1):
            sent.add(op.out.tensor)
        if sent & set(read) and not any(workload.tensors[name].kind == "weight" for name in read):
            found.add(op.name)
    return found


def _picks(workload: Workload, flash: frozenset[str]) -> set[str]:
    """Selections from a cache that fused attention alone reads."""
    found = set()
    for op in workload.ops.values():
        readers = [workload.ops[name] for name in workload.readers[op.out.tensor]]
        fused = all(any(access.tensor in flash for access in (one.out, *one.ins)) for one in readers)
        if op.kind.inner == "selects" and workload.tensors[op.ins[-1].tensor].kind == "kv_cache" and readers and fused:
            found.add(op.name)
    return found


def _residuals(workload: Workload, plan: Plan) -> tuple[set[str], set[str]]:
    """Sums that the kernel of a normalisation makes, and those normalisations; the sum that a layer hands on goes with that which the next
    layer begins with, where these lie alike."""
    pairs = [pair for pair in sums_before_norms(workload) if _together((one.name for one in pair), plan)]
    pairs = [(norm, sum_) for norm, sum_ in pairs if plan.needs(norm, 0, workload) == plan.leaves(sum_)]
    return {sum_.name for _, sum_ in pairs}, {norm.name for norm, _ in pairs}


def sums_before_norms(workload: Workload) -> list[tuple[Op, Op]]:
    """Normalisations that read a sum, and that sum."""
    pairs = ((norm, _sum_before(norm, workload)) for norm in workload.ops.values() if norm.kind.name in NORMS)
    return [(norm, sum_) for norm, sum_ in pairs if sum_ is not None]


def _sum_before(norm: Op, workload: Workload) -> Op | None:
    """The sum that a normalisation reads; None where it reads something else."""
    read = norm.ins[0].tensor
    found = workload.ops.get(workload.producer.get(read) or _last_sum(workload, read) or "")
    return found if found is not None and found.kind.name == "add" else None


def summed_axes(norm: Op, workload: Workload, plan: Plan) -> tuple[int, ...]:
    """Axes of an all-reduce that sums what the sum before a normalisation takes: its kernel goes on with both."""
    sum_ = _sum_before(norm, workload)
    assert sum_ is not None
    found: set[int] = set()
    for position, access in enumerate(sum_.ins):
        maker = workload.maker(access.tensor)
        if maker is not None:
            pairs = zip(plan.leaves(maker), plan.needs(sum_, position, workload), strict=True)
            found |= {axis for axis, (left, needed) in enumerate(pairs) if left == PARTIAL and needed == REPLICATE}
    return tuple(sorted(found))


def _last_sum(workload: Workload, read: str) -> str | None:
    """What writes the stream that a layer hands on, where `read` is the stream that it takes."""
    streams = [name for name in workload.inputs if workload.tensors[name].bits > 0]
    if streams[:1] != [read] or not workload.outputs:
        return None
    last = workload.outputs[-1]
    return workload.producer[last] if workload.tensors[last].ranks == workload.tensors[read].ranks else None


def scores(workload: Workload) -> set[str]:
    """Attention's scores: tensors that hold a rank twice, once by an index that walks the same size (s and t), or what a step's tokens
    make of all that a cache holds, or of what is picked of a sequence."""
    new = workload.new_tokens
    return _of_picks(workload) | {
        name
        for name, tensor in workload.tensors.items()
        if name in workload.producer
        and not any(workload.ops[reader].kind.name == "topk" for reader in workload.readers[name])
        and (
            any(i in tensor.ranks and j in tensor.ranks for i, j in workload.aliases.items())
            or (workload.attended & set(tensor.ranks) and new & set(tensor.ranks))
        )
    }


def _of_picks(workload: Workload) -> set[str]:
    """Scores of a sequence's tokens by those that are picked of it, where values are weighed by them: what becomes of others, as the loss
    of an indexer, is no part of attention's kernel."""
    pairs = [
        ({*op.out.names} - {*table.names}, {*table.names} - {*op.out.names})
        for op in workload.ops.values()
        if op.kind.name == "lookup" and workload.tensors[(table := op.ins[-1]).tensor].kind == "activation"
    ]

    def scored(name: str) -> bool:
        ranks = set(workload.tensors[name].ranks)
        return name in workload.producer and any(picked & ranks and walked & ranks for picked, walked in pairs)

    found: set[str] = set()
    for op in workload.ops.values() if pairs else ():
        read = [access.tensor for access in op.ins]
        if op.kind.name == "einsum" and not scored(op.out.tensor) and sum(map(scored, read)) == 1:
            found |= {name for name in read if scored(name)}
    while (
        makers := {access.tensor for name in found for access in workload.ops[workload.producer[name]].ins if scored(access.tensor)} - found
    ):
        found |= makers
    return found


def loosest(workload: Workload, plan: Plan, profile: ProfileSpec) -> Plan:
    """The plan with all that could stay on the chip whatever the layouts: no plan of these choices moves less, but for merged sums."""
    fused = _with_sums_apart(workload, plan, profile)
    if profile.pointwise != "fused":
        return fused
    return replace(fused, on_chip=fused.on_chip | {op.out.tensor for op, _ in _neighbours(workload)})


def plainest(workload: Workload, plan: Plan, profile: ProfileSpec) -> Plan:
    """The plan with what stays on the chip under every layout, but for merged sums."""
    fused = _with_sums_apart(workload, plan, profile)
    return replace(fused, on_chip=fused.flash)


def _with_sums_apart(workload: Workload, plan: Plan, profile: ProfileSpec) -> Plan:
    """The plan in which no normalisation makes the sum before it: whether one does is of both layouts."""
    merged = profile.merged.model_copy(update={"residuals": False, "reductions": False})
    return fuse(workload, plan, profile.model_copy(update={"merged": merged}))


def _attending(workload: Workload, within: set[str]) -> set[str]:
    """Products of queries and keys: those that make scores of what are none."""
    return {
        op.name
        for op in workload.ops.values()
        if op.kind.name == "einsum" and op.out.tensor in within and not any(access.tensor in within for access in op.ins)
    }


def _chains(workload: Workload, plan: Plan) -> set[str]:
    return {op.out.tensor for op, reader in _neighbours(workload) if _same_layout(op, reader, plan, workload)}


def _neighbours(workload: Workload) -> list[tuple[Op, Op]]:
    """Element-wise operations and the one that alone goes on with what they write."""
    found = []
    for op in workload.ops.values():
        readers = workload.readers[op.out.tensor]
        if op.kind.name not in POINTWISE or len(readers) != 1:
            continue
        reader = workload.ops[readers[0]]
        goes_on = reader.kind.name in POINTWISE or (op.kind.name == "scale" and reader.kind.name == "softmax")
        if goes_on and reader.kind.reads == "nothing":
            found.append((op, reader))
    return found


def _same_layout(op: Op, reader: Op, plan: Plan, workload: Workload) -> bool:
    """Whether the reader takes the tensor as it was left, in one access, where it was left."""
    places = [i for i, access in enumerate(reader.ins) if access.tensor == op.out.tensor]
    here = len(places) == 1 and bool(_together((op.name, reader.name), plan))
    return here and plan.needs(reader, places[0], workload) == plan.leaves(op)
