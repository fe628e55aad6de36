"""The numbers of a machine as its file says them: each with its path, as --set names it, its range, and where it is from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rackmodel.model.architecture import Architecture, Level
from rackmodel.model.schema import Spec
from rackmodel.units import Quantity

LEFT_OUT = ("source", "note", "children", "name")
COLUMNS = ("path", "value", "range", "source")


def machine_facts(machine: Architecture) -> list[dict[str, str]]:
    """A row a number that the file states, in the order of the tree. Keys are COLUMNS; '' where it says nothing."""
    found = [_row("accelerators", str(machine.used), f"of {machine.available} in the file")]
    if machine.site is not None:
        found += _numbers("site", machine.site, machine.site.source or "")
    for name, level in machine.named:
        found += [_row(f"{name}.count", str(level.count), level.source or "")] if level.count > 1 else []
        found += _numbers(name, level, level.source or "")
    return found


def capacity_of(machine: Architecture) -> tuple[str, float | None, float | None]:
    """(the accelerators' level, bytes and bytes a second of its memory, None where it has none, or where there are several kinds)."""
    if len(machine.pools) > 1:
        return " and ".join(pool.accelerator.name for pool in machine.pools), None, None
    level: Level = machine.accelerator
    memory = level.memory
    return (level.name, None, None) if memory is None else (level.name, memory.capacity_bytes, memory.bandwidth_bytes_per_s)


def machine_numbers(machine: Architecture) -> list[tuple[str, Quantity]]:
    """(path, quantity) of every number with a unit that the file states, as --set names it."""
    parts: list[tuple[str, Spec]] = [("site", machine.site)] if machine.site is not None else []
    parts += machine.named
    return [found[:2] for path, spec in parts for found in _inside(path, spec, "")]


def _numbers(path: str, spec: Spec, source: str) -> Iterator[dict[str, str]]:
    """The quantities of a mapping that its file states, those of mappings inside it too. source: of what stands around them."""
    for inner, value, where in _inside(path, spec, source):
        ranged = value.low != value.high
        spread = f"{value.low / value:.4g} to {value.high / value:.4g} times" if ranged and value else ""
        yield _row(inner, value.text, where, spread)


def _inside(path: str, value: Any, source: str) -> Iterator[tuple[str, Quantity, str]]:
    """(path, quantity, its source) of what a value states."""
    if isinstance(value, Quantity):
        yield path, value, value.source or source
    elif isinstance(value, Spec):
        for name, field in type(value).model_fields.items():
            if name not in LEFT_OUT and name in value.model_fields_set:
                yield from _inside(f"{path}.{field.alias or name}", getattr(value, name), value.source or source)
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _inside(f"{path}.{key}", inner, source)


def _row(path: str, value: str, source: str, spread: str = "") -> dict[str, str]:
    return dict(zip(COLUMNS, (path, value, spread, source), strict=True))
