"""Layers of published configs that are of several sorts at once, numbered or nested; and what their kinds are split by where they serve."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rackmodel.errors import InfeasibleError, InputError
from rackmodel.inputs import read_mapper, read_workload
from rackmodel.inputs.decoders import LayerCount, compose_decoder
from rackmodel.inputs.hf_config import import_config, render
from rackmodel.inputs.hf_keys import family_called
from rackmodel.mapper.rules import axis_factors
from rackmodel.serving.offers import check_context, check_tensor
from rackmodel.serving.served_model import ServedModel
from rackmodel.serving.steps import Deployment, Steps
from tests.serving_models import served_on
from tests.test_decoder_blocks import SIZES

CONFIGS = Path(__file__).parents[1] / "workloads" / "configs"


def changed(name: str, tmp_path: Path, **changes: Any) -> Path:
    """A published config, changed. A change of a nested mapping is added to it."""
    config = json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8"))
    path = tmp_path / "config.json"
    both = {key: {**config[key], **value} if isinstance(value, dict) else value for key, value in changes.items()}
    path.write_text(json.dumps(config | both), encoding="utf-8")
    return path


def layers(name: str, tmp_path: Path, **changes: Any) -> dict[str, int]:
    """Layers of each kind."""
    made = tmp_path / "made.yaml"
    made.write_text(import_config(changed(name, tmp_path, **changes)).text, encoding="utf-8")
    return {one.name: one.repeat for one in read_workload(made).sections if one.name not in ("embed", "head")}


STEP3_BESIDE = {"im_end_token": "<im_end>", "im_patch_token": "<im_patch>", "im_start_token": "<im_start>", "patch_token_len": 81}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("step3", STEP3_BESIDE),  # huggingface.co/stepfun-ai/step3, config.json: of how images stand among tokens
        ("rwkv7_2_9b", {"_attn_implementation_autoset": True, "num_heads": None, "intermediate_size": None}),  # fla-hub/rwkv7-1.5B-world
        ("rwkv7_2_9b", {"value_dim": [2560] * 32, "num_heads": None}),  # fla-hub/rwkv7-0.4B-world
        ("falcon_h1_0_5b", {"expansion_factor": 1.5, "mlp_expansion_factor": None, "sliding_window": None}),  # Falcon-H1-Tiny-R-90M
        ("lfm2_1_2b", {"transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}}}),  # LiquidAI/LFM2-2.6B-Transcript-ONNX
    ],
)
def test_configs_are_read_with_the_keys_that_they_are_published_with(name: str, changes: dict[str, Any], tmp_path: Path) -> None:
    """Keys that change nothing were refused."""
    config = json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8"))
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config | changes), encoding="utf-8")
    assert import_config(path).text.partition("sections:")[2] == import_config(changed(name, tmp_path)).text.partition("sections:")[2]


def test_a_layer_is_of_the_sorts_that_a_config_says_of_it(tmp_path: Path) -> None:
    """LFM2's third layer is the first of attention, Kimi Linear's fourth; Step's first two of a window have no experts."""
    lfm, kimi, step, mimo = "lfm2_8b_a1b", "kimi_linear_48b", "step35_flash", "mimo_v2_flash"
    assert layers(lfm, tmp_path) == {"convolution_dense": 2, "convolution": 16, "attention": 6}
    assert layers(lfm, tmp_path, num_dense_layers=3) == {"convolution_dense": 2, "attention_dense": 1, "convolution": 16, "attention": 5}
    assert layers(kimi, tmp_path) == {"linear_dense": 1, "linear": 19, "full": 7}
    full = {"full_attn_layers": [1, 5, 9]}
    assert layers(kimi, tmp_path, linear_attn_config=full) == {"full_dense": 1, "linear": 24, "full": 2}
    assert layers(step, tmp_path) == {"dense": 1, "window_dense": 2, "window": 31, "full": 11}
    assert layers(step, tmp_path, moe_layers_enum="44") == {"dense": 11, "window_dense": 33, "full": 1}
    assert layers(mimo, tmp_path) == {"dense": 1, "window": 39, "full": 8}
    assert layers(mimo, tmp_path, moe_layer_freq=[0, 0] + [1] * 46) == {"dense": 1, "window_dense": 1, "window": 38, "full": 8}
    assert layers("longcat_flash", tmp_path) == {"first": 28, "second": 28}
    assert (
        layers("trinity_mini", tmp_path)
        == layers("trinity_mini", tmp_path, layer_types=None)
        == {"window_dense": 2, "window": 22, "full": 8}
    )
    assert layers("trinity_mini", tmp_path, layer_types=None, num_dense_layers=5) == {
        "dense": 1,
        "window_dense": 4,
        "window": 20,
        "full": 7,
    }
    sparse = {"mlp_layer_types": ["dense"] * 2 + ["sparse"] * 46}
    assert layers("k_exaone_236b", tmp_path, **sparse) == {"window_dense": 2, "window": 34, "full": 12}
    assert layers("k_exaone_236b", tmp_path, is_moe_layer=None, first_k_dense_replace=4) == {
        "dense": 1,
        "window_dense": 3,
        "window": 33,
        "full": 11,
    }


def test_layers_that_follow_the_models_are_those_of_its_modules(tmp_path: Path) -> None:
    """Step 3.5 lists 48 layers: 45, and three that predict tokens further."""
    types = json.loads((CONFIGS / "step35_flash.json").read_text(encoding="utf-8"))["layer_types"]
    assert layers("step35_flash", tmp_path, layer_types=types[:45]) == layers("step35_flash", tmp_path)
    with pytest.raises(InputError, match="says 47 layers, num_hidden_layers 45"):
        import_config(changed("step35_flash", tmp_path, layer_types=types[:47]))


@pytest.mark.parametrize(
    ("name", "changes", "fact"),
    [
        ("kimi_linear_48b", {"linear_attn_config": {"gate_rank": 64}}, "linear_attn_config__gate_rank: unknown key"),
        ("kimi_linear_48b", {"attn_res_block_size": 12}, "no layers such as attn_res_block_size"),  # Kimi K3's
        ("kimi_linear_48b", {"mla_use_nope": False}, "knows no other mla_use_nope than 1"),
        ("mimo_v2_flash", {"swa_head_dim": 128}, "swa_head_dim: 128 where head_dim is 192"),
        ("mimo_v2_flash", {"n_shared_experts": 1}, "no layers such as n_shared_experts"),
        ("mimo_v2_flash", {"hybrid_layer_pattern": [0, 2] * 24}, "no layers such as '2'"),
        ("falcon_h1_7b", {"mamba_rms_norm": True}, "no layers such as mamba_rms_norm"),
        ("falcon_h1_7b", {"attn_layer_indices": [1]}, "no layers such as attn_layer_indices"),
        ("step35_flash", {"attention_other_setting": {"head_dim": 64}}, "attention_other_setting__head_dim: 64 where head_dim is 128"),
        ("step35_flash", {"use_head_wise_attn_gate": False}, "knows no other use_head_wise_attn_gate than 1"),
        ("longcat_flash", {"zero_expert_type": "copy"}, "zero_expert_type: 'copy' is not what the blocks"),
        ("longcat_flash", {"emb_neighbor_num": 4}, "emb_neighbor_num: unknown key"),  # LongCat-Flash-Lite's embeddings of n-grams
        ("step35_flash", {"moe_layers_enum": "3,4,x"}, "moe_layers_enum: 'x' is no layer of 45, whose first is 0"),
        (
            "kimi_linear_48b",
            {"linear_attn_config": {"full_attn_layers": [0, 4]}},
            "full_attn_layers: '0' is no layer of 27, whose first is 1",
        ),
        ("bamba_9b", {"attn_layer_indices": [9, 32]}, "attn_layer_indices: '32' is no layer of 32"),
        ("apertus_8b", {"hidden_act": "silu"}, "hidden_act: 'silu' is not what the blocks of family apertus"),
        ("lfm2_1_2b", {"conv_bias": True}, "no layers such as conv_bias"),
        ("lfm2_1_2b", {"layer_types": ["conv"] * 15 + ["full_attention", "conv"]}, "says 17 layers, num_hidden_layers 16"),
    ],
)
def test_what_these_layers_do_not_say_is_refused_by_its_key(name: str, changes: dict[str, Any], fact: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        import_config(changed(name, tmp_path, **changes))
    assert fact in str(caught.value)


@pytest.mark.parametrize(
    ("config", "fact"),
    [
        (
            {"model_type": "minimax_m3_vl", "text_config": {"sparse_attention_config": {}}},
            "1:49: sparse_attention_config: layers of minimax_m3_vl",
        ),
        ({"model_type": "zamba2", "num_mem_blocks": 2}, "1:26: num_mem_blocks: layers of zamba2 are not expressed here: layers that share"),
        ({"model_type": "kimi_k3"}, "1:16: model_type: layers of kimi_k3 are not expressed here: attention over what earlier layers made"),
    ],
)
def test_a_model_that_cannot_be_said_is_refused_by_what_is_missing(config: dict[str, Any], fact: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        import_config(path)
    assert f"config.json:{fact}" in str(caught.value)


@pytest.mark.parametrize(
    ("model_type", "key"),
    [
        ("minimax_m3_vl_text", "sparse_attention_config"),
        ("laguna", "num_attention_heads_per_layer"),
        ("recurrent_gemma", "lru_width"),
        ("mllama_text_model", "cross_attention_layers"),
        ("rwkv", "attention_hidden_size"),
    ],
)
def test_models_that_are_known_and_not_expressed_are_refused_by_name(model_type: str, key: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": model_type, key: [1]}), encoding="utf-8")
    with pytest.raises(InputError, match=f"{key}: layers of {model_type} are not expressed here"):
        import_config(path)


def test_a_language_model_is_read_within_a_model_of_text_and_more(tmp_path: Path) -> None:
    """LLaVA's of Llama, InternVL's of Qwen 2, Qwen3-Omni's thinker, whose text is Qwen3-MoE's."""
    path = tmp_path / "config.json"
    llama, qwen, moe = (
        json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8")) for name in ("llama3_8b", "qwen2_7b", "qwen3_30b_a3b")
    )
    llava = {
        "model_type": "llava",
        "text_config": llama,
        "vision_config": {"depth": 2},
        "image_token_index": 7,
        "projector_hidden_act": "gelu",
    }
    intern = {"model_type": "internvl_chat", "llm_config": qwen, "downsample_ratio": 0.5, "select_layer": -1, "ps_version": "v2"}
    thinker = {"model_type": "qwen3_omni_moe_thinker", "text_config": moe | {"model_type": "qwen3_omni_moe_text"}, "audio_token_id": 1}
    omni = {"model_type": "qwen3_omni_moe", "thinker_config": thinker, "talker_config": {"hidden_size": 64}}
    for whole, inner in ((llava, llama), (intern, qwen), (omni, moe)):
        texts = []
        for config in (whole, inner):
            path.write_text(json.dumps(config), encoding="utf-8")
            texts.append(import_config(path).text.partition("sections:")[2])
        assert texts[0] == texts[1]
    path.write_text(json.dumps(llava | {"adapter_layers": 3}), encoding="utf-8")
    with pytest.raises(InputError, match="adapter_layers: unknown key"):
        import_config(path)


def test_kimi_linear_is_read_as_transformers_saves_it(tmp_path: Path) -> None:
    """Heads of the delta rule, layers and their experts by the keys of KimiLinearConfig, in the place of those of the checkpoint."""
    config = json.loads((CONFIGS / "kimi_linear_48b.json").read_text(encoding="utf-8"))
    linear, count = config.pop("linear_attn_config"), config["num_hidden_layers"]
    saved = {"linear_head_dim": linear["head_dim"], "linear_num_heads": linear["num_heads"], "linear_conv_kernel_dim": 4}
    full = {number - 1 for number in linear["full_attn_layers"]}
    saved["layer_types"] = ["full_attention" if number in full else "linear_attention" for number in range(count)]
    saved["mlp_layer_types"] = ["dense"] * config.pop("first_k_dense_replace") + ["sparse"] * (count - 1)
    saved |= {"num_local_experts": config.pop("num_experts"), "num_experts_per_tok": config.pop("num_experts_per_token")}
    saved |= {"n_shared_experts": config.pop("num_shared_experts"), "dense_ffn_hidden": config["intermediate_size"], "qk_head_dim": 192}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config | saved), encoding="utf-8")
    own, other = (import_config(one).text.partition("sections:")[2] for one in (path, CONFIGS / "kimi_linear_48b.json"))
    assert own.partition("source:")[0] == other.partition("source:")[0]


def test_gemma_4_has_wider_heads_without_a_window(tmp_path: Path) -> None:
    """31B: 16 heads of 256 over a window of 1,024, 4 of 512 elsewhere, whose values are what the keys are made of."""
    text = import_config(CONFIGS / "gemma4_31b.json").text
    for said in ("g: 16", "e: 256", "g_2: 4, q_2: 8, e_2: 512", "normV_2: VN_2[b,s,g_2,e_2] = rmsnorm(K_2[b,s,g_2,e_2]) over e_2"):
        assert said in text
    assert "WV_2" not in text


def test_gemma_4_of_embeddings_of_each_layer(tmp_path: Path) -> None:
    """E2B: 15 layers keep keys and values, 20 read them and are twice as wide; none of them has experts besides."""
    whole = json.loads((CONFIGS / "gemma4_e2b.json").read_text(encoding="utf-8"))
    path, made = tmp_path / "config.json", tmp_path / "made.yaml"
    made.write_text(import_config(CONFIGS / "gemma4_e2b.json").text, encoding="utf-8")
    sections = {one.name: one.repeat for one in read_workload(made).sections if one.name not in ("embed", "head")}
    assert sections == {"window_token": 12, "full_token": 3, "window_shared": 16, "full_shared": 4}
    model = served_on("dgx_h100", profile="torchtitan")(read_workload(made))
    assert model.kv_bytes_per_token == 3 * 512 * 2 * 2
    assert model.cache_bytes(4096) == 3 * 512 * 2 * 2 * 4096 + 12 * 512 * 256 * 2 * 2
    both = replace(model, others=(Deployment(pipeline=2),)).held_each(np.array([4096.0]))  # all caches in one half
    assert both.tolist() == [[model.cache_bytes(4096)]] * 2
    for changes in ({"enable_moe_block": True}, {"hidden_size_per_layer_input": 0}):
        path.write_text(json.dumps(whole | {"text_config": whole["text_config"] | changes}), encoding="utf-8")
        with pytest.raises(InputError):
            import_config(path)


def test_gemma_3n_mixes_streams_and_reads_earlier_caches(tmp_path: Path) -> None:
    """E4B: 4 streams of 2,048; 20 layers keep keys and values, 15 read them; no token is multiplied by the layers' tables."""
    found = import_config(CONFIGS / "gemma3n_e4b.json")
    made = tmp_path / "made.yaml"
    made.write_text(found.text, encoding="utf-8")
    workload = read_workload(made)
    sections = {one.name: one.repeat for one in workload.sections if one.name not in ("embed", "head")}
    assert sections == {"window": 16, "full": 4, "window_shared": 12, "full_shared": 3}
    assert workload.sections[1].workload.tensors["X"].sizes == (1, 1, 4, 2048)
    assert found.parameters - found.active == 35 * 262144 * 256  # the table of the head multiplies
    model = served_on("dgx_h100", profile="torchtitan")(workload)
    assert model.cache_bytes(4096) == 4 * 2048 * 4096 + 16 * 2048 * 512
    with pytest.raises(InputError, match="another layer's cache: their training is not put together here"):
        read_workload("gemma3n_e4b_training")
    alone = tmp_path / "config.json"
    inner = json.loads((CONFIGS / "gemma3n_e4b.json").read_text(encoding="utf-8"))["text_config"]
    alone.write_text(json.dumps(inner | {"num_kv_shared_layers": 0}), encoding="utf-8")
    trained = import_config(alone, training=True)  # where no layer reads another's: a product for keys and one for values more in 15 layers
    assert trained.parameters - found.parameters == 15 * (2 * 2048 * 2 * 256 + 256)


def test_weights_of_three_values_are_packed_in_two_bits(tmp_path: Path) -> None:
    """BitNet b1.58 2B4T: 0.4 GB but for its table (arXiv 2504.12285, table 1), and a token's products in int8."""
    text = import_config(CONFIGS / "bitnet_2b.json").text
    assert "precision: {activation: bf16, weight: 2 bit, product: int8}" in text
    made = tmp_path / "made.yaml"
    made.write_text(text, encoding="utf-8")
    model = served_on("dgx_h100", profile="torchtitan")(read_workload(made))
    assert model.weights_each[0] - 128256 * 2560 * 2 == pytest.approx(0.52e9, rel=0.01)  # 2.084 billion in a quarter of a byte, and norms
    with pytest.raises(InputError, match="quantization_mode: 'online'"):
        import_config(changed("bitnet_2b", tmp_path, quantization_config={"quantization_mode": "online"}))


def test_a_width_that_is_said_of_every_layer_is_one(tmp_path: Path) -> None:
    """RWKV-7's values are as wide as its layers: its checkpoints list it."""
    assert layers("rwkv7_2_9b", tmp_path, value_dim=[2560] * 32) == {"block": 32}
    with pytest.raises(InputError, match=r"value_dim: \[2560.* where hidden_size is 2560"):
        import_config(changed("rwkv7_2_9b", tmp_path, value_dim=[2560] * 31 + [1280]))


def test_a_feed_forward_layer_is_as_wide_as_the_config_adjusts_it(tmp_path: Path) -> None:
    """LFM2: 12,288 x 2 / 3 = 8,192; 10,000 x 2 / 3 = 6,666, and 26 x 256 = 6,656 < 6,666 <= 6,912; as it is where nothing is adjusted."""

    def width(**changes: Any) -> int:
        text = import_config(changed("lfm2_1_2b", tmp_path, **changes)).text
        return int(text.partition(" f: ")[2].partition(",")[0])

    assert width() == 8192
    assert width(block_ff_dim=10_000) == 6912
    assert width(block_ff_dim=10_000, block_auto_adjust_ff_dim=False) == 10_000


served = served_on("dgx_h100", profile="torchtitan")


def decoder(tmp_path: Path, blocks: Sequence[str], **sizes: int) -> Any:
    """Three layers of some blocks."""
    data = compose_decoder(family_called("llama"), {**SIZES, **sizes}, [LayerCount("layer", blocks, 3)], tied=False)
    path = tmp_path / "made.yaml"
    path.write_text(render("made", data, {"weight": "bf16"}, "a test", None), encoding="utf-8")
    return read_workload(path)


STATE, LAST, SHARED = 8 * 32 * 16 * 4, 8 * 32 * 3 * 2, 2 * 16 * 3 * 2
"""Bytes of a layer: matrices of 8 heads in fp32, the last three tokens of their values in bf16, and those of a group's keys and queries."""


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("block", ["mamba2", "mamba2_gqa"])
def test_ranks_of_a_server_share_out_the_heads_of_a_state_space_mixer(block: str, groups: int, tmp_path: Path) -> None:
    """Each of four ranks scans two of eight heads, of one group or two, and keeps their state: each scanned and kept all of them.
    (vLLM, layers/mamba/mamba_mixer2.py: num_heads // tp_size; a group that several ranks need each has.)"""
    workload = decoder(tmp_path, [block, "gated"], a2=groups, a3=8 // groups)
    kept = 16 * 4 * 32 * 2 * 2 if block == "mamba2_gqa" else 0  # keys and values of 16 tokens
    one, four = (served(workload, tensor=tensor) for tensor in (1, 4))
    assert one.cache_bytes(16) == 3 * (STATE + LAST + groups * SHARED + kept)
    assert four.cache_bytes(16) == 3 * ((STATE + LAST + kept) / 4 + SHARED)
    assert scanned(four) == scanned(one) == 3 * 8 * STATE


def test_ranks_of_a_server_share_out_the_channels_of_a_selective_mixer(tmp_path: Path) -> None:
    one, four = (served(decoder(tmp_path, ["mamba", "gated"]), tensor=tensor) for tensor in (1, 4))
    assert four.cache_bytes(16) == one.cache_bytes(16) / 4 == 3 * 512 * (16 * 4 + 3 * 2) / 4
    assert scanned(four) == scanned(one) == 3 * 8 * 512 * 16 * 4


def scanned(model: ServedModel) -> float:
    """Bytes of states that a step of eight sequences reads, on all accelerators together."""
    rows = model.price(Steps.of(decodes=8, context=100)).ledger.where(einsum="space", tensor="SM", level="gpu", action="read").rows
    return sum(float(np.sum(row.amount)) for row in rows)


def test_an_axis_is_cut_along_heads_of_several_numbers_at_once() -> None:
    """Falcon-H1 7B: 2 groups of 6 heads, 1 group of 24. Four ranks are 2 along g and 2 along q, and both 2 along a3."""
    serving = read_mapper("serving")
    heads = read_workload("falcon_h1_7b_decoder")
    assert axis_factors(serving, heads, "te", 2) == [("te", 2, frozenset({"g", "a3"}))]
    assert axis_factors(serving, heads, "te", 4) == [("te_a3_g", 2, frozenset({"g", "a3"})), ("te_a3_q", 2, frozenset({"q", "a3"}))]
    assert axis_factors(serving, heads, "te", 1) == [("te", 1, frozenset({"g", "a2"}))]
    mimo = read_workload("mimo_v2_flash_decoder")  # 4 groups of 16, and 8 of 8 over a window
    cut = [("te_g_g2", 4, frozenset({"g", "g2"})), ("te_g2_q", 2, frozenset({"q", "g2"}))]
    assert axis_factors(serving, mimo, "te", 8) == cut
    with pytest.raises(InputError, match="axis te is flattened two ways"):
        axis_factors(serving, heads, "te", 5)


def test_heads_of_both_kinds_of_layers_are_shared_out_alike() -> None:
    """Step 3.5: 64 heads, and 96 over a window; MiMo V2: 16 and 8 queries of a head of keys."""
    step = read_workload("step35_flash_decoder")
    check_tensor(step, 8)
    with pytest.raises(InfeasibleError, match=r"64 ranks .* do not share out 64 heads, 8 of keys and values, and 96 heads"):
        check_tensor(step, 64)
    mimo = read_workload("mimo_v2_flash_decoder")
    check_context(mimo, 8)
    with pytest.raises(InfeasibleError, match="16 ranks of context do not divide the 8 heads"):
        check_context(mimo, 16)
