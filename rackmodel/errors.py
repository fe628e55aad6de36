"""What can go wrong, as one tree.

RackmodelError
├── InputError        the input contradicts itself or the schema; reading alone shows it       (exit code 2)
│   ├── NotFiniteError    the input is read, but a figure of its answer is no finite number      (exit code 2)
│   └── NoKernelError     an accelerator has no kernel of a kind that a profile asks for         (exit code 2)
├── InfeasibleError   the input is fine but no mapping fits: need, have, shortfall, way out      (exit code 1)
└── OutputError       the computer failed: the disk is full, a file cannot be written            (exit code 3)

A bug is an assertion, never one of these.
"""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

MOST_SHOWN = 20
"""Problems of one file that a message lists; the rest are counted."""

MOST_KNOWN = 60
"""Words of a list of what is known that a message tells: the nearest; the rest are counted."""

_LONG_LIST = 110

ALSO_CALLED = {
    "size": ("capacity",),
    "bytes": ("capacity",),
    "hbm": ("memory", "capacity"),
    "ram": ("memory",),
    "bw": ("bandwidth",),
    "speed": ("bandwidth", "rate", "latency"),
    "throughput": ("bandwidth", "rate", "latency"),
    "peak": ("rate", "bandwidth"),
    "flops": ("rate",),
    "tflops": ("rate",),
    "pflops": ("rate",),
    "time": ("latency",),
    "delay": ("latency",),
    "runtime": ("latency",),
    "joules": ("energy", "read_energy"),
    "power": ("energy",),
    "watts": ("power", "energy"),
    "co2": ("carbon",),
    "co2e": ("carbon",),
    "emissions": ("carbon",),
    "cost": ("money",),
    "price": ("money", "cost"),
    "dollars": ("money", "cost"),
    "gpus": ("accelerators",),
    "n_gpus": ("accelerators",),
    "num_gpus": ("accelerators",),
    "world_size": ("accelerators",),
    "devices": ("accelerators",),
    "ways": ("degree",),
    "swish": ("silu",),
    "seq": ("s",),
    "sequence": ("s",),
    "seq_len": ("s",),
    "seq_length": ("s",),
    "sequence_length": ("s",),
    "link": ("network",),
    "machine": ("architecture",),
    "interconnect": ("network",),
}
"""Other words of the field for a key, an objective or a figure → ours, the first that is known at the place is suggested."""


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

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {"message": str(self)}


class InputError(RackmodelError):
    """Input that cannot be meant: where, what, what is allowed, what is nearest.

    path: dotted path of the value (tree.gpu.memory) · message: the bare fact · known: what is allowed there ·
    given: the word that was not understood (the nearest known word is suggested) · more: what else is wrong with the same file.
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
        more: Sequence[InputError] = (),
    ) -> None:
        self.message, self.where, self.path = message, where, path
        self.known, self.given = tuple(known), given
        self.more = tuple(more)
        super().__init__(message)

    @property
    def problems(self) -> tuple[InputError, ...]:
        """Every single problem, this one first, none with others inside."""
        alone = InputError(self.message, where=self.where, path=self.path, known=self.known, given=self.given)
        return (alone, *(one for other in self.more for one in other.problems))

    def __str__(self) -> str:
        if not self.more:
            return self._alone()
        every = self.problems
        left = len(every) - MOST_SHOWN
        shown = [one._alone(before.known) for before, one in pairwise(every[:MOST_SHOWN])]
        return "\n".join([every[0]._alone(), *shown, *([f"and {left} more"] if left > 0 else [])])

    def _alone(self, said: tuple[str, ...] = ()) -> str:
        """Said alone, or after a problem with the list `said` of what is known, which is not repeated."""
        head = ": ".join(part for part in (str(self.where or ""), self.path, self.message) if part)
        if not self.known:
            return head
        close = nearest(self.given, self.known)
        hint = f"did you mean '{close}'?" if close else ""
        if self.known == said:
            return f"{head}\n  {hint}" if hint else head
        left = len(self.known) - MOST_KNOWN
        shown = self.known if left <= 0 else likest(self.given, self.known, MOST_KNOWN)
        line = f"  known: {', '.join(shown)}" + (f" and {left} more" if left > 0 else "")
        if len(line) <= _LONG_LIST:
            return f"{head}\n{line}" + (f"      {hint}" if hint else "")
        listed = textwrap.wrap(line, _LONG_LIST, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
        return "\n".join([head, *listed, *([f"  {hint}"] if hint else [])])

    def at(self, where: Where | None, path: str = "") -> InputError:
        """The same error, placed (inner code raises the bare fact, the reader knows the place)."""
        return InputError(
            self.message, where=self.where or where, path=self.path or path, known=self.known, given=self.given, more=self.more
        )

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON: one problem and its place; `more`: the others of the same file, where there are any."""
        place, more = self.where or Where(""), [one.to_dict() for one in self.problems[1:]]
        return {
            "file": place.file or None,
            "line": place.line or None,
            "column": place.column or None,
            "path": self.path or None,
            "message": self.message,
            "known": list(self.known),
            "nearest": nearest(self.given, self.known),
            **({"more": more} if more else {}),
        }


def together(problems: Sequence[InputError]) -> InputError:
    """One error that tells all of them, in their order. problems: at least one."""
    every = [one for problem in problems for one in problem.problems]
    first = every[0]
    return InputError(first.message, where=first.where, path=first.path, known=first.known, given=first.given, more=every[1:])


class NoKernelError(InputError):
    """The input was read, but the accelerator states no rate of a kernel that the profile runs."""


class NotFiniteError(InputError):
    """The input was read, but a figure of the answer is no finite number: a unit is off by powers of ten, or a division by nothing."""

    def __init__(self, figure: str, value: float) -> None:
        self.figure, self.value = figure, value
        super().__init__(f"{figure} comes out as {value}: no answer; a number of the input is too large or too small to be meant")

    @property
    def problems(self) -> tuple[InputError, ...]:
        """This one."""
        return (self,)


class OutputError(RackmodelError):
    """The computer failed, not the input: a full disk, a folder that cannot be written, a closed pipe.

    what: what could not be done, as a sentence · where: the file or stream.
    """

    exit_code = 3

    def __init__(self, what: str, where: str = "") -> None:
        self.what, self.where = what, where
        super().__init__(what)

    def __str__(self) -> str:
        return ": ".join(part for part in (self.where, self.what) if part)


def check_once(values: Iterable[object], path: str = "") -> None:
    """Raise InputError where a value of a list is there twice."""
    seen = set()
    for value in values:
        if value in seen:
            said = ", ".join(map(str, value)) if isinstance(value, tuple) else value
            raise InputError(f"'{said}' is there twice: keep one", path=path)
        seen.add(value)


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

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {
            "message": self.message,
            "resource": self.resource,
            "need": self.need,
            "have": self.have,
            "shortfall": self.shortfall,
            "unit": self.unit,
            "change": self.change,
        }

    def __str__(self) -> str:
        tail = f"\n  smallest change that fits: {self.change}" if self.change else ""
        return f"infeasible: {self.message}{tail}"


def likest(word: str | None, known: Sequence[str], count: int) -> tuple[str, ...]:
    """Some of the known words, those closest to `word` in letters, in their order; the first ones where there is no word."""
    likeness = {one: _likeness(one, word) if word is not None else 0.0 for one in known}
    best = set(sorted(known, key=lambda one: -likeness[one])[:count])
    return tuple(one for one in known if one in best)


def _likeness(one: str, word: str) -> float:
    return difflib.SequenceMatcher(None, one.lower(), str(word).lower()).ratio()


def nearest(word: str | None, known: Iterable[str]) -> str | None:
    """The known word closest to `word` in letters (ties: the first), else in meaning, or None when nothing is close."""
    if word is None:
        return None
    best, score = None, 0.6
    known = tuple(known)
    for candidate in known:
        likeness = _likeness(candidate, word)
        if likeness > score or (best is None and likeness == score):
            best, score = candidate, likeness
    return best or next((one for one in ALSO_CALLED.get(str(word).lower(), ()) if one in known), None)
