"""The servers that published rows ran on: a machine, a model in its format, a deployment, a profile and what their settings say of it.

A server takes prompts and decodes together, or is a worker of a pool of prompts or of decodes: its role, which settings may ask for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

import numpy as np

from rackmodel.arrays import Array, Bools
from rackmodel.cost.inside.gpu import unmeasured
from rackmodel.cost.step.ledger import static_powers
from rackmodel.cost.step.tasks.shared import Shared
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.inputs import read_profile, read_workload
from rackmodel.inputs.read import machine_calls
from rackmodel.model.calls import release_before
from rackmodel.model.formats import multiplied
from rackmodel.model.profile import Engine, ProfileSpec
from rackmodel.model.sizes import array_value, size_names
from rackmodel.model.workload import Workload
from rackmodel.model.workload_spec import Precision
from rackmodel.serving.drafts import DraftedModel
from rackmodel.serving.engine import ServingEngine, serving_engine
from rackmodel.serving.offers import check_tensor
from rackmodel.serving.replica import of_one_plan, serving_mapper
from rackmodel.serving.requests import Requests, Schedule
from rackmodel.serving.served_model import ServedModel
from rackmodel.serving.steps import Deployment, Served
from rackmodel.validation.machine_files import machine_of
from rackmodel.validation.model_names import name_and_format
from rackmodel.validation.rows import PublishedRow
from rackmodel.validation.serving_words import EXPERTS, BenchmarkWords, EngineWords, ServedWords, longer_by, refusal_of, settings_of
from rackmodel.validation.words import MachineWords, Refused, look_up, words

NAME_AND_RELEASE = re.compile(r"(.+?)[ =@-]+v?([0-9]+[.][0-9][0-9A-Za-z.]*)")
"""An engine with its release behind it."""
TIMED = ("token_budget", "sequences", "held", "held_until", "polled")
"""Facts of an engine that may differ from point to point of one price."""
DRAFTS = {"drafted": "draft_tokens", "accepted": "acceptance_rate"}
"""Fact of a schedule → a row's column; empty where nothing is drafted."""
CHOSEN = ("experts", "attention_kernel", "reductions", "attended", "written", "exchange", "apart")
"""Kernels of the profile that a server's settings choose; of `reductions`, whose all-reduce goes on with the norm after it, of `exchange`,
whose kernels send tokens to their experts, of `apart`, tensors whose products run alone."""
DEALT = "expert"
"""The degree of expert parallelism that a server's settings say, whatever its row does."""
UNMERGED, PLAIN = "none", "nccl"
"""Of `reductions`: no all-reduce goes on, and those are NCCL's."""
_SHARED = Shared()
AS_ACTIVATIONS = "bf16"
"""Of products whose weights are widened as they are read."""
WIDTHS = ("kv_cache", "product", "SC")
"""Of the workload's `precision`, and the state of its gated delta rule, that a server's settings say."""


@dataclass(frozen=True)
class Server:
    """What is priced together. facts: of the engine · chosen: of the profile · drafted: tokens that its model's own module drafts a step,
    where it has one."""

    machine: MachineWords
    model: ServedWords
    widths: tuple[tuple[str, str], ...]
    deployment: Deployment
    profile: str
    facts: tuple[tuple[str, Any], ...]
    chosen: tuple[tuple[str, Any], ...] = ()
    drafted: int = 0

    def __hash__(self) -> int:
        model = self.model.words[0], self.widths, self.drafted
        return hash((self.machine.machine, model, self.deployment, self.profile, self.facts, self.chosen))


@dataclass(frozen=True)
class ServedRun:
    """What a row says of its run, whatever the servers. clients: infinite where as many as the cache holds."""

    row: PublishedRow
    model: ServedWords
    engine: EngineWords
    machine: MachineWords
    benchmark: BenchmarkWords
    prompt: float
    output: float
    clients: float

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed."""
        default = name_and_format(self.row.text("model_path"))[0] not in words().set_models and not self.benchmark.own
        started = (
            f"no document tells with which settings its server was started: those of the profile {self.engine.profile}" if default else ""
        )
        kernels = _at_peak(self.engine.profile, *self.machine.named), _of_weights_alone(self)
        said = (self.machine.note, self.model.note, self.benchmark.source, started, *kernels)
        return tuple(note for note in said if note)


@cache
def _at_peak(profile: str, machine: str, changes: tuple[tuple[str, str], ...]) -> str:
    """A sentence where the machine states no kernels that were measured; ''."""
    found = machine_of(machine, changes)
    return f"{found.name} states no measured kernels: peak rates" if unmeasured(read_profile(profile), found) else ""


def run_of(row: PublishedRow, clients: float | None) -> ServedRun:
    """The run of a row. Raises Refused."""
    said = words()
    model = said.served_model(row.text("model_path"), "model_path")
    if model.refused:
        raise Refused(model.refused)
    row = _with_version(row)
    engine = look_up(said.engines, "engine", row.text("backend"), "backend")
    benchmark = next(one for one in said.benchmarks if any(part in row.text("origin") for part in one.origin))
    prompt, output = row.number("isl"), row.number("osl")
    if not (clients and prompt and output):
        raise Refused("no number of clients, or no lengths")
    row, model = _as_released(row, model)
    return ServedRun(row, model, engine, said.machine(row.text("system"), row.dataset), benchmark, prompt, output, clients)


def _with_version(row: PublishedRow) -> PublishedRow:
    """The row with its engine's release in the column for it, where the column of the engine says both ('vLLM 0.6.3')."""
    found = NAME_AND_RELEASE.fullmatch(row.text("backend"))
    if found is None or row.text("backend").lower() in words().engines:
        return row
    return replace(row, cells={**row.cells, "backend": found[1], "backend_version": row.text("backend_version") or found[2]})


def _as_released(row: PublishedRow, model: ServedWords) -> tuple[PublishedRow, ServedWords]:
    """The row in the format in which its model was released, and the model that tells so, where nothing says a format."""
    if not model.released or row.text("gemm_quant_mode") or _said_format(row):
        return row, model
    told = model.told(f"weights in {model.released}, as they were released")
    return replace(row, cells={**row.cells, "precision": model.released}), told


def server_of(run: ServedRun, deployment: Deployment, accelerators: float, role: str) -> tuple[Server, dict[str, float]]:
    """A server of a run, and facts of its engine in this very run. accelerators: of the whole run. Raises Refused."""
    row, said = run.row, words().settings
    facts = _facts_of(run, deployment, accelerators, role)
    refused = refusal_of(said, facts)
    if refused:
        raise Refused(refused)
    known = {"prompt": run.prompt, "output": run.output, "concurrency": run.clients, "ranks": float(deployment.attention_data)}
    settings = _valued(settings_of(said, facts), known | {"tensor": float(deployment.tensor)})
    if DEALT in settings:
        deployment = _dealt(deployment, int(settings.pop(DEALT)))
    widths = _widths(row, run, {name: settings.pop(name) for name in WIDTHS if name in settings})
    timed = {name: settings.pop(name) for name in TIMED if name in settings}
    timed |= _said_drafts(int(settings.pop("drafted", 0))) | _drafts(row)
    chosen = {name: settings.pop(name) for name in CHOSEN if name in settings}
    chosen = _release(*run.machine.named, run.engine.profile, row.text("backend_version")) | chosen
    server = Server(
        machine=run.machine,
        model=run.model,
        widths=widths,
        deployment=deployment,
        profile=run.engine.profile,
        facts=tuple(sorted((name, tuple(said.items()) if isinstance(said, dict) else said) for name, said in settings.items())),
        chosen=tuple(sorted(chosen.items())),
        drafted=int(timed.get("drafted", 0)),
    )
    try:
        check_tensor(_workload(server), deployment.tensor)
    except InfeasibleError as problem:
        raise Refused(problem.message)
    return server, timed


def _dealt(deployment: Deployment, expert: int) -> Deployment:
    """The deployment with that degree of expert parallelism, whatever a row says. Raises Refused."""
    every = deployment.expert * deployment.expert_tensor
    if every % expert:
        raise Refused(f"experts of {every} accelerators in {expert} equal parts")
    return replace(deployment, expert=expert, expert_tensor=every // expert)


def as_counted(run: ServedRun, deployment: Deployment, accelerators: float) -> ServedRun:
    """The run with prompts as long as its server counted them."""
    return replace(run, prompt=run.prompt * longer_by(words().settings, _facts_of(run, deployment, accelerators, "together")))


def _facts_of(run: ServedRun, deployment: Deployment, accelerators: float, role: str) -> dict[str, str]:
    """What settings may ask of a server of a run."""
    row = run.row
    return {
        "engine": run.engine.words[0],
        "model": name_and_format(row.text("model_path"))[0],
        "own": "own" if run.benchmark.own else "",
        "system": row.text("system"),
        "precision": _format_of(row),
        "prompt": f"{run.prompt:g}",
        "output": f"{run.output:g}",
        "accelerators": f"{accelerators:g}",
        "concurrency": f"{run.clients:g}",
        "origin": row.text("origin"),
        "version": row.text("backend_version"),
        "day": row.text("measured_on"),
        "attention": "data" if deployment.attention_data > 1 else "tensor",
        "expert": str(deployment.expert),
        "role": role,
    }


def _said_format(row: PublishedRow) -> str:
    """What a row says of its weights' format, or the name of its checkpoint, where it does not."""
    return row.text("precision") or ("" if row.text("gemm_quant_mode") else name_and_format(row.text("model_path"))[1])


def _format_of(row: PublishedRow) -> str:
    """A row's format in the word that settings use; as it stands where that is no word that is known."""
    said = _said_format(row)
    try:
        return look_up(words().formats, "format", said).words[0] if said else ""
    except Refused:
        return said


def _said_drafts(count: int) -> dict[str, float]:
    """Drafts that a server's settings say, kept as is most probable."""
    return {"drafted": float(count), "accepted": words().draft_acceptance[count].mid} if count else {}


def _drafts(row: PublishedRow) -> dict[str, float]:
    """Drafted tokens a step, and how probably one is kept, of rows that say so. Raises Refused where one is missing."""
    found = {name: row.number(column) or 0.0 for name, column in DRAFTS.items()}
    if (found["drafted"] > 0) != (found["accepted"] > 0):
        raise Refused(f"drafts want both {' and '.join(DRAFTS.values())}")
    return found if found["drafted"] else {}


def _valued(settings: dict[str, Any], known: dict[str, float]) -> dict[str, Any]:
    """Settings with their sums worked out; words that are no sum stay."""
    return {
        name: array_value(value, known, f"settings.{name}") if isinstance(value, str) and size_names(value) <= set(known) else value
        for name, value in settings.items()
    }


def _of_format(row: PublishedRow, model: ServedWords) -> dict[str, str]:
    """The same as its format alone says. Raises Refused."""
    found = model.formats.get(_format_of(row))
    if found is None:
        found = look_up(words().formats, "format", row.text("gemm_quant_mode") or _said_format(row) or "none").set
    return dict(found)


def _of_weights_alone(run: ServedRun) -> str:
    """A sentence where the machine has no units for the products of the run's format; ''."""
    product, machine = _of_format(run.row, run.model).get("product", ""), machine_of(*run.machine.named)
    return f"{machine.name} multiplies no {product}: its weights alone are narrow" if product and not multiplied(machine, product) else ""


def _widths(row: PublishedRow, run: ServedRun, said: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Parts of the workload's `precision`, and tensors, that a row's format sets, and what its server's settings say of them."""
    widths = _of_format(row, run.model) | {name: str(value) for name, value in said.items()}
    if "product" in widths:
        widths["product"] = multiplied(machine_of(*run.machine.named), widths["product"]) or AS_ACTIVATIONS
    return tuple(sorted(widths.items()))


@cache
def _read(name: str, sets: tuple[str, ...]) -> Workload:
    return read_workload(name, sets)


def _workload(server: Server) -> Workload:
    """What it serves. Raises InputError where its deployment does not deal out the experts."""
    sizes = (f"workload.sizes.{name}={value}" for name, value in server.model.sizes.items())
    widths = (f"workload.{_place(name)}={value}" for name, value in server.widths)
    workload = _read(server.model.workload, (*sizes, *widths))
    experts = workload.sizes.get(EXPERTS, 0)
    if isinstance(experts, int) and experts % server.deployment.expert:
        raise InputError(f"{experts} experts in {server.deployment.expert} equal parts", path="deployment.expert")
    return workload


def _place(name: str) -> str:
    """Where a workload says a width: of a part of its `precision`, else of a tensor."""
    return f"precision.{name}" if name in Precision.model_fields else f"tensors.{name}.precision"


def of_one_engine(servers: Iterable[Server]) -> list[tuple[Server, ...]]:
    """Servers that differ in deployments of one plan alone, together: one engine prices them at once."""
    apart: dict[Server, list[Server]] = {}
    for server in servers:
        apart.setdefault(replace(server, deployment=Deployment()), []).append(server)
    found: list[tuple[Server, ...]] = []
    for own in apart.values():
        try:
            (workload,) = {id(one): one for one in map(_workload, own)}.values()
            numbers = of_one_plan(serving_mapper(), workload, [one.deployment for one in own], _SHARED)
        except (InputError, InfeasibleError):  # of one of them: each is asked alone
            numbers = [(number,) for number in range(len(own))]
        found += [tuple(own[number] for number in alike) for alike in numbers]
    return found


@lru_cache(maxsize=512)
def engine_of(first: Server, *others: Server) -> ServingEngine:
    """The engine of a server, or of servers of one engine. Raises InputError, InfeasibleError."""
    workload, *_ = [_workload(one) for one in (first, *others)]
    machine = machine_of(*first.machine.named)
    more = tuple(one.deployment for one in others)

    def model(of: Workload, profile: ProfileSpec) -> ServedModel:
        return ServedModel(workload=of, architecture=machine, deployment=first.deployment, others=more, profile=profile, shared=_SHARED)

    def served(profile: ProfileSpec) -> Served:
        target, module = model(workload, profile), workload.module
        if not first.drafted or module is None or any(one.deployment.pipeline > 1 for one in (first, *others)):
            return target
        return DraftedModel(target=target, draft=model(module, profile), count=first.drafted, own=True)

    facts = {name: type(getattr(Engine(), name))(value) for name, value in first.facts}
    profile = _with_chosen(read_profile(first.profile), dict(first.chosen))
    return serving_engine(served, profile, first.deployment.attention_data, **facts)


def _with_chosen(profile: ProfileSpec, chosen: dict[str, Any]) -> ProfileSpec:
    """The profile with the kernels that a server's settings choose, and collectives of the release that it ran."""
    library, release, exchange = (chosen.pop(name, None) for name in ("reductions", "release", "exchange"))
    merged: dict[str, Any] = {name: bool(chosen.pop(name)) for name in ("attended", "written") if name in chosen}
    if "apart" in chosen:
        merged["apart"] = chosen.pop("apart").split()
    changed: dict[str, Any] = dict(chosen)
    if library is not None:
        merged["reductions"] = library not in (UNMERGED, PLAIN)
    if library not in (None, UNMERGED) and profile.collectives is not None:
        changed["collectives"] = profile.collectives.model_copy(update={"library": library})
    if release is not None and library in (None, UNMERGED) and profile.collectives is not None:
        changed["collectives"] = profile.collectives.model_copy(update={"release": release})
    changed["merged"] = profile.merged.model_copy(update=merged)
    called = changed.get("collectives", profile.collectives)
    if exchange is not None and called is not None:
        changed["collectives"] = called.model_copy(update={"exchange": exchange})
    return profile.model_copy(update=changed)


@cache
def _release(machine: str, changes: tuple[tuple[str, str], ...], profile: str, version: str) -> dict[str, str]:
    """Whose collectives an engine of a version calls: of its releases that were measured on the machine, the newest that is no newer,
    else the oldest. Nothing where the version is no number."""
    asked = read_profile(profile).collectives
    calls = machine_calls(machine_of(machine, changes), asked)
    if calls is None or asked is None:
        return {}
    own = [call for level in calls.levels.values() for call in level.get(asked.library, ()) if call.mode == asked.mode]
    found = release_before(sorted({release for call in own for release in call.releases}), version)
    return {} if found is None else {"release": found}


def over_capacity(engine: ServingEngine) -> Bools:
    """[deployments] whether the weights are more than an accelerator is said to hold."""
    return np.asarray(engine.capacity_bytes <= engine.weights_each)


def beyond_caches(engine: ServingEngine, requests: Requests, schedule: Schedule) -> Bools:
    """[n] whether the weights are more than an accelerator is said to hold, or a single request more than what they leave for caches."""
    over = over_capacity(engine)[schedule.mesh.astype(np.int64)]
    fits = ~over
    if fits.any():
        own, mesh = requests.at(fits), schedule.mesh[fits]
        over[fits] = engine.held(own.prompt + own.output, mesh) > engine.caches(mesh)
    return np.asarray(over)


def room_of(engine: ServingEngine, requests: Requests, schedule: Schedule, over: float) -> Array:
    """[n] requests at once. over: as many where the weights are more than an accelerator is said to hold."""
    room = np.full(len(requests.prompt), over)
    fits = ~over_capacity(engine)[schedule.mesh.astype(np.int64)]
    if fits.any():
        room[fits] = engine.room(requests.at(fits), schedule.at(fits))
    return room


def timed_facts(engine: ServingEngine, timed: Sequence[Mapping[str, float]]) -> dict[str, Array]:
    """Facts of the engine that may differ from point to point, [n] each. timed: what the n runs say of them."""
    facts = {name: np.array([one.get(name, getattr(engine.facts, name)) for one in timed]) for name in TIMED}
    return facts | {name: np.array([one.get(name, 0.0) for one in timed]) for name in DRAFTS}


def requests_of(runs: Sequence[ServedRun]) -> Requests:
    """The requests of n runs."""
    mean = np.array([one.benchmark.mean for one in runs])
    return Requests.of(
        len(runs),
        prompt=np.array([one.prompt for one in runs]) * mean,
        output=np.array([one.output for one in runs]) * mean,
        variation=np.array([one.benchmark.spread for one in runs]),
        waves=np.array([one.benchmark.waves for one in runs]),
    )


def host_watts(server: Server) -> float:
    """Static power of what is no accelerator: published joules are what drivers say of GPUs (InferenceX, start_gpu_monitor)."""
    machine = machine_of(*server.machine.named)
    machine = machine.model_copy(update={"accelerators": server.deployment.accelerators})
    return sum(watts for level, watts in static_powers(machine) if level != machine.accelerator.name)
