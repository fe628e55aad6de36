"""Local operations: the passes one operation makes, forward and backward, with what each reads, writes and multiplies.

An einsum's backward pass is one contraction for each operand that wants a gradient, over the same iteration space.
A vector operation's is one pass that reads the output's gradient and what it saved, and writes every gradient.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from rackmodel.cost.program.attention_roles import attention_roles, read_as_keys
from rackmodel.cost.program.borders import overlaps
from rackmodel.cost.program.tasks import Crowd, Cut, Flow, LocalOp, Operand, Touched, Volume, cuts_of, local
from rackmodel.cost.program.update_ops import adds_in_place, whole_elements
from rackmodel.model.einsum import Access
from rackmodel.model.gradients import has_gradient
from rackmodel.model.layout import REPLICATE, Layout, is_shard, rank_split
from rackmodel.model.plan import Plan
from rackmodel.model.profile import KernelRun
from rackmodel.model.workload import Op, Tensor, Workload
from rackmodel.once import once

WIDEST_QUANTISED = 16  # bits of a weight that is not quantised
STATISTIC_BYTES = 4.0  # a statistic (sum, maximum) is one fp32 number
CAST_FLOPS = 2.0  # a scale and a comparison with the largest so far
ONE_KERNEL = KernelRun()
KEEPING = ("scan", "convolve")  # kinds of operations that bring up to date what they keep of a sequence


def wants_gradient(op: Op, position: int, workload: Workload) -> bool:
    """Whether operand number `position` has a gradient."""
    return has_gradient(op, position, workload.tensors)


def has_backward(op: Op, workload: Workload) -> bool:
    """Whether an operation has a backward pass: some operand wants a gradient."""
    return any(wants_gradient(op, i, workload) for i in range(len(op.ins)))


def backward_reads(op: Op, workload: Workload) -> tuple[Access, ...]:
    """Operands (and perhaps the output) that the backward pass reads, weights included. An einsum reads an operand for the gradients of
    the others, and a lookup the rows that were chosen alone: the table of an embedding is not read, as nobody wants the gradient of its
    tokens."""
    reads = op.kind.reads
    if op.kind.name == "einsum":
        wanting = {i for i in range(len(op.ins)) if wants_gradient(op, i, workload)}
        return tuple(access for i, access in enumerate(op.ins) if wanting - {i})
    if reads == "inputs":
        return op.ins
    if reads == "first":
        return op.ins[:1]
    if reads == "second":
        return op.ins[1:]
    return (op.out,) if reads == "output" else ()


def forward_op(op: Op, plan: Plan, workload: Workload) -> LocalOp:
    """The forward pass."""
    merged = plan.joined, plan.handed, tuple(plan.summed.items())
    key = ("forward", op.name, plan.choices[op.name], plan.on_chip, plan.flash, *merged, id(plan.composites))
    return once(plan.known, key, lambda: local_op_of(op, plan, workload))


def local_op_of(op: Op, plan: Plan, workload: Workload) -> LocalOp:
    """The forward pass, at the workload's sizes."""
    operands = tuple(_operand(access, workload) for access in op.ins)
    return _local_op(op, plan, workload, *_flows(op, plan, workload), operands, _operand(op.out, workload), backward=False)


def resized_op(known: LocalOp, op: Op, plan: Plan, workload: Workload) -> LocalOp:
    """A forward pass at other sizes of its batch and tokens, which may be arrays: the same but for what follows from them."""
    return replace(known, **_of_sizes(op, plan, workload, *_flows(op, plan, workload), backward=False))


def _flows(op: Op, plan: Plan, workload: Workload) -> tuple[tuple[Flow, ...], tuple[Flow, ...]]:
    """(what the forward pass reads, what it writes)."""
    writes: tuple[Flow, ...] = (Flow(op.out.tensor, _share(op.out, plan.leaves(op), plan, workload)),)
    reads = tuple(_read(op, i, plan, workload) for i in range(len(op.ins)))
    if op.kind.name in KEEPING:  # what it keeps of a sequence is brought up to date
        writes += tuple(flow for flow in reads if workload.tensors[flow.tensor].kind == "kv_cache")
    return reads, writes


def with_states(known: LocalOp, op: Op, workload: Workload, *, read: Any, written: Any) -> LocalOp:
    """A forward pass that reads and writes what it keeps of a sequence more than once. read, written: how often, numbers or arrays."""
    if op.kind.name not in KEEPING:
        return known

    def often(flows: tuple[Flow, ...], times: Any) -> tuple[Flow, ...]:
        kept = (workload.tensors[flow.tensor].kind == "kv_cache" for flow in flows)
        pairs = zip(flows, kept, strict=True)
        return tuple(replace(one, volume=replace(one.volume, total=one.volume.total * times)) if own else one for one, own in pairs)

    return replace(known, reads=often(known.reads, read), writes=often(known.writes, written))


def _read(op: Op, position: int, plan: Plan, workload: Workload) -> Flow:
    """What the forward pass reads of an operand: all that is there; of what it selects from, as much as it writes."""
    access = op.ins[position]
    if op.kind.inner == "selects" and workload.tensors[access.tensor].bits:
        if op.name in plan.joined:  # its reader reads them where they lie
            return Flow(access.tensor, Volume(0.0))
        return Flow(access.tensor, _share(op.out, plan.leaves(op), plan, workload))
    if position == 0 and op.name in plan.handed:
        return Flow(access.tensor, Volume(0.0))
    share = _of_operand(op, position, plan, workload)
    return Flow(access.tensor, replace(share, touched=_touched(op, access, plan, workload)))


def _touched(op: Op, access: Access, plan: Plan, workload: Workload) -> Touched | None:
    """Which of a weight's experts are read: those are indices that it shares with a sparse operand and the result; None where there are
    none."""
    if not workload.tensors[access.tensor].routed:
        return None
    for other in op.ins:
        experts = set(access.names) & set(other.names) & set(op.out.names)
        chance = workload.tensors[other.tensor].density
        if experts and np.all(chance < 1) and workload.tensors[other.tensor].kind != "weight":
            tokens = [index for index in other.names if index not in access.names]
            spans = ((workload.sizes[i], tuple(a for a, c in enumerate(plan.choices[op.name]) if c == i)) for i in tokens)
            return Touched(chance, tuple(spans))
    return None


def backward_ops(op: Op, plan: Plan, workload: Workload) -> tuple[LocalOp, ...]:
    """The backward passes; empty where nothing wants a gradient."""
    adding = tuple(adds_in_place(plan, access.tensor, workload) for access in op.ins)
    key = ("backward", op.name, plan.choices[op.name], plan.on_chip, plan.flash, adding, id(plan.composites), plan.adds_apart)
    return once(plan.known, key, lambda: _backward_ops(op, plan, workload))


def _backward_ops(op: Op, plan: Plan, workload: Workload) -> tuple[LocalOp, ...]:
    wanting = [i for i in range(len(op.ins)) if wants_gradient(op, i, workload)]
    if not wanting:
        return ()
    shares = [Flow(access.tensor, _of_operand(op, i, plan, workload)) for i, access in enumerate(op.ins)]
    share = _share(op.out, plan.leaves(op), plan, workload)
    gradient = Flow(op.out.tensor, _of_gradient(share, op.out.tensor, workload), gradient=True)
    writes = {i: _gradient(op, i, shares[i], plan, workload) for i in wanting}
    sums = {i: _sum_so_far(op, write, plan, workload) for i, write in writes.items()}
    if op.kind.name == "einsum":
        return tuple(
            _local_op(
                op,
                plan,
                workload,
                (gradient, *(share for j, share in enumerate(shares) if j != i), *sums[i]),
                (writes[i],),
                (_operand(op.out, workload, gradient=True), *(_operand(access, workload) for j, access in enumerate(op.ins) if j != i)),
                _operand(op.ins[i], workload, gradient=True),
                backward=True,
            )
            for i in wanting
        )
    names = {access.tensor for access in backward_reads(op, workload)}
    saved = tuple(share for share in (*shares, Flow(op.out.tensor, share)) if share.tensor in names)
    reads = (gradient, *saved, *(flow for i in wanting for flow in sums[i]))
    return (_local_op(op, plan, workload, reads, tuple(writes.values()), (), None, backward=True),)


def _sum_so_far(op: Op, write: Flow, plan: Plan, workload: Workload) -> tuple[Flow, ...]:
    """What a pass reads to add to: the gradient of the micro-batches before, and of a weight that a later operation here reads, too, what
    that one's pass left in this one."""
    kept = adds_in_place(plan, write.tensor, workload)
    if workload.tensors[write.tensor].kind != "weight" or (kept and plan.adds_apart):
        return ()
    here = [reader for reader in workload.readers[write.tensor] if plan.stages[reader] == plan.stages[op.name]]
    if here[-1] != op.name:
        return (write,)
    return (replace(write, volume=replace(write.volume, again=True)),) if kept else ()


def _operand(access: Access, workload: Workload, *, gradient: bool = False) -> Operand:
    tensor = workload.tensors[access.tensor]
    weight = tensor.kind == "weight"
    of_weight = gradient and weight
    bits = workload.gradient_bits if of_weight else tensor.bits
    return Operand(tensor.name, access, bits, weight=weight and not gradient, gradient=gradient, of_weight=of_weight)


def _of_operand(op: Op, position: int, plan: Plan, workload: Workload) -> Volume:
    """The part of an operand that an accelerator reads, the borders of its windows included."""
    access, tensor = op.ins[position], workload.tensors[op.ins[position].tensor]
    share = _share(access, plan.needs(op, position, workload), plan, workload)
    found = overlaps(op, position, plan, workload)
    return replace(share, borders=tuple((shared / tensor.sizes[rank], axes) for rank, axes, shared in found)) if found else share


def _share(access: Access, layout: Layout, plan: Plan, workload: Workload) -> Volume:
    tensor = workload.tensors[access.tensor]
    return local(tensor.bytes, layout, tensor, plan)


def _gradient(op: Op, position: int, flow: Flow, plan: Plan, workload: Workload) -> Flow:
    """The gradient of an operand: as large as the operand, a weight's in the gradient's precision where it is added up as it is made."""
    tensor, share = workload.tensors[op.ins[position].tensor], flow.volume
    if tensor.kind == "weight" and not (plan.adds_apart and adds_in_place(plan, tensor.name, workload)):
        share = replace(share, total=share.total * tensor.elements * workload.gradient_bits / 8 / tensor.bytes)
    return Flow(tensor.name, _of_gradient(share, tensor.name, workload), gradient=True)


def _of_gradient(share: Volume, name: str, workload: Workload) -> Volume:
    """The part of an activation's gradient, which may be wider than the activation."""
    tensor = workload.tensors[name]
    if not tensor.gradient_bits or tensor.bits == 0:
        return share
    return replace(share, total=share.total * tensor.gradient_bytes / tensor.bytes)


def _local_op(
    op: Op,
    plan: Plan,
    workload: Workload,
    reads: tuple[Flow, ...],
    writes: tuple[Flow, ...],
    operands: tuple[Operand, ...],
    result: Operand | None,
    *,
    backward: bool,
) -> LocalOp:
    tensors = [workload.tensors[access.tensor] for access in (op.out, *op.ins)]
    flash = any(access.tensor in plan.flash for access in (op.out, *op.ins))
    run = _series(op, plan, backward=backward)
    return LocalOp(
        **_of_sizes(op, plan, workload, reads, writes, backward=backward),
        macs=op.kind.name == "einsum",
        kind="" if op.kind.name == "einsum" or run.streams else op.kind.name,
        per_element=float(op.kind.flops[int(backward)]),
        bits=operand_bits(op, tensors, workload),
        operands=operands,
        result=result,
        kernel=f"attention {'backward' if backward else 'forward'}" if flash else "",
        joined=op.out.tensor in plan.on_chip or (op.name in plan.joined and not backward),
        kernels=run.kernels,
        prompted=run.prompts or run.kernels,
        family=operand_family(op, tensors, workload),
        attention=attention_roles(op, plan.flash, workload) if flash else None,
        skew=workload.serving.skew if workload.serving is not None and op.kind.name == "einsum" else 0.0,
        summed=plan.summed.get(op.name, ()) if not backward else (),
        attended=_attended(op, plan, workload) and not flash,
    )


def _attended(op: Op, plan: Plan, workload: Workload) -> bool:
    """Whether the first operand is what a fused attention writes."""
    writer = workload.maker(op.ins[0].tensor) if op.ins else None
    return writer is not None and any(access.tensor in plan.flash for access in writer.ins)


def _of_sizes(
    op: Op, plan: Plan, workload: Workload, reads: tuple[Flow, ...], writes: tuple[Flow, ...], *, backward: bool
) -> dict[str, Any]:
    """What follows from sizes: what moves, the space, and how much of it is there."""
    tensors = [workload.tensors[access.tensor] for access in (op.out, *op.ins)]
    reads_itself = op.kind.name == "dispatch" or op.kind.inner == "selects"  # a call over experts gathers rows as it reads them
    gathered = reads_itself and op.name in plan.joined and not backward
    kept = tuple(replace(flow, volume=Volume(0.0)) for flow in writes) if gathered else _moved(writes, plan)
    there = read_as_keys(op, plan.flash, workload) if plan.flash and not backward else frozenset[str]()
    run = _series(op, plan, backward=backward)
    return {
        "reads": _read_parts(_moved(reads, plan, there), run),
        "writes": (*kept, *_temporaries(op, run, plan, workload)),
        "space": iteration_space(op, plan, workload),
        "density": _least([tensor.density for tensor in tensors if tensor.kind != "weight"]),
        "weight_density": _least([tensor.density for tensor in tensors if tensor.kind == "weight"]),
        "each": _experts(op, plan, workload),
        "cuts": _crowds(op, tensors, plan, workload),
    }


def _crowds(op: Op, tensors: list[Tensor], plan: Plan, workload: Workload) -> tuple[Cut, ...]:
    """Of experts that are chosen unevenly, what splits them."""
    crowds = {rank: most for tensor in tensors for rank, most in tensor.crowded}
    split = {index: axes for index, _, axes in iteration_space(op, plan, workload) if axes} if crowds else {}
    return tuple(((rank,), Crowd(most), split[rank]) for rank, most in crowds.items() if rank in split)


def _read_parts(flows: tuple[Flow, ...], run: KernelRun) -> tuple[Flow, ...]:
    """What kernels read of their operands that skip a share of them."""
    if not run.skipped:
        return flows
    return tuple(replace(flow, volume=replace(flow.volume, total=flow.volume.total * (1.0 - run.skipped))) for flow in flows)


def _experts(op: Op, plan: Plan, workload: Workload) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """(size, axes that split it) of the indices that count experts: of a product, those that a weight shares with sparse activations."""
    weights = [access for access in op.ins if workload.tensors[access.tensor].kind == "weight"] if op.kind.name == "einsum" else []
    rest = (access for access in op.ins if access not in weights) if weights else ()
    sparse = [access for access in rest if np.all(workload.tensors[access.tensor].density < 1)]
    if not sparse:
        return ()
    shared = set(weights[0].names) & set(sparse[0].names) & set(op.out.names)
    choices = plan.choices[op.name]
    return tuple((workload.sizes[index], tuple(axis for axis, choice in enumerate(choices) if choice == index)) for index in sorted(shared))


def _series(op: Op, plan: Plan, *, backward: bool) -> KernelRun:
    """The kernels that a pass of an operation runs as: one, where the profile does not say otherwise or a larger kernel holds it."""
    found = plan.composites.get(op.kind.name)
    if found is None or any(access.tensor in plan.flash for access in (op.out, *op.ins)):
        return ONE_KERNEL
    return found.backward if backward else found.forward


def _temporaries(op: Op, run: KernelRun, plan: Plan, workload: Workload) -> tuple[Flow, ...]:
    """What the kernels of one pass hand to each other through memory."""
    volumes = _between(op, run.bytes, run.over_ranks.bytes, plan, workload)
    return tuple(Flow(f"{op.out.tensor}.temporary", volume) for volume in volumes)


def held_between(op: Op, plan: Plan, workload: Workload, *, backward: bool) -> tuple[Volume, ...]:
    """What the kernels of one pass hold at once of what they hand to each other."""
    key = ("between", op.name, plan.choices[op.name], plan.flash, id(plan.composites), backward)
    if key not in plan.known:
        run = _series(op, plan, backward=backward)
        plan.known[key] = _between(op, run.held, run.over_ranks.held, plan, workload)
    return plan.known[key]  # type: ignore[no-any-return]


def _between(op: Op, each: Any, more: float, plan: Plan, workload: Workload) -> tuple[Volume, ...]:
    """So many bytes for each element of an operation's first operand, and more where ranks share an index that it normalises over."""
    found = [_first(op, each, plan, workload)]
    shared = tuple(axis for axis, index in enumerate(plan.choices[op.name]) if index in op.over) if more else ()
    if shared:
        found.append(replace(_first(op, more, plan, workload), among=shared))
    return tuple(volume for volume in found if not volume.empty)


def _first(op: Op, each: Any, plan: Plan, workload: Workload) -> Volume:
    """So many bytes (an array: in each column) for each element of an operation's first operand; of tokens sent to experts, for each of
    their copies."""
    if op.kind.name == "dispatch":
        return _elements(op.out, plan.leaves(op), plan, workload, each)
    return _elements(op.ins[0], plan.needs(op, 0, workload), plan, workload, each)


def cast_ops(op: Op, plan: Plan, workload: Workload, *, backward: bool) -> tuple[LocalOp, ...]:
    """Kernels that cast operands of a product of low precision before it: in the forward pass activations, by the operation that reads
    them first, and weights; in the backward pass the gradient of the result and, where it is cast again, what the forward pass read."""
    bits = max((workload.tensors[access.tensor].bits for access in op.ins), default=0)
    casts = plan.casts.get(bits) if op.kind.name == "einsum" else None
    if casts is None:
        return ()
    found = []
    if backward and op.out.tensor not in plan.on_chip:
        found.append((Flow(op.out.tensor, _elements(op.out, plan.leaves(op), plan, workload, casts.gradient), gradient=True), op.out))
    for position, access in enumerate(op.ins):
        weight = workload.tensors[access.tensor].kind == "weight"
        made_by = workload.producer.get(access.tensor)
        in_place = not backward and made_by is not None and workload.ops[made_by].kind.name in casts.fused
        if not weight and (in_place or workload.readers[access.tensor][0] != op.name):
            continue
        each = casts.again if backward else casts.weight if weight else casts.activation
        found.append((Flow(access.tensor, _elements(access, plan.needs(op, position, workload), plan, workload, each)), access))
    experts = _experts(op, plan, workload)
    return tuple(replace(_cast(flow, access, workload), each=experts) for flow, access in found if not flow.volume.empty)


def head_ops(op: Op, plan: Plan, workload: Workload, *, backward: bool) -> tuple[LocalOp, ...]:
    """Kernels around attention beside its operations, before the product of queries and keys, and those that join its parts where keys go
    round among ranks; none of another."""
    run, joining = (plan.heads.backward, plan.heads.ring.backward) if backward else (plan.heads.forward, plan.heads.ring.forward)
    if op.name not in plan.attending:
        return ()
    queries, layout = op.ins[0], plan.needs(op, 0, workload)
    found = []
    for each, kernels, name, others in ((run.bytes, run.kernels, "heads", ()), (joining, 1, "ring", _ring(op, plan, workload))):
        volume = replace(_elements(queries, layout, plan, workload, each), others=others)
        flow = Flow(queries.tensor, volume, gradient=backward)
        if not volume.empty and (others or name == "heads"):
            moved = replace(_cast(flow, queries, workload), kernels=kernels)
            found.append(replace(moved, writes=(replace(flow, tensor=f"{flow.tensor}.{name}"),)))
    return tuple(found)


def _ring(op: Op, plan: Plan, workload: Workload) -> tuple[int, ...]:
    """Axes whose ranks share a context: they split the tokens of the queries, and each needs all keys, which go round among them."""
    tokens = workload.tensors[op.ins[1].tensor].ranks
    own, others = (plan.needs(op, position, workload) for position in (0, 1))
    return tuple(
        axis for axis, (queries, keys) in enumerate(zip(own, others, strict=True)) if rank_split(queries) in tokens and not is_shard(keys)
    )


def ordered_op(tensor: Tensor, layout: Layout, ranks: tuple[int, ...], each: float, plan: Plan, *, gradient: bool) -> LocalOp:
    """The kernel that copies a gathered weight from the order of its ranks, or its gradient into that order, where there is more than one.

    layout: of what it copies · ranks: axes of the collective · each: bytes moved for an element."""
    volume = replace(local(tensor.elements * each, layout, tensor, plan), among=ranks)
    return LocalOp(
        reads=(),
        writes=(Flow(f"{tensor.name}.copy", volume, gradient=gradient),),
        space=(("elements", whole_elements(tensor.elements), volume.axes),),
        macs=False,
        per_element=0.0,
        density=1.0,
        bits=16,
        joined=True,
        cuts=volume.cuts,
    )


def _elements(access: Access, layout: Layout, plan: Plan, workload: Workload, each: Any) -> Volume:
    tensor = workload.tensors[access.tensor]
    return local(tensor.elements * each, layout, tensor, plan)


def _cast(flow: Flow, access: Access, workload: Workload) -> LocalOp:
    elements = whole_elements(workload.tensors[access.tensor].elements)
    return LocalOp(
        reads=(),
        writes=(replace(flow, tensor=f"{flow.tensor}.cast"),),
        space=(("elements", elements, flow.volume.axes),),
        macs=False,
        per_element=CAST_FLOPS,
        density=1.0,
        bits=32,
        cuts=flow.volume.cuts,
    )


def _least(densities: list[Any]) -> Any:
    """The least of them, 1 where there are none: a number, or an array over steps of unlike sizes."""
    if all(isinstance(density, float) for density in densities):
        return min(densities, default=1.0)
    return reduce(np.minimum, densities)


def operand_family(op: Op, tensors: list[Tensor], workload: Workload) -> str:
    """Kind of a product's operands where their width does not say it: as the workload's products of quantised weights."""
    quantised = any(tensor.kind == "weight" and 0 < tensor.bits < WIDEST_QUANTISED for tensor in tensors[1:])
    return workload.product_family if op.kind.name == "einsum" and quantised else ""


def operand_bits(op: Op, tensors: list[Tensor], workload: Workload) -> int:
    """Width that an operation works in: of a product its widest operand; with a quantised weight, as the workload says. tensors: what it
    writes, then what it reads."""
    if op.kind.name != "einsum":
        return max(tensor.bits for tensor in tensors)
    widest = max(tensor.bits for tensor in tensors[1:])
    weight = min((tensor.bits for tensor in tensors[1:] if tensor.kind == "weight"), default=widest)
    return max(weight, workload.product_bits) if workload.product_bits and weight < widest else widest


def _moved(flows: tuple[Flow, ...], plan: Plan, there: frozenset[str] = frozenset()) -> tuple[Flow, ...]:
    """The same without the traffic of what stays on the chip, gradients included. there: what a kernel has read already."""
    still = plan.on_chip | there
    return tuple(replace(flow, volume=Volume(0.0)) if flow.tensor in still else flow for flow in flows) if still else flows


def iteration_space(op: Op, plan: Plan, workload: Workload) -> tuple[tuple[str, int, tuple[int, ...]], ...]:
    """(index, size, axes that split it) for each index; indices of a flattening that the degree does not factor are one."""
    choices = plan.choices[op.name]
    space: list[tuple[str, int, tuple[int, ...]]] = []
    joined: dict[str, tuple[str, ...]] = {}
    for axis, name in enumerate(plan.axes):
        flat = plan.flat.get(name, ())
        if flat and choices[axis] == flat[0]:
            joined[flat[0]] = tuple(index for index in flat if index in op.indices)
    inside = {index for indices in joined.values() for index in indices[1:]}
    for index in op.indices:
        if index in inside:
            continue
        size = prod(workload.sizes[i] for i in joined.get(index, (index,)))
        space.append((index, size, tuple(axis for axis, choice in enumerate(choices) if choice == index)))
    return tuple(space)


def statistics_axes(op: Op, plan: Plan) -> tuple[int, ...]:
    """Axes that split an index the operation normalises over."""
    return tuple(axis for axis, choice in enumerate(plan.choices[op.name]) if choice is not None and choice in op.over)


def statistics_rows(op: Op, plan: Plan, workload: Workload) -> Volume:
    """Rows (points outside the normalised indices) on one accelerator; times numbers per row times 4 bytes is the message."""
    rows = tuple(index for index in op.out.names if index not in op.over)
    axes, out = tuple(axis for axis, choice in enumerate(plan.choices[op.name]) if choice in rows), workload.tensors[op.out.tensor]
    total = 1.0 * prod(workload.sizes[index] for index in rows)
    kept = tuple(p if axis in axes else REPLICATE for axis, p in enumerate(plan.leaves(op)))
    return Volume(total, axes, cuts=cuts_of((kept,), out, plan))
