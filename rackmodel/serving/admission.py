"""How requests come into an engine that runs: sent by clients or at their times, queued, and taken into steps by the rules of Schedule.

A request is admitted when the cache has room for its prompt and for half of its output (for all of it where the engine reserves it), and
none is put out again. Where the engine evicts, it is admitted when its prompt fits, and takes more with each token: the newest is put out
where others have no room for their next ones, waits before all that wait, and has its prompt and its tokens computed again (eviction.py;
pipelines admit by halves). Where it estimates, all of it is in estimates.py.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import numpy as np

from rackmodel.arrays import Array
from rackmodel.errors import InputError
from rackmodel.serving.estimates import CLIP, Estimate
from rackmodel.serving.kept_drafts import run_steps
from rackmodel.serving.requests import Schedule

LATEST_S = 2.0**33
"""Until when a clock of 53 bits tells microseconds: 272 years."""


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Requests in the order of their arrival. arrival_s: of each, not before the last one's; ignored where clients send the next request
    when their last one has ended · prompt, output: tokens · reused: share of a prompt whose cache is there already."""

    arrival_s: Array
    prompt: Array
    output: Array
    reused: float = 0.0

    def __post_init__(self) -> None:
        if not len(self.prompt):
            raise InputError("no requests", path="trace")
        if self.arrival_s[-1] >= LATEST_S:
            raise InputError(f"arrives at {self.arrival_s[-1]:.3g} s: a clock tells microseconds up to {LATEST_S:.2g} s", path="trace")
        if (np.diff(self.arrival_s) < 0).any():
            row = int(np.argmax(np.diff(self.arrival_s) < 0)) + 2
            raise InputError(f"request {row} arrives before the one above it", path="trace")


@dataclass
class Waiting:
    """A request whose prompt is not done. number: in the trace · left, done: tokens of its prompt, and of its own where it was put out ·
    found: tokens that are in the cache already · tokens: that it had when it was put out."""

    number: int
    left: float
    done: float = 0.0
    found: float = 0.0
    tokens: float = 0.0


class Rules:
    """A schedule of one engine as plain numbers. way_s: of a request to the queue, and of its tokens back: half of request_s each · ahead:
    of a pipeline none, whose batches under way are as many as its stages · held_by: tokens of requests [n] → of kv_tokens."""

    def __init__(self, schedule: Schedule, kv_tokens: float, held_by: Callable[[Array], Array] = np.asarray) -> None:
        def one(name: str) -> float:
            return float(np.ravel(np.asarray(getattr(schedule, name)))[0])

        self.stages, self.mesh = int(one("stages")), int(one("mesh"))
        self.ranks = one("ranks")
        self.budget = one("token_budget") * self.ranks
        self.chunk = one("token_budget") if one("chunked") else inf
        self.sequences, self.mixed, self.whole = one("sequences"), one("mixed") > 0, one("reserves") > 0
        self.ahead = int(one("ahead")) if self.stages == 1 else 0
        self.held, self.held_until = one("held"), one("held_until")
        self.polled, self.way_s, self.tokenize_s = max(one("polled"), 1.0), one("request_s") / 2.0, one("tokenize_s")
        self.pace = float(np.ravel(schedule.tokens_per_step)[0])
        self.wide = 1.0 + one("drafted")
        self.drafted, self.accepted = int(one("drafted")), one("accepted")
        self.kv_tokens, self.held_by = kv_tokens, held_by
        self.evicts = one("evicts") > 0 and self.stages == 1
        self.estimates = one("estimates") > 0 and self.stages == 1


class Lane:
    """Sequences that decode together: all of a replica, or those of one batch of its pipeline. decoding: (step that one ends after, its
    number, tokens of its cache then) · context: tokens of all their caches now."""

    def __init__(self) -> None:
        self.step, self.pace = 0, 1.0
        self.decoding: list[tuple[int, int, float]] = []
        self.context = 0.0

    @property
    def mean_context(self) -> float:
        """Tokens of a sequence's cache, in the mean."""
        return self.context / len(self.decoding) if self.decoding else 0.0

    def join(self, number: int, steps: int, prompt: float, pace: float) -> None:
        """A sequence that decodes for so many steps, of `pace` tokens each: in the last one it may get more than it was asked for."""
        self.pace = pace
        heapq.heappush(self.decoding, (self.step + steps, number, prompt + steps * pace))
        self.context += prompt

    def leave(self, number: int) -> None:
        """A sequence leaves before it is complete."""
        place = next(at for at, one in enumerate(self.decoding) if one[1] == number)
        end, _, held = self.decoding.pop(place)
        heapq.heapify(self.decoding)
        self.context -= held - (end - self.step) * self.pace

    def decoded(self, steps: int, pace: float) -> list[int]:
        """Every sequence has got its tokens of some steps: those that are complete leave."""
        self.step += steps
        self.context += len(self.decoding) * steps * pace
        left = []
        while self.decoding and self.decoding[0][0] <= self.step:
            _, number, held = heapq.heappop(self.decoding)
            self.context -= held
            left.append(number)
        self.context = max(self.context, 0.0) if self.decoding else 0.0
        return left


class Admission:
    """The requests of one replica that runs. Batches are counted (`count`), and so are their joules and the seconds that these are of;
    `starts` are those of the ones that are scheduled ahead."""

    def __init__(self, trace: Trace, rules: Rules, clients: int | None) -> None:
        self.trace, self.rules = trace, rules
        grows = rules.evicts or rules.estimates
        share = 0.0 if grows else 1.0 if rules.whole else 0.5
        self.needs = rules.held_by(trace.prompt + trace.output * share)
        self.grows = (rules.held_by(trace.prompt + trace.output) - self.needs) / trace.output if grows else 0.0 * trace.output
        self.estimate = Estimate()
        self.running: dict[int, float] = {}
        self.grew = self.growth = 0.0
        self.clock = 0.0
        self.count = 0
        self.joules, self.worked_s = 0.0, 0.0
        self.starts = deque([0.0] * rules.ahead, maxlen=rules.ahead)
        self.held_tokens = 0.0
        self.queue: deque[Waiting] = deque()
        self.coming: list[tuple[float, int]] = []
        self.sent = 0
        self.closed = clients is not None
        self.waited_from: int | None = None
        requests = len(trace.prompt)
        self.admitted, self.first, self.ended = (np.zeros(requests) for _ in range(3))
        self.asked = np.array(trace.arrival_s, dtype=np.float64)
        self.draw = np.random.default_rng(0)
        self.steps = self._steps_of(trace.output - 1.0)
        for _ in range(requests if clients is None else min(clients, requests)):
            self.send(0.0)

    def send(self, now: float) -> None:
        """The next request of the trace, at its time or, of a client, now."""
        if self.sent >= len(self.trace.prompt):
            return
        number = self.sent
        self.sent += 1
        if self.closed:
            self.asked[number] = now
        before = self.rules.way_s + self.rules.tokenize_s * float(self.trace.prompt[number])
        heapq.heappush(self.coming, (self.asked[number] + before, number))

    def arrive(self) -> None:
        """Requests that were there when the steps under way were scheduled join the queue."""
        seen = self.starts[0] if self.rules.ahead else self.clock
        while self.coming and self.coming[0][0] <= seen:
            _, number = heapq.heappop(self.coming)
            prompt = float(self.trace.prompt[number])
            fresh = max(prompt * (1.0 - self.trace.reused), 1.0)
            self.queue.append(Waiting(number, fresh, found=prompt - fresh))
            if self.waited_from is None:
                self.waited_from = self.count

    def chosen(self, here: int, there: int, most: float = inf) -> list[tuple[Waiting, float]]:
        """Prompts of the next batch and how many tokens of each; none where they wait for company, a look, or room. here: sequences that
        decode in it · there: sequences in the engine, all batches together · most: that this one may have."""
        rules = self.rules
        if not self.queue or not self._may_join(there):
            return []
        left = rules.budget - (here * rules.wide if rules.mixed else 0)
        room = rules.kv_tokens - (self._expected() if rules.estimates else 0.0)
        found: list[tuple[Waiting, float]] = []
        for one in self.queue:
            need, new = self.held(one.number, one.tokens), one.done == 0
            more = self._all_of(one) if rules.estimates else 0.0
            full = there + len(found) >= rules.sequences or self.held_tokens + need + more > room
            if new and (here + len(found) >= most or (full and (there or found))):
                break
            tokens = min(one.left, max(left, 1.0), rules.chunk) if rules.chunk < inf else one.left
            if left < 1 or (tokens > left and found):
                break
            if new:
                self.held_tokens += need
                self.admitted[one.number] = self.clock if one.tokens == 0 else self.admitted[one.number]
            room -= more
            found.append((one, tokens))
            left -= tokens
        return found

    def _may_join(self, there: int) -> bool:
        rules, begun = self.rules, self.queue[0].done > 0
        if begun or not there:
            return True
        if rules.polled > 1 and self.count % rules.polled:
            return False
        if rules.held > 0 and self.waited_from is not None:
            enough = sum(one.left for one in self.queue) >= rules.held_until * rules.budget
            return enough or self.count - self.waited_from >= rules.held
        return True

    def worked(self, seconds: float, joules: float) -> float:
        """Counts what batches take. Returns their seconds."""
        self.worked_s += seconds
        self.joules += joules
        return seconds

    def taken(self, chosen: list[tuple[Waiting, float]]) -> list[int]:
        """A batch takes its prompts' tokens; those that are complete leave the queue."""
        done = []
        for one, part in chosen:
            one.done += part
            one.left -= part
            if one.left <= 1e-9:
                self.queue.remove(one)
                self.running[one.number] = one.tokens - self.grew
                done.append(one.number)
        return done

    def held(self, number: int, tokens: float) -> float:
        """Tokens of the cache that a request keeps which has so many of its own."""
        return float(self.needs[number]) + float(self.grows[number]) * tokens

    def begin(self, number: int, lane: Lane) -> None:
        """A prompt is done: its first token is there, or its next one where it was put out, and it decodes with a lane's."""
        had = self.running[number] + self.grew
        if had < 0.5:
            self.first[number] = self.clock
        self.running[number] += 1.0
        had += 1.0
        self.held_tokens += float(self.grows[number])
        self.growth += float(self.grows[number]) * self.rules.pace
        again = had > 1.5
        left = int(self._steps_of(self.trace.output[number : number + 1] - had)[0] if again else self.steps[number])
        if left <= 0:
            self.end(number)
        else:
            lane.join(number, left, float(self.trace.prompt[number]) + had - 1.0, self.rules.pace)

    def _steps_of(self, tokens: Array) -> Array:
        """[n] steps of so many tokens [n] each; of drafts that are kept by chance drawn."""
        return run_steps(self.draw, self.rules.drafted, self.rules.accepted, np.ceil(tokens - 1e-9))

    def grown(self, steps: int) -> None:
        """All that decode have got their tokens of some steps, before those that are complete leave."""
        self.estimate.decoded(steps)
        self.grew += steps * self.rules.pace
        self.held_tokens += steps * self.growth

    def steps_that_fit(self) -> float:
        """Steps of all that decode, for which there is room."""
        return (self.rules.kv_tokens - self.held_tokens + 1e-6) // self.growth if self.growth > 1e-9 else inf

    def make_room(self, lane: Lane) -> bool:
        """Put out the newest till all others' next tokens fit. Returns whether any was."""
        if self.rules.estimates:
            return self._retract(lane)
        out = False
        while self.rules.evicts and len(self.running) + self._begun > 1 and self.steps_that_fit() < 1:
            out = True
            begun = [one for one in self.queue if one.done > 0]
            if begun:
                one = begun[-1]
                self.held_tokens -= self.held(one.number, one.tokens)
                one.left, one.done = one.left + one.done, 0.0
                continue
            self.queue.appendleft(self._put_out(next(reversed(self.running)), lane))
        return out

    def _put_out(self, number: int, lane: Lane) -> Waiting:
        """One that runs no more, as it waits: its prompt and its tokens are computed again."""
        _, tokens = self._gone(number)
        lane.leave(number)
        prompt = float(self.trace.prompt[number])
        fresh = max(prompt * (1.0 - self.trace.reused), 1.0)
        return Waiting(number, fresh + tokens, found=prompt - fresh, tokens=tokens)

    def _retract(self, lane: Lane) -> bool:
        """The same of an engine that estimates."""
        out: list[Waiting] = []
        if self.steps_that_fit() < 1 and len(self.running) > 1:
            order = sorted(self.running, key=lambda one: (self.running[one], -float(self.trace.prompt[one])))
            while self.steps_that_fit() < 1 and len(self.running) > 1:
                out.append(self._put_out(order[len(out)], lane))
            left = np.array(list(self.running))
            self.estimate.retracted(np.array(list(self.running.values())) + self.grew, self.trace.output[left])
        self.queue.extend(out)
        return bool(out)

    def _left(self) -> tuple[Array, Array]:
        """[n] tokens that those that run make yet, and [n] of the cache for each."""
        numbers = np.array(list(self.running), dtype=np.int64)
        made = np.array(list(self.running.values())) + self.grew
        return np.maximum(self.trace.output[numbers] - made, 0.0), self.grows[numbers]

    def _all_of(self, one: Waiting) -> float:
        """Tokens of the cache that a request which waits will add."""
        return float(self.grows[one.number]) * min(float(self.trace.output[one.number]) - one.tokens, CLIP)

    def _expected(self) -> float:
        """Tokens of the cache that those that run are expected to add."""
        left, grows = self._left()
        return self.estimate.ratio * float((grows * np.minimum(left, CLIP)).sum())

    def steps_to_room(self, most: int) -> int:
        """Steps of decodes, `most` at most, until the first that waits may come in by the estimate."""
        one = self.queue[0]
        if len(self.running) >= self.rules.sequences:
            return most
        free = self.rules.kv_tokens - self.held_tokens - self.held(one.number, one.tokens) - self._all_of(one)
        return self.estimate.steps_to(free, *self._left(), most)

    @property
    def _begun(self) -> int:
        """Requests of the queue, parts of whose prompts are done."""
        return sum(one.done > 0 for one in self.queue)

    def _gone(self, number: int) -> tuple[int, float]:
        """One that runs no more, and how many tokens it has."""
        tokens = round(self.running.pop(number) + self.grew, 9)
        self.held_tokens -= self.held(number, tokens)
        self.growth -= float(self.grows[number]) * self.rules.pace
        return number, tokens

    def end(self, number: int) -> None:
        """A request is complete; its client sends the next one."""
        self.ended[number] = self.clock
        self._gone(number)
        if self.closed:
            self.send(self.clock + self.rules.way_s)
