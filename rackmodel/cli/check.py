"""`rackmodel check FILE...`: read input files and say what is wrong with them, and whether those of one question fit together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from rackmodel.cli.options import JsonOption
from rackmodel.cli.printing import echo, print_json
from rackmodel.errors import MOST_SHOWN, InputError


def check(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="YAML files, or names of the library.")],
    as_json: JsonOption = False,
) -> None:
    """Check input files: keys, units, sizes, names. The first key of a file says what it is.

    A machine, a workload and a mapper (or mapping) are checked together as well: that the one names what the others have.
    """
    from rackmodel.inputs import check as check_file
    from rackmodel.inputs import read_workload
    from rackmodel.model.misspelt import doubts_of

    rows: list[dict[str, Any]] = []
    for name in files:
        try:
            kind = check_file(name)
            workload = read_workload(name) if kind == "workload" else None
            warnings = list(doubts_of(workload)) if workload is not None else []
            rows.append({"file": name, "ok": True, "kind": kind, "error": None, "problems": [], "warnings": warnings})
        except InputError as problem:
            shown = [one.to_dict() for one in problem.problems[:MOST_SHOWN]] if as_json else []
            rows.append({"file": name, "ok": False, "kind": None, "error": str(problem), "problems": shown, "warnings": []})
    joint = _together(rows)
    if as_json:
        print_json({"files": rows, **({"together": joint} if joint else {})})
    else:
        for row in rows:
            echo(f"{row['file']}: {row['kind']} ok" if row["ok"] else str(row["error"]), err=not row["ok"])
            for line in row["warnings"]:
                echo(f"warning: {line}")
        for line in _lines(joint):
            echo(line, err=not joint["ok"])
    if not all(row["ok"] for row in rows) or not joint.get("ok", True):
        raise typer.Exit(2)


def _together(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Whether the files of one question fit together; empty where they are not those of one."""
    kinds = {row["kind"]: row["file"] for row in rows}
    third = next((kind for kind in ("mapper", "mapping") if kind in kinds), "")
    if len(rows) != len(kinds) or set(kinds) != {"architecture", "workload", third}:
        return {}

    try:
        return _fitting(kinds["architecture"], kinds["workload"], **{third: kinds[third]})
    except InputError as problem:
        return {"ok": False, "error": str(problem), "problems": [one.to_dict() for one in problem.problems], "warnings": []}


def _fitting(architecture: str, workload: str, mapper: str | None = None, mapping: str | None = None) -> dict[str, Any]:
    """What fits: mappings and meshes of a space, or the one mapping. Raises InputError, InfeasibleError."""
    from rackmodel import api
    from rackmodel.inputs import read_inputs
    from rackmodel.mapper.in_order import read_goals
    from rackmodel.mapper.listed_numbers import numbers_passed_over
    from rackmodel.model.mapper_check import passed_over

    inputs = read_inputs(architecture, workload, mapper=mapper, mapping=mapping)
    fits: dict[str, Any] = {"ok": True, "error": None, "problems": [], "warnings": []}
    try:
        if inputs.mapping is not None:
            api.step_of(inputs, inputs.mapping)
            return fits | {"mappings": 1, "meshes": 1}
        assert inputs.mapper is not None
        space = api.mapspace(inputs.architecture, inputs.workload, inputs.mapper)
        for goal in read_goals(inputs.mapper.minimize):
            api.objective_of(goal, inputs.architecture)
        warnings = [*passed_over(inputs.mapper, inputs.workload), *numbers_passed_over(space), *([space.note] if space.note else [])]
        return fits | {"mappings": int(space.size), "meshes": space.meshes, "warnings": warnings}
    except InputError as problem:
        raise inputs.place(problem)


def _lines(joint: dict[str, Any]) -> list[str]:
    if not joint:
        return []
    if not joint["ok"]:
        return [str(joint["error"])]
    sizes = (f"{joint[what]:,} {one if joint[what] == 1 else what}" for what, one in (("mappings", "mapping"), ("meshes", "mesh")))
    return [f"together: ok, {' on '.join(sizes)}", *(f"warning: {line}" for line in joint["warnings"])]
