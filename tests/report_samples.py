"""A ledger and results worked by hand, for the tests of report/."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rackmodel.cost.ledger import Charge, Ledger
from rackmodel.model.architecture import Architecture
from rackmodel.model.certificate import Certificate
from rackmodel.model.mapping import MappingSpec, PlacedAxis
from rackmodel.model.result import Result

# joules: compute 6, memory 3, network 0.5 + 0.25, static 0.25: 10 J · exposed: 4 + 0.5 + 0.5 ms: 5 ms
LEDGER = Ledger(
    (
        Charge("forward", "FC1", "", "thread", "compute", "mac", 3.8e12, "flop", 6.0, 4e-3, 4e-3),
        Charge("backward", "FC1", "W1", "gpu", "memory", "read", 1e9, "byte", 3.0, 1e-3, 0.0),
        Charge("forward", "FC1", "X", "rack", "network", "all_gather", 2.5e8, "byte", 0.5, 0.5e-3, 0.5e-3),
        Charge("forward", "FC2", "Y", "rack", "network", "reduce_scatter", 2.5e8, "byte", 0.25, 0.5e-3, 0.5e-3),
        Charge("forward", "", "", "gpu", "static", "idle", 1.0, "second", 0.25, 0.0, 0.0),
    )
)


def result(
    mapper: str = "tensor",
    axes: Mapping[str, int] | None = None,
    *,
    stages: Sequence[Sequence[str]] = (),
    carbon: float | None = 1.2e-3,
    gap: float = 0.0,
    energy_scale: float = 1.0,
    machine: str = "rack_paper",
    accelerators: int = 8,
    rows: Ledger = LEDGER,
    there: Architecture | None = None,
    **known: Any,
) -> Result:
    """A result over the ledger above or `rows`, its joules times `energy_scale`. there: the machine · known: further fields."""
    ledger = Ledger(tuple(replace(row, joules=float(row.joules) * energy_scale) for row in rows))
    mapping = MappingSpec(
        name=mapper,
        accelerators=accelerators,
        axes={name: PlacedAxis(degree=degree) for name, degree in (axes or {"tp": 8}).items()},
        stages=[list(stage) for stage in stages],
        profile="serial",
    )
    latency, energy = ledger.total("exposed_seconds"), ledger.total()
    certificate = Certificate("enumerate", "latency", 3, 3, latency, latency * (1 - gap), gap, seconds=0.01)
    memory = {"weights": 1e9, "activations": 0.234e9}
    return Result(machine, "ffn", mapper, latency, energy, carbon, 1.234e9, mapping, certificate, ledger, memory, there, **known)
