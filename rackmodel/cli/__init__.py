"""The command line: `rackmodel COMMAND …`. A file a command; heavy imports happen inside the commands."""

from __future__ import annotations

import gc
import sys

RARELY = 100_000  # objects that a command makes before cycles are looked for: rows of ledgers are many, and have none


def main() -> None:
    """Run the command line and leave. Exit codes: 0; 1 infeasible or a bar missed; 2 bad input; 3 the computer failed (a full disk,
    what cannot be written, a closed pipe); 130 interrupted."""
    gc.set_threshold(RARELY, *gc.get_threshold()[1:])
    try:
        from rackmodel.cli.leaving import run

        code = run()
    except KeyboardInterrupt:  # while modules were read; what a command says of it: leaving
        print("interrupted", file=sys.stderr)
        code = 130
    sys.exit(code)
