"""Findings: what a claim says, what it needs of our figures, and the verdict that follows (papers' own are in papers/).

A claim needs that figures lie inside bounds. It agrees where all do. Its margin is how far, relative to the larger of figure and
bound, the figures are from the other verdict: for a claim that agrees the least over its needs, else the most over those that fail.
Margins of less than NEAR decide nothing. What cannot come out otherwise is 'by construction', and says why.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Verdict = Literal["agrees", "disagrees", "not decidable"]
NEAR = 1e-3


@dataclass(frozen=True)
class Need:
    """A figure and the bounds that a claim sets it. words: what it is · value: ours · least, most: bounds, both allowed."""

    words: str
    value: float
    least: float = -math.inf
    most: float = math.inf

    @property
    def margin(self) -> float:
        """Relative distance to the nearer bound: above 0 inside, below outside."""
        return min(_distance(self.value, self.least), _distance(self.most, self.value))

    @property
    def side(self) -> int:
        """-1 below its bounds, 1 above, 0 inside."""
        return -1 if self.value < self.least else int(self.value > self.most)

    def to_text(self) -> str:
        """'ratio 1.3, at least 1'."""
        bounds = [f"{word} {bound:.6g}" for word, bound in (("at least", self.least), ("at most", self.most)) if math.isfinite(bound)]
        return f"{self.words} {self.value:.4g}, {' and '.join(bounds)}"


def _distance(high: float, low: float) -> float:
    """(high - low) over the larger of the two in size; 0 where both are 0, infinite where one is."""
    if math.isinf(high) or math.isinf(low):
        return math.inf
    size = max(abs(high), abs(low))
    return (high - low) / size if size else 0.0


def near(words: str, value: float, wanted: float, within: float) -> Need:
    """A figure that lies within a share of what is claimed."""
    return Need(words, value, wanted * (1 - within), wanted * (1 + within))


@dataclass(frozen=True)
class Finding:
    """One claim. figure: its place in the paper · weight: how firmly the paper implies it ('must', 'should', 'printed'), or 'ours' ·
    figures: what was compared · why: how to read it · needs: what decides · by_construction: why it could not come out otherwise ·
    condition: where the verdict holds, said once its inputs were varied · rests: the inputs that move its figures ·
    drawn: more of the same figures, for charts alone: the rest of a curve."""

    name: str
    figure: str
    claim: str
    weight: str
    verdict: Verdict
    figures: dict[str, float] = field(default_factory=dict)
    why: str = ""
    needs: tuple[Need, ...] = ()
    by_construction: str = ""
    condition: str = ""
    rests: tuple[str, ...] = ()
    drawn: dict[str, float] = field(default_factory=dict)

    @property
    def said(self) -> str:
        """The verdict with its condition."""
        if self.by_construction:
            return f"{self.verdict} by construction"
        own_verb = self.condition.startswith(("agrees", "disagrees", "not"))
        joint = ": " if self.verdict == "not decidable" else "; " if own_verb else " "
        return f"{self.verdict}{joint}{self.condition}" if self.condition else self.verdict

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        plain = {name: value for name, value in self.__dict__.items() if name not in ("needs", "drawn")}
        return plain | {"said": self.said, "needs": [need.to_text() for need in self.needs], "rests": list(self.rests)}


def margin_of(needs: Sequence[Need]) -> float:
    """How far the figures are from the other verdict: above 0 where the claim agrees."""
    margins = [need.margin for need in needs]
    failing = [margin for margin in margins if margin < 0]
    return min(failing) if failing else min(margins, default=math.inf)


def judged(
    name: str,
    figure: str,
    claim: str,
    needs: Iterable[Need],
    figures: dict[str, float],
    *,
    weight: str = "should",
    why: str = "",
) -> Finding:
    """A finding whose verdict is that of its needs."""
    decide = tuple(needs)
    margin = margin_of(decide)
    if abs(margin) < NEAR:
        return Finding(name, figure, claim, weight, "not decidable", figures, why, decide, condition=f"margin {abs(margin):.0e}")
    verdict: Verdict = "agrees" if margin >= 0 else "disagrees"
    return Finding(name, figure, claim, weight, verdict, figures, why, decide)


def certain(name: str, figure: str, claim: str, need: Need, figures: dict[str, float], reason: str) -> Finding:
    """A finding that agrees by construction, for a reason. An assert: anything else is a bug, not a disagreement."""
    assert need.margin >= 0, need.to_text()
    return Finding(name, figure, claim, "must", "agrees", figures, "", (need,), reason)


def by_reading(
    name: str,
    figure: str,
    claim: str,
    readings: Mapping[str, Iterable[Need]],
    figures: dict[str, float],
    *,
    weight: str = "should",
    why: str = "",
) -> Finding:
    """A claim that can be read in several ways: decided where all readings give one verdict, else not, and each says its own."""
    each = {words: judged(name, figure, claim, needs, figures) for words, needs in readings.items()}
    decide = tuple(need for one in each.values() for need in one.needs)
    verdicts = {one.verdict for one in each.values()}
    if len(verdicts) == 1:
        return Finding(name, figure, claim, weight, verdicts.pop(), figures, why, decide)
    said = "; ".join(f"{one.said.replace('not decidable: ', 'undecided, ')} if {words}" for words, one in each.items())
    return Finding(name, figure, claim, weight, "not decidable", figures, why, decide, condition=said)
