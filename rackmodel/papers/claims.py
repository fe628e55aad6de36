"""A number that a paper prints beside the one that its own inputs give: agrees where ours rounds or truncates to its digits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from rackmodel.carbon.tables import CarbonTables
from rackmodel.studies.findings import Finding, Need, Verdict

Computed = float | str | None
LACKING = "an input is not printed"


@dataclass(frozen=True)
class Claim:
    """One printed number. printed: its digits as printed, or a word · computed: ours, None where the paper lacks an input ·
    unit: of both · why: what makes the difference · readings: words → what ours is if the paper is read so; where they differ in
    their verdicts the claim is not decidable."""

    name: str
    figure: str
    text: str
    printed: str
    computed: Computed
    unit: str = ""
    why: str = ""
    readings: Mapping[str, float | str] = field(default_factory=dict)

    @property
    def agrees(self) -> bool:
        """Whether ours is the printed one to its last digit."""
        if self.computed is None:
            return False
        if isinstance(self.computed, str):
            return self.computed == self.printed
        return within_digits(self.printed, self.computed)

    def finding(self, by_construction: str = "") -> Finding:
        """As a finding: 'does not reproduce: printed X, computed Y, because Z' where it does not. by_construction: why it must agree."""
        claim = f"{self.text}: {self.printed} {self.unit}".rstrip()
        figures = {} if not isinstance(self.computed, float) else {"computed": self.computed}
        if not isinstance(self.computed, str) and _number(self.printed) is not None:
            figures = {"printed": _number(self.printed) or 0.0, **figures}
        needs = self._needs()
        if self.computed is None:
            return Finding(
                self.name, self.figure, claim, "printed", "not decidable", figures, f"does not reproduce: {self.why}", condition=LACKING
            )
        if len({self._same(value) for value in self.readings.values()}) > 1:
            return self._by_reading(claim, figures)
        if self.agrees:
            return Finding(self.name, self.figure, claim, "printed", "agrees", figures, self.why, needs, by_construction)
        ours = self.computed if isinstance(self.computed, str) else f"{self.computed:.4g}"
        fact = f"does not reproduce: printed {self.printed}, computed {ours} {self.unit}".rstrip()
        return Finding(self.name, self.figure, claim, "printed", "disagrees", figures, f"{fact}, because {self.why}", needs)

    def _by_reading(self, claim: str, figures: dict[str, float]) -> Finding:
        words = {True: "agrees", False: "disagrees"}
        said = "; ".join(
            f"{words[self._same(value)]} ({value if isinstance(value, str) else f'{value:.4g}'}) with {reading}"
            for reading, value in self.readings.items()
        )
        plain = {reading: value for reading, value in self.readings.items() if isinstance(value, float)}
        verdict: Verdict = "not decidable"
        return Finding(self.name, self.figure, claim, "printed", verdict, figures | plain, self.why, condition=said)

    def _same(self, value: float | str) -> bool:
        return value == self.printed if isinstance(value, str) else within_digits(self.printed, value)

    def _needs(self) -> tuple[Need, ...]:
        """The printed digits as bounds: half a digit below, for what is rounded, to one above, for what is cut."""
        number = _number(self.printed)
        if number is None or not isinstance(self.computed, float):
            return ()
        step = last_digit(self.printed)
        return (Need("computed", self.computed, number - step / 2, number + step),)


def claims_of(
    tables: CarbonTables, computed: Mapping[str, Computed], readings: Mapping[str, Mapping[str, float | str]] | None = None
) -> list[Claim]:
    """The conclusions of the tables that a study computes, in its order. readings: name → ours by each way to read it."""
    found = []
    for name, value in computed.items():
        said = tables.claims[name]
        found.append(Claim(name, said.figure, said.text, said.printed, value, said.unit, said.why, (readings or {}).get(name, {})))
    return found


def within_digits(printed: str, computed: float) -> bool:
    """Whether a number rounds or truncates to the digits as printed ('65.39', '182,321')."""
    text = printed.replace(",", "")
    step = last_digit(printed)
    value, slack = float(text), 1e-9 * max(1.0, abs(computed))
    rounds = abs(computed - value) <= step / 2 + slack
    return rounds or abs(math.floor(computed / step + 1e-9) * step - value) <= slack


def last_digit(printed: str) -> float:
    """What one of the last printed digit is worth."""
    return float(10.0 ** -len(printed.replace(",", "").partition(".")[2]))


def _number(printed: str) -> float | None:
    try:
        return float(printed.replace(",", ""))
    except ValueError:
        return None
