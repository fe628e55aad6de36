"""Paths of a step that lanes beside the devices make longer than the devices' own work: lower bounds in arrays (bound).

A lane is a queue, so what it must move in some of a device's passes takes at least its sum from the start of those passes on. The device
itself would take its own work in them; what is beyond that is time it, or the end of the step, waits for. So are a device's ways in and out
that passes of other devices make longer than its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from operator import add

import numpy as np

from rackmodel.arrays import Array
from rackmodel.cost.step.bounds.cut_rows import Counts, CutRows, Devices
from rackmodel.cost.step.bounds.device_times import NONE, DeviceTimes, Layers, longest, shortest

MOVED = frozenset({"forward_gather", "backward_gather", "reduce", "forward_reduce", "spread", "tail", "up", "home"})
"""Figures of what lanes beside the device move."""


def total(counts: Counts, values: Sequence[Array]) -> Array:
    """Σ counts x values; zero where there are none."""
    parts = [count * values[section] for section, count in counts]
    return np.asarray(reduce(add, parts)) if parts else np.zeros(())


@dataclass(frozen=True)
class Paths:
    """Of pipelines of some cuts. m: micro-batches, of each column or cell, with an axis beside · held_s: of a hand-over that holds its
    device."""

    layers: Layers
    rows: CutRows
    m: Array
    held_s: Array

    @property
    def times(self) -> tuple[DeviceTimes, ...]:
        """Device times of the sections' layers."""
        return self.layers.times(split=self.rows.split)

    @property
    def apart(self) -> bool:
        """Whether weights' gradients have passes of their own."""
        return self.rows.split and self.rows.piped

    def _lead(self, of: Devices) -> Array:
        """Forward passes before a device's first backward pass."""
        return np.asarray(np.minimum(of.lead, self.m * self.rows.chunks))

    def lead(self) -> Array:
        """What the first pass of all waits for gathers: each of its layers for its own, behind those of the layers before it."""
        if "lead" not in self.layers.has:
            return NONE
        times = [one.forward + one.first for one in self.times]
        return self._queued("lead", self.rows.entry, ("spread",), times)

    def lag(self, chunk: Counts) -> Array:
        """What the reductions of a device's last pass outlast it, and its last hand-over: each layer's own, and those behind them of the
        layers that follow. chunk: layers of that pass."""
        edge = "lag_apart" if self.apart else "lag"
        if edge not in self.layers.has:
            return NONE
        times = [(one.weight if self.apart else one.backward) + one.last for one in self.times]
        lag = self._queued(edge, chunk, ("reduce", "tail"), times)
        return np.asarray(np.maximum(lag - self.held_s, 0.0)) if self.held_s.any() else lag

    def _queued(self, edge: str, counts: Counts, names: Sequence[str], times: Sequence[Array]) -> Array:
        """What a pass waits for a lane at one of its edges: a layer's own wait, and what the lane moves for the layers between it and
        that edge beyond the time that the device takes for them. Of a layer that does not wait nothing is known."""
        moved = [self.layers.lane(name) for name in names if name in self.layers.has]
        between, found = NONE, NONE
        for x, count in counts:
            wait, more = self.layers.lane(edge)[x], sum((lane[x] for lane in moved), NONE) - times[x]
            beyond = np.maximum(between, between + (count - 1.0) * more)
            found = np.maximum(found, np.where((wait > 0) & (count > 0), wait + beyond, 0.0))
            between = between + count * more
        return np.asarray(found)

    def update(self, busy: Counts, ends: Array, tied: Array) -> Array:
        """A device's optimizer, and before it what the two ends sum of the weights that they share."""
        return np.asarray(total(busy, self.layers.lane("update")) + ends * tied)

    def left(self, busy: Counts, delay: Array) -> Array:
        """A device's passes of weight gradients behind its last backward pass."""
        if not self.apart:
            return NONE
        each, last = ([getattr(one, name) for one in self.times] for name in ("weight", "last"))
        return np.asarray(np.minimum(delay + 1, self.m) * total(busy, each) + total(busy, last))

    def detour(self, of: Devices, send: Array) -> Array:
        """What a device waits for its first backward pass, where weight gradients are apart: the first micro-batch through the stages
        behind it and back, beyond the device's other forward passes before that one."""
        if not self.apart or not of.behind or self.rows.folded:
            return NONE
        round_trip = [one.forward + one.first + one.backward - one.weight for one in self.times]
        away = total(of.behind, round_trip) + 2.0 * (self.rows.stages - 1 - of.last) * send
        own = total(of.busy, [one.forward for one in self.times]) + self.held_s
        there = sum((count for _, count in of.behind), NONE) > 0
        return np.where(there, np.maximum(away - (self._lead(of) - 1) * own, 0.0), 0.0)

    def warm_up(self, of: Devices) -> Array:
        """What a device waits in its forward passes before the first backward pass: gathers in, and copies of what is saved out;
        but for two layers', which are under way."""
        names = [name for name in ("forward_gather", "forward_reduce") if name in self.layers.has]
        if self.rows.split or not names:
            return NONE
        moved = self.layers.lanes(*names)
        work = total(of.warm, [one.forward for one in self.times]) + total(of.busy, [one.first for one in self.times])
        return np.asarray(np.maximum(total(of.warm, moved) - 2.0 * longest(moved) - work, 0.0))

    def turns(self, of: Devices) -> Array:
        """What a device waits where passes alternate: the first layer of a backward pass is gathered while the last one of the forward pass
        before it runs (rule 4), or the other way round. Of all turns but the first and the last."""
        has, times = self.layers.has, self.times
        if self.rows.split or not has & {"forward_wait", "backward_wait"} or not of.turns.any():
            return NONE
        waits = NONE
        if "backward_wait" in has:
            back = self.layers.lane("backward_wait")
            waits = np.maximum(waits, _shortest(of.tops, lambda b, f: back[b] - times[f].forward - times[f].first))
        if "forward_wait" in has:
            ahead = self.layers.lane("forward_wait")
            waits = np.maximum(waits, _shortest(of.bottoms, lambda b, f: ahead[f] - times[b].backward - times[b].last))
        turns = np.maximum(self.m * self.rows.chunks - self._lead(of) - 1, 0.0)
        return np.asarray(turns * (waits if of.turns.all() else np.where(of.turns > 0, waits, 0.0)))

    def follows(self, of: Devices) -> Array:
        """What outlasts the last passes of a device."""
        left, has = self.lag(of.chunk), self.layers.has
        reduces = "reduce" in has or "tail" in has
        if self.rows.split or (not reduces and "backward_gather" not in has):
            return left
        back = [one.backward for one in self.times]
        once = total(of.busy, [one.last for one in self.times])
        for here, passes, whole in ((of.early, of.early_passes, of.early_whole), (of.late, of.late_passes, of.late_whole)):
            moved = total(here, self.layers.lane("reduce")) if "reduce" in has else NONE
            if "tail" in has and whole.any():
                moved = moved + whole * total(of.busy, self.layers.lane("tail"))
            if "backward_gather" in has:
                gather = self.layers.lane("backward_gather")
                gathered = total(here, gather) - longest(gather)
                moved = moved + gathered if self.layers.choices.shared else np.maximum(moved, gathered)
            left = np.maximum(left, moved - total(here, back) - (passes * self.held_s + once))
        return np.asarray(left)

    def chain(self, send: Array, *, overlapped: bool) -> Array:
        """The first micro-batch forward through all stages, what the last stage does from then until the last micro-batch turns back there,
        and that one's way back."""
        rows, times, p, v = self.rows, self.times, self.rows.stages, self.rows.chunks
        both = [one.forward + one.backward for one in times]
        whole = total(rows.whole, [pair + one.first + one.last for pair, one in zip(both, times, strict=True)])
        between = self.m * total(rows.closing, both) - total(rows.outside, both)
        hops = p * v - 1 if overlapped else p * v + self.m * v - p * (v - 1) - 1
        found = whole + between + 2.0 * hops * send
        return np.asarray(found + self._corners(p * send if overlapped else NONE) if rows.chunked else found)

    def _corners(self, hops: Array) -> Array:
        """What the chain gains where a group of micro-batches passes the first stage's first chunk before the first one comes round to it
        again, and likewise at the end, where the group's first one is first back there. hops: sends that are saved."""
        rows, names = self.rows, ("forward", "backward", "first", "last")
        forward, back, first, last = ([getattr(one, name) for one in self.times] for name in names)
        ahead = (rows.stages - 1) * total(rows.entry, forward) - total(rows.rest, forward) - total(rows.rest, first)
        after = (rows.stages - 1) * total(rows.entry, back) - total(rows.group, back) - total(rows.after, last)
        return np.asarray(np.maximum(ahead - hops, 0.0) + np.maximum(after - hops, 0.0))

    def lanes(self, of: Devices) -> Array:
        """What the busiest lane of a device beside the device itself does in a step."""
        has, shared = self.layers.has, self.layers.choices.shared

        def lane(*names: str) -> Array:
            return sum((total(of.busy, self.layers.lane(name)) for name in names if name in has), NONE)

        if not has & MOVED:
            return NONE
        gathered = self.m * lane("forward_gather", "backward_gather") + lane("spread")
        reduced = self.m * lane("reduce", "forward_reduce") + lane("tail")
        weights = gathered + reduced if shared else np.maximum(gathered, reduced)
        if not has & {"up", "home"}:
            return np.asarray(weights)
        both = self.layers.choices.gathers * self.layers.choices.gradients
        return longest([weights, self.m * lane("up"), both * lane("home")])


def _shortest(flags: Counts, value: Callable[[int, int], Array]) -> Array:
    """The smallest value of two sections, of those that a row has."""
    pairs = product(flags, flags)
    found = [(value(b, f), there * here) for (b, there), (f, here) in pairs]
    return shortest([one if there.all() else np.where(there > 0, one, np.inf) for one, there in found])
