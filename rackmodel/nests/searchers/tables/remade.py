"""A nest that loops around it run again: counted as the einsum with one more rank for each such loop (region_loops.again_in).

The search of the nest itself knows nothing of it: every running costs the same, and what lies above is shared among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from rackmodel.nests.evaluate import NestCost, evaluate
from rackmodel.nests.mapping import NestMapping, StorageNode
from rackmodel.nests.problem import NestMachine, NestProblem
from rackmodel.nests.region_loops import again_in


@dataclass(frozen=True)
class Remade:
    """times: rank that an einsum lacks → how often it runs for it · tiles: of each such rank at the nodes above the einsum's own that hold
    its tensors, outer → inner (1 below)."""

    times: Mapping[str, int] = field(default_factory=dict)
    tiles: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @property
    def runs(self) -> int:
        """How often the einsum runs."""
        return prod(self.times.values())

    def problem(self, problem: NestProblem) -> NestProblem:
        """The einsum with these ranks."""
        return again_in(problem, self.times) if self.times else problem

    def mapping(self, mapping: NestMapping) -> NestMapping:
        """A mapping of one running → of all."""
        if not self.times:
            return mapping
        levels = []
        for number, level in enumerate(mapping.levels):
            nodes = tuple(self._node(node, number, k) for k, node in enumerate(level.nodes))
            levels.append(replace(level, nodes=nodes))
        return replace(mapping, levels=tuple(levels))

    def _node(self, node: StorageNode, level: int, k: int) -> StorageNode:
        more = {}
        for rank, times in self.times.items():
            above = self.tiles[rank]
            more[rank] = times if level == 0 else above[k] if level == 1 and k < len(above) else 1
        return replace(node, tile={**node.tile, **more})

    def each(self, problem: NestProblem, machine: NestMachine, mapping: NestMapping, inside: frozenset[str]) -> NestCost:
        """What one running costs, with its share of what lies above."""
        cost = evaluate(self.problem(problem), machine, self.mapping(mapping), inside)
        if not self.times:
            return cost
        times = {port: seconds / self.runs for port, seconds in cost.times_s.items()}
        return replace(cost, energy_j=cost.energy_j / self.runs, latency_s=cost.latency_s / self.runs, times_s=times)
