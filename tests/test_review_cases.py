"""Cases of a review of what searches claim and machines allow, each with the numbers that showed it: docs/audit.md lists where the others
are."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackmodel import api
from rackmodel.cost.step.group import Job
from rackmodel.cost.step.setting import Setting
from rackmodel.errors import InfeasibleError
from rackmodel.inputs.read import read_inputs, read_profile
from rackmodel.mapper.mapspace import build_mapspace
from rackmodel.mapper.objective import Objective
from rackmodel.mapper.search import Question, search_space
from tests import certificate_cases as cases

ZERO_BUBBLE = """mapper: zb
axes: {pp: {degree: 8, stages: layers}}
split: {}
micro_batch: 8
schedule: [zb_h2]
recompute: [none]
overlap: profile
algorithms: ring
profile: ideal
minimize: latency
"""
SMALL_GPT = ["accelerators=8", "b=8", "layers=8", "d=2048", "h=16", "f=8192", "v=51200", "s=2048"]


def test_a_schedule_twice_as_long_as_its_bound_keeps_the_limit_on_power_that_it_keeps(tmp_path: Path) -> None:
    """F2, B: one mapping of 3371 W was called infeasible below 3.4 kW."""
    (tmp_path / "zb.yaml").write_text(ZERO_BUBBLE, encoding="utf-8")
    asked = ("dgx_h100", "gpt", str(tmp_path / "zb.yaml"))
    free = api.search(*asked, sets=SMALL_GPT).result
    watts = free.energy_j / free.latency_s
    kept = api.search(*asked, sets=SMALL_GPT, limits={"power": watts * 1.001}).result
    assert (kept.latency_s, kept.energy_j) == (free.latency_s, free.energy_j)
    with pytest.raises(InfeasibleError) as refused:
        api.search(*asked, sets=SMALL_GPT, limits={"power": watts * 0.999})
    assert refused.value.need == pytest.approx(watts, rel=1e-9)


def test_free_layouts_claim_no_more_than_heads_that_are_split_have() -> None:
    """F3: 30.88 J were called proven; tensor parallelism over heads, a layout of the same space, takes 19.82 J."""
    sets = ["accelerators=8", "b=8", "layers=4", "d=1024", "g=4", "q=2", "e=128", "f=2048", "s=512", "v=65536"]
    sets += ["axes.tp.degree=2", "axes.pp.degree=1", "overlap=profile", "micro_batch=1", "recompute=none", "homes.weights={}"]
    found, heads = (
        api.search("dgx_h100", "llama", mapper, sets=sets, profile="megatron_core", minimize="energy").result
        for mapper in ("megatron_free", "megatron")
    )
    assert found.certificate.bound <= heads.energy_j * (1 + 1e-9)
    assert found.energy_j <= heads.energy_j * (1 + 1e-9) or not found.certificate.proven


def test_a_front_of_schedules_far_above_their_bounds_has_every_point(tmp_path: Path) -> None:
    """F5: 6 of 7 points, since bounds were taken for figures."""
    said = ZERO_BUBBLE.replace("axes: {pp: {degree: 8, stages: layers}}", "axes: {pp: {degree: free, stages: layers}, dp: {degree: free}}")
    said = said.replace("split: {}", "split: {dp: [b]}").replace("micro_batch: 8", "micro_batch: free")
    (tmp_path / "zbw.yaml").write_text(said.replace("[zb_h2]", "[zb_h1, zb_h2]").replace("[none]", "[none, full]"), encoding="utf-8")
    sets = ["accelerators=8", "b=16", "layers=16", "d=1024", "h=16", "f=16384", "v=256000", "s=512"]
    sets += ["node.static_power=2500 W", "gpu.static_power=0 W"]
    given = read_inputs("dgx_h100", "gpt", mapper=str(tmp_path / "zbw.yaml"), sets=sets)
    assert given.mapper is not None
    job = Job(setting=Setting(architecture=given.architecture), workload=given.workload, profile=read_profile("ideal"))
    space = build_mapspace(given.mapper, given.workload, given.architecture.used)
    figures = [Objective("latency"), Objective("memory")]
    found = search_space(job, space, Question(goal=figures[0], front=figures))
    assert found.complete
    assert len(found.front) > 1
    cases.check_front(cases.values(found.front, figures), cases.values(cases.every_point(job, space), figures), "zero bubble")


@pytest.mark.parametrize("machine", ["dgx_h100", "dgx_h200", "dgx_b200", "gb200_nvl72"])
def test_no_assumed_port_is_slower_than_the_memory_below_it(machine: str) -> None:
    """F6: half of the L2's read port, assumed for writes, limited H200, B200 and GB200 below what their HBM gives."""
    rows = api.search(machine, "ffn", "data", sets=["accelerators=8", "seq=1"], profile="serial").result.ledger.where(component="memory")
    assert rows.where(level="gpu").total("exposed_seconds") > 0
    assert rows.where(level="l2").total("exposed_seconds") == 0
