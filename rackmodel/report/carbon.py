"""A bill of materials and a footprint as tables, from their plain data: grams with ranges, what moves them, where they are from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from rackmodel.report.tables import format_number, format_si

MOST_SWINGS = 6
SHARES = ("use", "idle", "embodied")


def mass(grams_: float) -> str:
    """'96.4 kg', '19.5 t'."""
    return format_si(grams_, "gCO2e", 3).removesuffix("CO2e")


def grams(value: Mapping[str, float]) -> str:
    """'96.4 kgCO2e (51.7 kg to 201 kg)'."""
    middle = format_si(value["mid"], "gCO2e", 3)
    return middle if value["low"] == value["high"] else f"{middle} ({mass(value['low'])} to {mass(value['high'])})"


def carbon_words(job: Mapping[str, Any], what: str = "") -> str:
    """'carbon: use 315 g + idle 89 g + embodied 19 g = 423 gCO2e (294 g to 696 g); world, 301 g/kWh, PUE 1.1; out to network, at work
    60 % of 4 years'."""
    shares = [f"{name} {mass(job[name]['mid'])}" for name in SHARES if job[name] is not None]
    basis = job["basis"]
    made = f"out to {basis['boundary']}, " if "boundary" in basis else "what it is made of not stated, "
    life = f" of {basis['life']}" if "life" in basis else ""
    there = f"{basis['grid']}, PUE {basis['PUE']}; "
    without = f"; without {basis['without']}" if "without" in basis else ""
    return f"carbon{what}: {' + '.join(shares)} = {grams(job['total'])}; {there}{made}at work {basis['at work']}{life}{without}"


def bill_table(bill: Mapping[str, Any]) -> Table:
    """One row an item: where, what, boundary, how many, grams of one and of all."""
    count = bill["accelerators"]
    title = f"embodied carbon of {count} accelerator{'s' if count > 1 else ''}"
    table = _table(title, ("item", "what", "boundary", "count", "one", "all"))
    for line in bill["lines"]:
        shown = f"{line['level']}.{line['name']}", line["what"], line["boundary"], format_number(line["count"])
        table.add_row(*shown, mass(line["each_g"]["mid"]), mass(line["total_g"]["mid"]))
    return table


def boundary_table(bill: Mapping[str, Any]) -> Table:
    """Totals out to each boundary, of the machine and of one accelerator."""
    table = _table("out to each boundary, all inside included", ("boundary", "all", "an accelerator"))
    for name, value in bill["boundaries"].items():
        table.add_row(name, grams(value), grams(bill["each_accelerator_g"][name]))
    return table


def swing_table(swings: Sequence[Mapping[str, Any]]) -> Table:
    """The factors that move the total most, each from its low to its high with the others in the middle."""
    table = _table("what the range comes from", ("factor", "at its low", "at its high"))
    for row in swings[:MOST_SWINGS]:
        table.add_row(row["factor"], mass(row["low_g"]), mass(row["high_g"]))
    return table


def footprint_table(data: Mapping[str, Any], *, metrics: bool) -> Table:
    """Carbon of one step, for each token where it makes some, and the metrics where they are asked for."""
    table = _table(data["title"], ("figure", "middle", "low", "high"))
    for name, value in data["carbon"].items():
        table.add_row(name, *(format_si(value[key], "gCO2e", 3) for key in ("mid", "low", "high")))
    for name, value in data["metrics"].items() if metrics else ():
        table.add_row(f"{name}, {data['units'][name]}", *(format_number(value[key], 3) for key in ("mid", "low", "high")))
    return table


def places_table(job: Mapping[str, Any]) -> Table:
    """A job on each grid: its shares, their total with its range, and a token's."""
    basis = job["places"][0]["basis"]
    out_to = f"out to {basis['boundary']}, " if "boundary" in basis else ""
    life = f" of {basis['life']}" if "life" in basis else ""
    each = "per_token" in job["places"][0]
    took = f"{format_si(job['seconds'], 's')}, {format_si(job['energy_j'] / 3600, 'Wh', 4)} at the machine, PUE {basis['PUE']}"
    title = f"{job['words']}, {took}; {out_to}at work {basis['at work']}{life}"
    table = _table(title, ("grid", *SHARES, "total", "low", "high", *(("a token",) if each else ())))
    for place in job["places"]:
        shares = ["" if place[name] is None else mass(place[name]["mid"]) for name in SHARES]
        ends = [mass(place["total"][end]) for end in ("mid", "low", "high")]
        table.add_row(place["grid"], *shares, *ends, *((mass(place["per_token"]["mid"]),) if each else ()))
    return table


def _table(title: str, heads: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, title=title, title_justify="left")
    words = ("item", "what", "boundary", "factor", "figure", "grid")
    for head in heads:
        table.add_column(head, justify="left" if head in words else "right", overflow="fold")
    return table
