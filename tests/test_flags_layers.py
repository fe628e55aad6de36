"""Launch flags of layers that compute more than their sizes say: windows, gates, squared activations, attention beside the rest."""

from __future__ import annotations

import pytest

from rackmodel.errors import InputError
from rackmodel.inputs import read_workload
from rackmodel.report.flags import translation
from rackmodel.report.launch.arguments import Launch
from rackmodel.report.launch.shape import model_shape
from tests.test_flags import DECLARED, mapping, noted, words


def launched(framework: str, name: str, sets: tuple[str, ...] = ()) -> Launch:
    model = read_workload(name, sets)
    launch = translation(framework, model, mapping(model, {}))
    assert {(framework, word) for word in words(launch)} <= DECLARED
    return launch


@pytest.mark.parametrize(
    ("name", "window", "every"),
    [
        ("k_exaone_236b", 128, "4"),  # 12 of 48 layers have none
        ("gemma3_27b", 1024, "6"),  # 10 of 62: the sixth, the twelfth ...
        ("gpt_oss_20b", 128, "2"),
        ("mistral_7b_v01", 0, ""),  # 4,096 tokens of 4,096
    ],
)
def test_windows_are_arguments_where_sequences_are_longer(name: str, window: int, every: str) -> None:
    """A model was started with full attention in every layer. Megatron's window counts the tokens before a token."""
    said = words(launched("megatron", f"{name}_training"))
    assert said.get("window-size", "") == (f"{window - 1},0" if window else "")
    assert said.get("window-attn-skip-freq", "") == every
    assert noted(launched("deepspeed", f"{name}_training"), f"windows of {window} tokens have no argument") == bool(window)
    assert noted(launched("torchtitan", f"{name}_training"), f"windows of {window} tokens in") == bool(window)


def test_a_window_of_every_layer_skips_none() -> None:
    said = words(launched("megatron", "mistral_7b_v01_training", ("workload.sizes.s=8192",)))
    assert said["window-size"] == "4095,0"
    assert "window-attn-skip-freq" not in said


def test_a_share_of_the_scores_that_no_window_leaves_is_none() -> None:
    """Sequences packed into one, each to itself: half of a quarter of the pairs."""
    assert model_shape(read_workload("llama2_7b_training", ("workload.tensors.A={density: 0.2}",))).features.window == 0


def test_a_squared_relu_is_an_argument() -> None:
    """Nemotron's models were started with GELU."""
    assert "squared-relu" in words(launched("megatron", "minitron_4b_training"))
    assert "squared-relu" not in words(launched("megatron", "gpt2_training"))
    assert noted(launched("torchtitan", "minitron_4b_training"), "a squared ReLU")


def test_a_gate_of_attention_is_an_argument_of_elements_and_none_of_heads() -> None:
    assert "attention-output-gate" in words(launched("megatron", "trinity_mini_training"))
    step = launched("megatron", "step35_flash_training")
    assert "attention-output-gate" not in words(step)
    assert any("gated by a number a head" in why for why in step.cannot)
    assert noted(launched("deepspeed", "trinity_mini_training"), "gates on the result of attention")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("command_a", "a feed-forward layer beside attention"),
        ("neox_20b", "a feed-forward layer beside attention"),
        ("apertus_8b", "xIELU as the activation"),
        ("mimo_v2_flash", "values of 128 elements beside keys of 192"),
    ],
)
def test_layers_that_no_argument_says_are_told_by_what_they_compute(name: str, why: str) -> None:
    for framework in ("megatron", "deepspeed", "torchtitan"):
        assert any(one.startswith(why) for one in launched(framework, f"{name}_training").cannot), framework
    assert not launched("megatron", "llama2_7b_training").cannot


@pytest.mark.parametrize(("name", "op"), [("falcon_h1_7b", "space, scan"), ("lfm2_1_2b", "convX, convolve"), ("qwen35_27b", "rule, scan")])
def test_layers_that_carry_a_state_are_refused_by_it(name: str, op: str) -> None:
    with pytest.raises(InputError, match=rf"carry a state along the sequence \({op}\)"):
        model_shape(read_workload(f"{name}_training"))
