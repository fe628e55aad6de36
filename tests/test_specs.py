"""The shipped library: every number has a source, every spec says what it models."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackmodel import api
from rackmodel.inputs import library_names, library_path, load, read_architecture, read_workload
from rackmodel.inputs.decoders import parameters
from rackmodel.inputs.marked import Marked
from rackmodel.inputs.plain_yaml import loaded

ROOT = Path(__file__).parents[1]
NUMBERLESS = {
    "count",
    "accelerators",
    "name",
    "accelerator",
    "topology",
    "hops",
    "fanout",
    "links",
    "shape",
    "note",
    "enforce",
    "backing",
    "multicast",
    "reduce",
    "striped",
    "process",
    "packages",
    "hosts",  # a count, of which the source of `static_power` beside it tells
}


def _unsourced(node: Marked, path: str, covered: bool) -> list[str]:
    """Paths of quantities with no source of their own or of a mapping they are in."""
    covered = covered or "source" in node.mapping
    found = []
    for key, child in node.mapping.items():
        if key in NUMBERLESS or key == "source":
            continue
        text = str(child.value)
        if isinstance(child.value, dict):
            found += _unsourced(child, f"{path}.{key}", covered)
        elif isinstance(child.value, list):
            for item in child.items:
                found += _unsourced(item, f"{path}.{item.mapping['name'].value if 'name' in item.mapping else key}", False)
        elif text[:1].isdigit() and not covered:
            found.append(f"{path}.{key} = {text}")
    return found


@pytest.mark.parametrize("name", library_names()["architecture"])
def test_every_number_of_an_architecture_has_a_source(name: str) -> None:
    raw = load("architecture", name)
    assert _unsourced(raw.mapping["tree"], "tree", False) == []
    assert read_architecture(name).used >= 1


@pytest.mark.parametrize("name", library_names()["workload"])
def test_workloads_say_where_their_sizes_are_from(name: str) -> None:
    workload = read_workload(name)
    assert workload.graph.number_of_nodes() == len(workload.ops)
    assert load("workload", name).child("source") is not None


@pytest.mark.parametrize("kind", ["architecture", "workload", "mapper", "study", "profile", "carbon"])
def test_every_shipped_file_begins_by_saying_what_it_is(kind: str) -> None:
    for name in library_names()[kind]:
        assert library_path(kind, name).read_text(encoding="utf-8").startswith("#"), name


def test_macs_and_parameters_of_the_rack_paper_s_workloads() -> None:
    """Golden: rack_paper_spec section 4."""
    ffn, attention, mha = (read_workload(name) for name in ("ffn", "attention", "attention_mha"))

    def macs(workload, op: str) -> int:
        total = 1
        for index in workload.ops[op].indices:
            total *= workload.sizes[index]
        return total

    assert sum(macs(ffn, op) for op in ffn.ops) == 3848290697216
    want = {"Q": 549755813888, "K": 137438953472, "V": 137438953472, "QK": 274877906944, "AV": 274877906944, "O": 549755813888}
    assert {op: macs(attention, op) for op in attention.ops} == want
    assert {op: macs(mha, op) for op in mha.ops} == want | {"K": 549755813888, "V": 549755813888}
    assert sum(attention.tensors[w].elements for w in attention.weights) == 41943040
    assert sum(mha.tensors[w].elements for w in mha.weights) == 67108864
    assert attention.tensors["A"].bytes == 4294967296


def test_parameters_of_glm_130b_are_those_of_its_layers_and_its_one_embedding() -> None:
    layer = 4 * 12288**2 + 3 * 12288 * 32768 + 4 * 12288
    assert parameters(read_workload("glm_130b")) == 70 * layer + 150528 * 12288
    assert 70 * layer + 150528 * 12288 == pytest.approx(130e9, rel=0.02)


@pytest.mark.parametrize(
    "part", ["v100_sxm", "a100_sxm", "h100_sxm", "h200_sxm", "b200_sxm", "gb200_gpu", "mi300x_oam", "mi325x_oam", "mi355x_oam"]
)
def test_no_assumed_port_rates_a_gpu_below_its_own_memory(part: str) -> None:
    """L2 takes in all that memory hands over, at the low end of every range too."""
    path = ROOT / "specs/parts" / f"{part}.yaml"
    l2: dict[str, object] = {}
    own: object = None
    while path is not None:
        said = loaded(path.read_text(encoding="utf-8"))
        own = own or said.get("memory", {}).get("bandwidth")
        child = next((c.get("memory", {}) for c in said.get("children", []) if c["name"] == "l2"), {})
        l2 = {**child, **l2}
        path = path.with_name(f"{said['extends']}.yaml") if "extends" in said else None
    for port in ("bandwidth", "write_bandwidth"):
        assert min(_rates(l2[port])) >= max(_rates(own)), port


def _rates(said: object) -> list[float]:
    """Terabytes a second of a number or of the ends of a range."""
    values = [said[key] for key in ("low", "mid", "high", "value") if key in said] if isinstance(said, dict) else [said]
    return [float(str(value).split()[0]) * {"TB/s": 1.0, "GB/s": 1e-3}[str(value).split()[1]] for value in values]


def test_registers_of_the_rack_papers_h100_hand_over_a_tile_an_instruction() -> None:
    """16 x 8 x 16 multiply-adds read two operands and the sum and write the sum, each handed over once for 16: 4 bits at 0.033 pJ, beside
    0.41 pJ; operands come in once. Word by word the GPU would draw 912 W, more than the 700 of its data sheet."""
    result = api.search("rack_paper_h100", "gemm", "data", sets=["accelerators=1", "m=65536", "k=8192", "n=8192"]).result
    macs, cores = 65536 * 8192 * 8192, result.ledger.where(level="tensor_core")
    operands = 16 * (65536 * 8192 + 8192 * 8192)
    assert cores.where(component="memory").total("joules") == pytest.approx((macs * 4 + operands) * 0.033e-12, rel=1e-12)
    assert cores.where(component="compute").total("joules") == pytest.approx(macs * 0.41e-12, rel=1e-12)
    assert 250 < result.energy_j / result.latency_s < 700
