"""Charts over the figures of findings: what a claim compares, drawn; its figures are the only source, read by their names.

Which figures, and what of their names is x and what series, is said by patterns (studies/patterns). What a pattern leaves out is the
finding: x its claim, else series its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rackmodel.errors import InputError
from rackmodel.studies.findings import Finding
from rackmodel.studies.patterns import compiled
from rackmodel.studies.study import ChartSpec

OWN = "the files' own values"


def finding_rows(chart: ChartSpec, found: Sequence[Finding]) -> list[dict[str, Any]]:
    """The chart as a table: x, series, y. Raises InputError for a finding that there is not, and a pattern that no figure's name has."""
    known = {one.name: one for one in found}
    rows: dict[tuple[Any, str], dict[str, Any]] = {}
    chosen = [_known(name, known) for name in chart.finding]
    for pattern in chart.figures:
        read, matched = compiled(pattern), False
        for one in chosen:
            for name, value in (one.figures | one.drawn).items():
                if place := read.fullmatch(name):
                    matched = True
                    x, series = _place(place.groupdict(), one, alone=len(chosen) == 1)
                    rows.setdefault((x, series), {"x": x, "series": series, "y": value})
        if not matched:
            names = [name for one in chosen for name in one.figures | one.drawn]
            raise InputError(f"no figure of {', '.join(chart.finding)} is called '{pattern}'", known=names, given=pattern)
    return _numbered(_named(list(rows.values())))


def beside(chart: ChartSpec, verdicts: Mapping[str, str]) -> str:
    """What stands below a chart's title: the paper's words, and the verdict of each finding that says whether its shape is the paper's.

    verdicts: finding → its verdict. Raises InputError for a finding that there is not."""
    groups: dict[str, list[str]] = {}
    for name in chart.shown:
        if name not in verdicts:
            raise InputError(f"no finding '{name}'", known=list(verdicts), given=name)
        groups.setdefault(verdicts[name], []).append(name)
    said = "; ".join(f"{verdict} ({', '.join(names)})" for verdict, names in groups.items())
    return " \N{EN DASH} ".join(filter(None, (chart.words, said and f"here: {said}")))


def _known(name: str, known: dict[str, Finding]) -> Finding:
    if name not in known:
        raise InputError(f"no finding '{name}'", known=list(known), given=name)
    return known[name]


def _place(words: dict[str, str], one: Finding, *, alone: bool) -> tuple[str, str]:
    """x and series of a figure; several findings are told apart by what the pattern leaves to them."""
    if "x" not in words:
        return one.claim.rpartition(": ")[0] or one.claim, words.get("series", "")
    return words["x"], words.get("series", "" if alone else one.name)


def _named(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Where some rows have a series, the rest are what the files say."""
    named = any(row["series"] for row in rows)
    return [{**row, "series": row["series"] or OWN} for row in rows] if named else rows


def _numbered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """x as numbers where all of them are."""
    try:
        numbers = [float(row["x"]) for row in rows]
    except ValueError:
        return rows
    return [{**row, "x": int(x) if x.is_integer() else x} for row, x in zip(rows, numbers, strict=True)]
