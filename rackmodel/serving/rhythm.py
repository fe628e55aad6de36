"""The rhythm of an engine: how often a step carries prompts, how many, and what the steps cost.

    steps with prompts        u = max(1 - exp(-a), a / m)          a prompts join a step, m fit into one: they join the next step
    of all decode steps       u = 1 / (H + 1 / a)                  a prompt waits H steps for company
                              u = (1 - exp(-a N)) / N              the queue is looked at every N decode steps
    seconds a decode step     t = (1 - u) t(B, 0) + u t(B, a P / u)           mixed steps
                              t = t(B, 0) + u t(0, a P / u)                   prompts first, decodes wait

a: prompts that arrive a decode step, while they come. They are Poisson: requests of unlike lengths end independently. Where they come in
clumps, u is that of a clump times the share of time that clumps take. t(B, p) is the engine's price of a step of B decodes and p prompt
tokens, P: prompt tokens to work on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rackmodel.serving.requests import Requests, Schedule
from rackmodel.serving.steps import Served, Steps

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Grouping:
    """How prompts come together in steps, each [n]. share: steps with prompts a decode step · wait_steps: decode steps that a prompt waits
    for company or for a look at the queue · company: others that come with a prompt · most: prompts of a full step · chunks: steps of a
    prompt · room: prompt tokens of a full step."""

    share: Array
    wait_steps: Array
    company: Array
    most: Array
    chunks: Array
    room: Array


@dataclass(frozen=True)
class Crowd:
    """Who is there, each [n]. decodes: sequences that make tokens · others: of these, beside a prompt's own steps · dense: prompts that
    arrive a decode step while a clump of them comes · seen: prompts that delay a sequence, a decode step of its own · clients: others that
    may send one."""

    decodes: Array
    others: Array
    dense: Array
    seen: Array
    clients: Array


@dataclass(frozen=True, kw_only=True)
class Rhythm:
    """n engines at a number of decoding sequences; each field is [n].

    decode_s, step_s: seconds of a step without prompts, and of a decode step with its part of the prompts' · own_s: of a prompt's own
    steps · clump_s: of a step of any kind while a clump of prompts comes · full_s: of a step full of prompts · drain_s: that a prompt
    takes of a full queue · residual_s: from any moment to the end of the step under way · joules: of a request, from its prompt to its
    last token · beside_s: of the steps that were priced with them.
    """

    group: Grouping
    decode_s: Array
    step_s: Array
    own_s: Array
    clump_s: Array
    full_s: Array
    drain_s: Array
    residual_s: Array
    joules: Array
    beside_s: Array


def grouping(requests: Requests, schedule: Schedule, decodes: Array, arrivals: Array, others: Array) -> Grouping:
    """How prompts come together beside decodes [n] sequences, where arrivals [n] of them come a decode step, of `others` [n] that may.

    Of others that come within W steps, evenly, those come with a prompt that fall into the same N steps: a share 1 - w / 3 where
    w = (W - 1) / N is up to 1, else 1 / w - 1 / (3 w^2).
    """
    room = prompt_room(schedule, decodes)
    most = prompts_of_a_step(requests, schedule, room)
    rate = np.maximum(arrivals, 1e-12)
    every = np.maximum(schedule.polled, 1.0)
    held = _held_steps(requests, schedule, room, rate)
    polled_share = -np.expm1(-rate * every) / every
    free = np.where(held > 0, np.minimum(1.0 / (held + 1.0 / rate), polled_share), polled_share)
    share = np.maximum(free, rate / most)
    held_wait = (held + rate * held * held / 2.0) / (1.0 + rate * held)
    return Grouping(
        share=np.where(schedule.mixed > 0, np.minimum(share, 1.0), share),
        wait_steps=held_wait + (every - 1.0) / 2.0,
        company=others * _together(others / rate, np.maximum(held, every)),
        most=most,
        chunks=np.maximum(np.ceil(requests.fresh / chunk_room(schedule, decodes) - 1e-9), 1.0),
        room=room,
    )


def _together(window: Array, every: Array) -> Array:
    """[n] probability that another prompt of the window comes with one."""
    w = np.maximum(window - 1.0, 1e-9) / every
    return np.where(w <= 1.0, 1.0 - w / 3.0, 1.0 / w - 1.0 / (3.0 * w * w))


def _held_steps(requests: Requests, schedule: Schedule, room: Array, rate: Array) -> Array:
    """[n] steps that the first of some prompts waits: till the time is over, or till enough tokens are there. A mean over lengths."""
    enough = schedule.held_until * room
    spread = np.sqrt(3.0) * np.linspace(-0.8, 0.8, 5)[:, None] * _variation(requests)
    others = np.maximum(enough / (requests.fresh * (1.0 + spread)) - 1.0, 0.0)
    return np.asarray(np.minimum(schedule.held, others / rate).mean(axis=0))


def _variation(requests: Requests) -> Array:
    """[n] standard deviation of the lengths over their mean, at most 0.5: evenly spread lengths vary by no more than 0.58."""
    return np.asarray(np.clip(requests.variation, 0.0, 0.5))


def rhythm(model: Served, requests: Requests, schedule: Schedule, crowd: Crowd, also: Steps | None = None) -> Rhythm:
    """The rhythm of n engines. also: n steps that are priced with its own. Work: one price of 4 n steps, or of 5 n."""
    decodes, mixed = crowd.decodes, schedule.mixed > 0
    group = grouping(requests, schedule, decodes, crowd.dense, crowd.clients)
    tokens = np.minimum(crowd.dense * requests.fresh / group.share, group.room)
    beside = np.where(mixed, decodes, 0.0)
    company = np.minimum(group.company, np.maximum(group.most - 1.0, 0.0))
    own = np.minimum((1.0 + company) * requests.fresh / group.chunks, group.room)
    kinds = [
        decode_steps(requests, schedule, decodes, np.zeros_like(decodes)),
        decode_steps(requests, schedule, beside, tokens),
        decode_steps(requests, schedule, np.where(mixed, crowd.others, 0.0), own),
        decode_steps(requests, schedule, beside, group.room),
    ]
    figures = model.price(Steps.joined(kinds if also is None else [*kinds, also]))
    plain, joined, alone, full, *others = figures.seconds.reshape(-1, len(decodes))
    plain_j, joined_j = figures.joules.reshape(-1, len(decodes))[:2]
    extra, extra_j = joined - np.where(mixed, plain, 0.0), joined_j - np.where(mixed, plain_j, 0.0)
    prompts = np.maximum(tokens / requests.fresh, 1e-12)
    step = plain + crowd.seen * extra / prompts
    return Rhythm(
        group=group,
        decode_s=plain,
        step_s=step,
        own_s=group.chunks * alone,
        clump_s=np.where(mixed, plain + group.share * extra, (plain + group.share * joined) / (1.0 + group.share)),
        full_s=full,
        drain_s=np.where(requests.fresh > group.room, full * requests.fresh / group.room, full / group.most),
        residual_s=(plain**2 + crowd.seen / prompts * (joined**2 - np.where(mixed, plain, 0.0) ** 2)) / (2.0 * step),
        joules=requests.gaps / schedule.tokens_per_step * plain_j / decodes + np.maximum(extra_j, 0.0) / prompts,
        beside_s=others[0] if others else np.zeros_like(plain),
    )


def prompt_room(schedule: Schedule, decodes: Array) -> Array:
    """[n] prompt tokens that fit into a step, all ranks together: the budget, less the decodes where they share the step."""
    taken = np.where(schedule.mixed > 0, decodes * (1.0 + schedule.drafted), 0.0)
    return np.asarray(np.maximum(schedule.token_budget * schedule.ranks - taken, 1.0))


def chunk_room(schedule: Schedule, decodes: Array) -> Array:
    """[n] tokens of one prompt that fit into a step: a prompt is worked on by one rank."""
    taken = np.where(schedule.mixed > 0, decodes * (1.0 + schedule.drafted) / schedule.ranks, 0.0)
    return np.where(schedule.chunked > 0, np.maximum(schedule.token_budget - taken, 1.0), np.inf)


def prompts_of_a_step(requests: Requests, schedule: Schedule, room: Array) -> Array:
    """[n] prompts that a full step holds: whole ones where they may not be cut, and no less than one."""
    fit = room / requests.fresh
    return np.where(schedule.chunked > 0, fit, np.maximum(np.floor(fit), 1.0))


def decode_steps(requests: Requests, schedule: Schedule, decodes: Array, tokens: Array) -> Steps:
    """Steps of some decodes and prompt tokens at the mean context.

    Drafted tokens are priced as further decodes that share one sequence's cache: context / (1 + k) each.
    """
    wide = 1.0 + schedule.drafted
    prompts = tokens / requests.fresh
    cut = np.maximum(requests.fresh - schedule.token_budget, 0.0) / 2.0
    return Steps(
        decodes=decodes * wide,
        context=np.where(decodes > 0, requests.context / wide, 0.0),
        prefill=tokens,
        prompts=np.where(tokens > 0, np.maximum(prompts, 1.0), 0.0),
        before=np.where(tokens > 0, requests.prompt * requests.reused + cut, 0.0),
        mesh=schedule.mesh + np.zeros_like(decodes),
    )
