"""One engine: a file of `einsums:` is a model of one section, to the last digit, in every figure and every row of the ledger."""

from __future__ import annotations

import random
from functools import cache
from math import prod
from typing import Any

import numpy as np
import pytest

from rackmodel import api
from rackmodel.errors import InfeasibleError
from rackmodel.inputs import read_profile
from rackmodel.inputs.library import names
from rackmodel.model.architecture import Architecture
from rackmodel.model.layout import REPLICATE, legal_choices, shard
from rackmodel.model.mapping import HomeSpec
from rackmodel.model.plan import MICRO, Plan
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.workload import Workload
from rackmodel.model.workload_build import build_workload
from rackmodel.model.workload_spec import WorkloadSpec
from tests import samples
from tests.layout_cases import ATTENTION, FFN, GPT, LLAMA, MOE
from tests.machines import MLP, machine
from tests.steps import columns_of, priced
from tests.test_layout_search import random_graph

BLOCKS = {"llama": LLAMA, "gpt": GPT}  # long: one in 25
GRAPHS = {"ffn": FFN, "mlp": MLP, "attention": ATTENTION, "moe": MOE}
HOMES = [{}, {"state": "shard"}, {"grad": "shard", "state": "shard"}, {"param": "shard", "grad": "shard", "state": "shard"}]
PROFILES = names("profile")
STEPS, BLOCK = samples.cases(50, 500), 50
MESHES = [(2,), (4,), (8,), (2, 2), (2, 4), (4, 2), (1, 8)]


@cache
def profile(name: str) -> ProfileSpec:
    return read_profile(name)


def both(seed: int) -> tuple[Workload, Workload]:
    """A random graph of some layers: as a file of `einsums:` with `repeat`, and as one section that repeats."""
    pick = random.Random(seed)
    name = pick.choice(list(BLOCKS) if seed % 25 == 0 else [*GRAPHS, "chain", "chain"])
    graph = random_graph(pick) if name == "chain" else {**GRAPHS, **BLOCKS}[name]
    sizes: dict[str, Any] = {i: pick.choice([4, 6, 16, 64]) for i in "bsdf"} | {"t": "s", "x": 8, "k": 2, "h": 8, "g": 4, "q": 2, "e": 16}
    phases = pick.choice([["forward"], ["forward", "backward"], ["forward", "backward", "optimizer"]])
    tensors = {tensor: {"density": "k/x"} for tensor in "GDHAE"} if name == "moe" else {}
    used = {index for text in graph.values() for index in text} | ({"k"} if name == "moe" else set())
    data = {
        "workload": "same",
        "phases": phases,
        "sizes": {index: size for index, size in sizes.items() if index in used or (index == "s" and "t" in used)},
        "tensors": tensors,
    }
    alone = build_workload(WorkloadSpec.model_validate({**data, "einsums": graph}))
    same = [alone.tensors[t].sizes for t in (*alone.inputs[:1], *alone.outputs[-1:])]
    chained = len(alone.inputs) == len(alone.outputs) == 1 and same[0] == same[1]  # what a layer hands on, the next one takes
    repeat = pick.choice([1, 2, 3, 4]) if chained else 1
    graphs = build_workload(WorkloadSpec.model_validate({**data, "einsums": graph, "repeat": repeat}))
    section = {"block": {"repeat": repeat, "einsums": graph}}
    return graphs, build_workload(WorkloadSpec.model_validate({**data, "sections": section}))


def random_plan(load: Workload, degrees: tuple[int, ...], pick: random.Random) -> Plan:
    """Any legal choice of every operation on every axis, also where the degree does not divide; the batch in micro-batches."""
    axes = tuple(f"axis{number}" for number in range(len(degrees)))
    layer = load.sections[0].workload
    choices = {
        op.name: (*(pick.choice(legal_choices(op, layer)) for _ in axes), "b" if "b" in op.indices else None) for op in layer.ops.values()
    }

    def edge(name: str) -> tuple[str, ...]:
        tensor = layer.tensors[name]
        ends = (pick.choice([REPLICATE, *map(shard, tensor.ranks)]) for _ in axes)
        return (*ends, shard("b") if "b" in tensor.ranks else REPLICATE)

    home = pick.choice(HOMES) if layer.weights and layer.backward else {}
    return Plan(
        axes=(*axes, MICRO),
        choices=choices,
        boundary={name: edge(name) for name in (*layer.inputs, *layer.outputs)},
        stages=dict.fromkeys(layer.ops, 0),
        homes={"weights": HomeSpec(axes=pick.sample(axes, pick.randint(1, len(axes))), **home)} if home else {},
        save={name: pick.choice(["shard", "gathered"]) for name in layer.tensors},
        recompute=pick.choice(["none", "none", "selective", "full"]) if layer.backward else "none",
        rerun=pick.choice(["region", "slice"]),
        uneven="ceil",
    )


def arch(count: int) -> Architecture:
    return machine(racks=1, gpus=count) if count < 4 else machine(racks=2, gpus=count // 2)


@pytest.mark.parametrize("block", range(STEPS // BLOCK))
def test_a_graph_is_a_model_of_one_section_to_the_last_digit(block: int) -> None:
    """Random graphs and plans (500 in the audit), each under two profiles; every shipped profile is among those of a block."""
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        pick = random.Random(f"plan {seed}")
        graph, model = both(seed)
        assert (graph.repeat, graph.layers) == (model.sections[0].repeat, model.layers)
        degrees = pick.choice(MESHES)
        plan = random_plan(graph, degrees, pick)
        strides = tuple(prod(degrees[axis + 1 :]) for axis in range(len(degrees)))
        columns = columns_of(plan, [[*degrees, pick.choice([1, 2])]], [[*strides, 1]])
        for name in (PROFILES[seed % len(PROFILES)], pick.choice(PROFILES)):
            one, other = (priced(arch(prod(degrees)), load, plan, columns, profile(name)) for load in (graph, model))
            for figure in ("latency", "energy", "memory"):
                assert np.array_equal(getattr(one, figure), getattr(other, figure)), (seed, name, figure)
            assert one.held() == other.held(), (seed, name)
            assert [row.to_dict() for row in one.ledger()] == [row.to_dict() for row in other.ledger()], (seed, name)


def test_every_shipped_profile_is_tried_in_every_block() -> None:
    assert len(PROFILES) <= BLOCK
    assert {"ideal", "serial", "megatron_core"} <= set(PROFILES)


# -- what the two engines of before said differently ---------------------------------------------------------------------------

SIZES = {"b": 8, "s": 2048, "d": 4096, "f": 14336}
ZERO_3 = """mapper: zero3
axes: {dp: {degree: all}}
split: {dp: [b]}
homes: {weights: {axes: [dp], param: shard, grad: shard, state: shard}}
"""


def layer(tmp_path: Any, form: str, repeat: int = 1, hidden: str = "H") -> str:
    """A feed-forward network in one of the two forms of a file."""
    graph = f"{{FC1: '{hidden}[b,s,f] = X[b,s,d] * W1[d,f]', FC2: 'Y[b,s,d] = {hidden}[b,s,f] * W2[f,d]'}}"
    head = f"workload: layer\nphases: [forward, backward]\nsizes: {{{', '.join(f'{k}: {v}' for k, v in SIZES.items())}}}\n"
    body = f"repeat: {repeat}\neinsums: {graph}\n" if form == "graph" else f"sections: {{block: {{repeat: {repeat}, einsums: {graph}}}}}\n"
    path = tmp_path / f"{form}_{repeat}_{hidden}.yaml"
    path.write_text(head + body, encoding="utf-8")
    return str(path)


def zero_3(tmp_path: Any) -> str:
    path = tmp_path / "zero3.yaml"
    path.write_text(ZERO_3, encoding="utf-8")
    return str(path)


def figures(result: Any) -> tuple[float, float, float]:
    return result.latency_s, result.energy_j, result.memory_bytes_per_accelerator


@pytest.mark.parametrize("repeat", [1, 32])
def test_searches_of_both_forms_find_the_same(tmp_path: Any, repeat: int) -> None:
    """F1: 32 layers were 0.2054 s, 578.6 J, 5.637 GB as a graph and 0.1490 s, 453.4 J, 6.241 GB as a section."""
    one, other = (
        api.search("dgx_a100", layer(tmp_path, form, repeat), zero_3(tmp_path), sets=["accelerators=8"], profile="ideal").result
        for form in ("graph", "model")
    )
    assert figures(one) == figures(other)
    assert [row.to_dict() for row in one.ledger] == [row.to_dict() for row in other.ledger]
    assert one.memory == other.memory


def test_gathered_parameters_are_counted_in_both_forms(tmp_path: Any) -> None:
    """F2: a graph under ZeRO-3 passed a capacity of 300 MB at 176 MB; W1 and W2 gathered are 235 MB alone."""
    needs = []
    for form in ("graph", "model"):
        with pytest.raises(InfeasibleError) as caught:
            api.search("dgx_a100", layer(tmp_path, form), zero_3(tmp_path), sets=["accelerators=8", "gpu.memory.capacity=300 MB"])
        needs.append(caught.value.need)
    assert needs[0] == needs[1] > 300e6


def test_a_profile_matters_to_a_graph(tmp_path: Any) -> None:
    """F3: megatron_core was ideal to the digit."""
    ideal, core = (
        api.search("dgx_a100", layer(tmp_path, "graph"), "data", sets=["accelerators=8"], profile=name).result
        for name in ("ideal", "megatron_core")
    )
    assert core.latency_s > ideal.latency_s


def test_the_name_of_a_tensor_changes_nothing(tmp_path: Any) -> None:
    """F7: H called dX, as the gradient of X is in the ledger, was taken for a gradient."""
    one, other = (
        api.search("dgx_a100", layer(tmp_path, "graph", hidden=hidden), zero_3(tmp_path), sets=["accelerators=8"]).result
        for hidden in ("H", "dX")
    )
    assert figures(one) == figures(other)
    assert one.memory == other.memory
    assert len(one.ledger) == len(other.ledger)
