"""The chain of batches of an engine to which requests come at random, against batches that are drawn one by one."""

from __future__ import annotations

import numpy as np
import pytest

from rackmodel.serving.random_arrivals import STATES, _dealt, random_batches

RATE, PLAIN_S, ONE_S, FULL_S, MOST = 20.0, 8e-3, 30e-3, 90e-3, 4.0
"""Of one to four prompts 30, 50, 70 and 90 ms."""


def _drawn(count: int, steps: int, *, mixed: bool) -> tuple[float, float, float]:
    """(prompts that are in no batch yet in the mean over time, seconds of a prompt's own batch, seconds of so many decode steps after it),
    somebody being there to decode at any time."""
    draw = np.random.default_rng(4)
    waiting, held, spent, own, ends = 0, 0.0, 0.0, [], []
    clock, decoded = np.zeros(count), np.zeros(count)
    for number in range(count):
        taken = min(waiting, MOST)
        seconds = PLAIN_S if waiting == 0 else ONE_S + 20e-3 * (taken - 1)
        held, spent = held + (waiting - taken + RATE * seconds / 2) * seconds, spent + seconds
        own += [seconds] * int(taken)
        ends += [number] * int(taken)
        clock[number], decoded[number] = spent, (decoded[number - 1] if number else 0) + (mixed or waiting == 0)
        waiting += -int(taken) + draw.poisson(RATE * seconds)
    last = np.searchsorted(decoded, decoded[ends] + steps)
    inside = last < count
    took = clock[last[inside]] - clock[np.array(ends)[inside]]
    return held / spent, float(np.mean(own)), float(took.mean())


@pytest.mark.parametrize("mixed", [True, False])
@pytest.mark.parametrize("steps", [1, 2, 40])
def test_a_chain_of_batches_is_that_of_drawn_ones(steps: int, mixed: bool) -> None:
    one = np.ones(1)
    found = random_batches(RATE * one, PLAIN_S * one, (ONE_S * one, FULL_S * one), MOST * one, np.array([mixed]), one)
    held, own, took = _drawn(60_000, steps, mixed=mixed)
    wait = found.queue_s + found.wait_s(0.0 * one)
    assert RATE * wait[0] == pytest.approx(held, rel=0.03)
    assert found.own_s[0] == pytest.approx(own, rel=0.02)
    assert found.decoding_s(steps * one, 0.0 * one)[0] == pytest.approx(took, rel=0.03)


def test_one_request_in_a_long_time_finds_nobody() -> None:
    one = np.ones(1)
    found = random_batches(1e-6 * one, PLAIN_S * one, (ONE_S * one, FULL_S * one), MOST * one, np.array([True]), 1e-6 * one)
    assert found.wait_s(one)[0] == pytest.approx(0.0, abs=1e-7)
    assert found.own_s[0] == pytest.approx(ONE_S, rel=1e-6)
    assert found.decoding_s(10 * one, one)[0] == pytest.approx(10 * PLAIN_S, rel=1e-4)


def test_numbers_between_states_keep_their_mean() -> None:
    values = np.array([[3.0, 100.5, 777.0]])
    weights = np.array([[0.5, 0.25, 0.25]])
    dealt = _dealt(values, weights)
    assert dealt.sum() == pytest.approx(1.0)
    assert (dealt * STATES).sum() == pytest.approx((values * weights).sum())
