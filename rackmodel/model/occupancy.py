"""What a machine makes with the pipeline through its wired layers full: the resource that a token occupies longest sets the rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class FullPipeline:
    """in_flight: tokens, each of a sequence of its own · seconds: resource → what one token occupies it for · slow, fast: the same with
    every rate at the low and the high end of its range · spilled: share of what sequences keep that the cache inside cannot hold ·
    joules_per_token: static power over the rate, and a token's own joules."""

    in_flight: int
    seconds: Mapping[str, float]
    slow: Mapping[str, float]
    fast: Mapping[str, float]
    spilled: float
    joules_per_token: float

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second of the machine."""
        return 1 / max(self.seconds.values())

    @property
    def tokens_per_s_range(self) -> tuple[float, float]:
        """Tokens a second with every rate at its low and at its high end."""
        return 1 / max(self.slow.values()), 1 / max(self.fast.values())

    @property
    def limited_by(self) -> str:
        """The resource that sets the pace."""
        return max(self.seconds, key=lambda name: self.seconds[name])

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        low, high = self.tokens_per_s_range
        return {
            "in_flight": self.in_flight,
            "tokens_per_s": {"low": low, "mid": self.tokens_per_s, "high": high},
            "joules_per_token": self.joules_per_token,
            "seconds_per_token": dict(self.seconds),
            "limited_by": self.limited_by,
            "spilled": self.spilled,
        }
