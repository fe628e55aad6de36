"""What one local operation costs as a kernel of a GPU's library: the fidelity beside the roofline, from the facts that a part states.

    matrix product   t = max(min over tiles of waves · 2 tm tn (k + k_fill) / (peak of one SM · efficiency · tile's share),
                             bytes / (bandwidth · share)) + start,     waves = ceil(batch · ceil(m / tm) · ceil(n / tn) / SMs)
    vector           t = bytes / (bandwidth · share) + start
    named kernel     t = max(operations / (peak · share), bytes / (bandwidth · share)) + start, its softmax included

Amounts and joules are the roofline's, what a tiled product moves besides (cost/inside/onchip) and what quantises its operand; no body
is shorter than the roofline's time. Source of the form: blocks of a
result dealt to SMs in waves (RECALLED: NVIDIA, matrix multiplication guide); of the numbers: the parts, tests/fits/fit_kernels.py.
An accelerator that states no facts is priced by the roofline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from rackmodel.arrays import Array
from rackmodel.cost.going_on import MostSummed
from rackmodel.cost.inside.attention import by_head, few_tokens
from rackmodel.cost.inside.attention_calls import (
    AttentionPart,
    call_sizes,
    contraction_seconds,
    kernel_of,
    mixed_contraction_seconds,
    training_kernel,
    training_seconds,
)
from rackmodel.cost.inside.binding import Binding
from rackmodel.cost.inside.expert_ops import ExpertProduct, expert_product, grouped_of
from rackmodel.cost.inside.gpu import Gpu, gpu_of
from rackmodel.cost.inside.onchip import feed_rows
from rackmodel.cost.inside.power import amid_step, busy_watts, lengthened, powered, waiting_watts
from rackmodel.cost.inside.products import Device, compute_seconds, lacking_seconds, launched, looped_rate, together
from rackmodel.cost.inside.roofline import Row, charged_rows, roofline_rows, times
from rackmodel.cost.inside.vectors import VectorDevice, read_again, vector_seconds
from rackmodel.cost.program.fusion import NORMS
from rackmodel.cost.program.tasks import Degrees, Flow, LocalOp, Volume
from rackmodel.errors import NoKernelError
from rackmodel.model.architecture import Architecture
from rackmodel.model.attention import AttentionKernel
from rackmodel.model.grouped import Grouped
from rackmodel.model.resources import BusyKind, Kernels, Products, width
from rackmodel.model.vector import VectorKernel

NAMED_HEAD = 128.0
"""Head size for which parts state the rates of named attention kernels."""
WIDE_BYTES = 2.0
"""Of an element before it is quantised."""
STREAMS = ("", "add", "scale", "multiply", "dropout", "repeat")
"""Kinds of vector operations that stream; '' are casts, sums of gradients and the optimizer's."""
POINTWISE = ("relu", "gelu", "silu", "xielu", "swiglu", "clamp")
"""Kinds whose elements are made alone."""


@dataclass(frozen=True)
class KernelPricer:
    """A LocalPricer. in_stream: kernels that queue up amid a layer (short starts, sustained clock); else each runs alone,
    started by the host and waited for, as a benchmark measures it · fitted: matrix products and fused attention as a
    part's `products` and `attention` say · eager: no CUDA graph launches them, so that the host's time bounds them where the part tells
    it · facts: in place of the part's; each may be an array [n], one for every mesh · experts: how the name of the kernel begins that
    multiplies over experts, words in the order of their preference ('dealt:NAME': where an accelerator holds experts of its own), '' = the
    first of the part's `grouped` · attention: the kernel of
    fused attention, None = the part's own · looped: one operation over and over, as benchmarks do · quantised: kinds of products that
    find their left operand quantised · attending, writing: where attention writes it, and where any other kernel does · shared: kinds of
    vector operations whose rows several blocks share · lasting: matrix products alone as a part's `products` say, at the rate that lasts
    through a step, their operands cast by kernels of their own · pace: rate of what lasts over that
    amid the layers in which it was measured, [n] or one · most_summed: of LocalOp.starts · amid_steps: whether accelerators draw waiting
    power in every second of what the kernels are part of, but while one runs (cost/inside/power)."""

    in_stream: bool = True
    fitted: bool = False
    eager: bool = False
    facts: Kernels | None = None
    experts: str = ""
    attention: str | None = None
    looped: bool = False
    quantised: frozenset[str] = frozenset()
    attending: bool = True
    writing: bool = True
    shared: frozenset[str] = frozenset()
    lasting: bool = False
    pace: Any = 1.0
    most_summed: MostSummed | None = None
    amid_steps: bool = False

    @property
    def of_columns(self) -> bool:
        """Whether columns may have facts, or a pace, of their own."""
        return self.facts is not None or isinstance(self.pace, np.ndarray)

    def __call__(self, architecture: Architecture, local_op: LocalOp, degrees: Degrees) -> tuple[list[Row], Array]:
        """Rows and duration [n] of a local operation on one accelerator; the binding resource's rows carry the exposed seconds.

        Raises NoKernelError where the local_op is a part of a named kernel for which the part states no share.
        """
        gpu = gpu_of(architecture, self.facts)
        if gpu is None:
            return roofline_rows(architecture, local_op, degrees)
        rows, duration = self._running(architecture, gpu, local_op, degrees)
        return (amid_step(architecture, gpu.facts, rows, duration) if self.amid_steps and rows else rows), duration

    def waiting_watts(self, architecture: Architecture) -> Any:
        """W beside static power that an accelerator counts for in every second of a step; 0 where kernels stand alone."""
        gpu = gpu_of(architecture, self.facts) if self.amid_steps else None
        return 0.0 if gpu is None else waiting_watts(architecture, gpu.facts)

    def _running(self, architecture: Architecture, gpu: Gpu, local_op: LocalOp, degrees: Degrees) -> tuple[list[Row], Array]:
        """Rows and duration [n] of a local operation while it runs."""
        kernel = self._kernel(gpu.facts, local_op)
        if kernel is not None:
            return self._attention(architecture, gpu, kernel, local_op, degrees)
        rows, floor = charged_rows(architecture, local_op, degrees, local_op.points(degrees))
        if not rows:
            return rows, floor
        expert = _expert_product(gpu, local_op, degrees, self.experts) if self.fitted else None
        if expert is not None:
            made, duration = expert_product(expert, local_op, rows, degrees)
            fed = feed_rows(architecture, local_op, degrees, made, gpu.facts.tiles[0], gpu.compute.matrix(local_op.bits).atom)
            return powered(architecture, gpu.facts, made + fed, duration, busy=_busy(gpu, "experts", made, duration), limited=False)
        vector = self._vector(gpu.facts, local_op)
        if vector is not None:
            made, duration = _vector_kernel(gpu, vector, local_op, rows, degrees, self.most_summed)
            return powered(architecture, gpu.facts, made, duration, busy=_busy(gpu, "vector", made, duration), limited=False)
        product = self._product(gpu.facts, local_op) if self.fitted or self.lasting else None
        compute = self._compute(gpu, local_op, degrees, product)
        share: Any = _memory_share(gpu.facts, local_op) if product is None else product.memory
        moving = [i for i, row in enumerate(rows) if row.component == "memory" and row.level == gpu.memory]
        if self.looped and product is not None and product.reuse_bytes_per_s is not None:
            share = looped_rate(product, gpu.bandwidth, sum(rows[i].fullest for i in moving)) / gpu.bandwidth
            floor = np.zeros_like(floor)
        slower = [_slower(row, compute, gpu.memory, share) for row in rows]
        groups = [
            [i for i, row in enumerate(rows) if row.component == "compute"],
            [i for i in moving if rows[i].action == "read" or not gpu.split],
            [i for i in moving if rows[i].action == "write" and gpu.split],
        ]
        none = np.zeros_like(floor)
        times = [sum((slower[i] for i in group), none) for group in groups]
        moves = np.maximum(times[1], times[2]) if groups[2] else times[1]
        slowest = np.maximum(times[0], moves)
        # a vector operation within a named kernel is in that kernel's measured rate: only what it moves takes time
        overlapped = slowest if product is None else together(times[0], moves + _waiting(gpu, product, local_op, degrees))
        body = overlapped if local_op.kernel and not local_op.macs else np.maximum(overlapped, floor)
        faster = 1.0 if product is None else share / product.memory
        start = self._start(gpu.facts, local_op) if product is None else _product_start(gpu, product, local_op, degrees, faster)
        running = duration = body + (0.0 if local_op.joined else start * np.minimum(local_op.starts(degrees, self.most_summed), 1))
        if self.eager and product is not None and product.eager is not None:
            duration = launched(duration, product.eager, _rows_of(local_op, degrees))
        longest = body if product is None else np.maximum(slowest, floor)  # what binds, where the others add to it
        found = Binding(slower, groups, times, slowest, longest)
        exposed = found.exposed(lambda: roofline_rows(architecture, local_op, degrees)[0], duration)
        priced = [row.lasting(s, e) for row, s, e in zip(rows, slower, exposed, strict=True)]
        atom = gpu.compute.matrix(local_op.bits).atom if local_op.macs else None
        fed = feed_rows(architecture, local_op, degrees, rows, gpu.facts.tiles[0], atom)
        alone = not local_op.kernel or local_op.macs  # what another kernel does on the way takes its time, not one of its own
        priced, busy = priced + fed, None
        if product is not None and product.quantise:
            carried = _quantising_rows(architecture, local_op, degrees)
            moved = gpu.facts.busy_of("vector").moved_j_per_byte * sum(row.fullest for row in carried if row.level == gpu.memory)
            priced, busy = priced + carried, gpu.facts.busy_power_w + moved / np.maximum(running, 1e-30)
        return powered(architecture, gpu.facts, priced, duration, busy=busy, waiting=duration - running, limited=alone)

    def _attention_part(self, gpu: Gpu) -> AttentionPart:
        """What calls of attention run on."""
        return AttentionPart(compute=gpu.compute, units=gpu.units, blocks=gpu.blocks, bandwidth=gpu.bandwidth, looped=self.looped)

    def _attention(
        self, architecture: Architecture, gpu: Gpu, kernel: AttentionKernel, local_op: LocalOp, degrees: Degrees
    ) -> tuple[list[Row], Array]:
        """Rows and duration of a contraction of fused attention: it lasts its share of the call, and what binds its roofline carries it."""
        rows, floor = roofline_rows(architecture, local_op, degrees)
        part = self._attention_part(gpu)
        price = training_seconds if self.lasting else contraction_seconds
        duration = price(kernel, part, local_op, degrees) / self.pace
        if not self.looped:  # a loop finds in a cache what the roofline reads from the memory
            duration = np.maximum(duration, floor)
        scale = np.divide(duration, floor, out=np.zeros_like(duration), where=floor > 0)
        longer = [row.lasting(row.seconds * scale, row.exposed * scale) for row in rows]
        longer[0] = longer[0].exposing(np.where(floor > 0, longer[0].exposed, duration))
        atom = gpu.compute.matrix(local_op.bits).atom
        fed = feed_rows(architecture, local_op, degrees, rows, gpu.facts.tiles[0], atom)
        roles = local_op.attention
        assert roles is not None
        few = few_tokens(call_sizes(local_op, roles, degrees))
        busy = np.where(few, _busy(gpu, "decode", rows, duration), _busy(gpu, "prefill", rows, duration))
        return powered(architecture, gpu.facts, longer + fed, duration, busy=busy, limited=False)  # its share of a call that was measured

    def mixed(self, architecture: Architecture, chunks: LocalOp, decodes: LocalOp, degrees: Degrees) -> tuple[list[Row], Array]:
        """Rows and duration [n] of one operation on chunks of prompts and on sequences that decode, in one step: those of both, and for a
        contraction of fused attention whose kernel takes both at once, that call's time dealt to them in proportion."""
        found = [self(architecture, local_op, degrees) for local_op in (chunks, decodes)]
        longer = self.longer(architecture, (chunks, decodes), (found[0][1], found[1][1]), degrees)
        rows = lengthened([row for part, _ in found for row in part], longer)
        return rows, (found[0][1] + found[1][1]) * longer

    def longer(self, architecture: Architecture, local_ops: tuple[LocalOp, LocalOp], parts: tuple[Array, Array], degrees: Degrees) -> Array:
        """[n] times as long as its two parts alone that an operation on chunks of prompts and on sequences that decode takes: 1 but for a
        contraction of fused attention whose kernel takes both in one call. That is no shorter than either part. parts: [n] s of each."""
        chunks, decodes = local_ops
        gpu = gpu_of(architecture)
        facts = self.facts or (gpu.facts if gpu is not None else None)
        kernel = kernel_of(facts, self.attention, chunks.attention) if facts is not None and self.fitted and chunks.attention else None
        if gpu is None or kernel is None or not kernel.mixes:
            return np.ones_like(parts[0])
        part = self._attention_part(gpu)
        whole = np.maximum(mixed_contraction_seconds(kernel, part, chunks, decodes, degrees), np.maximum(*parts))
        apart = parts[0] + parts[1]
        return np.asarray(np.divide(whole, apart, out=np.ones_like(whole), where=apart > 0))

    def _kernel(self, facts: Kernels, local_op: LocalOp) -> AttentionKernel | None:
        """Facts of the fused attention that a contraction is a part of, where it was measured."""
        if local_op.attention is None or not (self.fitted or self.lasting):
            return None
        return training_kernel(facts, self.attention) if self.lasting else kernel_of(facts, self.attention, local_op.attention)

    def _vector(self, facts: Kernels, local_op: LocalOp) -> VectorKernel | None:
        """Facts of a vector kernel as it is launched here, where the part has any and it is no part of another kernel."""
        if local_op.macs or local_op.kernel or (self.in_stream and not self.fitted):
            return None
        found = facts.vector.get(local_op.kind if self.in_stream else f"{local_op.kind} alone")
        if found is not None and local_op.kind in self.shared:
            return found.model_copy(update={"load_bytes_per_s": np.inf})
        return found

    def _product(self, facts: Kernels, local_op: LocalOp) -> Products | None:
        """Facts of the products an operation is one of; where another kernel has quantised its operand, less the kernel that does, whose
        start and traffic its own hold as it was measured."""
        name = product_kind(facts, local_op)
        if name is None:
            return None
        found = facts.products[name]
        before = name in self.quantised and (self.attending if local_op.attended else self.writing)
        if not found.quantise or not (self.lasting or before):
            return found
        quantising = facts.vector.get("quantise")
        start = found.start_s - (quantising.start_s if quantising is not None else 0.0)
        return found.model_copy(update={"quantise": 0.0, "start_s": max(start, 0.0)})

    def quantises(self, architecture: Architecture, local_op: LocalOp, degrees: Degrees) -> bool:
        """Whether a kernel of its own quantises the operand of a product before it; a kernel over experts does that itself."""
        gpu = gpu_of(architecture) if self.fitted and local_op.macs and local_op.attention is None else None
        if gpu is None:
            return False
        product = self._product(gpu.facts, local_op)
        return product is not None and product.quantise > 0 and _expert_product(gpu, local_op, degrees, self.experts) is None

    def _start(self, facts: Kernels, local_op: LocalOp) -> Any:
        if self.in_stream:
            return facts.start_in_stream_s * local_op.kernels
        return facts.start_s if local_op.macs else facts.vector_start_s

    def _compute(self, gpu: Gpu, local_op: LocalOp, degrees: Degrees, product: Products | None) -> Any:
        """Seconds of the operations [n]; None: the roofline's."""
        if not local_op.macs:
            return 0.0 if local_op.kernel else None
        peak = gpu.compute.matrix(local_op.bits).rate_flop_per_s * gpu.units
        if local_op.kernel:
            share = self._named(gpu.facts, local_op.kernel) * _of_head(gpu.facts, local_op)
            return 2.0 * local_op.fullest(degrees) / (peak * share)
        if product is not None:
            device = Device(peak=peak, blocks=gpu.blocks, element=local_op.bits / 8)
            rate = product.lasting * self.pace * self._over_experts(gpu.facts, local_op) if self.lasting else 1.0
            return local_op.densest(degrees) * compute_seconds(product, device, *_sizes(local_op, degrees)) / rate
        rate = peak * gpu.facts.efficiency * (gpu.facts.sustained if self.in_stream else 1.0)
        if roles_of(local_op) is None:
            return 2.0 * local_op.fullest(degrees) / rate
        return local_op.densest(degrees) * gemm_seconds(gpu.facts, gpu.blocks, rate, *_sizes(local_op, degrees))

    @staticmethod
    def _over_experts(facts: Kernels, local_op: LocalOp) -> Any:
        """Rate of a product in a step of training over that of one that stands alone: less where experts take some of the rows each."""
        roles = roles_of(local_op)
        return facts.over_experts if roles is not None and roles[0] and np.all(np.asarray(local_op.density) < 1) else 1.0

    def _named(self, facts: Kernels, kernel: str) -> Any:
        """Share of the peak rate of a named kernel: of the one that the profile asks for, where the part tells it apart."""
        asked = f"{kernel} {self.attention}"
        name = asked if asked in facts.named else kernel
        if name not in facts.named:
            raise NoKernelError(
                f"no rate of the kernel '{kernel}': this accelerator states no fused attention "
                "(--set profile.attention=unfused runs it as products and a softmax)",
                path="kernels.named",
                known=list(facts.named),
                given=kernel,
            )
        return facts.named[name]


kernel_rows = KernelPricer()
"""Local operations of a running step: kernels queue up, the clock is the sustained one."""

looped_kernel_rows = KernelPricer(fitted=True, looped=True)
"""One operation in a loop, which may find in a cache what it read before."""

eager_kernel_rows = KernelPricer(fitted=True, eager=True, looped=True)
"""The same where the host launches each."""

isolated_kernel_rows = KernelPricer(in_stream=False)
"""Local operations run one by one, as benchmarks of single operations do."""


def gemm_seconds(facts: Kernels, blocks: int, rate: float, batch: Any, m: Any, n: Any, k: Any) -> Array:
    """Seconds of the operations of matrix products, start and memory apart: the best tile's waves · 2 tm tn (k + k_fill) blocks / rate.

    blocks: blocks at work at once · rate: operations a second that a full wave reaches · batch, m, n, k: broadcastable sizes.
    """
    best: Any = np.inf
    for tile in facts.tiles:
        waves = np.ceil(batch * np.ceil(m / tile.m) * np.ceil(n / tile.n) / blocks)
        best = np.minimum(best, waves * (2.0 * tile.m * tile.n * blocks / (rate * tile.share)))
    return np.asarray(best * (k + facts.k_fill), dtype=np.float64)


def roles_of(local_op: LocalOp) -> tuple[tuple[str, ...], ...] | None:
    """Indices of a contraction by role (batch, m, n, k); None where it is no matrix product: nothing is summed, or no side is free.

    batch: in both operands and the result · m: left and result · n: right and result · k: summed.
    """
    if len(local_op.operands) != 2 or local_op.result is None:
        return None
    left, right = (set(operand.access.names) for operand in local_op.operands)
    out = set(local_op.result.access.names)
    names = [index for index, _, _ in local_op.space]
    batch = tuple(i for i in names if i in out and i in left and i in right)
    m = tuple(i for i in names if i in out and i in left and i not in right)
    n = tuple(i for i in names if i in out and i not in left)
    k = tuple(i for i in names if i not in out)
    return (batch, m, n, k) if k and (m or n) else None


def product_kind(facts: Kernels, local_op: LocalOp) -> str | None:
    """Name of the part's `products` that an operation is one of: a matrix product of weights or without a batch, of its family, else at
    its width or the next wider one."""
    roles = roles_of(local_op) if local_op.macs and not local_op.kernel else None
    if roles is None or (roles[0] and not _of_weights(local_op)):
        return None
    if local_op.family in facts.products:
        return local_op.family
    widths = [(width(key), key) for key, found in facts.products.items() if found.operands is None]
    wide_enough = [(bits, key) for bits, key in widths if bits >= local_op.bits]
    return min(wide_enough, key=lambda pair: pair[0])[1] if wide_enough else None


def _of_head(facts: Kernels, local_op: LocalOp) -> float:
    """Rate of a named attention kernel for the head size at hand over that for NAMED_HEAD, for which parts state it: as of the part's
    measured kernel of prompts, where it has one for products of such operands. A smaller head has more exponentials for its products."""
    kernel = facts.attention.get(facts.attention_kernel or "")
    prompts = kernel.prefill.get("bf16") if kernel is not None and local_op.attention is not None else None
    if prompts is None or local_op.attention is None:
        return 1.0
    both = by_head(prompts.rate, np.array([max(local_op.attention.head, local_op.attention.value), NAMED_HEAD]))
    return float(both[0] / both[1])


def _product_start(gpu: Gpu, product: Products, local_op: LocalOp, degrees: Degrees, faster: Any) -> Any:
    """Seconds before a product, its left operand quantised [n]. faster: how many times as fast as from the memory bytes come."""
    if not product.quantise:
        return product.start_s
    batch, m, _, k = _sizes(local_op, degrees)
    return product.start_s + product.quantise * local_op.densest(degrees) * batch * m * k / (gpu.bandwidth * faster)


def _waiting(gpu: Gpu, product: Products, local_op: LocalOp, degrees: Degrees) -> Any:
    """Seconds [n] in which the memory's stream begins and ends, and fetches rows that tiles lack."""
    if product.dispatch is None:
        return product.latency_s
    batch, m, n, k = _sizes(local_op, degrees)
    device = Device(peak=1.0, blocks=gpu.blocks, element=local_op.bits / 8)
    lacking = lacking_seconds(product, device, gpu.bandwidth, local_op.densest(degrees) * batch, m, n, k)
    return product.latency_s + lacking


def _quantising_rows(architecture: Architecture, local_op: LocalOp, degrees: Degrees) -> list[Row]:
    """Bytes and joules of quantising the left operand of a product before it: read as the result is wide, written and read again as it is
    multiplied, less what the product's own row reads. Their time is in the product's."""

    def of(density: Any, *, whole: bool) -> Any:
        batch, m, _, k = _sizes(local_op, degrees, whole=whole)
        return density * batch * m * k + np.zeros(len(degrees))

    elements, most = of(local_op.density, whole=False), of(local_op.densest(degrees), whole=True)
    more = times(most, elements) if local_op.paced else 1.0
    narrow, own = local_op.bits / 8, local_op.operands[0].bits / 8
    read, written = elements * max(WIDE_BYTES + narrow - own, 0.0), elements * narrow
    name = local_op.operands[0].name
    flows = [Flow(name, Volume(size)) for size in (read, written)]
    copy = LocalOp((flows[0],), (flows[1],), (("m", 1, ()),), False, 0.0, 1.0, 16)
    rows, _ = roofline_rows(architecture, copy, degrees)
    none = np.zeros(len(degrees))
    return [replace(row, seconds=none, exposed=none, more=more) for row in rows if row.component == "memory"]


def _rows_of(local_op: LocalOp, degrees: Degrees) -> Any:
    """Rows of the left operand of a product."""
    batch, m, _, _ = _sizes(local_op, degrees)
    return batch * m


def _busy(gpu: Gpu, kind: BusyKind, rows: Sequence[Row], duration: Array) -> Array:
    """[n] W that kernels of a kind draw."""
    return busy_watts(gpu.facts.busy_of(kind), rows, gpu.memory, duration)


def _vector_kernel(
    gpu: Gpu, facts: VectorKernel, local_op: LocalOp, rows: Sequence[Row], degrees: Degrees, most_summed: MostSummed | None
) -> tuple[list[Row], Array]:
    """Rows and duration [n] of a vector kernel: the memory's rows carry it, by their bytes. Its rows: tokens, whose indices come first."""
    tokens = 1.0 * local_op.along([index for index, _, _ in local_op.space[: min(2, len(local_op.space) - 1)]], degrees)
    own = [row.level == gpu.memory and row.component == "memory" for row in rows]
    none = np.zeros(len(degrees))
    moved = sum((row.fullest for row, its in zip(rows, own, strict=True) if its), none)
    weights = {flow.name for flow in local_op.reads[1:]} if local_op.kind in NORMS else set()
    shared = sum((row.fullest for row, its in zip(rows, own, strict=True) if its and row.tensor in weights), none)
    device = VectorDevice(bandwidth=gpu.bandwidth, cache=gpu.cache)
    seconds = vector_seconds(facts, device, moved, tokens, shared)
    duration = seconds + facts.start_s * (-1 if local_op.joined else local_op.starts(degrees, most_summed) - 1)
    share = np.divide(duration, moved, out=np.zeros_like(duration), where=moved > 0)
    priced = [
        row.lasting(row.fullest * share, row.fullest * share) if its else row.exposing(np.zeros_like(duration))
        for row, its in zip(rows, own, strict=True)
    ]
    if facts.at_once:
        first, twice = local_op.reads[0].name, 1.0 + read_again(facts, device, moved - shared, tokens)
        priced = [row.scaled(twice) if its and row.tensor == first else row for row, its in zip(priced, own, strict=True)]
    return priced, duration


def _expert_product(gpu: Gpu, local_op: LocalOp, degrees: Degrees, kernel: str) -> ExpertProduct | None:
    """A product over experts, where a kernel of the part makes it."""
    roles = roles_of(local_op) if local_op.macs and not local_op.kernel else None
    found = grouped_of(gpu.facts.grouped, local_op, kernel) if roles is not None and roles[0] else None
    if roles is None or found is None:
        return None
    every = prod(size for index, size, _ in local_op.space if index in roles[0])
    return product_of_experts(gpu, found, _sizes(local_op, degrees), int(every))


def product_of_experts(gpu: Gpu, facts: tuple[Grouped, Grouped], sizes: tuple[Any, Any, Any, Any], every: int) -> ExpertProduct:
    """A product over experts on a GPU. facts: of parts of all experts, of experts of its own · sizes: batch, m, n, k · every: experts of
    all ranks."""
    return ExpertProduct(facts=facts[0], dealt=facts[1], gpu=gpu, sizes=sizes, every=every)


def _of_weights(local_op: LocalOp) -> bool:
    return any(operand.weight for operand in (*local_op.operands, local_op.result) if operand is not None)


def _sizes(local_op: LocalOp, degrees: Degrees, *, whole: bool = True) -> tuple[Any, Any, Any, Any]:
    """batch, m, n and k of a product on the fullest accelerator; not `whole`: of an even share. 1 each where it is no product."""
    batch, m, n, k = (1.0 * local_op.along(indices, degrees, whole=whole) for indices in roles_of(local_op) or ((),) * 4)
    return batch, m, n, k


def _memory_share(facts: Kernels, local_op: LocalOp) -> float:
    """Share of the memory bandwidth that a local operation reaches; a product in a batch of activations alone is slower."""
    if not local_op.macs:
        if local_op.kind in STREAMS:
            return facts.stream_efficiency
        return facts.pointwise_efficiency if local_op.kind in POINTWISE else facts.vector_memory_efficiency
    roles = None if local_op.kernel else roles_of(local_op)
    if roles is None or not roles[0] or _of_weights(local_op):
        return facts.memory_efficiency
    return facts.batched_efficiency


def _slower(row: Row, compute: Any, memory: str, share: Any) -> Any:
    """Seconds of a roofline's row in a kernel."""
    if row.component == "compute":
        return row.seconds if compute is None else compute + np.zeros_like(row.seconds)
    return row.seconds / share if row.level == memory else row.seconds
