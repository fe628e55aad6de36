"""What overrides say, by the place that each leads to: of two that say one place neither is lost without a word.

A later one goes on from an earlier one where it is inside it (`sizes={...}`, then `sizes.seq=64`) or a factor of it (`name*=0.5`). Where
it would undo it the two are refused, unless both say the same, or it is of a later turn: a condition of `why`, in the place of what was
asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rackmodel.errors import InputError
from rackmodel.inputs.marked import Step, short
from rackmodel.inputs.scaled import SIGN

Place = tuple[object, tuple[Step, ...]]
"""A tree's number, and the path in it."""


class Instead(str):
    """An override that takes the place of what those of earlier turns say."""

    turn: int

    def __new__(cls, text: str, turn: int = 1) -> Instead:
        """turn: 1 and up; a plain text is of turn 0."""
        made = super().__new__(cls, text)
        made.turn = turn
        return made


def instead(sets: Sequence[str], more: Iterable[str]) -> list[str]:
    """Overrides, and `more` that take the place of those which say the same."""
    turn = 1 + max(map(_turn, sets), default=0)
    return [*sets, *(Instead(text, turn) for text in more)]


class Said:
    """What was said so far of some trees."""

    def __init__(self) -> None:
        self._at: dict[Place, str] = {}

    def add(self, tree: object, path: Sequence[Step], text: str, *, factor: bool = False) -> None:
        """One more. factor: it scales what is there. Raises InputError where it would undo another of its turn."""
        at = tuple(path)
        for (other, place), before in self._at.items():
            if factor or other != tree or place[: len(at)] != at or _turn(before) < _turn(text):
                continue
            if place == at and _value(before) == _value(text):
                continue
            fact = f"'{short(before)}' and '{short(text)}' say one number: keep one"
            if place != at:
                fact = f"'{short(text)}' would undo '{short(before)}', which is inside it: say it first, or keep one"
            raise InputError(fact, path="--set")
        self._at[tree, at] = text


def _value(text: str) -> tuple[bool, str]:
    """(whether it is a factor, what is said)."""
    name, _, value = text.partition("=")
    return name.rstrip().endswith(SIGN), value.strip()


def _turn(text: str) -> int:
    return text.turn if isinstance(text, Instead) else 0
