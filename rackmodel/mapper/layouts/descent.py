"""Better layouts near the best one found: one operation's choice is changed at a time, as long as that is better.

A layer alone does not know what a step repeats: weights are gathered for every micro-batch, and splitting the batch makes those fewer.
So the best of the layouts found is where a descent begins, on the mesh and the home that it was best on:

    a round   every other choice of every operation alone, priced as steps; then the best of these joined, first two, then three ...

until a round finds nothing better. What it ends with joins the layouts found; columns and bounds stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from rackmodel.cost.step.group import Job
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.mapper.mapspace import Group, Mapspace
from rackmodel.mapper.points import Point
from rackmodel.mapper.search import Found, Question, search_space
from rackmodel.model.layout import Choice, legal_choices
from rackmodel.model.mapping import LayoutSpec, MapperSpec, homes_of

ROUNDS = 12
JOINED = 8  # changes that are joined, the best first
BETTER = 1.0 - 1e-4  # of less no search of the whole space is worth while
NAME = "descended"

Choices = dict[str, Choice]


@dataclass(frozen=True)
class Descent:
    """axis: the free one · space_of: the space of a mapper whose layouts are all named."""

    job: Job
    space_of: Callable[[MapperSpec], Mapspace]
    axis: str
    question: Question

    def improved(self, mapper: MapperSpec, found: Found) -> MapperSpec | None:
        """The mapper with what a descent from the best point of `found` ends with beside its layouts; None where that is no better."""
        point = found.points[0]
        group = found.groups[point.group]
        narrow = _narrowed(mapper, group, point, self.axis)
        if narrow is None:
            return None
        variant = group.variants[point.variant]
        begin = mapper.layouts[variant.layout] if variant.layout in mapper.layouts else LayoutSpec()
        place = group.parents.index(self.axis)  # an axis over two networks is two
        was: Choices = {op: choice[place] for op, choice in variant.plan.choices.items()}
        best, changed = found.certificate.objective, Choices()
        for number in range(1, ROUNDS + 1):
            self.question.watch.say(f"layouts near the best, round {number}")
            others = self._others({**was, **changed}, narrow)
            single = self._priced(narrow, begin, [{**changed, op: choice} for op, choice in others])
            gains = [(value, more) for value, more in single if value < best * BETTER]
            if not gains or self.question.watch.over():
                break
            joined = self._priced(narrow, begin, list(_joined(changed, [more for _, more in gains[:JOINED]])))
            best, changed = min([gains[0], *joined[:1]], key=lambda one: one[0])
        return mapper.model_copy(update={"layouts": {**mapper.layouts, NAME: self._said(begin, changed)}}) if changed else None

    def _others(self, now: Mapping[str, Choice], narrow: MapperSpec) -> list[tuple[str, Choice]]:
        """(operation, another choice of it), those that the degree divides; of the batch, with the ranks that split it already."""
        workload, batch = self.job.workload, self.job.workload.batch
        degrees = {name: said.degree for name, said in narrow.axes.items() if isinstance(said.degree, int)}
        ranks = degrees[self.axis]
        of_batch = ranks * prod(degrees[name] for name, said in narrow.split.items() if said == [batch])

        def divides(choice: Choice) -> bool:
            if choice is None or choice not in workload.sizes:
                return True
            parts = of_batch if choice == batch else ranks
            return workload.sizes[choice] % parts == 0 or (narrow.may_be_uneven(choice) and workload.sizes[choice] >= parts)

        others = ((name, other) for name in now for other in legal_choices(workload.ops[name], workload))
        return [(name, other) for name, other in others if other != now[name] and divides(other)]

    def _said(self, begin: LayoutSpec, choices: Mapping[str, Choice]) -> LayoutSpec:
        chosen = {op: {**begin.choose.get(op, {}), self.axis: "none" if c is None else c} for op, c in choices.items()}
        return LayoutSpec.model_validate({**begin.model_dump(), "choose": {**begin.choose, **chosen}})

    def _priced(self, narrow: MapperSpec, begin: LayoutSpec, each: Sequence[Choices]) -> list[tuple[float, Choices]]:
        """(objective, choices) of layouts on the narrow mapper, the best first; those that cannot be, or do not fit, are left out."""
        if not each:
            return []
        named = {f"{NAME} {number}": self._said(begin, choices) for number, choices in enumerate(each)}
        layouts: dict[str, Any] = {"layouts": named}
        asked = Question(goal=self.question.goal, top=len(named), limits=self.question.limits, watch=self.question.watch)
        try:
            found = search_space(self.job, self.space_of(narrow.model_copy(update=layouts)), asked)
        except InfeasibleError:
            return []
        except InputError:  # one of them cannot be: which one is found by halves
            half = len(each) // 2
            parts = (each[:half], each[half:]) if half else ()
            return sorted((one for part in parts for one in self._priced(narrow, begin, part)), key=lambda one: one[0])
        values: dict[str, float] = {}
        for point in found.points:
            name = found.groups[point.group].variants[point.variant].layout
            values.setdefault(name, float(self.question.goal.value(*(np.float64(v) for v in (point.seconds, point.joules, point.memory)))))
        order = {name: number for number, name in enumerate(named)}
        return [(value, each[order[name]]) for name, value in sorted(values.items(), key=lambda one: (one[1], order[one[0]]))]


def _joined(now: Choices, changed: Sequence[Choices]) -> list[Choices]:
    """The first two changes together, the first three, and so on; of several of one operation the first."""
    made, whole = [], dict(now)
    touched: set[str] = set()
    for choices in changed:
        (op,) = (name for name, choice in choices.items() if name not in now or choice != now[name])
        if op in touched:
            continue
        touched.add(op)
        whole = {**whole, op: choices[op]}
        if len(touched) > 1:
            made.append(whole)
    return made


def _narrowed(mapper: MapperSpec, group: Group, point: Point, axis: str) -> MapperSpec | None:
    """The mapper on the mesh, the home and the policy of a point alone; None where the free axis is of one rank there."""
    columns, at, variant = group.columns, point.column, group.variants[point.variant]
    degrees = dict.fromkeys(mapper.axes, 1)
    for parent, degree in zip(group.parents, columns.degrees[at], strict=False):
        if parent in degrees:
            degrees[parent] *= int(degree)
    for name, said in mapper.axes.items():
        if said.stages == "layers":
            degrees[name] = point.stages
    if degrees[axis] == 1:
        return None
    changed: dict[str, Any] = {"axes": {name: said.model_copy(update={"degree": degrees[name]}) for name, said in mapper.axes.items()}}
    if mapper.recompute != "per layer":
        changed["recompute"] = variant.recompute or mapper.recompute
    if len(mapper.homes) == 1:
        changed["homes"] = {name: homes_of(said)[variant.home] if homes_of(said) else said for name, said in mapper.homes.items()}
    return mapper.model_copy(update=changed)
