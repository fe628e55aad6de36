"""Better layouts near the best one found: one operation's choice is changed at a time, as long as that is better.

A layer alone does not know what a step repeats: weights are gathered for every micro-batch, and splitting the batch makes those fewer.
So the best of the layouts found, or one of those that the bounds of steps are of (`closing`), is where a descent begins, on the mesh and
the home that it is best on:

    a round   every other choice of every operation alone, priced as steps; then the best of these joined, first two, then three ...

until a round finds nothing better. What it ends with joins the layouts found; columns and bounds stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from rackmodel.cost.step.group import Job
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.mapper.layouts.least_steps import Placed
from rackmodel.mapper.mapspace import Mapspace
from rackmodel.mapper.search import Found, Question, search_space
from rackmodel.model.layout import Choice, legal_choices
from rackmodel.model.mapping import LayoutSpec, MapperSpec, chosen, homes_of

ROUNDS = 12
NEAR = 1.0 + 5e-3
STARTS = 2  # meshes, homes or policies that a descent begins on
JOINED = 8  # changes that are joined, the best first
BETTER = 1.0 - 1e-4  # of less no search of the whole space is worth while
NAME = "descended"

Choices = dict[str, Choice]


@dataclass(frozen=True)
class _Start:
    """Where a descent begins. value: its objective · narrow: the mapper there · begin, choices: its layout, and what that chooses."""

    value: float
    narrow: MapperSpec
    begin: LayoutSpec
    choices: Choices


@dataclass(frozen=True)
class Descent:
    """space_of: the space of a mapper whose layouts are all named · axis: the free one · whole: a layout that leaves each layer whole over
    it."""

    job: Job
    space_of: Callable[[MapperSpec], Mapspace]
    axis: str
    question: Question
    whole: LayoutSpec

    def improved(self, mapper: MapperSpec, found: Found | None, leaves: Sequence[Placed], bound: float) -> MapperSpec | None:
        """The mapper with what descents end with beside its layouts, from the best of the points found and of the leaves; None where that
        is no better. found: None where no layout fits · leaves: layouts that bounds are of · bound: what nothing is below: so near it no
        further descent begins."""
        starts = [] if found is None else self._begun(mapper, found)
        for leaf in leaves:
            narrow, begin = self._on_mesh(mapper, leaf), self._leaf(leaf)
            starts += [_Start(value, narrow, begin, leaf.attained[0]) for value, _ in self._priced(narrow, begin, [{}])[:1]]
        starts.sort(key=lambda start: start.value)
        best, said = math.inf if found is None else found.certificate.objective, None
        meshes: list[MapperSpec] = []
        for start in starts:
            if start.narrow in meshes or len(meshes) == STARTS or (said is not None and best <= bound * NEAR):
                continue
            meshes.append(start.narrow)
            value, changed = self._descended(start)
            if value < best * BETTER:
                best, said = value, self._said(start.begin, changed)
        return None if said is None else mapper.model_copy(update={"layouts": {**mapper.layouts, NAME: said}})

    def _descended(self, start: _Start) -> tuple[float, Choices]:
        """(objective, changed choices) where a descent ends."""
        best, changed = start.value, Choices()
        for number in range(1, ROUNDS + 1):
            self.question.watch.say(f"layouts near the best, round {number}")
            if self.question.watch.over():
                break
            others = self._others({**start.choices, **changed}, start.narrow)
            single = [{**changed, op: choice} for op, choice in others]
            gains = self._priced(start.narrow, start.begin, single, best * BETTER)
            if not gains:
                break
            over = self.question.watch.over()
            several = [] if over else list(_joined(changed, [more for _, more in gains[:JOINED]]))
            best, changed = (self._priced(start.narrow, start.begin, several, gains[0][0]) or gains)[0]
        return best, changed

    def _begun(self, mapper: MapperSpec, found: Found) -> list[_Start]:
        """The best points of a search, each on another mesh, home or policy, as far as the free axis is of more than one rank there."""
        starts: list[_Start] = []
        for point in found.points:
            group = found.groups[point.group]
            variant = group.variants[point.variant]
            degrees = dict.fromkeys(mapper.axes, 1)
            for parent, degree in zip(group.parents, group.columns.degrees[point.column], strict=False):
                if parent in degrees:
                    degrees[parent] *= int(degree)
            degrees |= dict.fromkeys(_of_layers(mapper), point.stages)
            if degrees[self.axis] == 1:
                continue
            homes = {}
            if len(mapper.homes) == 1:
                homes = {name: homes_of(said)[variant.home] if homes_of(said) else said for name, said in mapper.homes.items()}
            narrow = _narrowed(mapper, degrees, variant.recompute, homes)
            if any(narrow == start.narrow for start in starts):
                continue
            begin = mapper.layouts[variant.layout] if variant.layout in mapper.layouts else LayoutSpec()
            place = group.parents.index(self.axis)  # an axis over two networks is two
            choices = {op: choice[place] for op, choice in variant.plan.choices.items()}
            value = point.value(self.question.goal)
            starts.append(_Start(value, narrow, begin, choices))
        return starts[:STARTS]

    def _on_mesh(self, mapper: MapperSpec, leaf: Placed) -> MapperSpec:
        """The mapper on a leaf's mesh, home and policy alone."""
        degrees = {**dict.fromkeys(mapper.axes, 1), self.axis: leaf.degree, **dict.fromkeys(_of_layers(mapper), leaf.stages)}
        if leaf.axis in degrees:
            degrees[leaf.axis] = leaf.data
        homes = dict.fromkeys(mapper.homes, leaf.home) if len(mapper.homes) == 1 and leaf.known else {}
        return _narrowed(mapper, degrees, leaf.recompute, homes)

    def _leaf(self, leaf: Placed) -> LayoutSpec:
        """A leaf's layout: what it says of the free axis."""
        choices, saves = leaf.attained
        return self._said(LayoutSpec.model_validate({**self.whole.model_dump(), "save": saves or None}), choices)

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
        mine = {op: {**chosen(begin.choose, op), self.axis: "none" if c is None else c} for op, c in choices.items()}
        return LayoutSpec.model_validate({**begin.model_dump(), "choose": {**begin.choose, **mine}})

    def _priced(
        self, narrow: MapperSpec, begin: LayoutSpec, each: Sequence[Choices], below: float = math.inf
    ) -> list[tuple[float, Choices]]:
        """(objective, choices) of layouts on the narrow mapper that are below a value, the best first; those that cannot be, or do not fit,
        are left out."""
        if not each:
            return []
        named = {f"{NAME} {number}": self._said(begin, choices) for number, choices in enumerate(each)}
        layouts: dict[str, Any] = {"layouts": named}
        asked = replace(self.question, top=len(named), below=below)
        try:
            found = search_space(self.job, self.space_of(narrow.model_copy(update=layouts)), asked)
        except InfeasibleError:
            return []
        except InputError:  # one of them cannot be: which one is found by halves
            half = len(each) // 2
            parts = (each[:half], each[half:]) if half else ()
            return sorted((one for part in parts for one in self._priced(narrow, begin, part, below)), key=lambda one: one[0])
        values: dict[str, float] = {}
        for point in found.points:
            name = found.groups[point.group].variants[point.variant].layout
            values.setdefault(name, point.value(self.question.goal))
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


def _of_layers(mapper: MapperSpec) -> list[str]:
    """The axes of a pipeline over layers."""
    return [name for name, said in mapper.axes.items() if said.stages == "layers"]


def _narrowed(mapper: MapperSpec, degrees: Mapping[str, int], recompute: str, homes: Mapping[str, Any]) -> MapperSpec:
    """The mapper on one mesh, one policy and, where they are said, one home alone."""
    changed: dict[str, Any] = {"axes": {name: said.model_copy(update={"degree": degrees[name]}) for name, said in mapper.axes.items()}}
    if mapper.recompute != "per layer":
        changed["recompute"] = recompute or mapper.recompute
    if homes:
        changed["homes"] = dict(homes)
    return mapper.model_copy(update=changed)
