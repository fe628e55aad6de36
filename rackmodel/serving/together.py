"""Steps of several engines priced at once: models that differ in degrees alone are columns of one, and so are what drafts for them.

What a layer's tasks are, and how each of them is priced, takes as long for two steps as for hundreds. A step's figures depend on no other
step, so that each engine gets what it would have priced by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rackmodel.arrays import Bools
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.serving.drafts import DraftedModel, models_of, parts_of
from rackmodel.serving.engine import ServingEngine
from rackmodel.serving.served_model import ServedModel
from rackmodel.serving.step_parts import StepPart, figures_of, whole_of
from rackmodel.serving.steps import Deployment, StepFigures, Steps

MOST = 2048  # steps that are priced at once, with their ledger in memory
Place = dict[Deployment, int]
"""Deployments of some models → their places in the model of all of them."""


@dataclass(frozen=True)
class _Asked:
    """Steps of an engine. number: among all that are asked · run: as its model runs them · captured: [n] whether as graphs."""

    number: int
    engine: ServingEngine
    model: ServedModel | DraftedModel
    steps: Steps
    run: Steps
    captured: Bools

    @property
    def models(self) -> tuple[ServedModel, ...]:
        """That its steps run."""
        return models_of(self.model)


def priced_together(asked: Sequence[tuple[ServingEngine, Steps]]) -> Iterator[tuple[int, StepFigures]]:
    """(number of what is asked, its figures), of those that can be priced beside others; the rest is left to who asks."""
    groups: list[list[_Asked]] = []
    for number, (engine, steps) in enumerate(asked):
        if isinstance(engine.launched, ServedModel | DraftedModel) and len(steps):
            one = _Asked(number, engine, engine.launched, steps, *engine.as_run(steps))
            own = next((group for group in groups if _all_alike(group[0].models, one.models)), None)
            if own is None:
                groups.append([one])
            else:
                own.append(one)
    for group in groups:
        if len(group) > 1:
            yield from _of_one_model(group)


def _all_alike(some: Sequence[ServedModel], others: Sequence[ServedModel]) -> bool:
    """Whether models, and what drafts for them, differ in deployments alone."""
    return len(some) == len(others) and all(map(_alike, some, others))


def _alike(one: ServedModel, other: ServedModel) -> bool:
    """Whether models differ in deployments alone."""
    things = ((own.workload, own.architecture, own.mapper, own.shared) for own in (one, other))
    same = all(mine is others for mine, others in zip(*things, strict=True))
    return same and (one.reserved_bytes, one.fills, one.profile) == (other.reserved_bytes, other.fills, other.profile)


def _of_one_model(group: Sequence[_Asked]) -> Iterator[tuple[int, StepFigures]]:
    """Figures of models that differ in deployments alone: those of one plan at once."""
    for some in _of_one_plan(group):
        joint = [_joint([asked.models[number] for asked in some]) for number in range(len(some[0].models))]
        for part in _parts(some):
            try:
                yield from _priced(joint, part)
            except (InputError, InfeasibleError):  # of one of them, who says so when it is asked
                continue


def _joint(models: Sequence[ServedModel]) -> tuple[ServedModel, Place]:
    """Models as one of all their deployments, and where these are."""
    place = {one: number for number, one in enumerate(dict.fromkeys(one for own in models for one in own.deployments))}
    first, *others = place
    return replace(models[0], deployment=first, others=tuple(others)), place


def _of_one_plan(group: Sequence[_Asked]) -> Iterator[list[_Asked]]:
    """Those of a plan, where they are more than one: with ranks of sequences or without, and so on."""
    apart: list[tuple[object, list[_Asked]]] = []
    for asked in group:
        if any(model.deployment.prompt_context > 1 for model in asked.models):  # which have a plan of decodes besides
            continue
        try:
            plan = [_plan_of(model) for model in asked.models]
        except (InputError, InfeasibleError):
            continue
        own = next((others for other, others in apart if other == plan), None)
        if own is None:
            apart.append((plan, [asked]))
        else:
            own.append(asked)
    yield from (own for _, own in apart if len(own) > 1)


def _plan_of(model: ServedModel) -> tuple[object, ...]:
    return model.deployment.attention_data > 1, model.deployment.pipeline > 1, [own.plans for own in model.laid_out]


def _parts(asked: Sequence[_Asked]) -> Iterator[list[_Asked]]:
    """As many at once as memory is there for."""
    some: list[_Asked] = []
    for one in asked:
        if some and sum(len(other.steps) for other in some) + len(one.steps) > MOST:
            yield some
            some = []
        some.append(one)
    yield some


def _priced(joint: Sequence[tuple[ServedModel, Place]], asked: Sequence[_Asked]) -> list[tuple[int, StepFigures]]:
    """The figures of each. joint: for each of the models that one runs, that of all of them."""
    each = [[_beside(part, one.models, joint) for part in parts_of(one.model, one.run, one.captured)] for one in asked]
    figures, found = iter(figures_of([part for parts in each for part in parts])), []
    for one, parts in zip(asked, each, strict=True):
        whole = whole_of(parts, [next(figures) for _ in parts])
        found.append((one.number, one.engine.with_host(whole, one.steps)))
    return found


def _beside(part: StepPart, models: Sequence[ServedModel], joint: Sequence[tuple[ServedModel, Place]]) -> StepPart:
    """A part of a step as one of the model that stands for several. models: that the step runs."""
    model, place = next(both for own, both in zip(models, joint, strict=True) if own is part.model)
    meshes = np.array([float(place[deployment]) for deployment in part.model.deployments])
    return replace(part, model=model, steps=replace(part.steps, mesh=meshes[part.steps.mesh.astype(np.int64)]))
