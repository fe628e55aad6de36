"""What a deployment offers: the figures of its operating points, in time, energy and carbon.

Each of R replicas on G accelerators serves its share of the clients. Grams of an output token are those of its joules and of the seconds
for which the replica's part of the machine is taken (carbon/job: use, idle and embodied shares).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rackmodel.carbon.job import CarbonRates, JobCarbon
from rackmodel.errors import InfeasibleError
from rackmodel.inputs import read_workload
from rackmodel.model.architecture import Architecture
from rackmodel.model.profile import ProfileSpec
from rackmodel.serving.engine import ServingEngine, schedule_of, serving_engine
from rackmodel.serving.requests import Requests, Schedule
from rackmodel.serving.served_model import ServedModel
from rackmodel.serving.steady import Steady, closed_loop
from rackmodel.serving.steps import Deployment

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Widths:
    """weight: format of the weights, '' as the workload says · kv_cache: of the caches, likewise."""

    weight: str = ""
    kv_cache: str = ""

    @property
    def sets(self) -> tuple[str, ...]:
        """What is changed of the workload."""
        weight = (f"workload.precision.weight={self.weight}", f"workload.precision.product={self.weight}") if self.weight else ()
        return (*weight, *((f"workload.precision.kv_cache={self.kv_cache}",) if self.kv_cache else ()))


@dataclass(frozen=True)
class Service:
    """What is to be served. machine: of which all accelerators are used · workload, sets: as the library names it, with changes ·
    prompt, output: mean tokens · reused: share of a prompt that is in the cache · variation: of lengths · carbon: rates of the whole
    machine, absent without a site · settings: facts of the engine that are said otherwise."""

    machine: Architecture
    workload: str
    sets: tuple[str, ...]
    profile: ProfileSpec
    prompt: float
    output: float
    reused: float = 0.0
    variation: float = 0.0
    carbon: CarbonRates | None = None
    settings: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Offer:
    """One operating point. clients: of one replica · budget: tokens of a step · decodes: sequences that make tokens, of one replica ·
    figures: by name, those of FIGURES."""

    deployment: Deployment
    widths: Widths
    replicas: int
    clients: float
    budget: int
    decodes: float
    limited: bool
    figures: dict[str, float]

    @property
    def accelerators(self) -> int:
        """Of all replicas."""
        return self.replicas * self.deployment.accelerators

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        degrees = {name: getattr(self.deployment, name) for name in ("tensor", "pipeline", "attention_data", "expert", "expert_tensor")}
        return degrees | {
            "replicas": self.replicas,
            "weights": self.widths.weight,
            "kv_cache": self.widths.kv_cache,
            "clients_per_replica": self.clients,
            "token_budget": self.budget,
            "decodes_per_replica": self.decodes,
            "limited_by_cache": self.limited,
            **self.figures,
        }


FIGURES = {
    "tokens_per_s_per_accelerator": "token/s",
    "tokens_per_s": "token/s",
    "interactivity": "token/s",
    "tpot": "s",
    "ttft": "s",
    "joules_per_token": "J",
    "joules_per_request": "J",
    "grams_per_token": "gCO2e",
    "grams_per_request": "gCO2e",
}
"""Figure of an offer → its unit. Tokens are output tokens; interactivity is what one client sees, 1 / TPOT."""


def token_carbon(service: Service, offer: Offer) -> JobCarbon | None:
    """What one output token of an operating point emits, by shares; None without a site."""
    if service.carbon is None:
        return None
    seconds = offer.deployment.accelerators * offer.replicas / service.machine.used / offer.figures["tokens_per_s"]
    return service.carbon.of(offer.figures["joules_per_token"], seconds)


def engine_of(service: Service, deployment: Deployment, widths: Widths) -> ServingEngine:
    """A replica's engine. Raises InputError, InfeasibleError where the deployment does not fit the workload."""
    workload = read_workload(service.workload, (*service.sets, *widths.sets))

    def served(profile: ProfileSpec) -> ServedModel:
        return ServedModel(workload=workload, architecture=service.machine, deployment=deployment, profile=profile)

    return serving_engine(served, service.profile, deployment.attention_data, **dict(service.settings))


def offers_of(service: Service, deployment: Deployment, widths: Widths, clients: list[float] | None, budgets: list[int]) -> list[Offer]:
    """Every operating point of a deployment. clients: of all replicas together; None: of one replica every power of two up to what its
    cache holds. Raises InfeasibleError where the weights do not fit."""
    engine = engine_of(service, deployment, widths)
    replicas = service.machine.used // deployment.accelerators
    requests, schedule = _points(service, engine, 1)
    most = float(engine.room(requests, schedule)[0])
    own = [one / replicas for one in clients] if clients is not None else _powers(most)
    points = [(one, budget) for one in own if one >= 1 for budget in budgets]
    if not points:
        raise InfeasibleError(f"{replicas} replicas have fewer than one client each", resource="clients", need=float(replicas))
    requests, schedule = _points(service, engine, len(points), np.array([budget for _, budget in points], dtype=np.float64))
    each = np.array([one for one, _ in points])
    found = closed_loop(engine, requests, schedule, each, engine.room(requests, schedule))
    figures = _figures(service, found, deployment.accelerators, replicas)
    return [
        Offer(
            deployment,
            widths,
            replicas,
            one,
            budget,
            float(found.decodes[place]),
            bool(found.limited[place]),
            {name: float(values[place]) for name, values in figures.items()},
        )
        for place, (one, budget) in enumerate(points)
    ]


def _points(service: Service, engine: ServingEngine, count: int, budgets: Array | None = None) -> tuple[Requests, Schedule]:
    requests = Requests.of(count, prompt=service.prompt, output=service.output, reused=service.reused, variation=service.variation)
    settings = {} if budgets is None else {"token_budget": budgets}
    return requests, schedule_of(engine.facts, count, engine.ranks, settings)


def _powers(most: float) -> list[float]:
    """1, 2, 4 ... up to what the cache holds, and that."""
    count = int(np.log2(most)) if most >= 1 else 0
    return sorted({*(2.0**power for power in range(min(count, 14) + 1)), min(float(np.floor(most)), 2.0**14)})


def _figures(service: Service, found: Steady, accelerators: int, replicas: int) -> dict[str, Array]:
    per_token = found.joules_per_token
    figures = {
        "tokens_per_s_per_accelerator": found.tokens_per_s / accelerators,
        "tokens_per_s": found.tokens_per_s * replicas,
        "interactivity": 1.0 / found.tpot_s,
        "tpot": found.tpot_s,
        "ttft": found.ttft_s,
        "joules_per_token": per_token,
        "joules_per_request": per_token * service.output,
    }
    if service.carbon is not None:
        one, share = service.carbon.of(1.0, 0.0).total_g.mid, accelerators / service.machine.used
        second = service.carbon.of(0.0, 1.0).total_g.mid
        grams = one * per_token + second * share / found.tokens_per_s
        figures |= {"grams_per_token": grams, "grams_per_request": grams * service.output}
    return figures
