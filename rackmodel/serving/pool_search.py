"""Pools of prompts and of decodes as offers of a search: every pair of workers' deployments and every split of the accelerators.

one machine      P workers of p accelerators and D of d fill it: P p + D d accelerators, P and D at least 1
unlike machines  P p fill the one that takes prompts, D d the one that decodes
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from rackmodel.arrays import Array
from rackmodel.cost.step.ledger import replica_static
from rackmodel.errors import InfeasibleError
from rackmodel.serving.engine import ServingEngine, model_of
from rackmodel.serving.handing import cache_transfer
from rackmodel.serving.offers import Offer, Service, Widths, engine_of, figures_of, powers_of, shown_figures
from rackmodel.serving.pools import BY_HALVES, Pool, PoolsSteady, pools_closed_loop, steps_of_pools
from rackmodel.serving.requests import Requests
from rackmodel.serving.step_prices import StepPrices
from rackmodel.serving.steps import DEGREES, Deployment, Steps


@dataclass(frozen=True)
class PoolWorkers:
    """Workers of a pool that are alike."""

    deployment: Deployment
    count: int

    @property
    def accelerators(self) -> int:
        """Of all of them."""
        return self.count * self.deployment.accelerators


@dataclass(frozen=True)
class PoolsOffer:
    """One operating point of two pools. clients: of all workers · budget: tokens of a step of prompts · decoding: sequences that make
    tokens, of all workers · limited: whether clients wait for a place · figures: by name, as an Offer's."""

    prompts: PoolWorkers
    decodes: PoolWorkers
    widths: Widths
    clients: float
    budget: int
    decoding: float
    limited: bool
    figures: dict[str, float]

    @property
    def accelerators(self) -> int:
        """Of both pools."""
        return self.prompts.accelerators + self.decodes.accelerators

    @property
    def order(self) -> tuple[int, ...]:
        """Of two alike the smaller degrees."""
        pools = ((one.deployment, one.count) for one in (self.prompts, self.decodes))
        sizes = (n for one, count in pools for n in (one.accelerators, one.tensor, one.expert, one.context, one.prompt_context, count))
        return (self.accelerators, *sizes, self.budget)

    def worker(self, pool: PoolWorkers) -> Offer:
        """A pool's workers as replicas."""
        return Offer(pool.deployment, self.widths, pool.count, self.clients / pool.count, self.budget, 0.0, self.limited, self.figures)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        pools = {
            role: {"workers": pool.count, **{name: getattr(pool.deployment, name) for name in DEGREES}}
            for role, pool in (("prompts", self.prompts), ("decodes", self.decodes))
        }
        return pools | {
            "weights": self.widths.weight,
            "kv_cache": self.widths.kv_cache,
            "clients": self.clients,
            "token_budget": self.budget,
            "decoding": self.decoding,
            "limited_by_cache": self.limited,
            **shown_figures(self.figures),
        }


@dataclass(frozen=True)
class PoolSpace:
    """What is tried. of_prompts: deployments of workers of prompts · of_decodes: of decodes · clients: of all workers; None: powers of
    two · budgets: tokens of a step of prompts."""

    of_prompts: tuple[Deployment, ...]
    of_decodes: tuple[Deployment, ...]
    widths: tuple[Widths, ...]
    clients: tuple[float, ...] | None
    budgets: tuple[int, ...]


def pool_offers(prompts: Service, decodes: Service, space: PoolSpace) -> tuple[list[PoolsOffer], list[InfeasibleError]]:
    """Every operating point of two pools, and why how many were none. prompts, decodes: the same service where one machine has both."""
    found: list[PoolsOffer] = []
    problems: list[InfeasibleError] = []
    for widths in space.widths:
        pools = ((prompts, space.of_prompts, prompts.prompt), (decodes, space.of_decodes, decodes.prompt + decodes.output))
        engines = [_engines(service, of, tokens, widths, problems) for service, of, tokens in pools]
        known = [{of: StepPrices(engine) for of, engine in own.items()} for own in engines]
        pairs: list[_Pair] = []
        for first, prompts_engine in engines[0].items():
            for then, decodes_engine in engines[1].items():
                splits = list(_splits(prompts, decodes, first, then))
                if splits:
                    prices = known[0][first], known[1][then]
                    pairs.append(_Pair(prompts, decodes, first, then, prompts_engine, decodes_engine, prices, tuple(splits), space))
        for pair in pairs:
            for one, steps in zip(pair.prices, pair.asked(), strict=True):
                one.want(steps)
        found += [offer for pair in pairs for offer in pair.offers(widths)]
    return found, problems


def _engines(
    service: Service, of: Sequence[Deployment], tokens: float, widths: Widths, problems: list[InfeasibleError]
) -> dict[Deployment, ServingEngine]:
    """The engines of deployments that hold one request. tokens: of it that they keep."""
    found = {}
    for deployment in of:
        try:
            engine = engine_of(service, deployment, widths)
            engine.check_one_fits(tokens)
        except InfeasibleError as problem:
            problems.append(problem)
            continue
        found[deployment] = engine
    return found


def _splits(prompts: Service, decodes: Service, first: Deployment, then: Deployment) -> Iterator[tuple[int, int]]:
    """PoolWorkers of each pool that fill what there is."""
    if prompts is not decodes:
        sizes = [(prompts.machine.used, first.accelerators), (decodes.machine.used, then.accelerators)]
        if all(total % size == 0 for total, size in sizes):
            yield (sizes[0][0] // sizes[0][1], sizes[1][0] // sizes[1][1])
        return
    total = prompts.machine.used
    for count in range(1, total // first.accelerators + 1):
        rest = total - count * first.accelerators
        if rest > 0 and rest % then.accelerators == 0:
            yield (count, rest // then.accelerators)


@dataclass(frozen=True)
class _Pair:
    """Workers of two deployments. prices: of steps of each pool, for all pairs that have its workers · splits: how many of both may be."""

    prompts: Service
    decodes: Service
    first: Deployment
    then: Deployment
    prompts_engine: ServingEngine
    decodes_engine: ServingEngine
    prices: tuple[StepPrices, StepPrices]
    splits: tuple[tuple[int, int], ...]
    space: PoolSpace

    @cached_property
    def room(self) -> float:
        """Requests that a worker of decodes holds at once."""
        return float(self.decodes_engine.room(self._requests(1), self.decodes_engine.scheduled(1, BY_HALVES))[0])

    @cached_property
    def points(self) -> list[tuple[tuple[int, int], float, int]]:
        """Workers of both, clients and tokens of a step of prompts."""
        return [
            (split, clients, budget)
            for split in self.splits
            for clients in (powers_of(self.room * split[1]) if self.space.clients is None else self.space.clients)
            for budget in self.space.budgets
        ]

    def asked(self) -> tuple[Steps, Steps]:
        """Steps of each pool that all points ask for."""
        return steps_of_pools(*self._pools, self._requests(len(self.points)), self._clients)

    def offers(self, widths: Widths) -> list[PoolsOffer]:
        """Every operating point of every split."""
        service, points = self.decodes, self.points
        found = self._settled()
        clients = self._clients
        accelerators = np.array([p * self.first.accelerators + d * self.then.accelerators for (p, d), _, _ in points])
        per_s = found.requests_per_s * service.output
        named = {"tpot": found.tpot_s, "ttft": found.ttft_s, "joules_per_token": found.joules_per_token, "tokens_per_s": per_s}
        of_one = service if self.prompts is self.decodes else replace(service, carbon=None, money=None)  # rates are of one machine
        figures = figures_of(of_one, named, accelerators, 1)
        limited = found.outside > 1e-3 * clients
        return [
            PoolsOffer(
                PoolWorkers(self.first, split[0]),
                PoolWorkers(self.then, split[1]),
                widths,
                clients,
                budget,
                float(found.decodes[at]),
                bool(limited[at]),
                {name: float(values[at]) for name, values in figures.items()},
            )
            for at, (split, clients, budget) in enumerate(points)
        ]

    def _requests(self, count: int) -> Requests:
        one = self.decodes
        return Requests.of(count, prompt=one.prompt, output=one.output, reused=one.reused, variation=one.variation)

    @property
    def _clients(self) -> Array:
        return np.array([clients for _, clients, _ in self.points])

    @cached_property
    def _pools(self) -> tuple[Pool, Pool]:
        n = len(self.points)
        budgets = {"token_budget": np.array([float(budget) for _, _, budget in self.points])}
        workers: list[Array] = [np.array([float(split[at]) for split, _, _ in self.points]) for at in (0, 1)]
        first = self.prompts_engine.scheduled(n, budgets | BY_HALVES)
        then = self.decodes_engine.scheduled(n, self.decodes.drafts | BY_HALVES)
        sides = ((self.prompts, self.first), (self.decodes, self.then))
        idle = [sum(watts for _, watts in replica_static(of.machine, one.accelerators)) for of, one in sides]
        return (
            Pool(self.prompts_engine, first, workers[0], np.full(n, np.inf), idle[0], self.prices[0]),
            Pool(self.decodes_engine, then, workers[1], np.full(n, self.room), idle[1], self.prices[1]),
        )

    def _settled(self) -> PoolsSteady:
        models = [model_of(engine) for engine in (self.prompts_engine, self.decodes_engine)]
        own = 0 if self.prompts is self.decodes else self.prompts.machine.used
        transfer = cache_transfer(models[0], models[1], own)
        return pools_closed_loop(*self._pools, transfer, self._requests(len(self.points)), self._clients)
