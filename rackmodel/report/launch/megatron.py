"""Arguments of Megatron-LM."""

from __future__ import annotations

from rackmodel.model.exchanges import ALL_TO_ALL, GATHERED
from rackmodel.report.launch.arguments import ORDERS, Launch, said_if, size_arguments
from rackmodel.report.launch.meaning import Meaning
from rackmodel.report.launch.shape import Shape

MODULES = {"pointwise": "layernorm moe_act", "experts": "moe layernorm core_attn moe_act"}
FLEX = ("--moe-token-dispatcher-type flex", "--moe-flex-dispatcher-backend deepep")
DISPATCHERS = {ALL_TO_ALL: ("--moe-token-dispatcher-type alltoall",), GATHERED: ("--moe-token-dispatcher-type allgather",)}
"""How tokens reach their experts. Source: NVIDIA/Megatron-LM, README of Megatron Core MoE."""
SHARDING = {2: "optim_grads", 3: "optim_grads_params"}


def megatron(shape: Shape, found: Meaning) -> Launch:
    notes, cannot = list(found.notes), list(found.cannot)
    said = [*_arguments(shape, found, _megatron_pipeline(shape, found, notes, cannot)), *_order(found, cannot)]
    _sharding(found, said, notes, cannot)
    _limits(shape, found, notes, cannot)
    return Launch("megatron", tuple(notes), tuple(said), cannot=tuple(cannot))


def _arguments(shape: Shape, found: Meaning, pipeline: list[str]) -> list[str]:
    """Sizes, degrees, sharding, overlap, recomputing and widths. pipeline: arguments of the schedule."""
    degrees = found.degrees
    return [
        *size_arguments(shape, found),
        *said_if(shape.groups < shape.heads, "--group-query-attention", f"--num-query-groups {shape.groups}"),
        f"--normalization {'RMSNorm' if shape.rms else 'LayerNorm'}",
        *said_if(shape.normed == "heads", "--qk-layernorm"),
        *said_if(shape.features.gate == "elements", "--attention-output-gate"),
        *said_if(shape.features.window > 0, f"--window-size {shape.features.window - 1},0"),
        *said_if(0 < shape.features.windowed < shape.layers, f"--window-attn-skip-freq {_skipped(shape)}"),
        f"--position-embedding-type {'rope' if shape.rope else 'learned_absolute'}",
        *said_if(
            shape.experts > 0,
            f"--num-experts {shape.experts}",
            f"--moe-router-topk {shape.top_k}",
            f"--moe-ffn-hidden-size {shape.ffn}",
            *said_if(shape.shared > 0, f"--moe-shared-expert-intermediate-size {shape.shared}"),
            *said_if(shape.dense > 0, f"--moe-layer-freq '([0]*{shape.dense}+[1]*{shape.layers - shape.dense})'"),
            *DISPATCHERS.get(found.exchange, FLEX),
        ),
        f"--tensor-model-parallel-size {degrees['tensor']}",
        f"--pipeline-model-parallel-size {degrees['pipeline']}",
        *said_if(degrees["context"] > 1, f"--context-parallel-size {degrees['context']}"),
        *said_if(degrees["context"] > 1, f"--cp-comm-type {'a2a' if found.ulysses else 'allgather'}"),
        *said_if(shape.experts > 0, f"--expert-model-parallel-size {degrees['expert']}"),
        *said_if(found.sequence_parallel, "--sequence-parallel"),
        *pipeline,
        *said_if(found.zero == 1, "--use-distributed-optimizer"),
        *said_if(
            found.zero > 1,
            "--use-distributed-optimizer",
            "--use-megatron-fsdp",
            f"--data-parallel-sharding-strategy {SHARDING.get(found.zero, '')}",
            "--ckpt-format fsdp_dtensor",
        ),
        *said_if(found.copies > 1, f"--num-distributed-optimizer-instances {found.copies}"),
        *said_if(found.reductions and degrees["data"] * degrees["context"] > 1, "--overlap-grad-reduce"),
        *said_if(found.reductions and degrees["data"] * degrees["context"] > 1 and found.zero > 0, "--overlap-param-gather"),
        *said_if(found.windows and found.sequence_parallel, "--tp-comm-overlap"),
        *said_if(found.recompute == "selective", "--recompute-granularity selective"),
        *said_if(found.recompute in MODULES, "--recompute-granularity selective"),
        *said_if(found.recompute in MODULES, f"--recompute-modules {MODULES.get(found.recompute, '')}"),
        *said_if(found.recompute == "full", "--recompute-granularity full", "--recompute-method uniform", "--recompute-num-layers 1"),
        *said_if("optimizer" in found.step.offload, "--optimizer-cpu-offload", "--use-precision-aware-optimizer"),
        *said_if(found.flash, "--use-flash-attn"),
        *said_if(found.weight_bits == 16, "--bf16"),
        *said_if(found.weight_bits == 16 and found.gradient_bits == 16, "--grad-reduce-in-bf16"),
    ]


def _skipped(shape: Shape) -> int:
    """Of so many layers the last has no window."""
    return shape.layers // max(shape.layers - shape.features.windowed, 1)


def _order(found: Meaning, cannot: list[str]) -> list[str]:
    """In which order ranks lie."""
    known = [order for order in ORDERS if list(found.order) == sorted(found.order, key=lambda role: (*order, role).index(role))]
    if not known:
        cannot.append(
            f"ranks lie {'-'.join(found.order)} from the inside; Megatron has tensor-context-expert-data-pipeline, or pipeline-data"
        )
    return ["--use-tp-pp-dp-mapping"] if known and ORDERS[0] not in known else []


def _sharding(found: Meaning, said: list[str], notes: list[str], cannot: list[str]) -> None:
    """What ZeRO-2 and 3 need, and the connections that overlap wants."""
    if found.zero > 1:
        older = f"ZeRO-{found.zero} needs Megatron FSDP, which older versions lack; --use-distributed-optimizer alone is ZeRO-1"
        notes.append(older)
        if "--use-tp-pp-dp-mapping" in said:
            cannot.append(f"ZeRO-{found.zero} with pipeline ranks inside data ranks: Megatron FSDP does not take --use-tp-pp-dp-mapping")
        notes.append("Megatron FSDP wants CUDA_DEVICE_MAX_CONNECTIONS unset or above 1")
    elif found.degrees["tensor"] * found.degrees["context"] > 1:
        notes.append("before Blackwell: export CUDA_DEVICE_MAX_CONNECTIONS=1")


def _limits(shape: Shape, found: Meaning, notes: list[str], cannot: list[str]) -> None:
    """What Megatron does not take, or takes otherwise."""
    degrees, step = found.degrees, found.step
    if shape.normed == "whole":
        cannot.append("queries and keys normalised over all heads together: --qk-layernorm takes each head")
    if shape.features.gate == "heads":
        cannot.append("attention gated by a number a head: --attention-output-gate takes one of each element")
    if shape.features.window and (full := shape.layers - shape.features.windowed) and shape.layers // _skipped(shape) != full:
        cannot.append(f"{full} of {shape.layers} layers without a window: --window-attn-skip-freq takes the last of every so many")
    if shape.features.window:
        notes.append("a window counts the token itself; which layers have it is taken to be all but the last of every so many")
    if shape.groups % degrees["tensor"]:
        cannot.append(f"Megatron wants the {shape.groups} query groups to be a multiple of tensor parallelism {degrees['tensor']}")
    if degrees["context"] > 1 and shape.sequence % (2 * degrees["context"]):
        cannot.append("Megatron wants a sequence that is a multiple of twice the context degree")
    if found.windows and degrees["tensor"] > 1 and not found.sequence_parallel:
        notes.append("overlap of tensor collectives: --tp-comm-overlap wants --sequence-parallel")
    if "activations" in step.offload:
        cannot.append("offloaded activations: --cpu-offloading-num-layers takes whole layers, without pipeline or recomputing")
    if found.recompute == "alternate":
        cannot.append("every other product recomputed: Megatron recomputes layers, or the modules that --recompute-modules names")
    if found.recompute == "pointwise" and not shape.experts:
        cannot.append("activations of dense layers recomputed: Megatron's module mlp runs both products again, too")
    if "weights" in step.offload:
        cannot.append("offloaded weights have no argument in Megatron")
    if not found.flash:
        notes.append("attention was priced unfused; --use-flash-attn (or --attention-backend) is another point of the space")


def _megatron_pipeline(shape: Shape, found: Meaning, notes: list[str], cannot: list[str]) -> list[str]:
    """The schedule: 1F1B is the default, interleaving and uneven cuts are arguments, others are not there."""
    step, stages = found.step, found.degrees["pipeline"]
    if stages == 1:
        return []
    if step.schedule not in ("1f1b", "interleaved"):
        cannot.append(f"schedule {step.schedule} has no argument in Megatron-LM, which runs 1f1b (zero bubble: a fork of it)")
    if found.layers:
        parts = ["t" if count == 1 else f"t*{count}" if count else "" for count in found.layers]
        notes.append("an uneven cut needs --pipeline-model-parallel-layout, which versions to Core 0.12 lack")
        return [f"--pipeline-model-parallel-layout 'E{'|'.join(parts)}L'"]
    return said_if(step.interleave > 1, f"--num-layers-per-virtual-pipeline-stage {shape.layers // (stages * step.interleave)}")
