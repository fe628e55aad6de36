"""Prices a program: tasks become charges, charges become a ledger, the ledger becomes latency, energy and memory.

The same lines price one mapping, a list or a grid: degrees and strides are arrays, and each figure is as wide as what it
depends on. Nothing is summed twice: latency is Σ exposed seconds, energy is Σ joules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.inside.roofline import LegPricer, Row, leg_rows
from rackmodel.cost.ledger import Charge, Ledger
from rackmodel.cost.network.collectives import LinkUse, mesh_collective, send
from rackmodel.cost.network.streams import stream
from rackmodel.cost.program.derive import derive
from rackmodel.cost.program.tasks import Held, Program, Task
from rackmodel.cost.step.homes import add_rows, adds_by_tier, home_traffic, update_rows
from rackmodel.cost.step.schedule import Timeline, schedule
from rackmodel.model.architecture import Architecture
from rackmodel.model.layout import is_shard
from rackmodel.model.placement import Mesh, members
from rackmodel.model.plan import Plan
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.workload import Workload

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Priced:
    """n mappings of one plan. ledger: rows of arrays · latency, energy: [n] · held: what → [n] bytes on the fullest
    accelerator · home: level → [n] bytes that live at a level above · timeline: when each task runs."""

    plan: Plan
    ledger: Ledger
    latency: Array
    energy: Array
    held: dict[str, Array]
    home: dict[str, Array]
    program: Program
    timeline: Timeline

    @property
    def memory(self) -> Array:
        """[n] bytes on the fullest accelerator."""
        return np.asarray(sum(self.held.values(), np.zeros_like(self.latency)))


def price(
    architecture: Architecture,
    workload: Workload,
    plan: Plan,
    degrees: Sequence[Sequence[int]],
    strides: Sequence[Sequence[int]],
    profile: ProfileSpec,
    inside: LegPricer = leg_rows,
) -> Priced:
    """Price one plan on n meshes. degrees, strides: [n][axes] · inside: what a leg costs in one accelerator."""
    return MappingPricer(architecture, workload, plan, degrees, strides, profile, inside).run()


def backing_level(architecture: Architecture) -> str:
    """The level above the accelerators whose memory the workload starts and ends in; '' where there is none."""
    return next((level.name for level in architecture.above if level.memory is not None and level.memory.backing), "")


LINK_FIGURES = ("wire_bytes_per_byte", "joules_per_byte", "seconds_per_byte", "latency_s")


@dataclass(frozen=True)
class LinkArrays:
    """A LinkUse for each of n meshes: the figures are [tiers, n]."""

    levels: tuple[str, ...]
    wire_bytes_per_byte: Array
    joules_per_byte: Array
    seconds_per_byte: Array
    latency_s: Array


def distinct_rows(rows: NDArray[np.int64]) -> tuple[list[int], NDArray[np.int64]]:
    """(index of the first of each distinct row, which of them each row is)."""
    seen: dict[bytes, int] = {}
    firsts: list[int] = []
    which = np.empty(len(rows), dtype=np.int64)
    for number, row in enumerate(np.ascontiguousarray(rows)):
        key = row.tobytes()
        if key not in seen:
            seen[key] = len(firsts)
            firsts.append(number)
        which[number] = seen[key]
    return firsts, which


class MappingPricer:
    """Prices tasks of one plan on n meshes; `task` is the one place where a task gets its seconds and joules."""

    def __init__(
        self,
        architecture: Architecture,
        workload: Workload,
        plan: Plan,
        degrees: Sequence[Sequence[int]],
        strides: Sequence[Sequence[int]],
        profile: ProfileSpec,
        inside: LegPricer = leg_rows,
    ) -> None:
        self.inside = inside
        self.architecture, self.workload, self.plan, self.profile = architecture, workload, plan, profile
        self.degrees = np.asarray(degrees, dtype=np.int64).reshape(len(degrees), len(plan.axes))
        self.strides = np.asarray(strides, dtype=np.int64).reshape(len(degrees), len(plan.axes))
        self.per_stage = self.degrees[:, : plan.spatial].prod(axis=1)
        placed = np.hstack([self.degrees[:, : plan.spatial], self.strides[:, : plan.spatial]])
        self._firsts, self._which = distinct_rows(placed)
        self.n = len(degrees)

    def run(self) -> Priced:
        program = derive(self.workload, self.plan, backing_level(self.architecture))
        prepare = getattr(self.inside, "prepare", None)
        if prepare is not None:
            prepare(task.leg for task in program.tasks if task.leg is not None and task.phase == "forward")
        rows, durations = [], []
        for task in program.tasks:
            mine, duration = self.task(task)
            rows.append(mine)
            durations.append(duration)
        timeline = schedule(program.tasks, durations, overlap_weights=self.profile.overlap.weights)
        charges = [
            self._charge(task, row, timeline.critical[number])
            for number, (task, mine) in enumerate(zip(program.tasks, rows, strict=True))
            for row in mine
        ]
        charges += self._static(charges)
        ledger = Ledger(tuple(charges))
        latency = ledger.sum_arrays("exposed_seconds", (self.n,))
        energy = ledger.sum_arrays("joules", (self.n,))
        held, home = self._held(program.held)
        return Priced(self.plan, ledger, latency, energy, held, home, program, timeline)

    # -- one task ------------------------------------------------------------------------------------------------------

    def task(self, task: Task) -> tuple[list[Row], Array]:
        """Rows (joules and amounts over all accelerators of the stage) and duration [n] of a task."""
        if task.kind == "op":
            return self._op(task)
        if task.kind in ("load", "store"):
            return self._backing(task)
        volume = task.volume.at(self.degrees)
        links = self.links(task, volume)
        rows = []
        for tier, level in enumerate(links.levels):
            wire, joules = links.wire_bytes_per_byte[tier] * volume, links.joules_per_byte[tier] * volume
            seconds = links.seconds_per_byte[tier] * volume + links.latency_s[tier]
            if wire.any() or seconds.any():
                rows.append(Row(task.tensor, level, "network", task.action, wire, "byte", joules, seconds, seconds))
        if task.kind == "stream":
            rows = self._paced(rows, self._at_home(task, volume))
        return rows, self._duration(rows)

    def links(self, task: Task, volume: Array) -> LinkArrays:
        """What a task costs on the networks, for each of the n meshes; each distinct mesh is asked once. volume: [n] bytes."""
        return self._for_all([self._links(task, i) for i in self._firsts])

    def _for_all(self, uses: Sequence[LinkUse]) -> LinkArrays:
        """What the distinct meshes cost, for each of the n."""
        return LinkArrays(
            uses[0].levels,
            *(np.array([getattr(use, figure) for use in uses]).reshape(len(uses), -1).T[:, self._which] for figure in LINK_FIGURES),
        )

    def _duration(self, rows: Sequence[Row]) -> Array:
        return np.asarray(sum((row.exposed for row in rows), np.zeros(self.n)))

    def _op(self, task: Task) -> tuple[list[Row], Array]:
        if task.leg is None:
            return [], np.zeros(self.n)
        if task.level:
            return update_rows(self.architecture, task.level, task.leg, self.n)
        rows, duration = self.inside(self.architecture, task.leg, self.degrees)
        total = self.per_stage
        spread = [
            Row(r.tensor, r.level, r.component, r.action, r.amount * total, r.unit, r.joules * total, r.seconds, r.exposed) for r in rows
        ]
        return spread, duration

    def _backing(self, task: Task) -> tuple[list[Row], Array]:
        """Every accelerator reads its own copy; an output is written once."""
        memory = self.architecture.level(task.level).memory
        assert memory is not None
        copies = self.per_stage if task.kind == "load" else np.array([self._distinct(task, i) for i in range(self.n)])
        size = task.volume.at(self.degrees) * copies
        energy = memory.read_j_per_byte if task.kind == "load" else memory.write_j_per_byte
        seconds = size / memory.bandwidth_bytes_per_s if memory.bandwidth_bytes_per_s else np.zeros(self.n)
        row = Row(task.tensor, task.level, "memory", task.action, size, "byte", size * energy, seconds, seconds)
        return [row], seconds

    def _distinct(self, task: Task, i: int) -> int:
        spread = (axis for axis, p in enumerate(task.layout[: self.plan.spatial]) if is_shard(p))
        return int(np.prod([self.degrees[i, axis] for axis in spread], initial=1))

    def _at_home(self, task: Task, volume: Array) -> list[Row]:
        """What the home does for a stream: reads or writes, and the adds that gradients take on their way."""
        shards = np.array([self._distinct(task, i) for i in range(self.n)])
        rows = [home_traffic(self.architecture, task.level, task.tensor, task.action, volume * shards)]
        if task.action == "reduce":
            again = 1.0 - 1.0 / self.degrees[:, self.plan.spatial :].prod(axis=1)  # the sum so far, from the second micro-batch on
            if again.any():
                rows.append(home_traffic(self.architecture, task.level, task.tensor, "broadcast", volume * shards * again))
            each = np.array([self._adds(task, i) for i in self._firsts]).T[:, self._which]
            rows += add_rows(self.architecture, task.level, task.tensor, each * volume / (self.workload.gradient_bits / 8))
        return rows

    def _paced(self, links: list[Row], home: list[Row]) -> list[Row]:
        """Links and the home's memory work at once: the slower of the two sets the pace."""
        port = sum((row.seconds for row in home if row.component == "memory"), np.zeros(self.n))
        slow = port > self._duration(links)
        if not slow.any():
            return [*links, *home]
        waits = [replace(row, exposed=np.where(slow, row.seconds, 0.0)) if row.component == "memory" else row for row in home]
        return [*(replace(row, exposed=np.where(slow, 0.0, row.exposed)) for row in links), *waits]

    def _adds(self, task: Task, i: int) -> Array:
        return adds_by_tier(self.architecture, self._streaming(task, self._mesh(i, task.stage)))

    # -- links ---------------------------------------------------------------------------------------------------------

    def _mesh(self, i: int, stage: int) -> Mesh:
        offset, spatial = int(stage * self.per_stage[i]), self.plan.spatial
        return Mesh(
            self.plan.axes[:spatial], tuple(map(int, self.degrees[i, :spatial])), tuple(map(int, self.strides[i, :spatial])), offset
        )

    def _links(self, task: Task, i: int) -> LinkUse:
        mesh = self._mesh(i, task.stage)
        names = tuple(self.plan.axes[axis] for axis in task.axes)
        if task.kind == "collective":
            return mesh_collective(self.architecture, mesh, names, task.action)
        if task.kind == "send":
            here, there = self._everyone(mesh), self._everyone(self._mesh(i, task.to_stage))
            return send(self.architecture, here, there)
        return stream(self.architecture, task.level, self._streaming(task, mesh), task.action)

    def _streaming(self, task: Task, mesh: Mesh) -> NDArray[np.int64]:
        """[shards, p] accelerators that a stream feeds, or that feed it."""
        placed = list(zip(self.plan.axes[: self.plan.spatial], task.layout, strict=False))
        shards = tuple(name for name, p in placed if is_shard(p))
        rest = tuple(name for name, p in placed if name not in shards and (task.action == "broadcast" or p == "P"))
        return members(mesh, rest) if task.action == "broadcast" else self._one_of_each(mesh, rest, shards)

    def _one_of_each(self, mesh: Mesh, rest: tuple[str, ...], shards: tuple[str, ...]) -> NDArray[np.int64]:
        """Groups over `rest`, one for each shard: accelerators that hold the same sum send it once."""
        kept = set(rest) | set(shards)
        degrees = tuple(d if name in kept else 1 for name, d in zip(mesh.axes, mesh.degrees, strict=True))
        return members(Mesh(mesh.axes, degrees, mesh.strides, mesh.offset), rest)

    def _everyone(self, mesh: Mesh) -> NDArray[np.int64]:
        return members(mesh, mesh.axes).reshape(-1)

    # -- the ledger ----------------------------------------------------------------------------------------------------

    def _charge(self, task: Task, row: Row, critical: NDArray[np.bool_]) -> Charge:
        times = self.workload.repeat
        return Charge(
            task.phase,
            task.einsum,
            row.tensor,
            row.level,
            row.component,
            row.action,
            row.amount * times,
            row.unit,
            row.joules * times,
            row.seconds * times,
            np.where(critical, row.exposed, 0.0) * times,
        )

    def _static(self, charges: Sequence[Charge]) -> list[Charge]:
        """Static power of every instance in use, over the exposed seconds of each phase."""
        rows = []
        for name, power in static_powers(self.architecture):
            for phase in dict.fromkeys(charge.phase for charge in charges):
                seconds = np.asarray(sum((c.exposed_seconds for c in charges if c.phase == phase), np.zeros(self.n)))
                rows.append(Charge(phase, "", "", name, "static", "static", power * seconds, "joule", power * seconds, seconds, 0.0))
        return rows

    @property
    def static_watts(self) -> float:
        """Static power of everything in use."""
        return static_watts(self.architecture)

    def _held(self, held: Sequence[Held]) -> tuple[dict[str, Array], dict[str, Array]]:
        stages: dict[int, dict[str, Array]] = {}
        home: dict[str, Array] = {}
        working: dict[tuple[int, str], Array] = {}
        for item in held:
            size = item.volume.at(self.degrees)
            times = self.workload.repeat if item.what != "working" else 1
            if item.level:
                home[item.level] = home.get(item.level, np.zeros(self.n)) + size * times
            elif item.what == "working":
                working[(item.stage, item.tensor)] = working.get((item.stage, item.tensor), np.zeros(self.n)) + size
            else:
                parts = stages.setdefault(item.stage, {})
                parts[item.what] = parts.get(item.what, np.zeros(self.n)) + size * times
        for (stage, _), size in working.items():
            parts = stages.setdefault(stage, {})
            parts["working"] = np.maximum(parts.get("working", np.zeros(self.n)), size)
        if not stages:
            return {}, home
        totals = np.stack([sum(parts.values(), np.zeros(self.n)) for parts in stages.values()])
        worst = np.argmax(totals, axis=0)
        names = dict.fromkeys(name for parts in stages.values() for name in parts)
        empty = np.zeros(self.n)
        by_stage = {name: np.stack([parts.get(name, empty) for parts in stages.values()]) for name in names}
        return {name: values[worst, np.arange(self.n)] for name, values in by_stage.items()}, home


def static_powers(architecture: Architecture) -> list[tuple[str, float]]:
    """(level, watts of all its instances in use), for levels that draw any."""
    powers = []
    used, below = architecture.used, architecture.available
    path = {level.name for level in architecture.path}
    for level in architecture.path:
        below //= level.count
        instances = -(-used // below)
        powers.append((level.name, level.static_power_w * instances))
        for side in level.children if not level.accelerator else ():
            if side.name not in path:
                powers.append((side.name, side.static_power_w * side.count * instances))
    for level, count in architecture.inside[1:]:
        powers.append((level.name, level.static_power_w * count * used))
    return [(name, power) for name, power in powers if power > 0]


def static_watts(architecture: Architecture) -> float:
    """Static power of everything in use."""
    return sum(power for _, power in static_powers(architecture))
