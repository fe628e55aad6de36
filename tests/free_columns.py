"""Columns of models whose layouts are free: searched once for all that is asked of them, and random layouts of their operations."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from rackmodel import api
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.inputs.said import instead
from rackmodel.mapper.layouts.branches import FAR, Branches, Column, Left
from rackmodel.mapper.layouts.closing import NOTHING
from rackmodel.mapper.layouts.layer_tables import SAVED
from rackmodel.mapper.layouts.least_ops import LeastOperations

SIZES = ["layers=4", "b=16", "d=4096", "g=8", "q=4", "e=128", "f=14336", "s=2048", "t=2048", "v=32768"]
ZERO = [{}, {"axes": ["dp"], "state": "shard"}, {"axes": ["dp"], "state": "shard", "grad": "shard", "param": "shard"}]
CHOICES = {  # operation → what it may split beside the batch, or nothing
    **dict.fromkeys(("norm1", "res1", "norm2", "res2"), ("s", "d")),
    "Q": ("s", "g", "q", "e", "d"),
    **dict.fromkeys(("K", "V"), ("s", "g", "e", "d")),
    **dict.fromkeys(("ropeQ", "QK", "softmax", "AV"), ("s", "g", "q")),
    "ropeK": ("s", "g"),
    "O": ("s", "g", "q", "e", "d"),
    **dict.fromkeys(("gate", "up"), ("s", "f", "d")),
    "swiglu": ("s", "f"),
    "down": ("s", "f", "d"),
}
STYLES = {"heads": ("g", "f"), "length": ("s",), "both": ("s", "g", "f"), "any": ()}


def mapper(column: dict[str, Any], **said: Any) -> dict[str, Any]:
    """A mapper of one column. column: degrees, micro_batch, home, recompute and schedule."""
    tp, dp, pp = column["degrees"]
    return {
        "mapper": "one_column",
        "axes": {"pp": {"degree": pp, "stages": "layers"}, "dp": {"degree": dp}, "tp": {"degree": tp, "place": "inner"}},
        "split": {"dp": ["b"]},
        "micro_batch": column["micro_batch"],
        "recompute": column.get("recompute", "none"),
        "homes": {"weights": [ZERO[column.get("zero", 0)]]},
        "overlap": "free",
        "algorithms": "best",
        **column.get("schedule", {}),
        **said,
    }


def search(tmp_path: Path, said: dict[str, Any], column: dict[str, Any], **asked: Any) -> Any:
    path = tmp_path / "mapper.yaml"
    path.write_text(yaml.safe_dump(said, sort_keys=False), encoding="utf-8")
    sets = instead([*SIZES, f"accelerators={np.prod(column['degrees'])}"], column.get("sets", []))
    return api.search("dgx_h100", "llama", str(path), sets=sets, profile=column["profile"], **asked).result


COLUMNS = {
    "one group of eight": {"degrees": (8, 1, 1), "micro_batch": 2, "profile": "megatron_core"},
    "data beside it, all sharded": {"degrees": (4, 4, 1), "micro_batch": 2, "zero": 2, "profile": "megatron_core"},
    "over two nodes": {"degrees": (16, 1, 1), "micro_batch": 4, "profile": "megatron_core"},
    "a pipeline": {"degrees": (4, 2, 2), "micro_batch": 2, "zero": 1, "profile": "megatron_core"},
    "chunks": {
        "degrees": (2, 1, 2),
        "micro_batch": 1,
        "profile": "nemo_2025",
        "schedule": {"schedule": ["interleaved"], "interleave": [2]},
    },
    "split backward passes": {"degrees": (4, 1, 2), "micro_batch": 2, "profile": "serial", "schedule": {"schedule": ["zb_h1"]}},
    "made again": {"degrees": (8, 2, 1), "micro_batch": 4, "recompute": "full", "zero": 2, "profile": "deepspeed_zero3"},
    "scores made again": {"degrees": (8, 2, 1), "micro_batch": 4, "recompute": "selective", "zero": 2, "profile": "ideal"},
    "a head wider than a layer": {
        "degrees": (4, 4, 1),
        "micro_batch": 2,
        "recompute": "full",
        "zero": 2,
        "profile": "deepspeed_zero3",
        "sets": ["v=131072"],
    },
    "little memory": {
        "degrees": (8, 2, 1),
        "micro_batch": 8,
        "zero": 2,
        "profile": "megatron_core",
        "sets": ["node.gpu.memory.capacity=8 GB"],
    },
}

FREE = {"layouts": {"found": {"split": {"tp": "free"}}}}
KNOWN: dict[tuple[str, str], tuple[Any, list[Column]]] = {}


def free(tmp_path: Path, name: str, minimize: str) -> tuple[Any, list[Column]]:
    """(the answer of a search with free layouts on one column, its columns: one a schedule). Remembered."""
    if (name, minimize) not in KNOWN:
        found: list[LeastOperations] = []
        closed = LeastOperations.closed

        def seen(self: LeastOperations, goal: Any, enough: float) -> Any:
            found.append(self)
            return closed(self, goal, enough)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("rackmodel.mapper.layouts.descent.ROUNDS", 0)  # what is found near the best moves no bound
            patch.setattr(LeastOperations, "closed", seen)
            answer = search(tmp_path, mapper(COLUMNS[name], **FREE), COLUMNS[name], minimize=minimize)
        steps, _, known = found[0]._known()
        each = sorted({(steps._row(*one), shape) for one in known for shape in steps._shapes(*one)}, key=repr)
        cases, places = steps._cases.of(each)
        columns = [steps._column_of(case, int(n), shape) for case in cases for n, (_, shape) in zip(places, each, strict=True)]
        KNOWN[name, minimize] = answer, columns
    return KNOWN[name, minimize]


def drawn(rng: random.Random, style: tuple[str, ...]) -> dict[str, str]:
    """Operation → what it splits over the free axis."""
    found = {}
    for op, legal in CHOICES.items():
        wanted = [index for index in style if index in legal]
        found[op] = wanted[0] if wanted and rng.random() < 0.9 else rng.choice([*legal, "none"])
    return found


def drawn_step(tmp_path: Path, column: dict[str, Any], rng: random.Random, style: str, minimize: str) -> tuple[Any, str] | None:
    """(the best step of a drawn layout, how it is saved); None where none can run: over memory, or a degree that does not divide."""
    saved = rng.choice(["shard", "gathered"])
    said = mapper(column, choose={op: {"tp": split} for op, split in drawn(rng, STYLES[style]).items()}, save=saved)
    said["split"]["tp"] = ["v"]
    try:
        return search(tmp_path, said, column, minimize=minimize), saved
    except (InfeasibleError, InputError):
        return None


def node_of(branches: Branches, choices: dict[str, str | None], saved: str) -> Left | None:
    """The node of one layout; None where the tables do not have it."""
    left = {}
    strategies = {op: own for tables in branches.column.sections for op, own in tables.strategies.items()}
    for name, values in branches.values.items():
        if name.startswith(SAVED):
            here = values == int(saved == "gathered")
        else:
            here = np.array([strategies[name][value][1] == choices[name] for value in values])
        if not here.any():
            return None
        left[name] = here[:, None]
    return left


def least_seconds(columns: list[Column], choices: dict[str, str | None], saved: str, capacity: float | None = None) -> list[float]:
    """What branch and bound says of one layout in each column whose tables have it. capacity: bytes, None = the column's."""
    found = []
    for one in columns if capacity is None else [replace(one, capacity=capacity) for one in columns]:
        branches = Branches.of(one)
        left = node_of(branches, choices, saved) if branches is not None else None
        if branches is not None and left is not None:
            found.append(float(branches.bound(left, NOTHING, FAR).seconds[0]))
    return found
