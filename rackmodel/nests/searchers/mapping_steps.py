"""From the steps a search took back to a mapping in the original ranks, merged ranks split prime by prime."""

from collections.abc import Sequence
from dataclasses import dataclass

from rackmodel.nests.mapping import LevelMapping, NestMapping, StorageNode
from rackmodel.nests.searchers.rank_merging import split_factor
from rackmodel.nests.searchers.space import Space
from rackmodel.nests.searchers.spatial_vectors import Vector

Sizes = tuple[int, ...]  # tile size of every (merged) rank
NodeAbove = tuple[int | None, Sizes]  # (tensor number, tile); None: a node of another einsum, which only cuts


@dataclass(frozen=True)
class LevelChoice:
    """One level's choice: vector number of the fanout above it, tensor order, tile sizes of each node."""

    vector: int
    order: tuple[int, ...]
    tiles: tuple[Sizes, ...]


def build_mapping(space: Space, steps: Sequence[LevelChoice], above: Sequence[NodeAbove] = ()) -> NestMapping:
    """NestMapping of the steps, outer → inner; above: nodes of level 1 that lie above the steps' own (residents, a fused
    prefix)."""
    chain = Unmerge(space)
    levels = []
    for i, v in enumerate(space.machine.levels):
        if i == 0:
            nodes = tuple(StorageNode(t.name, dict(space.original.sizes)) for t in space.tensors)
        else:
            step = steps[i - 1]
            cut = [(t, chain.cut(tile)) for t, tile in above] if i == 1 else []
            nodes = tuple(StorageNode(space.tensors[t].name, tile) for t, tile in cut if t is not None)
            nodes += tuple(StorageNode(space.tensors[t].name, chain.cut(tile)) for t, tile in zip(step.order, step.tiles, strict=True))
        _, x, y = space.spatial[i][steps[i].vector]
        entry = _entered(space, steps, i + 1)
        if i or not above:
            chain.cut(tuple(e * int(p) for e, p in zip(entry, space.vectors[i][steps[i].vector], strict=True)))
        levels.append(LevelMapping(v.name, nodes, chain.spread(x), chain.spread(y)))
    return NestMapping(space.original.name, space.machine.name, tuple(levels))


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
    """Chain of tiles of the merged ranks → tiles of the original ranks (of a Space)."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.now = list(space.sizes)
        self.part = dict(space.original.sizes)

    def cut(self, tile: Sizes) -> dict[str, int]:
        """Cut every rank to `tile`; the new tiles of the original ranks."""
        for r, name in enumerate(self.space.ranks):
            parts = self.space.groups[name]
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
        for name, n in vector.items():
            parts, r = self.space.groups[name], self.space.ranks.index(name)
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
