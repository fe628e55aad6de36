"""The library's tables of embodied carbon, every file of specs/carbon joined, and those of a machine: its own file's rows and its fab's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

from rackmodel.carbon.operational import GridFile, check_intensity, grid_intensity_g_per_j
from rackmodel.carbon.tables import CarbonTables, join_tables, overlaid, with_fab
from rackmodel.errors import InputError
from rackmodel.inputs.library import names
from rackmodel.inputs.load import load
from rackmodel.inputs.marked import Marked, dotted, value_at
from rackmodel.inputs.problems import build, levels_of, placed
from rackmodel.model.architecture import Architecture, Site
from rackmodel.units import Quantity


@cache
def carbon_tables() -> CarbonTables:
    """Processes, technologies, parts, products and printed figures, with their sources. Raises InputError."""
    return join_tables(build(GridFile, load("carbon", name)) for name in names("carbon"))


@cache
def own_tables(path: str) -> GridFile:
    """An own file of carbon tables. Raises InputError."""
    return build(GridFile, load("carbon", path))


@cache
def grid_table() -> dict[str, Quantity]:
    """The library's table of grids: place or energy source → intensity in g/J with its source."""
    return read_grids(load("carbon", "grid"))


def read_grids(raw: Marked) -> dict[str, Quantity]:
    """The grids of a file. Raises InputError."""
    file = build(GridFile, raw)
    try:
        return file.table()
    except InputError as problem:
        raise placed(problem, raw)


def grids_of(machine: Architecture) -> dict[str, Quantity]:
    """The grids that a machine's site and fab may name: its own file's before the library's. Raises InputError."""
    if machine.carbon is None:
        return grid_table()
    return {**grid_table(), **own_tables(machine.carbon).table()}


def tables_of(machine: Architecture) -> CarbonTables:
    """The tables that a machine is counted with: its own file's rows before the library's, and its fab. Raises InputError."""
    tables = carbon_tables() if machine.carbon is None else overlaid(carbon_tables(), own_tables(machine.carbon))
    if machine.fab is None:
        return tables
    return with_fab(tables, machine.fab, _of_fab(machine))


def unknown_names(raw: Marked, tables: CarbonTables) -> Iterator[InputError]:
    """What a machine's tree says that it is made of and no table has, each at its place. raw: a tree that is an architecture."""
    sections: tuple[tuple[str, str, Callable[[str], object]], ...] = (
        ("dies", "process", tables.process),
        ("memory", "technology", tables.technology),
        ("parts", "kind", tables.part),
    )
    for level in levels_of(raw):
        for section, key, known in sections:
            group = value_at(raw, (*level, "embodied", section))
            for name, one in group.mapping.items() if group is not None else ():
                said = one.child(key)
                try:
                    known(said.text) if said is not None and said.text is not None else None
                except InputError as problem:
                    path = dotted(raw, (*level, "embodied", section, name, key))
                    yield InputError(problem.message, where=one.mapping[key].where, path=path, known=problem.known, given=problem.given)


def _of_fab(machine: Architecture) -> Quantity | None:
    """The intensity of a fab's grid. Raises InputError."""
    if machine.fab is None or machine.fab.grid is None:
        return None
    try:
        return check_intensity(grid_intensity_g_per_j(Site(grid=machine.fab.grid), grids_of(machine)), "fab.grid")
    except InputError as problem:
        raise InputError(problem.message, path="fab.grid", known=problem.known, given=problem.given)
