"""Facts of kernels that work element by element or row by row. Source of the form: cost/inside/vectors."""

from __future__ import annotations

from pydantic import Field, model_validator

from rackmodel.model.schema import Spec
from rackmodel.units import BytesPerSecond, Plain, Seconds


class VectorKernel(Spec):
    """What one kernel reaches that moves rows through an accelerator."""

    start_s: Seconds = Field(alias="start", description="time of a kernel that moves next to nothing, behind others or in a CUDA graph")
    load_bytes_per_s: BytesPerSecond = Field(alias="load", description="bytes of a row that its block moves in a second")
    cache_bytes_per_s: BytesPerSecond = Field(alias="cache", description="bytes a second of all that the cache below the memory holds")
    memory: Plain = Field(description="share of the accelerator's memory bandwidth that more than the cache holds reaches")
    at_once: Plain = Field(
        default=0.0, description="rows that its blocks have begun at once, where it reads each twice; 0 = it reads them once"
    )
    host_s: Seconds = Field(default=0.0, alias="host", description="time of the host, which hides shorter kernels where each is waited for")

    @model_validator(mode="after")
    def _above_zero(self) -> VectorKernel:
        if min(self.load_bytes_per_s, self.cache_bytes_per_s, self.memory) <= 0:
            raise ValueError("want a load, a cache and a memory above 0")
        if min(self.start_s, self.host_s, self.at_once) < 0:
            raise ValueError("a time, and rows begun at once, cannot be negative")
        return self
