"""What one operation runs: its passes, and what goes with each whatever brings its operands to it and takes on what it makes.

    forward    what neighbours send of its operands · casts, kernels around attention · the pass · what it sums over accelerators
    backward   the same of what it reads again · sums · casts · its passes · what neighbours send of gradients, and what adds these up

Derivation brings copies to it; without them it is what an operation takes alone, which tables of layouts ask for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rackmodel.cost.program.around import Around, around
from rackmodel.cost.program.local_ops import STATISTIC_BYTES, backward_ops, cast_ops, forward_op, head_ops, statistics_rows
from rackmodel.cost.program.recompute import Recompute, made_again
from rackmodel.cost.program.tasks import LocalOp, Task
from rackmodel.cost.program.update_ops import add_op
from rackmodel.cost.program.wanted import Place
from rackmodel.model.layout import Layout
from rackmodel.model.plan import Plan
from rackmodel.model.workload import Op, Workload


def tasks_alone(op: Op, workload: Workload, plan: Plan, recompute: Recompute) -> list[Task]:
    """What one micro-batch runs of an operation, in no order. plan: which has to say no more than this operation's choices."""
    one = Passes(workload, plan, recompute)
    one.run_forward(op, "forward", "forward")
    if workload.backward:
        if op.name in recompute.rerun:
            one.run_forward(op, "recompute", "back")
        if op.name in recompute.inside:
            one.run_inside(op)
        one.run_backward(op)
    return [replace(task, after=()) for task in one.tasks if not task.joins]


class Passes:
    """The tasks of operations. ready: when a tensor's copy is there."""

    def __init__(self, workload: Workload, plan: Plan, recompute: Recompute) -> None:
        self.workload, self.plan, self.recompute = workload, plan, recompute
        self.tasks: list[Task] = []
        self.ready: dict[tuple[str, Place, Layout], int] = {}

    # -- what is brought to an operation, and taken from it: alone nothing is ------------------------------------------------

    def _copy(self, epoch: str, phase: str, place: Place, layout: Layout) -> int:
        """The task after which a copy is there."""
        return -1

    def _gradient(self, place: Place, target: Layout) -> int:
        """The task after which the gradient of a result is there."""
        return -1

    def _contribute(self, op: Op, position: int, done: int) -> None:
        """Hand on the gradient of an operand."""

    def _receive(self, tensor: str, stage: int) -> None:
        """Take what later stages hand back of a gradient."""

    def _passes_back(self, op: Op) -> tuple[LocalOp, ...]:
        return backward_ops(op, self.plan, self.workload)

    # -- passes --------------------------------------------------------------------------------------------------------------

    def run_forward(self, op: Op, phase: str, epoch: str) -> None:
        """The forward pass, or the same again ('recompute'). epoch: for which of its copies."""
        stage, beside = self.plan.stages[op.name], around(op, self.plan, self.workload)
        after = [self._copy(epoch, phase, (a.tensor, stage), layout) for a, layout in zip(op.ins, beside.needs, strict=True)]
        after += [self._halo(op, i, beside, phase, start) for i, start in enumerate(after)]
        after = self._cast(op, phase, after)
        local_op = forward_op(op, self.plan, self.workload)
        done = self._local_op(op, phase, local_op, after)
        done = self._statistics(op, phase, op.kind.statistics[0], done)
        if epoch == "forward" or op.out.tensor in self.recompute.made:
            self.ready[(epoch, (op.out.tensor, stage), beside.leaves)] = done

    def run_inside(self, op: Op) -> None:
        """What the attention's backward kernel makes again by itself: no traffic of its own, arithmetic at that kernel's rate."""
        stage = self.plan.stages[op.name]
        after = [
            self._copy("back", "recompute", (a.tensor, stage), self.plan.needs(op, i, self.workload))
            for i, a in enumerate(op.ins)
            if not made_again((a.tensor, stage), self.recompute, self.workload, self.plan)
        ]
        local_op = replace(forward_op(op, self.plan, self.workload), kernel="attention backward")
        done = self._local_op(op, "recompute", local_op, after)
        self.ready.setdefault(("back", (op.out.tensor, stage), self.plan.leaves(op)), done)

    def _cast(self, op: Op, phase: str, after: list[int]) -> list[int]:
        """Casts of the operands of a product of low precision, and kernels around attention, before it."""
        if op.kind.name != "einsum":
            return after
        backward = phase == "backward"
        for found in (cast_ops, head_ops):
            for local_op in found(op, self.plan, self.workload, backward=backward):
                after = [self._local_op(op, phase, local_op, after)]
        return after

    def _local_op(self, op: Op, phase: str, local_op: LocalOp, after: Iterable[int]) -> int:
        action = "mac" if local_op.macs else "vector"
        return self._emit(Task("op", phase, op.name, local_op.written, self.plan.stages[op.name], action, ids_of(after), local_op=local_op))

    def _statistics(self, op: Op, phase: str, numbers: int, after: int) -> int:
        axes = around(op, self.plan, self.workload).statistics if numbers else ()
        if not axes:
            return after
        rows = statistics_rows(op, self.plan, self.workload)
        volume = replace(rows, total=rows.total * numbers * STATISTIC_BYTES)
        stage = self.plan.stages[op.name]
        return self._emit(Task("collective", phase, op.name, op.out.tensor, stage, "all_reduce", ids_of([after]), axes=axes, volume=volume))

    def _halo(self, op: Op, position: int, beside: Around, phase: str, after: int) -> int:
        tensor, stage = op.ins[position].tensor, self.plan.stages[op.name]
        for axes, volume in beside.halos[position]:
            after = self._emit(Task("collective", phase, op.name, tensor, stage, "halo", ids_of([after]), axes=axes, volume=volume))
        return after

    def run_backward(self, op: Op) -> None:
        """The backward passes, where it has some."""
        stage, beside = self.plan.stages[op.name], around(op, self.plan, self.workload)
        local_ops = self._passes_back(op)
        if not local_ops:
            return
        self._receive(op.out.tensor, stage)
        after = [self._gradient((op.out.tensor, stage), beside.gradient)]
        copies = {read: self._copy("back", "backward", (read[0], stage), read[1]) for read in beside.reads}
        for position in beside.bordered if op.name not in self.recompute.rerun else ():  # what is kept has no borders; made again it has
            read = op.ins[position].tensor, beside.needs[position]
            copies[read] = self._halo(op, position, beside, "backward", copies[read])
        after += copies.values()
        after = self._cast(op, "backward", [self._statistics(op, "backward", op.kind.statistics[1], self._join(after))])
        for number, local_op in enumerate(local_ops):
            done = self._local_op(op, "backward", local_op, after)
            for position in beside.wanting if len(local_ops) == 1 else [beside.wanting[number]]:
                end = self._add(op, position, self._halo(op, position, beside, "backward", done))
                self._contribute(op, position, end)

    def _add(self, op: Op, position: int, after: int) -> int:
        """A weight's gradient added to the sum by a kernel of its own, where that is so."""
        local_op = add_op(op, position, self.plan, self.workload)
        return after if local_op is None else self._local_op(op, "backward", local_op, [after])

    def _join(self, tasks: Iterable[int]) -> int:
        """One task that stands for several: the last emitted (a zero-cost join only when they may run side by side)."""
        ids = ids_of(tasks)
        if len(ids) <= 1:
            return ids[0] if ids else -1
        stages = {self.tasks[i].stage for i in ids}
        last = self.tasks[ids[-1]]
        return self._emit(Task("op", last.phase, last.einsum, last.tensor, max(stages), "join", ids, channel="link"))

    def _emit(self, task: Task) -> int:
        self.tasks.append(task)
        return len(self.tasks) - 1


def ids_of(tasks: Iterable[int]) -> tuple[int, ...]:
    """Task numbers, once each, in order; -1 (there from the start) left out."""
    found = {task for task in tasks if task >= 0}
    return tuple(sorted(found)) if len(found) > 1 else tuple(found)
