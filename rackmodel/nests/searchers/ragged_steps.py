"""A better mapping step by step: every change of one or two numbers of a row at once, the best of them the next, until none is better.

A step gives one of the ratios of a row (ragged_plan: outer tiles move along) another value, or two of them, as they must where a fan, a
room and the ports are all nearly full; then tiles are made as small as their pieces allow. Some thousand rows are counted together.
Where that ends, draws around the best (ragged_draws) are where it begins again. Candidates only: no bound rests on them.
"""

from __future__ import annotations

import numpy as np

from rackmodel.nests.arrays import Ints
from rackmodel.nests.searchers.effort import Effort
from rackmodel.nests.searchers.ragged_draws import Drawn, Draws

STEPS, KICKED, EACH = 40, 4, 3  # steps; the best that are drawn around, how many of the draws of each go on
WORSE = 1.3  # of a key: draws that are no worse go on
NEARER = 1 - 1e-9  # of a key: what counts as better


def stepped(draws: Draws, start: Drawn, effort: Effort) -> Drawn:
    """Where steps from a mapping end; draws: under whose near key."""
    now = best = start
    for _ in range(STEPS):
        if effort.over:
            break
        rows = draws.worth(now.plan, _changed(np.maximum(1, np.rint(now.plan.ratios_of(now.row))).astype(np.int64)), best.key, now.near)
        if not len(rows):
            break
        one, other = draws.least(now.plan, rows)
        best = min(best, one, key=lambda drawn: drawn.key)
        if not other.near < now.near * NEARER:
            break
        now = other
    return best if best.key < now.key else now


def kicked(draws: Draws, found: list[Drawn], kicks: int, effort: Effort) -> list[Drawn]:
    """Some mappings and what steps make of draws around the best of them, so often; best first."""
    found = _distinct(found)
    for _ in range(kicks):
        new = []
        for one in found[:KICKED]:
            near = draws.several(one, WORSE * one.near, EACH)
            new += [stepped(draws, drawn, effort) for drawn in near]
        found = _distinct(found + new)
    return found


def _distinct(found: list[Drawn]) -> list[Drawn]:
    """Best first, of equal ones the first."""
    first: dict[float, Drawn] = {}
    for drawn in sorted(found, key=lambda drawn: drawn.near):
        first.setdefault(drawn.near, drawn)
    return list(first.values())


def _values(ratio: int) -> list[int]:
    """Other values that a ratio may take."""
    found = {1, ratio - 2, ratio - 1, ratio + 1, ratio + 2, 2 * ratio, ratio // 2, -(-ratio // 2), 3 * ratio, ratio // 3}
    found |= {round(1.25 * ratio), round(0.8 * ratio)}
    return sorted(value for value in found if value >= 1 and value != ratio)


def _changed(ratios: Ints) -> Ints:
    """[rows, numbers] ratios with one or two of them changed."""
    moves = np.array([(i, value) for i, ratio in enumerate(ratios.tolist()) for value in _values(ratio)])
    one, other = np.triu_indices(len(moves))
    on = (moves[one, 0] != moves[other, 0]) | (one == other)
    one, other = one[on], other[on]
    rows = np.repeat(ratios[None], len(one), axis=0)
    at = np.arange(len(one))
    rows[at, moves[one, 0]], rows[at, moves[other, 0]] = moves[one, 1], moves[other, 1]
    return rows
