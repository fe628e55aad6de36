"""Caches that are full, of engines that admit whoever's prompt fits and put the newest out when others' tokens need its room.

    again        O tokens of a request: a full cache stays full, so that all that grows, O a request, grows where somebody was put out, who
                 computes it once more when it fits; of these the share (F + O / 8) / (P + O / 8) where F of P tokens are no prefix that is
                 found, for all of a prompt gives way and F of it are computed
    full         Phi((C - n) (P + O / 2) / d)     how often it is, of n that hold it in the mean and C that would: their tokens vary by
                 d = sqrt(n / 12) O, for their moments are unlike; of requests that come at random a Poisson number N is there, in the place
                 of C, and d is sqrt(N ((P + O / 2)^2 + O^2 / 12))
    paused       requests that have their first token and are out: what d has room for of such that are put out young, P + O / 8 tokens

Source: vllm-project/vllm, v1/core/sched/scheduler.py: a request is scheduled where blocks for its tokens are free; where none is for one
that runs, the last of those that run is put before all that wait, with nothing computed; nobody is admitted in that step. Recomputation is
what it does (docs.vllm.ai, configuration/optimization, Preemption). Of what one had, the prefix that was found when it came is found again,
and nothing else.
Against requests run one by one (admission.py): tests/test_serving_eviction.py.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rackmodel.arrays import Array, Bools
from rackmodel.serving.mixing import below
from rackmodel.serving.requests import Requests, Schedule, engine_sequences

YOUNG = 1.0 / 8.0
"""Of its output, that a request has when it is put out; of 200 to 8,000 tokens in and out 0.06 to 0.11 in runs."""
PAUSED, ALWAYS = 2.6, 0.8
"""Standard deviations of requests that fit, which are out in the mean, and those that none is out of; of the same runs."""


def put_out(requests: Requests, schedule: Schedule, clients: Array, room: Array) -> tuple[Requests, Array]:
    """Requests with what they compute again, and how many [n] are out after their first token. clients: [n] whose requests would be in a
    cache of any size · room: [n] that the cache holds in the mean of a life."""
    evicts = evicting(schedule, room)
    spread = np.sqrt(room / 12.0) * requests.output
    full = np.where(evicts, below((clients - room) * requests.context / spread), 0.0)
    paused = full * np.clip(PAUSED * (spread / _young(requests) - ALWAYS), 0.0, np.maximum(clients - room, 0.0))
    return _again(requests, full), paused


def put_out_at_random(requests: Requests, schedule: Schedule, there: Array, room: Array) -> Requests:
    """The same of requests that come at random. there: [n] that are in the engine in the mean."""
    spread = np.sqrt(there * (requests.context**2 + requests.output**2 / 12.0))
    full = np.where(evicting(schedule, room), below((there - room) * requests.context / np.maximum(spread, 1e-9)), 0.0)
    return _again(requests, full)


def evicting(schedule: Schedule, room: Array) -> Bools:
    """[n] whether engines put requests out whose caches hold so many: none of a pipeline, none that take no more anyway."""
    return np.asarray((schedule.evicts > 0) & (schedule.stages <= 1) & (room < engine_sequences(schedule)))


def _young(requests: Requests) -> Array:
    """[n] tokens in the cache of one that is put out."""
    return np.asarray(requests.prompt + YOUNG * requests.output)


def _again(requests: Requests, full: Array) -> Requests:
    """Requests with what they compute again where caches are full [n] so often: of who is put out all but the prefix that is found."""
    outs = full * requests.output / _young(requests)
    return replace(requests, outs=outs, again=outs * (requests.fresh + YOUNG * requests.output))
