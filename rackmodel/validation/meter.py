"""What the meter of a benchmark shows of a kernel that it ran in a loop, when the GPU waited before it.

    reading = share · kernel + (1 - share) · (static + waiting power)
    share    the mean over samples at 0, 0.1, 0.2 ... s of a loop of how much of the last second it has run, warm-up included
    loop     calls · time of a call;  calls = 1 s / that (0.3 s where it is below 0.1 ms), at most 3,000, at least 6

Source: NVIDIA aiconfigurator, collector/helper.py and collector/vllm/collect_gemm.py; NVML, nvmlDeviceGetPowerUsage (mean of one second).
"""

from __future__ import annotations

import numpy as np

EVERY_S, WINDOW_S = 0.1, 1.0  # samples of the meter, what each is the mean of
LONG_S, SHORT_S, BRIEF_S = 1.0, 0.3, 1e-4  # a loop, one of brief calls, and what is brief
LEAST, MOST, WARM = 6, 3000, 6  # calls of a loop, and before it


def share_of(seconds: float, products: int = 1) -> float:
    """Share of a row's reading that is of its own loop. seconds: of a product · products: in a call."""
    call = seconds * products
    calls = min(max(LEAST, int((SHORT_S if call < BRIEF_S else LONG_S) / call) + 1), MOST)
    ran = np.arange(0.0, calls * call + 1e-9, EVERY_S) + WARM * call
    return float(np.minimum(ran, WINDOW_S).mean() / WINDOW_S)


def after_waiting(watts: float, waiting_w: float, seconds: float) -> float:
    """Watts that the meter shows of a kernel that draws `watts` after the GPU waited. waiting_w: what it drew then."""
    share = share_of(seconds)
    return share * watts + (1.0 - share) * waiting_w
