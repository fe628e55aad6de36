"""Least seconds of a layer's passes on its device, in arrays: [plans, columns, overlaps].

What windows hide is off, lanes that are not used are on, contention (docs/clock.md, rule 7) and the host's time (rule 8) are in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.step.figures import Figures, some
from rackmodel.model.profile import ProfileSpec

Array = NDArray[np.float64]
LANES = ("forward_gather", "backward_gather", "forward_reduce", "reduce", "up", "tail", "spread", "home", "lead", "lag")
Moved = tuple[Array, Array]  # [plans, columns] seconds, and [overlaps] whether a lane beside the device takes them


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What is composed at once. windows, beside: [overlaps] 0 or 1, whether windows, and gathers and gradients beside compute, are used."""

    profile: ProfileSpec
    windows: Array
    beside: Array

    @property
    def gathers(self) -> Array:
        """[overlaps] whether gathers run on a lane of their own."""
        return self.beside * float(self.profile.overlap.weights)

    @property
    def gradients(self) -> Array:
        """[overlaps] whether gradients' reductions do."""
        return self.beside * float(self.profile.overlap.hides_gradients)

    @property
    def shared(self) -> bool:
        """Whether gathers and reductions take turns on one lane."""
        return self.profile.overlap.channels == "shared"


@dataclass(frozen=True)
class DeviceTimes:
    """One pass over one layer. weight: the part of backward that makes weights' gradients · first, last: what the step's first forward
    and last backward pass take longer: loads, what moves once a step where it runs on the device, and the slowing beside it."""

    forward: Array
    backward: Array
    weight: Array
    first: Array
    last: Array


@dataclass(frozen=True)
class Layers:
    """Figures of a model's sections with their device times. has: figures that are not zero everywhere."""

    sections: Sequence[Figures]
    times: tuple[DeviceTimes, ...]
    has: frozenset[str]

    @classmethod
    def of(cls, sections: Sequence[Figures], choices: Choices) -> Layers:
        """Under what is composed at once."""
        has = frozenset(name for name in LANES if any(some(getattr(one, name)) for one in sections))
        return cls(sections, tuple(device_times(one, choices) for one in sections), has)

    def lane(self, name: str) -> list[Array]:
        """A figure of every section, [plans, columns, 1]."""
        return [getattr(one, name)[..., None] for one in self.sections]


def device_times(one: Figures, choices: Choices) -> DeviceTimes:
    """Device seconds of a layer."""
    gathers, gradients = choices.gathers, choices.gradients
    forward = _Pass(choices, one, one.forward, one.forward_hidden)
    forward.weights = [(one.forward_gather, gathers), (one.forward_reduce, gradients)]
    back = one.backward + one.recompute + one.weight
    backward = _Pass(choices, one, back, one.backward_hidden + one.recompute_hidden)
    backward.weights = [(one.backward_gather, gathers), (one.reduce, gradients)]
    backward.others = [(one.up, gradients)]
    ahead, behind = forward.seconds(), backward.seconds()
    first = forward.seconds((one.spread, gathers), loads=one.first)
    last = backward.seconds((one.tail, gradients))
    weight = np.minimum(one.weight[..., None] + np.zeros_like(behind), behind)
    return DeviceTimes(ahead, behind, weight, first - ahead, last - behind)


class _Pass:
    """One pass of a layer. weights: what one lane moves · others: what lanes of their own do."""

    def __init__(self, choices: Choices, one: Figures, seconds: Array, hidden: Array) -> None:
        self.choices, self.host_s = choices, choices.profile.host.layer_s if one.layer else 0.0
        self.contention = choices.profile.overlap.contention
        self.own = seconds[..., None] - choices.windows * (1.0 - self.contention) * hidden[..., None]
        self.weights: list[Moved] = []
        self.others: list[Moved] = []

    def seconds(self, once: Moved | None = None, loads: Array | None = None) -> Array:
        """On the device. once: what moves once a step · loads: on the device, once a step."""
        found = self.own
        for what, beside in (*self.weights, *self.others, *([once] if once is not None else [])):
            if some(what):
                found = found + (1.0 - beside) * what[..., None]
        if loads is not None and some(loads):
            found = found + loads[..., None]
        if self.contention:
            found = found + self.contention * np.minimum(found, self._busiest(once))
        return np.asarray(np.maximum(found, self.host_s))

    def _busiest(self, once: Moved | None) -> Array:
        """Seconds of the busiest lane beside the device."""
        lanes = [beside * what[..., None] for what, beside in self.weights if some(what)]
        lane = sum(lanes, np.zeros(1)) if self.choices.shared else np.maximum.reduce([np.zeros(1), *lanes])
        more = [beside * what[..., None] for what, beside in (*self.others, *([once] if once is not None else [])) if some(what)]
        return np.asarray(np.maximum.reduce([lane, *more]) if more else lane)
