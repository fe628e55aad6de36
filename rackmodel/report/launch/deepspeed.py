"""Arguments of Megatron-DeepSpeed and the configuration of DeepSpeed."""

from __future__ import annotations

import json
from typing import Any

from rackmodel.model.exchanges import ALL_TO_ALL
from rackmodel.report.launch.arguments import Launch, said_if, size_arguments
from rackmodel.report.launch.meaning import Meaning
from rackmodel.report.launch.shape import Shape


def deepspeed(shape: Shape, found: Meaning) -> Launch:
    """Arguments and configuration of a mapping."""
    step, notes = found.step, list(found.notes)
    if found.windows and found.degrees["tensor"] > 1:
        notes.append("overlap of tensor collectives has no argument in DeepSpeed")
    if not found.flash:
        notes.append("attention was priced unfused; --use-flash-attn-v2 is another point of the space")
    zero: dict[str, Any] = {"stage": found.zero, "overlap_comm": found.reductions and found.degrees["data"] > 1}
    if "optimizer" in step.offload:
        zero["offload_optimizer"] = {"device": "cpu"}
    if "weights" in step.offload and found.zero == 3:
        zero["offload_param"] = {"device": "cpu"}
    config = {
        "train_batch_size": found.batch,
        "train_micro_batch_size_per_gpu": step.micro_batch,
        "gradient_accumulation_steps": found.accumulation,
        "zero_optimization": zero,
        "bf16": {"enabled": found.weight_bits == 16},
        "data_types": {"grad_accum_dtype": "fp32" if found.gradient_bits == 32 else "bf16"},
    }
    text, cannot = json.dumps(config, indent=1) + "\n", (*found.cannot, *_unsaid(shape, found))
    return Launch("deepspeed", tuple(notes), tuple(_arguments(shape, found)), "ds_config.json", text, True, cannot)


def _arguments(shape: Shape, found: Meaning) -> list[str]:
    """What stands on the command line."""
    degrees, step = found.degrees, found.step
    piped = degrees["pipeline"] > 1
    return [
        *size_arguments(shape, found),
        *said_if(shape.groups < shape.heads, f"--num-key-value-heads {shape.groups}"),
        *said_if(shape.rms, "--normalization rmsnorm"),
        *said_if(shape.rope, "--use-rotary-position-embeddings"),
        *said_if(shape.experts > 0, f"--num-experts {shape.experts}", f"--topk {shape.top_k}", "--expert-interval 1"),
        f"--tensor-model-parallel-size {degrees['tensor']}",
        f"--pipeline-model-parallel-size {degrees['pipeline']}",
        *said_if(not piped, "--no-pipeline-parallel"),
        *said_if(found.ulysses, f"--ds-sequence-parallel-size {degrees['context']}"),
        *said_if(shape.experts > 0, f"--moe-expert-parallel-size {degrees['expert']}", "--create-moe-param-group"),
        *said_if(shape.experts > 0 and degrees["tensor"] > 1, "--enable-expert-tensor-parallelism"),
        *said_if(found.sequence_parallel, "--sequence-parallel"),
        *said_if(piped and step.schedule == "zb_h1", "--enable-zbh1-pipeline"),
        *said_if(found.recompute == "selective", "--recompute-granularity selective"),
        *said_if(found.recompute == "full", "--checkpoint-activations", "--deepspeed-activation-checkpointing"),
        *said_if("optimizer" in step.offload, "--cpu-optimizer"),
        *said_if(found.flash, "--use-flash-attn-v2"),
        *said_if(found.weight_bits == 16, "--bf16"),
        f"--zero-stage {found.zero}",
        "--deepspeed",
        "--deepspeed_config ds_config.json",
    ]


def _unsaid(shape: Shape, found: Meaning) -> list[str]:
    """What no argument says, and what DeepSpeed refuses."""
    degrees, step = found.degrees, found.step
    piped = degrees["pipeline"] > 1
    cannot: list[str] = []
    if shape.normed:
        cannot.append("norms of queries and keys have no argument in DeepSpeed")
    if shape.features.window:
        cannot.append(f"windows of {shape.features.window} tokens have no argument in DeepSpeed")
    if shape.features.gate:
        cannot.append("gates on the result of attention have no argument in DeepSpeed")
    if shape.dense:
        cannot.append(f"the first {shape.dense} of {shape.layers} layers without experts: --expert-interval takes every n-th layer")
    if shape.shared:
        cannot.append("experts that every token passes have no argument in DeepSpeed")
    if shape.experts and found.exchange != ALL_TO_ALL:
        cannot.append(f"exchange of tokens '{found.exchange}': DeepSpeed sends each expert its own")
    if "weights" in step.offload and found.zero != 3:
        cannot.append("offload_param wants ZeRO-3")
    if found.recompute in ("pointwise", "experts"):
        cannot.append(f"recompute {found.recompute}: DeepSpeed checkpoints layers, or attention's core")
    if found.recompute == "alternate":
        cannot.append("every other product recomputed: DeepSpeed checkpoints layers, or attention's core")
    if "activations" in step.offload:
        cannot.append("offloaded activations: --checkpoint-in-cpu moves the checkpoints of recomputed layers alone")
    if found.zero > 1 and piped:
        cannot.append(f"DeepSpeed refuses ZeRO-{found.zero} with a pipeline; ZeRO-1 is the most it takes")
    if found.copies > 1:
        cannot.append(f"ZeRO over a part of the data ranks ({found.copies} copies) has no argument before ZeRO-3's MiCS")
    if piped and step.schedule not in ("1f1b", "zb_h1"):
        cannot.append(f"schedule {step.schedule} has no argument: DeepSpeed's pipeline runs 1f1b or zb_h1")
    if piped and found.layers:
        cannot.append(f"an uneven cut of {', '.join(map(str, found.layers))} layers has no argument: DeepSpeed cuts by itself")
    if degrees["context"] > 1 and not found.ulysses:
        cannot.append(f"context parallelism of {degrees['context']} that gathers keys and values has no argument: DeepSpeed's is Ulysses")
    if found.sequence_parallel and (found.ulysses or step.schedule == "zb_h1"):
        cannot.append("--sequence-parallel is refused beside Ulysses and the zero-bubble pipeline")
    if tuple(role for role in ("tensor", "context", "expert", "data", "pipeline") if role in found.order) != found.order:
        cannot.append(f"ranks lie {'-'.join(found.order)} from the inside; DeepSpeed has tensor-data-pipeline")
    return cannot
