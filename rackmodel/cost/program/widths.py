"""Bytes of operands that are wider where they are sent or kept than where they are multiplied: a profile's `casts` say so."""

from __future__ import annotations

from dataclasses import replace

from rackmodel.model.plan import Plan
from rackmodel.model.resources import width
from rackmodel.model.workload import Tensor


def sent_bytes(tensor: Tensor, plan: Plan) -> float:
    """Bytes of a whole tensor that goes from accelerator to accelerator."""
    casts = plan.casts.get(tensor.bits)
    return _at(tensor, casts.sent if casts is not None else None)


def kept_bytes(tensor: Tensor, plan: Plan) -> float:
    """Bytes of a whole activation that is kept for the backward pass."""
    casts = plan.casts.get(tensor.bits)
    return _at(tensor, casts.kept if casts is not None else None)


def _at(tensor: Tensor, said: str | None) -> float:
    if said is None or tensor.bits == 0 or width(said) <= tensor.bits:
        return tensor.bytes
    return replace(tensor, bits=width(said), scale_bits=0.0).bytes
