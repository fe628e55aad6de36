"""From cost tables back to the choices behind their least value: re-minimise at the chosen cells, top down.

`best_path` follows one optimum; `tied_vectors` lists the spatial vectors of every optimum. The steps become a mapping in
mapping_steps, which is always recounted afterwards.
"""

from collections.abc import Iterator

import numpy as np

from rackmodel.arrays import Ints
from rackmodel.errors import InfeasibleError
from rackmodel.nests.objective import TIE
from rackmodel.nests.searchers.mapspace.fan_state import FanState, start
from rackmodel.nests.searchers.mapspace.mapping_steps import LevelChoice, Sizes
from rackmodel.nests.searchers.mapspace.order_plan import OrderPlan
from rackmodel.nests.searchers.mapspace.space import Space
from rackmodel.nests.searchers.tables.cost_table import CostTable
from rackmodel.nests.searchers.tables.tile_options import Entries, LevelOptions, Tile, entries, every_entry_known, spelled


def top(space: Space) -> Tile:
    """The tile that is everything."""
    return tuple(a.top for a in space.axes)


def optimum(table: CostTable, x: Tile | None = None) -> float:
    """Least price of the whole nest, or of all below tile x, without the MACs; inf where nothing fits."""
    space, state = table.space, start(table.space)
    key, known = ("optimum", table.suffix[1], x), table.known(1)
    if key not in known:
        tile = x or top(space)
        if space.depth == 1:
            boxes = zip(tile, space.axes, space.boxes[1], strict=True)
            best = float(table.value(1, state)[tuple(i if box is axis else int(axis.clamp(box)[i]) for i, axis, box in boxes)])
        else:
            best = min((float(found.price.min(initial=np.inf)) for found in entries(table, 1, state, tile)), default=np.inf)
        known[key] = best
    return float(known[key])


def tiles_at(plan: OrderPlan, cell: Tile, entry: Ints) -> tuple[Sizes, ...]:
    """Tile sizes of every rank at each node, for one joint cell."""
    space = plan.space
    return tuple(
        tuple(
            int(space.axes[r].tile[entry[r]]) if v == 0 else int(plan.axis[plan.position[r, v]].tile[cell[plan.position[r, v]]])
            for r, v in enumerate(plan.versions[j])
        )
        for j in range(len(plan.order))
    )


def exit_tile(plan: OrderPlan, cell: Tile, entry: Ints) -> Tile:
    """Tile numbers (full axes) below the last node."""
    tiles = []
    for r, v in enumerate(plan.exit):
        if v == 0:
            tiles.append(int(entry[r]))
        else:
            i = plan.position[r, v]
            tiles.append(plan.space.axes[r].index[int(plan.axis[i].tile[cell[i]])])
    return tuple(tiles)


def best_path(table: CostTable, x: Tile | None = None) -> list[LevelChoice]:
    """Steps of one optimal mapping; the first met in the fixed order of vectors, orders and tiles."""
    space, state = table.space, start(table.space)
    x, steps = x or top(space), []
    for level in range(1, space.depth):
        least, found = np.inf, None
        for choices in spelled(table, level, state, _cheapest(table, level, state, x)):
            flat = int(choices.total.argmin())
            price = float(choices.total.flat[flat])
            if price < (least * (1 - TIE) if least < np.inf else least):
                s, *cell = (int(n) for n in np.unravel_index(flat, choices.total.shape))
                least, found = price, (int(choices.picks[s]), choices.plan, choices.below, choices.entry[s], tuple(cell))
        assert found is not None, "what has a price is spelled out"
        vector, plan, state, entry, cell_at = found
        steps.append(LevelChoice(vector, plan.order, tiles_at(plan, cell_at, entry)))
        x = exit_tile(plan, cell_at, entry)
    return [*steps, LevelChoice(min(leaf_vectors(table, state, x))[1], (), ())]


def _cheapest(table: CostTable, level: int, state: FanState, x: Tile) -> Entries:
    """The first vector, with its entry tile, of least price."""
    least: Entries | None = None
    among = None if every_entry_known(table, level, state, x) else table.cheapest(level, state, x)  # a table of all tiles, for one of them
    for found in entries(table, level, state, x, among):
        if not len(found.picks):
            continue
        i = int(found.price.argmin())
        if np.isfinite(found.price[i]) and (least is None or found.price[i] < least.price[0] * (1 - TIE)):
            least = Entries(found.picks[i : i + 1], found.below, found.entry[i : i + 1], found.price[i : i + 1])
    if least is None:
        raise InfeasibleError("no mapping fits", resource=table.space.machine.levels[level].name)
    return least


def leaf_vectors(table: CostTable, state: FanState, x: Tile) -> list[tuple[float, int]]:
    """(price, vector number) of every spatial vector of the innermost fanout that tile x allows."""
    space = table.space
    price = table.leaf_price(state)
    found = []
    for i in table.picked(space.depth - 1):
        if all(axis.allows(x[r], int(space.vectors[-1][i, r]), space.leaf[r]) for r, axis in enumerate(space.axes)):
            found.append((float(price[i]), int(i)))
    return found


def _within(table: CostTable, level: int, state: FanState, x: Tile, most: float) -> Iterator[LevelOptions]:
    """Choices of the vectors whose price is at most so much."""
    for found in entries(table, level, state, x):
        near = found.price <= most + TIE * abs(most)
        yield from spelled(table, level, state, Entries(found.picks[near], found.below, found.entry[near], found.price[near]))


def tied_vectors(table: CostTable) -> list[tuple[int, ...]]:
    """Spatial vectors (one number a fanout) of every mapping whose price is the optimum, within TIE."""
    space = table.space
    goal = optimum(table)
    slack = TIE * abs(goal) if np.isfinite(goal) else 0.0
    labels: dict[tuple[tuple[int, ...], FanState, Tile], float] = {((), start(space), top(space)): 0.0}
    for level in range(1, space.depth):
        new: dict[tuple[tuple[int, ...], FanState, Tile], float] = {}
        for (path, state, x), spent in labels.items():
            for choice in _within(table, level, state, x, goal - spent + slack):
                own = np.broadcast_to(choice.own, choice.total.shape)
                for s, *cell in zip(*np.nonzero(choice.total <= goal - spent + slack), strict=True):
                    x2 = exit_tile(choice.plan, tuple(cell), choice.entry[s])
                    key = ((*path, int(choice.picks[s])), choice.below, x2)
                    cost = spent + float(own[(s, *cell)])
                    new[key] = min(new.get(key, np.inf), cost)
        labels = new
    found = {
        (*path, i)
        for (path, state, x), spent in labels.items()
        for price, i in leaf_vectors(table, state, x)
        if spent + price <= goal + slack
    }
    return sorted(found)
