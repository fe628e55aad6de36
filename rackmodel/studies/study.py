"""A study file: which points to run, which charts to draw of them, which findings to check.

The same figures that a command prints go into a chart: y is a column of the ledger, `where` filters its rows and the
points, `series` names what tells two lines apart.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, PositiveInt, PrivateAttr, ValidationInfo, field_validator, model_validator

from rackmodel.model.mapping import Objective
from rackmodel.model.schema import Spec
from rackmodel.studies.expressions import check_text
from rackmodel.studies.patterns import check_placeholders

Value = str | int | float
Names = str | list[str]
Ends = tuple[Value, Value]


class RangeSpec(Spec):
    """Values of one setting: spaced, or drawn with others as a Latin hypercube (`samples` of the run). Ends have the same unit."""

    linspace: tuple[Value, Value, PositiveInt] | None = Field(default=None, description="[first, last, how many], equal steps")
    logspace: tuple[Value, Value, PositiveInt] | None = Field(default=None, description="[first, last, how many], equal factors")
    uniform: Ends | None = Field(default=None, description="[least, most]: drawn, all of the range alike")
    loguniform: Ends | None = Field(default=None, description="[least, most]: drawn, every factor alike")
    whole: bool = Field(default=False, description="round to whole numbers, each once")

    @property
    def drawn(self) -> bool:
        """Whether its values are drawn."""
        return self.uniform is not None or self.loguniform is not None

    @model_validator(mode="after")
    def _one(self) -> RangeSpec:
        given = [name for name in ("linspace", "logspace", "uniform", "loguniform") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError("want one of linspace, logspace, uniform and loguniform")
        return self


class RunSpec(Spec):
    """Points: every combination of the lists."""

    name: str = Field(default="main", description="a name that charts and findings refer to")
    architecture: Names | None = Field(default=None, description="architectures, instead of the study's")
    workload: Names | None = Field(default=None, description="workloads, instead of the study's")
    mapper: Names | None = Field(default=None, description="mappers, instead of the study's")
    set: dict[str, Value | list[Value] | RangeSpec] = Field(
        default_factory=dict, description="overrides, as --set; a list or a range is a sweep"
    )
    zip: list[list[str]] = Field(
        default_factory=list, description="names whose lists go together, first with first: of set, or architecture, workload, mapper"
    )
    samples: PositiveInt | None = Field(default=None, description="points of the Latin hypercube of uniform and loguniform settings")
    seed: int = Field(default=0, description="of the draw: the same seed, the same points")
    minimize: Objective | list[Objective] | None = Field(default=None, description="objective")
    profile: Names | None = Field(default=None, description="instead of the mapper's")

    @model_validator(mode="after")
    def _sampled(self) -> RunSpec:
        drawn = [name for name, value in self.set.items() if isinstance(value, RangeSpec) and value.drawn]
        if drawn and self.samples is None:
            raise ValueError(f"set.{drawn[0]}: is drawn: say how many points by samples")
        if self.samples is not None and not drawn:
            raise ValueError("samples: no setting is uniform or loguniform")
        return self


class ChartSpec(Spec):
    """One chart over the points of a run."""

    title: str = Field(default="", description="what it shows")
    run: str = Field(default="main", description="name of the runs whose points it shows")
    kind: Literal["line", "stacked", "bars", "scatter"] = Field(
        default="line", description="lines with points, stacked bars, bars side by side, or points between two metrics"
    )
    finding: list[str] = Field(
        default_factory=list, description="findings whose figures it shows, instead of points; x and y are then the words of its axes"
    )
    figures: list[str] = Field(
        default_factory=list, description="names of those figures; {x} and {series} stand for what differs: '{x} % of wafers work, kg'"
    )
    x: str = Field(description="a key of `set`, or workload, mapper, architecture; of a scatter a metric")
    y: str = Field(description="a column of the ledger, summed (joules, seconds, exposed_seconds, amount), or a metric (mfu, tcdp)")
    where: dict[str, Value | list[Value]] = Field(
        default_factory=dict, description="filter on points, on ledger columns and on metrics ('< 0.9')"
    )
    series: list[str] = Field(default_factory=list, description="ledger columns or point keys that make a series")
    log: bool = Field(default=False, description="logarithmic y")
    words: str = Field(default="", description="what a paper says of it, drawn below the title")
    shown: list[str] = Field(default_factory=list, description="names of the findings that say whether its shape is the paper's")

    @model_validator(mode="after")
    def _of_one_kind(self) -> ChartSpec:
        if bool(self.finding) != bool(self.figures):
            raise ValueError("finding and figures go together: whose figures, and which")
        if self.finding:
            check_placeholders(self.figures)
            asked = [name for name in ("where", "series", "run") if name in self.model_fields_set]
            if asked or self.kind == "scatter":
                raise ValueError(f"{asked[0] if asked else 'kind scatter'}: is of points; a chart of a finding has none")
        if self.log and self.kind in ("stacked", "bars"):
            raise ValueError("log: bars start at 0, which no logarithm has")
        return self


class InputSpec(Spec):
    """What verdicts may rest on: a fact with a range, or a reading with choices. Its own value is that of the files."""

    set: str | list[str] = Field(default=[], description="what takes the value: names as in --set, or figures.NAME of the carbon tables")
    low: Value | None = Field(default=None, description="least that is meant; without low and high: the range beside the fact")
    high: Value | None = Field(default=None, description="most that is meant")
    values: list[Value] | dict[str, dict[str, Value]] | None = Field(
        default=None, description="choices instead of a range; a mapping names each and says what it sets"
    )
    here: str | None = Field(default=None, description="what it is in the files, where `values` is a mapping")
    beyond: list[Value] | dict[str, dict[str, Value]] = Field(
        default=[], description="values that are not meant, tried to see whether a verdict rests on it; or name → what it sets"
    )
    where: dict[str, Value | list[Value]] = Field(
        default_factory=dict,
        description="points it touches: run, architecture, workload, mapper; without architecture all machines that say it, alike",
    )


class FigureSpec(Spec):
    """A figure of a study's own finding: of one point, or one for each value of `over`."""

    run: str = Field(default="main", description="name of the runs whose points it reads")
    y: Literal["latency", "energy", "memory", "joules", "seconds", "exposed_seconds", "amount"] = Field(
        description="latency, energy or memory of a point, or a column of the ledger, summed over its rows"
    )
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
    architecture: Names | None = Field(default=None, description="the architecture of every run that names none")
    workload: Names | None = Field(default=None, description="the workload of every run that names none")
    mapper: Names | None = Field(default=None, description="the mapper of every run that names none")
    runs: list[RunSpec] = Field(description="what to run")
    columns: list[str] = Field(default_factory=list, description="metrics in the table of points, beside the usual ones")
    charts: dict[str, ChartSpec] = Field(default_factory=dict, description="figures")
    inputs: dict[str, InputSpec] = Field(default_factory=dict, description="name → what verdicts may rest on, varied by --ranges")
    findings: str | dict[str, FindingSpec] | None = Field(default=None, description="a set of findings to check, or findings of its own")
    _folder: str = PrivateAttr(default="")

    @property
    def folder(self) -> str:
        """Where its paths start: the folder of its file; '' = the working folder."""
        return self._folder

    def read_from(self, folder: str) -> StudySpec:
        """The same study, its file in a folder."""
        found = self.model_copy()
        found._folder = folder
        return found

    @model_validator(mode="after")
    def _whole(self) -> StudySpec:
        if not self.runs and not self.findings:
            raise ValueError("runs: an empty list, and no findings: nothing to do")
        for number, run in enumerate(self.runs):
            for name in ("architecture", "workload", "mapper"):
                if getattr(run, name) is None and getattr(self, name) is None:
                    raise ValueError(f"runs.{number}: names no {name}, nor does the study")
        return self


def many(value: Any) -> list[Any]:
    """One value or a list of several."""
    return list(value) if isinstance(value, list) else [value]
