"""Results in files: what was asked and what was answered, as JSON, so that later commands can compare, question and draw them.

`-o` writes one such file a result (result.json); the output of `--json` is read as well.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rackmodel.cost.ledger import COLUMNS, FIGURES, Charge, Ledger
from rackmodel.errors import InputError, OutputError, Where
from rackmodel.model.result import Result
from rackmodel.report.facts import capacity_of, machine_facts
from rackmodel.report.finite import finite
from rackmodel.report.roofline import roofline_points
from rackmodel.report.saved_shape import check_shape
from rackmodel.report.sketch_data import tree_of
from rackmodel.report.tables import limit_words, mapping_words, result_lines

LARGEST = 1 << 28


@dataclass(frozen=True)
class Saved:
    """A result that was read. name: what to call it · asked: architecture, workload, mapper or mapping, sets, profile, minimize of the
    command that wrote it, {} where it is not known · data: as Result.to_dict · ledger: its rows · shown: its words, the facts of its
    machine and what pictures need of it (as `_shown`), {} of a file that has none · asked_in: the folder that its relative
    paths are from."""

    name: str
    asked: Mapping[str, Any]
    data: Mapping[str, Any]
    ledger: Ledger
    shown: Mapping[str, Any] = field(default_factory=dict)
    asked_in: Path | None = None


def saved_json(result: Result, asked: Mapping[str, Any], more: Mapping[str, Any] | None = None, where: Path | None = None) -> str:
    """The text of a result's file. asked: the command's inputs · more: what sketches are drawn from: timeline, graph · where: the folder
    that the file is for, from which it says the way to where the command ran, so that both may be moved together."""
    way = {} if where is None else {"asked_in": os.path.relpath(Path.cwd(), where.resolve())}
    data = {"asked": dict(asked), **way, "result": result.to_dict(), "shown": _shown(result) | dict(more or {})}
    return json.dumps(finite(data), indent=1, allow_nan=False, default=float) + "\n"


def saved(result: Result, asked: Mapping[str, Any] | None = None, more: Mapping[str, Any] | None = None) -> Saved:
    """A result at hand as if it had been read. more: as of `saved_json`."""
    shown = _shown(result) | dict(more or {})
    return Saved(f"{result.mapper} on {result.architecture}", asked or {}, result.to_dict(), result.ledger, shown)


def _shown(result: Result) -> dict[str, Any]:
    """What is said of a result beside its figures, so that who reads the file needs neither the machine nor the mapping's classes."""
    machine = result.machine
    level, capacity, bandwidth = ("", None, None) if machine is None else capacity_of(machine)
    room = capacity if result.room_bytes is None else result.room_bytes
    return {
        "mapping": mapping_words(result.mapping),
        "limits": limit_words(result),
        "lines": result_lines(result),
        "status": result.certificate.status,
        "peak_flop_per_s": result.peak_flop_per_s,
        "memory": {"level": level, "capacity_bytes": room, "bandwidth_bytes_per_s": bandwidth},
        "roofline": [point.__dict__ for point in roofline_points(result)],
        "facts": [] if machine is None else machine_facts(machine),
        "tree": [] if machine is None else tree_of(machine, result.mapping, result.ledger, result.latency_s),
    }


def read_saved(name: str) -> Saved:
    """A result from the folder that `-o` wrote, or from its result.json. Raises InputError."""
    found = _files(name)
    if len(found) != 1:
        words = [str(one) for one in found]
        raise InputError(f"holds {len(found)} results, want one: name its file", where=Where(name), known=words)
    return _saved(_data(found[0]), str(found[0]))


def read_several(names: Sequence[str]) -> list[Saved]:
    """Every result of some folders and files. Raises InputError."""
    found = []
    for name in names:
        files = _files(name)
        if not files:
            raise InputError("holds no result: want a folder that -o wrote", where=Where(name))
        found += [_saved(_data(path), str(path)) for path in files]
    return found


def _files(name: str) -> list[Path]:
    path = Path(name)
    return sorted(path.glob("*result.json")) if path.is_dir() else [path]


def _data(path: Path) -> Any:
    try:
        if path.stat().st_size > LARGEST:
            raise InputError(f"is larger than {LARGEST >> 20} MiB", where=Where(str(path)))
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError("no such file: want a folder that -o wrote, or a result.json", where=Where(str(path))) from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as problem:
        line = problem.lineno if isinstance(problem, json.JSONDecodeError) else 0
        column = problem.colno if isinstance(problem, json.JSONDecodeError) else 0
        raise InputError("is no result: want JSON, as -o or --json writes it", where=Where(str(path), line, column)) from None
    except OSError as problem:
        raise OutputError(f"cannot be read: {problem.strerror or problem}", str(path)) from problem


def _saved(data: Any, shown: str) -> Saved:
    if not isinstance(data, dict) or "result" not in data:
        raise InputError("is no result: want {asked: ..., result: ...}, as -o or --json writes it", where=Where(shown))
    check_shape(data, shown)
    result, way = data["result"], data.get("asked_in")
    ledger = Ledger(tuple(_charge(row, shown, number) for number, row in enumerate(result["ledger"], start=1)))
    _check_sums(result, ledger, shown)
    asked_in = Path(shown).resolve().parent / way if way is not None else None
    return Saved(
        f"{result['mapper']} on {result['architecture']}", data.get("asked") or {}, result, ledger, data.get("shown") or {}, asked_in
    )


def _check_sums(result: Mapping[str, Any], ledger: Ledger, shown: str) -> None:
    """Figures are sums over the ledger: where they are not, one of both was changed, and commands would tell two stories."""
    for key, column in (("latency_s", "exposed_seconds"), ("energy_j", "joules")):
        told, summed = result[key], ledger.total(column)
        if not math.isclose(told, summed, rel_tol=1e-9, abs_tol=1e-30):
            words = f"result.{key} is {told:.12g}, {column} of its ledger come to {summed:.12g}: one of both was changed"
            raise InputError(words, where=Where(shown))


def _charge(row: Any, shown: str, number: int) -> Charge:
    if not isinstance(row, dict) or set(row) != set(COLUMNS):
        raise InputError(f"ledger row {number}: want {', '.join(COLUMNS)}", where=Where(shown))
    for key, value in row.items():
        good = isinstance(value, int | float) and math.isfinite(value) if key in FIGURES else isinstance(value, str)
        if not good:
            raise InputError(f"ledger row {number}: {key} is {value!r:.40}", where=Where(shown))
    return Charge(**row)
