"""One stage: the fastest mix of policies that fits, for every run of layers, by fronts of (bytes, seconds)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rackmodel.mapper.stages.cut_problem import CutProblem, Ints
from rackmodel.mapper.stages.integers import NEVER, IntegerProblem


@dataclass(frozen=True)
class Front:
    """Mixes of policies for a run of layers, fastest first, each with fewer bytes than all before: [n], mix [n, K · Q]."""

    bytes: Ints
    seconds: Ints
    joules: Ints
    mix: Ints


@dataclass(frozen=True)
class Tables:
    """Every run of at most `width` layers on every stage. which: [L + 1, width + 1] its number (-1: beyond the model, too few) ·
    vectors: [runs, K] layers of each kind · seconds (NEVER: does not fit), joules, need: [p, runs] · forward:
    [2, p, runs] · once: [ONCE, p, runs] · mix: [p, runs, K · Q]."""

    width: int
    which: Ints
    vectors: Ints
    seconds: Ints
    forward: Ints
    once: Ints
    joules: Ints
    need: Ints
    mix: Ints
    shape: tuple[int, int]

    def at(self, what: Ints, stage: int) -> Ints:
        """[L + 1, width + 1] of `what` for one stage, NEVER where there is no such run."""
        return np.where(self.which < 0, NEVER, what[stage, self.which])

    def mixes(self, layers: Sequence[int]) -> Ints:
        """[p, K, Q] of a cut."""
        starts = np.concatenate([[0], np.cumsum(layers)[:-1]])
        runs = self.which[starts, list(layers)]
        return self.mix[np.arange(len(runs)), runs].reshape(-1, *self.shape)


def tables_of(problem: CutProblem, integers: IntegerProblem, width: int) -> Tables:
    """The fastest mix of every run of at most `width` layers on every stage."""
    length, p, shape = len(problem.kinds), problem.stages, integers.seconds.shape
    start, size = np.arange(length + 1)[:, None], np.arange(width + 1)
    inside: NDArray[np.bool_] = np.logical_and(start + size <= length, size >= problem.fewest)
    counts = integers.runs[np.minimum(start + size, length)] - integers.runs[start]  # [L + 1, width + 1, K]
    vectors, number = np.unique(counts[inside], axis=0, return_inverse=True)
    which = np.full(inside.shape, -1, dtype=np.int64)
    which[inside] = number.reshape(-1)
    seconds, need = np.full((p, len(vectors)), NEVER), np.full((p, len(vectors)), NEVER)
    joules, mix = np.zeros_like(seconds), np.zeros((p, len(vectors), shape[0] * shape[1]), dtype=np.int64)
    for fronts, space, on in _levels(integers):
        for x, vector in enumerate(vectors):
            front = fronts.of(tuple(int(n) for n in vector))
            if not len(front.bytes):
                continue
            always = (integers.fixed + (space if vector.any() else integers.space + integers.buffers) + integers.state @ vector)[on]
            need[on, x] = np.minimum(need[on, x], always + integers.flying[on] * front.bytes[-1])
            first = np.searchsorted(-front.bytes, -((integers.capacity[on] - always) // integers.flying[on]))
            fits = first < len(front.bytes)
            first = np.minimum(first, len(front.bytes) - 1)
            own, heat = front.seconds[first] + integers.extra[0, on], front.joules[first]
            better = fits & ((own < seconds[on, x]) | ((own == seconds[on, x]) & (heat < joules[on, x])))
            at = on[better]
            seconds[at, x], joules[at, x], mix[at, x] = own[better], heat[better], front.mix[first[better]]
    forward, once = integers.forward @ vectors.T, integers.once @ vectors.T
    return Tables(width, which, vectors, seconds, forward, once, joules, need, mix, (shape[0], shape[1]))


def _levels(integers: IntegerProblem) -> Iterator[tuple[Fronts, Ints, Ints]]:
    """(fronts, [p] bytes, stages) of what stages that may use the same may use where workspace and buffers are at most so large: the
    largest of each counts, apart."""
    each, of = np.unique(integers.uses.reshape(len(integers.uses), -1), axis=0, return_inverse=True)
    for number, flat in enumerate(each):
        allowed, on = flat.reshape(integers.allowed.shape), np.flatnonzero(of.reshape(-1) == number)
        for working in np.unique(integers.working[allowed]):
            for gathered in np.unique(integers.gathered[allowed]):
                here = allowed & (integers.working <= working) & (integers.gathered <= gathered)
                if here.any():
                    yield Fronts(integers, here), np.maximum(integers.space, working) + np.maximum(integers.buffers, gathered), on


class Fronts:
    """Fronts of every count of layers by kind, each from the one with a layer less (a part of a best mix is a best mix)."""

    def __init__(self, integers: IntegerProblem, allowed: NDArray[np.bool_]) -> None:
        kinds, policies = allowed.shape
        none = np.zeros(1, dtype=np.int64)
        self.known = {(0,) * kinds: Front(none, none, none, np.zeros((1, kinds * policies), dtype=np.int64))}
        self.layer = []
        for kind in range(kinds):
            use = np.flatnonzero(allowed[kind])
            one = np.eye(kinds * policies, dtype=np.int64)[kind * policies + use]
            self.layer.append(Front(integers.saved[kind, use], integers.seconds[kind, use], integers.joules[kind, use], one))

    def of(self, counts: tuple[int, ...]) -> Front:
        """The front of a run of so many layers of each kind."""
        missing: list[tuple[tuple[int, ...], int]] = []
        while counts not in self.known:
            kind = max(k for k, n in enumerate(counts) if n)
            missing.append((counts, kind))
            counts = (*counts[:kind], counts[kind] - 1, *counts[kind + 1 :])
        front = self.known[counts]
        for longer, kind in reversed(missing):
            front = self.known[longer] = _join(front, self.layer[kind])
        return front


def _join(run: Front, layer: Front) -> Front:
    """A run and one more layer under each of its policies; of equal time and joules, the one with fewest bytes."""
    saved, seconds, joules = (
        np.add.outer(a, b).reshape(-1) for a, b in ((layer.bytes, run.bytes), (layer.seconds, run.seconds), (layer.joules, run.joules))
    )
    order = np.lexsort((saved, joules, seconds))
    least = np.minimum.accumulate(saved[order])
    kept = order[np.concatenate([[True], least[1:] < least[:-1]])[: len(order)]]
    mix = layer.mix[kept // len(run.bytes)] + run.mix[kept % len(run.bytes)] if len(kept) else layer.mix[:0]
    return Front(saved[kept], seconds[kept], joules[kept], mix)
