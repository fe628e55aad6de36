"""A whole run of a step: what its options say, and how it is told."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rackmodel.cli.options import quantity
from rackmodel.cli.printing import echo, print_table
from rackmodel.errors import InputError

if TYPE_CHECKING:
    from rackmodel.carbon.run import Run
    from rackmodel.inputs import Inputs
    from rackmodel.model.result import Result

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
        None if checkpoint is None else 0.0 if checkpoint == "optimal" else quantity(checkpoint, "second", "--checkpoint", "2 h"),
        float("inf") if storage is None else quantity(storage, "byte/second", "--storage"),
        None if failures is None else _between(failures),
        None if restart is None else quantity(restart, "second", "--restart", "10 min"),
    )


def _between(text: str) -> tuple[float, str]:
    """'2e-5 per accelerator-hour' → (1.8e8 s, 'accelerator'); '50000 h per node' → (1.8e8 s, 'node'). Raises InputError."""
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
