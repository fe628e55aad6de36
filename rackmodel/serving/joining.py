"""What a prompt of a closed loop waits for before it may join a batch: batches under way, batches scheduled ahead, prompts before its own.

A client's next request comes some time after the end of a batch (the server, its tokenizer, the client); it joins the second one after
that then under way where one is scheduled ahead. Of a pipeline a batch leaves the last stage every S-th part of a step, or as often as few
others are there to fill it; sequences are dealt evenly, so that one may have no room.

    wait      the rest of a batch, (E - 1 + ahead) batches        E batches leave before one has room
    rest      of short batches and long ones, w seconds after     w seconds on the way; t of a batch; sum over k short ones before the
              one's end, where w < t of a long one                first long one, (1 - u)^k u (k t_short + t_long - w)
              E[t^2] / 2 E[t] else                                the longer a batch the more often it is met
    E         (1 - f^k) / (1 - f), f = (1 - v) exp(-a)            of S batches a share v has room, and a sequences end with each; its own
                                                                  client's comes round, with room, as the k-th: S less those that have
                                                                  left while the request was on its way
    behind    a w / t - m (1 + n) prompts                         that were on their way together, n batches of m having passed

In a clump the batches meanwhile carry prompts, but for the first ones of it, which find none before them: prompts that a request need not
meet again while it decodes. Clients of unlike lengths that all end with one step come one after the other: the first one's prompt goes
alone, and the others wait for its step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rackmodel.arrays import Array, Bools
from rackmodel.serving.mixing import Queue, Train, wide
from rackmodel.serving.places import Places, Way, way_in_group
from rackmodel.serving.requests import Requests, Schedule
from rackmodel.serving.rhythm import Crowd, Grouping, Rhythm, prompt_room


@dataclass(frozen=True)
class Cycle:
    """A closed loop counted in steps, [n] each. window: steps in which all clients' prompts come · queue: steps before a prompt's own ·
    excess: what of it there is because more prompts come than full steps work off, however they come · steps: in which others' prompts may
    come while a request decodes · still: steps of a decode in which no prompts come · train, waits: what comes, and what it waits in ·
    limited: whether others wait for room, who come at once when a request ends."""

    crowd: Crowd
    window: Array
    queue: Array
    excess: Array
    steps: Array
    still: Array
    train: Train
    waits: Queue
    limited: Bools


@dataclass(frozen=True)
class Wait:
    """Batches that pass before a prompt may join one: their seconds, and the prompts of others in them, `outside` of these before it comes
    to the queue · own_s: seconds of its own steps. [n] each."""

    seconds: Array
    prompts: Array
    outside: Array
    own_s: Array


@dataclass(frozen=True)
class _Batches:
    """Those that pass, [n] each. first: how surely all clients come with one step, one of them before the others · seconds: from one
    to the next · window: batches of the clump · count: that pass · met: share of them that are of the clump, too, `always`
    of them at least · more: of them for room."""

    first: Array
    seconds: Array
    window: Array
    count: Array
    met: Array
    always: Array
    more: Array


def joining_waits(beat: Rhythm, requests: Requests, schedule: Schedule, cycle: Cycle) -> Wait:
    """Waits of n points before a prompt may join a batch.

    Where prompts go first, those of a decode step come with it and are in no batch before. No batch is under way where nobody else decodes;
    of a pipeline one always is, for others wait for this one's.
    """
    after, mixed = schedule.before_s(requests), schedule.mixed > 0
    stages, others = beat.group.stages, np.maximum(cycle.crowd.clients, 1.0)
    passing = _passing(beat, requests, schedule, cycle)
    batch = passing.seconds
    rest = np.where(after <= 0, 0.0, _rest(beat, mixed, batch, after))
    inside = (rest + (passing.more + schedule.before_join) * batch) * passing.met
    plain = (1.0 - passing.met) * passing.count * beat.decode_s / np.minimum(others, stages)
    alone = np.where(passing.window > 1.0, plain, 0.0)
    decoding = np.where(stages > 1.0, 1.0, np.minimum(cycle.crowd.others / others, 1.0))
    under_way = np.where(cycle.crowd.clients > 0, 1.0 - (1.0 - decoding) ** others, 0.0)
    passed = schedule.before_join + np.where(after < batch, after > 0, after / batch + 0.5)
    each = np.minimum(cycle.crowd.dense / (stages * np.where(mixed, 1.0, 1.0 + beat.group.share)), beat.group.most)
    prompts = under_way * np.maximum(_met(passing.window, passed), passing.always) * each
    behind = _on_their_way(beat, mixed, cycle, after, under_way * passing.count * passing.met)
    late = _late_steps(beat, after, schedule, cycle)
    behind = behind * (1.0 - _ordered(*late, schedule, cycle, beat.group))
    idle = cycle.still > after / beat.decode_s + schedule.before_join
    fewer = np.where(idle, passing.first * 2.0 / (others + 1.0), 0.0)  # (of C that come one goes alone, and C - 1 with C - 2 others)
    wait = Wait(
        seconds=beat.group.wait_steps * beat.decode_s + under_way * (inside + alone) + behind * beat.drain_s,
        prompts=prompts * passed + behind,
        outside=prompts * (passed - schedule.before_join),
        own_s=beat.own_s - fewer * np.maximum(beat.own_s - beat.one_s, 0.0),
    )
    return _in_groups(_in_order(wait, beat, requests, schedule, cycle), beat, requests, schedule, cycle)


def _passing(beat: Rhythm, requests: Requests, schedule: Schedule, cycle: Cycle) -> _Batches:
    """Batches that pass before a prompt may join one. Fewer others than stages go one by one: while prompts come, it finds one's batch."""
    comes, stages = schedule.before_s(requests) > 0, beat.group.stages
    others = np.maximum(cycle.crowd.clients, 1.0)
    alike = cycle.train.start / cycle.window / np.maximum(np.where(schedule.tokenize_s > 0, wide(requests, requests.prompt), 0.0), 1.0)
    first = np.clip(2.0 - cycle.window * stages, 0.0, 1.0) * (1.0 - alike**others)
    window = cycle.window * stages + first * (2.0 - cycle.window * stages)
    seconds = (beat.clump_s * stages + first * (beat.one_s - beat.clump_s * stages)) / np.minimum(others, stages)
    more = np.where(comes, _exits_from(cycle.crowd, stages, schedule.before_s(requests) / seconds) - 1.0, 0.0)
    count = schedule.before_join + comes + more
    always = np.where(others < stages, cycle.window / np.maximum(cycle.window + cycle.still, 1e-300), 0.0)
    met = (1.0 - first) * _met(window, count) + first * others / (others + 1.0) / np.maximum(count, 1.0)
    return _Batches(
        first=first,
        seconds=seconds,
        window=window,
        count=count,
        met=np.maximum(met, always),
        always=always,
        more=more,
    )


def behind_in_batch(group: Grouping, more: Array | float = 0.0) -> Array:
    """[n] prompts that come with one, `more` besides, and do not fit into its batch."""
    return np.maximum(group.company + more + 1.0 - np.maximum(group.most, 1.0), 0.0)


def _on_their_way(beat: Rhythm, mixed: Bools, cycle: Cycle, after: Array, passed: Array) -> Array:
    """[n] prompts that a prompt waits for since they were on their way together: the first of a clump comes `after` [n] seconds after the
    steps without prompts in which others have ended, too, and while its own long step lasts, those come. Whoever comes later finds as many,
    but for those that are in batches before it may join one (passed: [n] of these, with prompts).
    """
    group, clients = beat.group, cycle.crowd.clients
    together = np.minimum(cycle.crowd.dense * np.minimum(after / beat.decode_s, cycle.still), clients)
    later = 1.0 - together / (2.0 * (clients + 1.0))
    more = np.minimum(together, np.maximum(clients - group.company, 0.0))
    behind = (behind_in_batch(group, more) - behind_in_batch(group)) / 2.0
    return np.asarray(np.where(mixed, np.maximum(together - group.most * (1.0 + passed), 0.0) * later, behind))


def _in_order(wait: Wait, beat: Rhythm, requests: Requests, schedule: Schedule, cycle: Cycle) -> Wait:
    """The same wait but of requests that end as they began, m in a step, in steps that follow one another, as far as they do (mixing.py).

    The first of them is ready for a step K steps after its end, which have no prompts: those on its way, and those scheduled ahead; where
    all others have ended by then, an idle engine takes it at once. All others wait for those before them. Every other client's prompt is
    met once in a cycle, in these steps or while a sequence decodes.
    """
    group, after, clients = beat.group, schedule.before_s(requests), cycle.waits.clients
    waiting, soon = _late_steps(beat, after, schedule, cycle)
    ordered = _ordered(waiting, soon, schedule, cycle, group)
    apart = cycle.waits.each + cycle.train.step * np.sqrt(12.0) / (clients + 1.0)
    idle = np.clip(waiting - (clients - 1.0) * apart - schedule.before_join, 0.0, 1.0)
    early = np.where(schedule.chunked > 0, idle * (prompt_room(schedule, np.zeros_like(after)) / group.room - 1.0), 0.0)
    places = _places(requests, schedule, cycle, group, idle, early)
    left = cycle.train.order(cycle.waits, waiting, soon, places)
    kept = ordered * left.kept
    first = _way_s(left.way, beat) - after - idle * (waiting * beat.decode_s - after)
    met = left.way.met - group.beside(cycle.crowd.queued) - cycle.queue / group.each_steps
    return Wait(
        seconds=(1.0 - kept) * wait.seconds + kept * (first - cycle.queue * beat.full_s - wait.own_s),
        prompts=(1.0 - kept) * wait.prompts + kept * met,
        outside=(1.0 - kept) * wait.outside,
        own_s=wait.own_s,
    )


def _in_groups(wait: Wait, beat: Rhythm, requests: Requests, schedule: Schedule, cycle: Cycle) -> Wait:
    """The same wait but of prompts that go first: whoever ends while one is on its way joins it, for decodes stand still till no prompt is
    left. As far as it is on its way for a step.

    Of C - 1 others in W steps (C - 1) / W end with it, and x = (C - 1) K / W within K steps of the first, a Poisson number, so that one of
    a group has x (2 + x) / (1 + x) of these in the mean, E[n (n - 1)] / E[n] of n = 1 + Poisson(x).
    """
    group, after, others = beat.group, schedule.before_s(requests), cycle.crowd.clients
    waiting = np.ceil(after / beat.decode_s - 1e-9) + schedule.before_join
    dense = others / np.maximum(cycle.window, 1.0)
    come = dense * np.where(cycle.limited, 0.0, after / beat.decode_s + schedule.before_join)
    size = 1.0 + np.minimum(dense + come * (2.0 + come) / (1.0 + come), others)
    idle = np.clip(waiting - (cycle.window - 1.0) - schedule.before_join, 0.0, 1.0)
    places = _places(requests, schedule, cycle, group, idle, np.zeros_like(after))
    places = replace(places, alone=places.alone + (1.0 - idle) * np.exp(-dense))
    way = way_in_group(size, group.each_steps, places)
    ready = np.where(others > 0, (1.0 - idle) * waiting * beat.decode_s + idle * after, after)
    sooner = np.minimum(waiting, cycle.window - 1.0) / 2.0 * (size - 1.0) / size * beat.decode_s  # than all of them that came last
    behind = behind_in_batch(group) / 2.0
    here = np.where((schedule.mixed == 0) & (group.stages == 1) & (group.wait_steps == 0), np.minimum(after / beat.decode_s, 1.0), 0.0)
    chunks_s = np.where(group.most * group.parts > 1.0 + 1e-9, np.where(group.parts > 1.0, beat.own_s, 0.0), 0.0)  # one rank's, of several
    seconds = ready - sooner + np.maximum(_way_s(way, beat), chunks_s) - after - behind * beat.drain_s - wait.own_s
    return Wait(
        seconds=here * seconds + (1.0 - here) * wait.seconds,
        prompts=here * (way.met - (group.company - behind)) + (1.0 - here) * wait.prompts,
        outside=(1.0 - here) * wait.outside,
        own_s=wait.own_s,
    )


def closing_steps(beat: Rhythm, requests: Requests, schedule: Schedule, cycle: Cycle) -> Array:
    """[n] steps by which gaps between clients' prompts close in a wave; none where batches of a pipeline or a look at the queue part them,
    where others wait for room, or where all prompts fit into a step that decodes share."""
    after, group = schedule.before_s(requests), beat.group
    waiting, soon = _late_steps(beat, after, schedule, cycle)
    trains = np.where(cycle.crowd.clients + 1.0 > group.most, waiting - soon, 0.0)
    way = after / beat.decode_s
    late = np.where(schedule.mixed > 0, trains, np.minimum(way, 1.0) * (way + schedule.before_join))
    return np.where((group.stages > 1) | (group.wait_steps > 0) | cycle.limited, 0.0, late)


def _places(requests: Requests, schedule: Schedule, cycle: Cycle, group: Grouping, idle: Array, early: Array) -> Places:
    """How prompts come and are cut. An idle engine takes the first alone, for texts of unlike lengths do not become tokens at once."""
    alike = 1.0 / np.maximum(wide(requests, requests.prompt), 1.0)
    alone = np.where(schedule.tokenize_s > 0, idle * (1.0 - alike**cycle.crowd.clients), 0.0)
    return Places(alone, np.where(schedule.chunked > 0, alike, 1.0), group.parts, early)


def _way_s(way: Way, beat: Rhythm) -> Array:
    """[n] seconds of a way and of its own prompt, by the line of `each_s`."""
    floor = np.maximum(beat.one_s - beat.each_s / beat.group.chunks, 0.0)
    return np.asarray(way.short * beat.decode_s + way.long * floor + (way.met + 1.0) * beat.each_s)


def _late_steps(beat: Rhythm, after: Array, schedule: Schedule, cycle: Cycle) -> tuple[Array, Array]:
    """[n] steps from a client's end to its prompt's first: of the first of a train, those between without prompts but for what is left of
    the train before; and of others, all with prompts. after: [n] seconds on the way."""
    under_way = np.maximum(cycle.waits.clients * cycle.waits.each - cycle.train.decoding, 0.0)
    met = np.where(schedule.mixed > 0, np.minimum(after, under_way * beat.full_s), 0.0)
    waiting = np.ceil(met / beat.full_s - 1e-9) + np.ceil((after - met) / beat.decode_s - 1e-9)
    return waiting + schedule.before_join, np.ceil(after / beat.full_s - 1e-9) + schedule.before_join


def _ordered(waiting: Array, soon: Array, schedule: Schedule, cycle: Cycle, group: Grouping) -> Array:
    """[n] whether prompts queue in order behind the first of a train, 1 or 0, or between where a train that grows leaves fewer steps
    without prompts of Z + K, those of a cycle. Not of a pipeline, nor where no such steps are left at first or a step holds all prompts."""
    length = np.maximum(cycle.waits.clients * cycle.waits.each, 1.0)
    cycle_steps = cycle.train.decoding + waiting
    queues = (schedule.mixed > 0) & (group.stages == 1) & (group.wait_steps == 0) & (cycle.crowd.clients + 1.0 > group.most)
    queues = queues & ~cycle.limited & (waiting > soon) & (cycle_steps - length > soon)
    grown = cycle.train.window_up_to(cycle_steps) * length / cycle.train.start
    left = (cycle_steps - grown) / np.where(queues, cycle_steps - length, 1.0)
    return np.asarray(np.where(queues, np.clip(left, 0.0, 1.0), 0.0))


def _rest(beat: Rhythm, mixed: Bools, batch: Array, after: Array) -> Array:
    """[n] seconds to the next end of a batch, `after` [n] seconds after one. batch: [n] their mean, of some with prompts (long) and some
    without (short). Within a long one's time k short ones have passed before the first long one, or all have been short; later it is any
    moment, E[t^2] / 2 E[t]."""
    share = np.clip(np.where(mixed, beat.group.share, beat.group.share / (1.0 + beat.group.share)), 1e-9, 1.0)
    short = np.maximum(np.minimum(batch * beat.decode_s / (beat.clump_s * beat.group.stages), batch), 1e-12)
    long = short + (batch - short) / share
    passed = np.floor(after / short)
    none = (1.0 - share) ** (passed + 1.0)
    before = (1.0 - share) / share * (1.0 - none) - (passed + 1.0) * none  # sum of k (1 - u)^k u up to those passed
    soon = before * short + (1.0 - none) * (long - after) + none * ((passed + 1.0) * short - after)
    any_time = ((1.0 - share) * short**2 + share * long**2) / (2.0 * batch)
    return np.asarray(np.where(after < long, np.maximum(soon, 0.0), any_time))


def _exits_from(crowd: Crowd, stages: Array, after: Array) -> Array:
    """The same of a request that comes `after` [n] batches after the end of the one that its client's last request left: those that have
    left by then are the fewer before its own comes round. From one on, give or take a half."""
    about = np.where(after < 1.0, 0.5, after + 0.5)
    left = np.floor(about)
    most, fewer = (_exits(crowd, stages, stages - np.maximum(gone, 0.0) % stages) for gone in (left - 1.0, left))
    return np.asarray(most + (about - left) * (fewer - most))


def _exits(crowd: Crowd, stages: Array, own: Array | None = None) -> Array:
    """[n] batches that leave a pipeline before one has room for a request. own: how many, the last its own; None: as many as stages.

    Others have room where there are fewer of them than ceil(C / S) a batch, or where one of theirs has just ended; its own has, and goes
    with the next one where nobody is left in it.
    """
    own = stages if own is None else own
    clients = crowd.clients + 1.0
    free = np.minimum((stages * np.ceil(clients / stages) - clients) / stages, 1.0)
    full = (1.0 - free) * np.exp(-crowd.dense / stages)
    exits = np.where(full < 1.0, (1.0 - full**own) / np.maximum(1.0 - full, 1e-12), own)
    empty = np.clip((2.0 * stages - clients) / clients, 0.0, 1.0)
    return np.asarray(empty + (1.0 - empty) * exits)


def _met(window: Array, batches: Array) -> Array:
    """[n] share of so many batches before one of a clump that are of the clump, too. window: batches of the clump."""
    met = np.where(window > batches, 1.0 - (batches + 1.0) / (2.0 * window), (window - 1.0) / (2.0 * np.maximum(batches, 1.0)))
    return np.clip(met, 0.0, 1.0)
