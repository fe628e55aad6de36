"""A plan: every decision of a mapping except the degrees, so that one plan is derived once for many meshes."""

from __future__ import annotations

from collections.abc import Mapping as AbcMapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import Any

from rackmodel.model.layout import PARTIAL, REPLICATE, Choice, Layout, grad_leaves, leaves, need
from rackmodel.model.mapping import HandoverSpec, HomeSpec
from rackmodel.model.profile import Casts, Composite, Heads, Updates
from rackmodel.model.workload import Op, Workload

RESIDENT = HomeSpec()
NO_UPDATES = Updates()
NO_HEADS = Heads()
MICRO = "micro"
"""The axis of a plan that is time: its degree is the number of micro-batches."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """axes: names of the mesh axes, and last MICRO, which splits the batch in time, not over accelerators · choices: op → choice per
    axis · boundary: tensor → layout in which it arrives or leaves · stages: op → pipeline stage of a cut below the layer · homes, save:
    by tensor · flat: axis → indices of a flattening that the degree does not factor (compute takes the fullest share of their product) ·
    on_chip: tensors that never leave the chip, because the kernels that write and read them are one (flash: those of the attention
    kernel, made again in the backward pass) · composites: kind of operation → the kernels that it runs as · heads: those around
    attention, beside its operations; attending: products of queries and keys · casts: bits of a product's operands → what casting them
    takes · joined: operations that another one's kernel makes as well, without a start of
    their own · handed: those that take their first operand from the kernel that made it · summed:
    normalisations that an all-reduce's kernel goes on with → its axes · adds_apart: whether a kernel of its own adds
    up a weight's gradients · unpacked, packed: bytes that kernels move for an element of a weight after it was gathered, of its gradient
    before it is reduced · updates: passes over gradients beside the optimizer's · regather: whether what recomputation gathers of
    weights is gathered again by the backward pass · drops_unread: whether what a policy lists is not kept where no backward pass
    reads it · ahead: elements of a gathered weight beside which none is gathered ahead ·
    handover: tensor, or '*' → the memory by which stages hand it over."""

    axes: tuple[str, ...]
    choices: AbcMapping[str, tuple[Choice, ...]]
    boundary: AbcMapping[str, Layout]
    stages: AbcMapping[str, int]
    homes: AbcMapping[str, HomeSpec]
    save: AbcMapping[str, str]
    recompute: str = "none"
    rerun: str = "region"
    uneven: str = "error"
    flat: AbcMapping[str, tuple[str, ...]] = field(default_factory=dict)
    on_chip: frozenset[str] = frozenset()
    flash: frozenset[str] = frozenset()
    composites: AbcMapping[str, Composite] = field(default_factory=dict)
    heads: Heads = NO_HEADS
    attending: frozenset[str] = frozenset()
    casts: AbcMapping[int, Casts] = field(default_factory=dict)
    joined: frozenset[str] = frozenset()
    handed: frozenset[str] = frozenset()
    summed: AbcMapping[str, tuple[int, ...]] = field(default_factory=dict)
    adds_apart: bool = False
    unpacked: float = 0.0
    packed: float = 0.0
    updates: Updates = NO_UPDATES
    regather: bool = False
    drops_unread: bool = False
    ahead: float = inf
    handover: AbcMapping[str, HandoverSpec] = field(default_factory=dict)
    known: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)  # what `replace`d plans share, by all it depends on

    @property
    def spatial(self) -> int:
        """Axes that spread over accelerators: the first ones."""
        return len(self.axes) - 1

    @property
    def room(self) -> Plan:
        """The plan by which its room is counted: whoever sets the pace of bytes, the fullest accelerator has to hold its share."""
        return self._of_room if self.uneven == "ceil" else self  # (what remembers itself stays until cycles are looked for)

    @cached_property
    def _of_room(self) -> Plan:
        return replace(self, uneven="fullest", known=self.known.setdefault("room", {}))

    @cached_property
    def key(self) -> tuple[object, ...]:
        """What makes two plans the same."""
        return (self.at_home, *self._layouts, *self.rest)

    @cached_property
    def at_home(self) -> tuple[object, ...]:
        """What makes homes the same."""
        return self._homes_key(self.homes)

    @cached_property
    def laid_out(self) -> tuple[object, ...]:
        """What makes two plans the same but for homes and what they make again."""
        return (*self._layouts, self.rerun, *self._others)

    def cause(self, workload: Workload) -> tuple[object, ...]:
        """What makes two plans the same to a workload whose program knows what they make again: of operations that it does not have and
        homes that go without saying nothing is said."""
        told = {name: home for name, home in self.homes.items() if home != (RESIDENT if name == "weights" else self.home("weights"))}
        choices = tuple(self.choices[name] for name in workload.ops)
        edges = tuple(self.boundary.get(name) for name in (*workload.inputs, *workload.outputs))
        homes = self.at_home if len(told) == len(self.homes) else self._homes_key(told)
        return (homes, self.axes, choices, edges, tuple(self.flat.items()), *self._others)

    @cached_property
    def rest(self) -> tuple[object, ...]:
        """The part of the key that speaks of no axis."""
        return (self.recompute, self.rerun, *self._others)

    @staticmethod
    def _homes_key(homes: AbcMapping[str, HomeSpec]) -> tuple[object, ...]:
        return tuple((name, home.model_dump_json()) for name, home in homes.items())

    @property
    def _layouts(self) -> tuple[object, ...]:
        return self.axes, tuple(self.choices.items()), tuple(self.boundary.items()), tuple(self.flat.items())

    @property
    def _others(self) -> tuple[object, ...]:
        """Neither of axes nor of what is made again."""
        return (
            tuple(self.stages.items()),
            tuple(self.save.items()),
            self.uneven,
            tuple(sorted(self.on_chip)),
            tuple(sorted(self.joined)),
            tuple(sorted(self.handed)),
            tuple(sorted(self.summed.items())),
            tuple((name, how.at, how.read) for name, how in self.handover.items()),
        )

    @cached_property
    def stage_count(self) -> int:
        """Pipeline stages."""
        return max(self.stages.values(), default=0) + 1

    def home(self, weight: str) -> HomeSpec:
        """Where a weight lives."""
        return self.homes.get(weight, self.homes.get("weights", RESIDENT))

    def handed_over(self, tensor: str) -> HandoverSpec | None:
        """The memory by which stages hand a tensor over; None = links."""
        return self.handover.get(tensor, self.handover.get("*"))

    def save_policy(self, tensor: str) -> str:
        """'shard' or 'gathered'."""
        return self.save.get(tensor, self.save.get("*", "shard"))

    def needs(self, op: Op, position: int, workload: Workload) -> Layout:
        """Layout in which an operation needs its operand number `position`."""
        key = (op.name, position, self.choices[op.name])
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = tuple(need(op.ins[position], choice, workload) for choice in self.choices[op.name])
        return found

    def gradient_leaves(self, op: Op, position: int, workload: Workload) -> Layout:
        """Layout in which the backward pass leaves the gradient of operand number `position`. Of a tensor without the batch, micro-batches
        add theirs in place: no network joins them."""
        key = ("gradient", op.name, position, self.choices[op.name])
        found = self.known.get(key)
        if found is None:
            left = tuple(grad_leaves(op.ins[position], choice, workload) for choice in self.choices[op.name])
            found = self.known[key] = (*left[:-1], REPLICATE) if left[-1] == PARTIAL else left
        return found

    def leaves(self, op: Op) -> Layout:
        """Layout in which an operation leaves its output."""
        key = (op.name, self.choices[op.name])
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = tuple(leaves(op, choice) for choice in self.choices[op.name])
        return found


def default_boundary(tensor: str, workload: Workload, choices: AbcMapping[str, tuple[Choice, ...]]) -> Layout:
    """How a tensor crosses the workload's edge when the mapper does not say.

    An input arrives as its first reader needs it. An output leaves like the input of the same ranks and sizes (a block
    in a stack), else as it is produced, Partials all-reduced.
    """
    if tensor in workload.producer:
        twin = twin_input(tensor, workload)
        if twin:
            return default_boundary(twin, workload, choices)
        op = workload.ops[workload.producer[tensor]]
        produced = tuple(leaves(op, choice) for choice in choices[op.name])
        return tuple(REPLICATE if placement == PARTIAL else placement for placement in produced)
    op = workload.ops[workload.readers[tensor][0]]
    access = next(access for access in op.ins if access.tensor == tensor)
    layout = tuple(need(access, choice, workload) for choice in choices[op.name])
    return tuple(REPLICATE if placement == PARTIAL else placement for placement in layout)


def twin_input(tensor: str, workload: Workload) -> str:
    """The input of the same ranks and sizes as an output (the block's residual stream); '' where there is none."""
    if tensor not in workload.outputs:
        return ""
    here = workload.tensors[tensor]
    same = (name for name in workload.inputs if (workload.tensors[name].ranks, workload.tensors[name].sizes) == (here.ranks, here.sizes))
    return next(same, "")
