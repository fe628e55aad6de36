"""Pareto fronts: the points that no other beats or equals in every one of some figures.

Bounds never rule each other out: bound(A) <= bound(B) does not give exact(A) <= exact(B). A point is left out only where an exact point
is as good as its bounds. The points whose bounds are the front of the bounds are run first, over the whole space, since their exact
figures leave most others out; then the rest, those of least bounds first, until none is left. Free layouts that were
listed are looked at in the same way: those of least bounds are priced, as long as one may be of the front.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rackmodel.arrays import Array, Bools, Ints
from rackmodel.errors import InputError
from rackmodel.mapper.blocks import Block, Blocks
from rackmodel.mapper.free_layouts import TOGETHER as LAYOUTS_TOGETHER
from rackmodel.mapper.free_layouts import FreeLayouts
from rackmodel.mapper.limits import Limits
from rackmodel.mapper.objective import Objective
from rackmodel.mapper.points import Point
from rackmodel.model.mapping import BLENDS
from rackmodel.watch import Watch

Timed = Callable[[Sequence[Point]], list[Point]]
NUMBER = 3  # of the block, in a point's order
TOGETHER = 256  # points run between two looks at what is left
SAME = 1e-11  # relative: figures this close are equal; a bound is that much below what it bounds
PIECE = 4096  # points compared at once
FRONTS = ("latency", "energy", "memory", "carbon", *BLENDS, "money")
"""What a front may be of."""


def front_figures(names: Sequence[str]) -> Sequence[str]:
    """Figures of a front. Raises InputError for an unknown one, and for one that is there twice."""
    for name in names:
        if name not in FRONTS:
            raise InputError(f"no figure called '{name}' for a front", path="--pareto", known=FRONTS, given=name)
    if len(set(names)) < len(names):
        raise InputError(f"'{','.join(names)}' has a figure twice", path="--pareto")
    return names


@dataclass(frozen=True)
class Open:
    """Points that may be of the front. values: [figures, points] their bounds · order: [points, 5] as `Point.order` · flat: [points] where
    they are in their block · blocks: by number."""

    values: Array
    order: Ints
    flat: Ints
    blocks: dict[int, Block]

    def only(self, keep: Bools | Ints) -> Open:
        """Some of them."""
        order = self.order[keep]
        blocks = {int(number): self.blocks[int(number)] for number in np.unique(order[:, NUMBER])}
        return Open(self.values[:, keep], order, self.flat[keep], blocks)

    def without(self, run: Sequence[Point]) -> Open:
        """Those that were not run."""
        known = {point.order for point in run}
        return self.only(np.array([tuple(order) not in known for order in self.order.tolist()], dtype=bool))

    def points(self, space: Blocks) -> list[Point]:
        """They, their figures bounds."""
        places = zip(self.order[:, NUMBER].tolist(), self.flat.tolist(), self.values[0].tolist(), strict=True)
        return [space.point(self.blocks[block], flat, value) for block, flat, value in places]


def pareto(space: Blocks, figures: Sequence[Objective], timed: Timed, watch: Watch) -> tuple[list[Point], bool]:
    """(exact points of the front by ascending first figure, whether none is missing). timed: runs points, those that a limit refuses left
    out."""
    hopes = _Hopes(space, figures)
    least = hopes.least().points(space)
    kept = _front(timed(least), figures)
    hopes.best = exact_values(kept, figures)
    left = hopes.all().without(least)
    while left.flat.size and not watch.over():
        first = skyline(left.values)[:TOGETHER]
        kept = _front([*kept, *timed(left.only(first).points(space))], figures)
        rest = np.ones(left.flat.size, dtype=bool)
        rest[first] = False
        left = left.only(rest & ~beaten(left.values, exact_values(kept, figures)))
        watch.say(f"front: {len(kept)} points, {left.flat.size} open")
    return _sorted(kept, figures), not left.flat.size


def grown(space: Blocks, figures: Sequence[Objective], timed: Timed, front: Sequence[Point], first: int) -> list[Point]:
    """A front with the points of the groups from `first` on."""
    hopes = _Hopes(space, figures, first)
    hopes.best = exact_values(front, figures)
    return _sorted(_front([*front, *timed(hopes.all().points(space))], figures), figures)


def first_hopes(free: FreeLayouts, limits: Limits, front: Sequence[Point], figures: Sequence[Objective]) -> Ints:
    """The layouts to price next: of those that no point of the front is as good as, the front by their bounds, then the next."""
    known = exact_values(front, figures)

    def order(least: Array) -> Array:
        seconds, joules, memory = least
        open_ = limits.open(seconds, joules)
        values = np.stack([np.asarray(figure.value(seconds, joules, memory)) for figure in figures])
        open_[open_] = ~beaten(values[:, open_], known)
        return _depths(values, open_)

    return free.first(order, forget=True)


def _depths(values: Array, open_: Bools) -> Array:
    """How many fronts lie before a point, as far as that matters; inf where it is not open."""
    found = np.full(values.shape[1], np.inf)
    rest, depth, many = np.flatnonzero(open_), 0.0, 0
    while rest.size and many < LAYOUTS_TOGETHER:
        front = skyline(values[:, rest])
        found[rest[front]] = depth
        many, depth = many + len(front), depth + 1
        rest = np.delete(rest, front)
    found[rest] = depth
    return found


def _sorted(points: Sequence[Point], figures: Sequence[Objective]) -> list[Point]:
    return sorted(points, key=lambda point: (*(point.value(f) for f in figures), point.order))


class _Hopes:
    """The points of a space that may keep the limits and whose bounds nothing known beats. best: [figures, points] what is known · first:
    the group that it begins with."""

    def __init__(self, space: Blocks, figures: Sequence[Objective], first: int = 0) -> None:
        self.space, self.figures, self.first = space, figures, first
        self.best = np.zeros((len(figures), 0))

    def least(self) -> Open:
        """The points whose bounds no other's bounds beat."""
        found, parts, many = self._joined([]), list[Open](), 0
        for block in self.space.walk(self._wanted):
            parts.append(self._of(block))
            many += parts[-1].flat.size
            if many > TOGETHER:
                found, parts, many = self._best_of([found, *parts]), [], 0
        return self._best_of([found, *parts])

    def _best_of(self, parts: Sequence[Open]) -> Open:
        """The points of all parts whose bounds no other's beat; nothing that those beat is looked at from now on."""
        found = self._joined(parts)
        found = found.only(skyline(found.values))
        self.best = found.values
        return found

    def all(self) -> Open:
        """All of them."""
        return self._joined([self._of(block) for block in self.space.walk(self._wanted, first=self.first)])

    def _wanted(self, seconds: Array, joules: Array, memory: Array) -> Bools:
        """Whether points of such bounds are among them."""
        seconds, joules, memory = np.broadcast_arrays(*self.space.limits.least(seconds, joules), memory)
        found = self.space.limits.open(seconds, joules)
        found[found] = ~beaten(self._values(seconds[found], joules[found], memory[found]), self.best)
        return found

    def _values(self, seconds: Array, joules: Array, memory: Array) -> Array:
        """[figures, points]."""
        return np.stack([np.asarray(figure.value(seconds, joules, memory)) for figure in self.figures])

    def _of(self, block: Block) -> Open:
        """Those of a block."""
        flat = np.flatnonzero(self._wanted(block.seconds, block.joules, block.memory).reshape(-1))
        least = (*self.space.limits.least(block.seconds, block.joules), block.memory)
        values = self._values(*(bound.reshape(-1)[flat] for bound in least))
        cells, overlaps = np.divmod(flat, len(self.space.overlaps))
        place = (np.full_like(flat, block.group), block.plans[cells], block.columns[cells], np.full_like(flat, block.number), overlaps)
        return Open(values, np.stack(place, axis=1), flat, {block.number: block})

    def _joined(self, parts: Sequence[Open]) -> Open:
        """Those of all parts."""
        if not parts:
            return Open(np.zeros((len(self.figures), 0)), np.zeros((0, 5), dtype=np.int64), np.zeros(0, dtype=np.int64), {})
        return Open(
            np.concatenate([part.values for part in parts], axis=1),
            np.concatenate([part.order for part in parts]),
            np.concatenate([part.flat for part in parts]),
            {number: block for part in parts for number, block in part.blocks.items()},
        )


def exact_values(points: Sequence[Point], figures: Sequence[Objective]) -> Array:
    """[figures, points]."""
    return np.array([[point.value(f) for point in points] for f in figures]).reshape(len(figures), -1)


def _front(points: Sequence[Point], figures: Sequence[Objective]) -> list[Point]:
    """Points that no other beats or equals in every figure; of equals the first in the file's order."""
    ranked = sorted(points, key=lambda point: (*(float(f"{point.value(f):.11e}") for f in figures), point.order))
    kept: list[Point] = []
    best = np.zeros((len(figures), 0))
    for point in ranked:
        own = exact_values([point], figures)
        if not beaten(own, best)[0]:
            kept.append(point)
            best = np.hstack([best, own])
    return kept


def beaten(values: Array, by: Array) -> Bools:
    """[points] whether one of `by` is as good in every figure. values, by: [figures, points]."""
    found = np.zeros(values.shape[1], dtype=bool)
    for first in range(0, values.shape[1], PIECE):
        some = values[:, None, first : first + PIECE] * (1 + SAME)
        found[first : first + PIECE] = (by[:, :, None] <= some).all(axis=0).any(axis=0)
    return found


def skyline(values: Array) -> Ints:
    """Numbers of the points that no other beats or equals, by ascending first figure; of equals the first. values: [figures, points]."""
    order = np.lexsort(values[::-1])
    found: list[int] = []
    best = np.zeros((len(values), 0))
    for first in range(0, len(order), PIECE):
        some = order[first : first + PIECE]
        some = some[~beaten(values[:, some], best)]
        while some.size:  # the first in order is beaten by none after it
            found.append(int(some[0]))
            mine = values[:, some[:1]]
            best = np.hstack([best, mine])
            some = some[1:][~beaten(values[:, some[1:]], mine)]
    return np.array(found, dtype=np.int64)
