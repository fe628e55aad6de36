"""What flows at once cost on the networks above the accelerators, for every group or for one that stands for all.

    edge of an algorithm    charged at the tier of its ends' lowest common ancestor, times the traversals there
    energy                  Σ edges bytes · traversals · J/byte            (all groups together)
    slowest_link            T = load · V · max_tiers crowd / bandwidth + steps · max_tiers (latency · traversals)
    path_sum                T = Σ_l n_l · (load / steps · V · crowd / bandwidth + latency · traversals)_l, n_l = steps · edges_l / edges
    crowd                   max(o · flows / links, own), own = most flows of an accelerator; striped: most flows of a group / rails,
                            rails = members · max(1, links / below)

Groups run at once: the flows that leave (or enter) the busiest child of a tier share its links, and an oversubscribed switch leaves
1/o of them; on a mesh network of two dimensions those on its busiest link (network/mesh_links) share it, whoever's they are, and so do all
flows on a torus or a mesh of three, and the messages of an all-to-all on a ring (network/relays). Striped, a
group has as many links as it has members in the child, no more than are free (NCCL: a ring for each NIC of the accelerators in the
group). Bandwidth is that which long messages reach, `sustained` · the link's.

Groups that stand for others (cost/network/likeness) are measured once: `weight` counts them, `copies` multiply their flows.
Sources: rack-scale paper (both readings), docs/layouts.md, section 8 (link share).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from itertools import groupby
from math import prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.network.mesh_links import Grid, exchange_busiest, transfers_busiest
from rackmodel.cost.network.relays import Ways, exchange_sharing, transfers_sharing
from rackmodel.cost.network.topologies import hop_count, hop_parts, ring_hop_count, topology_of
from rackmodel.cost.network.topology import common_tier, tier_offsets
from rackmodel.model.architecture import Architecture, Tier

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Costs = tuple[Array, Array, Array]  # [tiers, n] wire bytes a byte, seconds a byte, start-up seconds
Found = TypeVar("Found")


@dataclass(frozen=True)
class Fabric:
    """The networks of an architecture as collectives see them. known: what was priced on them before · measured: what was measured on
    them, or on others that carry as many bytes over as many hops (`_carrying`)."""

    tiers: tuple[Tier, ...]
    offsets: tuple[int, ...]
    known: dict[Any, Any] = field(default_factory=dict)
    measured: dict[Any, Any] = field(default_factory=dict)

    def positions(self, index: int, accelerator: Indices) -> Indices:
        """Child position in tier `index` of the child that holds each accelerator."""
        tier = self.tiers[index]
        return np.asarray(accelerator // tier.below % tier.children + self.offsets[index])

    def grid(self, index: int) -> Grid | None:
        """The grid whose links are counted, where tier `index` is one."""
        return topology_of(self.tiers[index].network).grid(self.tiers[index].network)

    def ways(self, index: int) -> Ways | None:
        """The lines along which children of tier `index` relay what others exchange."""
        network, children = self.tiers[index].network, self.tiers[index].children + self.offsets[index]
        return topology_of(network).ways(network, children)

    @cached_property
    def ports(self) -> tuple[tuple[int, int], ...]:
        """Of each tier the innermost and the outermost that the same links join: of switches, as long as an accelerator has as many links
        as fast in the next (a NIC for all tiers of a fat tree, NVLink for a node and its rack)."""
        runs = [[tier for tier, _ in run] for _, run in groupby(enumerate(self.tiers), lambda one: _links(one[1]) or one[0])]
        return tuple((run[0], run[-1]) for run in runs for _ in run)

    @property
    def uniform(self) -> bool:
        """Whether any two children of any network are one hop apart, so that only who shares a child matters, not where it is."""
        return all(topology_of(tier.network).uniform for tier in self.tiers)

    def remember(self, key: Any, make: Callable[[], Found]) -> Found:
        """What is under `key`, made once."""
        return _once(self.known, key, make)

    def measure_once(self, key: Any, make: Callable[[], Found]) -> Found:
        """The same of what depends on neither bandwidth, energy nor the start of a call."""
        return _once(self.measured, key, make)


def _links(tier: Tier) -> tuple[float, float] | None:
    """(bytes a second of a link, links of an accelerator) into a switch."""
    network = tier.network
    return (network.bandwidth_bytes_per_s, (network.links or tier.below) / tier.below) if topology_of(network).uniform else None


def _once(known: dict[Any, Any], key: Any, make: Callable[[], Found]) -> Found:
    found: Found | None = known.get(key)
    if found is None:
        if len(known) >= 1 << 17:
            known.clear()
        found = known[key] = make()
    return found


MOST_FABRICS = 64
_FABRICS: dict[str, Fabric] = {}  # by what the networks say
_MEASURED: dict[str, dict[Any, Any]] = {}  # by what decides what flows where, and how far
_OF: dict[int, tuple[Architecture, Fabric]] = {}  # by id of the architecture, which is kept alive


def _carrying(tiers: tuple[Tier, ...], offsets: tuple[int, ...]) -> str:
    """All that networks say but bandwidths, energies and starts of calls; of the first two which are equal, for algorithms look at that."""
    said: list[object] = [offsets]
    for name in ("bandwidth_bytes_per_s", "energy_j_per_byte"):
        figures = [getattr(tier.network, name) for tier in tiers]
        said.append([figures.index(figure) for figure in figures])
    nothing = {"bandwidth_bytes_per_s": 1.0, "energy_j_per_byte": 0.0, "start_s": 0.0}
    for tier in tiers:
        said.append((tier.level, tier.below, tier.children, tier.network.model_copy(update=nothing)))
    return repr(said)


def fabric_of(architecture: Architecture) -> Fabric:
    """The architecture's fabric: architectures whose networks say the same have one."""
    known = _OF.get(id(architecture))
    if known is None:
        if len(_OF) >= MOST_FABRICS:
            _OF.clear()
            _FABRICS.clear()
            _MEASURED.clear()
        tiers, offsets = architecture.tiers, tier_offsets(architecture)
        said = repr((tiers, offsets))
        if said not in _FABRICS:
            _FABRICS[said] = Fabric(tiers, offsets, measured=_MEASURED.setdefault(_carrying(tiers, offsets), {}))
        fabric = _FABRICS[said]
        known = _OF[id(architecture)] = architecture, fabric
    return known[1]


# -- phases: what flows at once --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Flows:
    """source, target: [groups, edges], each edge carrying load · V in `steps` steps · path: whether path_sum may apply · start_s:
    start-ups of all steps, instead of steps times the slowest hop's · alone: every edge is a group of its own (a send) · moves: what tells
    source and target apart from those of other phases of the same groups; None = nothing short · parts: [edges] of the load that each
    carries, 1 the most (told apart by `moves`); None = all of it."""

    source: Indices
    target: Indices
    load: float
    steps: int
    path: bool = False
    start_s: float | None = None
    alone: bool = False
    moves: Hashable = None
    parts: Array | None = None


@dataclass(frozen=True)
class Passes:
    """Members' links into switches that add and copy: (tier, [groups, n] who sends load · V, traversals of each) of every tier at once.
    A pass of one link is half a traversal."""

    tiers: tuple[tuple[int, Indices, float], ...]
    load: float
    start_s: float


@dataclass(frozen=True)
class Exchange:
    """All-to-all: V / p from every member of a row to every other."""

    rows: Indices


@dataclass(frozen=True)
class Lines:
    """Reduce-scatter or all-gather of load · V along lines of the mesh of one tier: a block of 1/p goes between its member and both ends.
    rows: [lines, p] in order along the line. Traversals p − 1 gaps a block; V (p − 1)/p on the end links; words follow one another, so
    that the start-up is the longest line's hops."""

    tier: int
    rows: Indices
    load: float


Phase = Flows | Passes | Exchange | Lines


# -- figures: phases measured on the tree, for any number of copies ---------------------------------------------------------


@dataclass(frozen=True)
class PhaseTraffic:
    """One phase of the measured groups. hops, flows: [tiers] traversals, flows of all groups at the busiest child (those through an
    oversubscribed switch as often as it is) · own: [tiers] most flows to a link of those that a group or accelerator may use · starts:
    [tiers] of one step · shares: [k, tiers] part of a group's edges at each tier, where path_sum applies."""

    load: float
    hops: Array
    flows: Array
    own: Array
    efficiency: Array
    steps: int
    starts: Array
    start_s: float
    shares: Array | None


def priced_together(fabric: Fabric, phases: Sequence[PhaseTraffic], which: Indices, copies: Array, count: Array) -> Costs:
    """[slots, tiers, n] costs of the phase in each slot of each column. which: [slots, n] its number, their count = none · of count [n]
    such groups, copies [tiers, n] of them in each child."""
    tiers = range(len(fabric.tiers))
    hops, flows, own, efficiency = (
        np.array([getattr(one, name) for one in phases] + [[none] * len(tiers)])[which].transpose(0, 2, 1)
        for name, none in (("hops", 0.0), ("flows", 0.0), ("own", 1.0), ("efficiency", 1.0))
    )
    load, start_s = (np.array([getattr(one, name) for one in phases] + [0.0])[which] for name in ("load", "start_s"))
    slope = np.zeros(hops.shape)
    for index in tiers:
        if not flows[:, index].any():
            continue
        network, links = fabric.tiers[index].network, fabric.tiers[index].network.links or fabric.tiers[index].below
        crowd = np.maximum(flows[:, index] * copies[index] / links, own[:, index])
        pace = network.bandwidth_bytes_per_s * network.sustained * efficiency[:, index]
        slope[:, index] = np.where(flows[:, index] > 0, load * crowd / pace, 0.0)
    seconds, start = on_slowest(slope, start_s)
    for number, phase in enumerate(phases):
        if phase.shares is not None:
            for slot, there in enumerate(which == number):
                seconds[slot][:, there], start[slot][:, there] = _by_path(phase, phase.shares, slope[slot][:, there])
    return load[:, None] * (hops * count), seconds, start


def _by_path(phase: PhaseTraffic, shares: Array, slope: Array) -> tuple[Array, Array]:
    """[tiers, n] seconds a byte and start-ups of the slowest path."""
    worst, late = np.argmax(shares @ slope, axis=0), int(np.argmax(shares @ phase.starts))
    start = phase.steps * shares[late] * phase.starts
    return shares[worst].T * slope, np.repeat(start[:, None], slope.shape[1], axis=1)


@dataclass(frozen=True)
class ExchangeFigures:
    """A direct all-to-all. leaving: for each tier, [3, n] of distinct children the bytes to others of the network, to these and beyond by
    the same links (`Fabric.ports`), and its members that send · hops: [tiers] ·
    partners: most others of one member at the tier · starts: [tiers] of one partner · steps: [tiers] starts one after another, where the
    slowest link decides. What relays has its busiest link in the child's place, and a mesh of two dimensions one start. Bytes are in
    units of V / p."""

    p: int
    hops: Array
    leaving: tuple[Indices, ...]
    partners: Array
    starts: Array
    steps: Array

    def price(self, fabric: Fabric, copies: Array, count: Array) -> Costs:
        """[tiers, n] costs of count [n] such groups, copies [tiers, n] of them in each child."""
        slope, by_path = np.zeros(copies.shape), reading(fabric, self.hops) == "path_sum"
        for index in np.flatnonzero(self.hops):
            tier, network = fabric.tiers[index], fabric.tiers[index].network
            links = float(network.links or tier.below)
            inside, out, senders = self.leaving[index][:, :, None] * copies[index]
            usable = np.minimum(links, senders * (max(1.0, links / tier.below) if network.striped else 1.0))
            inside = inside * network.oversubscription
            busy = inside if by_path else np.maximum(inside, out)
            crowd = np.divide(busy, usable, out=np.zeros_like(usable), where=usable > 0).max(axis=0)
            slope[index] = crowd / (network.bandwidth_bytes_per_s * network.sustained) / self.p
        wire = self.hops[:, None] * count / self.p
        if by_path:
            return wire, slope, np.repeat((self.partners * self.starts)[:, None], copies.shape[1], axis=1)
        seconds, start = on_slowest(slope[None], np.array([[(self.steps * self.starts).max()]]))
        return wire, seconds[0], start[0]


def measure(
    fabric: Fabric, rows: Indices, weight: Indices, extents: tuple[int, ...] | None, phase: Phase, of: Hashable
) -> PhaseTraffic | ExchangeFigures:
    """A phase of the groups `rows` ([groups, p]), weight[g] of each; extents: children a tier of each, where all are regular · of: what
    tells these groups apart from others."""
    if isinstance(phase, Exchange):
        return _exchange(fabric, phase.rows, np.repeat(weight, len(phase.rows) // len(weight)))
    if isinstance(phase, Lines):
        return _lines(fabric, phase)
    return _passes(fabric, weight, phase) if isinstance(phase, Passes) else _flows(fabric, rows, weight, extents, phase, of)


def _flows(fabric: Fabric, rows: Indices, weight: Indices, extents: tuple[int, ...] | None, phase: Flows, of: Hashable) -> PhaseTraffic:
    moves = phase.moves if phase.moves is not None else (phase.alone, _digest(phase.source), _digest(phase.target))
    hops, flows, own, starts, counts = fabric.remember(("flows", of, moves), lambda: _moved(fabric, rows, weight, extents, phase))
    shares = _distinct(counts) / phase.source.shape[1] if phase.path and reading(fabric, hops) == "path_sum" else None
    start = phase.steps * float(starts.max(initial=0.0)) if phase.start_s is None else phase.start_s
    return PhaseTraffic(phase.load, hops, flows, own, np.ones(len(fabric.tiers)), phase.steps, starts, start, shares)


def _digest(part: Indices) -> bytes:
    """Short for an array: collectives of several kinds move the same flows, other loads in other numbers of steps."""
    return blake2b(repr(part.shape).encode() + part.tobytes(), digest_size=16).digest()


def _moved(
    fabric: Fabric, rows: Indices, weight: Indices, extents: tuple[int, ...] | None, phase: Flows
) -> tuple[Array, Array, Array, Array, Indices]:
    """Of a phase, whatever its load: [tiers] hops, flows and own as `PhaseTraffic` has them, start-up, [groups, tiers] transfers."""
    joined, tiers = common_tier(fabric.tiers, phase.source, phase.target), fabric.tiers
    hops, flows, starts, own = *(np.zeros(len(tiers)) for _ in range(3)), np.ones(len(tiers))
    counts = np.zeros((phase.source.shape[0], len(tiers)), dtype=np.int64)
    parts = np.broadcast_to(1.0 if phase.parts is None else phase.parts, phase.source.shape)
    for index, tier in enumerate(tiers):
        here = joined == index
        if not here.any():
            continue
        a, b, network = phase.source[here], phase.target[here], tier.network
        uniform, held, wide = topology_of(network).uniform, 1, max(1.0, (network.links or tier.below) / tier.below)
        counts[:, index] = here.sum(axis=1)
        if uniform:
            hops[index], starts[index] = (parts * here).sum(axis=1) @ weight, network.latency_s
        else:
            far = ring_hop_count(network, tier.children, fabric.positions(index, a), fabric.positions(index, b))
            hops[index] = (far * parts[here]) @ np.repeat(weight, counts[:, index])
            starts[index] = network.latency_s * float(far.max())
        flows[index] = _most_flows(fabric, index, a, b, parts[here]) * network.oversubscription
        first, last = fabric.ports[index]
        beyond, through = (here if first == last else (joined >= inner) & (joined <= last) for inner in (index, first))
        flows[index] = max(flows[index], _most(phase, beyond, tier.below) if last > index else 0.0)
        if network.striped:
            held = 1 if phase.alone else prod(extents[:index]) if extents else _fewest(rows // tier.below, here, phase, tier.below)
            own[index] = (_most(phase, beyond, tier.below, apart=True) if uniform else 1.0) / (held * wide)
        elif uniform:
            own[index] = max(1.0, _most(phase, through, 1) / wide)
    return hops, flows, own, starts, counts


def _most(phase: Flows, here: NDArray[np.bool_], below: int, *, apart: bool = False) -> float:
    """Most of the flows `here` that leave or enter a child of `below` accelerators; apart: of one group."""
    if apart and phase.alone:
        return 1.0
    children = [end[here] // below for end in (phase.source, phase.target)]
    if apart and len(here) > 1:
        group = np.repeat(np.arange(len(here)), here.sum(axis=1))
        children = [group * (int(child.max()) + 1) + child for child in children]
    return float(max(_runs(child)[1].max() for child in children))


def _most_flows(fabric: Fabric, index: int, a: Indices, b: Indices, parts: Array) -> float:
    """Flows at the busiest child of a tier, or where children relay on the busiest links. parts: [edges] of a flow that each is."""
    tier, grid = fabric.tiers[index], fabric.grid(index)
    ways = fabric.ways(index) if topology_of(tier.network).flows_relay else None
    if grid is None and ways is None:
        return float(max(np.bincount(end // tier.below, parts).max() for end in (a, b)))
    instance, ends = a // (tier.below * tier.children), (fabric.positions(index, a), fabric.positions(index, b))
    if ways is not None:
        return transfers_sharing(ways, tier.network.links or tier.below, instance, *ends, parts)
    assert grid is not None
    return transfers_busiest(grid, instance, *ends, parts)


def _lines(fabric: Fabric, phase: Lines) -> PhaseTraffic:
    tier, p = fabric.tiers[phase.tier], phase.rows.shape[1]
    grid = fabric.grid(phase.tier)
    assert grid is not None
    hops, flows = np.zeros(len(fabric.tiers)), np.zeros(len(fabric.tiers))
    place, instance = fabric.positions(phase.tier, phase.rows), phase.rows // (tier.below * tier.children)
    near, far = place[:, :-1].reshape(-1), place[:, 1:].reshape(-1)
    apart = hop_count(tier.network, tier.children, place[:, :-1], place[:, 1:])
    ahead = np.broadcast_to(np.arange(p - 1, 0, -1), apart.shape).reshape(-1)  # blocks that land beyond each gap; the others come back
    both = np.concatenate([near, far]), np.concatenate([far, near])
    most = transfers_busiest(grid, np.tile(instance[:, :-1].reshape(-1), 2), *both, np.concatenate([ahead, p - ahead]))
    hops[phase.tier], flows[phase.tier] = apart.sum() * p / (p - 1), most / (p - 1) * tier.network.oversubscription
    start = tier.network.latency_s * float(apart.sum(axis=1).max())
    return PhaseTraffic(phase.load * (p - 1) / p, hops, flows, np.ones_like(hops), np.ones_like(hops), 1, np.zeros_like(hops), start, None)


def _fewest(child: Indices, here: NDArray[np.bool_], phase: Flows, below: int) -> int:
    """Fewest members of its own group beside an end of an edge that is `here`. child: [groups, p] of every member."""
    row, reach = np.arange(len(child))[:, None], int(child.max()) + 1
    runs, count = _runs((row * reach + child).reshape(-1))
    ends = [np.searchsorted(runs, (row * reach + end // below)[here]) for end in (phase.source, phase.target)]
    return int(min(count[end].min() for end in ends))


def _passes(fabric: Fabric, weight: Indices, phase: Passes) -> PhaseTraffic:
    hops, flows, efficiency, own = (kind(len(fabric.tiers)) for kind in (np.zeros, np.zeros, np.ones, np.ones))
    for index, sources, traversals in phase.tiers:
        tier = fabric.tiers[index]
        child = sources // tier.below
        hops[index] = sources.shape[1] * int(weight.sum()) * traversals
        flows[index] = int(np.bincount(child.reshape(-1)).max()) * tier.network.oversubscription
        efficiency[index] = tier.network.in_network_efficiency
        own[index] = 1 / max(1.0, (tier.network.links or tier.below) / tier.below) if tier.network.striped else 1.0
    return PhaseTraffic(phase.load, hops, flows, own, efficiency, 1, np.zeros_like(hops), phase.start_s, None)


def _exchange(fabric: Fabric, rows: Indices, weight: Indices) -> ExchangeFigures:
    p, tiers = rows.shape[1], fabric.tiers
    common_tier(tiers, rows.min(axis=1), rows.max(axis=1))
    hops, partners, starts = (np.zeros(len(tiers)) for _ in range(3))
    steps = np.full(len(tiers), p - 1.0)
    leaving = [np.zeros((3, 1), dtype=np.int64)] * len(tiers)
    row = np.repeat(np.arange(rows.shape[0]), p)
    for index, tier in enumerate(tiers):
        child = rows.reshape(-1) // tier.below
        reach = int(child.max()) // tier.children + 1
        runs, count = _runs(row * (reach * tier.children) + child)
        inside, total = _runs(runs // tier.children, count)  # (row, instance)
        inverse = np.searchsorted(inside, runs // tier.children)
        others = total[inverse] - count
        if not others.any():
            continue
        where = runs % (reach * tier.children)
        hops[index], farthest = _pair_hops(fabric, index, inverse, where, count, others, weight[runs // (reach * tier.children)])
        out = _beside(rows, tiers[fabric.ports[index][1]], *np.divmod(runs, reach * tier.children), tier.below) - count
        sums = (np.bincount(where, weights=weight).astype(np.int64) for weight in (count * others, count * out, count * (out > 0)))
        leaving[index] = np.unique(np.stack(list(sums)), axis=1)
        partners[index], starts[index] = others.max(), tier.network.latency_s * farthest
        grid, ways, links = fabric.grid(index), fabric.ways(index), tier.network.links or tier.below
        if grid is None and ways is None:
            continue
        met = inverse, where // tier.children, where % tier.children + fabric.offsets[index], count
        if grid is not None:
            most, partners[index], steps[index] = exchange_busiest(grid, *met), 1, 1
        elif ways is not None:
            most = exchange_sharing(ways, links, *met)
        leaving[index] = np.array([[round(most)], [round(most)], [links]])
    return ExchangeFigures(p, hops, tuple(leaving), partners, starts, steps)


def _beside(rows: Indices, outer: Tier, row: Indices, child: Indices, below: int) -> Indices:
    """Members of a group in the instance of tier `outer` that holds a child. rows: [groups, p] · row: the group · child: of `below`
    accelerators, numbered through all instances."""
    size = outer.below * outer.children
    reach = int(rows.max()) // size + 1
    runs, count = _runs((np.arange(len(rows))[:, None] * reach + rows // size).reshape(-1))
    return np.asarray(count[np.searchsorted(runs, row * reach + child * below // size)])


def _runs(keys: Indices, weight: Indices | None = None) -> tuple[Indices, Indices]:
    """(distinct keys, ascending; how often each comes, or its weight). A stable sort costs next to nothing on keys that ascend."""
    if weight is None and keys.max() < 4 * len(keys):
        counts = np.bincount(keys)
        return np.flatnonzero(counts), counts[counts > 0]
    order = np.argsort(keys, kind="stable") if np.any(keys[1:] < keys[:-1]) else slice(None)
    keys = keys[order]
    first = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    counts = np.diff(first, append=len(keys)) if weight is None else np.add.reduceat(weight[order], first)
    return keys[first], counts


def _pair_hops(
    fabric: Fabric, index: int, inside: Indices, child: Indices, count: Indices, others: Indices, weight: Indices
) -> tuple[float, float]:
    """Traversals of one unit between every ordered pair of members that tier `index` joins, and the most of one pair.

    inside: [runs] number of the (group, instance) a run of `count` members of one child belongs to, ascending · others: members of
    the group elsewhere in the instance · weight: [runs] of the group. The most is the sum of each coordinate's (an upper bound for groups
    that are no box).
    """
    tier = fabric.tiers[index]
    if topology_of(tier.network).uniform:
        return float((count * others * weight).sum()), 1.0
    total = farthest = 0.0
    place = child % tier.children + fabric.offsets[index]
    for coordinate, distance in hop_parts(tier.network, tier.children + fabric.offsets[index]):
        extent = distance.shape[0]
        chunk, together = max(1, 2_000_000 // extent), np.zeros(distance.shape)
        for first in range(0, int(inside[-1]) + 1, chunk):
            mine = slice(*np.searchsorted(inside, (first, first + chunk)))
            cell = (inside[mine] - first) * extent + coordinate[place[mine]]
            cells = (int(inside[mine][-1]) - first + 1) * extent
            held, all_held = (np.bincount(cell, each, cells).reshape(-1, extent) for each in (count[mine], (count * weight)[mine]))
            together += all_held.T @ held
        total += float((together * distance).sum())
        farthest += float(distance[together > 0].max())
    return total, farthest


def reading(fabric: Fabric, hops: Array) -> str:
    """The hop reading of the outermost tier in use (where tiers disagree the outermost wins)."""
    return fabric.tiers[int(np.flatnonzero(hops)[-1])].network.hops if hops.any() else "slowest_link"


def on_slowest(slope: Array, start_s: Array) -> tuple[Array, Array]:
    """Everything on the slowest tier of each column (the outer of two equal ones). slope: [slots, tiers, n] · start_s: [slots, n],
    or one for all."""
    tiers = slope.shape[1]
    if not tiers:
        return slope, slope
    slowest = tiers - 1 - np.argmax(slope[:, ::-1], axis=1)
    here = np.arange(tiers)[:, None] == slowest[:, None]
    return np.where(here, slope, 0.0), np.where(here, start_s[:, None], 0.0)


def _distinct(counts: Indices) -> Indices:
    """Distinct rows of [groups, tiers] counts in sorted order, so that the order of the groups does not matter."""
    key = np.zeros(counts.shape[0], dtype=np.int64)
    for column in counts.T:
        key = np.unique(key, return_inverse=True)[1] * (int(column.max()) + 1) + column
    return np.asarray(counts[np.unique(key, return_index=True)[1]])
