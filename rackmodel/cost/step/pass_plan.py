"""Which passes of a pipeline are alike, and in which waves they run: fixed by the schedule and by which passes have nothing to do.

A pass's matrix depends on what it runs, and on what its device runs next: the first gathers of that are issued during its last layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.step.pipeline_orders import BACKWARD, FORWARD, waves

Ints = NDArray[np.int64]
Kind = tuple[int, str]  # virtual stage, name of the pass


@dataclass(frozen=True)
class Wave:
    """Passes that run at once. passes: their numbers · alike: which distinct pass each is · device: of each · feeds: the pass whose result
    it takes · sending: which of these someone takes from · way, sender: the kind and the device of those."""

    passes: Ints
    alike: Ints
    device: Ints
    feeds: Ints
    sending: Ints
    way: Ints
    sender: Ints


@dataclass(frozen=True)
class PassPlan:
    """alike: what each distinct pass runs and what its device runs next · which: [passes] the distinct one that each is · starts: what
    each stage runs first."""

    alike: tuple[tuple[Kind, Kind | None], ...]
    which: Ints
    starts: tuple[Kind | None, ...]
    waves: tuple[Wave, ...]


def pass_name(kind: int, micro_batch: int, micro_batches: int) -> str:
    """The layer passes (`jobs.PASSES`) that a pass of a micro-batch runs."""
    last = micro_batch == micro_batches - 1
    if kind == FORWARD:
        return "first" if micro_batch == 0 else "forward"
    if kind == BACKWARD:
        return "last" if last else "backward"
    return "last weight" if last else "weight"


@lru_cache(maxsize=64)
def pass_plan(schedule: str, stages: int, micro_batches: int, chunks: int, backward: bool, idle: frozenset[Kind]) -> PassPlan:
    """The plan of a schedule. backward: whether there are backward passes · idle: passes with nothing to do."""
    total = waves(schedule, stages, micro_batches, chunks)
    runs = (total.kind == FORWARD) | backward
    alike: dict[tuple[Kind, Kind | None], int] = {}
    which = np.zeros(total.kind.size, dtype=np.int64)
    following: list[Kind | None] = [None] * stages
    for number in np.flatnonzero(runs)[::-1].tolist():
        device = int(total.device[number])
        mine = int(total.virtual[number]), pass_name(int(total.kind[number]), int(total.micro_batch[number]), micro_batches)
        which[number] = alike.setdefault((mine, following[device]), len(alike))
        if mine not in idle:
            following[device] = mine
    taken = np.zeros(total.kind.size + 1, dtype=bool)
    taken[total.feeds[runs]] = True
    found = []
    for low, high in zip(total.bounds, total.bounds[1:], strict=False):
        passes = np.flatnonzero(runs[low:high]) + low
        sending = np.flatnonzero(taken[passes])
        senders = passes[sending]
        if passes.size:
            columns = (which[passes], total.device[passes], total.feeds[passes], sending, total.kind[senders], total.device[senders])
            found.append(Wave(passes, *columns))
    return PassPlan(tuple(alike), which, tuple(following), tuple(found))
