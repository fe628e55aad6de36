"""Measured kernels: each row is read, then those of one machine and kernel are priced in one call of arrays."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

from rackmodel.errors import InputError
from rackmodel.validation.rows import PublishedRow
from rackmodel.validation.score import ScoredRow
from rackmodel.validation.words import Refused

Case = TypeVar("Case")
Rows = Sequence[PublishedRow]
Asked = Sequence[tuple[int, Case]]
"""Cases with the numbers of their rows."""
Scored = Mapping[int, list[ScoredRow]]
"""Number of a row → its scores."""


def alike_rows(
    rows: Rows, read: Callable[[PublishedRow], Case], alike: Callable[[Case], Hashable], price: Callable[[Rows, Asked[Case]], Scored]
) -> list[ScoredRow]:
    """Each row scored, or refused with why, in the order of the rows. read: a row's case, raises Refused · alike: cases for which it is
    equal are priced together · price: their scores, raises InputError."""
    found: dict[int, list[ScoredRow]] = {}
    together: dict[Hashable, list[tuple[int, Case]]] = {}
    for number, row in enumerate(rows):
        try:
            case = read(row)
        except Refused as problem:
            found[number] = refused(row, str(problem))
            continue
        together.setdefault(alike(case), []).append((number, case))
    for own in together.values():
        try:
            found |= price(rows, own)
        except InputError as problem:
            found |= {number: refused(rows[number], problem.message) for number, _ in own}
    return [one for number in range(len(rows)) for one in found[number]]


def refused(row: PublishedRow, why: str) -> list[ScoredRow]:
    """A row without a prediction."""
    return [ScoredRow(row.id, row.dataset, refused=why)]
