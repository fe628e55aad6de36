"""From one mapping of a region to a better one, tiles of any size: one tile changed at a time, as long as that helps.

A step takes a run of nodes that have the same tile of a rank, and gives all of them another: one that makes a few more or fewer of it, or
one larger or smaller; tiles further in shrink with it. Nodes above the members are a tree, a list down to each innermost span, a member's
own another list; a fan may be dealt other numbers of parts. Only what a step touches is priced again. Nothing is proven by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from rackmodel.errors import InfeasibleError, RackmodelError
from rackmodel.nests.mapping import LevelMapping, NestMapping, StorageNode
from rackmodel.nests.objective import Key, NestObjective, better
from rackmodel.nests.problem import NestLevel
from rackmodel.nests.region import Region
from rackmodel.nests.region_loops import RegionLoops
from rackmodel.nests.region_mapping import PricedRegion, RegionMapping, price_region
from rackmodel.nests.searchers.effort import Effort

STEPS = 600  # mappings that are priced
MORE = (-1, 1, -2, 2)  # by how many the number of tiles changes; they are halved and doubled, too
Tiles = Sequence[Mapping[str, int]]


class Known:
    """The best mapping so far: key, mapping, price; pricing of others under one question."""

    def __init__(self, region: Region, aim: NestObjective, key: Key) -> None:
        self.region, self.aim, self.key = region, aim, key
        self.mapping: RegionMapping | None = None
        self.priced: PricedRegion | None = None
        self.loops: dict[tuple[tuple[int, int], ...], RegionLoops] = {}
        self.tried = 0

    def take(self, mapping: RegionMapping) -> bool:
        """Keep a mapping that fits and is better."""
        self.tried += 1
        if mapping.spans not in self.loops:
            self.loops[mapping.spans] = RegionLoops(self.region, mapping.spans, again=True)
        try:
            priced = price_region(self.region, mapping, self.loops[mapping.spans])
        except (InfeasibleError, RackmodelError):
            return False
        first, second = self.aim.key(priced.energy_j, priced.latency_s)
        if not better((first, second), self.key):
            return False
        self.key, self.mapping, self.priced = (float(first), float(second)), mapping, priced
        return True


def improve(known: Known, effort: Effort, steps: int = STEPS) -> None:
    """Change one tile after another until nothing helps, or so many mappings were priced."""
    last = known.tried + steps
    helped = known.mapping is not None
    while helped:
        helped = False
        for kind in range(1 + len(known.region.members)):
            again = True
            while again and known.mapping is not None:
                again = False
                for other in _others(known.mapping, kind, known.region):
                    if known.tried >= last or effort.over:
                        return
                    if known.take(other):
                        again = helped = True
                        break


def _others(mapping: RegionMapping, kind: int, region: Region) -> Iterator[RegionMapping]:
    """Mappings a step away: of the nodes above (kind 0), or of a member's own."""
    if not kind:
        outer = {r: n for p in region.members for r, n in p.sizes.items()}
        paths = [path for path in mapping.paths if not any(path == other[: len(path)] for other in mapping.paths if other != path)]
        for tiles in _steps([node.tile for node in mapping.nodes], outer, paths):
            cut = replace(mapping, nodes=tuple(node._replace(tile=tile) for node, tile in zip(mapping.nodes, tiles, strict=True)))
            yield replace(cut, branches=tuple(_cut(one, cut.above(i)[-1].tile) for i, one in enumerate(mapping.branches)))
        return
    i, branch = kind - 1, mapping.branches[kind - 1]
    core = mapping.above(i)[-1].tile
    for other in (*_own(branch, {r: core[r] for r in region.members[i].sizes}), *_spread(branch, region.machines[i].levels)):
        yield replace(mapping, branches=(*mapping.branches[:i], other, *mapping.branches[i + 1 :]))


def _own(branch: NestMapping, core: Mapping[str, int]) -> Iterator[NestMapping]:
    places = [(level, k) for level in range(1, len(branch.levels)) for k in range(len(branch.levels[level].nodes))]
    for tiles in _steps([branch.levels[level].nodes[k].tile for level, k in places], core, [range(len(places))]):
        of = dict(zip(places, tiles, strict=True))
        levels = [
            replace(v, nodes=tuple(StorageNode(n.tensor, dict(of[level, k])) for k, n in enumerate(v.nodes))) if level else v
            for level, v in enumerate(branch.levels)
        ]
        yield replace(branch, levels=tuple(levels))


def _cut(branch: NestMapping, core: Mapping[str, int]) -> NestMapping:
    """A branch below smaller tiles."""

    def nodes(level: LevelMapping) -> tuple[StorageNode, ...]:
        return tuple(StorageNode(n.tensor, {r: min(t, core[r]) for r, t in n.tile.items()}) for n in level.nodes)

    return replace(branch, levels=(branch.levels[0], *(replace(v, nodes=nodes(v)) for v in branch.levels[1:])))


def _steps(tiles: Tiles, outer: Mapping[str, int], paths: Sequence[Sequence[int]]) -> Iterator[list[dict[str, int]]]:
    """Lists of tiles in which one run of equal tiles is another. paths: numbers of tiles that nest, outer → inner, from each innermost one
    up."""
    before = {j: path[n - 1] for path in paths for n, j in enumerate(path) if n}
    for r in outer:
        given: dict[tuple[tuple[int, ...], int], None] = {}
        for path in paths:
            given |= dict.fromkeys(_runs([tiles[j][r] for j in path], outer[r], path))
        for run, new in given:
            low: list[int] = []
            for j, t in enumerate(tiles):
                low.append(new if j in run else min(t[r], low[before[j]]) if j in before else t[r])
            yield [{**t, r: n} for t, n in zip(tiles, low, strict=True)]


def _runs(sizes: Sequence[int], outer: int, path: Sequence[int]) -> Iterator[tuple[tuple[int, ...], int]]:
    """(numbers of a run of equal tiles of a list that nests, another size for them)."""
    first = 0
    while first < len(sizes):
        size, last = sizes[first], first
        while last + 1 < len(sizes) and sizes[last + 1] == size:
            last += 1
        above = sizes[first - 1] if first else outer
        for begin, end in dict.fromkeys([(first, last), *((j, last) for j in range(first + 1, last + 1)), (first, first)]):
            for new in _sizes(size, above if begin == first else size):
                yield tuple(path[begin : end + 1]), new
        first = last + 1


def _sizes(size: int, above: int) -> list[int]:
    """Other sizes of a tile within one of `above`."""
    count = -(-above // size)
    wanted = [-(-above // n) for n in (*(count + k for k in MORE), count // 2, 2 * count) if n >= 1]
    return [n for n in dict.fromkeys((*wanted, above, size + 1, size - 1)) if 1 <= n <= above and n != size]


def _spread(branch: NestMapping, levels: Sequence[NestLevel]) -> Iterator[NestMapping]:
    """Branches with other spatial vectors: one rank dealt fewer parts and another more."""
    ranks = list(branch.levels[0].nodes[0].tile)
    for k, (level, v) in enumerate(zip(branch.levels, levels, strict=True)):
        changed = [replace(level, x=new) for new in _vectors(level.x, ranks, v.fan.x)]
        changed += [replace(level, y=new) for new in _vectors(level.y, ranks, v.fan.y)]
        for one in changed:
            yield replace(branch, levels=(*branch.levels[:k], one, *branch.levels[k + 1 :]))


def _vectors(vector: Mapping[str, int], ranks: Sequence[str], limit: int) -> Iterator[dict[str, int]]:
    """Vectors a step away within a side of a fan."""
    if limit == 1:
        return
    used = 1
    for n in vector.values():
        used *= n
    for r in ranks:
        others = used // vector.get(r, 1)
        for n in dict.fromkeys((limit // others, vector.get(r, 1) + 1, vector.get(r, 1) - 1)):
            if 1 <= n <= limit // others and n != vector.get(r, 1):
                yield {q: m for q, m in {**vector, r: n}.items() if m > 1}
        for q in ranks:
            if q != r and vector.get(r, 1) > 1:
                left = {**vector, r: 1}
                rest = used // vector[r]
                n = limit // (rest // left.get(q, 1))
                yield {s: m for s, m in {**left, q: n}.items() if m > 1}
