"""Sizes that axes share out, and what does not divide."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from rackmodel.errors import InputError


def begins_inside(flat: Sequence[str]) -> str:
    """Why a flattening is not cut where its first index does not divide: heads that begin inside a group need keys and values that
    several ranks then make, and whose gradients they sum."""
    return f"parts of [{', '.join(flat)}] that begin inside a {flat[0]} are not priced: split {flat[0]} alone"


class SharedOut(NamedTuple):
    """A size that axes share out. first: the axis that is named where it does not divide · what: index, size and operation · flat: the
    flattening that the axes split, of which the operation has some indices alone."""

    size: int
    axes: tuple[int, ...]
    first: int
    what: str
    flat: tuple[str, ...] = ()

    def problem(self, own: Sequence[int], parents: Sequence[str]) -> InputError:
        """The degrees do not divide it."""
        axis, degree = parents[self.first], prod(own[a] for a in self.axes)
        way = begins_inside(self.flat) if self.flat else "uneven: fullest allows it"
        fact = f"axis {axis}: degree {degree} does not divide {self.what} ({way})"
        return InputError(fact, path=f"axes.{axis}.degree")


def uneven_share(shares: Sequence[SharedOut], own: Sequence[int]) -> SharedOut | None:
    """The first share that the degrees `own` do not divide."""
    return next((one for one in shares if one.size % prod([own[a] for a in one.axes])), None)


class AlikeLayouts(NamedTuple):
    """Layouts, by name, that share out the same sizes. over_batch: axes that split the batch."""

    layouts: tuple[str, ...]
    shares: list[SharedOut]
    over_batch: frozenset[int]
