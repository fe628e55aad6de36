"""When tasks run: the schedule ends when the clock says, and every task runs when the simulator of events runs it."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from rackmodel.cost.step.clock.clock import StepJobs, step_seconds
from rackmodel.cost.step.clock.schedule import Span, schedule_of, spans_at_most
from tests import samples
from tests.events import simulate
from tests.step_cases import Maker

SEEDS = 240


def every(jobs: StepJobs) -> list[Span]:
    return [one for some in schedule_of(jobs) for one in some.each()]


def rounded(seconds: float) -> float:
    return float(f"{seconds:.9e}") if abs(seconds) > 1e-9 else 0.0


def ours(spans: list[Span]) -> Counter[tuple[object, ...]]:
    return Counter((span.stage, span.members, rounded(span.start), rounded(span.end)) for span in spans if span.kind == "job")


def simulated(jobs: StepJobs) -> Counter[tuple[object, ...]]:
    found: Counter[tuple[object, ...]] = Counter()
    for task in simulate(jobs)[1]:
        if task.name.endswith(",)"):
            members = tuple(int(word) for word in task.name[task.name.index("(") + 1 : -1].split(",") if word.strip())
            found[task.stage, members, rounded(task.start), rounded(task.end)] += 1
    return found


@pytest.mark.parametrize("batch", range(samples.cases(1, 4)))
def test_every_task_of_random_steps_runs_when_the_simulator_runs_it(batch: int) -> None:
    for seed in range(batch, SEEDS, 4):
        jobs = Maker(seed, 1).step()
        spans = every(jobs)
        assert max(span.end for span in spans) == pytest.approx(float(step_seconds(jobs)[0]), rel=1e-11, abs=1e-12), f"seed {seed}"
        assert ours(spans) == simulated(jobs), f"seed {seed}"
        assert sum(ours(spans).values()) <= spans_at_most(jobs) + sum(len(s["first"].body) for s in jobs.sections) * jobs.counts.sum()


def test_nothing_shares_a_lane() -> None:
    for seed in range(60):
        lanes: dict[tuple[int, str], list[Span]] = {}
        for span in every(Maker(seed, 1).step()):
            takes = span.end - span.start > 1e-12 * span.end  # what takes nothing shares nothing
            if takes and span.kind in ("job", "send", "hand-over", "update", "tied"):
                lanes.setdefault((span.stage, span.lane), []).append(span)
        for spans in lanes.values():
            spans.sort(key=lambda span: (span.start, span.end))
            assert all(a.end <= b.start + 1e-9 * b.start for a, b in pairwise(spans)), f"seed {seed}"
