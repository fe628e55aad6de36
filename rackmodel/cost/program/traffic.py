"""What one tensor's layouts cost to reconcile: forward copies, the saved copy, its re-gathers; and which of its gradients are summed.

Local to the tensor: it needs the choices of its producer and its readers only. That is why layouts can be solved by
variable elimination, and why derivation and solvers cannot disagree (both ask here).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from rackmodel.model.copies import plan_copies, saved_copy
from rackmodel.model.layout import Layout, merge

Copies = tuple[tuple[Layout, Layout], ...]  # (copy, the layout it is made from), in the order of making


@dataclass(frozen=True)
class TensorTraffic:
    """forward, regather: copies to make · saved: layout kept for the backward pass, None if nothing reads it."""

    forward: Copies
    saved: Layout | None
    regather: Copies


@cache
def tensor_traffic(produced: Layout, forward: tuple[Layout, ...], backward: tuple[Layout, ...], policy: str) -> TensorTraffic:
    """Copies of one tensor on one mesh. produced: layout it is left in · forward, backward: layouts its readers want, in order."""
    saved = saved_copy(policy, produced, forward, backward) if backward else None
    also = (saved,) if saved is not None and saved != produced else ()
    copies = plan_copies([produced], [*forward, *also])
    regather = plan_copies([saved], backward) if saved is not None else {}
    return TensorTraffic(tuple(copies.items()), saved, tuple(regather.items()))


def merged(contributions: Sequence[Layout]) -> list[tuple[Layout, tuple[int, ...]]]:
    """Gradient contributions summed before they are converted: (layout, which contributions) for each sum."""
    sums: list[tuple[Layout, tuple[int, ...]]] = []
    for number, layout in enumerate(contributions):
        for position, (existing, which) in enumerate(sums):
            both = merge(existing, layout)
            if both is not None:
                sums[position] = (both, (*which, number))
                break
        else:
            sums.append((layout, (number,)))
    return sums
