"""Accelergy's energy-reference table (`ERT:`, version 0.3 and 0.4) → energies and static power of stages.

A table names a component and gives picojoules per action; one read or write moves `width` bits, so that joules per bit
are energy / width. `leak` is picojoules per cycle and instance: static power is leak / cycle time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rackmodel.errors import InputError
from rackmodel.inputs.marked import Marked
from rackmodel.inputs.stages import Notes, Stage, number, rows, table

PICO = 1e-12


def apply(tables: Sequence[Marked], stages: Sequence[Stage], notes: Notes, cycle: float | None) -> None:
    """Fill the energies of stages from tables, by the last word of a component's name. Raises InputError."""
    by_name = {stage.name: stage for stage in stages}
    matched: set[str] = set()
    for ert in tables:
        notes.unknown_keys(ert, ("version", "tables"), "ERT")
        if "tables" not in ert.mapping:
            raise InputError("missing key 'tables', a list of {name, actions}", where=ert.where, path="ERT")
        for row in rows(ert, "tables", "ERT.tables"):
            component = _component(row)
            stage = by_name.get(component)
            if stage is None:
                notes.add(row.where, f"ERT.{component}: no such component in the architecture")
                continue
            matched.add(component)
            _fill(stage, row, notes, cycle)
    for stage in stages:
        if stage.name not in matched and not stage.energy:
            notes.add(stage.where, f"{stage.name}: no energy given, 0 is charged")


def _component(row: Marked) -> str:
    """'system.chip.buffer[1..16]' is called 'buffer'."""
    name = row.child("name")
    if name is None or not name.text:
        raise InputError("missing key 'name' (the component)", where=row.where, path="ERT.tables")
    return re.sub(r"\[[^\]]*\]", "", name.text).rsplit(".", 1)[-1]


def _fill(stage: Stage, row: Marked, notes: Notes, cycle: float | None) -> None:
    notes.unknown_keys(row, ("name", "actions"), f"ERT.{stage.name}")
    energies: dict[str, float] = {}
    for action in rows(row, "actions", f"ERT.{stage.name}.actions"):
        kind = str(action.mapping["name"].value) if "name" in action.mapping else ""
        given = action.child("energy")
        if not kind or given is None:
            raise InputError("want {name, energy}", where=action.where, path=f"ERT.{stage.name}.actions")
        notes.unknown_keys(action, ("name", "energy", "arguments"), f"ERT.{stage.name}.{kind}")
        arguments = table(action, "arguments", f"ERT.{stage.name}.{kind}.arguments")
        if arguments is not None:
            notes.unknown_keys(arguments, ("global_cycle_seconds",), f"ERT.{stage.name}.{kind}.arguments")
            given_cycle = arguments.child("global_cycle_seconds")
            cycle = cycle or (number(given_cycle, "global_cycle_seconds") if given_cycle is not None else None)
        energy = number(given, f"ERT.{stage.name}.{kind}.energy") * PICO
        if kind in energies and energies[kind] != energy:
            notes.add(action.where, f"ERT.{stage.name}.{kind}: several rows, the highest energy is taken")
        energies[kind] = max(energy, energies.get(kind, 0.0))
    _take(stage, row, energies, notes, cycle)


def _take(stage: Stage, row: Marked, energies: dict[str, float], notes: Notes, cycle: float | None) -> None:
    wanted = ("compute",) if stage.compute else ("read", "write")
    bits = 1.0 if stage.compute else stage.action_bits
    for kind in wanted:
        if kind not in energies:
            notes.add(row.where, f"ERT.{stage.name}: no action '{kind}', 0 is charged")
        elif bits is None:
            notes.add(row.where, f"ERT.{stage.name}.{kind}: not imported, the component states no width")
        else:
            stage.energy[kind] = energies[kind] / bits
    if energies.get("leak"):
        if not cycle:
            fact = "leak is energy per cycle: give --clock '1 GHz', or global_cycle_seconds in a file"
            raise InputError(fact, where=row.where, path=f"ERT.{stage.name}")
        stage.static_w = energies["leak"] / cycle
    for kind, energy in energies.items():
        as_write = kind == "update" and energy == energies.get("write")
        if kind not in (*wanted, "leak") and not as_write:
            notes.add(row.where, f"ERT.{stage.name}.{kind}: not imported" + (", updates cost a write" if kind == "update" else ""))
