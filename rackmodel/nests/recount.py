"""From cost tables back to mappings: re-minimise at the chosen cells, top down.

A Path is what was chosen so far. `best_path` follows one optimum; `tied_vectors` lists the spatial vectors of every
optimum. `build_mapping` turns a path into a NestMapping in the original ranks; it is always recounted afterwards.
"""

from dataclasses import dataclass

import numpy as np

from rackmodel.errors import InfeasibleError
from rackmodel.nests.lattice import split_factor
from rackmodel.nests.mapping import LevelMapping, NestMapping, StorageNode
from rackmodel.nests.prices import start

TIE = 1e-12  # relative difference below which two prices are equal


@dataclass(frozen=True)
class Step:
    """One level's choice: vector number of the fanout above it, tensor order, tile sizes of each node."""

    vector: int
    order: tuple[int, ...]
    tiles: tuple[tuple[int, ...], ...]


def top(space) -> tuple[int, ...]:
    return tuple(a.top for a in space.axes)


def optimum(table) -> float:
    """Least price of the whole nest without the MACs; InfeasibleError where nothing fits."""
    space, state = table.space, start(len(table.space.tensors), table.space.depth)
    key = ("optimum", table.suffix[1])
    if key not in table.values:
        if space.depth == 1:
            best = float(table.value(1, state)[clamped(space, 1, top(space))])
        else:
            best = min((float(total.min()) for *_, total in table.options(1, state, top(space))), default=np.inf)
        table.values[key] = best
    return table.values[key]


def clamped(space, level: int, x: tuple[int, ...]) -> tuple[int, ...]:
    """Cell of the level's table for tile x."""
    return tuple(i if box is axis else int(axis.clamp(box)[i]) for i, axis, box in zip(x, space.axes, space.boxes[level], strict=True))


def tiles_at(plan, cell, entry) -> tuple[tuple[int, ...], ...]:
    """Tile sizes of every rank at each node, for one joint cell."""
    space = plan.space
    return tuple(
        tuple(
            int(space.axes[r].tile[entry[r]]) if v == 0 else int(plan.axis[plan.position[r, v]].tile[cell[plan.position[r, v]]])
            for r, v in enumerate(plan.versions[j])
        )
        for j in range(len(plan.order))
    )


def exit_tile(plan, cell, entry) -> tuple[int, ...]:
    """Tile numbers (full axes) below the last node."""
    tiles = []
    for r, v in enumerate(plan.exit):
        i = plan.position.get((r, v))
        tiles.append(int(entry[r]) if v == 0 else plan.space.axes[r].index[int(plan.axis[i].tile[cell[i]])])
    return tuple(tiles)


def best_path(table, x=None) -> list[Step]:
    """Steps of one optimal mapping; the first met in the fixed order of vectors, orders and tiles."""
    space, state = table.space, start(len(table.space.tensors), table.space.depth)
    x, steps = x or top(space), []
    for level in range(1, space.depth):
        best: tuple = (np.inf,)
        for picks, plan, below, entry, _, total in table.options(level, state, x):
            flat = int(total.argmin())
            if total.flat[flat] < best[0] * (1 - TIE) if best[0] < np.inf else total.flat[flat] < np.inf:
                s, *cell = np.unravel_index(flat, total.shape)
                best = (total.flat[flat], picks[s], plan, below, entry[s], tuple(cell))
        if best[0] == np.inf:
            raise InfeasibleError("no mapping fits", resource=space.machine.levels[level].name)
        _, vector, plan, state, entry, cell = best
        steps.append(Step(int(vector), plan.order, tiles_at(plan, cell, entry)))
        x = exit_tile(plan, cell, entry)
    return [*steps, Step(min(leaf_vectors(table, state, x))[1], (), ())]


def leaf_vectors(table, state, x) -> list[tuple[float, int]]:
    """(price, vector number) of every spatial vector of the innermost fanout that tile x allows."""
    space = table.space
    price = table.leaf_price(state)
    found = []
    for i in table.picked(space.depth - 1):
        if all(axis.allows(x[r], int(space.vectors[-1][i, r]), space.leaf[r]) for r, axis in enumerate(space.axes)):
            found.append((float(price[i]), int(i)))
    return found


def tied_vectors(table) -> list[tuple[int, ...]]:
    """Spatial vectors (one number a fanout) of every mapping whose price is the optimum, within TIE."""
    space = table.space
    goal = optimum(table)
    slack = TIE * abs(goal) if np.isfinite(goal) else 0.0
    labels: dict = {((), start(len(space.tensors), space.depth), top(space)): 0.0}
    for level in range(1, space.depth):
        new: dict = {}
        for (path, state, x), spent in labels.items():
            for picks, plan, below, entry, own, total in table.options(level, state, x):
                for s, *cell in zip(*np.nonzero(total <= goal - spent + slack), strict=True):
                    x2 = exit_tile(plan, cell, entry[s])
                    key = ((*path, int(picks[s])), below, x2)
                    cost = spent + float(np.broadcast_to(own, total.shape)[(s, *cell)])
                    new[key] = min(new.get(key, np.inf), cost)
        labels = new
    found = {
        (*path, i)
        for (path, state, x), spent in labels.items()
        for price, i in leaf_vectors(table, state, x)
        if spent + price <= goal + slack
    }
    return sorted(found)


def build_mapping(space, steps: list[Step], above=()) -> NestMapping:
    """NestMapping of the steps; merged ranks are split prime by prime, outer → inner.

    above: [(tensor number or None, merged tile)] nodes of level 1 that lie above the steps' own (residents; None is a
    node of another einsum, which only cuts).
    """
    chain = Unmerge(space)
    levels = []
    for i, v in enumerate(space.machine.levels):
        if i == 0:
            nodes = tuple(StorageNode(t.name, dict(space.original.sizes)) for t in space.tensors)
        else:
            step = steps[i - 1]
            cut = [(t, chain.cut(tile)) for t, tile in above] if i == 1 else []
            nodes = tuple(StorageNode(space.tensors[t].name, tile) for t, tile in cut if t is not None)
            nodes += tuple(StorageNode(space.tensors[t].name, chain.cut(tile)) for t, tile in zip(step.order, step.tiles, strict=True))
        _, x, y = space.spatial[i][steps[i].vector]
        entry = entered(space, steps, i + 1)
        if i or not above:
            chain.cut(tuple(e * int(p) for e, p in zip(entry, space.vectors[i][steps[i].vector], strict=True)))
        levels.append(LevelMapping(v.name, nodes, chain.spread(x), chain.spread(y)))
    return NestMapping(space.original.name, space.machine.name, tuple(levels))


def entered(space, steps: list[Step], level: int) -> list[int]:
    """Tile (merged ranks) that enters `level`; level = depth is the compute's leaf."""
    if level == space.depth:
        return list(space.leaf)
    step = steps[level - 1]
    if step.order:
        return list(step.tiles[0])
    inner = entered(space, steps, level + 1)
    return [e * int(p) for e, p in zip(inner, space.vectors[level][steps[level].vector], strict=True)]


class Unmerge:
    """Chain of tiles of the merged ranks → tiles of the original ranks (of a Space)."""

    def __init__(self, space):
        self.space = space
        self.now = list(space.problem.sizes.values())
        self.part = dict(space.original.sizes)

    def cut(self, tile: tuple[int, ...]) -> dict[str, int]:
        """Cut every rank to `tile`; the new tiles of the original ranks."""
        for r, name in enumerate(self.space.ranks):
            parts = self.space.groups[name]
            if len(parts) == 1:
                self.part[parts[0]] = tile[r]
            elif tile[r] != self.now[r]:
                left = {p: self.part[p] for p in parts}
                split_factor(self.now[r] // tile[r], left)
                self.part.update(left)
            self.now[r] = tile[r]
        return dict(self.part)

    def spread(self, vector: dict[str, int]) -> dict[str, int]:
        """Spatial parts of the original ranks (those above 1); the tile shrinks by them."""
        found = {}
        for name, n in vector.items():
            parts, r = self.space.groups[name], self.space.ranks.index(name)
            if n == 1:
                continue
            if len(parts) == 1:
                found[parts[0]] = n
                self.part[parts[0]] = max(1, -(-self.part[parts[0]] // n))
            else:
                left = {p: self.part[p] for p in parts}
                found.update({p: k for p, k in split_factor(n, left).items() if k > 1})
                self.part.update(left)
            self.now[r] = max(1, -(-self.now[r] // n))
        return found
