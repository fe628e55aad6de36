"""Derivation: from a plan to the program of tasks it causes, in three phases.

Nothing here knows the name of a strategy. Data, tensor, sequence, context, expert and pipeline parallelism, ZeRO and
weight streaming are plans; their traffic is the conversions between the layouts the plan leaves and needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, partial
from math import inf

import numpy as np

from rackmodel.cost.program.around import Around
from rackmodel.cost.program.buckets import bucketed
from rackmodel.cost.program.footprint import resident_tensors
from rackmodel.cost.program.local_ops import ordered_op
from rackmodel.cost.program.passes import Passes, ids_of
from rackmodel.cost.program.recompute import Recompute, recompute_of
from rackmodel.cost.program.tasks import Bucketed, LocalOp, Program, Task, Volume, local, message
from rackmodel.cost.program.traffic import merged
from rackmodel.cost.program.update_ops import optimizer_op, sharded_sum_op, swept_op
from rackmodel.cost.program.wanted import Place, Places
from rackmodel.cost.program.widths import sent_bytes
from rackmodel.model.conversion import convert
from rackmodel.model.copies import plan_copies
from rackmodel.model.layout import FLAT, REPLICATE, Layout
from rackmodel.model.plan import Plan
from rackmodel.model.workload import Op, Workload
from rackmodel.once import once


def derive(
    workload: Workload,
    plan: Plan,
    backing: str = "",
    ends: frozenset[str] | None = None,
    layers: int = 1,
    recompute: Recompute | None = None,
) -> Program:
    """The program of one pass over the workload. backing: level whose memory weights that are not resident and `ends` come from and go to,
    '' = none · ends: inputs and outputs that begin and end there, None = all (of a section: not what it is handed and hands on) ·
    layers: of the section that this is one of · recompute: what the plan's policy drops and reruns, where that is known."""
    ends = frozenset((*workload.inputs, *workload.outputs)) if ends is None else ends
    return _Derivation(workload, plan, backing, ends, layers, recompute or recompute_of(workload, plan)).run()


def derive_weight(name: str, workload: Workload, plan: Plan, backing: str, layers: int, recompute: Recompute) -> Program:
    """The part of a program that moves one weight, sums its gradient and updates it, and what is held of it. plan: which has to say no more
    than the choices of the operations that read it; joins stand for these. The rest as of `derive`."""
    return _OfWeight(workload, plan, backing, frozenset(), layers, recompute, name).run()


class _Derivation(Passes):
    def __init__(
        self, workload: Workload, plan: Plan, backing: str, ends: frozenset[str], layers: int, recompute: Recompute, weight: str = ""
    ) -> None:
        super().__init__(workload, plan, recompute)
        self.backing, self.ends, self.layers = backing, ends, layers
        self.places = Places(workload, plan, recompute, weight)
        self.inputs, self.outputs = (workload.inputs, workload.outputs) if not weight else ((), ())
        self.contributions: dict[Place, list[tuple[Layout, int]]] = {}

    # -- the three phases -------------------------------------------------------------------------------------------

    def run(self) -> Program:
        ops = self.places.ops
        for op in ops.values():
            self.run_forward(op, "forward", "forward")
        ends = [self._leave(tensor) for tensor in self.outputs]
        for place, traffic in self.places.traffic.items():
            if traffic.saved is not None and self.workload.tensors[place[0]].kind != "weight":
                self._copy("forward", "forward", place, traffic.saved)
        if self.workload.backward:
            for name in self.recompute.rerun:
                if name in ops:
                    self.run_forward(ops[name], "recompute", "back")
            for name in self.recompute.inside:
                if name in ops:
                    self.run_inside(ops[name])
            self._arrive(ends)
            for op in reversed(ops.values()):
                self.run_backward(op)
            for tensor in self.inputs:
                self._input_gradient(tensor)
        if "optimizer" in self.workload.phases:
            for place in self.places.wanted:
                held = self.workload.tensors[place[0]]
                if held.kind == "weight" and held.trained:
                    self._update(place)
        return Program(tuple(self.tasks), tuple(resident_tensors(self.workload, self.plan, self.places)))

    # -- forward ------------------------------------------------------------------------------------------------------

    def _passes_back(self, op: Op) -> tuple[LocalOp, ...]:
        return self.places.backward(op)

    def _copy(self, epoch: str, phase: str, place: Place, layout: Layout) -> int:
        """The task after which `layout` of a tensor is there, making the copy (and its sources) if need be."""
        if phase == "recompute" and self.workload.tensors[place[0]].kind == "weight" and self._passes(place[0]):
            epoch = "again"  # the backward pass of the operation streams or gathers it once more
        key = (epoch, place, layout)
        if key not in self.ready:
            source = self._source(epoch, place, layout)
            if source is None:
                self.ready[key] = self._first(epoch, phase, place)
            else:
                start = self._copy(epoch, phase, place, source)
                self.ready[key] = self._convert(phase, place, source, layout, start, sent_bytes(self.workload.tensors[place[0]], self.plan))
        return self.ready[key]

    def _passes(self, weight: str) -> bool:
        """Whether a weight is there only while the operation runs that reads it: streamed, or gathered by each pass for itself."""
        home = self.plan.home(weight)
        return home.at is not None or (self.plan.regather and home.param == "shard")

    def _source(self, epoch: str, place: Place, layout: Layout) -> Layout | None:
        traffic = self.places.traffic[place]
        if epoch == "forward":
            return dict(traffic.forward).get(layout)
        if self.places.made_again(place):
            made = plan_copies([self.places.produced(place)], [*self.places.wanted[place], *self.places.read_back.get(place, [])])
            return made.get(layout)
        return dict(traffic.regather).get(layout)

    def _first(self, epoch: str, phase: str, place: Place) -> int:
        """The task after which a tensor is there at all: arrival, home, or a send from the stage that made it."""
        tensor, stage = place
        kind, home = self.workload.tensors[tensor].kind, self.places.stage_of(tensor)
        if kind == "weight":
            return self._fetch(epoch, phase, place)
        if epoch == "back" or kind == "kv_cache":
            return -1  # saved; kept where it is read
        if home is None:
            return self._load(phase, place, self.plan.boundary[tensor])
        sent = self.places.handed(place)
        ready = self._copy(epoch, phase, (tensor, home), sent)
        return self._hand(phase, tensor, (home, sent), (stage, self.places.produced(place)), ready)

    def _fetch(self, epoch: str, phase: str, place: Place) -> int:
        home = self.plan.home(place[0])
        if home.at is None:
            return self._load(phase, place, self.places.weight_home(place)) if epoch == "forward" else -1
        where = "forward" if phase == "forward" else "backward"
        layout = self.places.compute_layout(place)
        volume = self._local(place[0], layout)
        task = Task(
            "stream", where, self._reader(place), place[0], place[1], "broadcast", (), "weights", (), volume, level=home.at, layout=layout
        )
        return self._emit(task)

    def _load(self, phase: str, place: Place, layout: Layout) -> int:
        volume = self._local(place[0], layout)
        weight = self.workload.tensors[place[0]].kind == "weight"
        starts_here = not self.workload.resident if weight else place[0] in self.ends
        if not self.backing or volume.empty or not starts_here:
            return -1
        return self._emit(  # a weight stays for the other micro-batches
            Task("load", phase, self._reader(place), place[0], place[1], "read", (), volume=volume, level=self.backing, once=weight)
        )

    def _reader(self, place: Place) -> str:
        return next(name for name in self.workload.readers[place[0]] if self.plan.stages[name] == place[1])

    def _convert(
        self, phase: str, place: Place, source: Layout, target: Layout, after: int, total: float, channel: str = "", *, once: bool = False
    ) -> int:
        steps = convert(source, target)
        if not steps:
            return after
        weight = self.workload.tensors[place[0]].kind == "weight"
        phase = "backward" if weight and phase == "recompute" else phase
        einsum = self.workload.producer.get(place[0]) or self._reader(place)
        together = self._bucketed(place[0], total) if weight else None
        ranks = tuple(axis for step in steps for axis in step.axes if step.collective in ("all_gather", "reduce_scatter"))
        if weight and channel and not once:  # what is reduced once a step is little beside it
            after = self._ordered(phase, place, source, ranks, after, gradient=True)
        for step in steps:
            task = Task(
                "collective",
                phase,
                einsum,
                place[0],
                place[1],
                step.collective,
                ids_of([after]),
                channel or ("weights" if weight and not self._waits(place[0], phase) else "device"),
                step.axes,
                message(total, step, self.workload.tensors[place[0]], self.plan),
                once=once,
                bucketed=together,
            )
            after = self._emit(task)
        return after if channel or not weight else self._ordered(phase, place, target, ranks, after)

    def _bucketed(self, weight: str, total: float) -> Bucketed | None:
        if isinstance(total, np.ndarray) or isinstance(self.layers, np.ndarray):  # rows of many models, priced together
            return bucketed(self.workload, weight, total, self.layers)
        key = ("bucketed", self.workload.readers[weight][0], weight, total, self.layers)
        return once(self.plan.known, key, lambda: bucketed(self.workload, weight, total, self.layers))

    def _ordered(self, phase: str, place: Place, layout: Layout, ranks: tuple[int, ...], after: int, *, gradient: bool = False) -> int:
        """The copy behind a gather of a weight, or before the reduction of its gradient. layout: of what is copied."""
        each = self.plan.packed if gradient else self.plan.unpacked
        if not each or not ranks:
            return after
        local_op = ordered_op(self.workload.tensors[place[0]], layout, ranks, each, self.plan, gradient=gradient)
        einsum = self._reader(place)
        return self._emit(Task("op", phase, einsum, local_op.written, place[1], "vector", ids_of([after]), local_op=local_op))

    def _waits(self, weight: str, phase: str) -> bool:
        """Whether a weight is gathered when it is needed, not ahead: those in use before it, of this layer or one like it, are too large.
        Norms and biases, of one rank, are not counted."""
        if self.plan.ahead == inf:
            return False
        own = next((number for number, (names, _) in enumerate(self.large) if weight in names), None)
        if own is None:
            return False
        _, before = self.large[(own + (1 if phase == "backward" else -1)) % len(self.large)]
        return before >= self.plan.ahead

    @cached_property
    def large(self) -> list[tuple[list[str], float]]:
        """Weights that are used together, but norms and biases, and the elements of all of them."""
        tensors = self.workload.tensors
        joint = [names for names in self.workload.joint_weights if len(tensors[names[0]].ranks) > 1]
        return [(names, sum(tensors[name].elements for name in names)) for names in joint]

    def _hand(self, phase: str, tensor: str, source: tuple[int, Layout], target: tuple[int, Layout], after: int) -> int:
        """A tensor, or in the backward pass its gradient, from stage to stage: over links, or written to a memory above and read there.
        source, target: stage and layout."""
        einsum = self.workload.producer[tensor]
        label, how = tensor if phase == "forward" else f"d{tensor}", self.plan.handed_over(tensor)
        backward = phase != "forward"
        volume = self._local(tensor, source[1], gradient=backward)
        if how is None:
            send = Task("send", phase, einsum, label, source[0], "send", ids_of([after]), "link", (), volume, to_stage=target[0])
            return self._emit(send)
        key = (f"written {phase}", (label, source[0]), source[1])
        if key not in self.ready:  # once, for all stages that read it
            written = Task(
                "store", phase, einsum, label, source[0], "write", ids_of([after]), volume=volume, level=how.at, layout=source[1]
            )
            self.ready[key] = self._emit(written)
        there, read = self.ready[key], self._local(tensor, target[1], gradient=backward)
        return self._emit(Task("load", phase, einsum, label, target[0], "read", ids_of([there]), volume=read, level=how.at))

    def _leave(self, tensor: str) -> int:
        """An output leaves in its boundary layout."""
        stage = self.plan.stages[self.workload.producer[tensor]]
        done = self._copy("forward", "forward", (tensor, stage), self.plan.boundary[tensor])
        return self._store("forward", self.workload.producer[tensor], tensor, tensor, stage, done)

    def _store(self, phase: str, einsum: str, tensor: str, label: str, stage: int, after: int) -> int:
        if not self.backing or tensor not in self.ends:
            return after
        layout = self.plan.boundary[tensor]
        volume = self._local(tensor, layout)
        return self._emit(
            Task("store", phase, einsum, label, stage, "write", ids_of([after]), volume=volume, level=self.backing, layout=layout)
        )

    # -- backward ------------------------------------------------------------------------------------------------------

    def _arrive(self, ends: list[int]) -> None:
        """The gradients of the outputs arrive in the layout in which the outputs left."""
        for tensor, end in zip(self.outputs, ends, strict=True):
            stage = self.plan.stages[self.workload.producer[tensor]]
            volume = self._local(tensor, self.plan.boundary[tensor])
            if self.backing and tensor in self.ends:
                einsum = self.workload.producer[tensor]
                end = self._emit(
                    Task("load", "backward", einsum, f"d{tensor}", stage, "read", ids_of([end]), volume=volume, level=self.backing)
                )
            self.contributions.setdefault((tensor, stage), []).append((self.plan.boundary[tensor], end))

    def _gradient(self, place: Place, target: Layout) -> int:
        """Sum the contributions of a tensor's gradient and bring it to `target`; the task after which it is there."""
        total = self.workload.tensors[place[0]].gradient_bytes
        arrived = self.contributions.get(place, [])
        done = [-1]
        for layout, which in merged([layout for layout, _ in arrived]):
            start = self._join([arrived[i][1] for i in which])
            done.append(self._convert("backward", place, layout, target, start, total))
        return self._join(done)

    def _contribute(self, op: Op, position: int, done: int) -> None:
        access, stage = op.ins[position], self.plan.stages[op.name]
        place = (access.tensor, stage)
        self.contributions.setdefault(place, []).append((self.plan.gradient_leaves(op, position, self.workload), done))
        if self.workload.tensors[access.tensor].kind == "weight" and op.name == self._reader(place):
            self._weight_gradient(place)

    def _receive(self, tensor: str, stage: int) -> None:
        """Gradients of a tensor that crossed to later stages come back the way it went."""
        for other in sorted({self.plan.stages[name] for name in self.workload.readers[tensor]} - {stage}, reverse=True):
            layout = self.places.handed((tensor, other))
            ready = self._gradient((tensor, other), layout)
            done = self._hand("backward", tensor, (other, layout), (stage, layout), ready)
            self.contributions.setdefault((tensor, stage), []).append((layout, done))

    def _input_gradient(self, tensor: str) -> None:
        if self.workload.tensors[tensor].bits == 0:
            return
        for stage in sorted({self.plan.stages[name] for name in self.workload.readers[tensor]}):
            if not self.contributions.get((tensor, stage)):
                continue
            done = self._gradient((tensor, stage), self.plan.boundary[tensor])
            self._store("backward", self._reader((tensor, stage)), tensor, f"d{tensor}", stage, done)

    def _weight_gradient(self, place: Place) -> None:
        """Sum a weight's gradient over axes neither of its home nor of replicas, then reduce it to its home, whose replicas sum it."""
        tensor, home = self.workload.tensors[place[0]], self.plan.home(place[0])
        total = tensor.elements * self.workload.gradient_bits / 8
        arrived = self.contributions[place]
        compute = self.places.compute_layout(place)
        asked = self._ask(place, home.at) if home.at is not None else -1
        if home.at is not None:
            self._update_at_home(place, [done for _, done in arrived], home.at)
        for layout, which in merged([layout for layout, _ in arrived]):
            start = self._join([asked, *(arrived[i][1] for i in which)])
            if home.at is not None:
                self._stream_up(place, layout, start, total, home.at)
                continue
            rest = self.places.sharded(compute, home.axes if home.state == "shard" else [])
            apart = self.places.sharded(compute, home.apart)
            summed = tuple(now if end == FLAT else then for now, end, then in zip(layout, apart, compute, strict=True))
            once = home.grad == "replicate"
            start = self._convert("backward", place, layout, summed, start, total, "weights", once=once)
            start = self._convert("backward", place, summed, rest, start, total, "weights", once=once)
            if home.grad == "shard":
                self._add_to_shard(place, rest, start)
            if home.gathered_after(self.workload.phases):
                self._convert("optimizer", place, rest, compute, start, sent_bytes(tensor, self.plan), "weights", once=True)

    def _add_to_shard(self, place: Place, shard: Layout, reduced: int) -> None:
        """What a micro-batch's reduction leaves here is added to the sum so far, beside the reductions, not in the device's order."""
        tensor = self.workload.tensors[place[0]]
        local_op, after = sharded_sum_op(tensor, shard, self.plan, self.workload), ids_of([reduced])
        self._emit(Task("op", "backward", self._reader(place), tensor.name, place[1], "vector", after, "weights", local_op=local_op))

    def _update_at_home(self, place: Place, after: Iterable[int], level: str) -> None:
        """The home updates what it holds, element by element as gradients arrive (seed 001, 7.4)."""
        if "optimizer" in self.workload.phases:
            update = optimizer_op(self.workload.tensors[place[0]], (REPLICATE,) * len(self.plan.axes), self.plan, self.workload)
            reader = self._reader(place)
            self._emit(
                Task(
                    "op", "optimizer", reader, place[0], place[1], "vector", ids_of(after), "home", local_op=update, level=level, once=True
                )
            )

    def _update(self, place: Place) -> None:
        """One step of the optimizer on the shard of the state that lives here, and passes over the gradient as it is summed here."""
        tensor, home = self.workload.tensors[place[0]], self.plan.home(place[0])
        if home.at is not None:
            return  # there, as its gradient arrives
        compute, reader = self.places.compute_layout(place), self._reader(place)
        for said, op_of in ((home.grad, swept_op), (home.state, optimizer_op)):
            layout = self.places.sharded(compute, home.axes if said == "shard" else [])
            key = (op_of, reader, tensor.name, layout, id(self.plan.updates))
            local_op = once(self.plan.known, key, partial(op_of, tensor, layout, self.plan, self.workload))
            if local_op is not None:
                self._emit(Task("op", "optimizer", reader, tensor.name, place[1], "vector", (), local_op=local_op, once=True))

    def _stream_up(self, place: Place, layout: Layout, after: int, total: float, level: str) -> None:
        name, reader = place[0], self._reader(place)
        volume = local(total, layout, self.workload.tensors[name], self.plan)
        self._emit(
            Task(
                "stream", "backward", reader, name, place[1], "reduce", ids_of([after]), "gradients", (), volume, level=level, layout=layout
            )
        )

    def _ask(self, place: Place, level: str) -> int:
        """The index of a sparse weight goes down once more, to ask for its gradient there (seed 001, 7.4)."""
        tensor, layout = self.workload.tensors[place[0]], self.places.compute_layout(place)
        volume, name = local(tensor.index_bytes, layout, tensor, self.plan), f"{tensor.name}.mask"
        if not tensor.index_bytes:
            return -1
        reader = self._reader(place)
        return self._emit(
            Task("stream", "backward", reader, name, place[1], "broadcast", (), "weights", (), volume, level=level, layout=layout)
        )

    def _local(self, name: str, layout: Layout, *, gradient: bool = False) -> Volume:
        """Bytes of a tensor, or of an activation's gradient, on one accelerator under a layout."""
        tensor = self.workload.tensors[name]
        return local(tensor.gradient_bytes if gradient else tensor.bytes, layout, tensor, self.plan)


class _OfWeight(_Derivation):
    """Of one weight alone. Its readers' passes are joins, for whose gradients its reductions wait."""

    def _copy(self, epoch: str, phase: str, place: Place, layout: Layout) -> int:
        return super()._copy(epoch, phase, place, layout) if place[0] == self.places.weight else -1

    def _gradient(self, place: Place, target: Layout) -> int:
        return -1

    def _receive(self, tensor: str, stage: int) -> None:
        """Nothing: gradients of activations are others'."""

    def _contribute(self, op: Op, position: int, done: int) -> None:
        if op.ins[position].tensor == self.places.weight:
            super()._contribute(op, position, done)

    def _local_op(self, op: Op, phase: str, local_op: LocalOp, after: Iterable[int]) -> int:
        return self._emit(Task("op", phase, op.name, local_op.written, self.plan.stages[op.name], "join", ()))

    def _cast(self, op: Op, phase: str, after: list[int]) -> list[int]:
        return after

    def _statistics(self, op: Op, phase: str, numbers: int, after: int) -> int:
        return after

    def _halo(self, op: Op, position: int, beside: Around, phase: str, after: int) -> int:
        return after
