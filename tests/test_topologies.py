"""The table of topologies: it and the schema agree, every row answers alike however it is asked, and one more is one more row."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from rackmodel.arrays import Ints
from rackmodel.cost.network.collectives import collective, mesh_collective
from rackmodel.cost.network.streams import stream
from rackmodel.cost.network.topologies import TABLE, hop_count, hop_parts, ring_hop_count, topology_of
from rackmodel.cost.network.topologies.base import Parts, Topology
from rackmodel.inputs.schema import literals, options
from rackmodel.model.architecture import Architecture, Network
from rackmodel.model.placement import Mesh
from rackmodel.model.topologies import LINKS_BY, MEETING, SUCH_AS, TOPOLOGIES, UNIFORM

NEEDED = {"shape": [3, 4], "fanout": 3}
GPU = {"name": "gpu", "accelerator": True, "compute": {"rate": "1 TFLOP/s"}}


def network(topology: str, **changes: Any) -> Network:
    keys = {key: NEEDED[key] for key in TOPOLOGIES[topology]}
    return Network.model_validate({"topology": topology, "bandwidth": "1 GB/s"} | keys | changes)


def test_the_table_and_the_schema_name_the_same_topologies() -> None:
    assert set(TABLE) == set(TOPOLOGIES) == set(literals(options(Network.model_fields["topology"].annotation)))
    assert all(TABLE[name].name == name for name in TABLE)
    assert {key for keys in TOPOLOGIES.values() for key in keys} == set(SUCH_AS) == set(NEEDED)
    assert {name for name, one in TABLE.items() if one.uniform} == UNIFORM
    assert {name for name, one in TABLE.items() if one.meets} == MEETING
    assert {name for name, one in TABLE.items() if one.pairs} == set(LINKS_BY)


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_a_topology_says_which_key_it_lacks(topology: str) -> None:
    for key in TOPOLOGIES[topology]:
        with pytest.raises(ValidationError, match=re.escape(f"a {topology} network needs a {key}, such as {SUCH_AS[key]}")):
            network(topology, **{key: None})


@pytest.mark.parametrize("topology", TABLE)
def test_hops_are_a_distance_and_agree_with_their_parts_and_flags(topology: str) -> None:
    net, places = network(topology), np.arange(12)
    table = hop_count(net, 12, places[:, None], places)
    assert np.array_equal(table, table.T)
    assert np.array_equal(table > 0, ~np.eye(12, dtype=bool))
    assert np.array_equal(table, sum(distance[at[:, None], at] for at, distance in hop_parts(net, 12)))
    assert topology_of(net).uniform == (table.max() == 1)
    assert np.all(ring_hop_count(net, 12, places[:, None], places) <= table)


def test_nothing_outside_the_table_asks_for_a_topology_by_name() -> None:
    package = Path(__file__).parents[1] / "rackmodel"
    asks = re.compile(r"\.topology\s*(==|!=|in\b|not in\b)|match .*\.topology\b")
    for path in package.rglob("*.py"):
        if "topologies" not in path.parts:
            assert not asks.search(path.read_text(encoding="utf-8")), path


class Star(Topology):
    """All through the first child."""

    name = "star"

    def hops(self, network: Network, children: int, a: Ints, b: Ints) -> Ints:
        """To the middle and out again."""
        return 2 - (np.minimum(a, b) == 0)

    def parts(self, network: Network, children: int) -> Parts:
        """The position itself."""
        at = np.arange(children)
        return [(at, np.where(at[:, None] == at, 0, self.hops(network, children, at[:, None], at)))]


def test_a_topology_is_one_object_and_two_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def machine() -> Architecture:
        net = {"topology": "star", "bandwidth": "1 GB/s", "latency": "1 us", "energy": "1 pJ/bit"}
        return Architecture.model_validate(
            {"architecture": "m", "tree": {"name": "node", "network": net, "children": [GPU | {"count": 4}]}}
        )

    with pytest.raises(ValidationError, match="star"):
        machine()
    with monkeypatch.context() as table:
        table.setitem(TABLE, "star", Star())
        table.setitem(TOPOLOGIES, "star", ())
        arch = machine()
        use = collective(arch, np.arange(4)[None, :], "all_gather")  # edges 0-1, 1-2, 2-3 and 3-0: 1 + 2 + 2 + 1 traversals of 3/4
        assert use.wire_bytes_per_byte == pytest.approx((6 * 3 / 4,))
        assert use.latency_s == pytest.approx((3 * 2e-6,))
        assert mesh_collective(arch, Mesh(("a",), (4,), (1,)), ["a"], "all_gather") == use
        assert collective(arch, np.arange(4)[None, :], "all_to_all").wire_bytes_per_byte == pytest.approx(((6 * 1 + 6 * 2) / 4,))
        assert stream(arch, "node", np.arange(4)).wire_bytes_per_byte == (4,)
    with pytest.raises(ValidationError, match="star"):
        machine()
