"""What the meter of a benchmark shows of kernels that it ran in loops, one right after the other.

    reading = the mean over samples at 0, 0.1, 0.2 ... s of a loop of what the GPU drew in the mean of the last second
            = share · kernel + (1 - share) · what it drew before: in the loop before, or while it waited for its kernel
    share    the mean over those samples of how much of the last second the loop has run, warm-up included
    loop     calls · time of a call;  calls = 1 s / that (0.3 s where it is below 0.1 ms), at most 3,000, at least 6

Source: NVIDIA aiconfigurator, collector/helper.py and collector/vllm/collect_gemm.py; NVML, nvmlDeviceGetPowerUsage (mean of one second).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

EVERY_S, WINDOW_S = 0.1, 1.0  # samples of the meter, what each is the mean of
LONG_S, SHORT_S, BRIEF_S = 1.0, 0.3, 1e-4  # a loop, one of brief calls, and what is brief
LEAST, MOST, WARM = 6, 3000, 6  # calls of a loop, and before it


class Loop(NamedTuple):
    """A kernel over and over. watts: it draws · seconds: of a product · products: in a call · waiting_w: what the GPU drew while it waited
    for the kernel right before, for a second and more; None: it did not wait."""

    watts: float
    seconds: float
    products: int = 1
    waiting_w: float | None = None

    @property
    def lasts(self) -> tuple[float, float]:
        """Seconds of its calls to warm up, and of those that are measured."""
        call = self.seconds * self.products
        calls = min(max(LEAST, int((SHORT_S if call < BRIEF_S else LONG_S) / call) + 1), MOST)
        return WARM * call, calls * call


def readings(loops: Sequence[Loop]) -> list[float]:
    """Watts that the meter shows of each of some loops in turn. Before the first the GPU drew what that draws."""
    seconds, joules, starts = [0.0, WINDOW_S], [0.0, WINDOW_S * loops[0].watts], []
    for loop in loops:
        warm, runs = loop.lasts
        if loop.waiting_w is not None:
            seconds.append(seconds[-1] + WINDOW_S)
            joules.append(joules[-1] + WINDOW_S * loop.waiting_w)
        starts.append(seconds[-1] + warm)
        seconds.append(starts[-1] + runs)
        joules.append(joules[-1] + (warm + runs) * loop.watts)
    shown = []
    for loop, start in zip(loops, starts, strict=True):
        samples = start + _samples(loop.lasts[1])
        last = np.interp(samples, seconds, joules) - np.interp(samples - WINDOW_S, seconds, joules)
        shown.append(float(last.mean() / WINDOW_S))
    return shown


def share_of(seconds: float, products: int = 1) -> float:
    """Share of a row's reading that is of its own loop. seconds: of a product · products: in a call."""
    warm, runs = Loop(0.0, seconds, products).lasts
    return float(np.minimum(_samples(runs) + warm, WINDOW_S).mean() / WINDOW_S)


def _samples(runs: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """When the meter is read, from a loop's start on."""
    return np.arange(0.0, runs + 1e-9, EVERY_S)
