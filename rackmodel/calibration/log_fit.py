"""Least squares on the logarithm of predicted over measured, by which all kernels are fitted."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from rackmodel.arrays import Array

LOSS = 0.08  # errors beyond it count less and less


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
