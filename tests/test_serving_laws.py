"""The laws of serving as a steady state, against hand-worked points, Little's law and a simulation that knows nothing of them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from rackmodel.errors import InfeasibleError, InputError
from rackmodel.serving.admission import Trace
from rackmodel.serving.ask import service_of
from rackmodel.serving.offers import Widths, engine_of
from rackmodel.serving.requests import Requests, Schedule, lengths_held, most_sequences
from rackmodel.serving.search import ServingSpace, search_service
from rackmodel.serving.steady import closed_loop, closed_loop_as_run, open_arrivals
from rackmodel.serving.steps import Deployment
from rackmodel.serving.trace import RequestFigures, drawn_trace, simulate
from tests import samples
from tests.serving_models import LinearModel

SPREAD = 0.2 / 0.9 / 12**0.5  # lengths evenly from 0.8 to 1 of the longest
ROOMY = np.array([1e9])


def _simulated(clients: int, prompt: int, output: int, schedule: Schedule, per_client: int = 30) -> RequestFigures:
    draw = np.random.default_rng(1)
    count = per_client * clients
    lengths = (draw.integers(int(0.8 * most), most + 1, count).astype(np.float64) for most in (prompt, output))
    prompts, outputs = lengths
    trace = Trace(arrival_s=np.zeros(count), prompt=prompts, output=outputs)
    return simulate(LinearModel(), trace, schedule, 1e12, clients)


def test_one_client_meets_its_own_steps_alone() -> None:
    model = LinearModel()
    found = closed_loop(model, Requests.of(prompt=1000, output=101), Schedule.of(), np.array([1.0]), ROOMY)
    assert found.ttft_s[0] == pytest.approx(5e-3 + 2e-3 + 1000 * 2e-5)
    assert found.tpot_s[0] == pytest.approx(model.floor_s + model.decode_s + 1050.5 * model.cache_s)
    assert found.requests_per_s[0] == pytest.approx(1 / (found.ttft_s[0] + 100 * found.tpot_s[0]))


@pytest.mark.parametrize("facts", [{"ahead": 1}, {"ahead": 1, "request_s": 3e-3}, {"mixed": 0, "request_s": 3e-3}])
@pytest.mark.parametrize("least", [1.0, 0.8])
def test_one_client_waits_for_no_step_of_others_and_for_the_server_once(facts: dict[str, float], least: float) -> None:
    """Law and simulation say the same first token: no step is under way when its request comes, and `request_s` is both ways together."""
    schedule, trace = Schedule.of(**facts), drawn_trace(400, (100.0, 100.0, least), None, 7)
    figures = simulate(LinearModel(), trace, schedule, 1e12, 1)
    requests = Requests.of(prompt=100, output=100, variation=(1.0 - least) / (1.0 + least) / 3**0.5)
    law = closed_loop(LinearModel(), requests, schedule, np.array([1.0]), ROOMY)
    assert law.ttft_s[0] == pytest.approx(figures.ttft_s.mean(), rel=0.01)
    assert law.requests_per_s[0] == pytest.approx(400 / figures.seconds, rel=0.01)


@pytest.mark.parametrize("mixed", [1, 0])
@pytest.mark.parametrize(("prompt", "output"), [(1024, 1024), (8192, 1024), (1024, 128)])
@pytest.mark.parametrize("clients", [4, 16, 64])
def test_the_law_agrees_with_a_simulation(mixed: int, prompt: int, output: int, clients: int) -> None:
    schedule = Schedule.of(mixed=mixed)
    figures = _simulated(clients, prompt, output, schedule)
    steady = slice(10 * clients, 25 * clients)
    requests = Requests.of(prompt=0.9 * prompt, output=0.9 * output, variation=SPREAD)
    law = closed_loop(LinearModel(), requests, schedule, np.array([float(clients)]), ROOMY)
    assert law.tpot_s[0] == pytest.approx(figures.tpot_s[steady].mean(), rel=0.02)
    assert law.ttft_s[0] == pytest.approx(figures.ttft_s[steady].mean(), rel=0.08)


@pytest.mark.parametrize("mixed", [1, 0])
@pytest.mark.parametrize("clients", [16, 64, 128])
def test_requests_of_equal_lengths_stay_together(mixed: int, clients: int) -> None:
    """Where prompts go first, all clients' requests end with one step, for ever; mixed, they stay in the groups of the first burst."""
    schedule = Schedule.of(mixed=mixed)
    trace = Trace(arrival_s=np.zeros(10 * clients), prompt=np.full(10 * clients, 1024.0), output=np.full(10 * clients, 1024.0))
    figures = simulate(LinearModel(), trace, schedule, 1e12, clients)
    law = closed_loop(LinearModel(), Requests.of(prompt=1024, output=1024), schedule, np.array([float(clients)]), ROOMY)
    assert law.tpot_s[0] == pytest.approx(figures.tpot_s[clients:].mean(), rel=0.03)
    assert law.ttft_s[0] == pytest.approx(figures.ttft_s[clients:].mean(), rel=0.2)


@pytest.mark.parametrize("mixed", [1, 0])
@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize(("prompt", "clients"), [(1024, 16), (1024, 64), (8000, 2), (8000, 4), (100, 256)])
@pytest.mark.parametrize("output", samples.some([8, 4, 32], 2))
def test_prompts_met_while_a_request_waits_are_not_met_again(mixed: int, ahead: int, prompt: int, clients: int, output: int) -> None:
    """Short answers of equal lengths: each prompt was counted before the first token and after it, which made them up to 18 % too slow."""
    schedule, count = Schedule.of(mixed=mixed, ahead=ahead, request_s=3e-3), 15 * clients
    trace = Trace(arrival_s=np.zeros(count), prompt=np.full(count, float(prompt)), output=np.full(count, float(output)))
    figures = simulate(LinearModel(), trace, schedule, 1e12, clients)
    law = closed_loop(LinearModel(), Requests.of(prompt=prompt, output=output), schedule, np.array([float(clients)]), ROOMY)
    steady = slice(5 * clients, 12 * clients)
    assert law.requests_per_s[0] == pytest.approx(clients / figures.total_s[steady].mean(), rel=0.045)


@pytest.mark.parametrize("mixed", [1, 0])
@pytest.mark.parametrize(("prompt", "output"), [(1024, 1024), (8192, 1024)])
@pytest.mark.parametrize("clients", [16, 64, 256])
def test_the_first_waves_come_in_clumps(mixed: int, prompt: int, output: int, clients: int) -> None:
    schedule = Schedule.of(mixed=mixed, ahead=1)
    figures = _simulated(clients, prompt, output, schedule, per_client=10)
    requests = Requests.of(prompt=0.9 * prompt, output=0.9 * output, variation=SPREAD, waves=10)
    law = closed_loop(LinearModel(), requests, schedule, np.array([float(clients)]), ROOMY)
    assert law.tpot_s[0] == pytest.approx(figures.tpot_s[clients:].mean(), rel=0.05)
    assert law.ttft_s[0] == pytest.approx(figures.ttft_s[clients:].mean(), rel=0.1)


@pytest.mark.parametrize("mixed", [1, 0])
@pytest.mark.parametrize(("prompt", "output"), [(1024, 1024), (8192, 1024), (1024, 128)])
@pytest.mark.parametrize("clients", [8, 32, 128])
def test_the_mean_of_a_whole_run_has_a_first_wave_and_a_last_one(mixed: int, prompt: int, output: int, clients: int) -> None:
    """Ten requests a client, all of them counted. The last ones meet half of the prompts; without that the law is up to 3 % too slow."""
    schedule = Schedule.of(mixed=mixed, ahead=1)
    figures = _simulated(clients, prompt, output, schedule, per_client=10)
    requests = Requests.of(prompt=0.9 * prompt, output=0.9 * output, variation=SPREAD, waves=10)
    law = closed_loop(LinearModel(), requests, schedule, np.array([float(clients)]), ROOMY, at_once=True)
    assert law.run_tpot_s(requests, schedule)[0] == pytest.approx(figures.tpot_s.mean(), rel=0.016)
    assert law.run_ttft_s(requests)[0] == pytest.approx(figures.ttft_s.mean(), rel=0.1)


@pytest.mark.parametrize("clients", [8, 128])
def test_requests_that_stay_together_are_alike_in_all_waves(clients: int) -> None:
    schedule, count = Schedule.of(mixed=0, ahead=1), 10 * clients
    trace = Trace(arrival_s=np.zeros(count), prompt=np.full(count, 1024.0), output=np.full(count, 128.0))
    figures = simulate(LinearModel(), trace, schedule, 1e12, clients)
    requests = Requests.of(prompt=1024, output=128, waves=10)
    law = closed_loop(LinearModel(), requests, schedule, np.array([float(clients)]), ROOMY, at_once=True)
    assert law.run_tpot_s(requests, schedule)[0] == pytest.approx(figures.tpot_s.mean(), rel=0.005)


@pytest.mark.parametrize("facts", [{"held": 20, "held_until": 0.9}, {"polled": 30, "mixed": 0}, {"ahead": 1}])
@pytest.mark.parametrize("clients", [4, 64])
def test_waits_for_company_for_a_look_and_for_steps_ahead_are_those_of_a_simulation(facts: dict[str, float], clients: int) -> None:
    schedule = Schedule.of(**facts)
    figures = _simulated(clients, 1024, 1024, schedule)
    steady = slice(10 * clients, 25 * clients)
    requests = Requests.of(prompt=0.9 * 1024, output=0.9 * 1024, variation=SPREAD)
    law = closed_loop(LinearModel(), requests, schedule, np.array([float(clients)]), ROOMY)
    assert law.tpot_s[0] == pytest.approx(figures.tpot_s[steady].mean(), rel=0.02)
    assert law.ttft_s[0] == pytest.approx(figures.ttft_s[steady].mean(), rel=0.1)


@pytest.mark.parametrize("clients", [16, 64, 256])
def test_the_first_burst_is_that_of_a_simulation(clients: int) -> None:
    figures = _simulated(clients, 4096, 128, Schedule.of(), per_client=2)
    requests = Requests.of(prompt=0.9 * 4096, output=0.9 * 128)
    law = closed_loop(LinearModel(), requests, Schedule.of(), np.array([clients]), ROOMY, at_once=True)
    assert law.burst_s[0] == pytest.approx(figures.ttft_s[:clients].mean(), rel=0.1)


def test_a_cache_that_holds_few_requests_makes_the_others_wait() -> None:
    requests, schedule = Requests.of(prompt=1000, output=1000), Schedule.of()
    room = most_sequences(np.array([30e9]), 1e6 * lengths_held(requests, schedule).mean(axis=0), schedule)
    assert room[0] == 20
    free = closed_loop(LinearModel(), requests, schedule, np.array([64.0]), ROOMY)
    held = closed_loop(LinearModel(), requests, schedule, np.array([64.0]), room)
    assert held.limited[0]
    assert held.decodes[0] <= 20 < free.decodes[0]
    assert held.ttft_s[0] > 10 * free.ttft_s[0]
    population = held.requests_per_s[0] * (held.ttft_s[0] + 999 * held.tpot_s[0])
    assert population == pytest.approx(64)


@pytest.mark.parametrize(("clients", "places"), [(2, 1), (24, 1), (24, 3)])
def test_prompts_that_wait_for_a_place_are_tokens_by_then(clients: int, places: int) -> None:
    """7,000 tokens of text take 56 ms to become tokens, as long as anybody waits beside those who have a place: it was said to be empty
    meanwhile, so that half as many requests ended."""
    requests, schedule = Requests.of(prompt=7000, output=8), Schedule.of(tokenize_s=8e-6, request_s=3e-3, sequences=places)
    model = LinearModel(token_s=5e-6)
    found = closed_loop(model, requests, schedule, np.array([float(clients)]), np.array([float(places)]))
    run = simulate(model, drawn_trace(30 * clients, (7000, 8, 1.0)), schedule, 1e18, clients)
    middle = slice(clients, -clients)
    assert found.requests_per_s[0] == pytest.approx(clients / run.total_s[middle].mean(), rel=0.04)
    assert found.ttft_s[0] == pytest.approx(run.ttft_s[middle].mean(), rel=0.06)


@pytest.mark.parametrize(("facts", "most"), [({}, 256), ({"drafted": 3}, 64), ({"ranks": 2, "stages": 4}, 2048), ({"mixed": 0}, 500)])
def test_nobody_joins_a_batch_whose_tokens_are_all_those_of_decodes(facts: dict[str, float], most: float) -> None:
    """Batches of 256 tokens: of four a sequence 64; eight batches of them; where prompts have their own, what the cache holds."""
    held = np.array([1.0])
    assert most_sequences(500.0 * held if most == 500 else 1e9 * held, held, Schedule.of(token_budget=256, **facts))[0] == most


@pytest.mark.parametrize("clients", [70, 88, 200])
def test_clients_whose_drafts_fill_batches_wait_outside(clients: int) -> None:
    """64 sequences of four tokens fill 256; once a sixth of the requests were served of more clients."""
    schedule = Schedule.of(token_budget=256, drafted=3, accepted=0.5)
    requests = Requests.of(prompt=28, output=600, variation=0.2)
    room = most_sequences(np.array([1e12]), np.array([1.0]), schedule)
    law = closed_loop(LinearModel(), requests, schedule, np.array([float(clients)]), room)
    least = (1 - 0.2 * 3**0.5) / (1 + 0.2 * 3**0.5)
    count = 8 * clients
    found = simulate(LinearModel(), drawn_trace(count, (28, 600, least), None, 1), schedule, 1e12, clients)
    middle = slice(clients, count - clients)
    assert law.requests_per_s[0] == pytest.approx(clients / found.total_s[middle].mean(), rel=0.03)
    assert law.ttft_s[0] == pytest.approx(found.ttft_s[middle].mean(), rel=0.1)


def test_a_reserved_output_takes_its_whole_room() -> None:
    requests = Requests.of(prompt=1000, output=1000)
    schedule = Schedule.of(reserves=1)
    assert most_sequences(np.array([30e9]), 1e6 * lengths_held(requests, schedule).mean(axis=0), schedule)[0] == 15


def test_poisson_arrivals_are_those_of_a_simulation() -> None:
    rate = 3.0
    figures = simulate(LinearModel(), drawn_trace(3000, (912, 228, 0.8), rate), Schedule.of(), 1e12)
    law = open_arrivals(LinearModel(), Requests.of(prompt=912, output=228), Schedule.of(), np.array([rate]), ROOMY)
    assert law.tpot_s[0] == pytest.approx(figures.tpot_s[300:].mean(), rel=0.03)
    assert law.ttft_s[0] == pytest.approx(figures.ttft_s[300:].mean(), rel=0.1)
    assert not law.overloaded[0]


RATES = [1e-3, 0.01, 0.1, 0.5, 1.0, 1.5, 2.0, 3.0]


@pytest.mark.parametrize("stages", [1, 2, 8])
@pytest.mark.parametrize(("mixed", "prompt", "output"), [(0, 16, 1), (1, 16, 1), (0, 4000, 2), (1, 512, 16), (1, 4000, 400)])
def test_a_replica_draws_its_power_all_the_time(stages: int, mixed: int, prompt: int, output: int) -> None:
    """10 W, at work or waiting: so many joules come of a second, however few requests there are for how many stages."""
    clients = np.array([1.0, 2.0, 3.0, 5.0, 8.0, 16.0, 64.0, 300.0])
    requests, schedule = Requests.of(8, prompt=prompt, output=output), Schedule.of(8, mixed=mixed, stages=stages)
    found = closed_loop(LinearModel(stages=stages), requests, schedule, clients, np.full(8, 1e6))
    assert found.joules_per_token * found.tokens_per_s == pytest.approx(np.full(8, 10.0), rel=0.02)
    rates = np.array(RATES if stages == 1 else samples.some(RATES, 3))  # those that come to a pipeline are run
    n = len(rates)
    found = open_arrivals(LinearModel(stages=stages), requests.at(range(n)), schedule.at(range(n)), rates, np.full(n, 1e6))
    assert found.joules_per_token * found.tokens_per_s == pytest.approx(np.full(n, 10.0), rel=0.02)


@pytest.mark.parametrize(("mixed", "prompt", "output"), [(0, 100, 400), (1, 100, 400), (1, 1000, 1), (1, 4000, 20)])
def test_a_request_that_finds_nobody_waits_for_no_step(mixed: int, prompt: int, output: int) -> None:
    schedule = Schedule.of(mixed=mixed)
    law = open_arrivals(LinearModel(), Requests.of(prompt=prompt, output=output), schedule, np.array([0.01]), ROOMY)
    found = simulate(LinearModel(), drawn_trace(100, (prompt, output, 1.0), 0.01, 0), schedule, 1e12)
    assert law.ttft_s[0] == pytest.approx(found.ttft_s.mean(), rel=0.02)


@pytest.mark.parametrize(("stages", "prompt", "output", "rate"), [(2, 500, 50, 20.0), (4, 16, 4, 120.0), (4, 500, 50, 10.0)])
def test_requests_that_come_to_a_pipeline_wait_for_room_in_its_batches(stages: int, prompt: int, output: int, rate: float) -> None:
    """Of fewer others than stages each has a batch, and of more every batch its part: first tokens came 7 to 20 % too soon."""
    schedule = Schedule.of(stages=stages, request_s=3e-3, ahead=1)
    requests, model = Requests.of(prompt=prompt, output=output), LinearModel(stages=stages)
    law = open_arrivals(model, requests, schedule, np.array([rate]), ROOMY)
    found = simulate(model, drawn_trace(800, (prompt, output, 0.8), rate, 3), schedule, 1e12)
    assert law.ttft_s[0] == pytest.approx(found.ttft_s[100:].mean(), rel=0.1)


RANDOM = [(0, 500, 50, 44.0), (1, 8000, 100, 4.0), (0, 8000, 100, 2.91), (0, 16, 100, 126.0), (1, 1000, 1, 39.5), (0, 1000, 3, 24.6)]


@pytest.mark.parametrize(("mixed", "prompt", "output", "rate"), samples.some(RANDOM, 3))
def test_requests_that_come_at_random_find_the_batches_of_those_before(mixed: int, prompt: int, output: int, rate: float) -> None:
    """A long prompt's sequence decodes in the steps of those that came meanwhile, and where prompts go first batches of them follow one
    another before anybody decodes: 28 ms a token where 16 were said (the fourth)."""
    schedule = Schedule.of(mixed=mixed, request_s=3e-3, ahead=1)
    law = open_arrivals(LinearModel(), Requests.of(prompt=prompt, output=output), schedule, np.array([rate]), ROOMY)
    found = simulate(LinearModel(), drawn_trace(4000, (prompt, output, 0.8), rate, 1), schedule, 1e12)
    late = slice(1000, None)
    assert law.ttft_s[0] == pytest.approx(found.ttft_s[late].mean(), rel=0.1)
    if output > 1:
        assert law.tpot_s[0] == pytest.approx(found.tpot_s[late].mean(), rel=0.15)


PIPED = [(2, 0, 8000, 100, 6.28), (4, 1, 1000, 10, 73.5), (4, 0, 500, 1, 191.3), (2, 1, 30000, 30, 1.57), (4, 1, 8000, 100, 6.92)]


@pytest.mark.parametrize(("stages", "mixed", "prompt", "output", "rate"), samples.some(PIPED, 2))
def test_requests_that_come_at_random_to_a_pipeline_are_run(stages: int, mixed: int, prompt: int, output: int, rate: float) -> None:
    """Two other draws. As batches are in the mean, TTFT was 69 % too low (the second) and four times as high (the third), TPOT twice as
    high (the first and the last) and a third (the fourth)."""
    schedule, model = Schedule.of(mixed=mixed, request_s=3e-3, ahead=1, stages=stages), LinearModel(stages=stages)
    requests = Requests.of(prompt=prompt, output=output, variation=0.2 / 1.8 / 3**0.5)
    law = open_arrivals(model, requests, schedule, np.array([rate]), ROOMY)
    runs = [simulate(model, drawn_trace(1500, (prompt, output, 0.8), rate, seed), schedule, 1e12) for seed in (1, 2)]
    assert law.ttft_s[0] == pytest.approx(np.mean([one.ttft_s[300:].mean() for one in runs]), rel=0.12)
    assert law.joules_per_token[0] * law.tokens_per_s[0] == pytest.approx(10.0, rel=1e-9)
    if output > 1:
        assert law.tpot_s[0] == pytest.approx(np.mean([one.tpot_s[300:].mean() for one in runs]), rel=0.12)


SHORT = [(4, 0, 4000, 1, 5), (1, 0, 16, 2, 5), (2, 1, 4000, 2, 2), (1, 1, 16, 3, 5), (4, 0, 500, 1, 5)]


@pytest.mark.parametrize(("stages", "mixed", "prompt", "output", "clients"), samples.some(SHORT, 2))
def test_clients_of_short_answers_are_run(stages: int, mixed: int, prompt: int, output: int, clients: int) -> None:
    """Another draw. The law, whose clients come at any time, had half as many requests a second (the first), first tokens 1.9 times as
    late (the second) and a ninth of the seconds a token (the third)."""
    schedule, model = Schedule.of(mixed=mixed, request_s=3e-3, ahead=1, stages=stages), LinearModel(stages=stages)
    requests = Requests.of(prompt=prompt, output=output, variation=0.2 / 1.8 / 3**0.5)
    found = closed_loop_as_run(model, requests, schedule, np.array([float(clients)]), ROOMY)
    run = simulate(model, drawn_trace(60 * clients, (prompt, output, 0.8), None, 7), schedule, 1e12, clients)
    middle = slice(clients, -clients)
    assert found.requests_per_s[0] == pytest.approx(clients / run.total_s[middle].mean(), rel=0.05)
    assert found.ttft_s[0] == pytest.approx(run.ttft_s[middle].mean(), rel=0.05)
    assert found.joules_per_token[0] * found.tokens_per_s[0] == pytest.approx(10.0, rel=1e-9)
    if output > 1:
        assert found.tpot_s[0] == pytest.approx(run.tpot_s[middle].mean(), rel=0.1)


def test_a_service_of_short_answers_is_run() -> None:
    """Three clients over two replicas: half-way between one and two each; of requests more are of the replica that ends more."""
    service = service_of("dgx_h100", "llama3_8b_decoder", ("accelerators=2",), "vllm", (512.0, 2.0, 0.0))
    space = ServingSpace(tensor=(1,), pipeline=(1,), clients=(2.0, 3.0, 4.0))
    one, between, two = sorted(search_service(service, space).offers, key=lambda offer: offer.clients)
    rates = one.figures["tokens_per_s"], two.figures["tokens_per_s"]
    assert between.figures["tokens_per_s"] == pytest.approx(sum(rates) / 2)
    waited = rates[0] * one.figures["ttft"] + rates[1] * two.figures["ttft"]
    assert between.figures["ttft"] == pytest.approx(waited / sum(rates))
    engine = engine_of(service, Deployment(), Widths())
    run = simulate(engine, drawn_trace(100, (512, 2, 1.0)), engine.schedule, engine.cache_tokens, 2, engine.held_tokens)
    assert two.figures["ttft"] == pytest.approx(run.ttft_s[2:-2].mean(), rel=0.02)


def test_a_request_that_finds_a_pipeline_idle_passes_its_stages() -> None:
    """1,000 tokens: 3 ms on the way, 5 and 2 ms of floors, 20 us a token over all four stages; then 5.02 ms a token and its cache."""
    law = open_arrivals(
        LinearModel(stages=4), Requests.of(prompt=1000, output=11), Schedule.of(stages=4, request_s=3e-3), np.array([1e-3]), ROOMY
    )
    assert law.ttft_s[0] == pytest.approx(30e-3, rel=1e-6)
    assert law.tpot_s[0] == pytest.approx(5.02e-3 + 1004.5 * 1e-8, rel=1e-6)


@pytest.mark.parametrize(("stages", "mixed", "prompt", "output"), [(2, 0, 500, 50), (4, 1, 1000, 10)])
def test_more_than_a_pipeline_serves_is_said(stages: int, mixed: int, prompt: int, output: int) -> None:
    """What 200 clients get of it by the trace is what 200 places serve."""
    schedule, model = Schedule.of(2, mixed=mixed, stages=stages), LinearModel(stages=stages)
    loop = simulate(model, drawn_trace(1200, (prompt, output, 0.8), None, 1), Schedule.of(mixed=mixed, stages=stages), 1e12, 200)
    most = 200 / loop.total_s[400:1000].mean()
    law = open_arrivals(model, Requests.of(2, prompt=prompt, output=output), schedule, most * np.array([0.8, 1.2]), np.full(2, 200.0))
    assert law.overloaded.tolist() == [False, True]
    assert np.isfinite(law.ttft_s).all()


def test_more_requests_at_random_see_no_sooner_first_tokens() -> None:
    """Of answers of one token, whose batches fill: one prompt's step was read off a line through two full ones, without its floor."""
    rates = 10 ** np.linspace(-4.0, 3.5, 12)
    schedule = Schedule.of(12, mixed=0, chunked=0, token_budget=512.0, request_s=3e-3)
    law = open_arrivals(LinearModel(), Requests.of(12, prompt=4, output=1), schedule, rates, np.full(12, 64.0))
    served = law.ttft_s[~law.overloaded]
    assert len(served) > 8
    assert served[0] == pytest.approx(3e-3 + 5e-3 + 2e-3 + 4 * 2e-5, rel=2e-3)
    assert np.all(np.diff(served) > -1e-9)


def test_a_sequence_needs_no_more_of_a_long_prompt_s_chunks_than_it_has_tokens() -> None:
    """9,068 tokens in 18 chunks, answers of 8: 6 ms a token for 12 that a whole prompt of another would make of them."""
    schedule = Schedule.of(token_budget=512.0, drafted=3.0, accepted=0.7)
    law = open_arrivals(LinearModel(), Requests.of(prompt=9068, output=8), schedule, np.array([0.6]), ROOMY)
    found = simulate(LinearModel(), drawn_trace(1500, (9068, 8, 1.0), 0.6, 1), schedule, 1e12)
    assert law.tpot_s[0] == pytest.approx(found.tpot_s.mean(), rel=0.1)


@pytest.mark.parametrize("less", [1e-4, 2e-3 - 1e-9, 2e-3, 2e-3 + 1e-9, 2.5e-3])
def test_prompts_that_cost_hardly_anything_wait_for_half_a_step(less: float) -> None:
    """Of one token, beside decodes 0.1 to 2.5 ms a step less than two: with padded decodes a step may even be the shorter for them.
    Nine of ten milliseconds a step, so that with R the rest of one a first token takes R + a step; once thousands of seconds."""
    model = LinearModel(floor_s=9e-3, decode_s=1e-12, cache_s=0.0, token_s=0.0, prompt_floor_s=2e-3 - less)
    rates = np.array([0.01, 1.0, 20.0])
    law = open_arrivals(model, Requests.of(3, prompt=1, output=100), Schedule.of(3), rates, np.full(3, 1e9))
    busy = 1 - np.exp(-rates * 0.9)
    assert law.ttft_s == pytest.approx(9e-3 + busy * 4.5e-3, rel=0.25)


def test_more_than_is_served_is_said() -> None:
    law = open_arrivals(LinearModel(), Requests.of(prompt=1024, output=256), Schedule.of(), np.array([1.0, 1000.0]), np.array([1e9, 64.0]))
    assert law.overloaded.tolist() == [False, True]
    assert np.isfinite(law.ttft_s).all()


def test_points_priced_together_are_those_priced_alone() -> None:
    requests = Requests.of(2, prompt=np.array([1000.0, 4000.0]), output=np.array([500.0, 100.0]))
    clients = np.array([8.0, 64.0])
    both = closed_loop(LinearModel(), requests, Schedule.of(2), clients, np.array([1e9, 1e9]))
    for place in range(2):
        one = closed_loop(LinearModel(), requests.at([place]), Schedule.of(), clients[[place]], ROOMY)
        assert one.tpot_s[0] == both.tpot_s[place]
        assert one.ttft_s[0] == both.ttft_s[place]


def test_a_closed_loop_prices_five_steps_a_point() -> None:
    model = LinearModel()
    closed_loop(model, Requests.of(100, prompt=1000, output=1000), Schedule.of(100), np.full(100, 64.0), np.full(100, 1e9))
    assert model.asked == 500


def test_reused_prefixes_need_no_work() -> None:
    cold, warm = (
        closed_loop(
            LinearModel(), Requests.of(prompt=4000, output=500, reused=share, variation=SPREAD), Schedule.of(), np.array([16.0]), ROOMY
        )
        for share in (0.0, 0.75)
    )
    assert warm.ttft_s[0] < 0.5 * cold.ttft_s[0]
    assert warm.tpot_s[0] < cold.tpot_s[0]


@pytest.mark.parametrize("clients", [1, 16])
def test_reused_prefixes_are_read_by_a_trace_as_by_the_law(clients: int) -> None:
    """They need no work and are in the context all the same: 1,000 tokens of 4,000 are worked on."""
    model, count = LinearModel(cache_s=1e-6), 20 * clients
    trace = Trace(arrival_s=np.zeros(count), prompt=np.full(count, 4000.0), output=np.full(count, 101.0), reused=0.75)
    figures = simulate(model, trace, Schedule.of(), 1e12, clients)
    law = closed_loop(model, Requests.of(prompt=4000, output=101, reused=0.75), Schedule.of(), np.array([float(clients)]), ROOMY)
    steady = slice(5 * clients, None)
    assert law.requests_per_s[0] == pytest.approx(clients / figures.total_s[steady].mean(), rel=0.02)
    if clients == 1:
        assert figures.ttft_s[-1] == pytest.approx(5e-3 + 2e-3 + 1000 * 2e-5)
        assert figures.tpot_s[-1] == pytest.approx(5e-3 + 2e-5 + 4050.5 * 1e-6, rel=1e-3)


DRAFTS = {"mixed": 1, "drafted": 2, "accepted": 0.7}


@pytest.mark.parametrize(
    ("stages", "prompt", "output", "facts"),
    samples.some(product([1, 4], [16, 4000], [1, 2, 8, 1000], [{"mixed": 1}, {"mixed": 0}, DRAFTS]), 2),
)
def test_a_machine_of_ten_watts_draws_ten_watts(stages: int, prompt: int, output: int, facts: dict[str, float]) -> None:
    """Whatever runs, and while nothing does. Steps of prompts beside nobody, and waits for clients, took no joules: answers of one token of
    16 were said to be made of half a watt."""
    model, clients = LinearModel(stages=stages), np.array([1.0, 2.0, 8.0, 64.0])
    rates = np.array([0.01, 0.1, 1.0, 3.0] if stages == 1 else samples.some([0.01, 0.1, 1.0, 3.0], 2))
    for law, asked in ((closed_loop, clients), (open_arrivals, rates)):
        n = len(asked)
        requests = Requests.of(n, prompt=prompt, output=output, variation=SPREAD)
        schedule = Schedule.of(n, ahead=1, request_s=3e-3, tokenize_s=3e-6, stages=stages, **facts)
        found = law(model, requests, schedule, asked, np.full(n, 1e9))
        assert found.joules_per_token * found.tokens_per_s == pytest.approx(10.0, rel=1e-9)


@pytest.mark.parametrize("stages", [1, 2, 8])
@pytest.mark.parametrize(
    ("prompt", "output", "facts"), [(16, 1, {}), (700, 90, {"mixed": 0.0, "request_s": 0.5}), (4000, 20, {"ahead": 1.0})]
)
def test_a_trace_on_a_machine_of_ten_watts_draws_ten_watts(stages: int, prompt: int, output: int, facts: dict[str, float]) -> None:
    """At work and idle, of clients as of requests that come now and then; two clients' prompts cost nothing that they do not take."""
    schedule = Schedule.of(stages=stages, **facts)
    for rate, clients in ((None, 1), (None, 2), (None, 24), (0.2, None), (3.0, None)):
        trace = drawn_trace(120, (prompt, output, 0.8), rate, 1)
        found = simulate(LinearModel(stages=stages), trace, schedule, 1e12, clients)
        assert found.joules == pytest.approx(10.0 * found.seconds, rel=1e-9)


def test_kept_drafts_shorten_a_token() -> None:
    plain, drafted = (
        closed_loop(LinearModel(), Requests.of(prompt=1000, output=500), Schedule.of(drafted=count, accepted=0.8), np.array([8.0]), ROOMY)
        for count in (0, 1)
    )
    assert 1.5 < plain.tpot_s[0] / drafted.tpot_s[0] < 1.8


@pytest.mark.parametrize("stages", [1, 4])
def test_a_sequence_that_leaves_takes_all_of_its_cache_with_it(stages: int) -> None:
    """Whole steps of drafts make more tokens than were asked for: what they put into the cache is of their sequence, and no later request
    is slower for it."""
    schedule, trace = Schedule.of(stages=stages, drafted=3, accepted=0.85), drawn_trace(4000, (100.0, 20.0, 0.5))
    figures = simulate(LinearModel(cache_s=1e-6, stages=stages), trace, schedule, 1e12, 16)
    assert figures.tpot_s[3000:].mean() == pytest.approx(figures.tpot_s[1000:2000].mean(), rel=0.02)


def test_a_request_that_fits_no_cache_is_refused() -> None:
    trace = Trace(arrival_s=np.zeros(1), prompt=np.array([1000.0]), output=np.array([10.0]))
    with pytest.raises(InfeasibleError, match=r"memory: request 1 of 1,010 tokens does not fit a cache of 500"):
        simulate(LinearModel(), trace, Schedule.of(), 500.0)


def test_a_trace_out_of_order_is_refused() -> None:
    with pytest.raises(InputError, match=r"request 2 arrives before"):
        Trace(arrival_s=np.array([1.0, 0.0]), prompt=np.ones(2), output=np.ones(2))
