"""A job's carbon on one grid or several: a step, or a whole run of so many tokens; its money, its best hours, as data, table and files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackmodel.cli.options import words_of
from rackmodel.errors import InputError
from rackmodel.report.files import csv_of_records, write_whole

if TYPE_CHECKING:
    from rackmodel.carbon.job import Usage
    from rackmodel.model.architecture import Architecture


@dataclass(frozen=True)
class JobQuestion:
    """What is asked of the job. grids: places, or carbon such as '300 g/kWh'; none = the machine's own · trace: hourly intensities."""

    usage: Usage
    fab: str = "act"
    grids: tuple[str, ...] = ()
    trace: Path | None = None


@dataclass(frozen=True)
class Amounts:
    """What the job is and takes. tokens: that it makes, None where they are not known."""

    words: str
    energy_j: float
    seconds: float
    tokens: float | None


def grid_words(text: str | None) -> tuple[str, ...]:
    """'sweden,taiwan' → ('sweden', 'taiwan'). Raises InputError for one that is there twice, and where one is missing."""
    return words_of(text, "--grid") if text is not None else ()


def at_grid(machine: Architecture, grid: str) -> Architecture:
    """The machine on another grid. Raises InputError for one that the tables do not know."""
    from rackmodel.carbon.operational import grid_intensity_g_per_j
    from rackmodel.inputs.carbon_tables import grids_of
    from rackmodel.model.architecture import Site

    said = machine.site or Site(grid=grid)
    there = said.model_copy(update={"grid": grid, "intensity_g_per_j": None})
    try:
        grid_intensity_g_per_j(there, grids_of(machine))
    except InputError as problem:
        raise InputError(problem.message, path="--grid", known=problem.known, given=problem.given)
    return machine.model_copy(update={"site": there})


def on_trace(machine: Architecture, path: Path, usage: Usage) -> Architecture:
    """The machine on a grid of an hourly trace. Raises InputError."""
    from rackmodel.carbon.trace import placed, read_trace
    from rackmodel.csv_file import text_of

    if machine.site is None:
        raise InputError("a trace stands for a site's grid: the architecture has no site", path="site")
    found = placed(read_trace(text_of(path), str(path)), float(usage.active), str(path))
    site = machine.site.model_copy(update={"grid": {"intensity": found}, "intensity_g_per_j": None})
    return machine.model_copy(update={"site": site})


def job_data(machine: Architecture, job: Amounts, asked: JobQuestion) -> dict[str, Any]:
    """Plain data of a job on every grid. Raises InputError."""
    from rackmodel.carbon.costing import job_money

    there = [at_grid(machine, grid) for grid in asked.grids] if asked.grids else [machine]
    money = job_money(machine, asked.usage, job.energy_j, job.seconds)
    data = {
        "words": job.words,
        "seconds": job.seconds,
        "energy_j": job.energy_j,
        "tokens": job.tokens,
        "places": [_place(one, job, asked) for one in there],
    }
    if money is not None:
        data["money"] = money.to_dict()
    return data | ({"hours": _hours(machine, job, asked.trace)} if asked.trace is not None else {})


def _place(machine: Architecture, job: Amounts, asked: JobQuestion) -> dict[str, Any]:
    from rackmodel.carbon.operational import JOULES_PER_KWH, grid_intensity_g_per_j, grid_name
    from rackmodel.inputs.carbon_tables import grids_of
    from rackmodel.results import rates_of

    rates = rates_of(machine, asked.usage, asked.fab)
    assert rates is not None
    assert machine.site is not None
    emitted = rates.of(job.energy_j, job.seconds)
    name = grid_name(machine.site.grid, grids_of(machine)) if isinstance(machine.site.grid, str) else "trace" if asked.trace else "own"
    each = {} if not job.tokens else {"per_token": (emitted.total_g / job.tokens).to_dict()}
    there = grid_intensity_g_per_j(machine.site, grids_of(machine))
    ends = {"low": there.low, "mid": float(there), "high": there.high}
    intensity = {end: value * JOULES_PER_KWH for end, value in ends.items()}
    return {"grid": name, "intensity_g_per_kwh": intensity, **emitted.to_dict(), **each}


def _hours(machine: Architecture, job: Amounts, path: Path) -> dict[str, Any]:
    """When to start the job: its use at the greenest and at the dirtiest hour, g."""
    from rackmodel.carbon.trace import hour_names, read_trace, starts
    from rackmodel.csv_file import text_of

    text, pue = text_of(path), float(machine.site.pue) if machine.site is not None else 1.0
    best, worst = starts(read_trace(text, str(path)), hour_names(text, str(path)), job.seconds)
    return {
        name: {"hour": start.hour, "label": start.label, "use_g": start.g_per_j * pue * job.energy_j}
        for name, start in (("best", best), ("worst", worst))
    }


def write_job(data: dict[str, Any], where: Path) -> list[Path]:
    """carbon.csv, a row a grid, and the chart of the shares."""
    from rackmodel.report.carbon import SHARES
    from rackmodel.report.charts import stacked_series_chart
    from rackmodel.report.drawing import save_chart

    rows = []
    for place in data["places"]:
        row: dict[str, Any] = {
            "grid": place["grid"],
            "seconds": data["seconds"],
            "energy_j": data["energy_j"],
            "tokens": data["tokens"] or "",
        }
        row |= {f"intensity_{end}_g_per_kwh": place["intensity_g_per_kwh"][end] for end in ("low", "mid", "high")}
        for name in (*SHARES, "total", "per_token"):
            row |= {f"{name}_{end}_g": place[name][end] for end in ("low", "mid", "high")} if place.get(name) else {}
        money = data.get("money", {})
        rows.append(row | {f"{name}_usd": value["mid"] for name, value in money.items()})
    bars = [
        {"grid": place["grid"], "share": name, "grams": place[name]["mid"]}
        for place in data["places"]
        for name in SHARES
        if place[name] is not None
    ]
    chart = stacked_series_chart(bars, "grid", "grams", "share", title=f"Carbon: {data['words']}", y_title="carbon", unit="gCO2e")
    return [write_whole(where / "carbon.csv", csv_of_records(rows)), *save_chart(chart, where, "carbon")]


def job_lines(data: dict[str, Any]) -> Sequence[str]:
    """Grids, money and hours of a job in words."""
    from rackmodel.report.money import money_words
    from rackmodel.report.tables import format_si

    lines = [f"grids: {'; '.join(place['basis']['grid'] for place in data['places'])}"]
    if "money" in data:
        lines.append(money_words(data["money"]))
    if "hours" in data:
        best, worst = data["hours"]["best"], data["hours"]["worst"]
        green, dirty = format_si(best["use_g"], "gCO2e", 3), format_si(worst["use_g"], "gCO2e", 3)
        lines.append(
            f"use, if it starts at hour {best['label']} of the trace and runs on: {green}, the least; at {worst['label']}: {dirty}"
        )
    return lines
