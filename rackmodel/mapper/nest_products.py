"""EDP over several loop nests: (Σ E)(Σ T) is not least where each nest's own E T is.

The nests are searched again for latency, for energy and for T* E + E* T, with E* and T* of the best step so far, and the best
product is kept: where E T has its least on the front of (E, T), a weighted sum has its least as well if the front is convex there.
The bound is that of each nest's own least product (results).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rackmodel.cost.step.group import Job
from rackmodel.errors import InfeasibleError
from rackmodel.mapper.loop_nests import NestInside
from rackmodel.mapper.search import Found
from rackmodel.nests.objective import NestObjective

ROUNDS = 2  # of weighted sums


def best_product(job: Job, goal: str, search: Callable[[Job], Found]) -> tuple[Job, Found]:
    """What `search` finds for a job, or for the same job with nests of another aim where its product is smaller."""
    found, inside = search(job), job.setting.inside
    best = job, found
    if goal != "edp" or not isinstance(inside, NestInside) or len(inside.solved) < 2:
        return best
    for number in range(2 + ROUNDS):
        aim = _aim(number, best[1], job.setting.architecture.used)
        if inside.watch.over():
            break
        other = replace(job, setting=replace(job.setting, inside=inside.aimed(aim)))
        try:
            found = search(other)
        except InfeasibleError:
            continue
        if _product(found) < _product(best[1]) * (1 - 1e-12):
            best = other, found
    return best


def _aim(number: int, best: Found, accelerators: int) -> NestObjective:
    """Latency, energy, then weighted sums."""
    if number < 2:
        return NestObjective(("latency", "energy")[number])
    point = best.points[0]
    return NestObjective("weights", float(f"{point.seconds:.2e}"), float(f"{point.joules / accelerators:.2e}"))


def _product(found: Found) -> float:
    point = found.points[0]
    return float(point.seconds * point.joules)
