"""A search's time limit, and who is told how far it is.

Without a limit nothing depends on the clock, so that the same input gives the same answer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

Tell = Callable[[str, float | None], None]  # what is being searched, the gap so far (None: not known)


class Watch:
    """seconds: of wall time from now on, None = no limit · tell: called often with what is being searched and the gap so far."""

    def __init__(self, seconds: float | None = None, tell: Tell | None = None) -> None:
        self.seconds, self.tell = seconds, tell
        self.ends = math.inf if seconds is None else time.monotonic() + seconds
        self.stopped = False

    @property
    def limited(self) -> bool:
        """Whether there is a limit."""
        return self.ends < math.inf

    def again(self) -> Watch:
        """The same limit from now on."""
        return Watch(self.seconds, self.tell) if self.seconds is not None or self.tell is not None else self

    @property
    def left(self) -> float:
        """Seconds left, at least 0."""
        return max(0.0, self.ends - time.monotonic()) if self.limited else math.inf

    def over(self) -> bool:
        """Whether the time is up; `stopped` remembers that a search was told so."""
        if self.limited and time.monotonic() >= self.ends:
            self.stopped = True
        return self.stopped

    def say(self, what: str, best: float | None = None, bound: float | None = None) -> None:
        """Tell what is being searched and, where both are known, the gap so far."""
        if self.tell is not None:
            gap = (best - bound) / best if best is not None and bound is not None and best > 0 and math.isfinite(bound) else None
            self.tell(what, gap)


UNWATCHED = Watch()
