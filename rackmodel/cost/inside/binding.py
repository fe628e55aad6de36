"""What a kernel's seconds go to: the resource that it waits for, whose rows carry them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rackmodel.arrays import Array
from rackmodel.cost.inside.roofline import Row


@dataclass(frozen=True)
class Binding:
    """What a kernel waits for. seconds: of each row in the kernel · groups: rows of each resource · times: seconds of each · slowest: of
    all · body: of the kernel, where it is more the roofline binds."""

    seconds: Sequence[Any]
    groups: Sequence[Sequence[int]]
    times: Sequence[Array]
    slowest: Array
    body: Array

    def exposed(self, bound: Callable[[], Sequence[Row]], duration: Array) -> list[Any]:
        """Exposed seconds of each row; they sum to the duration. The binding group's rows carry it, the start in proportion. bound: the
        rows as the roofline exposes them, which is asked for where that binds."""
        works = self.body > 0
        scale, none = np.divide(duration, self.body, out=np.zeros_like(duration), where=works), np.zeros_like(duration)
        exposed: list[Any] = [none] * len(self.seconds)
        left = ~(self.slowest < self.body)
        if not left.all():
            exposed = [np.where(left, none, row.exposed * scale) for row in bound()]
        for group, seconds in zip(self.groups, self.times, strict=True):
            if not left.any():
                break
            here = left & (seconds == self.slowest)
            for i in group:
                exposed[i] = np.where(here, self.seconds[i] * scale, exposed[i])
            left = left & ~here
        exposed[0] = np.where(works, exposed[0], duration)  # nothing but a start
        return exposed
