"""A CSV table of a person's, whose errors have their line."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from rackmodel.errors import InputError, Where


def csv_table(text: str, file: str) -> csv.DictReader[str]:
    """Its rows by the names of its columns. What it gives raises InputError where the text is no CSV. file: that the text is of."""
    found = csv.DictReader(io.StringIO(text, newline=""))
    found.reader = _Lines(found.reader, file)  # type: ignore[assignment]
    return found


class _Lines:
    """A reader's lines."""

    def __init__(self, reader: Iterator[list[str]], file: str) -> None:
        self.reader, self.file = reader, file

    @property
    def line_num(self) -> int:
        """How many it has read."""
        return int(self.reader.line_num)  # type: ignore[attr-defined]

    def __iter__(self) -> Iterator[list[str]]:
        return self

    def __next__(self) -> list[str]:
        begun = self.line_num + 1
        try:
            return next(self.reader)
        except csv.Error as problem:
            raise InputError(f"no CSV ({problem}): is a quote left open?", where=Where(self.file, begun, 1)) from problem
