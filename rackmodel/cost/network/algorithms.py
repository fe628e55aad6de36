"""Collective algorithms as phases one after another, each a set of flows; V bytes a member, N members, every phase linear in V.

    ring               one ring over the group: K = N − 1 steps of V/N (all-reduce 2 (N − 1)); broadcast and reduce: a chain of V;
                       all_to_all: V/N from every member to every other, one partner after another; to_one: to the first alone, or from it;
                       halo: V to both neighbours.
                       A mesh has no link from its last child to its first: there a ring is a line wherever a line applies; on a torus
                       it is `torus` wherever that applies. Where pairs have links of their own, parts of the message go round in rings of
                       every order at once, so that each pair carries as much: as `direct`, with a ring's start-ups
    line               lines and boxes of a mesh. reduce_scatter: partial sums of a block of V/N come from both ends to the member it
                       is for, each adding its own: N − 1 gaps a block, V (N − 1)/N on the end links, start-up = the line's hops, once
                       (words follow one another); all_gather the same outwards, all_reduce both. A box: its rows, then its columns
                       with 1/row of V. Broadcast, reduce: down a row, then all columns at once. Other tiers: rings, as hierarchical
    torus              boxes of a torus, of D dimensions: D parts of V at once, each in rings along one dimension after another, the first
                       of each another one, half of it either way round. Every link of a full torus works: reduce_scatter takes
                       V (N − 1)/N on 2 D links where extents are equal; all_gather the same backwards, all_reduce both. Other tiers:
                       rings, as hierarchical
    direct             where pairs have links of their own (point_to_point), all of a group's at once: reduce_scatter sends every member its
                       block of V/N straight, one start; all_gather likewise, all_reduce both; broadcast: a part of V/(N − 1) straight to
                       every member, which hands it to all others, two starts; reduce the same backwards. Other tiers: rings, as
                       hierarchical
    tree               two binary trees of V/2 over the nodes, each other's mirror, a chain in the node (the innermost tier):
                       T = 2 V/B + 2 (chain + depth) start-ups, all-reduce; once down or up for broadcast or reduce
    halving_doubling   log2 N exchanges with the member 1, 2, 4, … away of V/2, V/4, V/8, …, and back; other N: 2 rounds more
    hierarchical       reduce-scatter inside a tier, the collective among equals across the next tiers, all-gather inside:
                       Σ_tiers 2 V/M (q − 1)/q, M = members under a child, q = children; all_to_all: V (q − 1)/q a tier
    in_network         hierarchical, but tiers that multicast and reduce add in the switch. One switch (its children are the
                       accelerators): V (1 + 1/N) in and out of each, all_gather and reduce_scatter V; a tree of switches: V on
                       every edge, a start-up an edge up and an edge down

Sources: Thakur 2005 (ring, halving-doubling); seed 001, 7.3.1 (line: neighbours add incoming partial sums to their own and pass them
on); jax-ml.github.io/scaling-book, "Sharded matrices" (torus: V over both links of a ring; RECALLED: over those of all dimensions), the
order of the parts DERIVED; NVLS: NVIDIA nccl-tests#239 (V (1 + 1/N));
SHARP: Graham 2016. The largest halving message goes to the nearest member, so outer tiers carry least.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from rackmodel.arrays import Ints
from rackmodel.cost.network.all_to_alls import EXCHANGES
from rackmodel.cost.network.binary_trees import Extents, tree
from rackmodel.cost.network.fabric import Fabric
from rackmodel.cost.network.link_groups import Exchange, Flows, Lines, Passes, Phase
from rackmodel.cost.network.placed import Crossings, Placed
from rackmodel.cost.network.topologies import hop_count, topology_of
from rackmodel.model.architecture import Tier

KINDS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "broadcast", "reduce", "halo")
Scatters = Callable[[Ints, int, int], list[Phase]]


@dataclass(frozen=True)
class Algorithm:
    """kinds: the collectives it does · regular: whether groups must have equal numbers in every instance · phases: of groups [groups, p]
    with their extents; none where the networks cannot."""

    kinds: tuple[str, ...]
    regular: bool
    phases: Callable[[Fabric, Ints, str, Extents], list[Phase]]


# -- ring ------------------------------------------------------------------------------------------------------------------


def _ring(fabric: Fabric, rows: Ints, kind: str, extents: Extents) -> list[Phase]:
    p = rows.shape[1]
    if kind in _LINES and extents:
        found = _line(fabric, rows, kind, extents) or (_torus(fabric, rows, kind, extents) if kind in _GATHERS else [])
        found = found or _round_pairs(fabric, rows, kind, extents)
        if found:
            return found
    if kind in EXCHANGES:
        return [Exchange(rows, to_one=kind == "to_one")]
    if kind == "halo":
        return [Placed(*_in_turn(p), 1.0, 1, "halo", both=True, once=p == 2)]
    if kind in ("broadcast", "reduce"):
        return [Placed(*_in_turn(p), 1.0, p - 1, "chain", path=True)]
    steps = 2 * (p - 1) if kind == "all_reduce" else p - 1
    crossings = _round_crossings(extents) if extents else None
    here = np.arange(p)
    return [Placed(here, (here + 1) % p, steps / p, steps, "ring", path=True, crossings=crossings)]


def _in_turn(p: int) -> tuple[Ints, Ints]:
    """From each place to the next."""
    return np.arange(p - 1), np.arange(1, p)


def _round_crossings(extents: tuple[int, ...]) -> Crossings:
    """Of a ring: from the last member under each child to the first under the next, and from the very last to the very first."""
    top = max((index for index, extent in enumerate(extents) if extent > 1), default=-1)
    return tuple(
        ((extent - 1) * prod(extents[index + 1 :]) + (index == top), 1) if extent > 1 else (0, 0) for index, extent in enumerate(extents)
    )


def _all_crossing(extents: tuple[int, ...], index: int) -> Crossings:
    """Every member sends to one under another child of the same network of tier `index`."""
    return tuple((prod(extents), prod(extents[:index])) if tier == index else (0, 0) for tier in range(len(extents)))


# -- line ------------------------------------------------------------------------------------------------------------------


_LINES = ("all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce")


def _line(fabric: Fabric, rows: Ints, kind: str, extents: Extents) -> list[Phase]:
    assert extents is not None
    used = [index for index, extent in enumerate(extents) if extent > 1]
    boxes = {index: _box(fabric, _equals(rows, extents, index), index) for index in used if fabric.grid(index)}
    if kind in ("broadcast", "reduce"):
        box = boxes.get(used[0])
        return [_chains(fabric, used[0], box, reverse=kind == "reduce")] if len(used) == 1 and box is not None else []
    return _in_boxes(fabric, rows, kind, extents, boxes, _line_scatters)


def _in_boxes(
    fabric: Fabric, rows: Ints, kind: str, extents: tuple[int, ...], boxes: dict[int, Ints | None], scatters: Scatters
) -> list[Phase]:
    """A collective that scatters in boxes of some tiers and in rings over the others; none where there is no box, or members are none.
    scatters: of a box of a tier, of which inner tiers have left 1/held of the message."""
    if not boxes or any(box is None for box in boxes.values()):
        return []
    out: list[Phase] = []
    for index, extent in enumerate(extents):
        box = boxes.get(index)
        if extent > 1:
            out += [_scatter(fabric, rows, extents, index)] if box is None else scatters(box, index, prod(extents[:index]))
    return _there_and_back(out, kind)


def _there_and_back(scatters: list[Phase], kind: str) -> list[Phase]:
    """Phases of a collective, of those of its reduce-scatter."""
    return scatters if kind == "reduce_scatter" else scatters[::-1] if kind == "all_gather" else scatters + scatters[::-1]


def _box(fabric: Fabric, equals: Ints, index: int) -> Ints | None:
    """[groups, rows, columns] the members as a box of the mesh of tier `index`, alike in every group; None where they are none."""
    grid = fabric.grid(index)
    assert grid is not None
    r, c = np.divmod(fabric.positions(index, equals), grid.columns)
    wide = int((r[0] == r[0, 0]).sum())
    if equals.shape[1] % wide:
        return None
    shape = (len(equals), -1, wide)
    r, c = r.reshape(shape), c.reshape(shape)
    whole = np.all(r == r[:, :, :1]) and np.all(c == c[:, :1]) and np.all(np.diff(r[:, :, 0], axis=1) > 0)
    return equals.reshape(shape) if whole else None


def _line_scatters(box: Ints, index: int, held: int) -> list[Phase]:
    """Reduce-scatters along the rows of a box, then along its columns; inner tiers have left 1/held of the message."""
    _, tall, wide = box.shape
    parts = ((box.reshape(-1, wide), held), (box.swapaxes(1, 2).reshape(-1, tall), held * wide))
    return [Lines(index, lines, 1 / share) for lines, share in parts if lines.shape[1] > 1]


def _chains(fabric: Fabric, index: int, box: Ints, *, reverse: bool) -> Phase:
    """From the first member along its row, and down every column from there; the last word is there after the farthest member's hops."""
    ends = [(part[:, :-1].reshape(len(box), -1), part[:, 1:].reshape(len(box), -1)) for part in (box[:, 0], box)]
    source, target = (np.concatenate(side, axis=1) for side in zip(*ends, strict=True))
    tier = fabric.tiers[index]
    far = hop_count(tier.network, tier.children, *(fabric.positions(index, box[:, at, at]) for at in (0, -1)))
    start = tier.network.latency_s * float(far.max())
    return Flows(target, source, 1.0, 1, start_s=start) if reverse else Flows(source, target, 1.0, 1, start_s=start)


# -- torus -----------------------------------------------------------------------------------------------------------------


def _torus(fabric: Fabric, rows: Ints, kind: str, extents: Extents) -> list[Phase]:
    assert extents is not None
    used = [index for index, extent in enumerate(extents) if extent > 1 and _is_torus(fabric, index)]
    boxes = {index: _torus_box(fabric, _equals(rows, extents, index), index) for index in used}
    return _in_boxes(fabric, rows, kind, extents, boxes, lambda box, index, held: _torus_scatters(fabric, len(rows), box, index, held))


def _is_torus(fabric: Fabric, index: int) -> bool:
    ways = fabric.ways(index)
    return ways is not None and ways.wraps and topology_of(fabric.tiers[index].network).flows_relay


def _torus_box(fabric: Fabric, equals: Ints, index: int) -> Ints | None:
    """[groups, *extents] the members as a box of the torus of tier `index`, alike in every group; None where they are none."""
    ways, place = fabric.ways(index), fabric.positions(index, equals)
    assert ways is not None
    along: list[Ints] = []
    for extent in reversed(ways.shape):
        along.insert(0, place % extent)
        place = place // extent
    shape = len(equals), *(len(np.unique(one[0])) for one in along)
    if prod(shape) != equals.size:
        return None
    for axis, one in enumerate(along, 1):
        lines = np.moveaxis(one.reshape(shape), axis, -1).reshape(len(equals), -1, shape[axis])
        if np.any(lines != lines[:, :1]):
            return None
    return equals.reshape(shape)


def _torus_scatters(fabric: Fabric, groups: int, box: Ints, index: int, held: int) -> list[Phase]:
    """Reduce-scatters of D equal parts at once, each along one dimension in every phase; inner tiers have left 1/held of the message. box:
    of the equals of all groups. Equal also on unlike rings, as what is published splits over ports (SOURCED: Swing and Bine on Fugaku's
    torus, partition_size = count / num_ports): shares of .6 and .4 on 2 x 4 would take 7 % less."""
    tier, extents = fabric.tiers[index], box.shape[1:]
    used = [axis for axis, extent in enumerate(extents) if extent > 1]
    found: list[Phase] = []
    for phase in range(len(used)):
        edges, loads, late = [], [], 0.0
        for first in range(len(used)):
            *before, axis = (used[(first + number) % len(used)] for number in range(phase + 1))
            q, ahead = extents[axis], np.roll(box, -1, axis=1 + axis)
            far = hop_count(tier.network, tier.children, *(fabric.positions(index, side) for side in (box, ahead)))
            late = max(late, (q - 1) * tier.network.latency_s * float(far.max()))
            edges += [(box, ahead), (ahead, box)]
            loads += [(q - 1) / (2 * len(used) * held * prod(extents[other] for other in (*before, axis)))] * 2
        source, target = (np.concatenate([side.reshape(groups, -1) for side in sides], axis=1) for sides in zip(*edges, strict=True))
        parts = np.repeat(loads, box.size // groups) / max(loads)
        found.append(Flows(source, target, max(loads), 1, start_s=late, moves=("torus", index, phase, tuple(loads)), parts=parts))
    return found


# -- links of pairs --------------------------------------------------------------------------------------------------------


def _direct(fabric: Fabric, rows: Ints, kind: str, extents: Extents) -> list[Phase]:
    assert extents is not None
    used = [index for index, extent in enumerate(extents) if extent > 1]
    if not any(_has_pairs(fabric, index) for index in used):
        return []
    if kind in _GATHERS:
        return _there_and_back([_scatter(fabric, rows, extents, index, straight=True) for index in used], kind)
    if kind in ("broadcast", "reduce"):
        return [_passed_on(rows, kind, min(2, rows.shape[1] - 1))] if len(used) == 1 else []
    return _ring(fabric, rows, kind, extents)


def _has_pairs(fabric: Fabric, index: int) -> bool:
    return topology_of(fabric.tiers[index].network).pairs


def _round_pairs(fabric: Fabric, rows: Ints, kind: str, extents: tuple[int, ...]) -> list[Phase]:
    """Rings whose orders in the tiers where pairs have links differ, so that each pair carries as much; none where no tier in use is such,
    nor for a broadcast over several."""
    p, used = rows.shape[1], [index for index, extent in enumerate(extents) if extent > 1]
    if not any(_has_pairs(fabric, index) for index in used):
        return []
    if kind in ("broadcast", "reduce"):
        return [_passed_on(rows, kind, p - 1)] if len(used) == 1 else []
    edges, parts = [], []
    for index in used:
        box, closed = rows.reshape(len(rows), -1, extents[index], prod(extents[:index])), index == used[-1]
        here, there = np.arange(extents[index]), np.roll(np.arange(extents[index]), -1)  # from the last of a child to the first of the next
        if _has_pairs(fabric, index):
            here, there = np.nonzero(~np.eye(extents[index], dtype=bool))
        elif not closed:
            here, there = here[:-1], there[:-1]
        crossings = extents[index] - (not closed)  # of every ring in every instance
        edges.append([side.reshape(len(rows), -1) for side in (box[:, :, here, -1], box[:, :, there, 0])])
        parts.append(np.full(edges[-1][0].shape[1], crossings / len(here)))
    source, target = (np.concatenate(side, axis=1) for side in zip(*edges, strict=True))
    steps = 2 * (p - 1) if kind == "all_reduce" else p - 1
    return [Flows(source, target, load=steps / p, steps=steps, path=True, moves="rings", parts=np.concatenate(parts))]


def _passed_on(rows: Ints, kind: str, steps: int) -> Phase:
    """Broadcast or reduce over all links of pairs in a tier: the first member and every other hand on as much to each but the first."""
    here, there = np.nonzero(~np.eye(rows.shape[1], dtype=bool))
    ends = rows[:, here[there > 0]], rows[:, there[there > 0]]
    source, target = ends if kind == "broadcast" else ends[::-1]
    return Flows(source, target, 1 / (rows.shape[1] - 1), steps, moves=("passed on", kind))


def _to_everyone(rows: Ints, extents: tuple[int, ...], index: int) -> tuple[Ints, Ints]:
    """[groups, p (q - 1)] source and target of what every member sends each of its equals in tier `index`."""
    box = rows.reshape(len(rows), *extents[::-1])
    others = [np.roll(box, -step, axis=len(extents) - index).reshape(rows.shape) for step in range(1, extents[index])]
    return np.concatenate([rows] * len(others), axis=1), np.concatenate(others, axis=1)


# -- halving and doubling --------------------------------------------------------------------------------------------------


def _halving_doubling(fabric: Fabric, rows: Ints, kind: str, extents: Extents) -> list[Phase]:
    """Other N than 2^k: the first N − 2^k pairs hand over to one of each first and get the result last; halves are of V there too."""
    p = rows.shape[1]
    extra, rounds = p - (1 << p.bit_length() - 1), range(p.bit_length() - 1)
    if not extra:
        tiers = [index for index, extent in enumerate(extents or ()) for _ in range(extent.bit_length() - 1)]
        crossings = [_all_crossing(extents, index) for index in tiers] if extents else [None] * len(rounds)
        return _there_and_back([_halves(np.arange(p), j, crossings[j]) for j in rounds], kind)
    idle = np.arange(0, 2 * extra, 2)
    active = np.concatenate([idle + 1, np.arange(2 * extra, p)])
    first, last = (1 / p if kind == "all_gather" else 1.0), (1 / p if kind == "reduce_scatter" else 1.0)
    between = _there_and_back([_halves(active, j) for j in rounds], kind)
    return [Placed(idle, idle + 1, first, 1, "hand over"), *between, Placed(idle + 1, idle, last, 1, "hand back")]


def _halves(places: Ints, j: int, crossings: Crossings | None = None) -> Phase:
    """Round j of halving: all exchange V / 2^(j + 1) with whoever is 2^j further on, or back."""
    near, far = places.reshape(-1, 2, 1 << j).swapaxes(0, 1).reshape(2, -1)
    return Placed(near, far, 0.5 ** (j + 1), 1, ("halves", j), both=True, crossings=crossings)


# -- hierarchies -----------------------------------------------------------------------------------------------------------


def _neighbours(p: int, extents: tuple[int, ...], index: int) -> Ints:
    """[p] for each member the place of the next of its equals in tier `index`, in a ring."""
    box = np.arange(p).reshape(extents[::-1])
    return np.roll(box, -1, axis=len(extents) - 1 - index).reshape(-1)


def _scatter(fabric: Fabric, rows: Ints, extents: tuple[int, ...], index: int, *, straight: bool = False) -> Phase:
    """Reduce-scatter or all-gather in rings over tier `index`, where pairs have links over all of them (straight: in one step); inner tiers
    have left 1/M of the message."""
    q = extents[index]
    load = (q - 1) / q / prod(extents[:index])
    if _has_pairs(fabric, index):
        return Flows(*_to_everyone(rows, extents, index), load / (q - 1), 1 if straight else q - 1, moves=("everyone", index))
    p, crossings = rows.shape[1], _all_crossing(extents, index)
    return Placed(np.arange(p), _neighbours(p, extents, index), load, q - 1, ("neighbours", index), crossings=crossings)


def _hierarchical(fabric: Fabric, rows: Ints, kind: str, extents: Extents) -> list[Phase]:
    assert extents is not None
    used = [index for index, extent in enumerate(extents) if extent > 1]
    if len(used) < 2:
        return []
    if kind == "all_to_all":
        return [Exchange(_equals(rows, extents, index)) for index in used]
    return _there_and_back([_scatter(fabric, rows, extents, index) for index in used], kind)


def _equals(rows: Ints, extents: tuple[int, ...], index: int) -> Ints:
    """[groups · p/q, q] the members that differ in tier `index` alone."""
    box = rows.reshape(len(rows), *extents[::-1])
    return np.moveaxis(box, len(extents) - index, -1).reshape(-1, extents[index])


def _in_network(fabric: Fabric, rows: Ints, kind: str, extents: Extents) -> list[Phase]:
    assert extents is not None
    runs = _switch_runs(fabric, extents)
    if not any(adds for _, adds in runs):
        return []
    out: list[Phase] = []
    for number, (tiers, adds) in enumerate(runs):
        top = number == len(runs) - 1 and kind == "all_reduce"
        if adds:
            out.append(_switched(fabric, rows, extents, tiers, whole=top))
        else:
            out += [_scatter(fabric, rows, extents, tiers[0])] * (2 if top else 1)
    if kind == "reduce_scatter":
        return out
    if kind == "all_gather":
        return out[::-1]
    return out + out[: len(runs) - 1][::-1]


def _switch_runs(fabric: Fabric, extents: tuple[int, ...]) -> list[tuple[tuple[int, ...], bool]]:
    """Tiers in use, innermost first; neighbours whose switches all add make one run where what one added goes on to the next."""
    runs: list[tuple[tuple[int, ...], bool]] = []
    for index, extent in enumerate(extents):
        network = fabric.tiers[index].network
        adds = network.multicast and network.reduce and topology_of(network).adds
        if extent == 1:
            continue
        before = runs[-1] if runs else None
        if adds and before and before[1] and _goes_on(fabric, before[0][-1], index):
            runs[-1] = ((*before[0], index), True)
        else:
            runs.append(((index,), adds))
    return runs


def _goes_on(fabric: Fabric, inner: int, outer: int) -> bool:
    """Whether switches of a tier lead on to another's: as networks say (`same_links`), else where both have one bandwidth."""
    said = {fabric.tiers[index].network.same_links for index in range(inner + 1, outer + 1)}
    rates = {fabric.tiers[index].network.bandwidth_bytes_per_s for index in (inner, outer)}
    return False not in said and (said == {True} or len(rates) == 1)


def _switched(fabric: Fabric, rows: Ints, extents: tuple[int, ...], tiers: tuple[int, ...], *, whole: bool) -> Phase:
    """The run's all-reduce (whole) or its reduce-scatter or all-gather, of the 1/M of the message that inner tiers left.

    Tiers of one rate, latency and energy above single accelerators are one switch, that of the outermost (node and rack of an NVL72);
    others are a tree. Energy is that of the bytes up and down, half a traversal each.
    """
    held, n = prod(extents[: tiers[0]]), prod(extents[index] for index in tiers)
    networks = [fabric.tiers[index].network for index in tiers]
    told = {(network.bandwidth_bytes_per_s, network.latency_s, network.energy_j_per_byte) for network in networks}
    if fabric.tiers[tiers[0]].below == 1 and len(told) == 1:
        load = 1 + 1 / n if whole else 1.0
        return Passes(((tiers[-1], rows, 1.0 if whole else (1 + 1 / n) / 2),), load, _pass_s(fabric, tiers[-1]))
    parts = []
    for index in tiers:
        below = prod(extents[tiers[0] : index])  # of this run, joined already by inner switches
        box = rows.reshape(-1, below, held)
        sources = box[:, 0].reshape(len(rows), -1)
        parts.append((index, sources, 1.0 if whole else (1 + below / n) / 2))
    return Passes(tuple(parts), 1 / held, 2 * sum(_pass_s(fabric, index) for index in tiers))


def _pass_s(fabric: Fabric, index: int) -> float:
    network = fabric.tiers[index].network
    return network.latency_s if network.in_network_latency_s is None else network.in_network_latency_s


_GATHERS = ("all_gather", "reduce_scatter", "all_reduce")
ALGORITHMS: dict[str, Algorithm] = {
    "line": Algorithm(_LINES, True, _line),
    "ring": Algorithm((*KINDS, "to_one"), False, _ring),
    "torus": Algorithm(_GATHERS, True, _torus),
    "direct": Algorithm(KINDS, True, _direct),
    "tree": Algorithm(("all_reduce", "broadcast", "reduce"), False, tree),
    "halving_doubling": Algorithm(_GATHERS, False, _halving_doubling),
    "hierarchical": Algorithm((*_GATHERS, "all_to_all"), True, _hierarchical),
    "in_network": Algorithm(_GATHERS, True, _in_network),
}


def linked(tiers: Sequence[Tier], names: Sequence[str]) -> tuple[str, ...]:
    """Those of some algorithms that networks have links for: `direct` wants a pair's own, `line` those of a mesh, `torus` of a torus. All,
    where none is left."""
    asked = [(topology_of(tier.network), tier) for tier in tiers]
    ways = [topology.ways(tier.network, tier.children) for topology, tier in asked if topology.flows_relay]
    has = {
        "direct": any(topology.pairs for topology, _ in asked),
        "line": any(topology.grid(tier.network) is not None for topology, tier in asked),
        "torus": any(one is not None and one.wraps for one in ways),
    }
    return tuple(name for name in names if has.get(name, True)) or tuple(names)


def doing(kind: str, names: Iterable[str]) -> list[str]:
    """Those of some algorithms that do a kind of collective; a ring, where none does."""
    return [name for name in dict.fromkeys(names) if kind in ALGORITHMS[name].kinds] or ["ring"]


def _next(fabric: Fabric, rows: Ints, kind: str, extents: Extents) -> list[Phase]:
    return [Placed(*_in_turn(rows.shape[1]), 1.0, 1, "next", alone=True)]


def _far(fabric: Fabric, rows: Ints, kind: str, extents: Extents) -> list[Phase]:
    return [Placed(np.array([0]), np.array([rows.shape[1] - 1]), 1.0, 1, "far", alone=True)]


SENDS = {"next": Algorithm(("send",), False, _next), "far": Algorithm(("send",), False, _far)}  # between pipeline stages, in their order
