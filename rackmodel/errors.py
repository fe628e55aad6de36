"""What can go wrong, as one tree.

RackmodelError
├── InputError        the input contradicts itself or the schema; reading alone shows it       (exit code 2)
└── InfeasibleError   the input is fine but no mapping fits: need, have, shortfall, way out      (exit code 1)

A bug is an assertion, never one of these.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Where:
    """A place in an input: file (or "--set"), 1-based line and column; 0 means the whole file."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


class RackmodelError(Exception):
    """Base of everything this package raises on purpose."""

    exit_code = 2


class InputError(RackmodelError):
    """Input that cannot be meant: where, what, what is allowed, what is nearest.

    path: dotted path of the value (tree.gpu.memory) · message: the bare fact · known: what is allowed there ·
    given: the word that was not understood (the nearest known word is suggested).
    """

    exit_code = 2

    def __init__(
        self,
        message: str,
        *,
        where: Where | None = None,
        path: str = "",
        known: Iterable[str] = (),
        given: str | None = None,
    ) -> None:
        self.message, self.where, self.path = message, where, path
        self.known, self.given = tuple(known), given
        super().__init__(message)

    def __str__(self) -> str:
        head = ": ".join(part for part in (str(self.where or ""), self.path, self.message) if part)
        if not self.known:
            return head
        line = f"\n  known: {', '.join(self.known)}"
        close = nearest(self.given, self.known)
        return head + line + (f"      did you mean '{close}'?" if close else "")

    def at(self, where: Where | None, path: str = "") -> InputError:
        """The same error, placed (inner code raises the bare fact, the reader knows the place)."""
        return InputError(self.message, where=self.where or where, path=self.path or path, known=self.known, given=self.given)


class InfeasibleError(RackmodelError):
    """No mapping fits: which resource, how much is needed and there, and the smallest change that fits."""

    exit_code = 1

    def __init__(
        self, message: str = "", *, resource: str = "", need: float = 0.0, have: float = 0.0, unit: str = "", change: str = ""
    ) -> None:
        message = message or f"{resource} needs {need:g} {unit}, it has {have:g}"
        self.message, self.resource, self.need, self.have = message, resource, need, have
        self.unit, self.change = unit, change
        super().__init__(message)

    @property
    def shortfall(self) -> float:
        """need − have, in `unit`."""
        return self.need - self.have

    def __str__(self) -> str:
        tail = f"\n  smallest change that fits: {self.change}" if self.change else ""
        return f"infeasible: {self.message}{tail}"


def nearest(word: str | None, known: Iterable[str]) -> str | None:
    """The known word closest to `word` (ties: the first), or None when nothing is close."""
    best, score = None, 0.6
    for candidate in known if word is not None else ():
        likeness = difflib.SequenceMatcher(None, candidate.lower(), str(word).lower()).ratio()
        if likeness > score or (best is None and likeness == score):
            best, score = candidate, likeness
    return best
