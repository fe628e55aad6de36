"""From the layout a tensor was left in to the layout it is needed in: which collectives, over which axes.

    Shard → Replicate   all_gather          Partial → Replicate   all_reduce
    Partial → Shard     reduce_scatter      Shard(r) → Shard(q)   all_to_all
    Replicate → Shard, anything → Partial   nothing

Axes with the same conversion act as one group. What shrinks goes first and what grows last: slice, reduce-scatter,
all-to-all, all-reduce, all-gather.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from rackmodel.model.layout import PARTIAL, REPLICATE, Layout

_ORDER = ("reduce_scatter", "all_to_all", "all_reduce", "all_gather")
_WEIGHT = {"": 0, "reduce_scatter": 1, "all_to_all": 1, "all_gather": 1, "all_reduce": 2}


@dataclass(frozen=True)
class Step:
    """One collective over a group of axes. shape: the layout whose local size is the message (see collectives):
    what is held before it, or for an all-gather what is held after it · other: the layout at its other end."""

    collective: str
    axes: tuple[int, ...]
    shape: Layout
    other: Layout


def kind_of(source: str, target: str) -> str:
    """The collective for one axis; '' where nothing moves."""
    if source in (target, REPLICATE) or target == PARTIAL:
        return ""
    if source == PARTIAL:
        return "all_reduce" if target == REPLICATE else "reduce_scatter"
    return "all_gather" if target == REPLICATE else "all_to_all"


@cache
def convert(source: Layout, target: Layout) -> tuple[Step, ...]:
    """Steps from one layout to another; empty when nothing moves."""
    kinds = [kind_of(a, b) for a, b in zip(source, target, strict=True)]
    now = list(source)
    for axis, kind in enumerate(kinds):
        if kind == "" and target[axis] != PARTIAL:
            now[axis] = target[axis]
    steps = []
    for collective in _ORDER:
        axes = tuple(axis for axis, kind in enumerate(kinds) if kind == collective)
        if not axes:
            continue
        before = tuple(now)
        for axis in axes:
            now[axis] = target[axis]
        after = tuple(now)
        shape, other = (after, before) if collective == "all_gather" else (before, after)
        steps.append(Step(collective, axes, shape, other))
    return tuple(steps)


def effort(source: Layout, target: Layout) -> int:
    """How much a conversion moves, without degrees: 0 = nothing (chooses the source of a copy)."""
    return sum(_WEIGHT[kind_of(a, b)] for a, b in zip(source, target, strict=True))
