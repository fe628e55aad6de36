"""Remembered results: what was solved once is read back, by content.

A key is the SHA-256 of the question as canonical JSON (problem, machine, objective, version of the answer's meaning), so
that a changed number is another question and nothing is ever stale. One SQLite file; several processes may use it.
RACKMODEL_CACHE names its folder, or 'off'; otherwise the user's cache folder. A store that cannot be written is no error:
the answer is solved again.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

VERSION = 1  # of the answers' meaning: raise it when the same question gets another answer


def key_of(question: Any) -> str:
    """Content key of a question made of plain data."""
    text = json.dumps([VERSION, question], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def folder() -> Path | None:
    """Where results are remembered; None = nowhere."""
    said = os.environ.get("RACKMODEL_CACHE")
    if said == "off":
        return None
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(said) if said else base / "rackmodel"


class Store:
    """Answers by key, on disk and in memory."""

    def __init__(self, where: Path | None) -> None:
        self.memory: dict[str, Any] = {}
        self.connection: sqlite3.Connection | None = None
        if where is not None:
            try:
                where.mkdir(parents=True, exist_ok=True)
                self.connection = sqlite3.connect(where / "results.sqlite", timeout=5.0, isolation_level=None)
                self.connection.execute("CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, answer TEXT NOT NULL)")
            except (OSError, sqlite3.Error):
                self.connection = None

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

    def _read(self, key: str) -> Any:
        if self.connection is None:
            return None
        try:
            row = self.connection.execute("SELECT answer FROM answers WHERE key = ?", (key,)).fetchone()
            return None if row is None else json.loads(row[0])
        except (sqlite3.Error, ValueError):
            return None

    def _write(self, key: str, answer: Any) -> None:
        if self.connection is not None:
            try:
                self.connection.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (key, json.dumps(answer)))
            except sqlite3.Error:
                self.connection = None


_STORES: dict[Path | None, Store] = {}


def store() -> Store:
    """The store of this process."""
    where = folder()
    if where not in _STORES:
        _STORES[where] = Store(where)
    return _STORES[where]
