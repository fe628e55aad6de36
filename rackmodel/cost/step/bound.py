"""Steps in arrays: joules and memory exact, seconds as a lower bound of the clock's (docs/clock.md), tight where stages are equal.

    device    lead + max_j [ layers before j + m (j's layers + hand-overs) ] + what must follow on j + its optimizer
    lane      what a device's weights, up, port or home lane is busy with in the whole step + its optimizer
    chain     the first micro-batch's way through all stages + the last stage's work until the last one's way back + that
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
from rackmodel.cost.step.pipeline_orders import SPLIT, runs_as, weave
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
    weights' gradients · once: what the first and the last micro-batch's passes take longer, beside a step's own traffic."""

    forward: Array
    backward: Array
    weight: Array
    once: Array


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
    host = choices.profile.host.layer_s if one.layer else 0.0
    gathers, gradients = choices.gathers_beside, choices.gradients_beside
    back = one.backward + one.recompute + one.weight
    hidden = one.backward_hidden + one.recompute_hidden
    forward = _on_device(
        choices, one.forward, one.forward_hidden, [(one.forward_gather, gathers), (one.forward_reduce, gradients)], [], (one.spread, gathers)
    )
    backward = _on_device(
        choices, back, hidden, [(one.backward_gather, gathers), (one.reduce, gradients)], [(one.up, gradients)], (one.tail, gradients)
    )
    weight = np.minimum(one.weight[..., None] + np.zeros_like(backward[0]), backward[0])
    once = sum((np.maximum(whole, host) - np.maximum(each, host) for each, whole in (forward, backward)), np.zeros(1))
    return DeviceTimes(np.maximum(forward[0], host), np.maximum(backward[0], host), weight, once)


Moved = tuple[Array, Array]  # [plans, columns] seconds, and [overlaps] whether a lane beside the device takes them


def _on_device(
    choices: Choices, seconds: Array, hidden: Array, weights: Sequence[Moved], others: Sequence[Moved], once: Moved
) -> tuple[Array, Array]:
    """(device seconds of a pass, the same where a step's own traffic is beside it too). weights: on one lane · others: on lanes of their
    own · once: what the first or the last micro-batch moves besides."""
    contention = choices.profile.overlap.contention
    found = seconds[..., None] - choices.windows * (1.0 - contention) * hidden[..., None]
    for what, beside in (*weights, *others):
        if some(what):
            found = found + (1.0 - beside) * what[..., None]
    if not contention:
        return np.asarray(found), np.asarray(found)
    lanes = [beside * what[..., None] for what, beside in weights if some(what)]
    lane = sum(lanes, np.zeros(1)) if choices.profile.overlap.channels == "shared" else np.maximum.reduce([np.zeros(1), *lanes])
    busiest = np.maximum.reduce([lane, *(beside * what[..., None] for what, beside in others if some(what))])
    with_once = np.maximum(busiest, once[1] * once[0][..., None])
    return np.asarray(found + contention * np.minimum(found, busiest)), np.asarray(found + contention * np.minimum(found, with_once))


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
        here = ahead + m * (total(cut.busy[last], both) + waits) + _once(sections, times, cut.busy[last], choices)
        here = here + _warm_up(sections, times, cut, last, schedule, least, choices)
        here = here + _turns(sections, times, cut, last, schedule, m, choices)
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
        if first == 0 and p > 1 and not split:
            chain = _chain(cut, times, m, sends.seconds[..., None], overlapped=overlapped)
            seconds = np.maximum(seconds, lead + chain + after + update)
    assert seconds is not None
    joules = sum((one.repeat * (micro_batches * one.joules + one.joules_once) for one in sections), np.zeros_like(sends.joules))
    joules = joules + 2.0 * (p * v - 1) * micro_batches * sends.joules + (sends.tied_joules if p > 1 else 0.0)
    memory, host = memory_of(sections, cut, schedule, micro_batches)
    return StepBound(seconds=seconds * (1 - ROUNDING), joules=joules[..., None], memory=memory[..., None], host=host[..., None])


def _chain(cut: Cut, times: Sequence[DeviceTimes], m: Array, send: Array, *, overlapped: bool) -> Array:
    """The first micro-batch forward through all stages, what the last stage does from then until the last micro-batch turns back there,
    and that one's way back."""
    p, v = cut.stages, cut.chunks
    both = [one.forward + one.backward for one in times]
    whole = total(cut.counts.sum(axis=0), [pair + one.once for pair, one in zip(both, times, strict=True)])
    before = p * cut.counts[p - 1 : p * (v - 1) : p].sum(axis=0) + cut.counts[-1]  # of the last stage, outside that time
    between = m * total(cut.busy[-1], both) - total(before, both)
    if overlapped:
        return np.asarray(whole + between + 2.0 * (p * v - 1) * send)
    return np.asarray(whole + between + 2.0 * (p * v + m * v - p * (v - 1) - 1) * send)


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


def _once(sections: Sequence[Figures], times: Sequence[DeviceTimes], counts: Ints, choices: Choices) -> Array:
    """What a device does once a step: weights loaded, parameters gathered where nothing runs beside it, and the slowing beside what is
    moved once."""
    found = total(counts, [one.once for one in times])
    if any(some(one.first) for one in sections):
        found = found + total(counts, [one.first[..., None] for one in sections])
    if any(some(one.spread) for one in sections):
        found = found + (1.0 - choices.gathers_beside) * total(counts, [one.spread[..., None] for one in sections])
    return found


def _warm_up(
    sections: Sequence[Figures], times: Sequence[DeviceTimes], cut: Cut, device: int, schedule: str, least: int, choices: Choices
) -> Array:
    """How much longer than the device's work its forward passes before the first backward pass take, where a lane is behind: but for two
    layers, which are under way."""
    if schedule in SPLIT or not any(some(one.forward_gather) or some(one.forward_reduce) for one in sections):
        return np.zeros(1)
    gathers, gradients = choices.gathers_beside, choices.gradients_beside
    moved = [gathers * one.forward_gather[..., None] + gradients * one.forward_reduce[..., None] for one in sections]
    if choices.profile.overlap.channels != "shared":
        moved = [
            np.maximum(gathers * one.forward_gather[..., None], gradients * one.forward_reduce[..., None]) for one in sections
        ]
    lead, _ = weave(runs_as(schedule, cut.chunks), cut.stages, least, cut.chunks, device)
    k = np.arange(int(lead))
    each = np.bincount(k // cut.stages % cut.chunks if cut.chunks > 1 else np.zeros_like(k), minlength=cut.chunks)
    here = np.sum([cut.counts[chunk * cut.stages + device] * count for chunk, count in enumerate(each)], axis=0)
    behind = total(here, moved) - 2.0 * np.maximum.reduce(moved) - total(here, [one.forward for one in times])
    return np.asarray(np.maximum(behind, 0.0))


def _turns(
    sections: Sequence[Figures], times: Sequence[DeviceTimes], cut: Cut, device: int, schedule: str, m: Array, choices: Choices
) -> Array:
    """What a device waits where passes alternate: the first layer of a backward pass is gathered while the last one of the forward pass
    before it runs (rule 4), or the other way round. Of all turns but the first and the last."""
    if schedule in SPLIT or not any(some(one.forward_gather) or some(one.backward_gather) for one in sections):
        return np.zeros(1)
    chunks = [np.flatnonzero(cut.counts[c * cut.stages + device]) for c in range(cut.chunks)]
    if not all(len(chunk) for chunk in chunks):
        return np.zeros(1)
    tops, ends = {int(chunk[-1]) for chunk in chunks}, {int(chunk[0]) for chunk in chunks}

    def least(waits: Sequence[Array]) -> Array:
        return np.asarray(np.maximum(np.minimum.reduce(waits), 0.0))

    down = least([sections[b].backward_gather[..., None] - times[f].forward for b in tops for f in tops])
    up = least([sections[f].forward_gather[..., None] - times[b].backward for b in ends for f in ends])
    lead, _ = weave(runs_as(schedule, cut.chunks), cut.stages, m, cut.chunks, device)
    turns = np.maximum(m * cut.chunks - lead - 1, 0.0)
    return np.asarray(choices.gathers_beside * turns * np.maximum(down, up))


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
    lead, _ = weave(runs_as(schedule, chunks), stages, micro_batches, chunks, device)
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
    up = np.maximum(gradients * m * lane("up"), gathers * gradients * lane("home"))
    return np.asarray(np.maximum(weights, up))
