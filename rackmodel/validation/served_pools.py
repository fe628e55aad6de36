"""Rows of models served by pools of prompts and of decodes: each pool's workers as their columns say, and a loop through both.

prefill_num_workers, prefill_tp_size, prefill_attention_dp_size, prefill_moe_ep_size, and the same of decode_

Where a row does not say its workers, every published plan that fits it is priced (pooled_words.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rackmodel.arrays import Array
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.serving.engine import ServingEngine, model_of
from rackmodel.serving.handing import cache_transfer
from rackmodel.serving.pools import BY_HALVES, Pool, Transfer, pools_closed_loop, steps_of_pools
from rackmodel.serving.requests import Requests
from rackmodel.serving.step_prices import StepPrices
from rackmodel.serving.steps import Deployment
from rackmodel.serving.together import priced_together
from rackmodel.validation.pooled_words import PlannedPools, PlanWords, planned_pools
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
    room_of,
    run_of,
    server_of,
    timed_facts,
)
from rackmodel.validation.unknowns import Interval
from rackmodel.validation.words import Refused, words

APART = frozenset({"pd", "prefilldecode", "pddisagg", "pdseparated", "xpyd", "splitprefill", "pools"})
"""What a row's mode may say of prompts and decodes apart, beside disagg..., in letters alone."""
COUNTED = re.compile(r"(\d+)\s*p\s*[:x+/_-]?\s*(\d+)\s*d", re.IGNORECASE)
"""Workers of prompts and of decodes: 2P1D."""
FULL_POOL = 4096.0
"""Requests at once of a worker whose weights are more than it is said to hold."""
SERVER = 8
"""Accelerators of a server, at most: a row with more that names no pools may be one of pools."""
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
    """A deployment that a row may have run on. timed: role → facts of its engine in this run · plan: of those that fit the row ·
    middle: whether drafts are kept as is most probable."""

    run: ServedRun
    pools: tuple[_Workers, _Workers]
    timed: dict[str, dict[str, float]]
    plan: PlanWords | None = None
    middle: bool = True

    @property
    def accelerators(self) -> int:
        """Of all workers."""
        return sum(pool.accelerators for pool in self.pools)


def pool_rows(rows: Sequence[PublishedRow]) -> list[ScoredRow]:
    """Each quantity of each row scored, or the row refused with why; data sets of their own, which end in `_pools`."""
    found: list[ScoredRow] = []
    points: dict[int, list[_PoolsPoint]] = {}
    for place, row in enumerate(replace(one, dataset=f"{one.dataset}_pools") for one in rows):
        try:
            fitting = _points(row)
            _measured(fitting)
        except (Refused, InputError) as problem:
            found.append(ScoredRow(row.id, row.dataset, refused=str(problem)))
        else:
            points[place] = fitting
    priced = _figures([one for each in points.values() for one in each])
    for each in points.values():
        figures = [priced[id(one)] for one in each]
        refused = next((one for one in figures if isinstance(one, str)), None)
        if refused is not None:
            row = each[0].run.row
            found.append(ScoredRow(row.id, row.dataset, refused=refused))
        else:
            found += _scored(each, [one for one in figures if not isinstance(one, str)])
    return found


def ran_in_pools(row: PublishedRow) -> bool:
    """Whether a row that names no pools has more accelerators than a server, and those of pools that its model ran on."""
    many = (row.whole("n_gpus") or 0.0) > SERVER
    mode = "".join(one for one in row.text("mode").lower() if one.isalpha())
    apart = mode.startswith("disagg") or mode in APART or COUNTED.fullmatch(row.text("mode")) is not None
    return apart or all(_counts(row).values()) or (many and bool(planned_pools(words().pooled, row)))


def _points(row: PublishedRow) -> list[_PoolsPoint]:
    """The deployments that a row may have run on. Raises Refused, InputError."""
    if all(_counts(row).values()):
        return [_point(row)]
    plans = planned_pools(words().pooled, row)
    if not plans:
        raise Refused("the row does not say how many workers its pools have, and no published plan has its clients and degrees")
    run = run_of(row, row.number("concurrency"))
    return [point for plan in plans for point in _planned(run, plan)]


def _counts(row: PublishedRow) -> dict[str, int]:
    """Workers of each role, in columns of their own or in the mode; 0: not said."""
    found = COUNTED.fullmatch(row.text("mode"))
    told = dict(zip(ROLES, found.groups(), strict=True)) if found else {}
    return {role: int(row.whole(f"{word}_num_workers", least=0) or told.get(role, 0)) for role, word in ROLES.items()}


def _point(row: PublishedRow) -> _PoolsPoint:
    """The deployment that a row states. Raises Refused, InputError."""
    counts = _counts(row)
    layouts = {role: _deployment(row, word) for role, word in ROLES.items()}
    clients = row.number("concurrency")
    if not clients:  # a worker's, then
        each = row.number("decode_batch_size")
        clients = each * counts["decodes"] * layouts["decodes"].attention_data if each else None
    total = sum(counts[role] * layouts[role].accelerators for role in ROLES)
    stated = row.whole("n_gpus")
    if stated and stated != total:
        raise Refused(f"workers of {total} accelerators, where the row has {stated:g}")
    run = run_of(row, clients)
    made = {role: server_of(run, layouts[role], total, role) for role in ROLES}
    for name in DRAFTS:
        made["prompts"][1].pop(name, None)  # prompts are not drafted
    made["prompts"] = replace(made["prompts"][0], drafted=0), made["prompts"][1]
    pools = tuple(_Workers(made[role][0], counts[role]) for role in ROLES)
    return _PoolsPoint(run, (pools[0], pools[1]), {role: made[role][1] for role in ROLES})


def _planned(run: ServedRun, planned: PlannedPools) -> list[_PoolsPoint]:
    """A plan, with each acceptance that its drafts may have. Raises Refused."""
    plan = planned.plan
    workers = dict(zip(ROLES, plan.pools, strict=True))
    runs = {"prompts": run, "decodes": replace(run, model=run.model.with_experts(plan.experts))}
    made = {role: server_of(runs[role], workers[role].deployment, plan.accelerators, role) for role in ROLES}
    pools = tuple(_Workers(made[role][0], workers[role].count) for role in ROLES)
    timed = {role: made[role][1] for role in ROLES}
    if planned.prompt_tokens:
        timed["prompts"] = timed["prompts"] | {"token_budget": planned.prompt_tokens}
    if plan.batch:
        timed["decodes"] = timed["decodes"] | {"sequences": float(plan.batch * workers["decodes"].deployment.attention_data)}
    if not plan.drafts:
        return [_PoolsPoint(run, (pools[0], pools[1]), timed, plan)]
    kept = words().draft_acceptance[plan.drafts]
    pools = (pools[0], replace(pools[1], server=replace(pools[1].server, drafted=plan.drafts)))
    found = []
    for accepted in (kept.low, kept.mid, kept.high):
        drafts = {"drafted": float(plan.drafts), "accepted": accepted}
        own = timed | {"decodes": timed["decodes"] | drafts}
        found.append(_PoolsPoint(run, (pools[0], pools[1]), own, plan, middle=accepted == kept.mid))
    return found


def _deployment(row: PublishedRow, word: str) -> Deployment:
    """Degrees of a worker."""

    def degree(name: str) -> int:
        return int(row.whole(f"{word}_{name}", least=0 if name.startswith("moe") else 1) or 1)

    tensor, ranks, expert = degree("tp_size"), degree("attention_dp_size"), degree("moe_ep_size")
    if tensor * ranks % expert:
        raise Refused(f"experts in {expert} parts over {tensor * ranks} accelerators of a worker")
    return Deployment(
        tensor=tensor, pipeline=degree("pp_size"), attention_data=ranks, expert=expert, expert_tensor=tensor * ranks // expert
    )


def _figures(points: Sequence[_PoolsPoint]) -> dict[int, dict[str, float] | str]:
    """Figures of every point, by its identity; of those of one pair of pools together. A text is why there are none."""
    alike: dict[tuple[_Workers, _Workers], list[_PoolsPoint]] = {}
    for one in points:
        alike.setdefault(one.pools, []).append(one)
    found: dict[int, dict[str, float] | str] = {}
    loops, prices = list[_Loop](), dict[Server, StepPrices]()
    for pools, group in alike.items():
        try:
            loops.append(_loop(pools, group, prices))
        except (InputError, InfeasibleError) as problem:
            found |= {id(one): str(problem) for one in group}
    _price_ahead(list(prices.values()))
    for loop in loops:
        try:
            figures = loop.figures()
        except (InputError, InfeasibleError) as problem:
            found |= {id(one): str(problem) for one in loop.points}
            continue
        found |= {id(one): {name: float(values[place]) for name, values in figures.items()} for place, one in enumerate(loop.points)}
    return found


def _price_ahead(prices: Sequence[StepPrices]) -> None:
    """Price what is wanted of engines whose models can be priced beside each other."""
    wanted = [(own, own.model, steps) for own in prices if isinstance(own.model, ServingEngine) for steps in own.parts()]
    for number, figures in priced_together([(engine, steps) for _, engine, steps in wanted]):
        own, _, steps = wanted[number]
        own.know(steps, figures)


def _scored(points: Sequence[_PoolsPoint], figures: Sequence[dict[str, float]]) -> list[ScoredRow]:
    """The quantities of a row: the geometric mean over the plans that fit it, in an interval over all that is open."""
    run, measured = points[0].run, _measured(points)
    middles = [at for at, one in zip(figures, points, strict=True) if one.middle]
    middle = {name: np.array([np.exp(np.mean(np.log([at[name] for at in middles])))]) for name in measured}
    plans = tuple(dict.fromkeys(f"{one.plan.prompts}, {one.plan.decodes}, {one.plan.drafts} drafts" for one in points if one.plan))
    notes = (*run.notes, *(f"pools: {plan}" for plan in plans))
    over = any(bool(over_capacity(engine_of(pool.server))[0]) for one in points for pool in one.pools)
    scored = scored_of(run.row, measured, middle, 0, assumptions=notes, over_capacity=over)
    if len(points) == 1:
        return scored
    return [replace(one, interval=_interval(one, name, points, figures)) for name, one in zip(measured, scored, strict=True)]


def _measured(points: Sequence[_PoolsPoint]) -> dict[str, float]:
    """Quantity → figure of a row that ran on one of them. Raises Refused where it has none."""
    run, totals = points[0].run, {one.accelerators for one in points}
    measured = measured_of(run.row, run.output, run.clients, min(totals))
    if len(totals) > 1:
        measured.pop("tokens_per_s", None)  # of an accelerator: how many there were is what the row leaves open
    return measured


def _interval(scored: ScoredRow, name: str, points: Sequence[_PoolsPoint], figures: Sequence[dict[str, float]]) -> Interval:
    """Over every plan and acceptance that is open."""
    every = [at[name] for at in figures]
    plans = [at[name] for at, one in zip(figures, points, strict=True) if one.middle]
    widths = {"deployment": max(plans) - min(plans), "acceptance of drafts": max(every) - min(every) - (max(plans) - min(plans))}
    whole = sum(width**2 for width in widths.values())
    owed = {fact: width**2 / whole for fact, width in sorted(widths.items(), key=lambda pair: -pair[1]) if width > 0}
    return Interval(min(*every, scored.predicted), max(*every, scored.predicted), owed)


@dataclass(frozen=True)
class _Loop:
    """Points of one pair of pools."""

    points: Sequence[_PoolsPoint]
    requests: Requests
    pools: tuple[Pool, Pool]
    transfer: Transfer

    def figures(self) -> dict[str, Array]:
        """Quantity → [n]. Raises InputError, InfeasibleError."""
        requests, clients, points = self.requests, _clients(self.points), self.points
        found = pools_closed_loop(*self.pools, self.transfer, requests, clients)
        ttft = found.ttft_s + (found.burst_s - found.ttft_s) / requests.waves
        output = np.array([one.run.output for one in points])
        workers = points[0].pools
        idle = sum(host_watts(pool.server) * pool.count for pool in workers)
        return {
            "tpot": found.tpot_s,
            "ttft": ttft,
            "tokens_per_s": little(found.tpot_s, ttft, output, clients) / sum(pool.accelerators for pool in workers),
            "joules": found.joules_per_token - idle / (found.requests_per_s * requests.output),
        }


def _clients(points: Sequence[_PoolsPoint]) -> Array:
    return np.array([one.run.clients for one in points])


def _loop(workers: tuple[_Workers, _Workers], points: Sequence[_PoolsPoint], prices: dict[Server, StepPrices]) -> _Loop:
    """The loop of the points of one pair of pools, its steps wanted. prices: of every server's engine.

    Raises InputError, InfeasibleError.
    """
    requests = requests_of([one.run for one in points])
    made = [_pool(own, requests, [one.timed[role] for one in points], prices) for own, role in zip(workers, ROLES, strict=True)]
    models = [model_of(engine_of(own.server)) for own in workers]
    for pool, steps in zip(made, steps_of_pools(made[0], made[1], requests, _clients(points)), strict=True):
        pool.prices.want(steps)
    return _Loop(points, requests, (made[0], made[1]), cache_transfer(models[0], models[1]))


def _pool(workers: _Workers, requests: Requests, timed: Sequence[dict[str, float]], prices: dict[Server, StepPrices]) -> Pool:
    """The pool of an engine's workers. timed: of n runs."""
    engine = engine_of(workers.server)
    schedule = engine.scheduled(len(timed), timed_facts(engine, timed) | BY_HALVES)
    known = prices.setdefault(workers.server, StepPrices(engine))
    return Pool(engine, schedule, workers.count, room_of(engine, requests, schedule, FULL_POOL), known=known)
