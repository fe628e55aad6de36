"""Uneven cuts and a policy for each layer, over the whole space: the columns that could win, in the order of a bound.

Whatever the cut, 1F1B and GPipe of p stages and m micro-batches take at least

    T >= W / (1 − (1 − 1/m)^p),    W = seconds of one micro-batch through all stages under each layer's fastest policy

(DERIVED: the weights w_i ∝ (1 − 1/m)^(p−1−i) make Σ w_i (Σ_{j<i} t_j + m t_i) the same multiple of every stage's t). Columns are
cut exactly (mapper/stages/stage_cut) while that bound is below the best step known.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.step.bound import compose
from rackmodel.cost.step.cut import cut_by_counts, partition
from rackmodel.cost.step.device_times import Layers, StepChoices, device_times
from rackmodel.cost.step.figures import Figures
from rackmodel.cost.step.group import GroupPrice
from rackmodel.cost.step.memory import BUFFERS
from rackmodel.errors import InfeasibleError
from rackmodel.mapper.mapspace import Group
from rackmodel.mapper.stages.stage_cut import CutAnswer, CutProblem, Ends, best_cut
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.schedules import CHUNKED, SCHEDULES, SPLIT

Array = NDArray[np.float64]
BOUNDED = frozenset(SCHEDULES) - SPLIT - CHUNKED
"""Schedules that the bound above is of: whole backward passes, one chunk a stage."""


@dataclass(frozen=True)
class Candidate:
    """One column whose cut is open. plans: a plan a policy · bound: of the step."""

    group: int
    plans: tuple[int, ...]
    column: int
    overlap: int
    schedule: str
    bound: float


@dataclass(frozen=True)
class FreeCut:
    """A candidate, cut. seconds: a lower bound of the step under this cut · bound: no step of the candidate is faster (the cut is that of
    the fastest pipeline; what follows it is at least that of a device with a fair share of the layers) · fits: whether the step found
    does (a stage's workspaces were bounded one by one)."""

    candidate: Candidate
    answer: CutAnswer
    seconds: float
    bound: float
    joules: float
    memory: float
    fits: bool


def families(group: Group, per_layer: bool) -> list[tuple[int, ...]]:
    """Plans that differ in policy alone, where layers may mix them; else each alone."""
    numbers = range(len(group.variants))
    if not per_layer:
        return [(number,) for number in numbers]

    def rest(number: int) -> tuple[str, int, tuple[str, ...]]:
        variant = group.variants[number]
        return variant.layout, variant.home, variant.offload

    return [tuple(same) for _, same in itertools.groupby(sorted(numbers, key=rest), key=rest)]


def candidates(
    groups: Sequence[Group],
    prices: Sequence[GroupPrice],
    schedules: Sequence[str],
    overlaps: Sequence[tuple[int, int]],
    profile: ProfileSpec,
    per_layer: bool,
) -> Iterator[Candidate]:
    """Every column with a pipeline, with its bound."""
    windows, beside = (np.array([pair[k] for pair in overlaps], dtype=float) for k in (0, 1))
    choices = StepChoices(profile=profile, windows=windows, beside=beside)
    for number, (group, price) in enumerate(zip(groups, prices, strict=True)):
        columns = group.columns
        deep = np.flatnonzero(columns.stages > 1) if not per_layer else np.arange(len(columns))
        layers = sum(repeat for repeat, layer in zip(price.repeats, price.layers, strict=True) if layer)
        deep = deep[columns.stages[deep] <= layers]
        p, m = columns.stages[deep][:, None].astype(float), columns.micro_batches[deep][:, None].astype(float)
        for family in families(group, per_layer):
            total = np.zeros((len(deep), len(overlaps)))
            for section in price.sections:
                own = device_times(section.columns(deep).plans(np.array(family)), choices)
                total = total + section.repeat * (own.forward + own.backward).min(axis=0)
            bound = total / (1.0 - (1.0 - 1.0 / m) ** p)
            for schedule in schedules:
                if schedule in BOUNDED:
                    for at, column in enumerate(deep):
                        for o in range(len(overlaps)):
                            yield Candidate(number, family, int(column), o, schedule, float(bound[at, o]))


def solve(price: GroupPrice, candidate: Candidate, overlap: tuple[int, int], profile: ProfileSpec, capacity: float) -> FreeCut | None:
    """The candidate's best cut and its step; None where no cut fits."""
    choices = StepChoices(profile=profile, windows=np.array([float(overlap[0])]), beside=np.array([float(overlap[1])]))
    column = np.array([candidate.column])
    own = [section.columns(column).plans(np.array(candidate.plans)) for section in price.sections]
    try:
        problem = _problem(price, own, candidate, choices, capacity)
        answer = best_cut(problem)
    except InfeasibleError:
        return None
    split, counts = _expanded(own, answer)
    made = cut_by_counts(counts)
    sends = price.sends.columns(column).plans(np.array([candidate.plans[0]]))
    count = price.columns.micro_batches[column]
    step = compose(Layers.of(split, choices), sends, made, candidate.schedule, count)
    memory = float(step.memory.item())
    fits = memory <= capacity * (1 + 1e-9) and step.host.item() <= price.host_bytes
    least = answer.bound + _least_after(own, problem.fewest, choices)
    return FreeCut(candidate, answer, float(step.seconds.item()), least, float(step.joules.item()), memory, bool(fits))


def _least_after(own: Sequence[Figures], fewest: int, choices: StepChoices) -> float:
    """Seconds that follow the pipeline whatever the cut, on the stage that ends it, which has at least `fewest` layers, of the cheapest
    kind and policy: its optimizer, and its gradients where nothing runs beside them."""
    layers = [section for section in own if section.layer]
    alone = 1.0 - float(choices.gradients[0])
    return fewest * min(float((section.update + alone * section.tail).min()) for section in layers)


def _expanded(own: Sequence[Figures], answer: CutAnswer) -> tuple[list[Figures], NDArray[np.int64]]:
    """Each policy of a section of layers as a section, and [stages, sections] layers of each."""
    dealt = partition([section.layer for section in own], [section.repeat for section in own], answer.mixes)
    split = [replace(own[x].plans(np.array([policy])), repeat=int(where.sum())) for x, policy, where in dealt]
    return split, np.stack([where for *_, where in dealt], axis=1)


def _problem(
    price: GroupPrice, own: Sequence[Figures], candidate: Candidate, choices: StepChoices, capacity: float
) -> CutProblem:
    layers = [section for section in own if section.layer]
    runs = [device_times(section, choices) for section in layers]

    def held(section: Figures, *what: str) -> Array:
        return np.asarray(sum((section.held[name][:, 0] for name in what), np.zeros(len(candidate.plans))))

    def end(first: bool) -> Ends:
        before = True
        found = Ends()
        for section in own:
            if section.layer:
                before = False
            elif before == first:
                run = device_times(section.plans(np.array([0])), choices)
                found = Ends(
                    float(run.forward.item()) * section.repeat,
                    float(run.backward.item()) * section.repeat,
                    float(held(section, "weights", "gradients", "optimizer")[0]) * section.repeat,
                    float(held(section, "activations")[0]),
                    float(held(section, "working", "remade", "gathered")[0]),
                )
        return found

    kinds = tuple(k for k, section in enumerate(layers) for _ in range(section.repeat))
    return CutProblem(
        kinds,
        np.stack([run.forward[:, 0, 0] for run in runs]),
        np.stack([run.backward[:, 0, 0] for run in runs]),
        np.stack([held(section, "activations") for section in layers]),
        np.array([float(held(section, "weights", "gradients", "optimizer").max()) for section in layers]),
        int(price.columns.stages[candidate.column]),
        int(price.columns.micro_batches[candidate.column]),
        working_bytes=np.stack([held(section, "working", "remade") + BUFFERS * held(section, "gathered") for section in layers]),
        joules=np.stack([section.joules[:, 0] for section in layers]),
        capacity_bytes=capacity,
        first=end(True),
        last=end(False),
        send_s=float(price.sends.seconds[candidate.plans[0], candidate.column]),
        sends_overlap=choices.profile.overlap.sends,
        schedule=candidate.schedule,
    )
