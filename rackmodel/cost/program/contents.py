"""By what tasks, and parts of them, are known where sizes are arrays, which are no keys."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from rackmodel.cost.program.tasks import REMEMBERED, SAID, Bucketed, Flow, HashedOnce, LocalOp, Touched, Volume

HOLDING = frozenset({np.ndarray, tuple, Touched, Volume, Flow, LocalOp, Bucketed})
"""Kinds of values that may hold sizes."""


def content(value: Any) -> Hashable:
    """A part of a task by which equal ones are known, where sizes are arrays. What many tasks share, volumes and operations, remembers its
    own."""
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if type(value) is tuple:
        return tuple([content(one) if type(one) in HOLDING else one for one in value])
    if type(value) in HOLDING:
        known = vars(value)
        if SAID in known:
            return known[SAID]  # type: ignore[no-any-return]
        found = tuple([content(one) if type(one) in HOLDING else one for name, one in known.items() if name not in REMEMBERED])
        if isinstance(value, HashedOnce):
            known[SAID] = found
        return found
    return value  # type: ignore[no-any-return]
