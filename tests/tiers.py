"""Machines of tiers of networks, on which collectives are priced."""

from __future__ import annotations

from typing import Any

from rackmodel.errors import InputError
from rackmodel.model.architecture import Architecture

GPU = {"name": "gpu", "accelerator": True, "compute": {"rate": "1 TFLOP/s"}}
SWITCH = {"topology": "switch", "bandwidth": "100 GB/s", "latency": "0 s", "energy": "1 pJ/bit"}
FIGURES = ("wire_bytes_per_byte", "joules_per_byte", "seconds_per_byte", "latency_s")


def machine(*tiers: tuple[int, dict[str, Any]], beside: dict[str, Any] | None = None, accelerators: int | None = None) -> Architecture:
    """tiers: (children, what differs from SWITCH), innermost first · beside: a level next to the outermost children."""
    node: dict[str, Any] = dict(GPU)
    for number, (count, changes) in enumerate(tiers):
        node = {"name": f"tier{number}", "network": SWITCH | changes, "children": [node | {"count": count}]}
    if beside:
        node["children"].append(beside)
    return Architecture.model_validate({"architecture": "m", "tree": node, "accelerators": accelerators})


def priced(call: Any, *told: Any) -> Any:
    """What a call says; None where it is refused."""
    try:
        return call(*told)
    except InputError:
        return None
