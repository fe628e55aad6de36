"""Mappings that are given, priced with objects: one with its ledger, or many at once.

A machine, a workload and a mapping → the exact step of the mapping (cost/step/exact) → its result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rackmodel.arrays import Array
from rackmodel.cost.step.columns import Columns
from rackmodel.cost.step.exact import ExactStep, Structure
from rackmodel.cost.step.group import Job
from rackmodel.cost.step.ledger import second_watts
from rackmodel.cost.step.occupancy import wired_of
from rackmodel.errors import InputError, Where
from rackmodel.inputs import read_profile
from rackmodel.mapper.mapping import from_mapping, parked
from rackmodel.mapper.mapping_check import check_mapping, check_rates, hosts_of, left_out
from rackmodel.mapper.misfits import misfits
from rackmodel.mapper.nests.loop_nests import NestInside
from rackmodel.mapper.pooled import on_pools
from rackmodel.model.architecture import Architecture
from rackmodel.model.mapping import InsideSpec, MappingSpec
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.result import Result
from rackmodel.model.wired import with_wired_weights
from rackmodel.model.workload import Workload
from rackmodel.nests.objective import NestObjective
from rackmodel.results import nests_of, result_of
from rackmodel.setting import settings_of


def evaluate_mapping(
    architecture: Architecture, workload: Workload, mapping: MappingSpec, *, profile: str | ProfileSpec | None = None
) -> Result:
    """Price one mapping, with its ledger."""
    exact, mapping = exact_step(architecture, workload, mapping, profile)
    held = exact.fullest[1]  # bytes by what holds them on the device that holds most
    warnings = (*misfits(exact, held), left_out(exact.job.workload, mapping))
    return result_of(exact, held, mapping, None, mapping.name, tuple(said for said in warnings if said))


def exact_step(
    architecture: Architecture, workload: Workload, mapping: MappingSpec, profile: str | ProfileSpec | None
) -> tuple[ExactStep, MappingSpec]:
    """A mapping's step, and the mapping with what is kept at a host offloaded. Raises InputError."""
    workload = running_on(architecture, workload)
    architecture, mapping = _checked(architecture, workload, mapping)
    columns, structure, step = from_mapping(mapping, workload)
    structure = on_pools(architecture, structure, columns, step.pools)
    exact = ExactStep(_job(architecture, workload, mapping, profile_of(profile, mapping.profile)), structure, columns)
    _check_nests(exact, mapping)
    return exact, mapping


def _checked(architecture: Architecture, workload: Workload, mapping: MappingSpec) -> tuple[Architecture, MappingSpec]:
    """The machine with the accelerators of a mapping, and the mapping with what is kept at a host offloaded. Raises InputError."""
    machine = architecture.using(mapping.accelerators)
    mapping = parked(machine, workload, mapping, hosts_of(machine))
    check_mapping(architecture, workload, mapping)
    return machine, mapping


def _job(architecture: Architecture, workload: Workload, mapping: MappingSpec, profile: ProfileSpec) -> Job:
    inside = NestInside(InsideSpec(model="loopnest"), NestObjective("latency"), given=mapping.nests) if mapping.nests else None
    algorithms = tuple(mapping.step.algorithms) if mapping.step is not None else ("ring",)
    host = mapping.step.host if mapping.step is not None else None
    setting, pools = settings_of(architecture, workload, profile, algorithms, inside)
    return Job(setting=setting, workload=workload, profile=profile, host=host, pools=pools)


def _check_nests(exact: ExactStep, mapping: MappingSpec) -> None:
    """Raise InputError for the nest of a contraction that the step does not have."""
    known = nests_of(exact) if mapping.nests else {}
    for name in mapping.nests:
        if name not in known:
            raise InputError(f"no contraction '{name}'", path=f"nests.{name}", known=list(known), given=name)


@dataclass(frozen=True)
class Prices:
    """N mappings priced at once: [n] seconds, joules, and bytes on the fullest accelerator, in the order given."""

    latency_s: Array
    energy_j: Array
    memory_bytes: Array


def price(architecture: Architecture, workload: Workload, mappings: Sequence[MappingSpec], *, profile: str | None = None) -> Prices:
    """Price mappings at once: those of one structure run in the same arrays. Exact, without ledgers."""
    workload = running_on(architecture, workload)
    found = np.zeros((3, len(mappings)))
    alike: dict[object, list[tuple[int, MappingSpec, Columns, Structure]]] = {}
    for number, mapping in enumerate(_checked(architecture, workload, mapping)[1] for mapping in mappings):
        columns, structure, step = from_mapping(mapping, workload)
        structure = on_pools(architecture.using(mapping.accelerators), structure, columns, step.pools)
        plans = tuple((x, plan.key) for x, plan in structure.parts)
        key = (plans, structure.cut.counts.tobytes(), structure.schedule, structure.micro_batches, structure.overlap, structure.offload)
        rest = (tuple(step.algorithms), step.host, mapping.accelerators, mapping.profile, repr(mapping.nests), structure.stages)
        alike.setdefault((*key, *rest), []).append((number, mapping, columns, structure))
    for same in alike.values():
        _, first, _, structure = same[0]
        machine = architecture.using(first.accelerators)
        joined = Columns.join([columns for _, _, columns, _ in same])
        exact = ExactStep(_job(machine, workload, first, profile_of(profile, first.profile)), structure, joined)
        _check_nests(exact, first)
        numbers = [number for number, *_ in same]
        seconds = exact.seconds()
        bound = exact.bound()
        found[:, numbers] = (
            seconds,
            bound.joules[0, :, 0] + second_watts(exact.job.setting, exact.job.pools) * seconds + exact.drawn_longer_j,
            bound.memory[0, :, 0],
        )
    return Prices(*found)


def running_on(architecture: Architecture, workload: Workload) -> Workload:
    """The workload as a machine runs it: weights that are in its wires are of 0 bit. Raises InputError where those of some of its
    accelerators are, for training, which would change them, and for a product too wide for the machine."""
    check_rates(architecture, workload)
    wired = [pool.accelerator.name for pool in architecture.pools if wired_of(pool) is not None]
    if wired and len(architecture.pools) > 1:
        raise InputError(f"weights in the wires of {wired[0]}, beside accelerators of another kind, are not priced", path="tree")
    if wired and workload.backward:
        raise InputError(f"the weights of '{wired[0]}' are wires, which no training changes: --set phases='[forward]'", path="phases")
    return with_wired_weights(workload) if wired else workload


def profile_of(asked: str | ProfileSpec | None, said: str | None) -> ProfileSpec:
    """The profile asked for, else the one the file says, else ideal."""
    if isinstance(asked, ProfileSpec):
        return asked
    try:
        return read_profile(asked if asked is not None else said or "ideal")
    except InputError as problem:
        raise problem.at(Where(f"--profile {asked}") if asked is not None else None, "" if asked is not None else "profile")
