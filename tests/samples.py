"""How many random cases a test draws: some in the suite, all with SAMPLES=all, as `make audit` runs the files that ask here."""

from __future__ import annotations

import os


def cases(some: int, every: int) -> int:
    """`some` in the suite, `every` in the audit."""
    return every if os.environ.get("SAMPLES") == "all" else some
