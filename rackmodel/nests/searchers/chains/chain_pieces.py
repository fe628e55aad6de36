"""Pieces of a rank in arrays, many chains at once: what a split leaves, in one fixed form, so that equal ones can be told.

Pieces are two arrays [chains, columns], extents falling and how many of each; what is left over is 0 of extent 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rackmodel.arrays import Ints


@dataclass(frozen=True)
class Pieces:
    """extents, number: [chains, columns]."""

    extents: Ints
    number: Ints

    @staticmethod
    def whole(size: int) -> Pieces:
        """One chain without a split."""
        return Pieces(np.array([[size]]), np.array([[1]]))

    def at(self, chains: Ints) -> Pieces:
        """Those of some chains."""
        return Pieces(self.extents[chains], self.number[chains])

    def cut(self, tile: Ints) -> Pieces:
        """Every piece in whole tiles and a rest; tile: [chains]."""
        full, rest = np.divmod(self.extents, tile[:, None])
        whole = (full * self.number).sum(axis=1, keepdims=True)
        return _fixed(np.hstack([tile[:, None], rest]), np.hstack([whole, self.number]))

    def first(self, tile: Ints) -> Pieces:
        """Of every piece the largest part alone."""
        return _fixed(np.minimum(self.extents, tile[:, None]), self.number)

    @property
    def count(self) -> Ints:
        """[chains] pieces."""
        return np.asarray(self.number.sum(axis=1))

    @property
    def cover(self) -> Ints:
        """[chains] sum of their extents."""
        return np.asarray((self.extents * self.number).sum(axis=1))


def _fixed(extents: Ints, number: Ints) -> Pieces:
    """Extents falling, each once, no empty column."""
    extents = np.where(number > 0, extents, 0)
    number = np.where(extents > 0, number, 0)
    order = np.argsort(-extents, axis=1, kind="stable")
    extents, number = np.take_along_axis(extents, order, axis=1), np.take_along_axis(number, order, axis=1)
    for j in range(1, extents.shape[1]):
        same = (extents[:, j] == extents[:, j - 1]) & (extents[:, j] > 0)
        number[same, j] += number[same, j - 1]
        extents[same, j - 1] = number[same, j - 1] = 0
    order = np.argsort(-extents, axis=1, kind="stable")
    extents, number = np.take_along_axis(extents, order, axis=1), np.take_along_axis(number, order, axis=1)
    used = max(1, int((extents > 0).sum(axis=1).max(initial=0)))
    return Pieces(extents[:, :used], number[:, :used])


def stacked(several: Sequence[Pieces]) -> Pieces:
    """Those of all chains, in order."""
    most = max(one.extents.shape[1] for one in several)

    def wide(rows: Ints) -> Ints:
        return np.pad(rows, ((0, 0), (0, most - rows.shape[1])))

    return Pieces(np.vstack([wide(one.extents) for one in several]), np.vstack([wide(one.number) for one in several]))
