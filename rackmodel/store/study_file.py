"""The file of a study: one SQLite database that any tool opens, in which nothing is lost and nothing is there twice.

    study     name, value                          what it is of
    points    number, key, ..., status, figures    a row a point that is done, plain columns (a gap in the numbers: not done yet)
    answers   key, answer                          what was computed, whole, as JSON: computed once, whatever points ask for it
    written   name, digest                         of each answer and each row, as it was written
    ledger    number, phase, ..., exposed_seconds  a view: the rows of every point's ledger

A key is the content of a point's inputs and the version of the model: another number is another key. The file is written ahead (WAL) in
transactions of a few points, so that a killed sweep loses at most those under way. What is not as it was written (a damaged disk, another
program) counts as not there, and so does the row of a point that is called otherwise now. One sweep at a time writes: it holds a lock
beside the file, which the system drops when its process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from rackmodel.errors import InputError, OutputError, RackmodelError, Where
from rackmodel.store.remembered import digest_of

APPLICATION, FORMAT = 0x72616B6D, 1  # 'rakm'
NUMBER, KEY = "number", "key"

_TABLES = """
CREATE TABLE IF NOT EXISTS study (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, answer TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS written (name TEXT PRIMARY KEY, digest TEXT NOT NULL) WITHOUT ROWID;
CREATE VIEW IF NOT EXISTS ledger AS SELECT points.number AS number, {columns}
  FROM points JOIN answers USING (key), json_each(answers.answer, '$.ledger') AS charge;
"""
_LEDGER = ("phase", "einsum", "tensor", "level", "component", "action", "amount", "unit", "joules", "seconds", "exposed_seconds")

Row = Mapping[str, Any]


class StudyFile:
    """A study's database. path: None = in memory, for one process. Raises InputError for a file of something else, OutputError for one
    that is damaged, held by another sweep, or cannot be written."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._lock: IO[str] | None = None
        self.columns: tuple[str, ...] = ()
        self.called: Sequence[str] = ()
        try:
            self._lock = _locked(path) if path is not None else None
            with self._words():
                self.connection = sqlite3.connect(path if path is not None else ":memory:", timeout=10.0, isolation_level=None)
                self.connection.text_factory = lambda data: data.decode(errors="replace")
                self._check()
                self._begin()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> StudyFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and let others write."""
        connection = getattr(self, "connection", None)
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()
        self.unlock()

    def unlock(self) -> None:
        """Write no more, and let others."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # -- what it is ---------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Raise InputError for a database of something else, sqlite3.DatabaseError for what is none."""
        tables = {name for (name,) in self.connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        application = self.connection.execute("PRAGMA application_id").fetchone()[0]
        if tables and application != APPLICATION:
            raise InputError(
                f"is a database of something else (tables {', '.join(sorted(tables)[:5])}): give another folder", where=self._where
            )
        written = self.connection.execute("PRAGMA user_version").fetchone()[0]
        if tables and written != FORMAT:
            raise InputError(f"is of format {written}, this is rackmodel of format {FORMAT}: give another folder", where=self._where)
        found = self.connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise self._damaged(found)

    def _begin(self) -> None:
        if self.path is not None:
            self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("PRAGMA synchronous = NORMAL")
        self.connection.execute(f"PRAGMA application_id = {APPLICATION}")
        self.connection.execute(f"PRAGMA user_version = {FORMAT}")
        columns = ", ".join(f"json_extract(charge.value, '$[{place}]') AS {name}" for place, name in enumerate(_LEDGER))
        self.connection.executescript(_TABLES.format(columns=columns))

    @property
    def _where(self) -> Where:
        return Where(str(self.path))

    # -- points ------------------------------------------------------------------------------------------------------------

    def plan(self, about: Mapping[str, str], columns: Sequence[str], keys: Sequence[str], called: Sequence[str]) -> list[int]:
        """Say what the points are; numbers of those without a row. about: what the file is of · columns: of a row, beside number and key ·
        keys, called: of every point, in order, its key and what it is called. Rows of another plan are dropped; their answers are kept."""
        self.columns, self.called = tuple(columns), called
        with self._words(), self._transaction():
            there = [row[1] for row in self.connection.execute("PRAGMA table_info(points)")]
            same = there == [NUMBER, KEY, *columns]
            rows = self.connection.execute("SELECT * FROM points").fetchall() if same else []
            same = same and all(number < len(keys) and keys[number] == key for number, key, *_ in rows)
            if not same:
                said = "".join(f", {_quoted(name)}" for name in columns)
                self.connection.execute("DROP TABLE IF EXISTS points")
                self.connection.execute(f"CREATE TABLE points (number INTEGER PRIMARY KEY, key TEXT NOT NULL{said})")
            done = self._whole(rows) if same else set()
            self.connection.executemany("DELETE FROM points WHERE number = ?", [(row[0],) for row in rows if same and row[0] not in done])
            self.connection.execute("DELETE FROM study")
            self.connection.executemany("INSERT INTO study VALUES (?, ?)", about.items())
        return [number for number in range(len(keys)) if number not in done]

    def _whole(self, rows: Sequence[tuple[Any, ...]]) -> set[int]:
        """Numbers of rows that are as they were written, called as they are now, and whose answers are as they were written."""
        written = dict(self.connection.execute("SELECT name, digest FROM written"))
        answers = self.connection.execute("SELECT key, answer FROM answers WHERE key IN (SELECT key FROM points)")
        good = {key for key, answer in answers if written.get(key) == digest_of(key, str(answer))}
        return {row[0] for row in rows if row[1] in good and written.get(str(row[0])) == self._digest(row)}

    def _digest(self, row: Sequence[Any]) -> str:
        """Of a row: number, key, values."""
        return digest_of(self.called[row[0]], json.dumps(list(row)))

    def write(self, rows: Iterable[tuple[int, str, Row]], answers: Mapping[str, str]) -> None:
        """Points that are done, (number, key, row) each, and what was computed for them, all or nothing. answers: key → JSON."""
        marks = ", ".join("?" * (len(self.columns) + 2))
        made = [(number, key, *(_plain(row.get(name)) for name in self.columns)) for number, key, row in rows]
        digests = {key: digest_of(key, text) for key, text in answers.items()} | {str(row[0]): self._digest(row) for row in made}
        with self._words(), self._transaction():
            self.connection.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?)", answers.items())
            if made:  # (answers alone are of no plan's points)
                self.connection.executemany(f"INSERT OR REPLACE INTO points VALUES ({marks})", made)
            self.connection.executemany("INSERT OR REPLACE INTO written VALUES (?, ?)", digests.items())

    def answers(self, keys: Iterable[str]) -> Iterator[tuple[str, Any]]:
        """(key, answer) of those keys that were computed."""
        for key in keys:
            with self._words():
                found = self.connection.execute(
                    "SELECT answer, digest FROM answers JOIN written ON name = key WHERE key = ?", (key,)
                ).fetchone()
            if found is not None and found[1] == digest_of(key, str(found[0])):
                yield key, json.loads(found[0])

    def rows(self) -> list[dict[str, Any]]:
        """Every row that is there, in the study's order."""
        with self._words():
            found = self.connection.execute("SELECT * FROM points ORDER BY number")
            names = [column[0] for column in found.description]
            return [dict(zip(names, row, strict=True)) for row in found]

    # -- the machine ---------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")

    @contextlib.contextmanager
    def _words(self) -> Iterator[None]:
        """What SQLite cannot do, in words."""
        try:
            yield
        except sqlite3.ProgrammingError:
            raise  # ours
        except sqlite3.Error as problem:
            raise self._said(problem) from problem

    def _said(self, problem: sqlite3.Error) -> RackmodelError:
        code = getattr(problem, "sqlite_errorcode", None)
        kind = code & 0xFF if code is not None else None
        if kind in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR):  # (the last: a table of another shape)
            return self._damaged(str(problem))
        words = {
            sqlite3.SQLITE_FULL: "the disk is full",
            sqlite3.SQLITE_IOERR: f"the disk failed ({problem})",
            sqlite3.SQLITE_READONLY: "it cannot be written: permission denied",
            sqlite3.SQLITE_CANTOPEN: "it cannot be opened there",
            sqlite3.SQLITE_BUSY: "another program holds it",
            sqlite3.SQLITE_LOCKED: "another program holds it",
        }.get(kind or -1, str(problem))
        return OutputError(f"{words}; points that were written are kept, and the same command goes on from there", str(self.path))

    def _damaged(self, what: str) -> OutputError:
        return OutputError(f"is damaged, or no database ({what}): move it away and the study starts over", str(self.path))


def _plain(value: Any) -> Any:
    """A value as it is read back."""
    if isinstance(value, float):
        return None if math.isnan(value) else float(value) + 0.0  # (SQLite has no -0.0)
    return value if value is None or isinstance(value, str) else int(value) if isinstance(value, int) else str(value)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _locked(path: Path) -> IO[str] | None:
    """The lock of a file, held until it is closed or the process ends. Raises OutputError where another sweep holds it."""
    try:
        import fcntl
    except ImportError:  # a system without them: SQLite's own locks keep the file whole
        return None
    lock = path.with_name(f".{path.name}.lock")
    try:
        stream = lock.open("a+", encoding="utf-8")
    except OSError as problem:
        raise OutputError(f"cannot be written: {problem.strerror or problem}", str(path)) from problem
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as problem:
        stream.seek(0)
        holder = stream.read(40).strip()
        stream.close()
        if problem.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            return None  # a file system without locks
        by = f" (process {holder})" if holder else ""
        raise OutputError(f"another sweep is writing to it{by}: wait for it, or give another folder", str(path)) from None
    stream.seek(0)
    stream.truncate()
    with contextlib.suppress(OSError):
        stream.write(str(os.getpid()))
        stream.flush()
    return stream
