"""Every mix of policies that a stage may need: those that fit and that no other which fits beats layer by layer.

Policies are in an order in which each takes no longer than the next (none, selective, full). A mix beats another of the same layers if,
layer by layer, its policy comes no later: moving one layer to the policy before it makes a mix better. So a mix of which such a move
fits is not needed.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from rackmodel.arrays import Bools, Ints
from rackmodel.cost.step.bounds.memory import gathered_at_once
from rackmodel.mapper.stages.integers import NEVER, IntegerProblem
from rackmodel.mapper.stages.mixes import Tables
from rackmodel.once import once

MIXES = 20_000  # of one run, at most: of more only the fastest is looked at


@dataclass(frozen=True)
class StageMixes:
    """Of a run on a stage, by seconds. seconds: [n] least of each and of those it beats · joules: [n] · mixes: [n, K · Q] · complete:
    whether these are all that it may need."""

    seconds: Ints
    joules: Ints
    mixes: Ints
    complete: bool


class Options:
    """The mixes that a stage may need, by stage and run; found when asked for."""

    def __init__(self, integers: IntegerProblem, tables: Tables) -> None:
        self.integers, self.tables = integers, tables
        self.known: dict[tuple[int, int], StageMixes] = {}
        later = np.where(integers.uses, integers.seconds, NEVER)
        least = np.minimum.accumulate(later[:, :, ::-1], axis=2)[:, :, ::-1]
        self.least = np.where(integers.uses, least, 0).reshape(len(least), -1)  # [p, K · Q]
        self.moves = [
            [
                (k * own.shape[1] + later, k * own.shape[1] + sooner)
                for k, row in enumerate(own)
                for sooner, later in itertools.pairwise(np.flatnonzero(row).tolist())
            ]
            for own in integers.uses
        ]

    def of(self, stage: int, run: int) -> StageMixes:
        """Of a run of the tables; there is one that fits."""
        return once(self.known, (stage, run), lambda: self._found(stage, run))

    def _found(self, stage: int, run: int) -> StageMixes:
        fastest = self.tables.mix[stage, run][None]
        every = self._every(stage, self.tables.vectors[run])
        if every is not None:
            kept = self._fits(stage, every)
            for later, sooner in self.moves[stage]:
                moved = every.copy()
                moved[:, later] -= 1
                moved[:, sooner] += 1
                kept &= (moved[:, later] < 0) | ~self._fits(stage, moved)
            fastest = np.unique(np.concatenate([fastest, every[kept]]), axis=0)
        seconds = fastest @ self.least[stage] + self.integers.extra[0, stage]
        joules = fastest @ self.integers.joules.reshape(-1)
        order = np.lexsort((joules, seconds))
        return StageMixes(seconds[order], joules[order], fastest[order], every is not None)

    def _every(self, stage: int, vector: Ints) -> Ints | None:
        """[n, K · Q] all mixes of so many layers of each kind; None where there are too many."""
        parts, count = [], 1
        for kind, layers in enumerate(vector.tolist()):
            parts.append(_splits(layers, self.integers.uses[stage, kind]))
            count *= len(parts[-1])
            if count > MIXES:
                return None
        found = parts[0]
        for part in parts[1:]:
            found = np.hstack([np.repeat(found, len(part), axis=0), np.tile(part, (len(found), 1))])
        return found

    def _fits(self, stage: int, mixes: Ints) -> Bools:
        return np.asarray(held(self.integers, stage, mixes) <= self.integers.capacity[stage])


def held(integers: IntegerProblem, stage: int, mixes: Ints) -> Ints:
    """[n] bytes that a stage holds under each of [n, K · Q] mixes."""
    kept = integers.fixed[stage] + mixes @ (np.repeat(integers.state[stage], integers.saved.shape[1]))
    kept = kept + integers.flying[stage] * (mixes @ integers.saved.reshape(-1))
    working, gathered = (np.where(mixes > 0, layers.reshape(-1), 0).max(axis=1) for layers in (integers.working, integers.gathered))
    return np.asarray(kept + np.maximum(integers.space[stage], working) + gathered_at_once(gathered, integers.buffers[stage]))


def _splits(layers: int, allowed: Bools) -> Ints:
    """[n, Q] ways to give each of some layers an allowed policy."""
    use = np.flatnonzero(allowed)
    ways = list(itertools.combinations(range(layers + len(use) - 1), len(use) - 1))
    bars = np.array(ways, dtype=np.int64).reshape(len(ways), len(use) - 1)
    edges = np.hstack([np.full((len(bars), 1), -1), bars, np.full((len(bars), 1), layers + len(use) - 1)])
    found = np.zeros((len(bars), len(allowed)), dtype=np.int64)
    found[:, use] = np.diff(edges, axis=1) - 1
    return found
