"""A CSV file of a person's, plain or gzipped: its text, and its rows by the names of their columns. What is wrong has its line."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from rackmodel.errors import InputError, Where, nearest

MOST_BYTES = 1 << 30
Row = tuple[int, dict[str, str | None]]
"""(its line, cells by the names of columns; None of those that it lacks)."""
SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
"""What other tables have in the place of commas."""


def text_of(path: Path) -> str:
    """The text of a file, gzipped or not. Raises InputError where it cannot be read as such."""
    try:
        data = path.read_bytes()
    except IsADirectoryError:
        raise InputError("a folder, where a CSV file is wanted", where=Where(str(path)))
    except (FileNotFoundError, ValueError):
        raise InputError("no such file", where=Where(str(path)))
    except OSError as problem:
        raise InputError(f"cannot be read: {problem.strerror or problem}", where=Where(str(path)))
    try:
        if data[:2] == b"\x1f\x8b":
            with gzip.open(io.BytesIO(data)) as file:
                data = file.read(MOST_BYTES + 1)
            if len(data) > MOST_BYTES:
                raise InputError(f"unpacks to more than {MOST_BYTES >> 20:,} MiB: split it", where=Where(str(path)))
        return data.decode("utf-8-sig")
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise InputError("the gzip stream is broken", where=Where(str(path)))
    except UnicodeDecodeError:
        raise InputError("no text in UTF-8", where=Where(str(path)))


def csv_table(text: str, file: str) -> tuple[list[str], Iterator[Row]]:
    """The names of its columns, and its rows but the blank ones. file: that the text is of. Raises InputError, what it gives does too:
    where the text is no CSV, a column is there twice, or a row has cells beyond its columns."""
    lines = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""))  # (spreadsheets begin a file with a mark)
    every = _told(lines, file)
    columns = [name.strip() for name in next(every, (1, []))[1]]
    other = next((name for sign, name in SEPARATORS.items() if len(columns) == 1 and sign in columns[0]), None)
    if other is not None:
        raise InputError(f"columns are apart by {other}: want commas", where=Where(file, 1, 1))
    named = [name for name in columns if name]
    if twice := next((name for name in named if named.count(name) > 1), None):
        raise InputError(f"column '{twice}' is there twice: keep one", where=Where(file, 1, 1))
    return columns, (_row(columns, line, cells, file) for line, cells in every if cells)


def no_column(words: Sequence[str], there: Sequence[str], file: str) -> InputError:
    """That a file has none of the columns that may say something. words: what such a column may be called · there: the file's columns."""
    meant = next((column for column in there if nearest(column, words)), None)
    fact = f"no column '{words[0]}'; the file has {', '.join(there)[:200] or 'none'}"
    return InputError(fact, where=Where(file, 1, 1), known=words, given=meant)


def _told(lines: Iterator[list[str]], file: str) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of each row."""
    while True:
        begun = lines.line_num + 1  # type: ignore[attr-defined]
        try:
            cells = next(lines)
        except StopIteration:
            return
        except csv.Error as problem:
            raise InputError(f"no CSV ({problem}): is a quote left open?", where=Where(file, begun, 1)) from problem
        yield lines.line_num, cells  # type: ignore[attr-defined]


def _row(columns: list[str], line: int, cells: list[str], file: str) -> Row:
    if any(cells[len(columns) :]):
        raise InputError("more values than columns: is there a comma inside a number?", where=Where(file, line, 1))
    return line, dict(zip(columns, [*cells, *[None] * (len(columns) - len(cells))], strict=False))
