"""The cut of least bound, exactly: fronts of (way back, bound) at every stage and layer, ties in a stated order."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from rackmodel.arrays import Bools, Ints
from rackmodel.mapper.stages.bounds import Bounds, StageBounds
from rackmodel.mapper.stages.cut_problem import CutProblem
from rackmodel.mapper.stages.integers import NEVER, IntegerProblem
from rackmodel.mapper.stages.mixes import Tables


@dataclass(frozen=True)
class _States:
    """Ways to run stages i.. on the layers from n on, none better in all: far, most: U with its true S · price: ties · layers: theirs."""

    far: Ints
    most: Ints
    price: Ints
    layers: list[tuple[int, ...]]


def least_bound(
    problem: CutProblem, integers: IntegerProblem, tables: Tables, bounds: Bounds, limit: int, *, ties: bool
) -> tuple[int, tuple[int, ...]]:
    """(U, layers) of the cut of least U among those of at most `limit`; with `ties` the first in their order of all within it."""
    length, p = len(problem.kinds), problem.stages
    earliest, latest = _reach(problem, bounds, limit)
    zero = np.zeros(1, dtype=np.int64)
    states = {length: _States(zero, zero, zero, [()])}
    for i in range(p - 1, -1, -1):
        stage, found = StageBounds(problem, integers, tables, i), {}
        for n in np.flatnonzero(earliest[i] < NEVER).tolist():
            sizes = np.flatnonzero(earliest[i, n] + bounds.through[i, n] <= limit).tolist()
            sizes = [size for size in sizes if n + size in states]
            if not sizes:
                continue
            rest = [states[n + size] for size in sizes]
            which = np.repeat(np.arange(len(sizes)), [len(one.far) for one in rest])
            run = tables.which[n, sizes][which]
            far, then, price = (np.concatenate(x) for x in zip(*((one.far, one.most, one.price) for one in rest), strict=True))
            own, far = tables.seconds[i, run], far + stage.hop
            most, _ = stage.through(run, own, n + np.array(sizes)[which], far, then)
            if ties:
                most = np.maximum(most, limit - latest[i, n])  # no prefix is longer: below this, all are the same
                price = price + tables.joules[i, run] * (length * length + 1) + np.square(sizes)[which]
            kept = _undominated(price, own + far, most, earliest[i, n] + most <= limit)
            if len(kept):
                first = np.cumsum([0] + [len(one.far) for one in rest])
                layers = [(sizes[which[x]], *rest[which[x]].layers[x - first[which[x]]]) for x in kept]
                found[n] = _States((own + far)[kept], most[kept], price[kept], layers)
        states = found
    best = states[0]
    chosen = int(np.lexsort((best.most, best.price))[0])
    return int(best.most[chosen]), best.layers[chosen]


def _reach(problem: CutProblem, bounds: Bounds, limit: int) -> tuple[Ints, Ints]:
    """[p + 1, L + 1] least (NEVER: not reached) and most seconds before stage i starts at layer n, by cuts of bound `limit`."""
    length, p = len(problem.kinds), problem.stages
    earliest, latest = np.full((p + 1, length + 1), NEVER), np.full((p + 1, length + 1), -1)
    earliest[0, 0] = latest[0, 0] = 0
    for i in range(p):
        for size in range(problem.fewest, bounds.through.shape[2]):
            n = np.flatnonzero(np.minimum(earliest[i], limit + 1) + bounds.through[i, :, size] <= limit)
            more = bounds.onward[i, n, size]
            earliest[i + 1, n + size] = np.minimum(earliest[i + 1, n + size], earliest[i, n] + more)
            latest[i + 1, n + size] = np.maximum(latest[i + 1, n + size], latest[i, n] + more)
    return earliest, latest


def _undominated(price: Ints, far: Ints, most: Ints, within: Bools) -> Ints:
    """Entries that no other equals or beats in all three figures, by price."""
    order = np.lexsort((most, far, price))
    order = order[within[order]]
    kept, stair = [], ([-1], [NEVER])  # of those kept: far ascending, most descending
    for x, one_far, one_most in zip(order.tolist(), far[order].tolist(), most[order].tolist(), strict=True):
        at = bisect_right(stair[0], one_far)
        if stair[1][at - 1] <= one_most:
            continue
        end = at
        while end < len(stair[0]) and stair[1][end] >= one_most:
            end += 1
        stair[0][at:end], stair[1][at:end] = [one_far], [one_most]
        kept.append(x)
    return np.array(kept, dtype=np.int64)
