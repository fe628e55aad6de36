"""What one layer of a section costs in one micro-batch: its tasks, priced, in the bins that a training step composes.

    bin        what is in it                                                      how often     beside what it may run
    device     operations, and collectives on activations without a window        micro-batch   nothing
    window     collectives on activations that a contraction can hide             micro-batch   that contraction
    gather     parameters on their way from where they rest                       micro-batch   the layer before
    reduce     gradients reduced at once (their home is sharded)                  micro-batch   the layer after
    up         gradients streamed to a home above: the links' other direction     micro-batch   the layer after, and gathers
    home       a home above updates what it holds as gradients arrive             step          the last backward pass
    tail       gradients reduced when they are summed over the micro-batches      step          the last backward pass
    update     the optimizer                                                      step          nothing
    spread     parameters gathered after the optimizer                            step          the next forward pass

Everything is in arrays over n meshes x micro-batches. The rows behind the bins are the ledger's: a step multiplies them, it
never adds a figure of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.inside.roofline import LegPricer, Row, leg_rows
from rackmodel.cost.network.collectives import LinkTable, LinkUse, collective_table, send_table
from rackmodel.cost.network.streams import stream
from rackmodel.cost.program.derive import derive
from rackmodel.cost.program.tasks import Held, Program, Task
from rackmodel.cost.step.price import LINK_FIGURES, LinkArrays, MappingPricer, distinct_rows
from rackmodel.cost.step.windows import hidable
from rackmodel.model.architecture import Architecture
from rackmodel.model.plan import Plan
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.workload import Section, Workload

Array = NDArray[np.float64]
ON_DEVICE = ("device", "window")
STATE = ("weights", "gradients", "optimizer", "gathered")
ONCE = ("home", "tail", "update", "spread")


@dataclass(frozen=True)
class Item:
    """One priced task. rows: its charges on all accelerators of a stage · seconds: [n] · hidden: [n] that a window can hide."""

    task: Task
    bin: str
    part: str
    rows: tuple[Row, ...]
    seconds: Array
    hidden: Array | None = None


@dataclass(frozen=True)
class LayerCost:
    """One layer of a section. seconds: (bin, pass) → [n] · hidden: pass → [n] that windows can hide · device_j, weights_j, once_j:
    [n] joules of all accelerators of a stage, a micro-batch (operations and activations; parameters on the move) and a step ·
    held: what → [n] bytes on one accelerator · round_trip: [n] start-ups of a gradient's way up and a weight's way down ·
    port: [n] seconds of a home's memory in a backward pass, where its reads and writes share a port."""

    section: Section
    items: tuple[Item, ...]
    seconds: dict[tuple[str, str], Array]
    hidden: dict[str, Array]
    device_j: Array
    weights_j: Array
    joules_once: Array
    held: dict[str, Array]
    home: dict[str, Array] = field(default_factory=dict)
    round_trip: Array | float = 0.0
    port: Array | float = 0.0

    @property
    def joules(self) -> Array:
        """[n] joules of a micro-batch."""
        return self.device_j + self.weights_j

    def with_weights(self, other: LayerCost) -> LayerCost:
        """This layer's operations and activations with another's parameters, gradients and optimizer: what a home changes does not
        depend on the recompute policy, nor the rest on the home."""
        items = [item for item in self.items if item.bin in ON_DEVICE] + [item for item in other.items if item.bin not in ON_DEVICE]
        seconds = {key: value for key, value in self.seconds.items() if key[0] in ON_DEVICE}
        seconds |= {key: value for key, value in other.seconds.items() if key[0] not in ON_DEVICE}
        held = {what: size for what, size in self.held.items() if what not in STATE}
        held |= {what: size for what, size in other.held.items() if what in STATE}
        return replace(other, items=tuple(items), seconds=seconds, hidden=self.hidden, device_j=self.device_j, held=held)

    def time(self, *keys: tuple[str, str]) -> Array:
        """[n] sum of some bins' seconds."""
        return np.asarray(sum((self.seconds[key] for key in keys if key in self.seconds), np.zeros_like(self.device_j)))


class SectionPricer(MappingPricer):
    """Prices programs on n columns: a mesh, a pipeline and a number of micro-batches each. What was priced is remembered, so
    that plans which differ in one decision share the rest; programs do not depend on the columns and may be shared by pricers.

    degrees, strides: [n, axes + 1], the last column the micro-batches (any stride) · pipeline: ([n] degrees, [n] strides).
    """

    def __init__(
        self,
        architecture: Architecture,
        workload: Workload,
        plan: Plan,
        degrees: Any,
        strides: Any,
        profile: ProfileSpec,
        inside: LegPricer = leg_rows,
        *,
        pipeline: tuple[Any, Any] = (1, 1),
        algorithms: Sequence[str] = ("ring",),
        programs: dict[object, Program] | None = None,
    ) -> None:
        super().__init__(architecture, workload, plan, degrees, strides, profile, inside)
        self.algorithms = tuple(algorithms)
        self.stages, self.stage_stride = (np.broadcast_to(np.asarray(side, dtype=np.int64), (self.n,)) for side in pipeline)
        spatial = plan.spatial
        placed = np.column_stack([self.degrees[:, :spatial], self.strides[:, :spatial], self.stages, self.stage_stride])
        self._firsts, self._which = distinct_rows(placed)
        self.known: dict[object, Any] = {}
        self.later = _later_uses(workload)
        self.programs = {} if programs is None else programs

    def layer(self, section: Section, plan: Plan) -> LayerCost:
        """The cost of one layer of a section under a plan (whose axes are this pricer's)."""
        self.workload = section.workload
        key = (section.name, plan.key)
        if key not in self.programs:
            self.programs[key] = _once_at_home(derive(section.workload, plan), self.later[section.name])
        program = self.programs[key]
        priced = [self._remembered(task) for task in program.tasks]
        hidden = hidable(program.tasks, [seconds for _, seconds in priced], self.profile.overlap)
        items = tuple(
            Item(task, *_bin(task, section.workload, number in hidden), rows, seconds, hidden.get(number))
            for number, (task, (rows, seconds)) in enumerate(zip(program.tasks, priced, strict=True))
            if rows
        )
        return self._gathered(section, items, program)

    def _remembered(self, task: Task) -> tuple[tuple[Row, ...], Array]:
        key = (task.kind, task.tensor, task.action, task.axes, task.volume, task.leg, task.level, task.layout)
        found = self.known.get(key)
        if found is None:
            rows, seconds = self.task(task)
            found = self.known[key] = (tuple(rows), seconds)
        return found

    def _gathered(self, section: Section, items: tuple[Item, ...], program: Program) -> LayerCost:
        seconds: dict[tuple[str, str], Array] = {}
        hidden: dict[str, Array] = {}
        spent = {"device": np.zeros(self.n), "weights": np.zeros(self.n), "once": np.zeros(self.n)}
        for item in items:
            key = (item.bin, item.part)
            seconds[key] = seconds[key] + item.seconds if key in seconds else item.seconds
            if item.hidden is not None:
                hidden[item.part] = hidden[item.part] + item.hidden if item.part in hidden else item.hidden
            part = "once" if item.bin in ONCE else "device" if item.bin in ON_DEVICE else "weights"
            for row in item.rows:
                spent[part] += row.joules
        held, home = self._layer_held(program.held)
        trip, port = self._round_trip(program.tasks), self._port(items)
        return LayerCost(section, items, seconds, hidden, spent["device"], spent["weights"], spent["once"], held, home, trip, port)

    def _at_home(self, task: Task, volume: Array) -> list[Row]:
        """As for one stage, whose memory traffic waits for that of the others."""
        rows = super()._at_home(task, volume)
        return [replace(row, seconds=row.seconds * self.stages) if row.component == "memory" else row for row in rows]

    def _port(self, items: Iterable[Item]) -> Array:
        """[n] seconds for which streams of a backward pass keep a home's memory busy whose reads and writes share a port."""
        busy = np.zeros(self.n)
        for item in items:
            if item.task.kind == "stream" and (item.bin, item.part) in (("gather", "backward"), ("up", "backward")):
                memory = self.architecture.level(item.task.level).memory
                if memory is not None and memory.ports == "shared":
                    busy = busy + sum(row.seconds for row in item.rows if row.component == "memory")
        return busy

    def _round_trip(self, tasks: Iterable[Task]) -> Array:
        """[n] longest start-ups of a stream up and of one down; 0 where nothing goes up."""
        longest = {"broadcast": np.zeros(self.n), "reduce": np.zeros(self.n)}
        for task in tasks:
            if task.kind == "stream":
                longest[task.action] = np.maximum(longest[task.action], self._streams(task).latency_s.sum(axis=0))
        return np.where(longest["reduce"] > 0, longest["broadcast"] + longest["reduce"], 0.0)

    def _layer_held(self, held: Iterable[Held]) -> tuple[dict[str, Array], dict[str, Array]]:
        """Bytes by what holds them: sums, and for the passes of operations the largest."""
        found: dict[str, Array] = {}
        home: dict[str, Array] = {}
        working: dict[str, Array] = {}
        for item in held:
            size = item.volume.at(self.degrees)
            table, key = (home, item.level) if item.level else (working, item.tensor) if item.what == "working" else (found, item.what)
            table[key] = table[key] + size if key in table else size
        if working:
            found["working"] = np.max(np.stack(list(working.values())), axis=0)
        return found, home

    # -- links -----------------------------------------------------------------------------------------------------------

    def links(self, task: Task, volume: Array) -> LinkArrays:
        """The fastest of the allowed algorithms for each column (ties: the one named first); a ring where none of them applies."""
        if task.kind == "stream":
            return self._streams(task)
        if task.kind != "collective":
            return super().links(task, volume)
        offered = [self._algorithm(task, name) for name in dict.fromkeys((*self.algorithms, "ring"))]
        best = offered[0]
        for other in offered[1:]:
            faster = _seconds(other, volume) < _seconds(best, volume) * (1 - 1e-12)
            best = LinkArrays(best.levels, *(np.where(faster, getattr(other, f), getattr(best, f)) for f in LINK_FIGURES))
        return best

    def _algorithm(self, task: Task, name: str) -> LinkArrays:
        """A collective's cost on every column, which its message does not change: made once for each group of axes."""
        key = ("links", task.axes, task.action, name)
        if key not in self.known:
            self.known[key] = self._asked(task, name)
        return self.known[key]  # type: ignore[no-any-return]

    def _asked(self, task: Task, name: str) -> LinkArrays:
        """The groups of every stage run at once; a stage's share of their bytes and joules. Each distinct mesh is asked once."""
        spatial, one = self.plan.spatial, self._firsts
        axes = self.plan.axes[:spatial]
        table = collective_table(
            self.architecture,
            np.column_stack([self.degrees[one, :spatial], self.stages[one]]),
            np.column_stack([self.strides[one, :spatial], self.stage_stride[one]]),
            (*axes, "pipeline stages"),
            [axes[axis] for axis in task.axes],
            task.action,
            name,
        )
        return self._spread(table, self.stages[one])

    def _streams(self, task: Task) -> LinkArrays:
        """All stages stream at once, each its own layers: what they share of the way to the home is shared among them."""
        key = ("streams", task.action, task.level, task.layout)
        if key not in self.known:
            self.known[key] = self._for_all([self._of_all_stages(task, i) for i in self._firsts])
        return self.known[key]  # type: ignore[no-any-return]

    def _of_all_stages(self, task: Task, i: int) -> LinkUse:
        """A stage's share of the bytes and joules, the time of all of them."""
        groups, stages = self._streaming(task, self._mesh(i, task.stage)), int(self.stages[i])
        every = np.concatenate([groups + stage * int(self.stage_stride[i]) for stage in range(stages)])
        use = stream(self.architecture, task.level, every, task.action)
        wire, joules = (tuple(figure / stages for figure in side) for side in (use.wire_bytes_per_byte, use.joules_per_byte))
        return replace(use, wire_bytes_per_byte=wire, joules_per_byte=joules)

    def between_stages(self, architecture: Architecture, *, far: bool) -> LinkArrays:
        """A byte from every accelerator of a stage to its peer in the next, all stages at once, a hand-over's share of the joules;
        far: from the first stage to the last. Zeros where there is no pipeline."""
        spatial, one = self.plan.spatial, self._firsts
        stages = self.stages[one]
        table = send_table(architecture, self.degrees[one, :spatial], self.strides[one, :spatial], stages, self.stage_stride[one], far=far)
        return self._spread(table, np.ones(len(one)) if far else np.maximum(stages - 1, 1))

    def _spread(self, table: LinkTable, parts: Any) -> LinkArrays:
        """A table of the distinct meshes for every column, its bytes and joules divided into `parts`."""
        figures = (table.wire_bytes_per_byte / parts, table.joules_per_byte / parts, table.seconds_per_byte, table.latency_s)
        return LinkArrays(table.levels, *(figure[:, self._which] for figure in figures))


def _later_uses(workload: Workload) -> dict[str, frozenset[str]]:
    """Section → weights that an earlier section has too (a tied embedding): at a home they are held and updated once."""
    seen: set[str] = set()
    found = {}
    for section in workload.sections:
        found[section.name] = frozenset(section.workload.weights) & frozenset(seen)
        seen |= set(section.workload.weights)
    return found


def _once_at_home(program: Program, twice: frozenset[str]) -> Program:
    """The program without what a home does for weights that another section has."""
    if not twice:
        return program
    tasks = (replace(t, leg=None, level="") if t.channel == "home" and t.tensor in twice else t for t in program.tasks)
    return Program(tuple(tasks), tuple(h for h in program.held if not (h.level and h.tensor in twice)))


def _seconds(links: LinkArrays, volume: Array) -> Array:
    return np.asarray((links.seconds_per_byte * volume + links.latency_s).sum(axis=0))


def _bin(task: Task, workload: Workload, windowed: bool) -> tuple[str, str]:
    """(bin, pass) of a task."""
    if task.channel == "home":
        return "home", "optimizer"
    if task.phase == "optimizer":
        return ("update" if task.kind == "op" else "spread"), "optimizer"
    part = "forward" if task.phase == "forward" else "recompute" if task.phase == "recompute" else "backward"
    if task.channel == "gradients":
        return "up", "backward"
    if task.channel == "weights" and task.action in ("reduce_scatter", "all_reduce", "all_to_all"):
        return ("tail" if task.once else "reduce"), "backward"
    if task.channel == "weights":
        return "gather", part
    if task.leg is not None and part == "backward" and task.leg.macs and _writes_weight(task, workload):
        return "device", "weight"
    return ("window" if windowed else "device"), part


def _writes_weight(task: Task, workload: Workload) -> bool:
    assert task.leg is not None
    written = task.leg.writes[0][0]
    return written[:1] == "d" and written[1:] in workload.tensors and workload.tensors[written[1:]].kind == "weight"
