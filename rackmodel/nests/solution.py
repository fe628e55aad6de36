"""What a loop-nest search hands back: the mapping, its recounted cost, and the certificate."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rackmodel.nests.evaluate import NestCost
from rackmodel.nests.mapping import NestMapping


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
