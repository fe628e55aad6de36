"""Collective algorithms: worked by hand, against measurements, one group against all, and many meshes at once."""

from __future__ import annotations

import csv
import itertools
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackmodel.cost.network.collectives import (
    ALGORITHMS,
    KINDS,
    best_collective,
    collective,
    collective_table,
    mesh_collective,
    offered,
    send,
    send_table,
)
from rackmodel.errors import InputError
from rackmodel.model.architecture import Architecture
from rackmodel.model.placement import Mesh, accelerators, members
from tests import samples
from tests.tiers import FIGURES, machine, priced

ADDS = {"multicast": True, "reduce": True}


def group(p: int) -> np.ndarray:
    return np.arange(p)[None, :]


# -- worked by hand --------------------------------------------------------------------------------------------------------


def test_a_hierarchy_is_6_8_times_faster_than_a_flat_ring_on_4_racks_of_8() -> None:
    """By hand (one ring; or scatter in the rack, sum across, gather): 470 MB, 2.68 ms and 0.725 J against 18.20 ms and 0.848 J."""
    inner, outer = {"bandwidth": "900 GB/s", "energy": "1.3 pJ/bit"}, {"bandwidth": "50 GB/s", "energy": "20 pJ/bit"}
    arch = machine((8, inner), (4, outer))
    for name, seconds, joules in (("hierarchical", 2.676e-3, 0.725), ("ring", 18.21e-3, 0.848)):
        use = collective(arch, group(32), "all_reduce", name)
        assert use.total(470e6) == pytest.approx(seconds, rel=1e-3)
        assert sum(use.joules_per_byte) * 470e6 == pytest.approx(joules, rel=1e-3)


def test_a_hierarchy_starts_up_once_for_each_neighbour_of_each_tier() -> None:
    arch = machine((4, {"latency": "1 us"}), (2, {"latency": "5 us"}), (3, {"latency": "9 us"}))
    starts = 3 * 1e-6 + 1 * 5e-6 + 2 * 9e-6
    for kind, times in (("all_reduce", 2), ("all_gather", 1), ("reduce_scatter", 1)):
        assert sum(collective(arch, group(24), kind, "hierarchical").latency_s) == pytest.approx(times * starts)
    slope = 3 / 4 + 1 / 2 / 4 + 2 / 3 / 8  # (q − 1)/q of V/M, M = 1, 4, 8
    assert collective(arch, group(24), "all_gather", "hierarchical").total(100e9) == pytest.approx(slope + starts)


def test_a_hierarchical_all_to_all_gathers_for_the_node_before_it_leaves() -> None:
    arch = machine((4, {"latency": "1 us"}), (2, {"latency": "5 us", "bandwidth": "10 GB/s"}))
    use = collective(arch, group(8), "all_to_all", "hierarchical")
    assert use.wire_bytes_per_byte == pytest.approx((8 * 3 / 4, 8 * 1 / 2))
    assert use.total(1e9) == pytest.approx(3 / 4 / 100 + 1 / 2 / 10 + 3e-6 + 5e-6)  # one message to the equal over there, not four
    assert collective(arch, group(8), "all_to_all").latency_s[1] == pytest.approx(7 * 5e-6)


def test_two_trees_carry_the_message_twice_through_an_inner_member() -> None:
    one = machine((8, {"latency": "1 us"}))
    assert collective(one, group(2), "all_reduce", "tree").total(1e9) == pytest.approx(0.01 + 2e-6)  # V up, V down on the two directions
    assert collective(one, group(8), "all_reduce", "tree").total(1e9) == pytest.approx(0.02 + 2 * 7e-6)
    nodes = machine((1, {}), (8, {"latency": "1 us"}))  # a member a node: 7 edges of V/2 in either tree, up and down
    use = collective(nodes, group(8), "all_reduce", "tree")
    assert use.total(1e9) == pytest.approx(0.02 + 2 * 3e-6)
    assert use.wire_bytes_per_byte == pytest.approx((0, 14))
    assert collective(nodes, group(8), "broadcast", "tree").total(1e9) == pytest.approx(0.01 + 4e-6)  # 0 → 7 → 3 → 5 → 6


@pytest.mark.parametrize("nodes", range(2, 40))
@pytest.mark.parametrize("kind", ["all_reduce", "broadcast", "reduce"])
def test_both_trees_reach_every_node_within_the_logarithm(nodes: int, kind: str) -> None:
    use = collective(machine((1, {}), (nodes, {"latency": "1 us"})), group(nodes), kind, "tree")
    edges = (2 if kind == "all_reduce" else 1) * (nodes - 1)
    assert use.wire_bytes_per_byte == pytest.approx((0, edges))
    depth = int(np.ceil(np.log2(nodes)))
    assert sum(use.latency_s) <= (2 if kind == "all_reduce" else 1) * (depth + 1) * 1e-6 + 1e-12


def test_halving_and_doubling_needs_a_step_a_bit_and_two_more_rounds_for_other_numbers() -> None:
    arch = machine((8, {"latency": "1 us"}))
    assert collective(arch, group(8), "all_reduce", "halving_doubling").total(1e9) == pytest.approx(2 * 7 / 8 / 100 + 6e-6)
    assert collective(arch, group(8), "all_gather", "halving_doubling").total(1e9) == pytest.approx(7 / 8 / 100 + 3e-6)
    six = collective(arch, group(6), "all_reduce", "halving_doubling")
    assert six.total(1e9) == pytest.approx((2 * 3 / 4 + 2) / 100 + 6e-6)
    assert six.wire_bytes_per_byte == pytest.approx((4 * 2 * 3 / 4 + 2 * 2,))
    halves = collective(machine((4, {}), (2, {"bandwidth": "10 GB/s"})), group(8), "all_reduce", "halving_doubling")
    assert halves.seconds_per_byte == pytest.approx((2 * 3 / 4 / 100e9, 2 * 1 / 8 / 10e9))  # the least crosses the nodes


def test_a_switch_that_adds_carries_one_and_an_eighth_messages() -> None:
    arch = machine((8, ADDS | {"in_network_efficiency": 0.85, "in_network_latency": "25 us", "sustained": 0.8}))
    reduced = collective(arch, group(8), "all_reduce", "in_network")
    assert reduced.total(1e9) == pytest.approx(9 / 8 / (100 * 0.8 * 0.85) + 25e-6)
    assert reduced.wire_bytes_per_byte == pytest.approx((9,))  # 8 members send V + V/8 up and get as much; the ring moves 14
    gathered = collective(arch, group(8), "all_gather", "in_network")
    assert gathered == collective(arch, group(8), "reduce_scatter", "in_network")
    assert gathered.total(1e9) == pytest.approx(1 / (100 * 0.8 * 0.85) + 25e-6)
    assert gathered.wire_bytes_per_byte == pytest.approx((9 / 2,))


def test_a_tree_of_switches_carries_the_message_once_over_each_edge() -> None:
    arch = machine((1, {}), (4, ADDS | {"latency": "2 us"}), (3, ADDS | {"latency": "3 us", "links": 1}))
    use = collective(arch, group(12), "all_reduce", "in_network")
    assert use.wire_bytes_per_byte == pytest.approx((0, 12, 3))
    assert use.total(1e9) == pytest.approx(0.01 + 2 * 2e-6 + 2 * 3e-6)


def test_switches_add_inside_and_rings_run_between() -> None:
    arch = machine((8, ADDS | {"latency": "1 us"}), (4, {"bandwidth": "10 GB/s", "latency": "5 us"}))
    use = collective(arch, group(32), "all_reduce", "in_network")
    assert use.total(1e9) == pytest.approx(2 * (1 / 100 + 1e-6) + 2 * 3 / 4 / 8 / 10 + 6 * 5e-6)
    rails = machine((8, ADDS), (4, ADDS | {"bandwidth": "10 GB/s", "latency": "5 us"}))
    assert collective(rails, group(32), "all_reduce", "in_network").total(1e9) == pytest.approx(2 / 100 + 1 / 8 / 10 + 2 * 5e-6)


@pytest.mark.parametrize(
    ("same", "speed", "seconds"),
    [(True, 100, 33 / 32 / 100), (True, 90, 1 / 90), (False, 100, 2 / 100 + 1 / 8 / 100), (False, 90, 2 / 100 + 1 / 8 / 90)],
)
def test_what_a_switch_added_goes_on_over_the_same_links_alone(same: bool, speed: float, seconds: float) -> None:
    """By hand, 8 below a switch, 4 of these: one switch of 32; a tree, whose upper edges are slower, carries a message once over each;
    links of an accelerator's own into the outer one take an eighth of it, which it got from the inner one."""
    arch = machine((8, ADDS), (4, ADDS | {"bandwidth": f"{speed} GB/s", "same_links": same}))
    assert collective(arch, group(32), "all_reduce", "in_network").total(1e9) == pytest.approx(seconds)


def test_two_tiers_of_one_switch_are_one_switch() -> None:
    """As the nodes and the rack of an NVL72: every accelerator has its own link to the rack's switches."""
    arch = machine((4, ADDS | {"latency": "1 us"}), (18, ADDS | {"latency": "1 us"}))
    use = collective(arch, group(72), "all_reduce", "in_network")
    assert use.total(1e9) == pytest.approx(73 / 72 / 100 + 1e-6)


# -- rails -----------------------------------------------------------------------------------------------------------------


def dgx(nodes: int, nics: int = 8) -> Architecture:
    return machine((8, {"bandwidth": "300 GB/s"}), (nodes, {"bandwidth": "25 GB/s", "links": nics, "striped": True}))


@pytest.mark.parametrize(
    ("p", "stride", "nics", "rails"),
    [(16, 1, 8, 8), (16, 1, 4, 4), (4, 8, 8, 1), (4, 8, 4, 0.5), (8, 4, 8, 2), (12, 1, 8, 4)],
    ids=["whole nodes", "fewer NICs", "a member a node", "two groups a NIC", "two members a node", "nodes and halves"],
)
def test_a_ring_has_a_rail_for_each_member_in_the_node_as_far_as_there_are_nics(p: int, stride: int, nics: int, rails: float) -> None:
    nodes = -(-p * stride // 8) if p != 12 else 6
    mesh = Mesh(("far", "group", "near"), (max(1, nodes * 8 // (p * stride)), p, stride), (p * stride, stride, 1))
    use = mesh_collective(dgx(nodes, nics), mesh, ["group"], "all_gather")
    assert use.total(1.0) == pytest.approx((p - 1) / p / (rails * 25e9))


def test_a_lone_group_with_a_member_a_node_has_one_rail_and_a_lone_send_too() -> None:
    arch = dgx(4)
    assert collective(arch, np.array([[0, 8, 16, 24]]), "all_gather").total(1.0) == pytest.approx(3 / 4 / 25e9)
    assert collective(arch, np.array([[0, 1, 8, 9]]), "all_gather").total(1.0) == pytest.approx(3 / 4 / 50e9)
    assert send(arch, np.array([0]), np.array([8])).total(1.0) == pytest.approx(1 / 25e9)
    assert collective(arch, np.array([[0, 8]]), "all_to_all").total(1.0) == pytest.approx(1 / 2 / 25e9)


def test_a_tree_of_a_rack_of_one_switch_is_bound_by_the_links_of_its_inner_members() -> None:
    rack = machine((4, {}), (18, {}))  # node and rack are one switch: a GPU has one link for both
    lone = collective(rack, np.arange(18)[None, :] * 4, "all_reduce", "tree")
    assert lone.total(1.0) == pytest.approx(2 / 100e9)  # two up and two down of V/2 on a link, whatever links its neighbours have free
    whole = collective(rack, group(72), "all_reduce", "tree")
    assert whole.total(1.0) == pytest.approx(3 / 100e9)  # and V down the chain of its node
    two = collective(rack, group(8), "all_reduce", "tree")
    assert two.total(1.0) == pytest.approx(2 / 100e9)  # V/2 in either tree, V down the chain
    apart = machine((4, {}), (18, {"bandwidth": "50 GB/s"}))
    assert collective(apart, group(72), "all_reduce", "tree").seconds_per_byte == pytest.approx((0, 2 / 50e9))  # a NIC carries no chain


def test_a_tree_over_two_whole_nodes_leaves_each_once_over_all_rails() -> None:
    use = collective(dgx(2), group(16), "all_reduce", "tree")
    assert use.seconds_per_byte == pytest.approx((2 / 300e9, 0))  # 1 / 200e9 between nodes is less than the chain's two messages
    assert collective(dgx(2), group(16), "all_reduce").total(1.0) == pytest.approx(2 * 15 / 16 / 200e9)


# -- which apply, and which is best ----------------------------------------------------------------------------------------


def test_an_algorithm_that_does_not_apply_is_not_offered() -> None:
    plain, adds = machine((8, {}), (4, {})), machine((8, ADDS), (4, {}))
    whole, node = Mesh(("a",), (32,), (1,)), Mesh(("a", "b"), (8, 4), (1, 8))
    assert offered(plain, whole, ["a"], "all_reduce") == ("ring", "tree", "halving_doubling", "hierarchical")
    assert offered(adds, whole, ["a"], "all_gather") == ("ring", "halving_doubling", "hierarchical", "in_network")
    assert offered(adds, node, ["a"], "reduce_scatter") == ("ring", "halving_doubling", "in_network")
    assert offered(adds, node, ["b"], "all_gather") == ("ring", "halving_doubling")
    assert offered(adds, Mesh(("a",), (10,), (1,)), ["a"], "all_reduce") == ("ring", "tree", "halving_doubling")  # 8 here and 2 there
    assert offered(adds, whole, ["a"], "halo") == ("ring",)
    with pytest.raises(InputError, match="does not apply"):
        mesh_collective(plain, whole, ["a"], "all_gather", "in_network")
    table = collective_table(adds, [[32], [8], [10]], [[1], [1], [1]], ["a"], ["a"], "all_reduce", "hierarchical")
    assert table.offered.tolist() == [True, False, False]
    assert table.total(1.0).tolist()[1:] == [np.inf, np.inf]


def test_the_best_algorithm_depends_on_the_message() -> None:
    arch = machine((8, ADDS | {"latency": "1 us", "in_network_latency": "25 us"}))
    mesh, sizes = Mesh(("a",), (8,), (1,)), np.array([[1e3, 1e6], [1e8, 1e10]])
    choice = best_collective(arch, mesh, ["a"], "all_reduce", sizes)
    asked = [name for name in ALGORITHMS if name not in ("line", "torus", "direct", "hierarchical")]
    every = {name: mesh_collective(arch, mesh, ["a"], "all_reduce", name) for name in asked}
    times = np.array([use.total(sizes) for use in every.values()])
    assert np.array_equal(choice.seconds, times.min(axis=0))
    assert np.array_equal(choice.algorithms, np.array(list(every))[times.argmin(axis=0)])
    assert choice.algorithms.tolist() == [["halving_doubling", "halving_doubling"], ["in_network", "in_network"]]
    assert choice.joules[0, 0] == pytest.approx(sum(every[choice.algorithms[0, 0]].joules_per_byte) * 1e3)
    assert set(best_collective(arch, mesh, ["a"], "all_reduce", sizes, ["ring"]).algorithms.ravel()) == {"ring"}


def test_a_tie_goes_to_the_algorithm_named_first() -> None:
    arch, mesh = machine((2, {"latency": "1 us"})), Mesh(("a",), (2,), (1,))
    for names in (["ring", "halving_doubling"], ["halving_doubling", "ring"]):
        assert best_collective(arch, mesh, ["a"], "all_reduce", 1e6, names).algorithms == names[0]
    with pytest.raises(InputError, match="none of tree"):
        best_collective(arch, mesh, ["a"], "all_gather", 1e6, ["tree"])


def test_a_call_starts_once_and_long_messages_reach_a_share_of_the_bandwidth() -> None:
    arch = machine((4, {"start": "10 us", "sustained": 0.8}), (2, {"start": "30 us", "sustained": 0.5}))
    for name in ("ring", "tree", "halving_doubling", "hierarchical"):
        assert sum(collective(arch, group(8), "all_reduce", name).latency_s) == pytest.approx(30e-6)
    assert collective(arch, group(4), "all_gather").total(1e9) == pytest.approx(10e-6 + 3 / 4 / 80)
    assert sum(send(arch, np.array([0]), np.array([4])).latency_s) == 0
    for wrong in ({"sustained": 1.1}, {"in_network_efficiency": 0}):
        with pytest.raises(Exception, match="above 0 and at most 1"):
            machine((4, wrong))


# -- one group for all -----------------------------------------------------------------------------------------------------

TIERS = st.lists(
    st.tuples(
        st.sampled_from([1, 2, 3, 4, 6, 8]),
        st.sampled_from(["switch", "switch", "ring", "torus", "tree", "point_to_point"]),
        st.sampled_from([None, 1, 2, 4, 8]),
        st.booleans(),
        st.booleans(),
        st.sampled_from([1, 2]),
        st.sampled_from(["slowest_link", "path_sum"]),
    ),
    min_size=1,
    max_size=3,
)


def drawn(tiers: list[Any]) -> Architecture:
    found = []
    for number, (count, topology, links, striped, adds, over, hops) in enumerate(tiers):
        shape = {"torus": {"shape": [2, count // 2] if count % 2 == 0 else [1, count]}, "tree": {"fanout": 2}}.get(topology, {})
        rest = {
            "pair_links" if topology == "point_to_point" else "links": links,
            "striped": striped,
            "multicast": adds,
            "reduce": adds,
            "oversubscription": over,
            "hops": hops,
        }
        own = {"topology": topology, "bandwidth": f"{900 // 7**number} GB/s", "latency": f"{1 + 3 * number} us", "start": "5 us"}
        found.append((count, own | rest | shape))
    return machine(*found)


@st.composite
def meshes(draw: Any) -> tuple[Architecture, Mesh, tuple[str, ...]]:
    tiers = draw(TIERS)
    rest = int(np.prod([tier[0] for tier in tiers]))
    degrees = []
    for _ in range(draw(st.integers(1, 4))):
        degrees.append(draw(st.sampled_from([d for d in range(1, rest + 1) if rest % d == 0])))
        rest //= degrees[-1]
    strides, reach = [1] * len(degrees), 1
    for axis in draw(st.permutations(range(len(degrees)))):
        strides[axis], reach = reach, reach * degrees[axis]
    axes = tuple("abcd"[: len(degrees)])
    return drawn(tiers), Mesh(axes, tuple(degrees), tuple(strides)), tuple(axis for axis in axes if draw(st.booleans()))


@settings(max_examples=samples.cases(50, 150))
@given(meshes(), st.sampled_from(KINDS))
def test_one_group_prices_a_mesh_as_all_groups_do(case: Any, kind: str) -> None:
    arch, mesh, axes = case
    for name in ALGORITHMS:
        one, every = priced(mesh_collective, arch, mesh, axes, kind, name), priced(collective, arch, members(mesh, axes), kind, name)
        assert (one is None) == (every is None)
        for figure in FIGURES if one else ():
            np.testing.assert_allclose(getattr(one, figure), getattr(every, figure), rtol=1e-12)


def _joined(links: int, *, apart: bool) -> dict[str, Any]:
    return {"topology": "point_to_point", "pair_links": links} if apart else {"links": links}


@settings(max_examples=samples.cases(60, 600))
@given(st.lists(st.sampled_from([2, 3, 4, 8]), min_size=1, max_size=3), st.booleans(), st.sampled_from([1, 2]), st.data())
def test_no_link_carries_more_than_it_can(sizes: list[int], one: bool, links: int, data: Any) -> None:
    """All bytes of all groups take at least as long as all links need that could carry them. one: the switches of all tiers are joined by
    the same links; else some are links of pairs."""
    striped = data.draw(st.booleans())
    reach = np.cumprod([1, *sizes]).tolist()
    rates = [100 if one else 100 - 30 * number for number in range(len(sizes))]
    paired = [not one and data.draw(st.booleans()) for _ in sizes]
    tiers = [
        (size, {"bandwidth": f"{rate} GB/s", "striped": striped} | _joined(links * below, apart=own))
        for size, rate, below, own in zip(sizes, rates, reach, paired, strict=False)
    ]
    near = data.draw(st.sampled_from(reach))
    degree = data.draw(st.sampled_from([d for d in range(2, reach[-1] + 1) if reach[-1] % (d * near) == 0] or [1]))
    mesh = Mesh(("far", "group", "near"), (max(1, reach[-1] // (degree * near)), degree, near), (degree * near, near, 1))
    for kind, name in itertools.product(KINDS, [name for name in ALGORITHMS if name != "in_network"]):
        use = priced(mesh_collective, machine(*tiers), mesh, ["group"], kind, name)
        if use is None:
            continue
        least = [
            wire / (reach[-1] * links * (sizes[number] - 1 if paired[number] else 1) * rates[number] * 1e9)
            for number, wire in enumerate(use.wire_bytes_per_byte)
        ]
        assert use.total(1.0) >= (sum(least) if one else max(least)) * (1 - 1e-12)


@settings(max_examples=60)
@given(meshes(), st.booleans())
def test_hand_overs_of_a_mesh_are_the_sends_of_its_pairs(case: Any, far: bool) -> None:
    arch, mesh, _ = case
    stages, stride = mesh.degrees[-1], mesh.strides[-1]
    table = send_table(arch, [mesh.degrees[:-1]], [mesh.strides[:-1]], [stages], [stride], far=far)
    if stages > 1:
        here = accelerators(Mesh(mesh.axes, (*mesh.degrees[:-1], 1 if far else stages - 1), mesh.strides))
        one = send(arch, here, here + stride * (stages - 1 if far else 1))
        for figure in FIGURES:
            np.testing.assert_allclose(getattr(table, figure)[:, 0], getattr(one, figure), rtol=1e-12)
    else:
        assert not table.wire_bytes_per_byte.any()


POWERS = [2**k for k in range(18)]


def splits(total: int) -> tuple[np.ndarray, np.ndarray]:
    """([D, 3] degrees, strides) of every split of 2^k accelerators over three axes, in every order."""
    found = []
    for a, b in itertools.product(POWERS, repeat=2):
        if total % (a * b) == 0:
            degrees = (a, b, total // (a * b))
            for order in itertools.permutations(range(3)):
                reach, strides = 1, [0, 0, 0]
                for axis in order:
                    strides[axis], reach = reach, reach * degrees[axis]
                found.append((degrees, tuple(strides)))
    return np.array([degrees for degrees, _ in found]), np.array([strides for _, strides in found])


def test_a_table_is_as_mesh_by_mesh() -> None:
    arch = machine((8, ADDS | {"latency": "1 us"}), (4, {"bandwidth": "25 GB/s", "striped": True}), (4, {"bandwidth": "20 GB/s"}))
    degrees, strides = splits(128)
    degrees, strides = np.vstack([degrees, [[5, 3, 1]]]), np.vstack([strides, [[3, 1, 1]]])  # 3 and 5 do not divide 8: enumerated
    for kind, name in (("all_reduce", "ring"), ("all_reduce", "tree"), ("all_gather", "in_network"), ("all_to_all", "hierarchical")):
        table = collective_table(arch, degrees, strides, "abc", "ac", kind, name)
        for column, (degree, stride) in enumerate(zip(degrees.tolist(), strides.tolist(), strict=True)):
            use = priced(mesh_collective, arch, Mesh(tuple("abc"), tuple(degree), tuple(stride)), "ac", kind, name)
            assert (use is not None) == table.offered[column]
            for figure in FIGURES if use else ():
                np.testing.assert_allclose(getattr(table, figure)[:, column], getattr(use, figure), rtol=1e-12)


def test_every_mesh_of_131072_accelerators_is_offered_a_ring() -> None:
    rail = {"bandwidth": "50 GB/s", "striped": True, "latency": "4 us"}
    arch = machine((8, {"latency": "2 us"}), (32, rail), (64, rail), (8, rail))
    degrees, strides = splits(131072)
    table = collective_table(arch, degrees, strides, "abc", "a", "all_reduce")
    assert table.offered.all()
    assert np.isfinite(table.seconds_per_byte).all()


# -- against measurements --------------------------------------------------------------------------------------------------

MEASURED = list(csv.DictReader((Path(__file__).parent / "data/published/collectives.csv").read_text().splitlines()))
# Fitted to the rows below, one set a technology; sustained shares of 300, 450 and 900 GB/s a GPU and of 50 GB/s a NIC.
NVLINK3 = {"bandwidth": "300 GB/s", "latency": "2.08 us", "start": "37.7 us", "sustained": 0.721}
NVLINK4 = ADDS | {"bandwidth": "450 GB/s", "latency": "2.08 us", "start": "37.7 us", "sustained": 0.822}
NVLINK4 |= {"in_network_efficiency": 0.852, "in_network_latency": "100 us"}
NVLINK5 = ADDS | {"bandwidth": "900 GB/s", "latency": "2.08 us", "start": "20 us", "sustained": 0.75}
NVLINK5 |= {"in_network_efficiency": 0.791, "in_network_latency": "220 us"}
EFA = {"bandwidth": "50 GB/s", "latency": "90 us", "sustained": 0.97, "striped": True}
NCCL = ("ring", "tree", "in_network")  # what the measured library had
SETS: dict[str, tuple[str, dict[str, float]]] = {  # rows, and the mean error that must not be passed, by size class
    "A100, 2 to 8 on NVLink 3": ("vt_a100", {"32K-16M": 0.15, "16-64M": 0.05, ">=64M": 0.05}),
    "A100, 4, another library": ("llmcompass", {">=64M": 0.05}),
    "H100 and H200 on NVLink 4": ("h100_1n h100_ring h100_nvls sharp_H200", {">=64M": 0.05}),
    "B200, 4 to 8 on NVLink 5": ("b200_1n sharp_B200", {"32K-16M": 0.15, ">=64M": 0.05}),
    "B200, 32 over EFA": ("b200_4n", {"32K-16M": 0.15, "16-64M": 0.25, ">=64M": 0.09}),
}


@cache
def measured_machine(gpu: str, nodes: int) -> Architecture:
    inner = {"A": NVLINK3, "H": NVLINK4, "B": NVLINK5}[gpu[0]]
    return machine((8, inner), (4, EFA))


def error(row: dict[str, str]) -> float:
    """Relative error of the modelled time; the ring's where the row says that NVLS was off."""
    p, size = int(row["n_gpus"]), float(row["size_bytes"])
    taken = float(row["time_us"]) * 1e-6 if row["time_us"] else 2 * (p - 1) / p * size / (float(row["busbw_gbs"]) * 1e9)
    names = ("ring",) if "ring" in row["algo"].lower() else NCCL
    choice = best_collective(measured_machine(row["gpu"], 1), Mesh(("a",), (p,), (1,)), ["a"], "all_reduce", size, names)
    return float(choice.seconds) / taken - 1


def size_class(size: float) -> str:
    return "<32K" if size < 2**15 else "32K-16M" if size <= 2**24 else "16-64M" if size < 2**26 else ">=64M"


@pytest.mark.parametrize("title", SETS)
def test_measured_all_reduces_are_met(title: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Goals: 5 % from 64 MiB, 15 % from 32 KiB to 16 MiB; on one node all reach the first.

    Not reached: B200 over EFA, 128 and 256 MiB, is 15 to 20 % slower than start and plateau say (a bend that no line has). The other A100
    library starts in 13 us, not 50: its messages up to 512 KiB are far below the set, which is not bent for them.
    """
    starts, goals = SETS[title]
    errors: dict[str, list[float]] = defaultdict(list)
    for row in MEASURED:
        if row["id"].startswith(tuple(starts.split())):
            errors[size_class(float(row["size_bytes"]))].append(error(row))
    with capsys.disabled():
        text = ", ".join(
            f"{k} {100 * np.mean(np.abs(v)):.1f} % of {len(v)} (bias {100 * np.mean(v):+.1f})" for k, v in sorted(errors.items())
        )
        print(f"\n{title}: {text}")
    for name, most in goals.items():
        assert np.mean(np.abs(errors[name])) <= most


def test_two_nodes_ring_tells_what_the_tree_takes() -> None:
    """An untuned pair of H100 nodes (nccl-tests#290), from 512 MiB on: its uplink is 89.9 GB/s, as the ring's last row shows."""
    rows = [row for row in MEASURED if row["id"].startswith("h100_2n") and float(row["size_bytes"]) >= 2**29]
    uplink = {"bandwidth": "50 GB/s", "sustained": 89.9 / 400, "striped": True, "latency": "4 us"}
    arch = machine((8, NVLINK4), (2, uplink))
    errors: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        name = "ring" if "ring" in row["id"] else "tree"
        seconds = collective(arch, group(16), "all_reduce", name).total(float(row["size_bytes"]))
        errors[name].append(float(seconds) / (float(row["time_us"]) * 1e-6) - 1)
    assert np.mean(np.abs(errors["ring"])) < 0.02
    assert np.mean(np.abs(errors["tree"])) < 0.15  # from no number of the tree's: of a ring 1.875 V leaves a node, of two trees V
