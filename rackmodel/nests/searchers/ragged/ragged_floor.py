"""What rows of a RaggedPlan cost at least, by their tiles alone: no rank's chain of splits is followed.

A rank of D is in ceil(D / t) tiles of t or more however it was cut before, and a transfer serves no more instances than the parts laid
out of the ranks that the tensor lacks, nor than the fan is wide. So words are bounded as in docs/nest_theory.md, section 2, with these
counts; of what is fresh there is no more than a copy for each of the parts. Times are those of ports of which there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from rackmodel.arrays import Array, Ints, Number
from rackmodel.nests.searchers.mapspace.prices import components
from rackmodel.nests.searchers.mapspace.word_terms import Tally
from rackmodel.nests.searchers.ragged.ragged_plan import RaggedPlan


class RaggedFloor:
    """rows: [rows, numbers] of a RaggedPlan that fit. Sums of indices cost nothing here."""

    def __init__(self, plan: RaggedPlan, rows: Ints) -> None:
        self.plan, self.rows, self.space = plan, rows, plan.space
        self._known: dict[object, Number] = {}

    def joules(self) -> Number:
        """[rows] at least, those of the MACs with them."""
        return self.space.machine.compute.joules(self.space.problem) + self._priced(0)

    def seconds(self) -> Array:
        """[rows] at least."""
        found, levels = self.plan.seconds(self.rows), self.space.machine.levels
        for i, port in enumerate(components(self.space.machine)):
            if all(level.fan.size == 1 and not level.fan.linear for level in levels[: port.level]):
                found = np.maximum(found, self._priced(i + 1) / port.bandwidth)
        return found

    def _priced(self, charge: int) -> Number:
        total: Number = 0.0
        for t, parent, child, each, _ in self.plan.charges[charge]:
            if self.space.terms[t].sums:
                continue
            words: Number = 0.0
            for tally, price in each.words.items():
                words = words + price * self._tally(tally, t, parent, child)
            total = total + np.maximum(words, 0.0)
        return total

    def _tally(self, tally: Tally, t: int, parent: int, child: int) -> Number:
        """Words at least; of what is fresh at most."""
        key = tally, t, parent, child
        if key not in self._known:
            if tally is Tally.ENTERED:
                found = self._entered(t, child)
            elif tally is Tally.SERVED:
                found = self._tally(Tally.ENTERED, t, parent, child) / self._instances(t, range(parent, child), True)
            else:
                found = self.space.terms[t].whole * self._instances(t, range(parent if tally is Tally.FRESH_PARENT else child), False)
            self._known[key] = found
        return self._known[key]

    def _entered(self, t: int, child: int) -> Number:
        space, plan = self.space, self.plan
        found: Number = space.terms[t].whole
        for r in space.terms[t].lacks:
            if child == space.depth:
                found = found * -(-space.sizes[r] // space.leaf[r])
            else:
                found = found * np.ceil(space.sizes[r] / plan.tile(self.rows, child, plan.orders[child].index(t), r))
        return found

    def _instances(self, t: int, fans: Sequence[int], served: bool) -> Number:
        """Parts laid out of the ranks that a tensor lacks; served: as many of them as one transfer serves."""
        found: Number = 1.0
        for f in fans:
            fan = self.space.machine.levels[f].fan
            if fan.size == 1 and not fan.linear:
                continue
            laid: Number = prod((self._laid(f, r) for r in self.space.terms[t].lacks), start=1.0)
            width = fan.reduction_width if self.space.tensors[t].is_output else fan.multicast_width
            found = found * (np.minimum(laid, width) if served and width is not None else laid)
        return found

    def _laid(self, f: int, r: int) -> Number:
        if (f, r) not in self._known:
            self._known[f, r] = self.plan.laid(self.rows, f, r).astype(float)
        return self._known[f, r]
