"""Numbers that a page moves: those that the chosen files state, each by the name that --set takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rackmodel.errors import RackmodelError
from rackmodel.explore.question import PageQuestion
from rackmodel.inputs import load, read_architecture, read_mapper
from rackmodel.inputs.marked import Marked
from rackmodel.report.facts import machine_facts

LEFT_OUT = ("source", "note", "workload", "mapper", "profile", "architecture", "extends")
MOST = 480


def knobs_of(question: PageQuestion) -> list[dict[str, Any]]:
    """{group, path, value, range, source} of every number of the machine, every size of the workload and every plain word of mapper and
    profile, as their files state them; nothing of a file that cannot be read."""
    others = [*_read(_workload, question.workload), *_read(_mapper, question)][:MOST]
    return [*_read(_machine, question.architecture)[: MOST - len(others)], *others]


def _read(knobs: Any, of: Any) -> list[dict[str, Any]]:
    try:
        return list(knobs(of))
    except RackmodelError:
        return []  # the search itself says what is wrong


def _machine(name: str) -> Iterator[dict[str, Any]]:
    for fact in machine_facts(read_architecture(name)):
        yield {"group": fact["path"].partition(".")[0] if "." in fact["path"] else "machine", **fact}


def _workload(name: str) -> Iterator[dict[str, Any]]:
    sizes = load("workload", name).child("sizes")
    for path, value in _leaves(sizes, "workload.sizes") if sizes is not None else ():
        yield _knob("workload", path, value)


def _mapper(question: PageQuestion) -> Iterator[dict[str, Any]]:
    for path, value in _leaves(load("mapper", question.mapper), "mapper"):
        yield _knob("mapper", path, value)
    profile = question.profile or read_mapper(question.mapper).profile or "ideal"
    for path, value in _leaves(load("profile", profile), "profile"):
        yield _knob(f"profile {profile}", path, value)


def _knob(group: str, path: str, value: str) -> dict[str, Any]:
    return {"group": group, "path": path, "value": value, "range": "", "source": ""}


def _leaves(node: Marked, path: str) -> Iterator[tuple[str, str]]:
    """Single values of a tree, as YAML says them; lists are left out."""
    for key, child in node.mapping.items():
        if key in LEFT_OUT or "." in key:
            continue
        if isinstance(child.value, dict):
            yield from _leaves(child, f"{path}.{key}")
        elif isinstance(child.value, str | int | float):
            yield f"{path}.{key}", str(child.value).lower() if isinstance(child.value, bool) else str(child.value)
