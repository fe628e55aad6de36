"""Requests run step by step and token by token (served_one_by_one.py) against `serve-trace`'s and the law of the steady state."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rackmodel.serving.kept_drafts import run_steps, steps_of_answers
from rackmodel.serving.requests import Requests, Schedule
from rackmodel.serving.steady import closed_loop, closed_loop_as_run
from rackmodel.serving.trace import RequestFigures, Trace, simulate
from tests.served_one_by_one import Price, Rules, Run
from tests.serving_models import LinearModel

KINDS = ("plain", "ranks", "reused prefixes", "drafts that are all kept or none")
SAME = ("budget", "chunked", "mixed", "ranks", "drafted", "accepted", "ahead", "request_s", "tokenize_s", "sequences")


def _price(wide: int) -> Price:
    """LinearModel's, of sequences of so many tokens in a step."""
    one = LinearModel()

    def price(sequences: int, cached: float, prompt: float) -> float:
        of_prompt = one.token_s * prompt + one.prompt_floor_s if prompt else 0.0
        return one.floor_s + one.decode_s * sequences * wide + one.cache_s * cached + of_prompt

    return price


def _drawn(kind: str, number: int) -> Rules:
    pick = random.Random(f"{kind} {number}")
    clients = round(10 ** pick.uniform(0.0, 1.7))
    count, means = 4 * clients, (10 ** pick.uniform(1.3, 4.0), 10 ** pick.uniform(0.0, 2.0))
    prompts, outputs = ([float(max(1, round(pick.uniform(0.5, 1.5) * mean))) for _ in range(count)] for mean in means)
    drafted = pick.choice([1, 3]) if kind == KINDS[3] else 0
    gap = pick.choice([0.01, 0.1, 1.0])
    arrivals = np.cumsum([pick.expovariate(1.0 / gap) for _ in range(count)]).tolist()
    return Rules(
        price=_price(1 + drafted),
        prompts=prompts,
        outputs=outputs,
        clients=clients,
        arrivals=pick.choice([None, None, arrivals]),
        budget=pick.choice([256, 512, 2048, 8192]),
        chunked=pick.random() < 0.7,
        mixed=pick.random() < 0.5,
        ranks=pick.choice([2, 8]) if kind == KINDS[1] else 1,
        reused=pick.choice([0.25, 0.75, 1.0]) if kind == KINDS[2] else 0.0,
        drafted=drafted,
        accepted=pick.choice([0.0, 1.0]) if drafted else 0.0,
        ahead=pick.choice([0, 1]),
        request_s=pick.choice([0.0, 3e-3]),
        tokenize_s=pick.choice([0.0, 8e-6]),
        cache=pick.choice([1e18, (max(prompts) + max(outputs)) * pick.uniform(1.0, 6.0)]),
        share=pick.choice([0.5, 1.0]),
        sequences=pick.choice([1e9, 5]),
    )


def _traced(rules: Rules) -> RequestFigures:
    said: dict[str, Any] = {name: float(getattr(rules, name)) for name in SAME}
    schedule = Schedule.of(token_budget=said.pop("budget"), reserves=float(rules.share == 1.0), **said)
    arrivals = np.zeros(len(rules.prompts)) if rules.arrivals is None else np.array(rules.arrivals)
    trace = Trace(arrival_s=arrivals, prompt=np.array(rules.prompts), output=np.array(rules.outputs), reused=rules.reused)
    return simulate(LinearModel(), trace, schedule, rules.cache, rules.clients if rules.arrivals is None else None)


@pytest.mark.parametrize("kind", KINDS)
def test_requests_of_a_trace_meet_what_they_do_one_step_after_another(kind: str) -> None:
    """Every request, and joules that are watts times seconds. (Part of a token of a prompt is on a line of the table between two.)"""
    for number in range(25):
        rules = _drawn(kind, number)
        first, _, whole = Run(rules).figures()
        found = _traced(rules)
        close = 1e-9 if rules.reused in (0.0, 1.0) else 2e-2
        np.testing.assert_allclose(found.ttft_s.mean(), first.mean(), rtol=close, err_msg=f"{kind} {number}")
        np.testing.assert_allclose(found.total_s.mean(), whole.mean(), rtol=close, err_msg=f"{kind} {number}")
        assert found.joules == pytest.approx(10.0 * found.seconds, rel=1e-9)


# -- drafts that are kept by chance ----------------------------------------------------------------------------------------------------


def test_steps_of_drafts_that_are_kept_by_chance_by_hand() -> None:
    """One draft, kept one time in two: one token takes a step, two take 3 / 2, three 1 + (3 / 2 + 1) / 2 = 9 / 4; of two tokens one step or
    two vary by 1 / 4."""
    mean, variance = steps_of_answers(np.ones(4), np.full(4, 0.5), np.array([0.0, 1.0, 2.0, 3.0]))
    assert mean.tolist() == [0.0, 1.0, 1.5, 2.25]
    assert variance.tolist()[:3] == [0.0, 0.0, 0.25]


@pytest.mark.parametrize("accepted", [0.0, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("tokens", [7, 300, 5000])
def test_steps_of_answers_are_those_of_sums_of_capped_geometric_numbers(accepted: float, tokens: int) -> None:
    chances = np.array([1.0 - accepted, accepted * (1.0 - accepted), accepted**2])
    left, expected, squares, step = np.eye(1, tokens)[0], 0.0, 0.0, 0
    while left.sum() > 1e-12:  # of how many tokens there are, while there are too few
        expected, squares, step = expected + left.sum(), squares + (2 * step + 1) * left.sum(), step + 1
        left = np.convolve(left, [0.0, *chances])[:tokens]
    mean, variance = (float(one[0]) for one in steps_of_answers(np.array([2.0]), np.array([accepted]), np.array([float(tokens)])))
    assert mean == pytest.approx(expected, rel=1e-9)
    assert variance == pytest.approx(squares - expected**2, rel=1e-6, abs=1e-6)
    drawn = run_steps(np.random.default_rng(0), 2, accepted, np.full(4000, float(tokens)))
    assert drawn.mean() == pytest.approx(mean, abs=5.0 * np.sqrt(max(variance, 1e-12) / 4000))


LOOPS = {
    "prompts beside decodes": Rules(price=_price(4), prompts=[363.0], outputs=[98.0], clients=26, drafted=3, accepted=0.6),
    "long prompts": Rules(price=_price(2), prompts=[3230.0], outputs=[197.0], clients=40, drafted=1, accepted=0.8),
    "prompts first": Rules(price=_price(3), prompts=[973.0], outputs=[403.0], clients=12, drafted=2, accepted=0.8, mixed=False),
}


@pytest.mark.parametrize("name", list(LOOPS))
def test_clients_of_equal_lengths_part_by_the_drafts_that_are_kept(name: str) -> None:
    """As if each step had as many tokens, equal answers kept clients together for ever: first tokens came 3 to 7 times too late."""
    loop = LOOPS[name]
    clients, count = loop.clients, 40 * loop.clients
    rules = replace(loop, prompts=loop.prompts * count, outputs=loop.outputs * count, request_s=3e-3)
    middle = slice(2 * clients, count - clients)
    first, each, whole = (float(one[middle].mean()) for one in Run(replace(rules, kept=random.Random(0))).figures())
    found = _traced(rules)
    assert found.ttft_s[middle].mean() == pytest.approx(first, rel=0.06)
    assert found.tpot_s[middle].mean() == pytest.approx(each, rel=0.02)
    assert found.total_s[middle].mean() == pytest.approx(whole, rel=0.01)
    requests = Requests.of(prompt=loop.prompts[0], output=loop.outputs[0], waves=40)
    schedule = Schedule.of(mixed=float(loop.mixed), drafted=loop.drafted, accepted=loop.accepted, request_s=3e-3)
    law = closed_loop(LinearModel(), requests, schedule, np.array([float(clients)]), np.array([1e9]))
    assert float(law.ttft_s[0]) == pytest.approx(first, rel=0.2)
    assert float(law.tpot_s[0]) == pytest.approx(each, rel=0.06)
    assert float(law.requests_per_s[0]) == pytest.approx(clients / whole, rel=0.04)


FEW = {
    "3 steps": Rules(price=_price(4), prompts=[2500.0], outputs=[8.0], clients=20, drafted=3, accepted=0.6),
    "5 steps, prompts first": Rules(price=_price(6), prompts=[600.0], outputs=[13.0], clients=40, drafted=5, accepted=0.6, mixed=False),
    "10 steps": Rules(price=_price(3), prompts=[4000.0], outputs=[25.0], clients=12, drafted=2, accepted=0.8),
}


@pytest.mark.parametrize("name", list(FEW))
def test_clients_whose_drafts_leave_them_few_steps_are_run(name: str) -> None:
    """A law of means has their first tokens 5, 15 and 28 % too late and each after it 4, 4 and 5 % too soon."""
    loop = FEW[name]
    clients, count = loop.clients, 24 * loop.clients
    rules = replace(loop, prompts=loop.prompts * count, outputs=loop.outputs * count)
    middle = slice(clients, count - clients)
    first, each, whole = (float(one[middle].mean()) for one in Run(replace(rules, kept=random.Random(1))).figures())
    requests = Requests.of(prompt=loop.prompts[0], output=loop.outputs[0], waves=24)
    schedule = Schedule.of(mixed=float(loop.mixed), drafted=loop.drafted, accepted=loop.accepted)
    found = closed_loop_as_run(LinearModel(), requests, schedule, np.array([float(clients)]), np.array([1e9]))
    assert float(found.ttft_s[0]) == pytest.approx(first, rel=0.05)
    assert float(found.tpot_s[0]) == pytest.approx(each, rel=0.03)
    assert float(found.requests_per_s[0]) == pytest.approx(clients / whole, rel=0.02)


# -- clients between two whole numbers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clients", [1.5, 2.25])
def test_replicas_of_unlike_numbers_of_clients_have_as_many_of_them_as_are_there(clients: float) -> None:
    """Six clients of four replicas are one and two: requests a second x seconds of a request are 1.5 (Little), for of the busier ones there
    are more."""
    found = closed_loop_as_run(
        LinearModel(), Requests.of(prompt=3000, output=3), Schedule.of(mixed=0), np.array([clients]), np.array([1e9])
    )
    whole = float(found.ttft_s[0]) + 2.0 * float(found.tpot_s[0])
    assert float(found.requests_per_s[0]) * whole == pytest.approx(clients, rel=2e-3)
