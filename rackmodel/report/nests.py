"""A loop nest for a person: the loops with their tiles, then what each level stores, moves and waits for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rackmodel.nests.mapping import print_nest
from rackmodel.report.tables import format_percent, format_si

if TYPE_CHECKING:
    from rackmodel.mapper.nests.nested import Nested


def nest_lines(name: str, nest: Nested) -> list[str]:
    """One contraction's nest: loops, then a line a level (joules, seconds, bytes moved, share of the capacity)."""
    cost = nest.cost
    lines = [f"{name}    utilisation {format_percent(cost.utilisation)}, {format_si(cost.latency_s, 's')}, {format_si(cost.energy_j, 'J')}"]
    lines += [f"  one kernel: {', '.join(nest.kernel)}"] if nest.kernel else []
    lines += [f"  {line}" for line in print_nest(nest.mapping, nest.problem.sizes, nest.machine.compute.atom, nest.home).splitlines()]
    for level in nest.machine.levels:
        here = [access for access in cost.accesses if access.level == level.name]
        moved = ", ".join(f"{a.tensor} {format_si(a.read_bits / 8, 'B')} read {format_si(a.write_bits / 8, 'B')} written" for a in here)
        time = sum(seconds for port, seconds in cost.times_s.items() if port == level.name or port.startswith(f"{level.name} "))
        used = cost.used_bits.get(level.name, 0.0)
        full = f", {format_percent(used / level.capacity_bits)} full" if level.capacity_bits and used else ""
        busy = f", busy {format_percent(min(time / cost.latency_s, 1.0))}" if cost.latency_s > 0 else ""
        lines.append(f"  {level.name} x{cost.instances.get(level.name, 1)}{full}{busy}: {moved or 'holds nothing'}")
    return lines


def all_nests(nests: Mapping[str, Nested]) -> str:
    """Every nest of a result, as a text file."""
    return "\n\n".join("\n".join(nest_lines(name, nest)) for name, nest in nests.items()) + "\n"


def time_rows(nests: Mapping[str, Nested]) -> list[dict[str, Any]]:
    """Seconds of compute and of each level, by contraction: a chart's table."""
    return [{"x": name, "series": part, "y": seconds} for name, nest in nests.items() for part, seconds in nest.cost.times_s.items()]
