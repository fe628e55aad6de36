"""A number that a paper prints beside the one that its own inputs give: agrees where ours rounds or truncates to its digits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rackmodel.carbon.tables import CarbonTables
from rackmodel.studies.findings import Finding

Computed = float | str | None


@dataclass(frozen=True)
class Claim:
    """One printed number. printed: its digits as printed, or a word · computed: ours, None where the paper lacks an input ·
    unit: of both · why: what makes the difference."""

    name: str
    figure: str
    text: str
    printed: str
    computed: Computed
    unit: str = ""
    why: str = ""

    @property
    def agrees(self) -> bool:
        """Whether ours is the printed one to its last digit."""
        if self.computed is None:
            return False
        if isinstance(self.computed, str):
            return self.computed == self.printed
        return within_digits(self.printed, self.computed)

    def finding(self) -> Finding:
        """As a finding: 'does not reproduce: printed X, computed Y, because Z' where it does not."""
        claim = f"{self.text}: {self.printed} {self.unit}".rstrip()
        figures = {} if not isinstance(self.computed, float) else {"computed": self.computed}
        if not isinstance(self.computed, str) and _number(self.printed) is not None:
            figures = {"printed": _number(self.printed) or 0.0, **figures}
        if self.computed is None:
            return Finding(self.name, self.figure, claim, "printed", "not decidable", figures, f"does not reproduce: {self.why}")
        if self.agrees:
            return Finding(self.name, self.figure, claim, "printed", "agrees", figures, self.why)
        ours = self.computed if isinstance(self.computed, str) else f"{self.computed:.4g}"
        fact = f"does not reproduce: printed {self.printed}, computed {ours} {self.unit}".rstrip()
        return Finding(self.name, self.figure, claim, "printed", "disagrees", figures, f"{fact}, because {self.why}")


def claims_of(tables: CarbonTables, computed: Mapping[str, Computed]) -> list[Claim]:
    """The conclusions of the tables that a study computes, in its order."""
    found = []
    for name, value in computed.items():
        said = tables.claims[name]
        found.append(Claim(name, said.figure, said.text, said.printed, value, said.unit, said.why))
    return found


def within_digits(printed: str, computed: float) -> bool:
    """Whether a number rounds or truncates to the digits as printed ('65.39', '182,321')."""
    text = printed.replace(",", "")
    step = 10.0 ** -len(text.partition(".")[2])
    value, slack = float(text), 1e-9 * max(1.0, abs(computed))
    rounds = abs(computed - value) <= step / 2 + slack
    return rounds or abs(math.floor(computed / step + 1e-9) * step - value) <= slack


def _number(printed: str) -> float | None:
    try:
        return float(printed.replace(",", ""))
    except ValueError:
        return None
