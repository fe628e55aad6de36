"""The kernels of a library's collective for one number of members: lines over ranges of messages, by least errors on measured calls.

A curve of calls is cut into ranges, each a line start + message / rate; every cut of the sizes is tried (dynamic programming) and the
least sum counts of |log(predicted / measured)|, a call's at most MOST, and PRICE for each range. Between two ranges the library is taken
to switch where their lines cross, or as late or early as was measured.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rackmodel.errors import InputError
from rackmodel.model.calls import CallTimes

Array = NDArray[np.float64]

PRICE = 0.06  # what a range costs, in the sum of errors
CALLS = 60  # that a range's price is meant for: of more it costs more
MOST_CUTS = 40  # sizes at which a range may begin
ALONE = 4.0  # times it, for a range of one size
MOST = 0.25  # of one call's error: a call that something disturbed
FLATTEST = 1e-15  # s/byte: what a line of no slope is written as
STEEPEST = 64.0  # times the slope of the largest calls, at most: one disturbed call of little makes no kernel
LEAST_SIZES = 5
FOLDS = 5
JUST_BELOW = 0.999  # of a size that the next kernel does
ROUNDS = 4  # of weighing calls by their errors
NEAR = 0.04  # error below which a call counts in full


@dataclass(frozen=True, kw_only=True)
class Range:
    """A kernel's range of messages [first, last] bytes and its line, in s and s/byte."""

    first: float
    last: float
    start: float
    slope: float


@dataclass(frozen=True, kw_only=True)
class CallFit:
    """times: fitted to all calls · inside: |predicted / measured - 1| of those · outside: the same of each call in a fit without its
    size."""

    times: CallTimes
    inside: Array
    outside: Array


def fit_calls(volume: Array, seconds: Array) -> CallFit:
    """Fit the calls of one curve, [n] bytes and seconds, and every fold without the sizes it is tried on. Raises InputError."""
    sizes = np.unique(volume)
    if len(sizes) < LEAST_SIZES:
        raise InputError(f"{len(sizes)} sizes of a collective: want {LEAST_SIZES} or more")
    times = _times(volume, seconds)
    outside = np.full(len(volume), np.nan)
    for fold in range(FOLDS):
        held = np.isin(volume, sizes[fold::FOLDS])
        if len(sizes) - len(sizes[fold::FOLDS]) >= 2:
            outside[held] = _error(_times(volume[~held], seconds[~held]), volume[held], seconds[held])
    return CallFit(times=times, inside=_error(times, volume, seconds), outside=outside)


def call_seconds(times: CallTimes, volume: Array) -> Array:
    """[n] seconds of messages of [n] bytes."""
    kernel = np.searchsorted(np.array(times.up_to_bytes), volume, side="left")
    return np.asarray(np.array(times.start_s)[kernel] + volume / np.array(times.rate_bytes_per_s)[kernel])


def _error(times: CallTimes, volume: Array, seconds: Array) -> Array:
    return np.abs(call_seconds(times, volume) / seconds - 1)


def _times(volume: Array, seconds: Array) -> CallTimes:
    ranges = _cut(volume, seconds)
    return CallTimes.model_construct(
        _fields_set=None,
        up_to_bytes=tuple(_switch(one, other) for one, other in itertools.pairwise(ranges)),
        start_s=tuple(one.start for one in ranges),
        rate_bytes_per_s=tuple(1.0 / max(one.slope, FLATTEST) for one in ranges),
    )


def _cut(volume: Array, seconds: Array) -> list[Range]:
    """The ranges of least errors and prices."""
    sizes = np.unique(volume)
    steepest = STEEPEST * float(np.median(seconds[volume == sizes[-1]])) / float(sizes[-1])
    step = -(-len(sizes) // MOST_CUTS)
    firsts = sizes[::step]
    lasts = np.append(sizes[step - 1 :: step][: len(firsts) - 1], sizes[-1])
    each = PRICE * max(1.0, len(volume) / CALLS)
    best: list[tuple[float, list[Range]]] = [(0.0, [])]
    for last in range(len(firsts)):
        choices = []
        for first in range(last + 1):
            inside = (volume >= firsts[first]) & (volume <= lasts[last])
            start, slope = _line(volume[inside], seconds[inside], steepest)
            away = np.abs(np.log(np.maximum(start + slope * volume[inside], 1e-12) / seconds[inside]))
            price = each * (ALONE if firsts[first] == lasts[last] else 1.0)
            ranges = [*best[first][1], Range(first=float(firsts[first]), last=float(lasts[last]), start=start, slope=slope)]
            choices.append((best[first][0] + float(np.minimum(away, MOST).sum()) + price, ranges))
        best.append(min(choices, key=lambda one: one[0]))
    return best[-1][1]


def _line(volume: Array, seconds: Array, steepest: float) -> tuple[float, float]:
    """(start, slope) of least relative errors, neither negative; calls far off count less from round to round."""
    weight = 1.0 / seconds
    start, slope = float(np.median(seconds)), 0.0
    if np.all(volume == volume[0]):
        return start, slope
    for _ in range(ROUNDS):
        w = weight**2
        s, sv, svv, st, svt = (float((w * x).sum()) for x in (1.0, volume, volume**2, seconds, volume * seconds))
        det = s * svv - sv * sv
        start, slope = (svv * st - sv * svt) / det, (s * svt - sv * st) / det
        if slope < 0:
            start, slope = st / s, 0.0
        elif slope > steepest:
            start, slope = (st - steepest * sv) / s, steepest
        if start < 0:
            start, slope = 0.0, min(svt / svv, steepest)
        away = np.abs(np.log(np.maximum(start + slope * volume, 1e-12) / seconds))
        weight = 1.0 / (seconds * np.sqrt(1.0 + (away / NEAR) ** 2))
    return start, slope


def _switch(one: Range, other: Range) -> float:
    """The largest message of the first of two neighbours."""
    crossing = (other.start - one.start) / (one.slope - other.slope) if one.slope != other.slope else np.inf
    if one.last < crossing < other.first:
        return float(crossing)
    middle = np.sqrt(one.last * other.first)
    first_is_faster = one.start + one.slope * middle <= other.start + other.slope * middle
    return JUST_BELOW * other.first if first_is_faster else one.last
