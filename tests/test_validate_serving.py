"""Rows of served models: what their words mean, which deployment they ran on, and what of them is compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rackmodel.inputs.library import library_root
from rackmodel.model.calls import release_before
from rackmodel.processes import Crew
from rackmodel.serving.engine import schedule_of
from rackmodel.serving.requests import Requests
from rackmodel.serving.steady import closed_loop
from rackmodel.serving.steps import Deployment, Steps
from rackmodel.validation.model_names import name_and_format
from rackmodel.validation.offline_runs import simulated
from rackmodel.validation.rows import PublishedRow, read_rows
from rackmodel.validation.run import validate
from rackmodel.validation.served_pools import _point as _pools_point
from rackmodel.validation.served_pools import _points as _pools_points
from rackmodel.validation.served_pools import ran_in_pools
from rackmodel.validation.served_requests import _Run
from rackmodel.validation.servers import CHOSEN, DEALT, DRAFTS, WIDTHS, _workload, engine_of
from rackmodel.validation.serving import _deployment, point_of, serving_rows, workers_of
from rackmodel.validation.serving_forms import _largest_load, _planned, deployed_rows, largest_load_rows
from rackmodel.validation.serving_words import SettingWords, settings_of
from rackmodel.validation.words import Refused, words

CELLS = {
    "id": "row",
    "backend": "vllm",
    "model_path": "meta-llama/Llama-3.1-70B",
    "system": "h200_sxm",
    "precision": "fp8",
    "mode": "agg",
    "isl": "1024",
    "osl": "1024",
    "gemm_quant_mode": "fp8",
    "moe_quant_mode": "fp8",
    "tp_size": "8.0",
    "concurrency": "16",
    "ttft_ms": "100",
    "tpot_ms": "8",
    "n_gpus": "8",
    "n_gpus_basis": "as given",
    "origin": "source_file=2026-04-06.csv",
    "curve_key": "70B|h200_sxm|vllm|agg|1024|1024",
}
SGLANG = CELLS | {"backend": "sglang", "backend_version": "0.5.9", "system": "b200_sxm", "moe_ep_size": "1"}
DEEPSEEK = SGLANG | {"model_path": "deepseek-ai/DeepSeek-R1"}
QWEN = SGLANG | {"model_path": "Qwen/Qwen3.5-397B-A17B", "tp_size": "4", "n_gpus": "4"}


def _row(**cells: str) -> PublishedRow:
    return PublishedRow("row", "e2e_serving_silicon", "served", CELLS | cells, "rows.csv", 2)


@pytest.mark.parametrize(
    ("cells", "wanted"),
    [
        ({}, Deployment(tensor=8, expert_tensor=8)),
        ({"tp_size": "64.0", "moe_ep_size": "8.0", "src_ep": "8.0"}, Deployment(tensor=8, expert=8)),
        ({"tp_size": "4.0", "attention_dp_size": "4.0", "moe_ep_size": "16.0", "n_gpus": "4"}, Deployment(tensor=4, expert=4)),
        ({"tp_size": "2", "attention_dp_size": "2", "moe_ep_size": "4", "n_gpus": "4"}, Deployment(tensor=2, attention_data=2, expert=4)),
        ({"tp_size": "1", "attention_dp_size": "64", "moe_ep_size": "8", "n_gpus": "8"}, Deployment(attention_data=8, expert=8)),
        ({"moe_tp_size": "1", "moe_ep_size": "1"}, Deployment(tensor=8, expert_tensor=8)),
    ],
)
def test_a_deployment_is_that_of_the_accelerators_that_ran(cells: dict[str, str], wanted: Deployment) -> None:
    """Parallel fields of tensor x expert rows were multiplied by the source; n_gpus is what holds."""
    row = _row(**cells)
    assert _deployment(row, int(row.number("n_gpus") or 0)) == wanted


@pytest.mark.parametrize(
    ("tensor", "expert", "said", "wanted"),
    [("16", "4", "1", 4), ("16", "4", "8", 4), ("64", "8", "16", 8), ("64", "8", "8", 8), ("4", "1", "2", 4)],
)
def test_accelerators_that_a_throughput_gave_are_those_of_the_degrees(tensor: str, expert: str, said: str, wanted: int) -> None:
    """The throughput is of a later run: one B300 does not hold DeepSeek, and a server has no sixteen."""
    basis = "source parallel fields inflated x4; corrected from measured tok/s/GPU"
    cells = {"tp_size": tensor, "moe_ep_size": expert, "attention_dp_size": "1", "n_gpus": said, "n_gpus_basis": basis}
    assert point_of(_row(**DEEPSEEK | {"backend_version": "0.5.9", "precision": "fp4"} | cells)).server.deployment.accelerators == wanted


@pytest.mark.parametrize(
    ("tensor", "wanted"),
    [("1", Deployment(attention_data=4, expert_tensor=4)), ("2", Deployment(tensor=2, attention_data=2, expert_tensor=4))],
)
def test_ranks_that_a_row_leaves_out_are_those_of_its_experts(tensor: str, wanted: Deployment) -> None:
    """Experts in four parts on one or two accelerators are on four: 235 GB do not fit one H200. A row's clients are of each rank."""
    cells = {"model_path": "Qwen/Qwen3-235B-A22B-FP8", "tp_size": tensor, "n_gpus": tensor, "moe_tp_size": "4", "moe_ep_size": "1"}
    point = point_of(_row(**cells | {"attention_dp_size": "", "concurrency": "6"}))
    assert point.server.deployment == wanted
    assert point.run.clients == 6 * wanted.attention_data
    assert point.measured["tokens_per_s"] == pytest.approx(6 * wanted.attention_data * 1024 / (0.1 + 1023 * 0.008) / 4)


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ({"n_gpus": "", "n_gpus_basis": "inconsistent"}, "no usable number of accelerators"),
        ({"model_path": "Qwen/Qwen3-33B"}, "nearest: qwen/qwen3-32b"),
        ({"backend": "vlm"}, "no engine called 'vlm'"),
        ({"gemm_quant_mode": "fp9"}, "no format called 'fp9'"),
        ({"concurrency": ""}, "no number of clients"),
        ({"tpot_ms": "", "ttft_ms": ""}, "no measured time"),
    ],
)
def test_what_cannot_be_priced_is_refused_by_name(cells: dict[str, str], why: str) -> None:
    with pytest.raises(Refused, match=why):
        point_of(_row(**cells))


def test_a_row_may_name_files_of_the_library_and_of_its_own(tmp_path: Path) -> None:
    """A model that has no name in the words of published rows is a workload's name or path, a GPU an architecture's."""
    own = tmp_path / "own.yaml"
    own.write_text(library_root().joinpath("workloads", "qwen3_8b_decoder.yaml").read_text(encoding="utf-8"), encoding="utf-8")

    def seconds(**cells: str) -> list[float]:
        return engine_of(point_of(_row(**cells)).server).price(Steps.of(decodes=16, context=1024)).seconds.tolist()

    named = seconds(model_path="Qwen/Qwen3-8B")
    assert named == seconds(model_path="qwen3_8b_decoder", system="dgx_h200") == seconds(model_path=str(own))


@pytest.mark.parametrize(
    ("cells", "workers"),
    [
        ({"concurrency": "448", "batch_size": "14.0", "tp_size": "2", "n_gpus": "2"}, 32),
        ({"concurrency": "16", "batch_size": "16.0"}, 1),
        ({"concurrency": "16"}, 1),
        ({"concurrency": "512", "batch_size": "64", "attention_dp_size": "8", "tp_size": "1"}, 1),
        ({"concurrency": "20", "batch_size": "16"}, 1),
    ],
)
def test_clients_of_several_servers_are_dealt_to_them(cells: dict[str, str], workers: int) -> None:
    """A row that has as many times a server's batch is of so many servers; its accelerators are one's, and so is its rate."""
    row = _row(**cells)
    assert workers_of(row) == workers
    point = point_of(row)
    clients = float(cells["concurrency"]) / workers
    assert point.run.clients == clients
    assert point.measured["tokens_per_s"] == pytest.approx(clients * 1024 / (0.1 + 1023 * 0.008) / point.server.deployment.accelerators)


def test_what_a_model_of_tensorrt_llm_does_not_fuse_is_a_setting() -> None:
    """Llama 3 8B and Qwen 3 32B reduce and then normalise; Llama 3 70B goes on. Before August 2025 products quantised what they read."""
    small, large, qwen, mixture = (
        dict(point_of(_row(backend="trtllm", backend_version="1.0.0rc3", system="h100_sxm", model_path=name)).server.chosen)
        for name in ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-70B", "Qwen/Qwen3-32B", "Qwen/Qwen3-235B-A22B-FP8")
    )
    assert [one.get("reductions") for one in (small, large, qwen, mixture)] == ["none", None, "none", None]
    assert {one.get("written") for one in (small, large, qwen, mixture)} == {0}
    later = point_of(_row(backend="trtllm", backend_version="1.2.0rc2", model_path="Qwen/Qwen3-32B")).server.chosen
    assert "written" not in dict(later)


def test_qwen_35_goes_on_with_a_norm_since_march_2026() -> None:
    bf16 = QWEN | {"precision": "bf16"}
    old, new = (dict(point_of(_row(**bf16 | {"backend_version": one})).server.chosen) for one in ("0.5.9", "0.5.10.post1"))
    assert (old["reductions"], new["reductions"]) == ("none", "trtllm")


def test_settings_of_a_run_replace_the_engines() -> None:
    waits = point_of(_row(backend="trtllm", n_gpus="4", tp_size="4"))
    assert waits.timed["held"] == 20
    assert waits.timed["token_budget"] == 1024 + 1024 + 200
    assert "held" not in point_of(_row(backend="trtllm")).timed
    assert dict(waits.server.widths)["kv_cache"] == "fp8"


def test_later_settings_replace_earlier_ones() -> None:
    said = [SettingWords(when={"engine": ["a"]}, set={"held": 1, "ahead": 1}), SettingWords(when={"engine": ["A", "b"]}, set={"held": 2})]
    assert settings_of(said, {"engine": "a", "role": "together"}) == {"held": 2, "ahead": 1}


@pytest.mark.parametrize(
    ("word", "left", "said"),
    [
        ("RedHatAI/Meta-Llama-3.1-70B-Instruct-FP8-dynamic", "llama-3.1-70b", "fp8"),
        ("nvidia/DeepSeek-R1-0528-NVFP4-v2", "deepseek-r1", "fp4"),
        ("hugging-quants/Meta-Llama-3.1-405B-Instruct-AWQ-INT4", "llama-3.1-405b", "int4"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507", "qwen3-235b-a22b", ""),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b", ""),
        ("openai/gpt-oss-120b", "gpt-oss-120b", ""),
        ("deepseek-ai/DeepSeek-V3.1", "deepseek-v3.1", ""),
        ("deepseek-ai/DeepSeek-V3-0324", "deepseek-v3", ""),
        ("deepseek-ai/DeepSeek-V2", "deepseek-v2", ""),
        ("fp8", "fp8", ""),
        ("Kimi K2 Thinking", "kimi-k2", ""),
        (" Gemma 2  27B it ", "gemma-2-27b", ""),
        ("Llama 3.3 70B Instruct FP8", "llama-3.3-70b", "fp8"),
    ],
)
def test_a_name_says_a_model_and_a_format(word: str, left: str, said: str) -> None:
    assert name_and_format(word) == (left, said)


@pytest.mark.parametrize("engine", ["trtllm", "TensorRT-LLM"])
@pytest.mark.parametrize("system", ["b200_sxm", "B200", "NVIDIA B200"])
@pytest.mark.parametrize(
    "name", ["deepseek-ai/DeepSeek-R1", "DEEPSEEK-AI/deepseek-r1", "nvidia/DeepSeek-R1-0528-NVFP4-v2", "someone/DeepSeek-R1-AWQ"]
)
def test_settings_are_found_by_any_name_of_a_model_a_machine_and_an_engine(name: str, system: str, engine: str) -> None:
    said = point_of(_row(model_path=name, system=system, backend=engine))
    assert dict(said.server.facts) == {"graph_sequences": 512, "memory_share": 0.8}
    assert said.server.model.workload == "deepseek_v3_decoder"
    assert "kv_cache" in dict(said.server.widths)


def test_a_row_whose_name_alone_says_a_format_is_of_that_format() -> None:
    unsaid = {"precision": "", "gemm_quant_mode": ""}
    for name, width in (
        ("Qwen/Qwen3-32B", ""),
        ("Qwen/Qwen3-32B-FP8", "fp8"),
        ("Qwen/Qwen3-32B-AWQ", "int4"),
        ("x/qwen3-32b-nvfp4", "nvfp4"),
    ):
        assert dict(point_of(_row(model_path=name, **unsaid)).server.widths).get("weight", "") == width
    assert dict(point_of(_row(model_path="Qwen/Qwen3-32B-FP8", precision="bf16", gemm_quant_mode="")).server.widths) == {}


@pytest.mark.parametrize(("said", "wanted"), [("FP8", "fp8"), ("fp8_block", "fp8"), ("nvfp4", "fp4"), ("NVFP4", "fp4")])
def test_a_format_by_any_of_its_words_is_that_of_the_checkpoint(said: str, wanted: str) -> None:
    """'FP8' of DeepSeek was one scale for all, not its blocks; 'nvfp4' narrowed attention, too."""
    of = {"model_path": "deepseek-ai/DeepSeek-R1", "gemm_quant_mode": "", "backend": "sglang", "system": "B200"}
    assert point_of(_row(**of, precision=said)).server == point_of(_row(**of, precision=wanted)).server


def test_a_model_that_nobody_says_a_format_of_is_served_as_it_was_released() -> None:
    """MiniMax and DeepSeek were released in blocks of fp8, and were priced in 16 bit; Qwen3-32B was, and is."""
    unsaid = {"gemm_quant_mode": "", "precision": ""}
    for name, released in (("MiniMaxAI/MiniMax-M2.5", "fp8"), ("deepseek-ai/DeepSeek-R1", "fp8"), ("openai/gpt-oss-120b", "fp4")):
        found = point_of(_row(model_path=name, **unsaid))
        assert found.server.widths == point_of(_row(model_path=name, gemm_quant_mode="", precision=released)).server.widths
        assert any(f"weights in {released}, as they were released" in note for note in found.run.notes)
    assert point_of(_row(model_path="Qwen/Qwen3-32B", **unsaid)).server.widths == ()


def test_accelerators_that_nothing_is_said_of_are_those_of_the_degrees() -> None:
    unsaid = {"n_gpus": "", "n_gpus_basis": ""}
    assert point_of(_row(**unsaid, tp_size="4", pp_size="2")).server.deployment == Deployment(tensor=4, pipeline=2, expert_tensor=4)
    with pytest.raises(Refused, match="n_gpus is empty: inconsistent"):
        point_of(_row(n_gpus="", n_gpus_basis="inconsistent"))
    with pytest.raises(Refused, match="9 accelerators in 2 equal stages"):
        point_of(_row(n_gpus="9", pp_size="2"))


def test_a_row_of_pools_without_a_time_is_refused(tmp_path: Path) -> None:
    """It ended in a traceback."""
    cells = CELLS | {"mode": "disagg", "ttft_ms": "", "tpot_ms": "", "n_gpus": "", "prefill_num_workers": "1", "decode_num_workers": "1"}
    found = validate([_file(tmp_path, "e2e_serving_silicon.csv", cells | {"prefill_tp_size": "8", "decode_tp_size": "8"})])
    assert [row.refused for row in found.rows] == ["no measured time"]


def test_a_month_behind_a_name_may_be_another_model() -> None:
    """Mistral Large of February 2024, whose sizes nobody published, was priced as that of July."""
    for name in ("mistralai/Mistral-Large-2402", "mistral-large-2402", "someone/Mistral-Large-2402-FP8"):
        with pytest.raises(Refused, match="has no published sizes"):
            point_of(_row(model_path=name))
    for name in ("mistralai/Mistral-Large-Instruct-2411", "someone/Mistral-Large-Instruct-2407-AWQ", "mistral-large"):
        assert point_of(_row(model_path=name, tp_size="4", n_gpus="4")).server.model.workload == "mistral_large_123b_decoder"


@pytest.mark.parametrize(
    ("name", "workload"),
    [
        ("moonshotai/Kimi-Linear-48B-A3B-Instruct", "kimi_linear_48b_decoder"),
        ("nvidia/Llama-3_3-Nemotron-Super-49B-v1_5-FP8", "nemotron_super_49b_decoder"),
        ("nvidia/Llama-3_1-Nemotron-Ultra-253B-v1", "nemotron_ultra_253b_decoder"),
    ],
)
def test_a_model_that_imports_express_is_priced(name: str, workload: str) -> None:
    """Rows refused them: 'is not expressed here'."""
    assert point_of(_row(model_path=name, tp_size="8", n_gpus="8")).server.model.workload == workload


def test_a_checkpoint_that_no_table_names_is_told_and_an_unknown_model_is_refused() -> None:
    notes = point_of(_row(model_path="someone/Qwen3-32B-AWQ")).run.notes
    assert any("checkpoint of Qwen/Qwen3-32B" in note for note in notes)
    assert not any("no document tells" in note for note in notes)
    assert any("no document tells with which settings" in note for note in point_of(_row(model_path="Qwen/Qwen3-8B")).run.notes)
    with pytest.raises(Refused, match="no served model called 'Qwen/Qwen9-32B-FP8'"):
        point_of(_row(model_path="Qwen/Qwen9-32B-FP8"))


def test_scripts_of_one_benchmark_are_not_those_of_another() -> None:
    """InferenceX' flags are not those with which NVIDIA's overview and its gap analysis ran."""
    cells = {"backend": "trtllm", "model_path": "openai/gpt-oss-120b", "precision": "fp4", "system": "h200_sxm"}
    assert dict(point_of(_row(**cells)).server.facts)["memory_share"] == 0.85
    assert dict(point_of(_row(**cells, origin="aic-auto-gap-analysis/x")).server.facts)["memory_share"] == 0.8
    fused = {"backend": "trtllm", "model_path": "Qwen/Qwen3-32B", "origin": "aic-auto-gap-analysis/x"}
    assert dict(point_of(_row(**fused)).server.chosen)["reductions"] == "none"


def test_a_setting_names_part_of_an_origin() -> None:
    said = [SettingWords(when={"origin": ["gap-analysis"]}, set={"held": 1}), SettingWords(when={"origin": ["dump"]}, set={"held": 2})]
    assert settings_of(said, {"origin": "aic-auto-gap-analysis/h100_sxm", "role": "together"}) == {"held": 1}


def test_a_script_that_ignores_its_degree_deals_experts_as_it_does() -> None:
    """vLLM's of MiniMax up to 0.17 asks for expert parallelism always, SGLang's of Qwen 3.5 on H200 never."""
    minimax = {"model_path": "MiniMaxAI/MiniMax-M2.5", "backend_version": "0.17.0", "system": "b200_sxm", "moe_ep_size": "1", "src_ep": "1"}
    assert point_of(_row(**minimax)).server.deployment == Deployment(tensor=8, expert=8)
    assert point_of(_row(**minimax | {"backend_version": "0.19.0"})).server.deployment == Deployment(tensor=8, expert_tensor=8)
    qwen = QWEN | {"system": "h200_sxm", "tp_size": "8", "n_gpus": "8", "moe_ep_size": "8", "src_ep": "8"}
    assert point_of(_row(**qwen)).server.deployment == Deployment(tensor=8, expert_tensor=8)


def test_products_are_apart_where_a_release_has_them_so() -> None:
    early, late = (point_of(_row(**QWEN | {"backend_version": version})).server for version in ("0.5.9", "0.5.10.post1"))
    assert dict(early.chosen)["apart"] == "ZL YL"
    assert "apart" not in dict(late.chosen)
    steps = Steps.of(decodes=8.0, context=1000.0)
    merged = replace(early, chosen=tuple(one for one in early.chosen if one[0] != "apart"))
    more = [engine_of(one).price(steps).seconds[0] for one in (merged, early)]
    assert 0.2e-3 < more[1] - more[0] < 1.2e-3  # two products more in 45 layers


def test_settings_are_of_servers_that_do_both_unless_they_name_a_role() -> None:
    said = [SettingWords(when={"engine": ["a"]}, set={"held": 1}), SettingWords(when={"role": ["prompts"]}, set={"ahead": 0})]
    assert settings_of(said, {"engine": "a", "role": "prompts"}) == {"ahead": 0}


POOLS = {
    "mode": "disagg",
    "backend": "trtllm",
    "prefill_num_workers": "1",
    "prefill_tp_size": "4",
    "prefill_attention_dp_size": "1",
    "decode_num_workers": "3",
    "decode_tp_size": "2",
    "decode_attention_dp_size": "2",
    "n_gpus": "16",
}


def test_a_row_with_pools_has_workers_of_two_deployments() -> None:
    point = _pools_point(_row(**POOLS))
    assert [(one.count, one.server.deployment) for one in point.pools] == [
        (1, Deployment(tensor=4, expert_tensor=4)),
        (3, Deployment(tensor=2, attention_data=2, expert_tensor=4)),
    ]
    assert [dict(one.server.facts).get("ahead") for one in point.pools] == [0, None]
    assert _pools_point(_row(**POOLS, concurrency="", decode_batch_size="5")).run.clients == 5 * 3 * 2


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ({"decode_num_workers": ""}, "how many workers"),
        ({"n_gpus": "12"}, "workers of 16 accelerators, where the row has 12"),
        ({"prefill_moe_ep_size": "8"}, "experts in 8 parts over 4 accelerators"),
    ],
)
def test_pools_that_do_not_add_up_are_refused(cells: dict[str, str], why: str) -> None:
    with pytest.raises(Refused, match=why):
        _pools_points(_row(**(POOLS | cells)))


JOINED = {
    "mode": "disagg",
    "backend": "trtllm",
    "model_path": "deepseek-ai/DeepSeek-R1",
    "system": "gb200",
    "precision": "fp4",
    "gemm_quant_mode": "nvfp4",
    "n_gpus": "",
    "prefill_tp_size": "4",
    "decode_tp_size": "8",
    "concurrency": "96",
}
"""Of a published plan: one worker of prompts, four of decodes (specs/validation/pools.yaml)."""


def test_a_row_without_workers_is_joined_to_the_published_plan_of_its_clients() -> None:
    (point,) = _pools_points(_row(**JOINED))
    assert [(one.count, one.server.deployment) for one in point.pools] == [
        (1, Deployment(attention_data=4, expert=4)),
        (4, Deployment(tensor=8, expert=8)),
    ]
    assert point.timed["decodes"]["sequences"] == 32
    with pytest.raises(Refused, match="no published plan"):
        _pools_points(_row(**(JOINED | {"concurrency": "97"})))


def test_a_row_that_fits_several_plans_is_answered_over_all_of_them(tmp_path: Path) -> None:
    """12 clients ran with drafts and without, and nothing in the row tells which."""
    points = _pools_points(_row(**(JOINED | {"concurrency": "12"})))
    assert {one.timed["decodes"].get("drafted", 0.0) for one in points} == {0.0, 3.0}
    report = validate([_file(tmp_path, "e2e_serving_silicon", CELLS | JOINED | {"concurrency": "12"})]).to_dict()
    row = next(one for one in report["rows"] if one["dataset"] == "e2e_serving_silicon_pools")
    low, high = row["interval"]
    assert low < 0.8 * row["predicted"] < row["predicted"] < 0.8 * high
    assert list(row["interval_owed_to"]) == ["deployment", "acceptance of drafts"]


def test_servers_of_several_engines_are_dealt_to_processes(tmp_path: Path) -> None:
    files = [
        _file(tmp_path, name, CELLS | cells)
        for name, cells in (("e2e_serving_silicon", {}), ("e2e_serving_silicon_2", {"system": "b200_sxm"}))
    ]
    alone = validate(files)
    assert all(row.predicted > 0 for row in alone.rows)
    assert validate(files, crew=Crew(2)).to_dict() == alone.to_dict()


def test_a_row_of_more_accelerators_than_a_server_is_one_of_pools_where_they_are_those_of_a_plan() -> None:
    aggregated = JOINED | {"mode": "agg", "n_gpus": "12", "concurrency": "4300"}
    assert ran_in_pools(_row(**aggregated))
    assert {one.accelerators for one in _pools_points(_row(**aggregated))} == {12}
    assert not ran_in_pools(_row(**(aggregated | {"n_gpus": "13"})))


def test_drafts_that_a_release_makes_are_kept_as_often_as_was_published(tmp_path: Path) -> None:
    """Plans of image 1.2.0rc6.post3 draft, those of post2 do not; how often a draft is kept is an interval."""
    cells = CELLS | {"backend": "trtllm", "model_path": "deepseek-ai/DeepSeek-R1", "system": "b200_sxm", "concurrency": "4"}
    found = {}
    for release in ("post2", "post3"):
        (tmp_path / release).mkdir()
        file = _file(tmp_path / release, "e2e_serving_silicon", cells | {"backend_version": f"1.2.0rc6.{release}"})
        rows = validate([file]).to_dict()["rows"]
        found[release] = next(row for row in rows if row["dataset"] == "e2e_serving_silicon")
    assert found["post2"]["interval"] is None
    assert found["post3"]["predicted"] < 0.7 * found["post2"]["predicted"]
    assert found["post3"]["interval"][1] > 1.3 * found["post3"]["predicted"]


@pytest.mark.parametrize(
    ("cells", "drafted", "ahead"),
    [
        (QWEN | {"moe_ep_size": "1"}, 3, 0),  # TP 4 with EP 1: the plan with drafts alone
        (QWEN | {"moe_ep_size": "4"}, 0, 1),
        (QWEN | {"moe_ep_size": "1", "precision": "fp4"}, 0, 1),  # of fp4 TP 4 with EP 1 drafts nothing
        (DEEPSEEK | {"isl": "8192", "concurrency": "64"}, 2, 0),
        (DEEPSEEK | {"isl": "8192", "concurrency": "4"}, 0, 1),  # both plans have it
        (DEEPSEEK | {"backend": "trtllm", "backend_version": "1.1.0rc2.post2", "measured_on": "2026-01-14"}, 3, 1),
        (DEEPSEEK | {"backend": "trtllm", "backend_version": "1.1.0rc2.post2", "measured_on": "2025-12-15"}, 0, 1),
    ],
)
def test_a_row_drafts_where_only_plans_with_drafts_have_its_degrees(cells: dict[str, str], drafted: int, ahead: int) -> None:
    """InferenceX' rows do not say whether they draft; its plans do, and SGLang schedules nothing ahead beside drafts."""
    point = point_of(_row(**cells))
    assert point.timed.get("drafted", 0) == drafted
    assert dict(point.server.facts).get("ahead", 1) == ahead


def test_a_server_that_drafts_has_room_for_one_prompt_a_step() -> None:
    """MAX_NUM_TOKENS of TensorRT-LLM's scripts: (3 + 1) x 16 clients + 1024 + 64; 8192 where nothing is drafted."""
    cells = DEEPSEEK | {"backend": "trtllm", "concurrency": "16"}
    budgets = [point_of(_row(**cells | {"backend_version": f"1.2.0rc6.{one}"})).timed["token_budget"] for one in ("post2", "post3")]
    assert [float(one) for one in budgets] == [8192, 1152]


@pytest.mark.parametrize(
    ("day", "attention", "budget", "held"),
    [
        ("2025-12-15", {}, 1152, 0.0),
        ("2026-02-03", {}, 8192, 0.0),
        ("2025-12-15", {"tp_size": "1", "attention_dp_size": "8", "moe_ep_size": "8"}, 1152, 1024 / 1152),
        ("2026-02-03", {"tp_size": "1", "attention_dp_size": "8", "moe_ep_size": "8"}, 8192, 1024 / 8192),
    ],
)
def test_servers_of_2025_have_room_for_one_prompt_a_step(day: str, attention: dict[str, str], budget: float, held: float) -> None:
    """MAX_NUM_TOKENS of TensorRT-LLM's scripts was 1024 + 64 clients + 64 until they ran evaluations too, whose floor is 8192."""
    timed = point_of(_row(**DEEPSEEK | {"backend": "trtllm", "concurrency": "64", "measured_on": day} | attention)).timed
    assert float(timed["token_budget"]) == budget
    assert float(timed.get("held_until", 0.0)) == pytest.approx(held)


def test_prompts_are_as_long_as_a_server_counts_them() -> None:
    """7,140 tokens of the client's tokenizer are 35,921 of SGLang's where transformers 5 rebuilds DeepSeek's; what was measured stays."""
    old, new = (point_of(_row(**DEEPSEEK | {"backend_version": one})) for one in ("0.5.9", "0.5.10.post1"))
    assert old.run.prompt == 1024
    assert new.run.prompt == pytest.approx(1024 * 35921 / 7140, rel=1e-3)
    assert old.measured == new.measured


def test_longer_prompts_are_not_of_pools() -> None:
    with pytest.raises(ValueError, match="name no role"):
        SettingWords(when={"role": ["prompts"]}, longer=2.0)


def test_experts_that_a_plan_does_not_divide_are_refused(tmp_path: Path) -> None:
    cells = POOLS | {"model_path": "openai/gpt-oss-120b", "system": "gb200", "precision": "fp4", "gemm_quant_mode": "nvfp4"}
    uneven = cells | {"decode_tp_size": "3", "decode_attention_dp_size": "1", "decode_moe_ep_size": "3", "n_gpus": "13"}
    report = validate([_file(tmp_path, "e2e_serving_silicon", CELLS | uneven)]).to_dict()
    assert "128 experts in 3 equal parts" in report["rows"][0]["refused"]


def test_a_row_with_pools_is_priced(tmp_path: Path) -> None:
    """A longer way for the caches and fewer workers of prompts are in its first token."""
    report = validate([_file(tmp_path, "e2e_serving_silicon", CELLS | POOLS)]).to_dict()
    found = {row["dataset"]: row["predicted"] for row in report["rows"]}
    assert 3e-3 < found["e2e_serving_silicon_pools"] < 0.1
    assert 0.02 < found["e2e_serving_silicon_pools_ttft"] < 2


def test_every_setting_of_the_library_is_a_fact_of_an_engine_and_has_a_source() -> None:
    from rackmodel.model.profile import Engine

    for one in words().settings:
        assert set(one.set) <= {*Engine.model_fields, *CHOSEN, *WIDTHS, *DRAFTS, DEALT}
        assert bool(one.set or one.longer != 1.0) != bool(one.refused)
        assert one.source


def test_lengths_are_the_means_of_what_a_benchmark_sent() -> None:
    sent = point_of(_row()).run.benchmark
    assert sent.mean == pytest.approx(0.9)
    assert sent.spread == pytest.approx(0.2 / 0.9 / 12**0.5)
    assert point_of(_row(origin="aic-auto-gap-analysis/h100_sxm")).run.benchmark.spread == 0


def test_a_row_gives_several_quantities_and_curves_have_ranks(tmp_path: Path) -> None:
    file = tmp_path / "e2e_serving_silicon.csv"
    rows = [CELLS | {"id": str(clients), "concurrency": str(clients), "tpot_ms": str(6 + clients / 8)} for clients in (4, 16, 64)]
    file.write_text("\n".join([",".join(CELLS), *(",".join(row.values()) for row in rows)]) + "\n")
    assert {row.kind for row in read_rows(file)} == {"served"}
    report = validate([file]).to_dict()
    assert set(report["datasets"]) == {"e2e_serving_silicon", "e2e_serving_silicon_ttft", "e2e_serving_silicon_tokens_per_s"}
    assert report["datasets"]["e2e_serving_silicon"]["curve_rank_correlation"] == pytest.approx(1)
    one = next(row for row in report["rows"] if row["id"] == "16" and row["dataset"] == "e2e_serving_silicon")
    assert one["measured"] == pytest.approx(8e-3)
    assert sum(one["bins"].values()) == pytest.approx(one["predicted"])
    assert any("random-range-ratio" in text for text in one["assumptions"])


def _file(tmp_path: Path, name: str, cells: dict[str, str]) -> Path:
    file = tmp_path / f"{name}.csv"
    file.write_text("\n".join([",".join(cells), ",".join(cells.values())]) + "\n")
    return file


@pytest.mark.parametrize(
    ("form", "cells", "wanted"),
    [
        (_largest_load, {"tp": "8", "ep_dp": "attention DP8 + EP8"}, Deployment(attention_data=8, expert=8)),
        (_largest_load, {"tp": "4", "ep_dp": "attention DP2 + EP4"}, Deployment(tensor=2, attention_data=2, expert=4)),
        (_largest_load, {"tp": "2", "pp": "2", "ep_dp": ""}, Deployment(tensor=2, pipeline=2, expert_tensor=2)),
        (_planned, {"parallel": "dep8"}, Deployment(attention_data=8, expert=8)),
        (_planned, {"parallel": "tep8"}, Deployment(tensor=8, expert=8)),
        (_planned, {"parallel": "tp8"}, Deployment(tensor=8, expert_tensor=8)),
    ],
)
def test_ranks_of_attention_share_the_accelerators_that_a_plan_names(
    form: Callable[[PublishedRow], dict[str, str]], cells: dict[str, str], wanted: Deployment
) -> None:
    said = {"model": "DeepSeek-R1-0528", "gpu": "H200", "engine": "vllm", "unit": "out_tok_s_per_gpu", "value": "1000", **cells}
    row = _row(**said)
    spelled = form(row)
    assert _deployment(replace(row, cells=row.cells | spelled), int(spelled["n_gpus"])) == wanted


def test_ranks_that_do_not_divide_the_accelerators_are_refused() -> None:
    with pytest.raises(Refused, match=r"'attention DP8 .* does not divide 4"):
        _largest_load(_row(model="m", gpu="H200", tp="4", unit="out_tok_s_per_gpu", value="1", ep_dp="attention DP8 + EP8"))


OVERVIEW = {"model": "Llama-3.1-8B", "gpu": "H100", "tp": "1", "pp": "1", "ep_dp": "", "precision": "fp16", "isl": "1000", "osl": "1000"}
OVERVIEW |= {"unit": "out_tok_s_total", "value": "6000"}


@pytest.mark.parametrize(
    ("page", "backend"),
    [
        ("NVIDIA/TensorRT-LLM@258c7540c035 docs/source/performance/perf-overview (v0.17, Apache-2.0)", "trtllm_engine"),
        ("NVIDIA/TensorRT-LLM docs/source/performance/perf-overview (v0.19.0)", "trtllm"),
        ("NVIDIA/TensorRT-LLM@00f37686aa85 docs/source/performance/perf-overview (Apache-2.0)", "trtllm"),
        ("", "trtllm"),
    ],
)
def test_a_page_of_a_release_that_built_engines_says_so(page: str, backend: str) -> None:
    row = _row(model="m", gpu="H200", tp="4", unit="out_tok_s_per_gpu", value="1", ep_dp="", source=page.replace(" (", ".md ("))
    assert _largest_load(row)["backend"] == backend


def test_a_largest_load_is_a_run_of_requests_that_are_all_there(tmp_path: Path) -> None:
    report = validate([_file(tmp_path, "trtllm_perf_overview", OVERVIEW)]).to_dict()
    (row,) = report["rows"]
    assert row["dataset"] == "trtllm_perf_overview_tokens_per_s"
    assert row["measured"] == 6000
    assert row["predicted"] > 1000
    (unknown,) = validate([_file(tmp_path, "trtllm_perf_overview_2", OVERVIEW | {"isl": "1001"})]).to_dict()["rows"]
    assert "no number of requests of 1001 and 1000 tokens" in unknown["refused"]


def test_a_long_run_is_as_fast_as_a_steady_state_and_one_of_one_request_as_one_client() -> None:
    """The law of a closed loop (serving/steady), which knows nothing of the simulation, with as many clients as the server holds."""
    row = _row(**OVERVIEW)
    point = point_of(replace(row, cells=row.cells | _largest_load(row)))
    engine = engine_of(point.server)
    requests, schedule = Requests.of(prompt=1000, output=1000), schedule_of(engine.facts, 1)
    room = engine.room(requests, schedule)
    for clients, count in ((room, int(40 * room[0])), (np.ones(1), 1)):
        steady = float(closed_loop(engine, requests, schedule, clients, room).tokens_per_s[0])
        benchmark = point.run.benchmark.model_copy(update={"requests": {"1000/1000": count}})
        found = simulated(replace(point, run=replace(point.run, benchmark=benchmark)))
        assert float(found.figures["tokens_per_s"][0]) == pytest.approx(steady, rel=0.06)


def test_a_plan_in_a_word_is_read(tmp_path: Path) -> None:
    cells = {"model": "MiniMaxAI/MiniMax-M2.5", "engine": "vLLM", "parallel": "tp8", "isl": "2048", "osl": "128", "concurrency": "8"}
    file = _file(tmp_path, "inferencex_token_position", cells | {"ttft_median_ms": "500", "tpot_median_ms": "20"})
    datasets = validate([file]).to_dict()["datasets"]
    assert datasets["inferencex_token_position"]["n"] == 1
    assert datasets["inferencex_token_position_ttft"]["n"] == 1


def test_a_server_that_its_script_has_draft_drafts() -> None:
    """One token a step of GLM-5, of prompts that are all as long as the row says."""
    row = _row(model="zai-org/GLM-5-FP8", engine="vLLM", parallel="tp8", precision="", tpot_median_ms="45")
    point = point_of(replace(row, cells=row.cells | _planned(row)))
    assert (point.server.drafted, point.run.benchmark.variation) == (1, 0.0)


def test_a_batch_is_its_two_steps_and_a_modelled_row_is_refused(tmp_path: Path) -> None:
    cells = {"model": "llama2-70b", "gpu": "a100-80gb", "tp": "4", "prompt_tokens": "512", "batch": "4", "output_tokens": "128"}
    cells |= {"prompt_time_ms": "300", "time_per_token_ms": "40"}
    datasets = validate([_file(tmp_path, "splitwise", cells)]).to_dict()["datasets"]
    assert set(datasets) == {"splitwise", "splitwise_prompt"}
    known = cells | {"source": "Mutinifni/splitwise-sim@8f99e7dc9b40"}  # before graphs, which came in December 2023
    launched, graphs = (validate([_file(tmp_path, "splitwise", one)]).rows[1].predicted or 0.0 for one in (known, cells))
    assert launched > 1.2 * graphs
    capped = validate([_file(tmp_path, "splitwise", cells | {"gpu": "h100-80gb-pcap"})]).to_dict()
    assert "not a measurement" in capped["rows"][0]["refused"]


def test_requests_of_a_run_are_simulated_together(tmp_path: Path) -> None:
    heads = "gpu,model,engine,tp,max_num_seqs,max_num_batched_tokens,arrival_s,input_tokens,output_tokens,ttft_ms,tpot_ms"
    rows = [f"H100,Llama-3.1-8B,vLLM 0.19.0,1,256,8192,{0.2 * i},1000,50,60,8" for i in range(20)]
    file = tmp_path / "vllm_requests.csv"
    file.write_text("\n".join([heads, *rows]) + "\n")
    datasets = validate([file]).to_dict()["datasets"]
    assert datasets["vllm_requests"]["n"] == datasets["vllm_requests_ttft"]["n"] == 20
    assert datasets["vllm_requests_run"]["n"] == 1


def test_ranks_of_a_server_of_single_requests_are_looked_up() -> None:
    """The rows say one GPU; the run's file says two ranks of attention data, experts dealt to both, 128 sequences each."""
    mixture = _Run("requests", "RTXPRO6000", "Qwen3-30B-A3B-Instruct-2507", "vLLM", 1, 128, 2048)
    assert mixture.ranks.deployment(1) == Deployment(tensor=1, attention_data=2, expert=2)
    dense = _Run("requests", "RTXPRO6000", "Qwen3-32B", "vLLM", 2, 128, 2048)
    assert dense.ranks.deployment(2) == Deployment(tensor=2, expert_tensor=2)


def test_settings_choose_kernels_and_widths_of_a_server() -> None:
    served = point_of(_row(backend="vllm", model_path="openai/gpt-oss-120b", system="b200_sxm", precision="fp4")).server
    assert dict(served.widths)["product"] == "fp8"
    hopper = {"backend": "vllm", "model_path": "openai/gpt-oss-120b", "system": "h100_sxm", "precision": "fp4"}
    newer = dict(point_of(_row(**hopper, backend_version="0.18.0")).server.chosen)
    assert newer == {"experts": "marlin", "release": newer["release"]}
    unsaid = point_of(_row(**hopper, backend_version="")).server  # of 2025, when no all-reduce went on with the norm unasked
    assert dict(unsaid.chosen) == {"experts": "marlin", "reductions": "none"}


def test_caches_are_those_of_the_script_and_the_checkpoint() -> None:
    """The generator keeps caches of fp8 checkpoints in fp8; fp4 checkpoints of NVIDIA say so to vLLM; no server that is not told does."""
    gap = {"origin": "aic-auto-gap-analysis/h100_sxm", "model_path": "Qwen/Qwen3-32B", "system": "h100_sxm", "backend": "sglang"}
    caches = [
        dict(point_of(_row(**gap | {"precision": one, "gemm_quant_mode": mode})).server.widths).get("kv_cache")
        for one, mode in (("fp8", "fp8"), ("bf16", "bf16"))
    ]
    assert caches == ["fp8", None]
    shares = [
        dict(point_of(_row(**gap | {"backend": engine, "backend_version": "1.2.0rc2"})).server.facts).get("memory_share")
        for engine in ("trtllm", "vllm")
    ]
    assert shares == [0.8, None]
    kimi = {"model_path": "moonshotai/Kimi-K2.5", "system": "b200_sxm", "backend_version": "0.17.0"}
    checkpoints = [dict(point_of(_row(**kimi | {"precision": one})).server.widths).get("kv_cache") for one in ("fp4", "int4")]
    assert checkpoints == ["fp8", None]


def test_steps_of_the_gap_analysis_hold_what_its_generator_asks_for() -> None:
    """The batch + ISL + 1500 of TensorRT-LLM and of vLLM: 16 + 4,096 + 1,500; ISL + 1500 of SGLang, up to a chunk."""
    gap = {"origin": "aic-auto-gap-analysis/h100_sxm", "model_path": "Qwen/Qwen3-32B", "system": "h100_sxm", "isl": "4096"}
    versions = {"vllm": "0.12.0", "trtllm": "1.0.0rc3", "sglang": "0.5.1.post1"}
    budgets = {one: point_of(_row(**gap | {"backend": one, "backend_version": of})).timed["token_budget"] for one, of in versions.items()}
    assert budgets == {"vllm": 5612, "trtllm": 5612, "sglang": 5596}


def test_a_format_narrows_tensors_by_their_names() -> None:
    """NVIDIA's second checkpoint of DeepSeek R1 narrows attention's output projection beside feed-forward layers, its first does not."""
    bits = {}
    for name in ("deepseek-ai/DeepSeek-R1", "nvidia/DeepSeek-R1-NVFP4"):
        tensors = _workload(point_of(_row(backend="sglang", model_path=name, system="b200_sxm", precision="fp4")).server).tensors
        bits[name] = [tensors[tensor].bits for tensor in ("WO", "WO_2", "WPG_2", "WD", "WXG_2", "WQA_2")]
    assert list(bits.values()) == [[4, 4, 4, 4, 4, 16], [16, 16, 4, 4, 4, 16]]


def test_a_row_of_pools_is_refused() -> None:
    with pytest.raises(Refused, match="pools of prompts and of decodes"):
        point_of(_row(backend="trtllm", model_path="deepseek-ai/DeepSeek-R1", system="gb200", precision="fp4", tp_size="28", n_gpus="28"))


def test_ranks_of_attention_wait_for_each_other() -> None:
    cells = {"backend": "trtllm", "model_path": "deepseek-ai/DeepSeek-R1", "isl": "8192", "tp_size": "1", "attention_dp_size": "8"}
    assert point_of(_row(**cells)).timed["held"] == 60
    assert "held" not in point_of(_row(**{**cells, "tp_size": "8", "attention_dp_size": "1"})).timed


def test_rows_that_say_their_drafts_are_priced_with_them(tmp_path: Path) -> None:
    """Tokens a step and how probably one is kept; one without the other is refused."""
    found = []
    for number, cells in enumerate(({}, {"draft_tokens": "2", "acceptance_rate": "0.9"})):
        report = validate([_file(tmp_path, f"e2e_serving_silicon_{number}", CELLS | cells)]).to_dict()
        found.append(report["rows"][0]["predicted"])
    assert 0.3 < found[1] / found[0] < 0.7
    with pytest.raises(Refused, match="draft_tokens and acceptance_rate"):
        point_of(_row(draft_tokens="2"))


def test_a_run_s_collectives_are_of_the_newest_release_that_is_no_newer() -> None:
    known = ["0.14.0", "0.19.0", "0.24.0"]
    for asked, found in (("0.18.2", "0.14.0"), ("0.19.0", "0.19.0"), ("0.30.1", "0.24.0"), ("0.9.1", "0.14.0"), ("0.19.0rc1", "0.14.0")):
        assert release_before(known, asked) == found
    assert release_before(["1.2.0rc5", "1.3.0rc20", "1.3.0rc10"], "1.3.0") == "1.3.0rc20"
    assert release_before(known, "nightly-5b8c30d") is None
    assert release_before([], "0.19.0") is None


def test_a_server_is_the_same_in_whatever_words_a_row_says_its_format() -> None:
    for own, others in (("fp8", ("FP8", "fp8_block")), ("fp4", ("NVFP4", "nvfp4", "FP4"))):
        bare = {**DEEPSEEK, "gemm_quant_mode": "", "moe_quant_mode": ""}
        server = point_of(_row(**bare | {"precision": own})).server
        assert all(point_of(_row(**bare | {"precision": word, "backend": "SGLang"})).server == server for word in others)


def test_ranks_that_do_not_share_out_the_heads_are_refused_and_a_request_beyond_all_caches_is_flagged() -> None:
    plain = {"tp_size": "3", "n_gpus": "3"}
    with pytest.raises(Refused, match="3 ranks of tensor parallelism do not share out 64 heads, 8 of keys and values, alike"):
        point_of(_row(**plain))
    fits, beyond = (serving_rows([_row(isl=length)])[0] for length in ("1024", "100000000"))
    assert fits.predicted is not None
    assert beyond.predicted is not None
    assert (fits.over_capacity, beyond.over_capacity) == (False, True)


def _deployed_row(**cells: str) -> PublishedRow:
    own = {
        "framework": "TensorRT-LLM",
        "model": "Llama-3.3-70B",
        "gpu": "H100-SXM",
        "n_gpus": "2",
        "tp": "2",
        "pp": "1",
        "precision": "fp8",
    }
    return PublishedRow("row", "mine", "served as deployed", {**own, "input_len": "1024", "output_len": "128", **cells}, "rows.csv", 2)


def test_rows_that_say_their_deployment_are_those_of_the_other_forms() -> None:
    loaded = deployed_rows([_deployed_row(max_batch="16", itl_median_ms="20", ttft_ms="90", out_tok_s="800")])
    cells = {
        "backend": "trtllm",
        "model_path": "Llama-3.3-70B",
        "system": "H100",
        "isl": "1024",
        "osl": "128",
        "tp_size": "2",
        "n_gpus": "2",
    }
    plain = {"gemm_quant_mode": "", "moe_quant_mode": "", "origin": "", "tpot_ms": "20", "ttft_ms": "90"}
    served = serving_rows([_row(**{**cells, **plain, "concurrency": "16"})])
    assert [one.predicted for one in loaded] == [one.predicted for one in served]
    assert [one.measured for one in loaded] == pytest.approx([0.02, 0.09, 400.0])
    at_most = {"model": "Llama-3.3-70B", "gpu": "H100", "tp": "2", "unit": "out_tok_s_per_gpu", "value": "400", "isl": "5000", "osl": "500"}
    (most,) = largest_load_rows([PublishedRow("row", "mine", "served at most", {**at_most, "precision": "fp8"}, "rows.csv", 2)])
    page = {"input_len": "5000", "output_len": "500", "out_tok_s": "800", "source": "perf-overview"}
    assert deployed_rows([_deployed_row(**page)])[0].predicted == most.predicted
    for wrong, why in (({"input_len": ""}, "no lengths of prompts"), ({"dp": "2"}, "dp: ranks of"), ({"tp": "4"}, "the degrees are not")):
        assert str(deployed_rows([_deployed_row(**wrong)])[0].refused).startswith(why)


def test_a_server_of_a_machine_that_states_no_kernels_is_said_to_be_at_peak() -> None:
    chip, gpu = (point_of(_row(system=name, tp_size="4", n_gpus="4")).run.notes for name in ("TPU v6e", "h200_sxm"))
    said = "tpu_v6e states no measured kernels: peak rates"
    assert (said in chip, any("peak rates" in note for note in gpu)) == (True, False)
