"""Ceil factors on any machine: exact in the divisible-inner space, with a relaxation as bound and the gap reported.

Per rank a list of tiles (list_axes); the first cut of a rank may be ragged, later tiles divide it, so the levels of the
cost tables still touch only through one tile. Slices, as for perfect factors, give latency and EDP: in each the least-energy
mapping is recounted (ragged cycles make time no longer additive, so it is not enumerated). The perfect-factor optimum is
a candidate too. The bound drops divisibility (relaxed_bound).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf, prod

import numpy as np

from rackmodel.errors import InfeasibleError, RackmodelError
from rackmodel.nests.objective import TIE, NestObjective
from rackmodel.nests.searchers import perfect
from rackmodel.nests.searchers.bounds.relaxed_bound import budgets, least_key
from rackmodel.nests.searchers.chains.chain_search import Joined, join_chains, join_ties, listable
from rackmodel.nests.searchers.contract import Feature, NestQuestion, Searcher, all_but, features
from rackmodel.nests.searchers.effort import Exhausted
from rackmodel.nests.searchers.infeasible import infeasible
from rackmodel.nests.searchers.mapspace.list_axes import ListAxis
from rackmodel.nests.searchers.mapspace.prices import Component
from rackmodel.nests.searchers.mapspace.space import Space
from rackmodel.nests.searchers.mapspace.spatial_vectors import more_pairs
from rackmodel.nests.searchers.mapspace.stored_tensors import Stored
from rackmodel.nests.searchers.ragged.joint_best import (
    JointLeft,
    answers,
    comparable,
    drawn_best,
    joint_again,
    joint_best,
    orders_together,
)
from rackmodel.nests.searchers.ragged.padded import padded_best
from rackmodel.nests.searchers.registers.box_registers import box_best
from rackmodel.nests.searchers.registers.registers import UNSUPPORTED, RegisterBound, least_energy
from rackmodel.nests.searchers.registers.timed_registers import least_timed
from rackmodel.nests.searchers.tables.cost_table import CostTable
from rackmodel.nests.searchers.tables.slices import SliceSearch
from rackmodel.nests.solution import Best, NestSolution, better_of, gap_of, solved

CELLS, FEW = 6000, 64  # tiles of all ranks together; where those took too much
PAIRS = 2**22  # of vectors on X and on Y of a fan
MANY = 64  # orders of all levels together: of more, divisors are searched first
CLOSE = 0.01  # gap up to which no other bound of the energy is asked for
EVERY = "every tile, ragged or not"
DRAWN = "mappings drawn, ragged or not; bound over tiles of any size, between whole numbers"
BOXES = "mappings drawn, ragged or not; bound over tiles of any size, ranks that no tensor tells apart as boxes"
SLOW = 3  # times as long as a cell of perfect factors


class DeepSearch(SliceSearch):
    """Slices of a ceil space."""

    def _classes(self, fan: int) -> list[tuple[float, tuple[int, ...]]]:
        """By number of parts; with one true fanout, by the fewest leaf cycles: prod ceil(D / (s u))."""
        vectors, p = self.space.vectors[fan], self.space.problem
        f = self.space.machine.levels[fan].fan
        lone = sum(len(v) > 1 for v in self.space.vectors) == 1 and not f.linear and len(vectors) > 1
        if not lone:
            return super()._classes(fan)
        leaves = -(-np.array(self.space.sizes) // (vectors * np.array(self.space.leaf)))
        cycles = np.prod(leaves, axis=1) * prod(self.space.leaf)
        return [(p.macs / float(c), tuple(np.flatnonzero(cycles == c).tolist())) for c in sorted(set(cycles.tolist()))]

    def scale(self, port: Component, slice_: Sequence[int]) -> float:
        """Seconds per bit, at most: over every instance there is."""
        fans = [self.space.machine.levels[f].fan.size for f in range(port.level)]
        return 1.0 / (port.bandwidth * prod(fans))

    def _tied(self) -> Iterable[tuple[int, ...]]:
        return []

    def _close(self, table: CostTable, slice_: tuple[int, ...], energy: float, own: float) -> None:
        """The slice's least-energy mapping is its candidate; no enumeration."""
        self.closed += 1


def solve_deep(q: NestQuestion) -> NestSolution:
    """Best mapping over all masks; the certificate's bound holds for tiles of any size. Where it is proven, ties are settled, if that takes
    little."""
    found = _searched(q)
    sheet = found.certificate
    if sheet.ties or not sheet.proven or q.effort.over or (tied := join_ties(q, Best(sheet.objective, found.mapping, found.cost))) is None:
        return found
    (key, mapping, cost), evaluated = tied.best, sheet.evaluated + tied.cells
    return NestSolution(mapping, cost, replace(sheet, objective=key, evaluated=evaluated, ties=tied.ties))


def _searched(q: NestQuestion) -> NestSolution:
    """Best mapping over all masks."""
    if q.begun is not None and q.begun.left:
        return _again(q, q.begun)
    if len(q.machine.levels) == 1 and q.machine.levels[0].fan.size == 1 and not q.machine.compute.atom:
        return perfect.solve_perfect(replace(q, factors="perfect"))  # one memory and one unit: no tile is chosen
    search = _Ceil(q)
    return search.by_registers() or search.by_numbers() or search.by_lists()


class _Ceil:
    """One way of searching after another, each from the best mapping of those before, until one proves its answer or is the last. best ·
    cells: priced so far · notes: of the certificate · joint: whether the question is large and of few orders (joint_best) · later: whether
    divisors are searched last · timed: of the primary key at least, where a product's energy and time say so together · exact: a product's
    least energy · energy: of every mapping at least."""

    def __init__(self, q: NestQuestion) -> None:
        self.q, self.timed, self.energy = q, -inf, 0.0
        self.exact: RegisterBound | None = None
        self.joint = all(answers(q, kept) for kept in q.masks)
        many = self.joint and any(orders_together(q, kept) > MANY for kept in q.masks)
        self.later = self.joint and not many and not listable(q) and bool(features(q) & UNSUPPORTED)
        self.best, self.cells, self.notes = _first(q) if self.later else _perfect(q)
        if self.joint and self.best is None:  # no divisors there: programs and chains begin at some mapping
            self._take(*_first(q)[:2])
        if many or not self.joint:
            self._take(*padded_best(q, self.best))
        for kept in q.masks if many else ():
            if self.best is not None:
                self._take(*drawn_best(q, kept, self.best))

    def _take(self, best: Best | None, cells: int) -> None:
        """What a way has found, so many cells priced for it."""
        self.best, self.cells = best, self.cells + cells

    def by_registers(self) -> NestSolution | None:
        """A product on a memory, a buffer and register files: every tile, or where its ranks merge to those of one, a bound by boxes; None
        where that is not all that is asked."""
        q = self.q
        timed = None if q.objective.energy_only else least_timed(q, self.best, perfect=False)
        if timed is not None:
            self._take(timed.best, timed.cells)
            if gap_of(timed.best.primary, timed.bound) <= TIE:
                return self._solved(timed.best, timed.bound, notes=(*self.notes, EVERY))
            self.timed = timed.bound
        if q.objective.name == "latency":
            return None
        self.exact = least_energy(q, self.best, perfect=False)
        if self.exact is not None:
            best = better_of(self.best, self.exact.best.under(q.objective))
            self._take(best, self.exact.cells)
            if q.objective.energy_only and gap_of(best.primary, self.exact.bound) <= TIE:
                return self._solved(best, self.exact.bound, notes=(*self.notes, EVERY))
        elif self.joint and not q.effort.over and self.best is not None and (boxes := box_best(q, self.best)) is not None:
            best, self.energy = self.best.or_better(boxes.best.under(q.objective)), boxes.bound
            self._take(best, boxes.cells)
            if q.objective.energy_only:
                return self._solved(best, boxes.bound, notes=(*self.notes, BOXES))
        return None

    def by_numbers(self) -> NestSolution | None:
        """Large problems of few orders that are no such product: every chain, where they are few, else draws and branch and bound between
        whole numbers (joint_best); None for others."""
        q, best = self.q, self.best
        if not self.joint or best is None or not comparable(q, best):
            return None
        if self.exact is not None or self.timed > -inf or q.effort.over:
            return None
        joined = join_chains(q, best)
        if joined is not None and joined.closed:
            return self._closed(joined)
        best = best if joined is None else joined.best
        bounds, left, size = [], [], 0.0
        for kept in q.masks:
            found = joint_best(q, kept, best, self.energy)
            best = found.best
            self._take(best, found.cells)
            bounds.append(found.bound)
            left.append(found.left)
            size += perfect.space_size(_list_space(q, kept, FEW))
        if self.later and Feature.PADDED_ATOM not in features(q) and not q.effort.over:
            divisors = perfect.solve_perfect(replace(q, factors="perfect"), best)  # under what was found
            best = Best(divisors.certificate.objective, divisors.mapping, divisors.cost)
            self._take(best, divisors.certificate.evaluated)
        late = ("time is over",) if q.effort.late else ()
        return self._solved(best, min(bounds), size, notes=(*self._unspent, *late, DRAWN), left=left)

    def by_lists(self) -> NestSolution:
        """Tiles listed, inner ones dividing outer ones, mask by mask. Raises InfeasibleError."""
        q, exact = self.q, self.exact
        floor = exact.bound if exact is not None and gap_of(exact.best.primary, exact.bound) < CLOSE else 0.0
        stopped: tuple[str, ...] = ()
        slices, size = 0, 0.0
        pruned: Counter[str] = Counter()
        bounds: list[float] = []
        searched: list[Stored] = []
        for kept in q.masks:
            if self.best is not None and q.effort.over:
                bounds.append(least_key(q, kept, self.best.primary, floor))
                stopped = (perfect.NOTE,)
                size = inf  # its tiles are not listed
                continue
            if self.best is not None:
                self._take(*drawn_best(q, kept, self.best))
            search = DeepSearch(_list_space(q, kept, CELLS), q.objective, self.best, q.effort.part(SLOW))
            size += perfect.space_size(search.space)
            if self._tied(kept):
                continue
            try:
                search, ended = _run(q, search)
                stopped = ended or stopped
            except InfeasibleError:
                pruned["masks infeasible"] += 1
                continue
            self._take(search.best, search.cells)
            slices += search.slices
            pruned.update(search.pruned)
            searched.append(kept)
        if self.best is None:
            raise infeasible(q)
        if joined := None if q.effort.over else join_chains(q, self.best):
            if joined.closed:
                return self._closed(joined)
            self._take(joined.best, joined.cells)
        best = self.best
        bounds += [least_key(q, kept, best.primary, floor) for kept in searched]
        listed = "exact over listed tiles, inner ones dividing outer ones; bound over tiles of any size", f"{slices} slices"
        notes = (*dict.fromkeys((*self.notes, *stopped)), *listed)
        return self._solved(best, max(self.timed, min(bounds, default=inf)), size, pruned, notes=notes)

    def _tied(self, kept: Stored) -> bool:
        """Whether a mask has nothing better than the best, where work is short: nothing is spent on the tie-break."""
        best = self.best
        return best is not None and perfect.NOTE in self.notes and least_key(self.q, kept, best.primary) >= best.primary * (1 - TIE)

    @property
    def _unspent(self) -> list[str]:
        """The notes, where other ways than divisors have gone on."""
        return [note for note in self.notes if note != perfect.NOTE]

    def _closed(self, joined: Joined) -> NestSolution:
        """What every chain says."""
        self._take(joined.best, joined.cells)
        return self._solved(joined.best, joined.bound, notes=(*self._unspent, EVERY), ties=joined.ties)

    def _solved(
        self,
        best: Best,
        bound: float,
        size: float = inf,
        pruned: Mapping[str, int] | None = None,
        *,
        notes: Sequence[str],
        ties: bool = False,
        left: Sequence[object] = (),
    ) -> NestSolution:
        """As `solved`. size: mappings of the space."""
        return solved(best, bound, (size, self.cells, dict(pruned or {})), SEARCHER.name, notes, ties=ties, left=left)


def _again(q: NestQuestion, begun: NestSolution) -> NestSolution:
    """What was searched under another objective, gone on with."""
    best = Best.of(q.objective, begun.mapping, begun.cost)
    found = []
    for one in begun.left:
        assert isinstance(one, JointLeft)
        found.append(joint_again(q, one, best))
        best = found[-1].best
    cells, notes = sum(one.cells for one in found), (("time is over",) if q.effort.late else ()) + (DRAWN,)
    counts, left = (begun.certificate.space, cells, dict[str, int]()), [one.left for one in found]
    return solved(best, min(one.bound for one in found), counts, SEARCHER.name, notes, ties=False, left=left)


def _run(q: NestQuestion, search: DeepSearch) -> tuple[DeepSearch, tuple[str, ...]]:
    """The search, or where it took too much and has found nothing one of few tiles; and what is to be noted."""
    try:
        search.run()
    except Exhausted:
        q.effort.late |= search.energy.effort.late
        if search.best is None:
            search = DeepSearch(_list_space(q, search.space.kept, CELLS if q.constraints.tiles else FEW), q.objective)
            search.run()
        return search, (perfect.NOTE,)
    return search, ()


def _perfect(q: NestQuestion) -> tuple[Best | None, int, tuple[str, ...]]:
    """(the optimum of perfect factors, cells priced, notes): the first candidate."""
    if Feature.PADDED_ATOM in features(q):
        return None, 0, ()
    try:
        found = perfect.solve_perfect(replace(q, factors="perfect"))
    except InfeasibleError:
        return None, 0, ("no mapping with perfect factors",)
    sheet = found.certificate
    return Best(sheet.objective, found.mapping, found.cost), sheet.evaluated, tuple(note for note in sheet.notes if note == perfect.NOTE)


def _first(q: NestQuestion) -> tuple[Best | None, int, tuple[str, ...]]:
    """Some mapping to draw from: of few tiles that of least energy, or where that says nothing the optimum of perfect factors."""
    best, cells = None, 0
    aim = NestObjective("energy")
    for kept in q.masks if not q.effort.over else ():
        search = DeepSearch(_list_space(q, kept, FEW), aim, best, q.effort.part())
        with suppress(InfeasibleError, Exhausted):
            search.run()
        best, cells = search.best, cells + search.cells
    if best is None or not comparable(q, best):
        return _perfect(q)
    return best.under(q.objective), cells, ()


def _list_space(q: NestQuestion, kept: Stored, tiles: int) -> Space:
    """The divisible-inner space of one mask, of fewer numbers of parts where a fan has too many vectors to be listed; RackmodelError for a
    fixed tile that is not among its tiles."""
    sizes = list(q.problem.sizes.values())
    leaf = [*q.machine.compute.leaf(q.problem.sizes).values()]
    apart = 1
    while True:
        axes = [ListAxis(n, b, u, apart) for n, b, u in zip(sizes, budgets(sizes, tiles), leaf, strict=True)]
        space = Space(q.problem, q.machine, kept, q.constraints, axes=axes)
        if not _crowded(space):
            break
        apart *= 2
    for f in q.constraints.tiles:
        axis = axes[list(q.problem.sizes).index(f.rank)]
        if f.size not in axis.index:
            near = sorted(axis.index, key=lambda tile: abs(tile - f.size))[:3]
            raise RackmodelError(
                f"fixed tile {f.rank} = {f.size}: not among the tiles searched (near it: {', '.join(map(str, sorted(near)))}); "
                "use one of them, or perfect factors"
            )
    return space


def _crowded(space: Space) -> bool:
    """Whether a fan has more pairs of vectors on X and on Y than are listed."""
    return any(
        more_pairs(v.fan, [a.parts(v.fan) for a in space.axes], [[r in space.allowed(v.name, d) for r in space.ranks] for d in "XY"], PAIRS)
        for v in space.machine.levels
    )


SEARCHER = Searcher("ceil dp", "dp", all_but(Feature.PERFECT, Feature.RESIDENT, Feature.HOME), solve_deep)
