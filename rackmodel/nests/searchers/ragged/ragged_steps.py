"""A better mapping step by step: every change of one or two numbers of a row at once, the best of them the next, until none is better.

A step gives one of the ratios of a row (ragged_plan: outer tiles move along) another value, or two of them, as they must where a fan, a
room and the ports are all nearly full; then tiles are made as small as their pieces allow. Or it gives one or two numbers of loops and
parts another value, and the tiles within, whatever they are, fill the others (22 parts in two rounds become 20 in two). Some thousand
rows are counted together.
Where that ends, draws around the best (ragged_draws) are where it begins again. Candidates only: no bound rests on them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rackmodel.arrays import Ints
from rackmodel.nests.searchers.effort import Effort
from rackmodel.nests.searchers.ragged.ragged_draws import Drawn, Draws, Key

STEPS, KICKED, EACH = 40, 4, 3  # steps; the best that are drawn around, how many of the draws of each go on
TURNED = 2  # the best that are looked at in other orders
WORSE, AFAR = 1.3, 2.0  # of a key: draws, mappings in other orders that are no worse go on
NEARER = 1 - 1e-9  # of a key: what counts as better


class _Climb:
    """From one mapping on. now, best: by either key · passed: mappings it came by."""

    def __init__(self, start: Drawn) -> None:
        self.now = self.best = start
        self.passed: list[Key] = []
        self.ended = False

    def changes(self, ends: dict[Key, Drawn], objective: str) -> tuple[Ints, Ints] | None:
        """[rows, numbers] ratios, and loops, to be looked at; None where it has come to a mapping that others came by: it ends where they
        did."""
        self.passed.append((objective, self.now.plan.orders, self.now.row.tobytes()))
        if (end := ends.get(self.passed[-1])) is not None:
            self.now, self.ended = end, True
            return None
        plan, row = self.now.plan, self.now.row
        ratios = np.maximum(1, np.rint(plan.ratios_of(row))).astype(np.int64)
        return _changed(ratios, _values), _changed(plan.loops_of(row), _near)

    def take(self, one: Drawn | None, other: Drawn | None) -> None:
        """The best of what was looked at, by either key; None where nothing was left of it."""
        if one is not None and one.key < self.best.key:
            self.best = one
        if other is not None and other.near < self.now.near * NEARER:
            self.now = other
        else:
            self.ended = True

    @property
    def found(self) -> Drawn:
        """The better of the two."""
        return self.best if self.best.key < self.now.key else self.now


def stepped(draws: Draws, starts: Sequence[Drawn], effort: Effort) -> list[Drawn]:
    """Where steps from some mappings end, all of them side by side; draws: under whose near key."""
    climbs = [_Climb(start) for start in starts]
    for _ in range(STEPS):
        going = [climb for climb in climbs if not climb.ended]
        if not going or effort.over:
            break
        alike: dict[int, list[tuple[_Climb, tuple[Ints, Ints]]]] = {}
        for climb in going:
            if (rows := climb.changes(draws.ends, draws.objective.name)) is not None:
                alike.setdefault(id(climb.now.plan), []).append((climb, rows))
        for some in alike.values():
            _step(draws, some)
    for climb in climbs:
        draws.ends.update(dict.fromkeys(climb.passed, climb.found))
    return [climb.found for climb in climbs]


def _step(draws: Draws, some: list[tuple[_Climb, tuple[Ints, Ints]]]) -> None:
    """One step of climbs of one plan."""
    plan = some[0][0].now.plan
    most = np.array([max(climb.best.key, climb.now.near) for climb, _ in some])
    found = []
    for loops in (False, True):
        of = np.repeat(np.arange(len(some)), [len(both[loops]) for _, both in some])
        found.append(draws.worth(plan, np.concatenate([both[loops] for _, both in some]), most[of], of, loops=loops))
    rows, of = (np.concatenate(one) for one in zip(*found, strict=True))
    least = np.array([(climb.best.key, climb.now.near) for climb, _ in some])[of]
    on, keys, nears = draws.better(plan, rows, least[:, 0], least[:, 1])
    rows, of = rows[on], of[on]
    for i, (climb, _) in enumerate(some):
        own = np.flatnonzero(of == i)
        best = (own[int(np.argmin(by[own]))] for by in (keys, nears)) if len(own) else ()
        climb.take(*([Drawn.of(plan, rows, (keys, nears), k) for k in best] or (None, None)))


def kicked(draws: Draws, found: list[Drawn], kicks: int, effort: Effort) -> list[Drawn]:
    """Some mappings and what steps make of draws around the best of them, and of the best of them in other orders, so often; best first."""
    found = _distinct(found)
    for _ in range(kicks):
        near = [drawn for one in found[:KICKED] for drawn in draws.several(one, WORSE * one.near, EACH)]
        turned = [drawn for one in found[:TURNED] for drawn in _turned(draws, one)]
        found = _distinct(found + stepped(draws, [*near, *turned], effort))
    return found


def _turned(draws: Draws, one: Drawn) -> list[Drawn]:
    """The best of the same tiles and parts in other orders: of one level, or of all."""
    space = one.plan.space
    choices = space.all_orders()
    found = [draws.again(one, orders) for orders in choices if orders != one.plan.orders[1:]]
    some = sorted((drawn for drawn in found if drawn is not None), key=lambda drawn: drawn.near)
    return [drawn for drawn in some[:EACH] if drawn.near <= AFAR * one.near]


def _distinct(found: list[Drawn]) -> list[Drawn]:
    """Best first, of equal ones the first."""
    first: dict[float, Drawn] = {}
    for drawn in sorted(found, key=lambda drawn: drawn.near):
        first.setdefault(drawn.near, drawn)
    return list(first.values())


def _values(ratio: int) -> set[int]:
    """Other values that a ratio may take."""
    return {1, ratio - 1, ratio + 1, 2 * ratio, ratio // 2, -(-ratio // 2), round(1.25 * ratio), round(0.8 * ratio)}


def _near(loops: int) -> set[int]:
    """Other values that a number of loops may take."""
    return {1, loops - 2, loops - 1, loops + 1, loops + 2, 2 * loops, -(-loops // 2)}


def _changed(numbers: Ints, values: Callable[[int], set[int]]) -> Ints:
    """[rows, numbers] with one or two of them changed."""
    every = ((i, sorted(values(n))) for i, n in enumerate(numbers.tolist()))
    moves = np.array([(i, value) for i, some in every for value in some if value >= 1 and value != numbers[i]])
    one, other = np.triu_indices(len(moves))
    on = (moves[one, 0] != moves[other, 0]) | (one == other)
    one, other = one[on], other[on]
    columns = np.repeat(numbers[:, None], len(one), axis=1)
    at = np.arange(len(one))
    columns[moves[one, 0], at], columns[moves[other, 0], at] = moves[one, 1], moves[other, 1]
    return columns.T
