"""A link between any two children: one traversal, as a switch, but no place where what all send could be added."""

from __future__ import annotations

from rackmodel.cost.network.topologies.switch import Switch


class PointToPoint(Switch):
    """Hops of a switch, without one."""

    name = "point_to_point"
    adds = False
