"""Convex programs of exponentials, of which lower bounds are found (program_ascent).

    minimise  constant + d z + sum_i c_i exp(A_i z)   with   log sum_j exp(P_j z + q_j) <= 0,  G z <= h,  low <= z <= high
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rackmodel.nests.arrays import Floats, Number


@dataclass(frozen=True)
class Exponentials:
    """sum_i exp(rows_i z + shift_i)."""

    rows: Floats
    shift: Floats

    def at(self, z: Floats) -> Floats:
        """[terms] at some numbers."""
        return np.asarray(np.exp(np.clip(self.rows @ z + self.shift, -700.0, 300.0)))


@dataclass(frozen=True)
class Room:
    """A sum of exponentials that is at most constant + slope z, which is more than 0 wherever z may be."""

    terms: Exponentials
    slope: Floats
    constant: Number


@dataclass(frozen=True)
class ConvexProgram:
    """terms, slope, constant: of the objective · rooms: what must hold · rows, limits: rows z <= limits · low, high: the box."""

    terms: Exponentials
    slope: Floats
    constant: float
    rooms: list[Room]
    rows: Floats
    limits: Floats
    low: Floats
    high: Floats

    @property
    def shape(self) -> tuple[object, ...]:
        """Programs of one shape rise together."""
        return self.terms.rows.shape, self.rows.shape, tuple(room.terms.rows.shape for room in self.rooms)
