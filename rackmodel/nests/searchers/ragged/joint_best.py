"""Any tile on deep machines, large problems: a better mapping by draws, a closer bound by branch and bound.

Programs (joint_program) say where the numbers of a good mapping are near; draws start there and at the best mapping known
(ragged_draws), first after a few programs, then as nodes are cut under the weights of the best (joint_search). All of it takes so many
programs, so that the same question ends the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, factorial, prod

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.nests.evaluate import evaluate
from rackmodel.nests.objective import TIE, NestObjective
from rackmodel.nests.searchers.bounds.joint_program import JointProgram
from rackmodel.nests.searchers.bounds.joint_ranges import Weights
from rackmodel.nests.searchers.bounds.joint_search import JointSearch, Line, least_at_corners
from rackmodel.nests.searchers.contract import NestQuestion
from rackmodel.nests.searchers.mapspace.list_axes import ListAxis, whole_axes
from rackmodel.nests.searchers.mapspace.rank_merging import merged_ranks
from rackmodel.nests.searchers.mapspace.space import Space
from rackmodel.nests.searchers.mapspace.stored_tensors import Stored
from rackmodel.nests.searchers.ragged.ragged_draws import Drawn, Draws
from rackmodel.nests.searchers.ragged.ragged_plan import RaggedPlan, orders_of
from rackmodel.nests.searchers.ragged.ragged_steps import kicked, stepped
from rackmodel.nests.searchers.ragged.rank_shares import shared_ratios
from rackmodel.nests.solution import Best

LARGE, ORDERS = 30_000, 128  # MACs from which, orders of the nodes of all levels together up to which it is asked for
WORK = 480  # programs of all masks together
STARTS, LOOKED, TURNS = 16, 2, 6  # nodes that mappings are looked for from; ends that are counted by either key; turns around what is known
MORE = 120  # programs of all masks together, where a search is gone on with
FIRST, KICKS = 64, (3, 2, 1)  # programs before it; draws around the best, after these and in the course of the work
FULL = 1  # draws around the best, after starts where fans are full (chosen by the time they take)
KEPT = 6  # ends that later draws are around, too
ANYWHERE = 2  # choices of orders of which a first mapping is drawn
CORNERS, WORTH = 4, 0.1  # further slopes of a product; of what is open, that one takes if few nodes say enough
OTHER = 0.01  # of a key: a mapping that is so much better has its slope looked at, too
SLOWER = 0.35  # of a part: what is rounded up


@dataclass(frozen=True)
class JointLeft:
    """Of one mask: nodes that hold all its mappings, and where steps have ended. space: of the draws."""

    space: Space
    search: JointSearch
    draws: Draws


@dataclass(frozen=True)
class JointBest:
    """best: mapping found or known before · bound: of the primary key, over every mapping of the mask · cells: rows counted and
    programs made · left: to be gone on with."""

    best: Best
    bound: float
    cells: int
    left: JointLeft


def answers(q: NestQuestion, kept: Stored) -> bool:
    """Whether a mask of the question is large, of few orders, and free of fixed tiles."""
    return large(q, kept) and not q.constraints.tiles and not q.resident and orders_together(q, kept) <= ORDERS


def large(q: NestQuestion, kept: Stored) -> bool:
    """Whether tiles of a mask are too many to list; none where one memory holds all, whose loops move the same words in any order."""
    return prod(q.problem.sizes.values()) > LARGE and any(kept[1:])


def orders_together(q: NestQuestion, kept: Stored) -> int:
    """Orders of the nodes of all levels, every choice of them."""
    return prod(factorial(sum(t.name in names for t in q.problem.tensors)) for names in kept[1:])


def comparable(q: NestQuestion, best: Best) -> bool:
    """Whether a mapping's words and seconds cost anything: bounds are in their units."""
    return best.cost.latency_s > 0 and best.cost.energy_j > q.machine.compute.joules(q.problem) * (1 + 1e-6)


def joint_best(q: NestQuestion, kept: Stored, best: Best, floor: float = 0.0) -> JointBest:
    """The search of one mask; best: of any mask so far · floor: what is known of the energy."""
    space, whole = real_space(q, kept), merged_space(q, kept)
    macs = q.machine.compute.joules(q.problem)
    work = max(2 * STARTS, WORK // len(q.masks))
    first = min(FIRST, work // 2)
    goal = q.objective if q.objective.energy_only else replace(q.objective, name="edp")  # says where every number of a good mapping is
    draws = Draws(goal, macs, best.cost.energy_j)
    best = explored(q, best, draws, [known_start(space, best, draws), *_anywhere(space, draws)], 0)
    guide = _search(whole, best, macs, _weights(goal, best))
    guide.run(first, q.effort)
    best = _drawn(q, space, guide, best, draws, KICKS[0])
    searches = [guide, _search(whole, best, macs, _weights(q.objective, best))]
    near = (_near(space, program, z, draws) for program, z in searches[-1].filled(max(1, STARTS // len(q.masks))))
    best = explored(q, best, draws, list(near), FULL)
    for kicks in KICKS[1:]:
        search, before = searches[-1], best
        search.known = min(search.known, _known_sum(search.nest.weights, best, macs))
        search.run(work // (len(KICKS) - 1), q.effort)
        best = _drawn(q, space, search, best, draws, kicks)
        draws.objective = q.objective
        search.known = min(search.known, _known_sum(search.nest.weights, best, macs))
        if q.objective.name == "edp" and best.primary < before.primary * (1 - OTHER):
            weights = _weights(q.objective, best).dominant()
            searches.append(search.under(weights, _known_sum(weights, best, macs)))
    return JointBest(best, _bound(q, searches, best, (macs, floor)), draws.cells + work, JointLeft(space, searches[-1], draws))


def joint_again(q: NestQuestion, left: JointLeft, best: Best) -> JointBest:
    """The search of one mask gone on with under another objective, no product: its nodes are priced again, and where energy and time both
    count some more are cut, and mappings looked for."""
    macs = q.machine.compute.joules(q.problem)
    weights = _weights(q.objective, best).dominant()
    search = left.search.under(weights, _known_sum(weights, best, macs))
    draws, work = Draws(q.objective, macs, best.cost.energy_j), 0
    draws.plans, draws.best = left.draws.plans, left.draws.best
    if weights.joule and weights.second:
        work = MORE // len(q.masks)
        search.run(work, q.effort)
        best = _drawn(q, left.space, search, best, draws, FULL)
        search.known = min(search.known, _known_sum(weights, best, macs))
    return JointBest(best, _bound(q, [search], best, (macs, 0.0)), draws.cells + work, JointLeft(left.space, search, draws))


def drawn_best(q: NestQuestion, kept: Stored, best: Best) -> tuple[Best, int]:
    """(the best of draws around a mapping that is known, rows counted); large problems alone."""
    if not large(q, kept) or q.constraints.tiles or q.resident or q.effort.over:
        return best, 0
    space = real_space(q, kept)
    draws = Draws(q.objective, q.machine.compute.joules(q.problem), best.cost.energy_j)
    start = known_start(space, best, draws)
    if start is None:
        return best, draws.cells
    best = _better(q, best, draws.around(start, 2 * TURNS, q.effort))
    draws.small = False
    return _better(q, best, draws.around(start, 2 * TURNS, q.effort)), draws.cells


def real_space(q: NestQuestion, kept: Stored) -> Space:
    return Space(q.problem, q.machine, kept, q.constraints, axes=whole_axes(q.problem, q.machine))


def merged_space(q: NestQuestion, kept: Stored) -> Space:
    """The same, ranks that no tensor tells apart as one: for programs alone."""
    groups = merged_ranks(q.problem, q.constraints.named_ranks(), q.machine.compute.atom)
    sizes = {name: prod(q.problem.sizes[r] for r in parts) for name, parts in groups.items()}
    leaf = {name: prod(q.machine.compute.atom.get(r, 1) for r in parts) for name, parts in groups.items()}
    axes = [ListAxis(n, 2, leaf[name]) for name, n in sizes.items()]
    return Space(q.problem, q.machine, kept, q.constraints, axes=axes, groups=groups)


def _weights(objective: NestObjective, best: Best) -> Weights:
    """Those of an objective at the best mapping."""
    cost = best.cost
    return Weights(*objective.weights(cost.energy_j, cost.latency_s), cost.energy_j, cost.latency_s)


def _search(space: Space, best: Best, macs: float, weights: Weights) -> JointSearch:
    weights = weights.dominant()
    return JointSearch(space, weights, _known_sum(weights, best, macs))


def _known_sum(w: Weights, best: Best, macs: float) -> float:
    """a E + b T of a mapping, without the MACs."""
    return w.joule * (best.cost.energy_j - macs) + w.second * best.cost.latency_s


def _bound(q: NestQuestion, searches: Sequence[JointSearch], best: Best, joules: tuple[float, float]) -> float:
    """Of the primary key: of a line's least where it is linear, else at the lowest corner of all lines. joules: of the MACs, of every
    mapping at least. What a line leaves out is at least that of the MACs, of the fastest compute; so is all."""
    macs, nest = joules[0], searches[-1].nest
    if q.objective.name != "edp":
        asked, line = _weights(q.objective, best), _line(searches[-1], macs)
        beside = (asked.second - line.second) * nest.fastest + (asked.joule - line.joule) * macs
        return max(line.least + beside, asked.second * nest.fastest + asked.joule * macs)
    lines = [Line(1.0, 0.0, max(joules)), Line(0.0, 1.0, nest.fastest), *(_line(search, macs) for search in searches)]
    least, corner = least_at_corners(q.objective, lines)
    search = searches[0]  # what is far from the best mapping takes few nodes
    for _ in range(CORNERS):
        if least >= best.primary * (1 - TIE) or q.effort.over:
            break
        weights = Weights(*q.objective.weights(*corner), best.cost.energy_j, best.cost.latency_s).dominant()
        lines.append(_line(search.under(weights, _known_sum(weights, best, macs)), macs))
        before, (least, corner) = least, least_at_corners(q.objective, lines)
        if least - before < WORTH * (best.primary - before):
            if search is searches[-1]:
                break
            search = searches[-1]
    return least


def _line(search: JointSearch, macs: float) -> Line:
    """What a search says, the MACs with it."""
    w = search.nest.weights
    return Line(w.joule, w.second, search.bound + w.joule * macs)


def _drawn(q: NestQuestion, space: Space, search: JointSearch, best: Best, draws: Draws, kicks: int = 0) -> Best:
    """The best of steps from the mapping that is known, if it is of this space, and from where the lowest programs point."""
    near = (_near(space, program, z, draws) for program, z in search.starts(STARTS))
    return explored(q, best, draws, [known_start(space, best, draws), *near], kicks)


def _anywhere(space: Space, draws: Draws) -> list[Drawn | None]:
    """Some mappings of some choices of orders, drawn anywhere."""
    choices = list(space.all_orders())
    some = draws.random.permutation(len(choices))[:ANYWHERE]
    return [draws.anywhere(draws.plan(space, choices[i])) for i in some.tolist()]


def explored(q: NestQuestion, best: Best, draws: Draws, starts: Sequence[Drawn | None], kicks: int) -> Best:
    """The best of steps from some starts, and from draws around the ends of these."""
    found = sorted((start for start in starts if start is not None), key=lambda drawn: drawn.near)
    if not found:
        return best
    before = [one for one in (draws.at(end.plan, end.row) for end in draws.best) if one is not None]
    ends = kicked(draws, [*before, *stepped(draws, found, q.effort)], kicks, q.effort)
    draws.best = ends[:KEPT]
    least = np.argsort([end.key for end in ends], kind="stable")[:LOOKED].tolist()
    for i in dict.fromkeys((*range(len(ends[:LOOKED])), *least)):
        best = _better(q, best, draws.tidy(ends[i]))
    return best


def _better(q: NestQuestion, best: Best, one: Drawn) -> Best:
    mapping = one.plan.mapping(one.row)
    return best.or_better(Best.of(q.objective, mapping, evaluate(q.problem, q.machine, mapping)))


def known_start(space: Space, best: Best, draws: Draws) -> Drawn | None:
    orders = orders_of(space, best.mapping)
    if any(sorted(order) != sorted(space.stored(level)) for level, order in enumerate(orders, 1)):
        return None
    plan = draws.plan(space, orders)
    return draws.at(plan, plan.row(best.mapping))


def _near(space: Space, program: JointProgram, z: Array, draws: Draws) -> Drawn | None:
    """The mapping next to a program's numbers."""
    plan = draws.plan(space, program.orders[1:])

    def tile(level: int, node: int, r: int) -> float:
        at = program.index.get(("tile", level, r, program.versions[level][0][node][r]))
        return 1.0 if at is None else max(1.0, exp(float(z[at])))

    def laid(fan: int, r: int) -> float:
        return max(1.0, exp(float(z[program.index["laid", fan, r]]))) if ("laid", fan, r) in program.index else 1.0

    near = [next_to(draws, plan, ratios) for ratios in shared_ratios(plan, program.space, tile, laid)]
    return min((one for one in near if one is not None), key=lambda one: one.near, default=None)


def next_to(draws: Draws, plan: RaggedPlan, ratios: Array) -> Drawn | None:
    """The best drawn around ratios that are real numbers; where none of them fits, those, rounded, the largest made smaller."""
    found = draws.near(plan, ratios)
    return draws.at(plan, _within(plan, np.floor(ratios + SLOWER).astype(np.int64))) if found is None else found


def _within(plan: RaggedPlan, ratios: Ints) -> Ints:
    """The row of ratios, the largest of them made smaller until it fits."""
    while not plan.fits(rows := plan.rows_of(ratios[None]))[0] and ratios.max() > 1:
        ratios = ratios.copy()
        ratios[int(np.argmax(ratios))] -= 1
    return np.asarray(rows[0])
