"""Other orders of a region's nodes, from one mapping: a tensor goes to another place above the members, or down to them, or back up; a
member's own nodes change places. Tiles stay those of the places; changing them is another step (ragged_descent)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rackmodel.nests.mapping import NestMapping, StorageNode
from rackmodel.nests.region import Region
from rackmodel.nests.region_loops import RegionLoops
from rackmodel.nests.region_mapping import RegionMapping, RegionNode


def reordered(mapping: RegionMapping, region: Region) -> Iterator[RegionMapping]:
    """Every mapping whose nodes differ in the place of one tensor."""
    loops = RegionLoops(region, mapping.spans, again=True)
    for name, (_, users) in region.outer.items():
        if name in region.resident:
            continue
        at = next((j for j, node in enumerate(mapping.nodes) if node.tensor == name), None)
        bare = mapping.nodes if at is None else (*mapping.nodes[:at], *mapping.nodes[at + 1 :])
        branches = tuple(_without(one, name) for one in mapping.branches)
        for j, node in enumerate(bare):
            first, last = mapping.spans[node.span]
            if at != j and any(first <= i <= last for i in users):
                both = enumerate(zip(branches, mapping.branches, strict=True))
                there = RegionNode(node.span, name, node.tile)
                below = tuple(b if loops.span_of[i] >= node.span else own for i, (b, own) in both)
                yield replace(mapping, nodes=(*bare[:j], there, *bare[j:]), branches=below)
        if at is not None:
            every = [_placed(one, name, region, i, 0, mapping) if i in users else one for i, one in enumerate(branches)]
            yield replace(mapping, nodes=bare, branches=tuple(every))
    for i, branch in enumerate(mapping.branches):
        for level in range(1, len(branch.levels)):
            nodes = branch.levels[level].nodes
            for k in range(len(nodes) - 1):
                tensors = [n.tensor for n in nodes]
                tensors[k], tensors[k + 1] = tensors[k + 1], tensors[k]
                swapped = tuple(StorageNode(t, n.tile) for t, n in zip(tensors, nodes, strict=True))
                levels = (*branch.levels[:level], replace(branch.levels[level], nodes=swapped), *branch.levels[level + 1 :])
                other = replace(branch, levels=levels)
                yield replace(mapping, branches=(*mapping.branches[:i], other, *mapping.branches[i + 1 :]))


def _without(branch: NestMapping, name: str) -> NestMapping:
    """A member's nest without a node of level 1."""
    nodes = tuple(n for n in branch.levels[1].nodes if n.tensor != name)
    return replace(branch, levels=(branch.levels[0], replace(branch.levels[1], nodes=nodes), *branch.levels[2:]))


def _placed(branch: NestMapping, name: str, region: Region, i: int, k: int, mapping: RegionMapping) -> NestMapping:
    """A member's nest with one more node of level 1, at place k, in the tile of what was there, or of its core."""
    nodes = branch.levels[1].nodes
    core = next(n.tile for n in reversed(mapping.nodes) if not n.tensor and mapping.spans[n.span][0] <= i <= mapping.spans[n.span][1])
    tile = nodes[k].tile if k < len(nodes) else {r: core[r] for r in region.members[i].sizes}
    more = (*nodes[:k], StorageNode(name, dict(tile)), *nodes[k:])
    return replace(branch, levels=(branch.levels[0], replace(branch.levels[1], nodes=more), *branch.levels[2:]))
