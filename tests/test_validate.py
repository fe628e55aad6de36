"""Validation: scores worked by hand, rows of every kind, what is refused and why, and that arrays say what the engine says row by row."""

from __future__ import annotations

import gzip
import json
import math
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rackmodel import api
from rackmodel.calibration.fit_products import predict
from rackmodel.calibration.part import machine_of as fit_machine
from rackmodel.calibration.part import part_alone
from rackmodel.calibration.product_rows import ProductRows
from rackmodel.cost.inside.gpu import gpu_of
from rackmodel.cost.program.fusion import scores
from rackmodel.cost.program.local_ops import local_op_of
from rackmodel.cost.program.tasks import LocalOp
from rackmodel.csv_file import text_of
from rackmodel.errors import InputError
from rackmodel.inputs import read_architecture
from rackmodel.inputs.library import called, library_root, names
from rackmodel.inputs.read import machine_calls
from rackmodel.model.calls import LibraryCall
from rackmodel.model.workload import Op
from rackmodel.processes import Crew
from rackmodel.validation import steps
from rackmodel.validation.collectives import collective_rows
from rackmodel.validation.products import PRODUCT, price_local
from rackmodel.validation.rows import PublishedRow, read_rows
from rackmodel.validation.run import shipped_files, validate
from rackmodel.validation.runs import measured_seconds, shares_of, work_of_family
from rackmodel.validation.score import ScoredRow, anchored, rank_correlation, score
from rackmodel.validation.single import OneCall, time_of
from rackmodel.validation.steps import price_cases
from rackmodel.validation.structures import cut_of_layers, macs_of
from rackmodel.validation.table import report_lines
from rackmodel.validation.timed import PricedStep
from rackmodel.validation.training import Measured, ModelKey, TrainingCase, training_case
from rackmodel.validation.training_models import model_of
from rackmodel.validation.words import Refused, look_up, spelt, words
from tests.commands import invoke

RUN = {
    "id": "one", "dataset": "mine", "arch": "gpt", "layers": "4", "hidden": "1024", "heads": "16", "vocab": "51200", "seq_len": "1024",
    "gpu": "A100-SXM-80GB", "n_gpus": "8", "tp": "2", "pp": "2", "dp": "2", "mbs": "1", "gbs": "16", "precision": "fp16",
    "recompute": "full", "iteration_time_s": "1.0",
}  # fmt: skip


def row(**cells: str) -> PublishedRow:
    found = {**RUN, **cells}
    return PublishedRow(found["id"], found["dataset"], "training", found, "rows.csv", 2)


def case(**cells: str) -> TrainingCase:
    return training_case(row(**cells), words())


def table(path: Path, rows: list[dict[str, str]]) -> Path:
    lines = [",".join(rows[0]), *(",".join(one.values()) for one in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def scored(measured: float, predicted: float, **more: Any) -> ScoredRow:
    return ScoredRow(**{"id": "r", "dataset": "d", "measured": measured, "predicted": predicted, **more})


# -- scores worked by hand --------------------------------------------------------------------------------------------------


def test_a_score_by_hand() -> None:
    found = score([scored(10, 11), scored(10, 8), scored(20, 20), scored(40, 44)])  # +10, -20, 0, +10 %
    assert found.n == 4
    assert found.mean == pytest.approx(10)
    assert found.median == pytest.approx(10)
    assert found.p90 == pytest.approx(17)  # of 0, 10, 10, 20 at 0.9 x 3 = 2.7: 10 + 0.7 x 10
    assert found.worst == pytest.approx(20)
    assert found.bias == pytest.approx(0, abs=1e-9)


def test_order_is_spearmans_and_ties_share_their_rank() -> None:
    assert rank_correlation(np.array([1.0, 2, 3]), np.array([10.0, 30, 20])) == pytest.approx(0.5)  # 1 - 6 x 2 / (3 x 8)
    # ranks 1.5, 1.5, 3 against 1, 2, 3: covariance 1.5, spreads 1.5 and 2
    assert rank_correlation(np.array([1.0, 1, 2]), np.array([1.0, 2, 3])) == pytest.approx(1.5 / math.sqrt(1.5 * 2))
    assert rank_correlation(np.array([5.0, 5]), np.array([1.0, 2])) is None


def test_an_anchor_scales_its_cell_alone_and_is_not_scored() -> None:
    rows = [scored(10, 5, id="a", system="x"), scored(20, 8, id="b", system="x"), scored(10, 5, id="c", system="y")]
    found, missing = anchored(rows, ["a", "none"])
    assert [one.predicted for one in found] == [10, 16, 5]
    assert [one.anchor for one in found] == [True, False, False]
    assert missing == ["none"]


def test_an_anchored_row_s_parts_still_add_up_to_its_prediction() -> None:
    rows = [scored(10, 5, id="a", bins={"compute": 4.0, "network": 1.0}), scored(20, 8, id="b", bins={"compute": 6.0, "network": 2.0})]
    found, _ = anchored(rows, ["a"])
    assert [one.bins for one in found] == [{"compute": 8.0, "network": 2.0}, {"compute": 12.0, "network": 4.0}]


def test_of_two_anchors_of_a_cell_none_is_dropped_in_silence() -> None:
    rows = [scored(10, 5, id="a", system="x"), scored(20, 8, id="b", system="x"), scored(10, 5, id="c", system="y")]
    with pytest.raises(InputError, match="two rows of d x: one of a cell scales the others, keep one"):
        anchored(rows, ["a", "b"])
    assert [one.predicted for one in anchored(rows, ["b", "c"])[0]] == [12.5, 20, 10]


# -- the engine's own figures -----------------------------------------------------------------------------------------------


def test_rows_priced_in_arrays_are_what_a_search_of_their_mapping_finds() -> None:
    """A row of Korthikanti's table 5: seconds, bytes, and the ledger's exposed seconds by what they go to."""
    published = next(one for one in read_rows(shipped_files()[0]) if one.id.endswith("gpt3-175B_seqsel"))
    found = price_cases([training_case(published, words())])[0]
    sets = ["accelerators=64", "b=64", "axes.tp.degree=8", "axes.pp.degree=8", "interleave=3", "micro_batch=1", "recompute=selective"]
    sets += ["precision.gradient=16 bit"]  # as its data set says
    result = api.search("dgx_a100", "gpt3_175b", "megatron_sp", sets=sets, profile="megatron_2022").result
    assert found.seconds == pytest.approx(result.latency_s, rel=1e-9)
    assert found.bytes == pytest.approx(result.memory_bytes_per_accelerator, rel=1e-9)
    bins: Counter[str] = Counter()
    for charge in result.ledger:
        name = f"network {charge.action}" if charge.component == "network" else charge.component
        bins[charge.action if charge.action in ("host", "bubble") else name] += float(charge.exposed_seconds)
    assert found.bins == pytest.approx({name: seconds for name, seconds in bins.items() if seconds}, rel=1e-9)


@pytest.mark.parametrize(
    ("schedule", "model"),
    [("gpipe", "gpt"), ("1F1B", "gpt"), ("zb-h1", "gpt"), ("zb_h2", "gpt"), ("zb_v", "llama"), ("DualPipe-V", "llama")],
)
def test_a_row_s_schedule_is_priced_as_a_search_of_it_is(schedule: str, model: str) -> None:
    (found,) = price_cases([case(schedule=schedule, dataset="megatron_sc21_t1", vpp="1", arch=model, ffn="4096")])
    sets = ["accelerators=8", "b=16", "s=1024", "d=1024", "e=64", "f=4096", "v=51200", "layers=4", "axes.tp.degree=2"]
    sets += ["axes.pp.degree=2", "axes.dp.degree=2", "micro_batch=1", "recompute=full", "precision.gradient=16 bit"]
    sets += [f"schedule={schedule.lower().replace('-', '_')}", *(["h=16"] if model == "gpt" else ["g=16", "q=1"])]
    result = api.search("dgx_a100", model, "megatron_tp", sets=sets, profile="megatron_2021").result
    assert found.seconds == pytest.approx(result.latency_s, rel=1e-9)
    assert found.bytes == pytest.approx(result.memory_bytes_per_accelerator, rel=1e-9)


def test_dualpipe_is_its_folded_schedule_on_half_of_the_stages() -> None:
    both, folded = price_cases(
        [
            case(schedule="DualPipe", n_gpus="16", pp="4", dp="2", gbs="32", layers="8", arch="llama"),
            case(schedule="dualpipe_v", n_gpus="16", pp="2", dp="4", gbs="32", layers="8", arch="llama"),
        ]
    )
    assert both == folded
    assert both.seconds > 0
    (tied,) = price_cases([case(schedule="dualpipe_v", vpp="1")])
    assert "both ends of the model on its first stage" in tied.refused


def test_a_model_is_a_workload_by_name_or_path_whose_sizes_a_row_may_repeat(tmp_path: Path) -> None:
    """Imported from a config.json too; what is no model that is trained, or of other sizes, is refused."""
    own = tmp_path / "own.yaml"
    own.write_text((library_root() / "workloads" / "moe_llama.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    run = {"arch": "", "layers": "", "hidden": "", "heads": "", "gpu": "H100", "vocab": "", "precision": "bf16", "ep": "2", "n_gpus": "8"}
    named = validate_rows([row(**run, model=model) for model in ("Mixtral 8x7B", "moe_llama", str(own))])
    assert [one.predicted for one in named] == [named[0].predicted] * 3
    assert named[0].predicted > 0
    alike = {**run, "model": str(own), "layers": "32", "hidden": "4096", "heads": "32", "kv_heads": "8", "ffn": "14336", "arch": "mine"}
    (again,) = validate_rows([row(**alike)])
    assert again.predicted == named[0].predicted
    answer = invoke(["import", "workloads/configs/deepseek_v2.json", "--training", "-o", str(tmp_path / "latent.yaml")])
    assert answer.exit_code == 0
    (latent,) = validate_rows([row(**{**run, "model": str(tmp_path / "latent.yaml"), "tp": "1", "dp": "4"})])
    assert latent.predicted > 0
    config = "workloads/configs/mixtral_8x7b.json"
    answer = invoke(["import", config, "--training", "-o", str(tmp_path / "imported.yaml")])
    assert answer.exit_code == 0
    (imported,) = validate_rows([row(**{**run, "model": str(tmp_path / "imported.yaml")})])
    assert imported.predicted == pytest.approx(named[0].predicted, rel=0.01)  # (its mask is in its densities, and leaves a diagonal)
    wrong = {
        "layers: 31, where": {**alike, "layers": "31"},
        "kv_heads: 4, where": {**alike, "kv_heads": "4"},
        "no such file": {**run, "model": str(tmp_path / "none.yaml")},
        "is not trained": {**run, "model": "llama3_70b_decoder"},
        "is a graph": {**run, "model": "ffn"},
        "no model called 'Mixtral 8x8B' (nearest: mixtral 8x7b)": {**run, "model": "Mixtral 8x8B"},
    }
    for why, cells in wrong.items():
        (found,) = validate_rows([row(**cells)])
        assert why in found.refused


RUNS = [
    {},
    {"gbs": "32"},
    {"mbs": "2", "gbs": "64"},
    {"layers": "8"},
    {"layers": "6", "vpp": "3", "gbs": "16"},
    {"tp": "1", "dp": "4"},
    {"tp": "4", "pp": "1", "dp": "2", "mbs": "4", "gbs": "24"},
    {"layers": "5"},
    {"n_gpus": "64", "dp": "16", "gbs": "64"},
]


def test_models_of_unlike_sizes_and_depths_are_columns_that_have_the_figures_of_each_alone() -> None:
    """Bit by bit, under a profile whose calls depend on the depth (vtrain_single) too."""
    models = [
        {},
        {"hidden": "1024", "heads": "8", "layers": "8", "seq_len": "1024"},
        {"hidden": "2048", "heads": "16", "ffn": "6144", "vocab": "51200", "gbs": "24"},
    ]
    cases = [case(dataset="vtrain_single", **{"vpp": "1", "sp": "false", **cells}) for cells in models]
    assert len({one.key for one in cases}) == len(models)
    together = price_cases(cases)
    assert together == [price_cases([one])[0] for one in cases]
    assert len({step.seconds for step in together}) == len(models)


def test_vocabularies_heads_and_depths_of_pipelines_are_columns_of_one_array(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit by bit, with intervals and bins. Where one device has all sections, those that share weights do together what each did."""
    one_stage = {"pp": "1", "dp": "4"}
    runs = [{}, {"vocab": "25600"}, {"heads": "64"}, one_stage, {**one_stage, "heads": "64", "vocab": "25600"}]
    wide = {"hidden": "4096", "heads": "32", "vpp": "1", "sp": "false"}  # than what the host takes
    cases = [case(dataset="vtrain_single", **{**wide, **cells}) for cells in runs]
    alone = [price_cases([one])[0] for one in cases]
    arrays: list[int] = []
    monkeypatch.setattr(steps, "priced_columns", lambda *given, priced=steps.priced_columns: arrays.append(len(given[2])) or priced(*given))
    assert price_cases(cases) == alone
    assert arrays == [len(cases)]
    assert len({step.seconds for step in alone}) == len(cases)


def test_models_of_unlike_files_but_one_graph_are_columns_of_one_array(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit by bit, with intervals and bins: Llama 3 of 8B, 70B and 405B differ in sizes alone; a GPT has another graph."""
    none = {"layers": "", "hidden": "", "heads": "", "arch": "", "vocab": ""}
    runs = [{"model": f"Llama 3 {size}", **none} for size in ("8B", "70B", "405B")]
    cases = [case(dataset="megatron_core_h100", vpp="1", sp="false", **cells) for cells in (*runs, {})]
    assert [one.key.model.workload for one in cases] == ["llama3_8b", "llama3_70b", "llama3_405b", "gpt"]
    alone = [price_cases([one])[0] for one in cases]
    arrays: list[int] = []
    monkeypatch.setattr(steps, "priced_columns", lambda *given, priced=steps.priced_columns: arrays.append(len(given[2])) or priced(*given))
    assert price_cases(cases) == alone
    assert arrays == [3, 1]
    assert len({step.seconds for step in alone}) == len(cases)


def test_what_no_bins_are_asked_of_has_every_other_figure() -> None:
    cases = [case(vpp="1"), case(vpp="3", layers="12", gbs="32"), case(pp="1", dp="4", vpp="1"), replace(case(vpp="1"), brief=True)]
    whole = price_cases(cases)
    assert [bool(step.bins) for step in whole] == [True, True, True, False]
    assert price_cases(cases, bins=False) == [replace(step, bins={}) for step in whole]


def test_rows_that_tell_one_run_are_priced_once_and_each_says_what_is_asked_of_it() -> None:
    whole = case(vpp="1")
    brief, (alone,) = replace(whole, brief=True), price_cases([whole])
    found = price_cases([brief, whole, replace(whole, assumptions=("said",)), brief])
    assert found[1] is found[2]
    assert found[1] == alone
    assert found[0] == found[3] == replace(alone, interval=None, bins={}) == price_cases([brief])[0]


def test_random_rows_of_unlike_plans_stand_beside_each_other_with_the_figures_of_each_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit by bit: what is recomputed, sequence parallelism and where weights lie are plans of one group; so too where each has its own."""
    draw = random.Random(7)
    said = {"recompute": ("none", "selective", "full"), "sp": ("true", "false"), "sharding": ("none", "ZeRO-1"), "hidden": ("1024", "2048")}
    cells = [{column: draw.choice(choices) for column, choices in said.items()} for _ in range(4)]
    cases = [replace(case(vpp="1", **one), brief=number > 1) for number, one in enumerate(cells)]
    assert len({replace(one.key, model=cases[0].key.model) for one in cases}) > 2
    alone = [price_cases([one])[0] for one in cases]
    assert price_cases(cases) == alone
    monkeypatch.setattr("rackmodel.validation.steps.FEW_COLUMNS", 0)
    assert price_cases(cases) == alone


def test_plans_of_the_same_axes_share_what_they_know_of_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def counted(op: Op, *given: Any) -> LocalOp:
        made.append(op.name)
        return local_op_of(op, *given)

    monkeypatch.setattr("rackmodel.cost.program.local_ops.local_op_of", counted)
    cases = [case(vpp="1", sharding=sharding) for sharding in ("none", "ZeRO-1")]
    price_cases(cases[:1])
    once = len(made)
    price_cases(cases)
    assert len(made) == 2 * once


def test_models_of_one_plan_that_memory_sets_apart_are_priced_at_sizes_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    widths = [{"hidden": "1024", "heads": "8"}, {"hidden": "2048", "heads": "16"}]
    cases = [replace(case(vpp="1", sp="false", **width), brief=True) for width in widths]
    alone = [price_cases([one])[0] for one in cases]
    monkeypatch.setattr("rackmodel.validation.steps.MOST_COLUMNS", 1)
    assert price_cases(cases) == alone


def test_rows_of_unlike_machines_and_batches_have_one_workload_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a batch that is a multiple of theirs (24 and 32: 96), unless that is a monster."""
    runs = (("24", "dgx_a100"), ("32", "dgx_h100"))
    cases = [replace(case(vpp="1", sp="false", gbs=batch), brief=True) for batch, _ in runs]
    cases = [replace(one, key=replace(one.key, machine=machine)) for one, (_, machine) in zip(cases, runs, strict=True)]
    alone = [price_cases([one])[0] for one in cases]
    batches: list[int] = []
    monkeypatch.setattr(steps, "model_of", lambda *said, made=steps.model_of, **more: batches.append(said[1]) or made(*said, **more))
    assert price_cases(cases) == alone
    assert batches == [96]
    monkeypatch.setattr(steps, "MOST_SAMPLES", 95)
    assert price_cases(cases) == alone
    assert batches == [96, 24, 32]


@pytest.mark.parametrize("profile", ["megatron_sc21_t1", "megatron_core_h100_weak"])
def test_rows_priced_together_are_what_each_is_alone(profile: str) -> None:
    cases = [case(dataset=profile, **{"vpp": "1", "sp": "false", **cells}) for cells in RUNS]
    assert len({one.key for one in cases}) == 1
    for together, one in zip(price_cases(cases), cases, strict=True):
        (alone,) = price_cases([one])
        assert together.seconds == pytest.approx(alone.seconds, rel=1e-12)
        assert together.bytes == pytest.approx(alone.bytes, rel=1e-12)
        assert together.bins == pytest.approx(alone.bins, rel=1e-9)
        assert math.fsum(together.bins.values()) == pytest.approx(together.seconds, rel=1e-9)


def test_products_in_arrays_take_what_each_takes_alone() -> None:
    machine, sizes = read_architecture("h100"), np.array([[1, 4096, 4096], [511, 129, 8192], [16384, 16384, 64], [7, 7, 7]])
    columns = dict(zip("mnk", sizes.T.astype(float), strict=True))
    _, together = price_local(machine, PRODUCT, columns, 16, timed="queued")
    for number in range(len(sizes)):
        _, one = price_local(machine, PRODUCT, {name: value[[number]] for name, value in columns.items()}, 16, timed="queued")
        assert together[number] == pytest.approx(one[0], rel=1e-12)


# -- what a causal mask hides ------------------------------------------------------------------------------------------------


def test_fused_attention_makes_half_of_the_scores_and_published_operations_count_all() -> None:
    whole, half = model_of(GPT, 8), model_of(GPT, 8, masked=True)
    layer, masked = (one.sections[1].workload for one in (whole, half))
    halved = {name for name, tensor in layer.tensors.items() if masked.tensors[name].density == tensor.density / 2}
    assert halved == scores(layer) == {"A", "P", "PD"}
    assert macs_of(masked) == macs_of(layer)


# -- cuts that layers do not divide into ------------------------------------------------------------------------------------

GPT = ModelKey("gpt", (("d", 1024), ("e", 64), ("f", 4096), ("h", 16), ("s", 1024), ("v", 51200)), "16 bit", False)


@pytest.mark.parametrize(
    ("layers", "stages", "chunks", "ends", "inner"), [(126, 16, 8, 0, 1), (94, 4, 12, 1, 2), (126, 8, 1, 15, 16), (24, 4, 3, 2, 2)]
)
def test_an_embedding_and_a_head_count_as_a_layer_each(layers: int, stages: int, chunks: int, ends: int, inner: int) -> None:
    made, _ = cut_of_layers(model_of(GPT, 8), layers, stages, chunks)
    counts = made.counts[:, 1]
    assert (made.stages, made.chunks, counts.sum()) == (stages, chunks, layers)
    assert (counts[0], counts[-1]) == (ends, ends)
    assert set(counts[1:-1]) == {inner}


def test_layers_that_divide_into_nothing_are_dealt_from_the_first_chunk_and_it_is_said() -> None:
    made, note = cut_of_layers(model_of(GPT, 8), 7, 4, 1)
    assert made.counts[:, 1].tolist() == [2, 2, 2, 1]
    assert "ASSUMED" in note


def test_an_uneven_interleaved_pipeline_is_priced_as_one() -> None:
    uneven, even = price_cases([case(layers="10", vpp="3", gbs="32"), case(layers="12", vpp="3", gbs="32")])
    assert not uneven.refused
    assert 10 / 12 * 0.95 < uneven.seconds / even.seconds < 1


# -- rows ---------------------------------------------------------------------------------------------------------------------


def test_what_was_measured_is_turned_into_seconds_by_hand() -> None:
    one, step = case(), PricedStep(flops=8e15, hardware_flops=1e16, peak=250e12)
    tokens = 16 * 1024
    by_hand = {
        ("seconds", 2.0): 2.0,
        ("tokens", 1e4): tokens / 1e4,
        ("tokens of a GPU", 1e3): tokens / 8e3,
        ("model", 100.0): 8e15 / (8 * 100e12),
        ("hardware", 100.0): 1e16 / (8 * 100e12),
        ("model share", 40.0): 8e15 / (0.4 * 8 * 250e12),
        ("hardware share", 50.0): 1e16 / (0.5 * 8 * 250e12),
    }
    for said, seconds in by_hand.items():
        assert measured_seconds(replace(one, measured=Measured(*said)), step) == pytest.approx(seconds)


def test_operations_of_a_gpt_are_those_of_megatrons_formula() -> None:
    """96 B s l h2 (1 + s / 6h + V / 16 l h) with full recomputation (Narayanan 2021, eq. 3); the look-up of a token counts d besides."""
    (step,) = price_cases([case()])
    b, s, layers, h, v = 16, 1024, 4, 1024, 51200
    formula = 96 * b * s * layers * h * h * (1 + s / (6 * h) + v / (16 * layers * h))
    assert step.hardware_flops == pytest.approx(formula, rel=1e-4)


def test_the_first_quantity_that_is_filled_counts() -> None:
    assert case(tokens_per_s="5").measured == Measured("seconds", 1.0)
    assert case(iteration_time_s="", tokens_per_s_per_gpu="5", mfu_pct="9").measured == Measured("tokens of a GPU", 5.0)
    with pytest.raises(Refused, match="no measured time"):
        case(iteration_time_s="")


def test_an_empty_cell_is_assumed_and_said_and_a_filled_one_is_neither() -> None:
    assert any(note.startswith("recompute = none") for note in case(recompute="").assumptions)
    assert not any(note.startswith("recompute") for note in case().assumptions)
    assert "vocabulary 50257 padded to 50432" in case(vocab="50257").assumptions


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ({"gpu": "A1000"}, "no GPU called 'A1000' (nearest: a100)"),
        ({"arch": "MLA+MoE"}, "no model called 'MLA+MoE'"),
        ({"arch": "rwkv"}, "no model called 'rwkv'"),
        ({"dp": "3"}, "not those of all GPUs: tp x pp x cp x dp ="),
        ({"tp": ""}, "no degrees of parallelism"),
        ({"gbs": "17"}, "micro-batches do not divide the batch of a rank: 17 sequences over 2 ranks, 1 in a micro-batch"),
        ({"gbs": ""}, "no global batch"),
        ({"ep": "4"}, "experts over more ranks than are data-parallel: ep 4 of dp 2"),
        ({"vpp": "2", "gbs": "6"}, "interleaved"),
        ({"layers": "2.5"}, "no whole number"),
        ({"layers": "1"}, "more stages than layers"),
        ({"layers": "99999"}, "more than 10000 layers"),
        ({"vpp": "4"}, "more chunks than layers"),
        ({"schedule": "gpip"}, "no schedule called 'gpip' (nearest: gpipe)"),
        ({"schedule": "dualpipe_v", "gbs": "6"}, "schedule dualpipe_v of 3 micro-batches on 2 stages, which wants 4 or more"),
        ({"schedule": "dualpipe_v", "vpp": "3"}, "with 3 chunks of a stage"),
        ({"schedule": "zb_v", "layers": "1", "pp": "2"}, "more chunks than layers"),
        ({"schedule": "dualpipe", "pp": "1", "dp": "4"}, "schedule dualpipe on 1 stages"),
        ({"schedule": "gpipe", "vpp": "2"}, "with several chunks"),
        ({"gbs": "1600000"}, "more than 20000 micro-batches"),
        ({"sharding": "ZeRO-7"}, "no sharding called"),
        ({"sharding": "FSDP=4"}, "sharded over 4 of 2 data-parallel ranks"),
        ({"recompute": "half"}, "no recomputation called"),
        ({"precision": "fp7"}, "no precision called"),
        ({"heads": "15"}, "do not divide the hidden size"),
    ],
    ids=lambda said: next(iter(said)) if isinstance(said, dict) else "",
)
def test_what_cannot_be_meant_is_refused_by_name(cells: dict[str, str], why: str) -> None:
    with pytest.raises(Refused) as refused:
        case(**cells)
    assert why in str(refused.value)


def test_a_degree_that_does_not_divide_the_heads_is_refused_not_priced() -> None:
    (step,) = price_cases([case(tp="32", pp="1", dp="1", n_gpus="32")])
    assert "does not divide" in step.refused


def test_a_row_whose_machine_lacks_a_kernel_is_refused_and_keeps_no_other_from_its_price() -> None:
    lacks, has, runs = validate_rows([row(gpu="V100", dataset="megatron_core_h100_weak"), row(gpu="A100"), row(gpu="V100")])
    assert lacks.refused.startswith("no rate of the kernel 'attention forward'")
    assert has.predicted > 0
    assert runs.predicted > 0


def test_a_row_whose_machine_states_no_kernels_says_that_it_is_at_peak() -> None:
    peak, measured = validate_rows([row(gpu="TPU v4"), row(gpu="A100")])
    assert "tpu_v4 states no measured kernels: peak rates" in peak.assumptions
    assert not any("peak rates" in said for said in measured.assumptions)


def test_a_row_beyond_its_machine_s_peak_says_so(tmp_path: Path) -> None:
    plain, beyond = validate([table(tmp_path / "own.csv", [RUN, RUN | {"id": "two", "iteration_time_s": "1e-3"}])]).rows
    said = [[note for note in one.assumptions if "another precision or unit?" in note] for one in (plain, beyond)]
    assert said[0] == []
    assert said[1][0].endswith("times the machine's peak at fp16: another precision or unit?")


def test_weights_are_sharded_over_as_many_ranks_as_a_row_says() -> None:
    assert case(sharding="FSDP=2").key == case(sharding="FULL_SHARD").key
    assert case(sharding="fsdp=0").key == case(sharding="ZeRO-1").key


def test_a_width_that_a_machine_does_not_multiply_is_refused_not_widened() -> None:
    asked = [
        ("A100", "fp8"),
        ("H100", "nvfp4"),
        ("H100", "fp8-cs"),
        ("B200", "nvfp4"),
        ("A100", "int8"),
        ("H100", "mxfp8"),
        ("B200", "fp8-mx"),
    ]
    found = [one.refused for one in validate_rows([row(gpu=gpu, precision=name) for gpu, name in asked])]
    assert found == [
        "dgx_a100 multiplies no fp8 (it has tf32, bf16, int8)",
        "dgx_h100 multiplies no fp4 (it has tf32, bf16, fp8)",
        "",
        "",
        "",
        "dgx_h100 multiplies no mxfp8 (it has tf32, bf16, fp8)",
        "",
    ]


def test_a_row_over_capacity_is_priced_and_flagged() -> None:
    big = row(layers="96", hidden="12288", heads="96", tp="1", pp="1", dp="8", gbs="8")
    (found,) = validate_rows([big])
    assert found.over_capacity
    assert found.predicted > 0


def validate_rows(rows: list[PublishedRow]) -> list[ScoredRow]:
    from rackmodel.validation.runs import training_rows

    return training_rows(rows)


def test_several_processes_find_the_same_and_say_how_far_they_are(tmp_path: Path) -> None:
    """Of training runs those of one family are priced together, of served models those of an engine."""
    runs = [RUN, {**RUN, "id": "two", "gpu": "H100-SXM-80GB"}, {**RUN, "id": "three", "gpu": "TPUv9"}, {**RUN, "id": "four", "gbs": "32"}]
    files = [table(tmp_path / "runs.csv", runs)]
    alone, told = validate(files).to_dict(), list[tuple[int, int]]()
    assert validate(files, crew=Crew(2, lambda done, of: told.append((done, of)))).to_dict() == alone
    assert told[0][0] == 0
    assert told[-1][0] == told[-1][1] >= 3


@pytest.mark.parametrize("count", [1, 2, 8])
def test_families_are_dealt_whole_and_no_share_takes_longer_than_another_by_more_than_one_of_them(count: int) -> None:
    """Of one row and more, most of which have no interval."""
    kinds = [(gpu, name) for gpu in ("A100-SXM-80GB", "H100-SXM-80GB") for name in ("vtrain_single", "megatron_core_h100_weak")]
    rows = [(*kind, 16 * gbs) for number, kind in enumerate(kinds) for gbs in range(1, 2 + 3 * number)]
    found = [replace(case(gpu=gpu, dataset=name, vpp="1", sp="false", gbs=str(gbs)), brief=gbs > 32) for gpu, name, gbs in rows]
    families = steps.families(found)
    assert len({len(family) for family in families}) > 2
    shares = shares_of(found, count)
    assert sorted(number for share in shares for number in share) == list(range(len(found)))
    assert all(sum(not set(family).isdisjoint(own) for own in shares) == 1 for family in families)
    work = [sum(work_of_family([found[number] for number in family]) for family in families if family[0] in own) for own in shares]
    assert len(shares) == min(count, len(families))
    assert max(work) <= min(work) + max(work_of_family([found[number] for number in family]) for family in families)


def test_a_row_that_tells_its_memory_is_scored_twice() -> None:
    time, memory = validate_rows([row(memory_gib="12")])
    assert (time.unit, memory.unit, memory.dataset, memory.measured) == ("s", "GiB", "mine_memory", 12)


# -- files --------------------------------------------------------------------------------------------------------------------

FILES: dict[str, tuple[list[dict[str, str]], int]] = {  # rows, and how many of them are priced
    "training": ([RUN, {**RUN, "id": "two", "gpu": "TPUv9"}], 1),
    "products": ([{"system": "h100_sxm", "gemm_dtype": "bfloat16", "m": "512", "n": "512", "k": "512", "latency_us": "9"}], 1),
    "shapes": ([{"id": "s", "op": "softmax", "gpu": "A100", "precision": "fp16", "m": "4096", "n": "4096", "k": "", "time_ms": "0.1"}], 1),
    "collectives": ([{"op": "all_reduce", "gpu": "H100-SXM", "nodes": "2", "n_gpus": "16", "size_bytes": "1e8", "time_us": "900"}], 1),
    "messages": ([{"system": "b200_sxm", "op_name": "alltoall", "num_gpus": "8", "message_bytes": "1048576", "latency_us": "50"}], 1),
    "attention": ([{"system": "h100_sxm", "head_dim": "128", "latency_us": "10"}], 0),
    "memory": ([{"model": "gpt", "metric": "activations", "value": "3"}], 0),
    "energy": ([{"device_hours": "10"}], 0),
    "power": ([{"system": "node", "workload": "idle", "value": "3"}], 0),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzipped"])
def test_files_of_every_kind_are_read_and_every_row_is_priced_or_refused(tmp_path: Path, name: str, packed: bool) -> None:
    rows, priced = FILES[name]
    path = table(tmp_path / f"{name}.csv", [{**one, "a column of mine": "x"} for one in rows])
    if packed:
        path = tmp_path / f"{name}.csv.gz"
        path.write_bytes(gzip.compress((tmp_path / f"{name}.csv").read_bytes()))
    report = validate([path])
    assert len(report.rows) == len(rows)
    assert sum(not one.refused for one in report.rows) == priced
    assert all(one.refused or math.isclose(sum(one.bins.values()), one.predicted, rel_tol=1e-6) for one in report.rows)
    assert all(one.name == rows[0].get("dataset", name) for one in report.datasets)
    assert sum(sum(one.refused.values()) for one in report.datasets) == len(rows) - priced


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("a,b\n1,2\n", "no kind of rows has the columns a, b"),
        ("m,m,n,k\n1,1,1,1\n", "column 'm' is there twice"),
        ("m,n,k\n1,2\n", "fewer cells"),
        ("m,n,k\n1,2,3,4\n", "more values"),
        ("m,n,k\n", "no rows below the names of columns"),
        ("", "no kind of rows has the columns (none)"),
    ],
)
def test_a_file_that_is_no_table_of_rows_is_refused_with_its_place(tmp_path: Path, text: str, fact: str) -> None:
    path = tmp_path / "f.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as problem:
        validate([path])
    assert fact in str(problem.value)
    assert f"{path}:" in str(problem.value)


def test_a_word_that_a_row_lacks_is_told_by_its_column(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text("gpu,m,n,k,latency_us\nh100,64,64,64,9\n,64,64,64,9\n", encoding="utf-8")
    why = [row.refused for row in validate([path]).rows]
    assert why == ["no precision is said (column gemm_dtype or precision or dtype)", "no GPU is said (column gpu)"]


def test_bytes_that_are_no_text_and_broken_streams_are_refused(tmp_path: Path) -> None:
    for name, data in (("t.csv", b"\xff\xfe\x00"), ("g.csv.gz", gzip.compress(b"m,n,k\n1,1,1\n")[:-9])):
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(InputError):
            validate([path])
    with pytest.raises(InputError, match="no such file"):
        validate([tmp_path / "none.csv"])


# -- the commands -------------------------------------------------------------------------------------------------------------


def command(*words: str) -> Any:
    return invoke(list(words), catch_exceptions=True)


def test_shipped_rows_are_within_their_bars() -> None:
    answer = command("validate", "--json")
    assert answer.exit_code == 0
    data = json.loads(answer.stdout)
    own = data["datasets"]["korthikanti_table5"]
    assert own["n"] == 6
    assert own["mean_abs_error_pct"] < own["bar_pct"]
    assert {"bias_pct", "rank_correlation", "interval_coverage", "cells"} <= set(own)
    assert all(abs(sum(one["bins"].values()) / one["predicted"] - 1) < 1e-9 for one in data["rows"])


def test_a_missed_bar_of_a_file_fails_only_where_that_is_asked_for(tmp_path: Path) -> None:
    path = table(tmp_path / "f.csv", [{**RUN, "dataset": "korthikanti_table5", "iteration_time_s": "1000"}])
    assert command("validate", str(path)).exit_code == 0
    answer = command("validate", str(path), "--strict")
    assert answer.exit_code == 1
    assert "missed korthikanti_table5" in answer.stdout


def test_memory_of_a_data_set_has_a_bar_of_its_own() -> None:
    said = words()
    assert said.bar("torchtitan_memory") == said.datasets["torchtitan"].memory_bar != said.bar("torchtitan")
    assert said.bar("vtrain_single_memory") is said.bar("mine") is None


def test_rows_of_which_none_has_a_prediction_are_no_success(tmp_path: Path) -> None:
    rows = [{**RUN, "id": "a", "gpu": "Z9000"}, {**RUN, "id": "b"}]
    none, some = command("validate", str(table(tmp_path / "n.csv", rows[:1]))), command("validate", str(table(tmp_path / "s.csv", rows)))
    assert none.exit_code == 2
    assert "no row has a prediction" in none.stderr
    assert "no GPU called 'Z9000'" in none.stdout
    assert some.exit_code == 0


def test_an_anchor_is_said_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    path = table(tmp_path / "f.csv", [RUN, {**RUN, "id": "two", "gbs": "32", "iteration_time_s": "2"}])
    data = json.loads(command("validate", str(path), "--anchor", "one", "--json").stdout)
    assert data["mode"] == "anchored"
    assert data["datasets"]["mine"]["n"] == 1
    with pytest.raises(InputError, match="no row 'three'"):
        validate([path], ["three"])


@pytest.mark.parametrize(
    ("said", "part"),
    [
        (["gemm", "4096x4096x4096"], "compute"),
        (["softmax", "4096x4096"], "memory"),
        (["all_reduce", "64 MiB", "--nodes", "2"], "network all_reduce"),
    ],
)
def test_one_product_kernel_or_collective_is_timed(said: list[str], part: str) -> None:
    found = json.loads(command("time", "dgx_h100", *said, "--json").stdout)
    assert found["bins"][part] == pytest.approx(found["seconds"])
    assert 1e-6 < found["seconds"] < 1e-2


CALL = {"op": "all_reduce", "gpu": "B200-SXM", "nodes": "4", "n_gpus": "32", "size_bytes": str(2**20), "time_us": "378"}


def call(**cells: str) -> ScoredRow:
    found = {**CALL, **cells}
    return collective_rows([PublishedRow("one", found.get("dataset", "mine"), "collective", found, "rows.csv", 2)])[0]


def test_gpus_are_known_by_the_names_that_their_drivers_print() -> None:
    drivers = {
        "NVIDIA A100-SXM4-80GB": "dgx_a100",
        "NVIDIA H100 80GB HBM3": "dgx_h100",
        "Tesla V100-SXM2-32GB": "dgx_v100",
        "TPU v5p": "tpu_v5p",
    }
    assert {name: words().machine(name, "mine").machine for name in drivers} == drivers


def test_words_are_known_in_any_spelling_that_means_one_thing() -> None:
    said = words()
    tables = {
        name: getattr(said, name)
        for name in ("machines", "models", "precisions", "shardings", "recomputes", "engines", "served", "formats")
    }
    for name, known in tables.items():
        for word, meant in known.items():
            spelling = word.upper().replace("-", "_").replace(" ", "--")
            try:
                assert look_up(known, name, spelling) is meant
            except Refused:
                assert len({id(known[one]) for one in known if spelt(one) == spelt(word)}) > 1, word
    assert look_up(said.shardings, "sharding", "zero1").state == "shard"
    assert said.machine("H100 SXM5", "mine").machine == "dgx_h100"
    assert said.machine("A100 SXM4 40GB", "mine").set
    assert said.model("Llama 3.1 8B").workload == "llama3_8b"
    for word in ("Llama 31 8B", "RTX-PRO-6000", "!"):  # another number; either of two machines; nothing
        with pytest.raises(Refused):
            said.machine(word, "mine") if word.startswith("RTX") else said.model(word)


def test_a_collective_is_known_in_any_spelling_and_members_that_its_nodes_do_not_hold_are_refused() -> None:
    own = CALL | {"op": "AllReduce", "gpu": "H100 SXM5", "nodes": "1", "n_gpus": "8"}
    assert call(**own).predicted == call(**own | {"op": "all_reduce"}).predicted
    assert call(**own | {"op": "barrier"}).refused == (
        "no collective called 'barrier' (known: all_reduce, allreduce, all_gather, reduce_scatter, alltoall, all_to_all, a2a, alltoallv, "
        "broadcast, reduce, send_recv, send, p2p)"
    )
    assert call(**own | {"n_gpus": "16"}).refused == "16 members in 1 nodes of 8"


def test_products_of_an_accelerator_that_states_no_kernels_are_priced_at_peak_and_say_so(tmp_path: Path) -> None:
    file = tmp_path / "own.csv"
    file.write_text("m,n,k,latency_ms,dtype,system\n4096,4096,4096,1.2,bf16,TPU v3\n4096,4096,4096,0.25,bfloat16,H100\n")
    chip, gpu = validate([file]).rows
    assert chip.predicted == pytest.approx(2 * 4096**3 / 123.20768e12, rel=1e-6)
    assert (chip.measured, gpu.measured) == (1.2e-3, 0.25e-3)
    said = "tpu_v3 states no measured kernels: peak rates"
    assert (said in chip.assumptions, said in gpu.assumptions) == (True, False)


def test_refused_rows_are_counted_and_the_first_is_named(tmp_path: Path) -> None:
    file = tmp_path / "own.csv"
    file.write_text("m,n,k,latency_ms,dtype,system\n64,64,64,1,bf16,H100\n64,64,64,1,bf16,Gaudi2\n64,64,64,1,bf16,Gaudi2\n")
    instead = "an architecture by its name or path may stand there"
    assert f"refused own: 2 rows, no GPU called 'Gaudi2'; {instead} (first own:2)" in list(report_lines(validate([file])))


def test_a_data_set_says_which_machine_its_word_for_a_gpu_means() -> None:
    """B200 of mleng_b200_efa lie behind EFA, where NCCL starts 0.38 ms late (stas00/ml-engineering 744d01e18b79); DGX's do not."""
    efa = call(dataset="mleng_b200_efa")
    assert efa.predicted == pytest.approx(378e-6, rel=0.05)
    assert call().predicted < efa.predicted / 3
    named = call(gpu="P6-B200")  # the same machine, but for NCCL's algorithms in the place of its measured calls
    assert named.predicted == pytest.approx(378e-6, rel=0.15)


def test_what_a_data_set_changes_of_a_machine_counts_for_its_collectives() -> None:
    """An untuned pair of nodes moves 89.9 of 400 GB/s (NVIDIA/nccl-tests, issue 290); 15/8 of 8 GiB leave a node."""
    pair = {"gpu": "H100-SXM-80GB", "nodes": "2", "n_gpus": "16", "size_bytes": str(2**33), "time_us": "179148", "algo": "Ring"}
    assert call(dataset="ncclt_290_h100_2node", **pair).predicted == pytest.approx(15 / 8 * 2**33 / 89.9e9, rel=0.01)
    assert call(**pair).predicted == pytest.approx(15 / 8 * 2**33 / (400e9 * 0.96), rel=0.05)


def test_two_members_do_without_nvls_whatever_a_row_says() -> None:
    pair = {"gpu": "H100-SXM-80GB", "nodes": "1", "n_gpus": "2", "time_us": "5835", "size_bytes": str(2**31)}
    assert call(**pair, algo="NVLS").predicted == call(**pair, algo="Ring").predicted
    assert call(**{**pair, "n_gpus": "4"}, algo="NVLS").predicted != call(**{**pair, "n_gpus": "4"}, algo="Ring").predicted


def test_a_product_in_a_loop_is_timed_by_what_was_fitted_to_such() -> None:
    """As the fit itself predicts it (calibration/fit_products); a part without such facts, or another operation, has no loop."""
    said = ["256x1536x16384", "--looped", "--json"]
    machine = fit_machine(part_alone("h100_sxm"), "bf16")
    m, n, k, second = (np.array([value]) for value in (256.0, 1536.0, 16384.0, 1.0))
    rows = ProductRows(gpu="h100", precision="bf16", m=m, n=n, k=k, seconds=second, source="")
    wanted = float(predict(gpu_of(read_architecture("h100")).facts.products["bf16"], machine, rows)[0])
    assert json.loads(command("time", "h100", "gemm", *said).stdout)["seconds"] == pytest.approx(wanted, rel=1e-9)
    assert json.loads(command("time", "h100", "gemm", *said[::2]).stdout)["seconds"] != pytest.approx(wanted, rel=1e-2)
    for asked, wrong in (
        (["h100", "softmax", "64x64", "--looped"], "softmax has no --looped"),
        (["rack_paper", "gemm", "64x64x64", "--looped"], "no products of 16 bit were fitted on rack_paper"),
        (["h100", "gemm", "64x64x64", "--looped", "--alone"], "alone or in a loop"),
    ):
        assert wrong in str(command("time", *asked).exception)


def test_an_unknown_thing_to_time_names_the_nearest() -> None:
    problem = command("time", "dgx_h100", "all_reduced", "1 MB").exception
    assert isinstance(problem, InputError)
    assert "did you mean 'all_reduce'" in str(problem)


def test_a_send_is_timed_between_two_of_a_node_or_of_two() -> None:
    """rack_paper: 1 GB over 900 GB/s in a rack, over 50 GB/s between racks."""
    near, far = (time_of(read_architecture("rack_paper"), "send", OneCall("1 GB", nodes=nodes)).seconds for nodes in (None, 2))
    assert near == pytest.approx(1e9 / 900e9)
    assert far == pytest.approx(1e9 / 50e9)
    with pytest.raises(InputError, match="send has no --members"):
        time_of(read_architecture("rack_paper"), "send", OneCall("1 GB", members=4))


def test_members_that_no_node_holds_are_refused_where_one_is_asked_for() -> None:
    machine = read_architecture("dgx_h100")
    every, two = (time_of(machine, "all_reduce", OneCall("1 GB", members=16, nodes=nodes)) for nodes in (None, 2))
    assert every == two
    with pytest.raises(InputError, match="16 members in a node of 8"):
        time_of(machine, "all_reduce", OneCall("1 GB", members=16, nodes=1))


def test_a_collective_may_be_timed_as_a_library_was_measured() -> None:
    """Eight L40S over PCIe: NCCL takes 1.23 s for 1 GiB (its longest messages, 872 MB/s), where rings over the links would take 59 ms."""
    machine, size = read_architecture("l40s_node"), 2.0**30
    ring, nccl = (time_of(machine, "all_reduce", OneCall("1 GiB", library=name)).seconds for name in ("", "nccl"))
    lines = machine_calls(machine, LibraryCall(library="nccl")).lines("node", "all_reduce", 16, np.array([8]), np.array([size]))
    assert nccl == float(lines.seconds(size)[0])
    assert ring < 0.1 < 1 < nccl
    for name, fact in (("ncl", "no collectives of 'ncl'"), ("trtllm", "no all_reduce of trtllm among 8 on 1 node was measured")):
        with pytest.raises(InputError, match=fact) as problem:
            time_of(read_architecture("cs3"), "all_reduce", OneCall("1 GiB", library=name))
        assert problem.value.path == "--library"


# -- what the words say -------------------------------------------------------------------------------------------------------


def test_words_name_files_of_the_library_and_every_assumption_has_a_source() -> None:
    said = words()
    assert {one.machine for one in said.machines.values()} <= set(names("architecture"))
    assert {one.workload for one in said.models.values() if not one.refused} <= set(called("workload"))
    assert {one.workload for one in said.served.values() if not one.refused} <= set(called("workload"))
    for name, dataset in said.datasets.items():
        assert {word.lower() for word in dataset.gpus.values()} <= set(said.machines), name
        profiles = {dataset.profile, *(some.profile for some in dataset.some if some.profile)}
        assert profiles <= set(names("profile")), name
        for cell in (*dataset.assume.values(), *(cell for some in dataset.some for cell in some.assume.values())):
            assert cell.source, name
    assert all((library_root() / "specs/validation" / name).exists() for name in said.shipped)


def test_rows_beyond_what_is_read_are_not_cut_off_in_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 600))
    monkeypatch.setattr("rackmodel.csv_file.MOST_BYTES", 2 << 10)
    with pytest.raises(InputError, match="unpacks to more than 0 MiB: split it"):
        text_of(path)
    monkeypatch.setattr("rackmodel.csv_file.MOST_BYTES", 4 + 4 * 600)
    assert text_of(path).count("1,2") == 600
