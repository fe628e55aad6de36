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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.program.tasks import Task
from rackmodel.model.profile import Overlap, Window

Array = NDArray[np.float64]
Kernels = Mapping[int, NDArray[np.int64]]
"""Number of a task → [n] number of the first task of its kernel, of tasks that some column has fused."""


def hidable(tasks: Sequence[Task], durations: Sequence[Array], overlap: Overlap, kernels: Kernels | None = None) -> dict[int, Array]:
    """Task → [n] seconds of it that its window can hide; collectives without a window are not in it. kernels: of what is fused."""
    kernels = {} if kernels is None else kernels
    if not overlap.windows:
        return {}
    readers = _readers(tasks)
    room = {number: np.array(durations[number], dtype=float) for number, task in enumerate(tasks) if _contracts(task) or number in kernels}
    hidden: dict[int, Array] = {}
    for number, task in enumerate(tasks):
        window = overlap.windows.get(task.action) if task.kind == "collective" and task.channel == "device" else None  # type: ignore[call-overload]
        if window is None or window.beside == "none":
            continue
        partners = _partners(number, tasks, window, readers)
        left = np.array(durations[number], dtype=float)
        for partner, here in _with_kernels(partners, kernels).items():
            taken = np.where(here, np.minimum(left, window.share * room[partner]), 0.0)
            room[partner] = room[partner] - taken
            left = left - taken
        if partners:
            hidden[number] = durations[number] - left
    return hidden


def _with_kernels(partners: Sequence[int], kernels: Kernels) -> dict[int, Any]:
    """Contractions, then what else is of their kernels, each once: number → columns [n] where it is."""
    found: dict[int, Any] = dict.fromkeys(partners, True)
    for first in (kernels[partner] for partner in partners if partner in kernels):
        found |= {n: np.logical_or(found.get(n, False), of == first) for n, of in kernels.items() if n not in partners}
    return found


def _partners(number: int, tasks: Sequence[Task], window: Window, readers: Sequence[Sequence[int]]) -> list[int]:
    """The contractions that may hide a collective."""
    if window.beside == "pass":
        return [other for other, task in enumerate(tasks) if _contracts(task)]
    brings = window.beside == "reader" or (window.beside == "sibling" and tasks[number].action == "all_gather")
    found = _reached(number, tasks, readers if brings else [list(task.after) for task in tasks])
    same = [other for other in found if _forward(tasks[other]) == _forward(tasks[number])]
    return _siblings(same, tasks, tasks[number].tensor if brings else "") if window.beside == "sibling" else same


def _siblings(found: Sequence[int], tasks: Sequence[Task], brought: str) -> list[int]:
    """The contractions of the same operations' backward passes beside those found. brought: the tensor that these alone read, which all of
    them are made to wait for; '' = they have made it."""
    names = {tasks[number].einsum for number in found if tasks[number].phase == "backward"}
    others = [number for number, task in enumerate(tasks) if task.einsum in names and task.phase == "backward" and _contracts(task)]
    return [number for number in others if (not _reads(tasks[number], brought) if brought else number not in found)]


def _reads(task: Task, tensor: str) -> bool:
    assert task.local_op is not None
    return any(operand.tensor == tensor for operand in task.local_op.operands)


def _forward(task: Task) -> bool:
    """Whether a task is of the forward pass: what is made again is of the backward one."""
    return task.phase == "forward"


def _contracts(task: Task) -> bool:
    return task.local_op is not None and task.local_op.macs


def _readers(tasks: Sequence[Task]) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in tasks]
    for number, task in enumerate(tasks):
        for before in task.after:
            found[before].append(number)
    return found


def _reached(start: int, tasks: Sequence[Task], steps: Sequence[Sequence[int]]) -> list[int]:
    """The nearest contractions from a task, looking through joins."""
    found: list[int] = []
    pending = list(steps[start])
    while pending:
        number = pending.pop(0)
        if _contracts(tasks[number]):
            if number not in found:
                found.append(number)
        elif tasks[number].joins:
            pending += steps[number]
    return found
