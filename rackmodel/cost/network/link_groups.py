"""What flows at once cost on the networks above the accelerators, for every group or for one that stands for all.

    edge of an algorithm    charged at the tier of its ends' lowest common ancestor, times the traversals there
    energy                  Σ edges bytes · traversals · J/byte            (all groups together)
    slowest_link            T = load · V · max_tiers crowd / bandwidth + steps · max_tiers (latency · traversals)
    path_sum                T = Σ_l n_l · (load / steps · V · crowd / bandwidth + latency · traversals)_l, n_l = steps · edges_l / edges
    crowd                   max(o · flows / links, own), own = most flows of an accelerator; striped: most flows of a group / rails,
                            rails = members · max(1, links / below)

Groups run at once: the flows that leave (or enter) the busiest child of a tier share its links, and an oversubscribed switch leaves
1/o of them; where pairs of children have links of their own, those between two share theirs alone, and `own` is of a pair too; on a
mesh network of two dimensions those on its busiest link (network/mesh_links) share it, whoever's they are, and so do all flows on a
torus or a mesh of three, and the messages of an all-to-all on a ring (network/relays). Striped, a group has as many links as it has
members in the child, no more than are free (NCCL: a ring for each NIC of the accelerators in the group). Bandwidth is that which long
messages reach, `sustained` · the link's.

Groups that stand for others (cost/network/likeness) are measured once: `weight` counts them, `copies` multiply their flows. On switches
phases are measured together (`placed`).
Sources: rack-scale paper (both readings), docs/layouts.md, section 8 (link share).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from math import prod

import numpy as np

from rackmodel.arrays import Array, Bools, Ints
from rackmodel.cost.network.all_to_alls import ExchangeFigures, exchange_figures
from rackmodel.cost.network.fabric import Costs, Fabric, most_of, on_slowest, reading, runs_of
from rackmodel.cost.network.mesh_links import transfers_busiest
from rackmodel.cost.network.placed import Groups, Moved, Placed, crossed, moved_together
from rackmodel.cost.network.relays import transfers_sharing
from rackmodel.cost.network.topologies import hop_count, ring_hop_count, topology_of
from rackmodel.cost.network.topology import common_tier

# -- phases: what flows at once --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Flows:
    """source, target: [groups, edges], each edge carrying load · V in `steps` steps; the rest as of Placed · moves: None = nothing short
    tells the ends apart · parts: [edges] of the load that each carries (told apart by `moves`); None = all of it."""

    source: Ints
    target: Ints
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

    tiers: tuple[tuple[int, Ints, float], ...]
    load: float
    start_s: float


@dataclass(frozen=True)
class Exchange:
    """All-to-all: V / p from every member of a row to every other, or to one of them alone."""

    rows: Ints
    to_one: bool = False


@dataclass(frozen=True)
class Lines:
    """Reduce-scatter or all-gather of load · V along lines of the mesh of one tier: a block of 1/p goes between its member and both ends.
    rows: [lines, p] in order along the line. Traversals p − 1 gaps a block; V (p − 1)/p on the end links; words follow one another, so
    that the start-up is the longest line's hops."""

    tier: int
    rows: Ints
    load: float


Phase = Flows | Placed | Passes | Exchange | Lines


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


def priced_together(fabric: Fabric, phases: Sequence[PhaseTraffic], which: Ints, copies: Array, count: Array) -> Costs:
    """[slots, tiers, n] costs of the phase in each slot of each column. which: [slots, n] its number, their count = none · of count [n]
    such groups, copies [tiers, n] of them in each child."""
    tiers = range(len(fabric.tiers))
    hops, flows, own, efficiency = (
        np.concatenate([*(getattr(one, name) for one in phases), [none] * len(tiers)]).reshape(-1, len(tiers))[which].transpose(0, 2, 1)
        for name, none in (("hops", 0.0), ("flows", 0.0), ("own", 1.0), ("efficiency", 1.0))
    )
    load, start_s = (np.array([getattr(one, name) for one in phases] + [0.0])[which] for name in ("load", "start_s"))
    slope = np.zeros(hops.shape)
    for index in tiers:
        if not flows[:, index].any():
            continue
        network, links = fabric.tiers[index].network, fabric.tiers[index].links
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


def measure(fabric: Fabric, asked: Sequence[tuple[Groups, Phase]]) -> list[PhaseTraffic | ExchangeFigures]:
    """Phases of groups, each measured."""
    moved = _moved_once(fabric, [(groups, phase) for groups, phase in asked if isinstance(phase, Flows | Placed)])
    return [
        _exchanged(fabric, groups, phase)
        if isinstance(phase, Exchange)
        else _lines(fabric, phase)
        if isinstance(phase, Lines)
        else _passes(fabric, groups.weight, phase)
        if isinstance(phase, Passes)
        else _flows(fabric, phase, next(moved))
        for groups, phase in asked
    ]


def _exchanged(fabric: Fabric, groups: Groups, phase: Exchange) -> ExchangeFigures:
    weight = np.repeat(groups.weight, len(phase.rows) // len(groups.weight))
    return exchange_figures(fabric, phase.rows, weight, to_one=phase.to_one)


def _flows(fabric: Fabric, phase: Flows | Placed, moved: Moved) -> PhaseTraffic:
    hops, flows, own, starts, counts = moved
    shares = _shares(counts) if phase.path and reading(fabric, hops) == "path_sum" else None
    start = phase.steps * float(starts.max(initial=0.0)) if phase.start_s is None else phase.start_s
    return PhaseTraffic(phase.load, hops, flows, own, np.ones(len(fabric.tiers)), phase.steps, starts, start, shares)


def _moved_once(fabric: Fabric, asked: Sequence[tuple[Groups, Flows | Placed]]) -> Iterator[Moved]:
    """What moves in each phase, of whatever load: collectives of several kinds move the same flows. What was not asked before is measured,
    on switches all phases together."""
    keys: list[Hashable] = [("flows", groups.of, _moves(phase)) for groups, phase in asked]
    found = {key: fabric.measured[key] for key in keys if key in fabric.measured}
    new = {key: one for key, one in zip(keys, asked, strict=True) if key not in found}
    together = dict[Hashable, tuple[Groups, Placed]]()
    for key, (groups, phase) in new.items():
        if isinstance(phase, Flows) or not fabric.switched:
            found[key] = _moved(fabric, groups, phase if isinstance(phase, Flows) else phased(groups.rows, phase))
        elif phase.crossings is not None and groups.extents is not None and len(groups.rows) == 1:
            found[key] = crossed(fabric, groups.extents, int(groups.weight[0]), phase.crossings)
        else:
            together[key] = groups, phase
    found.update(zip(together, moved_together(fabric, list(together.values())), strict=True))
    for key in new:
        fabric.measure_once(key, partial(found.get, key))
    return iter([found[key] for key in keys])


def _moves(phase: Flows | Placed) -> Hashable:
    if isinstance(phase, Placed) or phase.moves is not None:
        return phase.moves
    return phase.alone, _digest(phase.source), _digest(phase.target)


def phased(rows: Ints, phase: Placed) -> Flows:
    """The same, flow by flow, of some groups [groups, p]."""
    source, target = rows[:, phase.here], rows[:, phase.there]
    if phase.both:
        source, target = np.concatenate([source, target], axis=1), np.concatenate([target, source], axis=1)
    return Flows(source, target, phase.load, phase.steps, phase.path, phase.start_s, phase.alone, phase.moves)


def _digest(part: Ints) -> bytes:
    """Short for an array."""
    return blake2b(repr(part.shape).encode() + part.tobytes(), digest_size=16).digest()


def _moved(fabric: Fabric, groups: Groups, phase: Flows) -> Moved:
    joined, tiers = common_tier(fabric.tiers, phase.source, phase.target), fabric.tiers
    hops, flows, starts, own = *(np.zeros(len(tiers)) for _ in range(3)), np.ones(len(tiers))
    counts = np.zeros((phase.source.shape[0], len(tiers)), dtype=np.int64)
    parts = np.broadcast_to(1.0 if phase.parts is None else phase.parts, phase.source.shape)
    for index, tier in enumerate(tiers):
        here = joined == index
        if not here.any():
            continue
        a, b, network = phase.source[here], phase.target[here], tier.network
        uniform, held, wide = topology_of(network).uniform, 1, max(1.0, tier.links / tier.below)
        over = (parts * here).sum(axis=1)
        counts[:, index] = np.rint(over)
        if uniform:
            hops[index], starts[index] = over @ groups.weight, network.latency_s
        else:
            far = ring_hop_count(network, tier.children, fabric.positions(index, a), fabric.positions(index, b))
            hops[index] = (far * parts[here]) @ np.repeat(groups.weight, here.sum(axis=1))
            starts[index] = network.latency_s * float(far.max())
        flows[index] = _most_flows(fabric, index, a, b, parts[here]) * network.oversubscription
        last = fabric.ports[index][1]
        beyond = (joined >= index) & (joined <= last)
        flows[index] = max(flows[index], _most(fabric, index, phase, beyond, tier.below) if last > index else 0.0)
        if network.striped:
            held = 1 if phase.alone else prod(groups.extents[:index]) if groups.extents else _fewest(fabric, index, groups, here, phase)
            own[index] = (_most(fabric, index, phase, beyond, tier.below, apart=True) if uniform else 1.0) / (held * wide)
        elif uniform:
            own[index] = max(1.0, _most(fabric, index, phase, beyond, 1) / wide)
        own[index] *= parts[here].max()
    return hops, flows, own, starts, counts


def _most(fabric: Fabric, index: int, phase: Flows, here: Bools, unit: int, *, apart: bool = False) -> float:
    """Most of the flows `here` over the same links of `unit` accelerators in tier `index`; apart: of one group."""
    if apart and phase.alone:
        return 1.0
    places = _places(fabric, index, phase.source[here], phase.target[here], unit)
    if apart and len(here) > 1:
        group = np.repeat(np.arange(len(here)), here.sum(axis=1))
        places = [group * (int(place.max()) + 1) + place for place in places]
    return float(max(most_of(place) for place in places))


def _places(fabric: Fabric, index: int, source: Ints, target: Ints, unit: int) -> list[Ints]:
    """Of both ends of flows the place whose links they take: the `unit` accelerators there, and where pairs of children have links of their
    own the child at the other end too."""
    tier = fabric.tiers[index]
    if not topology_of(tier.network).pairs:
        return [source // unit, target // unit]
    ends = (source, target), (target, source)
    return [here // unit * tier.children + there // tier.below % tier.children for here, there in ends]


def _most_flows(fabric: Fabric, index: int, a: Ints, b: Ints, parts: Array) -> float:
    """Flows at the busiest child of a tier, or pair of children, or where they relay on the busiest links. parts: [edges] of a flow that
    each is."""
    tier, grid = fabric.tiers[index], fabric.grid(index)
    ways = fabric.ways(index) if topology_of(tier.network).flows_relay else None
    if grid is None and ways is None:
        return float(max(np.bincount(place, parts).max() for place in _places(fabric, index, a, b, tier.below)))
    instance, ends = a // (tier.below * tier.children), (fabric.positions(index, a), fabric.positions(index, b))
    if ways is not None:
        return transfers_sharing(ways, tier.links, instance, *ends, parts)
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


def _fewest(fabric: Fabric, index: int, groups: Groups, here: Bools, phase: Flows) -> int:
    """Fewest members of its own group beside an end of an edge that is `here`, in a child of tier `index`."""
    below = fabric.tiers[index].below
    reach, runs, count = fabric.measure_once(("members", groups.of, index), lambda: _members(groups.rows // below))
    row = np.arange(len(groups.rows))[:, None] * reach
    ends = [np.searchsorted(runs, (row + end // below)[here]) for end in (phase.source, phase.target)]
    return int(min(count[end].min() for end in ends))


def _members(child: Ints) -> tuple[int, Ints, Ints]:
    """(children of a group at most, key of each child of each group with a member, members there). child: [groups, p] of every member."""
    reach = int(child.max()) + 1
    return reach, *runs_of((np.arange(len(child))[:, None] * reach + child).reshape(-1))


def _passes(fabric: Fabric, weight: Ints, phase: Passes) -> PhaseTraffic:
    hops, flows, efficiency, own = (kind(len(fabric.tiers)) for kind in (np.zeros, np.zeros, np.ones, np.ones))
    for index, sources, traversals in phase.tiers:
        tier = fabric.tiers[index]
        child = sources // tier.below
        hops[index] = sources.shape[1] * int(weight.sum()) * traversals
        flows[index] = int(np.bincount(child.reshape(-1)).max()) * tier.network.oversubscription
        efficiency[index] = tier.network.in_network_efficiency
        own[index] = 1 / max(1.0, tier.links / tier.below) if tier.network.striped else 1.0
    return PhaseTraffic(phase.load, hops, flows, own, efficiency, 1, np.zeros_like(hops), phase.start_s, None)


def _shares(counts: Ints) -> Array:
    """Distinct rows of [groups, tiers] counts as shares of their sums, in sorted order, so that the order of the groups does not matter."""
    key = np.zeros(counts.shape[0], dtype=np.int64)
    for column in counts.T:
        key = np.unique(key, return_inverse=True)[1] * (int(column.max()) + 1) + column
    rows = counts[np.unique(key, return_index=True)[1]]
    return np.asarray(rows / rows.sum(axis=1, keepdims=True))
