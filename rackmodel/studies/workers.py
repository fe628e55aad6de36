"""Who solves batches: this process, local processes, or the workers of a dask.distributed scheduler. All run `solve_batch`.

Whoever does, a batch whose worker dies is given to another; its answers come once. A batch that kills MOST_KILLED workers ends the sweep
with its points named: what is done is kept.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from rackmodel.errors import InputError, OutputError
from rackmodel.studies.batch import Batch, SolvedPoint, solve_batch

MOST_KILLED = 3
AHEAD = 3  # batches that wait at each worker
CONNECT_S = 10.0
LEAVING_S = 5.0
TURN_S = 0.2  # between two looks at whether somebody pressed Ctrl-C
LOOK_S = 5.0  # between two looks at whether a worker died with half an answer written


class Workers(Protocol):
    """Whoever solves batches."""

    @property
    def count(self) -> int:
        """How many run at once."""
        ...

    def solve(self, batches: Iterable[Batch]) -> Iterator[list[SolvedPoint]]:
        """The answers of every batch, in any order. Raises OutputError."""
        ...


class Alone:
    """This process."""

    count = 1

    def solve(self, batches: Iterable[Batch]) -> Iterator[list[SolvedPoint]]:
        """One after another."""
        for batch in batches:
            yield solve_batch(batch)


class Processes:
    """So many processes of this computer."""

    def __init__(self, count: int) -> None:
        self.count = count

    def solve(self, batches: Iterable[Batch]) -> Iterator[list[SolvedPoint]]:
        """As they are done."""
        left, killed = list(batches), dict[int, int]()
        with _interrupts() as heard:
            while left:
                broken: list[Batch] = []
                pool = self._pool()
                try:
                    yield from _through(pool, left, self.count * AHEAD, broken, heard)
                finally:
                    _stop(pool)
                for batch in broken:
                    killed[id(batch)] = killed.get(id(batch), 0) + 1
                    if killed[id(batch)] >= MOST_KILLED:
                        raise _killer(batch)
                left = [*broken, *left]

    def _pool(self) -> ProcessPoolExecutor:
        forks = sys.platform == "linux"  # a fork has the library read already; elsewhere it is not safe
        return ProcessPoolExecutor(self.count, get_context("fork" if forks else "spawn"), initializer=_begin, initargs=(os.getpid(),))


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


def _through(pool: ProcessPoolExecutor, left: list[Batch], most: int, broken: list[Batch], heard: list[int]) -> Iterator[list[SolvedPoint]]:
    """Answers as they come; at most so many batches under way. What is begun leaves `left`; what a dead worker had goes to `broken` ·
    heard: whether somebody pressed Ctrl-C."""
    running: dict[Future[list[SolvedPoint]], Batch] = {}
    done: SimpleQueue[Future[list[SolvedPoint]]] = SimpleQueue()
    quiet = 0.0
    try:
        while left or running:
            while left and len(running) < most:
                future = pool.submit(solve_batch, left[0])
                running[future] = left.pop(0)
                future.add_done_callback(done.put)
            try:
                future, quiet = done.get(timeout=TURN_S), 0.0
            except Empty:
                quiet += TURN_S
            if heard:
                raise KeyboardInterrupt
            if not quiet:
                solved = future.result()
                del running[future]
                yield solved
            elif quiet >= LOOK_S and any(not process.is_alive() for process in (pool._processes or {}).values()):
                raise BrokenProcessPool  # the pool waits for the rest of what a dead worker was writing
    except BrokenProcessPool:
        for future, batch in running.items():
            if future.done() and not future.cancelled() and future.exception() is None:
                yield future.result()
            else:
                broken.append(batch)


def _begin(parent: int) -> None:
    """Of a worker: the parent alone hears Ctrl-C, and a worker does not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    if sys.platform != "win32":
        threading.Thread(target=watch, daemon=True).start()


def _stop(pool: ProcessPoolExecutor) -> None:
    """End the workers at once, whatever they are doing. What they were writing or were to read has no other end then: the pool's threads
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


def _killer(batch: Batch) -> OutputError:
    first = next(iter(batch.asks.values()))
    more = f" or one of the {len(batch.asks) - 1} after it" if len(batch.asks) > 1 else ""
    return OutputError(f"{MOST_KILLED} workers died over {first.words}{more}: too little memory for it?", "sweep")


class Cluster:
    """The workers of a dask.distributed scheduler. Raises InputError where dask is not installed, OutputError where nobody answers."""

    def __init__(self, address: str) -> None:
        try:
            from distributed import Client
        except ImportError:
            raise InputError("needs dask.distributed: pip install 'rackmodel[cluster]'", path="--scheduler") from None
        self.address = address
        try:
            self.client: Any = Client(address, timeout=CONNECT_S, set_as_default=False)
        except (OSError, ValueError, TimeoutError) as problem:
            raise OutputError(f"no scheduler answers ({problem})", address) from problem

    @property
    def count(self) -> int:
        """Threads of all workers, which come and go."""
        return max(1, int(sum(self.client.nthreads().values())))

    def solve(self, batches: Iterable[Batch]) -> Iterator[list[SolvedPoint]]:
        """As they are done. What a worker had when it died, the scheduler gives to another."""
        from distributed import as_completed
        from distributed.scheduler import KilledWorker

        left, asked = iter(batches), dict[str, Batch]()

        def ask() -> list[Any]:
            batch = next(left, None)
            if batch is None:
                return []
            future = self.client.submit(solve_batch, batch, pure=False)
            asked[future.key] = batch
            return [future]

        running = as_completed([future for _ in range(self.count * AHEAD) for future in ask()], loop=self.client.loop)
        try:
            for future in running:
                solved: list[SolvedPoint] = future.result()
                del asked[future.key]
                running.update(ask())
                yield solved
        except KilledWorker as problem:
            raise _killer(asked.get(problem.task, next(iter(asked.values())))) from problem
        except (OSError, TimeoutError) as problem:
            raise OutputError(f"the scheduler is gone ({problem})", self.address) from problem

    def close(self) -> None:
        """Leave the scheduler."""
        self.client.close(timeout=CONNECT_S)
