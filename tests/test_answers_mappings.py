"""Mapping and mapper files that were once read as something else, or refused without a word of what to do (review of answers, A)."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

import rackmodel as rm
from rackmodel import api
from rackmodel.cost.step.tasks.offload import host_of
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.inputs import library_names, read_architecture, read_inputs, read_mapper, read_workload
from rackmodel.inputs.hf_keys import family_called
from rackmodel.inputs.trained import WIDTHS
from rackmodel.model import schedules
from rackmodel.model.mapper_check import FAMILY, passed_over
from rackmodel.model.mapping import MapperSpec, Policy
from tests import samples

ZERO1: dict[str, Any] = {
    "mapping": "zero1",
    "accelerators": 4,
    "axes": {"dp": {"degree": 4}},
    "ops": {"FC1": {"dp": "m"}, "FC2": {"dp": "m"}},
    "homes": {"weights": {"axes": ["dp"], "state": "shard"}},
    "uneven": "ceil",
}
STEP: dict[str, Any] = {
    "mapping": "step",
    "accelerators": 2,
    "axes": {},
    "step": {"micro_batch": 1, "pipeline": {"degree": 2}},
}
MODEL = ("gpt", ["layers=4", "b=4"])


def edited(base: dict[str, Any], *edits: tuple[str, Any]) -> dict[str, Any]:
    """A mapping with some values replaced; '-' before a path takes the key away."""
    made = copy.deepcopy(base)
    for path, value in edits:
        *above, last = path.removeprefix("-").split(".")
        node = made
        for key in above:
            node = node.setdefault(key, {})
        if path.startswith("-"):
            del node[last]
        else:
            node[last] = value
    return made


def priced(mapping: dict[str, Any], folder: Path, architecture="rack_paper", workload="ffn", sets=()):
    """The result of a mapping file, and its path."""
    path = folder / "m.yaml"
    path.write_text(yaml.safe_dump(mapping, sort_keys=False), encoding="utf-8")
    return api.evaluate(architecture, workload, str(path), sets=sets)


def refusal(mapping: dict[str, Any], folder: Path, *machine: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        priced(mapping, folder, *machine)
    assert all(one.where is not None for one in caught.value.problems)
    return caught.value


# -- layers and mixes --------------------------------------------------------------------------------------------------

NO_STEP = {
    "layers that are too few": ({"layers": [1, 2]}, "step.layers", "2 numbers that add up to 3: want 2 that add up to 4"),
    "a list of another length": ({"layers": [4]}, "step.layers", "1 numbers that add up to 4: want 2 that add up to 4"),
    "a stage of no layer": ({"layers": [0, 4]}, "step.layers.0", "0 must be above 0"),
    "layers below zero": ({"layers": [-4, 8]}, "step.layers.0", "-4 must be above 0"),
    "mixes of one stage": ({"mixes": [{"block": {"none": 4}}]}, "step.mixes", "1 stages listed, the pipeline has 2"),
    "mixes that are too few": ({"mixes": [{"block": {"none": 1}}, {"block": {"full": 2}}]}, "step.mixes", "3 layers of block listed"),
    "mixes below zero": (
        {"mixes": [{"block": {"none": -4, "full": 8}}, {"block": {}}]},
        "step.mixes.0.block.none",
        "layers are counted from 0",
    ),
    "mixes of no section": ({"mixes": [{"blok": {"none": 4}}, {}]}, "step.mixes.0.blok", "no section of layers 'blok'"),
    "mixes and other layers": (
        {"mixes": [{"block": {"none": 2}}, {"block": {"full": 2}}], "layers": [1, 3]},
        "step.layers",
        "layers [1, 3], and `mixes` lists [2, 2]",
    ),
    "mixes of chunks": (
        {"mixes": [{"block": {"none": 2}}] * 2, "schedule": "interleaved", "interleave": 2},
        "step.interleave",
        "`mixes` lists layers of whole stages, not of each of their 2 chunks",
    ),
    "mixes without a layer of a stage": ({"mixes": [{"block": {"none": 4}}, {}]}, "step.mixes.1", "stage 1 of 2 holds no layer"),
    "no home for what is offloaded": ({"offload": ["optimizer"]}, "step.offload", "say host: node"),
    "a host without offload": ({"host": "node"}, "step.host", "nothing is offloaded to it"),
    "no algorithm": ({"algorithms": []}, "step.algorithms", "name at least one"),
}


@pytest.mark.parametrize("case", NO_STEP)
def test_a_step_that_is_not_of_the_model_is_refused(case, tmp_path):
    said, path, words = NO_STEP[case]
    problem = refusal(edited(STEP, *((f"step.{key}", value) for key, value in said.items())), tmp_path, "dgx_a100", *MODEL)
    assert (problem.path, words in problem.message) == (path, True), problem


# -- names, meshes and machines ----------------------------------------------------------------------------------------

NO_MAPPING = {
    "an axis of a home": (("homes.weights.axes", ["zz"]), "homes.weights.axes.0", "no axis 'zz'"),
    "an axis of a flattening": (("flat", {"zz": ["m"]}), "flat.zz", "no axis 'zz'"),
    "an axis of a boundary": (("boundary", {"X": {"zz": "m"}}), "boundary.X.zz", "no axis 'zz'"),
    "an axis of an operation": (("ops.FC1", {"zz": "m"}), "ops.FC1.zz", "no axis 'zz'"),
    "an operation of another model": (("ops.QK", {"dp": "m"}), "ops.QK", "no operation 'QK'"),
    "more accelerators than there are": (("accelerators", 8), "axes", "multiply to 4, accelerators says 8"),
    "micro-batches of no batch": (("step", {"micro_batch": 3}), "step.micro_batch", "no batch"),
    "a home that is nowhere": (("homes.weights", {"at": "None"}), "homes.weights.at", "no level called 'None'"),
    "a key that is none": (("layout", "zzz"), "layout", "unknown key"),
}


@pytest.mark.parametrize("case", NO_MAPPING)
def test_a_mapping_of_another_workload_or_mesh_is_refused(case, tmp_path):
    edit, path, words = NO_MAPPING[case]
    problem = refusal(edited(ZERO1, edit), tmp_path)
    assert (problem.path, words in problem.message) == (path, True), problem


def test_all_contradictions_of_a_mapping_are_told_each_with_its_place(tmp_path):
    wrong = edited(
        ZERO1,
        ("accelerators", 8),
        ("ops.FC1", {"zz": "m"}),
        ("ops.QK", {}),
        ("boundary", {"X": {"dp": "q"}}),
        ("step", {"micro_batch": 1, "algorithms": ["ring", "rung"]}),
    )
    problem = refusal(wrong, tmp_path)
    assert {one.path for one in problem.problems} == {"axes", "ops.FC1.zz", "ops.QK", "boundary.X.dp", "step.algorithms.1"}
    lines = [one.where.line for one in problem.problems]
    assert lines == sorted(lines)
    assert str(problem).count(f"{tmp_path}/m.yaml:") == 5


def test_a_mapping_is_of_so_many_accelerators(tmp_path):
    with pytest.raises(InputError, match="the mapping is of 4 accelerators, not 2"):
        priced(ZERO1, tmp_path, sets=["accelerators=2"])
    with pytest.raises(InputError, match="the mapping is of 4 accelerators, not 2"):
        rm.evaluate("rack_paper", "ffn", ZERO1, set={"architecture.accelerators": 2})
    with pytest.raises(InputError, match=r"<mapper>:3:\d+: split.tp.0: no operation of gemm has an index 'M'"):
        rm.search("rack_paper", "gemm", "mapper: mine\naxes: {tp: {degree: all}}\nsplit: {tp: [M]}\n", set={"accelerators": 2})
    with pytest.raises(InputError, match="the mesh needs 4 accelerators, tiny has"):
        priced(ZERO1, tmp_path, "tiny")


# -- priced, with a warning ---------------------------------------------------------------------------------------------


def test_what_does_not_fit_is_priced_and_said_in_the_answer_and_in_json(tmp_path, run):
    result = priced(ZERO1, tmp_path, sets=["seq=2048000"])
    assert result.memory_share is not None
    assert result.memory_share > 1
    (warning,) = result.warnings
    assert warning.startswith("does not fit: one gpu needs 604.7 GB, it has 80 GB")
    code, out, _ = run("evaluate", "rack_paper", "ffn", str(tmp_path / "m.yaml"), "--set", "seq=2048000")
    assert code == 0
    assert f"warning: {warning}" in " ".join(out.split())
    code, out, _ = run("evaluate", "rack_paper", "ffn", str(tmp_path / "m.yaml"), "--set", "seq=2048000", "--json")
    assert json.loads(out)["result"]["warnings"] == [warning]
    assert priced(ZERO1, tmp_path).warnings == ()


def test_a_host_and_a_home_that_overflow_are_said_too(tmp_path):
    held = edited(STEP, ("step.offload", ["optimizer"]), ("step.host", "node"))
    assert priced(held, tmp_path, "dgx_a100", *MODEL).warnings == ()
    found = priced(held, tmp_path, "dgx_a100", MODEL[0], [*MODEL[1], "node.memory.capacity='8 GB'"]).warnings
    assert [said.split(" needs ")[0] for said in found] == ["does not fit: 'node', for one gpu,"]
    home = {"mapping": "home", "accelerators": 1, "homes": {"weights": {"at": "memoryx"}}, "step": {"micro_batch": 1}}
    found = priced(home, tmp_path, "cs2", MODEL[0], [*MODEL[1], "memoryx.memory.capacity='1 GB'"]).warnings
    assert "does not fit: 'memoryx'" in [said.split(" needs ")[0] for said in found]


def test_accelerators_in_use_share_all_of_their_hosts_memory():
    """Eight V100 have a node's 512 GB, each with 63 / 8 GB/s of the way there: one alone in its node has all of it, one of twelve an
    eighth. (Until 30 November 2026 it had an eighth of it alone, too: 13 billion weights did not fit beside one V100, where ZeRO-Offload,
    arXiv 2101.06840, trains them.)"""
    machine = read_architecture("dgx_v100")
    hosts = [host_of(machine.using(count), "node") for count in (1, 2, 8, 12)]
    assert [host.capacity_bytes for host in hosts] == [512e9, 256e9, 64e9, 64e9]
    assert {host.bytes_per_s for host in hosts} == {63e9 / 8}
    sets = ["accelerators=1", "b=1", "s=1024", "d=5120", "f=20480", "h=40", "layers=40"]
    found = api.search("dgx_v100", "gpt", "megatron_offload", sets=sets).result
    assert found.mapping.step is not None
    assert found.mapping.step.offload == ["weights", "optimizer"]  # 2 + 4 + 12 bytes of each: 226 GB
    assert found.memory_bytes_per_accelerator < 32e9


def test_weights_at_a_host_come_to_their_update_and_go_back_new(tmp_path):
    """W bytes in 16 bit come in for either pass of each of 4 micro-batches, gradients of 32 bit go out, in all but the first added to a sum
    that came in (as DeepSpeed does); once a step these come in for the update and W go out again. Joules are the host's 20 pJ a bit."""
    held = edited(STEP, ("step.offload", ["weights"]), ("step.host", "node"))
    found = priced(held, tmp_path, "dgx_a100", *MODEL).ledger.where(level="node", component="memory")
    moved = {(row.phase, row.tensor, row.action): row.amount for row in found}
    once = moved["optimizer", "weights", "write"]
    assert moved == {
        ("forward", "weights", "read"): 4 * once,
        ("backward", "weights", "read"): 4 * once,
        ("backward", "gradients", "read"): 3 * 2 * once,
        ("backward", "gradients", "write"): 4 * 2 * once,
        ("optimizer", "gradients", "read"): 2 * once,
        ("optimizer", "weights", "write"): once,
    }
    assert found.total("joules") == pytest.approx(found.total("amount") * 8 * 20e-12)
    alone = edited(held, ("step.micro_batch", 4))  # one micro-batch adds to nothing
    assert not priced(alone, tmp_path, "dgx_a100", *MODEL).ledger.where(phase="backward", tensor="gradients", action="read").rows
    forward = priced(held, tmp_path, "dgx_a100", MODEL[0], [*MODEL[1], "phases=[forward, backward]"]).ledger
    assert not forward.where(phase="optimizer", level="node", component="memory").rows  # nothing is updated


@pytest.mark.parametrize("edit", [("-ops.FC1", None), ("ops.FC1", {})])
def test_operations_that_a_mapping_leaves_out_are_named(edit, tmp_path):
    result = priced(edited(ZERO1, edit), tmp_path)
    assert result.warnings == ("`ops` leaves out FC1 (or an axis of them): what is left out is repeated along dp, not split",)
    assert result.latency_s > priced(ZERO1, tmp_path).latency_s


@pytest.mark.parametrize("policy", get_args(Policy))
def test_stages_that_all_have_one_policy_are_those_of_a_mapping_with_it(policy, tmp_path):
    """(Policies younger than `mixes` once left their layers out: a step without layers.)"""
    mixed = edited(STEP, ("step.mixes", [{"block": {policy: 2}}] * 2))
    alike = edited(STEP, ("recompute", policy))
    one, other = (priced(said, tmp_path, "dgx_a100", *MODEL) for said in (mixed, alike))
    assert (one.latency_s, one.energy_j, one.memory) == (other.latency_s, other.energy_j, other.memory)


# -- homes at a level of several instances -----------------------------------------------------------------------------


def test_a_home_at_one_of_several_instances_is_an_offload_in_other_words(tmp_path):
    two_nodes = edited(STEP, ("accelerators", 16), ("step.pipeline", {"degree": 2, "stride": 8}), ("axes.dp", {"degree": 8}))
    at_home = priced(edited(two_nodes, ("homes", {"weights": {"at": "node"}})), tmp_path, "dgx_a100", *MODEL)
    offloaded = priced(edited(two_nodes, ("step.offload", ["weights"]), ("step.host", "node")), tmp_path, "dgx_a100", *MODEL)
    assert (at_home.latency_s, at_home.energy_j, at_home.memory) == (offloaded.latency_s, offloaded.energy_j, offloaded.memory)
    assert at_home.mapping.step == offloaded.mapping.step
    kept = edited(two_nodes, ("homes", {"activations": {"at": "node"}, "optimizer": {"at": "node"}}))
    assert priced(kept, tmp_path, "dgx_a100", *MODEL).mapping.step.offload == ["activations", "optimizer"]
    for homes, words in (
        ({"activations": {"at": "nde"}}, "no level called 'nde'"),
        ({"WQ": {"at": "node"}}, "a host keeps all weights of its accelerators, or none"),
    ):
        assert words in refusal(edited(two_nodes, ("homes", homes)), tmp_path, "dgx_a100", *MODEL).message


ROUND_TRIPS = [
    ("rack_paper", "attention", "data_tensor", ["accelerators=8"]),
    ("rack_paper", "ffn", "pipeline_tensor", ["accelerators=8"]),
    ("rack_paper", "moe", "expert", ["accelerators=8"]),
    ("dgx_a100", "gpt", "megatron_offload", ["accelerators=8", "layers=4", "b=16"]),
    ("dgx_a100", "gpt", "megatron_cut", ["accelerators=8", "layers=4", "b=16"]),
    ("cs2", "gpt", "streaming", ["accelerators=4", "layers=4", "b=16"]),
    ("glb_pe", "gemm", "loopnest", ["m=64", "k=64", "n=64"]),
]


@pytest.mark.parametrize("case", samples.some(ROUND_TRIPS, 2), ids=lambda case: f"{case[1]}-{case[2]}")
def test_every_kind_of_mapping_that_a_search_writes_is_priced_to_the_last_bit(case, tmp_path, run):
    architecture, workload, mapper, sets = case
    words = [word for said in sets for word in ("--set", said)]
    code, out, err = run("search", architecture, workload, mapper, *words, "-o", str(tmp_path), "--json")
    assert code == 0, err
    searched = json.loads(out)["result"]
    code, out, err = run("evaluate", architecture, workload, str(tmp_path / "mapping.yaml"), *words, "--json")
    assert code == 0, err
    again = json.loads(out)["result"]
    for key in ("latency_s", "energy_j", "carbon_g", "memory", "ledger", "warnings"):
        assert again[key] == searched[key], key


@pytest.mark.parametrize("accelerators", [8, 16])
def test_a_mapper_with_a_home_at_a_level_writes_what_is_read_back(accelerators, tmp_path, run):
    """Weights at the node's memory: the home of all of one node, each accelerator's own host of two nodes."""
    mapper = tmp_path / "mapper.yaml"
    mapper.write_text("mapper: mine\naxes: {dp: {degree: all}}\nsplit: {dp: [b]}\nhomes: {weights: {at: node}}\n", encoding="utf-8")
    words = [word for said in ("d=512", "f=2048", "h=8", "layers=4", "b=16") for word in ("--set", said)]
    only = ("--set", f"accelerators={accelerators}")
    code, out, err = run("search", "dgx_a100", "gpt", str(mapper), *words, *only, "-o", str(tmp_path), "--json")
    assert code == 0, err
    searched = json.loads(out)["result"]
    assert searched["mapping"]["step"]["offload"] == ([] if accelerators == 8 else ["weights"])
    code, out, err = run("evaluate", "dgx_a100", "gpt", str(tmp_path / "mapping.yaml"), *words, "--json")
    assert code == 0, err
    assert json.loads(out)["result"]["ledger"] == searched["ledger"]


def test_weights_have_the_room_of_the_nodes_in_use_not_of_all_that_a_file_has():
    """18 bytes of each weight, 16.8 million a layer and 1.05 million beside, in the one node of 2,048 whose V100s are used.
    (Until 30 November 2026 it had the memory of all 2,048: Llama 3 405B trained on one DGX-1, from 512 GB.)"""
    mapper = {"mapper": "m", "axes": {"dp": {"degree": 8}}, "split": {"dp": ["b"]}, "homes": {"weights": {"at": "node"}}}
    sizes = {"accelerators": 8, "b": 8, "s": 128, "d": 1024, "g": 8, "q": 1, "e": 128, "f": 4096, "v": 512, "layers": 4}
    weights = 4 * (4 * 1024**2 + 3 * 1024 * 4096 + 2 * 1024) + 2 * 512 * 1024 + 1024
    rm.search("dgx_v100", "llama", mapper, set=sizes | {"node.memory.capacity": f"{18 * weights} B"})
    with pytest.raises(InfeasibleError) as caught:
        rm.search("dgx_v100", "llama", mapper, set=sizes | {"node.memory.capacity": f"{18 * weights - 1000} B"})
    assert (caught.value.resource, caught.value.need, caught.value.have) == ("node.memory", 18 * weights, 18 * weights - 1000)
    found = {"mapping": "m", "accelerators": 8, "axes": {"dp": {"degree": 8}}, "homes": {"weights": {"at": "node"}}}
    (warning,) = rm.evaluate("dgx_v100", "gemm", found | {"ops": {"C": {"dp": "m"}}}, set={"node.memory.capacity": "1 MB"}).warnings
    assert warning.startswith("does not fit: 'node' needs ")


# -- mappers -----------------------------------------------------------------------------------------------------------


def test_all_that_a_mapper_says_of_another_workload_is_told_at_once():
    text = (
        "mapper: mine\naxes: {t: {degree: all}}\nsplit: {t: [f]}\nrecompute: full\nchoose: {FC3: {t: f}}\n"
        "boundary: {Z: {t: d}}\nhomes: {W9: {axes: [t], param: shard, grad: shard, state: shard}}\n"
    )
    inputs = read_inputs("rack_paper", "gemm", mapper=text, sets=["accelerators=4"])
    with pytest.raises(InputError) as caught:
        api.search_mapper(inputs.architecture, inputs.workload, inputs.mapper)
    assert [one.path for one in inputs.place(caught.value).problems] == ["split.t", "recompute", "choose.FC3", "boundary.Z", "homes.W9"]


def test_the_indices_that_mappers_list_for_one_another_are_those_of_the_library():
    indices = {index for name in library_names()["workload"] for op in read_workload(name).ops.values() for index in op.indices}
    files = [read_mapper(name) for name in library_names()["mapper"]]
    tables = [layout.split for one in files for layout in (one, *one.layouts.values())]
    lists = [said for split in tables for said in split.values() if not isinstance(said, str)]
    listed = {word for words in lists for item in words for word in ([item] if isinstance(item, str) else item)}
    imported = {index for name in library_names()["family"] for index in family_called(name).sizes}
    assert indices & listed <= FAMILY <= indices | imported | {*WIDTHS.values()}
    assert not [word for one in files for word in passed_over(one, read_workload("llama3_8b")) if one.name.startswith("parallel")]


def test_a_word_of_no_family_is_a_warning_with_its_place():
    mapper = MapperSpec.model_validate(
        {"mapper": "mine", "axes": {"tp": {"degree": "all"}}, "split": {"tp": ["x0", "n", "v"]}, "boundary": {"A": {"tp": ["row", "m"]}}}
    )
    gemm = read_workload("gemm")
    warnings = ("split.tp.0: no operation of gemm has an index 'x0': passed over", "boundary.A.tp.0: A has no rank 'row': passed over")
    assert passed_over(mapper, gemm) == warnings
    machine = read_architecture("rack_paper", ["accelerators=4"])
    assert api.search_mapper(machine, gemm, mapper).result.warnings == warnings


@pytest.mark.parametrize(
    ("said", "warnings"),
    [
        (["axes.tp.degree=[1,2,3,16]"], ("axes.tp.degree: no mapping of 8 accelerators has 3 or 16: passed over",)),
        (["axes.pp.degree=[1,8]"], ("axes.pp.degree: no mapping of 8 accelerators has 8: passed over",)),  # of 4 layers
        (["axes.pp.degree=[1,4]", "interleave=[1,2]"], ("interleave: no mapping of 8 accelerators has 2: passed over",)),
        (["micro_batch=[3,1]"], ("micro_batch: no mapping of 8 accelerators has 3: passed over",)),
        (["schedule=[1f1b,zb_v]", "axes.pp.degree=[2,4]", "cut=even", "interleave=2"], ()),  # 1F1B on four stages, ZB-V on two
        (["schedule=zb_v", "axes.pp.degree=[2,4]", "interleave=2"], ("axes.pp.degree: no mapping of 8 accelerators has 4: passed over",)),
    ],
)
def test_a_number_of_a_list_that_no_mapping_has_is_a_warning_with_its_place(said: list[str], warnings: tuple[str, ...]):
    sets = ["accelerators=8", "b=8", "s=256", "d=256", "f=512", "g=2", "q=2", "e=64", "v=512", "layers=4", "layouts={}", "recompute=none"]
    assert api.search("dgx_h100", "llama", "megatron", sets=[*sets, "homes={}", *said]).result.warnings == warnings


@pytest.mark.parametrize("said", ["7", "[3, 7]"])
def test_a_list_of_chunks_that_no_stage_can_have_is_refused_at_its_place(said: str):
    with pytest.raises(InputError, match=r"interleave: no mapping of 8 accelerators has (3 or )?7"):
        api.search("dgx_h100", "llama", "megatron", sets=["accelerators=8", "b=8", "s=256", "layers=4", f"interleave={said}"])


def test_capitals_are_a_slip_and_a_boundary_of_another_workload_says_what_to_do(run):
    code, _, err = run("search", "rack_paper", "gemm", "data", "--set", "split.dp=[M]")
    assert (code, "did you mean 'm'?" in err) == (2, True)
    code, _, err = run("search", "wse2_cores", "head", "wafer")
    assert code == 2
    assert "'X' is no input or output of head: name one of those here or leave it out (--set boundary={} drops them all)" in err
    assert "known: I, C" in err


# -- schedules ---------------------------------------------------------------------------------------------------------


def test_schedules_are_one_table():
    assert get_args(schedules.Schedule) == schedules.SCHEDULES == tuple(schedules.TABLE)
    for name in schedules.SCHEDULES:
        MapperSpec.model_validate({"mapper": "mine", "schedule": name})
    with pytest.raises(ValueError, match="schedule"):
        MapperSpec.model_validate({"mapper": "mine", "schedule": "eager"})
