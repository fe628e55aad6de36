"""Rows of served models under a fixed number of clients, priced as the steady state that their engine settles at.

A row gives several quantities, each a data set: seconds a token after the first (NAME), seconds to the first token (NAME_ttft), output
tokens a second and accelerator (NAME_tokens_per_s) and joules an output token (NAME_joules). All rows of one machine, model, format,
deployment and engine are operating points of one price.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.step.ledger import static_powers
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.inputs import read_profile, read_workload
from rackmodel.model.profile import Engine, ProfileSpec
from rackmodel.model.sizes import array_value, size_names
from rackmodel.model.workload import Workload
from rackmodel.serving.engine import ServingEngine, schedule_of, serving_engine
from rackmodel.serving.requests import Requests
from rackmodel.serving.served_model import ServedModel
from rackmodel.serving.steady import Steady, closed_loop, first_burst
from rackmodel.serving.steps import Deployment
from rackmodel.validation.rows import PublishedRow
from rackmodel.validation.score import ScoredRow
from rackmodel.validation.serving_words import BenchmarkWords, ServedWords, refusal_of, settings_of
from rackmodel.validation.steps import machine_of
from rackmodel.validation.words import MachineWords, Refused, look_up, words

Array = NDArray[np.float64]
TIMED = ("token_budget", "sequences", "held", "held_until", "polled", "ahead")
"""Facts of an engine that may differ from point to point of one price."""
CHOSEN = ("experts", "attention_kernel")
"""Kernels of the profile that a server's settings choose."""
WIDTHS = ("kv_cache", "product")
"""Of the workload's `precision` that a server's settings say."""
MOST = 4096.0
"""Requests at once, where neither the cache nor the engine says fewer."""
FULL = "full"
"""A number of clients: as many as the cache holds."""
KINDS = {"tpot": "s", "ttft": "s", "tokens_per_s": "token/s", "joules": "J/token"}


@dataclass(frozen=True)
class _Server:
    """What is priced together. facts: of the engine · chosen: of the profile."""

    machine: MachineWords
    model: ServedWords
    widths: tuple[tuple[str, str], ...]
    deployment: Deployment
    profile: str
    facts: tuple[tuple[str, Any], ...]
    chosen: tuple[tuple[str, str], ...] = ()

    def __hash__(self) -> int:
        return hash((self.machine.machine, self.model.words[0], self.widths, self.deployment, self.profile, self.facts, self.chosen))


@dataclass(frozen=True)
class _Point:
    """One row. measured: quantity → figure · timed: facts of the engine in this run."""

    number: int
    server: _Server
    prompt: float
    output: float
    clients: float
    benchmark: BenchmarkWords
    timed: dict[str, float]
    measured: dict[str, float]
    notes: tuple[str, ...] = ()


@dataclass
class _Found:
    """Figures of some points: quantity → [n]."""

    figures: dict[str, Array]
    bins: list[dict[str, float]] = field(default_factory=list)
    over_capacity: bool = False


def serving_rows(rows: Sequence[PublishedRow]) -> list[ScoredRow]:
    """Each quantity of each row scored, or the row refused with why."""
    found: list[ScoredRow] = []
    alike: dict[_Server, list[_Point]] = {}
    for number, row in enumerate(rows):
        try:
            point = _point(number, row)
        except Refused as problem:
            found.append(ScoredRow(row.id, row.dataset, refused=str(problem)))
            continue
        alike.setdefault(point.server, []).append(point)
    for server, points in alike.items():
        try:
            figures = _priced(server, points)
        except (InputError, InfeasibleError) as problem:
            found += [ScoredRow(rows[point.number].id, rows[point.number].dataset, refused=str(problem)) for point in points]
            continue
        found += [scored for place, point in enumerate(points) for scored in _scored(rows[point.number], point, figures, place)]
    return found


# -- a row's words ---------------------------------------------------------------------------------------------------------------------


def _point(number: int, row: PublishedRow) -> _Point:
    """The operating point of a row. Raises Refused."""
    if row.text("mode") == "disagg":
        raise Refused("separate pools for prompts and decodes are not validated yet")
    count = row.number("n_gpus")
    if not count:
        raise Refused(f"no usable number of accelerators ({row.text('n_gpus_basis') or 'n_gpus is empty'})")
    said = words()
    model = look_up(said.served, "served model", row.text("model_path"))
    if model.refused:
        raise Refused(model.refused)
    engine = look_up(said.engines, "engine", row.text("backend"))
    benchmark = next(one for one in said.benchmarks if any(part in row.text("origin") for part in one.origin))
    clients = float("inf") if row.text("concurrency") == FULL else row.number("concurrency", "batch_size")
    prompt, output = row.number("isl"), row.number("osl")
    if not (clients and prompt and output):
        raise Refused("no number of clients, or no lengths")
    deployment = _deployment(row, int(count))
    facts = {
        "engine": row.text("backend"),
        "model": row.text("model_path"),
        "system": row.text("system"),
        "precision": row.text("precision"),
        "prompt": f"{prompt:g}",
        "output": f"{output:g}",
        "accelerators": f"{count:g}",
        "concurrency": f"{clients:g}",
        "origin": row.text("origin"),
        "version": row.text("backend_version"),
        "attention": "data" if deployment.attention_data > 1 else "tensor",
    }
    refused = refusal_of(said.settings, facts)
    if refused:
        raise Refused(refused)
    settings = _valued(settings_of(said.settings, facts), {"prompt": prompt, "output": output, "concurrency": clients})
    widths = _widths(row, model, {name: settings.pop(name) for name in WIDTHS if name in settings})
    timed = {name: settings.pop(name) for name in TIMED if name in settings}
    chosen = {name: settings.pop(name) for name in CHOSEN if name in settings}
    server = _Server(
        machine=look_up(said.machines, "GPU", row.text("system")),
        model=model,
        widths=widths,
        deployment=deployment,
        profile=engine.profile,
        facts=tuple(sorted(settings.items())),
        chosen=tuple(sorted(chosen.items())),
    )
    notes = tuple(note for note in (server.machine.note, model.note, benchmark.source) if note)
    return _Point(number, server, prompt, output, clients, benchmark, timed, _measured(row, prompt, output, clients, count), notes)


def _valued(settings: dict[str, Any], known: dict[str, float]) -> dict[str, Any]:
    """Settings with their sums worked out; words that are no sum stay."""
    return {
        name: array_value(value, known, f"settings.{name}") if isinstance(value, str) and size_names(value) <= set(known) else value
        for name, value in settings.items()
    }


def _widths(row: PublishedRow, model: ServedWords, said: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Parts of the workload's `precision` that a row's format sets, and what its server's settings say of them."""
    found = model.formats.get(row.text("precision"))
    if found is None:
        found = look_up(words().formats, "format", row.text("gemm_quant_mode", "precision") or "none").set
    return tuple(sorted((dict(found) | {name: str(value) for name, value in said.items()}).items()))


def _deployment(row: PublishedRow, count: int) -> Deployment:
    """Degrees of the replica. Of tensor x expert rows the source multiplied the fields, so that only `n_gpus` holds, and a tensor of 1
    beside ranks of sequences: attention is data-parallel (the same runs are there with unmultiplied fields, too)."""
    ranks = int(row.number("attention_dp_size") or 1)
    tensor, stages = int(row.number("tp_size") or 1), int(row.number("pp_size") or 1)
    count //= stages
    if ranks > 1:
        multiplied = (1, count) if tensor == 1 else (count, 1)
        tensor, ranks = (tensor, ranks) if tensor * ranks == count else multiplied
    else:
        tensor = count
    expert = int(row.number("src_ep", "moe_ep_size") or 1)
    if expert > 1:
        expert = expert if count % expert == 0 else count
    return Deployment(tensor=tensor, pipeline=stages, attention_data=ranks, expert=expert, expert_tensor=count // expert)


def _measured(row: PublishedRow, prompt: float, output: float, clients: float, count: float) -> dict[str, float]:
    found = {}
    for name, column, scale in (("tpot", "tpot_ms", 1e-3), ("ttft", "ttft_ms", 1e-3), ("joules", "ix_joules_per_output_token", 1.0)):
        value = row.number(column)
        if value:
            found[name] = value * scale
    rate = row.number("out_tok_s_per_gpu")
    if rate:
        return found | {"tokens_per_s": rate}
    if "tpot" not in found and "ttft" not in found:
        raise Refused("no measured time")
    if "tpot" in found and "ttft" in found:
        found["tokens_per_s"] = _little(found["tpot"], found["ttft"], output, clients) / count
    return found


def _little(tpot: Any, ttft: Any, output: Any, clients: Any) -> Any:
    """Output tokens a second of clients that each wait for TTFT and then for a token after the other (Little's law)."""
    return clients * output / (ttft + (output - 1.0) * tpot)


# -- its price -----------------------------------------------------------------------------------------------------------------------------


@cache
def _workload(name: str, sets: tuple[str, ...]) -> Workload:
    return read_workload(name, sets)


def _engine(server: _Server) -> ServingEngine:
    sizes = (f"workload.sizes.{name}={value}" for name, value in server.model.sizes.items())
    widths = (f"workload.precision.{name}={value}" for name, value in server.widths)
    workload = _workload(server.model.workload, (*sizes, *widths))
    machine = machine_of(server.machine.machine, tuple(server.machine.set.items()))

    def served(profile: ProfileSpec) -> ServedModel:
        return ServedModel(workload=workload, architecture=machine, deployment=server.deployment, profile=profile)

    facts = {name: type(getattr(Engine(), name))(value) for name, value in server.facts}
    profile = read_profile(server.profile).model_copy(update=dict(server.chosen))
    return serving_engine(served, profile, server.deployment.attention_data, **facts)


def _priced(server: _Server, points: Sequence[_Point]) -> _Found:
    """Figures of the points of one server."""
    engine = _engine(server)
    count = len(points)
    clients, output = (np.array([getattr(one, name) for one in points]) for name in ("clients", "output"))
    mean = np.array([one.benchmark.mean for one in points])
    waves = np.array([one.benchmark.waves for one in points])
    requests = Requests.of(
        count,
        prompt=np.array([one.prompt for one in points]) * mean,
        output=output * mean,
        variation=np.array([one.benchmark.spread for one in points]),
        waves=waves,
    )
    settings = {name: np.array([one.timed.get(name, getattr(engine.facts, name)) for one in points]) for name in TIMED}
    schedule = schedule_of(engine.facts, count, server.deployment.attention_data, settings)
    over = engine.capacity_bytes <= engine.weights_bytes
    room = np.full(count, MOST) if over else np.minimum(engine.room(requests, schedule), MOST)
    clients = np.where(np.isinf(clients), room, clients)
    found = closed_loop(engine, requests, schedule, clients, room)
    burst = first_burst(engine, requests, schedule, np.minimum(clients, room))
    ttft = found.ttft_s + (burst - found.ttft_s) / waves
    figures = {
        "tpot": found.tpot_s,
        "ttft": ttft,
        "tokens_per_s": _little(found.tpot_s, ttft, output, clients) / server.deployment.accelerators,
        "joules": found.joules_per_token - _host_watts(engine) / found.tokens_per_s,
    }
    return _Found(figures, list(_bins(found)), over)


def _host_watts(engine: ServingEngine) -> float:
    """Static power of what is no accelerator: published joules are what drivers say of GPUs (InferenceX, start_gpu_monitor)."""
    assert isinstance(engine.captured, ServedModel)
    machine = engine.captured.setting.architecture
    return sum(watts for level, watts in static_powers(machine) if level != machine.accelerator.name)


def _bins(found: Steady) -> Iterable[dict[str, float]]:
    """What a token's time goes to: steps of decodes, and what prompts add to them."""
    beat = found.rhythm
    for decode, step, tpot in zip(beat.decode_s, beat.step_s, found.tpot_s, strict=True):
        yield {"decode": float(tpot * decode / step), "prompts": float(tpot * (1.0 - decode / step))}


def _scored(row: PublishedRow, point: _Point, found: _Found, place: int) -> list[ScoredRow]:
    return [
        ScoredRow(
            id=row.id,
            dataset=row.dataset if name == "tpot" else f"{row.dataset}_{name}",
            system=row.text("system"),
            precision=row.text("precision") or "bf16",
            unit=KINDS[name],
            measured=value,
            predicted=float(found.figures[name][place]),
            assumptions=point.notes,
            over_capacity=found.over_capacity,
            bins=found.bins[place] if name == "tpot" else {},
            curve=row.text("curve_key"),
        )
        for name, value in point.measured.items()
    ]
