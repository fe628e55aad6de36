"""`python -m rackmodel.calibration.measure SYSTEM -o DIR`: measures a GPU, in about ten minutes, as files that `rackmodel calibrate` reads.

    machine.csv              watts at rest, waiting and at work, and what the host takes to launch a kernel and a layer
    layers.csv               layers of training, eager and compiled: the whole, and its products, attention and other kernels amid it
    training_products.csv    the products of such layers, each over and over, in all three passes
    training_ops.csv         what else a step of training runs, eager and compiled, both passes: norms, rotations, losses, optimizers
    products.csv             matrix products, each over and over until the clock has settled, with the watts meanwhile
    attention.csv            calls of fused attention of prompts · attention_training.csv: of steps of training, both passes
    layer_ops.csv            norms, activations, sums, rotations, lookups: what moves rows
    contended.csv            products while a kernel copies beside them, as a collective does
    copies.csv               in the GPU's memory, from the host and to it

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
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Protocol

from rackmodel.calibration.measured import VOCABULARY, CannotError, Heads, KernelTime, Model

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
FACTS = ("idle_w", "limit_w", "waiting_w", "busy_w", "busy_zeros_w", "launch_s", "layer_s")
"""Watts at rest, allowed, while it waits for the host, and of large products of normal values and of zeros; the host's seconds for a
kernel, and for a layer of few tokens, forward and backward."""
WAYS = ("forward", "input gradients", "weight gradients")
"""Passes of a product."""
MODES = ("eager", "compiled")
FORWARD_ONLY = ("add", "adamw", "adamw_foreach")
"""A sum's gradient is its result's, and an optimizer has one pass."""
STEP_OPS = ("rmsnorm", "rmsnorm_composite", "layernorm", "rope", "swiglu", "gelu", "softmax", "cross_entropy", *FORWARD_ONLY)
STEP_SIZES = ((4096, 4096), (16384, 8192))
"""(tokens, width) of those."""
STEP_TOKENS = (4096, 16384)
LAYERS = ((MODELS[1], 2, 8192), (MODELS[2], 1, 8192))
"""(model, sequences, tokens of each) of layers of training."""
PARTS = ("whole", "products", "attention", "others", "host")
"""Of a layer's forward and backward pass: seconds of all, of its kernels by kind, and of the host until all are launched."""
CONTENDED = ((8192, 8192, 8192), (8192, 4096, 4096), (16384, 28672, 4096), (4096, 4096, 14336))
BLOCKS = (0, 8, 16, 24, 32)
"""That copy beside a product; a collective of NCCL has 8 to 32."""
COPIES = ("device", "to host", "from host")
BYTES = tuple(4**power for power in range(5, 16))

Columns = Mapping[str, object]

_WHERE = ("system", "device")
_CALL = ("batch_size", "q_len", "past_kv_len", "num_heads", "num_key_value_heads", "head_dim", "sliding_window")
_LAYER = ("tp", "n_head", "n_kv_head", "hidden", "ffn_hidden", "vocab", "gated_mlp")
_PROMPTS = (*_WHERE, "kernel_source", "kv_cache_dtype", *_CALL)
_TIMED = ("latency_us", "power_w", "clock_mhz")
_STEP = ("batch_size", "q_len", "num_heads", "num_key_value_heads", "hidden", "ffn_hidden")
TABLES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "machine": ((*_WHERE, "fact"), ("value",)),
    "layers": ((*_WHERE, "kernel_source", "mode", *_STEP, "part"), ("kernels", *_TIMED)),
    "training_products": ((*_WHERE, "gemm_dtype", "pass", "m", "n", "k"), _TIMED),
    "training_ops": ((*_WHERE, "mode", "op", "pass", "num_tokens", "hidden"), _TIMED),
    "contended": ((*_WHERE, "gemm_dtype", "blocks", "m", "n", "k"), _TIMED),
    "copies": ((*_WHERE, "copy", "message_bytes"), _TIMED),
    "products": ((*_WHERE, "gemm_dtype", "m", "n", "k"), _TIMED),
    "attention": (_PROMPTS, _TIMED),
    "attention_training": ((*_PROMPTS, "pass"), _TIMED),
    "layer_ops": (("gpu", "model", "op", "num_tokens", *_LAYER), _TIMED),
}
"""File → the columns that name a row, those that are measured."""


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

    def attention(self, kernel: str, way: str, sequences: int, tokens: int, heads: Heads) -> KernelTime:
        """One of PASSES of causal attention of prompts. heads: of queries, of keys, width of each."""

    def moving(self, op: str, tokens: int, model: Model) -> KernelTime:
        """One of MOVING."""

    def training_product(self, way: str, m: int, n: int, k: int) -> KernelTime:
        """One of WAYS of C[m, n] = A[m, k] W[n, k], 16 bit."""

    def training_op(self, op: str, way: str, mode: str, tokens: int, width: int) -> KernelTime:
        """One of PASSES of one of STEP_OPS on [tokens, width]; an optimizer's has tokens times width parameters and one pass."""

    def layer(self, kernel: str, mode: str, model: Model, sequences: int, tokens: int) -> Sequence[KernelTime]:
        """PARTS of both passes of a layer as Llama has it, FSDP's without its collectives."""

    def contended(self, blocks: int, m: int, n: int, k: int) -> KernelTime:
        """C[m, n] = A[m, k] B[k, n] of 16 bit while as many blocks copy in the GPU's memory."""

    def copied(self, way: str, size: int) -> KernelTime:
        """One of COPIES, size in bytes."""


@dataclass(frozen=True)
class Asked:
    """One measurement. rows: tables and what names a row there · take: what is measured for each, None where nothing tells it."""

    rows: Sequence[tuple[str, Columns]]
    take: Callable[[], Sequence[Columns] | None]

    def __str__(self) -> str:
        table, row = self.rows[0]
        told = [str(row[name]) for name in TABLES[table][0] if name not in (*_WHERE, "gpu", *_LAYER)]
        return f"{table}: {' '.join(told)}"


def machine(backend: Backend, system: str) -> Iterator[Asked]:
    """FACTS, those at rest first."""
    for name in FACTS:

        def take(name: str = name) -> list[Columns] | None:
            value = backend.fact(name)
            return None if value is None else [{"value": f"{value:.6g}"}]

        yield Asked([("machine", {"system": system, "device": backend.device, "fact": name})], take)


def layers(backend: Backend, system: str) -> Iterator[Asked]:
    """Layers of training, PARTS of each at once."""
    for model, sequences, tokens in LAYERS:
        hidden, heads, shared, inside = model
        step = dict(zip(_STEP, (sequences, tokens, heads, shared, hidden, inside), strict=True))
        for mode in MODES:
            for kernel in backend.kernels:
                row = {"system": system, "device": backend.device, "kernel_source": kernel, "mode": mode, **step}

                def take(sizes: tuple[str, str, Model, int, int] = (kernel, mode, model, sequences, tokens)) -> list[Columns]:
                    return [{"kernels": "" if one.kernels is None else one.kernels, **one.columns()} for one in backend.layer(*sizes)]

                yield Asked([("layers", {**row, "part": part}) for part in PARTS], take)


def training_products(backend: Backend, system: str) -> Iterator[Asked]:
    """Products of a layer of each of MODELS, all passes."""
    for hidden, heads, shared, inside in MODELS:
        wide = hidden + 2 * hidden // heads * shared
        for n, k in ((wide, hidden), (hidden, hidden), (2 * inside, hidden), (hidden, inside)):
            for m in STEP_TOKENS:
                for way in WAYS:
                    row = {"system": system, "device": backend.device, "gemm_dtype": "bfloat16", "pass": way, "m": m, "n": n, "k": k}
                    yield _one("training_products", row, partial(backend.training_product, way, m, n, k))


def training_ops(backend: Backend, system: str) -> Iterator[Asked]:
    """What else a step of training runs."""
    for op in STEP_OPS:
        for mode in MODES[:1] if op.startswith("adamw") else MODES:  # its kernels are its own
            for tokens, width in STEP_SIZES:
                for way in PASSES[:1] if op in FORWARD_ONLY else PASSES:
                    row = {"system": system, "device": backend.device, "mode": mode, "op": op, "pass": way, "num_tokens": tokens}
                    yield _one("training_ops", {**row, "hidden": width}, partial(backend.training_op, op, way, mode, tokens, width))


def contended(backend: Backend, system: str) -> Iterator[Asked]:
    """Products beside blocks that copy, as those of a collective do."""
    for m, n, k in CONTENDED:
        for blocks in BLOCKS:
            row = {"system": system, "device": backend.device, "gemm_dtype": "bfloat16", "blocks": blocks, "m": m, "n": n, "k": k}
            yield _one("contended", row, partial(backend.contended, blocks, m, n, k))


def products(backend: Backend, system: str) -> Iterator[Asked]:
    """Products, sizes spread so that 253 tell a GPU and precision."""
    for precision in backend.precisions:
        for n, k in SHAPES:
            for m in ROWS:
                row = {"system": system, "device": backend.device, "gemm_dtype": precision, "m": m, "n": n, "k": k}
                yield _one("products", row, partial(backend.product, precision, m, n, k))


def attention(backend: Backend, system: str) -> Iterator[Asked]:
    """Attention of prompts, forward and backward."""
    for kernel in backend.kernels:
        named = {"system": system, "device": backend.device, "kernel_source": kernel, "kv_cache_dtype": "bfloat16"}
        for heads in CALLS:
            for sequences, tokens in LENGTHS:
                row = {**named, **dict(zip(_CALL, (sequences, tokens, 0, *heads, 0), strict=True))}
                for way in PASSES:
                    rows = [("attention_training", {**row, "pass": way})] + ([("attention", row)] if way == "forward" else [])

                    def take(sizes: tuple[str, str, int, int, Heads] = (kernel, way, sequences, tokens, heads)) -> list[Columns]:
                        return [backend.attention(*sizes).columns()] * (2 if sizes[1] == "forward" else 1)

                    yield Asked(rows, take)


def moving(backend: Backend, system: str) -> Iterator[Asked]:
    """What moves rows."""
    for model in MODELS:
        hidden, heads, shared, inside = model
        layer = dict(zip(_LAYER, (1, heads, shared, hidden, inside, VOCABULARY, True), strict=True))
        for op in MOVING:
            for tokens in TOKENS:
                row = {"gpu": system, "model": f"d{hidden}", "op": op, "num_tokens": tokens, **layer}
                yield _one("layer_ops", row, partial(backend.moving, op, tokens, model))


def copies(backend: Backend, system: str) -> Iterator[Asked]:
    """In the GPU's memory, from the host and to it."""
    for way in COPIES:
        for size in BYTES:
            row = {"system": system, "device": backend.device, "copy": way, "message_bytes": size}
            yield _one("copies", row, partial(backend.copied, way, size))


def _one(table: str, row: Mapping[str, object], take: Callable[[], KernelTime]) -> Asked:
    return Asked([(table, row)], lambda: [take().columns()])


ALL = (machine, layers, training_products, contended, training_ops, products, attention, moving, copies)


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
    asked = list(chain.from_iterable(of(backend, system) for of in ALL))
    left_out: dict[tuple[str, str], list[Asked]] = {}
    for number, one in enumerate(asked, start=1):
        if all(tables[table].has(row) for table, row in one.rows):
            continue
        told(f"{number:,} of {len(asked):,} · {one}")
        try:
            found = one.take()
        except CannotError as problem:
            left_out.setdefault((one.rows[0][0], str(problem)), []).append(one)
            continue
        for (table, row), columns in zip(one.rows, found or (), strict=found is not None):
            if not tables[table].has(row):
                tables[table].add({**row, **columns})
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
