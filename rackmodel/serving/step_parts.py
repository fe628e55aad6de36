"""Parts of steps: what a step runs of each of several models, a model and what drafts for it. Those of one model are priced at once: what a
layer's tasks are, and how each of them is priced, takes as long for two steps as for hundreds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rackmodel.arrays import Array, Bools
from rackmodel.cost.ledger import Ledger
from rackmodel.serving.served_model import ServedModel
from rackmodel.serving.steps import AMOUNTS, StepFigures, Steps


@dataclass(frozen=True, kw_only=True)
class StepPart:
    """n steps of a model. captured: [n] those that run as graphs, None = none that its profile does not say · times: [n] how often each is
    run, None = once."""

    model: ServedModel
    steps: Steps
    captured: Bools | None
    times: Array | None = None


def figures_of(parts: Sequence[StepPart]) -> list[StepFigures]:
    """Of each part, run once. Raises what the models' prices do."""
    found: dict[int, StepFigures] = {}
    for model in {id(part.model): part.model for part in parts}.values():
        own = [number for number, part in enumerate(parts) if part.model is model]
        captured = [flags for number in own if (flags := parts[number].captured) is not None]
        figures = model.price(Steps.joined([parts[number].steps for number in own]), np.concatenate(captured) if captured else None)
        first = 0
        for number in own:
            count = len(parts[number].steps)
            found[number] = figures.at(slice(first, first + count)) if len(own) > 1 else figures
            first += count
    return [found[number] for number in range(len(parts))]


def whole_of(parts: Sequence[StepPart], figures: Sequence[StepFigures]) -> StepFigures:
    """Of steps that are made of some parts. figures: of each of them, run once."""
    each = [own if part.times is None else _times(own, part.times) for part, own in zip(parts, figures, strict=True)]
    return StepFigures(
        seconds=np.asarray(sum(one.seconds for one in each)),
        joules=np.asarray(sum(one.joules for one in each)),
        ledger=Ledger(tuple(row for one in each for row in one.ledger.rows)),
    )


def _times(figures: StepFigures, by: Array) -> StepFigures:
    """The figures of so many [n] steps."""
    rows = tuple(replace(row, **{name: getattr(row, name) * by for name in AMOUNTS}) for row in figures.ledger.rows)
    return StepFigures(seconds=figures.seconds * by, joules=figures.joules * by, ledger=Ledger(rows))
