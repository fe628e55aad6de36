"""`python -m rackmodel.calibration.measure SYSTEM -o DIR`: measures a GPU, in about ten minutes, as files that `rackmodel calibrate` reads.

    products.csv             matrix products, each over and over until the clock has settled, with the watts meanwhile
    attention.csv            calls of fused attention of prompts · attention_training.csv: of steps of training, both passes
    layer_ops.csv            norms, activations, sums, rotations, copies: what moves rows
    machine.csv              watts at rest and at work, and what the host takes to launch a kernel and a layer

    rackmodel calibrate DIR/products.csv DIR/attention.csv DIR/attention_training.csv --part PART -o my_gpu.yaml

It stands alone: nothing but this package and PyTorch (and pynvml for watts) is needed, and PyTorch is imported when a GPU is asked for.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

ROWS = (1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
SHAPES = (
    (512, 4096), (1024, 1024), (1536, 8192), (2048, 2048), (2560, 8192), (3072, 768), (4096, 512), (4096, 4096), (4608, 12288),
    (6144, 4096), (7168, 2048), (8192, 1024), (8192, 8192), (8192, 28672), (10240, 8192), (12288, 1536), (12288, 12288), (14336, 4096),
    (16384, 2048), (18432, 7168), (20480, 5120), (28672, 8192), (65536, 4096),
)  # fmt: skip
"""(n, k) of products: of layers from 1 to 500 billion parameters, split and whole."""
CALLS = tuple((heads, shared, head) for heads, shared in ((32, 32), (32, 8), (16, 2), (8, 1)) for head in (64, 128))
LENGTHS = ((16, 128), (8, 512), (4, 1024), (2, 2048), (1, 4096), (1, 8192), (1, 16384))
"""(sequences, tokens of each) of attention."""
TOKENS = (1, 8, 64, 256, 1024, 4096, 16384)
MODELS = ((2048, 16, 4, 5632), (4096, 32, 8, 14336), (8192, 64, 8, 28672))
"""(hidden, heads, shared heads, inside) of operations that move rows."""
MOVING = ("add", "input_layernorm", "mlp_act", "attn_rope", "emb")
VOCABULARY = 32768


@dataclass(frozen=True)
class KernelTime:
    """seconds: of one · watts: meanwhile, None where nothing tells them."""

    seconds: float
    watts: float | None = None


class Backend(Protocol):
    """What is measured on. Products, attention and operations that move rows are timed over and over, operands of normal values."""

    @property
    def device(self) -> str:
        """What the GPU calls itself."""

    @property
    def precisions(self) -> Sequence[str]:
        """Of products."""

    @property
    def kernel(self) -> str:
        """Word of the attention kernel."""

    def product(self, precision: str, m: int, n: int, k: int) -> KernelTime:
        """C[m, n] = A[m, k] B[k, n]."""

    def attention(self, sequences: int, tokens: int, heads: tuple[int, int, int]) -> tuple[KernelTime, KernelTime]:
        """Causal attention of prompts: forward, and backward."""

    def moving(self, op: str, tokens: int, model: tuple[int, int, int, int]) -> KernelTime:
        """One of MOVING."""

    def facts(self) -> Mapping[str, float]:
        """idle_w, busy_w, limit_w, launch_s (a kernel), layer_s (the host's part of a layer, forward and backward): what can be told."""


def products(backend: Backend, system: str) -> Iterator[dict[str, object]]:
    """Rows of products, sizes spread so that 253 tell a GPU and precision."""
    for precision in backend.precisions:
        for n, k in SHAPES:
            for m in ROWS:
                found = backend.product(precision, m, n, k)
                sizes = {"gemm_dtype": precision, "m": m, "n": n, "k": k}
                yield {"system": system, "device": backend.device, **sizes, **_time(found), "power_w": _text(found.watts)}


def attention(backend: Backend, system: str) -> Iterator[tuple[dict[str, object], dict[str, object]]]:
    """Rows of attention of prompts: forward and backward."""
    for heads in CALLS:
        for sequences, tokens in LENGTHS:
            sizes = {"batch_size": sequences, "q_len": tokens, "past_kv_len": 0}
            sizes |= dict(zip(("num_heads", "num_key_value_heads", "head_dim"), heads, strict=True))
            named = {"system": system, "device": backend.device, "kernel_source": backend.kernel, "kv_cache_dtype": "bfloat16"}
            forward, backward = backend.attention(sequences, tokens, heads)
            row = {**named, **sizes, "sliding_window": 0}
            yield {**row, **_time(forward)}, {**row, **_time(backward)}


def moving(backend: Backend, system: str) -> Iterator[dict[str, object]]:
    """Rows of what moves rows."""
    for model in MODELS:
        hidden, heads, shared, inside = model
        sizes = {"tp": 1, "n_head": heads, "n_kv_head": shared, "hidden": hidden, "ffn_hidden": inside, "vocab": VOCABULARY}
        for op in MOVING:
            for tokens in TOKENS:
                found = backend.moving(op, tokens, model)
                yield {"gpu": system, "model": f"d{hidden}", "op": op, "num_tokens": tokens, **sizes, "gated_mlp": True, **_time(found)}


def measure(backend: Backend, system: str, folder: Path) -> list[Path]:
    """Measure all and write the files; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    both = list(attention(backend, system))
    facts = [{"system": system, "device": backend.device, "fact": name, "value": value} for name, value in backend.facts().items()]
    tables: dict[str, Sequence[Mapping[str, object]]] = {
        "products": list(products(backend, system)),
        "attention": [forward for forward, _ in both],
        "attention_training": [{**row, "pass": way} for pair in both for way, row in zip(("forward", "backward"), pair, strict=True)],
        "layer_ops": list(moving(backend, system)),
        "machine": facts,
    }
    return [_written(folder / f"{name}.csv", rows) for name, rows in tables.items()]


def _written(path: Path, rows: Sequence[Mapping[str, object]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]) if rows else ["system"])
        table.writeheader()
        table.writerows(rows)
    return path


def _time(found: KernelTime) -> dict[str, object]:
    return {"latency_us": f"{found.seconds * 1e6:.6g}"}


def _text(watts: float | None) -> str:
    return "" if watts is None else f"{watts:.1f}"


def main(arguments: Sequence[str]) -> int:
    """The command."""
    if len(arguments) != 3 or arguments[1] != "-o":
        print("usage: python -m rackmodel.calibration.measure SYSTEM -o DIR   (SYSTEM: the GPU, as h100_sxm)", file=sys.stderr)
        return 2
    from rackmodel.calibration.measure_torch import TorchBackend

    try:
        backend = TorchBackend()
    except (ImportError, RuntimeError) as problem:
        print(f"nothing to measure on: {problem}", file=sys.stderr)
        return 3
    for path in measure(backend, arguments[0], Path(arguments[2])):
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
