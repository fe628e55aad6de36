"""Carbon tables with some numbers replaced: what a study's findings would be, were a fact another.

A place is named as in the files of specs/carbon: `figures.NAME` (a number of a row: `figures.NAME.0`), `technologies.NAME`,
`parts.NAME`, `products.NAME`, `processes.NAME.energy`, `processes.NAME.area_carbon.imec`, `fab.intensity`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rackmodel.carbon.tables import CarbonTables, Process
from rackmodel.errors import InputError
from rackmodel.units import Quantity, read_quantity

SECTIONS = ("figures", "technologies", "parts", "products", "processes", "fab")
_UNITS = {"technologies": "gram/byte", "parts": "gram", "products": "gram"}


def names_table(path: str) -> bool:
    """Whether a path leads into the carbon tables."""
    return path.split(".", 1)[0] in SECTIONS and "." in path


def with_facts(tables: CarbonTables, facts: Mapping[str, Any]) -> CarbonTables:
    """The tables in which each path has a value, as text with its unit or as a number. Raises InputError."""
    for path, value in facts.items():
        tables = _with(tables, path, value)
    return tables


def _with(tables: CarbonTables, path: str, value: Any) -> CarbonTables:
    section, _, name = path.partition(".")
    if section not in SECTIONS or not name:
        raise InputError(f"no carbon table has '{path}'", known=SECTIONS, given=section)
    if section == "fab":
        return replace(tables, fab=_field(tables.fab, name, value, path))
    table: dict[str, Any] = dict(getattr(tables, section))
    if section == "figures":
        key, index = _row(table, name)
        _known(table, key, path)
        said = table[key]
        changed = value if index is None else [*said.value[:index], value, *said.value[index + 1 :]]
        table[key] = said.model_copy(update={"value": changed, "low": None, "high": None})
    elif section == "processes":
        key, _, field = name.partition(".")
        _known(table, key, path)
        table[key] = _field(table[key], field, value, path)
    else:
        _known(table, name, path)
        table[name] = _quantity(value, _UNITS[section], path)
    whole: dict[str, Any] = {section: table}
    return replace(tables, **whole)


def _row(table: Mapping[str, Any], name: str) -> tuple[str, int | None]:
    """('wafer.dgx_power', 0) of 'wafer.dgx_power.0'."""
    head, _, last = name.rpartition(".")
    return (head, int(last)) if name not in table and last.isdecimal() else (name, None)


def _field(spec: Any, name: str, value: Any, path: str) -> Any:
    """A fab or process in which one number is another."""
    known = {(field.alias or key): key for key, field in type(spec).model_fields.items()}
    head, _, rest = name.partition(".")
    _known(known, head, path)
    key = known[head]
    if rest and isinstance(spec, Process):
        _known(spec.area_carbon, rest, path)
        return spec.model_copy(update={key: {**spec.area_carbon, rest: _quantity(value, "gram/metre**2", path)}})
    if rest or head == "yield":
        inner = getattr(spec, key)
        return spec.model_copy(update={key: inner.model_copy(update={rest or "value": _quantity(value, "", path)})})
    return type(spec).model_validate({**_written(spec), head: value})


def _written(spec: Any) -> dict[str, Any]:
    """A spec as its file has it, numbers with their units read."""
    return {(field.alias or key): getattr(spec, key) for key, field in type(spec).model_fields.items() if getattr(spec, key) is not None}


def _quantity(value: Any, unit: str, path: str) -> Quantity:
    try:
        return read_quantity(value, unit)
    except ValueError as problem:
        raise InputError(str(problem), path=path) from problem


def _known(table: Mapping[str, Any], name: str, path: str) -> None:
    if name not in table:
        raise InputError(f"no carbon table has '{path}'", known=sorted(table), given=name)


class _Noting(dict[str, Any]):
    """A table that notes which of its entries are read."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        super().__init__(table)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)


def noting(tables: CarbonTables) -> tuple[CarbonTables, dict[str, set[str]]]:
    """The same tables, and the names that will be read of each section but `fab`."""
    noted = {section: _Noting(getattr(tables, section)) for section in SECTIONS if section != "fab"}
    whole: dict[str, Any] = dict(noted)
    return replace(tables, **whole), {section: table.read for section, table in noted.items()}


def ranged_facts(tables: CarbonTables) -> dict[str, Quantity]:
    """Path → every number of the tables that has a range."""
    found: dict[str, Any] = {f"fab.{key}": value for key, value in _written(tables.fab).items()}
    found["fab.yield"] = tables.fab.yield_.value
    for section in ("technologies", "parts", "products"):
        found |= {f"{section}.{name}": value for name, value in getattr(tables, section).items()}
    for name, process in tables.processes.items():
        found |= {f"processes.{name}.{key}": value for key, value in _written(process).items()}
        found |= {f"processes.{name}.area_carbon.{key}": value for key, value in process.area_carbon.items()}
    for name, printed in tables.figures.items():
        if printed.low is not None and printed.high is not None:
            found[f"figures.{name}"] = _as_written(tables, name)
    return {path: value for path, value in found.items() if isinstance(value, Quantity) and value.low < value.high}


def _as_written(tables: CarbonTables, name: str) -> Quantity:
    """A printed figure with its range, in the unit that it is written in."""
    said = tables.figures[name]
    low, mid, high = (float(str(value).split()[0]) for value in (said.low, said.value, said.high))
    return Quantity.make(mid, low, high, said.source, str(said.value))
