"""Whether nine of ten products, and nine of ten sums of a layer's products, lie where intervals say: fits to a GPU's measured products,
tried on shapes that they did not see.

    python tests/fits/cover.py gemm_perf.csv.gz          (NVIDIA aiconfigurator 095f58a51c4c)

Prints the table of docs/calibration.md, in percent: single products within 2.05 times the mean error, as attention and collectives are
taken; sums of four within `layers`, found on sums that have one half of the sides in common and tried on those of the other half.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rackmodel.calibration.fit_products import _folds, _layers, _ratio, forms_of, nearest
from rackmodel.calibration.part import machine_of, part_alone
from rackmodel.calibration.product_rows import ProductRows, read_products
from rackmodel.validation.unknowns import NINE_OF_TEN

PARTS = {"l40s": "l40s", "rtx_pro_6000_server": "rtx_pro_6000", "gb200": "gb200_gpu", "gb300": "gb300_gpu"}
"""What the rows call a GPU → its part, where the name is another."""
HALVES = 10  # ways of dealing sides to halves
LEAST = 20  # sums of a half


def held_out(rows: ProductRows, part: str) -> NDArray[np.float64]:
    """[rows] predicted over measured, of fits without their shapes."""
    machine = machine_of(part_alone(part), rows.precision)
    forms, found = forms_of(rows, machine, None), np.full(len(rows), np.nan)
    for held in _folds(rows):
        found[held] = _ratio(nearest(rows.only(~held), machine, forms), machine, rows.only(held))
    return found


def single(ratio: NDArray[np.float64]) -> float:
    """Share of products within what nine of ten are taken to lie in."""
    return float(np.mean(np.abs(ratio - 1) <= NINE_OF_TEN * np.abs(ratio - 1).mean()))


def sums(rows: ProductRows, ratio: NDArray[np.float64]) -> float:
    """Share of sums that lie within what those of other shapes say, over many ways to deal the sides that products have in common to two
    halves; NaN where they are too few."""
    found = [(min(set.intersection(*({rows.n[one], rows.k[one]} for one in own))), own) for own in _layers(rows)]
    value = np.array([(rows.seconds[own] * ratio[own]).sum() / rows.seconds[own].sum() for _, own in found])
    side = np.array([width for width, _ in found])
    sides, inside = np.unique(side), []
    for draw in range(HALVES):
        first = np.isin(side, np.random.default_rng(draw).permutation(sides)[::2])
        for known, tried in itertools.permutations((value[first], value[~first])):
            if min(len(known), len(tried)) >= LEAST:
                low, middle, high = np.percentile(known, [5, 50, 95])
                inside.append(np.mean(np.abs(tried - middle) <= (high - low) / 2))
    return float(np.mean(inside)) if inside else np.nan


def main(path: Path) -> None:
    """Print the table."""
    print("| GPU | precision | products inside | sums inside |\n|---|---|---|---|")
    for rows in read_products(path):
        if rows.precision in ("bf16", "fp8", "fp4"):
            ratio = held_out(rows, PARTS.get(rows.gpu, rows.gpu))
            print(f"| {rows.gpu} | {rows.precision} | {100 * single(ratio):.0f} | {100 * sums(rows, ratio):.0f} |", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
