"""Requests that are drawn and run one by one, step by step (trace.py), where no law says what they meet: those that come at random to a
pipeline, whose batches hold one another up, to ranks of attention data, of which a prompt fills one and all wait for it, or to an engine
whose prompts wait for company or a look (of others random_arrivals.py has a chain); those of clients of a pipeline whose lanes count; of
clients whose answers have a few tokens, so that who fell into one batch stays together; and of clients who wait for room by an estimate
(estimates.py), or have longer answers than prompts and put one another out (eviction.py), as those that come at random do, too. The same
requests every time and at every rate, whose gaps scale.

    count     at a rate BATCHES, over those of a request: of its own steps, or the fewer where it shares them; FEWEST to MOST, and no fewer
              than RUNS times those that are there at once, or FILLED times those that fit where some are put out. Of clients WAVES each
              (EVICTED where some are put out), or the fewer that they send, FEWEST at least, less where that is more than LONGEST, or a
              pipeline's more than LOOP_BATCHES
    read      all but the first, which find an engine that fills, and the last, behind whom nobody comes
    growing   seconds to a first token that grow by more than a GROWTH-th of the seconds in which they come: more comes than is served
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from math import ceil, inf, sqrt

import numpy as np

from rackmodel.arrays import Array, Bools
from rackmodel.once import once
from rackmodel.serving.admission import LATEST_S, Rules, Trace
from rackmodel.serving.estimates import CLIP, LEAST
from rackmodel.serving.eviction import evicting
from rackmodel.serving.requests import Requests, Schedule, asked_whole, estimating, lengths_held
from rackmodel.serving.step_table import Extent, StepTable
from rackmodel.serving.steps import Served
from rackmodel.serving.trace import RequestFigures, simulate

BATCHES = 30_000
FEWEST, MOST, LONGEST = 100, 6_000, 16_000
"""Requests of a run; the longest where many are there at once."""
RUNS, WAVES, EVICTED, FILLED = 6, 24, 10, 200
FEWEST_WAVES = 4
OUT = 0.01
"""Times that a request is put out, from which on a run counts tokens."""
LOOP_BATCHES, LAPS, LAPS_ALIKE = 40_000, 4.0, 1.0
"""Batches of a pipeline's clients; laps that are run one by one from one end of a request to the next, at most (batches.py): of equal
lengths several end at once."""
GROWTH = 0.02


@dataclass(frozen=True, kw_only=True)
class DrawnRuns:
    """n runs, [n] each: means of requests. per_s: that end a second · first_s: to a first token · decoding_s: from there to the last ·
    queue_s: of the former, before its own batch · watts: of the replica all the time · growing: whether more comes than is served ·
    burst_s: to a first token of those that all clients send at once to an idle engine; 0 of a rate."""

    per_s: Array
    first_s: Array
    decoding_s: Array
    queue_s: Array
    watts: Array
    growing: Bools
    burst_s: Array

    @classmethod
    def of(cls, rows: dict[int, tuple[float, ...]]) -> DrawnRuns:
        """Of the fields of each run, by number."""
        fields = zip(*(rows[at] for at in sorted(rows)), strict=True)
        per_s, first, decoding, queue, watts, growing, burst = (np.array(part) for part in fields)
        return cls(per_s=per_s, first_s=first, decoding_s=decoding, queue_s=queue, watts=watts, growing=growing > 0, burst_s=burst)


@dataclass(frozen=True)
class _Tables:
    """Prices of steps of a model's runs, by deployment and by what any run of such requests may ask for, so that a run beside others is
    what it is alone."""

    model: Served
    known: dict[tuple[int, float, Extent], StepTable] = field(default_factory=dict)

    def of(self, requests: Requests, schedule: Schedule, room: float, *, grows: bool = False) -> StepTable:
        """That of one engine. room: requests that are held at once · grows: whether more are, as long as they have few tokens."""
        rules = Rules(schedule, room, np.ones_like)
        mean, output, reused = (float(np.ravel(one)[0]) for one in (requests.prompt, requests.output, requests.reused))
        apart = min(sqrt(3.0) * float(np.ravel(requests.variation)[0]), 1.0)
        longest, shortest = 1.0 + apart, 1.0 - apart
        if grows:  # whoever is admitted beside others has its prompt, and LEAST of its output
            least = LEAST * min(output * shortest, CLIP) if rules.estimates else 0.0
            room = _cache_tokens(requests, schedule, room) / max(mean * shortest + least, 1.0)
        prompt, sequences = ceil(mean * longest), int(max(min(rules.sequences, room, LONGEST), 1.0))
        tokens = min(rules.budget, float(sequences * prompt)) if rules.chunk < inf else max(rules.budget, float(prompt))
        fresh = max(mean * (1.0 - reused), 1.0)
        extent = Extent(
            sequences=sequences,
            context=float(prompt + ceil(output * longest)),
            tokens=tokens,
            before=float(prompt),
            prompt=fresh,
            ranks=rules.ranks,
            part=rules.chunk,
        )
        key = rules.mesh, rules.wide, extent
        return once(self.known, key, lambda: StepTable(self.model, extent, rules.wide, rules.stages, rules.mesh))


def drawn_arrivals(
    model: Served, requests: Requests, schedule: Schedule, rate: Array, room: Array, expected: tuple[Array, Array]
) -> DrawnRuns:
    """Runs of n engines. rate: requests a second · room: that are held at once · expected: seconds of a decode step, and of a request."""
    step_s, whole_s = expected
    shared = schedule.stages / (step_s * rate)
    own = schedule.decoding_steps(requests) + np.ceil(requests.fresh / np.maximum(schedule.token_budget, 1.0))
    there = np.ceil(rate * whole_s)
    counts = np.clip(BATCHES / np.minimum(shared, own), FEWEST, MOST)
    puts_out = put_out_longer(requests, schedule, room)
    counts = np.maximum(counts, np.minimum(RUNS * there, LONGEST))
    counts = np.maximum(counts, np.where(puts_out, np.minimum(FILLED * room, MOST), 0)).astype(np.int64)
    rows: dict[int, tuple[float, ...]] = {}
    tables = _Tables(model)
    for at in np.argsort(-counts).tolist():
        count = int(counts[at])
        draw = np.random.default_rng(0)
        gap_s = min(1.0 / rate[at], LATEST_S / (4.0 * count))  # (at which nobody meets another)
        arrivals = np.cumsum(draw.exponential(1.0, count)) * gap_s
        one = requests.at([at]), schedule.at([at])
        run = _simulated(tables, *one, _trace(draw, one[0], arrivals), float(room[at]), grows=bool(puts_out[at]))
        edge = int(np.clip(there[at], count // 10, count // 4))
        middle = slice(edge, count - edge // 2)
        slope = np.polyfit(arrivals[middle], run.ttft_s[middle], 1)[0]
        rows[at] = float(rate[at]), *_means(run, middle), float(slope > GROWTH), 0.0
    return DrawnRuns.of(rows)


def drawn_loops(model: Served, requests: Requests, schedule: Schedule, clients: Array, room: Array) -> DrawnRuns:
    """Runs of n engines, whose clients [n] each send the next request when the last one has ended; a mean over whole numbers of them.
    room: requests that are held at once."""
    rows: dict[int, tuple[float, ...]] = {}
    known: dict[tuple[float, ...], tuple[float, ...]] = {}
    tables = _Tables(model)
    for at in np.argsort(-clients).tolist():
        own = requests.at([at]), schedule.at([at])
        held = float(clients[at]), float(room[at])
        rows[at] = once(known, (*held, *(value for one in own for value in one.values())), partial(_clients, tables, *own, held))
    return DrawnRuns.of(rows)


def _clients(tables: _Tables, requests: Requests, schedule: Schedule, held: tuple[float, float]) -> tuple[float, ...]:
    """The fields of DrawnRuns of a mean number of clients. held: clients, and requests that are held at once."""
    number, room = held
    few = max(int(number), 1)
    more = max(number - few, 0.0)
    parts = ([(few + 1, more)] if more > 0 else []) + [(few, 1.0 - more)]
    return _mixed([(_loop(tables, requests, schedule, (one, room)), share) for one, share in parts])


def _mixed(runs: list[tuple[tuple[float, ...], float]]) -> tuple[float, ...]:
    """The fields of DrawnRuns of engines of which a share is as each run. Means of requests: an engine has as many as it ends."""
    rates, watts = (sum(run[field] * share for run, share in runs) for field in (0, 4))
    first, decoding, queue, burst = (sum(run[field] * run[0] * share for run, share in runs) / rates for field in (1, 2, 3, 6))
    return (rates, first, decoding, queue, watts, 0.0, burst)


def _loop(tables: _Tables, requests: Requests, schedule: Schedule, held: tuple[int, float]) -> tuple[float, ...]:
    """The fields of DrawnRuns of one number of clients. held: clients, and requests that are held at once."""
    clients, room = held
    puts_out = clients > room and bool(longer_answers(requests, schedule, np.full(1, room))[0])
    grows = puts_out or bool(estimating(schedule).all())
    waves = min(EVICTED if puts_out else WAVES, ceil(float(requests.waves[0])))
    count = max(min(max(waves * clients, FEWEST), LONGEST, _requests_of_batches(requests, schedule, clients)), FEWEST_WAVES * clients)
    trace = _trace(np.random.default_rng(0), requests, np.zeros(count))
    run = _simulated(tables, requests, schedule, trace, room, clients, grows=grows)
    middle = slice(clients, count - clients)
    return (clients / float(run.total_s[middle].mean()), *_means(run, middle), 0.0, float(run.ttft_s[:clients].mean()))


def _simulated(
    tables: _Tables, requests: Requests, schedule: Schedule, trace: Trace, room: float, clients: int | None = None, *, grows: bool
) -> RequestFigures:
    """A run of one engine. room: requests that are held at once · grows: whether it counts their tokens, step by step."""
    table = tables.of(requests, schedule, room, grows=grows)
    if not grows:
        return simulate(tables.model, trace, schedule, room, clients, np.ones_like, table)
    tokens = _cache_tokens(requests, schedule, room)
    return simulate(tables.model, trace, schedule, max(tokens, float((trace.prompt + trace.output).max())), clients, table=table)


def longer_answers(requests: Requests, schedule: Schedule, room: Array) -> Bools:
    """[n] whether caches that hold so many requests put some out whose answers are longer than their prompts: no law says it of these."""
    return np.asarray(evicting(schedule, room) & (requests.output > requests.prompt))


def put_out_longer(requests: Requests, schedule: Schedule, room: Array) -> Bools:
    """[n] whether some of these are put out of requests that come at random. requests: with how often the law says so (eviction.py)."""
    return np.asarray(longer_answers(requests, schedule, room) & (requests.outs > OUT))


def _cache_tokens(requests: Requests, schedule: Schedule, room: float) -> float:
    """Tokens of a cache that holds so many requests, whose growth is estimated or who are put out for others'."""
    return room * float(lengths_held(requests, schedule).mean()) + float(asked_whole(requests, schedule)[0])


def _requests_of_batches(requests: Requests, schedule: Schedule, clients: int) -> int:
    """Requests whose prompts and laps are LOOP_BATCHES of a pipeline; of an engine of one stage LONGEST."""
    stages = float(np.ravel(schedule.stages)[0])
    if stages == 1.0:
        return LONGEST
    chunks = float(np.ceil(requests.fresh / schedule.token_budget)[0])
    most = LAPS if float(np.ravel(requests.variation)[0]) > 0 else LAPS_ALIKE
    laps = min(float(schedule.decoding_steps(requests)[0]) / clients, most)
    return ceil(LOOP_BATCHES / (chunks + laps * min(stages, clients)))


def _trace(draw: np.random.Generator, requests: Requests, arrivals: Array) -> Trace:
    prompts, outputs = (_lengths(draw, mean, requests.variation, len(arrivals)) for mean in (requests.prompt, requests.output))
    return Trace(arrival_s=arrivals, prompt=prompts, output=outputs, reused=float(np.ravel(requests.reused)[0]))


def _means(run: RequestFigures, middle: slice) -> tuple[float, float, float, float]:
    """first_s, decoding_s, queue_s and watts of a run."""
    decoding = (run.total_s - run.ttft_s)[middle].mean()
    return float(run.ttft_s[middle].mean()), float(decoding), float(run.queue_s[middle].mean()), run.joules / run.seconds


def _lengths(draw: np.random.Generator, mean: Array, variation: Array, count: int) -> Array:
    """Whole ones, even around their mean; of a mean between two whole numbers both, so that it stays."""
    wide = mean * np.minimum(np.sqrt(3.0) * variation, 1.0)
    about = draw.uniform(mean - wide, mean + wide, count)
    return np.maximum(np.floor(about + (0.5 if float(mean[0]).is_integer() else draw.uniform(0.0, 1.0, count))), 1.0)
