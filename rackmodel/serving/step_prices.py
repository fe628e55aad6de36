"""Steps of one model, each distinct one priced once, and those that are wanted before any is looked at priced together."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from rackmodel.arrays import Array
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.serving.steps import STEP_FIELDS, StepFigures, Steps

MOST = 2048  # steps that are priced at once, with their ledger in memory


class Pricing(Protocol):
    """Whatever prices steps."""

    def price(self, steps: Steps) -> StepFigures:
        """Their seconds and joules."""
        ...


class StepPrices:
    """known: a step's fields → its seconds and joules."""

    def __init__(self, model: Pricing) -> None:
        self.model = model
        self.known: dict[bytes, tuple[float, float]] = {}
        self.wanted: dict[bytes, Array] = {}

    def want(self, steps: Steps) -> None:
        """Price these as soon as any are."""
        self.wanted |= {key: one for key, one in _keyed(steps) if key not in self.known}

    def of(self, steps: Steps) -> tuple[Array, Array]:
        """[n] seconds and joules of steps. Raises what the model's price of these does."""
        keys = [key for key, _ in _keyed(steps)]
        if any(key not in self.known for key in keys):
            self.want(steps)
            try:
                self._price()
            except (InputError, InfeasibleError):  # of some that are only wanted, perhaps
                self.wanted.clear()
                self.want(steps)
                self._price()
        seconds, joules = np.array([self.known[key] for key in keys]).reshape(-1, 2).T
        return seconds, joules

    def parts(self) -> list[Steps]:
        """What is wanted, so much together as is priced at once."""
        keys = sorted(self.wanted)
        tables = (np.stack([self.wanted[key] for key in keys[n : n + MOST]], axis=1) for n in range(0, len(keys), MOST))
        return [Steps(**dict(zip(STEP_FIELDS, table, strict=True))) for table in tables]

    def know(self, steps: Steps, figures: StepFigures) -> None:
        """The figures of some steps are these."""
        keys = [key for key, _ in _keyed(steps)]
        self.known |= zip(keys, zip(figures.seconds.tolist(), figures.joules.tolist(), strict=True), strict=True)
        for key in keys:
            self.wanted.pop(key, None)

    def _price(self) -> None:
        for steps in self.parts():
            self.know(steps, self.model.price(steps))


def _keyed(steps: Steps) -> list[tuple[bytes, Array]]:
    table = np.stack([np.asarray(getattr(steps, name), dtype=np.float64) for name in STEP_FIELDS], axis=1)
    return [(one.tobytes(), one) for one in table]
