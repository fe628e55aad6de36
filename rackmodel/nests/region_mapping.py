"""A mapping of a region of einsums, tiles of any size, and what it costs: the definition that searches of ragged tiles are held to.

Above every member lie nodes that it has in common with others: prefix tensors and, at the end of each span, its core. A tile of extent e
cut to t is floor(e / t) tiles of t and one of e mod t, so the members within run on tiles of two sizes for every rank that is cut once, of
more where it is cut again. Each member is priced by `evaluate` as an einsum of its own whose nodes are those above and its own: its counts
are sums over all these tiles. Cuts of nodes that hold nothing of it are part of its chain where they do not divide (StorageNode, tensor
""). A member that lacks a rank runs again for every tile of it (region_loops.again_in). Derivation: docs/nest_theory.md, sections 6 and 7.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import NamedTuple

from rackmodel.errors import InfeasibleError, RackmodelError
from rackmodel.nests.evaluate import NestCost, evaluate
from rackmodel.nests.mapping import LevelMapping, NestMapping, StorageNode, entry_tiles, whole_nodes
from rackmodel.nests.problem import NestProblem
from rackmodel.nests.region import Region, RunningRows
from rackmodel.nests.region_loops import RegionLoops, Span, again_in, paths_of
from rackmodel.nests.tile_counts import Split, count_and_cover, histogram


class RegionNode(NamedTuple):
    """A node above members: the span whose loops lie above it, the outer tensor that it holds ("": what lives in that span, its core), and
    the tile of every rank of the region."""

    span: int
    tensor: str
    tile: Mapping[str, int]


@dataclass(frozen=True)
class RegionMapping:
    """spans: of members with loops around them, as every_nesting lists them · nodes: span by span, outer → inner, a core at the end of
    each; the first of a span follows the core of the span around it · branches: of each member what lies below: of level 1 its own nodes
    alone, of the others all."""

    spans: tuple[Span, ...]
    nodes: tuple[RegionNode, ...]
    branches: tuple[NestMapping, ...]

    @cached_property
    def paths(self) -> list[list[int]]:
        """Per span: numbers of the nodes above what lies in it, outer → inner."""
        return [[j for j, node in enumerate(self.nodes) if node.span in path] for path in paths_of(self.spans)]

    def above(self, i: int) -> list[RegionNode]:
        """The nodes above member i, its core the last."""
        span = max(k for k, (first, last) in enumerate(self.spans) if first <= i <= last)
        return [self.nodes[j] for j in self.paths[span]]


@dataclass(frozen=True)
class PricedRegion:
    """The members as they run (with a rank more for loops that run one again), their whole mappings (nodes above the intermediates agree),
    costs, tensors that they find on chip; joules and seconds of running statistics and of operations made again."""

    problems: tuple[NestProblem, ...]
    mappings: tuple[NestMapping, ...]
    costs: tuple[NestCost, ...]
    inside: tuple[frozenset[str], ...]
    running: tuple[float, float]

    @property
    def energy_j(self) -> float:
        """Joules of the region."""
        return sum(c.energy_j for c in self.costs) + self.running[0]

    @property
    def latency_s(self) -> float:
        """Seconds of the region: its members one after another."""
        return sum(c.latency_s for c in self.costs) + self.running[1]


def price_region(region: Region, mapping: RegionMapping, loops: RegionLoops | None = None) -> PricedRegion:
    """What a mapping of a region costs. loops: those of its spans, if they are at hand.

    Errors: RackmodelError where loops cut what they may not or tiles do not nest, InfeasibleError where level 1 (or another) overflows.
    """
    return _Pricing(region, mapping, loops or RegionLoops(region, mapping.spans, again=True)).priced()


class _Pricing:
    def __init__(self, region: Region, mapping: RegionMapping, loops: RegionLoops) -> None:
        self.region, self.mapping, self.loops, self.nodes, self.sizes = region, mapping, loops, mapping.nodes, region.sizes
        self.cores = {node.span: j for j, node in enumerate(self.nodes) if not node.tensor}

    def priced(self) -> PricedRegion:
        """Every member, then what is carried and made again."""
        self._check()
        runs = [self._member(i) for i in range(len(self.region.members))]
        problems, mappings, costs, inside = zip(*runs, strict=True)
        return PricedRegion(problems, mappings, costs, inside, self._running())

    # -- legality
    def _check(self) -> None:
        for j, node in enumerate(self.nodes):
            path = self.mapping.paths[node.span]
            outer = path[: path.index(j)]
            now = self.nodes[outer[-1]].tile if outer else self.sizes
            allowed = self.loops.cuts[node.span] | (self.region.shared if node.span == 0 else frozenset())
            for r, tile in node.tile.items():
                if not 1 <= tile <= now[r]:
                    raise RackmodelError(f"{node.tensor or 'core'}: tile {tile} of {r} does not fit into {now[r]}")
                if tile < now[r] and r not in allowed:
                    first, last = self.mapping.spans[node.span]
                    around = ", ".join(p.name for p in self.region.members[first : last + 1])
                    raise RackmodelError(f"loops around {around} may not cut {r}")

    # -- tiles
    def pieces(self, rank: str, first: int, last: int) -> int:
        """Tiles of a rank at node `last` of one whole tile of node `first` (-1: the whole rank), which lies above it."""
        start = self.sizes[rank] if first < 0 else self.nodes[first].tile[rank]
        chain = [Split(self.nodes[j].tile[rank]) for j in self.mapping.paths[self.nodes[last].span] if first < j <= last]
        return count_and_cover(histogram(start, chain, frozenset()))[0]

    def times(self, i: int) -> int:
        """How often member i runs."""
        core, sizes = self.cores[self.loops.span_of[i]], self.region.members[i].sizes
        return prod(self.pieces(r, -1, core) for r in self.sizes if r not in sizes)

    # -- a member
    def _member(self, i: int) -> tuple[NestProblem, NestMapping, NestCost, frozenset[str]]:
        region, once, branch = self.region, self.region.members[i], self.mapping.branches[i]
        core = self.cores[self.loops.span_of[i]]
        lacked = {r: n for r in self.sizes if r not in once.sizes and (n := self.pieces(r, -1, core)) > 1}
        problem = again_in(once, {f"again_{r}": n for r, n in lacked.items()})
        own = tuple(self._tile(once, node.tile, dict.fromkeys(lacked, 1), node.tensor) for node in branch.levels[1].nodes)
        levels = [LevelMapping(branch.levels[0].level, whole_nodes(problem))]
        first = replace(branch.levels[1], nodes=(*self._shared(i, problem, lacked), *own))
        rest = [
            replace(v, nodes=tuple(self._tile(once, n.tile, dict.fromkeys(lacked, 1), n.tensor) for n in v.nodes))
            for v in branch.levels[2:]
        ]
        leaf = region.machines[i].compute.leaf(once.sizes)
        mapping = NestMapping(once.name, branch.machine, (*levels, _needed(first, entry_tiles(branch, leaf)[1], problem), *rest))
        names = {t.name for t in once.tensors}
        charged = {node.tensor for node in self.mapping.above(i) if node.tensor in names and self._payer(node) == i}
        found = {*region.held, *region.resident, *(node.tensor for node in self.mapping.above(i))}
        inside = frozenset((names & found) - charged)
        self._check_room(i)
        return problem, mapping, evaluate(problem, region.machines[i], mapping, inside), inside

    def _payer(self, node: RegionNode) -> int:
        """The member on whose account the words of a prefix tensor are: the first of the span that uses it."""
        first, last = self.mapping.spans[node.span]
        return next(i for i in self.region.outer[node.tensor][1] if first <= i <= last)

    @staticmethod
    def _tile(problem: NestProblem, tile: Mapping[str, int], again: Mapping[str, int], tensor: str) -> StorageNode:
        return StorageNode(tensor, {**{r: tile[r] for r in problem.sizes}, **{f"again_{r}": n for r, n in again.items()}})

    def _shared(self, i: int, problem: NestProblem, lacked: Mapping[str, int]) -> list[StorageNode]:
        """Nodes of level 1 above a member's own; those that hold nothing of it have no tensor."""
        once, names, core = self.region.members[i], {t.name for t in problem.tensors}, self.cores[self.loops.span_of[i]]
        found = [StorageNode(n, dict(problem.sizes)) for n in sorted(self.region.resident & names)]
        for j in self.mapping.paths[self.loops.span_of[i]]:
            node = self.nodes[j]
            again = {r: self.pieces(r, j, core) for r in lacked}
            living = [name for name, span in self.loops.lives.items() if span == node.span] if not node.tensor else [node.tensor]
            mine = [name for name in living if name in names] or [""]
            found += [self._tile(once, node.tile, again, name) for name in mine]
        return found

    def _check_room(self, i: int) -> None:
        """Level 1 while member i runs: residents, prefixes, what lives there then, statistics, its own nodes."""
        region, level = self.region, self.region.machines[i].levels[1]
        if level.capacity_bits is None:
            return
        own = self.mapping.branches[i].levels[1].nodes
        used = sum(self._bits(n, self.sizes) for n in region.resident)
        used += sum(self._bits(node.tensor, node.tile) for node in self.mapping.above(i) if node.tensor)
        used += sum(self._bits(name, self.nodes[self.cores[self.loops.lives[name]]].tile) for name in self.loops.live(i))
        used += sum(self._bits(node.tensor, node.tile) for node in own)
        used += sum(one.bits * self._rows(one, self.loops.around(i)) for one in region.running)
        if used > level.capacity_bits:
            change = f"a capacity of {used:g} bits, or smaller tiles"
            raise InfeasibleError(resource=level.name, need=used, have=level.capacity_bits, unit="bits", change=change)

    def _bits(self, name: str, tile: Mapping[str, int]) -> float:
        """Bits of level 1 for a tile of a tensor."""
        i, tensor = next((i, t) for i, p in enumerate(self.region.members) for t in p.tensors if t.name == name)
        level = self.region.machines[i].levels[1]
        return float(level.buffers * level.bits(tensor) * tensor.tile_words(tile))

    # -- statistics
    def _rows(self, one: RunningRows, around: Sequence[int]) -> int:
        """Rows whose statistics are held while a member runs, within the spans `around`: of the tile within the outermost loop along them,
        of every time that the tile is made again within it."""
        span = self.loops.lives[one.of]
        home = self.cores[span]
        cut = next((j for j in self.mapping.paths[span] if self.nodes[j].tile.get(one.over, 1) < self.sizes[one.over]), None)
        if cut is None or self.nodes[cut].span not in around:
            return 0
        maker = self.region.members[self.region.held[one.of][0]]
        kept = prod(self.nodes[cut].tile[r] for r in self.region.intermediate(one.of).ranks if r != one.over)
        return kept * prod(self.pieces(r, cut, home) for r in self.sizes if r not in maker.sizes)

    def _running(self) -> tuple[float, float]:
        joules = seconds = 0.0
        for one in self.region.running:
            maker, reader = self.region.held[one.of]
            further = self.pieces(one.over, -1, self.cores[self.loops.lives[one.of]]) - 1
            made, read = further * self.times(maker), further * self.times(reader)
            joules += made * one.joules + read * one.scaled[0]
            seconds += made * one.seconds + read * one.scaled[1]
        for name, (spent, taken) in self.region.between.items():
            more = self.times(self.region.held[name][0]) - 1
            joules, seconds = joules + more * spent, seconds + more * taken
        return joules, seconds


def _needed(level: LevelMapping, entry: Mapping[str, int], problem: NestProblem) -> LevelMapping:
    """Without nodes that only cut and whose cut changes no count: what is cut next divides it. entry: tile that enters what is below."""
    inner: dict[str, int] = {r: entry.get(r, 1) * level.spatial(r) for r in problem.sizes}
    kept: list[StorageNode] = []
    for node in reversed(level.nodes):
        if node.tensor or any(node.tile[r] % inner[r] for r in problem.sizes):
            kept.insert(0, node)
            inner = dict(node.tile)
    return replace(level, nodes=tuple(kept))
