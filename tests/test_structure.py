"""The house stands: imports run down its floors, solvers load late, nothing of a machine is in it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rackmodel.cost.network.asked import NUMBERS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "rackmodel"
FLOORS = [
    {"__main__"},
    {"cli"},
    {"explore"},
    {"papers"},
    {"calibration"},
    {"validation"},
    {"serving"},
    {"face"},
    {"studies"},
    {"api"},
    {"setting"},
    {"results"},
    {"inputs", "mapper", "carbon", "report"},
    {"cost", "store"},
    {"model", "nests"},
    {"csv_file", "processes", "units", "watch"},
    {"cycles", "errors"},
]
ALLOWED_SIDEWAYS = {("inputs", "carbon"), ("report", "mapper")}


def _floor(name: str) -> int:
    return next(number for number, floor in enumerate(FLOORS) if name in floor)


def _imports(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("rackmodel"):
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("rackmodel.")}
    return found - {"__version__"}


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_run_down(path: Path) -> None:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    here = parts[0]
    if here == "__init__":
        return
    for name in _imports(path):
        if name != here and (here, name) not in ALLOWED_SIDEWAYS:
            assert _floor(name) > _floor(here), f"{path.name} imports {name}"


def test_ortools_is_imported_in_solver_functions_alone() -> None:
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = (
                [a.name for a in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            assert not any(name.startswith("ortools") for name in names), path


def test_numbers_of_networks_are_read_where_searches_ask() -> None:
    """Machines whose networks say the same share answers (cost/network/asked): a search that read them elsewhere would not be heard."""
    reads = re.compile(rf"network\.({'|'.join(sorted(NUMBERS))})\b")
    asked = set(PACKAGE.joinpath("cost", "network").rglob("*.py")) | {PACKAGE / "cost/step/occupancy.py"}  # of wired weights
    searched = [*(PACKAGE / "cost").rglob("*.py"), *(PACKAGE / "mapper").rglob("*.py"), PACKAGE / "api.py", PACKAGE / "results.py"]
    assert [path.name for path in searched if path not in asked and reads.search(path.read_text(encoding="utf-8"))] == []


def test_help_loads_no_heavy_library() -> None:
    heavy = ["numpy", "pydantic", "ortools", "altair", "pint", "networkx"]
    code = f"import sys; from rackmodel.cli.app import app; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_names_of_the_face_are_not_rooms_of_the_house() -> None:
    """`rm.search` is the function, whatever of rackmodel/mapper is imported before or after."""
    code = "import rackmodel as rm; from rackmodel.mapper.points import Point; first = rm.search; rm.search('rack_paper', 'gemm', 'data')"
    check = "from rackmodel.mapper import rules; assert rm.search is first and all(callable(getattr(rm, name)) for name in rm.__all__)"
    subprocess.run([sys.executable, "-c", f"{code}; {check}"], check=True)


def test_what_make_quick_asks_is_there() -> None:
    """A file that went with its name left `make quick` without any test."""
    lists = re.findall(r"^QUICK(_NESTS)? := ((?:.*\\\n)*.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(lists) == 2
    for nests, names in lists:
        folder = ROOT / "tests" / "nests" if nests else ROOT / "tests"
        prefix = "test_nest_" if nests else "test_"
        assert [name for name in names.replace("\\", " ").split() if not (folder / f"{prefix}{name}.py").is_file()] == []
