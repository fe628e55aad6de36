"""Where a node of the branch and bound is cut: at the number whose rounding takes most of what is left near by.

What a cut alone adds to the bound says little where several ports, a room and the compute bind together: it often rises only after
several. So a cut is judged by the constraints that are near: with a_i the slope of constraint i at the program's numbers, s_i what is left
of it and M = sum_i a_i' a_i / s_i^2 (the ellipsoid within the constraints, Dikin 1967), a step d of number k, all others going along as
they like, takes d^2 / (M^-1)_kk; a row that holds only in a part, missed by v there, takes v^2 / (a M^-1 a'). What counts is the product
of the two parts that take least. Chords of copies are cut first: what they leave open is lost from the bound itself. Orders of a
level come after what holds of any order, unless they take much more.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.nests.searchers.bounds.continuous_program import ConvexProgram
from rackmodel.nests.searchers.bounds.convex_stack import squared
from rackmodel.nests.searchers.bounds.joint_program import JointProgram
from rackmodel.nests.searchers.bounds.joint_ranges import Key, Range, Ranges

NEAR = 3e-3  # of a logarithm, or of what is known: what is left of a constraint counts no less
NEVER = 1e-30  # what numbers that do not count give
CHORD = 0.02  # of what is open, from which a chord is cut before all else
ORDERED = 0.1  # of what orders take: other cuts come first, for what holds of any order holds of many at once
EDGED = frozenset({"tile", "laid", "rounds"})  # numbers on whose range rows depend


@dataclass(frozen=True)
class Cut:
    """Where a range may be cut in two or three, and how far the program is from each part. orders: instead of parts, those of a level."""

    key: Key
    parts: tuple[Range, ...]
    distances: tuple[float, ...]
    orders: tuple[tuple[int, ...], ...] = ()


class Nearness:
    """The constraints near a program's numbers. gap: of what is known, that the bound is below it."""

    def __init__(self, program: JointProgram, ranges: Ranges, made: ConvexProgram, at: Array, gap: float, scale: float) -> None:
        self.program, self.ranges, self.made, self.at, self.gap, self.scale = program, ranges, made, at, gap, scale

    @cached_property
    def give(self) -> Array:
        """M^-1."""
        made, z = self.made, self.at
        rows, left = [made.rows], [made.limits - made.rows @ z]
        slopes, over = made.rooms.taken(z)
        rows.append(slopes)
        left.append(-over)
        rows.append(((made.terms.at(z) @ made.terms.rows + made.slope) / self.scale)[None])
        left.append(np.array([self.gap]))
        stacked = np.concatenate(rows) / (np.maximum(np.concatenate(left), 0.0) + NEAR)[:, None]
        metric = squared(stacked[None], np.ones((1, len(stacked))))[0]
        ends = np.maximum(made.high - z, 0.0), np.maximum(z - made.low, 0.0)
        metric[np.diag_indices(len(z))] += sum(1.0 / (end + NEAR) ** 2 for end in ends)
        try:
            return np.asarray(np.linalg.inv(metric))
        except np.linalg.LinAlgError:  # numbers far from any mapping: each by itself
            return np.diag(1.0 / np.diag(metric))

    def score(self, cut: Cut) -> float:
        """How much a cut takes in both of the parts that take least."""
        if cut.key[0] == "copies":
            share = cut.distances[0] / max(self.gap, NEAR * NEAR)
            return share**4 * (1e12 if share > CHORD else 1.0)
        if cut.orders:
            low, high, *_ = sorted(distance * ORDERED for distance in cut.distances)
        else:
            low, high, *_ = sorted(self._part(cut, i) for i in range(len(cut.parts)))
        return low * high

    @cached_property
    def _listed(self) -> tuple[list[float], list[list[float]]]:
        """(the program's numbers, what they give), as lists: a row of few numbers is summed sooner by itself."""
        return self.at.tolist(), self.give.tolist()

    def _part(self, cut: Cut, i: int) -> float:
        index, (z, give) = self.program.index, self._listed
        at = index[cut.key]
        found = cut.distances[i] ** 2 / give[at][at]
        if cut.key[0] in EDGED:
            for row, limit in self.program.edges(cut.key, self.ranges, cut.parts[i]):
                if (over := sum(z[k] * factor for k, factor in row) - limit) > 0:
                    gives = sum(one * other * give[k][n] for k, one in row for n, other in row)
                    found = max(found, over**2 / max(gives, NEVER))
        return found

    def missed(self, program: JointProgram, ranges: Ranges, before: Ints) -> float:
        """What words take in a program of given orders that they may not, in the same measure. ranges: of this one, of which copies and
        parts count alone · before: numbers of this one."""
        z = self.at[before]
        slopes, over = program.moving(ranges).taken(z)
        weights = program.nest.weights
        if weights.joule > 0:
            then = weights.joule * program.objective.at(z) / self.scale
            slopes, over = np.vstack([slopes, then @ program.objective.rows]), np.append(over, then.sum() - self._joules)
        on = np.flatnonzero(over > 0)
        if not len(on):
            return 0.0
        rows = np.zeros((len(on), len(self.at)))
        np.add.at(rows.T, before, slopes[on].T)
        return float(misses(over[on], rows, self.give).max())

    @cached_property
    def _joules(self) -> float:
        return float((self.program.nest.weights.joule * self.program.objective.at(self.at) / self.scale).sum())


def misses(over: Array, rows: Array, give: Array) -> Array:
    """[rows] how far the numbers are from keeping rows that they exceed by `over`, squared, where they give so much; as good as never where
    none of them counts in it."""
    return np.asarray(over**2 / np.maximum(((rows @ give) * rows).sum(axis=1), NEVER))
