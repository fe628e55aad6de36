"""Rows of models served by pools of prompts and of decodes: each pool's workers as their columns say, and a loop through both.

prefill_num_workers, prefill_tp_size, prefill_attention_dp_size, prefill_moe_ep_size, and the same of decode_
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rackmodel.errors import InfeasibleError, InputError
from rackmodel.serving.drafts import model_of
from rackmodel.serving.engine import ServingEngine, schedule_of
from rackmodel.serving.handing import cache_transfer
from rackmodel.serving.pools import Pool, pools_closed_loop
from rackmodel.serving.requests import Requests
from rackmodel.serving.steps import Deployment
from rackmodel.validation.rows import PublishedRow
from rackmodel.validation.score import ScoredRow
from rackmodel.validation.served_figures import little, measured_of, scored_of
from rackmodel.validation.servers import (
    DRAFTS,
    ServedRun,
    Server,
    engine_of,
    host_watts,
    over_capacity,
    requests_of,
    run_of,
    server_of,
    timed_facts,
)
from rackmodel.validation.words import Refused

Array = NDArray[np.float64]
POOLS = "disagg"
"""What rows call pools of their own, in their column `mode`."""
FULL_POOL = 4096.0
"""Requests at once of a worker whose weights are more than it is said to hold."""
ROLES = {"prompts": "prefill", "decodes": "decode"}
"""Role of a pool → what its columns begin with."""


@dataclass(frozen=True)
class _Workers:
    """Workers of one pool that are alike."""

    server: Server
    count: int

    @property
    def accelerators(self) -> int:
        """Of all of them."""
        return self.count * self.server.deployment.accelerators


@dataclass(frozen=True)
class _PoolsPoint:
    """One row. timed: role → facts of its engine in this run · measured: quantity → figure."""

    run: ServedRun
    pools: tuple[_Workers, _Workers]
    timed: dict[str, dict[str, float]]
    measured: dict[str, float]


def pool_rows(rows: Sequence[PublishedRow]) -> list[ScoredRow]:
    """Each quantity of each row scored, or the row refused with why."""
    found: list[ScoredRow] = []
    alike: dict[tuple[_Workers, _Workers], list[_PoolsPoint]] = {}
    for row in rows:
        try:
            point = _point(row)
        except (Refused, InputError) as problem:
            found.append(ScoredRow(row.id, row.dataset, refused=str(problem)))
            continue
        alike.setdefault(point.pools, []).append(point)
    for pools, points in alike.items():
        try:
            figures, over = _priced(pools, points)
        except (InputError, InfeasibleError) as problem:
            found += [ScoredRow(one.run.row.id, one.run.row.dataset, refused=str(problem)) for one in points]
            continue
        for place, one in enumerate(points):
            found += scored_of(one.run.row, one.measured, figures, place, assumptions=one.run.notes, over_capacity=over)
    return found


def _point(row: PublishedRow) -> _PoolsPoint:
    """The operating point of a row. Raises Refused, InputError."""
    counts = {role: int(row.number(f"{word}_num_workers") or 0) for role, word in ROLES.items()}
    if not all(counts.values()):
        raise Refused("the row does not say how many workers its pools of prompts and of decodes have")
    layouts = {role: _deployment(row, word) for role, word in ROLES.items()}
    clients = row.number("concurrency")
    if not clients:  # a worker's, then
        each = row.number("decode_batch_size")
        clients = each * counts["decodes"] * layouts["decodes"].attention_data if each else None
    total = sum(counts[role] * layouts[role].accelerators for role in ROLES)
    stated = row.number("n_gpus")
    if stated and stated != total:
        raise Refused(f"workers of {total} accelerators, where the row has {stated:g}")
    run = run_of(row, clients)
    made = {role: server_of(run, layouts[role], total, role) for role in ROLES}
    for name in DRAFTS:
        made["prompts"][1].pop(name, None)  # prompts are not drafted
    pools = tuple(_Workers(made[role][0], counts[role]) for role in ROLES)
    measured = measured_of(row, run.prompt, run.output, run.clients, total)
    return _PoolsPoint(run, (pools[0], pools[1]), {role: made[role][1] for role in ROLES}, measured)


def _deployment(row: PublishedRow, word: str) -> Deployment:
    """Degrees of a worker."""

    def degree(name: str) -> int:
        return int(row.number(f"{word}_{name}") or 1)

    tensor, ranks, expert = degree("tp_size"), degree("attention_dp_size"), degree("moe_ep_size")
    if tensor * ranks % expert:
        raise Refused(f"experts in {expert} parts over {tensor * ranks} accelerators of a worker")
    return Deployment(
        tensor=tensor, pipeline=degree("pp_size"), attention_data=ranks, expert=expert, expert_tensor=tensor * ranks // expert
    )


def _priced(pools: tuple[_Workers, _Workers], points: Sequence[_PoolsPoint]) -> tuple[dict[str, Array], bool]:
    """Figures of the points of one pair of pools: quantity → [n]; and whether the weights are more than a worker holds."""
    requests = requests_of([one.run for one in points])
    engines = [engine_of(pool.server) for pool in pools]
    made = [
        _pool(engine, pool, requests, [one.timed[role] for one in points]) for engine, pool, role in zip(engines, pools, ROLES, strict=True)
    ]
    models = [model_of(engine) for engine in engines]
    clients = np.array([one.run.clients for one in points])
    found = pools_closed_loop(made[0], made[1], cache_transfer(models[0], models[1]), requests, clients)
    ttft = found.ttft_s + (found.burst_s - found.ttft_s) / requests.waves
    output = np.array([one.run.output for one in points])
    idle = sum(host_watts(engine) * pool.count for engine, pool in zip(engines, pools, strict=True))
    figures = {
        "tpot": found.tpot_s,
        "ttft": ttft,
        "tokens_per_s": little(found.tpot_s, ttft, output, clients) / sum(pool.accelerators for pool in pools),
        "joules": found.joules_per_token - idle / (found.requests_per_s * requests.output),
    }
    return figures, any(over_capacity(engine) for engine in engines)


def _pool(engine: ServingEngine, workers: _Workers, requests: Requests, timed: Sequence[dict[str, float]]) -> Pool:
    """The pool of an engine's workers. timed: of n runs."""
    schedule = schedule_of(engine.facts, len(timed), workers.server.deployment.attention_data, timed_facts(engine, timed))
    room = np.full(len(timed), FULL_POOL) if over_capacity(engine) else engine.room(requests, schedule)
    return Pool(engine, schedule, workers.count, room)
