"""What the steps of one column cost at least where only some choices of a layer are left: many such nodes at once.

    bound = max over prices µ, λ, η of  least weighted sum of what is left − µ · (memory left for it) / memory + (1 − λ) (1 − η) · slowed

as `least_steps` has it for all choices. What lanes slow, and the workspace of the largest operation, are those of what is left; so is
the time of the busiest lane, which no step is below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rackmodel.arrays import Array, Bools, Ints
from rackmodel.cost.step.bounds.memory import BUFFERS
from rackmodel.mapper.layouts.cases import Shape
from rackmodel.mapper.layouts.layer_prices import PARTS, Lanes, Part, Weights
from rackmodel.mapper.layouts.layer_tables import SAVED, LayerTables
from rackmodel.mapper.layouts.min_sum import Table, least_sum
from rackmodel.mapper.layouts.tensor_tables import SAVES
from rackmodel.model.layout import Choice

Moved = list[tuple[str, dict[str, Array]]]  # (operation, part → [values] seconds on a lane)
Left = dict[str, Bools]  # variable → [values, nodes] whether it is left
Moves = tuple[tuple[float, float, float, float, float], ...]  # µ · first + second · seconds, λ · third + fourth, η + fifth
ROUNDING = 1e-9
KINDS = ("seconds", "bytes", "remade", "update", "rest", "moving", "lane", "ahead", "behind")
OF_HOSTS = ("host", "host_weight")
STAY = (1.0, 0.0, 1.0, 0.0, 0.0)
HOSTS: Moves = tuple((1.0, 0.0, 1.0, 0.0, more) for more in (-1.0, -0.5, -0.25, 0.25, 0.5, 1.0))
SCALED = ((1.25, 1.0), (0.8, 1.0), (1.0, 1.4), (1.0, 0.7), (1.1, 1.0), (0.9, 1.0))
AROUND: Moves = (STAY, *((memory, 0.0, lane, 0.0, 0.0) for memory, lane in SCALED), *HOSTS)
LANES: Moves = (STAY, *((1.0, 0.0, 0.0, share, 0.0) for share in (0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64)))
MEMORY: Moves = (STAY, *((0.0, 2.0**k, 1.0, 0.0, 0.0) for k in range(-6, 4)))
HERE: tuple[Moves, ...] = ((STAY,),)
NEAR: tuple[Moves, ...] = (AROUND,)
NEARER: tuple[Moves, ...] = (AROUND, AROUND)
FAR: tuple[Moves, ...] = ((STAY, *HOSTS), LANES, MEMORY, AROUND, AROUND)


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column under one home, policy and schedule. number: of the tables' columns · ends: of what is before and after the layers the
    tables, and how often their seconds and bytes of a micro-batch count, and their weights' bytes · capacity: bytes · contention: share by
    which a busy lane slows the device · known: whether the tables know what weights move · hosted: whether its host may be what passes
    wait for · least: seconds that no step of it is below."""

    tables: LayerTables
    number: int
    shape: Shape
    ends: tuple[tuple[LayerTables, float, float, float], ...]
    capacity: float
    contention: float
    known: bool
    hosted: bool
    least: float

    @property
    def sections(self) -> tuple[LayerTables, ...]:
        """The tables of all sections, the layer's first."""
        return self.tables, *(tables for tables, *_ in self.ends)


@dataclass(frozen=True)
class Weighed:
    """A part of a layer's costs in a step of the column, by the values left of its variables: seconds of passes on the device, of these on
    the host, and others, bytes and seconds on the lanes · remade: bytes of the layer whose backward pass runs, beside its workspace ·
    ahead, behind: seconds of a micro-batch's passes."""

    variables: tuple[str, ...]
    device: Array
    host: Array
    others: Array
    bytes: Array
    remade: Array
    lane: Array
    ahead: Array
    behind: Array

    @property
    def figures(self) -> tuple[Array, ...]:
        """All of them: less is never worse."""
        return self.device, self.host, self.others, self.bytes, self.remade, self.lane, self.ahead, self.behind


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """Bounds of nodes and the prices that these are at. seconds: [nodes]; infinite where nothing is left that fits."""

    seconds: Array
    at: Weights


class Branches:
    """The nodes of one column. values: variable → numbers of the values left, of those that the tables have."""

    def __init__(self, column: Column, values: Mapping[str, Ints]) -> None:
        self.column, self.values = column, dict(values)
        self.counts = {name: len(own) for name, own in self.values.items()}
        self.open = {name: count for name, count in self.counts.items() if count > 1}
        k = column.number
        parts = [*column.tables.parts, *(column.tables.host.parts if column.hosted else ())]
        self.parts = _joined([self._weighed(part) for part in parts] + self._ends())
        self.moved = self._moved(column.tables)
        self.ends_moved = [(times / column.shape.micro_batches, self._moved(tables)) for tables, times, *_ in column.ends if times]
        self.moving = [self._moving(column.tables, column.known), *(self._moving(t, held) for t, _, held, _ in column.ends)]
        self.working = [{op: own[:, k][self.values[op]] for op, own in tables.working.items()} for tables in column.sections]

    @classmethod
    def of(cls, column: Column) -> Branches | None:
        """All choices of a column that divide; None where an operation has none."""
        values = {name: np.flatnonzero(fits[:, column.number]) for tables in column.sections for name, fits in tables.fits.items()}
        if any(not len(own) for own in values.values()):
            return None
        counted = {v: count for tables in column.sections for v, count in tables.counted.items()}
        return cls(column, {**values, **{v: np.arange(count) for v, count in counted.items() if v not in values}})

    def all(self) -> Left:
        """One node: all that is left."""
        return {name: np.ones((count, 1), dtype=bool) for name, count in self.counts.items()}

    def only(self, left: Left) -> Branches:
        """The same with what a node leaves alone. left: of one node."""
        return Branches(self.column, {name: own[left[name][:, 0]] for name, own in self.values.items()})

    def undominated(self) -> Left:
        """One node: of each variable the values that no other is as good as in all that they cost, whatever the others are; of several
        alike the first."""
        found = {}
        for name, count in self.counts.items():
            costs = self._costs(name)
            no_worse = np.asarray((costs[:, None, :] <= costs[None, :, :]).all(axis=2))  # [better, worse]
            first = np.tri(count, k=-1, dtype=bool).T  # of two alike the first is better
            beaten = np.any(no_worse & (~no_worse.T | first), axis=0)
            found[name] = ~beaten.reshape(count, 1)
        return found

    def choice(self, left: Left, node: int) -> tuple[dict[str, Choice], dict[str, str]]:
        """What the first values left in a node say: operation → what it splits over the free axis, and tensor → its saved copy where
        that is another than a shard."""
        first = {name: int(own[int(np.argmax(left[name][:, node]))]) for name, own in self.values.items()}
        strategies = {op: own for tables in self.column.sections for op, own in tables.strategies.items()}
        saved = {v.removeprefix(SAVED): SAVES[value] for v, value in first.items() if v not in strategies and value}
        return {op: strategies[op][first[op]][1] for op in strategies}, saved

    # -- bounds -------------------------------------------------------------------------------------------------------------------

    def bound(self, left: Left, at: Weights, rounds: Sequence[Moves]) -> Nodes:
        """The best bounds of nodes at prices from those given on. rounds: of moves from the best prices so far, those of a round side by
        side."""
        some = np.logical_and.reduce([own.any(axis=0) for own in left.values()])
        found = Nodes(seconds=np.full(len(at.memory), np.inf), at=at.of(np.arange(len(at.memory))))
        if not some.any():
            return found
        left = {name: own[:, some] for name, own in left.items()}
        room, n = self._room(left), int(some.sum())
        slowed, busiest = self._slowed(left)
        now, best = at.of(some), np.full(n, -np.inf)
        least = self._least(left, now.none, slowed, room)
        scale = np.where(np.isinf(least), 1.0, least)
        for moves in ([one for one in moves if one[-1] == 0.0 or self.column.hosted] for moves in rounds):
            times, more, lanes_times, lanes_more, hosts_more = (np.array(each)[:, None] for each in zip(*moves, strict=True))
            lanes, hosts = now.lane * lanes_times + lanes_more, now.host + hosts_more
            prices = Weights(memory=now.memory * times + more * scale, lane=np.clip(lanes, 0.0, 1.0), host=np.clip(hosts, 0.0, 1.0))
            again = {name: np.tile(own, len(moves)) for name, own in left.items()} if len(moves) > 1 else left
            value = self._least(again, prices.flat, np.tile(slowed, len(moves)), np.tile(room, len(moves))).reshape(-1, n)
            place = value.argmax(axis=0), np.arange(n)
            now, best = now.where(value[place] > best, prices.of(place)), np.maximum(best, value[place])
        fits = self._held(left) <= room * (1.0 + ROUNDING)
        found.seconds[some] = np.where(fits, np.maximum.reduce([best, least, busiest * (1.0 - ROUNDING)]), np.inf)
        found.at.put(some, now)
        return found

    def _least(self, left: Left, at: Weights, slowed: Array, room: Array) -> Array:
        """[nodes] seconds at some prices, at least."""
        limited, column, memory, lane = np.isfinite(self.column.capacity), self.column, at.memory, at.lane
        tables = self._left(left)
        for part in self.parts:
            priced = (part.device + part.others)[..., None] * (1.0 - lane)
            if column.hosted and (part.device.any() or part.host.any()):
                priced = priced + (part.host - part.device)[..., None] * ((1.0 - lane) * at.host)
            if part.lane.any():
                priced = priced + part.lane[..., None] * lane
            if limited:
                priced = priced + (part.bytes + part.remade)[..., None] * (memory / self.column.capacity)
            tables.append(Table(part.variables, priced))
        paid = memory * (room / self.column.capacity) if limited else 0.0
        more = (1.0 - at.host) * slowed + at.host * (column.shape.times * column.tables.host.seconds)
        found = least_sum(tables, self.open, len(lane)) - paid + (1.0 - lane) * more
        return np.asarray(found * (1.0 - ROUNDING))

    def _slowed(self, left: Left) -> tuple[Array, Array]:
        """[nodes] seconds by which lanes slow the device at least, and those of the busiest lane."""
        column, n = self.column, next(iter(left.values())).shape[1]
        if not column.known:
            return np.zeros(n), np.zeros(n)
        ahead, behind = (self._summed(left, each) for each in ([p.ahead for p in self.parts], [p.behind for p in self.parts]))
        lanes = self._lanes(left, self.moved)
        behind = np.zeros(n) if column.shape.split else behind
        m = np.full(n, column.shape.micro_batches)
        slower = lanes.slowing(m, column.shape.layers, column.shape.times, ahead, behind)
        ends = sum((repeat * self._lanes(left, moved).of_step(m) for repeat, moved in self.ends_moved), np.zeros(n))
        return column.contention * slower, column.shape.layers * lanes.of_step(m) + ends

    def _lanes(self, left: Left, moved: Moved) -> Lanes:
        """[nodes] seconds of a section's lanes at least."""
        busy = dict.fromkeys(PARTS, np.zeros(next(iter(left.values())).shape[1]))
        for op, each in moved:
            busy = {name: total + np.where(left[op], each[name][:, None], np.inf).min(axis=0) for name, total in busy.items()}
        return Lanes(**busy, shared=self.column.tables.shared)

    def _held(self, left: Left) -> Array:
        """[nodes] bytes that the tables count at least, and those by which an end beside a layer has more on the way than that has: tables
        count two layers of two units in a row."""
        whole = self._summed(left, [part.bytes + part.remade for part in self.parts])
        layers = sum((np.where(left[op], own[:, None], 0.0).max(axis=0) for op, own in self.moving[0]), np.zeros(len(whole)))
        ends = [sum((np.where(left[op], own[:, None], np.inf).min(axis=0) for op, own in each), -layers) for each in self.moving[1:]]
        return np.asarray(whole + np.maximum.reduce([np.zeros(len(whole)), *ends]))

    def _room(self, left: Left) -> Array:
        """[nodes] bytes at most for what the tables count: the largest workspace is beside them, a layer's with what it makes again."""
        layer, *ends = ([np.where(left[op], own[:, None], np.inf).min(axis=0) for op, own in each.items()] for each in self.working)
        again = sum((self._most(left, part) for part in self.parts), np.zeros(len(layer[0])))
        return np.asarray(self.column.capacity - np.maximum.reduce([*layer, *(one - again for each in ends for one in each)]))

    def _most(self, left: Left, part: Weighed) -> Array:
        """[nodes] bytes that a part has made again at most."""
        own, n = part.remade[..., None], next(iter(left.values())).shape[1]
        for axis, name in enumerate(part.variables if own.any() else ()):
            shape = [1] * axis + [len(left[name])] + [1] * (len(part.variables) - axis - 1) + [n]
            own = np.where(left[name].reshape(shape), own, 0.0)
        return np.asarray(np.broadcast_to(own, (*own.shape[:-1], n)).reshape(-1, n).max(axis=0))

    def _summed(self, left: Left, each: Sequence[Array]) -> Array:
        """[nodes] the least sum of some figures of the parts."""
        n = next(iter(left.values())).shape[1]
        whole = [
            Table(part.variables, np.broadcast_to(own[..., None], (*own.shape, n)))
            for part, own in zip(self.parts, each, strict=True)
            if own.any()
        ]
        return least_sum([*self._left(left), *whole], self.open, n)

    def _left(self, left: Left) -> list[Table]:
        """What is struck out; a variable of one value is always of that."""
        return [Table((name,), np.where(left[name], 0.0, np.inf)) for name in self.open if not left[name].all()]

    # -- figures ------------------------------------------------------------------------------------------------------------------

    def _weighed(self, part: Part) -> Weighed:
        """Of the layer."""
        column, known = self.column, float(self.column.known)
        here = {kind: self._here(column.tables, part, kind) for kind in (*KINDS, *OF_HOSTS)}
        layers = column.shape.layers * known
        return Weighed(
            part.variables,
            device=column.shape.times * here["seconds"],
            host=column.shape.times * (here["host"] + (not column.shape.split) * here["host_weight"]),
            others=layers * here["update"],
            bytes=column.shape.flying * here["bytes"] + layers * here["rest"] + BUFFERS * known * here["moving"],
            remade=here["remade"],
            lane=layers * here["lane"],
            ahead=here["ahead"],
            behind=here["behind"],
        )

    def _ends(self) -> list[Weighed]:
        """Of what is before and after the layers: what micro-batches run there and hold, and what weights hold."""
        found = []
        for tables, times, held, kept in self.column.ends:
            for part in tables.parts:
                if part.figures.keys() & {"seconds", "bytes", "rest"}:
                    seconds, bytes_, rest = (self._here(tables, part, kind) for kind in ("seconds", "bytes", "rest"))
                    none = np.zeros_like(seconds)
                    held_bytes = held * bytes_ + kept * rest
                    found.append(Weighed(part.variables, none, none, times * seconds, held_bytes, none, none, none, none))
        return found

    def _here(self, tables: LayerTables, part: Part, kind: str) -> Array:
        """A figure of a part in the column, by the values left."""
        if kind not in part.figures:
            return np.zeros([self.counts[v] for v in part.variables])
        whole = np.broadcast_to(part.figures[kind][..., self.column.number], tuple(tables.counted[v] for v in part.variables))
        return np.asarray(whole[np.ix_(*(self.values[v] for v in part.variables))])

    def _moved(self, tables: LayerTables) -> Moved:
        """What weights keep the lanes busy, of the values left."""
        k = self.column.number
        return [(op, {name: own[:, k][self.values[op]] for name, own in each.items()}) for op, each in tables.moved]

    def _moving(self, tables: LayerTables, times: float) -> list[tuple[str, Array]]:
        """Bytes gathered or about to be reduced, of the values left."""
        each = [(part.variables[0], self._here(tables, part, "moving")) for part in tables.parts if "moving" in part.figures]
        return [(op, times * own) for op, own in each]

    def _costs(self, name: str) -> Array:
        """[values, figures] all that the values of a variable cost, with every value of the others."""
        found = [
            np.moveaxis(figure, part.variables.index(name), 0).reshape(self.counts[name], -1)
            for part in self.parts
            if name in part.variables
            for figure in part.figures
        ]
        moved = [self.moved, *(each for _, each in self.ends_moved)]
        found += [each[part][:, None] for some in moved for op, each in some if op == name for part in PARTS]
        found += [own[:, None] for some in self.moving[1:] for op, own in some if op == name]
        found += [own[:, None] for each in self.working for op, own in each.items() if op == name]
        return np.concatenate(found, axis=1) if found else np.zeros((self.counts[name], 1))


def _joined(parts: Sequence[Weighed]) -> list[Weighed]:
    """Parts of the same variables as one, those of one value left out."""
    found: dict[tuple[str, ...], Weighed] = {}
    for part in parts:
        shape = part.others.shape
        open_ = tuple(name for name, count in zip(part.variables, shape, strict=True) if count > 1)  # one of one value is always of that
        mine = [figure.reshape([count for count in shape if count > 1]) for figure in part.figures]
        known = found.get(open_)
        found[open_] = Weighed(open_, *(mine if known is None else (a + b for a, b in zip(known.figures, mine, strict=True))))
    return list(found.values())
