"""Children joined pair by pair: worked by hand, run on data round every ring, and never faster than max-flow and linear programs allow."""

from __future__ import annotations

import itertools
from collections import Counter
from math import prod
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ortools.linear_solver import pywraplp
from pydantic import ValidationError

from rackmodel.cost.network.algorithms import doing, linked
from rackmodel.cost.network.collectives import ALGORITHMS, KINDS, collective, mesh_collective, offered, send, send_table
from rackmodel.cost.network.streams import stream
from rackmodel.errors import InputError
from rackmodel.inputs import read_architecture
from rackmodel.model.architecture import Architecture, Network
from rackmodel.model.placement import Mesh, members
from tests import samples
from tests.tiers import GPU, machine

GB = 1e9
GATHERS = {"reduce_scatter": 1, "all_gather": 1, "all_reduce": 2}


def pairs(count: int, **said: Any) -> tuple[int, dict[str, Any]]:
    return count, {"topology": "point_to_point"} | said


def mesh_of_eight(**said: Any) -> Architecture:
    """Eight accelerators with a link of 64 GB/s to each other, as Infinity Fabric joins a node of MI300X."""
    return machine(pairs(8, bandwidth="64 GB/s", **said))


# -- worked by hand --------------------------------------------------------------------------------------------------------


def test_a_send_has_the_one_link_of_its_pair() -> None:
    arch = mesh_of_eight()
    assert send(arch, np.array([0]), np.array([5])).total(64e9) == pytest.approx(1)
    assert send(arch, np.arange(4), np.arange(4) + 4).total(64e9) == pytest.approx(1)  # four pairs, four links
    assert send(arch, np.array([0, 0, 0]), np.array([1, 2, 3])).total(64e9) == pytest.approx(1)  # to three at once
    assert send(arch, np.array([0, 0]), np.array([1, 1])).total(64e9) == pytest.approx(2)
    assert send(arch, np.array([0, 1]), np.array([1, 0])).total(64e9) == pytest.approx(1)  # either way has its own
    assert send_table(arch, [[1, 4]], [[4, 1]], [2], [4]).total(64e9)[0] == pytest.approx(1)  # stages of four, hand over to the next
    assert send(mesh_of_eight(pair_links=2, striped=True), np.array([0]), np.array([5])).total(64e9) == pytest.approx(1 / 2)
    assert send(mesh_of_eight(pair_links=2), np.array([0]), np.array([5])).total(64e9) == pytest.approx(1)  # one flow, one link


@pytest.mark.parametrize("p", [2, 4, 8])
def test_a_group_takes_the_links_among_its_members_and_no_others(p: int) -> None:
    """An all-reduce of V sends V / p to each of p - 1 others, twice: at 8, 2 (7/8) V / t is 7 * 64 = 448 GB/s."""
    arch, rows = mesh_of_eight(latency="1 us"), np.arange(8).reshape(-1, p)
    spread = members(Mesh(("group", "near"), (p, 8 // p), (8 // p, 1)), ["group"])
    for groups in (rows, rows[:1], spread):
        for kind, times in GATHERS.items():
            assert collective(arch, groups, kind, "direct").total(64e9) == pytest.approx(times / p + times * 1e-6)
            assert collective(arch, groups, kind, "ring").total(64e9) == pytest.approx(times / p + times * (p - 1) * 1e-6)
        assert collective(arch, groups, "all_to_all").total(64e9) == pytest.approx(1 / p + 1e-6)
        for kind in ("broadcast", "reduce"):
            assert collective(arch, groups, kind, "direct").total(64e9) == pytest.approx(1 / (p - 1) + min(2, p - 1) * 1e-6)
            assert collective(arch, groups, kind).total(64e9) == pytest.approx(1 / (p - 1) + (p - 1) * 1e-6)
        assert collective(arch, groups, "halo").total(64e9) == pytest.approx(1 + 1e-6)
        if p == 8:
            assert 2 * 7 / 8 * 64 / (collective(arch, groups, "all_reduce", "direct").total(64e9) - 2e-6) == pytest.approx(448)


def test_energy_is_that_of_a_ring_and_of_every_pair() -> None:
    whole = np.arange(8)[None, :]
    for name in ("ring", "direct"):
        use = collective(mesh_of_eight(), whole, "all_reduce", name)
        assert use.wire_bytes_per_byte == pytest.approx((2 * 7,))
        assert use.joules_per_byte == pytest.approx((14 * 8e-12,))
        assert collective(mesh_of_eight(), whole, "broadcast", name).wire_bytes_per_byte == pytest.approx((7,))


def test_rings_over_nodes_leave_each_by_all_its_links_while_they_go_round_it() -> None:
    """Sixteen on two nodes: parts of 15/16 V go round at once, an eighth over a link of each pair, the whole over eight links."""
    nodes = {"bandwidth": "50 GB/s", "striped": True}
    arch = machine(pairs(8, bandwidth="64 GB/s"), (2, nodes))
    assert collective(arch, np.arange(16)[None, :], "all_gather").seconds_per_byte == pytest.approx((0, 15 / 16 / 8 / 50e9))
    slow = machine(pairs(8, bandwidth="40 GB/s"), (2, nodes))
    assert collective(slow, np.arange(16)[None, :], "all_gather").seconds_per_byte == pytest.approx((15 / 16 / 8 / 40e9, 0))
    assert collective(arch, np.arange(16)[None, :], "all_gather", "direct").total(1.0) == pytest.approx(1 / 8 / 64e9 + 1 / 2 / 8 / 50e9)
    assert collective(arch, np.arange(16)[None, :], "all_gather", "hierarchical").total(1.0) == pytest.approx(
        1 / 8 / 64e9 + 1 / 2 / 8 / 50e9
    )


def test_nodes_joined_pair_by_pair_share_the_links_of_each_pair() -> None:
    arch = machine((8, {"bandwidth": "900 GB/s"}), pairs(4, bandwidth="50 GB/s", pair_links=2, striped=True))
    rows = members(Mesh(("group", "near"), (4, 8), (8, 1)), ["group"])  # eight groups, a member of each in every node
    assert collective(arch, rows, "all_gather").total(1.0) == pytest.approx(8 * 1 / 4 / 2 / 50e9)
    assert collective(arch, rows, "all_to_all").total(1.0) == pytest.approx(8 * 1 / 4 / 2 / 50e9)
    assert collective(arch, rows[:1], "all_gather").total(1.0) == pytest.approx(1 / 4 / 50e9)  # one member has one of both links
    whole = collective(arch, np.arange(32)[None, :], "all_to_all")  # 8 members send 8 others V/32 each between two nodes
    assert whole.total(1.0) == pytest.approx(64 / 32 / 2 / 50e9)


def test_a_host_has_links_of_its_own_to_every_child() -> None:
    arch = machine(pairs(4, bandwidth="100 GB/s"))
    shards = np.arange(4)[:, None]  # one for each
    assert stream(arch, "tier0", shards).total(100e9) == pytest.approx(1)
    assert stream(arch, "tier0", np.array([[0, 1, 2, 3]])).total(100e9) == pytest.approx(1)  # a copy for each, each over its own link
    assert stream(arch, "tier0", np.array([[0], [0]])).total(100e9) == pytest.approx(2)
    node: dict[str, Any] = {"name": "node", "network": {"topology": "point_to_point", "bandwidth": "100 GB/s"}}
    stores = {"name": "store", "count": 2, "memory": {"capacity": "1 TB"}}
    beside = Architecture.model_validate({"architecture": "m", "tree": node | {"children": [GPU | {"count": 4}, stores]}})
    assert stream(beside, "store", np.array([[0], [0], [0], [0]])).total(100e9) == pytest.approx(2)  # four to one, over two links


def test_links_of_a_child_are_not_those_of_a_pair() -> None:
    for said, word in (({"topology": "point_to_point", "links": 7}, "pair_links"), ({"topology": "switch", "pair_links": 1}, "links")):
        with pytest.raises(ValidationError, match=f"a {said['topology']} network has none, say {word}: those"):
            Network.model_validate({"bandwidth": "64 GB/s"} | said)


def test_straight_collectives_are_offered_where_pairs_have_links() -> None:
    node, plain = machine(pairs(8), (2, {})), machine((8, {}), (2, {}))
    inside, across = Mesh(("a", "b"), (8, 2), (1, 8)), Mesh(("a", "b"), (2, 8), (8, 1))
    assert "direct" in offered(node, inside, ["a"], "all_reduce")
    assert "direct" not in offered(node, across, ["a"], "all_reduce")  # one of each node
    assert "direct" not in offered(plain, inside, ["a"], "all_reduce")
    assert "in_network" not in offered(machine(pairs(8, multicast=True, reduce=True)), Mesh(("a",), (8,), (1,)), ["a"], "all_reduce")
    with pytest.raises(InputError, match="does not apply"):
        mesh_collective(plain, inside, ["a"], "all_reduce", "direct")


# -- every ring ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_rings_of_every_order_add_up_and_carry_as_much_over_every_pair(n: int) -> None:
    """A reduce-scatter of a part of V round each of the (n - 1)! rings: all sums are there, and each pair carries what the model says."""
    rings = [(0, *rest) for rest in itertools.permutations(range(1, n))]
    values = np.random.default_rng(0).integers(0, 100, (len(rings), n, n))  # part, member, block
    carried = Counter[tuple[int, int]]()
    for ring, held in zip(rings, values, strict=True):
        sums = held.copy()
        for step in range(n - 1):
            moved = [(ring[i], ring[(i + 1) % n], ring[(i - step - 1) % n]) for i in range(n)]  # who, to whom, whose block
            arriving = [sums[a, block].copy() for a, _, block in moved]
            for (a, b, block), value in zip(moved, arriving, strict=True):
                sums[b, block] += value
                carried[a, b] += 1
        assert all(sums[member, member] == held[:, member].sum() for member in range(n))
    assert len(carried) == n * (n - 1)
    assert len(set(carried.values())) == 1
    part = 1 / (n * len(rings))  # a block, of V
    assert collective(machine(pairs(n)), np.arange(n)[None, :], "reduce_scatter").total(100e9) == pytest.approx(carried[0, 1] * part)


@pytest.mark.parametrize(("inner", "outer"), [(3, 2), (4, 3), (2, 4)])
@pytest.mark.parametrize("which", [(True, False), (False, True), (True, True)])
def test_rings_over_two_tiers_carry_what_walks_in_every_order_do(inner: int, outer: int, which: tuple[bool, bool]) -> None:
    crossed, orders = Counter[tuple[int, int, int]](), 0
    tries = [list(itertools.permutations(range(n))) if own else [tuple(range(n))] for n, own in zip((inner, outer), which, strict=True)]
    for near, far in itertools.product(*tries):
        orders += 1
        walk = [node * inner + place for node in far for place in near]
        for a, b in zip(walk, walk[1:] + walk[:1], strict=True):
            here, there = a // inner, b // inner
            crossed[(0, a, b) if here == there else (1, here, there)] += 1
    p = inner * outer
    words = ["point_to_point" if own else "switch" for own in which]
    arch = machine(*((n, {"topology": word, "striped": True}) for n, word in zip((inner, outer), words, strict=True)))
    tiers = [max((times for (tier, *_), times in crossed.items() if tier == index), default=0) / orders for index in (0, 1)]
    seconds = (p - 1) / p * max(tiers[0], tiers[1] / inner)
    use = collective(arch, np.arange(p)[None, :], "all_gather")
    assert use.total(100e9) == pytest.approx(seconds)
    wire = [sum(times for (tier, *_), times in crossed.items() if tier == index) / orders * (p - 1) / p for index in (0, 1)]
    assert use.wire_bytes_per_byte == pytest.approx(wire)


# -- what no algorithm can beat --------------------------------------------------------------------------------------------


def links_of(arch: Architecture, group: list[int]) -> Any:
    """A directed graph of the links that a group's members may use: bytes a second from accelerators ('a') over ports of children."""
    graph = nx.DiGraph()
    for index, tier in enumerate(arch.tiers):
        rate, links = tier.network.bandwidth_bytes_per_s / GB, tier.network.links or tier.network.pair_links or tier.below
        for member in group:
            graph.add_edge(("a", member), ("out", index, member // tier.below))
            graph.add_edge(("in", index, member // tier.below), ("a", member))
        children = {member // tier.below for member in group}
        for a, b in itertools.permutations(sorted(children), 2):
            if a // tier.children == b // tier.children:
                if tier.network.topology == "point_to_point":
                    graph.add_edge(("out", index, a), ("in", index, b), capacity=rate * links)
                    continue
                graph.add_edge(("out", index, a), ("switch", index, a // tier.children), capacity=rate * links)
                graph.add_edge(("switch", index, b // tier.children), ("in", index, b), capacity=rate * links)
    return graph


def flow(graph: Any, sources: list[int], target: int) -> float:
    """Bytes a second into a member, of whatever leaves some others."""
    graph = graph.copy()
    for source in sources:
        graph.add_edge("all", ("a", source))
    return float(nx.maximum_flow_value(graph, "all", ("a", target)))


def least_seconds(graph: Any, group: list[int], kind: str) -> float:
    """Of V = 1 GB: what every member must receive (of a reduction: send) over what links let in; of an all-to-all the linear program's."""
    p = len(group)
    if kind == "all_to_all":
        return all_to_all_by_linear_program(graph, group)
    if kind in ("broadcast", "reduce"):
        return max(1 / flow(graph, group[:1], other) for other in group[1:])
    if kind == "halo":
        return max(1 / flow(graph, [a], b) for a, b in itertools.pairwise(group))
    one = max((p - 1) / p / flow(graph, [other for other in group if other != member], member) for member in group)
    return max(one, 1 / min(flow(graph, group[:1], other) for other in group[1:])) if kind == "all_reduce" else one


def all_to_all_by_linear_program(graph: Any, group: list[int]) -> float:
    """Least seconds of 1/p GB from every member to every other, relayed by any member as it likes: bytes on every link over its rate."""
    solver = pywraplp.Solver.CreateSolver("GLOP")
    seconds = solver.NumVar(0, solver.infinity(), "t")
    on: dict[Any, list[Any]] = {edge: [] for edge in graph.edges}
    for source in group:
        sent = {edge: solver.NumVar(0, solver.infinity(), "") for edge in graph.edges}
        for node in graph.nodes:
            parts = 1 - len(group) if node == ("a", source) else int(node[0] == "a")  # that stay, of 1/p each
            into, out = (sum(sent[edge] for edge in edges) for edges in (graph.in_edges(node), graph.out_edges(node)))
            solver.Add(into - out == parts / len(group))
        for edge, variable in sent.items():
            on[edge].append(variable)
    for (a, b), variables in on.items():
        if "capacity" in graph.edges[a, b]:
            solver.Add(sum(variables) <= graph.edges[a, b]["capacity"] * seconds)
    solver.Minimize(seconds)
    assert solver.Solve() == pywraplp.Solver.OPTIMAL
    return float(seconds.solution_value())


@pytest.mark.parametrize(("n", "group"), [(2, [0, 1]), (5, [0, 2, 3]), (4, [0, 1, 2, 3]), (6, [0, 1, 2, 3, 5]), (8, [1, 2, 5, 7])])
@pytest.mark.parametrize("links", [1, 3])
def test_what_goes_straight_takes_as_long_as_the_best_that_links_allow(n: int, group: list[int], links: int) -> None:
    arch, p = machine(pairs(n, pair_links=links, striped=True)), len(group)
    graph = links_of(arch, group)
    for kind in ("all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce"):
        for name in ("direct", "ring"):
            assert collective(arch, np.array([group]), kind, name).total(GB) == pytest.approx(least_seconds(graph, group, kind))
    every = 2 * (p - 1) / (p * (p - 1) * links * 100)  # 2 (p - 1) V in all (Patarasuk and Yuan 2009) over p (p - 1) pairs
    assert collective(arch, np.array([group]), "all_reduce", "direct").total(GB) == pytest.approx(every)


TIER = st.tuples(st.integers(2, 4), st.booleans(), st.sampled_from([None, 1, 2]), st.booleans())


@settings(max_examples=samples.cases(15, 300))
@given(st.lists(TIER, min_size=1, max_size=2), st.data())
def test_no_collective_beats_the_links_of_its_members(tiers: list[Any], data: Any) -> None:
    said = []
    for number, (count, own, links, striped) in enumerate(tiers):
        joined = {"topology": "point_to_point", "pair_links": links} if own else {"topology": "switch", "links": links}
        said.append((count, joined | {"striped": striped, "bandwidth": f"{100 - 60 * number} GB/s"}))
    arch = machine(*said)
    total = prod(count for count, *_ in tiers)
    group = sorted(data.draw(st.sets(st.integers(0, total - 1), min_size=2, max_size=6)))
    graph = links_of(arch, group)
    for kind in KINDS:
        least = least_seconds(graph, group, kind)
        for name in ALGORITHMS:
            try:
                use = collective(arch, np.array([group]), kind, name)
            except InputError:
                continue
            assert use.total(GB) >= least * (1 - 1e-9), (kind, name)


@settings(max_examples=samples.cases(10, 300))
@given(st.integers(2, 6), st.integers(1, 3), st.sampled_from(["switch", "point_to_point"]), st.booleans(), st.booleans(), st.data())
def test_more_links_or_bandwidth_of_pairs_are_never_slower(n: int, nodes: int, outer: str, striped: bool, more: bool, data: Any) -> None:
    links = data.draw(st.integers(1, 4))
    better = pairs(n, pair_links=links + 1, striped=striped) if more else pairs(n, pair_links=links, striped=striped, bandwidth="137 GB/s")
    rest = nodes, {"topology": outer, "bandwidth": "50 GB/s", "striped": striped}
    degree = data.draw(st.sampled_from([d for d in range(1, n * nodes + 1) if n * nodes % d == 0]))
    rows = members(
        Mesh(("far", "near"), (degree, n * nodes // degree), (n * nodes // degree, 1)), [data.draw(st.sampled_from(["far", "near"]))]
    )
    for kind, name in itertools.product(KINDS, ALGORITHMS):
        try:
            before = collective(machine(pairs(n, pair_links=links, striped=striped), rest), rows, kind, name)
        except InputError:
            continue
        after = collective(machine(better, rest), rows, kind, name)
        assert after.total(1.0) <= before.total(1.0) * (1 + 1e-12)
        assert after.wire_bytes_per_byte == pytest.approx(before.wire_bytes_per_byte)


def test_straight_ways_are_asked_of_networks_whose_pairs_have_links() -> None:
    """`algorithms: best` asks no switch for them; asked for alone they are kept, and a ring stands in."""
    pairs, switch = (read_architecture(name).tiers for name in ("mi300x_nodes", "dgx_h100"))
    assert linked(pairs, ["ring", "direct"]) == ("ring", "direct")
    assert linked(switch, ["ring", "direct"]) == ("ring",)
    assert linked(switch, ["direct"]) == ("direct",)


def test_algorithms_that_are_not_asked_do_nothing_there() -> None:
    """Neither those that networks have no links for, on any group of any mesh, nor those of other kinds of collectives."""
    for name in ("dgx_h100", "mi300x_nodes", "tpu_v5p", "wse2_cores"):
        machine = read_architecture(name)
        left_out = set(ALGORITHMS) - set(linked(machine.tiers, list(ALGORITHMS)))
        for kind, degrees in itertools.product(KINDS, ((2, 4), (4, 2), (8, 1), (4, 4))):
            there = offered(machine, Mesh(("a", "b"), degrees, (degrees[1], 1)), ("a",), kind)
            assert not left_out & set(there), (name, kind, degrees)
            assert set(there) <= set(doing(kind, ALGORITHMS))
