"""Weight streaming as a loop nest: activations at home in 850 x 1000 cores, weights through the edge, hops counted by hand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from rackmodel import api
from rackmodel.cli.written import write_mapping
from rackmodel.errors import InfeasibleError, InputError, RackmodelError
from rackmodel.nests.mapping import print_nest
from tests import samples

PAPER = "inside.rules={'*': {spatial: {wafer: {x: [k], y: [m]}}}}"  # gemm: A[m,k] activations, B[k,n] weights
CORE_MACS_PER_S = 8.8235e9 / 2
EDGE_BYTES_PER_S = 150e9


pytestmark = pytest.mark.usefixtures("nothing_remembered")


def gemm(m: int, k: int, n: int, *sets: str, mapper: str = "wafer_nest_free", goal: str = "latency") -> SimpleNamespace:
    """The result, and its one nest's mapping, cost and certificate."""
    found = api.search("wse2_mesh", "gemm", mapper, sets=[f"m={m}", f"k={k}", f"n={n}", *sets], minimize=goal).result
    (nest,) = found.nests.values()
    return SimpleNamespace(result=found, nest=nest, cost=nest.cost, x=nest.mapping.levels[0].x, y=nest.mapping.levels[0].y)


def test_the_paper_s_layout_multicasts_weights_down_columns_and_adds_along_rows() -> None:
    """128 samples of 2048 tokens, 12288 x 49152: 820 cores of 15 features by 997 of 263 tokens; F H Y and F B S (X - 1) hops."""
    tokens, h, f = 128 * 2048, 12288, 49152
    found = gemm(tokens, h, f, PAPER)
    assert (found.x, found.y) == ({"k": 820}, {"m": 997})
    assert found.cost.hop_bits["wafer"] == {"A": 0, "B": 16 * f * h * 997, "C": 16 * f * tokens * (820 - 1)}
    assert found.cost.hop_j["wafer"] == pytest.approx(0.019e-12 * 16 * f * (h * 997 + tokens * 819))
    assert {a.level for a in found.cost.accesses if a.tensor in "AC"} == {"core"}
    edge = {a.tensor: (a.read_bits, a.write_bits) for a in found.cost.accesses if a.level == "wafer"}
    assert edge == {"B": (16 * f * h, 0)}, "every weight enters once"


def test_the_core_holds_its_share_of_both_activations_and_works_on_its_own_tokens_and_features() -> None:
    """A: 15 x 263 words of its own. C: 49152 x 263 words in 820 cores, ceil 15765, beside one partial sum. B: 15 weights."""
    found = gemm(128 * 2048, 12288, 49152, PAPER)
    assert found.cost.used_bits["core"] == 16 * (15 * 263 + (15765 + 1) + 15)
    seconds = 15 * 263 * 49152 / CORE_MACS_PER_S
    times = found.cost.times_s
    assert times["core compute"] == pytest.approx(seconds, rel=1e-12)
    used = 128 * 2048 * 12288 / (15 * 263 * 850_000)
    assert used == pytest.approx(0.96, abs=0.001), "what ragged edges leave of the wafer"
    reads = 2 * 3 * 15 * 263 * 49152  # bytes: three operands a MAC; a sum's first read is free, its last sends it on
    assert times["core read"] == pytest.approx(reads / 15.69e9, rel=1e-12)
    weights, sums = 15 * 49152, 263 * 49152 * 819 / 820
    assert times["wafer link"] == pytest.approx(2 * (weights + sums) / 4.4e9, rel=1e-12)


def test_cores_that_read_fast_enough_run_at_96_percent() -> None:
    found = gemm(128 * 2048, 12288, 49152, PAPER, "core.memory.bandwidth='30 GB/s'", "core.memory.write_bandwidth='30 GB/s'")
    assert found.cost.utilisation == pytest.approx(0.9606, abs=5e-5)
    assert found.result.latency_s == pytest.approx(15 * 263 * 49152 / CORE_MACS_PER_S)


def test_a_single_sequence_waits_for_the_edge() -> None:
    """2048 x 4096 x 14336: weights of 117 MB in 0.78 ms, where the whole wafer would compute for 0.032 ms: 4.1 %."""
    edge = 2 * 4096 * 14336 / EDGE_BYTES_PER_S
    share = 2048 * 4096 * 14336 / (850_000 * CORE_MACS_PER_S) / edge
    assert share == pytest.approx(0.041, abs=0.0001)
    for sets in ((PAPER,), ()):
        found = gemm(2048, 4096, 14336, *sets)
        assert found.cost.latency_s == found.cost.times_s["wafer read"] == pytest.approx(edge, rel=1e-12)
        assert found.cost.utilisation == pytest.approx(share, rel=1e-9)
        assert found.nest.certificate["gap"] == 0
    slower = gemm(2048, 4096, 14336, PAPER, "wafer.memory.bandwidth='100 GB/s'")
    assert slower.cost.utilisation == pytest.approx(0.027, abs=0.0005), "100 of 150 GB/s at the edge: two thirds of 4.1 %"


def test_everything_from_the_edge_costs_the_edge_every_operand() -> None:
    sets = ("inside.factors=perfect",)
    home, streamed = gemm(2048, 1024, 2048, *sets, goal="edp"), gemm(2048, 1024, 2048, *sets, "inside.home=[]", goal="edp")
    least = 2 * (2048 * 1024 + 1024 * 2048) / EDGE_BYTES_PER_S
    assert streamed.cost.times_s["wafer read"] >= least * (1 - 1e-12)
    assert home.cost.times_s["wafer read"] == pytest.approx(least / 2)
    assert home.cost.edp < streamed.cost.edp


@pytest.mark.parametrize("factors", ["perfect", "ceil"])
def test_a_free_layout_is_at_least_as_good_as_the_paper_s(factors: str) -> None:
    for goal, figure in (("latency", "latency_s"), ("edp", "edp")):
        costs = [gemm(2048, 1024, 2048, *sets, f"inside.factors={factors}", goal=goal).cost for sets in ((), (PAPER,))]
        static = [18.8e3 * cost.latency_s**2 if goal == "edp" else 0.0 for cost in costs]
        free, paper = (getattr(cost, figure) + more for cost, more in zip(costs, static, strict=True))
        assert free <= paper * (1 + 1e-12)


def test_a_layer_that_does_not_fit_says_what_a_core_would_need() -> None:
    """Four times the batch: 13 + 51 GB of activations in 41 GB of cores."""
    with pytest.raises(InfeasibleError, match="share of what is at home") as caught:
        gemm(4 * 128 * 2048, 12288, 49152, PAPER)
    assert caught.value.need > 2 * 4 * 128 * 2048 * (12288 + 49152) * 8 / 850_000
    assert "or less at home" in str(caught.value)


def test_weight_gradients_leave_through_the_edge_and_activations_stay(tmp_path: Path) -> None:
    sets = ["batch=1", "seq=256", "d=256", "f=512"]
    found = api.search("wse2_mesh", "ffn", "wafer_nest", sets=sets).result
    crossing = {(row.tensor, row.action) for row in found.ledger if row.level == "wafer" and row.component == "memory" and row.amount}
    assert crossing == {("W1", "read"), ("W2", "read"), ("dW1", "write"), ("dW2", "write")}
    assert sum(row.exposed_seconds for row in found.ledger) == pytest.approx(found.latency_s)
    for nest in found.nests.values():
        features = set(nest.mapping.levels[0].x) | {"d", "f"}
        assert (features, set(nest.mapping.levels[0].y) | {"m"}) == ({"d", "f"}, {"m"})
    path = write_mapping(found, tmp_path / "mapping.yaml")
    priced = api.evaluate("wse2_mesh", "ffn", str(path), sets=sets)
    assert priced.to_dict()["ledger"] == found.to_dict()["ledger"]
    said: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))["nests"]
    assert {tuple(nest["home"]) for nest in said.values()} >= {("H", "X"), ("H", "Y")}


def test_a_link_that_binds_is_exposed_in_the_ledger() -> None:
    found = gemm(2048, 1024, 2048, PAPER, "wafer.fan.link_bandwidth='10 MB/s'").result
    hops = [row for row in found.ledger if row.action == "hop"]
    assert sum(row.exposed_seconds for row in hops) == pytest.approx(found.latency_s)
    assert {row.tensor for row in hops} == {"B", "C"}, "A is used where it rests"


@samples.audited
def test_attention_of_a_block_runs_with_its_batch_over_both_directions() -> None:
    sets = ["b=4", "s=256", "d=512", "g=2", "q=2", "e=64", "f=1024", "phases=[forward]"]
    found = api.search("wse2_mesh", "llama3_8b_block", "wafer_nest_batch", sets=sets).result
    assert all(set(nest.mapping.levels[0].y) <= {"b", "s"} for nest in found.nests.values())
    scores = found.nests["A = QR * KR"]
    assert scores.home == ("A", "KR", "QR")
    assert "wafer" not in {a.level for a in scores.cost.accesses}, "attention needs no weight: nothing crosses the edge"


def test_a_nest_prints_where_tensors_are_at_home() -> None:
    nest = gemm(64, 64, 64).nest
    text = print_nest(nest.mapping, nest.problem.sizes, home=nest.home)
    assert "[core] is home of A" in text
    assert "[wafer] holds B" in text
    assert "[wafer] holds A" not in text


@pytest.mark.parametrize(
    ("arch", "sets", "fact"),
    [
        ("wse2_mesh", ["inside.home=[actvation]"], "no tensor 'actvation'"),
        ("wse2_mesh", ["inside.solver=cpsat", "inside.factors=perfect"], "solver auto or dp"),
        ("wse2_mesh", ["inside.rules={'*': {spatial: {wafer: {x: [h]}}}}"], "rank 'h'"),
        ("edge3", [], "one memory"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_change(arch: str, sets: list[str], fact: str) -> None:
    with pytest.raises((InputError, RackmodelError), match=fact):
        api.search(arch, "gemm", "wafer_nest_free", sets=["m=8", "k=8", "n=8", *sets])


def test_fused_pairs_and_homes_are_not_searched_together() -> None:
    with pytest.raises(InputError, match="drop one of the two"):
        api.search("wse2_mesh", "ffn", "wafer_nest_free", sets=["inside.fuse=[{einsums: [FC1, FC2]}]"])
