"""A pipeline that runs requests one by one: a batch for every stage is under way, and none overtakes another.

    a batch n at stage s ends at      max(end of n at s - 1, end of n - 1 at s) + t        t: its seconds at the slowest stage
    it is scheduled                   when its lane's last batch has left the last stage; what is there by then is in it

An engine with nothing to schedule waits for the oldest batch under way, and sees no request before that has left the last stage: vLLM's
step_with_batch_queue ("we block until the first batch in the job queue is finished", vllm-project/vllm, v1/engine/core.py) and SGLang's
event_loop_pp (run the i-th batch, receive the outputs of the next one before it, sgl-project/sglang, scheduler_pp_mixin.py).

The lanes' sequences decode together. New requests are dealt evenly to lanes (as SGLang's pp_max_micro_batch_size does, its server_args.py);
chunks of a prompt follow each other in the batches that are scheduled next, and its sequence stays with the lane of the last one, however
many that has already: as vLLM's and SGLang's do ("requests can become unevenly distributed", vllm-project/vllm, pull request 50410;
"implicitly assigned to a group based on which batch happens to be scheduled", RBLN-SW/vllm-rbln, pull request 243). So lanes part, and the
fullest sets the pace of all.

Laps of decodes alone are taken in one stride once all lanes take as long for one (EVEN), up to the next end or arrival:

    a lap takes                       max(S t of the longest batch, sum of all t)      (as of any circuit of batches and stages)
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import ceil

from rackmodel.serving.admission import Admission, Lane, Rules, Trace, Waiting
from rackmodel.serving.step_table import StepTable

EVEN = 1e-3
"""Of a lap, by which those of lanes that have settled differ: caches grow from one to the next."""
FEWEST_LAPS = 4


@dataclass
class _UnderWay:
    """end: seconds when it has left the last stage · decoded: whether its lane's sequences were in it · done: prompts that end with it."""

    end: float
    lane: Lane
    decoded: bool
    done: list[int]


class Batches(Admission):
    """One replica of several stages that runs."""

    def __init__(self, trace: Trace, rules: Rules, table: StepTable, clients: int | None) -> None:
        super().__init__(trace, rules, clients)
        self.table = table
        self.free = [0.0] * rules.stages
        self.idle = deque(Lane() for _ in range(rules.stages))
        self.under_way: deque[_UnderWay] = deque()
        self.left_s: dict[Lane, float] = {}
        self.lap_s, self.even = 0.0, 0

    def run(self) -> None:
        """Until every request has ended."""
        while self.coming or self.queue or self.under_way or any(lane.decoding for lane in self.idle):
            self._results()
            self.arrive()
            if self.even > len(self.under_way) + 1:
                self._laps()
            if not self._scheduled():
                self._wait()

    def _results(self) -> None:
        """What has left the last stage by now gives its tokens."""
        while self.under_way and self.under_way[0].end <= self.clock:
            batch = self.under_way.popleft()
            self._settles(batch)
            if batch.decoded:
                for number in batch.lane.decoded(1, self.rules.pace):
                    self.end(number)
            for number in batch.done:
                self.begin(number, batch.lane)
            self.idle.append(batch.lane)

    def _settles(self, batch: _UnderWay) -> None:
        """How many batches in a row have left a lap after their lane's last one that is as long as the one before."""
        lap_s = batch.end - self.left_s.get(batch.lane, -1.0)
        alike = batch.decoded and not batch.done and abs(lap_s - self.lap_s) <= EVEN * lap_s
        self.left_s[batch.lane], self.lap_s = batch.end, lap_s
        self.even = self.even + 1 if alike else 0

    def _laps(self) -> None:
        """Laps of lanes that decode, in one stride to before the first of them has an end, or something comes."""
        self.even = 0
        lanes = [lane for lane in (*self.idle, *(one.lane for one in self.under_way)) if lane.decoding]
        if self.queue or any(one.done or not one.decoded for one in self.under_way):
            return
        laps = min(lane.decoding[0][0] - lane.step for lane in lanes) - 2 if lanes else 0
        if self.coming:
            laps = min(laps, int((self.coming[0][0] - self.clock) / self.lap_s) - 1)
        if laps < FEWEST_LAPS:
            return
        pace = self.rules.pace
        each = [self.table.decode(len(one.decoding), one.mean_context + (laps - 1) / 2.0 * pace) for one in lanes]
        passed = max(self.rules.stages * max(each)[0], sum(seconds for seconds, _ in each)) * laps
        for lane, (seconds, joules) in zip(lanes, each, strict=True):
            self.worked(seconds * laps, joules * laps)
            lane.decoded(laps, pace)
            self.left_s[lane] += passed
        self.count += laps * len(lanes)
        self.clock += passed
        self.free = [one + passed for one in self.free]
        for batch in self.under_way:
            batch.end += passed

    def _scheduled(self) -> bool:
        """Whether a lane that has waited, the longest first, has something to do."""
        alone = [lane for lane in self.idle if lane.decoding] if not self.queue and not self.under_way else []
        if len(alone) == 1:
            self._stride(alone[0])
            return True
        there, share = self._there() if self.queue else (0, 0)
        for lane in self.idle:
            chosen = self.chosen(len(lane.decoding), there, share) if self.queue else []
            if chosen or lane.decoding:
                self.idle.remove(lane)
                self._go(lane, chosen)
                return True
        return False

    def _stride(self, lane: Lane) -> None:
        """Batches of the only sequences that are there, one after the other, until one ends or something comes."""
        size, mean, stages = len(lane.decoding), lane.mean_context, self.rules.stages
        steps = lane.decoding[0][0] - lane.step
        if self.coming:
            once, _ = self.table.decode(size, mean)
            steps = max(min(steps, ceil((self.coming[0][0] - self.clock) / (stages * once))), 1)
        seconds, joules = self.table.decode(size, mean + (steps - 1) / 2.0 * self.rules.pace)
        self.clock += stages * self.worked(seconds * steps, joules * steps)
        self.free = [self.clock] * stages
        self.count += steps
        for number in lane.decoded(steps, self.rules.pace):
            self.end(number)

    def _there(self) -> tuple[int, int]:
        """Sequences in the engine, and how many of these and of the queue a batch may have."""
        flying = sum(len(one.lane.decoding) + len(one.done) for one in self.under_way)
        there = flying + sum(len(lane.decoding) for lane in self.idle)
        return there, ceil((there + len(self.queue)) / self.rules.stages)

    def _go(self, lane: Lane, chosen: list[tuple[Waiting, float]]) -> None:
        decoded = bool(lane.decoding) and (self.rules.mixed or not chosen)
        size, mean = (len(lane.decoding), lane.mean_context) if decoded else (0, 0.0)
        if chosen:
            before = sum(one.found + one.done for one, _ in chosen) / len(chosen)
            seconds = self.worked(*self.table.step(size, mean, sum(part for _, part in chosen), before))
        else:
            seconds = self.worked(*self.table.decode(size, mean))
        end = self.clock
        for stage, free in enumerate(self.free):
            end = self.free[stage] = max(end, free) + seconds
        done = self.taken(chosen)
        if chosen:
            self.waited_from = self.count if self.queue else None
        self.count += 1
        self.under_way.append(_UnderWay(end, lane, decoded, done))

    def _wait(self) -> None:
        """For the oldest batch under way; without one for a request."""
        if self.under_way:
            self.clock = self.under_way[0].end
        elif self.coming and self.coming[0][0] > self.clock:
            self.clock = self.coming[0][0]
        else:
            self.waited_from = -(10**12)
