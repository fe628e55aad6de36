"""The op-kind table: one row says how an operation differentiates, what it saves and what it must reduce.

Source of the save column: Korthikanti et al. 2022, whose activation sizes it reproduces exactly (34 + 5as/h).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class OpKind:
    """One kind of operation.

    linear: a Partial may pass through it · reads: which operands the backward pass needs · mask_bytes: extra bytes per
    output element it keeps · statistics: numbers per row to all-reduce (forward, backward) when a rank named in `over`
    is split · flops: operations per output element (forward, backward) · operands: how many it takes (None = any) ·
    inner: what it does with an index that its operands have and its output has not: 'sums' it, or 'selects' along it and so reads
    no more of an operand than it writes; '' = there is none · spreads: whether its output may have indices that no operand has, along
    which it copies · whole: whether it wants all of an index that its output has not, which nothing splits · ordered: whether it passes
    what it keeps from token to token, so that nothing splits these.
    """

    name: str
    linear: bool
    reads: Literal["inputs", "first", "output", "second", "nothing"]
    mask_bytes: int = 0
    statistics: tuple[int, int] = (0, 0)
    flops: tuple[int, int] = (1, 1)
    operands: tuple[int, int | None] = (1, 1)
    inner: Literal["", "sums", "selects"] = ""
    spreads: bool = False
    whole: bool = False
    ordered: bool = False


APPEND = "append"
"""What a step adds to a cache: no pass of its own, for the kernel that makes keys and values, or one after it, writes them there."""

_ROWS = (
    OpKind("einsum", True, "inputs", flops=(0, 0), operands=(1, None), inner="sums"),
    OpKind("add", True, "nothing", flops=(1, 0), operands=(2, None)),
    OpKind("scale", True, "nothing"),
    OpKind("repeat", True, "nothing", flops=(0, 1), spreads=True),
    OpKind("rope", True, "nothing", flops=(3, 3)),
    OpKind("yarn", True, "nothing", flops=(4, 4)),
    OpKind("dispatch", True, "second", flops=(0, 0), operands=(2, 2)),
    OpKind("lookup", True, "first", flops=(0, 0), operands=(2, 2), inner="selects"),
    OpKind("last", True, "nothing", flops=(0, 0), inner="selects", whole=True),
    OpKind(APPEND, True, "nothing", flops=(0, 0), inner="selects", spreads=True, whole=True),
    OpKind("topk", False, "nothing", flops=(0, 0), operands=(1, 1), inner="sums", spreads=True),
    OpKind("weighted", False, "inputs", flops=(2, 4), operands=(2, 2), inner="sums"),
    OpKind("quantise", False, "nothing", flops=(2, 2)),
    OpKind("scan", False, "inputs", flops=(8, 16), operands=(2, None), inner="sums", ordered=True),
    OpKind("convolve", False, "inputs", flops=(2, 4), operands=(2, 3), inner="sums"),
    OpKind("multiply", False, "inputs", flops=(1, 2), operands=(2, 2)),
    OpKind("relu", False, "first"),
    OpKind("gelu", False, "first", flops=(8, 12)),
    OpKind("silu", False, "first", flops=(4, 6)),
    OpKind("swiglu", False, "inputs", flops=(5, 9), operands=(2, 2)),
    OpKind("clamp", False, "first", flops=(2, 2)),
    OpKind("bias", False, "nothing", flops=(2, 2), operands=(2, 3)),
    OpKind("dropout", False, "nothing", mask_bytes=1),
    OpKind("softmax", False, "output", statistics=(2, 1), flops=(5, 4)),
    OpKind("rmsnorm", False, "inputs", statistics=(1, 1), flops=(4, 8), operands=(1, 2)),
    OpKind("layernorm", False, "inputs", statistics=(2, 2), flops=(6, 11), operands=(1, 3)),
    OpKind("cross_entropy", False, "first", statistics=(3, 0), flops=(5, 2)),
)

KINDS: dict[str, OpKind] = {row.name: row for row in _ROWS}
