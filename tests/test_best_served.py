"""Rows of what a submitter got out of a machine at best: the search's answer stands beside them, and what cannot be asked is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackmodel.serving.ask import service_of
from rackmodel.serving.offers import Widths
from rackmodel.serving.search import ServingSpace, search_service
from rackmodel.validation.run import validate
from rackmodel.validation.score import ScoredRow

ROW = {
    "round": "v5.1", "division": "closed", "accelerator": "NVIDIA B200-SXM-180GB", "accelerators_per_node": "8", "nodes": "1",
    "model": "llama3.1-405b", "scenario": "Offline", "weight_dtype": "fp4", "result": "1637.11", "unit": "Tokens/s",
    "mean_output_tokens_per_sample": "652.5", "power_result": "9891.8", "software": "TensorRT 10.8; CUDA 12.8",
}  # fmt: skip


def scored(folder: Path, **cells: str) -> tuple[ScoredRow, ...]:
    row = {**ROW, **cells}
    file = folder / "mlperf_llm.csv"
    file.write_text("\n".join([",".join(row), ",".join(row.values())]) + "\n", encoding="utf-8")
    return validate([file]).rows


def test_a_row_stands_beside_the_best_deployment_of_its_machine_and_its_watts_beside_that_one_s(tmp_path: Path) -> None:
    """Llama 3.1 405B on eight B200 (MLPerf Inference v5.1, ThinkSystem SR780a V3): 1,637 tokens a second at 9.9 kW."""
    tokens, watts = scored(tmp_path)
    service = service_of("dgx_b200", "llama3_405b_decoder", ["accelerators=8"], "trtllm", (9428, 652.5, 0.0))
    best = search_service(service, ServingSpace(widths=(Widths("nvfp4", "fp8"),))).best
    assert tokens.predicted == pytest.approx(8 * best.figures["tokens_per_s_per_accelerator"])
    assert watts.predicted == pytest.approx(tokens.predicted * best.figures["joules_per_token"])
    assert (watts.dataset, watts.unit) == ("mlperf_llm_power", "W")
    assert tokens.predicted == pytest.approx(tokens.measured, rel=0.25)
    assert watts.predicted == pytest.approx(watts.measured, rel=0.12)


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ({"scenario": "Server"}, "what 99 of 100 requests wait is limited"),
        ({"division": "open"}, "an open division"),
        ({"unit": "Samples/s"}, "a result in 'Samples/s'"),
        ({"model": "gptj-99"}, "GPT-J decodes with four beams"),
        ({"model": "llama3.1-405c"}, "nearest: llama3.1-405b"),
        ({"software": "CUDA 12.2"}, "software whose engine is not known here"),
        ({"accelerator": "NVIDIA B2OO"}, "no GPU called 'NVIDIA B2OO'"),
        ({"nodes": ""}, "no number of accelerators"),
        ({"result": ""}, "no result"),
        ({"accelerators_per_node": "1", "weight_dtype": "fp8"}, "infeasible: the weights leave no room for a cache"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(cells: dict[str, str], said: str, tmp_path: Path) -> None:
    (row,) = scored(tmp_path, **cells)
    assert said in row.refused


def test_rounds_before_models_ran_without_engines_wait_for_no_loop_over_requests(tmp_path: Path) -> None:
    cells = {"model": "llama2-70b-99", "weight_dtype": "fp8", "mean_output_tokens_per_sample": "294", "power_result": ""}
    (now,), (before,) = scored(tmp_path, **cells), scored(tmp_path, **cells, round="v4.1")
    assert before.predicted > 1.02 * now.predicted
