"""Requests one by one through an engine, step by step: what a trace of arrivals and lengths meets, with its percentiles.

First come, first served. A step takes the decodes and, where prompts wait, as many of their tokens as its budget has room for; runs of
steps without prompts are taken in one stride to the next arrival or end. Rules of joining are those of Schedule. A request is admitted
when the cache has room for its prompt and for half of its output (for all of it where the engine reserves it); none is put out again.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from math import ceil, inf

import numpy as np
from numpy.typing import NDArray

from rackmodel.errors import InputError
from rackmodel.serving.requests import Schedule
from rackmodel.serving.step_table import Extent, StepTable
from rackmodel.serving.steps import Served

Array = NDArray[np.float64]
PERCENTILES = (50.0, 90.0, 95.0, 99.0)


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Requests in the order of their arrival. arrival_s: of each, not before the last one's; ignored where clients send the next request
    when their last one has ended · prompt, output: tokens."""

    arrival_s: Array
    prompt: Array
    output: Array

    def __post_init__(self) -> None:
        if not len(self.prompt):
            raise InputError("no requests", path="trace")
        if (np.diff(self.arrival_s) < 0).any():
            row = int(np.argmax(np.diff(self.arrival_s) < 0)) + 2
            raise InputError(f"request {row} arrives before the one above it", path="trace")


@dataclass(frozen=True, kw_only=True)
class RequestFigures:
    """Figures of every request: seconds queued, to its first token, a token after it, and all told; and the whole run's seconds."""

    queue_s: Array
    ttft_s: Array
    tpot_s: Array
    total_s: Array
    seconds: float


@dataclass
class _Waiting:
    number: int
    since: float
    left: float
    done: float = 0.0


class _Rules:
    """A schedule of one engine as plain numbers."""

    def __init__(self, schedule: Schedule, kv_tokens: float) -> None:
        def one(name: str) -> float:
            return float(np.ravel(np.asarray(getattr(schedule, name)))[0])

        self.budget = one("token_budget") * one("ranks")
        self.chunk = one("token_budget") if one("chunked") else inf
        self.sequences, self.mixed, self.whole = one("sequences"), one("mixed") > 0, one("reserves") > 0
        self.ahead, self.held, self.held_until = int(one("ahead")), one("held"), one("held_until")
        self.polled, self.request_s, self.tokenize_s = max(one("polled"), 1.0), one("request_s"), one("tokenize_s")
        self.pace = float(np.ravel(schedule.tokens_per_step)[0])
        self.wide = 1.0 + one("drafted")
        self.kv_tokens = kv_tokens


class _Running:
    """One replica that runs. Steps are counted; a decoding request is (step it ends after, number)."""

    def __init__(self, trace: Trace, rules: _Rules, table: StepTable, clients: int | None) -> None:
        self.trace, self.rules, self.table = trace, rules, table
        self.clock = 0.0
        self.step = 0
        self.starts = deque([0.0] * rules.ahead, maxlen=rules.ahead)
        self.decoding: list[tuple[int, int]] = []
        self.context = 0.0
        self.held_tokens = 0.0
        self.queue: deque[_Waiting] = deque()
        self.coming: list[tuple[float, int]] = []
        self.sent = 0
        self.closed = clients is not None
        self.waited_from: int | None = None
        count = len(trace.prompt)
        self.admitted, self.first, self.ended = (np.zeros(count) for _ in range(3))
        self.asked = np.array(trace.arrival_s, dtype=np.float64)
        for _ in range(count if clients is None else min(clients, count)):
            self._send(0.0)

    def _send(self, now: float) -> None:
        """The next request of the trace, at its time or, of a client, now."""
        if self.sent >= len(self.trace.prompt):
            return
        number = self.sent
        self.sent += 1
        if self.closed:
            self.asked[number] = now
        before = self.rules.request_s + self.rules.tokenize_s * float(self.trace.prompt[number])
        heapq.heappush(self.coming, (self.asked[number] + before, number))

    def run(self) -> None:
        """Until every request has ended."""
        while self.coming or self.queue or self.decoding:
            self._arrive()
            chosen = self._chosen()
            if chosen:
                self._prompt_step(chosen)
            elif self.decoding:
                self._stride()
            else:
                self._idle()

    def _arrive(self) -> None:
        """Requests that were there when the steps under way were scheduled join the queue."""
        seen = self.starts[0] if self.rules.ahead else self.clock
        while self.coming and self.coming[0][0] <= seen:
            since, number = heapq.heappop(self.coming)
            self.queue.append(_Waiting(number, since, float(self.trace.prompt[number])))
            if self.waited_from is None:
                self.waited_from = self.step

    def _idle(self) -> None:
        """Nothing runs: to the next arrival, or to the end of a wait for company."""
        if self.queue:
            self.waited_from = -(10**12)
        elif self.coming:
            self.clock = max(self.clock, self.coming[0][0])
            self.starts.extend([self.clock] * self.rules.ahead)

    def _chosen(self) -> list[tuple[_Waiting, float]]:
        """Prompts of the next step and how many tokens of each; none where they wait for company, a look, or room."""
        rules = self.rules
        if not self.queue or not self._may_join():
            return []
        left = rules.budget - (len(self.decoding) * rules.wide if rules.mixed else 0)
        found: list[tuple[_Waiting, float]] = []
        sequences = len(self.decoding)
        for one in self.queue:
            need = self._tokens_held(one.number)
            if one.done == 0 and (sequences >= rules.sequences or self.held_tokens + need > rules.kv_tokens) and (self.decoding or found):
                break
            tokens = min(one.left, max(left, 1.0), rules.chunk) if rules.chunk < inf else one.left
            if left < 1 or (tokens > left and found):
                break
            if one.done == 0:
                self.held_tokens += need
                self.admitted[one.number] = self.clock
            found.append((one, tokens))
            left -= tokens
            sequences += 1
        return found

    def _may_join(self) -> bool:
        rules, begun = self.rules, self.queue[0].done > 0
        if begun or not self.decoding:
            return True
        if rules.polled > 1 and self.step % rules.polled:
            return False
        if rules.held > 0 and self.waited_from is not None:
            enough = sum(one.left for one in self.queue) >= rules.held_until * rules.budget
            return enough or self.step - self.waited_from >= rules.held
        return True

    def _tokens_held(self, number: int) -> float:
        return float(self.trace.prompt[number] + self.trace.output[number] * (1.0 if self.rules.whole else 0.5))

    def _prompt_step(self, chosen: list[tuple[_Waiting, float]]) -> None:
        tokens = sum(part for _, part in chosen)
        before = sum(one.done for one, _ in chosen) / len(chosen)
        size = len(self.decoding) if self.rules.mixed else 0
        mean = self.context / len(self.decoding) if size else 0.0
        self._pass(self.table.seconds(size, mean, tokens, before))
        if size:
            self._decoded(1)
        for one, part in chosen:
            one.done += part
            one.left -= part
            if one.left <= 1e-9:
                self.queue.remove(one)
                self._begun(one)
        self.waited_from = self.step if self.queue else None

    def _pass(self, seconds: float) -> None:
        self.starts.append(self.clock)
        self.clock += seconds

    def _begun(self, one: _Waiting) -> None:
        """A prompt is done: its first token is there."""
        self.first[one.number] = self.clock
        left = ceil((self.trace.output[one.number] - 1) / self.rules.pace - 1e-9)
        if left <= 0:
            self._end(one.number)
            return
        heapq.heappush(self.decoding, (self.step + left, one.number))
        self.context += float(self.trace.prompt[one.number])

    def _decoded(self, steps: int) -> None:
        """Every decoding request has got its tokens of some steps; those that are complete leave."""
        self.step += steps
        self.context += len(self.decoding) * steps * self.rules.pace
        while self.decoding and self.decoding[0][0] <= self.step:
            _, number = heapq.heappop(self.decoding)
            self.context -= float(self.trace.prompt[number] + self.trace.output[number] - 1)
            self._end(number)
        self.context = max(self.context, 0.0) if self.decoding else 0.0

    def _end(self, number: int) -> None:
        self.ended[number] = self.clock
        self.held_tokens -= self._tokens_held(number)
        if self.closed:
            self._send(self.clock + self.rules.request_s)

    def _stride(self) -> None:
        """Steps of decodes alone, until one ends or something may join."""
        size = len(self.decoding)
        mean = self.context / size
        once = self.table.decode_s(size, mean)
        steps = self.decoding[0][0] - self.step
        if self.queue:
            steps = min(steps, self._steps_of_wait())
        elif self.coming:
            till = ceil((self.coming[0][0] - self.clock) / once) + self.rules.ahead
            steps = min(steps, max(till, 1))
        seconds = self.table.decode_s(size, mean + (steps - 1) / 2.0 * self.rules.pace)
        last = min(steps, self.rules.ahead)
        self.starts.extend(self.clock + seconds * (steps - back) for back in range(last, 0, -1))
        self.clock += seconds * steps
        self._decoded(steps)

    def _steps_of_wait(self) -> int:
        """Decode steps until the queue may be looked at again."""
        rules = self.rules
        if rules.polled > 1 and self.step % rules.polled:
            return int(rules.polled - self.step % rules.polled)
        if rules.held > 0 and self.waited_from is not None and self.step - self.waited_from < rules.held:
            return 1
        return max(self.decoding[0][0] - self.step, 1)


def simulate(model: Served, trace: Trace, schedule: Schedule, kv_tokens: float, clients: int | None = None) -> RequestFigures:
    """Every request's figures. kv_tokens: that the cache of the replica holds · clients: a closed loop of so many; None: as the trace says.

    Raises InputError where a request alone does not fit the cache.
    """
    rules = _Rules(schedule, kv_tokens)
    largest = float((trace.prompt + trace.output).max())
    if largest > kv_tokens:
        raise InputError(f"a request of {largest:,.0f} tokens does not fit a cache of {kv_tokens:,.0f}", path="trace")
    most = int(min(rules.sequences, len(trace.prompt), clients or inf, kv_tokens / max(float(trace.prompt.min()), 1.0)))
    mean = float(trace.prompt.mean())
    extent = Extent(
        sequences=max(most, 1), context=largest, tokens=_most_tokens(trace, rules), before=float(trace.prompt.max()), prompt=mean
    )
    engine = _Running(trace, rules, StepTable(model, extent, rules.wide), clients)
    engine.run()
    first, total = engine.first - engine.asked + rules.request_s, engine.ended - engine.asked + rules.request_s
    gaps = np.maximum(trace.output - 1.0, 1.0)
    return RequestFigures(
        queue_s=engine.admitted - engine.asked,
        ttft_s=first,
        tpot_s=(engine.ended - engine.first) / gaps,
        total_s=total,
        seconds=float(engine.ended.max() - engine.asked.min()),
    )


def _most_tokens(trace: Trace, rules: _Rules) -> float:
    return min(rules.budget, float(trace.prompt.sum())) if rules.chunk < inf else max(rules.budget, float(trace.prompt.max()))


def drawn_trace(count: int, lengths: tuple[float, float, float], rate: float | None = None, seed: int = 0) -> Trace:
    """count requests, the same for the same seed. lengths: mean prompt and output, and the shortest length over the longest, between which
    they are even · rate: of Poisson arrivals; None: all are there at once."""
    prompt, output, least = lengths
    draw = np.random.default_rng(seed)
    sides = [(2.0 * least * mean / (1.0 + least), 2.0 * mean / (1.0 + least)) for mean in (prompt, output)]
    prompts, outputs = (np.maximum(np.round(draw.uniform(low, high, count)), 1.0) for low, high in sides)
    arrivals = np.zeros(count) if rate is None else np.cumsum(draw.exponential(1.0 / rate, count))
    return Trace(arrival_s=arrivals, prompt=prompts, output=outputs)
