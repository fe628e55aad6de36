"""What a loop-nest search hands back: the mapping, its recounted cost, and the certificate."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from rackmodel.nests.evaluate import NestCost
from rackmodel.nests.mapping import NestMapping
from rackmodel.nests.objective import Key, NestObjective, better


@dataclass(frozen=True)
class NestCertificate:
    """How good the mapping is, and how that is known.

    space: mappings in the declared space (orders x loop splittings x spatial vectors, before capacity; an int, or a
    float beyond 2^53) · evaluated: table cells and mappings priced · pruned: bound → slices it dropped · objective:
    (primary, tie-break) of the mapping · bound: proven lower bound on the primary · gap = (objective - bound) / objective · solver:
    the searcher that answered · seconds: CPU time of the search · ties: whether, of mappings of this very primary, none has less of the
    tie-break.
    """

    space: float
    evaluated: int
    pruned: dict[str, int]
    objective: tuple[float, float]
    bound: float
    gap: float
    solver: str
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    ties: bool = True

    @property
    def proven(self) -> bool:
        """True where bound and objective agree to 1e-9."""
        return self.gap <= 1e-9


def gap_of(objective: float, bound: float) -> float:
    """(objective - bound) / objective."""
    return 1.0 - max(bound, 0.0) / objective if objective > 0 else 0.0


@dataclass(frozen=True)
class NestSolution:
    """left: what a search for another objective may begin with, if anything."""

    mapping: NestMapping
    cost: NestCost
    certificate: NestCertificate
    left: Sequence[object] = field(default=(), compare=False, repr=False)


class Best(NamedTuple):
    """A mapping that a search has found, none better so far. key: of what is minimised · cost: as the mapping is recounted."""

    key: Key
    mapping: NestMapping
    cost: NestCost

    @classmethod
    def of(cls, objective: NestObjective, mapping: NestMapping, cost: NestCost) -> Self:
        """A mapping by an objective."""
        return cls(objective.key(cost.energy_j, cost.latency_s), mapping, cost)

    @property
    def primary(self) -> float:
        """Of its key."""
        return self.key[0]

    def under(self, objective: NestObjective) -> Self:
        """The same by another objective."""
        return self.of(objective, self.mapping, self.cost)

    def or_better(self, other: Self) -> Self:
        """Another, where that is better."""
        return other if better(other.key, self.key) else self


def better_of(best: Best | None, other: Best) -> Best:
    """The better of two, where there is a first."""
    return other if best is None else best.or_better(other)


def solved(
    best: Best,
    bound: float,
    counts: tuple[float, int, dict[str, int]],
    solver: str,
    notes: Sequence[str] = (),
    *,
    ties: bool = True,
    left: Sequence[object] = (),
) -> NestSolution:
    """What a search hands back. bound: of the primary of all that the search has left · counts: mappings of the space, cells priced, slices
    by the bound that met them · solver, notes, ties: of the certificate."""
    bound = min(best.primary, bound)
    sheet = NestCertificate(*counts, best.key, bound, gap_of(best.primary, bound), solver, notes=tuple(notes), ties=ties)
    return NestSolution(best.mapping, best.cost, sheet, left)
