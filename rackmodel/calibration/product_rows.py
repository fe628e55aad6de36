"""Measured matrix products: one row a kernel, whatever the file calls its columns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rackmodel.csv_file import csv_table, text_of
from rackmodel.errors import InputError

Array = NDArray[np.float64]

TIMES = {"latency_us": 1e-6, "time_us": 1e-6, "time_ms": 1e-3, "time_s": 1.0}
PRECISIONS = ("gemm_dtype", "precision", "dtype")
GPUS = ("system", "gpu", "device")
WORDS = {"bfloat16": "bf16", "float16": "bf16", "fp16": "bf16", "half": "bf16", "float8": "fp8", "nvfp4": "fp4"}
"""What files call a precision → what parts call it. fp16 and bf16 are multiplied at one rate."""


@dataclass(frozen=True, kw_only=True)
class ProductRows:
    """Products of one GPU at one precision. m, n, k: sizes [rows] · seconds: [rows] · source: the file."""

    gpu: str
    precision: str
    m: Array
    n: Array
    k: Array
    seconds: Array
    source: str

    def __len__(self) -> int:
        return len(self.seconds)

    def only(self, which: NDArray[np.bool_]) -> ProductRows:
        """Some of the rows."""
        return ProductRows(
            gpu=self.gpu,
            precision=self.precision,
            m=self.m[which],
            n=self.n[which],
            k=self.k[which],
            seconds=self.seconds[which],
            source=self.source,
        )


def read_products(path: Path) -> list[ProductRows]:
    """The products of a file, CSV or CSV in gzip, by GPU and precision in their order. Raises InputError.

    Columns: m, n, k; one of TIMES; precision (one of PRECISIONS) and GPU (one of GPUS) where there are several. A `batch` other than 1,
    or an `op` that is no product, is left to other readers.
    """
    names, table = csv_table(text_of(path), str(path))
    missing = [name for name in ("m", "n", "k") if name not in names]
    time = next((name for name in TIMES if name in names), None)
    if missing or time is None:
        wanted = [*missing, *([] if time else ["latency_us"])]
        raise InputError(f"no column {', '.join(wanted)}", path=str(path), known=names)
    found: dict[tuple[str, str], list[tuple[float, ...]]] = {}
    for line, row in table:
        if row.get("op", "gemm") not in ("gemm", "matmul", "") or row.get("batch", "1") not in ("1", "", None):
            continue
        try:
            values = [float(row[name] or "") for name in ("m", "n", "k", time)]
        except ValueError:
            raise InputError("want a number in m, n, k and the time", path=f"{path}:{line}") from None
        if not all(0 < value < np.inf for value in values):
            raise InputError("sizes and times must be positive", path=f"{path}:{line}")
        if any(value % 1 for value in values[:3]):
            raise InputError("want whole numbers in m, n and k", path=f"{path}:{line}")
        gpu, precision = (next((cell for c in columns if (cell := row.get(c))), "") for columns in (GPUS, PRECISIONS))
        found.setdefault((gpu, WORDS.get(precision, precision)), []).append((*values[:3], values[3] * TIMES[time]))
    made = []
    for (gpu, precision), rows in found.items():
        m, n, k, seconds = np.array(rows).T
        made.append(ProductRows(gpu=gpu, precision=precision, m=m, n=n, k=k, seconds=seconds, source=path.name))
    return made
