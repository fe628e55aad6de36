"""The rhythm of an engine: how often a step carries prompts, how many, and what the steps cost.

    batches with prompts      u = max(1 - exp(-a), a / m)          a prompts join a batch, m fit into one: they join the next one
    of all batches            u = 1 / (H + 1 / a)                  a prompt waits H batches for company
                              u = (1 - exp(-a N)) / N              the queue is looked at every N batches
    seconds a decode step     t = (1 - v) t(B, 0) + v t(B, S a P / u)              mixed steps
                              t = (1 + u) ((1 - v) t(B, 0) + v t(0, S a P / u))    prompts first, u batches a decode's
    longest of S batches      v = u E[max of S draws of K] / a     S stages, as many batches under way; S = 1: v = u (_overlap: less)
                              K = 0, of a share u 1 + Poisson(a / u - 1), at most m

a: prompts that arrive a batch, while they come. They are Poisson: requests of unlike lengths end independently. Where they come in
clumps, u is that of a clump times the share of time that clumps take. t(B, p) is the engine's price of a step of B decodes and p prompt
tokens, P: prompt tokens to work on.

A pipeline has S batches under way, each of an S-th part of the sequences and with a budget of its own; t(B, p) prices S that are alike.
Batches do not overtake: from a long one to its sequences' next are S passes of the slowest stage, and all others wait behind it, so that a
step lasts S passes of the longest of its batches. Long ones that follow each other fill it once, chunks of one prompt among them: to
`longest`, S is (S + k - 1) / k for prompts of k batches. Where prompts' batches are shorter than
decodes', a step is short if all of them are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rackmodel.arrays import Array, Bools
from rackmodel.serving.mixing import wide
from rackmodel.serving.requests import Requests, Schedule, prompt_parts
from rackmodel.serving.steps import Served, StepFigures, Steps

MOST_PROMPTS = 64
"""Of a batch, that are drawn; more of them hardly vary."""


@dataclass(frozen=True, kw_only=True)
class Grouping:
    """How prompts come together in batches, each [n]. stages: batches under way, of which a decode step is made · share: batches with
    prompts a batch of decodes · dealt: sequences that a batch may have, where they are dealt evenly · wait_steps: decode steps that a
    prompt waits for company or for a look at the queue · company: others that come with a prompt · most: prompts of a full batch ·
    parts: batches that a prompt would fill · room: prompt tokens of a full batch."""

    stages: Array
    share: Array
    dealt: Array
    wait_steps: Array
    company: Array
    most: Array
    parts: Array
    room: Array

    @property
    def chunks(self) -> Array:
        """Batches of a prompt."""
        return np.asarray(np.maximum(np.ceil(self.parts - 1e-9), 1.0))

    @property
    def each_steps(self) -> Array:
        """Decode steps that a prompt takes of a full queue."""
        return np.asarray(1.0 / (self.stages * self.most))

    @property
    def apart(self) -> Array:
        """Stages that a batch with prompts passes for itself: chunks of a prompt follow each other and fill a pipeline once."""
        parts = np.maximum(self.parts, 1.0)
        return np.asarray((self.stages + parts - 1.0) / parts)

    def beside(self, queued: Array | float) -> Array:
        """Others that fit into a prompt's own batches. queued: probability that it waited for others, so that these are full; else they
        hold whole prompts, for one that is cut is of the next."""
        fit = np.maximum(np.minimum(self.most * self.chunks, self.dealt) - 1.0, 0.0)
        whole = np.maximum(np.floor(self.most + 1e-9), 1.0) - 1.0
        company = np.minimum(self.company, np.where(self.chunks > 1.0, fit, np.minimum(fit, whole)))
        return np.asarray(company + queued * (fit - company))

    @property
    def own_steps(self) -> Array:
        """Steps of a prompt's own: its chunks follow each other through the stages.

        Source: vllm-project/vllm v1/core/sched/scheduler.py, which counts a chunk as computed when it is scheduled.
        """
        return np.asarray((self.stages + self.chunks - 1.0) / self.stages)


@dataclass(frozen=True)
class Crowd:
    """Who is there, each [n]. decodes: sequences that make tokens · others: of these, beside a prompt's own steps · dense: prompts that
    arrive a decode step while a clump of them comes · seen: prompts that delay a sequence, a decode step of its own · clients: others that
    may send one · queued: probability that a prompt waits for others, and so joins a full batch · working: prompts whose own steps are
    under way in the mean, where that is known."""

    decodes: Array
    others: Array
    dense: Array
    seen: Array
    clients: Array
    queued: Array | float = 0.0
    working: Array | float = 0.0


@dataclass(frozen=True, kw_only=True)
class Rhythm:
    """n engines at a number of decoding sequences; each field is [n].

    decode_s, step_s: seconds of a step without prompts, and of a decode step with its part of the prompts' · prompt_s: that one prompt adds
    to the steps of a decode · own_s: of a prompt's own steps · one_s: of a step that one prompt comes to alone · clump_s: from a batch of
    any kind to the next while a clump of prompts comes · full_s: of a step full of prompts · drain_s: that a prompt takes of a full queue ·
    each_s: that one more prompt adds to a batch · more: what a request's prompts take, each time that they are computed, over its own one ·
    residual_s: from any moment to the next batch · joules: of a request, from its prompt to its
    last token · busy_s: seconds of an engine that these are of · beside_s: of the steps that were priced with them.
    """

    group: Grouping
    decode_s: Array
    step_s: Array
    prompt_s: Array
    own_s: Array
    one_s: Array
    clump_s: Array
    full_s: Array
    drain_s: Array
    each_s: Array
    more: Array
    residual_s: Array
    joules: Array
    busy_s: Array
    beside_s: Array


def grouping(requests: Requests, schedule: Schedule, decodes: Array, arrivals: Array, others: Array) -> Grouping:
    """How prompts come together beside decodes [n] sequences, where arrivals [n] of them come a decode step, of `others` [n] that may.

    Of others that come within W batches (where decodes wait for prompts, W steps), evenly, those come with a prompt that fall into the same
    N: a share 1 - w / 3 where w = (W - 1) / N is up to 1, else 1 / w - 1 / (3 w^2).
    """
    stages = schedule.stages + np.zeros_like(decodes)
    decodes = np.where(others > 0, decodes, 0.0)  # (of one client none while its prompt is worked on)
    most = prompts_of_a_batch(requests, schedule, decodes)
    room = full_batch(requests, schedule, decodes)
    rate = np.maximum(arrivals / stages, 1e-12)
    every = np.maximum(schedule.polled, 1.0)
    held = _held_batches(requests, schedule, room, rate)
    polled_share = -np.expm1(-rate * every) / every
    free = np.where(held > 0, np.minimum(1.0 / (held + 1.0 / rate), polled_share), polled_share)
    held_wait = (held + rate * held * held / 2.0) / (1.0 + rate * held)
    dealt = np.where(stages > 1, np.ceil((others + 1.0) / stages), np.inf)
    share = np.maximum(free, rate / np.minimum(most, dealt))
    company = others * _together(others / np.where(schedule.mixed > 0, rate, rate * stages), np.maximum(held, every))
    return Grouping(
        stages=stages,
        share=np.where(schedule.mixed > 0, np.minimum(share, 1.0), share),
        wait_steps=(held_wait + (every - 1.0) / 2.0) / stages,
        dealt=dealt,
        company=np.minimum(company, dealt - 1.0),
        most=most,
        parts=requests.fresh / chunk_room(schedule, decodes),
        room=room,
    )


def _together(window: Array, every: Array) -> Array:
    """[n] probability that another prompt of the window comes with one."""
    w = np.maximum(window - 1.0, 1e-9) / every
    return np.where(w <= 1.0, 1.0 - w / 3.0, 1.0 / w - 1.0 / (3.0 * w * w))


def _held_batches(requests: Requests, schedule: Schedule, room: Array, rate: Array) -> Array:
    """[n] batches that the first of some prompts waits: till the time is over, or till enough tokens are there. A mean over lengths."""
    enough = schedule.held_until * room
    spread = np.sqrt(3.0) * np.linspace(-0.8, 0.8, 5)[:, None] * _variation(requests)
    others = np.maximum(enough / (requests.fresh * (1.0 + spread)) - 1.0, 0.0)
    return np.asarray(np.minimum(schedule.held, others / rate).mean(axis=0))


def _variation(requests: Requests) -> Array:
    """[n] standard deviation of the lengths over their mean, at most 0.5: evenly spread lengths vary by no more than 0.58."""
    return np.asarray(np.clip(requests.variation, 0.0, 0.5))


def rhythm_steps(requests: Requests, schedule: Schedule, crowd: Crowd, also: Steps | None = None) -> Steps:
    """The steps that `rhythm` prices."""
    return _kinds(requests, schedule, crowd, also)[-1]


def _kinds(requests: Requests, schedule: Schedule, crowd: Crowd, also: Steps | None) -> tuple[Grouping, Array, Steps]:
    """How prompts come together; [n] prompt tokens of a batch in the mean; the steps: without prompts, with those in the mean, a prompt's
    own, one prompt alone, full ones."""
    decodes, mixed = crowd.decodes, schedule.mixed > 0
    group = grouping(requests, schedule, decodes, crowd.dense, crowd.clients)
    stages = group.stages
    prompts = np.minimum(crowd.dense / (stages * group.share), np.minimum(crowd.clients + 1.0, group.dealt))
    tokens = np.minimum(prompts * requests.fresh, group.room)
    beside = np.where(mixed, decodes, 0.0)
    own = np.minimum((1.0 + group.beside(crowd.queued)) * requests.fresh / group.chunks, group.room)
    kinds = [
        decode_steps(requests, schedule, decodes, np.zeros_like(decodes)),
        decode_steps(requests, schedule, beside, stages * tokens, _under_way(group, crowd, mixed)),
        decode_steps(requests, schedule, np.where(mixed, crowd.others, 0.0), stages * own),
        decode_steps(requests, schedule, np.where(mixed, crowd.others, 0.0), stages * requests.fresh / group.chunks),
        decode_steps(requests, schedule, beside, stages * group.room, np.where(group.parts > 1.0, crowd.clients + 1.0, np.inf)),
    ]
    return group, tokens, Steps.joined(kinds if also is None else [*kinds, also])


def _under_way(group: Grouping, crowd: Crowd, mixed: Bools) -> Array:
    """[n] prompts that have a part in a step: of those that take several steps as many are under way, and where decodes wait for them all
    that came with one."""
    come = np.maximum(crowd.dense * np.where(mixed, group.parts, 1.0), crowd.working)
    return np.where(group.parts > 1.0, np.minimum(come, crowd.clients + 1.0), np.inf)


def rhythm(model: Served, requests: Requests, schedule: Schedule, crowd: Crowd, also: Steps | None = None) -> Rhythm:
    """The rhythm of n engines. also: n steps that are priced with its own. Work: one price of 5 n steps, or of 6 n."""
    decodes, mixed = crowd.decodes, schedule.mixed > 0
    group, tokens, steps = _kinds(requests, schedule, crowd, also)
    stages = group.stages
    figures = model.price(steps)
    plain, joined, alone, one, full, *others = figures.seconds.reshape(-1, len(decodes))
    dense = _Dense(group, mixed, plain, joined, stages * tokens / requests.fresh)
    prompt = dense.met_s((crowd.clients + 1.0) / crowd.dense)
    each = _each_s(group, np.where(mixed, plain, 0.0), np.minimum(one, alone), full)
    more = _more(requests, each / np.maximum(prompt, 1e-300))
    step = plain + crowd.seen * prompt * more
    joules, busy = _joules(model, (requests, schedule, crowd), dense, figures, more)
    cut = np.where((stages == 1.0) & (schedule.chunked > 0), crowd.queued * (_cut_steps(requests, group) - group.own_steps), 0.0)
    apart = np.where(stages > 1.0, np.maximum(dense.step_s - np.maximum(plain, joined), 0.0), 0.0)
    return Rhythm(
        group=group,
        decode_s=plain,
        step_s=step,
        prompt_s=prompt,
        own_s=group.own_steps * (alone + apart) + cut * full,
        one_s=np.minimum(one, alone),
        clump_s=dense.step_s / stages,
        full_s=full,
        drain_s=full * group.each_steps,
        each_s=each,
        more=more,
        residual_s=(plain**2 + crowd.seen * prompt * (joined + np.where(mixed, plain, 0.0))) / (2.0 * step * stages),
        joules=joules,
        busy_s=busy,
        beside_s=others[0] if others else np.zeros_like(plain),
    )


def _each_s(group: Grouping, beside: Array, one: Array, full: Array) -> Array:
    """[n] seconds that one more prompt adds to a batch: steps with prompts are on the line through those of one, or of its chunk, and of a
    full batch, and no less than a step without. beside: [n] seconds of what decodes in a batch."""
    part, each = 1.0 / group.chunks, (full - beside) / group.most
    between = (full - one) / np.maximum(group.most - part, 1e-9)
    return np.asarray(np.where(group.most > part * (1.0 + 1e-6), np.clip(between, 0.0, each), each))


def _more(requests: Requests, of_tokens: Array) -> Array:
    """[n] what is computed for a request, over its prompt alone: a floor as often as it is put out, and its tokens again. of_tokens: share
    of a prompt's seconds that grows with its tokens."""
    share = np.clip(of_tokens, 0.0, 1.0)
    return np.asarray(1.0 + (1.0 - share) * requests.outs + share * requests.again / requests.fresh)


def _cut_steps(requests: Requests, group: Grouping) -> Array:
    """[n] steps of a prompt of a full queue, of p steps, that begins at any moment of one: as many as it takes to the end of its last,
    p + 1/2 in the mean. Those of as many tokens as whole steps have are not cut where all have as many."""
    whole = (np.abs(group.parts - np.round(group.parts)) < 1e-9) / np.maximum(wide(requests, requests.prompt), 1.0)
    return np.asarray(np.maximum(group.parts + (1.0 - whole) / 2.0, 1.0))


@dataclass(frozen=True)
class _Dense:
    """Steps while prompts come, [n] each. plain, joined: seconds of one without prompts, and of one whose batches all have the mean ones ·
    prompts: of the latter."""

    group: Grouping
    mixed: Bools
    plain: Array
    joined: Array
    prompts: Array

    @property
    def extra_s(self) -> Array:
        """What prompts in all batches add: mixed, to a step; else a step of their own."""
        return np.asarray(self.joined - np.where(self.mixed, self.plain, 0.0))

    @property
    def step_s(self) -> Array:
        """Seconds of a step of any kind: as long as the longest of its batches."""
        group, each = self.group, self.prompts / self.group.stages
        prompting = np.where(self.mixed, group.share, group.share / (1.0 + group.share))
        if np.all(group.stages == 1.0):
            return np.asarray(self.plain + prompting * (self.joined - self.plain))
        most = np.maximum(np.minimum(group.most, group.dealt), each)
        part = longest(prompting, each, most, group.apart) / each * _overlap(np.minimum(prompting, 1.0), group.apart)
        part = np.where(self.joined > self.plain, np.where(group.stages > 1.0, part, prompting), prompting**group.stages)
        return np.asarray(self.plain + part * (self.joined - self.plain))

    def met_s(self, window: Array) -> Array:
        """Seconds that another's prompt adds to the steps of a decode. window: [n] steps in which all of them come.

        Long batches that follow each other fill a pipeline once: of a clump of one step that is in the seconds of a prompt's own steps.
        """
        each = np.asarray(self.extra_s / np.maximum(self.prompts, 1e-12))
        filled = np.where(self.group.stages > 1.0, 1.0 / np.maximum(window, 1.0), 0.0)
        return np.asarray(self.prompt_s - np.maximum(self.prompt_s - each, 0.0) * filled)

    @property
    def prompt_s(self) -> Array:
        """Seconds that a prompt adds to the steps of a decode."""
        every = np.where(self.mixed, 1.0, 1.0 + self.group.share) * self.step_s
        return np.asarray((every - self.plain) / np.maximum(self.group.share * self.prompts, 1e-12))


def _overlap(share: Array, stages: Array) -> Array:
    """[n] what a line of batches takes for its long ones, over 1 - (1 - u)^S of its steps. share: u, of batches that are long.

    Long batches less than S apart share some of their passes: between that, which two stages take, and S u / (1 + (S - 1) u), which is
    taken by going from each to the first long one after its next step. Within 2 % of last-passage times of drawn lines of 2 to 8 stages.
    """
    some = -np.expm1(stages * np.log1p(-np.minimum(share, 1.0 - 1e-15)))
    apart = stages * share / (1.0 + (stages - 1.0) * share)
    weight = np.maximum(stages - 2.0, 0.0) / np.maximum(stages - 1.0, 1.0) * (1.0 - share)
    return np.asarray(1.0 - weight * (1.0 - apart / np.maximum(some, 1e-12)))


def longest(share: Array, each: Array, most: Array, stages: Array) -> Array:
    """[n] prompts of the batch that has most of them, of `stages` in the mean. share: of batches that have any, `each` in the mean, at most
    `most`: one and a Poisson number, or each where that is less than one; no fewer than in a batch in the mean, where any has."""
    more = np.maximum(each - 1.0, 0.0)
    least = np.minimum(each, 1.0) if np.all(most >= 1.0) else np.where(most < 1.0, most, np.minimum(each, 1.0))
    some = -np.expm1(stages * np.log1p(-np.minimum(share, 1.0 - 1e-15)))
    found = least * some
    chance, below = np.exp(-more), np.exp(-more)
    for k in range(1, MOST_PROMPTS):
        own = np.clip(most - k, 0.0, 1.0)
        if not own.any():
            break
        found = found + own * (1.0 - (1.0 - share * np.clip(1.0 - below, 0.0, 1.0)) ** stages)
        chance = chance * more / k
        below = below + chance
    return np.asarray(np.maximum(found, each * some))


def _joules(
    model: Served, asked: tuple[Requests, Schedule, Crowd], dense: _Dense, figures: StepFigures, more: Array
) -> tuple[Array, Array]:
    """[n] joules of a request, from its prompt to its last token, and the engine's seconds that they are of. A step of prompts beside
    nobody who decodes is all theirs. A pipeline of few batches, or with long ones, waits. more: as a Rhythm has it."""
    requests, schedule, crowd = asked
    decodes = crowd.decodes
    plain_j, joined_j = figures.joules.reshape(-1, len(decodes))[:2]
    steps = schedule.decoding_steps(requests)
    held = np.maximum(decodes, dense.group.stages)
    others = np.maximum(crowd.clients, 1.0)
    beside = np.where(crowd.clients > 0, 1.0 - (1.0 - np.minimum(crowd.others / others, 1.0)) ** others, 0.0)
    shared = np.where(dense.mixed, beside, 0.0)
    each, each_s = (
        np.maximum(joined - shared * plain, 0.0) / np.maximum(dense.prompts, 1e-12)
        for joined, plain in ((joined_j, plain_j), (dense.joined, dense.plain))
    )
    joules, busy = steps * plain_j / held + more * each, steps * dense.plain / held + more * each_s
    if np.all(dense.group.stages == 1.0):
        return np.asarray(joules), np.asarray(busy)
    waits = steps * dense.plain * (1.0 / decodes - 1.0 / held) + dense.prompt_s - dense.extra_s / np.maximum(dense.prompts, 1e-12)
    waits = np.where(dense.group.stages > 1.0, np.maximum(waits, 0.0), 0.0)
    mesh = schedule.mesh + np.zeros_like(decodes)
    rows = [*model.waiting(waits, mesh), *model.idling(waits, mesh)]
    return np.asarray(joules + sum((row.joules for row in rows), np.zeros_like(waits))), np.asarray(busy + waits)


def prompt_room(schedule: Schedule, decodes: Array) -> Array:
    """[n] prompt tokens that fit into a batch, all ranks together: the budget, less the decodes where they share it."""
    taken = np.where(schedule.mixed > 0, decodes * (1.0 + schedule.drafted) / schedule.stages, 0.0)
    return np.asarray(np.maximum(schedule.token_budget * schedule.ranks - taken, 1.0))


def chunk_room(schedule: Schedule, decodes: Array) -> Array:
    """[n] tokens of one prompt that fit into a batch: a prompt is worked on by one rank."""
    taken = np.where(schedule.mixed > 0, decodes * (1.0 + schedule.drafted) / (schedule.ranks * schedule.stages), 0.0)
    return np.where(schedule.chunked > 0, np.maximum(schedule.token_budget - taken, 1.0), np.inf)


def prompts_of_a_batch(requests: Requests, schedule: Schedule, decodes: Array) -> Array:
    """[n] prompts that a full batch holds: whole ones where they may not be cut, and no less than one."""
    fit = prompt_room(schedule, decodes) / requests.fresh
    return np.where(schedule.chunked > 0, fit, np.maximum(np.floor(fit), 1.0))


def full_batch(requests: Requests, schedule: Schedule, decodes: Array) -> Array:
    """[n] prompt tokens of a full batch: of whole prompts where they may not be cut, though one be longer than the budget."""
    whole = prompts_of_a_batch(requests, schedule, decodes) * requests.fresh
    return np.where(schedule.chunked > 0, prompt_room(schedule, decodes), whole)


def decode_steps(requests: Requests, schedule: Schedule, decodes: Array, tokens: Array, most: Array | float = np.inf) -> Steps:
    """Steps of some decodes and prompt tokens at the mean context; a batch has one sequence, or part of one prompt, at least. most: [n]
    prompts that have parts in a step."""
    wide = 1.0 + schedule.drafted
    whole = tokens / requests.fresh
    parts = schedule.stages * prompt_parts(tokens / schedule.stages, requests.fresh, chunk_room(schedule, decodes), schedule.ranks)
    prompts = np.clip(parts, whole, np.maximum(most, whole))
    part = np.where(prompts > whole, tokens / np.maximum(prompts, 1e-12), np.minimum(requests.fresh, schedule.token_budget))
    cut = np.where(schedule.chunked > 0, (requests.fresh - part) / 2.0, 0.0)
    there = np.where(decodes > 0, np.where(schedule.stages > 1, np.maximum(decodes, schedule.stages), decodes), 0.0)
    return Steps(
        decodes=there * wide,
        new=wide + np.zeros_like(decodes),
        context=np.where(decodes > 0, requests.context, 0.0),
        prefill=tokens,
        prompts=np.where(tokens > 0, np.maximum(prompts, schedule.stages), 0.0),
        before=np.where(tokens > 0, requests.prompt * requests.reused + cut, 0.0),
        mesh=schedule.mesh + np.zeros_like(decodes),
    )
