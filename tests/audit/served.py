"""Searches of deployments that serve, held against every point of their space: each alone, under limits, by other goals, on other machines.

A question draws a machine, a model, lengths, a space and whether pools are tried. What is held: a point has the figures that it has alone;
the best and the front are those that all points make; limits are kept, and looser ones leave nothing worse; points are counted; more memory
loses no point; steps are no slower where links and memories are faster.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from rackmodel.errors import InfeasibleError, InputError
from rackmodel.serving.ask import service_of
from rackmodel.serving.offers import Offer, Offered, Service, Widths, engine_of
from rackmodel.serving.pool_search import PoolsOffer, PoolSpace, pool_offers
from rackmodel.serving.search import OBJECTIVES, ServingAnswer, ServingSpace, deployments, search_service
from rackmodel.serving.steps import Deployment, Steps

MACHINES = ("dgx_h100", "dgx_h200", "dgx_a100", "dgx_b200", "gb200_nvl72")
MODELS = ("llama3_8b_decoder", "llama3_70b_decoder", "gpt_oss_120b_decoder", "mixtral_8x7b_decoder")
EXPERTS = ("gpt_oss_120b_decoder", "mixtral_8x7b_decoder")
FASTER = ("gpu.memory.bandwidth*=1.3", "network.bandwidth*=1.3", "network.latency*=0.5")
ROUNDING = 1e-9
ALONE = 3  # points of a question that are priced by themselves
STEPS = 24


def question(number: int) -> tuple[str, int, list[str]]:
    """(kind of outcome, points that were compared, what gave way) of the question of that number."""
    pick = random.Random(f"served {number}")
    asked = _Asked(pick)
    try:
        every = search_service(asked.service, asked.space, prompts_on=asked.pools)
    except (InfeasibleError, InputError):
        return "served infeasible", 1, []
    chosen, goal = pick.sample(every.offers, min(ALONE, len(every.offers))), pick.choice(sorted(OBJECTIVES))
    faults = [*_alone(asked, chosen), *_counted(asked, every), *_more_memory(asked, every), *_faster(asked, pick)]
    faults += _chosen(asked, every, goal, pick)
    return "served pools" if asked.pools else "served", len(every.offers), [f"{asked}: {one}" for one in faults]


class _Asked:
    """One question."""

    def __init__(self, pick: random.Random) -> None:
        self.machine, self.model = pick.choice(MACHINES), pick.choice(MODELS)
        self.engine, self.count = pick.choice(["vllm", "trtllm", "sglang"]), pick.choice([1, 2, 4, 6, 8])
        self.lengths = pick.choice([64, 1024, 3000, 9000]), pick.choice([1, 2, 64, 700, 2000]), pick.choice([0.0, 0.0, 0.5])
        self.fields = {"variation": pick.choice([0.0, 0.1, 0.5])}
        if pick.random() < 0.2:
            self.fields |= {"drafted": 2, "accepted": 0.7}
        self.space = ServingSpace(
            attention_data=pick.choice([(1,), (1, 2)]),
            expert=pick.choice([(1,), (1, 2)] if self.model in EXPERTS else [(1,)]),
            widths=pick.choice([(Widths(),), (Widths("fp8"),), (Widths("fp8", "fp8"), Widths())]),
            clients=pick.choice([None, (3.0, 16.0, 50.0, 301.0)]),
            budgets=pick.choice([(), (2048, 8192)]),
        )
        self.service = self.on()
        self.pools = None
        if pick.random() < 0.4 and self.count > 1:  # pairs of deployments are many: of few clients, without parallel experts
            self.pools = self.service
            self.space = replace(self.space, attention_data=(1,), expert=(1,), clients=(3.0, 50.0, 301.0), budgets=())

    def on(self, *sets: str) -> Service:
        """The service on its machine, or on a changed one."""
        said = (f"accelerators={self.count}", *sets)
        return replace(service_of(self.machine, self.model, said, self.engine, self.lengths), **self.fields)

    def __str__(self) -> str:
        said = (self.machine, self.model, self.engine, self.count, self.lengths, self.fields, self.space, "pools" if self.pools else "")
        return " ".join(map(str, said))


def _alone(asked: _Asked, chosen: list[Offered]) -> Iterator[str]:
    """Points whose figures are others where they are asked for alone."""
    for one in chosen:
        alone = _by_itself(asked, one)
        for name, value in one.figures.items():
            if alone is None or abs(alone.figures[name] - value) > ROUNDING * abs(value):
                yield f"{one}: {name} {value}, alone {alone and alone.figures[name]}"


def _by_itself(asked: _Asked, one: Offered) -> Offered | None:
    service, space = asked.service, {"widths": (one.widths,), "budgets": (one.budget,)}
    if isinstance(one, PoolsOffer):
        each = PoolSpace((one.prompts.deployment,), (one.decodes.deployment,), clients=(one.clients,), **space)
        found = pool_offers(service, service, each)[0]
        return next((other for other in found if (other.prompts, other.decodes) == (one.prompts, one.decodes)), None)
    assert isinstance(one, Offer)
    of = one.deployment
    degrees = {name: (getattr(of, name),) for name in ("tensor", "pipeline", "attention_data", "expert")}
    answer = search_service(service, ServingSpace(**degrees, clients=(one.clients * one.replicas,), **space))
    return answer.offers[0] if len(answer.offers) == 1 else None


def _counted(asked: _Asked, every: ServingAnswer) -> Iterator[str]:
    """A number of points that is not that of the space."""
    sheet, space = every.certificate, asked.space
    if sheet.evaluated != len(every.offers) or sheet.status != "proven":
        yield f"{sheet.evaluated} priced of {len(every.offers)}, {sheet.status}"
    if space.clients is not None and asked.pools is None:
        count = len(list(deployments(space, asked.service))) * len(space.widths) * len(space.clients) * max(len(space.budgets), 1)
        if sheet.space != count:
            yield f"{sheet.space} points of {count}"


def _chosen(asked: _Asked, every: ServingAnswer, goal: str, pick: random.Random) -> Iterator[str]:
    """A best, a front or a limit that is not what all points say."""
    figure, sign = OBJECTIVES[goal]
    if any(figure not in one.figures for one in every.offers):
        return
    limited = pick.sample(["ttft", "tpot"], pick.choice([0, 1, 2]))
    some = {name: pick.choice(every.offers).figures.get(name) for name in limited}  # no token comes after the one of an answer of one
    limits = {name: most for name, most in some.items() if most is not None}
    inside = [one for one in every.offers if all(one.figures[name] <= most for name, most in limits.items())]
    try:
        found = search_service(asked.service, asked.space, goal, limits, asked.pools)
    except InfeasibleError:
        if inside:
            yield f"{goal} under {limits}: none, where {len(inside)} keep them"
        return
    least = min((sign * one.figures[figure] for one in inside), default=np.inf)
    told = float(f"{sign * found.best.figures[figure]:.12g}")  # digits that the search tells apart
    if told > float(f"{least:.12g}") or found.best not in found.offers:
        yield f"{goal} under {limits}: {found.best.figures[figure]}, where {least} is there"
    if any(one.figures[name] > most for one in (found.best, *found.front) for name, most in limits.items()):
        yield f"{goal} under {limits}: a limit is not kept"
    if {_seen(one) for one in found.front} != _not_dominated({_seen(one) for one in inside}):
        yield f"{goal} under {limits}: the front has other points"
    wider = search_service(asked.service, asked.space, goal, {name: 1.5 * most for name, most in limits.items()}, asked.pools)
    if sign * wider.best.figures[figure] > sign * found.best.figures[figure]:
        yield f"{goal}: worse under looser limits than under {limits}"


def _seen(one: Offered) -> tuple[float, float]:
    """Throughput and what one client sees: more is better."""
    return one.figures["tokens_per_s_per_accelerator"], -one.figures.get("tpot", one.figures["ttft"])


def _not_dominated(points: set[tuple[float, ...]]) -> set[tuple[float, ...]]:
    table = np.array(sorted(points)).reshape(-1, 2)
    beaten = [bool(np.any(np.all(table >= one, axis=1) & np.any(table > one, axis=1))) for one in table]
    return {tuple(one) for one, less in zip(table.tolist(), beaten, strict=True) if not less}


def _more_memory(asked: _Asked, every: ServingAnswer) -> Iterator[str]:
    """Points of given clients that are lost where memory is larger."""
    if asked.space.clients is None:
        return
    service = asked.on("gpu.memory.capacity*=1.2")
    space = replace(asked.space, budgets=tuple(sorted({one.budget for one in every.offers})))  # an engine's own follows the memory
    more = search_service(service, space, prompts_on=service if asked.pools else None)
    if lost := {_key(one) for one in every.offers} - {_key(one) for one in more.offers}:
        yield f"more memory loses {len(lost)} points: {sorted(map(str, lost))[0]}"


def _key(one: Offered) -> tuple[object, ...]:
    where = (one.prompts, one.decodes) if isinstance(one, PoolsOffer) else (one.deployment,) if isinstance(one, Offer) else ()
    return *where, one.widths, one.clients, one.budget


def _faster(asked: _Asked, pick: random.Random) -> Iterator[str]:
    """Steps of a deployment that take longer on a faster machine."""
    of = pick.choice(list(deployments(asked.space, asked.service)))
    seconds = {sets: _seconds(asked.on(*sets), of, asked.space.widths[0], pick.getstate()) for sets in ((), *((one,) for one in FASTER))}
    plain = seconds.pop(())
    for sets, found in seconds.items():
        if plain is not None and found is not None and np.any(found > plain * (1.0 + ROUNDING)):
            yield f"{of}: steps up to {np.max(found / plain) - 1:.2g} slower with {sets[0]}"


def _seconds(service: Service, of: Deployment, widths: Widths, state: tuple[object, ...]) -> np.ndarray | None:
    """Of random steps, the same for each state; None where the deployment cannot be."""
    pick = random.Random()
    pick.setstate(state)
    decodes = np.array([float(round(10 ** pick.uniform(0, 2.8))) * (pick.random() < 0.8) for _ in range(STEPS)])
    prefill = np.array([float(round(10 ** pick.uniform(0, 3.9))) if not d or pick.random() < 0.4 else 0.0 for d in decodes])
    context = np.array([float(round(10 ** pick.uniform(1, 4))) if d else 0.0 for d in decodes])
    steps = Steps(
        decodes=decodes,
        new=1.0 + 0.0 * decodes,
        context=context,
        prefill=prefill,
        prompts=np.ceil(prefill / 1000),
        before=0.0 * prefill,
        mesh=0.0 * prefill,
    )
    try:
        return engine_of(service, of, widths).price(steps).seconds
    except (InfeasibleError, InputError):
        return None
