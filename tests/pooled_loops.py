"""Drawn loops of clients through pools of prompts and of decodes: the law against requests that are run one by one.

    python -m tests.pooled_loops [COUNT] [SEED]      how far apart they are, by lengths and load

Prompts' workers take what waits, batch by batch; each hands on one cache after the other. Decodes' workers go step by step, and look
between two steps: at requests whose prompts are done, to ask for their caches, or at new ones, whose prompts may begin then; and at caches
that came. Requests are dealt to workers of both pools in turn. Each client sends its requests one after the other, of which the first,
that all send at once, and the last are not read.
"""

from __future__ import annotations

import heapq
import random
import sys
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from rackmodel.serving.pools import Pool, Transfer, pools_closed_loop
from rackmodel.serving.requests import Requests, Schedule
from tests.serving_models import LinearModel

PER_TOKEN = 131072.0
MOST = 20_000  # requests of a run
ARRIVES, BEGINS, ENDS, HANDED, STEPS = range(5)


@dataclass(frozen=True, kw_only=True)
class PooledLoop:
    """What is asked. least: the shortest length over the longest · budget: tokens of a batch of prompts · room: of a decodes' worker."""

    clients: int
    prompts: int
    decodes: int
    prompt: int
    output: int
    least: float = 1.0
    budget: int = 8192
    room: int = 100_000
    ahead: int = 0
    asks_first: int = 0
    bandwidth: float = 50e9
    waves: int = 10
    model: LinearModel = field(default_factory=LinearModel, hash=False)

    def law(self) -> dict[str, float]:
        """What pools_closed_loop says."""
        variation = (1.0 - self.least) / (1.0 + self.least) / 3**0.5
        requests = Requests.of(prompt=self.prompt, output=self.output, variation=variation, waves=self.waves)
        first = Pool(self.model, Schedule.of(mixed=0, token_budget=self.budget), self.prompts, np.array([1e6]))
        then = Pool(self.model, Schedule.of(ahead=self.ahead, asks_first=self.asks_first), self.decodes, np.array([float(self.room)]))
        way = Transfer(lambda tokens: PER_TOKEN * tokens, self.bandwidth)
        found = pools_closed_loop(first, then, way, requests, np.array([float(self.clients)]))
        figures = {
            "requests/s": found.requests_per_s,
            "TTFT": found.ttft_s,
            "TPOT": found.tpot_s,
            "burst": found.burst_s,
            "busy": found.busy,
        }
        return {name: float(value[0]) for name, value in figures.items()}

    def run(self, seed: int = 1) -> dict[str, float]:
        """What requests meet that are run."""
        return _Run(self, seed).figures()

    def gaps(self) -> dict[str, float]:
        """The law over the run, less one."""
        law = self.law()
        return {name: law[name] / value - 1.0 for name, value in self.run().items()}


class _Run:
    """Requests of one loop, event by event."""

    def __init__(self, loop: PooledLoop, seed: int) -> None:
        self.loop, self.model = loop, loop.model
        self.count = min(loop.clients * loop.waves, max(MOST, 3 * loop.clients))
        draw = np.random.default_rng(seed)
        high = 2.0 / (1.0 + loop.least)
        even = (np.round(draw.uniform(high * loop.least * mean, high * mean, self.count)) for mean in (loop.prompt, loop.output))
        self.prompt, self.output = (np.maximum(one, 1.0) for one in even)
        self.asked, self.first, self.ended = (np.zeros(self.count) for _ in range(3))
        self.sent = self.dealt = self.passed_on = 0
        self.own: dict[int, int] = {}  # number → worker of decodes
        self.lines: list[deque[list[float]]] = [deque() for _ in range(loop.prompts)]
        self.under_way: list[list[int] | None] = [None] * loop.prompts
        self.link_free = [0.0] * loop.prompts
        self.told: list[list[tuple[int, int]]] = [[] for _ in range(loop.decodes)]  # requests that it has not looked at, prompts' worker
        self.waiting: list[deque[tuple[float, int]]] = [deque() for _ in range(loop.decodes)]
        self.decoding: list[list[tuple[int, int]]] = [[] for _ in range(loop.decodes)]  # the step that one ends after, and its number
        self.taken, self.context = [0] * loop.decodes, [0.0] * loop.decodes
        self.starts = [deque([0.0] * (loop.ahead + 1), maxlen=loop.ahead + 1) for _ in range(loop.decodes)]
        self.events: list[tuple[float, int, int]] = []

    def figures(self) -> dict[str, float]:
        """Means over the middle of the run."""
        for _ in range(min(self.loop.clients, self.count)):
            self._send(0.0)
        while self.events:
            now, kind, which = heapq.heappop(self.events)
            (self._arrives, self._begins, self._ends, self._handed, self._steps)[kind](now, which)
        many = self.loop.clients
        some = slice(many, self.count - many)
        tpot = (self.ended - self.first) / np.maximum(self.output - 1.0, 1.0)
        whole = float((self.ended - self.asked)[some].mean())
        first = self.first - self.asked
        return {
            "requests/s": many / whole,
            "TTFT": float(first[some].mean()),
            "TPOT": float(tpot[some].mean()),
            "burst": float(first[:many].mean()),
        }

    def _send(self, now: float) -> None:
        if self.sent < self.count:
            self.asked[self.sent] = now
            if self.loop.asks_first:
                self._tell(now, self.sent, -1)
            else:
                heapq.heappush(self.events, (now, ARRIVES, self.sent))
            self.sent += 1

    def _tell(self, now: float, number: int, prompts: int) -> None:
        """A request comes to a worker of decodes, whose turn it is. prompts: worker that did its prompt; -1: none yet."""
        to, self.passed_on = self.passed_on % self.loop.decodes, self.passed_on + 1
        self.own[number] = to
        self.told[to].append((number, prompts))
        if not self.decoding[to]:
            self._looks(now, to)

    def _arrives(self, now: float, number: int) -> None:
        worker, self.dealt = self.dealt % self.loop.prompts, self.dealt + 1
        self.lines[worker].append([number, self.prompt[number]])
        if self.under_way[worker] is None:
            self.under_way[worker] = []
            heapq.heappush(self.events, (now, BEGINS, worker))

    def _begins(self, now: float, worker: int) -> None:
        room, line, whole = float(self.loop.budget), self.lines[worker], list[int]()
        while line and room > 0:
            part = min(line[0][1], room)
            room, line[0][1] = room - part, line[0][1] - part
            if line[0][1] == 0:
                whole.append(int(line.popleft()[0]))
        tokens = self.loop.budget - room
        self.under_way[worker] = whole if tokens else None
        if tokens:
            seconds = self.model.floor_s + self.model.prompt_floor_s + tokens * self.model.token_s
            heapq.heappush(self.events, (now + seconds, ENDS, worker))

    def _ends(self, now: float, worker: int) -> None:
        for number in self.under_way[worker] or []:
            if self.loop.asks_first:
                self._hands_on(now, number, worker)
            else:
                self._tell(now, number, worker)
        self._begins(now, worker)

    def _hands_on(self, now: float, number: int, worker: int) -> None:
        self.link_free[worker] = max(now, self.link_free[worker]) + PER_TOKEN * self.prompt[number] / self.loop.bandwidth
        heapq.heappush(self.events, (self.link_free[worker], HANDED, number))

    def _looks(self, now: float, worker: int) -> None:
        told, self.told[worker] = self.told[worker], []
        for number, prompts in told:
            if prompts < 0:
                heapq.heappush(self.events, (now, ARRIVES, number))
            else:
                self._hands_on(now, number, prompts)

    def _handed(self, now: float, number: int) -> None:
        worker = self.own[number]
        self.waiting[worker].append((now, number))
        if not self.decoding[worker] and len(self.waiting[worker]) == 1:
            self.starts[worker].extend([now] * (self.loop.ahead + 1))
            heapq.heappush(self.events, (now, STEPS, worker))

    def _steps(self, now: float, worker: int) -> None:
        decoding, waiting, model = self.decoding[worker], self.waiting[worker], self.model
        while decoding and decoding[0][0] <= self.taken[worker]:
            _, number = heapq.heappop(decoding)
            self.context[worker] -= self.prompt[number] + self.output[number]
            self.ended[number] = now
            self._send(now)
        self.starts[worker].append(now)
        self._looks(now, worker)
        while waiting and len(decoding) < self.loop.room and (waiting[0][0] <= self.starts[worker][0] or not decoding):
            _, number = waiting.popleft()
            self.first[number] = now
            self.context[worker] += self.prompt[number] + 1.0
            heapq.heappush(decoding, (self.taken[worker] + int(self.output[number]) - 1, number))
        if decoding:
            seconds = model.floor_s + model.decode_s * len(decoding) + model.cache_s * self.context[worker]
            self.taken[worker] += 1
            self.context[worker] += len(decoding)
            heapq.heappush(self.events, (now + seconds, STEPS, worker))


def drawn(number: int) -> PooledLoop:
    """The loop of that number."""
    pick = random.Random(f"pooled {number}")
    model = LinearModel(
        floor_s=10 ** pick.uniform(-2.7, -1.8),
        cache_s=10 ** pick.uniform(-9.3, -8.0),
        token_s=10 ** pick.uniform(-5.3, -4.3),
        prompt_floor_s=10 ** pick.uniform(-3.0, -1.5),
    )
    return PooledLoop(
        clients=round(10 ** pick.uniform(0, 2.7)),
        prompts=pick.choice([1, 1, 2, 4]),
        decodes=pick.choice([1, 2, 4, 8]),
        prompt=round(10 ** pick.uniform(2, 4.1)),
        output=round(10 ** pick.uniform(1.5, 2.8)),
        least=pick.choice([1.0, 1.0, 0.8, 0.5]),
        budget=pick.choice([2048, 8192, 16384]),
        room=pick.choice([100_000, 100_000, 32]),
        ahead=pick.choice([0, 1]),
        bandwidth=10 ** pick.uniform(10.0, 11.7),
        waves=pick.choice([10, 10, 40]),
        asks_first=pick.choice([0, 1]),
        model=model,
    )


def main(count: int, seed: int) -> None:
    """Prints |law - run| in %: median, nine of ten, worst and mean with sign."""
    found = [(loop, loop.gaps(), loop.law()["busy"]) for loop in map(drawn, range(seed, seed + count))]
    kinds = {
        "all": lambda one, busy: True,
        "lengths alike": lambda one, busy: one.least == 1.0,
        "alike, several prompts in a batch": lambda one, busy: one.least == 1.0 and one.budget >= 2 * one.prompt,
        "lengths unlike": lambda one, busy: one.least < 1.0,
        "prompts' workers less than 90 % busy": lambda one, busy: busy < 0.9,
    }
    for kind, of in kinds.items():
        some = [gaps for loop, gaps, busy in found if of(loop, busy)]
        for name in some[0] if some else ():
            off = 100.0 * np.array([one[name] for one in some])
            figures = (*np.percentile(np.abs(off), [50, 90, 100]), off.mean())
            print(f"{kind}, {len(some)}: {name} {figures[0]:.1f}, {figures[1]:.1f}, {figures[2]:.0f}, {figures[3]:+.1f}")


if __name__ == "__main__":
    main(*(int(one) for one in (sys.argv[1:] + ["60", "0"][len(sys.argv) - 1 :])))
