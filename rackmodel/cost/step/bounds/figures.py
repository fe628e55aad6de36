"""The figures of a section's layer under many plans, as arrays, from which bounds and memory of steps are composed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.cost.step.tasks.layer_cost import LayerCost

BETWEEN = ("taken", "given", "given in flight", "results")
"""What stages keep of what they hand to each other (cost/program/kept_between)."""
HELD = (
    *("weights", "gradients", "optimizer", "kv_cache", "activations", "working", "remade", "gathered", "host", "host in flight"),
    *BETWEEN,
)


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
    lag_apart: Array
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
        return self._picked((slice(None), run_of(which)), (len(self.joules), len(which)))

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

    def has(self, name: str) -> bool:
        """Whether a figure is not zero everywhere."""
        return some(getattr(self, name))

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


def run_of(which: Ints) -> slice | Ints:
    """Places as an index: of a run of them one that copies nothing."""
    if len(which) and which[-1] - which[0] == len(which) - 1 and bool((np.diff(which) == 1).all()):
        return slice(int(which[0]), int(which[-1]) + 1)
    return which


def stacked(values: Sequence[Array]) -> Array:
    """[values, n]. (Of one, quickly.)"""
    return values[0][None].copy() if len(values) == 1 else np.concatenate(values).reshape(len(values), -1)


ARRAYS = tuple(field.name for field in fields(Figures) if field.name not in ("name", "layer", "repeat", "held"))


@dataclass(frozen=True)
class Rows:
    """A figure of many plans, what they share there once. rows: [rows, columns] · of: [plans] the row of each."""

    rows: Array
    of: Ints

    @property
    def alike(self) -> bool:
        """Whether it is one value, broadcast."""
        return self.rows.size > 1 and not any(self.rows.strides)

    def at(self, plans: Any, columns: Any, shape: tuple[int, ...]) -> Array:
        """Of some plans on some columns, of that shape."""
        if self.alike:
            return np.broadcast_to(self.rows[(0,) * self.rows.ndim], shape)
        return np.asarray(self.rows[self.of[plans], columns])

    def columns(self, which: slice | Ints, count: int) -> Rows:
        """On some columns, so many."""
        if self.alike:
            return Rows(np.broadcast_to(self.rows[:1, :1], (len(self.rows), count)), self.of)
        return Rows(self.rows[:, which], self.of)


class SharedFigures:
    """Figures of a section under many plans, made whole when they are asked for: most are looked at in part. name, layer, repeat: as of
    Figures · plan_count, column_count: how many there are."""

    def __init__(self, name: str, layer: bool, repeat: int, arrays: dict[str, Rows], held: dict[str, Rows]) -> None:
        self.name, self.layer, self.repeat, self._arrays, self._held = name, layer, repeat, arrays, held
        self.plan_count, self.column_count = len(arrays["joules"].of), arrays["joules"].rows.shape[1]

    def __getattr__(self, name: str) -> Array:
        if name.startswith("_") or name not in ARRAYS:
            raise AttributeError(name)
        found: Array = getattr(self.whole, name)
        return found

    @cached_property
    def whole(self) -> Figures:
        """All of them."""
        return self.plans(np.arange(self.plan_count))

    @property
    def held(self) -> dict[str, Array]:
        """What each plan holds: [plans, columns]."""
        return self.whole.held

    def has(self, name: str) -> bool:
        """Whether a figure is not zero everywhere."""
        return some(self._arrays[name].rows)

    def columns(self, which: Ints) -> SharedFigures:
        """The same for some columns."""
        if _all(which, self.column_count):
            return self
        index, count = run_of(which), len(which)
        arrays, held = ({name: one.columns(index, count) for name, one in part.items()} for part in (self._arrays, self._held))
        return SharedFigures(self.name, self.layer, self.repeat, arrays, held)

    def like(self, of: Ints) -> SharedFigures:
        """Of other plans. of: the one here that each is like."""
        arrays, held = ({name: Rows(one.rows, one.of[of]) for name, one in part.items()} for part in (self._arrays, self._held))
        return SharedFigures(self.name, self.layer, self.repeat, arrays, held)

    def plans(self, which: Ints) -> Figures:
        """Figures of some plans."""
        shape, every = (len(which), self.column_count), slice(None)
        arrays, held = ({name: one.at(which, every, shape) for name, one in part.items()} for part in (self._arrays, self._held))
        return self._figures(arrays, held)

    def cells(self, plans: Ints, columns: Ints) -> Figures:
        """Figures of some pairs of a plan and a column: [cells], without what they hold."""
        return self._figures({name: one.at(plans, columns, plans.shape) for name, one in self._arrays.items()}, {})

    def holding(self, index: tuple[Any, Ints]) -> Holding:
        """What it holds, alone. index: all plans and some columns, or pairs of both."""
        plans, columns = index
        shape = (self.plan_count, len(columns)) if isinstance(plans, slice) else plans.shape
        if isinstance(plans, slice):
            here, every = self.columns(columns), slice(None)
            return Holding(self.layer, {what: one.at(plans, every, shape) for what, one in here._held.items()})
        return Holding(self.layer, {what: one.at(plans, columns, shape) for what, one in self._held.items()})

    def least(self, families: Sequence[Ints]) -> Figures:
        """[families, columns] no more than any plan of each family has: the least of every figure, and the most that windows hide; without
        what they hold."""

        def least(name: str, one: Rows) -> Array:
            if one.alike:
                return np.broadcast_to(one.rows[:1, :1], (len(families), self.column_count))
            best = np.maximum if name.endswith("_hidden") else np.minimum
            return stacked([best.reduce(one.rows[list(dict.fromkeys(one.of[plans].tolist()))], axis=0) for plans in families])

        return self._figures({name: least(name, one) for name, one in self._arrays.items()}, {})

    def filled(self, some: SharedFigures, plans: Ints, columns: Ints, names: Collection[str] = ARRAYS) -> SharedFigures:
        """With the figures of some of its plans on some columns in their place (what is held is known). names: of those figures."""
        where, arrays = np.ix_(plans, columns), dict(self._arrays)
        for name in names:
            one = some._arrays[name]
            if not arrays[name].alike or one.rows.any():
                arrays[name] = Rows(self._own(name), np.arange(self.plan_count))
                arrays[name].rows[where] = one.rows[one.of]
        return SharedFigures(self.name, self.layer, self.repeat, arrays, self._held)

    def _own(self, name: str) -> Array:
        """[plans, columns] a figure, to be written to."""
        one = self._arrays[name]
        if one.alike:
            return np.zeros((self.plan_count, self.column_count))
        own = len(one.of) == len(one.rows) and one.rows.flags.owndata and one.rows.flags.writeable and _all(one.of, len(one.rows))
        return one.rows if own else one.rows[one.of]

    def _figures(self, arrays: dict[str, Array], held: dict[str, Array]) -> Figures:
        return Figures(name=self.name, layer=self.layer, repeat=self.repeat, held=held, **arrays)


AnyFigures = Figures | SharedFigures


def join(parts: Sequence[SharedFigures]) -> SharedFigures:
    """The columns of several, one after another."""
    first = parts[0]

    def joined(pieces: Sequence[Rows]) -> Rows:
        if all(piece.alike for piece in pieces):  # nothing but zeros
            return Rows(np.broadcast_to(pieces[0].rows[:1, :1], (1, sum(part.column_count for part in parts))), np.zeros_like(pieces[0].of))
        of, distinct = apart(zip(*(piece.of.tolist() for piece in pieces), strict=True))
        return Rows(np.concatenate([piece.rows[piece.of[distinct]] for piece in pieces], axis=1), of)

    arrays = {name: joined([part._arrays[name] for part in parts]) for name in first._arrays}
    held = {what: joined([part._held[what] for part in parts]) for what in first._held}
    return SharedFigures(first.name, first.layer, first.repeat, arrays, held)


def apart(keys: Iterable[Hashable]) -> tuple[Ints, list[int]]:
    """(which distinct one each key is, where each distinct one is first)."""
    numbers: dict[Hashable, int] = {}
    firsts: list[int] = []
    of = []
    for place, key in enumerate(keys):
        if key not in numbers:
            numbers[key] = len(firsts)
            firsts.append(place)
        of.append(numbers[key])
    return np.array(of, dtype=np.int64), firsts


def distinct_costs(*lists: Sequence[LayerCost]) -> tuple[Ints, list[int]]:
    """(which distinct one each place is, the first place of each) of lists that are alike where all hold the same objects."""
    return apart(tuple(map(id, place)) for place in zip(*lists, strict=True))


class _Plans:
    """Costs of one section under several plans. Figures that no plan has are one zero, broadcast; those that several plans have are there
    once."""

    def __init__(self, costs: Sequence[LayerCost]) -> None:
        self.of, distinct = distinct_costs(costs)
        self.distinct = [costs[first] for first in distinct]
        self.zero = zero = np.zeros_like(self.distinct[0].joules_device)
        self.none = Rows(np.broadcast_to(zero[:1] if len(zero) else zero, (1, len(zero))), np.zeros(len(costs), dtype=np.int64))

    def rows(self, parts: Callable[[LayerCost], Iterable[Any]], value: Callable[[LayerCost], Array]) -> Rows:
        """parts: what a figure is made of · value: makes it."""
        which, firsts = apart(tuple(one if isinstance(one, int) else id(one) for one in parts(cost)) for cost in self.distinct)
        return Rows(stacked([value(self.distinct[first]) for first in firsts]), which[self.of])

    def seconds(self, *keys: tuple[str, str]) -> Rows:
        """The sum of some seconds, by role and part."""
        if not any(key in cost.seconds for cost in self.distinct for key in keys):
            return self.none
        return self.rows(lambda cost: [cost.seconds.get(key) for key in keys], lambda cost: cost.time(*keys))

    def of_dict(self, name: str, key: str) -> Rows:
        """What a table of the costs has at a key."""
        if not any(key in getattr(cost, name) for cost in self.distinct):
            return self.none
        return self.rows(lambda cost: [getattr(cost, name).get(key)], lambda cost: getattr(cost, name).get(key, self.zero))

    def figure(self, name: str) -> Rows:
        """A figure of the costs by its name."""
        found = self.rows(lambda cost: [getattr(cost, name)], lambda cost: getattr(cost, name))
        return found if found.rows.any() else self.none

    def launched(self, *parts: str) -> Rows:
        """What the host launches for some parts."""

        def total(cost: LayerCost) -> Array:
            count = sum((cost.launches.get(part, 0) for part in parts), self.zero)
            return np.broadcast_to(np.asarray(count, dtype=np.float64), self.zero.shape)

        return self.rows(lambda cost: [cost.launches.get(part, 0) for part in parts], total)


def figures(costs: Sequence[LayerCost], *, name: str = "", layer: bool | None = None, repeat: int | None = None) -> SharedFigures:
    """The costs of one section under several plans, as arrays (_Plans)."""
    plans = _Plans(costs)
    section = plans.distinct[0].section
    arrays = {
        "forward": plans.seconds(("device", "forward")),
        "forward_hidden": plans.of_dict("hidden", "forward"),
        "recompute": plans.seconds(("device", "recompute")),
        "recompute_hidden": plans.of_dict("hidden", "recompute"),
        "backward": plans.seconds(("device", "backward")),
        "backward_hidden": plans.of_dict("hidden", "backward"),
        "weight": plans.seconds(("device", "weight")),
        "first": plans.seconds(("first", "forward")),
        "forward_gather": plans.seconds(("gather", "forward")),
        "backward_gather": plans.seconds(("gather", "backward"), ("gather", "recompute")),
        "forward_reduce": plans.seconds(("reduce", "forward")),
        "reduce": plans.seconds(("reduce", "backward")),
        "up": plans.seconds(("up", "backward")),
        "tail": plans.seconds(("tail", "backward")),
        "update": plans.seconds(("update", "optimizer")),
        "spread": plans.seconds(("spread", "optimizer")),
        "home": plans.seconds(("home", "optimizer")),
        **{name: plans.figure(name) for name in ("port", "lead", "lag", "lag_apart", "forward_wait", "backward_wait")},
        "joules": plans.rows(lambda cost: [cost.joules_device, cost.joules_lanes], lambda cost: cost.joules_device + cost.joules_lanes),
        "joules_once": plans.rows(lambda cost: [cost.joules_once], lambda cost: cost.joules_once),
        "launches_forward": plans.launched("forward"),
        "launches_backward": plans.launched("backward", "recompute"),
        "launches_weight": plans.launched("weight"),
    }
    return SharedFigures(
        name or section.name,
        section.layer if layer is None else layer,
        section.repeat if repeat is None else repeat,
        arrays,
        {what: plans.of_dict("held", what) for what in HELD},
    )


def some(values: Array) -> bool:
    """Whether any is not zero; figures that no plan has are one zero, broadcast. (Most that have any begin with it.)"""
    if not values.size:
        return False
    return bool(values[(0,) * values.ndim]) or (any(values.strides) and bool(values.any()))
