"""Convex programs of exponentials, and lower bounds of them that hold whatever the solver did.

    minimise  constant + d z + sum_i c_i exp(A_i z)   with   log sum_j exp(P_j z + q_j) <= 0,  G z <= h,  low <= z <= high

Newton steps inside the constraints, whose slacks times multipliers shrink towards 0, find multipliers; for any multipliers >= 0 the
Lagrangian is convex, so its tangent at any z bounds it over the box: bound = L(z) + sum_k min over the box of (dL/dz_k) (z'_k - z_k).
Programs of one shape rise together, in arrays whose first dimension is theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np

from rackmodel.nests.arrays import Floats, Ints, Number

ROUNDS, STEPS = 2, 40  # of a program, of Newton in each
FIRST, START, SMALL = 0.3, 0.1, 1e-6  # multipliers and misses to start from; place in the box; slack at least
MISSED, FAR = 10.0, 1e3  # what a miss of 1 costs, in units of the scale; the largest miss
CENTRE, ALMOST = (0.02, 0.3), 0.98  # least, most that a step aims to leave of slack x multipliers; how far to the ends of both
FARTHEST = 3.0  # a step of a logarithm
NEAR, DONE = 1e-5, 1e-6  # of the scale, slack x multipliers: that is worth no further round, no further step
INSIDE = 1e-6  # by which every constraint is loosened, so that there is an inside
LEAST, TINY = 1e-11, 1e-30  # curve; slack and multipliers
PRODUCT, VECTOR = 250_000, 30  # multiplications of two matrices that one thread does; of which a matrix and a vector count so many


@dataclass(frozen=True)
class Exponentials:
    """sum_i exp(rows_i z + shift_i)."""

    rows: Floats
    shift: Floats

    def at(self, z: Floats) -> Floats:
        """[..., i] the terms at [..., k]."""
        return np.asarray(np.exp(np.clip(_times(self.rows, z) + self.shift, -700.0, 300.0)))


@dataclass(frozen=True)
class Room:
    """A sum of exponentials that is at most constant + slope z, which is more than 0 wherever z may be."""

    terms: Exponentials
    slope: Floats
    constant: Number

    def at(self, z: Floats) -> tuple[Floats, Floats]:
        """([programs, terms], [programs]) of the terms, of what there is."""
        return self.terms.at(z), np.maximum(self.constant + (self.slope * z).sum(axis=-1), TINY)

    def pick(self, which: Ints) -> Room:
        """Of some programs."""
        return Room(Exponentials(self.terms.rows[which], self.terms.shift[which]), self.slope[which], np.asarray(self.constant)[which])


@dataclass(frozen=True)
class ConvexProgram:
    """terms, slope, constant: of the objective · rooms: what must hold · rows, limits: rows z <= limits · low, high: the box."""

    terms: Exponentials
    slope: Floats
    constant: float
    rooms: list[Room]
    rows: Floats
    limits: Floats
    low: Floats
    high: Floats

    def loosened(self, scale: float) -> ConvexProgram:
        """The same with one more number, at the end, by which every row and room may be missed, at a price: there is always an inside, and
        no bound of it is above the optimum."""

        def more(rows: Floats, last: float) -> Floats:
            return np.concatenate([rows, np.full((len(rows), 1), last)], axis=1)

        terms = Exponentials(more(self.terms.rows, 0.0), self.terms.shift)
        rooms = [Room(Exponentials(more(r.terms.rows, -1.0), r.terms.shift), np.append(r.slope, 0.0), r.constant) for r in self.rooms]
        slope, low, high = (np.append(old, end) for old, end in ((self.slope, MISSED * scale), (self.low, 0.0), (self.high, FAR)))
        return ConvexProgram(terms, slope, self.constant, rooms, more(self.rows, -1.0), self.limits, low, high)

    @property
    def shape(self) -> tuple[object, ...]:
        """Programs of one shape rise together."""
        return self.terms.rows.shape, self.rows.shape, tuple(room.terms.rows.shape for room in self.rooms)


class Ascent:
    """A bound of a program that rises round by round. own: so far · at: where it was read off · tight: no more is to be had · floor: a
    bound that is known of it · slack, multipliers: of its constraints."""

    def __init__(self, program: ConvexProgram, scale: float, floor: float = -np.inf) -> None:
        self.program, self.scale = program.loosened(scale), scale
        low, high = self.program.low, self.program.high
        many = len(program.limits) + len(program.rooms) + 2 * len(low)
        self.z: Floats = np.append(low[:-1] + START * (high - low)[:-1], 0.0)
        self.slack: Floats = np.zeros(many)
        self.multipliers: Floats = np.full(many, FIRST)
        self.floor, self.own, self.at, self.rounds, self.tight = floor, -np.inf, self.z[:-1], 0, False

    @property
    def value(self) -> float:
        """The bound."""
        return max(self.own, self.floor)

    def risen(self, z: Floats, slack: Floats, multipliers: Floats, bound: float) -> None:
        """Take one round's end."""
        self.z, self.slack, self.multipliers = z, slack, multipliers
        if bound > self.own:
            self.own, self.at = bound, z[:-1]
        self.rounds += 1
        self.tight = float(slack @ multipliers) < NEAR or self.rounds >= ROUNDS


def rise(ascents: Sequence[Ascent], done: float = DONE) -> None:
    """One round of each. done: of the scale, slack x multipliers that are worth no further step."""
    alike: dict[tuple[object, ...], list[Ascent]] = {}
    for ascent in ascents:
        alike.setdefault(ascent.program.shape, []).append(ascent)
    for some in alike.values():
        for ascent, z, slack, multipliers, bound in zip(some, *_round(_Stack.of(some), some, done), strict=True):
            ascent.risen(z, slack, multipliers, float(bound))


@dataclass(frozen=True)
class _Squares:
    """Outer squares of rows that are 0 nearly everywhere: of every pair of numbers of a row, [pairs] its program, its row, where in the
    square it is, its product. shape: programs, rows, columns."""

    program: Ints
    row: Ints
    place: Ints
    product: Floats
    shape: tuple[int, int, int]

    @classmethod
    def of(cls, rows: Floats) -> _Squares:
        """rows: [programs, rows, columns]."""
        columns, flat = rows.shape[2], rows.reshape(-1, rows.shape[2])
        row, at = np.nonzero(flat)
        number = np.bincount(row, minlength=len(flat))
        each, begin = number[row], (np.cumsum(number) - number)[row]
        one = np.repeat(np.arange(len(row)), each)
        other = np.arange(len(one)) - np.repeat(np.cumsum(each) - each, each) + np.repeat(begin, each)
        value = flat[row, at]
        program, within = np.divmod(row[one], rows.shape[1])
        return cls(program, within, at[one] * columns + at[other], value[one] * value[other], rows.shape)

    def pick(self, which: Ints) -> _Squares:
        """Of some programs."""
        new = np.full(self.shape[0], -1)
        new[which] = np.arange(len(which))
        on = new[self.program] >= 0
        return _Squares(new[self.program[on]], self.row[on], self.place[on], self.product[on], (len(which), *self.shape[1:]))

    def sum(self, weights: Floats) -> Floats:
        """[programs, k, k] over the rows, weighted [programs, rows]."""
        programs, _, k = self.shape
        each = self.product * weights[self.program, self.row]
        found: Floats = np.bincount(self.program * (k * k) + self.place, weights=each, minlength=programs * k * k).astype(np.float64)
        return found.reshape(programs, k, k)


@dataclass(frozen=True)
class _Stack:
    """Programs in arrays, [programs, ...] each, in units of their scales."""

    terms: Exponentials
    slope: Floats
    constant: Floats
    rooms: tuple[Room, ...]
    rows: Floats
    limits: Floats
    low: Floats
    high: Floats
    scale: Floats
    squares: _Squares

    @classmethod
    def of(cls, ascents: Sequence[Ascent]) -> _Stack:
        """The programs of some ascents."""
        programs = [ascent.program for ascent in ascents]
        terms, rows = _stacked([program.terms for program in programs]), np.stack([program.rows for program in programs])
        rooms = tuple(_several(each) for each in zip(*(program.rooms for program in programs), strict=True))
        return cls(
            terms=terms,
            slope=np.stack([program.slope for program in programs]),
            constant=np.array([program.constant for program in programs]),
            rooms=rooms,
            rows=rows,
            limits=np.stack([program.limits for program in programs]),
            low=np.stack([program.low for program in programs]),
            high=np.stack([program.high for program in programs]),
            scale=np.array([ascent.scale for ascent in ascents]),
            squares=_Squares.of(np.concatenate([terms.rows, rows, *(room.terms.rows for room in rooms)], axis=1)),
        )

    def pick(self, which: Ints) -> _Stack:
        """Some of them."""

        def some(value: Floats | Exponentials | _Squares | tuple[Room, ...]) -> Floats | Exponentials | _Squares | tuple[Room, ...]:
            if isinstance(value, _Squares):
                return value.pick(which)
            if isinstance(value, Exponentials):
                return Exponentials(value.rows[which], value.shift[which])
            if isinstance(value, tuple):
                return tuple(each.pick(which) for each in value)
            return value[which]

        return _Stack(**{field.name: some(getattr(self, field.name)) for field in fields(self)})  # type: ignore[arg-type]

    def value(self, z: Floats, terms: Floats) -> Floats:
        """[programs] the objectives."""
        return np.asarray(self.constant + (self.slope * z).sum(axis=1) + terms.sum(axis=1))

    def constraints(self, z: Floats) -> tuple[Floats, list[Floats], list[Floats]]:
        """([programs, constraints] g <= 0, shares of every room's terms, slope of the logarithm of what there is of it)."""
        logs, shares, slopes = [], [], []
        for room in self.rooms:
            each, there = room.at(z)
            total = each.sum(axis=1, keepdims=True)
            logs.append(np.log(total / there[:, None]))
            shares.append(each / total)
            slopes.append(room.slope / there[:, None])
        g = np.concatenate([_times(self.rows, z) - self.limits, *logs, z - self.high, self.low - z], axis=1) - INSIDE
        return g, shares, slopes

    def step(self, z: Floats, slack: Floats, multipliers: Floats, centre: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """(z, slack, multipliers, how far it went) after a step towards slope + J multipliers = 0, g + slack = 0, and slack x multipliers =
        `centre` of what their mean is."""
        terms, (g, shares, there) = self.terms.at(z) / self.scale[:, None], self.constraints(z)
        n, own = z.shape[1], self.limits.shape[1]
        most = own + len(self.rooms)
        slopes = [_across(room.terms.rows, share) for room, share in zip(self.rooms, shares, strict=True)]
        rows = np.concatenate([self.rows, *((each - more)[:, None] for each, more in zip(slopes, there, strict=True))], axis=1)

        def back(force: Floats) -> Floats:
            """J transposed times a force of every constraint."""
            return _across(rows, force[:, :most]) + force[:, most : most + n] - force[:, most + n :]

        weights, open_ = multipliers / slack, g + slack
        forces = list(multipliers[:, own:most].T[:, :, None])
        few = [terms, weights[:, :own], *(one * share for one, share in zip(forces, shares, strict=True))]
        curve = self.squares.sum(np.concatenate(few, axis=1))
        if self.rooms:
            full = np.stack([*(each - more for each, more in zip(slopes, there, strict=True)), *slopes, *there], axis=1)
            by = np.concatenate([weights[:, own:most], -multipliers[:, own:most], multipliers[:, own:most]], axis=1)
            curve += squared(full, by)
        at = np.arange(n)
        curve[:, at, at] += weights[:, most : most + n] + weights[:, most + n :]
        curve[:, at, at] += LEAST * (1.0 + curve[:, at, at])
        part: Floats = centre[:, None] * (slack * multipliers).sum(axis=1, keepdims=True) / slack.shape[1]
        pull = (part - slack * multipliers + multipliers * open_) / slack
        slope = self.slope / self.scale[:, None] + _across(self.terms.rows, terms) + back(multipliers + pull)
        move = _solved(curve, -slope)
        longest = np.maximum(np.abs(move).max(axis=1, keepdims=True), 1e-300)
        move = move * np.minimum(1.0, FARTHEST / longest)
        along = np.concatenate([_times(rows, move), move, -move], axis=1)
        looser = -open_ - along
        harder = pull + weights * along
        far = np.minimum(_within(slack, looser), _within(multipliers, harder))[:, None]
        return z + far * move, np.maximum(slack + far * looser, TINY), np.maximum(multipliers + far * harder, TINY), far[:, 0]

    def tangent(self, z: Floats, multipliers: Floats) -> Floats:
        """[programs] lower bounds: the ends of the box need no multipliers, over which the tangent is least."""
        g, shares, there = self.constraints(z)
        most = self.limits.shape[1] + len(self.rooms)
        pushed = multipliers[:, :most] * self.scale[:, None]
        terms = self.terms.at(z)
        slope = self.slope + _across(self.terms.rows, terms) + _across(self.rows, pushed[:, : self.limits.shape[1]])
        for room, share, more, one in zip(self.rooms, shares, there, pushed[:, self.limits.shape[1] :].T, strict=True):
            slope = slope + one[:, None] * (_across(room.terms.rows, share) - more)
        least = np.minimum(slope * (self.low - z), slope * (self.high - z)).sum(axis=1)
        return np.asarray(self.value(z, terms) + (pushed * (g[:, :most] + INSIDE)).sum(axis=1) + least)


def _solved(curve: Floats, slope: Floats) -> Floats:
    """[programs, k] where curve x = slope; 0 for all where rounding has left one of them without an answer."""
    try:
        return np.asarray(np.linalg.solve(curve, slope[:, :, None])[:, :, 0], dtype=np.float64)
    except np.linalg.LinAlgError:
        return np.zeros_like(slope)


def _within(now: Floats, change: Floats) -> Floats:
    """[programs] how far all of them may go and stay above 0, at most 1."""
    return np.asarray(np.minimum(1.0, ALMOST / np.maximum(-change / now, 1e-300).max(axis=1)))


def _round(stack: _Stack, ascents: Sequence[Ascent], done: float) -> tuple[Floats, Floats, Floats, Floats]:
    """(z, slack, multipliers, bounds) after some steps."""
    z, slack, multipliers = (np.stack([getattr(a, name) for a in ascents]) for name in ("z", "slack", "multipliers"))
    new = np.flatnonzero(slack[:, 0] == 0)
    missed, own = stack.constraints(z)[0], stack.limits.shape[1] + len(stack.rooms)
    z[new, -1] = np.maximum(0.0, missed[new, :own].max(axis=1)) + FIRST
    slack[new] = np.maximum(-stack.constraints(z)[0][new], SMALL)
    some, centre = stack, np.full(len(z), CENTRE[1])
    for _ in range(STEPS):
        on = np.flatnonzero((slack * multipliers).sum(axis=1) > done)
        if not len(on):
            break
        if len(on) < len(some.scale):
            some = stack.pick(on)
        z[on], slack[on], multipliers[on], far = some.step(z[on], slack[on], multipliers[on], centre[on])
        centre[on] = np.clip((1 - far) ** 2, *CENTRE)
    return z, slack, multipliers, stack.tangent(z, multipliers)


# -- products of the arrays of programs --------------------------------------------------------------------------------------


def _stacked(several: Sequence[Exponentials]) -> Exponentials:
    return Exponentials(np.stack([one.rows for one in several]), np.stack([one.shift for one in several]))


def _several(rooms: Sequence[Room]) -> Room:
    terms = _stacked([room.terms for room in rooms])
    return Room(terms, np.stack([room.slope for room in rooms]), np.array([room.constant for room in rooms]))


def _runs(rows: Floats, columns: int) -> Iterator[slice]:
    """Rows in runs so short that one of so many columns is worth no second thread to the library of matrices: threads that wait for each
    other take longer than these small products."""
    step = max(1, PRODUCT // columns)
    for start in range(0, rows.shape[-2], step):
        yield slice(start, start + step)


def _times(rows: Floats, z: Floats) -> Floats:
    """[..., i] rows z."""
    return np.concatenate([(rows[..., run, :] @ z[..., None])[..., 0] for run in _runs(rows, VECTOR * rows.shape[-1])], axis=-1)


def _across(rows: Floats, weights: Floats) -> Floats:
    """[programs, k] sum over rows, weighted."""
    each = [(weights[:, None, run] @ rows[:, run])[:, 0] for run in _runs(rows, VECTOR * rows.shape[-1])]
    return np.asarray(sum(each[1:], each[0]))


def squared(rows: Floats, weights: Floats) -> Floats:
    """[programs, k, k] sum over rows of their outer squares, weighted."""
    each = [np.swapaxes(rows[:, run], 1, 2) @ (rows[:, run] * weights[:, run, None]) for run in _runs(rows, rows.shape[-1] ** 2)]
    return np.asarray(sum(each[1:], each[0]))
