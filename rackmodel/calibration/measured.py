"""What measuring a GPU says: one kernel's time, or why it cannot be had; apart from `measure`, which is there twice where it is run."""

from __future__ import annotations

from dataclasses import dataclass

VOCABULARY = 32768
"""Rows of the table that operations look up in, and of the logits that losses read."""
Model = tuple[int, int, int, int]
"""(hidden, heads, shared heads, inside)"""
Heads = tuple[int, int, int]
"""Of queries, of keys, and the width of each."""


@dataclass(frozen=True)
class KernelTime:
    """seconds: of one · watts, clock_hz: meanwhile, None where nothing tells them · kernels: how many they are, where that is told."""

    seconds: float
    watts: float | None = None
    clock_hz: float | None = None
    kernels: int | None = None

    def columns(self) -> dict[str, str]:
        """As files have it."""
        watts = "" if self.watts is None else f"{self.watts:.1f}"
        clock = "" if self.clock_hz is None else f"{self.clock_hz * 1e-6:.0f}"
        return {"latency_us": f"{self.seconds * 1e6:.6g}", "power_w": watts, "clock_mhz": clock}


class CannotError(Exception):
    """What this GPU, or its software, cannot do, as its first line says it."""
