"""A command line run in this process."""

from __future__ import annotations

from collections.abc import Sequence

from click.testing import Result
from typer.testing import CliRunner

from rackmodel.cli.app import app


def invoke(words: Sequence[str], *, catch_exceptions: bool = True) -> Result:
    """What it prints, its exit code, and what it raised."""
    return CliRunner().invoke(app, [*words], catch_exceptions=catch_exceptions)
