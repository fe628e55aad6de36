"""Words of rows: models by the names of their checkpoints, kinds of models, sharding over some ranks, schedules as others spell them."""

from __future__ import annotations

from dataclasses import replace

import pytest

import rackmodel as rm
from rackmodel import api
from rackmodel.errors import InputError
from rackmodel.inputs import check, read_architecture, read_profile, read_workload
from rackmodel.inputs.library import CONFIGS, DECODER, TRAINING, called, library_root, names, published
from rackmodel.model.formats import multiplied
from rackmodel.serving.offers import Service, Widths, workload_of
from rackmodel.validation.attention import attention_rows
from rackmodel.validation.layer_sizes import heads_of, layer_model
from rackmodel.validation.products import product_rows
from rackmodel.validation.rows import PublishedRow
from rackmodel.validation.runs import training_rows
from rackmodel.validation.score import ScoredRow
from rackmodel.validation.serving import Point, point_of
from rackmodel.validation.single import OneCall, time_of
from rackmodel.validation.training import SHARDS, TrainingCase, training_case
from rackmodel.validation.words import Refused, words

RUN = {
    "id": "one", "dataset": "mine", "model": "Llama 2 7B", "seq_len": "4096", "gpu": "H100", "n_gpus": "64", "tp": "1", "pp": "1",
    "mbs": "1", "gbs": "256", "precision": "bf16", "recompute": "none", "sharding": "ZeRO-1", "iteration_time_s": "1.0",
}  # fmt: skip


def row(**cells: str) -> PublishedRow:
    found = {**RUN, **cells}
    return PublishedRow(found["id"], found["dataset"], "training", found, "rows.csv", 2)


def case(**cells: str) -> TrainingCase:
    return training_case(row(**cells), words())


def scored(*rows: PublishedRow) -> list[ScoredRow]:
    return training_rows(rows, intervals=False, bins=False)


# -- models -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "workload"),
    [
        ("Llama 2 7B", "llama"),
        ("google/gemma-3-27b-it", "gemma3_27b_training"),
        ("Gemma 3 27B", "gemma3_27b_training"),
        ("phi-4", "phi4_training"),
        ("allenai/OLMo-2-1124-7B-Instruct", "olmo2_7b_training"),
        ("Falcon-180B", "falcon_180b_training"),
        ("PaLM 540B", "palm_540b_training"),
        ("OPT-175B", "opt_175b_training"),
        ("BLOOM", "bloom_176b_training"),
        ("GPT-NeoX-20B", "neox_20b_training"),
        ("Mixtral-8x22B-Instruct-v0.1", "moe_llama"),
        ("DeepSeek-R1", "moe_mla"),
        ("DeepSeek V3.1 Terminus", "moe_mla"),
        ("Kimi K2 Thinking", "kimi_k2_training"),
        ("Gemma 2 27B it", "gemma2_27b_training"),
        ("Qwen3-Next 80B A3B Instruct", "qwen3_next_80b_training"),
        ("gpt-oss 120b", "gpt_oss_120b_training"),
        ("GLM 4.6", "glm46_training"),
    ],
)
def test_a_model_that_is_trained_is_found_by_any_name_of_its_checkpoints(word: str, workload: str) -> None:
    assert words().model(word).workload == workload


@pytest.mark.parametrize(
    ("cells", "instead"),
    [
        ({"model": "Grok-1"}, "a workload by its name or path may stand there, such as `rackmodel import config.json --training` makes"),
        ({"gpu": "Gaudi 3"}, "an architecture by its name or path may stand there"),
    ],
)
def test_a_word_that_nothing_is_near_to_is_refused_with_what_may_stand_in_its_place(cells: dict[str, str], instead: str) -> None:
    (word,) = cells.values()
    with pytest.raises(Refused, match=f"called '{word}'; {instead}"):
        case(**cells)


@pytest.mark.parametrize(
    ("word", "machine"), [("TPU7x", "tpu_v7x"), ("Instinct MI355X", "mi355x_nodes"), ("WSE-3", "cs3"), ("NVIDIA B300", "dgx_b300")]
)
def test_accelerators_of_2026_are_found_by_what_rows_call_them(word: str, machine: str) -> None:
    assert case(gpu=word).key.machine == machine


@pytest.mark.parametrize(
    ("word", "workload"),
    [
        ("deepseek-ai/DeepSeek-V3.2-Exp", "deepseek_v32_decoder"),
        ("zai-org/GLM-4.6-FP8", "glm46_decoder"),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "qwen3_next_80b_decoder"),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama4_scout_decoder"),
        ("Llama-4-Maverick", "llama4_maverick_decoder"),
        ("gemma-3-12b-it", "gemma3_12b_decoder"),
        ("Llama-3.1-8B", "llama3_8b_decoder"),
        ("Meta-Llama-3.1-8B-Instruct-FP8", "llama3_8b_decoder"),
    ],
)
def test_a_model_that_is_served_is_found_by_any_name_of_its_checkpoints(word: str, workload: str) -> None:
    assert words().served_model(word).workload == workload


def test_every_model_of_words_has_a_workload_that_can_be_read() -> None:
    untrained = {f"{model}_training" for model in ("deepseek_v4_flash", "deepseek_v4_pro", "gemma3n_e2b", "gemma3n_e4b", "gemma4_e2b")}
    for name in sorted({one.workload for table in (words().models, words().served) for one in table.values() if not one.refused}):
        if name in untrained:  # served alone: caches of compressed tokens, or of another layer
            with pytest.raises(InputError, match="is not put together here"):
                read_workload(name)
        else:
            assert read_workload(name).sections, name


def test_a_published_config_has_two_workloads_but_where_a_file_has_the_name() -> None:
    assert not set(published()) & set(names("workload"))
    assert {"gemma3_27b_decoder", "gemma3_27b_training"} <= set(published())
    assert {source.step for source in published().values()} == {DECODER, TRAINING}
    assert {"qwen3_32b_decoder", "gemma3_27b_decoder"} <= set(called("workload"))
    assert read_workload("llama2_7b_decoder").serving is not None
    assert read_workload("llama2_7b_training").serving is None


def test_every_published_config_is_found_by_names_of_its_checkpoints() -> None:
    """DeepSeek V3 is in words.yaml and serving.yaml alone."""
    configs = {path.stem for path in (library_root() / CONFIGS).glob("*.json")}
    assert configs - {one.config for one in words().configs.values()} == {"deepseek_v3"}


def test_what_is_left_of_a_checkpoints_name_is_the_model_of_that_name_first() -> None:
    """Kimi K2 was released in fp8, and Kimi K2 Thinking, of whose name as much is left, in int4."""
    found = {name: words().served_model(name).released for name in ("Kimi-K2-Base", "Kimi-K2", "moonshotai/Kimi-K2-Thinking", "Kimi-K2.5")}
    assert found == {"Kimi-K2-Base": "fp8", "Kimi-K2": "fp8", "moonshotai/Kimi-K2-Thinking": "int4", "Kimi-K2.5": "int4"}


def test_a_config_where_a_file_is_wanted_names_the_command() -> None:
    for read in (read_workload, check):
        with pytest.raises(InputError, match="is a model's config: `rackmodel import`"):
            read(str(library_root() / CONFIGS / "gemma3_27b.json"))


@pytest.mark.parametrize("word", ["Llama", "GPT", "mpt"])
def test_a_kind_of_models_without_sizes_is_no_model(word: str) -> None:
    with pytest.raises(Refused, match=f"'{word}' is a kind of models: want its sizes"):
        case(model=word)
    sizes = {"layers": "32", "hidden": "4096", "heads": "32", "vocab": "32000"}
    assert case(model="mine", arch=word, **sizes).layers == 32


@pytest.mark.parametrize(("kind", "hidden", "inside"), [("llama", 4096, 11008), ("llama", 5120, 13824), ("gpt", 4096, 16384)])
def test_what_a_row_does_not_say_of_a_layers_width_is_that_of_its_kind(kind: str, hidden: int, inside: int) -> None:
    """Llama 7B and 13B: 8/3 of the width, up to a multiple of 256; GPT-3: four times."""
    found = case(model="mine", arch=kind, layers="32", hidden=str(hidden), heads="32", vocab="32000", ffn="")
    assert dict(found.key.model.sizes)["f"] == inside


def test_a_named_model_beside_its_kind_and_sizes_says_those_that_the_row_does_not() -> None:
    """Llama 3 8B of 32 layers, 4,096 wide, 32 heads, was priced as a Llama with 32 heads of keys, 11,008 within and 32,000 words."""
    sizes = {"layers": "32", "hidden": "4096", "heads": "32"}
    named = case(model="Llama 3 8B")
    assert case(model="Llama 3 8B", arch="llama", **sizes).key == named.key
    assert case(model="Llama 3 8B", arch="llama", kv_heads="8", ffn="14336", vocab="128256", **sizes).batch == named.batch
    other = dict(case(model="Llama 3 8B", arch="llama", **sizes | {"layers": "16", "hidden": "2048"}).key.model.sizes)
    assert (other["d"], other["g"], other["f"]) == (2048, 32, 5632)  # no longer its sizes: a Llama as the row says
    plain = dict(case(model="llama", arch="llama", vocab="32000", **sizes).key.model.sizes)
    assert (plain["g"], plain["f"]) == (32, 11008)


def test_a_kind_of_models_that_is_not_known_lists_those_that_are() -> None:
    with pytest.raises(Refused, match="no model called 'mine', nor a kind of models called 'rwkv'; known: gpt, opt"):
        case(model="mine", arch="rwkv", layers="32", hidden="4096", heads="32")


def test_a_vocabulary_that_tensor_ranks_do_not_divide_is_padded_whoever_says_it() -> None:
    """GPT-2's 50,257 words over four ranks: the next multiple of 4 x 128 is 50,688."""
    assert "vocabulary 50257 padded to 50688" in case(model="GPT-2 XL", tp="4").assumptions


# -- sharding -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "replicas", "shards"),
    [
        ({"sharding": "HSDP"}, 8, 8),  # nodes of eight
        ({"sharding": "HYBRID_SHARD", "tp": "2"}, 8, 4),
        ({"sharding": "FSDP=16"}, 4, 16),
        ({"sharding": "HSDP=32"}, 2, 32),
    ],
)
def test_weights_may_be_sharded_over_some_data_parallel_ranks(cells: dict[str, str], replicas: int, shards: int) -> None:
    degrees = case(**cells).mesh.degrees
    assert (degrees["dp"], degrees[SHARDS]) == (replicas, shards)


def test_groups_of_all_ranks_are_no_hybrid() -> None:
    assert SHARDS not in case(sharding="HSDP", n_gpus="8").mesh.degrees
    assert SHARDS not in case(sharding="FSDP=64").mesh.degrees


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ({"tp": "8"}, "HSDP: a node holds no two data-parallel ranks; say over how many weights are sharded \\(HSDP=8\\)"),
        ({"cp": "2"}, "over 4 of 64 data-parallel ranks, with ranks of experts or context"),
        ({"model": "Mixtral 8x7B", "ep": "8"}, "over 8 of 64 data-parallel ranks, with ranks of experts or context"),
        ({"n_gpus": "12", "gbs": "12"}, "over 8 of 12 data-parallel ranks, which are no whole groups"),
    ],
)
def test_shards_over_a_node_where_that_is_none_of_the_groups_are_refused(cells: dict[str, str], why: str) -> None:
    with pytest.raises(Refused, match=why):
        case(sharding="HSDP", **cells)


def test_no_note_says_all_ranks_where_weights_are_sharded_over_some() -> None:
    assert any("over all data-parallel ranks" in note for note in case(sharding="FSDP=64").assumptions)
    assert not any("over all data-parallel ranks" in note for note in case(sharding="FSDP=16").assumptions)


def test_hybrid_sharding_holds_a_share_of_a_node_and_reduces_shards_between_nodes() -> None:
    """Llama 2 7B: 6.74 billion weights of 18 bytes, of 64 ranks or of eight: 1.9 and 15.2 GB of states a rank."""
    over_all, over_nodes = scored(row(id="a", sharding="FSDP", memory_gib="40"), row(id="b", sharding="HSDP", memory_gib="40"))[1::2]
    weights = 6.738e9 * (2 + 4 + 12)
    more = (over_nodes.predicted - over_all.predicted) * 2**30
    assert more == pytest.approx(weights / 8 - weights / 64, rel=0.1)
    fast, slow = scored(row(id="a", sharding="FSDP"), row(id="b", sharding="HSDP"))
    assert slow.predicted < 1.2 * fast.predicted  # all-reduces of shards, an eighth of the gradients, hide behind the backward pass


def test_the_mapper_of_hybrid_sharding_gathers_within_nodes_and_reduces_between_them() -> None:
    degrees = {f"axes.{axis}.degree": str(degree) for axis, degree in {"pp": 1, "cp": 1, "tp": 2, "dp_shard": 4}.items()}
    home = "{weights: {axes: [dp_shard, cp], state: shard, grad: shard, param: shard}}"
    asked = {"accelerators": 16, "b": 32, "homes": home, "recompute": "full", "layouts": "{}", **degrees}
    result = rm.search("dgx_h100", "llama3_8b", "parallel_hybrid", set=asked).result
    weights = {(one.level, one.action) for one in result.ledger if one.component == "network" and one.tensor.startswith("W")}
    assert ("node", "all_gather") in weights
    assert ("node", "reduce_scatter") in weights
    assert {action for level, action in weights if level != "node"} == {"all_reduce"}


@pytest.mark.parametrize(
    ("sharding", "profile"),
    [("ZeRO-1", "megatron_core"), ("ZeRO-3", "deepspeed_zero3"), ("full_shard", "fsdp"), ("FSDP2", "torchtitan_sync"), ("HSDP", "fsdp")],
)
def test_the_word_for_sharding_tells_the_framework_of_a_data_set_that_nobody_described(sharding: str, profile: str) -> None:
    assert case(sharding=sharding).key.profile == profile
    assert case(sharding=sharding, dataset="megatron_sc21_t2").key.profile in ("megatron_2021", "deepspeed_zero3")


def test_a_row_that_shards_weights_and_says_no_degrees_splits_nothing_else() -> None:
    degrees = case(sharding="FSDP", tp="", pp="").mesh.degrees
    assert degrees == {"pp": 1, "dp": 64, "cp": 1, "tp": 1}
    with pytest.raises(Refused, match="no degrees of parallelism"):
        case(tp="")


def test_a_rate_without_a_pipeline_needs_no_batch() -> None:
    rate = {"iteration_time_s": "", "tokens_per_s": "200000"}
    assert case(gbs="", **rate).batch == 64
    with pytest.raises(Refused, match="no global batch"):
        case(gbs="")
    with pytest.raises(Refused, match="no global batch"):
        case(gbs="", pp="4", **rate)


# -- schedules ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "schedule"),
    [
        ("1F1B", "1f1b"),
        ("PipeDream-Flush", "1f1b"),
        ("AFAB", "gpipe"),
        ("zero bubble", "zb_h1"),
        ("ZB1P", "zb_h1"),
        ("ZBV", "zb_v"),
        ("DualPipeV", "dualpipe_v"),
        ("1F1B-interleaved", "interleaved"),
        ("interleaved 1f1b", "interleaved"),
    ],
)
def test_a_schedule_is_known_in_other_spellings(word: str, schedule: str) -> None:
    assert case(pp="4", schedule=word).schedule == schedule


def test_a_schedule_that_interleaves_has_several_chunks_where_none_are_said() -> None:
    """32 layers on 4 stages are 8 a stage: two chunks of four are the least."""
    found = case(pp="4", schedule="interleaved 1f1b")
    assert found.chunks == 2
    assert any("least number of chunks" in note for note in found.assumptions)
    assert case(pp="4", schedule="interleaved", vpp="4").chunks == 4
    with pytest.raises(Refused, match="interleaved, and 32 layers on 32 stages are no equal chunks: want a column vpp"):
        case(pp="32", schedule="interleaved")


def test_a_schedule_that_interleaves_one_chunk_a_stage_is_told_to_be_1f1b() -> None:
    found = case(pp="4", schedule="interleaved", vpp="1")
    assert (found.schedule, found.chunks) == ("1f1b", 1)
    assert any("one chunk a stage" in note for note in found.assumptions)
    assert not any("one chunk a stage" in note for one in (case(pp="4"), case(schedule="interleaved")) for note in one.assumptions)


def test_schedules_that_are_not_run_say_what_they_are() -> None:
    with pytest.raises(Refused, match="schedule 'InterleavedZeroBubble': passes of weight gradients"):
        case(pp="4", vpp="2", schedule="InterleavedZeroBubble")


def test_rows_of_other_schedules_beside_each_other_are_priced_as_each_alone() -> None:
    rows = [row(id=name, pp="4", schedule=name) for name in ("1f1b", "zb_h1", "zb_h2", "zb_v")]
    together, alone = scored(*rows), [scored(one)[0] for one in rows]
    assert [one.predicted for one in together] == pytest.approx([one.predicted for one in alone], rel=1e-12)
    assert len({one.predicted for one in together}) == 4


# -- precision and recomputation ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "width"),
    [("BF16 mixed", "16 bit"), ("bf16-true", "16 bit"), ("TE fp8", "8 bit"), ("fp8-mixed", "8 bit"), ("E4M3", "8 bit"), ("FP4", "4 bit")],
)
def test_a_precision_is_known_in_other_spellings(word: str, width: str) -> None:
    assert case(precision=word).key.model.width == width


@pytest.mark.parametrize(
    ("word", "policy"),
    [
        ("False", "none"),
        ("no AC", "none"),
        ("True", "full"),
        ("gradient checkpointing", "full"),
        ("core_attn", "selective"),
        ("SAC", "alternate"),
        ("layernorm, moe_act", "pointwise"),
        ("moe, layernorm, core_attn, moe_act", "experts"),
    ],
)
def test_recomputation_is_known_in_other_spellings(word: str, policy: str) -> None:
    assert case(recompute=word).key.recompute == policy


# -- servers and kernels ------------------------------------------------------------------------------------------------------

SERVED = {
    "id": "one", "dataset": "mine", "backend": "vllm", "backend_version": "0.11.0", "model_path": "Qwen/Qwen3-14B",
    "system": "h200_sxm", "precision": "fp8", "isl": "1024", "osl": "1024", "tp_size": "8", "n_gpus": "8", "tpot_ms": "20",
    "concurrency": "64",
}  # fmt: skip


def point(**cells: str) -> Point:
    found = {**SERVED, **cells}
    return point_of(PublishedRow(found["id"], found["dataset"], "served", found, "rows.csv", 2))


@pytest.mark.parametrize(
    ("word", "widths"),
    [
        ("MXFP4", {"weight": "mxfp4", "product": "mxfp4"}),
        ("mxfp8", {"weight": "mxfp8", "product": "mxfp8"}),
        ("fp8_e4m3", {"weight": "fp8", "product": "fp8"}),
        ("W8A8", {"weight": "int8", "product": "int8"}),
        ("W8A16", {"weight": "int8"}),
        ("awq_int4", {"weight": "int4"}),
        ("w4a8", {"weight": "int4", "product": "fp8"}),
        ("BF16", {}),
    ],
)
def test_a_format_is_priced_as_what_it_says(word: str, widths: dict[str, str]) -> None:
    assert dict(point(precision=word, system="b200_sxm").server.widths) == widths


def test_experts_of_gpt_oss_alone_are_in_mxfp4_whatever_word_says_it() -> None:
    found = [point(model_path="openai/gpt-oss-120b", precision=word).server.widths for word in ("mxfp4", "fp4", "")]
    assert found == [(("experts", "mxfp4"), ("product", "bf16"), ("weight", "bf16"))] * 3


def test_a_sparse_deepseek_is_served_in_the_format_in_which_it_was_released() -> None:
    found = point(model_path="deepseek-ai/DeepSeek-V3.2-Exp", precision="").server
    assert (found.model.workload, dict(found.widths)["weight"]) == ("deepseek_v32_decoder", "fp8_block")


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("nvidia/Llama-3_1-Nemotron-51B-Instruct", "layers whose attention is one product"),
        ("mistralai/Mistral-Large-2402", "has no published sizes"),
    ],
)
def test_a_model_that_cannot_be_expressed_is_refused_by_what_it_is(word: str, why: str) -> None:
    with pytest.raises(Refused, match=why):
        point(model_path=word)


def test_an_engine_may_say_its_release() -> None:
    found = point(backend="vLLM v0.6.3", backend_version="").run
    assert (found.engine.words[0], found.row.text("backend_version")) == ("vllm", "0.6.3")
    with pytest.raises(Refused, match="no engine called 'TGI'; known: vllm, trtllm"):
        point(backend="TGI")


def test_a_kernel_of_a_release_that_was_not_measured_is_that_of_the_one_before() -> None:
    """Rows are of 0.14.0, 0.22.0 and 0.24.0: a module of 0.23 is that of 0.22, and of 0.20 the oldest there is."""
    said = words()
    assert said.attention_kernel("VLLM 0.23.0 MLA module", "dgx_h100", 0.0) == "mla_module"
    assert said.attention_kernel("VLLM 0.16.0 MLA", "dgx_h100", 0.0) == said.attention_kernel("VLLM 0.14.0 MLA", "dgx_h100", 0.0)
    assert said.of_other_release("VLLM 0.23.0 MLA module") == "'VLLM 0.23.0 MLA module' is priced as 'VLLM 0.22.0 MLA module'"
    assert said.of_other_release("vllm 0.22.0 MLA module") == said.of_other_release("fa3") == ""
    with pytest.raises(Refused, match=r"no attention kernel called 'TRTLLM 1\.0\.0 MLA'"):
        said.attention_kernel("TRTLLM 1.0.0 MLA", "dgx_h100", 0.0)


CALL = {
    "id": "one", "dataset": "mine", "system": "h100_sxm", "kernel_source": "vllm_flash_attn", "attn_dtype": "bfloat16",
    "kv_cache_dtype": "bfloat16", "batch_size": "8", "q_len": "1", "past_kv_len": "4095", "num_heads": "32", "num_key_value_heads": "8",
    "head_dim": "128", "latency_us": "50",
}  # fmt: skip


def called_attention(**cells: str) -> ScoredRow:
    found = {**CALL, **cells}
    return attention_rows([PublishedRow("one", "mine", "attention", found, "rows.csv", 2)])[0]


def test_a_kernel_without_facts_is_priced_by_the_machines_own_and_told() -> None:
    own = called_attention()
    for word in ("FlashInfer", "trtllm_gen", ""):
        other = called_attention(kernel_source=word)
        assert other.predicted == own.predicted
        assert len(other.assumptions) == len(own.assumptions) + 1
    assert (
        "no facts of the attention kernel 'flashinfer': priced by the machine's own"
        in called_attention(kernel_source="flashinfer").assumptions
    )
    assert called_attention(kv_cache_dtype="auto").predicted == own.predicted
    assert called_attention(kernel_source="xformers").refused.startswith("no attention kernel called 'xformers'; known: vllm_flash_attn")


def test_sizes_of_a_models_operations_are_those_of_its_published_config() -> None:
    """Qwen 2.5 7B: 28 heads of 128, four of keys and values, 18,944 inside."""
    found = layer_model("Qwen/Qwen2.5-7B-Instruct").sizes
    assert found == {"d": 3584, "h": 28, "g": 4, "e": 128, "f": 18944, "v": 152064}
    heads = heads_of("google/gemma-2-9b")
    assert (heads.heads, heads.kv_heads, heads.head) == (16, 8, 256)
    assert layer_model("meta-llama/Llama-3.1-8B").source == "RECALLED: its config.json"
    said = next(one for one in words().layer_models.values() if one.kernels)
    assert layer_model(said.words[0].replace("-", " ")) == said  # what words say counts in other spellings, too
    with pytest.raises(Refused, match="has no grouped queries"):
        layer_model("deepseek-ai/DeepSeek-V2-Lite")


@pytest.mark.parametrize(
    ("machine", "name", "product"),
    [
        ("dgx_b200", "nvfp4", "nvfp4"),
        ("dgx_h200", "nvfp4", ""),
        ("dgx_h200", "fp8_block", "fp8_block"),
        ("dgx_h200", "int8", "int8"),
        ("dgx_h200", "mxfp8", ""),
        ("dgx_b200", "mxfp8", "mxfp8"),
        ("dgx_a100", "fp8", ""),
        ("dgx_a100", "int8", "int8"),
        ("l40s_node", "fp8", "fp8"),
        ("mi355x_nodes", "mxfp4", "mxfp4"),
        ("mi300x_nodes", "mxfp4", ""),
        ("dgx_b200", "int4", ""),
        ("dgx_b200", "int4_g128", ""),
    ],
)
def test_a_format_without_units_is_of_weights_alone(machine: str, name: str, product: str) -> None:
    assert multiplied(read_architecture(machine), name) == product


@pytest.mark.parametrize(
    ("machine", "recipe", "refused"),
    [
        ("dgx_a100", "fp8", "fp8"),
        ("dgx_h100", "mxfp8", "mxfp8"),
        ("dgx_h100", "nvfp4", "nvfp4"),
        ("dgx_a100", "fp8_blockwise", "fp8_block"),
    ],
)
def test_training_in_a_format_without_units_is_refused(machine: str, recipe: str, refused: str) -> None:
    """An A100 multiplied fp8 as fast as its units of int8 do, an H100 mxfp8 as fast as fp8."""
    with pytest.raises(InputError, match=f"'tensor_core' multiplies no {refused} .of weights alone"):
        api.search(machine, "llama3_8b", "fsdp", sets=["accelerators=8", "b=8", "layers=2", f"precision.recipe={recipe}"])


@pytest.mark.parametrize(
    ("units", "name", "there"),
    [
        ("8 bit", "fp8", True),
        ("8 bit", "mxfp8", True),
        ("8 bit", "nvfp4", False),
        ("nvfp4", "nvfp4", True),
        ("mxfp8", "mxfp8", True),
        ("mxfp8", "nvfp4", False),
        ("int4", "int4_g128", True),
        ("int4", "nvfp4", False),
    ],
)
def test_units_that_are_called_by_a_format_or_a_width_multiply_it(units: str, name: str, there: bool) -> None:
    """By hand: 2 x 256 x 256 x 512 operations, half of them on each GPU, at 2 TFLOP/s. Machines that called their units so were told that
    they multiply none, and served the format's weights alone."""
    compute = {"precisions": {"16 bit": {"rate": "1 TFLOP/s"}, units: {"rate": "2 TFLOP/s"}}}
    memory = {"capacity": "1 GB", "bandwidth": "100 TB/s"}
    gpu = {"name": "gpu", "count": 2, "accelerator": True, "memory": memory, "compute": compute}
    network = {"topology": "switch", "bandwidth": "50 GB/s"}
    machine = rm.read({"architecture": "own", "tree": {"name": "root", "network": network, "children": [gpu]}})
    precision, sizes = {"weight": name, "product": name}, {"m": 256, "d": 256, "f": 512}
    work = {"workload": "w", "phases": ["forward"], "sizes": sizes, "precision": precision, "einsums": {"one": "H[m,f] = X[m,d] * W[d,f]"}}
    asked = {"mapper": "split", "axes": {"dp": {"degree": 2}}, "split": {"dp": ["m"]}, "profile": "ideal"}
    assert multiplied(machine, name) == (name if there and not name.startswith("int4") else "")
    if there:
        assert rm.search(machine, rm.read(work), rm.read(asked)).result.latency_s == pytest.approx(256 * 256 * 512 / 2e12, rel=1e-12)
    else:
        with pytest.raises(InputError, match=f"'gpu' multiplies no {name}"):
            rm.search(machine, rm.read(work), rm.read(asked))


@pytest.mark.parametrize(("machine", "numbers"), [("dgx_a100", "fp8"), ("dgx_h100", "mxfp8"), ("dgx_h100", "nvfp4")])
def test_operands_in_a_format_without_units_are_refused_as_a_recipe_is(machine: str, numbers: str) -> None:
    """Both said by themselves, with no recipe: an A100 multiplied fp8 as fast as its units of int8 do, trained or served."""
    both = [f"precision.activation={numbers}", f"precision.weight={numbers}"]
    told = f"'tensor_core' multiplies no {numbers}, as which"
    with pytest.raises(InputError, match=told):
        api.search(machine, "llama3_8b", "fsdp", sets=["accelerators=8", "b=8", "layers=2", *both])
    sets = tuple(f"workload.{one}" for one in both)
    service = Service(read_architecture(machine), "llama3_8b_decoder", sets, read_profile("vllm"), prompt=1024, output=1024)
    with pytest.raises(InputError, match=told):
        workload_of(service, Widths())


def test_weights_alone_or_numbers_that_a_part_has_units_for_are_priced() -> None:
    """fp8 beside activations of 16 bit is widened; int8 has units on an A100, and 8 bit names no numbers."""
    small = ["accelerators=8", "b=8", "layers=2"]
    for said in ("precision.weight=fp8", "precision.activation=int8", "precision.activation=8 bit"):
        assert api.search("dgx_a100", "llama3_8b", "fsdp", sets=[*small, said]).result.latency_s > 0


@pytest.mark.parametrize(("machine", "recipe"), [("h100", "int8"), ("a100", "int8"), ("a100", "mxfp4"), ("b200", "mxfp8")])
def test_training_in_a_format_with_units_or_of_weights_alone_is_priced(machine: str, recipe: str) -> None:
    sets = ["accelerators=8", "b=8", "layers=2", f"precision.recipe={recipe}"]
    assert api.search(f"dgx_{machine}", "llama3_8b", "fsdp", sets=sets).result.latency_s > 0


@pytest.mark.parametrize(("machine", "name"), [("dgx_a100", "fp8"), ("dgx_h100", "mxfp8"), ("dgx_h100", "nvfp4"), ("dgx_b200", "int4")])
def test_one_product_in_a_format_without_units_is_refused(machine: str, name: str) -> None:
    """One of fp8 on an A100 was timed at int8's rate, one of nvfp4 on an H100 at fp8's; a pass over elements that wide is no product."""
    with pytest.raises(InputError, match=f"--precision: {machine} multiplies no {name}"):
        time_of(read_architecture(machine), "gemm", OneCall("4096x4096x4096", name))
    assert time_of(read_architecture(machine), "softmax", OneCall("4096x4096", name)).seconds > 0
    assert time_of(read_architecture(machine), "gemm", OneCall("4096x4096x4096", "8 bit")).seconds > 0


def test_a_recipe_without_units_serves_as_its_format_does() -> None:
    """`precision.recipe=fp8` of a workload on A100s was 45 % faster than `--precision fp8`: weights alone are narrow."""
    service = Service(read_architecture("dgx_a100"), "llama3_70b_decoder", (), read_profile("vllm"), prompt=1024, output=1024)
    own = workload_of(replace(service, sets=("workload.precision.recipe=fp8",)), Widths())
    said = workload_of(service, Widths("fp8"))
    for one, other in zip(own.sections, said.sections, strict=True):
        assert (one.workload.product_bits, one.workload.tensors) == (other.workload.product_bits, other.workload.tensors)
    assert own.product_bits == said.product_bits == 0


def test_prompts_in_four_bits_are_no_faster_where_only_weights_are() -> None:
    """Weights of 4 bit are read sooner than those of 8; products of long prompts are in 16 bit on Hopper, as with int4."""
    found = {word: point(precision=word, system="h200_sxm").server.widths for word in ("nvfp4", "int4")}
    assert dict(found["nvfp4"]) == {"weight": "nvfp4", "product": "bf16"}
    assert dict(point(precision="nvfp4", system="b200_sxm").server.widths)["product"] == "nvfp4"
    assert "dgx_h200 multiplies no nvfp4: its weights alone are narrow" in point(precision="nvfp4").run.notes
    assert not any("its weights alone" in note for note in point(precision="nvfp4", system="b200_sxm").run.notes)
    assert Widths("int4").sets(read_architecture("dgx_b200")) == ("workload.precision.weight=int4",)
    assert len(Widths("nvfp4").sets(read_architecture("dgx_b200"))) == 2


def test_a_card_under_a_lower_limit_of_power_multiplies_as_its_clock_falls() -> None:
    """H100 NVL: 700 - 75 of idling over 400 - 75 W to the 1/1.5 (cost/inside/power) is 1.55."""
    sides = {"op": "gemm", "precision": "bf16", "m": "8192", "n": "8192", "k": "8192", "time_ms": "1"}
    gpus = ("H100 SXM", "NVIDIA H100-NVL-94GB", "H100 PCIe")
    sxm, nvl, pcie = (product_rows([PublishedRow("one", "mine", "product", sides | {"gpu": gpu}, "rows.csv", 2)])[0] for gpu in gpus)
    assert nvl.predicted / sxm.predicted == pytest.approx((625 / 325) ** (1 / 1.5), rel=0.02)
    assert pcie.predicted > nvl.predicted  # 114 of its 132 SMs, at 350 W
    assert [words().machine(gpu, "mine").machine for gpu in ("H200-NVL", "A100 PCIe", "GH200 144GB")] == ["dgx_h200", "dgx_a100", "gh200"]


@pytest.mark.parametrize(
    "word",
    ["h100_sxm", "H100 SXM5 80GB", "A100-SXM4-40GB", "AMD MI300X 192GB", "TPU v4", "Trillium", "trn2", "CS-3", "Tesla V100", "V100-16GB"],
)
def test_a_machine_is_known_as_tables_write_it(word: str) -> None:
    assert words().machine(word, "mine").machine in names("architecture")


def test_no_nearest_word_is_sought_where_a_row_is_read_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that nothing is called, of a kind that is known, with sizes: priced as that, and nothing is compared letter by letter."""
    sought: list[str | None] = []
    monkeypatch.setattr(f"{words.__module__}.nearest_name", lambda word, known: sought.append(word))
    sized = {"arch": "GPT", "layers": "24", "hidden": "2304", "heads": "24", "model": "our own 3.6B"}
    assert case(**sized).key.model.workload == "gpt"
    assert not sought
    with pytest.raises(Refused, match=r"our own 3\.6B"):
        case(**(sized | {"arch": "XYZ"}))
    assert sought == ["xyz"]
