"""The problem in integers: the only place where seconds and bytes are rounded, so that ties are exact and every solver has the same."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from rackmodel.arrays import Array, Bools, Ints
from rackmodel.cost.step.bounds.memory import gathered_at_once
from rackmodel.cost.step.clock.pipeline_orders import check, in_flight
from rackmodel.errors import InputError
from rackmodel.mapper.stages.cut_problem import CAN, ONCE, CutProblem, by_policy, check_problem

NEVER = 1 << 60  # a stage that does not fit
SECONDS_SCALE = 2.0**53  # integers in a step run on one device
JOULES_SCALE = 2.0**40
BYTE = 1024  # shares of an uneven split are fractions of a byte


@dataclass(frozen=True)
class IntegerProblem:
    """unit: seconds · seconds, joules, saved, working, gathered, allowed: [K, Q] · uses: [p, K, Q] whether a stage may · forward: [2, p, K]
    least and most · once: [ONCE, p, K] what happens once a step · state: [p, K] · extra: [2, p] seconds, and of them forward, of the
    ends · extra_once: [ONCE, p] of the ends · tied · hop: [p] seconds from each stage to the next and back, 0 after the last · fixed,
    space, buffers: [p] bytes of the ends, their workspace, what they gather · flying: [p] micro-batches · capacity: [p] · ceiling: none
    holds more · runs: [L + 1, K] layers of each kind before a layer. Bytes are in 1 / BYTE."""

    unit: float
    seconds: Ints
    forward: Ints
    once: Ints
    joules: Ints
    allowed: Bools
    uses: Bools
    saved: Ints
    working: Ints
    gathered: Ints
    state: Ints
    extra: Ints
    extra_once: Ints
    tied: int
    hop: Ints
    fixed: Ints
    space: Ints
    buffers: Ints
    flying: Ints
    capacity: Ints
    ceiling: int
    runs: Ints

    def alike(self) -> Iterator[tuple[Bools, Ints]]:
        """([K, Q] policies, stages) of stages that may use the same."""
        each, of = np.unique(self.uses.reshape(len(self.uses), -1), axis=0, return_inverse=True)
        for number, flat in enumerate(each):
            yield flat.reshape(self.allowed.shape), np.flatnonzero(of.reshape(-1) == number)

    def after(self, what: int) -> Ints:
        """[L + 1] of the layers from one on, at least, and of the last stage's end: the first or the last passes' more (`ONCE`)."""
        whole = self.runs @ self.once[what].min(axis=0)
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
    seconds, state = forward + backward, by_policy(problem.state_bytes, forward.shape)
    joules = seconds if problem.joules is None else np.asarray(problem.joules, dtype=float)
    check_problem(problem, forward, [backward, saved, working, gathered, joules], state)
    allowed = np.isfinite(seconds)
    uses = np.broadcast_to(allowed if problem.uses is None else allowed & problem.uses[:, None, :], (p, *allowed.shape))
    forward = np.stack([np.where(uses, forward, np.inf).min(axis=2), np.where(uses, forward, 0.0).max(axis=2)])
    once = np.where(uses, problem.once.rows(*allowed.shape)[:, None], np.inf).min(axis=3)
    state = np.where(uses, state, np.inf).min(axis=2)
    seconds, joules, saved, working, gathered = (np.where(allowed, x, 0.0) for x in (seconds, joules, saved, working, gathered))
    kinds = np.asarray(problem.kinds, dtype=np.int64)
    hop, extra, extra_once = _hops(problem), _seconds_of_ends(problem), np.zeros((len(ONCE), p))
    for stage, end in zip((0, -1), (problem.first, problem.last), strict=True):
        extra_once[:, stage] += end.once.rows(1)[:, 0, 0]
    most = (m + 1) * (seconds[kinds].max(axis=1).sum() + extra[0].sum() + hop.sum())
    most += once.max(axis=1)[:, kinds].sum() + extra_once.sum() + problem.tied_s
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
        uses=uses,
        extra=ticks(extra),
        extra_once=ticks(extra_once),
        tied=round(problem.tied_s / unit),
        hop=ticks(hop),
        **_bytes(problem, kinds, saved, working, gathered, state),
    )


def _bytes(problem: CutProblem, kinds: Ints, saved: Array, working: Array, gathered: Array, state: Array) -> dict[str, Any]:
    """Everything in bytes, and the layers before each layer."""
    flying = in_flight(problem.schedule, problem.stages, problem.micro_batches)
    fixed, space, buffers = _held_by_ends(problem, flying)
    found = {name: _down(values) for name, values in (("saved", saved), ("working", working), ("gathered", gathered), ("state", state))}
    ceiling = (found["state"].max(axis=0)[kinds] + found["saved"][kinds].max(axis=1) * int(flying.max())).sum()
    ceiling += fixed.sum() + max(found["working"].max(), space.max()) + gathered_at_once(found["gathered"].max(), buffers.max())
    runs = np.zeros((len(kinds) + 1, len(saved)), dtype=np.int64)
    runs[1:] = np.cumsum(kinds[:, None] == np.arange(len(saved)), axis=0)
    capacity = [int(min(problem.capacity_of(stage) * BYTE, float(ceiling))) for stage in range(problem.stages)]
    ends = {"fixed": fixed, "space": space, "buffers": buffers, "flying": flying, "runs": runs}
    return found | ends | {"ceiling": int(ceiling), "capacity": np.array(capacity, dtype=np.int64)}


def _hops(problem: CutProblem) -> Array:
    """[p] seconds from each stage to the next and back; 0 after the last, and where sends hold the device."""
    found = np.zeros(problem.stages)
    if problem.sends_overlap:
        found[:-1] = (1.0 + problem.backward) * (problem.send_s if problem.hops_s is None else problem.hops_s)
    return found


def _seconds_of_ends(problem: CutProblem) -> Array:
    """[2, p] seconds of a micro-batch that a stage spends on the embedding, the head and hand-overs, and of them forward."""
    waits = 0.0 if problem.sends_overlap or problem.stages == 1 else problem.send_s
    extra = np.array([1.0 + problem.backward, 1.0])[:, None] * np.full(problem.stages, waits)
    for stage, end in zip((0, -1), (problem.first, problem.last), strict=True):
        extra[:, stage] += np.array([end.forward_s + end.backward_s, end.forward_s])
    return np.asarray(extra)


def _held_by_ends(problem: CutProblem, flying: Ints) -> tuple[Ints, Ints, Ints]:
    """[p] bytes of the embedding and the head and of what stages keep between them, the ends' workspace, and what they gather."""
    fixed, space, buffers = (np.zeros(problem.stages) for _ in range(3))
    if problem.between_bytes is not None:
        fixed += problem.between_bytes
    copies = (int(flying[0]), int(flying[-1]) if problem.schedule == "gpipe" else 1)
    for stage, end, times in zip((0, -1), (problem.first, problem.last), copies, strict=True):
        fixed[stage] += end.state_bytes + times * end.saved_bytes
        space[stage] = max(space[stage], end.working_bytes)
        buffers[stage] = max(buffers[stage], end.gathered_bytes)
    return _down(fixed), _down(space), _down(buffers)


def _down(values: Array) -> Ints:
    """Never more than they are: a cut that seems to fit is checked again, one that does not is none."""
    return np.floor(values * BYTE).astype(np.int64)
