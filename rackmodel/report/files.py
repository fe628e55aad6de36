"""Files that a command writes: each is whole or not there, none lies outside its folder, and no cell of a table is a formula.

A file is written beside its place under a name of its own, flushed, and put in place by one rename; a link stays one, and what is no plain
file (/dev/stdout, a pipe) is written into. Whatever a name in a YAML file
says ('../../x', '/etc/y', 'CON'), what is made of it is one plain word.
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rackmodel.errors import OutputError

_NOT_PLAIN = re.compile(r"[^\w.@+-]+")
_LONGEST_BYTES = 120
_DEVICES = frozenset(("con", "prn", "aux", "nul", *(f"{name}{number}" for name in ("com", "lpt") for number in range(10))))
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_whole(path: Path, content: str | bytes) -> Path:
    """Write a file so that it is there whole or as it was before; a device or a pipe gets what it is sent. Raises OutputError."""
    data = content.encode() if isinstance(content, str) else content
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            with path.open("wb") as stream:
                stream.write(data)
        else:
            _put(Path(os.path.realpath(path)), data)
    except OSError as problem:
        raise OutputError(f"cannot be written: {problem.strerror or problem}", str(path)) from problem
    return path


def _put(path: Path, data: bytes) -> None:
    """A plain file, by one rename. Raises OSError."""
    beside = path.with_name(f".{path.name[:60]}.{os.getpid()}.part")
    try:
        with beside.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(path)
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()


def make_folder(path: Path) -> Path:
    """A folder that can be written to, made if need be. Raises OutputError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise OutputError("cannot write there: it is a file, want a folder", str(path)) from None
    except OSError as problem:
        raise OutputError(f"cannot write there: {problem.strerror or problem}", str(path)) from problem
    if not os.access(path, os.W_OK | os.X_OK):
        closed = os.statvfs(path).f_flag & os.ST_RDONLY if hasattr(os, "statvfs") else 0
        raise OutputError(f"cannot write there: {'read-only file system' if closed else 'permission denied'}", str(path))
    return path


def stem_of(name: str) -> str:
    """A name as the beginning of a file's name: letters, digits, '_', '.', '@', '+' and '-', no dot in front, at most 120 bytes."""
    plain = _NOT_PLAIN.sub("_", name).lstrip(".")
    while len(plain.encode()) > _LONGEST_BYTES:
        plain = plain[:-1]
    if not plain.strip("_"):
        return "unnamed"
    return f"_{plain}" if plain.partition(".")[0].lower() in _DEVICES else plain


def stems_of(names: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """The same of several names; where two would be one file (capitals aside), the later is numbered. taken: stems of other files."""
    used = {stem.lower() for stem in taken}
    found = []
    for name in names:
        stem = first = stem_of(name)
        number = 1
        while stem.lower() in used:
            number += 1
            stem = f"{first}-{number}"
        used.add(stem.lower())
        found.append(stem)
    return found


def cell(value: Any) -> Any:
    """A value as a cell: a float to its last digit, text that a spreadsheet would take for a formula behind an apostrophe."""
    if isinstance(value, float):
        return repr(float(value))
    if isinstance(value, str) and value.startswith(_FORMULA) and not _is_number(value):
        return f"'{value}"
    return value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isascii() and text.strip() == text


def csv_text(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table as CSV text with '\\n' at the ends of lines."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([cell(head) for head in heads])
    writer.writerows([cell(value) for value in row] for row in rows)
    return text.getvalue()


def csv_of_records(rows: Sequence[Mapping[str, Any]]) -> str:
    """Records as CSV text: a column for each key that any of them has, in order of appearance."""
    heads = list(dict.fromkeys(key for row in rows for key in row))
    return csv_text(heads, ([row.get(head, "") for head in heads] for row in rows))
