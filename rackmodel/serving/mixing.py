"""How clients of a closed loop that all begin at once part, and what a prompt waits for others meanwhile. All of it counted in steps.

First requests come in a train of L = C d steps (d: of a prompt in a full queue), and then nobody for a while. So do the k-th ones, each
away from its place by what its answers were longer or shorter: by s1 = v Z in a wave (v: variation of lengths, Z: steps of an answer,
whole ones; with what chance adds where drafts are kept by chance, kept_drafts.py), by s = sqrt(k) s1 after k.

    window   1 / W = (erf(x) - (1 - exp(-x^2)) / (sqrt(pi) x)) / L        x = L / 2 s: how densely two clients meet; W is at most Z
    density  p = Phi(y / s) - Phi((y - L) / s) at y                       of the first train's; e = L / p + R - (C - 2) d steps are free
                                                                          (R: of a cycle beside decoding), or -e too few
    queue    (1 + L / (2 sqrt(pi) s1)) w^2 + |e| w = (C - 1) d^2 / 2      w steps of chance, and max(-e, 0)
    order    K_i = K - (K - K') i g / L, for a share 1 / g of a train       K steps that the first one is late, K' the others at least,
                                                                          g = 2 (a + w) / (K - K'); places.py has what follows
    gaps     a, the integral of 1 - exp(-t (t + d) / 4 h d) to h          h = sqrt(3) s: how soon before its place a train's first comes

queue: without its second term that of mean-value analysis (steady.py), of prompts at random. Those that are within s1 of their places
vary in any time by no more than V = 2 s1 / (sqrt(pi) d), what crosses its two ends, so that a full queue is w = d sqrt(pi V / 2) in the
mean. s1 alone, not s: prompts that wait for one another leave on places again.

order: the first of a train finds steps without prompts, which are short, so that more of them pass while it is on its way. All behind it
are that late, too, but for the gaps before them, a by the ends of the train and w by chance. So a share k = min(1 / g, 1) of a train
closes up behind its first one, and the rest moves as much nearer: even numbers less k of their width, or 0, vary by (1 - k)^3 (1 + 3 k)
of what they did, s' = sqrt(s^2 (1 - k)^3 (1 + 3 k) + s1^2). Lengths that vary so little that g <= 1 keep clients in order for ever.

groups: prompts that go first are taken with those of whoever ends while they are on their way, K steps, and all others keep their
distance: of a width of K / k one group and what is left, 12 (1 - k) k^3 of the variance for k from 3 / 4 on, else all of it.

Against loops that are run: tests/test_serving_mixing.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from rackmodel.arrays import Array, Bools
from rackmodel.serving.places import Lateness, Places, Way, way_in_train
from rackmodel.serving.requests import Requests

WAVES = (0, 1, 2, 3, 4, 6, 10, 20, 32)
"""Waves between two of them are taken as one; those beyond the last as the last."""
PLACES = ((1 / 6, -(3.0**0.5), 1 / 9), (1 / 6, 0.0, 4 / 9), (1 / 6, 3.0**0.5, 1 / 9), (1 / 2, 0.0, 2 / 9), (1 / 2, 3.0**0.5, 1 / 9))
"""Of clients: share of a train before their place, standard deviations from there, and how many (three thirds, Hermite's three points)."""
LEAST = 1e-200


@dataclass(frozen=True)
class Queue:
    """What clients' prompts wait in, [n] each. clients: that send them · each: steps that one takes when it is full · rest: steps of a
    cycle beside those of decoding and of waiting here · turns: of so many alike, to which they are dealt in turn, so that what comes
    to one varies by as much less."""

    clients: Array
    each: Array
    rest: Array
    turns: Any = 1.0


@dataclass(frozen=True)
class Order:
    """What is left of clients' order, a mean over the waves. kept: [n] share of them that are late as the first · way: of those."""

    kept: Array
    way: Way


@dataclass(frozen=True)
class Closing:
    """late: [n] steps by which gaps between prompts close in a wave · each: [n] steps from one place to the next · trains: [n] whether all
    behind the first come nearer by them, or those within them alone join it."""

    late: Array
    each: Array
    trains: Bools


@dataclass(frozen=True)
class Train:
    """Prompts of all clients that follow one another. step: [n] standard deviation of a wave's steps, s1 · waves, shares: [m, n] waves, and
    how many of all they stand for · decoding: [n] steps of an answer · start: [n] of the first train · spread: [m, n] standard deviation
    of the steps from places."""

    step: Array
    waves: Array
    shares: Array
    decoding: Array
    start: Array
    spread: Array

    @classmethod
    def of(cls, requests: Requests, decoding: Array, start: Array, closing: Closing | None = None, chance: Array | float = 0.0) -> Train:
        """Of n loops. decoding: [n] steps of an answer · start: [n] steps in which the first prompts come · closing: of gaps, or none ·
        chance: [n] standard deviation of the steps of answers of one length (Schedule.steps_deviation)."""
        later = np.maximum(requests.waves - 1.0, 1.0)
        before, until = (np.array(some, dtype=np.float64)[:, None] for some in (WAVES[:-1], WAVES[1:]))
        counts = np.clip(later - before, 0.0, until - before)
        waves = before + (counts + 1.0) / 2.0
        counts[-1] += np.maximum(later - WAVES[-1], 0.0)
        step = np.hypot(deviation_of_whole(wide(requests, requests.output)) * decoding / requests.gaps, chance)
        spread = np.sqrt(waves) * step
        if closing is not None and step.any():
            spread = np.where(closing.late > 0, _spread_of_waves(step, closing), spread)
        return cls(step, waves, counts / later, decoding, np.minimum(start, decoding), spread)

    @property
    def window(self) -> Array:
        """[n] steps in which prompts come, such that C / W is the mean over the waves after the first."""
        return self.window_up_to(self.decoding)

    def window_up_to(self, most: Array) -> Array:
        """The same where a wave's is no more than so many steps [n]."""
        if not self.step.any():
            return self.start
        x = self.start / np.maximum(2.0 * self.spread, 1e-9 * self.start)
        meet = erf(x) - (1.0 - np.exp(-np.minimum(x * x, 700.0))) / (np.sqrt(np.pi) * x)
        found = np.clip(self.start / np.maximum(meet, 1e-12), self.start, np.maximum(most, self.start))
        return np.asarray(1.0 / (self.shares / found).sum(axis=0))

    def queue(self, queue: Queue) -> Array:
        """[n] steps that a prompt waits for others, in the mean over the waves."""
        return np.add(*self.queued(queue))

    def queued(self, queue: Queue) -> tuple[Array, Array]:
        """The same apart: [n] steps that full steps are too few, and that prompts wait by chance."""
        short, chance = self._waits(self.spread, queue)
        return np.asarray((self.shares * short).sum(axis=0)), np.asarray((self.shares * chance).sum(axis=0))

    def _waits(self, spread: Array, queue: Queue) -> tuple[Array, Array]:
        """Steps that full steps are too few, and that prompts wait by chance. spread: s, [..., n]."""
        others = (queue.clients - 1.0) * queue.each
        enough = queue.rest + queue.each - others
        if not self.step.any():
            return np.maximum(-self.start - enough, 0.0) + 0.0 * spread, 0.0 * spread
        bound = 1.0 + np.minimum(queue.clients * queue.each, self.decoding) / np.maximum(2.0 * np.sqrt(np.pi) * self.step, LEAST)
        length = self.start / np.maximum(spread, 1e-9 * self.start)
        before, away, share = np.array(PLACES).T.reshape(3, -1, *(1 for _ in spread.shape))
        density = below(before * length + away) - below((before - 1.0) * length + away)
        half = (np.minimum(self.start / np.maximum(density, 1e-12), self.decoding) + enough) / 2.0
        short = share * np.maximum(-2.0 * half, 0.0)
        chance = share * (np.sqrt(half**2 + bound * queue.each * others / 2.0 / queue.turns) - np.abs(half)) / bound
        return short.sum(axis=0), chance.sum(axis=0)

    def order(self, queue: Queue, waiting: Array, soon: Array, places: Places) -> Order:
        """What is left of order. waiting, soon: [n] steps from an end to a prompt's own, those between without prompts, or with."""
        late = np.maximum(waiting - soon, 1e-9)
        under_way = queue.clients * queue.each - self.decoding
        spread, gaps, kept, found = (np.zeros_like(self.step) for _ in range(4))
        for share, before, until in zip(self.shares, WAVES[:-1], WAVES[1:], strict=True):
            _, chance = self._waits(np.hypot(spread * _left(gaps), self.step), queue)
            for _ in range(before, until):
                spread = np.hypot(spread * _left(gaps), self.step)
                gaps = 2.0 * (first_before(spread, queue.each) + chance) / late
            some = 1.0 / np.maximum(gaps, 1.0)
            way = way_in_train(queue.clients, queue.each, places, Lateness(waiting, late * gaps, some, chance, under_way))
            kept, found = kept + share * some, found + share * some * np.array([way.short, way.long, way.met])
        return Order(kept, Way(*(found / kept)))


def _spread_of_waves(step: Array, closing: Closing) -> Array:
    """[m, n] standard deviation of the steps from places, in the mean over the waves of each of WAVES, once gaps have closed."""
    spread, found = np.zeros_like(step), []
    for before, until in pairwise(WAVES):
        sum_of = np.zeros_like(step)
        for _ in range(before, until):
            spread = np.hypot(spread, step)
            gaps = 2.0 * first_before(spread, closing.each) / np.maximum(closing.late, 1e-9)
            spread = spread * np.where(closing.trains, _left(gaps), _left_of_groups(gaps))
            sum_of = sum_of + spread
        found.append(sum_of / (until - before))
    return np.array(found)


def _left(gaps: Array) -> Array:
    """Share of a deviation that a wave leaves of a train."""
    closed = np.minimum(1.0 / np.maximum(gaps, LEAST), 1.0)
    return np.asarray(np.sqrt((1.0 - closed) ** 3 * (1.0 + 3.0 * closed)))


def _left_of_groups(gaps: Array) -> Array:
    """The same of groups."""
    closed = np.minimum(1.0 / np.maximum(gaps, LEAST), 1.0)
    return np.where(closed > 0.75, np.sqrt(np.minimum(12.0 * (1.0 - closed) * closed**3, 1.0)), 1.0)


def first_before(spread: Array, each: Array) -> Array:
    """[n] steps by which the first of prompts that should come every `each` [n] steps comes before the first place, each as far from its
    own as even numbers of that spread [n]: of t (t + d) / 4 h d that come more than h - t before it, the integral of 1 - exp(-) to h."""
    far = np.maximum(np.sqrt(3.0) * spread, 1e-9 * each)
    scale = 2.0 * np.sqrt(far * each)
    later = np.exp(np.minimum(each / (16.0 * far), 700.0)) * (erf((far + each / 2.0) / scale) - erf(each / (2.0 * scale)))
    return np.asarray(np.maximum(far - np.sqrt(np.pi) / 2.0 * scale * later, 0.0))


def wide(requests: Requests, mean: Array) -> Array:
    """[n] tokens between the shortest and the longest of lengths of such a mean."""
    return np.asarray(np.sqrt(12.0) * np.minimum(requests.variation, 0.5) * mean)


def deviation_of_whole(width: Array) -> Array:
    """[n] standard deviation of whole numbers, those next to numbers that are even over a width [n] around a whole one: 0 up to one."""
    most = np.floor((width + 1.0) / 2.0)
    squares = (most - 1.0) * most * (2.0 * most - 1.0) / 3.0 + most**2 * (width + 1.0 - 2.0 * most)
    return np.asarray(np.sqrt(squares / np.maximum(width, LEAST)))


def below(x: Array) -> Array:
    """Share of a normal distribution below x standard deviations."""
    return np.asarray((1.0 + np.sign(x) * erf(np.abs(x) / np.sqrt(2.0))) / 2.0)


def erf(x: Array) -> Array:
    """The error function of x >= 0 within 2e-7. Source: Abramowitz and Stegun 1964, 7.1.26. (scipy.special takes 0.3 CPU s to load.)"""
    t = 1.0 / (1.0 + 0.3275911 * x)
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return np.asarray(1.0 - series * np.exp(-np.minimum(x * x, 700.0)))
