"""docs/papers.md: every table and figure of the five papers, and every study's findings, as one page of Markdown.

`make papers` runs each study over the ranges of its inputs (`sweep STUDY --ranges --json`) and gives the files to this module, which
computes nothing: python -m tests.papers_page docs/papers STUDY.json ... > docs/papers.md (the folder takes the charts). A chart is of what
its name says (`fig9`, `table3_money`) or of the tables and figures that the paper's words below it name.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rackmodel.inputs import read_study
from rackmodel.inputs.load import load
from rackmodel.report.charts import study_chart, with_places
from rackmodel.report.drawing import chart_svg
from rackmodel.report.files import make_folder, write_whole
from rackmodel.report.tables import format_number
from rackmodel.studies.finding_charts import beside
from rackmodel.studies.run import chart_unit
from rackmodel.studies.study import ChartSpec

Row = Mapping[str, Any]
MOST_FIGURES, MOST_INPUTS = 4, 6
FOLDER = "papers"
"""Of the charts, beside the page."""
HEAD = """# The five papers: every table, figure and claim beside ours

What the five papers behind this project (rack-scale energy, wafer-scale carbon, weight streaming, hardwired chips, ACT) claim, what
rackmodel computes for it, and over which input ranges a verdict holds. Made by `make papers` from the studies (`rackmodel sweep STUDY
--ranges`): do not edit.

- A finding *agrees* where every figure that its claim needs lies inside its bounds. Figures nearer to a bound than a thousandth decide
  nothing.
- *Over all ranges*: each finding is computed again with every input of the study at the ends of its stated range, one at a time, and no end
  flips it. Otherwise the value at which it flips is given, and what the files have (ASSUMED, SOURCED, ...).
- *By construction*: it could not have come out otherwise.
- The inputs beside a verdict are those that move its figures; a verdict without a condition rests on printed numbers, or its study was
  run at the files' own values alone.
- Charts are drawn by `rackmodel sweep STUDY -o DIR`, with the paper's words and the verdict on each; a chart is linked where its item
  stands.
"""
ALIKE = {"agrees": "reproduced", "disagrees": "disagrees", "not decidable": "not decidable"}
_PLACES = re.compile(r"\b(Figure|Table)s? ((?:\d+(?:, | and | to )?)+)")
_NUMBERS = re.compile(r"(\d+)(?: to (\d+))?")
_NAMED = re.compile(r"(fig|table)(\d+)(?:_|$)")


def places(text: str) -> set[str]:
    """Tables and figures that a text names: 'Tables 2 to 4, Figure 7' → {'Table 2', 'Table 3', 'Table 4', 'Figure 7'}."""
    found = set()
    for kind, numbers in _PLACES.findall(text):
        for first, last in _NUMBERS.findall(numbers):
            found |= {f"{kind} {number}" for number in range(int(first), int(last or first) + 1)}
    return found


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
    spec, verdicts = read_study(study["study"]), {one["name"]: one["verdict"] for one in study["findings"]}
    tables, made = with_places(study["charts"]), []
    for name, chart in spec.charts.items():
        shows = shown_by(name, chart)
        if shows and tables.get(name):
            about: dict[str, Any] = {"kind": chart.kind, "x": chart.x, "y": chart.y, "title": chart.title, "log": chart.log}
            drawing = study_chart(tables[name], **about, words=beside(chart, verdicts), x_unit=chart_unit(chart.x))
            made.append(Picture(f"{study['study']}_{name}", shows, drawing.to_dict()))
    return made


def page(results: Mapping[str, Sequence[Row]], drawn: Mapping[str, Sequence[Picture]] | None = None) -> str:
    """The page. results: study → its findings as plain data (Finding.to_dict), studies that were not run left out · drawn: study → charts
    to link."""
    table = load("papers", "five").plain()["seeds"]
    parts = [HEAD]
    for seed, paper in table.items():
        parts += [f"## Seed {seed}: {paper['title']}\n", _items(paper, results, drawn or {})]
        for study in paper["studies"]:
            parts += [f"### Study `{study}`\n", study_table(results[study]) if study in results else "Not run for this page.\n"]
    others = [study for study in results if not any(study in paper["studies"] for paper in table.values())]
    parts += ["## Other studies\n", *(part for study in others for part in (f"### Study `{study}`\n", study_table(results[study])))]
    return "\n".join(parts)


def _items(paper: Mapping[str, Any], results: Mapping[str, Sequence[Row]], drawn: Mapping[str, Sequence[Picture]]) -> str:
    """Every table and figure: reproduced, disagrees, not decidable, or why it cannot be; and its charts."""
    lines = ["| | shows | stands | drawn |", "|---|---|---|---|"]
    found = [finding for study in paper["studies"] for finding in results.get(study, ())]
    for name, item in paper["items"].items():
        mine = [finding for finding in found if places(finding["figure"]) & places(name)]
        stands = ". ".join(filter(None, (_stands(mine), item.get("why")))) or paper.get("absent") or "no finding covers it"
        charts = [one for study in paper["studies"] for one in drawn.get(study, ()) if one.shows & places(name)]
        links = ", ".join(f"[{one.stem}]({FOLDER}/{one.stem}.svg)" for one in charts)
        lines.append(f"| {name} | {item['shows']} | {stands} | {links} |")
    return "\n".join(lines) + "\n"


def _stands(found: Sequence[Row]) -> str:
    """'reproduced (A04)', 'disagrees: A11; reproduced: A12'; '' where no finding is of it."""
    groups = {word: [one["name"] for one in found if one["verdict"] == verdict] for verdict, word in ALIKE.items()}
    return "; ".join(f"{word}: {_names(names)}" for word, names in groups.items() if names)


def _names(names: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def study_table(findings: Sequence[Row]) -> str:
    """A study's findings: claim and place, our figures, verdict with its condition, the inputs that decide it."""
    lines = ["| finding | claim | place | ours | verdict | rests on |", "|---|---|---|---|---|---|"]
    for one in findings:
        cells = (one["name"], one["claim"], one["figure"], figures_text(one), _verdict(one), _inputs(one.get("rests", ())))
        lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def figures_text(finding: Row) -> str:
    """The figures that decide, else the first of those behind it."""
    needs = list(finding.get("needs", ()))
    if needs and finding["weight"] != "printed":
        return "; ".join(needs[:MOST_FIGURES])
    shown = list(finding["figures"].items())[:MOST_FIGURES]
    return "; ".join(f"{name} {format_number(value)}" for name, value in shown)


def _verdict(finding: Row) -> str:
    """The verdict with its condition; of what does not agree, why."""
    why = finding["why"] if finding["verdict"] != "agrees" else ""
    return f"{finding['said']}. {why}".removesuffix(". ") if why else str(finding["said"])


def _inputs(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_INPUTS} more" if len(names) > MOST_INPUTS else ""
    return ", ".join(names[:MOST_INPUTS]) + more


def _cell(text: str) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")


def main(folder: str, *paths: str) -> int:
    """Print the page of the studies in the files that `sweep --json` printed, and draw its charts into a folder."""
    results, drawn = {}, {}
    for path in paths:
        study = json.loads(Path(path).read_text(encoding="utf-8"))
        results[study["study"]], drawn[study["study"]] = study["findings"], pictures(study)
    for one in (picture for made in drawn.values() for picture in made):
        write_whole(make_folder(Path(folder)) / f"{one.stem}.svg", chart_svg(one.definition))
    sys.stdout.write(page(results, drawn))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
