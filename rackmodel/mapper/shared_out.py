"""Sizes that axes share out, and what does not divide."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from rackmodel.errors import InputError


class SharedOut(NamedTuple):
    """A size that axes share out. first: the axis that is named where it does not divide · what: index, size and operation."""

    size: int
    axes: tuple[int, ...]
    first: int
    what: str

    def problem(self, own: Sequence[int], parents: Sequence[str]) -> InputError:
        """The degrees do not divide it."""
        axis, degree = parents[self.first], prod(own[a] for a in self.axes)
        fact = f"axis {axis}: degree {degree} does not divide {self.what} (uneven: fullest allows it)"
        return InputError(fact, path=f"axes.{axis}.degree")


def uneven_share(shares: Sequence[SharedOut], own: Sequence[int]) -> SharedOut | None:
    """The first share that the degrees `own` do not divide."""
    return next((one for one in shares if one.size % prod([own[a] for a in one.axes])), None)


class AlikeLayouts(NamedTuple):
    """Layouts, by name, that share out the same sizes. over_batch: axes that split the batch."""

    layouts: tuple[str, ...]
    shares: list[SharedOut]
    over_batch: frozenset[int]
