"""Published configs become workloads: as many weights as published, caches as large as published, and nothing that matters is dropped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rackmodel.errors import InputError
from rackmodel.inputs import read_workload
from rackmodel.inputs.decoders import parameters
from rackmodel.inputs.hf_config import import_config
from rackmodel.inputs.library import MODELINE, library_root
from rackmodel.model.profile import Engine
from rackmodel.model.workload import Workload
from rackmodel.serving.engine import ServingEngine
from rackmodel.serving.requests import Requests, Schedule
from tests.commands import invoke
from tests.published_sizes import CACHED, PUBLISHED
from tests.serving_models import served_on

CONFIGS = Path(__file__).parents[1] / "workloads" / "configs"

SHIPPED = ["deepseek_v3", "glm5", "gpt_oss_120b", "kimi_k2", "llama2_70b", "llama3_405b", "llama3_70b", "llama3_8b", "minimax_m2"]
SHIPPED += ["mixtral_8x7b", "qwen35_397b", "qwen3_235b", "qwen3_30b_a3b", "qwen3_32b", "qwen3_8b"]


def imported(name: str, tmp_path: Path) -> Workload:
    path = tmp_path / f"{name}.yaml"
    path.write_text(import_config(CONFIGS / f"{name}.json").text, encoding="utf-8")
    return read_workload(path)


served = served_on("dgx_h200")


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_model_has_as_many_weights_as_published(name: str) -> None:
    assert import_config(CONFIGS / f"{name}.json").parameters == pytest.approx(PUBLISHED[name], rel=0.005)


def test_every_config_here_is_checked() -> None:
    assert {path.stem for path in CONFIGS.glob("*.json")} - set(PUBLISHED) == {"glm45", "glm45_air", "glm46"}


@pytest.mark.parametrize(("name", "published"), [("glm45", 355e9), ("glm46", 355e9), ("glm45_air", 106e9)])
def test_weights_published_in_whole_billions(name: str, published: float) -> None:
    """GLM-4.5 (arXiv 2508.06471), table 1, whose sizes GLM-4.6 has, with or without a prediction layer: it does not say which."""
    assert import_config(CONFIGS / f"{name}.json").parameters == pytest.approx(published, rel=0.01)


@pytest.mark.parametrize(("name", "published"), [("gpt_oss_120b", 5.13e9), ("gpt_oss_20b", 3.61e9)])
def test_a_token_is_multiplied_by_as_many_weights_as_a_model_card_counts(name: str, published: float) -> None:
    """OpenAI 2025, gpt-oss model card, table 1: without the table of embeddings, with the head."""
    assert import_config(CONFIGS / f"{name}.json").active == pytest.approx(published, rel=0.002)


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        *[("deepseek_v3", 37), ("deepseek_v2", 21), ("qwen3_235b", 22), ("kimi_k2", 32), ("mixtral_8x22b", 39), ("hunyuan_a13b", 13)],
        *[("longcat_flash", 27), ("mimo_v2_flash", 15), ("step3", 38), ("k_exaone_236b", 23), ("deepseek_v4_pro", 49)],
    ],
)
def test_active_weights_published_in_whole_billions(name: str, billions: int) -> None:
    """Names of the models and their cards: with or without a table of embeddings, they do not say."""
    assert import_config(CONFIGS / f"{name}.json").active == pytest.approx(billions * 1e9, rel=0.02)


def test_weights_that_work_for_a_token_without_embeddings() -> None:
    """github.com/inclusionAI/Ling-V2: Ling-mini-2.0 has 1.4 B activated, 789 M of them without embeddings (the table and the head)."""
    active, embedding = import_config(CONFIGS / "ling_mini2.json").active, 157184 * 2048
    assert active - embedding == pytest.approx(0.789e9, rel=0.001)
    assert active + embedding == pytest.approx(1.4e9, rel=0.03)


def test_all_weights_of_a_dense_model_but_its_table_multiply_a_token() -> None:
    found = import_config(CONFIGS / "llama3_8b.json")
    assert found.parameters - found.active == 128256 * 4096


@pytest.mark.parametrize("name", CACHED)
def test_a_token_takes_as_many_bytes_as_published(name: str, tmp_path: Path) -> None:
    model = served(imported(name, tmp_path))
    assert model.kv_bytes_per_token == CACHED[name]


def test_a_window_keeps_no_more_than_it_is_wide(tmp_path: Path) -> None:
    model = served(imported("gpt_oss_120b", tmp_path))
    windows = 18 * 8 * 128 * 2  # bytes a token of the layers with windows
    assert model.cache_bytes(4096) == 36_864 * 4096 + windows * 128
    assert model.cache_bytes(64) == (36_864 + windows) * 64


def test_a_window_keeps_the_heads_that_its_layers_have(tmp_path: Path) -> None:
    """MiMo-V2-Flash: 39 layers with 8 heads of keys and values and a window of 128, beside 9 with 4 heads; keys of 192, values of 128."""
    model = served(imported("mimo_v2_flash", tmp_path))
    assert model.cache_bytes(4096) == 23_040 * 4096 + 39 * 8 * (192 + 128) * 2 * 128


@pytest.mark.parametrize(
    ("name", "tokens", "kept"),
    [
        ("mistral_7b_v01", 10_000, 131_072 * 4096),
        ("mistral_7b_v01", 1000, 131_072 * 1008),  # pages of 16 tokens
        ("gemma3_1b", 4000, 4096 * 4000 + 22 * 1024 * 512),
        # layers x (heads x 128 x 256 of fp32 + the last three tokens of values, keys and queries), pages of 16 tokens
        ("falcon_h1_7b", 16, 45_056 * 16 + 44 * (24 * 128 * 256 * 4 + (3072 + 2 * 256) * 3 * 2)),
        ("lfm2_1_2b", 4000, 12_288 * 4000 + 10 * 2048 * 2 * 2),
        ("rwkv7_2_9b", 64, 32 * (40 * 64 * 64 * 4 + 2 * 2560 * 2)),  # heads of 64 x 64, and a token for each of the mixings
        ("kimi_linear_48b", 64, 8064 * 64 + 20 * (32 * 128 * 128 * 4 + 3 * 32 * 128 * 3 * 2)),
        ("mamba2_2_7b", 4000, 64 * (80 * 64 * 128 * 4 + (5120 + 2 * 128) * 3 * 2)),  # states in fp32, the last three tokens in bf16
        ("llama3_8b", 1000.5, 131_072 * 1008),
    ],
)
def test_a_server_keeps_windows_and_states_of_a_request(name: str, tokens: float, kept: float, tmp_path: Path) -> None:
    """In whole pages. The batch that fits follows."""
    model = served(imported(name, tmp_path))
    engine = ServingEngine(captured=model, launched=model, facts=Engine(memory_share=0.9))
    tokens_of, none = np.array([tokens]), np.zeros(1)
    assert engine.held(tokens_of, none)[0] == pytest.approx(kept, rel=1e-12)
    requests, schedule = Requests.of(prompt=tokens, output=0), Schedule.of(sequences=1e9)
    assert engine.room(requests, schedule)[0] == np.floor(engine.cache_bytes / kept)
    assert engine.cache_tokens / engine.held_tokens(tokens_of)[0] == pytest.approx(engine.cache_bytes / kept, rel=1e-12)


@pytest.mark.parametrize("degrees", [{"tensor": 4}, {"tensor": 2, "pipeline": 2}, {"tensor": 2, "attention_data": 2}])
def test_what_a_request_keeps_is_what_its_caches_hold(degrees: dict[str, int], tmp_path: Path) -> None:
    """Where its tokens fill whole pages; layers are cut into stages after what they keep."""
    model = served(imported("gpt_oss_120b", tmp_path), **degrees)
    for tokens in (64.0, 4096.0):
        assert model.held_each(np.array([tokens]))[0, 0] == pytest.approx(model.cache_bytes(tokens), rel=1e-12)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_workload_is_what_its_config_says(name: str) -> None:
    made = import_config(CONFIGS / f"{name}.json", name=f"{name}_decoder").text
    schema, _, shipped = (library_root() / "workloads" / f"{name}_decoder.yaml").read_text(encoding="utf-8").partition("\n")
    assert schema.startswith(MODELINE)
    assert shipped == made


def test_the_decoder_that_others_are_measured_by_is_the_imported_one(tmp_path: Path) -> None:
    by_hand, made = read_workload("dense_decoder"), imported("llama3_8b", tmp_path)
    assert {name: str(op.statement) for name, op in by_hand.ops.items()} == {name: str(op.statement) for name, op in made.ops.items()}
    assert by_hand.tensors == made.tensors


def _refused(tmp_path: Path, name: str = "llama3_8b", **changes: Any) -> str:
    config = json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8"))
    path = tmp_path / "config.json"
    path.write_text(json.dumps({key: value for key, value in {**config, **changes}.items() if value != "gone"}, indent=1), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        import_config(path)
    return str(caught.value).replace(str(path), "config.json")


def test_what_is_not_understood_is_refused_by_name(tmp_path: Path) -> None:
    assert "config.json:2:16: model_type: unknown model_type 'lama'" in (text := _refused(tmp_path, model_type="lama"))
    assert "did you mean 'llama'" in text
    assert "num_memory_slots: unknown key: family llama" in _refused(tmp_path, num_memory_slots=4)
    assert "hidden_act: 'relu6' is not what the blocks" in _refused(tmp_path, hidden_act="relu6")
    assert "no intermediate_size, which family llama needs" in _refused(tmp_path, intermediate_size="gone")
    assert "no head_dim, nor num_attention_heads, which family llama needs" in _refused(tmp_path, num_attention_heads="gone")
    assert "config.json:1:1: sizes.d: makes no workload: size 0 of 'd'" in _refused(tmp_path, hidden_size=0)
    assert "mlp_only_layers" in _refused(tmp_path, "qwen3_moe" if False else "qwen3_235b", mlp_only_layers=[0, 1])
    assert "moe_layer_freq" in _refused(tmp_path, "deepseek_v3", moe_layer_freq=2)
    assert "unknown quant_method 'gguf'" in _refused(tmp_path, quantization_config={"quant_method": "gguf"})
    assert "not a whole number" in _refused(tmp_path, num_key_value_heads=7)
    assert "no layers such as 'chunked_attention'" in _refused(tmp_path, layer_types=["full_attention", "chunked_attention"])
    assert "no layers such as 'X'" in _refused(tmp_path, "nemotron_h_8b", hybrid_override_pattern="M*X-")
    assert "says 31 layers, num_hidden_layers 32" in _refused(tmp_path, layer_types=["full_attention"] * 31)
    assert "layer_types: unknown key" in _refused(tmp_path, "glm45", layer_types=["full_attention"])
    text = _refused(tmp_path, "opt_6_7b", word_embed_proj_dim=512)  # as OPT-350M's are half as wide
    assert "word_embed_proj_dim: 512 where hidden_size is 4096: family opt has no projections between" in text


@pytest.mark.parametrize(
    ("name", "changes", "fact"),
    [
        ("llama3_8b", {"num_key_value_heads": [8] * 31 + [4]}, "num_key_value_heads: [8, 8"),  # passed over, it had 32 heads of keys
        ("llama3_8b", {"num_key_value_heads": "8"}, "num_key_value_heads: '8' is no number"),
        ("llama3_8b", {"num_key_value_heads": True}, "num_key_value_heads: true: want a number"),
        ("llama3_8b", {"num_hidden_layers": True}, "num_hidden_layers: true: want a number"),
        ("llama3_8b", {"num_key_value_heads": 7}, "config.json:5:25: sizes.q: num_attention_heads / num_key_value_heads is 4.57143"),
        ("llama3_8b", {"head_dim": "64"}, "head_dim: '64' is no number"),
        ("llama3_8b", {"tie_word_embeddings": "true"}, "tie_word_embeddings: true: want true or false"),
        ("llama3_8b", {"max_position_embeddings": "8192"}, "max_position_embeddings: '8192' is no number"),
        ("llama3_8b", {"text_config": [1]}, "text_config: want the decoder's own config"),
        ("mistral_7b", {"sliding_window": -1}, "sliding_window: -1: want 0 or more"),  # was twice as many layers
        ("deepseek_v3", {"first_k_dense_replace": -1}, "first_k_dense_replace: -1: want 0 or more"),
        ("deepseek_v3", {"first_k_dense_replace": 100}, "is -39: want 0 or more"),
        ("deepseek_v3", {"topk_group": 9}, "topk_group: 9 of 8 groups"),
        ("ernie45_21b", {"moe_layer_end_index": 99}, "is -71: want 0 or more"),  # was 99 layers of 28
        ("qwen3_next_80b", {"decoder_sparse_step": 2}, "knows no other decoder_sparse_step than 1"),
        ("qwen3_next_80b", {"attn_output_gate": False}, "knows no other attn_output_gate than 1"),
        ("command_a", {"use_parallel_block": False}, "knows no other use_parallel_block than 1"),
        ("gemma3_1b", {"use_bidirectional_attention": True}, "no layers such as use_bidirectional_attention"),
        ("qwen3_vl_235b", {"num_memory_slots": 4}, "num_memory_slots: unknown key"),  # beside the decoder's own config
        ("gpt_oss_120b", {"layer_types": "gone", "num_hidden_layers": 35}, "17.5, not a whole number"),
    ],
)
def test_a_number_that_is_written_as_something_else_or_makes_no_layers_is_refused(
    name: str, changes: dict[str, Any], fact: str, tmp_path: Path
) -> None:
    assert fact in _refused(tmp_path, name, **changes)


def test_layers_of_kinds_that_are_not_all_of_a_model_are_refused(tmp_path: Path) -> None:
    text = _refused(tmp_path, "glm5", mlp_layer_types="gone", first_k_dense_replace=3, num_hidden_layers=78.5)
    assert "not a whole number" in text
    config = json.loads((CONFIGS / "llama4_scout.json").read_text(encoding="utf-8"))
    inner = config["text_config"] | {"no_rope_layers": [1, 1], "num_hidden_layers": 48}
    assert "says 2 layers, num_hidden_layers 48" in _refused(tmp_path, "llama4_scout", text_config=inner)
    assert "is 34.5, not a whole number" in _refused(tmp_path, "llama4_scout", text_config=config["text_config"] | {"moe_layers": [1, 2]})


def test_what_a_model_says_of_its_decoder_counts(tmp_path: Path) -> None:
    """Qwen3-VL 2B and 4B tie their embeddings in the outer config alone."""
    config = json.loads((CONFIGS / "qwen3_vl_235b.json").read_text(encoding="utf-8"))
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config | {"tie_word_embeddings": True}), encoding="utf-8")
    assert PUBLISHED["qwen3_vl_235b"] - import_config(path).parameters == pytest.approx(151936 * 4096, rel=1e-6)
    inner = config["text_config"] | {"tie_word_embeddings": False}
    text = _refused(tmp_path, "qwen3_vl_235b", tie_word_embeddings=True, text_config=inner)
    assert "tie_word_embeddings: True here, False in text_config" in text


def test_windows_are_of_the_layers_that_a_config_says(tmp_path: Path) -> None:
    def layers(name: str, **changes: Any) -> dict[str, int]:
        config = json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8")) | changes
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config), encoding="utf-8")
        sections = read_workload_text(import_config(path).text, tmp_path).sections
        return {one.name: one.repeat for one in sections if one.name not in ("embed", "head")}

    qwen = {"sliding_window": 4096, "max_window_layers": 21}
    assert layers("qwen2_7b", **qwen) == {"block": 28}  # use_sliding_window is absent: off
    assert layers("qwen2_7b", **qwen, use_sliding_window=True) == {"block": 21, "window": 7}
    assert layers("qwen2_7b", **qwen | {"max_window_layers": 40}, use_sliding_window=True) == {"block": 28}
    assert layers("exaone4_32b") == layers("exaone4_32b", layer_types=None) == {"block": 16, "window": 48}
    assert layers("exaone4_32b", layer_types=None, sliding_window=None) == {"block": 64}
    scout = json.loads((CONFIGS / "llama4_scout.json").read_text(encoding="utf-8"))["text_config"]
    assert layers("llama4_scout", text_config=scout | {"no_rope_layers": []}) == {"block": 36, "full": 12}
    assert layers("llama4_scout", text_config=scout | {"no_rope_layers": [1] * 48}) == {"block": 48}
    assert layers("llama4_scout", text_config=scout | {"layer_types": ["full_attention"] * 48}) == {"full": 48}
    assert layers("granite4_micro") == {"rotated_dense": 40}
    assert layers("granite4_micro", position_embedding_type="nope") == {"attention_dense": 40}
    assert layers("mistral_7b", sliding_window=None) == {"block": 32}
    assert layers("mistral_7b", sliding_window=4096) == {"window": 32}
    assert layers("mistral_7b", sliding_window=4096, layer_types=["full_attention"] * 32) == {"block": 32}
    assert layers("gemma2_27b") == {"window": 23, "full": 23}
    assert layers("gemma3_1b") == {"window": 22, "full": 4}


def test_a_size_that_is_no_number_is_refused_where_it_stands(tmp_path: Path) -> None:
    assert "config.json:3:17: hidden_size: 'big' is no number" in _refused(tmp_path, hidden_size="big")
    path = tmp_path / "broken.json"
    path.write_text('{"model_type": "llama",\n "hidden_size": }', encoding="utf-8")
    with pytest.raises(InputError, match=r"broken.json:2:17: is no JSON"):
        import_config(path)


def test_keys_that_are_off_change_nothing(tmp_path: Path) -> None:
    config = json.loads((CONFIGS / "llama3_8b.json").read_text(encoding="utf-8")) | {"num_memory_slots": None, "mixer": False, "taps": []}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    assert parameters(read_workload_text(import_config(path).text, tmp_path)) == 8_030_261_248


def read_workload_text(text: str, tmp_path: Path) -> Workload:
    path = tmp_path / "made.yaml"
    path.write_text(text, encoding="utf-8")
    return read_workload(path)


def test_the_command_writes_a_file_that_reads(tmp_path: Path) -> None:
    out = tmp_path / "mine.yaml"
    result = invoke(["import", str(CONFIGS / "qwen3_8b.json"), "-o", str(out), "--json"])
    assert result.exit_code == 0, result.output
    assert parameters(read_workload(out)) == 8_190_735_360
    printed = invoke(["import", str(CONFIGS / "qwen3_8b.json"), "--name", "qwen-3.8b"])
    assert printed.stdout.startswith("# qwen-3.8b: 8.191 billion weights")


@pytest.mark.parametrize("name", ["../x", "a # b", "x: y", "null", "..", "3b", "a\nb", "x" * 300])
def test_a_name_that_is_no_plain_word_is_refused_before_a_file_is_written(name: str, tmp_path: Path) -> None:
    """(../x was written beside the folder that was asked for, and `a # b` was called a.)"""
    done = invoke(["import", str(CONFIGS / "qwen3_8b.json"), "-o", str(tmp_path / "mine"), "--name", name])
    assert isinstance(done.exception, InputError)
    assert "--name: " in str(done.exception)
    assert not list(tmp_path.iterdir())


def test_words_of_a_checkpoint_say_its_precision(tmp_path: Path) -> None:
    deepseek, oss = imported("deepseek_v3", tmp_path), imported("gpt_oss_120b", tmp_path)
    assert (deepseek.tensors["WQA"].bits, deepseek.tensors["WE"].bits, deepseek.product_bits) == (8, 16, 8)
    assert (oss.tensors["WQ"].bits, oss.tensors["WXG"].bits, oss.tensors["WXG"].scale_bits, oss.product_bits) == (16, 4, 0.25, 16)


YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}


@pytest.mark.parametrize(
    ("said", "positions"),
    [
        ({"max_position_embeddings": 40960}, 40960),
        ({"max_position_embeddings": 8192, "model_max_length": 131072}, 131072),  # Command R+: the latter counts
        ({"max_position_embeddings": 40960, "rope_scaling": YARN}, 131072),
        ({"max_position_embeddings": 131072, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 131072),
        ({}, None),
    ],
)
def test_an_imported_model_keeps_how_long_its_requests_may_be(said: dict[str, object], positions: int | None, tmp_path: Path) -> None:
    config = json.loads((CONFIGS / "llama3_8b.json").read_text(encoding="utf-8"))
    del config["max_position_embeddings"]
    path, made = tmp_path / "config.json", tmp_path / "made.yaml"
    path.write_text(json.dumps(config | said), encoding="utf-8")
    made.write_text(import_config(path).text, encoding="utf-8")
    serving = read_workload(made).serving
    assert serving is not None
    assert serving.positions == positions
