"""How many measured products tell a GPU: fits to a part of its rows, tried on all the others.

    python tests/fits/subsample_products.py gemm_perf.csv.gz          (NVIDIA aiconfigurator 095f58a51c4c)

Prints the table of docs/calibration.md: the mean error on rows that the fit did not see, in percent, by how many it saw. Rows are drawn
DRAWS times in a fixed order; the figure is the mean of the draws.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rackmodel.calibration.fit_products import _error, forms_of, nearest
from rackmodel.calibration.part import machine_of, part_alone
from rackmodel.calibration.product_rows import ProductRows, read_products

COUNTS = (30, 60, 120, 250, 500)
DRAWS = 2
PARTS = {"l40s": "l40s", "rtx_pro_6000_server": "rtx_pro_6000", "gb200": "gb200_gpu", "gb300": "gb300_gpu"}
"""What the rows call a GPU → its part, where the name is another."""


def errors(rows: ProductRows, part: str, counts: Sequence[int] = COUNTS, draws: int = DRAWS) -> list[float]:
    """Mean error on rows that were not in the fit, for each count."""
    machine = machine_of(part_alone(part), rows.precision)
    forms = forms_of(rows, machine, None)
    found = []
    for count in counts:
        each = []
        for draw in range(draws):
            seen = np.zeros(len(rows), dtype=bool)
            seen[np.random.default_rng(draw).permutation(len(rows))[:count]] = True
            facts = nearest(rows.only(seen), machine, forms)
            each.append(float(_error(facts, machine, rows.only(~seen)).mean()))
        found.append(float(np.mean(each)))
    return found


def main(path: Path) -> None:
    """Print the table."""
    print(f"| GPU | {' | '.join(str(count) for count in COUNTS)} |")
    print(f"|---{'|---' * len(COUNTS)}|")
    for rows in read_products(path):
        if rows.precision == "bf16":
            found = errors(rows, PARTS.get(rows.gpu, rows.gpu))
            print(f"| {rows.gpu} | {' | '.join(f'{100 * error:.1f}' for error in found)} |", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
