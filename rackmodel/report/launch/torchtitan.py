"""The configuration of torchtitan."""

from __future__ import annotations

import json
from typing import Any

from rackmodel.model.exchanges import ALL_TO_ALL, GATHERED
from rackmodel.model.schedules import SPLIT
from rackmodel.report.launch.arguments import ORDERS, Launch
from rackmodel.report.launch.meaning import Meaning
from rackmodel.report.launch.shape import Shape

TITAN_SCHEDULES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved": "Interleaved1F1B",
    "zb_v": "ZBVZeroBubble",
    "dualpipe_v": "DualPipeV",
}

ENDS = ("pipeline_parallel_first_stage_less_layers", "pipeline_parallel_last_stage_less_layers")
"""Layers for which embedding and head count where stages are dealt, 1 each where nothing is said: of equal stages they count none."""


def torchtitan(shape: Shape, found: Meaning) -> Launch:
    """Arguments and configuration of a mapping."""
    notes, cannot = list(found.notes), list(found.cannot)
    parallelism = _parallelism(shape, found, notes, cannot)
    if found.degrees["pipeline"] > 1:
        parallelism |= _pipeline(shape, found, notes, cannot)
    training = _training(shape, found)
    cannot += _unsaid(found)
    if found.weight_bits != 16:
        notes.append(f"weights of {found.weight_bits} bits: float32, or the float8 converter")
    size = f"dim {shape.hidden}, {shape.layers} layers, {shape.heads} heads, {shape.groups} key-value heads, {_feed_forward(shape)}"
    notes.append(f"the model is a flavor of torchtitan's registry: one with {size}, vocabulary {shape.vocab}")
    kept = {"mode": "selective", "selective_ac_option": "op"} if found.recompute == "alternate" else {"mode": found.recompute}
    tables = {"training": training, "parallelism": parallelism, "activation_checkpoint": kept}
    said = [f"--{table}.{key}{_titan_value(value)}" for table, rows in tables.items() for key, value in rows.items()]
    text = "\n".join(
        f"[{table}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in rows.items()) for table, rows in tables.items()
    )
    return Launch("torchtitan", tuple(notes), tuple(said), "torchtitan.toml", text, cannot=tuple(cannot))


def _feed_forward(shape: Shape) -> str:
    """What a flavor says of feed-forward layers."""
    parts = [f"ffn {shape.ffn}", *([f"{shape.experts} experts of it"] if shape.experts else [])]
    parts += [f"shared experts of {shape.shared}"] if shape.shared else []
    parts += ["queries and keys normalised"] if shape.normed else []
    found = shape.features
    parts += [f"windows of {found.window} tokens in {found.windowed} layers"] if found.window else []
    parts += [f"attention gated by {found.gate}"] if found.gate else []
    parts += ["a squared ReLU"] if found.squared else []
    return ", ".join([*parts, *([f"the first {shape.dense} dense with ffn {shape.dense_ffn}"] if shape.dense else [])])


def _parallelism(shape: Shape, found: Meaning, notes: list[str], cannot: list[str]) -> dict[str, Any]:
    """The table of degrees. notes, cannot: of a Launch, which grow."""
    degrees = found.degrees
    replicas = degrees["data"] if found.zero == 0 else found.copies
    table: dict[str, Any] = {
        "data_parallel_replicate_degree": replicas,
        "data_parallel_shard_degree": degrees["data"] // replicas,
        "tensor_parallel_degree": degrees["tensor"],
        "context_parallel_degree": degrees["context"],
        "pipeline_parallel_degree": degrees["pipeline"],
    }
    if found.zero:
        table["fsdp_reshard_after_forward"] = "always" if found.zero == 3 else "never"
    if shape.experts:
        table["expert_parallel_degree"] = degrees["expert"]
    if shape.experts and found.exchange == GATHERED:
        cannot.append("tokens gathered for all experts: torchtitan sends each expert its own, or hands them on by DeepEP")
    elif shape.experts and found.exchange != ALL_TO_ALL:
        table["expert_parallel_comm_backend"] = "deepep"
    if found.windows and degrees["tensor"] > 1:
        table["enable_async_tensor_parallel"] = True
        notes.append("async tensor parallelism works with --training.compile alone")
    return table


def _pipeline(shape: Shape, found: Meaning, notes: list[str], cannot: list[str]) -> dict[str, Any]:
    """What the same table says of a pipeline."""
    step = found.step
    table: dict[str, Any] = {"pipeline_parallel_microbatch_size": step.micro_batch}
    if step.schedule in TITAN_SCHEDULES:
        table["pipeline_parallel_schedule"] = TITAN_SCHEDULES[step.schedule]
        if step.schedule in SPLIT:
            notes.append(f"{TITAN_SCHEDULES[step.schedule]} splits the backward pass, which PyTorch refuses with --training.compile")
    else:
        cannot.append(f"schedule {step.schedule} has no exact name; nearest are InterleavedZeroBubble and ZBVZeroBubble")
    if found.layers:
        starts = [sum(found.layers[:stage]) for stage in range(1, len(found.layers))]
        table["pipeline_parallel_split_points"] = [f"layers.{start}" if start < shape.layers else "norm" for start in starts]
        if 0 in found.layers[1:-1]:
            cannot.append("chunks between the first and the last that hold no layer: split points are distinct")
        return table
    table["pipeline_parallel_layers_per_stage"] = shape.layers // (found.degrees["pipeline"] * step.interleave)
    return table | dict.fromkeys(ENDS, 0)


def _training(shape: Shape, found: Meaning) -> dict[str, Any]:
    """The table of batch, sequence and precision."""
    table: dict[str, Any] = {
        "local_batch_size": found.step.micro_batch * (found.accumulation if found.degrees["pipeline"] > 1 else 1),
        "global_batch_size": found.batch,
        "seq_len": shape.sequence,
    }
    if found.step.offload:
        table["enable_cpu_offload"] = True
    if found.weight_bits != 16:
        table["mixed_precision_param"] = "float32"
    return table


def _unsaid(found: Meaning) -> list[str]:
    """What no argument says of offload, sharding, context, recompute and the order of the ranks."""
    degrees, step = found.degrees, found.step
    cannot: list[str] = []
    if step.offload:
        cannot.append(
            f"offload of {' and '.join(step.offload)}: torchtitan offloads weights, gradients and optimizer together, no activations"
        )
    if found.zero == 1:
        cannot.append("ZeRO-1 has no argument: FSDP shards gradients and weights too (here gathered once, as ZeRO-2)")
    if found.zero == 0 and degrees["context"] > 1:
        cannot.append("context parallelism shards the weights over its ranks as FSDP does; the mapping replicates them")
    if degrees["tensor"] > 1 and not found.sequence_parallel:
        cannot.append("torchtitan's tensor parallelism is sequence parallel always; the mapping's is not")
    if found.ulysses:
        cannot.append("Ulysses has no argument: context parallelism gathers keys and values")
    if found.recompute in ("pointwise", "experts"):
        cannot.append(f"recompute {found.recompute}: torchtitan checkpoints layers, or chosen operations")
    if found.recompute == "selective":
        cannot.append("selective recomputes every other layer or chosen operations, not attention's core as priced")
    if tuple(role for role in ORDERS[0] if role in found.order) != found.order:
        cannot.append(f"ranks lie {'-'.join(found.order)} from the inside; torchtitan has tensor-context-data-pipeline")
    return cannot


def _titan_value(value: Any) -> str:
    """A value on torchtitan's command line: a list with commas, a truth by the flag alone."""
    return "" if value is True else f" {','.join(value) if isinstance(value, list) else value}"
