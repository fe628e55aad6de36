"""Profiles of training rows that may be columns of one: those that say the same of every step but for how products over experts are
launched, and those that say the same of what the tasks of layers take (model/profile_columns).

What the host launches is the last thing that is asked of a profile, so that it may be a fact of each column (`grouped` [n]); all that
comes before, programs and prices of tasks, is the same. A release that renames a profile, or differs in words alone, is no other one.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cache

import numpy as np

from rackmodel.inputs import read_profile
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.profile_columns import WORDS, facts_of, task_facts

OWN = "grouped"
"""The fact that each column may have for itself."""
_FIRST: dict[Hashable, str] = {}
"""What profiles say but for that fact, or of some tasks → the first one asked for."""


@cache
def profile_of(name: str, sets: tuple[str, ...]) -> ProfileSpec:
    """A profile of the library with overrides."""
    return read_profile(name, sets)


@cache
def like(name: str, sets: tuple[str, ...]) -> str:
    """The first of the profiles asked for whose columns this one's may stand beside in every respect."""
    return _FIRST.setdefault(facts_of(profile_of(name, sets), WORDS | {OWN}), name)


@cache
def alike(name: str, sets: tuple[str, ...], kinds: frozenset[str]) -> str:
    """The first of the profiles asked for beside whose tasks this one's may be priced. kinds: of the operations of layers."""
    return _FIRST.setdefault((kinds, task_facts(profile_of(name, sets), kinds)), name)


def together(profile: ProfileSpec, each: Sequence[ProfileSpec]) -> ProfileSpec:
    """A profile for columns of several that are like each other. each: of every column."""
    own = [getattr(one, OWN) for one in each]
    if len(set(own)) == 1:
        return profile.model_copy(update={OWN: own[0]})
    return profile.model_copy(update={OWN: np.array(own)})
