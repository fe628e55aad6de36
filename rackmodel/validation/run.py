"""Files of published rows → a report: every row priced or refused by name, scored by data set and cell, held against its bar."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rackmodel.cycles import SELDOM, rarely_looked_for
from rackmodel.errors import InputError
from rackmodel.inputs.library import library_root
from rackmodel.inputs.load import at_override
from rackmodel.inputs.overrides import OF_PROFILE
from rackmodel.processes import ALONE, Crew
from rackmodel.validation.attention import attention_rows
from rackmodel.validation.choices import ChoiceScore, choice_scores
from rackmodel.validation.collectives import collective_rows
from rackmodel.validation.exchanges import exchange_rows
from rackmodel.validation.experts import expert_rows
from rackmodel.validation.layer_ops import layer_rows
from rackmodel.validation.mixed_attention import mixed_rows
from rackmodel.validation.products import product_rows
from rackmodel.validation.rows import KINDS, NoNumber, PublishedRow, read_rows
from rackmodel.validation.runs import training_rows
from rackmodel.validation.score import Score, ScoredRow, anchored, score
from rackmodel.validation.shaped import shaped_rows
from rackmodel.validation.words import words

RowPricer = Callable[[Sequence[PublishedRow]], list[ScoredRow]]
PRICERS: dict[str, RowPricer] = {
    "product": product_rows,
    "attention": attention_rows,
    "latent attention": attention_rows,
    "mixed attention": mixed_rows,
    "collective": collective_rows,
    "message": collective_rows,
    "expert exchange": exchange_rows,
    "expert products": expert_rows,
    "kernel": shaped_rows,
    "quantise": layer_rows,
    "layer operation": layer_rows,
}
"""Kind of rows → what prices them; servers apart, and training runs, whose profiles can be changed."""
SERVED = ("served", "served by plan", "served at most", "served as deployed", "served at best")
"""Kinds of rows that take long: those of each engine by themselves."""


@dataclass(frozen=True)
class DatasetReport:
    """One data set. cells: 'system precision' → score · bar: mean absolute error in percent that may not be exceeded · refused: why → how
    many rows."""

    name: str
    score: Score | None
    cells: dict[str, Score]
    bar: float | None
    refused: dict[str, int]

    @property
    def missed(self) -> bool:
        """Whether it is worse than its bar."""
        return self.bar is not None and self.score is not None and self.score.mean > self.bar

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        own: dict[str, Any] = {"n": 0} if self.score is None else self.score.to_dict()
        cells = {name: one.to_dict() for name, one in self.cells.items()}
        return own | {"bar_pct": self.bar, "cells": cells, "refused": self.refused}


@dataclass(frozen=True)
class ValidationReport:
    """What a run found."""

    datasets: tuple[DatasetReport, ...]
    rows: tuple[ScoredRow, ...]
    anchors: tuple[str, ...] = ()
    choices: tuple[ChoiceScore, ...] = ()

    @property
    def missed(self) -> tuple[DatasetReport, ...]:
        """Data sets that are worse than their bars."""
        return tuple(one for one in self.datasets if one.missed)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "mode": "anchored" if self.anchors else "blind",
            "datasets": {one.name: one.to_dict() for one in self.datasets},
            "choices": [one.to_dict() for one in self.choices],
            "rows": [row.to_dict() for row in self.rows],
        }


def shipped_files() -> list[Path]:
    """The files of rows that ship with the package."""
    return [library_root() / "specs" / "validation" / name for name in words().shipped]


def validate(
    files: Sequence[Path],
    anchors: Sequence[str] = (),
    sets: Sequence[str] = (),
    *,
    intervals: bool = True,
    bins: bool = True,
    most: int | None = None,
    crew: Crew = ALONE,
) -> ValidationReport:
    """Price and score the rows of files. sets: overrides of the profiles of training runs · intervals: false where neither they nor bins
    are looked at, which saves time · bins: false where the bins of training runs are not, which saves some of it · most: rows of a data
    set, evenly spaced, None = all · crew: who prices them, which changes no figure. Raises InputError where a file cannot be read, or an
    anchor is no row that was priced."""
    with rarely_looked_for(SELDOM):
        published = _some([row for file in files for row in read_rows(file)], most)
        for text in sets:
            if not text.strip().startswith(OF_PROFILE):
                raise InputError("only profiles can be set here, such as profile.variation=0", where=at_override(text))
        rows, missing = anchored(_priced(published, sets, crew, intervals=intervals, bins=bins), anchors)
    if missing:
        known = [row.id for row in rows if not row.refused]
        raise InputError(f"no row '{missing[0]}' that is priced", path="--anchor", known=known[:20], given=missing[0])
    names = dict.fromkeys(row.dataset for row in rows)
    reports = tuple(_report(name, [row for row in rows if row.dataset == name]) for name in names)
    return ValidationReport(reports, tuple(rows), tuple(anchors), tuple(choice_scores(rows)))


def _some(published: Sequence[PublishedRow], most: int | None) -> list[PublishedRow]:
    """At most so many rows of each data set, evenly spaced, in order."""
    if most is None:
        return list(published)
    own: dict[str, list[int]] = {}
    for number, row in enumerate(published):
        own.setdefault(row.dataset, []).append(number)
    kept = {numbers[place * len(numbers) // most] for numbers in own.values() for place in range(most)}
    return [row for number, row in enumerate(published) if number in kept]


def _priced(published: Sequence[PublishedRow], sets: Sequence[str], crew: Crew, *, intervals: bool, bins: bool) -> list[ScoredRow]:
    """Every row with its prediction, or why there is none, in order; a training row that tells its memory is two."""
    reasons = {kind: why for kind, _, why in KINDS}
    found: list[ScoredRow] = []
    for kind in dict.fromkeys(row.kind for row in published):
        own = [row for row in published if row.kind == kind]
        if kind == "training":
            found += _but_no_numbers(own, partial(training_rows, sets=sets, intervals=intervals, bins=bins, crew=crew))
        elif (pricer := _pricer(kind)) is not None:
            found += _but_no_numbers(own, partial(_of_kind, pricer, kind, crew))
        else:
            found += [ScoredRow(row.id, row.dataset, refused=reasons[kind]) for row in own]
    return found


def _of_kind(pricer: RowPricer, kind: str, crew: Crew, rows: Sequence[PublishedRow]) -> list[ScoredRow]:
    """Rows of a kind that is no training run, priced by a crew."""
    parts = _engines(rows) if kind in SERVED else [list(rows)]
    return [row for part in crew.all(pricer, parts, "rows") for row in part]


def _but_no_numbers(rows: Sequence[PublishedRow], price: Callable[[Sequence[PublishedRow]], list[ScoredRow]]) -> list[ScoredRow]:
    """Rows of a kind priced, but those that have a word where a number is read: they alone are refused."""
    kept, refused = list(rows), list[ScoredRow]()
    while True:
        try:
            return price(kept) + refused
        except NoNumber as problem:
            wrong = {number: why for number, row in enumerate(kept) if (why := _no_number(row, problem))}
            if not wrong:
                raise
            refused += [ScoredRow(kept[number].id, kept[number].dataset, refused=why) for number, why in wrong.items()]
            kept = [row for number, row in enumerate(kept) if number not in wrong]


def _no_number(row: PublishedRow, found: NoNumber) -> str:
    """Why a row is refused where a cell was found to be no number: it is that cell's, or says the same there, or another that has digits
    ('7 us'; a word may mean something there, as true does in some columns). '' where it is not."""
    if row.place == found.where:  # (what reads some kinds calls its columns otherwise)
        return found.message
    text = row.text(found.column)
    if text != found.text and not any(sign.isdigit() for sign in text):
        return ""
    try:
        row.number(found.column) if found.least is None else row.whole(found.column, least=found.least)
    except NoNumber as problem:
        return problem.message
    return ""


def _pricer(kind: str) -> RowPricer | None:
    """What prices rows of a kind; None where nothing does."""
    if kind in PRICERS or not kind.startswith("served"):
        return PRICERS.get(kind)
    from rackmodel.validation.best_served import best_rows  # (what prices servers is of their rows alone, and slow to load)
    from rackmodel.validation.served_batches import batch_rows
    from rackmodel.validation.served_requests import request_rows
    from rackmodel.validation.serving import serving_rows
    from rackmodel.validation.serving_forms import deployed_rows, largest_load_rows, planned_rows

    servers: dict[str, RowPricer] = {
        "served": serving_rows,
        "served requests": request_rows,
        "served at most": largest_load_rows,
        "served as deployed": deployed_rows,
        "served at best": best_rows,
        "served by plan": planned_rows,
        "served batch": batch_rows,
    }
    return servers.get(kind)


def _engines(rows: Sequence[PublishedRow]) -> list[list[PublishedRow]]:
    """Rows of one data set, model, machine and engine together, as far as columns say so: they are priced together."""
    apart: dict[tuple[str, ...], list[PublishedRow]] = {}
    for row in rows:
        key = row.dataset, row.text("model", "model_path"), row.text("gpu", "system"), row.text("framework", "backend")
        apart.setdefault(key, []).append(row)
    return list(apart.values())


def _report(name: str, rows: Sequence[ScoredRow]) -> DatasetReport:
    priced = [row for row in rows if not row.refused and not row.anchor]
    cells: dict[str, list[ScoredRow]] = {}
    for row in priced:
        cells.setdefault(" ".join(part for part in (row.system, row.precision) if part), []).append(row)
    return DatasetReport(
        name=name,
        score=score(priced) if priced else None,
        cells={cell: score(own) for cell, own in sorted(cells.items())},
        bar=words().bar(name),
        refused=dict(Counter(row.refused for row in rows if row.refused)),
    )
