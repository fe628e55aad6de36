"""What a tiled matrix product moves on the chip, for its energy: L2 to shared memory, shared memory to registers, registers.

    level                    bytes a multiply-accumulate, of elements of w bytes
    L2 (blocks of tm x tn)   w (1/tm + 1/tn)
    shared memory            the same in, and out to warps of 64 x 64: w (1/64 + 1/64)
    registers                operands of an instruction of m x n x k: w (1/m + 1/n), its sums in 32 bit in and out: 8/k

The roofline charges what is compulsory at each level; a kernel's blocks fetch again what their neighbours fetched. Rows `feed`
carry the rest, in joules alone: the kernel's measured rate has the time. Source of the form: NVIDIA, CUTLASS's hierarchy of
tiles; the warp's tile is ASSUMED.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rackmodel.cost.inside.roofline import Row, times
from rackmodel.cost.program.tasks import Degrees, LocalOp
from rackmodel.model.architecture import Architecture
from rackmodel.model.resources import Atom, Tile

WARP = 64
SUM_BYTES = 4.0


def feed_rows(
    architecture: Architecture, local_op: LocalOp, degrees: Degrees, rows: Sequence[Row], tile: Tile, atom: Atom | None
) -> list[Row]:
    """Rows for what a product moves beyond the compulsory traffic in `rows`; none for a vector operation."""
    if not local_op.macs:
        return []
    (products, most), word = local_op.points(degrees), local_op.bits / 8
    fuller = times(most, products) if local_op.paced else 1.0
    blocks = word * (1 / tile.m + 1 / tile.n)
    inner = atom or Atom(m=16, n=8, k=16)
    per_level = {
        "read": (blocks, word * 2 / WARP, word * (1 / inner.m + 1 / inner.n) + SUM_BYTES / inner.k),
        "write": (0.0, blocks, SUM_BYTES / inner.k),
    }
    found, zero = [], np.zeros_like(products)
    levels = architecture.memories[1:]
    if len(levels) != 3:
        return []
    for depth, (level, memory, _) in enumerate(levels):
        for action, amounts in per_level.items():
            there = sum((row.amount for row in rows if row.level == level.name and row.action == action), zero)
            more = np.maximum(products * amounts[depth] - there, 0.0)
            energy = memory.read_j_per_byte if action == "read" else memory.write_j_per_byte
            found.append(Row(local_op.written, level.name, "memory", "feed", more, "byte", more * energy, zero, zero, fuller))
    return found
