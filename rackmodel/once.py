"""What is made once and asked for again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

Made = TypeVar("Made")
_UNKNOWN = object()


def once(known: dict[Any, Any], key: Any, make: Callable[[], Made], most: int = sys.maxsize) -> Made:
    """What is known under a key; where nothing is, what is made and remembered there. The key is looked up once: some take long to hash.
    most: of what is remembered; then all of it is forgotten."""
    found = known.get(key, _UNKNOWN)
    if found is _UNKNOWN:
        if len(known) >= most:
            known.clear()
        found = known[key] = make()
    return found  # type: ignore[no-any-return]
