"""Measured attention calls of one GPU: by kernel, width of keys and values, and whether sequences have few new tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal

import numpy as np

from rackmodel.arrays import Array, Bools
from rackmodel.calibration.shares import left_out
from rackmodel.cost.inside.attention import AttentionSizes, few_tokens, sizes_of
from rackmodel.cost.inside.gpu import gpu_of
from rackmodel.model.architecture import Architecture
from rackmodel.validation.attention import AttentionCase, case_of, operations_over_forward, price_products
from rackmodel.validation.mixed_attention import BITS, NONE, MixedCase, mixed_case
from rackmodel.validation.rows import read_rows
from rackmodel.validation.words import Refused

Use = Literal["decode", "prefill", "forward", "backward"]
SIZES = ("sequences", "kv_heads", "group", "queries", "context", "keys")
NO_SEQUENCE = (0.0, *NONE[1:])  # that decodes beside a chunk


@dataclass(frozen=True, kw_only=True)
class AttentionCalls:
    """Calls of one kernel on one GPU. bits: of keys and values · seconds: [rows], of a backward pass those of
    its part that is a forward pass's · source: the file · beside: [rows] seconds of the matrix
    products that were measured with them."""

    gpu: str
    kernel: str
    use: Use
    bits: int
    sizes: AttentionSizes
    seconds: Array
    source: str
    beside: Array
    walked: AttentionSizes | None = None

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def trained(self) -> bool:
        """Whether they were run as training runs them."""
        return self.use in ("forward", "backward")

    def only(self, which: Bools) -> AttentionCalls:
        """Some of the rows."""
        walked = None if self.walked is None else self.walked.only(which)
        return replace(self, sizes=self.sizes.only(which), seconds=self.seconds[which], beside=self.beside[which], walked=walked)


def read_calls(path: Path, machine: Architecture, gpu: str | None = None, left: list[str] | None = None) -> list[AttentionCalls]:
    """The calls of a file of attention rows, by kernel in their order; rows that nothing is known of are left out. machine: what prices the
    products that were measured with some · gpu: whose rows, None = all · left: gets what is said of rows left out. Raises InputError."""
    refused: list[tuple[str, int, str]] = []
    found: dict[tuple[str, str, Use, int], list[tuple[AttentionCase, float]]] = {}
    steps: list[tuple[str, MixedCase]] = []
    for row in read_rows(path):
        name = row.text("system", "gpu")
        if gpu not in (None, name):
            continue
        try:
            if row.kind == "mixed attention":
                steps.append((name, mixed_case(row)))
                continue
            case = case_of(row)
        except Refused as problem:
            refused.append((path.name, row.line, str(problem)))
            continue
        measured = (row.number("latency_us") or 0.0) * 1e-6
        use: Use = case.way or ("decode" if few_tokens(_sizes([case]))[0] else "prefill")
        found.setdefault((name, case.kernel, use, case.heads.bits), []).append(
            (case, measured / operations_over_forward(case.heads, case.way))
        )
    if left is not None:
        left += left_out(refused)
    return [
        AttentionCalls(
            gpu=name,
            kernel=kernel,
            use=use,
            bits=bits,
            sizes=_sizes([case for case, _ in calls]),
            seconds=np.array([time for _, time in calls]),
            source=path.name,
            beside=_beside(machine, [case for case, _ in calls]),
        )
        for (name, kernel, use, bits), calls in found.items()
    ] + _of_steps(machine, path.name, steps, left)


def _of_steps(machine: Architecture, source: str, steps: Sequence[tuple[str, MixedCase]], left: list[str] | None) -> list[AttentionCalls]:
    """Calls of whole steps by GPU, kernel and use: sequences that decode alone apart where the kernel has facts of such. left: as above."""
    gpu = gpu_of(machine)
    facts = None if gpu is None else gpu.facts
    found: dict[tuple[str, str, Use], list[MixedCase]] = {}
    for name, case in steps:
        kernel = case.kernel or (facts.attention_kernel if facts is not None else None) or ""
        known = facts.attention.get(kernel) if facts is not None else None
        splits = known is not None and bool(known.decode)
        found.setdefault((name, kernel, "decode" if case.chunks is None and splits else "prefill"), []).append(case)
    nameless = sum(len(cases) for (_, kernel, _), cases in found.items() if not kernel)
    if nameless and left is not None:
        left.append(f"{nameless} calls of {source}: they name no kernel (column backend), nor does the part (`attention_kernel`)")
    return [_calls(source, key, cases) for key, cases in found.items() if key[1]]


def _calls(source: str, key: tuple[str, str, Use], cases: Sequence[MixedCase]) -> AttentionCalls:
    name, kernel, use = key
    both = any(case.chunks is not None and case.decodes is not None for case in cases)
    first = [case.chunks or case.decodes or NONE for case in cases]
    beside = [(case.decodes if case.chunks is not None else None) or NO_SEQUENCE for case in cases]
    heads = np.array([case.head for case in cases])
    return AttentionCalls(
        gpu=name,
        kernel=kernel,
        use=use,
        bits=BITS,
        sizes=_plain(first, heads),
        seconds=np.array([case.measured for case in cases]),
        source=source,
        beside=np.zeros(len(cases)),
        walked=_plain(beside, heads) if both else None,
    )


def _plain(sizes: Sequence[tuple[float, ...]], heads: Array) -> AttentionSizes:
    """Calls of keys and values of one size, without a window."""
    return sizes_of(**dict(zip(SIZES, np.array(sizes, dtype=np.float64).T, strict=True)), head=heads)


def _beside(machine: Architecture, cases: Sequence[AttentionCase]) -> Array:
    """[cases] seconds of the products that were measured with calls."""
    seconds = np.zeros(len(cases))
    for asked in dict.fromkeys(case.asked for case in cases):
        alike = [number for number, case in enumerate(cases) if case.asked == asked]
        seconds[alike] = price_products(machine, [cases[number] for number in alike])[1]
    return seconds


def _sizes(cases: Sequence[AttentionCase]) -> AttentionSizes:
    sequences, kv_heads, group, queries, context, keys = np.array([case.sizes for case in cases], dtype=np.float64).T
    heads = [case.heads for case in cases]
    return sizes_of(
        sequences=sequences,
        kv_heads=kv_heads,
        group=group,
        queries=queries,
        context=context,
        keys=keys,
        head=np.array([one.head for one in heads]),
        value=np.array([one.value for one in heads]),
        latent=np.array([float(one.latent) for one in heads]),
        sliding=np.array([float(one.sliding) for one in heads]),
    )


def joined(calls: Sequence[AttentionCalls]) -> list[AttentionCalls]:
    """The same with calls of one kernel, use and width of several files put together."""
    found: dict[tuple[str, str, str, int], list[AttentionCalls]] = {}
    for one in calls:
        found.setdefault((one.gpu, one.kernel, one.use, one.bits), []).append(one)
    return [_together(alike) if len(alike) > 1 else alike[0] for alike in found.values()]


def _together(alike: Sequence[AttentionCalls]) -> AttentionCalls:
    first = alike[0]
    return replace(
        first,
        sizes=_joined([one.sizes for one in alike]),
        seconds=np.concatenate([one.seconds for one in alike]),
        source=" and ".join(dict.fromkeys(one.source for one in alike)),
        beside=np.concatenate([one.beside for one in alike]),
        walked=_joined([one.walked or _plain([NO_SEQUENCE] * len(one), one.sizes.head) for one in alike])
        if any(one.walked for one in alike)
        else None,
    )


def _joined(sizes: Sequence[AttentionSizes]) -> AttentionSizes:
    return AttentionSizes(**{name.name: np.concatenate([getattr(one, name.name) for one in sizes]) for name in fields(AttentionSizes)})
