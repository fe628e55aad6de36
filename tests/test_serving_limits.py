"""The law in its limits, where hands say what it must be: one client, few at random, and means between whole numbers of sequences."""

from __future__ import annotations

import numpy as np
import pytest

from rackmodel.inputs import read_profile
from rackmodel.serving.engine import ServingEngine
from rackmodel.serving.requests import Requests, Schedule
from rackmodel.serving.steady import closed_loop, open_arrivals
from rackmodel.serving.steps import Steps
from tests.serving_models import LinearModel


@pytest.mark.parametrize("mixed", [0, 1])
def test_each_chunk_of_a_lone_prompt_has_its_floor(mixed: int) -> None:
    """1,544 tokens in steps of 512 are four, of 25 ms and 20 us a token: 130.9 ms, and 20 on the way. Where prompts go first they were
    1,544 / 512 full ones, 106.3."""
    model = LinearModel(prompt_floor_s=20e-3)
    schedule = Schedule.of(mixed=mixed, token_budget=512.0, request_s=20e-3)
    found = closed_loop(model, Requests.of(prompt=1544, output=200), schedule, np.array([1.0]), np.array([100.0]))
    assert found.ttft_s[0] == pytest.approx(4 * 25e-3 + 1544 * 2e-5 + 20e-3, rel=1e-6)


@pytest.mark.parametrize(("stages", "seconds"), [(1, 48.48e-3), (2, 30.3e-3), (80, 12.5745e-3)])
def test_a_lone_prompt_of_whole_steps_is_cut_into_no_more(stages: int, seconds: float) -> None:
    """1,024 tokens in steps of 256 are four, of 7 ms and 20 us a token: 12.12 ms through all stages, the last 3 stages behind. The
    client's own sequence, which decodes later, left room for 255, so that five were said: 55.5, 33.3 and 11.7 ms."""
    schedule = Schedule.of(token_budget=256.0, stages=stages)
    found = closed_loop(LinearModel(stages=stages), Requests.of(prompt=1024, output=100), schedule, np.array([1.0]), np.array([100.0]))
    assert found.ttft_s[0] == pytest.approx(seconds, rel=1e-9)
    assert seconds == pytest.approx((stages + 3) / stages * 12.12e-3)


def test_a_mean_between_two_batches_is_padded_as_either() -> None:
    """Graphs of 1, 2, 4 and 8 sequences: of 1.25 in the mean three of four steps have one, and one has two; of 6 all have eight. (1.25 were
    said to be two: experts of twice as many tokens, at the lowest loads.)"""
    facts = read_profile("vllm").engine
    assert facts is not None
    said = {"padding": {2: 1, 4: 2, 64: 4}, "step_s": 0.0, "sequence_s": 0.0, "exposed_s": 0.0}
    model = LinearModel(cache_s=0.0)
    engine = ServingEngine(captured=model, launched=model, facts=facts.model_copy(update=said))
    found = engine.price(Steps.of(decodes=[1.0, 1.25, 4.5, 6.0, 8.0], context=100.0)).seconds
    assert (found - model.floor_s) / model.decode_s == pytest.approx([1.0, 1.25, 6.0, 8.0, 8.0])


@pytest.mark.parametrize("mixed", [0, 1])
def test_a_prompt_that_comes_to_an_idle_engine_is_alone(mixed: int) -> None:
    """One in a hundred finds another: 9 ms to its first token, where a second sequence in its step would add 5."""
    model, requests = LinearModel(decode_s=5e-3, cache_s=0.0), Requests.of(prompt=100, output=100)
    rate = 0.01 / (99 * 10e-3)
    found = open_arrivals(model, requests, Schedule.of(mixed=mixed), np.array([rate]), np.array([100.0]))
    assert found.ttft_s[0] == pytest.approx(9e-3, rel=0.02)
    assert found.tpot_s[0] == pytest.approx(10e-3, rel=0.01)
