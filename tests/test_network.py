"""Traversals by topology, broadcast trees, and which network joins two accelerators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackmodel.cost.network.topologies import hop_count, hop_parts, ring_hop_count
from rackmodel.cost.network.topologies.tree import tree_depth, tree_edge_loads
from rackmodel.cost.network.topology import attached_tier, common_tier, tier_offsets
from rackmodel.errors import InputError
from rackmodel.model.architecture import Architecture, Network


def network(topology: str, **changes: Any) -> Network:
    return Network.model_validate({"topology": topology, "bandwidth": "1 GB/s"} | changes)


def table(net: Network, children: int) -> list[list[int]]:
    places = np.arange(children)
    return hop_count(net, children, places[:, None], places[None, :]).tolist()


@pytest.mark.parametrize("topology", ["switch", "point_to_point"])
def test_a_switch_is_one_hop_to_anyone_else(topology: str) -> None:
    assert table(network(topology), 3) == [[0, 1, 1], [1, 0, 1], [1, 1, 0]]


def test_a_ring_goes_the_short_way_round() -> None:
    assert table(network("ring"), 5)[0] == [0, 1, 2, 2, 1]


def test_neighbours_in_a_ring_collective_are_one_hop_on_a_ring_network() -> None:
    assert ring_hop_count(network("ring"), 8, [0, 3, 2], [4, 0, 2]).tolist() == [1, 1, 0]
    assert ring_hop_count(network("torus", shape=[8, 1]), 8, [0, 3, 2], [4, 0, 2]).tolist() == [4, 3, 0]


def graph(topology: str, shape: list[int]) -> Any:
    if topology != "row_column":
        return nx.grid_graph(dim=list(reversed(shape)), periodic=topology == "torus")
    cells = list(np.ndindex(*shape))
    return nx.Graph([(a, b) for a in cells for b in cells if sum(x != y for x, y in zip(a, b, strict=True)) == 1])


@pytest.mark.parametrize("topology", ["mesh", "torus", "row_column"])
@pytest.mark.parametrize("shape", [[3, 4], [5, 2], [2, 3, 4], [4, 5]])
def test_a_grid_counts_the_shortest_path_of_its_graph(topology: str, shape: list[int]) -> None:
    children, cells = int(np.prod(shape)), list(np.ndindex(*shape))
    lengths = dict(nx.all_pairs_shortest_path_length(graph(topology, shape)))
    expected = [[lengths[a][b] for b in cells] for a in cells]
    assert table(network(topology, shape=shape), children) == expected


@pytest.mark.parametrize("topology", ["switch", "ring", "mesh", "torus", "row_column", "tree"])
def test_hops_are_a_sum_over_coordinates(topology: str) -> None:
    shape = {"shape": [2, 3, 4]} if topology in ("mesh", "torus", "row_column") else {"fanout": 3} if topology == "tree" else {}
    net, places = network(topology, **shape), np.arange(24)
    total = sum(distance[coordinate[:, None], coordinate[None, :]] for coordinate, distance in hop_parts(net, 24))
    assert total.tolist() == hop_count(net, 24, places[:, None], places[None, :]).tolist()


def test_a_row_column_network_is_one_hop_in_a_line_and_two_across() -> None:
    assert table(network("row_column", shape=[2, 3]), 6)[0] == [0, 1, 1, 1, 2, 2]


def test_a_tree_goes_up_to_the_common_node_and_down_again() -> None:
    assert table(network("tree", fanout=2), 5)[0] == [0, 2, 4, 4, 6]


@given(st.integers(2, 5), st.integers(1, 60))
def test_a_tree_counts_the_edges_between_leaves(fanout: int, leaf: int) -> None:
    tree = nx.Graph([((h, n), (h + 1, n // fanout)) for h in range(7) for n in range(-(-64 // fanout**h))])
    length = nx.shortest_path_length(tree, (0, 0), (0, leaf))
    assert hop_count(network("tree", fanout=fanout), 64, 0, leaf) == length


@pytest.mark.parametrize(("leaves", "depth", "edges"), [(1, 0, 1), (4, 1, 5), (8, 2, 11), (16, 2, 21), (64, 3, 85), (192, 4, 256)])
def test_the_swarmx_tree_has_these_edges(leaves: int, depth: int, edges: int) -> None:
    assert tree_depth(leaves, 4) == depth
    assert sum(edges_to(range(leaves), depth)) == edges


def test_a_part_of_a_tree_needs_only_its_own_branches() -> None:
    assert edges_to([0, 1], 2) == [2, 1, 1]
    assert edges_to([0, 15], 2) == [2, 2, 1]


def edges_to(leaves: Sequence[int], depth: int) -> list[int]:
    """Edges at each height that one shard takes from the root's uplink to some leaves of a tree of fan-out 4."""
    leaf = np.array(leaves)
    return [int(load.sum()) for load in tree_edge_loads(np.zeros_like(leaf), leaf, 4, depth)]


def machine() -> Architecture:
    net = {"topology": "switch", "bandwidth": "1 GB/s"}
    gpu = {"name": "gpu", "count": 4, "accelerator": True, "compute": {"rate": "1 TFLOP/s"}}
    node = {"name": "node", "count": 3, "network": net, "children": [gpu]}
    store = {"name": "store", "count": 2, "memory": {}}
    pod = {"name": "pod", "network": net, "children": [store, node]}
    return Architecture.model_validate({"architecture": "m", "tree": pod})


def test_two_accelerators_are_joined_by_the_lowest_network_over_both() -> None:
    tiers = machine().tiers
    assert common_tier(tiers, [0, 0, 3, 5], [0, 3, 4, 11]).tolist() == [-1, 0, 1, 1]
    with pytest.raises(InputError, match="no network joins accelerators 0 and 12"):
        common_tier(tiers, [0, 0], [1, 12])


def test_children_declared_before_shift_positions() -> None:
    assert tier_offsets(machine()) == (0, 2)


def test_a_memory_beside_or_above_the_accelerators_can_stream_and_no_other() -> None:
    assert attached_tier(machine(), "store") == (1, 0, 2)
    assert attached_tier(machine(), "pod") == (1, -1, 1)
    assert attached_tier(machine(), "node") == (0, -1, 1)
    with pytest.raises(InputError, match="did you mean 'store'") as caught:
        attached_tier(machine(), "stor")
    assert "gpu" not in str(caught.value)
