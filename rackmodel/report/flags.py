"""Launch flags: the arguments that start a found mapping under Megatron-LM, torchtitan or DeepSpeed.

What an axis is follows from the index it splits in every operation of a layer, never from its name: the batch = data;
the sequence everywhere = context; the sequence, but heads inside attention = Ulysses; heads and feed-forward = tensor,
with the norms split over the sequence = sequence parallel; experts inside the experts and the batch outside = expert.
Model sizes are read off the ranks in the same way. What a framework cannot say becomes a note.

Names checked against: Megatron-LM megatron/training/arguments.py (commit 000c4ac, Core 0.14 or later) and
core/transformer/transformer_config.py (limits of query groups and offloading); torchtitan torchtitan/config/job_config.py
(commit 000204a, 2025); Megatron-DeepSpeed megatron/arguments.py (commit 207b2d5), DeepSpeed docs "DeepSpeed Configuration
JSON" and runtime/pipe/engine.py (no ZeRO-2 or 3 with a pipeline).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from math import prod
from typing import Any

from rackmodel.errors import InputError
from rackmodel.model.mapping import HomeSpec, MappingSpec, StepSpec
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.workload import Op, Workload


@dataclass(frozen=True)
class Launch:
    """notes: what the arguments cannot say · arguments: one flag with its value each · config: text of the file `config_name`;
    `needs_config` where the arguments alone do not start the mapping."""

    framework: str
    notes: tuple[str, ...]
    arguments: tuple[str, ...]
    config_name: str = ""
    config: str = ""
    needs_config: bool = False

    def lines(self) -> list[str]:
        """Notes as comments, then the arguments as a shell reads them, then the file they need."""
        out = [f"# {note}" for note in self.notes]
        out += [f"{argument} \\" for argument in self.arguments[:-1]] + list(self.arguments[-1:])
        return [*out, f"# {self.config_name}:", *self.config.splitlines()] if self.needs_config else out

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in self.__dict__.items() if k != "needs_config"}


@dataclass(frozen=True)
class Shape:
    """Sizes of a transformer, and the ranks they were read off. groups: key-value heads · ffn: of one expert, where there are any."""

    layers: int
    hidden: int
    heads: int
    groups: int
    head: int
    ffn: int
    sequence: int
    vocab: int
    experts: int
    top_k: int
    rms: bool
    gated: bool
    rope: bool
    tied: bool
    biased: bool
    dropout: bool
    body: Workload
    position: str
    head_ranks: tuple[str, ...]
    ffn_rank: str
    vocab_rank: str
    expert_rank: str
    scores: str
    key_rank: str


@dataclass(frozen=True)
class Meaning:
    """What a mapping's axes are. degrees: by role, data with the expert degree in it · order: roles, innermost first ·
    zero: ZeRO stage, over all of the data and context axes but `copies` of them · layers: of each virtual stage where they
    differ · windows, reductions: whether collectives on activations and on gradients hide beside compute."""

    degrees: dict[str, int]
    sequence_parallel: bool
    ulysses: bool
    order: tuple[str, ...]
    zero: int
    copies: int
    accumulation: int
    batch: int
    step: StepSpec
    recompute: str
    layers: tuple[int, ...]
    windows: bool
    reductions: bool
    flash: bool
    gradient_bits: int
    weight_bits: int
    optimizer: str
    notes: tuple[str, ...]


def launch_flags(framework: str, workload: Workload, mapping: MappingSpec, profile: ProfileSpec | None = None) -> Launch:
    """The arguments that start a mapping. profile: what it was priced under (overlap windows, flash attention).

    Raises InputError for an unknown framework, and where the workload is no transformer in sections.
    """
    if framework not in FRAMEWORKS:
        raise InputError(f"no framework called '{framework}'", path="--flags", known=tuple(FRAMEWORKS), given=framework)
    if not workload.sections or mapping.step is None:
        raise InputError("launch flags are for a model in sections, such as gpt", path="--flags")
    shape = model_shape(workload)
    return FRAMEWORKS[framework](shape, axis_meanings(workload, mapping, shape, profile))


# -- the model -----------------------------------------------------------------------------------------------------------


def model_shape(workload: Workload) -> Shape:
    """Sizes of a transformer in sections, by what its ranks do. Raises InputError where it has no attention or feed-forward."""
    layer = next((section for section in workload.sections if section.layer), None)
    body = layer.workload if layer is not None else workload
    scores = _scores(body)
    if layer is None or scores is None:
        raise InputError("no layer with attention (a softmax over a product of two activations)", path="--flags")
    size, ops = workload.sizes, list(body.ops.values())
    carried = {rank for weight in body.weights for rank in body.tensors[weight].ranks}
    stream = body.tensors[layer.stream_in].ranks
    width = [rank for rank in stream if rank in carried]
    position = next((rank for rank in stream if rank != workload.batch and rank not in carried), "")
    maker, key = scores
    heads = tuple(rank for rank in maker.out.names if rank not in (workload.batch, position, key))
    keys = next(access for access in maker.ins if key in access.names)
    spread = next((op for op in ops if op.statement.kind == "dispatch"), None)
    experts = [rank for rank in spread.out.names if rank not in spread.ins[0].names] if spread is not None else []
    inner = [rank for rank in carried if rank not in (*width, *heads, *maker.contracted, *experts)]
    if len(inner) != 1 or len(experts) > 1 or not position:
        raise InputError(f"no single feed-forward rank among the weights' ranks {sorted(carried)}", path="--flags")
    first, last = workload.sections[0].workload, workload.sections[-1].workload
    vocab = [rank for weight in last.weights for rank in last.tensors[weight].ranks if rank not in width]
    norms = [op for op in ops if op.statement.kind in ("layernorm", "rmsnorm")]
    kinds = {op.statement.kind for section in workload.sections for op in section.workload.ops.values()}
    return Shape(
        layers=sum(section.repeat for section in workload.sections if section.layer),
        hidden=prod(size[rank] for rank in width),
        heads=prod(size[rank] for rank in heads),
        groups=prod(size[rank] for rank in heads if rank in keys.names),
        head=prod(size[rank] for rank in maker.contracted),
        ffn=size[inner[0]],
        sequence=size[position],
        vocab=prod(size[rank] for rank in vocab),
        experts=size[experts[0]] if experts else 0,
        top_k=round(body.tensors[spread.out.tensor].density * size[experts[0]]) if spread is not None and experts else 0,
        rms=any(op.statement.kind == "rmsnorm" for op in norms),
        gated="swiglu" in kinds,
        rope="rope" in kinds,
        tied=bool(set(first.weights) & set(last.weights)),
        biased=any(len(op.ins) > 2 for op in norms),
        dropout="dropout" in kinds,
        body=body,
        position=position,
        head_ranks=heads,
        ffn_rank=inner[0],
        vocab_rank=vocab[0] if vocab else "",
        expert_rank=experts[0] if experts else "",
        scores=maker.name,
        key_rank=key,
    )


def _scores(body: Workload) -> tuple[Op, str] | None:
    """The product of queries and keys, and the index the softmax normalises over: neither operand is a weight."""
    for op in body.ops.values():
        if op.statement.kind == "softmax" and len(op.over) == 1:
            maker = body.ops.get(body.producer.get(op.ins[0].tensor, ""))
            while maker is not None and maker.statement.kind == "scale":
                maker = body.ops.get(body.producer.get(maker.ins[0].tensor, ""))
            if maker is not None and len(maker.ins) == 2 and not any(access.tensor in body.weights for access in maker.ins):
                return maker, op.over[0]
    return None


# -- the axes ------------------------------------------------------------------------------------------------------------


def axis_meanings(workload: Workload, mapping: MappingSpec, shape: Shape, profile: ProfileSpec | None = None) -> Meaning:
    """The role of every axis, by what it splits in each operation of a layer."""
    step = mapping.step
    assert step is not None
    roles = {axis: _role(_choices(mapping, axis, shape), workload, shape) for axis, placed in mapping.axes.items() if placed.degree > 1}

    def degree(role: str) -> int:
        return prod(mapping.axes[axis].degree for axis, found in roles.items() if found.split("+")[0] == role)

    batch, data = workload.sizes[workload.batch], degree("data") * degree("expert")
    stage, copies, doubts = _zero(mapping, roles)
    windows = profile is None or any(window.beside != "none" for window in profile.overlap.windows.values())
    reductions = profile is None or profile.overlap.weights or profile.overlap.hides_gradients
    return Meaning(
        degrees={
            "tensor": degree("tensor"),
            "context": degree("context") * degree("ulysses"),
            "expert": degree("expert"),
            "data": data,
            "pipeline": step.pipeline.degree,
        },
        sequence_parallel="tensor+sequence" in roles.values(),
        ulysses="ulysses" in roles.values(),
        order=_order(mapping, roles),
        zero=stage,
        copies=copies,
        accumulation=batch // (data * step.micro_batch),
        batch=batch,
        step=step,
        recompute=mapping.recompute,
        layers=tuple(step.layers) if len(set(step.layers)) > 1 else (),
        windows=step.hide_activations and windows,
        reductions=step.hide_gradients and reductions,
        flash=profile is not None and profile.attention == "flash",
        gradient_bits=workload.gradient_bits,
        weight_bits=max(shape.body.tensors[weight].bits for weight in shape.body.weights),
        optimizer=workload.optimizer,
        notes=(*_doubts(workload, mapping, shape, roles), *doubts),
    )


def _choices(mapping: MappingSpec, axis: str, shape: Shape) -> dict[str, str | None]:
    return {op: mapping.ops.get(op, {}).get(axis) for op in shape.body.ops}


def _doubts(workload: Workload, mapping: MappingSpec, shape: Shape, roles: dict[str, str]) -> list[str]:
    """What no framework can say of a mapping's axes."""
    assert mapping.step is not None
    notes = [f"{mapping.accelerators} processes, one an accelerator"]
    kinds = [section.name for section in workload.sections if section.layer]
    if len(kinds) > 1:
        notes.append(f"layers of {len(kinds)} kinds ({', '.join(kinds)}): sizes and axes are those of {kinds[0]}")
    for axis, role in roles.items():
        if not role:
            found: dict[str, list[str]] = {}
            for op, choice in _choices(mapping, axis, shape).items():
                found.setdefault(choice or "whole", []).append(op)
            layout = "; ".join(f"{choice}: {', '.join(ops)}" for choice, ops in found.items())
            notes.append(f"axis '{axis}' of {mapping.axes[axis].degree} has a layout that no argument can say ({layout})")
        ends = [op for op in workload.ops.values() if op.name not in shape.body.ops and shape.vocab_rank in op.indices]
        whole = [op.name for op in ends if mapping.ops.get(op.name, {}).get(axis) != shape.vocab_rank]
        if role.startswith("tensor") and whole:
            notes.append(f"axis '{axis}' does not split the vocabulary in {', '.join(whole)}; tensor parallelism does")
    if {"tensor", "tensor+sequence"} <= set(roles.values()):
        notes.append("one tensor axis splits the norms over the sequence and another does not: no argument can say it")
    if {"context", "ulysses"} <= set(roles.values()):
        notes.append("one context axis splits attention by heads (Ulysses) and another does not: given as one degree")
    if "gathered" in mapping.save.values() and "tensor+sequence" in roles.values():
        notes.append("the mapping keeps gathered activations for the backward pass; frameworks gather them again")
    if mapping.step.algorithms != ["ring"]:
        notes.append(f"collectives are the fastest of {', '.join(mapping.step.algorithms)} each; NCCL chooses by itself")
    if mapping.uneven == "ceil":
        notes.append("degrees need not divide sizes in this mapping (uneven: ceil); frameworks want divisors")
    return notes


def _zero(mapping: MappingSpec, roles: dict[str, str]) -> tuple[int, int, list[str]]:
    """(ZeRO stage, copies of what is sharded, what cannot be said)."""
    notes = []
    stages = {_stage(home): home for home in mapping.homes.values() if home.at is None}
    if any(home.at is not None for home in mapping.homes.values()):
        notes.append("weights that stream from a level of their own have no argument")
    if len(stages) > 1:
        notes.append(f"weights have different homes (ZeRO {', '.join(map(str, sorted(stages)))}); the arguments give all of them the least")
    stage = min(stages, default=0)
    home = stages.get(stage)
    over = {axis for axis in home.axes if axis in roles} if home is not None and stage else set()
    if any(roles[axis].startswith("tensor") for axis in over):
        notes.append("parameters that are sharded over a tensor axis once more have no argument")
    if not over:
        return 0, 1, notes
    left = {axis for axis, role in roles.items() if role in ("data", "expert", "context", "ulysses")} - over
    if any(roles[axis] != "data" for axis in left):
        notes.append(f"ZeRO leaves out {', '.join(sorted(a for a in left if roles[a] != 'data'))}; frameworks shard over it too")
    return stage, prod(mapping.axes[axis].degree for axis in left if roles[axis] == "data"), notes


def _stage(home: HomeSpec) -> int:
    return 3 if home.param == "shard" else 2 if home.grad == "shard" else 1 if home.state == "shard" else 0


def _order(mapping: MappingSpec, roles: dict[str, str]) -> tuple[str, ...]:
    """Roles of more than one member, innermost first, neighbours of one role joined."""
    assert mapping.step is not None
    placed = [(mapping.axes[axis].stride, role.split("+")[0] or axis) for axis, role in roles.items()]
    if mapping.step.pipeline.degree > 1:
        placed.append((mapping.step.pipeline.stride, "pipeline"))
    words = {"ulysses": "context"}
    return tuple(role for role, _ in groupby(words.get(role, role) for _, role in sorted(placed)))


def _role(choices: dict[str, str | None], workload: Workload, shape: Shape) -> str:
    """'data', 'context', 'ulysses', 'expert', 'tensor', 'tensor+sequence', or '' for what has no name."""
    ops, batch, position = shape.body.ops, workload.batch, shape.position
    said = set(choices.values())
    if said <= {batch}:
        return "data"
    if said <= {position}:
        return "context"
    inside = {name for name in choices if shape.expert_rank in ops[name].indices and shape.ffn_rank in ops[name].indices}
    if inside and all(choices[name] == (shape.expert_rank if name in inside else batch) for name in choices):
        return "expert"
    core = {name for name in choices if shape.key_rank in ops[name].indices}
    if core and all(c in shape.head_ranks if name in core else c == position for name, c in choices.items()):
        return "ulysses"
    split = choices.get(shape.scores)
    heads = {name for name in choices if set(shape.head_ranks) & set(ops[name].indices)}
    feed = {name for name in choices if shape.ffn_rank in ops[name].indices}
    stream = {choices[name] for name in choices if name not in heads | feed}
    if split not in shape.head_ranks or any(choices[name] != shape.ffn_rank for name in feed):
        return ""
    if any(choices[name] != (split if split in ops[name].indices else None) for name in heads):
        return ""
    return "tensor" if stream <= {None} else "tensor+sequence" if stream == {position} else ""


# -- Megatron-LM ---------------------------------------------------------------------------------------------------------

ORDERS = (("tensor", "context", "expert", "data", "pipeline"), ("tensor", "context", "expert", "pipeline", "data"))
SHARDING = {2: "optim_grads", 3: "optim_grads_params"}


def _megatron(shape: Shape, found: Meaning) -> Launch:
    degrees, step, notes = found.degrees, found.step, list(found.notes)
    said = [
        *_sizes(shape, found),
        *_if(shape.groups < shape.heads, "--group-query-attention", f"--num-query-groups {shape.groups}"),
        f"--normalization {'RMSNorm' if shape.rms else 'LayerNorm'}",
        f"--position-embedding-type {'rope' if shape.rope else 'learned_absolute'}",
        *_if(
            shape.experts > 0,
            f"--num-experts {shape.experts}",
            f"--moe-router-topk {shape.top_k}",
            f"--moe-ffn-hidden-size {shape.ffn}",
            "--moe-token-dispatcher-type alltoall",
        ),
        f"--tensor-model-parallel-size {degrees['tensor']}",
        f"--pipeline-model-parallel-size {degrees['pipeline']}",
        *_if(degrees["context"] > 1, f"--context-parallel-size {degrees['context']}"),
        *_if(degrees["context"] > 1, f"--cp-comm-type {'a2a' if found.ulysses else 'allgather'}"),
        *_if(shape.experts > 0, f"--expert-model-parallel-size {degrees['expert']}"),
        *_if(found.sequence_parallel, "--sequence-parallel"),
        *_megatron_pipeline(shape, found, notes),
        *_if(found.zero == 1, "--use-distributed-optimizer"),
        *_if(
            found.zero > 1,
            "--use-distributed-optimizer",
            "--use-megatron-fsdp",
            f"--data-parallel-sharding-strategy {SHARDING.get(found.zero, '')}",
            "--ckpt-format fsdp_dtensor",
        ),
        *_if(found.copies > 1, f"--num-distributed-optimizer-instances {found.copies}"),
        *_if(found.reductions and degrees["data"] * degrees["context"] > 1, "--overlap-grad-reduce"),
        *_if(found.reductions and degrees["data"] * degrees["context"] > 1 and found.zero > 0, "--overlap-param-gather"),
        *_if(found.windows and found.sequence_parallel, "--tp-comm-overlap"),
        *_if(found.recompute == "selective", "--recompute-granularity selective"),
        *_if(found.recompute == "full", "--recompute-granularity full", "--recompute-method uniform", "--recompute-num-layers 1"),
        *_if("optimizer" in step.offload, "--optimizer-cpu-offload", "--use-precision-aware-optimizer"),
        *_if(found.flash, "--use-flash-attn"),
        *_if(found.weight_bits == 16, "--bf16"),
        *_if(found.weight_bits == 16 and found.gradient_bits == 16, "--grad-reduce-in-bf16"),
    ]
    known = [order for order in ORDERS if list(found.order) == sorted(found.order, key=lambda role: (*order, role).index(role))]
    if not known:
        notes.append(
            f"ranks lie {'-'.join(found.order)} from the inside; Megatron has tensor-context-expert-data-pipeline, or pipeline-data"
        )
    elif ORDERS[0] not in known:
        said.append("--use-tp-pp-dp-mapping")
    if found.zero > 1:
        older = f"ZeRO-{found.zero} needs Megatron FSDP, which older versions lack; --use-distributed-optimizer alone is ZeRO-1"
        notes.append(f"{older}; not with --use-tp-pp-dp-mapping" if "--use-tp-pp-dp-mapping" in said else older)
        notes.append("Megatron FSDP wants CUDA_DEVICE_MAX_CONNECTIONS unset or above 1")
    elif degrees["tensor"] * degrees["context"] > 1:
        notes.append("before Blackwell: export CUDA_DEVICE_MAX_CONNECTIONS=1")
    if shape.groups % degrees["tensor"]:
        notes.append(f"Megatron wants the {shape.groups} query groups to be a multiple of tensor parallelism {degrees['tensor']}")
    if degrees["context"] > 1 and shape.sequence % (2 * degrees["context"]):
        notes.append("Megatron wants a sequence that is a multiple of twice the context degree")
    if found.windows and degrees["tensor"] > 1 and not found.sequence_parallel:
        notes.append("overlap of tensor collectives: --tp-comm-overlap wants --sequence-parallel")
    if "activations" in step.offload:
        notes.append("offloaded activations: --cpu-offloading-num-layers takes whole layers, without pipeline or recomputing")
    if "weights" in step.offload:
        notes.append("offloaded weights have no argument in Megatron")
    if not found.flash:
        notes.append("attention was priced unfused; --use-flash-attn (or --attention-backend) is another point of the space")
    return Launch("megatron", tuple(notes), tuple(said))


def _megatron_pipeline(shape: Shape, found: Meaning, notes: list[str]) -> list[str]:
    """The schedule: 1F1B is the default, interleaving and uneven cuts are arguments, others are not there."""
    step, stages = found.step, found.degrees["pipeline"]
    if stages == 1:
        return []
    if step.schedule not in ("1f1b", "interleaved"):
        notes.append(f"schedule {step.schedule} has no argument in Megatron-LM, which runs 1f1b (zero bubble: a fork of it)")
    if found.layers:
        parts = ["t" if count == 1 else f"t*{count}" for count in found.layers]
        notes.append("an uneven cut needs --pipeline-model-parallel-layout, which versions to Core 0.12 lack")
        return [f"--pipeline-model-parallel-layout 'E{'|'.join(parts)}L'"]
    return _if(step.interleave > 1, f"--num-layers-per-virtual-pipeline-stage {shape.layers // (stages * step.interleave)}")


def _sizes(shape: Shape, found: Meaning) -> list[str]:
    """Sizes that Megatron-LM and Megatron-DeepSpeed say alike."""
    return [
        f"--num-layers {shape.layers}",
        f"--hidden-size {shape.hidden}",
        f"--ffn-hidden-size {shape.ffn}",
        f"--num-attention-heads {shape.heads}",
        *_if(shape.head * shape.heads != shape.hidden, f"--kv-channels {shape.head}"),
        f"--seq-length {shape.sequence}",
        f"--max-position-embeddings {shape.sequence}",
        f"--vocab-size {shape.vocab}",
        "--make-vocab-size-divisible-by 1",
        *_if(not shape.tied, "--untie-embeddings-and-output-weights"),
        *_if(shape.gated, "--swiglu"),
        *_if(not shape.biased, "--disable-bias-linear"),
        *_if(not shape.dropout, "--attention-dropout 0", "--hidden-dropout 0"),
        f"--micro-batch-size {found.step.micro_batch}",
        f"--global-batch-size {found.batch}",
        *_if(found.optimizer != "adam", f"--optimizer {found.optimizer}"),
    ]


def _if(true: bool, *words: str) -> list[str]:
    return list(words) if true else []


# -- torchtitan ----------------------------------------------------------------------------------------------------------

TITAN_SCHEDULES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved1F1B"}


def _torchtitan(shape: Shape, found: Meaning) -> Launch:
    degrees, step, notes = found.degrees, found.step, list(found.notes)
    piped = degrees["pipeline"] > 1
    replicas = degrees["data"] if found.zero == 0 else found.copies
    parallelism: dict[str, Any] = {
        "data_parallel_replicate_degree": replicas,
        "data_parallel_shard_degree": degrees["data"] // replicas,
        "tensor_parallel_degree": degrees["tensor"],
        "context_parallel_degree": degrees["context"],
        "pipeline_parallel_degree": degrees["pipeline"],
    }
    if found.zero:
        parallelism["fsdp_reshard_after_forward"] = "always" if found.zero == 3 else "never"
    if shape.experts:
        parallelism["expert_parallel_degree"] = degrees["expert"]
    if found.windows and degrees["tensor"] > 1:
        parallelism["enable_async_tensor_parallel"] = True
        notes.append("async tensor parallelism works with --training.compile alone")
    if piped:
        parallelism["pipeline_parallel_microbatch_size"] = step.micro_batch
        if step.schedule in TITAN_SCHEDULES:
            parallelism["pipeline_parallel_schedule"] = TITAN_SCHEDULES[step.schedule]
        else:
            notes.append(f"schedule {step.schedule} has no exact name; nearest are InterleavedZeroBubble and ZBVZeroBubble")
        if found.layers:
            starts = [sum(found.layers[:stage]) for stage in range(1, len(found.layers))]
            parallelism["pipeline_parallel_split_points"] = [f"layers.{start}" for start in starts]
        else:
            parallelism["pipeline_parallel_layers_per_stage"] = shape.layers // (degrees["pipeline"] * step.interleave)
    training: dict[str, Any] = {
        "local_batch_size": step.micro_batch * (found.accumulation if piped else 1),
        "global_batch_size": found.batch,
        "seq_len": shape.sequence,
    }
    if step.offload:
        training["enable_cpu_offload"] = True
        notes.append(
            f"offload of {' and '.join(step.offload)}: torchtitan offloads weights, gradients and optimizer together, no activations"
        )
    if found.zero == 1:
        notes.append("ZeRO-1 has no argument: FSDP shards gradients and weights too (here gathered once, as ZeRO-2)")
    if found.zero == 0 and degrees["context"] > 1:
        notes.append("context parallelism shards the weights over its ranks as FSDP does; the mapping replicates them")
    if degrees["tensor"] > 1 and not found.sequence_parallel:
        notes.append("torchtitan's tensor parallelism is sequence parallel always; the mapping's is not")
    if found.ulysses:
        notes.append("Ulysses has no argument: context parallelism gathers keys and values")
    if found.recompute == "selective":
        notes.append("selective recomputes every other layer or chosen operations, not attention's core as priced")
    if tuple(role for role in ORDERS[0] if role in found.order) != found.order:
        notes.append(f"ranks lie {'-'.join(found.order)} from the inside; torchtitan has tensor-context-data-pipeline")
    if found.weight_bits != 16:
        training["mixed_precision_param"] = "float32"
        notes.append(f"weights of {found.weight_bits} bits: float32, or the float8 converter")
    size = f"dim {shape.hidden}, {shape.layers} layers, {shape.heads} heads, {shape.groups} key-value heads, ffn {shape.ffn}"
    notes.append(f"the model is a flavor of torchtitan's registry: one with {size}, vocabulary {shape.vocab}")
    tables = {"training": training, "parallelism": parallelism, "activation_checkpoint": {"mode": found.recompute}}
    said = [f"--{table}.{key}{_titan_value(value)}" for table, rows in tables.items() for key, value in rows.items()]
    text = "\n".join(
        f"[{table}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in rows.items()) for table, rows in tables.items()
    )
    return Launch("torchtitan", tuple(notes), tuple(said), "torchtitan.toml", text)


def _titan_value(value: Any) -> str:
    """A value on torchtitan's command line: a list with commas, a truth by the flag alone."""
    return "" if value is True else f" {','.join(value) if isinstance(value, list) else value}"


# -- DeepSpeed -----------------------------------------------------------------------------------------------------------


def _deepspeed(shape: Shape, found: Meaning) -> Launch:
    degrees, step, notes = found.degrees, found.step, list(found.notes)
    piped = degrees["pipeline"] > 1
    said = [
        *_sizes(shape, found),
        *_if(shape.groups < shape.heads, f"--num-key-value-heads {shape.groups}"),
        *_if(shape.rms, "--normalization rmsnorm"),
        *_if(shape.rope, "--use-rotary-position-embeddings"),
        *_if(shape.experts > 0, f"--num-experts {shape.experts}", f"--topk {shape.top_k}", "--expert-interval 1"),
        f"--tensor-model-parallel-size {degrees['tensor']}",
        f"--pipeline-model-parallel-size {degrees['pipeline']}",
        *_if(not piped, "--no-pipeline-parallel"),
        *_if(found.ulysses, f"--ds-sequence-parallel-size {degrees['context']}"),
        *_if(shape.experts > 0, f"--moe-expert-parallel-size {degrees['expert']}", "--create-moe-param-group"),
        *_if(shape.experts > 0 and degrees["tensor"] > 1, "--enable-expert-tensor-parallelism"),
        *_if(found.sequence_parallel, "--sequence-parallel"),
        *_if(piped and step.schedule == "zb_h1", "--enable-zbh1-pipeline"),
        *_if(found.recompute == "selective", "--recompute-granularity selective"),
        *_if(found.recompute == "full", "--checkpoint-activations", "--deepspeed-activation-checkpointing"),
        *_if("optimizer" in step.offload, "--cpu-optimizer"),
        *_if(found.flash, "--use-flash-attn-v2"),
        *_if(found.weight_bits == 16, "--bf16"),
        f"--zero-stage {found.zero}",
        "--deepspeed",
        "--deepspeed_config ds_config.json",
    ]
    zero: dict[str, Any] = {"stage": found.zero, "overlap_comm": found.reductions and degrees["data"] > 1}
    if "optimizer" in step.offload:
        zero["offload_optimizer"] = {"device": "cpu"}
    if "weights" in step.offload and found.zero == 3:
        zero["offload_param"] = {"device": "cpu"}
    elif "weights" in step.offload:
        notes.append("offload_param wants ZeRO-3")
    if "activations" in step.offload:
        notes.append("offloaded activations: --checkpoint-in-cpu moves the checkpoints of recomputed layers alone")
    if found.zero > 1 and piped:
        notes.append(f"DeepSpeed refuses ZeRO-{found.zero} with a pipeline; ZeRO-1 is the most it takes")
    if found.copies > 1:
        notes.append(f"ZeRO over a part of the data ranks ({found.copies} copies) has no argument before ZeRO-3's MiCS")
    if piped and step.schedule not in ("1f1b", "zb_h1"):
        notes.append(f"schedule {step.schedule} has no argument: DeepSpeed's pipeline runs 1f1b or zb_h1")
    if piped and found.layers:
        notes.append(f"an uneven cut of {', '.join(map(str, found.layers))} layers has no argument: DeepSpeed cuts by itself")
    if degrees["context"] > 1 and not found.ulysses:
        notes.append(f"context parallelism of {degrees['context']} that gathers keys and values has no argument: DeepSpeed's is Ulysses")
    if found.sequence_parallel and (found.ulysses or step.schedule == "zb_h1"):
        notes.append("--sequence-parallel is refused beside Ulysses and the zero-bubble pipeline")
    if found.windows and degrees["tensor"] > 1:
        notes.append("overlap of tensor collectives has no argument in DeepSpeed")
    if tuple(role for role in ("tensor", "context", "expert", "data", "pipeline") if role in found.order) != found.order:
        notes.append(f"ranks lie {'-'.join(found.order)} from the inside; DeepSpeed has tensor-data-pipeline")
    if not found.flash:
        notes.append("attention was priced unfused; --use-flash-attn-v2 is another point of the space")
    config = {
        "train_batch_size": found.batch,
        "train_micro_batch_size_per_gpu": step.micro_batch,
        "gradient_accumulation_steps": found.accumulation,
        "zero_optimization": zero,
        "bf16": {"enabled": found.weight_bits == 16},
        "data_types": {"grad_accum_dtype": "fp32" if found.gradient_bits == 32 else "bf16"},
    }
    return Launch("deepspeed", tuple(notes), tuple(said), "ds_config.json", json.dumps(config, indent=1) + "\n", True)


FRAMEWORKS: dict[str, Callable[[Shape, Meaning], Launch]] = {"megatron": _megatron, "torchtitan": _torchtitan, "deepspeed": _deepspeed}
