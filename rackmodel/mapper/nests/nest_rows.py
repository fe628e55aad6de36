"""The charges of loop nests: rows of one accelerator, from the accesses of a nest, and those of several meshes as arrays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rackmodel.arrays import Array
from rackmodel.cost.inside.roofline import Row
from rackmodel.cost.ledger import Component
from rackmodel.mapper.nests.nested import Nested
from rackmodel.nests.problem import NestMachine


def nest_rows(nest: Nested, share: float) -> list[Row]:
    """Charges of one accelerator: joules and amounts of its exact share (of the fullest one's), seconds of the fullest."""
    cost, rows = nest.cost, []
    binding = max(cost.times_s, key=lambda name: cost.times_s[name])
    unit = nest.machine.compute.name
    level = unit.removesuffix(" compute")
    flops = 2.0 * nest.problem.macs * nest.problem.density * share
    seconds = cost.times_s[unit]
    rows.append(_row(nest.problem.output.name, level, "compute", "mac", flops, "flop", cost.compute_j * share, seconds, binding == unit))
    for number, action in enumerate(("read", "write")):
        for name in [v.name for v in nest.machine.levels]:
            accesses = [a for a in cost.accesses if a.level == name]
            port = f"{name} {action}" if f"{name} {action}" in cost.times_s else name
            both = port == name
            bits = [a.read_bits + a.write_bits if both else (a.read_bits, a.write_bits)[number] for a in accesses]
            whole, time = sum(bits), cost.times_s[port]
            energy = _energy(nest.machine, name, action)
            for access in accesses:
                moved = (access.read_bits, access.write_bits)[number]
                part = time * moved / whole if whole else 0.0
                figures = (moved / 8 * share, "byte", moved * energy * share, part)
                rows.append(_row(access.tensor, name, "memory", action, *figures, binding == port))
    for v in nest.machine.levels:
        link = f"{v.name} link"
        if v.fan.hop_j_per_bit or link in cost.times_s:
            carried, time = cost.hop_bits[v.name], cost.times_s.get(link, 0.0)
            whole = sum(carried.values())
            for tensor, moved in carried.items():
                part = time * moved / whole if whole else 0.0
                figures = (moved / 8 * share, "byte", moved * v.fan.hop_j_per_bit * share, part)
                rows.append(_row(tensor, v.name, "network", "hop", *figures, binding == link))
    return rows


def side_by_side(meshes: list[list[Row]]) -> list[Row]:
    """Rows of arrays from those of several meshes, of which some have rows that others lack."""
    kinds: list[dict[tuple[str, str, Component, str], list[Row]]] = []
    for rows in meshes:
        kinds.append({})
        for row in rows:
            kinds[-1].setdefault((row.tensor, row.level, row.component, row.action), []).append(row)
    found = []
    for key, first in {key: mine[0] for kind in kinds for key, mine in kind.items()}.items():
        none = [_row(*key, 0.0, first.unit, 0.0, 0.0, False)]
        found.append(stacked([_summed(kind.get(key, none)) for kind in kinds]))
    return found


def repeated(row: Row, runs: float) -> Row:
    """A row of so many runs, one after another."""
    return replace(row, amount=row.amount * runs, joules=row.joules * runs, seconds=row.seconds * runs, exposed=row.exposed * runs)


def _summed(rows: list[Row]) -> Row:
    """Rows of one kind as one."""
    amount, joules, seconds, exposed = (
        float(sum(np.asarray(getattr(row, name)).item() for row in rows)) for name in ("amount", "joules", "seconds", "exposed")
    )
    return Row(rows[0].tensor, rows[0].level, rows[0].component, rows[0].action, amount, rows[0].unit, joules, seconds, exposed)


def stacked(rows: list[Row]) -> Row:
    """One row of arrays from the same row of several meshes."""

    def column(name: str) -> Array:
        return np.array([getattr(row, name) for row in rows], dtype=np.float64)

    first = rows[0]
    figures = (column("amount"), first.unit, column("joules"), column("seconds"), column("exposed"))
    return Row(first.tensor, first.level, first.component, first.action, *figures)


def _energy(machine: NestMachine, level: str, action: str) -> float:
    found = next(v for v in machine.levels if v.name == level)
    return found.read_j_per_bit if action == "read" else found.write_j_per_bit


def _row(
    tensor: str, level: str, component: Component, action: str, amount: float, unit: str, joules: float, seconds: float, binds: bool
) -> Row:
    return Row(tensor, level, component, action, amount, unit, joules, seconds, seconds if binds else 0.0)
