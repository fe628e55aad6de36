"""Which network joins two accelerators, and where the memories beside and above them are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rackmodel.arrays import Ints
from rackmodel.errors import InputError
from rackmodel.model.architecture import Architecture, Level, Tier


def common_tier(tiers: Sequence[Tier], a: Any, b: Any) -> Ints:
    """Index of the tier whose network joins accelerators a and b (their lowest common ancestor's); −1 where a equals b.

    Raises InputError where none does.
    """
    a, b = np.broadcast_arrays(np.asarray(a, dtype=np.int64), np.asarray(b, dtype=np.int64))
    apart = a != b
    common = apart.astype(np.int64) - 1  # the tiers inside which they are apart
    for tier in tiers:
        if not apart.any():
            break
        span = tier.below * tier.children
        apart = apart & (a // span != b // span)
        common += apart
    if apart.any():
        far = np.argwhere(apart)[0]
        raise InputError(f"no network joins accelerators {a[tuple(far)]} and {b[tuple(far)]}")
    return np.asarray(common)


def first_position(parent: Level, child: str) -> int:
    """Position of the first instance of `child` among the children of one `parent`."""
    position = 0
    for level in parent.children:
        if level.name == child:
            return position
        position += level.count
    raise InputError(f"no level '{child}' under '{parent.name}'", known=[level.name for level in parent.children], given=child)


def tier_offsets(architecture: Architecture) -> tuple[int, ...]:
    """For each tier, the position of the first accelerator-holding child (not 0 where other children are declared before)."""
    path = architecture.path
    pairs = zip(reversed(path[:-1]), reversed(path[1:]), strict=True)
    return tuple(first_position(parent, child.name) for parent, child in pairs if parent.network is not None)


def attached_tier(architecture: Architecture, level: str) -> tuple[int, int, int]:
    """Where a memory at `level` joins the accelerators' networks: (tier index, position or −1, instances there).

    An accelerator's ancestor feeds its own network from above (position −1); a sibling of an ancestor sits among the
    children of their common parent. Raises InputError for a level that is neither.
    """
    levels, path = [tier.level for tier in architecture.tiers], [lv.name for lv in architecture.path]
    for depth, parent in enumerate(architecture.above):
        if parent.name == level:
            inner = [lv.name for lv in architecture.above[depth:] if lv.network is not None]
            return (levels.index(inner[0]) if inner else -1), -1, 1
        for child in parent.children:
            if child.name == level and level not in path:
                return levels.index(parent.name), first_position(parent, level), child.count
    known = [lv.name for parent in architecture.above for lv in (parent, *parent.children) if not lv.accelerator]
    fact = f"'{level}' is not above the accelerators nor beside their ancestors: it cannot stream to them"
    raise InputError(fact, known=dict.fromkeys(known), given=level)
