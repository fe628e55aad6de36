"""Steps at most: seconds that the clock's (docs/clock.md) never exceed, in arrays, as `bound` has what they never are below.

A step is a longest path on which no task lies twice. Within a stage it goes on from pass to pass, so that a pass adds no more to it than
what its device and its lanes do one after another, with a hand-over and the gather of a layer ahead; and of passes that take f, b and w
(forward, backward, weight gradients) at most, m micro-batches of v chunks on p stages take

    T <= (m v + p - 1) (f + b + w)        and of folded schedules, whose second chunk lies on the way back, (m v + 2 (p - 1)) (f + b + w)

(tests/test_most.py holds it against the longest way through every order.) Beside that comes what happens once: loads and reductions of all
layers, gathers after the last update at the stage where the path begins, and the optimizer of the one where it ends.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.cost.step.bounds.bound import Sends
from rackmodel.cost.step.bounds.device_times import NONE, Layers, longest
from rackmodel.cost.step.cut import Cut
from rackmodel.model.schedules import FOLDED, SPLIT

UNBOUNDED = frozenset({"up", "home"})
"""Figures of streams to a home above, which share its port: such steps are not bounded."""
ROUNDING = 1e-9  # added: the clock sums the same tasks in another order


def passes_at_most(schedule: str, stages: int, chunks: int, micro_batches: Ints) -> Ints:
    """[n] passes of each kind that a step lasts, at most, where all of a kind take equally long."""
    fill = 2 * (stages - 1) if schedule in FOLDED else stages - 1
    return np.asarray(micro_batches * chunks + fill, dtype=np.int64)


def most_seconds(layers: Layers, sends: Sends, cut: Cut, schedule: str, micro_batches: Ints) -> Array:
    """Seconds at most of steps of one cut, [plans, columns, overlaps] or [cells, overlaps]; inf where nothing is known. micro_batches:
    [columns] or [cells]."""
    seconds, split = sends.seconds[..., None], schedule in SPLIT
    if layers.has & UNBOUNDED:
        return np.full_like(seconds, np.inf)

    def lane(name: str) -> list[Array]:
        return layers.lane(name) if name in layers.has else [NONE] * len(layers.sections)

    def each(*values: Sequence[Array]) -> list[Array]:
        return [sum(parts[1:], parts[0]) for parts in zip(*values, strict=True)]

    times = layers.times(split=split)
    ahead = [longest(lane("forward_gather")), longest(lane("backward_gather"))]
    more = longest(ahead) + (seconds if cut.stages > 1 else NONE)
    kinds = [each([one.forward for one in times], lane("forward_gather"), lane("forward_reduce"))]
    if layers.back:
        kinds.append(each([one.backward - one.weight for one in times], lane("backward_gather"), lane("reduce")))
    if layers.back and split:
        kinds.append(each([one.weight for one in times], lane("reduce")))
    steady = sum((_largest(cut.counts, kind) + more for kind in kinds), NONE)
    once = each([one.first + one.last for one in times], lane("tail"))
    ends = _largest(cut.busy, lane("spread")) + _largest(cut.busy, layers.lane("update"))
    tied = sends.tied[..., None] if cut.stages > 1 else NONE
    passes = passes_at_most(schedule, cut.stages, cut.chunks, micro_batches)[:, None]
    whole = _largest(cut.counts.sum(axis=0, keepdims=True), once)
    return np.asarray((passes * steady + whole + ends + tied) * (1 + ROUNDING) + 0 * seconds)


def _largest(rows: Ints, values: Sequence[Array]) -> Array:
    """The largest of sums of layers. rows: [sums, sections] how many of each."""
    sums = [[float(count) * value for count, value in zip(row, values, strict=True) if count] for row in np.unique(rows, axis=0).tolist()]
    return longest([sum(parts[1:], parts[0]) for parts in sums if parts])
