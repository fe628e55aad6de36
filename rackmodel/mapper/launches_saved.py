"""Regions to fuse where a layer waits for its host: a launch saved is no sum over nests.

A pass takes max(D, H - launch · k) seconds, D of its nests and k launches saved. Regions that make D least are searched first. Where the
host takes longer than they do, regions are searched once more with every launch saved counted as seconds of the device (D - launch · k
least), and the better step of the two stands. What the first search proves of D, and what any regions could save at most, bound both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rackmodel.cost.step.group import Job
from rackmodel.errors import InfeasibleError
from rackmodel.mapper.nests.loop_nests import NestInside
from rackmodel.mapper.search import Found, Question

Search = Callable[[Job, Question], Found]


def best_fused(job: Job, question: Question, search: Search) -> tuple[Job, Found]:
    """What `search` finds for a job, or for the same job with regions that save more launches where that is better."""
    found, inside = search(job, question), job.setting.inside
    launch_s = job.profile.host.launch_s * job.setting.architecture.launching
    if not isinstance(inside, NestInside) or not (inside.fused and launch_s) or inside.watch.over():
        return job, found
    priced = inside.hidden and inside.aim.name == "energy" and inside.watts(job.setting.architecture) > 0  # seconds beside joules
    if not (inside.shorter or priced):
        return job, found
    counting = inside.aimed(inside.aim, launch_s, second_j=inside.second_j)
    other = replace(job, setting=replace(job.setting, inside=counting))
    try:
        again = search(other, question)
    except InfeasibleError:
        return job, found
    (value, bound), better = _proven(question, found, inside), question.goal.value(*_figures(again))
    if better >= value * (1 - 1e-12):
        return job, found
    if priced:  # (whose bound is not of seconds that the host hides: nest_trades has one)
        return other, again
    counting.settled = max(0.0, 1 - bound / better)
    return other, replace(again, certificate=replace(again.certificate, gap=counting.settled, bound=min(bound, better)))


def _proven(question: Question, found: Found, inside: NestInside) -> tuple[float, float]:
    """(figure of what was found, least of any step)."""
    value = float(question.goal.value(*_figures(found)))
    return value, value * (1 - max(found.certificate.gap, inside.widest_gap))


def _figures(found: Found) -> tuple[float, float, float]:
    point = found.points[0]
    return float(point.seconds), float(point.joules), float(point.memory)
