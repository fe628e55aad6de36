"""Searches of loop nests that would take minutes answer with a gap; EDP over several nests; rows of --top that differ in words."""

import time
from dataclasses import replace
from itertools import count
from pathlib import Path
from time import process_time

import pytest
import yaml

from rackmodel import api
from rackmodel.report.runners_up import top_rows
from rackmodel.watch import UNWATCHED, Watch

EDP2 = {
    "workload": "edp2",
    "phases": ["forward"],
    "sizes": {"m": 8, "k": 128, "n": 1024, "o": 100, "r": 128, "q": 100},
    "precision": {"activation": "16 bit", "weight": "16 bit"},
    "einsums": {"A": "A[m,n] = X[m,k] * W1[k,n]", "B": "B[o,q] = Z[o,r] * W2[r,q]"},
}
LARGE = [f"{rank}=720720" for rank in "mnk"]


def test_sizes_of_many_divisors_are_proven():
    """120 divisors a rank: the cells of the tables end before their search does, that of register files does not need them."""
    sheet = api.search("edge3", "gemm", "loopnest_perfect", sets=[f"{rank}=55440" for rank in "mnk"]).result.certificate
    assert sheet.proven
    assert sheet.bound <= sheet.objective


def test_a_time_limit_ends_a_nest_search():
    watch = Watch(0.0)
    sheet = api.search("edge3", "gemm", "loopnest_perfect", sets=[*LARGE[:2], "k=360360"], watch=watch).result.certificate
    assert watch.stopped
    assert 0 < sheet.gap <= 1


def test_many_nests_of_full_size_keep_a_time_limit():
    began, watch = process_time(), Watch(0.0)
    sheet = api.search("rack_paper", "attention", "data_tensor", sets=["inside={model: loopnest}"], watch=watch).result.certificate
    assert process_time() - began < 20  # 5 alone; without the limit minutes
    assert not sheet.proven
    assert "stopped by the time limit" in sheet.note


def test_a_nest_whose_search_ends_early_is_not_its_first_mapping():
    """16 x 2048 rows over 256 parts: compute is all that binds, whatever the divisors that are left out."""
    sets = ["inside={model: loopnest, factors: perfect}", "accelerators=8", "axes.tp.degree=8"]
    sheet = api.search("rack_paper", "attention", "data_tensor", sets=[*sets, "phases=[forward]"]).result.certificate
    assert sheet.nests["Q = X * WQ"]["gap"] == 0


def test_fusion_keeps_a_time_limit():
    sets = ["accelerators=1", "b=1", "s=64", "d=128", "g=1", "q=2", "e=32", "phases=[forward]"]  # nothing is fused beside a backward pass
    whole = api.search("edge3", "attention", "loopnest_fused", sets=sets).result.certificate
    short = api.search("edge3", "attention", "loopnest_fused", sets=sets, watch=Watch(0.0)).result.certificate
    assert short.bound <= whole.objective <= short.objective * (1 + 1e-9)
    assert not short.proven


@pytest.mark.parametrize("aim", ["energy", "latency"])
def test_wherever_time_ends_what_to_fuse_is_bounded_and_nothing_is_below(aim, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A clock that goes on by a second each time it is looked at ends the search at any place of it. Nothing is known from other searches:
    operations by themselves, which the whole search need not solve, are looked for when it is late already."""
    monkeypatch.setenv("RACKMODEL_CACHE", str(tmp_path))
    block = ["accelerators=1", "b=1", "s=32", "d=32", "g=1", "q=2", "e=16", "f=64", "phases=[forward]", "glb.memory.capacity=6 KiB"]

    def search(watch: Watch = UNWATCHED):
        sets = [*block, "inside={model: loopnest, factors: perfect, fuse: free}"]
        return api.search("glb_pe", "llama3_8b_block", "loopnest_fused", sets=sets, minimize=aim, watch=watch).result.certificate

    best = search()
    assert best.proven
    for seconds in (0, 59, 142, 173) if aim == "energy" else (0, 256, 343):
        looked = count()
        with monkeypatch.context() as clock:
            clock.setattr(time, "monotonic", lambda looked=looked: float(next(looked)))
            short = search(Watch(seconds))
        assert 0.3 * best.objective < short.bound <= best.objective * (1 + 1e-9) <= short.objective * (1 + 2e-9)
        assert next(looked) <= seconds + 30  # little is done once the time is over: some mapping of each of seven operations is found
        assert "stopped by the time limit" in short.note


def test_edp_of_several_nests_is_no_worse_than_that_of_least_latency_or_energy(tmp_path: Path):
    file = tmp_path / "edp2.yaml"
    file.write_text(yaml.safe_dump(EDP2, sort_keys=False))
    sets = ["accelerators=1", "glb.memory.bandwidth=1 TB/s"]

    def product(goal: str) -> float:
        result = api.search("glb_pe", str(file), "loopnest_perfect", sets=sets, minimize=goal).result
        return result.latency_s * result.energy_j

    best = api.search("glb_pe", str(file), "loopnest_perfect", sets=sets, minimize="edp").result
    found = best.latency_s * best.energy_j
    assert found <= min(product("latency"), product("energy")) * (1 + 1e-9)
    assert best.certificate.bound <= found


def test_rows_of_the_same_words_say_what_differs_and_idle_recompute_is_merged():
    result = api.search("dgx_h100", "llama3_8b", "megatron", sets=["accelerators=8"]).result
    name = next(iter(result.mapping.axes))
    axis = result.mapping.axes[name]
    far = result.mapping.model_copy(update={"axes": {**result.mapping.axes, name: axis.model_copy(update={"degree": 2, "stride": 4})}})
    near = far.model_copy(update={"axes": {**far.axes, name: axis.model_copy(update={"degree": 2, "stride": 1})}})
    idle = far.model_copy(update={"recompute": "full" if far.recompute != "full" else "selective"})
    rows = top_rows([replace(result, mapping=mapping) for mapping in (far, near, idle)])
    assert [words.endswith(f"{name} stride {stride}") for (words, _), stride in zip(rows, (4, 1), strict=True)] == [True, True]


def test_no_two_of_many_mappings_have_the_same_words():
    """Three facts were told, which 29 mappings had in common."""
    sets = ["accelerators=8", "axes.dp.degree=1", "axes.tp.degree=8", "b=4", "s=64", "d=64", "e=8"]
    rows = top_rows(api.search("dgx_h100", "attention", "auto", sets=sets, top=32).top)
    assert len({words for words, _ in rows}) == len(rows) == 32
