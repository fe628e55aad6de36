"""Serving as a steady state: what n operating points settle at, under a fixed number of clients or at a rate of arrivals.

Closed loop. C clients, each with one request at a time, so C = B + X R: B decode, X R are on the way to their first token (Little). In
a closed loop requests follow steps, not seconds: one ends with a step, and the next one joins a step. Counted in steps, decoding takes
Z steps, O - 1 without drafts, the prompts' queue is a station of 1 / m steps a prompt (m fit into a step) and a population of C, solved by
mean-value analysis with one fixed point (Schweitzer 1979; the request in service has half its service left, for it is of fixed length):

    R = d + d (k Q - rho / 2)      d = 1 / m, Q = X R, rho = X d, k = (C - 1) / C, X = C / (R + Z')

which is a quadratic in R, and tends to C d - Z' where the queue is the bottleneck. Z' is Z and everything else that a request waits for.
That is of prompts that come at random; of those that keep their places more or less mixing.py has what is left of the queue.
So B = C Z / (Z + S) of S steps to the first token: known before anything is priced. A prompt that waits R - d steps waits for full ones.
Requests of equal lengths come back as they left, and wait for C d - Z' alone. Either way a cycle is C d steps at least. In a cycle every
other client's prompt comes once: beside a prompt's own, with those that it waits for (m a step), in batches that pass before it may join
one, or else in a step that delays a sequence: these are m a step at most, so that its mean step lies between those with prompts and
without. No cycle is shorter than C prompts take in full steps, and all of it is before the first token where an answer has no other.
Where prompts go first, decodes stand still: it waits for half of those that came with it and do not fit into its step.

Clumps. The first prompts of all clients come at once, so the k-th ones come within W steps, which grow with the variation of lengths (the
spread of a sum of k of them) from those in which the first ones were worked off: C / m steps, or one where decodes stand still
(mixing.py). Requests of equal lengths stay together for ever. Where W is the whole cycle, arrivals are even: a = C / W prompts a step.

Batches of a pipeline part from one another: who asks for deployments has its requests run (drawn_runs.py), as of short answers.

Open arrivals at rate X: a chain of batches (random_arrivals.py), B = X Z; of pipelines, of ranks of attention data and of full caches of
answers longer than prompts requests that are run (drawn_runs.py). What the cache does not hold waits outside: R = C Z / B - Z.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rackmodel.arrays import Array, Bools
from rackmodel.serving.drawn_runs import DrawnRuns, drawn_arrivals, drawn_loops, longer_answers, put_out_longer
from rackmodel.serving.eviction import evicting, put_out, put_out_at_random
from rackmodel.serving.joining import Cycle, behind_in_batch, closing_steps, joining_waits
from rackmodel.serving.kept_drafts import by_chance
from rackmodel.serving.mixing import Closing, Queue, Train
from rackmodel.serving.random_arrivals import RandomBatches, random_batches
from rackmodel.serving.requests import Requests, Schedule, engine_sequences, estimating
from rackmodel.serving.rhythm import Crowd, Rhythm, chunk_room, decode_steps, grouping, prompt_room, rhythm, rhythm_steps
from rackmodel.serving.steps import Served, Steps

ROUNDS, MOST_ROUNDS = 8, 64
SHORT, DRAWN = 2.0, 12.0
"""Steps of decoding, up to which clients' groups stay as they fell; of drafts that are kept by chance, up to which few steps part them
and bring them together again, which no mean says (docs/serving.md)."""
FAR = 1.3
"""Over what full caches serve of answers longer than prompts by the law, up to which these are run: it is up to 29 % off
(docs/serving_model.md)."""
UNEVEN = 0.1
"""Of a batch's seconds, by which lanes of unlike numbers of sequences must differ for their clients to be run. Chosen: what is left to the
law is a few percent of the requests a second, and a space of hundreds of GPUs' pipelines is priced in arrays (docs/serving.md)."""
MANY = 1e9
"""Clients that may send a request where arrivals are open."""
SETTLED = 1e-4
ALIKE = 0.01
"""Of a window that gaps which close leave as long, so that its steps are not priced again."""
MOST_LOAD = 0.999
"""Of batches at random: what comes beyond fills them for ever."""


@dataclass(frozen=True, kw_only=True)
class Steady:
    """What n operating points settle at; each field is [n].

    tpot_s: seconds a token after the first · ttft_s: seconds to the first token, queue included · decodes: sequences that make tokens ·
    waiting: requests before their first token · requests_per_s, tokens_per_s: of the replica; output tokens · joules_per_token: of an
    output token, its prompt's work included · queue_s: what of ttft_s is waiting for other prompts · limited: whether the cache or the
    engine's most sequences hold requests back · overloaded: whether more arrives than is served (open arrivals alone) · burst_s: mean
    seconds to the first token of prompts that all clients send at once to an idle engine, 0 where it is not asked and no run says it ·
    rhythm: its steps.
    """

    tpot_s: Array
    ttft_s: Array
    decodes: Array
    waiting: Array
    requests_per_s: Array
    tokens_per_s: Array
    joules_per_token: Array
    queue_s: Array
    limited: Bools
    overloaded: Bools
    burst_s: Array
    rhythm: Rhythm

    def run_tpot_s(self, requests: Requests, schedule: Schedule) -> Array:
        """[n] seconds a token in the mean of a run in which each client sends its `waves` of requests.

        Nobody comes after the last ones: of two clients' last requests one alone meets the prompt of the other, so that in a run of k each
        meets k - 1/2 of the other's. Requests of equal lengths whose prompts go first come together, and all their waves are alike.
        """
        extra = self.tpot_s * (1.0 - self.rhythm.decode_s / self.rhythm.step_s)
        unlike = (requests.variation > 0) | (schedule.steps_deviation(requests) > 0)
        met = np.where(unlike | (schedule.mixed > 0), 1.0 - 0.5 / requests.waves, 1.0)
        return np.asarray(self.tpot_s - extra * (1.0 - met))

    def run_ttft_s(self, requests: Requests) -> Array:
        """[n] seconds to a first token in the mean of such a run, which begins with a burst."""
        return np.asarray(self.ttft_s + (self.burst_s - self.ttft_s) / requests.waves)


@dataclass(frozen=True)
class _Times:
    """per_s: requests a second · first_s: to the first token · queue_s: what of it is waiting for others · burst_s: to that of the first
    prompts. [n] each."""

    per_s: Array
    first_s: Array
    queue_s: Array
    limited: Bools
    overloaded: Bools
    burst_s: Array


def closed_loop(model: Served, requests: Requests, schedule: Schedule, clients: Array, room: Array, *, at_once: bool = False) -> Steady:
    """What n engines settle at under clients [n] that each send their next request when the last one has ended.

    room: [n] requests that are held at once (most_sequences); what is beyond waits outside. at_once: whether to price the
    first prompts, too, which all clients send at once. Work: one price of 5 n steps, or of 6 n; two where clients come together again.
    """
    clients = np.asarray(clients, dtype=np.float64)
    most = np.minimum(clients, room)
    requests, paused = put_out(requests, schedule, _would_hold(requests, schedule, clients, room), room)
    cycle = _cycle(requests, schedule, most, most < clients)
    count, step = _burst(requests, schedule, most)
    beat, before = rhythm(model, requests, schedule, cycle.crowd, step if at_once else None), schedule.before_s(requests)
    inside = _with_place(schedule, most < clients)
    late = closing_steps(beat, requests, inside, cycle)
    closed = _cycle(requests, schedule, most, most < clients, late)
    parts = np.abs(closed.window / cycle.window - 1.0) > ALIKE
    if parts.any():
        cycle = _cycle(requests, schedule, most, most < clients, np.where(parts, late, 0.0))
        beat = rhythm(model, requests, schedule, cycle.crowd, step if at_once else None)
    wait = joining_waits(beat, requests, inside, cycle)
    shorter = np.minimum(wait.outside * beat.group.each_steps, cycle.excess)
    met = (wait.prompts - shorter / beat.group.each_steps) / cycle.steps
    most_seen = np.where(schedule.mixed > 0, 1.0 / beat.group.each_steps, np.inf)
    beat = replace(beat, step_s=beat.decode_s + np.clip((cycle.crowd.seen - met) * beat.more, 0.0, most_seen) * beat.prompt_s)
    behind = behind_in_batch(beat.group) / 2.0 * beat.drain_s
    queue = np.where(schedule.mixed > 0, (cycle.queue - shorter) * beat.full_s, behind)
    busy = _decoding_s(beat, requests, schedule)
    first = np.maximum(queue + wait.seconds + inside.before_s(requests) + wait.own_s, most * beat.more * beat.drain_s - busy)
    first, busy = np.where(requests.output > 1.0, (first, busy), (first + busy, 0.0 * busy))
    ready = before - inside.before_s(requests)
    per_s = np.minimum(most / (busy + first), clients / (busy + first + ready))
    pause = paused / most * (busy + first)
    outside = np.maximum(clients / per_s - busy - first - pause, 0.0)
    times = _Times(
        per_s=per_s,
        first_s=first + outside,
        queue_s=queue + outside,
        limited=most < clients,
        overloaded=np.zeros(len(clients), dtype=bool),
        burst_s=beat.beside_s * count + before if at_once else np.zeros_like(clients),
    )
    settled = _steady(model, beat, requests, schedule, cycle.crowd.decodes, times)
    return replace(settled, tpot_s=settled.tpot_s + pause / requests.gaps)


def _with_place(schedule: Schedule, limited: Bools) -> Schedule:
    """The schedule of requests that have a place. limited: [n] whether others wait for one: these are in the queue by the time it is
    theirs, so that nothing comes before it."""
    return replace(schedule, **{name: np.where(limited, 0.0, getattr(schedule, name)) for name in ("request_s", "tokenize_s")})


def _would_hold(requests: Requests, schedule: Schedule, clients: Array, room: Array) -> Array:
    """[n] clients whose requests would be in a cache of any size: all but those whose prompts wait for others'."""
    evicts = evicting(schedule, room)
    if not evicts.any():
        return clients
    cycle = _cycle(requests, schedule, clients, np.zeros(len(clients), dtype=bool))
    return np.where(evicts, np.maximum(clients * cycle.steps / (cycle.steps + cycle.queue), np.minimum(clients, 1.0)), clients)


def loop_steps(requests: Requests, schedule: Schedule, clients: Array, room: Array) -> Steps:
    """The steps that `closed_loop` prices, the first prompts' too."""
    most = np.minimum(np.asarray(clients, dtype=np.float64), room)
    return rhythm_steps(requests, schedule, _cycle(requests, schedule, most, most < clients).crowd, _burst(requests, schedule, most)[1])


def _cycle(requests: Requests, schedule: Schedule, most: Array, limited: Bools, late: Array | None = None) -> Cycle:
    """The fixed point above. Where its rounds swing, they are halved. limited: [n] whether others wait for room · late: [n] steps by which
    gaps between clients close in a wave."""
    mixed = schedule.mixed > 0
    decoding, chance = schedule.decoding_steps(requests), schedule.steps_deviation(requests)
    decodes, window = most * 1.0, decoding
    for turn in range(MOST_ROUNDS):
        group = grouping(requests, schedule, decodes, most / window, most - 1.0)
        each = group.each_steps
        dealt = np.where(group.stages > 1, 1.0, 0.0)
        start = np.where(mixed, np.maximum(most * each, dealt), 1.0)
        closing = None if late is None else Closing(late, start / most, mixed)
        train = Train.of(requests, decoding, start, closing, chance)
        window = train.window
        waits = group.wait_steps + schedule.before_join / np.where(mixed, 1.0, 1.0 + group.share)
        rest = window + waits + np.maximum(group.own_steps - each, 0.0)
        excess = np.where(mixed, np.maximum((most - 1.0) * each - rest, 0.0), 0.0)
        queue = np.where(mixed, train.queue(Queue(most, each, rest - window)), 0.0)
        first = waits + queue + np.where(mixed, group.own_steps, 0.0)
        found = most * decoding / (decoding + first)
        swings = np.abs(found - decodes) > SETTLED * decodes
        if turn < ROUNDS:
            decodes = found
        elif not swings.any():
            break
        else:
            decodes = np.where(swings, (found + decodes) / 2.0, decodes)
    queued = np.minimum(queue, 1.0)
    beside = np.where(mixed, group.beside(queued), group.company - behind_in_batch(group) / 2.0)
    seen = np.maximum(most - 1.0 - beside - queue / each, 0.0)
    steps = decoding + group.wait_steps + np.where(mixed, group.own_steps - group.chunks / group.stages, 0.0)
    crowd = Crowd(
        decodes=np.maximum(decodes, 1.0),
        others=decodes * (most - 1.0) / most,
        dense=most / window,
        seen=seen / steps,
        clients=most - 1.0,
        queued=queued,
    )
    return Cycle(
        crowd=crowd,
        window=window,
        queue=queue,
        excess=np.minimum(excess, queue),
        steps=steps,
        still=np.maximum(decoding - window, 0.0),
        train=train,
        waits=Queue(most, each, rest - window),
        limited=limited,
    )


def open_arrivals(model: Served, requests: Requests, schedule: Schedule, rate: Array, room: Array) -> Steady:
    """What n engines settle at under Poisson arrivals at rate [n] requests a second.

    Where more arrives than is served, `overloaded` says so and the other figures tell nothing. Engines that put requests out serve what
    they do when their caches are full: once they are, they stay so. Batches of one stage are a chain (random_arrivals.py); of a pipeline,
    of ranks of attention data, and where prompts wait for company or a look, requests are drawn and run (drawn_runs.py); so they are where
    answers are longer than prompts and some are put out, up to FAR times what the law says that full caches serve.
    """
    rate = np.asarray(rate, dtype=np.float64)
    chained = bool(np.all((schedule.stages == 1) & (schedule.ranks == 1) & (schedule.polled <= 1) & (schedule.held == 0)))
    decodes, step, own = np.minimum(room, 1.0), np.full_like(rate, 1e-12), np.zeros_like(rate)
    most, asked = _served_when_full(model, requests, schedule, room), rate
    for _ in range(4 * ROUNDS):
        busy_decodes = decodes / -np.expm1(-decodes)  # a Poisson number of sequences, of the steps that have any
        there = np.minimum(busy_decodes, room)
        crowd = Crowd(there, decodes, rate * step, rate * step, np.full_like(rate, MANY), working=rate * own)
        chunks, one = _of_a_prompt(requests, schedule, decodes)
        beat = rhythm(model, requests, schedule, crowd, one if chained else None)
        chain = _batches_at_random(beat, schedule, chunks, asked, decodes) if chained else None
        if chain is not None:
            steps = schedule.decoding_steps(requests)
            each = chain.decoding_s(steps, schedule.before_join) / steps
            beat = replace(beat, step_s=np.maximum(each, np.minimum(beat.decode_s, beat.beside_s)))
        step, own = beat.step_s, beat.own_s
        found = np.clip(rate * _decoding_s(beat, requests, schedule), 1e-6, room)
        requests, asked = put_out_at_random(requests, schedule, found, room), rate * beat.more
        settled = np.abs(found - decodes).max(initial=0.0) <= SETTLED * max(decodes.max(initial=1.0), 1.0)
        decodes = np.where(found >= room, room, (found + decodes) / 2.0)  # (more that come than it holds fill it at once)
        if settled:
            break
    busy = _decoding_s(beat, requests, schedule)
    load, held = asked * beat.drain_s, rate * busy / room
    overloaded = (load >= 1.0) | (held >= 1.0) | (rate >= most)
    outside = np.where(overloaded, 0.0, _held_outside(np.minimum(held, 1.0), room, busy))
    if chain is not None:
        inside, queue = chain.wait_s(schedule.before_join) + chain.own_s, chain.queue_s
    else:
        inside, queue = _to_a_step(beat, schedule) + beat.own_s, beat.drain_s * load / (2.0 * np.maximum(1.0 - load, 1e-9))
    queue = np.where(overloaded, 0.0, queue)
    times = _Times(
        per_s=np.where(overloaded, np.minimum(room / busy, 1.0 / beat.drain_s), rate),
        first_s=schedule.before_s(requests) + inside + queue + outside,
        queue_s=queue + outside,
        limited=outside > queue,
        overloaded=overloaded,
        burst_s=np.zeros_like(rate),
    )
    settled = _steady(model, beat, requests, schedule, decodes, times)
    if chain is None:
        return _of_arrivals(settled, model, requests, schedule, rate, room, ~overloaded)
    full = put_out_longer(requests, schedule, room) & (rate < FAR * most)
    return _of_arrivals(settled, model, requests, schedule, rate, room, full)


def _served_when_full(model: Served, requests: Requests, schedule: Schedule, room: Array) -> Array:
    """[n] requests a second, of engines that put requests out, once their caches are full and stay so; without end of all others."""
    some, most = evicting(schedule, room), np.full_like(room, np.inf)
    if some.any():
        full = closed_loop(model, requests.at(some), schedule.at(some), 2.0 * room[some] + 16.0, room[some])
        most[some] = full.requests_per_s
    return most


def _of_arrivals(settled: Steady, model: Served, requests: Requests, schedule: Schedule, rate: Array, room: Array, some: Bools) -> Steady:
    """The same with what requests of some points meet that are run one by one."""
    if not some.any():
        return settled
    expected = settled.rhythm.step_s[some], settled.ttft_s[some] + requests.at(some).gaps * settled.tpot_s[some]
    runs = drawn_arrivals(model, requests.at(some), schedule.at(some), rate[some], room[some], expected)
    return _of_runs(settled, requests, some, runs)


def closed_loop_as_run(
    model: Served, requests: Requests, schedule: Schedule, clients: Array, room: Array, *, at_once: bool = False
) -> Steady:
    """As `closed_loop`, but with what requests meet that are run one by one where no law says it: of answers of a few steps (SHORT,
    DRAWN), whose clients' groups stay as they fell, of pipelines whose lanes part (batches.py) and take longer by it, and of full
    caches by an estimate of what is added to them (estimates.py), or of answers that are longer than prompts, which put one another out
    (eviction.py). Work: a run of each."""
    clients = np.asarray(clients, dtype=np.float64)
    settled = closed_loop(model, requests, schedule, clients, room, at_once=at_once)
    few = np.where(by_chance(np.asarray(schedule.drafted), np.asarray(schedule.accepted)), DRAWN, SHORT)
    some = (schedule.decoding_steps(requests) <= few) | _lanes_count(model, requests, schedule, settled.decodes)
    grows = estimating(schedule) | longer_answers(requests, schedule, room)
    some = some | (grows & settled.limited & (room < engine_sequences(schedule)))
    if not some.any():
        return settled
    return _of_runs(settled, requests, some, drawn_loops(model, requests.at(some), schedule.at(some), clients[some], room[some]))


def _lanes_count(model: Served, requests: Requests, schedule: Schedule, decodes: Array) -> Bools:
    """[n] whether lanes of a pipeline take UNEVEN longer where they have sqrt(q) sequences more than their mean q, as dealt by chance: that
    part, 1 / sqrt(q), of what twice as many take longer. (Weights that every batch reads anew hide it.)"""
    lanes: Bools = schedule.stages > 1
    if not lanes.any():
        return lanes
    asked, dealt = requests.at(lanes), schedule.at(lanes)
    each = np.maximum(decodes[lanes] / dealt.stages, 1.0)
    both = [decode_steps(asked, dealt, dealt.stages * one, np.zeros_like(one)) for one in (each, 2.0 * each)]
    mean_s, twice_s = model.price(Steps.joined(both)).seconds.reshape(2, -1)
    lanes[lanes] = twice_s / mean_s - 1.0 > UNEVEN * np.sqrt(each)
    return lanes


def _of_runs(settled: Steady, requests: Requests, some: Bools, runs: DrawnRuns) -> Steady:
    """The same with figures of runs of some points."""
    asked = requests.at(some)
    of_runs = {
        "tpot_s": runs.decoding_s / asked.gaps,
        "ttft_s": runs.first_s,
        "decodes": runs.per_s * runs.decoding_s,
        "waiting": runs.per_s * runs.first_s,
        "requests_per_s": runs.per_s,
        "tokens_per_s": runs.per_s * asked.output,
        "joules_per_token": runs.watts / (runs.per_s * asked.output),
        "queue_s": runs.queue_s,
        "overloaded": runs.growing,
        "burst_s": runs.burst_s,
    }
    found = {name: getattr(settled, name).copy() for name in of_runs}
    for name, values in of_runs.items():
        found[name][some] = values
    return replace(settled, **found)


def _of_a_prompt(requests: Requests, schedule: Schedule, decodes: Array) -> tuple[Array, Steps]:
    """[n] chunks of a prompt beside so many decodes, and n steps of one of them."""
    chunks = np.maximum(np.ceil(requests.fresh / chunk_room(schedule, decodes) - 1e-9), 1.0)
    return chunks, decode_steps(requests, schedule, np.where(schedule.mixed > 0, decodes, 0.0), schedule.stages * requests.fresh / chunks)


def _batches_at_random(beat: Rhythm, schedule: Schedule, chunks: Array, rate: Array, decodes: Array) -> RandomBatches:
    """The batches of n engines of one stage, of which so many sequences [n] decode in the mean. beat: priced with _of_a_prompt's steps."""
    seconds = beat.beside_s * chunks, beat.full_s
    served = np.minimum(rate, MOST_LOAD / beat.drain_s)
    return random_batches(served, beat.decode_s, seconds, beat.group.most, schedule.mixed > 0, -np.expm1(-decodes))


def _held_outside(load: Array, room: Array, busy: Array) -> Array:
    """[n] seconds before a place in the cache is free: M/M/c of `room` places, halved for lengths that vary little.

    Source: Sakasegawa 1977, W = S rho^(sqrt(2 (c + 1)) - 1) / (c (1 - rho)).
    """
    return np.asarray(busy * load ** (np.sqrt(2.0 * (room + 1.0)) - 1.0) / (2.0 * room * np.maximum(1.0 - load, 1e-9)))


def _burst(requests: Requests, schedule: Schedule, clients: Array) -> tuple[Array, Steps]:
    """[n] steps till the first token of `clients` prompts that arrive at once at an idle engine, in the mean, and such a step: full, beside
    the decodes of those before. A prompt waits for half of the batches, and its own goes through all stages."""
    room = prompt_room(schedule, np.zeros_like(clients))
    total = clients * requests.fresh
    batches = np.maximum(np.ceil(total / room - 1e-9), 1.0)
    beside = np.where(schedule.mixed > 0, clients / 2.0 * (batches - 1.0) / batches, 0.0)
    mean = ((batches - 1.0) / 2.0 + schedule.stages) / schedule.stages
    return mean, decode_steps(requests, schedule, beside, schedule.stages * total / batches, clients)


def _to_a_step(beat: Rhythm, schedule: Schedule) -> Array:
    """[n] seconds of a request in a busy engine before its own steps, but for the queue."""
    return np.asarray(beat.residual_s + beat.group.wait_steps * beat.decode_s + schedule.before_join * beat.step_s)


def _decoding_s(beat: Rhythm, requests: Requests, schedule: Schedule) -> Array:
    """[n] seconds from a request's first token to its last."""
    return np.asarray(schedule.decoding_steps(requests) * beat.step_s)


def _steady(model: Served, beat: Rhythm, requests: Requests, schedule: Schedule, decodes: Array, times: _Times) -> Steady:
    """The figures of n points whose rhythm has settled."""
    return Steady(
        tpot_s=_decoding_s(beat, requests, schedule) / requests.gaps,
        ttft_s=times.first_s,
        decodes=decodes,
        waiting=times.per_s * times.first_s,
        requests_per_s=times.per_s,
        tokens_per_s=times.per_s * requests.output,
        joules_per_token=(beat.joules + _idle_joules(model, schedule, 1.0 / times.per_s - beat.busy_s)) / requests.output,
        queue_s=times.queue_s,
        limited=times.limited,
        overloaded=times.overloaded,
        burst_s=times.burst_s,
        rhythm=beat,
    )


def _idle_joules(model: Served, schedule: Schedule, idle_s: Array) -> Array:
    """[n] of a request's seconds in which nothing runs: less than none where its steps were counted for longer than it takes, so that what
    is drawn all the time is of that time."""
    mesh = schedule.mesh + np.zeros_like(idle_s)
    rows = (*model.waiting(idle_s, mesh), *model.idling(np.maximum(idle_s, 0.0), mesh))
    return np.asarray(sum((row.joules for row in rows), np.zeros_like(idle_s)))
