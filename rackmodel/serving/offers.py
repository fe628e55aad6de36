"""What a deployment offers: the figures of its operating points, in time, energy, carbon and money.

Each of R replicas on G accelerators serves its share of the clients. Grams and dollars of an output token are those of its joules and of
the seconds for which the replica's part of the machine is taken (carbon/job: use, idle and embodied shares; carbon/costing: electricity
and owning).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import gcd
from typing import Any, Protocol

import numpy as np

from rackmodel.arrays import Array
from rackmodel.carbon.costing import JobMoney, job_money
from rackmodel.carbon.job import CarbonRates, JobCarbon, Usage
from rackmodel.cost.step.tasks.shared import Shared
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.inputs import read_workload
from rackmodel.model.architecture import Architecture
from rackmodel.model.formats import as_activations, check_operands, multiplied
from rackmodel.model.mapping import unnumbered
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.resources import width
from rackmodel.model.workload import Op, Workload
from rackmodel.serving.drafts import DraftedModel
from rackmodel.serving.engine import ServingEngine, serving_engine
from rackmodel.serving.replica import of_one_plan, serving_mapper, stages_of
from rackmodel.serving.requests import Requests, Schedule
from rackmodel.serving.served_model import ServedModel
from rackmodel.serving.shared_prompts import check_shared_out
from rackmodel.serving.steady import closed_loop, closed_loop_as_run, open_arrivals
from rackmodel.serving.steps import DEGREES, Deployment, Served

HEADS = (("g", "q"), ("g2", "q2"), ("", "h"))
"""Indices of decoders' heads: of keys and values (none: one latent of all), and of queries that share each; of layers over a window where
they have others."""
SHARES = np.array([0.25, 0.5, 0.8, 0.9, 0.95, 1.0])
"""Of the rate at which clients that wait for their answers are served, those that are tried for requests that come at random."""
MOST_CLIENTS = 2.0**14
"""Of a replica."""
FREE = "free"
"""A draft model that takes no time: tokens that are looked up, as n-grams are."""


@dataclass(frozen=True)
class Widths:
    """weight: format of the weights, '' as the workload says · kv_cache: of the caches, likewise."""

    weight: str = ""
    kv_cache: str = ""

    def sets(self, machine: Architecture) -> tuple[str, ...]:
        """What is changed of the workload. machine: that multiplies."""
        weight = (f"workload.precision.weight={self.weight}",) if self.weight else ()
        if self.weight and _narrow(self.weight) and (product := multiplied(machine, self.weight)):
            weight = (*weight, f"workload.precision.product={product}")
        return (*weight, *((f"workload.precision.kv_cache={self.kv_cache}",) if self.kv_cache else ()))


def _narrow(name: str) -> bool:
    """Whether weights of a format are narrower than activations, 16 bits, so that products are in it, too."""
    try:
        return width(name) < 16
    except ValueError:
        return True  # the workload's check says what is wrong with the name


@dataclass(frozen=True)
class Load:
    """Who sends requests to all replicas together. clients: each sends the next one when it has its answer; None: of one replica every
    power of two up to what its cache holds · rates: requests a second, whenever they come (Poisson), in place of clients."""

    clients: tuple[float, ...] | None = None
    rates: tuple[float, ...] = ()


@dataclass(frozen=True)
class Service:
    """What is to be served. machine: of which all accelerators are used · workload, sets: as the library names it, with changes ·
    prompt, output: mean tokens · reused: share of a prompt that is in the cache · variation: of lengths · carbon: rates of the whole
    machine, absent without a site · money: dollars a joule, and a second of the whole machine, absent without a price · settings: facts
    of the engine that are said otherwise · drafted: tokens that are drafted a step and sequence · accepted: probability that a drafted
    token is kept, where all before it were · draft_model: workload that drafts, with the same deployment; '' = the model's own module,
    where it has none drafts take no time; FREE = they take none · shared: plans and programs that replicas have in common."""

    machine: Architecture
    workload: str
    sets: tuple[str, ...]
    profile: ProfileSpec
    prompt: float
    output: float
    reused: float = 0.0
    variation: float = 0.0
    carbon: CarbonRates | None = None
    money: tuple[float, float] | None = None
    settings: tuple[tuple[str, Any], ...] = ()
    drafted: int = 0
    accepted: float = 0.0
    draft_model: str = ""
    shared: Shared = field(default_factory=Shared, compare=False, repr=False)

    @property
    def drafts(self) -> dict[str, float]:
        """What a schedule has of them."""
        return {"drafted": float(self.drafted), "accepted": self.accepted}


class Offered(Protocol):
    """An operating point, of replicas or of pools."""

    @property
    def figures(self) -> dict[str, float]:
        """By name, those of FIGURES."""
        ...

    @property
    def widths(self) -> Widths:
        """Of weights and caches."""
        ...

    @property
    def budget(self) -> int:
        """Tokens of a step."""
        ...

    @property
    def clients(self) -> float:
        """Of a replica, or of both pools."""
        ...

    @property
    def accelerators(self) -> int:
        """All of them."""
        ...

    @property
    def order(self) -> tuple[int, ...]:
        """Of two alike the first is chosen."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        ...


@dataclass(frozen=True)
class Offer:
    """One operating point. clients: of one replica; where requests come at a rate, those that are there in the mean · budget: tokens of a
    step · decodes: sequences that make tokens, of one replica · figures: by name, those of FIGURES · rate: requests a second of one
    replica, None = its clients wait for their answers."""

    deployment: Deployment
    widths: Widths
    replicas: int
    clients: float
    budget: int
    decodes: float
    limited: bool
    figures: dict[str, float]
    rate: float | None = None

    @property
    def accelerators(self) -> int:
        """Of all replicas."""
        return self.replicas * self.deployment.accelerators

    @property
    def order(self) -> tuple[int, ...]:
        """Of two alike the smaller degrees: the same answer every time."""
        one = self.deployment
        sizes = one.accelerators, one.pipeline, one.attention_data, one.tensor, one.expert, one.context, one.prompt_context
        return (*sizes, self.budget)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        degrees = {name: getattr(self.deployment, name) for name in DEGREES}
        return degrees | {
            "replicas": self.replicas,
            "weights": self.widths.weight,
            "kv_cache": self.widths.kv_cache,
            "clients_per_replica": self.clients,
            "requests_per_s": None if self.rate is None else self.rate * self.replicas,
            "token_budget": self.budget,
            "decodes_per_replica": self.decodes,
            "limited_by_cache": self.limited,
            **shown_figures(self.figures),
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
    "usd_per_token": "usd",
    "usd_per_request": "usd",
}
"""Figure of an offer → its unit. Tokens are output tokens; interactivity is what one client sees, 1 / TPOT. Answers of one token have no
TPOT, machines without a site no grams, those without a price no money."""


def shown_figures(figures: Mapping[str, float]) -> dict[str, float | None]:
    """All of FIGURES, None where there is none."""
    return {name: figures.get(name) for name in FIGURES}


def token_carbon(service: Service, offer: Offered) -> JobCarbon | None:
    """What one output token of an operating point emits, by shares; None without a site."""
    return None if service.carbon is None else service.carbon.of(offer.figures["joules_per_token"], token_seconds(service, offer))


def token_money(service: Service, offer: Offered) -> JobMoney | None:
    """What one output token of an operating point costs, by shares; None without a price."""
    return job_money(service.machine, Usage(), offer.figures["joules_per_token"], token_seconds(service, offer))


def token_seconds(service: Service, offer: Offered) -> float:
    """Seconds of the whole machine that an output token takes."""
    return offer.accelerators / service.machine.used / offer.figures["tokens_per_s"]


def engine_of(service: Service, deployments: Deployment | Sequence[Deployment], widths: Widths) -> ServingEngine:
    """The engine of a replica, or of replicas of one plan. Raises InputError, InfeasibleError where they do not fit the workload."""
    first, *others = [deployments] if isinstance(deployments, Deployment) else deployments
    workload = workload_of(service, widths)
    drafter = drafter_of(service, workload)
    for one in (first, *others):
        check_stages(workload, drafter, one.pipeline)
        check_tensor(workload, one.tensor)
        check_context(workload, one.context)
    if first.prompt_context > 1:
        for each in (workload, drafter):
            check_shared_out(each, service.profile)

    def model(of: Workload, profile: ProfileSpec) -> ServedModel:
        more = tuple(others)
        return ServedModel(
            workload=of,
            architecture=service.machine,
            deployment=first,
            others=more,
            profile=profile,
            fills=True,
            shared=service.shared,
        )

    def served(profile: ProfileSpec) -> Served:
        target = model(workload, profile)
        if drafter is None:
            return target
        own = drafter is workload.module
        return DraftedModel(target=target, draft=model(drafter, profile), count=service.drafted, own=own)

    return serving_engine(served, service.profile, first.attention_data, **dict(service.settings))


def drafter_of(service: Service, workload: Workload) -> Workload | None:
    """What drafts for a model; None where drafts take no time, or where there are none."""
    if not service.drafted or service.draft_model == FREE:
        return None
    return _on(service.machine, service.draft_model) if service.draft_model else workload.module


def check_stages(workload: Workload, drafter: Workload | None, stages: int) -> None:
    """Raise InfeasibleError where a pipeline of so many stages cannot be, of the model or of its module that drafts."""
    stages_of(workload, stages)
    if drafter is not None and drafter is workload.module and stages > 1:
        fact = f"a module that drafts runs without a pipeline (of vLLM until 2026), not on {stages} stages"
        raise InfeasibleError(fact, resource="stages", need=float(stages), have=1.0, change="--pipeline 1, or another --draft-model")


def _heads(workload: Workload) -> list[tuple[str, str]]:
    """Indices of heads that layers have, those of later sections with their numbers."""

    def own(name: str, op: Op) -> str:
        return next((index for index in op.indices if name and unnumbered(index) == name), "")

    pairs = dict.fromkeys((own(groups, op), own(queries, op)) for groups, queries in HEADS for op in workload.ops.values())
    return [pair for pair in pairs if pair[1] and (pair[0] or pair[1] not in {queries for groups, queries in pairs if groups})]


def check_tensor(workload: Workload, ranks: int) -> None:
    """Raise InfeasibleError where ranks of tensor parallelism do not share out the heads alike, without which engines do not start: as
    many heads of queries each, and as many of keys and values or each of these to as many (vLLM, models/llama.py: LlamaAttention)."""
    pairs = [(workload.sizes.get(groups, 1), workload.sizes[queries]) for groups, queries in _heads(workload)]
    kinds = [(groups * queries, groups) for groups, queries in pairs if groups * queries > 1]

    def alike(count: int) -> bool:
        return all(heads % count == 0 and (groups % count == 0 or count % groups == 0) for heads, groups in kinds)

    if not alike(ranks):
        told = " and ".join(f"{heads} heads" + (f", {groups} of keys and values," if groups > 1 else "") for heads, groups in kinds)
        change = f"--tensor {max(one for one in range(1, ranks) if ranks % one == 0 and alike(one))}"
        fact = f"{ranks} ranks of tensor parallelism do not share out {told} alike"
        raise InfeasibleError(fact, resource="heads", need=float(ranks), have=float(kinds[0][0]), unit="heads", change=change)


def check_context(workload: Workload, ranks: int) -> None:
    """Raise InfeasibleError where so many ranks of context do not divide the heads that share a cache, whose queries they have."""
    caches = {rank for tensor in workload.tensors.values() if tensor.kind == "kv_cache" for rank in tensor.ranks}
    heads = gcd(*(workload.sizes[own] for _, own in _heads(workload) if own not in caches)) or 1
    if heads % ranks:
        fact = f"{ranks} ranks of context do not divide the {heads} heads of {workload.name} that share a cache"
        change = f"--context {gcd(heads, ranks)}"
        raise InfeasibleError(fact, resource="context", need=float(ranks), have=float(heads), unit="heads", change=change)


def check_positions(workload: Workload, tokens: float, path: str, whose: str = "a request") -> None:
    """Raise InputError where a prompt and its answer are longer than the model has positions for, which engines refuse."""
    most = workload.serving.positions if workload.serving is not None else None
    if most is not None and tokens > most:
        said = f"{tokens:,.0f}" if tokens < 1e15 else f"{tokens:g}"
        fact = f"{whose} of {said} tokens, where {workload.name} has {most:,} positions, beyond which engines refuse to go"
        told = f"; of a model that is told otherwise: --set workload.serving.positions={tokens:.0f}" if tokens < 2.0**53 else ""
        raise InputError(fact + told, path=path)


@lru_cache(maxsize=16)
def _read(name: str, sets: tuple[str, ...], narrow: bool = True) -> Workload:
    return read_workload(name, sets) if narrow else as_activations(_read(name, sets))


def workload_of(service: Service, widths: Widths) -> Workload:
    """What is served, in some formats."""
    return _on(service.machine, service.workload, (*service.sets, *widths.sets(service.machine)))


def _on(machine: Architecture, name: str, sets: tuple[str, ...] = ()) -> Workload:
    """A workload, whose weights alone are narrow where its products are in a format that the machine has no units for.
    Raises InputError where its activations are, too."""
    asked = _read(name, sets).product_format
    found = _read(name, sets, not asked or bool(multiplied(machine, asked)))
    check_operands(machine, found)
    return found


def offers_of(
    service: Service, deployments: Sequence[Deployment], widths: Widths, load: Load, budgets: list[int]
) -> list[list[Offer] | InfeasibleError]:
    """Every operating point of each deployment, or why it cannot be. Deployments of one plan are priced at once."""
    found: list[list[Offer] | InfeasibleError] = [[] for _ in deployments]
    workload, fitting = workload_of(service, widths), []
    drafter = drafter_of(service, workload)
    for number, one in enumerate(deployments):
        try:
            check_stages(workload, drafter, one.pipeline)
            check_tensor(workload, one.tensor)
            check_context(workload, one.context)
            fitting.append(number)
        except InfeasibleError as problem:
            found[number] = problem
    own = [deployments[number] for number in fitting]
    alone = [(place,) for place in range(len(own))]  # what drafts may lay itself out otherwise
    for group in alone if drafter is not None else of_one_plan(serving_mapper(), workload, own, service.shared):
        made = _together(service, [own[place] for place in group], widths, load, budgets)
        for place, offers in zip(group, made, strict=True):
            found[fitting[place]] = offers
    return found


def _together(
    service: Service, deployments: Sequence[Deployment], widths: Widths, load: Load, budgets: list[int]
) -> list[list[Offer] | InfeasibleError]:
    """The same of deployments of one plan: all their points are settled at once. Points to which more comes than they serve are left out;
    where that is all, it says so."""
    engine = engine_of(service, deployments, widths)
    found: list[list[Offer] | InfeasibleError] = [[] for _ in deployments]
    asked: list[tuple[int, float, int]] = []
    for mesh, one in enumerate(deployments):
        try:
            asked += [(mesh, each, budget) for each in _of_replica(service, engine, (mesh, one), load) for budget in budgets]
        except InfeasibleError as problem:
            found[mesh] = problem
    if not asked:
        return found
    meshes, each, budget = (np.array(part, dtype=np.float64) for part in zip(*asked, strict=True))
    requests, schedule = _points(service, engine, len(asked), {"token_budget": budget, "mesh": meshes})
    settle = open_arrivals if load.rates else closed_loop_as_run
    steady = settle(engine, requests, schedule, each, engine.room(requests, schedule))
    there = steady.requests_per_s * (steady.ttft_s + requests.gaps * steady.tpot_s) if load.rates else each
    named = {"tpot": steady.tpot_s, "ttft": steady.ttft_s, "joules_per_token": steady.joules_per_token, "tokens_per_s": steady.tokens_per_s}
    sizes = np.array([deployments[mesh].accelerators for mesh, *_ in asked])
    replicas = service.machine.used // sizes
    figures = figures_of(service, named, sizes, replicas)
    for place, (mesh, one_each, one_budget) in enumerate(asked):
        told = {name: float(values[place]) for name, values in figures.items()}
        decodes, limited = float(steady.decodes[place]), bool(steady.limited[place])
        if not steady.overloaded[place]:
            rate = one_each if load.rates else None
            offer = Offer(deployments[mesh], widths, int(replicas[place]), float(there[place]), one_budget, decodes, limited, told, rate)
            found[mesh].append(offer)  # type: ignore[union-attr]
    over = sorted({mesh for mesh, *_ in asked if not found[mesh]})
    for mesh, most in zip(over, _served_at_most(service, engine, over, budgets) if over else (), strict=True):
        found[mesh] = _overload(service, deployments[mesh], most, min(load.rates))
    return found


def _served_at_most(service: Service, engine: ServingEngine, meshes: list[int], budgets: list[int]) -> Array:
    """[meshes] requests a second that a replica of each deployment serves: of SHARES of what as many clients as its caches hold would have,
    the largest that is served."""
    mesh, budget, share = (part.reshape(-1).astype(np.float64) for part in np.meshgrid(meshes, budgets, SHARES, indexing="ij"))
    requests, schedule = _points(service, engine, len(mesh), {"token_budget": budget, "mesh": mesh})
    room = np.minimum(np.floor(engine.room(requests, schedule)), MOST_CLIENTS)
    rate = closed_loop(engine, requests, schedule, room, room).requests_per_s * share
    held = np.where(open_arrivals(engine, requests, schedule, rate, room).overloaded, 0.0, rate)
    return np.asarray(held.reshape(len(meshes), -1).max(axis=1))


def _overload(service: Service, deployment: Deployment, most: float, rate: float) -> InfeasibleError:
    """That more requests come than replicas serve. most: of one · rate: to all."""
    replicas = service.machine.used // deployment.accelerators
    have = replicas * most
    fact = f"{replicas} replicas of {deployment.accelerators} accelerators serve {have:.4g} requests a second, and {rate:.4g} come"
    change = f"--rate {float(f'{0.999 * have:.3g}'):g}" if have else ""
    return InfeasibleError(fact, resource="overload", need=rate, have=have, unit="requests/s", change=change)


def _of_replica(service: Service, engine: ServingEngine, of: tuple[int, Deployment], load: Load) -> list[float]:
    """Rates, or clients, of one replica of a deployment: those asked for, or powers of two. of: its number and it. Raises InfeasibleError
    where its weights leave no room for a request, or where there are more replicas than clients."""
    mesh, deployment = of
    requests, schedule = _points(service, engine, 1, {"mesh": mesh})
    engine.check_one_fits(service.prompt + service.output, mesh)
    most = float(engine.room(requests, schedule)[0])
    replicas = service.machine.used // deployment.accelerators
    if load.rates:
        return [one / replicas for one in load.rates]
    own = [one / replicas for one in load.clients if one >= replicas] if load.clients is not None else powers_of(most)
    if not own:
        raise InfeasibleError(f"{replicas} replicas have fewer than one client each", resource="clients", need=float(replicas))
    return own


def _points(service: Service, engine: ServingEngine, count: int, settings: dict[str, Any]) -> tuple[Requests, Schedule]:
    requests = Requests.of(count, prompt=service.prompt, output=service.output, reused=service.reused, variation=service.variation)
    return requests, engine.scheduled(count, settings | service.drafts)


def powers_of(most: float) -> list[float]:
    """1, 2, 4 ... up to what the cache holds, and that."""
    count = int(np.log2(most)) if most >= 1 else 0
    return sorted({*(2.0**power for power in range(min(count, 14) + 1)), min(float(np.floor(most)), MOST_CLIENTS)})


def figures_of(service: Service, found: Mapping[str, Array], accelerators: Any, replicas: Any) -> dict[str, Array]:
    """Figures of operating points: those of FIGURES, [n] each. found: tpot, ttft, joules_per_token, tokens_per_s of one replica ·
    accelerators: of one replica."""
    per_token = found["joules_per_token"]
    figures = {
        "tokens_per_s_per_accelerator": found["tokens_per_s"] / accelerators,
        "tokens_per_s": found["tokens_per_s"] * replicas,
        **({"interactivity": 1.0 / found["tpot"], "tpot": found["tpot"]} if service.output > 1.0 else {}),
        "ttft": found["ttft"],
        "joules_per_token": per_token,
        "joules_per_request": per_token * service.output,
    }
    seconds = accelerators / service.machine.used / found["tokens_per_s"]  # of the whole machine
    if service.carbon is not None:
        joule, second = (service.carbon.of(*one).total_g.mid for one in ((1.0, 0.0), (0.0, 1.0)))
        grams = joule * per_token + second * seconds
        figures |= {"grams_per_token": grams, "grams_per_request": grams * service.output}
    if service.money is not None:
        usd = service.money[0] * per_token + service.money[1] * seconds
        figures |= {"usd_per_token": usd, "usd_per_request": usd * service.output}
    return figures
