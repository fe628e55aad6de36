"""A lower bound of an objective by branch and bound: the joint programs, between whole numbers that come closer.

A node is a choice of orders and Ranges; its bound is that of its convex program (joint_program). The first node leaves the orders of every
level open. The lowest nodes are cut in two or three at a number that their program has put between whole ones (pieces and tiles of a rank,
parts laid out, rounds, waves, copies of the output), or into the orders of a level; where, says joint_cuts. The bound is that
of the lowest node when the work is done. An objective that is a product is bounded by a line a E + b T and by the least E and T alone,
at the corners of what is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import combinations, product
from math import ceil, exp, floor, inf, log

from rackmodel.arrays import Array
from rackmodel.nests.objective import TIE, NestObjective
from rackmodel.nests.searchers.bounds.continuous_bound import Saving
from rackmodel.nests.searchers.bounds.joint_cuts import Cut, Nearness
from rackmodel.nests.searchers.bounds.joint_narrow import narrowed
from rackmodel.nests.searchers.bounds.joint_nest import JointNest
from rackmodel.nests.searchers.bounds.joint_program import JointProgram
from rackmodel.nests.searchers.bounds.joint_ranges import Key, Ranges, Weights
from rackmodel.nests.searchers.bounds.program_ascent import Ascent, rise
from rackmodel.nests.searchers.effort import Effort
from rackmodel.nests.searchers.mapspace.full_fans import full_fans
from rackmodel.nests.searchers.mapspace.space import Space
from rackmodel.once import once

TOGETHER = 8  # lowest nodes that are cut together
WHOLE, OPEN = 2e-4, 1e-5  # of a number that counts as whole; of the bound, what a chord may leave open
AGAIN = 10.0  # times what a cut into orders took of a node, at most, of one within it
OPENED = 0.1  # of what is open: what cutting the orders of a level, or of all, before all else has to take
FILLED, WAYS = 3, 5  # lowest nodes whose widest fan is filled; ways to fill it, for each that is asked for (chosen by the time they take)
ROUGH = 1e-3  # as DONE, where a program says no more than where mappings are
PARALLEL, NEARLY = 1e-9, 1e-9  # of slopes, that are one; of a line, that a corner may lie below it
DONE, STEPS = 2e-5, 8  # of what is known: how near to its optimum a program is brought; steps towards it at once


@dataclass(frozen=True)
class Node:
    """Mappings of one choice of orders between some whole numbers, with their bound. ordered: score of the best cut into orders of the node
    around it."""

    program: JointProgram
    ranges: Ranges
    ascent: Ascent
    ordered: float = inf

    @staticmethod
    def of(program: JointProgram, ranges: Ranges, scale: float, around: Ascent | None = None, ordered: float = inf) -> Node | None:
        """around: of a node that holds this one. None where no whole numbers are left."""
        within, least = narrowed(program, ranges), -inf if around is None else around.value
        return None if within is None else Node(program, within, Ascent(program.between(within), scale, least, around), ordered)

    def cuts(self) -> list[Cut]:
        """Where it may be cut."""
        z, found = self.ascent.at, []
        for key in self.program.wholes():
            least, most = self.program.range_of(key, self.ranges)
            now = min(max(exp(z[self.program.index[key]]), least), most)
            below = floor(now + WHOLE / 2)
            if least < most and now - below > WHOLE and below < most:
                found.append(Cut(key, ((least, below), (below + 1, most)), (log(now / below), log((below + 1) / now))))
        return [*found, *self._tiles(), *self._chords()]

    def _tiles(self) -> list[Cut]:
        """Tiles that are no whole number of leaves: at the next whole number, at the one before, half way between, and where they are no
        whole number of elements."""
        z, found = self.ascent.at, []
        for level, r, v in self.program.tiles:
            key, u = ("tile", level, r, v), self.program.nest.leaf[r]
            if key not in self.program.index:
                continue
            least, most = self.program.range_of(key, self.ranges)
            now = min(max(exp(z[self.program.index[key]]), least), most)
            q = ceil(now / u * (1 - WHOLE))
            if now > u * q * (1 - WHOLE):
                continue
            half = int((q - 0.5) * u)
            ends = [end for end in ((half, q * u - 1) if now > half + 0.5 else ((q - 1) * u, half)) if least <= end < most]
            ends = ends or [end for end in (floor(now),) if least <= end < most]
            if ends:
                starts = least, *(end + 1 for end in ends)
                parts = tuple(zip(starts, (*ends, most), strict=True))
                far = [max(0.0, log(now / last), log(first / now)) for first, last in parts]
                found.append(Cut(key, parts, tuple(far)))
        return found

    def near(self, known: float) -> Nearness:
        """What is near its program's numbers."""
        gap = max(0.0, (known - self.ascent.value) / abs(known))
        return Nearness(self.program, self.ranges, self.ascent.program, self.ascent.at, gap, abs(known))

    def _chords(self) -> list[Cut]:
        """Ranges of copies in whose middle the chord is far off."""
        z, found = self.ascent.at, dict[Key, Cut]()
        for each, fans in self.program.fresh(self.ranges, z, abs(self.ascent.value)):
            saving = Saving(each, fans)
            now = float(self.program.copies_of(saving) @ z)
            a, b = self.program.chord(saving, self.ranges.copies)
            error = each * (a + b * now - exp(min(now, 700.0)))
            wide = [f for f in fans if self.ranges.copies[f][1] > self.ranges.copies[f][0]]
            if error > OPEN and wide:
                fan = max(wide, key=lambda f: self.ranges.copies[f][1] / self.ranges.copies[f][0])
                low, high = self.ranges.copies[fan]
                middle = min(high - 1, max(low, round(exp(min(700.0, float(z[self.program.index["copies", fan]]))))))
                found.setdefault(("copies", fan), Cut(("copies", fan), ((low, middle), (middle + 1, high)), (error, error)))
        return list(found.values())


class JointSearch:
    """Branch and bound of one Space under one set of weights. known: a E + b T of a mapping, without the MACs."""

    def __init__(self, space: Space, weights: Weights, known: float) -> None:
        self.nest, self.known, self.space = JointNest(space, weights), known, space
        orders = [space.orders(level) for level in range(1, space.depth)]
        free = frozenset(level for level, some in enumerate(orders, 1) if len(some) > 1)
        root = JointProgram(self.nest, [some[0] for some in orders], free)
        self.programs: dict[object, JointProgram] = {}
        self.nodes = [node for node in (Node.of(root, self.nest.ranges(), abs(known)),) if node is not None]
        rise([node.ascent for node in self.nodes], DONE, self.known)
        levels = sorted(free)
        while self.nodes and levels:
            levels = self._opened(levels)

    def under(self, weights: Weights, known: float) -> JointSearch:
        """The same nodes under other weights: what has been cut says of these too."""
        other, same = copy(self), weights.in_units_of(self.nest.weights)
        other.known, other.programs, other.nodes = known, {}, []
        other.nest = JointNest(self.space, weights) if same is None else self.nest.under(same)
        programs = dict[int, JointProgram]()
        for node in self.nodes:
            old = node.program
            if id(old) not in programs:
                programs[id(old)] = JointProgram(other.nest, old.orders[1:], old.free) if same is None else old.under(other.nest)
            program = programs[id(old)]
            made = program.between(node.ranges) if same is None else program.again(node.ascent.program, node.ranges)
            other.nodes.append(Node(program, node.ranges, Ascent(made, abs(known), like=node.ascent), node.ordered))
        rise([node.ascent for node in other.nodes], DONE, known)
        other._sort()
        return other

    def _opened(self, levels: list[int]) -> list[int]:
        """Cut all nodes into the orders of the level that takes most of what is open, if it takes much, or of all levels at once, if these
        together do; levels that are left."""
        least = self.nodes[0].ascent.value
        if least >= self.known:
            return []
        trials = {level: self._cut_into(self.nodes, level) for level in levels}
        taken = {level: self._taken(made, least) for level, made in trials.items()}
        best = max(taken, key=lambda level: taken[level])
        if taken[best] > OPENED:
            self.nodes = trials[best]
            return [level for level in levels if level != best]
        made = trials[best]
        for level in levels:
            made = made if level == best else self._cut_into(made, level)
        if self._taken(made, least) > OPENED:
            self.nodes = made
        return []

    def _taken(self, made: list[Node], least: float) -> float:
        """What nodes take of what is open."""
        return (made[0].ascent.value - least) / (self.known - least) if made else inf

    def _cut_into(self, nodes: list[Node], level: int) -> list[Node]:
        """Nodes, each with every order of a level."""
        cut = Cut(("order", level), (), (), tuple(self.space.orders(level)))
        made = [half for node in nodes for half in self._halves(node, cut, inf)]
        rise([half.ascent for half in made], DONE, self.known)
        return sorted(made, key=lambda node: node.ascent.value)

    def _sort(self) -> None:
        self.nodes.sort(key=lambda node: node.ascent.value)

    @property
    def bound(self) -> float:
        """Least a E + b T, without the MACs: no more than what is known."""
        least = min(self.known, self.nodes[0].ascent.value if self.nodes else inf)
        return least - 1e-9 * abs(least)

    def run(self, work: int, effort: Effort | None = None) -> None:
        """Cut nodes until none is below what is known, the lowest has nothing to be cut at, or so many programs are made."""
        while work > 0 and not (effort is not None and effort.over):
            lowest = [node for node in self.nodes[:TOGETHER] if node.ascent.value < self.known * (1 - TIE)]
            rising = [node.ascent for node in lowest if node.ascent.going]
            chosen = [(node, *cut) for node in lowest if not node.ascent.going and (cut := self._cut(node)) is not None]
            if not rising and (not chosen or chosen[0][0] is not lowest[0]):
                break
            halves = [(node, cut, self._halves(node, cut, ordered)) for node, cut, ordered in chosen]
            rise([*rising, *(half.ascent for _, _, both in halves for half in both)], DONE, self.known, STEPS)
            gone = {id(node) for node, _, _ in chosen}
            self.nodes = [node for node in self.nodes if id(node) not in gone]
            self.nodes += [half for _, _, both in halves for half in both]
            work -= sum(max(1, len(both)) for _, _, both in halves)
            self._sort()

    def _cut(self, node: Node) -> tuple[Cut, float] | None:
        """(where a node is cut, score of the best cut into orders); None where nothing is left to be cut. Cuts into orders, which take long
        to be judged, are looked at only where the others are no better than they were last."""
        near = node.near(self.known)
        cuts = [(near.score(cut), cut) for cut in node.cuts()]
        ordered = node.ordered * AGAIN
        if not cuts or max(score for score, _ in cuts) <= ordered:
            orders = [self._order_cut(node, near, level) for level in sorted(node.program.free)]
            some = [(near.score(cut), cut) for cut in orders]
            ordered = max((score for score, _ in some), default=-inf)
            cuts += some
        return (max(cuts, key=lambda one: one[0])[1], ordered) if cuts else None

    def _order_cut(self, node: Node, near: Nearness, level: int) -> Cut:
        orders = tuple(self.space.orders(level))
        missed = []
        for order in orders:
            program = self._program(node.program, level, order)
            missed.append(near.missed(program, node.ranges, program.numbers_before(node.program, {level})))
        return Cut(("order", level), (), tuple(missed), orders)

    def _program(self, program: JointProgram, level: int, order: tuple[int, ...]) -> JointProgram:
        orders = [order if n == level else () if n in program.free else old for n, old in enumerate(program.orders)]
        return once(self.programs, (tuple(orders), program.free - {level}), lambda: program.ordered(level, order))

    def _halves(self, node: Node, cut: Cut, ordered: float) -> list[Node]:
        scale = abs(self.known)
        if cut.orders:
            level = int(str(cut.key[1]))
            programs = [self._program(node.program, level, order) for order in cut.orders]
            made = [Node.of(program, program.ranges_of(level, node.ranges), scale, node.ascent, ordered) for program in programs]
        else:
            made = [Node.of(node.program, node.ranges.narrowed(cut.key, part), scale, node.ascent, ordered) for part in cut.parts]
        return [one for one in made if one is not None]

    def starts(self, most: int) -> list[tuple[JointProgram, Array]]:
        """Programs of given orders with numbers that are near those of some nodes, from the lowest to those next to what is known, as the
        lowest may hold no mapping: of each the orders that miss least."""
        below = [node for node in self.nodes if node.ascent.value < self.known] or self.nodes[:1]
        nodes = below[:: -(-len(below) // most)]
        found = [self._likely(node)[: -(-most // len(nodes))] for node in nodes]
        return [one for some in found for one in some][:most]

    def filled(self, most: int) -> list[tuple[JointProgram, Array]]:
        """The same near the lowest nodes where the units of the widest fan are all at work, or nearly, the lowest first: ways to share them
        out to the ranks lie far apart, and the lowest programs between them."""
        levels, ranks = self.space.machine.levels, range(len(self.space.ranks))
        f = max(range(len(levels)), key=lambda n: levels[n].fan.size)
        on_x, on_y = (self.space.allowed(levels[f].name, side) for side in "XY")
        allowed = [(rank in on_x, rank in on_y) for rank in self.space.ranks]
        keys: list[Key] = [("laid", f, r) for r in ranks]
        made = []
        for node in self.nodes[:FILLED]:
            ends = [node.program.range_of(key, node.ranges) if key in node.program.ends else (1, 1) for key in keys]
            for parts in full_fans(levels[f].fan, allowed, [end for _, end in ends], most * WAYS // FILLED):
                laid = {key: (n, n) for key, n, (_, end) in zip(keys, parts, ends, strict=True) if end > 1}
                ranges = replace(node.ranges, whole={**node.ranges.whole, **laid})
                made.append(Node.of(node.program, ranges, abs(self.known), node.ascent))
        some = [node for node in made if node is not None]
        rise([node.ascent for node in some], ROUGH, self.known)
        below = sorted((node for node in some if node.ascent.value < self.known), key=lambda node: node.ascent.value)
        return [self._likely(node)[0] for node in below[:most]]

    def _likely(self, node: Node) -> list[tuple[JointProgram, Array]]:
        near, levels = node.near(self.known), sorted(node.program.free)
        found = []
        for orders in product(*(self.space.orders(level) for level in levels)):
            program = node.program
            for level, order in zip(levels, orders, strict=True):
                program = self._program(program, level, order)
            before = program.numbers_before(node.program, set(levels))
            found.append((near.missed(program, node.ranges, before), program, node.ascent.at[before]))
        found.sort(key=lambda one: one[0])
        return [(program, z) for _, program, z in found]


@dataclass(frozen=True)
class Line:
    """a E + b T >= least of every mapping."""

    joule: float
    second: float
    least: float


def least_at_corners(objective: NestObjective, lines: Sequence[Line]) -> tuple[float, tuple[float, float]]:
    """(least key of any (E, T) above all lines, where); energy and time are bounded by one each; static power is none of E here.

    The key is linear, or E T with static power in E: along a line it is concave, so that a corner is least. What rounding may have put
    just below a line counts as a corner too: that only lowers the least.
    """
    found = []
    for one, other in combinations(lines, 2):
        turn = one.joule * other.second - one.second * other.joule
        if abs(turn) <= PARALLEL * (one.joule * other.second + one.second * other.joule):
            continue
        e = (one.least * other.second - other.least * one.second) / turn
        t = (other.least * one.joule - one.least * other.joule) / turn
        if all(line.joule * e + line.second * t >= line.least * (1 - NEARLY) for line in lines):
            found.append((float(objective.key(e, t)[0]), (e, t)))
    return min(found)
