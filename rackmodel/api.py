"""The doors: search, compare and evaluate by name or path, with the same overrides as the command line; with objects they are those of
`searches` and `evaluations`, which are handed on.

import rackmodel as rm
results = rm.compare("rack_paper", "ffn", ["data", "tensor"], sets=["accelerators=32"])
print(results[0].latency_s, results[0].ledger.group(["component"]))
results = rm.compare("cs2:16,dgx_a100:512", "gpt3_175b", ["streaming@cs2", "megatron@dgx_a100"])
print([(result.architecture, result.latency_s, result.limited_by) for result in results])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rackmodel.carbon.job import Usage
from rackmodel.cost.step.exact import ExactStep
from rackmodel.errors import InputError, Where
from rackmodel.evaluations import Prices, evaluate_mapping, exact_step, price, profile_of
from rackmodel.inputs import Inputs, read_inputs, read_profile
from rackmodel.inputs.comparison import Cell, cells, saying
from rackmodel.model.mapping import MappingSpec
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.result import Result
from rackmodel.searches import Answer, mapspace, objective_of, search_mapper
from rackmodel.watch import UNWATCHED, Watch

__all__ = [
    "Answer",
    "Cell",
    "Prices",
    "cells",
    "compare",
    "evaluate",
    "evaluate_mapping",
    "mapspace",
    "objective_of",
    "price",
    "search",
    "search_cell",
    "search_mapper",
    "step_of",
]


def compare(
    architecture: str | Sequence[str],
    workload: str,
    mappers: Sequence[str],
    *,
    sets: Sequence[str] = (),
    minimize: str | None = None,
    profile: str | None = None,
    watch: Watch = UNWATCHED,
) -> list[Result]:
    """The best mapping of each mapper on each machine, in the order of `cells`. watch: of each search. Raises InputError,
    InfeasibleError."""
    every = cells(architecture, workload, mappers, sets=sets)
    return [search_cell(cell, minimize=minimize, profile=profile, watch=watch.again()) for cell in every]


def search_cell(
    cell: Cell, *, minimize: str | None = None, profile: str | None = None, usage: Usage | None = None, watch: Watch = UNWATCHED
) -> Result:
    """The best mapping of one cell of a comparison. usage: of the machine, for objectives of carbon and money. Raises InputError,
    InfeasibleError."""
    given, mapper = cell.inputs, cell.inputs.mapper
    assert mapper is not None
    changed = _changed(given, profile, mapper.profile)
    try:
        return search_mapper(
            given.architecture, given.workload, mapper, minimize=minimize, profile=changed, usage=usage, watch=watch
        ).result
    except InputError as problem:
        hint = "" if cell.alone else f" (on {cell.machine}; MAPPER@ARCH runs a mapper on one machine)"
        raise saying(cell.inputs.place(problem, profile), hint)


def search(
    architecture: str,
    workload: str,
    mapper: str = "auto",
    *,
    sets: Sequence[str] = (),
    minimize: str | None = None,
    profile: str | None = None,
    top: int = 1,
    limits: Mapping[str, float | str] | None = None,
    front: Sequence[str] = (),
    watch: Watch = UNWATCHED,
) -> Answer:
    """Search one mapper's space, by names or paths; the rest as `search_mapper`. sets: as the command line's --set ("gpu.count=4")."""
    inputs = read_inputs(architecture, workload, mapper=mapper, sets=sets)
    assert inputs.mapper is not None
    try:
        return search_mapper(
            inputs.architecture,
            inputs.workload,
            inputs.mapper,
            minimize=minimize,
            profile=_changed(inputs, profile, inputs.mapper.profile),
            top=top,
            limits=limits,
            front=front,
            watch=watch,
        )
    except InputError as problem:
        raise inputs.place(problem, profile)


def _changed(inputs: Inputs, asked: str | ProfileSpec | None, said: str | None) -> str | ProfileSpec | None:
    """The profile asked for, or read with the overrides that name it."""
    if not inputs.of_profile or isinstance(asked, ProfileSpec):  # one that was read has its overrides
        return asked
    return read_profile(profile_of(asked, said).name if asked is None else asked, inputs.of_profile)


def evaluate(architecture: str, workload: str, mapping: str, *, sets: Sequence[str] = (), profile: str | None = None) -> Result:
    """Price a mapping file. Raises InputError where it contradicts the workload or the machine."""
    inputs: Inputs = read_inputs(architecture, workload, mapping=mapping, sets=sets)
    assert inputs.mapping is not None
    said = any(one.partition("=")[0].strip() in ("accelerators", "arch.accelerators", "architecture.accelerators") for one in sets)
    if said and inputs.architecture.used != inputs.mapping.accelerators:
        fact = f"the mapping is of {inputs.mapping.accelerators} accelerators, not {inputs.architecture.used}"
        raise InputError(fact, where=Where("--set accelerators"))
    try:
        return evaluate_mapping(
            inputs.architecture, inputs.workload, inputs.mapping, profile=_changed(inputs, profile, inputs.mapping.profile)
        )
    except InputError as problem:
        raise inputs.place(problem, profile)


def step_of(inputs: Inputs, mapping: MappingSpec, *, profile: str | ProfileSpec | None = None) -> ExactStep:
    """A mapping on inputs that were read, as the clock takes it: what a trace is made of. Raises InputError."""
    return exact_step(inputs.architecture, inputs.workload, mapping, _changed(inputs, profile, mapping.profile))[0]
