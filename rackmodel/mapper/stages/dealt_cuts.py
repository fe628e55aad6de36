"""Uneven cuts under schedules of several chunks a stage, or of weight gradients apart: layers dealt to stages, then to their chunks.

A stage takes at least m times what one micro-batch takes on it, and of p stages the busiest takes at least the mean: whatever the cut,

    T >= m W / p,    W = seconds of one micro-batch through the whole model under each layer's fastest policy

Of the cuts only some are tried: each layer goes to the stage that has least to do, where embedding and head are worth no layer, one
each, or as many as they take the time of; a stage's layers are spread over its chunks, those beside embedding and head filled last, or the
first chunks fuller or the last. So 126 layers in 16 x 8 chunks leave the first and the last chunk to embedding and head (RECALLED:
Grattafiori 2024, section 3.3.2). Points are run by the clock in the order of the longest stage: m times its work, and the passes of one
micro-batch that come before its first and after its last one (before alone where weight gradients are apart). What the certificate has is
the bound above, of columns in which some cut may fit (`most_layers`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rackmodel.arrays import Array, Bools, Ints
from rackmodel.cost.step.bounds.device_times import StepChoices, device_times
from rackmodel.cost.step.bounds.figures import Holding
from rackmodel.cost.step.bounds.memory import BUFFERS, least_in_flight, memory_of
from rackmodel.cost.step.cut import Cut, layers_of
from rackmodel.cost.step.group import GroupPrice, Job
from rackmodel.mapper.mapspace import Group
from rackmodel.mapper.points import Point, sums_of
from rackmodel.mapper.stages.stage_cut import TIGHT
from rackmodel.model.schedules import CHUNKED, FOLDED, FOLDS, SPLIT, TABLE

TRIED = 64
"""Points that the clock may run, those of least bound."""


def apart(schedules: Sequence[str], interleave: Sequence[int]) -> list[tuple[str, int]]:
    """(schedule, chunks) of those listed whose cuts `stage_cut` does not bound."""
    chunked = [(name, chunks) for name in schedules if name in CHUNKED for chunks in interleave if chunks > 1]
    return chunked + [(name, FOLDS if name in FOLDED else 1) for name in schedules if name in SPLIT]


def dealt(layers: int, stages: int, chunks: int, first: float, last: float, *, folded: bool = False) -> list[tuple[int, ...]]:
    """Layers of every chunk, in the order of the model. first, last: what the ends are worth, in layers. None where a stage would hold no
    layer. folded: the second of two chunks lies on the way back, so that the first stage has both ends."""
    busy, held = np.zeros(stages), np.zeros(stages, dtype=np.int64)
    busy[0] = first
    busy[0 if folded else -1] += last
    for _ in range(layers):
        least = stages - 1 - int(np.argmin(busy[::-1]))  # of equals the last, which holds fewest activations
        busy[least], held[least] = busy[least] + 1.0, held[least] + 1
    if not held.all():
        return []
    found = []
    for late in (True, False):
        table = np.zeros((chunks, stages), dtype=np.int64)
        for stage in range(stages):
            each, more = divmod(int(held[stage]), chunks)
            fuller_last = stage == 0 or (late and stage < stages - 1)  # embedding lies in the first chunk, the head in the last
            table[:, stage] = each
            table[chunks - more :, stage] += fuller_last
            table[:more, stage] += not fuller_last
        if folded:
            table[1] = table[1, ::-1]
        found.append(tuple(int(count) for count in table.reshape(-1)))
    return list(dict.fromkeys(found))


def most_layers(sections: Sequence[Holding], schedule: str, stages: int, chunks: int, micro_batches: Ints, capacity: float) -> Array:
    """[plans, columns] layers that all stages together may hold at most, whatever the cut: each of the kind that holds least."""
    inner = [one.held for one in sections if one.layer]

    def least(*names: str) -> Array:
        return np.asarray(np.min([sum((held[name] for name in names), np.zeros(1)) for held in inner], axis=0))

    room = capacity - least("working", "remade") - BUFFERS * least("gathered")
    rests, flies = least("weights", "gradients", "optimizer", "kv_cache"), least("activations")
    total = np.zeros_like(room)
    for device in range(stages):
        each = rests + flies * least_in_flight(schedule, stages, chunks, micro_batches, device)
        total += np.floor(np.divide(np.maximum(room, 0.0), each, out=np.full_like(room, np.inf), where=each > 0) * (1 + TIGHT))
    return np.asarray(total)


def _total(layers: Ints, each: Sequence[Array]) -> Any:
    """Seconds of so many layers of each section."""
    return sum(count * seconds for count, seconds in zip(layers.tolist(), each, strict=True) if count)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """kinds: (schedule, chunks) · overlaps: (windows, beside) pairs · home_fits: of each group [plans] whether homes hold the model ·
    capacity: bytes of an accelerator · most_s: seconds that a point may take."""

    kinds: Sequence[tuple[str, int]]
    overlaps: Sequence[tuple[int, int]]
    home_fits: Sequence[Bools]
    capacity: float
    most_s: float


@dataclass(frozen=True, kw_only=True)
class _Shape:
    """A cut of some columns of a group. bounds: [plans, columns, overlaps] seconds, inf where a point cannot run · memory: [plans,
    columns] bytes on the fullest accelerator, inf where more than memory is in the way."""

    group: int
    cut: Cut
    schedule: str
    columns: Ints
    bounds: Array
    memory: Array


class DealtCuts:
    """Points of dealt cuts. static_w: of the machine · least_s: no cut of any column is faster · listed: points that were bounded ·
    nearest: the point of those that do not fit that needs least."""

    def __init__(self, job: Job, groups: Sequence[Group], prices: Sequence[GroupPrice], static_w: float, asked: Asked) -> None:
        self.job, self.groups, self.prices, self.static_w, self.asked = job, groups, prices, static_w, asked
        self.choices = StepChoices.of(job.profile, asked.overlaps)
        self.least_s, self.listed = np.inf, 0
        self.nearest: Point | None = None

    def points(self) -> list[Point]:
        """Those of least bound that fit, in the order of their bounds; least, listed and nearest are known then."""
        kept: list[tuple[float, int, _Shape, tuple[int, int, int]]] = []
        for shape in self._shapes():
            flat = shape.bounds.reshape(-1)
            order = np.argsort(flat, kind="stable")[:TRIED]
            for place in order[flat[order] < np.inf].tolist():
                plan, column, overlap = (int(at) for at in np.unravel_index(place, shape.bounds.shape))
                kept.append((float(flat[place]), len(kept), shape, (plan, column, overlap)))
            kept = sorted(kept, key=lambda one: one[:2])[:TRIED]
        return [self._priced(self._point(shape, place, bound, number)) for number, (bound, _, shape, place) in enumerate(kept)]

    def _shapes(self) -> Iterator[_Shape]:
        for number, price in enumerate(self.prices):
            depths = price.columns.stages
            for depth in np.unique(depths[depths > 1]).tolist() if not price.staged else ():
                yield from self._of_depth(number, depth, np.flatnonzero(depths == depth))

    def _of_depth(self, group: int, stages: int, columns: Ints) -> Iterator[_Shape]:
        price, layers = self.prices[group], layers_of(self.prices[group].repeats, self.prices[group].layers)
        counts, known = price.columns.micro_batches[columns], dict[bool, list[tuple[Array, Array]]]()
        holdings = [one.holding((slice(None), columns)) for one in price.sections]
        for schedule, chunks in self.asked.kinds:
            if chunks > layers or stages > layers:
                continue
            mine = np.flatnonzero(np.ones(len(columns), dtype=bool) & TABLE[schedule].takes(stages, counts))
            split = schedule in SPLIT
            if split not in known:
                known[split] = self._seconds(price, columns, split=split)
            took = [forward + backward for forward, backward in known[split]]
            fills = [forward for forward, _ in known[split]] if split else took
            whole = sum(repeat * each for repeat, each in zip(price.repeats, took, strict=True)) * counts[:, None] / stages
            runs = self.asked.home_fits[group] & (price.first == np.arange(len(price.first)))
            if not mine.size or not runs.any():
                continue
            some = runs[:, None] & (most_layers(holdings, schedule, stages, chunks, counts, self.asked.capacity) >= layers)
            self.least_s = min(self.least_s, float(np.where(some[..., None], whole, np.inf)[:, mine].min()) * (1 - TIGHT))
            for made in self._cuts(price, schedule, stages, chunks, took):
                devices = [(last, counts[:, None] * _total(made.busy[last], took)) for _, last in made.kinds]
                bounds = np.max([_total(made.before[device], fills) + work for device, work in devices], axis=0) * (1 - TIGHT)
                self.listed += bounds.size
                if float(bounds.min()) > self.asked.most_s:
                    continue
                memory, host = memory_of(holdings, made, schedule, counts)
                can = runs[:, None] & (host <= price.host_bytes) & np.isin(np.arange(len(columns)), mine)
                open_ = (can & (memory <= self.asked.capacity))[..., None] & (bounds <= self.asked.most_s)
                bounds, memory = np.where(open_, bounds, np.inf), np.where(can, memory, np.inf)
                shape = _Shape(group=group, cut=made, schedule=schedule, columns=columns, bounds=bounds, memory=memory)
                self._near(shape)
                yield shape

    def _seconds(self, price: GroupPrice, columns: Ints, *, split: bool) -> list[tuple[Array, Array]]:
        """Of a layer of each section, forward and backward pass: [plans, columns, overlaps]."""
        times = (device_times(one.columns(columns), self.choices, split=split) for one in price.sections)
        return [(one.forward, one.backward) for one in times]

    def _cuts(self, price: GroupPrice, schedule: str, stages: int, chunks: int, took: Sequence[Array]) -> list[Cut]:
        """Cuts that are not even."""
        layers, each = layers_of(price.repeats, price.layers), [float(np.median(one)) for one in took]
        inner = [x for x, layer in enumerate(price.layers) if layer]
        mean = sum(price.repeats[x] * each[x] for x in inner) / layers
        ends = [
            sum(price.repeats[x] * each[x] for x in range(len(each)) if x not in inner and (x < inner[0]) == front)
            for front in (True, False)
        ]
        worth = [(0.0, 0.0), (1.0, 1.0)] + ([(ends[0] / mean, ends[1] / mean)] if mean > 0 else [])
        counts = dict.fromkeys(
            one for first, last in worth for one in dealt(layers, stages, chunks, first, last, folded=schedule in FOLDED)
        )
        found = (price.cut(stages, chunks, one, schedule) for one in counts if len(set(one)) > 1)
        return [one for one in found if one is not None]

    def _near(self, shape: _Shape) -> None:
        plan, column = (int(at) for at in np.unravel_index(int(np.argmin(shape.memory)), shape.memory.shape))
        need = float(shape.memory[plan, column])
        if need < np.inf and (self.nearest is None or need < self.nearest.memory):
            self.nearest = replace(self._point(shape, (plan, column, 0), 0.0, 0), memory=need)

    def _point(self, shape: _Shape, place: tuple[int, int, int], bound: float, number: int) -> Point:
        plan, column, overlap = place
        return Point(
            group=shape.group,
            variant=plan,
            column=int(shape.columns[column]),
            overlap=self.asked.overlaps[overlap],
            schedule=shape.schedule,
            stages=shape.cut.stages,
            chunks=shape.cut.chunks,
            bound=bound,
            seconds=bound,
            joules=0.0,
            memory=float(shape.memory[plan, column]),
            order=(len(self.groups) + 1, number),
            layers=tuple(int(count) for count in shape.cut.counts[:, list(self.prices[shape.group].layers)].sum(axis=1)),
        )

    def _priced(self, point: Point) -> Point:
        """With its joules, static power over the bound among them."""
        sums = sums_of(point, self.prices[point.group], self.groups[point.group])
        return replace(point, joules=sums.joules + self.static_w * point.seconds, memory=sums.memory)
