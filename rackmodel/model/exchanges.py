"""What sending tokens to their experts and back takes in a library's kernels: facts of `specs/collectives`.

Each of n tokens of a rank goes to its `top` experts: to every rank that holds one of them (kernels for many tokens), or to every expert
(kernels of low latency). Source of the form: cost/network/exchanges.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from rackmodel.model.schema import Spec
from rackmodel.units import Bytes, BytesPerSecond, Plain, Seconds

ExchangeMode = Literal["normal", "low_latency"]

GATHERED, ALL_TO_ALL, RELAYED = "gathered", "all_to_all", "relayed"
"""Exchanges that follow from the networks alone: all tokens are gathered, and their results reduced and scattered; each expert is sent its
own; or each node, and each rank in it, that holds some of a token's experts is sent it once."""


class ExchangeTimes(Spec):
    """One way: tokens to their experts, or results back."""

    start_s: Seconds = Field(alias="start", description="of a call that moves nothing")
    start_of_vector_s: Seconds = Field(default=0.0, alias="start_of_vector", description="more start for each KiB of a token's vector")
    start_of_expert_s: Seconds = Field(default=0.0, alias="start_of_expert", description="more start for each expert")
    start_of_node_s: Seconds = Field(default=0.0, alias="start_of_node", description="more start for each node of the group")
    element_bytes: Bytes = Field(
        default=0.0, alias="element", description="of an element on the way; absent = as the profile sends it (`collectives.narrowed`)"
    )
    link_bytes_per_s: BytesPerSecond = Field(alias="link", description="bytes that a rank sends in a second")
    worker_bytes_per_s: BytesPerSecond | None = Field(
        default=None, alias="worker", description="bytes a second of one SM (normal) or of what serves an expert; absent = no limit"
    )
    copy_bytes: Bytes = Field(default=0.0, alias="copy", description="bytes that the work on each copy of a token is worth beside its own")
    local: Plain = Field(default=0.0, description="copies of a token that a worker makes beside those that it sends")
    together: Plain = Field(default=1.0, description="how workers and links add up: 1 = one after the other, more = they overlap")

    @model_validator(mode="after")
    def _possible(self) -> ExchangeTimes:
        if (
            not self.link_bytes_per_s > 0
            or self.worker_bytes_per_s == 0
            or ("element_bytes" in self.model_fields_set and not self.element_bytes)
        ):
            raise ValueError("want an element, a link and a worker above 0")
        if self.together < 1:
            raise ValueError("together: want 1 or more")
        return self

    def sending(self, element_bytes: float) -> ExchangeTimes:
        """The same with elements of so many bytes, where it does not say them."""
        return self if self.element_bytes else self.model_copy(update={"element_bytes": element_bytes})


class ExpertExchange(Spec):
    """The two ways of one library's exchange of tokens."""

    mode: Literal["normal", "low_latency", "any"] = Field(
        description="normal: a copy for every rank, by some SMs; low_latency: a copy for every expert, by all; any: kernels of every step, "
        "a copy for every rank"
    )
    releases: Annotated[tuple[str, ...], Field(min_length=1)] = Field(description="releases of the library, newest first")
    dispatch: ExchangeTimes = Field(description="tokens to their experts")
    combine: ExchangeTimes = Field(description="results back")

    @property
    def copying(self) -> ExchangeMode:
        """The mode whose copies it sends."""
        return "normal" if self.mode == "any" else self.mode

    def times_as_fast(self, factor: float) -> ExpertExchange:
        """The same over links `factor` times as fast."""
        ways = {"dispatch": self.dispatch, "combine": self.combine}
        return self.model_copy(
            update={name: way.model_copy(update={"link_bytes_per_s": way.link_bytes_per_s * factor}) for name, way in ways.items()}
        )
