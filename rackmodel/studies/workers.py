"""Who solves batches: this process, local processes, or the workers of a dask.distributed scheduler. All run `solve_batch`.

Whoever does, a batch whose worker dies is given to another; its answers come once. A batch that kills MOST_KILLED workers ends the sweep
with its points named: what is done is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from rackmodel.errors import InputError, OutputError
from rackmodel.processes import AHEAD, MOST_KILLED, each
from rackmodel.studies.batch import Batch, SolvedPoint, solve_batch

CONNECT_S = 10.0


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
