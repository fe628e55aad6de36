"""The four numbers of a kernel that moves rows, by least squares on logarithms; a fifth where a host waits for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rackmodel.arrays import Array, Bools
from rackmodel.calibration.log_fit import Fit, fit_logs, held_out
from rackmodel.calibration.shares import kept_out
from rackmodel.cost.inside.vectors import VectorDevice, vector_seconds
from rackmodel.errors import InputError
from rackmodel.model.vector import VectorKernel

LEAST_ROWS = 15
RANGES = {  # least and most that a fit may find
    "start_s": (0.2e-6, 200e-6),
    "load_bytes_per_s": (1e9, 5e12),
    "cache_bytes_per_s": (1e10, 3e13),
    "memory": (0.05, 1.0),  # no kernel has more than the memory gives
    "host_s": (1e-6, 200e-6),
}
BEGIN: tuple[Mapping[str, float], ...] = (  # where fits begin: one alone may end in a valley
    {"load_bytes_per_s": 3e9, "cache_bytes_per_s": 2e12, "memory": 0.7},
    {"load_bytes_per_s": 60e9, "cache_bytes_per_s": 4e12, "memory": 0.7},
)


@dataclass(frozen=True, kw_only=True)
class VectorRows:
    """Measured kernels. rows, moved: of each, bytes · seconds: measured · shapes: by which they are held out · waited: whether a host
    waited for each · at_once: rows that are begun at once and read twice, by the kernel's source; 0 = they are read once."""

    device: VectorDevice
    rows: Array
    moved: Array
    seconds: Array
    shapes: Sequence[object]
    waited: bool = False
    at_once: float = 0.0

    def only(self, which: Bools) -> VectorRows:
        """Some of them."""
        shapes = [shape for shape, keep in zip(self.shapes, which, strict=True) if keep]
        own = {name: getattr(self, name)[which] for name in ("rows", "moved", "seconds")}
        return replace(self, shapes=shapes, **own)


def fit_vectors(rows: VectorRows, source: str) -> Fit[VectorKernel]:
    """Fit a kernel to its rows, and every part of them without it. Raises InputError."""
    if len(rows.seconds) < LEAST_ROWS:
        raise InputError(f"{len(rows.seconds)} runs of one vector kernel: want {LEAST_ROWS} or more", path=source)
    facts = _best(rows)
    folds = kept_out(rows.shapes)
    outside = held_out(len(rows.seconds), folds, lambda some, other: _error(_best(rows.only(some)), rows.only(other)))
    return Fit(facts=facts, inside=_error(facts, rows), outside=outside)


def _predict(facts: VectorKernel, rows: VectorRows) -> Array:
    return vector_seconds(facts, rows.device, rows.moved, rows.rows)


def _error(facts: VectorKernel, rows: VectorRows) -> Array:
    return np.abs(_predict(facts, rows) / rows.seconds - 1)


def _best(rows: VectorRows) -> VectorKernel:
    """The best of the fits from every beginning."""
    names = [name for name in RANGES if rows.waited or name != "host_s"]
    low, high = np.log(np.array([RANGES[name] for name in names])).T
    least = float(rows.seconds.min())

    def facts(logs: Array) -> VectorKernel:
        values = dict(zip(names, map(float, np.exp(logs)), strict=True))
        return VectorKernel.model_construct(_fields_set=None, **{"host_s": 0.0, "at_once": rows.at_once, **values})  # type: ignore[arg-type]

    start_s = least * (0.3 if rows.waited else 0.9)
    begins = [np.log([{"start_s": start_s, "host_s": least, **begin}[name] for name in names]) for begin in BEGIN]
    return facts(fit_logs(lambda logs: _predict(facts(logs), rows), rows.seconds, begins, (low, high))[1])


def said_of_vector(facts: VectorKernel) -> dict[str, Any]:
    """What a part file says of a kernel, in four digits."""
    said: dict[str, Any] = {
        "start": f"{facts.start_s * 1e6:.4g} us",
        "load": f"{facts.load_bytes_per_s / 1e9:.4g} GB/s",
        "cache": f"{facts.cache_bytes_per_s / 1e12:.4g} TB/s",
        "memory": float(f"{facts.memory:.4g}"),
    }
    said |= {"at_once": int(facts.at_once)} if facts.at_once else {}
    return said | ({"host": f"{facts.host_s * 1e6:.4g} us"} if facts.host_s else {})
