"""Replicas whose tensor groups share out prompts' new tokens and decode, too: every group decodes all, experts dealt out over them."""

from __future__ import annotations

import numpy as np
import pytest

from rackmodel.api import search
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.serving.ask import service_of
from rackmodel.serving.launch import launches_of
from rackmodel.serving.offers import Offer, Widths, engine_of
from rackmodel.serving.search import ServingSpace, search_service
from rackmodel.serving.steps import StepFigures, Steps
from rackmodel.serving.trace import drawn_trace, simulate
from tests.commands import invoke
from tests.serving_models import served_on

GQA, MLA, MOE, WINDOWED = "llama3_70b_decoder", "deepseek_v3_decoder", "qwen3_30b_a3b_decoder", "gpt_oss_120b_decoder"


served = served_on("dgx_h200", "accelerators=8")


def rows_of(figures: StepFigures, at: int = 0) -> dict[tuple[str, ...], float]:
    found: dict[tuple[str, ...], float] = {}
    for row in figures.ledger.rows:
        if row.component != "static":
            key = row.einsum.split("_")[0], row.tensor.split("_")[0], row.component, row.action
            found[key] = found.get(key, 0.0) + float(np.broadcast_to(row.amount, figures.seconds.shape)[at])
    return {key: amount for key, amount in found.items() if amount}


def macs(figures: StepFigures, einsum: str, at: int = 0) -> float:
    return sum(amount for key, amount in rows_of(figures, at).items() if key[0] == einsum and key[3] == "mac")


def moved(figures: StepFigures, at: int = 0) -> dict[tuple[str, str], float]:
    return {(key[1], key[3]): amount for key, amount in rows_of(figures, at).items() if key[2] == "network"}


def test_each_group_decodes_what_one_alone_would() -> None:
    """As long a step, and four times of everything that is done, read, sent."""
    steps = Steps.of(decodes=16, context=1000)
    alone, four = served(GQA, tensor=2).price(steps), served(GQA, tensor=2, prompt_context=4).price(steps)
    assert four.seconds[0] == pytest.approx(alone.seconds[0], rel=1e-12)
    assert rows_of(four) == pytest.approx({key: 4 * amount for key, amount in rows_of(alone).items()})


def test_experts_of_decodes_are_dealt_out_and_summed() -> None:
    """Of 16 tokens 8 experts each, whichever rank has them, once: 2,048 x 768 multiplications and additions in 48 layers. Their sums, 2,048
    numbers of 2 bytes a token, go round the eight ranks: 2 (8 - 1) / 8 of them from each. All else is on all eight."""
    figures = served(MOE, prompt_context=8, expert=8).price(Steps.of(decodes=16, context=1000))
    assert macs(figures, "gate") == pytest.approx(48 * 2 * 16 * 8 * 2048 * 768)
    assert macs(figures, "Q") == pytest.approx(8 * 48 * 2 * 16 * 2048 * 32 * 128)
    assert macs(figures, "QK") == pytest.approx(8 * 48 * 2 * 16 * 1001 * 32 * 128)
    assert moved(figures) == pytest.approx({("M", "all_reduce"): 48 * 8 * 2 * 7 / 8 * 16 * 2048 * 2})


@pytest.mark.parametrize(("workload", "axes", "degrees"), [
    (MOE, {"ti": 1, "ne": 8}, {"prompt_context": 8, "expert": 8}),
    (MOE, {"ti": 2, "ne": 2, "ni": 2}, {"tensor": 2, "prompt_context": 4, "expert": 2, "expert_tensor": 4}),
    (MLA, {"te": 2, "ti": 1, "ne": 4}, {"tensor": 2, "prompt_context": 4, "expert": 8}),
])  # fmt: skip
def test_a_step_of_decodes_is_what_a_search_of_its_layout_says(workload: str, axes: dict[str, int], degrees: dict[str, int]) -> None:
    sets = ["workload.sizes.b=16", "workload.sizes.s=1", "workload.sizes.t=1001", "accelerators=8", "split.ne=[x, z]"]
    sets += ["split.ni=[y, +E, +E_2]", *(f"axes.{axis}.degree={degree}" for axis, degree in axes.items())]
    found = search("dgx_h200", workload, "serving", sets=sets, profile="torchtitan").result
    step = served(workload, "torchtitan", **degrees).price(Steps.of(decodes=16, context=1000))
    assert step.seconds[0] == pytest.approx(found.latency_s, rel=1e-12)
    assert step.joules[0] == pytest.approx(found.energy_j, rel=1e-12)


def test_decodes_beside_prompts_are_copied_to_every_group() -> None:
    """Of 2,048 tokens of a prompt behind 1,000 and 16 sequences of 4,000, four ranks have 512 and all 16. Products count rank by rank, keys
    and values query by query; each rank lacks the rows of the three others, copies among them."""
    ranks, prompt, before, decodes, context = 4, 2048, 1000, 16, 4000
    steps = Steps.of(decodes=decodes, context=context, prefill=prompt, prompts=1, before=before)
    figures = served(GQA, prompt_context=ranks).price(steps)
    rows = [prompt // ranks + decodes for _ in range(ranks)]
    scores = sum(before + token + 1 for token in range(prompt)) + ranks * decodes * (context + 1)
    assert macs(figures, "Q") == pytest.approx(80 * 2 * sum(rows) * 8192 * 64 * 128)
    assert macs(figures, "QK") == pytest.approx(80 * 2 * scores * 64 * 128)
    lacking = sum(sum(rows) - own for own in rows)
    found = moved(figures)
    assert found["KN", "all_gather"] == pytest.approx(80 * lacking * 8 * 128 * 2)
    assert found["Y", "all_gather"] == pytest.approx(lacking * 8192 * 2)
    assert macs(figures, "logits") == pytest.approx(ranks * 2 * (decodes + 1) * 8192 * 128256)


@pytest.mark.parametrize(("workload", "degrees"), [
    (GQA, {"tensor": 2, "prompt_context": 4}), (WINDOWED, {"prompt_context": 4, "expert": 4}), (MLA, {"prompt_context": 8, "expert": 8}),
])  # fmt: skip
def test_attention_of_a_mixed_step_is_that_of_its_two_parts(workload: str, degrees: dict[str, int]) -> None:
    """Windows as wide, latent queries absorbed for decodes alone, as in a step that has nothing else."""
    steps = Steps.of(decodes=[24, 24, 0], context=[3000, 3000, 0], prefill=[1536, 0, 1536], prompts=[2, 0, 2], before=[500, 0, 500])
    figures = served(workload, **degrees).price(steps)
    names = {key[0] for key in rows_of(figures) if key[0] in ("QK", "QKc", "QKo", "AV", "softmax", "absorb", "unabsorb", "expandK")}
    assert len(names) >= 2
    for name in names:
        both, decodes, prompts = (macs(figures, name, at) for at in range(3))
        assert both == pytest.approx(decodes + prompts)


def test_a_call_that_holds_both_takes_as_long_as_one_group_of_as_many_tokens() -> None:
    """vLLM's grouped queries: chunks and decodes are one call. A rank of four has a fourth of eight prompts' queries over all keys."""
    steps = Steps.of(decodes=64, context=2000, prefill=8192, prompts=8)
    shared = served(GQA, "vllm", prompt_context=4)
    parts = shared.price(Steps.of(decodes=[64, 64, 0], context=[2000, 2000, 0], prefill=[8192, 0, 8192], prompts=[8, 0, 8]))
    joined, alone = shared.price(steps), served(GQA, "vllm").price(steps)

    def seconds(figures: StepFigures, at: int = 0) -> float:
        return sum(float(row.exposed_seconds[at]) for row in figures.ledger.rows if row.einsum.split("_")[0] in ("QK", "AV"))

    assert seconds(joined) == pytest.approx(seconds(parts))
    assert max(seconds(parts, 1), seconds(parts, 2)) <= seconds(joined) < seconds(alone)


def test_memory_is_that_of_the_groups_whatever_they_run() -> None:
    for workload, degrees in ((GQA, {"tensor": 2}), (MLA, {"expert": 4})):
        shared, alone = served(workload, prompt_context=4, **degrees), served(workload, tensor=degrees.get("tensor", 1))
        assert shared.kv_bytes_per_token == pytest.approx(alone.kv_bytes_per_token)
    assert served(GQA, tensor=2, prompt_context=4).weights_each[0] == pytest.approx(served(GQA, tensor=2).weights_each[0])


def test_replicas_are_searched_and_a_trace_agrees() -> None:
    """One client of 16,384 tokens: of what its prompt takes beyond 8 us a token for its text and 3 ms on its way two groups take little
    more than half; they decode as one does."""
    service = service_of("dgx_h200", "qwen3_8b_decoder", ("accelerators=2",), "sglang", (16384.0, 64.0, 0.0))
    space = ServingSpace(tensor=(1, 2), pipeline=(1,), prompt_context=(1, 2), clients=(1.0, 2.0))
    answer = search_service(service, space, "ttft")
    found = {(one.deployment.tensor, one.deployment.prompt_context, one.clients): one for one in answer.offers if isinstance(one, Offer)}
    assert set(found) == {(1, 1, 1.0), (2, 1, 1.0), (2, 1, 2.0), (1, 2, 1.0), (1, 2, 2.0)}
    one = found[1, 2, 1.0]
    assert answer.best.figures == one.figures
    assert one.figures["tpot"] == pytest.approx(found[1, 1, 1.0].figures["tpot"], rel=1e-9)
    text = 16384 * 8e-6 + 3e-3
    assert 0.5 < (one.figures["ttft"] - text) / (found[1, 1, 1.0].figures["ttft"] - text) < 0.55
    engine = engine_of(service, one.deployment, Widths())
    run = simulate(engine, drawn_trace(12, (16384.0, 64.0, 1.0)), engine.schedule, engine.cache_tokens, 1, engine.held_tokens)
    assert run.ttft_s.mean() == pytest.approx(one.figures["ttft"], rel=0.03)
    assert run.tpot_s.mean() == pytest.approx(one.figures["tpot"], rel=0.01)
    assert {"--tensor-parallel-size=2", "--attn-cp-size=2"} <= {*launches_of("sglang", "a/model", one, 16448.0, service)[0].arguments}


def test_what_no_replica_can_is_refused_with_its_place() -> None:
    def run(*words: str) -> BaseException | None:
        return invoke([*words]).exception

    trace = ("serve-trace", "dgx_h200", GQA, "--concurrency", "1", "--requests", "2", "--tensor", "4", "--prompt-context", "2", "--engine")
    for words in (("serve", "dgx_h200", GQA, "--prompt-context", "2", "--engine"), trace):
        assert "vllm shares out that of mla, dsa alone" in str(run(*words, "vllm"))
        assert "trtllm shares out none" in str(run(*words, "trtllm"))
    asked = ("serve", "dgx_h200", GQA, "--engine", "sglang", "--prompt-context", "2", "--context", "2")
    problem = run(*asked)
    assert isinstance(problem, InputError)
    assert problem.path == "--prompt-context"
    problem = run("serve", "dgx_h200", GQA, "--engine", "sglang", "--tensor", "4", "--prompt-context", "3")
    assert isinstance(problem, InfeasibleError)
    assert "replicas of 12 accelerators (tensor x pipeline x attention data x prompts' context) do not divide the 8" in str(problem)


def test_a_trace_shares_prompts_out() -> None:
    words = ["serve-trace", "dgx_h200", "qwen3_8b_decoder", "--engine", "sglang", "--concurrency", "1", "--requests", "3", "--json"]
    words += ["--isl", "16384", "--osl", "32"]
    alone, shared = (invoke([*words, *more]) for more in ((), ("--prompt-context", "4")))
    first = [float(one.stdout.split('"ttft_s"')[1].split('"mean":')[1].split(",")[0]) for one in (alone, shared)]
    assert first[1] < 0.45 * first[0]
