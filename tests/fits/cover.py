"""Whether nine of ten products, and nine of ten sums of a layer's products, lie where intervals say: fits to a GPU's measured products,
tried on shapes that they did not see.

    python tests/fits/cover.py gemm_perf.csv.gz          (NVIDIA aiconfigurator 095f58a51c4c)

Prints the table of docs/calibration.md, in percent: single products within 2.05 times the mean error, as attention and collectives are
taken; sums of four that have one side in common within what `layers` is of the sums of all other sides.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rackmodel.calibration.fit_products import _folds, _ratio, forms_of, layers_of, nearest, spread_of_sums
from rackmodel.calibration.part import machine_of, part_alone
from rackmodel.calibration.product_rows import ProductRows, read_products
from rackmodel.validation.unknowns import NINE_OF_TEN

PARTS = {"l40s": "l40s", "rtx_pro_6000_server": "rtx_pro_6000", "gb200": "gb200_gpu", "gb300": "gb300_gpu"}
"""What the rows call a GPU → its part, where the name is another."""


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
    """Share of the sums that have one side in common that lie within what the sums of all other sides say, about the middle of those; NaN
    where they are too few."""
    found = list(layers_of(rows))
    value = np.array([(rows.seconds[own] * ratio[own]).sum() / rows.seconds[own].sum() for _, own in found])
    side, inside = np.array([width for width, _ in found]), []
    for width in np.unique(side):
        known = value[side != width]
        within = spread_of_sums(side[side != width], known)
        inside += (np.abs(value[side == width] / np.median(known) - 1) <= within).tolist()
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
