"""One stage: the fastest mix of policies that fits, for every run of layers, by fronts of (bytes, seconds)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rackmodel.arrays import Bools, Ints
from rackmodel.cost.step.bounds.memory import gathered_at_once
from rackmodel.mapper.stages.cut_problem import CutProblem
from rackmodel.mapper.stages.integers import NEVER, IntegerProblem
from rackmodel.mapper.stages.needs import held_by, levels, needs_of, runs_of


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
    vectors: [runs, K] layers of each kind · seconds (NEVER: does not fit), joules: [p, runs] · forward:
    [2, p, runs] · once: [ONCE, p, runs] · mix: [p, runs, K · Q]."""

    width: int
    which: Ints
    vectors: Ints
    seconds: Ints
    forward: Ints
    once: Ints
    joules: Ints
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
    p, shape = problem.stages, integers.seconds.shape
    which, vectors = runs_of(problem, integers, width)
    seconds = np.full((p, len(vectors)), NEVER)
    joules, mix = np.zeros_like(seconds), np.zeros((p, len(vectors), shape[0] * shape[1]), dtype=np.int64)
    for on, found in _fastest(integers, vectors):
        seconds[on], joules[on], mix[on] = found
    short = (seconds >= NEVER) & (needs_of(integers, vectors) <= integers.capacity[:, None])
    for allowed, space, on in levels(integers) if short.any() else ():
        fronts, always = Fronts(integers, allowed), held_by(integers, vectors, on, space[on, None])
        for x in np.flatnonzero(short[on].any(axis=0)):
            front = fronts.of(tuple(vectors[x].tolist()))
            if not len(front.bytes):
                continue
            first = np.searchsorted(-front.bytes, -((integers.capacity[on] - always[:, x]) // integers.flying[on]))
            fits = short[on, x] & (first < len(front.bytes))
            first = np.minimum(first, len(front.bytes) - 1)
            own, heat = front.seconds[first] + integers.extra[0, on], front.joules[first]
            better = fits & ((own < seconds[on, x]) | ((own == seconds[on, x]) & (heat < joules[on, x])))
            at = on[better]
            seconds[at, x], joules[at, x], mix[at, x] = own[better], heat[better], front.mix[first[better]]
    forward, once = integers.forward @ vectors.T, integers.once @ vectors.T
    return Tables(width, which, vectors, seconds, forward, once, joules, mix, (shape[0], shape[1]))


def _fastest(integers: IntegerProblem, vectors: Ints) -> Iterator[tuple[Ints, tuple[Ints, Ints, Ints]]]:
    """Of stages that may use the same: (which, ([stages, runs] seconds under each layer's fastest policy, NEVER where that does not fit;
    [runs] joules, [runs, K · Q] mix)). Of equal seconds the least joules, then the fewest bytes: where it fits, no other mix is better."""
    kinds = np.arange(len(integers.seconds))
    for allowed, on in integers.alike():
        order = np.lexsort((integers.saved, integers.joules, integers.seconds, ~allowed), axis=1)
        best = kinds, order[:, 0]
        can = ~((vectors > 0) & ~allowed[best]).any(axis=1)
        working, gathered = (np.where(vectors > 0, size[best], 0).max(axis=1) for size in (integers.working, integers.gathered))
        space = np.maximum(integers.space[on, None], working) + gathered_at_once(gathered, integers.buffers[on, None])
        need = held_by(integers, vectors, on, space) + integers.flying[on, None] * (vectors @ integers.saved[best])
        mix = np.zeros((len(vectors), *integers.seconds.shape), dtype=np.int64)
        mix[:, kinds, best[1]] = vectors
        fits = can & (need <= integers.capacity[on, None])
        seconds = np.where(fits, vectors @ integers.seconds[best] + integers.extra[0, on, None], NEVER)
        yield on, (seconds, vectors @ integers.joules[best], mix.reshape(len(vectors), -1))


class Fronts:
    """Fronts of every count of layers by kind, each from the one with a layer less (a part of a best mix is a best mix)."""

    def __init__(self, integers: IntegerProblem, allowed: Bools) -> None:
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
