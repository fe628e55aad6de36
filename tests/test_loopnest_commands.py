"""The loop nest through the command line's door: conformance points, round trips, the roofline as its bound."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest
import yaml

from rackmodel import api
from rackmodel.cli.written import write_mapping
from rackmodel.errors import RackmodelError
from rackmodel.inputs import read_inputs
from rackmodel.model.mapping import InsideSpec
from tests import samples

CASES = json.loads((Path(__file__).parent / "data/golden/gemm_cases.json").read_text(encoding="utf-8"))
EDGE3 = (0.4928407863296, 0.117440512)  # J, s


pytestmark = pytest.mark.usefixtures("nothing_remembered")


@pytest.mark.parametrize("goal", ["energy", "latency", "edp"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c["name"])
def test_conformance_points(case: dict, goal: str) -> None:
    arch = "tiny" if case["mac_per_s_per_pe"] == 1e9 else "tiny_cb"
    sets = [f"{rank}={case[rank.upper()]}" for rank in "mkn"]
    result = api.search(arch, "gemm", "loopnest_perfect", sets=sets, minimize=goal).result
    want = case["brute"][goal.upper()]
    assert result.energy_j == pytest.approx(want["energy"], rel=1e-9)
    assert result.latency_s == pytest.approx(want["latency"], rel=1e-9)
    assert result.certificate.gap == 0
    assert result.certificate.space > 1e4


@pytest.mark.parametrize("goal", ["energy", "latency", "edp"])
def test_the_large_gemm_on_three_levels_is_proven(goal: str) -> None:
    result = api.search("edge3", "gemm", "loopnest_perfect", minimize=goal).result
    assert (result.energy_j, result.latency_s) == pytest.approx(EDGE3, rel=1e-9)
    assert result.certificate.gap == 0


def test_attention_is_better_than_the_rival_s_optimum() -> None:
    result = api.search("edge3", "attention", "loopnest_perfect", sets=["b=1", "phases=[forward]"]).result
    assert result.energy_j == pytest.approx(0.5294620934144, rel=1e-9)
    assert result.energy_j < 0.5302137


@pytest.mark.parametrize(
    ("arch", "workload", "sets"), [("glb_pe", "gemm", []), ("edge3", "ffn", ["batch=1", "seq=256", "d=512", "f=1024"])]
)
def test_a_mapping_with_nests_evaluates_to_the_last_digit(tmp_path: Path, arch: str, workload: str, sets: list[str]) -> None:
    found = api.search(arch, workload, "loopnest_perfect", sets=sets).result
    path = write_mapping(found, tmp_path / "mapping.yaml")
    priced = api.evaluate(arch, workload, str(path), sets=sets)
    assert priced.to_dict()["ledger"] == found.to_dict()["ledger"]
    assert (priced.energy_j, priced.latency_s) == (found.energy_j, found.latency_s)
    assert set(yaml.safe_load(path.read_text(encoding="utf-8"))["nests"]) == set(found.mapping.nests)


SMALL = ("tiny", "tiny_cb", "glb_pe", "edge3", "rack_paper", "cs2")
GPUS = ("rack_paper_h100", "wse2_mesh", "h100", "tpu_v4i", "a100", "h200", "b200")


ROOFLINES = [*product(SMALL, ("gemm", "ffn", "attention")), *((gpu, "gemm") for gpu in GPUS)]


@pytest.mark.parametrize(("arch", "workload"), samples.some(ROOFLINES, 4))
def test_the_roofline_is_a_lower_bound_of_the_loop_nest(arch: str, workload: str) -> None:
    small = {
        "gemm": ["m=64", "k=64", "n=64"],
        "ffn": ["batch=1", "seq=32", "d=32", "f=64"],
        "attention": ["b=1", "s=16", "d=32", "g=2", "q=2", "e=8"],
    }
    inputs = read_inputs(arch, workload, mapper="loopnest_perfect", sets=[*small[workload], "accelerators=1"])
    assert inputs.mapper is not None
    roof = inputs.mapper.model_copy(update={"inside": InsideSpec()})
    for goal in ("energy", "latency"):
        nest = api.search_mapper(inputs.architecture, inputs.workload, inputs.mapper, minimize=goal).result
        bound = api.search_mapper(inputs.architecture, inputs.workload, roof, minimize=goal).result
        figure = {"energy": "energy_j", "latency": "latency_s"}[goal]
        assert getattr(bound, figure) <= getattr(nest, figure) * (1 + 1e-9)


def test_results_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rackmodel import nests

    monkeypatch.setenv("RACKMODEL_CACHE", str(tmp_path))
    first = api.search("glb_pe", "gemm", "loopnest_perfect").result
    monkeypatch.setattr(nests, "solve_nest", lambda *a, **k: pytest.fail("solved again"))
    assert api.search("glb_pe", "gemm", "loopnest_perfect").result.energy_j == first.energy_j


def test_fusion_is_a_mapper_decision_that_pays_and_round_trips(tmp_path: Path) -> None:
    """QK and AV fused with V resident; FC1 and FC2 fused (docs/nest_theory.md, section 7)."""
    sets = ["b=1", "phases=[forward]"]
    alone = api.search("glb_pe", "attention", "loopnest_perfect", sets=sets).result
    fused = api.search("glb_pe", "attention", "loopnest_fused", sets=sets).result
    assert alone.energy_j == pytest.approx(0.84188069888, rel=1e-10)
    assert fused.energy_j == pytest.approx(0.80262201344, rel=1e-10)
    path = write_mapping(fused, tmp_path / "mapping.yaml")
    assert api.evaluate("glb_pe", "attention", str(path), sets=sets).energy_j == fused.energy_j
    pair = [*("batch=1", "phases=[forward]"), "inside.fuse=[{einsums: [FC1, FC2]}]"]
    assert api.search("glb_pe", "ffn", "loopnest_fused", sets=pair).result.energy_j == pytest.approx(1.607458619392, rel=1e-10)


def test_ragged_tiles_beat_divisors_on_awkward_sizes() -> None:
    """127x64x61 on tiny_cb (EDP) and a GEMM of primes on glb_pe (energy): docs/nest_theory.md, section 6."""
    edp = api.search("tiny_cb", "gemm", "loopnest", sets=["m=127", "k=64", "n=61"], minimize="edp").result
    assert (edp.energy_j, edp.latency_s) == pytest.approx((1.5600704e-5, 6.3488e-4), rel=1e-7)
    primes = ["m=2039", "k=4093", "n=14327"]
    assert api.search("glb_pe", "gemm", "loopnest", sets=primes).result.energy_j == pytest.approx(0.79929755, rel=1e-8)
    assert api.search("glb_pe", "gemm", "loopnest_perfect", sets=primes).result.energy_j == pytest.approx(24.93, rel=1e-3)


def test_rules_are_obeyed_or_refused() -> None:
    free = api.search("glb_pe", "gemm", "loopnest_perfect").result
    rules = ["inside.rules={C: {stationary: {glb: A}}}"]
    held = api.search("glb_pe", "gemm", "loopnest_perfect", sets=rules).result
    assert held.energy_j >= free.energy_j
    assert held.mapping.nests["C = A * B"]["levels"][1]["nodes"][0]["tensor"] == "A"
    for wrong in ("{D: {}}", "{C: {stationary: {nowhere: A}}}", "{C: {tiles: {glb: {m: 99999999}}}}"):
        with pytest.raises(RackmodelError):
            api.search("glb_pe", "gemm", "loopnest_perfect", sets=[f"inside.rules={wrong}"])


def test_cpsat_agrees_with_the_dynamic_programme() -> None:
    for arch in ("glb_pe", "edge3"):
        dp, oracle = (api.search(arch, "gemm", "loopnest_perfect", sets=[f"inside.solver={s}"]).result for s in ("dp", "cpsat"))
        assert oracle.energy_j == pytest.approx(dp.energy_j, rel=1e-12)
