"""Ceil factors on any machine: exact in the divisible-inner space, with a relaxation as bound and the gap reported.

Per rank a list of tiles (list_axes); the first cut of a rank may be ragged, later tiles divide it, so the levels of the
cost tables still touch only through one tile. Slices, as for perfect factors, give latency and EDP: in each the least-energy
mapping is recounted (ragged cycles make time no longer additive, so it is not enumerated). The perfect-factor optimum is
a candidate too. The bound drops divisibility (relaxed_bound).
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf, prod

import numpy as np

from rackmodel.errors import InfeasibleError, RackmodelError
from rackmodel.nests.objective import TIE, NestObjective, better
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
from rackmodel.nests.searchers.registers.registers import UNSUPPORTED, least_energy
from rackmodel.nests.searchers.registers.timed_registers import least_timed
from rackmodel.nests.searchers.tables.cost_table import CostTable
from rackmodel.nests.searchers.tables.slices import Best, SliceSearch
from rackmodel.nests.solution import NestCertificate, NestSolution, gap_of

CELLS, FEW = 6000, 64  # tiles of all ranks together; where those took too much
PAIRS = 2**22  # of vectors on X and on Y of a fan
MANY = 64  # orders of all levels together: of more, divisors are searched first
CLOSE = 0.01  # gap up to which no other bound of the energy is asked for
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
    if sheet.ties or not sheet.proven or q.effort.over or (tied := join_ties(q, (sheet.objective, found.mapping, found.cost))) is None:
        return found
    (key, mapping, cost), evaluated = tied.best, sheet.evaluated + tied.cells
    return NestSolution(mapping, cost, replace(sheet, objective=key, evaluated=evaluated, ties=tied.ties))


def _searched(q: NestQuestion) -> NestSolution:
    """Best mapping over all masks."""
    if q.begun is not None and q.begun.left:
        return _again(q, q.begun)
    if len(q.machine.levels) == 1 and q.machine.levels[0].fan.size == 1 and not q.machine.compute.atom:
        return perfect.solve_perfect(replace(q, factors="perfect"))  # one memory and one unit: no tile is chosen
    joint = all(answers(q, kept) for kept in q.masks)
    many = joint and any(orders_together(q, kept) > MANY for kept in q.masks)
    later = joint and not many and not listable(q) and bool(features(q) & UNSUPPORTED)
    best, cells, notes = _first(q) if later else _perfect(q)
    if joint and best is None:  # no divisors there: programs and chains begin at some mapping
        best, more, _ = _first(q)
        cells += more
    if many or not joint:
        best, more = padded_best(q, best)
        cells += more
    for kept in q.masks if many else ():
        if best is not None:
            best, more = drawn_best(q, kept, best)
            cells += more
    stopped: tuple[str, ...] = ()
    slices, size = 0, 0.0
    pruned: dict[str, int] = {}
    bounds: list[float] = []
    searched: list[Stored] = []
    proven = -inf
    if not q.objective.energy_only:
        timed = least_timed(q, best, perfect=False)
        if timed is not None:
            best, cells = timed.best, cells + timed.cells
            if gap_of(best[0][0], timed.bound) <= TIE:
                return NestSolution(best[1], best[2], _sheet(best, timed.bound, (inf, cells, {}), (*notes, "every tile, ragged or not")))
            proven = timed.bound
    exact = None if q.objective.name == "latency" else least_energy(q, best, perfect=False)
    if exact is not None:
        best, cells = _better(q, best, exact.best), cells + exact.cells
        if q.objective.energy_only and gap_of(best[0][0], exact.bound) <= TIE:
            return NestSolution(best[1], best[2], _sheet(best, exact.bound, (inf, cells, {}), (*notes, "every tile, ragged or not")))
    boxed = joint and exact is None and q.objective.name != "latency" and not q.effort.over
    boxes = box_best(q, best) if boxed and best is not None else None
    if boxes is not None:
        best, cells = _better(q, best, boxes.best), cells + boxes.cells
        if q.objective.energy_only:
            return NestSolution(best[1], best[2], _sheet(best, boxes.bound, (inf, cells, {}), (*notes, BOXES)))
    if joint and best is not None and comparable(q, best) and exact is None and proven == -inf and not q.effort.over:
        joined = join_chains(q, best)
        if joined is not None and joined.closed:
            return _closed(joined, cells, notes)
        energy = 0.0 if boxes is None else boxes.bound
        return _joint(q, best if joined is None else joined.best, cells, notes, later, energy)
    floor = exact.bound if exact is not None and gap_of(exact.best[0][0], exact.bound) < CLOSE else 0.0
    for kept in q.masks:
        if best is not None and q.effort.over:
            bounds.append(least_key(q, kept, best[0][0], floor))
            stopped = (perfect.NOTE,)
            size = inf  # its tiles are not listed
            continue
        if best is not None:
            best, more = drawn_best(q, kept, best)
            cells += more
        search = DeepSearch(_list_space(q, kept, CELLS), q.objective, best, q.effort.part(SLOW))
        size += perfect.space_size(search.space)
        if best is not None and perfect.NOTE in notes and least_key(q, kept, best[0][0]) >= best[0][0] * (1 - TIE):
            continue  # where work is short, nothing is spent on the tie-break
        try:
            search, ended = _run(q, search)
            stopped = ended or stopped
        except InfeasibleError:
            pruned["masks infeasible"] = pruned.get("masks infeasible", 0) + 1
            continue
        best, cells, slices = search.best, cells + search.cells, slices + search.slices
        for name, n in search.pruned.items():
            pruned[name] = pruned.get(name, 0) + n
        searched.append(kept)
    if best is None:
        raise infeasible(q)
    if joined := None if q.effort.over else join_chains(q, best):
        best, cells = joined.best, cells + joined.cells
        if joined.closed:
            return _closed(joined, cells - joined.cells, notes)
    bounds += [least_key(q, kept, best[0][0], floor) for kept in searched]
    notes = tuple(dict.fromkeys((*notes, *stopped)))
    notes += ("exact over listed tiles, inner ones dividing outer ones; bound over tiles of any size", f"{slices} slices")
    return NestSolution(best[1], best[2], _sheet(best, max(proven, min(bounds, default=inf)), (size, cells, pruned), notes))


def _joint(q: NestQuestion, best: Best, cells: int, notes: tuple[str, ...], later: bool, energy: float) -> NestSolution:
    """Large problems of few orders: draws and branch and bound (joint_best). later: divisors are still to be searched, under what these
    find · energy: of every mapping at least."""
    bounds, left, size = [], [], 0.0
    for kept in q.masks:
        found = joint_best(q, kept, best, energy)
        best, cells = found.best, cells + found.cells
        bounds.append(found.bound)
        left.append(found.left)
        size += perfect.space_size(_list_space(q, kept, FEW))
    if later and Feature.PADDED_ATOM not in features(q) and not q.effort.over:
        divisors = perfect.solve_perfect(replace(q, factors="perfect"), best)
        best, cells = (divisors.certificate.objective, divisors.mapping, divisors.cost), cells + divisors.certificate.evaluated
    notes = tuple(note for note in notes if note != perfect.NOTE) + (("time is over",) if q.effort.late else ())
    return NestSolution(best[1], best[2], _sheet(best, min(bounds), (size, cells, {}), (*notes, DRAWN)), left)


def _again(q: NestQuestion, begun: NestSolution) -> NestSolution:
    """What was searched under another objective, gone on with."""
    best = q.objective.key(begun.cost.energy_j, begun.cost.latency_s), begun.mapping, begun.cost
    found = []
    for one in begun.left:
        assert isinstance(one, JointLeft)
        found.append(joint_again(q, one, best))
        best = found[-1].best
    cells, notes = sum(one.cells for one in found), (("time is over",) if q.effort.late else ()) + (DRAWN,)
    sheet = _sheet(best, min(one.bound for one in found), (begun.certificate.space, cells, {}), notes)
    return NestSolution(best[1], best[2], sheet, [one.left for one in found])


def _closed(joined: Joined, cells: int, notes: tuple[str, ...]) -> NestSolution:
    """What every chain says."""
    notes = (*(note for note in notes if note != perfect.NOTE), "every tile, ragged or not")
    sheet = _sheet(joined.best, joined.bound, (inf, cells + joined.cells, {}), notes)
    return NestSolution(joined.best[1], joined.best[2], replace(sheet, ties=joined.ties))


def _sheet(best: Best, bound: float, counts: tuple[float, int, dict[str, int]], notes: tuple[str, ...]) -> NestCertificate:
    """counts: mappings of the space, cells priced, slices by the bound that met them."""
    key, bound = best[0], min(bound, best[0][0])
    return NestCertificate(*counts, key, bound, gap_of(key[0], bound), SEARCHER.name, notes=notes, ties=False)


def _better(q: NestQuestion, best: Best | None, other: Best) -> Best:
    """The better of two, by the question's objective."""
    _, mapping, cost = other
    key = q.objective.key(cost.energy_j, cost.latency_s)
    return (key, mapping, cost) if best is None or better(key, best[0]) else best


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
    return (sheet.objective, found.mapping, found.cost), sheet.evaluated, tuple(note for note in sheet.notes if note == perfect.NOTE)


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
    return (q.objective.key(best[2].energy_j, best[2].latency_s), best[1], best[2]), cells, ()


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
