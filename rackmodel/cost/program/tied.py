"""Weights that two sections read (a tied embedding): what the second use does not do again.

    where both are                 what is there once
    a home above (streaming)       what is held, and the update; the gradient of the earlier section, which comes last, is added to the
                                   later one's there
    one device, in one layout      what is held, reduced and updated, its load; the gradient of the later section waits for the
                                   earlier one's, which comes after it in the backward pass and adds to it
    two devices                    nothing: each has a copy, and the sum of the two gradients is a hand-over (cost/step/group)

Two ends that split a shared weight differently keep a copy each.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from rackmodel.cost.program.tasks import Flow, Held, LocalOp, Program, Task, flow_name
from rackmodel.model.layout import PARTIAL, REPLICATE, Layout
from rackmodel.model.plan import Plan
from rackmodel.model.workload import Section, Workload

STATE = ("weights", "gradients", "optimizer")


def tied_weights(workload: Workload) -> tuple[str, ...]:
    """Weights that more than one section reads."""
    uses = [name for section in workload.sections for name in section.workload.weights]
    return tuple(name for name in dict.fromkeys(uses) if uses.count(name) > 1)


def without_shared_work(program: Program, workload: Workload, section: Section, plan: Plan, *, together: bool) -> Program:
    """A section's program without what another section does for weights that both have. together: whether one device runs all sections."""
    place, own = workload.sections.index(section), set(section.workload.weights)
    before, later = (_weights(part) for part in (workload.sections[:place], workload.sections[place + 1 :]))
    program = _summed_at_home(_once_at_home(program, before & own), later & own)
    if not together or section.layer:
        return program
    shared = {name for name in tied_weights(workload) if name in section.workload.weights and _in_one_layout(name, workload, plan)}
    again = shared & before
    return _added_to(_once_here(program, again), shared - again)


def _weights(sections: Sequence[Section]) -> set[str]:
    """What some sections read of weights."""
    return {name for section in sections for name in section.workload.weights}


def _in_one_layout(weight: str, workload: Workload, plan: Plan) -> bool:
    """Whether the ends of a model hold a weight of theirs alike, on the accelerators."""
    users = [section for section in workload.sections if weight in section.workload.weights]
    if plan.home(weight).at is not None or any(section.layer for section in users):
        return False
    return len({_layout(weight, section.workload, plan) for section in users}) == 1


def _layout(weight: str, workload: Workload, plan: Plan) -> Layout:
    """As its first reader needs it (cost/program/wanted)."""
    op = workload.ops[workload.readers[weight][0]]
    position = next(i for i, access in enumerate(op.ins) if access.tensor == weight)
    return tuple(REPLICATE if p == PARTIAL else p for p in plan.needs(op, position, workload))


def _once_at_home(program: Program, twice: Set[str]) -> Program:
    """The program without what a home does for weights that another section has."""
    if not twice:
        return program
    tasks = (replace(t, local_op=None, level="") if t.channel == "home" and t.tensor in twice else t for t in program.tasks)
    return Program(tuple(tasks), tuple(h for h in program.held if not (h.level and h.tensor in twice)))


def _summed_at_home(program: Program, shared: Set[str]) -> Program:
    """The program where gradients that go up are added to what a later section, whose backward pass came first, sent."""
    if not shared:
        return program
    tasks = (replace(t, summed=True) if t.kind == "stream" and t.action == "reduce" and t.tensor in shared else t for t in program.tasks)
    return Program(tuple(tasks), program.held)


def _once_here(program: Program, twice: Set[str]) -> Program:
    """The program without what the same device does, later in the backward pass, for weights that an earlier section has: only the
    gradient of this section's use is there until then."""
    if not twice:
        return program
    tasks: list[Task] = []
    reductions: set[int] = set()
    ordered = {flow_name(f"{name}.copy", gradient=True, state=False) for name in twice}  # before a reduction
    for number, task in enumerate(program.tasks):
        of_gradient = any(tasks[before].kind == "op" or before in reductions for before in task.after)
        if task.tensor in twice and task.kind == "collective" and task.phase == "backward" and of_gradient:
            reductions.add(number)
        adds = task.kind == "op" and task.channel == "weights"  # what a reduction leaves, to the shard's sum
        gone = task.tensor in twice and (number in reductions or adds or task.phase == "optimizer" or task.kind == "load")
        tasks.append(_nothing(task) if gone or task.tensor in ordered else task)
    held = [_kept(one, twice) for one in program.held if not (one.what in (*STATE, "frozen") and one.tensor in twice)]
    return Program(tuple(tasks), tuple(held))


def _nothing(task: Task) -> Task:
    """A join in a task's place: others may wait for it."""
    return Task("op", task.phase, task.einsum, task.tensor, task.stage, "join", task.after, "link")


def _kept(one: Held, twice: Set[str]) -> Held:
    """A gradient that waits to be reduced is on its way no more: it stays until the other section's is added."""
    waits = one.what == "gathered" and one.tensor in {f"{name}.gradient" for name in twice}
    return replace(one, what="gradients") if waits else one


def _added_to(program: Program, weights: Set[str]) -> Program:
    """The program where gradients of `weights` are added to what a later section, whose backward pass came first, left here."""
    if not weights:
        return program
    tasks = (t if t.local_op is None else replace(t, local_op=_adding(t.local_op, weights)) for t in program.tasks)
    there = {f"{name}.gradient" for name in weights}
    return Program(tuple(tasks), tuple(h for h in program.held if not (h.what == "gathered" and h.tensor in there)))


def _adding(local_op: LocalOp, weights: Set[str]) -> LocalOp:
    """The pass reads each sum that it writes, in every micro-batch."""
    writes = [flow for flow in local_op.writes if flow.gradient and flow.tensor in weights and not flow.volume.empty]
    if not writes:
        return local_op
    names = {flow.tensor for flow in writes}
    reads = [flow for flow in local_op.reads if not (flow.volume.again and flow.tensor in names)]
    return replace(local_op, reads=(*reads, *(Flow(flow.tensor, flow.volume, gradient=True) for flow in writes)))
