"""A contraction of fused attention as its share of one call of the kernel that a part states.

    forward     the call's seconds · the contraction's share of the operations (scores, or weighted values)
    backward    the same over `backward`: five contractions at that share of the forward pass's rate
    training    calls of kernels that were measured both ways, over the share of their rate that lasts

Where a part states no such kernel, or the operation is no part of one, there is no answer here and the named kernel's share counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TypeVar

import numpy as np

from rackmodel.arrays import Array
from rackmodel.cost.inside.attention import (
    AttentionDevice,
    AttentionSizes,
    decode_seconds,
    few_tokens,
    mixed_seconds,
    prefill_seconds,
    sizes_of,
)
from rackmodel.cost.program.tasks import AttentionRoles, Degrees, LocalOp
from rackmodel.errors import InputError
from rackmodel.model.attention import AttentionKernel, DecodeAttention, PrefillAttention, TrainingAttention
from rackmodel.model.resources import Compute, Kernels, width

Facts = TypeVar("Facts", DecodeAttention, PrefillAttention, TrainingAttention)


@dataclass(frozen=True, kw_only=True)
class AttentionPart:
    """What calls run on. units: instances of `compute` · blocks: SMs · bandwidth: bytes/s · looped: one call over and over."""

    compute: Compute
    units: int
    blocks: int
    bandwidth: float
    looped: bool = False

    def device(self, bits: int) -> AttentionDevice:
        """For a kernel of keys and values of `bits`."""
        peak = self.compute.matrix(bits).rate_flop_per_s * self.units
        return AttentionDevice(peak=peak, blocks=self.blocks, bandwidth=self.bandwidth, element=bits / 8, looped=self.looped)


def kernel_of(facts: Kernels, name: str | None, roles: AttentionRoles | None = None) -> AttentionKernel | None:
    """The kernel of that name, else the part's own, which decodes; None where it states none. Raises InputError for an unknown name.

    Where keys and values are not alike (latent attention) it is the part's `latent_kernel`, if it has one and the name is no such kernel.
    """
    if not facts.attention:
        return None
    if name is not None and name not in facts.attention:
        raise InputError(f"no facts of the attention kernel '{name}'", path="attention_kernel", known=list(facts.attention), given=name)
    if name is not None and not facts.attention[name].serves:
        known = [one for one, kernel in facts.attention.items() if kernel.serves]
        raise InputError(f"the attention kernel '{name}' has facts of training alone", path="attention_kernel", known=known, given=name)
    unlike = roles is not None and (roles.latent or roles.head != roles.value)
    if unlike and facts.latent_kernel is not None and not (name is not None and facts.attention[name].latent):
        return facts.attention[facts.latent_kernel]
    own = name or facts.attention_kernel or next((one for one, kernel in facts.attention.items() if kernel.decode), None)
    return None if own is None else facts.attention[own]


def training_kernel(facts: Kernels, name: str | None) -> AttentionKernel | None:
    """The kernel of that name, else the part's own, where it was measured as training runs it; None = the part's named rate counts."""
    found = facts.attention.get(name or facts.training_kernel or "")
    return found if found is not None and found.training else None


def call_seconds(kernel: AttentionKernel, part: AttentionPart, bits: int, sizes: AttentionSizes) -> tuple[Array, Array]:
    """([n] seconds of calls, [n] of them that memory alone would take). bits: of an element of keys and values."""
    few = few_tokens(sizes)
    if not kernel.decode or not kernel.prefill:
        few = np.full(few.shape, bool(kernel.decode))
    seconds, memory = np.empty(few.shape), np.empty(few.shape)
    if few.any():
        decode, device = _at(kernel.decode, part, bits)
        seconds[few], memory[few] = decode_seconds(decode, device, sizes.only(few))
    if not few.all():
        prefill, device = _at(kernel.prefill, part, bits)
        seconds[~few], memory[~few] = prefill_seconds(prefill, device, sizes.only(~few))
    return seconds, memory


def mixed_call_seconds(kernel: AttentionKernel, part: AttentionPart, bits: int, chunks: AttentionSizes, decodes: AttentionSizes) -> Array:
    """[n] seconds of chunks of prompts and of sequences that decode, in one call where the kernel takes both, else in two."""
    if not kernel.mixes or not kernel.prefill:
        return call_seconds(kernel, part, bits, chunks)[0] + call_seconds(kernel, part, bits, decodes)[0]
    facts, device = _at(kernel.prefill, part, bits)
    return mixed_seconds(facts, device, chunks, decodes)


def _at(table: Mapping[str, Facts], part: AttentionPart, bits: int) -> tuple[Facts, AttentionDevice]:
    """Facts of keys and values of `bits`, or of the next wider ones, else of the widest; the device moves as many bits as there are."""
    enough = [(width(key), facts) for key, facts in table.items() if width(key) >= bits]
    wide, facts = min(enough, key=lambda one: one[0]) if enough else max(((width(k), f) for k, f in table.items()), key=lambda one: one[0])
    return facts, AttentionDevice(
        peak=part.device(wide).peak, blocks=part.blocks, bandwidth=part.bandwidth, element=bits / 8, looped=part.looped
    )


def contraction_seconds(kernel: AttentionKernel, part: AttentionPart, local_op: LocalOp, degrees: Degrees) -> Array:
    """[n] seconds of one contraction of a fused attention."""
    roles = local_op.attention
    assert roles is not None
    seconds, _ = call_seconds(kernel, part, roles.bits, call_sizes(local_op, roles, degrees))
    return seconds * roles.own / (kernel.backward if local_op.kernel.endswith("backward") else 1.0)


def training_seconds(kernel: AttentionKernel, part: AttentionPart, local_op: LocalOp, degrees: Degrees) -> Array:
    """[n] seconds of one contraction of a fused attention in a step of training, forward or backward; in a loop as it was measured."""
    roles = local_op.attention
    assert roles is not None
    facts, device = _at(kernel.training, part, roles.bits)
    way = facts.backward if local_op.kernel.endswith("backward") else facts.forward
    seconds = prefill_seconds(way, device, call_sizes(local_op, roles, degrees))[0] * roles.own
    return seconds if part.looped else seconds / facts.lasting


def mixed_contraction_seconds(kernel: AttentionKernel, part: AttentionPart, chunks: LocalOp, decodes: LocalOp, degrees: Degrees) -> Array:
    """[n] seconds of one contraction of a call that holds chunks of prompts and sequences that decode."""
    one, other = chunks.attention, decodes.attention
    assert one is not None
    assert other is not None
    sizes = call_sizes(chunks, one, degrees), call_sizes(decodes, other, degrees)
    return mixed_call_seconds(kernel, part, one.bits, *sizes) * one.own


def call_sizes(local_op: LocalOp, roles: AttentionRoles, degrees: Degrees) -> AttentionSizes:
    """The call that a contraction is a part of, on the fullest accelerator: [n] of each size."""

    def points(indices: tuple[str, ...]) -> Array:
        return np.asarray(np.ones(degrees.shape[:-1]) * local_op.along(indices, degrees))

    def over(indices: tuple[str, ...]) -> Array:
        found = np.ones(degrees.shape[:-1])
        for index, _, axes in local_op.space:
            if index in indices and axes:
                found = found * prod(degrees[..., axis] for axis in axes)
        return found

    context = points(roles.context)
    return sizes_of(
        sequences=points(roles.sequences),
        kv_heads=points(roles.kv_heads),
        group=points(roles.group),
        queries=points(roles.queries),
        ranks=over(roles.queries),
        parts=over(roles.context),
        context=context,
        keys=np.maximum(1.0, context * local_op.density),
        head=roles.head,
        value=roles.value,
        latent=float(roles.latent),
        sliding=float(roles.sliding),
    )
