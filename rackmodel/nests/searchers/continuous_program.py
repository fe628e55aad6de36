"""Convex programs of exponentials, and lower bounds of them that hold whatever the solver did.

    minimise  constant + d z + sum_i c_i exp(A_i z)   with   log sum_j exp(P_j z + q_j) <= 0,  G z <= h,  low <= z <= high

An augmented Lagrangian with Newton steps finds multipliers; for any multipliers >= 0 the Lagrangian is convex, so its tangent at any z
bounds it over the box: bound = L(z) + sum_k min over the box of (dL/dz_k) (z'_k - z_k). Programs of one shape rise together, in arrays
whose first dimension is theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from rackmodel.nests.arrays import Bools, Floats, Ints

ROUNDS, STEPS = 9, 40  # of the multipliers, of Newton in each
PENALTY, GROWTH = 10.0, 3.0
ROUGH, FINE = 1e-5, 1e-10  # of the scale: where Newton ends in the first round, and later
NEAR = 1e-6  # of the scale: a rise that is worth no further round
LEAST, MOST = 1e-9, 1e6  # damping of Newton's steps
LEAST_GAIN = 1e-12  # of the scale: a step that promises less is not tried again


@dataclass(frozen=True)
class Exponentials:
    """sum_i exp(rows_i z + shift_i)."""

    rows: Floats
    shift: Floats

    def at(self, z: Floats) -> Floats:
        """[..., i] the terms at [..., k]."""
        return np.asarray(np.exp(np.clip(_times(self.rows, z) + self.shift, -700.0, 300.0)))


@dataclass(frozen=True)
class ConvexProgram:
    """terms, slope, constant: of the objective · rooms: whose sums are at most 1 · rows, limits: rows z <= limits · low, high: the box."""

    terms: Exponentials
    slope: Floats
    constant: float
    rooms: list[Exponentials]
    rows: Floats
    limits: Floats
    low: Floats
    high: Floats

    @property
    def shape(self) -> tuple[object, ...]:
        """Programs of one shape rise together."""
        return self.terms.rows.shape, self.rows.shape, tuple(room.rows.shape for room in self.rooms)


class Ascent:
    """A bound of a program that rises round by round. own: so far · at: where it was read off · tight: no more is to be had · floor: a
    bound that is known of it."""

    def __init__(self, program: ConvexProgram, scale: float, start: Floats | None = None, floor: float = -np.inf) -> None:
        self.program, self.scale = program, scale
        self.z = (program.low + program.high) / 2 if start is None else np.clip(start, program.low, program.high)
        self.multipliers = np.zeros(len(program.limits) + len(program.rooms) + 2 * len(program.low))
        self.penalty = PENALTY
        self.floor, self.own, self.at, self.rounds, self.tight = floor, -np.inf, self.z, 0, False

    @property
    def value(self) -> float:
        """The bound."""
        return max(self.own, self.floor)

    def risen(self, z: Floats, multipliers: Floats, bound: float) -> None:
        """Take one round's end."""
        self.z, self.multipliers = z, multipliers
        gain = bound - self.own
        if gain > 0:
            self.own, self.at = bound, z
        self.penalty *= GROWTH
        self.rounds += 1
        self.tight = gain < NEAR * self.scale or self.rounds >= ROUNDS


def rise(ascents: Sequence[Ascent]) -> None:
    """One round of each."""
    alike: dict[tuple[object, ...], list[Ascent]] = {}
    for ascent in ascents:
        alike.setdefault(ascent.program.shape, []).append(ascent)
    for some in alike.values():
        stack = _Stack.of(some)
        z, multipliers = _descend(stack, np.stack([ascent.z for ascent in some]))
        bounds = stack.tangent(z, multipliers)
        for number, ascent in enumerate(some):
            ascent.risen(z[number], multipliers[number], float(bounds[number]))


@dataclass(frozen=True)
class _Stack:
    """Programs in arrays, [programs, ...] each, in units of their scales, with their multipliers: of the rows, the rooms, the upper and
    the lower ends of the box."""

    terms: Exponentials
    slope: Floats
    constant: Floats
    rooms: tuple[Exponentials, ...]
    rows: Floats
    limits: Floats
    low: Floats
    high: Floats
    scale: Floats
    penalty: Floats
    multipliers: Floats

    @classmethod
    def of(cls, ascents: Sequence[Ascent]) -> _Stack:
        """The programs of some ascents."""
        programs = [ascent.program for ascent in ascents]
        scale = np.array([ascent.scale for ascent in ascents])
        return cls(
            terms=_stacked([program.terms for program in programs]),
            slope=np.stack([program.slope for program in programs]),
            constant=np.array([program.constant for program in programs]),
            rooms=tuple(_stacked(each) for each in zip(*(program.rooms for program in programs), strict=True)),
            rows=np.stack([program.rows for program in programs]),
            limits=np.stack([program.limits for program in programs]),
            low=np.stack([program.low for program in programs]),
            high=np.stack([program.high for program in programs]),
            scale=scale,
            penalty=np.array([ascent.penalty for ascent in ascents]),
            multipliers=np.stack([ascent.multipliers for ascent in ascents]),
        )

    def pick(self, which: Ints) -> _Stack:
        """Some of them."""

        def some(value: Floats | Exponentials | tuple[Exponentials, ...]) -> Floats | Exponentials | tuple[Exponentials, ...]:
            if isinstance(value, Exponentials):
                return Exponentials(value.rows[which], value.shift[which])
            if isinstance(value, tuple):
                return tuple(Exponentials(each.rows[which], each.shift[which]) for each in value)
            return value[which]

        return _Stack(**{field.name: some(getattr(self, field.name)) for field in fields(self)})  # type: ignore[arg-type]

    def value(self, z: Floats, terms: Floats) -> Floats:
        """[programs] the objectives."""
        return np.asarray(self.constant + (self.slope * z).sum(axis=1) + terms.sum(axis=1))

    def constraints(self, z: Floats) -> tuple[Floats, list[Floats]]:
        """([programs, constraints] g <= 0, shares of every room's terms)."""
        logs, shares = [], []
        for room in self.rooms:
            each = room.at(z)
            total = each.sum(axis=1, keepdims=True)
            logs.append(np.log(total))
            shares.append(each / total)
        return np.concatenate([_times(self.rows, z) - self.limits, *logs, z - self.high, self.low - z], axis=1), shares

    def merit(self, z: Floats) -> Floats:
        """[programs] the augmented Lagrangian."""
        force = np.maximum(0.0, self.multipliers + self.penalty[:, None] * self.constraints(z)[0])
        return np.asarray(self.value(z, self.terms.at(z)) / self.scale + (force**2).sum(axis=1) / (2 * self.penalty))

    def newton(self, z: Floats) -> tuple[Floats, Floats]:
        """(slope, curve) of the augmented Lagrangian."""
        terms, (g, shares) = self.terms.at(z) / self.scale[:, None], self.constraints(z)
        force, n = np.maximum(0.0, self.multipliers + self.penalty[:, None] * g), z.shape[1]
        own, most = self.limits.shape[1], g.shape[1] - 2 * n
        slopes = [(share[:, None] @ room.rows)[:, 0] for room, share in zip(self.rooms, shares, strict=True)]
        rows = np.concatenate([self.rows, *(each[:, None] for each in slopes)], axis=1)
        upper, lower = force[:, most : most + n], force[:, most + n :]
        slope = self.slope / self.scale[:, None] + _across(self.terms.rows, terms) + _across(rows, force[:, :most]) + upper - lower
        weights = self.penalty[:, None] * (force > 0)
        curve = _squared(self.terms.rows, terms) + _squared(rows, weights[:, :most])
        at = np.arange(n)
        curve[:, at, at] += weights[:, most : most + n] + weights[:, most + n :]
        for room, share, each, f in zip(self.rooms, shares, slopes, force[:, own:most].T, strict=True):
            curve += f[:, None, None] * (_squared(room.rows, share) - each[:, :, None] * each[:, None, :])
        return slope, curve

    def tangent(self, z: Floats, multipliers: Floats) -> Floats:
        """[programs] lower bounds: the ends of the box need no multipliers, over which the tangent is least."""
        g, shares = self.constraints(z)
        most = self.limits.shape[1] + len(self.rooms)
        pushed = multipliers[:, :most] * self.scale[:, None]
        terms = self.terms.at(z)
        slope = self.slope + _across(self.terms.rows, terms) + _across(self.rows, pushed[:, : self.limits.shape[1]])
        for room, share, one in zip(self.rooms, shares, pushed[:, self.limits.shape[1] :].T, strict=True):
            slope = slope + one[:, None] * (share[:, None] @ room.rows)[:, 0]
        least = np.minimum(slope * (self.low - z), slope * (self.high - z)).sum(axis=1)
        return np.asarray(self.value(z, terms) + (pushed * g[:, :most]).sum(axis=1) + least)


def _descend(stack: _Stack, z: Floats) -> tuple[Floats, Floats]:
    """Newton on the augmented Lagrangians; (z, new multipliers)."""
    z, whole = z.copy(), stack
    on = np.arange(len(z))  # programs that still step
    now, damping = stack.merit(z), np.full(len(z), 1e-6)
    ends = np.where(stack.penalty == PENALTY, ROUGH, FINE)
    for _ in range(STEPS):
        if not len(on):
            break
        at, then, damped = _step(stack, z[on], now[on], damping[on])
        better = then < now[on]
        gain = now[on] - then
        moved = on[better]
        easy = np.maximum(damped / 10, LEAST)
        damping[moved] = np.where(damped > damping[on], damped, easy)[better]
        z[moved], now[moved] = at[better], then[better]
        goes_on = better & (gain >= ends[on])
        if not goes_on.all():
            on = on[goes_on]
            stack = whole.pick(on)
    return z, np.maximum(0.0, whole.multipliers + whole.penalty[:, None] * whole.constraints(z)[0])


def _step(stack: _Stack, z: Floats, now: Floats, damping: Floats) -> tuple[Floats, Floats, Floats]:
    """(z, merit, damping) after one step of each, damped until it is better; where none is, merit is no less."""
    slope, curve = stack.newton(z)
    found, then, damping = z.copy(), now.copy(), damping.copy()
    left, eye = np.arange(len(z)), np.eye(z.shape[1])
    while len(left):
        step = -np.linalg.solve(curve[left] + damping[left, None, None] * eye, slope[left][:, :, None])[:, :, 0]
        step *= np.minimum(1.0, 3.0 / np.maximum(np.abs(step).max(axis=1), 1e-300))[:, None]
        some = stack if len(left) == len(z) else stack.pick(left)
        merit = some.merit(z[left] + step)
        good: Bools = merit < now[left]
        found[left[good]], then[left[good]] = z[left[good]] + step[good], merit[good]
        damping[left[~good]] *= 10
        promised = -(slope[left] * step).sum(axis=1) / 2  # by the curve; below it, merit is rounding
        left = left[~good & (damping[left] < MOST) & (promised > LEAST_GAIN)]
    return found, then, damping


# -- products of the arrays of programs --------------------------------------------------------------------------------------


def _stacked(several: Sequence[Exponentials]) -> Exponentials:
    return Exponentials(np.stack([one.rows for one in several]), np.stack([one.shift for one in several]))


def _times(rows: Floats, z: Floats) -> Floats:
    """[..., i] rows z."""
    return np.asarray((rows @ z[..., None])[..., 0])


def _across(rows: Floats, weights: Floats) -> Floats:
    """[programs, k] sum over rows, weighted."""
    return np.asarray((weights[:, None] @ rows)[:, 0])


def _squared(rows: Floats, weights: Floats) -> Floats:
    """[programs, k, k] sum over rows of their outer squares, weighted."""
    return np.asarray(np.swapaxes(rows, 1, 2) @ (rows * weights[:, :, None]))
