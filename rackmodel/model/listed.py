"""Numbers of lists that may be tried, such as degrees: what becomes of those that nothing has, as they divide neither sizes nor machine.

A list is for machines and models of several sizes: such a number is passed over with a warning that names it at its place, as a word of
a list is that no operation has (model/mapper_check). A list of which nothing has any number is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rackmodel.errors import InputError

Asked = tuple[str, Sequence[int], frozenset[int]]
"""The place of a list, its numbers, and those that something has."""


def passed_over_in(asked: Iterable[Asked], what: str) -> tuple[str, ...]:
    """A sentence for each list with numbers that nothing has. what: that has none. Raises InputError for a list that has no others."""
    found = []
    for path, numbers, there in asked:
        if nowhere := " or ".join(str(number) for number in numbers if number not in there):
            if there.isdisjoint(numbers):
                raise InputError(f"no {what} has {nowhere}", path=path, known=[str(number) for number in sorted(there)])
            found.append(f"{path}: no {what} has {nowhere}: passed over")
    return tuple(found)
