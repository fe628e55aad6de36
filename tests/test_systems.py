"""The shipped systems and frameworks: published rates and power, room for 131,072 accelerators, a source for every fact."""

from __future__ import annotations

import csv
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from rackmodel import api
from rackmodel.cost.network.collectives import collective
from rackmodel.errors import InputError
from rackmodel.inputs import load, read_architecture, read_profile
from rackmodel.inputs.marked import Marked
from rackmodel.model.architecture import Architecture

POWER = list(csv.DictReader((Path(__file__).parent / "data" / "system_power.csv").open(encoding="utf-8")))
SWITCHED = ("dgx_a100", "dgx_h100", "dgx_h200", "dgx_b200", "gb200_nvl72")
SYSTEMS = (*SWITCHED, "tpu_v4")
PROFILES = ("megatron_2021", "megatron_core", "fsdp", "torchtitan")
STATUSES = ("SOURCED", "RECALLED", "DERIVED", "ASSUMED")

# bf16 TFLOP/s, HBM GB, HBM TB/s, NVLink or ICI GB/s of one port and direction, network GB/s a GPU and direction (data sheets)
SHEET = {
    "dgx_a100": (312, 80, 2.039, 300, 25),
    "dgx_h100": (989.4, 80, 3.35, 450, 50),
    "dgx_h200": (989.4, 141, 4.8, 450, 50),
    "dgx_b200": (2250, 180, 8, 900, 50),
    "gb200_nvl72": (2500, 186, 8, 900, 50),
    "vera_rubin_nvl72": (4000, 288, 22, 1800, 200),
    "tpu_v4": (275.2512, 34.359738368, 1.2, 50, 50),
    "tpu_v3": (123.20768, 34.359738368, 0.9, 82, 3.125),
    "tpu_v5p": (459, 102.00547328, 2.765, 100, 100),
    "tpu_v5e": (197, 17.179869184, 0.819, 50, 3.125),
    "tpu_v6e": (918, 34.359738368, 1.638, 100, 12.5),
    "tpu_v7x": (2307, 206.158430208, 7.38, 100, 100),
    "trn2_ultra": (667, 103.079215104, 2.9, 128, 25),
}


@cache
def machine(name: str) -> Architecture:
    return read_architecture(name)


def published(system: str, quantity: str) -> float:
    return next(float(row["value"]) for row in POWER if row["system"] == system and row["quantity"].endswith(quantity))


def bf16_flop_per_s(architecture: Architecture) -> float:
    level, count = architecture.inside[-1]
    assert level.compute is not None
    return level.compute.matrix(16).rate_flop_per_s * count


@pytest.mark.parametrize("name", SHEET)
def test_peak_memory_and_links_are_those_of_the_data_sheets(name: str) -> None:
    found, memory = machine(name), machine(name).accelerator.memory
    assert memory is not None
    rates = (
        bf16_flop_per_s(found) / 1e12,
        (memory.capacity_bytes or 0) / 1e9,
        (memory.bandwidth_bytes_per_s or 0) / 1e12,
        found.tiers[0].network.bandwidth_bytes_per_s / 1e9,
        found.tiers[-1].network.bandwidth_bytes_per_s / 1e9,
    )
    assert rates == pytest.approx(SHEET[name], rel=1e-5)


def test_a_gb200_gpu_is_a_b200_of_152_sms_with_a_ninth_more_peak_and_its_energy_per_operation() -> None:
    """Peaks are NVIDIA's of a GPU: 608 tensor cores share what 592 do on a B200, by a ninth more."""
    slow, fast = (machine(name).inside[-1][0].compute for name in ("dgx_b200", "gb200_nvl72"))
    assert slow is not None
    assert fast is not None
    for bits in (4, 8, 16):
        assert fast.matrix(bits).rate_flop_per_s == pytest.approx(slow.matrix(bits).rate_flop_per_s * 10 / 9 * 592 / 608, rel=1e-6)
        assert (fast.matrix(bits).energy_j_per_flop, fast.matrix(bits).atom) == (
            slow.matrix(bits).energy_j_per_flop,
            slow.matrix(bits).atom,
        )
    assert fast.matrix(19).rate_flop_per_s * 608 == pytest.approx(1250e12, rel=1e-6)


def test_a_tpu_v4_chip_is_eight_arrays_of_128_by_128_at_1050_megahertz() -> None:
    assert bf16_flop_per_s(machine("tpu_v4")) == pytest.approx(8 * 128 * 128 * 2 * 1.05e9, rel=1e-6)


@pytest.mark.parametrize("name", SWITCHED)
def test_131072_accelerators_are_accepted_and_one_too_many_is_an_error(name: str) -> None:
    assert read_architecture(name, ["accelerators=131072"]).used == 131072
    available = machine(name).available
    with pytest.raises(InputError, match=f"the tree has {available}"):
        read_architecture(name, [f"accelerators={available + 1}"])


def test_a_tpu_v4_pod_has_4096_chips_in_cubes_of_64() -> None:
    inner, outer = machine("tpu_v4").tiers
    assert (inner.children, outer.children, machine("tpu_v4").available) == (64, 64, 4096)
    assert inner.network.shape == outer.network.shape == (4, 4, 4)


@pytest.mark.parametrize(
    ("name", "chips", "both_ways"), [("tpu_v5e", 256, 400e9), ("tpu_v6e", 256, 800e9), ("tpu_v5p", 64, 1200e9), ("tpu_v7x", 64, 1200e9)]
)
def test_links_of_a_chip_in_all_dimensions_are_those_that_google_counts_both_ways(name: str, chips: int, both_ways: float) -> None:
    inner = machine(name).tiers[0]
    assert inner.network.shape is not None
    assert inner.children == chips
    assert inner.network.bandwidth_bytes_per_s * inner.network.links * len(inner.network.shape) * 2 == pytest.approx(both_ways)


def test_links_of_a_trainium2_chip_inside_and_between_instances_are_1280_gigabytes_both_ways() -> None:
    inside, between = (machine("trn2_ultra").tiers[number].network for number in (0, 1))
    assert inside.shape == (4, 4)
    one_way = inside.bandwidth_bytes_per_s * inside.links * 2 + between.bandwidth_bytes_per_s * between.links / 16
    assert one_way * 2 == pytest.approx(1280e9)
    assert (machine("tpu_v7x").available, machine("trn2_ultra").available) == (9216, 16384)


def test_72_gpus_of_a_rack_share_one_nvlink_domain_whatever_node_they_are_in() -> None:
    node, rack, su = machine("gb200_nvl72").tiers[:3]
    assert (node.level, rack.level, su.below) == ("node", "rack", 72)
    same = ("topology", "bandwidth_bytes_per_s", "latency_s", "energy_j_per_byte", "oversubscription")
    assert [getattr(node.network, key) for key in same] == [getattr(rack.network, key) for key in same]
    assert rack.network.bandwidth_bytes_per_s * 2 * 72 == pytest.approx(130e12, rel=0.005)


@pytest.mark.parametrize("name", SYSTEMS)
def test_no_link_above_the_scale_up_domain_is_faster_or_cheaper_than_one_below(name: str) -> None:
    networks = [tier.network for tier in machine(name).tiers]
    for below, above in pairwise(networks):
        assert above.bandwidth_bytes_per_s <= below.bandwidth_bytes_per_s
        assert above.latency_s >= below.latency_s
        assert above.energy_j_per_byte >= below.energy_j_per_byte


def test_a_path_of_the_ndr_network_costs_its_nics_links_and_switches() -> None:
    """By hand, pJ/bit: NIC 60, optics 21.25 + 22.5 a link, switch 29; leaf, leaf-spine-leaf, and through the core."""
    want = [2 * 60 + links * 43.75 + (links - 1) * 29 for links in (2, 4, 6)]
    assert want == [236.5, 382, 527.5]
    found = [tier.network.energy_j_per_byte / 8e-12 for tier in machine("dgx_h100").tiers[1:]]
    assert found == pytest.approx(want, rel=1e-12)


def test_a_ring_over_two_nodes_uses_all_rails_and_eight_rings_share_them() -> None:
    """By hand: 2 (p - 1) / p of the message, at 8 x 50 GB/s where one ring leaves the node, at 50 GB/s where eight do."""
    found = machine("dgx_h100")
    one = collective(found, np.arange(16).reshape(1, 16), "all_reduce")
    eight = collective(found, np.arange(16).reshape(2, 8).T, "all_reduce")
    assert sum(one.seconds_per_byte) == pytest.approx(2 * 15 / 16 / 400e9)
    assert sum(eight.seconds_per_byte) == pytest.approx(2 * 1 / 2 / 50e9)


def full_load_watts(name: str, end: str) -> float:
    """What the published maximum covers: GPUs at TDP, the static power of node (and rack), NVLink and NICs at full rate.

    end: mid, low or high of every range. A NIC is 50, 60 or 62.5 pJ/bit (as in the files), one way at full rate.
    """
    found, gpus = machine(name), 72 if name == "gb200_nvl72" else 8
    instances = {"node": gpus // found.level("gpu").count, "rack": 1} if gpus == 72 else {"node": 1}
    power = gpus * published(name, "GPU at most")
    for level, count in instances.items():
        static = found.level(level).static_power_w
        power += count * (static if end == "mid" else getattr(static, end))
    inner, outer = found.tiers[0].network, found.tiers[-1].network
    energy = inner.energy_j_per_byte if end == "mid" else getattr(inner.energy_j_per_byte, end)
    nic = {"low": 50e-12, "mid": 60e-12, "high": 62.5e-12}[end] * 8
    return float(power + gpus * (inner.bandwidth_bytes_per_s * energy + outer.bandwidth_bytes_per_s * nic))


@pytest.mark.parametrize("name", SWITCHED)
def test_a_node_at_full_load_draws_no_more_than_published(name: str) -> None:
    most = published(name, "rack at most" if name == "gb200_nvl72" else "node at most")
    assert 0.75 * most < full_load_watts(name, "mid") <= most


@pytest.mark.parametrize("name", [name for name in SWITCHED if name.startswith("dgx")])
def test_even_the_high_ends_together_stay_within_a_node_s_published_power(name: str) -> None:
    assert full_load_watts(name, "high") <= published(name, "node at most")


def test_a_dgx_h100_with_busy_gpus_draws_what_was_measured_in_training() -> None:
    """8.4 kW at most with GPUs near full use; links idle. The static power's high end is derived from it, its mid is lower."""
    static, gpus = machine("dgx_h100").level("node").static_power_w, 8 * published("dgx_h100", "GPU at most")
    assert static.high + gpus == pytest.approx(published("dgx_h100", "node in training"))  # type: ignore[attr-defined]
    assert static + gpus == pytest.approx(published("dgx_h100", "node in training"), rel=0.05)


@pytest.mark.parametrize("name", [*SYSTEMS, "mi300x_nodes", "mi325x_nodes", "mi355x_nodes"])
def test_every_source_says_how_far_it_can_be_trusted(name: str) -> None:
    found, todo = [], [load("architecture", name).mapping["tree"]]
    while todo:
        node = todo.pop()
        source = node.child("source")
        if source is not None:
            found.append(source.text or "")
        todo += [*node.mapping.values(), *node.items]
    assert [text for text in found if not any(word in text for word in STATUSES)] == []


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_mapping_of_the_rack_paper_s_layer_is_found_and_weights_may_live_beside_the_host(name: str, tmp_path: Path) -> None:
    home = "cube" if name == "tpu_v4" else "node"
    mapper = tmp_path / "host.yaml"
    mapper.write_text("mapper: host\naxes: {dp: {degree: all}}\nsplit: {dp: [m]}\nhomes: {weights: {at: " + home + "}}\nuneven: ceil\n")
    count = 4 if name == "gb200_nvl72" else 8  # the accelerators of one host; of two, each keeps its own at its host
    here, there = (api.search(name, "ffn", one, sets=[f"accelerators={count}"]).result for one in ("data", str(mapper)))
    many = api.search(name, "ffn", str(mapper), sets=["accelerators=128"]).result
    assert many.mapping.step is not None
    assert (many.mapping.step.offload, many.mapping.step.host) == (["weights"], home)
    assert there.memory_bytes_per_accelerator < here.memory_bytes_per_accelerator
    moved = [row for row in there.ledger if row.level == home and row.component == "memory"]
    assert moved
    assert all(row.amount > 0 for row in moved)


def facts(node: Marked, path: str = "") -> list[str]:
    """Dotted paths of the leaves of a profile that state something about a framework."""
    found = []
    for key, child in node.mapping.items():
        if key in ("profile", "source", "sources", "note"):
            continue
        here = f"{path}{key}"
        inner = isinstance(child.value, dict) and "mid" not in child.mapping
        found += facts(child, f"{here}.") if inner else [here]
    return found


@pytest.mark.parametrize("name", PROFILES)
def test_every_fact_of_a_profile_has_a_source_and_every_source_a_fact(name: str) -> None:
    raw = load("profile", name)
    read, stated = read_profile(name), facts(raw)
    assert len(stated) >= 10
    unsourced = [fact for fact in stated if not any(fact == key or fact.startswith(f"{key}.") for key in read.sources)]
    assert unsourced == []
    assert [key for key in read.sources if not any(fact == key or fact.startswith(f"{key}.") for fact in stated)] == []
    words = (*STATUSES, "unknown")
    assert [text for text in read.sources.values() if not any(word in text for word in words)] == []


def test_frameworks_differ_where_their_documents_say_so() -> None:
    old, core, plain, titan = (read_profile(name) for name in PROFILES)
    assert (old.attention, old.overlap.weights, old.overlap.hides_gradients, old.overlap.sends) == ("unfused", False, False, False)
    assert all(window.share == 0 for profile in (old, plain) for window in profile.overlap.windows.values())
    assert {core.overlap.windows["all_gather"].beside, titan.overlap.windows["all_gather"].beside} == {"reader"}
    assert {core.overlap.windows["reduce_scatter"].beside, titan.overlap.windows["reduce_scatter"].beside} == {"maker"}
    assert core.overlap.sends
    assert not titan.overlap.sends
    assert (plain.pointwise, titan.pointwise) == ("unfused", "fused")
    assert old.overlap.contention == 0
    assert {profile.overlap.contention for profile in (core, plain, titan)} == {0.31}
