"""Which deployment serves a model best: every one of a declared space is priced, so that the answer is exact.

space   degrees (tensor, pipeline, attention data, experts) x formats x clients x token budgets, all replicas of a machine alike
exact   every point of it is priced or shown not to fit; the best and the front are those of all points
front   throughput of an accelerator against what one client sees (1 / TPOT; of answers of one token TTFT): no point is better in both
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from time import perf_counter
from typing import Any

from rackmodel.carbon.costing import money_weights
from rackmodel.cost.inside.gpu import unmeasured
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.model.certificate import Certificate
from rackmodel.model.listed import Asked, passed_over_in
from rackmodel.model.misspelt import doubts_of
from rackmodel.serving.engine import engine_facts
from rackmodel.serving.offers import FIGURES, Load, Offered, Service, Widths, check_positions, engine_of, offers_of, workload_of
from rackmodel.serving.pool_search import PoolSpace, pool_offers
from rackmodel.serving.steps import Deployment

OBJECTIVES = {
    "throughput": ("tokens_per_s_per_accelerator", -1.0),
    "energy": ("joules_per_token", 1.0),
    "carbon": ("grams_per_token", 1.0),
    "money": ("usd_per_token", 1.0),
    "ttft": ("ttft", 1.0),
    "tpot": ("tpot", 1.0),
}
"""Objective → its figure, and 1 where less is better."""
LIMITED = ("ttft", "tpot")
OF_LOAD = ("memory", "overload", "clients")
"""What a deployment may have too little of, or too much to do; else the model divides into none of its degrees."""


@dataclass(frozen=True, kw_only=True)
class ServingSpace:
    """What is enumerated. Empty lists of degrees: every power of two that divides the accelerators. prompt_context: of replicas and of
    workers of prompts · clients: of all replicas together; None: of each replica the powers of two that its cache holds · rates: requests a
    second in their place."""

    tensor: tuple[int, ...] = ()
    pipeline: tuple[int, ...] = ()
    attention_data: tuple[int, ...] = ()
    expert: tuple[int, ...] = ()
    context: tuple[int, ...] = ()
    prompt_context: tuple[int, ...] = ()
    widths: tuple[Widths, ...] = (Widths(),)
    clients: tuple[float, ...] | None = None
    budgets: tuple[int, ...] = ()
    rates: tuple[float, ...] = ()


@dataclass(frozen=True)
class ServingAnswer:
    """best: of all points within the limits · front: of these, throughput against interactivity · infeasible: why → points · warnings:
    what the model's file says and changes nothing, or may not be meant, and degrees that no deployment has."""

    best: Offered
    front: tuple[Offered, ...]
    offers: tuple[Offered, ...]
    certificate: Certificate
    infeasible: dict[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "best": self.best.to_dict(),
            "front": [one.to_dict() for one in self.front],
            "certificate": {
                "status": self.certificate.status,
                "solver": self.certificate.solver,
                "points": self.certificate.space,
                "priced": self.certificate.evaluated,
                "infeasible": self.infeasible,
                "seconds": self.certificate.seconds,
            },
            "warnings": list(self.warnings),
        }


@dataclass
class _Priced:
    """What is found of a space: its points, why others cannot be (why → points, and each error), deployments that were tried."""

    offers: list[Offered] = field(default_factory=list)
    infeasible: Counter[str] = field(default_factory=Counter)
    problems: list[InfeasibleError] = field(default_factory=list)
    tried: list[Deployment] = field(default_factory=list)


def search_service(
    service: Service,
    space: ServingSpace,
    minimize: str = "throughput",
    limits: dict[str, float] | None = None,
    prompts_on: Service | None = None,
) -> ServingAnswer:
    """The best deployment under limits of ttft and tpot (seconds). prompts_on: pools of prompts and of decodes are tried, too: `service`
    itself, which both share, or a service on another machine, of which prompts have all and which leaves no other choice.

    Raises InputError, and InfeasibleError where no deployment is within the limits.
    """
    name, sign = _objective(minimize, service, prompts_on)
    _check_asked(service, space, (name, *(limits or {})), prompts_on)
    begun = perf_counter()
    budgets = list(space.budgets) or [_engine_budget(prompts_on or service)]  # who decodes alone has none
    found = _Priced()
    if prompts_on is not None:
        _price_pools(found, prompts_on, service, space, budgets)
    if prompts_on is None or prompts_on is service:
        _price_replicas(found, service, space, budgets)
    if not found.offers:
        raise _with_change(_nearest(found.problems), space, service) if found.problems else _none_divides(space, service)
    inside = within(found.offers, limits or {})
    best = min(inside, key=lambda one: (float(f"{sign * one.figures[name]:.12g}"), one.figures["joules_per_token"], one.order))
    value, infeasible = best.figures[name], dict(found.infeasible)
    certificate = Certificate(
        solver="every point",
        minimize=minimize,
        space=float(len(found.offers) + sum(infeasible.values())),
        evaluated=len(found.offers),
        objective=value,
        bound=value,
        gap=0.0,
        infeasible={key: float(count) for key, count in infeasible.items()},
        seconds=perf_counter() - begun,
        profile=service.profile.name,
    )
    used = dict.fromkeys(one.machine.used for one in (prompts_on or service, service))
    passed = passed_over_in(_asked(space, found.tried), f"deployment on {' or '.join(map(str, used))} accelerators")
    machines = {one.machine.name: one.machine for one in (prompts_on or service, service)}
    at_peak = (said for machine in machines.values() for said in unmeasured(service.profile, machine))
    told = (*doubts_of(workload_of(service, Widths())), *at_peak, *passed)
    return ServingAnswer(best, pareto(inside), tuple(found.offers), certificate, infeasible, told)


def _check_asked(service: Service, space: ServingSpace, figures: Sequence[str], prompts_on: Service | None) -> None:
    """Raise InputError for what contradicts itself or the model. figures: what is minimised, then what is limited."""
    if space.rates and (space.clients is not None or prompts_on is not None):
        fact = (
            "says who sends requests, as a number of clients does: keep one of the two"
            if prompts_on is None
            else "is of replicas: pools have clients"
        )
        raise InputError(fact, path="space.rates")
    if service.output <= 1.0 and "tpot" in figures:
        raise InputError("an answer of one token has none after it", path="objective" if figures[0] == "tpot" else "limits")
    if max(space.prompt_context, default=1) > 1:
        _check_shared_out(space)
    longest = (service.prompt + service.output) * (1.0 + 3.0**0.5 * service.variation)
    check_positions(workload_of(service, Widths()), longest, "requests.output" if service.output > service.prompt else "requests.prompt")


def _price_pools(found: _Priced, prompts_on: Service, service: Service, space: ServingSpace, budgets: list[int]) -> None:
    """Every pair of pools, of prompts on one machine and of decodes on another or the same."""
    sizes = [tuple(deployments(space, prompts_on, fill=False)), tuple(deployments(space, service, fill=False, prompts=False))]
    _check_some_fit(space, prompts_on, sizes, service)
    apart, problems = pool_offers(prompts_on, service, PoolSpace(sizes[0], sizes[1], space.widths, space.clients, tuple(budgets)))
    found.tried += [*sizes[0], *sizes[1]]
    found.offers += apart
    found.problems += problems
    found.infeasible.update(one.resource or "layout" for one in problems)


def _price_replicas(found: _Priced, service: Service, space: ServingSpace, budgets: list[int]) -> None:
    """Every deployment whose replicas fill the machine, in every format."""
    every, load = tuple(deployments(space, service)), Load(space.clients, space.rates)
    told = space.rates or space.clients
    points = len(budgets) * (len(told) if told else 1)  # of a deployment; without clients those of its cache, so unknown
    each = zip(*(offers_of(service, every, widths, load, budgets) for widths in space.widths), strict=True)
    for deployment, made in zip(every, each, strict=True):
        found.tried += [deployment] if any(not isinstance(one, InfeasibleError) or one.resource in OF_LOAD for one in made) else []
        for one in made:
            if isinstance(one, InfeasibleError):
                found.infeasible[one.resource or "layout"] += points
                found.problems.append(one)
                continue
            found.offers += one
            if told and len(one) < points:
                found.infeasible["overload" if space.rates else "clients"] += points - len(one)  # (fewer clients than its replicas)


def _asked(space: ServingSpace, tried: Sequence[Deployment]) -> Iterator[Asked]:
    """Every list of degrees, and those that deployments have."""
    for name in ("tensor", "pipeline", "attention_data", "expert", "context", "prompt_context"):
        yield f"--{name.replace('_', '-')}", getattr(space, name), frozenset(getattr(one, name) for one in tried)


def _objective(word: str, service: Service, prompts_on: Service | None) -> tuple[str, float]:
    if word not in OBJECTIVES:
        raise InputError(f"no objective of serving called '{word}'", path="objective", known=list(OBJECTIVES), given=word)
    if word == "carbon" and service.carbon is None:
        raise InputError("carbon needs a site: {grid, pue} in the architecture", path="site")
    if word == "money" and service.money is None:
        money_weights(service.machine)  # which says whose price is missing
    if word in ("carbon", "money") and prompts_on is not None and prompts_on is not service:
        raise InputError(f"{word} is of one machine, and prompts are on another: minimize energy", path="objective")
    return OBJECTIVES[word]


def _check_shared_out(space: ServingSpace) -> None:
    """Raise InputError where ranks of context and groups that share out prompts are always both there."""
    if min(space.prompt_context) > 1 and min(space.context, default=1) > 1:
        fact = "tensor groups that share out prompts keep whole caches, and ranks of context split them: let one of both be 1, too"
        raise InputError(fact, path="space.prompt_context")


def _check_some_fit(space: ServingSpace, prompts_on: Service, sizes: Sequence[Sequence[Deployment]], service: Service) -> None:
    """Raise InputError where prompts that are shared out fit neither a worker that leaves room for one of decodes nor, on the same machine,
    a replica. sizes: deployments of both pools."""
    beside = min((one.accelerators for one in sizes[1]), default=0) if prompts_on is service else 0
    shared = [one.accelerators + beside for one in sizes[0] if one.prompt_context > 1]
    replicas = deployments(space, service) if prompts_on is service else ()
    if max(space.prompt_context, default=1) == 1 or any(one.prompt_context > 1 for one in replicas):
        return
    if min(shared, default=prompts_on.machine.used + 1) > prompts_on.machine.used:
        ranks = ", ".join(str(one) for one in space.prompt_context if one > 1)
        fact = f"no worker of prompts shared out over {ranks} tensor groups fits the {prompts_on.machine.used} accelerators"
        raise InputError(f"{fact}{', one of decodes beside it' if beside else ''}", path="space.prompt_context")


def _engine_budget(service: Service) -> int:
    memory = service.machine.accelerator.memory
    shown = memory.visible_bytes if memory is not None else None
    facts = engine_facts(service.profile).on(math.inf if shown is None else shown)
    return int(dict(service.settings).get("token_budget", facts.token_budget))


def check_limited(names: Iterable[str]) -> None:
    """Raise InputError for a limit that is none of serving."""
    for name in names:
        if name not in LIMITED:
            raise InputError(f"no limit of serving called '{name}'", path="limits", known=LIMITED, given=name)


def within(offers: Sequence[Offered], limits: dict[str, float]) -> list[Offered]:
    """Offers that keep all limits. Raises InfeasibleError with the least that is there."""
    check_limited(limits)
    found = [one for one in offers if all(one.figures[name] <= most for name, most in limits.items())]
    if found:
        return found
    least = {name: min(one.figures[name] for one in offers) for name in limits}
    told = ", ".join(f"{name} {seconds_text(least[name])} of at most {seconds_text(limits[name])}" for name in limits)
    nearest = min(offers, key=lambda one: max(one.figures[name] / most for name, most in limits.items()))
    over = {name: nearest.figures[name] for name, most in limits.items() if nearest.figures[name] > most}
    worst = max(limits, key=lambda name: least[name] / limits[name])
    raise InfeasibleError(
        f"no deployment keeps the limits; the least alone: {told}",
        resource=worst,
        need=least[worst],
        have=limits[worst],
        unit="s",
        change=" ".join(f"--limit {name}='{seconds_text(value, up=True)}'" for name, value in over.items()),
    )


def seconds_text(seconds: float, *, up: bool = False) -> str:
    """'4.96 ms', '1.2 s': three digits, or two rounded up."""
    scale, unit = (1.0, "s") if seconds >= 1 else (1e3, "ms")
    if not up or seconds <= 0:
        return f"{seconds * scale:.3g} {unit}"
    step = 10.0 ** (math.floor(math.log10(seconds * scale)) - 1)
    return f"{math.ceil(seconds * scale / step) * step:.3g} {unit}"


def pareto(offers: Sequence[Offered]) -> tuple[Offered, ...]:
    """Offers that no other beats in throughput of an accelerator and in what one client sees, by falling throughput."""
    rate = "tokens_per_s_per_accelerator"
    found: list[Offered] = []
    for one in sorted(offers, key=lambda one: (-one.figures[rate], _seen_s(one), one.order)):
        if not found or _seen_s(one) < _seen_s(found[-1]):
            found.append(one)
    return tuple(found)


def _seen_s(one: Offered) -> float:
    """Seconds a token that one client sees: TPOT, of answers of one token TTFT."""
    return one.figures.get("tpot", one.figures["ttft"])


def deployments(space: ServingSpace, service: Service, *, fill: bool = True, prompts: bool = True) -> Iterator[Deployment]:
    """Every deployment of the space whose replicas fill the machine, small ones first; without `fill`, of those that fit into it. prompts:
    whether they take these."""
    total = service.machine.used
    powers = (2**power for power in range(total.bit_length()))
    divisors = tuple(one for one in powers if not fill or total % one == 0)
    found = [
        Deployment(**degrees, expert=expert, expert_tensor=tensor * ranks * shared // expert, context=context)
        for tensor in space.tensor or divisors
        for pipeline in space.pipeline or divisors
        for ranks in space.attention_data or (1,)
        for shared in ((space.prompt_context or (1,)) if prompts else (1,))
        if (total % (tensor * pipeline * ranks * shared) == 0 if fill else tensor * pipeline * ranks * shared <= total)
        for degrees in ({"tensor": tensor, "pipeline": pipeline, "attention_data": ranks, "prompt_context": shared},)
        for expert in _experts(space, tensor * ranks * shared)
        for context in space.context or (1,)
        if tensor % context == 0 and (context == 1 or shared == 1)
    ]
    yield from sorted(found, key=_order)


def _order(one: Deployment) -> tuple[int, ...]:
    return one.accelerators, one.pipeline, one.attention_data, one.tensor, one.expert, one.context, one.prompt_context


def _nearest(problems: Sequence[InfeasibleError]) -> InfeasibleError:
    """Where some have too much to serve, the one that has least too much; else the one short of least memory; else the first."""
    overloaded = [one for one in problems if one.resource == "overload"]
    short = overloaded or [one for one in problems if one.resource == "memory" and one.have > 0]
    return min(short, key=lambda one: one.need / one.have) if short else problems[0]


def _with_change(problem: InfeasibleError, space: ServingSpace, service: Service) -> InfeasibleError:
    """A shortage of memory with what holds one request: one replica of the whole machine, its pipeline of any length that divides it, or
    of twice as many accelerators again and again."""
    if problem.resource != "memory" or problem.change:
        return problem
    total = service.machine.used
    any_length = replace(space, pipeline=space.pipeline or tuple(one for one in range(1, total + 1) if total % one == 0))
    found = _whole_that_holds_one(any_length, service)
    if found is not None:
        problem.change = f"--tensor {found.tensor} --pipeline {found.pipeline}"
        return problem
    count = 2 * total
    while count <= service.machine.available and not problem.change:
        larger = replace(service, machine=service.machine.model_copy(update={"accelerators": count}))
        if _whole_that_holds_one(space, larger) is not None:
            problem.change = f"--set accelerators={count}"
        count *= 2
    return problem


def _whole_that_holds_one(space: ServingSpace, service: Service) -> Deployment | None:
    """A deployment of one replica that holds a request; the shortest pipelines are tried first."""
    whole = [one for one in deployments(space, service) if one.accelerators == service.machine.used]
    return next((one for one in whole if _holds_one(service, one, space.widths[0])), None)


def _holds_one(service: Service, deployment: Deployment, widths: Widths) -> bool:
    """Whether a replica holds a request beside its weights."""
    try:
        engine_of(service, deployment, widths).check_one_fits(service.prompt + service.output)
    except (InfeasibleError, InputError):
        return False
    return True


def _none_divides(space: ServingSpace, service: Service) -> InfeasibleError:
    """Why a space has no deployment: its replicas do not divide the machine, or ranks of context or experts do not divide a stage."""
    total, ranks, groups = service.machine.used, space.attention_data or (1,), space.prompt_context or (1,)
    powers = tuple(2**power for power in range(total.bit_length()))
    more = " x prompts' context" if max(groups) > 1 else ""
    sizes = product(space.tensor or powers, ranks, groups, space.pipeline or powers)
    stages = [(tensor * data * shared, pipeline) for tensor, data, shared, pipeline in sizes]
    dividing = [stage for stage, pipeline in stages if total % (stage * pipeline) == 0]
    contexts, tensors = space.context or (1,), space.tensor or powers
    if dividing and all(tensor % context for tensor in tensors for context in contexts):
        fact = f"{min(contexts)} ranks of context do not divide {max(tensors)} of tensor parallelism, whose part they are"
        change = f"--context {math.gcd(min(contexts), max(tensors))}"
        return InfeasibleError(fact, resource="ranks of context", need=min(contexts), have=max(tensors), unit="ranks", change=change)
    if dividing:
        stage = max(dividing)
        fact = f"experts over {min(space.expert)} ranks, where a stage has {stage} (tensor x attention data{more})"
        change = f"--expert {math.gcd(min(space.expert), stage)}"
        return InfeasibleError(fact, resource="experts' ranks", need=min(space.expert), have=stage, unit="ranks", change=change)
    need = min(stage * pipeline for stage, pipeline in stages)
    fact = f"replicas of {need} accelerators (tensor x pipeline x attention data{more}) do not divide the {total} there are"
    change = f"--set accelerators={max(total - total % need, need)}"
    return InfeasibleError(fact, resource="accelerators", need=need, have=total, unit="accelerators", change=change)


def _experts(space: ServingSpace, stage: int) -> tuple[int, ...]:
    return tuple(one for one in space.expert or (1,) if stage % one == 0)


assert {name for name, _ in OBJECTIVES.values()} <= set(FIGURES)
