"""Profiles that may be columns of one: those that say the same of every step, but for how products over experts are launched.

What the host launches is the last thing that is asked of a profile, so that it may be a fact of each column (`grouped` [n]); all that
comes before, programs and prices of tasks, is the same. A release that renames a profile, or differs in words alone, is no other one.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cache
from typing import Any

import numpy as np
from pydantic import BaseModel

from rackmodel.inputs import read_profile
from rackmodel.model.profile import ProfileSpec
from rackmodel.units import Quantity

WORDS = frozenset({"name", "source", "sources", "note"})
"""Of a file and its mappings: what changes no figure."""
OWN = "grouped"
"""The fact that each column may have for itself."""
_FIRST: dict[Hashable, str] = {}
"""What profiles say but for that fact → the first one asked for."""


@cache
def profile_of(name: str, sets: tuple[str, ...]) -> ProfileSpec:
    """A profile of the library with overrides."""
    return read_profile(name, sets)


@cache
def like(name: str, sets: tuple[str, ...]) -> str:
    """The first of the profiles asked for whose columns this one's may stand beside."""
    return _FIRST.setdefault(_facts(profile_of(name, sets), WORDS | {OWN}), name)


def together(profile: ProfileSpec, each: Sequence[ProfileSpec]) -> ProfileSpec:
    """A profile for columns of several that are alike. each: of every column."""
    own = [getattr(one, OWN) for one in each]
    if len(set(own)) == 1:
        return profile.model_copy(update={OWN: own[0]})
    return profile.model_copy(update={OWN: np.array(own)})


def _facts(value: Any, without: frozenset[str] = WORDS) -> Hashable:
    """What a part of a profile says: numbers with their ranges, in the order of the file."""
    if isinstance(value, Quantity):
        return float(value), value.low, value.high
    if isinstance(value, BaseModel):
        return tuple((name, _facts(one)) for name, one in value if name not in without)
    if isinstance(value, dict):
        return tuple((name, _facts(one)) for name, one in value.items())
    return tuple(map(_facts, value)) if isinstance(value, list | tuple) else value
