"""Remembered results: what was solved once is read back, by content.

A key is the SHA-256 of the question as canonical JSON (problem, machine, objective) and of the solvers themselves: their sources and
the package's version. So a changed number or a changed line of a solver is another question and nothing is ever stale. One SQLite
file; several processes may use it. RACKMODEL_CACHE names its folder, or 'off'; otherwise the user's cache folder.

Nothing that is found is trusted: an answer that is not the one that was written (its digest stands before it) is removed and solved
again, and a file that is no database any more is replaced, which is said once. A store that cannot be written is no error: the answer
is solved again.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from rackmodel.once import once
from rackmodel.version import __version__

SOLVERS = (
    "nests/**/*.py",
    "mapper/nests/loop_nests.py",
    "mapper/nests/nest_fronts.py",
    "mapper/nests/nested.py",
    "mapper/nests/nests_remembered.py",
)
"""Sources of the package that decide what an answer means and how it is written."""

_DIGITS = 64


@cache
def version(sources: tuple[str, ...] = SOLVERS) -> str:
    """Digest of the package's version and of some sources, by name and content. sources: patterns of files of the package."""
    digest = hashlib.sha256(__version__.encode())
    package = Path(__file__).parents[1]
    for path in sorted(path for pattern in sources for path in package.glob(pattern)):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def key_of(question: Any) -> str:
    """Content key of a question made of plain data."""
    text = json.dumps([version(), question], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def folder() -> Path | None:
    """Where results are remembered; None = nowhere."""
    said = os.environ.get("RACKMODEL_CACHE")
    if said == "off":
        return None
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(said) if said else base / "rackmodel"


class CacheWarning(UserWarning):
    """Something remembered was lost; answers are solved again."""


class Store:
    """Answers by key, on disk and in memory."""

    def __init__(self, where: Path | None) -> None:
        self.memory: dict[str, Any] = {}
        self.file = None if where is None else where / "results.sqlite"
        self.connection: sqlite3.Connection | None = None
        self._open()

    def remember(self, question: Any, solve: Callable[[], Any]) -> Any:
        """The answer (plain data) to a question, solved if nobody has."""
        key = key_of(question)
        if key not in self.memory:
            found = self._read(key)
            if found is None:
                found = solve()
                self._write(key, found)
            self.memory[key] = found
        return self.memory[key]

    def _open(self, heal: bool = True) -> None:
        """Connect; a file that is no database is replaced by an empty one, once."""
        if self.file is None:
            return
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.connection = sqlite3.connect(self.file, timeout=5.0, isolation_level=None)
            self.connection.text_factory = lambda data: data.decode(errors="replace")
            self.connection.execute("CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, answer TEXT NOT NULL)")
            self.connection.execute("SELECT key, answer FROM answers LIMIT 1")
        except (OSError, sqlite3.Error) as problem:
            self._failed(problem, heal)

    def _failed(self, problem: Exception, heal: bool = True) -> None:
        """Go on without the file; where it is broken (not merely locked, full or forbidden), begin a new one."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None
        if not heal or self.file is None or not _broken(problem):
            return
        try:
            for tail in ("", "-journal", "-wal", "-shm"):
                self.file.with_name(self.file.name + tail).unlink(missing_ok=True)
        except OSError:
            return
        warnings.warn(f"{self.file}: what was remembered there was damaged ({problem}); a new file is begun", CacheWarning, stacklevel=2)
        self._open(heal=False)

    def _read(self, key: str) -> Any:
        if self.connection is None:
            return None
        try:
            row = self.connection.execute("SELECT answer FROM answers WHERE key = ?", (key,)).fetchone()
        except sqlite3.Error as problem:
            self._failed(problem)
            return None
        if row is None:
            return None
        text = row[0] if isinstance(row[0], str) else ""
        if text[:_DIGITS] == digest_of(key, text[_DIGITS:]):
            return json.loads(text[_DIGITS:])
        self._forget(key)
        return None

    def _forget(self, key: str) -> None:
        assert self.connection is not None
        try:
            self.connection.execute("DELETE FROM answers WHERE key = ?", (key,))
        except sqlite3.Error as problem:
            self._failed(problem)

    def _write(self, key: str, answer: Any) -> None:
        if self.connection is None:
            return
        text = json.dumps(answer)
        try:
            self.connection.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (key, digest_of(key, text) + text))
        except sqlite3.Error as problem:
            self._failed(problem)


def digest_of(key: str, text: str) -> str:
    """Of a text and of what it is kept under."""
    return hashlib.sha256(f"{key}\n{text}".encode(errors="replace")).hexdigest()


def _broken(problem: Exception) -> bool:
    """Whether the file itself is at fault: no database, a damaged one, or a table of another shape."""
    code = getattr(problem, "sqlite_errorcode", None)
    return (code is not None and code & 0xFF in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)) or "no such column" in str(problem)


_STORES: dict[Path | None, Store] = {}


def store() -> Store:
    """The store of this process."""
    where = folder()
    return once(_STORES, where, lambda: Store(where))
