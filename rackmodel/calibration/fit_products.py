"""The six numbers of a GPU's matrix products at one precision, by least squares on the logarithm of predicted over measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rackmodel.calibration.product_rows import ProductRows
from rackmodel.cost.inside.products import Device, compute_seconds, together
from rackmodel.errors import InputError
from rackmodel.model.resources import Products

Array = NDArray[np.float64]

OUTPUT_BYTES = 2.0  # products of every precision leave 16-bit results
FOLDS = 5
LOSS = 0.08  # errors beyond it count less and less
LEAST_ROWS = 30
RANGES = {  # least and most that a fit may find
    "start_s": (0.1e-6, 30e-6),
    "rate": (0.2, 1.0),
    "load_bytes_per_s": (5e9, 1500e9),
    "memory": (0.3, 1.0),
    "step_s": (0.05e-9, 3e-9),
    "split_s": (0.01e-6, 30e-6),
    "quantise": (0.01, 30.0),
}
BEGIN = (  # where fits begin: one alone may end in a valley
    {"start_s": 3e-6, "rate": 0.75, "load_bytes_per_s": 140e9, "memory": 0.85, "step_s": 0.7e-9, "split_s": 4e-6, "quantise": 3.0},
    {"start_s": 3e-6, "rate": 0.65, "load_bytes_per_s": 250e9, "memory": 0.8, "step_s": 0.9e-9, "split_s": 4e-6, "quantise": 8.0},
)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What rows ran on. bandwidth: of the accelerator's memory, bytes/s."""

    device: Device
    bandwidth: float


@dataclass(frozen=True, kw_only=True)
class Fit:
    """facts: fitted to all rows · inside: |predicted / measured - 1| of those rows · outside: the same of each row in a fit without the
    rows of its (n, k)."""

    facts: Products
    inside: Array
    outside: Array


def predict(facts: Products, machine: Machine, rows: ProductRows) -> Array:
    """[rows] seconds."""
    element = machine.device.element
    memory = (element * (rows.m + rows.n) * rows.k + OUTPUT_BYTES * rows.m * rows.n) / (facts.memory * machine.bandwidth)
    compute = compute_seconds(facts, machine.device, 1.0, rows.m, rows.n, rows.k)
    return facts.start_s + facts.quantise * rows.m * rows.k / machine.bandwidth + together(compute, memory)


def fit(rows: ProductRows, machine: Machine) -> Fit:
    """Fit one GPU's products at one precision, and every fold without the shapes it is tried on. Raises InputError."""
    if len(rows) < LEAST_ROWS:
        raise InputError(f"{len(rows)} products of {rows.gpu} at {rows.precision}: want {LEAST_ROWS} or more", path=rows.source)
    facts = _fitted(rows, machine)
    outside = np.full(len(rows), np.nan)
    for held in _folds(rows):
        outside[held] = _error(_fitted(rows.only(~held), machine), machine, rows.only(held))
    return Fit(facts=facts, inside=_error(facts, machine, rows), outside=outside)


def _error(facts: Products, machine: Machine, rows: ProductRows) -> Array:
    return np.abs(predict(facts, machine, rows) / rows.seconds - 1)


def _folds(rows: ProductRows) -> list[NDArray[np.bool_]]:
    """Rows held out together: whole shapes (n, k), dealt in a fixed order."""
    shapes = np.unique(np.stack([rows.n, rows.k]), axis=1, return_inverse=True)[1]
    order = np.random.default_rng(0).permutation(int(shapes.max()) + 1)
    return [np.isin(shapes, part) for part in np.array_split(order, min(FOLDS, len(order)))]


def _free(precision: str) -> tuple[str, ...]:
    """Numbers to fit: kernels of 16 bit split sums; those of less quantise their left operand, and do not."""
    last = ("step_s", "split_s") if precision == "bf16" else ("step_s", "quantise")
    return ("start_s", "rate", "load_bytes_per_s", "memory", *last)


def _fitted(rows: ProductRows, machine: Machine) -> Products:
    """The best of the fits from every beginning."""
    from scipy.optimize import least_squares

    names = _free(rows.precision)
    low, high = np.log(np.array([RANGES[name] for name in names])).T

    def residual(logs: Array) -> Array:
        return np.asarray(np.log(predict(_facts(names, logs), machine, rows) / rows.seconds))

    found: list[Any] = [
        least_squares(residual, np.log([begin[name] for name in names]), bounds=(low, high), loss="soft_l1", f_scale=LOSS)
        for begin in BEGIN
    ]
    return _facts(names, min(found, key=lambda one: float(one.cost)).x)


def _facts(names: Sequence[str], logs: Array) -> Products:
    values = {name: float(value) for name, value in zip(names, np.exp(logs), strict=True)}
    return Products.model_construct(_fields_set=None, **{"step_s": 0.0, "split_s": None, "quantise": 0.0, **values})  # type: ignore[arg-type]
