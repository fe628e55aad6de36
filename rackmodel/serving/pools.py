"""Prompts and decodes on pools of their own, which may be unlike machines: a closed loop through both, rate-matched by the loop itself.

    C clients = B decodes + X R prompts + X K on the way       X requests a second (Little)
    prompts      P workers, each a queue of drain time d: R = own + d k rho / (2 (1 - k rho)) of c clients, k = (c - 1) / c, rho = X d / P
    transfer     K = a prompt's cache / bandwidth + latency: charged to the first token, which the decode pool sends on
    decodes      D workers of B / D sequences each, undisturbed: TPOT = t(B / D, 0)

The pool that is short sets X; the other one waits. X is found where the population adds up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rackmodel.serving.requests import Requests, Schedule
from rackmodel.serving.rhythm import chunk_room, decode_steps, prompt_room, prompts_of_a_step
from rackmodel.serving.steps import Served

Array = NDArray[np.float64]
ROUNDS = 40


@dataclass(frozen=True)
class Pool:
    """Workers that are alike. workers: how many · room: [n] requests that each holds at once."""

    model: Served
    schedule: Schedule
    workers: float
    room: Array


@dataclass(frozen=True)
class Transfer:
    """How a prompt's cache gets to the decode pool. kv_bytes_per_token: of a whole worker · latency_s: of a transfer."""

    kv_bytes_per_token: float
    bandwidth_bytes_per_s: float
    latency_s: float = 0.0

    def seconds(self, requests: Requests) -> Array:
        """[n] seconds of a prompt's cache."""
        return np.asarray(requests.prompt * self.kv_bytes_per_token / self.bandwidth_bytes_per_s + self.latency_s)


@dataclass(frozen=True, kw_only=True)
class PoolsSteady:
    """What the loop settles at, [n] each. busy: share of the prompts' workers' time that is work · transfer_s: of ttft_s."""

    tpot_s: Array
    ttft_s: Array
    transfer_s: Array
    decodes: Array
    requests_per_s: Array
    busy: Array
    joules_per_token: Array


def pools_closed_loop(prompts: Pool, decodes: Pool, transfer: Transfer, requests: Requests, clients: Array) -> PoolsSteady:
    """n closed loops of clients [n] through a pool that prefills and one that decodes. Work: ROUNDS prices of n steps, and one of 2 n."""
    clients = np.asarray(clients, dtype=np.float64)
    own, drain, own_j = _prompt_times(prompts, requests)
    moving = transfer.seconds(requests)
    share = clients / prompts.workers
    most = decodes.room * decodes.workers
    low, high = np.zeros_like(clients), np.minimum(clients, most)
    for _ in range(ROUNDS):  # B is where the population adds up: it grows with B, so halving finds it
        there = (low + high) / 2.0
        step, _ = _decode_step(decodes, requests, there)
        busy = requests.gaps * step / decodes.schedule.tokens_per_step
        per_s = there / busy
        waiting = per_s * (_first(drain, own, per_s / prompts.workers, share) + moving)
        more = (there + waiting < clients) & (per_s * drain / prompts.workers < 1.0)
        low, high = np.where(more, there, low), np.where(more, high, there)
    step, joules = _decode_step(decodes, requests, low)
    busy = requests.gaps * step / decodes.schedule.tokens_per_step
    per_s = np.maximum(low, 1e-9) / busy
    sequences = np.maximum(low / decodes.workers, 1.0)
    return PoolsSteady(
        tpot_s=step / decodes.schedule.tokens_per_step,
        ttft_s=np.maximum(clients / per_s - busy, own + moving),
        transfer_s=moving,
        decodes=low,
        requests_per_s=per_s,
        busy=per_s * drain / prompts.workers,
        joules_per_token=(own_j + joules / sequences * requests.gaps / decodes.schedule.tokens_per_step) / requests.output,
    )


def _prompt_times(pool: Pool, requests: Requests) -> tuple[Array, Array, Array]:
    """[n] seconds of a prompt's own steps, seconds that a prompt takes of a full queue, and joules of a prompt."""
    nothing = np.zeros_like(requests.prompt)
    room = prompt_room(pool.schedule, nothing)
    most = prompts_of_a_step(requests, pool.schedule, room)
    chunks = np.maximum(np.ceil(requests.fresh / chunk_room(pool.schedule, nothing) - 1e-9), 1.0)
    own = pool.model.price(decode_steps(requests, pool.schedule, nothing, requests.fresh / chunks))
    full = pool.model.price(decode_steps(requests, pool.schedule, nothing, room)).seconds
    drain = np.minimum(full / most, chunks * own.seconds)
    return chunks * own.seconds, drain, own.joules * chunks


def _decode_step(pool: Pool, requests: Requests, decodes: Array) -> tuple[Array, Array]:
    each = np.maximum(decodes / pool.workers, 1.0)
    figures = pool.model.price(decode_steps(requests, pool.schedule, each, np.zeros_like(each)))
    return figures.seconds, figures.joules


def _first(drain: Array, own: Array, rate: Array, clients: Array) -> Array:
    """[n] seconds of a prompt in its worker, queue included, at a rate of its arrivals."""
    load = np.minimum(rate * drain, 1.0) * np.maximum((clients - 1.0) / np.maximum(clients, 1.0), 0.0)
    return np.asarray(own + drain * load / (2.0 * np.maximum(1.0 - load, 1e-3)))
