"""Calls of sizes that were not measured of a library, as curves tell that go like its own: those of its other widths, and those of
libraries that leave large messages to it.

    T(V) = ratio(V) · T of the other(V)     the ratio of their times lies between those at the nearest sizes that both have, below V and
                                            above; beyond all, it is that of the two largest. It tells nothing where those two differ

A line between two sizes does not know where a library changes its kernel or protocol; a curve of another width does, for that goes by
bytes. A line through the two largest misses the next doubling, for a ring's time grows by its chunks and channels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rackmodel.arrays import Array
from rackmodel.calibration.call_rows import SUMS, CallCurves

LEFT_TO = "nccl"
"""The library that others leave large messages to."""
LARGE = 8 * 1024.0**2  # bytes from which calls of any library may tell of larger ones: below, they have kernels of their own (ASSUMED)
STEADY = 0.08  # of |log| of the two ratios, at most (ASSUMED)


def others_of(every: Sequence[CallCurves], one: CallCurves, members: int) -> tuple[Array, ...]:
    """[2, n] bytes and seconds of each curve that may go as one does. every: the curves of one machine."""
    if one.library != LEFT_TO or one.kind not in SUMS:
        return ()
    alike = [other for other in every if other is not one and (other.kind, other.mode) == (one.kind, one.mode)]
    return tuple(other.curves[members] for other in alike if members in other.curves)


def told_calls(volume: Array, seconds: Array, others: Sequence[Array], flattest: float = 0.0) -> Array:
    """[2, m] bytes and seconds of sizes that some calls lack ([n] bytes and seconds), one a size, as others tell. flattest: s/byte of the
    calls beyond their largest, at least: a curve that goes on flatter is of another kernel."""
    own = _medians(volume, seconds)
    found: dict[float, list[float]] = {}
    for other in others:
        theirs = _medians(*other)
        both = sorted(own.keys() & theirs.keys())
        ratios = [own[one] - theirs[one] for one in both]
        told = {size: log + theirs[size] for size in theirs.keys() - own.keys() if (log := _ratio(size, both, ratios)) is not None}
        larger = sorted(size for size in told if size > volume.max())
        if len(larger) > 1 and (np.diff(np.exp([told[size] for size in larger])) < flattest * np.diff(larger)).any():
            told = {size: log for size, log in told.items() if size < volume.max()}
        for size, log in told.items():
            found.setdefault(size, []).append(log)
    sizes = sorted(found)
    return np.array([sizes, [float(np.exp(np.median(found[size]))) for size in sizes]]).reshape(2, len(sizes))


def _ratio(size: float, both: Sequence[float], logs: Sequence[float]) -> float | None:
    """Logarithm of the ratio at a size, between those at sizes that both curves have; None where it is not steady."""
    above = int(np.searchsorted(both, size))
    beyond = above == len(both)
    first = above - 2 if beyond else above - 1
    if first < 0 or (beyond and both[first] < LARGE) or abs(logs[first] - logs[first + 1]) > STEADY:
        return None
    if beyond:
        return (logs[first] + logs[first + 1]) / 2
    return float(np.interp(np.log(size), np.log(both[first : first + 2]), logs[first : first + 2]))


def _medians(volume: Array, seconds: Array) -> dict[float, float]:
    """Size → logarithm of the median of its calls' seconds."""
    return {float(size): float(np.log(np.median(seconds[volume == size]))) for size in np.unique(volume)}
