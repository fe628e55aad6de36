"""The table of a study's points: which columns it has, and the row of a point.

    number key · run architecture workload mapper minimize profile · settings as --set names them · status message resource need have
    shortfall unit change · metrics

A metric that is called like a setting (micro_batch) keeps to itself: the plain column is what was set, or found where a run sets none,
and `found.micro_batch` is what was found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rackmodel.studies.answer import Plain
from rackmodel.studies.metrics import COLUMNS, Metric, Value, metric
from rackmodel.studies.plan import Ask, shown

INPUTS = ("run", "architecture", "workload", "mapper", "minimize", "profile")
WHY = ("status", "message", "resource", "need", "have", "shortfall", "unit", "change")


@dataclass(frozen=True)
class Table:
    """names: of the columns, in order · metrics: that are asked of each result."""

    settings: tuple[str, ...]
    metrics: tuple[Metric, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Columns, in order; none that differs from another in capitals alone, which no database tells apart."""
        names = [*INPUTS, *self.settings, *WHY]
        plain = {name.lower() for name in names}
        names += [one.name if one.name.lower() not in plain else f"found.{one.name}" for one in self.metrics]
        seen: dict[str, int] = {}
        return tuple(_apart(name, seen) for name in names)

    def row(self, ask: Ask, answer: Plain, figures: Mapping[str, Value]) -> dict[str, Any]:
        """The row of a point. figures: metric → its figure, none where there is no result."""
        inputs = [ask.run, *(shown(one) for one in (ask.architecture, ask.workload, ask.mapper)), ask.minimize, ask.profile]
        values = [value if value is not None else figures.get(name) for name, value in zip(INPUTS, inputs, strict=True)]
        values += [ask.settings.get(name, figures.get(name)) for name in self.settings]
        values += [answer.get(name) for name in WHY]
        values += [figures.get(one.name) for one in self.metrics]
        return dict(zip(self.names, values, strict=True))


def _apart(name: str, seen: dict[str, int]) -> str:
    number = seen[name.lower()] = seen.get(name.lower(), 0) + 1
    return name if number == 1 else _apart(f"{name} ({number})", seen)


def table_of(asks: Sequence[Ask], columns: Iterable[str]) -> Table:
    """The table of some points. columns: metrics beside the usual ones. Raises InputError for an unknown one."""
    settings = tuple(dict.fromkeys(name for ask in asks for name in ask.settings))
    names = dict.fromkeys((*COLUMNS, *columns))
    return Table(settings, tuple(metric(name) for name in names))
