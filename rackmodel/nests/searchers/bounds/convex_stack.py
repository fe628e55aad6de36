"""Convex programs of one shape side by side in arrays: what their constraints come to at some numbers, and what moves there.

All rows of a program (linear ones, exponents of the objective and of the rooms, slopes of the rooms) are 0 nearly everywhere. So those of
all programs are one sparse matrix X, each program's numbers columns of their own: X z is all that has to be known of the numbers, X' f
what forces on the rows come to, and a weighted sum of outer squares of rows is one such product, too. First dimension of every array: the
programs. Their last number is the stack's own, by which every row and room may be missed, at a price: there is always an inside, and no
bound is above the optimum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log, prod
from typing import Any

import numpy as np

from rackmodel.arrays import Array, Bools, Ints
from rackmodel.nests.searchers.bounds.continuous_program import ConvexProgram, exponentials

MISSED, FAR = 10.0, 1e3  # what a miss of 1 costs, in units of the scale; the largest miss
INSIDE = 1e-6  # by which every constraint is loosened, so that there is an inside
LEAST, TINY = 1e-11, 1e-30  # curve; what there is of a room
PRODUCT = 250_000  # multiplications of two matrices that one thread does


@dataclass(frozen=True)
class Layout:
    """Rows of every program: linear ones, terms of the objective, terms of rooms, slopes of rooms. room_of: of every term of a room ·
    begins: of every room its first term · numbers: columns."""

    linear: int
    terms: int
    room_of: Ints
    begins: Ints
    numbers: int

    @classmethod
    def of(cls, program: ConvexProgram) -> Layout:
        """Of all programs of its shape."""
        rooms = program.rooms
        of = np.repeat(np.arange(len(rooms.begins)), np.diff([*rooms.begins, len(rooms.terms.shift)]))
        return cls(len(program.limits), len(program.terms.shift), of, rooms.begins, len(program.low) + 1)

    @property
    def rooms(self) -> int:
        """How many."""
        return len(self.begins)

    @property
    def rows(self) -> int:
        """Of one program."""
        return self.linear + self.terms + len(self.room_of) + self.rooms

    @property
    def several(self) -> Bools:
        """[rooms] which have several terms: the logarithm of one is linear."""
        return np.bincount(self.room_of, minlength=self.rooms) > 1

    @property
    def own(self) -> int:
        """Constraints that are no ends of the box."""
        return self.linear + self.rooms

    @property
    def of_rooms(self) -> slice:
        """Rows that are terms of rooms."""
        return slice(self.linear + self.terms, self.linear + self.terms + len(self.room_of))


@dataclass(frozen=True)
class Entries:
    """What is not 0 in the rows of all programs, by program, then by row: [entries] its row among all, column, value."""

    row: Ints
    column: Ints
    value: Array

    def pick(self, which: Ints, layout: Layout, programs: int) -> Entries:
        """Of some programs."""
        new = np.full(programs, -1)
        new[which] = np.arange(len(which))
        program, within = np.divmod(self.row, layout.rows)
        on = new[program] >= 0
        return Entries((new[program] * layout.rows + within)[on], self.column[on], self.value[on])


@dataclass(frozen=True)
class Place:
    """Where programs are. z: numbers · terms: of the objective · shares: of what each term takes of its room · there: what there is of a
    room · over: constraints, at most 0."""

    z: Array
    terms: Array
    shares: Array
    there: Array
    over: Array

    def pick(self, which: Ints | Bools) -> Place:
        """Of some programs."""
        return Place(self.z[which], self.terms[which], self.shares[which], self.there[which], self.over[which])


@dataclass(frozen=True)
class Stack:
    """Programs in units of their scales. shift: of every exponent · constant: of every room · slope, base: of the objective."""

    layout: Layout
    entries: Entries
    shift: Array
    limits: Array
    constant: Array
    slope: Array
    base: Array
    low: Array
    high: Array

    @classmethod
    def of(cls, programs: Sequence[ConvexProgram], scales: Array) -> Stack:
        """programs: of one shape."""
        layout = Layout.of(programs[0])
        rows = np.zeros((len(programs), layout.rows, layout.numbers))
        for own, p in zip(rows, programs, strict=True):
            np.concatenate((p.rows, p.terms.rows, p.rooms.terms.rows, p.rooms.slope), out=own[:, :-1])
        rows[:, : layout.linear, -1] = rows[:, layout.of_rooms, -1] = -1.0
        flat = rows.reshape(-1, layout.numbers)
        row, column = np.nonzero(flat)
        return cls(
            layout=layout,
            entries=Entries(row, column, flat[row, column]),
            shift=np.stack([_shifts(p, s) for p, s in zip(programs, scales.tolist(), strict=True)]),
            limits=np.stack([p.limits for p in programs]),
            constant=np.stack([p.rooms.constant for p in programs]),
            slope=_wider([p.slope for p in programs] / scales[:, None], MISSED),
            base=np.array([p.constant for p in programs]) / scales,
            low=_wider(np.stack([p.low for p in programs]), 0.0),
            high=_wider(np.stack([p.high for p in programs]), FAR),
        )

    def pick(self, which: Ints) -> Stack:
        """Some of them."""
        arrays = (self.shift, self.limits, self.constant, self.slope, self.base, self.low, self.high)
        return Stack(self.layout, self.entries.pick(which, self.layout, len(self.base)), *(array[which] for array in arrays))

    @cached_property
    def _matrices(self) -> tuple[Any, Any, Any]:
        """(X, X', of every row its outer square, the upper half)."""
        from scipy.sparse import csc_array, csr_array

        programs, k, e = len(self.base), self.layout.numbers, self.entries
        number = np.bincount(e.row, minlength=programs * self.layout.rows)
        ends = np.concatenate([[0], np.cumsum(number)])
        program = e.row // self.layout.rows
        rows = csr_array((e.value, e.column + program * k, ends), shape=(programs * self.layout.rows, programs * k))
        left = ends[e.row + 1] - np.arange(len(e.row))  # entries of the row from this one on
        one = np.repeat(np.arange(len(e.row)), left)
        other = one + np.arange(len(one)) - np.repeat(np.cumsum(left) - left, left)
        place = (program[one] * k + e.column[one]) * k + e.column[other]
        pairs = np.concatenate([[0], np.cumsum(number * (number + 1) // 2)])
        return rows, rows.T, csc_array((e.value[one] * e.value[other], place, pairs), shape=(programs * k * k, programs * self.layout.rows))

    @cached_property
    def _of_rooms(self) -> tuple[Ints, Ints, Array]:
        """Of all entries of rooms' terms: (which term of all programs, its place among [programs, rooms, numbers], value)."""
        layout, e = self.layout, self.entries
        program, row = np.divmod(e.row, layout.rows)
        on = (row >= layout.of_rooms.start) & (row < layout.of_rooms.stop)
        term = row[on] - layout.of_rooms.start
        place = (program[on] * layout.rooms + layout.room_of[term]) * layout.numbers + e.column[on]
        return program[on] * len(layout.room_of) + term, place, e.value[on]

    @cached_property
    def _of_slopes(self) -> tuple[Ints, Ints, Array]:
        """The same of their slopes: (which room of all programs, place, value)."""
        layout, e = self.layout, self.entries
        program, row = np.divmod(e.row, layout.rows)
        on = row >= layout.of_rooms.stop
        room = program[on] * layout.rooms + row[on] - layout.of_rooms.stop
        return room, room * layout.numbers + e.column[on], e.value[on]

    def _taken(self, place: Place) -> tuple[Array, Array]:
        """[programs, rooms, numbers] slopes of the logarithms of (what rooms take, that of what there is)."""
        shape = len(self.base), self.layout.rooms, self.layout.numbers
        (term, at, value), (room, there, slope) = self._of_rooms, self._of_slopes
        taken: Array = np.bincount(at, weights=value * place.shares.ravel()[term], minlength=prod(shape)).astype(np.float64)
        left = np.bincount(there, weights=slope / place.there.ravel()[room], minlength=prod(shape))
        return taken.reshape(shape), np.asarray(taken - left).reshape(shape)

    def _along(self, change: Array) -> Array:
        """[programs, rows] X z."""
        return np.asarray(self._matrices[0] @ change.ravel()).reshape(len(self.base), -1)

    def _by_room(self, each: Array) -> Array:
        """[programs, rooms] sums over a room's terms."""
        return np.add.reduceat(each, self.layout.begins, axis=1) if self.layout.rooms else each

    def at(self, z: Array) -> Place:
        """What there is at some numbers."""
        layout, rows = self.layout, self._along(z)
        each = exponentials(rows[:, layout.linear : layout.of_rooms.stop] + self.shift)
        terms, taken = each[:, : layout.terms], each[:, layout.terms :]
        total, there = self._by_room(taken), np.maximum(self.constant + rows[:, layout.of_rooms.stop :], TINY)
        over = np.concatenate([rows[:, : layout.linear] - self.limits, np.log(total / there), z - self.high, self.low - z], axis=1)
        return Place(z, terms, taken / total[:, layout.room_of], there, over - INSIDE)

    def back(self, place: Place, force: Array, terms: Array | None = None) -> Array:
        """[programs, numbers] what forces on the constraints that are no ends of the box come to, and on the objective's terms."""
        layout = self.layout
        rooms = force[:, layout.linear : layout.own]
        terms = np.zeros_like(place.terms) if terms is None else terms
        rows = [force[:, : layout.linear], terms, rooms[:, layout.room_of] * place.shares, -rooms / place.there]
        return np.asarray(self._matrices[1] @ np.concatenate(rows, axis=1).ravel()).reshape(place.z.shape)

    def ahead(self, place: Place, move: Array) -> Array:
        """[programs, constraints] how they change along a move, to first order."""
        layout, rows = self.layout, self._along(move)
        rooms = self._by_room(place.shares * rows[:, layout.of_rooms]) - rows[:, layout.of_rooms.stop :] / place.there
        return np.concatenate([rows[:, : layout.linear], rooms, move, -move], axis=1)

    def curve(self, place: Place, weights: Array, multipliers: Array) -> Array:
        """[programs, numbers, numbers], the upper half: of the Lagrangian, and the squares of the constraints' slopes, weighted."""
        layout, k = self.layout, self.layout.numbers
        rooms, own = slice(layout.linear, layout.own), layout.own
        force = multipliers[:, rooms]
        shares = np.where(layout.several[layout.room_of], force[:, layout.room_of] * place.shares, 0.0)
        rows = [weights[:, : layout.linear], place.terms, shares, force / place.there**2]
        found: Array = np.asarray(self._matrices[2] @ np.concatenate(rows, axis=1).ravel()).reshape(len(self.base), k, k)
        if layout.rooms:
            taken, slopes = self._taken(place)
            full = np.concatenate([slopes, taken[:, layout.several]], axis=1)
            found += squared(full, np.concatenate([weights[:, rooms], -force[:, layout.several]], axis=1))
        at = np.arange(k)
        found[:, at, at] += weights[:, own : own + k] + weights[:, own + k :]
        found[:, at, at] += LEAST * (1.0 + found[:, at, at])
        return found

    def tangent(self, place: Place, multipliers: Array, slope: Array) -> Array:
        """[programs] lower bounds: the ends of the box need no multipliers, over which the tangent is least. slope: of the objective and of
        the other constraints times their multipliers."""
        own, z = self.layout.own, place.z
        value = self.base + (self.slope * z).sum(axis=1) + place.terms.sum(axis=1)
        least = np.minimum(slope * (self.low - z), slope * (self.high - z)).sum(axis=1)
        return np.asarray(value + (multipliers[:, :own] * (place.over[:, :own] + INSIDE)).sum(axis=1) + least)


def _wider(values: Array, last: float) -> Array:
    """With another number at the end."""
    return np.concatenate([values, np.full((len(values), 1), last)], axis=1)


def _shifts(program: ConvexProgram, scale: float) -> Array:
    return np.concatenate([program.terms.shift - log(scale), program.rooms.terms.shift])


def squared(rows: Array, weights: Array) -> Array:
    """[programs, k, k] sum over rows of their outer squares, weighted; in runs so short that one is worth no second thread to the library
    of matrices: threads that wait for each other take longer than these small products."""
    step = max(1, PRODUCT // rows.shape[-1] ** 2)
    runs = [slice(start, start + step) for start in range(0, rows.shape[1], step)]
    each = [np.swapaxes(rows[:, run], 1, 2) @ (rows[:, run] * weights[:, run, None]) for run in runs]
    return np.asarray(sum(each[1:], each[0]))
