"""What commands print: lines, JSON, tables, and the names of the files that they wrote."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

MOST_TOLD = 40
"""Files that a command names."""


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a line on stdout or stderr, in the characters that it has (typer's own would send UTF-8 to an ASCII terminal)."""
    print(text, end="\n" if nl else "", file=sys.stderr if err else sys.stdout)


def print_json(data: Any) -> None:
    """JSON on stdout. Raises NotFiniteError for NaN and infinity, which JSON has not."""
    from rackmodel.report.finite import finite

    echo(json.dumps(finite(data), indent=1, allow_nan=False, default=float))


def print_table(table: Any) -> None:
    """A table as the other reports print it."""
    from rackmodel.report.tables import console

    console().print(table)


def print_sources(sources: Mapping[str, str], *, whole: bool) -> None:
    """Where factors are from, a line each; else how many have a source."""
    if whole:
        for factor, source in sources.items():
            echo(f"{factor}: {source}")
    elif sources:
        echo(f"{len(sources)} factors with sources: --sources prints them")


def tell(paths: Sequence[Path]) -> None:
    """Name the files that were written, on stderr; the first of very many."""
    if paths:
        more = f" and {len(paths) - MOST_TOLD} more" if len(paths) > MOST_TOLD else ""
        echo(f"wrote {', '.join(path.name for path in paths[:MOST_TOLD])}{more} in {paths[0].parent}", err=True)
