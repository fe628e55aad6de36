"""Points of a study priced when a finding asks for one, under changed inputs, none twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rackmodel import api
from rackmodel.model.result import Result
from rackmodel.studies.run import Points, StudyPoint, plan_points
from rackmodel.studies.study import RunSpec, StudySpec, Value


@dataclass(frozen=True)
class Change:
    """Overrides and the points that they touch. where: column → values, of run, architecture, workload and mapper."""

    sets: Mapping[str, Value] = field(default_factory=dict)
    where: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)

    def touches(self, columns: Mapping[str, Any]) -> bool:
        """Whether it is made at a point."""
        return bool(self.sets) and all(columns[name] in values for name, values in self.where.items())


class LatePoint(StudyPoint):
    """A point that is priced when its result is read."""

    def __init__(self, columns: Mapping[str, Any], price: Callable[[], Result]) -> None:
        for name, value in columns.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_price", price)

    @property
    def result(self) -> Result:
        """Its result, priced now if it was not yet."""
        return self._price()  # type: ignore[attr-defined,no-any-return]


class LatePoints:
    """The points of a study under any change."""

    def __init__(self, study: StudySpec, sets: Iterable[str] = ()) -> None:
        self.study, self.sets = study, tuple(sets)
        self.plan = plan_points(study)
        self.known: dict[tuple[Any, ...], Result] = {}

    def under(self, change: Change | None = None) -> Points:
        """All points; those that the change touches have its overrides."""
        made = change or Change()
        return Points(tuple(self._point(one, made) for one in self.plan))

    def _point(self, planned: tuple[RunSpec, str, str, str, dict[str, Value]], change: Change) -> LatePoint:
        run, architecture, workload, mapper, settings = planned
        columns = {"run": run.name, "architecture": architecture, "workload": workload, "mapper": mapper, "settings": settings}
        more = change.sets if change.touches(columns) else {}
        overrides = (*(f"{name}={value}" for name, value in {**settings, **more}.items()), *self.sets)
        key = (architecture, workload, mapper, overrides, run.minimize, run.profile)

        def price() -> Result:
            if key not in self.known:
                answer = api.search(architecture, workload, mapper, sets=overrides, minimize=run.minimize, profile=run.profile)
                self.known[key] = answer.result
            return self.known[key]

        return LatePoint(columns, price)
