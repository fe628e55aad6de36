"""Cost tables: what each operation, tensor and weight costs as a function of the choices that touch it.

Serial time, energy and memory of a mapping are sums of such local terms (one an operation, one a tensor). What an operation runs and
holds, and what a weight does, is asked of derivation for that alone (cost/program/passes, footprint, `derive_weight`) and priced as a
mapping is, so that a rule of the engine counts here; what copies of activations take, `tensor_tables` says. That sum is what elimination,
CP-SAT and the grid minimise. A table is kept over classes of strategies that cost the same in it, which is what keeps two free axes small.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from typing import Any

import numpy as np

from rackmodel.arrays import Array
from rackmodel.cost.program.derive import derive_weight
from rackmodel.cost.program.footprint import held_alone
from rackmodel.cost.program.fusion import loosest, plainest, sums_before_norms
from rackmodel.cost.program.local_ops import backward_ops, has_backward
from rackmodel.cost.program.passes import tasks_alone
from rackmodel.cost.program.recompute import recompute_of
from rackmodel.cost.program.tasks import Held, Program, Task, local
from rackmodel.cost.step.bounds.memory import BUFFERS
from rackmodel.cost.step.ledger import second_watts
from rackmodel.cost.step.setting import Setting
from rackmodel.cost.step.tasks.pricer import Pricer, backing_level
from rackmodel.mapper.layouts.interfaces import Index, Interfaces, Strategy
from rackmodel.mapper.layouts.kernel_groups import KernelGroup, alone, groups_of
from rackmodel.mapper.layouts.merged_kernels import Change, MergedLayer
from rackmodel.mapper.layouts.min_sum import Table, least_of_operations
from rackmodel.mapper.layouts.problem import LayoutProblem
from rackmodel.mapper.layouts.refinement import Refinement
from rackmodel.mapper.layouts.region_savings import priced
from rackmodel.mapper.layouts.tensor_tables import SAVES, Spend, TableSetting, TensorTables
from rackmodel.mapper.nests.loop_nests import NestInside
from rackmodel.mapper.rules import saveable
from rackmodel.model.layout import Layout
from rackmodel.model.mapping import HomeSpec
from rackmodel.model.plan import Plan
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.room import room_of
from rackmodel.model.workload import Op, Tensor
from rackmodel.once import once

HOMES = ("replicate", "state", "grad", "param")  # what is sharded: nothing, or ZeRO 1, 2, 3


@dataclass(frozen=True)
class Factor:
    """A table over some variables. classes: value → class, for each variable · seconds, joules, bytes: one dimension a
    variable, over its classes · latency, energy, memory: the same over its values."""

    name: str
    variables: tuple[str, ...]
    classes: tuple[Index, ...]
    seconds: Array
    joules: Array
    bytes: Array

    @cached_property
    def latency(self) -> Array:
        """Seconds for each combination of values."""
        return self.seconds[np.ix_(*self.classes)]

    @cached_property
    def energy(self) -> Array:
        """Joules for each combination of values."""
        return self.joules[np.ix_(*self.classes)]

    @cached_property
    def memory(self) -> Array:
        """Bytes for each combination of values."""
        return self.bytes[np.ix_(*self.classes)]

    @property
    def by_class(self) -> Factor:
        """The same table as if every class were a value."""
        return replace(self, classes=tuple(np.arange(n) for n in self.seconds.shape))

    def at(self, chosen: Mapping[str, int]) -> tuple[float, float, float]:
        """(seconds, joules, bytes) of one assignment."""
        cell = tuple(which[chosen[v]] for v, which in zip(self.variables, self.classes, strict=True))
        return float(self.seconds[cell]), float(self.joules[cell]), float(self.bytes[cell])

    def only(self, keep: Mapping[str, Index]) -> Factor:
        """The table over some values of its variables."""
        used, classes = [], []
        for variable, which in zip(self.variables, self.classes, strict=True):
            left, again = np.unique(which[keep[variable]], return_inverse=True)
            used.append(left)
            classes.append(again)
        cells = np.ix_(*used)
        return Factor(self.name, self.variables, tuple(classes), self.seconds[cells], self.joules[cells], self.bytes[cells])


@dataclass(frozen=True)
class OpenFactor:
    """A table of operations that may be one kernel, whose cells are lower bounds until what is fused there is settled. place: among the
    factors · group: that settles it · make: the table by what is settled · version: of the group, as the factor is."""

    place: int
    group: KernelGroup
    make: Callable[[], Factor]
    version: int = -1

    def now(self) -> OpenFactor:
        """With the version of its group."""
        return replace(self, version=self.group.version)


@dataclass(frozen=True)
class Cap:
    """latency · seconds + energy · joules <= most: a limit as a sum over the tables."""

    latency: float
    energy: float
    most: float


@dataclass(frozen=True)
class Factors:
    """The layout problem of one mesh. Its variables: operations, over their strategies, and 'save T' and 'home W', over the words of
    `decisions` (SAVES, HOMES), in a fixed order · working: op → bytes a forward-only pass holds for it, by strategy · home_axes:
    axes of the free homes · caps: what limits ask of sums over the tables · open: those of the factors that are bounds until settled."""

    strategies: dict[str, tuple[Strategy, ...]]
    decisions: dict[str, tuple[str, ...]]
    factors: tuple[Factor, ...]
    working: dict[str, Array]
    capacity: float | None
    home_axes: tuple[str, ...] = ()
    caps: tuple[Cap, ...] = ()
    open: tuple[OpenFactor, ...] = ()

    @cached_property
    def refinement(self) -> Refinement:
        """What of their elimination their classes alone decide, whatever the prices."""
        return Refinement()

    @property
    def counts(self) -> dict[str, int]:
        """Variable → number of its values."""
        return {name: len(values) for name, values in (*self.strategies.items(), *self.decisions.items())}

    def widest(self, chosen: Mapping[str, int]) -> float:
        """Bytes that the widest pass of an assignment works on."""
        return max((float(sizes[chosen[name]]) for name, sizes in self.working.items()), default=0.0)

    @property
    def size(self) -> float:
        """Points of the space."""
        return float(np.prod([float(count) for count in self.counts.values()]))

    def only(self, keep: Mapping[str, Index]) -> Factors:
        """The problem with some values of each variable. keep: variable → positions left, in order."""
        strategies = {name: tuple(values[i] for i in keep[name]) for name, values in self.strategies.items()}
        decisions = {name: tuple(words[i] for i in keep[name]) for name, words in self.decisions.items()}
        working = {name: sizes[keep[name]] for name, sizes in self.working.items()}
        tables = tuple(f.only(keep) for f in self.factors)
        return replace(self, strategies=strategies, decisions=decisions, factors=tables, working=working, open=())

    def settled(self, chosen: Mapping[str, int]) -> Factors:
        """The problem whose tables price an assignment exactly; the same object where they did."""
        for one in self.open:
            factor = self.factors[one.place]
            one.group.settle(tuple(int(which[chosen[v]]) for v, which in zip(factor.variables, factor.classes, strict=True)))
        return self.now()

    def whole(self) -> Factors:
        """The problem whose tables price every assignment exactly."""
        for one in self.open:
            one.group.settle_all()
        return self.now()

    def now(self) -> Factors:
        """The problem by what is settled now."""
        if all(one.version == one.group.version for one in self.open):
            return self
        made = {one.place: one.make() for one in self.open}
        tables = tuple(made.get(place, factor) for place, factor in enumerate(self.factors))
        return replace(self, factors=tables, open=tuple(one.now() for one in self.open))

    def plan(self, problem: LayoutProblem, chosen: Mapping[str, int]) -> Plan:
        """The plan of one assignment."""
        strategies = {op: values[chosen[op]] for op, values in self.strategies.items()}
        said = {name: words[chosen[name]] for name, words in self.decisions.items()}
        save = {name.removeprefix("save "): word for name, word in said.items() if name.startswith("save ")}
        plan = problem.plan(strategies, save if problem.mapper.save == "free" else None)
        homes = {name.removeprefix("home "): home_of(word, self.home_axes) for name, word in said.items() if name.startswith("home ")}
        return replace(plan, homes={**plan.homes, **homes}) if homes else plan


def home_of(sharded: str, axes: Sequence[str]) -> HomeSpec:
    """The home in which `sharded` (of HOMES) and everything larger in optimizer bytes is sharded over `axes`."""
    reach = HOMES.index(sharded)
    said = {part: "shard" for part, depth in (("state", 1), ("grad", 2), ("param", 3)) if reach >= depth}
    return HomeSpec.model_validate({"axes": list(axes) if reach else [], **said})


def build_factors(machine: Setting, problem: LayoutProblem, profile: ProfileSpec, *, bound: bool = False) -> Factors:
    """Tables of one problem. bound: sums that no plan undercuts under the profile: what may run beside something else takes no time, what
    could stay on the chip does; else the plan runs its tasks one after another. Cells where it is open what is fused are lower bounds
    (`Factors.settled`).

    Raises TooLarge.
    """
    return FactorBuilder(machine, problem, profile, bound).build()


def least_operations(machine: Setting, problem: LayoutProblem, profile: ProfileSpec) -> tuple[float, float]:
    """(seconds, joules without static power) of a problem's operations, each under its own best choice: no plan undercuts the sums."""
    return FactorBuilder(machine, problem, profile, bound=True).least_operations()


class FactorBuilder:
    """Builds the tables of one problem. bound: as of `build_factors`."""

    def __init__(self, machine: Setting, problem: LayoutProblem, profile: ProfileSpec, bound: bool) -> None:
        self.problem, self.profile, self.bound = problem, profile, bound
        self.mesh, self.workload, self.architecture = problem.mesh, problem.workload, machine.architecture
        self.micro_batches, self.free_homes = problem.micro_batches, problem.home_axes
        first = {name: tuple(choices[0] for choices in per_axis) for name, per_axis in self.mesh.domains.items()}
        self.base = (loosest if bound else plainest)(self.workload, problem.plan(first), profile)
        self.inside = machine.inside
        self.pricer = Pricer(replace(machine, inside=alone(machine.inside)), self.workload, self.base, problem.columns, profile.buckets)
        self.static_w = second_watts(machine)
        self.strategies: dict[str, tuple[Strategy, ...]] = {
            name: tuple(itertools.product(*per_axis)) for name, per_axis in self.mesh.domains.items()
        }
        self.recompute, self.backing = recompute_of(self.workload, self.base), backing_level(self.architecture)
        self.memo: dict[object, tuple[float, float]] = {}
        groups = groups_of(machine.inside, self.workload, self._read_later)
        made = (self.pricer, self.strategies, self._forward_tasks, self._layouts)
        self.groups = [KernelGroup(one, *made) for one in groups]
        self.grouped = {op.name for group in self.groups for op in group.ops}

    def build(self) -> Factors:
        factors = [self._op_factor(op) for op in self.workload.ops.values()]
        opened = [OpenFactor(len(factors) + n, one, partial(self._group_factor, n, one)) for n, one in enumerate(self._opened)]
        factors += [one.make() for one in opened]
        factors += [self._change_factor(n, one) for n, one in enumerate(self.merged.changes(wide=False))]
        tables = self._tables(self._spend, self.micro_batches)
        decisions: dict[str, tuple[str, ...]] = {}
        for name in self.workload.tensors:
            factors.append(self._tensor_factor(tables, name, decisions))
        capacity = room_of(self.architecture, self.profile).limit
        working = {op.name: self._workspace(op)[:, 0] for op in self.workload.ops.values()}
        given = (self.strategies, decisions, tuple(factors), working, capacity, self.free_homes)
        return Factors(*given, open=tuple(one.now() for one in opened))

    def least_operations(self) -> tuple[float, float]:
        """The sum over operations of each one's least seconds, and of its least joules."""
        each = {
            op.name: [self._op_cost(op, self._plan({op.name: s})) for s in self.strategies[op.name]] for op in self.workload.ops.values()
        }
        times, fused = self.workload.repeat * self.micro_batches, [group.least() for group in self._opened]
        found = []
        for kind in (0, 1):
            alone = {name: np.array([cost[kind] for cost in costs])[:, None] for name, costs in each.items()}
            changed = [Table(one.operations, one.of_values((one.seconds, one.joules)[kind])[..., None] * times) for one in self._changes]
            found.append(least_of_operations(alone, changed, 1).item() + sum(figures[kind] for figures in fused) * times)
        return found[0], found[1]

    # -- operations that a profile's kernels take together ---------------------------------------------------------------------

    @cached_property
    def merged(self) -> MergedLayer:
        """The operations whose kernels may be merged."""
        return MergedLayer(
            workload=self.workload,
            merged=self.profile.merged,
            strategies=self.strategies,
            plan=self._plan,
            tasks=self._op_tasks,
            degrees=self.pricer.degrees,
            spend=self._spend,
            unknown=self._unknown,
        )

    @property
    def _changes(self) -> list[Change]:
        """What merged kernels change, at most nothing: over axes that are not looked at, less may be merged."""
        each = self.merged.changes(wide=True)
        return [replace(one, **{name: np.minimum(getattr(one, name), 0.0) for name in ("ahead", "behind", "joules")}) for one in each]

    def _change_factor(self, number: int, change: Change) -> Factor:
        times = self.workload.repeat * self.micro_batches
        figures = (change.seconds * times, change.joules * times, np.zeros(change.seconds.shape))
        return self._factor(f"merged {number}", change.operations, change.classes, *figures)

    def _unknown(self, task: Task) -> tuple[float, float]:
        return priced(self.pricer, task)

    # -- operations that may be one kernel -----------------------------------------------------------------------------------

    @cached_property
    def _opened(self) -> list[KernelGroup]:
        """Groups of operations that may be fused, looked at. Raises TooLarge."""
        if isinstance(self.inside, NestInside):
            for group in self.groups:
                group.open(self.inside, self._priced)
        return self.groups

    def _group_factor(self, number: int, group: KernelGroup) -> Factor:
        times, table = self.workload.repeat * self.micro_batches, group.table()
        figures = (table.seconds * times, table.joules * times, np.zeros(table.seconds.shape))
        return self._factor(f"kernels {number}", table.operations, table.classes, *figures)

    def _forward_tasks(self, op: Op, strategy: Strategy) -> list[Task]:
        """What an operation runs forward and again, and collectives of its forward pass."""
        tasks = self._op_tasks(op, self._plan({op.name: strategy}))
        return [task for task in tasks if (_runs_forward(op, task) if task.kind == "op" else task.phase == "forward")]

    def _layouts(self, op: Op, strategy: Strategy) -> tuple[Layout, list[Layout]]:
        """(layout that an operation leaves its result in, layouts in which it reads its operands)."""
        plan = self._plan({op.name: strategy})
        return plan.leaves(op), [plan.needs(op, position, self.workload) for position in range(len(op.ins))]

    @property
    def _read_later(self) -> frozenset[str]:
        """Tensors that the backward pass reads, whatever the layouts."""
        if not self.workload.backward:
            return frozenset()
        ops = [op for op in self.workload.ops.values() if has_backward(op, self.workload)]
        passes = [one for op in ops for one in backward_ops(op, self._plan({op.name: self.strategies[op.name][0]}), self.workload)]
        return frozenset(flow.name for local_op in passes for flow in local_op.reads)

    # -- tensors ---------------------------------------------------------------------------------------------------------

    @property
    def _interfaces(self) -> Interfaces:
        """What operations show tensors."""
        return Interfaces(self.workload, self.recompute, self.problem.boundary, self.strategies, self._plan)

    def _tables(self, spend: Spend, micro_batches: int, tail: tuple[int, ...] = ()) -> TensorTables:
        """What builds the tables of tensors. spend, micro_batches, tail: as of TableSetting."""
        setting = TableSetting(
            workload=self.workload,
            plan=self.base,
            made_again=self.recompute.made,
            spend=spend,
            share=self._local,
            derived=self._derived,
            held=self._held_of_weight,
            backing=self.backing,
            micro_batches=micro_batches,
            tail=tail,
        )
        return TensorTables(setting, self._interfaces)

    def _tensor_factor(self, tables: TensorTables, name: str, decisions: dict[str, tuple[str, ...]]) -> Factor:
        """The table of a tensor; its decisions (which copy is saved, where a weight lives) are added to `decisions`."""
        policies, homes = [self.base.save_policy(name)], [self.base.home(name)]
        decision = ""
        words: tuple[str, ...] = ()
        if self.problem.mapper.save == "free" and name in saveable(self.workload):
            policies, decision, words = list(SAVES), f"save {name}", SAVES
        elif self.free_homes and self.workload.tensors[name].kind == "weight" and name not in self.base.homes:
            kinds = HOMES if self.workload.backward else (HOMES[0], HOMES[-1])
            homes, decision, words = [home_of(word, self.free_homes) for word in kinds], f"home {name}", kinds
        table = tables.table(name, policies, homes)
        variables, classes = table.variables, table.classes
        if decision:
            decisions[decision] = words
            variables, classes = (*variables, decision), (*classes, np.arange(len(words)))
        return self._factor(f"tensor {name}", variables, classes, table.seconds, table.joules, table.bytes)

    def _derived(self, name: str, choices: dict[str, Strategy], home: HomeSpec) -> Program:
        """What a program does of a weight."""
        plan = replace(self.base, choices=choices, homes={**self.base.homes, name: home})
        return derive_weight(name, self.workload, plan, self.backing, self.workload.repeat, self.recompute)

    def _held_of_weight(self, program: Program) -> float:
        """Bytes of one layer that are held of it, with its part of the two layers that are gathered."""
        times = {"weights": 1.0, "gradients": 1.0, "optimizer": 1.0, "gathered": BUFFERS / self.workload.repeat}
        return float(sum(times[one.what] * self._at(one) for one in program.held if one.what in times and not one.level))

    # -- operations ------------------------------------------------------------------------------------------------------

    def _plan(self, choices: Mapping[str, Strategy], grads: Mapping[str, str] | None = None) -> Plan:
        """grads: weight → how its home keeps its gradient, of free homes: of those that keep it so, the one that shards least else."""
        homes = {name: home_of("grad" if said == "shard" else "replicate", self.free_homes) for name, said in (grads or {}).items()}
        return replace(self.base, choices=choices, homes={**self.base.homes, **homes})

    def _op_factor(self, op: Op) -> Factor:
        """The table of an operation: of its choice, and where gradients are added up of whether its weights' free homes shard them."""
        strategies, weights = self.strategies[op.name], self._free_sums(op)
        whether = [home_of(word, self.free_homes).grad for word in HOMES] if weights else []
        apart = dict.fromkeys(whether)
        costs = [
            self._op_cost(op, self._plan({op.name: s}, dict(zip(weights, said, strict=True))))
            for s in strategies
            for said in itertools.product(apart, repeat=len(weights))
        ]
        shape = (len(strategies), *(len(apart) for _ in weights))
        figures = (part.reshape(shape) for part in np.array(costs, dtype=np.float64).reshape(-1, 3).T)
        of_home = np.array([list(apart).index(said) for said in whether])
        classes = (np.arange(len(strategies)), *(of_home for _ in weights))
        return self._factor(f"op {op.name}", (op.name, *(f"home {w}" for w in weights)), classes, *figures)

    def _free_sums(self, op: Op) -> list[str]:
        """Weights of an operation whose micro-batches add in place or not, as their free home says."""
        if not (self.free_homes and self.workload.backward and (self.micro_batches > 1 or self.base.adds_apart)):
            return []
        names = dict.fromkeys(access.tensor for access in op.ins if self.workload.tensors[access.tensor].kind == "weight")
        return [name for name in names if name not in self.base.homes]

    def _op_tasks(self, op: Op, plan: Plan) -> list[Task]:
        """What one micro-batch runs of an operation."""
        return tasks_alone(op, self.workload, plan, self.recompute)

    def _op_cost(self, op: Op, plan: Plan) -> tuple[float, float, float]:
        kept = [one for one in self._held(op, plan) if one.what != "working"]
        held = sum(self._at(one) / (self.workload.repeat if one.what == "remade" else 1) for one in kept)  # remade: of one layer at a time
        tasks = [task for task in self._op_tasks(op, plan) if not (op.name in self.grouped and _runs_forward(op, task))]
        spent = [self._spend(task) for task in tasks]
        times = self.workload.repeat * self.micro_batches
        return sum(s for s, _ in spent) * times, sum(j for _, j in spent) * times, held * self.workload.repeat

    def _held(self, op: Op, plan: Plan) -> list[Held]:
        return held_alone(op, self.workload, plan.room, self.recompute)

    def _workspace(self, op: Op) -> Array:
        """[choices, columns] bytes of its largest pass, at least."""
        found = np.zeros((len(self.strategies[op.name]), len(self.pricer.degrees)))
        for own, strategy in zip(found, self.strategies[op.name] if not self.architecture.adds_on_the_way else (), strict=False):
            passes: dict[str, Any] = {}
            for one in self._held(op, self._leanest({op.name: strategy})):
                if one.what == "working":
                    passes[one.tensor] = passes.get(one.tensor, 0.0) + self._at(one)
            own[:] = reduce(np.maximum, passes.values(), 0.0)
        return found

    def _leanest(self, choices: dict[str, Strategy]) -> Plan:
        """The plan whose passes hold least: normalisations that may make the sum before them do."""
        plan = self._plan(choices)
        if not (self.bound and self.profile.merged.residuals):
            return plan
        return replace(plan, handed=frozenset(norm.name for norm, _ in sums_before_norms(self.workload)))

    # -- pieces ----------------------------------------------------------------------------------------------------------

    def _local(self, total: float, layout: Layout, tensor: Tensor) -> Any:
        return self._size(local(total, layout, tensor, self.base.room).fullest(self.pricer.degrees))

    def _at(self, held: Held) -> Any:
        return self._size(held.at(self.pricer.degrees))

    def _size(self, size: Array) -> Any:
        """Bytes of every column: here of the only one."""
        return float(size[0])

    def _spend(self, task: Task) -> tuple[float, float]:
        """Seconds and joules of a task, without seconds of what may run beside something else where a bound is made."""
        seconds, joules = self._priced(task)
        return (0.0 if self.bound and self._beside(task) else seconds), joules

    def _priced(self, task: Task) -> tuple[float, float]:
        """Seconds and joules of a task; equal tasks are priced once."""
        moved = (task.kind, task.action, task.axes, task.volume, task.bucketed, task.layout, task.level)
        return once(self.memo, moved if task.local_op is None else (task.local_op, task.level), lambda: priced(self.pricer, task))

    def _beside(self, task: Task) -> bool:
        """Whether a task may run beside something else under the profile."""
        overlap = self.profile.overlap
        if task.channel != "device":
            return overlap.weights or overlap.hides_gradients
        window = overlap.windows.get(task.action) if task.kind == "collective" else None  # type: ignore[call-overload]
        return window is not None and window.beside != "none"

    def _factor(self, name: str, variables: tuple[str, ...], classes: tuple[Index, ...], *figures: Array) -> Factor:
        seconds, joules, held = figures
        return Factor(name, variables, classes, seconds, joules + self.static_w * seconds, held)


def _runs_forward(op: Op, task: Task) -> bool:
    """Whether a task is an operation's forward pass, or runs it again: not what casts its operands."""
    return task.kind == "op" and task.phase in ("forward", "recompute") and task.tensor == op.out.tensor
