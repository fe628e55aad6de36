"""What stands beside a result where it was asked for: its Pareto front, the whole run, the arguments that start its mapping.

As plain data that a result's file keeps in `shown` (`beside`), and as sections of its page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rackmodel.model.result import Result
from rackmodel.report.carbon import carbon_words
from rackmodel.report.launch.arguments import Launch
from rackmodel.report.markup import copy_button, escaped, sortable_table
from rackmodel.report.runners_up import words_apart
from rackmodel.report.tables import amount, format_number, format_percent, format_si

FRONT_COLUMNS = {"latency_s": ("latency", "s"), "energy_j": ("energy", "J"), "memory_bytes_per_accelerator": ("memory", "B")}
ASKED_COLUMNS = {
    "carbon_g": ("carbon", "gCO2e"),
    "total_carbon_g": ("total_carbon", "gCO2e"),
    "tcdp_g_s": ("tcdp", "gCO2e s"),
    "money_usd": ("money", "$"),
}
"""Key → (figure of a front, unit): of every mapping, and of a front that it is of."""
MOST_POINTS = 1_000
"""Points of a front on a page; all are in pareto.csv."""

Data = Mapping[str, Any]


def front_data(front: Sequence[Result], status: str, asked: Sequence[str], bills: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """A front in its order. status: whether a point of it may be missing · asked: its figures · bills: those of them that no mapping has
    without its machine's bill, of each."""
    points = [
        {"mapping": words, **{key: getattr(one, key) for key in (*FRONT_COLUMNS, "carbon_g")}}
        for words, one in zip(words_apart(front), front, strict=True)
    ]
    for key, (name, _) in ASKED_COLUMNS.items():
        for point, value in zip(points, bills.get(name, ()), strict=name in bills):
            point[key] = value
    return {"status": status, "figures": list(asked), "points": points}


def launch_data(launch: Launch) -> dict[str, Any]:
    """The arguments, ready for a shell, and the file that belongs to them."""
    return {"framework": launch.framework, "lines": launch.lines(), "name": launch.config_name, "config": launch.config}


# -- a whole run, from Run.to_dict -------------------------------------------------------------------------------------


def run_lines(run: Data) -> list[str]:
    """How long the run is, and its checkpoints."""
    lines = [f"run: {run['steps']:,} steps of {format_si(run['step_s'], 's')}"]
    if run["interval_s"] is not None:
        every = f"every {format_si(run['interval_s'], 's')}: {format_si(run['state_bytes'], 'B')} in {format_si(run['write_s'], 's')}"
        failing = f"; {format_number(run['failures'])} failures, one every {format_si(run['mtbf_s'], 's')}" if run["failures"] else ""
        lines.append(f"{run['checkpoints']:,} checkpoints, {every}{failing}")
    return lines


def run_table(run: Data) -> tuple[list[str], list[list[tuple[str, Any]]]]:
    """(heads, a row each part and the whole, of (text, number))."""
    site = run["carbon_g"] is not None
    heads = ["", "time", "share", "energy", *(("carbon of use",) if site else ())]
    rows = []
    for name, part in {**run["parts"], "total": run}.items():
        share = part["seconds"] / run["seconds"]
        cells = [(name, None), (format_si(part["seconds"], "s"), part["seconds"]), (format_percent(share), share)]
        cells.append((format_si(part["joules"], "J"), part["joules"]))
        rows.append([*cells, *([(format_si(part["carbon_g"], "gCO2e"), part["carbon_g"])] if site else [])])
    return heads, rows


def run_carbon(run: Data) -> list[str]:
    """Carbon of the run with its idle and embodied shares, where they are known."""
    return [] if run["carbon"] is None else [carbon_words(run["carbon"], " of the run")]


# -- on a page ---------------------------------------------------------------------------------------------------------


def beside_sections(shown: Data, number: int, name: str) -> str:
    """Front, run and arguments of a result. number: of the result on the page · name: where there are several."""
    of = f" of {name}" if name else ""
    parts = [
        _front(shown["front"], number, of) if shown.get("front") else "",
        _run(shown["run"], number, of) if shown.get("run") else "",
        _launch(shown["launch"], number, of) if shown.get("launch") else "",
    ]
    return "".join(parts)


def front_chart_data(front: Data, number: int) -> dict[str, Any]:
    """What front.js draws: axes as (name, unit), points as (number, x, y, words)."""
    columns = _columns(front)
    known = {name: key for key, (name, _) in columns.items()}
    first, second = [*dict.fromkeys(name for name in (*front["figures"], *known) if name in known)][:2]
    points = []
    for place, point in enumerate(front["points"][:MOST_POINTS], start=1):
        told = [f"{name} {amount(point[key], unit)}" for key, (name, unit) in columns.items()]
        points.append([place, point[known[first]], point[known[second]], "\n".join([f"{place}: {point['mapping']}", *told])])
    return {"of": number, "x": [first, columns[known[first]][1]], "y": [second, columns[known[second]][1]], "points": points}


def asked_columns(front: Data) -> dict[str, tuple[str, str]]:
    """Key → (name, unit) of the figures that a table of a front has: those of every mapping, and those that were asked."""
    return FRONT_COLUMNS | {key: said for key, said in ASKED_COLUMNS.items() if said[0] in front["figures"]}


def _columns(front: Data) -> dict[str, tuple[str, str]]:
    """Key → (name, unit) of the figures that every point has."""
    every = {**FRONT_COLUMNS, **ASKED_COLUMNS}
    return {key: said for key, said in every.items() if all(isinstance(point.get(key), int | float) for point in front["points"])}


def _front(front: Data, number: int, of: str) -> str:
    columns, points = _columns(front), front["points"]
    rows = []
    for place, point in enumerate(points[:MOST_POINTS], start=1):
        figures = [(amount(point[key], unit), point[key]) for key, (_, unit) in columns.items()]
        rows.append([(str(place), place), (str(point["mapping"]), None), *figures])
    hidden = len(points) - len(rows)
    more = f"; the first {len(rows)} are shown, all are in pareto.csv" if hidden else ""
    line = f"{', '.join(front['figures'])}: {len(points)} mappings, {front['status']}{more}. Press a point to find its row."
    table = sortable_table(f"front{number}", ["#", "mapping", *(name for name, _ in columns.values())], rows)
    figure = f'<figure id="chart-front{number}"></figure>'
    return f'<section aria-label="front"><h2>Pareto front{escaped(of)}</h2><p class="soft">{escaped(line)}</p>{figure}{table}</section>'


def _run(run: Data, number: int, of: str) -> str:
    told = "".join(f"<p>{escaped(line)}</p>" for line in (*run_lines(run), *run_carbon(run)))
    table = sortable_table(f"run{number}", *run_table(run))
    return f'<section aria-label="run"><h2>The whole run{escaped(of)}</h2>{told}{table}</section>'


def _launch(launch: Data, number: int, of: str) -> str:
    texts = {f"launch{number}": (f"{launch['framework']}, for a shell", "\n".join(launch["lines"]))}
    if launch["name"]:
        texts[f"config{number}"] = launch["name"], launch["config"]
    parts = [
        f'<div class="copyable"><span>{escaped(words)}</span>{copy_button(name)}</div><pre id="{name}">{escaped(said)}</pre>'
        for name, (words, said) in texts.items()
    ]
    return f'<section aria-label="launch"><h2>What starts it{escaped(of)}</h2>{"".join(parts)}</section>'
