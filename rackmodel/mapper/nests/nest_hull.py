"""What no step is below, in joules and seconds together: lines that searches for weighted sums leave, and what lies on them.

A search proves J + w T >= h of every step, J its joules but for static power, T its seconds: a line of the plane (J, T), and all steps lie
above every line. What grows with both, and along a line is a product of two linear figures or one, is least where two lines meet, or where
a limit ends one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf

import numpy as np

CLOSE = 1e-9  # relative difference below which two figures are equal
NEAR = 0.02  # relative difference below which two slopes are as good as one
FAR = 1e6  # times the longest time known: as good as never
Figure = Callable[[float, float], float]
"""Of (joules without static power, seconds): a polynomial of the second degree."""
Place = tuple[float, float]


@dataclass(frozen=True)
class SupportLine:
    """energy · J + latency · T >= least, of every step; (J, T) of the one of least sum that was found."""

    energy: float
    latency: float
    least: float
    point: Place

    def meets(self, other: SupportLine) -> Place:
        """(J, T) where both are equal."""
        across = self.energy * other.latency - other.energy * self.latency
        joules = (self.least * other.latency - other.least * self.latency) / across
        return joules, (self.energy * other.least - other.energy * self.least) / across


@dataclass(frozen=True)
class Corner:
    """Where two lines meet that no other lies above there, by number: `one` weighs seconds less."""

    place: Place
    one: int
    two: int


@dataclass
class Hull:
    """Lines by slope, those that weigh seconds least first."""

    lines: list[SupportLine]

    def add(self, line: SupportLine) -> None:
        """One line more; of the same slope the higher one stays."""
        same = [one for one in self.lines if one.energy * line.latency == line.energy * one.latency]
        if not same:
            self.lines = sorted([*self.lines, line], key=lambda at: at.latency / (at.energy + at.latency))
        elif same[0].least * (line.energy + line.latency) < line.least * (same[0].energy + same[0].latency):
            self.lines[self.lines.index(same[0])] = line

    def corners(self) -> list[Corner]:
        """Those of what lies above all lines, by falling seconds. The first line weighs joules alone, the last one seconds alone."""
        found: list[Corner] = []
        at = 0
        while at < len(self.lines) - 1:
            one = self.lines[at]  # along it seconds fall, until another one lies higher
            met = [Corner(one.meets(other), at, number) for number, other in enumerate(self.lines[at + 1 :], start=at + 1)]
            found.append(max(met, key=lambda corner: (corner.place[1], corner.two)))
            at = found[-1].two
        return found

    def lowest(self, figure: Figure, limits: Sequence[tuple[Figure, float]] = (), *, rises: bool = True) -> tuple[float, tuple[int, ...]]:
        """(least of a figure that grows with joules and seconds, of all that the lines and limits allow, inf where they allow nothing;
        numbers of the corners at either end of where it is). limits: figures that may be no more than so much · rises: whether these grow
        as the figure does, else what takes longer may keep them."""
        corners = self.corners()
        parts: list[tuple[Place, Place, tuple[int, ...]]] = [(one.place, one.place, (i,)) for i, one in enumerate(corners)]
        parts += [(one.place, two.place, (i, i + 1)) for i, (one, two) in enumerate(pairwise(corners))]
        if not rises:
            late = FAR * max(line.point[1] for line in self.lines)
            parts.append(((corners[0].place[0], late), corners[0].place, (0,)))
        values = [(figure(*place), len(of), of) for one, two, of in parts for place in _ends(one, two, limits)]
        least, _, of = min(values, default=(inf, 0, ()))
        return least, of

    def chord(self, i: int) -> tuple[float, float] | None:
        """(a, b) of the line through the points of the two lines of a corner; None where they are one point or it is one of those lines."""
        corner = self.corners()[i]
        one, two = self.lines[corner.one], self.lines[corner.two]
        a, b = one.point[1] - two.point[1], two.point[0] - one.point[0]
        fine = 1 - CLOSE
        between = one.latency * a < one.energy * b * fine and b * two.energy < a * two.latency * fine
        return (a, b) if a > 0 and b > 0 and between and not self._has(a, b, CLOSE) else None

    def tangent(self, figure: Figure, of: Sequence[int]) -> tuple[float, float] | None:
        """(a, b) of the line along which a figure changes least at one corner; None where it is between two, or there is such a line."""
        if len(of) != 1:
            return None
        a, b = tangent_of(figure, *self.corners()[of[0]].place)
        return (a, b) if a > 0 and b > 0 and not self._has(a, b, NEAR) else None

    def _has(self, a: float, b: float, apart: float) -> bool:
        """Whether one of the lines is of such a slope, but for so much of it."""
        return any(abs(line.latency * a - line.energy * b) <= apart * line.energy * b for line in self.lines)


def tangent_of(figure: Figure, joules: float, seconds: float) -> tuple[float, float]:
    """(a, b) of the line a J + b T along which a figure changes least at a place; (0, 0) on an axis."""
    a = figure(joules + joules, seconds) - figure(0.0, seconds)
    b = figure(joules, seconds + seconds) - figure(joules, 0.0)
    return (a / joules, b / seconds) if joules and seconds else (0.0, 0.0)


def _ends(one: Place, two: Place, limits: Sequence[tuple[Figure, float]]) -> list[Place]:
    """Ends of the parts of a way from one place to another that keep all limits. Where one limit ends a part it is kept, whatever
    rounding says."""
    shares: dict[float, int | None] = {0.0: None, 1.0: None}
    between = [_between(one, two, share) for share in (0.0, 0.5, 1.0)]
    for number, (figure, most) in enumerate(limits):
        low, middle, high = (figure(*place) - most for place in between)
        square = 2 * (low + high) - 4 * middle
        roots = np.roots([square, high - low - square, low])
        shares |= {float(root.real): number for root in roots if abs(root.imag) == 0 and 0 < root.real < 1}
    places = [(_between(one, two, share), shares[share]) for share in sorted(shares)]
    return [place for place, own in places if all(n == own or f(*place) <= most * (1 + CLOSE) for n, (f, most) in enumerate(limits))]


def _between(one: Place, two: Place, share: float) -> Place:
    return one[0] + share * (two[0] - one[0]), one[1] + share * (two[1] - one[1])
