"""Where questions are answered: a process that stays warm, and is ended when a newer question comes before it has answered.

A search cannot be interrupted from inside, so its process is. The next one is a fork of a server that has read the library of Python
modules once (where the system has fork servers), and starts within milliseconds.
"""

from __future__ import annotations

import signal
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.connection import Connection
from threading import Lock
from typing import Any

from rackmodel.errors import OutputError
from rackmodel.explore.question import PageQuestion

WARM = ["rackmodel.explore.answer", "ortools.sat.python.cp_model"]


class Superseded(Exception):
    """A newer question came; nobody waits for this answer."""


@dataclass(frozen=True)
class DeskJob:
    """What goes to the process. job: a function of rackmodel.explore.answer, 'answer' or 'export'."""

    job: str
    question: PageQuestion


class Desk:
    """One question at a time; the newest wins."""

    def __init__(self) -> None:
        servers = "forkserver" in get_all_start_methods()
        self._context: Any = get_context("forkserver" if servers else "spawn")
        if servers:
            self._context.set_forkserver_preload(WARM)
        self._lock = Lock()
        self._newest = 0
        self._process: _Process | None = None

    def warm(self) -> None:
        """Begin the process, so that the first question need not."""
        with self._lock:
            self._process = self._process or _Process(self._context)

    def ask(self, ask: DeskJob) -> tuple[int, dict[str, Any]]:
        """(status, plain data). Raises Superseded, and OutputError where the process ended by itself."""
        with self._lock:
            self._newest += 1
            mine = self._newest
            if self._process is not None and (self._process.busy or not self._process.alive):
                self._process.end()
                self._process = None
            process = self._process = self._process or _Process(self._context)
            process.begin(ask)
        try:
            found = process.answer()
        except (EOFError, OSError):
            with self._lock:
                newer = self._newest != mine
                if not newer:
                    self._process = None
            if newer:
                raise Superseded from None
            process.end()
            raise OutputError("the search's process ended without an answer") from None
        with self._lock:
            process.busy = False
        return found

    def close(self) -> None:
        """End the process."""
        with self._lock:
            if self._process is not None:
                self._process.end()
            self._process = None


class _Process:
    """A process and the pipe to it. busy: whether it has a question that it has not answered."""

    def __init__(self, context: Any) -> None:
        self.busy = False
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return bool(self._process.is_alive())

    def begin(self, ask: DeskJob) -> None:
        """Send a question."""
        self.busy = True
        self._ours.send(ask)

    def answer(self) -> tuple[int, dict[str, Any]]:
        """Wait for the answer. Raises EOFError or OSError when the process has ended."""
        found: tuple[int, dict[str, Any]] = self._ours.recv()
        return found

    def end(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.join()


def _serve(pipe: Connection) -> None:
    """The process: questions come in until nobody asks. Ctrl-C is for the server, which then ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from rackmodel.explore import answer

    jobs = {"answer": answer.answer, "export": answer.export}
    with suppress(EOFError, OSError):
        while True:
            ask: DeskJob = pipe.recv()
            pipe.send(jobs[ask.job](ask.question))
