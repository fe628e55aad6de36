"""Lower bounds of convex programs that hold whatever the solver did.

Newton steps inside the constraints, whose slacks times multipliers shrink towards 0, find multipliers; for any multipliers >= 0 the
Lagrangian is convex, so its tangent at any z bounds it over the box: bound = L(z) + sum_k min over the box of (dL/dz_k) (z'_k - z_k).
A step looks first where slacks times multipliers would be 0, and aims for as much of that, curvature included, as went well (Mehrotra
1992); both directions share one factorisation. A program begins where one like it, with a wider box, was half-way; if that ends nowhere,
at a place of its own, and if that does, at another. Programs of one shape rise together (convex_stack).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from rackmodel.arrays import Array, Bools, Ints
from rackmodel.nests.searchers.bounds.continuous_program import ConvexProgram
from rackmodel.nests.searchers.bounds.convex_stack import Place, Stack

ROUNDS, STEPS = 2, 40  # of a program, of Newton in each
FIRST, START, OTHER = 0.3, 0.1, 0.3  # multipliers, slacks and misses to start from, at least; place in the box; and where that ends nowhere
WARM, LOOSE, WARMED = 0.3, 0.1, 16  # slack x multipliers that others begin at; slack to start from there, at least; steps it may take
AIM, ALMOST = 1e-3, 0.98  # least that a step aims to leave of slack x multipliers; how far to the ends of both
CURVED = 0.1  # of a step without aim: from which on its curvature says something
FARTHEST = 3.0  # a step of a logarithm
CROWDED = 0.6  # of the programs of a round: where no more go on, the others are left out
NEAR, DONE = 1e-5, 1e-6  # of the scale, slack x multipliers: that is worth no further round, no further step
TINY = 1e-30  # slack and multipliers


@dataclass(frozen=True)
class Inside:
    """Numbers, slacks and multipliers of the constraints."""

    z: Array
    slack: Array
    multipliers: Array

    @property
    def left(self) -> Array:
        """Slack x multipliers."""
        return np.asarray((self.slack * self.multipliers).sum(axis=-1))

    def pick(self, which: Ints | Bools | int) -> Inside:
        """Of some programs."""
        return Inside(self.z[which], self.slack[which], self.multipliers[which])


class Ascent:
    """A bound of a program that rises round by round. like: of a program with a wider box · own: so far · at: where it ended · tight: no
    more is to be had · ended: nor of more steps · floor: a bound that is known of it · inside: where it is · warm: where others may begin ·
    start: its own place in the box · steps: of Newton that are left."""

    def __init__(self, program: ConvexProgram, scale: float, floor: float = -inf, like: Ascent | None = None) -> None:
        self.program, self.scale = program, scale
        self.floor, self.own, self.rounds, self.tight, self.ended = floor, -inf, 0, False, False
        self.start = START
        self.at: Array = program.low + START * (program.high - program.low)
        self.inside: Inside | None = None
        self.warm: Inside | None = None
        self.begin = like.warm if like is not None and like.program.shape == program.shape else None
        self.steps = STEPS if self.begin is None else WARMED

    @property
    def value(self) -> float:
        """The bound."""
        return max(self.own, self.floor)

    @property
    def going(self) -> bool:
        """Whether further steps may make it better."""
        return not self.ended and self.steps > 0

    @property
    def stuck(self) -> bool:
        """Whether steps from its own first place have ended far from an optimum."""
        return self.steps <= 0 and not self.ended and self.start == START and self.inside is not None and float(self.inside.left) > WARM

    def again(self, start: float) -> None:
        """Begin at a place of its own."""
        self.start, self.begin, self.inside, self.steps = start, None, None, STEPS


def rise(ascents: Sequence[Ascent], done: float = DONE, enough: float = inf, most: int = STEPS) -> None:
    """One round of each. done: of the scale, slack x multipliers that are worth no further step · enough: no bound need be higher · most:
    steps; who needs more goes on in another round."""
    alike: dict[tuple[object, ...], list[Ascent]] = {}
    for ascent in ascents:
        alike.setdefault(ascent.program.shape, []).append(ascent)
    for some in alike.values():
        lost = _Round(some, done, enough, most).run()
        for ascent in lost:
            ascent.again(START)
        if lost:
            _Round(lost, done, enough, most).run()
        stuck = [ascent for ascent in some if ascent.stuck]
        for ascent in stuck:
            ascent.again(OTHER)
        if stuck:
            _Round(stuck, done, enough, most).run()
        for ascent in some:
            ascent.rounds += 1
            ascent.tight = ascent.inside is None or float(ascent.inside.left) < NEAR or ascent.rounds >= ROUNDS


class _Round:
    """One round of programs of one shape. live: those that go on, or are not left out yet · now: where these are · taken, until: steps of
    all."""

    def __init__(self, ascents: Sequence[Ascent], done: float, enough: float, most: int) -> None:
        self.ascents, self.done = ascents, done
        self.scales = np.array([ascent.scale for ascent in ascents])
        self.stack = Stack.of([ascent.program for ascent in ascents], self.scales)
        self.enough = enough / self.scales
        self.taken, self.until = 0, np.array([min(most, a.steps) for a in ascents])
        self.best = np.array([a.own for a in ascents]) / self.scales
        self.live = np.arange(len(ascents))
        self.now = self._begun()

    def _begun(self) -> Inside:
        """Where they are, or begin."""
        stack = self.stack
        cold = _cold(stack, np.array([[a.start] for a in self.ascents]))
        several = [a.inside or a.begin or cold.pick(i) for i, a in enumerate(self.ascents)]
        now = Inside(*(np.stack([getattr(one, name) for one in several]) for name in ("z", "slack", "multipliers")))
        warm = np.array([a.inside is None and a.begin is not None for a in self.ascents])[:, None]
        if not warm.any():
            return now
        slack = np.maximum(-stack.at(now.z).over, LOOSE)
        least = now.left[:, None] / slack.shape[1] / slack
        return Inside(now.z, np.where(warm, slack, now.slack), np.where(warm, np.maximum(now.multipliers, least), now.multipliers))

    def run(self) -> list[Ascent]:
        """Steps, until each is done; those that began near others and went nowhere."""
        while True:
            stack, now = self.stack, self.now
            place = stack.at(now.z)
            slope = stack.slope + stack.back(place, now.multipliers, place.terms)
            left = now.left
            self._note(stack.tangent(place, now.multipliers, slope), left)
            open_ = (left > self.done) & (self.best[self.live] < self.enough[self.live])
            on = open_ & (self.taken < self.until[self.live])
            if (going := int(on.sum())) <= CROWDED * len(self.live):
                for i in np.flatnonzero(~on).tolist():
                    ascent = self.ascents[self.live[i]]
                    ascent.inside, ascent.at, ascent.ended = now.pick(i), now.z[i, :-1], not open_[i]
                    ascent.steps -= self.taken
                if not going:
                    return [a for a in self.ascents if not a.ended and a.steps <= 0 and a.begin is not None]
                self.live = self.live[on]
                self.stack, now, place, slope = stack.pick(np.flatnonzero(on)), now.pick(on), place.pick(on), slope[on]
            self.now = _stepped(self.stack, place, slope, now)
            self.taken += 1

    def _note(self, bounds: Array, left: Array) -> None:
        """Bounds that are higher, places where others may begin."""
        for i, (at, bound) in enumerate(zip(self.live.tolist(), bounds.tolist(), strict=True)):
            ascent = self.ascents[at]
            if bound > self.best[at]:
                self.best[at] = bound
                ascent.own = bound * ascent.scale
            if ascent.warm is None and left[i] < WARM:
                ascent.warm = self.now.pick(i)


def _cold(stack: Stack, start: Array) -> Inside:
    """Near the low end of the box, all constraints missed together. start: [programs, 1] place in the box."""
    z = stack.low + start * (stack.high - stack.low)
    z[:, -1] = 0.0
    z[:, -1] = np.maximum(0.0, stack.at(z).over[:, : stack.layout.own].max(axis=1)) + FIRST
    slack = np.maximum(-stack.at(z).over, FIRST)
    return Inside(z, slack, np.full_like(slack, FIRST))


def _stepped(stack: Stack, place: Place, slope: Array, now: Inside) -> Inside:
    """After a step towards slope of the Lagrangian = 0, constraints + slack = 0, and slack x multipliers = what is aimed for."""
    own, k = stack.layout.own, stack.layout.numbers
    slack, multipliers = now.slack, now.multipliers
    weights, open_ = multipliers / slack, place.over + slack
    factors = _factors(stack.curve(place, weights, multipliers))
    slope = slope + multipliers[:, own : own + k] - multipliers[:, own + k :]

    def towards(aim: Array | float) -> Inside:
        """Changes."""
        pull = (aim - slack * multipliers + multipliers * open_) / slack
        force = slope + stack.back(place, pull) + pull[:, own : own + k] - pull[:, own + k :]
        move = _solved(factors, -force)
        longest = np.maximum(np.abs(move).max(axis=1, keepdims=True), 1e-300)
        move = move * np.minimum(1.0, FARTHEST / longest)
        along = stack.ahead(place, move)
        return Inside(move, -open_ - along, pull + weights * along)

    first = towards(0.0)
    far = _far(now, first, 1.0)
    mean = now.left / slack.shape[1]
    would = ((slack + far * first.slack) * (multipliers + far * first.multipliers)).mean(axis=1)
    aim = np.clip((would / mean) ** 3, AIM, 1.0) * mean
    curved = np.where(far > CURVED, first.slack * first.multipliers, 0.0)
    change = towards(aim[:, None] - curved)
    far = _far(now, change, ALMOST)
    return Inside(
        now.z + far * change.z,
        np.maximum(slack + far * change.slack, TINY),
        np.maximum(multipliers + far * change.multipliers, TINY),
    )


def _far(now: Inside, change: Inside, most: float) -> Array:
    """[programs, 1] how far all slacks and multipliers may go and stay above 0, at most 1."""
    shrink = np.maximum((-change.slack / now.slack).max(axis=1), (-change.multipliers / now.multipliers).max(axis=1))
    return np.asarray(np.minimum(1.0, most / np.maximum(shrink, 1e-300)))[:, None]


def _factors(curves: Array) -> list[Any]:
    """Of every matrix, whose upper half is given and is overwritten, its Cholesky factor; None where rounding has left it without one."""
    from scipy.linalg.lapack import dpotrf

    made = [dpotrf(curve.T, lower=1, clean=0, overwrite_a=1) for curve in curves]
    return [factor if info == 0 else None for factor, info in made]


def _solved(factors: list[Any], right: Array) -> Array:
    """[programs, k] answers; 0 where there is none."""
    from scipy.linalg.lapack import dpotrs

    found = np.zeros_like(right)
    for i, factor in enumerate(factors):
        if factor is not None:
            found[i] = dpotrs(factor, right[i], lower=1)[0]
    return np.where(np.isfinite(found), found, 0.0)
