"""Measured matrix products: one row a kernel, whatever the file calls its columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from rackmodel.arrays import Array, Bools
from rackmodel.csv_file import csv_table, no_column, text_of
from rackmodel.errors import InputError, Where
from rackmodel.validation.rows import PRECISIONS, TIMES

GPUS = ("system", "gpu", "device")
WORDS = {"bfloat16": "bf16", "float16": "bf16", "fp16": "bf16", "half": "bf16", "float8": "fp8", "nvfp4": "fp4"}
"""What files call a precision → what parts call it. fp16 and bf16 are multiplied at one rate."""


@dataclass(frozen=True, kw_only=True)
class ProductRows:
    """Products of one GPU at one precision. m, n, k: sizes [rows] · seconds: [rows] · source: the file · where: the first of them ·
    lines: [rows] of the file, where they are known."""

    gpu: str
    precision: str
    m: Array
    n: Array
    k: Array
    seconds: Array
    source: str
    where: Where | None = None
    lines: Array | None = None

    def __len__(self) -> int:
        return len(self.seconds)

    def only(self, which: Bools) -> ProductRows:
        """Some of the rows."""
        lines = None if self.lines is None else self.lines[which]
        return replace(self, m=self.m[which], n=self.n[which], k=self.k[which], seconds=self.seconds[which], lines=lines)

    def place(self, row: int) -> Where | None:
        """Of one of them in its file."""
        if self.where is None or self.lines is None:
            return self.where
        return Where(self.where.file, int(self.lines[row]), 1)

    @property
    def whose(self) -> str:
        """GPU and precision in a few words, as far as the file says them."""
        return ", ".join(filter(None, (self.gpu, self.precision)))


def one_gpu(named: Iterable[str], asked: str | None, what: str = "rows") -> str:
    """The GPU whose rows count. named: as each row names its own, '' where it does not · asked: with --gpu. Raises InputError where that is
    none of them, or it has to be said which."""
    names = list(dict.fromkeys(named))
    known = [name for name in names if name]
    if asked is None and len(names) > 1:
        raise InputError(f"the files hold {len(names)} GPUs: say which with --gpu", path="--gpu", known=known)
    if asked is not None and asked not in names:
        raise InputError(f"no {what} of '{asked}'" + ("" if known else ": no row names a GPU"), path="--gpu", known=known, given=asked)
    return names[0] if asked is None else asked


def read_products(path: Path) -> list[ProductRows]:
    """The products of a file, CSV or CSV in gzip, by GPU and precision in their order. Raises InputError.

    Columns: m, n, k; one of TIMES; precision (one of PRECISIONS) and GPU (one of GPUS) where there are several. A `batch` other than 1,
    or an `op` that is no product, is left to other readers.
    """
    names, table = csv_table(text_of(path), str(path))
    for wanted in (("m",), ("n",), ("k",), tuple(TIMES)):
        if not set(wanted) & set(names):
            raise no_column(wanted, names, str(path))
    time, *others = (name for name in TIMES if name in names)
    if others:
        raise InputError(f"columns '{time}' and '{others[0]}' both say a time: keep one", where=Where(str(path), 1, 1))
    found: dict[tuple[str, str], tuple[Where, list[tuple[float, ...]]]] = {}
    empty = True
    for row in table:
        empty = False
        cells, where = row[1], Where(str(path), row[0], 1)
        if cells.get("op", "gemm") not in ("gemm", "matmul", "") or cells.get("batch", "1") not in ("1", "", None):
            continue
        values = [_number(cells.get(name), name, where) for name in ("m", "n", "k", time)]
        gpu, precision = (next((cell for c in columns if (cell := cells.get(c))), "") for columns in (GPUS, PRECISIONS))
        _, rows = found.setdefault((gpu, WORDS.get(precision.lower(), precision.lower())), (where, []))
        rows.append((*values[:3], values[3] * TIMES[time], row[0]))
    if empty:
        raise InputError("no rows below the names of columns", where=Where(str(path), 1, 1))
    made = []
    for (gpu, precision), (where, rows) in found.items():
        m, n, k, seconds, lines = np.array(rows).T
        sizes = {"m": m, "n": n, "k": k, "seconds": seconds, "lines": lines}
        made.append(ProductRows(gpu=gpu, precision=precision, source=path.name, where=where, **sizes))
    return made


def _number(text: str | None, column: str, where: Where) -> float:
    """A size or a time. Raises InputError."""
    try:
        found = float(text or "")
    except ValueError:
        raise InputError(f"'{(text or '')[:40]}' is no number", where=where, path=column) from None
    if not 0 < found < np.inf:
        raise InputError(f"'{text}' must be positive", where=where, path=column)
    if column not in TIMES and found % 1:
        raise InputError(f"'{text}': want a whole number", where=where, path=column)
    return found
