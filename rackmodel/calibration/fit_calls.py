"""The kernels of a library's collective for one number of members: lines over ranges of messages, by least errors on measured calls.

A curve of calls is cut into ranges, each a line start + message / rate; every cut of the sizes is tried (dynamic programming) and the
least sum counts of |log(predicted / measured)|, a call's at most MOST, and PRICE for each range. Between two ranges the library is taken
to switch where their lines cross, or as late or early as was measured. Where a library's source says its kernels (`call_kernels`), each
is cut by itself, and they switch where it says; one that goes over its message in passes has a range a pass (`fit_passes`).

The last range is of every larger message too: it has two sizes at least, and its line is no flatter than a member's link lets it be.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rackmodel.arrays import Array, Bools
from rackmodel.calibration.call_kernels import KnownKernel
from rackmodel.calibration.fit_passes import MOST, SteppedCurve, wait_of_pass
from rackmodel.calibration.log_fit import Fit
from rackmodel.calibration.shares import FOLDS
from rackmodel.calibration.told_calls import told_calls
from rackmodel.errors import InputError
from rackmodel.model.calls import CallTimes

PRICE = 0.06  # what a range costs, in the sum of errors
CALLS = 60  # that a range's price is meant for: of more it costs more
MOST_CUTS = 40  # sizes at which a range may begin
ALONE = 4.0  # times it, for a range of one size
FLATTEST = 1e-15  # s/byte: what a line of no slope is written as
STEEPEST = 64.0  # times the slope of the largest calls, at most: one disturbed call of little makes no kernel
LEAST_SIZES = 5
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
class CallCurve:
    """A curve to fit: [n] bytes and seconds of calls among some members · kernels: what is known of the library's, in their order ·
    family: curves of one library and release, which share what a pass waits for · flattest: s/byte of a message beyond the largest, at
    least · others: [2, m] bytes and seconds of each curve that may go as this one does (`told_calls`)."""

    volume: Array
    seconds: Array
    members: int = 0
    kernels: tuple[KnownKernel, ...] = ()
    family: int = 0
    flattest: float = 0.0
    others: tuple[Array, ...] = ()

    @property
    def whole(self) -> CallCurve:
        """With the calls that others tell."""
        volume, seconds = told_calls(self.volume, self.seconds, self.others, self.flattest)
        return replace(self, volume=np.append(self.volume, volume), seconds=np.append(self.seconds, seconds))

    def held(self, fold: int) -> Bools:
        """[n] calls of the sizes that a fold holds out; of fewer than two others, none."""
        sizes = np.unique(self.volume)
        kept = len(sizes) - len(sizes[fold::FOLDS]) >= 2
        return np.isin(self.volume, sizes[fold::FOLDS] if kept else sizes[:0])

    def of(self, which: Bools) -> CallCurve:
        """Some of its calls."""
        return replace(self, volume=self.volume[which], seconds=self.seconds[which])

    @property
    def floor_s(self) -> float:
        """s of its small messages, those of the first kernel that is known: no call takes less, for something must launch it."""
        small = self.volume <= (self.kernels[0].up_to if self.kernels else self.volume.min())
        return float(np.median(self.seconds[small if small.any() else self.volume == self.volume.min()]))

    def by_kernel(self) -> list[tuple[float, KnownKernel, CallCurve]]:
        """Its calls by the kernel that does them, of those that do any: where the one before ends, the kernel, its calls. What is beyond
        the known ones is one more."""
        lows = (0.0, *(kernel.up_to for kernel in self.kernels))
        every = (*self.kernels, KnownKernel(up_to=np.inf))
        found = [(low, one, self.of((self.volume > low) & (self.volume <= one.up_to))) for low, one in zip(lows, every, strict=True)]
        return [one for one in found if len(one[2].volume)]

    def stepped(self) -> list[SteppedCurve]:
        """Its calls by kernels that go in passes."""
        return [own.in_passes(kernel, self.floor_s) for _, kernel, own in self.by_kernel() if kernel.passes]

    def in_passes(self, kernel: KnownKernel, floor_s: float) -> SteppedCurve:
        """All its calls as those of one such kernel."""
        return SteppedCurve(
            members=self.members,
            passes=kernel.passes,
            link=kernel.link,
            volume=self.volume,
            seconds=self.seconds,
            floor_s=floor_s,
        )


def fit_curves(curves: Sequence[CallCurve]) -> list[Fit[CallTimes]]:
    """Fit curves of one mode on one machine, and every fold without the sizes it is tried on. Raises InputError."""
    fewest = min((len(np.unique(one.volume)) for one in curves), default=LEAST_SIZES)
    if fewest < LEAST_SIZES:
        raise InputError(f"{fewest} sizes of a collective: want {LEAST_SIZES} or more")
    times = _all_times(curves)
    outside = [np.full(len(one.volume), np.nan) for one in curves]
    for fold in range(FOLDS):
        held = [one.held(fold) for one in curves]
        found = _all_times([one.of(~away) for one, away in zip(curves, held, strict=True)])
        for one, away, without, error in zip(curves, held, found, outside, strict=True):
            error[away] = _error(without, one.volume[away], one.seconds[away])
    return [
        Fit(facts=own, inside=_error(own, one.volume, one.seconds), outside=error)
        for one, own, error in zip(curves, times, outside, strict=True)
    ]


def call_seconds(times: CallTimes, volume: Array) -> Array:
    """[n] seconds of messages of [n] bytes."""
    kernel = np.searchsorted(np.array(times.up_to_bytes), volume, side="left")
    return np.asarray(np.array(times.start_s)[kernel] + volume / np.array(times.rate_bytes_per_s)[kernel])


def _error(times: CallTimes, volume: Array, seconds: Array) -> Array:
    return np.abs(call_seconds(times, volume) / seconds - 1)


def _all_times(curves: Sequence[CallCurve]) -> list[CallTimes]:
    """The kernels of each curve. What a pass waits for is found in the curves of its family, else in all."""
    of_all = wait_of_pass([stepped for one in curves for stepped in one.stepped()])
    waits = {
        family: wait_of_pass([stepped for one in curves if one.family == family for stepped in one.stepped()])
        for family in dict.fromkeys(one.family for one in curves)
    }
    own = [waits[one.family] for one in curves]
    return [_times(one.whole, of_all if wait is None else wait) for one, wait in zip(curves, own, strict=True)]


def _times(curve: CallCurve, wait_s: float | None) -> CallTimes:
    ranges: list[Range] = []
    ends: list[float] = []
    done = 0.0
    every = curve.by_kernel()
    for low, kernel, own in every:
        found = _of_kernel(curve, low, kernel, own, wait_s, last=own is every[-1][2])
        ends += [done] if ranges else []
        ends += [_switch(one, other) for one, other in itertools.pairwise(found)]
        ranges += found
        done = kernel.up_to
    return CallTimes.model_construct(
        _fields_set=None,
        up_to_bytes=tuple(ends),
        start_s=tuple(one.start for one in ranges),
        rate_bytes_per_s=tuple(1.0 / max(one.slope, FLATTEST) for one in ranges),
    )


def _of_kernel(curve: CallCurve, low: float, kernel: KnownKernel, own: CallCurve, wait_s: float | None, *, last: bool) -> list[Range]:
    """The ranges of one kernel of a curve, by its own calls. low: bytes up to which the one before goes · last: whether none follows."""
    if low and len(np.unique(own.volume)) == 1 and not kernel.passes:
        return [_alone(own, curve.floor_s)]
    largest = curve.volume == curve.volume.max()
    steepest = STEEPEST * float(np.median(curve.seconds[largest])) / float(curve.volume.max())
    each = PRICE * max(1.0, len(curve.volume) / CALLS)
    cost, cut = _cut(own.volume, own.seconds, steepest, each, curve.flattest if last else None)
    if not kernel.passes or wait_s is None:
        return cut
    stepped = own.in_passes(kernel, curve.floor_s)
    start, away = stepped.start(wait_s)
    if cost < away and len(np.unique(own.volume)) > 2:  # its calls do not go in passes, by more than ranges of their own cost
        return cut
    return [part for one in _stairs(stepped, start, wait_s, low, kernel.up_to) for part in _above(one, curve.floor_s)]


def _stairs(own: SteppedCurve, start: float, wait_s: float, low: float, up_to: float) -> list[Range]:
    """A range for each pass of a kernel for messages beyond `low`, one where passes cost nothing."""
    each = wait_s * own.members
    if not each:
        return [Range(first=low, last=up_to, start=start, slope=own.slope)]
    numbers = range(int(low // own.passes) + 1, int(np.ceil(up_to / own.passes)) + 1)
    return [
        Range(first=max((number - 1) * own.passes, low), last=min(number * own.passes, up_to), start=start + each * number, slope=own.slope)
        for number in numbers
    ]


def _above(one: Range, floor_s: float) -> list[Range]:
    """A range whose calls take no less than the floor: as it is, flat, or flat at first."""
    begin, end = (one.start + one.slope * size for size in (one.first, one.last))
    flat = replace(one, start=floor_s, slope=0.0)
    if end <= floor_s:
        return [flat]
    if begin >= floor_s:
        return [one]
    crossing = (floor_s - one.start) / one.slope
    return [replace(flat, last=crossing), replace(one, first=crossing)]


def _alone(own: CallCurve, floor_s: float) -> Range:
    """The line of a kernel of which one size was measured: it is taken to start as the curve's smallest message does."""
    size, seconds = float(own.volume[0]), float(np.median(own.seconds))
    start = min(floor_s, seconds)
    return Range(first=size, last=size, start=start, slope=(seconds - start) / size)


def _cut(volume: Array, seconds: Array, steepest: float, each: float, flattest: float | None) -> tuple[float, list[Range]]:
    """The least sum of errors and prices, and its ranges. each: what one costs · flattest: s/byte of the last one at least; None where
    larger messages are another kernel's."""
    sizes = np.unique(volume)
    step = -(-len(sizes) // MOST_CUTS)
    firsts = sizes[::step]
    lasts = np.append(sizes[step - 1 :: step][: len(firsts) - 1], sizes[-1])
    best: list[tuple[float, list[Range]]] = [(0.0, [])]
    for last in range(len(firsts)):
        choices = []
        open_ended = flattest is not None and last == len(firsts) - 1
        for first in range(max(last, 1) if open_ended else last + 1):
            inside = (volume >= firsts[first]) & (volume <= lasts[last])
            start, slope = _line(volume[inside], seconds[inside], steepest, (flattest or 0.0) if open_ended else 0.0)
            away = np.abs(np.log(np.maximum(start + slope * volume[inside], 1e-12) / seconds[inside]))
            price = each * (ALONE if firsts[first] == lasts[last] else 1.0)
            ranges = [*best[first][1], Range(first=float(firsts[first]), last=float(lasts[last]), start=start, slope=slope)]
            choices.append((best[first][0] + float(np.minimum(away, MOST).sum()) + price, ranges))
        best.append(min(choices, key=lambda one: one[0]))
    return best[-1]


def _line(volume: Array, seconds: Array, steepest: float, flattest: float = 0.0) -> tuple[float, float]:
    """(start, slope) of least relative errors, no start negative; calls far off count less from round to round."""
    weight = 1.0 / seconds
    start, slope = float(np.median(seconds)), 0.0
    if np.all(volume == volume[0]):
        return start, slope
    for _ in range(ROUNDS):
        w = weight**2
        s, sv, svv, st, svt = (float((w * x).sum()) for x in (1.0, volume, volume**2, seconds, volume * seconds))
        det = s * svv - sv * sv
        start, slope = (svv * st - sv * svt) / det, (s * svt - sv * st) / det
        if slope < flattest:
            start, slope = (st - flattest * sv) / s, flattest
        elif slope > steepest:
            start, slope = (st - steepest * sv) / s, steepest
        if start < 0:
            start, slope = 0.0, max(min(svt / svv, steepest), flattest)
        away = np.abs(np.log(np.maximum(start + slope * volume, 1e-12) / seconds))
        weight = 1.0 / (seconds * np.sqrt(1.0 + (away / NEAR) ** 2))
    return start, slope


def _switch(one: Range, other: Range) -> float:
    """The largest message of the first of two neighbours."""
    if one.last == other.first:
        return one.last
    crossing = (other.start - one.start) / (one.slope - other.slope) if one.slope != other.slope else np.inf
    if one.last < crossing < other.first:
        return float(crossing)
    middle = np.sqrt(one.last * other.first)
    first_is_faster = one.start + one.slope * middle <= other.start + other.slope * middle
    return JUST_BELOW * other.first if first_is_faster else one.last
