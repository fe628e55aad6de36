"""DeepSeek V4: attention over a window and over compressed tokens, and several residual streams, against its model card and by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rackmodel.errors import InputError
from rackmodel.inputs import read_workload
from rackmodel.inputs.hf_config import import_config
from rackmodel.serving.steps import Steps
from tests.serving_models import served_on

CONFIGS = Path(__file__).parents[1] / "workloads" / "configs"
FLASH, PRO = "deepseek_v4_flash_decoder", "deepseek_v4_pro_decoder"
served = served_on("dgx_b200")


def changed(tmp_path: Path, **changes: Any) -> Path:
    config = json.loads((CONFIGS / "deepseek_v4_flash.json").read_text(encoding="utf-8"))
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config | changes), encoding="utf-8")
    return path


def test_a_million_tokens_take_as_many_bytes_as_published() -> None:
    """V4-Pro: 9.62 GiB of caches in bf16 at 1M tokens (AINews, 25 April 2026), which compressed entries and the indexer's keys are; beside
    them windows of 128 tokens, and in 32 bits what is not compressed yet: 8 tokens of 2 x 2 x (512 + 128), or 128 of 2 x 512."""
    whole = served(read_workload(PRO, ["workload.tensors.KIC.precision=16 bit"]))
    entries = 2**20 * (30 * (512 + 128) * 2 / 4 + 31 * 512 * 2 / 128)
    assert entries / 2**30 == pytest.approx(9.62, abs=0.005)
    window, states = 61 * 128 * 512 * 2, 4 * (30 * 8 * 2 * 2 * (512 + 128) + 31 * 128 * 2 * 512)
    assert whole.cache_bytes(2**20) == entries + window + states


def test_active_weights_of_flash() -> None:
    """Its card says 13 billion."""
    assert round(import_config(CONFIGS / "deepseek_v4_flash.json").active / 1e9) == 13


def test_operations_of_a_token_by_hand() -> None:
    """Flash, 4,096 tokens: two operations a weight that works for it; scores and sums of 64 heads of 512 over 128 tokens of a window, the
    512 entries that are picked of 1,024, or all 32 of 128 tokens; scores of 64 heads of 128 over the 1,024."""
    found = import_config(CONFIGS / "deepseek_v4_flash.json")
    rows = served(FLASH).price(Steps.of(decodes=1, context=4095)).ledger.where(action="mac").rows
    counted = sum(float(np.sum(row.amount)) for row in rows)
    attended = 4 * 64 * 512 * (43 * 128 + 21 * 512 + 20 * 32) + 2 * 64 * 128 * 21 * 1024
    norms = 43 * 2 * 4096 + 43 * (1024 + 512) + 41 * 512 + 21 * 128 + 4096  # weights of norms are no products
    placed = 2 * 43 * 2 * 4 * 4096 + 43 * 2 * 6 * 4096 + 41 * 1024 + 21 * (1024 + 256)  # sums: of streams, experts, gates
    assert counted == pytest.approx(2 * (found.active - norms) + attended + placed, rel=2e-3)


def test_a_layer_without_compressed_tokens_keeps_a_window_alone(tmp_path: Path) -> None:
    made = tmp_path / "made.yaml"
    ratios = {"compress_ratios": [0] * 44, "quantization_config": None, "expert_dtype": None}
    made.write_text(import_config(changed(tmp_path, **ratios)).text, encoding="utf-8")
    model = served(read_workload(made))
    assert model.kv_bytes_per_token == 0
    assert model.cache_bytes(10_000) == 43 * 128 * 512 * 2


def test_layers_are_those_of_the_config_as_transformers_saves_it(tmp_path: Path) -> None:
    """layer_types and compress_rates in the place of compress_ratios; entries of 8 tokens where it says so."""
    kinds = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
    types = ["sliding_attention"] * 2 + [*kinds] * 20 + ["compressed_sparse_attention"]
    said = {"compress_ratios": None, "layer_types": types, "mlp_layer_types": ["hash_moe"] * 3 + ["moe"] * 40, "num_hash_layers": None}
    own = import_config(changed(tmp_path, **said, compress_rates=kinds)).text
    assert own.partition("sections:")[2] == import_config(changed(tmp_path)).text.partition("sections:")[2]
    assert "m2_2: 8" in import_config(changed(tmp_path, **said, compress_rates=kinds | {"compressed_sparse_attention": 8})).text


def test_experts_are_narrower_than_what_is_beside_them(tmp_path: Path) -> None:
    text = import_config(changed(tmp_path)).text
    assert "precision: {activation: bf16, weight: fp8_block, experts: mxfp4, product: fp8_block}" in text
    assert "experts: mxfp4" not in import_config(changed(tmp_path, expert_dtype="fp8")).text


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({"compress_ratios": [0, 0] + [16] * 42}, "no layers such as '16'"),
        ({"num_key_value_heads": 2}, "knows no other num_key_value_heads than 1"),
        ({"expert_dtype": "fp6"}, "expert_dtype: 'fp6' is not what the blocks"),
        ({"quantization_config": None}, "expert_dtype: experts narrower than weights"),
        ({"scoring_func": "sigmoid"}, "scoring_func: 'sigmoid' is not what the blocks"),
    ],
)
def test_what_its_blocks_do_not_say_is_refused(changes: dict[str, Any], fact: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        import_config(changed(tmp_path, **changes))
    assert fact in str(caught.value)


def test_its_training_is_refused_by_what_is_missing() -> None:
    with pytest.raises(InputError, match="a cache of fewer entries than tokens"):
        read_workload("deepseek_v4_flash_training")


@pytest.mark.parametrize("degrees", [{"tensor": 8}, {"tensor": 8, "expert": 8}, {"attention_data": 8, "expert": 8}])
def test_it_is_served_on_ranks(degrees: dict[str, int]) -> None:
    """Ranks share out heads, groups and experts; the one head of keys and values each of them keeps."""
    model, alone = served(FLASH, **degrees), served(FLASH)
    ranks = degrees.get("attention_data", 1)  # of sequences: each has a part of them
    assert model.cache_bytes(8192) == pytest.approx(alone.cache_bytes(8192) / ranks, rel=1e-12)
    assert model.weights_each[0] < 0.25 * alone.weights_each[0]
    figures = model.price(Steps.of(decodes=[64, 0], context=[8192, 0], prefill=[0, 4096], prompts=1, before=[0, 4096]))
    assert (figures.seconds > 0).all()
