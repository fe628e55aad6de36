"""Which all-reduces go on with the normalisation of what they sum: those of few enough bytes, by the members of the group.

    members = p  and  message <= most(p)

The kernel that sums makes the normalisation too, which then has no start of its own (LocalOp.starts). Sizes: `going_on` of a network's
collectives, such as vLLM's FI_ALLREDUCE_FUSION_MAX_SIZE_MB.
"""

from __future__ import annotations

import numpy as np

from rackmodel.arrays import Array, Bools, Ints

MostSummed = tuple[tuple[int, float], ...]
"""Members of an all-reduce, and bytes of its largest message that goes on."""


def within(most: MostSummed, members: Ints, volume: Array) -> Bools:
    """[n] whether all-reduces of `members` [n] and `volume` [n] bytes go on."""
    found = np.zeros(np.broadcast_shapes(np.shape(members), np.shape(volume)), dtype=bool)
    for count, size in most:
        found |= (members == count) & (volume <= size * (1 + 1e-12))
    return found
