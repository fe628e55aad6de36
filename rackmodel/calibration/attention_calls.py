"""Measured attention calls of one GPU: by kernel, width of keys and values, and whether sequences have few new tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.inside.attention import AttentionSizes, few_tokens, sizes_of
from rackmodel.validation.attention import attention_case
from rackmodel.validation.rows import read_rows
from rackmodel.validation.words import Refused

Array = NDArray[np.float64]
Use = Literal["decode", "prefill"]


@dataclass(frozen=True, kw_only=True)
class AttentionCalls:
    """Calls of one kernel on one GPU. bits: of keys and values · seconds: [rows] · source: the file."""

    gpu: str
    kernel: str
    use: Use
    bits: int
    sizes: AttentionSizes
    seconds: Array
    source: str

    def __len__(self) -> int:
        return len(self.seconds)

    def only(self, which: NDArray[np.bool_]) -> AttentionCalls:
        """Some of the rows."""
        return AttentionCalls(
            gpu=self.gpu,
            kernel=self.kernel,
            use=self.use,
            bits=self.bits,
            sizes=self.sizes.only(which),
            seconds=self.seconds[which],
            source=self.source,
        )


def read_calls(path: Path) -> list[AttentionCalls]:
    """The calls of a file of attention rows, by kernel in their order; rows that nothing is known of are left out. Raises InputError."""
    found: dict[tuple[str, str, Use, int], list[tuple[tuple[float, ...], float, float]]] = {}
    for row in read_rows(path):
        try:
            case = attention_case(row)
        except Refused:
            continue
        sizes = _sizes([case.sizes], case.head)
        use: Use = "decode" if few_tokens(sizes)[0] else "prefill"
        key = (row.text("system", "gpu"), case.kernel, use, case.bits)
        found.setdefault(key, []).append((case.sizes, case.head, (row.number("latency_us") or 0.0) * 1e-6))
    made = []
    for (gpu, kernel, use, bits), calls in found.items():
        sizes = _sizes([one for one, _, _ in calls], np.array([head for _, head, _ in calls]))
        seconds = np.array([time for _, _, time in calls])
        made.append(AttentionCalls(gpu=gpu, kernel=kernel, use=use, bits=bits, sizes=sizes, seconds=seconds, source=path.name))
    return made


def _sizes(calls: Sequence[tuple[float, ...]], head: Array | float) -> AttentionSizes:
    sequences, kv_heads, group, queries, context, keys = np.array(calls, dtype=np.float64).T
    return sizes_of(sequences=sequences, kv_heads=kv_heads, group=group, queries=queries, context=context, keys=keys, head=head)


def joined(calls: Sequence[AttentionCalls]) -> list[AttentionCalls]:
    """The same with calls of one kernel, use and width of several files put together."""
    found: dict[tuple[str, str, str, int], list[AttentionCalls]] = {}
    for one in calls:
        found.setdefault((one.gpu, one.kernel, one.use, one.bits), []).append(one)
    return [_together(alike) if len(alike) > 1 else alike[0] for alike in found.values()]


def _together(alike: Sequence[AttentionCalls]) -> AttentionCalls:
    first, names = alike[0], ("sequences", "kv_heads", "group", "queries", "context", "keys", "head", "value", "latent")
    sizes = AttentionSizes(**{name: np.concatenate([getattr(one.sizes, name) for one in alike]) for name in names})
    return AttentionCalls(
        gpu=first.gpu,
        kernel=first.kernel,
        use=first.use,
        bits=first.bits,
        sizes=sizes,
        seconds=np.concatenate([one.seconds for one in alike]),
        source=" and ".join(dict.fromkeys(one.source for one in alike)),
    )
