"""A region's space by number: its shared ranks, and what each tensor counts and costs above the intermediates.

Ranks are merged where no tensor of the whole region tells them apart. A tensor above the intermediates is cut by loops over shared ranks
alone: its private ranks are whole. One that several members read is fetched once for all within its span, on account of the first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from math import prod

import numpy as np

from rackmodel.arrays import Array
from rackmodel.nests.constraints import NestConstraints
from rackmodel.nests.objective import NestObjective
from rackmodel.nests.problem import NestTensor
from rackmodel.nests.region import Region, RunningRows
from rackmodel.nests.region_loops import RegionLoops
from rackmodel.nests.searchers.contract import Feature, NestQuestion, features, refusal
from rackmodel.nests.searchers.mapspace.divisor_axis import DivisorAxis
from rackmodel.nests.searchers.mapspace.prices import BitPrices
from rackmodel.nests.searchers.mapspace.stored_tensors import Stored, keep_masks
from rackmodel.nests.searchers.mapspace.tile_axis import TileAxis
from rackmodel.nests.searchers.mapspace.word_terms import Tally, TensorTerm, tally_prices

F = Feature
SUPPORTS = frozenset(
    {F.PERFECT, F.TIME, F.RESIDENT, F.COMPUTE_FAN, F.DEEP, F.LINEAR, F.WIDTH, F.HOPS, F.MANY, F.ATOM, F.FREE_STORE, F.BYPASS}
)


class RegionSpace:
    """groups: per member, merged rank → its parts · shared: merged ranks that loops around members may cut, with `parts`, `sizes`, `axes`
    · cuts: [span][shared rank] whether loops of that span may · lacks: per member, numbers of shared ranks it lacks · tensors: every tensor
    that is no intermediate, and the members that use it · masks: per member, choices of stored tensors · axis: the tiles of a rank of some
    size; exact: they are divisors, not buckets of tiles of any size.
    Errors: RackmodelError where the members ask for what is not searched."""

    def __init__(self, region: Region, loops: RegionLoops | None = None, axis: Callable[[int], TileAxis] = DivisorAxis) -> None:
        self.region, self.axis, self.exact = region, axis, axis is DivisorAxis
        self.loops = loops or RegionLoops(region, ((0, len(region.members) - 1),), again=False)
        self.masks = [self._masks(i) for i in range(len(region.members))]
        self.groups = self._groups()
        every = {g: (parts, p) for p, groups in zip(region.members, self.groups, strict=True) for g, parts in groups.items()}
        cut = frozenset().union(*self.loops.cuts)
        self.parts = {g: parts for g, (parts, _) in every.items() if parts[0] in cut}
        self.shared = list(self.parts)
        self.cuts = [[parts[0] in ranks for parts in self.parts.values()] for ranks in self.loops.cuts]
        self.lacks = [[r for r, parts in enumerate(self.parts.values()) if parts[0] not in p.sizes] for p in region.members]
        self.sizes = {g: prod(every[g][1].sizes[r] for r in parts) for g, parts in self.parts.items()}
        self.axes = [axis(self.sizes[g]) for g in self.shared]
        self.level = region.machines[0].levels[1]
        self.tensors = region.outer
        self.of = {name: t for name, (t, _) in self.tensors.items()} | {name: region.intermediate(name) for name in region.held}
        self.users = {name: users for name, (_, users) in self.tensors.items()}
        self.users |= {name: (first, last) for name, (first, last) in region.held.items()}
        self.terms = {name: TensorTerm.of(self.whole(t, self.users[name][0]), self.has(t)) for name, t in self.of.items()}
        self.widths = {name: self._width(t, self.users[name][0]) for name, t in self.of.items()}
        self.each_price: dict[tuple[str, BitPrices], tuple[float, float]] = {}
        self.resident_bits = sum(self.widths[n] * prod(self._whole_tile(self.of[n])) for n in region.resident)

    def _masks(self, i: int) -> list[Stored]:
        problem, machine = self.region.members[i], self.region.machines[i]
        masks, resident = keep_masks(problem, machine, NestConstraints()), self.region.resident
        question = NestQuestion(problem, machine, NestObjective("energy"), "perfect", NestConstraints(), masks, resident)
        if not features(question) <= SUPPORTS:
            raise refusal(question, [SUPPORTS], "fused: ")
        whole = {t.name for t in problem.tensors}
        if any(set(mask[1]) != whole for mask in masks):
            raise refusal(question, [SUPPORTS - {F.BYPASS, F.FREE_STORE}], f"fused in {machine.levels[1].name}: ")
        return list(masks)

    def _groups(self) -> list[dict[str, list[str]]]:
        """Merged ranks of every member: ranks that index the same tensors of the whole region, one of them with an atom of some member at
        most, which is cut last. Those of running rows stay; of tiles of any size, those of an atom as well."""
        region, atoms = self.region, {r for machine in self.region.machines for r in machine.compute.atom}
        apart = {rows.over for rows in region.running} | region.whole | (set() if self.exact else atoms)
        every = [(t.name, t.ranks) for p in region.members for t in p.tensors]
        indexed = {r: tuple(dict.fromkeys(n for n, ranks in every if r in ranks)) for r in region.sizes}
        first = {indexed[r]: r for r in sorted(atoms & set(indexed), reverse=True) if r not in apart}
        apart |= {r for r in atoms if first.get(indexed.get(r, ())) != r}
        found = []
        for p in region.members:
            groups: dict[tuple[str, ...], list[str]] = {}
            for r in p.sizes:
                groups.setdefault((*indexed[r], "apart", r) if r in apart else indexed[r], []).append(r)
            parts = [sorted(g, key=lambda r: (r in atoms, r)) for g in groups.values()]
            found.append({"__".join(g): g for g in parts})
        return found

    @cached_property
    def counts(self) -> list[Array]:
        """Per shared rank, number of its tiles of every size, along its own axis of an array over all shared ranks."""
        dims = len(self.axes)
        return [a.count.reshape([-1 if k == r else 1 for k in range(dims)]) for r, a in enumerate(self.axes)]

    @cached_property
    def core_room(self) -> dict[str, Array]:
        """[tiles of the shared ranks, 1 where they do not matter] bits of level 1 of a tensor's tile."""
        low = np.meshgrid(*(a.low.astype(float) for a in self.axes), indexing="ij", sparse=True)
        return {name: np.asarray(term.room(low.__getitem__, self.widths[name])) for name, term in self.terms.items()}

    def times(self, i: int) -> Array:
        """[tiles of the shared ranks, 1 where they do not matter] how often member i runs."""
        return np.asarray(prod((self.counts[r] for r in self.lacks[i]), start=np.ones([1] * len(self.axes))))

    def user(self, name: str, span: int) -> int:
        """The first member within a span that uses an outer tensor."""
        first, last = self.loops.spans[span]
        return next(i for i in self.tensors[name][1] if first <= i <= last)

    def has(self, tensor: NestTensor) -> list[bool]:
        """Which shared ranks a tensor has."""
        return [self.parts[g][0] in tensor.ranks for g in self.shared]

    def whole(self, tensor: NestTensor, i: int) -> float:
        """Words of all of it."""
        return float(tensor.tile_words(self.region.members[i].sizes))

    def _whole_tile(self, tensor: NestTensor) -> list[int]:
        return [self.sizes[g] for g, has in zip(self.shared, self.has(tensor), strict=True) if has]

    def _width(self, tensor: NestTensor, i: int) -> int:
        """Bits of level 1 for a word of the tensor's shared tile (its private ranks are whole)."""
        shared = {r for g in self.shared for r in self.parts[g]}
        private = prod(self.region.members[i].sizes[r] for r in tensor.ranks if r not in shared)
        level = self.region.machines[i].levels[1]
        return private * level.buffers * level.bits(tensor)

    def rows_width(self, rows: RunningRows) -> int:
        """Rows of running statistics in a word of its intermediate's shared tile: its private ranks but the one that rows run along."""
        first, ranks = self.region.members[self.users[rows.of][0]], self.of[rows.of].ranks
        shared = {r for g in self.shared for r in self.parts[g]}
        return prod(first.sizes[r] for r in ranks if r not in shared and r != rows.over)

    def price(self, name: str, prices: BitPrices) -> tuple[float, float]:
        """(price of a word that enters level 1, price of fresh words, <= 0) of a prefix tensor."""
        if (name, prices) not in self.each_price:
            tensor, users = self.tensors[name]
            words = tally_prices(self.region.machines[users[0]], prices, tensor, 0, 1).words
            each, fresh = (Tally.ENTERED, Tally.SERVED), (Tally.FRESH_CHILD, Tally.FRESH_PARENT)  # one instance of level 1
            saved = sum(words.get(tally, 0.0) for tally in fresh)
            self.each_price[name, prices] = sum(words.get(tally, 0.0) for tally in each), saved * self.terms[name].whole
        return self.each_price[name, prices]

    def least_bits(self) -> float:
        """Bits of level 1 that any fused mapping takes: of the member that needs most, its residents, a word of each other tensor."""
        return self.resident_bits + max(
            sum(
                self.region.machines[i].levels[1].buffers * self.region.machines[i].levels[1].bits(t)
                for t in p.tensors
                if t.name not in self.region.resident
            )
            for i, p in enumerate(self.region.members)
        )
