"""A network's collectives fitted to measured calls, and the file of specs/collectives that says them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from rackmodel.arrays import Array
from rackmodel.calibration.call_kernels import known_kernels, least_slope
from rackmodel.calibration.call_rows import CallCurves, read_calls
from rackmodel.calibration.exchanges import calibrate_exchanges, exchanges_text
from rackmodel.calibration.fit_calls import LEAST_SIZES, CallCurve, fit_curves
from rackmodel.calibration.log_fit import Fit
from rackmodel.calibration.shares import mean_and_median
from rackmodel.calibration.told_calls import others_of
from rackmodel.errors import InputError
from rackmodel.model.calls import CallTimes
from rackmodel.validation.rows import kind_of_file


@dataclass(frozen=True, kw_only=True)
class CalibratedCalls:
    """One collective of a library. fits: members → the kernels that were found."""

    gpu: str
    curves: CallCurves
    fits: dict[int, Fit[CallTimes]]

    @property
    def inside(self) -> Array:
        """Errors of all calls that it was fitted to."""
        return np.concatenate([fit.inside for fit in self.fits.values()])

    @property
    def outside(self) -> Array:
        """Errors of the same calls in fits without their sizes."""
        return np.concatenate([fit.outside for fit in self.fits.values()])

    def words(self) -> str:
        """How far the fit is from its calls, and from calls of sizes that it did not see."""
        return (
            f"fitted to {len(self.inside)} calls ({self.gpu}, {self.curves.library} {', '.join(self.curves.releases)}, {self.curves.kind}, "
            f"{self.curves.mode}): mean and median error {mean_and_median(self.inside)} %, "
            f"of sizes held out {mean_and_median(self.outside)} %"
        )


def calibrate_calls(
    paths: Sequence[Path], gpu: str | None = None, *, between_nodes: bool = False, left: list[str] | None = None
) -> list[CalibratedCalls]:
    """Fit the collectives of the files' GPU. gpu: of the files, where they hold several · left: gets what is said of calls of too few
    sizes. Raises InputError, where there are no others too."""
    left = [] if left is None else left
    name, read = read_calls(paths, gpu, between_nodes=between_nodes)
    every = [found for one in read if (found := _of_enough_sizes(one, left)).curves]
    if read and not every:
        raise InputError(f"no collective to fit: {'; '.join(left)}", path=", ".join(path.name for path in paths))
    return [CalibratedCalls(gpu=name, curves=one, fits=fits) for one, fits in zip(every, _fitted(name, every), strict=True)]


def _of_enough_sizes(one: CallCurves, left: list[str]) -> CallCurves:
    """The same without the numbers of members of which too few sizes were measured, which `left` is told."""
    sizes = {p: len(np.unique(calls[0])) for p, calls in one.curves.items()}
    whose = f"{one.library} {', '.join(one.releases)}, {one.kind}, {one.mode}"
    left += [f"{count} sizes of {whose} among {p}: want {LEAST_SIZES} or more" for p, count in sizes.items() if count < LEAST_SIZES]
    return replace(one, curves={p: calls for p, calls in one.curves.items() if sizes[p] >= LEAST_SIZES})


def _fitted(gpu: str, every: Sequence[CallCurves]) -> list[dict[int, Fit[CallTimes]]]:
    """Members → fit of each; those of one mode together, for they share what a kernel's passes cost."""
    found: list[dict[int, Fit[CallTimes]]] = [{} for _ in every]
    for mode in dict.fromkeys(one.mode for one in every):
        own = [(number, p) for number, one in enumerate(every) if one.mode == mode for p in one.curves]
        fits = fit_curves([_curve(gpu, every, number, p) for number, p in own])
        for (number, p), fit in zip(own, fits, strict=True):
            found[number][p] = fit
    return found


def _curve(gpu: str, every: Sequence[CallCurves], number: int, members: int) -> CallCurve:
    """Some members' of one of the curves."""
    one = every[number]
    volume, seconds = one.curves[members]
    kernels = known_kernels(one.library, one.releases, gpu, one.kind, members)
    flattest = least_slope(gpu, one.kind, members, one.widths)
    return CallCurve(
        volume=volume,
        seconds=seconds,
        members=members,
        kernels=kernels,
        family=number,
        flattest=flattest,
        others=others_of(every, one, members),
    )


def calibrate_network(name: str, paths: Sequence[Path], gpu: str | None = None, left: list[str] | None = None) -> tuple[str, list[str]]:
    """A file of specs/collectives from files of collectives and of exchanges of tokens, and how near its facts are: of what was called
    inside a node, and where a file has nothing of that, between nodes. left: gets what is said of what no fit took. Raises InputError."""
    origin = f"rows of {', '.join(path.name for path in paths)}"
    exchanged = [path for path in paths if kind_of_file(path) == "expert exchange"]
    called = [path for path in paths if path not in exchanged]
    calls = (calibrate_calls(called, gpu, left=left) or calibrate_calls(called, gpu, between_nodes=True, left=left)) if called else []
    inside = calibrate_exchanges(exchanged, gpu, between_nodes=False) if exchanged else []
    exchanges = inside or (calibrate_exchanges(exchanged, gpu, between_nodes=True) if exchanged else [])
    text = calls_text(name, calls, origin) if calls else f"collectives: {name}\n"
    near = [*(one.words() for one in calls), *(one.words() for one in exchanges)]
    return text + (exchanges_text(exchanges, origin) if exchanges else ""), near


def calls_text(name: str, found: Sequence[CalibratedCalls], origin: str) -> str:
    """A file of specs/collectives. origin: where the rows come from."""
    lines = [
        f"# What collectives take in libraries' kernels on {found[0].gpu}, by `rackmodel calibrate`. Each number of members has its",
        "# kernels in the order of their messages: the largest message of each, its start, and bytes that it gets done in a second.",
        f"collectives: {name}",
        "calls:",
    ]
    for library in dict.fromkeys(one.curves.library for one in found):
        lines.append(f"  {library}:")
        own = [one for one in found if one.curves.library == library]
        for one in own:
            lines += _entry(one, origin, len({other.curves.widths for other in own if other.curves.kind == one.curves.kind}) > 1)
    return "\n".join(lines) + "\n"


def _entry(one: CalibratedCalls, origin: str, by_width: bool) -> list[str]:
    """The lines of one collective. by_width: whether others of its kind are of other widths."""
    curves = one.curves
    releases = ", ".join(f"'{release}'" for release in curves.releases)
    lines = [f"  - kind: {curves.kind}", f"    mode: {curves.mode}", f"    releases: [{releases}]"]
    if by_width:
        lines.append(f"    widths: [{', '.join(f'{bits} bit' for bits in curves.widths)}]")
    lines.append("    members:")
    lines += [f"      '{p}': {_times(fit.facts)}" for p, fit in one.fits.items()]
    return [*lines, f'    source: "SOURCED: `rackmodel calibrate`, {one.words()}; {origin}"']


def _times(times: CallTimes) -> str:
    said = {
        "up_to": _series(times.up_to_bytes, 1024.0, "KiB"),
        "start": _series(times.start_s, 1e-6, "us"),
        "rate": _series(times.rate_bytes_per_s, 1e9, "GB/s"),
    }
    return "{" + ", ".join(f"{key}: {text}" for key, text in said.items() if text) + "}"


def _series(values: Sequence[float], unit: float, name: str) -> str:
    return " ".join(f"{value / unit:.4g}" for value in values) + f" {name}" if values else ""
