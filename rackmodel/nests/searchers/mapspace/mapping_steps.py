"""From the steps a search took back to a mapping in the original ranks, merged ranks split prime by prime."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from rackmodel.nests.mapping import LevelMapping, NestMapping, StorageNode, entry_tiles, whole_nodes
from rackmodel.nests.searchers.mapspace.rank_merging import split_factor
from rackmodel.nests.searchers.mapspace.space import Space
from rackmodel.nests.searchers.mapspace.spatial_vectors import Vector

Sizes = tuple[int, ...]  # tile size of every (merged) rank
NodeAbove = tuple[int | None, Sizes]  # (tensor number, tile); None: a node of another einsum, which only cuts


class NodesAbove(NamedTuple):
    """Nodes of level 1 above those of a search, outer → inner, and the merged ranks (each with its parts) that their tiles are of: no
    coarser than the search's own."""

    groups: Mapping[str, Sequence[str]]
    nodes: tuple[NodeAbove, ...]


@dataclass(frozen=True)
class LevelChoice:
    """One level's choice: vector number of the fanout above it, tensor order, tile sizes of each node."""

    vector: int
    order: tuple[int, ...]
    tiles: tuple[Sizes, ...]


def build_mapping(space: Space, steps: Sequence[LevelChoice], above: NodesAbove | None = None) -> NestMapping:
    """NestMapping of the steps, outer → inner; above: nodes of level 1 that lie above the steps' own (residents, a fused
    prefix)."""
    above = above or NodesAbove({}, ())
    chain, outer = Unmerge(space.groups, space.original.sizes), Unmerge(above.groups, space.original.sizes)
    levels = []
    for i, v in enumerate(space.machine.levels):
        if i == 0:
            nodes = whole_nodes(space.original)
        else:
            step = steps[i - 1]
            cut = [(t, outer.cut(tile)) for t, tile in above.nodes] if i == 1 else []
            if cut:
                chain.start(cut[-1][1])
            nodes = tuple(StorageNode(space.tensors[t].name, tile) for t, tile in cut if t is not None)
            nodes += tuple(StorageNode(space.tensors[t].name, chain.cut(tile)) for t, tile in zip(step.order, step.tiles, strict=True))
        _, x, y = space.spatial[i][steps[i].vector]
        entry = _entered(space, steps, i + 1)
        if i or not above.nodes:
            chain.cut(tuple(e * int(p) for e, p in zip(entry, space.vectors[i][steps[i].vector], strict=True)))
        levels.append(LevelMapping(v.name, nodes, chain.spread(x), chain.spread(y)))
    return NestMapping(space.original.name, space.machine.name, tuple(levels))


def unmerged(mapping: NestMapping, groups: Mapping[str, Sequence[str]], sizes: Mapping[str, int], atom: Mapping[str, int]) -> NestMapping:
    """A mapping of merged ranks (each with its parts), whose tiles divide one another, in the original ranks (lemma L1). sizes: of these ·
    atom: of the merged ones."""
    chain, levels = Unmerge(groups, sizes), []
    entries = entry_tiles(mapping, {r: atom.get(r, 1) for r in groups})
    for level, entry in zip(mapping.levels, entries, strict=True):
        nodes = tuple(StorageNode(n.tensor, chain.cut(tuple(n.tile[r] for r in groups))) for n in level.nodes)
        chain.cut(tuple(entry[r] * level.spatial(r) for r in groups))
        levels.append(LevelMapping(level.level, nodes, chain.spread(level.x), chain.spread(level.y)))
    return NestMapping(mapping.problem, mapping.machine, tuple(levels))


def _entered(space: Space, steps: Sequence[LevelChoice], level: int) -> list[int]:
    """Tile (merged ranks) that enters `level`; level = depth is the compute's leaf."""
    if level == space.depth:
        return list(space.leaf)
    step = steps[level - 1]
    if step.order:
        return list(step.tiles[0])
    inner = _entered(space, steps, level + 1)
    return [e * int(p) for e, p in zip(inner, space.vectors[level][steps[level].vector], strict=True)]


class Unmerge:
    """Chain of tiles of merged ranks (each with its parts) → tiles of the original ranks, whose sizes are given."""

    def __init__(self, groups: Mapping[str, Sequence[str]], sizes: Mapping[str, int]) -> None:
        self.groups = groups
        self.start(sizes)

    def start(self, part: Mapping[str, int]) -> None:
        """Begin at these tiles of the original ranks."""
        self.part = dict(part)
        self.now = [prod(part[p] for p in parts) for parts in self.groups.values()]

    def cut(self, tile: Sizes) -> dict[str, int]:
        """Cut every rank to `tile`; the new tiles of the original ranks."""
        for r, parts in enumerate(self.groups.values()):
            if len(parts) == 1:
                self.part[parts[0]] = tile[r]
            elif tile[r] != self.now[r]:
                left = {p: self.part[p] for p in parts}
                split_factor(self.now[r] // tile[r], left)
                self.part.update(left)
            self.now[r] = tile[r]
        return dict(self.part)

    def spread(self, vector: Vector) -> Vector:
        """Spatial parts of the original ranks (those above 1); the tile shrinks by them."""
        found: Vector = {}
        for r, (name, parts) in enumerate(self.groups.items()):
            n = vector.get(name, 1)
            if n == 1:
                continue
            if len(parts) == 1:
                found[parts[0]] = n
                self.part[parts[0]] = max(1, -(-self.part[parts[0]] // n))
            else:
                left = {p: self.part[p] for p in parts}
                found.update({p: k for p, k in split_factor(n, left).items() if k > 1})
                self.part.update(left)
            self.now[r] = max(1, -(-self.now[r] // n))
        return found
