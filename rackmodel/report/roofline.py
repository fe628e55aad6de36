"""Every operation on the roofline of its accelerator, read from the ledger.

    intensity = FLOP / bytes at the accelerator's memory      rate = FLOP / (accelerators x seconds of the operation alone)

Source of the form: Williams, Waterman and Patterson, Roofline (2009). The rate is a mean of the accelerators that run it: of a mapping
whose stages hold operations, those of a stage; of a pipeline of layers all, so that an operation of one stage alone lies lower.
"""

from __future__ import annotations

from dataclasses import dataclass

from rackmodel.cost.ledger import Ledger
from rackmodel.model.result import Result
from rackmodel.report.sketch_data import busiest_seconds


@dataclass(frozen=True)
class RooflinePoint:
    """An operation in a phase. flop, bytes: of all accelerators · seconds: alone · intensity: flop a byte · rate: flop a second of an
    accelerator · exposed: seconds of the critical path."""

    phase: str
    einsum: str
    flop: float
    bytes: float
    seconds: float
    intensity: float
    rate: float
    exposed: float


def roofline_points(result: Result) -> list[RooflinePoint]:
    """Operations with matrix products and traffic at the accelerator's memory, in program order."""
    if result.machine is None or len(result.machine.pools) > 1:  # accelerators of several kinds have no one roof
        return []
    ledger: Ledger = result.ledger
    here = result.machine.accelerator.name
    by = ("phase", "einsum")
    flop = ledger.where(component="compute", action="mac", unit="flop").group(by, "amount")
    moved = ledger.where(component="memory", level=here, unit="byte").group(by, "amount")
    inside = ledger.where(component=("compute", "memory"))
    exposed, times = inside.group(by, "exposed_seconds"), busiest_seconds(result.machine, inside, by)
    members = result.accelerators / max(1, len(result.mapping.stages))
    found = []
    for key, work in flop.items():
        seconds = max((value for (phase, einsum, *_), value in times.items() if (phase, einsum) == key), default=0.0)
        size = moved.get(key, 0.0)
        if work > 0 and size > 0 and seconds > 0:
            rate = work / (members * seconds)
            found.append(RooflinePoint(key[0], key[1], work, size, seconds, work / size, rate, exposed.get(key, 0.0)))
    return found
