"""How a command ends: what it raises → one message on stderr and the exit code; what its streams cannot take → the same.

0 · 1 infeasible, or a bar missed · 2 bad input · 3 the computer failed: a full disk, what cannot be written, a closed pipe (quietly:
`| head` has what it wants) · 130 interrupted. With --json what is raised is a document on stdout, too.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import math
import os
import sys
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rackmodel.errors import RackmodelError

FAILED, INTERRUPTED, BAD_INPUT = 3, 130, 2

_PLAIN = {
    "µ": "u", "μ": "u", "×": "x", "–": "-", "—": "-", "−": "-", "→": "->", "…": "...", "·": "*", "≤": "<=", "≥": ">=",
    "\xa0": " ", "²": "^2", "³": "^3", "Σ": "sum", "α": "alpha", "β": "beta", "γ": "gamma", "₂": "2",
}  # fmt: skip


def run() -> int:
    """Run the command of sys.argv; the exit code."""
    if sys.stdout is None or sys.stdout.closed:
        _say("standard output is closed: nothing can be printed")
        return FAILED
    _plain_words()
    if not sys.warnoptions:  # a figure that is not finite is an error of its own; numpy's warning of it is no help
        warnings.filterwarnings("ignore", category=RuntimeWarning)
    warnings.formatwarning = lambda message, *_, **__: f"{message}\n"
    code = _command()
    try:
        sys.stdout.flush()
    except (OSError, ValueError) as problem:
        return _failed(problem)
    return code


def _command() -> int:
    from rackmodel.cli.app import command
    from rackmodel.errors import InputError, RackmodelError

    try:
        command()(standalone_mode=True)
    except RackmodelError as problem:
        _say(str(problem))
        return _as_json(problem)
    except SystemExit as leaving:
        return _left(leaving)
    except KeyboardInterrupt:
        _say("interrupted")
        return INTERRUPTED
    except OSError as problem:
        return _failed(problem)
    except (OverflowError, ZeroDivisionError, FloatingPointError) as problem:
        fact = f"no answer: a number of the input is too large or too small to be meant ({problem})"
        _say(fact)
        return _as_json(InputError(fact))
    except MemoryError as problem:
        why = f" ({problem})" if str(problem) else ""
        _say(f"no answer: it takes more memory than this computer has{why}; ask for fewer accelerators or mappings")
        return FAILED
    return 0


def _as_json(problem: RackmodelError) -> int:
    """The exit code of a problem, which a command with --json also prints as fields."""
    if "--json" in sys.argv:
        from rackmodel.cli.printing import print_json

        try:
            told = {key: None if value in (math.inf, -math.inf) else value for key, value in problem.to_dict().items()}
            print_json({"error": told | {"exit_code": problem.exit_code}})
        except (OSError, ValueError) as other:
            return _failed(other)
    return problem.exit_code


def _left(leaving: SystemExit) -> int:
    """The code of a command that left by itself; typer leaves so when it is interrupted, and with 1 when a pipe is closed."""
    if isinstance(leaving.__context__, BrokenPipeError):
        return _failed(leaving.__context__)
    code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    if code == INTERRUPTED:
        _say("interrupted")
    told = getattr(leaving.__context__, "format_message", None)  # of words that make no command: said already
    return _unmeant(told()) if code == BAD_INPUT and told is not None else code


def _unmeant(fact: str) -> int:
    from rackmodel.errors import InputError

    return _as_json(InputError(fact))


def _failed(problem: OSError | ValueError) -> int:
    """Say what the computer could not do, unless it is that nobody reads; keep the end of the process from trying it again."""
    why = getattr(problem, "strerror", None) or problem
    file = getattr(problem, "filename", None)
    if file is not None:
        _say(f"{file}: {why}")
        return FAILED
    if getattr(problem, "errno", None) != errno.EPIPE:
        _say(f"standard output: cannot be written: {why}")
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    return FAILED


def _say(text: str) -> None:
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            print(text, file=sys.stderr, flush=True)


def _plain_words() -> None:
    """On a terminal or pipe of few characters (ASCII, Latin-1) the others are said in plain ones; nothing is lost but looks."""

    def plain(problem: UnicodeError) -> tuple[str, int]:
        assert isinstance(problem, UnicodeEncodeError)
        text = problem.object[problem.start : problem.end]
        return "".join(_PLAIN.get(char, "?") for char in text), problem.end

    codecs.register_error("rackmodel.plain", plain)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        encoding = (getattr(stream, "encoding", None) or "").lower().replace("-", "").replace("_", "")
        if reconfigure is not None and not encoding.startswith("utf"):
            reconfigure(errors="rackmodel.plain")
