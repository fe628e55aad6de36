"""Which contraction hides which collective: a profile's windows, resolved on a program of tasks.

A collective on activations may run beside the contractions that read what it brings (the gathered operand, chunk by
chunk), beside those that made what it moves, beside their siblings of the backward pass (the input's gradient is made while an operand
is gathered for the weight's, which is made while the input's is reduced), or beside those of another micro-batch, as long as its own
pass. It is hidden for at most `share` of their time, and no contraction's time is used twice. What depends on what is read off the
program; what reads or makes is of the same pass (a copy gathered forward may be read by the backward pass too, which runs long after
it). Where a contraction is fused with others, its window is their whole kernel's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.cost.program.tasks import Task
from rackmodel.model.profile import Overlap, Window

Kernels = Mapping[int, Ints]
"""Number of a task → [n] number of the first task of its kernel, of tasks that some column has fused."""


def hidable(tasks: Sequence[Task], durations: Sequence[Array], overlap: Overlap, kernels: Kernels | None = None) -> dict[int, Array]:
    """Task → [n] seconds of it that its window can hide; collectives without a window are not in it. kernels: of what is fused."""
    return hidden_beside(tasks, durations, overlap, kernels)[0]


def hidden_beside(
    tasks: Sequence[Task], durations: Sequence[Array], overlap: Overlap, kernels: Kernels | None = None
) -> tuple[dict[int, Array], dict[int, Array]]:
    """(`hidable`, contraction → [n] seconds of collectives that these windows can hide beside it)."""
    kernels = {} if kernels is None else kernels
    if not overlap.windows:
        return {}, {}
    found = _Windows(tasks, kernels)
    room: dict[int, Array] = {}
    hidden: dict[int, Array] = {}
    for number, task in enumerate(tasks):
        window = overlap.windows.get(task.action) if task.kind == "collective" and task.channel == "device" else None  # type: ignore[call-overload]
        if window is None or window.beside == "none":
            continue
        partners = found.partners(number, window)
        left = durations[number]
        for partner, here in found.with_kernels(partners).items():
            before = room.get(partner, durations[partner])
            taken = np.minimum(left, window.share * before)
            taken = taken if here is True else np.where(here, taken, 0.0)
            room[partner] = before - taken
            left = left - taken
        if partners:
            hidden[number] = durations[number] - left
    return hidden, {partner: durations[partner] - left for partner, left in room.items()}


class _Windows:
    """What may hide the collectives of a program. kernels: as of `hidable`."""

    def __init__(self, tasks: Sequence[Task], kernels: Kernels) -> None:
        self.tasks, self.kernels = tasks, kernels
        self.contractions = [number for number, task in enumerate(tasks) if _contracts(task)]
        self.readers: list[list[int]] = [[] for _ in tasks]
        for number, task in enumerate(tasks):
            for before in task.after:
                self.readers[before].append(number)
        self._members: dict[int, dict[int, Any]] = {}

    def with_kernels(self, partners: Sequence[int]) -> dict[int, Any]:
        """Contractions, then what else is of their kernels, each once: number → columns [n] where it is."""
        beside: dict[int, Any] = {}
        for partner in (one for one in partners if one in self.kernels):
            for number, here in self._kernel(partner).items():
                if number not in partners:
                    beside[number] = np.logical_or(beside.get(number, False), here)
        return {**dict.fromkeys(partners, True), **{number: beside[number] for number in self.kernels if number in beside}}

    def _kernel(self, partner: int) -> dict[int, Any]:
        """What is of the kernel of a contraction that is fused: number → columns where it is, those of none left out. Remembered."""
        if partner not in self._members:
            each = self._firsts == self.kernels[partner]
            some = each.any(axis=1).tolist()
            self._members[partner] = {number: each[row] for row, number in enumerate(self.kernels) if some[row]}
        return self._members[partner]

    @cached_property
    def _firsts(self) -> Ints:
        """[tasks, n] the kernels."""
        return np.stack(list(self.kernels.values()))

    def partners(self, number: int, window: Window) -> list[int]:
        """The contractions that may hide a collective."""
        if window.beside == "pass":
            return self.contractions
        task = self.tasks[number]
        brings = window.beside == "reader" or (window.beside == "sibling" and task.action == "all_gather")
        found = self._reached(self.readers[number] if brings else task.after, brings=brings)
        same = [other for other in found if _forward(self.tasks[other]) == _forward(task)]
        return self._siblings(same, task.tensor if brings else "") if window.beside == "sibling" else same

    def _siblings(self, found: Sequence[int], brought: str) -> list[int]:
        """The contractions of the same operations' backward passes beside those found. brought: the tensor that these alone read, which all
        of them are made to wait for; '' = they have made it."""
        names = {self.tasks[number].einsum for number in found if self.tasks[number].phase == "backward"}
        others = [one for one in self.contractions if self.tasks[one].einsum in names and self.tasks[one].phase == "backward"]
        return [one for one in others if (not _reads(self.tasks[one], brought) if brought else one not in found)]

    def _reached(self, start: Sequence[int], *, brings: bool) -> list[int]:
        """The nearest contractions from a task, looking through joins."""
        found: list[int] = []
        pending = list(start)
        while pending:
            number = pending.pop(0)
            if _contracts(self.tasks[number]):
                if number not in found:
                    found.append(number)
            elif self.tasks[number].joins:
                pending += self.readers[number] if brings else self.tasks[number].after
        return found


def _reads(task: Task, tensor: str) -> bool:
    assert task.local_op is not None
    return any(operand.tensor == tensor for operand in task.local_op.operands)


def _forward(task: Task) -> bool:
    """Whether a task is of the forward pass: what is made again is of the backward one."""
    return task.phase == "forward"


def _contracts(task: Task) -> bool:
    return task.local_op is not None and task.local_op.macs
