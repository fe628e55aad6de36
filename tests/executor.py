"""A numeric executor: it runs a plan on virtual devices with numpy, forward and backward, and checks every local array.

A distributed tensor is one array [devices, *sizes]: each device holds the whole shape, zero outside its shard. Along an
axis it is replicated (equal), sharded (disjoint) or a Partial (the sum over the axis is the tensor). An index of a rank
belongs to one coordinate of every axis at once: its position, in blocks, written in the mixed radix of the degrees. So
a shard along an axis is the set of indices whose digit is the coordinate, and shards along several axes never clash.

What is needed, left, copied, saved, merged and converted is asked of the library; what is done is numpy on the arrays
that a device has. A wrong rule therefore shows as a wrong number, or as an array that does not lie as it is said to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.program.local_ops import backward_reads, has_backward, statistics_axes, wants_gradient
from rackmodel.cost.program.recompute import recompute_of
from rackmodel.cost.program.tasks import Volume
from rackmodel.cost.program.traffic import TensorTraffic, merged, tensor_traffic
from rackmodel.model.conversion import Step, convert
from rackmodel.model.copies import plan_copies
from rackmodel.model.layout import FLAT, PARTIAL, REPLICATE, Layout, grad_leaves, grad_need, is_shard
from rackmodel.model.plan import Plan
from rackmodel.model.workload import Op, Tensor, Workload

Array = NDArray[np.float64]
TOLERANCE = 1e-6


@dataclass(frozen=True)
class Move:
    """A collective that was executed; bytes: its message on one device (held before, or gathered)."""

    phase: str
    tensor: str
    collective: str
    axes: tuple[int, ...]
    bytes: float


class Devices:
    """The mesh of virtual devices: who holds which elements, and sums over groups."""

    def __init__(self, degrees: Sequence[int]) -> None:
        self.degrees = tuple(degrees)
        self.count = prod(degrees)
        self.coordinates = np.indices(self.degrees).reshape(len(self.degrees), self.count)
        self._masks: dict[Any, NDArray[np.bool_]] = {}

    def digits(self, size: int) -> NDArray[np.int64]:
        """[axes, size] the coordinate on each axis to which each index of a rank belongs (0 where the mesh does not divide it)."""
        blocks = np.arange(size) * self.count // size if size % self.count == 0 else np.zeros(size, int)
        return np.array(np.unravel_index(blocks, self.degrees))

    def mask(self, tensor: Tensor, layout: Layout) -> NDArray[np.bool_]:
        """[devices, *sizes] the elements that each device holds under a layout (a Partial: all)."""
        key = (tensor.ranks, tensor.sizes, layout)
        if key not in self._masks:
            held = np.ones((self.count, *tensor.sizes), dtype=bool)
            for axis, placement in enumerate(layout):
                if is_shard(placement):
                    held &= self._digit_of(tensor, placement, axis) == self._along(axis, len(tensor.sizes))
            self._masks[key] = held
        return self._masks[key]

    def _digit_of(self, tensor: Tensor, placement: str, axis: int) -> NDArray[np.int64]:
        """[1, *sizes] coordinate on an axis that holds each element; a flat shard goes by the sum of its ranks' digits."""
        ranks = tensor.ranks if placement == FLAT else (placement[2:],)
        total = np.zeros((1, *tensor.sizes), dtype=np.int64)
        for position, (rank, size) in enumerate(zip(tensor.ranks, tensor.sizes, strict=True)):
            if rank in ranks:
                shape = [1] * (len(tensor.sizes) + 1)
                shape[position + 1] = size
                total = total + self.digits(size)[axis].reshape(shape)
        return total % self.degrees[axis]

    def _along(self, axis: int, ranks: int) -> NDArray[np.int64]:
        return self.coordinates[axis].reshape(self.count, *[1] * ranks)

    def combine(self, array: Array, axes: Sequence[int], how: Any = np.add) -> Array:
        """Reduce over the groups of some axes; every member of a group has the result."""
        grid = array.reshape(*self.degrees, *array.shape[1:])
        whole = how.reduce(grid, axis=tuple(axes), keepdims=True)
        return np.broadcast_to(whole, grid.shape).reshape(array.shape)

    def first(self, array: Array, axis: int) -> Array:
        """The array where the coordinate on an axis is 0, zeros elsewhere: a replicated tensor becomes a Partial."""
        return array * (self._along(axis, array.ndim - 1) == 0)

    def assemble(self, array: Array, tensor: Tensor, layout: Layout) -> Array:
        """The whole tensor from what the devices hold. Fails where that does not lie as the layout claims."""
        assert not array[~self.mask(tensor, layout)].any(), f"{tensor.name} has elements outside its shard {layout}"
        grid = array.reshape(*self.degrees, *tensor.sizes)
        for axis, placement in enumerate(layout):
            if placement == REPLICATE:
                first = grid.take([0], axis)
                assert np.allclose(grid, first, rtol=1e-9, atol=1e-12), f"{tensor.name} differs along replicated axis {axis}: {layout}"
                grid = first
            else:
                grid = grid.sum(axis, keepdims=True)
        return grid.reshape(tensor.sizes)

    def elements_sent(self, tensor: Tensor, step: Step, before: Layout, after: Layout) -> float:
        """Elements of a tensor that a device sends in a collective (mean over devices), counted on what is held where.

        Gathering or exchanging: what was missing is received. Reducing: all but the own shard is sent. An all-reduce
        reduces to an even share of what is held, then gathers it.
        """
        had, has = self.mask(tensor, before), self.mask(tensor, after)
        if step.collective in ("all_gather", "all_to_all"):
            return (has & ~had).sum() / self.count
        if step.collective == "reduce_scatter":
            return (had & ~has).sum() / self.count
        assert step.collective == "all_reduce"
        group = [self.degrees[axis] for axis in step.axes]
        member = np.ravel_multi_index([self.coordinates[axis] for axis in step.axes], group)
        flat = had.reshape(self.count, -1)
        own = (flat.cumsum(axis=1) - 1) % prod(group) == member[:, None]
        return 2 * (flat & ~own).sum() / self.count


class Executor:
    """Runs one plan. values: whole inputs and weights by name · arriving: whole gradients of the outputs by name ·
    truth: what the unsharded run saw (None: this is that run).

    After `run`: seen, every whole value, contribution and gradient; moves, every collective in order.
    """

    def __init__(
        self,
        workload: Workload,
        plan: Plan,
        degrees: Sequence[int],
        values: dict[str, Array],
        arriving: dict[str, Array],
        truth: dict[Any, Array] | None = None,
    ) -> None:
        self.workload, self.plan, self.devices = workload, plan, Devices(degrees)
        self.values, self.arriving, self.truth = values, arriving, truth
        self.recompute = recompute_of(workload, plan)
        self.seen: dict[Any, Array] = {}
        self.moves: list[Move] = []
        self.copies: dict[tuple[str, str], dict[Layout, Array]] = {}
        self.contributions: dict[str, list[tuple[Layout, Array]]] = {}
        self.kept: dict[str, Array] = {}  # statistics of a norm, small enough to keep
        self.wanted: dict[str, list[Layout]] = {name: [] for name in workload.tensors}
        self.read_back: dict[str, list[Layout]] = {name: [] for name in workload.tensors}
        self._collect_wants()
        self.plans = {name: self._traffic(name) for name in workload.tensors}

    # -- which layouts are wanted ---------------------------------------------------------------------------------------

    def _collect_wants(self) -> None:
        ops = self.workload.ops
        for op in ops.values():
            for position, access in enumerate(op.ins):
                self.wanted[access.tensor].append(self._need(op, position))
            if has_backward(op, self.workload):
                for access in backward_reads(op, self.workload):
                    self.read_back[access.tensor].append(self._layout_read(op, access))
        for tensor in self.workload.outputs:
            self.wanted[tensor].append(self.plan.boundary[tensor])
        for op in (ops[name] for name in self.recompute.rerun):
            for position, access in enumerate(op.ins):
                if access.tensor not in self.recompute.made:
                    self.read_back[access.tensor].append(self._need(op, position))

    def _need(self, op: Op, position: int) -> Layout:
        return self.plan.needs(op, position, self.workload)

    def _layout_read(self, op: Op, access: Any) -> Layout:
        position = next((i for i, operand in enumerate(op.ins) if operand is access), None)
        return self.plan.leaves(op) if position is None else self._need(op, position)

    def _produced(self, tensor: str) -> Layout:
        """Layout in which a tensor first is there: left by its operation, arrived, or at home."""
        if tensor in self.workload.producer:
            return self.plan.leaves(self.workload.ops[self.workload.producer[tensor]])
        home = self.plan.home(tensor)
        if self.workload.tensors[tensor].kind == "weight":
            return self._sharded(self._compute_layout(tensor), home.axes if home.param == "shard" else [])
        return self.plan.boundary[tensor]

    def _compute_layout(self, weight: str) -> Layout:
        return tuple(REPLICATE if p == PARTIAL else p for p in self.wanted[weight][0])

    def _sharded(self, layout: Layout, axes: Iterable[str]) -> Layout:
        return tuple(FLAT if p == REPLICATE and axis in axes else p for axis, p in zip(self.plan.axes, layout, strict=True))

    def _traffic(self, tensor: str) -> TensorTraffic:
        """Copies of a tensor. A weight is at home all the time: what the backward pass wants of it is made from there."""
        back = () if tensor in self.recompute.made else tuple(self.read_back[tensor])
        policy = "home" if self.workload.tensors[tensor].kind == "weight" else self.plan.save_policy(tensor)
        return tensor_traffic(self._produced(tensor), tuple(self.wanted[tensor]), back, policy)

    # -- the three phases ----------------------------------------------------------------------------------------------

    def run(self) -> Executor:
        """Forward, then what is recomputed, then backward to the gradients of weights and inputs."""
        for tensor in (*self.workload.inputs, *self.workload.weights):
            layout = self._produced(tensor)
            self._there("forward", tensor, layout, self.values[tensor] * self.devices.mask(self.workload.tensors[tensor], layout))
        for op in self.workload.ops.values():
            self._forward(op, "forward", "forward")
        for tensor in self.workload.outputs:
            self._copy("forward", "forward", tensor, self.plan.boundary[tensor])
        self._keep()
        for name in self.recompute.rerun:
            self._forward(self.workload.ops[name], "recompute", "back")
        for tensor in self.workload.outputs:
            layout = self.plan.boundary[tensor]
            arrived = self.arriving[tensor] * self.devices.mask(self.workload.tensors[tensor], layout)
            self.contributions[tensor] = [(layout, arrived)]
        for op in reversed(self.workload.ops.values()):
            self._backward(op)
        for tensor in self.workload.inputs:
            self._gradient(tensor, self.plan.boundary[tensor])
        return self

    def _forward(self, op: Op, phase: str, epoch: str) -> None:
        operands = [self._copy(epoch, phase, access.tensor, self._need(op, i)) for i, access in enumerate(op.ins)]
        result = OpRun(self, op, phase).forward(operands)
        if epoch == "forward" or op.out.tensor in self.recompute.made:  # what is saved is not needed twice
            self._there(epoch, op.out.tensor, self.plan.leaves(op), result)

    def _keep(self) -> None:
        """Only the saved copies outlive the forward pass (and the weights, at home)."""
        for tensor, traffic in self.plans.items():
            if traffic.saved is not None:
                self.copies["back", tensor] = {traffic.saved: self._copy("forward", "forward", tensor, traffic.saved)}

    def _backward(self, op: Op) -> None:
        upstream = self._gradient(op.out.tensor, tuple(grad_need(op, choice) for choice in self.plan.choices[op.name]))
        operands: list[Array | None] = [None] * len(op.ins)
        result = None
        for access in backward_reads(op, self.workload):
            copy = self._copy("back", "backward", access.tensor, self._layout_read(op, access))
            for position, operand in enumerate(op.ins):
                operands[position] = copy if operand is access else operands[position]
            result = copy if access is op.out else result
        gradients = OpRun(self, op, "backward").backward(upstream, operands, result)
        for position, access in enumerate(op.ins):
            if wants_gradient(op, position, self.workload):
                layout = tuple(grad_leaves(access, choice, self.workload) for choice in self.plan.choices[op.name])
                self._see(("contribution", op.name, position), access.tensor, layout, gradients[position])
                self.contributions.setdefault(access.tensor, []).append((layout, gradients[position]))
        for weight in dict.fromkeys(access.tensor for access in op.ins if self.workload.tensors[access.tensor].kind == "weight"):
            if self.workload.readers[weight][0] == op.name:
                self._weight_gradient(weight)

    # -- tensors: copies, gradients, conversions ------------------------------------------------------------------------

    def _there(self, epoch: str, tensor: str, layout: Layout, array: Array) -> None:
        self.copies[epoch, tensor] = {layout: self._see(("value", tensor), tensor, layout, array)}

    def _see(self, key: Any, tensor: str, layout: Layout, array: Array) -> Array:
        """Check that an array lies as claimed and is what the unsharded run saw."""
        whole = self.devices.assemble(array, self.workload.tensors[tensor], layout)
        if self.truth is not None:
            scale = np.abs(self.truth[key]).max()
            assert np.allclose(whole, self.truth[key], rtol=TOLERANCE, atol=TOLERANCE * 1e-3 * scale), f"{key} is wrong"
        self.seen[key] = whole
        return array

    def _copy(self, epoch: str, phase: str, tensor: str, layout: Layout) -> Array:
        """A tensor in a layout, made once from the copy that the library names."""
        have = self.copies[epoch, tensor]
        if layout not in have:
            if epoch == "forward":
                sources = dict(self.plans[tensor].forward)
            elif tensor in self.recompute.made:
                sources = plan_copies([self._produced(tensor)], [*self.wanted[tensor], *self.read_back[tensor]])
            else:
                sources = dict(self.plans[tensor].regather)
            weight = self.workload.tensors[tensor].kind == "weight"
            start = self._copy(epoch, phase, tensor, sources[layout])
            bits = self.workload.tensors[tensor].bits
            made = self._convert("backward" if weight and phase == "recompute" else phase, tensor, start, sources[layout], layout, bits)
            have[layout] = self._see(("value", tensor), tensor, layout, made)
        return have[layout]

    def _gradient(self, tensor: str, target: Layout) -> Array:
        """The gradient of a tensor in the layout in which it is wanted: contributions are summed, then converted."""
        bits = self.workload.tensors[tensor].bits
        parts = [self._convert("backward", tensor, array, layout, target, bits) for layout, array in self._sums(tensor)]
        return self._see(("gradient", tensor), tensor, target, np.sum(parts, axis=0))

    def _sums(self, tensor: str) -> list[tuple[Layout, Array]]:
        """Contributions to a gradient, summed where that moves nothing."""
        arrived, sums = self.contributions.get(tensor, []), []
        for layout, which in merged([layout for layout, _ in arrived]):
            assert not any(convert(arrived[i][0], layout) for i in which), "merging must be free"
            sums.append((layout, np.sum([self._convert("", tensor, arrived[i][1], arrived[i][0], layout, 0) for i in which], axis=0)))
        return sums

    def _weight_gradient(self, weight: str) -> None:
        """Sum a weight's gradient over the axes that are not its home's, then reduce it to its home."""
        home, compute = self.plan.home(weight), self._compute_layout(weight)
        rest = self._sharded(compute, home.axes if home.state == "shard" else [])
        parts, bits = [], self.workload.gradient_bits
        for layout, array in self._sums(weight):
            outside = tuple(now if end == FLAT else end for now, end in zip(layout, rest, strict=True))
            summed = self._convert("backward", weight, array, layout, outside, bits)
            parts.append(self._convert("backward", weight, summed, outside, rest, bits))
        total = self._see(("gradient", weight), weight, rest, np.sum(parts, axis=0))
        if home.state == "shard" and home.param == "replicate" and "optimizer" in self.workload.phases:
            updated = self._convert("optimizer", weight, total, rest, compute, self.workload.tensors[weight].bits)
            self._see(("gradient", weight), weight, compute, updated)

    def _convert(self, phase: str, name: str, array: Array, source: Layout, target: Layout, bits: int) -> Array:
        """Execute the steps of a conversion: slices are free, then group sums and masks, then zero padding is free."""
        tensor, devices = self.workload.tensors[name], self.devices
        now = tuple(b if a == REPLICATE and is_shard(b) else a for a, b in zip(source, target, strict=True))
        array = array * devices.mask(tensor, now)
        for step in convert(source, target):
            before, now = now, tuple(target[axis] if axis in step.axes else p for axis, p in enumerate(now))
            array = devices.combine(array, step.axes) * devices.mask(tensor, now)
            self._count(step, tensor, before, now)
            message = _even(tensor.elements * bits / 8, step.shape).at(np.array([devices.degrees]))
            self.moves.append(Move(phase, name, step.collective, step.axes, float(message[0])))
        for axis, (placement, wanted) in enumerate(zip(now, target, strict=True)):
            if placement == REPLICATE and wanted == PARTIAL:
                array = devices.first(array, axis)
        return array

    def _count(self, step: Step, tensor: Tensor, before: Layout, after: Layout) -> None:
        """What really had to move is what a ring is said to send: (p - 1) / p of the message, twice for an all-reduce."""
        group = prod(self.devices.degrees[axis] for axis in step.axes)
        message = float(_even(tensor.elements, step.shape).at(np.array([self.devices.degrees]))[0])
        formula = (2 if step.collective == "all_reduce" else 1) * (group - 1) / group * message
        sent = self.devices.elements_sent(tensor, step, before, after)
        if tensor.density == 1:
            assert np.isclose(sent, formula, rtol=1e-12), f"{step} of {tensor.name} sends {sent} elements, not {formula}"


class OpRun:
    """One pass of one operation on every device, each restricted to its part of the iteration space."""

    def __init__(self, executor: Executor, op: Op, phase: str) -> None:
        self.executor, self.op, self.phase = executor, op, phase
        self.devices, self.choices = executor.devices, executor.plan.choices[op.name]
        self.letters = {index: number for number, index in enumerate(op.indices, 1)}
        self.numbers = 0

    def forward(self, operands: list[Array]) -> Array:
        """The output from the operands in the layouts in which they are needed."""
        op = self.op
        terms = [(self.restrict(array, access.names), access.names) for array, access in zip(operands, op.ins, strict=True)]
        if op.kind.name == "einsum":
            out = self._contract(terms, op.out.names)
        else:
            out = FORWARD[op.kind.name](self, *(self._align(*term) for term in terms))
        return self._finish(out, op.out.names)

    def backward(self, upstream: Array, operands: list[Array | None], result: Array | None) -> list[Array]:
        """The gradient of every operand, from the output's gradient and what the backward pass may read."""
        op = self.op
        dy = self.restrict(upstream, op.out.names)
        if op.kind.name == "einsum":
            gradients = []
            for position, access in enumerate(op.ins):
                others = [(self.restrict(operands[j], o.names), o.names) for j, o in enumerate(op.ins) if j != position]
                gradients.append(self._finish(self._contract([(dy, op.out.names), *others], access.names), access.names))
            return gradients
        aligned = [a if a is None else self._align(self.restrict(a, o.names), o.names) for a, o in zip(operands, op.ins, strict=True)]
        local_gradients = BACKWARD[op.kind.name](self, dy, result, *aligned)
        return [
            self._finish(self._contract([(self.restrict(gradient, op.out.names), op.out.names)], access.names), access.names)
            for gradient, access in zip(local_gradients, op.ins, strict=True)
        ]

    def reduce(self, array: Array, how: Any = np.add) -> Array:
        """A statistic over the normalised indices: on each device, then over the axes that split them."""
        axes = statistics_axes(self.op, self.executor.plan)
        where = tuple(1 + self.op.out.names.index(index) for index in self.op.over)
        self.numbers += 1
        return self.devices.combine(how.reduce(self.restrict(array, self.op.out.names), axis=where, keepdims=True), axes, how)

    @property
    def width(self) -> int:
        """Elements normalised together."""
        return prod(self.executor.workload.sizes[index] for index in self.op.over)

    def _finish(self, array: Array, names: Sequence[str]) -> Array:
        axes = statistics_axes(self.op, self.executor.plan)
        if axes and self.numbers:
            rows = [index for index in self.op.out.names if index not in self.op.over]
            held = prod(int(self._mask(index)[0].sum()) for index in rows)
            self.executor.moves.append(Move(self.phase, self.op.out.tensor, "all_reduce", axes, 4.0 * self.numbers * held))
            self.numbers = 0
        return self.restrict(array, names)

    def _mask(self, index: str) -> NDArray[np.bool_]:
        """[devices, size] the values of an index that are a device's part of the iteration space."""
        size = self.executor.workload.sizes[index]
        mine = np.ones((self.devices.count, size), dtype=bool)
        for axis, choice in enumerate(self.choices):
            if choice == index:
                mine &= self.devices.digits(size)[axis] == self.devices.coordinates[axis][:, None]
        return mine

    def restrict(self, array: Array, names: Sequence[str]) -> Array:
        """The array where its indices are a device's part of the iteration space, zeros elsewhere."""
        for position, index in enumerate(names):
            if index in self.choices:
                shape = [self.devices.count, *[1] * len(names)]
                shape[position + 1] = -1
                array = array * self._mask(index).reshape(shape)
        return array

    def _contract(self, terms: list[tuple[Array, Sequence[str]]], out: Sequence[str]) -> Array:
        """Multiply the terms and sum the indices that the output lacks, on every device."""
        there = {index for _, names in terms for index in names}
        terms = terms + [(np.ones((self.devices.count, self.executor.workload.sizes[i])), (i,)) for i in out if i not in there]
        parts: list[Any] = []
        for array, names in terms:
            parts += [array, [0, *(self.letters[i] for i in names)]]
        return np.einsum(*parts, [0, *(self.letters[i] for i in out)])

    def _align(self, array: Array, names: Sequence[str]) -> Array:
        """The array with its indices in the output's order, size 1 where it lacks one."""
        order = [index for index in self.op.out.names if index in names]
        moved = array.transpose(0, *(1 + list(names).index(index) for index in order))
        return moved.reshape(self.devices.count, *(self.executor.workload.sizes[i] if i in names else 1 for i in self.op.out.names))


# -- what each kind of operation computes, on arrays in the output's index order ---------------------------------------------


def _even(total: float, layout: Layout) -> Volume:
    """A tensor on one accelerator where degrees divide it."""
    return Volume(total, tuple(axis for axis, placement in enumerate(layout) if is_shard(placement)))


def _softmax(run: OpRun, x: Array) -> Array:
    powers = run.restrict(np.exp(x - run.reduce(x, np.maximum)), run.op.out.names)
    total = run.reduce(powers)
    return powers / np.where(total == 0, 1, total)


def _softmax_back(run: OpRun, dy: Array, y: Array, *_: Any) -> list[Array]:
    return [y * (dy - run.reduce(dy * y))]


def _rmsnorm(run: OpRun, x: Array, w: Array) -> Array:
    run.executor.kept[run.op.name] = (run.reduce(x * x) / run.width + 1e-6) ** -0.5
    return x * run.executor.kept[run.op.name] * w


def _rmsnorm_back(run: OpRun, dy: Array, _: Any, x: Array, w: Array) -> list[Array]:
    scale = run.executor.kept[run.op.name]
    return [scale * (dy * w - x * scale * run.reduce(dy * w * x * scale) / run.width), dy * x * scale]


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _swiglu_back(run: OpRun, dy: Array, _: Any, g: Array, u: Array) -> list[Array]:
    s = _sigmoid(g)
    return [dy * u * s * (1 + g * (1 - s)), dy * g * s]


FORWARD: dict[str, Callable[..., Array]] = {
    "add": lambda run, *xs: sum(xs) + np.zeros((1, *(run.executor.workload.sizes[i] for i in run.op.out.names))),
    "scale": lambda run, x: 0.7 * x,
    "repeat": lambda run, x: x + np.zeros((1, *(run.executor.workload.sizes[i] for i in run.op.out.names))),
    "rope": lambda run, x: -0.6 * x,  # a rotation is linear in each pair; any fixed linear map serves
    "multiply": lambda run, x, z: x * z,
    "relu": lambda run, x: np.maximum(x, 0),
    "dispatch": lambda run, x, g: x * (g != 0),
    "swiglu": lambda run, g, u: g * _sigmoid(g) * u,
    "softmax": _softmax,
    "rmsnorm": _rmsnorm,
}
BACKWARD: dict[str, Callable[..., list[Array]]] = {
    "add": lambda run, dy, y, *xs: [dy] * len(xs),
    "scale": lambda run, dy, y, x: [0.7 * dy],
    "repeat": lambda run, dy, y, x: [dy],
    "rope": lambda run, dy, y, x: [-0.6 * dy],
    "multiply": lambda run, dy, y, x, z: [dy * z, dy * x],
    "relu": lambda run, dy, y, x: [dy * (x > 0)],
    "dispatch": lambda run, dy, y, x, g: [dy * (g != 0), np.zeros_like(dy)],
    "swiglu": _swiglu_back,
    "softmax": _softmax_back,
    "rmsnorm": _rmsnorm_back,
}
