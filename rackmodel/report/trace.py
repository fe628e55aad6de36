"""A step's schedule as a trace in the JSON that ui.perfetto.dev and chrome://tracing open: a process a stage, a thread a lane.

Times are microseconds from the start of the step; the last event ends when the clock says. Beside the lanes each stage counts what it
holds: what the memory model says, its activations as the passes in flight come and go. Source of the form: Trace Event Format (Google).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.cost.step.bounds.memory import device_memory
from rackmodel.cost.step.clock.schedule import Span, Spans, schedule_of, spans_at_most, staged_schedule
from rackmodel.cost.step.exact import ExactStep
from rackmodel.errors import InputError
from rackmodel.model.schedules import SPLIT

MOST = 2_000_000
"""Tasks of a trace at most: about a gigabyte of text."""
PASSES = "passes"
US = 1e6


def spans_of(step: ExactStep) -> list[Span]:
    """Every job of a step, as it ran. Raises InputError where there are too many for a trace."""
    if step.staged:
        return _each(staged_schedule(step.staged_jobs))
    count = spans_at_most(step.jobs)
    if count > MOST:
        raise InputError(f"{count:,} tasks, a trace holds {MOST:,}: take fewer micro-batches or layers", path="--trace")
    return _each(schedule_of(step.jobs))


def _each(spans: Sequence[Spans]) -> list[Span]:
    """One by one, in the order of their begins."""
    return sorted((one for some in spans for one in some.each()), key=lambda span: (span.start, span.stage, span.lane, span.end))


def trace_json(step: ExactStep) -> str:
    """The trace of a step of one mapping. Raises InputError."""
    spans = spans_of(step)
    events = [*_lanes(spans), *(event for span in spans for event in _events(step, span)), *_memory(step, spans)]
    about = {"latency_s": max(span.end for span in spans), "workload": step.job.workload.name, "profile": step.job.profile.name}
    data = {"displayTimeUnit": "ms", "otherData": about, "traceEvents": events}
    return json.dumps(data, allow_nan=False, separators=(",", ":")) + "\n"


def _lane(span: Span) -> str:
    return PASSES if span.kind == "pass" else span.lane


def _lanes(spans: Sequence[Span]) -> Iterator[dict[str, Any]]:
    """Names of stages and lanes, passes first."""
    for stage in sorted({span.stage for span in spans}):
        yield {"ph": "M", "name": "process_name", "pid": stage, "args": {"name": f"stage {stage}"}}
    for stage, lane in sorted({(span.stage, _lane(span)) for span in spans}):
        yield {"ph": "M", "name": "thread_name", "pid": stage, "tid": _thread(lane), "args": {"name": lane}}


def _thread(lane: str) -> int:
    known = (PASSES, "device", "weights", "reductions", "up", "home", "send forward", "send backward", "host")
    return known.index(lane) if lane in known else len(known)


def _events(step: ExactStep, span: Span) -> Iterator[dict[str, Any]]:
    """A span as one event, a job as one for each of its tasks."""
    about = {"micro-batch": span.micro_batch} if span.micro_batch >= 0 else {}
    if span.kind != "job":
        word = f"{span.name} {span.micro_batch}" if span.kind == "pass" else span.kind
        more = {"virtual stage": span.section} if span.kind == "pass" else {}
        yield _event(word, span.kind, span, (span.start, span.end), about | more)
        return
    items = step.priced_layers[span.section].items
    begin = span.start
    for number, end in zip(span.members, _ends(step, span), strict=True):
        task = items[number].task
        word = " ".join(part for part in (task.einsum, task.action or ("" if task.kind == "op" else task.kind)) if part)
        kind = {"op": "compute", "collective": "network", "stream": "network", "send": "network"}.get(task.kind, "memory")
        yield _event(word, kind, span, (begin, end), {"phase": task.phase, "section": span.section, **about})
        begin = end


def _ends(step: ExactStep, span: Span) -> list[float]:
    """When each of a job's tasks ends: they run in a row, and the last ends with the job."""
    items = step.priced_layers[span.section].items
    each = [float(items[number].timed(step.hide).seconds[0]) for number in span.members]
    total, length = sum(each), span.end - span.start
    ends = span.start + np.cumsum(each) * (length / total if total > 0 else 0.0)
    return [*ends[:-1].tolist(), span.end]


def _event(name: str, kind: str, span: Span, times: tuple[float, float], about: dict[str, Any]) -> dict[str, Any]:
    start, end = times
    place = {"pid": span.stage, "tid": _thread(_lane(span))}
    return {"ph": "X", "name": name, "cat": kind, "ts": start * US, "dur": (end - start) * US, **place, "args": about}


def _memory(step: ExactStep, spans: Sequence[Span]) -> Iterator[dict[str, Any]]:
    """What each stage holds, counted whenever that changes; of a cut below the layer nothing, whose passes have no begin."""
    each = np.array([float(one.held["activations"].reshape(-1)[0]) for one in step.figures])
    for stage, moments in _in_flight(step, spans, step.structure.cut.counts @ each).items():
        parts = device_memory(step.figures, step.structure.cut, step.structure.schedule, step.columns.micro_batches, stage)
        held = {what: float(size.reshape(-1)[0]) for what, size in parts.items() if size.any() and what != "host"}
        for time, size in moments:
            now = held | {"activations": size} if "activations" in held else held
            yield {"ph": "C", "name": "memory (bytes)", "pid": stage, "ts": time * US, "args": now}


def _in_flight(step: ExactStep, spans: Sequence[Span], each: Array) -> dict[int, list[tuple[float, float]]]:
    """Stage → (time, bytes of the passes that it holds from then on): from a forward pass's start to the end of the pass that frees it.
    each: [virtual stages] bytes of a pass."""
    ends = ("weight", "whole backward") if step.structure.schedule in SPLIT else ("backward",)
    freeing = ends if step.job.workload.backward else ("forward",)
    found: dict[int, list[tuple[float, float]]] = defaultdict(lambda: [(0.0, 0.0)])
    there: dict[int, Ints] = defaultdict(lambda: np.zeros(len(each), dtype=np.int64))
    for span in spans:  # a stage runs one pass at a time
        for names, time, change in ((("forward",), span.start, 1), (freeing, span.end, -1)):
            if span.kind == "pass" and span.name in names:
                there[span.stage][span.section] += change
                found[span.stage].append((time, float(there[span.stage] @ each)))
    return dict(found)
