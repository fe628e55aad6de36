"""Mixtures of experts and latent attention as they are served: layouts, what experts read, what prompts run otherwise."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from rackmodel.api import search
from rackmodel.inputs import read_architecture, read_profile, read_workload
from rackmodel.serving.served_model import ServedModel
from rackmodel.serving.steps import Deployment, StepFigures, Steps
from tests.serving_models import served_on

MOE, MLA = "qwen3_30b_a3b_decoder", "deepseek_v3_decoder"


served = served_on("dgx_h200")


LAYOUTS = [
    ({"ti": 8}, {"tensor": 8}),
    ({"te": 8, "ti": 1}, {"tensor": 8, "expert": 8}),
    ({"de": 8, "ti": 1}, {"attention_data": 8, "expert": 8}),
    ({"di": 8, "ti": 1}, {"attention_data": 8}),
    ({"de": 2, "te": 2, "ti": 2}, {"tensor": 4, "attention_data": 2, "expert": 4, "expert_tensor": 2}),
    ({"de": 2, "di": 2, "ti": 2}, {"tensor": 2, "attention_data": 4, "expert": 2, "expert_tensor": 4}),
    ({"ti": 4, "ci": 2}, {"tensor": 8, "context": 2}),
    ({"te": 2, "ti": 1, "ce": 4}, {"tensor": 8, "expert": 8, "context": 4}),
    ({"te": 1, "ti": 2, "ce": 2, "ci": 2}, {"tensor": 8, "expert": 2, "expert_tensor": 4, "context": 4}),
]


@pytest.mark.parametrize(("axes", "degrees"), LAYOUTS, ids=lambda one: "-".join(f"{key}{value}" for key, value in one.items()))
def test_a_decode_step_of_experts_is_what_a_search_says(axes: dict[str, int], degrees: dict[str, int]) -> None:
    sets = ["workload.sizes.b=64", "workload.sizes.t=2001", "accelerators=8"]
    sets += [f"axes.{axis}.degree={degree}" for axis, degree in axes.items()]
    found = search("dgx_h200", MOE, "serving", sets=sets, profile="torchtitan").result
    mine = served(MOE, "torchtitan", **degrees).price(Steps.of(decodes=64, context=2000))
    assert mine.seconds[0] == pytest.approx(found.latency_s, rel=1e-12)
    assert mine.joules[0] == pytest.approx(found.energy_j, rel=1e-12)


def test_prompts_of_latent_attention_are_what_a_search_says_of_many_new_tokens() -> None:
    sets = ["workload.sizes.b=2", "workload.sizes.s=1024", "workload.sizes.t=3072", "accelerators=8", "axes.ti.degree=8"]
    found = search("dgx_h200", MLA, "serving", sets=sets, profile="torchtitan").result
    mine = served(MLA, "torchtitan", tensor=8).price(Steps.of(prefill=2048, prompts=2, before=2048))
    assert mine.seconds[0] == pytest.approx(found.latency_s, rel=1e-9)


def collectives(figures: StepFigures, ends: str = "") -> set[tuple[str, str]]:
    return {(row.tensor, row.action) for row in figures.ledger.where(component="network") if row.einsum.endswith(ends)}


def test_collectives_follow_from_how_experts_lie() -> None:
    step = Steps.of(decodes=64, context=1000)
    inside = collectives(served(MOE, tensor=8).price(step))
    assert inside == {("X", "all_reduce"), ("O", "all_reduce"), ("M", "all_reduce")}
    assert collectives(served(MOE, tensor=8, expert=8).price(step)) == inside
    assert collectives(served(MOE, attention_data=8, expert=8).price(step)) == {("D", "all_to_all"), ("E", "all_to_all")}
    gathered = collectives(served(MOE, attention_data=8).price(step))
    assert gathered == {("N2", "all_gather"), ("RG", "all_gather"), ("M", "reduce_scatter")}


def read(figures: StepFigures, tensor: str) -> float:
    return float(sum(row.amount[0] for row in figures.ledger.where(tensor=tensor, level="gpu", action="read")))


def test_only_experts_that_some_token_is_sent_to_are_read() -> None:
    """By hand: 8 of 128 experts a token; n tokens reach 128 (1 - (1 - 8/128)^n) of them."""
    model, one = served(MOE), 2048 * 768 * 2  # bytes of an expert's matrix
    for tokens in (1, 16, 1000):
        figures = model.price(Steps.of(decodes=tokens, context=1))
        assert read(figures, "WXG") == pytest.approx(48 * one * 128 * (1 - (1 - 8 / 128) ** tokens), rel=1e-9)


def test_tokens_of_prompts_and_decodes_reach_experts_together() -> None:
    model = served(MOE)
    mixed = model.price(Steps.of(decodes=8, context=100, prefill=8, prompts=1))
    assert read(mixed, "WXG") == pytest.approx(read(model.price(Steps.of(decodes=16, context=100)), "WXG"))


def test_ranks_of_sequences_send_their_tokens_to_all_experts() -> None:
    alone, ranks = (served(MOE, **degrees).price(Steps.of(decodes=64, context=9)) for degrees in ({}, {"attention_data": 8, "expert": 8}))
    assert read(ranks, "WXG") == pytest.approx(read(alone, "WXG"))  # of all accelerators: each expert lies on one of them
    assert read(ranks, "WQ") == pytest.approx(8 * read(alone, "WQ"))


def test_decodes_absorb_what_prompts_expand() -> None:
    model = served(MLA, tensor=8)
    decode = model.price(Steps.of(decodes=16, context=1000)).ledger
    prompt = model.price(Steps.of(prefill=2048, prompts=1)).ledger
    mixed = model.price(Steps.of(decodes=16, context=1000, prefill=2048, prompts=1)).ledger
    names = [{row.einsum for row in ledger if float(row.amount[0]) > 0} for ledger in (decode, prompt, mixed)]
    absorbed, expanded = {"absorb", "unabsorb"}, {"expandK", "expandV"}
    assert absorbed <= names[0]
    assert expanded <= names[1]
    assert not expanded & names[0]
    assert not absorbed & names[1]
    assert names[0] | names[1] == names[2]


def test_attention_of_a_mixed_step_is_that_of_its_decodes_and_its_prompts() -> None:
    model = served(MLA, tensor=8)
    steps = [Steps.of(decodes=16, context=1000), Steps.of(prefill=2048, prompts=1, before=512)]
    mixed = Steps.of(decodes=16, context=1000, prefill=2048, prompts=1, before=512)
    ledgers = [model.price(one).ledger.where(einsum=["AV_2", "QKc_2"]) for one in (mixed, *steps)]
    both, *alone = (sum(row.exposed_seconds[0] for row in ledger) for ledger in ledgers)
    assert both == pytest.approx(sum(alone))


def test_a_step_is_no_shorter_with_more_to_do() -> None:
    model = served(MOE, "torchtitan", tensor=2, attention_data=2, expert=4)
    counts = list(product((0, 1, 7, 64), (0, 100, 3000), (0, 64, 1000)))
    steps = [(a, b, c) for a, b, c in counts if a or c]
    price = model.price(
        Steps.of(decodes=[a for a, _, _ in steps], context=[b for _, b, _ in steps], prefill=[c for _, _, c in steps], prompts=1)
    ).seconds
    seconds = dict(zip(steps, price, strict=True))
    assert np.all(price > 0)
    for a, b, c in steps:
        for other in ((a + 6 * (a == 1), b, c), (a, 3000 if b == 100 else b, c), (a, b, 1000 if c == 64 else c)):
            if other in seconds:
                assert seconds[other] >= seconds[(a, b, c)] * (1 - 1e-9)


@pytest.mark.parametrize("degrees", [{"tensor": 8}, {"tensor": 8, "expert": 8}, {"tensor": 4, "expert": 2, "expert_tensor": 2}])
def test_routed_and_shared_experts_are_reduced_together(degrees: dict[str, int]) -> None:
    figures = served(MLA, **degrees).price(Steps.of(decodes=64, context=1000))
    reduced = {("O", "all_reduce"), ("D", "all_reduce"), ("O_2", "all_reduce"), ("M_2", "all_reduce"), ("X", "all_reduce")}
    assert collectives(figures) == reduced


def test_ranks_of_sequences_keep_shared_experts_to_themselves() -> None:
    figures = served(MLA, attention_data=8, expert=8).price(Steps.of(decodes=64, context=1000))
    assert collectives(figures) == {("D_2", "all_to_all"), ("E_2", "all_to_all")}


@pytest.mark.parametrize(("words", "alone"), [("dealt:cutlass triton", ("triton", "cutlass")), ("deepgemm", ("deepgemm", "deepgemm"))])
def test_kernels_of_experts_are_those_of_how_each_deployment_deals_them(words: str, alone: tuple[str, str]) -> None:
    """Deployments of one model, priced together: parts of all experts by one kernel, experts of its own by another."""
    fp8 = ["workload.precision.weight=fp8_block", "workload.precision.product=fp8_block"]
    deployments = Deployment(tensor=4), Deployment(tensor=4, expert=4)

    def model(experts: str, *of: Deployment) -> ServedModel:
        return ServedModel(
            workload=read_workload("qwen3_235b_decoder", fp8),
            architecture=read_architecture("dgx_h200", ["accelerators=4"]),
            profile=read_profile("vllm").model_copy(update={"experts": experts}),
            deployment=of[0],
            others=of[1:],
        )

    both = model(words, *deployments).price(Steps.of(decodes=16, context=1000, mesh=[0, 1]))
    for place, (kernel, deployment) in enumerate(zip(alone, deployments, strict=True)):
        one = model(kernel, deployment).price(Steps.of(decodes=16, context=1000))
        assert both.seconds[place] == pytest.approx(one.seconds[0], rel=1e-12)
        assert both.joules[place] == pytest.approx(one.joules[0], rel=1e-12)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
@pytest.mark.parametrize("degrees", [{"tensor": 4}, {"tensor": 4, "expert": 4}], ids=["parts", "dealt"])
def test_experts_scaled_by_tensor_are_read_at_the_memorys_rate(engine: str, degrees: dict[str, int]) -> None:
    """An engine tries its tactics at its start: 64 tokens hit 128 (1 - (1 - 8/128)^64) = 126 experts of 94 layers, 18.9 MB each at fp8,
    a quarter of them an accelerator: 16.7 ms at 3.35 TB/s (some fewer, as some experts are asked for more often). A kernel that reads at
    a fifth of the memory's rate takes 83."""
    fp8 = ["workload.precision.weight=fp8", "workload.precision.product=fp8"]
    model = ServedModel(
        workload=read_workload("qwen3_235b_decoder", fp8),
        architecture=read_architecture("dgx_h100", ["accelerators=4"]),
        profile=read_profile(engine),
        deployment=Deployment(**degrees),
    )
    ledger = model.price(Steps.of(decodes=64, context=100)).ledger
    rows = [row for name in ("WXG", "WXU", "WXD") for row in ledger.where(tensor=name, action="read", level="gpu")]
    seconds = sum(float(np.sum(row.seconds)) for row in rows)
    read = 94 * 128 * (1 - (1 - 8 / 128) ** 64) * 3 * 4096 * 1536 / 4 / 3.35e12
    assert seconds == pytest.approx(read, rel=0.2)


def test_rows_that_are_laid_out_cost_whatever_comes() -> None:
    """A call that lays out 128 rows for each of 128 experts: 4 tokens take as long as 64 but for the weights that more of them hit."""
    fp8 = ["workload.precision.weight=fp8_block", "workload.precision.product=fp8_block"]
    model = ServedModel(
        workload=read_workload("qwen3_235b_decoder", fp8),
        architecture=read_architecture("dgx_h200", ["accelerators=4"]),
        profile=read_profile("vllm").model_copy(update={"experts": "deepgemm"}),
        deployment=Deployment(tensor=4),
    )
    figures = model.price(Steps.of(decodes=[4, 64], context=100))
    few, many = figures.seconds
    assert many < 1.35 * few
    assert few > 128 * 128 * 2 * 3 * 4096 * 384 * 94 / 1979e12
    made = sum(row.amount for row in figures.ledger.where(tensor="G", level="gpu", action="write"))
    assert made[0] > 128 * 127 * 384 * 2 * 94  # all rows of the gate are written, too
