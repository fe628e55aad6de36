"""Layers put together from blocks: what each is made of, and what it keeps of a sequence."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from rackmodel.errors import InputError
from rackmodel.inputs import read_architecture, read_profile, read_workload
from rackmodel.inputs.decoders import LayerCount, block, compose_decoder
from rackmodel.inputs.hf_config import render
from rackmodel.inputs.hf_keys import family_called
from rackmodel.inputs.library import names
from rackmodel.model.profile import Composite
from rackmodel.model.workload import Workload
from rackmodel.serving.served_model import ServedModel
from rackmodel.serving.steps import Deployment, Steps
from tests import samples
from tests.serving_models import served_on

SIZES = {
    "d": 256,
    "g": 4,
    "q": 2,
    "e": 32,
    "f": 512,
    "v": 1000,
    "w": 64,
    "x": 8,
    "k": 2,
    "y": 128,
    "p": 128,
    "h": 8,
    "l": 96,
    "c": 64,
    "o": 16,
}
SIZES |= {"l5": 16, "v2": 500, "a3": 4, "p1": 32, "n2": 16, "c1": 512, "r1": 16}
SIZES |= {"g2": 2, "q2": 4, "x0": 4, "l1": 32, "l2": 32, "l3": 64, "l4": 16}
SIZES |= {"n": 32, "a": 4, "a1": 2, "a2": 2, "k1": 32, "m1": 32, "w1": 4, "w2": 3, "h1": 4, "e1": 32, "n1": 1024}
ATTENTION = [
    "gqa",
    "gqa_normed",
    "gqa_behind",
    "gqa_normed_keys",
    "gqa_normed_shared",
    "gqa_normed_window_shared",
    "gqa_normed_whole",
    "gqa_gated",
    "gqa_window",
    "gqa_normed_window",
    "gqa_unrotated",
    "gqa_shared",
    "mla",
    "mla_indexed",
    "delta",
    "gqa_normed_whole_window",
    "mla_direct",
    "mamba",
    "mamba2",
    "lightning",
    "mamba2_gqa",
    "short_conv",
    "kda",
    "mla_unrotated",
    "mfa",
    "gqa_values",
    "gqa_values_window",
    "gqa_head_gated",
    "gqa_head_gated_window",
    "gqa_gated_window",
    "rwkv7",
]
FEED_FORWARD = ["gated", "plain", "relu2", "parallel", "moe", "moe_wide_router", "moe_shared", "parallel_gated", "parallel_plain"]
FEED_FORWARD += ["gated_relu2", "gated_token", "plain_xielu", "moe_zero", "moe_apart", "moe_apart_normed", "rwkv7_channels"]
ALONE = ["gated_alone", "gqa_rotated_alone", "gqa_alone", "mamba_alone", "mamba2_alone", "relu2_alone", "moe_relu2_alone"]


def decoder(tmp_path: Path, *layers: tuple[str, str, int]) -> Workload:
    """layers: blocks of attention and of a feed-forward layer, '' = there is none, and how many."""
    counts = [LayerCount(f"layer{number}", [one, two] if two else [one], count) for number, (one, two, count) in enumerate(layers)]
    data = compose_decoder(family_called("llama"), SIZES, counts, tied=False)
    path = tmp_path / "made.yaml"
    path.write_text(render("made", data, {"weight": "bf16"}, "a test", None), encoding="utf-8")
    return read_workload(path)


served = served_on("dgx_h100", profile="torchtitan")


def test_every_block_of_a_layer_is_tried_here() -> None:
    ends = {"embedding", "embedding_positions", "head", "tied_head", "next_token"}  # (the last: tests/test_modules.py)
    ends |= {"trained_head", "trained_tied_head"}  # (tests/test_import_training.py)
    ends |= {name for name in names("block") if "streams" in name or "altup" in name}  # (test_compressed_attention, test_imported_layers)
    ends |= {"mqa_compressed", "mqa_indexed"}
    assert {*ATTENTION, *FEED_FORWARD, *ALONE} == set(names("block")) - ends


@pytest.mark.parametrize(("attention", "feed_forward"), samples.some([*product(ALONE, [""]), *product(ATTENTION, FEED_FORWARD)], 5))
def test_any_two_blocks_make_a_layer_that_is_priced(attention: str, feed_forward: str, tmp_path: Path) -> None:
    model = served(decoder(tmp_path, (attention, feed_forward, 2), ("gqa", "gated", 1)), tensor=4, attention_data=2)
    figures = model.price(Steps.of(decodes=[4, 0, 4], context=[100, 0, 300], prefill=[0, 256, 256], prompts=1, before=[0, 0, 64]))
    assert (figures.seconds > 0).all()
    assert figures.seconds[2] > figures.seconds[0]


def test_a_layer_that_reads_anothers_cache_holds_none(tmp_path: Path) -> None:
    own, shared = (served(decoder(tmp_path, ("gqa", "gated", 2), (kind, "gated", 2))) for kind in ("gqa", "gqa_shared"))
    token = 4 * 32 * 2 * 2  # bytes a layer
    assert own.kv_bytes_per_token == 4 * token
    assert shared.kv_bytes_per_token == 2 * token
    step = Steps.of(decodes=64, context=8000)
    reads = [sum(float(row.amount[0]) for row in model.price(step).ledger.where(tensor="KC_2", level="gpu")) for model in (own, shared)]
    assert reads[0] == reads[1] > 0


def test_a_state_of_a_linear_mixer_does_not_grow(tmp_path: Path) -> None:
    model = served(decoder(tmp_path, ("delta", "gated", 3)))
    state = 3 * 4 * 2 * 32 * 32 * 4  # layers, heads, k x m, fp32
    last = 3 * (2 * 4 * 32 + 4 * 2 * 32) * 3 * 2  # layers, queries and keys and values, tokens that the convolution goes back to, bf16
    assert model.kv_bytes_per_token == 0
    assert model.cache_bytes(10) == model.cache_bytes(100_000) == state + last
    moved = {row.action: float(row.amount[0]) for row in model.price(Steps.of(decodes=1, context=9)).ledger.where(tensor="SC", level="gpu")}
    assert moved == {"read": state, "write": state}


def test_state_space_and_lightning_layers_keep_their_matrices_and_last_tokens(tmp_path: Path) -> None:
    """Mamba-2: 2 x 4 heads of 32 x 16 in fp32, and three tokens of values, keys and queries in bf16; lightning: 8 heads of 32 x 32."""
    for kind in ("mamba2", "lightning"):
        model = served(decoder(tmp_path, (kind, "gated", 3)))
        channels = 2 * 4 * 32 + 2 * 2 * 16
        kept = 3 * (2 * 4 * 32 * 16 * 4 + channels * 3 * 2) if kind == "mamba2" else 3 * 8 * 32 * 32 * 4
        assert model.kv_bytes_per_token == 0
        assert model.cache_bytes(10) == model.cache_bytes(100_000) == kept


def test_a_layer_of_one_mixer_alone_hands_on_the_residual_stream(tmp_path: Path) -> None:
    """Two of attention among five keep a cache: 4 heads x 32 elements x (key + value) x 2 bytes a layer."""
    model = served(decoder(tmp_path, ("mamba2_alone", "", 2), ("gqa_alone", "", 2), ("relu2_alone", "", 1)))
    assert model.kv_bytes_per_token == 2 * 4 * 32 * 2 * 2


def test_blocks_that_are_not_there_are_refused() -> None:
    with pytest.raises(InputError, match="no block called 'gqs'"):
        block("gqs")


def test_fused_attention_reads_picked_tokens_where_they_lie(tmp_path: Path) -> None:
    """Two sequences of 1,000 tokens, of which 64 are picked, three layers: a fused kernel reads them once, for values are a part of keys;
    gathered, and read twice, where nothing fuses."""
    latent = 3 * 2 * 64 * 64 * 2  # layers, sequences, picked tokens, elements, bytes
    workload = decoder(tmp_path, ("mla_indexed", "gated", 3))
    expected = {"flash": {"KVU read": latent}, "unfused": {"KVU read": 2 * latent, "KVU write": latent, "KVC read": latent}}
    for attention, bytes_ in expected.items():
        profile = read_profile("torchtitan").model_copy(update={"attention": attention})
        model = ServedModel(workload=workload, architecture=read_architecture("dgx_h100"), profile=profile, deployment=Deployment())
        moved: dict[str, float] = {}
        for row in model.price(Steps.of(decodes=2, context=1000)).ledger.where(level="gpu", component="memory"):
            if row.tensor in ("KVU", "KVC") and np.any(row.amount):
                name = f"{row.tensor} {row.action}"
                moved[name] = moved.get(name, 0.0) + float(row.amount[0])
        assert moved == bytes_


@pytest.mark.parametrize("context", [5, 63])
def test_attention_over_all_that_is_cached_is_the_same_with_an_indexer(context: int, tmp_path: Path) -> None:
    """Where the cache holds no more than is picked (a decode adds one): the contractions of attention take as long and move as much."""
    step = Steps.of(decodes=3, context=context)
    dense, picked = (served(decoder(tmp_path, (kind, "gated", 2))).price(step).ledger for kind in ("mla", "mla_indexed"))
    for name in ("QKc", "QKo", "AV"):
        for figure in ("amount", "exposed_seconds", "joules"):
            one, other = (
                sum(float(np.sum(getattr(row, figure))) for row in ledger.where(einsum=name) if row.component in ("memory", "compute"))
                for ledger in (dense, picked)
            )
            assert other == pytest.approx(one, rel=1e-12)


def test_a_linear_mixer_convolves_with_one_kernel_and_gates_where_it_norms(tmp_path: Path) -> None:
    """Queries, keys and values of a token are summed over four tokens, of which three are kept; their kernel brings these up to date."""
    model = replace(served(decoder(tmp_path, ("delta", "gated", 3))), profile=read_profile("sglang"))
    joined = model.laid_out[0].plans[1].joined
    assert {"convQ", "convK", "gatedL", "actL"} <= joined
    assert not {"convV", "rule", "normL"} & joined
    ledger = model.price(Steps.of(decodes=5, context=9)).ledger
    for name, channels in (("convQ", 4 * 32), ("convK", 4 * 32), ("convV", 4 * 2 * 32)):
        moved = {(row.tensor, row.action): float(row.amount[0]) for row in ledger.where(einsum=name, level="gpu", component="memory")}
        kept, token = 3 * 5 * channels * 3 * 2, 3 * 5 * channels * 2
        letter = name[-1]
        assert moved[f"C{letter}", "read"] == moved[f"C{letter}", "write"] == kept
        assert moved[f"{letter}L", "read"] == moved[f"{letter}V", "write"] == token
        assert moved[f"WC{letter}", "read"] == 3 * channels * 4 * 2


@pytest.mark.parametrize("kept", ["each", "copied"])
def test_checked_drafts_leave_a_state_each(kept: str, tmp_path: Path) -> None:
    """Five sequences of four new tokens, three layers: their states are read once and written four times, or, where the kept one takes the
    first one's place, read twice and written five times; beside one token, and in steps of prompts, they are read and written once."""
    profile = read_profile("sglang").model_copy(update={"drafted_states": kept})
    model = replace(served(decoder(tmp_path, ("delta", "gated", 3))), profile=profile)

    def moved(step: Steps) -> dict[str, float]:
        rows = [row for row in model.price(step).ledger.where(einsum="rule", level="gpu", component="memory") if row.tensor == "SC"]
        return {action: sum(float(row.amount[0]) for row in rows if row.action == action) for action in ("read", "write")}

    once = moved(Steps.of(decodes=5, context=9))
    assert once["read"] == once["write"] > 0
    assert moved(Steps.of(prefill=20, prompts=5)) == once
    more = int(kept == "copied")
    checked = moved(Steps.of(decodes=20, new=4, context=9))
    assert (checked["read"], checked["write"]) == ((1 + more) * once["read"], (4 + more) * once["write"])
    prompts = {"prefill": 20, "prompts": 5}
    both = moved(Steps.of(decodes=20, new=4, context=9, **prompts))
    assert (both["read"], both["write"]) == ((2 + more) * once["read"], (5 + more) * once["write"])


def test_a_linear_mixer_takes_prompts_by_more_kernels_than_decodes(tmp_path: Path) -> None:
    """The host launches nine for a layer's rule where prompts are taken by chunks; a decode is one. Nothing else differs."""
    model = replace(served(decoder(tmp_path, ("delta", "gated", 3))), profile=read_profile("sglang"))
    one = model.profile.model_copy(update={"composites": {**model.profile.composites, "scan": Composite()}})
    prompts, decodes = Steps.of(prefill=8, prompts=1), Steps.of(decodes=8, context=100)
    launch = model.profile.host.launch_s
    waited = [float(model.price(step).seconds[0] - replace(model, profile=one).price(step).seconds[0]) for step in (prompts, decodes)]
    assert waited == pytest.approx([3 * 8 * launch, 0.0], rel=1e-9)


@pytest.mark.parametrize(("new", "before"), [(512, 0), (128, 0), (64, 0), (100, 60), (1, 4095), (1, 50), (300, 128), (7, 125)])
def test_a_window_hides_tokens_from_each_token_of_a_chunk_by_its_place(new: int, before: int) -> None:
    """Counted one by one, of a window of 128; the middle token of 512 sees 128, the mean is 112.1."""
    sets = [f"workload.sizes.s={new}", f"workload.sizes.t={before + new}"]
    seen = read_workload("gpt_oss_120b_decoder", sets).tensors["A"]
    assert seen.density * dict(zip(seen.ranks, seen.sizes, strict=True))["u"] == pytest.approx(
        np.mean([min(before + place, 128) for place in range(1, new + 1)])
    )
