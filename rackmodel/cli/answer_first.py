"""An answer that took long to find is told, whatever becomes of its files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rackmodel.cli.printing import tell
from rackmodel.errors import OutputError


@contextmanager
def answer_first(*, as_json: bool) -> Iterator[Callable[[Callable[[], Sequence[Path]]], None]]:
    """What a command writes before it prints: `write(files)` names the files; where they cannot be written (a full disk) the answer that is
    printed inside is told all the same, and the error after it. As JSON the error is the one document."""
    failed: list[OutputError] = []

    def write(files: Callable[[], Sequence[Path]]) -> None:
        try:
            tell(files())
        except OutputError as problem:
            if as_json:
                raise
            failed.append(problem)

    yield write
    if failed:
        raise failed[0]
