"""Steps in arrays: joules and memory exact, seconds as a lower bound of the clock's (docs/clock.md), tight where stages are equal.

    device    lead + forward through the stages before j + m (j's layers + hand-overs) + what happens once + the way out of j
              + what lanes, or the way to the last stage and back, keep j waiting for while it warms up and where its passes turn (paths)
    way out   j's weight gradients behind its last backward pass + what outlasts its last passes + its optimizer, or back to a stage
              before j and out of that one; the two ends sum the weights that they share before their optimizers
    chain     the first micro-batch through all stages + the last stage's work until the last one turns back there + its way back
    lane      what a lane of a device beside it moves in the whole step + its optimizer
    energy    layers x (micro-batches x joules + joules a step) + sends + (static + waiting power) x step, whose kernels take off the latter

The bound is the longest of these over devices j. Arrays are [plans, columns, overlaps]: plans that differ in layout, recompute, homes
or offload; columns of mesh and micro-batch; on-off combinations of overlap (windows; gathers and gradients). Some pairs of plan and column
may stand in one row instead: [cells, overlaps]. Each is a path of the step's graph, so none exceeds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.cost.step.bounds.cut_rows import CutRows, least_of
from rackmodel.cost.step.bounds.device_times import Layers, longest
from rackmodel.cost.step.bounds.figures import AnyFigures
from rackmodel.cost.step.bounds.memory import memory_of
from rackmodel.cost.step.bounds.paths import MOVED, Paths, total
from rackmodel.cost.step.cut import Cut

ROUNDING = 1e-12  # taken off: the clock sums the same path in another order


@dataclass(frozen=True, kw_only=True)
class Sends:
    """What one hand-over between neighbouring stages costs. seconds, joules: [plans, columns], one direction, one micro-batch, in the mean
    of both ways (joules: half of it where nothing comes back) ·
    tied, tied_joules: summing the gradient of weights that the first and the last stage share, once a step."""

    seconds: Array
    joules: Array
    tied: Array
    tied_joules: Array

    def columns(self, which: Ints) -> Sends:
        """The same for some columns."""
        return Sends(**{name: value[:, which] for name, value in self.__dict__.items()})

    def cells(self, plans: Ints, columns: Ints) -> Sends:
        """The same for some pairs of a plan and a column: [cells]."""
        return Sends(**{name: value[plans, columns] for name, value in self.__dict__.items()})

    def plans(self, which: Ints) -> Sends:
        """The same for some plans."""
        return Sends(**{name: value[which] for name, value in self.__dict__.items()})

    def least(self, families: Sequence[Ints]) -> Sends:
        """[families, columns] the least that any plan of each family has."""
        return Sends(**{name: np.stack([value[plans].min(axis=0) for plans in families]) for name, value in self.__dict__.items()})


@dataclass(frozen=True, kw_only=True)
class StepBound:
    """Of steps: [plans, columns, overlaps] or broadcastable. seconds: a lower bound · joules: without static power · memory: bytes on
    the fullest device · host: bytes that one accelerator keeps at the host."""

    seconds: Array
    joules: Array
    memory: Array
    host: Array


def compose(layers: Layers, sends: Sends, cut: Cut, schedule: str, micro_batches: Ints) -> StepBound:
    """Steps of one pipeline depth, cut and schedule. micro_batches: [columns]."""
    memory, host = memory_of(layers.sections, cut, schedule, micro_batches)
    rows = CutRows.of([(cut, schedule, least_of(cut, micro_batches))])
    return StepBound(
        seconds=least_seconds(layers, sends, rows, micro_batches),
        joules=step_joules(layers.sections, sends, cut.stages, cut.hops, micro_batches)[..., None],
        memory=memory[..., None],
        host=host[..., None],
    )


def step_joules(sections: Sequence[AnyFigures], sends: Sends, stages: Any, hops: Any, micro_batches: Ints) -> Array:
    """[plans, columns] joules of a step without static power. stages, hops: of all of them, or of each column or cell; hand-overs of a
    micro-batch one way."""
    joules = sum((one.repeat * (micro_batches * one.joules + one.joules_once) for one in sections), np.zeros_like(sends.joules))
    return np.asarray(joules + 2.0 * hops * micro_batches * sends.joules + np.where(np.asarray(stages) > 1, sends.tied_joules, 0.0))


def device_seconds(layers: Layers, sends: Sends, rows: CutRows, micro_batches: Ints) -> Array:
    """Least seconds from the devices' own work, and from what their lanes move, alone: the way in of each device, its passes, the way out
    through the devices before it, where no passes of weight gradients fill that, and the first one's optimizer, or its own optimizer
    right behind its passes. Quick, and never above `least_seconds`."""
    if not layers.back:
        return _forward_alone(layers, sends, rows, micro_batches) * (1 - 2 * ROUNDING)
    times = layers.times(split=rows.split)
    m = micro_batches[:, None].astype(np.float64)
    send = sends.seconds[..., None] if rows.piped else np.zeros(1)
    waits = 0.0 if layers.choices.profile.overlap.sends else 2.0 * rows.chunks * send
    forward = [one.forward for one in times]
    both = [one.forward + one.backward for one in times]
    update, returns = layers.lane("update"), not (rows.split and rows.piped)
    outermost = total(rows.kinds[0].first_busy, update)
    found = []
    for of in rows.kinds:
        passes = m * (total(of.busy, both) + waits)
        if returns:
            found.append(total(of.before, both) + 2.0 * of.last * send + passes + outermost)
        if not returns or (of.last > 0).any():  # (of the first device it is the same)
            found.append(total(of.before, forward) + of.last * send + passes + total(of.busy, update))
    if layers.has & MOVED:
        paths = Paths(layers, rows, m, send)
        found += [paths.lanes(of) + total(of.busy, update) for of in rows.kinds]
    return longest(found) * (1 - 2 * ROUNDING)


def least_seconds(layers: Layers, sends: Sends, rows: CutRows, micro_batches: Ints) -> Array:
    """The longest of all paths, in seconds."""
    if not layers.back:
        return _forward_alone(layers, sends, rows, micro_batches) * (1 - ROUNDING)
    return _seconds(layers, sends, rows, micro_batches) * (1 - ROUNDING)


def _forward_alone(layers: Layers, sends: Sends, rows: CutRows, micro_batches: Ints) -> Array:
    """Of steps without backward passes: the way in of each device, its passes, and where it has one chunk the way on to the last one."""
    forward = [one.forward for one in layers.times(split=rows.split)]
    m = micro_batches[:, None].astype(np.float64)
    send = sends.seconds[..., None] if rows.piped else np.zeros(1)
    waits = 0.0 if layers.choices.profile.overlap.sends else rows.chunks * send
    found = []
    for of in rows.kinds:
        here = total(of.before, forward) + of.last * send + m * (total(of.busy, forward) + waits)
        if not rows.chunked:
            here = here + total(of.behind, forward) + (rows.stages - 1 - of.last) * send
        found.append(here)
    return longest(found)


def _seconds(layers: Layers, sends: Sends, rows: CutRows, micro_batches: Ints) -> Array:
    """The longest of all paths, but for rounding."""
    overlapped, split = layers.choices.profile.overlap.sends, rows.split and rows.piped
    times = layers.times(split=rows.split)
    m = micro_batches[:, None].astype(np.float64)
    send, tied = (seconds[..., None] if rows.piped else np.zeros(1) for seconds in (sends.seconds, sends.tied))
    forward = [one.forward + one.first for one in times]
    back = [one.backward - one.weight if split else one.backward + one.last for one in times]
    both = [one.forward + one.backward for one in times]
    once = [one.first + one.last for one in times]
    paths = Paths(layers, rows, m, np.zeros(1) if overlapped else send)
    waits = 0.0 if overlapped else 2.0 * rows.chunks * send
    lead = paths.lead()
    found: Array | None = None
    out: Array | None = None  # the way out of the devices before
    for of in rows.kinds:
        update = paths.update(of.busy, of.ends, tied)
        own = paths.follows(of) + update
        if not rows.folded:  # (whose orders tell how many weight gradients a stage leaves behind its last backward pass)
            left = paths.left(of.busy, of.delay)
            end = left + paths.lag(of.chunk) + update
            if (of.last > of.first).any():  # backward passes of the stages before follow (of a run of one it is the same again)
                once_left = paths.left(of.first_busy, of.first_delay) + paths.lag(of.first_chunk)
                over = once_left + paths.update(of.first_busy, of.first_ends, tied)
                end = np.maximum(end, over + total(of.run, back) + (of.last - of.first) * send)
            if out is not None:
                end = np.maximum(end, out + total(of.gap, back) + of.hops * send)
            out = end
            own = np.maximum(own, end - left)
        here = lead + total(of.before, forward) + of.last * send + m * (total(of.busy, both) + waits)
        here = here + total(of.busy, once) + paths.warm_up(of) + paths.turns(of) + paths.detour(of, send) + own
        here = np.maximum(here, paths.lanes(of) + update)
        found = here if found is None else np.maximum(found, here)
    assert found is not None
    if rows.piped and not split:
        first = rows.kinds[0]
        end = paths.lag(first.first_chunk) + paths.update(first.first_busy, first.first_ends, tied)
        found = np.maximum(found, lead + paths.chain(send, overlapped=overlapped) + end)
    return found
