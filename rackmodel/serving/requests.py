"""What is asked of a serving engine, and how it forms its steps: the inputs of every law of serving, in arrays over n operating points."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from rackmodel.arrays import Array, Bools
from rackmodel.serving.estimates import CLIP, LEAST
from rackmodel.serving.kept_drafts import by_chance, steps_of_answers

LENGTHS = 16
"""Of answers that vary, whose steps are counted."""
MOMENTS = 97
"""Of a request's life; a prime, for at round ones all its lengths might be whole pages."""


class _Points:
    """Fields that are arrays over the same n operating points."""

    @classmethod
    def of(cls, count: int = 1, **said: Any) -> Self:
        """count: n · said: numbers, or [n]; what is not said is the field's default."""
        values = {one.name: said.get(one.name, one.default) for one in fields(cls)}  # type: ignore[arg-type]
        return cls(**{name: np.broadcast_to(np.asarray(value, dtype=np.float64), (count,)) for name, value in values.items()})

    def values(self) -> tuple[float, ...]:
        """Every field of a single point."""
        return tuple(float(getattr(self, one.name)[0]) for one in fields(self))  # type: ignore[arg-type]

    def at(self, chosen: Any) -> Self:
        """Some of the points."""
        return type(self)(**{one.name: getattr(self, one.name)[chosen] for one in fields(self)})  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Requests(_Points):
    """Lengths of requests, as means. prompt, output: tokens · reused: share of a prompt whose cache is there already (prefix caching) ·
    variation: standard deviation of the lengths over their mean · waves: requests that each client of a closed loop sends, one after the
    other; all send their first ones at once · outs, again: how often a request is put out, and its
    tokens that are computed once more."""

    prompt: Array
    output: Array
    reused: Any = 0.0
    variation: Any = 0.0
    waves: Any = 1e9
    outs: Any = 0.0
    again: Any = 0.0

    @property
    def fresh(self) -> Array:
        """Prompt tokens that a prefill has to work on; at least one."""
        return np.asarray(np.maximum(self.prompt * (1.0 - self.reused), 1.0))

    @property
    def gaps(self) -> Array:
        """Tokens of a request after its first."""
        return np.maximum(self.output - 1.0, 1e-9)

    @property
    def context(self) -> Array:
        """Mean tokens in the cache of a request that decodes."""
        return np.asarray(self.prompt + self.output / 2.0)


@dataclass(frozen=True, kw_only=True)
class Schedule(_Points):
    """How an engine forms steps.

    token_budget: most tokens of a step and attention-data-parallel rank · sequences: most requests at once, all ranks ·
    mixed: 1 where prompts share steps with decodes, 0 where their steps hold decodes up · chunked: 1 where a prompt may be cut at the
    budget · ranks: attention-data-parallel ranks · ahead: steps that are scheduled before a new request can join ·
    held: steps for which a new prompt waits for company · held_until: share of the budget that ends that wait ·
    polled: decode steps from one look at the queue to the next · asks_first, first_again: of pools, 1 where a worker of decodes sets room
    aside before the prompt begins, and where it computes the first token once more · reserves: 1 where a request's whole output is
    reserved in the cache · evicts: 1 where requests are admitted whose prompts fit, and the newest put out when the cache is full ·
    estimates: 1 where they are by an estimate of what others will add (estimates.py) ·
    request_s: seconds of the server and its client from a request's arrival to the queue and from the token back, together ·
    tokenize_s: of the server, for each token of a prompt, before it may join the queue ·
    drafted: tokens that are drafted a step and sequence · accepted: probability that a drafted token is kept ·
    mesh: which of a model's deployments it is of · stages: of its pipeline; as many batches are under way, each with a budget of its own.
    """

    token_budget: Any = 8192.0
    sequences: Any = 1e9
    mixed: Any = 1.0
    chunked: Any = 1.0
    ranks: Any = 1.0
    ahead: Any = 0.0
    held: Any = 0.0
    held_until: Any = 1.0
    polled: Any = 1.0
    asks_first: Any = 0.0
    first_again: Any = 0.0
    reserves: Any = 0.0
    evicts: Any = 0.0
    estimates: Any = 0.0
    request_s: Any = 0.0
    tokenize_s: Any = 0.0
    drafted: Any = 0.0
    accepted: Any = 0.0
    mesh: Any = 0.0
    stages: Any = 1.0

    @property
    def before_join(self) -> Array:
        """[n] batches that are scheduled already when a request comes: of a pipeline none but those under way, which are as many as its
        stages (batches.py)."""
        return np.where(np.asarray(self.stages) > 1, 0.0, self.ahead)

    def before_s(self, requests: Requests) -> Array:
        """[n] seconds of a request outside the engine's steps: server, tokenizer, client."""
        return np.asarray(self.request_s + self.tokenize_s * requests.prompt)

    @property
    def tokens_per_step(self) -> Array:
        """Tokens that a sequence gets a step: 1 + p + ... + p^k of k drafts, each kept with probability p where all before it were.

        Source: Leviathan 2023 (arXiv 2211.17192), eq. 1.
        """
        kept = np.minimum(self.accepted, 1.0 - 1e-12)
        return np.asarray((1.0 - kept ** (self.drafted + 1.0)) / (1.0 - kept))

    def decoding_steps(self, requests: Requests) -> Array:
        """[n] steps from a request's first token to its last, in the mean over the whole lengths of answers (kept_drafts.py). Without
        drafts there are as many as tokens."""
        return requests.gaps if np.all(self.tokens_per_step == 1.0) else self._steps_of(requests)[0]

    def steps_deviation(self, requests: Requests) -> Array:
        """[n] standard deviation of the steps of answers of one length: whose drafts are kept by chance."""
        unlike = by_chance(np.asarray(self.drafted), np.asarray(self.accepted))
        return np.sqrt(np.where(unlike, self._steps_of(requests)[1], 0.0)) if unlike.any() else np.zeros_like(requests.output)

    def _steps_of(self, requests: Requests) -> tuple[Array, Array]:
        """[n] mean of the steps of answers, and variance of those of one length."""
        wide = np.sqrt(3.0) * np.minimum(requests.variation, 0.5) * requests.output
        lengths = np.maximum(requests.output + np.linspace(-1.0, 1.0, 2 * LENGTHS + 1)[1::2, None] * wide, 1.0)
        whole = np.floor(lengths) - 1.0
        part = lengths - 1.0 - whole
        both = steps_of_answers(self.drafted, self.accepted, np.stack([whole, whole + 1.0]))
        mean, variance = (((1.0 - part) * one[0] + part * one[1]).mean(axis=0) for one in both)
        return np.maximum(mean, 1e-9), variance


def prompt_parts(tokens: Array, fresh: Array | float, most: Array | float, ranks: Array | float) -> Array:
    """[n] parts of prompts that so many prompt tokens of a step are, where ranks of attention data have a budget each.

    Prompts are dealt whole, ceil(n / ranks) to the fullest rank; where these are more tokens than it may have, its step is full, of as many
    parts, and so are those of others. fresh: [n] tokens of a prompt · most: [n] prompt tokens of a rank's step.
    """
    whole = tokens / fresh
    deepest = np.maximum(np.ceil(whole / ranks - 1e-9), 1.0)
    return np.asarray(np.where((np.asarray(ranks) > 1) & (deepest * fresh > most), deepest * tokens / most, whole))


def lengths_held(requests: Requests, schedule: Schedule) -> Array:
    """[MOMENTS, n] tokens that a request keeps at moments of its life, evenly apart: of these caches hold whole pages."""
    done = np.linspace(0.0, 1.0, 2 * MOMENTS + 1)[1::2, None]
    made = requests.output * np.where(schedule.reserves > 0, 1.0, done)
    owed = np.where(estimating(schedule), LEAST * np.minimum(requests.output * (1.0 - done), CLIP), 0.0)
    return np.asarray(requests.prompt + made + owed)


def asked_whole(requests: Requests, schedule: Schedule) -> Array:
    """[n] tokens that must be free for one more request where others are estimated: all of it, CLIP of its output at most."""
    return np.where(estimating(schedule), requests.prompt + np.minimum(requests.output, CLIP), 0.0)


def estimating(schedule: Schedule) -> Bools:
    """[n] whether requests are admitted by an estimate of what others will add: not of a pipeline (admission.py)."""
    return np.asarray((schedule.estimates > 0) & (schedule.stages <= 1))


def most_sequences(kv_bytes: Array, held_bytes: Array, schedule: Schedule) -> Array:
    """[n] requests that the cache holds at once, at least one, and no more than the engine takes: nobody joins batches whose tokens those
    that decode take all, drafted ones among them. Whole ones, but where an estimate lets one more in now and then.

    kv_bytes: [n] of one accelerator for the cache · held_bytes: [n] of a request on it, a mean over all.
    """
    fit = kv_bytes / np.maximum(held_bytes, 1e-300)
    fit = np.where(estimating(schedule), fit, np.floor(fit * (1.0 + 1e-12)))
    return np.asarray(np.maximum(np.minimum(fit, engine_sequences(schedule)), 1.0))


def engine_sequences(schedule: Schedule) -> Array:
    """[n] requests that an engine takes at once, whatever its cache holds."""
    tokens = schedule.token_budget * schedule.ranks * schedule.stages
    decoding = np.where(np.asarray(schedule.mixed) > 0, np.floor(tokens / (1.0 + schedule.drafted)), np.inf)
    return np.asarray(np.minimum(schedule.sequences, decoding))
