"""A result: the best mapping, what it costs, and how good that is known to be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rackmodel.model.mapping import Certificate, MappingSpec


@dataclass(frozen=True)
class Result:
    """One priced mapping. ledger: a cost.ledger.Ledger; every figure here is a sum over it.

    latency_s: Σ exposed_seconds · energy_j: Σ joules · carbon_g: None where the architecture has no site ·
    memory_bytes: by what holds it, on the fullest accelerator.
    """

    architecture: str
    workload: str
    mapper: str
    latency_s: float
    energy_j: float
    carbon_g: float | None
    memory_bytes_per_accelerator: float
    mapping: MappingSpec
    certificate: Certificate
    ledger: Any
    memory: dict[str, float] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, keys as the contract names them."""
        return {
            "architecture": self.architecture,
            "workload": self.workload,
            "mapper": self.mapper,
            "latency_s": self.latency_s,
            "energy_j": self.energy_j,
            "carbon_g": self.carbon_g,
            "memory_bytes_per_accelerator": self.memory_bytes_per_accelerator,
            "memory": dict(self.memory),
            "mapping": self.mapping.model_dump(by_alias=True, exclude_none=False, exclude={"source", "note"}),
            "certificate": self.certificate.to_dict(),
            "ledger": [row.to_dict() for row in self.ledger],
        }
