"""Rows of served models under a fixed number of clients, priced as the steady state that their engine settles at.

A row gives several quantities, each a data set: seconds a token after the first (NAME), seconds to the first token (NAME_ttft), output
tokens a second and accelerator (NAME_tokens_per_s) and joules an output token (NAME_joules). All rows of one machine, model, format,
deployment and engine are operating points of one price. Rows with pools of prompts and of decodes: served_pools.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from rackmodel.arrays import Array, Bools, Ints
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.serving.engine import ServingEngine
from rackmodel.serving.requests import Requests, Schedule
from rackmodel.serving.steady import Steady, closed_loop_as_run, loop_steps
from rackmodel.serving.steps import Deployment, StepFigures, Steps
from rackmodel.serving.together import priced_together
from rackmodel.validation.rows import PublishedRow
from rackmodel.validation.score import ScoredRow
from rackmodel.validation.served_figures import little, measured_of, scored_of
from rackmodel.validation.served_pools import pool_rows, ran_in_pools
from rackmodel.validation.servers import (
    DRAFTS,
    ServedRun,
    Server,
    as_counted,
    beyond_caches,
    engine_of,
    host_watts,
    of_one_engine,
    requests_of,
    room_of,
    run_of,
    server_of,
    timed_facts,
)
from rackmodel.validation.unknowns import Interval
from rackmodel.validation.words import Refused, words

MOST = 4096.0
"""Requests at once, where neither the cache nor the engine says fewer."""
FULL = "full"
"""A number of clients: as many as the cache holds."""


@dataclass(frozen=True)
class Point:
    """One row. timed: facts of the engine in this run · measured: quantity → figure."""

    run: ServedRun
    server: Server
    timed: dict[str, float]
    measured: dict[str, float]


@dataclass
class Found:
    """Figures of some points: quantity → [n]."""

    figures: dict[str, Array]
    bins: list[dict[str, float]] = field(default_factory=list)
    over_capacity: Bools = field(default_factory=lambda: np.zeros(0, dtype=bool))
    ends: list[dict[str, Array]] = field(default_factory=list)


def serving_rows(rows: Sequence[PublishedRow]) -> list[ScoredRow]:
    """Each quantity of each row scored, or the row refused with why."""
    pooled = [ran_in_pools(row) for row in rows]
    found = pool_rows([row for row, apart in zip(rows, pooled, strict=True) if apart])
    alike: dict[Server, list[Point]] = {}
    for row, apart in zip(rows, pooled, strict=True):
        if apart:
            continue
        try:
            point = point_of(row)
        except Refused as problem:
            found.append(ScoredRow(row.id, row.dataset, refused=str(problem)))
            continue
        alike.setdefault(point.server, []).append(point)
    together = {servers: [point for server in servers for point in alike[server]] for servers in of_one_engine(alike)}
    ahead = _priced_ahead(together)
    for servers, points in together.items():
        found += _answered(servers, points, ahead.get(servers))
    return found


def _priced_ahead(together: Mapping[tuple[Server, ...], Sequence[Point]]) -> dict[tuple[Server, ...], ServingEngine]:
    """Engines with what their points' loops will ask, of those whose models can be priced beside each other."""
    loops = dict[tuple[Server, ...], list[_Loop]]()
    for servers, points in together.items():
        try:
            loops[servers] = _loops(engine_of(*servers), servers, points)
        except (InputError, InfeasibleError):  # who asks is told why
            continue
    asked = [(servers, own, Steps.joined([loop.steps for loop in own])) for servers, own in loops.items()]
    priced = priced_together([(own[0].engine, steps) for _, own, steps in asked])
    return {asked[number][0]: _with_known(asked[number][1], figures) for number, figures in priced}


def _with_known(loops: Sequence[_Loop], figures: StepFigures) -> ServingEngine:
    """The engine of some loops, which knows their steps. figures: of those of one after another."""
    known, first = [], 0
    for loop in loops:
        known.append((loop.steps, figures.at(slice(first, first + len(loop.steps)))))
        first += len(loop.steps)
    return replace(loops[0].engine, ahead=tuple(known))


def _answered(servers: Sequence[Server], points: Sequence[Point], engine: ServingEngine | None = None) -> list[ScoredRow]:
    """The rows of servers of one engine. engine: that one, where it knows some prices."""
    try:
        figures = _priced(servers, points, engine)
    except (InputError, InfeasibleError) as problem:
        if len(servers) > 1:  # one of them cannot be: the others may
            return [row for own in servers for row in _answered((own,), [one for one in points if one.server == own])]
        return [ScoredRow(one.run.row.id, one.run.row.dataset, refused=str(problem)) for one in points]
    return [scored for place, point in enumerate(points) for scored in scored_point(point, figures, place)]


def point_of(row: PublishedRow) -> Point:
    """The operating point of a row. Raises Refused."""
    count = _accelerators(row)
    if not count:
        raise Refused(f"no usable number of accelerators (n_gpus is empty: {row.text('n_gpus_basis') or 'tp_size, too'})")
    ranks = unsaid_ranks(row)
    count *= ranks
    clients = float("inf") if row.text("concurrency") == FULL else (row.number("concurrency", "batch_size") or 0.0) * ranks
    run = run_of(row, clients / workers_of(row))
    deployment = _deployment(row, int(count))
    server, timed = server_of(run, deployment, count, "together")
    counted = as_counted(run, deployment, count)
    return Point(counted, server, timed, measured_of(row, run.output, run.clients, count))


def _accelerators(row: PublishedRow) -> float | None:
    """`n_gpus` of a row; where nothing is said of it, what its degrees make. Unless it was worked out from a throughput and is not what its
    degrees say: the source multiplied a tensor degree by that of the experts, and the throughput is of a later run of the same plan, with
    other prompts (InferenceX, pull request 1502). Of eleven such rows four do not hold their weights and two name more accelerators than
    a server has."""
    said, tensor, expert = row.whole("n_gpus"), row.whole("tp_size"), row.number("moe_ep_size") or 1.0
    if tensor and not row.text("n_gpus", "n_gpus_basis"):
        return tensor * (row.whole("pp_size") or 1.0) * (row.whole("attention_dp_size") or 1.0)
    guessed = "corrected from measured" in row.text("n_gpus_basis") and (row.whole("attention_dp_size") or 1.0) == 1.0
    return tensor / expert if said and guessed and tensor and tensor % expert == 0 else said


def workers_of(row: PublishedRow) -> int:
    """Servers of its plan that a row's clients are dealt to, where they are as many times a server's batch; its `n_gpus` are one's.

    Source: estimated_concurrency = agg_workers * max_batch_size (ai-dynamo/aiconfigurator 17676b35, generator/rule_plugin/trtllm.rule);
    `concurrency` of one server is `batch_size` of each of its ranks of attention data. A plan of two accelerators with 448 clients and a
    batch of 14 is 32 of them: its rows of pools have 64.
    """
    if row.text("concurrency") == FULL:
        return 1
    clients, batch = row.number("concurrency"), (row.number("batch_size") or 0.0) * (row.whole("attention_dp_size") or 1.0)
    workers = clients / batch if clients and batch else 1.0
    return int(workers) if workers > 1.0 and workers == int(workers) else 1


def unsaid_ranks(row: PublishedRow) -> int:
    """Ranks of attention data that a row leaves out, and its `n_gpus` with them: attention and experts lie on the same accelerators.

    Its clients are a rank's, too: rows that say their ranks have `concurrency` = ranks x `batch_size`, these have both alike.
    Source: tp_size * attention_dp_size == moe_tp_size * moe_ep_size, else the plan is refused (NVIDIA aiconfigurator,
    resolve_moe_parallelism). Rows of one H200 that serve 235 GB of weights say experts of two and of four parts.
    """
    tensor, stages = int(row.whole("tp_size") or 1), int(row.whole("pp_size") or 1)
    experts = int(row.number("moe_tp_size") or 1) * int(row.number("moe_ep_size") or 1)
    said = row.whole("attention_dp_size") or row.whole("n_gpus") != tensor * stages
    return 1 if said or experts % tensor else max(experts // tensor, 1)


def _deployment(row: PublishedRow, count: int) -> Deployment:
    """Degrees of the replica. Of tensor x expert rows the source multiplied the fields, so that only `n_gpus` holds, and a tensor of 1
    beside ranks of sequences: attention is data-parallel (the same runs are there with unmultiplied fields, too). Raises Refused."""
    ranks = int(row.whole("attention_dp_size") or unsaid_ranks(row))
    tensor, stages = int(row.whole("tp_size") or 1), int(row.whole("pp_size") or 1)
    if count % stages:
        raise Refused(f"{count} accelerators in {stages} equal stages")
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


def _meshes(servers: Sequence[Server], points: Sequence[Point]) -> Ints:
    """[n] deployments of the points among the servers of an engine."""
    return np.array([servers.index(one.server) for one in points])


def _priced(servers: Sequence[Server], points: Sequence[Point], engine: ServingEngine | None) -> Found:
    """Figures of the points of servers of one engine."""
    loops = _loops(engine or engine_of(*servers), servers, points)
    if engine is None:
        engine = _with_known(loops, loops[0].engine.price(Steps.joined([loop.steps for loop in loops])))
    (found, figures), *ends = [_settled(replace(loop, engine=engine), points) for loop in loops]
    over = beyond_caches(engine, loops[0].requests, loops[0].schedule)
    return Found(figures, list(_bins(found, figures["tpot"])), over, [figures for _, figures in ends])


def _loops(engine: ServingEngine, servers: Sequence[Server], points: Sequence[Point]) -> list[_Loop]:
    """The loop of the points of servers of one engine, then those in which drafts are kept otherwise.

    Raises InputError, InfeasibleError.
    """
    mesh = _meshes(servers, points)
    return [_Loop.of(engine, mesh, points, timed) for timed in ([one.timed for one in points], *_acceptances(points))]


def _acceptances(points: Sequence[Point]) -> list[list[dict[str, float]]]:
    """Facts of the points where drafts that only settings say are kept as seldom and as often as they may be; none where none are."""
    known = words().draft_acceptance
    said = [None if one.run.row.number(DRAFTS["drafted"]) else known.get(int(one.timed.get("drafted", 0.0))) for one in points]
    if not any(said):
        return []
    pairs = list(zip(points, said, strict=True))
    return [[one.timed | ({"accepted": getattr(kept, end)} if kept else {}) for one, kept in pairs] for end in ("low", "high")]


@dataclass(frozen=True)
class _Loop:
    """The closed loop of some points of one engine. requests, schedule, room, clients: [n] of each."""

    engine: ServingEngine
    requests: Requests
    schedule: Schedule
    room: Array
    clients: Array

    @classmethod
    def of(cls, engine: ServingEngine, mesh: Ints, points: Sequence[Point], timed: Sequence[dict[str, float]]) -> _Loop:
        """Of these. mesh: [n] their deployments · timed: facts of the engine in each. Raises InputError, InfeasibleError."""
        requests = requests_of([one.run for one in points])
        schedule = engine.scheduled(len(points), timed_facts(engine, timed) | {"mesh": mesh})
        room = np.minimum(room_of(engine, requests, schedule, MOST), MOST)
        return cls(engine, requests, schedule, room, np.array([one.run.clients for one in points]))

    @cached_property
    def steps(self) -> Steps:
        """That it prices."""
        return loop_steps(self.requests, self.schedule, self.clients, self.room)


def _settled(loop: _Loop, points: Sequence[Point]) -> tuple[Steady, dict[str, Array]]:
    """What the points of one engine settle at, and their figures."""
    requests, schedule, clients, output = loop.requests, loop.schedule, loop.clients, np.array([one.run.output for one in points])
    found = closed_loop_as_run(loop.engine, requests, schedule, clients, loop.room, at_once=True)
    tpot, ttft = found.run_tpot_s(requests, schedule), found.run_ttft_s(requests)
    return found, {
        "tpot": tpot,
        "ttft": ttft,
        "tokens_per_s": little(tpot, ttft, output, clients) / np.array([one.server.deployment.accelerators for one in points]),
        "joules": found.joules_per_token - np.array([host_watts(one.server) for one in points]) / found.tokens_per_s,
    }


def _bins(found: Steady, tpot_s: Array) -> Iterable[dict[str, float]]:
    """What a token's time [n] goes to: steps of decodes, and what prompts add to them."""
    decodes = found.tpot_s * found.rhythm.decode_s / found.rhythm.step_s
    for decode, tpot in zip(decodes, tpot_s, strict=True):
        yield {"decode": float(decode), "prompts": float(tpot - decode)}


def scored_point(point: Point, found: Found, place: int) -> list[ScoredRow]:
    """Each quantity of a row scored. place: of the row among the points."""
    said = {"assumptions": point.run.notes, "over_capacity": bool(found.over_capacity[place]), "bins": found.bins[place]}
    said |= {"asked": _asked(point.run), "plan": _plan(point), "clients": point.run.clients}
    scored = scored_of(point.run.row, point.measured, found.figures, place, **said)
    if not found.ends or not point.timed.get("drafted"):
        return scored
    return [replace(one, interval=_interval(one.predicted, name, found, place)) for name, one in zip(point.measured, scored, strict=True)]


def _asked(run: ServedRun) -> str:
    """The question whose answer a row may be: a model, a machine, an engine and lengths."""
    words_of = (run.model.words[0], run.machine.words[0], run.engine.words[0])
    return "|".join((*words_of, run.row.text("isl"), run.row.text("osl")))


def _plan(point: Point) -> str:
    """The server of a row, whatever its load: degrees, formats and release."""
    return f"{point.server.deployment} {point.run.row.text('precision')} {point.run.row.text('backend_version')}"


def _interval(middle: float, name: str, found: Found, place: int) -> Interval:
    """Of a figure, over how often drafts are kept."""
    every = (middle, *(float(end[name][place]) for end in found.ends))
    return Interval(min(every), max(every), {"acceptance of drafts": 1.0})
