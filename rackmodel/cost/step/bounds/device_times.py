"""Least seconds of a layer's passes on its device, in arrays: [plans, columns, overlaps].

What windows hide is off, lanes that are not used are on, contention (docs/clock.md, rule 7) and the host's time (rule 8) are in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.cost.step.bounds.figures import AnyFigures, some
from rackmodel.model.profile import ProfileSpec
from rackmodel.once import once

LANES = (
    *("forward_gather", "backward_gather", "forward_reduce", "reduce", "up", "tail", "spread", "home"),
    *("lead", "lag", "lag_apart", "forward_wait", "backward_wait"),
)
GATHERED = ("forward_gather", "backward_gather", "spread", "lead", "forward_wait", "backward_wait")
REDUCED = ("forward_reduce", "reduce", "up", "tail", "lag", "lag_apart")
NONE = np.zeros(1)
Moved = tuple[Array, Array]  # [plans, columns] seconds, and [overlaps] whether a lane beside the device takes them


@dataclass(frozen=True, kw_only=True)
class StepChoices:
    """What is composed at once. windows, beside: [overlaps] 0 or 1, whether windows, and gathers and gradients beside compute, are used."""

    profile: ProfileSpec
    windows: Array
    beside: Array

    @classmethod
    def of(cls, profile: ProfileSpec, overlaps: Sequence[tuple[int, int]]) -> StepChoices:
        """Of (windows, beside) pairs."""
        windows, beside = (np.array([pair[k] for pair in overlaps], dtype=float) for k in (0, 1))
        return cls(profile=profile, windows=windows, beside=beside)

    @property
    def gathers(self) -> Array:
        """[overlaps] whether gathers run on a lane of their own."""
        return self.beside * float(self.profile.overlap.weights)

    @property
    def gradients(self) -> Array:
        """[overlaps] whether gradients' reductions do."""
        return self.beside * float(self.profile.overlap.hides_gradients)

    def fastest(self, *, moving: bool) -> StepChoices:
        """Those among which the device's own work is shortest: with windows, where they may be used (what they hide is time less), and
        where no lane beside the device moves anything, any one of these. moving: whether some lane does."""
        some = self.windows == self.windows.max() if moving else np.arange(len(self.windows)) == np.argmax(self.windows)
        return replace(self, windows=self.windows[some], beside=self.beside[some])

    @property
    def shared(self) -> bool:
        """Whether gathers and reductions take turns on one lane."""
        return self.profile.overlap.channels == "shared"


@dataclass(frozen=True)
class DeviceTimes:
    """One pass over one layer. first, last: what the step's first forward and last backward pass take longer: loads, what moves once a
    step where it runs on the device, and the slowing beside it · weight: the part of `backward` that is a pass of its own, the one
    that then takes longer at last."""

    forward: Array
    backward: Array
    first: Array
    last: Array
    weight: Array


@dataclass(frozen=True)
class Layers:
    """Figures of a model's sections, and their device times. has: figures that are not zero everywhere · known: lanes, and passes: device
    times known so far, of schedules that run a backward pass whole (False) and of those that split it (True)."""

    sections: Sequence[AnyFigures]
    choices: StepChoices
    has: frozenset[str]
    known: dict[str, list[Array]] = field(default_factory=dict, compare=False, repr=False)
    passes: dict[bool, tuple[DeviceTimes, ...]] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, sections: Sequence[AnyFigures], choices: StepChoices) -> Layers:
        """Under what is composed at once."""
        return cls(sections, choices, frozenset(name for name in LANES if any(one.has(name) for one in sections)))

    def cells(self, plans: Ints, columns: Ints) -> Layers:
        """The same for some pairs of a plan and a column: [cells, overlaps]."""
        return Layers([one.cells(plans, columns) for one in self.sections], self.choices, self.has)

    @property
    def back(self) -> bool:
        """Whether some layer takes time in backward passes."""
        return any(some(one.backward) or some(one.weight) or some(one.recompute) for one in self.sections)

    def times(self, *, split: bool) -> tuple[DeviceTimes, ...]:
        """Device times of a layer of each section. split: weights' gradients have passes of their own."""
        return once(self.passes, split, lambda: tuple(device_times(one, self.choices, split=split) for one in self.sections))

    def lane(self, name: str) -> list[Array]:
        """A figure of every section as it loads a lane beside the device: [plans, columns, overlaps]. Remembered."""
        if name not in self.known:
            beside = self.choices.gathers if name in GATHERED else self.choices.gradients if name in REDUCED else np.ones(1)
            alone = bool((beside == 1.0).all())
            if name == "update":
                self.known[name] = self._updates()
                return self.known[name]
            values = self._moved(name)
            self.known[name] = [value[..., None] if alone else beside * value[..., None] for value in values]
        return self.known[name]

    def _updates(self) -> list[Array]:
        """The optimizer, and what is reduced or gathered once a step where nothing moves beside the device."""
        found = [update[..., None] for update in self._moved("update")]
        for name, beside in (("spread", self.choices.gathers), ("tail", self.choices.gradients)):
            if name in self.has:
                found = [update + (1.0 - beside) * moved[..., None] for update, moved in zip(found, self._moved(name), strict=True)]
        return found

    def _moved(self, name: str) -> list[Array]:
        """A figure of every section: [plans, columns], or [cells]; one zero where a section has none of it."""
        return [value if some(value) else NONE for value in (getattr(one, name) for one in self.sections)]

    def lanes(self, *names: str) -> list[Array]:
        """Several on one lane, or the longest where each has its own. Remembered."""
        if len(names) == 1:
            return self.lane(names[0])
        key = "+".join(names)
        if key not in self.known:
            both = zip(*(self.lane(name) for name in names), strict=True)
            self.known[key] = [sum(pair[1:], pair[0]) if self.choices.shared else longest(pair) for pair in both]
        return self.known[key]


def device_times(one: AnyFigures, choices: StepChoices, *, split: bool = False) -> DeviceTimes:
    """Device seconds of a layer. split: weights' gradients have a pass of their own, to which no host time applies."""
    gathers, gradients = choices.gathers, choices.gradients
    hidden = one.backward_hidden + one.recompute_hidden
    host, none = choices.profile.host, np.zeros(1)
    forward_host_s = host.seconds(one.launches_forward, backward=False)[..., None] if one.layer else none
    launched = one.launches_backward + (0.0 if split else one.launches_weight)
    work = one.backward + one.recompute + (0.0 if split else one.weight)
    runs = (work > 0) | (launched > 0)  # (a pass of nothing takes no time of the host)
    backward_host_s = np.where(runs, host.seconds(launched, backward=True), 0.0)[..., None] if one.layer else none
    forward = _Pass(choices, forward_host_s, one.forward, one.forward_hidden)
    forward.weights = _moving((one.forward_gather, gathers), (one.forward_reduce, gradients))
    gather, reduced = _moving((one.backward_gather, gathers)), _moving((one.reduce, gradients))
    up = _moving((one.up, gradients))
    backward = _Pass(choices, backward_host_s, work, hidden)
    backward.weights, backward.others = (gather, []) if split else (gather + reduced, up)
    ahead, behind = forward.seconds(), backward.seconds()
    first = forward.seconds((one.spread, gathers), loads=one.first) - ahead
    if not split:
        return DeviceTimes(ahead, behind, first, backward.seconds((one.tail, gradients)) - behind, none)
    weight = _Pass(choices, none, one.weight, np.zeros_like(one.weight))
    weight.weights, weight.others = reduced, up
    more = weight.seconds()
    return DeviceTimes(ahead, behind + more, first, weight.seconds((one.tail, gradients)) - more, more)


def _moving(*moved: Moved) -> list[Moved]:
    """Those that are not nothing."""
    return [(what, beside) for what, beside in moved if some(what)]


class _Pass:
    """One pass of a layer. weights: what one lane moves · others: what lanes of their own do."""

    def __init__(self, choices: StepChoices, host_s: Array, seconds: Array, hidden: Array) -> None:
        self.choices, self.host_s = choices, host_s
        self.contention = choices.profile.overlap.contention
        self.own = seconds[..., None] - choices.windows * (1.0 - self.contention) * hidden[..., None]
        self.weights: list[Moved] = []
        self.others: list[Moved] = []

    def seconds(self, once: Moved | None = None, loads: Array | None = None) -> Array:
        """On the device. once: what moves once a step, beside it (else it is done with the update) · loads: on the device, once a step."""
        found = self.own
        for what, beside in (*self.weights, *self.others):
            found = found + (1.0 - beside) * what[..., None]
        if loads is not None and some(loads):
            found = found + loads[..., None]
        if self.contention:
            found = found + self.contention * np.minimum(found, self._busiest(once))
        return np.asarray(np.maximum(found, self.host_s))

    def _busiest(self, once: Moved | None) -> Array:
        """Seconds of the busiest lane beside the device."""
        lanes = [beside * what[..., None] for what, beside in self.weights]
        lane = sum(lanes, np.zeros(1)) if self.choices.shared else longest(lanes)
        more = [beside * what[..., None] for what, beside in (*self.others, *([] if once is None else _moving(once)))]
        return longest([lane, *more])


def longest(values: Sequence[Array]) -> Array:
    """The largest of arrays that broadcast; 0 of none."""
    return reduce(np.maximum, values, np.zeros(1))


def shortest(values: Sequence[Array]) -> Array:
    """The smallest of arrays that broadcast."""
    return reduce(np.minimum, values)
