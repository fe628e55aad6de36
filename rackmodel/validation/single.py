"""One matrix product, kernel or collective, priced alone by what prices it in a step (the command `time`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rackmodel.cost.inside.kernels import KernelPricer
from rackmodel.cost.inside.roofline import Row
from rackmodel.errors import InputError
from rackmodel.model.architecture import Architecture
from rackmodel.model.resources import width
from rackmodel.units import parse_quantity
from rackmodel.validation.attention import HeadSizes, price_calls, seen_keys, sizes_by_name
from rackmodel.validation.collectives import NCCL, OPERATIONS, CollectiveCase, price_messages
from rackmodel.validation.products import BATCHED, PRODUCT, VECTORS, price_local
from rackmodel.validation.words import MachineWords


@dataclass(frozen=True)
class OneKernel:
    """A product or kernel. shape: sizes joined by x · precision: width of its operands · alone: started by the host and waited for."""

    shape: str
    precision: str = "16 bit"
    alone: bool = False


@dataclass(frozen=True)
class OneCollective:
    """A collective. size: of its message, as a quantity or a number of bytes."""

    size: str
    members: int
    nodes: int = 1


@dataclass(frozen=True)
class OneTime:
    """seconds: of it · bins: part → seconds it is limited by · rate, rate_of, rate_unit: what that comes to."""

    seconds: float
    bins: dict[str, float]
    rate: float = 0.0
    rate_of: str = ""
    rate_unit: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        rate = {"rate": self.rate, "rate_of": self.rate_of, "rate_unit": self.rate_unit} if self.rate_of else {}
        return {"seconds": self.seconds, "bins": self.bins, **rate}


def time_of(machine: Architecture, what: str, kernel: OneKernel, collective: OneCollective) -> OneTime:
    """Seconds of what is asked for. Raises InputError for an unknown word or a shape that does not fit it."""
    if what == "attention":
        return _attention(machine, kernel)
    if what == "gemm" or what in VECTORS:
        return _kernel(machine, what, kernel)
    if what not in OPERATIONS:
        known = ["gemm", "attention", *VECTORS, *dict.fromkeys(OPERATIONS.values())]
        raise InputError(f"nothing called '{what}' is priced alone", path="WHAT", known=known, given=what)
    try:
        size = float(collective.size)
    except ValueError:
        size = _quantity(collective.size)
    if not 0 < size < math.inf:
        raise InputError("a message has more than 0 bytes", path="SHAPE")
    if collective.members % collective.nodes:
        raise InputError(f"{collective.nodes} nodes do not divide {collective.members} members", path="--nodes")
    case = CollectiveCase(
        MachineWords(words=[machine.name], machine=machine.name), OPERATIONS[what], collective.members, collective.nodes, NCCL
    )
    seconds = float(price_messages(machine, case, np.array([size]))[0])
    return OneTime(seconds, {f"network {case.operation}": seconds}, size / seconds if seconds else 0.0, "message a second", "byte/s")


def _quantity(text: str) -> float:
    try:
        return parse_quantity(text, "byte")
    except ValueError as problem:
        raise InputError(str(problem), path="SHAPE")


def _kernel(machine: Architecture, what: str, kernel: OneKernel) -> OneTime:
    counts = (3, 4) if what == "gemm" else (2,)
    sizes = _sizes(kernel.shape, counts, what)
    form = VECTORS.get(what) or (PRODUCT if len(sizes) == 3 else BATCHED)
    names = "mn" if what in VECTORS else "mnk" if len(sizes) == 3 else "bmnk"
    bits = _bits(kernel.precision)
    columns = {name: np.array([float(size)]) for name, size in zip(names, sizes, strict=True)}
    charges, seconds = price_local(machine, form, columns, bits, timed="alone" if kernel.alone else "queued")
    bins = _bins(charges)
    whole = float(seconds[0])
    if what == "gemm":
        return OneTime(whole, bins, 2.0 * math.prod(sizes) / whole, "operations a second", "FLOP/s")
    return OneTime(whole, bins, 2.0 * math.prod(sizes) * bits / 8 / whole, "bytes a second", "byte/s")


def _attention(machine: Architecture, kernel: OneKernel) -> OneTime:
    """One call of the part's attention kernel, each query before the keys that come after it."""
    sequences, heads, kv_heads, head, queries, context = _sizes(kernel.shape, (6,), "attention")
    if heads % kv_heads or queries > context:
        raise InputError("key heads divide the heads, and the new tokens are among the keys", path="SHAPE")
    if kernel.alone:
        raise InputError("attention is priced as it queues behind others", path="--alone")
    keys = seen_keys(queries, context, 0.0)
    sizes = sizes_by_name([(sequences, kv_heads, heads / kv_heads, queries, context, keys)])
    charges, seconds = price_calls(machine, KernelPricer(fitted=True), sizes, HeadSizes(head, head, _bits(kernel.precision)))
    whole = float(seconds[0])
    operations = 4.0 * sequences * heads * queries * keys * head
    return OneTime(whole, _bins(charges), operations / whole, "operations a second", "FLOP/s")


def _bits(precision: str) -> int:
    try:
        return width(precision)
    except ValueError as problem:
        raise InputError(str(problem), path="--precision")


def _bins(charges: Sequence[Row]) -> dict[str, float]:
    """Part of the time → seconds."""
    bins: dict[str, float] = {}
    for charge in charges:
        exposed = float(np.sum(charge.exposed))
        if exposed:
            bins[charge.component] = bins.get(charge.component, 0.0) + exposed
    return bins


def _sizes(shape: str, counts: tuple[int, ...], what: str) -> list[int]:
    words = shape.lower().split("x")
    if len(words) not in counts or not all(word.isdecimal() and 0 < int(word) < 10**9 for word in words):
        known = " or ".join(str(count) for count in counts)
        fact = f"'{shape[:60]}' is no shape of {what}: want {known} whole numbers joined by x, such as 4096x4096"
        raise InputError(fact, path="SHAPE")
    return [int(word) for word in words]
