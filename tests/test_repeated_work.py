"""Work done more than once, by hand: said with what it costs, and not counted as useful."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackmodel import api
from rackmodel.model.result import Result
from rackmodel.report.tables import result_lines

B, S, D, HEADS, E, F, V, LAYERS, T = 4, 256, 512, 8, 64, 1024, 4096, 2, 8
SIZES = [f"b={B}", f"s={S}", f"d={D}", "g=8", "q=1", f"e={E}", f"f={F}", f"v={V}", f"layers={LAYERS}", f"accelerators={T}"]
MAPPER = """
mapper: one
axes: {{pp: {{degree: 1, stages: layers}}, dp: {{degree: 1}}, tp: {{degree: rest}}}}
split: {{dp: [b], tp: {split}}}
micro_batch: {B}
schedule: 1f1b
recompute: {recompute}
overlap: profile
algorithms: ring
profile: serial
"""
ATTENTION = D * HEADS * E * 4  # WQ, WK, WV, WO
PARAMETERS = LAYERS * (ATTENTION + 3 * D * F) + D * V  # of matrices that multiply activations
TABLE_PASSES = 2  # forward and its own gradient: tokens have none
USEFUL = 6 * B * S * PARAMETERS + 2 * TABLE_PASSES * B * S * D + LAYERS * 3 * 2 * 2 * B * S * S * HEADS * E


def step(folder: Path, split: str, recompute: str = "none", *sets: str) -> Result:
    """A small Llama on one group of eight."""
    file = folder / "one.yaml"
    file.write_text(MAPPER.format(split=split, recompute=recompute, B=B))
    return api.search("rack_paper_h100", "llama", str(file), sets=[*SIZES, *sets]).result


def test_useful_work_is_the_models_whatever_members_repeat(tmp_path: Path) -> None:
    split, whole = step(tmp_path, "[[g, q], f, v]"), step(tmp_path, "[f, v]")
    for one in (split, whole):
        assert one.mfu == pytest.approx(USEFUL / (one.latency_s * one.peak_flop_per_s), rel=1e-9)
    assert split.hfu == pytest.approx(split.mfu, rel=1e-9)
    again = 7 * LAYERS * (6 * B * S * ATTENTION + 3 * 2 * 2 * B * S * S * HEADS * E)  # seven of eight members for nothing
    assert whole.hfu == pytest.approx((USEFUL + again) / (whole.latency_s * whole.peak_flop_per_s), rel=1e-9)


@pytest.mark.parametrize(("rerun", "products"), [("region", 2), ("slice", 1)])
def test_what_runs_again_is_in_the_hardwares_utilisation_alone(tmp_path: Path, rerun: str, products: int) -> None:
    """A checkpointed attention runs whole, with the product with V, of whose result the backward pass needs nothing more."""
    one = step(tmp_path, "[[g, q], f, v]", f"selective\nrerun: {rerun}")
    each = LAYERS * 2 * B * S * S * HEADS * E
    assert one.hfu / one.mfu == pytest.approx((USEFUL + products * each) / USEFUL, rel=1e-9)
    bare = step(tmp_path, "[[g, q], f, v]", "selective\nrerun: slice")
    assert one.memory == bare.memory  # the result that O multiplies is saved either way


def test_an_axis_that_splits_no_heads_is_said_with_what_it_costs(tmp_path: Path) -> None:
    one = step(tmp_path, "[f, v]")
    (found,) = one.repeated
    assert found.axes == ("tp",)
    assert {"Q", "K", "V", "QK", "AV", "O", "norm1"} <= set(found.operations)
    assert not {"gate", "down", "logits", "embed"} & set(found.operations)
    norms = (2 * LAYERS + 1) * D
    assert found.bytes == pytest.approx((LAYERS * ATTENTION + norms) * 18 * 7 / 8)  # 2 + 4 + 12 bytes a parameter
    names = set(found.operations)
    rows = one.ledger.where(component=("compute", "memory"), phase=("forward", "backward"))
    joules = sum(row.joules for row in rows if row.einsum in names and row.level != "system")  # what comes from the host comes once
    assert found.joules == pytest.approx(joules * 7 / 8)
    text = " ".join(result_lines(one))
    assert "repeated by all members of axis tp: norm1, Q, K, V" in text
    assert one.to_dict()["repeated"][0]["operations"][:2] == ["norm1", "Q"]


def test_frozen_weights_are_repeated_without_gradients_and_state(tmp_path: Path) -> None:
    frozen = [f"tensors.{name}={{trained: false}}" for name in ("WQ", "WK", "WV", "WO")]
    (found,) = step(tmp_path, "[f, v]", "none", *frozen).repeated
    assert found.bytes == pytest.approx((LAYERS * ATTENTION * 2 + (2 * LAYERS + 1) * D * 18) * 7 / 8)


def test_plain_tensor_parallelism_repeats_the_norms_and_the_sequence_split_nothing(tmp_path: Path) -> None:
    (plain,) = step(tmp_path, "[[g, q], f, v]").repeated
    assert set(plain.operations) == {"norm1", "norm2", "res1", "res2", "norm"}
    assert step(tmp_path, "[[g, q], f, v, s]").repeated == ()
