"""Whether a mapper's lists name indices of the workload, or one that is only almost there.

A list may hold indices of other workloads (`[m, b]`, `[h, f, v]`): those are passed over. A word that no operation has but that is
nearly an index the list lacks (`[hod, out]` where the workload has `hid`) is a slip, and would silently split nothing:

    slip(word) = word is no index, and some index i that is not in the list is near:
                 distance(word, i) <= 1 for words of 3 or 4 letters, <= 2 from 5 on, or likeness(word, i) >= 0.7, or only capitals differ

Words of one or two letters are no slips but by capitals: each is one letter away from every other. A word that is no slip and no index
of the library's workloads either (FAMILY) is passed over with a warning. Distances are of Damerau and Levenshtein.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from rackmodel.errors import InputError, together
from rackmodel.model.mapping import MapperSpec, RankChoice
from rackmodel.model.workload import Workload

FAMILY = frozenset("abdefghijkmnpqstvxyz") | {"a2", "a3", "c1", "fs", "fx", "g2", "q2"}
"""Indices of the library's workloads and of imported ones (inputs/trained), which mappers list for one another."""

LIKENESS = 0.7
_SHORT, _LONG = 3, 5


@dataclass(frozen=True)
class ListedWord:
    """One word of a list of indices. path: of it in the file · what: says that it is none · known: indices that are there · others: words
    of the same list."""

    word: str
    path: str
    what: str
    known: tuple[str, ...]
    others: tuple[str, ...]

    @property
    def strange(self) -> bool:
        """Whether it is no index here."""
        return self.word not in self.known and self.word != "none" and not self.word.startswith("+")

    @property
    def slip(self) -> bool:
        """Whether it is a slip of the pen."""
        return self.strange and nearly(self.word, self.known, self.others) is not None


def check_split(mapper: MapperSpec, workload: Workload) -> None:
    """Raise one InputError for all words of `split` and `boundary` lists (the mapper's and its layouts') that are slips of the pen.

    Each has the path of the word (`split.tp.0`), the indices that are there as `known` and the word as `given`.
    """
    slips = [
        InputError(f"{one.what} '{one.word}'", path=one.path, known=one.known, given=one.word)
        for one in _listed(mapper, workload)
        if one.slip
    ]
    if slips:
        raise together(slips)


def passed_over(mapper: MapperSpec, workload: Workload) -> tuple[str, ...]:
    """A sentence for each word that is an index neither here nor in any workload of the library, and splits nothing."""
    strange = [one for one in _listed(mapper, workload) if one.strange and not one.slip and one.word not in FAMILY]
    return tuple(f"{one.path}: {one.what} '{one.word}': passed over" for one in strange)


def _listed(mapper: MapperSpec, workload: Workload) -> Iterator[ListedWord]:
    """Every word of a list of the mapper's and its layouts'; what one key alone says is checked where it is used."""
    indices = workload.indices
    if isinstance(mapper.uneven, list):
        yield from _words(list(mapper.uneven), "uneven", f"no operation of {workload.name} has an index", indices)
    for prefix, table in mapper.tables:
        for axis, said in table.split.items():
            if not isinstance(said, str):
                yield from _words(said, f"{prefix}split.{axis}", f"no operation of {workload.name} has an index", indices)
        for tensor, edges in table.boundary.items():
            if tensor in workload.tensors:
                for axis, ranks in edges.items():
                    if not isinstance(ranks, str):
                        own = workload.tensors[tensor].ranks
                        yield from _words(list(ranks), f"{prefix}boundary.{tensor}.{axis}", f"{tensor} has no rank", own)


def _words(said: list[RankChoice], path: str, what: str, known: tuple[str, ...]) -> Iterator[ListedWord]:
    """Each word of one list; a flattening has several ('split.tp.0.1')."""
    found = [
        (f"{path}.{number}", element) if isinstance(element, str) else (f"{path}.{number}.{inner}", word)
        for number, element in enumerate(said)
        for inner, word in enumerate([element] if isinstance(element, str) else element)
    ]
    others = tuple(word for _, word in found)
    yield from (ListedWord(word, place, what, known, others) for place, word in found)


def nearly(word: str, indices: Collection[str], listed: Collection[str]) -> str | None:
    """The index that a word which is none was meant to be: near to it and not in the list itself; None where there is no such."""
    if word in indices:
        return None
    near = [index for index in indices if index not in listed and _near(word, index)]
    return max(near, key=lambda index: _likeness(word, index), default=None)


def _near(word: str, index: str) -> bool:
    if word.lower() == index.lower():
        return True
    if min(len(word), len(index)) < _SHORT:
        return False
    return distance(word, index) <= (1 if len(word) < _LONG else 2) or _likeness(word, index) >= LIKENESS


def _likeness(word: str, index: str) -> float:
    return difflib.SequenceMatcher(None, word, index).ratio()


def distance(first: str, second: str) -> int:
    """Letters to add, drop, change or swap with a neighbour to make one word of the other."""
    before: list[int] = []
    row = list(range(len(second) + 1))
    for i, letter in enumerate(first, 1):
        above, before = before, row
        row = [i]
        for j, other in enumerate(second, 1):
            cost = min(row[-1] + 1, before[j] + 1, before[j - 1] + (letter != other))
            if above and i > 1 and j > 1 and letter == second[j - 2] and first[i - 2] == other:
                cost = min(cost, above[j - 2] + 1)
            row.append(cost)
    return row[-1]
