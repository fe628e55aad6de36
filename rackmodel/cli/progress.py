"""What a search that takes long says of itself on stderr: after two seconds a line with what is being searched and the gap so far.

Only a terminal is told, and the line is wiped away at the end.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rackmodel.model.certificate import status_of
from rackmodel.watch import Watch

AFTER, EVERY = 2.0, 0.2  # seconds
WIDE = 78  # columns at most; a narrower terminal would go on in a new line, that is not wiped


class Progress:
    """One line that is written over. name: what is searched, where there are several."""

    def __init__(self, name: str = "") -> None:
        self.name, self.started, self.last, self.shown = name, time.monotonic(), 0.0, False

    def __call__(self, what: str, gap: float | None) -> None:
        """Write the line, where enough time has passed."""
        now = time.monotonic()
        if now - self.started < AFTER or now - self.last < EVERY:
            return

        so_far = f", {status_of(gap)} so far" if gap is not None else ""
        head = f"{self.name}: " if self.name else ""
        line = f"searching for {now - self.started:.0f} s: {head}{what}{so_far}"
        _over(line)
        self.last, self.shown = now, True

    def wipe(self) -> None:
        """Leave the terminal as it was."""
        if self.shown:
            _over("")
            sys.stderr.write("\r")
            sys.stderr.flush()


class PointsLine:
    """'812/2,000 points, 214 a second, 6 s left', written over; the rate is of those done since the last begin. what: is counted."""

    def __init__(self, what: str = "points") -> None:
        self.what = what
        self.started, self.first, self.last, self.shown = time.monotonic(), -1, 0.0, False

    def __call__(self, done: int, total: int) -> None:
        """Say how far it is, where it is time to."""
        now = time.monotonic()
        if self.first < 0 or not done:
            self.started, self.first = now, done
        if not sys.stderr.isatty() or (now - self.last < EVERY and done < total):
            return
        solved, seconds = done - self.first, now - self.started
        text = f"{done:,}/{total:,} {self.what}"
        if solved and seconds > 0:
            rate = solved / seconds
            text += f", {rate:,.3g} a second, {_time_left((total - done) / rate)} left"
        _over(text)
        self.last, self.shown = now, True

    def wipe(self) -> None:
        """Go on in a new line."""
        if self.shown:
            sys.stderr.write("\n")
            sys.stderr.flush()


@contextmanager
def counting(what: str) -> Iterator[Callable[[str, int, int], None]]:
    """Who is told (for what, how many are done, of so many), and leaves the terminal as it was. what: is counted."""
    line = PointsLine(what)

    def tell(stage: str, done: int, total: int) -> None:
        line.what = f"{what}, {stage}"
        line(done, total)

    try:
        yield tell
    finally:
        if line.shown:
            _over("")
            sys.stderr.write("\r")
            sys.stderr.flush()


def _over(line: str) -> None:
    """Write a line over the last one."""
    wide = max(1, min(WIDE, shutil.get_terminal_size().columns - 1))
    sys.stderr.write(f"\r{line[:wide]:<{wide}}")
    sys.stderr.flush()


def _time_left(seconds: float) -> str:
    """'6 s', '4 min', '2.5 h'."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


@contextmanager
def watching(seconds: float | None, name: str = "") -> Iterator[Watch]:
    """A watch over one search, that tells a terminal. seconds: its time limit."""
    progress = Progress(name)
    try:
        yield Watch(seconds, progress if sys.stderr.isatty() else None)
    finally:
        progress.wipe()
