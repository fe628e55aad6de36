"""What a device of a pipeline holds in a step, and the fullest of them (docs/clock.md).

    memory = layers x (weights + gradients + state + caches) + activations in flight + largest workspace + two layers' gathered

Arrays are [plans, columns].
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.step.cut import Cut
from rackmodel.cost.step.figures import AnyFigures, Holding
from rackmodel.cost.step.pipeline_orders import held
from rackmodel.model.schedules import TABLE, runs_as

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
BUFFERS = 2.0  # layers whose parameters are gathered, or gradients on their way, at once


def in_flight(schedule: str, stages: int, chunks: int, micro_batches: Ints, device: int) -> Ints:
    """[columns] chunk passes whose activations device `device` holds at most (pipeline_orders)."""
    return held(runs_as(schedule, chunks), stages, micro_batches, chunks, device)


Known = dict[tuple[int, ...], dict[str, Array]]
"""Layers of each section on a device → what of them no schedule changes."""


def memory_of(
    sections: Sequence[AnyFigures | Holding], cut: Cut, schedule: str, micro_batches: Ints, known: Known | None = None
) -> tuple[Array, Array]:
    """[plans, columns] bytes on the fullest device, and the most that one keeps at the host. known: of these sections, which calls
    share."""
    worst = np.zeros_like(sections[0].held["weights"])
    host = np.zeros_like(worst)
    for first, _ in cut.kinds:
        parts = device_memory(sections, cut, schedule, micro_batches, first, known)
        host = np.maximum(host, parts.pop("host"))
        worst = np.maximum(worst, sum(parts.values(), np.zeros_like(worst)))
    return worst, host


def fullest_device(sections: Sequence[AnyFigures | Holding], cut: Cut, schedule: str, micro_batches: Ints) -> dict[str, float]:
    """Bytes by what holds them on the device that holds most, of one plan on one column."""
    found: dict[str, float] = {}
    for first, _ in cut.kinds:
        parts = device_memory(sections, cut, schedule, micro_batches, first)
        here = {what: float(size.reshape(-1)[0]) for what, size in parts.items() if size.any() and what != "host"}
        if sum(here.values()) > sum(found.values()):
            found = here
    return found


def device_memory(
    sections: Sequence[AnyFigures | Holding], cut: Cut, schedule: str, micro_batches: Ints, device: int, known: Known | None = None
) -> dict[str, Array]:
    """What one device holds, by what: [plans, columns] each; `host` is what it keeps at the host instead. known: as of `memory_of`."""
    counts = tuple(int(count) for count in cut.busy[device])
    known = {} if known is None else known
    if counts not in known:
        known[counts] = _steady(sections, counts)
    steady = known[counts]
    flying = in_flight(schedule, cut.stages, cut.chunks, micro_batches, device)
    kept, host = np.zeros_like(sections[0].held["weights"]), steady["host"]
    passed = False
    for one, count in zip(sections, counts, strict=True):
        passed = passed or one.layer
        if count and one.layer:
            kept = kept + one.held["activations"] * (flying * count / cut.chunks)
            host = host + one.held["host in flight"] * (flying * count / cut.chunks)
        elif count:  # the head's backward pass follows its forward pass at once, unless all forward passes come first
            kept = kept + one.held["activations"] * (1.0 if passed and not TABLE[schedule].forwards_first else np.ceil(flying / cut.chunks))
    stays = {what: steady[what] for what in ("weights", "gradients", "optimizer", "kv_cache")}
    return {**stays, "activations": kept, "host": host, "working": steady["working"], "gathered": steady["gathered"]}


def _steady(sections: Sequence[AnyFigures | Holding], counts: Sequence[int]) -> dict[str, Array]:
    """What a device holds however its passes are ordered. counts: layers of each section on it."""
    zero = np.zeros_like(sections[0].held["weights"])

    def total(what: str) -> Array:
        return sum((float(count) * one.held[what] for one, count in zip(sections, counts, strict=True) if count), zero)

    found = {what: total(what) for what in ("weights", "gradients", "optimizer", "kv_cache", "host")}
    here = [one for one, count in zip(sections, counts, strict=True) if count]
    found["working"] = np.max(np.stack([one.held["working"] + one.held["remade"] for one in here]), axis=0)
    found["gathered"] = np.max(np.stack([one.held["gathered"] * (BUFFERS if one.layer else 1.0) for one in here]), axis=0)
    return found
