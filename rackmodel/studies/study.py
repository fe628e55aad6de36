"""A study file: which points to run, which charts to draw of them, which findings to check.

The same figures that a command prints go into a chart: y is a column of the ledger, `where` filters its rows and the
points, `series` names what tells two lines apart.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rackmodel.model.mapping import Objective
from rackmodel.model.schema import Spec

Value = str | int | float


class RunSpec(Spec):
    """Points: every combination of the lists."""

    name: str = Field(default="main", description="a name that charts and findings refer to")
    architecture: str | list[str] | None = Field(default=None, description="instead of the study's")
    workload: str | list[str] = Field(description="workloads")
    mapper: str | list[str] = Field(description="mappers")
    set: dict[str, Value | list[Value]] = Field(default_factory=dict, description="overrides, as --set; a list is a sweep")
    minimize: Objective | None = Field(default=None, description="objective")
    profile: str | None = Field(default=None, description="instead of the mapper's")


class ChartSpec(Spec):
    """One chart over the points of a run."""

    title: str = Field(default="", description="what it shows")
    run: str = Field(default="main", description="name of the runs whose points it shows")
    kind: Literal["line", "stacked"] = Field(default="line", description="lines with points, or stacked bars")
    x: str = Field(description="a key of `set`, or workload, mapper, architecture")
    y: Literal["joules", "seconds", "exposed_seconds", "amount"] = Field(description="a column of the ledger, summed")
    where: dict[str, Value | list[Value]] = Field(default_factory=dict, description="filter on points and on ledger columns")
    series: list[str] = Field(default_factory=list, description="ledger columns or point keys that make a series")
    log: bool = Field(default=False, description="logarithmic y")


class StudySpec(Spec):
    """The file of a study."""

    name: str = Field(alias="study", description="the study's name")
    architecture: str = Field(description="the architecture of every run that names none")
    runs: list[RunSpec] = Field(description="what to run")
    charts: dict[str, ChartSpec] = Field(default_factory=dict, description="figures")
    findings: str | None = Field(default=None, description="a set of findings to check")
