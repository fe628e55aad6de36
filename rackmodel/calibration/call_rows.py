"""Measured collectives as curves: a library's collective in one mode for one number of members, releases that are alike together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rackmodel.arrays import Array
from rackmodel.calibration.call_kernels import known_kernels
from rackmodel.calibration.product_rows import one_gpu
from rackmodel.errors import InputError, Where
from rackmodel.model.calls import age_of
from rackmodel.validation.collectives import MeasuredCall, measured_call
from rackmodel.validation.rows import PublishedRow, read_rows
from rackmodel.validation.words import Refused

ALIKE = 0.035  # mean |log| of two releases' times below which they are one
FAR = 0.2  # of one call, at most

SUMS = ("all_reduce", "reduce_scatter")
"""Kinds whose kernels are of a width: the others move bytes, whatever these stand for (NVIDIA/nccl, src/enqueue.cc: an all-gather becomes
one of elements of 8 bit, `t->count *= elementSize`; an all-to-all is sends of bytes)."""


@dataclass(frozen=True, kw_only=True)
class CallCurves:
    """What one fact stands for. curves: members → [2, n] bytes and seconds."""

    library: str
    kind: str
    mode: str
    releases: tuple[str, ...]
    widths: tuple[int, ...]
    curves: dict[int, Array]


def read_calls(paths: Sequence[Path], gpu: str | None, *, between_nodes: bool = False) -> tuple[str, list[CallCurves]]:
    """The GPU of the files' collectives and their curves, inside a node or between nodes. Raises InputError."""
    rows = [row for path in paths for row in read_rows(path)]
    name = one_gpu((row.text("system", "machine", "gpu") for row in rows), gpu)
    chosen = [row for row in rows if gpu in (None, row.text("system", "machine", "gpu"))]
    return name, _alike(_by_release([call for call in map(_read, chosen) if (call.nodes > 1) == between_nodes]), name)


def _by_release(calls: Sequence[MeasuredCall]) -> list[CallCurves]:
    """Every release by itself, and every width where calls sum; the newest release first."""
    found: dict[tuple[str, str, str, str, int], dict[int, list[tuple[float, float]]]] = {}
    widths: dict[tuple[str, str, str, str, int], list[int]] = {}
    for call in calls:
        assert call.call is not None
        library, release, mode = call.call.library, call.call.release or "", call.call.mode
        key = (library, call.operation, mode, release, call.bits if call.operation in SUMS else 0)
        found.setdefault(key, {}).setdefault(call.members, []).append((call.bytes, call.seconds))
        widths.setdefault(key, []).append(call.bits)
    order = sorted(found, key=lambda key: (key[:3], [-number for number in age_of(key[3])], -key[4]))
    return [
        CallCurves(
            library=key[0],
            kind=key[1],
            mode=key[2],
            releases=(key[3],),
            widths=tuple(sorted(set(widths[key]), reverse=True)),
            curves={p: np.array(sorted(calls)).T for p, calls in sorted(found[key].items())},
        )
        for key in order
    ]


def _read(row: PublishedRow) -> MeasuredCall:
    try:
        call = measured_call(row)
    except Refused as problem:
        raise InputError(str(problem), where=Where(row.file, row.line, 1)) from None
    if call.call is None:
        raise InputError("want the library that made the call", where=Where(row.file, row.line, 1))
    return call


def _alike(curves: Sequence[CallCurves], gpu: str) -> list[CallCurves]:
    """Releases whose calls of one width take the same are put together, where as far as is known they call the same kernels; then widths
    of the same releases."""

    def kernels(one: CallCurves) -> tuple[object, ...]:
        return one.widths, *(known_kernels(one.library, one.releases, gpu, one.kind, p) for p in one.curves)

    return _together(_together(curves, kernels), lambda one: one.releases)


def _together(curves: Sequence[CallCurves], own: Callable[[CallCurves], tuple[object, ...]]) -> list[CallCurves]:
    found: list[CallCurves] = []
    for one in curves:
        place = next((number for number, other in enumerate(found) if own(one) == own(other) and _same(one, other)), None)
        if place is None:
            found.append(one)
        else:
            found[place] = _joined(found[place], one)
    return found


def _same(one: CallCurves, other: CallCurves) -> bool:
    if (one.library, one.kind, one.mode) != (other.library, other.kind, other.mode) or set(one.curves) != set(other.curves):
        return False
    away = np.concatenate([_apart(one.curves[p], other.curves[p]) for p in one.curves])
    return len(away) > 0 and float(np.minimum(away, FAR).mean()) < ALIKE


def _apart(one: Array, other: Array) -> Array:
    """|log| of the times of two curves at the sizes that both have."""
    sizes = np.intersect1d(one[0], other[0])
    mean = [np.array([np.median(np.log(side[1][side[0] == size])) for size in sizes]) for side in (one, other)]
    return np.asarray(np.abs(mean[0] - mean[1]))


def _joined(one: CallCurves, other: CallCurves) -> CallCurves:
    curves = {p: np.concatenate([one.curves[p], other.curves[p]], axis=1) for p in one.curves}
    return CallCurves(
        library=one.library,
        kind=one.kind,
        mode=one.mode,
        releases=tuple(dict.fromkeys((*one.releases, *other.releases))),
        widths=tuple(dict.fromkeys((*one.widths, *other.widths))),
        curves={p: calls[:, np.argsort(calls[0], kind="stable")] for p, calls in curves.items()},
    )
