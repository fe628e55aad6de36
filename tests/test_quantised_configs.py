"""What a published `quantization_config` says of weights, products, caches, and of what it leaves in 16 bits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rackmodel.errors import InputError
from rackmodel.inputs import read_architecture, read_profile, read_workload
from rackmodel.inputs.hf_config import import_config
from rackmodel.inputs.hf_precision import quantised
from rackmodel.inputs.yaml_marks import compose
from rackmodel.serving.served_model import ServedModel
from rackmodel.serving.steps import Deployment

CONFIGS = Path(__file__).parents[1] / "workloads" / "configs"
LAYERS = 61
KEPT = ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"]
EIGHT = {"num_bits": 8, "type": "float"}


def groups(weights: dict[str, Any], inputs: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    group = {"targets": more.pop("targets", ["Linear"]), "weights": weights, "input_activations": inputs}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, **more}


def said(config: dict[str, Any]) -> tuple[str, str | None, str, set[str]]:
    found = quantised(compose(json.dumps(config), "config.json"), LAYERS)
    return found.weight, found.product, found.kv, set(found.left)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, ("fp8_block", "fp8_block", "", set())),
        ({"quant_method": "fp8", "modules_to_not_convert": ["self_attn"]}, ("fp8", "fp8", "", {"attention"})),
        ({"quant_method": "fbgemm_fp8"}, ("fp8", "fp8", "", set())),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, ("int4_g128", None, "", set())),
        ({"quant_method": "gptq", "bits": 8, "group_size": 128}, ("int8", None, "", set())),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1}, ("int4", None, "", set())),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}, ("nvfp4", "nvfp4", "fp8", set())),
        (
            {"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": [f"model.layers.{n}.self_attn*" for n in range(LAYERS)]},
            ("fp8", "fp8", "", {"attention"}),
        ),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": ["model.layers.0.self_attn*"]}, ("fp8", "fp8", "", set())),
        (groups(EIGHT | {"strategy": "channel"}, EIGHT, kv_cache_scheme=EIGHT), ("fp8", "fp8", "fp8", set())),
        (groups(EIGHT | {"strategy": "block"}, EIGHT), ("fp8_block", "fp8_block", "", set())),
        (groups({"num_bits": 4, "type": "float", "group_size": 16}, {"num_bits": 4}), ("nvfp4", "nvfp4", "", set())),
        (groups({"num_bits": 8, "type": "int"}, {"num_bits": 8}), ("int8", "int8", "", set())),
        (groups({"num_bits": 4, "type": "int", "group_size": 32}, ignore=KEPT), ("int4_g32", None, "", {"attention", "shared", "dense"})),
        (groups({"num_bits": 4, "type": "int", "group_size": 128}, EIGHT), ("int4_g128", "fp8", "", set())),
        (groups(EIGHT, kv_cache_scheme={"num_bits": 8, "type": "int"}), ("fp8", None, "int8", set())),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "NVFP4"}, ("nvfp4", "nvfp4", "nvfp4", set())),
        (groups(EIGHT, targets=["re:.*mlp.*"]), ("fp8", None, "", {"attention"})),
    ],
)
def test_a_method_says_widths(config: dict[str, Any], expected: tuple[str, str | None, str, set[str]]) -> None:
    assert said(config) == expected


@pytest.mark.parametrize(
    ("config", "fact"),
    [
        ({"quant_method": "gguf"}, "unknown quant_method 'gguf'"),
        ({"bits": 4}, "no quant_method"),
        ({"quant_method": "gptq", "bits": 3}, "weights of 3 bits"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP5"}, "did you mean 'NVFP4'"),
        (groups({"num_bits": 6, "type": "float"}), "6 bits of type 'float'"),
        ({"quant_method": "compressed-tensors"}, "config_groups of one format"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 16}, "group_size: scales of 16 weights"),
        ({"quant_method": "gptq", "bits": "4"}, "bits: '4' is no number"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"layers.0": {"bits": 8}}}, "dynamic: unknown key"),
        ({"quant_method": "fp8", "weight_block_size": [64, 64]}, "scales of \\[64, 64\\] weights"),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP4"}, "unknown kv_cache_quant_algo 'FP4'"),
        (groups(EIGHT, kv_cache_scheme={"num_bits": 4, "type": "int"}), "caches of 'int 4'"),
        (groups(EIGHT, {"num_bits": 6, "type": "float"}), "activations of 6 bits"),
        (groups(EIGHT, ignore=["re:(("]), "config.json:1:[0-9]+: quantization_config: 're:\\(\\(' is no pattern"),
    ],
)
def test_what_is_not_known_is_refused(config: dict[str, Any], fact: str) -> None:
    with pytest.raises(InputError, match=fact):
        quantised(compose(json.dumps(config), "config.json"), LAYERS)


def weight_bytes(name: str, config: dict[str, Any], tmp_path: Path) -> float:
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps(json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8")) | {"quantization_config": config}))
    made = tmp_path / "made.yaml"
    made.write_text(import_config(path).text, encoding="utf-8")
    machine, profile = read_architecture("dgx_h200"), read_profile("ideal")
    return ServedModel(workload=read_workload(made), architecture=machine, profile=profile, deployment=Deployment()).weights_each[0]


def test_weights_take_their_bits_and_their_scales(tmp_path: Path) -> None:
    """Llama 3 8B by AWQ: products of 32 layers in 4 bits and 16 for each 128, both tables and norms in 16."""
    layer = 2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    rest = 2 * 128256 * 4096 + 65 * 4096
    expected = 32 * layer * (4 + 16 / 128) / 8 + rest * 2
    assert weight_bytes("llama3_8b", {"quant_method": "awq", "bits": 4, "group_size": 128}, tmp_path) == pytest.approx(expected, rel=1e-9)


def test_attention_that_is_left_out_keeps_16_bits(tmp_path: Path) -> None:
    """The same in fp8 but for attention."""
    attention, feed_forward = 2 * 4096**2 + 2 * 4096 * 1024, 3 * 4096 * 14336
    expected = 32 * (attention * 2 + feed_forward) + (2 * 128256 * 4096 + 65 * 4096) * 2
    config = {"quant_method": "fp8", "modules_to_not_convert": ["self_attn"]}
    assert weight_bytes("llama3_8b", config, tmp_path) == pytest.approx(expected, rel=1e-9)


def test_experts_alone_are_quantised_where_the_rest_is_left_out(tmp_path: Path) -> None:
    """Kimi K2: 60 layers of 384 experts, 1.0147 of its 1.0264 trillion weights, in 4 bits and 16 for each 32: 594 GB, as published."""
    experts = 60 * 384 * 3 * 7168 * 2048
    config = groups({"num_bits": 4, "type": "int", "group_size": 32}, ignore=KEPT)
    expected = experts * 4.5 / 8 + (1_026_408_232_448 - experts) * 2
    assert weight_bytes("kimi_k2", config, tmp_path) == pytest.approx(expected, rel=1e-4)
    assert expected == pytest.approx(594e9, rel=0.005)
