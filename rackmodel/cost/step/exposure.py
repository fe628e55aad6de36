"""Whose time a step is: each task's exposed seconds on the stage that sets the pace, and what waits for other stages.

    exposed   seconds of a task in the clock x times it is on the critical path, as far as the stage that sets the pace runs it itself
    bubble    the rest of the path: what it runs at other stages beyond that, for which the stage waits

The ledger's exposed seconds are these, row by row; `bins` sums them for many steps without a ledger of each.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

import numpy as np

from rackmodel.cost.step.critical_path import Path, critical_paths
from rackmodel.cost.step.exact import ExactStep, Structure
from rackmodel.cost.step.layers import Item

Counts = Counter[str]


def figure_of(figure: object, column: int) -> float:
    """A figure of one mapping: one for each, or one for all."""
    flat = np.asarray(figure, dtype=np.float64).reshape(-1)
    return float(flat[column if flat.size > 1 else 0])


class Exposure:
    """The critical path of one mapping, task by task. column: of the step · path, other: `critical_path` · bubbles: phase → seconds that
    were found to wait for other stages, which every call of `of_...` adds to."""

    def __init__(self, step: ExactStep, structure: Structure, column: int, path: Path, other: Counts) -> None:
        self.step, self.cut, self.column, self.other = step, structure.cut, column, other
        self.m = structure.micro_batches
        self.on_path: dict[tuple[int, int], list[tuple[str, int]]] = {}
        for ((x, name), number), times in path.items():
            self.on_path.setdefault((x, number), []).append((name, times))
        self.bubbles = {"forward": 0.0, "backward": 0.0}
        self.busy = self.cut.busy[self._pace()]

    def _pace(self) -> int:
        """The stage with most work on its device."""
        if self.step.staged:
            work = [0.0] * self.cut.stages
            for item in self.step.costs[0].items:
                work[item.task.stage] += figure_of(item.seconds, self.column)
            return int(np.argmax(work))
        return int(np.argmax(self.cut.busy @ self.step.device_seconds[:, self.column]))

    def of_item(self, x: int, number: int, item: Item) -> float:
        """Exposed seconds of task `number` of part x that the stage that sets the pace runs itself."""
        if item.role == "update":
            name = f"update {item.task.stage if self.step.staged else x}"
            return figure_of(item.seconds, self.column) * self.other[name]
        found = self.on_path.get((x, number), [])
        times = sum([count for _, count in found], 0.0)
        if not times:
            return 0.0
        alone = figure_of(item.timed(self.step.hide).seconds, self.column)
        seconds = sum(alone * self._stretch(x, name, item) * count for name, count in found)
        layers = 1 if self.step.staged else int(self.busy[x])
        own = layers * (1 if item.once else self.m)
        share = seconds if self.step.staged else seconds * min(1.0, own / times)
        if seconds > share:
            self.bubbles[item.phase_of_bubble] += seconds - share
        return share

    def _stretch(self, x: int, name: str, item: Item) -> float:
        """Seconds of an item in the clock over its seconds alone."""
        if name == "staged":
            return 1.0
        slowed = self.step.passes[x][name].slowed(self.step.lanes.of(item.role), port=item.waits_for_port)
        return figure_of(slowed, self.column)

    def of_host(self, x: int) -> Iterator[tuple[str, float]]:
        """(phase, exposed seconds) of waiting for the host to launch a layer of part x."""
        for name, times in self.on_path.get((x, -1), []):
            phase = "forward" if name in ("first", "forward") else "backward"
            seconds = self.step.passes[x][name].host_s * times
            share = seconds * min(1.0, int(self.busy[x]) * self.m / times)
            self.bubbles[phase] += seconds - share
            yield phase, share

    def of_sends(self, kind: int) -> int:
        """Times a hand-over of a kind (0: forward, 1: backward) of the stage itself is on the path."""
        times, own = self.other[f"send {kind}"], self.cut.chunks * self.m
        self.bubbles["backward" if kind else "forward"] += figure_of(self.step.sends.seconds[0], self.column) * max(0, times - own)
        return min(times, own)


def exposure_bins(step: ExactStep, structure: Structure, which: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[dict[str, float]]:
    """For each of some columns the seconds of its critical path by what they go to, as its ledger would sum them: compute, memory, network
    by operation, host, bubble."""
    shares = _Shares(step)
    found = []
    for column, (_, path, other) in zip(which.tolist(), critical_paths(step.jobs_of(structure, which)), strict=True):
        found.append(shares.bins(Exposure(step, structure, column, path, other)))
    return found


class _Shares:
    """Which part of each task's time is whose, on all columns."""

    def __init__(self, step: ExactStep) -> None:
        self.step = step
        self.items = [
            (x, number, item, self._parts(item))
            for x, cost in enumerate(step.costs)
            for number, item in enumerate(cost.items)
            if item.rows
        ]

    def _parts(self, item: Item) -> list[tuple[str, object]]:
        """Name of a bin → seconds of the item's rows in it, over the item's."""
        whole = np.asarray(item.seconds, dtype=np.float64)
        sums: dict[str, object] = {}
        for row in item.rows:
            if not np.any(row.exposed):
                continue
            name = f"network {row.action}" if row.component == "network" else row.component
            sums[name] = sums.get(name, 0.0) + np.asarray(row.exposed)  # type: ignore[operator]
        return [(name, np.divide(part, whole, out=np.zeros(np.broadcast(part, whole).shape), where=whole > 0)) for name, part in sums.items()]

    def bins(self, exposure: Exposure) -> dict[str, float]:
        """The bins of one column."""
        found: dict[str, list[float]] = {}
        column, step = exposure.column, self.step
        for x, number, item, parts in self.items:
            if item.role != "update" and (x, number) not in exposure.on_path:
                continue
            seconds = exposure.of_item(x, number, item)
            for name, part in parts:
                found.setdefault(name, []).append(seconds * figure_of(part, column))
        for x in range(len(step.costs)):
            found.setdefault("host", []).extend(seconds for _, seconds in exposure.of_host(x))
        if exposure.cut.stages > 1:
            send = figure_of(step.sends.seconds[0], column)
            for kind in (0, 1) if step.job.workload.backward else (0,):
                found.setdefault("network send", []).append(send * exposure.of_sends(kind))
            tied = figure_of(step.jobs.tied_s, column) * exposure.other["tied"]
            found.setdefault("network all_reduce", []).append(tied)
        found["bubble"] = list(exposure.bubbles.values())
        return {name: total for name, seconds in sorted(found.items()) if (total := math.fsum(seconds)) > 0.0}

