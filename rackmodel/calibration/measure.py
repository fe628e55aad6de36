"""`python -m rackmodel.calibration.measure SYSTEM -o DIR`: measures a GPU, in about ten minutes, as files that `rackmodel calibrate` reads.

    machine.csv              watts at rest and at work, and what the host takes to launch a kernel and a layer
    products.csv             matrix products, each over and over until the clock has settled, with the watts meanwhile
    attention.csv            calls of fused attention of prompts · attention_training.csv: of steps of training, both passes
    layer_ops.csv            norms, activations, sums, rotations, copies: what moves rows

    rackmodel calibrate DIR/products.csv DIR/attention.csv DIR/attention_training.csv --part PART -o my_gpu.yaml

A row is written when it is measured; the same command goes on where it was interrupted, with what the files lack. What a GPU cannot do is
left out, and said. It stands alone: nothing but this package and PyTorch (and pynvml for watts) is needed, and PyTorch is imported when a
GPU is asked for.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
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
PASSES = ("forward", "backward")
TOKENS = (1, 8, 64, 256, 1024, 4096, 16384)
MODELS = ((2048, 16, 4, 5632), (4096, 32, 8, 14336), (8192, 64, 8, 28672))
"""(hidden, heads, shared heads, inside) of operations that move rows."""
MOVING = ("add", "input_layernorm", "mlp_act", "attn_rope", "emb")
VOCABULARY = 32768
FACTS = ("idle_w", "limit_w", "busy_w", "busy_zeros_w", "launch_s", "layer_s")
"""Watts at rest, allowed, and of large products of normal values and of zeros; the host's seconds for a kernel, and for a layer of few
tokens, forward and backward."""

_WHERE = ("system", "device")
_CALL = ("batch_size", "q_len", "past_kv_len", "num_heads", "num_key_value_heads", "head_dim", "sliding_window")
_LAYER = ("tp", "n_head", "n_kv_head", "hidden", "ffn_hidden", "vocab", "gated_mlp")
_PROMPTS = (*_WHERE, "kernel_source", "kv_cache_dtype", *_CALL)
TABLES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "machine": ((*_WHERE, "fact"), ("value",)),
    "products": ((*_WHERE, "gemm_dtype", "m", "n", "k"), ("latency_us", "power_w", "clock_mhz")),
    "attention": (_PROMPTS, ("latency_us", "power_w", "clock_mhz")),
    "attention_training": ((*_PROMPTS, "pass"), ("latency_us", "power_w", "clock_mhz")),
    "layer_ops": (("gpu", "model", "op", "num_tokens", *_LAYER), ("latency_us", "power_w", "clock_mhz")),
}
"""File → the columns that name a row, those that are measured."""


@dataclass(frozen=True)
class KernelTime:
    """seconds: of one · watts, clock_hz: meanwhile, None where nothing tells them."""

    seconds: float
    watts: float | None = None
    clock_hz: float | None = None

    def columns(self) -> dict[str, str]:
        """As files have it."""
        watts = "" if self.watts is None else f"{self.watts:.1f}"
        clock = "" if self.clock_hz is None else f"{self.clock_hz * 1e-6:.0f}"
        return {"latency_us": f"{self.seconds * 1e6:.6g}", "power_w": watts, "clock_mhz": clock}


class CannotError(Exception):
    """What this GPU, or its software, cannot do, as its first line says it."""


class Backend(Protocol):
    """What is measured on. Products, attention and operations that move rows are timed over and over, operands of normal values.
    All raise CannotError."""

    @property
    def device(self) -> str:
        """What the GPU calls itself."""

    @property
    def precisions(self) -> Sequence[str]:
        """Of products."""

    @property
    def kernels(self) -> Sequence[str]:
        """Words of its attention kernels."""

    def fact(self, name: str) -> float | None:
        """One of FACTS, None where nothing tells it."""

    def product(self, precision: str, m: int, n: int, k: int) -> KernelTime:
        """C[m, n] = A[m, k] B[k, n]."""

    def attention(self, kernel: str, way: str, sequences: int, tokens: int, heads: tuple[int, int, int]) -> KernelTime:
        """One of PASSES of causal attention of prompts. heads: of queries, of keys, width of each."""

    def moving(self, op: str, tokens: int, model: tuple[int, int, int, int]) -> KernelTime:
        """One of MOVING."""


@dataclass(frozen=True)
class Asked:
    """One measurement. rows: table → what names its row there · take: what is measured, None where nothing tells it."""

    rows: Mapping[str, Mapping[str, object]]
    take: Callable[[], Mapping[str, object] | None]

    def __str__(self) -> str:
        table, row = next(iter(self.rows.items()))
        told = [str(row[name]) for name in TABLES[table][0] if name not in (*_WHERE, "gpu", *_LAYER)]
        return f"{table}: {' '.join(told)}"


def machine(backend: Backend, system: str) -> Iterator[Asked]:
    """FACTS, those at rest first."""
    for name in FACTS:

        def take(name: str = name) -> Mapping[str, object] | None:
            value = backend.fact(name)
            return None if value is None else {"value": f"{value:.6g}"}

        yield Asked({"machine": {"system": system, "device": backend.device, "fact": name}}, take)


def products(backend: Backend, system: str) -> Iterator[Asked]:
    """Products, sizes spread so that 253 tell a GPU and precision."""
    for precision in backend.precisions:
        for n, k in SHAPES:
            for m in ROWS:
                row = {"system": system, "device": backend.device, "gemm_dtype": precision, "m": m, "n": n, "k": k}
                yield Asked({"products": row}, lambda sizes=(precision, m, n, k): backend.product(*sizes).columns())  # type: ignore[misc]


def attention(backend: Backend, system: str) -> Iterator[Asked]:
    """Attention of prompts, forward and backward."""
    for kernel in backend.kernels:
        named = {"system": system, "device": backend.device, "kernel_source": kernel, "kv_cache_dtype": "bfloat16"}
        for heads in CALLS:
            for sequences, tokens in LENGTHS:
                row = {**named, **dict(zip(_CALL, (sequences, tokens, 0, *heads, 0), strict=True))}
                for way in PASSES:
                    rows = {"attention_training": {**row, "pass": way}} | ({"attention": row} if way == "forward" else {})
                    yield Asked(rows, lambda sizes=(kernel, way, sequences, tokens, heads): backend.attention(*sizes).columns())  # type: ignore[misc]


def moving(backend: Backend, system: str) -> Iterator[Asked]:
    """What moves rows."""
    for model in MODELS:
        hidden, heads, shared, inside = model
        layer = dict(zip(_LAYER, (1, heads, shared, hidden, inside, VOCABULARY, True), strict=True))
        for op in MOVING:
            for tokens in TOKENS:
                row = {"gpu": system, "model": f"d{hidden}", "op": op, "num_tokens": tokens, **layer}
                yield Asked({"layer_ops": row}, lambda sizes=(op, tokens, model): backend.moving(*sizes).columns())  # type: ignore[misc]


class Table:
    """A file of measured rows, which grows by a row at a time. A row that was cut while it was written is dropped."""

    def __init__(self, path: Path, named: Sequence[str], measured: Sequence[str]) -> None:
        self.path, self.named, self.columns = path, named, [*named, *measured]
        text = path.read_bytes() if path.exists() else b""
        if not text:
            path.write_text(",".join(self.columns) + "\n", encoding="utf-8")
        elif not text.endswith(b"\n"):
            path.write_bytes(text[: text.rfind(b"\n") + 1])
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file)
            if list(rows.fieldnames or ()) != self.columns:
                raise ValueError(f"{path} has other columns than this script writes: measure into another directory")
            self.there = {self._key(row) for row in rows}

    def has(self, row: Mapping[str, object]) -> bool:
        """Whether it was measured already."""
        return self._key(row) in self.there

    def add(self, row: Mapping[str, object]) -> None:
        """Write it."""
        with self.path.open("a", encoding="utf-8", newline="") as file:
            csv.DictWriter(file, self.columns, lineterminator="\n").writerow(row)
        self.there.add(self._key(row))

    def _key(self, row: Mapping[str, object]) -> tuple[str, ...]:
        return tuple(str(row[name]) for name in self.named)


def measure(backend: Backend, system: str, folder: Path, told: Callable[[str], None] = lambda _: None) -> tuple[list[Path], list[str]]:
    """Measure what the files lack; their paths, and what was left out, a line for each reason. told: what is being measured.
    Raises ValueError where a file has other columns."""
    folder.mkdir(parents=True, exist_ok=True)
    tables = {name: Table(folder / f"{name}.csv", *columns) for name, columns in TABLES.items()}
    asked = list(chain.from_iterable(of(backend, system) for of in (machine, products, attention, moving)))
    left_out: dict[tuple[str, str], list[Asked]] = {}
    for number, one in enumerate(asked, start=1):
        lacking = {table: row for table, row in one.rows.items() if not tables[table].has(row)}
        if not lacking:
            continue
        told(f"{number:,} of {len(asked):,} · {one}")
        try:
            found = one.take()
        except CannotError as problem:
            left_out.setdefault((next(iter(one.rows)), str(problem)), []).append(one)
            continue
        for table, row in lacking.items():
            if found is not None:
                tables[table].add({**row, **found})
    told_of = [f"{many[0]}{f' and {len(many) - 1} more' if many[1:] else ''}: {why}" for (_, why), many in left_out.items()]
    return [table.path for table in tables.values()], told_of


def _progress(line: str) -> None:
    """On a terminal, over the line before."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


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
    try:
        paths, left_out = measure(backend, arguments[0], Path(arguments[2]), _progress)
    except KeyboardInterrupt:
        _progress("")
        print("interrupted; the same command goes on", file=sys.stderr)
        return 130
    except (OSError, ValueError) as problem:
        print(problem, file=sys.stderr)
        return 2
    _progress("")
    for line in left_out:
        print(f"left out: {line}", file=sys.stderr)
    for path in paths:
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
