"""What each stage of a pipeline does over the step: computes forward or backward, waits for what is sent, or for another stage.

The step is cut into BINS; of each the shares of what runs are counted from the schedule (cost/step/schedule.py) exactly:

    exposed = covered by any task - covered by an operation      idle (bubbles) = 1 - covered by any task
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.step.exact import ExactStep
from rackmodel.cost.step.schedule import Span, schedule_of, spans_at_most, staged_schedule

BINS = 240
MOST_STAGES = 16
MOST_SPANS = 1_000_000  # that a schedule may have at most; a larger one is not drawn
KINDS = ("forward", "backward", "update", "exposed communication")
FORWARD, BACKWARD, UPDATE, EXPOSED = range(4)
Array = NDArray[np.float64]
Times = list[tuple[float, float]]


def timeline_of(step: ExactStep) -> dict[str, Any]:
    """{seconds, stages: numbers of those shown, of: how many there are, kinds, shares: [stage][kind][bin] in thousandths, whole: [kind]
    means over all stages}; {} where there is too much to run through."""
    if not step.staged and spans_at_most(step.jobs) > MOST_SPANS:
        return {}
    spans = staged_schedule(step.staged_jobs) if step.staged else schedule_of(step.jobs)
    end = max(span.end for span in spans)
    numbers = sorted({span.stage for span in spans})
    if not end > 0:
        return {}
    edges = np.linspace(0.0, end, BINS + 1)
    covered = np.array([_shares(step, [span for span in spans if span.stage == stage], edges) for stage in numbers])
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


def _shares(step: ExactStep, spans: Sequence[Span], edges: Array) -> Array:
    """[kind, bin] of one stage."""
    times: dict[int, Times] = {kind: [] for kind in range(len(KINDS))}
    for span in spans:
        if span.kind != "pass":
            for kind, begin, end in _parts(step, span):
                times[kind].append((begin, end))
    busy = [_covered(times[kind], edges) for kind in (FORWARD, BACKWARD, UPDATE)]
    every = _covered([one for some in times.values() for one in some], edges)
    return np.array([*busy, np.maximum(every - sum(busy), 0.0)])


def _parts(step: ExactStep, span: Span) -> Iterable[tuple[int, float, float]]:
    """(kind, begin, end) of a span's tasks, which run in a row and end with it."""
    if span.kind == "update":
        yield UPDATE, span.start, span.end
        return
    if span.kind != "job":
        yield EXPOSED, span.start, span.end
        return
    items = [step.costs[span.section].items[number] for number in span.members]
    each = [float(item.timed(step.hide).seconds[0]) for item in items]
    stretch = (span.end - span.start) / sum(each) if sum(each) > 0 else 0.0
    begin = span.start
    for item, seconds in zip(items, each, strict=True):
        end = begin + seconds * stretch
        work = FORWARD if item.task.phase == "forward" else BACKWARD
        yield (work if item.task.kind == "op" else EXPOSED), begin, end
        begin = end


def _covered(times: Times, edges: Array) -> Array:
    """Share of each bin that some interval covers."""
    ends, reached = [0.0], -1.0
    lengths = [0.0]
    for begin, end in sorted(times):
        begin = max(begin, reached)
        if end <= begin:
            continue
        ends += [begin, end]
        lengths += [lengths[-1], lengths[-1] + end - begin]
        reached = end
    done = np.interp(edges, ends, lengths)
    return np.asarray(np.diff(done) / np.diff(edges))
