"""Requests one by one through an engine, step by step: what a trace of arrivals and lengths meets, with its percentiles.

First come, first served. A step takes the decodes and, where prompts wait, as many of their tokens as its budget has room for; runs of
steps without prompts are taken in one stride to the next arrival or end. Rules of joining are those of Schedule (admission.py). The batches
of a pipeline are run one by one (batches.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, inf

import numpy as np

from rackmodel.arrays import Array
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.serving.admission import Admission, Lane, Rules, Trace, Waiting
from rackmodel.serving.batches import Batches
from rackmodel.serving.estimates import Estimate
from rackmodel.serving.requests import Schedule
from rackmodel.serving.step_table import Extent, StepTable
from rackmodel.serving.steps import Served

PERCENTILES = (50.0, 90.0, 95.0, 99.0)


@dataclass(frozen=True, kw_only=True)
class RequestFigures:
    """Figures of every request: seconds queued, to its first token, a token after it, and all told; and the whole run's seconds, from
    the first request that is sent to the last answer, and the joules of the replica in them, at work and idle."""

    queue_s: Array
    ttft_s: Array
    tpot_s: Array
    total_s: Array
    seconds: float
    joules: float


class _Steps(Admission):
    """One replica of one stage that runs."""

    def __init__(self, trace: Trace, rules: Rules, table: StepTable, clients: int | None) -> None:
        super().__init__(trace, rules, clients)
        self.table, self.lane = table, Lane()

    def run(self) -> None:
        """Until every request has ended."""
        while self.coming or self.queue or self.lane.decoding:
            self.arrive()
            out = False if self.rules.estimates else self.make_room(self.lane)
            here = len(self.lane.decoding)
            chosen = [] if out else self.chosen(here, here)
            if chosen:
                self._prompt_step(chosen)
            elif here:
                if self.rules.estimates:
                    self.make_room(self.lane)
                self._stride()
            else:
                self._idle()

    def _idle(self) -> None:
        """Nothing runs: to the next arrival, or to the end of a wait for company."""
        if self.queue:
            self.waited_from = -(10**12)
        elif self.coming:
            self.estimate = Estimate()
            self.clock = max(self.clock, self.coming[0][0])
            self.starts.extend([self.clock] * self.rules.ahead)

    def _prompt_step(self, chosen: list[tuple[Waiting, float]]) -> None:
        tokens = sum(part for _, part in chosen)
        before = sum(one.found + one.done for one, _ in chosen) / len(chosen)
        size = len(self.lane.decoding) if self.rules.mixed else 0
        self.starts.append(self.clock)
        self.clock += self.worked(*self.table.step(size, self.lane.mean_context if size else 0.0, tokens, before))
        if size:
            self._decoded(1)
        for number in self.taken(chosen):
            self.begin(number, self.lane)
        self.waited_from = self.count if self.queue else None

    def _decoded(self, steps: int) -> None:
        self.count += steps
        self.grown(steps)
        for number in self.lane.decoded(steps, self.rules.pace):
            self.end(number)

    def _stride(self) -> None:
        """Steps of decodes alone, until one ends or something may join."""
        size, mean = len(self.lane.decoding), self.lane.mean_context
        once, _ = self.table.decode(size, mean)
        steps = int(min(self.lane.decoding[0][0] - self.lane.step, max(self.steps_that_fit(), 1.0)))
        if self.queue:
            steps = min(steps, self._steps_of_wait())
            steps = self.steps_to_room(steps) if self.rules.estimates else steps
        elif self.coming:
            till = ceil((self.coming[0][0] - self.clock) / once) + self.rules.ahead
            steps = min(steps, max(till, 1))
        seconds, joules = self.table.decode(size, mean + (steps - 1) / 2.0 * self.rules.pace)
        last = min(steps, self.rules.ahead)
        self.starts.extend(self.clock + seconds * (steps - back) for back in range(last, 0, -1))
        self.clock += self.worked(seconds * steps, joules * steps)
        self._decoded(steps)

    def _steps_of_wait(self) -> int:
        """Decode steps until the queue may be looked at again."""
        rules = self.rules
        if rules.polled > 1 and self.count % rules.polled:
            return int(rules.polled - self.count % rules.polled)
        if rules.held > 0 and self.waited_from is not None and self.count - self.waited_from < rules.held:
            return 1
        return max(self.lane.decoding[0][0] - self.lane.step, 1)


def simulate(
    model: Served,
    trace: Trace,
    schedule: Schedule,
    kv_tokens: float,
    clients: int | None = None,
    held_by: Callable[[Array], Array] = np.asarray,
    table: StepTable | None = None,
) -> RequestFigures:
    """Every request's figures. kv_tokens: that the cache of the replica holds · clients: a closed loop of so many; None: as the trace
    says · held_by: tokens of requests [n] → what they keep of kv_tokens, absent = as many (ServingEngine.held_tokens) · table: of the
    model's steps, absent = one of what this trace may ask for.

    Raises InfeasibleError where a request alone does not fit the cache.
    """
    rules = Rules(schedule, kv_tokens, held_by)
    whole = trace.prompt + trace.output
    place = int(np.argmax(whole))
    largest = float(whole[place])
    least, most_kept = held_by(np.array([float(trace.prompt.min()), largest])).tolist()
    if most_kept > kv_tokens:
        fact = f"memory: request {place + 1} of {largest:,.0f} tokens does not fit a cache of {kv_tokens:,.0f}"
        raise InfeasibleError(fact, resource="memory", need=most_kept, have=kv_tokens, unit="token")
    if table is None:
        most = int(min(rules.sequences, len(trace.prompt), clients or inf, kv_tokens / max(least, 1.0)))
        mean = max(float(trace.prompt.mean()) * (1.0 - trace.reused), 1.0)
        extent = Extent(
            sequences=max(most, 1),
            context=largest,
            tokens=_most_tokens(trace, rules),
            before=float(trace.prompt.max()),
            prompt=mean,
            ranks=rules.ranks,
            part=rules.chunk,
        )
        table = StepTable(model, extent, rules.wide, rules.stages, rules.mesh)
    engine = (_Steps if rules.stages == 1 else Batches)(trace, rules, table, clients)
    engine.run()
    first, total = engine.first - engine.asked + rules.way_s, engine.ended - engine.asked + rules.way_s
    gaps = np.maximum(trace.output - 1.0, 1.0)
    seconds = float((engine.asked + total).max() - engine.asked.min())
    idle, mesh = np.array([max(seconds - engine.worked_s, 0.0)]), np.array([float(rules.mesh)])
    rows = (*model.waiting(idle, mesh), *model.idling(idle, mesh))
    return RequestFigures(
        queue_s=engine.admitted - engine.asked,
        ttft_s=first,
        tpot_s=(engine.ended - engine.first) / gaps,
        total_s=total,
        seconds=seconds,
        joules=engine.joules + sum(float(np.sum(row.joules)) for row in rows),
    )


def _most_tokens(trace: Trace, rules: Rules) -> float:
    return min(rules.budget, float(trace.prompt.sum())) if rules.chunk < inf else max(rules.budget, float(trace.prompt.max()))


def drawn_trace(count: int, lengths: tuple[float, float, float], rate: float | None = None, seed: int = 0) -> Trace:
    """count requests, the same for the same seed. lengths: mean prompt and output, and the shortest length over the longest, between which
    they are even · rate: of Poisson arrivals; None: all are there at once.

    Raises InputError where a mean is no whole number of tokens.
    """
    prompt, output, least = lengths
    for option, mean in (("requests.prompt", prompt), ("requests.output", output)):
        if mean % 1.0:
            raise InputError(f"{mean:g} tokens: requests that are drawn have whole ones, such as {round(mean)}", path=option)
    draw = np.random.default_rng(seed)
    sides = [(2.0 * least * mean / (1.0 + least), 2.0 * mean / (1.0 + least)) for mean in (prompt, output)]
    prompts, outputs = (np.maximum(np.round(draw.uniform(low, high, count)), 1.0) for low, high in sides)
    arrivals = np.zeros(count) if rate is None else np.cumsum(draw.exponential(1.0 / rate, count))
    return Trace(arrival_s=arrivals, prompt=prompts, output=outputs)
