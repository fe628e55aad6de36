"""Priced columns of training cases → steps: their pipelines run side by side, whatever machines and models they are of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.cost.step.exposure import Asked, exposure_bins
from rackmodel.validation.training import TrainingCase
from rackmodel.validation.unknowns import Interval, Varied


@dataclass(frozen=True)
class PricedStep:
    """What the engine says of one case. seconds: of the step · bytes: on the fullest accelerator · capacity: that one may hold, 0 where
    nothing limits · flops: of the model for a step, hardware_flops: with what full recomputation adds · peak: operations a second of one
    accelerator · refused: why it is not priced · interval: of the seconds."""

    seconds: float = 0.0
    bytes: float = 0.0
    capacity: float = 0.0
    flops: float = 0.0
    hardware_flops: float = 0.0
    peak: float = 0.0
    notes: tuple[str, ...] = ()
    refused: str = ""
    bins: dict[str, float] = field(default_factory=dict)
    interval: Interval | None = None


@dataclass(frozen=True)
class StructurePart:
    """Cases of one structure among priced columns. asked: the columns of all of them, then each end of each fact of those that have an
    interval · which: the columns · held: [which] bytes on the fullest accelerator · notes: what was assumed of the cut and the kernels."""

    asked: Asked
    which: Ints
    held: Array
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class PricedColumns:
    """Cases, a column each, whose layers are priced. ranges: of what is known as a range · work: operations of the model and of the
    hardware, of each · capacity, peak: of `PricedStep`."""

    cases: tuple[TrainingCase, ...]
    parts: tuple[StructurePart, ...]
    ranges: Varied
    work: tuple[tuple[float, float], ...]
    capacity: float
    peak: float

    @property
    def columns(self) -> int:
        """Columns, with those of facts' ends."""
        return sum(len(part.asked.which) for part in self.parts)


def timed(waiting: Sequence[PricedColumns], *, bins: bool = True) -> Iterator[tuple[TrainingCase, PricedStep]]:
    """Each case with its step. bins: whether they are looked at; no path is read back for what is not."""
    parts = [(group, part) for group in waiting for part in group.parts]
    found = exposure_bins([part.asked if bins else replace(part.asked, some=0) for _, part in parts])
    for (group, part), priced in zip(parts, found, strict=True):
        yield from _steps(group, part, priced)


def _steps(
    group: PricedColumns, part: StructurePart, priced: Sequence[tuple[float, dict[str, float]]]
) -> Iterator[tuple[TrainingCase, PricedStep]]:
    count, detailed = len(part.which), part.asked.some
    apart = np.array([seconds for seconds, _ in priced[count:]]).reshape(-1, max(1, detailed))
    for place, column in enumerate(part.which.tolist()):
        seconds, bins = priced[place]
        flops, hardware_flops = group.work[column]
        step = PricedStep(
            seconds=seconds,
            bytes=float(part.held[place]),
            capacity=group.capacity,
            flops=flops,
            hardware_flops=hardware_flops,
            peak=group.peak,
            notes=part.notes,
            bins=bins,
            interval=group.ranges.interval([seconds, *apart[:, place]]) if place < detailed else None,
        )
        yield group.cases[column], step
