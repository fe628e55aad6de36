"""docs/papers.md: what it says of the cheap studies is what the code says, and no table or figure of a paper is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackmodel.inputs import read_study
from rackmodel.inputs.carbon_tables import carbon_tables
from rackmodel.papers import checks_of
from rackmodel.studies.findings import Finding
from rackmodel.studies.run import Points
from tests.papers_page import figures_text, page, places, shown_by

PAGE = Path(__file__).parents[1] / "docs/papers.md"
PRINTED = {"000": (1, 9), "001": (6, 29), "002": (4, 10), "003": (12, 17), "004": (0, 13)}
"""Seed → tables and figures in it."""


def rows(name: str) -> dict[str, list[str]]:
    """Finding → its cells on the page, of one study."""
    text = PAGE.read_text(encoding="utf-8").split(f"### Study `{name}`\n", 1)[1].split("\n### ", 1)[0].split("\n## ", 1)[0]
    cells = [
        [cell.strip() for cell in line.strip("|").replace("\\|", "/").split(" | ")] for line in text.splitlines() if line.startswith("| ")
    ]
    return {row[0]: row for row in cells[1:]}


def found(name: str) -> list[Finding]:
    tables = carbon_tables()
    return [one for check in checks_of(read_study(name)) for one in check(Points(()), tables)]


@pytest.mark.parametrize("name", ["act", "hnlpu_tco", "wafer_carbon"])
def test_the_page_says_of_a_cheap_study_what_the_code_says(name: str) -> None:
    said, ours = rows(name), found(name)
    assert list(said) == [one.name for one in ours]
    for one in ours:
        row = said[one.name]
        assert row[2] == one.figure
        assert row[3] == " ".join(figures_text(one.to_dict()).split()).replace("|", "/"), one.name
        assert row[4].startswith(one.verdict), one.name


def test_every_table_and_figure_of_the_papers_is_on_the_page() -> None:
    parts = PAGE.read_text(encoding="utf-8").split("\n## Seed ")[1:]
    assert [part[:3] for part in parts] == list(PRINTED)
    for part in parts:
        named = set().union(*(places(line.split("|")[1]) for line in part.splitlines() if line.startswith(("| Figure", "| Table"))))
        tables, figures = PRINTED[part[:3]]
        assert named == {f"Table {n}" for n in range(1, tables + 1)} | {f"Figure {n}" for n in range(1, figures + 1)}


def test_places_are_read_in_lists_and_ranges() -> None:
    assert places("Tables 2 to 4, Figure 7") == {"Table 2", "Table 3", "Table 4", "Figure 7"}
    assert places("Figures 10, 11") == {"Figure 10", "Figure 11"}
    assert places("section 6.2") == set()


def test_a_page_of_no_study_says_so() -> None:
    assert "Not run for this page." in page({})


def test_a_chart_is_of_what_its_name_or_the_papers_words_say() -> None:
    charts = read_study("act").charts
    assert {name: sorted(shown_by(name, charts[name])) for name in ("fig9", "table12_phones", "fig16")} == {
        "fig9": ["Figure 9"],
        "table12_phones": ["Table 12"],
        "fig16": ["Figure 16", "Table 12"],
    }


DRAWN = {"000": (1, 4, 5, 8, 9), "002": (9, 10), "003": tuple(range(8, 18)), "004": tuple(range(2, 14))}
"""Seed → figures that are drawn, as far as their numbers are printed."""


@pytest.mark.parametrize("seed", DRAWN)
def test_the_page_links_a_chart_of_every_figure_that_can_be_drawn(seed: str) -> None:
    part = PAGE.read_text(encoding="utf-8").split(f"\n## Seed {seed}", 1)[1].split("\n### ", 1)[0]
    linked = set().union(*(places(line.split("|")[1]) for line in part.splitlines() if line.startswith("| Figure") and ".svg)" in line))
    assert {f"Figure {n}" for n in DRAWN[seed]} <= linked
