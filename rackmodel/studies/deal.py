"""Points dealt to whoever solves them, in batches, written as they come: what is done when this is interrupted is written too.

Points of a machine follow each other: who solves a batch builds the machine once, and prices what flows on its networks once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from rackmodel.inputs.shared import SharedInputs
from rackmodel.studies.batch import Keyed, SolvedPoint, batches
from rackmodel.studies.plan import Ask
from rackmodel.studies.workers import Workers

LARGEST = 16  # points of a batch
EACH = 8  # batches for each worker, so that all end together
WRITTEN_S = 0.5  # from one transaction to the next
Take = Callable[[list[SolvedPoint]], None]


def deal(
    asks: Mapping[str, Ask], known: Mapping[str, Keyed], shared: SharedInputs, columns: Sequence[str], by: Workers, write: Take, tell: Take
) -> None:
    """Solve points. asks, known: by key · columns: metrics of a row · write: is given all, some at a time · tell: is given those that
    wait to be written. Raises OutputError."""
    places = {machine: place for place, machine in reversed(list(enumerate(known[key].machine for key in asks)))}
    asks = {key: asks[key] for key in sorted(asks, key=lambda key: places[known[key].machine])}
    started = {key: known[key].started for key in asks}
    size = max(1, min(LARGEST, len(asks) // (EACH * by.count)))
    waiting: list[SolvedPoint] = []
    written = time.monotonic()
    try:
        for solved in by.solve(batches(asks, started, shared, columns, size)):
            waiting += solved
            if time.monotonic() - written > WRITTEN_S:
                write(waiting)
                waiting, written = [], time.monotonic()
            tell(waiting)
    finally:
        write(waiting)
