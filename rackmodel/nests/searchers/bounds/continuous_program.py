"""Convex programs of exponentials, of which lower bounds are found (program_ascent).

minimise  constant + d z + sum_i c_i exp(A_i z)   with   log sum_j exp(P_j z + q_j) <= 0,  G z <= h,  low <= z <= high
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rackmodel.arrays import Array, Ints, Number


def exponentials(powers: Array) -> Array:
    """exp of powers, those that are beyond what numbers hold at its ends."""
    return np.asarray(np.exp(np.minimum(np.maximum(powers, -700.0), 300.0)))


@dataclass(frozen=True)
class Exponentials:
    """sum_i exp(rows_i z + shift_i)."""

    rows: Array
    shift: Array

    def at(self, z: Array) -> Array:
        """[terms] at some numbers."""
        return exponentials(self.rows @ z + self.shift)


@dataclass(frozen=True)
class Room:
    """A sum of exponentials that is at most constant + slope z, which is more than 0 wherever z may be."""

    terms: Exponentials
    slope: Array
    constant: Number


@dataclass(frozen=True)
class Rooms:
    """Several of them side by side: [terms] of all, of every room its first term, [rooms, numbers], [rooms]."""

    terms: Exponentials
    begins: Ints
    slope: Array
    constant: Array

    @classmethod
    def of(cls, rooms: Sequence[Room], numbers: int) -> Rooms:
        """In their order."""
        sizes = [len(room.terms.shift) for room in rooms]
        rows = np.concatenate([np.zeros((0, numbers)), *(room.terms.rows for room in rooms)])
        shift = np.concatenate([np.zeros(0), *(room.terms.shift for room in rooms)])
        slope = np.array([room.slope for room in rooms]).reshape(-1, numbers)
        begins = np.cumsum([0, *sizes])[:-1]
        return cls(Exponentials(rows, shift), begins, slope, np.array([float(room.constant) for room in rooms]))

    def taken(self, z: Array) -> tuple[Array, Array]:
        """([rooms, numbers] slope of the logarithm of what a room takes of what there is, [rooms] that logarithm)."""
        if not len(self.begins):
            return self.slope, self.constant
        each = self.terms.at(z)
        total, there = np.add.reduceat(each, self.begins), np.maximum(self.constant + self.slope @ z, 1e-9)
        slopes = np.add.reduceat(each[:, None] * self.terms.rows, self.begins) / total[:, None] - self.slope / there[:, None]
        return np.asarray(slopes), np.asarray(np.log(np.maximum(total, 1e-300) / there))


@dataclass(frozen=True)
class ConvexProgram:
    """terms, slope, constant: of the objective · rooms: what must hold · rows, limits: rows z <= limits · low, high: the box."""

    terms: Exponentials
    slope: Array
    constant: float
    rooms: Rooms
    rows: Array
    limits: Array
    low: Array
    high: Array

    @property
    def shape(self) -> tuple[object, ...]:
        """Programs of one shape rise together."""
        return self.terms.rows.shape, self.rows.shape, self.rooms.begins.tobytes(), len(self.rooms.terms.shift)
