"""Files of published rows, plain or gzipped: each row with its data set, told by its columns what kind it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from rackmodel.csv_file import Row, csv_table, text_of
from rackmodel.errors import InputError, RackmodelError, Where, nearest

Cells = Mapping[str, str]

PRECISIONS = ("gemm_dtype", "precision", "dtype")
"""Columns of a product that may say its precision."""
TIMES = {"latency_us": 1e-6, "time_us": 1e-6, "median_us": 1e-6, "time_ms": 1e-3, "latency_ms": 1e-3, "time_s": 1.0, "latency_s": 1.0}
"""Columns of a kernel that may say its time → seconds of one of it."""

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
    (
        "energy",
        frozenset({"device_hours"}),
        "energy and carbon of whole runs are priced by `search --tokens`, what machines are made of by `carbon`",
    ),
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
    ("served as deployed", frozenset({"framework", "gpu", "tp", "input_len", "output_len"}), ""),
    (
        "serving",
        frozenset({"ttft_ms"}),
        "of served models, but for the columns that tell the deployment: backend, model_path, isl, osl, tpot_ms",
    ),
)
"""(kind, columns that tell it, why it cannot be priced: '' where it is). The first that fits."""


LEAST, MOST = 1e-18, 1e18
"""What a figure of a table lies between, where it is not 0: sizes of beyond an exabyte, or steps of less than an attosecond, are none."""


class NoNumber(RackmodelError):
    """A cell that is filled with no number of anything. Neither an InputError nor a refusal, so that no other row is refused with its own.

    column, text: of the cell · where: of its row · least: from which a whole number is wanted; None: any number.
    """

    def __init__(self, column: str, text: str, where: Where, least: int | None = None) -> None:
        self.column, self.text, self.where, self.least = column, text, where, least
        super().__init__(column, text, where, least)  # (as it was made: processes hand it on by that)

    @property
    def message(self) -> str:
        """What is wrong, without its place."""
        if self.least is not None:
            return f"{self.column}: '{self.text[:40]}' is no whole number from {self.least}"
        beyond = number_of(self.text) is not None and not self.text.startswith("-")
        allowed = f" between {LEAST:g} and {MOST:g}" if beyond else ""
        return f"{self.column}: '{self.text[:40]}' is no number{allowed}"

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


@dataclass(frozen=True)
class PublishedRow:
    """One measurement. id: as the file says it, else the file's name and line · kind: of KINDS · file, line: where it is."""

    id: str
    dataset: str
    kind: str
    cells: Cells
    file: str
    line: int

    @property
    def place(self) -> Where:
        """Where it is."""
        return Where(self.file, self.line, 1)

    def text(self, *columns: str) -> str:
        """The first of some cells that is not empty; ''."""
        return next((text for column in columns if (text := (self.cells.get(column) or "").strip())), "")

    def number(self, *columns: str) -> float | None:
        """The first of some cells that is filled, as a number. Raises NoNumber where it is none, negative, or beyond all."""
        for column in columns:
            text = self.text(column)
            if text:
                return self._number(column, text)
        return None

    def whole(self, *columns: str, least: int = 1) -> float | None:
        """The same of what is counted: tokens, heads, accelerators. least: 0 where a row may say that it has none. Raises NoNumber where it
        is no whole number, or a smaller one: 0 would else read as if nothing was said."""
        for column in columns:
            text = self.text(column)
            if text:
                found = self._number(column, text)
                if found % 1 or found < least:
                    raise NoNumber(column, text, self.place, least)
                return found
        return None

    def _number(self, column: str, text: str) -> float:
        found = number_of(text)
        if found is None or not (found == 0.0 or LEAST <= found <= MOST):
            raise NoNumber(column, text, self.place)
        return found


def number_of(text: str) -> float | None:
    """A number as a table has it; None where a text is none, or no finite one. (Python reads 1_6 as 16; a table does not.)"""
    try:
        found = float(text) if "_" not in text else float("nan")
    except ValueError:
        return None
    return found if isfinite(found) else None


def read_rows(path: Path) -> list[PublishedRow]:
    """The rows of a file. Raises InputError where it is no table, or of no kind that is known."""
    columns, rows = csv_table(text_of(path), str(path))
    found = list(_rows(rows, kind_of_columns([name for name in columns if name], path), path))
    if not found:
        raise InputError("no rows below the names of columns", where=Where(str(path), 1, 1))
    return found


def kind_of_file(path: Path) -> str:
    """The kind of a file's rows. Raises InputError where it is no table, or of no kind that is known."""
    return kind_of_columns(columns_of(path), path)


def columns_of(path: Path) -> list[str]:
    """The columns of a file. Raises InputError where it cannot be read."""
    return [name for name in csv_table(text_of(path), str(path))[0] if name]


def kind_of_columns(columns: Sequence[str], path: Path) -> str:
    """The kind of a file's rows. Raises InputError with what would tell one."""
    here = frozenset(columns)
    found = next((kind for kind, needed, _ in KINDS if needed <= here), None)
    if found is None:
        known = [f"{kind} ({', '.join(sorted(needed))})" for kind, needed, why in KINDS if not why]
        fact = f"no kind of rows has the columns {', '.join(columns)[:200] or '(none)'}" + _almost(columns)
        raise InputError(fact, where=Where(str(path), 1, 1), known=known)
    return found


def _almost(columns: Sequence[str]) -> str:
    """The kind that columns would tell by other names of theirs, and those names; '' where there is none."""
    for kind, needed, _ in KINDS:
        missing = sorted(needed - set(columns))
        meant = {name: nearest(name, [one for one in columns if one not in needed]) for name in missing}
        if len(missing) < len(needed) or all(name.lower() == (there or "").lower() for name, there in meant.items()):
            close = [f"'{name}' where the file has '{there}'" for name, there in meant.items() if there]
            if len(close) == len(missing):
                return f": {kind} rows have {', '.join(close)}"
    return ""


def _rows(rows: Iterator[Row], kind: str, path: Path) -> Iterator[PublishedRow]:
    stem = path.name.split(".")[0]
    for number, (line, some) in enumerate(rows):
        cells = {name: cell for name, cell in some.items() if cell is not None}
        if len(cells) < len(some):
            raise InputError("fewer cells than columns", where=Where(str(path), line, 1))
        row = PublishedRow(
            id=cells.get("id") or f"{stem}:{number + 1}",
            dataset=(cells.get("dataset") or "").strip() or stem,
            kind=kind,
            cells=cells,
            file=str(path),
            line=line,
        )
        yield row
