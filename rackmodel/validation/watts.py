"""Watts of a kernel that was run over and over, where a row tells them: a data set of their own beside the kernel's seconds.

    W = static + joules / (seconds + gap)      joules: of the kernel, with what the GPU draws while it runs · gap: it waits for the host

Where a kernel was compiled right before its loop, the meter shows in part what the GPU drew while it waited (meter.py).
"""

from __future__ import annotations

from dataclasses import replace

from rackmodel.cost.inside.gpu import gpu_of
from rackmodel.model.architecture import Architecture
from rackmodel.validation.meter import after_waiting
from rackmodel.validation.rows import PublishedRow
from rackmodel.validation.score import ScoredRow
from rackmodel.validation.words import words


def watts_row(
    row: PublishedRow, time: ScoredRow, machine: Architecture, joules: float, *, graph: bool = True, waited: bool = False
) -> list[ScoredRow]:
    """The watts of a row beside `time`, its seconds; none where it tells none. joules: of one kernel, without static power · graph:
    whether its seconds leave out what the host takes · waited: whether the GPU waited for the kernel to be compiled before its loop."""
    watts = row.number("power_w")
    if not watts or time.refused:
        return []
    said = words()
    own, other = said.dataset(row.dataset).loop_gap_s, said.datasets["*"].loop_gap_s
    gap = (own if own is not None else other) or 0.0 if graph else 0.0
    static = machine.accelerator.static_power_w
    drawn = static + joules / (time.predicted + gap)
    gpu = gpu_of(machine) if waited else None
    if gpu is not None:
        drawn = after_waiting(drawn, static + gpu.facts.waiting_power_w, time.predicted + gap)
    how = (f"waits {gap * 1e6:.3g} us between kernels", *(("read after the GPU waited for its kernel",) if gpu is not None else ()))
    return [
        replace(
            time,
            id=f"{row.id} power",
            dataset=f"{row.dataset}_power",
            unit="W",
            measured=watts,
            predicted=drawn,
            assumptions=(*time.assumptions, *how),
            bins={},
        )
    ]
