"""Parallelisms of whole models, by what they move and hold: two-dimensional tensor, context, expert, sharded data, pipelines."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from rackmodel import api
from rackmodel.cost.step.tasks.layer_cost import LayerCost
from rackmodel.inputs.read import read_inputs, read_profile
from rackmodel.mapper.mapspace import build_mapspace
from rackmodel.model.mapping import MapperSpec
from rackmodel.model.result import Result
from tests import samples
from tests.steps import priced


@pytest.mark.parametrize(("accelerators", "side"), [(4, 2), (16, 4), (64, 8)])
def test_two_dimensional_tensor_traffic_falls_with_the_square_root(accelerators: int, side: int) -> None:
    """2 (p−1)/p of H [m, f/p] and of Y [m, d/p]: 2 x 16 bit x m (f + d) (p−1) / p², p = √N."""
    sets = [f"accelerators={accelerators}", f"axes.tx.degree={side}", f"axes.ty.degree={side}", "rack.count=16"]
    result = api.search("rack_paper_h100", "ffn", "tensor_2d", sets=sets).result
    moved = math.fsum(row.amount for row in result.ledger.where(component="network", phase="forward"))
    m, d, f = 32768, 4096, 14336
    assert moved / accelerators == pytest.approx(2 * 2 * m * (f + d) * (side - 1) / side**2, rel=1e-12)


def _layer(mapper: str, workload: str = "llama3_8b", accelerators: int = 16, **changes: object) -> LayerCost:
    """The layer of a model in micro-batches of one sample, under the mapper's layout 'tensor', nothing recomputed, its first homes."""
    given = read_inputs("rack_paper_h100", workload, mapper=mapper, sets=(f"accelerators={accelerators}", "b=16", "layers=4"))
    told = MapperSpec.model_validate({**given.mapper.model_dump(by_alias=True, exclude_unset=True), **changes})
    (group,) = build_mapspace(told, given.workload, accelerators).groups
    plan = next(v.plan for v in group.variants if (v.layout, v.recompute, v.home) == ("tensor", "none", 0) and not v.offload)
    at = np.flatnonzero(group.columns.micro_batch == 1)[:1]
    assert group.columns.stages[at] == 1
    return priced(given.architecture, given.workload, plan, group.columns.pick(at), read_profile("ideal")).step.costs[1]


def test_context_parallelism_gathers_keys_and_values_alone() -> None:
    """Forward, a layer and micro-batch of one sample: K and V of [s, 8, 128] in 16 bit, (c−1)/c of each to every rank."""
    cost = _layer("parallel", axes={"pp": {"degree": 1, "stages": "layers"}, "dp": {"degree": 4}, "cp": {"degree": 4}, "tp": {"degree": 1}})
    moved = {
        item.task.tensor: math.fsum(float(row.amount[0]) for row in item.rows)
        for item in cost.items
        if item.rows and item.task.kind == "collective" and item.task.phase == "forward"  # over one accelerator: no rows
    }
    assert set(moved) == {"V", "KR"}
    assert moved["V"] == moved["KR"] == 16 * 8192 * 8 * 128 * 2 * 3 / 4


def test_experts_are_reached_by_four_all_to_alls_and_share_no_gradients() -> None:
    """Tokens go out and come back, forward and backward: k of x experts for each, (p−1)/p of them elsewhere."""
    cost = _layer(
        "parallel_moe",
        "moe_llama",
        8,
        axes={"pp": {"degree": 1, "stages": "layers"}, "dp": {"degree": 1}, "cp": {"degree": 1}, "tp": {"degree": 1}, "ep": {"degree": 8}},
    )
    calls = [item for item in cost.items if item.task.action == "all_to_all"]
    assert [item.task.phase for item in calls].count("forward") == 2
    # one sample a rank: 4,096 tokens x 2 copies x d = 4,096 in 16 bit on each of 8 ranks, 1/8 to each; a ring of 8 has 1 + 2 + 3 + 4
    # + 3 + 2 + 1 = 16 traversals to its 7 others
    each = 4096 * 2 * 4096 * 2 * 8 * 16 / 8
    assert [math.fsum(float(row.amount[0]) for row in item.rows) for item in calls[:2]] == [each, each]
    reduced = {item.task.tensor for item in cost.items if item.role == "tail" and item.rows}
    assert not reduced & {"WG", "WU", "WD"}
    assert {"WQ", "WK", "WV", "WO"} <= reduced


def _flops(result: Result) -> float:
    return math.fsum(row.amount for row in result.ledger if row.action == "mac" and row.phase != "recompute")


def test_every_parallelism_multiplies_the_same_amount() -> None:
    sets = ["accelerators=16", "b=32", "layers=4", "micro_batch=1", "recompute=none", "gpu.memory.enforce=false"]
    fixed = {"dp": "axes={pp: {degree: 1, stages: layers}, dp: {degree: 16}, cp: {degree: 1}, tp: {degree: 1}}"}
    fixed["tp"] = "axes={pp: {degree: 1, stages: layers}, dp: {degree: 2}, cp: {degree: 1}, tp: {degree: 8}}"
    fixed["cp"] = "axes={pp: {degree: 1, stages: layers}, dp: {degree: 2}, cp: {degree: 8}, tp: {degree: 1}}"
    fixed["pp"] = "axes={pp: {degree: 4, stages: layers}, dp: {degree: 4}, cp: {degree: 1}, tp: {degree: 1}}"
    flops = {
        name: _flops(api.search("rack_paper_h100", "llama3_8b", "parallel", sets=[*sets, axes]).result) for name, axes in fixed.items()
    }
    assert max(flops.values()) == pytest.approx(min(flops.values()), rel=1e-9)


def test_a_pipeline_of_models_beats_the_best_without_one_when_it_must() -> None:
    """A model that does not fit on the tensor ranks of a rack needs another axis; infeasible says what is missing."""
    from rackmodel.errors import InfeasibleError

    sets = [
        "accelerators=8",
        "b=8",
        "axes={pp: {degree: 1, stages: layers}, dp: {degree: 1}, tp: {degree: 8}}",
        "gpu.memory.capacity=40 GB",
    ]
    with pytest.raises(InfeasibleError, match="one gpu needs") as caught:
        api.search("rack_paper_h100", "gpt3_175b", "megatron", sets=sets)
    assert caught.value.need > caught.value.have == 40e9


@samples.audited
def test_fronts_hold_what_no_point_beats_and_limits_are_kept() -> None:
    sets = ["accelerators=8", "b=8", "layers=4", "schedule=[1f1b, interleaved]"]
    answer = api.search("rack_paper_h100", "gpt_22b", "megatron", sets=sets, front=["latency", "memory"])
    figures = [(r.latency_s, r.memory_bytes_per_accelerator) for r in answer.front]
    assert figures == sorted(figures)
    assert all(later[1] < earlier[1] for earlier, later in itertools.pairwise(figures))
    assert figures[0][0] == pytest.approx(answer.result.latency_s, rel=1e-9)
    least = api.search("rack_paper_h100", "gpt_22b", "megatron", sets=sets, minimize="memory").result
    assert figures[-1][1] == pytest.approx(least.memory_bytes_per_accelerator, rel=1e-9)
    watts = answer.result.energy_j / answer.result.latency_s
    capped = api.search("rack_paper_h100", "gpt_22b", "megatron", sets=sets, limits={"power": 0.8 * watts}).result
    assert capped.energy_j / capped.latency_s <= 0.8 * watts
    assert capped.latency_s >= answer.result.latency_s
