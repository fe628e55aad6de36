"""Bounds of models whose layouts are free: no plan of a column is below them, and they know memory, conversions and pipelines; what branch
and bound over a layer's choices says of one layout no step of that layout is below, nor of several any of them."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import numpy as np
import pytest
import yaml

from rackmodel import api
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.mapper.layouts.branches import FAR, HERE, Branches
from rackmodel.mapper.layouts.closing import NOTHING, Closing
from rackmodel.mapper.layouts.layer_prices import Weights
from rackmodel.mapper.layouts.least_steps import LeastSteps
from rackmodel.mapper.layouts.min_sum import Table, least_choice, least_sum
from rackmodel.watch import UNWATCHED
from tests import samples
from tests.free_columns import CHOICES, COLUMNS, FREE, STYLES, drawn, drawn_step, free, least_seconds, mapper, search

GOALS = ("latency", "energy")
FIRST = [("scores made again", "latency"), ("a pipeline", "energy")]
EVERY = [*FIRST, *(case for case in itertools.product(COLUMNS, GOALS) if case not in FIRST)]


@pytest.mark.parametrize(("name", "minimize"), EVERY[: samples.cases(len(FIRST), len(EVERY))])
def test_no_plan_of_a_column_is_below_its_bound_nor_below_what_is_said_of_its_layout(name: str, minimize: str, tmp_path: Path) -> None:
    """The bound of all layouts, by search; and that of one alone, by branch and bound, of which nearly all is known."""
    column, rng = COLUMNS[name], random.Random(f"{name} {minimize}")
    answer, columns = free(tmp_path, name, minimize)
    certificate = answer.certificate
    assert columns
    assert 0.0 < certificate.bound <= certificate.objective
    compared, nearest = 0, 0.0
    for style, _ in itertools.product(STYLES, range(samples.cases(1, 2))):
        if (found := drawn_step(tmp_path, column, rng, style, minimize)) is None:
            continue
        result, saved = found
        assert {"latency": result.latency_s, "energy": result.energy_j}[minimize] >= certificate.bound * (1 - 1e-12)
        bounds = least_seconds(columns, {op: each["tp"] for op, each in result.mapping.ops.items()}, saved)
        if bounds:
            compared += 1
            nearest = max(nearest, min(bounds) / result.latency_s)
            assert min(bounds) <= result.latency_s * (1 + 1e-12), (result.mapping.ops, saved)
    assert compared
    assert nearest > 0.7


@pytest.mark.parametrize("name", ["data beside it, all sharded", "little memory", "one group of eight"][: samples.cases(1, 3)])
@samples.audited
def test_the_least_node_is_the_least_of_all_layouts(name: str, tmp_path: Path) -> None:
    """Against every assignment of what is left when all but a few variables are fixed as in the best."""
    rng = random.Random(f"least {name}")
    answer, columns = free(tmp_path, name, "latency")
    closed = Closing(columns, answer.latency_s * 1.05, UNWATCHED).run()
    assert closed.leaves
    assert closed.seconds <= closed.leaves[0].seconds
    assert closed.seconds <= answer.certificate.objective
    branches = Branches.of(columns[closed.leaves[0].number])
    assert branches is not None
    for _ in range(100):  # random layouts and random nodes
        left = branches.all()
        for variable, count in branches.counts.items():
            keep = rng.sample(range(count), rng.choice([1, 1, 1, count]))
            left[variable][:, 0] = np.isin(np.arange(count), keep)
        seconds = float(branches.bound(left, NOTHING, FAR).seconds[0])
        if all(own.sum() == 1 for own in left.values()):
            assert seconds >= closed.seconds * (1 - 1e-9)
        else:
            inner = {v: own & (np.arange(len(own)) == rng.choice(np.flatnonzero(own[:, 0])))[:, None] for v, own in left.items()}
            assert float(branches.bound(inner, NOTHING, FAR).seconds[0]) >= seconds * (1 - 1e-9)


@pytest.mark.parametrize("name", samples.some(["scores made again", "made again", "a head wider than a layer"], 2))
def test_a_node_of_one_layout_knows_what_it_holds(name: str, tmp_path: Path) -> None:
    """Workspace and what is made again beside it among that: 405B was bounded at 5.543 s by a layout that did not fit by 0.5 GB. So is the
    layer that is gathered beside a wider head."""
    column, rng = COLUMNS[name], random.Random(name)
    _, columns = free(tmp_path, name, "latency")
    asked = 0
    for style in STYLES:
        said = mapper(column, choose={op: {"tp": split} for op, split in drawn(rng, STYLES[style]).items()})
        said["split"]["tp"] = ["v"]
        try:
            result = search(tmp_path, said, column)
        except (InfeasibleError, InputError):
            continue
        choices, held = {op: each["tp"] for op, each in result.mapping.ops.items()}, result.memory_bytes_per_accelerator
        roomy, tight = (least_seconds(columns, choices, "shard", held * share) for share in (1 + 1e-9, 0.99))
        asked += len(roomy)
        assert np.isfinite(roomy).all()
        assert np.isinf(tight).all()
    assert asked


def test_values_that_are_dominated_cost_nothing(tmp_path: Path) -> None:
    _, columns = free(tmp_path, "data beside it, all sharded", "latency")
    branches = Branches.of(columns[0])
    assert branches is not None
    kept, rng = branches.undominated(), np.random.default_rng(1)
    fewer = branches.only(kept)
    assert sum(fewer.counts.values()) < sum(branches.counts.values())
    for memory, lane, host in ((0.0, 0.0, 0.0), (0.3, 0.1, 0.0), (2.0, 0.5, 0.0), (0.3, 0.1, 0.5)):
        prices = Weights(memory=np.array([memory]), lane=np.array([lane]), host=np.array([host]))
        whole, some = (one.bound(one.all(), prices, HERE).seconds[0] for one in (branches, fewer))
        assert some == pytest.approx(whole, rel=1e-12)
        for _ in range(20):  # whatever the others are
            at = {variable: np.arange(count)[:, None] == rng.integers(count) for variable, count in branches.counts.items()}
            variable = rng.choice([name for name, own in kept.items() if not own.all()])
            each = ({**at, variable: own} for own in (np.ones_like(kept[variable]), kept[variable]))
            whole, some = (branches.bound(left, prices, HERE).seconds[0] for left in each)
            assert some == pytest.approx(whole, rel=1e-12)


def test_a_bound_knows_conversions_memory_and_lanes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations alone bound every step too, further below."""
    monkeypatch.setattr("rackmodel.mapper.layouts.descent.ROUNDS", 0)  # what is found near the best moves no bound
    column = COLUMNS["data beside it, all sharded"]
    known = free(tmp_path, "data beside it, all sharded", "latency")[0].certificate
    monkeypatch.setattr(LeastSteps, "applies", False)
    alone = search(tmp_path, mapper(column, **FREE), column).certificate
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


@pytest.mark.parametrize("name", list(BESIDE)[: samples.cases(1, 2)])
def test_free_layouts_are_no_slower_than_named_ones_nor_is_their_bound(name: str, tmp_path: Path) -> None:
    """The best of a layer alone move three times as much where all is sharded over a slow network, and split the batch where that leaves
    one micro-batch instead of two."""
    column = BESIDE[name]
    found = search(tmp_path, mapper(column, **FREE), column)
    for style in ("heads", "length", "both"):
        choose = {op: {"tp": next((index for index in STYLES[style] if index in legal), "none")} for op, legal in CHOICES.items()}
        said = mapper(column, choose=choose)
        said["split"]["tp"] = ["v"]
        named = search(tmp_path, said, column)
        assert found.latency_s <= named.latency_s * (1 + 1e-12), style
        assert found.certificate.bound <= named.latency_s * (1 + 1e-12), style


@samples.audited
def test_layouts_that_hold_least_are_found_where_the_best_of_a_layer_alone_do_not_fit(tmp_path: Path) -> None:
    column = {"degrees": (4, 4, 1), "micro_batch": 2, "zero": 2, "recompute": "selective", "profile": "serial"}
    tight = column | {"sets": ["node.gpu.memory.capacity=5 GB"]}
    assert search(tmp_path, mapper(tight, **FREE), tight).memory_bytes_per_accelerator < 5e9


@samples.audited
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


@samples.audited
def test_a_pipeline_that_layers_do_not_divide_bounds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three layers on two stages are no step, however short it would be."""
    monkeypatch.setattr("rackmodel.mapper.layouts.descent.ROUNDS", 0)  # what is found near the best moves no bound
    column = {"degrees": (2, 2, 1), "micro_batch": 1, "profile": "serial", "sets": ["layers=3"]}
    said = mapper(column, **FREE)
    alone = search(tmp_path, said, column).certificate
    said["axes"] |= {"pp": {"degree": [1, 2], "stages": "layers"}, "dp": {"degree": "rest"}}
    both = search(tmp_path, said, column).certificate
    assert both.infeasible["layers do not divide"] > 0
    assert (both.bound, both.objective) == (alone.bound, alone.objective)


@samples.audited
def test_a_layout_that_a_bound_is_of_is_found(tmp_path: Path) -> None:
    """Better than every named one, and near the bound, which one layer alone would leave several per cent below."""
    found = []
    for name in ("megatron", "megatron_free"):
        said = {"mapper": "one", "extends": name, "axes": {"pp": {"degree": 1, "stages": "layers"}, "tp": {"degree": 8}}}
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(said, sort_keys=False), encoding="utf-8")
        sets = ["accelerators=64", "layers=16", "b=64"]
        found.append(api.search("dgx_h100", "llama3_405b", str(path), sets=sets, profile="megatron_core").result)
    named, free = found
    assert free.latency_s < named.latency_s
    assert free.certificate.gap < 0.02


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


@pytest.mark.parametrize("cells", [4e6, 40.0])
def test_prices_beside_one_another_are_told_as_each_alone(cells: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a joined table of all of them would grow too large."""
    monkeypatch.setattr("rackmodel.mapper.layouts.min_sum.CELLS", cells)
    rng = np.random.default_rng(5)
    for _ in range(40):
        counts = {name: int(rng.integers(1, 5)) for name in "abcd"}
        scopes = [tuple(rng.permutation(list(counts))[: int(rng.integers(1, 4))].tolist()) for _ in range(5)]
        shapes = [tuple(counts[name] for name in scope) for scope in scopes]
        each = [[Table(scope, rng.random((*shape, 2))) for scope, shape in zip(scopes, shapes, strict=True)] for _ in range(3)]
        beside = [Table(own[0].variables, np.concatenate([t.figures for t in own], axis=-1)) for own in zip(*each, strict=True)]
        assert np.array_equal(least_sum(beside, counts, 6, copies=3), np.concatenate([least_sum(own, counts, 2) for own in each]))


@pytest.mark.parametrize(
    "home", [{"axes": ["dp"], "state": "shard"}, {"axes": ["dp"], "state": "shard", "grad": "shard", "param": "shard"}]
)
def test_free_layouts_beside_an_axis_that_holds_the_same_shards_are_searched(home: dict[str, object], tmp_path: Path) -> None:
    """A context axis beside the data-parallel one holds replicas of what that shards: what is bounded is the columns on which it splits
    nothing. (The search ended in a traceback.)"""
    said = {"mapper": "free", "axes": {"pp": {"degree": 1, "stages": "layers"}, "dp": {"degree": "free"}, "cp": {"degree": "free"}}}
    said["axes"]["tp"] = {"degree": 2, "place": "inner"}
    said |= {
        "split": {"dp": ["b"], "cp": ["s"]},
        "layouts": {"found": {"split": {"tp": "free"}}},
        "homes": {"weights": home},
        "micro_batch": 1,
    }
    (tmp_path / "free.yaml").write_text(yaml.safe_dump(said, sort_keys=False))
    sets = ["accelerators=4", "b=4", "s=64", "d=128", "g=2", "q=2", "e=32", "f=256", "v=512", "layers=2"]
    result = api.search("rack_paper_h100", "llama", str(tmp_path / "free.yaml"), sets=sets).result
    assert 0 < result.certificate.bound <= result.latency_s
