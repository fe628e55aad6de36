"""One matrix product, kernel or collective, priced alone by what prices it in a step (the command `time`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rackmodel.arrays import Array
from rackmodel.cost.inside.experts import ExpertLayer, call_seconds, expert_device
from rackmodel.cost.inside.gpu import Gpu, gpu_of
from rackmodel.cost.inside.kernels import KernelPricer, product_kind
from rackmodel.cost.inside.roofline import Row
from rackmodel.cost.inside.routing import Routing, load_of
from rackmodel.cost.inside.vectors import VectorDevice, vector_seconds
from rackmodel.errors import InputError
from rackmodel.model.architecture import Architecture
from rackmodel.model.calls import LibraryCall
from rackmodel.model.formats import has_units
from rackmodel.model.resources import width
from rackmodel.units import parse_quantity
from rackmodel.validation.attention import (
    WAYS,
    HeadSizes,
    operations_over_forward,
    price_calls,
    seen_keys,
    sizes_by_name,
)
from rackmodel.validation.collectives import NCCL, OPERATIONS, CollectiveCase, called, price_messages
from rackmodel.validation.products import BATCHED, PRODUCT, VECTORS, local_operation, price_local
from rackmodel.validation.words import MachineWords

EXPERTS = "experts"
OPERANDS = {"add": 3.0, "swiglu": 3.0, "quantise": 1.5, "scales": 1.0}
"""Kernel → elements that it moves for one of a row, where it is not one in and one out."""


SAID = {
    "precision": "--precision", "alone": "--alone", "looped": "--looped", "kernel": "--kernel", "way": "--pass", "members": "--members",
    "nodes": "--nodes", "library": "--library",
}  # fmt: skip
KERNEL, MOVED, COLLECTIVE, SENT = ("precision", "alone"), ("precision",), ("members", "nodes", "library"), ("nodes",)
LOOPED = (*KERNEL, "looped")


@dataclass(frozen=True)
class OneCall:
    """What is timed; what is not said has a default. shape: sizes joined by x, of a collective its message as a quantity ('64 MiB') ·
    precision: width of operands (16 bit), of experts their kernel · alone: started by the host and waited for · looped: over and
    over, by what was fitted to products in loops · kernel: of attention, one of the part's · way: the pass of training · members: of a
    collective (8; of a send always two) · nodes: that they are spread over; absent = as few as hold them · library: whose measured calls
    a collective is, of what precision says; absent = the fastest algorithm over the links."""

    shape: str
    precision: str = ""
    alone: bool = False
    looped: bool = False
    kernel: str = ""
    way: str = ""
    members: int | None = None
    nodes: int | None = None
    library: str = ""

    def check(self, what: str, counts: Sequence[str]) -> None:
        """Raises InputError where something is said that does not count for `what`."""
        for name, option in SAID.items():
            if getattr(self, name) and name not in counts:
                raise InputError(f"{what} has no {option}", path=option, known=[SAID[one] for one in counts])


@dataclass(frozen=True)
class OneTime:
    """seconds: of it · bins: part → seconds it is limited by · rate, rate_of, rate_unit: what that comes to · note: what it rests on, where
    that is not the accelerator's measured kernels."""

    seconds: float
    bins: dict[str, float]
    rate: float = 0.0
    rate_of: str = ""
    rate_unit: str = ""
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        rate = {"rate": self.rate, "rate_of": self.rate_of, "rate_unit": self.rate_unit} if self.rate_of else {}
        return {"seconds": self.seconds, "bins": self.bins, **rate, "note": self.note}


def time_of(machine: Architecture, what: str, call: OneCall) -> OneTime:
    """Seconds of what is asked for. Raises InputError for an unknown word, an option that does not count, or a shape that does not fit."""
    if what == "attention":
        return _attention(machine, call)
    if what == "gemm" or what in VECTORS:
        return _kernel(machine, what, call)
    gpu = gpu_of(machine)
    if gpu is not None and what == EXPERTS:
        return _experts(gpu, call)
    if gpu is not None and what in gpu.facts.vector:
        return _vector(gpu, what, call)
    if what in OPERATIONS or what in OPERATIONS.values():
        return _collective(machine, OPERATIONS.get(what, what), call)
    own = () if gpu is None else (EXPERTS, *gpu.facts.vector)
    known = list(dict.fromkeys(["gemm", "attention", *VECTORS, *own, *OPERATIONS.values()]))
    raise InputError(f"nothing called '{what}' is priced alone", path="WHAT", known=known, given=what)


def _collective(machine: Architecture, what: str, call: OneCall) -> OneTime:
    call.check(what, SENT if what == "send" else (*COLLECTIVE, *(("precision",) if call.library else ())))
    size = _quantity(call.shape)
    if not 0 < size < math.inf:
        raise InputError("a message has more than 0 bytes", path="SHAPE")
    members, nodes = call.members or (2 if what == "send" else 8), call.nodes or 1
    if members % nodes:
        raise InputError(f"{nodes} nodes do not divide {members} members", path="--nodes")
    inside = machine.tiers[0].below * machine.tiers[0].children if machine.tiers else members
    if call.nodes and members // nodes > inside:
        raise InputError(f"{members // nodes} members in a node of {inside}", path="--nodes")
    asked = LibraryCall(library=call.library) if call.library else None
    words = MachineWords(words=[machine.name], machine=machine.name)
    case = CollectiveCase(words, what, members, nodes, NCCL, asked, int(_bits(call)))
    if asked is not None and _measured(machine, case, size) is None:
        fact = f"no {what} of {call.library} among {members} on {nodes} node{'s' * (nodes > 1)} was measured on {machine.name}"
        raise InputError(fact, path="--library")
    seconds = float(price_messages(machine, case, np.array([size]))[0])
    return OneTime(seconds, {f"network {case.operation}": seconds}, size / seconds if seconds else 0.0, "message a second", "byte/s")


def _measured(machine: Architecture, case: CollectiveCase, size: float) -> Array | None:
    """What a library takes; None where it was not measured. Raises InputError for one that is not known."""
    try:
        return called(machine, case, np.array([size]))
    except InputError as problem:
        problem.path = "--library"
        raise


def _quantity(text: str) -> float:
    try:
        return parse_quantity(text, "byte")
    except ValueError as problem:
        raise InputError(str(problem), path="SHAPE")


def _vector(gpu: Gpu, what: str, call: OneCall) -> OneTime:
    """A kernel of the part that moves rows: each is read, of a sum of two both, and written."""
    call.check(what, MOVED)
    rows, columns = _sizes(call.shape, (2,), what)
    moved = rows * columns * OPERANDS.get(what, 2.0) * _bits(call) / 8
    seconds = float(vector_seconds(gpu.facts.vector[what], VectorDevice(bandwidth=gpu.bandwidth, cache=gpu.cache), moved, rows))
    return OneTime(seconds, {"memory": seconds}, moved / seconds, "bytes a second", "byte/s")


def _experts(gpu: Gpu, call: OneCall) -> OneTime:
    """One call of experts' products, evenly routed: tokens x hidden x inter x chosen x experts (x ranks that share them)."""
    tokens, hidden, inter, chosen, experts, *ranks = map(float, _sizes(call.shape, (5, 6), EXPERTS))
    call.check(EXPERTS, MOVED)
    name = call.precision or next(iter(gpu.facts.grouped), "")
    if name not in gpu.facts.grouped:
        raise InputError(f"no kernel '{name}' of experts", path="--precision", known=list(gpu.facts.grouped), given=name)
    routing = Routing(experts=int(experts), chosen=chosen, ranks=int(ranks[0]) if ranks else 1)
    if routing.experts % routing.ranks or chosen > experts:
        raise InputError("ranks that do not divide the experts, or more chosen than there are", path="SHAPE")
    facts = gpu.facts.grouped[name]
    one = {"tokens": tokens, "hidden": hidden, "inter": inter, "gated": 1.0, "every": tokens * chosen, "spread": routing.ranks > 1}
    layer = ExpertLayer(**{key: np.array([value], dtype=np.float64) for key, value in one.items()})
    device = expert_device(facts, gpu)
    load = load_of(layer.tokens, routing)
    seconds = float(call_seconds(facts, device, layer, load)[0])
    flops = 2.0 * float(load.pairs[0]) * 3 * hidden * inter
    return OneTime(seconds, {f"experts ({name})": seconds}, flops / seconds, "operations a second", "FLOP/s")


def _bits(call: OneCall) -> int:
    try:
        return width(call.precision or "16 bit")
    except ValueError as problem:
        raise InputError(str(problem), path="--precision")


def _kernel(machine: Architecture, what: str, call: OneCall) -> OneTime:
    call.check(what, LOOPED if what == "gemm" else KERNEL)
    counts = (3, 4) if what == "gemm" else (2,)
    sizes = _sizes(call.shape, counts, what)
    form = VECTORS.get(what) or (PRODUCT if len(sizes) == 3 else BATCHED)
    names = "mn" if what in VECTORS else "mnk" if len(sizes) == 3 else "bmnk"
    bits = _bits(call)
    if what == "gemm" and not has_units(machine, call.precision):
        compute = machine.computing[0].compute
        known = list(compute.precisions) if compute is not None else ()
        raise InputError(f"{machine.name} multiplies no {call.precision}", path="--precision", known=known)
    columns = {name: np.array([float(size)]) for name, size in zip(names, sizes, strict=True)}
    charges, seconds = price_local(machine, form, columns, bits, timed=_timed(machine, call, form, columns, bits))
    bins = _bins(charges)
    whole = float(seconds[0])
    note = _at_peak(machine)
    if what == "gemm":
        return OneTime(whole, bins, 2.0 * math.prod(sizes) / whole, "operations a second", "FLOP/s", note)
    return OneTime(whole, bins, 2.0 * math.prod(sizes) * bits / 8 / whole, "bytes a second", "byte/s", note)


def _timed(machine: Architecture, call: OneCall, form: str, columns: Mapping[str, Array], bits: int) -> str:
    """How a kernel is timed, as `price_local` calls it. Raises InputError for a loop of what no loop was fitted to."""
    if not call.looped:
        return "alone" if call.alone else "queued"
    if call.alone:
        raise InputError("alone or in a loop, not both", path="--looped")
    gpu = gpu_of(machine)
    fitted = {} if gpu is None else gpu.facts.products
    if gpu is None or product_kind(gpu.facts, local_operation(form, columns, bits)) is None:
        fact = f"no products of {bits} bit were fitted on {machine.name} (`rackmodel calibrate`)"
        raise InputError(fact, path="--looped", known=list(fitted))
    return "looped"


def _attention(machine: Architecture, call: OneCall) -> OneTime:
    """One call of an attention kernel, each query before the keys that come after it, as a server runs it or a pass of training."""
    call.check("attention", ("precision", "kernel", "way"))
    sequences, heads, kv_heads, head, queries, context = _sizes(call.shape, (6,), "attention")
    if heads % kv_heads or queries > context:
        raise InputError("key heads divide the heads, and the new tokens are among the keys", path="SHAPE")
    way = WAYS.get(call.way)
    if way is None:
        raise InputError(f"attention has no pass '{call.way}'", path="--pass", known=[one for one in WAYS if one], given=call.way)
    keys = seen_keys(queries, context, 0.0)
    sizes = sizes_by_name([(sequences, kv_heads, heads / kv_heads, queries, context, keys)])
    own = HeadSizes(head, head, _bits(call))
    named = _named(machine, call)
    charges, seconds = price_calls(machine, KernelPricer(fitted=not way, lasting=bool(way), attention=named), sizes, own, way)
    whole = float(seconds[0])
    operations = 4.0 * sequences * heads * queries * keys * head * operations_over_forward(own, way)
    return OneTime(whole, _bins(charges), operations / whole, "operations a second", "FLOP/s", _at_peak(machine))


def _at_peak(machine: Architecture) -> str:
    """Whose rates a time rests on, where it is no measured kernels'."""
    return "" if gpu_of(machine) is not None else f"{machine.accelerator.name} states no measured kernels: at its peak rates"


def _named(machine: Architecture, call: OneCall) -> str | None:
    """The kernel that is asked for, None = the part's own. Raises InputError where the part has no such facts of it."""
    gpu = gpu_of(machine)
    facts = {} if gpu is None else gpu.facts.attention
    known = [name for name, one in facts.items() if (one.training if call.way else one.serves)]
    if call.kernel and call.kernel not in known:
        use = "training" if call.way else "servers"
        raise InputError(
            f"{machine.name} has no attention kernel '{call.kernel}' of {use}", path="--kernel", known=known, given=call.kernel
        )
    return call.kernel or None


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
        fact = f"'{shape[:60]}' is no shape of {what}: want {known} whole numbers joined by x, such as {'x'.join(['64'] * counts[0])}"
        raise InputError(fact, path="SHAPE")
    return [int(word) for word in words]
