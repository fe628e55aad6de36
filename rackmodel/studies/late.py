"""Points of a study priced when a finding asks for one, under changed inputs, none twice.

What is known to be asked for is priced ahead, by whoever solves the points of sweeps, and kept in the study's file: who begins again finds
it there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from rackmodel.cost.step.tasks.shared import Shared
from rackmodel.inputs.shared import SharedInputs
from rackmodel.model.result import Result
from rackmodel.once import once
from rackmodel.store.study_file import StudyFile
from rackmodel.studies.answer import OK, Plain, result_from, search_point
from rackmodel.studies.batch import Keyed, SolvedPoint, key_of, read_point
from rackmodel.studies.deal import deal
from rackmodel.studies.plan import Ask, Sets, plan_points
from rackmodel.studies.run import Points, Progress, StudyPoint
from rackmodel.studies.study import StudySpec, Value
from rackmodel.studies.workers import Alone, Workers

FEW = 64  # points that are not worth the start of a process


@dataclass(frozen=True)
class Change:
    """Overrides and the points that they touch. where: column → values, of run, architecture, workload and mapper."""

    sets: Mapping[str, Value] = field(default_factory=dict)
    where: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)

    def touches(self, columns: Mapping[str, Any]) -> bool:
        """Whether it is made at a point."""
        return bool(self.sets) and all(columns[name] in values for name, values in self.where.items())


@dataclass(frozen=True)
class Solvers:
    """Who prices points ahead. file: where answers are kept · by: who solves them · tell: (points done, of so many)."""

    file: StudyFile
    by: Workers
    tell: Progress = lambda done, of: None


Place = tuple[Any, ...]
"""What tells a point under changed inputs from another."""


class LatePoints:
    """The points of a study under any change. sets: settings of all runs, which no change replaces · solvers: of what is priced ahead,
    None = nothing is."""

    def __init__(self, study: StudySpec, sets: Sets | None = None, solvers: Solvers | None = None) -> None:
        self.study, self.sets, self.solvers = study, sets or {}, solvers
        self.plan = plan_points(study, self.sets)
        self.known: dict[Place, Result] = {}
        self.inputs, self.shared = SharedInputs(), Shared()
        self._there: dict[Place, Callable[[], Plain]] = {}  # answers of points that were priced ahead
        self._read: set[int] = set()

    def under(self, change: Change | None = None) -> Points:
        """All points; those that the change touches have its overrides."""
        made = change or Change()
        return Points(tuple(self._point(number, made) for number in range(len(self.plan))))

    @contextmanager
    def noting(self) -> Iterator[set[int]]:
        """Numbers of the points whose results are read within."""
        self._read = set()
        yield self._read

    def _point(self, number: int, change: Change) -> StudyPoint:
        """A point that is priced when its result is read."""
        ask = self.plan[number]
        changed = self._changed(ask, change)

        def price() -> Result:
            self._read.add(number)
            return once(self.known, _place(changed), lambda: self._priced(changed))

        return StudyPoint(**_columns(ask), settings=ask.settings, row={"status": OK}, load=price)

    def _changed(self, ask: Ask, change: Change) -> Ask:
        more = {name: value for name, value in change.sets.items() if name not in self.sets} if change.touches(_columns(ask)) else {}
        return replace(ask, settings={**ask.settings, **more})

    def _priced(self, ask: Ask) -> Result:
        """Raises InputError at its place, InfeasibleError."""
        answer, point = self._there.pop(_place(ask), None), read_point(self.inputs, ask)
        if answer is not None:
            return result_from(answer(), point.inputs().architecture)
        return search_point(point, ask.minimize, self.shared)

    # -- ahead ---------------------------------------------------------------------------------------------------------------

    def ahead(self, wanted: Iterable[tuple[Collection[int], Change]]) -> None:
        """Price points that are likely to be read, where anybody does: numbers of points, under a change each. What has no answer is left
        to who reads it. Raises OutputError."""
        if self.solvers is None:
            return
        file, by, told = self.solvers.file, self.solvers.by, self.solvers.tell
        asked, known = self._asked(wanted)
        for key, answer in file.answers(list(asked)):
            self._take(asked.pop(key), answer["status"], lambda answer=answer: answer)  # type: ignore[misc]
        few = len(asked) <= FEW
        if not asked or (few and file.path is None):
            return
        done, count = [0], len(asked)

        def write(solved: list[SolvedPoint]) -> None:
            file.write((), {one.key: one.text for one in solved})
            for one in solved:
                self._take(asked[one.key], one.answer["status"], lambda text=one.text: json.loads(text))  # type: ignore[misc]
            done[0] += len(solved)

        def tell(waiting: list[SolvedPoint]) -> None:
            told(done[0] + len(waiting), count)

        deal({key: own[0] for key, own in asked.items()}, known, self.inputs, (), Alone() if few else by, write, tell)

    def _asked(self, wanted: Iterable[tuple[Collection[int], Change]]) -> tuple[dict[str, list[Ask]], dict[str, Keyed]]:
        """(key → points that have its answer, key → what it is known by) of those that are not there; what cannot be read is left out."""
        asked, known, seen = dict[str, list[Ask]](), dict[str, Keyed](), set[Place]()
        for numbers, change in wanted:
            for number in sorted(numbers):
                ask = self._changed(self.plan[number], change)
                place = _place(ask)
                if place in self.known or place in self._there or place in seen:
                    continue
                seen.add(place)
                one = key_of(self.inputs, ask)
                if one.problem is None:
                    asked.setdefault(one.key, []).append(ask)
                    known[one.key] = one
        return asked, known

    def _take(self, asks: Iterable[Ask], status: str, answer: Callable[[], Plain]) -> None:
        """An answer of some points, where it is a result."""
        if status == OK:
            self._there |= {_place(ask): answer for ask in asks}


def _columns(ask: Ask) -> dict[str, str]:
    return {"run": ask.run, "architecture": ask.architecture, "workload": ask.workload, "mapper": ask.mapper}


def _place(ask: Ask) -> Place:
    return ask.architecture, ask.workload, ask.mapper, tuple(ask.sets), ask.minimize, ask.profile
