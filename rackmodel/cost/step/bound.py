"""Steps in arrays: joules and memory exact, seconds as a lower bound of the clock's (docs/clock.md), tight where stages are equal.

    device    lead + forward through the stages before j + m (j's layers + hand-overs) + what happens once on j + the way out of j
    way out   j's gradients after its last backward pass + its optimizer, or back to a stage before j and out of that one
    lane      what a device's weights, up, port or home lane is busy with in the whole step + its optimizer
    energy    layers x (micro-batches x joules + joules a step) + sends + static power x step

The bound is the longest of these over devices j. Gradients reduced beside the last backward pass end at least the last layer's lag
after it, and at least all of them less that pass. Arrays are [plans, columns, overlaps]: plans that differ in layout, recompute, homes
or offload; columns of mesh and micro-batch; on-off combinations of overlap (windows; gathers and gradients). Each term is a path of
the step's graph, so none exceeds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.step.cut import Cut
from rackmodel.cost.step.figures import Figures, some
from rackmodel.cost.step.memory import memory_of
from rackmodel.cost.step.pipeline_orders import SPLIT
from rackmodel.model.profile import ProfileSpec

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
MAY_WAIT = ("backward_gather", "reduce", "forward_reduce", "up")  # lanes for which a device may stop in its last backward pass
ROUNDING = 1e-12  # taken off: the clock sums the same path in another order


@dataclass(frozen=True, kw_only=True)
class Sends:
    """What one hand-over between neighbouring stages costs. seconds, joules: [plans, columns], one direction, one micro-batch ·
    tied, tied_joules: summing the gradient of weights that the first and the last stage share, once a step."""

    seconds: Array
    joules: Array
    tied: Array
    tied_joules: Array

    def columns(self, which: Ints) -> Sends:
        """The same for some columns."""
        return Sends(**{name: value[:, which] for name, value in self.__dict__.items()})

    def plans(self, which: Ints) -> Sends:
        """The same for some plans."""
        return Sends(**{name: value[which] for name, value in self.__dict__.items()})


@dataclass(frozen=True)
class DeviceTimes:
    """Least seconds of one pass over one layer on the device: [plans, columns, overlaps]. first, last: what the first forward pass
    (loads, and gathers after the optimizer) and the last backward pass (gradients summed over the micro-batches) take longer, where
    those run on the device."""

    forward: Array
    backward: Array
    first: Array
    last: Array


@dataclass(frozen=True, kw_only=True)
class StepBound:
    """Of steps: [plans, columns, overlaps] or broadcastable. seconds: a lower bound · joules: without static power · memory: bytes on
    the fullest device · host: bytes that one accelerator keeps at the host."""

    seconds: Array
    joules: Array
    memory: Array
    host: Array


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What is composed at once. windows, beside: [overlaps] 0 or 1, whether windows, and gathers and gradients beside compute, are used."""

    profile: ProfileSpec
    windows: Array
    beside: Array

    @property
    def gathers_beside(self) -> Array:
        """[overlaps] whether gathers run on a lane of their own."""
        return self.beside * float(self.profile.overlap.weights)

    @property
    def gradients_beside(self) -> Array:
        """[overlaps] whether gradients' reductions do."""
        return self.beside * float(self.profile.overlap.hides_gradients)


def device_times(one: Figures, choices: Choices, *, split: bool = False) -> DeviceTimes:
    """Device seconds of a layer: what windows hide is off, lanes that are not used are on, contention and the host's time are in.
    split: weights' gradients have a pass of their own."""
    overlap = choices.profile.overlap
    saved = choices.windows * (1.0 - overlap.contention)
    host = choices.profile.host.layer_s if one.layer else 0.0
    gathers, gradients = choices.gathers_beside, choices.gradients_beside

    def on_device(seconds: Array, hidden: Array, *moved: tuple[Array, Array]) -> Array:
        found = seconds[..., None] - saved * hidden[..., None]
        lanes: list[Array] = []
        for what, beside in moved:
            if some(what):
                found = found + (1.0 - beside) * what[..., None]
                lanes.append(beside * what[..., None])
        if overlap.contention and lanes:
            found = found + overlap.contention * np.minimum(found, np.maximum.reduce(lanes))
        return np.asarray(found)

    def longer(seconds: Array, usual: Array, *more: tuple[Array, Array]) -> Array:
        """What some things that happen once add to a pass; the host's time may cover them."""
        found = np.zeros(1)
        for what, share in more:
            if some(what):
                found = found + share * what[..., None]
        return np.asarray(np.maximum(seconds + found, host) - usual) if found.any() else found

    forward = on_device(one.forward, one.forward_hidden, (one.forward_gather, gathers), (one.forward_reduce, gradients))
    back, gathered = one.backward + one.recompute, (one.backward_gather, gathers)
    hidden, reduced = one.backward_hidden + one.recompute_hidden, ((one.reduce, gradients), (one.up, gradients))
    backward = on_device(back, hidden, gathered) if split else on_device(back + one.weight, hidden, gathered, *reduced)
    usual = np.maximum(forward, host), np.maximum(backward, host)
    first = longer(forward, usual[0], (one.first, np.ones(1)), (one.spread, 1.0 - gathers))
    last = longer(backward, usual[1], (one.tail, 1.0 - gradients))
    if split:
        usual = usual[0], usual[1] + on_device(one.weight, np.zeros_like(one.weight), *reduced)
    return DeviceTimes(*usual, first, last)


def compose(
    sections: Sequence[Figures],
    sends: Sends,
    cut: Cut,
    schedule: str,
    micro_batches: Ints,
    choices: Choices,
    times: Sequence[DeviceTimes] | None = None,
    follows: dict[object, Array] | None = None,
) -> StepBound:
    """Steps of one pipeline depth, cut and schedule. micro_batches: [columns] · times: `device_times` of the sections for such a
    schedule, if known · follows: what calls of the same sections share."""
    split = schedule in SPLIT
    times = times or [device_times(one, choices, split=split) for one in sections]
    m = micro_batches[:, None].astype(np.float64)
    p, v = cut.stages, cut.chunks
    overlapped = choices.profile.overlap.sends
    both = [one.forward + one.backward for one in times]
    hop = 2.0 * sends.seconds[..., None] if p > 1 else np.zeros(1)
    waits = 0.0 if overlapped else v * hop
    seconds: Array | None = None
    forward, back = [one.forward for one in times], [one.backward + one.last for one in times]
    lead = _lead(sections, cut, choices)
    out: Array | None = None  # the way out of the device before
    for number, (first, last) in enumerate(cut.kinds):
        counts = cut.busy[last]
        key = (split, v if schedule == "interleaved" else 1, counts.tobytes(), cut.counts[first].tobytes())
        if follows is None or key not in follows:
            after = _follows(sections, times, cut, first, choices)
            if follows is not None:
                follows[key] = after
        else:
            after = follows[key]
        update = total(counts, [one.update[..., None] for one in sections])
        if p > 1 and not overlapped and not split:
            after = np.maximum(after - hop * 0.5, 0.0)  # the last hand-over holds the device while gradients are reduced
        own = after + update
        if not split:  # backward passes of the stages before follow
            own = own + total(cut.before[last] - cut.before[first], back) + (last - first) * hop * 0.5
            if out is not None:
                before = cut.kinds[number - 1][1]
                own = np.maximum(own, out + total(cut.before[last] - cut.before[before], back) + (last - before) * hop * 0.5)
        out = own
        ahead = lead + total(cut.before[last], forward) + total(cut.before[last], [one.first for one in times]) + last * hop * 0.5
        once = total(counts, [one.first + one.last for one in times])
        path = ahead + m * (total(counts, both) + waits) + once + own
        path = np.maximum(path, _lanes(sections, counts, m, choices, p) + update)
        seconds = path if seconds is None else np.maximum(seconds, path)
    assert seconds is not None
    joules = sum((one.repeat * (micro_batches * one.joules + one.joules_once) for one in sections), np.zeros_like(sends.joules))
    joules = joules + 2.0 * (p * v - 1) * micro_batches * sends.joules + (sends.tied_joules if p > 1 else 0.0)
    memory, host = memory_of(sections, cut, schedule, micro_batches)
    return StepBound(seconds=seconds * (1 - ROUNDING), joules=joules[..., None], memory=memory[..., None], host=host[..., None])


def total(counts: Ints, values: Sequence[Array]) -> Array:
    """Σ counts x values; zero where there are none."""
    found: Array | float = 0.0
    for count, value in zip(counts, values, strict=True):
        if count:
            found = found + float(count) * value
    return np.asarray(found)


def _lead(sections: Sequence[Figures], cut: Cut, choices: Choices) -> Array:
    """What the first layer of all waits for its gathers."""
    first = next((one for one, count in zip(sections, cut.counts[0], strict=True) if count), None)
    return np.asarray(choices.gathers_beside * first.lead[..., None] if first is not None and some(first.lead) else np.zeros(1))


def _follows(sections: Sequence[Figures], times: Sequence[DeviceTimes], cut: Cut, device: int, choices: Choices) -> Array:
    """What must follow the last backward pass of a device: gradients that were summed over the micro-batches, reduced beside it."""
    if not any(some(one.tail) or some(one.lag) for one in sections):
        return np.zeros(1)
    slow = 1.0 + choices.profile.overlap.contention
    counts = cut.counts[device]
    present = [x for x, count in enumerate(counts) if count]
    left = sections[present[0]].lag[..., None] if present else np.zeros(1)
    own = total(counts, [one.tail[..., None] for one in sections])
    behind = total(counts, [slow * time.backward for time in times])
    waits = [getattr(one, lane) for one in sections for lane in MAY_WAIT if some(getattr(one, lane))]
    free = np.logical_and.reduce([lane[..., None] == 0 for lane in waits]) if waits else True
    left = np.maximum(left, np.where(free, own - behind, 0.0))
    return np.asarray(choices.gradients_beside * left)


def _lanes(sections: Sequence[Figures], counts: Ints, m: Array, choices: Choices, stages: int) -> Array:
    """What the busiest lane of a device beside the device itself does in a step."""
    gathers, gradients = choices.gathers_beside, choices.gradients_beside

    def lane(what: str) -> Array:
        if not any(some(getattr(one, what)) for one in sections):
            return np.zeros(1)
        return total(counts, [getattr(one, what)[..., None] for one in sections])

    gathered = gathers * (m * (lane("forward_gather") + lane("backward_gather")) + lane("spread"))
    reduced = gradients * (m * (lane("reduce") + lane("forward_reduce")) + lane("tail"))
    shared = choices.profile.overlap.channels == "shared" and choices.profile.overlap.weights
    weights = gathered + reduced if shared else np.maximum(gathered, reduced)
    up = np.maximum(gradients * m * lane("up"), gathers * gradients * np.maximum(m * lane("port"), lane("home")))
    return np.asarray(np.maximum(weights, up))
