"""Whether a mapper's `split` lists name indices of the workload, or one that is only almost there.

A list may hold indices of other workloads (`[m, b]`, `[h, f, v]`): those are passed over. A word that no operation has but that is
nearly an index the list lacks (`[hod, out]` where the workload has `hid`) is a slip, and would silently split nothing:

    slip(word) = word is no index, and some index i that is not in the list is near:
                 distance(word, i) <= 1 for words of 3 or 4 letters, <= 2 from 5 on, or likeness(word, i) >= 0.7

Words of one or two letters are never slips: each is one letter away from every other. Distances are of Damerau and Levenshtein.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator

from rackmodel.errors import InputError, together
from rackmodel.model.mapping import MapperSpec, RankChoice
from rackmodel.model.workload import Workload

LIKENESS = 0.7
_SHORT, _LONG = 3, 5


def check_split(mapper: MapperSpec, workload: Workload) -> None:
    """Raise one InputError for all elements of `split` lists (the mapper's and its layouts') that are slips of the pen.

    Each has the path of the element (`split.tp.0`), the indices of the workload as `known` and the word as `given`.
    """
    indices = list(dict.fromkeys(index for op in workload.ops.values() for index in op.indices))
    tables = [("split", mapper.split), *((f"layouts.{name}.split", layout.split) for name, layout in mapper.layouts.items())]
    slips = [
        InputError(f"no operation of {workload.name} has an index '{word}'", path=f"{path}.{axis}.{place}", known=indices, given=word)
        for path, split in tables
        for axis, said in split.items()
        if not isinstance(said, str)
        for place, word in _words(said)
        if nearly(word, indices, [other for _, other in _words(said)])
    ]
    if slips:
        raise together(slips)


def _words(said: list[RankChoice]) -> Iterator[tuple[str, str]]:
    """Place and index of each element; a flattening has several ('0.1')."""
    for number, element in enumerate(said):
        if isinstance(element, str):
            yield str(number), element
        else:
            yield from ((f"{number}.{inner}", word) for inner, word in enumerate(element))


def nearly(word: str, indices: Collection[str], listed: Collection[str]) -> str | None:
    """The index that a word which is none was meant to be: near to it and not in the list itself; None where there is no such."""
    if word in indices or len(word) < _SHORT:
        return None
    near = [index for index in indices if len(index) >= _SHORT and index not in listed and _near(word, index)]
    return max(near, key=lambda index: _likeness(word, index), default=None)


def _near(word: str, index: str) -> bool:
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
