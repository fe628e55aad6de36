"""Who solves batches: this process, local processes, or the workers of a dask.distributed scheduler. All run `solve_batch`.

Whoever does, a batch whose worker dies is given to another; its answers come once. A batch that kills MOST_KILLED workers ends the sweep
with its points named: what is done is kept.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from rackmodel.errors import InputError, OutputError
from rackmodel.processes import AHEAD, LOOK_S, MOST_KILLED, each
from rackmodel.studies.batch import Batch, SolvedPoint, model_version, solve_batch

CONNECT_S = 10.0
VERSION = "__import__('rackmodel.studies.batch', fromlist=['model_version']).model_version()"


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
        return each(self.count, solve_batch, batches, _killer)


def _killer(batch: Batch) -> OutputError:
    first = next(iter(batch.asks.values()))
    more = f" or one of the {len(batch.asks) - 1} after it" if len(batch.asks) > 1 else ""
    return OutputError(f"{MOST_KILLED} workers died over {first.words}{more}: too little memory for it?", "sweep")


class Cluster:
    """The workers of a dask.distributed scheduler. Raises InputError where dask is not installed, OutputError where nobody answers or a
    worker has no such version of rackmodel."""

    def __init__(self, address: str) -> None:
        try:
            from distributed import Client
        except ImportError:
            raise InputError("needs dask.distributed: pip install 'rackmodel[cluster]'", path="--scheduler") from None
        self.address = address
        try:
            self.client: Any = Client(address, timeout=CONNECT_S, set_as_default=False)
            versions = self.client.run(eval, VERSION, on_error="return")  # text, so that a worker that lacks all of this can read it
        except (OSError, ValueError, TimeoutError) as problem:
            raise OutputError(f"no scheduler answers ({problem})", address) from problem
        for worker, said in versions.items():
            self._check(worker, said)

    def _check(self, worker: str, said: object) -> None:
        """Whether a worker has the version that is wanted; of one that was lost meanwhile nothing is said. Raises OutputError."""
        if isinstance(said, OSError) or said == model_version():
            return
        self.close()
        another = "has another version of rackmodel, or other tables in its library"
        has = f"has no rackmodel that can be asked ({said})" if isinstance(said, Exception) else another
        raise OutputError(f"{has}: install the same on all machines", worker)

    @property
    def count(self) -> int:
        """Threads of all workers, which come and go."""
        return max(1, int(sum(self.client.nthreads().values())))

    def solve(self, batches: Iterable[Batch]) -> Iterator[list[SolvedPoint]]:
        """As they are done. What a worker had when it died, the scheduler gives to another."""
        from distributed.scheduler import KilledWorker

        left, asked, done = iter(batches), dict[str, Batch](), SimpleQueue[Any]()

        def ask(count: int) -> None:
            for batch in itertools.islice(left, count):
                future = self.client.submit(solve_batch, batch, pure=False)
                asked[future.key] = batch
                future.add_done_callback(done.put)

        try:
            ask(self.count * AHEAD)
            while asked:
                future = self._next(done)
                solved: list[SolvedPoint] = future.result()
                del asked[future.key]
                ask(1)
                yield solved
        except KilledWorker as problem:
            raise _killer(asked.get(problem.task, next(iter(asked.values())))) from problem
        except (OSError, TimeoutError, CancelledError) as problem:  # (the last: whatever ran there, when the connection is lost)
            why = "" if isinstance(problem, CancelledError) else f" ({problem})"
            raise OutputError(f"the scheduler is gone{why}", self.address) from problem

    def _next(self, done: SimpleQueue[Any]) -> Any:
        """The next future that is done. Warns where there is no worker that could do it. Raises OSError, TimeoutError."""
        told = False
        while True:
            try:
                return done.get(timeout=LOOK_S)
            except Empty:
                if not told and not self.client.nthreads():
                    warnings.warn(f"{self.address}: the scheduler has no worker: waiting for one", stacklevel=2)
                    told = True

    def close(self) -> None:
        """Leave the scheduler."""
        self.client.close(timeout=CONNECT_S)
