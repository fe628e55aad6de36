"""How much a search may do: so many cells priced, and no longer than a moment on the clock.

Without a moment nothing depends on the clock: the same question stops at the same cell.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Exhausted(Exception):
    """The effort is spent; the searcher hands back what it has, with a bound."""


class Effort:
    """cells: that may be priced · ends: moment of time.monotonic() · late: whether the clock stopped something."""

    def __init__(self, cells: float = math.inf, ends: float = math.inf) -> None:
        self.cells, self.ends = cells, ends
        self.spent, self.late = 0, False

    def spend(self, cells: int) -> None:
        """Count cells that are about to be priced. Raises Exhausted where they are too many, or it is too late."""
        if self.spent + cells > self.cells:
            raise Exhausted
        self.check()
        self.spent += cells

    def check(self) -> None:
        """Raises Exhausted where it is too late."""
        if self.ends < math.inf and time.monotonic() >= self.ends:
            self.late = True
            raise Exhausted

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """No limit for a while: what was found is spelled out."""
        cells, ends = self.cells, self.ends
        self.cells = self.ends = math.inf
        try:
            yield
        finally:
            self.cells, self.ends = cells, ends

    @property
    def left(self) -> float:
        """Seconds left, at least 0."""
        return max(0.0, self.ends - time.monotonic()) if self.ends < math.inf else math.inf

    @property
    def over(self) -> bool:
        """Whether the time is over; `late` remembers that."""
        self.late = self.late or time.monotonic() >= self.ends
        return self.late

    def part(self, slow: float = 1.0) -> "Effort":
        """The same again for another part of the search; `late` is to be taken over from it. slow: how much longer its cells take."""
        return Effort(self.cells / slow, self.ends)
