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

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from rackmodel.arrays import Array
from rackmodel.cost.inside.gpu import gpu_of
from rackmodel.model.architecture import Architecture
from rackmodel.model.attention import AttentionKernel
from rackmodel.model.profile import Composite, Heads, Moves, ProfileSpec
from rackmodel.model.resources import Kernels
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
    gpu = gpu_of(machine) if profile.kernels != "peak" else None
    every = {one.name: one for one, _ in (*_of_profile(profile), *(_of_kernels(gpu.facts) if gpu is not None else ()))}
    for name, cause in _follows(profile):
        if name in every and cause in every:
            own = every.pop(name)
            every[cause] = replace(every[cause], along={**every[cause].along, name: (own.low, own.high)})
    return tuple(every.values())


def _follows(profile: ProfileSpec) -> Iterator[tuple[str, str]]:
    """(fact, the one with which it moves where both are ranges)."""
    yield from ((f"host.{name}", f"host.{cause}") for name, cause in HOST_FOLLOWS)
    for operands in profile.casts:
        yield from ((f"casts.{operands}.{name}", f"casts.{operands}.{cause}") for name, cause in CASTS_FOLLOW)


def varied(machine: Architecture, profile: ProfileSpec, columns: int, some: int | None = None) -> Varied:
    """Every range of a machine's kernels and a profile: a block of so many columns in the middle, and for every end one of `some`, the
    first of them (None = all)."""
    gpu = gpu_of(machine) if profile.kernels != "peak" else None
    unknowns = unknowns_of(machine, profile)
    counts = [columns, *([columns if some is None else some] * 2 * len(unknowns))]

    def spread(name: str, value: float) -> Array | float:
        found = [(number, ends) for number, one in enumerate(unknowns) if (ends := one.ends(name)) is not None]
        if not found:
            return value
        blocks = np.full(1 + 2 * len(unknowns), float(value))
        for place, ends in found:
            blocks[1 + 2 * place : 3 + 2 * place] = ends
        return np.repeat(blocks, counts)

    return Varied(unknowns, _profile(profile, spread, sum(counts)), _kernels(gpu.facts, spread) if gpu is not None else None)


Spread = Callable[[str, float], Any]
Both = TypeVar("Both", Composite, Heads)


def _range(name: str, value: object, beside: float = 0.0) -> Iterator[tuple[Unknown, float]]:
    """The ends of a range. beside: share of the middle by which it is off for another reason."""
    if isinstance(value, Quantity) and value.low < value.high:
        mid = float(value)
        low, high = (mid + sign * float(np.hypot(mid - end, mid * beside)) for sign, end in ((-1, value.low), (1, value.high)))
        yield Unknown(name, low, high), mid


def _of_profile(profile: ProfileSpec) -> Iterator[tuple[Unknown, float]]:
    yield from _range("variation", profile.variation)
    yield from _range("library", profile.library)
    yield from _range("links", profile.links)
    yield from _range("buckets.rank", profile.buckets.rank_s)
    yield from _range("overlap.contention", profile.overlap.contention)
    for name, window in profile.overlap.windows.items():
        yield from _range(f"overlap.windows.{name}.share", window.share)
    for operation, composite in profile.composites.items():
        yield from _range(f"composites.{operation}.forward.bytes", composite.forward.bytes)
        yield from _range(f"composites.{operation}.backward.bytes", composite.backward.bytes)
    yield from _range("heads.forward.bytes", profile.heads.forward.bytes)
    yield from _range("heads.backward.bytes", profile.heads.backward.bytes)
    for operands, casts in profile.casts.items():
        for kind in CAST:
            yield from _range(f"casts.{operands}.{kind}", getattr(casts, kind))
    yield from _range("updates.whole", profile.updates.whole)
    yield from _range("updates.shard", profile.updates.shard_bytes)
    yield from _range("host.layer", profile.host.layer_s)
    yield from _range("host.backward", profile.host.backward_s)
    yield from _range("host.launch", profile.host.launch_s)
    yield from _range("host.hand_over", profile.host.hand_over_s)
    yield from _range("host.expert", profile.host.expert)


def _of_kernels(facts: Kernels) -> Iterator[tuple[Unknown, float]]:
    for name in (*KERNEL_FACTS, *([OF_A_CAP] if facts.power_cap_w is not None else ())):
        yield from _range(f"kernels.{name.removesuffix('_s')}", getattr(facts, name))
    for name, share in facts.named.items():
        yield from _range(f"kernels.named.{name}", share)
    for name, product in facts.products.items():
        yield from _range(_lasting(name), product.lasting, beside=product.layers or product.held_out)
    for name, kernel in facts.attention.items():
        for precision, trained in kernel.training.items():
            yield from _range(_trained(name, precision), trained.lasting, beside=NINE_OF_TEN * trained.held_out)


def _lasting(kind: str) -> str:
    return f"kernels.products.{kind}.lasting"


def _trained(kernel: str, precision: str) -> str:
    return f"kernels.attention.{kernel}.training.{precision}.lasting"


def _profile(profile: ProfileSpec, spread: Spread, columns: int) -> ProfileSpec:
    overlap, host = profile.overlap, profile.host
    windows = {
        name: window.model_copy(update={"share": spread(f"overlap.windows.{name}.share", window.share)})
        for name, window in overlap.windows.items()
    }
    contention = spread("overlap.contention", overlap.contention)
    hosts = {f"{name}_s": spread(f"host.{name}", getattr(host, f"{name}_s")) for name in ("layer", "backward", "launch", "hand_over")}
    hosts["expert"] = spread("host.expert", host.expert)
    return profile.model_copy(
        update={
            "variation": spread("variation", profile.variation),
            "library": spread("library", profile.library),
            "links": spread("links", profile.links) * np.ones(columns),  # by which a pricer sees that facts are columns
            "buckets": profile.buckets.model_copy(update={"rank_s": spread("buckets.rank", profile.buckets.rank_s)}),
            "overlap": overlap.model_copy(update={"windows": windows, "contention": contention}),
            "composites": _composites(profile, spread),
            "heads": _both_ways("heads", profile.heads, spread),
            "casts": {
                name: casts.model_copy(update={kind: spread(f"casts.{name}.{kind}", getattr(casts, kind)) for kind in CAST})
                for name, casts in profile.casts.items()
            },
            "updates": profile.updates.model_copy(
                update={
                    "whole": spread("updates.whole", profile.updates.whole),
                    "shard_bytes": spread("updates.shard", profile.updates.shard_bytes),
                }
            ),
            "host": host.model_copy(update=hosts),
        }
    )


def _composites(profile: ProfileSpec, spread: Spread) -> dict[str, Composite]:
    return {name: _both_ways(f"composites.{name}", one, spread) for name, one in profile.composites.items()}


def _both_ways(name: str, one: Both, spread: Spread) -> Both:
    def run(way: str, moves: Moves) -> Moves:
        return moves.model_copy(update={"bytes": spread(f"{name}.{way}.bytes", moves.bytes)})

    return one.model_copy(update={"forward": run("forward", one.forward), "backward": run("backward", one.backward)})


def _kernels(facts: Kernels, spread: Spread) -> Kernels:
    update: dict[str, Any] = {
        name: spread(f"kernels.{name.removesuffix('_s')}", getattr(facts, name))
        for name in (*KERNEL_FACTS, OF_A_CAP)
        if getattr(facts, name) is not None
    }
    update["named"] = {name: spread(f"kernels.named.{name}", share) for name, share in facts.named.items()}
    update["products"] = {
        name: product.model_copy(update={"lasting": spread(_lasting(name), product.lasting)}) for name, product in facts.products.items()
    }
    update["attention"] = {name: _attention(name, kernel, spread) for name, kernel in facts.attention.items()}
    return facts.model_copy(update=update)


def _attention(name: str, kernel: AttentionKernel, spread: Spread) -> AttentionKernel:
    trained = {
        precision: one.model_copy(update={"lasting": spread(_trained(name, precision), one.lasting)})
        for precision, one in kernel.training.items()
    }
    return kernel.model_copy(update={"training": trained}) if trained else kernel
