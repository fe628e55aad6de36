"""Pieces of work in processes of this computer, as they are done.

A piece whose process dies is given to another, and its answer comes once; one that kills MOST_KILLED of them is named, and no more is done.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from rackmodel.cycles import SELDOM, rarely_looked_for
from rackmodel.errors import OutputError

MOST_KILLED = 3
AHEAD = 3  # pieces that wait at each process
LEAVING_S = 5.0
TURN_S = 0.2  # between two looks at whether somebody pressed Ctrl-C
LOOK_S = 5.0  # between two looks at whether a process died with half an answer written
Task = TypeVar("Task")
Answer = TypeVar("Answer")


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def each(count: int, work: Callable[[Task], Answer], tasks: Iterable[Task], killer: Callable[[Task], OutputError]) -> Iterator[Answer]:
    """The answers of all tasks, in any order. count: of processes · killer: what is said of a task that processes died over."""
    left, killed = list(tasks), dict[int, int]()
    with _interrupts() as heard:
        while left:
            broken: list[Task] = []
            number = min(count, len(left))  # all of a pool's processes begin with its first task
            pool = _pool(number)
            try:
                yield from _through(pool, work, left, number * AHEAD, broken, heard)
            finally:
                _stop(pool)
            for task in broken:
                killed[id(task)] = killed.get(id(task), 0) + 1
                if killed[id(task)] >= MOST_KILLED:
                    raise killer(task)
            left = [*broken, *left]


@dataclass(frozen=True)
class Crew:
    """Who does pieces of work of which the longer ones are begun first. count: of processes, one of them: this one · tell: (weight done, of
    so much)."""

    count: int = 1
    tell: Callable[[int, int], None] = lambda done, of: None

    def all(self, work: Callable[[list[Task]], Answer], tasks: Sequence[list[Task]], what: str) -> list[Answer]:
        """The answers of all tasks, in their order; a task's weight is its length. what: they are of, where one kills."""
        order = sorted(range(len(tasks)), key=lambda number: (-len(tasks[number]), number))
        numbered, weight = [(number, tasks[number]) for number in order], sum(map(len, tasks))
        apart, found = self.count > 1 and len(tasks) > 1, dict[int, Answer]()
        done = each(self.count, _Numbered(work), numbered, lambda _: _died(what)) if apart else map(_Numbered(work), numbered)
        self.tell(0, weight)
        for number, answer in done:
            found[number] = answer
            self.tell(sum(len(tasks[one]) for one in found), weight)
        return [found[number] for number in range(len(tasks))]


ALONE = Crew()


@dataclass(frozen=True)
class _Numbered(Generic[Task, Answer]):
    """Work that says which task its answer is of, and makes much."""

    work: Callable[[list[Task]], Answer]

    def __call__(self, one: tuple[int, list[Task]]) -> tuple[int, Answer]:
        number, task = one
        with rarely_looked_for(SELDOM):
            return number, self.work(task)


def _died(what: str) -> OutputError:
    return OutputError(f"{MOST_KILLED} processes died over some of them: too little memory?", what)


def _pool(count: int) -> ProcessPoolExecutor:
    forks = sys.platform == "linux"  # a fork has the library read already; elsewhere it is not safe
    return ProcessPoolExecutor(count, get_context("fork" if forks else "spawn"), initializer=_begin, initargs=(os.getpid(),))


@contextlib.contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Ctrl-C as a list that gets longer. The exception may come while a lock of the pool is being taken, which then stays taken: the end of
    the interpreter would wait for the pool's thread, and that for the lock. Raises KeyboardInterrupt at the end where one was heard."""
    heard: list[int] = []
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not ours:
        yield heard
        return
    signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    try:
        yield heard
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if heard:
        raise KeyboardInterrupt


def _through(
    pool: ProcessPoolExecutor, work: Callable[[Task], Answer], left: list[Task], most: int, broken: list[Task], heard: list[int]
) -> Iterator[Answer]:
    """Answers as they come; at most so many batches under way. What is begun leaves `left`; what a dead process had goes to `broken` ·
    heard: whether somebody pressed Ctrl-C."""
    running: dict[Future[Answer], Task] = {}
    done: SimpleQueue[Future[Answer]] = SimpleQueue()
    quiet = 0.0
    try:
        while left or running:
            while left and len(running) < most:
                future = pool.submit(work, left[0])
                running[future] = left.pop(0)
                future.add_done_callback(done.put)
            try:
                future, quiet = done.get(timeout=TURN_S), 0.0
            except Empty:
                quiet += TURN_S
            if heard:
                raise KeyboardInterrupt
            if not quiet:
                answer = future.result()
                del running[future]
                yield answer
            elif quiet >= LOOK_S and any(not process.is_alive() for process in (pool._processes or {}).values()):
                raise BrokenProcessPool  # the pool waits for the rest of what a dead worker was writing
    except BrokenProcessPool:
        for future, task in running.items():
            if future.done() and not future.cancelled() and future.exception() is None:
                yield future.result()
            else:
                broken.append(task)


def _begin(parent: int) -> None:
    """Of a process: the parent alone hears Ctrl-C, and no child outlives it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    if sys.platform != "win32":
        threading.Thread(target=watch, daemon=True).start()


def _stop(pool: ProcessPoolExecutor) -> None:
    """End the processes at once, whatever they are doing. What they were writing or were to read has no other end then: the pool's threads
    would wait for it for good, and the end of the interpreter for them."""
    processes = list((pool._processes or {}).values())
    queues = [(getattr(pool, name, None), end) for name, end in (("_call_queue", "_reader"), ("_result_queue", "_writer"))]
    ends = [getattr(queue, end, None) for queue, end in queues]
    manager: threading.Thread | None = getattr(pool, "_executor_manager_thread", None)
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        with contextlib.suppress(OSError, ValueError):
            process.terminate()
    for process in processes:
        with contextlib.suppress(OSError, ValueError, AssertionError):
            process.join(LEAVING_S)
    for end in ends:
        if end is not None:
            with contextlib.suppress(OSError):
                end.close()
    if manager is not None:
        manager.join(LEAVING_S)  # the interpreter's end would wake it through a pipe that it is closing
