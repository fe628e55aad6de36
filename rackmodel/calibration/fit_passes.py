"""What a pass costs in kernels that go over an all-reduce in passes of a fixed grid (`call_kernels`).

    T(V) = max(floor, start + 2 (p - 1) / p x V / link + wait x p x passes(V)),     passes(V) = ceil(V / bytes of a pass)

A byte takes what the links take; beside it a pass waits for reads from each of p members, however many of its threads have work. The
wait is one number of a kernel on a machine, which all numbers of members share; each has a start of its own. No call takes less than
its launch.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rackmodel.arrays import Array

MOST = 0.25  # of one call's error: a call that something disturbed


@dataclass(frozen=True, kw_only=True)
class SteppedCurve:
    """Calls of one kernel: [n] bytes and s. passes: bytes of a pass · link: bytes a second and direction of a member · floor_s: s of a
    launch."""

    members: int
    passes: float
    link: float
    volume: Array
    seconds: Array
    floor_s: float

    @property
    def slope(self) -> float:
        """s a byte of the message."""
        return 2.0 * (self.members - 1) / self.members / self.link

    @property
    def waits(self) -> Array:
        """[n] reads that are waited for: of every pass from every member."""
        return self.members * np.ceil(self.volume / self.passes)

    @property
    def beside_links(self) -> Array:
        """[n] s that the links' bytes do not take."""
        return self.seconds - self.slope * self.volume

    def slopes(self) -> list[float]:
        """s a pass and member by each two calls that differ in passes."""
        pairs = [(one, other) for one, other in itertools.combinations(range(len(self.volume)), 2) if self.waits[one] != self.waits[other]]
        return [float((self.beside_links[b] - self.beside_links[a]) / (self.waits[b] - self.waits[a])) for a, b in pairs]

    def start(self, wait_s: float) -> tuple[float, float]:
        """(start in s, sum of errors) of least errors, of the starts that meet one of the calls; not negative."""
        starts = np.maximum(self.beside_links - wait_s * self.waits, 0.0)
        told = np.maximum(starts[:, None] + self.slope * self.volume + wait_s * self.waits, self.floor_s)
        away = np.minimum(np.abs(np.log(told / self.seconds)), MOST).sum(axis=1)
        return float(starts[away.argmin()]), float(away.min())


def wait_of_pass(curves: Sequence[SteppedCurve]) -> float | None:
    """s a pass and member of least errors, of those that two calls of a curve ask for; None where no two differ in passes."""
    asked = sorted({max(slope, 0.0) for one in curves for slope in one.slopes()})
    return min(asked, key=lambda wait_s: sum(one.start(wait_s)[1] for one in curves), default=None)
