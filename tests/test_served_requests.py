"""Requests through an engine against a queue that is worked token by token, and by hand."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from rackmodel.serving.admission import Trace
from rackmodel.serving.requests import Schedule
from rackmodel.serving.trace import simulate
from tests import samples
from tests.serving_models import LinearModel


@dataclass
class Queue:
    """One replica, step by step, each sequence's tokens counted. way_s: to the queue; as long is the way back."""

    trace: Trace
    budget: float
    sequences: float
    mixed: bool
    kv_tokens: float
    clients: int | None
    way_s: float
    model: LinearModel = field(default_factory=LinearModel)

    def __post_init__(self) -> None:
        n = len(self.trace.prompt)
        self.clock, self.sent = 0.0, 0
        self.asked, self.first, self.ended = np.array(self.trace.arrival_s), np.zeros(n), np.zeros(n)
        self.coming: list[tuple[float, int]] = []
        self.waiting: list[int] = []
        self.left = list(self.trace.prompt)
        self.cached: dict[int, float] = {}
        self.made = [0] * n
        for _ in range(n if self.clients is None else min(self.clients, n)):
            self._send()

    def _send(self) -> None:
        if self.sent < len(self.asked):
            if self.clients is not None:
                self.asked[self.sent] = self.clock + self.way_s if self.clock else 0.0
            self.coming.append((self.asked[self.sent] + self.way_s, self.sent))
            self.sent += 1

    def _need(self, numbers: list[int]) -> float:
        return sum(float(self.trace.prompt[one] + self.trace.output[one] / 2) for one in numbers)

    def run(self) -> None:
        while self.coming or self.waiting or self.cached:
            self.coming.sort()
            while self.coming and self.coming[0][0] <= self.clock:
                self.waiting.append(self.coming.pop(0)[1])
            if self.waiting or self.cached:
                self._step(self._chosen())
            else:
                self.clock = self.coming[0][0]

    def _chosen(self) -> list[tuple[int, float]]:
        room = self.budget - (len(self.cached) if self.mixed else 0)
        found: list[tuple[int, float]] = []
        begun = [one for one in self.waiting if self.left[one] < self.trace.prompt[one]]
        for one in self.waiting:
            inside = [*self.cached, *begun, *(number for number, _ in found if number not in begun)]
            full = one not in begun and (len(inside) >= self.sequences or self._need([*inside, one]) > self.kv_tokens)
            if room < 1 or (full and inside):
                break
            found.append((one, min(self.left[one], room)))
            room -= found[-1][1]
        return found

    def _step(self, prompts: list[tuple[int, float]]) -> None:
        model, decodes = self.model, list(self.cached) if self.mixed or not prompts else []
        tokens = sum(part for _, part in prompts)
        self.clock += model.floor_s + model.decode_s * len(decodes) + model.cache_s * sum(self.cached[one] for one in decodes)
        self.clock += model.token_s * tokens + (model.prompt_floor_s if tokens else 0.0)
        for one in decodes:
            self.cached[one] += 1
            self._made(one)
        for one, part in prompts:
            self.left[one] -= part
            if not self.left[one]:
                self.waiting.remove(one)
                self.first[one], self.cached[one] = self.clock, self.trace.prompt[one]
                self._made(one)

    def _made(self, one: int) -> None:
        self.made[one] += 1
        if self.made[one] == self.trace.output[one]:
            self.ended[one] = self.clock
            del self.cached[one]
            if self.clients is not None:
                self._send()


@pytest.mark.parametrize("seed", range(samples.cases(40, 400)))
def test_drawn_requests_meet_what_a_queue_worked_token_by_token_does(seed: int) -> None:
    draw = np.random.default_rng(seed)
    n = int(draw.integers(1, 40))
    arrivals = np.sort(draw.uniform(0, draw.choice([0.0, 0.1, 3.0, 100.0]), n))
    trace = Trace(arrival_s=arrivals, prompt=draw.integers(1, 3000, n).astype(float), output=draw.integers(1, 60, n).astype(float))
    budget, sequences = float(draw.choice([64, 512, 2048, 8192])), float(draw.choice([2, 5, 1e9]))
    kv_tokens = float(draw.choice([1e12, 1.5 * (trace.prompt + trace.output).max()]))
    mixed, clients, way = bool(draw.integers(2)), int(draw.choice([0, 1, 3, 8])) or None, float(draw.choice([0.0, 0.01]))
    schedule = Schedule.of(token_budget=budget, sequences=sequences, mixed=mixed, request_s=2.0 * way)
    found = simulate(LinearModel(), trace, schedule, kv_tokens, clients)
    queue = Queue(trace, budget, sequences, mixed, kv_tokens, clients, way)
    queue.run()
    np.testing.assert_allclose(found.ttft_s, queue.first - queue.asked + way, rtol=1e-9)
    np.testing.assert_allclose(found.total_s, queue.ended - queue.asked + way, rtol=1e-9)
    assert found.seconds == pytest.approx(queue.ended.max() + way - queue.asked.min())


def test_a_prompts_last_token_beside_one_decode_takes_one_floor() -> None:
    """65 tokens at a budget of 64: one is left for a second step, beside the first request's second token, 27 tokens in its cache."""
    trace = Trace(arrival_s=np.zeros(2), prompt=np.array([27.0, 38.0]), output=np.array([4.0, 1.0]))
    found = simulate(LinearModel(), trace, Schedule.of(token_budget=64.0, request_s=2e-3), 1e12)
    first = 5e-3 + 2e-3 + 64 * 2e-5
    second = first + 5e-3 + 2e-5 + 27e-8 + 2e-3 + 2e-5
    third = second + 2 * (5e-3 + 2e-5) + (28 + 29) * 1e-8
    np.testing.assert_allclose(found.ttft_s, [first + 2e-3, second + 2e-3], rtol=1e-12)
    np.testing.assert_allclose(found.total_s, [third + 2e-3, second + 2e-3], rtol=1e-12)
    assert found.seconds == pytest.approx(third + 2e-3)  # the client has its last token when it has come back
