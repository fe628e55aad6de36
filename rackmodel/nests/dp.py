"""Dynamic programming over the tile lattice: least price of a level and all below it, for every tile it may be given.

V_l[x] = min over spatial s, order, tiles:  const(s) + sum_j coef_j(s) words_j(tiles) + V_{l+1}[exit tile],
x = tile at the parent's last node, y = x / s enters the level. The compute: V[x] = min over s | x. Levels touch only
through x (L4), so the minimum is exact. Joint arrays of tiles are reduced one version at a time (order_plan), all
spatial vectors side by side. Source: reference loop_nests, sec. 2 and 3.
"""

from math import prod

import numpy as np

from rackmodel.nests.node_prices import PricedSpace
from rackmodel.nests.order_plan import OrderPlan

CELLS = 2_000_000  # joint cells handled at once


class Table(PricedSpace):
    """Cost tables of one Space under one price."""

    # -- the recursion
    def value(self, level: int, state) -> np.ndarray:
        """V_level over the box of the level: [tiles of rank 0, tiles of rank 1, ...]; inf where nothing fits."""
        key = (level, state, self.suffix[level])
        if key not in self.values:
            self.values[key] = self._leaf(state) if level == self.space.depth else self._memory(level, state)
        return self.values[key]

    def _leaf(self, state) -> np.ndarray:
        space, box = self.space, self.space.boxes[self.space.depth]
        price, picks = self.leaf_price(state), self.picked(space.depth - 1)
        table = np.full([len(a) for a in box], np.inf)
        if space.aligned:
            for i in picks:
                cell = tuple(box[r].index[int(space.vectors[-1][i, r]) * space.leaf[r]] for r in range(len(box)))
                table[cell] = min(table[cell], price[i])
            for r, axis in enumerate(box):
                table = axis.zeta(table, r)
            return table
        for i in picks:
            fits = np.ones([1] * len(box), dtype=bool)
            for r, axis in enumerate(box):
                fits = fits & _along(space.axes[r].holds(int(space.vectors[-1][i, r]), space.leaf[r])[: len(axis)], r, len(box))
            np.minimum(table, np.where(fits, price[i], np.inf), out=table)
        return table

    def _memory(self, level: int, state) -> np.ndarray:
        space = self.space
        shape = [len(a) for a in space.axes]
        best = np.full(shape, np.inf)
        credit = self.coefficients(level, state)[2]
        size = prod(shape)
        for states, picks in self._by_state(level, state):
            heads = self._heads(level, states)
            step = max(1, CELLS // size)
            for i in range(0, len(picks), step):
                part = picks[i : i + step]
                entered = self._entered(level, state, heads, part)
                entered -= credit[part].reshape((-1,) + (1,) * len(shape))
                self.counter[0] += entered.size
                self._assemble(level, best, entered, part)
        return best

    def _by_state(self, level: int, state):
        """Spatial vectors grouped by the state they leave below the level, in order."""
        states = self.next_states(level, state)
        groups: dict = {}
        for i in self.picked(level - 1):
            groups.setdefault(states[i], []).append(i)
        return [(s, np.array(g)) for s, g in groups.items()]

    def _heads(self, level: int, state):
        """Per order: (plan, joint array after every unpriced version is eliminated, ranks so settled)."""
        inner = self.value(level + 1, state)
        heads = []
        for plan in self.plans(level):
            joint = self.exits(plan, inner)
            if plan.mask is not None:
                joint = np.where(plan.mask, joint, np.inf)
            done = set()
            for i in reversed(range(len(plan.axes_of))):
                r, v = plan.axes_of[i]
                later = (r, v + 1) in plan.position and (r, v + 1) not in done
                if v and (r, v) not in plan.priced and not later:
                    joint = self._eliminate(plan, joint, i, 0)
                    done.add((r, v))
            self.counter[0] += joint.size
            heads.append((plan, joint, done))
        return heads

    def exits(self, plan: OrderPlan, inner: np.ndarray) -> np.ndarray:
        """Joint array of V_{level+1} at the exit tile."""
        box = self.space.boxes[plan.level + 1]
        index = []
        for r in range(len(self.space.ranks)):
            axis = plan.axis[plan.position[r, plan.exit[r]]]
            index.append(np.arange(len(axis)) if axis is box[r] else axis.clamp(box[r]))
        gathered = inner[np.ix_(*index)]
        shape = [1] * len(plan.axes_of)
        for r in range(len(self.space.ranks)):
            shape[plan.position[r, plan.exit[r]]] = len(index[r])
        full = [len(a) for a in plan.axis]
        return np.broadcast_to(gathered.reshape(shape), full)

    @staticmethod
    def _eliminate(plan: OrderPlan, joint: np.ndarray, i: int, lead: int) -> np.ndarray:
        """Take the minimum over the version on joint axis i, onto the version above it (onto y for the first)."""
        v = plan.axes_of[i][1]
        if v == 1:
            return plan.axis[i].zeta(joint, i + lead)
        return joint.min(axis=i + lead, keepdims=True)

    def _entered(self, level: int, state, heads, picks) -> np.ndarray:
        """[S, y of every rank] least price of the level and below for tile y entering it, spatial vectors `picks`."""
        best = None
        groups: dict = {}
        for plan, head, done in heads:
            joint = head[None]
            halo = bool(plan.order) and bool(self.space.affine[plan.order[0]].any())
            for j in reversed(range(len(plan.order))):
                if j or halo:
                    joint = self._add(plan, joint, j, state, picks)
                for r in plan.cuts[j]:
                    if (r, plan.versions[j][r]) not in done:
                        joint = self._eliminate(plan, joint, plan.position[r, plan.versions[j][r]], 1)
            first = plan.order[0] if plan.order and not halo else None
            flat = self._squeeze(plan, joint)
            groups.setdefault((first, flat.shape), []).append((plan, flat))
        for (first, _), members in groups.items():
            plan, total = members[0]
            for _, other in members[1:]:
                total = np.minimum(total, other)
            total = self._expand(plan, total)
            if first is not None:
                total = total + self._first_price(plan, state, picks)
            if best is None:
                best = np.broadcast_to(total, (len(picks), *tuple(len(a) for a in self.space.axes))).copy()
            else:
                np.minimum(best, total, out=best)
        if best is None:
            return np.full((len(picks), *(len(a) for a in self.space.axes)), np.inf)
        return best

    # -- one given tile: every choice spelled out
    def options(self, level: int, state, x: tuple[int, ...]):
        """Every choice at memory `level` given tile x (tile numbers): yields (vector numbers, plan, next state, entry
        [S, ranks], price [S, joint] of this level alone, the same with V below added); inf where illegal."""
        credit = self.coefficients(level, state)[2]
        for below, picks in self._by_state(level, state):
            picks, entry = self._entries(level, state, below, x, picks)
            if not len(picks):
                continue
            inner = self.value(level + 1, below)
            for plan in self.plans(level):
                rest = self.exits(plan, inner)
                if plan.mask is not None:
                    rest = np.where(plan.mask, rest, np.inf)
                step = max(1, CELLS // rest.size)
                for i in range(0, len(picks), step):
                    part, y = picks[i : i + step], entry[i : i + step]
                    own = -credit[part].reshape((-1,) + (1,) * rest.ndim) + np.zeros((1,) * (rest.ndim + 1))
                    for j in range(len(plan.order)):
                        own = own + self.node_price(plan, j, state, part, y)
                    own = np.where(self._nests(plan, y), own, np.inf)
                    self.counter[0] += own.size
                    yield part, plan, below, y, own, own + rest[None]

    def _nests(self, plan: OrderPlan, entry: np.ndarray) -> np.ndarray:
        """[S, joint] True where the first version of every rank nests in the tile that enters."""
        legal = np.ones((1,) * (len(plan.axes_of) + 1), dtype=bool)
        for i, (r, v) in enumerate(plan.axes_of):
            if v > 1:
                continue
            outer, inner = self.space.axes[r], plan.axis[i]
            if v == 0:
                target = entry[:, r] if inner is outer else outer.clamp(inner)[entry[:, r]]
                row = np.arange(len(inner))[None, :] == target[:, None]
            else:
                row = (outer.below if inner is outer else outer.below_of(inner))[:, entry[:, r]].T
            shape = [len(entry)] + [len(inner) if k == i else 1 for k in range(len(plan.axes_of))]
            legal = legal & row.reshape(shape)
        return legal

    def _entries(self, level: int, state, below, x: tuple[int, ...], picks: np.ndarray):
        """(vector numbers, [S, ranks] number of the tile x / s); ceil: the best entry tile of the best vector."""
        vectors = self.space.vectors[level - 1][picks]
        if not self.space.aligned:
            return self._best_entry(level, state, below, x, picks)
        entry = np.empty(vectors.shape, dtype=np.int64)
        for r, axis in enumerate(self.space.axes):
            size = int(axis.tile[x[r]])
            look = {int(v): axis.index[size // int(v)] if size % v == 0 else -1 for v in np.unique(vectors[:, r])}
            entry[:, r] = [look[int(v)] for v in vectors[:, r]]
        legal = (entry >= 0).all(axis=1)
        return picks[legal], entry[legal]

    def _best_entry(self, level: int, state, below, x, picks: np.ndarray):
        """One vector and entry tile of least price; empty where nothing fits."""
        heads = self._heads(level, below)
        best: tuple = (np.inf, None, None)
        credit = self.coefficients(level, state)[2]
        step = max(1, CELLS // prod(len(a) for a in self.space.axes))
        for k in range(0, len(picks), step):
            part = picks[k : k + step]
            entered = self._entered(level, state, heads, part)
            for row, i in enumerate(part):
                ys = [a.entries(x[r], int(self.space.vectors[level - 1][i, r])) for r, a in enumerate(self.space.axes)]
                if all(ys):
                    block = entered[row][np.ix_(*ys)] - credit[i]
                    at = np.unravel_index(int(block.argmin()), block.shape)
                    if block[at] < best[0]:
                        best = (block[at], i, [y[a] for y, a in zip(ys, at, strict=True)])
        if best[1] is None:
            return picks[:0], np.empty((0, len(self.space.axes)), dtype=np.int64)
        return np.array([best[1]]), np.array([best[2]])

    def _add(self, plan, joint, j, state, picks):
        """joint + price of node j; a boxed y axis that the price sees is widened first."""
        price = self.node_price(plan, j, state, picks)
        for i in range(len(plan.axes_of)):
            n, have = price.shape[i + 1], joint.shape[i + 1]
            if n > 1 and have not in (1, n):
                r = plan.axes_of[i][0]
                joint = np.take(joint, self.space.axes[r].clamp(plan.axis[i]), axis=i + 1)
        return joint + price

    def _squeeze(self, plan, joint: np.ndarray) -> np.ndarray:
        """Drop the axes of eliminated later versions: [S, rank 0, rank 1, ...]."""
        keep = [plan.position[r, min(1, plan.exit[r])] for r in range(len(self.space.ranks))]
        drop = tuple(i + 1 for i in range(len(plan.axes_of)) if i not in keep)
        return joint.squeeze(axis=drop) if drop else joint

    def _expand(self, plan, total: np.ndarray) -> np.ndarray:
        for r, axis in enumerate(self.space.axes):
            have = plan.axis[plan.position[r, min(1, plan.exit[r])]]
            if total.shape[r + 1] != len(axis) and total.shape[r + 1] == len(have):
                total = np.take(total, axis.clamp(have), axis=r + 1)
        return total

    def _first_price(self, plan, state, picks) -> np.ndarray:
        price = self.node_price(plan, 0, state, picks)
        keep = [plan.position[r, min(1, plan.exit[r])] for r in range(len(self.space.ranks))]
        drop = tuple(i + 1 for i in range(len(plan.axes_of)) if i not in keep)
        return price.squeeze(axis=drop) if drop else price

    def _assemble(self, level: int, best: np.ndarray, entered: np.ndarray, picks) -> None:
        """best[x] = min(best[x], entered[s, x / s]) over the spatial vectors."""
        space = self.space
        if not space.aligned:
            for k, i in enumerate(picks):
                moved = entered[k]
                for r, axis in enumerate(space.axes):
                    moved = axis.shift(moved, r, int(space.vectors[level - 1][i, r]))
                np.minimum(best, moved, out=best)
            return
        digits = sum((a.dims for a in space.axes), ())
        flat = best.reshape(digits)
        for k, i in enumerate(picks):
            source, target = self._share(("shift", level - 1, int(i)), lambda i=i: self._shift(level - 1, i))
            np.minimum(flat[target], entered[k].reshape(digits)[source], out=flat[target])

    def _shift(self, fan: int, i: int):
        """(slices of y, slices of x) in exponent digits, with x = s y."""
        source, target = [], []
        for r, axis in enumerate(self.space.axes):
            digits = np.unravel_index(axis.index[int(self.space.vectors[fan][i, r])], axis.dims)
            for e, n in zip(digits, axis.dims, strict=True):
                source.append(slice(0, n - int(e)))
                target.append(slice(int(e), n))
        return tuple(source), tuple(target)


def _along(values: np.ndarray, r: int, dims: int) -> np.ndarray:
    shape = [1] * dims
    shape[r] = len(values)
    return values.reshape(shape)
