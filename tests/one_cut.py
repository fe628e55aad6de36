"""The best cut of one problem, found alone: what a search does among the cuts of many columns (mapper/stages/best_cuts)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rackmodel.arrays import Ints
from rackmodel.mapper.stages.cut_clock import CutClock
from rackmodel.mapper.stages.cut_problem import CutProblem
from rackmodel.mapper.stages.integers import BYTE, IntegerProblem
from rackmodel.mapper.stages.options import held
from rackmodel.mapper.stages.stage_cut import TIGHT, ColumnCuts, TimedCut

Array = NDArray[np.float64]
TIMED = 256  # cuts timed before the search gives up proving


@dataclass(frozen=True)
class CutAnswer:
    """layers: [stages] of each stage · mixes: [stages, K, Q] of them, by kind and policy · seconds: of a step by the clock · bound: no cut
    is faster · proven: this one is the fastest (to 1e-9) · joules: of the layers, a step (recomputed as seconds where none were given) ·
    held_bytes: [stages] · timed: cuts that the clock ran."""

    layers: tuple[int, ...]
    mixes: Ints
    seconds: float
    bound: float
    proven: bool
    joules: float
    held_bytes: Array
    timed: int


def best_cut(problem: CutProblem, clock: CutClock) -> CutAnswer:
    """The fastest cut and mixes of policies. Errors as `ColumnCuts`."""
    cuts = ColumnCuts(problem, clock)
    best = min(cuts.first, key=lambda one: _rank(cuts.integers, one))
    while best.seconds > cuts.least * cuts.integers.unit * (1 + TIGHT) and cuts.timed < TIMED:
        found = cuts.next(best.seconds)
        if found is None:
            break
        best = min(best, found, key=lambda one: _rank(cuts.integers, one))
    return answer_of(cuts, best)


def _rank(integers: IntegerProblem, cut: TimedCut) -> tuple[object, ...]:
    """Equal steps whose sums were rounded differently are one rank."""
    layers = cut.mixes.sum(axis=(1, 2))
    joules = int((cut.mixes.sum(axis=0) * integers.joules).sum())
    return float(f"{cut.seconds:.10e}"), joules, int(np.square(layers).sum()), tuple(layers.tolist()), tuple(cut.mixes.ravel().tolist())


def answer_of(cuts: ColumnCuts, best: TimedCut) -> CutAnswer:
    """What a cut is and holds."""
    problem, integers, mixes = cuts.problem, cuts.integers, best.mixes
    bytes_held = [int(held(integers, stage, mix.reshape(1, -1))[0]) for stage, mix in enumerate(mixes)]
    price = np.asarray(problem.forward_s) + problem.backward_s if problem.joules is None else np.asarray(problem.joules)
    joules = float((mixes.sum(axis=0) * np.where(integers.allowed, price, 0.0)).sum()) * problem.micro_batches
    proven = best.seconds <= cuts.bound * (1 + TIGHT)
    return CutAnswer(
        layers=tuple(int(n) for n in mixes.sum(axis=(1, 2))),
        mixes=mixes,
        seconds=best.seconds,
        bound=min(max(cuts.bound, cuts.least * integers.unit), best.seconds),
        proven=proven,
        joules=joules,
        held_bytes=np.array(bytes_held) / BYTE,
        timed=cuts.timed,
    )
