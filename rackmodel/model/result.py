"""A result: the best mapping, what it costs, what limits it, and how good that is known to be.

    mfu = useful operations / (latency * peak)        useful: matrix operations of the model, forward and backward, each once
    hfu = operations that run / (latency * peak)      with what is made again, and what members of a group repeat

Source of the form: PaLM (Chowdhery 2022), appendix B.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rackmodel.model.architecture import Architecture
from rackmodel.model.certificate import Certificate
from rackmodel.model.mapping import MappingSpec
from rackmodel.model.occupancy import FullPipeline

ACTIONS = {"mac": "matrix products", "vector": "vector operations", "bubble": "pipeline bubble", "host": "host"}
STREAMS = ("broadcast", "reduce")


@dataclass(frozen=True)
class Limit:
    """What the critical path waits for. what: 'matrix products', 'memory gpu', 'network node', 'stream swarmx', 'pipeline bubble',
    'host' · share: of the latency."""

    what: str
    share: float

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"what": self.what, "share": self.share}


@dataclass(frozen=True)
class Repetition:
    """What members of a group do alike. axes: that they lie on, which leave the operations whole · seconds: as if alone, on the busiest
    stage · joules: of all accelerators · bytes: of weights, gradients and optimizer state on one accelerator; each of a step, less what
    doing it once would take."""

    axes: tuple[str, ...]
    operations: tuple[str, ...]
    seconds: float
    joules: float
    bytes: float

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**self.__dict__, "axes": list(self.axes), "operations": list(self.operations)}


@dataclass(frozen=True)
class Result:
    """One priced mapping. ledger: a cost.ledger.Ledger; every figure here is a sum over it.

    latency_s: Σ exposed_seconds · energy_j: Σ joules · carbon_g: None where the architecture has no site ·
    memory: bytes by what holds them, on the fullest accelerator · machine, peak_flop_per_s: what it ran on, and its peak at the fastest of
    the widths that are multiplied · tokens: of a step, where the workload has tokens · nests: contraction → its loop nest ·
    warnings: what a reader must know of it, such as a memory that it overflows · pipelined: with the pipeline of wired layers full ·
    room_bytes: that an accelerator may hold, where that is limited · waiting_w: of all accelerators in use beside static power, while they
    wait amid work.
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
    machine: Architecture | None = None
    peak_flop_per_s: float | None = None
    tokens: float | None = None
    nests: Mapping[str, Any] = field(default_factory=dict)
    useful_flop: float | None = None
    repeated: tuple[Repetition, ...] = ()
    warnings: tuple[str, ...] = ()
    pipelined: FullPipeline | None = None
    room_bytes: float | None = None
    waiting_w: float = 0.0

    @property
    def accelerators(self) -> int:
        """Accelerators in use."""
        return self.mapping.accelerators

    @property
    def limits(self) -> tuple[Limit, ...]:
        """What the critical path waits for, longest first; empty where it has no length."""
        machine = self.machine
        pools = () if machine is None else machine.pools
        inside = {level.name for pool in pools for level, _ in pool.inside}
        outside = set() if machine is None else {level.name for level in machine.tree.walk()} - inside
        parts: dict[str, list[float]] = {}
        for (component, level, action), seconds in self.ledger.group(("component", "level", "action"), "exposed_seconds").items():
            parts.setdefault(_waits_for(component, level, action, level in outside), []).append(seconds)
        total = self.ledger.total("exposed_seconds")
        sums = {what: math.fsum(seconds) for what, seconds in parts.items()}
        return tuple(Limit(what, sums[what] / total) for what in sorted(sums, key=lambda what: (-sums[what], what)) if sums[what] > 0)

    @property
    def limited_by(self) -> Limit | None:
        """What the critical path waits for most."""
        return next(iter(self.limits), None)

    @property
    def memory_share(self) -> float | None:
        """Bytes used over those that the fullest accelerator may hold, or has where no limit is enforced; None where that is not known."""
        machine = self.machine
        memory = None if machine is None else machine.pools[0].accelerator.memory
        room = self.room_bytes if memory is None or self.room_bytes is not None else memory.capacity_bytes
        return float(self.memory_bytes_per_accelerator / room) if room else None

    @property
    def mfu(self) -> float | None:
        """Model FLOP utilisation: useful operations over the peak; None where the peak is not known."""
        return self._utilisation(self._run("forward", "backward") if self.useful_flop is None else self.useful_flop)

    @property
    def hfu(self) -> float | None:
        """Hardware FLOP utilisation: operations that run over the peak; None where the peak is not known."""
        return self._utilisation(self._run("forward", "recompute", "backward"))

    def _run(self, *phases: str) -> float:
        return float(self.ledger.where(component="compute", action="mac", phase=phases).total("amount"))

    def _utilisation(self, operations: float) -> float | None:
        peak = self.peak_flop_per_s
        return operations / (self.latency_s * peak) if peak and self.latency_s > 0 else None

    @property
    def joules_per_token(self) -> float | None:
        """Energy for each token of a step; None where they are not known."""
        return self.energy_j / self.tokens if self.tokens else None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, keys as the contract names them; `mfu`, `hfu`, `tokens` and `joules_per_token` where they are known."""
        limit = self.limited_by
        pipelined = None if self.pipelined is None else self.pipelined.to_dict()
        known = {"pipelined": pipelined, "mfu": self.mfu, "hfu": self.hfu, "tokens": self.tokens, "joules_per_token": self.joules_per_token}
        return {
            "architecture": self.architecture,
            "workload": self.workload,
            "mapper": self.mapper,
            "accelerators": self.accelerators,
            "latency_s": self.latency_s,
            "energy_j": self.energy_j,
            "carbon_g": self.carbon_g,
            "memory_bytes_per_accelerator": self.memory_bytes_per_accelerator,
            "memory": dict(self.memory),
            "memory_share": self.memory_share,
            "warnings": list(self.warnings),
            "limited_by": None if limit is None else limit.to_dict(),
            **{name: value for name, value in known.items() if value is not None},
            "repeated": [one.to_dict() for one in self.repeated],
            "mapping": self.mapping.model_dump(by_alias=True, exclude_none=False, exclude={"source", "note"}),
            "certificate": self.certificate.to_dict(),
            "ledger": [row.to_dict() for row in self.ledger],
        }


def _waits_for(component: str, level: str, action: str, outside: bool) -> str:
    """A ledger row's resource in words. outside: whether the level is above the accelerators (a switch that adds, a home that updates)."""
    if component == "compute":
        return ACTIONS.get(action, action) + (f" {level}" if outside else "")
    return f"{'stream' if component == 'network' and action in STREAMS else component} {level}"
