"""Every point of a space, in blocks: which of them fit, and what their figures are at least.

A block is points of one group, pipeline depth, schedule and chunk count. Memory and joules (but static power) are exact over all of its
plans and columns at once. Seconds are bounded twice: the devices' own work alone for all, and where that leaves a point worth looking
at, the longest of all paths (cost/step/bound). So most points cost a few operations on arrays that stay in the processor's cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.step.bound import Sends, device_seconds, least_seconds, step_joules
from rackmodel.cost.step.cut import Cut
from rackmodel.cost.step.device_times import Layers, StepChoices
from rackmodel.cost.step.group import GroupPrice, Job
from rackmodel.cost.step.memory import memory_of
from rackmodel.errors import InfeasibleError
from rackmodel.mapper.infeasible import Nearest, home_misses
from rackmodel.mapper.limits import Limits
from rackmodel.mapper.mapspace import Group, Mapspace
from rackmodel.mapper.points import Point
from rackmodel.model.profile import Host
from rackmodel.model.schedules import TABLE

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Wanted = Callable[[Array, Array, Array], NDArray[np.bool_]]
"""(seconds, joules, memory) of points, at least → whether they are worth a look."""
CELLS = 16_384  # points of one block: an array of them fits the processor's cache
PLAIN = "1f1b"  # of one stage, and where a mapper lists schedules that need more than there is


def all_wanted(seconds: Array, joules: Array, memory: Array) -> NDArray[np.bool_]:
    """Every point is worth a look."""
    return np.ones(np.broadcast_shapes(seconds.shape, joules.shape, memory.shape), dtype=bool)


@dataclass(frozen=True, kw_only=True)
class Block:
    """Points that fit and were wanted. plans, columns: [cells] of the group · seconds: [cells, overlaps], at least · joules: with static
    power · memory: exact."""

    group: int
    number: int
    cut: Cut
    schedule: str
    plans: Ints
    columns: Ints
    seconds: Array
    joules: Array
    memory: Array


@dataclass(frozen=True, kw_only=True)
class _Shape:
    """What a block's plans and columns have in common. columns: [columns] of the group."""

    group: int
    number: int
    cut: Cut
    schedule: str
    columns: Ints
    micro_batches: Ints
    layers: Layers
    sends: Sends


class Blocks:
    """The blocks of a space. counts: points, and how many of them could run · infeasible: why the others cannot → points · nearest: the
    point of least memory; all of the last walk of all · capacity: bytes that an accelerator may hold · limited: whether a limit says so."""

    def __init__(
        self, job: Job, space: Mapspace, groups: Sequence[Group], prices: Sequence[GroupPrice], limits: Limits, static_w: float
    ) -> None:
        self.job, self.space, self.groups, self.prices, self.limits, self.static_w = job, space, groups, prices, limits, static_w
        memory = job.setting.architecture.accelerator.memory
        have = memory.capacity_bytes if memory is not None and memory.enforce and memory.capacity_bytes else math.inf
        self.capacity, self.limited = min(have, limits.memory), limits.memory < have
        self._home_fits: list[tuple[NDArray[np.bool_], InfeasibleError | None]] = []
        self.overlaps = self._overlaps()
        self.counts = {"space": 0.0, "priced": 0.0}
        self.infeasible: dict[str, float] = {}
        self.nearest: Nearest | None = None

    @property
    def home_fits(self) -> list[tuple[NDArray[np.bool_], InfeasibleError | None]]:
        """Of each group, which plans' homes fit where they are, and why none does."""
        for price in self.prices[len(self._home_fits) :]:
            self._home_fits.append(home_misses(self.job.setting.architecture, price.home, len(price.sends.seconds)))
        return self._home_fits

    def _overlaps(self) -> list[tuple[int, int]]:
        """(windows used, gathers and gradients beside compute) that the mapper allows under the profile."""
        overlap = self.job.profile.overlap
        windows = any(window.beside != "none" for window in overlap.windows.values())
        sides = overlap.weights or overlap.hides_gradients
        if self.space.mapper.overlap == "profile":
            return [(int(windows), int(sides))]
        return [(a, g) for a in ((1, 0) if windows else (0,)) for g in ((1, 0) if sides else (0,))]

    def walk(self, wanted: Wanted = all_wanted, first: int = 0) -> Iterator[Block]:
        """Every block of the space, its points that fit and are wanted. (What is wanted may change from one block to the next.) first: the
        group to begin with, the counts of those before it kept."""
        if not first:
            self.counts.update(space=0.0, priced=0.0)
            self.infeasible.clear()
        number = 0
        for index, price in enumerate(self.prices[first:], start=first):
            choices = self._choices(price)
            plans = len(self.groups[index].variants)
            covered = self.groups[index].found
            for stages, columns in self._pieces(price.columns.stages, plans):
                layers = Layers.of([figures.columns(columns) for figures in price.sections], choices)
                sends, counts = price.sends.columns(columns), price.columns.micro_batches[columns]
                for schedule, chunks in self._schedules(price, stages):
                    made = price.cut(stages, chunks)
                    points = plans * len(columns) * len(self.overlaps)
                    self.counts["space"] += 0 if covered else points
                    number += 1
                    if made is None:
                        self._miss("layers do not divide", points)
                        continue
                    shape = _Shape(
                        group=index,
                        number=number,
                        cut=made,
                        schedule=schedule,
                        columns=columns,
                        micro_batches=counts,
                        layers=layers,
                        sends=sends,
                    )
                    block = self._block(shape, wanted)
                    if block is not None:
                        yield block

    def _choices(self, price: GroupPrice) -> StepChoices:
        """What is composed at once. Stages below the layer do not wait for the host's time of a layer."""
        profile = self.job.profile.model_copy(update={"host": Host()}) if price.staged else self.job.profile
        windows, beside = (np.array([pair[k] for pair in self.overlaps], dtype=float) for k in (0, 1))
        return StepChoices(profile=profile, windows=windows, beside=beside)

    def _pieces(self, stages: Ints, plans: int) -> Iterator[tuple[int, Ints]]:
        """Columns of equal pipeline depth, in pieces whose arrays stay in the processor's cache."""
        wide = max(1, CELLS // (plans * len(self.overlaps)))
        for depth in np.unique(stages):
            columns = np.flatnonzero(stages == depth)
            for first in range(0, len(columns), wide):
                yield int(depth), columns[first : first + wide]

    def _schedules(self, price: GroupPrice, stages: int) -> list[tuple[str, int]]:
        """(schedule, chunks) of a pipeline depth; one for no pipeline."""
        if price.staged:
            return [(schedule, 1) for schedule in self.space.schedules if not TABLE[schedule].chunked] or [(PLAIN, 1)]
        if stages == 1:
            return [(PLAIN, 1)]
        found = []
        for schedule in self.space.schedules:
            if TABLE[schedule].chunked:
                found += [(schedule, v) for v in self.space.interleave if v > 1]
            else:
                found.append((schedule, 1))
        return found or [(PLAIN, 1)]

    def _miss(self, why: str, points: float) -> None:
        if points:
            self.infeasible[why] = self.infeasible.get(why, 0.0) + points

    # -- one block -----------------------------------------------------------------------------------------------------------

    def _block(self, shape: _Shape, wanted: Wanted) -> Block | None:
        """The points of a block that fit and are wanted; None where there are none."""
        memory, host = memory_of(shape.layers.sections, shape.cut, shape.schedule, shape.micro_batches)
        self._remember_nearest(shape, memory, host)
        fits = self._fits(shape, memory, host)
        if not fits.any():
            return None
        joules = step_joules(shape.layers.sections, shape.sends, shape.cut, shape.micro_batches)
        quick = self._apart(shape, shape.layers, device_seconds(shape.layers, shape.sends, shape.cut, shape.schedule, shape.micro_batches))
        worth = wanted(quick, joules[..., None] + self.static_w * quick, memory[..., None]).any(axis=-1)
        plans, columns = np.nonzero(fits & worth)
        if not len(plans):
            return None
        layers, sends, counts = shape.layers.cells(plans, columns), shape.sends.cells(plans, columns), shape.micro_batches[columns]
        seconds = self._apart(shape, layers, least_seconds(layers, sends, shape.cut, shape.schedule, counts), counts)
        return Block(
            group=shape.group,
            number=shape.number,
            cut=shape.cut,
            schedule=shape.schedule,
            plans=plans,
            columns=shape.columns[columns],
            seconds=seconds,
            joules=joules[plans, columns][:, None] + self.static_w * seconds,
            memory=np.broadcast_to(memory[plans, columns][:, None], seconds.shape),
        )

    def _fits(self, shape: _Shape, memory: Array, host: Array) -> NDArray[np.bool_]:
        """[plans, columns] whether points can run; the others are counted by what they miss."""
        is_open = np.ones(len(shape.columns), dtype=bool)
        overlaps = len(self.overlaps)
        if TABLE[shape.schedule].chunked:
            is_open = shape.micro_batches % shape.cut.stages == 0
            self._miss("micro-batches are no multiple of the stages", float((~is_open).sum()) * len(memory) * overlaps)
        fits = (memory <= self.capacity) & (host <= self.prices[shape.group].host_bytes) & self.home_fits[shape.group][0][:, None]
        self._miss("memory", float((~fits & is_open).sum()) * overlaps)
        self.counts["priced"] += float(is_open.sum()) * len(memory) * overlaps
        return np.asarray(fits & is_open)

    def _apart(self, shape: _Shape, layers: Layers, seconds: Array, counts: Ints | None = None) -> Array:
        """Stages of a cut below the layer may run side by side: a step lasts at least as long as the busiest of them."""
        if not self.prices[shape.group].staged:
            return seconds
        m = (shape.micro_batches if counts is None else counts)[:, None].astype(np.float64)
        busiest = np.maximum.reduce([m * (one.forward + one.backward) for one in layers.times(split=False)])
        return np.asarray(np.minimum(seconds, busiest * (1 - 1e-12)))

    def _remember_nearest(self, shape: _Shape, memory: Array, host: Array) -> None:
        least = float(memory.min())
        if self.nearest is None or least < self.nearest.need:
            plan, column = (int(i) for i in np.unravel_index(int(np.argmin(memory)), memory.shape))
            point = self._point(shape, plan, int(shape.columns[column]), 0)
            self.nearest = Nearest(least, point, float(host.min()), self.prices[shape.group].host_bytes)

    # -- a point -------------------------------------------------------------------------------------------------------------

    def point(self, block: Block, flat: int, bound: float) -> Point:
        """The point at a place of a block's flat arrays."""
        cell, overlap = divmod(flat, len(self.overlaps))
        found = self._point(block, int(block.plans[cell]), int(block.columns[cell]), overlap)
        seconds, joules, memory = (float(values[cell, overlap]) for values in (block.seconds, block.joules, block.memory))
        return replace(found, bound=bound, seconds=seconds, joules=joules, memory=memory)

    def _point(self, block: Block | _Shape, plan: int, column: int, overlap: int) -> Point:
        """A point whose figures are not known."""
        return Point(
            group=block.group,
            variant=plan,
            column=column,
            overlap=self.overlaps[overlap],
            schedule=block.schedule,
            stages=block.cut.stages,
            chunks=block.cut.chunks,
            bound=0.0,
            seconds=0.0,
            joules=0.0,
            memory=0.0,
            order=(block.group, plan, column, block.number, overlap),
        )
