"""A convex program of exponentials, and a lower bound of it that holds whatever the solver did.

    minimise  constant + d z + sum_i c_i exp(A_i z)   with   log sum_j exp(P_j z + q_j) <= 0,  G z <= h,  low <= z <= high

An augmented Lagrangian with Newton steps finds multipliers; for any multipliers >= 0 the Lagrangian is convex, so its tangent at any z
bounds it over the box: bound = L(z) + sum_k min over the box of (dL/dz_k) (z'_k - z_k).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rackmodel.nests.arrays import Floats

ROUNDS, STEPS = 9, 40  # of the multipliers, of Newton in each
PENALTY, GROWTH = 10.0, 3.0
ROUGH, FINE = 1e-5, 1e-10  # of the scale: where Newton ends in the first round, and later
NEAR = 1e-6  # of the scale: a rise that is worth no further round


@dataclass(frozen=True)
class Exponentials:
    """sum_i exp(rows_i z + shift_i)."""

    rows: Floats
    shift: Floats

    def at(self, z: Floats) -> Floats:
        """[i] the terms."""
        return np.asarray(np.exp(np.clip(self.rows @ z + self.shift, -700.0, 300.0)))


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

    def value(self, z: Floats) -> float:
        """The objective."""
        return float(self.constant + self.slope @ z + self.terms.at(z).sum())

    def parts(self, z: Floats) -> tuple[Floats, Floats, list[Floats]]:
        """(constraints g <= 0, their slopes, shares of every room's terms) at z."""
        logs, slopes, shares = [], [], []
        for room in self.rooms:
            each = room.at(z)
            logs.append(np.log(each.sum()))
            shares.append(each / each.sum())
            slopes.append(shares[-1] @ room.rows)
        g = np.concatenate([self.rows @ z - self.limits, np.array(logs)])
        return g, np.vstack([self.rows, *slopes]), shares


class Ascent:
    """A bound of a program that rises round by round. value: so far · at: where it was read off · tight: no more is to be had."""

    def __init__(self, program: ConvexProgram, scale: float, start: Floats | None = None) -> None:
        self.program, self.scale = program, scale
        self.z = (program.low + program.high) / 2 if start is None else np.clip(start, program.low, program.high)
        self.multipliers, self.penalty = np.zeros(len(program.limits) + len(program.rooms)), PENALTY
        self.value, self.at, self.rounds, self.tight = -np.inf, self.z, 0, False

    def rise(self) -> None:
        """One round."""
        self.z, self.multipliers = _descend(self.program, self.z, self.multipliers, (self.penalty, self.scale))
        bound = _tangent(self.program, self.z, self.multipliers * self.scale)
        gain = bound - self.value
        if gain > 0:
            self.value, self.at = bound, self.z
        self.penalty *= GROWTH
        self.rounds += 1
        self.tight = gain < NEAR * self.scale or self.rounds >= ROUNDS


def _tangent(program: ConvexProgram, z: Floats, multipliers: Floats) -> float:
    g, slopes, _ = program.parts(z)
    slope = program.slope + program.terms.at(z) @ program.terms.rows + multipliers @ slopes
    least = np.minimum(slope * (program.low - z), slope * (program.high - z)).sum()
    return float(program.value(z) + multipliers @ g + least)


def _descend(program: ConvexProgram, z: Floats, multipliers: Floats, weights: tuple[float, float]) -> tuple[Floats, Floats]:
    """Newton on the augmented Lagrangian, in units of `scale`; (z, new multipliers)."""
    penalty, scale = weights

    def merit(at: Floats) -> float:
        force = np.maximum(0.0, multipliers + penalty * program.parts(at)[0])
        return program.value(at) / scale + float((force**2).sum()) / (2 * penalty)

    now, damping = merit(z), 1e-6
    for _ in range(STEPS):
        terms = program.terms.at(z) / scale
        g, slopes, shares = program.parts(z)
        force = np.maximum(0.0, multipliers + penalty * g)
        slope = program.slope / scale + terms @ program.terms.rows + force @ slopes
        curve = (program.terms.rows.T * terms) @ program.terms.rows + (slopes.T * (penalty * (force > 0))) @ slopes
        for room, share, f, own in zip(program.rooms, shares, force[len(program.limits) :], slopes[len(program.limits) :], strict=True):
            if f > 0:
                curve += f * ((room.rows.T * share) @ room.rows - np.outer(own, own))
        nxt, then = z, now
        while damping < 1e6:
            step = -np.linalg.solve(curve + damping * np.eye(len(z)), slope)
            nxt = z + step * min(1.0, 3.0 / max(float(np.abs(step).max()), 1e-300))
            then = merit(nxt)
            if then < now:
                break
            damping *= 10
        else:
            break
        z, gain, now, damping = nxt, now - then, then, max(damping / 10, 1e-9)
        if gain < (ROUGH if penalty == PENALTY else FINE):
            break
    g = program.parts(z)[0]
    return z, np.maximum(0.0, multipliers + penalty * g)
