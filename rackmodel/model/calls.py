"""What one call of a collective takes in a library's kernels on one machine: facts of `specs/collectives`.

    seconds = start + message / rate,     start and rate of the kernel that the library takes for a message of that size

A library has a kernel for each range of messages (one-shot, two-shot, ring or in-switch, each in several protocols) and switches
between them by rules of its own, so that the time may jump where one range ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, PlainValidator, PositiveInt, model_validator

from rackmodel.model.exchanges import ExpertExchange
from rackmodel.model.resources import width
from rackmodel.model.schema import Spec
from rackmodel.units import Bytes, BytesPerSecond, Seconds, series_reader

CallKind = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"]
Mode = Literal["graph", "eager"]
SizeSeries = Annotated[tuple[float, ...], PlainValidator(series_reader("byte"))]
TimeSeries = Annotated[tuple[float, ...], PlainValidator(series_reader("second"))]
RateSeries = Annotated[tuple[float, ...], PlainValidator(series_reader("byte/second"))]


class CallTimes(Spec):
    """The kernels of one collective for one number of members, in the order of their messages; series such as '4.6 9.4 15 us'."""

    up_to_bytes: SizeSeries = Field(default=(), alias="up_to", description="largest message of each kernel but the last")
    start_s: TimeSeries = Field(alias="start", description="start of a call by each kernel")
    rate_bytes_per_s: RateSeries = Field(alias="rate", description="bytes of the message that each kernel gets done in a second")

    @model_validator(mode="after")
    def _alike(self) -> CallTimes:
        kernels = len(self.start_s)
        if len(self.rate_bytes_per_s) != kernels or len(self.up_to_bytes) != kernels - 1:
            got = f"{len(self.rate_bytes_per_s)} and {len(self.up_to_bytes)}"
            raise ValueError(f"{kernels} starts want as many rates, and one size less (got {got})")
        if list(self.up_to_bytes) != sorted(set(self.up_to_bytes)):
            raise ValueError("up_to: each kernel takes larger messages than the one before")
        if not all(rate > 0 for rate in self.rate_bytes_per_s):
            raise ValueError("rate: want more than 0 bytes a second")
        return self

    def times_as_fast(self, factor: float) -> CallTimes:
        """The same kernels at rates `factor` times as high."""
        return self.model_copy(update={"rate_bytes_per_s": tuple(rate * factor for rate in self.rate_bytes_per_s)})


class Calls(Spec):
    """One collective of one library: who calls it how, and what it takes by number of members."""

    kind: CallKind = Field(description="the collective")
    mode: Mode = Field(default="graph", description="graph: launched on the device or queued there; eager: by the host, one by one")
    releases: Annotated[tuple[str, ...], Field(min_length=1)] = Field(description="releases of the library, newest first")
    widths: tuple[str, ...] = Field(default=(), description="of an element, such as '16 bit'; absent = any")
    members: Annotated[dict[str, CallTimes], Field(min_length=1)] = Field(description="members of the group → its kernels")

    @model_validator(mode="after")
    def _readable(self) -> Calls:
        for word in self.members:
            if not (word.isascii() and word.isdecimal() and 2 <= int(word) < 10**6):
                raise ValueError(f"members: '{word}' is no number of members: want a whole number from 2")
        for word in self.widths:
            width(word)
        return self

    def times_as_fast(self, factor: float) -> Calls:
        """The same at rates `factor` times as high."""
        return self.model_copy(update={"members": {count: times.times_as_fast(factor) for count, times in self.members.items()}})

    @property
    def bits(self) -> tuple[int, ...]:
        """Of an element; empty = any."""
        return tuple(width(word) for word in self.widths)


class GoingOn(Spec):
    """All-reduces that a library leaves to kernels of another, which go on with the normalisation of what they sum."""

    calls: str = Field(description="the other library, of this file's `calls`")
    up_to_bytes: Annotated[dict[str, Bytes], Field(min_length=1)] = Field(
        alias="up_to", description="members of the group → largest message; absent members: none"
    )

    @model_validator(mode="after")
    def _counted(self) -> GoingOn:
        for word in self.up_to_bytes:
            if not (word.isascii() and word.isdecimal() and 2 <= int(word) < 10**6):
                raise ValueError(f"up_to: '{word}' is no number of members: want a whole number from 2")
        return self

    @property
    def most(self) -> tuple[tuple[int, float], ...]:
        """(members, bytes of the largest message)."""
        return tuple(sorted((int(word), size) for word, size in self.up_to_bytes.items()))


class CollectivesSpec(Spec):
    """A file of specs/collectives: what libraries' collectives and exchanges of tokens take on one network."""

    name: str = Field(alias="collectives", description="the file's name")
    bandwidth_bytes_per_s: BytesPerSecond | None = Field(
        default=None,
        alias="bandwidth",
        description="of the network that was measured, as its machine's file states it: at another every rate is as many times as high; "
        "absent = rates follow no bandwidth",
    )
    calls: dict[str, tuple[Calls, ...]] = Field(default_factory=dict, description="library → its collectives, what is newest first")
    going_on: dict[str, GoingOn] = Field(
        default_factory=dict, description="library → whose all-reduces go on with a normalisation, and up to which messages"
    )
    exchanges: dict[str, tuple[ExpertExchange, ...]] = Field(
        default_factory=dict, description="library → how it sends tokens to their experts and back, what is newest first"
    )

    def at(self, bandwidth_bytes_per_s: float) -> CollectivesSpec:
        """The same over a network of some bandwidth: rates follow it, starts stay."""
        if self.bandwidth_bytes_per_s is None or self.bandwidth_bytes_per_s == bandwidth_bytes_per_s:
            return self
        faster = bandwidth_bytes_per_s / self.bandwidth_bytes_per_s
        calls = {library: tuple(one.times_as_fast(faster) for one in own) for library, own in self.calls.items()}
        exchanges = {library: tuple(one.times_as_fast(faster) for one in own) for library, own in self.exchanges.items()}
        return self.model_copy(update={"calls": calls, "exchanges": exchanges})


def age_of(release: str) -> list[int]:
    """Of a release, for its age: 1.3.0rc20 → 1, 3, 0, 20; a release without a candidate is newer than its candidates."""
    words = release.replace("rc", ".").replace("post", ".").split(".")
    numbers = [int("".join(letter for letter in word if letter.isdigit()) or 0) for word in words[:4]]
    return numbers if "rc" in release else [*numbers[:3], 10**6, *numbers[3:]]


def release_before(known: Sequence[str], asked: str) -> str | None:
    """Of releases that were measured, the newest that is no newer than the one asked for, else the oldest; None where nothing says a
    number, or none is known."""
    if not known or not asked[:1].isdigit():
        return None
    by_age = sorted(known, key=age_of)
    return max((one for one in by_age if age_of(one) <= age_of(asked)), key=age_of, default=by_age[0])


KNOWN_LIBRARIES = ("nccl", "torch", "vllm", "trtllm", "sglang")
"""Whose collectives were measured on some machine: a profile may name one that a machine's networks do not state."""

KNOWN_EXCHANGES = ("deepep", "nvlink_one_sided")
"""The same of kernels that send tokens to their experts, where a profile names others beside them."""


class LibraryCall(Spec):
    """Whose collectives a framework calls, and how."""

    library: str = Field(description="of the network's `calls`: nccl, vllm, trtllm, sglang; where it lacks a collective, nccl's")
    release: str | None = Field(default=None, description="of the library; absent = the newest that is known")
    mode: Mode = Field(default="graph", description="graph: from a graph on the device; eager: by the host, one by one")
    waits_s: Seconds = Field(
        default=0.0,
        alias="waits",
        description="standard deviation of when members of a call come to it, beside what a loop of calls has; it waits for the last",
    )
    exchange: str | None = Field(
        default=None,
        description="whose kernels send tokens to their experts and back, the first of these words that is of the network's `exchanges` "
        "(deepep, nvlink_one_sided) or needs none of them: gathered: all tokens are "
        "gathered, results reduced and scattered; relayed: each token goes once to every node that holds some of its experts, and on "
        "from there, as DeepEP's and HybridEP's kernels do; all_to_all, as where it is absent: each expert is sent its tokens",
    )
    narrowed: list[Literal["fp4", "fp8", "fp8_block"]] = Field(
        default_factory=list,
        description="kinds of products of experts whose tokens go there as they are multiplied, with their scales, where `exchange` does "
        "not say what an element takes on the way; others go as the workload has them",
    )
    exchange_mode: Literal["auto", "normal", "low_latency"] = Field(
        default="auto", description="auto: low_latency in a step of decodes alone, else normal"
    )
    exchange_sms: PositiveInt = Field(default=20, description="SMs of a normal exchange (DeepEP's default)")
