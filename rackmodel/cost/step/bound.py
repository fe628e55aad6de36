"""Steps in arrays: joules and memory exact, seconds as a lower bound of the clock's (docs/clock.md), tight where stages are equal.

    device    lead + max_j [ layers before j + m (j's layers + hand-overs) ] + what must follow on j + its optimizer
    lane      what a device's weights, up, port or home lane is busy with in the whole step + its optimizer
    follow    lanes outlast the device: at least by the last layer's lag, and by what they must move in the last backward passes (from
              the first chunk's last one on, or from the last forward pass on) less what the device does in them
    energy    layers x (micro-batches x joules + joules a step) + sends + static power x step

Arrays are [plans, columns, overlaps]: plans that differ in layout, recompute, homes or offload; columns of mesh and micro-batch;
on-off combinations of overlap (windows; gathers and gradients). Each term is a path of the step's graph, so none exceeds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.step.cut import Cut
from rackmodel.cost.step.figures import Figures, some
from rackmodel.cost.step.memory import memory_of
from rackmodel.cost.step.pipeline_orders import SPLIT, weave
from rackmodel.model.profile import ProfileSpec

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
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
    """Least seconds of one pass over one layer on the device: [plans, columns, overlaps]. weight: the part of backward that makes
    weights' gradients."""

    forward: Array
    backward: Array
    weight: Array


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


def device_times(one: Figures, choices: Choices) -> DeviceTimes:
    """Device seconds of a layer: what windows hide is off, lanes that are not used are on, contention and the host's time are in."""
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

    back = one.backward + one.recompute + one.weight
    forward = on_device(one.forward, one.forward_hidden, (one.forward_gather, gathers), (one.forward_reduce, gradients))
    backward = on_device(
        back, one.backward_hidden + one.recompute_hidden, (one.backward_gather, gathers), (one.reduce, gradients), (one.up, gradients)
    )
    weight = np.minimum(one.weight[..., None] + np.zeros_like(backward), backward)
    return DeviceTimes(np.maximum(forward, host), np.maximum(backward, host), weight)


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
    """Steps of one pipeline depth, cut and schedule. micro_batches: [columns] · times: of the sections, if known · follows: what calls of
    the same sections share."""
    times = times or [device_times(one, choices) for one in sections]
    m = micro_batches[:, None].astype(np.float64)
    p, v = cut.stages, cut.chunks
    overlapped = choices.profile.overlap.sends
    split = schedule in SPLIT and p > 1
    both = [one.forward + one.backward for one in times]
    hop = 2.0 * sends.seconds[..., None] if p > 1 else np.zeros(1)
    waits = 0.0 if overlapped else v * hop
    least = int(micro_batches.min())
    seconds: Array | None = None
    lead = _lead(sections, cut, choices)
    for first, last in cut.kinds:
        ahead = total(cut.before[last], [one.forward for one in times] if split else both) + last * hop * (0.5 if split else 1.0)
        here = ahead + m * (total(cut.busy[last], both) + waits) + _once(sections, cut.busy[last], choices)
        key = (p, v, schedule, first)
        if follows is None or key not in follows:
            held = sends.seconds[..., None] if p > 1 and not overlapped else np.zeros(1)
            after = _follows(sections, times, cut, first, schedule, least, held, choices)
            if follows is not None:
                follows[key] = after
        else:
            after = follows[key]
        update = total(cut.busy[first], [one.update[..., None] for one in sections])
        path = np.maximum(lead + here + after, _lanes(sections, cut.busy[first], m, choices, p)) + update
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


def _once(sections: Sequence[Figures], counts: Ints, choices: Choices) -> Array:
    """What a device does in the first micro-batch alone: weights loaded, and parameters gathered where nothing runs beside it."""
    found = np.zeros(1)
    if any(some(one.first) for one in sections):
        found = found + total(counts, [one.first[..., None] for one in sections])
    if any(some(one.spread) for one in sections):
        found = found + (1.0 - choices.gathers_beside) * total(counts, [one.spread[..., None] for one in sections])
    return found


def _follows(
    sections: Sequence[Figures], times: Sequence[DeviceTimes], cut: Cut, device: int, schedule: str, least: int, sends: Array, choices: Choices
) -> Array:
    """What must follow the last pass of a device: lanes that outlast it. least: micro-batches, at least · sends: of one hand-over, where
    it holds the device."""
    if not any(some(one.tail) or some(one.lag) or some(one.reduce) or some(one.backward_gather) for one in sections):
        return np.zeros(1)
    gradients = choices.gradients_beside
    tails = total(cut.busy[device], [one.tail[..., None] for one in sections])
    last = next((x for x, count in enumerate(cut.counts[device]) if count), None)
    left = gradients * sections[last].lag[..., None] if last is not None else np.zeros(1)
    for passes, whole in suffixes(schedule, cut.stages, cut.chunks, least, device):
        counts = [cut.counts[chunk * cut.stages + device] * times_ for chunk, times_ in enumerate(passes)]
        here = np.sum(counts, axis=0)
        work = total(here, [time.backward for time in times]) + sum(passes) * sends
        moved = gradients * total(here, [one.reduce[..., None] for one in sections]) + (gradients * tails if whole else 0.0)
        if any(some(one.backward_gather) for one in sections):
            first = np.maximum.reduce([one.backward_gather[..., None] for one in sections])
            gathered = choices.gathers_beside * (total(here, [one.backward_gather[..., None] for one in sections]) - first)
            shared = choices.profile.overlap.channels == "shared"
            moved = moved + gathered if shared else np.maximum(moved, gathered)
        left = np.maximum(left, moved - work)
    return np.asarray(left + (1.0 - gradients) * tails)


@lru_cache(maxsize=4096)
def suffixes(schedule: str, stages: int, chunks: int, micro_batches: int, device: int) -> tuple[tuple[tuple[int, ...], bool], ...]:
    """Backward passes with which a device ends, from two points on: (passes of each chunk, whether every chunk's last one is among them).
    From the first chunk's last pass on, and from the last forward pass on. Of more micro-batches they are the same or more."""
    if schedule in SPLIT:
        return ()
    kind = "interleaved" if chunks > 1 else "1f1b" if schedule == "interleaved" else schedule
    lead, _ = weave(kind, stages, micro_batches, chunks, device)
    found = []
    for count in dict.fromkeys((min((chunks - 1) * stages + 1, micro_batches * chunks), int(lead))):
        k = np.arange(micro_batches * chunks - count, micro_batches * chunks)
        each = np.bincount(chunks - 1 - k // stages % chunks if chunks > 1 else np.zeros_like(k), minlength=chunks)
        found.append((tuple(each.tolist()), count >= (chunks - 1) * stages + 1))
    return tuple(found)


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
