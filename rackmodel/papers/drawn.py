"""Pictures of the page: a study's charts of a table or figure of its paper, from the tables that `sweep STUDY --json` printed.

A chart is of what its name says (`fig9`, `table3_money`) or of the tables and figures that the paper's words below it name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rackmodel.inputs import read_study
from rackmodel.papers.places import places
from rackmodel.studies.finding_charts import beside
from rackmodel.studies.run import chart_unit
from rackmodel.studies.study import ChartSpec

_NAMED = re.compile(r"(fig|table)(\d+)(?:_|$)")


@dataclass(frozen=True)
class Picture:
    """A chart on the page. stem: of its file, study and chart · shows: tables and figures of the paper."""

    stem: str
    shows: frozenset[str]
    definition: Mapping[str, Any]


def shown_by(name: str, chart: ChartSpec) -> frozenset[str]:
    """The tables and figures of its paper that a chart is of."""
    named = _NAMED.match(name)
    own = {f"{'Figure' if named[1] == 'fig' else 'Table'} {named[2]}"} if named else set()
    return frozenset(own | places(chart.words))


def pictures(study: Mapping[str, Any]) -> list[Picture]:
    """Charts of a study's result, as `sweep --json` prints it, that are of a table or figure."""
    from rackmodel.report.charts import study_chart, with_places

    spec, verdicts = read_study(study["study"]), {one["name"]: one["verdict"] for one in study["findings"]}
    tables, made = with_places(study["charts"]), []
    for name, chart in spec.charts.items():
        shows = shown_by(name, chart)
        if shows and tables.get(name):
            about: dict[str, Any] = {"kind": chart.kind, "x": chart.x, "y": chart.y, "title": chart.title, "log": chart.log}
            drawing = study_chart(tables[name], **about, words=beside(chart, verdicts), x_unit=chart_unit(chart.x))
            made.append(Picture(f"{study['study']}_{name}", shows, drawing.to_dict()))
    return made
