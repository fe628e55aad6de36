"""What one local operation costs inside an accelerator, first fidelity: compute, and the compulsory traffic of every memory level.

    time = max(operations / rate, bytes at each level / bandwidth)        energy = Σ operations and bytes × their energy

Every operand enters every memory level once, every output leaves it once; the memory next to the compute feeds every
operation that no multicast below it can share. Each is a lower bound of any loop nest, so that the exact nest can take
this file's place: same local_ops in, same rows out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.cost.ledger import Component
from rackmodel.cost.program.tasks import Degrees, LocalOp
from rackmodel.model.architecture import Architecture, Ports

ALIKE = 1e-12  # rounding of sizes that divide


@dataclass(slots=True)
class Row:
    """One charge of one accelerator: amount and joules of the mean one, seconds of the fullest, arrays over meshes. (Never changed; but
    frozen ones take long to make, and there are many.) more: how many times the mean the fullest has, 1 where all have as much."""

    tensor: str
    level: str
    component: Component
    action: str
    amount: Any
    unit: str
    joules: Any
    seconds: Any
    exposed: Any = 0.0
    more: Any = 1.0

    @property
    def fullest(self) -> Any:
        """Amount of the fullest accelerator."""
        return self.amount if isinstance(self.more, float) else self.amount * self.more

    @property
    def most_joules(self) -> Any:
        """Joules of the fullest accelerator."""
        return self.joules if isinstance(self.more, float) else self.joules * self.more

    def called(self, tensor: str) -> Row:
        """The same of a tensor of another name."""
        same = self.amount, self.unit, self.joules, self.seconds, self.exposed, self.more
        return Row(tensor, self.level, self.component, self.action, *same)

    def scaled(self, total: Any, tensor: str | None = None) -> Row:
        """The same with amount and joules so many times (what `replace` does, quickly: there are many rows). tensor: where its name is
        another."""
        more = self.amount * total, self.unit, self.joules * total
        name = self.tensor if tensor is None else tensor
        return Row(name, self.level, self.component, self.action, *more, self.seconds, self.exposed, self.more)

    def exposing(self, seconds: Any) -> Row:
        """The same with these exposed seconds."""
        return self.lasting(self.seconds, seconds)

    def lasting(self, seconds: Any, exposed: Any) -> Row:
        """The same with these seconds and exposed seconds."""
        same = self.amount, self.unit, self.joules
        return Row(self.tensor, self.level, self.component, self.action, *same, seconds, exposed, self.more)

    def drawing(self, share: Any) -> Row:
        """The same with that share of its joules."""
        return Row(
            self.tensor,
            self.level,
            self.component,
            self.action,
            self.amount,
            self.unit,
            self.joules * share,
            self.seconds,
            self.exposed,
            self.more,
        )

    def pick(self, which: Ints) -> Row:
        """The same for some meshes."""
        amount, joules = picked(self.amount, which), picked(self.joules, which)
        seconds, exposed = picked(self.seconds, which), picked(self.exposed, which)
        same = self.tensor, self.level, self.component, self.action
        return Row(*same, amount, self.unit, joules, seconds, exposed, picked(self.more, which))


def picked(figure: Any, which: Ints | slice) -> Any:
    """A figure of some meshes: one for each, or one for all."""
    return figure[which] if isinstance(figure, np.ndarray) and figure.size > 1 else figure


LocalPricer = Callable[[Architecture, LocalOp, Degrees], tuple[list[Row], Array]]
"""What a local operation costs inside one accelerator: rows and duration [n]. The roofline is one, the loop nest another."""


def roofline_rows(
    architecture: Architecture, local_op: LocalOp, degrees: Degrees, on_chip: frozenset[str] = frozenset()
) -> tuple[list[Row], Array]:
    """Rows and duration [n] of a local operation on one accelerator; the binding resource's rows carry the exposed seconds. on_chip:
    tensors that it finds and leaves in the first memory below the accelerator's own."""
    return slowest(_groups(architecture, local_op, degrees, local_op.points(degrees), on_chip), len(degrees))


def charged_rows(architecture: Architecture, local_op: LocalOp, degrees: Degrees, points: tuple[Array, Array]) -> tuple[list[Row], Array]:
    """The same for who says anew what is exposed: no row is. points: of the operation, exact and of the fullest accelerator."""
    groups = [rows for rows in _groups(architecture, local_op, degrees, points, frozenset()) if rows]
    longest = np.zeros(len(degrees))
    for rows in groups:
        longest = np.maximum(longest, total(rows, len(degrees)))
    return [row for rows in groups for row in rows], longest


def _groups(
    architecture: Architecture, local_op: LocalOp, degrees: Degrees, points: tuple[Array, Array], on_chip: frozenset[str]
) -> list[list[Row]]:
    """Rows of each resource."""
    return [_compute(architecture, local_op, points), *_memories(architecture, local_op, degrees, points, on_chip)]


def total(rows: Sequence[Row], n: int) -> Array:
    """[n] seconds of rows one after another."""
    return np.asarray(sum((row.seconds for row in rows), np.zeros(n)))


def slowest(groups: Sequence[Sequence[Row]], n: int) -> tuple[list[Row], Array]:
    """Rows and duration [n] of resources that work at once, a group of rows each: the slowest one's rows carry the exposed seconds."""
    times = [total(rows, n) for rows in groups]
    longest = np.maximum.reduce(times)
    found, binds = [], np.zeros(n, dtype=bool)  # binds: where one of those before is the slowest
    for seconds, rows in zip(times, groups, strict=True):
        here = (seconds == longest) & ~binds
        binds |= here
        found += [row.exposing(np.where(here, row.seconds, 0.0)) for row in rows]
    return found, longest


def _compute(architecture: Architecture, local_op: LocalOp, points: tuple[Array, Array]) -> list[Row]:
    level, instances = architecture.computing
    assert level.compute is not None
    if local_op.macs:
        rate, factor, action = level.compute.matrix(local_op.bits), 2.0, "mac"
    elif level.compute.vector is not None and local_op.per_element:
        rate, factor, action = level.compute.vector, local_op.per_element, "vector"
    else:
        return []
    if local_op.macs and level.compute.sparse:
        factor *= local_op.weight_density
    flops, most = factor * points[0], factor * points[1]
    seconds = most / (rate.rate_flop_per_s * instances)
    joules, more = flops * rate.energy_j_per_flop, times(most, flops) if local_op.paced else 1.0
    return [Row(local_op.written, level.name, "compute", action, flops, "flop", joules, seconds, more=more)]


def _memories(
    architecture: Architecture, local_op: LocalOp, degrees: Degrees, points: tuple[Array, Array], on_chip: frozenset[str]
) -> Iterator[list[Row]]:
    """Rows of each port of each memory level: a shared port has one group, split ports have two."""
    levels, sizes, none = architecture.ports, _sizes(local_op, degrees), np.zeros(len(degrees))
    for depth, ports in enumerate(levels):
        if depth and ports.chooses:
            continue  # a tensor may pass by: nothing is compulsory here
        feeds = _feeds(architecture, local_op, points, ports.instances) if depth and depth == len(levels) - 1 else None
        rows = _level(ports, sizes, depth, feeds, none)
        if depth < 2 and on_chip:
            rows = [row for row in rows if row.tensor not in on_chip or (depth and _own(row, local_op))]
        if ports.split:
            yield [row for row in rows if row.action == "read"]
            yield [row for row in rows if row.action == "write"]
        else:
            yield rows


@dataclass
class _Bytes:
    """[n] bytes of the mean accelerator and of the fullest: one array where they are the same. more: see `Row.more`."""

    mean: Array
    most: Array
    more: Any = 1.0

    def __post_init__(self) -> None:
        if self.most is not self.mean:
            self.more = times(self.most, self.mean)


@dataclass
class _Moved:
    """A flow that is there. size: of it · again: whether it is a sum so far."""

    name: str
    size: _Bytes
    again: bool
    written: bool


def _sizes(local_op: LocalOp, degrees: Degrees) -> list[_Moved]:
    """What a local operation reads and writes, in that order."""
    flows = [(flow, False) for flow in local_op.reads] + [(flow, True) for flow in local_op.writes]
    there = [(flow, written) for flow, written in flows if not flow.volume.empty]
    return [_Moved(flow.name, _Bytes(*flow.volume.both(degrees)), flow.volume.again, written) for flow, written in there]


def times(most: Array, mean: Array) -> Any:
    """[n] how many times the mean the most is; 1.0 where they are alike."""
    if most is mean or not np.any(most > mean * (1 + ALIKE)):
        return 1.0
    return np.divide(most, mean, out=np.ones_like(np.asarray(most, dtype=np.float64)), where=np.asarray(mean) > 0)


def _own(row: Row, local_op: LocalOp) -> bool:
    """Whether a row is of the operation's own reading and writing, not of what comes from above or goes there."""
    return row.action == ("write" if row.tensor in {flow.name for flow in local_op.writes} else "read")


def _feeds(architecture: Architecture, local_op: LocalOp, points: tuple[Array, Array], instances: int) -> _Bytes | None:
    """What the innermost memory must hand over: one word an operation, shared by a multicast below it and by an atom."""
    if not local_op.macs:
        return None
    level, units = architecture.computing
    assert level.compute is not None
    atom = level.compute.matrix(local_op.bits).atom
    shared = units / instances * (max(atom.m, atom.n, atom.k) if atom is not None else 1)
    fed = points[0] * local_op.bits / 8 / shared
    return _Bytes(fed, points[1] * local_op.bits / 8 / shared if local_op.paced else fed)


def _level(ports: Ports, flows: Sequence[_Moved], depth: int, feeds: _Bytes | None, none: Array) -> list[Row]:
    """Rows of flows that pass a memory level. (A sum so far is no operand: what feeds each operation from it is the result's.) none: [n]
    zeros."""
    found: list[Row] = []

    def charge(tensor: str, action: str, size: _Bytes) -> None:
        rate, mean = ports.rates[action], size.mean
        seconds = none if rate is None else size.most / rate
        found.append(Row(tensor, ports.level, "memory", action, mean, "byte", mean * ports.joules[action], seconds, more=size.more))

    for flow in flows:
        fed = flow.size if feeds is None or (flow.again and not flow.written) else _larger(flow.size, feeds)
        if flow.written:
            charge(flow.name, "write", fed)
            if depth:
                charge(flow.name, "read", fed)
        else:
            charge(flow.name, "read", fed)
            if depth:
                charge(flow.name, "write", flow.size)
    return found


def _larger(own: _Bytes, feeds: _Bytes) -> _Bytes:
    mean = np.maximum(own.mean, feeds.mean)
    return _Bytes(mean, mean if own.mean is own.most and feeds.mean is feeds.most else np.maximum(own.most, feeds.most))
