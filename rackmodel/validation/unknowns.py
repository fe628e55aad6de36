"""Facts that are known as a range, and what a prediction's interval owes to each.

    low  = mid - sqrt(sum over facts of (mid - fastest of both ends)^2)        high = mid + sqrt(sum of (slowest of both ends - mid)^2)

A range is {low, mid, high} of a file: of a profile (overlap, host, variation) or of what an accelerator's kernels reach. Each fact is set
to its low and to its high end, the others kept in the middle: two columns more for every mesh, so that all are priced in the same arrays.
An interval aims at nine of ten measurements: squares of what nine of ten errors of each cause lie within add up to what nine of ten of
their sum do (normal errors). The facts are taken to be independent, but those that are counted in another (`HOST_FOLLOWS`, `CASTS_FOLLOW`),
and a range's ends to be as far as nine of ten lie (ASSUMED where its source does not say). What products last is off by the error of their
fit on shapes that it did not see, too: as far as nine of ten sums of a layer's products are (`layers`), whose errors are alike. Where that
is not known nine of ten steps of about five shapes are taken to lie within the mean error (DERIVED: normal errors whose mean is e have 1.25
e, five of them 0.56 e in a sum, 1.64 times that 0.92 e). So is fused attention, of which a step has one shape: within 1.64 times 1.25 of
the mean of its two passes. No step takes less than nothing: where facts together would, low is 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import numpy as np
from pydantic import BaseModel

from rackmodel.arrays import Array
from rackmodel.cost.inside.gpu import Gpu, gpu_of
from rackmodel.model.architecture import Architecture
from rackmodel.model.attention import AttentionKernel, TrainingAttention
from rackmodel.model.profile import Composite, Heads, ProfileSpec
from rackmodel.model.resources import Kernels, Products
from rackmodel.units import Quantity

KERNEL_FACTS = (
    "efficiency",
    "sustained",
    "memory_efficiency",
    "batched_memory_efficiency",
    "vector_memory_efficiency",
    "stream_memory_efficiency",
    "pointwise_memory_efficiency",
    "start_in_stream_s",
    "over_experts",
)
OF_A_CAP = "cap_exponent"  # which counts where power is capped


NORMAL = 1.64  # standard deviations within which nine of ten of a normal lie
NINE_OF_TEN = NORMAL * 1.25  # times their mean size, normal errors lie within
CAST = ("activation", "weight", "gradient", "again")
"""What is cast, as a profile tells it."""


HOST = ("layer_s", "backward_s", "launch_s", "hand_over_s", "expert")
"""What the host takes, as a profile tells it."""
HOST_FOLLOWS = (("backward", "launch"), ("hand_over", "launch"))
"""(fact of a host, the one that it is counted in, with which it moves): a backward pass and a hand-over are so many launches."""
CASTS_FOLLOW = (("weight", "activation"), ("gradient", "again"), ("gradient", "activation"))
"""The same of casts, by kernels that are alike: along rows, and along columns; the first that is a range counts."""


@dataclass(frozen=True)
class Unknown:
    """A fact that is a range. name: its path in its file · along: facts that are counted in it → their ends beside its own."""

    name: str
    low: float
    high: float
    along: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def ends(self, name: str) -> tuple[float, float] | None:
        """Low and high of a fact; None where it does not move with this one."""
        return (self.low, self.high) if name == self.name else self.along.get(name)


@dataclass(frozen=True)
class Interval:
    """Of a prediction. owed: fact → share of the squared width that it makes, the largest first."""

    low: float
    high: float
    owed: Mapping[str, float]

    def beside(self, name: str, middle: float, others: Sequence[float]) -> Interval:
        """Widened by other readings of what a row leaves open. middle: the prediction · others: predictions under each."""
        below, above = max(0.0, middle - min(others)), max(0.0, max(others) - middle)
        width = (middle - self.low) ** 2 + (self.high - middle) ** 2
        more = below**2 + above**2
        if not more:
            return self
        shares = {one: share * width / (width + more) for one, share in self.owed.items()} | {name: more / (width + more)}
        low, high = middle - float(np.hypot(middle - self.low, below)), middle + float(np.hypot(self.high - middle, above))
        return Interval(max(0.0, low), high, dict(sorted(shares.items(), key=lambda pair: -pair[1])))

    @property
    def widest(self) -> str:
        """The fact that makes it widest; '' where there is no width."""
        return next(iter(self.owed), "")


@dataclass(frozen=True)
class Varied:
    """A machine's kernels and a profile, each range an array over columns: the middle of all for the first block of columns, then a block
    for each end of each fact. blocks: how many in all."""

    unknowns: tuple[Unknown, ...]
    profile: ProfileSpec
    facts: Kernels | None

    @property
    def blocks(self) -> int:
        """Blocks of columns."""
        return 1 + 2 * len(self.unknowns)

    def interval(self, seconds: Sequence[float]) -> Interval:
        """Of one prediction. seconds: of its columns, a block each."""
        middle, ends = seconds[0], np.reshape(np.array(seconds[1:]), (-1, 2))
        below = np.maximum(middle - ends.min(axis=1, initial=middle), 0.0)
        above = np.maximum(ends.max(axis=1, initial=middle) - middle, 0.0)
        width = below**2 + above**2
        whole = float(width.sum())
        order = np.argsort(-width, kind="stable")
        owed = {self.unknowns[one].name: float(width[one] / whole) for one in order if width[one] > 0}
        low, high = middle - float(np.sqrt((below**2).sum())), middle + float(np.sqrt((above**2).sum()))
        return Interval(max(0.0, low), high, owed)


def of_fit(name: str, held_out: float, seconds: float) -> Interval | None:
    """Of one kernel that a fit prices. held_out: mean error of the fit where it saw nothing alike; 0 = not known, None."""
    away = NINE_OF_TEN * held_out * seconds
    return Interval(max(0.0, seconds - away), seconds + away, {name: 1.0}) if away else None


def settled(profile: ProfileSpec) -> Varied:
    """Every range in its middle: one block of columns, no interval."""
    return Varied((), profile, None)


def unknowns_of(machine: Architecture, profile: ProfileSpec) -> tuple[Unknown, ...]:
    """Every range of a machine's kernels and a profile, those that move together as one."""
    every: dict[str, Unknown] = {}

    def noted(name: str, value: float, beside: float = 0.0) -> float:
        if isinstance(value, Quantity) and value.low < value.high:
            mid = float(value)
            low, high = (mid + sign * float(np.hypot(mid - end, mid * beside)) for sign, end in ((-1, value.low), (1, value.high)))
            every[name] = Unknown(name, low, high)
        return value

    _profile(profile, noted)
    gpu = _kernels_gpu(machine, profile)
    if gpu is not None:
        _kernels(gpu.facts, noted)
    for name, cause in _follows(profile):
        if name in every and cause in every:
            own = every.pop(name)
            every[cause] = replace(every[cause], along={**every[cause].along, name: (own.low, own.high)})
    return tuple(every.values())


def _kernels_gpu(machine: Architecture, profile: ProfileSpec) -> Gpu | None:
    """The accelerator whose kernels count under a profile."""
    return gpu_of(machine) if profile.kernels != "peak" else None


def _follows(profile: ProfileSpec) -> Iterator[tuple[str, str]]:
    """(fact, the one with which it moves where both are ranges)."""
    yield from ((f"host.{name}", f"host.{cause}") for name, cause in HOST_FOLLOWS)
    for operands in profile.casts:
        yield from ((f"casts.{operands}.{name}", f"casts.{operands}.{cause}") for name, cause in CASTS_FOLLOW)


def varied(machine: Architecture, profile: ProfileSpec, columns: int, some: int | None = None) -> Varied:
    """Every range of a machine's kernels and a profile: a block of so many columns in the middle, and for every end one of `some`, the
    first of them (None = all)."""
    gpu = _kernels_gpu(machine, profile)
    unknowns = unknowns_of(machine, profile)
    counts = [columns, *([columns if some is None else some] * 2 * len(unknowns))]

    def spread(name: str, value: float, beside: float = 0.0) -> Array | float:
        found = [(number, ends) for number, one in enumerate(unknowns) if (ends := one.ends(name)) is not None]
        if not found:
            return value
        blocks = np.full(1 + 2 * len(unknowns), float(value))
        for place, ends in found:
            blocks[1 + 2 * place : 3 + 2 * place] = ends
        return np.repeat(blocks, counts)

    wide = _profile(profile, spread)
    wide = wide.model_copy(update={"links": wide.links * np.ones(sum(counts))})  # by which a pricer sees that facts are columns
    return Varied(unknowns, wide, _kernels(gpu.facts, spread) if gpu is not None else None)


class Spread(Protocol):
    """What becomes of a fact that may be a range. beside: share of its middle by which it is off for another reason, too."""

    def __call__(self, name: str, value: float, beside: float = 0.0) -> Any: ...


Named = TypeVar("Named", bound=BaseModel)
Both = TypeVar("Both", Composite, Heads)
Fitted = TypeVar("Fitted", Products, TrainingAttention)


def _profile(profile: ProfileSpec, spread: Spread) -> ProfileSpec:
    """The profile with what becomes of each of its facts, in the order in which they are told."""
    buckets, overlap, updates, host = profile.buckets, profile.overlap, profile.updates, profile.host
    return profile.model_copy(
        update={
            "variation": spread("variation", profile.variation),
            "library": spread("library", profile.library),
            "links": spread("links", profile.links),
            "buckets": _with(buckets, {"rank_s": "buckets.rank"}, spread),
            "overlap": _with(overlap, {"contention": "overlap.contention"}, spread).model_copy(
                update={
                    "windows": {
                        name: _with(window, {"share": f"overlap.windows.{name}.share"}, spread) for name, window in overlap.windows.items()
                    }
                }
            ),
            "composites": {name: _both_ways(f"composites.{name}", one, spread) for name, one in profile.composites.items()},
            "heads": _both_ways("heads", profile.heads, spread),
            "casts": {name: _with(casts, {kind: f"casts.{name}.{kind}" for kind in CAST}, spread) for name, casts in profile.casts.items()},
            "updates": _with(updates, {"whole": "updates.whole", "shard_bytes": "updates.shard"}, spread),
            "host": _with(host, {name: f"host.{name.removesuffix('_s')}" for name in HOST}, spread),
        }
    )


def _with(spec: Named, facts: Mapping[str, str], spread: Spread) -> Named:
    """A part of a file with what becomes of its facts. facts: field → what the fact is called."""
    return spec.model_copy(update={field: spread(name, getattr(spec, field)) for field, name in facts.items()})


def _both_ways(name: str, one: Both, spread: Spread) -> Both:
    ways = {way: _with(getattr(one, way), {"bytes": f"{name}.{way}.bytes"}, spread) for way in ("forward", "backward")}
    return one.model_copy(update=ways)


def _kernels(facts: Kernels, spread: Spread) -> Kernels:
    """The kernels with what becomes of each of their facts, in the order in which they are told."""
    own = (*KERNEL_FACTS, *([OF_A_CAP] if facts.power_cap_w is not None else ()))
    return _with(facts, {name: f"kernels.{name.removesuffix('_s')}" for name in own}, spread).model_copy(
        update={
            "named": {name: spread(f"kernels.named.{name}", share) for name, share in facts.named.items()},
            "products": {
                name: _lasting(f"kernels.products.{name}", one, one.layers or one.held_out, spread) for name, one in facts.products.items()
            },
            "attention": {name: _attention(f"kernels.attention.{name}", one, spread) for name, one in facts.attention.items()},
        }
    )


def _lasting(name: str, fit: Fitted, beside: float, spread: Spread) -> Fitted:
    return fit.model_copy(update={"lasting": spread(f"{name}.lasting", fit.lasting, beside)})


def _attention(name: str, kernel: AttentionKernel, spread: Spread) -> AttentionKernel:
    if not kernel.training:
        return kernel
    trained = {
        precision: _lasting(f"{name}.training.{precision}", one, NINE_OF_TEN * one.held_out, spread)
        for precision, one in kernel.training.items()
    }
    return kernel.model_copy(update={"training": trained})
