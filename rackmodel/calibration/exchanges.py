"""A network's exchanges of tokens fitted to measured ones, and what a file of specs/collectives says of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rackmodel.calibration.fit_exchanges import fit_exchange
from rackmodel.calibration.log_fit import Fit
from rackmodel.errors import InputError, Where
from rackmodel.model.exchanges import ExchangeMode, ExchangeTimes
from rackmodel.validation.exchanges import LIBRARY, WAYS, MeasuredExchange, exchange_level, measured_exchange, tokens_of
from rackmodel.validation.machine_files import machine_of
from rackmodel.validation.rows import read_rows
from rackmodel.validation.words import Refused


@dataclass(frozen=True, kw_only=True)
class CalibratedExchange:
    """One mode of a library. fits: way → the numbers that were found."""

    gpu: str
    mode: ExchangeMode
    release: str
    fits: dict[str, Fit[ExchangeTimes]]

    def words(self) -> str:
        """How far the fits are from their rows, and from numbers of tokens that they did not see."""
        inside, outside = (np.concatenate([getattr(fit, side) for fit in self.fits.values()]) for side in ("inside", "outside"))
        return (
            f"fitted to {len(inside)} times ({self.gpu}, {LIBRARY} in SGLang {self.release}, {self.mode}): mean and median error "
            f"{100 * inside.mean():.1f} and {100 * np.median(inside):.1f} %, of numbers of tokens held out "
            f"{100 * np.nanmean(outside):.1f} and {100 * np.nanmedian(outside):.1f} %"
        )


def calibrate_exchanges(paths: Sequence[Path], gpu: str | None, *, between_nodes: bool) -> list[CalibratedExchange]:
    """Fit the modes of the files' GPU, inside a node or between nodes. Raises InputError."""
    groups: dict[tuple[ExchangeMode, str], list[MeasuredExchange]] = {}
    for row in (row for path in paths for row in read_rows(path)):
        if gpu in (None, row.text("system", "gpu")):
            try:
                one = measured_exchange(row)
            except Refused as problem:
                raise InputError(str(problem), where=Where(row.file, row.line, 1)) from None
            if (one.nodes > 1) == between_nodes:
                groups.setdefault((one.mode, one.release), []).append(one)
    found = []
    for (mode, release), rows in groups.items():
        exchange = tokens_of(rows, _ranks(rows[0]))
        seconds = np.array([one.seconds for one in rows]).T
        fits = {way: fit_exchange(way, mode, exchange, seconds[number]) for number, way in enumerate(WAYS)}
        found.append(CalibratedExchange(gpu=gpu or rows[0].machine.machine, mode=mode, release=release, fits=fits))
    return found


def _ranks(one: MeasuredExchange) -> int:
    machine = machine_of(*one.machine.named)
    return exchange_level(machine, 1)[1]


def exchanges_text(found: Sequence[CalibratedExchange], origin: str) -> str:
    """The exchanges of a file of specs/collectives. origin: where the rows come from."""
    lines = ["exchanges:", f"  {LIBRARY}:"]
    for one in found:
        lines += [f"  - mode: {one.mode}", f"    releases: ['{one.release}']"]
        lines += [f"    {way}: {_said(fit.facts)}" for way, fit in one.fits.items()]
        lines.append(f'    source: "SOURCED: `rackmodel calibrate`, {one.words()}; {origin}"')
    return "\n".join(lines) + "\n"


def _said(times: ExchangeTimes) -> str:
    said = {
        "start": f"{times.start_s * 1e6:.4g} us",
        "start_of_vector": f"{times.start_of_vector_s * 1e6:.3g} us" if times.start_of_vector_s else "",
        "start_of_expert": f"{times.start_of_expert_s * 1e9:.3g} ns" if times.start_of_expert_s else "",
        "start_of_node": f"{times.start_of_node_s * 1e6:.3g} us" if times.start_of_node_s else "",
        "element": f"{times.element_bytes:g} byte",
        "link": f"{times.link_bytes_per_s / 1e9:.4g} GB/s",
        "worker": f"{times.worker_bytes_per_s / 1e9:.4g} GB/s" if times.worker_bytes_per_s else "",
        "copy": f"{times.copy_bytes:.4g} byte" if times.copy_bytes else "",
        "local": f"{times.local:.4g}" if times.local else "",
        "together": f"{times.together:.4g}" if times.worker_bytes_per_s else "",
    }
    return "{" + ", ".join(f"{key}: {text}" for key, text in said.items() if text) + "}"
