"""What one layer of a section costs in one micro-batch: its tasks, priced, by the role they play in the clock (docs/clock.md).

    role       what it is                                                        how often     lane
    device     operations, and collectives on activations (less their windows)   micro-batch   the device
    gather     parameters on their way from where they rest; copies from a host  micro-batch   weights, a layer ahead
    reduce     gradients reduced at once (their home is sharded); copies out     micro-batch   weights
    up         gradients streamed to a home above                                micro-batch   up
    home       a home above updates what it holds as gradients arrive            step          home
    tail       gradients reduced when they are summed over the micro-batches     step          weights
    spread     parameters gathered after the optimizer                           step          weights, with the first forward pass
    update     the optimizer                                                     step          the device, at the end

Everything is in arrays over n columns. The rows behind the sums are the ledger's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import TypeVar

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.cost.inside.roofline import Row
from rackmodel.cost.program.derive import derive
from rackmodel.cost.program.kept_between import kept_between
from rackmodel.cost.program.recompute import Recompute, recompute_of
from rackmodel.cost.program.tasks import Degrees, Held, Program, Task
from rackmodel.cost.program.tied import tied_weights, without_shared_work
from rackmodel.cost.step.columns import PIECE
from rackmodel.cost.step.tasks.fused_kernels import launched_once
from rackmodel.cost.step.tasks.items import Item, Priced, launched
from rackmodel.cost.step.tasks.jobs import DEVICE, LaneJob, LayerPass, lanes_of, launches, roles_of
from rackmodel.cost.step.tasks.layer_cost import LayerCost, LayerItems
from rackmodel.cost.step.tasks.layer_inside import PricedLayer
from rackmodel.cost.step.tasks.layer_tasks import Beside, HeldBytes, LayerTasks
from rackmodel.cost.step.tasks.merged import Known as Products
from rackmodel.cost.step.tasks.merged import Taken as RunAsOne
from rackmodel.cost.step.tasks.merged import run_as_one, side_by_side, summed_message
from rackmodel.cost.step.tasks.pricer import Pricer, backing_level
from rackmodel.cost.step.tasks.windows import hidden_beside
from rackmodel.model.plan import Plan
from rackmodel.model.profile import Host, ProfileSpec
from rackmodel.model.workload import Section, Workload
from rackmodel.once import once

BACKWARD = ("backward", "recompute", "weight")


Layer = TypeVar("Layer", bound=LayerItems)


class LayerPricer:
    """Prices layers of a workload's sections under plans that share their axes. programs: derived ones, which do not depend on the
    columns and may be shared by pricers · among: what prices these columns among others, and which of them they are · beside: what
    prices their tasks beside those of other profiles · at_once: columns that are priced together · kept: whether exact steps may go on
    from its layers · alike: whether plans of one program cost the same · together: whether one device runs all sections · taken: what
    tasks of layers take · clocked: passes of layers that were priced, as the clock takes them, by the layer and what they depend on
    beside · wider: of a layer that was picked from that pricer's, the layer there."""

    at_once, kept, alike = PIECE, True, True

    def __init__(
        self,
        pricer: Pricer,
        workload: Workload,
        profile: ProfileSpec,
        programs: dict[object, Program] | None = None,
        among: tuple[LayerPricer, Ints] | None = None,
        beside: Beside | None = None,
    ) -> None:
        self.pricer, self.workload, self.profile, self.among, self.beside = pricer, workload, profile, among, beside
        self.programs = {} if programs is None else programs
        self.costs: dict[object, LayerCost] = {}
        self.whole: dict[object, LayerItems] = {}
        self.taken: dict[object, LayerTasks] = {}
        self.clocked: dict[object, tuple[LayerItems, dict[str, LayerPass]]] = {}
        self.wider: dict[int, LayerItems] = {}
        self.products: Products = {}
        self.merged: dict[int, tuple[Program, tuple[RunAsOne, dict[int, Ints]]]] = {}
        self.together = bool((pricer.stages == 1).all())
        self.backing = backing_level(pricer.architecture)

    def of_steps(self, *, together: bool) -> LayerPricer:
        """What prices layers of steps of which one device runs all sections, or does not: this one, or one that shares all it knows, where
        sections have weights in common."""
        if together == self.together or not tied_weights(self.workload):
            return self
        found = copy(self)
        found.together = together
        return found

    def key(self, section: Section, plan: Plan) -> tuple[object, ...]:
        """What a section's program follows from."""
        return section.name, plan.key, self.together and not section.layer

    def program(self, section: Section, plan: Plan) -> Program:
        """The program of one layer: one object where plans come to the same."""
        key = self.key(section, plan)
        if key not in self.programs:
            program = without_shared_work(self._derived(section, plan), self.workload, section, plan, together=self.together)
            alike = self.alike and not self.pricer.unlike  # columns that sizes or facts tell apart have programs of their own
            self.programs[key] = self.programs.setdefault((section.name, program), program) if alike else program
        return self.programs[key]

    def _derived(self, section: Section, plan: Plan) -> Program:
        """The section's program by itself, whether or not one device runs all of them. Policies that make the same again have one."""
        again = recompute_of(section.workload, plan)
        key = ("derived", section.name, again, plan.cause(section.workload))
        return once(self.programs, key, lambda: self._program(section, plan, again))

    def _program(self, section: Section, plan: Plan, again: Recompute) -> Program:
        """Derived anew, with what stages keep of what they hand to each other."""
        found = derive(section.workload, plan, self.backing, self._ends(section), section.repeat, again)
        kept = kept_between(section, plan, self.profile.pipeline)
        return replace(found, held=(*found.held, *kept)) if kept else found

    def _ends(self, section: Section) -> frozenset[str]:
        """Tensors of a section that begin or end in the machine's memory: not what it is handed or hands on."""
        first, last = section is self.workload.sections[0], section is self.workload.sections[-1]
        ends = {*section.workload.inputs, *section.workload.outputs}
        return frozenset(ends - (set() if first else {section.stream_in}) - (set() if last else {section.stream_out}))

    def layer(self, section: Section, plan: Plan) -> LayerCost:
        """One layer of a section, with its sums. Remembered."""
        key = self.key(section, plan)
        if key not in self.costs and (wide := self._among(section)) is not None:
            self.costs[key] = self._picked(wide.layer(section, plan))
        elif key not in self.costs:
            same = section.name, id(self.tasks(section, plan).program)
            self.costs[key] = once(self.costs, same, lambda: self._summed(self.exact_layer(section, plan)))
        return self.costs[key]

    def exact_layer(self, section: Section, plan: Plan) -> LayerItems:
        """The same as an exact step takes it: no sums are made for it. Remembered."""
        key = self.key(section, plan)
        if key in self.costs:
            return self.costs[key]
        if key not in self.whole and (wide := self._among(section)) is not None:
            self.whole[key] = self._picked(wide.exact_layer(section, plan))
        elif key not in self.whole:
            taken = self.tasks(section, plan)
            same = section.name, id(taken.program)
            self.whole[key] = once(self.whole, same, lambda: _holding(section, self.items(section, plan), taken.held))
        return self.whole[key]

    def _among(self, section: Section) -> LayerPricer | None:
        """What prices a section's layers on these columns among others."""
        return self.among[0] if self.among is not None and (section.layer or self.together == self.among[0].together) else None

    def _picked(self, whole: Layer) -> Layer:
        """A layer that was priced among other columns, on these."""
        assert self.among is not None
        one = whole.pick(self.among[1])
        self.wider[id(one)] = whole
        return one

    def tasks(self, section: Section, plan: Plan) -> LayerTasks:
        """What the tasks of one layer take, beside other columns where they are priced there. Remembered."""
        key = self.key(section, plan)
        if key not in self.taken:
            found = None if self.beside is None else self.beside.tasks(section, plan, together=self.together)
            self.taken[key] = self._tasks(section, plan) if found is None else found
        return self.taken[key]

    def _tasks(self, section: Section, plan: Plan) -> LayerTasks:
        """Of plans of one program the same."""
        program = self.program(section, plan)
        return once(self.taken, (section.name, id(program)), lambda: self._taking(section, plan, program))

    def _taking(self, section: Section, plan: Plan, program: Program) -> LayerTasks:
        pricer = self.pricer
        pricer.layer_inside.prepare(program.tasks)
        priced = self.priced(section, plan, program)
        ports = [pricer.port_seconds(task, one.rows) for task, one in zip(program.tasks, priced, strict=True)]
        return LayerTasks(program, tuple(priced), tuple(ports), self._held(program.held, pricer.degrees))

    def clock_passes(self, cost: LayerItems, how: object, made: Callable[[LayerItems], dict[str, LayerPass]]) -> dict[str, LayerPass]:
        """Passes of a layer that was priced, as the clock takes them. Remembered; of a picked one those of the wider pricer, picked. how:
        what they depend on beside · made: makes them."""
        key, whole = (id(cost), how), self.wider.get(id(cost))
        if key not in self.clocked:
            if whole is None or self.among is None or self.pricer.unlike:
                found = made(cost)
            else:
                (wide, which), known = self.among, dict[int, tuple[LaneJob, ...]]()
                found = {name: one.pick(which, known) for name, one in wide.clock_passes(whole, how, made).items()}
            self.clocked[key] = cost, found
        return self.clocked[key][1]

    def items(self, section: Section, plan: Plan) -> tuple[Item, ...]:
        """The tasks of one layer, priced, with what windows of the profile hide."""
        taken = self.tasks(section, plan)
        program, alone = taken.program, taken.priced
        pricer, workload = self.pricer, section.workload
        inside = pricer.layer_inside
        kernels = inside.kernels(pricer.architecture, program.tasks, pricer.degrees)
        priced = launched_once(alone, kernels, pricer.architecture.launching)
        whole = {**self.run_as_one(section.workload, program)[1], **kernels}
        hidden, beside = hidden_beside(program.tasks, [one.seconds for one in priced], self.profile.overlap, whole)
        items = tuple(
            Item(
                task=task,
                role=role,
                part=part_of(task, role, workload),
                priced=one,
                hidden=hidden.get(number),
                beside=beside.get(number),
                port_s=port,
            )
            for number, (task, role, one, port) in enumerate(zip(program.tasks, roles_of(program.tasks), priced, taken.ports, strict=True))
        )
        layer = PricedLayer(
            items=items,
            alone=[one.launches for one in alone],
            architecture=pricer.architecture,
            degrees=pricer.degrees,
            host=self.profile.host if section.layer else Host(),
            overlap=self.profile.overlap,
            piped=pricer.columns.stages * plan.stage_count > 1,
        )
        inside.came_to(layer)
        return items

    def priced(self, section: Section, plan: Plan, program: Program) -> list[Priced]:
        """What each task of one layer takes."""
        merged, tasks = self.run_as_one(section.workload, program)[0], program.tasks
        return [
            self._priced_as_one(task, [tasks[member] for member in merged[number]]) if number in merged else self._priced_alone(task)
            for number, task in enumerate(tasks)
        ]

    def run_as_one(self, workload: Workload, program: Program) -> tuple[RunAsOne, dict[int, Ints]]:
        """Which tasks of a program run as one, and the kernels of these (merged). Remembered with the program, which stays."""
        if id(program) not in self.merged:
            self.merged[id(program)] = program, run_as_one(program.tasks, workload, self.profile.merged, self.products)
        return self.merged[id(program)][1]

    def _priced_alone(self, task: Task) -> Priced:
        return once(self.pricer.known, self.pricer.key(task), lambda: self.of(task, *self.pricer.task(task)))

    def _priced_as_one(self, task: Task, members: Sequence[Task]) -> Priced:
        """What a task takes with the `members` that run as one with it."""
        return once(self.pricer.known, self._key_of(task, members), lambda: self.of(task, *self.as_one(members)))

    def _key_of(self, task: Task, members: Sequence[Task]) -> object:
        return "as one", self.pricer.key(task), *map(self.pricer.key, members)

    def of(self, task: Task, rows: Sequence[Row], seconds: Array) -> Priced:
        """What a task takes, with what the host launches for it."""
        return Priced(rows, seconds, launched(launches(task, self.pricer, self.profile), seconds))

    def as_one(self, tasks: Sequence[Task]) -> tuple[Sequence[Row], Array]:
        """Rows and seconds [n] of tasks that run as one; nothing for one that runs with another."""
        if not tasks:
            return (), np.zeros(self.pricer.n)
        if tasks[0].kind == "collective":
            return self.pricer.task(summed_message(tasks))
        members = [task.local_op for task in tasks if task.local_op is not None]
        return self.pricer.task(replace(tasks[0], local_op=side_by_side(members, self.pricer.degrees)))

    def gathered(self, section: Section, items: tuple[Item, ...], held: Iterable[Held]) -> LayerCost:
        """The sums of a layer's items, and of what it holds."""
        return self._summed(_holding(section, items, self._held(held, self.pricer.degrees)))

    def _summed(self, layer: LayerItems) -> LayerCost:
        n, section, items = self.pricer.n, layer.section, layer.items
        seconds: dict[tuple[str, str], Array] = {}
        hidden: dict[str, Array] = {}
        spent = {"device": np.zeros(n), "lanes": np.zeros(n), "once": np.zeros(n)}
        port, charge, lanes = np.zeros(n), self.pricer.layer_inside.second_charge, lanes_of(self.profile.overlap, hide=True)
        overlap = self.profile.overlap
        apart = overlap.sends or overlap.contention > 0  # hand-overs between stages of operations: beside the device, or what nothing slows
        for item in items:
            if not item.rows:
                continue
            once = item.once and item.role == "device"  # loaded at the first micro-batch
            role = "send" if apart and item.task.kind == "send" else item.role
            key = ("first" if once else role, item.part)
            seconds[key] = seconds[key] + item.seconds if key in seconds else item.seconds
            if item.hidden is not None:
                hidden[item.part] = hidden[item.part] + item.hidden if item.part in hidden else item.hidden
            if item.port_s is not None:
                port = port + item.port_s
            part = "once" if item.once else "device" if item.role == "device" else "lanes"
            spent[part] += item.priced.joules
            if charge and item.hidden is None and item.task.kind != "send" and lanes.of(item.role) == DEVICE:
                spent[part] += charge * self.pricer.per_stage * item.seconds
        started = _launches(items)
        return LayerCost(
            section=section,
            items=items,
            held=layer.held,
            home=layer.home,
            held_mean=layer.held_mean,
            seconds=seconds,
            hidden=hidden,
            **self._edges(section, items, started),
            port=port,
            joules_device=spent["device"],
            joules_lanes=spent["lanes"],
            joules_once=spent["once"],
            launches=started,
            **self._remade(items),
        )

    def _remade(self, items: Sequence[Item]) -> dict[str, Array]:
        """remade and remade_late, on the device at its slowest or the host."""
        found: dict[str, Array] = {}
        late, launched = False, np.zeros(self.pricer.n)
        for item in items:
            late = late or item.part == "weight"
            if item.part == "recompute" and item.role == DEVICE:
                launched = launched + self.profile.host.launch_s * item.launches
                seconds = item.seconds * (1.0 + self.profile.overlap.contention) + self.profile.host.launch_s * item.launches
                for name in ("remade", "remade_late") if late else ("remade",):
                    found[name] = found[name] + seconds if name in found else seconds
        if np.any(launched):  # the host's time of a pass, which reductions outlast, has every launch
            found["remade_late"] = np.maximum(found.get("remade_late", 0.0), launched)
        return found

    def _edges(self, section: Section, items: Sequence[Item], started: Mapping[str, Array | float]) -> dict[str, Array]:
        """lead, lag, lag_apart, forward_wait and backward_wait: passes run alone, with the device at its slowest (so that all are least);
        where the host's time covers a part of them, only what outlasts it with the device at its fastest is sure. started: part →
        launches."""
        lanes, none = lanes_of(self.profile.overlap, hide=True), np.zeros(self.pricer.n)
        here = frozenset(role for role in (DEVICE, "gather", "reduce", "up", "home") if lanes.of(role) == DEVICE)
        most = np.maximum(started["forward"], started["recompute"] + started["backward"] + started["weight"])
        host = self.profile.host.seconds(most, backward=True) if section.layer else 0.0
        mine = {n: item for n, item in enumerate(items) if item.role in here}
        fast = slow = {n: item.seconds * (1.0 + lanes.contention) for n, item in mine.items()}
        if np.any(host):
            fast = {n: item.seconds if item.hidden is None else item.seconds - item.hidden for n, item in mine.items()}

        def edge(run: Callable[[Mapping[int, Array]], tuple[Array, Array]]) -> Array:
            end, device = run(slow)
            least = np.maximum(end - device, 0.0)
            return np.minimum(least, np.maximum(run(fast)[0] - host, 0.0)) if fast is not slow and least.any() else least

        found = dict.fromkeys(("lead", "lag", "lag_apart", "forward_wait", "backward_wait"), none)
        if lanes.gather != DEVICE:
            parts = {item.part for item in items if item.role == "gather"}
            spread = any(item.role == "spread" for item in items)
            if "forward" in parts:
                found["forward_wait"] = edge(lambda device_s: _gathered_first(items, device_s, ("forward",), here, spread=False))
            if "backward" in parts:
                found["backward_wait"] = edge(lambda device_s: _gathered_first(items, device_s, BACKWARD, here, spread=False))
            found["lead"] = found["forward_wait"]
            if spread:
                found["lead"] = edge(lambda device_s: _gathered_first(items, device_s, ("forward",), here, spread=True))
        if lanes.reduce != DEVICE and any(item.role in ("reduce", "tail") for item in items):
            found["lag"] = edge(lambda device_s: _reduced_last(items, device_s, BACKWARD, here))
            end, device = _reduced_last(items, slow, ("weight",), here)  # (no time of the host applies)
            found["lag_apart"] = np.maximum(end - device, 0.0)
        return found

    def _bytes(self, item: Held, degrees: Degrees) -> tuple[Array, Array]:
        """[n] bytes of the fullest accelerator, and of one in the mean. Remembered: many plans hold as much."""
        key = None if self.pricer.unlike else ("held", item.volume, item.over)
        found: tuple[Array, Array] | None = self.pricer.known.get(key) if key is not None else None
        if found is None:
            size = item.at(degrees)
            found = size, item.mean(degrees) if item.volume.cuts else size
            if key is not None:
                self.pricer.known[key] = found
        return found

    def _held(self, held: Iterable[Held], degrees: Degrees) -> HeldBytes:
        """Bytes by what holds them: sums, and for the passes of operations the largest; of the fullest accelerator, at homes, and of those
        that come and go where they are a host's, in the mean, where it is less."""
        found: dict[str, Array] = {}
        home: dict[str, Array] = {}
        working: dict[str, Array] = {}
        less: dict[str, Array] = {}
        for item in held:
            if item.what == "working" and self.pricer.architecture.adds_on_the_way:
                continue
            size, mean = self._bytes(item, degrees)
            table, key = (home, item.level) if item.level else (working, item.tensor) if item.what == "working" else (found, item.what)
            table[key] = table[key] + size if key in table else size
            if item.volume.cuts and table is found:
                less[key] = less.get(key, 0.0) + (size - mean)
        if working:
            found["working"] = np.max(np.stack(list(working.values())), axis=0)
        return found, home, {key: found[key] - gap for key, gap in less.items() if np.any(gap)}


def _holding(section: Section, items: tuple[Item, ...], held: HeldBytes) -> LayerItems:
    here, home, mean = held
    return LayerItems(section=section, items=items, held=here, home=home, held_mean=mean)


def _launches(items: Sequence[Item]) -> dict[str, Array | float]:
    """Part → what the host launches for every micro-batch on the device."""
    each = [item for item in items if item.role == "device" and not item.once]
    return {part: sum((item.launches for item in each if item.part == part), 0) for part in ("forward", *BACKWARD)}


def _gathered_first(
    items: Sequence[Item], device_s: Mapping[int, Array], parts: tuple[str, ...], here: Collection[str], *, spread: bool
) -> tuple[Array, Array]:
    """(end of a layer's pass whose gathers are issued with it, its seconds on the device). device_s: of each item there · parts: of the
    pass · here: roles that run there · spread: whether what the optimizer left sharded is gathered too."""
    lane = free = busy = np.zeros_like(items[0].seconds)
    ends: dict[int, Array] = {}
    brought: dict[str, Array] = {}
    order = sorted(range(len(items)), key=lambda number: items[number].role != "spread")
    for number in order:
        item = items[number]
        waits = [ends[before] for before in item.task.after if before in ends]
        if (item.role == "gather" and item.part in parts) or (spread and item.role == "spread"):
            ends[number] = lane = lane + item.seconds
            if item.role == "spread":
                brought[item.task.tensor] = lane
        elif item.part in parts and item.role in here and (item.task.kind != "op" or item.task.local_op is not None):
            reads = item.task.local_op.reads if item.task.local_op is not None else ()
            for wait in (*waits, *(brought[flow.tensor] for flow in reads if flow.tensor in brought)):
                busy = np.maximum(busy, wait)
            busy, free = busy + device_s[number], free + device_s[number]
        elif waits and item.task.joins:
            ends[number] = np.maximum.reduce(waits)
    return busy, free


def _reduced_last(
    items: Sequence[Item], device_s: Mapping[int, Array], parts: tuple[str, ...], here: Collection[str]
) -> tuple[Array, Array]:
    """(end of the reductions of a layer's last backward pass, its seconds on the device). device_s: of each item there · parts: of the
    pass; reductions of what was made before it are issued as it begins · here: roles that run there."""
    lane = device = np.zeros_like(items[0].seconds)
    ends: dict[int, Array] = {}
    for number, item in enumerate(items):
        if item.part not in BACKWARD:
            continue
        made = [ends[before] for before in item.task.after if before in ends]
        if item.role == DEVICE and item.task.local_op is None and item.task.kind == "op":
            if made or parts == BACKWARD:
                ends[number] = np.maximum.reduce(made) if made else device
        elif item.role in here:
            if item.part in parts:
                ends[number] = device = device + device_s[number]
        elif item.role in ("reduce", "tail"):
            start = np.maximum(lane, np.maximum.reduce(made)) if made else lane
            ends[number] = lane = start + item.seconds
    return lane, device


def part_of(task: Task, role: str, workload: Workload) -> str:
    """The pass that a task belongs to: what makes weights' gradients and nothing else, or adds them up, is a part of its own."""
    if task.phase == "optimizer":
        return "optimizer"
    if task.phase in ("forward", "recompute"):
        return task.phase
    if role == "device" and task.local_op is not None:
        written = [one.gradient and one.tensor in workload.tensors and workload.tensors[one.tensor].kind for one in task.local_op.writes]
        if written and all(kind == "weight" for kind in written):
            return "weight"
    return "backward"
