"""Steps of several engines priced at once: models that differ in degrees alone are columns of one.

What a layer's tasks are, and how each of them is priced, takes as long for two steps as for hundreds. A step's figures depend on no other
step, so that each engine gets what it would have priced by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.ledger import Charge, Ledger
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.serving.engine import ServingEngine
from rackmodel.serving.served_model import ServedModel
from rackmodel.serving.steps import AMOUNTS, Deployment, StepFigures, Steps

MOST = 2048  # steps that are priced at once, with their ledger in memory


@dataclass(frozen=True)
class _Asked:
    """Steps of an engine. number: among all that are asked · run: as its model runs them · captured: [n] whether as graphs."""

    number: int
    engine: ServingEngine
    model: ServedModel
    steps: Steps
    run: Steps
    captured: NDArray[np.bool_]


def priced_together(asked: Sequence[tuple[ServingEngine, Steps]]) -> Iterator[tuple[int, StepFigures]]:
    """(number of what is asked, its figures), of those that can be priced beside others; the rest is left to who asks."""
    groups: list[list[_Asked]] = []
    for number, (engine, steps) in enumerate(asked):
        if isinstance(engine.launched, ServedModel) and len(steps):
            one = _Asked(number, engine, engine.launched, steps, *engine.as_run(steps))
            own = next((group for group in groups if _alike(group[0].model, one.model)), None)
            if own is None:
                groups.append([one])
            else:
                own.append(one)
    for group in groups:
        if len(group) > 1:
            yield from _of_one_model(group)


def _alike(one: ServedModel, other: ServedModel) -> bool:
    """Whether models differ in deployments alone."""
    things = ((own.workload, own.architecture, own.mapper, own.shared) for own in (one, other))
    same = all(mine is others for mine, others in zip(*things, strict=True))
    return same and (one.reserved_bytes, one.fills, one.profile) == (other.reserved_bytes, other.fills, other.profile)


def _of_one_model(group: Sequence[_Asked]) -> Iterator[tuple[int, StepFigures]]:
    """Figures of models that differ in deployments alone: those of one plan at once."""
    for some in _of_one_plan(group):
        own = {one: place for place, one in enumerate(dict.fromkeys(one for asked in some for one in asked.model.deployments))}
        first, *others = own
        joint = replace(some[0].model, deployment=first, others=tuple(others))
        for part in _parts(some):
            try:
                yield from _priced(joint, own, part)
            except (InputError, InfeasibleError):  # of one of them, who says so when it is asked
                continue


def _of_one_plan(group: Sequence[_Asked]) -> Iterator[list[_Asked]]:
    """Those of a plan, where they are more than one: with ranks of sequences or without, and so on."""
    apart: list[tuple[object, list[_Asked]]] = []
    for asked in group:
        one = asked.model.deployment
        if one.prompt_context > 1:  # which have a plan of decodes besides
            continue
        try:
            plan = (one.attention_data > 1, one.pipeline > 1, [own.plans for own in asked.model.laid_out])
        except (InputError, InfeasibleError):
            continue
        own = next((others for other, others in apart if other == plan), None)
        if own is None:
            apart.append((plan, [asked]))
        else:
            own.append(asked)
    yield from (own for _, own in apart if len(own) > 1)


def _parts(asked: Sequence[_Asked]) -> Iterator[list[_Asked]]:
    """As many at once as memory is there for."""
    some: list[_Asked] = []
    for one in asked:
        if some and sum(len(other.steps) for other in some) + len(one.steps) > MOST:
            yield some
            some = []
        some.append(one)
    yield some


def _priced(joint: ServedModel, place: dict[Deployment, int], asked: Sequence[_Asked]) -> list[tuple[int, StepFigures]]:
    """The figures of each. place: of deployments in the model of all of them."""
    runs = []
    for one in asked:
        meshes = np.array([float(place[deployment]) for deployment in one.model.deployments])
        runs.append(replace(one.run, mesh=meshes[one.run.mesh.astype(np.int64)]))
    figures = joint.price(Steps.joined(runs), np.concatenate([one.captured for one in asked]))
    found, first = [], 0
    for one in asked:
        own = slice(first, first + len(one.steps))
        first += len(one.steps)
        part = StepFigures(seconds=figures.seconds[own], joules=figures.joules[own], ledger=_some(figures.ledger, own))
        found.append((one.number, one.engine.with_host(part, one.steps)))
    return found


def _some(ledger: Ledger, own: slice) -> Ledger:
    """That of some of the steps."""

    def charge(row: Charge) -> Charge:
        figures = {name: getattr(row, name) for name in AMOUNTS}
        some = {name: figure[own] if isinstance(figure, np.ndarray) and figure.size > 1 else figure for name, figure in figures.items()}
        return Charge(row.phase, row.einsum, row.tensor, row.level, row.component, row.action, unit=row.unit, **some)

    return Ledger(tuple(charge(row) for row in ledger.rows))
