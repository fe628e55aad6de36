"""The house stands: imports run down its floors, solvers load late, nothing of a machine is in it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import networkx

from rackmodel.cost.network.asked import NUMBERS
from rackmodel.store.remembered import SOLVERS
from rackmodel.studies.batch import SOURCES

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
    {"searches"},
    {"evaluations"},
    {"setting"},
    {"results"},
    {"inputs", "mapper", "carbon", "report"},
    {"cost", "store"},
    {"model", "nests"},
    {"csv_file", "processes", "units", "watch"},
    {"arrays", "cycles", "errors", "once", "version"},
]
ALLOWED_SIDEWAYS = {("inputs", "carbon"), ("report", "mapper")}
WITHIN = {  # floors of rooms that have rooms
    "cost": [{"step"}, {"inside", "network"}, {"program"}, {"going_on", "ledger"}],
    "cost.step": [
        {"occupancy"},
        {"ledger"},
        {"exposure", "repeated"},
        {"exact"},
        {"group"},
        {"hand_overs", "pools"},
        {"bounds"},
        {"clock"},
        {"tasks"},
        {"columns", "cut", "setting"},
    ],
    "nests.searchers": [
        {"regions", "table"},
        {"ceil_deep", "cpsat"},
        {"cpsat_space", "perfect"},
        {"registers"},
        {"chains", "homes", "two_level"},
        {"ragged"},
        {"bounds"},
        {"tables"},
        {"infeasible"},
        {"contract"},
        {"effort", "mapspace"},
    ],
}


def _floor(name: str) -> int:
    return next(number for number, floor in enumerate(FLOORS) if name in floor)


@cache
def _imported() -> dict[str, set[str]]:
    """File of the package → the files that it imports, by dotted names below the package ('cost.ledger'); within functions, too."""
    files = {".".join(path.relative_to(PACKAGE).with_suffix("").parts): path for path in PACKAGE.rglob("*.py")}
    found: dict[str, set[str]] = {name: set() for name in files}
    for name, path in files.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            assert not isinstance(node, ast.Import) or not any(each.name.startswith("rackmodel") for each in node.names), path
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "rackmodel":
                room = node.module.removeprefix("rackmodel").lstrip(".")
                for each in node.names:
                    places = (f"{room}.{each.name}".lstrip("."), room, f"{room}.__init__".lstrip("."))
                    found[name].add(next(place for place in places if place in files))
    return found


def test_imports_run_down() -> None:
    for name, below in _imported().items():
        here = name.split(".")[0]
        for there in {other.split(".")[0] for other in below} - {here}:
            assert here == "__init__" or (here, there) in ALLOWED_SIDEWAYS or _floor(there) > _floor(here), f"{name} imports {there}"


def test_imports_run_down_within_rooms() -> None:
    for room, floors in WITHIN.items():
        numbers = {name: number for number, floor in enumerate(floors) for name in floor}
        for name, below in _imported().items():
            for other in below:
                if all(path.startswith(f"{room}.") for path in (name, other)):
                    here, there = (path.removeprefix(f"{room}.").split(".")[0] for path in (name, other))
                    assert here == there or numbers[there] > numbers[here], f"{name} imports {other}"


def test_files_do_not_import_each_other_in_a_circle() -> None:
    """An import for types alone, or within a function, counts: it says as much of what a file has to know."""
    graph = networkx.DiGraph((name, other) for name, below in _imported().items() for other in below)
    assert [sorted(circle) for circle in networkx.strongly_connected_components(graph) if len(circle) > 1] == []


def test_ortools_is_imported_in_solver_functions_alone() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    for path, text in texts.items():
        for node in ast.parse(text).body if "ortools" in text else ():
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
    doors = (PACKAGE / f"{name}.py" for name in ("searches", "evaluations", "results"))
    searched = [*(PACKAGE / "cost").rglob("*.py"), *(PACKAGE / "mapper").rglob("*.py"), *doors]
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


def test_what_decides_remembered_answers_is_there() -> None:
    """A file that went elsewhere would no longer count."""
    for pattern in (*SOLVERS, *SOURCES):
        assert list(PACKAGE.glob(pattern)), pattern


def test_who_remembers_answers_counts_among_what_decides_them() -> None:
    """How far a search of nests may go is said there: another limit was answered with bounds of the one before."""
    asking = {path for path in PACKAGE.rglob("*.py") if "store().remember(" in path.read_text(encoding="utf-8")}
    assert asking
    assert asking <= {path for pattern in SOLVERS for path in PACKAGE.glob(pattern)}


def test_what_make_quick_asks_is_there() -> None:
    """A file that went with its name left `make quick` without any test."""
    lists = re.findall(r"^QUICK(_NESTS)? := ((?:.*\\\n)*.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(lists) == 2
    for nests, names in lists:
        folder = ROOT / "tests" / "nests" if nests else ROOT / "tests"
        prefix = "test_nest_" if nests else "test_"
        assert [name for name in names.replace("\\", " ").split() if not (folder / f"{prefix}{name}.py").is_file()] == []
