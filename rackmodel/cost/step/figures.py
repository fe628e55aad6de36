"""The figures of a section's layer under many plans, as arrays, from which bounds and memory of steps are composed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.step.layers import LayerCost

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
HELD = ("weights", "gradients", "optimizer", "kv_cache", "activations", "working", "remade", "gathered", "host", "host in flight")


@dataclass(frozen=True)
class Holding:
    """What a section's layer holds on one accelerator, by what: [plans, columns] bytes each, or [cells]."""

    layer: bool
    held: dict[str, Array]


@dataclass(frozen=True, kw_only=True)
class Figures:
    """One section's layer: every figure is [plans, columns], seconds of one micro-batch or (tail, update, spread, home, first) of a step.

    forward, recompute, backward, weight: the device · ..._hidden: what of it windows can hide · gather_..., reduce, up, tail, spread,
    home, port: other lanes · first: on the device in the first micro-batch alone · lead, lag, ..._wait: as in
    LayerCost · launches_...: kernels and collectives that the host launches for a pass.
    """

    name: str
    layer: bool
    repeat: int
    forward: Array
    forward_hidden: Array
    recompute: Array
    recompute_hidden: Array
    backward: Array
    backward_hidden: Array
    weight: Array
    first: Array
    forward_gather: Array
    backward_gather: Array
    forward_reduce: Array
    reduce: Array
    up: Array
    tail: Array
    update: Array
    spread: Array
    home: Array
    port: Array
    lead: Array
    lag: Array
    forward_wait: Array
    backward_wait: Array
    joules: Array
    joules_once: Array
    launches_forward: Array
    launches_backward: Array
    launches_weight: Array
    held: dict[str, Array]

    def columns(self, which: Ints) -> Figures:
        """The same for some columns."""
        if _all(which, self.joules.shape[1]):
            return self
        return self._picked((slice(None), which), (len(self.joules), len(which)))

    def plans(self, which: Ints) -> Figures:
        """The same for some plans."""
        if _all(which, len(self.joules)):
            return self
        return self._picked((which,), (len(which), *self.joules.shape[1:]))

    def cells(self, plans: Ints, columns: Ints) -> Figures:
        """The same for some pairs of a plan and a column: [cells], without what they hold."""
        return replace(self, held={})._picked((plans, columns), plans.shape)

    def holding(self, index: Any) -> Holding:
        """What it holds, alone; index: of the arrays."""
        return Holding(self.layer, {what: np.asarray(value[index]) for what, value in self.held.items()})

    def least(self, families: Sequence[Ints]) -> Figures:
        """[families, columns] no more than any plan of each family has: the least of every figure, and the most that windows hide."""

        def least(name: str, value: Array) -> Array:
            if not any(value.strides):
                return np.broadcast_to(value[:1, :1], (len(families), value.shape[1]))
            best = np.maximum if name.endswith("_hidden") else np.minimum
            return stacked([best.reduce(value[plans], axis=0) for plans in families])

        arrays: dict[str, Any] = {name: least(name, getattr(self, name)) for name in ARRAYS}
        return replace(self, held={what: least(what, value) for what, value in self.held.items()}, **arrays)

    def _picked(self, index: Any, shape: tuple[int, ...]) -> Figures:
        def picked(value: Array) -> Array:
            if value.size > 1 and not any(value.strides):  # one value, broadcast
                return np.broadcast_to(value[(0,) * value.ndim], shape)
            return np.asarray(value[index])

        arrays: dict[str, Any] = {name: picked(value) for name, value in self.__dict__.items() if isinstance(value, np.ndarray)}
        return replace(self, held={what: picked(value) for what, value in self.held.items()}, **arrays)


def _all(which: Ints, count: int) -> bool:
    """Whether places are all there are, in order."""
    return len(which) == count and bool((which == np.arange(count)).all())


def stacked(values: Sequence[Array]) -> Array:
    """[values, n]. (Of one, quickly.)"""
    return values[0][None].copy() if len(values) == 1 else np.stack(values)


ARRAYS = tuple(field.name for field in fields(Figures) if field.name not in ("name", "layer", "repeat", "held"))


def join(parts: Sequence[Figures]) -> Figures:
    """The columns of several, one after another."""
    first, wide = parts[0], sum(part.joules.shape[1] for part in parts)

    def joined(pieces: list[Array]) -> Array:
        if not any(any(piece.strides) for piece in pieces):  # nothing but zeros
            return np.broadcast_to(pieces[0][:1, :1], (pieces[0].shape[0], wide))
        return np.concatenate(pieces, axis=1)

    arrays: dict[str, Any] = {name: joined([getattr(part, name) for part in parts]) for name in ARRAYS}
    return replace(first, held={what: joined([part.held[what] for part in parts]) for what in first.held}, **arrays)


def told_apart(*lists: Sequence[LayerCost]) -> tuple[Ints, list[int]]:
    """(which distinct one each place is, the first place of each) of lists that are alike where all hold the same objects."""
    numbers: dict[tuple[int, ...], int] = {}
    of = np.array([numbers.setdefault(tuple(map(id, place)), len(numbers)) for place in zip(*lists, strict=True)])
    return of, np.unique(of, return_index=True)[1].tolist()


def figures(costs: Sequence[LayerCost], *, name: str = "", layer: bool | None = None, repeat: int | None = None) -> Figures:
    """Stack the costs of one section under several plans. Figures that no plan has are one zero, broadcast; a cost that several plans
    have is stacked once."""
    of, distinct = told_apart(costs)
    if len(distinct) < len(costs):
        return figures([costs[first] for first in distinct], name=name, layer=layer, repeat=repeat).plans(of)
    zero = np.zeros_like(costs[0].joules_device)
    none = np.broadcast_to(zero[:1] if len(zero) else zero, (len(costs), len(zero)))

    def stack(*keys: tuple[str, str]) -> Array:
        if not any(key in cost.seconds for cost in costs for key in keys):
            return none
        return stacked([cost.time(*keys) for cost in costs])

    def hidden(part: str) -> Array:
        return stacked([cost.hidden.get(part, zero) for cost in costs]) if any(part in cost.hidden for cost in costs) else none

    def bytes_of(what: str) -> Array:
        return stacked([cost.held.get(what, zero) for cost in costs]) if any(what in cost.held for cost in costs) else none

    def figure(values: Sequence[Array]) -> Array:
        return stacked(values) if any(value.any() for value in values) else none

    def launched(*parts: str) -> Array:
        each = [sum((cost.launches.get(part, 0) for part in parts), zero) for cost in costs]
        return stacked([np.broadcast_to(np.asarray(count, dtype=np.float64), zero.shape) for count in each])

    section = costs[0].section
    return Figures(
        name=name or section.name,
        layer=section.layer if layer is None else layer,
        repeat=section.repeat if repeat is None else repeat,
        forward=stack(("device", "forward")),
        forward_hidden=hidden("forward"),
        recompute=stack(("device", "recompute")),
        recompute_hidden=hidden("recompute"),
        backward=stack(("device", "backward")),
        backward_hidden=hidden("backward"),
        weight=stack(("device", "weight")),
        first=stack(("first", "forward")),
        forward_gather=stack(("gather", "forward")),
        backward_gather=stack(("gather", "backward"), ("gather", "recompute")),
        forward_reduce=stack(("reduce", "forward")),
        reduce=stack(("reduce", "backward")),
        up=stack(("up", "backward")),
        tail=stack(("tail", "backward")),
        update=stack(("update", "optimizer")),
        spread=stack(("spread", "optimizer")),
        home=stack(("home", "optimizer")),
        port=figure([cost.port for cost in costs]),
        lead=figure([cost.lead for cost in costs]),
        lag=figure([cost.lag for cost in costs]),
        forward_wait=figure([cost.forward_wait for cost in costs]),
        backward_wait=figure([cost.backward_wait for cost in costs]),
        joules=stacked([cost.joules_device + cost.joules_lanes for cost in costs]),
        joules_once=stacked([cost.joules_once for cost in costs]),
        launches_forward=launched("forward"),
        launches_backward=launched("backward", "recompute"),
        launches_weight=launched("weight"),
        held={what: bytes_of(what) for what in HELD},
    )


def some(values: Array) -> bool:
    """Whether any is not zero; figures that no plan has are one zero, broadcast."""
    return bool(any(values.strides) and values.any()) if values.size > 1 else bool(values.any())
