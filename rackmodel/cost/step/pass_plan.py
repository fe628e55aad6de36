"""Which passes of a pipeline are alike, and in which waves they run: fixed by the schedule and by which passes have nothing to do.

A pass's matrix depends on what it runs, and on what its device runs next: the first gathers of that are issued during its last layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.step.pipeline_orders import BACKWARD, FORWARD, WEIGHT, Waves, waves

Ints = NDArray[np.int64]
Kind = tuple[int, str]  # virtual stage, name of the pass


@dataclass(frozen=True)
class Wave:
    """Passes that run at once. passes: their numbers · alike: which distinct pass each is · device: of each · feeds: the pass whose result
    it takes · link: what it sends on (way x stages + device), 2 x stages where nobody takes from it · span: where they lie among all ·
    turn: the same of waves whose passes are alike · whole: whether every device runs one of them, in their order."""

    passes: Ints
    alike: Ints
    device: Ints
    feeds: Ints
    link: Ints
    span: slice | Ints
    turn: int
    whole: bool


@dataclass(frozen=True)
class PassPlan:
    """alike: what each distinct pass runs and what its device runs next · which: [passes] the distinct one that each is · ahead: [passes]
    the pass that sends before it on its link, `passes` for none · starts: what each stage runs first."""

    alike: tuple[tuple[Kind, Kind | None], ...]
    which: Ints
    ahead: Ints
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
    runs = np.flatnonzero((total.kind == FORWARD) | backward)
    kinds, mine = _kinds(total, runs, micro_batches)
    busy = np.array([kind not in idle for kind in kinds])
    then, starts = _following(total.device[runs], mine, busy[mine], stages)
    pairs, alike = np.unique(mine * (len(kinds) + 1) + then + 1, return_inverse=True)
    which = np.zeros(total.kind.size, dtype=np.int64)
    which[runs] = alike
    link = _links(total, runs, stages)
    return PassPlan(
        tuple((kinds[mine], _named(kinds, then - 1)) for mine, then in (divmod(int(pair), len(kinds) + 1) for pair in pairs)),
        which,
        _ahead(runs, link, stages, total.kind.size),
        tuple(_named(kinds, int(first)) for first in starts),
        tuple(_waves(total, runs, which, link, stages)),
    )


def _kinds(total: Waves, runs: Ints, micro_batches: int) -> tuple[list[Kind], Ints]:
    """(every kind of pass, which of them each pass is)."""
    kind, micro_batch = total.kind[runs], total.micro_batch[runs]
    ends = np.where(kind == FORWARD, micro_batch == 0, micro_batch == micro_batches - 1)
    edge = {FORWARD: 0, BACKWARD: micro_batches - 1, WEIGHT: micro_batches - 1}
    names = [pass_name(way, edge[way] if last else -1, micro_batches) for way in sorted(edge) for last in (False, True)]
    virtual = range(int(total.virtual.max()) + 1)
    return [(stage, name) for stage in virtual for name in names], total.virtual[runs] * len(names) + 2 * kind + ends


def _following(device: Ints, mine: Ints, busy: NDArray[np.bool_], stages: int) -> tuple[Ints, Ints]:
    """(the kind of the next pass with something to do on the same device, [stages] that of its first); -1 for none."""
    by_device, none = np.argsort(device, kind="stable"), len(mine)
    here, kinds = device[by_device], np.append(mine[by_device], -1)
    next_busy = np.minimum.accumulate(np.where(busy[by_device], np.arange(none), none)[::-1])[::-1]
    next_busy = np.append(next_busy, none)

    def kind_at(place: Ints, of: Ints) -> Ints:
        return np.where(np.append(here, -1)[place] == of, kinds[place], -1)

    then = np.empty(none, dtype=np.int64)
    then[by_device] = kind_at(next_busy[1:], here)
    firsts = np.searchsorted(here, np.arange(stages))
    return then, kind_at(next_busy[firsts], np.arange(stages))


def _named(kinds: Sequence[Kind], number: int) -> Kind | None:
    return kinds[number] if number >= 0 else None


def _links(total: Waves, runs: Ints, stages: int) -> Ints:
    """[runs] the link that each pass sends on; 2 x stages where nobody takes from it."""
    taken = np.zeros(total.kind.size + 1, dtype=bool)
    taken[total.feeds[runs]] = True
    return np.where(taken[runs], total.kind[runs] * stages + total.device[runs], 2 * stages)


def _ahead(runs: Ints, link: Ints, stages: int, count: int) -> Ints:
    """[passes] the pass that sends before it on the same link; `count` for none."""
    sending = np.flatnonzero(link < 2 * stages)
    by_link = sending[np.argsort(link[sending], kind="stable")]
    same = link[by_link[1:]] == link[by_link[:-1]]
    found = np.full(count, count)
    found[runs[by_link[1:][same]]] = runs[by_link[:-1][same]]
    return found


def _waves(total: Waves, runs: Ints, which: Ints, link: Ints, stages: int) -> Iterator[Wave]:
    alike, device, feeds = which[runs], total.device[runs], total.feeds[runs]
    bounds, turns, every = np.searchsorted(runs, total.bounds).tolist(), dict[bytes, int](), np.arange(stages)
    in_a_row = runs.size == total.kind.size  # all passes run, so that those of a wave lie side by side
    for low, high in pairwise(bounds):
        if high > low:
            here = slice(low, high)
            own, whole = alike[here], high - low == stages and bool((device[here] == every).all())
            turn = turns.setdefault(own.tobytes(), len(turns))
            yield Wave(runs[here], own, device[here], feeds[here], link[here], here if in_a_row else runs[here], turn, whole)
