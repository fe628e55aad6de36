"""Files of published rows, plain or gzipped: each row with its data set, told by its columns what kind it is."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rackmodel.errors import InputError, Where
from rackmodel.inputs.csv_table import csv_table

Cells = Mapping[str, str]

KINDS: tuple[tuple[str, frozenset[str], str], ...] = (
    ("training", frozenset({"n_gpus", "tp", "pp", "dp", "seq_len", "gpu"}), ""),
    ("product", frozenset({"m", "n", "k"}), ""),
    ("collective", frozenset({"size_bytes"}), ""),
    ("message", frozenset({"message_bytes"}), ""),
    ("expert exchange", frozenset({"dispatch_us", "combine_us"}), ""),
    ("attention", frozenset({"head_dim", "latency_us"}), ""),
    ("mixed attention", frozenset({"prefill_chunk"}), ""),
    ("latent attention", frozenset({"mla_dtype"}), ""),
    ("expert products", frozenset({"moe_dtype"}), ""),
    ("quantise", frozenset({"quant_dtype"}), ""),
    ("layer operation", frozenset({"op", "tokens"}), ""),
    ("layer operation", frozenset({"op", "num_tokens"}), ""),
    ("layer operation", frozenset({"op", "tokens_or_seqs"}), ""),
    ("kernel", frozenset({"head_config", "shape"}), ""),
    ("memory", frozenset({"metric", "value", "model"}), "memory rows without a parallel configuration"),
    ("energy", frozenset({"device_hours"}), "energy of whole runs is priced by `search --tokens`"),
    ("power", frozenset({"system", "workload", "value"}), "power of a node is not priced yet"),
    ("energy of an operation", frozenset({"item", "value", "node"}), "energies of operations are inputs of parts"),
    ("another tool's error", frozenset({"tool"}), "an error of another tool is no measurement"),
    ("fleet", frozenset({"batch_seqs", "system"}), "no throughput was published with them"),
    ("served at best", frozenset({"scenario", "division", "result", "unit"}), ""),
    ("energy of requests", frozenset({"gpu_j_per_out_tok", "batch_size"}), "the accelerators of these rows are not said"),
    ("settings of servers", frozenset({"max_num_batched_tokens", "sweep"}), "settings, no measurement"),
    ("another tool's fit", frozenset({"threshold_bs", "c0_ms"}), "coefficients of another tool's fit, no measurement"),
    ("served at most", frozenset({"ep_dp", "isl", "osl", "unit", "value"}), ""),
    ("served by plan", frozenset({"parallel", "isl", "osl", "concurrency", "tpot_median_ms"}), ""),
    ("served batch", frozenset({"prompt_tokens", "prompt_time_ms", "time_per_token_ms", "batch"}), ""),
    ("served requests", frozenset({"arrival_s", "input_tokens", "output_tokens", "ttft_ms"}), ""),
    ("served", frozenset({"backend", "model_path", "isl", "osl", "tpot_ms"}), ""),
    ("serving", frozenset({"ttft_ms"}), "serving is not priced yet"),
)
"""(kind, columns that tell it, why it cannot be priced: '' where it is). The first that fits."""

MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class PublishedRow:
    """One measurement. id: as the file says it, else the file's name and line · kind: of KINDS · file, line: where it is."""

    id: str
    dataset: str
    kind: str
    cells: Cells
    file: str
    line: int

    def text(self, *columns: str) -> str:
        """The first of some cells that is not empty; ''."""
        return next((text for column in columns if (text := (self.cells.get(column) or "").strip())), "")

    def number(self, *columns: str) -> float | None:
        """The first of some cells that is filled, as a number. Raises InputError where it is none, or not positive."""
        for column in columns:
            text = self.text(column)
            if text:
                return self._number(column, text)
        return None

    def _number(self, column: str, text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            found = -1.0
        if not 0 <= found < float("inf"):
            raise InputError(f"'{text[:40]}' is no number of {column}", where=Where(self.file, self.line, 1), path=column)
        return found


def read_rows(path: Path) -> list[PublishedRow]:
    """The rows of a file. Raises InputError where it is no table, or of no kind that is known."""
    reader = csv_table(_text(path), str(path))
    columns = [name for name in reader.fieldnames or () if name]
    if len(set(columns)) != len(columns):
        twice = next(name for name in columns if columns.count(name) > 1)
        raise InputError(f"column '{twice}' is there twice", where=Where(str(path), 1, 1))
    found = list(_rows(reader, kind_of_columns(columns, path), path))
    if not found:
        raise InputError("no rows below the names of columns", where=Where(str(path), 1, 1))
    return found


def kind_of_file(path: Path) -> str:
    """The kind of a file's rows. Raises InputError where it is no table, or of no kind that is known."""
    return kind_of_columns(columns_of(path), path)


def columns_of(path: Path) -> list[str]:
    """The columns of a file. Raises InputError where it cannot be read."""
    return [name for name in csv_table(_text(path), str(path)).fieldnames or () if name]


def kind_of_columns(columns: Sequence[str], path: Path) -> str:
    """The kind of a file's rows. Raises InputError with what would tell one."""
    here = frozenset(columns)
    found = next((kind for kind, needed, _ in KINDS if needed <= here), None)
    if found is None:
        known = [f"{kind} ({', '.join(sorted(needed))})" for kind, needed, why in KINDS if not why]
        fact = f"no kind of rows has the columns {', '.join(columns)[:200] or '(none)'}"
        raise InputError(fact, where=Where(str(path), 1, 1), known=known)
    return found


def _rows(reader: csv.DictReader[str], kind: str, path: Path) -> Iterator[PublishedRow]:
    stem = path.name.split(".")[0]
    for number, cells in enumerate(reader):
        line = reader.line_num
        extra = cells.pop(None, None)
        if extra or any(value is None for value in cells.values()):
            raise InputError(f"{'more' if extra else 'fewer'} cells than columns", where=Where(str(path), line, 1))
        row = PublishedRow(
            id=cells.get("id") or f"{stem}:{number + 1}",
            dataset=(cells.get("dataset") or "").strip() or stem,
            kind=kind,
            cells=cells,
            file=str(path),
            line=line,
        )
        yield row


def _text(path: Path) -> str:
    """The text of a file, gzipped or not. Raises InputError where it cannot be read as such."""
    try:
        data = path.read_bytes()
    except IsADirectoryError:
        raise InputError("a folder, where a CSV file is wanted", where=Where(str(path)))
    except (FileNotFoundError, ValueError):
        raise InputError("no such file", where=Where(str(path)))
    try:
        if data[:2] == b"\x1f\x8b":
            with gzip.open(io.BytesIO(data)) as file:
                data = file.read(MOST_BYTES)
        return data.decode("utf-8-sig")
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise InputError("the gzip stream is broken", where=Where(str(path)))
    except UnicodeDecodeError:
        raise InputError("no text in UTF-8", where=Where(str(path)))
