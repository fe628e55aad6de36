"""A study file: which points to run, which charts to draw of them, which findings to check.

The same figures that a command prints go into a chart: y is a column of the ledger, `where` filters its rows and the
points, `series` names what tells two lines apart.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from rackmodel.model.mapping import Objective
from rackmodel.model.schema import Spec
from rackmodel.studies.expressions import check_text

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


class InputSpec(Spec):
    """What verdicts may rest on: a fact with a range, or a reading with choices. Its own value is that of the files."""

    set: str | list[str] = Field(default=[], description="what takes the value: names as in --set, or figures.NAME of the carbon tables")
    low: Value | None = Field(default=None, description="least that is meant; without low and high: the range beside the fact")
    high: Value | None = Field(default=None, description="most that is meant")
    values: list[Value] | dict[str, dict[str, Value]] | None = Field(
        default=None, description="choices instead of a range; a mapping names each and says what it sets"
    )
    here: str | None = Field(default=None, description="what it is in the files, where `values` is a mapping")
    beyond: list[Value] = Field(default=[], description="values that are not meant, tried to see whether a verdict rests on it")
    where: dict[str, Value | list[Value]] = Field(
        default_factory=dict, description="points it touches: run, architecture, workload, mapper"
    )


class FigureSpec(Spec):
    """A figure of a study's own finding: of one point, or one for each value of `over`."""

    run: str = Field(default="main", description="name of the runs whose points it reads")
    y: str = Field(description="latency, energy or memory of a point, or a column of the ledger, summed over its rows")
    where: dict[str, Value | list[Value]] = Field(default_factory=dict, description="filter on points and on ledger columns")
    over: str | None = Field(default=None, description="a key of `set`, or workload, mapper, architecture: a figure for each value")


class FindingSpec(Spec):
    """A claim about the points of a study, and what it needs to be so."""

    claim: str = Field(description="what is claimed, in words")
    figure: str = Field(default="", description="where it is claimed, such as 'Figure 4'")
    weight: str = Field(default="ours", description="how firmly: must, should, ours")
    figures: dict[str, FigureSpec] = Field(description="name → figure")
    holds: str = Field(description="comparisons joined by `and`, of names, numbers, + - * / and min, max: 'dp < tp and dp <= 1.1 * row'")
    why: str = Field(default="", description="how to read it")

    @field_validator("holds")
    @classmethod
    def _readable(cls, text: str, info: ValidationInfo) -> str:
        check_text(text, info.data.get("figures", {}))
        return text


class StudySpec(Spec):
    """The file of a study."""

    name: str = Field(alias="study", description="the study's name")
    architecture: str = Field(description="the architecture of every run that names none")
    runs: list[RunSpec] = Field(description="what to run")
    charts: dict[str, ChartSpec] = Field(default_factory=dict, description="figures")
    inputs: dict[str, InputSpec] = Field(default_factory=dict, description="name → what verdicts may rest on, varied by --ranges")
    findings: str | dict[str, FindingSpec] | None = Field(default=None, description="a set of findings to check, or findings of its own")
