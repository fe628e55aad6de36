"""Compute into which weights are wired: nothing of them is held or fetched, and each layer works on a token of its own."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field, PositiveInt

from rackmodel.model.schema import Spec
from rackmodel.model.workload import Workload
from rackmodel.units import Seconds


class Wired(Spec):
    """A pipeline through all layers, each of which has weights and compute of its own. Source of the form: seed 002, sections 3 and 5.4."""

    stages: PositiveInt = Field(default=1, description="stages of a layer: as many tokens are in flight as all layers have stages")
    interval_s: Seconds = Field(default=0.0, alias="interval", description="time from one token to the next in a stage")
    cache: str | None = Field(
        default=None, description="level inside whose memory holds what sequences keep as far as it goes; the rest is in the accelerator's"
    )


def with_wired_weights(workload: Workload) -> Workload:
    """The workload with weights of 0 bit, for compute that has them in its wires."""
    tensors = {
        name: replace(tensor, bits=0, scale_bits=0.0) if tensor.kind == "weight" else tensor for name, tensor in workload.tensors.items()
    }
    sections = tuple(replace(section, workload=with_wired_weights(section.workload)) for section in workload.sections)
    return replace(workload, tensors=tensors, sections=sections)
