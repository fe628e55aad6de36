"""Least squares on the logarithm of predicted over measured, by which all kernels are fitted, and how far fits are from rows that they did
not see."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from rackmodel.arrays import Array, Bools

LOSS = 0.08  # errors beyond it count less and less
Facts = TypeVar("Facts")


@dataclass(frozen=True, kw_only=True)
class Fit(Generic[Facts]):
    """facts: fitted to all rows · inside: |predicted / measured - 1| of those rows · outside: the same of each row in a fit without those
    that are held out with it."""

    facts: Facts
    inside: Array
    outside: Array


def held_out(rows: int, folds: Iterable[Bools], told: Callable[[Bools, Bools], Array]) -> Array:
    """[rows] of each row what a fit tells of it without the rows of its fold. told: which rows are fitted, which are told."""
    found = np.full(rows, np.nan)
    for fold in folds:
        found[fold] = told(~fold, fold)
    return found


def fit_logs(
    predict: Callable[[Array], Array],
    measured: Array,
    begins: Iterable[Array],
    ends: tuple[Array, Array],
    *,
    loss: float = LOSS,
    steps: int | None = None,
) -> tuple[float, Array]:
    """(cost, numbers) of the best fit from every begin: one alone may end in a valley. All numbers are logarithms. predict: numbers →
    [rows] seconds · ends: least and most of each number · steps: evaluations at most."""
    from scipy.optimize import least_squares

    def residual(logs: Array) -> Array:
        return np.asarray(np.log(predict(logs) / measured))

    low, high = ends
    starts = (np.clip(begin, low + 1e-6, high - 1e-6) for begin in begins)
    fits = (least_squares(residual, start, bounds=ends, loss="soft_l1", f_scale=loss, max_nfev=steps) for start in starts)
    best = min(fits, key=lambda one: float(one.cost))
    return float(best.cost), best.x
