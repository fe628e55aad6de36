"""Rows as people write them: a cell that is wrong refuses its row alone, and no word is read as another model, machine or kernel."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from rackmodel.calibration.part import calibrate
from rackmodel.cli import leaving
from rackmodel.errors import InputError
from rackmodel.inputs import read_architecture, read_profile
from rackmodel.inputs.library import library_root
from rackmodel.model.architecture import Architecture
from rackmodel.model.profile import ProfileSpec
from rackmodel.validation.attention import attention_rows
from rackmodel.validation.collectives import measured_call
from rackmodel.validation.model_names import checkpoint, nearest_name
from rackmodel.validation.rows import NoNumber, PublishedRow, number_of
from rackmodel.validation.run import validate
from rackmodel.validation.score import ScoredRow
from rackmodel.validation.single import OneCall, time_of
from rackmodel.validation.table import report_lines
from rackmodel.validation.training import TrainingCase, training_case
from rackmodel.validation.words import Refused, words
from tests.commands import invoke

RUN = {
    "id": "one", "model": "llama3_8b", "gpu": "H100", "n_gpus": "16", "tp": "1", "pp": "2", "dp": "8", "seq_len": "8192", "gbs": "64",
    "mbs": "1", "iteration_time_s": "6",
}  # fmt: skip
PRODUCT = {"id": "one", "op": "gemm", "gpu": "A100", "precision": "fp16", "m": "128", "n": "12288", "k": "12288", "time_ms": "0.2"}
COLLECTIVE = {"id": "one", "op": "all_reduce", "gpu": "H100", "nodes": "1", "n_gpus": "8", "size_bytes": "1048576", "time_us": "40"}
LAYER = {
    "id": "one", "dataset": "vidur_layer_ops", "op": "mlp_up_proj", "gpu": "A100", "num_tokens": "64", "tp": "1", "n_head": "32",
    "n_kv_head": "32", "hidden": "4096", "ffn_hidden": "11008", "vocab": "32000", "gated_mlp": "True", "model": "x", "median_us": "90",
}  # fmt: skip
CALL = {
    "id": "one", "dataset": "mine", "system": "h100_sxm", "kernel_source": "fa3", "batch_size": "8", "q_len": "1", "past_kv_len": "4095",
    "num_heads": "32", "num_key_value_heads": "8", "head_dim": "128", "latency_us": "50",
}  # fmt: skip


def validated(tmp_path: Path, first: dict[str, str], *others: dict[str, str]) -> dict[str, ScoredRow]:
    """Rows of one file: each as the first one, with other cells."""
    rows = [first, *(first | {"id": str(number)} | other for number, other in enumerate(others))]
    file = tmp_path / "mine.csv"
    lines = [",".join(first), *(",".join(row.values()) for row in rows)]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {one.id: one for one in validate([file], intervals=False).rows}


def trained(**cells: str) -> TrainingCase:
    return training_case(PublishedRow("one", "mine", "training", {**RUN, **cells}, "rows.csv", 2), words())


# -- cells that are no numbers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["TP8", "6.0 s", "nan", "inf", "-6", "1e300", "1_6"])
def test_a_cell_that_is_no_number_refuses_its_row_alone(text: str, tmp_path: Path) -> None:
    found = validated(tmp_path, RUN, {"iteration_time_s": text}, {"gbs": "32"})
    assert found["0"].refused.startswith(f"iteration_time_s: '{text}' is no number")
    assert not found["one"].refused
    assert not found["1"].refused


def test_a_tensor_degree_in_words_refuses_one_served_row_of_a_file(tmp_path: Path) -> None:
    served = {
        "id": "one", "backend": "vllm", "system": "h100_sxm", "model_path": "meta-llama/Llama-3.1-8B-Instruct", "precision": "bf16",
        "isl": "1024", "osl": "128", "concurrency": "8", "n_gpus": "1", "tp_size": "1", "tpot_ms": "9",
    }  # fmt: skip
    found = validated(tmp_path, served, {"tp_size": "TP8"})
    assert found["0"].refused == "tp_size: 'TP8' is no number"
    assert not found["one"].refused


def test_a_row_of_a_form_with_columns_of_its_own_is_refused_alone(tmp_path: Path) -> None:
    """Served by plan: `tpot_median_ms` is read as another form's column."""
    served = {
        "id": "one", "dataset": "inferencex_token_position", "model": "zai-org/GLM-5-FP8", "engine": "vLLM", "parallel": "tp8",
        "isl": "10240", "osl": "128", "concurrency": "16", "ttft_median_ms": "3138", "tpot_median_ms": "141",
    }  # fmt: skip
    found = validated(tmp_path, served, {"tpot_median_ms": "9 ms"})
    assert found["0"].refused == "tpot_ms: '9 ms' is no number"
    assert not found["one"].refused


def test_words_that_mean_something_in_a_column_stay_with_their_rows(tmp_path: Path) -> None:
    """true is a gate: a row beside it with another word there takes none with it."""
    found = validated(tmp_path, LAYER, {"gated_mlp": "perhaps"}, {"gated_mlp": "7 gates"}, {"num_tokens": "64 tokens"})
    assert not found["one"].refused
    assert [found[str(number)].refused.partition(":")[0] for number in range(3)] == ["gated_mlp", "gated_mlp", "num_tokens"]


def test_a_number_is_what_a_table_calls_one() -> None:
    assert [number_of(text) for text in ("16", "1e3", " 2 ", "-1")] == [16.0, 1e3, 2.0, -1.0]
    assert not any(number_of(text) for text in ("1_6", "nan", "inf", "1,000", "eight", ""))
    row = PublishedRow("one", "mine", "product", {"m": "1e19", "k": "3 m"}, "rows.csv", 7)
    with pytest.raises(NoNumber, match=r"^rows.csv:7:1: m: '1e19' is no number between 1e-18 and 1e\+18$"):
        row.number("m")
    with pytest.raises(NoNumber, match=r"^rows.csv:7:1: k: '3 m' is no number$"):
        row.number("k")


def test_an_error_of_many_digits_is_written_short(tmp_path: Path) -> None:
    validated(tmp_path, RUN, {"iteration_time_s": "1e-15"})
    lines = list(report_lines(validate([tmp_path / "mine.csv"], intervals=False)))
    assert max(map(len, lines[:2])) < 120


# -- models ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "workload"),
    [
        ("Llama v4 Scout", "llama4_scout_training"),
        ("Llama v3 70B", "llama3_70b"),
        ("Llama v3.1 8B", "llama3_8b"),
        ("DeepSeek 3", "moe_mla"),
    ],
)
def test_a_version_of_a_name_may_have_its_v(word: str, workload: str) -> None:
    assert trained(model=word, n_gpus="16", seq_len="4096").key.model.workload == workload
    assert words().served_model("DeepSeekV3").workload == words().served_model("DeepSeek 3").workload == "deepseek_v3_decoder"
    assert checkpoint("RedHatAI/Llama-v3.1-70B-Instruct-FP8-dynamic") == "llama-3.1-70b"


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("Llama-3.3 Nemotron", "nvidia/llama-3.1-nemotron-70b-instruct-hf"),
        ("Nemotron Super 50B", "nemotron-super-49b"),
        ("Qwen3 Coder 480B", "qwen/qwen3-coder-480b-a35b-instruct"),
        ("Mamba-2.8b", "state-spaces/mamba2-2.7b"),
        ("Nemotron 340B", "nvidia/nemotron-4-340b-base"),
        ("StarCoder2 16B", "bigcode/starcoder2-15b"),
    ],
)
def test_the_nearest_name_is_one_of_the_same_family(word: str, near: str) -> None:
    with pytest.raises(Refused, match="nearest: ") as problem:
        trained(model=word)
    assert f"(nearest: {near})" in str(problem.value)


def test_of_no_family_the_closest_in_letters_is_nearest() -> None:
    assert nearest_name("8xH100", ["A100", "H100", "B200"]) == "H100"
    assert nearest_name("Whisper", ["llama3_8b", "gpt-3"]) is None


def test_heads_that_share_keys_are_no_gpt_of_a_name() -> None:
    """GPT-3 175B has keys and values for each of its 96 heads."""
    run = {"model": "gpt3-175B", "n_gpus": "16", "seq_len": "2048"}
    assert trained(**run, kv_heads="96").key.model.workload == "gpt3_175b"
    with pytest.raises(Refused, match="kv_heads: 8, where gpt3-175B has 96"):
        trained(**run, kv_heads="8")


def test_a_vocabulary_that_a_row_says_counts_before_its_models() -> None:
    assert dict(trained(model="LLAMA2_70B").key.model.sizes)["v"] == 32000
    assert dict(trained(model="LLAMA2_70B", vocab="32128").key.model.sizes)["v"] == 32128


@pytest.mark.parametrize(
    ("column", "word", "like"),
    [
        ("sharding", "off", "none"),
        ("sharding", "PyTorch FSDP", "FSDP"),
        ("sharding", "DeepSpeed ZeRO Stage 3", "ZeRO-3"),
        ("precision", "float32", "fp32"),
        ("gpu", "A100 40G", "A100-40GB"),
        ("gpu", "H100-80GB", "H100"),
    ],
)
def test_other_words_for_the_same(column: str, word: str, like: str) -> None:
    assert trained(**{column: word}).key == trained(**{column: like}).key


def test_dualpipe_on_too_few_stages_is_told_by_its_own_name() -> None:
    with pytest.raises(Refused, match="schedule dualpipe on 2 stages: want 4 or more, in pairs"):
        trained(schedule="dualpipe")


# -- machines and kernels -------------------------------------------------------------------------------------------------------


def test_operands_that_a_machine_has_no_units_for_refuse_their_row_alone(tmp_path: Path) -> None:
    """A TPU v4 multiplies bf16 and int8: a step at fp32 there stopped the file; an A100 no fp8: its products were priced as int8."""
    run = {**RUN, "precision": "bf16"}
    found = validated(tmp_path, run, {"gpu": "TPU v4", "precision": "fp32"})
    assert found["0"].refused == "tpu_v4 multiplies no tf32 (it has bf16, int8)"
    assert not found["one"].refused
    found = validated(tmp_path, PRODUCT, {"precision": "fp8"}, {"precision": "int8"}, {"gpu": "H100", "precision": "fp8"})
    assert found["0"].refused.startswith("dgx_a100 multiplies no fp8 (it has ")
    assert not any(found[name].refused for name in ("one", "1", "2"))


def called(**cells: str) -> ScoredRow:
    return attention_rows([PublishedRow("one", "mine", "attention", {**CALL, **cells}, "rows.csv", 2)])[0]


def test_what_a_call_of_attention_multiplies_counts() -> None:
    """Without a cache's word its keys are as its operands: half the bytes of a decode at fp8."""
    plain, narrow = called(), called(attn_dtype="fp8")
    assert called(attn_dtype="bf16").predicted == plain.predicted
    assert narrow.predicted == called(attn_dtype="fp8", kv_cache_dtype="auto").predicted < plain.predicted
    assert called(attn_dtype="bf16", kv_cache_dtype="fp8").refused == ""
    assert "attention of fp8 over a cache of bf16" in called(attn_dtype="fp8", kv_cache_dtype="bf16").refused
    assert "no precision called 'fp64'" in called(attn_dtype="fp64", kv_cache_dtype="bf16").refused
    assert called(mask="causal").predicted == plain.predicted
    assert called(mask="bidirectonal").refused.startswith("no mask 'bidirectonal' of attention; known: causal, true, none, full, ")


def test_a_mask_is_read_in_the_words_that_tables_have() -> None:
    """2,048 queries of which each sees the keys up to its own, all, or a window of 512."""
    prompt = {"q_len": "2048", "past_kv_len": "0", "batch_size": "1"}
    plain, whole = called(**prompt), called(**prompt, mask="none")
    assert plain.predicted < whole.predicted
    assert {called(**prompt, mask=word).predicted for word in ("causal", "True", "causal_mask", "Causal mask")} == {plain.predicted}
    assert {called(**prompt, mask=word).predicted for word in ("full", "no mask", "bidirectional", "false")} == {whole.predicted}
    window = {**prompt, "sliding_window": "512"}
    assert called(**window, mask="sliding-window").predicted == called(**window).predicted < plain.predicted
    assert called(**prompt, mask="sliding").refused == "a mask 'sliding', but no keys of it (column sliding_window)"


@pytest.mark.parametrize(
    ("first", "cells"),
    [
        (CALL, {"q_len": "1.5"}),
        (CALL, {"batch_size": "0"}),
        (CALL, {"past_kv_len": "4095.5"}),
        (CALL, {"num_key_value_heads": "0"}),
        (LAYER, {"num_tokens": "64.5"}),
        (COLLECTIVE, {"nodes": "0"}),
        ({**PRODUCT, "batch": "1"}, {"batch": "0"}),
    ],
)
def test_what_is_counted_is_a_whole_number(first: dict[str, str], cells: dict[str, str], tmp_path: Path) -> None:
    """0 heads or a batch of 0 read as if nothing was said, and 1.5 tokens were priced as one and a half."""
    first = {"version": "0.14.0", "framework": "VLLM", **first} if first is CALL else first
    found = validated(tmp_path, first, cells)
    ((column, text),) = cells.items()
    assert found["0"].refused == f"{column}: '{text}' is no whole number from {0 if column == 'past_kv_len' else 1}"
    assert not found["one"].refused


@pytest.mark.parametrize("column", ["tp_size", "pp_size", "attention_dp_size", "n_gpus"])
def test_a_degree_of_a_server_is_a_whole_number(column: str, tmp_path: Path) -> None:
    """A tensor degree of 0 was read as 1, and 1.5 as 1. Of experts' 0 says that the model has none."""
    served = {
        "id": "one", "backend": "vllm", "system": "h100_sxm", "model_path": "meta-llama/Llama-3.1-8B-Instruct", "precision": "bf16",
        "isl": "1024", "osl": "128", "concurrency": "8", "n_gpus": "1", "tp_size": "1", "pp_size": "", "attention_dp_size": "",
        "moe_tp_size": "0.0", "moe_ep_size": "0.0", "tpot_ms": "9",
    }  # fmt: skip
    found = validated(tmp_path, served, {column: "0"}, {column: "1.5"})
    assert [found[name].refused for name in "01"] == [f"{column}: '{text}' is no whole number from 1" for text in ("0", "1.5")]
    assert not found["one"].refused


def test_an_algorithm_that_a_collective_ran_counts(tmp_path: Path) -> None:
    said = {**COLLECTIVE, "algo": ""}
    found = validated(tmp_path, said, {"algo": "Tree"}, {"algo": "Ring"}, {"algo": "auto (tree/NVLSTree)"}, {"algo": "hypercube"})
    assert found["one"].predicted == found["2"].predicted <= min(found["0"].predicted, found["1"].predicted)
    assert found["0"].predicted != found["1"].predicted
    assert "no algorithm called 'hypercube' (known: ring, nvls, " in found["3"].refused


def test_an_algorithm_counts_where_its_library_was_measured_too(tmp_path: Path) -> None:
    """NCCL's calls were measured as its tuner chooses: rows that name a tree were priced so, too. A protocol names no algorithm."""
    said = {**COLLECTIVE, "algo": "", "library": "nccl"}
    found = validated(tmp_path, said, {"algo": "Tree"}, {"algo": "Tree", "library": ""}, {"algo": "LL128"}, {"algo": "n/a"})
    assert found["0"].predicted == found["1"].predicted != found["one"].predicted
    assert found["2"].predicted == found["3"].predicted == found["one"].predicted


@pytest.mark.parametrize("cells", [{"nodes": "0"}, {"nodes": "1.5"}, {"nodes": "", "devices_per_node": "6"}])
def test_nodes_that_are_none_are_refused(cells: dict[str, str]) -> None:
    """Eight of which six lie on a node were priced as one node of eight."""
    with pytest.raises((Refused, NoNumber), match=r"nodes that do not divide them|nodes: '.*' is no whole number from 1"):
        measured_call(PublishedRow("one", "mine", "collective", {**COLLECTIVE, **cells}, "rows.csv", 2))


# -- keys and commands -------------------------------------------------------------------------------------------------------------------


def test_a_message_has_a_unit() -> None:
    machine = read_architecture("dgx_h100")
    assert time_of(machine, "all_reduce", OneCall("1 MiB")).seconds == time_of(machine, "all_reduce", OneCall("1.048576 MB")).seconds
    with pytest.raises(InputError, match=r"^SHAPE: '64' has no unit: want bytes"):
        time_of(machine, "all_reduce", OneCall("64"))


def products(tmp_path: Path, times: dict[int, float]) -> Path:
    """Forty products at 0.8 of an H100's 989.4 TFLOP/s, some of which take so many times as long."""
    lines = [f"bf16,{64 * m},8192,8192,{times.get(m, 1.0) * 2 * 64 * m * 8192**2 / (0.8 * 989.4e12) * 1e6}" for m in range(128, 168)]
    file = tmp_path / "rows.csv"
    file.write_text("gemm_dtype,m,n,k,latency_us\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return file


def test_one_row_in_another_unit_is_found_among_forty(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"rows.csv:12:1: 8832x8192x8192 takes 1[0-9]{6} times as long as its operations"):
        calibrate("h100_sxm", [products(tmp_path, {138: 1e6})])
    with pytest.raises(InputError, match=r"rows.csv:12:1: 8832x8192x8192 would run at 800 times the part's peak of bf16"):
        calibrate("h100_sxm", [products(tmp_path, {138: 1e-3})])


def test_two_columns_of_times_are_refused(tmp_path: Path) -> None:
    file = products(tmp_path, {})
    text = file.read_text(encoding="utf-8").replace("latency_us\n", "latency_us,time_ms\n", 1)
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"rows.csv:1:1: columns 'latency_us' and 'time_ms' both say a time: keep one"):
        calibrate("h100_sxm", [file])


def test_the_innermost_network_has_no_links_below(tmp_path: Path) -> None:
    network: dict[str, Any] = {"topology": "switch", "bandwidth": "900 GB/s", "latency": "1 us", "energy": "1 pJ/bit"}
    gpu = {"name": "gpu", "count": 8, "accelerator": True, "compute": {"rate": "1 TFLOP/s"}}
    for said in (True, False):
        with pytest.raises(ValueError, match="same_links: 'node' joins the accelerators: there is no network below"):
            Architecture.model_validate(
                {"architecture": "mine", "tree": {"name": "node", "network": network | {"same_links": said}, "children": [gpu]}}
            )


@pytest.mark.parametrize(("names", "fact"), [(["W Q"], "'W Q' is no name of a tensor"), (["RL", "RL"], "'RL' is there twice")])
def test_tensors_apart_have_names(names: list[str], fact: str) -> None:
    with pytest.raises(InputError, match=fact):
        ProfileSpec.model_validate({"profile": "mine", "merged": {"projections": True, "apart": names}})


def test_attention_at_peak_rates_is_told_to_be() -> None:
    shape = OneCall("8x32x8x128x1x4096")
    assert time_of(read_architecture("cs3"), "attention", shape).note == "wafer states no measured kernels: at its peak rates"
    assert time_of(read_architecture("h100"), "attention", shape).note == ""


def refusal(*words: str) -> str:
    problem = invoke(words).exception
    assert isinstance(problem, InputError)
    return str(problem)


def test_a_mistyped_key_of_a_window_a_quantity_or_a_part_names_the_nearest(tmp_path: Path) -> None:
    """Keys that are read in other ways than those of a schema: words of a closed list, ends of a range, a file of parts."""
    text = (library_root() / "specs" / "profiles" / "megatron_core.yaml").read_text(encoding="utf-8")
    file = tmp_path / "mine.yaml"
    file.write_text(text.replace("all_gather: ", "al_lgather: ", 1), encoding="utf-8")
    with pytest.raises(InputError, match=r"(?s)mine.yaml:\d+:\d+: overlap.windows.al_lgather: unknown key .*did you mean 'all_gather'"):
        read_profile(str(file))
    with pytest.raises(InputError, match="unknown key 'hihg' in a quantity, did you mean 'high'"):
        read_architecture("rack_paper", ["gpu.memory.bandwidth={low: 1 TB/s, mid: 2 TB/s, hihg: 3 TB/s}"])
    machine = (library_root() / "specs" / "cs2.yaml").read_text(encoding="utf-8")
    file.write_text(machine.replace(" part: ", " patr: ", 1), encoding="utf-8")
    with pytest.raises(InputError, match=r"(?s)unknown key 'patr'.*did you mean 'part'"):
        read_architecture(str(file))


def test_words_for_accelerators_and_machines_lead_to_ours() -> None:
    assert refusal("search", "dgx_h100", "llama3_70b", "megatron", "--set", "gpus=512").endswith("did you mean 'accelerators'?")
    assert refusal("search", "dgx_h100", "llama3_70b", "megatron", "--set", "gbs=512").endswith("did you mean 'b'?")
    assert "one machine is wanted here, rackmodel compare takes several" in refusal("carbon", "dgx_h100,dgx_a100", "llama3_8b", "megatron")
    assert refusal("cost", "dgx_h100", "dgx_a100").startswith("no workload called 'dgx_a100': it is an architecture")


@pytest.mark.parametrize("words", ["compare rack_paper ffn", "search rack_paper ffn --jsn", "nothing"])
def test_words_that_are_no_command_are_a_document_with_json(words: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(sys, "argv", ["rackmodel", *words.split(), "--json"])
    assert leaving.run() == 2
    said = json.loads(capsys.readouterr().out)["error"]
    assert said["exit_code"] == 2
    assert said["message"].split()[0] in ("Missing", "No")
