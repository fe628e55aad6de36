"""What a joint program is asked (joint_program): weights of energy and time, and ranges of the whole numbers of a mapping."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rackmodel.nests.searchers.bounds.continuous_bound import Copies

Key = tuple[object, ...]
Range = tuple[int, int]
SMALL = 0.02  # of a weighted sum: what is left out of it, but for what it is at least
UNLIKE = 1.002  # times: units that are as good as those of the mapping that is known


@dataclass(frozen=True)
class Weights:
    """a of a joule, b of a second · joules, seconds: of the mapping that is known."""

    joule: float
    second: float
    joules: float
    seconds: float

    def dominant(self) -> Weights:
        """Without what is next to nothing of the sum: its number could be so many times that of the mapping that is known, at that price,
        that no multiplier holds it."""
        joules, seconds = self.joule * self.joules, self.second * self.seconds
        if 0 < seconds < SMALL * joules:
            return replace(self, second=0.0)
        return replace(self, joule=0.0) if 0 < joules < SMALL * seconds else self

    def in_units_of(self, other: Weights) -> Weights | None:
        """The same in units of others; None where these are far from its own, or where others leave out what it does not."""
        alike = (self.joule > 0) == (other.joule > 0) and (self.second > 0) == (other.second > 0)
        near = all(1 <= UNLIKE * one <= UNLIKE**2 for one in (other.joules / self.joules, other.seconds / self.seconds))
        return replace(self, joules=other.joules, seconds=other.seconds) if alike and near else None

    @property
    def most(self) -> float:
        """Twice a E + b T of the mapping that is known: what is above it is of no interest."""
        return 2.0 * (self.joule * self.joules + self.second * self.seconds)


@dataclass(frozen=True)
class Ranges:
    """Whole numbers a mapping may have. copies: of the output, by fan · whole: ("pieces" or "tile", level, rank, version),
    ("laid" or "rounds", fan, rank) or ("waves", fan) → least, most."""

    copies: Copies
    whole: dict[Key, Range] = field(default_factory=dict)

    def narrowed(self, key: Key, part: Range) -> Ranges:
        """With another range of one of them; ("copies", fan) too."""
        if key[0] == "copies":
            fan = int(str(key[1]))
            return replace(self, copies=(*self.copies[:fan], part, *self.copies[fan + 1 :]))
        return replace(self, whole={**self.whole, key: part})
