"""Fans of levels without memory are joined to one; what no joined fan can say, and what would count for nothing, is refused."""

import pytest

from rackmodel import api
from rackmodel.errors import InputError

TOP = """
architecture: joined
tree:
  name: chip
  accelerator: true
  memory: {bandwidth: 1 TB/s, read_energy: 1 pJ/bit, write_energy: 1 pJ/bit}
  children:
  - name: buffer
    memory: {capacity: 1 KiB, bandwidth: 1 TB/s, read_energy: 0.1 pJ/bit, write_energy: 0.1 pJ/bit}
"""
UNIT = "compute: {rate: 1 MMAC/s, energy: 1 pJ/MAC}"


def found(inside: str, goal: str = "latency"):
    return api.search(TOP + inside, "gemm", "loopnest", sets=["m=8", "k=2", "n=4"], minimize=goal).result


def clusters(count: int, below: str, above: str = "") -> str:
    """A level without memory between the buffer and eight units."""
    return f"    {above}\n    children:\n    - {{name: cluster, count: {count}, {below} children: [{{name: mac, count: 8, {UNIT}}}]}}\n"


@pytest.mark.parametrize("fan", ["", "fan: {x: 4, y: 2},", "fan: {linear: 8},", "fan: {linear: 8, multicast_width: 1},"])
def test_eight_units_below_one_cluster_are_eight_units(fan: str) -> None:
    """64 products on 8 units of 1 M a second: 8 us, as the buffer's own fan says."""
    assert found(clusters(1, fan)).latency_s == pytest.approx(8e-6, rel=1e-9)
    direct = f"    {fan.rstrip(',')}\n    children:\n    - {{name: mac, count: 8, {UNIT}}}\n"
    assert found(clusters(1, fan), "energy").energy_j == pytest.approx(found(direct, "energy").energy_j, rel=1e-12)


def test_a_hop_next_to_the_units_is_of_each_unit_that_is_reached() -> None:
    """Two clusters of four: as eight units of one fan with that hop."""
    below = "fan: {x: 4, hop_energy: 3 pJ/bit},"
    two = f"    children:\n    - {{name: cluster, count: 2, {below} children: [{{name: mac, count: 4, {UNIT}}}]}}\n"
    one = f"    fan: {{x: 8, hop_energy: 3 pJ/bit}}\n    children:\n    - {{name: mac, count: 8, {UNIT}}}\n"
    assert found(two, "energy").energy_j == pytest.approx(found(one, "energy").energy_j, rel=1e-12)


@pytest.mark.parametrize(
    ("inside", "said"),
    [
        (clusters(2, "", "fan: {x: 2, hop_energy: 1 pJ/bit}"), "tree.buffer.fan.hop_energy"),
        (clusters(2, "", "fan: {x: 2, link_bandwidth: 1 GB/s}"), "tree.buffer.fan.link_bandwidth"),
        (clusters(2, "", "fan: {x: 2, multicast_width: 1}"), "tree.buffer.fan.multicast_width"),
        (clusters(2, "fan: {x: 8, reduction_width: 2},"), "tree.cluster.fan.reduction_width"),
        (clusters(2, "fan: {linear: 8},"), "tree.cluster.fan.linear"),
        (
            f"    children:\n    - {{name: mac, count: 8, {UNIT}}}\n    - {{name: vec, count: 4, {UNIT}}}\n",
            "'mac' and 'vec' lie side by side in 'buffer'",
        ),
        (f"    {UNIT}\n    children:\n    - {{name: mac, count: 8, {UNIT}}}\n", "compute of 'buffer': 'mac' below it computes"),
        (
            f"    {UNIT}\n    children:\n    - {{name: mac, count: 8, memory: {{capacity: 64 B}}}}\n",
            "tree.mac.memory: it is below the compute of 'buffer'",
        ),
    ],
)
def test_what_would_count_for_nothing_is_refused(inside: str, said: str) -> None:
    with pytest.raises(InputError) as refused:
        found(inside)
    assert said in str(refused.value)


def test_parts_beside_the_units_that_neither_hold_nor_compute_are_no_units() -> None:
    parts = "    - {name: pads, count: 3, static_power: 1 W}\n"
    units = f"    - {{name: mac, count: 8, {UNIT}}}\n"
    for children in (parts + units, units + parts):
        result = found("    children:\n" + children)
        assert result.latency_s == pytest.approx(8e-6, rel=1e-9)
        assert sum(row.joules for row in result.ledger.rows if row.component == "static") == pytest.approx(3 * 8e-6, rel=1e-9)
