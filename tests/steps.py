"""One plan on some meshes, priced by the engine: a helper that keeps the tests of prices short."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.ledger import Ledger
from rackmodel.cost.step.bounds.memory import fullest_device
from rackmodel.cost.step.columns import Columns
from rackmodel.cost.step.cut import cut_by_counts, even_cut
from rackmodel.cost.step.exact import ExactStep, Structure
from rackmodel.cost.step.group import Job
from rackmodel.cost.step.ledger import second_watts, step_ledger
from rackmodel.cost.step.setting import Setting
from rackmodel.mapper.mapspace import build_mapspace
from rackmodel.mapper.objective import Objective
from rackmodel.mapper.search import Found, Question, search_space
from rackmodel.model.architecture import Architecture
from rackmodel.model.mapping import MapperSpec
from rackmodel.model.plan import Plan
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.workload import Workload
from tests.machines import SERIAL


@dataclass(frozen=True)
class Priced:
    """A priced step of n meshes: what a test asks of it."""

    step: ExactStep

    @cached_property
    def latency(self) -> NDArray[np.float64]:
        """[n] seconds, by the clock."""
        return self.step.seconds()

    @cached_property
    def energy(self) -> NDArray[np.float64]:
        """[n] joules with static power."""
        return self.step.bound().joules[0, :, 0] + second_watts(self.step.job.setting, self.step.job.pools) * self.latency

    @cached_property
    def memory(self) -> NDArray[np.float64]:
        """[n] bytes on the fullest accelerator."""
        return self.step.bound().memory[0, :, 0]

    def under(self, setting: Setting) -> Priced:
        """The same priced in another setting."""
        return Priced(ExactStep(replace(self.step.job, setting=setting), self.step.structure, self.step.columns))

    def alone(self, i: int) -> ExactStep:
        """The step of one mesh."""
        if len(self.step.columns) == 1:
            return self.step
        return ExactStep(self.step.job, self.step.structure, self.step.columns.pick(np.array([i])))

    def ledger(self, i: int = 0) -> Ledger:
        """The ledger of one mesh."""
        return step_ledger(self.alone(i))

    def held(self, i: int = 0) -> dict[str, float]:
        """What holds bytes on the fullest accelerator of one mesh."""
        one = self.alone(i)
        return fullest_device(one.figures, one.structure.cut, one.structure.schedule, one.columns.micro_batches)


def columns_of(plan: Plan, degrees: Sequence[Sequence[int]], strides: Sequence[Sequence[int]]) -> Columns:
    """Meshes of a plan without a pipeline. degrees, strides: [n][axes], the micro-batches last."""
    one = np.ones(len(degrees), dtype=np.int64)
    rows = np.array(degrees, dtype=np.int64)
    return Columns(
        axes=plan.axes,
        degrees=rows,
        strides=np.array(strides, dtype=np.int64),
        stages=one,
        stage_strides=one,
        micro_batch=one,
        micro_batches=rows[:, -1],
    )


def priced(architecture: Architecture, workload: Workload, plan: Plan, columns: Columns, profile: ProfileSpec = SERIAL) -> Priced:
    """The step of one plan on meshes of equally many micro-batches, without a pipeline over layers; everything that may overlap does."""
    sections = workload.sections
    repeats, layers = tuple(section.repeat for section in sections), tuple(section.layer for section in sections)
    staged = plan.stage_count > 1
    cut = cut_by_counts(np.eye(plan.stage_count, dtype=np.int64)) if staged else even_cut(repeats, layers, 1, 1)
    assert cut is not None
    structure = Structure(
        parts=((0, plan),) if staged else tuple((number, plan) for number in range(len(sections))),
        cut=cut,
        schedule="1f1b",
        micro_batches=int(columns.micro_batches[0]),
        overlap=(1, 1),
    )
    return Priced(ExactStep(Job(setting=Setting(architecture=architecture), workload=workload, profile=profile), structure, columns))


def price(
    architecture: Architecture,
    workload: Workload,
    plan: Plan,
    degrees: Sequence[Sequence[int]],
    strides: Sequence[Sequence[int]],
    profile: ProfileSpec = SERIAL,
) -> Priced:
    """The same on meshes given as numbers, the micro-batches last."""
    return priced(architecture, workload, plan, columns_of(plan, degrees, strides), profile)


def fixed_plans(mapper: MapperSpec, workload: Workload, accelerators: int) -> list[tuple[Plan, Columns]]:
    """Every plan of a mapper that leaves no layout open, with its meshes."""
    space = build_mapspace(mapper, workload, accelerators)
    assert not space.problems
    return [(variant.plan, group.columns) for group in space.groups for variant in group.variants]


def searched(
    architecture: Architecture, workload: Workload, mapper: MapperSpec, goal: str, profile: ProfileSpec = SERIAL, solver: str = "auto"
) -> Found:
    """What a search of a mapper's whole space finds with one solver of layouts."""
    job = Job(setting=Setting(architecture=architecture), workload=workload, profile=profile, host=mapper.host)
    space = build_mapspace(mapper.model_copy(update={"solver": solver}), workload, architecture.used)
    return search_space(job, space, Question(goal=Objective(goal)))
