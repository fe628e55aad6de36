"""What the page asks: a machine, a workload and a mapper that may be chosen, and what is set in them.

A page chooses among names of the library and the files that the command was given; it names no other file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rackmodel.errors import InputError, Where, together
from rackmodel.inputs import kind_of, library_names
from rackmodel.mapper.in_order import read_goals

KINDS = ("architecture", "workload", "mapper", "profile")
OPTIONAL = ("minimize", "profile")
MOST_SETS = 64
LONGEST = 400
_PATH = re.compile(r"(^|[\[{:,'\"])\s*(/\w|~|\.\.?/)|\\|\.\.|\.(ya?ml|csv|json|gz)\b", re.IGNORECASE)
"""What no value but a path has: it starts at a root, a home or a folder's parent, or ends as a file does."""


@dataclass(frozen=True)
class PageQuestion:
    """One search. minimize, profile: '' leaves them to the mapper · sets: as --set says them."""

    architecture: str
    workload: str
    mapper: str
    minimize: str = ""
    profile: str = ""
    sets: tuple[str, ...] = ()

    @property
    def asked(self) -> dict[str, Any]:
        """The same as a result's file keeps it."""
        own = {"minimize": self.minimize or None, "profile": self.profile or None}
        return {"architecture": self.architecture, "workload": self.workload, "mapper": self.mapper, "sets": list(self.sets), **own}


Shelf = Mapping[str, Sequence[str]]
"""Kind of input → names of the library, then files that the command was given."""


def shelf_of(files: Sequence[str]) -> dict[str, list[str]]:
    """What may be chosen. Raises InputError for a file that is none of these kinds."""
    names = library_names()
    found = {kind: list(names[kind]) for kind in KINDS}
    for file in files:
        kind = kind_of(file)
        if kind not in found:
            raise InputError(f"is a {kind} file: a page chooses among others", where=Where(file), known=KINDS)
        found[kind] = [file, *(name for name in found[kind] if name != file)]
    return found


def read_question(data: Any, shelf: Shelf) -> PageQuestion:
    """A question from a page's JSON. Raises InputError, with all that is wrong."""
    known = (*KINDS[:3], *OPTIONAL, "sets")
    if not isinstance(data, dict):
        raise InputError("want {architecture: ..., workload: ..., mapper: ...}", path="question")
    others = [str(key) for key in data if key not in known]
    problems = [InputError(f"unknown key '{key:.40}'", path="question", known=known, given=key) for key in others]
    problems += [problem for kind in KINDS for problem in _choice(data, kind, shelf)]
    sets = data.get("sets", [])
    problems += _settings(sets)
    goal = data.get("minimize", "")
    if not isinstance(goal, str):
        problems.append(InputError("want text", path="minimize"))
    elif goal:
        try:
            read_goals(goal)
        except InputError as problem:
            problems.append(problem)
    if problems:
        raise together(problems)
    words = {key: str(data.get(key, "")) for key in (*KINDS, "minimize")}
    return PageQuestion(**words, sets=tuple(sets))


def _choice(data: Mapping[str, Any], kind: str, shelf: Shelf) -> list[InputError]:
    name = data.get(kind, "")
    if (kind in OPTIONAL and name == "") or (isinstance(name, str) and name in shelf[kind]):
        return []
    said = f"no {kind} called '{name!s:.40}' to choose from" if name else f"no {kind} is chosen"
    return [InputError(said, path=kind, known=shelf[kind], given=str(name)[:80])]


def _settings(sets: Any) -> list[InputError]:
    if not isinstance(sets, list) or not all(isinstance(one, str) for one in sets):
        return [InputError("want a list of 'name=value'", path="sets")]
    if len(sets) > MOST_SETS:
        return [InputError(f"{len(sets)} settings, a page has {MOST_SETS} at most", path="sets")]
    return [problem for one in sets if (problem := _setting(one)) is not None]


def _setting(text: str) -> InputError | None:
    value = text.partition("=")[2].strip()
    where = Where(f"--set {text[:80]}")
    if len(text) > LONGEST or "\n" in text or "\r" in text:
        return InputError(f"want one line of at most {LONGEST} characters", where=where)
    if _PATH.search(value):
        return InputError("is a path: a page reads no file but those that `rackmodel explore` was given", where=where)
    return None
