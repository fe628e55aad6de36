"""Virtual devices: runs the layouts of a plan with numpy and checks every array against the unsharded computation.

A device has a coordinate on each mesh axis. Index i of a rank of size n belongs, along axis a, to the coordinate
(i // stride_a) mod degree_a, strides in mixed radix over all axes: so a shard is the same set of indices whichever other
axes split the rank. A local array has full size and is zero outside its shard; a Partial is an array whose sum over the
axis is the tensor. Every decision (what is needed, left, converted, copied, summed) is the library's own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.traffic import merged
from rackmodel.model.conversion import convert, kind_of
from rackmodel.model.copies import plan_copies
from rackmodel.model.layout import PARTIAL, REPLICATE, Layout, grad_leaves, grad_need
from rackmodel.model.plan import Plan
from rackmodel.model.workload import Op, Workload

Local = dict[tuple[int, ...], NDArray[np.float64]]


class Devices:
    """One forward and backward pass of a plan on a mesh of virtual devices."""

    def __init__(self, workload: Workload, plan: Plan, degrees: tuple[int, ...], seed: int) -> None:
        self.workload, self.plan, self.degrees = workload, plan, degrees
        self.devices = list(itertools.product(*(range(d) for d in degrees)))
        rng = np.random.default_rng(seed)
        self.reference = {t.name: rng.standard_normal(t.sizes) for t in workload.tensors.values() if t.name not in workload.producer}
        self.gradient = {}
        for op in workload.ops.values():
            self.reference[op.out.tensor] = self._einsum(op, [self.reference[a.tensor] for a in op.ins])
        for tensor in workload.outputs:
            self.gradient[tensor] = rng.standard_normal(workload.tensors[tensor].sizes)
        self._reference_gradients()
        self.moved = 0

    # -- the unsharded computation -----------------------------------------------------------------------------------

    def _einsum(self, op: Op, operands: list[NDArray[np.float64]]) -> NDArray[np.float64]:
        if op.kind.name == "add":
            return np.asarray(sum(operands))
        letters = {index: chr(97 + i) for i, index in enumerate(op.indices)}
        spell = lambda access: "".join(letters[i] for i in access.names)  # noqa: E731
        return np.einsum(",".join(map(spell, op.ins)) + "->" + spell(op.out), *operands)

    def _einsum_gradient(self, op: Op, position: int, out: NDArray[np.float64], operands: list[NDArray[np.float64]]) -> NDArray[np.float64]:
        if op.kind.name == "add":
            return out
        letters = {index: chr(97 + i) for i, index in enumerate(op.indices)}
        spell = lambda access: "".join(letters[i] for i in access.names)  # noqa: E731
        others = [j for j in range(len(op.ins)) if j != position]
        text = ",".join([spell(op.out), *(spell(op.ins[j]) for j in others)]) + "->" + spell(op.ins[position])
        return np.einsum(text, out, *(operands[j] for j in others))

    def _reference_gradients(self) -> None:
        for op in reversed(self.workload.ops.values()):
            operands = [self.reference[a.tensor] for a in op.ins]
            for i, access in enumerate(op.ins):
                part = self._einsum_gradient(op, i, self.gradient[op.out.tensor], operands)
                self.gradient[access.tensor] = self.gradient.get(access.tensor, 0) + part

    # -- layouts ---------------------------------------------------------------------------------------------------------

    def mask(self, tensor: str, layout: Layout, device: tuple[int, ...]) -> NDArray[np.bool_]:
        """Where a device's shard of a tensor is."""
        here = self.workload.tensors[tensor]
        inside = np.ones(here.sizes, dtype=bool)
        for axis, placement in enumerate(layout):
            if placement[0] == "S":
                dimension = here.ranks.index(placement[2:])
                size, stride = here.sizes[dimension], here.sizes[dimension]
                for degree in self.degrees[: axis + 1]:
                    stride //= degree
                mine = (np.arange(size) // stride) % self.degrees[axis] == device[axis]
                inside &= mine.reshape([-1 if d == dimension else 1 for d in range(len(here.sizes))])
        return inside

    def place(self, tensor: str, whole: NDArray[np.float64], layout: Layout) -> Local:
        """A tensor that arrives in a layout without Partials."""
        return {device: whole * self.mask(tensor, layout, device) for device in self.devices}

    def check(self, tensor: str, local: Local, layout: Layout, whole: NDArray[np.float64]) -> None:
        """Assert that local arrays have the layout they claim."""
        partial = [axis for axis, p in enumerate(layout) if p == PARTIAL]
        for device in self.devices:
            total = np.asarray(sum(local[other] for other in self._group(device, partial)))
            inside = self.mask(tensor, layout, device)
            np.testing.assert_allclose(total, whole * inside, rtol=1e-6, atol=1e-6)
            assert not np.any(local[device][~inside])

    def _group(self, device: tuple[int, ...], axes: list[int] | tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        for coordinates in itertools.product(*(range(self.degrees[axis]) for axis in axes)):
            other = list(device)
            for axis, coordinate in zip(axes, coordinates, strict=True):
                other[axis] = coordinate
            yield tuple(other)

    def convert(self, tensor: str, local: Local, source: Layout, target: Layout) -> Local:
        """Run the library's conversion: slices, the collectives in order, zero padding."""
        now = [t if kind_of(s, t) == "" and t != PARTIAL else s for s, t in zip(source, target, strict=True)]
        local = {d: a * self.mask(tensor, tuple(p if p[0] == "S" else REPLICATE for p in now), d) for d, a in local.items()}
        for step in convert(source, target):
            for axis in step.axes:
                now[axis] = target[axis]
            kept = tuple(p if p[0] == "S" else REPLICATE for p in now)
            local = {
                d: np.asarray(sum(local[other] for other in self._group(d, step.axes))) * self.mask(tensor, kept, d) for d in self.devices
            }
            self.moved += 1
        for axis, (before, after) in enumerate(zip(now, target, strict=True)):
            if after == PARTIAL and before == REPLICATE:
                local = {d: a if d[axis] == 0 else np.zeros_like(a) for d, a in local.items()}
        return local

    # -- the pass ----------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Forward and backward, every array checked on the way."""
        held: dict[str, dict[Layout, Local]] = {}
        for name, tensor in self.workload.tensors.items():
            if name not in self.workload.producer:
                layout = self.plan.boundary[name] if tensor.kind == "input" else self._resting(name)
                held[name] = {layout: self.place(name, self.reference[name], layout)}
        for op in self.workload.ops.values():
            operands = [self._copies(held, a.tensor)[self.plan.needs(op, i, self.workload)] for i, a in enumerate(op.ins)]
            out = {d: self._einsum(op, [operand[d] for operand in operands]) for d in self.devices}
            self.check(op.out.tensor, out, self.plan.leaves(op), self.reference[op.out.tensor])
            held[op.out.tensor] = {self.plan.leaves(op): out}
        self._backward(held)

    def _resting(self, weight: str) -> Layout:
        op = self.workload.ops[self.workload.readers[weight][0]]
        position = next(i for i, a in enumerate(op.ins) if a.tensor == weight)
        return tuple(REPLICATE if p == PARTIAL else p for p in self.plan.needs(op, position, self.workload))

    def _copies(self, held: dict[str, dict[Layout, Local]], tensor: str) -> dict[Layout, Local]:
        """Every layout that the readers want, made as the library says."""
        readers = [self.workload.ops[name] for name in self.workload.readers[tensor]]
        wanted = [self.plan.needs(op, i, self.workload) for op in readers for i, a in enumerate(op.ins) if a.tensor == tensor]
        for target, source in plan_copies(list(held[tensor]), wanted).items():
            held[tensor][target] = self.convert(tensor, held[tensor][source], source, target)
            self.check(tensor, held[tensor][target], target, self.reference[tensor])
        return held[tensor]

    def _backward(self, held: dict[str, dict[Layout, Local]]) -> None:
        arriving: dict[str, list[tuple[Layout, Local]]] = {}
        for tensor in self.workload.outputs:
            layout = self.plan.boundary[tensor]
            arriving.setdefault(tensor, []).append((layout, self.place(tensor, self.gradient[tensor], layout)))
        for op in reversed(self.workload.ops.values()):
            choices = self.plan.choices[op.name]
            out = self._sum(op.out.tensor, arriving[op.out.tensor], tuple(grad_need(op, c) for c in choices))
            operands = [held[a.tensor][self.plan.needs(op, i, self.workload)] for i, a in enumerate(op.ins)]
            for i, access in enumerate(op.ins):
                layout = tuple(grad_leaves(op, access, c, self.workload) for c in choices)
                part = {d: self._einsum_gradient(op, i, out[d], [operand[d] for operand in operands]) for d in self.devices}
                arriving.setdefault(access.tensor, []).append((layout, part))
        for name, tensor in self.workload.tensors.items():
            if name not in self.workload.producer:
                self._sum(name, arriving[name], self.plan.boundary[name] if tensor.kind == "input" else self._resting(name))

    def _sum(self, tensor: str, parts: list[tuple[Layout, Local]], target: Layout) -> Local:
        """Gradient contributions summed as the library says, converted, and checked."""
        total: Local = {d: np.zeros(self.workload.tensors[tensor].sizes) for d in self.devices}
        for layout, which in merged([layout for layout, _ in parts]):
            summed: Local = {d: np.zeros(self.workload.tensors[tensor].sizes) for d in self.devices}
            for number in which:
                part = self.convert(tensor, parts[number][1], parts[number][0], layout)
                summed = {d: summed[d] + part[d] for d in self.devices}
            done = self.convert(tensor, summed, layout, target)
            total = {d: total[d] + done[d] for d in self.devices}
        self.check(tensor, total, target, self.gradient[tensor])
        return total
