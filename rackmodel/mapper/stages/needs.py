"""Bytes alone: what every run of layers needs on every stage at least, and the nearest miss where no cut fits.

A run needs its state, what its policies that save least keep of every micro-batch in flight, and the largest workspace and buffers that it
uses: where a policy that saves less uses larger ones, the best of every pair of sizes counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rackmodel.arrays import Bools, Ints
from rackmodel.cost.step.bounds.memory import gathered_at_once
from rackmodel.errors import InfeasibleError
from rackmodel.mapper.stages.cut_problem import CutProblem
from rackmodel.mapper.stages.integers import BYTE, NEVER, IntegerProblem, integers_of
from rackmodel.units import bytes_text


class NoCutFits(InfeasibleError):
    """No cut of a problem fits. needs: [stages] bytes of the cut whose fullest stage has the largest share of its room, the share taken as
    what is needed over what there is; `need` and `have` are those of that stage."""

    def __init__(self, problem: CutProblem, needs: Sequence[float], layers: Sequence[int]) -> None:
        rooms = [problem.capacity_of(stage) for stage in range(problem.stages)]
        self.needs = tuple(needs)
        self.stage = max(range(problem.stages), key=lambda stage: (needs[stage] / rooms[stage], stage))
        need, have = needs[self.stage], rooms[self.stage]
        layer = "1 layer" if layers[self.stage] == 1 else f"{layers[self.stage]} layers"
        super().__init__(
            f"memory: of all cuts into {problem.stages} stages the smallest still needs {bytes_text(need)} on stage {self.stage} "
            f"({layer}), where {bytes_text(have)} may be held; short by {bytes_text(need - have)}",
            resource=f"stage {self.stage} memory",
            need=need,
            have=have,
            unit="byte",
        )


def runs_of(problem: CutProblem, integers: IntegerProblem, width: int) -> tuple[Ints, Ints]:
    """(numbers [L + 1, width + 1] of the runs of at most `width` layers from each layer on, -1: beyond the model, too few; [runs, K]
    layers of each kind)."""
    length = len(problem.kinds)
    start, size = np.arange(length + 1)[:, None], np.arange(width + 1)
    inside: Bools = np.logical_and(start + size <= length, size >= problem.fewest)
    counts = integers.runs[np.minimum(start + size, length)] - integers.runs[start]  # [L + 1, width + 1, K]
    vectors, number = np.unique(counts[inside], axis=0, return_inverse=True)
    which = np.full(inside.shape, -1, dtype=np.int64)
    which[inside] = number.reshape(-1)
    return which, vectors


def levels(integers: IntegerProblem) -> Iterator[tuple[Bools, Ints, Ints]]:
    """([K, Q] policies, [p] bytes, stages): what stages that may use the same may use where workspace and buffers are at most so large;
    the largest of each counts, apart."""
    for allowed, on in integers.alike():
        for working in np.unique(integers.working[allowed]):
            for gathered in np.unique(integers.gathered[allowed]):
                here = allowed & (integers.working <= working) & (integers.gathered <= gathered)
                if here.any():
                    yield here, np.maximum(integers.space, working) + gathered_at_once(gathered, integers.buffers), on


def needs_of(integers: IntegerProblem, vectors: Ints) -> Ints:
    """[p, runs] the least that each run needs on each stage; NEVER where a stage may use no policy of a layer of it. vectors: [runs, K]."""
    need = np.full((len(integers.fixed), len(vectors)), NEVER)
    for allowed, space, on in levels(integers):
        none = ~allowed.any(axis=1)
        saved = np.where(none, 0, np.where(allowed, integers.saved, NEVER).min(axis=1))
        here = held_by(integers, vectors, on, space[on, None]) + integers.flying[on, None] * (vectors @ saved)
        need[on] = np.minimum(need[on], np.where((vectors[:, none] > 0).any(axis=1), NEVER, here))
    return need


def held_by(integers: IntegerProblem, vectors: Ints, on: Ints, space: Ints) -> Ints:
    """[stages, runs] bytes of runs but for what is saved. on: stages · space: [stages, 1 or runs] workspace, buffers, of the ends too."""
    own = (integers.space + integers.buffers)[on, None]
    return np.asarray(integers.fixed[on, None] + np.where(vectors.any(axis=1), space, own) + integers.state[on] @ vectors.T)


def miss_of(problem: CutProblem, integers: IntegerProblem | None = None) -> NoCutFits | None:
    """Where no cut fits: the cut whose fullest stage, measured by its room, needs least. integers: the problem's, where they are known."""
    integers = integers or integers_of(problem)
    length, p = len(problem.kinds), problem.stages
    which, vectors = runs_of(problem, integers, length)
    needs = needs_of(integers, vectors)
    after = np.minimum(np.arange(length + 1)[:, None] + np.arange(length + 1), length)
    need = [np.where(which < 0, NEVER, needs[i][which]) for i in range(p)]
    over = [np.where((which < 0) | (needs[i][which] > integers.capacity[i]), 1, 0) for i in range(p)]
    share = [np.where(own >= NEVER, np.inf, own / BYTE / problem.capacity_of(i)) for i, own in enumerate(need)]
    value, misses = np.full((p + 1, length + 1), np.inf), np.ones((p + 1, length + 1), dtype=np.int64)
    value[p, length] = misses[p, length] = 0
    for i in range(p - 1, -1, -1):
        value[i] = np.maximum(share[i], value[i + 1][after]).min(axis=1)
        misses[i] = np.maximum(over[i], misses[i + 1][after]).min(axis=1)
    if not misses[0, 0]:
        return None
    at, least, layers = 0, [], []
    for i in range(p):
        count = int(np.maximum(share[i][at], value[i + 1][after[at]]).argmin())
        least.append(float(need[i][at, count]) / BYTE)
        layers.append(count)
        at += count
    return NoCutFits(problem, least, layers)
