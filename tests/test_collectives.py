"""Collectives against the rack paper's tables, hand-worked numbers and what must always hold."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rackmodel.cost.network.algorithms import ALGORITHMS
from rackmodel.cost.network.collectives import collective, mesh_collective, send
from rackmodel.cost.network.fabric import fabric_of
from rackmodel.cost.network.likeness import canonical
from rackmodel.cost.network.link_groups import _moved, phased
from rackmodel.cost.network.placed import Groups, Placed, crossed, moved_together
from rackmodel.cost.network.streams import stream
from rackmodel.errors import InputError
from rackmodel.inputs.plain_yaml import loaded
from rackmodel.model.architecture import Architecture
from rackmodel.model.placement import Mesh, members
from rackmodel.validation.run import validate
from tests.tiers import machine

GOLDEN = loaded((Path(__file__).parent / "data/golden/rack_paper.yaml").read_text())


def network(**changes: Any) -> dict[str, Any]:
    return {"topology": "switch", "bandwidth": "100 GB/s", "latency": "0 s", "energy": "1 pJ/bit"} | changes


@cache
def rack_paper(rack: int, racks: int, hops: str) -> Architecture:
    inner = network(topology="ring", bandwidth="900 GB/s", energy="1.3 pJ/bit", hops=hops)
    outer = network(topology="ring", bandwidth="50 GB/s", energy="20 pJ/bit", hops=hops)
    return machine((rack, inner), (racks, outer))


def groups(*rows: range | list[int]) -> np.ndarray:
    return np.array([list(row) for row in rows])


# -- the rack paper --------------------------------------------------------------------------------------------------------


def rows() -> list[Any]:
    """(variant, accelerators of a rack, of every group: its size, what it does and four figures), by name."""
    found = []
    for family in ("ffn", "attention"):
        for variant, racks in GOLDEN[family].items():
            for rack, cases in racks.items():
                found.append(pytest.param(variant, int(rack.removeprefix("rack")), cases, id=f"{family}-{variant}-{rack}"))
    return found


def paper_uses(arch: Architecture, variant: str, n: int, what: str) -> list[tuple[Any, float]]:
    """(LinkUse, message bytes) of everything a golden row adds up."""
    x, everyone = GOLDEN["bytes"]["X"], groups(range(n))
    gather, scatter = (collective(arch, everyone, kind) for kind in ("all_gather", "reduce_scatter"))
    if what == "dp_bwd":
        return [(collective(arch, everyone, "all_reduce"), 4 * GOLDEN["parameters"][variant])]
    if what.startswith("tp_fwd"):
        return [(gather, x), (scatter, x)]
    if what.startswith("pptp"):
        hidden, t = GOLDEN["bytes"]["H"][variant], n // 2
        hand_over = [(send(arch, np.arange(t), np.arange(t) + t), hidden / t)]
        stages = [(collective(arch, groups(range(k * t, k * t + t)), "all_gather"), v) for k, v in enumerate((x, hidden))]
        return hand_over + (stages if what.endswith("allgather") else [])
    kv, scores, t = GOLDEN["bytes"]["K"][variant], GOLDEN["bytes"]["scores"], n // 6
    edges = [(0, 3, x), (1, 3, kv), (2, 4, kv), (4, 5, x)] + ([(3, 4, scores)] if what == "p2p_with_scores" else [])
    return [(send(arch, np.arange(t) + a * t, np.arange(t) + b * t), size / t) for a, b, size in edges]


@pytest.mark.parametrize(("variant", "rack", "cases"), rows())
def test_the_rack_papers_tables_are_reproduced(variant: str, rack: int, cases: list[Any]) -> None:
    for place, hops in enumerate(("slowest_link", "path_sum")):
        arch = rack_paper(rack, -(-48 // rack), hops)
        for n, what, *figures in cases:
            uses = paper_uses(arch, variant, n, what)
            seconds, (joules, wire) = figures[place], figures[2:]
            assert sum(use.total(size) for use, size in uses) == pytest.approx(float(seconds), rel=1e-5), (n, what)
            assert sum(sum(use.joules_per_byte) * size for use, size in uses) == pytest.approx(float(joules), rel=1e-5), (n, what)
            assert sum(sum(use.wire_bytes_per_byte) * size for use, size in uses) == pytest.approx(float(wire), rel=1e-5), (n, what)


# -- worked by hand --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "steps"), [("all_gather", 3), ("reduce_scatter", 3), ("all_reduce", 6)])
def test_one_tier_is_the_closed_form(kind: str, steps: int) -> None:
    arch = machine((4, network(latency="2 us")))
    use = collective(arch, groups(range(4)), kind)
    assert use.levels == ("tier0",)
    assert use.total(1e6) == pytest.approx(steps * (2e-6 + 1e6 / 4 / 100e9))  # K (α + V / (p B))
    assert use.wire_bytes_per_byte == pytest.approx((steps,))
    assert use.joules_per_byte == pytest.approx((steps * 8e-12,))


def test_slowest_link_puts_all_seconds_on_the_slowest_tier_and_path_sum_each_on_its_own() -> None:
    for hops, expected in (("slowest_link", (0.0, 3 / 4 / 10e9)), ("path_sum", (3 / 4 * 0.5 / 100e9, 3 / 4 * 0.5 / 10e9))):
        arch = machine((2, network()), (2, network(bandwidth="10 GB/s", hops=hops)))
        use = collective(arch, groups(range(4)), "all_gather")  # edges 0-1, 2-3 inside; 1-2, 3-0 across
        assert use.seconds_per_byte == pytest.approx(expected)
        assert use.wire_bytes_per_byte == pytest.approx((1.5, 1.5))


def test_the_outermost_tier_in_use_decides_the_reading() -> None:
    arch = machine((2, network(hops="path_sum")), (2, network(bandwidth="10 GB/s")))
    assert collective(arch, groups(range(4)), "all_gather").seconds_per_byte[0] == 0
    one_node = collective(arch, groups([0, 1], [2, 3]), "all_gather")
    assert one_node.seconds_per_byte == pytest.approx((0.5 / 100e9, 0))


def test_the_worst_group_sets_the_time_and_all_groups_the_energy() -> None:
    arch = rack_paper(8, 2, "slowest_link")
    use = collective(arch, members(Mesh(("d", "t"), (2, 5), (5, 1)), ["t"]), "all_gather")  # 0-4 in a rack, 5-9 over two
    assert use.total(1.0) == pytest.approx(4 / 5 / 50e9)
    assert use.wire_bytes_per_byte == pytest.approx((4 / 5 * 8, 4 / 5 * 2))


@pytest.mark.parametrize(("p", "stride", "edges"), [(16, 1, 1), (4, 8, 8), (12, 1, 2)])
def test_ring_edges_that_leave_the_busiest_node_share_its_links(p: int, stride: int, edges: int) -> None:
    count = 48
    mesh = Mesh(("far", "group", "near"), (count // (p * stride) or 1, p, stride), (p * stride, stride, 1))
    for links, striped, share in ((8, False, 1.0), (1, False, 1 / edges), (8, True, 8 / edges), (4, False, min(1, 4 / edges))):
        arch = machine((8, network()), (6, network(bandwidth="10 GB/s", links=links, striped=striped)))
        use = collective(arch, members(mesh, ["group"]), "all_gather")
        slowest = min(10e9 * share, 100e9 if p > 4 else np.inf)
        assert use.total(1.0) == pytest.approx((p - 1) / p / slowest)


def test_an_oversubscribed_switch_leaves_a_share_of_a_childs_links() -> None:
    for load, factor in ((1, 1.0), (8, 2.0)):  # one flow over 8 links is not slowed; 8 flows are
        arch = machine((8, network()), (2, network(bandwidth="10 GB/s", oversubscription=2)))
        rows = members(Mesh(("b", "a"), (2, 8), (8, 1)), ["b"])[:load]
        assert collective(arch, rows, "all_reduce").total(1.0) == pytest.approx(factor / 10e9)


def test_latency_is_paid_each_step_on_the_slowest_hop() -> None:
    arch = machine((2, network(latency="1 us")), (2, network(bandwidth="10 GB/s", latency="5 us")))
    assert collective(arch, groups(range(4)), "all_reduce").latency_s == pytest.approx((0, 6 * 5e-6))
    path = machine((2, network(latency="1 us")), (2, network(bandwidth="10 GB/s", latency="5 us", hops="path_sum")))
    assert collective(path, groups(range(4)), "all_reduce").latency_s == pytest.approx((3 * 1e-6, 3 * 5e-6))


def test_a_mesh_multiplies_bytes_and_latency_by_its_hops() -> None:
    arch = machine((6, network(topology="mesh", shape=[2, 3], latency="1 us")))
    use = collective(arch, groups([0, 5]), "all_gather")  # (0,0) and (1,2): 3 hops each way
    assert use.wire_bytes_per_byte == pytest.approx((3.0,))
    assert use.latency_s == pytest.approx((3e-6,))


def test_a_send_inside_one_accelerator_is_free_and_pairs_pay_where_they_meet() -> None:
    arch = machine((2, network()), (2, network(bandwidth="10 GB/s", latency="5 us")))
    use = send(arch, np.array([0, 0]), np.array([0, 3]))
    assert use.wire_bytes_per_byte == (0.0, 1.0)
    assert use.total(1e9) == pytest.approx(0.1 + 5e-6)
    assert send(arch, np.array([1]), np.array([1])).total(1e9) == 0
    with pytest.raises(InputError):
        send(arch, np.arange(2), np.arange(3))


def test_direct_all_to_all_on_one_switch_and_over_two_nodes() -> None:
    one = collective(machine((4, network(latency="2 us"))), groups(range(4)), "all_to_all")
    assert one.total(1e6) == pytest.approx(3 * (2e-6 + 1e6 / 4 / 100e9))
    assert one.wire_bytes_per_byte == pytest.approx((3.0,))
    for hops, seconds in (("slowest_link", 0.5 / 10e9), ("path_sum", 0.25 / 100e9 + 0.5 / 10e9)):
        arch = machine((2, network()), (2, network(bandwidth="10 GB/s", hops=hops)))
        use = collective(arch, groups(range(4)), "all_to_all")  # each sends V/4 to its neighbour, 2 V/4 across on its own link
        assert use.wire_bytes_per_byte == pytest.approx((4 / 4, 8 / 4))
        assert use.total(1.0) == pytest.approx(seconds)


def test_an_all_to_all_over_two_switches_that_one_link_reaches_takes_turns_on_it() -> None:
    # four of two nodes of two, 100 GB/s each into both switches: V/4 to the one beside, 2 V/4 to the two across; 10 GB/s: links of its own
    for speed, links, seconds in (("100 GB/s", None, 0.75 / 100e9), ("100 GB/s", 4, 0.25 / 100e9), ("200 GB/s", None, 0.25 / 100e9)):
        arch = machine((2, network()), (2, network(bandwidth=speed, striped=True, **({"links": links} if links else {}))))
        assert collective(arch, groups(range(4)), "all_to_all").total(1.0) == pytest.approx(seconds)
    three = machine((2, network()), (2, network()), (2, network()))  # 1, 2 and 4 of seven others
    assert collective(three, groups(range(8)), "all_to_all").total(1.0) == pytest.approx(7 / 8 / 100e9)
    assert collective(three, groups(range(0, 8, 2)), "all_to_all").total(1.0) == pytest.approx(3 / 4 / 100e9)
    slow = machine((2, network()), (2, network()), (2, network(oversubscription=3)))  # 4 V/8 over a third of the links
    assert collective(slow, groups(range(8)), "all_to_all").total(1.0) == pytest.approx(3 * 4 / 8 / 100e9)


@pytest.mark.parametrize(
    ("same", "speed", "seconds"),
    [
        (True, 100, 0.75 / 100e9),  # V/4 to the one beside and 2 V/4 across, all over one link of 100 GB/s
        (True, 101, 0.75 / 100e9),
        (True, 90, 0.75 / 100e9),
        (True, 50, 0.5 / 50e9),  # what goes across, at half the pace
        (False, 100, 0.5 / 100e9),  # links of their own beside those inside
        (False, 101, 0.5 / 101e9),
        (False, 1000, 0.25 / 100e9),
    ],
)
def test_links_are_the_same_or_not_as_the_tree_says_whatever_their_rates(same: bool, speed: float, seconds: float) -> None:
    arch = machine((2, network()), (2, network(bandwidth=f"{speed} GB/s", same_links=same)))
    assert collective(arch, groups(range(4)), "all_to_all").total(1.0) == pytest.approx(seconds)


def test_no_links_are_the_same_where_none_lead_on() -> None:
    with pytest.raises(ValidationError, match="same_links: 'tier0' joins the accelerators: there is no network below"):
        machine((2, network(same_links=True)))
    with pytest.raises(ValidationError, match="same_links of 'tier1': 'tier0' is a ring, no switch"):
        machine((2, network(topology="ring")), (2, network(same_links=True)))


def test_all_to_all_on_a_ring_relays() -> None:
    use = collective(machine((4, network(topology="ring"))), groups(range(4)), "all_to_all")
    assert use.wire_bytes_per_byte == pytest.approx((4 * (1 + 2 + 1) / 4,))


@given(st.sampled_from(["switch", "torus", "ring"]), st.integers(1, 3), st.integers(1, 4), st.integers(1, 3))
def test_all_to_all_counts_every_pair(topology: str, near: int, p: int, far: int) -> None:
    net = network(topology=topology, **({"shape": [2, 3]} if topology == "torus" else {}))
    arch = machine((6, net), (6, network()))
    mesh = Mesh(("far", "group", "near"), (far, p, near), (p * near, near, 1))
    rows = members(mesh, ["group"])
    use = collective(arch, rows, "all_to_all")
    pairs = [(a, b) for row in rows for a in row for b in row if a != b]
    single = [send(arch, np.array([a]), np.array([b])).wire_bytes_per_byte for a, b in pairs]
    if topology != "ring":
        assert use.wire_bytes_per_byte == pytest.approx(tuple(np.sum(single, axis=0) / p if pairs else (0, 0)))
    assert sum(use.wire_bytes_per_byte) >= len(pairs) / p - 1e-9


def test_broadcast_is_a_chain_and_halo_an_exchange_with_neighbours() -> None:
    arch = machine((4, network(latency="1 us")))
    chain = collective(arch, groups(range(4)), "broadcast")
    assert (chain.wire_bytes_per_byte, chain.total(1e6)) == ((3.0,), pytest.approx(1e-5 + 3e-6))
    halo = collective(arch, groups(range(4)), "halo")  # inner members send two messages over one link
    assert (halo.wire_bytes_per_byte, halo.total(1e6)) == ((6.0,), pytest.approx(2e-5 + 1e-6))


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "broadcast", "reduce", "halo"])
def test_a_group_of_one_costs_nothing(kind: str) -> None:
    use = collective(machine((4, network(latency="1 us"))), groups([0], [1]), kind)
    assert use.wire_bytes_per_byte == use.joules_per_byte == use.seconds_per_byte == use.latency_s == (0.0,)
    assert use.seconds(0.0).tolist() == [0.0]


def test_an_unknown_kind_algorithm_or_stream_is_named() -> None:
    arch = machine((4, network()))
    with pytest.raises(InputError, match="all_gathr") as caught:
        collective(arch, groups(range(4)), "all_gathr")
    assert "all_gather" in str(caught.value)
    with pytest.raises(InputError, match="rign"):
        collective(arch, groups(range(4)), "all_gather", "rign")
    with pytest.raises(InputError, match="no stream"):
        stream(arch, "tier0", np.arange(4), "scatter")
    with pytest.raises(InputError, match="not above"):
        stream(arch, "gpu", np.arange(4))


# -- weight streaming ------------------------------------------------------------------------------------------------------


def swarmx(wafers: int, used: int | None = None, sources: int = 1, **changes: Any) -> Architecture:
    tree = network(topology="tree", fanout=4, bandwidth="150 GB/s", latency="1 us", multicast=True, reduce=True) | changes
    return machine((wafers, tree), beside={"name": "memoryx", "count": sources, "memory": {}}, accelerators=used)


@pytest.mark.parametrize(("wafers", "depth", "factor"), [(n, *pair) for n, pair in GOLDEN["swarmx_tree_1to4"].items()])
def test_a_broadcast_tree_carries_each_byte_once_over_each_edge(wafers: int, depth: int, factor: int) -> None:
    for arch in (swarmx(wafers), swarmx(192, used=wafers)):
        down, up = (stream(arch, "memoryx", np.arange(wafers), kind) for kind in ("broadcast", "reduce"))
        assert down == up
        assert down.wire_bytes_per_byte == (factor,)
        assert down.total(1.5e9) + up.total(1.5e9) == pytest.approx(2 * (0.01 + depth * 1e-6))  # 2 M / BW + 2 depth t_hop
        assert down.joules_per_byte == pytest.approx((factor * 8e-12,))


def test_without_multicast_the_source_sends_a_copy_to_each() -> None:
    use = stream(swarmx(16, multicast=False), "memoryx", np.arange(16))
    assert use.wire_bytes_per_byte == (16 * 3,)
    assert use.total(1.5e9) == pytest.approx(16 * 0.01 + 2e-6)
    four = stream(swarmx(16, multicast=False, links=4), "memoryx", np.arange(16))
    assert four.total(1.5e9) == pytest.approx(4 * 0.01 + 2e-6)


def test_several_shards_add_up_on_the_sources_link() -> None:
    shards = [np.arange(0, 8), np.arange(8, 16)]
    one = stream(swarmx(16), "memoryx", shards)
    assert one.seconds_per_byte == pytest.approx((2 / 150e9,))
    assert one.wire_bytes_per_byte == (16 + 4 + 2,)
    assert stream(swarmx(16, sources=2), "memoryx", np.array(shards)).seconds_per_byte == pytest.approx((1 / 150e9,))


def test_a_stream_goes_on_through_the_tiers_below() -> None:
    tree = network(topology="tree", fanout=4, multicast=True, latency="1 us")
    for multicast in (True, False):  # the node has four links, so four copies take no longer
        arch = machine((4, network(multicast=multicast, latency="2 us")), (4, tree), beside={"name": "store", "memory": {}})
        use = stream(arch, "store", np.arange(16))
        assert use.wire_bytes_per_byte == (16, 5)
        assert use.total(1e9) == pytest.approx(1e9 / 100e9 + 3e-6)


def test_an_ancestors_own_memory_feeds_its_network_from_above() -> None:
    arch = machine((4, network(latency="2 us")))
    use = stream(arch, "tier0", np.arange(4))
    assert use.wire_bytes_per_byte == (4,)
    assert use.total(1e9) == pytest.approx(4 * 0.01 + 2e-6)


# -- what always holds -----------------------------------------------------------------------------------------------------

PLACED = st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 3))


@settings(max_examples=60)
@given(
    PLACED,
    st.sampled_from(["all_gather", "all_reduce", "all_to_all", "halo", "broadcast"]),
    st.sampled_from(["slowest_link", "path_sum"]),
    st.lists(st.floats(1, 900), min_size=2, max_size=2),
    st.lists(st.floats(1, 10), min_size=2, max_size=2),
    st.booleans(),
)
def test_more_bandwidth_is_never_slower_and_never_changes_energy(
    placed: tuple[int, int, int], kind: str, hops: str, bandwidth: list[float], faster: list[float], same: bool
) -> None:
    near, p, far = placed
    rows = members(Mesh(("far", "group", "near"), (far, p, near), (p * near, near, 1)), ["group"])

    def priced(scale: list[float]) -> Any:
        tiers = [
            network(bandwidth=f"{b * s} GB/s", latency=f"{t} us", hops=hops, **links)
            for b, s, t, links in zip(bandwidth, scale, (1, 7), ({}, {"same_links": same}), strict=True)
        ]
        return collective(machine((8, tiers[0]), (16, tiers[1])), rows, kind)

    slow, fast = priced([1, 1]), priced(faster)
    for size in (1.0, 1e6, 1e9):
        assert fast.total(size) <= slow.total(size) * (1 + 1e-12)
    assert fast.joules_per_byte == slow.joules_per_byte


@given(PLACED)
def test_a_ring_all_reduce_carries_2_p_minus_1_messages_a_group(placed: tuple[int, int, int]) -> None:
    near, p, far = placed
    arch = machine((8, network()), (16, network()))
    use = collective(arch, members(Mesh(("far", "group", "near"), (far, p, near), (p * near, near, 1)), ["group"]), "all_reduce")
    assert sum(use.wire_bytes_per_byte) == pytest.approx(2 * (p - 1) * near * far)


@given(PLACED, st.sampled_from(["all_gather", "all_to_all", "halo"]), st.sampled_from(["slowest_link", "path_sum"]), st.randoms())
def test_the_order_of_groups_does_not_matter(placed: tuple[int, int, int], kind: str, hops: str, random: Any) -> None:
    near, p, far = placed
    arch = machine((8, network()), (16, network(bandwidth="10 GB/s", hops=hops)))
    rows = members(Mesh(("far", "group", "near"), (far, p, near), (p * near, near, 1)), ["group"])
    order = list(range(len(rows)))
    random.shuffle(order)
    assert collective(arch, rows[order], kind) == collective(arch, rows, kind)


def test_131072_accelerators_are_priced_at_once_and_remembered() -> None:
    arch = machine((8, network()), (128, network(bandwidth="50 GB/s")), (128, network(bandwidth="20 GB/s")))
    mesh = Mesh(("data", "tensor"), (1024, 128), (128, 1))
    by_mesh = mesh_collective(arch, mesh, ["data"], "all_reduce")
    assert by_mesh == collective(arch, members(mesh, ["data"]), "all_reduce")
    assert by_mesh is mesh_collective(arch, mesh, ["data"], "all_reduce")


def test_what_groups_send_over_switches_is_counted_together_as_phase_by_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rings, exchanged halves, sends and random edges of random groups (in any order, some of which share members) over up to three
    switches, a few flows or all at once."""
    random = np.random.default_rng(54)
    for _ in range(60):
        tiers = [
            (int(random.integers(1, 5)), network(striped=bool(random.integers(2)), oversubscription=float(random.choice([1.0, 1.5]))))
            for _ in range(random.integers(1, 4))
        ]
        fabric, total = fabric_of(machine(*tiers)), int(np.prod([children for children, _ in tiers]))
        assert fabric.switched
        asked: list[tuple[Groups, Placed]] = []
        for _ in range(4):
            p = int(random.integers(2, 9))
            if total < p:
                continue
            chosen = [random.permutation(total)[:p] for _ in range(random.integers(1, 6))]
            rows = np.array(chosen if random.integers(2) else [np.sort(row) for row in chosen], dtype=np.int64)
            apart = len(np.unique(rows)) == rows.size
            some = Groups(rows, random.integers(1, 4, len(rows)), None, object(), apart)
            every, (here, there) = np.arange(p), random.integers(0, p, (2, int(random.integers(1, 9))))
            asked += [
                (some, Placed(every, np.roll(every, -1), 1.0, 1, "ring")),
                (some, Placed(every[: p // 2], every[p // 2 :][: p // 2], 1.0, 1, "halves", both=True)),
                (some, Placed(every[:-1], every[1:], 1.0, 1, "next", alone=True)),
                (some, Placed(here, there, 1.0, 1, "any", once=False, both=bool(random.integers(2)))),
            ]
        monkeypatch.setattr("rackmodel.cost.network.placed.AT_ONCE", int(random.choice([1, 20, 1000])))
        for (some, phase), together in zip(asked, moved_together(fabric, asked), strict=True):
            for mine, theirs in zip(together, _moved(fabric, some, phased(some.rows, phase)), strict=True):
                assert np.array_equal(mine, theirs)


def test_what_crosses_the_tiers_of_a_group_that_is_alike_everywhere_is_counted_as_flow_by_flow() -> None:
    """Every ring, halving and hierarchy of groups with as many members under every child of a tier, over up to four switches."""
    random, seen = np.random.default_rng(56), 0
    for _ in range(80):
        tiers = [
            (int(random.integers(1, 9)), network(striped=bool(random.integers(2)), oversubscription=float(random.choice([1.0, 1.5]))))
            for _ in range(random.integers(1, 5))
        ]
        fabric = fabric_of(machine(*tiers))
        extents = tuple(int(random.integers(1, tier.children + 1)) for tier in fabric.tiers)
        rows, weight = canonical(fabric, extents), random.integers(1, 4, 1)
        alike = Groups(rows, weight, extents, extents)
        for name in ("ring", "halving_doubling", "hierarchical") if rows.shape[1] > 1 else ():
            for phase in ALGORITHMS[name].phases(fabric, rows, "all_reduce", extents):
                if isinstance(phase, Placed) and phase.crossings is not None:
                    by_tier = crossed(fabric, extents, int(weight[0]), phase.crossings)
                    for mine, theirs in zip(by_tier, _moved(fabric, alike, phased(rows, phase)), strict=True):
                        assert np.array_equal(mine, theirs)
                    seen += 1
    assert seen > 200


def test_a_release_that_was_not_measured_is_priced_as_the_one_before_it_and_told(tmp_path: Path) -> None:
    """vLLM 0.22.0 on H100: 0.19.0 and 0.24.0 were measured, the newest that is no newer counts; the others are themselves."""
    file = tmp_path / "calls.csv"
    head = "system,framework,version,kernel_source,num_gpus,message_bytes,latency_us"
    rows = [f"h100_sxm,vLLM,{version},vLLM_custom_graph,8,131072,10" for version in ("0.19.0", "0.22.0", "0.24.0", "9.0")]
    file.write_text("\n".join([head, *rows]), encoding="utf-8")
    scored = validate([file]).rows
    assert scored[1].predicted == scored[0].predicted
    assert scored[3].predicted == scored[2].predicted
    assert [row.assumptions for row in scored] == [(), ("vllm 0.22.0 is priced as 0.19.0",), (), ("vllm 9.0 is priced as 0.24.0",)]
