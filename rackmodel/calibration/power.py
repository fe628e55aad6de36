"""What a GPU draws while a kernel runs, from watts of long matrix products: the busy power of a part.

    W = min(limit, static + busy + joules / seconds)      joules: of operations and bytes, as the part has them

busy is the number of watts with the least sum of |log(predicted / measured)| over products of LONG and more: a loop of shorter ones
leaves the GPU waiting for the host, and watts are then of the waiting too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rackmodel.calibration.part import part_alone
from rackmodel.cost.inside.kernels import gpu_of
from rackmodel.validation.products import PRODUCT, price_local
from rackmodel.validation.rows import PublishedRow, read_rows
from rackmodel.validation.words import look_up, words

Array = NDArray[np.float64]

LONG = 0.2e-3  # s
LEAST_ROWS = 20
REACHED = 0.985  # share of the limit that a GPU at its limit is measured to draw
LONGEST_SUM = 50_000  # elements: rows beyond were measured in another way (watts at one rate differ)
WIDTH = 16  # bits of the products that are looked at


@dataclass(frozen=True, kw_only=True)
class BusyPower:
    """busy_w: found · away: |log(predicted / measured)| of the products it was fitted to, [n]."""

    gpu: str
    busy_w: float
    away: Array

    def fact(self) -> dict[str, str]:
        """What a part file says."""
        return {"value": f"{self.busy_w:.0f} W", "source": f"SOURCED: `rackmodel calibrate`, {self.words()}"}

    def words(self) -> str:
        """How near it is."""
        return (
            f"fitted to watts of {len(self.away)} long products ({self.gpu}): {self.busy_w:.0f} W, mean and median error "
            f"{100 * self.away.mean():.1f} and {100 * np.median(self.away):.1f} %"
        )


def busy_power(part: str, paths: Sequence[Path], gpu: str | None = None) -> BusyPower | None:
    """Fit the busy power of a part to the watts of products in the files, of one GPU where it is named; None where too few rows tell any,
    or the part has no limit."""
    machine = part_alone(part)
    found = gpu_of(machine)
    rows = [row for path in paths for row in read_rows(path) if gpu in (None, row.text("system", "gpu")) and _long(row)]
    if found is None or found.facts.power_limit_w is None or len(rows) < LEAST_ROWS:
        return None
    m, n, k, seconds, watts = np.array([[row.number(name) or 0.0 for name in ("m", "n", "k", "latency_us", "power_w")] for row in rows]).T
    charges, _ = price_local(machine, PRODUCT, {"m": m, "n": n, "k": k}, WIDTH, timed="looped")
    joules = np.asarray(sum(row.joules for row in charges if row.component != "static"))
    own = machine.accelerator.static_power_w + joules / (seconds * 1e-6)
    tried = np.arange(0.0, found.facts.power_limit_w)
    drawn = np.minimum(REACHED * found.facts.power_limit_w, own + tried[:, None])
    away = np.abs(np.log(drawn / watts))
    best = int(np.argmin(away.sum(axis=1)))
    return BusyPower(gpu=gpu or part, busy_w=float(tried[best]), away=away[best])


def _long(row: PublishedRow) -> bool:
    """Whether a row is a long product of 16 bit with its watts."""
    seconds, watts, summed = ((row.number(name) or 0.0) for name in ("latency_us", "power_w", "k"))
    if row.kind != "product" or not watts or seconds * 1e-6 < LONG or summed > LONGEST_SUM:
        return False
    precision = look_up(words().precisions, "precision", row.text("gemm_dtype", "precision"))
    return not precision.family and precision.width == f"{WIDTH} bit"


