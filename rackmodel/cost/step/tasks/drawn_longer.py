"""What kernels draw longer because collectives beside them slow them (docs/clock.md, rule 7), known before the clock runs.

    of a kernel in a pass    ((1 + contention · windows · beside / seconds) · stretch - 1) · (busy - waiting)    joules
    of a layer in a step     Σ over the passes: one of each first and last one, micro-batches - 1 of the others

beside: seconds of collectives that windows hide beside the kernel · stretch: of the pass's device tasks beside the busiest other lane ·
busy - waiting: what it draws at work, less what an accelerator that waits draws meanwhile (inside/power), at least 0: joules of a step
without these are a lower bound. Operations and bytes have the joules that they have, however long they take. Of a cut below the
layer each stage has passes of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.cost.inside.power import BUSY, WAITING
from rackmodel.cost.step.tasks.items import Item
from rackmodel.cost.step.tasks.jobs import DEVICE, LayerPass

ONCE = ("first", "last", "last weight")
"""Passes that a layer has once a step."""


@dataclass(frozen=True)
class Slowed:
    """micro_batches: [n] · contention: of compute beside collectives, as far as windows hide any."""

    micro_batches: Ints
    contention: Array | float

    def longer(self, passes: Mapping[str, LayerPass], items: Sequence[Item]) -> dict[int, Array]:
        """Item on the device → [n] times its seconds alone that a step adds to them, of one layer; none where nothing slows it."""
        found: dict[int, Array] = {}
        for name, one in passes.items():
            times = np.asarray(1 if name in ONCE else self.micro_batches - 1)
            for number in _on_device(one):
                more = self._slower(items[number]) * one.stretch - 1.0
                if np.any(more):
                    found[number] = found.get(number, 0.0) + times * more
        return found

    def _slower(self, item: Item) -> Array | float:
        """[n] seconds with what windows hide beside it, over its seconds alone."""
        if item.beside is None or not np.any(self.contention):
            return 1.0
        share = np.divide(item.beside, item.seconds, out=np.zeros_like(item.beside * item.seconds), where=item.seconds > 0)
        return np.asarray(1.0 + self.contention * share)


def drawn_longer(longer: Mapping[int, Array], items: Sequence[Item]) -> Array | float:
    """[n] joules of one layer in a step, on all accelerators of a stage. longer: as `Slowed.longer` has it."""
    found: Array | float = 0.0
    for number, times in longer.items():
        busy, spared = items[number].priced.lasting
        found = found + times * (busy - spared)
    return found


def times_drawn(more: Array | float, spared: Array | float, waiting: Array | float) -> dict[str, Array]:
    """Action → times as many joules as a kernel has alone, of what it draws for as long as it takes. more: times its seconds alone that
    collectives add to them · spared: as an item's `lasting` · waiting: joules of its rows of that, none above 0."""
    waits = np.asarray(waiting, dtype=np.float64)
    spares = np.asarray(more * spared, dtype=np.float64)
    kept = np.divide(spares, -waits, out=np.zeros(np.broadcast_shapes(spares.shape, waits.shape)), where=waits != 0)
    return {BUSY: np.asarray(1.0 + more), WAITING: 1.0 + kept}


def _on_device(one: LayerPass) -> Iterator[int]:
    return (number for job in (*one.ahead, *one.body) if job.lane == DEVICE for number in job.members)
