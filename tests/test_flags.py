"""Launch flags: what axes mean follows from the indices they split; sizes from ranks; what cannot be said is refused."""

from __future__ import annotations

import csv
import json
import tomllib
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackmodel.errors import InputError
from rackmodel.inputs.read import read_profile, read_workload
from rackmodel.model.mapping import HomeSpec, MappingSpec, PlacedAxis, StepSpec
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.schedules import FOLDED
from rackmodel.model.workload import Op, Workload
from rackmodel.report.flags import FRAMEWORKS, translation
from rackmodel.report.launch.arguments import Launch
from rackmodel.report.launch.shape import model_shape
from tests.conftest import FIXED

GPT, LLAMA, MOE = (read_workload(name) for name in ("gpt", "llama3_70b", "moe_llama"))
CORE = ("QK", "softmax", "drop_scores", "AV")

# framework, name and the source that declares it
with (Path(__file__).parent / "data/launch_flags.csv").open(encoding="utf-8") as file:
    DECLARED = {(row["framework"], row["name"]) for row in csv.DictReader(file)}


def choice(role: str, op: Op) -> str | None:
    """What an operation splits on an axis of a role."""
    if role == "data":
        return "b"
    if role == "context" or (role == "ulysses" and op.name not in CORE):
        return "s"
    if role == "expert":
        return "x" if {"x", "f"} <= set(op.indices) else "b"
    wanted = ("f", "h", "g", "v", *(("s",) if role == "sequence" else ()))
    return next((index for index in wanted if index in op.indices), None)


def mapping(
    workload: Workload, axes: dict[str, tuple[str, int]], stages: int = 1, zero: int = 0, over: Any = None, **said: Any
) -> MappingSpec:
    """A mapping of axes {name: (role, degree)}, innermost first, the pipeline outermost unless `inside` names an axis it is inside of."""
    inside = said.pop("inside", None)
    stride, placed, pipeline = 1, {}, PlacedAxis(degree=stages)
    for name, (_, degree) in axes.items():
        if name == inside:
            pipeline, stride = PlacedAxis(degree=stages, stride=stride), stride * stages
        placed[name] = PlacedAxis(degree=degree, stride=stride)
        stride *= degree
    if inside is None:
        pipeline, stride = PlacedAxis(degree=stages, stride=stride), stride * stages
    shared = [name for name, (role, _) in axes.items() if role in ("data", "expert", "context", "ulysses")] if over is None else over
    parts = dict(zip(("state", "grad", "param"), ["shard"] * zero, strict=False))
    step = {"micro_batch": 1, "pipeline": pipeline, "hide_activations": False, **said}
    recompute = step.pop("recompute", "none")
    return MappingSpec(
        name="hand",
        accelerators=stride,
        axes=placed,
        ops={op.name: {name: choice(role, op) for name, (role, _) in axes.items()} for op in workload.ops.values()},
        homes={"weights": HomeSpec(axes=shared, **parts)} if zero else {},
        recompute=recompute,
        step=StepSpec(**step),
    )


def words(launch: Launch) -> dict[str, str]:
    """Flag → its value."""
    return {flag.removeprefix("--"): value for flag, _, value in (argument.partition(" ") for argument in launch.arguments)}


def noted(launch: Launch, text: str) -> bool:
    return any(text in note for note in (*launch.notes, *launch.cannot))


# -- the model -----------------------------------------------------------------------------------------------------------


def test_sizes_of_gpt3_175b_are_read_off_its_ranks() -> None:
    """Brown 2020, Table 2.1: 96 layers, 12288, 96 heads of 128; ffn 4 x 12288."""
    said = words(translation("megatron", GPT, mapping(GPT, {})))
    sizes = ("num-layers", "hidden-size", "num-attention-heads", "ffn-hidden-size", "seq-length", "vocab-size")
    assert [said[name] for name in sizes] == ["96", "12288", "96", "49152", "2048", "51200"]
    assert (said["normalization"], said["position-embedding-type"]) == ("LayerNorm", "learned_absolute")
    assert not {"group-query-attention", "swiglu", "kv-channels", "untie-embeddings-and-output-weights", "hidden-dropout"} & set(said)


def test_sizes_of_llama3_70b_are_read_off_its_ranks() -> None:
    """Grattafiori 2024, Table 3: 80 layers, 8192, 64 heads, 8 key-value heads, ffn 28672."""
    said = words(translation("megatron", LLAMA, mapping(LLAMA, {})))
    assert (said["num-layers"], said["hidden-size"], said["num-attention-heads"]) == ("80", "8192", "64")
    assert (said["num-query-groups"], said["ffn-hidden-size"], said["normalization"]) == ("8", "28672", "RMSNorm")
    assert {"swiglu", "group-query-attention", "untie-embeddings-and-output-weights", "disable-bias-linear"} <= set(said)
    assert words(translation("deepspeed", LLAMA, mapping(LLAMA, {})))["num-key-value-heads"] == "8"


def test_experts_and_top_k_are_read_off_dispatch() -> None:
    shape = model_shape(MOE)
    assert (shape.experts, shape.top_k, shape.ffn) == (8, 2, 14336)


def test_a_graph_without_sections_has_no_translation() -> None:
    ffn = read_workload("ffn")
    with pytest.raises(InputError, match="for a whole model"):
        translation("megatron", ffn, mapping(ffn, {}))


def test_an_unknown_framework_names_the_known_ones() -> None:
    with pytest.raises(InputError) as caught:
        translation("megatrn", GPT, mapping(GPT, {}))
    assert caught.value.known == ("megatron", "torchtitan", "deepspeed")


def test_layers_of_two_kinds_are_said() -> None:
    block = next(section for section in GPT.sections if section.layer)
    twice = replace(GPT, sections=(*GPT.sections[:-1], replace(block, name="wide", repeat=4), GPT.sections[-1]))
    launch = translation("megatron", twice, mapping(GPT, {}))
    assert words(launch)["num-layers"] == "100"
    assert noted(launch, "layers of 2 kinds (block, wide)")


def test_a_model_whose_first_layers_have_no_experts_is_launched_with_its_experts() -> None:
    """GLM-4.5 Air (arXiv 2508.06471, table 1): 46 layers, the first dense with 10,944, 128 experts of 1,408, 8 a token, one shared."""
    air = read_workload("glm45_air_training")
    said = words(translation("megatron", air, mapping(air, {})))
    assert (said["num-layers"], said["ffn-hidden-size"], said["moe-ffn-hidden-size"]) == ("46", "10944", "1408")
    assert (said["num-experts"], said["moe-router-topk"], said["moe-shared-expert-intermediate-size"]) == ("128", "8", "1408")
    assert said["moe-layer-freq"] == "'([0]*1+[1]*45)'"
    assert noted(translation("deepspeed", air, mapping(air, {})), "the first 1 of 46 layers without experts")
    assert noted(translation("torchtitan", air, mapping(air, {})), "ffn 1408, 128 experts of it, shared experts of 1408, the first 1 dense")


@pytest.mark.parametrize(
    ("name", "heads", "whole"),
    [("qwen3_8b_training", True, False), ("olmo2_7b_training", False, True), ("llama2_7b_training", False, False)],
)
def test_norms_of_heads_are_an_argument_or_named_as_what_cannot_be(name: str, heads: bool, whole: bool) -> None:
    model = read_workload(name)
    megatron, deep = (translation(framework, model, mapping(model, {})) for framework in ("megatron", "deepspeed"))
    assert ("qk-layernorm" in words(megatron)) == heads
    assert noted(megatron, "normalised over all heads together") == whole
    assert noted(deep, "norms of queries and keys") == (heads or whole)


def test_other_layers_of_other_sizes_have_no_arguments() -> None:
    plain = next(section for section in LLAMA.sections if section.layer)
    both = replace(MOE, sections=(*MOE.sections[:-1], replace(plain, name="late", repeat=1), MOE.sections[-1]))
    said = translation("megatron", both, mapping(MOE, {}))
    assert "layers of late have other sizes than most: arguments are of one kind" in said.cannot
    assert words(said)["num-experts"] == "8"


# -- the axes ------------------------------------------------------------------------------------------------------------


def test_an_axis_is_what_it_splits_whatever_it_is_called() -> None:
    """pp named tp, tp named dp, dp named ep: the flags do not change."""
    plain = mapping(GPT, {"tp": ("sequence", 4), "dp": ("data", 2)}, stages=8, zero=1)
    odd = mapping(GPT, {"dp": ("sequence", 4), "tp": ("data", 2)}, stages=8, zero=1)
    for framework in FRAMEWORKS:
        assert translation(framework, GPT, plain) == translation(framework, GPT, odd)
    said = words(translation("megatron", GPT, odd))
    assert (said["tensor-model-parallel-size"], said["pipeline-model-parallel-size"]) == ("4", "8")


def test_norms_split_over_the_sequence_are_sequence_parallelism() -> None:
    with_norms = translation("megatron", GPT, mapping(GPT, {"a": ("sequence", 8)}))
    without = translation("megatron", GPT, mapping(GPT, {"a": ("tensor", 8)}))
    assert "sequence-parallel" in words(with_norms)
    assert "sequence-parallel" not in words(without)
    assert words(with_norms)["tensor-model-parallel-size"] == words(without)["tensor-model-parallel-size"] == "8"


def test_two_axes_of_one_role_multiply() -> None:
    """Heads split as g x q: what factors into two axes is one tensor degree of 16."""
    split = mapping(LLAMA, {"q": ("sequence", 2), "g": ("sequence", 8)})
    ops = {op.name: dict(split.ops[op.name]) for op in LLAMA.ops.values()}
    for op in LLAMA.ops.values():
        if "q" in op.indices or op.name in ("K", "V", "ropeK"):
            ops[op.name]["q"] = "q" if "q" in op.indices else None
    said = translation("megatron", LLAMA, split.model_copy(update={"ops": ops}))
    assert words(said)["tensor-model-parallel-size"] == "16"
    assert noted(said, "8 query groups to be a multiple of tensor parallelism 16")


def test_the_sequence_everywhere_is_context_parallelism_and_heads_inside_make_it_ulysses() -> None:
    ring, heads = ({"c": ("context", 4)}, {"c": ("ulysses", 4)})
    gathered, by_heads = (words(translation("megatron", GPT, mapping(GPT, axes))) for axes in (ring, heads))
    assert (gathered["context-parallel-size"], gathered["cp-comm-type"]) == ("4", "allgather")
    assert (by_heads["context-parallel-size"], by_heads["cp-comm-type"]) == ("4", "a2a")
    assert words(translation("deepspeed", GPT, mapping(GPT, heads)))["ds-sequence-parallel-size"] == "4"
    assert noted(translation("deepspeed", GPT, mapping(GPT, ring)), "context parallelism of 4")
    assert noted(translation("torchtitan", GPT, mapping(GPT, heads)), "Ulysses has no argument")


def test_an_expert_axis_is_part_of_data_parallelism() -> None:
    """64 = expert 8 inside data 8: data ranks 64, so a batch of 512 in micro-batches of 1 accumulates 8."""
    found = mapping(MOE, {"e": ("expert", 8), "d": ("data", 8)}, zero=3)
    megatron, titan, deep = (words(translation(name, MOE, found)) for name in FRAMEWORKS)
    assert (megatron["expert-model-parallel-size"], megatron["num-experts"], megatron["moe-router-topk"]) == ("8", "8", "2")
    assert (titan["parallelism.expert_parallel_degree"], titan["parallelism.data_parallel_shard_degree"]) == ("8", "64")
    assert deep["moe-expert-parallel-size"] == "8"
    assert json.loads(translation("deepspeed", MOE, found).config)["gradient_accumulation_steps"] == 8


@pytest.mark.parametrize(
    ("exchange", "said", "titan"),
    [("all_to_all", "alltoall", None), ("gathered", "allgather", None), ("relayed", "flex", "deepep"), ("deepep", "flex", "deepep")],
)
def test_how_tokens_reach_their_experts_is_said_or_named_as_what_cannot_be(exchange: str, said: str, titan: str | None) -> None:
    found = mapping(MOE, {"e": ("expert", 8), "d": ("data", 8)})
    profile = read_profile("megatron_core", [f"profile.collectives.exchange={exchange}"])
    asked = {name: translation(name, MOE, found, profile) for name in FRAMEWORKS}
    assert words(asked["megatron"])["moe-token-dispatcher-type"] == said
    assert words(asked["megatron"]).get("moe-flex-dispatcher-backend") == titan
    assert words(asked["torchtitan"]).get("parallelism.expert_parallel_comm_backend") == titan
    assert noted(asked["deepspeed"], f"exchange of tokens '{exchange}'") == (exchange != "all_to_all")
    assert noted(asked["torchtitan"], "tokens gathered") == (exchange == "gathered")


@pytest.mark.parametrize("change", [("fc1", None), ("norm1", "+X"), ("softmax", "s"), ("O", None)])
def test_a_layout_that_no_framework_has_is_said_and_not_taken_for_tensor_parallelism(change: tuple[str, str | None]) -> None:
    found = mapping(GPT, {"a": ("tensor", 4), "d": ("data", 2)})
    ops = {**found.ops, change[0]: {**found.ops[change[0]], "a": change[1]}}
    for framework in FRAMEWORKS:
        launch = translation(framework, GPT, found.model_copy(update={"ops": ops}))
        assert noted(launch, "axis 'a' of 4 has a layout that no argument can say")
        said = words(launch)
        assert said.get("tensor-model-parallel-size", said.get("parallelism.tensor_parallel_degree")) == "1"


def test_a_vocabulary_that_is_not_split_is_said() -> None:
    found = mapping(GPT, {"a": ("tensor", 4)})
    ops = {**found.ops, "logits": {"a": None}, "loss": {"a": None}}
    assert noted(translation("megatron", GPT, found.model_copy(update={"ops": ops})), "does not split the vocabulary in logits, loss")


@given(
    tensor=st.sampled_from([1, 2, 4, 8]),
    context=st.sampled_from([1, 2, 4]),
    data=st.sampled_from([1, 2, 8]),
    stages=st.sampled_from([1, 2, 4, 8]),
    micro=st.sampled_from([1, 2]),
)
def test_degrees_multiply_to_the_accelerators_and_batches_to_the_batch(
    tensor: int, context: int, data: int, stages: int, micro: int
) -> None:
    axes = {"t": ("sequence", tensor), "c": ("context", context), "d": ("data", data)}
    found = mapping(GPT, axes, stages=stages, zero=1, micro_batch=micro)
    said = words(translation("megatron", GPT, found))
    degrees = [int(said.get(f"{name}-parallel-size", 1)) for name in ("tensor-model", "pipeline-model", "context")]
    assert found.accelerators % prod(degrees) == 0
    assert found.accelerators // prod(degrees) == data
    config = json.loads(translation("deepspeed", GPT, found).config)
    each = config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"] * data
    assert each == config["train_batch_size"] == int(said["global-batch-size"]) == 512
    titan = tomllib.loads(translation("torchtitan", GPT, found).config)["parallelism"]
    mesh = ("data_parallel_replicate", "data_parallel_shard", "tensor_parallel", "context_parallel", "pipeline_parallel")
    assert prod(titan[f"{name}_degree"] for name in mesh) == found.accelerators


def test_the_order_of_ranks_is_the_default_or_a_flag_or_said() -> None:
    axes = {"t": ("tensor", 4), "d": ("data", 2)}
    default, inner, neither = (translation("megatron", GPT, mapping(GPT, axes, stages=2, inside=inside)) for inside in (None, "d", "t"))
    assert "use-tp-pp-dp-mapping" not in words(default)
    assert "use-tp-pp-dp-mapping" in words(inner)
    assert not noted(inner, "ranks lie")
    assert noted(neither, "ranks lie pipeline-tensor-data")
    assert noted(translation("torchtitan", GPT, mapping(GPT, axes, stages=2, inside="d")), "ranks lie tensor-pipeline-data")


# -- ZeRO, schedules, memory -----------------------------------------------------------------------------------------------


def test_zero_stages_are_the_homes_of_the_weights() -> None:
    found = [mapping(GPT, {"d": ("data", 8)}, zero=zero) for zero in range(4)]
    megatron, titan, deep = ([words(translation(name, GPT, one)) for one in found] for name in FRAMEWORKS)
    assert ["use-distributed-optimizer" in one for one in megatron] == [False, True, True, True]
    assert [one.get("data-parallel-sharding-strategy") for one in megatron] == [None, None, "optim_grads", "optim_grads_params"]
    assert [one["parallelism.data_parallel_shard_degree"] for one in titan] == ["1", "8", "8", "8"]
    assert [one.get("parallelism.fsdp_reshard_after_forward") for one in titan] == [None, "never", "never", "always"]
    assert [one["zero-stage"] for one in deep] == ["0", "1", "2", "3"]
    assert noted(translation("torchtitan", GPT, found[1]), "ZeRO-1 has no argument")
    assert noted(translation("megatron", GPT, found[3]), "older versions lack")


def test_zero_over_one_member_is_no_zero() -> None:
    assert words(translation("deepspeed", GPT, mapping(GPT, {"d": ("data", 1), "t": ("tensor", 8)}, zero=2)))["zero-stage"] == "0"


def test_sharding_over_a_part_of_the_data_ranks_gives_copies() -> None:
    found = mapping(GPT, {"near": ("data", 8), "far": ("data", 4)}, zero=3, over=["near"])
    assert words(translation("megatron", GPT, found))["num-distributed-optimizer-instances"] == "4"
    titan = words(translation("torchtitan", GPT, found))
    assert (titan["parallelism.data_parallel_replicate_degree"], titan["parallelism.data_parallel_shard_degree"]) == ("4", "8")
    assert noted(translation("deepspeed", GPT, found), "4 copies")


def test_zero_beyond_one_with_a_pipeline_is_refused_by_deepspeed_and_said() -> None:
    found = [mapping(GPT, {"d": ("data", 4)}, stages=4, zero=zero) for zero in (1, 2)]
    assert [noted(translation("deepspeed", GPT, one), "with a pipeline") for one in found] == [False, True]


def test_interleaving_says_the_layers_of_a_virtual_stage() -> None:
    """96 layers over 8 stages of 3 chunks: 4 layers a chunk."""
    found = mapping(GPT, {}, stages=8, schedule="interleaved", interleave=3)
    assert words(translation("megatron", GPT, found))["num-layers-per-virtual-pipeline-stage"] == "4"
    titan = words(translation("torchtitan", GPT, found))
    assert (titan["parallelism.pipeline_parallel_schedule"], titan["parallelism.pipeline_parallel_layers_per_stage"]) == (
        "Interleaved1F1B",
        "4",
    )
    assert noted(translation("deepspeed", GPT, found), "schedule interleaved has no argument")


@pytest.mark.parametrize(("stages", "chunks", "schedule"), [(8, 1, "1f1b"), (8, 2, "interleaved"), (6, 2, "zb_v")])
def test_torchtitan_makes_as_many_stages_as_were_priced(stages: int, chunks: int, schedule: str) -> None:
    """torchtitan/distributed/pipeline_parallel.py: ceil((layers + what both ends count, 1 each where nothing is said) / layers a stage)."""
    said = words(translation("torchtitan", GPT, mapping(GPT, {}, stages=stages, interleave=chunks, schedule=schedule)))
    ends = sum(int(said.get(f"parallelism.pipeline_parallel_{end}_stage_less_layers", 1)) for end in ("first", "last"))
    each = int(said["parallelism.pipeline_parallel_layers_per_stage"])
    assert -(-(96 + ends) // each) == stages * chunks
    notes = translation("torchtitan", GPT, mapping(GPT, {}, stages=stages, interleave=chunks, schedule=schedule)).notes
    assert any("PyTorch refuses" in note for note in notes) == (schedule == "zb_v")


@pytest.mark.parametrize(
    ("schedule", "without"),
    [
        ("1f1b", []),
        ("gpipe", ["megatron", "deepspeed"]),
        ("zb_h1", ["megatron", "torchtitan"]),
        ("zb_h2", ["megatron", "torchtitan", "deepspeed"]),
        ("zb_v", ["megatron", "deepspeed"]),
        ("dualpipe_v", ["megatron", "deepspeed"]),
    ],
)
def test_a_schedule_that_a_framework_lacks_is_said(schedule: str, without: list[str]) -> None:
    found = mapping(GPT, {}, stages=8, schedule=schedule, interleave=2 if schedule in FOLDED else 1)
    assert [name for name in FRAMEWORKS if noted(translation(name, GPT, found), f"schedule {schedule} has no")] == without
    assert ("enable-zbh1-pipeline" in words(translation("deepspeed", GPT, found))) == (schedule == "zb_h1")


def test_an_uneven_cut_is_a_layout_string() -> None:
    found = mapping(GPT, {}, stages=4, layers=[23, 25, 25, 23])
    assert words(translation("megatron", GPT, found))["pipeline-model-parallel-layout"] == "'Et*23|t*25|t*25|t*23L'"
    assert words(translation("torchtitan", GPT, found))["parallelism.pipeline_parallel_split_points"] == "layers.23,layers.48,layers.73"
    assert noted(translation("deepspeed", GPT, found), "uneven cut of 23, 25, 25, 23 layers")
    assert "pipeline-model-parallel-layout" not in words(translation("megatron", GPT, mapping(GPT, {}, stages=4, layers=[24] * 4)))
    ends = mapping(GPT, {}, stages=2, layers=[0, 48, 48, 0], schedule="interleaved", interleave=2)  # embedding and head alone
    assert words(translation("megatron", GPT, ends))["pipeline-model-parallel-layout"] == "'E|t*48|t*48|L'"
    assert words(translation("torchtitan", GPT, ends))["parallelism.pipeline_parallel_split_points"] == "layers.0,layers.48,norm"


def test_recomputing_and_offload() -> None:
    selective, full = (mapping(GPT, {}, recompute=policy) for policy in ("selective", "full"))
    assert words(translation("megatron", GPT, selective))["recompute-granularity"] == "selective"
    flash = translation("megatron", GPT, selective, read_profile("megatron_core"))  # (priced as none)
    assert "recompute-granularity" not in words(flash)
    assert any("flash attention keeps no scores" in note for note in flash.notes)
    said = words(translation("megatron", GPT, full))
    assert (said["recompute-granularity"], said["recompute-method"], said["recompute-num-layers"]) == ("full", "uniform", "1")
    launch = translation("megatron", GPT, mapping(GPT, {}, recompute="pointwise"))
    assert words(launch)["recompute-modules"] == "layernorm moe_act"
    assert "activations of dense layers recomputed: Megatron's module mlp runs both products again, too" in launch.cannot
    for framework in ("deepspeed", "torchtitan"):
        assert any(
            text.startswith("recompute pointwise: ") for text in translation(framework, GPT, mapping(GPT, {}, recompute="pointwise")).cannot
        )
    far = mapping(GPT, {"d": ("data", 2)}, zero=3, offload=["weights", "activations", "optimizer"], host="node")
    megatron, deep = translation("megatron", GPT, far), translation("deepspeed", GPT, far)
    assert {"optimizer-cpu-offload", "use-precision-aware-optimizer"} <= set(words(megatron))
    assert noted(megatron, "offloaded weights")
    assert noted(megatron, "offloaded activations")
    assert {"offload_optimizer", "offload_param"} <= set(json.loads(deep.config)["zero_optimization"])
    assert tomllib.loads(translation("torchtitan", GPT, far).config)["training"]["enable_cpu_offload"] is True


def test_the_profile_decides_on_overlap_and_flash_attention() -> None:
    found = mapping(GPT, {"t": ("sequence", 8), "d": ("data", 2)}, zero=1, hide_activations=True)
    bare = ProfileSpec(name="bare")
    rich = ProfileSpec.model_validate(
        {"profile": "rich", "attention": "flash", "overlap": {"weights": True, "windows": {"all_gather": {"beside": "reader"}}}}
    )
    overlaps = {"overlap-grad-reduce", "overlap-param-gather", "tp-comm-overlap", "use-flash-attn"}
    assert not overlaps & set(words(translation("megatron", GPT, found, bare)))
    assert overlaps <= set(words(translation("megatron", GPT, found, rich)))
    assert noted(translation("megatron", GPT, found, bare), "priced unfused")


@given(
    role=st.sampled_from(["tensor", "sequence", "ulysses", "context", "expert"]),
    zero=st.integers(0, 3),
    stages=st.sampled_from([1, 4]),
    schedule=st.sampled_from(["gpipe", "1f1b", "interleaved", "zb_h1", "zb_h2"]),
    recompute=st.sampled_from(["none", "selective", "full"]),
    offload=st.sampled_from([[], ["optimizer"], ["weights", "activations"]]),
    uneven=st.booleans(),
    inside=st.sampled_from([None, "d"]),
    framework=st.sampled_from(list(FRAMEWORKS)),
)
def test_every_argument_is_one_the_framework_declares(framework: str, role: str, zero: int, uneven: bool, **said: Any) -> None:
    said |= {"layers": [7, 8, 8, 9]} if uneven and said["stages"] == 4 else {}
    flash = ProfileSpec(name="flash", attention="flash")
    found = mapping(MOE, {"a": (role, 2), "d": ("data", 4)}, zero=zero, interleave=2 if said["schedule"] == "interleaved" else 1, **said)
    for profile in (None, flash):
        assert {(framework, name) for name in words(translation(framework, MOE, found, profile))} <= DECLARED


# -- what is refused -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", list(FRAMEWORKS))
@pytest.mark.parametrize(("op", "choice"), [("fc1", None), ("Q", None), ("O", None), ("softmax", "s"), ("logits", None)])
def test_an_axis_that_arguments_cannot_say_is_told_by_name(framework: str, op: str, choice: str | None) -> None:
    found = mapping(GPT, {"a": ("sequence", 4), "d": ("data", 2)})
    assert translation(framework, GPT, found).cannot == ()
    other = found.model_copy(update={"ops": {**found.ops, op: {**found.ops[op], "a": choice}}})
    assert any(why.startswith("axis 'a'") for why in translation(framework, GPT, other).cannot)


@pytest.mark.parametrize(
    ("framework", "said", "why"),
    [
        ("megatron", {"stages": 8, "schedule": "zb_h2"}, "schedule zb_h2 has no argument"),
        ("megatron", {"offload": ["weights"], "host": "node"}, "offloaded weights"),
        ("torchtitan", {"zero": 1}, "ZeRO-1 has no argument"),
        ("deepspeed", {"stages": 4, "zero": 2}, "ZeRO-2 with a pipeline"),
        ("deepspeed", {"stages": 4, "layers": [23, 25, 25, 23]}, "an uneven cut"),
    ],
)
def test_what_a_framework_lacks_is_told(framework: str, said: dict[str, Any], why: str) -> None:
    assert any(why in one for one in translation(framework, GPT, mapping(GPT, {"d": ("data", 4)}, **said)).cannot)


# -- how it reads --------------------------------------------------------------------------------------------------------


def test_lines_are_comments_then_one_shell_command_and_the_file_it_needs() -> None:
    launch = translation("deepspeed", GPT, mapping(GPT, {"d": ("data", 2)}, zero=1))
    lines = launch.lines()
    end = lines.index("# ds_config.json:")
    arguments = [line for line in lines[:end] if not line.startswith("#")]
    assert all(line.startswith("--") and line.endswith(" \\") for line in arguments[:-1])
    assert not arguments[-1].endswith("\\")
    assert json.loads("\n".join(lines[end + 1 :]))["zero_optimization"]["stage"] == 1


def test_torchtitans_file_and_arguments_say_the_same() -> None:
    axes = {"t": ("sequence", 4), "d": ("data", 2)}
    launch = translation("torchtitan", GPT, mapping(GPT, axes, stages=4, zero=3, recompute="full", layers=[23, 25, 25, 23]))
    found = {f"{table}.{key}": value for table, rows in tomllib.loads(launch.config).items() for key, value in rows.items()}
    assert found["parallelism.pipeline_parallel_split_points"] == ["layers.23", "layers.48", "layers.73"]
    assert words(launch) == {key: ",".join(value) if isinstance(value, list) else str(value) for key, value in found.items()}


def test_search_and_evaluate_print_the_same_flags_after_the_result(shell, tmp_path: Path) -> None:
    code, out, _ = shell("search", "--flags", "megatron", "-o", str(tmp_path))
    head, _, tail = out.partition("launch flags for megatron:\n")
    assert code == 0
    assert "latency" in head
    assert "--tensor-model-parallel-size 4 \\\n--pipeline-model-parallel-size 8 \\\n--sequence-parallel \\\n" in tail
    assert (tmp_path / "megatron.txt").read_text(encoding="utf-8") == tail
    assert "--pipeline-model-parallel-size 8 \\\n" in (tmp_path / "index.html").read_text(encoding="utf-8")
    assert shell("evaluate", "--flags", "megatron")[1].endswith(tail)
    data = json.loads(shell("evaluate", "--flags", "megatron", "--json")[1])["flags"]
    assert "--tensor-model-parallel-size 4" in data["arguments"]
    assert data["framework"] == "megatron"


def test_an_answer_that_no_arguments_start_is_told_and_written_and_then_why_there_are_none(shell, tmp_path: Path) -> None:
    code, out, err = shell("search", "--flags", "torchtitan", "-o", str(tmp_path / "new"))
    assert code == 2
    assert "latency" in out
    assert "launch flags" not in out
    assert "--flags: torchtitan has no arguments for this mapping: ZeRO-1" in err
    assert (tmp_path / "new" / "mapping.yaml").is_file()
    assert not (tmp_path / "new" / "torchtitan.txt").exists()
    code, out, _ = shell("search", "--flags", "torchtitan", "--json")
    assert code == 2
    assert list(json.loads(out)) == ["error"]


def test_where_the_best_has_no_arguments_those_of_the_best_that_has_are_given_with_its_figures(run, tmp_path: Path) -> None:
    homes = "[{axes: [dp], state: shard}, {axes: [dp], state: shard, grad: shard, param: shard}]"
    (tmp_path / "both.yaml").write_text(FIXED.replace("{axes: [dp], state: shard}", homes), encoding="utf-8")
    asked = ("dgx_a100", "gpt", str(tmp_path / "both.yaml"), "--set", "b=64", "--set", "accelerators=64")
    code, out, _ = run("search", *asked, "--flags", "deepspeed", "--top", "10", "-o", str(tmp_path / "new"))
    head, _, tail = out.partition("launch flags for deepspeed:\n")
    assert code == 0
    assert "ZeRO-3" in head.splitlines()[1]
    assert tail.startswith("# of number 2 of the best mappings, pp 8 × dp 2 × tp 4, ZeRO-1 over dp")
    assert "# the best has no arguments: DeepSpeed refuses ZeRO-3 with a pipeline" in tail
    mapping = str(tmp_path / "new" / "deepspeed.mapping.yaml")
    again = run("evaluate", "dgx_a100", "gpt", mapping, "--set", "b=64", "--flags", "deepspeed")[1]
    figures = next(line for line in again.splitlines() if line.startswith("latency ")).partition(", carbon")[0]
    assert figures in tail.splitlines()[0]
    assert "\n".join(again.partition("launch flags for deepspeed:\n")[2].splitlines()) == "\n".join(tail.splitlines()[2:])


def test_a_wrong_framework_is_refused_before_the_search(shell) -> None:
    code, out, err = shell("search", "--flags", "megatrn")
    assert (code, out) == (2, "")
    assert "did you mean 'megatron'" in err


def test_limits_and_fronts_from_the_shell(shell, tmp_path: Path) -> None:
    code, out, _ = shell("search", "--pareto", "latency,memory", "--limit", "memory=70 GB", "-o", str(tmp_path))
    assert code == 0
    assert "Pareto front, proven: 1 mapping" in out
    head, *rows = (tmp_path / "pareto.csv").read_text(encoding="utf-8").splitlines()
    assert head == "number,mapping,latency_s,energy_j,memory_bytes_per_accelerator,status"
    assert [row.startswith("1,") and row.endswith(",proven") for row in rows] == [True]
    assert (tmp_path / "pareto.png").stat().st_size > 100
    assert "<h2>Pareto front</h2>" in (tmp_path / "index.html").read_text(encoding="utf-8")
    assert len(json.loads(shell("search", "--pareto", "latency", "--json")[1])["front"]) == 1
    code, _, err = shell("search", "--limit", "power=5 W")
    assert code == 1
    assert "the limit is 5 W; short by" in err
    assert "smallest change that fits: --limit power=" in err


@pytest.mark.parametrize(
    ("words_", "said"),
    [
        (("--limit", "powr=5 W"), "did you mean 'power'"),
        (("--limit", "power=5 GB"), "want power, such as '5 kW'"),
        (("--limit", "power=5 W", "--limit", "power=6 W"), "two limits of power"),
        (("--pareto", "latency,memry"), "did you mean 'memory'"),
        (("--pareto", "latency,latency"), "a figure twice"),
        (("--pareto", "latency,money"), "money needs a price"),
        (("--limit", "carbon=5 J"), "want a mass, such as '5 g'"),
        (("--limit", "latency=0 s"), "a limit is positive and finite"),
        (("--time-limit", "5 GB"), "want a time, such as '30 s'"),
        (("--top", "1000000000000"), "want 1 to 10000"),
    ],
)
def test_bad_limits_and_figures_are_named(shell, words_: tuple[str, ...], said: str) -> None:
    code, out, err = shell("search", *words_)
    assert (code, out) == (2, "")
    assert said in err
