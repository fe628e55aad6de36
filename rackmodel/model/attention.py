"""What an attention kernel of a GPU's library reaches, by the width of the keys and values that it reads.

Source of the form: cost/inside/attention; of the numbers: `rackmodel calibrate`. Tables by head size are read between their entries
along a straight line, and beyond them as their last: a library compiles a kernel a head size.
"""

from __future__ import annotations

from math import hypot
from typing import Annotated, Literal

from pydantic import Field, model_validator

from rackmodel.model.schema import Spec
from rackmodel.units import Bytes, BytesPerSecond, Plain, Seconds, is_share, span_text

KNOWN_KERNELS = (
    *("fa2", "fa2_unsplit", "fa3", "fa4", "cudnn", "flashinfer", "flashinfer_eager", "trtllm", "triton", "sdpa"),
    *("mla", "mla_eager", "mla_module"),
)
"""What parts and words of measurements call kernels of attention; a profile may name one that a machine does not tell apart."""

Groups = Literal["packed", "unwindowed", "apart"]
Tokens = Literal["together", "apart"]


class _ByHead(Spec):
    """Facts of which some are tables by head size."""

    start_s: Seconds = Field(alias="start", description="time of a call that attends to next to nothing")
    memory: Plain = Field(description="share of the accelerator's memory bandwidth")
    window_s: Seconds = Field(default=0.0, alias="window", description="what a call takes longer where a window hides some of the keys")
    groups: Groups = Field(
        default="packed",
        description="query heads that share keys are rows of one block (packed), without a window alone (unwindowed), or never (apart)",
    )
    block_s: dict[str, Seconds] = Field(alias="block", description="head size → time that a block takes to begin and end")

    @model_validator(mode="after")
    def _sensible(self) -> _ByHead:
        for name in type(self).model_fields:
            value = getattr(self, name)
            if not isinstance(value, dict):
                continue
            if not value:
                raise ValueError(f"{name.removesuffix('_s')} wants at least one head size")
            for key in value:
                if not (key.isascii() and key.isdecimal() and 0 < int(key) <= 4096):
                    raise ValueError(f"{name.removesuffix('_s')}: '{key}' is no head size")
        if not is_share(self.memory):
            raise ValueError(f"memory is a share: want more than 0 and at most 1 (got {span_text(self.memory)})")
        return self


class DecodeAttention(_ByHead):
    """A kernel in which every sequence has one new token, or few."""

    load_bytes_per_s: BytesPerSecond = Field(alias="load", description="keys and values that one block's SM fetches in a second")
    step_s: dict[str, Seconds] = Field(alias="step", description="head size → least time of a block for one key")
    rows: Literal[16, 64] = Field(default=64, description="new tokens and query heads that share keys, of a block")
    parts: Annotated[int, Field(ge=1, le=64)] | None = Field(
        default=None,
        description="parts into which a sequence's keys are cut where uncut ones leave SMs idle (Triton's kernels: 4 of latent attention, "
        "16 of others); absent = as many as fill the SMs",
    )
    rate: Plain | None = Field(
        default=None,
        description="share of the peak rate at which a block of more than 16 rows multiplies, which counts as 64 (FlashInfer's); absent = "
        "its own rows at the peak",
    )
    tokens: Tokens = Field(
        default="together",
        description="new tokens of a sequence are rows of one block, which fetches a key once (together), or each has blocks of its own, "
        "which fetch it again (apart); calls of one new token do not tell, so that `calibrate` keeps it",
    )
    split_s: Seconds = Field(default=0.0, alias="split", description="time of joining what several blocks made of one sequence's cache")
    query: Plain = Field(default=1.0, description="times that queries and results cross the memory")
    group_s: Seconds = Field(default=0.0, alias="group", description="what a call takes longer where query heads share keys in a block")
    copy_s: Seconds = Field(
        default=0.0, alias="copy", description="time of putting queries and results in the order of shared keys, where that moves them"
    )
    sequence_s: Seconds = Field(default=0.0, alias="sequence", description="time of scheduling one sequence, up to 992 of them")
    unscheduled: Plain = Field(default=1.0, description="share of `block` where there are more sequences, which nothing schedules")
    reuse_bytes: Bytes = Field(
        default=0.0, alias="reuse", description="keys and values that a loop over one call finds in a cache on the chip"
    )
    reuse_bytes_per_s: BytesPerSecond | None = Field(default=None, alias="reuse_bandwidth", description="bytes per second of that cache")

    @model_validator(mode="after")
    def _positive(self) -> DecodeAttention:
        for key in ("load_bytes_per_s", "query", "unscheduled"):
            if not getattr(self, key) > 0:
                raise ValueError(f"{key.removesuffix('_bytes_per_s')} must be positive")
        if self.reuse_bytes < 0 or (self.reuse_bytes > 0) != bool(self.reuse_bytes_per_s):
            raise ValueError("reuse: want bytes, and reuse_bandwidth with them")
        if self.rate is not None and not is_share(self.rate):
            raise ValueError(f"rate is a share: want more than 0 and at most 1 (got {span_text(self.rate)})")
        return self


class PrefillAttention(_ByHead):
    """A kernel in which sequences have many new tokens."""

    rate: dict[str, Plain] = Field(description="head size → share of the peak rate at which a block multiplies")
    rows: Literal[64, 128] = Field(default=128, description="queries of a block")
    tail: Plain = Field(default=0.0, description="share of the longest block that runs while others have ended")
    token_s: Seconds = Field(default=0.0, alias="token", description="time of putting one new token into the cache")
    element_s: Seconds = Field(default=0.0, alias="element", description="time of putting one of its keys' or values' elements there")
    held_out: Plain = Field(
        default=0.0,
        description="mean error, a share, of the fit on lengths that it did not see: of a pass of training it widens the range of "
        "`lasting`, as of `products`",
    )

    @model_validator(mode="after")
    def _shares(self) -> PrefillAttention:
        for key, value in self.rate.items():
            if not is_share(value):
                raise ValueError(f"rate.{key} is a share: want more than 0 and at most 1 (got {span_text(value)})")
        if self.tail < 0:
            raise ValueError("tail cannot be negative")
        if not 0 <= self.held_out < 1:
            raise ValueError(f"held_out is a share of a time: want 0 or more and less than 1 (got {self.held_out:g})")
        return self


class TrainingAttention(Spec):
    """A kernel that attends in a step of training, and the one behind it: five contractions for two."""

    forward: PrefillAttention = Field(description="the forward pass: nothing is put into a cache")
    backward: PrefillAttention = Field(
        description="the backward pass: the same of a forward pass that makes as many operations as slowly, 3 of a key's and 2 of a "
        "value's elements for one of both"
    )
    lasting: Plain = Field(default=1.0, description="rate in a step of training over that of the loop that was measured, as of `products`")

    @property
    def held_out(self) -> float:
        """Mean error of both passes together where each is off by its own: they take 2 and 5 of 7 parts of the time."""
        return hypot(2 * self.forward.held_out, 5 * self.backward.held_out) / 7

    @model_validator(mode="after")
    def _lasts(self) -> TrainingAttention:
        if not self.lasting > 0:
            raise ValueError(f"lasting: want more than 0 (got {self.lasting:g})")
        return self


class AttentionKernel(Spec):
    """A library's attention by the width of keys and values ('bf16', 'fp8'): the next wider one where a width is not there."""

    decode: Annotated[dict[str, DecodeAttention], Field(default_factory=dict, description="one new token a sequence, by width")]
    prefill: Annotated[dict[str, PrefillAttention], Field(default_factory=dict, description="many new tokens a sequence, by width")]
    training: Annotated[dict[str, TrainingAttention], Field(default_factory=dict, description="steps of training, by width")]
    mixes: bool = Field(
        default=False, description="true: chunks of prompts and sequences that decode are one call of `prefill`; false: two calls"
    )
    latent: bool = Field(default=False, description="true: keys and values may have unlike sizes, values be a part of the keys (MLA)")
    backward: Plain = Field(default=0.86, description="operations a second of the backward pass over those of the forward pass")

    @property
    def serves(self) -> bool:
        """Whether it was measured as servers call it."""
        return bool(self.decode or self.prefill)

    @model_validator(mode="after")
    def _some(self) -> AttentionKernel:
        if not (self.serves or self.training):
            raise ValueError("an attention kernel needs decode, prefill or training")
        if not is_share(self.backward):
            raise ValueError(f"backward is a share: want more than 0 and at most 1 (got {span_text(self.backward)})")
        return self
