"""Rows of single requests that one server answered: the run is simulated request by request (serving/trace), and each row compared.

A request gives seconds a token after the first (data set NAME) and to the first token (NAME_ttft); each run gives the means of both
(NAME_run, NAME_run_ttft), which single requests that swap places do not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rackmodel.errors import InfeasibleError, InputError
from rackmodel.inputs import read_profile
from rackmodel.serving.admission import Trace
from rackmodel.serving.offers import Service, Widths, engine_of
from rackmodel.serving.trace import RequestFigures, simulate
from rackmodel.validation.machine_files import machine_of
from rackmodel.validation.rows import PublishedRow
from rackmodel.validation.score import ScoredRow
from rackmodel.validation.serving_words import RankWords
from rackmodel.validation.words import Refused, look_up, words

QUANTITIES = {"": ("tpot_ms", "tpot_s"), "_ttft": ("ttft_ms", "ttft_s")}
"""What a data set's name ends with → the measured column, and the figure of a simulated request."""
WIDTH = "weights and caches as the model's, bf16: the rows do not say"


@dataclass(frozen=True)
class _Run:
    """What a run's rows share. sequences, budget: of one rank of attention data."""

    dataset: str
    gpu: str
    model: str
    engine: str
    tensor: int
    sequences: float
    budget: float

    @property
    def ranks(self) -> RankWords:
        """How the server dealt out requests and experts, which rows do not say."""
        return next((one for one in words().ranks if one.fits(self.gpu, self.model)), RankWords())


def request_rows(rows: Sequence[PublishedRow]) -> list[ScoredRow]:
    """Each row scored, or refused with why."""
    runs: dict[_Run, list[PublishedRow]] = {}
    for row in rows:
        runs.setdefault(_run(row), []).append(row)
    found: list[ScoredRow] = []
    for run, own in runs.items():
        try:
            found += _scored(run, sorted(own, key=lambda row: row.number("arrival_s") or 0.0))
        except (Refused, InputError, InfeasibleError) as problem:
            found += [ScoredRow(row.id, row.dataset, refused=str(problem)) for row in own]
    return found


def _run(row: PublishedRow) -> _Run:
    tensor = int(row.whole("tp") or 1)
    limits = [row.number(name) or 0.0 for name in ("max_num_seqs", "max_num_batched_tokens")]
    return _Run(row.dataset, row.text("gpu"), row.text("model"), row.text("engine").split(" ")[0], tensor, *limits)


def _scored(run: _Run, rows: Sequence[PublishedRow]) -> list[ScoredRow]:
    trace = Trace(
        arrival_s=np.array([row.number("arrival_s") or 0.0 for row in rows]),
        prompt=np.array([row.number("input_tokens") or 1.0 for row in rows]),
        output=np.array([row.number("output_tokens") or 1.0 for row in rows]),
    )
    figures = _simulated(run, trace)
    found = []
    for ending, (column, figure) in QUANTITIES.items():
        measured = np.array([(row.number(column) or 0.0) * 1e-3 for row in rows])
        predicted = getattr(figures, figure)
        there = (measured > 0) & (predicted > 0)
        for place in np.flatnonzero(there).tolist():
            found.append(_one(rows[place], ending, float(measured[place]), float(predicted[place]), run))
        if there.any():
            means = float(measured[there].mean()), float(predicted[there].mean())
            found.append(_one(rows[0], f"_run{ending}", *means, run))
    return found


def _simulated(run: _Run, trace: Trace) -> RequestFigures:
    said = words()
    machine = said.machine(run.gpu, run.dataset)
    model = said.served_model(run.model)
    profile = read_profile(look_up(said.engines, "engine", run.engine).profile)
    architecture = machine_of(*machine.named)
    sets = tuple(f"workload.sizes.{name}={value}" for name, value in model.sizes.items())
    service = Service(architecture, model.workload, sets, profile, 1.0, 1.0)
    server = engine_of(service, run.ranks.deployment(run.tensor), Widths())
    settings = {name: value for name, value in (("sequences", run.sequences), ("token_budget", run.budget)) if value}
    return simulate(server, trace, server.scheduled(1, settings), server.cache_tokens, held_by=server.held_tokens)


def _one(row: PublishedRow, ending: str, measured: float, predicted: float, run: _Run) -> ScoredRow:
    name = f"{row.dataset}{ending}"
    whole = f"{run.gpu} {run.model}" if ending.startswith("_run") else row.id
    return ScoredRow(whole, name, run.gpu, run.model, "s", measured, predicted, (WIDTH,))
