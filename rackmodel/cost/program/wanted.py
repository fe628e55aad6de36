"""Which tensor is wanted where, in which layouts, and in which it is first there: the questions a plan answers before any task.

A place is a tensor at a pipeline stage. `wanted` are the layouts its readers need in the forward pass, `read_back` those of the
backward pass (of what is made again: only what it is made from).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from rackmodel.cost.program.around import around
from rackmodel.cost.program.local_ops import backward_ops
from rackmodel.cost.program.recompute import Recompute, made_again
from rackmodel.cost.program.tasks import LocalOp
from rackmodel.cost.program.traffic import TensorTraffic, tensor_traffic
from rackmodel.model.copies import resolved
from rackmodel.model.layout import FLAT, PARTIAL, REPLICATE, Layout
from rackmodel.model.plan import Plan
from rackmodel.model.workload import Op, Workload
from rackmodel.once import once

Place = tuple[str, int]  # tensor and stage


class Places:
    """wanted, read_back: place → layouts, in program order · traffic: place → its copies · weight: of which alone they are, '' = of all;
    then the plan has to say no more than the choices of `ops`, which read it."""

    def __init__(self, workload: Workload, plan: Plan, recompute: Recompute, weight: str = "") -> None:
        self.workload, self.plan, self.recompute, self.weight = workload, plan, recompute, weight
        self.ops = {name: workload.ops[name] for name in workload.ops if name in workload.readers[weight]} if weight else workload.ops
        self.wanted: dict[Place, list[Layout]] = {}
        self.read_back: dict[Place, list[Layout]] = {}
        self._backward: dict[str, tuple[LocalOp, ...]] = {}
        self._want()
        self.traffic: dict[Place, TensorTraffic] = {place: self.traffic_of(place) for place in self.wanted}

    def _want(self) -> None:
        for op in self.ops.values():
            stage = self.plan.stages[op.name]
            for access, layout in zip(op.ins, around(op, self.plan, self.workload).needs, strict=True):
                if self.weight in ("", access.tensor):
                    self.wanted.setdefault((access.tensor, stage), []).append(layout)
            if not self.weight:
                self.wanted.setdefault((op.out.tensor, stage), [])
        for tensor in self.workload.outputs if not self.weight else ():
            stage = self.plan.stages[self.workload.producer[tensor]]
            self.wanted[(tensor, stage)].append(self.plan.boundary[tensor])
        for (tensor, stage), layouts in list(self.wanted.items()):
            home = self.stage_of(tensor)
            if home is not None and stage != home:
                crossing = resolved(self.produced((tensor, home)), layouts)
                self.wanted[(tensor, home)].append(crossing)
        if self.workload.backward:
            self._read_back()

    def _read_back(self) -> None:
        for op in self.ops.values():
            for tensor, layout in around(op, self.plan, self.workload).reads:
                if self.weight in ("", tensor):
                    self.read_back.setdefault((tensor, self.plan.stages[op.name]), []).append(layout)
        for name in (name for name in (*self.recompute.rerun, *self.recompute.inside) if name in self.ops):
            op = self.ops[name]
            for access, layout in zip(op.ins, around(op, self.plan, self.workload).needs, strict=True):
                if self.weight in ("", access.tensor) and not self.made_again((access.tensor, self.plan.stages[name])):
                    self.read_back.setdefault((access.tensor, self.plan.stages[name]), []).append(layout)

    def backward(self, op: Op) -> tuple[LocalOp, ...]:
        """The backward passes of an operation."""
        return once(self._backward, op.name, lambda: backward_ops(op, self.plan, self.workload))

    def made_again(self, place: Place) -> bool:
        """Whether a stage makes a tensor again for its backward pass: what another one hands to it is kept."""
        return made_again(place, self.recompute, self.workload, self.plan)

    def stage_of(self, tensor: str) -> int | None:
        """Stage of the operation that writes a tensor; None for inputs and weights."""
        producer = self.workload.producer.get(tensor)
        return None if producer is None else self.plan.stages[producer]

    def produced(self, place: Place) -> Layout:
        """Layout in which a tensor is first there: left by its producer, received, arrived, or at home."""
        tensor, stage = place
        home = self.stage_of(tensor)
        if home is not None:
            op = self.workload.ops[self.workload.producer[tensor]]
            if stage == home:
                return self.plan.leaves(op)
            how = self.plan.handed_over(tensor)
            return self.compute_layout(place) if how is not None and how.read == "whole" and self.wanted[place] else self.handed(place)
        if self.workload.tensors[tensor].kind == "weight":
            return self.weight_home(place)
        if self.workload.tensors[tensor].kind == "kv_cache":
            return self.compute_layout(place)
        return self.plan.boundary[tensor]

    def handed(self, place: Place) -> Layout:
        """Layout in which the stage that makes a tensor hands it to another."""
        op = self.workload.ops[self.workload.producer[place[0]]]
        return resolved(self.plan.leaves(op), self.wanted[place])

    def weight_home(self, place: Place) -> Layout:
        """Where the parameter rests: as its first reader needs it, further sharded over its home's axes."""
        home = self.plan.home(place[0])
        return self.sharded(self.compute_layout(place), home.axes if home.param == "shard" else [])

    def compute_layout(self, place: Place) -> Layout:
        """As the first reader there needs it."""
        return tuple(REPLICATE if p == PARTIAL else p for p in self.wanted[place][0])

    def sharded(self, layout: Layout, axes: Iterable[str]) -> Layout:
        """The same, further sharded over `axes` where it is replicated."""
        return sharded_over(layout, tuple(axes), self.plan.axes)

    def traffic_of(self, place: Place) -> TensorTraffic:
        """The copies of a tensor at one stage, and which of them is saved."""
        back = self.read_back.get(place, []) if not self.made_again(place) else []
        policy = "home" if self.workload.tensors[place[0]].kind == "weight" else self.plan.save_policy(place[0])
        return tensor_traffic(self.produced(place), tuple(self.wanted[place]), tuple(back), policy)


@cache
def sharded_over(layout: Layout, chosen: tuple[str, ...], axes: tuple[str, ...]) -> Layout:
    """A layout on `axes`, further sharded over the chosen ones where it is replicated."""
    return tuple(FLAT if p == REPLICATE and name in chosen else p for p, name in zip(layout, axes, strict=True))
