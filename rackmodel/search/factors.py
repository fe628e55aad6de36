"""Cost tables: what each operation, tensor and weight costs as a function of the choices that touch it.

Serial time, energy and memory of a mapping are sums of such local terms (one an operation, one a tensor), priced by the
same functions as the mapping itself. That sum is what elimination, CP-SAT and the grid minimise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.legs import (
    STATISTIC_BYTES,
    backward_legs,
    backward_reads,
    forward_leg,
    halo,
    has_backward,
    statistics_axes,
    statistics_rows,
    wants_gradient,
)
from rackmodel.cost.price import MappingPricer, backing_level
from rackmodel.cost.recompute import recompute_of
from rackmodel.cost.roofline import LegPricer, leg_rows
from rackmodel.cost.tasks import Leg, Task, Volume, local
from rackmodel.cost.traffic import merged, tensor_traffic
from rackmodel.model.architecture import Architecture
from rackmodel.model.conversion import convert
from rackmodel.model.copies import plan_copies
from rackmodel.model.layout import FLAT, PARTIAL, REPLICATE, Choice, Layout, grad_leaves, grad_need, is_shard
from rackmodel.model.plan import Plan, twin_input
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.workload import Op
from rackmodel.search.mapspace import Mapspace, Mesh, saveable

Strategy = tuple[Choice, ...]
Array = NDArray[np.float64]
LIMIT = 2_000_000  # cells of one table; beyond it the mapper should fix some choices


@dataclass(frozen=True)
class Factor:
    """A table over some variables. latency, energy, memory: arrays with one dimension a variable."""

    name: str
    variables: tuple[str, ...]
    latency: Array
    energy: Array
    memory: Array


@dataclass(frozen=True)
class Factors:
    """The layout problem of one mesh. strategies: variable → its values, in a fixed order · working: op → bytes a
    forward-only pass holds for it, by strategy."""

    strategies: dict[str, tuple[Strategy, ...]]
    factors: tuple[Factor, ...]
    working: dict[str, Array]
    capacity: float | None

    @property
    def size(self) -> float:
        """Points of the space."""
        return float(np.prod([float(len(values)) for values in self.strategies.values()]))


class TooLarge(Exception):
    """A table would have more cells than LIMIT."""


def build_factors(
    architecture: Architecture,
    space: Mapspace,
    mesh: Mesh,
    profile: ProfileSpec,
    *,
    hide_weights: bool = False,
    inside: LegPricer = leg_rows,
) -> Factors:
    """Tables of one mesh. hide_weights: leave the time of collectives on weights out (a lower bound where they may overlap).

    Raises TooLarge.
    """
    return _Builder(architecture, space, mesh, profile, hide_weights, inside).build()


class _Builder:
    def __init__(
        self, architecture: Architecture, space: Mapspace, mesh: Mesh, profile: ProfileSpec, hide_weights: bool, inside: LegPricer
    ) -> None:
        self.hide_weights = hide_weights
        self.architecture, self.space, self.mesh, self.workload = architecture, space, mesh, space.workload
        first = {name: tuple(choices[0] for choices in per_axis) for name, per_axis in mesh.domains.items()}
        self.base = space.plan(mesh, first)
        self.pricer = MappingPricer(architecture, self.workload, self.base, [mesh.degrees], [mesh.strides], profile, inside)
        self.backing = backing_level(architecture)
        self.strategies: dict[str, tuple[Strategy, ...]] = {
            name: tuple(itertools.product(*per_axis)) for name, per_axis in mesh.domains.items()
        }
        self.recompute = recompute_of(self.workload, self.base)
        self.memo: dict[object, tuple[float, float, float]] = {}

    def build(self) -> Factors:
        factors = [self._op_factor(op) for op in self.workload.ops.values()]
        if self.space.mapper.save == "free":
            for tensor in saveable(self.workload):
                self.strategies[f"save {tensor}"] = (("shard",), ("gathered",))
        for name in self.workload.tensors:
            factors.append(self._tensor_factor(name))
        memory = self.architecture.accelerator.memory
        capacity = memory.capacity_bytes if memory is not None and memory.enforce else None
        working = {} if self.workload.backward else {op.name: self._working(op) for op in self.workload.ops.values()}
        return Factors(self.strategies, tuple(factors), working, capacity)

    # -- operations ------------------------------------------------------------------------------------------------------

    def _plan(self, choices: dict[str, Strategy]) -> Plan:
        base = self.base
        return Plan(
            base.axes, choices, base.boundary, base.stages, base.homes, base.save, base.recompute, base.rerun, base.uneven, base.flat
        )

    def _op_factor(self, op: Op) -> Factor:
        costs = [self._op_cost(op, self._plan({op.name: strategy})) for strategy in self.strategies[op.name]]
        return self._factor(f"op {op.name}", (op.name,), np.array(costs, dtype=np.float64).reshape(-1, 3))

    def _op_cost(self, op: Op, plan: Plan) -> tuple[float, float, float]:
        tasks: list[Task] = []
        for phase in ("forward", "recompute") if op.name in self.recompute.rerun else ("forward",):
            tasks += self._pass(op, plan, phase, [forward_leg(op, plan, self.workload)], op.kind.statistics[0])
            tasks += [t for i in range(len(op.ins)) for t in self._halos(op, i, plan, phase)]
        if self.workload.backward:
            legs = list(backward_legs(op, plan, self.workload))
            if legs:
                tasks += self._pass(op, plan, "backward", legs, op.kind.statistics[1])
                wanting = [i for i in range(len(op.ins)) if wants_gradient(op, i, self.workload)]
                tasks += [t for i in wanting for t in self._halos(op, i, plan, "backward")]
        held = 0.0
        if op.kind.mask_bytes and self.workload.backward and op.name not in self.recompute.rerun:
            elements = self.workload.tensors[op.out.tensor].elements * op.kind.mask_bytes
            held = self._local(elements, plan.leaves(op))
        return self._sum(tasks, held)

    def _pass(self, op: Op, plan: Plan, phase: str, legs: Sequence[Leg], numbers: int) -> list[Task]:
        tasks = [Task("op", phase, op.name, leg.writes[0][0], 0, "mac", (), leg=leg) for leg in legs]
        axes = statistics_axes(op, plan)
        if axes and numbers:
            rows = statistics_rows(op, plan, self.workload)
            volume = Volume(rows.total * numbers * STATISTIC_BYTES, rows.axes)
            tasks.append(Task("collective", phase, op.name, op.out.tensor, 0, "all_reduce", (), axes=axes, volume=volume))
        return tasks

    def _halos(self, op: Op, position: int, plan: Plan, phase: str) -> list[Task]:
        overlap = halo(op, position, plan, self.workload)
        if overlap is None or overlap[1].total == 0:
            return []
        return [Task("collective", phase, op.name, op.ins[position].tensor, 0, "halo", (), axes=overlap[0], volume=overlap[1])]

    def _working(self, op: Op) -> Array:
        sizes = []
        for strategy in self.strategies[op.name]:
            leg = forward_leg(op, self._plan({op.name: strategy}), self.workload)
            volumes = [v for name, v in (*leg.reads, *leg.writes) if self.workload.tensors[name].kind != "weight"]
            sizes.append(sum(float(v.at(self.pricer.degrees)[0]) for v in volumes))
        return np.array(sizes)

    # -- tensors ---------------------------------------------------------------------------------------------------------

    def _tensor_factor(self, name: str) -> Factor:
        variables = self._variables(name)
        sizes = [len(self.strategies[v]) for v in variables]
        if np.prod([float(s) for s in sizes]) > LIMIT:
            raise TooLarge(f"{name} couples {np.prod([float(s) for s in sizes]):.3g} combinations")
        signatures: dict[object, int] = {}
        costs: list[tuple[float, float, float]] = []
        cells = np.empty(int(np.prod(sizes)), dtype=np.int64)
        for cell, values in enumerate(itertools.product(*(self.strategies[v] for v in variables))):
            signature = self._signature(name, dict(zip(variables, values, strict=True)))
            if signature not in signatures:
                signatures[signature] = len(costs)
                costs.append(self._tensor_cost(name, signature))
            cells[cell] = signatures[signature]
        table = np.array(costs, dtype=np.float64).reshape(-1, 3)[cells]
        return self._factor(f"tensor {name}", variables, table)

    def _variables(self, name: str) -> tuple[str, ...]:
        """Operations (and the save decision) whose choices the tensor's cost depends on."""
        workload = self.workload
        ops = [workload.producer[name]] if name in workload.producer else []
        ops += list(workload.readers[name])
        twin = twin_input(name, workload)
        if twin:
            ops += list(workload.readers[twin][:1])
        variables = list(dict.fromkeys(ops))
        if f"save {name}" in self.strategies:
            variables.append(f"save {name}")
        return tuple(variables)

    def _signature(self, name: str, values: dict[str, Strategy]) -> tuple[object, ...]:
        """What the cost depends on: (produced, wanted, read back, contributions, gradient target, boundary, policy)."""
        workload, tensor = self.workload, self.workload.tensors[name]
        plan = self._plan({op: value for op, value in values.items() if op in workload.ops})
        wanted: list[Layout] = []
        back: list[Layout] = []
        contributions: list[Layout] = []
        for reader in workload.readers[name]:
            op = workload.ops[reader]
            wanted += [plan.needs(op, i, workload) for i, access in enumerate(op.ins) if access.tensor == name]
        boundary = self.space.boundary(self.mesh, plan.choices, name) if name in (*workload.inputs, *workload.outputs) else None
        produced, target = self._ends(name, plan, wanted, boundary)
        if workload.backward and tensor.bits > 0:
            back, contributions = self._backward(name, plan)
            if boundary is not None and name in workload.outputs:
                contributions.insert(0, boundary)
        if name in workload.outputs and boundary is not None:
            wanted.append(boundary)
        policy = str(values[f"save {name}"][0]) if f"save {name}" in values else self.base.save_policy(name)
        kept = tuple(wanted[:1]) if tensor.kind == "weight" else ()
        return (produced, _once(wanted), tuple(back), tuple(contributions), target, boundary, policy, kept)

    def _ends(self, name: str, plan: Plan, wanted: Sequence[Layout], boundary: Layout | None) -> tuple[Layout, Layout | None]:
        """Layout in which the tensor first is, and the one in which its gradient is due."""
        workload = self.workload
        if name in workload.producer:
            op = workload.ops[workload.producer[name]]
            return plan.leaves(op), tuple(grad_need(op, choice) for choice in plan.choices[op.name])
        if workload.tensors[name].kind == "weight":
            home = plan.home(name)
            return self._sharded(_whole(wanted[0]), home.axes if home.param == "shard" else ()), None
        assert boundary is not None
        return boundary, boundary

    def _backward(self, name: str, plan: Plan) -> tuple[list[Layout], list[Layout]]:
        workload = self.workload
        back: list[Layout] = []
        contributions: list[Layout] = []
        makers = [workload.producer[name]] if name in workload.producer else []
        for reader in (*makers, *workload.readers[name]):
            op = workload.ops[reader]
            if not has_backward(op, workload):
                continue
            for access in backward_reads(op):
                if access.tensor == name:
                    position = next((i for i, operand in enumerate(op.ins) if operand is access), None)
                    back.append(plan.leaves(op) if position is None else plan.needs(op, position, workload))
        for reader in reversed(workload.readers[name]):
            op = workload.ops[reader]
            for i, access in enumerate(op.ins):
                if access.tensor == name and wants_gradient(op, i, workload):
                    contributions.append(tuple(grad_leaves(op, access, choice, workload) for choice in plan.choices[op.name]))
        for reader in workload.readers[name]:
            if reader in self.recompute.rerun and name not in self.recompute.made:
                op = workload.ops[reader]
                back += [plan.needs(op, i, workload) for i, access in enumerate(op.ins) if access.tensor == name]
        return back, contributions

    def _tensor_cost(self, name: str, signature: tuple[object, ...]) -> tuple[float, float, float]:
        produced, wanted, back, contributions, target, boundary, policy, kept = signature
        tensor = self.workload.tensors[name]
        if tensor.kind == "weight":
            return self._weight_cost(name, produced, wanted, back, contributions, kept[0])  # type: ignore[index,arg-type]
        made = name in self.recompute.made
        traffic = tensor_traffic(produced, wanted, () if made else back, contributions, target, policy)
        tasks: list[Task] = []
        also = [traffic.saved] if traffic.saved is not None else []
        tasks += self._copies(name, dict(traffic.forward), [*wanted, *also], tensor.bytes)  # type: ignore[misc]
        if made:
            again = plan_copies([produced], [*wanted, *back])  # type: ignore[misc,list-item]
            tasks += self._copies(name, again, [*self._rewanted(name, wanted), *back], tensor.bytes)  # type: ignore[arg-type,misc]
        else:
            tasks += self._copies(name, dict(traffic.regather), back, tensor.bytes)  # type: ignore[arg-type]
        for layout, end, _ in traffic.gradients:
            tasks += self._steps(name, layout, end, tensor.bytes)
        tasks += self._edge(name, boundary)  # type: ignore[arg-type]
        return self._sum(tasks, self._local(tensor.bytes, traffic.saved) if traffic.saved is not None else 0.0)

    def _rewanted(self, name: str, wanted: Sequence[Layout]) -> list[Layout]:
        """Layouts that operations which run again want of a tensor made again (all of them when everything reruns)."""
        if len(self.recompute.rerun) == len(self.workload.ops):
            return list(wanted)
        raise TooLarge("selective recompute with free layouts")

    def _weight_cost(
        self, name: str, produced: Layout, wanted: Sequence[Layout], back: Sequence[Layout], contributions: Sequence[Layout], first: Layout
    ) -> tuple[float, float, float]:
        tensor, home, compute = self.workload.tensors[name], self.base.home(name), _whole(first)
        tasks: list[Task] = []
        if home.at is not None:
            tasks += [self._stream(name, compute, "broadcast", tensor.bytes, home.at)] * (1 + bool(back))
        elif self.backing:
            tasks.append(self._backing_task(name, "load", "read", produced))
        copies = plan_copies([produced], wanted)
        tasks += self._copies(name, copies, wanted, tensor.bytes, "weights")
        tasks += self._copies(name, plan_copies([produced], back), back, tensor.bytes, "weights")
        gradient = tensor.elements * self.workload.gradient_bits / 8
        rest = self._sharded(compute, home.axes if home.state == "shard" else ())
        for layout, _ in merged(contributions):
            if home.at is not None:
                tasks.append(self._stream(name, layout, "reduce", gradient, home.at))
                continue
            summed = tuple(now if end == FLAT else then for now, end, then in zip(layout, rest, compute, strict=True))
            tasks += self._steps(name, layout, summed, gradient, "weights") + self._steps(name, summed, rest, gradient, "weights")
            if home.state == "shard" and home.param == "replicate":
                tasks += self._steps(name, rest, compute, tensor.bytes, "weights")
        return self._sum(tasks, self._weight_bytes(name, compute))

    def _weight_bytes(self, name: str, compute: Layout) -> float:
        tensor, home = self.workload.tensors[name], self.base.home(name)
        if home.at is not None:
            return 0.0
        parts = [(tensor.bytes, home.param)]
        if self.workload.backward:
            parts.append((tensor.elements * self.workload.gradient_bits / 8, home.grad))
        if "optimizer" in self.workload.phases:
            parts.append((tensor.elements * self.workload.state_bits / 8, home.state))
        return sum(self._local(total, self._sharded(compute, home.axes if said == "shard" else ())) for total, said in parts)

    # -- pieces ----------------------------------------------------------------------------------------------------------

    def _copies(self, name: str, plan: dict[Layout, Layout], asked: Iterable[Layout], total: float, channel: str = "device") -> list[Task]:
        """Conversions of the copies that are asked for, and of those they are made from."""
        tasks: list[Task] = []
        done: set[Layout] = set()

        def make(layout: Layout) -> None:
            if layout in done or layout not in plan:
                return
            done.add(layout)
            make(plan[layout])
            tasks.extend(self._steps(name, plan[layout], layout, total, channel))

        for layout in asked:
            make(layout)
        return tasks

    def _steps(self, name: str, source: Layout, target: Layout, total: float, channel: str = "device") -> list[Task]:
        return [
            Task("collective", "forward", "", name, 0, step.collective, (), channel, step.axes, local(total, step.shape))
            for step in convert(source, target)
        ]

    def _stream(self, name: str, layout: Layout, action: str, total: float, level: str) -> Task:
        volume = Volume(total, tuple(axis for axis, p in enumerate(layout) if is_shard(p)))
        channel = "weights" if action == "broadcast" else "gradients"
        return Task("stream", "forward", "", name, 0, action, (), channel, (), volume, level=level, layout=layout)

    def _edge(self, name: str, boundary: Layout | None) -> list[Task]:
        if not self.backing or boundary is None or self.workload.tensors[name].bytes == 0:
            return []
        ends: list[tuple[str, str]] = [("load", "read")] if name in self.workload.inputs else [("store", "write")]
        if self.workload.backward:
            ends.append(("store", "write") if name in self.workload.inputs else ("load", "read"))
        return [self._backing_task(name, kind, action, boundary) for kind, action in ends]

    def _backing_task(self, name: str, kind: str, action: str, layout: Layout) -> Task:
        volume = local(self.workload.tensors[name].bytes, layout)
        return Task(kind, "forward", "", name, 0, action, (), volume=volume, level=self.backing, layout=layout)  # type: ignore[arg-type]

    def _sharded(self, layout: Layout, axes: Sequence[str]) -> Layout:
        return tuple(FLAT if p == REPLICATE and name in axes else p for p, name in zip(layout, self.mesh.axes, strict=True))

    def _local(self, total: float, layout: Layout) -> float:
        return float(local(total, layout).at(self.pricer.degrees)[0])

    def _sum(self, tasks: Iterable[Task], held: float) -> tuple[float, float, float]:
        latency = energy = 0.0
        for task in tasks:
            seconds, joules = self._price(task)
            hidden = self.hide_weights and task.channel != "device"
            latency, energy = latency + (0.0 if hidden else seconds), energy + joules
        times = self.workload.repeat
        return latency * times, energy * times, held * times

    def _price(self, task: Task) -> tuple[float, float]:
        if task.leg is not None:
            return self._priced(task)
        key = (task.kind, task.action, task.axes, task.volume, task.layout, task.level)
        if key not in self.memo:
            self.memo[key] = (*self._priced(task), 0.0)
        return self.memo[key][:2]

    def _priced(self, task: Task) -> tuple[float, float]:
        rows, duration = self.pricer.task(task)
        return float(np.asarray(duration).reshape(-1)[0]), float(sum(np.asarray(row.joules).reshape(-1)[0] for row in rows))

    def _factor(self, name: str, variables: tuple[str, ...], table: Array) -> Factor:
        shape = tuple(len(self.strategies[v]) for v in variables)
        power = self.pricer.static_watts
        latency = table[:, 0].reshape(shape)
        return Factor(name, variables, latency, table[:, 1].reshape(shape) + power * latency, table[:, 2].reshape(shape))


def _once(layouts: Iterable[Layout]) -> tuple[Layout, ...]:
    return tuple(dict.fromkeys(layouts))


def _whole(layout: Layout) -> Layout:
    return tuple(REPLICATE if p == PARTIAL else p for p in layout)


Cost = Callable[[Factor], Array]
