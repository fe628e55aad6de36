"""The tiles of a mapping rank by rank, outer to inner: what counts of tiles, words and instances are read from."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from rackmodel.nests.mapping import NestMapping, entry_tiles
from rackmodel.nests.problem import NestMachine, NestProblem, NestTensor, index_term
from rackmodel.nests.tile_counts import Split, count_and_cover, histogram


class Indexed(NamedTuple):
    """How a tensor is indexed, ranks of one apart: ranks that it lacks · ranks that are an index by themselves · sums of (factor, rank)."""

    lacked: list[str]
    plain: list[str]
    sums: list[list[tuple[int, str]]]


class Chains:
    """The splits of every rank, and where in them each storage node and fanout sits."""

    def __init__(self, problem: NestProblem, machine: NestMachine, mapping: NestMapping) -> None:
        self.problem, self.machine, self.mapping = problem, machine, mapping
        self.leaf = machine.compute.leaf(problem.sizes)
        entries = entry_tiles(mapping, self.leaf)
        self.chain: dict[str, list[Split]] = {r: [] for r in problem.sizes}
        self.position: dict[tuple[int, str], int] = {}
        depth = 0
        for lv, level in enumerate(mapping.levels):
            for node in level.nodes:
                if lv:
                    for r in problem.sizes:
                        self.chain[r].append(Split(node.tile[r]))
                    depth += 1
                if node.tensor:
                    self.position[lv, node.tensor] = depth
            for r in problem.sizes:
                self.chain[r] += [Split(entries[lv][r] * level.spatial(r)), Split(entries[lv][r], fan=lv)]
            depth += 2
        self.end = depth
        anyone = self.chain[next(iter(problem.sizes))]
        self.after_fan = [i + 1 for i, s in enumerate(anyone) if s.fan is not None]
        self.cuts = {r: self._cuts(r) for r in problem.sizes}
        self._memo: dict[tuple[str, int, frozenset[int], bool], tuple[int, int]] = {}
        self._indexed: dict[str, Indexed] = {}  # by tensor

    def _cuts(self, rank: str) -> tuple[list[Split], list[int], list[frozenset[int]]]:
        """(splits of a rank that cut anything, how many of them are among the first so many splits, the fans of the first so many)."""
        least, found, among = self.problem.sizes[rank], list[Split](), [0]
        for split in self.chain[rank]:
            if split.tile < least:
                found.append(split)
                least = split.tile
            among.append(len(found))
        fans = [frozenset(split.fan for split in found[:n] if split.fan is not None) for n in range(len(found) + 1)]
        return found, among, fans

    def stats(self, rank: str, depth: int, first: frozenset[int], first_time: bool = False) -> tuple[int, int]:
        """(pieces, covered size) of `rank` after `depth` splits; see tile_counts."""
        cuts, among, fans = self.cuts[rank]
        n = among[depth]
        key = (rank, n, fans[n] & first, first_time)
        if key not in self._memo:
            self._memo[key] = count_and_cover(histogram(self.problem.sizes[rank], cuts[:n], first, first_time))
        return self._memo[key]

    def words(self, tensor: NestTensor, depth: int, first_all: frozenset[int], first_irrelevant: frozenset[int]) -> int:
        """Words of `tensor` moved by a node at `depth`.

        Fans in `first_all` count one instance for every rank, those in `first_irrelevant` for ranks it lacks.
        A sum of indices has extent 1 + sum c (e - 1): prod(counts) (1 - sum c) + sum_i c_i cover_i prod_others(counts).
        """
        total, indexed, first = 1, self._of(tensor), first_all | first_irrelevant
        for r in indexed.lacked:
            total *= self.stats(r, depth, first)[0]
        for r in indexed.plain:
            total *= self.stats(r, depth, first_all)[1]
        for sums in indexed.sums:
            terms = [(c, *self.stats(r, depth, first_all)) for c, r in sums]
            pieces = prod(n for _, n, _ in terms)
            total *= pieces * (1 - sum(c for c, _, _ in terms)) + sum(c * s * pieces // n for c, n, s in terms)
        return total

    def _of(self, tensor: NestTensor) -> Indexed:
        if tensor.name not in self._indexed:
            cut, terms = [r for r, n in self.problem.sizes.items() if n > 1], [[*map(index_term, index)] for index in tensor.indices]
            plain = [r for (c, r), *others in terms if c == 1 and not others]
            sums = [index for index in terms if len(index) > 1 or index[0][0] != 1]
            lacked = [r for r in cut if r not in tensor.ranks]
            self._indexed[tensor.name] = Indexed(lacked, [r for r in plain if r in cut], sums)
        return self._indexed[tensor.name]

    def fresh(self, tensor: NestTensor, level: int, first: frozenset[int]) -> int:
        """Output words whose first read is free at `level`: one per element and per instance that accumulates it."""
        depth = 0 if level == 0 else self.after_fan[level - 1]
        total = 1
        for r in self.problem.sizes:
            relevant = r in tensor.ranks
            total *= self.stats(r, depth, first, first_time=not relevant)[1 if relevant else 0]
        return total

    def instances(self, level: int) -> int:
        """Instances of `level` in use (fullest path): product of the parts each fanout above it is cut into."""
        if level == 0:
            return 1
        return prod(self.stats(r, self.after_fan[level - 1], frozenset(), True)[0] for r in self.problem.sizes)

    def sharers(self, tensor: NestTensor) -> int:
        """Cores that work with a word of a tensor at home: parts of the first fan over ranks it lacks."""
        return prod(self.stats(r, self.after_fan[0], frozenset(), True)[0] for r in self.problem.sizes if r not in tensor.ranks)

    def ever(self, tensor: NestTensor) -> int:
        """Words of a tensor that the fullest core works with over the whole operation."""
        return prod(self.stats(r, self.after_fan[0], frozenset({0}))[1] for r in tensor.ranks)

    def waves(self, level: int) -> int:
        """Rounds the linear fans above `level` need: prod ceil(parts / units)."""
        total = 1
        for f in range(level):
            fan = self.machine.levels[f].fan
            if fan.linear:
                others = frozenset(range(len(self.mapping.levels))) - {f}
                parts = prod(self.stats(r, self.after_fan[f], others, True)[0] for r in self.problem.sizes)
                total *= -(-parts // fan.size)
        return total
