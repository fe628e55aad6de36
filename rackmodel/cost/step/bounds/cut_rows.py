"""Cuts under schedules as the numbers that bounds are made of, a row each, so that steps of many cuts are bounded as one array.

Equal devices come as one kind (Cut.kinds). Beside a cut of more kinds the first one of a cut is there several times: it is no other path.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.cost.step.cut import Cut
from rackmodel.model.schedules import SPLIT, TABLE, runs_as

Counts = tuple[tuple[int, Array], ...]
"""(section, layers of it) of the sections of which some row has layers."""


@dataclass(frozen=True, kw_only=True)
class Devices:
    """A run of equal devices. Numbers: first, last: of the run · first_ends, ends: 1 where that device is at an end of the pipeline · hops:
    from the last device of the run before to its own · lead: forward passes before the last one's first backward pass, but for how many
    there are · first_delay, delay: backward passes that a weight gradient waits · turns: 1 where each of its chunks has layers ·
    ..._passes, ..._whole: see `last_passes`, two points from which on.

    Counts: before: layers ahead of the device · run, gap: of these behind its run's first, and behind the last of the run before ·
    first_busy, busy: its own · first_chunk, chunk: of its first chunk · behind: of those after it · warm, early, late: in its passes
    before the first backward pass, and from the two points on · tops, bottoms: 1 for the sections with which its chunks end and begin."""

    first: Array
    last: Array
    first_ends: Array
    ends: Array
    lead: Array
    first_delay: Array
    delay: Array
    turns: Array
    early_passes: Array
    early_whole: Array
    late_passes: Array
    late_whole: Array
    hops: Array
    before: Counts
    run: Counts
    gap: Counts
    first_busy: Counts
    busy: Counts
    first_chunk: Counts
    chunk: Counts
    behind: Counts
    warm: Counts
    early: Counts
    late: Counts
    tops: Counts
    bottoms: Counts


@dataclass(frozen=True, kw_only=True)
class CutRows:
    """Cuts that are alike in what branches: split: weight gradients have passes of their own · piped: there are several stages · chunked:
    several chunks · folded: the second of two lies on the way back. Numbers: stages, chunks, sent: hand-overs of a micro-batch one way.
    Counts: whole: of the model · outside: of the last stage, outside the time between its first
    turn and its last (Paths.chain) · closing: of the last device · entry: of the first virtual stage · rest, group, after: of virtual
    stages behind it, of the group that ends, and of it with those between (Paths._corners)."""

    split: bool
    piped: bool
    chunked: bool
    folded: bool
    stages: Array
    chunks: Array
    sent: Array
    whole: Counts
    outside: Counts
    closing: Counts
    entry: Counts
    rest: Counts
    group: Counts
    after: Counts
    kinds: tuple[Devices, ...]

    @classmethod
    def of(cls, parts: Sequence[tuple[Cut, str, int]], which: Ints | None = None, beside: int = 1) -> CutRows:
        """Of cuts with their schedules and least micro-batches, of one branch: numbers are [rows], or [cells] where `which` row each cell
        has is said, and as many axes of one beside."""
        kinds = max(len(one.kinds) for one, _, _ in parts)
        values = np.stack([_row(*part, kinds) for part in parts], axis=1)
        shown = values if which is None else values[:, which]
        shown = shown.reshape(*shown.shape, *(1,) * beside)
        there = [*map(bool, np.any(values, axis=1))]
        read = _Reader(shown, there, parts[0][0].counts.shape[1])
        whole, devices = read.record(OF_ALL), tuple(Devices(**read.record(OF_DEVICES)) for _ in range(kinds))
        split, piped, chunked, folded = branch(*parts[0][:2])
        return cls(split=split, piped=piped, chunked=chunked, folded=folded, kinds=devices, **whole)


NUMBERS = frozenset(field.name for one in (Devices, CutRows) for field in fields(one) if field.type == "Array")
OF_DEVICES = tuple(field.name for field in fields(Devices))
OF_ALL = tuple(field.name for field in fields(CutRows) if field.type in ("Array", "Counts"))


def branch(cut: Cut, schedule: str) -> tuple[bool, bool, bool, bool]:
    """What cuts of one array have in common: whether weight gradients have passes of their own, there are several stages, and chunks, and
    whether the second of two lies on the way back."""
    return schedule in SPLIT, cut.stages > 1, cut.chunks > 1, cut.folded


def least_of(cut: Cut, micro_batches: Any) -> int:
    """Micro-batches, at least; of chunks they fill groups of one a stage, or the order does not exist."""
    if cut.chunks == 1 or cut.folded:
        return int(micro_batches.min())
    full = micro_batches[micro_batches % cut.stages == 0]
    return int(full.min()) if full.size else cut.stages


class _Reader:
    """Reads rows number by number. values: [numbers, ...] · there: of which some row's is not zero · sections: numbers of a count."""

    def __init__(self, values: Array, there: Sequence[bool], sections: int) -> None:
        self.values, self.there, self.sections, self.at = values, there, sections, 0

    def record(self, names: Iterable[str]) -> dict[str, Any]:
        """What the next numbers are, by name."""
        return {name: self._number() if name in NUMBERS else self._counts() for name in names}

    def _number(self) -> Array:
        self.at += 1
        return np.asarray(self.values[self.at - 1])

    def _counts(self) -> Counts:
        here = range(self.at, self.at + self.sections)
        self.at += self.sections
        return tuple((x, self.values[at]) for x, at in enumerate(here) if self.there[at])


@lru_cache(maxsize=8192)
def _row(cut: Cut, schedule: str, least: int, kinds: int) -> Array:
    """The numbers of a cut under a schedule, in the order of `Devices` and `CutRows`. kinds: how many kinds of devices it shall have."""
    listed = (cut.kinds[0],) * (kinds - len(cut.kinds)) + cut.kinds
    previous = (listed[0][1], *(last for _, last in listed[:-1]))
    numbers = [_of_all(cut), *(_of_devices(cut, schedule, least, *kind, before) for kind, before in zip(listed, previous, strict=True))]
    flat: list[float] = []
    for names, one in zip((OF_ALL, *(OF_DEVICES,) * kinds), numbers, strict=True):
        for name in names:
            value = one[name]
            flat.extend(value) if isinstance(value, list) else flat.append(value)
    found = np.array(flat, dtype=np.float64)
    found.flags.writeable = False
    return found


def _of_all(cut: Cut) -> dict[str, Any]:
    counts, p = cut.counts, cut.stages
    end = p * (cut.chunks - 1)
    group = counts[end : end + p - 1].sum(axis=0)
    return {
        "stages": p,
        "chunks": cut.chunks,
        "sent": cut.hops,
        "whole": counts.sum(axis=0).tolist(),
        "outside": (p * counts[p - 1 : end : p].sum(axis=0) + counts[-1]).tolist(),
        "closing": cut.busy[-1].tolist(),
        "entry": counts[0].tolist(),
        "rest": counts[1:p].sum(axis=0).tolist(),
        "group": group.tolist(),
        "after": (group + counts[1:end].sum(axis=0)).tolist(),
    }


def _of_devices(cut: Cut, schedule: str, least: int, first: int, last: int, previous: int) -> dict[str, Any]:
    p, v = cut.stages, cut.chunks
    row, of_chunks = TABLE[runs_as(schedule, v)], cut.of_chunks(last)
    mine = of_chunks.tolist()
    none, before = [0] * len(mine[0]), cut.before[last]
    ends = [[x for x, count in enumerate(chunk) if count] for chunk in mine]
    turns = all(ends)
    closing = last_passes(schedule, p, v, least, last) or (((0,) * v, False),)
    found = {
        "first": first,
        "last": last,
        "first_ends": first in (0, p - 1),
        "ends": last in (0, p - 1),
        "lead": np.inf if row.forwards_first else row.lead(p, least, v, last),
        "first_delay": row.delay(p, least, v, first),
        "delay": row.delay(p, least, v, last),
        "turns": turns,
        "hops": last - previous,
        "before": before.tolist(),
        "run": (before - cut.before[first]).tolist(),
        "gap": (before - cut.before[previous]).tolist(),
        "first_busy": cut.busy[first].tolist(),
        "busy": cut.busy[last].tolist(),
        "first_chunk": cut.counts[first].tolist(),
        "chunk": mine[0],
        "behind": cut.counts[last + 1 :].sum(axis=0).tolist(),
        "tops": _flags(none, [chunk[-1] for chunk in ends] if turns else []),
        "bottoms": _flags(none, [chunk[0] for chunk in ends] if turns else []),
        "warm": none if schedule in SPLIT else _passed(of_chunks, warm_up_passes(schedule, p, v, least, last)),
    }
    for name, (each, whole) in zip(("early", "late"), (closing[0], closing[-1]), strict=True):
        found |= {name: _passed(of_chunks, each), f"{name}_passes": sum(each), f"{name}_whole": whole}
    return found


def _flags(none: Sequence[int], sections: Collection[int]) -> list[int]:
    return [int(x in sections) for x in range(len(none))]


def _passed(chunks: Ints, each: Sequence[int]) -> list[int]:
    """Layers of each section in so many passes of each chunk of a device. chunks: [chunks, sections] layers."""
    return (np.array(each) @ chunks).tolist()  # type: ignore[no-any-return]


def warm_up_passes(schedule: str, stages: int, chunks: int, micro_batches: int, device: int) -> tuple[int, ...]:
    """Forward passes of each chunk before a device's first backward pass. Of more micro-batches they are the same or more."""
    return _of_chunks(_lead(schedule, stages, chunks, micro_batches, device), stages, chunks)


def last_passes(schedule: str, stages: int, chunks: int, micro_batches: int, device: int) -> tuple[tuple[tuple[int, ...], bool], ...]:
    """Backward passes with which a device ends, from two points on: (passes of each chunk, whether every chunk's last one is among them).
    From the first chunk's last pass on, and from the last forward pass on. Of more micro-batches they are the same or more."""
    if schedule in SPLIT:
        return ()
    every = micro_batches * chunks
    closing = min((chunks - 1) * stages + 1, every)
    whole = _of_chunks(every, stages, chunks)
    found = []
    for count in dict.fromkeys((closing, _lead(schedule, stages, chunks, micro_batches, device))):
        before = _of_chunks(every - count, stages, chunks)
        found.append((tuple(all_ - some for all_, some in zip(whole, before, strict=True))[::-1], count >= closing))
    return tuple(found)


def _lead(schedule: str, stages: int, chunks: int, micro_batches: int, device: int) -> int:
    """Forward passes before a device's first backward pass (pipeline_orders)."""
    return min(int(TABLE[runs_as(schedule, chunks)].lead(stages, micro_batches, chunks, device)), micro_batches * chunks)


def _of_chunks(passes: int, stages: int, chunks: int) -> tuple[int, ...]:
    """How many of so many passes, the first of their kind, are of each chunk: groups of a micro-batch a stage take turns with all."""
    rounds, rest = divmod(passes, stages * chunks)
    return tuple(rounds * stages + min(max(rest - chunk * stages, 0), stages) for chunk in range(chunks))
