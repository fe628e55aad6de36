"""The command line: `rackmodel COMMAND …`. A file a command; heavy imports happen inside the commands."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line. Exit codes: 0; 1 infeasible or a bar missed; 2 bad input."""
    from rackmodel.cli.app import app
    from rackmodel.errors import RackmodelError

    try:
        app(standalone_mode=True)
    except RackmodelError as problem:
        print(f"{problem}", file=sys.stderr)
        sys.exit(problem.exit_code)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
