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
    degrees, step, notes = found.degrees, found.step, list(found.notes)
    cannot = list(found.cannot)
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
    if shape.experts and found.exchange == GATHERED:
        cannot.append("tokens gathered for all experts: torchtitan sends each expert its own, or hands them on by DeepEP")
    elif shape.experts and found.exchange != ALL_TO_ALL:
        parallelism["expert_parallel_comm_backend"] = "deepep"
    if found.windows and degrees["tensor"] > 1:
        parallelism["enable_async_tensor_parallel"] = True
        notes.append("async tensor parallelism works with --training.compile alone")
    if piped:
        parallelism["pipeline_parallel_microbatch_size"] = step.micro_batch
        if step.schedule in TITAN_SCHEDULES:
            parallelism["pipeline_parallel_schedule"] = TITAN_SCHEDULES[step.schedule]
            if step.schedule in SPLIT:
                notes.append(f"{TITAN_SCHEDULES[step.schedule]} splits the backward pass, which PyTorch refuses with --training.compile")
        else:
            cannot.append(f"schedule {step.schedule} has no exact name; nearest are InterleavedZeroBubble and ZBVZeroBubble")
        if found.layers:
            starts = [sum(found.layers[:stage]) for stage in range(1, len(found.layers))]
            parallelism["pipeline_parallel_split_points"] = [f"layers.{start}" if start < shape.layers else "norm" for start in starts]
            if 0 in found.layers[1:-1]:
                cannot.append("chunks between the first and the last that hold no layer: split points are distinct")
        else:
            parallelism["pipeline_parallel_layers_per_stage"] = shape.layers // (degrees["pipeline"] * step.interleave)
            parallelism |= dict.fromkeys(ENDS, 0)
    training: dict[str, Any] = {
        "local_batch_size": step.micro_batch * (found.accumulation if piped else 1),
        "global_batch_size": found.batch,
        "seq_len": shape.sequence,
    }
    if step.offload:
        training["enable_cpu_offload"] = True
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
    if found.weight_bits != 16:
        training["mixed_precision_param"] = "float32"
        notes.append(f"weights of {found.weight_bits} bits: float32, or the float8 converter")
    size = f"dim {shape.hidden}, {shape.layers} layers, {shape.heads} heads, {shape.groups} key-value heads, ffn {shape.ffn}"
    notes.append(f"the model is a flavor of torchtitan's registry: one with {size}, vocabulary {shape.vocab}")
    kept = {"mode": "selective", "selective_ac_option": "op"} if found.recompute == "alternate" else {"mode": found.recompute}
    tables = {"training": training, "parallelism": parallelism, "activation_checkpoint": kept}
    said = [f"--{table}.{key}{_titan_value(value)}" for table, rows in tables.items() for key, value in rows.items()]
    text = "\n".join(
        f"[{table}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in rows.items()) for table, rows in tables.items()
    )
    return Launch("torchtitan", tuple(notes), tuple(said), "torchtitan.toml", text, cannot=tuple(cannot))


def _titan_value(value: Any) -> str:
    """A value on torchtitan's command line: a list with commas, a truth by the flag alone."""
    return "" if value is True else f" {','.join(value) if isinstance(value, list) else value}"
