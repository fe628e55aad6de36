"""Words of servers in other spellings: plans, engines, machines, formats, and pools that a row's mode names."""

from __future__ import annotations

import pytest

from rackmodel.validation.served_pools import _counts, ran_in_pools
from rackmodel.validation.serving import point_of
from rackmodel.validation.serving_forms import _largest_load, _planned
from rackmodel.validation.words import Refused
from tests.test_validate_serving import _row


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("TP8/EP8/DP8", ("8", "1", "8", "8")),
        ("tp8 ep8", ("8", "8", "1", "8")),
        ("TP4, EP4", ("4", "4", "1", "4")),
        ("dp8ep8", ("8", "1", "8", "8")),
        ("DEP8", ("8", "1", "8", "8")),
        ("attention DP4 + EP4", ("4", "1", "4", "4")),
        ("ADP4 EP4", ("4", "1", "4", "4")),
    ],
)
def test_a_plan_is_known_in_other_spellings(text: str, wanted: tuple[str, ...]) -> None:
    found = _planned(_row(model="DeepSeek-R1-0528", engine="vllm", parallel=text))
    assert (found["n_gpus"], found["tp_size"], found["attention_dp_size"], found["moe_ep_size"]) == wanted
    load = _largest_load(_row(model="m", gpu="H200", tp=wanted[0], unit="out_tok_s_per_gpu", value="1", ep_dp=text))
    assert (load["n_gpus"], load["tp_size"], load["attention_dp_size"], load["moe_ep_size"]) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"), [("TP1/DP8/EP8", ("8", "1", "8")), ("TP2 DP4 EP8", ("8", "2", "4")), ("TP8 DP4 EP8", ("8", "2", "4"))]
)
def test_experts_tell_what_a_degree_of_tensors_counts(text: str, wanted: tuple[str, ...]) -> None:
    """A rank of attention data (vLLM: experts lie on tp x dp), or all of them (SGLang: on tp)."""
    found = _planned(_row(model="DeepSeek-R1-0528", engine="vllm", parallel=text))
    assert (found["n_gpus"], found["tp_size"], found["attention_dp_size"]) == wanted


@pytest.mark.parametrize(
    "text", ["dp8", "dp8 ep4", "TP4 EP8", "tp8 ep3", "TP2 DP4", "tp8 dp3 ep8", "tp0", "dep8 ep4", "pipeline 8", "tp8 of two nodes", ""]
)
def test_a_plan_that_does_not_say_its_accelerators_is_refused(text: str) -> None:
    """TP2 DP4 are eight accelerators of vLLM's words and two, or none, of SGLang's; dp8 may be eight servers; eight ranks of experts are
    not on four."""
    with pytest.raises(Refused):
        _planned(_row(model="DeepSeek-R1-0528", engine="vllm", parallel=text))


@pytest.mark.parametrize(
    ("mode", "counts"), [("2P1D", (2, 1)), ("4p x 2d", (4, 2)), ("1P:3D", (1, 3)), ("disaggregated", (0, 0)), ("P/D", (0, 0))]
)
def test_pools_are_known_by_other_words_and_counts(mode: str, counts: tuple[int, int]) -> None:
    row = _row(mode=mode, prefill_num_workers="", decode_num_workers="")
    assert ran_in_pools(row)
    assert tuple(_counts(row).values()) == counts
    assert tuple(_counts(_row(mode=mode, prefill_num_workers="3", decode_num_workers="5")).values()) == (3, 5)


@pytest.mark.parametrize("mode", ["agg", "aggregated", "IFB", ""])
def test_others_are_no_pools(mode: str) -> None:
    assert not ran_in_pools(_row(mode=mode))
    assert ran_in_pools(_row(mode=mode, prefill_num_workers="1", decode_num_workers="1"))


@pytest.mark.parametrize(
    ("cells", "wanted"),
    [
        ({"backend": "sgl-project/sglang"}, {"backend": "sglang"}),
        ({"backend": "vllm-openai"}, {"backend": "vllm"}),
        ({"backend": "trt-llm (pytorch)"}, {"backend": "trtllm"}),
        ({"system": "HGX H200"}, {"system": "h200_sxm"}),
        ({"gemm_quant_mode": "float8_e4m3fn"}, {"gemm_quant_mode": "fp8"}),
    ],
)
def test_a_server_is_known_in_other_words(cells: dict[str, str], wanted: dict[str, str]) -> None:
    assert point_of(_row(**cells)).server.deployment == point_of(_row(**wanted)).server.deployment
    assert point_of(_row(**cells)).server.widths == point_of(_row(**wanted)).server.widths
