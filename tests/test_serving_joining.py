"""What a prompt waits for before it joins a batch, against requests run one by one, hand-worked loops and drawn ones."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from rackmodel.errors import InfeasibleError, InputError
from rackmodel.serving.joining import _exits, _rest
from rackmodel.serving.kept_drafts import steps_of_answers
from rackmodel.serving.requests import Requests, Schedule
from rackmodel.serving.rhythm import Crowd, rhythm
from rackmodel.serving.steady import closed_loop
from rackmodel.serving.trace import drawn_trace, simulate
from tests import samples
from tests.served_loops import drawn
from tests.serving_models import LinearModel

WAVES = 12
CUT = [(4, 8000, 8, 256), (2, 8000, 8, 256), (4, 4000, 40, 300)]
SERVER = {"request_s": 3e-3, "tokenize_s": 3e-6}


def _both(clients: int, lengths: tuple[int, int, float], waves: int = WAVES, **facts: float) -> tuple[np.ndarray, np.ndarray]:
    """(requests/s, TTFT, TPOT) of the law and of a trace without its first and last requests. lengths: prompt, output, shortest over
    longest · waves: requests of each client."""
    prompt, output, least = lengths
    said = {"ahead": 1, **SERVER, **facts}
    model = LinearModel(stages=int(said.get("stages", 1)))
    requests = Requests.of(prompt=prompt, output=output, variation=(1.0 - least) / (1.0 + least) / 3**0.5, waves=waves)
    law = closed_loop(model, requests, Schedule.of(**said), np.array([float(clients)]), np.array([1e9]))
    run = simulate(model, drawn_trace(waves * clients, lengths, None, 1), Schedule.of(**said), 1e12, clients)
    middle = slice(clients, -clients)
    trace = [clients / run.total_s[middle].mean(), run.ttft_s[middle].mean(), run.tpot_s[middle].mean()]
    return np.array([law.requests_per_s[0], law.ttft_s[0], law.tpot_s[0]]), np.array(trace)


@pytest.mark.parametrize("number", range(3, 3 + samples.cases(1, 200)))
def test_drawn_loops_are_served_as_their_requests_are(number: int) -> None:
    """Answers of 32 tokens and more; loops of shorter ones, of few steps, are further apart (`python -m tests.served_loops`)."""
    loop = drawn(number)
    try:
        loop.served()
    except (InfeasibleError, InputError):
        pytest.skip("cannot be served so")
    gaps = loop.gaps()
    assert abs(gaps["requests/s"]) < (0.35 if loop.output >= 32 else 0.65)


@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("prompt", [100, 8000])
def test_few_clients_of_a_pipeline_wait_for_one_another(stages: int, prompt: int) -> None:
    """Two clients, answers of one token: each one's prompt waits until the other's has left the last stage. It was said to take half."""
    law, trace = _both(2, (prompt, 1, 1.0), 100, stages=stages)
    model = LinearModel()
    whole = model.floor_s + model.prompt_floor_s + prompt * model.token_s
    assert law[0] == pytest.approx(1 / whole, rel=0.01)
    assert law[0] == pytest.approx(trace[0], rel=0.01)


@pytest.mark.parametrize("mixed", [1, 0])
@pytest.mark.parametrize(("stages", "prompt", "clients", "output"), samples.some(CUT, 3))
def test_chunks_of_a_prompt_fill_a_pipeline_once(mixed: int, stages: int, prompt: int, clients: int, output: int) -> None:
    """Taken for batches that come alone they made pipelines up to 31 % too slow."""
    law, trace = _both(clients, (prompt, output, 0.8), stages=stages, mixed=mixed, token_budget=1024)
    assert law[0] == pytest.approx(trace[0], rel=0.06)
    assert law[2] == pytest.approx(trace[2], rel=0.06)


@pytest.mark.parametrize(
    ("stages", "prompt", "clients", "output"), samples.some([(4, 300, 16, 128), (2, 300, 16, 128), (4, 1024, 8, 256), (2, 100, 64, 128)], 2)
)
def test_first_tokens_of_pipelines_wait_for_room(stages: int, prompt: int, clients: int, output: int) -> None:
    law, trace = _both(clients, (prompt, output, 0.8), stages=stages)
    assert law[0] == pytest.approx(trace[0], rel=0.03)
    assert law[1] == pytest.approx(trace[1], rel=0.12)


@pytest.mark.parametrize(
    ("stages", "clients", "output", "least"), samples.some([(2, 16, 32, 1.0), (1, 16, 128, 0.8), (4, 16, 128, 1.0), (2, 4, 32, 1.0)], 2)
)
def test_prompts_that_are_on_their_way_together_wait_for_one_another(stages: int, clients: int, output: int, least: float) -> None:
    """Long ones: while texts become tokens others end, too. First tokens came up to three times too soon."""
    law, trace = _both(clients, (8000, output, least), stages=stages)
    assert law[1] == pytest.approx(trace[1], rel=0.2)
    assert law[2] == pytest.approx(trace[2], rel=0.06)


@pytest.mark.parametrize(("clients", "prompt", "output", "way_s"), [(37, 4096, 1024, 0.01), (128, 1024, 128, 0.01), (37, 4096, 128, 3e-3)])
def test_requests_of_equal_lengths_come_in_order_and_wait_as_many_full_steps(clients: int, prompt: int, output: int, way_s: float) -> None:
    """The first of them comes back in steps without prompts, in which others end: first tokens came up to 54 % too soon."""
    law, trace = _both(clients, (prompt, output, 1.0), 16, request_s=way_s, tokenize_s=8e-6)
    assert law[0] == pytest.approx(trace[0], rel=0.01)
    assert law[1] == pytest.approx(trace[1], rel=0.12)
    assert law[2] == pytest.approx(trace[2], rel=0.05)


@pytest.mark.parametrize(("prompt", "clients"), [(100, 4), (100, 16), (1024, 2)])
def test_of_clients_of_unlike_lengths_the_first_goes_alone(prompt: int, clients: int) -> None:
    """An idle engine takes the first prompt that comes, and the others wait for its step: they were up to 38 % too fast."""
    law, trace = _both(clients, (prompt, 2, 0.8))
    assert law[0] == pytest.approx(trace[0], rel=0.07)


def test_a_prompt_alone_is_priced_as_one() -> None:
    """Though 16 of 100 tokens come together: 5 + 2 ms, 15 decodes of 20 us and 10 ns a cached token, 2 ms of its own."""
    requests, schedule = Requests.of(prompt=100, output=101), Schedule.of()
    crowd = Crowd(*(np.array([one]) for one in (16.0, 15.0, 16.0, 1.0, 15.0)))
    beat = rhythm(LinearModel(), requests, schedule, crowd)
    assert beat.one_s[0] == pytest.approx(5e-3 + 2e-3 + 15 * (2e-5 + 150.5 * 1e-8) + 100 * 2e-5)


@pytest.mark.parametrize("stages", [2, 4, 8])
@pytest.mark.parametrize(("clients", "ends"), [(64, 0.1), (64, 1.0), (61, 0.3)])
def test_batches_before_one_has_room_are_those_of_drawn_ones(stages: int, clients: int, ends: float) -> None:
    """Each batch has as many sequences as it may, or one less; some of them end as it leaves. The last of them is the request's own."""
    draw = np.random.default_rng(2)
    free = (stages * np.ceil(clients / stages) - clients) / stages
    room = (draw.random((100_000, stages)) < free) | (draw.poisson(ends, (100_000, stages)) > 0)
    room[:, -1] = True
    one = np.ones(1)
    found = _exits(Crowd(one, one, ends * stages * one, one, (clients - 1.0) * one), stages * one)
    assert found[0] == pytest.approx(1.0 + room.argmax(axis=1).mean(), rel=0.02)


@pytest.mark.parametrize(("share", "after"), [(0.02, 1e-3), (0.02, 27e-3), (0.2, 27e-3), (0.2, 0.1), (0.9, 0.1), (0.2, 3.0)])
def test_what_is_left_of_a_batch_is_that_of_drawn_ones(share: float, after: float) -> None:
    """6 ms without prompts, 167 ms with: 27 ms after a batch's end; 28 ms in the mean were said to leave one of them."""
    short, long = 6e-3, 0.167
    draw = np.random.default_rng(7)
    count = int(after / (short + share * (long - short)) * 3 + 20)
    ends = np.where(draw.random((1_000_000 // count, count)) < share, long, short).cumsum(axis=1)
    left = np.where(ends > after, ends, np.inf).min(axis=1) - after
    batch = np.array([short + share * (long - short)])
    group = SimpleNamespace(share=np.array([share]), stages=np.ones(1))
    beat = SimpleNamespace(group=group, decode_s=np.array([short]), clump_s=batch)
    assert _rest(beat, np.array([True]), batch, np.array([after]))[0] == pytest.approx(left.mean(), rel=0.04)  # type: ignore[arg-type]


@pytest.mark.parametrize("accepted", [0.0, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("output", [1, 2, 3, 10, 500])
def test_drafted_answers_take_whole_steps(accepted: float, output: int) -> None:
    """Of drafts that are all kept, or none; else as many as in the mean of answers that are drawn, token by token."""
    schedule = Schedule.of(drafted=3, accepted=accepted)
    draw = np.random.default_rng(3)

    def steps(tokens: float) -> int:
        found = 0
        while tokens > 0:
            kept = draw.random(3) < accepted
            tokens, found = tokens - 1 - (3 if kept.all() else int(kept.argmin())), found + 1
        return found

    mean = np.mean([steps(output - 1) for _ in range(1 if accepted in (0.0, 1.0) else 400)])
    assert schedule.decoding_steps(Requests.of(prompt=1, output=output))[0] == pytest.approx(mean, rel=0.03, abs=1e-8)
    least = 0.5
    lengths = np.maximum(np.round(np.linspace(2 * least * output / (1 + least), 2 * output / (1 + least), 100_001)), 1)
    unlike = Requests.of(prompt=1, output=output, variation=(1.0 - least) / (1.0 + least) / 3**0.5)
    found, which = np.unique(lengths, return_inverse=True)
    of_each = steps_of_answers(np.full(len(found), 3.0), np.full(len(found), accepted), found - 1.0)[0]
    assert schedule.decoding_steps(unlike)[0] == pytest.approx(of_each[which].mean(), abs=0.12)
