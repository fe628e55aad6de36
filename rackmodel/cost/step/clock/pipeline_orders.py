"""In which order each pipeline stage runs its passes: fixed by schedule, p stages, m micro-batches, v chunks alone.

A pass is F (forward), B (backward; only its input-gradient part where the schedule splits it) or W (weight gradient). Those of schedules
whose stages hold a chunk down the stages and one back up (zb_v, dualpipe_v) are written out in `folded_orders`; of the others
forwards run in one sequence F_0..F_{mv-1}, backwards in another, weight gradients in the order of their backwards. Two
numbers a stage i (0-based) weave them: B_k runs right after F_{k+c-1}, W_k right after B_{k+d}; what has run out is skipped.

    schedule       c (forwards before the first backward)   d (backwards a W waits)   source
    gpipe          m                                        -                         Huang 2019 (RECALLED)
    1f1b           p - i                                    -                         Narayanan 2021 (RECALLED)
    interleaved    2(p-1-i) + (v-1)p + 1, at most mv        -                         Megatron-LM, warm-up + 1 (RECALLED)
    zb_h1          p - i                                    i                         Qi 2023, handcrafted (rule DERIVED)
    zb_h2          2(p-1-i) + 1                             2i                        Qi 2023, handcrafted (rule DERIVED)

F_k is held from its start until its B (or W) ends. When F_k starts, k + 1 have started and k - c - d + 1 have ended, so a
stage holds at most min(c + d, mv): m; p - i; 2(p-1-i) + (v-1)p + 1; p; 2p - 1. Interleaved runs p micro-batches through a
chunk before the next chunk, so p must divide m; device i holds the virtual stages i, i + p, i + 2p, ... A stage of zb_v holds 2p passes of
half as many layers, one of dualpipe_v 2p + 1: counted in their orders.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from rackmodel.arrays import Ints
from rackmodel.cost.step.clock.folded_orders import KINDS, folded_order
from rackmodel.errors import InputError
from rackmodel.model.schedules import FOLDED, FOLDS, SCHEDULES, SPLIT, TABLE, device_of, lane_of

FORWARD, BACKWARD, WEIGHT, WHOLE, AWAIT, RELEASE = KINDS


@dataclass(frozen=True)
class Order:
    """kind, micro_batch, chunk: [stages, passes] the passes of each stage, first to last."""

    kind: Ints
    micro_batch: Ints
    chunk: Ints


@dataclass(frozen=True)
class Waves:
    """All passes in waves: a pass needs passes of earlier waves only, so a wave is one array operation.

    bounds: [waves + 1] where each wave begins · device, kind, micro_batch, virtual: [passes] · before: [passes] the pass before it
    on its device · feeds: [passes] the pass of another device whose result is sent to it · link: [passes] the send's row: forward
    s → s + 1 is s, backward s + 1 → s is S - 1 + s, none is the last row, 2S - 2 · last: [stages] each device's last pass.
    `before` and `feeds` are `passes` where there is none. way: [passes] 0 where what a pass makes goes forward in the model, 1 back ·
    lane: and 0 where that is to the next device, 1 to the one before.
    """

    bounds: tuple[int, ...]
    device: Ints
    kind: Ints
    micro_batch: Ints
    virtual: Ints
    before: Ints
    feeds: Ints
    link: Ints
    last: Ints
    way: Ints
    lane: Ints


def check(schedule: str, stages: int, micro_batches: int, chunks: int = 1) -> None:
    """InputError for an unknown schedule, or for counts it has no order for."""
    if schedule not in SCHEDULES:
        raise InputError(f"unknown pipeline schedule {schedule!r}", path="schedule", known=SCHEDULES, given=schedule)
    if min(stages, micro_batches, chunks) < 1:
        raise InputError(f"{stages} stages, {micro_batches} micro-batches, {chunks} chunks: each must be at least 1", path="schedule")
    row = TABLE[schedule]
    if row.folded and chunks != FOLDS:
        fact = f"{schedule} holds {FOLDS} chunks a stage, one on the way down the stages and one back up; {chunks} given"
        raise InputError(fact, path="chunks")
    if not row.chunked and not row.folded and chunks > 1:
        more = " and ".join(name for name, other in TABLE.items() if other.chunked)
        raise InputError(f"{schedule} holds one chunk a stage, {chunks} given; only {more} takes more", path="chunks")
    if row.chunked and chunks == 1:
        raise InputError(f"{schedule} needs at least 2 chunks a stage; with one it is {row.plain}", path="chunks")
    if micro_batches < row.fewest(stages):
        fact = f"{schedule} of {stages} stages needs at least {row.fewest(stages)} micro-batches, {micro_batches} given"
        raise InputError(fact, path="micro_batches")
    if not row.takes(stages, micro_batches):
        up = -(-micro_batches // stages) * stages
        raise InputError(
            f"{schedule} runs groups of {stages} micro-batches (one a stage), {micro_batches} is no multiple; next: {up}",
            path="micro_batches",
        )


def weave(schedule: str, stages: ArrayLike, micro_batches: ArrayLike, chunks: ArrayLike, stage: ArrayLike) -> tuple[Ints, Ints]:
    """(c, d) of the table above for 0-based `stage`; integers or arrays that broadcast, c at most m v. Checks nothing."""
    p, m, v, i = (np.asarray(x, dtype=np.int64) for x in (stages, micro_batches, chunks, stage))
    row = TABLE[schedule]
    return np.minimum(row.lead(p, m, v, i), m * v) + np.zeros_like(i), row.delay(p, m, v, i)


def held(schedule: str, stages: ArrayLike, micro_batches: ArrayLike, chunks: ArrayLike, stage: ArrayLike) -> Ints:
    """Peak activations on a stage, in micro-batches × chunks, min(c + d, m v); integers or arrays that broadcast. Checks nothing."""
    if schedule in FOLDED:
        each = np.broadcast_arrays(*(np.asarray(x, dtype=np.int64) for x in (stages, micro_batches, stage)))
        apart, of = np.unique(np.stack([x.reshape(-1) for x in each]), axis=1, return_inverse=True)
        counted = [_fullest(schedule, *one) for one in apart.T.tolist()]
        return np.array(counted, dtype=np.int64)[of.reshape(-1)].reshape(each[0].shape)
    c, d = weave(schedule, stages, micro_batches, chunks, stage)
    most = np.asarray(micro_batches, dtype=np.int64) * np.asarray(chunks, dtype=np.int64)
    return np.asarray(np.minimum(c + d, most), dtype=np.int64)


STEADY = 2
"""Micro-batches a stage beyond which no schedule of chunks holds more of any of them (tests/test_pipeline)."""


def alike(schedule: str, stages: int, micro_batches: Ints) -> Ints:
    """[n] micro-batches, none more than it takes to hold as many passes of every chunk."""
    row = TABLE[schedule]
    most = STEADY * stages
    counts = np.minimum(micro_batches, most) if row.folded else np.minimum(-(-micro_batches // stages) * stages, most)
    return np.asarray(np.maximum(counts, row.fewest(stages)), dtype=np.int64)


def _fullest(schedule: str, stages: int, micro_batches: int, stage: int) -> int:
    count = int(alike(schedule, stages, np.array([micro_batches]))[0])
    return int(fullest_moments(schedule, stages, count, FOLDS, stage).sum(axis=1).max())


def in_flight(schedule: str, stages: int, micro_batches: int, chunks: int = 1) -> Ints:
    """[stages] peak activations held, in micro-batches × chunks (divide by chunks for whole micro-batches); InputError as `check`."""
    check(schedule, stages, micro_batches, chunks)
    return held(schedule, stages, micro_batches, chunks, np.arange(stages))


@lru_cache(maxsize=1024)
def moments(schedule: str, stages: int, micro_batches: int, chunks: int, stage: int) -> Ints:
    """[moments, chunks] passes of each chunk whose activations a stage holds as each of its forward passes ends; InputError as `check`."""
    if schedule in FOLDED:
        plan, frees = order(schedule, stages, micro_batches, chunks), (WEIGHT, WHOLE) if schedule in SPLIT else (BACKWARD,)
        kind, own = plan.kind[stage][:, None], plan.chunk[stage][:, None] == np.arange(chunks)
        there = np.cumsum(own & (kind == FORWARD), axis=0) - np.cumsum(own & np.isin(kind, frees), axis=0)
        return _frozen(there[plan.kind[stage] == FORWARD])
    check(schedule, stages, micro_batches, chunks)
    passes = np.arange(1, micro_batches * chunks + 1)
    c, d = weave(schedule, stages, micro_batches, chunks, stage)
    ended = np.maximum(passes - c - d, 0)
    return _frozen(_of_chunks(passes, stages, chunks) - _of_chunks(ended, stages, chunks)[:, ::-1])


def _of_chunks(passes: Ints, stages: int, chunks: int) -> Ints:
    """[n, chunks] of the first `passes` [n] of their kind those of each chunk: groups of a micro-batch a stage take turns with all."""
    rounds, rest = np.divmod(passes[:, None], stages * chunks)
    return np.asarray(rounds * stages + (rest - np.arange(chunks) * stages).clip(0, stages), dtype=np.int64)


@lru_cache(maxsize=1024)
def fullest_moments(schedule: str, stages: int, micro_batches: int, chunks: int, stage: int) -> Ints:
    """The same at every moment but those that hold no more of any chunk than another."""
    return _frozen(undominated(moments(schedule, stages, micro_batches, chunks, stage)))


def undominated(rows: Ints) -> Ints:
    """The rows of [n, m] that no other row is nowhere below, each once."""
    most = rows.max(axis=0)
    if (rows == most).all(axis=1).any():
        return np.asarray(most[None])
    above = (rows[:-1] > rows[1:]).any(axis=1)  # those that are nowhere above the next are covered: most, as a pipeline fills
    rows = rows[np.append(above, True)]
    rows = rows[np.lexsort(rows.T)]
    rows = rows[np.append(True, (rows[1:] != rows[:-1]).any(axis=1))]
    covered = (rows[None] >= rows[:, None]).all(axis=2).sum(axis=1) > 1
    return np.asarray(rows[~covered])


@lru_cache(maxsize=32)
def order(schedule: str, stages: int, micro_batches: int, chunks: int = 1) -> Order:
    """The passes of every stage in their order; InputError as `check`."""
    check(schedule, stages, micro_batches, chunks)
    if schedule in FOLDED:
        kind, of_chunk, batch = np.array(folded_order(schedule, stages, micro_batches), dtype=np.int64).transpose(2, 0, 1)
        return Order(_frozen(kind.copy()), _frozen(batch.copy()), _frozen(of_chunk.copy()))
    count = micro_batches * chunks
    k = np.arange(count)
    if chunks == 1:
        micro_batch, chunk = k, np.zeros_like(k)
    else:  # groups of p micro-batches, each through all chunks
        micro_batch, chunk = k // (stages * chunks) * stages + k % stages, k // stages % chunks
    c, d = (x[:, None] for x in weave(schedule, stages, micro_batches, chunks, np.arange(stages)))
    places = [3 * k + 0 * c, 3 * (k + c - 1) + 1]  # B_k after F_{k+c-1}, before F_{k+c}
    if schedule in SPLIT:
        places.append(3 * (k + d + c - 1) + 2)  # W_k after B_{k+d}, before F_{k+d+c}
    rank = np.argsort(np.concatenate(places, axis=1), axis=1, kind="stable")
    kinds = len(places)
    columns = np.repeat(np.arange(kinds), count), np.tile(micro_batch, kinds), np.concatenate([chunk] + [chunks - 1 - chunk] * (kinds - 1))
    return Order(*(_frozen(column[rank]) for column in columns))


@lru_cache(maxsize=64)
def waves(schedule: str, stages: int, micro_batches: int, chunks: int = 1) -> Waves:
    """The order as a graph in topological levels: each device runs its next pass as soon as all it needs is of earlier waves."""
    plan = order(schedule, stages, micro_batches, chunks)
    length, total, virtual_stages = plan.kind.shape[1], plan.kind.size, stages * chunks
    device = np.broadcast_to(np.arange(stages)[:, None], plan.kind.shape)
    back = (plan.chunk == 1) & (schedule in FOLDED)
    virtual = np.where(back, virtual_stages - 1 - device, plan.chunk * stages + device)
    feeds, link = _feeds(plan, virtual, device_of(np.arange(virtual_stages), schedule, stages))
    way = 1 - np.isin(plan.kind, (FORWARD, RELEASE))
    level, row = _levels(feeds.ravel().tolist(), stages, length), np.arange(stages) * length
    wave = int(level[:total].max()) + 1
    by_wave = by_number(level[:total], wave)
    rank = np.empty(total + 1, dtype=np.int64)
    rank[by_wave], rank[total] = np.arange(total), total
    before = np.concatenate([np.full((stages, 1), total), np.arange(total).reshape(stages, length)[:, :-1]], axis=1)
    bounds = np.searchsorted(level[by_wave], np.arange(wave + 1))
    lane = lane_of(way, virtual, schedule, stages)
    columns = (device, plan.kind, plan.micro_batch, virtual, rank[before], rank[feeds], link, way, lane)
    d, k, b, s, prior, fed, sent, goes, to = (_frozen(x.ravel()[by_wave]) for x in columns)
    return Waves(tuple(bounds.tolist()), d, k, b, s, prior, fed, sent, _frozen(rank[row + length - 1]), goes, to)


def by_number(numbers: Ints, count: int) -> Ints:
    """Places in the order of numbers below `count`, equal ones in their own. (Short ones are sorted digit by digit, several times as
    fast.)"""
    return np.argsort(numbers.astype(np.min_scalar_type(count)), kind="stable")


def _levels(feeds: list[int], stages: int, length: int) -> Ints:
    """[passes + 1] the wave of each pass, a row of them after another: behind the one before it in its row and the one that feeds it.
    (Stage by stage, there and back, each as far as it gets.) The last stands for what nothing feeds."""
    total = stages * length
    level = [-2] * total + [-1]
    places, waves, left = [stage * length for stage in range(stages)], [-1] * stages, total
    while left:
        before = left
        for stage in (*range(stages), *range(stages - 1, -1, -1)):
            place, wave, end = places[stage], waves[stage], (stage + 1) * length
            while place < end and (fed := level[feeds[place]]) > -2:
                wave = (fed if fed > wave else wave) + 1
                level[place] = wave
                place += 1
            left -= place - places[stage]
            places[stage], waves[stage] = place, wave
        assert left < before, "the order waits for itself"
    return np.array(level, dtype=np.int64)


def _feeds(plan: Order, virtual: Ints, device: Ints) -> tuple[Ints, Ints]:
    """For each pass, flat: the pass that sends to it, and the row of that send. device: [virtual stages] that runs each.

    B of the last virtual stage, every W, and what the same device made need only passes earlier there, which its order respects.
    """
    total, virtual_stages = plan.kind.size, len(device)
    place = np.full((2, int(plan.micro_batch.max()) + 1, virtual_stages), total)
    for kind in (FORWARD, RELEASE, BACKWARD, WHOLE):  # (what a pair's forward pass made leaves with its end)
        of = plan.kind == kind
        place[int(kind in (BACKWARD, WHOLE)), plan.micro_batch[of], virtual[of]] = np.flatnonzero(of)
    forward = plan.kind == FORWARD
    source = virtual + np.where(forward, -1, 1)
    fed = ~np.isin(plan.kind, (WEIGHT, RELEASE)) & (source >= 0) & (source < virtual_stages)
    source = source.clip(0, virtual_stages - 1)
    fed &= device[source] != device[virtual]  # a device sends nothing to itself
    feeds = np.where(fed, place[1 - forward, plan.micro_batch, source], total)
    row = np.where(forward, virtual - 1, virtual_stages - 1 + virtual)
    return feeds, np.where(fed, row, 2 * virtual_stages - 2)


def _frozen(array: Ints) -> Ints:
    """Read-only, for what a cache hands out."""
    array.flags.writeable = False
    return array
