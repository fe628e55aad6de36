"""Which passes of a pipeline are alike, and in which waves they run: fixed by the schedule and by which passes have nothing to do.

A pass's matrix depends on what it runs, and on what its device runs next: the first gathers of that are issued during its last layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from rackmodel.arrays import Bools, Ints
from rackmodel.cost.step.clock.pipeline_orders import AWAIT, BACKWARD, FORWARD, RELEASE, WEIGHT, WHOLE, Waves, waves
from rackmodel.cost.step.tasks.jobs import PASSES

Kind = tuple[int, str]  # virtual stage, name of the pass
LAYER_PASSES: dict[str, tuple[str, ...]] = {
    **{name: (name,) for name in PASSES},
    "whole": ("backward", "weight"),
    "last whole": ("last", "last weight"),
    "await": (),
    "release": (),
}
"""The name of a pass → the passes of each of its layers (`jobs.PASSES`), one after another."""
HANDS = {"first": 0, "forward": 0, "backward": 1, "last": 1, "whole": 1, "last whole": 1}
"""Passes that end with a hand-over, and the way it goes (rule 9)."""


@dataclass(frozen=True)
class PassPlan:
    """alike: what each distinct pass runs and what its device runs next · which: [passes] the distinct one that each is · starts: what
    each stage runs first.

    Of the passes that run, wave by wave: wave: its number · passes: their numbers · device: of each · feeds: the pass whose result it
    takes · sending: places in this row of those that someone takes from · way, sender: of those, whether it goes to the next device (0)
    or to the one before (1), and the device.
    """

    alike: tuple[tuple[Kind, Kind | None], ...]
    which: Ints
    starts: tuple[Kind | None, ...]
    wave: Ints
    passes: Ints
    device: Ints
    feeds: Ints
    sending: Ints
    way: Ints
    sender: Ints


def pass_name(kind: int, micro_batch: int, micro_batches: int) -> str:
    """What a pass of a micro-batch is called (LAYER_PASSES)."""
    if kind == FORWARD:
        return "first" if micro_batch == 0 else "forward"
    plain, at_last = {
        BACKWARD: ("backward", "last"),
        WEIGHT: ("weight", "last weight"),
        WHOLE: ("whole", "last whole"),
        AWAIT: ("await", "await"),
        RELEASE: ("release", "release"),
    }[kind]
    return at_last if micro_batch == micro_batches - 1 else plain


@lru_cache(maxsize=64)
def pass_plan(schedule: str, stages: int, micro_batches: int, chunks: int, backward: bool, idle: frozenset[Kind]) -> PassPlan:
    """The plan of a schedule. backward: whether there are backward passes · idle: passes with nothing to do."""
    total = waves(schedule, stages, micro_batches, chunks)
    runs = np.flatnonzero(np.isin(total.kind, (FORWARD, RELEASE)) | backward)
    kinds, mine = _kinds(total, runs, micro_batches)
    busy = np.array([kind not in idle for kind in kinds])
    then, starts = _following(total.device[runs], mine, busy[mine], stages)
    pairs, alike = np.unique(mine * (len(kinds) + 1) + then + 1, return_inverse=True)
    which = np.zeros(total.kind.size, dtype=np.int64)
    which[runs] = alike
    taken = np.zeros(total.kind.size + 1, dtype=bool)
    taken[total.feeds[runs]] = True
    sending = np.flatnonzero(taken[runs])
    wave = np.searchsorted(total.bounds, runs, side="right")
    return PassPlan(
        alike=tuple((kinds[mine], _named(kinds, then - 1)) for mine, then in (divmod(int(pair), len(kinds) + 1) for pair in pairs)),
        which=which,
        starts=tuple(_named(kinds, int(first)) for first in starts),
        wave=np.append(0, np.cumsum(np.diff(wave) > 0)),
        passes=runs,
        device=total.device[runs],
        feeds=total.feeds[runs],
        sending=sending,
        way=total.lane[runs[sending]],
        sender=total.device[runs[sending]],
    )


def _kinds(total: Waves, runs: Ints, micro_batches: int) -> tuple[list[Kind], Ints]:
    """(every kind of pass, which of them each pass is)."""
    kind, micro_batch = total.kind[runs], total.micro_batch[runs]
    ends = np.where(kind == FORWARD, micro_batch == 0, micro_batch == micro_batches - 1)
    edge = {way: 0 if way == FORWARD else micro_batches - 1 for way in (FORWARD, BACKWARD, WEIGHT, WHOLE, AWAIT, RELEASE)}
    names = [pass_name(way, edge[way] if last else -1, micro_batches) for way in sorted(edge) for last in (False, True)]
    virtual = range(int(total.virtual.max()) + 1)
    return [(stage, name) for stage in virtual for name in names], total.virtual[runs] * len(names) + 2 * kind + ends


def _following(device: Ints, mine: Ints, busy: Bools, stages: int) -> tuple[Ints, Ints]:
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
