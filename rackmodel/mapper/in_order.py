"""Objectives in order: the first as small as can be, then of those mappings the least of the next, and so on.

Each search but the first is under the limit of what those before it found, equal within SAME. A certificate is of the last objective;
a gap of one before it is a gap of the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf

from rackmodel.cost.step.group import Job
from rackmodel.errors import InputError
from rackmodel.mapper.limits import BLENDED, SYMBOLS
from rackmodel.mapper.mapspace import Mapspace
from rackmodel.mapper.nest_trades import best_of_nests, then_least_of_nests
from rackmodel.mapper.objective import Objective
from rackmodel.mapper.search import Found, Question, search_space
from rackmodel.mapper.twins import Twins
from rackmodel.model.certificate import status_of
from rackmodel.model.mapping import OBJECTIVES

ALIKE, MANY = 4, 300
"""Points asked for where one is wanted of those that differ, as long as there are not so many more; as many times more where that was not
enough."""

SAME = 1e-9  # relative difference below which two mappings are equal in an objective


def read_goals(text: str) -> list[str]:
    """Names of objectives, in order: 'latency,energy'. Raises InputError."""
    names = [name.strip() for name in text.split(",")]
    for number, name in enumerate(names):
        if not name:
            raise InputError(f"'{text}': a word is missing beside a comma", path="--minimize")
        if name not in OBJECTIVES:
            raise InputError(f"unknown objective '{name}'", path="--minimize", known=OBJECTIVES, given=name)
        if name in names[:number]:
            raise InputError(f"{name} is there twice", path="--minimize", known=OBJECTIVES)
    return names


def search_in_order(job: Job, space: Mapspace, question: Question, goals: Sequence[Objective]) -> tuple[Found, Found]:
    """(the best points for the first of the goals, of these for the next; what found the front, which is of all points that keep the
    limits, not of the best alone). Of several best ones, those that differ: on one mesh with the same seconds and joules only the first."""
    top = question.top
    asked = replace(question, top=min(top * ALIKE, top + MANY)) if top > 1 else question
    while True:
        best = best_of_nests(job, asked, space, lambda some, asks: search_space(some, space, asks))
        found = _then_least(best, asked, goals, space)
        points = Twins(found.groups, found.prices).distinct(found.points) if top > 1 else found.points
        if len(points) >= top or len(found.points) < asked.top or question.watch.stopped:
            return replace(found, points=points[:top]), best[1]
        asked = replace(asked, top=asked.top * ALIKE)


def _then_least(best: tuple[Job, Found], question: Question, goals: Sequence[Objective], space: Mapspace) -> Found:
    """The least of the further objectives among what was found, `best`, of the first. goals: all of them, the first as well."""
    (job, found), exactly = best, question.limits
    for before, goal in pairwise(goals):
        point, sheet, limits = found.points[0], found.certificate, question.limits
        name = before.name
        limits = replace(limits, blends={**limits.blends, **({name: before} if name in BLENDED else {})})
        least = limits.figure(name, point)
        most = min(least * (1 + SAME), limits.most.get(name, inf))
        question = replace(question, goal=goal, limits=limits.of({**limits.most, name: most}), front=())
        exactly = question.limits.of({**exactly.most, name: least})
        job, found = then_least_of_nests(job, question, space, lambda some, asks: search_space(some, space, asks), before, exactly)
        gap = max(sheet.gap, found.certificate.gap)
        first = f"{name} first: {least:.6g} {SYMBOLS[name]}, {status_of(sheet.gap)}"
        notes = (sheet.note, first, found.certificate.note)
        said = "; ".join(dict.fromkeys(note for note in notes if note))
        found = replace(found, certificate=replace(found.certificate, gap=gap, bound=found.certificate.objective * (1 - gap), note=said))
    return found
