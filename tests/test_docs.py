"""What the documents cite is there: links, files of the package, and documents that docstrings cite."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
CODE = sorted([*(ROOT / "rackmodel").rglob("*.py"), *(ROOT / "tests").rglob("*.py")])
ROOMS = "carbon|cli|cost|inputs|model|nests|report|search|store|studies"
RECIPES = {"rackmodel/cost/network/topologies/NAME.py", "rackmodel/report/launch/echo.py"}  # files that a reader of the recipes writes


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    for said in re.findall(rf"`((?:rackmodel/)?(?:{ROOMS}|tests|docs|specs|mappers)/[\w/.]*)`", page.read_text(encoding="utf-8")):
        named = said.rstrip("/.")
        places = [ROOT / (start + named + end) for start in ("", "rackmodel/") for end in ("", ".py", ".yaml")]
        assert said in RECIPES or any(place.exists() for place in places), said


def test_documents_that_the_code_cites_are_there() -> None:
    cited = [(path, named) for path in CODE for named in re.findall(r"[\w/]*\w\.md\b", path.read_text(encoding="utf-8"))]
    assert len(cited) > 10
    assert [f"{path.relative_to(ROOT)}: {named}" for path, named in cited if not (ROOT / named).exists()] == []
