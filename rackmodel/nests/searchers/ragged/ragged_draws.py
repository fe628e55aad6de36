"""Better mappings by drawing: around a row of ratios, many at once, the best of them the next to draw around.

A draw multiplies some ratios and parts by factors near 1 (ragged_plan: tiles around them move along), so that several change together, as
they must where a fan, a room and the ports are all nearly full. What does not fit, or what the compute alone makes too slow, is dropped
before it is counted. While drawing, a mapping's time is the sixteenth root of the sum of its times' sixteenth powers: of two equally
slow ones that with the fewer slow components is better; and energy counts a little, whatever the objective. Draws are the same for the
same question. A candidate only: no bound rests on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rackmodel.arrays import Array, Ints, Number
from rackmodel.nests.objective import NestObjective
from rackmodel.nests.searchers.effort import Effort
from rackmodel.nests.searchers.mapspace.space import Space
from rackmodel.nests.searchers.ragged.ragged_counts import RaggedCounts
from rackmodel.nests.searchers.ragged.ragged_floor import RaggedFloor
from rackmodel.nests.searchers.ragged.ragged_plan import RaggedPlan, firsts, mixed, some_of
from rackmodel.once import once

DRAWN, COUNTED, STALLED = 3000, 500, 3  # rows drawn, of which counted, in a turn; turns without better ones until it ends
WIDTHS, SHARES = (0.1, 0.3, 0.6), (0.1, 0.25, 0.5)  # of the logarithm of a factor; of the numbers that change
TOGETHER, NUMBERS = 4000, 1000  # rows counted together; numbers of a row at most
LARGEST = 5.0  # logarithm of a ratio that is drawn anywhere, at most
POWER, TILT = 16, 0.1  # of the times while drawing; of its energy, over a usual one's


Key = tuple[str, tuple[tuple[int, ...], ...], bytes]  # an objective, the orders of a plan, a row


@dataclass(frozen=True)
class Drawn:
    """A row of a plan, its key and the key that it was drawn by."""

    plan: RaggedPlan
    row: Ints
    key: float
    near: float

    @classmethod
    def of(cls, plan: RaggedPlan, rows: Ints, keys: tuple[Array, Array], number: int) -> Drawn:
        """One of some rows. keys: of all, and those that they are drawn by."""
        return cls(plan, rows[number], float(keys[0][number]), float(keys[1][number]))


class Draws:
    """Draws under one objective. idle: joules of every mapping at least · scale: joules of a usual one · cells: rows counted so far ·
    small: tiles as small as their pieces allow, which leaves room to others; else whole leaves, parts and tiles · ends: where steps from a
    mapping ended · best: of these, to begin at again."""

    def __init__(self, objective: NestObjective, idle: float, scale: float) -> None:
        self.objective, self.idle, self.scale, self.cells = objective, idle, max(scale, 1e-300), 0
        self.random = np.random.default_rng(0)
        self.mix = self.random.integers(1, 2**62, size=NUMBERS)  # of a row's numbers: rows that mix alike are the same
        self.timed, self.small = not objective.energy_only, True
        self.ends: dict[Key, Drawn] = {}
        self.best: list[Drawn] = []
        self.plans: dict[tuple[tuple[int, ...], ...], RaggedPlan] = {}

    def plan(self, space: Space, orders: tuple[tuple[int, ...], ...]) -> RaggedPlan:
        """The rows of a choice of orders, from level 1 on: the same every time."""
        return once(self.plans, orders, lambda: RaggedPlan(space, orders))

    def at(self, plan: RaggedPlan, row: Ints) -> Drawn | None:
        """One row; None where it does not fit."""
        rows = row[None]
        return Drawn.of(plan, rows, self.keys(plan, rows), 0) if plan.fits(rows)[0] else None

    def again(self, one: Drawn, orders: tuple[tuple[int, ...], ...]) -> Drawn | None:
        """The tiles and parts of a mapping in other orders; None where they do not fit."""
        plan = self.plan(one.plan.space, orders)
        return self.at(plan, plan.row_of(one.plan, one.row))

    def near(self, plan: RaggedPlan, ratios: Array) -> Drawn | None:
        """The best that is drawn around ratios that are real numbers; None where none of them fits."""
        return self._nearest(plan, self._rows(plan, ratios, np.inf, np.inf))

    def anywhere(self, plan: RaggedPlan) -> Drawn | None:
        """The best of one turn's draws anywhere: ratios are drawn by their logarithms, which of them are large as well."""
        shape = DRAWN, len(plan.tiles) + len(plan.parts)
        ratios = np.exp(LARGEST * self.random.random(shape) * self.random.random((DRAWN, 1))).astype(np.int64)
        rows, _ = self.worth(plan, ratios, np.inf, np.zeros(DRAWN, dtype=np.int64))
        return self._nearest(plan, rows)

    def _nearest(self, plan: RaggedPlan, rows: Ints) -> Drawn | None:
        """The best of some rows by the key that they are drawn by; None of none."""
        if not len(rows):
            return None
        keys, near = self.keys(plan, rows)
        return Drawn.of(plan, rows, (keys, near), int(np.argmin(near)))

    def around(self, start: Drawn, turns: int, effort: Effort) -> Drawn:
        """The best that is found in so many turns."""
        now, best, stalled = start, start, 0
        for _ in range(turns):
            if effort.over or stalled >= STALLED:
                break
            rows = self._rows(now.plan, now.plan.ratios_of(now.row), best.key, now.near)
            stalled += 1
            if not len(rows):
                continue
            keys, near = self.keys(now.plan, rows)
            i, j = int(np.argmin(keys)), int(np.argmin(near))
            if keys[i] < best.key:
                best = Drawn.of(now.plan, rows, (keys, near), i)
            if near[j] < now.near:
                now, stalled = Drawn.of(now.plan, rows, (keys, near), j), 0
        return self.tidy(best)

    def several(self, start: Drawn, near: float, most: int) -> list[Drawn]:
        """The best of one turn's draws around a mapping, none of a nearer key than that."""
        rows = self._rows(start.plan, start.plan.ratios_of(start.row), np.inf, near)
        if not len(rows):
            return []
        keys, nears = self.keys(start.plan, rows)
        order = [i for i in np.argsort(nears, kind="stable")[:most].tolist() if nears[i] <= near]
        return [Drawn.of(start.plan, rows, (keys, nears), i) for i in order]

    def worth(self, plan: RaggedPlan, ratios: Ints, most: Number, of: Ints, *, loops: bool = False) -> tuple[Ints, Ints]:
        """(rows of ratios, each once, that fit and are not too slow by their compute alone; whose each is). most: of each · of: whose ·
        loops: they are not ratios but loops around tiles."""
        least = self.objective.key(np.full(len(ratios), self.idle), plan.seconds(ratios))[0]
        fast = plan.laid_out(ratios) & (least <= most)
        rows, of = (plan.looped if loops else plan.rows_of)(some_of(ratios, fast)), of[fast]
        rows = plan.shrunk(rows) if self.small and not loops else rows
        on = firsts(mixed(rows, range(rows.shape[1]), self.mix) + of * self.mix[-1])
        rows, of = some_of(rows, on), of[on]
        fit = plan.roomy(rows)
        return some_of(rows, fit), of[fit]

    def _rows(self, plan: RaggedPlan, ratios: Array, most: float, near: float) -> Ints:
        random = self.random
        shape = DRAWN, len(ratios)
        on = random.random(shape) < random.choice(SHARES, size=(DRAWN, 1))
        factors = np.where(on, random.normal(0.0, 1.0, shape) * random.choice(WIDTHS, size=(DRAWN, 1)), 0.0)
        whole = np.maximum(1, np.floor(ratios * np.exp(factors) + random.random(shape))).astype(np.int64)
        rows, _ = self.worth(plan, whole, max(most, near), np.zeros(DRAWN, dtype=np.int64))
        return rows if len(rows) <= COUNTED else some_of(rows, np.sort(random.permutation(len(rows))[:COUNTED]))

    def keys(self, plan: RaggedPlan, rows: Ints) -> tuple[Array, Array]:
        """([rows] primary keys, [rows] keys they are drawn by)."""
        several = [self._keys(plan, rows[i : i + TOGETHER]) for i in range(0, len(rows), TOGETHER)]
        if len(several) == 1:
            return several[0]
        keys, nears = (np.concatenate([np.zeros(0), *(one[k] for one in several)]) for k in (0, 1))
        return keys, nears

    def _keys(self, plan: RaggedPlan, rows: Ints) -> tuple[Array, Array]:
        """([rows] primary keys, [rows] keys they are drawn by)."""
        if not len(rows):
            return np.zeros(0), np.zeros(0)
        self.cells += len(rows)
        energy, times = RaggedCounts(plan, rows).cost(self.timed)
        if not self.timed:
            return np.asarray(self.objective.key(energy, 0.0)[0]), np.asarray(self.objective.key(energy, 0.0)[0])
        return self._keyed(energy, times)

    def better(self, plan: RaggedPlan, rows: Ints, keys: Array, nears: Array) -> tuple[Ints, Array, Array]:
        """(numbers of rows, their keys, keys they are drawn by): all rows that have a lower one of either than theirs of keys, nears. What
        their tiles alone cost leaves most of the others out."""
        on = np.arange(len(rows))
        if self.timed:
            floor = RaggedFloor(plan, rows)
            least = self._keyed(floor.joules(), [floor.seconds()])
            on = np.flatnonzero((least[0] < keys) | (least[1] < nears))
        self.cells += len(rows) - len(on)
        return on, *self.keys(plan, rows[on])

    def _keyed(self, energy: Number, times: Sequence[Array]) -> tuple[Array, Array]:
        """([rows] keys, [rows] keys they are drawn by)."""
        slowest = np.maximum(np.max(times, axis=0), 1e-300)
        near = slowest * sum((t / slowest) ** POWER for t in times) ** (1 / POWER)
        tilted = 1 + TILT * energy / self.scale
        return np.asarray(self.objective.key(energy, slowest)[0]), np.asarray(self.objective.key(energy, near)[0] * tilted)

    def tidy(self, best: Drawn) -> Drawn:
        """The same with as few parts as do: those that never work are not laid out. Columns of parts are counted together, and those after
        one that has changed once more."""
        q = len(best.plan.tiles)
        while q < len(best.row):
            fewer = [(p, parts) for p in range(q, len(best.row)) for parts in range(1, min(int(best.row[p]), COUNTED))]
            if not fewer:
                break
            rows = np.repeat(best.row[None], len(fewer), axis=0)
            column, parts = np.array(fewer).T
            rows[np.arange(len(rows)), column] = parts
            keys, near = self.keys(best.plan, rows)
            same = np.flatnonzero(keys <= best.key)
            if not len(same):
                break
            i = int(same[0])
            best, q = Drawn.of(best.plan, rows, (keys, near), i), int(column[i]) + 1
        return best
