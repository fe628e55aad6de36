"""How long a pipelined training step takes: exact simulation, closed forms for equal stages, a lower bound for any.

A pass starts when the pass before it on its device has ended and what it needs has arrived (Narayanan 2021 for the graph):

    start(F(k, s)) = max(end(before), end(F(k, s-1)) + send forward)       k micro-batch, s virtual stage
    start(B(k, s)) = max(end(before), end(B(k, s+1)) + send backward)

Equal stages without sends, F and B seconds of a micro-batch on a device, W the weight-gradient part of B, Bi = B - W
(the zero-bubble paper writes B for our Bi): time = m (F + B) + bubble, the bubble being

    gpipe, 1f1b: (p-1)(F+B)     interleaved: (p-1)(F+B)/v
    zb_h1: (p-1) max(F+Bi-W, Bi, F)     zb_h2: (p-1) max(F+Bi-2W, Bi-F, F)

The zero-bubble paper and DualPipe's table give the first term alone, F+Bi-W = F+B-2W. It is not enough: the last stage waits
(p-1)F for its first forward, and with p micro-batches held (2p-1 in zb_h2) the first stage waits for its first backward
(all DERIVED, met by the simulation). zb_h2 bubbles vanish only for a clock that starts and stops at each stage on its own.

Sends occupy links, not devices, and do not queue. A send of backward leaves with the end of B: with the whole backward
where the schedule does not split it, as in Megatron-LM.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rackmodel.arrays import Ints
from rackmodel.cost.step.clock.pipeline_orders import BACKWARD, FORWARD, Order, check, in_flight, order, waves, weave
from rackmodel.model.schedules import SPLIT

Array = NDArray[np.float64]
BLOCK = 4_000_000  # passes × mappings simulated at once: 32 MB
ROUNDING = 1e-12  # taken off the bound: it sums the same path in another order than the simulation


@dataclass(frozen=True)
class Corners:
    """The passes where a critical path may enter (heads) or leave (tails) a device, and the work before and after them.

    head, tail: [stages, corners], in the order of each device · head_work: [stages, heads, kinds × chunks] passes of each kind and
    chunk before a head · tail_work: the same after a tail · heads_until: [stages, tails] index of the last head not after the tail.
    """

    head: Order
    head_work: NDArray[np.float64]
    tail: Order
    tail_work: NDArray[np.float64]
    heads_until: Ints


@lru_cache(maxsize=1024)
def corners(schedule: str, stages: int, micro_batches: int, chunks: int = 1) -> Corners:
    """Heads: first F and first B of each chunk, last F of the warm-up, last F and B of each chunk's first group; tails mirror them.

    The mirror: last F and B of each chunk, first B after the last F, first F and B of each chunk's last group, the last pass.
    """
    plan = order(schedule, stages, micro_batches, chunks)
    length = plan.kind.shape[1]
    forward, backward = plan.kind == FORWARD, plan.kind == BACKWARD
    of_type = [way & (plan.chunk == chunk) for way in (forward, backward) for chunk in range(chunks)]
    warm = forward & (np.cumsum(backward, axis=1) == 0)
    drain = backward & (np.cumsum(forward, axis=1) == micro_batches * chunks)
    group_in, group_out = plan.micro_batch < stages, plan.micro_batch >= micro_batches - stages
    heads = [_first(x) for x in of_type] + [_last(warm)]
    tails = [_last(x) for x in of_type] + [_first(drain), np.full(stages, length - 1)]
    if chunks > 1:
        heads += [_last(x & group_in) for x in of_type]
        tails += [_first(x & group_out) for x in of_type]
    head, tail = (np.sort(np.stack(x, axis=1), axis=1) for x in (heads, tails))
    kinds = 3 if schedule in SPLIT else 2
    passes = np.stack([(plan.kind == kind) & (plan.chunk == chunk) for kind in range(kinds) for chunk in range(chunks)], axis=2)
    counted = np.cumsum(passes, axis=1)  # up to and with each pass
    upto = [np.take_along_axis(counted, place[:, :, None], axis=1) for place in (head, tail)]
    own = np.take_along_axis(passes, head[:, :, None], axis=1)
    until = (head[:, None, :] <= tail[:, :, None]).sum(axis=2) - 1
    return Corners(_at(plan, head), (upto[0] - own).astype(float), _at(plan, tail), (counted[:, -1:] - upto[1]).astype(float), until)


def _first(true: NDArray[np.bool_]) -> Ints:
    return np.asarray(true.argmax(axis=1), dtype=np.int64)


def _last(true: NDArray[np.bool_]) -> Ints:
    return np.asarray(true.shape[1] - 1 - _first(true[:, ::-1]), dtype=np.int64)


def _at(plan: Order, places: Ints) -> Order:
    return Order(*(np.take_along_axis(x, places, axis=1) for x in (plan.kind, plan.micro_batch, plan.chunk)))


@dataclass(frozen=True)
class StageTimes:
    """Seconds of one micro-batch, [S, n] for S = stages × chunks virtual stages in the order of the model, n mappings.

    forward_s, backward_s · weight_s: the part of backward_s that yields weight gradients (read by zb_h1 and zb_h2 only) ·
    send_forward_s, send_backward_s: [S - 1, n] between virtual stages s and s + 1. All broadcast; asserted: 0 ≤ weight ≤ backward.
    """

    forward_s: ArrayLike
    backward_s: ArrayLike
    weight_s: ArrayLike = 0.0
    send_forward_s: ArrayLike = 0.0
    send_backward_s: ArrayLike = 0.0

    def passes(self, schedule: str) -> Array:
        """[kinds, S, n] seconds of F and B, or of F, Bi and W where the schedule splits the backward."""
        forward, backward, weight = np.broadcast_arrays(
            *(np.asarray(x, dtype=float) for x in (self.forward_s, self.backward_s, self.weight_s))
        )
        assert forward.ndim == 2, "[virtual stages, mappings] expected"
        assert (forward >= 0).all(), "0 <= forward expected"
        assert ((weight >= 0) & (weight <= backward)).all(), "0 <= weight <= backward expected"
        return np.stack([forward, backward - weight, weight] if schedule in SPLIT else [forward, backward])

    def sends(self, stages: int, virtual: int, n: int) -> Array:
        """[2S - 1, n] seconds: forward sends, backward sends, and a row of zeros for "no send"."""
        rows = np.zeros((2 * virtual - 1, n))
        if stages > 1:
            rows[: virtual - 1], rows[virtual - 1 : -1] = self.send_forward_s, self.send_backward_s
        return rows


@dataclass(frozen=True)
class Simulated:
    """finish_s: [n] last pass anywhere · device_finish_s, busy_s, idle_s: [stages, n], idle = finish - busy ·
    in_flight: [stages] peak activations held, in micro-batches × chunks."""

    finish_s: Array
    device_finish_s: Array
    busy_s: Array
    idle_s: Array
    in_flight: Ints


@dataclass(frozen=True)
class PassTimes:
    """Every pass of one mapping, by start: device, kind (0 F, 1 B, 2 W), micro_batch, virtual (stage), start_s, end_s: [passes]."""

    device: Ints
    kind: Ints
    micro_batch: Ints
    virtual: Ints
    start_s: Array
    end_s: Array


def simulate(schedule: str, times: StageTimes, *, micro_batches: int, chunks: int = 1) -> Simulated:
    """Exact times of a step on S / chunks devices. InputError as `pipeline_orders.check`."""
    passes, sends, stages = _setting(schedule, times, micro_batches, chunks)
    n = passes.shape[2]
    block = max(1, BLOCK // (micro_batches * passes.shape[0] * passes.shape[1]))
    last = waves(schedule, stages, micro_batches, chunks).last
    device_finish = np.empty((stages, n))
    for at in range(0, n, block):
        part = slice(at, at + block)
        device_finish[:, part] = _ends(schedule, stages, micro_batches, chunks, passes[:, :, part], sends[:, part])[last]
    busy = micro_batches * passes.sum(axis=0).reshape(chunks, stages, n).sum(axis=0)
    finish = device_finish.max(axis=0)
    return Simulated(finish, device_finish, busy, finish - busy, in_flight(schedule, stages, micro_batches, chunks))


def timeline(schedule: str, times: StageTimes, *, micro_batches: int, chunks: int = 1, mapping: int = 0) -> PassTimes:
    """The passes of one mapping (column of `times`), for a drawing. InputError as `pipeline_orders.check`."""
    passes, sends, stages = _setting(schedule, times, micro_batches, chunks)
    passes, sends = passes[:, :, mapping, None], sends[:, mapping, None]
    plan = waves(schedule, stages, micro_batches, chunks)
    end = _ends(schedule, stages, micro_batches, chunks, passes, sends)[:, 0]
    start = np.maximum(end[plan.before], end[plan.feeds] + sends[plan.link, 0])
    rank = np.argsort(start, kind="stable")  # passes of no time stay in the order of their waves
    return PassTimes(plan.device[rank], plan.kind[rank], plan.micro_batch[rank], plan.virtual[rank], start[rank], end[rank])


def closed_form(
    schedule: str,
    stages: int,
    micro_batches: int,
    chunks: int = 1,
    *,
    forward_s: ArrayLike,
    backward_s: ArrayLike,
    weight_s: ArrayLike = 0.0,
) -> Array:
    """[n] seconds of a step of equal stages without sends, m (F + B) + bubble. InputError as `pipeline_orders.check`.

    Exact where a stage fills what it may hold, m >= p in zb_h1 and m >= 2p-1 in zb_h2 (fewer take longer), else always.
    forward_s, backward_s, weight_s: [n] seconds of a micro-batch on a whole device.
    """
    check(schedule, stages, micro_batches, chunks)
    f, b, w = (np.asarray(x, dtype=float) for x in (forward_s, backward_s, weight_s))
    bubble = (f + b) / chunks
    if schedule in SPLIT:
        more = 1 if schedule == "zb_h2" else 0
        bubble = np.maximum.reduce(np.broadcast_arrays(f, f + b - (2 + more) * w, b - w - more * f))
    return np.asarray(micro_batches * (f + b) + (stages - 1) * bubble)


def lower_bound(schedule: str, times: StageTimes, *, micro_batches: int, chunks: int = 1) -> Array:
    """[n] seconds that no simulation of these stages undercuts. InputError as `pipeline_orders.check`.

    On one device, from its pass a to its pass b: what must precede a on other devices + all its work from a to b + what must
    follow b. Each such sum is the length of a path of the graph, so none is above the longest path, which is the step. The bound
    is the largest over all devices and pairs of corners (Corners); as work from a to b = all - before a - after b,
    the best a and b are found apart. Exact for gpipe and for equal stages without sends (zb_h2: with m >= 2p-1).
    """
    passes, sends, stages = _setting(schedule, times, micro_batches, chunks)
    kinds, _, n = passes.shape
    table = corners(schedule, stages, micro_batches, chunks)
    # [stages, kinds × chunks, n], as Corners counts its passes
    own = passes.reshape(kinds, chunks, stages, n).transpose(2, 0, 1, 3).reshape(stages, kinds * chunks, n)
    head, tail, at = table.head, table.tail, np.arange(stages)[:, None]
    reach, pace_in = _reach(passes, sends)
    where = head.kind, head.chunk * stages + at
    enter = reach[where] + head.micro_batch[:, :, None] * pace_in[where] - table.head_work @ own
    enter = np.maximum.accumulate(enter, axis=1)
    where = tail.kind, tail.chunk * stages + at
    late = (micro_batches - 1 - tail.micro_batch)[:, :, None]
    leave = np.maximum.reduce([drain[where] + late * pace[where] for drain, pace in _drains(schedule, passes, sends, micro_batches)])
    leave -= table.tail_work @ own
    through = (np.take_along_axis(enter, table.heads_until[:, :, None], axis=1) + leave).max(axis=1)
    through += micro_batches * own.sum(axis=1)
    if chunks == 1:
        through += _round_trips(schedule, passes, sends, micro_batches)
    return np.asarray(through.max(axis=0) * (1 - ROUNDING))


def _setting(schedule: str, times: StageTimes, micro_batches: int, chunks: int) -> tuple[Array, Array, int]:
    passes = times.passes(schedule)
    virtual, n = passes.shape[1:]
    assert virtual % chunks == 0, "stages × chunks virtual stages expected"
    check(schedule, virtual // chunks, micro_batches, chunks)
    return passes, times.sends(virtual // chunks, virtual, n), virtual // chunks


def _ends(schedule: str, stages: int, micro_batches: int, chunks: int, passes: Array, sends: Array) -> Array:
    """[passes + 1, n] seconds at which each pass of the waves ends; the row after the last is 0, the start of everything."""
    plan = waves(schedule, stages, micro_batches, chunks)
    kinds, virtual, n = passes.shape
    seconds = passes.reshape(kinds * virtual, n)
    row = plan.kind * virtual + plan.virtual
    end = np.zeros((plan.kind.size + 1, n))
    for low, high in zip(plan.bounds, plan.bounds[1:], strict=False):
        arrived = end[plan.feeds[low:high]]
        arrived += sends[plan.link[low:high]]
        np.maximum(arrived, end[plan.before[low:high]], out=arrived)
        np.add(arrived, seconds[row[low:high]], out=end[low:high])
    return end


def _reach(passes: Array, sends: Array) -> tuple[Array, Array]:
    """([2, S, n], [2, S, n]): F, B of micro-batch k cannot start before reach + k pace seconds.

    reach: the chain of its own passes and sends · pace: the slowest pass on that chain, which ran k times before it.
    """
    forward, backward = passes[FORWARD], passes[BACKWARD]
    send_forward, send_backward = _two_ways(sends)
    down = _sums(forward[:-1] + send_forward)
    back = _sums((backward[1:] + send_backward)[::-1])[::-1]
    slowest = np.maximum.accumulate(forward)
    pace = np.maximum(slowest[-1], np.maximum.accumulate(backward[::-1])[::-1])
    return np.stack([down, down[-1] + forward[-1] + back]), np.stack([slowest, pace])


def _drains(schedule: str, passes: Array, sends: Array, micro_batches: int) -> list[tuple[Array, Array]]:
    """([3, S, n], [3, S, n]): what must follow F, B, W of micro-batch m - 1 - k elsewhere takes drain + k pace seconds.

    drain: its chain up to the first stage and through the W's left there · pace: the slowest pass on the chain. Where W's are
    left at other stages, a second way: up to any one stage and through its W's, at the pace of the passes it does not skip.
    """
    forward, backward = passes[FORWARD], passes[BACKWARD]
    send_forward, send_backward = _two_ways(sends)
    left = np.zeros_like(forward)
    if schedule in SPLIT:
        delay = weave(schedule, len(forward), micro_batches, 1, np.arange(len(forward)))[1]
        left = np.minimum(delay + 1, micro_batches)[:, None] * passes[2]
    chain = backward[:-1] + send_backward
    turn = _sums((forward[1:] + send_forward + backward[1:] + send_backward)[::-1])[::-1] + backward
    down = np.maximum.accumulate(forward[::-1])[::-1]
    none = np.zeros_like(forward)
    up = _sums(chain)
    up[1:] += left[0]
    slowest = np.maximum.accumulate(backward)
    ways = [(np.stack([turn + up, up, none]), np.stack([np.maximum(slowest[-1], down), slowest, none]))]
    if schedule in SPLIT:
        exits = np.zeros_like(up)
        for s in range(1, len(up)):
            exits[s] = chain[s - 1] + np.maximum(exits[s - 1], left[s - 1])
        from_here = np.maximum.accumulate(backward[::-1])[::-1]
        ways.append((np.stack([turn + exits, exits, none]), np.stack([np.maximum(from_here, down), backward, none])))
    return ways


def _round_trips(schedule: str, passes: Array, sends: Array, micro_batches: int) -> Array:
    """[stages, n] seconds by which a path that commutes between stage j and a later one j' exceeds the work of j alone.

    F(k) goes from j to j', the next B of j' comes back to j, its next F is F(k + L), L = c_j - c_j' + 1 micro-batches on. So L
    micro-batches cost at least the passes and sends from j to j' and back (and one W at j), where j alone needs L of its own.
    """
    stages, n = passes.shape[1:]
    gain = np.zeros((stages, n))
    c, delay = weave(schedule, stages, micro_batches, 1, np.arange(stages))
    rounds = np.maximum(micro_batches - c - np.maximum(delay, 1), 0)  # the steady F, B(, W) of every stage, less the last
    weight = passes[2] if schedule in SPLIT else np.zeros((stages, n))
    pair = passes[FORWARD] + passes[BACKWARD]
    hop = np.add(*_two_ways(sends))
    trip = pair + weight
    for far in range(1, stages):
        trip = trip[:-1] + pair[far:] + hop[far - 1 :]
        step = c[: stages - far] - c[far:] + 1
        more = trip - step[:, None] * (pair + weight)[: stages - far]
        gain[: stages - far] = np.maximum(gain[: stages - far], (rounds[: stages - far] // step)[:, None] * more)
    return gain


def _two_ways(sends: Array) -> tuple[Array, Array]:
    """Forward and backward sends, [S - 1, n] each, without the row of zeros."""
    return sends[: len(sends) // 2], sends[len(sends) // 2 : -1]


def _sums(rows: Array) -> Array:
    """[r + 1, n] sums of the first 0..r rows."""
    return np.concatenate([np.zeros((1, rows.shape[1])), np.cumsum(rows, axis=0)])
