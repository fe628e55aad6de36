"""What is made once and asked for again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Made = TypeVar("Made")
_UNKNOWN = object()


def once(known: dict[Any, Any], key: Any, make: Callable[[], Made]) -> Made:
    """What is known under a key; where nothing is, what is made and remembered there. The key is looked up once: some take long to hash."""
    found = known.get(key, _UNKNOWN)
    if found is _UNKNOWN:
        found = known[key] = make()
    return found  # type: ignore[no-any-return]
