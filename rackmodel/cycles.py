"""Cycles of objects are looked for rarely while much is made that has none: spaces that are searched, rows that are priced."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

RARELY = 100_000  # objects that are made, beyond those that are gone, before cycles are looked for
SELDOM = 20_000_000  # the same of pieces of work that leave next to none: of 443 training rows, one object in 800 is in a cycle
_lock = threading.Lock()
_before: list[int] = []  # of works that run now, the first one's: what was so before


@contextmanager
def rarely_looked_for(each: int = RARELY) -> Iterator[None]:
    """No more often than each so many objects; as it was before when the last of these works ends. (They may run in threads.)"""
    with _lock:
        now = gc.get_threshold()
        _before.append(_before[0] if _before else now[0])
        if 0 < now[0] < each:
            gc.set_threshold(each, *now[1:])
    try:
        yield
    finally:
        with _lock:
            before = _before.pop()
            if not _before:
                gc.set_threshold(before, *gc.get_threshold()[1:])
