"""Watts of a kernel that was run over and over, where a row tells them: a data set of their own beside the kernel's seconds.

W = static + joules / (seconds + gap)      joules: of the kernel, with what the GPU draws while it runs · gap: it waits for the host
"""

from __future__ import annotations

from dataclasses import replace

from rackmodel.model.architecture import Architecture
from rackmodel.validation.rows import PublishedRow
from rackmodel.validation.score import ScoredRow
from rackmodel.validation.words import words


def gap_of(row: PublishedRow, graph: bool = True) -> float:
    """Seconds for which the GPU waits between kernels of a loop. graph: whether the kernel's seconds leave out what the host takes."""
    said = words()
    own, other = said.dataset(row.dataset).loop_gap_s, said.datasets["*"].loop_gap_s
    return (own if own is not None else other) or 0.0 if graph else 0.0


def watts_row(
    row: PublishedRow, time: ScoredRow, machine: Architecture, joules: float, *, graph: bool = True, note: str = ""
) -> list[ScoredRow]:
    """The watts of a row beside `time`, its seconds; none where it tells none. joules: of one kernel, without static power · graph:
    whether its seconds leave out what the host takes · note: an assumption of the watts."""
    watts = row.number("power_w")
    if not watts or time.refused:
        return []
    gap = gap_of(row, graph)
    drawn = machine.accelerator.static_power_w + joules / (time.predicted + gap)
    return [
        replace(
            time,
            id=f"{row.id} power",
            dataset=f"{row.dataset}_power",
            unit="W",
            measured=watts,
            predicted=drawn,
            assumptions=(*time.assumptions, f"waits {gap * 1e6:.3g} us between kernels", *filter(None, [note])),
            bins={},
            interval=None,
        )
    ]
