"""How far watts of products lie from what their meter may have shown: `python tests/fits/meter.py aic_gemm.csv.gz [LEAST_ROWS]`.

    reading between  share · kernel + (1 - share) · idle  and  share · kernel + (1 - share) · limit
    share    the mean over samples at 0, 0.1, 0.2 ... s of a loop of how much of the last second it has run, warm-up included
    loop     calls · time of a call;  calls = 1 s / that (0.3 s where it is below 0.1 ms), at most 3,000, at least 6

A call makes one product of fp8_block or nvfp4 and six of another format. Source: NVIDIA aiconfigurator, collector/helper.py and
collector/vllm/collect_gemm.py; NVML, nvmlDeviceGetPowerUsage (mean of one second).
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.inside.gpu import gpu_of
from rackmodel.validation.machine_files import machine_of
from rackmodel.validation.meter import share_of
from rackmodel.validation.products import looped_rows, product_rows
from rackmodel.validation.rows import read_rows
from rackmodel.validation.words import look_up, words

Array = NDArray[np.float64]
ALONE = ("fp8_block", "nvfp4")  # formats of which a call makes one product


def main(path: Path, least: float) -> None:
    """Print, for each GPU and format, what share the readings tell and how far nine of ten lie outside their range."""
    rows = [row for row in read_rows(path) if row.number("power_w") and (row.number("m") or 0.0) >= least]
    watts = {one.id.removesuffix(" power"): one for one in product_rows(rows) if one.unit == "W"}
    cells: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    loops = looped_rows(rows)[1]
    for number, row in enumerate(rows):
        scored, kernel = watts[row.id], loops[number].watts
        said = look_up(words().machines, "GPU", row.text("system"))
        machine = machine_of(said.machine, tuple(said.set.items()))
        gpu = gpu_of(machine)
        assert gpu is not None
        assert gpu.facts.power_limit_w is not None
        share = share_of((row.number("latency_us") or 0.0) * 1e-6, 1 if row.text("gemm_dtype") in ALONE else 6)
        low, high = (share * kernel + (1 - share) * one for one in (machine.accelerator.static_power_w, gpu.facts.power_limit_w))
        outside = max(low / scored.measured - 1, scored.measured / high - 1, 0.0)
        cells.setdefault((row.text("system"), row.text("gemm_dtype")), []).append((share, outside, abs(scored.error)))
    print(f"{'':24}{'rows':>6}{'share told':>12}{'inside %':>10}{'nine of ten outside by %':>26}{'mean error %':>14}")
    for (system, precision), found in cells.items():
        share, outside, error = np.array(found).T
        figures = f"{np.median(share):12.2f}{100 * np.mean(outside == 0):10.0f}{100 * np.quantile(outside, 0.9):26.1f}"
        print(f"{system + ' ' + precision:24}{len(found):6}{figures}{100 * error.mean():14.1f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 4096.0)
