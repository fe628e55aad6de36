"""Exact steps: the clock (clock, staged) run for mappings of one structure, and the ledger of one.

A structure is a plan, a cut, a schedule and a number of micro-batches; its mappings differ in degrees and strides.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.cost.step.bounds.bound import Sends, StepBound, compose
from rackmodel.cost.step.bounds.device_times import Layers, StepChoices
from rackmodel.cost.step.bounds.figures import HELD, Figures, Holding, figures
from rackmodel.cost.step.bounds.memory import device_memory, fullest_device, memory_of
from rackmodel.cost.step.clock.clock import Clock, StepJobs, seconds_together, step_seconds
from rackmodel.cost.step.clock.critical_path import Path, critical_path, paths_together
from rackmodel.cost.step.clock.staged import StagedJobs, staged_path, staged_seconds
from rackmodel.cost.step.columns import Columns
from rackmodel.cost.step.cut import Cut
from rackmodel.cost.step.group import Job, plan_of, staged_figures
from rackmodel.cost.step.hand_overs import Handed, HandOver, hand_over, in_places, sends_between, sends_of, summed
from rackmodel.cost.step.pools import across
from rackmodel.cost.step.tasks.drawn_longer import Slowed, drawn_longer
from rackmodel.cost.step.tasks.items import Item
from rackmodel.cost.step.tasks.jobs import LaneJob, Lanes, LayerPass, lanes_of, layer_passes, picked, stage_passes
from rackmodel.cost.step.tasks.layer_cost import LayerCost, LayerItems
from rackmodel.cost.step.tasks.layers import LayerPricer
from rackmodel.cost.step.tasks.link_arrays import LinkArrays
from rackmodel.cost.step.tasks.offload import host_of, offloaded
from rackmodel.cost.step.tasks.pricer import Pricer
from rackmodel.model.architecture import Architecture
from rackmodel.model.plan import Plan
from rackmodel.model.room import room_of
from rackmodel.model.schedules import SPLIT, runs_as
from rackmodel.model.workload import Section


@dataclass(frozen=True, kw_only=True)
class Structure:
    """What mappings have in common. parts: (number of the section, its plan) for every run of equal layers, in order · cut: of those ·
    overlap: (windows used, gathers and gradients beside compute) · offload: what is kept at the host · pools: where accelerators are of
    several kinds, the pool of each part · stages: and of each stage."""

    parts: tuple[tuple[int, Plan], ...]
    cut: Cut
    schedule: str
    micro_batches: int
    overlap: tuple[int, int]
    offload: tuple[str, ...] = ()
    pools: tuple[int, ...] = ()
    stages: tuple[int, ...] = ()


class ExactStep:
    """Mappings of one structure, priced. columns: n of them, of the same stages and micro-batches · layers: what prices layers on these
    columns, where it is there already (of accelerators of several kinds: a pricer for each)."""

    def __init__(
        self, job: Job, structure: Structure, columns: Columns, layers: LayerPricer | tuple[LayerPricer, ...] | None = None
    ) -> None:
        self.job, self.structure, self.columns = job, structure, columns
        if layers is None:
            layers = tuple(self._pricer(job.of_pool(pool)) for pool in range(max(1, len(job.pools))))
        self.of_pools = layers if isinstance(layers, tuple) else (layers,)
        self.layers, self.pricer = self.of_pools[0], self.of_pools[0].pricer
        self.lanes = lanes_of(job.profile.overlap, hide=bool(structure.overlap[1]))
        self.hide = structure.overlap[0] * (1.0 - job.profile.overlap.contention)
        self.split = structure.schedule in SPLIT
        self._hand_overs: dict[tuple[int, int, bool], HandOver] = {}

    def _pricer(self, job: Job) -> LayerPricer:
        """What prices layers on the accelerators of one kind."""
        pricer = Pricer(job.setting, job.workload, self.structure.parts[0][1], self.columns, job.profile.buckets)
        return LayerPricer(pricer, job.workload, job.profile, job.programs)

    def pool_of(self, part: int) -> int:
        """The pool whose accelerators run a part."""
        return self.structure.pools[part] if self.structure.pools else 0

    @cached_property
    def priced_layers(self) -> tuple[LayerItems, ...]:
        """Each part's layer, as the clock takes it."""
        if self.structure.offload:
            return self.costs
        return tuple(pricer.exact_layer(section, plan) for pricer, section, plan in self._parts())

    @cached_property
    def costs(self) -> tuple[LayerCost, ...]:
        """The same with their sums."""
        host = host_of(self.job.setting.architecture, self.job.host) if self.structure.offload else None
        found = []
        for pricer, section, plan in self._parts():
            cost = pricer.layer(section, plan)
            if host is not None and section.layer:
                updated = "optimizer" in self.job.workload.phases
                cost = offloaded(cost, self.structure.offload, host, self.columns, self.job.profile.host, updated=updated)
            found.append(cost)
        return tuple(found)

    def _parts(self) -> Iterator[tuple[LayerPricer, Section, Plan]]:
        """(what prices it, its section, its plan) of each part."""
        for part, (section, (_, plan)) in enumerate(zip(self.sections, self.structure.parts, strict=True)):
            yield self.of_pools[self.pool_of(part)], section, plan_of(section, plan, self.job.profile)

    @property
    def sections(self) -> tuple[Section, ...]:
        """The section of each part."""
        return tuple(self.job.workload.sections[number] for number, _ in self.structure.parts)

    @property
    def staged(self) -> bool:
        """Whether the cut is below the layer."""
        return self.structure.parts[0][1].stage_count > 1

    @cached_property
    def passes(self) -> tuple[dict[str, LayerPass], ...]:
        """Each part's passes; of a cut below the layer each stage's."""
        if self.staged:
            (cost,) = self.priced_layers
            timed, stages = [item.timed(self.hide) for item in cost.items], self.structure.cut.stages
            return stage_passes(timed, self.job.profile, self.lanes, layer=cost.section.layer, split=self.split, stages=stages)
        return tuple(self._passes(part, cost) for part, cost in enumerate(self.priced_layers))

    def _passes(self, part: int, cost: LayerItems) -> dict[str, LayerPass]:
        """Of one part. Remembered, but for what is offloaded, which is made for this step."""
        if self.structure.offload:
            return self._made(cost)
        return self.of_pools[self.pool_of(part)].clock_passes(cost, (self.structure.overlap, self.split), self._made)

    def _made(self, cost: LayerItems) -> dict[str, LayerPass]:
        timed = [item.timed(self.hide) for item in cost.items]
        return layer_passes(timed, self.job.profile, self.lanes, layer=cost.section.layer, split=self.split)

    @cached_property
    def longer(self) -> tuple[dict[int, Array], ...]:
        """Of each part: item → [n] times its seconds alone that collectives beside it add to them in a step, of one layer."""
        contention = self.job.profile.overlap.contention
        if not np.any(contention) or not any(self.structure.overlap):
            return tuple({} for _ in self.priced_layers)
        slowed = Slowed(self.columns.micro_batches, contention * self.structure.overlap[0])
        items = [cost.items for cost in self.priced_layers]
        if self.staged:  # each of its passes is of one stage
            return ({number: times for passes in self.passes for number, times in slowed.longer(passes, items[0]).items()},)
        return tuple(slowed.longer(passes, own) for passes, own in zip(self.passes, items, strict=True))

    @cached_property
    def drawn_longer_j(self) -> Array:
        """[n] joules beside those of `bound` and of the clock's seconds: what kernels draw longer that collectives slow."""
        found = np.zeros(len(self.columns))
        layers = [1] if self.staged else self.structure.cut.counts.sum(axis=0).tolist()
        for count, longer, cost in zip(layers, self.longer, self.priced_layers, strict=True):
            found = found + count * drawn_longer(longer, cost.items)
        return found

    def pick(self, column: int, layers: LayerPricer) -> ExactStep:
        """The step of one of the columns, of which `layers` prices the layers: its passes are these."""
        which = np.array([column])
        one = ExactStep(self.job, self.structure, self.columns.pick(which), layers)
        if "passes" in self.__dict__:
            known: dict[int, tuple[LaneJob, ...]] = {}
            one.passes = tuple({name: each.pick(which, known) for name, each in section.items()} for section in self.passes)
        return one

    @cached_property
    def figures(self) -> tuple[Figures, ...]:
        """Each part's figures, one plan; of a cut below the layer each stage's."""
        if self.staged:
            return tuple(one.whole for one in staged_figures(self.layers, self.costs[:1], [self.structure.parts[0][1]]))
        counts = self.structure.cut.counts.sum(axis=0)
        return tuple(figures([cost], repeat=int(total)).whole for cost, total in zip(self.costs, counts, strict=True))

    def bound(self) -> StepBound:
        """Joules without static power, memory, and a lower bound of the seconds: [1, n, 1]."""
        structure = self.structure
        layers = Layers.of(self.figures, StepChoices.of(self.job.profile, [structure.overlap]))
        return compose(layers, self.sends, structure.cut, structure.schedule, self.columns.micro_batches)

    @property
    def machines(self) -> tuple[Architecture, ...]:
        """The machine of each pool."""
        return tuple(layers.pricer.architecture for layers in self.of_pools)

    @cached_property
    def fullest(self) -> tuple[int, dict[str, float]]:
        """(pool, bytes by what holds them) of the device that holds most; where accelerators are of several kinds, most of its room."""
        cut, schedule, count = self.structure.cut, self.structure.schedule, self.columns.micro_batches
        if not self.structure.stages:
            return 0, fullest_device(self.figures, cut, schedule, count)
        rooms = [room_of(machine, self.job.profile).bytes for machine in self.machines]
        share = [held / rooms[pool] if rooms[pool] else math.inf for held, pool in zip(self.held, self.structure.stages, strict=True)]
        fullest = int(np.argmax(share))
        parts = device_memory(self.figures, cut, schedule, count, fullest)
        sizes = {what: float(size.reshape(-1)[0]) for what, size in parts.items()}
        return self.structure.stages[fullest], {what: size for what, size in sizes.items() if size and what != "host"}

    @property
    def fullest_pool(self) -> int:
        """Its pool."""
        return self.fullest[0] if self.structure.stages else 0

    @property
    def held(self) -> Array:
        """[stages] bytes of one mapping on a device of each stage."""
        cut, schedule, count = self.structure.cut, self.structure.schedule, self.columns.micro_batches
        every = (device_memory(self.figures, cut, schedule, count, stage) for stage in range(cut.stages))
        return np.array([math.fsum(float(size.reshape(-1)[0]) for what, size in one.items() if what != "host") for one in every])

    @cached_property
    def sends(self) -> Sends:
        """Hand-overs between the stages."""
        plan = self.structure.parts[0][1]
        if self.structure.stages:
            tied = summed(self.pricer, self.job.workload, plan, self.ends)
            return sends_between(self.handed, self.structure.cut, *tied, backward=self.job.workload.backward)
        return sends_of(self.pricer, self.job.workload, [plan], self.job.profile)

    @cached_property
    def handed(self) -> Handed:
        """The hand-over of each stage to the next and to the one before; one, of (0, 0), where all are alike."""
        stages = self.structure.stages
        if not stages:
            return {(0, 0): self._handed(0, self.pricer.between_stages(far=False))}
        return self.handed_on(stages, around=self.structure.cut.around)

    def handed_on(self, stages: tuple[int, ...], *, around: bool = False) -> Handed:
        """The same where stages lie on these pools. around: whether the last stage hands on to the first; where it does not, a stage at an
        end is held as long as by what comes to it (docs/clock.md, rule 9). (Each kind of hand-over is priced once.)"""
        found, count = {}, len(stages)
        for (lane, ahead), stage in product(enumerate((1, -1)), range(count)):
            far = not 0 <= stage + ahead < count
            begin = stage - ahead if far and not around else stage
            key = stages[begin], stages[(begin + ahead) % count], far and around
            if key not in self._hand_overs:
                self._hand_overs[key] = self._handed(key[1], self._between(*key))
            found[lane, stage] = self._hand_overs[key]
        return found

    def _handed(self, pool: int, links: LinkArrays) -> HandOver:
        """The stream over some links, to a stage of a pool."""
        pricer = self.of_pools[pool].pricer
        return hand_over(pricer, self.job.workload, self.structure.parts[0][1], links, self.job.profile)

    def _between(self, pool: int, then: int, far: bool) -> LinkArrays:
        """Links from a stage of a pool to one of that pool or another. far: between the ends of the pipeline."""
        one, other = self.of_pools[pool].pricer, self.of_pools[then].pricer
        return one.between_stages(far=far) if pool == then else across(one, other)

    @property
    def ends(self) -> LinkArrays:
        """Links between the first stage and the last."""
        return self.ends_of(self.structure.stages or (0,))

    def ends_of(self, stages: tuple[int, ...]) -> LinkArrays:
        """The same where stages lie on these pools."""
        return self._between(stages[0], stages[-1], True)

    @cached_property
    def jobs(self) -> StepJobs:
        """The step as the clock takes it."""
        cut, one = self.structure.cut, np.ones(self.pricer.n)
        return StepJobs(
            sections=self.passes,
            counts=cut.counts,
            schedule=runs_as(self.structure.schedule, cut.chunks),
            stages=cut.stages,
            chunks=cut.chunks,
            micro_batches=self.structure.micro_batches,
            backward=self.job.workload.backward,
            send_s=self.sends.seconds[0] * one,
            hops_s=in_places(self.handed, one) if self.structure.stages else None,
            sends_overlap=self.job.profile.overlap.sends,
            update_s=tuple(_updates(cost.items, self.lanes, self.pricer.n) for cost in self.priced_layers),
            tied_s=self.sends.tied[0] * one,
        )

    @cached_property
    def clock(self) -> Clock:
        """What runs these jobs, of one mapping: the path is read back from where its seconds came from."""
        return Clock(self.jobs)

    @property
    def kept(self) -> int:
        """Passes whose runs its clock keeps."""
        clock: Clock | None = self.__dict__.get("clock")
        return 0 if clock is None or clock.kept is None else clock.passes

    def jobs_of(self, structure: Structure, which: Ints) -> StepJobs:
        """The step of some columns under a cut, a schedule and micro-batches of their own: what was priced is shared. The parts, the
        overlap, and whether the schedule splits the backward pass, are this step's."""
        known: dict[int, tuple[LaneJob, ...]] = {}
        return replace(
            self.jobs,
            sections=tuple({name: one.pick(which, known) for name, one in section.items()} for section in self.passes),
            counts=structure.cut.counts,
            schedule=runs_as(structure.schedule, structure.cut.chunks),
            stages=structure.cut.stages,
            chunks=structure.cut.chunks,
            micro_batches=structure.micro_batches,
            send_s=self.jobs.send_s[which],
            hops_s=None if self.jobs.hops_s is None else self.jobs.hops_s[..., which],
            update_s=tuple(picked(seconds, which) for seconds in self.jobs.update_s),
            tied_s=self.jobs.tied_s[which],
        )

    def bytes_of(self, structure: Structure, which: Ints) -> Array:
        """[columns] bytes on the fullest device of such a step."""
        sections = tuple(_holding(cost, which) for cost in self.priced_layers)
        return np.asarray(memory_of(sections, structure.cut, structure.schedule, self.columns.micro_batches[which])[0][0])

    @cached_property
    def staged_jobs(self) -> StagedJobs:
        """The same for a cut below the layer."""
        stages = self.structure.cut.stages
        items = self.priced_layers[0].items
        return StagedJobs(
            timed=tuple(item.timed(self.hide) for item in items),
            passes=self.passes,
            lanes=self.lanes,
            stages=stages,
            schedule=self.structure.schedule,
            micro_batches=self.structure.micro_batches,
            sends_overlap=self.job.profile.overlap.sends,
            update_s=tuple(_updates([i for i in items if i.task.stage == stage], self.lanes, self.pricer.n) for stage in range(stages)),
        )

    def seconds(self) -> Array:
        """[n] seconds of the steps."""
        return staged_seconds(self.staged_jobs) if self.staged else step_seconds(self.jobs)

    @cached_property
    def path(self) -> tuple[float, Path, Counter[str]]:
        """Of one mapping: as `clock.critical_path`; of a cut below the layer the host is that of a stage, not of a section."""
        if not self.staged:
            return critical_path(self.jobs)
        seconds, path, stage = staged_path(self.staged_jobs)
        return seconds, path, Counter({f"update {stage}": 1})


def walk_together(steps: Sequence[ExactStep]) -> None:
    """Find the paths of steps of one mapping: pipelines run side by side."""
    piped = [step for step in dict.fromkeys(steps) if not step.staged and "path" not in step.__dict__]
    for step, path in zip(piped, paths_together([step.clock for step in piped]), strict=True):
        step.path = path


def seconds_of(steps: Sequence[ExactStep], room: int = 0) -> list[Array]:
    """[n] seconds of each step; those alike in the order of their passes run together. room: passes whose runs are kept for paths."""
    clocks = [step.clock if len(step.columns) == 1 else Clock(step.jobs) for step in steps if not step.staged]
    together = iter(seconds_together(clocks, room))
    return [step.seconds() if step.staged else next(together) for step in steps]


def _holding(cost: LayerItems, which: Ints) -> Holding:
    """What a layer holds on some columns, [1, columns] each."""
    none = np.zeros((1, len(which)))
    return Holding(cost.section.layer, {what: picked(cost.held[what], which) + none if what in cost.held else none for what in HELD})


def _updates(items: Sequence[Item], lanes: Lanes, n: int) -> Array:
    """[n] seconds of a layer's optimizer, and of what is done with it."""
    return np.asarray(sum((item.seconds for item in items if lanes.timed(item.role) == "update"), np.zeros(n)))
