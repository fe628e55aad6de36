"""Prompts of ranks of attention data: each rank has a budget of its own, which no prompt that it works on goes beyond."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from rackmodel.serving.admission import Trace
from rackmodel.serving.ask import service_of
from rackmodel.serving.engine import ServingEngine
from rackmodel.serving.offers import Widths, engine_of
from rackmodel.serving.requests import Requests, prompt_parts
from rackmodel.serving.rhythm import decode_steps, prompt_room
from rackmodel.serving.steady import closed_loop, open_arrivals
from rackmodel.serving.step_table import Extent, StepTable
from rackmodel.serving.steps import Deployment, Steps
from rackmodel.serving.trace import drawn_trace, simulate
from tests.serving_models import served_on

NONE, ONE = np.zeros(1), np.ones(1)
LLAMA = ("dgx_h100", "llama3_8b_decoder", "vllm", 2, 1)
DEEPSEEK = ("dgx_b200", "deepseek_v3_decoder", "sglang", 8, 8)


@cache
def _engine(machine: str, model: str, engine: str, ranks: int, expert: int) -> ServingEngine:
    deployment = Deployment(attention_data=ranks, expert=expert, expert_tensor=ranks // expert)
    service = service_of(machine, model, (), engine, (1000, 100, 0.0), accelerators=deployment.accelerators)
    return engine_of(service, deployment, Widths())


@pytest.mark.parametrize(
    ("tokens", "fresh", "ranks", "parts"),
    [
        (16384, 20000, 2, 2),  # one prompt's 8,192 on each
        (8192, 20000, 2, 1),  # of one alone
        (65536, 8000, 8, 16),  # dealt whole, 9 of 8.2 are two on one rank, 16,000 tokens: it has 8,000 of one and 192 of another
        (50000, 5000, 8, 2 * 50000 / 8192),  # ten, two on some: 5,000 and 3,192
        (24000, 3000, 4, 8),  # two each, 6,000 tokens: whole ones
        (16384, 8000, 1, 2.048),  # nobody to deal them to
    ],
)
def test_parts_of_prompts_by_hand(tokens: float, fresh: float, ranks: int, parts: float) -> None:
    assert prompt_parts(tokens * ONE, fresh, 8192.0, ranks)[0] == pytest.approx(parts)


@pytest.mark.parametrize(("prompt", "before"), [(8000, 1952.0), (5000, 452.0), (20000, 5904.0)])
def test_a_full_step_takes_what_the_budget_of_a_rank_takes(prompt: int, before: float) -> None:
    """Two ranks of 8,192 tokens each; behind what earlier steps have of a prompt, in the mean (P - part) / 2. The law gave one rank both
    prompts of 8,000 (377 ms in the place of 194), or two of 5,000 (227 of 184), or all 16,384 of a longer one; a trace's steps likewise."""
    engine = _engine(*LLAMA)
    requests, schedule = Requests.of(prompt=prompt, output=100), engine.scheduled(1)
    parts = 2.0 if prompt > 8192 else 4.0
    by_hand = engine.price(Steps.of(prefill=16384.0, prompts=parts, before=before)).seconds[0]
    law = engine.price(decode_steps(requests, schedule, NONE, prompt_room(schedule, NONE)))
    assert law.seconds[0] == pytest.approx(by_hand, rel=1e-9)
    extent = Extent(sequences=4, context=2.0 * prompt, tokens=16384, before=2 * before, prompt=prompt, ranks=2, part=8192)
    seconds, _ = StepTable(engine, extent).step(0, 0.0, 16384.0, before)
    assert seconds == pytest.approx(by_hand, rel=1e-6)


@pytest.mark.parametrize(
    ("served", "prompt", "clients"),
    [(LLAMA, 8000, 64), (LLAMA, 5000, 16), (DEEPSEEK, 8000, 1), (DEEPSEEK, 8000, 4), (DEEPSEEK, 8000, 64), (DEEPSEEK, 1000, 256)],
)
def test_the_law_agrees_with_requests_run_one_by_one(served: tuple[str, str, str, int, int], prompt: int, clients: int) -> None:
    """Of 64 clients of two ranks it had 36 % fewer requests a second, and first tokens twice as late; that of a prompt which one rank of
    eight works on in four steps came in 0.34 s in the place of 0.56, as if all eight did."""
    engine, count = _engine(*served), max(12 * clients, 30)
    requests, schedule = Requests.of(prompt=prompt, output=200), engine.scheduled(1)
    law = closed_loop(engine, requests, schedule, clients * ONE, engine.room(requests, schedule))
    run = simulate(engine, drawn_trace(count, (prompt, 200.0, 1.0)), schedule, engine.cache_tokens, clients, engine.held_tokens)
    middle = slice(clients, -clients)
    assert law.requests_per_s[0] == pytest.approx(clients / run.total_s[middle].mean(), rel=0.04)
    assert law.ttft_s[0] == pytest.approx(run.ttft_s[middle].mean(), rel=0.22)
    assert law.tpot_s[0] == pytest.approx(run.tpot_s[middle].mean(), rel=0.08)


@pytest.mark.parametrize(("served", "weight", "but"), [(LLAMA, "WO", ()), (DEEPSEEK, "WO_2", ("combine_2",))])
def test_ranks_run_the_operations_that_there_are(served: tuple[str, str, str, int, int], weight: str, but: tuple[str, ...]) -> None:
    """16 sequences that decode and three prompts, on all ranks together as on one accelerator; each reads all its weights. All ranks were
    charged the operations and joules of the one with most: of eight, 2.7 times as many. What experts made is summed by the ranks of all."""
    steps = Steps.of(decodes=16.0, new=1.0, context=1000.0, prefill=6000.0, prompts=3.0)
    machine, model, name, ranks, expert = served
    ledgers = [_engine(machine, model, name, *degrees).price(steps).ledger.at(0) for degrees in ((ranks, expert), (1, 1))]
    found = [ledger.where(component="compute", action="mac").group(("einsum",), "amount") for ledger in ledgers]
    assert {name for (name,), amount in found[1].items() if found[0][name,] != pytest.approx(amount, rel=1e-9)} <= set(but)
    read = [ledger.where(tensor=weight, level="gpu", action="read").total("amount") for ledger in ledgers]
    assert read[0] == pytest.approx(ranks * read[1])


@pytest.mark.parametrize("step", [{"decodes": 1.0, "new": 1.0, "context": 1e5}, {"prefill": 8000.0, "prompts": 1.0}])
def test_a_rank_that_has_all_takes_as_long_as_one_accelerator(step: dict[str, float]) -> None:
    """Without measured attention, too: of a roofline's bytes each of eight ranks had an eighth, 2.1 ms in the place of 3.6."""
    served = served_on("dgx_b200", profile="ideal")
    alone, joint = (served("llama3_8b_decoder", attention_data=ranks, expert_tensor=ranks).price(Steps.of(**step)) for ranks in (1, 8))
    assert joint.seconds[0] == pytest.approx(alone.seconds[0], rel=1e-9)


@pytest.mark.parametrize(("engine", "prompt", "output"), [("vllm", 108, 11), ("trtllm", 289, 6)])
def test_requests_that_come_at_random_fill_one_rank_and_are_waited_for_by_all(engine: str, prompt: int, output: int) -> None:
    """At half of what four ranks serve: a chain of batches whose prompts are as even as decodes had first tokens 65 % too soon and 52 too
    late."""
    served = _engine("dgx_h200", "qwen3_30b_a3b_decoder", engine, 4, 4)
    requests, schedule, room = Requests.of(prompt=prompt, output=output, variation=0.13), served.scheduled(1), np.full(1, 400.0)
    rate = 0.5 * closed_loop(served, requests, schedule, room, room).requests_per_s
    found, draw, count = open_arrivals(served, requests, schedule, rate, room), np.random.default_rng(7), 2000
    wide = 3**0.5 * 0.13
    prompts, outputs = (np.maximum(np.round(mean * draw.uniform(1.0 - wide, 1.0 + wide, count)), 1.0) for mean in (prompt, output))
    trace = Trace(arrival_s=np.cumsum(draw.exponential(1.0 / rate[0], count)), prompt=prompts, output=outputs)
    run, middle = simulate(served, trace, schedule, float(room[0]), None, np.ones_like), slice(200, -100)
    assert found.ttft_s[0] == pytest.approx(run.ttft_s[middle].mean(), rel=0.05)
    assert found.tpot_s[0] * (output - 1) == pytest.approx((run.total_s - run.ttft_s)[middle].mean(), rel=0.08)
