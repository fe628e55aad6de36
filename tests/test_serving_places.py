"""Clients whose requests come together again each wave: long prompts before short answers, against requests run one by one and by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rackmodel.serving.mixing import Closing, Train
from rackmodel.serving.places import Lateness, Places, way_in_group, way_in_train
from rackmodel.serving.requests import Requests, Schedule
from rackmodel.serving.rhythm import decode_steps
from rackmodel.serving.steady import closed_loop
from rackmodel.serving.trace import drawn_trace, simulate
from tests import samples
from tests.serving_models import LinearModel

WAVES = 12
ONE = np.ones(1)


def _both(clients: int, lengths: tuple[int, int, float], mixed: int) -> tuple[np.ndarray, np.ndarray]:
    """(requests/s, TTFT, TPOT) of the law and of runs without their first and last requests. Of a prompt's text 8 us a token."""
    prompt, output, least = lengths
    schedule = Schedule.of(ahead=1, request_s=3e-3, tokenize_s=8e-6, mixed=mixed)
    requests = Requests.of(prompt=prompt, output=output, variation=(1.0 - least) / (1.0 + least) / 3**0.5, waves=WAVES)
    law = closed_loop(LinearModel(), requests, schedule, np.array([float(clients)]), np.array([1e9]))
    runs = [simulate(LinearModel(), drawn_trace(WAVES * clients, lengths, None, seed), schedule, 1e12, clients) for seed in range(1, 4)]
    middle = slice(clients, -clients)
    found = [[clients / run.total_s[middle].mean(), run.ttft_s[middle].mean(), run.tpot_s[middle].mean()] for run in runs]
    return np.array([law.requests_per_s[0], law.ttft_s[0], law.tpot_s[0]]), np.mean(found, axis=0)


@pytest.mark.parametrize("mixed", [1, 0])
@pytest.mark.parametrize("least", [1.0, 0.8])
@pytest.mark.parametrize(
    ("clients", "prompt", "output"),
    samples.some([(4, 8192, 17), (4, 16384, 9), (2, 8192, 33), (16, 8192, 33), (16, 16384, 65), (16, 4096, 17), (64, 2048, 65)], 7),
)
def test_short_answers_behind_long_prompts_come_together_again(clients: int, prompt: int, output: int, least: float, mixed: int) -> None:
    """While a prompt is on its way all others end, too. The law let their clients part for good: first tokens of 16 clients, 4,096 tokens
    in and 17 out, 0.8 of the longest, came 50 % too soon, and later ones took 58 % too long."""
    law, run = _both(clients, (prompt, output, least), mixed)
    assert law[0] == pytest.approx(run[0], rel=0.05)
    assert law[1] == pytest.approx(run[1], rel=0.2)
    assert law[2] == pytest.approx(run[2], rel=0.2)


def test_prompts_that_are_not_cut_have_nothing_before_them() -> None:
    """One of 16,384 tokens in steps of 2,048 was priced as if it came, in the mean, behind 7,168 of its own tokens."""
    requests = Requests.of(prompt=16384, output=10)
    whole, cut = (
        decode_steps(requests, Schedule.of(token_budget=2048, chunked=chunked), ONE, 16384.0 * ONE).before[0] for chunked in (0, 1)
    )
    assert (whole, cut) == (0.0, 7168.0)


@pytest.mark.parametrize(("alone", "long", "met"), [(0.0, 1.5, 2.0), (1.0, 2.0, 1.75)])
def test_four_prompts_two_to_a_step_by_hand(alone: float, long: float, met: float) -> None:
    """In steps 1, 1, 2 and 2 of all: 1, 1, 3 and 3 others are done by then. The first alone: steps 1, 2, 2, 3; 0, 2, 2 and 3 others."""
    way = way_in_group(4.0 * ONE, 0.5 * ONE, Places(alone * ONE, ONE, 0.5 * ONE, 0.0 * ONE))
    assert (way.long[0], way.met[0]) == pytest.approx((long, met))


def test_a_train_is_as_late_as_its_first_by_hand() -> None:
    """Three prompts of a step each, 2 steps late: one before whom 2, 1 and 0 steps have none, 0, 1 and 2 have, and 0, 1 and 2 others."""
    none = 0.0 * ONE
    late = Lateness(2.0 * ONE, none, ONE, none, none)
    way = way_in_train(3.0 * ONE, ONE, Places(none, ONE, ONE, none), late)
    assert (way.short[0], way.long[0], way.met[0]) == pytest.approx((1.0, 2.0, 1.0))


@pytest.mark.parametrize("trains", [True, False])
def test_gaps_no_longer_than_the_way_close(trains: bool) -> None:
    """Answers of 16 steps that vary by 2 of them: within 30 steps all come together in each wave; within 1 they part as they would."""
    requests = Requests.of(prompt=1, output=17, variation=0.125 / 12**0.5, waves=20)

    def window(late: float) -> float:
        return float(Train.of(requests, 16.0 * ONE, 4.0 * ONE, Closing(late * ONE, ONE, np.array([trains]))).window[0])

    free = float(Train.of(requests, 16.0 * ONE, 4.0 * ONE).window[0])
    assert window(30.0) == pytest.approx(4.0)
    assert window(0.1) == pytest.approx(free, rel=0.06)
