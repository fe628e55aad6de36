"""`serve` and `serve-trace`: exact answers over a declared space, traces with percentiles, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rackmodel.cli.app import app
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.inputs import read_profile
from rackmodel.serving.ask import service_of
from rackmodel.serving.launch import SERVERS, serving_launch
from rackmodel.serving.offers import Offer, Service, Widths, offers_of
from rackmodel.serving.search import ServingAnswer, ServingSpace, deployments, search_service
from rackmodel.serving.trace_file import read_trace

MODEL = "llama3_8b_decoder"
SMALL = ServingSpace(tensor=(1, 4), pipeline=(1,), clients=(16.0, 64.0), budgets=(2048, 8192))


def _service(*sets: str, machine: str = "dgx_h100") -> Service:
    return service_of(machine, MODEL, sets, read_profile("vllm"), (1024.0, 256.0, 0.0))


@pytest.fixture(scope="module")
def answer() -> ServingAnswer:
    return search_service(_service("accelerators=4"), SMALL)


def test_the_best_is_that_of_every_point(answer: ServingAnswer) -> None:
    assert len(answer.offers) == 8
    assert answer.certificate.status == "proven"
    rates = [one.figures["tokens_per_s_per_accelerator"] for one in answer.offers]
    assert answer.best.figures["tokens_per_s_per_accelerator"] == max(rates)


def test_no_point_of_the_front_is_beaten_in_both(answer: ServingAnswer) -> None:
    for one in answer.front:
        for other in answer.offers:
            better = [other.figures[name] > one.figures[name] for name in ("tokens_per_s_per_accelerator", "interactivity")]
            assert not all(better)


def test_replicas_share_the_clients(answer: ServingAnswer) -> None:
    for one in answer.offers:
        assert one.replicas * one.deployment.accelerators == 4
        assert one.replicas * one.clients in (16, 64)


def test_limits_leave_only_what_keeps_them(answer: ServingAnswer) -> None:
    most = sorted(one.figures["tpot"] for one in answer.offers)[3]
    found = search_service(_service("accelerators=4"), SMALL, limits={"tpot": most})
    assert found.best.figures["tpot"] <= most
    with pytest.raises(InfeasibleError, match="no deployment keeps the limits; the least alone: ttft"):
        search_service(_service("accelerators=4"), SMALL, limits={"ttft": 1e-6})


@pytest.mark.parametrize(
    ("word", "figure"), [("energy", "joules_per_token"), ("tpot", "tpot"), ("ttft", "ttft"), ("carbon", "grams_per_token")]
)
def test_each_objective_is_least_at_its_best(answer: ServingAnswer, word: str, figure: str) -> None:
    if figure not in answer.best.figures:
        pytest.skip("the machine has no site")
    found = search_service(_service("accelerators=4"), SMALL, word)
    assert found.best.figures[figure] == min(one.figures[figure] for one in answer.offers)


def test_grams_are_those_of_joules_and_of_time() -> None:
    service = _service("accelerators=4")
    assert service.carbon is not None
    one = offers_of(service, next(deployments(SMALL, service)), Widths(), [64.0], [8192])[0]
    per_joule, per_second = service.carbon.of(1.0, 0.0).total_g.mid, service.carbon.of(0.0, 1.0).total_g.mid
    whole = per_joule * one.figures["joules_per_token"] + per_second / one.figures["tokens_per_s"]
    assert one.figures["grams_per_token"] == pytest.approx(whole)
    assert one.figures["grams_per_request"] == pytest.approx(256 * whole)


def test_a_model_that_fits_no_replica_is_infeasible() -> None:
    service = service_of("dgx_h100", "llama3_405b_decoder", ("accelerators=1",), read_profile("vllm"), (1024.0, 256.0, 0.0))
    with pytest.raises(InfeasibleError, match="no room for a cache"):
        search_service(service, ServingSpace(clients=(1.0,)))


@pytest.mark.parametrize("name", sorted(SERVERS))
def test_flags_start_what_was_found(answer: ServingAnswer, name: str) -> None:
    best: Offer = answer.best
    text = "\n".join(serving_launch(name, "some/model", best, 1280).lines())
    assert "some/model" in text
    assert str(best.budget) in text
    assert str(best.deployment.tensor) in text


def test_a_workload_that_is_no_decoder_is_refused() -> None:
    with pytest.raises(InputError, match="no decoder's step"):
        service_of("dgx_h100", "gemm", (), read_profile("vllm"), (1.0, 1.0, 0.0))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a,b\n", "no column 'arrival_s'"),
        ("arrival_s,prompt,output\n0,10,x\n", r"trace.csv:2:1: output: 'x' is no number"),
        ("arrival_s,prompt,output\n1,10,5\n0,10,5\n", r"trace.csv:3:1: arrival_s: this request arrives before"),
        ("arrival_s,prompt,output\n1,0,5\n", "no number of prompt from 1 up"),
        ("arrival_s,prompt,output\n", "no requests"),
    ],
)
def test_a_trace_that_cannot_be_meant_is_refused(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=why):
        read_trace(path)


def _run(*words: str) -> dict[str, object]:
    found = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    data = json.loads(found.output)
    assert isinstance(data, dict)
    return data


def test_the_command_gives_the_best_and_the_front() -> None:
    found = _run(
        "serve", "dgx_h100", MODEL, "--tensor", "2", "--pipeline", "1", "--concurrency", "32", "--flags", "vllm", "--set", "accelerators=2"
    )
    assert found["certificate"]["status"] == "proven"  # type: ignore[index]
    assert "--tensor-parallel-size 2" in found["flags"]["arguments"]  # type: ignore[index]


def test_the_same_seed_gives_the_same_trace() -> None:
    words = ("serve-trace", "dgx_h100", MODEL, "--rate", "5", "--requests", "200", "--isl", "500", "--osl", "50", "--least", "0.5")
    assert _run(*words) == _run(*words)
    assert _run(*words)["ttft_s"] != _run(*words, "--seed", "1")["ttft_s"]


def test_a_trace_file_gives_percentiles_and_every_requests_figures(tmp_path: Path) -> None:
    path, out = tmp_path / "trace.csv", tmp_path / "out.csv"
    path.write_text("arrival_s,input_tokens,output_tokens\n" + "".join(f"{i / 10},500,20\n" for i in range(50)))
    found = _run("serve-trace", "dgx_h100", MODEL, str(path), "-o", str(out))
    assert found["requests"] == 50
    assert found["ttft_s"]["p50"] <= found["ttft_s"]["p99"]  # type: ignore[index]
    assert len(out.read_text().splitlines()) == 51
