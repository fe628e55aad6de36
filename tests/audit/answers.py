"""What an answer must be, whatever was asked: finite, and its ledger, memory and mapping of one mind. And how a call is held to that."""

from __future__ import annotations

import math
import resource
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rackmodel.errors import InfeasibleError, InputError, RackmodelError
from rackmodel.model.result import Result

SECONDS = 5.0
BYTES = 2e9


class TooLongError(Exception):
    """A call took more than SECONDS of the processor."""


@contextmanager
def limited(seconds: float = SECONDS) -> Iterator[None]:
    """Raise TooLongError inside after so many seconds of processor time."""

    def stop(_number: int, _frame: Any) -> None:
        raise TooLongError(f"more than {seconds:g} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def peak_bytes() -> float:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def near(one: float, other: float) -> bool:
    """Equal to rounding."""
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-300)


def faults_of(result: Result) -> Iterator[str]:
    """What of a result contradicts itself."""
    rows = list(result.ledger)
    figures = {"latency": result.latency_s, "energy": result.energy_j, "memory": result.memory_bytes_per_accelerator}
    if result.carbon_g is not None:
        figures["carbon"] = result.carbon_g
    for name, value in figures.items():
        if not math.isfinite(value) or value < 0:
            yield f"the {name} is {value!r}"
    for row in rows:
        for name in ("amount", "joules", "seconds", "exposed_seconds"):
            value = getattr(row, name)
            if not math.isfinite(value) or value < -1e-12 * max(1.0, result.latency_s):
                yield f"{name} of {row.phase} {row.einsum} {row.tensor} {row.level} {row.action} is {value!r}"
    if not near(math.fsum(row.exposed_seconds for row in rows), result.latency_s):
        yield "the seconds of the ledger are not the latency"
    if not near(math.fsum(row.joules for row in rows), result.energy_j):
        yield "the joules of the ledger are not the energy"
    if not near(math.fsum(result.memory.values()), result.memory_bytes_per_accelerator):
        yield "the parts of the memory are not its sum"
    if any(not value >= 0 for value in result.memory.values()):
        yield f"a part of the memory is negative: {result.memory}"
    if result.mfu is not None and not 0 <= result.mfu <= 1 + 1e-9:
        yield f"the MFU is {result.mfu!r}"


def held_to_it(call: Callable[[], Result | None], seconds: float = SECONDS) -> tuple[str, str]:
    """(outcome, fault) of a call that gives a result or refuses: answered, refused, infeasible, or failed with what is wrong."""
    try:
        with limited(seconds), warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            result = call()
            faults = list(faults_of(result)) if result is not None else []
    except InputError as problem:
        placed = problem.where is not None or problem.path or "<" in str(problem)
        return ("refused", "") if placed and str(problem) else ("failed", f"refused without a place: {problem}")
    except InfeasibleError as problem:
        return ("infeasible", "") if str(problem) else ("failed", "infeasible without a word")
    except RackmodelError as problem:
        return "failed", f"{type(problem).__name__} at the door: {problem}"
    except Exception:
        return "failed", traceback.format_exc(limit=-4)
    if peak_bytes() > BYTES:
        return "failed", f"{peak_bytes() / 1e9:.2f} GB of memory"
    return ("failed", "; ".join(faults[:3])) if faults else ("answered", "")
