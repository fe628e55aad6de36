"""Pools of prompts and of decodes: the population adds up, the short pool sets the pace, and the transfer is charged."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from rackmodel.errors import InputError
from rackmodel.serving.ask import service_of
from rackmodel.serving.engine import model_of
from rackmodel.serving.handing import cache_transfer
from rackmodel.serving.offers import Widths, engine_of
from rackmodel.serving.pooled_runs import pooled_run
from rackmodel.serving.pools import Pool, PoolsSteady, Transfer, pools_closed_loop, priced_batches, steps_of_pools
from rackmodel.serving.requests import Requests, Schedule
from rackmodel.serving.routing import Dealt
from rackmodel.serving.served_model import ServedModel
from rackmodel.serving.step_prices import StepPrices
from rackmodel.serving.steps import Deployment, StepFigures, Steps
from tests.pooled_loops import PooledLoop, drawn
from tests.serving_models import LinearModel

REQUESTS = Requests.of(prompt=4000, output=400)
PER_TOKEN = 131072.0


def held(tokens: NDArray[np.float64]) -> NDArray[np.float64]:
    return PER_TOKEN * tokens


def _found(clients: float, prompts: float = 2, decodes: float = 2, bandwidth: float = 50e9, fast: LinearModel | None = None) -> PoolsSteady:
    room = np.array([1e6])
    first = Pool(fast or LinearModel(), Schedule.of(mixed=0), prompts, room, 10.0)
    then = Pool(LinearModel(), Schedule.of(), decodes, room, 10.0)
    return pools_closed_loop(first, then, Transfer(held, bandwidth), REQUESTS, np.array([clients]))


@pytest.mark.parametrize("clients", [1.0, 16.0, 300.0])
def test_the_population_adds_up(clients: float) -> None:
    found = _found(clients)
    each = found.ttft_s[0] + 399 * found.tpot_s[0]
    assert found.requests_per_s[0] * each == pytest.approx(clients, rel=1e-3)


def test_one_client_meets_its_prompt_its_transfer_and_steps_alone() -> None:
    found = _found(1.0)
    assert found.ttft_s[0] == pytest.approx(5e-3 + 2e-3 + 4000 * 2e-5 + 4000 * PER_TOKEN / 50e9, rel=1e-3)
    assert found.tpot_s[0] == pytest.approx(5e-3 + 2e-5 + 4200 * 1e-8)


@pytest.mark.parametrize("clients", [1.0, 3.0, 16.0, 300.0, 2000.0])
@pytest.mark.parametrize("workers", [(1, 4), (2, 2), (8, 1)])
def test_workers_draw_what_they_draw_at_work_or_waiting(clients: float, workers: tuple[int, int]) -> None:
    """10 W each, whatever they do: prompts that come together are no prompts alone, and workers without a request do not decode."""
    found = _found(clients, *workers)
    watts = found.joules_per_token[0] * 400 * found.requests_per_s[0]
    assert watts == pytest.approx(10.0 * sum(workers))


def test_the_short_pool_sets_the_pace() -> None:
    """A worker prefills 8192 tokens in 5 + 2 + 164 ms, so a prompt in 83 ms; more of them are more requests, until decodes are short."""
    rates = [float(_found(2000.0, prompts=workers).requests_per_s[0]) for workers in (1, 2, 4)]
    assert rates[0] == pytest.approx(8192 / 4000 / (7e-3 + 8192 * 2e-5), rel=0.02)
    assert rates[1] == pytest.approx(2 * rates[0], rel=0.02)
    assert rates[2] > rates[1]


def test_a_slow_way_makes_the_first_token_late_alone() -> None:
    near, far = _found(16.0), _found(16.0, bandwidth=5e9)
    assert far.ttft_s[0] - near.ttft_s[0] == pytest.approx(far.transfer_s[0] - near.transfer_s[0], rel=0.1)
    assert far.transfer_s[0] == pytest.approx(4000 * PER_TOKEN / 5e9)


def test_workers_that_have_nothing_to_do_draw_what_they_draw_idle() -> None:
    """One client of two workers of each pool: of T seconds of a request one of the four works at 10 W, for its prompt or for its steps; the
    others, and all while its cache is on the way, draw 3 W. They were said to decode all the time."""
    room, one = np.array([1e6]), Requests.of(prompt=4096, output=400)
    pools = Pool(LinearModel(), Schedule.of(mixed=0, token_budget=4096), 2, room, 3.0), Pool(LinearModel(), Schedule.of(), 2, room, 3.0)
    found = pools_closed_loop(*pools, Transfer(held, 5e9, joules_per_byte=1e-9), one, np.array([1.0]))
    prompt, decoding, moving = 5e-3 + 2e-3 + 4096 * 2e-5, 399 * (5e-3 + 2e-5 + 4296 * 1e-8), 4096 * PER_TOKEN / 5e9
    whole = prompt + decoding + moving
    joules = 10.0 * (prompt + decoding) + 3.0 * (4.0 * whole - prompt - decoding) + 4096 * PER_TOKEN * 1e-9
    assert found.joules_per_token[0] * 400 == pytest.approx(joules, rel=1e-6)


@pytest.mark.parametrize("prompt", [16, 4000])
@pytest.mark.parametrize("output", [2, 1000])
@pytest.mark.parametrize(("prompts", "decodes", "stages"), [(1, 1, 1), (1, 4, 1), (4, 1, 2)])
def test_workers_of_ten_watts_draw_ten_watts_each(prompt: int, output: int, prompts: int, decodes: int, stages: int) -> None:
    """Whatever they do. 64 short prompts in a full batch were said to take as much as 64 alone: ten times as many watts."""
    room, clients = np.array([1e6]), np.array([1.0, 8.0, 64.0, 1000.0])
    requests, model = Requests.of(4, prompt=prompt, output=output), LinearModel(stages=stages)
    first = Pool(model, Schedule.of(4, mixed=0, stages=stages), prompts, room, 10.0)
    then = Pool(model, Schedule.of(4, stages=stages), decodes, room, 10.0)
    found = pools_closed_loop(first, then, Transfer(held, 50e9), requests, clients)
    watts = found.joules_per_token * found.requests_per_s * output
    assert watts == pytest.approx(10.0 * (prompts + decodes), rel=1e-9)


def _served(machine: str, **degrees: int) -> ServedModel:
    service = service_of(machine, "llama3_8b_decoder", (), "vllm", (1000.0, 100.0, 0.0))
    return model_of(engine_of(service, Deployment(**degrees), Widths()))


@pytest.mark.parametrize(
    ("prompts", "decodes", "own", "share", "rate", "energy"),
    [
        (("dgx_h100", {"tensor": 2}), ("dgx_h100", {"tensor": 2}), 0, 2, 0.822 * 450e9, 14e-12),  # NVLink, two pairs at once
        (("dgx_h100", {"tensor": 4}), ("dgx_h100", {}), 0, 1, 0.822 * 450e9, 14e-12),  # one takes all
        (("dgx_h100", {"tensor": 2, "pipeline": 2}), ("dgx_h100", {"tensor": 4}), 0, 4, 0.822 * 450e9, 14e-12),
        (("dgx_h100", {"tensor": 2}), ("dgx_h100", {"tensor": 2}), 8, 2, 48e9, 236.5e-12),  # another node of its kind: through NICs
        (("dgx_h200", {"tensor": 8}), ("dgx_h100", {"tensor": 2}), 8, 2, 48e9, 527.5e-12),  # another machine
    ],
)
def test_a_cache_takes_its_way_with_its_joules(
    prompts: tuple[str, dict[str, int]], decodes: tuple[str, dict[str, int]], own: int, share: int, rate: float, energy: float
) -> None:
    """2 x 32 layers x 8 heads x 128 x 2 bytes of each of 63 pages of 16 tokens. share: of the accelerator that has most."""
    first, then = (_served(name, **degrees) for name, degrees in (prompts, decodes))
    found, one, whole = cache_transfer(first, then, own), Requests.of(prompt=1000, output=1), 1008 * PER_TOKEN
    assert found.seconds(one)[0] - found.latency_s == pytest.approx(whole / share / rate, rel=1e-3)
    assert found.joules(one)[0] == pytest.approx(8 * whole * energy, rel=1e-9)


def test_pools_may_be_unlike() -> None:
    fast = LinearModel(token_s=5e-6)
    assert _found(500.0, fast=fast).requests_per_s[0] > 1.5 * _found(500.0).requests_per_s[0]


# -- requests that are dealt in turn -----------------------------------------------------------------------------------------------------


def test_workers_of_one_place_are_buzens() -> None:
    """D N / (N + D - 1) of N clients at D single servers, where lengths are as unlike as chance makes them."""
    for workers in (1, 2, 3, 7):
        clients = np.array([1.0, 2.0, 5.0, 40.0])
        dealt = Dealt(clients, workers, np.ones(4), 1.0)
        assert dealt.served(clients) == pytest.approx(workers * clients / (clients + workers - 1))


@pytest.mark.parametrize(("clients", "workers", "places"), [(4, 2, 1), (6, 3, 2), (12, 3, 4)])
def test_places_against_a_simulation(clients: int, workers: int, places: int) -> None:
    """A closed network of exponential servers, each request to a worker by chance, followed jump by jump."""
    rng = np.random.default_rng(0)
    there = np.bincount(rng.integers(0, workers, clients), minlength=workers).astype(float)
    served = time = 0.0
    for choice, to in zip(rng.random(20000), rng.integers(0, workers, 20000), strict=True):
        rates = np.minimum(there, places)
        total = rates.sum()
        served, time = served + 1.0, time + 1.0 / total
        gone = int(np.searchsorted(np.cumsum(rates), choice * total, side="right"))
        there[gone] -= 1
        there[to] += 1
    found = Dealt(np.array([float(clients)]), workers, np.array([float(places)]), 1.0).served(np.array([float(clients)]))
    assert found[0] == pytest.approx(served / time, rel=0.03)


def in_turn(clients: int, workers: int, places: int, least: float) -> float:
    """Requests that are served in the mean: lengths even from `least` to 1, each client's next request to the worker whose turn it is."""
    lengths = iter(np.random.default_rng(1).uniform(least, 1.0, 20 * clients + 8000))
    busy, lines, ends = [0] * workers, [0] * workers, list[tuple[float, int]]()
    now = area = 0.0
    turn = 0

    def comes() -> None:
        nonlocal turn
        to, turn = turn % workers, turn + 1
        if busy[to] < places:
            busy[to] += 1
            heapq.heappush(ends, (now + next(lengths), to))
        else:
            lines[to] += 1

    for _ in range(clients):
        comes()
    for _ in range(8000):
        end, at = heapq.heappop(ends)
        area, now = area + sum(busy) * (end - now), end
        if lines[at]:
            lines[at] -= 1
            heapq.heappush(ends, (now + next(lengths), at))
        else:
            busy[at] -= 1
        comes()
    return area / now


@pytest.mark.parametrize(("least", "off"), [(1.0, 1e-3), (0.8, 0.025), (0.5, 0.05), (0.2, 0.07)])
@pytest.mark.parametrize(("clients", "workers", "places"), [(4, 4, 1), (6, 4, 1), (28, 4, 8), (32, 4, 8), (60, 15, 4)])
def test_places_where_each_worker_has_its_turn(clients: int, workers: int, places: int, least: float, off: float) -> None:
    variation = (1 - least) / (1 + least) / 3**0.5
    there = np.array([float(clients)])
    found = Dealt(there, workers, np.array([float(places)]), variation).served(there)[0]
    assert found == pytest.approx(in_turn(clients, workers, places, least), rel=off)


def test_where_places_are_many_all_are_served() -> None:
    clients = np.array([3.0, 100.0, 4000.0])
    assert Dealt(clients, 4, np.full(3, 1e6), 1.0).served(clients) == pytest.approx(clients)
    assert Dealt(clients, 4, np.full(3, 10.0), 1.0).served(clients)[2] == 40.0


def test_clients_beyond_the_places_wait_in_the_first_token() -> None:
    room = np.array([4.0])
    first, then = Pool(LinearModel(), Schedule.of(mixed=0), 1, np.array([1e6])), Pool(LinearModel(), Schedule.of(), 2, room)
    found = pools_closed_loop(first, then, Transfer(held, 50e9), REQUESTS, np.array([16.0]))
    assert found.decodes[0] == pytest.approx(8.0)
    assert found.ttft_s[0] > 0.98 * 399 * found.tpot_s[0]  # as many as are served wait, a whole request long


def test_pools_of_one_model_price_their_steps_together_and_each_once() -> None:
    """What loops want is priced before the first is run, and no step twice; the figures are those of each alone."""
    model, asked = LinearModel(), list[int]()
    known = StepPrices(Counted(model, asked))
    room, clients = np.array([1e6]), np.array([16.0])
    then = Pool(model, Schedule.of(), 2, room, 10.0, known=known)
    each = [(Pool(model, Schedule.of(mixed=0), n, room, 10.0, known=known), then) for n in (1, 2)]
    for first, then in each:
        for steps in steps_of_pools(first, then, REQUESTS, clients):
            known.want(steps)
    assert not asked
    found = [pools_closed_loop(first, then, Transfer(held, 50e9), REQUESTS, clients) for first, then in each]
    assert len(asked) == 1
    assert asked[0] <= 2 * 2 + len(priced_batches(8.0))
    for n, one in zip((1, 2), found, strict=True):
        alone = _found(16.0, prompts=n)
        assert (one.tpot_s, one.ttft_s, one.joules_per_token) == (alone.tpot_s, alone.ttft_s, alone.joules_per_token)


@pytest.mark.parametrize(("clients", "workers"), [(31.0, 3), (700.0, 1), (5.0, 4)])
def test_a_loop_is_the_same_alone_and_beside_others(clients: float, workers: int) -> None:
    """31 clients of 3 workers are 10.3 each: whole batches go up to 11, alone as beside thousands."""

    def found(every: list[float]) -> PoolsSteady:
        n = len(every)
        first = Pool(LinearModel(), Schedule.of(n, mixed=0), 2, np.full(n, 1e6))
        then = Pool(Captured(), Schedule.of(n), workers, np.full(n, 1e6))
        return pools_closed_loop(first, then, Transfer(held, 50e9), Requests.of(n, prompt=4000, output=400), np.array(every))

    alone, beside = found([clients]), found([5000.0, clients, 1.0])
    for figure in ("tpot_s", "ttft_s", "joules_per_token", "requests_per_s"):
        assert getattr(beside, figure)[1] == getattr(alone, figure)[0]


def test_batches_between_those_that_are_priced_are_as_all_of_them_say(monkeypatch: pytest.MonkeyPatch) -> None:
    room = np.full(40, 1e6)
    clients = np.round(2.0 ** np.linspace(0.0, 10.0, 40))
    requests = Requests.of(40, prompt=1000, output=400)

    def tpot() -> np.ndarray:
        first, then = Pool(LinearModel(), Schedule.of(40, mixed=0), 8, room), Pool(Captured(), Schedule.of(40), 1, room)
        return pools_closed_loop(first, then, Transfer(held, 50e9), requests, clients).tpot_s

    some = tpot()
    monkeypatch.setattr("rackmodel.serving.pools.priced_batches", lambda most: np.arange(1.0, np.ceil(most) + 1.0))
    assert some == pytest.approx(tpot(), rel=0.02)  # a captured size is 8 sequences, up to 2.6 % of a step


def test_steps_that_are_only_wanted_refuse_no_other() -> None:
    known = StepPrices(Counted(LinearModel(), [], most=64.0))
    known.want(Steps.of(decodes=[65.0]))
    seconds, _ = known.of(Steps.of(decodes=[64.0], context=[10.0]))
    assert seconds > 0
    with pytest.raises(InputError, match="too many"):
        known.of(Steps.of(decodes=[65.0]))


class Captured(LinearModel):
    """Its steps have as many rows as the next multiple of 8, as those of captured graphs."""

    def price(self, steps: Steps) -> StepFigures:
        return super().price(replace(steps, decodes=np.where(steps.decodes > 8, np.ceil(steps.decodes / 8) * 8, steps.decodes)))


@dataclass
class Counted:
    """A model that says how many steps it was asked for, and refuses more than so many sequences."""

    model: LinearModel
    asked: list[int]
    most: float = np.inf

    def price(self, steps: Steps) -> StepFigures:
        if np.any(steps.decodes > self.most):
            raise InputError("too many")
        self.asked.append(len(steps))
        return self.model.price(steps)


@pytest.mark.parametrize("least", [0.966, 0.8])
@pytest.mark.parametrize(("clients", "workers", "prompt"), [(64, 1, 922), (256, 1, 922), (256, 4, 922), (16, 4, 7373), (64, 4, 7373)])
def test_prompts_wait_for_others_and_for_their_batch_as_those_that_are_run(clients: int, workers: int, prompt: int, least: float) -> None:
    """Taken for prompts that come at random first tokens were up to 112 % too late at half load, and first bursts 31 % too soon."""
    model = LinearModel(cache_s=1e-9)
    gaps = PooledLoop(clients=clients, prompts=workers, decodes=4, prompt=prompt, output=922, least=least, model=model).gaps()
    assert abs(gaps["burst"]) < 0.06
    assert abs(gaps["TTFT"]) < 0.3
    assert abs(gaps["requests/s"]) < 0.01


@pytest.mark.parametrize("decodes", [1, 4])
@pytest.mark.parametrize(("clients", "prompt", "budget"), [(64, 922, 8192), (16, 922, 16384), (64, 1024, 8192), (40, 300, 8192)])
def test_groups_of_equal_lengths_part_as_those_that_are_run(clients: int, prompt: int, budget: int, decodes: int) -> None:
    """Those of one batch come back together, and a worker that waits takes the first of them alone: taken for parted already, first tokens
    of ten waves were up to 90 % too soon."""
    model = LinearModel(cache_s=1e-9)
    loop = PooledLoop(clients=clients, prompts=1, decodes=decodes, prompt=prompt, output=922, budget=budget, model=model, bandwidth=5e11)
    assert abs(loop.gaps()["TTFT"]) < 0.4


def test_a_rate_that_prompts_cannot_keep_alone_makes_batches() -> None:
    """15 clients whose prompts take 23 ms alone, and answers of 64 tokens: 56 a second were said, 41 are."""
    model = LinearModel(floor_s=2e-3, cache_s=1e-9, token_s=1e-5, prompt_floor_s=16e-3)
    loop = PooledLoop(clients=15, prompts=1, decodes=1, prompt=616, output=64, ahead=1, model=model, waves=40)
    assert abs(loop.gaps()["requests/s"]) < 0.1


@pytest.mark.parametrize("prompts", [1, 4])
@pytest.mark.parametrize("clients", [33, 100, 152])
def test_first_prompts_wait_for_a_place(clients: int, prompts: int) -> None:
    """Of 32 places of two workers: those beyond were said to begin at once."""
    loop = PooledLoop(clients=clients, prompts=prompts, decodes=2, prompt=270, output=200, room=16)
    assert abs(loop.gaps()["burst"]) < 0.12


def test_a_worker_of_decodes_looks_between_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The law, of 130 1/2 clients, none of whom is run here, at one worker. A cache of 1,000 tokens takes 2.6 ms and a step t, longer: half
    of t to the look that asks for it, then t; of one that was asked for before the prompt half of t, its way, half of t; a first token
    again is one t, and a look at every tenth step, 5 t for the half."""

    def first_s(**said: float) -> tuple[float, float]:
        room = np.array([1e6])
        pools = Pool(LinearModel(), Schedule.of(mixed=0), 2, room), Pool(LinearModel(), Schedule.of(**said), 1, room)
        found = pools_closed_loop(*pools, Transfer(held, 50e9), Requests.of(prompt=1000, output=2000), np.array([130.5]))
        return float(found.ttft_s[0]), float(found.tpot_s[0])

    monkeypatch.setattr("rackmodel.serving.pools.waves_run", lambda *_: 0)
    own, step = first_s()
    way = 1000 * PER_TOKEN / 50e9
    assert own == pytest.approx(7e-3 + 1000 * 2e-5 + 1.5 * step, rel=1e-3)
    assert first_s(asks_first=1)[0] - own == pytest.approx(way - 0.5 * step, rel=0.02)
    assert first_s(first_again=1)[0] - own == pytest.approx(step, rel=0.02)
    assert first_s(polled=10)[0] - own == pytest.approx(4.5 * step, rel=0.02)
    assert first_s(ahead=1)[0] - own == pytest.approx(step, rel=0.02)


@pytest.mark.parametrize(("clients", "prompt", "output"), [(760, 130, 612), (478, 183, 576), (242, 446, 451)])
def test_several_hundred_clients_are_run_for_fewer_waves(clients: int, prompt: int, output: int) -> None:
    """Of equal lengths, one worker of each: the law, which they had, says first tokens 20, 36 and 60 % too soon."""
    one = Pool(LinearModel(), Schedule.of(mixed=0), 1, np.array([1e6])), Pool(LinearModel(), Schedule.of(ahead=1), 1, np.array([1e6]))
    found = pools_closed_loop(*one, Transfer(held, 50e9), Requests.of(prompt=prompt, output=output), np.array([float(clients)]))
    run = PooledLoop(clients=clients, prompts=1, decodes=1, prompt=prompt, output=output, ahead=1, waves=26).run()
    assert found.ttft_s[0] == pytest.approx(run["TTFT"], rel=0.04)
    assert found.requests_per_s[0] == pytest.approx(run["requests/s"], rel=0.01)


def test_clients_between_two_whole_numbers_are_run_as_both() -> None:
    """64 1/2 clients at two workers of prompts and one of decodes are loops of 64 and of 65, half of them each: the law, which they had,
    says 57 ms to a first token, and runs 65. Of requests more are of the loop that ends more, and all that are there add up."""
    pools = Pool(LinearModel(), Schedule.of(mixed=0), 2, np.array([1e6])), Pool(LinearModel(), Schedule.of(), 1, np.array([1e6]))
    found = pools_closed_loop(*pools, Transfer(held, 50e9), Requests.of(prompt=1000, output=2000, waves=26), np.array([64.5]))
    few, more = (PooledLoop(clients=n, prompts=2, decodes=1, prompt=1000, output=2000, waves=26).run() for n in (64, 65))
    rates = few["requests/s"], more["requests/s"]
    first = (rates[0] * few["TTFT"] + rates[1] * more["TTFT"]) / sum(rates)
    assert found.requests_per_s[0] == pytest.approx(sum(rates) / 2.0, rel=5e-3)
    assert found.ttft_s[0] == pytest.approx(first, rel=0.04)
    assert found.requests_per_s[0] * (found.ttft_s[0] + 1999.0 * found.tpot_s[0]) == pytest.approx(64.5, rel=1e-9)


def test_some_thousand_clients_are_run() -> None:
    """Of 1,500 alike and 700 unlike ones, which had the law: their first tokens were said 64, 39 and 35 % too soon and 30 too late."""
    for number, clients in ((5050, 1500), (5040, 1500), (5028, 700), (5010, 700)):
        assert abs(replace(drawn(number), clients=clients, waves=10).gaps()["TTFT"]) < 0.04


def test_steps_of_one_worker_bring_clients_together_again() -> None:
    """Equal lengths of 64 clients that part by a batch of 27 ms join between steps of 8 ms alone, and so come back together: forty waves
    step by step say 65 ms to a first token, 58 at last. They were said to part for good: 38 ms."""
    loop = PooledLoop(clients=64, prompts=1, decodes=1, prompt=1000, output=2000, waves=40)
    assert abs(loop.gaps()["TTFT"]) < 0.02


def test_groups_part_as_steps_of_several_workers_fall() -> None:
    """Of 83 clients of two workers of each pool: batches of the ten waves are down to one to three prompts. Said to lose one a wave, they
    took twice as long."""
    assert abs(drawn(5129).gaps()["TTFT"]) < 0.02


def test_a_loop_that_was_run_is_not_run_again() -> None:
    loop = PooledLoop(clients=7, prompts=1, decodes=2, prompt=613, output=211, least=0.7)
    said, runs = loop.law(), pooled_run.cache_info().misses
    assert loop.law() == said
    assert pooled_run.cache_info().misses == runs


def test_a_loop_is_run_alike_whatever_runs_beside_it() -> None:
    several, alone = (
        pools_closed_loop(
            Pool(LinearModel(), Schedule.of(n, mixed=0), 2, np.full(n, 1e6)),
            Pool(LinearModel(), Schedule.of(n), 2, np.full(n, 1e6)),
            Transfer(held, 50e9),
            Requests.of(n, prompt=400, output=100, variation=0.2),
            np.array([5.0, 17.0][-n:]),
        )
        for n in (2, 1)
    )
    assert several.ttft_s[1] == alone.ttft_s[0]
    assert several.joules_per_token[1] == pytest.approx(alone.joules_per_token[0], rel=1e-12)


@pytest.mark.parametrize("number", [1002, 1121])
def test_a_faster_link_may_keep_clients_together(number: int) -> None:
    """Caches that go one after the other part a batch of prompts: of equal lengths runs get 4 and 5 % fewer requests by twice the link."""
    loop = drawn(number)
    faster = replace(loop, bandwidth=2.0 * loop.bandwidth)
    assert loop.least == 1.0
    assert faster.run()["requests/s"] < 0.97 * loop.run()["requests/s"]
    assert faster.law()["requests/s"] < loop.law()["requests/s"]
