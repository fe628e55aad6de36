"""The tiles of one order of storage nodes at one level, as a joint array with one axis per choice.

Above node T_1 the loops run over ranks of T_1, above T_{j+1} over ranks of T_{j+1} that T_j lacks (lemmas L2 and L3 of
docs/nest_theory.md); a rank inside a sum of T_j (a halo) and a rank whose tile is fixed at this level may be cut again. Each
cut of rank r is a new *version* of its tile: version 0 enters the level, version v is below the v-th cut. The joint array
has one numpy axis per (rank, version >= 1); eliminating the last version of a rank takes a minimum over the tiles that nest.
A version that no price sees is kept no finer than the next level's table can tell apart (boxed).
"""

from functools import cached_property, reduce
from math import prod

import numpy as np

from rackmodel.arrays import AnyArray, Array, Bools, Ints
from rackmodel.nests.searchers.mapspace.space import Space
from rackmodel.nests.searchers.mapspace.tile_axis import TileAxis


def node_cuts(space: Space, level: int, order: tuple[int, ...]) -> list[list[int]]:
    """Per node of an order: the ranks that are cut directly above it."""
    fixed = {(r, t) for r, t, _ in space.fixed(level)}
    cuts = []
    for last, t in zip((None, *order), order, strict=False):
        cuts.append(
            [
                r
                for r in range(len(space.ranks))
                if space.has[t, r]
                and (last is None or not space.has[last, r] or space.affine[last, r] or (r, last) in fixed or (r, t) in fixed)
            ]
        )
    return cuts


def node_versions(space: Space, level: int, order: tuple[int, ...]) -> tuple[list[list[int]], list[int]]:
    """(per node the version of every rank's tile, the versions below the last node)."""
    now, versions = [0] * len(space.ranks), []
    for cut in node_cuts(space, level, order):
        now = [v + (r in cut) for r, v in enumerate(now)]
        versions.append(now)
    return versions, now


class OrderPlan:
    """Versions, axes, legality mask and word counts of the order `order` (tensor numbers) at `level` of a Space."""

    def __init__(self, space: Space, level: int, order: tuple[int, ...]) -> None:
        self.space, self.level, self.order = space, level, order
        ranks = range(len(space.ranks))
        fixed = {(r, t): size for r, t, size in space.fixed(level)}
        self.cuts = node_cuts(space, level, order)  # per node: ranks cut directly above it
        self.versions, self.exit = node_versions(space, level, order)  # per node: version of every rank
        now = self.exit
        self.axes_of = [(r, v) for r in ranks for v in range(1, max(now[r], 0) + 1)] + [(r, 0) for r in ranks if now[r] == 0]
        self.axes_of.sort()
        self.position = {rv: i for i, rv in enumerate(self.axes_of)}
        self.priced = {(r, self.versions[j][r]) for j, t in enumerate(order) for r in ranks if not space.has[t, r] or space.affine[t, r]}
        self.axis = self._choose_axes({r for r, _ in fixed})
        self.fixed = fixed
        self.words: dict[int, Array] = {}  # of a node, where every tile may enter; filled as prices ask

    @cached_property
    def left(self) -> tuple[list[Ints], list[int]]:
        """(per rank, cells of the next level's table that the exit tiles stand for; their shape on the joint axes)."""
        box, ranks = self.space.boxes[self.level + 1], range(len(self.space.ranks))
        index, shape = [], [1] * len(self.axes_of)
        for r in ranks:
            i = self.position[r, self.exit[r]]
            index.append(np.arange(len(self.axis[i])) if self.axis[i] is box[r] else self.axis[i].clamp(box[r]))
            shape[i] = len(index[r])
        return index, shape

    @property
    def cells(self) -> int:
        """Cells of the joint array."""
        return prod(len(a) for a in self.axis)

    @cached_property
    def mask(self) -> Bools | None:
        """Where tiles nest, fit the capacity and obey the fixed tiles."""
        return self._mask(self.fixed)

    def _choose_axes(self, pinned: set[int]) -> list[TileAxis]:
        """The tile axis of every joint axis: boxed where nothing in the level prices it or a finer version."""
        inner = self.space.boxes[self.level + 1]
        chosen: dict[int, TileAxis] = {}
        for i in reversed(range(len(self.axes_of))):
            r, v = self.axes_of[i]
            nxt = self.position.get((r, v + 1))
            boxed = (r, v) not in self.priced and r not in pinned and (nxt is None or chosen[nxt] is inner[r])
            chosen[i] = inner[r] if boxed else self.space.axes[r]
        return [chosen[i] for i in range(len(self.axes_of))]

    def shaped(self, values: AnyArray, i: int) -> AnyArray:
        """[n] values as an array along joint axis i."""
        shape = [1] * len(self.axes_of)
        shape[i] = len(values)
        return values.reshape(shape)

    def node_axis(self, j: int, r: int) -> int:
        """Joint axis of rank r as node j sees it; version 0 shares the axis of version 1."""
        v = self.versions[j][r]
        return self.position[r, v] if (r, v) in self.position else self.position[r, 1]

    def _mask(self, fixed: dict[tuple[int, int | None], int]) -> Bools | None:
        """Joint boolean array: tiles nest, fit the capacity and obey the fixed tiles."""
        capacity = self.space.capacity(self.level)
        parts: list[Bools] = []
        for (r, n), i in self.position.items():
            if (r, n + 1) in self.position and n >= 1:
                j = self.position[r, n + 1]
                outer, inner = self.axis[i], self.axis[j]
                nest = outer.below_of(inner) if inner is not outer else outer.below
                shape = [1] * len(self.axes_of)
                shape[i], shape[j] = len(outer), len(inner)
                parts.append(nest.T.reshape(shape) if i < j else nest.reshape(shape))
        for (r, t), size in fixed.items():
            for j, node in enumerate(self.order):
                if self.space.has[node, r] and t in (None, node):
                    i = self.position[r, self.versions[j][r]]
                    parts.append(self.shaped(self.axis[i].tile == size, i))
        if capacity is not None:
            parts.append(self._footprint() <= capacity)
        if not parts:
            return None
        return np.broadcast_to(reduce(np.logical_and, parts), [len(a) for a in self.axis])

    def _footprint(self) -> Array:
        """Joint array of bits used by the level's tiles: sum of buffers x bits x words of each node's tile."""
        v, space = self.space.machine.levels[self.level], self.space
        total: Array = np.zeros([1] * len(self.axes_of))
        for j, t in enumerate(self.order):
            low = {r: self._low(r, self.versions[j][r]) for r in range(len(space.ranks)) if space.has[t, r]}
            total = total + space.terms[t].room(low.__getitem__, v.buffers * v.bits(space.tensors[t]))
        return total

    def _low(self, r: int, version: int) -> Array:
        """Size that a footprint counts for a version of rank r, along its joint axis."""
        i = self.position[r, version]
        return self.shaped(self.axis[i].low, i).astype(float)
