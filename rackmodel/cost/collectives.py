"""What a collective costs on the networks above the accelerators: bytes, joules and seconds, linear in its message.

    edge of an algorithm    charged at the tier of its ends' lowest common ancestor, times the traversals there
    energy                  Σ edges bytes · traversals · J/byte            (all groups together)
    slowest_link            T = K·M / min_tiers bandwidth + K · max_tiers (latency · traversals)
    path_sum                T = Σ_l n_l · (M / bandwidth_l + latency_l · traversals_l),   n_l = K · edges_l / edges

K steps of M bytes: a ring all-gather or reduce-scatter has K = p − 1 and M = V / p, an all-reduce K = 2 (p − 1). The reading is
the `hops` of the outermost tier that any group uses (where tiers disagree the outermost wins); time is that of the worst group.
Sources: rack-scale paper (both readings), Thakur 2005 (ring), SwarmX 1:4 tree (stream).

Groups run at once. The flows leaving (or entering) the busiest child of a tier share its links, and an oversubscribed switch
leaves 1/o of them: a flow gets bandwidth · min(1, links / (o · flows)), or without the min where links are striped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rackmodel.errors import InputError
from rackmodel.model.architecture import Architecture, Network, Tier
from rackmodel.model.network import attached_tier, common_tier, hop_parts, ring_hop_count, tier_offsets, tree_depth, tree_edge_loads
from rackmodel.model.placement import Mesh, members

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class LinkUse:
    """Cost of one collective, linear in its message of V bytes; one entry for each tier, innermost first.

    levels: level whose network the tier is · wire_bytes_per_byte: bytes × traversals of all groups together, per byte of V ·
    joules_per_byte: the same times the network's J/byte · seconds_per_byte, latency_s: worst group, T = slope · V + latency; under
    slowest_link on the slowest tier alone, under path_sum each tier its own.
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
class Fabric:
    """The networks of one architecture as collectives see them, and what was priced on them before."""

    architecture: Architecture
    tiers: tuple[Tier, ...]
    offsets: tuple[int, ...]
    known: dict[Any, LinkUse] = field(default_factory=dict)

    def positions(self, index: int, accelerator: Indices) -> Indices:
        """Child position in tier `index` of the child that holds each accelerator."""
        tier = self.tiers[index]
        return np.asarray(accelerator // tier.below % tier.children + self.offsets[index])

    def remember(self, key: Any, make: Callable[[], LinkUse]) -> LinkUse:
        """The cost under `key`, made once."""
        found = self.known.get(key)
        if found is None:
            if len(self.known) >= 1 << 17:
                self.known.clear()
            found = self.known[key] = make()
        return found


_FABRICS: dict[int, Fabric] = {}  # by id of the architecture, which the fabric keeps alive


def _fabric(architecture: Architecture) -> Fabric:
    found = _FABRICS.get(id(architecture))
    if found is None:
        if len(_FABRICS) >= 64:
            _FABRICS.clear()
        found = _FABRICS[id(architecture)] = Fabric(architecture, architecture.tiers, tier_offsets(architecture))
    return found


def _digest(array: Indices) -> tuple[tuple[int, ...], bytes]:
    return array.shape, hashlib.blake2b(array.tobytes(), digest_size=16).digest()


# -- the public calls ------------------------------------------------------------------------------------------------------


def collective(architecture: Architecture, members: Indices, kind: str, algorithm: str = "ring") -> LinkUse:
    """Cost of `kind` over concurrent groups. members: [groups, p] accelerators, each row in ring order (ascending is best).

    kind and its message V, bytes a member: all_gather (gathered size), reduce_scatter and all_to_all (size held before),
    all_reduce, broadcast, reduce (size), halo (size sent to each of the two neighbours in the row; the ends have one).
    Zeros where p is 1. Raises InputError for an unknown kind or algorithm, or members no network joins.
    """
    groups = np.asarray(members, dtype=np.int64)
    if groups.ndim != 2:
        raise InputError(f"members must be [groups, p], not {groups.ndim}-dimensional")
    fabric = _fabric(architecture)
    return fabric.remember((kind, algorithm, *_digest(groups)), lambda: _run(fabric, groups, kind, algorithm))


def mesh_collective(architecture: Architecture, mesh: Mesh, group_axes: Sequence[str], kind: str, algorithm: str = "ring") -> LinkUse:
    """`collective` over the groups of a mesh, remembered by mesh and axes (no arrays are made the second time)."""
    fabric, axes = _fabric(architecture), tuple(group_axes)
    return fabric.remember((kind, algorithm, mesh, axes), lambda: _run(fabric, members(mesh, axes), kind, algorithm))


def send(architecture: Architecture, members_from: Indices, members_to: Indices) -> LinkUse:
    """Pairs at once, each sending V bytes from members_from[i] to members_to[i] ([n]); a pair of one accelerator is free.

    One transfer has one path, so both hop readings agree: T = V / bandwidth + latency of the slowest pair.
    """
    here, there = (np.asarray(side, dtype=np.int64).reshape(1, -1) for side in (members_from, members_to))
    if here.shape != there.shape:
        raise InputError(f"a send needs as many senders as receivers, not {here.size} and {there.size}")
    fabric = _fabric(architecture)
    key = ("send", *_digest(here), *_digest(there))
    return fabric.remember(key, lambda: _price_edges(fabric, here, there, load=1.0, steps=1, path=False))


def stream(architecture: Architecture, source_level: str, destinations: Indices | Sequence[Indices], kind: str = "broadcast") -> LinkUse:
    """V bytes of each shard from the memory at `source_level` to every accelerator that needs it, or reduced back into it.

    destinations: [p] one shard, [shards, p], or an array for each shard. The source is an ancestor of the accelerators (it feeds its
    network from above) or beside an ancestor (MemoryX beside the wafers, under SwarmX). A tier that multicasts (kind
    'broadcast') or reduces (kind 'reduce') carries a shard once over each edge; one that does not carries a copy for each
    destination, all through the source's links. Time: bytes on the busiest edge / bandwidth, plus depth · latency ONE WAY on a
    tree (a broadcast and the reduce after it make the published 2 · depth · t_hop), traversals · latency elsewhere; the start-up of
    inner tiers adds. A tree has the depth its children in use need.
    """
    if kind not in ("broadcast", "reduce"):
        raise InputError(f"no stream called '{kind}'", known=("broadcast", "reduce"), given=kind)
    one = isinstance(destinations, np.ndarray) and destinations.ndim == 1
    shards: Sequence[Any] = [destinations] if one else list(destinations)
    rows = [np.asarray(row, dtype=np.int64).reshape(-1) for row in shards]
    shard = np.repeat(np.arange(len(rows)), [row.size for row in rows])
    target = np.concatenate(rows) if rows else np.zeros(0, dtype=np.int64)
    fabric = _fabric(architecture)
    key = (kind, source_level, *_digest(shard), *_digest(target))
    return fabric.remember(key, lambda: _price_stream(fabric, source_level, shard, target, kind))


# -- algorithms ------------------------------------------------------------------------------------------------------------


def _ring(fabric: Fabric, groups: Indices, kind: str) -> LinkUse:
    """Ring collectives; a chain for broadcast and reduce (pipelined: V over every edge, p − 1 start-ups)."""
    p = groups.shape[1]
    if kind in ("broadcast", "reduce"):
        return _price_edges(fabric, groups[:, :-1], groups[:, 1:], load=1.0, steps=p - 1, path=True)
    steps = 2 * (p - 1) if kind == "all_reduce" else p - 1
    return _price_edges(fabric, groups, np.roll(groups, -1, axis=1), load=steps / p, steps=steps, path=True)


def _halo(fabric: Fabric, groups: Indices) -> LinkUse:
    """Every member sends V to the member before and after it, at once; no wrap-around."""
    source = np.concatenate([groups[:, :-1], groups[:, 1:]], axis=1)
    target = np.concatenate([groups[:, 1:], groups[:, :-1]], axis=1)
    return _price_edges(fabric, source, target, load=1.0, steps=1, path=False)


def _direct(fabric: Fabric, groups: Indices) -> LinkUse:
    """All-to-all, V / p from every member to every other, one partner after another.

    A tier's time is the bytes leaving its busiest child over the child's usable links (no more than it has members, unless striped),
    plus a start-up a partner; slowest_link takes the slowest tier, path_sum adds them.
    """
    p, tiers = groups.shape[1], fabric.tiers
    common_tier(tiers, groups.min(axis=1), groups.max(axis=1))
    wire, slope, partners, start = (np.zeros(len(tiers)) for _ in range(4))
    row = np.repeat(np.arange(groups.shape[0]), p)
    for index, tier in enumerate(tiers):
        child = groups.reshape(-1) // tier.below
        reach = int(child.max()) // tier.children + 1
        runs, count = np.unique(row * (reach * tier.children) + child, return_counts=True)
        inverse = np.unique(runs // tier.children, return_inverse=True)[1]  # (row, instance)
        others = np.bincount(inverse, weights=count)[inverse] - count
        if not others.any():
            continue
        where = runs % (reach * tier.children)
        traversals, farthest = _pair_hops(fabric, index, inverse, where, count, others)
        sent, senders = np.bincount(where, weights=count * others), np.bincount(where, weights=count * (others > 0))
        links = float(tier.network.links or tier.below)
        usable = np.full_like(senders, links) if tier.network.striped else np.minimum(links, senders)
        crowd = np.divide(sent, usable, out=np.zeros_like(sent), where=usable > 0).max()
        wire[index], partners[index] = traversals / p, others.max()
        slope[index] = crowd * tier.network.oversubscription / tier.network.bandwidth_bytes_per_s / p
        start[index] = tier.network.latency_s * farthest
    if _reading(fabric, wire) == "path_sum":
        return _use(fabric, wire, slope, partners * start)
    return _use(fabric, wire, *_on_slowest(slope, (p - 1) * start.max()))


def _pair_hops(fabric: Fabric, index: int, inside: Indices, child: Indices, count: Indices, others: Array) -> tuple[float, float]:
    """Traversals of one unit between every ordered pair of members that tier `index` joins, and the most of one pair.

    inside: [runs] number of the (group, instance) a run of `count` members of one child belongs to, ascending · others: members of
    the group elsewhere in the instance. The most is the sum of each coordinate's (an upper bound for groups that are no box).
    """
    tier = fabric.tiers[index]
    if tier.network.topology in ("switch", "point_to_point"):
        return float((count * others).sum()), 1.0
    total = farthest = 0.0
    place = child % tier.children + fabric.offsets[index]
    for coordinate, distance in hop_parts(tier.network, tier.children + fabric.offsets[index]):
        extent = distance.shape[0]
        chunk, together = max(1, 2_000_000 // extent), np.zeros(distance.shape)
        for first in range(0, int(inside[-1]) + 1, chunk):
            mine = slice(*np.searchsorted(inside, (first, first + chunk)))
            cell = (inside[mine] - first) * extent + coordinate[place[mine]]
            held = np.bincount(cell, weights=count[mine], minlength=(int(inside[mine][-1]) - first + 1) * extent).reshape(-1, extent)
            together += held.T @ held
        total += float((together * distance).sum())
        farthest += float(distance[together > 0].max())
    return total, farthest


Algorithm = Callable[[Fabric, Indices, str], LinkUse]
ALGORITHMS: dict[str, Algorithm] = {"ring": _ring}
KINDS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "broadcast", "reduce", "halo")


def _run(fabric: Fabric, groups: Indices, kind: str, algorithm: str) -> LinkUse:
    if kind not in KINDS:
        raise InputError(f"no collective called '{kind}'", known=KINDS, given=kind)
    if algorithm not in ALGORITHMS:
        raise InputError(f"no algorithm called '{algorithm}'", known=ALGORITHMS, given=algorithm)
    if groups.shape[1] <= 1 or groups.shape[0] == 0:
        return _use(fabric, *(np.zeros(len(fabric.tiers)) for _ in range(3)))
    if kind == "all_to_all":
        return _direct(fabric, groups)
    return _halo(fabric, groups) if kind == "halo" else ALGORITHMS[algorithm](fabric, groups, kind)


# -- pricing ---------------------------------------------------------------------------------------------------------------


def _price_edges(fabric: Fabric, source: Indices, target: Indices, *, load: float, steps: int, path: bool) -> LinkUse:
    """Edges [groups, edges] that each carry load · V bytes in `steps` steps. path: whether path_sum may apply."""
    joined, tiers = common_tier(fabric.tiers, source, target), fabric.tiers
    wire, slope, start = (np.zeros(len(tiers)) for _ in range(3))
    counts = np.zeros((source.shape[0], len(tiers)), dtype=np.int64)
    for index, tier in enumerate(tiers):
        here = joined == index
        if not here.any():
            continue
        a, b, network = source[here], target[here], tier.network
        hops = ring_hop_count(network, tier.children, fabric.positions(index, a), fabric.positions(index, b))
        flows = max(int(np.bincount(end // tier.below).max()) for end in (a, b))
        wire[index], slope[index] = load * float(hops.sum()), load * _seconds_per_byte(network, flows, network.links or tier.below)
        start[index] = network.latency_s * float(hops.max())
        counts[:, index] = here.sum(axis=1)
    if path and _reading(fabric, wire) == "path_sum":
        share = _distinct(counts) / source.shape[1]
        worst, late = np.argmax(share @ slope), np.argmax(share @ start)
        return _use(fabric, wire, share[worst] * slope, steps * share[late] * start)
    return _use(fabric, wire, *_on_slowest(slope, steps * float(start.max(initial=0.0))))


def _distinct(counts: Indices) -> Indices:
    """Distinct rows of [groups, tiers] counts in sorted order, so that the order of the groups does not matter."""
    key = np.zeros(counts.shape[0], dtype=np.int64)
    for column in counts.T:
        key = np.unique(key, return_inverse=True)[1] * (int(column.max()) + 1) + column
    return np.asarray(counts[np.unique(key, return_index=True)[1]])


def _price_stream(fabric: Fabric, source_level: str, shard: Indices, target: Indices, kind: str) -> LinkUse:
    top, position, sources = attached_tier(fabric.architecture, source_level)
    wire, slope, start = (np.zeros(len(fabric.tiers)) for _ in range(3))
    feeding = sources
    for index in range(top, -1, -1) if target.size else ():
        tier = fabric.tiers[index]
        network = tier.network
        combined = network.multicast if kind == "broadcast" else network.reduce
        up = feeding * (network.links or 1) if index == top else feeding
        unit, child = shard, target // tier.below
        if combined:
            keys = np.unique(shard * (child.max() + 1) + child)
            unit, child = keys // (child.max() + 1), keys % (child.max() + 1)
        else:
            unit = np.arange(target.size)  # a copy for each destination
        hops, busiest, depth = _fan(fabric, index, unit, child, position if index == top else -1, up)
        wire[index], slope[index], start[index] = hops, busiest, depth * network.latency_s
        feeding = network.links or tier.below
    if _reading(fabric, wire) == "path_sum":
        return _use(fabric, wire, slope, start)
    return _use(fabric, wire, *_on_slowest(slope, float(start.sum())))


def _fan(fabric: Fabric, index: int, unit: Indices, child: Indices, position: int, up: int) -> tuple[float, float, float]:
    """Units from (or to) the head of tier `index` to its children: traversals, seconds a byte on the busiest edge, start-ups.

    A unit is a shard, which an edge carries once, or a copy. up: links at the head; position: the head's place among the children, −1
    where it feeds the network from above (one traversal each).
    """
    tier = fabric.tiers[index]
    network, instance = tier.network, child // tier.children
    down = network.links or tier.below
    if network.topology == "tree":
        assert network.fanout is not None
        in_use = min(tier.children, -(-fabric.architecture.used // tier.below))
        depth = tree_depth(in_use, network.fanout)
        loads = tree_edge_loads(unit, instance * network.fanout**depth + child % tier.children, network.fanout, depth)
        links = [down, *[network.links or 1] * (depth - 1), up][: depth + 1]
        busiest = max(_seconds_per_byte(network, int(load.max()), link) for load, link in zip(loads, links, strict=True))
        return float(sum(load.sum() for load in loads)), busiest, float(depth)
    places = child % tier.children + fabric.offsets[index]
    hops = ring_hop_count(network, tier.children, position, places) if position >= 0 else np.ones_like(child)
    heads = np.unique(np.stack([unit, instance]), axis=1)[1]
    busiest = max(
        _seconds_per_byte(network, int(np.bincount(heads).max()), up), _seconds_per_byte(network, int(np.bincount(child).max()), down)
    )
    return float(hops.sum()), busiest, float(hops.max())


def _seconds_per_byte(network: Network, flows: int, links: int) -> float:
    """Seconds a byte of each of `flows` equal flows over `links` links: max(1, o · flows / links) / bandwidth, no max if striped."""
    crowd = flows * network.oversubscription / links
    return (crowd if network.striped else max(1.0, crowd)) / network.bandwidth_bytes_per_s


def _reading(fabric: Fabric, wire: Array) -> str:
    """The hop reading of the outermost tier in use."""
    used = np.flatnonzero(wire)
    return fabric.tiers[int(used[-1])].network.hops if used.size else "slowest_link"


def _on_slowest(slope: Array, latency: float) -> tuple[Array, Array]:
    """Everything on the slowest tier (the outer of two equal ones)."""
    seconds, start = np.zeros_like(slope), np.zeros_like(slope)
    if slope.size:
        slowest = slope.size - 1 - int(np.argmax(slope[::-1]))
        seconds[slowest], start[slowest] = slope[slowest], latency
    return seconds, start


def _use(fabric: Fabric, wire: Array, slope: Array, latency: Array) -> LinkUse:
    joules = [float(w) * tier.network.energy_j_per_byte for w, tier in zip(wire, fabric.tiers, strict=True)]
    levels = tuple(tier.level for tier in fabric.tiers)
    return LinkUse(levels, tuple(map(float, wire)), tuple(map(float, joules)), tuple(map(float, slope)), tuple(map(float, latency)))
