"""Ranks of context: tensor ranks that keep different tokens of the caches (decode context parallelism)."""

from __future__ import annotations

import pytest

from rackmodel.errors import InfeasibleError, InputError
from rackmodel.inputs import read_profile
from rackmodel.serving.ask import service_of
from rackmodel.serving.launch import serving_launch
from rackmodel.serving.offers import Offer, Widths, engine_of
from rackmodel.serving.requests import Requests
from rackmodel.serving.search import ServingSpace, search_service
from rackmodel.serving.steps import Deployment, StepFigures, Steps
from tests.commands import invoke
from tests.serving_models import served_on

GQA, MLA = "llama3_70b_decoder", "deepseek_v3_decoder"


served = served_on("dgx_h200", "accelerators=16")


@pytest.mark.parametrize(
    ("workload", "degrees", "each"),
    [
        (MLA, {"tensor": 8}, 70_272),  # every rank keeps the latent cache: 61 layers of 512 + 64 numbers
        (MLA, {"tensor": 8, "context": 4}, 70_272 / 4),
        (MLA, {"tensor": 8, "context": 8}, 70_272 / 8),
        (GQA, {"tensor": 8}, 327_680 / 8),
        (GQA, {"tensor": 16}, 327_680 / 8),  # 8 heads over 16 ranks: two keep the same
        (GQA, {"tensor": 16, "context": 2}, 327_680 / 16),
    ],
)
def test_a_rank_keeps_its_part_of_the_tokens(workload: str, degrees: dict[str, int], each: float) -> None:
    model = served(workload, **degrees)
    assert model.kv_bytes_per_token == pytest.approx(each)
    assert model.weights_each[0] == pytest.approx(served(workload, tensor=degrees["tensor"]).weights_each[0], rel=0.03)


def bytes_of(figures: StepFigures, action: str) -> float:
    return float(sum(row.amount[0] for row in figures.ledger.where(component="network", action=action)))


def test_queries_are_gathered_and_outputs_reduced_over_them() -> None:
    """32 sequences, 16 ranks of which 2 share their heads: of the queries of 8 heads of 128 each rank lacks half, 80 layers; outputs go the
    same way back. What softmax needs of the others is two numbers a row and head."""
    step = Steps.of(decodes=32, context=4095)
    alone, apart = (served(GQA, tensor=16, context=ranks).price(step) for ranks in (1, 2))
    half = 16 * 80 * 32 * 8 * 128 * 2 / 2
    assert bytes_of(apart, "all_gather") == pytest.approx(half)
    assert bytes_of(apart, "reduce_scatter") == pytest.approx(half)
    assert bytes_of(alone, "all_gather") == bytes_of(alone, "reduce_scatter") == 0
    rows = [row for row in apart.ledger.where(component="network", action="all_reduce") if row.einsum.endswith("softmax")]
    assert 0 < sum(row.amount[0] for row in rows) <= 16 * 80 * 32 * 8 * 2 * 4 * 2
    read = [sum(row.amount[0] for row in one.ledger.where(level="gpu", action="read", tensor="KC")) for one in (alone, apart)]
    assert read[1] == pytest.approx(read[0] / 2)


def test_more_requests_fit_where_ranks_keep_different_tokens() -> None:
    service = service_of("dgx_h200", MLA, ("accelerators=8",), "vllm", (32768.0, 1024.0, 0.0))
    space = ServingSpace(tensor=(8,), pipeline=(1,), context=(1, 8))
    most = dict.fromkeys((1, 8), 0.0)
    for one in search_service(service, space).offers:
        assert isinstance(one, Offer)
        most[one.deployment.context] = max(most[one.deployment.context], one.clients)
    assert most[8] > 6 * most[1]


def test_what_they_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="3 ranks of context do not divide 8 of tensor parallelism"):
        Deployment(tensor=8, context=3)
    service = service_of("dgx_h200", GQA, ("accelerators=8",), "vllm", (1024.0, 1024.0, 0.0))
    with pytest.raises(InfeasibleError, match="16 ranks of context"):
        search_service(service, ServingSpace(tensor=(8,), context=(16,)))
    dense = service_of("dgx_h200", "llama3_8b_decoder", ("accelerators=8",), "vllm", (1024.0, 1024.0, 0.0))
    with pytest.raises(InfeasibleError, match="8 ranks of context do not divide the 4 heads of llama3_8b_decoder that share a cache"):
        search_service(dense, ServingSpace(tensor=(8,), context=(8,)))


def test_each_engine_is_told() -> None:
    offer = Offer(Deployment(tensor=8, context=4), Widths(), 1, 64.0, 8192, 64.0, False, {})
    told = {name: serving_launch(name, "some/model", offer, 2048) for name in ("vllm", "sglang")}
    assert "--decode-context-parallel-size 4" in told["vllm"].arguments
    assert "--dcp-size=4" in told["sglang"].arguments
    service = service_of("dgx_h200", MLA, ("accelerators=8",), "trtllm", (1024.0, 1024.0, 0.0))
    assert "4 ranks of context have no argument here" in serving_launch("trtllm", "some/model", offer, 2048, service).notes


def test_a_trace_runs_on_them() -> None:
    words = ["serve-trace", "dgx_h200", MLA, "--tensor", "8", "--context", "8", "--concurrency", "4", "--requests", "8", "--json"]
    done = invoke(words)
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("g", "q", "tensor"),
    [(10, 4, {1, 2}), (8, 4, {1, 2, 4, 8}), (4, 7, {1, 2, 4}), (2, 8, {1, 2, 4, 8}), (1, 12, {1, 2, 4}), (12, 1, {1, 2, 4})],
)
def test_heads_are_shared_out_as_engines_do_or_not_at_all(g: int, q: int, tensor: set[int]) -> None:
    """40 heads, 10 of keys and values (Phi-4): vLLM starts on 1 or 2 ranks; serve said --tensor-parallel-size 8 was best of all."""
    sets = ("accelerators=8", f"workload.g={g}", f"workload.q={q}", "workload.d=5120")
    service = service_of("dgx_h100", "llama3_8b_decoder", sets, read_profile("vllm"), (1024.0, 128.0, 0.0))
    answer = search_service(service, ServingSpace(pipeline=(1,), clients=(8.0,)), "throughput", {}, None)
    wanted = {n for n in (1, 2, 4, 8) if (g * q) % n == 0 and (g % n == 0 or n % g == 0)}
    assert wanted == tensor
    least_seen = search_service(service, ServingSpace(tensor=tuple(sorted(tensor)), pipeline=(1,), clients=(8.0,)), "throughput", {}, None)
    assert [offer.figures for offer in answer.front] == [offer.figures for offer in least_seen.front]
    for ranks in {1, 2, 4, 8} - tensor:
        with pytest.raises(InfeasibleError, match=f"{ranks} ranks of tensor parallelism do not share out {g * q} heads"):
            search_service(service, ServingSpace(tensor=(ranks,), pipeline=(1,), clients=(8.0,)), "throughput", {}, None)


@pytest.mark.parametrize(
    ("degrees", "field", "words"),
    [
        ({"tensor": 4, "context": 3}, "context", ("--tensor", "4", "--context", "3")),
        ({"tensor": 2, "expert": 2, "expert_tensor": 4}, "expert", ()),
    ],
)
def test_python_is_told_the_field_and_the_command_line_the_option(degrees: dict[str, int], field: str, words: tuple[str, ...]) -> None:
    """Who made a Deployment in Python was told of `--expert`."""
    with pytest.raises(InputError) as problem:
        Deployment(**degrees)
    assert problem.value.path == f"deployment.{field}"
    if words:
        trace = ("serve-trace", "dgx_h200", "llama3_8b_decoder", "--concurrency", "4", "--requests", "8", *words)
        assert str(invoke([*trace]).exception).startswith(f"--{field}: 3 ranks of context do not divide 4")


def test_experts_that_a_model_has_not_are_told_of_by_field_and_by_option() -> None:
    engine = engine_of(
        service_of("dgx_h100", "llama3_8b_decoder", (), "vllm", (64, 64, 0.0)), Deployment(tensor=4, expert=4), Widths("", "")
    )
    with pytest.raises(InputError, match=r"deployment\.expert: llama3_8b_decoder has no experts to deal out"):
        _ = engine.room(Requests.of(prompt=64, output=64), engine.schedule)
    found = invoke(
        ["serve-trace", "dgx_h100", "llama3_8b_decoder", "--concurrency", "4", "--requests", "8", "--tensor", "4", "--expert", "4"]
    )
    assert str(found.exception).startswith("--expert: llama3_8b_decoder has no experts to deal out")
