"""Layouts of a layer are looked for where a column may still beat the named layouts, and the answer is that of looking everywhere."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackmodel import api
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.inputs import read_inputs
from rackmodel.mapper.layouts.descent import Descent
from rackmodel.mapper.layouts.worth import Worth, _nearest
from tests import samples
from tests.audit.members import fixed_layers

SIZES = ["layers=8", "b=64", "d=4096", "g=8", "q=4", "e=128", "f=14336", "s=2048", "t=2048", "v=32768"]
FEW: dict[str, Any] = {"homes": {"weights": [{"axes": ["dp"], "state": "shard"}]}}
CASES: dict[str, tuple[int, dict[str, Any], list[str]]] = {
    "one node": (8, {"micro_batch": 1, "recompute": "none", **FEW}, []),
    "little memory": (4, {"micro_batch": 2, **FEW}, ["node.gpu.memory.capacity=16 GB"]),
}


def ask(tmp_path: Path, name: str, minimize: str) -> Any:
    accelerators, more, sets = CASES[name]
    path = tmp_path / "mapper.yaml"
    path.write_text(yaml.safe_dump({"mapper": "free", "extends": "megatron_free", **more}, sort_keys=False), encoding="utf-8")
    said = [*SIZES, f"accelerators={accelerators}", *sets]
    return api.search("dgx_h100", "llama", str(path), sets=said, profile="megatron_core", minimize=minimize).result


@pytest.mark.parametrize(("name", "minimize"), [("little memory", "energy"), ("one node", "latency")])
@samples.audited
def test_what_is_left_out_changes_neither_answer_nor_bound(
    name: str, minimize: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    solving = Worth.solving

    def counted(self: Worth, points: Any, *said: Any) -> Any:
        found = solving(self, points, *said)
        asked.append((len(found), len(points)))
        return found

    monkeypatch.setattr(Worth, "solving", counted)
    some = ask(tmp_path, name, minimize)
    monkeypatch.setattr(Worth, "solving", lambda self, points, *said: points)
    every = ask(tmp_path, name, minimize)
    assert all(few < all_ for few, all_ in asked)  # in both cases: bounds hold the way out of a pipeline too
    assert some.certificate.bound == every.certificate.bound
    assert (some.latency_s, some.energy_j) == (every.latency_s, every.energy_j)


GATHERED = {"axes": ["dp"], "state": "shard", "grad": "shard", "param": "shard"}
SHARDED = {
    "mapper": "sharded",
    "axes": {"pp": {"degree": 1, "stages": "layers"}, "dp": {"degree": 2}, "tp": {"degree": 4, "place": "inner"}},
    "split": {"dp": ["b"]},
    "layouts": {"found": {"split": {"tp": "free"}}},
    "homes": {"weights": [GATHERED]},
    "micro_batch": 1,
}


@samples.audited
def test_a_descent_finds_what_no_layer_alone_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All weights sharded, a sample a micro-batch: they are gathered for each, and an operation that splits the batch makes those four
    times fewer. No layer alone is faster by it. Random layouts, of which many split it somewhere, are beaten."""
    path = tmp_path / "mapper.yaml"
    path.write_text(yaml.safe_dump(SHARDED, sort_keys=False), encoding="utf-8")
    sets = ["layers=4", "b=16", "d=1024", "s=512", "t=512", "v=8192", "accelerators=8", "node.network.bandwidth=100 GB/s"]
    found = api.search("dgx_h100", "llama", str(path), sets=sets, profile="ideal").result
    with monkeypatch.context() as without:
        without.setattr(Descent, "improved", lambda *_: None)
        before = api.search("dgx_h100", "llama", str(path), sets=sets, profile="ideal").result
    assert found.certificate.bound == before.certificate.bound <= found.latency_s
    assert found.latency_s < before.latency_s / 3
    assert found.latency_s < 1.2 * found.certificate.bound
    inputs, rng = read_inputs("dgx_h100", "llama", mapper=str(path), sets=sets), random.Random(5)
    for _ in range(6):
        drawn = fixed_layers(inputs.mapper, inputs.workload, rng)
        with suppress(InfeasibleError, InputError):
            one = api.search_mapper(inputs.architecture, inputs.workload, drawn, profile="ideal").result
            assert found.latency_s <= one.latency_s


def test_choices_that_cannot_be_are_left_out_of_a_descent(tmp_path: Path) -> None:
    """Key heads of 2 over 4 ranks are refused, also beside others: the answer of a search of the named layouts is never better."""
    path = tmp_path / "mapper.yaml"
    named = {"named": {"split": {"tp": ["f", "v", "none"]}}}
    sets = ["layers=2", "b=8", "d=512", "g=2", "q=8", "s=256", "t=256", "v=4096", "accelerators=8"]
    results = []
    for layouts in (named, {**named, **SHARDED["layouts"]}):
        path.write_text(yaml.safe_dump({**SHARDED, "layouts": layouts}, sort_keys=False), encoding="utf-8")
        results.append(api.search("dgx_h100", "llama", str(path), sets=sets, profile="serial", minimize="energy").result)
    assert results[1].certificate.bound <= results[1].energy_j <= results[0].energy_j


def test_a_column_takes_its_layouts_from_the_nearest_smaller_point() -> None:
    points = [(degree, batch) for degree in (2, 4, 64) for batch in (1, 2, 4)]
    assert _nearest(points, 4, 2) == (4, 2)
    assert _nearest(points, 256, 16) == (64, 4)
    assert _nearest(points, 8, 3) == (4, 2)
