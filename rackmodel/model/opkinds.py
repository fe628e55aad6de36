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
    what it keeps from token to token, so that nothing splits these · meaning: what it computes, for a person.
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
    meaning: str = ""

    @property
    def takes(self) -> str:
        """How many operands it takes, in words."""
        least, most = self.operands
        return f"{least}" if least == most else f"{least} or more" if most is None else f"{least} to {most}"


APPEND = "append"
"""What a step adds to a cache: no pass of its own, for the kernel that makes keys and values, or one after it, writes them there."""

_ROWS = (
    OpKind(
        "einsum",
        True,
        "inputs",
        flops=(0, 0),
        operands=(1, None),
        inner="sums",
        meaning="the product of its operands, summed over every index that the result lacks; no word stands before it",
    ),
    OpKind("add", True, "nothing", flops=(1, 0), operands=(2, None), meaning="the sum of tensors of one shape"),
    OpKind("scale", True, "nothing", meaning="a factor for all elements"),
    OpKind("repeat", True, "nothing", flops=(0, 1), spreads=True, meaning="copies along an index that the operand lacks"),
    OpKind("rope", True, "nothing", flops=(3, 3), meaning="rotary positions"),
    OpKind("yarn", True, "nothing", flops=(4, 4), meaning="rotary positions of a stretched context"),
    OpKind(
        "dispatch",
        True,
        "second",
        flops=(0, 0),
        operands=(2, 2),
        meaning="tokens to the experts that the second operand, a router's choice, says",
    ),
    OpKind(
        "lookup",
        True,
        "first",
        flops=(0, 0),
        operands=(2, 2),
        inner="selects",
        meaning="rows of the second operand, a table, at the positions that the first says",
    ),
    OpKind("last", True, "nothing", flops=(0, 0), inner="selects", whole=True, meaning="the last position of a sequence"),
    OpKind(APPEND, True, "nothing", flops=(0, 0), inner="selects", spreads=True, whole=True, meaning="what a step adds to a cache"),
    OpKind(
        "topk",
        False,
        "nothing",
        flops=(0, 0),
        operands=(1, 1),
        inner="sums",
        spreads=True,
        whole=True,
        meaning="positions of the largest elements along the index that the result lacks",
    ),
    OpKind(
        "weighted",
        False,
        "inputs",
        flops=(2, 4),
        operands=(2, 2),
        inner="sums",
        meaning="a weighted sum of rectified elements along the index that the result lacks",
    ),
    OpKind("quantise", False, "nothing", flops=(2, 2), meaning="narrower numbers, with their scales"),
    OpKind(
        "scan",
        False,
        "inputs",
        flops=(8, 16),
        operands=(2, None),
        inner="sums",
        ordered=True,
        meaning="a state-space recurrence along the sequence",
    ),
    OpKind(
        "convolve",
        False,
        "inputs",
        flops=(2, 4),
        operands=(2, 3),
        inner="sums",
        meaning="a short causal convolution along the sequence: inputs, weights, and what a cache keeps of them",
    ),
    OpKind("multiply", False, "inputs", flops=(1, 2), operands=(2, 2), meaning="the product of two tensors, element by element"),
    OpKind("relu", False, "first", meaning="max(x, 0)"),
    OpKind("gelu", False, "first", flops=(8, 12), meaning="x times the share of a normal distribution below x"),
    OpKind("silu", False, "first", flops=(4, 6), meaning="x / (1 + exp(-x)), also called swish"),
    OpKind(
        "xielu",
        False,
        "first",
        flops=(10, 12),
        meaning="a x^2 + x / 2 above 0, c (exp(x) - 1 - x) + x / 2 below it, by two trained numbers of a layer",
    ),
    OpKind("swiglu", False, "inputs", flops=(5, 9), operands=(2, 2), meaning="silu of the first, times the second"),
    OpKind("clamp", False, "first", flops=(2, 2), meaning="x between two bounds"),
    OpKind("bias", False, "nothing", flops=(2, 2), operands=(2, 3), meaning="a vector that is added to every row"),
    OpKind("dropout", False, "nothing", mask_bytes=1, meaning="some of the elements, by a random mask"),
    OpKind("softmax", False, "output", statistics=(2, 1), flops=(5, 4), meaning="exp(x) over its sum along `over`"),
    OpKind(
        "rmsnorm",
        False,
        "inputs",
        statistics=(1, 1),
        flops=(4, 8),
        operands=(1, 2),
        meaning="x over its root mean square along `over`, times a weight",
    ),
    OpKind(
        "layernorm",
        False,
        "inputs",
        statistics=(2, 2),
        flops=(6, 11),
        operands=(1, 3),
        meaning="x less its mean, over its deviation along `over`, times a weight, plus another",
    ),
    OpKind("cross_entropy", False, "first", statistics=(3, 0), flops=(5, 2), meaning="the loss of logits along `over`"),
)

KINDS: dict[str, OpKind] = {row.name: row for row in _ROWS}
