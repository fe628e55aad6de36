"""Every two children are joined by links of their own, which nothing else takes: one traversal, and no place where what all send meets."""

from __future__ import annotations

from rackmodel.cost.network.topologies.switch import Switch


class PointToPoint(Switch):
    """Hops of a switch, without one."""

    name = "point_to_point"
    pairs = True
    adds = False
