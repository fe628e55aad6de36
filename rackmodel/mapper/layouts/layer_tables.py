"""A layer's tables on many columns at once: what every choice of its operations over one axis costs at least, and holds at least.

    seconds   of one micro-batch: operations, and conversions of activations; what a window may hide still slows what hides it, so that a
              share of it, the profile's contention, is never hidden
    bytes     of one micro-batch: saved copies and masks
    remade    bytes of what is made again for a layer's backward pass, of one layer at a time
    update    seconds of the optimizer · rest: bytes of weights, gradients and state, of one layer

A column is a degree of the free axis, a degree of the axis over the batch, a number of micro-batches and a depth of the pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Generic, TypeVar

import numpy as np

from rackmodel.arrays import Array, Bools, Ints
from rackmodel.cost.program.tasks import Program, Task
from rackmodel.cost.step.columns import Columns
from rackmodel.cost.step.group import Job
from rackmodel.cost.step.tasks.jobs import roles_of
from rackmodel.cost.step.tasks.pricer import Pricer
from rackmodel.mapper.layouts.factors import FactorBuilder
from rackmodel.mapper.layouts.hosts import LayerHost, starts
from rackmodel.mapper.layouts.layer_prices import PARTS, Lanes, Openness, Part, Prices
from rackmodel.mapper.layouts.merged_kernels import Change, MergedLayer
from rackmodel.mapper.layouts.min_sum import Table, least_choice, least_of_operations, least_sum
from rackmodel.mapper.layouts.problem import LayoutProblem, OpenMesh
from rackmodel.mapper.layouts.tensor_tables import SAVES, Spend, TooLarge
from rackmodel.mapper.layouts.window_rooms import in_windows, side_of, sides_of
from rackmodel.mapper.rules import saveable
from rackmodel.model.layout import Choice, index_split
from rackmodel.model.mapping import HomeSpec, MapperSpec
from rackmodel.model.plan import Plan
from rackmodel.model.workload import Op, Section, one_section
from rackmodel.once import once

Fits = dict[str, Bools]
Known = dict[object, Any]
Attained = tuple[dict[str, Choice], dict[str, str]]
Made = TypeVar("Made")
SAVED = "save "
WEIGHED = ("update", "rest", "moving", "seconds", "ahead", "behind")  # of weights, beside what lanes take
INF = np.inf


class _Shared(Generic[Made]):
    """What of tables follows from columns, what is made again and how gradients are added up alone: made once for all homes."""

    def __init__(self, make: Callable[[Any], Made]) -> None:
        self.make, self.__doc__ = make, make.__doc__

    def __get__(self, tables: LayerTables, _: object = None) -> Made:
        return tables._once((self.make.__name__,), lambda: self.make(tables))

    def __set__(self, tables: LayerTables, value: object) -> None:  # so that what a base class remembers on the object does not hide it
        raise AttributeError(self.make.__name__)


class LayerTables(FactorBuilder):
    """The tables of one section. known: what tasks cost on these columns, and what tables of homes that add gradients up alike have in
    common. Raises InputError."""

    def __init__(self, job: Job, section: Section, columns: Columns, open_: Openness, known: Known) -> None:
        whole = one_section(section.workload, section.repeat)
        problem = _problem_of(whole, job.workload.batch, open_)
        super().__init__(job.setting, problem, job.profile, True)
        self.backing = ""  # what comes from there comes once a step
        self.open, self.columns, self.times, self.figures = open_, columns, whole.repeat * problem.micro_batches, known
        self.pricer = Pricer(job.setting, job.workload, self.base, columns, job.profile.buckets)
        self.n = len(columns)
        self.counts = {name: len(values) for name, values in self.strategies.items()}
        self.degrees = columns.degrees
        overlap = job.profile.overlap
        self.contention = float(np.min(overlap.contention))

    def _once(self, what: tuple[object, ...], make: Callable[[], Made]) -> Made:
        """As `_Shared`."""
        return once(self.figures, (*what, self.recompute, self.base.home("weights").grad), make)

    # -- pieces of FactorBuilder, on many columns ---------------------------------------------------------------------------------

    def _size(self, size: Array) -> Array:
        return np.broadcast_to(size, (self.n,))

    def whole(self, task: Task) -> tuple[Array, Array]:
        """Seconds and joules [n] of a task; equal tasks are priced once."""
        key = (task.kind, task.tensor, task.action, task.axes, task.volume, task.bucketed, task.layout, task.level, task.local_op)
        return once(self.figures, key, lambda: self._unknown(task))

    def _unknown(self, task: Task) -> tuple[Array, Array]:  # type: ignore[override]
        rows, duration = self.pricer.task(task)
        joules = sum((np.asarray(row.joules) for row in rows), np.zeros(self.n))
        return np.broadcast_to(duration, (self.n,)), np.broadcast_to(joules, (self.n,))

    def _op_tasks(self, op: Op, plan: Plan) -> list[Task]:
        merged = op.name in plan.joined, op.name in plan.handed, plan.summed.get(op.name, ())
        return self._once(("tasks", op.name, plan.choices[op.name], merged), lambda: super(LayerTables, self)._op_tasks(op, plan))

    def _spend(self, task: Task) -> tuple[Array, Array]:  # type: ignore[override]
        seconds, joules = self.whole(task)
        if not self._beside(task):
            return seconds, joules
        return (self.contention if task.channel == "device" else 0.0) * seconds, joules

    # -- tables -------------------------------------------------------------------------------------------------------------------

    @_Shared
    def operations(self) -> dict[str, tuple[Array, Array, Array]]:
        """Operation → [choices, n] seconds, joules and bytes."""
        found = {}
        for op in self.workload.ops.values():
            costs = [self._op_cost(op, self._plan({op.name: s})) for s in self.strategies[op.name]]
            each = [np.stack([np.broadcast_to(np.asarray(part), (self.n,)) for part in parts]) for parts in zip(*costs, strict=True)]
            seconds, joules, held = each[0] / self.times, each[1] / self.times, each[2] / self.workload.repeat
            found[op.name] = seconds, joules, held
        return found

    @cached_property
    def fits(self) -> dict[str, Bools]:
        """Operation → [choices, n] whether the free axis's degree divides what is split, and a column is one of layouts that split it."""
        return {op.name: self._fits(op) for op in self.workload.ops.values()}

    def _fits(self, op: Op) -> Bools:
        found = np.ones((len(self.strategies[op.name]), self.n), dtype=bool)
        data, degree, count = self.degrees.T
        for number, strategy in enumerate(self.strategies[op.name]):
            index = index_split(strategy[1])
            if index is not None and not self.open.mapper.may_be_uneven(index):
                size = self.workload.sizes[index]
                over = data * count if index == self.workload.batch else 1
                found[number] = np.maximum(size // over, 1) % degree == 0
            if index is not None and index == self.workload.batch:
                found[number] &= self.columns.micro_batch * count * data * degree <= self.workload.sizes[index]
        return found

    @cached_property
    def parts(self) -> list[Part]:
        """All that a layer costs."""
        found = []
        for name, (seconds, _, masks) in self.operations.items():
            held = {"remade": masks * self.workload.repeat} if name in self.recompute.rerun else {"bytes": masks}
            found.append(Part((name,), {"seconds": seconds, **held, "ahead": self._phases[name][0], "behind": self._phases[name][1]}))
        for one in self.changes:
            each = {"seconds": one.seconds, "ahead": one.ahead, "behind": one.behind}
            found.append(Part(one.operations, {kind: one.of_values(figures) for kind, figures in each.items()}))
        return [*found, *self._copies, *self._weights, *self._lane_parts]

    @_Shared
    def merged(self) -> MergedLayer:
        """The operations whose kernels may be merged."""
        return replace(super().merged, tail=(self.n,), starts=partial(starts, self))

    @_Shared
    def host(self) -> LayerHost:
        """What the host takes for its passes."""
        return LayerHost.of(self)

    @_Shared
    def changes(self) -> list[Change]:
        """Of kernels that take operations together."""
        return self.merged.changes(wide=True)

    @_Shared
    def _copies(self) -> list[Part]:
        """Those of each tensor that is no weight: the saved copy is one of their variables."""
        found: list[Part] = []
        sides = sides_of(self.profile)
        for each in zip(*(self.copied(partial(self._split, side)) for side in sides), strict=True):
            name, variables, (exposed, _, held, ahead, _) = each[0]
            hidable = {side: (whole, first) for side, (*_, (_, whole, _, _, first)) in zip(sides, each, strict=True)}
            forward = ahead, {side: first for side, (_, first) in hidable.items()}
            behind = exposed - ahead, {side: whole - first for side, (whole, first) in hidable.items()}
            variables, *passes = in_windows(self, name, variables, forward, behind)
            held = held.reshape((*held.shape[:-1], *(1,) * (passes[0].ndim - held.ndim), self.n))
            kept = {"remade": held * self.workload.repeat} if name in self.recompute.made else {"bytes": held}
            found.append(Part(variables, {"seconds": passes[0] + passes[1], **kept, "ahead": passes[0], "behind": passes[1]}))
        return found

    def copied(self, spend: Spend) -> Iterator[tuple[str, tuple[str, ...], list[Array]]]:
        """(tensor, variables, figures over their values and the columns) of each tensor that is no weight: two of its copies and sums,
        bytes held, and the two of forward passes alone. spend: the two of a task."""
        tables, repeat = self._tables(spend, 1, (self.n,)), self.workload.repeat
        for name, tensor in self.workload.tensors.items():
            edge = name in self.workload.inputs or name in self.workload.outputs
            if tensor.kind == "weight" or (edge and not self.open.edges):
                continue
            policies = SAVES if name in saveable(self.workload) else (self.base.save_policy(name),)
            try:
                table = tables.table(name, policies, [HomeSpec()])
            except TooLarge:
                continue
            variables = (*table.variables, f"{SAVED}{name}") if len(policies) > 1 else table.variables
            whole = table.seconds, table.joules, table.bytes, table.ahead_seconds, table.ahead_joules
            yield name, variables, [f[tuple(np.ix_(*table.classes))] / repeat if table.classes else f / repeat for f in whole]

    def _split(self, side: str, task: Task) -> tuple[Array, Array]:
        """Seconds [n] of a task that nothing hides, and those that a window of a side may."""
        seconds, none = self.whole(task)[0], np.zeros(self.n)
        if not self._beside(task):
            return seconds, none
        return none, seconds if task.channel == "device" and side_of(self.profile, task.action) == side else none

    def tasks(self, name: str, number: int) -> list[Task]:
        """What a choice of an operation runs in one micro-batch."""
        return self._op_tasks(self.workload.ops[name], self._plan({name: self.strategies[name][number]}))

    @cached_property
    def _weights(self) -> list[Part]:
        """Of each weight that one operation reads, but what it keeps lanes busy."""
        return [Part((op,), {kind: figures[kind] for kind in WEIGHED}) for op, figures in self.moved]

    @cached_property
    def moved(self) -> list[tuple[str, dict[str, Array]]]:
        """(operation, figure → [choices, n]) of each weight that one operation reads: those of `Part`, and seconds on lanes of `Lanes`."""
        found, interfaces, home = [], self._interfaces, self.open.home
        for name in self.workload.weights if home is not None else ():
            if home is not None and len(set(self.workload.readers[name])) == 1:
                (faces,) = interfaces.of(name)
                each = [self._of_weight(self._derived(name, {faces.operation: one}, home)) for one in faces.strategies]
                found.append((faces.operation, {kind: np.stack([one[kind] for one in each])[faces.which] for kind in each[0]}))
        return found

    def _of_weight(self, program: Program) -> dict[str, Array]:
        """[n] figures of a weight: of lanes, seconds of the optimizer, of copies that the device makes, bytes held, and bytes gathered or
        about to be reduced."""
        found = {kind: np.zeros(self.n) for kind in (*PARTS, *WEIGHED)}
        for task, role in zip(program.tasks, roles_of(program.tasks), strict=True):
            phase = "ahead" if task.phase == "forward" else "behind"
            if role == "device" and not task.joins:
                seconds = self._spend(task)[0]
                found["seconds"], found[phase] = found["seconds"] + seconds, found[phase] + seconds
            elif not task.joins:
                kind = {"gather": "forward" if phase == "ahead" else "backward", "reduce": "reduced"}.get(role, role)
                found[kind] = found[kind] + self.whole(task)[0]
        for held in program.held:
            if held.what in ("weights", "gradients", "optimizer", "gathered"):
                kind = "moving" if held.what == "gathered" else "rest"
                found[kind] = found[kind] + self._at(held)
        return found

    @cached_property
    def lanes(self) -> Lanes:
        """What weights keep lanes busy, each in the layout that moves least."""
        least = {part: sum((each[part].min(axis=0) for _, each in self.moved), np.zeros(self.n)) for part in PARTS}
        return Lanes(**least, shared=self.shared)

    @property
    def shared(self) -> bool:
        """Whether gathers and reductions take turns on one lane."""
        return self.profile.overlap.channels == "shared"

    # -- least sums ---------------------------------------------------------------------------------------------------------------

    def in_time(self, which: Ints, most: Array) -> Fits:
        """Choices on some columns that leave the lanes less to do than `most` seconds a layer, whatever the others are."""
        lanes = [(part.variables[0], part.figures["lane"]) for part in self._lane_parts]
        least = sum((cost.min(axis=0) for _, cost in lanes), np.zeros(self.n))[which]
        found = {name: fits[:, which] for name, fits in self.fits.items()}
        for op in dict.fromkeys(op for op, _ in lanes):
            more = sum(cost[:, which] - cost[:, which].min(axis=0) for other, cost in lanes if other == op)
            found[op] = found[op] & (least + more <= most)
        return found

    def least(self, which: Ints, price: Prices, fits: Fits | None = None, copies: int = 1) -> Array:
        """The least weighted sum over all choices, on some columns, of which the prices are; infinite where none fits. fits: those looked
        at there, default all that divide. copies: how often the same columns stand one after another."""
        return least_sum(self._weighted(which, price, fits), self.counted, len(which), copies)

    def attaining(self, column: int, price: Prices) -> Attained:
        """What attains it on one column: operation → what it splits over the free axis, and tensor → its saved copy where that is another
        than a shard."""
        found = least_choice(self._weighted(np.array([column]), price, None), self.counted)
        choices = {name: self.strategies[name][found[name]][1] for name in self.strategies}
        saved = {name.removeprefix(SAVED): SAVES[value] for name, value in found.items() if name.startswith(SAVED) and value}
        return choices, saved

    @property
    def counted(self) -> dict[str, int]:
        """Values of each variable: choices of an operation, copies of a tensor."""
        saved = {v: len(SAVES) for part in self._copies for v in part.variables if v not in self.counts}
        return {**self.counts, **saved}

    def _weighted(self, which: Ints, price: Prices, fits: Fits | None) -> list[Table]:
        """The tables on some columns, weighted by their prices."""
        fits = fits or {name: own[:, which] for name, own in self.fits.items()}
        prices = {kind: said for kind, said in price.each.items() if said.any()}
        tables = [Table((name,), np.where(own, 0.0, INF)) for name, own in fits.items()]
        for part in (*self.parts, *(self.host.parts if {"host", "host_weight"} & prices.keys() else ())):
            priced = [prices[kind] * figures[..., which] for kind, figures in part.figures.items() if kind in prices]
            if priced:
                tables.append(Table(part.variables, sum(priced[1:], priced[0])))
        return tables

    @cached_property
    def _lane_parts(self) -> list[Part]:
        """What each weight keeps the lanes busy, by the choice of the operation that reads it."""
        m = self.columns.micro_batches.astype(np.float64)
        share = 1.0 if self.shared else 0.5  # the busiest of two has at least half
        each = [
            (op, share * (m * (part["forward"] + part["backward"] + part["reduced"]) + part["spread"] + part["tail"]))
            for op, part in self.moved
        ]
        return [Part((op,), {"lane": seconds}) for op, seconds in each]

    @property
    def alone(self) -> tuple[Array, Array]:
        """[n] seconds and joules of a micro-batch's operations, each under its own best choice."""
        found = []
        for kind in (0, 1):
            costs = {name: np.where(self.fits[name], each[kind], INF) for name, each in self.operations.items()}
            alone = {name: np.where(np.isinf(cost.min(axis=0)), 0.0, cost) for name, cost in costs.items()}
            changed = [Table(one.operations, one.of_values((one.seconds, one.joules)[kind])) for one in self.changes]
            found.append(least_of_operations(alone, changed, self.n))
        return found[0], found[1]

    @property
    def least_rest(self) -> Array:
        """[n] bytes of weights and state, at least."""
        return np.asarray(sum((part.figures["rest"].min(axis=0) for part in self._weights), np.zeros(self.n)))

    @_Shared
    def least_phases(self) -> tuple[Array, Array]:
        """[n] least seconds on the device, forward and behind it."""
        which, none = np.arange(self.n), np.zeros(self.n)
        zero = Prices(seconds=none, bytes=none, update=none, rest=none, moving=none, lane=none)
        ahead, behind = (self.least(which, replace(zero, **{kind: none + 1.0})) for kind in ("ahead", "behind"))
        return np.where(np.isinf(ahead), 0.0, ahead), np.where(np.isinf(behind), 0.0, behind)

    @_Shared
    def least_bytes(self) -> Array:
        """[n] bytes of a micro-batch, at least."""
        none = np.zeros(self.n)
        price = Prices(seconds=none, bytes=none + 1.0, update=none, rest=none, moving=none, lane=none)
        found = self.least(np.arange(self.n), price)
        return np.where(np.isinf(found), 0.0, found)

    @_Shared
    def working(self) -> dict[str, Array]:
        """Operation → [choices, n] bytes of its largest pass."""
        return {op.name: self._workspace(op) for op in self.workload.ops.values()}

    @_Shared
    def _phases(self) -> dict[str, tuple[Array, Array]]:
        """Operation → [choices, n] seconds of a micro-batch, forward and behind it."""
        found = {}
        for name, strategies in self.strategies.items():
            each = np.zeros((2, len(strategies), self.n))
            for number in range(len(strategies)):
                for task in self.tasks(name, number):
                    each[int(task.phase != "forward"), number] += self._spend(task)[0]
            found[name] = each[0], each[1]
        return found


def _problem_of(workload: object, batch: str, open_: Openness) -> LayoutProblem:
    """The layout problem of a layer over two axes and micro-batches: the batch over one, every choice over the other."""
    said = {
        "mapper": "free",
        "axes": {open_.data: {"degree": 2}, open_.axis: {"degree": 2}},
        "split": {open_.data: [batch], open_.axis: "free"},
        "save": "free",
        "homes": {"weights": open_.home or HomeSpec(axes=[open_.data], grad="shard", state="shard")},  # the least: no sum is read here
    }
    one = MapperSpec.model_validate(said)
    any_degree = one.model_copy(update={"uneven": "ceil"})
    subs = ((open_.data, (), open_.data), (open_.axis, (), open_.axis))
    mesh = OpenMesh.of(any_degree, workload, subs, (2, 2), (2, 1), 2)  # type: ignore[arg-type]
    asked = one.model_copy(update={"uneven": open_.mapper.uneven})
    return LayoutProblem(asked, workload, mesh, open_.recompute)  # type: ignore[arg-type]
