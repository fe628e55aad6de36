"""The numbers of an exchange of tokens, each way, by least squares on the logarithm of predicted over measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rackmodel.arrays import Array, Bools
from rackmodel.calibration.log_fit import Fit, fit_logs, held_out
from rackmodel.calibration.shares import FOLDS
from rackmodel.cost.network.exchanges import TokenExchange, exchange_seconds
from rackmodel.errors import InputError
from rackmodel.model.exchanges import ExchangeMode, ExchangeTimes

LEAST_ROWS = 20
RANGES = {  # least, beginning and most of what a fit may find
    "start_s": (1e-6, 15e-6, 90e-6),
    "start_of_vector_s": (1e-10, 0.3e-6, 10e-6),
    "start_of_expert_s": (1e-11, 15e-9, 100e-9),
    "start_of_node_s": (1e-9, 1e-6, 10e-6),
    "link_bytes_per_s": (1e9, 350e9, 4000e9),
    "worker_bytes_per_s": (0.2e9, 20e9, 800e9),
    "copy_bytes": (10.0, 2000.0, 60e3),
    "local": (0.01, 1.5, 8.0),
    "together": (1.0, 2.0, 20.0),
}
FREE: dict[tuple[ExchangeMode, bool], tuple[str, ...]] = {
    ("normal", False): ("start_s", "start_of_vector_s", "link_bytes_per_s", "worker_bytes_per_s", "copy_bytes", "local", "together"),
    ("low_latency", False): ("start_s", "start_of_expert_s", "link_bytes_per_s", "worker_bytes_per_s", "together"),
    ("low_latency", True): ("start_s", "start_of_node_s", "link_bytes_per_s"),
}
"""(mode, whether over several nodes) → what is fitted."""

ELEMENTS = {"dispatch": 1.0, "combine": 2.0}
"""Bytes of an element: fp8 on the way to experts, bf16 back (SOURCED: deepseek-ai/DeepEP, README)."""


def fit_exchange(way: str, mode: ExchangeMode, exchange: TokenExchange, seconds: Array) -> Fit[ExchangeTimes]:
    """Fit one way of a mode, and every fold without the numbers of tokens it is tried on. Raises InputError."""
    if len(seconds) < LEAST_ROWS:
        raise InputError(f"{len(seconds)} exchanges of mode {mode}: want {LEAST_ROWS} or more")
    names = FREE["low_latency" if mode == "low_latency" else "normal", bool(np.max(exchange.nodes) > 1) and mode == "low_latency"]

    def fitted(which: Bools) -> ExchangeTimes:
        return _fitted(names, ELEMENTS[way], mode, exchange.only(which), seconds[which])

    def error(times: ExchangeTimes, which: Bools) -> Array:
        return np.asarray(np.abs(exchange_seconds(times, mode, exchange.only(which)) / seconds[which] - 1))

    every = np.ones(len(seconds), dtype=bool)
    times, sizes = fitted(every), np.unique(exchange.tokens)
    folds = (np.isin(exchange.tokens, sizes[fold::FOLDS]) for fold in range(FOLDS))
    outside = held_out(len(seconds), folds, lambda some, other: error(fitted(some), other))
    return Fit(facts=times, inside=error(times, every), outside=outside)


def _fitted(names: Sequence[str], element: float, mode: ExchangeMode, exchange: TokenExchange, seconds: Array) -> ExchangeTimes:
    low, begin, high = np.log(np.array([RANGES[name] for name in names])).T
    _, found = fit_logs(lambda logs: exchange_seconds(_times(names, element, logs), mode, exchange), seconds, [begin], (low, high))
    return _times(names, element, found)


def _times(names: Sequence[str], element: float, logs: Array) -> ExchangeTimes:
    none = {"start_of_vector_s": 0.0, "start_of_expert_s": 0.0, "start_of_node_s": 0.0, "copy_bytes": 0.0, "local": 0.0, "together": 1.0}
    values = {name: float(value) for name, value in zip(names, np.exp(logs), strict=True)}
    return ExchangeTimes.model_construct(_fields_set=None, **{"worker_bytes_per_s": None, **none, **values}, element_bytes=element)  # type: ignore[arg-type]
