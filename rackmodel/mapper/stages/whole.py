"""The problem in integers: the only place where seconds and bytes are rounded, so that ties are exact and every solver has the same."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.step.pipeline_orders import check, in_flight
from rackmodel.errors import InputError
from rackmodel.mapper.stages.cut_problem import CAN, Array, CutProblem, Ints, check_problem

NEVER = 1 << 60  # a stage that does not fit
SECONDS_SCALE = 2.0**53  # integers in a step run on one device
JOULES_SCALE = 2.0**40
BYTE = 1024  # shares of an uneven split are fractions of a byte


@dataclass(frozen=True)
class Whole:
    """The problem in integers. unit: seconds · seconds, joules, saved, working, allowed: [K, Q] · forward: [2, K] least and most ·
    state: [K] · extra: [3, p] seconds, of them forward (twice) of the ends · hop: seconds from stage to stage and back ·
    fixed, space: [p] bytes of the ends · flying: [p] micro-batches · ceiling: none holds more ·
    runs: [L + 1, K] layers of each kind before a layer.
    Bytes are in 1 / BYTE."""

    unit: float
    seconds: Ints
    forward: Ints
    joules: Ints
    allowed: NDArray[np.bool_]
    saved: Ints
    working: Ints
    state: Ints
    extra: Ints
    hop: int
    fixed: Ints
    space: Ints
    flying: Ints
    capacity: int
    ceiling: int
    runs: Ints


def whole_of(problem: CutProblem) -> Whole:
    """Check and scale: the only place where numbers are rounded."""
    p, m = problem.stages, problem.micro_batches
    if problem.schedule not in CAN:
        raise InputError(f"no cut for schedule {problem.schedule!r}", path="schedule", known=CAN, given=problem.schedule)
    check(problem.schedule, p, m)
    forward, backward, saved = (np.asarray(x, dtype=float) for x in (problem.forward_s, problem.backward_s, problem.saved_bytes))
    working = np.zeros_like(saved) if problem.working_bytes is None else np.asarray(problem.working_bytes, dtype=float)
    seconds, state = forward + backward, np.asarray(problem.state_bytes, dtype=float)
    joules = seconds if problem.joules is None else np.asarray(problem.joules, dtype=float)
    check_problem(problem, forward, [backward, saved, working, joules], state)
    allowed = np.isfinite(seconds)
    forward = np.stack([np.where(allowed, forward, np.inf).min(axis=1), np.where(allowed, forward, 0.0).max(axis=1)])
    seconds, joules, saved, working = (np.where(allowed, x, 0.0) for x in (seconds, joules, saved, working))
    kinds, ends, length = np.asarray(problem.kinds, dtype=np.int64), (problem.first, problem.last), len(problem.kinds)
    waits = 0.0 if problem.sends_overlap or p == 1 else problem.send_s
    hop = 2.0 * problem.send_s if problem.sends_overlap else 0.0
    extra = np.array([2.0, 1.0, 1.0])[:, None] * np.full(p, waits)
    for stage, end in zip((0, -1), ends, strict=True):
        extra[:, stage] += np.array([end.forward_s + end.backward_s, end.forward_s, end.forward_s])
    most = (m + 1) * (seconds[kinds].max(axis=1).sum() + extra[0].sum() + hop * p)
    unit = 2.0 ** math.ceil(math.log2(most / SECONDS_SCALE)) if most > 0 else 1.0
    heat = joules[kinds].max(axis=1).sum()
    heat = 2.0 ** math.ceil(math.log2(heat / JOULES_SCALE)) if heat > 0 else 1.0
    flying = in_flight(problem.schedule, p, m)
    fixed, space = _held_by_ends(problem, flying)
    whole_saved, whole_working, whole_state = _up(saved), _up(working), _up(state)
    ceiling = (whole_state[kinds] + whole_saved[kinds].max(axis=1) * int(flying.max())).sum() + whole_working.max()
    ceiling += fixed.sum() + space.max()
    capacity = int(min(problem.capacity_bytes * BYTE, float(ceiling)))
    runs = np.zeros((length + 1, len(state)), dtype=np.int64)
    runs[1:] = np.cumsum(kinds[:, None] == np.arange(len(state)), axis=0)
    return Whole(
        unit,
        np.rint(seconds / unit).astype(np.int64),
        np.rint(forward / unit).astype(np.int64),
        np.rint(joules / heat).astype(np.int64),
        allowed,
        whole_saved,
        whole_working,
        whole_state,
        np.rint(extra / unit).astype(np.int64),
        round(hop / unit),
        fixed,
        space,
        flying,
        capacity,
        int(ceiling),
        runs,
    )


def _held_by_ends(problem: CutProblem, flying: Ints) -> tuple[Ints, Ints]:
    """([p], [p]) bytes and workspace of the embedding and the head."""
    fixed, space = np.zeros(problem.stages), np.zeros(problem.stages)
    copies = (int(flying[0]), int(flying[-1]) if problem.schedule == "gpipe" else 1)
    for stage, end, times in zip((0, -1), (problem.first, problem.last), copies, strict=True):
        fixed[stage] += end.state_bytes + times * end.saved_bytes
        space[stage] = max(space[stage], end.working_bytes)
    return _up(fixed), _up(space)


def _up(values: Array) -> Ints:
    return np.ceil(values * BYTE).astype(np.int64)
