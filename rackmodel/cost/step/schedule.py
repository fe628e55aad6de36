"""When each task runs, and which of them the clock waits for.

Tasks wait for their data and for their place on a resource. Each stage has a device; beside it a channel for what
concerns weights and one up to a home (links are full duplex) when the profile lets that overlap, otherwise all are one.
A task starts when all it waits for has ended; the critical path walks back from the end. All in arrays, one entry a
mapping.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.program.tasks import Task

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Timeline:
    """start, end: [tasks, n] seconds · critical: [tasks, n] whether the clock waits for the task · latency: [n]."""

    start: Array
    end: Array
    critical: NDArray[np.bool_]
    latency: Array


def schedule(tasks: Sequence[Task], durations: Sequence[Array], *, overlap_weights: bool) -> Timeline:
    """Earliest start of every task in program order. durations: [n] seconds for each task."""
    n = max((np.size(d) for d in durations), default=1)
    count = len(tasks)
    start, end = np.zeros((count, n)), np.zeros((count, n))
    waits = _waits(tasks, overlap_weights)
    for number in range(count):
        if waits[number]:
            start[number] = end[waits[number]].max(axis=0)
        end[number] = start[number] + durations[number]
    return Timeline(start, end, _critical(end, durations, waits), end.max(axis=0) if count else np.zeros(n))


def _waits(tasks: Sequence[Task], overlap_weights: bool) -> list[list[int]]:
    """For each task the tasks it waits for: its data, then the task before it on its resource."""
    last: dict[tuple[str, int | str], int] = {}
    waits = []
    for number, task in enumerate(tasks):
        mine = [*task.after]
        for resource in _resources(task, overlap_weights):
            if resource in last:
                mine.append(last[resource])
            last[resource] = number
        waits.append(list(dict.fromkeys(mine)))
    return waits


def _resources(task: Task, overlap_weights: bool) -> list[tuple[str, int | str]]:
    if task.channel in ("link", "home"):
        return []
    channel = task.channel if overlap_weights else "device"
    resources: list[tuple[str, int | str]] = [(channel, task.stage)]
    if task.kind in ("load", "store"):
        resources.append(("backing", task.level))
    return resources


def _critical(end: Array, durations: Sequence[Array], waits: list[list[int]]) -> NDArray[np.bool_]:
    """Walk back from the last end through the wait that ended last (ties: the one named first)."""
    critical = np.zeros(end.shape, dtype=bool)
    if not len(end):
        return critical
    columns = np.arange(end.shape[1])
    critical[np.argmax(end, axis=0), columns] = True
    for number in range(len(waits) - 1, -1, -1):
        if not waits[number] or not critical[number].any():
            continue
        before = np.asarray(waits[number])[np.argmax(end[waits[number]], axis=0)]
        chosen = critical[number] & (end[before, columns] > 0)
        critical[before[chosen], columns[chosen]] = True
    return critical
