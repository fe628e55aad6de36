"""Small cut problems for the open cuts: their clocks, all of their cuts and mixes, and what an answer must keep against them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray

from rackmodel import api
from rackmodel.cost.step.bounds.figures import BETWEEN
from rackmodel.cost.step.bounds.memory import memory_of
from rackmodel.cost.step.clock.clock import StepJobs, step_seconds
from rackmodel.cost.step.cut import cut_by_counts
from rackmodel.cost.step.exact import ExactStep
from rackmodel.cost.step.group import Job
from rackmodel.cost.step.tasks.jobs import DEVICE, PASSES, SPREAD, WEIGHTS, LaneJob, LayerPass
from rackmodel.errors import InfeasibleError
from rackmodel.inputs.read import read_inputs, read_profile
from rackmodel.mapper.listed_choices import PER_LAYER
from rackmodel.mapper.mapping import from_mapping
from rackmodel.mapper.stages.columns import problem_of
from rackmodel.mapper.stages.cut_clock import CutClock
from rackmodel.mapper.stages.cut_problem import CutProblem, Ends, Once, by_policy
from rackmodel.setting import at_pace, local_pricer, setting_of
from tests.one_cut import CutAnswer, best_cut
from tests.step_cases import Maker

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


# --- clocks


def passes(forward: Array, backward: Array, once: dict[str, Array]) -> dict[str, LayerPass]:
    """The passes of a layer: one task on the device; in the first and the last pass what happens once on the lanes of weights."""
    found = {name: LayerPass(name=name) for name in PASSES}
    spread = [LaneJob(lane=SPREAD, seconds=once["spread"])] if once["spread"].any() else []
    tail = [LaneJob(lane=WEIGHTS, seconds=once["tail"], after=(0,))] if once["tail"].any() else []

    def one(name: str, before: list[LaneJob], seconds: Array, after: list[LaneJob]) -> None:
        body = (*before, LaneJob(lane=DEVICE, seconds=seconds, after=tuple(range(len(before)))), *after)
        found[name] = LayerPass(name=name, body=body)

    one("first", spread, forward + once["first"], [])
    one("forward", [], forward, [])
    one("backward", [], backward, [])
    one("last", [], backward + once["last"], tail)
    return found


def _once(of: Once, shape: tuple[int, int], kind: int, policy: int) -> dict[str, Array]:
    return {name: np.array([by_policy(value, shape)[kind, policy]]) for name, value in vars(of).items()}


def clock_of(one: CutProblem) -> CutClock:
    """The clock of a problem: an embedding, a section a kind, a head."""
    kinds = len(one.forward_s)
    allowed = np.isfinite(np.asarray(one.forward_s) + one.backward_s)
    own = None if one.uses is None else POLICIES_EACH
    ends = [0 if one.uses is None else int(np.argmax(one.uses[stage])) for stage in (0, -1)]
    parts, sections, updates = [], [], []

    def add(section: int, policy: int, forward: float, backward: float, once: dict[str, Array]) -> None:
        parts.append((section, policy))
        sections.append(passes(np.array([forward]), np.array([backward]), once))
        updates.append(once["update"])

    add(0, ends[0], one.first.forward_s, one.first.backward_s, _once(one.first.once, (1, 1), 0, 0))
    forward, backward = np.broadcast_arrays(one.forward_s, one.backward_s)
    for k, q in np.argwhere(allowed).tolist():
        add(1 + k, q, float(forward[k, q]), float(backward[k, q]), _once(one.once, allowed.shape, k, q))
    add(1 + kinds, ends[1], one.last.forward_s, one.last.backward_s, _once(one.last.once, (1, 1), 0, 0))
    jobs = _jobs(one, tuple(sections), tuple(updates), np.zeros((one.stages, len(parts)), dtype=np.int64), 1)
    return CutClock(jobs, parts, [False, *[True] * kinds, False], [1] * (kinds + 2), own)


def _jobs(one: CutProblem, sections: tuple[dict[str, LayerPass], ...], updates: tuple[Array, ...], counts: Ints, n: int) -> StepJobs:
    return StepJobs(
        sections=sections,
        counts=counts,
        schedule=one.schedule,
        stages=one.stages,
        chunks=1,
        micro_batches=one.micro_batches,
        backward=True,
        send_s=np.full(n, one.send_s if one.stages > 1 else 0.0),
        sends_overlap=one.sends_overlap,
        update_s=updates,
        tied_s=np.full(n, one.tied_s),
        hops_s=None if one.hops_s is None else np.repeat(np.stack([[*one.hops_s, 0.0], [0.0, *one.hops_s]])[..., None], n, axis=2),
    )


# --- every cut

POLICIES_EACH = 2  # of a layer on accelerators of one kind


def pool_of(one: CutProblem, stage: int) -> int:
    """The kind of accelerators that a stage lies on."""
    return 0 if one.uses is None else int(np.argmax(one.uses[stage])) // POLICIES_EACH


def pooled_problem(seed: int) -> CutProblem:
    """The same with stages on accelerators of two kinds, the second times as slow or as fast, with memory and hand-overs of its own."""
    one, rng = some_problem(seed), np.random.default_rng(10_000 + seed)
    p, times = one.stages, float(rng.choice([0.5, 2.0, 3.0]))
    first = int(rng.integers(0, p + 1))
    pools = np.array([0] * first + [1] * (p - first)) if rng.random() < 0.5 else np.array([1] * first + [0] * (p - first))
    held = {name: getattr(one, name) for name in ("saved_bytes", "working_bytes", "gathered_bytes")}
    both = {name: np.hstack([value] * 2) for name, value in held.items() if value is not None}
    joules = None if one.joules is None else np.hstack([one.joules, one.joules + rng.integers(0, 3)])
    once = {name: value if np.ndim(value) == 0 else np.repeat(value[:, None], 4, axis=1) * 1.0 for name, value in vars(one.once).items()}
    if rng.random() < 0.5 and np.ndim(once["update"]) == 2:
        once["update"] = once["update"] + np.array([0.0, 0.0, 1.0, 1.0])
    return replace(
        one,
        forward_s=np.hstack([one.forward_s, one.forward_s * times]),
        backward_s=np.hstack([one.backward_s, one.backward_s * times]),
        joules=joules,
        state_bytes=np.repeat(one.state_bytes[:, None], 4, axis=1) + np.array([0.0, 0.0, 1.0, 1.0]),
        once=Once(**once),
        uses=(pools[:, None] == np.array([[0, 0, 1, 1]])),
        capacities=np.where(pools == 0, one.capacity_bytes, one.capacity_bytes * float(rng.choice([0.5, 1.0, 1.5]))),
        hops_s=rng.integers(0, 3, p - 1).astype(float) if one.sends_overlap and p > 1 else None,
        **both,
    )


def some_problem(seed: int) -> CutProblem:
    """Small whole numbers, so that ties abound: at most 4 stages, 8 layers of 2 kinds, 2 policies."""
    rng = np.random.default_rng(seed)
    stages = int(rng.integers(1, 5))
    layers = int(rng.integers(stages, 9 if stages < 4 else 8))
    forward = np.repeat(rng.integers(1, 4, (2, 1)), 2, axis=1).astype(float)
    backward = rng.integers(1, 6, (2, 1)) + np.array([[0.0, 1.0]]) * rng.integers(0, 4, (2, 1))
    saved = rng.integers(3, 9, (2, 1)) - np.array([[0.0, 1.0]]) * rng.integers(0, 4, (2, 1))
    ends = [Ends(*(float(x) for x in rng.integers(0, 5, 5))) if rng.random() < 0.5 else Ends() for _ in range(2)]
    return CutProblem(
        kinds=tuple(int(k) for k in (np.sort(rng.integers(0, 2, layers)) if rng.random() < 0.5 else rng.integers(0, 2, layers))),
        forward_s=forward,
        backward_s=backward,
        saved_bytes=saved,
        state_bytes=rng.integers(0, 6, 2).astype(float),
        stages=stages,
        micro_batches=int(rng.integers(1, 9)),
        working_bytes=rng.integers(0, 4, (2, 2)).astype(float),
        joules=None if rng.random() < 0.5 else rng.integers(1, 9, (2, 1)) + np.array([[0.0, 1.0]]) * rng.integers(0, 4, (2, 1)),
        capacity_bytes=float(rng.integers(25, 110)) if rng.random() < 0.8 else math.inf,
        first=ends[0],
        last=ends[1],
        send_s=float(rng.integers(0, 3)) if rng.random() < 0.5 else 0.0,
        sends_overlap=bool(rng.random() < 0.5),
        schedule="1f1b" if rng.random() < 0.9 else "gpipe",
        fewest=int(rng.random() < 0.8),
        gathered_bytes=rng.integers(0, 4, (2, 2)).astype(float) if rng.random() < 0.5 else None,
        once=Once(**{name: rng.integers(0, 4, 2).astype(float) for name in ("first", "last", "update")}) if rng.random() < 0.5 else Once(),
        tied_s=float(rng.integers(0, 3)) if stages > 1 and rng.random() < 0.3 else 0.0,
    )


def stage_choices(
    one: CutProblem, stage: int, run: tuple[int, ...], *, fitting: bool, only: tuple[int, ...] | None = None
) -> list[tuple[float, float, float, float]]:
    """(forward, backward, joules, bytes) of every mix of policies of a run of layers, by the definitions alone. only: one of them."""
    m, p = one.micro_batches, one.stages
    flying = m if one.schedule == "gpipe" else min(m, p - stage)
    own = slice(POLICIES_EACH * pool_of(one, stage), POLICIES_EACH * (pool_of(one, stage) + 1))
    every = one.forward_s + one.backward_s if one.joules is None else one.joules
    forward_s, backward_s, saved, joules = (x[:, own] for x in (one.forward_s, one.backward_s, one.saved_bytes, every))
    state = by_policy(one.state_bytes, one.forward_s.shape)[:, own]
    working, gathered = (np.zeros_like(saved) if x is None else x[:, own] for x in (one.working_bytes, one.gathered_bytes))
    ends = [(one.first, flying)] * (stage == 0) + [(one.last, m if one.schedule == "gpipe" else 1)] * (stage == p - 1)
    found = []
    counts = [run.count(kind) for kind in range(2)]
    for full in [only] if only else itertools.product(*(range(n + 1) for n in counts)):
        use = np.array([[n - x, x] for n, x in zip(counts, full, strict=True)])
        held = float((use * state).sum() + flying * (use * saved).sum())
        held += sum(end.state_bytes + copies * end.saved_bytes for end, copies in ends)
        held += max([0.0, *working[use > 0], *(end.working_bytes for end, _ in ends)])
        layer = max([0.0, *gathered[use > 0]])  # two layers in a row, or one and an end
        held += layer + max([layer, *(end.gathered_bytes for end, _ in ends)])
        forward = float((use * forward_s).sum()) + sum(end.forward_s for end, _ in ends)
        backward = float((use * backward_s).sum()) + sum(end.backward_s for end, _ in ends)
        if held <= one.capacity_of(stage) or not fitting:
            found.append((forward, backward, float((use * joules).sum()), held))
    return found


def cuts(one: CutProblem) -> list[tuple[int, ...]]:
    """Every cut."""
    every = itertools.product(range(one.fewest, len(one.kinds) + 1), repeat=one.stages)
    return [layers for layers in every if sum(layers) == len(one.kinds)]


def runs_of(one: CutProblem, layers: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The layers of each stage of a cut."""
    edges = np.concatenate([[0], np.cumsum(layers)]).tolist()
    return [one.kinds[a:b] for a, b in itertools.pairwise(edges)]


def brute_force(one: CutProblem) -> tuple[float, float, int] | None:
    """(seconds, joules, Σ layers²) of the best of all cuts and mixes by the clock, each stage one layer of its own; None where none fits.

    (So nothing may run beside the device.)"""
    assert not one.once.rows(*one.forward_s.shape)[2:4].any()
    stages, once, ties = [], [], []
    choices = cache(partial(stage_choices, one, fitting=True))
    for layers in cuts(one):
        runs = runs_of(one, layers)
        own = [_once_of(one, i, run) for i, run in enumerate(runs)]
        for mix in itertools.product(*(choices(i, run) for i, run in enumerate(runs))):
            stages.append([stage[:2] for stage in mix])
            once.append(own)
            ties.append((sum(stage[2] for stage in mix), sum(n * n for n in layers)))
    if not stages:
        return None
    times, single = np.array(stages), np.array(once)  # [n, p, 2], [n, p, once]
    found = step_seconds(_whole_stages(one, times, single))
    return min((float(t), *tie) for t, tie in zip(found, ties, strict=True))


def _once_of(one: CutProblem, stage: int, run: tuple[int, ...]) -> list[float]:
    rows = one.once.rows(*one.forward_s.shape)[:, :, POLICIES_EACH * pool_of(one, stage)]
    return [float(sum(row[kind] for kind in run)) for row in rows]


def _whole_stages(one: CutProblem, times: Array, once: Array) -> StepJobs:
    """Steps in which each stage is one layer."""
    names = list(vars(one.once))
    sections, updates = [], []
    for i in range(one.stages):
        here = {name: once[:, i, k] for k, name in enumerate(names)}
        sections.append(passes(times[:, i, 0], times[:, i, 1], here))
        updates.append(here["update"])
    return _jobs(one, tuple(sections), tuple(updates), np.eye(one.stages, dtype=np.int64), len(times))


def least_need(one: CutProblem) -> float:
    """The least capacity for which a cut exists, by trying all."""
    needs = []
    for layers in cuts(one):
        runs = runs_of(one, layers)
        needs.append(max(min(choice[3] for choice in stage_choices(one, i, run, fitting=False)) for i, run in enumerate(runs)))
    return min(needs)


def best(one: CutProblem) -> CutAnswer:
    """The answer."""
    return best_cut(one, clock_of(one))


# --- against every cut, with lanes beside the device


def lanes_problem(seed: int) -> tuple[CutProblem, CutClock]:
    """Random layer passes with jobs on any lane (`step_cases`), of two kinds under two policies and two ends, in no order; few layers."""
    maker = Maker(seed, 1)
    random = maker.random
    jobs = maker.step("1f1b" if seed % 4 else "gpipe")
    stages = int(random.integers(1, 4))
    repeats = [1, *(int(n) for n in random.integers(1, 4 if stages > 2 else 3, 2)), 1]
    while sum(repeats[1:3]) < stages:
        repeats[1] += 1
    parts = [(0, 0), *itertools.product((1, 2), (0, 1)), (3, 0)]
    jobs = replace(
        jobs,
        sections=tuple({name: maker.layer_pass(name) for name in PASSES} for _ in parts),
        counts=np.zeros((stages, len(parts)), dtype=np.int64),
        stages=stages,
        micro_batches=int(random.integers(1, 6)),
        update_s=tuple(maker.seconds(3.0) for _ in parts),
        hops_s=None,
    )
    if maker.chance(0.5):
        hops = np.stack([[maker.seconds() for _ in range(stages)] for _ in range(2)])
        jobs = replace(jobs, hops_s=hops, send_s=hops.min(axis=(0, 1)))
    if seed % 3 == 0:  # policies as they are: each takes no longer than the next
        jobs = replace(jobs, sections=_longer(jobs.sections, parts))
    clock = CutClock(jobs, parts, [False, True, True, False], repeats)
    names = ("weights", "gradients", "optimizer", "activations", "working", "remade", "gathered")
    nothing = dict.fromkeys((*BETWEEN, "host in flight"), np.zeros((2, 1)))
    own = [
        SimpleNamespace(
            repeat=n,
            layer=layer,
            joules=random.uniform(0, 9, (2, 1)),
            held={name: random.integers(0, 5, (2, 1)) * 1.0 for name in names} | nothing,
        )
        for n, layer in zip(repeats, clock.layers, strict=True)
    ]
    for one in own:  # policies do not change these
        for name in ("weights", "gradients", "optimizer"):
            one.held[name][1] = one.held[name][0]
    capacity = math.inf if maker.chance(0.3) else float(random.integers(30, 140))
    return problem_of(clock, [own], capacity), clock  # type: ignore[list-item]


def _longer(sections: tuple[dict[str, LayerPass], ...], parts: list[tuple[int, int]]) -> tuple[dict[str, LayerPass], ...]:
    """Each second policy as the first one, its first task on the device longer in backward passes."""

    def slower(one: LayerPass) -> LayerPass:
        at = next((k for k, job in enumerate(one.body) if job.lane == DEVICE), None)
        if at is None:
            return one
        return replace(one, body=(*one.body[:at], replace(one.body[at], seconds=one.body[at].seconds + 1.0), *one.body[at + 1 :]))

    found = list(sections)
    for number, (_, policy) in enumerate(parts):
        if policy:
            found[number] = {name: slower(one) if name in ("backward", "last") else one for name, one in found[number - 1].items()}
    return tuple(found)


def every_step(one: CutProblem, clock: CutClock) -> Iterator[tuple[float, Ints]]:
    """(seconds, mixes) of every cut and mixes that fit, each a step of its own."""
    for layers in cuts(one):
        runs = runs_of(one, layers)
        for mixes in itertools.product(*(_fitting(one, i, run) for i, run in enumerate(runs))):
            mix = np.array(mixes)
            yield float(step_seconds(replace(clock.jobs, counts=clock.counts(mix)))[0]), mix


def _fitting(one: CutProblem, stage: int, run: tuple[int, ...]) -> list[Array]:
    """Mixes of a run that fit."""
    counts = [run.count(kind) for kind in range(2)]
    found = []
    for full in itertools.product(*(range(n + 1) for n in counts)):
        if any(choice[3] <= one.capacity_bytes for choice in stage_choices(one, stage, run, fitting=False, only=full)):
            found.append(np.array([[n - x, x] for n, x in zip(counts, full, strict=True)]))
    return found


def check_lanes(seed: int) -> bool:
    """Whether a random problem of lanes has a cut; what the search says of it is held against every cut and mix."""
    one, clock = lanes_problem(seed)
    least = min((seconds for seconds, _ in every_step(one, clock)), default=math.inf)
    try:
        answer = best_cut(one, clock)
    except InfeasibleError:
        assert least == math.inf, f"seed {seed}: a cut fits"
        return False
    assert answer.bound <= least * (1 + 1e-9), f"seed {seed}: bound {answer.bound}, a cut takes {least}"
    assert answer.seconds >= least * (1 - 1e-9), f"seed {seed}: found {answer.seconds}, none takes less than {least}"
    assert not answer.proven or answer.seconds <= least * (1 + 1e-8), f"seed {seed}: {answer.seconds} proven, {least} found"
    return True


# --- against every cut, of a model on a machine


def some_search(seed: int) -> tuple[str, str, list[str], str]:
    """(machine, workload, sets, profile) of a small space whose cut is open: one mesh, few layers, memory that may bind."""
    random = np.random.default_rng(seed)
    stages, tensor = int(random.choice([2, 3])), int(random.choice([1, 2]))
    layers, data = int(random.integers(stages, stages + 3)), int(random.choice([1, 2]))
    home = ["", "state: shard", "state: shard, grad: shard", "state: shard, grad: shard, param: shard"]
    sets = [
        f"accelerators={stages * tensor * data}",
        f"axes={{pp: {{degree: {stages}, stages: layers}}, dp: {{degree: {data}}}, tp: {{degree: {tensor}, place: inner}}}}",
        "layouts={tensor: {}}",
        f"homes={{weights: {{axes: [dp], {random.choice(home)}}}}}" if data > 1 else "homes={weights: {}}",
        f"layers={layers}",
        f"b={data * int(random.integers(1, 6))}",
        "micro_batch=1",
        "overlap=profile",
        f"schedule={random.choice(['1f1b', 'gpipe'])}",
        f"gpu.memory.capacity={float(random.uniform(8, 60)) / tensor:.3g} GB",
    ]
    return str(random.choice(["dgx_h100", "dgx_a100"])), "gpt_22b", sets, str(random.choice(["ideal", "megatron_core"]))


def check_machine(seed: int) -> bool:
    """Whether something fits; every cut and mix of the space is held against the search, the fastest one evaluated as a mapping file."""
    machine, workload, sets, profile = some_search(seed)
    given = read_inputs(machine, workload, mapper="megatron_cut", sets=tuple(sets))
    try:
        result = api.search(machine, workload, "megatron_cut", sets=sets, profile=profile).result
    except InfeasibleError:
        return False
    certificate, step = result.certificate, result.mapping.step
    columns, structure, _ = from_mapping(result.mapping, given.workload)
    plan = structure.parts[0][1]
    sections = enumerate(given.workload.sections)
    parts = tuple((x, replace(plan, recompute=policy)) for x, s in sections for policy in (PER_LAYER if s.layer else ("none",)))
    asked = read_profile(profile)
    inside = at_pace(local_pricer(asked), given.architecture, given.workload, asked)
    setting = setting_of(given.architecture, asked, step.algorithms, inside)
    job = Job(setting=setting, workload=given.workload, profile=asked)
    memory, stages = given.architecture.accelerator.memory, step.pipeline.degree
    capacity = memory.capacity_bytes * memory.visible - asked.reserved_bytes
    empty = cut_by_counts(np.zeros((stages, len(parts)), dtype=np.int64))
    priced = ExactStep(job, replace(structure, parts=parts, cut=empty), columns)
    least, fastest = math.inf, None
    for mixes in _every_mix(stages, given.workload.layers):
        counts = np.array([[int(i == 0), *mix, int(i == stages - 1)] for i, mix in enumerate(mixes)])
        made = cut_by_counts(counts)
        if memory_of(priced.figures, made, step.schedule, columns.micro_batches)[0].item() > capacity:
            continue
        seconds = float(step_seconds(replace(priced.jobs, counts=counts))[0])
        least, fastest = min((least, fastest), (seconds, mixes), key=lambda one: one[0])
    assert fastest is not None
    named = [{"block": {policy: n for policy, n in zip(PER_LAYER, mix, strict=True) if n}} for mix in fastest]
    changed = step.model_copy(update={"mixes": named, "layers": [sum(mix) for mix in fastest]})
    again = api.evaluate_mapping(given.architecture, given.workload, result.mapping.model_copy(update={"step": changed}))
    assert math.isclose(again.latency_s, least, rel_tol=1e-9), f"seed {seed}: {fastest} takes {least} or {again.latency_s}"
    assert certificate.bound <= least * (1 + 1e-9), f"seed {seed}: bound {certificate.bound}, a cut takes {least}"
    assert (result.latency_s - least) / result.latency_s <= certificate.gap + 1e-9, f"seed {seed}: {result.latency_s}, {least} exists"
    return True


def _every_mix(stages: int, layers: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """(stage → policy → layers) of every cut."""
    own = [mix for mix in itertools.product(range(layers + 1), repeat=len(PER_LAYER)) if 0 < sum(mix) <= layers]
    for mixes in itertools.product(own, repeat=stages):
        if sum(map(sum, mixes)) == layers:
            yield mixes
