"""Which share of dies works when defects fall on them at random. A: area, D: killing defects per area, λ = A D.

    poisson e^(-λ) · murphy ((1 - e^(-λ)) / λ)² · seeds 1 / (1 + λ) · negative binomial (1 + λ/α)^(-α) · square root e^(-√λ)

Murphy, Proc. IEEE 52 (1964), 1537; Seeds, IEDM 1967; Cunningham, IEEE Trans. Semicond. Manuf. 3 (1990), 60; the square root
is Boavizta's and Intel's. spare: a die of n equal cores that works with m of them, λ_c = λ · core share / n a core,

    e^(-λ (1 - core share)) · Σ_{k ≤ n-m} C(n, k) p^k (1 - p)^(n-k),  p = 1 - e^(-λ_c)

(defects routed around; Golden 2025, section 3). A wafer: area used / area of the wafer × share of wafers that work.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rackmodel.model.embodied import WAFER_DIAMETER_M


def poisson(defects: Any) -> Any:
    """e^(-λ); λ: [n] defects a die."""
    return np.exp(-np.asarray(defects, dtype=float))


def murphy(defects: Any) -> Any:
    """((1 - e^(-λ)) / λ)², 1 at λ = 0."""
    lam = np.asarray(defects, dtype=float)
    safe = np.where(lam > 0, lam, 1.0)
    return np.where(lam > 0, (-np.expm1(-safe) / safe) ** 2, 1.0)


def seeds(defects: Any) -> Any:
    """1 / (1 + λ)."""
    return 1 / (1 + np.asarray(defects, dtype=float))


def negative_binomial(defects: Any, clustering: float = 10.0) -> Any:
    """(1 + λ/α)^(-α)."""
    return (1 + np.asarray(defects, dtype=float) / clustering) ** -clustering


def square_root(defects: Any) -> Any:
    """e^(-√λ)."""
    return np.exp(-np.sqrt(np.asarray(defects, dtype=float)))


def spare(defects: Any, cores: int, needed: int, core_share: Any = 1.0) -> Any:
    """Share of dies with at least `needed` good cores of `cores` and no defect outside of them. defects, core_share: [n]."""
    lam, share = np.broadcast_arrays(np.asarray(defects, dtype=float), np.asarray(core_share, dtype=float))
    inside, outside = lam * share, lam * (1 - share)
    return np.exp(-outside) * _at_most(cores - needed, cores, inside / cores)


def _at_most(most: int, trials: int, defects: Any) -> Any:
    """P(at most so many of `trials` cores have a defect), each with [n] defects on average: binomial, p = 1 - e^(-λ_c)."""
    lam = np.asarray(defects, dtype=float)
    p = -np.expm1(-lam)
    mean, deviation = trials * p, np.sqrt(trials * p * (1 - p))
    if most >= trials or np.all(most > mean + 40 * deviation + 40):  # beyond forty deviations: 1 to the last digit
        return np.ones_like(p)
    if np.all(most < mean - 40 * deviation - 40):
        return np.zeros_like(p)
    counts = np.arange(most + 1)
    choose = math.lgamma(trials + 1) - np.array([math.lgamma(k + 1) + math.lgamma(trials - k + 1) for k in counts])
    bad = np.log(np.maximum(p, 1e-300))[..., None]
    logs = choose + counts * bad - (trials - counts) * lam[..., None]
    top = logs.max(axis=-1, keepdims=True)
    return np.minimum(np.where(p > 0, np.exp(top[..., 0]) * np.exp(logs - top).sum(axis=-1), 1.0), 1.0)


def wafer_area_m2(diameter_m: float = WAFER_DIAMETER_M) -> float:
    """π d²/4."""
    return math.pi * diameter_m**2 / 4


def dies_per_wafer(area_m2: Any, diameter_m: float = WAFER_DIAMETER_M) -> Any:
    """π d²/4A - π d/√(2A): whole dies on a wafer, whose edge cuts some. Source: de Vries, IEEE Trans. Semicond. Manuf. 18 (2005)."""
    area = np.asarray(area_m2, dtype=float)
    return np.maximum(np.floor(wafer_area_m2(diameter_m) / area - math.pi * diameter_m / np.sqrt(2 * area)), 1.0)


def silicon_yield(used_m2: float, diameter_m: float = WAFER_DIAMETER_M) -> float:
    """Area used over area of the wafer. Source: Golden 2025, section 3."""
    return used_m2 / wafer_area_m2(diameter_m)
