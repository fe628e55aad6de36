"""Random members of a space as mapping files: drawn point by point, without the search's arrays, bounds or solvers."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np

from rackmodel.cost.step.tasks.offload import host_of
from rackmodel.inputs import read_profile
from rackmodel.mapper.layouts.problem import LayoutProblem
from rackmodel.mapper.listed_choices import host_named
from rackmodel.mapper.mapping import to_mapping
from rackmodel.mapper.mapping_check import hosts_of
from rackmodel.mapper.mapspace import Group, Mapspace, Variant, build_mapspace
from rackmodel.mapper.points import Point
from rackmodel.mapper.pooled import fitting
from rackmodel.mapper.rules import saveable
from rackmodel.model.architecture import Architecture
from rackmodel.model.layout import legal_choices
from rackmodel.model.mapping import HomeSpec, LayoutSpec, MapperSpec, MappingSpec
from rackmodel.model.workload import Workload
from tests.audit.case import Case

WORDS = ("state", "grad", "param")
TOGETHER = 4  # members of one draw


class Members:
    """Draws members of one case's space."""

    def __init__(self, case: Case, pick: random.Random) -> None:
        self.case, self.pick = case, pick
        self.machine, self.workload, self.mapper = case.read()
        self.profile = read_profile(case.profile)
        self.space = self._space()

    def _space(self) -> Mapspace:
        mapper = fixed_layers(self.mapper, self.workload, self.pick) if self.case.kind == "free_layers" else self.mapper
        space = build_mapspace(mapper, self.workload, self.machine.used, hosts_of(self.machine))
        return fitting(self.machine, space) if len(self.machine.pools) > 1 else space

    def some(self, count: int) -> list[MappingSpec]:
        """At most so many members, without those that are drawn twice."""
        found: dict[str, MappingSpec] = {}
        drawn = 0
        while drawn < count:
            if self.case.kind == "free_layers":
                self.space = self._space()
            members = self.alike()
            drawn += max(1, len(members))
            found |= {member.model_dump_json(): member for member in members}
        return list(found.values())

    def alike(self) -> list[MappingSpec]:
        """Members that differ in their mesh alone, which are priced together; none where the draw leads to none."""
        groups: list[Group | LayoutProblem] = [*self.space.groups, *self.space.problems]
        own = self.pick.choice(groups)
        return [self._laid_out(own)] if isinstance(own, LayoutProblem) else self._points(own)

    def _mapping(self, group: Group, point: Point) -> MappingSpec:
        named = host_named(self.mapper, hosts_of(self.machine))
        host = host_of(self.machine, named).level if any(self.mapper.offload) or named is not None else None
        mapping = to_mapping(self.space, group, point, "member", self.profile.name, host)
        if len(self.machine.pools) > 1 and mapping.step is not None:
            order = [pool.accelerator.name for pool in self.machine.pools]
            self.pick.shuffle(order)
            return mapping.model_copy(update={"step": mapping.step.model_copy(update={"pools": order})})
        return mapping

    def _overlap(self) -> tuple[int, int]:
        overlap = self.profile.overlap
        windows = any(window.beside != "none" for window in overlap.windows.values())
        sides = overlap.weights or overlap.hides_gradients
        if self.mapper.overlap == "profile":
            return int(windows), int(sides)
        return self.pick.choice([0, int(windows)]), self.pick.choice([0, int(sides)])

    # -- layouts that are free -----------------------------------------------------------------------------------------------

    def _laid_out(self, problem: LayoutProblem) -> MappingSpec:
        pick, spatial = self.pick, problem.mesh.axes[:-1]
        choices = {op: tuple(pick.choice(options) for options in per_axis) for op, per_axis in problem.mesh.domains.items()}
        save = {name: pick.choice(["shard", "gathered"]) for name in saveable(self.workload)} if self.mapper.save == "free" else None
        plan = problem.plan(choices, save)
        if problem.free_homes:
            free = [w for w in self.workload.weights if self.mapper.homes.get(w, self.mapper.homes.get("weights")) == "free"]
            plan = replace(plan, homes={**plan.homes, **{weight: zero(pick.randrange(4), spatial) for weight in free}}, known={})
        columns = problem.columns
        group = Group(
            columns=columns,
            parents=problem.mesh.parents,
            variants=(Variant(layout="", recompute=problem.recompute, home=0, offload=(), plan=plan),),
        )
        return self._mapping(group, self._at(0, 0, 1, "1f1b", 1, overlap=self._overlap()))

    # -- everything else -------------------------------------------------------------------------------------------------------

    def _at(self, variant: int, column: int, stages: int, schedule: str, chunks: int, **more: Any) -> Point:
        return Point(
            group=0,
            variant=variant,
            column=column,
            schedule=schedule,
            stages=stages,
            chunks=chunks,
            bound=0.0,
            seconds=0.0,
            joules=0.0,
            memory=0.0,
            **more,
        )

    def _points(self, group: Group) -> list[MappingSpec]:
        pick, columns = self.pick, group.columns
        column, variant = pick.randrange(len(columns)), pick.randrange(len(group.variants))
        staged = group.variants[variant].plan.stage_count
        stages, m = int(columns.stages[column]) if staged == 1 else staged, int(columns.micro_batches[column])
        schedule = "1f1b" if stages == 1 else pick.choice(self.space.schedules)
        chunks = 1
        if schedule == "interleaved":
            deep = [n for n in self.space.interleave if n > 1]
            if not deep or m % stages:
                return []
            chunks = pick.choice(deep)
        made = self._cut(group, variant, stages) if self.mapper.cut == "free" or self.mapper.recompute == "per layer" else {}
        if not made and staged == 1 and self.workload.layers % (stages * chunks):
            return []
        made["overlap"] = self._overlap()
        same = np.flatnonzero((columns.stages == columns.stages[column]) & (columns.micro_batches == m)).tolist()
        some = {column, *pick.sample(same, min(len(same), TOGETHER - 1))}
        return [self._mapping(group, self._at(variant, one, stages, schedule, chunks, **made)) for one in sorted(some)]

    def _cut(self, group: Group, variant: int, stages: int) -> dict[str, Any]:
        """Layers of each stage, and of each policy in it."""
        pick, layers = self.pick, self.workload.layers
        if stages > layers:
            return {}
        edges = sorted(pick.sample(range(1, layers), stages - 1)) if self.mapper.cut == "free" else None
        if edges is None:
            if layers % stages:
                return {}
            edges = [layers // stages * k for k in range(1, stages)]
        counts = [b - a for a, b in zip([0, *edges], [*edges, layers], strict=True)]
        if self.mapper.recompute != "per layer":
            return {"layers": tuple(counts)}
        own = group.variants[variant]
        same = [
            n for n, other in enumerate(group.variants) if (other.layout, other.home, other.offload) == (own.layout, own.home, own.offload)
        ]
        dealt = []
        for count in counts:
            drawn = [pick.randrange(len(same)) for _ in range(count)]
            dealt.append((tuple(drawn.count(n) for n in range(len(same))),))
        return {"layers": tuple(counts), "plans": tuple(same), "mixes": tuple(dealt)}


def zero(stage: int, axes: tuple[str, ...]) -> HomeSpec:
    """ZeRO 0 to 3 over all axes of a mesh."""
    return HomeSpec.model_validate({"axes": list(axes), **dict.fromkeys(WORDS[:stage], "shard")} if stage else {})


def fixed_layers(mapper: MapperSpec, workload: Workload, pick: random.Random) -> MapperSpec:
    """A mapper that says of every operation of a layer what its free axis splits: one of those that the mapper stands for."""
    (free,) = (axis for axis, said in next(iter(mapper.layouts.values())).split.items() if said == "free")
    choose = {}
    rest = {i for s in workload.sections if not s.layer for op in s.workload.ops.values() for i in op.indices}
    for section in workload.sections:
        for op in section.workload.ops.values():
            legal = [c for c in legal_choices(op, workload) if c is None or c[0] == "+" or workload.sizes[c] % 2 == 0]
            chosen = pick.choice(legal) if section.layer else ("v" if "v" in op.indices and "v" in rest else None)
            choose[op.name] = {free: "none" if chosen is None else chosen}
    layout = LayoutSpec.model_validate({"split": {free: ["v"]}, "choose": choose, "save": pick.choice(["shard", "gathered"])})
    return mapper.model_copy(update={"layouts": {"found": layout}})


def feasible(machine: Architecture, profile: str, memory: Any) -> Any:
    """Which of so many bytes an accelerator may hold: of what drivers show, what the runtime leaves."""
    store = machine.pools[0].accelerator.memory  # (kinds that are drawn have as much)
    limited = store is not None and store.enforce and store.capacity_bytes is not None
    have = store.capacity_bytes * store.visible - read_profile(profile).reserved_bytes if limited else np.inf
    return np.asarray(memory) <= have
