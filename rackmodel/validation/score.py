"""How well predictions meet measurements: errors, bias and order, by data set and by cell (system, precision).

    error = predicted / measured - 1 (of times)     bias: its mean     order: Spearman's correlation of the two

An anchor is one measured row of a cell: what it is off by scales the others of its cell (system, framework, precision). That is
calibration on a whole run, a mode of its own; the anchors themselves are not scored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rackmodel.arrays import Array
from rackmodel.cost.inside.roofline import Row
from rackmodel.errors import InputError
from rackmodel.validation.rows import PublishedRow
from rackmodel.validation.unknowns import Interval


@dataclass(frozen=True)
class ScoredRow:
    """A row beside its prediction. unit: of both · curve: rows of one model, machine, engine and lengths share one · system, precision:
    its cell · bins: part of the time → seconds on the critical path · anchor: whether others were scaled by it · refused: why there is no
    prediction · asked: the question that it is a candidate of, '' if none (choices.py) · plan, clients: the server that it is, and its
    load."""

    id: str
    dataset: str
    system: str = ""
    precision: str = ""
    unit: str = "s"
    measured: float = 0.0
    predicted: float = 0.0
    assumptions: tuple[str, ...] = ()
    over_capacity: bool = False
    bins: dict[str, float] = field(default_factory=dict)
    interval: Interval | None = None
    anchor: bool = False
    curve: str = ""
    refused: str = ""
    asked: str = ""
    plan: str = ""
    clients: float = 0.0

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted / self.measured - 1.0

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        if self.refused:
            return {"id": self.id, "dataset": self.dataset, "refused": self.refused}
        found = {
            "id": self.id,
            "dataset": self.dataset,
            "system": self.system,
            "precision": self.precision,
            "unit": self.unit,
            "measured": self.measured,
            "predicted": self.predicted,
            "error_pct": 100.0 * self.error,
            "assumptions": list(self.assumptions),
            "over_capacity": self.over_capacity,
            "bins": self.bins,
            "interval": None if self.interval is None else [self.interval.low, self.interval.high],
            "interval_owed_to": None if self.interval is None else dict(self.interval.owed),
        }
        found |= {"curve": self.curve} if self.curve else {}
        return found | ({"anchor": True} if self.anchor else {})

    @property
    def covered(self) -> bool:
        """Whether the measurement lies in the interval."""
        return self.interval is not None and self.interval.low <= self.measured <= self.interval.high

    @property
    def half_width(self) -> float:
        """Of the interval, over the prediction."""
        return 0.0 if self.interval is None else (self.interval.high - self.interval.low) / 2.0 / self.predicted


def kernel_row(
    row: PublishedRow,
    name: str,
    seconds: tuple[float, float],
    notes: Iterable[str | None],
    bins: dict[str, float],
    interval: Interval | None = None,
) -> ScoredRow:
    """A row of a kernel or a collective. name: of its cell beside the system · seconds: measured, predicted · notes: '' is none."""
    return ScoredRow(
        id=row.id,
        dataset=row.dataset,
        system=row.text("system", "gpu"),
        precision=name,
        measured=seconds[0],
        predicted=seconds[1],
        assumptions=tuple(note for note in notes if note),
        bins=bins,
        interval=interval,
    )


LEAST_IN_A_CURVE = 3
"""Rows of a curve whose order is scored: of two it is right or wrong."""


@dataclass(frozen=True)
class Score:
    """Of n rows, in percent of what was measured. rank_correlation: None where fewer than two rows, or no order, are there · coverage:
    share of rows whose measurement lies in the interval of their prediction · width: median half width of the intervals, in percent of the
    prediction; None where no row has one · curve_ranks: rank_correlation inside each curve of at least LEAST_IN_A_CURVE rows."""

    n: int
    mean: float
    median: float
    p75: float
    p90: float
    worst: float
    bias: float
    rank_correlation: float | None
    coverage: float | None = None
    width: float | None = None
    curve_ranks: tuple[float, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "n": self.n,
            "mean_abs_error_pct": self.mean,
            "median_abs_error_pct": self.median,
            "p75_abs_error_pct": self.p75,
            "p90_abs_error_pct": self.p90,
            "max_abs_error_pct": self.worst,
            "bias_pct": self.bias,
            "rank_correlation": self.rank_correlation,
            "curves": len(self.curve_ranks),
            "curve_rank_correlation": float(np.mean(self.curve_ranks)) if self.curve_ranks else None,
            "median_curve_rank_correlation": float(np.median(self.curve_ranks)) if self.curve_ranks else None,
            "interval_coverage": self.coverage,
            "interval_median_width_pct": self.width,
        }


def bins_of(charges: Sequence[Row], count: int) -> dict[str, Array]:
    """Component → [count] seconds that its charges are exposed."""
    bins: dict[str, Array] = {}
    for charge in charges:
        bins[charge.component] = bins.get(charge.component, np.zeros(count)) + charge.exposed
    return bins


def score(rows: Sequence[ScoredRow]) -> Score:
    """The score of rows that have predictions; at least one."""
    measured, predicted = (np.array([getattr(row, side) for row in rows]) for side in ("measured", "predicted"))
    errors = 100.0 * (predicted / measured - 1.0)
    away = np.abs(errors)
    within = [row for row in rows if row.interval is not None]
    return Score(
        n=len(rows),
        mean=float(away.mean()),
        median=float(np.median(away)),
        p75=float(np.percentile(away, 75)),
        p90=float(np.percentile(away, 90)),
        worst=float(away.max()),
        bias=float(errors.mean()),
        rank_correlation=rank_correlation(measured, predicted),
        coverage=float(np.mean([row.covered for row in within])) if within else None,
        width=100.0 * float(np.median([row.half_width for row in within])) if within else None,
        curve_ranks=_curve_ranks(rows),
    )


def _curve_ranks(rows: Sequence[ScoredRow]) -> tuple[float, ...]:
    """The rank correlation inside each curve that has enough rows and an order on both sides."""
    curves: dict[str, list[ScoredRow]] = {}
    for row in rows:
        if row.curve:
            curves.setdefault(row.curve, []).append(row)
    sides = (([r.measured for r in own], [r.predicted for r in own]) for own in curves.values() if len(own) >= LEAST_IN_A_CURVE)
    return tuple(found for one, other in sides if (found := rank_correlation(np.array(one), np.array(other))) is not None)


def rank_correlation(one: Array, other: Array) -> float | None:
    """Spearman's: Pearson's correlation of ranks, ties sharing their mean rank; None where either side has no order."""
    ranks = [ranks_of(values) for values in (one, other)]
    spread = [side - side.mean() for side in ranks]
    size = float(np.sqrt((spread[0] ** 2).sum() * (spread[1] ** 2).sum()))
    return float((spread[0] * spread[1]).sum() / size) if size > 0 else None


def ranks_of(values: Array) -> Array:
    """Ranks from 1; equal values share the mean of theirs."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2.0)[which], dtype=np.float64)


def anchored(rows: Sequence[ScoredRow], anchors: Sequence[str]) -> tuple[list[ScoredRow], list[str]]:
    """Rows scaled by the anchors of their cells, which are marked; and anchors that are no row with a prediction. Raises InputError for two
    anchors of a cell, of which one alone would count."""
    chosen = [row for row in rows if row.id in set(anchors) and not row.refused]
    scale: dict[tuple[str, str, str], float] = {}
    for row in chosen:
        if _cell(row) in scale:
            cell = " ".join(filter(None, _cell(row)))
            raise InputError(f"two rows of {cell}: one of a cell scales the others, keep one", path="--anchor")
        scale[_cell(row)] = row.measured / row.predicted
    ids = {row.id for row in chosen}

    def one(row: ScoredRow) -> ScoredRow:
        if row.refused or _cell(row) not in scale:
            return row
        by = scale[_cell(row)]
        bins = {name: seconds * by for name, seconds in row.bins.items()}
        interval = None if row.interval is None else replace(row.interval, low=row.interval.low * by, high=row.interval.high * by)
        return replace(row, predicted=row.predicted * by, bins=bins, interval=interval, anchor=row.id in ids)

    return [one(row) for row in rows], [name for name in anchors if name not in ids]


def _cell(row: ScoredRow) -> tuple[str, str, str]:
    return row.dataset, row.system, row.precision
