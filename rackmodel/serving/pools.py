"""Prompts and decodes on pools of their own, which may be unlike machines: a closed loop through both, rate-matched by the loop itself.

    C clients = N at the decodes + X R prompts + X K on the way      X requests a second (Little)
    prompts      P workers, each a queue of drain time d: R = own + its wait w, that of mixing.py with d for a step of it (requests that
                 are dealt in turn to P workers vary by a P-th at each) + those behind it in its batch: what comes while it waits, or
                 half of the others of a full batch; where full batches are too few for all, these are in the wait. No less than
                 1.5 t(b) where x prompts a second and worker cannot go alone, x t(1) > 1: b = x f / (1 - x p) come while b are
                 worked on, t(b) = f + p b; and no less than groups that have not parted yet take (below)
    transfer     K = a prompt's cache over the link + latency: charged to the first token, which the decode pool sends on
    decodes      D workers, to which requests are dealt in turn (routing.py): B of N make tokens, the others wait for a place.
                 TPOT = t(B / D, 0): nothing disturbs them; a request joins between two steps, after those scheduled ahead

Looks. A worker of decodes looks at its queue between two of its steps t (of `polled` steps, between two of those), and sees there, too,
what has arrived. TensorRT-LLM's and vLLM's asks for a cache that is done: half of t, and then whole steps, max(t, K + t / 2) in the mean;
SGLang's sets room aside, and only then may the prompt begin: half of t before it and half of t after K. vLLM's computes the first token
once more, one t.

Groups. Prompts of one batch begin to decode together, end together, and come back together. A worker that waits takes the first one of
them alone and the others after it, so that a group loses one each wave, once it finds the worker waiting: the k-th group of a train from
the k-th wave on, for before that the one before it is late by a batch's floor. A group that is whole takes (m - 1) p + f longer than one
prompt alone, x others after the first one f + p x, in the mean of its first members x (f + p x) / m. Lengths that are unlike by h
seconds of decoding part a group sooner, and so do caches that go one after the other, K each: what is left of its time is t(m) - h - m K.

The pool that is short sets X; the other one waits. X is found where the population adds up. The first prompts of all clients come at once,
as in steady.py: the k-th ones come within a window, and wait for each other inside it.

All of this is of means. Loops that are small enough are run (pooled_runs.py), and have what their requests meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np

from rackmodel.arrays import Array
from rackmodel.serving.kept_drafts import by_chance
from rackmodel.serving.mixing import Queue, Train
from rackmodel.serving.pooled_runs import PooledFigures, PooledLoop, mixed, pooled_run, waves_run, whole_numbers
from rackmodel.serving.requests import Requests, Schedule
from rackmodel.serving.rhythm import chunk_room, decode_steps, full_batch, prompts_of_a_batch
from rackmodel.serving.routing import Dealt
from rackmodel.serving.step_prices import StepPrices
from rackmodel.serving.steps import Served, Steps

ROUNDS = 40
_HARDLY = 1e-9
BY_HALVES = {"estimates": 0.0}
"""Fact of a schedule of pools: SGLang's worker of decodes sets aside a number of tokens for each request (num_reserved_decode_tokens of
sglang/srt/disaggregation/decode.py) where its other servers estimate; half of an output here, ASSUMED as of the others'."""
PER_OCTAVE = 16
"""Batches of a worker that are priced, those of whole sequences at the powers of 2 ** (1 / 16), which are all up to 29: a mean batch
between two of them is some steps of either, so that straight lines join them. The same ones whatever else is asked, so that a loop's
figures are its own. (All whole batches: TPOT 0.4 % off at most in 99 of 100 of 2,400 loops, in 1.6 to 2.5 times the time.)"""


@dataclass(frozen=True)
class Pool:
    """Workers that are alike. workers: how many, a number or [n] · room: [n] requests that each holds at once ·
    idle_watts: of one while it waits · known: prices of steps of the model that several pools share; None = its own."""

    model: Served
    schedule: Schedule
    workers: Any
    room: Array
    idle_watts: float = 0.0
    known: StepPrices | None = None

    @property
    def prices(self) -> StepPrices:
        """Of steps of its model."""
        return self.known or StepPrices(self.model)


@dataclass(frozen=True)
class Transfer:
    """How a prompt's cache gets to the decode pool. held_bytes: tokens of prompts [n] → bytes of their caches on the accelerator that has
    most of them to send or to take · bandwidth_bytes_per_s: of its link · latency_s: of a transfer · joules_per_byte: of these bytes, with
    those that others send beside it."""

    held_bytes: Callable[[Array], Array]
    bandwidth_bytes_per_s: float
    latency_s: float = 0.0
    joules_per_byte: float = 0.0

    def seconds(self, requests: Requests) -> Array:
        """[n] seconds of a prompt's cache."""
        return np.asarray(self.held_bytes(requests.prompt) / self.bandwidth_bytes_per_s + self.latency_s)

    def joules(self, requests: Requests) -> Array:
        """[n] joules of a prompt's cache, all its accelerators together."""
        return np.asarray(self.held_bytes(requests.prompt) * self.joules_per_byte)


@dataclass(frozen=True, kw_only=True)
class PoolsSteady:
    """What the loop settles at, [n] each. transfer_s: of ttft_s · burst_s: mean time to the first token of the prompts that come at once at
    the start · decodes: sequences that make tokens · outside: requests that wait for a place there · busy: share of the prompts' workers'
    time that is work."""

    tpot_s: Array
    ttft_s: Array
    transfer_s: Array
    burst_s: Array
    decodes: Array
    outside: Array
    requests_per_s: Array
    busy: Array
    joules_per_token: Array


@dataclass(frozen=True)
class _Prompts:
    """Prompts at a worker of their pool, [n] each. own_s: of one alone · drain_s: that one takes of a full queue · moving_s: of a cache,
    one after the other · share: clients of a worker · turns: workers that requests are dealt to in turn · most: prompts of a full batch ·
    chunks: of one prompt · each_s: what one more adds to a batch · full_s: of a full batch · alone, batched: seconds and joules of a worker
    for one that goes alone, and in a full batch."""

    own_s: Array
    drain_s: Array
    moving_s: Array
    share: Array
    turns: Any
    most: Array
    chunks: Array
    each_s: Array
    full_s: Array
    alone: tuple[Array, Array]
    batched: tuple[Array, Array]

    def behind_s(self, there: Array) -> Array:
        """[n] seconds of those behind a prompt in its batch, half of the others, where there [n] of them wait together."""
        return np.asarray(np.maximum(np.minimum(there, self.most) - 1.0, 0.0) / 2.0 * self.each_s)

    @property
    def floor_s(self) -> Array:
        """[n] seconds of a batch whatever it holds."""
        return np.asarray(np.maximum(self.alone[0] - self.each_s, 0.0))

    def at_least(self, per_s: Array) -> tuple[Array, Array]:
        """[n] prompts of a batch that per_s [n] a second and worker come to, at least, and seconds to a first token of theirs."""
        each = np.maximum(1.0 - per_s * self.each_s, 1e-9)
        batch = np.clip(per_s * self.floor_s / each, 1.0, np.maximum(np.minimum(self.most, self.share), 1.0))
        waits = np.where(per_s * self.alone[0] > 1.0, 0.5 * (self.floor_s + batch * self.each_s), 0.0)
        return batch, np.asarray(self.own_s + (batch - 1.0) * self.each_s + waits)

    def grouped_s(self, train: Train, batch: Array, step: Array) -> Array:
        """[n] seconds that prompts of a group take longer than one alone, in the mean over the waves. batch: [n] that stay together for
        ever · step: [n] seconds of a decode."""
        floor, each = self.floor_s, self.each_s
        most = np.maximum(np.minimum(self.most, self.share), 1.0)
        groups = np.maximum(self.share / most, 1.0)
        waves = train.waves + 0.0 * floor  # [m, n]
        whole = np.maximum(groups - waves, 0.0) * (floor + (most - 1.0) * each)
        first, last = (np.maximum(most - np.clip(met, 0.0, None), batch) - 1.0 for met in (waves - groups, waves))

        def parting(others: Array) -> Array:
            return np.asarray((floor * others**2 / 2.0 + each * others**3 / 3.0) / most)

        stays = np.maximum(np.minimum(waves, groups) - (first - last), 0.0) * last * (floor + each * last) / most
        wide_s = np.sqrt(12.0 * waves) * train.step * step
        left = np.clip(1.0 - (wide_s + (most - 1.0) * self.moving_s) / np.maximum(floor + most * each, 1e-300), 0.0, 1.0)
        longer = (whole + parting(first) - parting(last) + stays) / groups * left
        return np.asarray(np.where(most > 1.0, (train.shares * longer).sum(axis=0), 0.0))

    def work(self, per_s: Array) -> tuple[Array, Array]:
        """[n] seconds of a worker and joules of a prompt, of per_s [n] a second and worker: alone as long as there is time for all to be,
        else as many in full batches as it takes."""
        (alone_s, alone_j), (batched_s, batched_j) = self.alone, self.batched
        saved = np.maximum(alone_s - batched_s, 1e-300)
        full = np.clip((alone_s - 1.0 / per_s) / saved, 0.0, 1.0)
        return alone_s + full * (batched_s - alone_s), alone_j + full * (batched_j - alone_j)


def pools_closed_loop(prompts: Pool, decodes: Pool, transfer: Transfer, requests: Requests, clients: Array) -> PoolsSteady:
    """n closed loops of clients [n] through a pool that prefills and one that decodes. Work: prices of the distinct ones of 2 n
    steps, and of n for each of `priced_batches`; runs of up to some thousand requests."""
    clients = np.asarray(clients, dtype=np.float64)
    moving, asking = transfer.seconds(requests), prompts.schedule.before_s(requests)
    at = _prompts(prompts, requests, clients, moving)
    dealt = Dealt(clients, decodes.workers, decodes.room, requests.variation)
    rate = _Decodes(decodes, requests, clients)
    low, high = np.zeros_like(clients), clients.copy()
    for _ in range(ROUNDS):  # N is where the population adds up: it grows with N, so halving finds it
        there = (low + high) / 2.0
        making = dealt.served(there)
        step, busy, per_s = rate.at(making)
        joins = _looks(decodes, making, clients, step) + _joins(decodes, making, clients, step, moving)
        first = _first(at, rate, step, per_s) + moving + joins + asking
        more = (there + per_s * first < clients) & (per_s * at.drain_s / prompts.workers < 1.0)
        low, high = np.where(more, there, low), np.where(more, high, there)
    there = dealt.served(low)
    step, busy, per_s = rate.at(there)
    joins = _looks(decodes, there, clients, step) + _joins(decodes, there, clients, step, moving) + asking
    outside, first = low - there, np.maximum(clients / per_s - busy, at.own_s + moving + joins)
    places = np.minimum(dealt.room * dealt.workers, clients)
    queued = at.drain_s * np.maximum(at.share - 1.0, 0.0) / 2.0 + at.behind_s(at.share)
    burst = at.own_s + queued + _first_outside(at, places, clients, busy) + moving + joins
    turns = at.turns + 0.0 * clients
    for place, run in _runs(at, rate, requests, clients, asking):
        busy[place], burst[place] = busy[place] * run.step_s / step[place], run.burst_s
        whole = max(run.first_s + busy[place], clients[place] * at.drain_s[place] / turns[place])
        first[place], per_s[place] = whole - busy[place], clients[place] / whole
        there[place] = per_s[place] * busy[place]
    busy_s, joules = at.work(per_s / prompts.workers)
    idle = prompts.idle_watts * np.maximum(prompts.workers - per_s * busy_s, 0.0)
    return PoolsSteady(
        tpot_s=busy / requests.gaps,
        ttft_s=first,
        transfer_s=moving,
        burst_s=burst,
        decodes=there,
        outside=outside,
        requests_per_s=per_s,
        busy=per_s * at.drain_s / prompts.workers,
        joules_per_token=(joules + transfer.joules(requests) + (rate.watts_of(there) + idle) / per_s) / requests.output,
    )


def steps_of_pools(prompts: Pool, decodes: Pool, requests: Requests, clients: Array) -> tuple[Steps, Steps]:
    """The steps of each pool's model that a closed loop through both asks for."""
    return _Batches(prompts, requests).steps, _grid(decodes, requests, np.asarray(clients, dtype=np.float64))[1]


class _Batches:
    """What prompts run in, [n] each. most: prompts of a full batch · chunks: of one prompt · steps: of a chunk alone, then full ones."""

    def __init__(self, pool: Pool, requests: Requests) -> None:
        nothing, stages = np.zeros_like(requests.prompt), pool.schedule.stages
        self.most = np.minimum(prompts_of_a_batch(requests, pool.schedule, nothing), np.maximum(pool.schedule.sequences / stages, 1.0))
        self.chunks = np.maximum(np.ceil(requests.fresh / chunk_room(pool.schedule, nothing) - 1e-9), 1.0)
        tokens = [requests.fresh / self.chunks, np.minimum(full_batch(requests, pool.schedule, nothing), self.most * requests.fresh)]
        self.steps = Steps.joined([decode_steps(requests, pool.schedule, nothing, stages * count) for count in tokens])


def _prompts(pool: Pool, requests: Requests, clients: Array, moving: Array) -> _Prompts:
    """What prompts take of their pool. moving: [n] seconds of a transfer, which a worker does for one after the other."""
    batches, stages = _Batches(pool, requests), pool.schedule.stages
    most, chunks = batches.most, batches.chunks
    (own, full), (own_j, full_j) = (figure.reshape(2, -1) for figure in pool.prices.of(batches.steps))
    alone, batched = ((chunks * own / stages, chunks * own_j / stages), (full / most / stages, full_j / most / stages))
    gains = batched[0] < alone[0]
    batched = np.where(gains, batched[0], alone[0]), np.where(gains, batched[1], alone[1])
    drain, own_s = np.maximum(batched[0], moving), (stages + chunks - 1.0) / stages * own
    each_s = np.where(most > 1.0, np.clip((full / stages - alone[0]) / np.maximum(most - 1.0, 1e-9), 0.0, drain), 0.0)
    return _Prompts(
        own_s, drain, moving, np.maximum(clients / pool.workers, 1.0), pool.workers, most, chunks, each_s, full / stages, alone, batched
    )


def priced_batches(most: float) -> Array:
    """Whole batches of a worker, from one sequence to the first of no fewer than `most`."""
    count = int(np.ceil(PER_OCTAVE * np.log2(max(np.ceil(most), 1.0)))) + 1  # of a whole number, so that rounding leaves as many
    return np.unique(np.round(2.0 ** (np.arange(count) / PER_OCTAVE)))


def _grid(pool: Pool, requests: Requests, clients: Array) -> tuple[Array, Steps]:
    """(batches of a worker that are priced, the steps of each for every loop)."""
    batches, n = priced_batches(float(np.minimum(clients / pool.workers, pool.room).max())), len(clients)
    each, again = np.repeat(batches, n), np.tile(np.arange(n), len(batches))
    return batches, decode_steps(requests.at(again), pool.schedule.at(again), each, np.zeros_like(each))


class _Decodes:
    """The decodes' pool, priced at some batches of a worker. steps, chance: [n] of an answer, and their deviation."""

    def __init__(self, pool: Pool, requests: Requests, clients: Array) -> None:
        self.pool, self.requests = pool, requests
        self.steps, self.chance = pool.schedule.decoding_steps(requests), pool.schedule.steps_deviation(requests)
        self.batches, steps = _grid(pool, requests, clients)
        seconds, joules = pool.prices.of(steps)
        shape = (len(self.batches), len(clients))
        self.seconds, self.watts = seconds.reshape(shape), (joules / seconds).reshape(shape)

    def at(self, there: Array) -> tuple[Array, Array, Array]:
        """[n] seconds of a step, seconds of a request's decoding, and requests a second, of `there` [n] sequences that make tokens."""
        step = self._between(self.seconds, there)
        busy = self.steps * step
        return step, busy, np.maximum(there, 1e-9) / busy

    def watts_of(self, there: Array) -> Array:
        """[n] watts of all workers; of fewer sequences than workers each has one of its own, and the others wait."""
        working = np.minimum(there / self.pool.workers, 1.0)
        return np.asarray(self.pool.workers * (working * self._between(self.watts, there) + (1.0 - working) * self.pool.idle_watts))

    def steps_s(self, place: int, most: int) -> tuple[float, ...]:
        """Seconds of a step of a worker of 0, 1, 2 ... sequences."""
        return tuple(np.interp(np.arange(most + 1.0), self.batches, self.seconds[:, place]).tolist())

    def _between(self, figures: Array, there: Array) -> Array:
        each = np.maximum(there / self.pool.workers, 1.0)
        return np.array([np.interp(x, self.batches, figures[:, n]) for n, x in enumerate(each)])


def _runs(at: _Prompts, rate: _Decodes, requests: Requests, clients: Array, asking: Array) -> Iterator[tuple[int, PooledFigures]]:
    """What loops meet that are run, with their places among n. asking: [n] seconds of the server before a prompt."""
    pool, chunks = rate.pool, at.chunks
    prompts, decodes, room = (np.broadcast_to(one, clients.shape) for one in (at.turns, pool.workers, pool.room))
    slope = (at.full_s - at.alone[0] / chunks) / np.maximum(at.most - 1.0 / chunks, _HARDLY)
    each = np.where(at.most * chunks > 1.0 + _HARDLY, np.clip(slope, 0.0, at.drain_s), at.alone[0])
    chance = by_chance(pool.schedule.drafted, pool.schedule.accepted)
    for place, count in enumerate(clients):
        unlike = bool(requests.variation[place] > 0 or chance[place])
        loops = [(n, share, waves_run(n, float(requests.waves[place]), unlike)) for n, share in whole_numbers(float(count))]
        one, schedule = requests.at([place]), pool.schedule.at([place])
        if not all(waves for *_, waves in loops) or schedule.stages[0] > 1:
            continue
        loop = PooledLoop(
            clients=0,
            prompts=int(prompts[place]),
            decodes=int(decodes[place]),
            most=float(at.most[place]),
            floor_s=float((at.alone[0] - each)[place] / chunks[place]),
            each_s=float(each[place]),
            later_s=float((at.own_s - at.alone[0])[place]),
            moving_s=float(at.moving_s[place]),
            asking_s=float(asking[place]),
            step_s=rate.steps_s(place, ceil(count)),
            room=float(room[place]),
            ahead=int(schedule.ahead[0]),
            polled=max(int(schedule.polled[0]), 1),
            asks_first=bool(schedule.asks_first[0] > 0),
            first_again=bool(schedule.first_again[0] > 0),
            waves=float(requests.waves[place]),
            count=0,
            lengths=(float(one.prompt[0]), float(one.output[0]), float(one.variation[0])),
            drafts=(int(schedule.drafted[0]), float(schedule.accepted[0])),
        )
        runs = [(n, share, pooled_run(replace(loop, clients=n, count=waves * n))) for n, share, waves in loops]
        yield place, mixed(runs, float(rate.steps[place])) if len(runs) > 1 else runs[0][-1]


def _first(at: _Prompts, rate: _Decodes, step: Array, per_s: Array) -> Array:
    """[n] seconds of a prompt in its worker, its queue included. rate: the decodes, whose steps count the window · per_s: [n] requests a
    second."""
    train = Train.of(rate.requests, rate.steps, at.share * at.drain_s / step, None, rate.chance)
    rest = np.maximum(at.own_s - at.drain_s, 0.0) / step
    short, chance = (part * step for part in train.queued(Queue(at.share, at.drain_s / step, rest, at.turns)))
    queue = short + chance
    behind_s = np.minimum(at.each_s * queue * at.share / (train.window * step), at.behind_s(at.share))
    batch, least = at.at_least(per_s / at.turns)
    waits = np.maximum(queue + np.maximum(behind_s - short, 0.0), at.grouped_s(train, batch, step))
    return np.asarray(np.maximum(at.own_s + waits, least))


def _first_outside(at: _Prompts, places: Array, clients: Array, busy: Array) -> Array:
    """[n] seconds that the first prompts of all clients wait for a place at the decodes, in the mean: a place is free after a request's
    decoding, and the next prompt is there after `places` [n] others."""
    rounds = np.floor((clients - 1.0) / places)
    mean = rounds * (clients - places * (rounds + 1.0) / 2.0) / clients
    return np.asarray(mean * np.maximum(busy - places * at.drain_s / at.turns, 0.0))


def _looks(decodes: Pool, there: Array, clients: Array, step: Array) -> Array:
    """[n] seconds till a worker that has others looks at its queue: half of the steps from one look to the next."""
    every = np.maximum(decodes.schedule.polled, 1.0) / decodes.schedule.stages
    return np.asarray(_busy(decodes, there, clients) * 0.5 * every * step)


def _joins(decodes: Pool, there: Array, clients: Array, step: Array, moving: Array) -> Array:
    """[n] seconds from the end of a transfer till a worker that has others joins a request to its steps, and has its first token. moving:
    [n] seconds of the transfer, which begins between two steps unless room was set aside before the prompt."""
    schedule, batch = decodes.schedule, step / decodes.schedule.stages
    rest = np.where(schedule.asks_first > 0, 0.5 * batch, np.maximum(batch - moving, 0.5 * batch))
    again = np.where(schedule.first_again > 0, step, 0.0)
    return np.asarray(_busy(decodes, there, clients) * (rest + schedule.ahead * batch) + again)


def _busy(decodes: Pool, there: Array, clients: Array) -> Array:
    """[n] probability that a worker has others."""
    return np.asarray(-np.expm1(-there * (clients - 1.0) / np.maximum(clients, 1.0) / decodes.workers))
