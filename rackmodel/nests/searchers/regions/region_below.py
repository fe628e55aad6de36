"""Below one tile of a region: every member's branch, bounded, then looked at, until nothing there can be better than the best.

At first what tables say at full capacity, each by itself; then energy and times together, by lines (region_lines); then the branches, at
full capacity first, where what is best and has room at the capacity that is left is best there, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rackmodel.arrays import Array
from rackmodel.nests.objective import TIE, Key, NestObjective, better
from rackmodel.nests.searchers.effort import Effort
from rackmodel.nests.searchers.regions.region_branch import Above, Branch, Made
from rackmodel.nests.searchers.regions.region_space import RegionSpace

WHOLE = 0.0
"""Bits of level 1 that are taken where branches are bounded: none, whatever stays, so that tables serve regions of any residents."""
LADDER = 32  # parts of level 1 at which branches are priced before they are at what is left


class RegionCandidate(NamedTuple):
    """One tile of a prefix: what lies above each member's branch, the tiles that enter it, what statistics and operations made again
    cost."""

    above: tuple[Above, ...]
    exits: tuple[tuple[int, ...], ...]
    running: tuple[float, float]


class Lined(NamedTuple):
    """A candidate as it is bounded. spent: joules and seconds at least of what is carried and of every member; keys: likewise, energy and
    seconds together; second: tie-break at least."""

    candidate: RegionCandidate
    spent: list[tuple[float, float]]
    keys: list[float]
    second: float


class Where(NamedTuple):
    """A candidate of a search, and its members, if they are not those that are best there."""

    search: RegionBelow
    candidate: RegionCandidate
    members: list[Made] | None = None


@dataclass
class RegionBest:
    """The best of a region so far, whatever the loops: key and where it was met · left: of the objective, at least, what was not tried ·
    most: tiles that are tried, beyond which the search ends as where its effort does."""

    key: Key
    where: Where | None = None
    left: float = np.inf
    tried: int = 0
    bounded: int = 0
    candidates: int = 0
    prefixes: int = 0
    most: float = np.inf


class RegionBelow:
    """The branches of a region below the loops of one search. best: of all searches so far, where what is better is left."""

    def __init__(self, space: RegionSpace, aim: NestObjective, effort: Effort, best: RegionBest, branches: list[Branch]) -> None:
        self.space, self.region, self.aim, self.effort, self.best = space, space.region, aim, effort, best
        self.branches = branches
        self.capacity = np.inf if space.level.capacity_bits is None else space.level.capacity_bits
        self.loose = [0.0] * len(branches)  # by how much what lines said of each was too low where it was solved last

    def _keys(self, energy: Any, seconds: Any) -> tuple[Any, Any]:
        """Keys of figures; of energy alone the first of equal ones stands, whatever its seconds."""
        return (energy, np.zeros_like(energy)) if self.aim.energy_only else self.aim.key(energy, seconds)

    def _first(self, one: RegionCandidate) -> Lined | None:
        """A tile as lines of energy and times together bound it, at full capacity; None where it is no better than the best. Of energy
        alone it is looked at at once."""
        if self.aim.energy_only:
            self._exact_energy(one)
            return None
        parts = list(zip(one.above, self.branches, one.exits, strict=True))
        spent = [one.running, *(self._at_least(*part, WHOLE) for part in parts)]
        if self.best.key[0] == np.inf:
            self._of_least_energy(one)
        for above, branch, _ in parts:
            branch.prime(above, self.aim, WHOLE)
        return self._bounded(Lined(one, spent, [self._total([each])[0] for each in spent], self._total(spent)[1]))

    def _of_least_energy(self, one: RegionCandidate) -> None:
        """Something to begin with, where nothing is asked to be undercut: the branches of least energy below a tile."""
        members = [m for a, b in zip(one.above, self.branches, strict=True) if (m := b.of_least_energy(a, self.aim)) is not None]
        total = self._total([one.running, *((m.cost.energy_j, m.cost.latency_s) for m in members)])
        if len(members) == len(self.branches) and better(total, self.best.key):
            self.best.key, self.best.where = total, Where(self, one, members)

    def _bounded(self, one: Lined) -> Lined | None:
        """With the keys of its members raised to what lines say of them."""
        keys = list(one.keys)
        for n, (above, branch) in enumerate(zip(one.candidate.above, self.branches, strict=True), 1):
            most = self.best.key[0] * (1 + TIE) - sum(keys[:n] + keys[n + 1 :])
            keys[n] = max(keys[n], branch.bound(above, self.aim, WHOLE, most))
            if not better((sum(keys), one.second), self.best.key):
                return None
        return one._replace(keys=keys)

    def _closer(self, one: Lined) -> Lined | None:
        """A tile whose bound is the least: with a closer one, if there is one; else its branches are looked at."""
        key, raised = sum(one.keys), False
        for n, (above, branch) in enumerate(zip(one.candidate.above, self.branches, strict=True), 1):
            most = self.best.key[0] * (1 + TIE) - sum(one.keys[:n] + one.keys[n + 1 :])
            raised = branch.closer(above, self.aim, WHOLE, most) or raised
        again = self._bounded(one)
        if again is None or (raised and sum(again.keys) > key * (1 + TIE)):
            return again
        self._exact(again)
        return None

    def _exact(self, one: Lined) -> None:
        """Keep a tile where its branches, at the capacity that is left, are better than the best. Each is solved only while those solved
        and the bounds of the others are, first the one whose bound was lowest."""
        spent, keys = list(one.spent), list(one.keys)
        for i in sorted(range(len(self.branches)), key=lambda i: -self.loose[i]):
            n, above = i + 1, one.candidate.above[i]
            most = self.best.key[0] - sum(keys[:n] + keys[n + 1 :]) + TIE * abs(self.best.key[0])  # the aim is a sum over members
            made = self.branches[i].best(above, self.aim, (WHOLE, self._coarse(above.taken)), most)
            if made is None:
                self.loose[i] = max(self.loose[i], most - one.keys[n])
                return
            spent[n] = made.cost.energy_j, made.cost.latency_s
            keys[n] = self._total([spent[n]])[0]
            self.loose[i] = keys[n] - one.keys[n]
            if not better((sum(keys), self._total(spent)[1]), self.best.key):
                return
        if better(self._total(spent), self.best.key):
            self.best.key, self.best.where = self._total(spent), Where(self, one.candidate)

    def _exact_energy(self, one: RegionCandidate) -> None:
        """Keep a tile where it is better than the best, of energy alone, which tables say."""
        parts = list(zip(one.above, self.branches, one.exits, strict=True))
        spent = [one.running, *(self._at_least(*part, self._coarse(part[0].taken)) for part in parts)]
        for n, (above, branch, tile) in enumerate(parts, 1):
            if not better(self._total(spent), self.best.key):
                return
            spent[n] = above.joules + float(branch.least(above.prefix, above.taken)[tuple(tile)]), 0.0
        if better(self._total(spent), self.best.key):
            self.best.key, self.best.where = self._total(spent), Where(self, one)

    def _total(self, spent: Sequence[tuple[float, float]]) -> Key:
        """The key of joules and seconds of several, one after another."""
        first, second = self._keys(sum(joules for joules, _ in spent), sum(seconds for _, seconds in spent))
        return float(first), float(second)

    def _at_least(self, above: Above, branch: Branch, tile: Sequence[int], taken: float) -> tuple[float, float]:
        """Joules and seconds of a member at least; taken: no more bits than are."""
        seconds, at = [float(branch.seconds[tuple(tile)])], tuple(tile)
        for k, (_, bits) in enumerate(above.bits):
            below = float(branch.least(above.prefix, taken, k)[at])
            seconds.append((bits + below) / branch.bandwidth[k])
        return above.joules + float(branch.least(above.prefix, taken)[at]), max(seconds)

    def _coarse(self, taken: float) -> float:
        """No more than the bits taken, one of few: branches at it are bounds, and shared by many tiles."""
        step, held = self.capacity / LADDER, self.space.resident_bits
        return held + step * ((taken - held) // step) if np.isfinite(step) else held

    def made(self, where: Where) -> list[Made]:
        """The members of a candidate; what they take counts no more."""
        one = where.candidate
        if where.members is not None:
            return where.members
        with self.effort.lifted():
            found = [b.made(a, self.aim, (WHOLE, self._coarse(a.taken))) for a, b in zip(one.above, self.branches, strict=True)]
        return [made for made in found if made is not None]


def value_at(values: Array, cell: Sequence[int]) -> float:
    """Of an array over some of the joint axes, the value at a cell."""
    return float(values[tuple(i if n > 1 else 0 for i, n in zip(cell, values.shape, strict=True))])
