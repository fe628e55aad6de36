"""Columns: meshes, pipelines and micro-batches that are priced together, an entry each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np

from rackmodel.arrays import Ints

PIECE = 4096  # columns priced at once, with all their rows in memory


@dataclass(frozen=True, kw_only=True)
class Columns:
    """axes: of a plan, the micro-batches last · degrees, strides: [n, axes] · stages, stage_strides: [n] the pipeline over layers ·
    micro_batch, micro_batches: [n] samples of one rank that run together, and how many such runs a step has.

    The last of the degrees is always the number of micro-batches. Steps of unequal batches have one column more: what divides the
    workload's batch, which is none of theirs, into micro-batches is the last axis, and behind it is their number."""

    axes: tuple[str, ...]
    degrees: Ints
    strides: Ints
    stages: Ints
    stage_strides: Ints
    micro_batch: Ints
    micro_batches: Ints

    def __len__(self) -> int:
        return len(self.stages)

    def pick(self, which: Ints) -> Columns:
        """Some of them."""
        arrays = {field.name: getattr(self, field.name)[which] for field in fields(self) if field.name != "axes"}
        return Columns(axes=self.axes, **arrays)

    @classmethod
    def join(cls, parts: Sequence[Columns]) -> Columns:
        """Several, one after another."""
        names = [field.name for field in fields(cls) if field.name != "axes"]
        return cls(axes=parts[0].axes, **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})

    def pieces(self, together: int = PIECE) -> Iterator[Ints]:
        """Numbers of columns in order, so many at a time."""
        for first in range(0, len(self), together):
            yield np.arange(first, min(first + together, len(self)))

    @property
    def said(self) -> tuple[object, ...]:
        """All that they say, as a key."""
        return self.axes, *(getattr(self, field.name).tobytes() for field in fields(self) if field.name != "axes")

    @property
    def per_stage(self) -> Ints:
        """[n] accelerators of a stage."""
        return np.asarray(self.degrees[:, : len(self.axes) - 1].prod(axis=1))


def distinct_rows(rows: Ints) -> tuple[list[int], Ints]:
    """(index of the first of each distinct row, which of them each row is)."""
    seen: dict[bytes, int] = {}
    firsts: list[int] = []
    which = np.empty(len(rows), dtype=np.int64)
    for number, row in enumerate(np.ascontiguousarray(rows)):
        key = row.tobytes()
        if key not in seen:
            seen[key] = len(firsts)
            firsts.append(number)
        which[number] = seen[key]
    return firsts, which
