"""Paths of a step that lanes beside the devices make longer than the devices' own work: lower bounds in arrays (bound).

A lane is a queue, so what it must move in some of a device's passes takes at least its sum from the start of those passes on. The device
itself would take its own work in them; what is beyond that is time it, or the end of the step, waits for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.step.cut import Cut
from rackmodel.cost.step.device_times import Choices, DeviceTimes, Layers, longest, shortest
from rackmodel.cost.step.pipeline_orders import SPLIT, runs_as, weave

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
NONE = np.zeros(1)


def total(counts: Ints, values: Sequence[Array]) -> Array:
    """Σ counts x values; zero where there are none."""
    found: Array | float = 0.0
    for count, value in zip(counts, values, strict=True):
        if count:
            found = found + float(count) * value
    return np.asarray(found)


@dataclass(frozen=True)
class Paths:
    """Of one pipeline depth, cut and schedule. m: [columns, 1] micro-batches · held_s: of a hand-over that holds its device."""

    layers: Layers
    cut: Cut
    schedule: str
    m: Array
    choices: Choices
    held_s: Array

    @property
    def times(self) -> tuple[DeviceTimes, ...]:
        """Device times of the sections' layers."""
        return self.layers.times(split=self.schedule in SPLIT)

    @property
    def least(self) -> int:
        """Micro-batches, at least; of chunks they fill groups of one a stage, or the order does not exist."""
        if self.cut.chunks == 1:
            return int(self.m.min())
        full = self.m[self.m % self.cut.stages == 0]
        return int(full.min()) if full.size else self.cut.stages

    def _here(self, device: int, each: Sequence[int]) -> Ints:
        """Layers that a device runs in so many passes of each of its chunks."""
        counts = [self.cut.counts[chunk * self.cut.stages + device] * times for chunk, times in enumerate(each)]
        return np.asarray(np.sum(counts, axis=0))

    def lead(self) -> Array:
        """What the first layer of all waits for its gathers."""
        if "lead" not in self.layers.has:
            return NONE
        first = next((one for one, count in zip(self.layers.sections, self.cut.counts[0], strict=True) if count), None)
        return np.asarray(self.choices.gathers * first.lead[..., None]) if first is not None else NONE

    def lag(self, device: int) -> Array:
        """What the reductions of a device's last layer outlast it, and its last hand-over."""
        if "lag" not in self.layers.has:
            return NONE
        last = next((one for one, count in zip(self.layers.sections, self.cut.counts[device], strict=True) if count), None)
        return np.asarray(np.maximum(self.choices.gradients * last.lag[..., None] - self.held_s, 0.0)) if last is not None else NONE

    def warm_up(self, device: int) -> Array:
        """What a device waits in its forward passes before the first backward pass: gathers in, and copies of what is saved out;
        but for two layers', which are under way."""
        has = self.layers.has & {"forward_gather", "forward_reduce"}
        if self.schedule in SPLIT or not has:
            return NONE
        parts = [[self.choices.gathers * one for one in self.layers.lane("forward_gather")]] if "forward_gather" in has else []
        parts += [[self.choices.gradients * one for one in self.layers.lane("forward_reduce")]] if "forward_reduce" in has else []
        moved = parts[0] if len(parts) == 1 else [a + b if self.choices.shared else np.maximum(a, b) for a, b in zip(*parts, strict=True)]
        here = self._here(device, warm_up_passes(self.schedule, self.cut.stages, self.cut.chunks, self.least, device))
        work = total(here, [one.forward for one in self.times])
        once = total(self.cut.busy[device], [one.first for one in self.times])
        return np.asarray(np.maximum(total(here, moved) - 2.0 * longest(moved) - work - once, 0.0))

    def turns(self, device: int) -> Array:
        """What a device waits where passes alternate: the first layer of a backward pass is gathered while the last one of the forward pass
        before it runs (rule 4), or the other way round. Of all turns but the first and the last."""
        has = self.layers.has & {"forward_wait", "backward_wait"}
        if self.schedule in SPLIT or not has:
            return NONE
        chunks = [np.flatnonzero(self.cut.counts[c * self.cut.stages + device]) for c in range(self.cut.chunks)]
        if not all(len(chunk) for chunk in chunks):
            return NONE
        tops, ends = {int(chunk[-1]) for chunk in chunks}, {int(chunk[0]) for chunk in chunks}
        back, ahead, times = self.layers.lane("backward_wait"), self.layers.lane("forward_wait"), self.times
        down = shortest([back[b] - times[f].forward - times[f].first for b in tops for f in tops])
        up = shortest([ahead[f] - times[b].backward - times[b].last for b in ends for f in ends])
        lead, _ = weave(runs_as(self.schedule, self.cut.chunks), self.cut.stages, self.m, self.cut.chunks, device)
        count = np.maximum(self.m * self.cut.chunks - lead - 1, 0.0)
        return np.asarray(self.choices.gathers * count * np.maximum(np.maximum(down, up), 0.0))

    def follows(self, device: int) -> Array:
        """What outlasts the last passes of a device."""
        has = self.layers.has
        if not has & {"lag", "tail", "reduce", "backward_gather"}:
            return NONE
        times, gradients = self.times, self.choices.gradients
        left = self.lag(device)
        once = total(self.cut.busy[device], [one.last for one in times])
        tails = total(self.cut.busy[device], self.layers.lane("tail"))
        for each, whole in last_passes(self.schedule, self.cut.stages, self.cut.chunks, self.least, device):
            here = self._here(device, each)
            work = total(here, [one.backward for one in times]) + sum(each) * self.held_s + once
            moved = gradients * (total(here, self.layers.lane("reduce")) + (tails if whole else 0.0))
            if "backward_gather" in has:
                gather = self.layers.lane("backward_gather")
                gathered = self.choices.gathers * (total(here, gather) - longest(gather))
                moved = moved + gathered if self.choices.shared else np.maximum(moved, gathered)
            left = np.maximum(left, moved - work)
        return np.asarray(left)

    def chain(self, send: Array, *, overlapped: bool) -> Array:
        """The first micro-batch forward through all stages, what the last stage does from then until the last micro-batch turns back there,
        and that one's way back."""
        cut, times, p, v = self.cut, self.times, self.cut.stages, self.cut.chunks
        both = [one.forward + one.backward for one in times]
        whole = total(cut.counts.sum(axis=0), [pair + one.first + one.last for pair, one in zip(both, times, strict=True)])
        outside = p * cut.counts[p - 1 : p * (v - 1) : p].sum(axis=0) + cut.counts[-1]  # of the last stage, outside that time
        between = self.m * total(cut.busy[-1], both) - total(outside, both)
        hops = p * v - 1 if overlapped else p * v + self.m * v - p * (v - 1) - 1
        return np.asarray(whole + between + 2.0 * hops * send)

    def lanes(self, device: int) -> Array:
        """What the busiest lane of a device beside the device itself does in a step."""
        gathers, gradients, counts = self.choices.gathers, self.choices.gradients, self.cut.busy[device]

        def lane(*names: str) -> Array:
            return sum((total(counts, self.layers.lane(name)) for name in names if name in self.layers.has), NONE)

        gathered = gathers * (self.m * lane("forward_gather", "backward_gather") + lane("spread"))
        reduced = gradients * (self.m * lane("reduce", "forward_reduce") + lane("tail"))
        weights = gathered + reduced if self.choices.shared else np.maximum(gathered, reduced)
        return np.asarray(np.maximum(weights, np.maximum(gradients * self.m * lane("up"), gathers * gradients * lane("home"))))


@lru_cache(maxsize=4096)
def warm_up_passes(schedule: str, stages: int, chunks: int, micro_batches: int, device: int) -> tuple[int, ...]:
    """Forward passes of each chunk before a device's first backward pass. Of more micro-batches they are the same or more."""
    lead, _ = weave(runs_as(schedule, chunks), stages, micro_batches, chunks, device)
    k = np.arange(int(lead))
    return tuple(np.bincount(k // stages % chunks if chunks > 1 else np.zeros_like(k), minlength=chunks).tolist())


@lru_cache(maxsize=4096)
def last_passes(schedule: str, stages: int, chunks: int, micro_batches: int, device: int) -> tuple[tuple[tuple[int, ...], bool], ...]:
    """Backward passes with which a device ends, from two points on: (passes of each chunk, whether every chunk's last one is among them).
    From the first chunk's last pass on, and from the last forward pass on. Of more micro-batches they are the same or more."""
    if schedule in SPLIT:
        return ()
    lead, _ = weave(runs_as(schedule, chunks), stages, micro_batches, chunks, device)
    closing = min((chunks - 1) * stages + 1, micro_batches * chunks)
    found = []
    for count in dict.fromkeys((closing, int(lead))):
        k = np.arange(micro_batches * chunks - count, micro_batches * chunks)
        each = np.bincount(chunks - 1 - k // stages % chunks if chunks > 1 else np.zeros_like(k), minlength=chunks)
        found.append((tuple(each.tolist()), count >= closing))
    return tuple(found)
