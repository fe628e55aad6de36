"""The problem in integers: the only place where seconds and bytes are rounded, so that ties are exact and every solver has the same."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.step.pipeline_orders import check, in_flight
from rackmodel.errors import InputError
from rackmodel.mapper.stages.cut_problem import CAN, ONCE, Array, CutProblem, Ints, check_problem

NEVER = 1 << 60  # a stage that does not fit
SECONDS_SCALE = 2.0**53  # integers in a step run on one device
JOULES_SCALE = 2.0**40
BYTE = 1024  # shares of an uneven split are fractions of a byte


@dataclass(frozen=True)
class IntegerProblem:
    """unit: seconds · seconds, joules, saved, working, gathered, allowed: [K, Q] · forward: [2, K] least and most · once: [ONCE, K] what
    happens once a step · state: [K] · extra: [2, p] seconds, and of them forward, of the ends · extra_once: [ONCE, p] of the ends · tied ·
    hop: seconds from stage to stage and back · fixed, space, buffers: [p] bytes of the ends, their workspace, what they gather ·
    flying: [p] micro-batches · ceiling: none holds more · runs: [L + 1, K] layers of each kind before a layer. Bytes are in 1 / BYTE."""

    unit: float
    seconds: Ints
    forward: Ints
    once: Ints
    joules: Ints
    allowed: NDArray[np.bool_]
    saved: Ints
    working: Ints
    gathered: Ints
    state: Ints
    extra: Ints
    extra_once: Ints
    tied: int
    hop: int
    fixed: Ints
    space: Ints
    buffers: Ints
    flying: Ints
    capacity: int
    ceiling: int
    runs: Ints

    def after(self, what: int) -> Ints:
        """[L + 1] of the layers from one on, and of the last stage's end: the first or the last passes' more (`ONCE`)."""
        whole = self.runs @ self.once[what]
        return np.asarray(whole[-1] - whole + self.extra_once[what, -1])


def integers_of(problem: CutProblem) -> IntegerProblem:
    """Check and scale: the only place where numbers are rounded."""
    p, m = problem.stages, problem.micro_batches
    if problem.schedule not in CAN:
        raise InputError(f"no cut for schedule {problem.schedule!r}", path="schedule", known=CAN, given=problem.schedule)
    check(problem.schedule, p, m)
    forward, backward, saved = (np.asarray(x, dtype=float) for x in (problem.forward_s, problem.backward_s, problem.saved_bytes))
    working, gathered = (
        np.zeros_like(saved) if x is None else np.asarray(x, dtype=float) for x in (problem.working_bytes, problem.gathered_bytes)
    )
    seconds, state = forward + backward, np.asarray(problem.state_bytes, dtype=float)
    joules = seconds if problem.joules is None else np.asarray(problem.joules, dtype=float)
    check_problem(problem, forward, [backward, saved, working, gathered, joules], state)
    allowed = np.isfinite(seconds)
    forward = np.stack([np.where(allowed, forward, np.inf).min(axis=1), np.where(allowed, forward, 0.0).max(axis=1)])
    seconds, joules, saved, working, gathered = (np.where(allowed, x, 0.0) for x in (seconds, joules, saved, working, gathered))
    kinds = np.asarray(problem.kinds, dtype=np.int64)
    hop = (1.0 + problem.backward) * problem.send_s if problem.sends_overlap else 0.0
    extra, once, extra_once = _seconds_of_ends(problem), problem.once.rows(len(state)), np.zeros((len(ONCE), p))
    for stage, end in zip((0, -1), (problem.first, problem.last), strict=True):
        extra_once[:, stage] += end.once.rows(1)[:, 0]
    most = (m + 1) * (seconds[kinds].max(axis=1).sum() + extra[0].sum() + hop * p)
    most += once[:, kinds].sum() + extra_once.sum() + problem.tied_s
    unit = 2.0 ** math.ceil(math.log2(most / SECONDS_SCALE)) if most > 0 else 1.0
    heat = joules[kinds].max(axis=1).sum()
    heat = 2.0 ** math.ceil(math.log2(heat / JOULES_SCALE)) if heat > 0 else 1.0

    def ticks(values: Array, of: float = unit) -> Ints:
        return np.rint(values / of).astype(np.int64)

    return IntegerProblem(
        unit=unit,
        seconds=ticks(seconds),
        forward=ticks(forward),
        once=ticks(once),
        joules=ticks(joules, heat),
        allowed=allowed,
        extra=ticks(extra),
        extra_once=ticks(extra_once),
        tied=round(problem.tied_s / unit),
        hop=round(hop / unit),
        **_bytes(problem, kinds, saved, working, gathered, state),
    )


def _bytes(problem: CutProblem, kinds: Ints, saved: Array, working: Array, gathered: Array, state: Array) -> dict[str, Any]:
    """Everything in bytes, and the layers before each layer."""
    flying = in_flight(problem.schedule, problem.stages, problem.micro_batches)
    fixed, space, buffers = _held_by_ends(problem, flying)
    found = {name: _down(values) for name, values in (("saved", saved), ("working", working), ("gathered", gathered), ("state", state))}
    ceiling = (found["state"][kinds] + found["saved"][kinds].max(axis=1) * int(flying.max())).sum()
    ceiling += fixed.sum() + max(found["working"].max(), space.max()) + max(found["gathered"].max(), buffers.max())
    runs = np.zeros((len(kinds) + 1, len(state)), dtype=np.int64)
    runs[1:] = np.cumsum(kinds[:, None] == np.arange(len(state)), axis=0)
    ends = {"fixed": fixed, "space": space, "buffers": buffers, "flying": flying, "runs": runs}
    return found | ends | {"ceiling": int(ceiling), "capacity": int(min(problem.capacity_bytes * BYTE, float(ceiling)))}


def _seconds_of_ends(problem: CutProblem) -> Array:
    """[2, p] seconds of a micro-batch that a stage spends on the embedding, the head and hand-overs, and of them forward."""
    waits = 0.0 if problem.sends_overlap or problem.stages == 1 else problem.send_s
    extra = np.array([1.0 + problem.backward, 1.0])[:, None] * np.full(problem.stages, waits)
    for stage, end in zip((0, -1), (problem.first, problem.last), strict=True):
        extra[:, stage] += np.array([end.forward_s + end.backward_s, end.forward_s])
    return np.asarray(extra)


def _held_by_ends(problem: CutProblem, flying: Ints) -> tuple[Ints, Ints, Ints]:
    """[p] bytes of the embedding and the head, their workspace, and what they gather."""
    fixed, space, buffers = (np.zeros(problem.stages) for _ in range(3))
    copies = (int(flying[0]), int(flying[-1]) if problem.schedule == "gpipe" else 1)
    for stage, end, times in zip((0, -1), (problem.first, problem.last), copies, strict=True):
        fixed[stage] += end.state_bytes + times * end.saved_bytes
        space[stage] = max(space[stage], end.working_bytes)
        buffers[stage] = max(buffers[stage], end.gathered_bytes)
    return _down(fixed), _down(space), _down(buffers)


def _down(values: Array) -> Ints:
    """Never more than they are: a cut that seems to fit is checked again, one that does not is none."""
    return np.floor(values * BYTE).astype(np.int64)
