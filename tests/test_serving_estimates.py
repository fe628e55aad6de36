"""SGLang's admission by estimate and its retraction: requests run token by token, on their own, against the trace and what serve says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from rackmodel.errors import InputError
from rackmodel.inputs import read_profile
from rackmodel.serving.drawn_runs import drawn_loops
from rackmodel.serving.engine import ServingEngine, schedule_of
from rackmodel.serving.requests import Requests, Schedule, lengths_held, most_sequences
from rackmodel.serving.steady import closed_loop, closed_loop_as_run
from rackmodel.serving.trace import Trace, simulate
from tests.serving_models import LinearModel

MODEL = LinearModel()


@dataclass
class Tokens:
    """One engine, prompts first, whose requests are run token by token. Rules: sgl-project/sglang, srt/managers (estimates.py)."""

    prompts: Sequence[float]
    outputs: Sequence[float]
    clients: int
    cache: float
    ratio: float = 0.7
    clock: float = 0.0
    used: float = 0.0
    retractions: int = 0
    waiting: list[list[float]] = field(default_factory=list)  # number, tokens of it that are done
    running: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        count = len(self.prompts)
        self.made, self.asked, self.first, self.ended = (np.zeros(count) for _ in range(4))
        self.next = self.clients
        self.waiting = [[one, 0.0] for one in range(self.clients)]
        while self.waiting or self.running:
            if not self._prompts():
                self._decode()

    def means(self) -> tuple[float, float, float]:
        """Requests a second, seconds to a first token and a token, in the middle of the run."""
        some, gaps = slice(2 * self.clients, len(self.prompts) - self.clients), np.array(self.outputs) - 1.0
        first, each = (self.first - self.asked)[some].mean(), ((self.ended - self.first) / gaps)[some].mean()
        return self.clients / (self.ended - self.asked)[some].mean(), first, each

    def _prompts(self) -> bool:
        left, tokens, done = 8192.0, 0.0, []
        free = self.cache - self.used - self.ratio * sum(min(self.outputs[one] - self.made[one], 4096) for one in self.running)
        for one in self.waiting:
            number = int(one[0])
            whole, ahead = self.prompts[number] + self.made[number], min(self.outputs[number] - self.made[number], 4096)
            if left < 1 or (one[1] == 0 and whole + ahead >= free and (self.running or tokens)):
                break
            free -= whole + ahead if one[1] == 0 else 0.0
            self.used += whole if one[1] == 0 else 0.0
            part = min(whole - one[1], left)
            one[1], left, tokens = one[1] + part, left - part, tokens + part
            done += [one] if one[1] >= whole else []
        self.clock += MODEL.floor_s + MODEL.prompt_floor_s + MODEL.token_s * tokens if tokens else 0.0
        for one in done:
            number = int(one[0])
            self.waiting.remove(one)
            self.running.append(number)
            self.first[number] = self.first[number] or self.clock
            self.made[number] += 1
        self._leave()
        return tokens > 0

    def _decode(self) -> None:
        if self.used + len(self.running) > self.cache:
            self._retract()
        else:
            self.ratio = max(self.ratio - (0.7 - 0.098) / 600, 0.098)
        cached = sum(self.prompts[one] + self.made[one] for one in self.running)
        self.clock += MODEL.floor_s + MODEL.decode_s * len(self.running) + MODEL.cache_s * cached
        self.used += len(self.running)
        self.made[self.running] += 1
        self._leave()

    def _retract(self) -> None:
        order, out = sorted(self.running, key=lambda one: (-self.made[one], self.prompts[one])), []
        while self.used + len(order) > self.cache and len(order) > 1:
            out.append(order.pop())
            self.used -= self.prompts[out[-1]] + self.made[out[-1]] - 1
        self.running = order
        self.waiting += [[one, 0.0] for one in out]
        self.retractions += len(out)
        asked = sum(self.outputs[one] for one in order)
        self.ratio = min((self.made[order].sum() + 20 * len(order)) / (asked + 1), 1.0)

    def _leave(self) -> None:
        for one in [one for one in self.running if self.made[one] >= self.outputs[one]]:
            self.running.remove(one)
            self.ended[one] = self.clock
            self.used -= self.prompts[one] + self.made[one] - 1
            if self.next < len(self.prompts):
                self.asked[self.next] = self.clock
                self.waiting.append([self.next, 0.0])
                self.next += 1


LOOPS = [(60, 1000, 1000, 20, 0.5), (60, 1000, 1000, 20, 1.0), (40, 300, 2000, 15, 0.5), (60, 4000, 300, 20, 0.5), (30, 200, 3000, 10, 0.8)]


@pytest.mark.parametrize(("clients", "prompt", "output", "fit", "least"), LOOPS)
def test_full_caches_by_estimate_are_those_of_requests_run_token_by_token(
    clients: int, prompt: int, output: int, fit: int, least: float
) -> None:
    """As if half of an output were set aside for all its life, a second had 1 to 15 % more requests, and TPOT was up to 54 % too short."""
    draw, high, cache = np.random.default_rng(0), 2.0 / (1.0 + least), fit * (prompt + output / 2.0)
    prompts, outputs = (np.round(draw.uniform(high * least * mean, high * mean, 8 * clients)) for mean in (prompt, output))
    run = Tokens(prompts.tolist(), outputs.tolist(), clients, cache)
    schedule = Schedule.of(mixed=0, estimates=1)
    found = simulate(MODEL, Trace(arrival_s=np.zeros(8 * clients), prompt=prompts, output=outputs), schedule, cache, clients)
    some = slice(2 * clients, 7 * clients)
    traced = clients / found.total_s[some].mean(), found.ttft_s[some].mean(), found.tpot_s[some].mean()
    assert traced == pytest.approx(run.means(), rel=0.1)
    requests = Requests.of(prompt=prompt, output=output, variation=(1.0 - least) / (1.0 + least) / 3**0.5, waves=8)
    room = most_sequences(np.array([cache - prompt - output]), lengths_held(requests, schedule).mean(axis=0), schedule)
    law, served = (says(MODEL, requests, schedule, np.array([float(clients)]), room) for says in (closed_loop, closed_loop_as_run))
    assert float(served.requests_per_s[0]) == pytest.approx(run.means()[0], rel=0.06)
    assert float(served.ttft_s[0]) == pytest.approx(run.means()[1], rel=0.25)
    assert float(served.tpot_s[0]) == pytest.approx(run.means()[2], rel=0.1)
    assert float(law.requests_per_s[0]) == pytest.approx(run.means()[0], rel=0.2)


BENCHMARKS = [(64, 400, 3200, 50, 0.8, 10), (60, 1000, 1000, 20, 0.8, 10), (24, 2000, 250, 20, 0.8, 6)]


@pytest.mark.parametrize(("clients", "prompt", "output", "fit", "least", "waves"), BENCHMARKS)
def test_a_benchmark_of_full_caches_begins_with_prompts_that_wait_for_room(
    clients: int, prompt: int, output: int, fit: int, least: float, waves: int
) -> None:
    """All of its requests, the first ones, too. Of r = 0.25 and of 0.13 of the retractions that all growth would be, 7.8 s for 4.8 of long
    answers; and of the first ones those who find no place had been left out, 0.25 s for 1.0."""
    draw, high, cache = np.random.default_rng(1), 2.0 / (1.0 + least), fit * (prompt + output / 2.0)
    prompts, outputs = (np.round(draw.uniform(high * least * mean, high * mean, waves * clients)) for mean in (prompt, output))
    run = Tokens(prompts.tolist(), outputs.tolist(), clients, cache)
    schedule = Schedule.of(mixed=0, estimates=1)
    requests = Requests.of(prompt=prompt, output=output, variation=(1.0 - least) / (1.0 + least) / 3**0.5, waves=waves)
    room = most_sequences(np.array([cache - prompt - output]), lengths_held(requests, schedule).mean(axis=0), schedule)
    found = closed_loop_as_run(MODEL, requests, schedule, np.array([float(clients)]), room, at_once=True)
    waited = run.first - run.asked
    assert float(found.run_ttft_s(requests)[0]) == pytest.approx(waited.mean(), rel=0.1)
    assert float(found.burst_s[0]) == pytest.approx(waited[:clients].mean(), rel=0.1)


def test_steps_of_more_young_requests_than_fit_in_the_mean_are_priced_as_such() -> None:
    """35 of 1,600 tokens in the mean fit, up to 162 that have their prompts alone. Steps of more than 35 were priced as those of 35."""
    clients, schedule = 100, Schedule.of(mixed=0, estimates=1)
    requests = Requests.of(prompt=100, output=3000, variation=1.0 / 27.0**0.5, waves=8)
    room = most_sequences(np.array([40 * 1600.0 - 3100.0]), lengths_held(requests, schedule).mean(axis=0), schedule)
    run = drawn_loops(MODEL, requests, schedule, np.array([float(clients)]), room)
    draw, trace = np.random.default_rng(0), []
    for mean in (100.0, 3000.0):
        wide = mean * 3.0**0.5 * requests.variation
        trace.append(np.floor(draw.uniform(mean - wide, mean + wide, 8 * clients) + 0.5))
    alone = simulate(MODEL, Trace(arrival_s=np.zeros(8 * clients), prompt=trace[0], output=trace[1]), schedule, 40 * 1600.0, clients)
    middle = slice(clients, 7 * clients)
    assert float(run.per_s[0]) == pytest.approx(clients / alone.total_s[middle].mean(), rel=1e-3)
    assert float(run.first_s[0]) == pytest.approx(alone.ttft_s[middle].mean(), rel=1e-3)


def test_room_by_estimate_by_hand() -> None:
    """100 bytes a token, 10 requests' mean of 1,000 + 400 (1 + 0.098) / 2 = 1,219.6 tokens beside one whole one of 1,400: 13,596 tokens."""
    facts = read_profile("sglang").engine
    assert facts is not None
    assert facts.estimates
    facts = facts.model_copy(update={"memory_share": 1.0, "reserved_bytes": 0.0})
    model = LinearModel(weights_bytes=1.0, kv_bytes_per_token=100.0, capacity_bytes=13_597.0 * 100.0)
    engine = ServingEngine(captured=model, launched=model, facts=facts)
    requests = Requests.of(prompt=1000, output=400)
    assert engine.room(requests, schedule_of(facts, 1)) == pytest.approx([10.0], rel=1e-3)
    longer = Requests.of(prompt=1000, output=8192)  # of which no more than 4,096 are expected: 0.098 x (4,096 - 4,096 / 4) in the mean
    assert lengths_held(longer, schedule_of(facts, 1)).mean() == pytest.approx(1000 + 4096 + 0.098 * 3072, rel=1e-3)


def test_ways_to_admit_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InputError, match="evicts and estimates: requests are admitted in one of these ways"):
        read_profile("sglang", ["profile.engine.evicts=true"])
    with pytest.raises(InputError, match="reserves and evicts"):
        read_profile("trtllm", ["profile.engine.evicts=true"])
    assert read_profile("trtllm", ["profile.engine.reserves=false", "profile.engine.evicts=true"]).engine.evicts  # type: ignore[union-attr]
