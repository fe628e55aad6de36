"""A lower bound of an objective by branch and bound: the joint programs, between whole numbers that come closer.

A node is a choice of orders and Ranges; its bound is that of its convex program (joint_program). The lowest nodes are cut in two at a
whole number that their program has put between two: pieces of a rank, parts laid out, copies of the output. Which one is learnt: by how
much the bounds of both halves rose before, for every number. The bound is that of the lowest node when the work is done. An
objective that is a product is bounded by a line a E + b T and by the least E and T alone, at the corners of what is left.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from math import exp, floor, inf, log

from rackmodel.nests.objective import TIE, NestObjective
from rackmodel.nests.searchers.continuous_bound import Saving
from rackmodel.nests.searchers.continuous_program import Ascent, rise
from rackmodel.nests.searchers.effort import Effort
from rackmodel.nests.searchers.joint_program import JointNest, JointProgram, Key, Range, Ranges, Weights
from rackmodel.nests.searchers.space import Space

TOGETHER = 8  # lowest nodes that are cut together
WHOLE, OPEN = 2e-4, 1e-5  # of a number that counts as whole; of the bound, what a chord may leave open
UNKNOWN = 1e3  # gain that is expected of a number never cut before, times that of chords
DONE = 2e-5  # of what is known: how near to its optimum a program is brought
MOST = 0.2  # of the bound: a gain counts no more


@dataclass(frozen=True)
class Cut:
    """Where a range may be cut in two, and how far the program is from each half."""

    key: Key
    parts: tuple[Range, Range]
    distances: tuple[float, float]


@dataclass
class Gains:
    """Rises of both halves, and the distances they were cut at, so far."""

    risen: list[float] = field(default_factory=lambda: [0.0, 0.0])
    distance: list[float] = field(default_factory=lambda: [1e-9, 1e-9])

    def expected(self, cut: Cut) -> float:
        """Product of what both halves should rise by; where only one rises, a little of that."""
        low, high = (r / d * far for r, d, far in zip(self.risen, self.distance, cut.distances, strict=True))
        return max(low, 1e-9) * max(high, 1e-9) + 1e-3 * min(low, high)


@dataclass(frozen=True)
class Node:
    """Mappings of one choice of orders between some whole numbers, with their bound."""

    program: JointProgram
    ranges: Ranges
    ascent: Ascent

    @staticmethod
    def of(program: JointProgram, ranges: Ranges, scale: float, least: float = -inf) -> Node:
        """least: what is known of its bound."""
        return Node(program, ranges, Ascent(program.between(ranges), scale, least))

    def cuts(self) -> list[Cut]:
        """Where it may be cut."""
        z, found = self.ascent.at, []
        for key in self.program.wholes():
            least, most = self.program.range_of(key, self.ranges)
            now = min(max(exp(z[self.program.index[key]]), least), most)
            below = floor(now + WHOLE / 2)
            if least < most and now - below > WHOLE and below < most:
                found.append(Cut(key, ((least, below), (below + 1, most)), (log(now / below), log((below + 1) / now))))
        return [*found, *self._chords()]

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
        self.nest, self.known = JointNest(space, weights), known
        self.gains: dict[Key, Gains] = {}
        orders = product(*(space.orders(level) for level in range(1, space.depth)))
        programs = [JointProgram(self.nest, order) for order in orders]
        self.nodes = [Node.of(program, self.nest.ranges(), abs(known)) for program in programs]
        rise([node.ascent for node in self.nodes], DONE)
        self._sort()

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
            chosen = [(node, max(cuts, key=self._expected)) for node in lowest if (cuts := node.cuts())]
            if not chosen or chosen[0][0] is not lowest[0]:
                break
            halves = [(node, cut, self._halves(node, cut)) for node, cut in chosen]
            rise([half.ascent for _, _, both in halves for half in both], DONE)
            gone = {id(node) for node, _ in chosen}
            self.nodes = [node for node in self.nodes if id(node) not in gone]
            for node, cut, both in halves:
                self._learn(node, cut, both)
                self.nodes += both
            work -= 2 * len(halves)
            self._sort()

    def _expected(self, cut: Cut) -> float:
        if cut.key in self.gains:
            return self.gains[cut.key].expected(cut)
        return UNKNOWN * max(cut.distances) * (1e6 if cut.key[0] == "copies" else 1.0)

    def _halves(self, node: Node, cut: Cut) -> list[Node]:
        ranges = [node.ranges.narrowed(cut.key, part) for part in cut.parts]
        return [Node.of(node.program, part, abs(self.known), node.ascent.value) for part in ranges]

    def _learn(self, node: Node, cut: Cut, both: list[Node]) -> None:
        gains = self.gains.setdefault(cut.key, Gains())
        for i, half in enumerate(both):
            gains.risen[i] += min(MOST, (half.ascent.value - node.ascent.value) / abs(self.known))
            gains.distance[i] += cut.distances[i]


def least_at_corners(objective: NestObjective, weights: Weights, line: float, energy: float, time: float) -> float:
    """Least key of any (E, T) with a E + b T >= line, E >= energy, T >= time; static power is none of E here.

    The key is linear, or E T with static power in E: along the line it is concave, so that an end of it is least.
    """
    a, b = weights.joule, weights.second
    corners = []
    if a > 0:
        corners.append((max(energy, (line - b * time) / a), time))
    if b > 0:
        corners.append((energy, max(time, (line - a * energy) / b)))
    return min(float(objective.key(e, t)[0]) for e, t in corners)
