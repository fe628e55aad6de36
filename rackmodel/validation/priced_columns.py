"""Columns of training cases whose layers are priced: tasks of all of them at once, where their profiles differ in numbers, in what runs
beside what and in what the host takes; windows, lanes and passes for each of the profiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rackmodel.cost.inside.gpu import gpu_of, unmeasured
from rackmodel.cost.inside.kernels import KernelPricer
from rackmodel.cost.inside.roofline import LocalPricer
from rackmodel.cost.step.exact import ExactStep
from rackmodel.cost.step.exposure import Asked, TaskSeconds
from rackmodel.cost.step.group import Job
from rackmodel.cost.step.tasks.beside import BesideProfiles
from rackmodel.cost.step.tasks.layers import LayerPricer
from rackmodel.cost.step.tasks.pace import TrainedSteps, pace_of
from rackmodel.cost.step.tasks.pricer import Pricer
from rackmodel.model.architecture import Architecture
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.profile_columns import as_columns, joined, one_library, task_facts
from rackmodel.model.resources import Kernels, width
from rackmodel.model.room import room_of
from rackmodel.model.schedules import SPLIT
from rackmodel.model.workload import Workload
from rackmodel.setting import local_pricer, setting_of
from rackmodel.validation.profile_columns import like, profile_of, together
from rackmodel.validation.sized import SizedColumns
from rackmodel.validation.structures import macs_of, shape_of, structure_of, work_of
from rackmodel.validation.timed import PricedColumns, StructurePart
from rackmodel.validation.training import StepKey, TrainingCase
from rackmodel.validation.training_models import layers_of
from rackmodel.validation.unknowns import Varied, settled, varied


@dataclass(frozen=True, kw_only=True)
class ProfileColumns:
    """Columns of one profile. group: of its cases · every: columns of the group, first each one, then those with an interval again for
    each end of each fact · said: the profile as its file says it · profile: with the ends of its ranges · shown: cases that have an
    interval."""

    group: SizedColumns
    cases: tuple[TrainingCase, ...]
    every: tuple[int, ...]
    said: ProfileSpec
    profile: ProfileSpec
    ranges: Varied
    shown: int

    @classmethod
    def of(cls, key: StepKey, machine: Architecture, group: SizedColumns, cases: Sequence[TrainingCase]) -> ProfileColumns:
        """Of cases of profiles that are like each other: first those whose intervals are asked for, then the others."""
        mine = tuple(cases[number] for number in group.numbers)
        n, shown = len(mine), sum(not case.brief for case in mine)
        said = profile_of(mine[0].key.profile, key.sets)
        ranges = varied(machine, said, n, shown) if shown else settled(said)
        every = [*range(n), *(list(range(shown)) * (ranges.blocks - 1))]
        profile = together(ranges.profile, [profile_of(mine[column].key.profile, key.sets) for column in every])
        return cls(group=group, cases=mine, every=tuple(every), said=said, profile=profile, ranges=ranges, shown=shown)

    def steps(self, machine: Architecture) -> TrainedSteps:
        """What their pace depends on."""
        wide, inside = self.group.pick(self.every), _inside(self.profile, self.ranges.facts)
        return TrainedSteps(inside=inside, architecture=machine, workload=wide.workload(), profile=self.profile, columns=len(wide))


def priced_columns(key: StepKey, machine: Architecture, group: SizedColumns, cases: Sequence[TrainingCase]) -> Iterator[PricedColumns]:
    """Columns beside each other, those of one profile at a time."""
    apart: dict[str, list[int]] = {}
    for column, number in enumerate(group.numbers):
        apart.setdefault(like(cases[number].key.profile, key.sets), []).append(column)
    if len(apart) == 1:
        own = ProfileColumns.of(key, machine, group, cases)
        yield _priced(key, machine, own, pace_of(own.steps(machine)), None)
        return
    each = [ProfileColumns.of(key, machine, group.pick(columns), cases) for columns in apart.values()]
    picked = [[columns[place] for place in own.every] for own, columns in zip(each, apart.values(), strict=True)]
    (shared, pace), first = _shared(key, machine, each, group.pick([column for own in picked for column in own])), 0
    for own in each:
        which = np.arange(first, first + len(own.every))
        first += len(own.every)
        yield _priced(key, machine, own, pace if isinstance(pace, float) else pace[which], replace(shared, which=which))


def _shared(key: StepKey, machine: Architecture, each: Sequence[ProfileColumns], wide: SizedColumns) -> tuple[BesideProfiles, Any]:
    """Where tasks of all columns are priced, and their pace. wide: these, one profile's after another's."""
    counts = [len(own.every) for own in each]
    profile, said = as_columns([own.profile for own in each], counts), [own.said for own in each]
    gpu = gpu_of(machine) if any(own.ranges.facts is not None for own in each) else None
    facts = None if gpu is None else joined([own.ranges.facts or gpu.facts for own in each], counts)
    workload, inside = wide.workload(), _inside(profile, facts)
    alike = {section.name for section in workload.sections if one_library(said) and _alike(said, section.workload)}
    steps = TrainedSteps(inside=inside, architecture=machine, workload=workload, profile=profile, columns=sum(counts))
    pace = pace_of(steps, [own.steps(machine) for own in each], alike)
    setting = setting_of(machine, profile, key.algorithms, _at(inside, pace))
    called = np.repeat([own.profile.collectives is not None for own in each], counts)
    pricer = Pricer(replace(setting, called=called), workload, wide.plans[0], wide.columns, profile.buckets)
    return BesideProfiles(LayerPricer(pricer, workload, profile), np.arange(sum(counts)), alike), pace


def _alike(profiles: Sequence[ProfileSpec], workload: Workload) -> bool:
    """Whether profiles say the same of what a section's tasks take, but for numbers."""
    kinds = {op.kind.name for op in workload.ops.values()}
    return len({task_facts(profile, kinds) for profile in profiles}) == 1


def _inside(profile: ProfileSpec, facts: Kernels | None) -> LocalPricer:
    """What prices operations. facts: of kernels, in place of the machine's."""
    inside = local_pricer(profile)
    return replace(inside, facts=facts) if facts is not None and isinstance(inside, KernelPricer) else inside


def _at(inside: LocalPricer, pace: Any) -> LocalPricer:
    return replace(inside, pace=pace) if isinstance(inside, KernelPricer) else inside


def _priced(key: StepKey, machine: Architecture, own: ProfileColumns, pace: Any, beside: BesideProfiles | None) -> PricedColumns:
    """Columns of one profile. pace: of their steps · beside: where their tasks are priced, None = by themselves."""
    group, mine, shown, profile = own.group, own.cases, own.shown, own.profile
    n = len(mine)
    setting = setting_of(machine, profile, key.algorithms, _at(_inside(profile, own.ranges.facts), pace))
    same: dict[object, list[int]] = {}
    for column, case in enumerate(mine):
        same.setdefault((group.plans[column].key, shape_of(case)), []).append(column)
    structures = [(structure_of(group.workloads[some[0]], group.plans[some[0]], mine[some[0]]), np.array(some)) for some in same.values()]
    wide = group.pick(own.every)
    job, known = Job(setting=setting, workload=wide.workload(), profile=profile), dict[tuple[object, bool, bool], TaskSeconds]()
    pricer = Pricer(setting, job.workload, wide.plans[0], wide.columns, profile.buckets)
    layers = LayerPricer(pricer, job.workload, profile, beside=beside)
    sides = {together: layers.of_steps(together=together) for together in (False, True)}
    at_peak = (f"{machine.name} states no measured kernels: peak rates",) if unmeasured(own.said, machine) else ()
    parts = []
    for (structure, notes), which in structures:
        side = sides[structure.cut.stages == 1]
        told = structure.parts[0][1].key, side.together, structure.schedule in SPLIT
        if told not in known:
            known[told] = TaskSeconds(ExactStep(job, structure, wide.columns, side), shown)
        detailed = which[which < shown]
        ends = (n + np.arange(own.ranges.blocks - 1)[:, None] * shown + detailed).reshape(-1)
        asked = Asked(known[told], structure, np.concatenate([which, ends]), len(detailed))
        parts.append(StructurePart(asked, which, known[told].step.bytes_of(structure, which), (*notes, *at_peak)))
    models = {id(model): model for model in group.workloads}
    macs = {known_as: [macs_of(section.workload) for section in model.sections] for known_as, model in models.items()}
    each = zip(group.workloads, mine, strict=True)
    work = tuple(work_of(model, macs[id(model)], layers_of(case), case) for model, case in each)
    room, peak = room_of(machine, profile).limit or 0.0, machine.peak_flop_per_s(width(key.model.width)) / machine.used
    return PricedColumns(cases=mine, parts=tuple(parts), ranges=own.ranges, work=work, capacity=room, peak=peak)
