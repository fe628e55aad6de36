"""The least power of a space's steps, which the verdict of a limit of power names: the steps run that may have it.

    (J0 + w T) / T  >=  J0 / T_most + w        J0 the joules of a step's tasks, w static and waiting power, T_most seconds at most

Those that are likely to draw least are run first, which says of most others that they draw more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.mapper.blocks import Block, Blocks, Value
from rackmodel.mapper.points import Point

FIRST = 16  # that are likely to draw least
TOGETHER = 1024  # run together then (chosen: four times as many saved a sixteenth of the time, and hold more)
ROUNDING = 1e-9  # taken off: the clock's joules are sums in another order


@dataclass(frozen=True)
class _Steps:
    """[n] steps. block, flat: where each lies · least: watts, at least · likely: about."""

    blocks: Sequence[Block]
    block: Ints
    flat: Ints
    least: Array
    likely: Array

    def first(self, likely: int) -> Iterator[Ints]:
        """Places of the steps, some at a time: as many that are likely to draw least, then the others by what they draw at least."""
        begin = np.argsort(self.likely, kind="stable")[:likely]
        yield begin
        rest = np.argsort(self.least, kind="stable")
        rest = rest[~np.isin(rest, begin)]
        for at in range(0, len(rest), TOGETHER):
            yield rest[at : at + TOGETHER]


def steps_by_least_power(blocks: Blocks, static_w: float, value: Value, known: Callable[[], float]) -> Iterator[list[Point]]:
    """The steps that may draw least, some at a time, to be run. value: inf beyond what limits allow · known: the least power so far."""
    every = _steps(blocks, static_w, value)
    for places in every.first(FIRST):
        some = places[every.least[places] <= known()]
        if len(some) == 0:
            return
        yield [blocks.point(every.blocks[every.block[one]], int(every.flat[one]), float(every.least[one])) for one in some]


def _steps(blocks: Blocks, static_w: float, value: Value) -> _Steps:
    """All that limits may allow."""
    listed, parts = list[Block](), [(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0))]
    for block in blocks.walk(lambda *least: value(*least) < np.inf):
        flat = np.flatnonzero(value(block.seconds, block.joules, block.memory) < np.inf)
        seconds, joules, most = (one.reshape(-1)[flat] for one in (block.seconds, block.joules, blocks.most_seconds(block)))
        least, likely = (_watts(joules - static_w * seconds, long) + static_w for long in (most, seconds))
        parts.append((np.full(len(flat), len(listed)), flat, least * (1 - ROUNDING), likely))
        listed.append(block)
    return _Steps(listed, *(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _watts(joules: Array, seconds: Array) -> Array:
    """0 of a step of no time."""
    return np.divide(joules, seconds, out=np.zeros_like(joules), where=seconds > 0)
