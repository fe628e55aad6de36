"""Bounds of models whose layouts are free: no plan of a column is below them, and they know memory, conversions and pipelines."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from rackmodel import api
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.mapper.layouts.least_steps import LeastSteps
from rackmodel.mapper.layouts.min_sum import Table, least_choice, least_sum
from tests import samples

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
    sets = [*SIZES, f"accelerators={np.prod(column['degrees'])}", *column.get("sets", [])]
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
    "little memory": {
        "degrees": (8, 2, 1),
        "micro_batch": 8,
        "zero": 2,
        "profile": "megatron_core",
        "sets": ["node.gpu.memory.capacity=8 GB"],
    },
}


GOALS = ("latency", "energy")
BY_TURNS = [(name, GOALS[(n + turn) % 2]) for turn in (0, 1) for n, name in enumerate(COLUMNS)]


@pytest.mark.parametrize(("name", "minimize"), BY_TURNS[: samples.cases(len(COLUMNS), len(BY_TURNS))])
def test_no_plan_of_a_column_is_below_its_bound(name: str, minimize: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rackmodel.mapper.layouts.descent.ROUNDS", 0)  # what is found near the best moves no bound
    column, rng = COLUMNS[name], random.Random(f"{name} {minimize}")
    free = search(tmp_path, mapper(column, layouts={"found": {"split": {"tp": "free"}}}), column, minimize=minimize)
    certificate, priced = free.certificate, 0
    assert 0.0 < certificate.bound <= certificate.objective
    for style, _ in itertools.product(STYLES, range(2)):
        first = STYLES[style]
        choose = {}
        for op, legal in CHOICES.items():
            wanted = [index for index in first if index in legal]
            choose[op] = {"tp": wanted[0] if wanted and rng.random() < 0.9 else rng.choice([*legal, "none"])}
        said = mapper(column, choose=choose, save=rng.choice(["shard", "gathered"]))
        said["split"]["tp"] = ["v"]
        try:
            result = search(tmp_path, said, column, minimize=minimize)
        except (InfeasibleError, InputError):
            continue  # over memory, or a degree that does not divide
        priced += 1
        assert {"latency": result.latency_s, "energy": result.energy_j}[minimize] >= certificate.bound * (1 - 1e-12)
    assert priced


def test_a_bound_knows_conversions_memory_and_lanes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations alone bound every step too, further below."""
    monkeypatch.setattr("rackmodel.mapper.layouts.descent.ROUNDS", 0)  # what is found near the best moves no bound
    column = COLUMNS["data beside it, all sharded"]
    said = mapper(column, layouts={"found": {"split": {"tp": "free"}}})
    known = search(tmp_path, said, column).certificate
    monkeypatch.setattr(LeastSteps, "applies", False)
    alone = search(tmp_path, said, column).certificate
    assert known.objective <= alone.objective  # layouts that bounds are of are priced, too
    assert alone.bound < known.bound


BESIDE = {
    "weights over a slow network": {
        "degrees": (4, 4, 2),
        "micro_batch": 1,
        "zero": 2,
        "profile": "megatron_core",
        "sets": ["node.network.bandwidth=5 GB/s"],
    },
    "micro-batches of two samples": {"degrees": (2, 4, 2), "micro_batch": 2, "profile": "megatron_core"},
}


@pytest.mark.parametrize("name", BESIDE)
def test_free_layouts_are_no_slower_than_named_ones_nor_is_their_bound(name: str, tmp_path: Path) -> None:
    """The best of a layer alone move three times as much where all is sharded over a slow network, and split the batch where that leaves
    one micro-batch instead of two."""
    column = BESIDE[name]
    found = search(tmp_path, mapper(column, layouts={"found": {"split": {"tp": "free"}}}), column)
    for style in ("heads", "length", "both"):
        choose = {op: {"tp": next((index for index in STYLES[style] if index in legal), "none")} for op, legal in CHOICES.items()}
        said = mapper(column, choose=choose)
        said["split"]["tp"] = ["v"]
        named = search(tmp_path, said, column)
        assert found.latency_s <= named.latency_s * (1 + 1e-12), style
        assert found.certificate.bound <= named.latency_s * (1 + 1e-12), style


def test_layouts_that_hold_least_are_found_where_the_best_of_a_layer_alone_do_not_fit(tmp_path: Path) -> None:
    column = {"degrees": (4, 4, 1), "micro_batch": 2, "zero": 2, "recompute": "selective", "profile": "serial"}
    tight = column | {"sets": ["node.gpu.memory.capacity=5 GB"]}
    assert search(tmp_path, mapper(tight, layouts={"found": {"split": {"tp": "free"}}}), tight).memory_bytes_per_accelerator < 5e9


def test_layouts_that_split_the_batch_are_tried_where_no_bound_of_steps_is_known(tmp_path: Path) -> None:
    """With experts on an axis of their own: what norms and sums leave whole may be split by the batch, for half as many micro-batches."""
    said = {
        "mapper": "experts",
        "axes": {"pp": {"degree": 1, "stages": "layers"}, "dp": {"degree": 2}, "ep": {"degree": 2}, "tp": {"degree": 2, "place": "inner"}},
        "split": {"dp": ["b"], "ep": ["x", "b"]},
        "micro_batch": 2,
        "overlap": "free",
    }
    named = said | {"split": {"dp": ["b"], "ep": ["x", "b"], "tp": ["v", "b"]}, "choose": {"norm": {"tp": "none"}}}
    path, seconds = tmp_path / "mapper.yaml", []
    sets = ["layers=2", "b=16", "d=1024", "s=512", "t=512", "v=8192", "accelerators=8"]
    for one in ({**said, "layouts": {"found": {"split": {"tp": "free"}}}}, named):
        path.write_text(yaml.safe_dump(one, sort_keys=False), encoding="utf-8")
        seconds.append(api.search("dgx_h100", "moe_qwen3", str(path), sets=sets, profile="nemo_2025").result.latency_s)
    assert seconds[0] <= seconds[1] * (1 + 1e-12)


def test_a_pipeline_that_layers_do_not_divide_bounds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three layers on two stages are no step, however short it would be."""
    monkeypatch.setattr("rackmodel.mapper.layouts.descent.ROUNDS", 0)  # what is found near the best moves no bound
    column = {"degrees": (2, 2, 1), "micro_batch": 1, "profile": "serial", "sets": ["layers=3"]}
    said = mapper(column, layouts={"found": {"split": {"tp": "free"}}})
    alone = search(tmp_path, said, column).certificate
    said["axes"] |= {"pp": {"degree": [1, 2], "stages": "layers"}, "dp": {"degree": "rest"}}
    both = search(tmp_path, said, column).certificate
    assert both.infeasible["layers do not divide"] > 0
    assert (both.bound, both.objective) == (alone.bound, alone.objective)


@pytest.mark.parametrize("seed", range(20))
def test_what_attains_the_least_sum_is_told(seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts = {name: int(rng.integers(1, 4)) for name in "abcdef"}
    scopes = [tuple(sorted(rng.choice(list(counts), size=int(rng.integers(1, 4)), replace=False).tolist())) for _ in range(6)]
    tables = [Table(scope, rng.integers(0, 9, (*(counts[name] for name in scope), 1)).astype(float)) for scope in scopes]
    found = least_choice(tables, counts)
    assert set(found) == set(counts)
    value = sum(float(table.figures[tuple(found[name] for name in table.variables)][0]) for table in tables)
    assert value == float(least_sum(tables, counts, 1)[0])


def test_the_least_sum_of_tables_is_that_of_all_assignments() -> None:
    rng = np.random.default_rng(7)
    for _ in range(40):
        names = [f"v{i}" for i in range(int(rng.integers(2, 6)))]
        counts = {name: int(rng.integers(1, 4)) for name in names}
        tables = []
        for _ in range(int(rng.integers(1, 7))):
            scope = tuple(rng.permutation(names)[: int(rng.integers(1, 4))].tolist())
            tables.append(Table(scope, rng.integers(0, 50, (*(counts[v] for v in scope), 3)).astype(float)))
        every = [
            sum(t.figures[tuple(dict(zip(names, point, strict=True))[v] for v in t.variables)] for t in tables)
            for point in itertools.product(*(range(counts[name]) for name in names))
        ]
        assert np.array_equal(least_sum(tables, counts, 3), np.min(every, axis=0))
