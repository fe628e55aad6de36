"""What every directed link of a two-dimensional mesh carries: transfers, everyone to everyone, and trees that enter at an edge.

    transfer (r, c) → (r', c')   along row r to column c', then along column c' (dimension order)
    everyone to everyone         link of row r after column c:  Σ_groups members of row r at or before c · members after c; columns alike
    tree                         enters at row 0 of a column that needs the unit and goes down it; from a row that needs it along to the
                                 other columns, and up and down these; or along every row that needs it, where those are fewer links

A link carries a unit of a tree once; entering is a link, so that a column of Y cores costs Y traversals. A reduction is the mirror of a
tree. Units that are needed alike enter, and turn, evenly over the columns and rows that need them: all along row 0 would share its links.
Children are numbered row by row; `instance` is the mesh a child is in.
Sources: DERIVED; the tree is seed 001, 7.2.1 and 7.3.1 (weights enter along one edge and are broadcast down columns).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rackmodel.arrays import Array, Ints


@dataclass(frozen=True)
class Grid:
    """A mesh of rows and columns."""

    rows: int
    columns: int


@dataclass(frozen=True)
class Spans:
    """What runs straight: along line `line` from place `start` to place `end`, `weight` messages."""

    line: Ints
    start: Ints
    end: Ints
    weight: Array

    def busiest(self, length: int) -> float:
        """Most messages on one directed link of the lines, each of `length` places."""
        most = 0.0
        for a, b in ((self.start, self.end), (self.end, self.start)):
            ahead = a < b
            at, weight = self.line[ahead] * length, self.weight[ahead]
            if at.size:
                change = np.bincount(at + a[ahead], weight, int(at.max()) + length)
                change -= np.bincount(at + b[ahead], weight, len(change))
                most = max(most, float(np.cumsum(change).max()))
        return most


def transfers_busiest(grid: Grid, instance: Ints, source: Ints, target: Ints, weight: Array) -> float:
    """Most messages on one directed link when weight[i] of them go from place source[i] to target[i] of a mesh, all at once."""
    (r, c), (down, right) = np.divmod(source, grid.columns), np.divmod(target, grid.columns)
    along = Spans(instance * grid.rows + r, c, right, weight).busiest(grid.columns)
    return max(along, Spans(instance * grid.columns + right, r, down, weight).busiest(grid.rows))


def exchange_busiest(grid: Grid, owner: Ints, instance: Ints, place: Ints, count: Ints) -> float:
    """Most messages on one directed link when every member of a group in a mesh sends one to every other.

    owner: [n] group and mesh, as one number, of `count` members at `place` of mesh `instance`.
    """
    r, c = np.divmod(place, grid.columns)
    along = _crossing(owner, instance * grid.rows + r, c, count).busiest(grid.columns)
    return max(along, _crossing(owner, instance * grid.columns + c, r, count).busiest(grid.rows))


def numbered(keys: Ints) -> tuple[Ints, Ints]:
    """(distinct keys, ascending; which of them each is). Keys that ascend need no sort."""
    if not np.any(keys[1:] < keys[:-1]):
        new = np.concatenate([[True], keys[1:] > keys[:-1]])[: len(keys)]
        return keys[new], np.cumsum(new) - 1
    order = np.argsort(keys, kind="stable")
    ranked = keys[order]
    new = np.diff(ranked, prepend=ranked[:1] - 1) > 0
    which = np.empty_like(order)
    which[order] = np.cumsum(new) - 1
    return ranked[new], which


def _crossing(owner: Ints, line: Ints, place: Ints, count: Ints) -> Spans:
    """Messages over each gap between neighbouring places of a group, on each of its lines: members of the line on one side times
    members of the group on the other, either way."""
    group = numbered(owner)[1]
    extent, reach = int(place.max()) + 1, int(line.max()) + 1
    places, of_place = numbered(group * extent + place)
    lines, of_line = numbered(group * reach + line)
    holder, spot = np.divmod(places, extent)
    first = np.flatnonzero(np.diff(holder, prepend=-1))
    wide = np.diff(first, append=len(places))  # places of each group
    cells = wide[lines // reach]
    begin, row = np.cumsum(cells) - cells, np.repeat(np.arange(len(lines)), cells)
    mine = (lines // reach)[row]
    held = np.bincount(begin[of_line] + of_place - first[group], count, len(row))
    upto = np.cumsum(held) - (np.cumsum(held) - held)[begin][row]
    there = np.bincount(of_place, count)
    before = np.cumsum(there) - (np.cumsum(there) - there)[first][holder]
    at = np.arange(len(row)) - begin[row] + first[mine]
    gap = at + 1 < (first + wide)[mine]
    at, on = at[gap], (lines % reach)[row[gap]]
    beyond = np.bincount(holder, there)[holder] - before
    weights = upto[gap] * beyond[at], (np.bincount(of_line, count)[row] - upto)[gap] * before[at]
    ends = spot[at], spot[at + 1]
    return Spans(np.tile(on, 2), np.concatenate(ends), np.concatenate(ends[::-1]), np.concatenate(weights))


@dataclass(frozen=True)
class SpanningTree:
    """links: traversals of all units · busiest: units on one directed link · farthest: most hops to a child, entering included."""

    links: float
    busiest: float
    farthest: float


def trees(grid: Grid, unit: Ints, instance: Ints, place: Ints) -> SpanningTree:
    """Every unit from the edge to every child that needs it: unit[i] at `place` of mesh `instance` (each pair once)."""
    r, c = np.divmod(place, grid.columns)
    owner = numbered(unit * (int(instance.max()) + 1) + instance)[1]
    mesh = np.zeros(int(owner.max()) + 1, dtype=np.int64)
    mesh[owner] = instance
    columns, rows = _Held.of(owner, c, r, grid.columns), _Held.of(owner, r, c, grid.rows)
    enters, turns = columns.spread(mesh, grid.columns), rows.spread(mesh, grid.rows)
    across, down = rows.through(enters), columns.through(turns)  # what a branch through the spine covers
    own = columns.line == enters[columns.owner]
    (left, right), bottom = columns.ends, rows.ends[1]
    deep = np.maximum(columns.high[own], turns)
    by_columns = 1 + deep + right - left + _sums(columns.owner, np.where(own, 0, down[1] - down[0]))
    by_rows = 1 + bottom + _sums(rows.owner, across[1] - across[0])
    wide = by_rows < by_columns  # units whose spine is the column they enter in
    trunk, side, flat = mesh * grid.columns + enters, ~wide[columns.owner] & ~own, wide[rows.owner]
    fork, twig = mesh[columns.owner] * grid.columns + columns.line, mesh[rows.owner] * grid.rows + rows.line
    spine = mesh * grid.rows + turns
    vertical = _spans(  # place 0 is the edge, row r is place r + 1
        (trunk, np.zeros_like(bottom), np.where(wide, bottom, deep) + 1),
        *((fork[side], turns[columns.owner][side] + 1, end[side] + 1) for end in down),
    )
    horizontal = _spans(
        *((twig[flat], enters[rows.owner][flat], end[flat]) for end in across),
        *((spine[~wide], enters[~wide], end[~wide]) for end in (left, right)),
    )
    busiest = max(vertical.busiest(grid.rows + 1), horizontal.busiest(grid.columns))
    first = np.where(wide[owner] | (c == enters[owner]), r, turns[owner])  # the row in which the way to a child leaves the trunk
    hops = 1 + first + np.abs(c - enters[owner]) + np.abs(r - first)
    return SpanningTree(float(np.minimum(by_rows, by_columns).sum()), busiest, float(hops.max()))


def _sums(owner: Ints, figure: Ints) -> Ints:
    return np.bincount(owner, figure).astype(np.int64)


def _spans(*parts: tuple[Ints, Ints, Ints]) -> Spans:
    line, start, end = (np.concatenate(side) for side in zip(*parts, strict=True))
    return Spans(line, start, end, np.ones(len(line)))


@dataclass(frozen=True)
class _Held:
    """The lines (columns or rows) that each unit is needed on, ascending, and the first and last place on each: [lines]."""

    owner: Ints
    line: Ints
    low: Ints
    high: Ints

    @classmethod
    def of(cls, owner: Ints, line: Ints, place: Ints, reach: int) -> _Held:
        key = owner * reach + line
        order = np.argsort(key, kind="stable")
        first = np.flatnonzero(np.diff(key[order], prepend=-1))
        found = np.divmod(key[order][first], reach)
        return cls(*found, np.minimum.reduceat(place[order], first), np.maximum.reduceat(place[order], first))

    @cached_property
    def first(self) -> Ints:
        """[units] where the lines of each begin."""
        return np.flatnonzero(np.diff(self.owner, prepend=-1))

    @property
    def ends(self) -> tuple[Ints, Ints]:
        """[units] first and last line of each."""
        return self.line[self.first], self.line[np.append(self.first[1:], len(self.line)) - 1]

    def through(self, place: Ints) -> tuple[Ints, Ints]:
        """First and last place of each line, with the unit's own `place` [units] between them."""
        mine = place[self.owner]
        return np.minimum(self.low, mine), np.maximum(self.high, mine)

    def spread(self, mesh: Ints, reach: int) -> Ints:
        """[units] one line of each; units of a mesh with as many lines between the same ends take them evenly, one alone the middle."""
        (low, high), wide = self.ends, np.bincount(self.owner)
        like = numbered(((mesh * reach + low) * reach + high) * (reach + 1) + wide)[1]
        alike = np.bincount(like)
        order = np.argsort(like, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order)) - (np.cumsum(alike) - alike)[like[order]]
        return np.asarray(self.line[self.first + (2 * rank + 1) * wide // (2 * alike[like])])
