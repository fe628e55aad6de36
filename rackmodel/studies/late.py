"""Points of a study priced when a finding asks for one, under changed inputs, none twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rackmodel.cost.step.tasks.shared import Shared
from rackmodel.inputs.shared import SharedInputs
from rackmodel.model.result import Result
from rackmodel.once import once
from rackmodel.studies.answer import OK, search_point
from rackmodel.studies.batch import read_point
from rackmodel.studies.plan import Ask, Sets, plan_points
from rackmodel.studies.run import Points, StudyPoint
from rackmodel.studies.study import StudySpec, Value


@dataclass(frozen=True)
class Change:
    """Overrides and the points that they touch. where: column → values, of run, architecture, workload and mapper."""

    sets: Mapping[str, Value] = field(default_factory=dict)
    where: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)

    def touches(self, columns: Mapping[str, Any]) -> bool:
        """Whether it is made at a point."""
        return bool(self.sets) and all(columns[name] in values for name, values in self.where.items())


class LatePoints:
    """The points of a study under any change. sets: settings of all runs, which no change replaces."""

    def __init__(self, study: StudySpec, sets: Sets | None = None) -> None:
        self.study, self.sets = study, sets or {}
        self.plan = plan_points(study, self.sets)
        self.known: dict[tuple[Any, ...], Result] = {}
        self.inputs, self.shared = SharedInputs(), Shared()

    def under(self, change: Change | None = None) -> Points:
        """All points; those that the change touches have its overrides."""
        made = change or Change()
        return Points(tuple(self._point(one, made) for one in self.plan))

    def _point(self, ask: Ask, change: Change) -> StudyPoint:
        """A point that is priced when its result is read."""
        columns = {"run": ask.run, "architecture": ask.architecture, "workload": ask.workload, "mapper": ask.mapper}
        more = {name: value for name, value in change.sets.items() if name not in self.sets} if change.touches(columns) else {}
        changed = replace(ask, settings={**ask.settings, **more})

        def price() -> Result:
            key = (ask.architecture, ask.workload, ask.mapper, tuple(changed.sets), ask.minimize, ask.profile)
            return once(self.known, key, lambda: search_point(read_point(self.inputs, changed), ask.minimize, self.shared))

        return StudyPoint(**columns, settings=ask.settings, row={"status": OK}, load=price)
