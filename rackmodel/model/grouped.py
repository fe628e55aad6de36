"""Facts of kernels that multiply the tokens of many experts at once. Source of the form: cost/inside/experts."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from rackmodel.model.schema import Spec
from rackmodel.units import Bytes, BytesPerSecond, Plain, Seconds, is_share, span_text


class Grouped(Spec):
    """What one call of a library reaches that makes the products of a layer's experts: up (with gate), activation and down."""

    weights: str = Field(description="width of a weight's element ('8 bit')")
    activations: str = Field(description="width of an activation's element as it is multiplied")
    family: str = Field(default="", description="kind of its operands where a width does not say it ('fp8_block')")
    start_s: Seconds = Field(alias="start", description="time of a call that multiplies next to nothing")
    spread_s: Seconds = Field(default=0.0, alias="spread", description="what it takes more where other ranks hold other experts")
    rate: Plain = Field(description="share of the peak rate at which a block multiplies")
    load_bytes_per_s: BytesPerSecond = Field(alias="load", description="operands that one block's SM fetches in a second")
    step_s: Seconds = Field(default=0.0, alias="step", description="least time of a block for one element of the summed index")
    memory: Plain = Field(description="share of the accelerator's memory bandwidth at which weights are read")
    moving: Plain = Field(description="the same for tokens gathered, activated, written and summed; above 1 where a cache holds them")
    unaligned: Plain = Field(
        default=1.0, description="share of load and memory that is left where a row of weights is not aligned (`aligned`)"
    )
    aligned: Literal["bytes", "elements"] = Field(
        default="bytes", description="rows of weights that are aligned: multiples of 16 bytes, or of 16 elements (Triton's kernels)"
    )
    rows: Literal["all", "local"] = Field(
        default="local", description="tokens that are moved: those of experts held here, or all that came with the call"
    )
    tuned: bool = Field(
        default=True,
        description="whether someone tuned its blocks for each shape; else the library takes 16 rows by 32 columns where no more tokens "
        "come than experts are held, and 64 by 64 where more do",
    )
    laid_out: Plain = Field(
        default=0.0,
        description="rows to which the tokens of each expert held here are padded, hit or not, where whoever calls does not know how many "
        "came to it; 0 = what came",
    )

    quantised: Literal["within", "apart"] = Field(
        default="within",
        description="where rows become as narrow as they are multiplied: within the products, or by kernels of their own before them, "
        "which read 16 bit",
    )
    cached: Plain = Field(
        default=1.0, description="times as fast as moving that rows move which the cache below the memory holds from kernel to kernel"
    )

    reuse_bytes: Bytes = Field(default=0.0, alias="reuse", description="weights that a loop over one call finds in a cache on the chip")
    reuse_bytes_per_s: BytesPerSecond | None = Field(default=None, alias="reuse_bandwidth", description="bytes per second of that cache")

    @model_validator(mode="after")
    def _shares(self) -> Grouped:
        for key in ("rate", "memory", "unaligned"):
            if not is_share(getattr(self, key)):
                raise ValueError(f"{key} is a share: want more than 0 and at most 1 (got {span_text(getattr(self, key))})")
        if not (self.moving > 0 and self.load_bytes_per_s > 0):
            raise ValueError("want a load and a moving above 0")
        if not self.cached >= 1:
            raise ValueError(f"cached is 1 or more, as many times as fast (got {self.cached:g})")
        if min(self.start_s, self.spread_s, self.step_s) < 0:
            raise ValueError("a time cannot be negative")
        if self.laid_out < 0 or self.laid_out % 1:
            raise ValueError(f"laid_out is a number of rows (got {self.laid_out:g})")
        if self.reuse_bytes < 0 or (self.reuse_bytes > 0) != bool(self.reuse_bytes_per_s):
            raise ValueError("reuse: want bytes, and reuse_bandwidth with them")
        return self
