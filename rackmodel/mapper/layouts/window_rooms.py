"""What windows can hide of a tensor's copies at most, choice by choice: no more than a share of the contractions beside which they run.

    hidden <= min(seconds of the copies, Σ over contractions of (1 − (1 − share)^copies) · their seconds)       in each pass

of copies beside what reads them, and of copies beside what makes them, each with the contractions of its side. As `cost/step/tasks/windows`
has it, but that a contraction may hide one tensor's copies and another's both: so a bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

import numpy as np

from rackmodel.arrays import Array
from rackmodel.cost.program.local_ops import backward_reads
from rackmodel.cost.program.tasks import Task
from rackmodel.mapper.layouts.interfaces import Strategy
from rackmodel.mapper.layouts.merged_kernels import MergedLayer, Share
from rackmodel.mapper.layouts.min_sum import spread
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.workload import Op, Workload

Sided = dict[str, Array]  # side of windows → seconds that these may hide
Partners = dict[str, bool]
SIDES, ANY = ("reader", "maker"), "any"
MOST_PARTNERS = 2  # operations that a tensor's table takes in for their contractions alone


class Layer(Protocol):
    """A layer on n columns. contention: share of what is hidden that slows the device · tasks: what a choice of an operation runs in one
    micro-batch · whole: seconds [n] and joules of one · merged: operations whose kernels may be merged."""

    workload: Workload
    profile: ProfileSpec
    strategies: dict[str, tuple[Strategy, ...]]
    contention: float
    n: int

    @property
    def merged(self) -> MergedLayer: ...
    def tasks(self, name: str, number: int) -> list[Task]: ...
    def whole(self, task: Task) -> tuple[Array, Array]: ...


def in_windows(
    layer: Layer, name: str, variables: tuple[str, ...], ahead: tuple[Array, Sided], behind: tuple[Array, Sided]
) -> tuple[tuple[str, ...], Array, Array]:
    """(variables, seconds at least of a tensor's copies in forward passes, and behind them): their windows hide no more than a share of
    that pass's contractions that read or make the tensor or its gradient, and what is hidden slows them. ahead, behind: seconds that no
    window hides, and those that one may, by the side of their windows."""
    kept = 1.0 - layer.contention
    partners = _partners(layer, name)
    more = [op for op in partners if op not in variables]
    share = _window_share(layer.profile)
    passes = [ahead, behind]
    some = any(seconds.any() for _, windowed in passes for seconds in windowed.values())
    bounded = some and share is not None and len(more) <= MOST_PARTNERS
    if bounded:
        variables = (*variables, *more)
    least = []
    for exposed, windowed in passes:
        shape = (*exposed.shape[:-1], *(1,) * (len(more) if bounded else 0), layer.n)
        least.append(sum((seconds.reshape(shape) for seconds in windowed.values()), exposed.reshape(shape)))
    for side in ahead[1]:
        if bounded and share is not None:
            rooms = _all_rooms(layer, variables, partners, partial(_part, layer, name, share, side, partners))
        for number, (_, windowed) in enumerate(passes):
            hidden = windowed[side]
            if bounded:
                hidden = np.minimum(hidden.reshape((*hidden.shape[:-1], *(1,) * len(more), layer.n)), rooms[number])
            least[number] = least[number] - kept * hidden
    first, last = np.broadcast_arrays(*least)
    return variables, first, last


def _all_rooms(layer: Layer, variables: tuple[str, ...], partners: Partners, part: Share) -> list[Array]:
    """[forward, behind it] seconds of partners' contractions that may hide something, over the values of the variables."""
    rooms: list[Array] = [np.zeros(layer.n), np.zeros(layer.n)]
    for op in partners:
        rooms = [room + spread(own, (op,), variables) for room, own in zip(rooms, _rooms(layer, op, part), strict=True)]
    for change in layer.merged.rooms(part, list(partners), variables):
        whole = [change.of_values(own) for own in (change.ahead, change.behind)]
        rooms = [room + spread(own, change.operations, variables) for room, own in zip(rooms, whole, strict=True)]
    return rooms


def sides_of(profile: ProfileSpec) -> tuple[str, ...]:
    """Beside what a profile's windows are: 'reader', 'maker', or 'any' of what reads and makes; '' where it has none."""
    sides = {window.beside for window in profile.overlap.windows.values()} - {"none"}
    return tuple(sorted({side if side in SIDES else ANY for side in sides})) or ("",)


def side_of(profile: ProfileSpec, action: str) -> str:
    """That of a collective's window."""
    beside = profile.overlap.windows[action].beside  # type: ignore[index]
    return beside if beside in SIDES else ANY


def _window_share(profile: ProfileSpec) -> float | None:
    """The largest share of a window beside what reads or makes; None where one is beside a whole pass."""
    windows = [window for window in profile.overlap.windows.values() if window.beside != "none"]
    if any(window.beside == "pass" for window in windows):
        return None
    return max((float(np.max(window.share)) for window in windows), default=0.0)


def _partners(layer: Layer, name: str) -> Partners:
    """Operations that may hold a contraction that reads or makes a tensor or its gradient, through operations without a backward pass
    of their own: those pass gradients on. Operation → whether it is one of these, or only reads or makes the tensor itself."""
    workload = layer.workload
    passing = {op.name for op in workload.ops.values() if _passes(layer, op)}
    found = dict.fromkeys([*workload.readers[name], *([workload.producer[name]] if name in workload.producer else [])], False)
    pending = [(workload.producer.get(name), True), *((reader, False) for reader in workload.readers[name])]
    beyond: set[str] = set()
    while pending:
        op, back = pending.pop()
        if op is None or op not in passing:
            continue
        if back:
            next_ = [(workload.producer.get(access.tensor), True) for access in workload.ops[op].ins]
        else:
            next_ = [(reader, False) for reader in workload.readers[workload.ops[op].out.tensor]]
        beyond |= {one for one, _ in next_ if one is not None}
        pending += next_
    found |= dict.fromkeys(sorted(beyond), True)
    return {op: far for op, far in found.items() if any(t.local_op is not None and t.local_op.macs for t in layer.tasks(op, 0))}


def _passes(layer: Layer, op: Op) -> bool:
    """Whether an operation's backward pass is nothing that runs."""
    return not any(task.phase == "backward" and task.local_op is not None for task in layer.tasks(op.name, 0))


def _copies_of(workload: Workload, tensor: str) -> int:
    """Copies of a tensor at most that are made of what its operation leaves: for each reader, to be saved, to be handed on."""
    readers = [workload.ops[name] for name in workload.readers[tensor]]
    ops = [*readers, workload.ops[workload.producer[tensor]]]
    saved = any(access.tensor == tensor for op in ops for access in backward_reads(op, workload))
    return sum(access.tensor == tensor for op in readers for access in op.ins) + saved + (tensor in workload.outputs)


def _rooms(layer: Layer, name: str, part: Share) -> Array:
    """[2, choices, n] seconds of an operation's contractions that may hide something: forward, and behind it."""
    found = np.zeros((2, len(layer.strategies[name]), layer.n))
    for number in range(found.shape[1]):
        for task in layer.tasks(name, number):
            if task.local_op is not None and task.local_op.macs:
                found[int(task.phase != "forward"), number] += part([(name, task)]) * layer.whole(task)[0]
    return found


def _part(layer: Layer, tensor: str, share: float, side: str, partners: Partners, kernel: Sequence[tuple[str, Task]]) -> float:
    """Of a kernel of contractions, that which may hide what moves a tensor or its gradient: a share of what is left, each time. What all of
    them read, or sum the gradient of, moves once for all. side: whether that is beside what reads it, what makes it, or any of both."""
    each = [_times(layer, tensor, *one) for one in kernel if partners[one[0]] or _beside(tensor, side, one[1])]
    shared = all(tensor in _flows(task) for _, task in kernel)
    return 1.0 - (1.0 - share) ** (max(each, default=0) if shared else sum(each))


def _beside(tensor: str, side: str, task: Task) -> bool:
    """Whether a contraction is on a side of a tensor's copies: it reads, or makes, the tensor or its gradient."""
    assert task.local_op is not None
    flows = {"reader": task.local_op.reads, "maker": task.local_op.writes}.get(side)
    return flows is None or any(flow.tensor == tensor for flow in flows)


def _times(layer: Layer, tensor: str, name: str, task: Task) -> int:
    """Copies and sums of a tensor at most that one contraction may be beside."""
    made = _copies_of(layer.workload, tensor) if layer.workload.producer.get(tensor) == name else 1
    return max(_flows(task).count(tensor), made if task.phase != "backward" else 1)


def _flows(task: Task) -> list[str]:
    assert task.local_op is not None
    return [flow.tensor for flow in (*task.local_op.reads, *task.local_op.writes)]
