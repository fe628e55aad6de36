"""A training step: layers, micro-batches and the pipeline composed into seconds, joules and bytes.

    layer pass     max(device − hidden + contention · hidden, host), then with its gathers: the longer of the two, or the sum;
                   weights streamed down and gradients streamed up have a direction of the links each: the longest of all,
                   and of what their home's memory takes for both
    pipeline       schedule over p stages and m micro-batches: at least  max_j [layers before j + m · (j's layers + sends)]
    step           pipeline + slowest device's (gradient tail + optimizer + parameters spread) + what a home above keeps it waiting
    tail           of G seconds of reductions beside backward passes of B: max(last layer's, G − (B − one layer's))
    home           its update of U seconds runs as the last gradients arrive, and the first section's gradient and weight make a round
                   trip of R beside that section's backward pass: max(0, U − backward pass) + max(0, R − first section's)
    memory         layers · (weights + gradients + state) + activations in flight + workspace, on the fullest device
    energy         layers · (micro-batches · joules + joules a step) + sends + static power · step

Arrays are [plans, columns, overlaps]: plans that differ in layout, recompute, homes or offload; columns of mesh and
micro-batch; on-off combinations of overlap. The same lines price one mapping. The pipeline's time here is the lower bound of
`cost/pipeline`, exact for equal stages; the answer's is simulated. Sources: Megatron-LM (SC'21), ZeRO (2020), Qi 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.step.cut import Cut
from rackmodel.cost.step.pipeline_orders import SPLIT, held
from rackmodel.cost.step.sections import LayerCost
from rackmodel.model.profile import ProfileSpec

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
HELD = ("weights", "gradients", "optimizer", "activations", "working", "remade", "gathered", "host", "host in flight")


@dataclass(frozen=True)
class Figures:
    """One section's layer for many plans: every figure is [plans, columns]."""

    name: str
    layer: bool
    repeat: int
    forward: Array
    forward_hidden: Array
    forward_gather: Array
    recompute: Array
    recompute_hidden: Array
    backward: Array
    backward_hidden: Array
    weight: Array
    backward_gather: Array
    reduce: Array
    up: Array
    tail: Array
    update: Array
    spread: Array
    home: Array
    round_trip: Array
    port: Array
    joules: Array
    joules_once: Array
    held: dict[str, Array]

    def columns(self, which: NDArray[np.int64]) -> Figures:
        """The same for some columns."""
        return self._picked((slice(None), which))

    def plans(self, which: NDArray[np.int64]) -> Figures:
        """The same for some plans."""
        return self._picked((which,))

    def _picked(self, index: Any) -> Figures:
        arrays: dict[str, Any] = {name: value[index] for name, value in self.__dict__.items() if isinstance(value, np.ndarray)}
        held = {what: value[index] for what, value in self.held.items()}
        return replace(self, held=held, **arrays)


def join(parts: Sequence[Figures]) -> Figures:
    """The columns of several, one after another."""
    first, wide = parts[0], sum(part.joules.shape[1] for part in parts)

    def joined(pieces: list[Array]) -> Array:
        if not any(any(piece.strides) for piece in pieces):  # nothing but zeros
            return np.broadcast_to(pieces[0][:1, :1], (pieces[0].shape[0], wide))
        return np.concatenate(pieces, axis=1)

    arrays: dict[str, Any] = {
        name: joined([getattr(part, name) for part in parts]) for name, value in first.__dict__.items() if isinstance(value, np.ndarray)
    }
    return replace(first, held={what: joined([part.held[what] for part in parts]) for what in first.held}, **arrays)


def figures(costs: Sequence[LayerCost]) -> Figures:
    """Stack the costs of one section under several plans."""

    zero = np.zeros_like(costs[0].device_j)
    none = np.broadcast_to(zero[:1] if len(zero) else zero, (len(costs), len(zero)))  # most figures of most plans: no memory of its own

    def stack(*keys: tuple[str, str]) -> Array:
        if not any(key in cost.seconds for cost in costs for key in keys):
            return none
        return np.stack([cost.time(*keys) for cost in costs])

    def hidden(part: str) -> Array:
        return np.stack([cost.hidden.get(part, zero) for cost in costs]) if any(part in cost.hidden for cost in costs) else none

    def bytes_of(what: str) -> Array:
        return np.stack([cost.held.get(what, zero) for cost in costs]) if any(what in cost.held for cost in costs) else none

    section = costs[0].section
    return Figures(
        section.name,
        section.layer,
        section.repeat,
        stack(("device", "forward"), ("window", "forward")),
        hidden("forward"),
        stack(("gather", "forward")),
        stack(("device", "recompute"), ("window", "recompute")),
        hidden("recompute"),
        stack(("device", "backward"), ("window", "backward")),
        hidden("backward"),
        stack(("device", "weight")),
        stack(("gather", "backward"), ("gather", "recompute")),
        stack(("reduce", "backward")),
        stack(("up", "backward")),
        stack(("tail", "backward")),
        stack(("update", "optimizer")),
        stack(("spread", "optimizer")),
        stack(("home", "optimizer")),
        np.stack([zero + cost.round_trip for cost in costs]) if any(np.any(cost.round_trip) for cost in costs) else none,
        np.stack([zero + cost.port for cost in costs]) if any(np.any(cost.port) for cost in costs) else none,
        np.stack([cost.joules for cost in costs]),
        np.stack([cost.joules_once for cost in costs]),
        {what: bytes_of(what) for what in HELD},
    )


@dataclass(frozen=True)
class Sends:
    """What one hand-over between neighbouring stages costs. seconds, joules: [plans, columns], one direction, one micro-batch ·
    tied, tied_joules: summing the gradient of weights that the first and the last stage share, once a step."""

    seconds: Array
    joules: Array
    tied: Array
    tied_joules: Array

    def columns(self, which: NDArray[np.int64]) -> Sends:
        """The same for some columns."""
        return Sends(*(value[:, which] for value in self.__dict__.values()))

    def plans(self, which: NDArray[np.int64]) -> Sends:
        """The same for some plans."""
        return Sends(*(value[which] for value in self.__dict__.values()))


@dataclass(frozen=True)
class Passes:
    """Seconds of one pass over one layer: [plans, columns, overlaps]. weight: the part of backward that zero-bubble moves."""

    forward: Array
    backward: Array
    weight: Array


@dataclass(frozen=True)
class Step:
    """Figures of a step: [plans, columns, overlaps] or broadcastable. seconds: bound on the whole · pipeline, after: its parts ·
    joules: without static power · memory: bytes on the fullest device · host: bytes that one accelerator keeps at the host."""

    seconds: Array
    pipeline: Array
    after: Array
    joules: Array
    memory: Array
    host: Array


def device_passes(one: Figures, profile: ProfileSpec, hide_activations: Array) -> tuple[Array, Array]:
    """(forward, backward with what is run again) seconds of a layer on the device, less what windows hide: [plans, columns, overlaps]."""
    saved = hide_activations * (1.0 - profile.overlap.contention)
    back, hidden = one.backward + one.recompute + one.weight, one.backward_hidden + one.recompute_hidden
    return (
        np.asarray(one.forward[..., None] - saved * one.forward_hidden[..., None]),
        np.asarray(back[..., None] - saved * hidden[..., None]),
    )


def passes(one: Figures, profile: ProfileSpec, hide_activations: Array, hide_gradients: Array) -> Passes:
    """Passes over one layer. hide_activations, hide_gradients: [overlaps] 0 or 1."""
    overlap = profile.overlap
    host = profile.host.layer_s if one.layer else 0.0
    ahead, behind = device_passes(one, profile, hide_activations)

    def beside(seconds: Array, moved: Array, may: bool) -> Array:
        if not moved.any():
            return seconds
        moved = moved[..., None]
        if not may:
            return np.asarray(seconds + moved)
        together = np.maximum(seconds, moved) + overlap.contention * np.minimum(seconds, moved)
        return np.asarray(np.where(hide_gradients > 0, np.minimum(together, seconds + moved), seconds + moved))

    forward = beside(np.maximum(ahead, host), one.forward_gather, overlap.weights)
    back = np.asarray(np.maximum(behind, host))
    if overlap.weights and overlap.hides_gradients:
        back = beside(back, np.maximum(np.maximum(one.backward_gather + one.reduce, one.up), one.port), True)
    else:
        back = beside(beside(back, one.backward_gather, overlap.weights), one.reduce + one.up, overlap.hides_gradients)
    return Passes(forward, back, np.minimum(one.weight[..., None] + np.zeros_like(back), back))


def in_flight(schedule: str, stages: int, chunks: int, micro_batches: Ints, device: int) -> Ints:
    """[columns] chunk passes whose activations device `device` holds at most (cost/pipeline_orders)."""
    if chunks == 1 and schedule == "interleaved":
        schedule = "1f1b"
    return held(schedule, stages, micro_batches, chunks, device)


def compose(
    sections: Sequence[Figures],
    sends: Sends,
    cut: Cut,
    schedule: str,
    micro_batches: Ints,
    profile: ProfileSpec,
    hide_activations: Array,
    hide_gradients: Array,
    layer_passes: Sequence[Passes] | None = None,
    tails: dict[object, Array] | None = None,
) -> Step:
    """A step for one pipeline depth and cut. micro_batches: [columns]; hide_...: [overlaps] · tails: what calls of the same
    sections share."""
    runs = layer_passes or [passes(one, profile, hide_activations, hide_gradients) for one in sections]
    m = micro_batches[:, None].astype(np.float64)
    p, v = cut.stages, cut.chunks
    split = schedule in SPLIT and p > 1
    both = [run.forward + run.backward for run in runs]
    moved = 2.0 * v * sends.seconds[..., None] if p > 1 else 0.0
    hop = 2.0 * sends.seconds[..., None] if p > 1 else 0.0
    waits = 0.0 if profile.overlap.sends else moved
    pipeline: Array | None = None
    after: Array | None = None
    for first, last in cut.kinds:
        busy = _sum(cut.busy[last], both)
        ahead = _sum(cut.before[last], [run.forward for run in runs] if split else both) + last * hop * (0.5 if split else 1.0)
        here = ahead + m * (busy + waits)
        pipeline = here if pipeline is None else np.maximum(pipeline, here)
        key = (p, v if schedule == "interleaved" else 1, cut.busy[first].tobytes())
        if tails is None or key not in tails:
            tail = sum(tail_parts(sections, runs, cut, first, schedule, profile, hide_gradients), np.zeros(1))
            if tails is not None:
                tails[key] = tail
        else:
            tail = tails[key]
        after = tail if after is None else np.maximum(after, tail)
    assert pipeline is not None
    assert after is not None
    if p > 1:
        after = after + sends.tied[..., None]
    update, pause = home_parts(sections, runs, profile)
    after = after + update + pause
    joules = sum((one.repeat * (micro_batches * one.joules + one.joules_once) for one in sections), np.zeros_like(sends.joules))
    joules = joules + 2.0 * (p * v - 1) * micro_batches * sends.joules + (sends.tied_joules if p > 1 else 0.0)
    memory, host = memory_of(sections, cut, schedule, micro_batches)
    return Step(pipeline + after, pipeline, after, joules[..., None], memory[..., None], host[..., None])


def home_parts(sections: Sequence[Figures], runs: Sequence[Passes], profile: ProfileSpec) -> tuple[Array, Array]:
    """Seconds a step waits for a home above: for the last of its updates, and for the first section's round trip (where nothing
    overlaps every stream has paid its own start-up already)."""
    update, pause = np.zeros(1), np.zeros(1)
    beside_them = profile.overlap.weights and profile.overlap.hides_gradients
    if any(_any(one.home) for one in sections):
        free = (one.repeat * (run.backward - one.port[..., None]) for one, run in zip(sections, runs, strict=True))
        beside = sum(free, np.zeros(1)) if beside_them else np.zeros(1)
        total = sum((one.repeat * one.home for one in sections), np.zeros_like(sections[0].home))
        update = np.maximum(0.0, total[..., None] - beside)
    first = next((x for x, one in enumerate(sections) if _any(one.round_trip)), None)
    if first is not None and beside_them:
        pause = np.maximum(0.0, sections[first].round_trip[..., None] - runs[first].backward)
    return update, pause


def _any(values: Array) -> bool:
    """Whether any is not zero; figures that no plan has are one zero, broadcast (figures)."""
    return bool(any(values.strides) and values.any()) if values.size > 1 else bool(values.any())


def _sum(counts: NDArray[np.int64], values: Sequence[Array]) -> Array:
    total: Array | float = 0.0
    for count, value in zip(counts, values, strict=True):
        if count:
            total = total + float(count) * value
    return np.asarray(total)


def tail_parts(
    sections: Sequence[Figures], runs: Sequence[Passes], cut: Cut, device: int, schedule: str, profile: ProfileSpec, hide_gradients: Array
) -> tuple[Array, Array, Array]:
    """What follows the pipeline on one device: gradients not hidden, the optimizer, parameters not hidden by the next forward.

    A layer's gradients are complete with the last micro-batch; chunk by chunk where the schedule is interleaved, so that the
    reductions have the backward passes of (v−1)·p + 1 micro-batches over a chunk each to hide behind, else of one.
    """
    counts = cut.busy[device]
    present = [x for x, count in enumerate(counts) if count]
    one = next((x for x in present if sections[x].layer), present[0])
    reduced = _sum(counts, [s.tail[..., None] for s in sections])
    spread = _sum(counts, [s.spread[..., None] for s in sections])
    update = _sum(counts, [s.update[..., None] for s in sections])
    chunks = cut.chunks if schedule == "interleaved" else 1
    passes_beside = ((chunks - 1) * cut.stages + 1) / chunks

    def exposed(total: Array, last: Array, side: Sequence[Array]) -> Array:
        on = np.flatnonzero(hide_gradients > 0)
        if not total.any() or not len(on):
            return total
        beside, own = _sum(counts, side)[..., on], side[one][..., on]
        left = np.maximum(total / chunks - beside / chunks, total - passes_beside * beside)
        left += own
        np.clip(left, np.minimum(last, total), total, out=left)
        if profile.overlap.contention:
            left += profile.overlap.contention * (total - left)
        if len(on) == len(hide_gradients):
            return left
        whole = np.broadcast_to(total, (*left.shape[:-1], len(hide_gradients))).copy()
        whole[..., on] = left
        return whole

    if profile.overlap.hides_gradients:
        reduced = exposed(reduced, sections[one].tail[..., None], [run.backward for run in runs])
    if profile.overlap.weights:
        spread = exposed(spread, sections[one].spread[..., None], [run.forward for run in runs])
    return reduced, update, spread


def memory_of(sections: Sequence[Figures], cut: Cut, schedule: str, micro_batches: Ints) -> tuple[Array, Array]:
    """[plans, columns] bytes on the fullest device, and the most that one keeps at the host."""
    worst = np.zeros_like(sections[0].joules)
    host = np.zeros_like(worst)
    for first, _ in cut.kinds:
        parts = device_memory(sections, cut, schedule, micro_batches, first)
        host = np.maximum(host, parts.pop("host"))
        worst = np.maximum(worst, sum(parts.values(), np.zeros_like(worst)))
    return worst, host


def device_memory(sections: Sequence[Figures], cut: Cut, schedule: str, micro_batches: Ints, device: int) -> dict[str, Array]:
    """What one device holds, by what: [plans, columns] each; `host` is what it keeps at the host instead."""
    counts = cut.busy[device]
    found = {
        what: _sum(counts, [one.held[what] for one in sections]) + np.zeros_like(sections[0].joules)
        for what in ("weights", "gradients", "optimizer")
    }
    flying = in_flight(schedule, cut.stages, cut.chunks, micro_batches, device)
    kept = np.zeros_like(sections[0].joules)
    host = _sum(counts, [one.held["host"] for one in sections]) + np.zeros_like(sections[0].joules)
    passed = False
    for one, count in zip(sections, counts, strict=True):
        passed = passed or one.layer
        if count and one.layer:
            kept = kept + one.held["activations"] * (flying * count / cut.chunks)
            host = host + one.held["host in flight"] * (flying * count / cut.chunks)
        elif count:  # the head's backward pass follows its forward pass at once, unless all forward passes come first
            kept = kept + one.held["activations"] * (1.0 if passed and schedule != "gpipe" else np.ceil(flying / cut.chunks))
    found["activations"], found["host"] = kept, host
    here = [one for one, count in zip(sections, counts, strict=True) if count]
    space = [one.held["working"] + one.held["remade"] for one in here]
    found["working"] = np.max(np.stack(space), axis=0)
    found["gathered"] = np.max(np.stack([one.held["gathered"] * (2.0 if one.layer else 1.0) for one in here]), axis=0)
    return found
