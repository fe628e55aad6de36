"""What a search asks a machine's networks, and what it hears: machines that say the same have one answer.

A search reads the bandwidth, latency, energy and start of the networks above by questions alone: collectives, sends and streams on meshes.
What it asks next follows from what it heard. So where two machines differ in nothing but those numbers, and the second one says the same
to each question as the first, the second one's answer is the first one's: a tree of questions leads to it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from pydantic import BaseModel

from rackmodel.errors import InputError
from rackmodel.model.architecture import Architecture
from rackmodel.units import Quantity

Found = TypeVar("Found")
Question = Callable[..., Any]
"""A function of the architecture, and of what it is given besides."""

NUMBERS = frozenset({"bandwidth_bytes_per_s", "latency_s", "energy_j_per_byte", "start_s"})
"""Of a network above the accelerators: what is read by questions alone."""

MOST_STARTS = 128  # searches that are remembered
MOST_MACHINES = 256
MOST_ANSWERS = 8  # of machines that answered differently, for each


def plainly(architecture: Architecture, question: Question, *given: Any) -> Any:
    """What a machine says to a question."""
    return question(architecture, *given)


def content(value: Any) -> Hashable:
    """What tells arrays, and records of them, apart."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, tuple | list):
        return tuple(content(one) for one in value)
    if is_dataclass(value):
        return tuple(content(getattr(value, one.name)) for one in fields(value))
    return value  # type: ignore[no-any-return]


def besides_numbers(machine: Architecture) -> Hashable:
    """All that a machine is but for the NUMBERS of the networks above its accelerators."""
    asked = [id(tier.network) for tier in machine.tiers]

    def of(value: Any) -> Hashable:
        if isinstance(value, BaseModel):
            left_out = NUMBERS if id(value) in asked else ()
            return tuple(of(getattr(value, name)) for name in type(value).model_fields if name not in left_out)
        if isinstance(value, dict):
            return tuple((key, of(one)) for key, one in value.items())
        if isinstance(value, tuple | list):
            return tuple(of(one) for one in value)
        return (float(value), value.low, value.high) if isinstance(value, Quantity) else value

    return of(machine)


class Hearing:
    """Asks for one search. heard: each question once, what it was given, and what tells the answer apart, in order · alone: whether they
    were all to the machine itself."""

    def __init__(self, machine: Architecture) -> None:
        self.machine, self.alone = machine, True
        self.heard: dict[Hashable, tuple[Question, tuple[Any, ...], Hashable]] = {}

    def __call__(self, architecture: Architecture, question: Question, *given: Any) -> Any:
        """What the architecture says, noted."""
        found = question(architecture, *given)
        if architecture is self.machine:
            key = question, content(given)
            if key not in self.heard:
                self.heard[key] = question, given, content(found)
        else:
            self.alone = False
        return found


@dataclass
class _NextQuestion:
    """A question on the way. then: what was said → the next question, or the answer."""

    question: Question
    given: tuple[Any, ...]
    then: dict[Hashable, Any] = field(default_factory=dict)

    def heard_from(self, machine: Architecture) -> Any:
        """Where what a machine says leads; None where no other said so."""
        try:
            return self.then.get(content(self.question(machine, *self.given)))
        except InputError:
            return None


@dataclass
class _End(Generic[Found]):
    answer: Found


class Conversations:
    """Answers of searches, by what they are about and what was heard on the way."""

    def __init__(self) -> None:
        self._begun: dict[Hashable, tuple[tuple[object, ...], dict[Hashable, Any], list[object]]] = {}
        self._machines: dict[int, tuple[Architecture, int]] = {}
        self._rests: dict[Hashable, int] = {}  # a short word for what is the same

    def answer(self, inputs: tuple[object, ...], said: Hashable, machine: Architecture, search: Callable[[Hearing], Found]) -> Found:
        """The answer to a search about these very inputs, on a machine. said: whatever else tells it apart. Raises what `search` does."""
        about = (*map(id, inputs), said, self._besides(machine))
        node = self._begun[about][1].get(None) if about in self._begun else None
        while isinstance(node, _NextQuestion):
            node = node.heard_from(machine)
        if node is not None:
            return node.answer  # type: ignore[no-any-return]
        hearing = Hearing(machine)
        found = search(hearing)
        if hearing.alone:
            self._keep(about, inputs, hearing, found)
        return found

    def _besides(self, machine: Architecture) -> Hashable:
        """`besides_numbers`, once for each machine."""
        if id(machine) not in self._machines:
            if len(self._machines) >= MOST_MACHINES:
                self._machines.clear()
            rest = besides_numbers(machine)
            self._machines[id(machine)] = machine, self._rests.setdefault(rest, len(self._rests))
        return self._machines[id(machine)][1]

    def _keep(self, about: Hashable, inputs: tuple[object, ...], hearing: Hearing, answer: object) -> None:
        while about not in self._begun and len(self._begun) >= MOST_STARTS:
            del self._begun[next(iter(self._begun))]
        _, then, answers = self._begun.setdefault(about, (inputs, {}, []))
        if len(answers) >= MOST_ANSWERS:
            then.clear()
            answers.clear()
        said: Hashable = None
        for question, given, heard in hearing.heard.values():
            node = then.get(said)
            if not isinstance(node, _NextQuestion):
                node = then[said] = _NextQuestion(question, given)
            then, said = node.then, heard
        then[said] = _End(answer)
        answers.append(answer)
