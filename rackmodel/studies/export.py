"""The table of points for other tools: CSV, JSON, or Parquet (by pandas and pyarrow)."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rackmodel.errors import InputError
from rackmodel.report.files import csv_of_records, write_whole

FORMATS = ("csv", "parquet", "json")


def check_format(name: str, to_folder: bool) -> None:
    """Raise InputError for an unknown format, and for one that cannot be written here."""
    if name not in FORMATS:
        raise InputError(f"no format called '{name}'", path="--export", known=FORMATS, given=name)
    if name == "parquet" and not to_folder:
        raise InputError("parquet is a file: say -o DIR too", path="--export")
    if name == "parquet" and find_spec("pyarrow") is None:
        raise InputError("parquet needs pyarrow: pip install 'rackmodel[parquet]'", path="--export")


def exported(rows: Sequence[Mapping[str, Any]], name: str, where: Path | None) -> None:
    """Write points.csv, points.json or points.parquet to a folder; without one the text to standard output. Raises OutputError."""
    plain = [dict(row) for row in rows]
    if name == "parquet":
        import pandas

        stream = io.BytesIO()
        pandas.DataFrame(plain).to_parquet(stream, index=False)
        assert where is not None
        write_whole(where / "points.parquet", stream.getvalue())
        return
    text = csv_of_records(plain) if name == "csv" else json.dumps(plain, indent=1, allow_nan=False) + "\n"
    if where is None:
        sys.stdout.write(text)
    else:
        write_whole(where / f"points.{name}", text)
