"""What a device of a pipeline holds in a step, and the fullest of them (docs/clock.md).

    memory = layers x (weights + gradients + state + caches) + activations in flight + largest workspace + gathered
             + what stages keep of what they hand to each other

Gathered (parameters, and gradients on their way): two units in a row of those that a device runs, a layer and the next, or a layer and the
embedding or the head beside it, which is gathered while that computes (Zhao 2023, section 3.3.2; docs/clock.md, rules 4 and 5). Where a
device has both ends and runs passes that begin with one after passes that end with the other, these are two in a row, too.

Activations in flight: what every chunk of the device holds of its passes under way, at the moment when that is most. Chunks that hold other
layers than each other (cuts that are not even, layers of several kinds, embedding and head) have passes of their own under way.

What stages keep (a profile's `pipeline`; cost/program/kept_between), of m micro-batches and those f that are in flight in a chunk when the
device has most passes under way: m - f of what comes from another stage, m and f of what goes to one, and on the last stage m - 1 of what
the loss reads, or, where that is more than these and the passes under way, twice all m, as they are put together when the step ends.
(Without a backward pass f holds nothing, and all m of what comes stay.)

Arrays are [plans, columns].
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from itertools import pairwise
from operator import add
from typing import TypeVar

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.cost.step.bounds.figures import BETWEEN, AnyFigures, Holding, some
from rackmodel.cost.step.clock.pipeline_orders import (
    BACKWARD,
    FORWARD,
    WHOLE,
    alike,
    fullest_moments,
    held,
    moments,
    order,
    undominated,
)
from rackmodel.cost.step.cut import Cut
from rackmodel.model.schedules import device_of, runs_as
from rackmodel.once import once

Bytes = TypeVar("Bytes", Array, Ints)
IN_FLIGHT = ("activations", "host in flight")
BUFFERS = 2.0  # layers whose parameters are gathered, or gradients on their way, at once, where no embedding or head is wider


def in_flight(schedule: str, stages: int, chunks: int, micro_batches: Ints, device: int) -> Ints:
    """[columns] chunk passes whose activations device `device` holds at most (pipeline_orders)."""
    return held(runs_as(schedule, chunks), stages, micro_batches, chunks, device)


@dataclass
class Known:
    """What calls for the same sections share. steady: layers of each section on a device → what of them no schedule changes · flying: the
    sections whose passes hold some of it, of each of IN_FLIGHT."""

    steady: dict[tuple[int, ...], dict[str, Array]] = field(default_factory=dict)
    flying: dict[str, tuple[int, ...]] = field(default_factory=dict)


def memory_of(
    sections: Sequence[AnyFigures | Holding], cut: Cut, schedule: str, micro_batches: Ints, known: Known | None = None
) -> tuple[Array, Array]:
    """[plans, columns] bytes on the fullest device, and the most that one keeps at the host. known: of these sections, which calls
    share."""
    worst = np.zeros_like(sections[0].held["weights"])
    host = np.zeros_like(worst)
    between = _keep_between(sections)
    devices = _fullest(cut) if between else cut.fullest
    for place, device in enumerate(devices):
        if not between and any(_covers(cut, schedule, micro_batches, before, device) for before in devices[:place]):
            continue
        parts = device_memory(sections, cut, schedule, micro_batches, device, known)
        host = np.maximum(host, parts.pop("host"))
        worst = np.maximum(worst, sum(parts.values(), np.zeros_like(worst)))
    return worst, host


def _covers(cut: Cut, schedule: str, micro_batches: Ints, other: int, device: int) -> bool:
    """Whether another device holds no less, whatever a layer holds: of every section in each of its chunks what each chunk of this one
    has, or more, and as many passes of a chunk under way."""
    chunks, flying = cut.of_chunks(device), (in_flight(schedule, cut.stages, cut.chunks, micro_batches, one) for one in (other, device))
    alike = bool((chunks == chunks[0]).all()) and bool((cut.of_chunks(other) >= chunks).all())
    return alike and bool(np.greater_equal(*flying).all())


def fullest_device(sections: Sequence[AnyFigures | Holding], cut: Cut, schedule: str, micro_batches: Ints) -> dict[str, float]:
    """Bytes by what holds them on the device that holds most, of one plan on one column."""
    found: dict[str, float] = {}
    for device in _fullest(cut) if _keep_between(sections) else cut.fullest:
        parts = device_memory(sections, cut, schedule, micro_batches, device)
        here = {what: float(size.reshape(-1)[0]) for what, size in parts.items() if size.any() and what != "host"}
        if sum(here.values()) > sum(found.values()):
            found = here
    return found


def device_memory(
    sections: Sequence[AnyFigures | Holding], cut: Cut, schedule: str, micro_batches: Ints, device: int, known: Known | None = None
) -> dict[str, Array]:
    """What one device holds, by what: [plans, columns] each; `host` is what it keeps at the host instead. known: as of `memory_of`."""
    counts = tuple(int(count) for count in cut.busy[device])
    known = Known() if known is None else known
    steady = once(known.steady, counts, lambda: _steady(sections, counts))
    kept, away = (_under_way(sections, what, cut, schedule, micro_batches, device, known) for what in IN_FLIGHT)
    host = steady["host"] + away
    stays = {what: steady[what] for what in ("weights", "gradients", "optimizer", "kv_cache")}
    gathered = _gathered(sections, steady, cut, schedule, micro_batches, device)
    found = {**stays, "activations": kept, "host": host, "working": steady["working"], "gathered": gathered}
    if cut.stages > 1 and _keep_between(sections):
        found["between stages"] = _between(sections, cut, schedule, micro_batches, device, kept + steady["working"])
    return found


def kept_between(sections: Sequence[AnyFigures | Holding], cut: Cut, schedule: str, micro_batches: Ints, device: int) -> Array:
    """[plans, columns] bytes that a device keeps of what stages hand to each other, at least: nothing is put together at a step's end."""
    return _between(sections, cut, schedule, micro_batches, device, np.full(1, np.inf))


def _keep_between(sections: Sequence[AnyFigures | Holding]) -> bool:
    """Whether stages keep anything of what they hand to each other."""
    return any(some(one.held[what]) for one in sections for what in BETWEEN)


def _fullest(cut: Cut) -> list[int]:
    """Devices of which one holds most, where they keep that: bytes grow or shrink from one to the next of those whose chunks are equal
    (each has one pass less under way), but for the ends of the pipeline; of several chunks all are looked at."""
    if cut.chunks > 1:
        return list(range(cut.stages))
    last = cut.stages - 1
    ends = {end for first, after in cut.kinds for end in (first, min(first + 1, after), max(first, after - 1), after)}
    return sorted(ends | {0, last})


def _between(
    sections: Sequence[AnyFigures | Holding], cut: Cut, schedule: str, micro_batches: Ints, device: int, under_way: Array
) -> Array:
    """[plans, columns] bytes. under_way: of the device's passes, with their workspace."""
    layers = [one for one in sections if one.layer]
    taken, given, flying = (layers[0].held[what] for what in BETWEEN[:3])
    results = sum((one.held["results"] for one in sections), np.zeros(1))
    reads = sum(layers[0].held[what] for what in IN_FLIGHT) > 0  # whether a pass in flight holds its input
    found = np.zeros_like(taken)
    for chunk, passes in enumerate(_chunks_under_way(schedule, cut, micro_batches, device)):
        virtual = 2 * cut.stages - 1 - device if chunk and cut.folded else chunk * cut.stages + device
        before, after = (_elsewhere(virtual + way, schedule, cut, device) for way in (-1, 1))
        found = found + before * (micro_batches - reads * passes) * taken + after * (micro_batches * given + passes * flying)
        if virtual == cut.stages * cut.chunks - 1:
            ended = 2 * micro_batches * results + before * reads * passes * taken
            found = found + np.maximum((micro_batches - 1) * results, ended - under_way)
    return found


def _elsewhere(virtual: int, schedule: str, cut: Cut, device: int) -> bool:
    """Whether there is such a virtual stage, on another device."""
    return 0 <= virtual < cut.stages * cut.chunks and device_of(virtual, runs_as(schedule, cut.chunks), cut.stages) != device


def _chunks_under_way(schedule: str, cut: Cut, micro_batches: Ints, device: int) -> Sequence[Ints]:
    """[columns] of each chunk of a device its passes under way when the device has most of them."""
    if cut.chunks == 1:
        return [in_flight(schedule, cut.stages, 1, micro_batches, device)]
    counts = alike(schedule, cut.stages, micro_batches)
    most = {count: _most(fullest_moments(schedule, cut.stages, count, cut.chunks, device)) for count in sorted(set(counts.tolist()))}
    return list(np.array([most[count] for count in counts.tolist()]).T)


def _most(moments: Ints) -> Ints:
    """[chunks] passes of the first of those moments at which there are most."""
    return np.asarray(moments[int(moments.sum(axis=1).argmax())])


def least_in_flight(schedule: str, stages: int, chunks: int, micro_batches: Ints, device: int) -> Array:
    """[columns] passes of a layer that are under way at least, at some one moment, whichever chunks a device's layers lie in."""
    if chunks == 1:
        return np.asarray(in_flight(schedule, stages, 1, micro_batches, device), dtype=float)
    counts = alike(schedule, stages, micro_batches)
    fullest = {count: fullest_moments(schedule, stages, count, chunks, device) for count in sorted(set(counts.tolist()))}
    return np.array([float(fullest[count].min(axis=1).max()) for count in counts.tolist()])


def _under_way(
    sections: Sequence[AnyFigures | Holding], what: str, cut: Cut, schedule: str, micro_batches: Ints, device: int, known: Known
) -> Array:
    """[plans, columns] bytes of a device's passes under way, at most."""
    sizes = [one.held[what] for one in sections]
    if what not in known.flying:
        known.flying[what] = tuple(x for x, size in enumerate(sizes) if some(size))
    here, most = known.flying[what], np.zeros_like(sizes[0])
    if not here:
        return most
    chunks = cut.of_chunks(device)[:, list(here)]
    if (chunks == chunks[0]).all():
        flying = in_flight(schedule, cut.stages, cut.chunks, micro_batches, device)
        return sum((sizes[x] * (flying * count) for x, count in zip(here, chunks[0].tolist(), strict=True) if count), most)
    counts = alike(schedule, cut.stages, micro_batches)
    for count in sorted(set(counts.tolist())):
        held_then = _layers_under_way(cut, schedule, count, device, here).tolist()
        then = reduce(np.maximum, (_sum(sizes[x] * n for x, n in zip(here, layers, strict=True) if n) for layers in held_then))
        most = np.where(counts == count, then, most)
    return most


def gathered_at_once(layers: Bytes, ends: Bytes) -> Bytes:
    """Bytes that two units in a row have gathered at most. layers: of the widest layer on a device · ends: of the wider of embedding and
    head there; each 0 where there is none."""
    return layers + np.maximum(layers, ends)


def _gathered(
    sections: Sequence[AnyFigures | Holding], steady: dict[str, Array], cut: Cut, schedule: str, micro_batches: Ints, device: int
) -> Array:
    """[plans, columns] bytes of two units in a row on a device."""
    layers, ends = steady["gathered"], steady["both ends"]
    if not (ends > layers).any():
        return layers
    forward = not any(some(one.held[what]) for one in sections for what in IN_FLIGHT)  # a pass in flight holds its input
    layered = [x for x, one in enumerate(sections) if one.layer]
    here = tuple(bool(count) for count in cut.of_chunks(device)[:, layered].sum(axis=1))
    counts = alike(schedule, cut.stages, micro_batches).tolist()
    meet = np.array([_ends_meet(runs_as(schedule, cut.chunks), cut.stages, m, device, here, forward) for m in counts])
    return np.where(meet, np.maximum(layers, ends), layers)


@lru_cache(maxsize=4096)
def _ends_meet(schedule: str, stages: int, micro_batches: int, device: int, layers: tuple[bool, ...], forward: bool) -> bool:
    """Whether a device that has both ends runs them in a row. layers: whether each of its chunks has any · forward: no pass goes back."""
    plan, last, units = order(schedule, stages, micro_batches, len(layers)), len(layers) - 1, list[str]()
    for kind, chunk in zip(plan.kind[device].tolist(), plan.chunk[device].tolist(), strict=True):
        own = ["embedding"] * (chunk == 0) + ["layers"] * layers[chunk] + ["head"] * (chunk == last)
        if kind == FORWARD:
            units += own
        elif kind in (BACKWARD, WHOLE) and not forward:
            units += own[::-1]
    return any({one, other} == {"embedding", "head"} for one, other in pairwise(units))


def _sum(values: Iterable[Array]) -> Array | float:
    return reduce(add, values, 0.0)


@lru_cache(maxsize=4096)
def _layers_under_way(cut: Cut, schedule: str, micro_batches: int, device: int, sections: tuple[int, ...]) -> Ints:
    """[moments, sections] layers of some sections, as often as passes of them are under way; those moments that may hold most."""
    passes = moments(runs_as(schedule, cut.chunks), cut.stages, micro_batches, cut.chunks, device)
    return undominated(passes @ cut.of_chunks(device)[:, list(sections)])


def _steady(sections: Sequence[AnyFigures | Holding], counts: Sequence[int]) -> dict[str, Array]:
    """What a device holds however its passes are ordered. counts: layers of each section on it."""
    zero = np.zeros_like(sections[0].held["weights"])

    def total(what: str) -> Array:
        return sum((float(count) * one.held[what] for one, count in zip(sections, counts, strict=True) if count), zero)

    found = {what: total(what) for what in ("weights", "gradients", "optimizer", "kv_cache", "host")}
    here = [one for one, count in zip(sections, counts, strict=True) if count]
    found["working"] = np.max(np.stack([one.held["working"] + one.held["remade"] for one in here]), axis=0)
    layers, ends = (reduce(np.maximum, (one.held["gathered"] for one in here if one.layer == layer), zero) for layer in (True, False))
    found["gathered"] = gathered_at_once(layers, ends)
    first, last = sections[0], sections[-1]
    both = bool(counts[0] and counts[-1]) and not (first.layer or last.layer)
    found["both ends"] = first.held["gathered"] + last.held["gathered"] if both else zero
    return found
