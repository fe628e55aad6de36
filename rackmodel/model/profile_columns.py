"""Profiles as columns of one: numbers in which they differ are arrays, an entry for each column.

What a task takes follows from some facts of a profile; when it runs, and what the host takes beside it, from the others (`task_facts`).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel

from rackmodel.model.exchanges import GATHERED
from rackmodel.model.profile import ProfileSpec
from rackmodel.units import Quantity

WORDS = frozenset({"name", "source", "sources", "note"})
"""Of a file and its parts: what changes no figure."""
WHEN = frozenset({"host", "hand_over", "reserved_bytes"})
"""What tasks do not take: what the host takes, what stages hand over, what a runtime keeps."""
NUMBERS = frozenset({"variation", "library", "links", "updates", "grouped"})
"""Facts that each column may have for itself."""
TOLD = frozenset({"composites", "overlap", "heads", "casts", "buckets", "collectives"})
"""Facts of which parts are told."""


def facts_of(value: Any, without: Collection[str] = WORDS) -> Hashable:
    """What a part of a profile says: numbers with their ranges, in the order of the file. without: what is left out of it."""
    if isinstance(value, Quantity):
        return float(value), value.low, value.high
    if isinstance(value, BaseModel):
        return tuple((name, facts_of(one)) for name, one in value if name not in without)
    if isinstance(value, dict):
        return tuple((name, facts_of(one)) for name, one in value.items())
    return tuple(map(facts_of, value)) if isinstance(value, list | tuple) else value


def task_facts(profile: ProfileSpec, kinds: Collection[str]) -> Hashable:
    """What profiles must share for tasks of some kinds of operations to be priced as columns of one array, whatever their numbers are. A
    library of collectives is none of it: see `one_library`."""
    overlap = profile.overlap.ahead, profile.overlap.regather
    moves = {"bytes"}
    composites = [
        (kind, facts_of(one.forward, WORDS | moves), facts_of(one.backward, WORDS | moves))
        for kind, one in sorted(profile.composites.items())
        if kind in kinds
    ]
    around = profile.heads
    heads = facts_of(around.forward, WORDS | moves), facts_of(around.backward, WORDS | moves), facts_of(around.ring)
    casts = tuple((width, facts_of(one, WORDS | {"activation", "weight", "gradient", "again"})) for width, one in profile.casts.items())
    buckets = facts_of(profile.buckets, WORDS | {"rank_s"})
    return facts_of(profile, WORDS | WHEN | NUMBERS | TOLD), overlap, tuple(composites), heads, casts, buckets


def one_library(profiles: Sequence[ProfileSpec]) -> bool:
    """Whether those of some profiles that call a library's collectives may be columns beside each other and beside those that call none."""
    asked = {facts_of(one.collectives): one for one in profiles if one.collectives is not None}
    if len({one.collectives is None for one in profiles}) == 1 and len(asked) <= 1:
        return True
    listed = any(one.merged.reductions == "listed" for one in profiles)
    own = [one.collectives for one in profiles if one.collectives is not None]
    apart = any(one.narrowed or GATHERED in (one.exchange or "").split() for one in own)
    return len(asked) == 1 and not listed and not apart


def as_columns(profiles: Sequence[ProfileSpec], counts: Sequence[int]) -> ProfileSpec:
    """A profile for columns of several, so many of each, whose own numbers may be arrays. What differs and is no number is as the first
    says it. Raises ValueError for none."""
    found: ProfileSpec = joined(profiles, counts)
    grouped = np.concatenate([np.broadcast_to(one.grouped, (count,)) for one, count in zip(profiles, counts, strict=True)])
    library = next((one.collectives for one in profiles if one.collectives is not None), None)
    links = found.links * np.ones(sum(counts))  # by which a pricer sees that facts are columns
    each: Any = grouped if len(set(grouped.tolist())) > 1 else str(grouped[0])
    return found.model_copy(update={"grouped": each, "collectives": library, "links": links})


def joined(values: Sequence[Any], counts: Sequence[int]) -> Any:
    """Parts of a file for so many columns each: numbers that differ as an array over all of them, anything else that does as the first says
    it, as what the others lack."""
    first = values[0]
    if all(one is first for one in values):
        return first
    if isinstance(first, BaseModel) and all(isinstance(one, BaseModel) for one in values):
        own = {name: [getattr(one, name) for one in values] for name in type(first).model_fields}
        return first.model_copy(update={name: joined(parts, counts) for name, parts in own.items()})
    if isinstance(first, dict):
        return {name: joined([one[name] if name in one else _of_one(first[name]) for one in values], counts) for name in first}
    if any(isinstance(one, str | bool) or not isinstance(one, int | float | np.ndarray) for one in values):
        return first
    if not any(isinstance(one, np.ndarray) for one in values) and len(set(values)) == 1:
        return first
    return np.concatenate([np.broadcast_to(one, (count,)) for one, count in zip(values, counts, strict=True)])


def _of_one(value: Any) -> Any:
    """A part of a file whose numbers may be arrays, as its first column has it."""
    if isinstance(value, BaseModel):
        return value.model_copy(update={name: _of_one(one) for name, one in value})
    if isinstance(value, dict):
        return {name: _of_one(one) for name, one in value.items()}
    return float(value[0]) if isinstance(value, np.ndarray) else value
