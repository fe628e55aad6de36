"""A solved loop nest of a contraction: what the searches of nests hand to each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, prod
from typing import Any

from rackmodel.model.certificate import status_of
from rackmodel.nests.evaluate import NestCost
from rackmodel.nests.mapping import NestMapping
from rackmodel.nests.problem import NestMachine, NestProblem
from rackmodel.nests.tile_counts import Split, count_and_cover, histogram


@dataclass(frozen=True)
class Nested:
    """One solved contraction: its mapping, recounted cost and certificate (plain data). again: rank of loops around it, of a fused region,
    that it lacked → how often it runs for it (the problem has it) · kernel: what the operations of its kernel write, of several."""

    problem: NestProblem
    machine: NestMachine
    mapping: NestMapping
    cost: NestCost
    certificate: dict[str, Any]
    resident: tuple[str, ...] = ()
    home: tuple[str, ...] = ()
    again: Mapping[str, int] = field(default_factory=dict)
    kernel: tuple[str, ...] = ()

    @property
    def runs(self) -> int:
        """How often it runs, what it writes made again each time."""
        return prod(self.again.values())

    def tiles_of(self, tensor: str, rank: str) -> int:
        """How many tiles of a rank there are at a tensor's node of the first on-chip memory; one where it has none."""
        chain: list[Split] = []
        for node in self.mapping.levels[1].nodes:
            chain.append(Split(node.tile[rank]))
            if node.tensor == tensor:
                return count_and_cover(histogram(self.problem.sizes[rank], chain, frozenset()))[0]
        return 1

    def to_dict(self) -> dict[str, Any]:
        """Plain data of a mapping file."""
        kept = {word: list(names) for word, names in (("resident", self.resident), ("home", self.home)) if names}
        more = {"again": dict(self.again)} if self.again else {}
        return {**kept, **more, **self.mapping.to_dict()}


def least_part(nests: Sequence[Nested]) -> float:
    """What is left of nests that are as far below what they cost as any of them may be."""
    return 1 - max((float(nest.certificate.get("gap", 0.0)) for nest in nests), default=0.0)


def sheet_of(sheet: Any, problem: NestProblem, mapping: NestMapping) -> dict[str, Any]:
    """A nest's certificate as plain data."""
    return {
        "space": _space(float(sheet.space), problem, mapping),
        "evaluated": int(sheet.evaluated),
        "pruned": {name: float(count) for name, count in sheet.pruned.items()},
        "objective": float(sheet.objective[0]),
        "bound": float(sheet.bound),
        "status": status_of(float(sheet.gap)),
        "gap": float(sheet.gap),
        "solver": sheet.solver,
        "notes": list(sheet.notes),
        "ties": bool(sheet.ties),
    }


def _space(said: float, problem: NestProblem, mapping: NestMapping) -> float:
    """Mappings in the space. Where tiles may have any size: every size of every rank at every storage node, both fans."""
    if isfinite(said):
        return said
    nodes = sum(len(level.nodes) for level in mapping.levels[1:])
    return float(min(prod(float(size) ** (nodes + 2) for size in problem.sizes.values()), 1e300))
