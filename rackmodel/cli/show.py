"""`rackmodel show NAME`: the tree, the einsum graph or the mapspace of an input; without a name, the library."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rackmodel.cli.options import JsonOption, SetOption
from rackmodel.cli.printing import echo, print_json


def show(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A name of the library or a file; absent = list the library.")
    ] = None,
    workload: Annotated[str | None, typer.Option("--workload", metavar="WORKLOAD", help="Show a mapper's space for this workload.")] = None,
    architecture: Annotated[
        str | None, typer.Option("--architecture", metavar="ARCH", help="Show that space on this architecture; absent = rack_paper.")
    ] = None,
    sets: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show an architecture's tree, a workload's einsum graph, or a mapper's space and its size."""
    from rackmodel.errors import InputError
    from rackmodel.inputs import kind_of, library_names
    from rackmodel.inputs.library import a

    if name is None:
        if as_json:
            print_json(library_names())
        else:
            _print_library()
        return
    kind = kind_of(name)
    for option, said in (("--workload", workload), ("--architecture", architecture)):
        if said is not None and kind != "mapper":
            raise InputError(f"shows a mapper's space, and {name} is {a(kind)}: leave it out", path=option)
    if architecture is not None and workload is None:
        raise InputError("shows a mapper's space for a workload: say --workload too", path="--architecture")
    data = _DESCRIBE[kind](name, architecture or "rack_paper", workload, list(sets or ())) if kind in _DESCRIBE else _plain(kind, name)
    if as_json:
        print_json({"kind": kind, **data})
    else:
        echo("\n".join(data["lines"]))


NAMED = {"architecture": "machines", "workload": "workloads", "mapper": "mappers", "profile": "profiles", "study": "studies"}
"""Kinds that a command is given by name → how they are headed; the others are what those are made of."""


def _print_library() -> None:
    """A row a file of the kinds that commands name, with what it says of itself; the others by name alone."""
    from rich.table import Table

    from rackmodel.inputs import about, library_names
    from rackmodel.inputs.library import DECODER, published
    from rackmodel.report.tables import console

    names = library_names()
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, min_width=2 + max(len(name) for kind in NAMED for name in names[kind]))
    table.add_column()
    for kind, head in NAMED.items():
        table.add_row(head, "", style="bold")
        for name in names[kind]:
            table.add_row(f"  {name}", about(kind, name))
    out = console()
    out.print(table)
    for kind, found in names.items():
        if kind not in NAMED:
            out.print(f"{kind}: {', '.join(found)}", style="dim")
    models = dict.fromkeys(name.rpartition("_")[0] for name in published())
    out.print(f"workloads of published configs, NAME_{DECODER} and NAME_training: {', '.join(models)}", style="dim")


def _architecture(name: str, _a: str, _w: str | None, sets: list[str]) -> dict[str, Any]:
    from rackmodel.inputs import read_architecture
    from rackmodel.report.describe import tree_lines

    architecture = read_architecture(name, sets)
    levels = [level.name for level in architecture.tree.walk()]
    return {
        "name": architecture.name,
        "accelerators": architecture.used,
        "available": architecture.available,
        "levels": levels,
        "lines": tree_lines(architecture),
    }


def _workload(name: str, _a: str, _w: str | None, sets: list[str]) -> dict[str, Any]:
    from rackmodel.inputs import read_workload
    from rackmodel.report.describe import graph_lines

    workload = read_workload(name, sets)
    edges = [[a, b, d["tensor"]] for a, b, d in workload.graph.edges(data=True)]
    tensors = {
        t.name: {"ranks": t.ranks, "sizes": t.sizes, "kind": t.kind, "bytes": t.bytes, "density": t.density}
        for t in workload.tensors.values()
    }
    return {
        "name": workload.name,
        "ops": {o.name: str(o.statement) for o in workload.ops.values()},
        "tensors": tensors,
        "edges": edges,
        "lines": graph_lines(workload),
    }


def _mapper(name: str, architecture: str, workload: str | None, sets: list[str]) -> dict[str, Any]:
    from rackmodel import api
    from rackmodel.inputs import read_inputs, read_mapper
    from rackmodel.report.describe import mapper_lines, space_lines

    if workload is None:
        mapper = read_mapper(name, sets)
        return {"name": mapper.name, "axes": list(mapper.axes), "lines": mapper_lines(mapper)}
    inputs = read_inputs(architecture, workload, mapper=name, sets=sets)
    assert inputs.mapper is not None
    space = api.mapspace(inputs.architecture, inputs.workload, inputs.mapper)
    return {
        "name": inputs.mapper.name,
        "size": space.size,
        "meshes": space.meshes,
        "lines": [*mapper_lines(inputs.mapper), *space_lines(space)],
    }


def _plain(kind: str, name: str) -> dict[str, Any]:
    from rackmodel.inputs import library_path

    return {"name": name, "lines": library_path(kind, name).read_text(encoding="utf-8").splitlines()}


_DESCRIBE = {"architecture": _architecture, "workload": _workload, "mapper": _mapper}
