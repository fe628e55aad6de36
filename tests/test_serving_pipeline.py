"""A pipeline of batches: its law against batches run one by one, and what no law may exceed: the work of its busiest stage."""

from __future__ import annotations

import numpy as np
import pytest

from rackmodel.serving import batches
from rackmodel.serving.admission import Trace
from rackmodel.serving.requests import Requests, Schedule
from rackmodel.serving.rhythm import longest
from rackmodel.serving.steady import Steady, closed_loop, closed_loop_as_run
from rackmodel.serving.trace import drawn_trace, simulate
from tests import samples
from tests.serving_models import LinearModel

LEAST = 0.8
SPREAD = (1.0 - LEAST) / (1.0 + LEAST) / 3**0.5  # lengths evenly from 0.8 to 1 of the longest
ROOMY = np.array([1e9])


def _trace(count: int, prompt: float, output: float, least: float) -> Trace:
    draw = np.random.default_rng(3)
    sides = [(2.0 * least * mean / (1.0 + least), 2.0 * mean / (1.0 + least)) for mean in (prompt, output)]
    prompts, outputs = (np.maximum(np.round(draw.uniform(*side, count)), 1.0) for side in sides)
    return Trace(arrival_s=np.zeros(count), prompt=prompts, output=outputs)


def _law(stages: int, clients: float, lengths: tuple[float, float], variation: float = 0.0, **facts: float) -> Steady:
    schedule = Schedule.of(stages=stages, **facts)
    requests = Requests.of(prompt=lengths[0], output=lengths[1], variation=variation)
    return closed_loop(LinearModel(stages=stages), requests, schedule, np.array([float(clients)]), ROOMY)


@pytest.mark.parametrize("mixed", [1, 0])
@pytest.mark.parametrize("stages", [1, 2, 4])
@pytest.mark.parametrize(("prompt", "output"), [(1000, 100), (300, 300), (100, 1000)])
@pytest.mark.parametrize("clients", samples.some([64, 8, 400], 3))
def test_the_law_makes_as_many_requests_as_batches_run_one_by_one(mixed: int, stages: int, prompt: int, output: int, clients: int) -> None:
    count = 12 * clients
    schedule = Schedule.of(stages=stages, mixed=mixed)
    figures = simulate(LinearModel(stages=stages), _trace(count, prompt, output, LEAST), schedule, 1e12, clients)
    steady = slice(count // 3, 4 * count // 5)
    law = _law(stages, clients, (prompt, output), SPREAD, mixed=mixed)
    assert law.requests_per_s[0] == pytest.approx(clients / figures.total_s[steady].mean(), rel=0.04 if stages < 4 else 0.08)


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_clients_whose_prompts_fill_an_engine_wait_for_it(stages: int) -> None:
    """Equal lengths, 778 in and 73 out: decodes are no more than full batches keep going, however many clients there are."""
    count = 6 * 1500
    schedule = Schedule.of(stages=stages, chunked=0)
    figures = simulate(LinearModel(stages=stages), _trace(count, 778, 73, 1.0), schedule, 1e12, 1500)
    law = _law(stages, 1500, (778, 73), chunked=0)
    steady = slice(count // 3, 4 * count // 5)
    assert law.requests_per_s[0] == pytest.approx(1500 / figures.total_s[steady].mean(), rel=0.02)
    assert law.tpot_s[0] == pytest.approx(figures.tpot_s[steady].mean(), rel=0.03)


@pytest.mark.parametrize("mixed", [1, 0])
@pytest.mark.parametrize("output", [1, 2])
@pytest.mark.parametrize(("prompt", "clients"), [(100, 400), (1024, 16), (1024, 64), (8000, 4)])
def test_short_answers_are_no_faster_than_prompts_are_worked_off(prompt: int, clients: int, output: int, mixed: int) -> None:
    """Steps are scheduled ahead, and nearly all of them are full of prompts: twice as many requests were said to be served."""
    schedule, count = Schedule.of(ahead=1, mixed=mixed), 20 * clients
    figures = simulate(LinearModel(), _trace(count, prompt, output, 1.0), schedule, 1e12, clients)
    law = _law(1, clients, (prompt, output), ahead=1, mixed=mixed)
    steady = slice(count // 3, 4 * count // 5)
    assert law.requests_per_s[0] == pytest.approx(clients / figures.total_s[steady].mean(), rel=0.09)
    assert law.requests_per_s[0] * law.rhythm.drain_s[0] < 1.001
    if output == 1:
        assert law.ttft_s[0] == pytest.approx(figures.total_s[steady].mean(), rel=0.11)


@pytest.mark.parametrize("mixed", [1, 0])
def test_a_request_is_seen_when_the_oldest_batch_under_way_has_left_the_last_stage(mixed: int) -> None:
    """Two clients of two stages: the second one's prompt comes while the first one's is under way, and is worked on after it."""
    model, schedule = LinearModel(stages=2), Schedule.of(stages=2, mixed=mixed, ahead=1)
    trace = Trace(arrival_s=np.array([0.0, 1e-4]), prompt=np.full(2, 1000.0), output=np.ones(2))
    whole = model.floor_s + model.prompt_floor_s + 1000 * model.token_s
    assert simulate(model, trace, schedule, 1e12).ttft_s == pytest.approx([whole, 2 * whole - 1e-4])


@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize(("prompt", "output"), [(1024, 8), (1024, 32), (8000, 8)])
@pytest.mark.parametrize("clients", samples.some([64, 256], 1))
def test_prompts_that_go_first_fill_a_pipeline_once(stages: int, prompt: int, output: int, clients: int) -> None:
    """Clients of equal lengths, whose prompts come together: as many fills as stages made them up to 25 % too slow."""
    facts, count = {"mixed": 0, "ahead": 1, "request_s": 3e-3}, 15 * clients
    schedule = Schedule.of(stages=stages, **facts)
    figures = simulate(LinearModel(stages=stages), _trace(count, prompt, output, 1.0), schedule, 1e12, clients)
    law = _law(stages, clients, (prompt, output), **facts)
    steady = slice(count // 3, 4 * count // 5)
    assert law.requests_per_s[0] == pytest.approx(clients / figures.total_s[steady].mean(), rel=0.07)


@pytest.mark.parametrize("mixed", [1, 0])
@pytest.mark.parametrize("stages", [1, 2, 4])
def test_more_clients_are_served_no_fewer_requests(mixed: int, stages: int) -> None:
    for lengths in ((1024, 16), (200, 8), (4000, 64), (300, 300), (1024, 1)):
        for variation in (0.0, SPREAD):
            clients = 2.0 ** np.arange(11)
            requests = Requests.of(11, prompt=lengths[0], output=lengths[1], variation=variation)
            schedule = Schedule.of(11, stages=stages, mixed=mixed, ahead=1, request_s=3e-3)
            rates = closed_loop(LinearModel(stages=stages), requests, schedule, clients, np.full(11, 1e9)).requests_per_s
            assert np.all(rates[1:] > 0.98 * rates[:-1]), (lengths, variation, rates)


@pytest.mark.parametrize("variation", [0.0, SPREAD])
def test_no_more_is_served_than_the_busiest_stage_can_work_off(variation: float) -> None:
    draw = np.random.default_rng(11)
    for _ in range(samples.cases(100, 300)):
        facts = {"mixed": int(draw.random() < 0.7), "chunked": int(draw.random() < 0.5), "ahead": int(draw.random() < 0.5)}
        lengths = (float(np.round(10 ** draw.uniform(1.5, 4.3))), float(np.round(10 ** draw.uniform(0.0, 3.5))))
        stages, clients = int(draw.choice([1, 2, 4, 8])), np.round(10 ** draw.uniform(0, 3.5))
        law = _law(stages, clients, lengths, variation, **facts)
        beat = law.rhythm
        assert law.requests_per_s[0] * beat.drain_s[0] < 1.005
        token_s = LinearModel.decode_s + (lengths[0] + lengths[1] / 2) * LinearModel.cache_s
        worked = lengths[0] * LinearModel.token_s + (lengths[1] - 1) * token_s
        assert law.requests_per_s[0] * worked < stages * 1.001
        if facts["mixed"]:  # a step is a mean of steps: no decode is faster than one without prompts, nor slower than in full ones
            assert beat.decode_s[0] <= beat.step_s[0] * (1 + 1e-9)
            assert beat.step_s[0] <= beat.full_s[0] * 1.005


def test_stages_serve_no_more_than_so_many_times_as_much() -> None:
    draw = np.random.default_rng(12)
    for _ in range(samples.cases(40, 100)):
        lengths = (float(np.round(10 ** draw.uniform(1.5, 4.0))), float(np.round(10 ** draw.uniform(1.0, 3.5))))
        clients, mixed = np.round(10 ** draw.uniform(0, 3.0)), int(draw.random() < 0.7)
        one = _law(1, clients, lengths, SPREAD, mixed=mixed)
        for stages in (2, 4):
            more = _law(stages, stages * clients, lengths, SPREAD, mixed=mixed)
            assert more.requests_per_s[0] <= stages * one.requests_per_s[0] * 1.02


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_one_client_goes_through_all_stages_alone(stages: int) -> None:
    """A pipeline answers one client no sooner: its prompt and every token pass all the layers."""
    law, model = _law(stages, 1, (1000, 101)), LinearModel()
    assert law.ttft_s[0] == pytest.approx(model.floor_s + model.prompt_floor_s + 1000 * model.token_s)
    assert law.tpot_s[0] == pytest.approx(model.floor_s + model.decode_s + 1050.5 * model.cache_s)


def test_one_clients_joules_are_those_of_the_time_it_holds_a_pipeline() -> None:
    """Of a machine that draws the same whatever it does, nothing is saved by batches that are not there."""
    one, four = (_law(stages, 1, (1000, 101)) for stages in (1, 4))
    assert four.joules_per_token[0] == pytest.approx(one.joules_per_token[0], rel=0.02)


def test_a_prompt_that_may_not_be_cut_is_worked_on_whole() -> None:
    law, model = _law(1, 1, (20000, 101), chunked=0), LinearModel()
    assert law.ttft_s[0] == pytest.approx(model.floor_s + model.prompt_floor_s + 20000 * model.token_s)


@pytest.mark.parametrize("stages", [2, 4, 8])
@pytest.mark.parametrize("rate", [0.05, 0.4, 1.5])
def test_the_longest_batch_is_that_of_drawn_ones(stages: int, rate: float) -> None:
    share = 1.0 - np.exp(-rate)
    drawn = np.minimum(np.random.default_rng(5).poisson(rate, (200_000, stages)), 8).max(axis=1).mean()
    found = longest(*(np.array([x]) for x in (share, rate / share, 8.0, float(stages))))
    assert found[0] == pytest.approx(drawn, rel=0.05)
    full = longest(*(np.array([x]) for x in (1.0, 8.0, 8.0, float(stages))))
    assert full[0] == pytest.approx(8.0)


@pytest.mark.parametrize(("stages", "clients", "milliseconds"), [(2, 3, 9.0), (4, 5, 9.0), (4, 8, 9.0), (4, 2, 7.0), (8, 17, 11.0)])
def test_the_fullest_batch_sets_the_pace_of_all(stages: int, clients: int, milliseconds: float) -> None:
    """Batches do not overtake: 5 ms and 2 for each sequence of the fullest. Three of two stages are two and one, so that all wait for 9
    (by the mean, 8); 17 of eight are three and seven times two (9.25)."""
    model = LinearModel(stages=stages, decode_s=2e-3, cache_s=0.0, token_s=0.0, prompt_floor_s=0.0)
    requests, schedule = Requests.of(prompt=1, output=2001), Schedule.of(stages=stages)
    found = closed_loop_as_run(model, requests, schedule, np.array([float(clients)]), ROOMY)
    assert found.tpot_s[0] == pytest.approx(milliseconds * 1e-3, rel=2e-3)


DEEP = [
    (8, 48, 940, 18, 1, 256),
    (4, 24, 7121, 328, 0, 256),
    (16, 15, 866, 596, 0, 256),
    (16, 37, 95, 92, 1, 8192),
    (2, 12, 3346, 84, 1, 256),
]


@pytest.mark.parametrize(("stages", "clients", "prompt", "output", "mixed", "budget"), samples.some(DEEP, 2))
def test_clients_of_a_pipeline_are_run(stages: int, clients: int, prompt: int, output: int, mixed: int, budget: int) -> None:
    """Twice as long a run of their requests. By the law of even batches they were 123, 70, 85, 14 and 48 % more a second."""
    model = LinearModel(stages=stages, decode_s=2e-3)
    schedule = Schedule.of(stages=stages, mixed=mixed, token_budget=budget, request_s=1e-3)
    requests = Requests.of(prompt=prompt, output=output)
    found = closed_loop_as_run(model, requests, schedule, np.array([float(clients)]), ROOMY)
    run = simulate(model, drawn_trace(48 * clients, (prompt, output, 1.0), None, 1), schedule, 1e12, clients)
    middle = slice(clients, -clients)
    assert found.requests_per_s[0] == pytest.approx(clients / run.total_s[middle].mean(), rel=0.02)
    assert found.ttft_s[0] == pytest.approx(run.ttft_s[middle].mean(), rel=0.03)
    assert found.tpot_s[0] == pytest.approx(run.tpot_s[middle].mean(), rel=0.02)


STRIDES = [(2, 16, 711, 396), (40, 87, 108, 260), (16, 13, 263, 191), (8, 3, 5000, 64)]


@pytest.mark.parametrize(("stages", "clients", "prompt", "output"), STRIDES)
def test_laps_in_one_stride_are_those_one_by_one(
    stages: int, clients: int, prompt: int, output: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, schedule = LinearModel(stages=stages), Schedule.of(stages=stages, token_budget=512, request_s=1e-3)
    trace = drawn_trace(6 * clients, (prompt, output, 1.0), None, 1)
    strides = simulate(model, trace, schedule, 1e12, clients)
    monkeypatch.setattr(batches, "FEWEST_LAPS", 10**9)
    each = simulate(model, trace, schedule, 1e12, clients)
    assert strides.ttft_s == pytest.approx(each.ttft_s, rel=2e-3)
    assert strides.total_s == pytest.approx(each.total_s, rel=1e-3)
    assert strides.joules == pytest.approx(each.joules, rel=1e-3)
