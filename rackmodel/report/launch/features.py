"""What layers compute that their sizes do not say: windows, gates, activations; and what no argument says of any framework.

A window is read off how much of the scores there is. Of s tokens each sees those before it and itself, of a window of W no more than W:

    s (W - W (W - 1) / (2 s)) pairs, which makes W = ((2 s + 1) - sqrt((2 s + 1)^2 - 8 s seen)) / 2,   seen: keys of a token in the mean

(workloads of imported models say it so, specs/blocks). A feed-forward layer that does not follow attention stands beside it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from math import isclose, prod, sqrt
from typing import Literal

from rackmodel.model.workload import Op, Section, Workload

STATES = ("scan", "convolve")
"""Operations that carry a state along the sequence."""
CLOSE = 1e-9
"""Shares of scores that differ by no more are one: floats of one fraction."""


@dataclass(frozen=True)
class Features:
    """window: tokens that a token sees at most, in `windowed` of the layers; 0 = all · squared: a squared ReLU · gate: by what the result
    of attention is gated, a number for each element or each head · odd: what no framework's arguments say."""

    window: int
    windowed: int
    squared: bool
    gate: Literal["", "elements", "heads"]
    odd: tuple[str, ...]


def features(kinds: Sequence[Section], cores: Sequence[tuple[Op, str] | None], ffn: str, heads: Collection[str]) -> Features:
    """kinds: sections of layers, the one with most of them first · cores: of each the product that makes the scores and the index of its
    keys, None = it has no attention · ffn, heads: ranks of the first kind."""
    body, core = kinds[0].workload, cores[0]
    windows = [_window(section.workload, *one) if one is not None else 0 for section, one in zip(kinds, cores, strict=True)]
    several = {window for window in windows if window}
    odd = [*_odd(body, core[0] if core else None, ffn)]
    if core is not None and (width := _width(body, value_ranks(body, core[0], heads))) != (keys := _width(body, core[0].contracted)):
        odd.append(f"values of {width} elements beside keys of {keys}")
    if len(several) > 1:
        odd.append(f"windows of {' and '.join(map(str, sorted(several)))} tokens in one model")
    windowed = sum(section.repeat for section, window in zip(kinds, windows, strict=True) if window)
    return Features(max(several, default=0), windowed, _squared(body), _gate(body, core[0], heads) if core else "", tuple(odd))


def _width(body: Workload, ranks: Iterable[str]) -> int:
    return prod(body.sizes[rank] for rank in ranks)


def _window(body: Workload, scores: Op, key: str) -> int:
    """Tokens of a window; 0 where a token sees every token before it, all of them, or a share that no window leaves."""
    tensor, most = body.tensors[scores.out.tensor], body.sizes[key]
    seen = tensor.density * most
    if not 0 < seen < (most + 1) / 2 * (1 - CLOSE):
        return 0
    window = round((2 * most + 1 - sqrt((2 * most + 1) ** 2 - 8 * most * seen)) / 2)
    return window if isclose(window - window * (window - 1) / (2 * most), seen, rel_tol=CLOSE) else 0


def _result(body: Workload, scores: Op) -> Op | None:
    """The product of what the scores become with values."""
    made = scores
    while (reader := next((op for op in body.ops.values() if any(one.tensor == made.out.tensor for one in op.ins)), None)) is not None:
        if reader.kind.name == "einsum" and set(scores.out.names) - set(reader.out.names):
            return reader
        made = reader
    return None


def value_ranks(body: Workload, scores: Op, heads: Collection[str]) -> set[str]:
    """Ranks of a head's values that are not those of its keys."""
    result = _result(body, scores)
    queries = next((one for one in scores.ins if set(heads) <= set(one.names)), None)
    if result is None or queries is None:
        return set(scores.contracted)
    return set(result.out.names) - (set(queries.names) - set(scores.contracted))


def _gate(body: Workload, scores: Op, heads: Collection[str]) -> Literal["", "elements", "heads"]:
    """By what the result of attention is multiplied before it is projected."""
    result = _result(body, scores)
    after = [op for op in body.ops.values() if result is not None and any(one.tensor == result.out.tensor for one in op.ins)]
    gates = [op for op in after if op.kind.name == "multiply"]
    if not gates:
        return ""
    return "elements" if len({frozenset(one.names) for one in gates[0].ins}) == 1 else "heads"


def _squared(body: Workload) -> bool:
    """Whether something rectified is multiplied by itself."""
    rectified = {op.out.tensor for op in body.ops.values() if op.kind.name == "relu"}
    return any(op.kind.name == "multiply" and {one.tensor for one in op.ins} <= rectified for op in body.ops.values())


def _odd(body: Workload, scores: Op | None, ffn: str) -> Iterable[str]:
    """A feed-forward layer beside attention, and activations that have no name in the frameworks."""
    if any(op.kind.name == "xielu" for op in body.ops.values()):
        yield "xIELU as the activation"
    behind = {scores.out.tensor} if scores is not None else set()
    for op in body.ops.values():  # in the order of their dependence
        if behind & {one.tensor for one in op.ins}:
            behind.add(op.out.tensor)
        elif behind and ffn in op.out.names and op.kind.name == "einsum":
            yield "a feed-forward layer beside attention, not behind it"
            return
