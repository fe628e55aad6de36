"""First mappings of a region for tiles of any size: the optimum of divisors, of its own sizes and of sizes a little larger.

A tile that divides a size D' >= D is cut off at D: its chain is one whose inner tiles divide outer ones. Such sizes are the real ones,
those that fill the fans of some member (padded), and those whose factors are small primes. Candidates only: no bound rests on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from rackmodel.nests.constraints import NestConstraints
from rackmodel.nests.mapping import NestMapping, StorageNode
from rackmodel.nests.objective import NestObjective
from rackmodel.nests.problem import NestProblem
from rackmodel.nests.region import Region
from rackmodel.nests.region_mapping import RegionMapping, RegionNode
from rackmodel.nests.searchers.contract import NestQuestion
from rackmodel.nests.searchers.mapspace.mapping_steps import Unmerge
from rackmodel.nests.searchers.ragged.padded import cut_off as cut_off_nest
from rackmodel.nests.searchers.ragged.padded import padded_sizes, raised
from rackmodel.nests.searchers.regions.region_below import Where

LARGER = 3  # sizes that are tried, the real ones among them
WASTE = 2.0  # times the points of all ranks, beyond which larger sizes are not tried


def mapping_of(where: Where) -> RegionMapping:
    """What a search of divisors found, as a mapping of its region."""
    search, one = where.search, where.candidate
    space, prefix = search.space, one.above[0].prefix
    nodes: dict[tuple[int, str], RegionNode] = {}
    for branch, above in zip(search.branches, one.above, strict=True):
        chain, now = Unmerge(space.parts, space.region.sizes), dict(space.region.sizes)
        places = [(k, name) for k in branch.around for name in (*prefix[k], "")]
        for (k, name), tile in zip(places, above.tiles, strict=True):
            now = {**now, **chain.cut(tile)}
            nodes[k, name] = RegionNode(k, name, now)
    every = [nodes[k, name] for k, names in enumerate(prefix) for name in (*names, "")]
    branches = []
    for branch, made in zip(search.branches, search.made(where), strict=True):
        branches.append(_own(branch.problem, made.mapping, branch.on_chip(prefix)))
    return RegionMapping(space.loops.spans, tuple(every), tuple(branches))


def _own(problem: NestProblem, mapping: NestMapping, on_chip: frozenset[str]) -> NestMapping:
    """What of a member's mapping lies below the region's nodes, in its own ranks."""
    levels = []
    for number, level in enumerate(mapping.levels):
        kept = [n for n in level.nodes if number != 1 or n.tensor not in on_chip]
        nodes = tuple(StorageNode(n.tensor, {r: n.tile[r] for r in problem.sizes}) for n in kept)
        levels.append(replace(level, nodes=nodes))
    return replace(mapping, levels=tuple(levels))


def padded(region: Region, aim: NestObjective) -> list[dict[str, int]]:
    """Sizes whose divisors are tried, the least first."""
    leaf: dict[str, int] = {}
    for machine in region.machines:
        leaf |= machine.compute.atom
    least = {r: -(-n // leaf.get(r, 1)) * leaf.get(r, 1) for r, n in region.sizes.items()}
    filled = []
    for p, machine in zip(resized(region, least).members, region.machines, strict=True):
        filled.append({**least, **padded_sizes(NestQuestion(p, machine, aim, "ceil", NestConstraints(), ()))})
    both = {r: max(one[r] for one in filled) for r in least}
    smooth = {r: raised(n // leaf.get(r, 1)) * leaf.get(r, 1) for r, n in least.items()}
    found = [least, *sorted((*filled, both, smooth), key=lambda sizes: prod(sizes.values()))]
    kept = [one for k, one in enumerate(found) if one not in found[:k]]
    return [one for one in kept if prod(one.values()) <= WASTE * prod(least.values())][:LARGER]


def resized(region: Region, sizes: Mapping[str, int]) -> Region:
    """The region with other sizes."""
    return replace(region, members=tuple(replace(p, sizes={r: sizes[r] for r in p.sizes}) for p in region.members))


def cut_off(mapping: RegionMapping, sizes: Mapping[str, int]) -> RegionMapping:
    """The mapping of smaller sizes: every tile that is larger is the whole rank."""
    nodes = tuple(node._replace(tile={r: min(n, sizes[r]) for r, n in node.tile.items()}) for node in mapping.nodes)
    return replace(mapping, nodes=nodes, branches=tuple(cut_off_nest(one, sizes) for one in mapping.branches))
