"""How many cases a test has: some in the suite, all with SAMPLES=all, as `make audit` runs the files that ask here."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

import pytest

Case = TypeVar("Case")


def cases(some: int, every: int) -> int:
    """`some` in the suite, `every` in the audit."""
    return every if os.environ.get("SAMPLES") == "all" else some


def some(of: Iterable[Case], each: int) -> list[Case]:
    """The first of every `each` of them in the suite, all in the audit."""
    rows = list(of)
    return rows[:: cases(each, 1)]


audited = pytest.mark.skipif(cases(1, 0) == 1, reason="takes long: `make audit` runs it")
"""Of a test that only the audit runs: others of its kind are in the suite."""
