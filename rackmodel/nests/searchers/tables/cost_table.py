"""Dynamic programming over the tile lattice: least price of a level and all below it, for every tile it may be given.

V_l[x] = min over spatial s, order, tiles:  const(s) + sum_j coef_j(s) words_j(tiles) + V_{l+1}[exit tile],
x = tile at the parent's last node, y = x / s enters the level. The compute: V[x] = min over s | x. Levels touch only
through x (lemma L4), so the minimum is exact. Joint arrays of tiles are reduced one version at a time (order_plan), all
spatial vectors side by side. Derivation: docs/nest_theory.md, sections 3 and 4.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from math import prod
from typing import NamedTuple

import numpy as np

from rackmodel.arrays import Array, Bools, Ints
from rackmodel.nests.objective import TIE
from rackmodel.nests.searchers.mapspace.fan_state import FanState
from rackmodel.nests.searchers.mapspace.order_plan import OrderPlan
from rackmodel.nests.searchers.tables.node_prices import PricedSpace

CELLS = 2_000_000  # joint cells handled at once
HEADS = 1_000_000  # bytes of the heads of one level and state that are remembered


class Head(NamedTuple):
    """One order: its plan, the joint array after every unpriced version is eliminated, the versions so settled."""

    plan: OrderPlan
    joint: Array
    done: set[tuple[int, int]]


Entered = tuple[list[Ints], Sequence[Array]]  # vectors of equal prices of a word, by row; least price by row and tile that enters


class CostTable(PricedSpace):
    """Cost tables of one Space under one price."""

    # -- the recursion
    def value(self, level: int, state: FanState) -> Array:
        """V_level over the box of the level: [tiles of rank 0, tiles of rank 1, ...]; inf where nothing fits."""
        seen, saved = self.seen(level, state), self.saved(level, state)
        key, known = (level, seen, self.suffix[level]), self.known(level)
        if key not in known:
            known[key] = self._leaf(seen) if level == self.space.depth else self._memory(level, seen)
        found: Array = known[key]
        return found - saved if saved else found

    def _leaf(self, state: FanState) -> Array:
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
            fits: Bools = np.ones([1] * len(box), dtype=bool)
            for r, axis in enumerate(box):
                fits = fits & _along(space.list_axes[r].holds(int(space.vectors[-1][i, r]), space.leaf[r])[: len(axis)], r, len(box))
            np.minimum(table, np.where(fits, price[i], np.inf), out=table)
        return table

    def _memory(self, level: int, state: FanState) -> Array:
        best = np.full([len(a) for a in self.space.axes], np.inf)
        below, saved = self._below(level, state)
        of, least = np.zeros(best.shape, dtype=np.int32), best.copy()
        same = Counter(inner.without_copies for inner, _ in below)
        for n, (inner, picks) in enumerate(below):
            for rows, entered in self.enter(level, state, inner, picks, same[inner.without_copies]):
                self._assemble(level, best, entered, rows, saved)
            less = best < least * (1 - TIE)
            of[less], least[less] = n, best[less]
        self.known(level)["least of", level, state, self.suffix[level]] = of, [picks for _, picks in below]
        return best

    def cheapest(self, level: int, state: FanState, x: tuple[int, ...]) -> Ints:
        """Spatial vectors, of one state below, among which is the first of least price for tile x."""
        self.value(level, state)
        of, groups = self.known(level)["least of", level, self.seen(level, state), self.suffix[level]]
        found: Ints = groups[of[x]]
        return found

    def _below(self, level: int, state: FanState) -> tuple[list[tuple[FanState, Ints]], Array]:
        """(spatial vectors of the fan above `level` by the state that tables below see, what fresh outputs save by each of them)."""
        free, forced = self._free(level + 1), self.forced(level + 1)
        seen, first, copies, number = self.share(level, ("seen", level, state, free, forced), partial(self._seen, level, state))
        credit = self.coefficients(level, state).credit
        if forced and not free:
            credit = credit + (copies * np.hstack(self._fresh(level + 1))).sum(axis=1)[number]
        key = ("seen by", level, state, free, forced, self.suffix[level][0])
        return self.share(level, key, partial(self._grouped, level, seen, first)), credit

    def _seen(self, level: int, state: FanState) -> tuple[list[FanState], Ints, Array, Ints]:
        """(states that tables below `level` see, [S] number of that of every vector, [states handed on, of `_fresh`] copies of outputs
        beyond those of the state that is seen, [S] number of that of every vector)."""
        states, number = self.next_states(level, state)
        seen = [self.seen(level + 1, one) for one in states]
        at = {one: n for n, one in reversed(list(enumerate(seen)))}
        copies = np.array([(one.sig - 1.0, one.sig_parent - 1.0, *one.hop_sig) for one in states])
        return seen, np.array([at[one] for one in seen])[number], copies, number

    def enter(self, level: int, state: FanState, inner: FanState, picks: Ints, same: int = 1) -> list[Entered]:
        """What enters a level, for spatial vectors with one state below. Rows are remembered: states which differ in copies of outputs
        alone, and other sets of vectors, ask for the same. same: states asked for that differ from `inner` in copies alone, with it."""
        key, known = ("entered", level, state.without_copies, inner, self.suffix[level + 1]), self.known(level)
        row, size = self._rows(level, state)[picks], prod(len(a) for a in self.space.axes)
        order = np.argsort(row, kind="stable")
        members = np.split(picks[order], np.flatnonzero(np.diff(row[order])) + 1)
        rows, kept = np.unique(row).tolist(), known.get(key, {})
        missing = [n for n in range(len(rows)) if rows[n] not in kept]
        found = {n: kept[n] for n in rows if n in kept}
        if missing:
            heads, most = self.heads(level, inner, same), max(1, CELLS // size)
            self.effort.spend(size * len(missing))  # before any of them is priced: too many are not priced half-way
            for i in range(0, len(missing), most):
                self.effort.check()
                some = missing[i : i + most]
                entered = self.entered(state, heads, np.array([members[n][0] for n in some]))
                found.update(zip((rows[n] for n in some), entered, strict=True))
            if level > 1 and sum(entered.nbytes for entered in (found | kept).values()) <= HEADS:
                known[key] = kept | found
        return [(members, [found[n] for n in rows])]

    def _rows(self, level: int, state: FanState) -> Ints:
        """[S] numbers of spatial vectors, the same for those of equal prices of a word at `level`."""
        key, known = ("rows", level, state.without_copies), self.known(level)
        if key not in known:
            fill, serve, _ = self.coefficients(level, state)
            each = fill + serve / self.crossed(level - 1, state).served
            alike = len(each) > 1 and not (each == each[0]).all()
            known[key] = np.unique(each, axis=0, return_inverse=True)[1].ravel() if alike else np.zeros(len(each), dtype=int)
            if not self.space.aligned:
                known[key] = np.arange(len(each))
        found: Ints = known[key]
        return found

    def by_state(self, level: int, state: FanState) -> list[tuple[FanState, Ints]]:
        """Spatial vectors grouped by the state they leave below the level, in order."""
        key = ("by state", level, state, self.suffix[level][0])
        return self.share(level, key, lambda: self._grouped(level, *self.next_states(level, state)))

    def _grouped(self, level: int, states: Sequence[FanState], number: Ints) -> list[tuple[FanState, Ints]]:
        """Spatial vectors in play by their state, in order; number: [S] that of every vector."""
        picks = self.picked(level - 1)
        _, first, group = np.unique(number[picks], return_index=True, return_inverse=True)
        return [(states[number[picks[at]]], picks[group == n]) for n, at in sorted(enumerate(first), key=lambda one: one[1])]

    def heads(self, level: int, state: FanState, same: int = 1) -> list[Head]:
        """Every order of a level, with all that no price of the level sees already minimised; remembered where tables of other
        vectors above the level will ask again. same: as of enter."""
        key, known = ("heads", level, state, self.suffix[level + 1]), self.known(level)
        if key not in known:
            shares = self._shares(level + 1, state, same)
            found = self._heads(level, self.value(level + 1, state)) if shares is None else self._shared_heads(level, state, shares)
            if level == 1 or sum(head.joint.nbytes for head in found) > HEADS:
                return found
            known[key] = found
        kept: list[Head] = known[key]
        return kept

    def _heads(self, level: int, inner: Array) -> list[Head]:
        """From the table of the level below."""
        heads = []
        for plan in self.plans(level):
            self.effort.spend(plan.cells)
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
            heads.append(Head(plan, joint, done))
        return heads

    def _shares(self, level: int, state: FanState, same: int) -> dict[float, float] | None:
        """Copies of outputs over the fan above `level` → what fresh outputs save there by each: states that differ in copies alone have
        tables that are the least of a few, less these. None where that is no shorter way to so many states."""
        if level == self.space.depth or not self.space.aligned or not self.forced(level + 1):
            return None
        picks = self.picked(level - 1)
        copies = self.crossed(level - 1, state.without_copies).sig[picks]
        every = np.unique(copies)
        if len(every) >= same:
            return None
        saved = self._below(level, state)[1][picks]
        each = {float(n): saved[copies == n] for n in every}
        return {n: float(of[0]) for n, of in each.items()} if all((of == of[0]).all() for of in each.values()) else None

    def _shared_heads(self, level: int, state: FanState, shares: dict[float, float]) -> list[Head]:
        """The same from heads that states which differ in copies alone share."""
        every = [(self._heads_of(level, state.without_copies, copies), saved) for copies, saved in shares.items()]
        found = []
        for of in zip(*(heads for heads, _ in every), strict=True):
            least = np.minimum.reduce([head.joint - saved for head, (_, saved) in zip(of, every, strict=True)])
            found.append(of[0]._replace(joint=least))
        return found

    def _heads_of(self, level: int, state: FanState, copies: float) -> list[Head]:
        """Heads above the spatial vectors with so many copies of outputs, what these save apart."""
        key, known = ("heads of", level, state, copies, self.suffix[level + 1]), self.known(level)
        if key not in known:
            best, within = np.full([len(a) for a in self.space.axes], np.inf), self.crossed(level, state).sig == copies
            below, saved = self._below(level + 1, state)
            for inner, picks in below:
                for rows, entered in self.enter(level + 1, state, inner, picks):
                    self._assemble(level + 1, best, entered, [members[within[members]] for members in rows], 0.0 * saved)
            known[key] = self._heads(level, best)
        found: list[Head] = known[key]
        return found

    def exits(self, plan: OrderPlan, inner: Array) -> Array:
        """Joint array of V_{level+1} at the exit tile."""
        index, shape = plan.left
        return np.broadcast_to(inner[np.ix_(*index)].reshape(shape), [len(a) for a in plan.axis])

    @staticmethod
    def _eliminate(plan: OrderPlan, joint: Array, i: int, lead: int) -> Array:
        """Take the minimum over the version on joint axis i, onto the version above it (onto y for the first)."""
        v = plan.axes_of[i][1]
        if v == 1:
            return plan.axis[i].zeta(joint, i + lead)
        return np.asarray(joint.min(axis=i + lead, keepdims=True))

    def entered(self, state: FanState, heads: list[Head], picks: Ints) -> Array:
        """[S, y of every rank] least price of the level and below for tile y entering it, spatial vectors `picks`."""
        best: Array | None = None
        groups: dict[tuple[int | None, tuple[int, ...], tuple[int, ...]], list[tuple[OrderPlan, Array]]] = {}
        for plan, head, done in heads:
            joint = head[None]
            halo = bool(plan.order) and bool(self.space.affine[plan.order[0]].any())
            price: Array | None = None  # of nodes between which nothing is eliminated: small beside the joint array
            for j in reversed(range(len(plan.order))):
                if j or halo:
                    node = self.node_price(plan, j, state, picks)
                    price = node if price is None else price + node
                cut = [(r, plan.versions[j][r]) for r in plan.cuts[j]] if j else []
                if not j or any(one not in done for one in cut):
                    joint, price = joint if price is None else self._add(plan, joint, price), None
                for one in cut:
                    if one not in done:
                        joint = self._eliminate(plan, joint, plan.position[one], 1)
            first = plan.order[0] if plan.order and not halo else None
            left = tuple(r for r in plan.cuts[0] if (r, 1) not in done) if plan.order else ()
            flat = self._squeeze(plan, joint)
            groups.setdefault((first, flat.shape, left), []).append((plan, flat))
        for (first, _, left), members in groups.items():
            plan, total = members[0]
            for _, other in members[1:]:
                total = np.minimum(total, other)
            for r in left:  # the cuts above the first node, common to these orders
                total = plan.axis[plan.position[r, 1]].zeta(total, r + 1)
            total = self._expand(plan, total)
            if first is not None:
                total = total + self._squeeze(plan, self.node_price(plan, 0, state, picks))  # it sees the tile that enters
            if best is None:
                best = np.broadcast_to(total, (len(picks), *tuple(len(a) for a in self.space.axes))).copy()
            else:
                np.minimum(best, total, out=best)
        if best is None:
            return np.full((len(picks), *(len(a) for a in self.space.axes)), np.inf)
        return best

    def _add(self, plan: OrderPlan, joint: Array, price: Array) -> Array:
        """joint + price of nodes; a boxed y axis that the price sees is widened first."""
        for i in range(len(plan.axes_of)):
            n, have = price.shape[i + 1], joint.shape[i + 1]
            if n > 1 and have not in (1, n):
                r = plan.axes_of[i][0]
                joint = np.take(joint, self.space.axes[r].clamp(plan.axis[i]), axis=i + 1)
        if joint.base is None and joint.shape == np.broadcast_shapes(joint.shape, price.shape):
            return np.add(joint, price, out=joint)  # no view of the remembered head: its own array
        return joint + price

    def _squeeze(self, plan: OrderPlan, joint: Array) -> Array:
        """Drop the axes of eliminated later versions: [S, rank 0, rank 1, ...]."""
        keep = [plan.position[r, min(1, plan.exit[r])] for r in range(len(self.space.ranks))]
        drop = tuple(i + 1 for i in range(len(plan.axes_of)) if i not in keep)
        return joint.squeeze(axis=drop) if drop else joint

    def _expand(self, plan: OrderPlan, total: Array) -> Array:
        """Widen boxed axes to the tiles of the level."""
        for r, axis in enumerate(self.space.axes):
            have = plan.axis[plan.position[r, min(1, plan.exit[r])]]
            if total.shape[r + 1] != len(axis) and total.shape[r + 1] == len(have):
                total = np.take(total, axis.clamp(have), axis=r + 1)
        return total

    def _assemble(self, level: int, best: Array, entered: Sequence[Array], rows: Sequence[Ints], credit: Array) -> None:
        """best[x] = min(best[x], entered[row, x / s] - credit[s]) over the spatial vectors s of every row."""
        space = self.space
        if not space.aligned:
            for k, i in ((k, i) for k, members in enumerate(rows) for i in members):
                moved: Array = entered[k] - credit[i]
                for r, axis in enumerate(space.list_axes):
                    moved = axis.shift(moved, r, int(space.vectors[level - 1][i, r]))
                np.minimum(best, moved, out=best)
            return
        digits = tuple(n for a in space.divisor_axes for n in a.dims)
        flat = best.reshape(digits)
        for k, members in enumerate(rows):
            for saved in sorted(set(credit[members].tolist())):
                left = entered[k].reshape(digits) - saved if saved else entered[k].reshape(digits)
                for i in self._fewest(level, members[credit[members] == saved]):
                    source, target = self.share(level, ("shift", level - 1, i), partial(self._shift, level - 1, i))
                    np.minimum(flat[target], left[source], out=flat[target])

    def _fewest(self, level: int, members: Ints) -> list[int]:
        """Of spatial vectors of one price: those whose parts no other one's divide. A larger tile that enters costs no more."""

        def make() -> list[int]:
            digits, left, found = self.share(level, ("digits", level - 1), partial(self._digits, level - 1)), members, list[int]()
            while len(left):
                one = left[np.prod(self.space.vectors[level - 1][left], axis=1).argmin()]
                found.append(int(one))
                left = left[(digits[left] < digits[one]).any(axis=1)]
            return sorted(found)

        return [int(members[0])] if len(members) == 1 else self.share(level, ("fewest", level - 1, members.tobytes()), make)

    def _shift(self, fan: int, i: int) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """(slices of y, slices of x) in exponent digits, with x = s y."""
        digits = self.share(fan + 1, ("digits", fan), partial(self._digits, fan))[i].tolist()
        dims = [n for axis in self.space.divisor_axes for n in axis.dims]
        source = tuple(slice(0, n - e) for e, n in zip(digits, dims, strict=True))
        return source, tuple(slice(e, n) for e, n in zip(digits, dims, strict=True))

    def _digits(self, fan: int) -> Ints:
        """[S, digits] exponents of every rank's parts."""
        parts = zip(self.space.divisor_axes, self.space.vectors[fan].T, strict=True)
        return np.stack([each for axis, of in parts for each in np.unravel_index(axis.numbers(of), axis.dims)], axis=1)


def _along(values: Bools, r: int, dims: int) -> Bools:
    shape = [1] * dims
    shape[r] = len(values)
    return values.reshape(shape)
