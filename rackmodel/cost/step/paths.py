"""Paths of a step that lanes beside the devices make longer than the devices' own work: lower bounds in arrays (bound).

A lane is a queue, so what it must move in some of a device's passes takes at least its sum from the start of those passes on. The device
itself would take its own work in them; what is beyond that is time it, or the end of the step, waits for. So are a device's ways in and out
that passes of other devices make longer than its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.step.cut import Cut
from rackmodel.cost.step.device_times import NONE, DeviceTimes, Layers, longest, shortest
from rackmodel.cost.step.pipeline_orders import weave
from rackmodel.model.schedules import SPLIT, runs_as

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


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

    @property
    def split(self) -> bool:
        """Whether weights' gradients have passes of their own."""
        return self.schedule in SPLIT and self.cut.stages > 1

    def lead(self) -> Array:
        """What the first pass of all waits for gathers: each of its layers for its own, behind those of the layers before it."""
        if "lead" not in self.layers.has:
            return NONE
        times = [one.forward + one.first for one in self.times]
        return self._queued("lead", self.cut.counts[0], ("spread",), times)

    def lag(self, device: int) -> Array:
        """What the reductions of a device's last pass outlast it, and its last hand-over: each layer's own, and those behind them of the
        layers that follow."""
        if "lag" not in self.layers.has:
            return NONE
        times = [(one.weight if self.split else one.backward) + one.last for one in self.times]
        lag = self._queued("lag", self.cut.counts[device], ("reduce", "tail"), times)
        return np.asarray(np.maximum(lag - self.held_s, 0.0)) if self.held_s.any() else lag

    def _queued(self, edge: str, counts: Ints, names: Sequence[str], times: Sequence[Array]) -> Array:
        """What a pass waits for a lane at one of its edges: a layer's own wait, and what the lane moves for the layers between it and
        that edge beyond the time that the device takes for them. Of a layer that does not wait nothing is known."""
        moved = [self.layers.lane(name) for name in names if name in self.layers.has]
        between, found = NONE, NONE
        for x in np.flatnonzero(counts).tolist():
            wait, more = self.layers.lane(edge)[x], sum((lane[x] for lane in moved), NONE) - times[x]
            beyond = np.maximum(between, between + float(counts[x] - 1) * more)
            found = np.maximum(found, np.where(wait > 0, wait + beyond, 0.0))
            between = between + float(counts[x]) * more
        return np.asarray(found)

    def update(self, device: int, tied: Array) -> Array:
        """A device's optimizer, and before it what the two ends sum of the weights that they share."""
        own = total(self.cut.busy[device], self.layers.lane("update"))
        return own + tied if device in (0, self.cut.stages - 1) else own

    def left(self, device: int) -> Array:
        """A device's passes of weight gradients behind its last backward pass."""
        if not self.split:
            return NONE
        _, delay = weave(self.schedule, self.cut.stages, self.m, 1, device)
        each, last = ([getattr(one, name) for one in self.times] for name in ("weight", "last"))
        busy = self.cut.busy[device]
        return np.asarray(np.minimum(delay + 1, self.m) * total(busy, each) + total(busy, last))

    def detour(self, device: int, send: Array) -> Array:
        """What a device waits for its first backward pass, where weight gradients are apart: the first micro-batch through the stages
        behind it and back, beyond the device's other forward passes before that one."""
        behind = self.cut.counts[device + 1 :].sum(axis=0)
        if not self.split or not behind.any():
            return NONE
        lead, _ = weave(self.schedule, self.cut.stages, self.m, 1, device)
        round_trip = [one.forward + one.first + one.backward - one.weight for one in self.times]
        away = total(behind, round_trip) + 2.0 * (self.cut.stages - 1 - device) * send
        own = total(self.cut.busy[device], [one.forward for one in self.times]) + self.held_s
        return np.asarray(np.maximum(away - (lead - 1) * own, 0.0))

    def warm_up(self, device: int) -> Array:
        """What a device waits in its forward passes before the first backward pass: gathers in, and copies of what is saved out;
        but for two layers', which are under way."""
        names = [name for name in ("forward_gather", "forward_reduce") if name in self.layers.has]
        if self.schedule in SPLIT or not names:
            return NONE
        moved = self.layers.lanes(*names)
        here = self._here(device, warm_up_passes(self.schedule, self.cut.stages, self.cut.chunks, self.least, device))
        work = total(here, [one.forward for one in self.times]) + total(self.cut.busy[device], [one.first for one in self.times])
        return np.asarray(np.maximum(total(here, moved) - 2.0 * longest(moved) - work, 0.0))

    def turns(self, device: int) -> Array:
        """What a device waits where passes alternate: the first layer of a backward pass is gathered while the last one of the forward pass
        before it runs (rule 4), or the other way round. Of all turns but the first and the last."""
        has, times = self.layers.has, self.times
        chunks = [np.flatnonzero(self.cut.counts[c * self.cut.stages + device]) for c in range(self.cut.chunks)]
        if self.schedule in SPLIT or not has & {"forward_wait", "backward_wait"} or not all(len(chunk) for chunk in chunks):
            return NONE
        tops, ends = {int(chunk[-1]) for chunk in chunks}, {int(chunk[0]) for chunk in chunks}
        waits = NONE
        if "backward_wait" in has:
            back = self.layers.lane("backward_wait")
            waits = np.maximum(waits, shortest([back[b] - times[f].forward - times[f].first for b in tops for f in tops]))
        if "forward_wait" in has:
            ahead = self.layers.lane("forward_wait")
            waits = np.maximum(waits, shortest([ahead[f] - times[b].backward - times[b].last for b in ends for f in ends]))
        lead, _ = weave(runs_as(self.schedule, self.cut.chunks), self.cut.stages, self.m, self.cut.chunks, device)
        return np.asarray(np.maximum(self.m * self.cut.chunks - lead - 1, 0.0) * waits)

    def follows(self, device: int) -> Array:
        """What outlasts the last passes of a device."""
        left, has = self.lag(device), self.layers.has
        reduces = "reduce" in has or "tail" in has
        if not reduces and "backward_gather" not in has:
            return left
        back = [one.backward for one in self.times]
        once = total(self.cut.busy[device], [one.last for one in self.times])
        for each, whole in last_passes(self.schedule, self.cut.stages, self.cut.chunks, self.least, device):
            here = self._here(device, each)
            moved = total(here, self.layers.lane("reduce")) if "reduce" in has else NONE
            if whole and "tail" in has:
                moved = moved + total(self.cut.busy[device], self.layers.lane("tail"))
            if "backward_gather" in has:
                gather = self.layers.lane("backward_gather")
                gathered = total(here, gather) - longest(gather)
                moved = moved + gathered if self.layers.choices.shared else np.maximum(moved, gathered)
            left = np.maximum(left, moved - total(here, back) - (sum(each) * self.held_s + once))
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
        found = whole + between + 2.0 * hops * send
        return np.asarray(found + self._corners(p * send if overlapped else NONE) if v > 1 else found)

    def _corners(self, hops: Array) -> Array:
        """What the chain gains where a group of micro-batches passes the first stage's first chunk before the first one comes round to it
        again, and likewise at the end, where the group's first one is first back there. hops: sends that are saved."""
        counts, p = self.cut.counts, self.cut.stages
        end = p * (self.cut.chunks - 1)
        names = ("forward", "backward", "first", "last")
        forward, back, first, last = ([getattr(one, name) for one in self.times] for name in names)
        rest, group = counts[1:p].sum(axis=0), counts[end : end + p - 1].sum(axis=0)
        ahead = (p - 1) * total(counts[0], forward) - total(rest, forward) - total(rest, first)
        after = (p - 1) * total(counts[0], back) - total(group, back) - total(group + counts[1:end].sum(axis=0), last)
        return np.asarray(np.maximum(ahead - hops, 0.0) + np.maximum(after - hops, 0.0))

    def lanes(self, device: int) -> Array:
        """What the busiest lane of a device beside the device itself does in a step."""
        counts, has, shared = self.cut.busy[device], self.layers.has, self.layers.choices.shared

        def lane(*names: str) -> Array:
            return sum((total(counts, self.layers.lane(name)) for name in names if name in has), NONE)

        if not has & {"forward_gather", "backward_gather", "reduce", "forward_reduce", "spread", "tail", "up", "home"}:
            return NONE
        gathered = self.m * lane("forward_gather", "backward_gather") + lane("spread")
        reduced = self.m * lane("reduce", "forward_reduce") + lane("tail")
        weights = gathered + reduced if shared else np.maximum(gathered, reduced)
        if not has & {"up", "home"}:
            return np.asarray(weights)
        both = self.layers.choices.gathers * self.layers.choices.gradients
        return longest([weights, self.m * lane("up"), both * lane("home")])


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
