"""Whose time a step is: each task's exposed seconds on the stage that sets the pace, and what waits for other stages.

    exposed   seconds of a task in the clock x times it is on the critical path, as far as the stage that sets the pace runs it itself
    bubble    the rest of the path: what it runs at other stages beyond that, for which the stage waits

The ledger's exposed seconds are these, row by row; `bins` sums them for many steps without a ledger of each.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rackmodel.arrays import Array, Bools, Ints
from rackmodel.cost.step.clock.critical_path import HOST, Path, critical_paths
from rackmodel.cost.step.exact import ExactStep, Structure
from rackmodel.cost.step.hand_overs import Place
from rackmodel.cost.step.tasks.items import Item
from rackmodel.cost.step.tasks.jobs import PASSES


class TaskSeconds:
    """Seconds of a step's priced tasks in the clock, on the columns whose paths are asked for; made where one is. some: how many these are,
    the first ones, None = all · names: pass → its number."""

    def __init__(self, step: ExactStep, some: int | None = None) -> None:
        self.step, self.some = step, step.pricer.n if some is None else some
        self.names = {name: number for number, name in enumerate(PASSES)}

    @cached_property
    def items(self) -> list[tuple[int, int, Item]]:
        """(part, number, task)."""
        return [(x, k, item) for x, layer in enumerate(self.step.priced_layers) for k, item in enumerate(layer.items) if item.rows]

    @cached_property
    def place(self) -> dict[tuple[int, int], int]:
        """Part and number of a task → its place among the items."""
        return {(x, number): place for place, (x, number, _) in enumerate(self.items)}

    @cached_property
    def part_of(self) -> Ints:
        """[items]."""
        return np.array([x for x, _, _ in self.items], dtype=np.int64)

    @cached_property
    def once(self) -> Bools:
        """[items] whether each happens once a step."""
        return np.array([item.once for _, _, item in self.items], dtype=bool)

    @cached_property
    def forward(self) -> Bools:
        """[items] whether another stage waits for it in the forward phase."""
        return np.array([item.phase_of_bubble == "forward" for _, _, item in self.items], dtype=bool)

    @cached_property
    def updates(self) -> list[tuple[int, int, Item]]:
        """(place, part, task) of what the optimizer does."""
        return [(place, x, item) for place, (x, _, item) in enumerate(self.items) if self.step.lanes.timed(item.role) == "update"]

    @cached_property
    def seconds(self) -> Array:
        """[items x passes, some] seconds of each task in each pass."""
        step, known = self.step, dict[tuple[int, str, bool], Array]()
        each = np.empty((len(self.items), len(self.names), self.some))
        for place, (x, _, item) in enumerate(self.items):
            part = item.task.stage if step.staged else x
            key = part, "" if item.task.kind == "send" else step.lanes.of(item.role), item.waits_for_port
            if key not in known:
                known[key] = self._stretches(*key)
            np.multiply(item.on_lane(step.hide, self.some), known[key], out=each[place])
        return each.reshape(len(self.items) * len(self.names), self.some)

    def _stretches(self, x: int, lane: str, port: bool) -> Array:
        """[passes, some or 1] by how much each pass of a part, or of a stage, slows a task. port: whether it shares a home's port."""
        slowed = (self._first(self.step.passes[x][name].slowed(lane, port=port)) for name in self.names)
        return np.stack(np.broadcast_arrays(np.ones(1), *slowed)[1:])

    def row(self, x: int, name: str, number: int) -> int | None:
        """The row of `seconds` that a task has in a pass; None for what is no priced task."""
        place = self.place.get((x, number))
        return None if place is None else place * len(self.names) + self.names[name]

    @cached_property
    def device(self) -> Array:
        """[parts, some] seconds of a layer's tasks on the device; of a cut below the layer [stages, some]."""
        step = self.step
        if step.staged:
            items, stages = step.priced_layers[0].items, range(step.structure.cut.stages)
            return np.stack([self._sum(item for item in items if item.task.stage == stage) for stage in stages])
        return np.stack([self._sum(item for item in cost.items if item.role == "device") for cost in step.priced_layers])

    def _sum(self, items: Iterable[Item]) -> Array:
        return np.asarray(sum((self._first(item.seconds) for item in items), np.zeros(self.some)))

    @cached_property
    def bins(self) -> tuple[tuple[str, ...], Array]:
        """(names, [bins, items, some] share of each task's seconds): compute, memory, network by operation."""
        names: dict[str, int] = {}
        rows = [(place, *row) for place, (_, _, item) in enumerate(self.items) for row in item.priced.exposed(self.some)]
        told = (f"network {action}" if component == "network" else component for _, component, action, _ in rows)
        of = [names.setdefault(name, len(names)) for name in told]
        whole, exposed = np.empty((len(self.items), self.some)), np.empty((len(rows), self.some))
        for place, (_, _, item) in enumerate(self.items):
            whole[place] = self._first(item.seconds)
        for number, (*_, seconds) in enumerate(rows):
            exposed[number] = seconds
        places = np.array([place for place, *_ in rows], dtype=np.int64)
        spent = whole[places]
        sums = np.zeros((len(names), *whole.shape))
        np.add.at(sums, (np.array(of, dtype=np.int64), places), np.divide(exposed, spent, out=np.zeros_like(exposed), where=spent > 0))
        return tuple(names), sums

    def _first(self, figure: Array | float) -> Array | float:
        """A figure of the columns whose paths are asked for: one for each, or one for all."""
        return figure[: self.some] if isinstance(figure, np.ndarray) and figure.size > 1 else figure


class Exposure:
    """The critical path of one mapping, task by task. column: of the step · path, other: `critical_path` · share: [items] exposed seconds
    that the stage that sets the pace runs itself · hosts: (part, phase, seconds) of waiting for the host · sends: times its own
    hand-overs, forward and backward, are on the path, by their place in `handed` · bubbles: phase → seconds of waiting for other
    stages."""

    def __init__(self, tasks: TaskSeconds, structure: Structure, column: int, path: Path, other: Counter[str]) -> None:
        step, self.tasks, self.cut, self.column, self.other = tasks.step, tasks, structure.cut, column, other
        self.m = structure.micro_batches
        pace = tasks.device[:, column] if step.staged else self.cut.busy @ tasks.device[:, column]
        self.pace = int(np.argmax(pace))
        self.busy = self.cut.busy[self.pace]
        self.bubbles = {"forward": 0.0, "backward": 0.0}
        self.share = self._shares(path)
        self.hosts = list(self._hosts(path))
        self.sends = tuple(self._sends(kind) for kind in (0, 1))

    def of(self, x: int, number: int) -> float:
        """Exposed seconds of a task."""
        return float(self.share[self.tasks.place[(x, number)]])

    def _shares(self, path: Path) -> Array:
        tasks, staged = self.tasks, self.tasks.step.staged
        times = np.zeros(len(tasks.items) * len(tasks.names))
        for ((x, name), number), count in path.items():
            row = tasks.row(x, name, number)
            if row is not None:
                times[row] = count
        weights = (tasks.seconds[:, self.column] * times, times)
        item_of = np.arange(len(times)) // len(tasks.names)
        spent, often = (np.bincount(item_of, weights=one, minlength=len(tasks.items)) for one in weights)
        own = (1 if staged else self.busy[tasks.part_of]) * np.where(tasks.once, 1, self.m)
        mine = 1.0 if staged else np.minimum(1.0, np.divide(own, often, out=np.ones(len(often)), where=often > 0))
        share = spent * mine
        for phase, here in (("forward", tasks.forward), ("backward", ~tasks.forward)):
            self.bubbles[phase] += math.fsum((spent - share)[here])
        for place, x, item in tasks.updates:
            share[place] = figure_of(item.seconds, self.column) * self.other[f"update {item.task.stage if staged else x}"]
        return np.asarray(share)

    def _hosts(self, path: Path) -> Iterator[tuple[int, str, float]]:
        for ((x, name), number), times in path.items():
            if number == HOST:
                phase = "forward" if name in ("first", "forward") else "backward"
                seconds = figure_of(self.tasks.step.passes[x][name].host_s, self.column) * times
                share = seconds if self.tasks.step.staged else seconds * min(1.0, int(self.busy[x]) * self.m / times)
                self.bubbles[phase] += seconds - share
                yield 0 if self.tasks.step.staged else x, phase, share

    def _sends(self, way: int) -> dict[Place, int]:
        """Forward or back; what other stages hand on, and what is more than its own, is time for which the stage waits."""
        own, found = self.own(way), dict[Place, int]()
        for place, handed in self.tasks.step.handed.items():
            times = self.other[f"send {way} {place[0]} {place[1]}" if self.apart else f"send {way}"]
            found[place] = min(times, own.get(place, 0))
            if times > found[place]:
                self.bubbles["backward" if way else "forward"] += figure_of(handed.seconds, self.column) * (times - found[place])
        return found

    @property
    def apart(self) -> bool:
        """Whether the hand-overs of each stage are its own."""
        return bool(self.tasks.step.structure.stages)

    def own(self, way: int) -> dict[Place, int]:
        """Place in `handed` → passes of the stage that sets the pace which hand on there."""
        lanes = self.cut.handing(way)
        if not self.apart:
            return {(0, 0): sum(lanes) * self.m}
        return {(lane, self.pace): count * self.m for lane, count in enumerate(lanes) if count}


@dataclass(frozen=True)
class Asked:
    """Steps of one structure whose seconds are asked for. which: columns of those that were priced · some: how many of these, the first,
    have bins."""

    tasks: TaskSeconds
    structure: Structure
    which: Ints
    some: int


def exposure_bins(asked: Sequence[Asked]) -> Iterator[list[tuple[float, dict[str, float]]]]:
    """For each of the columns of some steps the seconds of the step, and of its critical path by what they go to, as a ledger would sum
    them: compute, memory, network by operation, host, bubble. Pipelines of all of them run side by side."""
    found = critical_paths([(one.tasks.step.jobs_of(one.structure, one.which), one.some) for one in asked])
    for one, paths in zip(asked, found, strict=True):
        steps = zip(one.which[: one.some].tolist(), paths, strict=False)
        detailed = [(seconds, _bins(Exposure(one.tasks, one.structure, column, path, other))) for column, (seconds, path, other) in steps]
        yield [*detailed, *((seconds, {}) for seconds, *_ in paths[one.some :])]


def _bins(exposure: Exposure) -> dict[str, float]:
    tasks, column, step = exposure.tasks, exposure.column, exposure.tasks.step
    names, shares = tasks.bins
    each = (shares[:, :, column] * exposure.share).tolist()  # (summed exactly: whatever else is priced, the sum is the same)
    found = {name: math.fsum(own) for name, own in zip(names, each, strict=True)}
    found["host"] = math.fsum(seconds for *_, seconds in exposure.hosts)
    found["bubble"] = math.fsum(exposure.bubbles.values())
    if exposure.cut.stages > 1:
        tied = figure_of(step.jobs.tied_s, column) * exposure.other["tied"]
        sent = (figure_of(step.handed[place].seconds, column) * n for way in exposure.sends for place, n in way.items())
        found["network send"] = math.fsum(sent)
        found["network all_reduce"] = found.get("network all_reduce", 0.0) + tied
    return {name: seconds for name, seconds in sorted(found.items()) if seconds > 0.0}


def figure_of(figure: object, column: int) -> float:
    """A figure of one mapping: one for each, or one for all."""
    flat = np.asarray(figure, dtype=np.float64).reshape(-1)
    return float(flat[column if flat.size > 1 else 0])
