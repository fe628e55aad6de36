"""Exact times: cuts are simulated in the order of their bounds until none left can beat the best."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice

import numpy as np

from rackmodel.cost.step.pipeline import StageTimes, lower_bound, simulate
from rackmodel.mapper.stages.bounds import Bounds
from rackmodel.mapper.stages.cut_problem import CutAnswer, CutProblem, Ints
from rackmodel.mapper.stages.mixes import Tables
from rackmodel.mapper.stages.whole import BYTE, NEVER, Whole

TIGHT = 1e-9  # a simulated step this near its bound is optimal
SIMULATED = 256  # cuts simulated before the search gives up proving
BATCH = 32  # of them at once
OPENED = 20_000  # partial cuts opened, at most


@dataclass(frozen=True)
class TimedCut:
    """layers of the best simulated cut, its seconds, the bound on all cuts, how many were simulated."""

    layers: tuple[int, ...]
    seconds: float
    bound: float
    simulated: int

    @property
    def proven(self) -> bool:
        """Whether the bound meets the seconds."""
        return self.seconds <= self.bound * (1 + TIGHT)


def search_cuts(problem: CutProblem, whole: Whole, tables: Tables, bounds: Bounds, found: TimedCut) -> TimedCut:
    """Simulate cuts in the order of their bounds until none left can beat the best, at most SIMULATED of them.

    Complete where a layer's forward takes as long under every policy: then a stage's fastest mix is the fastest in both passes.
    """
    cuts, best, tried = (
        _in_order(problem, whole, tables, bounds),
        (_rank(found.seconds), NEVER, found.layers, found.seconds),
        found.simulated,
    )
    open_from, gave_up = 0.0, False
    while open_from <= best[3] * (1 + TIGHT) and tried < SIMULATED and not gave_up:
        batch = list(islice(cuts, BATCH))
        gave_up = bool(batch) and not batch[-1][2]
        open_from = batch[-1][0] * whole.unit if len(batch) == BATCH or gave_up else math.inf
        left = [one for one in batch if one[2] and one[0] * whole.unit <= best[3] * (1 + TIGHT)]
        if left:
            times = stage_times(problem, [tables.mixes(layers) for _, _, layers in left])
            least = lower_bound(problem.schedule, times, micro_batches=problem.micro_batches)
            left = [left[x] for x in np.flatnonzero(least <= best[3] * (1 + TIGHT))]
        if left:
            took = simulated_seconds(problem, [tables.mixes(layers) for _, _, layers in left])
            best = min([best, *((_rank(t), price, layers, t) for (_, price, layers), t in zip(left, took, strict=True))])
            tried += len(left)
    alike = bool((whole.forward[0] == whole.forward[1]).all())
    return TimedCut(best[2], best[3], max(found.bound, min(open_from, best[3])) if alike else found.bound, tried)


def _rank(seconds: float) -> float:
    """Equal steps whose sums were rounded differently are one rank."""
    return float(f"{seconds:.10e}")


def _in_order(problem: CutProblem, whole: Whole, tables: Tables, bounds: Bounds) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """(bound, price, layers) of every cut, by bound: best first over partial cuts. No layers: given up, what is left has that bound."""
    p, scale = problem.stages, len(problem.kinds) ** 2 + 1
    heap: list[tuple[int, int, int, int, int, tuple[int, ...]]] = [(bounds.least, 0, 0, 0, 0, ())]
    for opened in count(1):
        if not heap:
            return
        floor, depth, price, before, n, layers = heapq.heappop(heap)
        i = -depth
        if i == p:
            yield floor, price, layers
            continue
        if opened > OPENED:
            yield floor, 0, ()
            return
        hop, through = whole.hop if i < p - 1 else 0, bounds.through[i, n]
        for size in np.flatnonzero(through < NEVER).tolist():
            then = before + int(bounds.seconds[i, n, size]) + hop
            more = price + int(tables.joules[i, tables.which[n, size]]) * scale + size * size
            heapq.heappush(heap, (max(floor, before + int(through[size])), depth - 1, more, then, n + size, (*layers, size)))


def stage_times(problem: CutProblem, mixes: Sequence[Ints]) -> StageTimes:
    """Of cuts, each [S, K, Q] layers."""
    counts = np.stack(mixes, axis=1).astype(float)  # [S, n, K, Q]
    wait = 0.0 if problem.sends_overlap or problem.stages == 1 else problem.send_s
    first, last, both = problem.first, problem.last, []
    allowed = np.isfinite(np.asarray(problem.forward_s) + problem.backward_s)
    for layer, ends in ((problem.forward_s, (first.forward_s, last.forward_s)), (problem.backward_s, (first.backward_s, last.backward_s))):
        seconds = np.einsum("snkq,kq->sn", counts, np.where(allowed, layer, 0.0)) + wait
        seconds[0] += ends[0]
        seconds[-1] += ends[1]
        both.append(seconds)
    send = problem.send_s if problem.sends_overlap else 0.0
    return StageTimes(both[0], both[1], 0.0, send, send)


def simulated_seconds(problem: CutProblem, mixes: Sequence[Ints]) -> list[float]:
    """Simulated seconds of cuts."""
    times = stage_times(problem, mixes)
    return [float(t) for t in simulate(problem.schedule, times, micro_batches=problem.micro_batches).finish_s]


def answer_of(problem: CutProblem, whole: Whole, mixes: Ints, found: TimedCut) -> CutAnswer:
    """What a cut is and holds."""
    held = whole.fixed + mixes.sum(axis=2) @ whole.state + whole.flying * (mixes * whole.saved).sum(axis=(1, 2))
    held = held + np.maximum(whole.space, np.where(mixes > 0, whole.working, 0).max(axis=(1, 2)))
    price = np.asarray(problem.forward_s) + problem.backward_s if problem.joules is None else np.asarray(problem.joules)
    joules = float((mixes.sum(axis=0) * np.where(whole.allowed, price, 0.0)).sum()) * problem.micro_batches
    bound = min(found.bound, found.seconds)
    return CutAnswer(found.layers, mixes, found.seconds, bound, found.proven, joules, held / BYTE, found.simulated)
