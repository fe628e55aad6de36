"""Findings: what a paper claims, what we get, and whether they agree (the sets of findings are in papers/)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Verdict = Literal["agrees", "disagrees", "not decidable"]


@dataclass(frozen=True)
class Finding:
    """One claim. weight: 'must' or 'should' (how firmly the paper's own model implies it) · figures: what was compared ·
    why: how to read it, and where we disagree, the reason."""

    name: str
    figure: str
    claim: str
    weight: str
    verdict: Verdict
    figures: dict[str, float] = field(default_factory=dict)
    why: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return dict(self.__dict__)
