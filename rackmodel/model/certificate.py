"""How good an answer is, and why that is known.

    gap = (objective − bound) / objective        0: nothing of the space is better · 1, or no bound: nothing is known

Its status in words is the same wherever it is shown: `proven`, `within x %` (the best of the space is at most x % lower; rounded up)
or `best found`. A mapping that was given was not searched for, and says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

PROVEN, BEST_FOUND, GIVEN = "proven", "best found", "given, not searched"
CLOSE = 1e-9  # a gap of rounding


def status_of(gap: float) -> str:
    """A gap in words: 'proven', 'within 3.1 %', 'best found'."""
    if not math.isfinite(gap) or gap < 0 or gap >= 1:
        return BEST_FOUND
    if gap <= CLOSE:
        return PROVEN
    percent = 100 * gap
    digits = max(0, 1 - math.floor(math.log10(percent)))
    above = math.ceil(percent * 10**digits * (1 - 1e-9)) / 10**digits
    return f"within {above:.{min(digits, 9)}f} %" if above < 100 else BEST_FOUND


def bound_and_gap(objective: float, bound: float) -> tuple[float, float]:
    """(bound, gap) of an answer, whose own figure bounds it, too: a gap of rounding is none."""
    bound = min(objective, bound)
    gap = (objective - bound) / objective if objective > 0 else 0.0
    return (objective, 0.0) if gap <= CLOSE else (bound, gap)


@dataclass(frozen=True)
class Certificate:
    """The certificate of one answer.

    space: mappings in the declared space · evaluated: priced · pruned: by bound name · infeasible: by resource ·
    objective, bound: in the objective's unit · gap: (objective − bound) / objective, 0 = proven · nests: contraction →
    the certificate of its loop nest · searched: whether the mapping was searched for, not given.
    """

    solver: str
    minimize: str
    space: float
    evaluated: int
    objective: float
    bound: float
    gap: float
    pruned: dict[str, float] = field(default_factory=dict)
    infeasible: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    profile: str = "ideal"
    note: str = ""
    nests: dict[str, dict[str, Any]] = field(default_factory=dict)
    searched: bool = True

    @property
    def status(self) -> str:
        """'proven', 'within x %' or 'best found'; of a mapping that was given 'given, not searched'."""
        return status_of(self.gap) if self.searched else GIVEN

    @property
    def proven(self) -> bool:
        """Whether nothing of the space is better."""
        return self.status == PROVEN

    def of(self, objective: float) -> Certificate:
        """That of another answer of the same search: how far it may be above the least."""
        gap = (objective - self.bound) / objective if objective > 0 else 0.0
        return replace(self, objective=objective, gap=gap if gap > CLOSE else 0.0)

    def under(self, figure: Callable[[float], float]) -> Certificate:
        """In a figure that grows with the one that was searched, and is 0 where it is."""
        objective = figure(self.objective)
        gap = 1 - figure(self.objective * (1 - self.gap)) / objective if self.gap and objective > 0 else self.gap
        return replace(self, objective=objective, bound=figure(self.bound), gap=gap)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"status": self.status, **self.__dict__}
