"""What a collective costs on the networks above the accelerators: bytes, joules and seconds, linear in its message.

    T(V) = start + Σ_phases (start-ups + slope · V)        E(V) = Σ_tiers wire bytes · traversals · J/byte

The phases are those of `algorithms`, priced by `link_groups`; `start` is once a call. `collective` takes the members of every
group, `mesh_collective` a mesh, `collective_table` many meshes at once; `best_collective` takes the cheapest algorithm for each message.
Sources: those of the two files. Streams from a memory above the accelerators: `network/streams`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rackmodel.arrays import Array, Bools, Ints
from rackmodel.cost.network.algorithms import ALGORITHMS, KINDS, SENDS
from rackmodel.cost.network.all_to_alls import EXCHANGES, ExchangeFigures
from rackmodel.cost.network.fabric import Costs, Fabric, digest, fabric_of
from rackmodel.cost.network.likeness import Sample, canonical, likeness, merged, sample
from rackmodel.cost.network.link_groups import Flows, PhaseTraffic, measure, priced_together
from rackmodel.cost.network.placed import Groups
from rackmodel.errors import InputError
from rackmodel.model.architecture import Architecture
from rackmodel.model.placement import Mesh, members

__all__ = [
    "ALGORITHMS",
    "KINDS",
    "Choice",
    "LinkTable",
    "LinkUse",
    "best_collective",
    "collective",
    "collective_table",
    "mesh_collective",
    "offered",
    "send",
    "send_table",
]

MOST_KEPT = 4096  # degrees of the meshes of a table that is remembered
Measured = tuple[PhaseTraffic | ExchangeFigures, ...]
Merged = tuple[tuple[int, ...], tuple[int, ...], tuple[bool, ...]]  # degrees, strides, whether in the group


@dataclass(frozen=True)
class LinkUse:
    """Cost of one collective, linear in its message of V bytes; one entry for each tier, innermost first.

    levels: level whose network the tier is · wire_bytes_per_byte: bytes × traversals of all groups together, per byte of V ·
    joules_per_byte: the same times the network's J/byte · seconds_per_byte, latency_s: worst group, T = slope · V + latency; every
    phase on its slowest tier, a ring under path_sum each tier its own.
    """

    levels: tuple[str, ...]
    wire_bytes_per_byte: tuple[float, ...]
    joules_per_byte: tuple[float, ...]
    seconds_per_byte: tuple[float, ...]
    latency_s: tuple[float, ...]

    def seconds(self, volume: ArrayLike) -> Array:
        """[tiers, *volume.shape] seconds for messages of `volume` bytes; an empty message costs nothing."""
        size = np.asarray(volume, dtype=float)
        shape = (-1,) + (1,) * size.ndim
        slope, start = np.reshape(self.seconds_per_byte, shape), np.reshape(self.latency_s, shape)
        return np.asarray(np.where(size > 0, slope * size + start, 0.0))

    def total(self, volume: ArrayLike) -> Array:
        """[*volume.shape] seconds over all tiers."""
        return np.asarray(self.seconds(volume).sum(axis=0))


@dataclass(frozen=True)
class LinkTable:
    """A LinkUse for each of D meshes: the figures are [tiers, D]. offered: [D] whether the algorithm applies; where it does not, seconds
    are infinite and bytes zero, so that it never wins."""

    levels: tuple[str, ...]
    wire_bytes_per_byte: Array
    joules_per_byte: Array
    seconds_per_byte: Array
    latency_s: Array
    offered: Bools

    def total(self, volume: ArrayLike) -> Array:
        """[D] seconds for messages of `volume` ([D] or one) bytes; an empty message costs nothing."""
        size = np.asarray(volume, dtype=float)
        return np.asarray(np.where(size > 0, (self.seconds_per_byte * size + self.latency_s).sum(axis=0), 0.0))


@dataclass(frozen=True)
class Choice:
    """The cheapest algorithm for each message. algorithms, seconds, joules: shaped as the volumes · uses: what each offered one costs."""

    algorithms: NDArray[np.str_]
    seconds: Array
    joules: Array
    uses: dict[str, LinkUse]


# -- the public calls ------------------------------------------------------------------------------------------------------


def collective(architecture: Architecture, members: Ints, kind: str, algorithm: str = "ring") -> LinkUse:
    """Cost of `kind` over concurrent groups. members: [groups, p] accelerators, each row in ring order (ascending is best).

    kind and its message V, bytes a member: all_gather (gathered size), reduce_scatter and all_to_all (size held before),
    all_reduce, broadcast, reduce (size), halo (size sent to each of the two neighbours in the row; the ends have one).
    algorithm 'ring' is also the direct all_to_all and the exchange of halos. Zeros where p is 1, whatever the algorithm. Raises InputError
    for an unknown kind or algorithm, one that does not apply, or members no network joins.
    """
    groups = np.asarray(members, dtype=np.int64)
    if groups.ndim != 2:
        raise InputError(f"members must be [groups, p], not {groups.ndim}-dimensional")
    fabric = fabric_of(architecture)

    def price() -> LinkUse:
        _known(kind, algorithm)
        return _required(fabric, _of_groups(fabric, Sample.everyone(fabric, groups), kind, algorithm), kind, algorithm)

    return fabric.remember((kind, algorithm, *digest(groups)), price)


def mesh_collective(architecture: Architecture, mesh: Mesh, group_axes: Sequence[str], kind: str, algorithm: str = "ring") -> LinkUse:
    """`collective` over the groups of a mesh, remembered by mesh and axes; groups that look alike are priced as one."""
    fabric, axes = fabric_of(architecture), tuple(group_axes)

    def price() -> LinkUse:
        return _required(fabric, _of_mesh(fabric, mesh, axes, kind, algorithm), kind, algorithm)

    return fabric.remember((kind, algorithm, mesh, axes), price)


def offered(architecture: Architecture, mesh: Mesh, group_axes: Sequence[str], kind: str) -> tuple[str, ...]:
    """The algorithms that can do `kind` over these groups on these networks, in the order of ALGORITHMS."""
    fabric, axes = fabric_of(architecture), tuple(group_axes)
    return tuple(name for name in ALGORITHMS if _of_mesh(fabric, mesh, axes, kind, name) is not None)


def best_collective(
    architecture: Architecture,
    mesh: Mesh,
    group_axes: Sequence[str],
    kind: str,
    volume_bytes: ArrayLike,
    algorithms: Iterable[str] = tuple(ALGORITHMS),
) -> Choice:
    """The fastest of the offered algorithms for each message; ties go to the one that `algorithms` names first.

    volume_bytes: any shape, bytes a member. Raises InputError where none of `algorithms` is offered.
    """
    fabric, axes, size = fabric_of(architecture), tuple(group_axes), np.asarray(volume_bytes, dtype=float)
    asked = tuple(algorithms)
    priced = {name: _of_mesh(fabric, mesh, axes, kind, name) for name in asked}
    uses = {name: use_of(fabric, found) for name, found in priced.items() if found is not None}
    if not uses:
        raise InputError(f"none of {', '.join(asked)} does {kind} here", known=offered(architecture, mesh, axes, kind))
    seconds, joules = np.full(size.shape, np.inf), np.zeros(size.shape)
    names = np.full(size.shape, max(uses, key=len))
    for name, use in uses.items():
        mine = use.total(size)
        faster = mine < seconds * (1 - 1e-12)
        names, seconds = np.where(faster, name, names), np.where(faster, mine, seconds)
        joules = np.where(faster, sum(use.joules_per_byte) * size, joules)
    return Choice(names, seconds, joules, uses)


def collective_table(
    architecture: Architecture,
    degrees: ArrayLike,
    strides: ArrayLike,
    axes: Sequence[str],
    group_axes: Sequence[str],
    kind: str,
    algorithm: str = "ring",
) -> LinkTable:
    """`mesh_collective` for D meshes of the same axes (offset 0). degrees, strides: [D, axes].

    Meshes that divide into the levels alike share one measurement for each distinct group and are priced in arrays; the others are
    enumerated. Raises InputError as `collective`, but where the algorithm does not apply the table says so (`offered`).
    """
    fabric = fabric_of(architecture)
    _known(kind, algorithm)
    own = _own(axes, group_axes)
    return _table(fabric, *_meshes(degrees, strides), own, kind, algorithm)


def send_table(
    architecture: Architecture, degrees: ArrayLike, strides: ArrayLike, stages: ArrayLike, stage_stride: ArrayLike, *, far: bool = False
) -> LinkTable:
    """`send` from every accelerator of each pipeline stage to its peer in the next, all at once; far: from the first stage to the last.

    degrees, strides: [D, axes] of the mesh of one stage · stages, stage_stride: [D] its degree and stride. Bytes and joules are those of
    all stages − 1 hand-overs (far: of the one). Zeros where there is one stage.
    """
    inner, outer = _meshes(degrees, strides), _meshes(np.reshape(stages, (-1, 1)), np.reshape(stage_stride, (-1, 1)))
    joined = [np.concatenate(pair, axis=1) for pair in zip(inner, outer, strict=True)]
    return _table(
        fabric_of(architecture), joined[0], joined[1], np.arange(joined[0].shape[1]) == inner[0].shape[1], "send", "far" if far else "next"
    )


def far_send_table(
    architecture: Architecture, degrees: ArrayLike, strides: ArrayLike, stages: ArrayLike, stage_stride: ArrayLike
) -> LinkTable:
    """`send_table` from the first stage to the last."""
    return send_table(architecture, degrees, strides, stages, stage_stride, far=True)


def send(architecture: Architecture, members_from: Ints, members_to: Ints) -> LinkUse:
    """Pairs at once, each sending V bytes from members_from[i] to members_to[i] ([n]); a pair of one accelerator is free.

    One transfer has one path, so both hop readings agree: T = V / bandwidth + latency of the slowest pair.
    """
    here, there = (np.asarray(side, dtype=np.int64).reshape(-1, 1) for side in (members_from, members_to))
    if here.shape != there.shape:
        raise InputError(f"a send needs as many senders as receivers, not {here.size} and {there.size}")
    fabric = fabric_of(architecture)

    def price() -> LinkUse:
        flows = Flows(here, there, load=1.0, steps=1, alone=True)
        pairs = Groups(here, np.ones(len(here), dtype=np.int64), None, ("send", *digest(here)))
        found = tuple(measure(fabric, [(pairs, flows)]))
        return use_of(fabric, _priced_once(fabric, found, np.ones(len(fabric.tiers)), 1.0, "send"))

    return fabric.remember(("send", *digest(here), *digest(there)), price)


# -- pricing ---------------------------------------------------------------------------------------------------------------


def _known(kind: str, algorithm: str) -> None:
    if kind not in (*KINDS, *EXCHANGES):
        raise InputError(f"no collective called '{kind}'", known=KINDS, given=kind)
    if algorithm not in ALGORITHMS:
        raise InputError(f"no algorithm called '{algorithm}'", known=ALGORITHMS, given=algorithm)


def _required(fabric: Fabric, found: Costs | None, kind: str, algorithm: str) -> LinkUse:
    if found is None:
        others = [name for name, what in ALGORITHMS.items() if kind in what.kinds and name != algorithm]
        raise InputError(f"'{algorithm}' does not apply to {kind} of these groups on these networks", known=others)
    return use_of(fabric, found)


def _own(axes: Sequence[str], group_axes: Sequence[str]) -> Bools:
    for name in group_axes:
        if name not in axes:
            raise InputError(f"the mesh has no axis '{name}'", known=axes, given=name)
    return np.array([name in group_axes for name in axes], dtype=bool)


def _meshes(degrees: ArrayLike, strides: ArrayLike) -> tuple[Ints, Ints]:
    both = np.asarray(degrees, dtype=np.int64), np.asarray(strides, dtype=np.int64)
    if both[0].ndim != 2 or both[0].shape != both[1].shape:
        raise InputError(f"degrees and strides must be [meshes, axes] alike, not {both[0].shape} and {both[1].shape}")
    return both


def _of_groups(fabric: Fabric, groups: Sample, kind: str, algorithm: str) -> Costs | None:
    """[tiers, 1] costs of all that the sample stands for, or None where the algorithm does not apply."""
    (found,) = _measured(fabric, [groups.groups(fabric)], kind, algorithm)
    return _priced_once(fabric, found, groups.copies, groups.count, kind) if found else None


def _nothing(fabric: Fabric) -> PhaseTraffic:
    """What a group of one moves."""
    none, one = np.zeros(len(fabric.tiers)), np.ones(len(fabric.tiers))
    return PhaseTraffic(0.0, none, none, one, one, 1, none, 0.0, None)


def _of_mesh(fabric: Fabric, mesh: Mesh, axes: tuple[str, ...], kind: str, algorithm: str) -> Costs | None:
    _known(kind, algorithm)
    own = _own(mesh.axes, axes)
    if mesh.offset:
        return _of_groups(fabric, Sample.everyone(fabric, members(mesh, axes)), kind, algorithm)
    table = _table(fabric, np.array([mesh.degrees]), np.array([mesh.strides]), own, kind, algorithm)
    return (table.wire_bytes_per_byte, table.seconds_per_byte, table.latency_s) if table.offered[0] else None


def _measured_once(fabric: Fabric, many: Sequence[_Regular | Sample], kind: str, algorithm: str) -> list[Measured]:
    """The phases of an algorithm of each; none where it does not apply."""
    keys = [("figures", kind, algorithm, one.of) for one in many]
    found = {key: fabric.measured[key] for key in keys if key in fabric.measured}
    new = {key: one for key, one in zip(keys, many, strict=True) if key not in found}
    measured = _measured(fabric, [one.groups(fabric) for one in new.values()], kind, algorithm)
    for key, phases in zip(new, measured, strict=True):
        found[key] = fabric.measure_once(key, partial(tuple, phases))
    return [found[key] for key in keys]


def _measured(fabric: Fabric, many: Sequence[Groups], kind: str, algorithm: str) -> list[Measured]:
    """The same, measured now."""
    what = SENDS[algorithm] if kind == "send" else ALGORITHMS[algorithm]
    applies = [kind in what.kinds and not (what.regular and one.extents is None) for one in many]
    wide = [one.rows.shape[1] > 1 and len(one.rows) > 0 for one in many]
    phases = [
        what.phases(fabric, one.rows, kind, one.extents) if some and does else []
        for one, some, does in zip(many, wide, applies, strict=True)
    ]
    asked = {id(phase): (one, phase) for one, each in zip(many, phases, strict=True) for phase in each}  # one that comes twice once
    figures = dict(zip(asked, measure(fabric, list(asked.values())), strict=True))
    return [tuple(figures[id(phase)] for phase in each) if some else (_nothing(fabric),) for each, some in zip(phases, wide, strict=True)]


def _priced(fabric: Fabric, found: Sequence[Measured], of: Ints, copies: Array, count: Array, kind: str) -> Costs:
    """[tiers, n] costs of phases one after another, and of the call (none for a send). of: [n] which of those that were `found` a column
    has, -1 = none · copies: [tiers, n] · count: [n]."""
    wire, slope, start = (np.zeros(copies.shape) for _ in range(3))
    phases = {id(figures): figures for one in found for figures in one if isinstance(figures, PhaseTraffic)}
    numbers = {key: number for number, key in enumerate(phases)}
    slots = [[numbers[id(figures)] for figures in one if isinstance(figures, PhaseTraffic)] for one in found]
    which = np.full((max(map(len, slots), default=0), len(found) + 1), len(phases))
    for number, keys in enumerate(slots):
        which[: len(keys), number] = keys
    if len(which):
        for costs in zip(*priced_together(fabric, list(phases.values()), which[:, of], copies, count), strict=True):
            wire, slope, start = wire + costs[0], slope + costs[1], start + costs[2]
    for number, one in enumerate(found):
        for figures in one:
            if isinstance(figures, ExchangeFigures):
                at = np.flatnonzero(of == number)
                costs = figures.price(fabric, copies[:, at], count[at])
                wire[:, at], slope[:, at], start[:, at] = wire[:, at] + costs[0], slope[:, at] + costs[1], start[:, at] + costs[2]
    used = wire > 0
    if kind != "send" and used.any():
        calls = np.where(used, np.array([tier.network.start_s for tier in fabric.tiers])[:, None], -np.inf)
        some = np.flatnonzero(used.any(axis=0))
        start[len(used) - 1 - np.argmax(used[::-1, some], axis=0), some] += calls[:, some].max(axis=0)
    return wire, slope, start


def _priced_once(fabric: Fabric, found: Measured, copies: Array, count: float, kind: str) -> Costs:
    """[tiers, 1] the same of one. copies: [tiers]."""
    return _priced(fabric, [found], np.zeros(1, dtype=np.int64), copies[:, None], np.array([count], dtype=float), kind)


def _table(fabric: Fabric, degrees: Ints, strides: Ints, own: Bools, kind: str, algorithm: str) -> LinkTable:
    """The table of some meshes; of few it is remembered."""
    if degrees.size > MOST_KEPT:
        return _made(fabric, degrees, strides, own, kind, algorithm)
    key = ("table", kind, algorithm, degrees.shape, degrees.tobytes(), strides.tobytes(), own.tobytes())
    return fabric.remember(key, lambda: _made(fabric, degrees, strides, own, kind, algorithm))


def _made(fabric: Fabric, degrees: Ints, strides: Ints, own: Bools, kind: str, algorithm: str) -> LinkTable:
    """Every mesh as a group that stands for all, or as a few; what depends on the group alone is measured once and remembered."""
    groups = _groups_of(fabric, degrees, strides, own, kind)
    found = _measured_once(fabric, groups.distinct, kind, algorithm)
    wire, slope, start = _priced(fabric, found, groups.of, groups.copies, groups.count, kind)
    offered = np.array([*map(bool, found), True])[groups.of]
    slope[-1:, ~offered] = np.inf
    energy = np.array([tier.network.energy_j_per_byte for tier in fabric.tiers])
    return LinkTable(tuple(tier.level for tier in fabric.tiers), wire, wire * energy[:, None], slope, start, offered)


@dataclass(frozen=True)
class _Regular:
    """A group that is alike under every child, and stands for all. extents: children at each tier · placed: degrees and strides of its
    axes, where they matter as well, None = they do not."""

    extents: tuple[int, ...]
    placed: tuple[int, ...] | None

    @property
    def of(self) -> Hashable:
        """What tells it apart from others."""
        return self.placed or self.extents, self.placed is None

    def groups(self, fabric: Fabric) -> Groups:
        """[1, p] the first such group."""
        rows = fabric.measure_once(("rows", self.of), lambda: self._rows(fabric))
        return Groups(rows, np.ones(1, dtype=np.int64), self.extents, self.of)

    def _rows(self, fabric: Fabric) -> Ints:
        if self.placed is None:
            return canonical(fabric, self.extents)
        half = len(self.placed) // 2
        names = tuple(map(str, range(half)))
        return members(Mesh(names, self.placed[:half], self.placed[half:]), names)


@dataclass(frozen=True)
class _Groups:
    """Groups of the meshes of a table. of: [D] which of the `distinct` ones a mesh has, -1 = groups of one · copies: [tiers, D] · count:
    [D]."""

    distinct: list[_Regular | Sample]
    of: Ints
    copies: Array
    count: Array


def _groups_of(fabric: Fabric, degrees: Ints, strides: Ints, own: Bools, kind: str) -> _Groups:
    """What all collectives on some meshes share, but that all-to-alls may meet others. Of few meshes it is remembered."""
    if degrees.size > MOST_KEPT:
        return _grouped(fabric, degrees, strides, own, kind)
    key = ("groups", kind in EXCHANGES, degrees.shape, degrees.tobytes(), strides.tobytes(), own.tobytes())
    return fabric.measure_once(key, lambda: _grouped(fabric, degrees, strides, own, kind))


def _grouped(fabric: Fabric, degrees: Ints, strides: Ints, own: Bools, kind: str) -> _Groups:
    like = likeness(fabric, degrees, strides, own, kind)
    distinct, of = list[_Regular | Sample](), np.full(len(degrees), -1)
    copies, count = like.copies.astype(float), like.count.astype(float)
    keys = like.extents.T if like.alike else _placed(degrees[:, own], strides[:, own])
    for columns in _same(keys, like.exact & (like.p > 1)):
        extents, placed = (tuple(table[columns[0]].tolist()) for table in (like.extents.T, keys))
        of[columns] = len(distinct)
        distinct.append(_Regular(extents, None if like.alike else placed))
    rest = np.flatnonzero(~like.exact)
    for mesh, same in _merged(degrees[rest], strides[rest], own):
        groups, at = fabric.measure_once(("sample", mesh), partial(sample, fabric, *mesh)), rest[same]
        of[at], copies[:, at], count[at] = len(distinct), groups.copies[:, None], groups.count
        distinct.append(groups)
    return _Groups(distinct, of, copies, count)


def _placed(degrees: Ints, strides: Ints) -> Ints:
    """[D, degrees and strides] of a group's axes: 1 and 1 of those of one rank."""
    wide = degrees > 1
    return np.concatenate([np.where(wide, degrees, 1), np.where(wide, strides, 1)], axis=1)


def _merged(degrees: Ints, strides: Ints, own: Bools) -> Iterator[tuple[Merged, Ints]]:
    """Each distinct merged mesh, and which of the meshes come to it."""
    if len(degrees):
        parts = merged(degrees, strides, own)
        for same in _same(np.concatenate(parts, axis=1), np.ones(len(degrees), dtype=bool)):
            degree, stride, mine = (tuple(part[same[0]].tolist()) for part in parts)
            yield (degree, stride, mine), same


def _same(keys: Ints, among: Bools) -> list[Ints]:
    """The columns of each distinct key, among some."""
    chosen = np.flatnonzero(among)
    if len(chosen) <= 1:
        return [chosen] if len(chosen) else []
    order = chosen[np.lexsort(keys[chosen].T)]
    cuts = np.flatnonzero(np.any(keys[order[1:]] != keys[order[:-1]], axis=1)) + 1
    return np.split(order, cuts)


def use_of(fabric: Fabric, costs: Costs) -> LinkUse:
    """[tiers, 1] costs as a LinkUse, with the joules that its bytes take."""
    wire, slope, start = (tuple(np.reshape(part, -1).tolist()) for part in costs)
    joules = tuple(w * tier.network.energy_j_per_byte for w, tier in zip(wire, fabric.tiers, strict=True))
    return LinkUse(tuple(tier.level for tier in fabric.tiers), wire, joules, slope, start)
