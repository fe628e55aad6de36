"""The least step of the columns whose bounds are below what is found, by branch and bound over a layer's choices.

Each column under each home, policy and schedule begins as one node with all choices. In turn the node of the least bound

    is probed     every value of every variable alone; values whose bound is enough are struck out
    is split      by the values of one variable, the one whose children rise most

until the least node has one value of each variable left, or its bound is enough. So the bound is of what the tables say of one layout,
not of a mixture of several: what memory, lanes and operations weigh is settled together.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rackmodel.mapper.layouts.branches import FAR, HERE, NEAR, NEARER, Branches, Column, Left, Nodes
from rackmodel.mapper.layouts.layer_prices import Weights
from rackmodel.mapper.layouts.layer_tables import Attained
from rackmodel.watch import Watch

MOST = 4_000  # nodes that are bounded, so that a search ends at the same place on every machine
LEAVES = 6  # layouts that are told
NOTHING = Weights(memory=np.zeros(1), lane=np.zeros(1), host=np.zeros(1))
STRUCK = 3  # values struck out for which a node is bounded anew instead of split


@dataclass(frozen=True)
class Leaf:
    """A layout. number: of the column it is for."""

    number: int
    attained: Attained


@dataclass(frozen=True)
class Closed:
    """seconds: what no step of the columns is below, no more than what was enough · leaves: layouts of the least nodes, the best first."""

    seconds: float
    leaves: tuple[Leaf, ...]


@dataclass(order=True)
class _Node:
    """left: of one node · at: the prices of its bound, of one · alone: whether that is of one layout, at its own best prices."""

    seconds: float
    order: int
    number: int = field(compare=False)
    branches: Branches = field(compare=False)
    left: Left = field(compare=False)
    at: Weights = field(compare=False)
    alone: bool = field(compare=False, default=False)


@dataclass(frozen=True, kw_only=True)
class _Kids:
    """What a probe finds: variables and values, each left alone, with their bounds and the prices of these."""

    names: list[str]
    values: list[int]
    nodes: Nodes


def _reduced(node: _Node) -> _Node:
    """A node without the values that are struck out or dominated."""
    branches = node.branches if all(own.all() for own in node.left.values()) else node.branches.only(node.left)
    kept = branches.undominated()
    while any(not own.all() for own in kept.values()):
        branches = branches.only(kept)
        kept = branches.undominated()
    return replace(node, branches=branches, left=branches.all())


class Closing:
    """The columns' least steps. enough: seconds beyond which no bound is looked at closer · spent: nodes bounded before, which count."""

    def __init__(self, columns: Sequence[Column], enough: float, watch: Watch, spent: int = 0) -> None:
        self.columns, self.enough, self.watch, self.spent = columns, enough, watch, spent
        self.counter, self.heap = itertools.count(), list[_Node]()

    def run(self) -> Closed:
        """Best first, until a layout is the least of all, or no node is below what is enough, or so many were bounded."""
        least, leaves = self.enough, list[Leaf]()
        for number in sorted(range(len(self.columns)), key=lambda number: self.columns[number].least):
            if self._over():
                least = min(least, self.columns[number].least)
                break
            self._begin(number, self.columns[number])
        while self.heap and len(leaves) < LEAVES:
            if self._over():
                least = min(least, self.heap[0].seconds)
                break
            self.watch.say(f"bounds of free layouts, {self.spent} of {MOST} nodes at most")
            node = _reduced(heapq.heappop(self.heap))
            if not all(own.sum() == 1 for own in node.left.values()):
                self._branch(node)
            elif node.alone:
                least = min(least, node.seconds)
                leaves.append(Leaf(node.number, node.branches.choice(node.left, 0)))
            elif (alone := self._bounded(node.number, node.branches, node.left, node.at, far=True)) is not None:
                heapq.heappush(self.heap, replace(alone, seconds=max(alone.seconds, node.seconds), alone=True))
        return Closed(least, tuple(leaves))

    def _over(self) -> bool:
        return self.spent >= MOST or self.watch.over()

    def _begin(self, number: int, column: Column) -> None:
        """A column's node, with what probing it leaves."""
        branches = Branches.of(column)
        if branches is None:
            return
        node = self._bounded(number, branches, branches.all(), NOTHING, far=True)
        while node is not None:
            left = self._struck(node, self._probed(node))
            if left is None:
                return
            probed = _reduced(replace(node, left=left))
            if probed.branches.counts == node.branches.counts:
                heapq.heappush(self.heap, node)
                return
            node = self._bounded(number, probed.branches, probed.left, node.at)

    def _bounded(self, number: int, branches: Branches, left: Left, at: Weights, *, far: bool = False) -> _Node | None:
        """A node with its bound; None where that is enough."""
        found = branches.bound(left, at, FAR if far else NEARER)
        self.spent += 1
        if found.seconds[0] >= self.enough:
            return None
        return _Node(float(found.seconds[0]), next(self.counter), number, branches, left, found.at)

    def _probed(self, node: _Node) -> _Kids:
        """Every value of every variable alone; those that are not enough at the node's prices at some near them."""
        open_ = [name for name, own in node.left.items() if own.sum() > 1]
        kids = [(name, int(value)) for name in open_ for value in np.flatnonzero(node.left[name][:, 0])]
        left = {name: np.repeat(own, len(kids), axis=1) for name, own in node.left.items()}
        for number, (name, value) in enumerate(kids):
            left[name][:, number] = False
            left[name][value, number] = True
        n = len(kids)
        found = node.branches.bound(left, node.at.of(np.zeros(n, dtype=np.intp)), HERE)
        self.spent += n
        again = np.flatnonzero(found.seconds < self.enough)
        if len(again):
            some = {name: own[:, again] for name, own in left.items()}
            closer = node.branches.bound(some, found.at.of(again), NEAR)
            found.seconds[again] = closer.seconds
            found.at.put(again, closer.at)
        names, values = [name for name, _ in kids], [value for _, value in kids]
        return _Kids(names=names, values=values, nodes=found)

    def _struck(self, node: _Node, kids: _Kids) -> Left | None:
        """What a probe leaves of a node; None for nothing."""
        left = {name: own.copy() for name, own in node.left.items()}
        for number in np.flatnonzero(kids.nodes.seconds >= self.enough):
            left[kids.names[number]][kids.values[number], 0] = False
        return left if all(own.any() for own in left.values()) else None

    def _branch(self, node: _Node) -> None:
        kids = self._probed(node)
        left = self._struck(node, kids)
        if left is None:
            return
        struck = int((kids.nodes.seconds >= self.enough).sum())
        if struck >= STRUCK or all(own.sum() == 1 for own in left.values()):
            again = self._bounded(node.number, node.branches, left, node.at)
            if again is not None:
                again.seconds = max(again.seconds, node.seconds)
                heapq.heappush(self.heap, again)
            return
        name = max((name for name, own in left.items() if own.sum() > 1), key=lambda name: self._rise(node, kids, name))
        for number, (other, value) in enumerate(zip(kids.names, kids.values, strict=True)):
            if other == name and left[name][value, 0]:
                alone = np.zeros_like(left[name])
                alone[value] = True
                seconds, at = max(node.seconds, float(kids.nodes.seconds[number])), kids.nodes.at.of([number])
                heapq.heappush(self.heap, _Node(seconds, next(self.counter), node.number, node.branches, {**left, name: alone}, at))

    def _rise(self, node: _Node, kids: _Kids, name: str) -> float:
        """How far a split by a variable raises bounds: most where all its children rise."""
        each = [float(seconds) for other, seconds in zip(kids.names, kids.nodes.seconds, strict=True) if other == name]
        rises = sorted(min(seconds, self.enough) - node.seconds for seconds in each)
        return 10.0 * rises[0] + rises[1]
