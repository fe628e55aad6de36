"""A batch of points: what one process works on at a time, here or on another machine, and what it hands back.

A batch carries the trees of its inputs, so that who solves it reads no file but the library; and the version of the model, for an
answer of another version would be an answer to another question.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from rackmodel.carbon.bill import Bill
from rackmodel.cost.step.tasks.shared import Shared
from rackmodel.errors import InputError, OutputError
from rackmodel.inputs import library_names, library_path
from rackmodel.inputs.marked import Marked
from rackmodel.inputs.shared import SharedInputs, SharedPoint
from rackmodel.model.architecture import Architecture
from rackmodel.store.remembered import version
from rackmodel.studies.answer import Plain, answer_of, to_text
from rackmodel.studies.metrics import Value, figures_of, metric
from rackmodel.studies.plan import Ask

SOURCES = (
    "api.py", "arrays.py", "errors.py", "evaluations.py", "once.py", "results.py", "searches.py", "setting.py", "units.py", "carbon/*.py",
    "cost/**/*.py", "inputs/*.py", "mapper/**/*.py", "model/*.py", "nests/**/*.py", "report/tables.py", "studies/answer.py",
    "studies/metrics.py", "studies/table.py",
)  # fmt: skip
"""What decides an answer, and the row of a point."""

TABLES = ("part", "collectives", "carbon", "block", "family", "profile")
"""Kinds of the library's files that inputs refer to by name."""


MOST_TREES = 256
"""Files whose trees a worker remembers."""

MOST_TEXTS = 512
"""Answers whose text a worker remembers."""


@cache
def model_version() -> str:
    """Digest of the model's sources and of the library's tables."""
    made = hashlib.sha256(version(SOURCES).encode())
    names = library_names()
    for kind in TABLES:
        for name in names.get(kind, []):
            made.update(f"{kind} {name}\0".encode() + library_path(kind, name).read_bytes() + b"\0")
    return made.hexdigest()


@dataclass(frozen=True)
class Batch:
    """asks: points, by key · columns: metrics of a row · trees: (kind, name) → what they start from."""

    asks: Mapping[str, Ask]
    columns: tuple[str, ...]
    trees: Mapping[tuple[str, str], Marked]
    version: str = field(default_factory=model_version)


@dataclass(frozen=True)
class SolvedPoint:
    """One point's answer. text: as JSON · answer: why there is no result, or the status alone · figures: of the columns."""

    key: str
    text: str
    answer: Plain
    figures: dict[str, Value]


def read_point(shared: SharedInputs, ask: Ask) -> SharedPoint:
    """The inputs of a point, not yet built. Raises InputError."""
    return shared.read(*ask.files, profile=ask.profile_file, sets=ask.sets)


class Keyed(NamedTuple):
    """What a point is known by. key: of its inputs · machine: of that of its machine · problem: what is wrong with its inputs
    where they cannot be read · started: the trees that it starts from, by kind and name."""

    key: str
    machine: str = ""
    problem: InputError | None = None
    started: tuple[tuple[str, str], ...] = ()


def key_of(shared: SharedInputs, ask: Ask) -> Keyed:
    """What a point is known by."""
    try:
        point = read_point(shared, ask)
    except InputError as found:
        return Keyed(_key("refused", ask.words, str(found)), problem=found)
    digests = point.digests
    return Keyed(_key(*digests, ask.minimize), digests[0], started=point.started)


def _key(*said: str | None) -> str:
    return hashlib.sha256(json.dumps([model_version(), *said]).encode()).hexdigest()


_HERE = threading.local()
"""Inputs that this thread has read: batches of one study share them."""


def solve_batch(batch: Batch) -> list[SolvedPoint]:
    """The answers to a batch. Raises OutputError where this is another version of the model, or a point has other inputs here."""
    if batch.version != model_version():
        raise OutputError("a worker has another version of rackmodel, or other tables in its library: install the same on all machines")
    shared = _shared()
    shared.adopt(batch.trees)
    columns = [metric(name) for name in batch.columns]
    bills: dict[int, tuple[Architecture, Bill | None]] = {}
    found = []
    for key, ask in batch.asks.items():
        if key_of(shared, ask).key != key:
            raise OutputError(f"{ask.words}: a setting names a file that changed, or that is another where this worker is", "sweep")
        answer, result = answer_of(lambda ask=ask: read_point(shared, ask), ask.minimize, _HERE.priced)  # type: ignore[misc]
        figures = {} if result is None else figures_of(result, columns, bills)
        short = {name: value for name, value in answer.items() if name in ("status", *(() if result is not None else answer))}
        found.append(SolvedPoint(key, _text(answer), short, figures))
    return found


def _text(answer: Plain) -> str:
    """As JSON; of an answer that several points have, once."""
    known: dict[int, tuple[Plain, str]] = _HERE.texts
    if id(answer) not in known:
        if len(known) >= MOST_TEXTS:
            known.clear()
        known[id(answer)] = answer, to_text(answer)
    return known[id(answer)][1]


def _shared() -> SharedInputs:
    found: SharedInputs | None = getattr(_HERE, "shared", None)
    if found is None or len(found.trees) > MOST_TREES:
        found = _HERE.shared = SharedInputs()
        _HERE.priced, _HERE.texts = Shared(), {}
    return found


def batches(
    asks: Mapping[str, Ask], started: Mapping[str, Iterable[tuple[str, str]]], shared: SharedInputs, columns: Sequence[str], size: int
) -> list[Batch]:
    """Points in batches of at most `size`, in their order. started: by key, the trees that each starts from (of one that cannot be read,
    none: reading it again says so)."""
    keys = list(asks)
    made = []
    for first in range(0, len(keys), size):
        own = {key: asks[key] for key in keys[first : first + size]}
        trees = {name: shared.tree(*name) for key in own for name in started[key]}
        made.append(Batch(own, tuple(columns), trees))
    return made
