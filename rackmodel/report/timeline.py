"""What each stage of a pipeline does over the step: computes forward or backward, waits for what is sent, or for another stage.

The step is cut into BINS; of each the shares of what runs are counted from the schedule (cost/step/clock/schedule.py) exactly:

    exposed = covered by any task - covered by an operation      idle (bubbles) = 1 - covered by any task
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rackmodel.arrays import Array, Ints
from rackmodel.cost.step.clock.schedule import Spans, schedule_of, spans_at_most, staged_schedule
from rackmodel.cost.step.exact import ExactStep

BINS = 240
MOST_STAGES = 16
MOST_SPANS = 1_000_000  # that a schedule may have at most; a larger one is not drawn
KINDS = ("forward", "backward", "update", "exposed communication")
FORWARD, BACKWARD, UPDATE, EXPOSED = range(4)


def timeline_of(step: ExactStep) -> dict[str, Any]:
    """{seconds, stages: numbers of those shown, of: how many there are, kinds, shares: [stage][kind][bin] in thousandths, whole: [kind]
    means over all stages}; {} where there is too much to run through."""
    if not step.staged and spans_at_most(step.jobs) > MOST_SPANS:
        return {}
    spans = staged_schedule(step.staged_jobs) if step.staged else schedule_of(step.jobs)
    end = max(float(span.end.max()) for span in spans)
    if not end > 0:
        return {}
    edges = np.linspace(0.0, end, BINS + 1)
    times = _times(_Runs(step), spans)
    numbers = sorted(set().union(*(span.stage.tolist() for span in spans)))
    covered = np.array([_shares(times, stage, edges) for stage in numbers])
    kept = _shown(len(numbers))
    shares = np.round(covered[kept] * 1000).astype(int)
    whole = covered.mean(axis=(0, 2))
    return {
        "seconds": end,
        "stages": [numbers[place] for place in kept],
        "of": len(numbers),
        "kinds": list(KINDS),
        "shares": shares.tolist(),
        "whole": whole.tolist(),
    }


def _shown(count: int) -> list[int]:
    """Stages that are drawn: all, or the first and the last."""
    half = MOST_STAGES // 2
    return list(range(count)) if count <= MOST_STAGES else [*range(half), *range(count - half, count)]


class _Runs:
    """What a job's tasks do, one after another, as shares of its time: jobs of the same tasks are told once."""

    def __init__(self, step: ExactStep) -> None:
        self.step = step
        self.known: dict[tuple[int, tuple[int, ...]], list[tuple[int, float, float]]] = {}

    def of(self, section: int, members: tuple[int, ...]) -> list[tuple[int, float, float]]:
        """(kind, share of the time at its begin, at its end) of runs of tasks of one kind."""
        if (section, members) not in self.known:
            items = [self.step.priced_layers[section].items[number] for number in members]
            each = [float(item.timed(self.step.hide).seconds[0]) for item in items]
            whole, begin, found = sum(each) or 1.0, 0.0, list[tuple[int, float, float]]()
            for item, seconds in zip(items, each, strict=True):
                work = FORWARD if item.task.phase == "forward" else BACKWARD
                kind, end = work if item.task.kind == "op" else EXPOSED, begin + seconds / whole
                goes_on = bool(found) and found[-1][0] == kind
                found.append((kind, found.pop()[1] if goes_on else begin, end))
                begin = end
            self.known[section, members] = found
        return self.known[section, members]


def _times(runs: _Runs, spans: Sequence[Spans]) -> list[tuple[Ints, Array]]:
    """By kind: (stages in order, [n, 2] begins and ends) of all that ran."""
    found: list[list[tuple[Ints, Array]]] = [[] for _ in KINDS]
    for span in spans:
        whole = [(UPDATE if span.kind == "update" else EXPOSED, 0.0, 1.0)]
        length = span.end - span.start
        for work, first, last in runs.of(span.section, span.members) if span.kind == "job" else whole:
            if span.kind != "pass":
                found[work].append((span.stage, np.stack([span.start + length * first, span.start + length * last], axis=1)))
    return [_by_stage(some) for some in found]


def _by_stage(some: Sequence[tuple[Ints, Array]]) -> tuple[Ints, Array]:
    stages = np.concatenate([np.zeros(0, dtype=np.int64), *(stage for stage, _ in some)])
    times = np.concatenate([np.zeros((0, 2)), *(each for _, each in some)])
    order = np.argsort(stages, kind="stable")
    return stages[order], times[order]


def _shares(times: Sequence[tuple[Ints, Array]], stage: int, edges: Array) -> Array:
    """[kind, bin] of one stage."""
    own = [each[slice(*np.searchsorted(stages, (stage, stage + 1)))] for stages, each in times]
    busy = [_covered(own[kind], edges) for kind in (FORWARD, BACKWARD, UPDATE)]
    return np.array([*busy, np.maximum(_covered(np.concatenate(own), edges) - sum(busy), 0.0)])


def _covered(times: ArrayLike, edges: Array) -> Array:
    """Share of each bin that some interval covers. times: [n, 2] begins and ends."""
    begin, end = np.asarray(times, dtype=np.float64).reshape(-1, 2).T
    order = np.lexsort((end, begin))
    begin, end = begin[order], end[order]
    begin = np.maximum(begin, np.concatenate([[-1.0], np.maximum.accumulate(end)])[: len(end)])
    begin, end = begin[end > begin], end[end > begin]
    done = np.cumsum(end - begin)
    reached = np.stack([begin, end], axis=1).reshape(-1)
    lengths = np.stack([done - (end - begin), done], axis=1).reshape(-1)
    whole = np.interp(edges, np.concatenate([[0.0], reached]), np.concatenate([[0.0], lengths]))
    return np.asarray(np.diff(whole) / np.diff(edges))
