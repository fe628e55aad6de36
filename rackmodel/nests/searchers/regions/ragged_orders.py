"""Other orders of a region's nodes, from one mapping: a tensor goes to another place above the members, or down to them, or back up; a
member's own nodes change places. Tiles stay those of the places; changing them is another step (ragged_descent)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rackmodel.nests.mapping import NestMapping, StorageNode
from rackmodel.nests.region import Region
from rackmodel.nests.region_loops import paths_of
from rackmodel.nests.region_mapping import RegionMapping, RegionNode


def reordered(mapping: RegionMapping, region: Region) -> Iterator[RegionMapping]:
    """Every mapping whose nodes differ in the place of one tensor."""
    for name in region.outer:
        if name not in region.resident:
            yield from _elsewhere(mapping, name, region)
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


def _elsewhere(mapping: RegionMapping, name: str, region: Region) -> Iterator[RegionMapping]:
    """Mappings in which a tensor that lies above members lies in one place more, one fewer, or another."""
    users, paths = region.outer[name][1], paths_of(mapping.spans)
    for at in [None, *(j for j, node in enumerate(mapping.nodes) if node.tensor == name)]:
        bare = mapping.nodes if at is None else (*mapping.nodes[:at], *mapping.nodes[at + 1 :])
        taken = {k for node in bare if node.tensor == name for k, path in enumerate(paths) if node.span in path or k in paths[node.span]}
        for j, node in enumerate(bare):
            first, last = mapping.spans[node.span]
            if j != at and node.span not in taken and any(first <= i <= last for i in users):
                yield _below(mapping, (*bare[:j], RegionNode(node.span, name, node.tile), *bare[j:]), name, region)
        if at is not None:
            yield _below(mapping, bare, name, region)


def _below(mapping: RegionMapping, nodes: tuple[RegionNode, ...], name: str, region: Region) -> RegionMapping:
    """The mapping with these nodes: a member that finds the tensor there has no node of it, another that uses it has one."""
    other, branches = replace(mapping, nodes=nodes), []
    for i, one in enumerate(mapping.branches):
        found = any(node.tensor == name for node in other.above(i))
        own = found or i not in region.outer[name][1] or any(node.tensor == name for node in one.levels[1].nodes)
        branches.append(_without(one, name) if found else one if own else _placed(one, name, region, i, mapping))
    return replace(other, branches=tuple(branches))


def _without(branch: NestMapping, name: str) -> NestMapping:
    """A member's nest without a node of level 1."""
    nodes = tuple(n for n in branch.levels[1].nodes if n.tensor != name)
    return replace(branch, levels=(branch.levels[0], replace(branch.levels[1], nodes=nodes), *branch.levels[2:]))


def _placed(branch: NestMapping, name: str, region: Region, i: int, mapping: RegionMapping) -> NestMapping:
    """A member's nest with one more node of level 1, the first, in the tile of what was the first, or of its core."""
    nodes = branch.levels[1].nodes
    core = mapping.above(i)[-1].tile
    tile = nodes[0].tile if nodes else {r: core[r] for r in region.members[i].sizes}
    more = (StorageNode(name, dict(tile)), *nodes)
    return replace(branch, levels=(branch.levels[0], replace(branch.levels[1], nodes=more), *branch.levels[2:]))
