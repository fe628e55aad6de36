"""Options that several commands share, each said once, and how results are printed and written."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rackmodel.carbon.run import Run
    from rackmodel.inputs import Inputs
    from rackmodel.model.result import Result
    from rackmodel.report.launch.arguments import Launch

MOST_TOLD = 40
"""Files that a command names."""

ArchitectureArg = Annotated[str, typer.Argument(metavar="ARCH", help="Architecture: a name of the library or a YAML file.")]
WorkloadArg = Annotated[str, typer.Argument(metavar="WORKLOAD", help="Workload: a name of the library or a YAML file.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Override any number of any input: accelerators=32, gpu.memory.bandwidth='4 TB/s'; 'network.bandwidth*=0.5' scales.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Print every charge too, and every mapping of a front.")]
OutOption = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="DIR", help="Write mapping, ledger, charts and index.html to this folder.")
]
ProfileOption = Annotated[
    str | None, typer.Option("--profile", metavar="NAME", help="What overlaps: a file of specs/profiles (ideal, serial).")
]
_LIMITS = "memory=, latency=, energy=, carbon=, total_carbon=, money=, edp= or tcdp="
_OBJECTIVES = "energy, latency, edp, carbon, memory, edap, cdp, cep, c2ep, ce2p, total_carbon, tcdp or money"
MinimizeOption = Annotated[
    str | None,
    typer.Option("--minimize", metavar="OBJ", help=f"{_OBJECTIVES}; in order: latency,energy."),
]
FlagsOption = Annotated[
    str | None,
    typer.Option("--flags", metavar="FRAMEWORK", help="Print the arguments that start the mapping: megatron, torchtitan or deepspeed."),
]
TokensOption = Annotated[str | None, typer.Option("--tokens", metavar="N", help="Cost a whole run over so many tokens, such as 300e9.")]
StepsOption = Annotated[int | None, typer.Option("--steps", metavar="N", min=1, help="Cost a whole run of so many steps.")]
CheckpointOption = Annotated[
    str | None,
    typer.Option("--checkpoint", metavar="INTERVAL", help="Time between checkpoints of a run, such as '30 min', or optimal."),
]
StorageOption = Annotated[
    str | None, typer.Option("--storage", metavar="BANDWIDTH", help="What a checkpoint is written with, all together: '1 TB/s'.")
]
FailuresOption = Annotated[
    str | None,
    typer.Option("--failures", metavar="RATE", help="Failures of a run: '2e-5 per accelerator-hour', or '50000 h per node' between two."),
]
RestartOption = Annotated[
    str | None,
    typer.Option("--restart", metavar="TIME", help="From a failure until training goes on; default: reading the checkpoint alone."),
]
LimitOption = Annotated[
    list[str] | None,
    typer.Option("--limit", metavar="NAME=VALUE", help=f"What a step may not exceed: power='5 MW', {_LIMITS}."),
]
ParetoOption = Annotated[
    str | None,
    typer.Option("--pareto", metavar="FIGURES", help="Pareto front of the steps: latency,energy,memory,carbon,total_carbon,tcdp,money."),
]
TimeOption = Annotated[
    str | None,
    typer.Option("--time-limit", metavar="TIME", help="Stop each search after so long, such as 30 s, with the best found and its gap."),
]

TraceOption = Annotated[
    Path | None,
    typer.Option("--trace", metavar="FILE", help="Write when each task runs, and what is held, as a trace for ui.perfetto.dev."),
]


MOST_WORKERS = 1024
"""Local processes of a command."""


def objective(text: str | None) -> Any:
    """Check an objective's name, or several in order. Raises InputError."""
    from rackmodel.mapper.in_order import read_goals

    if text is not None:
        read_goals(text)
    return text


def framework(text: str | None) -> str | None:
    """Check a framework's name. Raises InputError."""
    from rackmodel.errors import InputError
    from rackmodel.report.flags import FRAMEWORKS

    if text is not None and text not in FRAMEWORKS:
        raise InputError(f"no framework called '{text}'", path="--flags", known=FRAMEWORKS, given=text)
    return text


def limits(said: Sequence[str] | None) -> dict[str, str]:
    """'power=5 MW' → {'power': '5 MW'}. Raises InputError for one without a value, and for one that is there twice."""
    from rackmodel.errors import InputError

    found: dict[str, str] = {}
    for text in said or ():
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals:
            raise InputError(f"'{text}': want name=value", path="--limit")
        if name in found:
            raise InputError(f"two limits of {name}: keep one", path="--limit")
        found[name] = value
    return found


def figures(text: str | None) -> tuple[str, ...]:
    """'latency,energy' → ('latency', 'energy')."""
    return () if text is None else tuple(name.strip() for name in text.split(","))


def words_of(text: str, option: str) -> tuple[str, ...]:
    """'fp8, bf16' → (fp8, bf16). Raises InputError where one is missing beside a comma, or there twice."""
    from rackmodel.errors import InputError, check_once

    found = [word.strip() for word in text.split(",")] if text else []
    if not all(found):
        raise InputError(f"'{text}': a word is missing beside a comma", path=option)
    check_once(found, option)
    return tuple(found)


def time_limit(text: str | None) -> float | None:
    """'30 s', or '30', in seconds. Raises InputError."""
    if text is None:
        return None
    plain = text.strip().replace(".", "", 1).isdigit()
    return quantity(f"{text} s" if plain else text, "second", "--time-limit")


def quantity(text: str, unit: str, option: str) -> float:
    """A positive quantity of an option in SI. Raises InputError."""
    from rackmodel.errors import InputError
    from rackmodel.units import parse_quantity

    try:
        value = parse_quantity(text.strip(), unit)
    except ValueError as problem:
        raise InputError(str(problem), path=option)
    if not value > 0:
        raise InputError(f"'{text}' must be positive", path=option)
    return value


def folder(path: Path | None) -> Path | None:
    """The output folder, made if need be. Raises OutputError where it cannot be written."""
    from rackmodel.report.files import make_folder

    return None if path is None else make_folder(path)


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a line on stdout or stderr, in the characters that it has (typer's own would send UTF-8 to an ASCII terminal)."""
    print(text, end="\n" if nl else "", file=sys.stderr if err else sys.stdout)


def print_json(data: Any) -> None:
    """JSON on stdout. Raises NotFiniteError for NaN and infinity, which JSON has not."""
    from rackmodel.report.finite import finite

    echo(json.dumps(finite(data), indent=1, allow_nan=False, default=float))


# -- a whole run -------------------------------------------------------------------------------------------------------

_RATE = re.compile(r"^\s*(\S+)\s+per\s+([A-Za-z_]\w*)-([A-Za-z]+)\s*$")
_BETWEEN = re.compile(r"^\s*(.+?)\s+per\s+([A-Za-z_]\w*)\s*$")


@dataclass(frozen=True)
class RunWords:
    """The options of a run, read but not yet joined with a result. failures: (mean seconds between two, of which level)."""

    tokens: float | None
    steps: int | None
    interval_s: float | None
    storage_bytes_per_s: float
    failures: tuple[float, str] | None
    restart_s: float | None


def run_words(
    tokens: str | None, steps: int | None, checkpoint: str | None, storage: str | None, failures: str | None, restart: str | None
) -> RunWords | None:
    """What a run's options say; None where none is given. Raises InputError before anything is searched."""
    from rackmodel.errors import InputError

    said = {"--checkpoint": checkpoint, "--storage": storage, "--failures": failures, "--restart": restart}
    if tokens is None and steps is None:
        for option, text in said.items():
            if text is not None:
                raise InputError("this is of a whole run: say --tokens or --steps too", path=option)
        return None
    if tokens is not None and steps is not None:
        raise InputError("--tokens or --steps, not both", path="--steps")
    return RunWords(
        None if tokens is None else quantity(tokens, "", "--tokens"),
        steps,
        None if checkpoint is None else 0.0 if checkpoint == "optimal" else quantity(checkpoint, "second", "--checkpoint"),
        float("inf") if storage is None else quantity(storage, "byte/second", "--storage"),
        None if failures is None else _between(failures),
        None if restart is None else quantity(restart, "second", "--restart"),
    )


def _between(text: str) -> tuple[float, str]:
    """'2e-5 per accelerator-hour' → (1.8e8 s, 'accelerator'); '50000 h per node' → (1.8e8 s, 'node'). Raises InputError."""
    from rackmodel.errors import InputError

    rate, between = _RATE.match(text), _BETWEEN.match(text)
    if rate:
        return quantity(f"1 {rate[3]}", "second", "--failures") / quantity(rate[1], "", "--failures"), rate[2]
    if between:
        return quantity(between[1], "second", "--failures"), between[2]
    raise InputError(f"'{text}': want '2e-5 per accelerator-hour', or a time between failures: '50000 h per node'", path="--failures")


def make_run(words: RunWords, result: Result, inputs: Inputs) -> Run:
    """The whole run of a result. Raises InputError, InfeasibleError."""
    from rackmodel.carbon.run import RunRequest, machine_mtbf_s, steps_of, whole_run
    from rackmodel.inputs.carbon_tables import grids_of
    from rackmodel.results import rates_of

    machine, workload = inputs.architecture, inputs.workload
    steps = words.steps if words.tokens is None else steps_of(words.tokens, workload)
    assert steps is not None
    mtbf = machine_mtbf_s(*words.failures, machine, result.mapping.accelerators) if words.failures else float("inf")
    asked = RunRequest(steps, words.interval_s, words.storage_bytes_per_s, mtbf, words.restart_s)
    table = grids_of(machine) if machine.site is not None else None
    run = whole_run(result, workload, asked, site=machine.site, table=table)
    rates = rates_of(machine)
    return run if rates is None else replace(run, carbon=rates.of(run.total.joules, run.total.seconds))


def print_run(run: Run) -> None:
    """A run in a few lines: how long, how much, and what each part takes."""
    from rich.table import Table

    from rackmodel.report.beside import run_carbon, run_lines, run_table
    from rackmodel.report.tables import wrapped

    data = run.to_dict()
    for line in wrapped(run_lines(data)):
        echo(line)
    heads, rows = run_table(data)
    table = Table(box=None, pad_edge=False)
    for head in heads:
        table.add_column(head, justify="right" if head else "left")
    for row in rows:
        table.add_row(*(words for words, _ in row))
    print_table(table)
    for line in wrapped(run_carbon(data)):
        echo(line)


def print_table(table: Any) -> None:
    """A table as the other reports print it."""
    from rackmodel.report.tables import console

    console().print(table)


# -- launch flags and fronts -------------------------------------------------------------------------------------------


def make_launch(name: str, result: Result, inputs: Inputs) -> Launch:
    """The arguments that start a result's mapping. Raises InputError."""
    from rackmodel.inputs import read_profile
    from rackmodel.report.flags import launch_flags

    return launch_flags(name, inputs.workload, result.mapping, read_profile(result.mapping.profile))


def print_launch(launch: Launch) -> None:
    """The arguments, ready for a shell."""
    echo(f"launch flags for {launch.framework}:")
    for line in launch.lines():
        echo(line)


def write_launch(launch: Launch, where: Path) -> list[Path]:
    """The arguments, and the file that belongs to them."""
    from rackmodel.report.files import write_whole

    texts = {f"{launch.framework}.txt": "\n".join(launch.lines()) + "\n"}
    if launch.config_name:
        texts[launch.config_name] = launch.config
    return [write_whole(where / name, text) for name, text in texts.items()]


FRONT_SHOWN, FRONT_WIDE = 12, 4
"""Mappings and figures of a front that are printed: of more figures those that were asked for; pareto.csv has all."""


def _some_of(front: Mapping[str, Any], whole: bool) -> list[int]:
    """Which mappings of a front are printed: all, or the least in every figure and others at equal steps between."""
    from rackmodel.report.beside import asked_columns

    points = front["points"]
    every = range(len(points))
    if whole or len(points) <= FRONT_SHOWN:
        return [*every]
    least = [min(every, key=lambda k, key=key: points[k][key]) for key in asked_columns(front)]  # type: ignore[misc]
    steps = FRONT_SHOWN - len(least) - 1
    return sorted({*least, *(round(k * (len(points) - 1) / steps) for k in range(steps + 1))})


def print_front(front: Mapping[str, Any], *, whole: bool = False) -> None:
    """The Pareto front as a table, by ascending first figure. front: as report.beside has it · whole: every mapping of it, else some where
    they are many."""
    from rich.table import Table

    from rackmodel.report.beside import asked_columns
    from rackmodel.report.tables import amount

    points, columns = front["points"], asked_columns(front)
    if len(columns) > FRONT_WIDE:
        columns = {key: said for key, said in columns.items() if said[0] in front["figures"]}
    title = f"Pareto front, {front['status']}: {len(points)} mapping{'s' if len(points) > 1 else ''}"
    table = Table(box=None, pad_edge=False, title=title, title_justify="left")
    for head in ("#", "mapping", *(name for name, _ in columns.values())):
        table.add_column(head, justify="left" if head == "mapping" else "right", no_wrap=head != "mapping")
    some = _some_of(front, whole)
    for place in some:
        shown = [amount(points[place][key], unit) for key, (_, unit) in columns.items()]
        table.add_row(str(place + 1), points[place]["mapping"], *shown)
    print_table(table)
    if len(some) < len(points):
        echo(f"{len(points) - len(some)} more: -v prints them, -o DIR writes all to pareto.csv")


def write_front(results: Sequence[Result], front: Mapping[str, Any], where: Path) -> list[Path]:
    """pareto.csv, its last column the front's status, the front as points with its line, and the mapping of each (of the first 1,000).
    front: of the results, as report.beside has it; the first two of its figures are the chart's axes."""
    from rackmodel.report.beside import MOST_POINTS, asked_columns
    from rackmodel.report.charts import save_chart
    from rackmodel.report.files import csv_text, write_whole
    from rackmodel.report.front import front_chart

    columns, asked, status = asked_columns(front), front["figures"], front["status"]
    numbered = list(enumerate(front["points"], start=1))
    table = [[k, point["mapping"], *(point[key] for key in columns), status] for k, point in numbered]
    path = write_whole(where / "pareto.csv", csv_text(["number", "mapping", *columns, "status"], table))
    known = {name: (key, unit) for key, (name, unit) in columns.items()}
    first, second, *others = dict.fromkeys((*asked, *known))
    third = next((name for name in others if name in asked), None)
    axes = dict(zip("xyz", (first, second, *([third] if third else [])), strict=False))
    told = [{axis: point[known[name][0]] for axis, name in axes.items()} for _, point in numbered]
    rows = [{"number": k, "mapping": point["mapping"], **own} for (k, point), own in zip(numbered, told, strict=True)]
    title = f"Pareto front ({status}), {results[0].workload} on {results[0].architecture}"
    line = f"{len(results)} mappings, numbers as in pareto.csv{'' if third else '; grey: better in another figure alone'}"
    figures = [(name, known[name][1]) for name in axes.values()]
    chart = front_chart(rows, figures[0], figures[1], title, line, *figures[2:])
    mappings = [write_mapping(one, where / f"pareto{number}.mapping.yaml") for number, one in enumerate(results[:MOST_POINTS], start=1)]
    return [path, *save_chart(chart, where, "pareto"), *mappings]


def beside(run: Run | None, launch: Launch | None, front: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What stands beside a result in its file and on its page, of what was asked for. front: as report.beside has it."""
    from rackmodel.report.beside import launch_data

    found = {"front": front, "run": run and run.to_dict(), "launch": launch and launch_data(launch)}
    return {name: data for name, data in found.items() if data}


def said(**options: Any) -> list[str]:
    """Options that were given, as the command line says them: flags=None, tokens='300e9' → ['--tokens', '300e9']."""
    return [part for name, value in options.items() if value is not None for part in (f"--{name}", str(value))]


def write_trace(result: Result, inputs: Inputs, profile: str | None, path: Path) -> list[Path]:
    """The schedule of a result's step. Raises InputError, OutputError."""
    from rackmodel import api
    from rackmodel.report.files import make_folder, write_whole
    from rackmodel.report.trace import trace_json

    make_folder(path.parent)
    return [write_whole(path, trace_json(api.step_of(inputs, result.mapping, profile=profile)))]


def write_mapping(result: Result, path: Path) -> Path:
    """Write a mapping file that `evaluate` prices to the same figures. Raises OutputError."""
    from rackmodel.report.files import write_whole
    from rackmodel.report.mapping_file import mapping_yaml

    return write_whole(path, mapping_yaml(result))


def write_results(
    results: Sequence[Result],
    where: Path,
    names: Sequence[str] = (),
    asked: Sequence[Mapping[str, Any]] = (),
    beside: Mapping[str, Any] | None = None,
) -> list[Path]:
    """Mapping, ledger and answer of each result, the charts of all and a page with everything, in one folder. names: what the files of
    each begin with, where there are several (default: its mapper) · asked: the inputs of each, which later commands ask again · beside:
    front, run and launch, where there is one result."""
    from rackmodel import __version__
    from rackmodel.report.charts import energy_breakdown, latency_breakdown, save_chart
    from rackmodel.report.files import stems_of, write_whole
    from rackmodel.report.result_page import result_page
    from rackmodel.report.saved import saved, saved_json
    from rackmodel.report.tables import ledger_csv

    written, asked = [], asked or [{}] * len(results)
    drawn = [_sketched(result, own) | dict(beside or {}) for result, own in zip(results, asked, strict=True)]
    stems = [f"{stem}." if len(results) > 1 else "" for stem in stems_of(names or [result.mapper for result in results])]
    for result, stem, own, more in zip(results, stems, asked, drawn, strict=True):
        written.append(write_mapping(result, where / f"{stem}mapping.yaml"))
        written.append(write_whole(where / f"{stem}ledger.csv", ledger_csv(result.ledger)))
        written.append(write_whole(where / f"{stem}result.json", saved_json(result, own, more, where)))
    charts = {"energy": energy_breakdown(results, ("component", "level")), "latency": latency_breakdown(results)}
    for stem, chart in charts.items():
        written += save_chart(chart, where, stem)
    for result, stem in zip(results, stems, strict=True):
        written += _write_nests(result, where, stem)
    page = result_page([saved(*each) for each in zip(results, asked, drawn, strict=True)], __version__)
    written.append(write_whole(where / "index.html", page))
    return written


def _sketched(result: Result, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What sketches of a result are drawn from beside its ledger: when its stages run, and its operations. asked: {} if not known."""
    from rackmodel import api
    from rackmodel.inputs import read_inputs
    from rackmodel.report.sketch_data import graph_of
    from rackmodel.report.timeline import timeline_of

    if not asked:
        return {}
    third = {key: asked[key] for key in ("mapper", "mapping") if asked.get(key)}
    inputs = read_inputs(asked["architecture"], asked["workload"], **third, sets=asked.get("sets") or ())
    step = api.step_of(inputs, result.mapping, profile=asked.get("profile"))
    return {"timeline": timeline_of(step), "graph": graph_of(inputs.workload, result.mapping)}


def _write_nests(result: Result, where: Path, stem: str) -> list[Path]:
    """The loop nests of a result as text and as a picture of what each waits for; nothing where it has none."""
    from rackmodel.report.charts import save_chart, study_chart
    from rackmodel.report.files import write_whole
    from rackmodel.report.nests import all_nests, time_rows

    nests = result.nests
    if not nests:
        return []
    path = write_whole(where / f"{stem}nests.txt", all_nests(nests))
    chart = study_chart(
        time_rows(nests),
        kind="line",
        x="contraction",
        y="seconds",
        title=f"Time of each level, {result.workload} on {result.architecture}",
        log=True,
    )
    return [path, *save_chart(chart, where, f"{stem}nests")]


def tell(paths: Sequence[Path]) -> None:
    """Name the files that were written, on stderr; the first of very many."""
    if paths:
        more = f" and {len(paths) - MOST_TOLD} more" if len(paths) > MOST_TOLD else ""
        echo(f"wrote {', '.join(path.name for path in paths[:MOST_TOLD])}{more} in {paths[0].parent}", err=True)
