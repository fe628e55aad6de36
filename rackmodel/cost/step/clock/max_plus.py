"""Matrices over (max, +) that remember what they are products of, so that the way behind any of their entries can be read back.

    (A B)_ij = max_k (A_ik + B_kj): the longest way from i to j, first through A, then through B

Arrays are [state, state, n] over n mappings of one structure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from rackmodel.arrays import Array
from rackmodel.once import once

NEVER = -np.inf


@dataclass(eq=False, frozen=True)
class Matrix:
    """value: [state, state, n] · parts: the two it is the product of; None for one that is no product."""

    value: Array
    parts: tuple[Matrix, Matrix] | None = None


def identity(size: int, n: int) -> Array:
    """[size, size, n]: what changes nothing."""
    found = np.full((size, size, n), NEVER)
    found[np.arange(size), np.arange(size)] = 0.0
    return found


def product(first: Matrix, second: Matrix) -> Matrix:
    """First one, then the other."""
    return Matrix(applied(first.value, second.value[None]), (first, second))


def applied(state: Array, matrix: Array) -> Array:
    """[w, state, n] after [w, state, state, n]; a w of one goes with any."""
    return np.asarray(np.maximum.reduce(state[:, :, None] + matrix, axis=1))


def power(base: Matrix, times: int, squares: dict[Matrix, Matrix]) -> Matrix | None:
    """The same `times` times over, by squaring; None for none. squares: of matrices, those that are known: more are noted there. (One that
    knew its own square, which knows what it is of, would stay until cycles of objects are looked for.)"""
    found: Matrix | None = None
    while times:
        if times & 1:
            found = base if found is None else product(found, base)
        times >>= 1
        if times:
            base = once(squares, base, partial(product, base, base))
    return found


def chain(matrices: Sequence[Matrix | None]) -> Matrix | None:
    """One after another; Nones are left out."""
    found: Matrix | None = None
    for matrix in matrices:
        if matrix is not None:
            found = matrix if found is None else product(found, matrix)
    return found
